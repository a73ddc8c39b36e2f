//! A queue of the simulated device: one thread that executes the submission core's commands.
//!
//! All callbacks are made on that thread, without a lock held. It ends when the queue was dropped and all work is done.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

use elinvar_driver::submission::{Backend, Deferred, Issue, Issued, QueueHandle, SubmissionQueue};
use elinvar_driver::sync::{Condvar, Mutex, OnceLock};
use elinvar_driver::{
    Command, Dim3, Dispatch, Done, Error, Fault, Grid, MemorySlice, Queue, Result, Submission, panic_text,
};

use super::memory::SimMemory;
use super::{Launch, Op, Shared};

/// Stop flag of a submission.
#[derive(Default)]
pub(super) struct Stop {
    cause: OnceLock<Error>,
    /// Whether commands of the submission have started.
    has_begun: AtomicBool,
}

impl Stop {
    /// Sets the cause, if it is not set yet.
    fn set(&self, cause: &Error) {
        let _earlier = self.cause.set(cause.clone());
    }

    pub(super) fn check(&self) -> Result<()> {
        self.cause.get().map_or(Ok(()), |cause| Err(cause.clone()))
    }
}

/// The backend of a queue.
pub(super) type Submissions = SubmissionQueue<SimBackend>;

pub(super) struct SimBackend {
    shared: Arc<Shared>,
    /// Channel to the queue's thread, which ends when this is dropped.
    thread: Sender<Arc<Submissions>>,
    /// The running submission.
    running: Mutex<Option<Arc<Stop>>>,
    /// For waiting until submissions end; protects no data.
    ends: Mutex<()>,
    ended: Condvar,
}

#[allow(unsafe_code)] // promises what the trait asks for
// SAFETY: `begin` returns when the commands have been executed.
unsafe impl Backend for SimBackend {
    type Thread = ();
    type Work = Arc<Stop>;
    type Fence = std::convert::Infallible;

    fn work(&self) -> Arc<Stop> {
        Arc::default()
    }

    fn begin(&self, issue: &mut Issue<'_, Self>, (): &mut ()) -> Result<Issued> {
        let stop = issue.with_work(|stop| stop.clone()).unwrap_or_default();
        if !stop.has_begun.swap(true, Ordering::SeqCst) {
            self.shared.failure(Op::Execute)?;
        }
        let start_ns = self.shared.now_ns();
        *self.running.lock() = Some(stop.clone());
        let commands = issue.run();
        let result = execute(&self.shared, commands, &stop);
        *self.running.lock() = None;
        result?;
        Ok(Issued::Executed { next: issue.next() + commands.len(), start_ns, end_ns: self.shared.now_ns() })
    }

    fn panicked(&self, message: &str) -> Error {
        Error::Environment(format!("the simulated driver panicked: {message}"))
    }

    fn schedule(&self, queue: Arc<Submissions>) {
        // The thread lives as long as the sender.
        let _gone = self.thread.send(queue);
    }

    fn now_ns(&self) -> u64 {
        self.shared.now_ns()
    }

    fn stop(
        &self,
        stop: &Arc<Stop>,
        _fences: &mut dyn Iterator<Item = &Self::Fence>,
        cause: &Error,
    ) -> Result<Option<Deferred<Self, Result<()>>>> {
        stop.set(cause);
        Ok(None)
    }

    fn ended(&self, _queue: &Arc<Submissions>, _submission: Submission) {
        drop(self.ends.lock());
        self.ended.notify_all();
    }
}

impl SimBackend {
    /// Stops the running submission with `cause`.
    pub(super) fn stop_running(&self, cause: &Error) {
        if let Some(stop) = &*self.running.lock() {
            stop.set(cause);
        }
    }
}

/// Ends all submissions with `cause`, and waits until they have ended.
pub(super) fn abandon(queue: &Arc<Submissions>, cause: &Error) {
    let last = queue.last();
    queue.abandon(false, cause, |_| cause.clone());
    queue.backend().stop_running(cause);
    drop(queue.advance());
    let mut ends = queue.backend().ends.lock();
    while !queue.has_ended(last) {
        queue.backend().ended.wait(&mut ends);
    }
}

/// Handle of a queue; pending submissions finish after it is dropped.
pub(super) struct SimQueue(QueueHandle<SimBackend>);

