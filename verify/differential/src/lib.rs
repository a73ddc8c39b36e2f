//! Differential fuzzing: random kernels, compiled and interpreted, and their differences.
//!
//! [`Kernel::random`] generates a kernel in Metal Shading Language that is free of data races and undefined behavior by
//! construction, with its launch and compilation options ([`Setting`]); the seed determines everything. [`check`] runs kernels in
//! both ways and compares every byte; [`shrink`] reduces a kernel while its difference remains. The compiler receives optimized
//! code, the interpreter the same kernel's unoptimized code.
//!
//! Kernels are processed in batches ([`BATCH`]) that share the runs of clang, in the front end and for code generation
//! (`compile`, `module`). Most machine code is not optimized by clang, which would take most of the time; a part is, to test
//! clang's treatment of undefined values in the compiler's output.
//!
//! Floating-point arithmetic is limited to small integers, whose results are exact in any order.
#![warn(missing_docs)]

mod compare;
mod compile;
mod generate;
mod guarded;
mod logged;
mod module;
mod random;
mod shrink;

pub use compare::{Outcome, check, check_text};
pub use compile::Setting;
pub use generate::{BATCH, Kernel, Shape};
pub use guarded::{Launched, Launches, Wild};
pub use shrink::shrink;
