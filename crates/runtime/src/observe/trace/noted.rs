//! [`Noted`]: an event as recorded, as compact as possible; what can be derived is computed when it is read.

use std::sync::Arc;
use std::time::Duration;

use elinvar_driver::{Dim3, Error, Label, Pipeline, Priority, Timing};

use super::clock::HOST;
use super::{InlineArguments, LaunchTimes, TraceDetail, TraceEvent, TraceStep};
use crate::observe::metrics::Phase;

/// `Notes::stream` of a host call.
const NO_STREAM: u64 = u64::MAX;

/// Properties shared by the events of a submission.
#[derive(Clone, Copy)]
pub(crate) struct Notes {
    pub(super) submission: u64,
    stream: u64,
    pub(super) priority: Priority,
    detail: TraceDetail,
    /// For the metrics, not the trace.
    is_sample: bool,
}

impl Notes {
    pub(super) fn new(submission: u64, stream: Option<u64>, priority: Priority, detail: TraceDetail) -> Self {
        Self { submission, stream: stream.unwrap_or(NO_STREAM), priority, detail, is_sample: false }
    }

    /// Those of a submission that is sampled for the metrics.
    pub(super) fn of_sample(submission: u64, stream: Option<u64>, priority: Priority) -> Self {
        Self { is_sample: true, ..Self::new(submission, stream, priority, TraceDetail::Launches) }
    }

    /// The number of the submission, if it is sampled for the metrics.
    pub(crate) fn sample(&self) -> Option<u64> {
        self.is_sample.then_some(self.submission)
    }

    /// Nanoseconds since [`Notes::now`] was `at`.
    pub(crate) fn ns_since(at: u64) -> u64 {
        between(at, Self::now())
    }

    pub(super) fn stream(&self) -> Option<u64> {
        (self.stream != NO_STREAM).then_some(self.stream)
    }

    /// Whether each command is recorded, and measured by the device.
    pub(crate) fn times_launches(&self) -> bool {
        self.detail >= TraceDetail::Launches
    }

    /// Whether the inline arguments of launches are recorded.
    pub(crate) fn keeps_arguments(&self) -> bool {
        self.detail >= TraceDetail::Arguments
    }

    /// The host's time, for events that are recorded later.
    #[inline]
    pub(crate) fn now() -> u64 {
        HOST.get().raw()
    }

    #[inline]
    pub(crate) fn event(&self, step: TraceStep) -> Noted {
        self.event_at(Self::now(), step)
    }

    pub(crate) fn event_at(&self, at: u64, step: TraceStep) -> Noted {
        Noted { at, notes: *self, what: What::Step(step) }
    }

    /// The four steps of a launch, at these times.
    #[inline]
    pub(crate) fn launch(&self, at: [u64; 4], launch: Launch) -> Noted {
        let later = [after(at[0], at[1]), after(at[0], at[2]), after(at[0], at[3])];
        Noted { at: at[0], notes: *self, what: What::Launch(launch, later) }
    }

    /// The end of the recording at `at`, and the commit now, with memory of the pool and the places of the device's times.
    pub(crate) fn commit(
        &self,
        (at, commands): (u64, usize),
        (live_bytes, idle_bytes): (u64, u64),
        times: Option<Box<LaunchTimes>>,
    ) -> Noted {
        let (commands, later) = (u32::try_from(commands).unwrap_or(u32::MAX), after(at, Self::now()));
        let memory = [live_bytes, idle_bytes];
        Noted { at, notes: *self, what: What::Commit { commands, later, memory, times } }
    }

    /// The end of the submission at `at`, and the release of its memory now.
    pub(crate) fn ended(&self, at: u64, result: Result<Timing, Box<Error>>) -> Noted {
        Noted { at, notes: *self, what: What::Ended(result, after(at, Self::now())) }
    }
}

/// Nanoseconds between two counts of the clock.
fn between(at: u64, later: u64) -> u64 {
    let clock = HOST.get();
    clock.ns(later).saturating_sub(clock.ns(at))
}

/// Counts of the clock from `at` to `later`.
fn after(at: u64, later: u64) -> u32 {
    u32::try_from(later.saturating_sub(at)).unwrap_or(u32::MAX)
}

/// An event, or several steps that are recorded together.
pub(crate) struct Noted {
    at: u64,
    pub(super) notes: Notes,
    pub(super) what: What,
}

