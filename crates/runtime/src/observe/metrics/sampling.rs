//! [`Sampling`]: submissions whose launches are measured one by one, for the metrics, on host and device.
//!
//! Timestamps between the launches of every submission would cost more than a launch of a small kernel. A sampled submission is recorded
//! as by a trace with [`TraceDetail::Launches`](crate::TraceDetail::Launches), and its times are added to histograms. The next one is
//! chosen when a submission ends, by the time that its completion has anyway, so that the others read no clock for it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
/// Sampling is off.
const OFF: u64 = u64::MAX;

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
    /// Whether the next submission is one.
    is_due: AtomicBool,
    /// The device's time from which a submission that ends makes it due.
    next: AtomicU64,
    /// Device times of the sample that the device has, and its number.
    pending: Mutex<Option<(u64, Box<LaunchTimes>)>>,
    phases: [Recorder; PHASES.len()],
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            interval: AtomicU64::new(nanoseconds(INTERVAL)),
            is_due: AtomicBool::default(),
            next: AtomicU64::default(),
            pending: Mutex::default(),
            phases: Default::default(),
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(OFF)
}

impl Sampling {
    /// Whether a submission that begins is a sample; the next one is not.
    #[inline]
    pub(super) fn take(&self) -> bool {
        self.is_due.load(Ordering::Relaxed) && self.is_due.swap(false, Ordering::Relaxed)
    }

    /// A submission has ended.
    pub(super) fn ended(&self, timing: &Timing) {
        if timing.end_ns < self.next.load(Ordering::Relaxed) {
            return;
        }
        let interval = self.interval.load(Ordering::Relaxed);
        if interval == OFF {
            return;
        }
        let took = timing.end_ns.saturating_sub(timing.start_ns);
        // An interval of zero is asked for: each submission, whatever it costs.
        let pause = if interval == 0 { 0 } else { interval.max(took.saturating_mul(SHARE)) };
        self.next.store(timing.end_ns.saturating_add(pause), Ordering::Relaxed);
        self.is_due.store(true, Ordering::Relaxed);
    }

    fn set(&self, interval: u64) {
        self.interval.store(interval, Ordering::Relaxed);
        self.next.store(if interval == OFF { OFF } else { 0 }, Ordering::Relaxed);
        self.is_due.store(interval == 0, Ordering::Relaxed);
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
                *self.sampling.pending.lock() = Some((submission, times));
            }
        }
    }

    /// A command buffer that was to be a sample is not submitted.
    pub(crate) fn return_sample(&self) {
        self.sampling.is_due.store(true, Ordering::Relaxed);
    }

    /// Adds the time that the driver took to accept a sampled submission.
    pub(crate) fn sampled_submit(&self, ns: u64) {
        self.sampling.phase(Phase::Submit, ns);
    }

    /// Adds the device's times of the launches of a sampled submission, the one with this number, which has succeeded.
    pub(crate) fn sampled_launches(&self, submission: u64, commands: &[Command], timing: Timing) {
        let pending = self.sampling.pending.lock().take_if(|(number, _)| *number == submission);
        let Some((_, times)) = pending else { return };
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

    fn ended(sampling: &Sampling, start_ns: u64, end_ns: u64) -> bool {
        sampling.ended(&Timing { start_ns, end_ns });
        sampling.take()
    }

    #[test]
    fn samples_are_an_interval_apart() {
        const SECOND: u64 = 1_000_000_000;
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
    fn each_or_none_is_sampled() {
        let sampling = Sampling::default();
        sampling.set(0);
        assert!(sampling.take());
        assert!(ended(&sampling, 0, 1 << 40));
        assert!(ended(&sampling, 1 << 40, 1 << 41));
        sampling.set(OFF);
        assert!(!sampling.take());
        assert!(!ended(&sampling, 0, u64::MAX));
    }
}
