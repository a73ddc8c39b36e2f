//! [`Judge`]: raises and clears alerts from a series of samples.

use std::collections::{BTreeMap, VecDeque};

use elinvar_driver::Thermal;

use super::kernel_history::KernelHistory;
use super::{Alert, AlertChange, AlertKind, AlertOptions};
use crate::recovery::BreakerState;

/// What is judged, at a time. Counts are totals.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Submissions that succeeded.
    pub(crate) succeeded: u64,
    /// Submissions that failed, apart from consequences.
    pub(crate) failed: u64,
    /// Number and total nanoseconds of a kernel's launches that were submissions of their own.
    pub(crate) kernels: BTreeMap<String, (u64, u64)>,
    /// Bytes of live buffers.
    pub(crate) live: u64,
    /// Refused requests for memory.
    pub(crate) refused: u64,
    pub(crate) breaker: BreakerState,
    /// `None` if it is not measured.
    pub(crate) thermal: Option<Thermal>,
}

/// Windows over which live memory has to grow.
const GROWING: usize = 6;
/// Growth in bytes that is ignored.
const LEAST_GROWTH: u64 = 1 << 20;

pub(crate) struct Judge {
    options: AlertOptions,
    active: BTreeMap<AlertKind, Alert>,
    changes: Vec<AlertChange>,
    /// Successes and failures at the last samples.
    ends: VecDeque<[u64; 2]>,
    kernels: BTreeMap<String, KernelHistory>,
    /// Minima of live memory in complete windows, and of the window that has begun with its number of samples.
    minima: VecDeque<u64>,
    window: (u64, usize),
    /// Live memory when growth was alerted.
    grown: u64,
    refused: Option<u64>,
    /// Samples in a row in which the device was hot, or was not.
    hot: (bool, usize),
}

impl Judge {
    pub(crate) fn new(options: AlertOptions) -> Self {
        Self {
            options,
            active: BTreeMap::new(),
            changes: Vec::new(),
            ends: VecDeque::new(),
            kernels: BTreeMap::new(),
            minima: VecDeque::new(),
            window: (u64::MAX, 0),
            grown: 0,
            refused: None,
            hot: (false, 0),
        }
    }

    pub(crate) fn active(&self) -> impl Iterator<Item = &Alert> {
        self.active.values()
    }

    /// Judges the next sample.
    pub(crate) fn take(&mut self, sample: &Sample) -> Vec<AlertChange> {
        self.breaker(&sample.breaker);
        self.failures(sample);
        self.allocations(sample.refused);
        self.memory(sample.live);
        self.temperature(sample.thermal);
        self.durations(&sample.kernels);
        std::mem::take(&mut self.changes)
    }

    /// Raises or clears an alert; `None` leaves it as it is.
    fn set(&mut self, kind: AlertKind, is_raised: Option<bool>, reason: impl FnOnce() -> String) {
        let Some(is_raised) = is_raised else { return };
        if is_raised == self.active.contains_key(&kind) {
            return;
        }
        let alert = Alert { kind: kind.clone(), reason: reason() };
        if is_raised {
            self.active.insert(kind, alert.clone());
            self.changes.push(AlertChange::Raised(alert));
        } else {
            self.active.remove(&kind);
            self.changes.push(AlertChange::Cleared(alert));
        }
    }

    fn breaker(&mut self, state: &BreakerState) {
        let is_lost = matches!(state, BreakerState::Terminal(_));
        let is_open = matches!(state, BreakerState::Open { .. } | BreakerState::HalfOpen);
        let reason = || match state {
            BreakerState::Terminal(cause) => cause.to_string(),
            state => format!("the circuit breaker is {}", state.name()),
        };
        self.set(AlertKind::DeviceLost, Some(is_lost), reason);
        self.set(AlertKind::BreakerOpen, Some(is_open), reason);
    }

    fn failures(&mut self, sample: &Sample) {
        let now = [sample.succeeded, sample.failed];
        self.ends.push_back(now);
        // The first of the window is the sample before it.
        while self.ends.len() > self.options.failures_window + 1 {
            self.ends.pop_front();
        }
        let [first, ..] = *self.ends.make_contiguous() else { return };
        let [succeeded, failed] = [now[0].saturating_sub(first[0]), now[1].saturating_sub(first[1])];
        let total = succeeded + failed;
        let share = if total == 0 { 0.0 } else { failed as f64 / total as f64 };
        let [raise, clear] = self.options.failures;
        let is_raised = match () {
            () if share > raise && failed >= self.options.failures_least => Some(true),
            () if share <= clear => Some(false),
            () => None,
        };
        self.set(AlertKind::SubmissionsFail, is_raised, || {
            format!("{failed} of the last {total} submissions failed")
        });
    }

    fn allocations(&mut self, refused: u64) {
        let new = refused - self.refused.replace(refused).unwrap_or(refused).min(refused);
        self.set(AlertKind::AllocationsRefused, Some(new > 0), || format!("{new} requests were refused"));
    }

    fn memory(&mut self, live: u64) {
        let (minimum, samples) = &mut self.window;
        (*minimum, *samples) = ((*minimum).min(live), *samples + 1);
        if *samples < self.options.growth_window {
            return;
        }
        self.minima.push_back(*minimum);
        self.window = (u64::MAX, 0);
        while self.minima.len() > GROWING {
            self.minima.pop_front();
        }
        let minima = self.minima.make_contiguous();
        let (first, last) = (minima[0], minima[minima.len() - 1]);
        let grows = minima.windows(2).all(|pair| pair[1] > pair[0]);
        let by = last.saturating_sub(first);
        let is_raised = match () {
            () if minima.len() < GROWING => None,
            () if grows && by >= LEAST_GROWTH && by as f64 >= first as f64 * self.options.growth => {
                Some(true)
            }
            // It has stopped, or has returned.
            () if minima[GROWING - 3] >= last || last < self.grown => Some(false),
            () => None,
        };
        if is_raised == Some(true) && !self.active.contains_key(&AlertKind::MemoryGrows) {
            self.grown = first;
        }
        self.set(AlertKind::MemoryGrows, is_raised, || {
            format!("at least {first} bytes were live in the first of six windows, {last} in the last")
        });
    }

    fn temperature(&mut self, thermal: Option<Thermal>) {
        let Some(thermal) = thermal else { return };
        let is_hot = thermal >= Thermal::Serious;
        self.hot = if self.hot.0 == is_hot { (is_hot, self.hot.1 + 1) } else { (is_hot, 1) };
        let is_raised = (self.hot.1 >= self.options.hot_samples).then_some(is_hot);
        self.set(AlertKind::Hot, is_raised, || format!("the thermal state is {thermal:?}"));
    }

    fn durations(&mut self, kernels: &BTreeMap<String, (u64, u64)>) {
        for (kernel, (count, ns)) in kernels {
            let history = self.kernels.entry(kernel.clone()).or_default();
            let Some(verdict) = history.add(*count, *ns, &self.options) else { continue };
            let kind = AlertKind::KernelSlower { kernel: kernel.clone() };
            self.set(kind, verdict.is_slower, || {
                format!(
                    "kernel `{kernel}` takes {:.0} ns, the median before was {:.0} ns",
                    verdict.mean, verdict.median
                )
            });
        }
    }
}
