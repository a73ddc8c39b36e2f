//! The driver, on systems with Metal.

mod archive;
mod buffer;
mod caps;
mod capture;
mod commands;
mod compile;
mod constants;
mod copies;
mod core;
mod crossing;
mod device;
mod encode;
mod encoding;
mod failure;
mod host;
mod kernel_log;
mod kernels;
mod label;
mod marks;
mod memory;
mod mps;
mod parts;
mod pipeline;
mod queue;
mod reflect;
mod removal;
mod rounds;
mod signals;
mod stamps;
mod tasks;
mod transfer;
mod types;
mod validation;

pub use device::{MetalDriver, driver};
