//! Runs the suite on every driver that is present, one test per case.

use elinvar::Device;
use elinvar_conformance::suite::{Case, cases, pair_cases};
use libtest_mimic::{Arguments, Failed, Trial};

/// Cases that a driver cannot pass, with the reason. They are run all the same: one that passes, or
/// fails without that reason in its message, is an error.
const CANNOT: &[(&str, &str, &str)] = &[
    ("cuda", "barriers::different_barriers_fault", "does not tell that threads"),
    ("cuda", "pipeline::a_deadline_stops_a_long_launch", "cannot stop what runs"),
    ("cuda", "pipeline::a_deadline_stops_endless_loops", "cannot stop a thread within a loop"),
    ("metal", "barriers::different_barriers_fault", UNDEFINED),
    ("metal", "barriers::divergent_barrier_refused", UNDEFINED),
    ("metal", "checks::atomics", NO_LAYER),
    ("metal", "checks::barriers_and_early_return", ONLY_BUFFERS),
    ("metal", "checks::before_the_start", NO_LAYER),
    ("metal", "checks::constant_table", ONLY_BUFFERS),
    ("metal", "checks::dynamic_threadgroup_memory", ONLY_BUFFERS),
    ("metal", "checks::empty_buffer", NO_LAYER),
    ("metal", "checks::one_of_two_buffers", NO_LAYER),
    ("metal", "checks::private_array", ONLY_BUFFERS),
    ("metal", "checks::read_past_the_end", NO_LAYER),
    ("metal", "checks::slices_are_bounds", NO_LAYER),
    ("metal", "checks::struct_copy", NO_LAYER),
    ("metal", "checks::threadgroup_variable", ONLY_BUFFERS),
    ("metal", "checks::within_bounds_nothing_changes", NO_LAYER),
    ("metal", "checks::works_after_a_fault", NO_LAYER),
    ("metal", "checks::write_past_the_end", NO_LAYER),
    ("metal", "indirect::checked_kernels", NO_LAYER),
    ("metal", "indirect::counts_beyond_the_limits", "the device alone sees the counts"),
    ("metal", "pipeline::a_deadline_stops_a_long_launch", NO_STOP),
    ("metal", "pipeline::a_deadline_stops_endless_loops", NO_STOP),
];

const UNDEFINED: &str = "Metal leaves undefined what happens at a barrier";
const ONLY_BUFFERS: &str = "Metal's shader validation is documented for buffers only";
/// Not a reason where the process has it.
const NO_LAYER: &str = "the process has no shader validation";
const NO_STOP: &str = "this device cannot stop";

