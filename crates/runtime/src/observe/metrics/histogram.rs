//! [`Histogram`]: how often values of each size were recorded, in buckets whose width grows with the value.
//!
//! As in HdrHistogram, each power of two is divided into a fixed number of buckets, here 8, so that a bucket's bounds differ by an eighth of
//! its value at most. Recording is one relaxed atomic addition for the bucket and one for the sum.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets for each power of two, as a power of two.
const PARTS: u32 = 3;
/// Bounds of [`Histogram::cumulative`], as powers of two.
const BOUNDS: std::ops::RangeInclusive<u32> = 10..=36;
/// Values from 0 to `u64::MAX`.
const BUCKETS: usize = ((64 - PARTS as usize) + 1) << PARTS;

/// A histogram that any thread records to.
pub(crate) struct Recorder {
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), sum: AtomicU64::new(0) }
    }
}

/// The bucket of a value.
fn bucket(value: u64) -> usize {
    let power = value.max(1).ilog2();
    match power.checked_sub(PARTS) {
        None => value as usize,
        // The bits below the highest one, as many as there are parts.
        Some(shift) => (((shift + 1) as usize) << PARTS) + ((value >> shift) as usize & ((1 << PARTS) - 1)),
    }
}

/// The first value behind a bucket; `u64::MAX` for the last.
fn end(bucket: usize) -> u64 {
    let (power, part) = (bucket >> PARTS, bucket & ((1 << PARTS) - 1));
    if power == 0 {
        return part as u64 + 1;
    }
    let end = ((1_u128 << PARTS) + part as u128 + 1) << (power - 1);
    u64::try_from(end).unwrap_or(u64::MAX)
}

impl Recorder {
    pub(crate) fn record(&self, value: u64) {
        self.counts[bucket(value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Histogram {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).enumerate();
        let buckets = counts.filter(|(_, count)| *count > 0).map(|(at, count)| (end(at), count)).collect();
        Histogram { buckets, sum: self.sum.load(Ordering::Relaxed) }
    }
}

/// A snapshot of a histogram of integers, nanoseconds for instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The buckets that are not empty, in ascending order: the first value behind each, and its count. A bucket's bounds differ by an
    /// eighth at most.
    pub buckets: Vec<(u64, u64)>,
    /// Sum of all values.
    pub sum: u64,
}

impl Histogram {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// The numbers of values up to bounds that are the same for every histogram, in ascending order: each bound, and the count. The bounds are one less
    /// than powers of two; in nanoseconds they are 1 µs to 69 s. Values above the last bound are in [`Histogram::count`] alone.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        BOUNDS.map(|power| {
            // A bucket ends at each power of two.
            let end = 1_u64 << power;
            let below = self.buckets.iter().filter(|(last, _)| *last <= end).map(|(_, count)| count).sum();
            (end - 1, below)
        })
    }

    /// Mean of the values; `None` if there are none.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / count as f64)
    }

    /// An upper bound of a quantile, from 0 to 1, at most an eighth above it; `None` if there are no values.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let rank = ((self.count() as f64 * quantile.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut below = 0;
        self.buckets.iter().find_map(|(end, count)| {
            below += count;
            (below >= rank).then(|| end.saturating_sub(1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_an_eighth_wide_at_most_and_cover_everything() {
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        let mut value = 0_u64;
        for at in 0..BUCKETS - 1 {
            // `value` is the first of its bucket.
            assert_eq!(bucket(value), at);
            let end = end(at);
            assert_eq!((bucket(end - 1), bucket(end)), (at, at + 1));
            assert!(u128::from(end - value) * 8 <= u128::from(value.max(8)), "{value} to {end}");
            value = end;
        }
    }

    #[test]
    fn quantiles_are_within_an_eighth() {
        let recorder = Recorder::default();
        (1..=10_000).for_each(|value| recorder.record(value * 37));
        let histogram = recorder.snapshot();
        assert_eq!((histogram.count(), histogram.sum), (10_000, 37 * 10_000 * 10_001 / 2));
        for (quantile, exact) in [(0.0, 37), (0.5, 5000 * 37), (0.99, 9900 * 37), (1.0, 370_000)] {
            let found = histogram.quantile(quantile).unwrap();
            assert!((exact..=exact + exact / 8 + 1).contains(&found), "{quantile}: {found} for {exact}");
        }
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}
