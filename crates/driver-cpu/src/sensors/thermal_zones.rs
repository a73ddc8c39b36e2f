//! Temperatures of Linux's thermal zones, with their trip points as limits.

use elinvar_driver::{Error, Quantity, Readings, Result};

use super::files::Root;

const ZONES: &str = "sys/class/thermal";

/// Adds the readings: a temperature for each zone, and a limit for each trip point that is set.
pub(super) fn read(root: &Root, readings: &mut Readings) {
    let zones = root.list(ZONES).map(|names| {
        names.into_iter().filter(|name| name.starts_with("thermal_zone")).collect::<Vec<String>>()
    });
    let zones = match zones {
        Ok(zones) if !zones.is_empty() => zones,
        Ok(_) => return absent(readings, &Error::unsupported(format!("`/{ZONES}` has no thermal zone"))),
        Err(error) => return absent(readings, &error),
    };
    for zone in zones {
        let folder = format!("{ZONES}/{zone}");
        let kind = root.text(&format!("{folder}/type")).unwrap_or_default();
        let name = format!("{zone} {}", kind.trim());
        readings.add(Quantity::Temperature, &[name.trim()], celsius(root, &format!("{folder}/temp")));
        for trip in 0.. {
            let Ok(kind) = root.text(&format!("{folder}/trip_point_{trip}_type")) else { break };
            let limit = celsius(root, &format!("{folder}/trip_point_{trip}_temp"));
            // A trip point at or below 0 is not set.
            if limit.as_ref().is_ok_and(|celsius| *celsius > 0.0) {
                let kind = format!("{zone} {} {trip}", kind.trim());
                readings.add(Quantity::TemperatureLimit, &[&kind], limit);
            }
        }
    }
}

fn absent(readings: &mut Readings, reason: &Error) {
    readings.add(Quantity::Temperature, &["cpu"], Err(reason.clone()));
    readings.add(Quantity::TemperatureLimit, &["cpu"], Err(reason.clone()));
}

/// Temperatures are in millidegrees and may be negative; none is below absolute zero.
fn celsius(root: &Root, file: &str) -> Result<f64> {
    let text = root.text(file)?;
    let millidegrees: Option<i64> = text.trim().parse().ok();
    let valid = millidegrees.filter(|value| (-273_150..=1_000_000).contains(value));
    let none = || {
        Error::unsupported(format!(
            "`/{file}` is not a temperature: `{}`",
            super::files::shortened(text.trim())
        ))
    };
    valid.map(|value| value as f64 / 1e3).ok_or_else(none)
}
