//! Collectives over shared memory: every one with every type, reduction and odd sizes, failures, and processes that are killed.

mod failures;
mod memory;
mod mpi;
mod processes;
mod queued;
mod results;
mod simulated;
