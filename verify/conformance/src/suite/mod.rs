//! The conformance suite: test cases that every driver passes.
//!
//! A case runs kernels on a device through the public API and compares every element of their outputs with independently computed host
//! values. A case that a device does not support ends in [`Outcome::Unsupported`], which is not a pass: `tests/drivers.rs` lists the
//! expected ones with their reasons.

/// Creates a chapter's table of cases from the names of its functions.
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
mod bindings;
mod callbacks;
mod checks;
mod collectives;
mod common_functions;
mod constants;
mod cooperative;
mod divergent_barriers;
mod errors;
mod events;
mod function_pointers;
mod generated;
mod geometric_functions;
mod graphs;
mod grids;
mod hashes;
mod indirect;
mod indirect_commands;
mod integer_functions;
mod integers;
mod lanes;
mod language;
mod large_buffers;
mod layout;
mod libraries;
mod log_delivery;
mod logging;
mod math_functions;
mod math_references;
mod matrices;
mod memory;
mod nested_launches;
mod numbers;
mod order;
mod os_log;
mod overloads;
mod pipeline;
mod primitives;
mod program_scope;
mod readings;
mod relational_functions;
mod resident;
mod sharded;
mod sheet;
mod simdgroup_kernels;
mod simdgroup_matrices;
mod simdgroups;
mod sizes;
mod soundness;
mod sources;
mod streams;
mod templates;
mod tensor;
mod tensor_operations;
mod thread_groups;
mod tiers;
mod timeline;
mod types;
mod values;
mod vectors;

use std::sync::Mutex;

pub use callbacks::drop_last_device;
use elinvar::{Args, Completion, Device, Error, Grid, Kernel, Source, Stream};
pub use large_buffers::memory_is_short;

/// Result of a case. A wrong result panics; [`Error::Unsupported`] means that the device lacks a feature that the case needs.
type CaseResult = Result<(), Failure>;

/// Why a case failed.
pub type Failure = Box<dyn std::error::Error>;

/// Outcome of a case that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every result was computed and is correct.
    Computed,
    /// The device lacks a feature that the case needs; the reason.
    Unsupported(String),
}

impl Outcome {
    fn of(result: CaseResult) -> Result<Self, Failure> {
        let failure = match result {
            Ok(()) => return Ok(Self::Computed),
            Err(failure) => failure,
        };
        match failure.downcast_ref() {
            Some(Error::Unsupported(reason)) => Ok(Self::Unsupported(reason.clone())),
            _ => Err(failure),
        }
    }
}

/// A case.
#[derive(Clone, Copy)]
pub struct Case {
    /// `chapter::name`.
    pub name: &'static str,
    run: fn(&Device) -> CaseResult,
    /// Names of its checks, which share one run; empty if the case is a single check.
    pub parts: fn() -> Vec<String>,
}

impl Case {
    /// Runs the case on a device.
    ///
    /// # Errors
    ///
    /// An error of the device that the case does not expect.
    ///
    /// # Panics
    ///
    /// If a result is wrong.
    pub fn run(&self, device: &Device) -> Result<Outcome, Failure> {
        Outcome::of((self.run)(device))
    }
}

/// A case for two devices.
#[derive(Clone, Copy)]
pub struct PairCase {
    /// `chapter::name`.
    pub name: &'static str,
    run: fn(&Device, &Device) -> CaseResult,
}

impl PairCase {
    /// Runs the case on two devices.
    ///
    /// # Errors
    ///
    /// As for [`Case::run`].
    ///
    /// # Panics
    ///
    /// If a result is wrong.
    pub fn run(&self, ours: &Device, theirs: &Device) -> Result<Outcome, Failure> {
        Outcome::of((self.run)(ours, theirs))
    }
}

/// A case for several devices.
#[derive(Clone, Copy)]
pub struct GroupCase {
    /// `chapter::name`.
    pub name: &'static str,
    run: fn(&[Device]) -> CaseResult,
}

impl GroupCase {
    /// Runs the case on devices, at least two, which may be the same.
    ///
    /// # Errors
    ///
    /// As for [`Case::run`].
    ///
    /// # Panics
    ///
    /// If a result is wrong.
    pub fn run(&self, devices: &[Device]) -> Result<Outcome, Failure> {
        Outcome::of((self.run)(devices))
    }
}

