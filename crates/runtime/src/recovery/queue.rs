//! [`RecoveringQueue`]: a queue that wraps the driver's queue and recovers from failures. A recovered failure is not visible to the
//! caller; an unrecovered one is the queue's failure, as specified by the driver contract.

use std::sync::Arc;

use elinvar_driver::{Command, Done, Error, Priority, Queue, Result, Submission};

use super::layer::{Layer, Submissions};
use super::{RecoveryPolicy, thread};
use crate::Device;
use crate::observe::trace::Notes;

/// Handle of the queue. Pending submissions finish after it is dropped.
pub(crate) struct RecoveringQueue(Arc<Submissions>);

impl RecoveringQueue {
    /// Creates a queue of the driver, the queue that wraps it, and its recovery thread.
    pub(crate) fn new(device: &Device, priority: Priority, mut policy: RecoveryPolicy) -> Result<Self> {
        policy.rerun.take_if(|other| other == device);
        let inner = device.driver().queue_with(priority)?;
        let queue = Submissions::new(Layer::new(device, policy, inner));
        device.recovery().register_queue(&queue);
        thread::start(&queue)?;
        Ok(Self(queue))
    }

    /// As [`Queue::submit`]; decisions are recorded in the submission's trace.
    pub(crate) fn submit_noted(
        &self,
        commands: Arc<[Command]>,
        done: Done,
        notes: Option<Notes>,
    ) -> Result<Submission> {
        let work = self.0.backend().work_noted(notes);
        self.0.submit_with(commands, done, work).map(|(submission, _turn)| submission)
    }
}

#[allow(unsafe_code)] // implements the unsafe trait of the driver contract
// SAFETY: `done` is called after the driver's queue has called its own for the last attempt.
unsafe impl Queue for RecoveringQueue {
    fn submit(&self, commands: Arc<[Command]>, done: Done) -> Result<Submission> {
        self.submit_noted(commands, done, None)
    }

    fn cancel(&self, submission: Submission) -> bool {
        self.0.cancel(submission)
    }

    fn spin(&self, is_over: &mut dyn FnMut() -> bool) {
        self.0.backend().inner.spin(is_over);
    }

    fn stop(&self, submission: Submission, cause: Error) -> Result<bool> {
        let is_stopped = self.0.stop(submission, cause);
        // The thread may be waiting before a retry.
        self.0.backend().wake();
        is_stopped
    }

    fn acknowledge(&self) -> Option<Error> {
        self.0.acknowledge()
    }
}

impl Drop for RecoveringQueue {
    fn drop(&mut self) {
        let layer = self.0.backend();
        // A forked child has no recovery thread.
        if layer.device.is_here() {
            layer.wake.lock().is_closed = true;
            layer.wake();
        }
    }
}
