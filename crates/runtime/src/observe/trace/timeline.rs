//! [`Timeline`]: the submissions of a trace with times of host and device on one clock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use elinvar_driver::{Device, DeviceKind, Error, Label, Priority, Timing};

use super::clock::{ClockSample, HOST};
use super::noted::What;
use super::{Launch, Noted, Origin, Replayed, Ring, TraceStep, TracedCommand, TracedWork};
use crate::recovery::Decision;

/// The submissions of a [`Trace`](crate::Trace). All times are in nanoseconds on the host's clock, which is common to the timelines of a
/// process; those of the device are converted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Timeline {
    /// Name of the device.
    pub device: String,
    /// Kind of the device.
    pub kind: DeviceKind,
    /// Number of the device's compute units ([`Limits::compute_units`](crate::Limits::compute_units)).
    pub compute_units: u32,
    /// The submissions, in the order in which their recording began. One of which an event was dropped because the trace was full is not
    /// among them.
    pub submissions: Vec<TimelineSubmission>,
    /// Memory of the device's pool at submissions.
    pub memory: Vec<MemorySample>,
    /// Decisions about failures of host calls ([`Device::recover`](crate::Device::recover)), with their times.
    pub decisions: Vec<(u64, Decision)>,
    /// Comparisons of the clocks.
    pub clock_samples: Vec<ClockSample>,
    /// Bound of the error of device times: half of the longest comparison, the largest change of the clocks' offset between two
    /// comparisons, and [`Device::timing_error_ns`](elinvar_driver::Device::timing_error_ns).
    pub clock_error_ns: u64,
    /// The system's time, in nanoseconds since the Unix epoch, at time 0.
    pub unix_ns: u64,
    /// Number of events that were dropped because the trace was full.
    pub lost: u64,
}

/// A submission.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TimelineSubmission {
    /// Number of the submission, unique in the trace of the device.
    pub number: u64,
    /// Number of its stream, unique in the process.
    pub stream: u64,
    /// Priority of its stream.
    pub priority: Priority,
    /// From the begin of its recording until it was passed to the driver, or rejected.
    pub recorded: HostSpan,
    /// Whether it was passed to the driver.
    pub is_submitted: bool,
    /// From its end until its memory was released; `None` while it is pending.
    pub completed: Option<HostSpan>,
    /// Execution on the device; `None` while it is pending, and if nothing of it ran.
    pub device: Option<DeviceSpan>,
    /// The error in which it ended, or with which it was rejected.
    pub error: Option<Box<Error>>,
    /// Rejected calls of its command buffer, with their times.
    pub refused: Vec<(u64, Box<Error>)>,
    /// Decisions about its failures, with their times.
    pub decisions: Vec<(u64, Decision)>,
    /// Its commands, in order; with [`TraceDetail::Submissions`](crate::TraceDetail::Submissions) only the first of those that the
    /// device executes.
    pub commands: Vec<TimelineCommand>,
    /// Number of its commands.
    pub command_count: usize,
}

/// A command of a submission.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TimelineCommand {
    /// What it does.
    pub command: TracedCommand,
    /// Validation and recording; that of the replay for a replayed command.
    pub host: HostSpan,
    /// The recording or graph that it is of, and its position there.
    pub replayed: Option<(Arc<Replayed>, usize)>,
    /// Execution on the device; `None` if the command is not work of the device, did not run, or was not measured by itself.
    pub device: Option<DeviceSpan>,
    /// The error, if it is the one that failed. A failed submission with several commands whose times were not measured does not tell.
    pub error: Option<Box<Error>>,
}

/// A time span of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSpan {
    /// Begin in nanoseconds.
    pub begin_ns: u64,
    /// End in nanoseconds.
    pub end_ns: u64,
}

/// A time span of the device on the host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSpan {
    /// Begin in nanoseconds.
    pub begin_ns: u64,
    /// End in nanoseconds.
    pub end_ns: u64,
    /// Whether the device has measured it, with an error of at most [`Timeline::clock_error_ns`]. Otherwise, since the submission failed,
    /// the execution is within the span, which is bounded by earlier work of the stream, and by the submission's begin and end on the host.
    pub is_measured: bool,
}

/// Memory of the device's pool at a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySample {
    /// Time in nanoseconds.
    pub at_ns: u64,
    /// Requested bytes of live buffers.
    pub live_bytes: u64,
    /// Bytes of idle blocks.
    pub idle_bytes: u64,
}

impl TimelineCommand {
    /// Its node, if it is a command of a graph.
    pub fn node(&self) -> Option<&super::GraphNode> {
        let (replayed, at) = self.replayed.as_ref()?;
        match &replayed.origin {
            Origin::Graph { nodes, .. } => nodes.get(*at),
            Origin::Recording { .. } => None,
        }
    }
}

