//! A queue: submissions in order, at most one running, on whichever worker has the queue's turn.
//!
//! A submission that comes to an event that is not there yet is put aside and its worker goes on to other queues; the
//! event's callback gives the queue its next turn.
//!
//! Invariants:
//! - `scheduled` is true exactly while a task for this queue is in the pool or running, or a submission is put aside, so
//!   that at most one worker works on it.
//! - What a submission ends in is fixed early: a failure marks all submissions that wait behind it,
//!   and, until it is acknowledged, those that come. Acknowledging unmarks none.
//! - `done` is called once, on a worker, without any lock held.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use elinvar_driver::sync::Mutex;
use elinvar_driver::{
    Command, Done, Error, Event, Priority, Queue, Result, Submission, Timing, end_submission,
};

use crate::job::panic_error;
use crate::pool::{Pool, Worker};
use crate::stop::Stop;
use crate::{encode, host};

/// A queue's handle. The pool, or the event that it waits for, keeps the rest alive while there is something to do.
pub(crate) struct CpuQueue {
    lane: Arc<Lane>,
}

struct Lane {
    pool: Arc<Pool>,
    priority: Priority,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Entry>,
    /// The submission that has come to an event that is not there yet.
    aside: Option<Entry>,
    last_id: u64,
    failure: Option<Error>,
    scheduled: bool,
    /// The submission that runs, and the word to it.
    running: Option<(u64, Arc<Stop>)>,
}

struct Entry {
    id: u64,
    commands: Arc<[Command]>,
    /// Number of the command that comes next.
    next: usize,
    /// When the first began.
    start_ns: Option<u64>,
    stop: Arc<Stop>,
    done: Done,
    /// Set when it is not to run.
    poison: Option<Error>,
}

impl CpuQueue {
    pub(crate) fn new(pool: Arc<Pool>, priority: Priority) -> Self {
        Self { lane: Arc::new(Lane { pool, priority, state: Mutex::default() }) }
    }
}

/// A queue's turn, for whoever takes it; the pool if nobody does.
pub(crate) struct Turn {
    /// `None` once it is taken.
    lane: Option<Arc<Lane>>,
}

impl Turn {
    /// Run it on a guest's thread, unless workers of the pool come first.
    pub(crate) fn run(mut self, guest: &mut Worker) {
        let Some(lane) = self.lane.take() else { return };
        let (pool, priority) = (lane.pool.clone(), lane.priority);
        if let Some(task) = guest.invite(Box::new(move |worker| lane.take_turn(worker))) {
            pool.push_with(priority, task);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.take() {
            lane.schedule();
        }
    }
}

impl CpuQueue {
    /// As [`Queue::submit`]; the queue's turn is the caller's, if nobody has it.
    pub(crate) fn enter(&self, commands: Arc<[Command]>, done: Done) -> (Submission, Option<Turn>) {
        let mut state = self.lane.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        let poison = state.failure.as_ref().map(Error::poison);
        state.waiting.push_back(Entry {
            id,
            commands,
            next: 0,
            start_ns: None,
            stop: Arc::default(),
            done,
            poison,
        });
        let was_scheduled = std::mem::replace(&mut state.scheduled, true);
        drop(state);
        let turn = (!was_scheduled).then(|| Turn { lane: Some(self.lane.clone()) });
        (Submission(id), turn)
    }
}

#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: `done` is called once the last command has ended, or before the first begins.
unsafe impl Queue for CpuQueue {
    fn submit(&self, commands: Arc<[Command]>, done: Done) -> Result<Submission> {
        self.lane.pool.expect_here("a submission")?;
        Ok(self.enter(commands, done).0)
    }

    fn cancel(&self, submission: Submission) -> bool {
        if self.lane.pool.expect_here("a cancellation").is_err() {
            return false;
        }
        let mut state = self.lane.state.lock();
        let aside = state.aside.take_if(|entry| entry.id == submission.0 && entry.has_only_waited());
        let goes_on = aside.is_some();
        let entry = aside.or_else(|| {
            // Ids ascend, with gaps where others were cancelled.
            let index = state.waiting.binary_search_by_key(&submission.0, |entry| entry.id).ok()?;
            let has_begun = !state.waiting[index].has_only_waited();
            if has_begun { None } else { state.waiting.remove(index) }
        });
        let Some(entry) = entry else { return false };
        drop(state);
        self.lane.pool.push(Box::new(move |_| entry.end(Err(Error::Cancelled))));
        if goes_on {
            self.lane.schedule();
        }
        true
    }

