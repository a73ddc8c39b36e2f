//! Metrics of a device, always on: [`Device::metrics`] takes a snapshot, [`Metrics::to_openmetrics`] formats it.
//!
//! What a submission adds is counted when it has ended, on the thread that reports it: relaxed atomic additions, and a table of the thread to find a kernel.
//! Our own registry in place of a library's: the dependencies of this crate stay few, and histograms have quantiles within an eighth and exact sums,
//! which `prometheus-client` and `metrics` do not offer.

mod catalog;
mod hardware;
mod histogram;
mod sampling;
mod text;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Command, Error, Pipeline, Priority, Result, Thermal, Timing};

pub use catalog::{METRICS, Metric, MetricKind};
pub use histogram::Histogram;
pub(crate) use sampling::Phase;

use crate::identity::identity;
use crate::observe::alerts::Sample;
use crate::observe::trace::{Noted, Notes};
use crate::recovery::{Action, BreakerState, FaultClass};
use crate::{Device, PoolStats};
use histogram::Recorder;
use sampling::Sampling;

/// Maximum number of names of kernels, of streams, and of graphs that are told apart. What further ones do is that of `(other)`.
const NAMES: usize = 1024;
/// Number of pipelines at which those of dropped kernels are forgotten.
const PIPELINES: usize = 4096;
const OTHER: &str = "(other)";

/// Counters of a device.
#[derive(Default)]
pub(crate) struct Counters {
    since: Since,
    submissions: ByResult,
    submission_duration: Recorder,
    queue_time: Recorder,
    compilations: ByResult,
    compilation_duration: Recorder,
    copied: AtomicU64,
    filled: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) read: AtomicU64,
    decisions: [AtomicU64; ACTIONS.len()],
    sampling: Sampling,
    /// By address.
    pipelines: Mutex<HashMap<usize, Known>>,
    /// By name.
    kernels: ByName<KernelCounters>,
    streams: ByName<SubmissionCounters>,
    graphs: ByName<SubmissionCounters>,
}

/// Counters by the name of what they count.
struct ByName<T>(Mutex<BTreeMap<String, Arc<T>>>);

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Default> ByName<T> {
    fn named(&self, name: &str) -> Arc<T> {
        let mut all = self.0.lock();
        let name = if all.len() < NAMES || all.contains_key(name) { name } else { OTHER };
        all.entry(name.to_owned()).or_default().clone()
    }

    fn all(&self) -> BTreeMap<String, Arc<T>> {
        self.0.lock().clone()
    }
}

/// Counters of the submissions of streams, or of graphs, of one name.
#[derive(Default)]
pub(crate) struct SubmissionCounters {
    submissions: ByResult,
    duration: Recorder,
}

impl SubmissionCounters {
    pub(crate) fn add(&self, result: &Result<Timing>) {
        self.submissions.add(result.as_ref().err());
        if let Ok(timing) = result {
            self.duration.record(timing.end_ns.saturating_sub(timing.start_ns));
        }
    }
}

/// When counting began.
struct Since(SystemTime);

impl Default for Since {
    fn default() -> Self {
        Self(SystemTime::now())
    }
}

/// A pipeline, and the counters of its kernel.
type Known = (Weak<dyn Pipeline>, Arc<KernelCounters>);

/// Number of pipelines that a thread finds without a lock.
const RECENT_KERNELS: usize = 16;

thread_local! {
    /// Pipelines that this thread has counted last, each in a place that its address chooses. A pipeline belongs to one device.
    static RECENT: [RefCell<Option<Known>>; RECENT_KERNELS] = const { [const { RefCell::new(None) }; RECENT_KERNELS] };
}

/// Whether a command is a launch of this kernel.
fn is_launch_of(command: &Command, pipeline: &Arc<dyn Pipeline>) -> bool {
    matches!(command, Command::Dispatch(dispatch) if Arc::ptr_eq(&dispatch.pipeline, pipeline))
}

/// Counters of the kernels of one name.
#[derive(Default)]
struct KernelCounters {
    launches: AtomicU64,
    duration: Recorder,
}

/// Counts by result.
#[derive(Default)]
struct ByResult([AtomicU64; RESULTS.len()]);

/// Names of results: success, and the classes of errors.
const RESULTS: [&str; 9] = [
    "ok",
    "transient",
    "out_of_memory",
    "device_lost",
    "kernel_fault",
    "refused",
    "cancelled",
    "earlier_work",
    "wrong_call",
];

/// Classes of failures of the device or its kernels, which are no consequences of others.
const FAILED: [FaultClass; 4] =
    [FaultClass::Transient, FaultClass::OutOfMemory, FaultClass::DeviceLost, FaultClass::KernelFault];

