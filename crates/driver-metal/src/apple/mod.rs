//! The driver, on systems with Metal.

mod buffer;
mod caps;
mod capture;
mod compile;
mod constants;
mod core;
mod crossing;
mod device;
mod encode;
mod encoding;
mod failure;
mod front;
mod host;
mod kernels;
mod label;
mod marks;
mod memory;
mod mps;
mod pipeline;
mod queue;
mod reflect;
mod signals;
mod stamps;
mod tasks;
mod transfer;
mod types;

pub use device::{MetalDriver, driver};
