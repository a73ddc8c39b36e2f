//! [`Trace`]: the steps of a device's submissions, with times.
//!
//! Off by default. While it is on, a command buffer records its steps in its own list, which is appended to the device's trace
//! when it is passed to the driver, and again when it has ended. The trace keeps the most recent events.
//!
//! `noted` is an event as recorded, `clock` compares the host's clock with the device's, `launch_times` has the device measure each launch of a submission, `replayed`
//! describes the commands of recordings and graphs, and `timeline` puts all of it on one clock.

mod clock;
mod launch_times;
mod noted;
mod replayed;
mod timeline;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Dim3, Error, Label, Pipeline, PrimitiveKind, Priority, Timing};

use crate::recovery::Decision;

pub use clock::ClockSample;
use clock::{Clocks, HOST};
pub(crate) use launch_times::{LaunchTimes, Layout};
use noted::What;
pub(crate) use noted::{Launch, Noted, Notes};
pub use replayed::InlineArguments;
pub use replayed::{GraphNode, Origin, Replayed, TracedCommand, TracedWork};
pub(crate) use replayed::{bound_bytes, inline_arguments};
pub use timeline::{DeviceSpan, HostSpan, MemorySample, Timeline, TimelineCommand, TimelineSubmission};

/// A step of a submission.
#[derive(Clone, Debug)]
pub struct TraceEvent {
    /// Time since the trace was started.
    pub time: Duration,
    /// Number of the submission, unique in the process.
    pub submission: u64,
    /// Number of its stream; `None` for a host call.
    pub stream: Option<u64>,
    /// Priority of its stream.
    pub priority: Priority,
    /// The step.
    pub step: TraceStep,
}

/// A step of a submission. A launch has the steps `Encode`, `Bind`, `Size` and `Dispatch`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TraceStep {
    /// A command list was taken from the pool.
    Acquire,
    /// The recording of a launch began.
    Encode {
        /// The kernel.
        kernel: Arc<dyn Pipeline>,
        /// Label of the launch.
        label: Option<Arc<Label>>,
    },
    /// Its arguments were validated and bound.
    Bind {
        /// Number of arguments.
        arguments: usize,
    },
    /// Its size was validated or chosen.
    Size {
        /// Number of threads of the grid; `None` for an indirect launch.
        threads: Option<Dim3>,
        /// Number of threads of a threadgroup.
        group: Dim3,
    },
    /// It was recorded.
    Dispatch,
    /// An execution of an indirect command buffer's commands was recorded.
    ExecuteCommands {
        /// Label of the execution.
        label: Option<Arc<Label>>,
    },
    /// A launch of a kernel that launches kernels was recorded.
    LaunchNested {
        /// The kernel.
        kernel: Arc<dyn Pipeline>,
        /// Label of the launch.
        label: Option<Arc<Label>>,
    },
    /// The commands of a recording or of a part of a graph were added.
    Replay(Arc<Replayed>),
    /// A copy was recorded.
    Copy {
        /// Number of bytes.
        bytes: u64,
    },
    /// A fill was recorded.
    Fill {
        /// Number of bytes.
        bytes: u64,
    },
    /// A primitive of a vendor's library was recorded.
    Primitive(PrimitiveKind),
    /// A signal of an event was recorded.
    Signal,
    /// A wait for an event was recorded.
    Wait,
    /// A timestamp was recorded.
    Timestamp,
    /// A call was rejected.
    Refused(Box<Error>),
    /// The recording ended.
    End {
        /// Number of commands.
        commands: usize,
    },
    /// The submission was passed to the driver.
    Commit {
        /// Requested bytes of live buffers of the device's pool ([`PoolStats::live_bytes`](crate::PoolStats::live_bytes)).
        live_bytes: u64,
        /// Bytes of the pool's idle blocks ([`PoolStats::idle_bytes`](crate::PoolStats::idle_bytes)).
        idle_bytes: u64,
    },
    /// A decision about a failure.
    Recovery(Box<Decision>),
    /// The submission ended, with begin and end of its execution on the device's clock, or the error if it failed.
    Complete(Result<Timing, Box<Error>>),
    /// Its command list and memory were released.
    Release,
}

