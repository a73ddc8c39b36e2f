//! [`Trace`]: the steps of a device's submissions, with times.
//!
//! Off by default. While it is on, a command buffer records its steps in its own list, which is appended to the device's trace
//! when it is passed to the driver, and again when it has ended. The trace keeps the most recent events.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Dim3, Error, Label, PerProcess, Pipeline, PrimitiveKind, Priority};
use quanta::Clock;

use crate::recovery::Decision;

/// The CPU's cycle counter where it is invariant: reading it takes a third of the time of a system clock.
static CLOCK: PerProcess<Clock> = PerProcess::new(Clock::new);

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
    ExecuteCommands,
    /// A launch of a kernel that launches kernels was recorded.
    LaunchNested,
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
    Commit,
    /// A decision about a failure.
    Recovery(Box<Decision>),
    /// The submission ended, with the error if it failed.
    Complete(Option<Box<Error>>),
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
            Self::ExecuteCommands => "execute commands",
            Self::LaunchNested => "launch nested",
            Self::Copy { .. } => "copy",
            Self::Fill { .. } => "fill",
            Self::Primitive(_) => "primitive",
            Self::Signal => "signal",
            Self::Wait => "wait",
            Self::Timestamp => "timestamp",
            Self::Refused(_) => "refused",
            Self::End { .. } => "end",
            Self::Commit => "commit",
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
            TraceStep::Encode { kernel, label } => {
                write!(f, " kernel `{}`", kernel.signature().name)?;
                label.as_ref().map_or(Ok(()), |label| write!(f, ", launch {label}"))
            }
            TraceStep::Bind { arguments } => write!(f, " {arguments} arguments"),
            TraceStep::Size { threads: Some(threads), group } => {
                write!(f, " {threads} threads in groups of {group}")
            }
            TraceStep::Size { threads: None, group } => write!(f, " groups of {group}, counted when it runs"),
            TraceStep::Copy { bytes } | TraceStep::Fill { bytes } => write!(f, " {bytes} bytes"),
            TraceStep::End { commands } => write!(f, " {commands} commands"),
            TraceStep::Recovery(decision) => write!(f, " {decision}"),
            TraceStep::Refused(error) | TraceStep::Complete(Some(error)) => write!(f, " {error}"),
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

/// The trace of a device.
pub struct Trace {
    on: AtomicBool,
    next: AtomicU64,
    ring: Mutex<Ring>,
}

struct Ring {
    /// Start time as a count of the clock.
    start: u64,
    capacity: usize,
    events: VecDeque<Noted>,
    lost: u64,
}

/// An event as recorded; derived values are computed when it is read.
pub(crate) struct Noted {
    at: u64,
    notes: Notes,
    step: TraceStep,
}

impl Trace {
    pub(crate) fn new() -> Self {
        let ring = Ring { start: 0, capacity: 0, events: VecDeque::new(), lost: 0 };
        Self { on: AtomicBool::new(false), next: AtomicU64::new(0), ring: Mutex::new(ring) }
    }

    /// Clears the trace and starts recording, keeping the last `capacity` events.
    pub fn start(&self, capacity: usize) {
        let mut ring = self.ring.lock();
        *ring =
            Ring { start: CLOCK.get().raw(), capacity, events: VecDeque::with_capacity(capacity), lost: 0 };
        self.on.store(true, Ordering::Relaxed);
    }

    /// Stops recording for command buffers that begin from now on. Recorded events are kept.
    pub fn stop(&self) {
        self.on.store(false, Ordering::Relaxed);
    }

    /// The recorded events. Those of one submission are consecutive and in order.
    pub fn events(&self) -> Vec<TraceEvent> {
        let ring = self.ring.lock();
        ring.events.iter().map(|noted| noted.event(ring.start)).collect()
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
        for noted in &ring.events {
            let time = noted.time(ring.start);
            let before = last.insert(noted.notes.submission, time).unwrap_or(time);
            let entry = stats.entry(noted.step.name()).or_default();
            entry.count += 1;
            entry.time += time.saturating_sub(before);
        }
        stats
    }

    /// The recorder of a new submission; `None` while the trace is off.
    pub(crate) fn notes(&self, stream: Option<u64>, priority: Priority) -> Option<Notes> {
        self.on.load(Ordering::Relaxed).then(|| {
            let submission = self.next.fetch_add(1, Ordering::Relaxed);
            Notes { submission, stream, priority }
        })
    }

    /// Appends events.
    pub(crate) fn add(&self, events: impl Iterator<Item = Noted>) {
        let mut ring = self.ring.lock();
        for event in events {
            if ring.events.len() >= ring.capacity {
                ring.lost += 1;
                ring.events.pop_front();
            }
            if ring.capacity > 0 {
                ring.events.push_back(event);
            }
        }
    }
}

/// Properties shared by the events of a submission.
#[derive(Clone, Copy)]
pub(crate) struct Notes {
    submission: u64,
    stream: Option<u64>,
    priority: Priority,
}

impl Notes {
    pub(crate) fn event(&self, step: TraceStep) -> Noted {
        Noted { at: CLOCK.get().raw(), notes: *self, step }
    }
}

impl Noted {
    fn time(&self, start: u64) -> Duration {
        Duration::from_nanos(CLOCK.get().delta_as_nanos(start, self.at.max(start)))
    }

    fn event(&self, start: u64) -> TraceEvent {
        let Notes { submission, stream, priority } = self.notes;
        TraceEvent { time: self.time(start), submission, stream, priority, step: self.step.clone() }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ring = self.ring.lock();
        write!(f, "Trace({} events of at most {}, {} lost)", ring.events.len(), ring.capacity, ring.lost)
    }
}
