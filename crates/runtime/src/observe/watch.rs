//! [`Watch`]: a thread that takes notice of what Linux says of memory and temperature, for whom asks for it.
//!
//! It sleeps in `poll(2)` until the guard is dropped, the kernel says that processes stand still for want of memory, or it is
//! time to look again. What it sees goes to [`Device::notice`] at first and when it has changed. It decides nothing.
//!
//! Sources: the kernel's documentation of pressure stall information (`Documentation/accounting/psi.rst`) for the triggers, and of
//! the thermal class (`Documentation/ABI/testing/sysfs-class-thermal`) for the trip points.

use std::path::PathBuf;
use std::time::Duration;

use elinvar_driver::Result;

use crate::{Device, Notice, Pressure, Thermal};

/// Where Linux says how it is, and how often that is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// Files of pressure stall information about memory; the first that is there counts. By default that of this process's
    /// control group and that of the machine.
    pub memory: Vec<PathBuf>,
    /// The file where the kernel takes triggers, which wake the watch at once; `None` to look from time to time only. By
    /// default `/proc/pressure/memory`, where that is.
    pub triggers: Option<PathBuf>,
    /// The folder of the machine's thermal zones, by default `/sys/class/thermal`. It is for the CPU; other devices have their
    /// driver asked.
    pub thermal: PathBuf,
    /// How often it is looked at without being woken, by default every two seconds.
    pub every: Duration,
}

impl Default for WatchOptions {
    fn default() -> Self {
        let triggers = Some(PathBuf::from(super::notice::MACHINE)).filter(|file| file.exists());
        let memory = super::notice::stall_files();
        Self { memory, triggers, thermal: super::thermal::ZONES.into(), every: Duration::from_secs(2) }
    }
}

/// What is watched as long as this lives; dropping it ends its thread, and what was noticed last stays.
#[derive(Debug)]
#[must_use = "dropping it ends the watch"]
pub struct Watch {
    _thread: thread::Watching,
}

impl Device {
    /// Take notice of memory pressure by itself, as [`Notice::of_memory_stalls`] measures it: at once when the kernel says that
    /// processes stand still, and from time to time.
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
    /// `Unsupported` where the system has no such measure; `Environment` when the thread cannot be started.
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

    /// Take notice of the device's own temperature by itself. For the CPU the thermal zones of the machine that have trip points
    /// are read, and the worst counts; for an NVIDIA GPU the management library (NVML) is asked about this GPU.
    ///
    /// | the CPU: a zone has reached its trip point | an NVIDIA GPU | |
    /// |---|---|---|
    /// | `active` | | `Fair` |
    /// | `passive` | has reached the temperature from which its driver lowers clocks, or the driver does | `Serious` |
    /// | `hot` or `critical` | the same of its hardware | `Critical` |
    ///
    /// # Errors
    /// `Unsupported` where nothing measures the device's temperature or says what is too warm, as on Metal and in most virtual
    /// machines; `Environment` when the thread cannot be started.
    pub fn watch_temperature(&self, options: &WatchOptions) -> Result<Watch> {
        let folder = options.thermal.clone();
        super::thermal::of_device(self, &folder)?;
        let seen = self.clone();
        let look = move || super::thermal::of_device(&seen, &folder).ok();
        let device = self.clone();
        // On a device that cannot do less its health shows it all the same.
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

    /// Stalls that wake the watch, of windows of two seconds, the shortest that everybody may ask for.
    /// With the zero at the end that the kernel asks for.
    const TRIGGERS: [&str; 3] = ["some 100000 2000000\0", "some 400000 2000000\0", "full 200000 2000000\0"];

    /// A thread that ends when this is dropped.
    #[derive(Debug)]
    pub(crate) struct Watching {
        stop: Option<PipeWriter>,
        thread: Option<JoinHandle<()>>,
        /// Whose the thread is.
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

    /// Tells what `look` sees, when that is another than before.
    pub(crate) fn watch<T: PartialEq + Copy + Send + 'static>(
        triggers: Option<&Path>,
        every: Duration,
        look: impl Fn() -> Option<T> + Send + 'static,
        tell: impl Fn(T) + Send + 'static,
    ) -> Result<Watching> {
        let outside = |error| Error::Environment(format!("a thread that watches the system: {error}"));
        let (stopped, stop) = pipe().map_err(outside)?;
        // A system that gives nobody triggers is looked at from time to time all the same.
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

    /// Each is an open file of its own, as the kernel wants it.
    fn triggers_at(file: &Path) -> Vec<File> {
        let open = |trigger: &&str| {
            let mut file = File::options().read(true).write(true).open(file)?;
            file.write_all(trigger.as_bytes())?;
            Ok::<_, std::io::Error>(file)
        };
        TRIGGERS.iter().filter_map(|trigger| open(trigger).ok()).collect()
    }

    /// Until it is time to look; `false` when the guard is gone.
    fn wait(stopped: &PipeReader, triggers: &[File], every: Duration) -> bool {
        let mut files = vec![PollFd::new(stopped, PollFlags::IN)];
        files.extend(triggers.iter().map(|file| PollFd::new(file, PollFlags::PRI)));
        let every = Timespec::try_from(every).ok();
        // An interrupted wait is a look too early, which does no harm.
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
        Err(Error::unsupported("a watch of this system; pass on what it says with `Device::notice`"))
    }
}
