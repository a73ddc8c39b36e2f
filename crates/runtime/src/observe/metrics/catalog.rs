//! The metrics that exist. `docs/metrics.md` has the same table, and a test compares the two.

use elinvar_driver::Quantity;

use super::hardware;

/// What a metric's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows while the program runs.
    Counter,
    /// A number that is valid now.
    Gauge,
    /// A distribution.
    Histogram,
}

/// A metric: names and units follow OpenTelemetry's conventions, <https://opentelemetry.io/docs/specs/semconv/general/metrics/>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name, with dots.
    pub name: &'static str,
    /// Kind.
    pub kind: MetricKind,
    /// Unit, in UCUM's notation.
    pub unit: &'static str,
    /// Attributes of each value, beside `device`.
    pub attributes: &'static [&'static str],
    /// Meaning.
    pub meaning: &'static str,
}

/// All metrics: the runtime's own, then those of the hardware ([`Quantity::ALL`]).
pub const METRICS: &[Metric] = &{
    let mut all = [OWN[0]; OWN.len() + Quantity::ALL.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < OWN.len() { OWN[at] } else { hardware::metric(Quantity::ALL[at - OWN.len()]) };
        at += 1;
    }
    all
};

macro_rules! metrics {
    ($($constant:ident = $name:literal, $kind:ident, $unit:literal, $attributes:expr, $meaning:literal;)*) => {
        $(pub(crate) const $constant: Metric = Metric {
            name: $name, kind: MetricKind::$kind, unit: $unit, attributes: &$attributes, meaning: $meaning,
        };)*

        const OWN: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    SUBMISSIONS = "elinvar.submissions", Counter, "{submission}", ["result"],
        "Submissions that have ended, by result: `ok`, or a class of errors";
    SUBMISSION_DURATION = "elinvar.submission.duration", Histogram, "s", [],
        "Time on the device's clock from begin to end of a submission that succeeded";
    QUEUE_TIME = "elinvar.submission.queue_time", Histogram, "s", [],
        "Time from the call that submits to the begin on the device, of a submission that succeeded";
    PENDING = "elinvar.submissions.pending", Gauge, "{submission}", [],
        "Submissions that have not ended";
    LAUNCHES = "elinvar.kernel.launches", Counter, "{launch}", ["kernel"],
        "Launches of a kernel by the host, in submissions that succeeded, also in command buffers, recordings and graphs";
    KERNEL_DURATION = "elinvar.kernel.duration", Histogram, "s", ["kernel"],
        "Time on the device's clock of a launch: of each that is a submission of its own, and of those in sampled submissions";
    STREAM_SUBMISSIONS = "elinvar.stream.submissions", Counter, "{submission}", ["result", "stream"],
        "Submissions of streams with a name (`Stream::named`) that have ended, by result";
    STREAM_DURATION = "elinvar.stream.duration", Histogram, "s", ["stream"],
        "Time on the device's clock from begin to end of a submission of such a stream that succeeded";
    GRAPH_SUBMISSIONS = "elinvar.graph.submissions", Counter, "{submission}", ["graph", "result"],
        "Submissions of plans with a name (`Plan::set_name`) that have ended, by result; a run of a plan has one or more";
    GRAPH_DURATION = "elinvar.graph.duration", Histogram, "s", ["graph"],
        "Time on the device's clock from begin to end of a submission of such a plan that succeeded";
    HOST_DURATION = "elinvar.host.duration", Histogram, "s", ["phase"],
        "Time on the host's clock of a phase of a sampled submission: of each launch `bind` (arguments), `size`, `record`; of the submission `commit`, `submit` (by the driver), `release`";
    BYTES = "elinvar.transfer.bytes", Counter, "By", ["route"],
        "Bytes that were moved: `device` for copies and `fill` for fills by the device, `to_device` and `from_device` for writes and reads by the host";
    COMPILATIONS = "elinvar.compilations", Counter, "{compilation}", ["result"],
        "Sources that were compiled or loaded from the cache, by result: `ok`, or a class of errors";
    COMPILATION_DURATION = "elinvar.compilation.duration", Histogram, "s", [],
        "Time on the host's clock of a compilation of a source that succeeded, kernels apart";
    CACHE = "elinvar.cache.lookups", Counter, "{lookup}", ["result"],
        "Lookups in the persistent cache of compiled code: `hit`, `miss`; a source and each of its kernels are looked up";
    DECISIONS = "elinvar.recovery.decisions", Counter, "{decision}", ["action"],
        "Decisions about failures on recovering streams, by action";
    RESETS = "elinvar.recovery.resets", Counter, "{reset}", [],
        "Resets of the device";
    BREAKER = "elinvar.breaker.state", Gauge, "1", ["state"],
        "1 for the state in which the circuit breaker is: `closed`, `open`, `half_open`, `terminal`; 0 for the others";
    MEMORY = "elinvar.memory.usage", Gauge, "By", ["use"],
        "Memory of the device's pool: `live` (requested bytes of buffers), `blocks` (their blocks), `idle` (blocks kept for reuse), `wrapped` (imported host memory)";
    ALLOCATIONS = "elinvar.memory.allocations", Counter, "{allocation}", ["result"],
        "Requests to the pool: `hit` (served by an idle block), `miss` (by the driver), `refused`";
    LISTS = "elinvar.command_lists", Counter, "{command_list}", ["result"],
        "Command buffers that took an idle list (`hit`) or a new one (`miss`)";
}
