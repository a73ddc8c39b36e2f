//! Metal kernels as native code for CPUs: what the CPU driver loads, and what `elinvar pack --target cpu` writes.
//!
//! [`Compiler`] is a source that has been checked; [`Compiler::kernel`] gives the machine code of one kernel for one [`Form`], by way
//! of the cache. The front end's code of one thread (`elinvar-msl`) becomes a function over whole threadgroups (`elinvar-spmd`), which
//! clang compiles and a linker makes a shared object ([`Generator`]).
//!
//! [`Library`] is the same by way of a bundle that was packed ahead, for machines without clang. `elinvar-ptx` has the same parts for
//! NVIDIA GPUs.
//!
//! How the object is called is described at [`elinvar_spmd::compile`]. This crate loads nothing and runs nothing.
#![warn(missing_docs)]

mod compiler;
mod generate;
mod object;
mod order;
mod packed;
pub mod processor;
mod target;

pub use compiler::{Compiler, Form};
pub use elinvar_code::{Bounds, Bundle};
pub use elinvar_spmd::bounds::FaultRecord;
pub use generate::Generator;
pub use object::Object;
pub use packed::Library;
pub use target::Target;
