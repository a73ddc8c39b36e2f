//! What the host reports about itself: processor time, memory, pressure stall information, limits of the control group, clocks, temperatures,
//! energy by RAPL, and events.
//!
//! Everything is read from files of Linux below a root folder, which tests replace. On other systems the files are missing, and that is the
//! reason in the list. Sources: the kernel's documentation of `/proc` (`proc_stat(5)`, `proc_pid_stat(5)`), "PSI - Pressure Stall Information",
//! "CPUFreq", "Generic Thermal Sysfs driver" and "Power Capping Framework".

mod control_group;
mod events;
mod files;
mod process;
mod rapl;
mod thermal_zones;
mod workers;

use std::path::Path;

use elinvar_driver::{Energy, Error, PerProcess, Quantity, Readings, Result};

use events::Events;
use files::Root;
use rapl::Rapl;

/// The host's sensors.
pub struct HostSensors {
    root: Root,
    rapl: Rapl,
    events: Events,
}

impl HostSensors {
    /// Those of this machine.
    pub fn this() -> &'static Self {
        static THIS: PerProcess<HostSensors> = PerProcess::new(|| HostSensors::at(Path::new("/")));
        THIS.get()
    }

    /// Those whose files are below `root`, in `proc` and `sys`.
    pub fn at(root: &Path) -> Self {
        let root = Root::new(root);
        Self { rapl: Rapl::new(&root), events: Events::default(), root }
    }

    /// All readings, for [`elinvar_driver::Device::readings`] of a device whose workers are the threads of this process with these numbers.
    pub fn readings(&self, threads: &[Option<u32>]) -> Readings {
        let mut readings = self.of_machine();
        process::read_process(&self.root, "self", &mut readings);
        workers::read(&self.root, threads, &mut readings);
        self.events.read(&mut readings);
        readings
    }

    /// All readings, with another process, a worker, in place of this one.
    pub fn of_worker(&self, process: Option<u32>) -> Readings {
        let mut readings = self.of_machine();
        match process {
            Some(process) => {
                let process = process.to_string();
                process::read_process(&self.root, &process, &mut readings);
                workers::read_process(&self.root, &process, &mut readings);
            }
            None => {
                let none = || Err(Error::unsupported("no worker process is running"));
                for mode in ["user", "system"] {
                    readings.add(Quantity::ProcessCpuTime, &[mode], none());
                }
                readings.add(Quantity::ProcessMemory, &[], none());
            }
        }
        let uncounted = Error::unsupported("the events of a worker process are not counted");
        readings.add(Quantity::ProcessTaskClock, &[], Err(uncounted));
        readings
    }

    /// Counts events of this process from now on, for [`elinvar_driver::Device::count_events`].
    ///
    /// # Errors
    /// `Unsupported` if the kernel counts none of them for this user.
    pub fn count_events(&self) -> Result<()> {
        self.events.start()
    }

    /// The readings that are not a process's.
    fn of_machine(&self) -> Readings {
        let mut readings = Readings::default();
        self.rapl.read(&mut readings);
        thermal_zones::read(&self.root, &mut readings);
        self.clocks(&mut readings);
        process::read_machine(&self.root, &mut readings);
        self.memory(&mut readings);
        control_group::read(&self.root, &mut readings);
        self.pressure(&mut readings);
        readings
    }

    /// Energy of all processor packages and their memory, for [`elinvar_driver::Device::energy`].
    ///
    /// # Errors
    /// `Unsupported` without RAPL, or if its files may not be read.
    pub fn energy(&self) -> Result<Energy> {
        self.rapl.energy()
    }

    /// Clocks: the mean of the processors' current ones, the highest of their limits.
    fn clocks(&self, readings: &mut Readings) {
        const CPUS: &str = "sys/devices/system/cpu";
        let khz = |file: &str| -> Result<Vec<f64>> {
            let is_cpu = |name: &String| name.strip_prefix("cpu").is_some_and(|n| n.parse::<u32>().is_ok());
            let cpus = self.root.list(CPUS)?.into_iter().filter(is_cpu);
            // A processor that is offline has no clock.
            let is_online = |cpu: &String| self.root.path(&format!("{CPUS}/{cpu}/cpufreq")).exists();
            let (online, offline): (Vec<String>, Vec<String>) = cpus.partition(is_online);
            let cpus = if online.is_empty() { offline } else { online };
            let all = cpus.iter().map(|cpu| self.root.number(&format!("{CPUS}/{cpu}/cpufreq/{file}")));
            all.collect::<Result<Vec<u64>>>().map(|all| all.iter().map(|khz| *khz as f64).collect())
        };
        let none = || Error::unsupported(format!("`/{CPUS}` has no processors"));
        let mean = khz("scaling_cur_freq").and_then(|all| match all.len() {
            0 => Err(none()),
            count => Ok(all.iter().sum::<f64>() / count as f64 * 1e3),
        });
        let most = khz("cpuinfo_max_freq")
            .and_then(|all| all.into_iter().reduce(f64::max).map(|khz| khz * 1e3).ok_or_else(none));
        readings.add(Quantity::CpuSpeed, &[], mean);
        readings.add(Quantity::CpuSpeedLimit, &[], most);
    }

    /// Memory of the machine.
    fn memory(&self, readings: &mut Readings) {
        let text = self.root.text("proc/meminfo");
        let kib = |field: &str| -> Result<f64> {
            let text = text.as_ref().map_err(Clone::clone)?;
            let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            let kib: Option<u64> = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse().ok());
            let none = || Error::unsupported(format!("`/proc/meminfo` has no size `{field}`"));
            kib.map(|kib| kib as f64 * 1024.0).ok_or_else(none)
        };
        readings.add(Quantity::SystemMemoryLimit, &[], kib("MemTotal"));
        readings.add(Quantity::SystemMemoryAvailable, &[], kib("MemAvailable"));
    }

    /// Pressure stall information of the machine.
    fn pressure(&self, readings: &mut Readings) {
        for resource in ["cpu", "memory", "io"] {
            let path = format!("proc/pressure/{resource}");
            let text = self.root.text(&path);
            for share in ["some", "full"] {
                let field = |name: &str| -> Result<f64> {
                    let text = text.as_ref().map_err(Clone::clone)?;
                    let line = text.lines().find_map(|line| line.strip_prefix(share)?.strip_prefix(' '));
                    let field = line.and_then(|line| {
                        line.split_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
                    });
                    let value: Option<f64> = field.and_then(|field| field.parse().ok());
                    let none =
                        || Error::unsupported(format!("`/{path}` has no number `{name}` for `{share}`"));
                    value.filter(|value| *value >= 0.0).ok_or_else(none)
                };
                let attributes = [resource, share];
                readings.add(Quantity::Stalled, &attributes, field("total").map(|us| us / 1e6));
                let ratio = field("avg10").and_then(|percent| match percent {
                    0.0..=100.0 => Ok(percent / 100.0),
                    _ => Err(Error::unsupported(format!("`/{path}` has {percent} % as `avg10`"))),
                });
                readings.add(Quantity::StalledRatio, &attributes, ratio);
            }
        }
    }
}

#[cfg(test)]
mod tests;