impl TraceStep {
    /// Lower-case name of the step.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Encode { .. } => "encode",
            Self::Bind { .. } => "bind",
            Self::Size { .. } => "size",
            Self::Dispatch => "dispatch",
            Self::ExecuteCommands { .. } => "execute commands",
            Self::LaunchNested { .. } => "launch nested",
            Self::Replay(_) => "replay",
            Self::Copy { .. } => "copy",
            Self::Fill { .. } => "fill",
            Self::Primitive(_) => "primitive",
            Self::Signal => "signal",
            Self::Wait => "wait",
            Self::Timestamp => "timestamp",
            Self::Refused(_) => "refused",
            Self::End { .. } => "end",
            Self::Commit { .. } => "commit",
            Self::Recovery(_) => "recovery",
            Self::Complete(_) => "complete",
            Self::Release => "release",
        }
    }
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, submission, stream, step, .. } = self;
        write!(f, "{time:?} ")?;
        stream.map_or(Ok(()), |stream| write!(f, "stream {stream} "))?;
        write!(f, "submission {submission}: {}", step.name())?;
        match step {
            TraceStep::Encode { kernel, label } | TraceStep::LaunchNested { kernel, label } => {
                write!(f, " kernel `{}`", kernel.signature().name)?;
                label.as_ref().map_or(Ok(()), |label| write!(f, ", launch {label}"))
            }
            TraceStep::Bind { arguments } => write!(f, " {arguments} arguments"),
            TraceStep::Size { threads: Some(threads), group } => {
                write!(f, " {threads} threads in groups of {group}")
            }
            TraceStep::Size { threads: None, group } => write!(f, " groups of {group}, counted when it runs"),
            TraceStep::ExecuteCommands { label: Some(label) } => write!(f, ", launch {label}"),
            TraceStep::Replay(replayed) => {
                write!(f, " {} commands of {}", replayed.commands.len(), replayed.origin)
            }
            TraceStep::Copy { bytes } | TraceStep::Fill { bytes } => write!(f, " {bytes} bytes"),
            TraceStep::End { commands } => write!(f, " {commands} commands"),
            TraceStep::Recovery(decision) => write!(f, " {decision}"),
            TraceStep::Refused(error) | TraceStep::Complete(Err(error)) => write!(f, " {error}"),
            _ => Ok(()),
        }
    }
}

/// Number and total duration of a step. The duration is counted from the previous step of the same submission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepStats {
    /// Number of times.
    pub count: u64,
    /// Total duration.
    pub time: Duration,
}

/// How finely the device's time is measured; see [`Trace::start_with`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TraceDetail {
    /// Begin and end of each submission, which is passed to the driver unchanged. Of its commands only the first is recorded, and their
    /// number, so that the costs do not depend on it.
    Submissions,
    /// Begin and end of each command, by timestamps between the commands of a submission with several. Devices that run repeated lists of
    /// commands as one (CUDA graphs) do not while such a trace is on.
    #[default]
    Launches,
    /// As [`TraceDetail::Launches`], with the inline arguments of each launch, such as element counts, with which its work can be computed
    /// ([`ProfileLine`](crate::ProfileLine)).
    Arguments,
}

/// The trace of a device.
pub struct Trace {
    /// 0 while it is off, otherwise the detail, plus 1.
    detail: AtomicU8,
    next: AtomicU64,
    /// The host's time at which the clocks are compared next.
    next_comparison: AtomicU64,
    driver: Arc<dyn elinvar_driver::Device>,
    ring: Mutex<Ring>,
}

struct Ring {
    /// Start time as a count of the clock.
    start: u64,
    capacity: usize,
    events: VecDeque<Noted>,
    /// Number of events; a launch has four.
    len: usize,
    lost: u64,
    clocks: Clocks,
}

/// What of a submission is in the trace. Its events up to the commit are appended together.
#[derive(Default)]
struct Seen {
    begin: bool,
    commit: bool,
    end: bool,
}

impl Seen {
    fn add(&mut self, noted: &Noted) {
        match noted.what {
            What::Step(TraceStep::Acquire) => self.begin = true,
            What::Commit { .. } => self.commit = true,
            What::Ended(..) => self.end = true,
            // Behind the commit, it is the driver's.
            What::Step(TraceStep::Refused(_)) => self.end |= self.commit,
            _ => {}
        }
    }

    /// Whether no more events of it follow, apart from decisions. One without a begin is a decision, or its begin was dropped.
    fn is_over(&self) -> bool {
        if self.begin { self.end || !self.commit } else { !self.end }
    }
}

