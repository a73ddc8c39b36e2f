//! The tests of the runtime that can share a process, in one program, since each program links everything. Most use simulated devices, each
//! its own. Those that count allocations, fork, start workers or limit their process are programs of their own.

#[path = "../support/mod.rs"]
mod support;

mod alerts;
mod bind;
mod buffers;
mod cooperative;
mod events;
mod gather;
mod graph;
mod graph_parameters;
mod graph_runs;
mod grid;
mod hardware;
mod health;
mod indirect;
mod learned;
mod lost;
mod memory;
mod metrics;
mod pipeline;
mod preparation;
mod recovery;
mod recovery_devices;
mod recovery_streams;
mod resident;
mod several;
mod sizes;
mod streams;
mod stress;
mod timeline;
mod uses;
