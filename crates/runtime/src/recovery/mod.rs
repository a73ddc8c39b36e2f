//! Recovery: what is done when something fails, for whom asks for it.
//!
//! [`decide`] alone says what is done, as a function of the error, a [`RecoveryPolicy`] and what was tried; everything else here
//! does it: [`Device::recover`] for calls of the host, [`Device::stream_recovering`] for work. Every decision is an event in the device's [`crate::Trace`], if that is on.
//! The [`Breaker`] keeps work of those who recover from a device that fails too often; nobody else is kept from it.

mod breaker;
#[cfg(test)]
mod breaker_tests;
mod decide;
mod layer;
mod policy;
mod queue;
mod replay;
mod thread;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Callback, Error, Priority, Result};

use crate::Device;
use crate::memory::usage::Storage;
use crate::observe::trace::{Notes, TraceStep};

use crate::observe::health::Vitals;
use crate::observe::notice::Wishes;
pub use breaker::{Breaker, BreakerLimits, BreakerMemory, BreakerState};
use breaker::{Permit, Verdict};
pub use decide::{Action, Attempts, Decision, FaultClass, decide};
use layer::{Layer, Submissions};
pub use policy::RecoveryPolicy;
pub(crate) use queue::RecoveringQueue;
use replay::Origins;

/// What a device has for recovery.
pub(crate) struct Recovery {
    breaker: Breaker,
    /// Held while the device is reset.
    resetting: Mutex<()>,
    /// How often it was.
    resets: AtomicU64,
    pub(crate) origins: Origins,
    pub(crate) vitals: Vitals,
    pub(crate) wishes: Wishes,
    /// Memory whose content is lost at a reset.
    own: Mutex<Vec<Weak<Storage>>>,
    /// Of the streams that recover.
    queues: Mutex<Vec<Weak<Submissions>>>,
    next_work: AtomicU64,
}

impl Recovery {
    pub(crate) fn new() -> Self {
        Self {
            breaker: Breaker::new(),
            resetting: Mutex::default(),
            resets: AtomicU64::new(0),
            origins: Origins::default(),
            vitals: Vitals::default(),
            wishes: Wishes::default(),
            own: Mutex::default(),
            queues: Mutex::default(),
            next_work: AtomicU64::new(0),
        }
    }

    /// Enters memory that is lost at a reset.
    pub(crate) fn register(&self, storage: &Arc<Storage>) {
        if storage.is_own() {
            let mut own = self.own.lock();
            if own.len() == own.capacity() {
                own.retain(|storage| storage.strong_count() > 0);
            }
            own.push(Arc::downgrade(storage));
        }
    }

    /// Enters a stream that recovers.
    fn tend(&self, queue: &Arc<Submissions>) {
        let mut queues = self.queues.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(queue));
    }

    /// How often the device was reset.
    pub(crate) fn resets(&self) -> u64 {
        self.resets.load(Ordering::Acquire)
    }

    /// The device is there again: what was lost with it may be tried again.
    fn count_reset(&self) {
        self.resets.fetch_add(1, Ordering::Release);
    }

    /// Blocks while the device is being reset.
    fn wait_for_reset(&self) {
        drop(self.resetting.lock());
    }

    /// A number for a piece of work.
    fn work(&self) -> u64 {
        self.next_work.fetch_add(1, Ordering::Relaxed)
    }
}

impl Device {
    /// What keeps work from this device when it fails too often.
    pub fn breaker(&self) -> &Breaker {
        &self.recovery().breaker
    }

    /// Bring the device back after it was lost. All work in flight on it ends in [`Error::DeviceLost`], which is then the
    /// failure of its streams. Buffers, kernels and streams can be used again; what buffers held that the host does not
    /// share is lost, and reading it is an error until it is written. A device that restarts by itself ([`elinvar_driver::Features::restarts`])
    /// loses nothing but what was in flight.
    ///
    /// # Errors
    /// `Unsupported` where the driver cannot; `DeviceLost` when it does not come back; `WouldDeadlock` in a waker or the destructor
    /// of a buffer's memory.
    pub fn reset(&self) -> Result<()> {
        self.expect_here("Device::reset")?;
        Callback::expect_none("Device::reset")?;
        let _alone = self.recovery().resetting.lock();
        self.reset_counted()
    }

    /// As [`Device::reset`], unless that has happened since it was counted `seen` times. A device that restarts by itself has done so:
    /// work that others have given it since goes on.
    fn reset_since(&self, seen: u64) -> Result<()> {
        let _alone = self.recovery().resetting.lock();
        if self.recovery().resets() != seen {
            return Ok(());
        }
        if self.caps().features.restarts {
            self.recovery().count_reset();
            return Ok(());
        }
        self.reset_counted()
    }

