//! [`Watch`]: a thread that reports Linux's memory pressure and temperature to a device. Opt-in.
//!
//! It sleeps in `poll(2)` until the guard is dropped, the kernel reports memory stalls, or the interval has elapsed. It passes
//! the first state, and every change, to [`Device::notice`].
//!
//! Sources: the kernel's documentation of pressure stall information (`Documentation/accounting/psi.rst`) for the triggers, and
//! of the thermal class (`Documentation/ABI/testing/sysfs-class-thermal`) for the trip points.

use std::path::PathBuf;
use std::time::Duration;

use elinvar_driver::Result;

use crate::{Device, Notice, Pressure, Thermal};

/// Sources and interval of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// Files with pressure stall information about memory; the first that exists is used. By default those of this process's
    /// control group and of the machine.
    pub memory: Vec<PathBuf>,
    /// The file for triggers, with which the kernel wakes the watch immediately; `None` for polling only. By default
    /// `/proc/pressure/memory`, if it exists.
    pub triggers: Option<PathBuf>,
    /// The folder of thermal zones, used for the CPU; by default `/sys/class/thermal`. Other devices are measured by their
    /// driver.
    pub thermal: PathBuf,
    /// Polling interval, by default 2 seconds.
    pub every: Duration,
}

impl Default for WatchOptions {
    fn default() -> Self {
        let triggers = Some(PathBuf::from(super::notice::MACHINE)).filter(|file| file.exists());
        let memory = super::notice::stall_files();
        Self { memory, triggers, thermal: super::thermal::ZONES.into(), every: Duration::from_secs(2) }
    }
}

/// A running watch. Dropping it ends its thread; the last reported state remains.
#[derive(Debug)]
#[must_use = "dropping it ends the watch"]
pub struct Watch {
    _thread: thread::Watching,
}

impl Device {
    /// Reports memory pressure automatically, as measured by [`Notice::of_memory_stalls`]: immediately when the kernel reports
    /// stalls, and at each interval.
    ///
    /// ```no_run
    /// # fn main() -> elinvar::Result<()> {
    /// # let device = elinvar::Device::system_default()?;
    /// let _watch = device.watch_memory(&elinvar::WatchOptions::default())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unsupported` if the system has no such measurement; `Environment` if the thread cannot be started.
    pub fn watch_memory(&self, options: &WatchOptions) -> Result<Watch> {
        let files = options.memory.clone();
        let look = move || match Notice::of_stall_files(&files) {
            Ok(Notice::Memory(pressure)) => Some(pressure),
            _ => None,
        };
        Notice::of_stall_files(&options.memory)?;
        let device = self.clone();
        let tell = move |pressure: Pressure| drop(device.notice(Notice::Memory(pressure)));
        thread::watch(options.triggers.as_deref(), options.every, look, tell).map(|_thread| Watch { _thread })
    }

    /// Reports the device's temperature automatically: for the CPU the most severe state of the machine's thermal zones with trip
    /// points; for an NVIDIA GPU that of this GPU, from the management library (NVML).
    ///
    /// | CPU: a zone has reached its trip point | NVIDIA GPU | state |
    /// |---|---|---|
    /// | `active` | | `Fair` |
    /// | `passive` | at the temperature at which the driver throttles, or throttled by the driver | `Serious` |
    /// | `hot` or `critical` | at the temperature at which the hardware throttles, or throttled by it | `Critical` |
    ///
    /// # Errors
    /// `Unsupported` if the temperature or its limits cannot be measured, as in most virtual machines, and on systems other than Linux; `Environment`
    /// if the thread cannot be started.
    pub fn watch_temperature(&self, options: &WatchOptions) -> Result<Watch> {
        let folder = options.thermal.clone();
        super::thermal::of_device(self, &folder)?;
        let seen = self.clone();
        let look = move || super::thermal::of_device(&seen, &folder).ok();
        let device = self.clone();
        // If the device cannot reduce its compute units, its health shows the state all the same.
        let tell = move |thermal: Thermal| drop(device.notice(Notice::Thermal(thermal)));
        thread::watch(None, options.every, look, tell).map(|_thread| Watch { _thread })
    }
}

