//! Execution of a dispatch's threadgroups: on one thread, or as a [`Job`] that workers help with.
//!
//! Invariant: a thread runs the threadgroups of a range in order before it claims the next range. If ranges are claimed in ascending order,
//! every threadgroup before a running one has ended, is running, or is in another thread's range behind a running one. Therefore a
//! threadgroup may wait for an earlier one.
//!
//! Ranges are sized by time: each thread measures the time per threadgroup and claims as many as take [`Demand::range_ns`]. This keeps the
//! overhead per range and the tail small, and allows sharing a job that takes longer than expected.

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

/// Target duration of one range of threadgroups.
pub(crate) const RANGE_NS: u64 = 4_000;
/// The same for kernels with private counters: a call's end takes up to 2 µs for each KiB of counters.
pub(crate) const COUNTING_NS: u64 = 40_000;
/// If all workers claim from one range, they claim more at a time, so that it changes at most this often.
const SHARED_NS: u64 = 250;
/// A dispatch may take longer than the previous one. While one thread runs it alone, a range has at most one in this many threadgroups,
/// or as many as take a fraction of [`Demand::range_ns`], measured on its own first threadgroups.
const ALONE_PARTS: u64 = 8;

/// How long a worker spins before it sleeps. Short, and without yielding, because spinning workers that are descheduled would be counted
/// as available.
pub(crate) const AWAKE: Duration = Duration::from_micros(10);
/// The same for a worker that has helped, while another is busy, whose next job may begin at any time; and for the owner of a job,
/// whose helpers are in their last ranges. A processor that has to be woken takes as long to begin.
pub(crate) const AWAKE_IN_JOBS: Duration = Duration::from_micros(100);

/// Body of a dispatch.
pub(crate) trait Work: Send + Sync {
    /// Runs the threadgroups of a range in order. `Break` cancels the remaining ones.
    fn run(&self, groups: Range<u64>, scratch: &mut Scratch) -> ControlFlow<()>;
}

/// Size and order of a dispatch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Number of threadgroups, below 2^62.
    pub(crate) groups: u64,
    /// Time per threadgroup in the previous dispatch, in nanoseconds; 0 if there was none.
    pub(crate) group_ns: u64,
    /// Whether threadgroups must start in ascending order.
    pub(crate) ascending: bool,
    /// Target duration of a range in nanoseconds.
    pub(crate) range_ns: u64,
}

/// Progress of one thread in a dispatch, and its range size.
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

    /// Sum of both.
    pub(crate) fn with(self, other: &Self) -> Self {
        Self { groups: self.groups + other.groups, ns: self.ns.saturating_add(other.ns), ..self }
    }

    /// Time per threadgroup so far; 0 if none has run.
    pub(crate) fn group_ns(&self) -> u64 {
        self.ns.checked_div(self.groups).map_or(0, |ns| ns.max(1))
    }
}

/// Runs threadgroups on this thread alone, until `leave` decides, from the pace, to share the remaining ones. Returns the first that has
/// not run.
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
            let most = part.max((demand.range_ns / 2).checked_div(pace.group_ns()).unwrap_or(1));
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

/// Runs all threadgroups in one range.
pub(crate) fn run_whole(work: &dyn Work, groups: u64, scratch: &mut Scratch) -> Result<ControlFlow<()>> {
    let run = || work.run(0..groups, scratch);
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| panic_error(&*payload))
}

/// A dispatch that several workers execute. The worker that owns it waits for the others.
pub(crate) struct Job {
    work: Arc<dyn Work>,
    ranges: Ranges,
    workers: usize,
    helpers: AtomicUsize,
    /// Set when a participant has found no more ranges.
    drained: AtomicBool,
    owner: Thread,
    group_ns: u64,
    target_ns: u64,
    panic: Mutex<Option<Error>>,
}

impl Job {
    /// Creates a job of the calling thread for the threadgroups from `next` on.
    pub(crate) fn new(work: Arc<dyn Work>, demand: Demand, next: u64, workers: usize) -> Self {
        let Demand { groups, group_ns, ascending, range_ns } = demand;
        let target_ns = if ascending { range_ns.max(SHARED_NS * workers as u64) } else { range_ns };
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

    /// Number of additional workers that could help.
    pub(crate) fn vacancies(&self) -> usize {
        match self.drained.load(Ordering::Relaxed) {
            true => 0,
            false => self.workers.saturating_sub(1 + self.helpers()),
        }
    }

    /// Registers a helper. Must be called under the pool's lock, while the job is in the pool's list.
    pub(crate) fn join(&self) {
        self.helpers.fetch_add(1, Ordering::Relaxed);
    }

    /// Body of a helper: runs threadgroups until none is left, then notifies the owner.
    pub(crate) fn help(&self, worker: usize, scratch: &mut Scratch) {
        self.take_part(worker, scratch);
        if self.helpers.fetch_sub(1, Ordering::Release) == 1 {
            self.owner.unpark();
        }
    }

    /// Waits until all helpers have left. Called by the owner, after the job was removed from the pool's list.
    pub(crate) fn wait_for_helpers(&self) {
        let ended = || self.helpers.load(Ordering::Acquire) == 0;
        let yields = || {
            std::thread::yield_now();
            ended()
        };
        while !wait_awake(AWAKE, ended) && !wait_awake(AWAKE_IN_JOBS, yields) {
            std::thread::park();
        }
    }

    /// The first panic of a participant.
    pub(crate) fn panicked(&self) -> Option<Error> {
        self.panic.lock().take()
    }

    /// Runs threadgroups until none is unclaimed. A panic cancels the job and is kept for the owner.
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

/// Spins for a bounded time until a condition holds. Returns whether it does.
pub(crate) fn wait_awake(at_most: Duration, holds: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > at_most {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

/// Converts a panic of a worker to an error.
fn panic_error(payload: &(dyn Any + Send)) -> Error {
    worker_panicked(panic_text(payload))
}

/// As above, from the panic's message.
pub(crate) fn worker_panicked(message: &str) -> Error {
    Error::DeviceLost(format!("a worker thread of the CPU driver panicked: {message}"))
}
