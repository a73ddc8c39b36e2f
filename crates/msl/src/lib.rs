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

mod allowed;
mod attributes;
mod builtins;
mod casts;
mod checked;
mod clang;
mod code;
mod constants;
mod defined;
mod diagnostics;
mod duplicates;
mod error;
mod expansion;
mod glue;
mod headers;
mod included;
mod initializers;
mod kernels;
mod literal;
mod mapped;
mod members;
mod origin;
mod parts;
mod precompiled;
mod preprocess;
pub mod process;
mod program;
pub mod record;
mod recursion;
mod rewrite;
pub mod scratch;
mod signature;
mod spaces;
pub mod stage;
mod tables;
mod token;
mod toolchain;
mod view;
mod wording;

pub use checked::Checked;
pub use clang::Counters;
pub use error::{Error, Result};
pub use glue::ENTRY;
pub use program::{Program, Specialized, Together};
pub use toolchain::Toolchain;

/// What the rewriter makes of preprocessed text. For fuzzing; no part of the API.
#[doc(hidden)]
pub fn rewritten_for_fuzzing(text: &str) -> String {
    let written = |spaces| rewrite::rewrite(text, spaces).text.text().to_owned();
    written(rewrite::Spaces::One) + &written(rewrite::Spaces::Told)
}
