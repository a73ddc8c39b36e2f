//! The thread of a member, which runs its operations.
//!
//! Operations that the device orders itself are passed to it ahead: the thread then only sees to it that the other members take part, and reports the end. The
//! others run on the thread, when the work before them has ended.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use elinvar_driver::{CollectiveCall, Error, Member, Point, Result, Timing};

use crate::memory::usage::{Storage, Storages};
use crate::sync::completion::Promise;
use crate::{Device, Event};

/// Time after the last event in which a thread with operations in the device's queue does not sleep.
const AWAKE: Duration = Duration::from_millis(20);
/// How long it sleeps at a time.
const PAUSE: Duration = Duration::from_micros(50);
/// Time after the last event in which it waits for a job without sleeping.
const EAGER: Duration = Duration::from_micros(50);

/// What the thread is asked for.
pub(super) enum Job {
    Run(Box<Run>),
    Shrink { timeout: Duration, answer: Sender<Result<Box<dyn Member>>> },
}

/// An operation.
pub(super) struct Run {
    pub(super) call: CollectiveCall,
    /// Reaches the value when the stream's preceding work has ended.
    pub(super) ready: (Event, u64),
    /// Reaches the value when the operation has ended.
    pub(super) done: (Event, u64),
    /// Resolves the usage records, and the memory that the operation uses; `None` if a graph keeps them.
    pub(super) usage: Option<(Promise, Storages)>,
    /// Keeps the memory of a graph's operation from the pool, should the graph's submission fail.
    pub(super) keeps: Vec<Arc<Storage>>,
}

/// Starts the thread of a member that `make` creates on it, and waits for that.
pub(super) fn start(
    device: &Device,
    make: impl FnOnce() -> Result<Box<dyn Member>> + Send + 'static,
) -> Pending {
    let (jobs, queue) = channel();
    let (report, made) = channel();
    let device = device.clone();
    let run = move || match make() {
        Ok(member) => {
            let facts = Facts {
                rank: member.rank(),
                size: member.size(),
                engine: member.engine(),
                cannot_reduce: member.cannot_reduce(),
                aborter: member.aborter(),
            };
            let _asked = report.send(Ok(facts));
            work(&device, member, &queue);
        }
        Err(error) => {
            let _asked = report.send(Err(error));
        }
    };
    let thread = std::thread::Builder::new().name("elinvar-member".into()).spawn(run);
    let error =
        thread.err().map(|error| Error::Environment(format!("cannot start a member's thread: {error}")));
    Pending { jobs, made, error }
}

/// A member that is being created.
pub(super) struct Pending {
    jobs: Sender<Job>,
    made: Receiver<Result<Facts>>,
    error: Option<Error>,
}

/// What does not change.
pub(super) struct Facts {
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) engine: &'static str,
    pub(super) cannot_reduce: &'static [elinvar_driver::Scalar],
    pub(super) aborter: std::sync::Arc<dyn elinvar_driver::Aborter>,
}

impl Pending {
    pub(super) fn wait(self) -> Result<(Sender<Job>, Facts)> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let ended = |_| Err(Error::Environment("the thread of a member has ended".into()));
        let facts = self.made.recv().unwrap_or_else(ended)?;
        Ok((self.jobs, facts))
    }
}

/// Runs jobs until the communicator and all pending operations are gone.
fn work(device: &Device, member: Box<dyn Member>, jobs: &Receiver<Job>) {
    let (next, running) = (None, VecDeque::new());
    let mut worker =
        Worker { device: device.clone(), member, next, running, is_ahead: false, is_closed: false };
    let mut last = Instant::now();
    while worker.take(jobs, last) {
        if worker.turn() {
            last = Instant::now();
        } else {
            pause(last);
        }
    }
}

/// Gives way to other threads, and sleeps when a wait is long.
fn pause(last: Instant) {
    match last.elapsed() < AWAKE {
        true => std::thread::yield_now(),
        false => std::thread::sleep(PAUSE),
    }
}

/// The state of a member's thread.
struct Worker {
    device: Device,
    member: Box<dyn Member>,
    /// The next job, which may have to wait.
    next: Option<Job>,
    /// Operations that were passed to the device, in order.
    running: VecDeque<Running>,
    /// Whether the last operation was passed to the device.
    is_ahead: bool,
    is_closed: bool,
}

/// An operation in the device's queue.
struct Running {
    run: Box<Run>,
    ready: Point,
    /// When it was the first, and the work before it had ended.
    start_ns: Option<u64>,
}