/// All cases for several devices.
pub fn group_cases() -> Vec<GroupCase> {
    [collectives::CASES, sharded::CASES].concat()
}

/// All cases for two devices.
pub fn pair_cases() -> Vec<PairCase> {
    between::CASES.to_vec()
}

/// All cases.
pub fn cases() -> Vec<Case> {
    [
        basics::CASES,
        grids::CASES,
        indirect::CASES,
        &indirect_commands::all(),
        &nested_launches::all(),
        arguments::CASES,
        bindings::CASES,
        function_pointers::CASES,
        argument_buffers::CASES,
        values::CASES,
        accesses::CASES,
        barriers::CASES,
        divergent_barriers::CASES,
        &cooperative::all(),
        thread_groups::CASES,
        resident::CASES,
        order::CASES,
        memory::CASES,
        large_buffers::CASES,
        streams::CASES,
        events::CASES,
        callbacks::CASES,
        pipeline::CASES,
        graphs::CASES,
        sources::CASES,
        generated::CASES,
        errors::CASES,
        checks::CASES,
        soundness::CASES,
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
        language::CASES,
        overloads::CASES,
        os_log::CASES,
        layout::CASES,
        logging::CASES,
        libraries::CASES,
        log_delivery::CASES,
        readings::CASES,
        program_scope::CASES,
        constants::CASES,
        sizes::CASES,
        tiers::CASES,
        timeline::CASES,
        integers::CASES,
        hashes::CASES,
        simdgroups::CASES,
        simdgroup_kernels::CASES,
        simdgroup_matrices::CASES,
        &primitives::all(),
        &tensor::all(),
        tensor_operations::CASES,
    ]
    .concat()
}

/// Compiles `body` after the usual preamble and returns the kernel `name`.
fn kernel(device: &Device, name: &str, body: &str) -> elinvar::Result<Kernel> {
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{body}");
    device.compile(Source::named(format!("{name}.metal"), text))?.kernel(name)
}

/// Held by cases that trace the driver's device, which cases share.
static TRACE: Mutex<()> = Mutex::new(());

/// Launches on a stream. The suite's own kernels stay within their arguments' bounds.
fn launch(
    kernel: &Kernel,
    stream: &Stream,
    grid: impl Into<Grid>,
    args: impl Args,
) -> elinvar::Result<Completion> {
    // SAFETY: every kernel of this suite stays within its arguments; see its case.
    #[allow(unsafe_code)]
    unsafe {
        kernel.launch(stream, grid.into(), args)
    }
}

/// Launches on a new stream and waits.
fn run(device: &Device, kernel: &Kernel, grid: impl Into<Grid>, args: impl Args) -> elinvar::Result<()> {
    launch(kernel, &device.stream()?, grid, args)?.wait().map(drop)
}

/// Expects a fault of this kernel with all parts in its message.
#[track_caller]
fn expect_fault<T: std::fmt::Debug>(result: elinvar::Result<T>, kernel: &str, parts: &[&str]) {
    match result {
        Err(Error::Fault(fault)) => {
            assert_eq!(fault.kernel, kernel, "{fault}");
            for part in parts {
                assert!(fault.message.contains(part), "`{part}` is missing in: {fault}");
            }
        }
        other => panic!("expected a fault with {parts:?}, got {other:?}"),
    }
}

/// Expects an invalid or unsupported call, with this part in its message.
#[track_caller]
fn refused<T>(result: elinvar::Result<T>, part: &str) {
    match result {
        Err(Error::InvalidArgument(text) | Error::Unsupported(text)) => {
            assert!(text.contains(part), "`{part}` is missing in: {text}");
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("accepted, expected: {part}"),
    }
}

/// Compares every element.
#[track_caller]
fn expect_all<T: PartialEq + std::fmt::Debug>(got: &[T], expected: impl Fn(usize) -> T) {
    for (i, value) in got.iter().enumerate() {
        assert_eq!(*value, expected(i), "element {i} of {}", got.len());
    }
}
