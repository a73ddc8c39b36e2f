//! The threadgroups of one dispatch as work: for one thread, or as a [`Job`] that workers join.
//!
//! Invariant: a thread runs the groups of a range in order, from begin to end, before it asks for the next.
//! So if they are handed out in ascending order, every group before a running one has ended, is running, or
//! stands before a running one in another thread's range: a group may wait for an earlier one.
//!
//! Ranges are sized by time: each thread knows or finds out how long a group takes and asks for as many as
//! take [`RANGE_NS`]. That makes what a range costs small, keeps the tail short, and lets a job that was
//! expected to be short be shared when it is not.

use std::any::Any;
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Error, Result, panic_text};

use crate::ranges::Ranges;
use crate::scratch::Scratch;

/// Time that one range of groups should take.
pub(crate) const RANGE_NS: u64 = 4_000;
/// Where all workers take from one range they ask for more, so that it changes at most this often.
const SHARED_NS: u64 = 250;
/// A dispatch may take longer than the one before it. So while one thread runs it alone, no range has more than
/// one in so many groups, or what takes a part of [`RANGE_NS`] by its own first groups.
const ALONE_PARTS: u64 = 8;

/// How long a worker waits awake before it sleeps. Short, and without giving way: one that is awake but does not
/// run would be counted on.
const AWAKE: Duration = Duration::from_micros(10);

/// What is done with a range of groups.
pub(crate) trait Work: Send + Sync {
    /// Run the groups in order. `Break` stops the dispatch: nothing more is handed out.
    fn run(&self, groups: Range<u64>, scratch: &mut Scratch) -> ControlFlow<()>;
}

/// How much there is to do, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Below 2^62.
    pub(crate) groups: u64,
    /// What a group took in the dispatch before this one; 0 if there was none.
    pub(crate) group_ns: u64,
    /// Whether groups have to start in ascending order.
    pub(crate) ascending: bool,
}

/// What one thread has done of a dispatch, and how many groups it runs at a time.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    pub(crate) groups: u64,
    pub(crate) ns: u64,
    size: u64,
    target_ns: u64,
    since: Instant,
}

impl Pace {
    pub(crate) fn new(group_ns: u64, target_ns: u64) -> Self {
        let size = target_ns.checked_div(group_ns).unwrap_or(1).max(1);
        Self { groups: 0, ns: 0, size, target_ns, since: Instant::now() }
    }

    fn ran(&mut self, groups: u64) {
        let now = Instant::now();
        let ns = u64::try_from((now - self.since).as_nanos()).unwrap_or(u64::MAX);
        self.since = now;
        self.groups += groups;
        self.ns = self.ns.saturating_add(ns);
        if ns < self.target_ns / 2 {
            self.size = self.size.saturating_mul(2);
        } else if ns > self.target_ns * 2 {
            self.size = (self.size / 2).max(1);
        }
    }

    /// Both together.
    pub(crate) fn with(self, other: &Self) -> Self {
        Self { groups: self.groups + other.groups, ns: self.ns.saturating_add(other.ns), ..self }
    }

    /// What a group has taken so far; 0 if none has run.
    pub(crate) fn group_ns(&self) -> u64 {
        self.ns.checked_div(self.groups).map_or(0, |ns| ns.max(1))
    }
}

/// Run groups on this thread alone, until `leave` says, by the pace, that those that are left are to be shared.
/// Returns the first that has not run.
pub(crate) fn run_alone(
    work: &dyn Work,
    demand: Demand,
    pace: &mut Pace,
    scratch: &mut Scratch,
    leave: impl Fn(&Pace, u64) -> bool,
) -> Result<u64> {
    let part = (demand.groups / ALONE_PARTS).max(1);
    let run = || {
        let mut next = 0;
        while next < demand.groups && !leave(pace, demand.groups - next) {
            let most = part.max((RANGE_NS / 2).checked_div(pace.group_ns()).unwrap_or(1));
            let end = demand.groups.min(next + pace.size.min(most));
            if work.run(next..end, scratch).is_break() {
                return demand.groups;
            }
            pace.ran(end - next);
            next = end;
        }
        next
    };
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| panic_error(&*payload))
}

/// A dispatch that workers share. The worker that owns it waits for the others.
pub(crate) struct Job {
    work: Arc<dyn Work>,
    ranges: Ranges,
    workers: usize,
    helpers: AtomicUsize,
    /// Set when somebody has found nothing more to take.
    drained: AtomicBool,
    owner: Thread,
    group_ns: u64,
    target_ns: u64,
    panic: Mutex<Option<Error>>,
}

impl Job {
    /// A job of the calling thread: the groups from `next` on.
    pub(crate) fn new(work: Arc<dyn Work>, demand: Demand, next: u64, workers: usize) -> Self {
        let Demand { groups, group_ns, ascending } = demand;
        let target_ns = if ascending { RANGE_NS.max(SHARED_NS * workers as u64) } else { RANGE_NS };
        Self {
            work,
            ranges: Ranges::new(next..groups, workers, ascending),
            workers,
            helpers: AtomicUsize::new(0),
            drained: AtomicBool::new(false),
            owner: std::thread::current(),
            group_ns,
            target_ns,
            panic: Mutex::new(None),
        }
    }

    pub(crate) fn helpers(&self) -> usize {
        self.helpers.load(Ordering::Relaxed)
    }

    /// How many more workers it has something for.
    pub(crate) fn vacancies(&self) -> usize {
        match self.drained.load(Ordering::Relaxed) {
            true => 0,
            false => self.workers.saturating_sub(1 + self.helpers()),
        }
    }

    /// Count a helper in. Only under the pool's lock, while the job is in the pool's list.
    pub(crate) fn join(&self) {
        self.helpers.fetch_add(1, Ordering::Relaxed);
    }

    /// What a worker does that has joined: run groups until none is left, then report to the owner.
    pub(crate) fn help(&self, worker: usize, scratch: &mut Scratch) {
        self.take_part(worker, scratch);
        if self.helpers.fetch_sub(1, Ordering::Release) == 1 {
            self.owner.unpark();
        }
    }

    /// Wait until no helper is left. Only by the owner, once nobody can join any more.
    pub(crate) fn wait_for_helpers(&self) {
        let ended = || self.helpers.load(Ordering::Acquire) == 0;
        while !wait_awake(ended) {
            std::thread::park();
        }
    }

    /// The first panic of a participant.
    pub(crate) fn panicked(&self) -> Option<Error> {
        self.panic.lock().take()
    }

    /// Run groups until none is left to hand out. A panic stops the job and is kept for the owner.
    pub(crate) fn take_part(&self, worker: usize, scratch: &mut Scratch) -> Pace {
        let mut pace = Pace::new(self.group_ns, self.target_ns);
        let run = || {
            while let Some(range) = self.ranges.take(worker, pace.size) {
                let groups = range.end - range.start;
                if self.work.run(range, scratch).is_break() {
                    self.ranges.stop();
                }
                pace.ran(groups);
            }
        };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
            self.ranges.stop();
            self.panic.lock().get_or_insert(panic_error(&*payload));
        }
        self.drained.store(true, Ordering::Relaxed);
        pace
    }
}

/// Wait for a condition without sleeping, for a bounded time; whether it holds.
pub(crate) fn wait_awake(holds: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > AWAKE {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

/// The error that a panic of a worker becomes.
fn panic_error(payload: &(dyn Any + Send)) -> Error {
    worker_panicked(panic_text(payload))
}

/// The same, from what the panic says.
pub(crate) fn worker_panicked(message: &str) -> Error {
    Error::DeviceLost(format!("a worker thread of the CPU driver panicked: {message}"))
}
