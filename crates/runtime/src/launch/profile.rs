//! [`Profile`]: how long a piece of work takes, over many iterations, by the device's clock.

use std::fmt;

use elinvar_driver::{Error, Result, Timing};

use crate::{CommandBuffer, Stream};

/// Times of the iterations of a piece of work, in nanoseconds of the device's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// In ascending order.
    sorted: Vec<u64>,
    /// From the begin of the first to the end of the last.
    span_ns: u64,
}

impl Profile {
    /// From the times of the iterations, of which there is at least one.
    fn new(timings: &[Timing]) -> Self {
        let mut sorted: Vec<u64> = timings.iter().map(|t| t.end_ns.saturating_sub(t.start_ns)).collect();
        sorted.sort_unstable();
        let start = timings.iter().map(|t| t.start_ns).min().unwrap_or(0);
        let end = timings.iter().map(|t| t.end_ns).max().unwrap_or(0);
        Self { sorted, span_ns: end.saturating_sub(start) }
    }

    /// How many.
    pub fn iterations(&self) -> usize {
        self.sorted.len()
    }

    /// The mean.
    pub fn mean_ns(&self) -> f64 {
        self.sorted.iter().map(|ns| *ns as f64).sum::<f64>() / self.sorted.len() as f64
    }

    /// The shortest.
    pub fn min_ns(&self) -> u64 {
        self.sorted[0]
    }

    /// The longest.
    pub fn max_ns(&self) -> u64 {
        self.sorted[self.sorted.len() - 1]
    }

    /// The standard deviation of the sample; 0 for one iteration.
    pub fn std_dev_ns(&self) -> f64 {
        let (mean, count) = (self.mean_ns(), self.sorted.len());
        let squares: f64 = self.sorted.iter().map(|ns| (*ns as f64 - mean).powi(2)).sum();
        (squares / count.saturating_sub(1).max(1) as f64).sqrt()
    }

    /// The least time within which `percent` of the iterations ended (nearest rank): 50 is the median.
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
    /// Measure the work that `record` adds to a command buffer: it is called and submitted `iterations` times, and waited for at the
    /// end.
    ///
    /// # Errors
    /// `InvalidArgument` for no iterations; what `record` answers; how the work failed.
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
