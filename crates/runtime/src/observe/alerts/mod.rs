//! [`Alerts`]: a thread that judges a device's metrics in regular intervals, and calls back when an alert is raised or cleared. Opt-in.
//!
//! [`judge`] decides, from samples and their times alone; this file takes the samples, and tells.

mod judge;
#[cfg(test)]
mod judge_tests;
mod kernel_history;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use elinvar_driver::{Callback, Error, Process, Result};

use crate::Device;
use crate::observe::event;
use judge::Judge;
pub(crate) use judge::Sample;

/// What an alert is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AlertKind {
    /// The device is lost: its breaker is terminal.
    DeviceLost,
    /// The circuit breaker is open or probes.
    BreakerOpen,
    /// A large share of submissions fails. Cancelled work, wrong calls and work behind a failure are not counted.
    SubmissionsFail,
    /// Requests for memory were refused.
    AllocationsRefused,
    /// Live memory grows and does not return: a leak, probably.
    MemoryGrows,
    /// The device is at [`Thermal::Serious`](crate::Thermal) or above.
    Hot,
    /// A kernel takes longer than in its own history.
    KernelSlower {
        /// Its name.
        kernel: String,
    },
}

impl AlertKind {
    /// Lower-case name, with underscores.
    pub fn name(&self) -> &'static str {
        match self {
            Self::DeviceLost => "device_lost",
            Self::BreakerOpen => "breaker_open",
            Self::SubmissionsFail => "submissions_fail",
            Self::AllocationsRefused => "allocations_refused",
            Self::MemoryGrows => "memory_grows",
            Self::Hot => "hot",
            Self::KernelSlower { .. } => "kernel_slower",
        }
    }
}

/// An alert.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// What it is about.
    pub kind: AlertKind,
    /// The reason with its figures, for display.
    pub reason: String,
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.reason)
    }
}

/// A change of an alert.
#[derive(Clone, Debug, PartialEq)]
pub enum AlertChange {
    /// The alert was raised.
    Raised(Alert),
    /// Its cause has been absent for long enough; the reason is the figure now.
    Cleared(Alert),
}

impl AlertChange {
    /// The alert.
    pub fn alert(&self) -> &Alert {
        let (Self::Raised(alert) | Self::Cleared(alert)) = self;
        alert
    }
}

/// Thresholds of alerts. Where there are two, an alert is raised at the first and cleared at the second, so that a value between does neither.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertOptions {
    /// Interval between two samples, at least 1 ms. Default: 10 s. Windows below are in samples.
    pub every: Duration,
    /// Share of submissions that fail, over `failures_window` samples. Default: 0.05 and 0.02.
    pub failures: [f64; 2],
    /// Default: 6.
    pub failures_window: usize,
    /// Minimum number of failures in the window. Default: 3.
    pub failures_least: u64,
    /// Mean duration of a kernel in one sample, as a multiple of the median of its earlier ones. Default: 1.5 and 1.2.
    pub slower: [f64; 2],
    /// Number of samples in a row with the kernel that have to exceed that, and to return. Default: 3. The history has 60 samples with the kernel, and decides from
    /// the tenth on. A duration that stays for 60 samples is the new history.
    pub slower_samples: usize,
    /// Live memory of the pool grows if its minimum in each of six windows of so many samples exceeds that of the window before, by this share of the first minimum in all.
    /// Default: 30 samples (half an hour in all), and 0.2; at least 1 MiB.
    pub growth_window: usize,
    /// See [`AlertOptions::growth_window`].
    pub growth: f64,
    /// Number of samples in a row at [`Thermal::Serious`](crate::Thermal) or above, or below, by which [`AlertKind::Hot`] is raised or cleared. Default: 2.
    pub hot_samples: usize,
}

impl Default for AlertOptions {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(10),
            failures: [0.05, 0.02],
            failures_window: 6,
            failures_least: 3,
            slower: [1.5, 1.2],
            slower_samples: 3,
            growth_window: 30,
            growth: 0.2,
            hot_samples: 2,
        }
    }
}

