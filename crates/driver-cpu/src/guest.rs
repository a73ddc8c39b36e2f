//! [`Guest`]: a thread that submits work to the device and runs it itself where it is the only one with something to do.
//!
//! Handing a short launch to another thread takes longer than running it. Who has nothing else to do meanwhile than to wait for
//! the next submission, as a worker process's thread that reads them, need not.

use std::any::Any;
use std::sync::Arc;

use elinvar_driver::submission::Turn;
use elinvar_driver::{Command, Done, Error, Queue, Result, Submission};

use crate::crash;
use crate::pool::{Pool, STACK_BYTES, Worker};
use crate::queue::{CpuBackend, CpuQueue};

/// A thread of its own beside a device's workers; see [`CpuDriver::spawn_guest`](crate::CpuDriver::spawn_guest).
pub struct Guest {
    worker: Worker,
}

/// What a queue has to do. Dropped, the device's workers do it.
pub struct ToRun(Turn<CpuBackend>);

impl Guest {
    /// Start a thread with a stack for compiled code.
    pub(crate) fn spawn(pool: &Pool, name: String, body: impl FnOnce(Self) + Send + 'static) -> Result<()> {
        let guest = Self { worker: pool.guest() };
        let run = move || {
            let _thread = crash::Thread::enter(STACK_BYTES);
            body(guest);
        };
        let thread = std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(run);
        thread.map(drop).map_err(|error| Error::Environment(format!("cannot start a thread: {error}")))
    }

    /// As [`Queue::submit`], for a queue of the device. Gives what there is to run now, if the queue was idle.
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

    /// Run it on this thread, as one of the workers that may run at a time; where others wait already, they come first. What is long
    /// is shared with idle workers.
    pub fn run(&mut self, work: ToRun) {
        if let Some(queue) = work.0.into_queue() {
            CpuBackend::run_on(queue, &mut self.worker);
        }
    }
}
