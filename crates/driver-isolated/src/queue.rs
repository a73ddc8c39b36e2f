//! The submission core's backend for isolated devices: sends runs of commands ahead to the worker process.
//!
//! The submission core issues runs of commands between waits and signals. Each is a numbered *batch*, sent as one message. The worker's
//! queue executes batches in order, so batches of later submissions are sent before earlier ones have ended.
//!
//! Invariants:
//! - Batches of a queue are with one worker at a time: nothing is sent to the next worker until all batches of the previous one are known to be
//!   lost.
//! - The turn of a queue runs on the device's own thread, or on the thread that reads the worker's messages: the reader, or a thread that waits
//!   for the queue's only batch.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use elinvar_driver::submission::{Backend, Completed, Deferred, Issue, Issued, QueueHandle, SubmissionQueue};
use elinvar_driver::sync::{Condvar, Mutex};
use elinvar_driver::{Command, Error, Priority, Result, Submission};

use crate::device::{Core, Task};
use crate::library::IsolatedPipeline;
use crate::link::{Link, Unsent, lost_to};
use crate::wire::ToWorker;

/// Maximum number of workers to which a batch is sent, if workers end before they have it.
const TRIES: usize = 3;

pub(crate) type IsolatedQueue = QueueHandle<Remote>;

/// The submission queue.
pub(crate) type Submissions = SubmissionQueue<Remote>;

/// A queue of a worker.
pub(crate) struct Remote {
    pub(crate) core: Arc<Core>,
    pub(crate) id: u64,
    pub(crate) priority: Priority,
    /// The worker that has batches.
    with: Mutex<Option<Arc<Link>>>,
    /// The submission that is being stopped and for which the worker has a deadline. Held by a thread that checks for the end.
    armed: Mutex<u64>,
    ended: Condvar,
}

/// A batch in flight, by its number.
pub(crate) struct Batch {
    id: u64,
    first: usize,
    len: usize,
}

impl Batch {
    /// Range of its commands in its submission.
    fn of<'c>(&self, commands: &'c [Command]) -> &'c [Command] {
        &commands[self.first..self.first + self.len]
    }
}

impl Remote {
    pub(crate) fn new(core: &Arc<Core>, priority: Priority) -> Self {
        let (id, with) = (core.number(), Mutex::default());
        Self { core: core.clone(), id, priority, with, armed: Mutex::default(), ended: Condvar::new() }
    }

    fn link(&self) -> Option<Arc<Link>> {
        self.with.lock().clone()
    }
}

#[allow(unsafe_code)] // promises what the trait asks for
// SAFETY: a batch has completed when the worker reports that its queue has ended it, or when the worker's process and its mappings
// of the memory are gone.
unsafe impl Backend for Remote {
    type Thread = ();
    type Work = ();
    type Fence = Batch;

    fn thread() -> Option<()> {
        Some(())
    }

    fn work(&self) {}

    fn expect_here(&self, what: &str) -> Result<()> {
        self.core.process.expect_this(&what)
    }

    fn begin(&self, issue: &mut Issue<'_, Self>, (): &mut ()) -> Result<Issued> {
        let (first, id) = (issue.next(), self.core.number());
        let rest = &issue.commands()[first..];
        let ends = |command: &Command| matches!(command, Command::Wait { .. } | Command::Signal { .. });
        let len = rest.iter().position(ends).unwrap_or(rest.len());
        for _ in 0..TRIES {
            let is_bound = issue.queue().with_fences(|batches| batches.next().is_some());
            let link = match self.link().filter(|_| is_bound) {
                Some(link) => link,
                None => {
                    let link = self.core.link()?;
                    *self.with.lock() = Some(link.clone());
                    link
                }
            };
            match link.submit(issue.queue(), id, &rest[..len], || {
                issue.announce(first + len, Batch { id, first, len })
            }) {
                Ok(()) => return Ok(Issued::InFlight { drain: false }),
                Err(Unsent::Wrong(error)) => return Err(error),
                // Its batches will soon be reported as lost.
                Err(Unsent::Lost) if is_bound => return Ok(Issued::Full),
                Err(Unsent::Lost) => {}
            }
        }
        Err(Error::DeviceLost("worker processes end before they accept work".into()))
    }

    fn panicked(&self, message: &str) -> Error {
        Error::Environment(format!("the driver of isolated devices panicked: {message}"))
    }

    fn schedule(&self, queue: Arc<Submissions>) {
        self.core.task(Task::Turn(queue));
    }

    fn now_ns(&self) -> u64 {
        self.core.now_ns()
    }

    fn cancel(&self, (): &(), fences: &mut dyn Iterator<Item = &Batch>) -> Option<Deferred<Self, bool>> {
        let (link, queue, request) = (self.link()?, self.id, self.core.number());
        let batches: Vec<u64> = fences.map(|batch| batch.id).collect();
        Some(Box::new(move |_| link.cancel(queue, batches, request)))
    }

