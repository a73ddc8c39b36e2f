//! The poller thread of a device: polls the progress of its streams, and takes the turns of their queues.
//!
//! The driver API cannot wait for the first of several events, and its callbacks block the stream that they are in, so one thread polls. It
//! polls without pause while operations complete in quick succession, then with increasing pauses of at most [`LONGEST`], and sleeps when
//! nothing is in flight. All `done` callbacks are made on this thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use elinvar_driver::{Error, Result};
use parking_lot::{Condvar, Mutex};

use crate::clock::now_ns;
use crate::context::DeviceEvent;
use crate::failure::Failure;
use crate::queue::{Stream, Submissions};

/// Duration of polling without pause after an operation has completed.
const EAGER: Duration = Duration::from_micros(500);
/// Duration of spinning for new work after the last operation has completed.
const IDLE: Duration = Duration::from_micros(50);
/// Pause between rounds of polling without pause, so that submitting threads can take the driver's locks: if a thread may be waiting for the
/// next operation, and if much is in flight.
const BREATH: Duration = Duration::from_micros(3);
const LONG_BREATH: Duration = Duration::from_micros(20);
/// Maximum pause.
const LONGEST: Duration = Duration::from_micros(500);

/// Number of fences that are polled with one query: if the device has reached a later fence, it has reached all before it.
const MANY: usize = 16;
/// Maximum number of fences to pass before completions are reported.
const MOST_AT_ONCE: usize = 64;

/// Handle of the thread.
pub(crate) struct Poller {
    inbox: Mutex<Inbox>,
    filled: Condvar,
    /// Whether the inbox is not empty.
    has_some: AtomicBool,
}

#[derive(Default)]
struct Inbox {
    watched: Vec<Arc<Submissions>>,
    turns: Vec<Arc<Submissions>>,
    /// Whether the thread sleeps.
    waits: bool,
    closed: bool,
}

impl Poller {
    /// Starts a thread, which ends after [`Poller::close`].
    pub(crate) fn start(device: &str) -> Result<Arc<Self>> {
        let poller = Arc::new(Self {
            inbox: Mutex::default(),
            filled: Condvar::new(),
            has_some: AtomicBool::new(false),
        });
        let run = {
            let poller = poller.clone();
            move || {
                wake_in_time();
                poller.run();
            }
        };
        let thread = std::thread::Builder::new().name("elinvar-cuda".into()).spawn(run);
        thread.map_err(|error| {
            Error::Environment(format!("device `{device}`: cannot start a thread: {error}"))
        })?;
        Ok(poller)
    }

    /// Polls a queue until it has nothing in flight.
    pub(crate) fn watch(&self, queue: Arc<Submissions>) {
        self.fill(|inbox| inbox.watched.push(queue));
    }

    /// Schedules a turn of a queue.
    pub(crate) fn turn(&self, queue: Arc<Submissions>) {
        self.fill(|inbox| inbox.turns.push(queue));
    }

    /// Ends the thread when its work is done.
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
        let (mut watched, mut turns) = (Vec::new(), Vec::new());
        let (mut last, mut is_busy) = (Instant::now(), false);
        while self.take(&mut watched, &mut turns, last, is_busy) {
            let mut has_done = !turns.is_empty();
            turns.drain(..).for_each(|queue| queue.turn(&mut ()));
            is_busy = false;
            watched.retain(|queue| {
                let looked = look(queue);
                has_done |= looked.has_done;
                is_busy |= looked.is_busy;
                looked.goes_on
            });
            if has_done {
                last = Instant::now();
            }
        }
    }

    /// Empties the inbox, after a pause that depends on the time of the `last` completion. Returns `false` at the end.
    fn take(
        &self,
        watched: &mut Vec<Arc<Submissions>>,
        turns: &mut Vec<Arc<Submissions>>,
        last: Instant,
        is_busy: bool,
    ) -> bool {
        if watched.is_empty() {
            self.spin_until(last + IDLE);
        } else if last.elapsed() < EAGER {
            self.spin_until(Instant::now() + if is_busy { LONG_BREATH } else { BREATH });
        }
        let mut inbox = self.inbox.lock();
        if watched.is_empty() {
            while inbox.is_empty() && !inbox.closed {
                inbox.waits = true;
                self.filled.wait(&mut inbox);
            }
        } else if inbox.is_empty() && last.elapsed() >= EAGER {
            inbox.waits = true;
            self.filled.wait_for(&mut inbox, (last.elapsed() / 64).min(LONGEST));
        }
        inbox.waits = false;
        if inbox.closed && watched.is_empty() && inbox.is_empty() {
            return false;
        }
        self.has_some.store(false, Ordering::Release);
        watched.append(&mut inbox.watched);
        turns.append(&mut inbox.turns);
        true
    }

    /// Sleeps until the deadline, or until the inbox is not empty.
    fn spin_until(&self, then: Instant) {
        while Instant::now() < then && !self.has_some.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
    }
}

