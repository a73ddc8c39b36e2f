//! The state machine of a queue: what is pending and in flight, and what is issued next. It calls nobody and waits for nothing: `queue.rs` asks it what to do next and does it.
//!
//! Invariants:
//! - The first `issued` of `pending` have been issued whole. Of the next one, some may have been; of those behind it, nothing.
//! - Operations in flight are in the order of their issue, so in the order of their submissions.
//! - What a submission ends in is its own failure, or that of the first submission that failed before it.
//! - Nothing is issued behind a submission that has failed and has not ended.

mod control;
mod retire;

use std::collections::VecDeque;
use std::sync::Arc;

use super::backend::{Backend, Completed, Deferred, Issued, Suspended};
use super::queue::SubmissionQueue;
use crate::{Command, Done, Error, Event, Result, Submission, Timing};

pub(super) struct State<B: Backend> {
    /// Submissions that have not ended, in order.
    pending: VecDeque<Pending<B>>,
    /// Operations that have not completed, in order.
    in_flight: VecDeque<Operation<B::Fence>>,
    /// Submissions that were cancelled and have not ended.
    cancelled: VecDeque<Pending<B>>,
    issued: usize,
    last: u64,
    failure: Option<Error>,
    /// The number of the event wait that issue is blocked at.
    blocked_at: Option<u64>,
    waits: u64,
    /// Whether nothing is issued before everything in flight has completed.
    drain: bool,
    /// Whether the backend had no room.
    is_full: bool,
    /// Operations that have completed.
    completions: u64,
    /// The same when issue was asked for last.
    seen: u64,
    /// Whether a submission has failed and not ended.
    has_failed: bool,
    /// Whether the first submission's failure is being dealt with.
    is_suspended: bool,
    /// Whether submissions that have not begun are held back.
    is_held: bool,
    /// The submission that a thread is ending.
    pub(super) ending: Option<u64>,
    /// The submission that a thread is issuing.
    pub(super) issuing: Option<u64>,
    /// Whether a thread retires.
    pub(super) is_retiring: bool,
    /// Whether a turn was scheduled that has not begun.
    pub(super) is_scheduled: bool,
    /// Threads that have a turn: each looks again before it ends that.
    pub(super) turns: u32,
    /// Keeps the queue while there is something to do.
    pub(super) keep: Option<Arc<SubmissionQueue<B>>>,
}

/// A submission.
pub(super) struct Pending<B: Backend> {
    pub(super) id: u64,
    pub(super) commands: Arc<[Command]>,
    pub(super) done: Done,
    pub(super) work: B::Work,
    /// Index of the command that is next.
    next: usize,
    /// Its operations in flight.
    in_flight: usize,
    /// Whether more than waits was issued.
    has_begun: bool,
    /// Whether a layer was given it.
    was_given: bool,
    /// Whether something of it has taken effect.
    has_effect: bool,
    /// Whether nothing but marks was issued behind its last wait.
    has_waited: bool,
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    /// What it is to end in, if it does not end well before.
    stop: Option<Error>,
    verdict: Option<Verdict>,
    /// Whether its failure was dealt with, and stands.
    is_final: bool,
}

/// What a submission ends in, if not well.
#[derive(Clone, Debug)]
enum Verdict {
    /// Its own failure.
    Failed(Error),
    /// The failure of an earlier one.
    Poisoned(Error),
    /// The device's loss.
    Lost(Error),
    Cancelled,
}

struct Operation<F> {
    submission: u64,
    kind: Kind,
    status: Status<F>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The submission begins.
    Start,
    Commands,
    /// The signal of that index.
    Signal(usize),
    Timestamp(usize),
    /// The device waits for the event of that index.
    Wait(usize),
}

enum Status<F> {
    /// In flight on the device.
    At(F),
    /// Completed when those before it have.
    Follows,
    /// A wait of the device whose event has called nobody yet.
    Watched,
    Completed(Completed),
}

/// What is to be issued.
pub(super) enum ToIssue {
    /// Issue blocks until the event has reached the value, unless the device can wait.
    Wait(Position, Arc<dyn Event>, u64),
    /// A signal or a timestamp.
    Mark(Position),
    /// Commands for the backend.
    Begin(Position),
}

/// How far a submission has been issued.
pub(super) struct Position {
    pub(super) submission: u64,
    pub(super) commands: Arc<[Command]>,
    pub(super) next: usize,
    pub(super) had_begun: bool,
    pub(super) in_flight: usize,
}

