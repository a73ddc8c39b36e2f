//! [`KernelHistory`]: a kernel's durations against its own earlier ones.

use std::collections::VecDeque;

use super::AlertOptions;

/// Samples of the history.
const LENGTH: usize = 60;
/// Samples from which on there is a history.
const LEAST: usize = 10;
/// Multiple of the median absolute deviation that is noise.
const NOISE: f64 = 8.0;

/// Mean durations of one kernel by sample, and how many in a row differ.
#[derive(Default)]
pub(super) struct KernelHistory {
    /// Totals at the last sample.
    total: (u64, u64),
    /// Means of earlier samples.
    means: VecDeque<f64>,
    /// Means since they have exceeded the history.
    slow: VecDeque<f64>,
    is_slower: bool,
    /// Samples in a row that were as before.
    normal: usize,
}

/// The judgement of a sample.
pub(super) struct Verdict {
    /// `None` if it is undecided.
    pub(super) is_slower: Option<bool>,
    pub(super) mean: f64,
    pub(super) median: f64,
}

impl KernelHistory {
    /// Judges the kernel's launches since the last sample, by the totals now. `None` if there were none or there is no history.
    pub(super) fn add(&mut self, count: u64, ns: u64, options: &AlertOptions) -> Option<Verdict> {
        let before = std::mem::replace(&mut self.total, (count, ns));
        let launches = count.checked_sub(before.0).filter(|launches| *launches > 0)?;
        let mean = ns.saturating_sub(before.1) as f64 / launches as f64;
        if self.means.len() < LEAST {
            self.keep(mean);
            return None;
        }
        let median = median(self.means.iter().copied());
        let deviation = self::median(self.means.iter().map(|mean| (mean - median).abs()));
        let [raise, clear] = options.slower;
        let verdict = |is_slower| Some(Verdict { is_slower, mean, median });
        if mean > median * raise && mean > median + NOISE * deviation {
            self.normal = 0;
            self.slow.push_back(mean);
            if self.slow.len() >= LENGTH {
                // A change point: this is how long it takes now.
                self.means = std::mem::take(&mut self.slow);
                self.is_slower = false;
                return verdict(Some(false));
            }
            self.is_slower |= self.slow.len() >= options.slower_samples;
            return verdict(self.is_slower.then_some(true));
        }
        if !self.is_slower {
            // Outliers that were too few.
            self.slow.clear();
            self.keep(mean);
            return verdict(None);
        }
        self.normal = if mean <= median * clear { self.normal + 1 } else { 0 };
        if self.normal >= options.slower_samples {
            self.is_slower = false;
            self.slow.clear();
            return verdict(Some(false));
        }
        verdict(None)
    }

    fn keep(&mut self, mean: f64) {
        self.means.push_back(mean);
        if self.means.len() > LENGTH {
            self.means.pop_front();
        }
    }
}

/// The median of at least one number; the upper one of two.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
