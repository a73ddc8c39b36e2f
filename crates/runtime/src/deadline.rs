//! Deadlines: a thread that stops submissions which have taken too long.
//!
//! The thread starts with the first deadline and sleeps until the next. It holds no queue; a submission that ends takes
//! its deadline out.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use elinvar_driver::{Command, Error, Queue, Submission};
use parking_lot::{Condvar, Mutex};

static TABLE: Mutex<BTreeMap<Key, Due>> = Mutex::new(BTreeMap::new());
static CHANGED: Condvar = Condvar::new();

/// When, and a number that tells those of one moment apart.
type Key = (Instant, u64);

struct Due {
    queue: Weak<dyn Queue>,
    submission: Submission,
    cause: Error,
}

/// A deadline; dropping it takes it out.
pub(crate) struct Watched(Key);

impl Drop for Watched {
    fn drop(&mut self) {
        TABLE.lock().remove(&self.0);
    }
}

/// Have a submission end in `cause` if it has not ended at `then`.
pub(crate) fn watch(then: Instant, queue: &Arc<dyn Queue>, submission: Submission, cause: Error) -> Watched {
    let due = Due { queue: Arc::downgrade(queue), submission, cause };
    let mut table = TABLE.lock();
    let mut key = (then, 0);
    while table.contains_key(&key) {
        key.1 += 1;
    }
    table.insert(key, due);
    CHANGED.notify_one();
    Watched(key)
}

/// The commands with kernels that can be stopped wherever the device can stop them.
///
/// # Errors
/// As [`elinvar_driver::Pipeline::prepare`].
pub(crate) fn stoppable(commands: &[Command]) -> Result<Arc<[Command]>, Error> {
    let stoppable = |command: &Command| {
        let mut command = command.clone();
        if let Command::Dispatch(dispatch) = &mut command
            && let Some(pipeline) = dispatch.pipeline.stoppable()
        {
            pipeline.prepare(dispatch.group)?;
            dispatch.pipeline = pipeline;
        }
        Ok(command)
    };
    commands.iter().map(stoppable).collect()
}

/// Start the thread, if it has not been.
///
/// # Errors
/// `Environment` when it cannot be started.
pub(crate) fn start() -> Result<(), Error> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    let mut started = STARTED.lock();
    if !*started {
        let thread = std::thread::Builder::new().name("elinvar-deadlines".into()).spawn(run);
        thread.map_err(|error| Error::Environment(format!("a thread for deadlines: {error}")))?;
        *started = true;
    }
    Ok(())
}

fn run() {
    let mut table = TABLE.lock();
    loop {
        let Some((then, _)) = table.first_key_value().map(|(key, _)| *key) else {
            CHANGED.wait(&mut table);
            continue;
        };
        if then > Instant::now() {
            CHANGED.wait_until(&mut table, then);
            continue;
        }
        if let Some((_, Due { queue, submission, cause })) = table.pop_first()
            && let Some(queue) = queue.upgrade()
        {
            // A driver that cannot stop it was refused a deadline in the first place.
            parking_lot::MutexGuard::unlocked(&mut table, || drop(queue.stop(submission, cause)));
        }
    }
}