    /// Asks the worker to stop; ends the worker if the running work does not stop in time.
    fn stop(
        &self,
        (): &(),
        fences: &mut dyn Iterator<Item = &Batch>,
        cause: &Error,
    ) -> Result<Option<Deferred<Self, Result<()>>>> {
        let batches: Vec<u64> = fences.map(|batch| batch.id).collect();
        let (link, queue, cause) = (self.link(), self.id, cause.clone());
        Ok(Some(Box::new(move |submissions| {
            if let Some(link) = link.filter(|_| !batches.is_empty()) {
                link.tell(&ToWorker::Stop { queue, pieces: batches, cause });
            }
            arm(submissions);
            Ok(())
        })))
    }

    fn spin(&self, queue: &Arc<Submissions>, is_over: &mut dyn FnMut() -> bool) {
        match self.link().filter(|_| queue.in_flight() > 0) {
            Some(link) => link.spin(queue, is_over),
            None => while !is_over() {},
        }
    }

    fn acknowledged(&self) {
        // Before anything that is submitted from now on.
        let link = self.link().or_else(|| self.core.present());
        if let Some(link) = link {
            link.tell(&ToWorker::Acknowledge { queue: self.id });
        }
    }

    fn ended(&self, queue: &Arc<Submissions>, _submission: Submission) {
        arm(queue);
        self.ended.notify_all();
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.core.forget(&ToWorker::Close { queue: self.id });
    }
}

/// Sets a deadline: the worker is ended if running work does not stop in time.
fn arm(queue: &Arc<Submissions>) {
    let Remote { core, armed, .. } = queue.backend();
    let mut armed = armed.lock();
    if let (Some((submission, Some(cause))), Some(link)) = (queue.first_in_flight(), queue.backend().link())
        && *armed != submission.0
    {
        *armed = submission.0;
        link.arm(Instant::now() + core.options.grace, queue, submission, lost_to(&cause));
    }
}

/// The worker has ended a batch; times are of its clock.
pub(crate) fn batch_ended(
    queue: &Submissions,
    link: &Link,
    number: u64,
    result: Result<(u64, u64)>,
    stamps: &[Option<u64>],
) {
    let is_it = |batch: &Batch| batch.id == number;
    let workers = queue.backend().core.inner.workers();
    queue.with_operation(is_it, |batch, commands, _| {
        let marks = batch.of(commands).iter().filter_map(|command| match command {
            Command::Timestamp { into } => Some(into),
            _ => None,
        });
        for (into, noted) in marks.zip(stamps) {
            noted.iter().for_each(|noted| into.set(link.time(*noted)));
        }
        if let Ok((start, end)) = result {
            ran(batch.of(commands), end.saturating_sub(start).saturating_mul(workers));
        }
    });
    let completed = match result {
        Ok((start, end)) => Completed::Executed { start_ns: Some(link.time(start)), end_ns: link.time(end) },
        Err(Error::Cancelled) => Completed::Cancelled,
        // The worker has seen the failure before it, possibly before the host has processed that.
        Err(error @ Error::Poisoned(_)) => Completed::Poisoned(error),
        Err(error) => Completed::Failed(error),
    };
    queue.complete(is_it, completed);
}

/// Reports processor time, in equal shares, to the kernels of these commands.
fn ran(commands: &[Command], ns: u64) {
    let dispatches = || {
        commands.iter().filter_map(|command| match command {
            Command::Dispatch(dispatch) => Some(dispatch),
            _ => None,
        })
    };
    let share = ns / dispatches().count().max(1) as u64;
    for dispatch in dispatches() {
        let pipeline: &dyn Any = &*dispatch.pipeline;
        if let Some(pipeline) = pipeline.downcast_ref::<IsolatedPipeline>() {
            pipeline.ran(dispatch.group, dispatch.largest_memory(), share);
        }
    }
}

/// Names of the kernels of the first batch that has not ended.
pub(crate) fn running(queue: &Submissions) -> Vec<String> {
    let mut names = Vec::new();
    queue.with_operation(
        |_| true,
        |batch, commands, _| {
            for command in batch.of(commands) {
                if let Command::Dispatch(dispatch) = command
                    && !names.contains(&dispatch.pipeline.signature().name)
                {
                    names.push(dispatch.pipeline.signature().name.clone());
                }
            }
        },
    );
    names
}

/// The stop cause of a submission that a worker executes and cannot stop.
pub(crate) fn stopping(queue: &Submissions, number: u64) -> Option<Error> {
    queue.with_operation(|batch| batch.id == number, |_, _, stop| stop.cloned())?
}

/// Blocks until all submissions up to one have ended.
pub(crate) fn wait_until_ended(queue: &Submissions, last: u64) {
    let Remote { armed, ended, .. } = queue.backend();
    let mut guard = armed.lock();
    while !queue.has_ended(last) {
        ended.wait(&mut guard);
    }
}