    fn stop(&self, submission: Submission, cause: Error) -> Result<bool> {
        self.lane.pool.expect_here("a stop")?;
        let mut state = self.lane.state.lock();
        if let Some((_, stop)) = state.running.as_ref().filter(|(id, _)| *id == submission.0) {
            stop.set(cause);
            return Ok(true);
        }
        if let Some(entry) = state.waiting.iter().find(|entry| entry.id == submission.0) {
            entry.stop.set(cause);
            return Ok(true);
        }
        // One that is put aside gets its turn, in which it ends.
        let aside = state.aside.take_if(|entry| entry.id == submission.0);
        let Some(entry) = aside else { return Ok(false) };
        entry.stop.set(cause);
        state.waiting.push_front(entry);
        drop(state);
        self.lane.schedule();
        Ok(true)
    }

    fn acknowledge(&self) -> Option<Error> {
        self.lane.pool.expect_here("an acknowledgement").ok()?;
        self.lane.state.lock().failure.take()
    }
}

impl Lane {
    fn schedule(self: &Arc<Self>) {
        let lane = self.clone();
        self.pool.push_with(self.priority, Box::new(move |worker| lane.take_turn(worker)));
    }

    /// Run submissions in order, until none waits, one is put aside, or another task waits for a worker.
    fn take_turn(self: Arc<Self>, worker: &mut Worker) {
        while let Some(mut entry) = self.begin() {
            match self.run(&mut entry, worker) {
                Ok(Some((event, value))) => return self.put_aside(entry, &*event, value),
                Ok(None) => {
                    let timing = Timing { start_ns: entry.start_ns.unwrap_or(0), end_ns: host::now_ns() };
                    entry.end(Ok(timing));
                }
                Err(error) => entry.end(Err(error)),
            }
            if worker.tasks_wait() {
                let priority = self.priority;
                return worker.push_with(priority, Box::new(move |worker| self.take_turn(worker)));
            }
        }
    }

    fn begin(&self) -> Option<Entry> {
        let mut state = self.state.lock();
        let entry = state.waiting.pop_front();
        state.scheduled = entry.is_some();
        state.running = entry.as_ref().map(|entry| (entry.id, entry.stop.clone()));
        entry
    }

    /// As [`encode::run`]; a failure marks what waits behind.
    fn run(&self, entry: &mut Entry, worker: &mut Worker) -> Result<Option<(Arc<dyn Event>, u64)>> {
        if let Some(poison) = entry.poison.take() {
            return Err(poison);
        }
        entry.start_ns.get_or_insert_with(host::now_ns);
        let result = contained(|| encode::run(&entry.commands, &mut entry.next, &entry.stop, worker));
        self.state.lock().running = None;
        if let Err(error) = &result {
            self.fail(error);
        }
        result
    }

    /// Keep a submission until the event is there. Nothing of the queue may be touched after it: another worker may have
    /// its turn by then.
    fn put_aside(self: Arc<Self>, entry: Entry, event: &dyn Event, value: u64) {
        let (id, next) = (entry.id, entry.next);
        let mut state = self.state.lock();
        if entry.stop.check().is_err() {
            state.waiting.push_front(entry);
            drop(state);
            return self.schedule();
        }
        state.aside = Some(entry);
        drop(state);
        let resume = move |_| {
            let mut state = self.state.lock();
            let entry = state.aside.take_if(|entry| entry.id == id && entry.next == next);
            // Without it, it was cancelled, and the queue has its turn.
            if let Some(entry) = entry {
                state.waiting.push_front(entry);
                drop(state);
                self.schedule();
            }
        };
        event.when(value, Box::new(resume));
    }

    fn fail(&self, error: &Error) {
        let mut state = self.state.lock();
        for entry in &mut state.waiting {
            entry.poison = Some(error.poison());
        }
        state.failure = Some(error.clone());
    }
}

impl Entry {
    /// Whether it has come no further than an event.
    fn has_only_waited(&self) -> bool {
        self.commands[..self.next].iter().all(|command| matches!(command, Command::Wait { .. }))
    }

    fn end(self, result: Result<Timing>) {
        end_submission(self.commands, self.done, result);
    }
}

/// Run `f`; its panic becomes an error.
fn contained<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| Err(panic_error(&*payload)))
}
