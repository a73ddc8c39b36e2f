//! Compiles Metal kernels to native code for CPUs, for the CPU driver and for `elinvar pack --target cpu`.
//!
//! A [`Compiler`] is a validated source; [`Compiler::kernel`] returns the machine code of one kernel for one [`Form`], from the cache
//! if possible. The front end (`elinvar-msl`) emits LLVM IR for one thread, `elinvar-spmd` vectorizes it to a function over whole
//! threadgroups, and clang and a linker turn that into a shared object ([`Generator`]).
//!
//! A [`Library`] has the same interface and can also read a bundle that was compiled ahead of time, for machines without clang.
//! `elinvar-ptx` has the same structure for NVIDIA GPUs.
//!
//! [`elinvar_spmd::compile`] specifies the object's calling convention. This crate neither loads nor runs code.
#![warn(missing_docs)]

mod background;
mod by_size;
mod compiler;
mod generate;
mod object;
mod order;
mod packed;
pub mod processor;
mod specialization;
mod target;
mod tiers;

pub use by_size::{BySize, Made};
pub use compiler::{Compiler, Form, Loaded};
pub use elinvar_code::{Bounds, Bundle};
pub use elinvar_spmd::bounds::FaultRecord;
pub use elinvar_spmd::{LineSize, RowSizes, SizeBound};
pub use generate::Generator;
pub use object::Object;
pub use packed::Library;
pub use specialization::Specialization;
pub use target::Target;
