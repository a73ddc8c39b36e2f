//! A trace as viewers show it: processes with tracks of slices, flows between slices, and counters. The formats encode it.
//!
//! Each device is a process. Each stream has three tracks: `host` (recording of submissions, with a slice for each recorded command),
//! `device` (a slice for each command that the device executed), and `completion` (release of a submission). A command of the device has
//! a flow from the host's slice through the device's to the completion. Slices of a track that overlap without one containing the other
//! are moved to further tracks of the same name with a number.

mod counters;

use std::collections::BTreeMap;

use elinvar::{
    Decision, DeviceSpan, Dim3, Origin, Timeline, TimelineCommand, TimelineSubmission, TracedCommand,
    TracedWork,
};

/// A value of an argument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Count(u64),
    Flag(bool),
}

/// Arguments of an event, by name.
pub(crate) type Args = Vec<(&'static str, Value)>;

/// Part of a flow at a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Begin,
    Middle,
    End,
}

/// A time span on a track.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) name: String,
    pub(crate) category: &'static str,
    /// Numbers of its flows, unique in the file.
    pub(crate) flows: Vec<u64>,
    pub(crate) step: Step,
    pub(crate) has_failed: bool,
    pub(crate) args: Args,
    /// Within it, in order.
    pub(crate) children: Vec<Slice>,
}

/// An event without duration.
#[derive(Debug)]
pub(crate) struct Instant {
    pub(crate) at_ns: u64,
    pub(crate) name: String,
    pub(crate) args: Args,
}

#[derive(Debug)]
pub(crate) struct Track {
    pub(crate) name: String,
    /// In order, without overlaps.
    pub(crate) slices: Vec<Slice>,
    pub(crate) instants: Vec<Instant>,
}

/// Unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Count,
}

#[derive(Debug)]
pub(crate) struct Counter {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    /// Times in order, with the values from then on.
    pub(crate) points: Vec<(u64, u64)>,
}

/// A device.
#[derive(Debug)]
pub(crate) struct Process<'t> {
    pub(crate) name: String,
    pub(crate) timeline: &'t Timeline,
    pub(crate) tracks: Vec<Track>,
    pub(crate) counters: Vec<Counter>,
}

impl<'t> Process<'t> {
    /// The processes of a file.
    pub(crate) fn all(timelines: &'t [Timeline]) -> Vec<Self> {
        let mut flows = 0;
        timelines.iter().map(|timeline| Self::new(timeline, &mut flows)).collect()
    }

    /// `flows` is the number of flows so far.
    fn new(timeline: &'t Timeline, flows: &mut u64) -> Self {
        let mut streams: BTreeMap<u64, Stream> = BTreeMap::new();
        for submission in &timeline.submissions {
            streams.entry(submission.stream).or_default().add(submission, flows);
        }
        let about = Track { name: "trace".into(), slices: Vec::new(), instants: vec![about(timeline)] };
        let decision = |(at_ns, decision): &(u64, Decision)| decided(*at_ns, decision);
        let calls = timeline.decisions.iter().map(decision).collect();
        let calls = Track { name: "host calls".into(), slices: Vec::new(), instants: calls };
        let mut tracks = vec![about];
        tracks.extend(Some(calls).filter(|calls| !calls.instants.is_empty()));
        for (number, Stream { host, device, completion, instants }) in streams {
            let mut add = |part: &str, slices, mut instants| {
                for (lane, slices) in lanes(slices).into_iter().enumerate() {
                    let lane = if lane == 0 { String::new() } else { format!(" ({})", lane + 1) };
                    let name = format!("stream {number}: {part}{lane}");
                    tracks.push(Track { name, slices, instants: std::mem::take(&mut instants) });
                }
            };
            add("host", host, instants);
            add("device", device, Vec::new());
            add("completion", completion, Vec::new());
        }
        let name = format!("{} ({})", timeline.device, timeline.kind.name());
        Self { name, timeline, tracks, counters: counters::of(timeline) }
    }
}

/// The parts of a stream.
#[derive(Default)]
struct Stream {
    host: Vec<Slice>,
    device: Vec<Slice>,
    completion: Vec<Slice>,
    instants: Vec<Instant>,
}

