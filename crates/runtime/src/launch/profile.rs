//! [`Profile`]: statistics of repeated measurements of the same work, on the device's clock.

use std::fmt;

use elinvar_driver::{Error, Result, Timing};

use crate::{CommandBuffer, Stream};

/// Durations of the iterations of a workload, in nanoseconds on the device's clock. Has at least one iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// In ascending order.
    sorted: Vec<u64>,
    /// Time from the begin of the first iteration to the end of the last.
    span_ns: u64,
}

impl Profile {
    /// Creates a profile of at least one iteration.
    fn new(timings: &[Timing]) -> Self {
        let mut sorted: Vec<u64> = timings.iter().map(|t| t.end_ns.saturating_sub(t.start_ns)).collect();
        sorted.sort_unstable();
        let start = timings.iter().map(|t| t.start_ns).min().unwrap_or(0);
        let end = timings.iter().map(|t| t.end_ns).max().unwrap_or(0);
        Self { sorted, span_ns: end.saturating_sub(start) }
    }

    /// Number of iterations, at least 1.
    pub fn iterations(&self) -> usize {
        self.sorted.len()
    }

    /// Arithmetic mean of the durations in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        self.sorted.iter().map(|ns| *ns as f64).sum::<f64>() / self.sorted.len() as f64
    }

    /// Shortest duration in nanoseconds.
    pub fn min_ns(&self) -> u64 {
        self.sorted[0]
    }

    /// Longest duration in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.sorted[self.sorted.len() - 1]
    }

    /// Sample standard deviation of the durations in nanoseconds (divisor n − 1); 0 for one iteration.
    pub fn std_dev_ns(&self) -> f64 {
        let (mean, count) = (self.mean_ns(), self.sorted.len());
        let squares: f64 = self.sorted.iter().map(|ns| (*ns as f64 - mean).powi(2)).sum();
        (squares / count.saturating_sub(1).max(1) as f64).sqrt()
    }

    /// Percentile of the durations in nanoseconds, by the nearest-rank method. `percent` is from 0 to 100 and is clamped: 0 gives
    /// the minimum, 50 the median, 100 the maximum.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let rank = (percent / 100.0 * self.sorted.len() as f64).ceil() as usize;
        self.sorted[rank.clamp(1, self.sorted.len()) - 1]
    }

    /// Iterations per second, from the begin of the first to the end of the last.
    pub fn throughput(&self) -> f64 {
        self.sorted.len() as f64 * 1e9 / self.span_ns.max(1) as f64
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = |percent| self.percentile_ns(percent);
        write!(
            f,
            "{} iterations: mean {:.0} ns, min {}, max {}, standard deviation {:.0}, p50 {}, p90 {}, p95 {}, p99 {}; \
             {:.0} per second",
            self.iterations(),
            self.mean_ns(),
            self.min_ns(),
            self.max_ns(),
            self.std_dev_ns(),
            p(50.0),
            p(90.0),
            p(95.0),
            p(99.0),
            self.throughput()
        )
    }
}

impl Stream {
    /// Measures the work that `record` adds to a command buffer: records and submits it `iterations` times, then waits for all of
    /// them.
    ///
    /// # Errors
    /// `InvalidArgument` if `iterations` is 0; errors of `record`, of [`CommandBuffer::submit`] and of
    /// [`crate::Completion::wait`].
    pub fn profile(
        &self,
        iterations: usize,
        mut record: impl FnMut(&mut CommandBuffer) -> Result<()>,
    ) -> Result<Profile> {
        if iterations == 0 {
            return Err(Error::invalid("profile: no iterations"));
        }
        let mut done = Vec::with_capacity(iterations);
        for _ in 0..iterations {
            let mut command_buffer = self.command_buffer();
            record(&mut command_buffer)?;
            done.push(command_buffer.submit()?);
        }
        let timings = done.iter().map(|done| done.wait()).collect::<Result<Vec<Timing>>>()?;
        Ok(Profile::new(&timings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(durations: &[u64]) -> Profile {
        let mut start_ns = 1000;
        let timings: Vec<Timing> = durations
            .iter()
            .map(|ns| {
                let timing = Timing { start_ns, end_ns: start_ns + ns };
                start_ns += ns + 10;
                timing
            })
            .collect();
        Profile::new(&timings)
    }

    #[test]
    fn known_numbers_come_out() {
        let known = profile(&[4, 2, 4, 4, 5, 5, 7, 9]);
        assert_eq!((known.mean_ns(), known.min_ns(), known.max_ns(), known.iterations()), (5.0, 2, 9, 8));
        assert!((known.std_dev_ns() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!([50.0, 90.0, 95.0, 99.0].map(|p| known.percentile_ns(p)), [4, 9, 9, 9]);
        assert!((known.throughput() - 8e9 / 110.0).abs() < 1e-3);
        let many = profile(&(1..=1000).rev().collect::<Vec<_>>());
        assert_eq!(
            [0.0, 50.0, 90.0, 95.0, 99.0, 100.0].map(|p| many.percentile_ns(p)),
            [1, 500, 900, 950, 990, 1000]
        );
        let one = profile(&[7]);
        assert_eq!((one.std_dev_ns(), one.percentile_ns(1.0)), (0.0, 7));
    }
}
