//! [`Coalescer`]: coalesces small submissions of a stream into one, while the device is in [`crate::PowerPreference::LowPower`]
//! mode.
//!
//! Coalesced submissions are passed to the driver when [`Coalescing::commands`] or [`Coalescing::time`] is reached, when somebody
//! waits for one of them, before a submission that is not coalesced, and with the stream's last handle. They share a result: when
//! one fails, those before it are reported as failed too.
//!
//! Submissions with a deadline, events, or more than a few commands are not coalesced, nor are those of a recovering or limited
//! stream.
//!
//! Invariant: submissions are passed on in submission order; `state` is locked while the driver takes them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Callback, Command, Done, Error, Queue, Result, Submission, Timing};

use crate::Device;
use crate::sync::deadline::{self, Due, Watched};

/// Maximum number of commands of a submission that is coalesced.
const SMALL: usize = 8;

/// Limits of coalescing, which is active under [`crate::PowerPreference::LowPower`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalescing {
    /// Number of commands at which they are submitted; 0 and 1 disable coalescing.
    pub commands: usize,
    /// Maximum time between the first command and the submission.
    pub time: Duration,
}

impl Default for Coalescing {
    /// 64 commands, 1 ms.
    fn default() -> Self {
        Self { commands: 64, time: Duration::from_millis(1) }
    }
}

/// Coalescing state of a device, and its streams.
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

    /// Enables or disables coalescing.
    pub(crate) fn set(&self, on: bool) {
        self.on.store(on, Ordering::Release);
        if !on {
            self.flush();
        }
    }

    /// Whether small submissions are coalesced.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// Submits all coalesced work.
    pub(crate) fn flush(&self) {
        let streams: Vec<_> = self.streams.lock().iter().filter_map(Weak::upgrade).collect();
        streams.iter().for_each(|coalescer| coalescer.flush());
    }
}

impl Device {
    /// The limits of coalescing.
    pub fn coalescing(&self) -> Coalescing {
        *self.coalescers().limits.lock()
    }

    /// Sets the limits of coalescing for later submissions.
    pub fn set_coalescing(&self, limits: Coalescing) {
        *self.coalescers().limits.lock() = limits;
    }
}

/// Coalesced submissions of one stream.
pub(crate) struct Coalescer {
    device: Device,
    queue: Arc<dyn Queue>,
    state: Mutex<State>,
    /// Whether there are any; read without the lock.
    some: AtomicBool,
}

#[derive(Default)]
struct State {
    last_id: u64,
    coalesced: Vec<Coalesced>,
    commands: usize,
    /// Number of device resets when the first submission was added.
    seen: u64,
    watched: Option<Watched>,
}

struct Coalesced {
    id: u64,
    commands: Arc<[Command]>,
    done: Done,
}

/// Submissions that did not reach the driver, and the cause.
pub(crate) struct Ends(Vec<Coalesced>, Error);

impl Coalescer {
    pub(crate) fn new(device: &Device, queue: &Arc<dyn Queue>) -> Arc<Self> {
        let (device, queue) = (device.clone(), queue.clone());
        let (state, some) = (Mutex::default(), AtomicBool::new(false));
        let coalescer = Arc::new(Self { device, queue, state, some });
        coalescer.device.coalescers().register(&coalescer);
        coalescer
    }

    /// Coalesces a submission if coalescing is enabled and the submission is small; otherwise returns it.
    pub(crate) fn keep(
        self: &Arc<Self>,
        commands: Arc<[Command]>,
        done: Done,
    ) -> std::result::Result<Submission, (Arc<[Command]>, Done)> {
        let coalescers = self.device.coalescers();
        if !coalescers.is_on() || commands.is_empty() || commands.len() > SMALL {
            return Err((commands, done));
        }
        let limits = *coalescers.limits.lock();
        if limits.commands <= 1 || deadline::start().is_err() {
            return Err((commands, done));
        }
        let mut state = self.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        if state.coalesced.is_empty() {
            state.seen = self.device.recovery().resets();
            let then = Instant::now().checked_add(limits.time);
            state.watched = then.map(|then| deadline::watch(then, Due::Flush(Arc::downgrade(self))));
            self.some.store(true, Ordering::Release);
        }
        state.commands += commands.len();
        state.coalesced.push(Coalesced { id, commands, done });
        if state.commands >= limits.commands {
            self.hand_over(&mut state);
        }
        Ok(Submission(id))
    }

    /// Submits the coalesced work.
    pub(crate) fn flush(&self) {
        if self.some.load(Ordering::Acquire) {
            self.hand_over(&mut self.state.lock());
        }
    }

    /// If the driver rejects the work, waiters are notified on another thread: the caller may hold a lock that they need.
    fn hand_over(&self, state: &mut State) {
        if let Some(ends) = self.given(state) {
            deadline::soon(Due::Tell(ends));
        }
    }

    fn given(&self, state: &mut State) -> Option<Ends> {
        state.watched = None;
        state.commands = 0;
        self.some.store(false, Ordering::Release);
        let coalesced = std::mem::take(&mut state.coalesced);
        if coalesced.is_empty() {
            return None;
        }
        // If the device was lost they have ended already, and must not run after it has recovered.
        let availability = self.device.state().read();
        if let Err(cause) = availability.check_available() {
            return Some(Ends(coalesced, cause));
        }
        // A device that restarts by itself has lost only work that reached it.
        if self.device.recovery().resets() != state.seen && !self.device.caps().features.restarts {
            return Some(Ends(coalesced, Error::DeviceLost("the device was reset".into())));
        }
        let commands: Arc<[Command]> =
            coalesced.iter().flat_map(|one| one.commands.iter().cloned()).collect();
        let shared = Arc::new(Mutex::new(coalesced));
        let of_driver = shared.clone();
        let done = Done::new(move |result: Result<Timing>| {
            let coalesced = std::mem::take(&mut *of_driver.lock());
            coalesced.into_iter().for_each(|one| one.end(result.clone()));
        });
        let error = self.queue.submit(commands, done).err()?;
        Some(Ends(std::mem::take(&mut *shared.lock()), error))
    }
}

impl Coalesced {
    fn end(self, result: Result<Timing>) {
        let Self { commands, done, .. } = self;
        let _callback = Callback::enter();
        drop(commands);
        done.call(result);
    }
}

impl Ends {
    pub(crate) fn tell(self) {
        let Self(coalesced, error) = self;
        coalesced.into_iter().for_each(|one| one.end(Err(error.clone())));
    }
}

/// The queue as the completions of coalesced submissions see it.
#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: what is coalesced ends when the submission that it went into has ended, on a queue that keeps the contract.
unsafe impl Queue for Coalescer {
    fn submit(&self, commands: Arc<[Command]>, done: Done) -> Result<Submission> {
        self.flush();
        self.queue.submit(commands, done)
    }

    /// A submission that was passed on is part of a larger one and cannot be cancelled.
    fn cancel(&self, submission: Submission) -> bool {
        let mut state = self.state.lock();
        let Some(at) = state.coalesced.iter().position(|one| one.id == submission.0) else { return false };
        let one = state.coalesced.remove(at);
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
