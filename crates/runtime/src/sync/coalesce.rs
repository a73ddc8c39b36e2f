//! [`Coalescer`]: small submissions of one stream that go to the driver as one, while the device works for
//! [`crate::PowerPreference::LowPower`].
//!
//! They go when they are as many as [`Coalescing`] says, when so much time has passed, when somebody waits for one of them, when
//! something comes behind them that goes alone, and with the last handle on the stream. They then share how they end: when one
//! fails, those before it are told to have failed as well.
//!
//! Not gathered is what has a deadline or events, more than a few commands, or a stream that recovers or is limited.
//!
//! Invariant: what was handed over came in the order in which it was submitted; `state` is locked while the driver takes it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Callback, Command, Done, Error, Queue, Result, Submission, Timing};

use crate::Device;
use crate::sync::deadline::{self, Due, Watched};

/// More commands than this are no small submission.
const SMALL: usize = 8;

/// How much is gathered to one submission while a device works for [`crate::PowerPreference::LowPower`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalescing {
    /// As many commands go to the device at once; 1 gathers nothing.
    pub commands: usize,
    /// So long after the first they go, however few.
    pub time: Duration,
}

impl Default for Coalescing {
    /// 64 commands, a millisecond.
    fn default() -> Self {
        Self { commands: 64, time: Duration::from_millis(1) }
    }
}

/// What a device gathers, and on which streams.
#[derive(Default)]
pub(crate) struct Coalescers {
    on: AtomicBool,
    limits: Mutex<Coalescing>,
    streams: Mutex<Vec<Weak<Coalescer>>>,
}

impl Coalescers {
    pub(crate) fn register(&self, coalescer: &Arc<Coalescer>) {
        let mut streams = self.streams.lock();
        if streams.len() == streams.capacity() {
            streams.retain(|coalescer| coalescer.strong_count() > 0);
        }
        streams.push(Arc::downgrade(coalescer));
    }

    /// Begins or ends to gather.
    pub(crate) fn set(&self, on: bool) {
        self.on.store(on, Ordering::Release);
        if !on {
            self.flush();
        }
    }

    /// Hands over what is gathered.
    pub(crate) fn flush(&self) {
        let streams: Vec<_> = self.streams.lock().iter().filter_map(Weak::upgrade).collect();
        streams.iter().for_each(|coalescer| coalescer.flush());
    }
}

impl Device {
    /// How much is gathered to one submission while the device works for [`crate::PowerPreference::LowPower`].
    pub fn gathering(&self) -> Coalescing {
        *self.coalescers().limits.lock()
    }

    /// Change how much is gathered from now on.
    pub fn set_coalescing(&self, limits: Coalescing) {
        *self.coalescers().limits.lock() = limits;
    }
}

/// What one stream has gathered.
pub(crate) struct Coalescer {
    device: Device,
    queue: Arc<dyn Queue>,
    state: Mutex<State>,
    /// Whether there is anything, to be looked at without the lock.
    some: AtomicBool,
}

#[derive(Default)]
struct State {
    last_id: u64,
    gathered: Vec<Gathered>,
    commands: usize,
    /// Resets of the device when the first came.
    seen: u64,
    watched: Option<Watched>,
}

struct Gathered {
    id: u64,
    commands: Arc<[Command]>,
    done: Done,
}

/// Submissions that have not got to the driver, and why.
pub(crate) struct Ends(Vec<Gathered>, Error);

impl Coalescer {
    pub(crate) fn new(device: &Device, queue: &Arc<dyn Queue>) -> Arc<Self> {
        let (device, queue) = (device.clone(), queue.clone());
        let (state, some) = (Mutex::default(), AtomicBool::new(false));
        let coalescer = Arc::new(Self { device, queue, state, some });
        coalescer.device.coalescers().register(&coalescer);
        coalescer
    }

