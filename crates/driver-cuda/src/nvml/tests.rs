//! A management library of our own, `fake.c`, in the place of NVIDIA's: values, missing functions, errors of each function, an instance of a
//! divided GPU, and values out of range.

use std::process::Command;

use elinvar_driver::{Quantity as Q, Readings, Result};
use elinvar_msl::Toolchain;
use nvml_wrapper::Nvml;

use super::{Found, Identity};

const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

/// Loads the library, compiled with these definitions.
fn load(definitions: &[&str]) -> Nvml {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libnvidia-ml.so.1");
    let clang = Toolchain::find().unwrap();
    let mut command = Command::new(clang.path());
    command
        .args(["-shared", "-fPIC", "-nostdlib", "-O1", "-Wno-unused"])
        .args(definitions)
        .arg("-o")
        .arg(&library);
    let output = command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/nvml/fake.c")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Nvml::builder().lib_path(library.as_os_str()).init().unwrap()
}

fn identity() -> Identity {
    Identity { uuid: Some(UUID.into()), pci: None }
}

fn readings(nvml: &Nvml) -> Readings {
    Found::new(nvml, &identity()).unwrap_or_else(|reason| panic!("{reason}")).readings()
}

fn value(readings: &Readings, quantity: Q, attributes: &[&str]) -> f64 {
    readings
        .value(quantity, attributes)
        .unwrap_or_else(|error| panic!("{quantity:?} {attributes:?}: {error}"))
}

fn text<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn values_are_in_the_units_of_their_quantities() {
    let nvml = load(&[]);
    let readings = readings(&nvml);
    let expected: &[(Q, &[&str], f64)] = &[
        (Q::Energy, &["gpu"], 123.456),
        (Q::Power, &["gpu"], 250.5),
        (Q::PowerLimit, &["gpu"], 700.0),
        (Q::Temperature, &["gpu"], 41.0),
        (Q::Temperature, &["memory"], 55.0),
        (Q::TemperatureLimit, &["shutdown"], 92.0),
        (Q::TemperatureLimit, &["slowdown"], 89.0),
        (Q::TemperatureLimit, &["memory_throttled"], 95.0),
        (Q::TemperatureLimit, &["throttled"], 87.0),
        (Q::GpuUtilization, &[], 0.75),
        (Q::MemoryInterfaceUtilization, &[], 0.3),
        (Q::GpuMemoryUsage, &[], (20_u64 << 30) as f64),
        (Q::GpuMemoryLimit, &[], (80_u64 << 30) as f64),
        (Q::GpuSpeed, &["sm"], 1.755e9),
        (Q::GpuSpeed, &["memory"], 2.619e9),
        (Q::GpuSpeedLimit, &["sm"], 1.98e9),
        (Q::GpuThrottled, &["sw_power_cap"], 1.0),
        (Q::GpuThrottled, &["hw_slowdown"], 0.0),
        (Q::Errors, &["ecc_corrected_volatile"], 1.0),
        (Q::Errors, &["ecc_corrected_aggregate"], 2.0),
        (Q::Errors, &["ecc_uncorrected_volatile"], 11.0),
        (Q::Errors, &["ecc_uncorrected_aggregate"], 12.0),
        (Q::Errors, &["pcie_replay"], 3.0),
        (Q::NvLinkUp, &["0"], 1.0),
        (Q::NvLinkUp, &["1"], 0.0),
        // `NVML_NVLINK_VERSION_4_0` is 6.
        (Q::NvLinkVersion, &["1"], 4.0),
        (Q::NvLinkSpeed, &[], 26.562e9),
        (Q::NvLinkBytes, &["0", "transmit"], 1_024_000.0),
        (Q::NvLinkBytes, &["1", "receive"], 2_049_024.0),
        (Q::NvLinkErrors, &["0", "recovery"], 1.0),
        (Q::NvLinkErrors, &["1", "crc_flit"], 102.0),
        (Q::PcieGeneration, &[], 4.0),
        (Q::PcieGenerationLimit, &[], 5.0),
        (Q::PcieWidth, &[], 8.0),
        (Q::PcieWidthLimit, &[], 16.0),
        (Q::PcieBytes, &["transmit"], 5e9 + 1000.0),
    ];
    for (quantity, attributes, expected) in expected {
        let found = value(&readings, *quantity, attributes);
        assert!(
            (found - expected).abs() <= expected * 1e-12,
            "{quantity:?} {attributes:?}: {found}, not {expected}"
        );
    }
    let crc = text(readings.value(Q::NvLinkErrors, &["0", "crc_data"]));
    assert!(crc.ends_with("by NVML: the requested operation is not available on the target device"), "{crc}");
    // The count of received bytes has 32 bits and starts again between its two readings.
    assert!(text(readings.value(Q::PcieBytes, &["receive"])).contains("in 32 bits"));
    let [sent, received] =
        ["transmit", "receive"].map(|direction| value(&readings, Q::PcieThroughput, &[direction]));
    assert!(
        sent > 0.0 && (received / sent - 512.0 / 1000.0).abs() < 1e-9,
        "{sent} and {received} bytes a second"
    );
    assert_eq!(readings.of(Q::NvLinkUp).count(), 2, "the GPU has two links");
    assert!(readings.of(Q::GpuThrottled).count() == 9 && readings.of(Q::CpuTime).next().is_none());
    let energy = Found::new(&nvml, &identity()).ok().unwrap().energy().unwrap();
    assert_eq!((energy.joules, energy.resolution, energy.power_limit), (123.456, 1e-3, Some(700.0)));
}

