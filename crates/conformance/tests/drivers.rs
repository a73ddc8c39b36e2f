//! Runs the suite on every driver that is present, one test per case.

use elinvar::Device;
use elinvar_conformance::suite::{Case, cases};
use libtest_mimic::{Arguments, Failed, Trial};

/// Cases that a driver cannot pass, with the reason. They are run all the same: one that passes, or
/// fails without that reason in its message, is an error.
const CANNOT: &[(&str, &str, &str)] = &[
    ("cuda", "pipeline::a_deadline_stops_a_long_launch", "cannot stop what runs"),
    ("cuda", "pipeline::a_deadline_stops_endless_loops", "cannot stop a thread within a loop"),
];

fn main() {
    let arguments = Arguments::from_args();
    let devices = Device::all().unwrap_or_else(|error| panic!("listing devices: {error}"));
    assert!(!devices.is_empty(), "there is no device; the CPU driver always has one");
    let mut trials = Vec::new();
    // What is not there is seen to be left out, and never counts as passed.
    for (kind, reason) in Device::absent() {
        eprintln!("skipped: no {} device: {reason}", maker(kind));
        trials.push(Trial::test(format!("{kind}::no_device"), || Ok(())).with_ignored_flag(true));
    }
    for device in devices {
        for case in cases() {
            let device = device.clone();
            let name = format!("{}::{}", device.kind().name(), case.name);
            trials.push(Trial::test(name, move || run(&device, case)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn run(device: &Device, case: Case) -> Result<(), Failed> {
    let result = (case.run)(device);
    let kind = device.kind().name();
    let reason =
        CANNOT.iter().find(|(k, name, _)| *k == kind && *name == case.name).map(|(_, _, reason)| *reason);
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
