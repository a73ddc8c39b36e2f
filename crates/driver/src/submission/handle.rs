//! [`QueueHandle`]: the contract's [`Queue`] over a [`SubmissionQueue`].

use std::sync::{Arc, Weak};

use super::{Backend, SubmissionQueue};
use crate::{Command, Done, Error, Queue, Result, Submission};

/// Handle of a driver's queue. Pending submissions finish after it is dropped, because they keep the [`SubmissionQueue`] alive.
pub struct QueueHandle<B: Backend>(Arc<SubmissionQueue<B>>);

impl<B: Backend> QueueHandle<B> {
    /// A new queue.
    pub fn new(backend: B) -> Self {
        Self(SubmissionQueue::new(backend))
    }

    /// A new queue, whose backend gets a weak reference to its [`SubmissionQueue`].
    pub fn new_cyclic(backend: impl FnOnce(&Weak<SubmissionQueue<B>>) -> B) -> Self {
        Self(SubmissionQueue::new_cyclic(backend))
    }

    /// Its submissions.
    pub fn submissions(&self) -> &Arc<SubmissionQueue<B>> {
        &self.0
    }
}

#[allow(unsafe_code)] // implements the unsafe trait of the driver contract
// SAFETY: `done` is called when no operation of the submission is in flight, which the safety contract of `Backend` guarantees.
unsafe impl<B: Backend> Queue for QueueHandle<B> {
    fn submit(&self, commands: Arc<[Command]>, done: Done) -> Result<Submission> {
        self.0.submit(commands, done).map(|(submission, _turn)| submission)
    }

    fn cancel(&self, submission: Submission) -> bool {
        self.0.cancel(submission)
    }

    fn stop(&self, submission: Submission, cause: Error) -> Result<bool> {
        self.0.stop(submission, cause)
    }

    fn spin(&self, is_over: &mut dyn FnMut() -> bool) {
        self.0.backend().spin(&self.0, is_over);
    }

    fn acknowledge(&self) -> Option<Error> {
        self.0.acknowledge()
    }
}
