//! [`Sampling`]: submissions whose launches are measured one by one, for the metrics, on host and device.
//!
//! Timestamps between the launches of every submission would cost more than a launch of a small kernel. A sampled submission is recorded
//! as by a trace with [`TraceDetail::Launches`](crate::TraceDetail::Launches), and its times are added to histograms. The next one is
//! chosen when a submission ends, by the time that its completion has anyway, so that the others read no clock for it. It is a random one
//! of those that follow: a program that waits for the end of a graph of several submissions would otherwise have samples of the first only.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Command, Timing};

use super::histogram::Recorder;
use super::{Counters, MetricPoint, MetricValue};
use crate::Device;
use crate::observe::trace::{LaunchTimes, Noted};

/// Time between two samples of a device.
const INTERVAL: Duration = Duration::from_secs(1);
/// Least time between two samples, as a multiple of the duration of the last submission: even if the timestamps double it, that is 1 %.
const SHARE: u64 = 100;
/// The next sample is one of this many submissions, or of as many as there were since the last sample.
const CHOICE: u64 = 16;
/// Sampling is off.
const OFF: u64 = u64::MAX;
/// [`Sampling::due`] if each submission is sampled.
const EACH: u32 = u32::MAX;

/// Names of the host's phases.
const PHASES: [&str; 6] = ["bind", "size", "record", "commit", "submit", "release"];

/// A phase of a submission on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The arguments of a launch are validated and bound.
    Bind,
    /// The size of a launch is validated or chosen.
    Size,
    /// A launch is added to the command list.
    Record,
    /// The submission is registered with its buffers and events.
    Commit,
    /// The driver takes it.
    Submit,
    /// Its resources are released after it has ended.
    Release,
}

/// Which submissions are sampled, and what they took on the host.
pub(super) struct Sampling {
    /// Nanoseconds between two samples.
    interval: AtomicU64,
    /// Which of the submissions that begin is the next sample: 1 for the first, 0 if none is due.
    due: AtomicU32,
    /// The device's time from which a submission that ends makes one due.
    next: AtomicU64,
    /// Number of submissions that had ended when the last sample became due.
    count: AtomicU64,
    /// Device times of the samples that the device has, by their numbers.
    pending: Mutex<HashMap<u64, Box<LaunchTimes>>>,
    phases: [Recorder; PHASES.len()],
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            interval: AtomicU64::new(nanoseconds(INTERVAL)),
            due: AtomicU32::default(),
            next: AtomicU64::default(),
            count: AtomicU64::default(),
            pending: Mutex::default(),
            phases: Default::default(),
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(OFF)
}

impl Sampling {
    /// Whether a submission that begins is a sample.
    #[inline]
    pub(super) fn take(&self) -> bool {
        match self.due.load(Ordering::Relaxed) {
            0 => false,
            EACH => true,
            _ => {
                let less = |due: u32| (due != EACH).then(|| due.checked_sub(1)).flatten();
                self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) == Ok(1)
            }
        }
    }

    /// A submission has ended; `count` have so far.
    pub(super) fn ended(&self, timing: &Timing, count: impl FnOnce() -> u64) {
        if timing.end_ns < self.next.load(Ordering::Relaxed) {
            return;
        }
        let interval = self.interval.load(Ordering::Relaxed);
        if interval == 0 || interval == OFF {
            return;
        }
        let took = timing.end_ns.saturating_sub(timing.start_ns);
        let pause = interval.max(took.saturating_mul(SHARE));
        self.next.store(timing.end_ns.saturating_add(pause), Ordering::Relaxed);
        let count = count();
        let since = count.saturating_sub(self.count.swap(count, Ordering::Relaxed));
        // Fibonacci hashing of the time.
        let random = timing.end_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let due = 1 + random % since.clamp(1, CHOICE);
        self.due.store(due as u32, Ordering::Relaxed);
    }

    fn set(&self, interval: u64) {
        self.interval.store(interval, Ordering::Relaxed);
        self.next.store(if interval == 0 || interval == OFF { OFF } else { 0 }, Ordering::Relaxed);
        self.due.store(if interval == 0 { EACH } else { 0 }, Ordering::Relaxed);
    }

    pub(super) fn phase(&self, phase: Phase, ns: u64) {
        self.phases[phase as usize].record(ns);
    }

    /// The phases that have occurred.
    pub(super) fn points(&self) -> Vec<MetricPoint> {
        let histograms = PHASES.iter().zip(&self.phases).map(|(name, phase)| (*name, phase.snapshot()));
        let histograms = histograms.filter(|(_, histogram)| histogram.count() > 0);
        histograms
            .map(|(name, histogram)| MetricPoint::of(&[name], MetricValue::Histogram(histogram)))
            .collect()
    }
}

