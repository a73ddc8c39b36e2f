//! The suite that every driver passes.
//!
//! A case runs kernels on a device through the public API and compares every element of what they
//! leave behind with values that the host computes in another way. A case that a driver cannot pass is
//! listed in that driver's test with the reason, and must then fail with exactly that.

/// A table of cases of one chapter from the names of its functions.
macro_rules! cases {
    ($chapter:literal: $($name:ident),* $(,)?) => {
        pub(super) const CASES: &[super::Case] =
            &[$(super::Case { name: concat!($chapter, "::", stringify!($name)), run: $name, parts: Vec::new }),*];
    };
}
mod accesses;
mod argument_buffers;
mod arguments;
mod atomics;
mod attributes;
mod barriers;
mod basics;
mod between;
mod checks;
mod common_functions;
mod constants;
mod errors;
mod events;
mod geometric_functions;
mod graphs;
mod grids;
mod indirect;
mod integer_functions;
mod integers;
mod lanes;
mod layout;
mod math_functions;
mod math_references;
mod matrices;
mod memory;
mod numbers;
mod order;
mod pipeline;
mod primitives;
mod program_scope;
mod relational_functions;
mod sheet;
mod simdgroup_kernels;
mod simdgroup_matrices;
mod simdgroups;
mod sources;
mod streams;
mod templates;
mod types;
mod values;
mod vectors;

use elinvar::{Args, Completion, Device, Grid, Kernel, Source, Stream};

/// What a case returns; a wrong result panics.
pub type CaseResult = Result<(), Box<dyn std::error::Error>>;

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    /// `chapter::name`.
    pub name: &'static str,
    /// Runs it.
    pub run: fn(&Device) -> CaseResult,
    /// What it checks in one run, by name; empty for a case that is one check.
    pub parts: fn() -> Vec<String>,
}

/// One case of two devices.
#[derive(Clone, Copy)]
pub struct PairCase {
    /// `chapter::name`.
    pub name: &'static str,
    /// Runs it.
    pub run: fn(&Device, &Device) -> CaseResult,
}

/// All cases of two devices.
pub fn pair_cases() -> Vec<PairCase> {
    between::CASES.to_vec()
}

/// All cases.
pub fn cases() -> Vec<Case> {
    [
        basics::CASES,
        grids::CASES,
        indirect::CASES,
        arguments::CASES,
        argument_buffers::CASES,
        values::CASES,
        accesses::CASES,
        barriers::CASES,
        order::CASES,
        memory::CASES,
        streams::CASES,
        events::CASES,
        pipeline::CASES,
        graphs::CASES,
        sources::CASES,
        errors::CASES,
        checks::CASES,
        types::CASES,
        vectors::CASES,
        matrices::CASES,
        integer_functions::CASES,
        common_functions::CASES,
        math_functions::CASES,
        relational_functions::CASES,
        geometric_functions::CASES,
        atomics::CASES,
        attributes::CASES,
        templates::CASES,
        layout::CASES,
        program_scope::CASES,
        constants::CASES,
        integers::CASES,
        simdgroups::CASES,
        simdgroup_kernels::CASES,
        simdgroup_matrices::CASES,
        &primitives::all(),
    ]
    .concat()
}

/// Compile `body` behind the usual first lines and take the kernel called `name`.
fn kernel(device: &Device, name: &str, body: &str) -> elinvar::Result<Kernel> {
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{body}");
    device.compile(Source::named(format!("{name}.metal"), text))?.kernel(name)
}

/// Launch on a stream. The cases' kernels are written here and stay within their arguments.
fn launch(
    kernel: &Kernel,
    stream: &Stream,
    grid: impl Into<Grid>,
    args: impl Args,
) -> elinvar::Result<Completion> {
    // SAFETY: every kernel of this suite accesses only what its arguments hold; see its case.
    #[allow(unsafe_code)]
    unsafe {
        kernel.launch(stream, grid.into(), args)
    }
}

/// Launch on a stream of its own and wait.
fn run(device: &Device, kernel: &Kernel, grid: impl Into<Grid>, args: impl Args) -> elinvar::Result<()> {
    launch(kernel, &device.stream()?, grid, args)?.wait().map(drop)
}

/// Compare every element.
#[track_caller]
fn expect_all<T: PartialEq + std::fmt::Debug>(got: &[T], expected: impl Fn(usize) -> T) {
    for (i, value) in got.iter().enumerate() {
        assert_eq!(*value, expected(i), "element {i} of {}", got.len());
    }
}