/// Pauses of this thread end when they should: Linux lets a thread sleep for up to 50 µs longer, unless it asks for less (prctl(2), `PR_SET_TIMERSLACK`).
#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // a C function
fn wake_in_time() {
    // SAFETY: the call has a number of nanoseconds, and no effect on memory. It does not fail for a thread's own slack.
    let _always = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000_u64) };
}

#[cfg(not(target_os = "linux"))]
fn wake_in_time() {}

impl Inbox {
    fn is_empty(&self) -> bool {
        self.watched.is_empty() && self.turns.is_empty()
    }
}

/// Result of polling a queue.
struct Looked {
    has_done: bool,
    /// Whether so much is in flight that no thread waits for the next completion.
    is_busy: bool,
    goes_on: bool,
}

/// Polls the progress of a queue, and processes completions.
fn look(queue: &Arc<Submissions>) -> Looked {
    let mut passed = 0;
    let collected = collect(queue, &mut passed);
    if passed > 0 {
        queue.turn(&mut ());
    }
    if let Err(failure) = collected {
        queue.backend().shared.fail(failure);
    }
    let mut progress = queue.backend().progress.lock();
    let in_flight = queue.with_fences(|fences| fences.count());
    progress.is_watched = in_flight > 0;
    Looked { has_done: passed > 0, is_busy: in_flight > MANY, goes_on: progress.is_watched }
}

/// Passes fences that the device has reached, up to a limit.
fn collect(queue: &Arc<Submissions>, passed: &mut usize) -> Result<(), Failure> {
    let stream: &Stream = queue.backend();
    let Ok(_current) = stream.shared.context.enter() else {
        Stream::abandon(queue, None);
        *passed += 1;
        return Ok(());
    };
    let mut come: Option<(DeviceEvent, u64)> = None;
    // Number of fences, from the first, that the device is known to have reached.
    let mut known = 0;
    while *passed < MOST_AT_ONCE {
        if let Some(failure) = stream.progress.lock().broken {
            return Err(failure);
        }
        // Only this thread passes fences, so the first fence stays the first without the lock.
        let first = queue.with_fences(|fences| {
            let first = fences.next()?.at.clone();
            Some((first, fences.nth(MANY - 2).and_then(|far| far.at.clone())))
        });
        let Some((at, far)) = first else { break };
        if known == 0
            && let Some(far) = far
            && far.has_come()?
        {
            known = MANY;
        }
        let ns = match at {
            None => 0,
            Some(at) => match &come {
                Some((known, ns)) if known.is(&at) => *ns,
                _ if known == 0 && !at.has_come()? => return Ok(()),
                _ => {
                    let ns = if at.has_time() { stream.shared.clock.place(&at)? } else { now_ns() };
                    come = Some((at, ns));
                    ns
                }
            },
        };
        stream.pass(queue, ns);
        known = known.saturating_sub(1);
        *passed += 1;
    }
    stream.shared.clock.refresh()
}
