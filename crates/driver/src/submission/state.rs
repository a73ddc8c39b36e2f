//! The state machine of a queue. It calls nobody and waits for nothing: `queue.rs` asks it what to do next and does it.
//!
//! Invariants:
//! - The first `issued` of `pending` have been issued whole. Of the next one, some may have been; of those behind it, nothing.
//! - Operations in flight are in the order of their issue, so in the order of their submissions.
//! - What a submission ends in is its own failure, or that of the first submission that failed before it.
//! - Nothing is issued behind a submission that has failed and has not ended.

use std::collections::VecDeque;
use std::sync::Arc;

use super::backend::{Backend, Completed, Deferred, Issued};
use super::queue::SubmissionQueue;
use crate::{Command, Done, Error, Event, Result, Timing};

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
            Ok(Issued::InFlight { next, drain }) => {
                pending.next = next;
                self.drain |= drain && !self.in_flight.is_empty();
            }
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
        self.announce(id, kind, fence);
        if let (Some(end_ns), Some(operation)) = (end_ns, self.in_flight.back_mut()) {
            operation.status = Status::Completed(Completed::Executed { start_ns: None, end_ns });
        }
    }

    /// Add an operation in flight.
    pub(super) fn announce(&mut self, id: u64, kind: Kind, fence: Option<B::Fence>) {
        let Some(pending) = self.pending_mut(id) else { return };
        pending.in_flight += 1;
        let status = fence.map_or(Status::Follows, Status::At);
        self.in_flight.push_back(Operation { submission: id, kind, status });
    }

    /// Take back the last operation in flight.
    pub(super) fn retract(&mut self, id: u64) -> Option<B::Fence> {
        let last = self.in_flight.pop_back_if(|last| last.submission == id)?;
        if let Some(pending) = self.pending_mut(id) {
            pending.in_flight -= 1;
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

    /// The submission of the first operation whose fence is this.
    pub(super) fn submission_of(&self, is_it: impl Fn(&B::Fence) -> bool) -> Option<u64> {
        let is_it =
            |operation: &&Operation<B::Fence>| matches!(&operation.status, Status::At(fence) if is_it(fence));
        self.in_flight.iter().find(is_it).map(|operation| operation.submission)
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

    /// Whether somebody has to take a turn: there is something to do that no thread with a turn comes to soon.
    pub(super) fn needs_turn(&self) -> bool {
        let is_covered = self.is_scheduled || self.turns > 0 && self.issuing.is_none();
        !is_covered && self.has_work()
    }

    /// Whether something can be issued or retired.
    pub(super) fn has_work(&self) -> bool {
        self.can_issue() || self.can_retire()
    }

    /// Whether [`State::next_retirement`] has something.
    pub(super) fn can_retire(&self) -> bool {
        !self.is_retiring
            && (!self.cancelled.is_empty() || self.is_first_operation_over() || self.is_first_over())
    }

    fn is_first_operation_over(&self) -> bool {
        let Some(first) = self.in_flight.front() else { return false };
        match &first.status {
            Status::At(_) => false,
            Status::Completed(_) => true,
            Status::Follows => true,
            Status::Watched => self.awaited(first).is_none_or(|(event, value)| !event.is_pending(value)),
        }
    }

    /// The event that an operation waits for.
    fn awaited(&self, operation: &Operation<B::Fence>) -> Option<(&Arc<dyn Event>, u64)> {
        let Kind::Wait(command) = operation.kind else { return None };
        match &self.pending(operation.submission)?.commands[command] {
            Command::Wait { event, value } => Some((event, *value)),
            _ => None,
        }
    }

    fn is_first_over(&self) -> bool {
        let Some(first) = self.pending.front() else { return false };
        first.in_flight == 0
            && !self.is_suspended
            && self.issuing != Some(first.id)
            && !(self.is_held
                && first.next == 0
                && matches!(first.verdict, None | Some(Verdict::Poisoned(_))))
            && (self.issued > 0 || first.verdict.is_some() || first.stop.is_some())
    }

    /// What is to be done about what has completed.
    pub(super) fn next_retirement(&mut self, backend: &B) -> Option<ToRetire<B>> {
        loop {
            if let Some(cancelled) = self.cancelled.pop_front() {
                self.ending = Some(cancelled.id);
                return Some(ToRetire::End(cancelled, Err(Error::Cancelled)));
            }
            if self.is_first_operation_over() {
                if let Some(to_retire) = self.retire_operation(backend) {
                    return Some(to_retire);
                }
            } else if self.is_first_over() {
                return self.end_first(backend);
            } else {
                return None;
            }
        }
    }

    /// Retire the first operation.
    fn retire_operation(&mut self, backend: &B) -> Option<ToRetire<B>> {
        let first = self.in_flight.front()?;
        if let (Status::Follows, Some((event, value))) = (&first.status, self.awaited(first))
            && event.is_pending(value)
        {
            // The device knows of it before the host does.
            let watch = ToRetire::Watch(event.clone(), value);
            self.in_flight.front_mut()?.status = Status::Watched;
            return Some(watch);
        }
        let Operation { submission, kind, status } = self.in_flight.pop_front()?;
        self.made_room();
        let at = self.find(submission)?;
        let pending = &mut self.pending[at];
        pending.in_flight -= 1;
        pending.has_effect |= kind != Kind::Start;
        let ns = match status {
            Status::Completed(Completed::Executed { start_ns, end_ns }) => {
                if kind == Kind::Start {
                    pending.start_ns = Some(end_ns);
                } else if kind == Kind::Commands {
                    pending.start_ns.get_or_insert(start_ns.unwrap_or(end_ns));
                    pending.end_ns = pending.end_ns.max(Some(end_ns));
                }
                Some(end_ns)
            }
            Status::Completed(Completed::Failed(error)) => {
                self.fail(at, error);
                return None;
            }
            Status::Completed(Completed::Poisoned(error)) => {
                pending.verdict.get_or_insert(Verdict::Poisoned(error));
                return None;
            }
            Status::Completed(Completed::Cancelled) | Status::At(_) => None,
            Status::Follows | Status::Watched => pending.end_ns,
        };
        if pending.verdict.is_some() {
            return None;
        }
        match (kind, &pending.commands.get(kind.command()?)?) {
            (Kind::Signal(_), Command::Signal { event, value }) => {
                Some(ToRetire::Signal(event.clone(), *value, ns))
            }
            (Kind::Timestamp(_), Command::Timestamp { into }) => {
                into.set(ns.unwrap_or_else(|| backend.now_ns()));
                None
            }
            (Kind::Wait(_), Command::Wait { event, value }) if event.value() < *value => {
                let cause = event.failure()?;
                self.fail(at, cause);
                None
            }
            _ => None,
        }
    }

    /// End the first submission, or suspend the queue over its failure.
    fn end_first(&mut self, backend: &B) -> Option<ToRetire<B>> {
        let is_issued = self.issued > 0;
        let first = self.pending.front_mut()?;
        if first.verdict.is_none()
            && let Some(cause) = first.stop.as_ref()
            && !(first.has_begun && first.next == first.commands.len())
        {
            first.verdict = Some(Verdict::Failed(cause.clone()));
        }
        if let Some(Verdict::Failed(error)) = &first.verdict
            && !first.is_final
            && backend.suspends(&mut first.work, error)
        {
            self.is_suspended = true;
            return None;
        }
        let first = self.pending.pop_front()?;
        self.ending = Some(first.id);
        match is_issued {
            true => self.issued -= 1,
            false => self.blocked_at = None,
        }
        let result = match &first.verdict {
            None => Ok(Times { start_ns: first.start_ns, end_ns: first.end_ns }),
            Some(Verdict::Cancelled) => Err(Error::Cancelled),
            Some(Verdict::Poisoned(error)) => Err(error.clone()),
            Some(Verdict::Lost(error)) => {
                self.failure.get_or_insert_with(|| error.clone());
                Err(error.clone())
            }
            Some(Verdict::Failed(error)) => {
                let error = error.clone();
                self.poison_all(&error);
                Err(error)
            }
        };
        Some(ToRetire::End(first, result))
    }

    /// What is pending ends in this failure, which is the queue's.
    fn poison_all(&mut self, error: &Error) {
        for pending in &mut self.pending {
            if matches!(pending.verdict, None | Some(Verdict::Failed(_))) {
                pending.verdict = Some(Verdict::Poisoned(error.poison()));
            }
        }
        self.failure = Some(error.clone());
        self.has_failed = false;
    }

    /// Take a submission out that has not begun: `Some(true)`. `Some(false)` if it has begun; `None` if it has ended.
    pub(super) fn cancel(&mut self, id: u64) -> Option<bool> {
        let at = self.find(id)?;
        let pending = &self.pending[at];
        if pending.has_begun || pending.in_flight > 0 {
            return Some(false);
        }
        self.take_out(at);
        Some(true)
    }

    /// Whether the device could take back a submission that has begun: nothing of it has taken effect, and commands come first.
    pub(super) fn may_be_taken_back(&self, id: u64) -> bool {
        let first = self.in_flight.iter().find(|operation| operation.submission == id);
        let is_in_flight = first.is_some_and(|first| matches!(first.status, Status::At(_)));
        is_in_flight && self.pending(id).is_some_and(|pending| !pending.has_effect)
    }

    fn take_out(&mut self, at: usize) {
        if at < self.issued {
            self.issued -= 1;
        } else if at == self.issued {
            self.blocked_at = None;
        }
        self.cancelled.extend(self.pending.remove(at));
        self.has_failed =
            self.pending.iter().any(|pending| matches!(pending.verdict, Some(Verdict::Failed(_))));
    }

    /// The device has taken back a submission that had begun: it ends when no operation of it is in flight any more.
    pub(super) fn was_cancelled(&mut self, id: u64) {
        let Some(at) = self.find(id) else { return };
        let mut marks = 0;
        self.in_flight.retain(|operation| {
            let is_mark =
                operation.submission == id && matches!(operation.status, Status::Follows | Status::Watched);
            marks += usize::from(is_mark);
            !is_mark
        });
        let pending = &mut self.pending[at];
        pending.in_flight -= marks;
        pending.verdict.get_or_insert(Verdict::Cancelled);
        if pending.in_flight == 0
            && matches!(pending.verdict, Some(Verdict::Cancelled))
            && self.issuing != Some(id)
        {
            self.take_out(at);
        }
        self.made_room();
    }

    /// Have a submission end in `cause`. Whether it has not ended, and what is to be called without the lock.
    pub(super) fn stop(
        &mut self,
        id: u64,
        cause: Error,
        backend: &B,
    ) -> Result<Option<Option<Deferred<B, ()>>>> {
        let Some(at) = self.find(id) else { return Ok(None) };
        let is_blocked = at == self.issued && self.blocked_at.is_some();
        let is_issuing = self.issuing == Some(id) && self.pending[at].has_begun;
        let has_commands = self.fences(Some(id)).next().is_some();
        let mut deferred = None;
        if is_issuing || has_commands {
            let asked = backend.stop(&self.pending[at].work, &mut self.fences(Some(id)), &cause);
            deferred = match asked {
                Err(_) if is_blocked => None,
                asked => asked?,
            };
        }
        self.pending[at].stop.get_or_insert(cause);
        if is_blocked {
            self.blocked_at = None;
        }
        Ok(Some(deferred))
    }

    /// Forget the failure.
    pub(super) fn acknowledge(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// Let everything pending end in what `cause` says of its commands, as soon as nothing of it is in flight; where the
    /// device is gone, so is what was in flight, whose fences are the answer. The failure is `failure`, unless there is one.
    pub(super) fn abandon(
        &mut self,
        is_gone: bool,
        failure: &Error,
        mut cause: impl FnMut(&Arc<[Command]>) -> Error,
    ) -> Vec<B::Fence> {
        if !self.pending.is_empty() {
            self.failure.get_or_insert_with(|| failure.clone());
        }
        for pending in &mut self.pending {
            if !matches!(pending.verdict, Some(Verdict::Cancelled)) {
                let verdict = pending.verdict.take();
                let own = match &verdict {
                    Some(Verdict::Failed(error)) => Some(error.clone()),
                    Some(_) => None,
                    None => Some(cause(&pending.commands)),
                };
                pending.verdict = own.map(Verdict::Lost).or(verdict);
            }
            if is_gone {
                pending.in_flight = 0;
            }
        }
        (self.has_failed, self.is_suspended) = (false, false);
        if !is_gone {
            return Vec::new();
        }
        (self.drain, self.is_full) = (false, false);
        let gone = std::mem::take(&mut self.in_flight);
        gone.into_iter()
            .filter_map(|operation| match operation.status {
                Status::At(fence) => Some(fence),
                _ => None,
            })
            .collect()
    }

    /// The first submission, if commands of it are in flight, and what it is to stop in.
    pub(super) fn first_in_flight(&self) -> Option<(u64, Option<&Error>)> {
        let first = self.pending.front()?;
        self.fences(Some(first.id)).next().map(|_| (first.id, first.stop.as_ref()))
    }

    /// All commands in flight are lost: the first submission of them fails with what it was to stop in, or `cause`.
    pub(super) fn lose_commands(&mut self, cause: &Error) {
        let first = self.in_flight.iter().find(|operation| matches!(operation.status, Status::At(_)));
        let Some(first) = first.map(|operation| operation.submission) else { return };
        let stop = self.pending(first).and_then(|pending| pending.stop.clone());
        let error = stop.unwrap_or_else(|| cause.clone());
        for operation in &mut self.in_flight {
            if matches!(operation.status, Status::At(_)) {
                let completed = match operation.submission == first {
                    true => Completed::Failed(error.clone()),
                    false => Completed::Poisoned(error.poison()),
                };
                operation.status = Status::Completed(completed);
            }
        }
    }

    /// The first submission's failure was dealt with: issue it and those behind it again, from the start. `has_begun` says of
    /// each whether the device may have begun it.
    pub(super) fn retry(&mut self, has_begun: impl Fn(&B::Work) -> bool) {
        for pending in &mut self.pending {
            if matches!(pending.verdict, None | Some(Verdict::Failed(_))) {
                let has_begun = has_begun(&pending.work);
                (pending.verdict, pending.next, pending.has_begun, pending.has_effect) =
                    (None, 0, has_begun, false);
                (pending.start_ns, pending.end_ns) = (None, None);
            }
        }
        (self.issued, self.blocked_at) = (0, None);
        (self.has_failed, self.is_suspended) = (false, false);
    }

    /// The first submission's commands before `next` were executed elsewhere: go on behind them.
    pub(super) fn complete_first(
        &mut self,
        next: usize,
        timing: Timing,
        has_begun: impl Fn(&B::Work) -> bool,
    ) {
        self.retry(has_begun);
        if let Some(first) = self.pending.front_mut() {
            (first.next, first.has_begun) = (next, true);
            (first.start_ns, first.end_ns) = (Some(timing.start_ns), Some(timing.end_ns));
        }
    }

    /// The first submission has failed for good.
    pub(super) fn fail_first(&mut self, error: Error) {
        self.is_suspended = false;
        if let Some(first) = self.pending.front_mut() {
            first.is_final = true;
            first.verdict = Some(Verdict::Failed(error));
        }
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
    /// What it is to stop in.
    pub(super) fn stop(&self) -> Option<&Error> {
        self.stop.as_ref()
    }
}
