//! [`HostClock`]: the host's clock of traces; [`Clocks`]: the device's clock relative to it.
//!
//! The clocks are compared by reading the device's between two readings of the host's, when a trace starts, stops and is read, and at
//! submissions in between. The offset is interpolated between two comparisons.

use std::time::{SystemTime, UNIX_EPOCH};

use elinvar_driver::PerProcess;
use quanta::Clock;

/// Readings of a comparison when the trace starts, stops or is read; the one with the shortest interval is kept.
const READINGS: u32 = 16;
/// Readings of a comparison at a submission.
const FEW_READINGS: u32 = 4;
/// Initial time between comparisons at submissions.
const INTERVAL_NS: u64 = 10_000_000;
/// Number of comparisons at which every second one is dropped, and the interval doubled.
const MOST: usize = 4096;

/// The clock of this process.
pub(super) static HOST: PerProcess<HostClock> = PerProcess::new(HostClock::new);

/// The CPU's cycle counter where it is invariant: reading it takes a third of the time of a system clock.
pub(super) struct HostClock {
    clock: Clock,
    base: u64,
    base_unix_ns: u64,
}

impl HostClock {
    fn new() -> Self {
        let clock = Clock::new();
        let base = clock.raw();
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self { clock, base, base_unix_ns: since.map_or(0, |since| since.as_nanos() as u64) }
    }

    /// The counter.
    pub(super) fn raw(&self) -> u64 {
        self.clock.raw()
    }

    /// Nanoseconds since the first use of the clock in this process.
    pub(super) fn ns(&self, raw: u64) -> u64 {
        self.clock.delta_as_nanos(self.base, raw.max(self.base))
    }

    /// The system's time in nanoseconds since the Unix epoch when the clock was 0.
    pub(super) fn base_unix_ns(&self) -> u64 {
        self.base_unix_ns
    }
}

/// A comparison: at `host_ns` on the host's clock, plus or minus `error_ns`, the device's clock was `device_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSample {
    /// Time on the host's clock, of [`Timeline`](crate::Timeline).
    pub host_ns: u64,
    /// Time on the device's clock, of [`Device::clock_ns`](crate::Device::clock_ns).
    pub device_ns: u64,
    /// Half of the interval between the readings of the host's clock, rounded up.
    pub error_ns: u64,
}

impl ClockSample {
    pub(super) fn offset(&self) -> i64 {
        self.host_ns.wrapping_sub(self.device_ns).cast_signed()
    }
}

/// The comparisons of a trace, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Clocks {
    samples: Vec<ClockSample>,
    interval_ns: u64,
}

impl Clocks {
    /// Compares the clocks carefully.
    pub(super) fn compare(device_ns: impl Fn() -> u64) -> ClockSample {
        best(READINGS, device_ns)
    }

    /// Compares the clocks at low cost.
    pub(super) fn compare_quickly(device_ns: impl Fn() -> u64) -> ClockSample {
        best(FEW_READINGS, device_ns)
    }

    pub(super) fn starting_with(sample: ClockSample) -> Self {
        Self { samples: vec![sample], interval_ns: INTERVAL_NS }
    }

    /// Adds a comparison. Returns the host's time of the next one.
    pub(super) fn add(&mut self, sample: ClockSample) -> u64 {
        // Two threads may have compared at the same time.
        if self.samples.last().is_none_or(|last| last.host_ns < sample.host_ns) {
            self.samples.push(sample);
        }
        if self.samples.len() >= MOST {
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.interval_ns = self.interval_ns.saturating_mul(2);
        }
        self.next()
    }

    /// The host's time at which the next comparison is due.
    pub(super) fn next(&self) -> u64 {
        self.samples.last().map_or(0, |last| last.host_ns + self.interval_ns)
    }

    pub(super) fn samples(&self) -> &[ClockSample] {
        &self.samples
    }