impl Worker {
    /// Takes the next job; waits for it if there is nothing else to do. Returns whether there is anything to do.
    fn take(&mut self, jobs: &Receiver<Job>, last: Instant) -> bool {
        if self.next.is_some() {
            return true;
        }
        while self.is_ahead && self.running.is_empty() && last.elapsed() < EAGER && !self.is_closed {
            match jobs.try_recv() {
                Ok(job) => self.next = Some(job),
                Err(TryRecvError::Disconnected) => self.is_closed = true,
                Err(TryRecvError::Empty) => {
                    std::hint::spin_loop();
                    continue;
                }
            }
            return self.next.is_some();
        }
        if self.running.is_empty() {
            self.next = jobs.recv().ok();
            return self.next.is_some();
        }
        match jobs.try_recv() {
            Ok(job) => self.next = Some(job),
            Err(error) => self.is_closed |= error == TryRecvError::Disconnected,
        }
        true
    }

    /// Does what can be done now. Returns whether that was anything.
    fn turn(&mut self) -> bool {
        let has_begun = match self.next.take() {
            None => false,
            Some(Job::Run(run)) if self.member.takes_ahead(&run.call) => self.enqueue(run),
            // These wait for what runs.
            Some(job) if !self.running.is_empty() => {
                self.next = Some(job);
                false
            }
            Some(Job::Run(run)) => {
                self.run(*run);
                true
            }
            Some(Job::Shrink { timeout, answer }) => {
                let _asked = answer.send(self.member.shrink(timeout));
                true
            }
        };
        self.look() || has_begun
    }

    /// Runs an operation when the work before it has ended.
    fn run(&mut self, run: Run) {
        self.is_ahead = false;
        let begun = run.ready.0.wait(run.ready.1);
        let begun = begun.inspect_err(|cause| abort_before(&*self.member, &run, cause));
        let start_ns = self.device.clock_ns();
        let result = begun.and_then(|()| self.member.run(&run.call));
        run.finish(result, Timing { start_ns, end_ns: self.device.clock_ns() });
    }

    /// Passes an operation to the device. Returns whether that was possible, or it has failed.
    fn enqueue(&mut self, run: Box<Run>) -> bool {
        let [ready, done] = [&run.ready, &run.done].map(|(event, value)| event.point(*value));
        let passed = match ready.expect_whole() {
            Ok(()) => self.member.enqueue(&run.call, &ready, &done),
            // Those before it may still succeed.
            Err(_) if !self.running.is_empty() => Ok(false),
            Err(cause) => {
                abort_before(&*self.member, &run, &cause);
                Err(cause)
            }
        };
        match passed {
            Ok(true) => {
                self.running.push_back(Running { run, ready, start_ns: None });
                self.is_ahead = true;
            }
            Ok(false) => {
                self.next = Some(Job::Run(run));
                return false;
            }
            Err(error) => {
                self.fail_all(&error);
                run.finish(Err(error), Timing::default());
            }
        }
        true
    }

    /// Looks at the first operation of the device's queue. Returns whether it has ended.
    fn look(&mut self) -> bool {
        let Some(first) = self.running.front_mut() else { return false };
        if first.start_ns.is_none() && !first.ready.is_pending() {
            first.start_ns = Some(self.device.clock_ns());
        }
        match self.member.has_first_ended() {
            Ok(false) => return false,
            Ok(true) => {
                let end_ns = self.device.clock_ns();
                if let Some(Running { run, start_ns, .. }) = self.running.pop_front() {
                    run.finish(Ok(()), Timing { start_ns: start_ns.unwrap_or(end_ns), end_ns });
                }
            }
            Err(error) => self.fail_all(&error),
        }
        true
    }

    /// Ends all operations of the device's queue, whose memory it does not use any more.
    fn fail_all(&mut self, error: &Error) {
        for Running { run, .. } in self.running.drain(..) {
            run.finish(Err(error.clone()), Timing::default());
        }
    }
}

/// Ends the operations of the others, which would wait in vain.
fn abort_before(member: &dyn Member, run: &Run, cause: &Error) {
    let reason = format!("work before its {} failed: {cause}", run.call.collective.name());
    member.aborter().abort(member.rank(), &reason);
}

impl Run {
    fn finish(self, result: Result<()>, timing: Timing) {
        let Self { call, done, usage, keeps, .. } = self;
        drop((call, keeps));
        if let Some((promise, storages)) = usage {
            drop(storages);
            promise.resolve(result.clone().map(|()| timing));
        }
        match result {
            Ok(()) => done.0.signal(done.1),
            Err(cause) => done.0.fail(&cause),
        }
    }
}
