//! [`Health`]: health of a device and its components, from recent events.
//!
//! Uses data that is collected anyway: results of submissions and compilations, and the states of the pool and of the circuit
//! breaker. The temperature is measured unless the program has reported it. Components without data are [`Status::Unknown`].
//! Latencies are compared with their own history, per kernel and grid size, on recovering streams.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Command, Error, Pipeline, Thermal, Timing};

use crate::identity::identity;
use crate::observe::failures::Failures;
use crate::recovery::{BreakerState, FaultClass};
use crate::{Alert, AlertKind, Device, Pressure};

/// Health status, in ascending order of severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// No data. Ignored in the overall status.
    #[default]
    Unknown,
    /// Normal operation.
    Healthy,
    /// Works, with failures, slowly, or short of a resource.
    Degraded,
    /// The next operations will probably fail or be rejected.
    Failing,
    /// Unusable in this process unless it is reset.
    Terminal,
}

/// A component of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Component {
    /// Memory: degraded at [`Pressure::High`], failing at [`Pressure::Critical`].
    Memory,
    /// Queues: degraded if at least 2 and 1/16 of the last 64 submissions failed, failing if at least 8 and half of them failed.
    /// Cancelled work, invalid calls and work behind a failure are not counted. Unknown before the first submission.
    Queues,
    /// Compiler: by the same thresholds, over compilations. Invalid sources are not counted.
    Compiler,
    /// Kernel latency: degraded if a kernel takes three times as long as in its history; unknown without a history.
    Latency,
    /// Circuit breaker: degraded if it was open recently, failing while it is open or half-open.
    Breaker,
    /// Temperature of the device, from the last [`Notice::Thermal`](crate::Notice::Thermal), otherwise measured now: degraded at
    /// [`Thermal::Serious`], failing at [`Thermal::Critical`], unknown without a sensor.
    Temperature,
    /// Alerts that are raised ([`Device::alerts`]): degraded if there is one, failing if the device is lost, unknown if the device has no alerts.
    Alerts,
    /// Log lines of kernels: degraded if more than 1/16 of the lines were lost, unknown before the first line. The reason has the counts.
    Log,
}

/// Status of a component, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The component.
    pub component: Component,
    /// Its status.
    pub status: Status,
    /// The reason, for display.
    pub reason: String,
}

/// Health of a device; see [`Device::health`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The most severe status of the components.
    pub status: Status,
    /// One finding for each component.
    pub findings: Vec<Finding>,
}

impl Health {
    /// Status of a component.
    pub fn of(&self, component: Component) -> Status {
        let finding = self.findings.iter().find(|finding| finding.component == component);
        finding.map_or(Status::Unknown, |finding| finding.status)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.status)?;
        for Finding { component, status, reason } in &self.findings {
            write!(f, "\n  {component:?}: {status:?}, {reason}")?;
        }
        Ok(())
    }
}

/// Counters for a device's health.
#[derive(Default)]
pub(crate) struct Vitals {
    pub(crate) queues: Ends,
    pub(crate) compiler: Ends,
    /// Alerts that are raised; `None` if nobody judges.
    pub(crate) alerts: Mutex<Option<Vec<Alert>>>,
    pub(crate) failures: Failures,
    latencies: Mutex<HashMap<(usize, u128), Latency>>,
}

/// Maximum number of kernels and grid sizes with a latency history.
const LATENCIES: usize = 256;

impl Vitals {
    /// Records the result of a submission.
    pub(crate) fn submission(&self, error: Option<&Error>) {
        self.queues.add(error);
    }

    /// Records the result of a compilation.
    pub(crate) fn compilation(&self, error: Option<&Error>) {
        self.compiler.add(error);
    }

    /// Records the time of a successful submission, if it is a single launch.
    pub(crate) fn latency(&self, commands: &[Command], timing: Timing) {
        let [Command::Dispatch(dispatch)] = commands else { return };
        // The size of an indirect launch varies.
        let Some(threads) = dispatch.grid.threads() else { return };
        let key = (identity(&dispatch.pipeline), threads.volume());
        let mut latencies = self.latencies.lock();
        if latencies.len() < LATENCIES || latencies.contains_key(&key) {
            let latency = latencies.entry(key).or_insert_with(|| Latency::new(&dispatch.pipeline));
            latency.add(timing.end_ns.saturating_sub(timing.start_ns) as f64);
        }
    }

