//! A parallel job: the threadgroups of one dispatch, handed out to whichever workers join.
//!
//! Invariant: groups are handed out in ascending order, and a worker runs its range from begin to end
//! before it asks for the next. So when a group runs, every earlier group has ended, is running, or
//! stands before a running one in another worker's range; a group may spin on an earlier one.
//!
//! Ranges are sized by time: each participant doubles or halves its own until one takes about
//! [`TARGET_NS`], which makes the shared counter cheap and keeps the tail short.

use std::any::Any;
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::Instant;

use elinvar_driver::Error;
use parking_lot::Mutex;

use crate::scratch::Scratch;

/// Time that one range of groups should take.
const TARGET_NS: u64 = 4_000;
/// On many workers ranges are longer, so that the shared counter is asked at most this often in all.
const COUNTER_NS: u64 = 250;

/// What a job does with a range of groups.
pub(crate) trait Work: Send + Sync {
    /// Run the groups in order. `Break` stops the job: nothing more is handed out.
    fn run(&self, groups: Range<u64>, scratch: &mut Scratch) -> ControlFlow<()>;
}

/// The shared state of a job. `total` groups; the worker that owns it waits for the others.
pub(crate) struct Job<W: ?Sized> {
    next: AtomicU64,
    total: u64,
    workers: u64,
    helpers: AtomicUsize,
    owner: Thread,
    panic: Mutex<Option<Error>>,
    pub(crate) work: W,
}

/// How much of a job one participant has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    pub(crate) groups: u64,
    pub(crate) ns: u64,
}

impl<W> Job<W> {
    /// A job of the calling thread, of which at most `workers` take part. `total` is below 2^62.
    pub(crate) fn new(work: W, total: u64, workers: usize) -> Self {
        Self {
            next: AtomicU64::new(0),
            total,
            workers: workers as u64,
            helpers: AtomicUsize::new(0),
            owner: std::thread::current(),
            panic: Mutex::new(None),
            work,
        }
    }
}

impl<W: Work + ?Sized> Job<W> {
    /// Groups not handed out yet.
    pub(crate) fn remaining(&self) -> u64 {
        self.total.saturating_sub(self.next.load(Ordering::Relaxed))
    }

    pub(crate) fn helpers(&self) -> usize {
        self.helpers.load(Ordering::Relaxed)
    }

    /// Count a helper in. Only under the pool's lock, while the job is in the pool's list.
    pub(crate) fn join(&self) {
        self.helpers.fetch_add(1, Ordering::Relaxed);
    }

    /// What a worker does that has joined: run groups until none is left, then report to the owner.
    pub(crate) fn help(&self, scratch: &mut Scratch) {
        self.take_part(scratch, |_| {});
        if self.helpers.fetch_sub(1, Ordering::Release) == 1 {
            self.owner.unpark();
        }
    }

    /// Wait until no helper is left. Only by the owner, once nobody can join any more.
    pub(crate) fn wait_for_helpers(&self) {
        let mut spins = 0_u32;
        while self.helpers.load(Ordering::Acquire) != 0 {
            if spins < 1000 {
                spins += 1;
                std::hint::spin_loop();
            } else {
                std::thread::park();
            }
        }
    }

    /// The first panic of a participant.
    pub(crate) fn panicked(&self) -> Option<Error> {
        self.panic.lock().take()
    }

    /// Run groups until none is left to hand out. `after` hears of this participant's share after
    /// every range. A panic stops the job and is kept for the owner.
    pub(crate) fn take_part(&self, scratch: &mut Scratch, after: impl FnMut(Share)) -> Share {
        let run = catch_unwind(AssertUnwindSafe(|| self.run_ranges(scratch, after)));
        run.unwrap_or_else(|payload| {
            self.stop();
            self.panic.lock().get_or_insert(panic_error(&*payload));
            Share::default()
        })
    }

    fn run_ranges(&self, scratch: &mut Scratch, mut after: impl FnMut(Share)) -> Share {
        let target = TARGET_NS.max(COUNTER_NS * self.workers);
        let mut share = Share::default();
        let mut size = 1;
        let mut begun = Instant::now();
        while let Some(range) = self.hand_out(size) {
            let groups = range.end - range.start;
            if self.work.run(range, scratch).is_break() {
                self.stop();
            }
            let now = Instant::now();
            let ns = u64::try_from((now - begun).as_nanos()).unwrap_or(u64::MAX);
            begun = now;
            share = Share { groups: share.groups + groups, ns: share.ns.saturating_add(ns) };
            if ns < target / 2 {
                size *= 2;
            } else if ns > target * 2 {
                size = (size / 2).max(1);
            }
            after(share);
            size = size.min(self.remaining() / (4 * self.workers)).max(1);
        }
        share
    }

    fn hand_out(&self, size: u64) -> Option<Range<u64>> {
        let begin = self.next.fetch_add(size, Ordering::Relaxed);
        (begin < self.total).then(|| begin..(begin + size).min(self.total))
    }

    fn stop(&self) {
        self.next.fetch_max(self.total, Ordering::Relaxed);
    }
}

/// The error that a panic of a worker becomes.
pub(crate) fn panic_error(payload: &(dyn Any + Send)) -> Error {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    Error::DeviceLost(format!("a worker thread of the CPU driver panicked: {}", text.unwrap_or("no message")))
}
