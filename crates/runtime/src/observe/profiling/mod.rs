//! What devices did, as lines of JSON: [`ProfileLine`]s of timelines and metrics. The variable `ELINVAR_PROFILE` has them written ([`file`]), and
//! `elinvar-telemetry` makes a report of them.
//!
//! A line stands by itself, so that a file which ends anywhere can be read. Times are those of [`Timeline`], in nanoseconds.

pub(crate) mod file;
mod work;

use elinvar_driver::PerProcess;
use serde::{Deserialize, Serialize};

pub use work::ProfileWork;
use work::Works;
pub(crate) use work::analysis;

use crate::{
    DeviceSpan, Dim3, HostSpan, MetricValue, Metrics, Timeline, TimelineCommand, TimelineSubmission,
    TracedWork,
};

/// A line: an event of a device of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileLine {
    /// Number of the process.
    pub process: u32,
    /// Number of the device within the process.
    pub device: usize,
    /// The event.
    #[serde(flatten)]
    pub event: ProfileEvent,
}

/// An event of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProfileEvent {
    /// Properties of the device; later lines replace earlier ones.
    About {
        /// Name of the device.
        name: String,
        /// Name of its kind, such as `cuda`.
        kind: String,
        /// Name of the program.
        program: String,
        /// Version of Elinvar.
        version: String,
        /// Number of compute units.
        compute_units: u32,
        /// The system's time at time 0, in nanoseconds since the Unix epoch.
        unix_ns: u64,
        /// Bound of the error of the device's times.
        clock_error_ns: u64,
        /// Number of events that were dropped.
        lost: u64,
    },
    /// A submission.
    Submission(ProfileSubmission),
    /// Memory of the pool at `at_ns`.
    Memory {
        /// Time.
        at_ns: u64,
        /// Requested bytes of live buffers.
        live_bytes: u64,
        /// Bytes of idle blocks.
        idle_bytes: u64,
    },
    /// The roofs of the device, if they were measured.
    Roofs(ProfileRoofs),
    /// Values of the device's metrics; later lines replace earlier ones.
    Metrics(Vec<ProfileMetric>),
}

/// A submission that has ended, or was rejected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileSubmission {
    /// Its number, unique in the process and device.
    pub number: u64,
    /// Number of its stream.
    pub stream: u64,
    /// Begin and end of its recording on the host.
    pub recorded_ns: [u64; 2],
    /// Begin and end of its release on the host.
    pub completed_ns: Option<[u64; 2]>,
    /// Execution on the device.
    pub executed: Option<ProfileSpan>,
    /// Number of its commands.
    pub command_count: usize,
    /// Its commands, or the first of them.
    pub commands: Vec<ProfileCommand>,
    /// The error in which it ended.
    pub error: Option<String>,
    /// Times and texts of rejected calls and of recovery's decisions.
    pub notes: Vec<(u64, String)>,
}

/// Execution on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileSpan {
    /// Begin.
    pub begin_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Whether the device has measured it; otherwise the execution is within the span.
    pub is_measured: bool,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileCommand {
    /// Name of the kernel or operation.
    pub name: String,
    /// Whether it is a launch of a kernel.
    pub is_launch: bool,
    /// Whether the device executes it.
    pub is_work: bool,
    /// Label of the launch.
    pub label: Option<String>,
    /// Size of the grid in threads.
    pub threads: Option<[u32; 3]>,
    /// Size of a threadgroup in threads.
    pub group: Option<[u32; 3]>,
    /// Bytes that a copy or fill moves, or of the memory that a launch binds.
    pub bytes: Option<u64>,
    /// What a launch computes and touches, where its kernel's code tells; with [`TraceDetail::Arguments`](crate::TraceDetail::Arguments).
    #[serde(default)]
    pub work: Option<ProfileWork>,
    /// The recording or graph that it is of, with the node.
    pub origin: Option<String>,
    /// Begin and end of its recording on the host.
    pub host_ns: [u64; 2],
    /// Execution on the device.
    pub executed: Option<ProfileSpan>,
    /// The error, if it is the command that failed.
    pub error: Option<String>,
}

/// The highest rates of a device that were measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileRoofs {
    /// Floating-point operations of single precision in a second.
    pub flops: f64,
    /// Bytes that a copy reads and writes in a second.
    pub bandwidth: f64,
}

/// A value of a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileMetric {
    /// Name of the metric.
    pub name: String,
    /// Its attributes.
    pub attributes: Vec<String>,
    /// The value; of a histogram the number of values.
    pub value: f64,
    /// Of a histogram the sum, the median and the 99th percentile, in nanoseconds.
    pub distribution: Option<[u64; 3]>,
}

