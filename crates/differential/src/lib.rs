//! Random kernels, run by a device and by the reference interpreter, and what differs.
//!
//! [`Kernel::random`] writes a kernel in Metal Shading Language that is free of races and of undefined
//! behaviour by construction; [`check`] runs it both ways and compares every byte; [`shrink`] takes out
//! of a kernel what its difference does not need. The device gets optimised code, the interpreter the same
//! kernel's unoptimised code.
//!
//! Floating-point arithmetic is left to small whole numbers, whose results are exact in any order.
#![warn(missing_docs)]

mod compare;
mod generate;
mod random;
mod shrink;

pub use compare::{Outcome, check, check_text};
pub use generate::{Kernel, Shape};
pub use shrink::shrink;
