//! The state machine of a queue: pending submissions, operations in flight, and the next command to issue. It makes no callbacks and
//! never blocks; `queue.rs` asks for the next action and executes it.
//!
//! Invariants:
//! - The first `issued` submissions of `pending` have been issued completely, the next one possibly in part, the others not at all.
//! - Operations in flight are in issue order, and therefore in submission order.
//! - A submission ends in its own failure, or in that of the first submission that failed before it.
//! - Nothing is issued behind a submission that has failed and has not ended.

mod control;
mod retire;

use std::collections::VecDeque;
use std::sync::Arc;

use super::backend::{Backend, Completed, Deferred, Issued, Suspended, Waiting};
use super::queue::SubmissionQueue;
use crate::{Command, Done, Error, Event, Result, Submission, Timing};

pub(super) struct State<B: Backend> {
    /// Submissions that have not ended, in order.
    pending: VecDeque<Pending<B>>,
    /// Operations that have not been retired, in order.
    in_flight: VecDeque<Operation<B::Fence>>,
    /// Submissions that were cancelled and have not ended.
    cancelled: VecDeque<Pending<B>>,
    issued: usize,
    last: u64,
    failure: Option<Error>,
    /// The event wait that blocks issue, as its number in `waits`.
    blocked_at: Option<u64>,
    waits: u64,
    /// Whether issue pauses until everything in flight has completed.
    drain: bool,
    /// Whether the backend has returned [`Issued::Full`].
    is_full: bool,
    /// Number of completions that may make room in the backend.
    completions: u64,
    /// `completions` at the last call of [`State::next_issue`].
    seen: u64,
    /// Whether a submission has failed and not ended.
    has_failed: bool,
    /// Whether the failure of the first submission has suspended the queue.
    is_suspended: bool,
    /// Whether submissions that have not begun are held back.
    is_held: bool,
    /// The submission that a thread is ending.
    ending: Option<u64>,
    /// The submission that a thread is issuing.
    pub(super) issuing: Option<u64>,
    /// Whether a thread has the retire role.
    pub(super) is_retiring: bool,
    /// Whether a turn is scheduled and has not started.
    pub(super) is_scheduled: bool,
    /// Number of threads in a turn. Each checks for work again before it ends its turn.
    pub(super) turns: u32,
    /// Keeps the queue alive while it has pending submissions.
    pub(super) keep: Option<Arc<SubmissionQueue<B>>>,
}

/// A pending submission.
pub(super) struct Pending<B: Backend> {
    pub(super) id: u64,
    pub(super) commands: Arc<[Command]>,
    pub(super) done: Done,
    pub(super) work: B::Work,
    /// Index of the next command to issue.
    next: usize,
    /// Number of its operations in flight.
    in_flight: usize,
    /// Whether commands other than waits were issued.
    has_begun: bool,
    /// Whether it was passed to a layer.
    was_given: bool,
    /// Whether any of its commands has taken effect.
    has_effect: bool,
    /// Whether only signals and timestamps were issued behind its last wait.
    has_waited: bool,
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    /// Cause of its stop: its error, unless it succeeds before the stop takes effect.
    stop: Option<Error>,
    verdict: Option<Verdict>,
    /// Whether its failure is final, because recovery has given up.
    is_final: bool,
}

/// How a submission fails.
#[derive(Clone, Debug)]
enum Verdict {
    /// Its own failure.
    Failed(Error),
    /// The failure of an earlier submission.
    Poisoned(Error),
    /// The loss of the device.
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
    /// The start of the submission.
    Start,
    Commands,
    /// The signal with this command index.
    Signal(usize),
    Timestamp(usize),
    /// A wait on the device, with this command index.
    Wait(usize),
}

enum Status<F> {
    /// In flight on the device.
    At(F),
    /// Completes with the operations before it.
    Follows,
    /// A wait on the device; the host has registered a callback that its event has not called yet.
    Watched,
    Completed(Completed),
}

/// The next action of issue.
pub(super) enum ToIssue {
    /// A wait: issue blocks until the event has reached the value, unless the device can wait.
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

/// The next action of retire, executed without the lock.
#[allow(clippy::large_enum_variant)] // it is moved once; a box would be an allocation for each submission
pub(super) enum ToRetire<B: Backend> {
    Signal(Arc<dyn Event>, u64, Option<u64>),
    /// Schedule a turn when the event has reached the value.
    Watch(Arc<dyn Event>, u64),
    End(Pending<B>, Result<Times>),
}

/// Start and end of a submission; `None` if the device executed nothing.
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
    /// Adds a submission. Returns its number.
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

    /// Whether there are no pending submissions.
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

