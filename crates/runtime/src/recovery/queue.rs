//! [`RecoveringQueue`]: a queue over the driver's own that keeps what it hands on until that has ended well.
//!
//! Work goes to the driver as it comes, in order. When a submission fails, those behind it end as poisoned in the driver's
//! queue; here they wait. A thread of the queue does what [`super::decide`] says about the first, and hands on again what
//! waits: to the outside nothing has happened, or the first has failed for good, which is then the queue's failure as the contract
//! has it.

use std::sync::Arc;

use elinvar_driver::{Command, Done, Error, Priority, Queue, Result, Submission};

use super::entry::{Entry, Progress};
use super::lane::Lane;
use super::{Attempts, RecoveryPolicy};
use crate::Device;
use crate::observe::trace::Notes;

/// The handle; dropping it lets what was submitted finish.
pub(crate) struct RecoveringQueue {
    lane: Arc<Lane>,
}

impl RecoveringQueue {
    pub(crate) fn new(device: &Device, priority: Priority, policy: RecoveryPolicy) -> Result<Self> {
        let lane = Lane::start(device, priority, policy)?;
        Ok(Self { lane })
    }

    /// As [`Queue::submit`]; decisions are noted with the rest of the submission.
    pub(crate) fn submit_noted(
        &self,
        commands: Arc<[Command]>,
        done: Done,
        notes: Option<Notes>,
    ) -> Result<Submission> {
        let order = self.lane.sending.lock();
        let mut state = self.lane.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        let poison = state.failure.as_ref().map(Error::poison);
        let recovery = self.lane.device.recovery();
        let (seen, tried) = (recovery.resets(), Attempts { made: 0, ..Attempts::first(recovery.work()) });
        state.entries.push_back(Entry::new(id, commands, done, notes, poison, tried, seen));
        self.lane.send(&order, state);
        Ok(Submission(id))
    }
}

#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: `done` is called when the driver's queue has called its own for the last attempt.
unsafe impl Queue for RecoveringQueue {
    fn submit(&self, commands: Arc<[Command]>, done: Done) -> Result<Submission> {
        self.submit_noted(commands, done, None)
    }

    fn cancel(&self, submission: Submission) -> bool {
        let _order = self.lane.sending.lock();
        let mut state = self.lane.state.lock();
        let Some(at) = state.find(submission.0) else { return false };
        match state.entries[at].progress {
            Progress::Sent(inner) => {
                drop(state);
                self.lane.inner.cancel(inner)
            }
            Progress::Waiting if !(state.entries[at].begun || at == 0 && state.recovering) => {
                let entry = state.remove(at);
                state.ends.push((entry, Err(Error::Cancelled)));
                self.lane.changed.notify_all();
                true
            }
            _ => false,
        }
    }

    fn spin(&self, is_over: &mut dyn FnMut() -> bool) {
        self.lane.inner.spin(is_over);
    }

    fn stop(&self, submission: Submission, cause: Error) -> Result<bool> {
        let _order = self.lane.sending.lock();
        let mut state = self.lane.state.lock();
        let Some(at) = state.find(submission.0) else { return Ok(false) };
        let entry = &mut state.entries[at];
        entry.tried.stopped = true;
        match entry.progress {
            Progress::Sent(inner) => {
                drop(state);
                self.lane.inner.stop(inner, cause)
            }
            Progress::Ended(Ok(_)) => Ok(false),
            _ => {
                // Seen to in its turn.
                entry.progress = Progress::Ended(Err(cause));
                state.resume = true;
                self.lane.changed.notify_all();
                Ok(true)
            }
        }
    }

    fn acknowledge(&self) -> Option<Error> {
        self.lane.state.lock().failure.take()
    }
}

impl Drop for RecoveringQueue {
    fn drop(&mut self) {
        // In a child there is no thread to end.
        if !self.lane.device.is_here() {
            return;
        }
        self.lane.state.lock().closed = true;
        self.lane.changed.notify_all();
    }
}

/// Tells the lane how a submission has ended; that it was given up, if it is dropped without.
pub(super) struct Report {
    lane: Arc<Lane>,
    id: u64,
    told: bool,
}

impl Report {
    pub(super) fn done(lane: &Arc<Lane>, id: u64) -> Done {
        let mut report = Self { lane: lane.clone(), id, told: false };
        Done::new(move |result| {
            report.told = true;
            report.lane.ended(report.id, result);
        })
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if !self.told && self.lane.device.is_here() {
            self.lane.dropped(self.id);
        }
    }
}