impl Timeline {
    pub(super) fn new(driver: &dyn Device, ring: &Ring) -> Self {
        let mut by_submission: BTreeMap<u64, Vec<&Noted>> = BTreeMap::new();
        for noted in &ring.events {
            by_submission.entry(noted.notes.submission).or_default().push(noted);
        }
        let (mut submissions, mut decisions, mut memory) = (Vec::new(), Vec::new(), Vec::new());
        for events in by_submission.values() {
            match Reader::read(events) {
                Some(read) => submissions.push(read),
                None => decisions.extend(events.iter().filter_map(|noted| noted.decision())),
            }
        }
        memory.extend(ring.events.iter().filter_map(Noted::memory));
        memory.sort_by_key(|sample| sample.at_ns);
        decisions.sort_by_key(|(at, _)| *at);
        let mut by_commit: Vec<usize> = (0..submissions.len()).collect();
        by_commit.sort_by_key(|at| submissions[*at].submission.recorded.end_ns);
        let mut ends: HashMap<u64, u64> = HashMap::new();
        for at in by_commit {
            let read = &mut submissions[at];
            let end = ends.entry(read.submission.stream).or_default();
            read.place(|ns| ring.clocks.to_host(ns), *end);
            *end = (*end).max(read.submission.device.map_or(0, |span| span.end_ns));
        }
        let caps = driver.caps();
        Self {
            device: caps.name.clone(),
            kind: caps.kind,
            compute_units: caps.limits.compute_units,
            submissions: submissions.into_iter().map(|read| read.submission).collect(),
            memory,
            decisions,
            clock_samples: ring.clocks.samples().to_vec(),
            clock_error_ns: ring.clocks.error_ns().saturating_add(driver.timing_error_ns()),
            unix_ns: HOST.get().base_unix_ns(),
            lost: ring.lost,
        }
    }
}

impl Noted {
    fn decision(&self) -> Option<(u64, Decision)> {
        match &self.what {
            What::Step(TraceStep::Recovery(decision)) => Some((self.ns(), (**decision).clone())),
            _ => None,
        }
    }

    fn memory(&self) -> Option<MemorySample> {
        match self.what {
            What::Commit { memory: [live_bytes, idle_bytes], .. } => {
                Some(MemorySample { at_ns: self.last_ns(), live_bytes, idle_bytes })
            }
            _ => None,
        }
    }
}

/// A submission that is being read from its events.
struct Reader<'e> {
    submission: TimelineSubmission,
    /// Time of the last event.
    last_ns: u64,
    timing: Option<Timing>,
    /// Begin and end of each command that is work, on the device's clock, if they were measured.
    times: Option<&'e super::LaunchTimes>,
}

