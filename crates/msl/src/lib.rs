//! Metal Shading Language to LLVM IR, with stock clang.
//!
//! ```text
//! Source ── clang -E ──> preprocessed text ── rewriter ──> C++17 ── clang ──> tables, LLVM IR
//!           our macros                        tokens only            our declarations
//! ```
//!
//! [`Program::compile`] checks a source in full and knows what its kernels take ([`Signature`]);
//! [`Program::ir`] gives the code of one kernel for one thread. clang is found at run time
//! ([`Toolchain`]) and run as a program.
//!
//! Invariants: every diagnostic has the user's file, line and column, never one of the text that the
//! rewriter made; the rewriter is linear and total; nothing that the user did not ask for is emitted.
//!
//! [`Checked`] is the same by way of the toolchain's cache ([`Toolchain::find_with`]): what was compiled before
//! needs no clang.
//!
//! This crate does not read IR beyond the tables that it wrote itself, and knows no device.
//!
//! [`Signature`]: elinvar_driver::Signature
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod checked;
mod clang;
mod diagnostics;
mod error;
mod ir;
mod lex;
mod preprocess;
mod program;
mod reflection;
mod rewrite;
pub mod stage;

pub use checked::{Checked, Declared};
pub use clang::toolchain::Toolchain;
pub use clang::{Counters, process, scratch};
pub use error::{Error, Result};
pub use program::{Program, Specialized, Together};
pub use rewrite::glue::ENTRY;

/// What the rewriter makes of preprocessed text. For fuzzing; no part of the API.
#[doc(hidden)]
pub fn rewritten_for_fuzzing(text: &str) -> String {
    let written = |spaces| rewrite::rewrite(text, spaces).text.text().to_owned();
    written(rewrite::AddressSpaces::Erased) + &written(rewrite::AddressSpaces::Annotated)
}