/// What is to be done, without the lock, about what has completed.
#[allow(clippy::large_enum_variant)] // it is moved once; a box would be an allocation for each submission
pub(super) enum ToRetire<B: Backend> {
    Signal(Arc<dyn Event>, u64, Option<u64>),
    /// Have the queue looked at again when the event has reached the value.
    Watch(Arc<dyn Event>, u64),
    End(Pending<B>, Result<Times>),
}

/// When a submission ran; `None` where the device had nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    start_ns: Option<u64>,
    end_ns: Option<u64>,
}

impl Times {
    pub(super) fn timing(self, now_ns: impl FnOnce() -> u64) -> Timing {
        match (self.start_ns, self.end_ns) {
            (Some(start_ns), Some(end_ns)) => Timing { start_ns, end_ns: end_ns.max(start_ns) },
            (Some(only), None) | (None, Some(only)) => Timing { start_ns: only, end_ns: only },
            (None, None) => {
                let now = now_ns();
                Timing { start_ns: now, end_ns: now }
            }
        }
    }
}

impl<B: Backend> Default for State<B> {
    fn default() -> Self {
        Self {
            pending: VecDeque::new(),
            in_flight: VecDeque::new(),
            cancelled: VecDeque::new(),
            issued: 0,
            last: 0,
            failure: None,
            blocked_at: None,
            waits: 0,
            drain: false,
            is_full: false,
            completions: 0,
            seen: 0,
            has_failed: false,
            is_suspended: false,
            is_held: false,
            ending: None,
            issuing: None,
            is_retiring: false,
            is_scheduled: false,
            turns: 0,
            keep: None,
        }
    }
}

impl<B: Backend> State<B> {
    /// Add a submission; its number.
    pub(super) fn submit(&mut self, commands: Arc<[Command]>, work: B::Work, done: Done) -> u64 {
        self.last += 1;
        let verdict = self.failure.as_ref().map(|failure| Verdict::Poisoned(failure.poison()));
        self.pending.push_back(Pending {
            id: self.last,
            commands,
            done,
            work,
            next: 0,
            in_flight: 0,
            has_begun: false,
            was_given: false,
            has_effect: false,
            has_waited: false,
            start_ns: None,
            end_ns: None,
            stop: None,
            verdict,
            is_final: false,
        });
        self.last
    }

