//! [`Notice`] and [`PowerPreference`]: memory pressure, thermal state and power preference of a device.
//!
//! The program passes notices of the platform on ([`Device::notice`]), or a watch does so ([`super::watch`]). On Linux, memory
//! pressure can be queried with [`Notice::of_memory_stalls`].

use std::path::{Path, PathBuf};

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Error, Result, Thermal};

use crate::{Device, Pressure};

/// A notice of the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// Memory pressure of the system. At [`Pressure::Elevated`] the device's pool keeps fewer idle blocks, from [`Pressure::High`] on
    /// none, until the next such notice.
    Memory(Pressure),
    /// Thermal state of the device. From [`Thermal::Serious`] on it runs as in [`PowerPreference::LowPower`], until the next such
    /// notice.
    Thermal(Thermal),
}

/// Optimization goal of a device, as wgpu's `PowerPreference`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PowerPreference {
    /// Performance: all compute units.
    #[default]
    HighPerformance,
    /// Low power: half of the compute units, and small submissions are coalesced ([`crate::Coalescing`]). Coalesced submissions
    /// share a result, and can be cancelled only until they are passed to the driver.
    LowPower,
}

/// Requested and effective power preference of a device.
#[derive(Default)]
pub(crate) struct Wishes {
    state: Mutex<Wished>,
}

#[derive(Clone, Copy, Default)]
struct Wished {
    asked: PowerPreference,
    /// The last reported state, if any.
    thermal: Option<Thermal>,
    effect: PowerPreference,
}

impl Notice {
    /// Memory pressure of the system, from the time that processes were stalled on memory in the last 10 seconds, as Linux
    /// measures it for this process's control group or the machine (`memory.pressure`, `/proc/pressure/memory`; kernel
    /// documentation, "PSI - Pressure Stall Information").
    ///
    /// | stalled for at least | pressure |
    /// |---|---|
    /// | some processes, 5 % of the time | `Elevated` |
    /// | some processes, 20 % | `High` |
    /// | all processes, 10 % | `Critical` |
    ///
    /// # Errors
    /// `Unsupported` if the system has no such measurement.
    pub fn of_memory_stalls() -> Result<Self> {
        Self::of_stall_files(&stall_files())
    }

    /// As [`Notice::of_memory_stalls`], from the first of these files that exists.
    pub(crate) fn of_stall_files(files: &[PathBuf]) -> Result<Self> {
        let mut texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
        let pressure = texts.find_map(|text| of_stalls(&text));
        pressure.map(Self::Memory).ok_or_else(|| {
            Error::unsupported("this system does not measure memory stalls (/proc/pressure/memory)")
        })
    }
}

/// Memory stalls of the machine.
pub(crate) const MACHINE: &str = "/proc/pressure/memory";

/// Files with the memory stalls of this process's control group, and of the machine.
pub(crate) fn stall_files() -> Vec<PathBuf> {
    let listed = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = listed.lines().find_map(|line| line.strip_prefix("0::/"));
    let group = group.map(|group| Path::new("/sys/fs/cgroup").join(group).join("memory.pressure"));
    group.into_iter().chain([MACHINE.into()]).collect()
}

/// The pressure according to a file of pressure stall information.
fn of_stalls(text: &str) -> Option<Pressure> {
    let share = |kind: &str| -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        line.split_whitespace().find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
    };
    let (some, full) = (share("some ")?, share("full ").unwrap_or(0.0));
    Some(match () {
        () if full >= 10.0 => Pressure::Critical,
        () if some >= 20.0 => Pressure::High,
        () if some >= 5.0 => Pressure::Elevated,
        () => Pressure::Normal,
    })
}

impl Device {
    /// Reports a notice of the platform.
    ///
    /// # Errors
    /// `Unsupported` if the device cannot reduce its compute units; [`Device::health`] shows the reported temperature all the
    /// same.
    pub fn notice(&self, notice: Notice) -> Result<()> {
        match notice {
            Notice::Memory(pressure) => {
                self.pool().notice(pressure);
                Ok(())
            }
            Notice::Thermal(thermal) => self.wish(|wished| wished.thermal = Some(thermal)),
        }
    }

    /// Sets the power preference.
    ///
    /// # Errors
    /// `Unsupported` if the device cannot reduce its compute units.
    pub fn set_power_preference(&self, goal: PowerPreference) -> Result<()> {
        self.wish(|wished| wished.asked = goal)
    }

    /// The effective power preference: the requested one, or [`PowerPreference::LowPower`] while the device is too warm.
    pub fn power_preference(&self) -> PowerPreference {
        self.recovery().wishes.state.lock().effect
    }

    /// The last reported thermal state.
    pub(crate) fn told_thermal(&self) -> Option<Thermal> {
        self.recovery().wishes.state.lock().thermal
    }

    fn wish(&self, change: impl FnOnce(&mut Wished)) -> Result<()> {
        let mut wished = self.recovery().wishes.state.lock();
        let asked = wished.asked;
        change(&mut wished);
        let warm = wished.thermal.is_some_and(|thermal| thermal >= Thermal::Serious);
        let goal = if warm { PowerPreference::LowPower } else { wished.asked };
        if goal != wished.effect {
            let all = self.caps().limits.compute_units;
            let units = if goal == PowerPreference::HighPerformance { all } else { (all / 2).max(1) };
            if let Err(error) = self.driver().use_units(units) {
                // A preference that the device does not have is not asked for again by later notices.
                wished.asked = asked;
                return Err(error);
            }
            wished.effect = goal;
            self.coalescers().set(goal == PowerPreference::LowPower);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_become_pressure() {
        let text = |some, full| {
            format!(
                "some avg10={some} avg60=90.00 avg300=0.00 total=1\nfull avg10={full} avg60=90.00 avg300=0.00 total=1\n"
            )
        };
        for (some, full, pressure) in [
            ("0.00", "0.00", Pressure::Normal),
            ("4.99", "4.99", Pressure::Normal),
            ("5.00", "0.00", Pressure::Elevated),
            ("20.00", "9.99", Pressure::High),
            ("20.00", "10.00", Pressure::Critical),
        ] {
            assert_eq!(of_stalls(&text(some, full)), Some(pressure), "{some} {full}");
        }
        assert_eq!(of_stalls("some avg10=30.00 avg60=0.00"), Some(Pressure::High));
        assert_eq!(of_stalls("nothing of the kind"), None);
    }

    #[test]
    fn the_system_measures_it_or_it_is_unsupported() {
        let measured = Path::new("/proc/pressure/memory").exists();
        match Notice::of_memory_stalls() {
            Ok(notice) => assert!(matches!(notice, Notice::Memory(_))),
            Err(error) => assert!(matches!(error, Error::Unsupported(_)) && !measured, "{error}"),
        }
    }
}