/// Names of actions of recovery.
const ACTIONS: [(&str, Action); 6] = [
    ("give_up", Action::GiveUp),
    ("retry", Action::Retry),
    ("trim", Action::Trim),
    ("reset", Action::Reset),
    ("rerun", Action::Rerun),
    ("refuse", Action::Refuse),
];

impl ByResult {
    fn add(&self, error: Option<&Error>) {
        let result = error.map_or("ok", |error| FaultClass::of(error).name());
        let at = RESULTS.iter().position(|name| *name == result).unwrap_or(RESULTS.len() - 1);
        self.0[at].fetch_add(1, Ordering::Relaxed);
    }

    fn of(&self, result: &str) -> u64 {
        RESULTS.iter().zip(&self.0).find(|(name, _)| **name == result).map_or(0, |(_, count)| load(count))
    }

    /// The results that have occurred, and `ok`.
    fn points(&self) -> Vec<MetricPoint> {
        let counts = RESULTS.iter().zip(&self.0).map(|(name, count)| (*name, load(count)));
        let counts = counts.filter(|(name, count)| *count > 0 || *name == "ok");
        counts.map(|(name, count)| MetricPoint::of(&[name], MetricValue::Count(count))).collect()
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counters {
    /// Counts a submission that has ended, and was submitted at this time of the device's clock.
    pub(crate) fn submission(&self, commands: &[Command], submitted_ns: u64, result: &Result<Timing>) {
        self.submissions.add(result.as_ref().err());
        let Ok(timing) = result else { return };
        let ns = timing.end_ns.saturating_sub(timing.start_ns);
        self.submission_duration.record(ns);
        self.queue_time.record(timing.start_ns.saturating_sub(submitted_ns));
        self.sampling.ended(timing, || self.submissions.of("ok"));
        if let [Command::Dispatch(dispatch)] = commands {
            self.kernel(&dispatch.pipeline, |kernel| {
                kernel.launches.fetch_add(1, Ordering::Relaxed);
                kernel.duration.record(ns);
            });
            return;
        }
        let mut commands = commands.iter().peekable();
        while let Some(command) = commands.next() {
            match command {
                Command::Dispatch(dispatch) => {
                    // Launches of one kernel often follow one another.
                    let mut count = 1;
                    while commands.next_if(|next| is_launch_of(next, &dispatch.pipeline)).is_some() {
                        count += 1;
                    }
                    self.launches(&dispatch.pipeline, count);
                }
                Command::LaunchNested(nested) => self.launches(&nested.root.pipeline, 1),
                Command::Copy { target, .. } => _ = self.copied.fetch_add(target.len, Ordering::Relaxed),
                Command::Fill { target, .. } => _ = self.filled.fetch_add(target.len, Ordering::Relaxed),
                _ => {}
            }
        }
    }

    /// Counts a compilation that took so long.
    pub(crate) fn compilation(&self, error: Option<&Error>, took: Duration) {
        self.compilations.add(error);
        if error.is_none() {
            self.compilation_duration.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Counts a decision about a failure.
    pub(crate) fn decision(&self, action: Action) {
        if let Some(at) = ACTIONS.iter().position(|(_, known)| *known == action) {
            self.decisions[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What alerts are judged by.
    pub(crate) fn sample(&self, breaker: BreakerState, pool: PoolStats, thermal: Option<Thermal>) -> Sample {
        let kernels = self.kernels.all();
        let kernels = kernels.into_iter().map(|(name, kernel)| {
            let (count, ns) = kernel.duration.totals();
            (name, (count, ns))
        });
        Sample {
            succeeded: self.submissions.of("ok"),
            failed: FAILED.iter().map(|class| self.submissions.of(class.name())).sum(),
            kernels: kernels.collect(),
            live: pool.live_bytes,
            refused: pool.refused,
            breaker,
            thermal,
        }
    }

    fn launches(&self, pipeline: &Arc<dyn Pipeline>, count: u64) {
        self.kernel(pipeline, |kernel| _ = kernel.launches.fetch_add(count, Ordering::Relaxed));
    }

    fn kernel(&self, pipeline: &Arc<dyn Pipeline>, count: impl FnOnce(&KernelCounters)) {
        let key = identity(pipeline);
        let mut count = Some(count);
        let mut count_in = |kernel: &KernelCounters| count.take().map_or((), |count| count(kernel));
        let counted = RECENT.try_with(|recent| {
            let slot = &recent[key / 64 % RECENT_KERNELS];
            // A pipeline is kept allocated while it is known, so no other can have its address.
            if let Some((known, kernel)) = &*slot.borrow()
                && std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(pipeline))
            {
                return count_in(kernel);
            }
            let known = self.find(key, pipeline);
            count_in(&known.1);
            slot.replace(Some(known));
        });
        // The thread is ending.
        if counted.is_err() {
            count_in(&self.find(key, pipeline).1);
        }
    }

    /// Creates the counters of a kernel, so that the end of its first launch does not.
    pub(crate) fn prepare(&self, pipeline: &Arc<dyn Pipeline>) {
        self.find(identity(pipeline), pipeline);
    }

    fn find(&self, key: usize, pipeline: &Arc<dyn Pipeline>) -> Known {
        let mut pipelines = self.pipelines.lock();
        if pipelines.len() >= PIPELINES {
            pipelines.retain(|_, (pipeline, _)| pipeline.strong_count() > 0);
        }
        let new = || (Arc::downgrade(pipeline), self.kernels.named(&pipeline.signature().name));
        pipelines.entry(key).or_insert_with(new).clone()
    }

    /// Counters of the streams of a name.
    pub(crate) fn stream(&self, name: &str) -> Arc<SubmissionCounters> {
        self.streams.named(name)
    }

    /// Counters of the graphs of a name.
    pub(crate) fn graph(&self, name: &str) -> Arc<SubmissionCounters> {
        self.graphs.named(name)
    }
}

/// A snapshot of a device's metrics; see [`Device::metrics`].
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Name of the device.
    pub device: String,
    /// When the device was opened, and counting began.
    pub since: SystemTime,
    /// One entry for each of [`METRICS`], in their order.
    pub families: Vec<MetricFamily>,
}

/// The values of a metric.
#[derive(Clone, Debug)]
pub struct MetricFamily {
    /// The metric.
    pub metric: Metric,
    /// Its values.
    pub points: Vec<MetricPoint>,
}

/// A value, with those of the metric's attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricPoint {
    /// One for each of [`Metric::attributes`].
    pub attributes: Vec<String>,
    /// The value.
    pub value: MetricValue,
}

/// The value of a metric.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MetricValue {
    /// Of a counter.
    Count(u64),
    /// Of a gauge.
    Gauge(u64),
    /// Of a counter or gauge of the hardware, in the metric's unit.
    Number(f64),
    /// Of a histogram; of durations, in nanoseconds.
    Histogram(Histogram),
}

impl MetricPoint {
    fn of(attributes: &[&str], value: MetricValue) -> Self {
        Self { attributes: attributes.iter().map(|value| (*value).to_owned()).collect(), value }
    }
}

impl Metrics {
    /// The value of a metric with these attributes, which is absent if nothing was recorded.
    pub fn get(&self, name: &str, attributes: &[&str]) -> Option<&MetricValue> {
        let family = self.families.iter().find(|family| family.metric.name == name)?;
        let point = family.points.iter().find(|point| point.attributes == attributes)?;
        Some(&point.value)
    }

    /// As [`Metrics::get`], the number of a counter or gauge, without its fraction; 0 if it is absent.
    pub fn count(&self, name: &str, attributes: &[&str]) -> u64 {
        match self.get(name, attributes) {
            Some(MetricValue::Count(value) | MetricValue::Gauge(value)) => *value,
            Some(MetricValue::Number(value)) => *value as u64,
            Some(MetricValue::Histogram(histogram)) => histogram.count(),
            None => 0,
        }
    }
}

impl Device {
    /// Notes for a submission that begins, if the trace is on or it is sampled for the metrics.
    pub(crate) fn notes(&self, stream: u64, priority: Priority) -> Option<Notes> {
        let notes = self.trace().notes(Some(stream), priority);
        let sample =
            || self.counters().sampling.take().then(|| self.trace().notes_of_sample(stream, priority));
        notes.or_else(sample)
    }

    /// Adds events of a submission to the trace, or to the metrics if it is sampled for them.
    pub(crate) fn note(&self, notes: Notes, events: impl Iterator<Item = Noted>) {
        match notes.sample() {
            Some(_) => self.counters().sampled(events),
            None => self.trace().add(events),
        }
    }

    /// A snapshot of the device's metrics. Each value is exact; work that ends meanwhile may be in some of them only. Readings of the
    /// hardware are at most 100 ms old; to take new ones takes as long as [`Device::readings`].
    pub fn metrics(&self) -> Metrics {
        let counters = self.counters();
        let one = |value: u64| vec![MetricPoint::of(&[], MetricValue::Count(value))];
        let histogram =
            |recorder: &Recorder| vec![MetricPoint::of(&[], MetricValue::Histogram(recorder.snapshot()))];
        let counts = |counts: &[(&str, u64)]| -> Vec<MetricPoint> {
            counts.iter().map(|(name, count)| MetricPoint::of(&[*name], MetricValue::Count(*count))).collect()
        };
        let kernels = counters.kernels.all();
        let (pool, lists) = (self.pool().stats(), self.command_list_stats());
        let moved = [
            ("device", load(&counters.copied)),
            ("fill", load(&counters.filled)),
            ("to_device", load(&counters.written)),
            ("from_device", load(&counters.read)),
        ];
        let durations = kernels.iter().map(|(name, kernel)| (name, kernel.duration.snapshot()));
        let durations = durations.filter(|(_, histogram)| histogram.count() > 0);
        let decisions =
            ACTIONS.iter().zip(&counters.decisions).map(|((name, _), count)| (*name, load(count)));
        // Without readings their metrics are absent.
        let readings = self.recent_readings().unwrap_or_default();
        let families = METRICS.iter().map(|metric| {
            let points = match *metric {
                catalog::SUBMISSIONS => counters.submissions.points(),
                catalog::SUBMISSION_DURATION => histogram(&counters.submission_duration),
                catalog::QUEUE_TIME => histogram(&counters.queue_time),
                catalog::PENDING => {
                    vec![MetricPoint::of(&[], MetricValue::Gauge(self.state().pending().len() as u64))]
                }
                catalog::LAUNCHES => {
                    let launches =
                        kernels.iter().map(|(name, kernel)| (name.as_str(), load(&kernel.launches)));
                    counts(&launches.collect::<Vec<_>>())
                }
                catalog::KERNEL_DURATION => {
                    let points = durations.clone();
                    points
                        .map(|(name, histogram)| MetricPoint::of(&[name], MetricValue::Histogram(histogram)))
                        .collect()
                }
                catalog::STREAM_SUBMISSIONS => results(&counters.streams, |result, name| vec![result, name]),
                catalog::STREAM_DURATION => times(&counters.streams),
                catalog::GRAPH_SUBMISSIONS => results(&counters.graphs, |result, name| vec![name, result]),
                catalog::GRAPH_DURATION => times(&counters.graphs),
                catalog::HOST_DURATION => counters.sampling.points(),
                catalog::BYTES => counts(&moved),
                catalog::COMPILATIONS => counters.compilations.points(),
                catalog::COMPILATION_DURATION => histogram(&counters.compilation_duration),
                catalog::CACHE => {
                    let lookups = self.driver().cache_lookups();
                    let both = lookups.map(|lookups| [("hit", lookups.hits), ("miss", lookups.misses)]);
                    both.map_or_else(Vec::new, |both| counts(&both))
                }
                catalog::DECISIONS => counts(&decisions.clone().collect::<Vec<_>>()),
                catalog::RESETS => one(self.recovery().resets()),
                catalog::BREAKER => breaker(&self.breaker().state()),
                catalog::MEMORY => memory(&pool),
                catalog::ALLOCATIONS => {
                    counts(&[("hit", pool.hits), ("miss", pool.misses), ("refused", pool.refused)])
                }
                catalog::LISTS => counts(&[("hit", lists.hits), ("miss", lists.misses)]),
                _ => hardware::points(metric, &readings),
            };
            MetricFamily { metric: *metric, points }
        });
        Metrics { device: self.name().to_owned(), since: counters.since.0, families: families.collect() }
    }
}

/// Submissions by name and result.
fn results(
    counters: &ByName<SubmissionCounters>,
    attributes: impl Fn(String, String) -> Vec<String>,
) -> Vec<MetricPoint> {
    let all = counters.all().into_iter();
    let of = |(name, counters): (String, Arc<SubmissionCounters>)| {
        let points = counters.submissions.points().into_iter();
        let named = |point: MetricPoint| {
            let result = point.attributes.into_iter().next().unwrap_or_default();
            MetricPoint { attributes: attributes(result, name.clone()), value: point.value }
        };
        points.map(named).collect::<Vec<_>>()
    };
    all.flat_map(of).collect()
}

/// Durations of submissions by name.
fn times(counters: &ByName<SubmissionCounters>) -> Vec<MetricPoint> {
    let histograms = counters.all().into_iter().map(|(name, counters)| (name, counters.duration.snapshot()));
    let histograms = histograms.filter(|(_, histogram)| histogram.count() > 0);
    histograms.map(|(name, histogram)| MetricPoint::of(&[&name], MetricValue::Histogram(histogram))).collect()
}

fn breaker(now: &BreakerState) -> Vec<MetricPoint> {
    let all = ["closed", "open", "half_open", "terminal"];
    all.map(|state| MetricPoint::of(&[state], MetricValue::Gauge((state == now.name()).into()))).into()
}

fn memory(pool: &PoolStats) -> Vec<MetricPoint> {
    let uses = [
        ("live", pool.live_bytes),
        ("blocks", pool.live_block_bytes),
        ("idle", pool.idle_bytes),
        ("wrapped", pool.wrapped_bytes),
    ];
    uses.map(|(name, bytes)| MetricPoint::of(&[name], MetricValue::Gauge(bytes))).into()
}
