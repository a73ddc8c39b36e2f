//! [`Events`]: what the processor and the kernel count for this process (`perf_event_open(2)`), from the moment when counting was asked for.
//!
//! Each thread that exists then has its own counters, which later threads inherit from the thread that starts them. Only user mode is counted, which
//! `perf_event_paranoid` up to 2 allows. If the processor has fewer counters than events, the kernel takes turns, and counts are scaled.

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Error, Quantity, Readings, Result};

use counters::Counters;

/// Names of the events, the first of which is a time.
const NAMES: [&str; 6] =
    ["task_clock", "page_faults", "instructions", "cycles", "cache_misses", "branch_misses"];

/// Counters of this process, once they are asked for.
#[derive(Default)]
pub(super) struct Events {
    counting: Mutex<Option<Vec<Event>>>,
}

/// An event of [`NAMES`].
struct Event {
    counters: Result<Counters>,
    /// The highest count that was read: a scaled one may be less than before.
    highest: f64,
}

impl Events {
    /// Starts to count, unless that was done.
    ///
    /// # Errors
    /// `Unsupported` with the reason of the first event if none can be counted.
    pub(super) fn start(&self) -> Result<()> {
        let mut counting = self.counting.lock();
        if counting.is_some() {
            return Ok(());
        }
        let of_kind = |kind| Event { counters: Counters::open(kind), highest: 0.0 };
        let events: Vec<Event> = (0..NAMES.len()).map(of_kind).collect();
        if let (false, Some(Err(reason))) =
            (events.iter().any(|event| event.counters.is_ok()), events.first().map(|event| &event.counters))
        {
            return Err(reason.clone());
        }
        *counting = Some(events);
        Ok(())
    }

    /// Adds the readings.
    pub(super) fn read(&self, readings: &mut Readings) {
        let mut counting = self.counting.lock();
        for (at, name) in NAMES.iter().enumerate() {
            let count = match counting.as_mut().and_then(|events| events.get_mut(at)) {
                Some(event) => event.read(),
                None => Err(Error::unsupported("events are not counted before `Device::count_events`")),
            };
            match at {
                0 => readings.add(Quantity::ProcessTaskClock, &[], count.map(|ns| ns / 1e9)),
                _ => readings.add(Quantity::ProcessEvents, &[name], count),
            }
        }
    }
}

impl Event {
    fn read(&mut self) -> Result<f64> {
        let counters = self.counters.as_mut().map_err(|reason| reason.clone())?;
        self.highest = self.highest.max(counters.sum()?);
        Ok(self.highest)
    }
}

#[cfg(target_os = "linux")]
mod counters {
    use std::collections::BTreeSet;
    use std::io;

    use elinvar_driver::{Error, Result};
    use perf_event::events::{Hardware, Software};
    use perf_event::{Builder, Counter};

    /// An event's counters, one for each thread.
    pub(super) struct Counters(Vec<Counter>);

    impl Counters {
        /// Opens the counters of an event, by its position in [`super::NAMES`], for all threads of this process.
        pub(super) fn open(event: usize) -> Result<Self> {
            let mut known = BTreeSet::new();
            let mut counters = Vec::new();
            loop {
                // A thread that a new thread has started meanwhile is found in the next round.
                let new: Vec<i32> = threads()?.difference(&known).copied().collect();
                if new.is_empty() {
                    return Ok(Self(counters));
                }
                for thread in new {
                    known.insert(thread);
                    match builder(event).observe_pid(thread).any_cpu().inherit(true).enabled(true).build() {
                        Ok(counter) => counters.push(counter),
                        // The thread has ended.
                        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                        Err(error) => return Err(refused(&error)),
                    }
                }
            }
        }

        /// The sum over all threads, scaled to the time in which they ran.
        pub(super) fn sum(&mut self) -> Result<f64> {
            let mut sum = 0.0;
            for counter in &mut self.0 {
                let read = counter.read_full().map_err(|error| refused(&error))?;
                let times = (read.time_enabled(), read.time_running());
                let scale = match times {
                    (Some(enabled), Some(running)) if !running.is_zero() => {
                        enabled.as_secs_f64() / running.as_secs_f64()
                    }
                    _ => 1.0,
                };
                sum += read.count() as f64 * scale;
            }
            Ok(sum)
        }
    }