    /// Keeps a submission until it goes with others, if the device gathers and it is small; else gives it back.
    pub(crate) fn keep(
        self: &Arc<Self>,
        commands: Arc<[Command]>,
        done: Done,
    ) -> std::result::Result<Submission, (Arc<[Command]>, Done)> {
        let coalescers = self.device.coalescers();
        if !coalescers.on.load(Ordering::Acquire) || commands.is_empty() || commands.len() > SMALL {
            return Err((commands, done));
        }
        let limits = *coalescers.limits.lock();
        if limits.commands <= 1 || deadline::start().is_err() {
            return Err((commands, done));
        }
        let mut state = self.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        if state.gathered.is_empty() {
            state.seen = self.device.recovery().resets();
            let then = Instant::now().checked_add(limits.time);
            state.watched = then.map(|then| deadline::watch(then, Due::Flush(Arc::downgrade(self))));
            self.some.store(true, Ordering::Release);
        }
        state.commands += commands.len();
        state.gathered.push(Gathered { id, commands, done });
        if state.commands >= limits.commands {
            self.hand_over(&mut state);
        }
        Ok(Submission(id))
    }

    /// Hands over what there is.
    pub(crate) fn flush(&self) {
        if self.some.load(Ordering::Acquire) {
            self.hand_over(&mut self.state.lock());
        }
    }

    /// Those who wait are told elsewhere if the driver takes nothing: the caller may hold what they need.
    fn hand_over(&self, state: &mut State) {
        if let Some(ends) = self.given(state) {
            deadline::soon(Due::Tell(ends));
        }
    }

    fn given(&self, state: &mut State) -> Option<Ends> {
        state.watched = None;
        state.commands = 0;
        self.some.store(false, Ordering::Release);
        let gathered = std::mem::take(&mut state.gathered);
        if gathered.is_empty() {
            return None;
        }
        // Told already, if the device was lost; it is not done all the same when that is back.
        let present = self.device.loss().hold();
        if let Err(cause) = present.expect() {
            return Some(Ends(gathered, cause));
        }
        // One that restarts by itself has lost nothing that it was not given.
        if self.device.recovery().resets() != state.seen && !self.device.caps().features.restarts {
            return Some(Ends(gathered, Error::DeviceLost("the device was reset".into())));
        }
        let commands: Arc<[Command]> = gathered.iter().flat_map(|one| one.commands.iter().cloned()).collect();
        let shared = Arc::new(Mutex::new(gathered));
        let of_driver = shared.clone();
        let done = Done::new(move |result: Result<Timing>| {
            let gathered = std::mem::take(&mut *of_driver.lock());
            gathered.into_iter().for_each(|one| one.end(result.clone()));
        });
        let error = self.queue.submit(commands, done).err()?;
        Some(Ends(std::mem::take(&mut *shared.lock()), error))
    }
}

impl Gathered {
    fn end(self, result: Result<Timing>) {
        let Self { commands, done, .. } = self;
        let _callback = Callback::enter();
        drop(commands);
        done.call(result);
    }
}

impl Ends {
    pub(crate) fn tell(self) {
        let Self(gathered, error) = self;
        gathered.into_iter().for_each(|one| one.end(Err(error.clone())));
    }
}

/// As the completions of what was gathered see it.
#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: what is gathered ends when the submission that it went into has ended, on a queue that keeps the contract.
unsafe impl Queue for Coalescer {
    fn submit(&self, commands: Arc<[Command]>, done: Done) -> Result<Submission> {
        self.flush();
        self.queue.submit(commands, done)
    }

    /// What was handed over goes with others, and is not taken from between them.
    fn cancel(&self, submission: Submission) -> bool {
        let mut state = self.state.lock();
        let Some(at) = state.gathered.iter().position(|one| one.id == submission.0) else { return false };
        let one = state.gathered.remove(at);
        state.commands -= one.commands.len();
        drop(state);
        one.end(Err(Error::Cancelled));
        true
    }

    fn acknowledge(&self) -> Option<Error> {
        self.flush();
        self.queue.acknowledge()
    }
}

impl Drop for Coalescer {
    fn drop(&mut self) {
        if self.device.is_here() {
            self.flush();
        }
    }
}