impl Trace {
    pub(crate) fn new(driver: Arc<dyn elinvar_driver::Device>) -> Self {
        let ring = Ring {
            start: 0,
            capacity: 0,
            events: VecDeque::new(),
            len: 0,
            lost: 0,
            clocks: Clocks::default(),
        };
        let (detail, next, next_comparison) = (AtomicU8::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { detail, next, next_comparison, driver, ring: Mutex::new(ring) }
    }

    /// Clears the trace and starts recording, keeping the last `capacity` events, with [`TraceDetail::Launches`].
    pub fn start(&self, capacity: usize) {
        self.start_with(capacity, TraceDetail::default());
    }

    /// As [`Trace::start`], with a choice of what the device measures.
    pub fn start_with(&self, capacity: usize, detail: TraceDetail) {
        let clocks = Clocks::starting_with(Clocks::compare(|| self.driver.clock_ns()));
        let mut ring = self.ring.lock();
        self.next_comparison.store(clocks.next(), Ordering::Relaxed);
        // Memory of an earlier trace is used again: its pages are there.
        let mut events = std::mem::take(&mut ring.events);
        events.clear();
        events.reserve(capacity);
        *ring = Ring { start: HOST.get().raw(), capacity, events, len: 0, lost: 0, clocks };
        self.detail.store(detail as u8 + 1, Ordering::Relaxed);
    }

    /// Stops recording for command buffers that begin from now on. Recorded events are kept.
    pub fn stop(&self) {
        if self.detail.swap(0, Ordering::Relaxed) != 0 {
            let sample = Clocks::compare(|| self.driver.clock_ns());
            self.ring.lock().clocks.add(sample);
        }
    }

    /// The recorded events. Those of one submission are consecutive and in order.
    pub fn events(&self) -> Vec<TraceEvent> {
        let ring = self.ring.lock();
        ring.events.iter().flat_map(|noted| noted.events(ring.start)).collect()
    }

    /// The recorded submissions on one clock, with the device's times.
    pub fn timeline(&self) -> Timeline {
        let sample = Clocks::compare(|| self.driver.clock_ns());
        let mut ring = self.ring.lock();
        if self.detail.load(Ordering::Relaxed) != 0 {
            ring.clocks.add(sample);
        }
        Timeline::new(&*self.driver, &ring)
    }

    /// Removes the submissions that have ended or were rejected, and returns them.
    pub(crate) fn take_ended(&self) -> Timeline {
        let sample = Clocks::compare_quickly(|| self.driver.clock_ns());
        let mut ring = self.ring.lock();
        if self.detail.load(Ordering::Relaxed) != 0 {
            ring.clocks.add(sample);
        }
        let mut states: HashMap<u64, Seen> = HashMap::new();
        for noted in &ring.events {
            states.entry(noted.notes.submission).or_default().add(noted);
        }
        let events = std::mem::take(&mut ring.events);
        let is_over = |noted: &Noted| states.get(&noted.notes.submission).is_some_and(Seen::is_over);
        let (over, open): (VecDeque<Noted>, VecDeque<Noted>) = events.into_iter().partition(is_over);
        ring.events = open;
        ring.len = ring.events.iter().map(Noted::len).sum();
        let (start, clocks, lost) = (ring.start, ring.clocks.clone(), ring.lost);
        drop(ring);
        Timeline::new(
            &*self.driver,
            &Ring { start, capacity: 0, len: over.len(), events: over, lost, clocks },
        )
    }

    /// Number of events that were dropped because the capacity was exceeded.
    pub fn lost(&self) -> u64 {
        self.ring.lock().lost
    }

    /// Number and total duration of each step over the recorded events, by [`TraceStep::name`].
    pub fn stats(&self) -> BTreeMap<&'static str, StepStats> {
        let mut last: BTreeMap<u64, Duration> = BTreeMap::new();
        let mut stats: BTreeMap<&'static str, StepStats> = BTreeMap::new();
        let ring = self.ring.lock();
        for TraceEvent { time, submission, step, .. } in
            ring.events.iter().flat_map(|noted| noted.events(ring.start))
        {
            let before = last.insert(submission, time).unwrap_or(time);
            let entry = stats.entry(step.name()).or_default();
            entry.count += 1;
            entry.time += time.saturating_sub(before);
        }
        stats
    }

    /// The recorder of a new submission; `None` while the trace is off.
    pub(crate) fn notes(&self, stream: Option<u64>, priority: Priority) -> Option<Notes> {
        let detail = match self.detail.load(Ordering::Relaxed) {
            0 => return None,
            1 => TraceDetail::Submissions,
            2 => TraceDetail::Launches,
            _ => TraceDetail::Arguments,
        };
        Some(Notes::new(self.next.fetch_add(1, Ordering::Relaxed), stream, priority, detail))
    }

    /// Those of a submission that is sampled for the metrics.
    pub(crate) fn notes_of_sample(&self, stream: u64, priority: Priority) -> Notes {
        Notes::of_sample(self.next.fetch_add(1, Ordering::Relaxed), Some(stream), priority)
    }

    /// Compares the clocks if that is due.
    pub(crate) fn compare_clocks(&self) {
        let clock = HOST.get();
        if clock.ns(clock.raw()) >= self.next_comparison.load(Ordering::Relaxed) {
            let sample = Clocks::compare_quickly(|| self.driver.clock_ns());
            let next = self.ring.lock().clocks.add(sample);
            self.next_comparison.store(next, Ordering::Relaxed);
        }
    }

    /// Appends events.
    pub(crate) fn add(&self, events: impl Iterator<Item = Noted>) {
        let mut ring = self.ring.lock();
        for event in events {
            ring.len += event.len();
            ring.events.push_back(event);
            while ring.len > ring.capacity
                && let Some(oldest) = ring.events.pop_front()
            {
                ring.len -= oldest.len();
                ring.lost += oldest.len() as u64;
            }
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ring = self.ring.lock();
        write!(f, "Trace({} events of at most {}, {} lost)", ring.len, ring.capacity, ring.lost)
    }
}