impl<'e> Reader<'e> {
    /// Reads the events of a submission; `None` if the first ones are missing.
    fn read(events: &[&'e Noted]) -> Option<Self> {
        let first = events.first()?;
        let (true, Some(stream)) =
            (matches!(first.what, What::Step(TraceStep::Acquire)), first.notes.stream())
        else {
            return None;
        };
        let begin_ns = first.ns();
        let submission = TimelineSubmission {
            number: first.notes.submission,
            stream,
            priority: first.notes.priority,
            recorded: HostSpan { begin_ns, end_ns: begin_ns },
            is_submitted: false,
            completed: None,
            device: None,
            error: None,
            refused: Vec::new(),
            decisions: Vec::new(),
            commands: Vec::new(),
            command_count: 0,
        };
        let mut read = Self { submission, last_ns: begin_ns, timing: None, times: None };
        events.iter().for_each(|noted| read.read_one(noted));
        Some(read)
    }

    fn read_one(&mut self, noted: &'e Noted) {
        let (begin_ns, at) = (noted.ns(), noted.last_ns());
        let submission = &mut self.submission;
        if submission.completed.is_none() && !submission.is_submitted {
            submission.recorded.end_ns = at;
        }
        match &noted.what {
            What::Step(step) => self.step(step, at),
            What::Launch(Launch { kernel, label, threads, group, bytes, arguments, .. }, _) => {
                let (kernel, threads, group, bytes) = (kernel.clone(), *threads, *group, *bytes);
                let arguments = arguments.clone();
                let work = TracedWork::Launch { kernel, threads, group, bytes, arguments };
                self.push(work, label.clone(), HostSpan { begin_ns, end_ns: at });
            }
            What::Commit { commands, times, .. } => {
                (submission.is_submitted, submission.error) = (true, None);
                submission.command_count = *commands as usize;
                self.times = times.as_deref();
            }
            What::Ended(result, _) => {
                submission.completed = Some(HostSpan { begin_ns, end_ns: at });
                (self.timing, submission.error) = match result {
                    Ok(timing) => (Some(*timing), None),
                    Err(error) => (None, Some(error.clone())),
                };
            }
        }
        self.last_ns = at;
    }

    fn step(&mut self, step: &TraceStep, at: u64) {
        let submission = &mut self.submission;
        match step {
            TraceStep::LaunchNested { kernel, label } => {
                self.push_at(TracedWork::LaunchNested { kernel: kernel.clone() }, label.clone(), at);
            }
            TraceStep::ExecuteCommands { label } => {
                self.push_at(TracedWork::ExecuteCommands, label.clone(), at)
            }
            TraceStep::Copy { bytes } => self.push_at(TracedWork::Copy { bytes: *bytes }, None, at),
            TraceStep::Fill { bytes } => self.push_at(TracedWork::Fill { bytes: *bytes }, None, at),
            TraceStep::Primitive(kind) => self.push_at(TracedWork::Primitive(*kind), None, at),
            TraceStep::Signal => self.push_at(TracedWork::Signal, None, at),
            TraceStep::Wait => self.push_at(TracedWork::Wait, None, at),
            TraceStep::Timestamp => self.push_at(TracedWork::Timestamp, None, at),
            TraceStep::Replay(replayed) => self.replay(replayed, at),
            TraceStep::Refused(error) => {
                submission.refused.push((at, error.clone()));
                // Behind the commit, it is the driver's.
                (submission.is_submitted, submission.error) = (false, Some(error.clone()));
            }
            TraceStep::Recovery(decision) => submission.decisions.push((at, (**decision).clone())),
            TraceStep::End { commands } => submission.command_count = *commands,
            // Read together with others.
            TraceStep::Acquire
            | TraceStep::Encode { .. }
            | TraceStep::Bind { .. }
            | TraceStep::Size { .. }
            | TraceStep::Dispatch
            | TraceStep::Commit { .. }
            | TraceStep::Complete(_)
            | TraceStep::Release => {}
        }
    }

    fn push(&mut self, work: TracedWork, label: Option<Arc<Label>>, host: HostSpan) {
        let command = TracedCommand { work, label };
        self.submission.commands.push(TimelineCommand {
            command,
            host,
            replayed: None,
            device: None,
            error: None,
        });
    }

    fn push_at(&mut self, work: TracedWork, label: Option<Arc<Label>>, end_ns: u64) {
        self.push(work, label, HostSpan { begin_ns: self.last_ns, end_ns });
    }

    fn replay(&mut self, replayed: &Arc<Replayed>, end_ns: u64) {
        let host = HostSpan { begin_ns: self.last_ns, end_ns };
        let replay = |(at, command): (usize, &TracedCommand)| TimelineCommand {
            command: command.clone(),
            host,
            replayed: Some((replayed.clone(), at)),
            device: None,
            error: None,
        };
        self.submission.commands.extend(replayed.commands.iter().enumerate().map(replay));
    }

    /// Sets the times of the device. Earlier work of the stream ended at `earlier_ns`.
    fn place(&mut self, to_host: impl Fn(u64) -> u64, earlier_ns: u64) {
        let submission = &mut self.submission;
        let has_all = submission.commands.len() == submission.command_count;
        let mut works: Vec<&mut TimelineCommand> =
            submission.commands.iter_mut().filter(|command| command.command.is_work()).collect();
        let times = match self.times {
            Some(times) => times.read(self.timing),
            None if works.len() == 1 && has_all => {
                vec![[self.timing.map(|t| t.start_ns), self.timing.map(|t| t.end_ns)]]
            }
            None => Vec::new(),
        };
        if let Some(Timing { start_ns, end_ns }) = self.timing {
            let span =
                |begin, end| DeviceSpan { begin_ns: to_host(begin), end_ns: to_host(end), is_measured: true };
            submission.device = Some(span(start_ns, end_ns));
            for (command, [begin, end]) in works.iter_mut().zip(times) {
                command.device = begin.zip(end).map(|(begin, end)| span(begin, end.max(begin)));
            }
            return;
        }
        let (Some(completed), Some(error)) = (submission.completed, &submission.error) else { return };
        if !submission.is_submitted || works.is_empty() || never_ran(error) {
            return;
        }
        let first_ns = submission.recorded.end_ns.max(earlier_ns);
        let mut last_ns = first_ns;
        for (command, [begin, end]) in works.iter_mut().zip(&times) {
            let begin_ns = begin.map_or(last_ns, &to_host);
            let end_ns = end.map_or(completed.begin_ns, &to_host).max(begin_ns);
            command.device =
                Some(DeviceSpan { begin_ns, end_ns, is_measured: begin.is_some() && end.is_some() });
            last_ns = end_ns;
            if end.is_none() {
                command.error = Some(error.clone());
                break;
            }
        }
        let end_ns = if times.is_empty() { completed.begin_ns.max(first_ns) } else { last_ns };
        submission.device = Some(DeviceSpan { begin_ns: first_ns, end_ns, is_measured: false });
    }
}

/// Whether a submission that ended in this error was not executed.
fn never_ran(error: &Error) -> bool {
    matches!(error, Error::Poisoned(_) | Error::Cancelled)
}
