//! [`SubmissionQueue`]: the state machine with its lock, and the two roles that drive it.
//!
//! *Issue* begins commands; *retire* raises events and ends submissions. At most one thread has each role; the two run concurrently. A
//! thread that finds a role taken leaves the work to its holder, which checks again under the lock before it gives up the role.
//! Only retire makes callbacks, on a thread of the backend, without the lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use super::backend::{Backend, Completed, Issue, Issued, Suspended, Waiting};
use super::state::{Kind, State, ToIssue, ToRetire};
use crate::sync::{Mutex, MutexGuard};
use crate::{Command, Done, Error, Event, Result, Submission, Timing, begin_log, end_submission, panic_text};

/// The submissions of one queue of a device.
pub struct SubmissionQueue<B: Backend> {
    backend: B,
    state: Mutex<State<B>>,
}

/// Outstanding work of a queue, to be run by the holder. Dropping it passes the work to [`Backend::schedule`].
pub struct Turn<B: Backend>(Option<Arc<SubmissionQueue<B>>>);

impl<B: Backend> Turn<B> {
    /// The queue. The caller must call [`SubmissionQueue::turn`].
    pub fn into_queue(mut self) -> Option<Arc<SubmissionQueue<B>>> {
        self.0.take()
    }
}

impl<B: Backend> Drop for Turn<B> {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            let backend = queue.clone();
            backend.backend.schedule(queue);
        }
    }
}

impl<B: Backend> SubmissionQueue<B> {
    /// An empty queue.
    pub fn new(backend: B) -> Arc<Self> {
        Arc::new(Self { backend, state: Mutex::new(State::default()) })
    }

