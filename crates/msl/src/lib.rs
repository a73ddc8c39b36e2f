//! Metal Shading Language to LLVM IR, with stock clang.
//!
//! ```text
//! Source ── clang -E ──> preprocessed text ── rewriter ──> C++17 ── clang ──> tables, LLVM IR
//!           our macros                        tokens only            our declarations
//! ```
//!
//! [`Program::compile`] checks a source and reads its kernels' signatures ([`Signature`]). [`Program::ir`] compiles one kernel
//! to the LLVM IR of one thread. clang is located at run time ([`Toolchain`]) and run as a process.
//!
//! [`CachedProgram`] is the same through the toolchain's cache ([`Toolchain::find_with`]): a hit starts no process.
//!
//! Invariants: diagnostics have locations in the user's files, never in generated text. The rewriter is total and takes linear
//! time. Only requested kernels are emitted.
//!
//! This crate reads no IR but the tables that it has generated, and knows no device.
//!
//! [`Signature`]: elinvar_driver::Signature
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod cached_program;
mod clang;
mod diagnostics;
mod error;
mod ir;
mod lex;
mod optimizer;
mod preprocess;
mod program;
mod reflection;
mod rewrite;
pub mod stage;

pub use cached_program::{CachedProgram, Declared};
pub use clang::toolchain::Toolchain;
pub use clang::{InductionVariables, process, scratch};
pub use error::{Error, Result};
pub use ir::entries::Entries;
pub use ir::items;
pub use program::{CombinedModule, Program, Specialized};
pub use rewrite::glue::ENTRY;

/// The rewriter's output for preprocessed text, for fuzzing. Not part of the API.
#[doc(hidden)]
pub fn rewritten_for_fuzzing(text: &str) -> String {
    let written = |spaces| rewrite::rewrite(text, spaces).text.text().to_owned();
    written(rewrite::AddressSpaces::Erased) + &written(rewrite::AddressSpaces::Annotated)
}
