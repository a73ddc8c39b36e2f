//! Deadlines: a thread that stops submissions at their deadline, and submits coalesced work after its time limit.
//!
//! The thread starts with the first deadline and sleeps until the next. It does not keep queues alive; a submission that ends
//! removes its deadline.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use elinvar_driver::sync::{Condvar, Mutex};
use elinvar_driver::{Command, Error, PerProcess, Pipeline, Queue, Submission};

use crate::Device;
use crate::sync::coalesce::{Coalescer, Ends};
use crate::sync::completion::Outcome;

static DEADLINES: PerProcess<Deadlines> = PerProcess::new(Deadlines::default);

/// The deadlines of a process.
#[derive(Default)]
struct Deadlines {
    table: Mutex<BTreeMap<Key, Due>>,
    changed: Condvar,
    /// Whether the thread has been started.
    started: Mutex<bool>,
}

/// Time, and a number that distinguishes equal times.
type Key = (Instant, u64);

/// Action at a deadline.
pub(crate) enum Due {
    Stop(Late),
    Flush(Weak<Coalescer>),
    Tell(Ends),
}

/// A submission with a deadline.
pub(crate) struct Late {
    queue: Weak<dyn Queue>,
    submission: Submission,
    cause: Error,
    outcome: Weak<Outcome>,
    device: Device,
}

impl Late {
    /// A submission that ends in `cause` unless it has ended before.
    pub(crate) fn new(
        device: Device,
        queue: &Arc<dyn Queue>,
        submission: Submission,
        cause: Error,
        outcome: &Arc<Outcome>,
    ) -> Self {
        let queue = Arc::downgrade(queue);
        Self { queue, submission, cause, outcome: Arc::downgrade(outcome), device }
    }

    fn end(self) {
        let Self { queue, submission, cause, outcome, device } = self;
        let Some(queue) = queue.upgrade() else { return };
        if queue.stop(submission, cause.clone()).is_ok() {
            return;
        }
        // Work that cannot be stopped may run forever, and blocks all work behind it.
        if let Some(outcome) = outcome.upgrade().filter(|outcome| outcome.get().is_none()) {
            let lost = Error::DeviceLost(format!("its running work cannot be stopped: {cause}"));
            outcome.resolve(Err(cause));
            device.lose(&lost);
        }
    }
}

/// A registered deadline; dropping it removes it.
pub(crate) struct Watched(Key);

impl Drop for Watched {
    fn drop(&mut self) {
        DEADLINES.get().table.lock().remove(&self.0);
    }
}

/// Registers an action at `then`.
pub(crate) fn watch(then: Instant, due: Due) -> Watched {
    Watched(enter(then, due))
}

/// Executes an action now, on the deadline thread, which holds no lock.
pub(crate) fn soon(due: Due) {
    enter(Instant::now(), due);
}

fn enter(then: Instant, due: Due) -> Key {
    let Deadlines { table, changed, .. } = DEADLINES.get();
    let mut table = table.lock();
    let mut key = (then, 0);
    while table.contains_key(&key) {
        key.1 += 1;
    }
    table.insert(key, due);
    changed.notify_one();
    key
}

/// The commands with stoppable variants of their kernels, where the device has them.
///
/// # Errors
/// As [`elinvar_driver::Pipeline::prepare`].
pub(crate) fn stoppable(device: &Device, commands: &[Command]) -> Result<Arc<[Command]>, Error> {
    let stoppable = |command: &Command| {
        let mut command = command.clone();
        let variant = |pipeline: &Arc<dyn Pipeline>| {
            let stoppable = pipeline.stoppable()?;
            device.recovery().origins.note_other(pipeline, &stoppable);
            Some(stoppable)
        };
        let or_same = |pipeline: &Arc<dyn Pipeline>| variant(pipeline).unwrap_or_else(|| pipeline.clone());
        match &mut command {
            Command::Dispatch(dispatch) => {
                if let Some(pipeline) = variant(&dispatch.pipeline) {
                    dispatch.pipeline = pipeline;
                    dispatch.prepare()?;
                }
            }
            Command::ExecuteCommands(execution) => {
                execution.pipelines = execution.pipelines.iter().map(or_same).collect();
                execution.pipeline = execution.pipeline.as_ref().map(or_same);
            }
            Command::LaunchNested(nested) => {
                nested.root.pipeline = or_same(&nested.root.pipeline);
                nested.root.prepare()?;
                nested.children.pipelines = nested.children.pipelines.iter().map(or_same).collect();
            }
            _ => {}
        }
        Ok(command)
    };
    commands.iter().map(stoppable).collect()
}

/// Starts the thread, once.
///
/// # Errors
/// `Environment` when it cannot be started.
pub(crate) fn start() -> Result<(), Error> {
    let mut started = DEADLINES.get().started.lock();
    if !*started {
        let thread = std::thread::Builder::new().name("elinvar-deadlines".into()).spawn(run);
        thread
            .map_err(|error| Error::Environment(format!("cannot start the thread for deadlines: {error}")))?;
        *started = true;
    }
    Ok(())
}

fn run() {
    let Deadlines { table, changed, .. } = DEADLINES.get();
    let mut table = table.lock();
    loop {
        let Some((then, _)) = table.first_key_value().map(|(key, _)| *key) else {
            changed.wait(&mut table);
            continue;
        };
        if then > Instant::now() {
            changed.wait_until(&mut table, then);
            continue;
        }
        if let Some((_, due)) = table.pop_first() {
            elinvar_driver::sync::MutexGuard::unlocked(&mut table, || match due {
                Due::Stop(late) => late.end(),
                Due::Flush(coalescer) => {
                    coalescer.upgrade().into_iter().for_each(|coalescer| coalescer.flush())
                }
                Due::Tell(ends) => ends.tell(),
            });
        }
    }
}
