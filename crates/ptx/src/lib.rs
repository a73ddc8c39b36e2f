//! Metal kernels as PTX: what a driver for NVIDIA GPUs loads, and what `elinvar check --target cuda` looks at.
//!
//! [`Compiler`] is a source that has been checked; [`Compiler::kernel`] gives the PTX of one kernel, by way of the cache.
//! The front end's code of one thread (`elinvar-msl`) is prepared by `elinvar_spmd::nvptx` and compiled by clang, which has
//! NVIDIA's instruction set as a target; nothing of NVIDIA's is needed.
//!
//! [`Library`] is the same by way of a bundle that was packed ahead, for machines without clang. [`Sources`] gives both in the
//! contract's shape, for tools that make code and run nothing.
//!
//! What a launch has to do is in the docs of [`Ptx`] and [`elinvar_spmd::nvptx`]. This crate loads nothing and knows no
//! device.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod compiler;
mod generate;
mod library;
mod packed;
mod target;

pub use compiler::{Compiler, Constants, Ptx};
pub use elinvar_code::{Bounds, Bundle};
pub use elinvar_spmd::bounds::FaultRecord;
pub use elinvar_spmd::nvptx::{Argument, Extent, Parameter};
pub use library::Sources;
pub use packed::{BUNDLE, Library};
pub use target::Target;
