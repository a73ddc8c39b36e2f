//! Kernels from their sources.

#![allow(dead_code)] // each test crate uses its part

pub mod cache;
pub mod observed;

use std::sync::Arc;

use elinvar_analysis::{Analysis, analyze};
use elinvar_code::{Program, user_cache};
use elinvar_driver::{Signature, Source};
use elinvar_ir::Module;
use elinvar_msl::InductionVariables;

/// The code of one thread of a kernel, and its signature.
pub fn module(source: &str, kernel: &str) -> (Arc<Module>, Signature) {
    let source = Source::named("k.metal", source);
    let program = Program::new(user_cache(), &source, InductionVariables::AsWritten).expect("compiles");
    let thread = program.thread(kernel, &[]).expect("a kernel");
    let module = program.module(&thread).expect("its code");
    (module, thread.origin.signature.clone())
}

/// The analysis of a kernel.
pub fn analyzed(module: &Arc<Module>, signature: &Signature) -> Analysis {
    analyze(module.clone(), signature).expect("analyzes")
}
