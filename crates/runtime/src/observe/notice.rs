//! [`Notice`] and [`PowerPreference`]: what the platform and the program want of a device beside its work.
//!
//! A notice is what the platform says of memory or temperature. The program passes it on ([`Device::notice`]); nothing listens
//! unless it is asked to ([`super::watch`]). Linux can be asked for memory: [`Notice::of_memory_stalls`].

use std::path::{Path, PathBuf};

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Error, Result, Thermal};

use crate::{Device, Pressure};

/// What the platform says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// How short of memory the system is. From [`Pressure::Elevated`] the device's pool keeps less, from [`Pressure::High`]
    /// nothing, until the next such notice.
    Memory(Pressure),
    /// How warm the device is. From [`Thermal::Serious`] it works as for [`PowerPreference::LowPower`], until the next such notice.
    Thermal(Thermal),
}

/// What a device optimizes for, as wgpu's `PowerPreference`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PowerPreference {
    /// Speed: all compute units.
    #[default]
    HighPerformance,
    /// Low power: half of the compute units, and small submissions that nobody waits for yet gathered to larger
    /// ones ([`crate::Coalescing`]). Those then share how they end, and are cancelled only until they are handed over.
    LowPower,
}

/// What a device was told, and what it made of that.
#[derive(Default)]
pub(crate) struct Wishes {
    state: Mutex<Wished>,
}

#[derive(Clone, Copy, Default)]
struct Wished {
    asked: PowerPreference,
    /// As it was last told; `None` if it never was.
    thermal: Option<Thermal>,
    effect: PowerPreference,
}

impl Notice {
    /// How short of memory the system is, from the time that processes lately stood still for want of it, as Linux measures
    /// it for this process's control group or the machine (`memory.pressure`, `/proc/pressure/memory`).
    ///
    /// | of the last 10 seconds | |
    /// |---|---|
    /// | some process stood still for 5 % | `Elevated` |
    /// | 20 % | `High` |
    /// | all did for 10 % | `Critical` |
    ///
    /// # Errors
    /// `Unsupported` where the system has no such measure.
    pub fn of_memory_stalls() -> Result<Self> {
        Self::of_stall_files(&stall_files())
    }

    /// As [`Notice::of_memory_stalls`], by the first of these files that is there.
    pub(crate) fn of_stall_files(files: &[PathBuf]) -> Result<Self> {
        let mut texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
        let pressure = texts.find_map(|text| of_stalls(&text));
        pressure.map(Self::Memory).ok_or_else(|| {
            Error::unsupported(
                "this system does not measure how long processes wait for memory (/proc/pressure/memory)",
            )
        })
    }
}

/// Where Linux says how long processes of the machine wait for memory.
pub(crate) const MACHINE: &str = "/proc/pressure/memory";

/// The same of this process's control group, and of the machine.
pub(crate) fn stall_files() -> Vec<PathBuf> {
    let listed = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = listed.lines().find_map(|line| line.strip_prefix("0::/"));
    let group = group.map(|group| Path::new("/sys/fs/cgroup").join(group).join("memory.pressure"));
    group.into_iter().chain([MACHINE.into()]).collect()
}

/// The pressure that a file of Linux's pressure stall information tells of.
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
    /// Take notice of what the platform says.
    ///
    /// # Errors
    /// `Unsupported` on a device that cannot do less than it does; its health shows the temperature all the same.
    pub fn notice(&self, notice: Notice) -> Result<()> {
        match notice {
            Notice::Memory(pressure) => {
                self.pool().notice(pressure);
                Ok(())
            }
            Notice::Thermal(thermal) => self.wish(|wished| wished.thermal = Some(thermal)),
        }
    }

    /// Change what the device works for.
    ///
    /// # Errors
    /// `Unsupported` on a device that cannot do less than it does.
    pub fn set_power_preference(&self, goal: PowerPreference) -> Result<()> {
        self.wish(|wished| wished.asked = goal)
    }

    /// What the device works for now: what was asked for, or efficiency while it is too warm.
    pub fn power_preference(&self) -> PowerPreference {
        self.recovery().wishes.state.lock().effect
    }

    /// What the last notice of temperature said.
    pub(crate) fn told_thermal(&self) -> Option<Thermal> {
        self.recovery().wishes.state.lock().thermal
    }

    fn wish(&self, change: impl FnOnce(&mut Wished)) -> Result<()> {
        let mut wished = self.recovery().wishes.state.lock();
        change(&mut wished);
        let warm = wished.thermal.is_some_and(|thermal| thermal >= Thermal::Serious);
        let goal = if warm { PowerPreference::LowPower } else { wished.asked };
        if goal != wished.effect {
            let all = self.caps().limits.compute_units;
            self.driver().use_units(if goal == PowerPreference::HighPerformance {
                all
            } else {
                (all / 2).max(1)
            })?;
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