    /// The device is lost, with what runs on it.
    pub(crate) fn lose(&self, cause: &Error) {
        self.breaker().lose(cause);
        let in_flight = self.state().mark_lost(cause);
        // Before anybody knows: what is told to have failed is not tried again.
        let queues: Vec<Arc<Submissions>> =
            self.recovery().queues.lock().iter().filter_map(Weak::upgrade).collect();
        queues.iter().for_each(|queue| Layer::lose(queue, cause));
        in_flight.into_iter().for_each(|work| work.lose(cause));
    }

    fn reset_counted(&self) -> Result<()> {
        self.coalescers().flush();
        self.state().begin_reset();
        let reset = self.driver().reset();
        if reset.is_ok() {
            self.recovery().count_reset();
            let lost = Error::DeviceLost("the content was lost when the device was reset".into());
            // All memory of a device that restarts by itself keeps its content.
            if !self.caps().features.restarts {
                let own: Vec<Arc<Storage>> =
                    self.recovery().own.lock().iter().filter_map(Weak::upgrade).collect();
                own.iter().for_each(|storage| storage.lose(&lost));
            }
            self.breaker().restore();
        }
        self.state().end_reset(reset.is_ok());
        reset
    }

    /// Call `call` until it gives something, or the policy gives up: for what is no work of a stream, such as compiling,
    /// allocating, or opening a stream. It blocks while it waits. Nothing is run elsewhere.
    ///
    /// ```no_run
    /// # fn main() -> elinvar::Result<()> {
    /// # use elinvar::{Device, RecoveryPolicy, Source};
    /// # let device = Device::system_default()?;
    /// let policy = RecoveryPolicy::of(&device);
    /// let library = device.recover(&policy, || device.compile(Source::msl("…")))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What the last call answered; `Refused` when the breaker is open; `WouldDeadlock` in a waker or the destructor of a buffer's
    /// memory.
    pub fn recover<T>(&self, policy: &RecoveryPolicy, mut call: impl FnMut() -> Result<T>) -> Result<T> {
        self.expect_here("Device::recover")?;
        Callback::expect_none("Device::recover")?;
        let notes = self.trace().notes(None, Priority::Normal);
        let mut tried = Attempts { made: 0, ..Attempts::first(self.recovery().work()) };
        tried.no_rerun = Some("a call of the host is for its own device".into());
        loop {
            let seen = self.recovery().resets();
            let error = match self.attempt(&mut call) {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            tried.made += 1;
            self.recovery().wait_for_reset();
            loop {
                tried.is_back = self.recovery().resets() != seen;
                let decision = decide(&error, policy, &tried);
                self.note(notes, &decision);
                std::thread::sleep(decision.after);
                match decision.action {
                    Action::Retry => {}
                    Action::Trim => drop(self.pool().trim(0)),
                    Action::Reset => {
                        tried.resets += 1;
                        if let Err(why) = self.reset_since(seen) {
                            tried.no_reset = Some(why.to_string());
                            continue;
                        }
                    }
                    Action::GiveUp | Action::Refuse | Action::Rerun => {
                        self.note_loss(&error, seen);
                        return Err(error);
                    }
                }
                break;
            }
        }
    }

    fn attempt<T>(&self, call: &mut impl FnMut() -> Result<T>) -> Result<T> {
        let permit = self.breaker().admit(Instant::now())?;
        let result = call();
        self.settle(permit, result.as_ref().err());
        result
    }

    /// Hands a permit back with how the work ended.
    fn settle(&self, permit: Permit, error: Option<&Error>) {
        let verdict = match error.map(FaultClass::of) {
            None => Verdict::Good,
            Some(FaultClass::Transient | FaultClass::DeviceLost | FaultClass::KernelFault) => Verdict::Bad,
            Some(_) => Verdict::Neutral,
        };
        self.breaker().settle(permit, verdict, Instant::now());
    }

    /// A device that is lost, and for which nothing more is tried, is not tried again; unless it was reset since that was
    /// done `seen` times, or restarts by itself.
    fn note_loss(&self, error: &Error, seen: u64) {
        if FaultClass::of(error) == FaultClass::DeviceLost {
            let _alone = self.recovery().resetting.lock();
            match self.recovery().resets() == seen {
                true if self.caps().features.restarts => self.recovery().count_reset(),
                true => self.breaker().lose(error),
                false => {}
            }
        }
    }

    fn note(&self, notes: Option<Notes>, decision: &Decision) {
        if let Some(notes) = notes {
            self.trace().add(std::iter::once(notes.event(TraceStep::Recovery(Box::new(decision.clone())))));
        }
    }
}