fn main() {
    let mut arguments = Arguments::from_args();
    if cfg!(elinvar_apple) {
        // What a case leaves behind is seen when no other runs.
        arguments.test_threads = Some(1);
    }
    let devices = Device::all().unwrap_or_else(|error| panic!("listing devices: {error}"));
    assert!(!devices.is_empty(), "there is no device; the CPU driver always has one");
    let mut trials = Vec::new();
    // What is not there is seen to be left out, and never counts as passed.
    for (kind, reason) in Device::absent() {
        eprintln!("skipped: no {} device: {reason}", maker(kind));
        trials.push(Trial::test(format!("{kind}::no_device"), || Ok(())).with_ignored_flag(true));
    }
    // Copies between every two, in both directions.
    for (one, ours) in devices.iter().enumerate() {
        for (other, theirs) in devices.iter().enumerate().filter(|(other, _)| *other != one) {
            for case in pair_cases() {
                let (ours, theirs) = (ours.clone(), theirs.clone());
                let [from, to] = [&ours, &theirs].map(|device| device.kind().name());
                let name = format!("{from}::{}_from_{one}_to_{to}_{other}", case.name);
                let run = move || (case.run)(&ours, &theirs).map_err(|error| error.to_string().into());
                trials.push(Trial::test(name, move || counted(run)));
            }
        }
    }
    for device in devices {
        for case in cases() {
            let device = device.clone();
            let name = format!("{}::{}", device.kind().name(), case.name);
            trials.push(Trial::test(name, move || counted(|| run(&device, case))));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// A case that fails, too, if it leaves objects of Metal's behind, where they are counted.
fn counted(case: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
    case()?;
    #[cfg(elinvar_apple)]
    left::expect_what_devices_keep()?;
    Ok(())
}

fn run(device: &Device, case: Case) -> Result<(), Failed> {
    let result = (case.run)(device);
    let kind = device.kind().name();
    let validates = std::env::var_os("MTL_SHADER_VALIDATION").is_some_and(|value| value != "0");
    let cannot = CANNOT.iter().find(|(k, name, _)| *k == kind && *name == case.name);
    let reason = cannot.map(|(_, _, reason)| *reason).filter(|reason| !(validates && *reason == NO_LAYER));
    match (result, reason) {
        (Ok(()), None) => Ok(()),
        (Err(error), None) => Err(error.to_string().into()),
        (Ok(()), Some(reason)) => Err(format!("passes, though it is listed as: {reason}").into()),
        (Err(error), Some(reason)) if error.to_string().contains(reason) => Ok(()),
        (Err(error), Some(reason)) => Err(format!("expected `{reason}`, got: {error}").into()),
    }
}

/// Whose devices a driver has, for people.
fn maker(kind: &str) -> &str {
    match kind {
        "cuda" => "NVIDIA",
        "metal" => "Apple",
        other => other,
    }
}

/// What is alive of Metal's objects when a case has ended, as the libraries that stand in for Apple's count them.
#[cfg(elinvar_apple)]
#[allow(unsafe_code)] // calls their C functions
mod left {
    use std::ffi::{CStr, c_char};

    use elinvar::{Device, DeviceKind};
    use libtest_mimic::Failed;

    unsafe extern "C" {
        fn elinvar_apple_live(name: *const c_char) -> usize;
        fn elinvar_apple_settle(milliseconds: u64) -> bool;
        fn elinvar_apple_without_pool() -> usize;
    }

    fn settle() -> Result<(), Failed> {
        // SAFETY: takes a number.
        let settled = unsafe { elinvar_apple_settle(10_000) };
        if settled { Ok(()) } else { Err("the stand-in's threads go on".into()) }
    }

    /// Of what a device of the driver keeps: its staging buffer, its own queue, three kernels, and what 32 primitives took,
    /// each with up to four kernels of the library's.
    pub fn expect_what_devices_keep() -> Result<(), Failed> {
        let devices = Device::all()?;
        settle()?;
        for device in &devices {
            device.pool().trim(0);
            // What was traced holds its kernels until something else is.
            device.trace().start(1);
            device.trace().stop();
        }
        settle()?;
        let metal = devices.iter().filter(|device| device.kind() == DeviceKind::Metal).count();
        let kept = [
            (c"MTLBuffer", metal),
            (c"MTLCommandBuffer", 0),
            (c"MTLCommandEncoder", 0),
            (c"MTLCommandQueue", metal),
            (c"MTLLibrary", 0),
            (c"MTLComputePipelineState", 3 * metal),
            (c"MPSKernel", 4 * 32 * metal),
            (c"MPSMatrix", 0),
            (c"MPSVector", 0),
            (c"MPSImage", 0),
            (c"MPSCNNConvolutionWeightsAndBiasesState", 0),
        ];
        let live = |name: &CStr| {
            // SAFETY: a text that ends with a zero.
            unsafe { elinvar_apple_live(name.as_ptr()) }
        };
        let left = kept.into_iter().map(|(name, most)| (name, live(name), most));
        let left = left.filter(|(_, alive, most)| alive > most);
        let mut left =
            left.map(|(name, alive, most)| format!("{alive} of {name:?} are alive, {most} are kept"));
        // SAFETY: nothing is asked of the caller.
        let without_pool = unsafe { elinvar_apple_without_pool() };
        match (left.next(), without_pool) {
            (Some(text), _) => Err(text.into()),
            (None, 0) => Ok(()),
            (None, count) => Err(format!("{count} objects were autoreleased without a pool").into()),
        }
    }
}
