//! The thread of a device that looks how far its streams have come, and takes their queues' turns.
//!
//! The driver has no call that waits for the first of several events, and its callbacks hold up the stream that they are in;
//! so one thread asks. It asks without pause while things end one after the other, then less and less often, at most
//! [`LONGEST`] apart, and sleeps when nothing is in flight. All `done` callbacks are made here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use elinvar_driver::{Error, Result};
use parking_lot::{Condvar, Mutex};

use crate::context::DeviceEvent;
use crate::failure::Failure;
use crate::queue::{Stream, Submissions};

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

/// So many fences ahead are asked for at once, since the device has come to all before one to which it has come.
const MANY: usize = 16;
/// After so many have been passed those who wait are told.
const MOST_AT_ONCE: usize = 64;

/// The thread, for those who have something for it.
pub(crate) struct Poller {
    inbox: Mutex<Inbox>,
    filled: Condvar,
    /// Whether there is something in the inbox.
    has_some: AtomicBool,
}

#[derive(Default)]
struct Inbox {
    watched: Vec<Arc<Submissions>>,
    turns: Vec<Arc<Submissions>>,
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

    /// Look after a queue until it has nothing in flight.
    pub(crate) fn watch(&self, queue: Arc<Submissions>) {
        self.fill(|inbox| inbox.watched.push(queue));
    }

    /// Give a queue its turn.
    pub(crate) fn turn(&self, queue: Arc<Submissions>) {
        self.fill(|inbox| inbox.turns.push(queue));
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

    /// Empties the inbox, after a pause that depends on when something `last` ended. `false` at the end.
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
            self.filled.wait_for(&mut inbox, (last.elapsed() / 32).min(LONGEST));
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

    /// Until then, or until something comes.
    fn spin_until(&self, then: Instant) {
        while Instant::now() < then && !self.has_some.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
    }
}

impl Inbox {
    fn is_empty(&self) -> bool {
        self.watched.is_empty() && self.turns.is_empty()
    }
}

/// What looking at a queue has brought.
struct Looked {
    has_done: bool,
    /// Whether so much is in flight that nobody waits for what is next.
    is_busy: bool,
    goes_on: bool,
}

/// See how far the device has come with a queue, and do what follows from it.
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

/// Pass the fences to which the device has come, some of them at most.
fn collect(queue: &Arc<Submissions>, passed: &mut usize) -> Result<(), Failure> {
    let stream: &Stream = queue.backend();
    let Ok(_current) = stream.shared.context.enter() else {
        Stream::abandon(queue, None);
        *passed += 1;
        return Ok(());
    };
    let mut come: Option<(DeviceEvent, u64)> = None;
    // Fences from the first on to which the device is known to have come.
    let mut known = 0;
    while *passed < MOST_AT_ONCE {
        if let Some(failure) = stream.progress.lock().broken {
            return Err(failure);
        }
        // Nobody else passes fences: what is first stays first without the lock.
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
                    let ns = stream.shared.clock.place(&at)?;
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
