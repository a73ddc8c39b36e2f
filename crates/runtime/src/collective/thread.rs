//! The thread of a member, which runs its operations.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use elinvar_driver::{CollectiveCall, Error, Member, Result, Timing};

use crate::memory::usage::{Storage, Storages};
use crate::sync::completion::Promise;
use crate::{Device, Event};

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
fn work(device: &Device, mut member: Box<dyn Member>, queue: &Receiver<Job>) {
    for job in queue {
        match job {
            Job::Run(run) => {
                let Run { call, ready, done, usage, keeps } = *run;
                let begun = ready.0.wait(ready.1).inspect_err(|cause| {
                    // The others would wait in vain.
                    member.aborter().abort(
                        member.rank(),
                        &format!("work before its {} failed: {cause}", call.collective.name()),
                    );
                });
                let start_ns = device.clock_ns();
                let result = begun.and_then(|()| member.run(&call));
                let timing = Timing { start_ns, end_ns: device.clock_ns() };
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
            Job::Shrink { timeout, answer } => {
                let _asked = answer.send(member.shrink(timeout));
            }
        }
    }
}
