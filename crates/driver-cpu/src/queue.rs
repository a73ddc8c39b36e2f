//! A queue: submissions in order, at most one running, on whichever worker has the queue's turn.
//!
//! Invariants:
//! - `scheduled` is true exactly while a task for this queue is in the pool or running, so that at
//!   most one worker works on it.
//! - What a submission ends in is fixed early: a failure marks all submissions that wait behind it,
//!   and, until it is acknowledged, those that come. Acknowledging unmarks none.
//! - `done` is called once, on a worker, without any lock held.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use elinvar_driver::{Command, Done, Error, Queue, Result, Submission, Timing};
use parking_lot::Mutex;

use crate::encode;
use crate::job::panic_error;
use crate::pool::{Pool, Worker};

/// A queue's handle. The pool keeps the rest alive while there is something to do.
pub(crate) struct CpuQueue {
    lane: Arc<Lane>,
    pool: Arc<Pool>,
}

#[derive(Default)]
struct Lane {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Entry>,
    last_id: u64,
    failure: Option<Error>,
    scheduled: bool,
}

struct Entry {
    id: u64,
    commands: Arc<[Command]>,
    done: Done,
    /// Set when it is not to run.
    poison: Option<Error>,
}

impl CpuQueue {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        Self { lane: Arc::default(), pool }
    }
}

impl Queue for CpuQueue {
    fn submit(&self, commands: Arc<[Command]>, done: Done) -> Result<Submission> {
        let mut state = self.lane.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        let poison = state.failure.as_ref().map(Error::poison);
        state.waiting.push_back(Entry { id, commands, done, poison });
        let was_scheduled = std::mem::replace(&mut state.scheduled, true);
        drop(state);
        if !was_scheduled {
            let lane = self.lane.clone();
            self.pool.push(Box::new(move |worker| lane.take_turn(worker)));
        }
        Ok(Submission(id))
    }

    fn cancel(&self, submission: Submission) -> bool {
        let mut state = self.lane.state.lock();
        // Ids ascend, with gaps where others were cancelled.
        let Ok(index) = state.waiting.binary_search_by_key(&submission.0, |entry| entry.id) else {
            return false;
        };
        let Some(entry) = state.waiting.remove(index) else { return false };
        drop(state);
        self.pool.push(Box::new(move |_| entry.end(Err(Error::Cancelled))));
        true
    }

    fn acknowledge(&self) -> Option<Error> {
        self.lane.state.lock().failure.take()
    }
}

impl Lane {
    /// Run submissions in order, until none waits or another task does.
    fn take_turn(self: Arc<Self>, worker: &mut Worker) {
        while let Some(entry) = self.begin() {
            self.run(entry, worker);
            if worker.tasks_wait() {
                return worker.push(Box::new(move |worker| self.take_turn(worker)));
            }
        }
    }

    fn begin(&self) -> Option<Entry> {
        let mut state = self.state.lock();
        let entry = state.waiting.pop_front();
        state.scheduled = entry.is_some();
        entry
    }

    fn run(&self, mut entry: Entry, worker: &mut Worker) {
        if let Some(poison) = entry.poison.take() {
            return entry.end(Err(poison));
        }
        let result = contained(|| encode::run(&entry.commands, worker));
        if let Err(error) = &result {
            self.fail(error);
        }
        entry.end(result);
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
    /// Let go of what the commands name, and then tell. A panic of the callback ends here: the hook
    /// has reported it, and nobody is left to tell.
    fn end(self, result: Result<Timing>) {
        let Self { commands, done, .. } = self;
        let dropped = contained(|| {
            drop(commands);
            Ok(())
        });
        let result = result.and_then(|timing| dropped.map(|()| timing));
        let _panic = catch_unwind(AssertUnwindSafe(|| done(result)));
    }
}

/// Run `f`; its panic becomes an error.
fn contained<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| Err(panic_error(&*payload)))
}
