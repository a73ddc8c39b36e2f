//! [`Guest`]: a thread that submits work to the device and also executes it, if no other work is running.
//!
//! Handing a short launch to another thread takes longer than executing it. A thread that would only wait for the next submission,
//! such as the reader of a worker process, can execute it directly.

use std::any::Any;
use std::sync::Arc;

use elinvar_driver::submission::Turn;
use elinvar_driver::{Command, Done, Error, Queue, Result, Submission};

use crate::crash;
use crate::pool::{Pool, STACK_BYTES, Worker};
use crate::queue::{CpuBackend, CpuQueue};

/// A thread in addition to the device's workers; see [`CpuDriver::spawn_guest`](crate::CpuDriver::spawn_guest).
pub struct Guest {
    worker: Worker,
}

/// Pending work of a queue. If it is dropped, the device's workers do the work.
pub struct ToRun(Turn<CpuBackend>);

impl Guest {
    /// Starts a thread with a stack for compiled code.
    pub(crate) fn spawn(pool: &Pool, name: String, body: impl FnOnce(Self) + Send + 'static) -> Result<()> {
        let guest = Self { worker: pool.guest() };
        let run = move || {
            let _thread = crash::Thread::enter(STACK_BYTES);
            body(guest);
        };
        let thread = std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(run);
        thread.map(drop).map_err(|error| Error::Environment(format!("cannot start a thread: {error}")))
    }

    /// As [`Queue::submit`], for a queue of the device. Returns the work to run now, if the queue was idle.
    ///
    /// # Errors
    /// `InvalidArgument` for a queue of another driver.
    pub fn submit(
        &self,
        queue: &dyn Queue,
        commands: Arc<[Command]>,
        done: Done,
    ) -> Result<(Submission, Option<ToRun>)> {
        let any: &dyn Any = queue;
        let queue = any.downcast_ref::<CpuQueue>();
        let queue = queue.ok_or_else(|| Error::invalid("the queue belongs to another driver"))?;
        let (submission, turn) = queue.submissions().submit(commands, done)?;
        Ok((submission, turn.map(ToRun)))
    }

    /// Runs the work on this thread, within the limit of busy workers; work that waits already comes first. Long dispatches are shared with
    /// idle workers.
    pub fn run(&mut self, work: ToRun) {
        if let Some(queue) = work.0.into_queue() {
            CpuBackend::run_on(queue, &mut self.worker);
        }
    }
}
