//! Thermal state of a device: of the CPU from Linux's thermal zones and their trip points, of other devices from their driver.

use std::path::Path;

use elinvar_driver::{DeviceKind, Error, Result, Thermal};

use crate::Device;

/// Linux's thermal zones.
pub(crate) const ZONES: &str = "/sys/class/thermal";

/// Thermal state of a device: for the CPU from the thermal zones in `folder`, otherwise from the device's sensor.
///
/// # Errors
/// `Unsupported` if there is no sensor.
pub(crate) fn of_device(device: &Device, folder: &Path) -> Result<Thermal> {
    match device.kind() {
        DeviceKind::Cpu => of_zones(folder),
        _ => device.driver().thermal(),
    }
}

/// The most severe state of the zones in `folder`.
///
/// # Errors
/// `Unsupported` if no zone has both a temperature and a trip point.
fn of_zones(folder: &Path) -> Result<Thermal> {
    let zones = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let zones = zones.filter(|entry| entry.file_name().to_string_lossy().starts_with("thermal_zone"));
    zones.filter_map(|zone| of_zone(&zone.path())).max().ok_or_else(|| {
        Error::unsupported(format!("no thermal zone of this system has a trip point ({})", folder.display()))
    })
}

fn of_zone(zone: &Path) -> Option<Thermal> {
    let temperature = number(&zone.join("temp"))?;
    let trips = (0..).map_while(|n| {
        let kind = std::fs::read_to_string(zone.join(format!("trip_point_{n}_type"))).ok()?;
        Some((kind, number(&zone.join(format!("trip_point_{n}_temp")))))
    });
    let reached = |(kind, limit): (String, Option<i64>)| {
        let level = match kind.trim() {
            "active" => Thermal::Fair,
            "passive" => Thermal::Serious,
            "hot" | "critical" => Thermal::Critical,
            _ => return None,
        };
        // A trip point at or below 0 is not set.
        let limit = limit.filter(|limit| *limit > 0)?;
        Some(if temperature >= limit { level } else { Thermal::Nominal })
    };
    trips.filter_map(reached).max()
}

/// Reads a number; temperatures are in millidegrees Celsius.
fn number(file: &Path) -> Option<i64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(folder: &Path, name: &str, files: &[(&str, &str)]) {
        let zone = folder.join(name);
        std::fs::create_dir_all(&zone).unwrap();
        files.iter().for_each(|(file, text)| std::fs::write(zone.join(file), format!("{text}\n")).unwrap());
    }

    #[test]
    fn the_highest_trip_point_that_is_reached_counts() {
        let folder = tempfile::tempdir().unwrap();
        let trips = [
            ("trip_point_0_type", "critical"),
            ("trip_point_0_temp", "100000"),
            ("trip_point_1_type", "passive"),
            ("trip_point_1_temp", "80000"),
            ("trip_point_2_type", "active"),
            ("trip_point_2_temp", "60000"),
            ("trip_point_3_type", "hot"),
            ("trip_point_3_temp", "-274000"),
        ];
        zone(folder.path(), "thermal_zone0", &trips);
        for (temperature, expected) in [
            ("59999", Thermal::Nominal),
            ("60000", Thermal::Fair),
            ("80000", Thermal::Serious),
            ("99999", Thermal::Serious),
            ("100000", Thermal::Critical),
        ] {
            zone(folder.path(), "thermal_zone0", &[("temp", temperature)]);
            assert_eq!(of_zones(folder.path()).unwrap(), expected, "{temperature}");
        }
        zone(folder.path(), "thermal_zone0", &[("temp", "20000")]);
        zone(folder.path(), "thermal_zone1", &trips);
        zone(folder.path(), "thermal_zone1", &[("temp", "85000")]);
        assert_eq!(of_zones(folder.path()).unwrap(), Thermal::Serious, "of the other zone");
    }

    #[test]
    fn zones_without_trip_points_say_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let unsupported = |folder: &Path| matches!(of_zones(folder), Err(Error::Unsupported(_)));
        assert!(unsupported(folder.path()) && unsupported(&folder.path().join("none")));
        zone(folder.path(), "thermal_zone0", &[("temp", "90000")]);
        zone(folder.path(), "cooling_device0", &[("temp", "1"), ("trip_point_0_type", "passive")]);
        assert!(unsupported(folder.path()));
    }
}
