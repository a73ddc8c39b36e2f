//! The thread of a device that notices what has ended.
//!
//! The driver has no call that waits for the first of several events, and its callbacks hold up the stream that they are in;
//! so one thread asks. It asks without pause while things end one after the other, then less and less often, at most
//! [`LONGEST`] apart, and sleeps when nothing is in flight. All `done` callbacks are made here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use elinvar_driver::{Error, Result};
use parking_lot::{Condvar, Mutex};

use crate::lane::Lane;

/// It asks without pause for so long after something has ended.
const EAGER: Duration = Duration::from_micros(500);
/// It looks for something new without pause for so long after the last has ended.
const IDLE: Duration = Duration::from_micros(50);
/// Between two rounds of asking without pause, so that those who submit get at the driver's locks: where somebody may wait
/// for what is next, and where much is in flight.
const BREATH: Duration = Duration::from_micros(3);
const LONG_BREATH: Duration = Duration::from_micros(20);
/// The longest pause.
const LONGEST: Duration = Duration::from_micros(500);

/// What is done on the thread once.
type Task = Box<dyn FnOnce() + Send>;

/// The thread, for those who have something for it.
pub(crate) struct Poller {
    inbox: Mutex<Inbox>,
    filled: Condvar,
    /// Whether there is something in the inbox.
    has_some: AtomicBool,
}

#[derive(Default)]
struct Inbox {
    lanes: Vec<Arc<Lane>>,
    tasks: Vec<Task>,
    /// Whether the thread waits.
    waits: bool,
    closed: bool,
}

impl Poller {
    /// Start a thread, which ends with [`Poller::close`].
    pub(crate) fn start(device: &str) -> Result<Arc<Self>> {
        let poller = Arc::new(Self {
            inbox: Mutex::default(),
            filled: Condvar::new(),
            has_some: AtomicBool::new(false),
        });
        let run = {
            let poller = poller.clone();
            move || poller.run()
        };
        let thread = std::thread::Builder::new().name("elinvar-cuda".into()).spawn(run);
        thread.map_err(|error| {
            Error::Environment(format!("device `{device}`: cannot start a thread: {error}"))
        })?;
        Ok(poller)
    }

    /// Look after a lane until it has nothing in flight.
    pub(crate) fn watch(&self, lane: Arc<Lane>) {
        self.fill(|inbox| inbox.lanes.push(lane));
    }

    /// Have something done on the thread.
    pub(crate) fn run_soon(&self, task: Task) {
        self.fill(|inbox| inbox.tasks.push(task));
    }

    /// End the thread when it has done what it has.
    pub(crate) fn close(&self) {
        self.fill(|inbox| inbox.closed = true);
    }

    fn fill(&self, with: impl FnOnce(&mut Inbox)) {
        let mut inbox = self.inbox.lock();
        with(&mut inbox);
        self.has_some.store(true, Ordering::Release);
        let waits = inbox.waits;
        drop(inbox);
        if waits {
            self.filled.notify_one();
        }
    }

    fn run(&self) {
        let (mut lanes, mut is_busy): (Vec<Arc<Lane>>, bool) = (Vec::new(), false);
        let mut last = Instant::now();
        loop {
            let Some(tasks) = self.take(&mut lanes, last, is_busy) else { return };
            let mut has_done = !tasks.is_empty();
            tasks.into_iter().for_each(|task| task());
            is_busy = false;
            lanes.retain(|lane| {
                let turn = lane.turn();
                has_done |= turn.has_done;
                is_busy |= turn.is_busy;
                turn.goes_on
            });
            if has_done {
                last = Instant::now();
            }
        }
    }

    /// What has come, after a pause that depends on when something `last` ended. `None` at the end.
    fn take(&self, lanes: &mut Vec<Arc<Lane>>, last: Instant, is_busy: bool) -> Option<Vec<Task>> {
        if lanes.is_empty() {
            self.spin_until(last + IDLE);
        } else if last.elapsed() < EAGER {
            self.spin_until(Instant::now() + if is_busy { LONG_BREATH } else { BREATH });
        }
        let mut inbox = self.inbox.lock();
        if lanes.is_empty() {
            while inbox.is_empty() && !inbox.closed {
                inbox.waits = true;
                self.filled.wait(&mut inbox);
            }
        } else if inbox.is_empty() && last.elapsed() >= EAGER {
            inbox.waits = true;
            self.filled.wait_for(&mut inbox, (last.elapsed() / 32).min(LONGEST));
        }
        inbox.waits = false;
        if inbox.closed && lanes.is_empty() && inbox.is_empty() {
            return None;
        }
        self.has_some.store(false, Ordering::Release);
        lanes.append(&mut inbox.lanes);
        Some(std::mem::take(&mut inbox.tasks))
    }

    /// Until then, or until something comes.
    fn spin_until(&self, then: Instant) {
        while Instant::now() < then && !self.has_some.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
    }
}

impl Inbox {
    fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.tasks.is_empty()
    }
}
