//! The GPU's temperature and other readings, compared with those reported by `nvidia-smi`.

use std::process::Command;

use elinvar_driver::{Error, Quantity, Thermal};

use crate::bench::{Bench, Test};

pub const TESTS: &[Test] = &[("temperature", temperature), ("readings", readings)];

/// A number of the GPU with this PCI address from `nvidia-smi`; `None` if it has none.
fn told<T: std::str::FromStr>(place: &str, query: &str) -> Option<T> {
    let query = [&format!("--query-gpu={query}"), "--format=csv,noheader,nounits", "--id", place];
    let output = Command::new("nvidia-smi").args(query).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// What does not change from one moment to the next is equal; of the rest, what has no value here has none there.
fn readings(bench: &Bench) {
    let details = bench.device.details();
    let place = details.iter().find(|(name, _)| *name == "PCI").expect("its place on the bus");
    let place = format!("{}.0", place.1);
    let readings = match bench.device.readings() {
        Ok(readings) => readings,
        Err(error) => {
            assert!(matches!(&error, Error::Unsupported(reason) if reason.contains("NVML")), "{error}");
            assert_eq!(told::<f64>(&place, "memory.total"), None, "nvidia-smi has readings, and we: {error}");
            return;
        }
    };
    // Name for nvidia-smi, its unit in ours, and by how much the two may differ.
    let rows: [(Quantity, &[&str], &str, f64, f64); 12] = [
        (Quantity::GpuMemoryLimit, &[], "memory.total", 1048576.0, 0.0),
        (Quantity::GpuMemoryUsage, &[], "memory.used", 1048576.0, f64::INFINITY),
        (Quantity::PowerLimit, &["gpu"], "enforced.power.limit", 1.0, 0.01),
        (Quantity::Power, &["gpu"], "power.draw", 1.0, f64::INFINITY),
        (Quantity::GpuSpeedLimit, &["sm"], "clocks.max.sm", 1e6, 0.0),
        (Quantity::GpuSpeedLimit, &["memory"], "clocks.max.memory", 1e6, 0.0),
        (Quantity::GpuSpeed, &["sm"], "clocks.sm", 1e6, f64::INFINITY),
        (Quantity::GpuUtilization, &[], "utilization.gpu", 0.01, f64::INFINITY),
        (Quantity::Temperature, &["memory"], "temperature.memory", 1.0, 15.0),
        (Quantity::PcieWidthLimit, &[], "pcie.link.width.max", 1.0, 0.0),
        (Quantity::Errors, &["ecc_corrected_volatile"], "ecc.errors.corrected.volatile.total", 1.0, 0.0),
        (
            Quantity::Errors,
            &["ecc_uncorrected_aggregate"],
            "ecc.errors.uncorrected.aggregate.total",
            1.0,
            0.0,
        ),
    ];
    for (quantity, attributes, query, unit, tolerance) in rows {
        let ours = readings.value(quantity, attributes);
        match (&ours, told::<f64>(&place, query)) {
            (Ok(ours), Some(told)) => {
                let difference = (ours / unit - told).abs();
                // nvidia-smi prints whole units, or two digits of them.
                assert!(difference <= tolerance + 0.5, "{query}: {} here, {told} by nvidia-smi", ours / unit);
                eprintln!("{query}: {} here, {told} by nvidia-smi", ours / unit);
            }
            (Err(reason), None) => eprintln!("{query}: {reason}; nvidia-smi has none"),
            (ours, told) => panic!("{query}: {ours:?}, though nvidia-smi says {told:?}"),
        }
    }
    for reading in &readings.list {
        eprintln!("{} {:?} {:?}", reading.quantity.name(), reading.attributes, reading.value);
    }
    let energy = bench.device.energy();
    let counted = readings.value(Quantity::Energy, &["gpu"]);
    match (energy, counted) {
        (Ok(energy), Ok(counted)) => assert!(energy.joules >= counted, "{energy:?} after {counted} J"),
        (Err(_), Err(reason)) => eprintln!("energy: {reason}"),
        other => panic!("{other:?}"),
    }
}

fn temperature(bench: &Bench) {
    let details = bench.device.details();
    let detail =
        |wanted: &str| details.iter().find(|(name, _)| *name == wanted).map(|(_, text)| text.as_str());
    let place = format!("{}.0", detail("PCI").expect("its place on the bus"));
    let ours = detail("temperature").map(|text| text.strip_suffix(" °C").unwrap().parse::<u32>().unwrap());
    match (bench.device.thermal(), told::<u32>(&place, "temperature.gpu")) {
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