    /// Whether nothing is left to do.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.cancelled.is_empty()
    }

    /// The number of the last submission.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The number of the first submission that has not ended.
    pub(super) fn first(&self) -> Option<u64> {
        self.pending.front().map(|pending| pending.id)
    }

    /// Whether all that is pending ends in an error that is known.
    pub(super) fn is_decided(&self) -> bool {
        self.pending.iter().all(|pending| !matches!(pending.verdict, None | Some(Verdict::Failed(_))))
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub(super) fn pending(&self, id: u64) -> Option<&Pending<B>> {
        self.find(id).map(|at| &self.pending[at])
    }

    pub(super) fn pending_mut(&mut self, id: u64) -> Option<&mut Pending<B>> {
        self.find(id).map(|at| &mut self.pending[at])
    }

    /// Submissions that have begun and not ended, in order.
    pub(super) fn begun(&self) -> impl Iterator<Item = &Pending<B>> {
        self.pending.iter().filter(|pending| pending.has_begun && pending.verdict.is_none())
    }

    fn find(&self, id: u64) -> Option<usize> {
        // Numbers ascend, with gaps where submissions were cancelled.
        self.pending.binary_search_by_key(&id, |pending| pending.id).ok()
    }

    /// Whether [`State::next_issue`] has something, or gets further.
    pub(super) fn can_issue(&self) -> bool {
        let is_blocked = self.issuing.is_some()
            || self.blocked_at.is_some()
            || self.drain
            || self.is_full
            || self.has_failed
            || self.is_suspended;
        !is_blocked
            && self.pending.get(self.issued).is_some_and(|next| match next.verdict {
                None => next.stop.is_none() && !(self.is_held && next.next == 0),
                Some(Verdict::Cancelled) => true,
                Some(_) => false,
            })
    }

    /// What is to be issued next. The caller issues it, and tells what became of it.
    pub(super) fn next_issue(&mut self) -> Option<ToIssue> {
        while self.can_issue() {
            let in_flight = self.in_flight.len();
            let pending = &mut self.pending[self.issued];
            let (submission, next) = (pending.id, pending.next);
            let mut position = |begins: bool| {
                let commands = pending.commands.clone();
                let had_begun = pending.has_begun;
                pending.has_begun |= begins;
                Position { submission, commands, next, had_begun, in_flight }
            };
            let to_issue = match pending.commands.get(next) {
                _ if pending.verdict.is_some() => {
                    self.issued += 1;
                    continue;
                }
                _ if B::IS_LAYER && !pending.was_given => ToIssue::Begin(position(true)),
                None => {
                    self.issued += 1;
                    continue;
                }
                Some(Command::Wait { event, value }) if event.value() >= *value => {
                    (pending.next, pending.has_waited) = (next + 1, true);
                    continue;
                }
                Some(Command::Wait { event, value }) => match event.failure() {
                    Some(cause) => {
                        self.fail(self.issued, cause);
                        continue;
                    }
                    None => {
                        let (event, value) = (event.clone(), *value);
                        ToIssue::Wait(position(false), event, value)
                    }
                },
                Some(Command::Signal { .. } | Command::Timestamp { .. }) => ToIssue::Mark(position(true)),
                Some(_) => ToIssue::Begin(position(true)),
            };
            (self.issuing, self.seen) = (Some(submission), self.completions);
            return Some(to_issue);
        }
        None
    }

    /// What became of commands that were to be begun.
    pub(super) fn was_begun(&mut self, id: u64, had_begun: bool, result: Result<Issued>) {
        self.issuing = None;
        let Some(at) = self.find(id) else { return };
        let pending = &mut self.pending[at];
        pending.has_waited &= matches!(result, Ok(Issued::Full));
        match result {
            Ok(Issued::Executed { next, start_ns, end_ns }) => {
                (pending.next, pending.has_effect) = (next, true);
                pending.start_ns.get_or_insert(start_ns);
                pending.end_ns = Some(end_ns);
            }
            Ok(Issued::InFlight { drain }) => self.drain |= drain && !self.in_flight.is_empty(),
            Ok(Issued::Full) => {
                pending.has_begun = had_begun;
                self.is_full |= self.completions == self.seen;
            }
            Err(error) => self.fail(at, error),
        }
    }

    /// What became of a wait: the number under which issue is blocked, if the host has to wait.
    pub(super) fn was_waited_for(&mut self, id: u64, result: Result<bool>) -> Option<u64> {
        self.issuing = None;
        let at = self.find(id)?;
        let pending = &mut self.pending[at];
        match result {
            Ok(true) => {
                let command = pending.next;
                (pending.next, pending.has_begun) = (command + 1, true);
                self.announce(id, Kind::Wait(command), None);
                None
            }
            Ok(false) if pending.stop.is_none() && pending.verdict.is_none() => {
                self.waits += 1;
                self.blocked_at = Some(self.waits);
                self.blocked_at
            }
            Ok(false) => None,
            Err(error) => {
                self.fail(at, error);
                None
            }
        }
    }

    /// A signal or a timestamp was issued. With nothing in flight it takes effect now, whenever it is retired.
    pub(super) fn was_marked(
        &mut self,
        id: u64,
        command: usize,
        fence: Option<B::Fence>,
        now_ns: impl FnOnce() -> u64,
    ) {
        self.issuing = None;
        let is_now = fence.is_none() && self.in_flight.is_empty();
        let Some(pending) = self.pending_mut(id) else { return };
        pending.next = command + 1;
        let kind = Kind::mark(&pending.commands, command);
        let earlier = pending.end_ns.filter(|_| !pending.has_waited);
        let end_ns = if is_now { Some(earlier.unwrap_or_else(now_ns)) } else { None };
        if let Some(end_ns) = end_ns {
            pending.start_ns.get_or_insert(end_ns);
        }
        self.announce(id, kind, fence);
        if let (Some(end_ns), Some(operation)) = (end_ns, self.in_flight.back_mut()) {
            operation.status = Status::Completed(Completed::Executed { start_ns: None, end_ns });
        }
    }

    /// Add the commands before `next` as in flight.
    pub(super) fn announce_commands(&mut self, id: u64, next: usize, fence: B::Fence) {
        if let Some(pending) = self.pending_mut(id) {
            (pending.next, pending.was_given) = (next, true);
        }
        self.announce(id, Kind::Commands, Some(fence));
    }

    /// Add an operation in flight.
    pub(super) fn announce(&mut self, id: u64, kind: Kind, fence: Option<B::Fence>) {
        let Some(pending) = self.pending_mut(id) else { return };
        pending.in_flight += 1;
        let status = fence.map_or(Status::Follows, Status::At);
        self.in_flight.push_back(Operation { submission: id, kind, status });
    }

    /// Take back the last operation in flight, whose commands began at `next`.
    pub(super) fn retract(&mut self, id: u64, next: usize) -> Option<B::Fence> {
        let last = self.in_flight.pop_back_if(|last| last.submission == id)?;
        if let Some(pending) = self.pending_mut(id) {
            pending.in_flight -= 1;
            (pending.next, pending.was_given) = (next, false);
        }
        match last.status {
            Status::At(fence) => Some(fence),
            _ => None,
        }
    }

    /// The event that issue is blocked at under this number has been reached, or has failed. Whether it still was.
    pub(super) fn unblock(&mut self, number: u64) -> bool {
        self.blocked_at.take_if(|blocked| *blocked == number).is_some()
    }

    /// Hold submissions back that have not begun, or no longer.
    pub(super) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Whether all submissions up to this one have ended.
    pub(super) fn has_ended(&self, last: u64) -> bool {
        let is_left = |id: Option<u64>| id.is_some_and(|id| id <= last);
        !is_left(self.ending)
            && !is_left(self.first())
            && !self.cancelled.iter().any(|cancelled| cancelled.id <= last)
    }

    /// There may be room again.
    pub(super) fn resume(&mut self) {
        self.completions += 1;
        self.is_full = false;
    }

    /// The fences of operations in flight, in order, of one submission or of all.
    pub(super) fn fences(&self, id: Option<u64>) -> impl Iterator<Item = &B::Fence> {
        let of =
            self.in_flight.iter().filter(move |operation| id.is_none_or(|id| operation.submission == id));
        of.filter_map(|operation| match &operation.status {
            Status::At(fence) => Some(fence),
            _ => None,
        })
    }

    /// The fence of the first operation in flight for which it is this, and its submission.
    pub(super) fn operation(&self, is_it: impl Fn(&B::Fence) -> bool) -> Option<(&B::Fence, &Pending<B>)> {
        self.in_flight.iter().find_map(|operation| match &operation.status {
            Status::At(fence) if is_it(fence) => Some((fence, self.pending(operation.submission)?)),
            _ => None,
        })
    }

    /// The first operation whose fence is this has completed. Its fence.
    pub(super) fn complete(
        &mut self,
        is_it: impl Fn(&B::Fence) -> bool,
        completed: Completed,
    ) -> Option<B::Fence> {
        let is_at =
            |operation: &Operation<B::Fence>| matches!(&operation.status, Status::At(fence) if is_it(fence));
        let at = self.in_flight.iter().position(is_at)?;
        let operation = &mut self.in_flight[at];
        let id = operation.submission;
        let is_cancelled = matches!(completed, Completed::Cancelled);
        let Status::At(fence) = std::mem::replace(&mut operation.status, Status::Completed(completed)) else {
            return None;
        };
        if is_cancelled {
            self.in_flight.remove(at);
            if let Some(pending) = self.pending_mut(id) {
                pending.in_flight -= 1;
            }
            self.was_cancelled(id);
        }
        Some(fence)
    }

    fn made_room(&mut self) {
        self.resume();
        self.drain &= !self.in_flight.is_empty();
    }

    fn fail(&mut self, at: usize, error: Error) {
        let verdict = self.pending[at].verdict.get_or_insert(Verdict::Failed(error));
        self.has_failed |= matches!(verdict, Verdict::Failed(_));
    }
}

impl Kind {
    /// That of a signal or a timestamp.
    pub(super) fn mark(commands: &[Command], command: usize) -> Self {
        match commands.get(command) {
            Some(Command::Timestamp { .. }) => Self::Timestamp(command),
            _ => Self::Signal(command),
        }
    }

    /// The index of the command that it is.
    fn command(self) -> Option<usize> {
        match self {
            Self::Start | Self::Commands => None,
            Self::Signal(command) | Self::Timestamp(command) | Self::Wait(command) => Some(command),
        }
    }
}

impl<B: Backend> Pending<B> {
    /// Whether all of its commands were issued, also if the thread that issues them has yet to return.
    fn is_issued(&self) -> bool {
        self.next == self.commands.len() && (self.was_given || !B::IS_LAYER)
    }

    /// What it is to stop in.
    pub(super) fn stop(&self) -> Option<&Error> {
        self.stop.as_ref()
    }
}