impl Counters {
    /// Adds the host's times of a sampled submission.
    pub(crate) fn sampled(&self, noted: impl Iterator<Item = Noted>) {
        for noted in noted {
            for (phase, ns) in noted.phases().into_iter().flatten() {
                self.sampling.phase(phase, ns);
            }
            if let Some((submission, times)) = noted.into_times() {
                self.sampling.pending.lock().insert(submission, times);
            }
        }
    }

    /// A command buffer that was to be a sample is not submitted.
    pub(crate) fn return_sample(&self) {
        let _others = self.sampling.due.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Adds the time that the driver took to accept a sampled submission.
    pub(crate) fn sampled_submit(&self, ns: u64) {
        self.sampling.phase(Phase::Submit, ns);
    }

    /// The sampled submission with this number has ended: adds the device's times of its launches if it has succeeded.
    pub(crate) fn sampled_launches(&self, submission: u64, commands: &[Command], timing: Option<Timing>) {
        let pending = self.sampling.pending.lock().remove(&submission);
        let (Some(times), Some(timing)) = (pending, timing) else { return };
        for (command, [begin, end]) in times.of_work(commands, timing) {
            if let (Command::Dispatch(dispatch), Some(begin), Some(end)) = (command, begin, end) {
                self.kernel(&dispatch.pipeline, |kernel| kernel.duration.record(end.saturating_sub(begin)));
            }
        }
    }
}

impl Device {
    /// Sets how often the launches of a submission are measured one by one for the [metrics](Device::metrics): host phases, and device times
    /// of launches in submissions with several commands. 1 s by default, and at most a hundredth of the time if submissions are long;
    /// [`Duration::ZERO`] measures each submission, which costs what a [trace](Device::trace) costs; `None` measures none.
    pub fn sample_launches(&self, every: Option<Duration>) {
        self.counters().sampling.set(every.map_or(OFF, nanoseconds));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Whether a submission that begins behind the end of another is a sample; only one has ended since the last sample.
    fn ended(sampling: &Sampling, start_ns: u64, end_ns: u64) -> bool {
        sampling.ended(&Timing { start_ns, end_ns }, || sampling.count.load(Ordering::Relaxed) + 1);
        sampling.take()
    }

    #[test]
    fn samples_are_an_interval_apart() {
        let sampling = Sampling::default();
        assert!(!sampling.take());
        assert!(ended(&sampling, 0, 10));
        assert!(!sampling.take());
        assert!(!ended(&sampling, 10, SECOND));
        assert!(ended(&sampling, SECOND, SECOND + 10));
        // A submission of a second makes the next sample due after a hundred.
        assert!(ended(&sampling, 9 * SECOND, 10 * SECOND));
        assert!(!ended(&sampling, 109 * SECOND, 109 * SECOND + 1));
        assert!(ended(&sampling, 110 * SECOND, 110 * SECOND + 1));
    }

    #[test]
    fn a_sample_is_one_of_those_that_follow() {
        let sampling = Sampling::default();
        let mut seen = [0; CHOICE as usize + 1];
        for second in 1..1000 {
            let begin = 2 * second * SECOND;
            sampling.ended(&Timing { start_ns: begin, end_ns: begin + 1 + second % 7 }, || 100 * second);
            let position = (1..100).find(|_| sampling.take()).unwrap();
            assert!(!(0..100).any(|_| sampling.take()));
            seen[position] += 1;
        }
        assert!(seen[0] == 0 && seen[1..].iter().all(|times| (30..100).contains(times)), "{seen:?}");
    }

    #[test]
    fn each_or_none_is_sampled() {
        let sampling = Sampling::default();
        sampling.set(0);
        assert!(sampling.take() && sampling.take());
        assert!(ended(&sampling, 0, 1 << 40) && sampling.take());
        sampling.set(OFF);
        assert!(!sampling.take());
        assert!(!ended(&sampling, 0, u64::MAX - 1));
    }
}
