//! Several CPU devices of one driver.

use elinvar_driver::{Driver, LinkKind, Reach};
use elinvar_driver_cpu::CpuDriver;

#[test]
fn devices_divide_the_processors_and_the_threads() {
    let devices = CpuDriver::with_devices(3, 7).devices().unwrap();
    assert_eq!(devices.len(), 3);
    assert_eq!(devices.iter().map(|device| device.caps().limits.compute_units).sum::<u32>(), 7);
    for device in &devices {
        assert!(
            !device.place().cpus.is_empty() && device.details().iter().any(|(name, _)| *name == "processors")
        );
        for other in &devices {
            assert_eq!(device.reaches(&**other), Some(Reach::Peer));
            device.peer_access(&**other).unwrap();
            let link = device.link(&**other).unwrap();
            assert!(
                link.access && link.atomics && matches!(link.kind, LinkKind::Memory | LinkKind::Numa { .. })
            );
        }
    }
    let alone = CpuDriver::with_threads(2).devices().unwrap().remove(0);
    assert_eq!((alone.reaches(&*devices[0]), alone.link(&*devices[0])), (None, None));
    let error = alone.peer_access(&*devices[0]).unwrap_err().to_string();
    assert!(error.contains("of another driver"), "{error}");
}

/// The environment is read once for a process.
#[test]
fn the_environment_sets_the_number_of_devices() {
    if std::env::var_os("ELINVAR_CPU_DEVICES").is_some() {
        let text = match elinvar_driver_cpu::driver().devices() {
            Ok(devices) => format!("{} devices", devices.len()),
            Err(error) => error.to_string(),
        };
        return println!("{text}");
    }
    for (value, expected) in [
        ("4", "4 devices"),
        ("1", "1 devices"),
        ("0", "ELINVAR_CPU_DEVICES=0: expected a number from 1 to 1024"),
        ("four", "ELINVAR_CPU_DEVICES=four: expected a number from 1 to 1024"),
    ] {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "the_environment_sets_the_number_of_devices", "--nocapture"]);
        let output = child.env("ELINVAR_CPU_DEVICES", value).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(expected), "{value}: {text}");
    }
}
