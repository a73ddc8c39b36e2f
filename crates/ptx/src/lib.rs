//! PTX of Metal kernels, for the CUDA driver and for `elinvar check --target cuda`.
//!
//! [`Compiler`] is a validated source; [`Compiler::kernel`] returns the PTX of a kernel, through the cache. The front end's code
//! of one thread (`elinvar-msl`) is lowered by `elinvar_spmd::nvptx` and compiled by clang, which has an NVPTX target; no
//! software of NVIDIA is needed.
//!
//! [`Library`] is the same through a bundle that was packed ahead of time, for machines without clang.
//!
//! The documentation of [`Ptx`] and [`elinvar_spmd::nvptx`] specifies launches. This crate loads nothing and is independent of
//! devices.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod compiler;
mod generate;
mod packed;
mod target;

pub use compiler::{Compiler, Constants, Ptx};
pub use elinvar_code::{Bounds, Bundle};
pub use elinvar_spmd::bounds::FaultRecord;
pub use elinvar_spmd::nvptx::{Argument, Block, Extent, Parameter};
pub use packed::{BUNDLE, Library};
pub use target::Target;