#[test]
fn a_gpu_is_found_by_its_uuid_or_else_by_its_address() {
    let nvml = load(&[]);
    let found = |uuid: Option<&str>, pci: Option<&str>| {
        let identity = Identity { uuid: uuid.map(Into::into), pci: pci.map(Into::into) };
        Found::new(&nvml, &identity).map(|found| found.instance.is_some())
    };
    let (other, place) = ("ffffffff-4455-6677-8899-aabbccddeeff", "00000000:1b:00.0");
    assert_eq!(found(Some(UUID), None), Ok(false));
    assert_eq!(found(Some(other), Some(place)), Ok(false));
    assert_eq!(found(None, Some(place)), Ok(false));
    let missing = Err("a query to find an object was unsuccessful".to_owned());
    assert_eq!(found(Some(other), None), missing);
    assert_eq!(found(Some(other), Some("00000000:1c:00.0")), missing);
    assert_eq!(found(None, None), Err("CUDA reports neither a UUID nor a PCI address".into()));
}

#[test]
fn an_instance_has_memory_of_its_own_and_no_share_of_the_whole() {
    let nvml = load(&["-DDIVIDED"]);
    let readings = readings(&nvml);
    assert_eq!(value(&readings, Q::GpuMemoryLimit, &[]), (10_u64 << 30) as f64);
    assert_eq!(value(&readings, Q::Temperature, &["gpu"]), 41.0);
    assert_eq!(value(&readings, Q::GpuSpeed, &["sm"]), 1.755e9);
    let shared: [(Q, &[&str]); 7] = [
        (Q::Energy, &["gpu"]),
        (Q::Power, &["gpu"]),
        (Q::GpuUtilization, &[]),
        (Q::MemoryInterfaceUtilization, &[]),
        (Q::NvLinkBytes, &["0", "transmit"]),
        (Q::PcieBytes, &["receive"]),
        (Q::PcieThroughput, &["receive"]),
    ];
    for (quantity, attributes) in shared {
        let reason = text(readings.value(quantity, attributes));
        assert!(reason.contains("an instance of a GPU (MIG)"), "{quantity:?}: {reason}");
    }
    assert!(text(Found::new(&nvml, &identity()).ok().unwrap().energy()).contains("(MIG)"));
}

#[test]
fn every_function_may_fail_or_be_missing() {
    // Every quantity that the fake has, with a reason each.
    let all = readings(&load(&[]));
    let old = load(&["-DONLY_HANDLES"]);
    let lost = load(&["-DFAILS=15"]);
    let strange = load(&["-DFAILS=12345"]);
    for (nvml, part) in [
        (&old, "the driver is too old: function symbol failed to load"),
        (&lost, "device fell off the bus"),
        (&strange, "unexpected enum variant value: 12345"),
    ] {
        let readings = readings(nvml);
        for reading in &readings.list {
            let reason = text(reading.value.clone());
            assert!(reason.contains(part), "{:?}: {reason}", reading.quantity);
        }
        // Without links there are no readings of each.
        let of_links = [Q::NvLinkVersion, Q::NvLinkErrors, Q::NvLinkBytes, Q::NvLinkSpeed];
        for reading in all.list.iter().filter(|reading| !of_links.contains(&reading.quantity)) {
            assert!(readings.of(reading.quantity).next().is_some(), "{:?} has no reason", reading.quantity);
        }
        assert!(text(Found::new(nvml, &identity()).ok().unwrap().energy()).contains(part));
    }
}

#[test]
fn values_out_of_range_are_none() {
    let nvml = load(&["-DHOSTILE"]);
    let readings = readings(&nvml);
    for (quantity, attributes, part) in [
        (Q::GpuUtilization, &[] as &[&str], "a utilization of 101 %"),
        (Q::MemoryInterfaceUtilization, &[], "a utilization of 4000000000 %"),
        (Q::TemperatureLimit, &["slowdown"], "the limit is not set"),
        (Q::NvLinkUp, &["0"], "unexpected enum variant value: 7"),
        (Q::PcieBytes, &["transmit"], "unexpected enum variant value: 99"),
        (Q::PcieBytes, &["receive"], "the source reports NaN"),
        (Q::PcieThroughput, &["receive"], "went back"),
    ] {
        let reason = text(readings.value(quantity, attributes));
        assert!(reason.contains(part), "{quantity:?}: {reason}");
    }
    // All bits: those that have no name are ignored.
    assert!(readings.of(Q::GpuThrottled).all(|reading| matches!(reading.value, Ok(1.0))));
    let energy = Found::new(&nvml, &identity()).ok().unwrap().energy().unwrap();
    assert_eq!(energy.power_limit, None, "0 is no limit");
}