    fn builder(event: usize) -> Builder<'static> {
        match event {
            0 => Builder::new(Software::TASK_CLOCK),
            1 => Builder::new(Software::PAGE_FAULTS),
            2 => Builder::new(Hardware::INSTRUCTIONS),
            3 => Builder::new(Hardware::CPU_CYCLES),
            4 => Builder::new(Hardware::CACHE_MISSES),
            _ => Builder::new(Hardware::BRANCH_MISSES),
        }
    }

    /// The threads of this process.
    fn threads() -> Result<BTreeSet<i32>> {
        let none = |error| Error::unsupported(format!("`/proc/self/task` cannot be read: {error}"));
        let entries = std::fs::read_dir("/proc/self/task").map_err(none)?;
        Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    /// Why the kernel does not count an event.
    pub(super) fn refused(error: &io::Error) -> Error {
        Error::unsupported(match error.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
                "the processor, or the virtual machine, does not count this event".into()
            }
            Some(libc::EACCES | libc::EPERM) => {
                let level =
                    std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
                let level = level.trim();
                format!(
                    "this user may not count events: `kernel.perf_event_paranoid` is {level}, or a seccomp filter forbids it"
                )
            }
            Some(libc::ENOSYS) => "the kernel has no `perf_event_open`".into(),
            _ => format!("the kernel does not count this event: {error}"),
        })
    }
}

#[cfg(not(target_os = "linux"))]
mod counters {
    use elinvar_driver::{Error, Result};

    pub(super) enum Counters {}

    impl Counters {
        pub(super) fn open(_event: usize) -> Result<Self> {
            Err(Error::unsupported("events are counted on Linux only"))
        }

        pub(super) fn sum(&mut self) -> Result<f64> {
            match *self {}
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn refusals_have_their_reasons() {
        for (code, part) in [
            (libc::ENOENT, "does not count this event"),
            (libc::EACCES, "`kernel.perf_event_paranoid` is "),
            (libc::EPERM, "seccomp"),
            (libc::ENOSYS, "has no `perf_event_open`"),
            (libc::EMFILE, "os error 24"),
        ] {
            let reason = counters::refused(&io::Error::from_raw_os_error(code)).to_string();
            assert!(reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn the_work_of_threads_that_exist_and_of_new_ones_counts() {
        let events = Events::default();
        let read = || {
            let mut readings = Readings::default();
            events.read(&mut readings);
            readings
        };
        let before = read().value(Quantity::ProcessTaskClock, &[]).unwrap_err().to_string();
        assert!(before.contains("`Device::count_events`"), "{before}");
        let work = || {
            let begin = std::time::Instant::now();
            // The time of a thread is at most that of the clock.
            while begin.elapsed() < std::time::Duration::from_millis(30) {
                std::hint::spin_loop();
            }
        };
        let (start, started) = std::sync::mpsc::channel::<()>();
        let existing = std::thread::spawn(move || {
            started.recv().unwrap();
            work();
        });
        if let Err(reason) = events.start() {
            assert!(matches!(&reason, Error::Unsupported(_)), "{reason}");
            drop(start);
            return;
        }
        events.start().unwrap();
        let clock = || read().value(Quantity::ProcessTaskClock, &[]).unwrap();
        let idle = clock();
        start.send(()).unwrap();
        existing.join().unwrap();
        let of_existing = clock();
        assert!(of_existing > idle, "{idle} s, then {of_existing} s");
        std::thread::spawn(work).join().unwrap();
        let of_new = clock();
        assert!(of_new > of_existing, "{of_existing} s, then {of_new} s");
        // Pages that nobody has touched before.
        let faults = || read().value(Quantity::ProcessEvents, &["page_faults"]).unwrap();
        let before = faults();
        std::hint::black_box(vec![1_u8; 16 << 20]);
        assert!(faults() > before);
        for name in &NAMES[2..] {
            let first = read().value(Quantity::ProcessEvents, &[name]);
            work();
            match (first, read().value(Quantity::ProcessEvents, &[name])) {
                (Ok(first), Ok(second)) => assert!(second >= first, "{name}: {first}, then {second}"),
                (Err(reason), Err(_)) => assert!(reason.to_string().contains("count"), "{reason}"),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}
