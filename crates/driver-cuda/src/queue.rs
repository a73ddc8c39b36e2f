//! A queue's handle: submissions come in, are cancelled and stopped. What becomes of them is the lane's.

use std::sync::Arc;

use elinvar_driver::{Command, Done, Error, Queue, Result, Submission};

use crate::arrive::{Reached, What};
use crate::encode::pipeline;
use crate::lane::{Entry, Lane};
use crate::shared::Shared;

/// A queue's handle.
pub(crate) struct CudaQueue {
    lane: Arc<Lane>,
}

impl CudaQueue {
    pub(crate) fn new(shared: &Arc<Shared>, priority: i32) -> Result<Self> {
        Ok(Self { lane: Lane::new(shared, priority)? })
    }
}

#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: `done` is called when the stream has passed the submission's last event, or where nothing was enqueued.
unsafe impl Queue for CudaQueue {
    fn submit(&self, commands: Arc<[Command]>, done: Done) -> Result<Submission> {
        if let Some(lost) = self.lane.shared.context.lost() {
            return Err(lost.clone());
        }
        // Not under the lock: code may have to be made for what is bound.
        for command in commands.iter() {
            if let Command::Dispatch(dispatch) = command {
                pipeline(dispatch)?.function(&dispatch.bindings)?;
            }
        }
        let mut state = self.lane.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        let ended = state.failure.as_ref().map(Error::poison);
        let (waits, counts) = (Vec::new(), None);
        let entry = Entry { id, commands, next: 0, has_begun: false, counts, waits, done, ended };
        state.waiting.push_back(entry);
        self.lane.advance(state);
        Ok(Submission(id))
    }

    fn cancel(&self, submission: Submission) -> bool {
        let mut state = self.lane.state.lock();
        // Ids ascend, with gaps where others were cancelled.
        let Ok(index) = state.waiting.binary_search_by_key(&submission.0, |entry| entry.id) else {
            return false;
        };
        if state.waiting[index].has_begun {
            return false;
        }
        let Some(entry) = state.waiting.remove(index) else { return false };
        if index == 0 {
            state.gate = None;
        }
        let end = move || Reached::End(entry.commands, entry.done, Err(Error::Cancelled)).act();
        self.lane.shared.poller.run_soon(Box::new(end));
        self.lane.advance(state);
        true
    }

    /// What the device has been given runs to its end.
    fn stop(&self, submission: Submission, cause: Error) -> Result<bool> {
        let running = || Error::unsupported("an NVIDIA GPU cannot stop submitted work");
        let mut state = self.lane.state.lock();
        let Ok(index) = state.waiting.binary_search_by_key(&submission.0, |entry| entry.id) else {
            let flies = self.lane.flight.lock().marks.iter().find_map(|mark| match &mark.what {
                What::End(end) if end.id == submission.0 => Some(end.has_begun),
                _ => None,
            });
            return if flies == Some(true) { Err(running()) } else { Ok(flies.is_some()) };
        };
        if state.waiting[index].has_begun && state.gate.is_none() {
            return Err(running());
        }
        let entry = &mut state.waiting[index];
        entry.ended.get_or_insert(cause);
        if index == 0 {
            state.gate = None;
        }
        self.lane.advance(state);
        Ok(true)
    }

    fn acknowledge(&self) -> Option<Error> {
        self.lane.state.lock().failure.take()
    }
}