impl Stream {
    fn add(&mut self, submission: &TimelineSubmission, flows: &mut u64) {
        let error = submission.error.as_ref().map(|error| error.to_string());
        let failed = |args: &mut Args| {
            args.extend(error.iter().map(|error| ("error", Value::Text(error.clone()))));
        };
        let instants = submission.refused.iter().map(|(at_ns, error)| Instant {
            at_ns: *at_ns,
            name: "refused".into(),
            args: vec![("error", Value::Text(error.to_string()))],
        });
        self.instants.extend(instants);
        self.instants.extend(submission.decisions.iter().map(|(at_ns, decision)| decided(*at_ns, decision)));

        let first = *flows;
        let (mut own, mut children) = (Vec::new(), Vec::new());
        for command in &submission.commands {
            let flow = (command.command.is_work() && submission.is_submitted).then(|| {
                *flows += 1;
                *flows
            });
            let slice = |args: Args| Slice {
                name: name(&command.command),
                flows: flow.into_iter().collect(),
                ..slice((command.host.begin_ns, command.host.end_ns), "record", args)
            };
            match &command.replayed {
                // Replayed commands are recorded by one call.
                Some(_) => own.extend(flow),
                None => children.push(slice(command_args(command))),
            }
            if let (Some(span), Some(flow)) = (command.device, flow) {
                self.device.push(device_slice(submission, command, span, flow));
            }
        }
        let all: Vec<u64> = (first + 1..=*flows).collect();
        if let Some(span) = submission.device
            && !all.is_empty()
            && !submission.commands.iter().any(|command| command.device.is_some())
        {
            let mut args = submission_args(submission);
            args.extend(measured(span));
            failed(&mut args);
            let span = slice((span.begin_ns, span.end_ns), "device", args);
            let (name, has_failed) = (summary(submission), error.is_some());
            self.device.push(Slice { name, flows: all.clone(), step: Step::Middle, has_failed, ..span });
        }
        let mut args = submission_args(submission);
        failed(&mut args);
        let has_failed = error.is_some();
        if let Some(span) = submission.completed {
            let span = slice((span.begin_ns, span.end_ns), "complete", args.clone());
            let name = format!("complete {}", summary(submission));
            self.completion.push(Slice { name, flows: all, step: Step::End, has_failed, ..span });
        }
        let span = slice((submission.recorded.begin_ns, submission.recorded.end_ns), "submit", args);
        self.host.push(Slice { name: summary(submission), flows: own, has_failed, children, ..span });
    }
}

fn slice((begin_ns, end_ns): (u64, u64), category: &'static str, args: Args) -> Slice {
    Slice {
        begin_ns,
        end_ns: end_ns.max(begin_ns),
        name: String::new(),
        category,
        flows: Vec::new(),
        step: Step::Begin,
        has_failed: false,
        args,
        children: Vec::new(),
    }
}

fn device_slice(
    submission: &TimelineSubmission,
    command: &TimelineCommand,
    span: DeviceSpan,
    flow: u64,
) -> Slice {
    let mut args = submission_args(submission);
    args.extend(command_args(command));
    args.extend(measured(span));
    args.extend(command.error.iter().map(|error| ("error", Value::Text(error.to_string()))));
    Slice {
        name: name(&command.command),
        flows: vec![flow],
        step: Step::Middle,
        has_failed: command.error.is_some(),
        ..slice((span.begin_ns, span.end_ns), "device", args)
    }
}

/// Name of the kernel or operation, and the label.
fn name(command: &TracedCommand) -> String {
    match &command.label {
        Some(label) => format!("{}: {}", command.name(), label.name),
        None => command.name().to_owned(),
    }
}

/// Name of a submission: that of its only command, or their number and the first.
fn summary(submission: &TimelineSubmission) -> String {
    let mut works = submission.commands.iter().filter(|command| command.command.is_work());
    let left_out = submission.command_count.saturating_sub(submission.commands.len());
    match (works.next(), works.count() + left_out) {
        (Some(only), 0) => name(&only.command),
        (Some(first), others) => format!("{} and {others} more", name(&first.command)),
        (None, _) => submission.commands.first().map_or_else(|| "empty".into(), |first| name(&first.command)),
    }
}