#[cfg(target_os = "linux")]
mod thread {
    use std::fs::File;
    use std::io::{PipeReader, PipeWriter, Write as _, pipe};
    use std::path::Path;
    use std::thread::{Builder, JoinHandle};
    use std::time::Duration;

    use elinvar_driver::{Error, Process, Result};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    /// Stalls that wake the watch, in windows of 2 seconds, the shortest that unprivileged processes may use.
    /// The kernel requires the NUL at the end.
    const TRIGGERS: [&str; 3] = ["some 100000 2000000\0", "some 400000 2000000\0", "full 200000 2000000\0"];

    /// A thread that ends when it is dropped.
    #[derive(Debug)]
    pub(crate) struct Watching {
        stop: Option<PipeWriter>,
        thread: Option<JoinHandle<()>>,
        /// The process that started the thread.
        process: Process,
    }

    impl Drop for Watching {
        fn drop(&mut self) {
            drop(self.stop.take());
            if let Some(thread) = self.thread.take().filter(|_| self.process.is_this()) {
                let _ended = thread.join();
            }
        }
    }

    /// Calls `tell` with the result of `look` whenever it has changed.
    pub(crate) fn watch<T: PartialEq + Copy + Send + 'static>(
        triggers: Option<&Path>,
        every: Duration,
        look: impl Fn() -> Option<T> + Send + 'static,
        tell: impl Fn(T) + Send + 'static,
    ) -> Result<Watching> {
        let outside = |error| Error::Environment(format!("cannot start the thread of a watch: {error}"));
        let (stopped, stop) = pipe().map_err(outside)?;
        // A system without triggers is polled.
        let triggers: Vec<File> = triggers.map(triggers_at).unwrap_or_default();
        let run = move || {
            let mut last = None;
            loop {
                if let Some(seen) = look().filter(|seen| last != Some(*seen)) {
                    tell(seen);
                    last = Some(seen);
                }
                if !wait(&stopped, &triggers, every) {
                    return;
                }
            }
        };
        let thread = Builder::new().name("elinvar-watch".into()).spawn(run).map_err(outside)?;
        Ok(Watching { stop: Some(stop), thread: Some(thread), process: Process::this() })
    }

    /// One open file for each trigger, as the kernel requires.
    fn triggers_at(file: &Path) -> Vec<File> {
        let open = |trigger: &&str| {
            let mut file = File::options().read(true).write(true).open(file)?;
            file.write_all(trigger.as_bytes())?;
            Ok::<_, std::io::Error>(file)
        };
        TRIGGERS.iter().filter_map(|trigger| open(trigger).ok()).collect()
    }

    /// Waits for a trigger or the interval; returns `false` when the guard was dropped.
    fn wait(stopped: &PipeReader, triggers: &[File], every: Duration) -> bool {
        let mut files = vec![PollFd::new(stopped, PollFlags::IN)];
        files.extend(triggers.iter().map(|file| PollFd::new(file, PollFlags::PRI)));
        let every = Timespec::try_from(every).ok();
        // An interrupted wait only polls early.
        let _woken = poll(&mut files, every.as_ref());
        files[0].revents().is_empty()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_kernel_takes_the_triggers_or_none() {
            let file = Path::new(crate::observe::notice::MACHINE);
            // Some systems have the file and give nobody triggers.
            let gives = File::options()
                .read(true)
                .write(true)
                .open(file)
                .is_ok_and(|mut file| file.write_all(b"some 150000 2000000\0").is_ok());
            assert_eq!(triggers_at(file).len(), if gives { TRIGGERS.len() } else { 0 });
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod thread {
    use std::path::Path;
    use std::time::Duration;

    use elinvar_driver::{Error, Result};

    #[derive(Debug)]
    pub(crate) enum Watching {}

    pub(crate) fn watch<T>(
        _triggers: Option<&Path>,
        _every: Duration,
        _look: impl Fn() -> Option<T>,
        _tell: impl Fn(T),
    ) -> Result<Watching> {
        Err(Error::unsupported("a watch of this system; report its notices with `Device::notice`"))
    }
}