impl SimQueue {
    pub(super) fn start(shared: Arc<Shared>) -> Result<Self> {
        let (thread, turns) = channel::<Arc<Submissions>>();
        std::thread::Builder::new()
            .name("sim-queue".into())
            .spawn(move || turns.into_iter().for_each(|queue| queue.turn(&mut ())))
            .map_err(|error| Error::Environment(format!("starting a thread for a queue: {error}")))?;
        let (running, ends, ended) = (Mutex::default(), Mutex::default(), Condvar::new());
        Ok(Self(QueueHandle::new(SimBackend { shared, thread, running, ends, ended })))
    }

    pub(super) fn submissions(&self) -> &Arc<Submissions> {
        self.0.submissions()
    }

    fn shared(&self) -> &Shared {
        &self.submissions().backend().shared
    }
}

#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: as for the handle.
unsafe impl Queue for SimQueue {
    fn submit(&self, commands: Arc<[Command]>, done: Done) -> Result<Submission> {
        self.shared().failure(Op::Submit)?;
        self.shared().commands.lock().extend(commands.iter().cloned());
        self.shared().submissions.fetch_add(1, Ordering::SeqCst);
        self.0.submit(commands, done)
    }

    fn cancel(&self, submission: Submission) -> bool {
        self.0.cancel(submission)
    }

    fn stop(&self, submission: Submission, cause: Error) -> Result<bool> {
        if !self.shared().can_stop {
            return Err(Error::unsupported("this device cannot stop running work"));
        }
        let is_stopped = self.0.stop(submission, cause)?;
        self.shared().stops.fetch_add(is_stopped.into(), Ordering::SeqCst);
        Ok(is_stopped)
    }

    fn acknowledge(&self) -> Option<Error> {
        self.0.acknowledge()
    }
}

fn execute(shared: &Shared, commands: &[Command], stop: &Stop) -> Result<()> {
    for command in commands {
        stop.check()?;
        match command {
            Command::Dispatch(dispatch) => run_kernel(shared, dispatch, stop)?,
            Command::Copy { source, target } => copy(source, target)?,
            Command::Fill { target, pattern } => fill(target, pattern)?,
            other => return Err(Error::unsupported(format!("the simulated device has no {other:?}"))),
        }
    }
    Ok(())
}

fn run_kernel(shared: &Shared, dispatch: &Dispatch, stop: &Stop) -> Result<()> {
    shared.launch_failure(dispatch)?;
    let name = &dispatch.pipeline.signature().name;
    let threads = match &dispatch.grid {
        Grid::Threads(threads) => *threads,
        Grid::Indirect(counts) => dispatch.threads_of(read_counts(counts)?)?,
    };
    let Some(body) = shared.body(name).filter(|_| threads.volume() > 0) else {
        return Ok(());
    };
    let launch = Launch { dispatch, threads, clock: &shared.clock, stop };
    catch_unwind(AssertUnwindSafe(|| body(&launch))).unwrap_or_else(|panic| {
        let text = panic_text(&*panic);
        Err(Error::Fault(Fault {
            kernel: name.clone(),
            message: format!("panicked: {text}"),
            location: None,
            launch: dispatch.label.clone(),
        }))
    })
}

fn address(slice: &MemorySlice) -> Result<*mut u8> {
    let memory: &dyn Any = &*slice.memory;
    let memory = memory.downcast_ref::<SimMemory>();
    let memory = memory.ok_or_else(|| Error::invalid("memory of another device in a command"))?;
    Ok(memory.address(slice.offset, slice.len))
}

#[allow(unsafe_code)] // stands in for the device
fn read_counts(counts: &MemorySlice) -> Result<Dim3> {
    let from = address(counts)?.cast::<[u32; 3]>();
    // SAFETY: the counts are within live memory; as for `copy`.
    Ok(unsafe { from.read_unaligned() }.into())
}

#[allow(unsafe_code)] // stands in for the device
fn copy(source: &MemorySlice, target: &MemorySlice) -> Result<()> {
    let (from, to) = (address(source)?, address(target)?);
    // SAFETY: both ranges are within live memory and of the same length; `copy_to` allows overlap. The runtime prevents accesses by the
    // host, and tests do not use streams that race.
    unsafe { from.copy_to(to, source.len.min(target.len) as usize) };
    Ok(())
}

#[allow(unsafe_code)] // stands in for the device
fn fill(target: &MemorySlice, pattern: &[u8]) -> Result<()> {
    let base = address(target)?;
    for (at, byte) in (0..target.len as usize).zip(pattern.iter().cycle()) {
        // SAFETY: `at` is within the range, which is within live memory; as for `copy`.
        unsafe { base.add(at).write(*byte) };
    }
    Ok(())
}