fn size(size: Dim3) -> Value {
    let [x, y, z] = size.to_array();
    Value::Text(format!("{x}×{y}×{z}"))
}

fn submission_args(submission: &TimelineSubmission) -> Args {
    vec![("submission", Value::Count(submission.number)), ("stream", Value::Count(submission.stream))]
}

fn measured(span: DeviceSpan) -> Option<(&'static str, Value)> {
    (!span.is_measured).then_some(("measured", Value::Flag(false)))
}

fn command_args(command: &TimelineCommand) -> Args {
    let mut args = Args::new();
    match &command.command.work {
        TracedWork::Launch { threads, group, .. } => {
            if let Some(threads) = threads {
                let groups = u64::try_from(threads.div_ceil(*group).volume()).unwrap_or(u64::MAX);
                args.extend([("threads", size(*threads)), ("threadgroups", Value::Count(groups))]);
            }
            args.push(("threadgroup", size(*group)));
        }
        TracedWork::Copy { bytes } | TracedWork::Fill { bytes } => args.push(("bytes", Value::Count(*bytes))),
        _ => {}
    }
    args.extend(command.command.label.iter().map(|label| ("label", Value::Count(label.id))));
    if let Some((replayed, at)) = &command.replayed {
        match &replayed.origin {
            Origin::Recording { number } => args.push(("recording", Value::Count(*number))),
            Origin::Graph { number, .. } => args.push(("graph", Value::Count(*number))),
            _ => {}
        }
        args.push(("position", Value::Count(*at as u64)));
    }
    if let Some(node) = command.node() {
        args.push(("node", Value::Count(node.index as u64)));
        args.push(("node name", Value::Text(node.name.clone())));
    }
    args
}

fn decided(at_ns: u64, decision: &Decision) -> Instant {
    let name = format!("recovery: {}", decision.action.name());
    Instant { at_ns, name, args: vec![("reason", Value::Text(decision.reason.clone()))] }
}

/// What holds for the whole trace of a device.
fn about(timeline: &Timeline) -> Instant {
    let at_ns = timeline.clock_samples.first().map_or(0, |sample| sample.host_ns);
    let args = vec![
        ("device", Value::Text(timeline.device.clone())),
        ("kind", Value::Text(timeline.kind.name().into())),
        ("compute units", Value::Count(timeline.compute_units.into())),
        ("error of device times, ns", Value::Count(timeline.clock_error_ns)),
        ("lost events", Value::Count(timeline.lost)),
    ];
    Instant { at_ns, name: "trace".into(), args }
}

/// Distributes slices to as few tracks as possible, on each of which none begins before the previous one has ended. At least one.
fn lanes(mut slices: Vec<Slice>) -> Vec<Vec<Slice>> {
    slices.sort_by_key(|slice| (slice.begin_ns, slice.end_ns));
    let mut lanes: Vec<Vec<Slice>> = vec![Vec::new()];
    for slice in slices {
        let is_free = |lane: &&mut Vec<Slice>| lane.last().is_none_or(|last| last.end_ns <= slice.begin_ns);
        match lanes.iter_mut().find(is_free) {
            Some(lane) => lane.push(slice),
            None => lanes.push(vec![slice]),
        }
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_slices_are_on_different_tracks() {
        let spans = [(5, 9), (0, 4), (2, 6), (4, 5), (6, 6), (3, 10), (9, 12)];
        let lanes = lanes(spans.map(|span| slice(span, "test", Args::new())).into());
        let lanes: Vec<Vec<(u64, u64)>> = lanes
            .iter()
            .map(|lane| lane.iter().map(|slice| (slice.begin_ns, slice.end_ns)).collect())
            .collect();
        assert_eq!(lanes, [vec![(0, 4), (4, 5), (5, 9), (9, 12)], vec![(2, 6), (6, 6)], vec![(3, 10)]]);
        assert_eq!(super::lanes(Vec::new()).len(), 1);
    }
}