    /// Converts a time of the device to the host's clock. Monotonic.
    pub(super) fn to_host(&self, device_ns: u64) -> u64 {
        let at = self.samples.partition_point(|sample| sample.device_ns <= device_ns);
        let shifted = |sample: &ClockSample| device_ns.saturating_add_signed(sample.offset());
        match (at.checked_sub(1).and_then(|before| self.samples.get(before)), self.samples.get(at)) {
            (Some(before), Some(after)) => {
                let (host, device) = (after.host_ns - before.host_ns, after.device_ns - before.device_ns);
                let since =
                    u128::from(device_ns - before.device_ns) * u128::from(host) / u128::from(device.max(1));
                before.host_ns + since as u64
            }
            (Some(nearest), None) | (None, Some(nearest)) => shifted(nearest),
            (None, None) => device_ns,
        }
    }

    /// Bound of the error of [`Clocks::to_host`] between the first and the last comparison: half of the longest interval of readings, and
    /// the largest change of the offset from one comparison to the next.
    pub(super) fn error_ns(&self) -> u64 {
        let reading = self.samples.iter().map(|sample| sample.error_ns).max().unwrap_or(0);
        let drift = self.samples.windows(2).map(|pair| pair[0].offset().abs_diff(pair[1].offset())).max();
        reading.saturating_add(drift.unwrap_or(0))
    }
}

fn best(readings: u32, device_ns: impl Fn() -> u64) -> ClockSample {
    let clock = HOST.get();
    let mut best: Option<ClockSample> = None;
    for _ in 0..readings {
        let before = clock.raw();
        let device_ns = device_ns();
        let (before, after) = (clock.ns(before), clock.ns(clock.raw()));
        let error_ns = (after - before).div_ceil(2);
        if best.is_none_or(|best| error_ns < best.error_ns) {
            best = Some(ClockSample { host_ns: before + (after - before) / 2, device_ns, error_ns });
        }
    }
    best.unwrap_or(ClockSample { host_ns: 0, device_ns: 0, error_ns: u64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(host_ns: u64, device_ns: u64, error_ns: u64) -> ClockSample {
        ClockSample { host_ns, device_ns, error_ns }
    }

    #[test]
    fn device_times_are_interpolated_between_comparisons() {
        let mut clocks = Clocks::starting_with(sample(1_000, 50_000, 30));
        assert_eq!((clocks.to_host(50_007), clocks.to_host(49_000), clocks.error_ns()), (1_007, 0, 30));
        // The device's clock is slow by 10 % here, and fast by as much afterwards.
        clocks.add(sample(2_000, 50_900, 40));
        clocks.add(sample(3_000, 52_000, 20));
        assert_eq!(
            [50_000, 50_450, 50_900, 51_450, 52_000].map(|ns| clocks.to_host(ns)),
            [1000, 1500, 2000, 2500, 3000]
        );
        assert_eq!((clocks.to_host(52_100), clocks.to_host(0)), (3_100, 0));
        assert_eq!(clocks.error_ns(), 40 + 100);
        let all: Vec<u64> = (49_000..53_000).map(|ns| clocks.to_host(ns)).collect();
        assert!(all.is_sorted());
    }

    #[test]
    fn a_comparison_brackets_the_reading() {
        let clock = HOST.get();
        let read = || {
            std::hint::black_box(());
            clock.ns(clock.raw())
        };
        let before = read();
        // The device's clock is the host's own, so that the error is known.
        let sample = Clocks::compare(read);
        assert!(before <= sample.host_ns && sample.host_ns <= read());
        assert!(sample.offset().unsigned_abs() <= sample.error_ns, "{sample:?}");
    }

    #[test]
    fn the_number_of_comparisons_is_bounded() {
        let mut clocks = Clocks::starting_with(sample(0, 7, 1));
        let (mut next, mut added) = (0, 0);
        for number in 1..1_000_000_u64 {
            let now = number * 1_000_000;
            if now >= next {
                next = clocks.add(sample(now, now + 7, 1));
                added += 1;
            }
        }
        assert!(clocks.samples().len() < MOST && added > 2 * MOST, "{added}");
        assert_eq!((clocks.samples()[0], clocks.to_host(50_000_507)), (sample(0, 7, 1), 50_000_500));
    }
}
