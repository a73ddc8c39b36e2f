//! A plain, slow interpreter of kernels, to check compilers against.
//!
//! [`run`] takes the code of one thread as the front end leaves it and runs every thread of a launch
//! step by step, groups in ascending order. It shares nothing with the compilers but the IR's model and
//! the list of intrinsics, so what both give is unlikely to be wrong in both.
//!
//! - Every access is checked against its allocation: bounds, alignment, constness, lifetime
//!   (`memory`). Addresses are integers, and an access through one that names no allocation is a fault.
//! - Memory never written reads as zero, or is tracked to where a decision rests on it
//!   ([`Uninitialized`]).
//! - Integer arithmetic is defined for every operand, as the compilers define it (`integer`). `undef` is
//!   zero. Flags that make results poison (`nsw`, `inbounds`, fast-math and their kin) change nothing.
//! - Barriers and functions across a simdgroup are met in lockstep (`group`, `group_ops`, `order`).
//! - Code that was prepared for NVPTX runs as well ([`Options::blocks`]), its lanes in no order (`warp`).
//! - What is unknown is a [`Fault`] that names it, never skipped.
//!
//! It does not look for races: threads of a group run one after the other between barriers, so a kernel
//! with a race gets one of the results that it may have.
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
mod machine;
mod math;
mod memory;
mod order;
mod step;
mod thread;
mod transfer;
mod value;
mod warp;

pub use fault::{Fault, Problem};
pub use launch::{Argument, Launch, Options, run, run_with};
pub use transfer::Uninitialized;