impl ProfileLine {
    /// The lines of a timeline and the metrics of a device of this process.
    pub fn of(device: usize, timeline: &Timeline, metrics: &Metrics) -> Vec<Self> {
        let mut events = vec![about(timeline)];
        events.extend(timeline.submissions.iter().map(|it| ProfileEvent::Submission(submission(it))));
        events.extend(timeline.memory.iter().map(|sample| ProfileEvent::Memory {
            at_ns: sample.at_ns,
            live_bytes: sample.live_bytes,
            idle_bytes: sample.idle_bytes,
        }));
        events.push(ProfileEvent::Metrics(values(metrics)));
        let process = std::process::id();
        events.into_iter().map(|event| Self { process, device, event }).collect()
    }
}

fn about(timeline: &Timeline) -> ProfileEvent {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_name());
    ProfileEvent::About {
        name: timeline.device.clone(),
        kind: timeline.kind.name().into(),
        program: program.map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        version: env!("CARGO_PKG_VERSION").into(),
        compute_units: timeline.compute_units,
        unix_ns: timeline.unix_ns,
        clock_error_ns: timeline.clock_error_ns,
        lost: timeline.lost,
    }
}

fn submission(submission: &TimelineSubmission) -> ProfileSubmission {
    let refused = submission.refused.iter().map(|(at, error)| (*at, format!("rejected: {error}")));
    let decisions = submission.decisions.iter();
    let decisions = decisions
        .map(|(at, decision)| (*at, format!("recovery: {}, {}", decision.action.name(), decision.reason)));
    ProfileSubmission {
        number: submission.number,
        stream: submission.stream,
        recorded_ns: host(submission.recorded),
        completed_ns: submission.completed.map(host),
        executed: submission.device.map(span),
        command_count: submission.command_count,
        commands: submission.commands.iter().map(command).collect(),
        error: submission.error.as_ref().map(|error| error.to_string()),
        notes: refused.chain(decisions).collect(),
    }
}

fn command(command: &TimelineCommand) -> ProfileCommand {
    static WORKS: PerProcess<Works> = PerProcess::new(Works::default);
    let size = |size: Dim3| size.to_array();
    let mut work = None;
    let (threads, group, bytes) = match &command.command.work {
        TracedWork::Launch { kernel, threads, group, bytes, arguments } => {
            if let (Some(threads), Some(arguments)) = (threads, arguments) {
                work = WORKS.get().of(kernel, (*threads, *group), arguments);
            }
            (threads.map(size), Some(size(*group)), Some(*bytes))
        }
        TracedWork::Copy { bytes } | TracedWork::Fill { bytes } => (None, None, Some(*bytes)),
        _ => (None, None, None),
    };
    let origin = command.replayed.as_ref().map(|(replayed, _)| match command.node() {
        Some(node) => format!("{}, node {} `{}`", replayed.origin, node.index, node.name),
        None => replayed.origin.to_string(),
    });
    ProfileCommand {
        name: command.command.name().into(),
        is_launch: matches!(
            command.command.work,
            TracedWork::Launch { .. } | TracedWork::LaunchNested { .. }
        ),
        is_work: command.command.is_work(),
        label: command.command.label.as_ref().map(|label| label.to_string()),
        threads,
        group,
        bytes,
        work,
        origin,
        host_ns: host(command.host),
        executed: command.device.map(span),
        error: command.error.as_ref().map(|error| error.to_string()),
    }
}

fn host(span: HostSpan) -> [u64; 2] {
    [span.begin_ns, span.end_ns]
}

fn span(DeviceSpan { begin_ns, end_ns, is_measured }: DeviceSpan) -> ProfileSpan {
    ProfileSpan { begin_ns, end_ns, is_measured }
}

fn values(metrics: &Metrics) -> Vec<ProfileMetric> {
    let points = metrics
        .families
        .iter()
        .flat_map(|family| family.points.iter().map(move |point| (family.metric.name, point)));
    let value = |(name, point): (&str, &crate::MetricPoint)| {
        let (value, distribution) = match &point.value {
            MetricValue::Count(value) | MetricValue::Gauge(value) => (*value as f64, None),
            MetricValue::Number(value) => (*value, None),
            MetricValue::Histogram(histogram) => {
                let quantile = |at| histogram.quantile(at).unwrap_or(0);
                let distribution = [histogram.sum, quantile(0.5), quantile(0.99)];
                (histogram.count() as f64, Some(distribution))
            }
        };
        ProfileMetric { name: name.into(), attributes: point.attributes.clone(), value, distribution }
    };
    points.map(value).collect()
}