impl AlertOptions {
    fn check(&self) -> Result<()> {
        let pairs = [("failures", self.failures, 0.0), ("slower", self.slower, 1.0)];
        for (name, [raise, clear], least) in pairs {
            if !(clear >= least && raise >= clear && raise.is_finite()) {
                return Err(Error::invalid(format!(
                    "alerts: `{name}` is [{raise}, {clear}]; the second is from {least} to the first"
                )));
            }
        }
        if !(self.growth >= 0.0 && self.growth.is_finite()) {
            return Err(Error::invalid(format!("alerts: `growth` is {}; it is 0 or more", self.growth)));
        }
        let counts = [
            ("failures_window", self.failures_window),
            ("slower_samples", self.slower_samples),
            ("growth_window", self.growth_window),
            ("hot_samples", self.hot_samples),
        ];
        match counts.iter().find(|(_, count)| !(1..=10_000).contains(count)) {
            Some((name, count)) => {
                Err(Error::invalid(format!("alerts: `{name}` is {count}; it is from 1 to 10000")))
            }
            None => Ok(()),
        }
    }
}

/// Alerts of a device. Dropping it ends them.
#[must_use = "dropping it ends the alerts"]
pub struct Alerts {
    device: Device,
    /// Disconnected to end the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// The process that started the thread.
    process: Process,
}

impl Alerts {
    /// The alerts that are raised now.
    pub fn active(&self) -> Vec<Alert> {
        self.device.recovery().vitals.alerts.lock().clone().unwrap_or_default()
    }
}

impl Drop for Alerts {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take().filter(|_| self.process.is_this()) {
            let _ended = thread.join();
        }
    }
}

impl fmt::Debug for Alerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Alerts({})", self.device.name())
    }
}

impl Device {
    /// Judges the device's metrics in regular intervals, on a thread of its own, and calls `told` when an alert is raised or cleared. Each change is also an event of
    /// `tracing`, and alerts that are raised make the device's [`Device::health`] degraded.
    ///
    /// ```no_run
    /// # fn main() -> elinvar::Result<()> {
    /// # let device = elinvar::Device::system_default()?;
    /// let _alerts = device.alerts(&elinvar::AlertOptions::default(), |change| eprintln!("{change:?}"))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for options out of their range, or if the device has alerts already; `Environment` if the thread cannot be started.
    pub fn alerts(
        &self,
        options: &AlertOptions,
        told: impl Fn(&AlertChange) + Send + 'static,
    ) -> Result<Alerts> {
        self.expect_here("Device::alerts")?;
        options.check()?;
        let mut active = self.recovery().vitals.alerts.lock();
        if active.is_some() {
            return Err(Error::invalid("the device has alerts already; drop them first"));
        }
        *active = Some(Vec::new());
        drop(active);
        let (end, ended) = channel::<()>();
        let (device, every) = (self.clone(), options.every.max(Duration::from_millis(1)));
        let mut judge = Judge::new(options.clone());
        let run = move || {
            let end = Ended(&device);
            loop {
                let changes = judge.take(&device.sample());
                *device.recovery().vitals.alerts.lock() = Some(judge.active().cloned().collect());
                for change in &changes {
                    event::alert(&device, change);
                    let _callback = Callback::enter();
                    // The program's code: a panic of it ends here.
                    let _panicked = catch_unwind(AssertUnwindSafe(|| told(change)));
                }
                if ended.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            drop(end);
        };
        let thread = std::thread::Builder::new().name("elinvar-alerts".into()).spawn(run);
        match thread {
            Ok(thread) => {
                let (end, thread) = (Some(end), Some(thread));
                Ok(Alerts { device: self.clone(), end, thread, process: Process::this() })
            }
            Err(error) => {
                *self.recovery().vitals.alerts.lock() = None;
                Err(Error::Environment(format!("cannot start the thread of alerts: {error}")))
            }
        }
    }

    fn sample(&self) -> Sample {
        let thermal = self.told_thermal();
        let thermal =
            thermal.or_else(|| super::thermal::of_device(self, Path::new(super::thermal::ZONES)).ok());
        self.counters().sample(self.breaker().state(), self.pool().stats(), thermal)
    }
}

/// Ends a device's alerts when the thread ends.
struct Ended<'a>(&'a Device);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        *self.0.recovery().vitals.alerts.lock() = None;
    }
}