    /// An empty queue, whose backend gets a weak reference to it.
    pub fn new_cyclic(backend: impl FnOnce(&Weak<Self>) -> B) -> Arc<Self> {
        Arc::new_cyclic(|queue| Self { backend: backend(queue), state: Mutex::new(State::default()) })
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Add a submission, and issue as much as possible. The returned [`Turn`] is the remaining work, if any.
    ///
    /// # Errors
    /// The error of [`Backend::admit`]; `done` is dropped without a call.
    pub fn submit(
        self: &Arc<Self>,
        commands: Arc<[Command]>,
        done: Done,
    ) -> Result<(Submission, Option<Turn<B>>)> {
        self.submit_with(commands, done, self.backend.work())
    }

    /// As [`SubmissionQueue::submit`], with a given state.
    ///
    /// # Errors
    /// As [`SubmissionQueue::submit`].
    pub fn submit_with(
        self: &Arc<Self>,
        commands: Arc<[Command]>,
        done: Done,
        work: B::Work,
    ) -> Result<(Submission, Option<Turn<B>>)> {
        self.backend.expect_here("a submission")?;
        self.backend.admit(&commands)?;
        begin_log(&commands);
        let mut state = self.state.lock();
        let id = state.submit(commands, work, done);
        state.keep.get_or_insert_with(|| self.clone());
        Ok((Submission(id), self.advance_from(state)))
    }

    /// As [`Queue::cancel`](crate::Queue::cancel).
    pub fn cancel(self: &Arc<Self>, submission: Submission) -> bool {
        let id = submission.0;
        if self.backend.expect_here("a cancellation").is_err() {
            return false;
        }
        let mut state = self.state.lock();
        match state.cancel(id, &self.backend) {
            None => return false,
            Some(true) => drop(state),
            Some(false) => {
                let pending = state.pending(id).filter(|_| state.may_be_taken_back(id));
                let asked = pending
                    .and_then(|pending| self.backend.cancel(&pending.work, &mut state.fences(Some(id))));
                drop(state);
                if !asked.is_some_and(|ask| ask(self)) {
                    return false;
                }
                self.state.lock().was_cancelled(id);
            }
        }
        drop(self.advance());
        true
    }

    /// As [`Queue::stop`](crate::Queue::stop).
    ///
    /// # Errors
    /// The error of [`Backend::stop`].
    pub fn stop(self: &Arc<Self>, submission: Submission, cause: Error) -> Result<bool> {
        self.backend.expect_here("a stop")?;
        let mut state = self.state.lock();
        let Some(deferred) = state.stop(submission.0, cause, &self.backend)? else { return Ok(false) };
        drop(state);
        let stopped = deferred.map_or(Ok(()), |deferred| deferred(self));
        if stopped.is_err() {
            self.state.lock().withdraw_stop(submission.0);
        }
        drop(self.advance());
        stopped.map(|()| true)
    }

    /// As [`Queue::acknowledge`](crate::Queue::acknowledge).
    pub fn acknowledge(&self) -> Option<Error> {
        self.backend.expect_here("an acknowledgement").ok()?;
        let failure = self.state.lock().acknowledge()?;
        self.backend.acknowledged();
        Some(failure)
    }

    /// Resume issue after [`Issued::Full`].
    pub fn resume(self: &Arc<Self>) {
        self.state.lock().resume();
        drop(self.advance());
    }

    /// Hold back submissions that have not begun, until [`SubmissionQueue::release`].
    pub fn hold(&self) {
        self.state.lock().hold(true);
    }

    /// End [`SubmissionQueue::hold`].
    pub fn release(self: &Arc<Self>) {
        self.state.lock().hold(false);
        drop(self.advance());
    }

    /// Whether all submissions up to `last` have ended and their `done` has returned. [`Backend::ended`] is called after this becomes
    /// true.
    pub fn has_ended(&self, last: u64) -> bool {
        self.state.lock().has_ended(last)
    }

    /// Complete the first operation whose fence matches `is_it`. Returns its fence; `None` if no operation matches. The caller must then
    /// call [`SubmissionQueue::turn`].
    pub fn complete(&self, is_it: impl Fn(&B::Fence) -> bool, completed: Completed) -> Option<B::Fence> {
        self.state.lock().complete(is_it, completed)
    }

    /// Complete the operation with the first fence; `completed` maps the fence to the result. Otherwise as
    /// [`SubmissionQueue::complete`].
    pub fn complete_next(&self, completed: impl FnOnce(&B::Fence) -> Completed) -> Option<B::Fence> {
        let mut state = self.state.lock();
        let completed = state.fences(None).next().map(completed)?;
        state.complete(|_| true, completed)
    }

    /// Access the fences of the operations in flight, in order.
    pub fn with_fences<R>(&self, f: impl FnOnce(&mut dyn Iterator<Item = &B::Fence>) -> R) -> R {
        let state = self.state.lock();
        f(&mut state.fences(None))
    }

    /// Access the commands of the submissions that have begun and not ended, in order.
    pub fn with_begun<R>(&self, f: impl FnOnce(&mut dyn Iterator<Item = &Arc<[Command]>>) -> R) -> R {
        let state = self.state.lock();
        f(&mut state.begun().map(|pending| &pending.commands))
    }

    /// Access the state of a submission that has not ended.
    pub fn with_work<R>(&self, submission: u64, f: impl FnOnce(&mut B::Work) -> R) -> Option<R> {
        self.state.lock().pending_mut(submission).map(|pending| f(&mut pending.work))
    }

    /// Access the first operation in flight whose fence matches `is_it`: the fence, the commands of its submission, and the cause of
    /// its stop, if it was stopped.
    pub fn with_operation<R>(
        &self,
        is_it: impl Fn(&B::Fence) -> bool,
        f: impl FnOnce(&B::Fence, &Arc<[Command]>, Option<&Error>) -> R,
    ) -> Option<R> {
        let state = self.state.lock();
        state.operation(is_it).map(|(fence, pending)| f(fence, &pending.commands, pending.stop()))
    }

    /// The first submission that has not ended.
    pub fn first(&self) -> Option<Submission> {
        self.state.lock().first().map(Submission)
    }

    /// The first submission, if commands of it are in flight, and the cause of its stop, if it was stopped.
    pub fn first_in_flight(&self) -> Option<(Submission, Option<Error>)> {
        let state = self.state.lock();
        state.first_in_flight().map(|(id, stop)| (Submission(id), stop.cloned()))
    }

    /// Number of the last submission, ended or not; 0 if there was none.
    pub fn last(&self) -> u64 {
        self.state.lock().last()
    }

    /// Number of operations in flight.
    pub fn in_flight(&self) -> usize {
        self.state.lock().in_flight()
    }

    /// End all pending submissions in the error that `cause` returns for their commands, each when none of its operations is in flight.
    /// If the device `is_gone`, the operations in flight are dropped and their fences returned. The queue's failure becomes `failure`,
    /// unless it already has one.
    pub fn abandon(
        &self,
        is_gone: bool,
        failure: &Error,
        cause: impl FnMut(&Arc<[Command]>) -> Error,
    ) -> Vec<B::Fence> {
        self.state.lock().abandon(is_gone, failure, cause)
    }

    /// Fail all commands in flight, because the device's process has ended. The first submission with such commands fails with the
    /// cause of its stop, or else with `cause`; those behind it are poisoned.
    pub fn lose_commands(&self, cause: &Error) {
        self.state.lock().lose_commands(cause);
    }

    /// Access the submission whose failure has suspended the queue. `None` while operations are in flight.
    pub fn with_suspended<R>(&self, f: impl FnOnce(Suspended<'_, B>) -> R) -> Option<R> {
        self.state.lock().suspended().map(f)
    }

    /// Whether no pending submission will be issued: there is none, or the error of each is already known.
    pub fn is_decided(&self) -> bool {
        self.state.lock().is_decided()
    }

    /// Whether a failure has suspended the queue.
    pub fn is_suspended(&self) -> bool {
        self.state.lock().is_suspended()
    }

    /// Resume a suspended queue ([`Backend::suspends`]): reissue the first submission and those behind it. Returns `false` if the queue
    /// is no longer suspended over this submission, or the submission was stopped.
    pub fn retry(self: &Arc<Self>, first: Submission) -> bool {
        self.go_on(|state| state.retry(first.0, &self.backend))
    }

    /// Resume a suspended queue ([`Backend::suspends`]): the commands of the first submission before `next` were executed elsewhere;
    /// later submissions are reissued. Returns `false` if the queue is no longer suspended over this submission.
    pub fn complete_first(self: &Arc<Self>, first: Submission, next: usize, timing: Timing) -> bool {
        self.go_on(|state| state.complete_first(first.0, next, timing, &self.backend))
    }

    /// Resume a suspended queue ([`Backend::suspends`]): fail the first submission and poison those behind it. Returns `false` if the
    /// queue is no longer suspended over this submission.
    pub fn fail_first(self: &Arc<Self>, first: Submission, error: Error) -> bool {
        self.go_on(|state| state.fail_first(first.0, error))
    }

    fn go_on(self: &Arc<Self>, f: impl FnOnce(&mut State<B>) -> bool) -> bool {
        let has_changed = f(&mut self.state.lock());
        if has_changed {
            drop(self.advance());
        }
        has_changed
    }

    /// Retire as much as possible, and leave issue to the backend. Must be called on a thread that may make callbacks.
    pub fn settle(self: &Arc<Self>) {
        self.leave(self.retire(self.state.lock()));
    }

    /// Issue and retire as much as possible. Must be called on a thread that may make callbacks.
    pub fn turn(self: &Arc<Self>, thread: &mut B::Thread) {
        let mut state = self.state.lock();
        (state.is_scheduled, state.turns) = (false, state.turns + 1);
        loop {
            state = self.issue(state, thread, true);
            state = self.retire(state);
            if !state.has_work() {
                break;
            }
            drop(state);
            let has_others = self.backend.yields(thread);
            state = self.state.lock();
            if has_others {
                break;
            }
        }
        state.turns -= 1;
        self.leave(state);
    }

    /// End a turn: pass remaining work to the backend; if the queue is idle, drop its reference to itself.
    fn leave(self: &Arc<Self>, mut state: MutexGuard<'_, State<B>>) {
        let to_schedule = state.needs_turn();
        state.is_scheduled |= to_schedule;
        let kept = if state.is_idle() { state.keep.take() } else { None };
        drop(state);
        if to_schedule {
            self.backend.schedule(self.clone());
        }
        drop(kept);
    }

    pub(super) fn announce_commands(&self, submission: u64, next: usize, fence: B::Fence) {
        self.state.lock().announce_commands(submission, next, fence);
    }

    pub(super) fn announce_start(&self, submission: u64, fence: B::Fence) {
        self.state.lock().announce(submission, Kind::Start, Some(fence));
    }

    pub(super) fn announce_mark(&self, submission: u64, command: usize, fence: B::Fence) {
        self.state.lock().announce_mark(submission, command, fence);
    }

    pub(super) fn retract(&self, submission: u64, next: usize) -> Option<B::Fence> {
        self.state.lock().retract(submission, next)
    }

    /// Issue as much as the calling thread can. Returns the remaining work, unless another thread has it.
    pub fn advance(self: &Arc<Self>) -> Option<Turn<B>> {
        self.advance_from(self.state.lock())
    }

    fn advance_from<'s>(self: &'s Arc<Self>, mut state: MutexGuard<'s, State<B>>) -> Option<Turn<B>> {
        if let Some(mut thread) = B::thread() {
            state = self.issue(state, &mut thread, false);
        }
        if !state.needs_turn() {
            return None;
        }
        state.is_scheduled = true;
        Some(Turn(Some(self.clone())))
    }

    /// Issue until nothing more can be issued, or commands were executed synchronously. In a turn, retirement has priority, so that an
    /// event is raised before the commands behind it are executed.
    fn issue<'s>(
        self: &'s Arc<Self>,
        mut state: MutexGuard<'s, State<B>>,
        thread: &mut B::Thread,
        in_turn: bool,
    ) -> MutexGuard<'s, State<B>> {
        while !(in_turn && state.can_retire())
            && let Some(to_issue) = state.next_issue()
        {
            drop(state);
            state = match to_issue {
                ToIssue::Begin(position) => {
                    let (id, had_begun) = (position.submission, position.had_begun);
                    let mut issue = Issue { queue: self, position };
                    let result = self.contained(|| self.backend.begin(&mut issue, thread));
                    let was_executed = matches!(result, Ok(Issued::Executed { .. }));
                    let mut state = self.state.lock();
                    state.was_begun(id, had_begun, result);
                    if was_executed {
                        return state;
                    }
                    state
                }
                ToIssue::Mark(position) => {
                    let (id, command) = (position.submission, position.next);
                    let is_announced = self.backend.mark(&mut Issue { queue: self, position });
                    let mut state = self.state.lock();
                    state.was_marked(id, command, is_announced, || self.backend.now_ns());
                    state
                }
                ToIssue::Wait(position, event, value) => {
                    let id = position.submission;
                    let mut issue = Issue { queue: self, position };
                    let result = self.contained(|| self.backend.wait(&mut issue, &event, value));
                    let by_promise = matches!(result, Ok(Waiting::Promise));
                    let mut state = self.state.lock();
                    if let Some(number) = state.was_waited_for(id, result) {
                        drop(state);
                        self.unblock_at(number, &*event, value, by_promise);
                        return self.state.lock();
                    }
                    state
                }
            };
        }
        state
    }

    /// Unblock issue when an event has reached a value or has failed, or already when that is promised.
    fn unblock_at(self: &Arc<Self>, number: u64, event: &dyn Event, value: u64, by_promise: bool) {
        let queue = self.clone();
        let unblock = move || {
            if queue.state.lock().unblock(number) {
                drop(queue.advance());
            }
        };
        match by_promise {
            true => event.when_expected(value, Box::new(unblock)),
            false => event.when(value, Box::new(move |_| unblock())),
        }
    }

    /// Raise events and end submissions, in order.
    fn retire<'s>(self: &'s Arc<Self>, mut state: MutexGuard<'s, State<B>>) -> MutexGuard<'s, State<B>> {
        if state.is_retiring {
            return state;
        }
        state.is_retiring = true;
        while let Some(to_retire) = state.next_retirement(&self.backend) {
            drop(state);
            match to_retire {
                ToRetire::Signal(event, value, ns) => {
                    let ns = ns.unwrap_or_else(|| self.backend.now_ns());
                    // A panic comes from a user callback; the panic hook has already reported it.
                    let _panic = catch_unwind(AssertUnwindSafe(|| event.signal(value, ns)));
                }
                ToRetire::Watch(event, value) => self.watch(&*event, value),
                ToRetire::End(pending, result) => {
                    self.backend.recycle(pending.work);
                    let result = result.map(|times| times.timing(|| self.backend.now_ns()));
                    end_submission(pending.commands, pending.done, result);
                    self.state.lock().has_reported_end();
                    self.backend.ended(self, Submission(pending.id));
                }
            }
            state = self.state.lock();
        }
        state.is_retiring = false;
        state
    }

    fn watch(self: &Arc<Self>, event: &dyn Event, value: u64) {
        let queue = self.clone();
        event.when(value, Box::new(move |_| drop(queue.advance())));
    }

    /// Run `f`, converting a panic to an error.
    fn contained<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(f))
            .unwrap_or_else(|panic| Err(self.backend.panicked(panic_text(&*panic))))
    }
}
