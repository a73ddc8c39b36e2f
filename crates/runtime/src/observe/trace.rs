//! [`Trace`]: what a device was asked to do, step by step, with times.
//!
//! Off unless asked for; then a command buffer notes its steps in its own slot, and they go to the device's trace when it is handed
//! to the driver and when it has ended, each time as one piece. The trace keeps the last so many events.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Dim3, Error, Label, PerProcess, Pipeline, PrimitiveKind, Priority};
use quanta::Clock;

use crate::recovery::Decision;

/// The processor's own counter where that runs evenly: asking it takes a third of what asking the system does.
static CLOCK: PerProcess<Clock> = PerProcess::new(Clock::new);

/// One step of one submission.
#[derive(Clone, Debug)]
pub struct TraceEvent {
    /// Since the trace was started.
    pub time: Duration,
    /// Number of the submission, of the process.
    pub submission: u64,
    /// Number of its stream; `None` for a call of the host.
    pub stream: Option<u64>,
    /// Priority of its stream.
    pub priority: Priority,
    /// What happened.
    pub step: TraceStep,
}

/// What happened to a submission. A launch is `Encode`, `Bind`, `Size`, `Dispatch`; all else happens once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TraceStep {
    /// A slot was taken.
    Acquire,
    /// A launch began to be recorded.
    Encode {
        /// The kernel.
        kernel: Arc<dyn Pipeline>,
        /// What the program calls the launch.
        label: Option<Arc<Label>>,
    },
    /// Its arguments were checked and bound.
    Bind {
        /// How many.
        arguments: usize,
    },
    /// Its size was checked or chosen.
    Size {
        /// Threads of the grid; `None` if they are read from memory when it runs.
        threads: Option<Dim3>,
        /// Threads of a threadgroup.
        group: Dim3,
    },
    /// It was recorded.
    Dispatch,
    /// A copy was recorded.
    Copy {
        /// Its length.
        bytes: u64,
    },
    /// A fill was recorded.
    Fill {
        /// Its length.
        bytes: u64,
    },
    /// A primitive of a vendor's library was recorded.
    Primitive(PrimitiveKind),
    /// The raising of an event was recorded.
    Signal,
    /// The wait for an event was recorded.
    Wait,
    /// The noting of a time was recorded.
    Timestamp,
    /// Something was refused.
    Refused(Box<Error>),
    /// Nothing more is recorded.
    End {
        /// Commands in all.
        commands: usize,
    },
    /// The driver has it.
    Commit,
    /// What is done about a failure.
    Recovery(Box<Decision>),
    /// The driver has done it, or says how it failed.
    Complete(Option<Box<Error>>),
    /// Its slot and memory were given back.
    Release,
}

impl TraceStep {
    /// The step's name in lower case.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Encode { .. } => "encode",
            Self::Bind { .. } => "bind",
            Self::Size { .. } => "size",
            Self::Dispatch => "dispatch",
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

/// How often a step happened and how long it took, from the step before it of the same submission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepStats {
    /// How often.
    pub count: u64,
    /// In all.
    pub time: Duration,
}

/// The trace of a device.
pub struct Trace {
    on: AtomicBool,
    next: AtomicU64,
    ring: Mutex<Ring>,
}

struct Ring {
    /// By the clock's count, as in what was noted.
    start: u64,
    capacity: usize,
    events: VecDeque<Noted>,
    lost: u64,
}

/// An event as it is noted: what can be worked out later is not.
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

    /// Forget what there is and note from now on, keeping the last `capacity` events.
    pub fn start(&self, capacity: usize) {
        let mut ring = self.ring.lock();
        *ring =
            Ring { start: CLOCK.get().raw(), capacity, events: VecDeque::with_capacity(capacity), lost: 0 };
        self.on.store(true, Ordering::Relaxed);
    }

    /// Note nothing more of command buffers that begin from now on. What there is stays.
    pub fn stop(&self) {
        self.on.store(false, Ordering::Relaxed);
    }

    /// The events there are. Those of one submission follow one another in order.
    pub fn events(&self) -> Vec<TraceEvent> {
        let ring = self.ring.lock();
        ring.events.iter().map(|noted| noted.event(ring.start)).collect()
    }

    /// Events that had to go because there were too many.
    pub fn lost(&self) -> u64 {
        self.ring.lock().lost
    }

    /// How often each step happened and how long it took, over the events there are.
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

    /// What notes the steps of a new submission; `None` while it is off.
    pub(crate) fn notes(&self, stream: Option<u64>, priority: Priority) -> Option<Notes> {
        self.on.load(Ordering::Relaxed).then(|| {
            let submission = self.next.fetch_add(1, Ordering::Relaxed);
            Notes { submission, stream, priority }
        })
    }

    /// Takes events over.
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

/// What the events of one submission have in common.
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
