//! Reference interpreter of kernels, for the verification of the compilers. Simple and slow.
//!
//! [`run`] interprets the code of one thread, as the front end emits it, for every thread of a launch, threadgroups in ascending
//! order. It shares only the IR's data model and the list of intrinsics with the compilers, so that common errors are unlikely.
//!
//! - Every access is checked against its allocation: bounds, alignment, constness, lifetime (`memory`). Addresses are integers;
//!   an access through one that belongs to no allocation is a fault.
//! - Unwritten memory reads as zero, or is tracked up to decisions that depend on it ([`Uninitialized`]).
//! - Integer arithmetic is defined for every operand, as in the compilers (`integer`). `undef` is zero. Flags that can make
//!   results poison (`nsw`, `inbounds`, fast-math and others) have no effect.
//! - Barriers and simdgroup operations are executed in lockstep (`group`, `group_ops`, `order`).
//! - Modules lowered for NVPTX can be interpreted too ([`Options::blocks`]), with lanes in arbitrary order (`warp`).
//! - Log calls are passed on with their strings ([`LogRecord`]), and on request each access of memory ([`run_observed`]).
//! - Unknown constructs are a [`Fault`] that names them, and are never skipped.
//!
//! It does not detect data races: threads of a threadgroup run one after the other between barriers, so a kernel with a race gets
//! one of its possible results.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod address;
mod atomic;
mod call;
mod cast;
mod constant;
mod fault;
mod float;
mod group;
mod group_ops;
mod integer;
mod intrinsic;
mod launch;
mod log;
mod machine;
mod math;
mod memory;
mod observe;
mod order;
mod space;
mod step;
mod thread;
mod transfer;
mod value;
mod warp;

pub use fault::{Fault, Problem};
pub use launch::{Argument, Launch, Options, run, run_logged, run_observed, run_with};
pub use log::LogRecord;
pub use observe::{Access, Object};
pub use transfer::Uninitialized;
