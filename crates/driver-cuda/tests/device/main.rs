//! Tests of the driver's contract on real GPUs. Without a GPU every test is reported as ignored, with the reason.

mod bench;
mod faults;
mod launches;
mod memory;
mod peers;
mod queues;
mod temperature;

use std::sync::Arc;

use elinvar_driver::{Device, Driver};
use libtest_mimic::{Arguments, Trial};

use crate::bench::Bench;

fn main() {
    let driver = elinvar_driver_cuda::driver();
    let devices = driver.devices().unwrap_or_else(|error| panic!("listing devices: {error}"));
    if let Some(fault) = std::env::args().find_map(|arg| arg.strip_prefix("--fault=").map(str::to_owned)) {
        let device = devices.into_iter().next().unwrap_or_else(|| panic!("no device for `{fault}`"));
        return faults::child(&fault, Bench::new(device));
    }
    let arguments = Arguments::from_args();
    let absent = devices.is_empty();
    if absent {
        let reason = driver.absence().unwrap_or_default();
        eprintln!("skipped: no NVIDIA device: {reason}");
    }
    let tests = [memory::TESTS, queues::TESTS, launches::TESTS, temperature::TESTS, faults::TESTS].concat();
    let mut trials = Vec::new();
    for (name, test) in tests {
        // Without a device, one trial per test reports that the test is ignored.
        let on: Vec<Option<Arc<dyn Device>>> = match absent {
            true => vec![None],
            false => devices.iter().cloned().map(Some).collect(),
        };
        for (ordinal, device) in on.into_iter().enumerate() {
            let run = move || {
                if let Some(device) = device {
                    test(&Bench::new(device));
                }
                Ok(())
            };
            trials.push(Trial::test(format!("cuda:{ordinal}::{name}"), run).with_ignored_flag(absent));
        }
    }
    let few = devices.len() < 2;
    let between = move || {
        peers::copies(&devices);
        Ok(())
    };
    trials.push(Trial::test("cuda::copies_between_two_devices", between).with_ignored_flag(few));
    libtest_mimic::run(&arguments, trials).exit();
}