    /// The kernel with the largest slowdown, and its factor.
    fn slowest(&self) -> Option<(String, f64)> {
        let latencies = self.latencies.lock();
        let grown =
            latencies.values().filter_map(|latency| Some((latency.kernel.clone(), latency.growth()?)));
        grown.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Results of the last 64 operations.
#[derive(Default)]
pub(crate) struct Ends {
    /// Bit i: whether the i-th last operation failed.
    failed: AtomicU64,
    count: AtomicU64,
}

impl Ends {
    fn add(&self, error: Option<&Error>) {
        use FaultClass::{DeviceLost, KernelFault, OutOfMemory, Transient};
        let failed = match error.map(FaultClass::of) {
            None => 0,
            Some(Transient | OutOfMemory | DeviceLost | KernelFault) => 1,
            Some(_) => return,
        };
        if failed == 0 && self.failed.load(Ordering::Relaxed) == 0 && self.count.load(Ordering::Relaxed) >= 64
        {
            return; // not counted
        }
        let _last =
            self.failed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |all| Some(all << 1 | failed));
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn finding(&self, component: Component, what: &str) -> Finding {
        let (failed, count) = (
            u64::from(self.failed.load(Ordering::Relaxed).count_ones()),
            self.count.load(Ordering::Relaxed).min(64),
        );
        let status = match () {
            () if count == 0 => Status::Unknown,
            () if failed >= 8 && failed * 2 >= count => Status::Failing,
            () if failed >= 2 && failed * 16 >= count => Status::Degraded,
            () => Status::Healthy,
        };
        Finding { component, status, reason: format!("{failed} of the last {count} {what} failed") }
    }
}

/// Latency of a launch: recent, and historical.
struct Latency {
    kernel: String,
    count: u32,
    history: f64,
    lately: f64,
}

/// Number of launches after which a history is used.
const HISTORY: u32 = 32;

impl Latency {
    fn new(pipeline: &Arc<dyn Pipeline>) -> Self {
        Self { kernel: pipeline.signature().name.clone(), count: 0, history: 0.0, lately: 0.0 }
    }

    /// Exponential moving averages: the history with a weight of 1/100, the recent latency with 1/4.
    fn add(&mut self, ns: f64) {
        self.count = self.count.saturating_add(1);
        let slow = f64::from(self.count.min(100)).recip();
        self.history += (ns - self.history) * slow;
        self.lately += (ns - self.lately) * slow.max(0.25);
    }

    /// Ratio of recent to historical latency, once there is a history.
    fn growth(&self) -> Option<f64> {
        (self.count >= HISTORY && self.history > 0.0).then(|| self.lately / self.history)
    }
}

impl Device {
    /// Health of the device and its components.
    pub fn health(&self) -> Health {
        let vitals = &self.recovery().vitals;
        let findings = vec![
            self.memory_finding(),
            vitals.queues.finding(Component::Queues, "submissions"),
            vitals.compiler.finding(Component::Compiler, "compilations"),
            latency_finding(vitals),
            self.breaker_finding(),
            self.temperature_finding(),
            alert_finding(vitals),
            log_finding(self.delivered_log_lines(), self.lost_log_lines()),
        ];
        let status = findings.iter().map(|finding| finding.status).max().unwrap_or_default();
        Health { status, findings }
    }

    fn memory_finding(&self) -> Finding {
        let stats = self.pool().stats();
        let status = match stats.pressure {
            Pressure::Normal | Pressure::Elevated => Status::Healthy,
            Pressure::High => Status::Degraded,
            Pressure::Critical => Status::Failing,
        };
        let bytes = stats.live_block_bytes + stats.idle_bytes;
        let reason =
            format!("pressure {:?}, {bytes} of {} bytes", stats.pressure, self.pool().limits().budget);
        Finding { component: Component::Memory, status, reason }
    }

    fn breaker_finding(&self) -> Finding {
        let trips = self.breaker().trips();
        let (status, reason) = match self.breaker().state() {
            BreakerState::Closed if trips == 0 => (Status::Healthy, "closed".into()),
            BreakerState::Closed => (Status::Degraded, format!("closed, tripped before ({trips} in all)")),
            BreakerState::Open { .. } => (Status::Failing, format!("open ({trips} trips in all)")),
            BreakerState::HalfOpen => (Status::Failing, "half-open".into()),
            BreakerState::Terminal(cause) => (Status::Terminal, cause.to_string()),
        };
        Finding { component: Component::Breaker, status, reason }
    }

    fn temperature_finding(&self) -> Finding {
        let thermal = match self.told_thermal() {
            Some(told) => Ok((told, "as last reported")),
            None => super::thermal::of_device(self, Path::new(super::thermal::ZONES))
                .map(|now| (now, "measured now")),
        };
        let (status, reason) = match thermal {
            Ok((thermal, how)) => {
                let status = match thermal {
                    Thermal::Nominal | Thermal::Fair => Status::Healthy,
                    Thermal::Serious => Status::Degraded,
                    Thermal::Critical => Status::Failing,
                };
                (status, format!("{thermal:?}, {how}"))
            }
            Err(error) => (Status::Unknown, error.to_string()),
        };
        Finding { component: Component::Temperature, status, reason }
    }
}

fn alert_finding(vitals: &Vitals) -> Finding {
    let (status, reason) = match &*vitals.alerts.lock() {
        None => (Status::Unknown, "the device has no alerts".into()),
        Some(alerts) if alerts.is_empty() => (Status::Healthy, "none is raised".into()),
        Some(alerts) => {
            let is_lost = alerts.iter().any(|alert| alert.kind == AlertKind::DeviceLost);
            let reasons: Vec<String> = alerts.iter().map(Alert::to_string).collect();
            (if is_lost { Status::Failing } else { Status::Degraded }, reasons.join("; "))
        }
    };
    Finding { component: Component::Alerts, status, reason }
}

fn log_finding(delivered: u64, lost: u64) -> Finding {
    let status = match () {
        () if delivered == 0 && lost == 0 => Status::Unknown,
        () if lost > delivered.saturating_add(lost) / 16 => Status::Degraded,
        () => Status::Healthy,
    };
    Finding { component: Component::Log, status, reason: format!("{delivered} lines delivered, {lost} lost") }
}

fn latency_finding(vitals: &Vitals) -> Finding {
    let slowest = vitals.slowest();
    let (status, reason) = match slowest {
        Some((kernel, growth)) if growth >= 3.0 => {
            (Status::Degraded, format!("kernel `{kernel}` takes {growth:.1} times as long as in its history"))
        }
        Some(_) => (Status::Healthy, "as in the history".into()),
        None => (Status::Unknown, "no history yet".into()),
    };
    Finding { component: Component::Latency, status, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_a_line_for_each_part() {
        let finding = |component, status| Finding { component, status, reason: "said so".into() };
        let findings =
            vec![finding(Component::Memory, Status::Healthy), finding(Component::Queues, Status::Degraded)];
        let health = Health { status: Status::Degraded, findings };
        let lines = ["Degraded", "  Memory: Healthy, said so", "  Queues: Degraded, said so"];
        assert_eq!(health.to_string(), lines.join("\n"));
    }

    #[test]
    fn lost_lines_degrade_the_log() {
        for (delivered, lost, status) in [
            (0, 0, Status::Unknown),
            (16, 0, Status::Healthy),
            (15, 1, Status::Healthy),
            (14, 2, Status::Degraded),
            (0, 1, Status::Degraded),
            (u64::MAX, u64::MAX, Status::Degraded),
        ] {
            let finding = log_finding(delivered, lost);
            assert_eq!((finding.component, finding.status), (Component::Log, status), "{delivered} {lost}");
            assert_eq!(finding.reason, format!("{delivered} lines delivered, {lost} lost"));
        }
    }

    #[test]
    fn ends_are_counted_over_the_last_64() {
        let ends = Ends::default();
        let status = |ends: &Ends| ends.finding(Component::Queues, "submissions").status;
        assert_eq!(status(&ends), Status::Unknown, "nothing has ended");
        let failed = Error::DeviceLost("gone".into());
        ends.add(Some(&failed));
        assert_eq!(status(&ends), Status::Healthy, "one failure is not a rate");
        ends.add(Some(&failed));
        assert_eq!(status(&ends), Status::Degraded);
        (0..6).for_each(|_| ends.add(Some(&failed)));
        assert_eq!(status(&ends), Status::Failing);
        (0..9).for_each(|_| ends.add(None));
        assert_eq!(status(&ends), Status::Degraded);
        for error in [Error::Cancelled, Error::invalid("x"), failed.poison(), Error::Compile(Vec::new())] {
            (0..64).for_each(|_| ends.add(Some(&error)));
        }
        let finding = ends.finding(Component::Queues, "submissions");
        assert_eq!(finding.reason, "8 of the last 17 submissions failed");
        (0..64).for_each(|_| ends.add(None));
        assert_eq!(status(&ends), Status::Healthy);
        (0..1000).for_each(|_| ends.add(None));
        (0..4).for_each(|_| ends.add(Some(&failed)));
        assert_eq!(
            ends.finding(Component::Queues, "submissions").reason,
            "4 of the last 64 submissions failed"
        );
    }

    #[test]
    fn a_latency_is_compared_with_its_own_history() {
        let mut latency = Latency { kernel: "k".into(), count: 0, history: 0.0, lately: 0.0 };
        (0..HISTORY - 1).for_each(|_| latency.add(100.0));
        assert_eq!(latency.growth(), None);
        (0..100).for_each(|_| latency.add(100.0));
        assert!(latency.growth().is_some_and(|growth| (growth - 1.0).abs() < 1e-9));
        (0..10).for_each(|_| latency.add(500.0));
        assert!(latency.growth().is_some_and(|growth| growth > 3.0), "{:?}", latency.growth());
        (0..1000).for_each(|_| latency.add(500.0));
        assert!(latency.growth().is_some_and(|growth| growth < 1.1), "what lasts becomes history");
    }
}
