//! Random kernels, compiled and run by the reference interpreter, and what differs.
//!
//! [`Kernel::random`] writes a kernel in Metal Shading Language that is free of races and of undefined
//! behavior by construction, with its launch and how it is compiled ([`Setting`]): a seed says all. [`check`] runs
//! kernels both ways and compares every byte; [`shrink`] takes out of a kernel what its difference does not
//! need. The compiler gets optimised code, the interpreter the same kernel's unoptimised code.
//!
//! Kernels come in batches ([`BATCH`]): those of one share the runs of clang, in the front end and behind the
//! compiler (`compile`, `module`). Most machine code is not optimised by clang, which would cost most of the
//! time and is not what is looked at here; a part is, for what clang makes of undefined values in our output.
//!
//! Floating-point arithmetic is left to small whole numbers, whose results are exact in any order.
#![warn(missing_docs)]

mod compare;
mod compile;
mod generate;
mod guarded;
mod module;
mod random;
mod shrink;

pub use compare::{Outcome, check, check_text};
pub use compile::Setting;
pub use generate::{BATCH, Kernel, Shape};
pub use guarded::{Launched, Launches, Wild};
pub use shrink::shrink;