    /// Whether the error of each pending submission is already known.
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
        // Numbers are ascending, with gaps where submissions were cancelled.
        self.pending.binary_search_by_key(&id, |pending| pending.id).ok()
    }

    /// Whether [`State::next_issue`] would return an action or make progress.
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

    /// The next action of issue. The caller executes it and reports the result.
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
                Some(Command::Wait { event, value }) => match event.failure_below(*value) {
                    None if event.value() >= *value => {
                        (pending.next, pending.has_waited) = (next + 1, true);
                        continue;
                    }
                    None => {
                        let (event, value) = (event.clone(), *value);
                        ToIssue::Wait(position(false), event, value)
                    }
                    Some(cause) => {
                        self.fail(self.issued, cause);
                        continue;
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

    /// Reports the result of [`ToIssue::Begin`].
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

    /// Reports the result of [`ToIssue::Wait`]. If the host has to wait, returns the number for [`State::unblock`].
    pub(super) fn was_waited_for(&mut self, id: u64, result: Result<Waiting>) -> Option<u64> {
        self.issuing = None;
        let at = self.find(id)?;
        let pending = &mut self.pending[at];
        match result {
            Ok(Waiting::Device) => {
                let command = pending.next;
                (pending.next, pending.has_begun) = (command + 1, true);
                self.announce(id, Kind::Wait(command), None);
                None
            }
            Ok(_) if pending.stop.is_none() && pending.verdict.is_none() => {
                self.waits += 1;
                self.blocked_at = Some(self.waits);
                self.blocked_at
            }
            Ok(_) => None,
            Err(error) => {
                self.fail(at, error);
                None
            }
        }
    }

    /// Reports the result of [`ToIssue::Mark`]. If nothing is in flight, the time of effect is now, even if it is retired later.
    pub(super) fn was_marked(
        &mut self,
        id: u64,
        command: usize,
        is_announced: bool,
        now_ns: impl FnOnce() -> u64,
    ) {
        self.issuing = None;
        if is_announced {
            return;
        }
        let is_now = self.in_flight.is_empty();
        let Some(pending) = self.pending_mut(id) else { return };
        pending.next = command + 1;
        let kind = Kind::mark(&pending.commands, command);
        let earlier = pending.end_ns.filter(|_| !pending.has_waited);
        let end_ns = if is_now { Some(earlier.unwrap_or_else(now_ns)) } else { None };
        if let Some(end_ns) = end_ns {
            pending.start_ns.get_or_insert(end_ns);
        }
        self.announce(id, kind, None);
        if let (Some(end_ns), Some(operation)) = (end_ns, self.in_flight.back_mut()) {
            operation.status = Status::Completed(Completed::Executed { start_ns: None, end_ns });
        }
    }

    /// Adds the commands before `next` as in flight.
    pub(super) fn announce_commands(&mut self, id: u64, next: usize, fence: B::Fence) {
        if let Some(pending) = self.pending_mut(id) {
            (pending.next, pending.was_given) = (next, true);
        }
        self.announce(id, Kind::Commands, Some(fence));
    }

    /// Adds the signal or timestamp `command` as in flight.
    pub(super) fn announce_mark(&mut self, id: u64, command: usize, fence: B::Fence) {
        let Some(pending) = self.pending_mut(id) else { return };
        pending.next = pending.next.max(command + 1);
        let kind = Kind::mark(&pending.commands, command);
        self.announce(id, kind, Some(fence));
    }

    /// Adds an operation in flight.
    pub(super) fn announce(&mut self, id: u64, kind: Kind, fence: Option<B::Fence>) {
        let Some(pending) = self.pending_mut(id) else { return };
        pending.in_flight += 1;
        let status = fence.map_or(Status::Follows, Status::At);
        self.in_flight.push_back(Operation { submission: id, kind, status });
    }

    /// Withdraws the last operation in flight, whose commands began at `next`.
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

    /// Unblocks issue, because the event of the wait with this number has reached its value or has failed. Returns whether issue was
    /// still blocked by it.
    pub(super) fn unblock(&mut self, number: u64) -> bool {
        self.blocked_at.take_if(|blocked| *blocked == number).is_some()
    }

    /// Starts or ends holding back submissions that have not begun.
    pub(super) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Whether all submissions up to `last` have ended.
    pub(super) fn has_ended(&self, last: u64) -> bool {
        let is_left = |id: Option<u64>| id.is_some_and(|id| id <= last);
        !is_left(self.ending)
            && !is_left(self.first())
            && !self.cancelled.iter().any(|cancelled| cancelled.id <= last)
    }

    /// Reports that the submission of [`ToRetire::End`] has ended. The backend has received its state, and may have room again.
    pub(super) fn has_reported_end(&mut self) {
        self.ending = None;
        self.resume();
    }

    /// The backend may have room again.
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

    /// The first operation in flight whose fence matches `is_it`: its fence and its submission.
    pub(super) fn operation(&self, is_it: impl Fn(&B::Fence) -> bool) -> Option<(&B::Fence, &Pending<B>)> {
        self.in_flight.iter().find_map(|operation| match &operation.status {
            Status::At(fence) if is_it(fence) => Some((fence, self.pending(operation.submission)?)),
            _ => None,
        })
    }

    /// Completes the first operation whose fence matches `is_it`. Returns its fence.
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
    /// The kind of a signal or a timestamp.
    pub(super) fn mark(commands: &[Command], command: usize) -> Self {
        match commands.get(command) {
            Some(Command::Timestamp { .. }) => Self::Timestamp(command),
            _ => Self::Signal(command),
        }
    }

    /// The index of its command, for signals, timestamps and waits.
    fn command(self) -> Option<usize> {
        match self {
            Self::Start | Self::Commands => None,
            Self::Signal(command) | Self::Timestamp(command) | Self::Wait(command) => Some(command),
        }
    }
}

impl<B: Backend> Pending<B> {
    /// Whether all of its commands were issued, even if the issuing thread has not returned yet.
    fn is_issued(&self) -> bool {
        self.next == self.commands.len() && (self.was_given || !B::IS_LAYER)
    }

    /// The cause of its stop, if it was stopped.
    pub(super) fn stop(&self) -> Option<&Error> {
        self.stop.as_ref()
    }
}
