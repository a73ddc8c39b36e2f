//! LLVM IR text as Elinvar uses it: a model, a parser, a printer and a verifier.
//!
//! The front end's clang writes IR text, the passes of `elinvar-spmd` work on the model, and clang
//! reads the printed result; LLVM itself is never linked. The subset is what clang 19 and later emit
//! for compute kernels. Anything outside it is an error that names the construct and its line: an
//! instruction is never skipped.
//!
//! This crate is independent of Metal, threads and lanes.
#![forbid(unsafe_code)]

mod dominators;
mod layout;
mod lexer;
mod location;
mod model;
mod operands;
mod parser;
mod printer;
mod verify;

pub use dominators::{Dominators, PostDominators, postorder, predecessors};
pub use location::Location;
pub use model::*;
pub use parser::ParseError;
pub use verify::{VerifyError, verify};
