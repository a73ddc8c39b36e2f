//! The GPU's temperature, compared with that reported by `nvidia-smi`.

use std::process::Command;

use elinvar_driver::{Error, Thermal};

use crate::bench::{Bench, Test};

pub const TESTS: &[Test] = &[("temperature", temperature)];

/// Temperature of the GPU with this PCI address from `nvidia-smi`, in degrees Celsius.
fn told(place: &str) -> Option<u32> {
    let query = ["--query-gpu=temperature.gpu", "--format=csv,noheader,nounits", "--id", place];
    let output = Command::new("nvidia-smi").args(query).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

fn temperature(bench: &Bench) {
    let details = bench.device.details();
    let detail =
        |wanted: &str| details.iter().find(|(name, _)| *name == wanted).map(|(_, text)| text.as_str());
    let place = format!("{}.0", detail("PCI").expect("its place on the bus"));
    let ours = detail("temperature").map(|text| text.strip_suffix(" °C").unwrap().parse::<u32>().unwrap());
    match (bench.device.thermal(), told(&place)) {
        (Ok(level), Some(told)) => {
            let ours = ours.expect("the details have it too");
            assert!(ours.abs_diff(told) <= 15, "{ours} °C here, {told} °C by nvidia-smi");
            assert!(told > 80 || level < Thermal::Critical, "{level:?} at {told} °C");
            eprintln!("temperature: {level:?}, {ours} °C; nvidia-smi {told} °C");
        }
        (Err(Error::Unsupported(reason)), None) => assert!(reason.contains("NVML"), "{reason}"),
        (level, told) => panic!("{level:?}, though nvidia-smi says {told:?}"),
    }
}