pub(super) enum What {
    Step(TraceStep),
    /// With the times of `Bind`, `Size` and `Dispatch` after that of `Encode`.
    Launch(Launch, [u32; 3]),
    /// `End`, and `Commit` so much later.
    Commit {
        commands: u32,
        later: u32,
        memory: [u64; 2],
        times: Option<Box<LaunchTimes>>,
    },
    /// `Complete`, and `Release` so much later.
    Ended(Result<Timing, Box<Error>>, u32),
}

/// A launch as recorded.
pub(crate) struct Launch {
    pub(crate) kernel: Arc<dyn Pipeline>,
    pub(crate) label: Option<Arc<Label>>,
    pub(crate) argument_count: u32,
    pub(crate) arguments: Option<InlineArguments>,
    pub(crate) threads: Option<Dim3>,
    pub(crate) group: Dim3,
    pub(crate) bytes: u64,
}

impl Noted {
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.what, What::Step(TraceStep::Refused(_)))
    }

    /// The phases that the host went through, in nanoseconds.
    pub(crate) fn phases(&self) -> [Option<(Phase, u64)>; 3] {
        let ns = |from: u32, to: u32| between(self.at + u64::from(from), self.at + u64::from(to));
        match self.what {
            What::Launch(_, [bind, size, record]) => [
                Some((Phase::Bind, ns(0, bind))),
                Some((Phase::Size, ns(bind, size))),
                Some((Phase::Record, ns(size, record))),
            ],
            What::Commit { later, .. } => [Some((Phase::Commit, ns(0, later))), None, None],
            What::Ended(_, later) => [Some((Phase::Release, ns(0, later))), None, None],
            What::Step(_) => [None; 3],
        }
    }

    /// The places of the device's times, with the number of the submission.
    pub(crate) fn into_times(self) -> Option<(u64, Box<LaunchTimes>)> {
        match self.what {
            What::Commit { times, .. } => Some((self.notes.submission, times?)),
            _ => None,
        }
    }

    /// Number of events.
    pub(super) fn len(&self) -> usize {
        match self.what {
            What::Step(_) => 1,
            What::Launch(..) => 4,
            What::Commit { .. } | What::Ended(..) => 2,
        }
    }

    /// The host's time.
    pub(super) fn ns(&self) -> u64 {
        HOST.get().ns(self.at)
    }

    /// The host's time of the last step.
    pub(super) fn last_ns(&self) -> u64 {
        let later = match self.what {
            What::Step(_) => 0,
            What::Launch(_, [.., later]) | What::Commit { later, .. } | What::Ended(_, later) => later,
        };
        HOST.get().ns(self.at + u64::from(later))
    }

    /// Its events, with times since the counter was `start`.
    pub(super) fn events(&self, start: u64) -> impl Iterator<Item = TraceEvent> {
        let steps: [Option<(u64, TraceStep)>; 4] = match &self.what {
            What::Step(step) => [Some((self.at, step.clone())), None, None, None],
            What::Commit { commands, later, memory: [live_bytes, idle_bytes], .. } => {
                let end = TraceStep::End { commands: *commands as usize };
                let commit = TraceStep::Commit { live_bytes: *live_bytes, idle_bytes: *idle_bytes };
                [Some((self.at, end)), Some((self.at + u64::from(*later), commit)), None, None]
            }
            What::Ended(result, later) => {
                let complete = TraceStep::Complete(result.clone());
                let release = (self.at + u64::from(*later), TraceStep::Release);
                [Some((self.at, complete)), Some(release), None, None]
            }
            What::Launch(launch, later) => {
                let Launch { kernel, label, argument_count, threads, group, .. } = launch;
                let [bind, size, dispatch] = later.map(|later| self.at + u64::from(later));
                [
                    Some((self.at, TraceStep::Encode { kernel: kernel.clone(), label: label.clone() })),
                    Some((bind, TraceStep::Bind { arguments: *argument_count as usize })),
                    Some((size, TraceStep::Size { threads: *threads, group: *group })),
                    Some((dispatch, TraceStep::Dispatch)),
                ]
            }
        };
        let (clock, notes) = (HOST.get(), self.notes);
        steps.into_iter().flatten().map(move |(at, step)| TraceEvent {
            time: Duration::from_nanos(clock.ns(at.max(start)) - clock.ns(start)),
            submission: notes.submission,
            stream: notes.stream(),
            priority: notes.priority,
            step,
        })
    }
}
