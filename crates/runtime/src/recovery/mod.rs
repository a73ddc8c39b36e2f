//! Recovery from failures. It is opt-in: [`Device::recover`] retries host calls, [`Device::stream_recovering`] retries submissions.
//!
//! [`decide`] chooses the action, as a pure function of the error, the [`RecoveryPolicy`] and the previous attempts; the other files
//! execute it. Each decision is recorded in the device's [`crate::Trace`], if tracing is on. The [`Breaker`] is a circuit breaker:
//! while it is open, the device accepts no work from recovering streams and calls. Ordinary streams are not affected.

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
use crate::observe::event;
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

/// Recovery state of a device.
pub(crate) struct Recovery {
    breaker: Breaker,
    /// Held while the device is reset.
    resetting: Mutex<()>,
    /// Number of resets.
    resets: AtomicU64,
    pub(crate) origins: Origins,
    pub(crate) vitals: Vitals,
    pub(crate) wishes: Wishes,
    /// Memory whose contents a reset discards.
    own: Mutex<Vec<Weak<Storage>>>,
    /// Queues of the recovering streams.
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

    /// Registers memory whose contents a reset discards.
    pub(crate) fn register(&self, storage: &Arc<Storage>) {
        if storage.is_own() {
            let mut own = self.own.lock();
            if own.len() == own.capacity() {
                own.retain(|storage| storage.strong_count() > 0);
            }
            own.push(Arc::downgrade(storage));
        }
    }

    /// Registers the queue of a recovering stream.
    fn register_queue(&self, queue: &Arc<Submissions>) {
        let mut queues = self.queues.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(queue));
    }

    /// Number of resets of the device.
    pub(crate) fn resets(&self) -> u64 {
        self.resets.load(Ordering::Acquire)
    }

    /// Counts a reset. Work that was lost with the device may be retried after it.
    fn count_reset(&self) {
        self.resets.fetch_add(1, Ordering::Release);
    }

    /// Blocks while the device is being reset.
    fn wait_for_reset(&self) {
        drop(self.resetting.lock());
    }

    /// A unique number for a work item, which seeds its jitter.
    fn work(&self) -> u64 {
        self.next_work.fetch_add(1, Ordering::Relaxed)
    }
}

impl Device {
    /// The circuit breaker, which blocks recovering work while the device fails too often.
    pub fn breaker(&self) -> &Breaker {
        &self.recovery().breaker
    }

    /// Reset the device after it was lost. All pending work ends in [`Error::DeviceLost`], and its streams are failed with it. Buffers,
    /// kernels and streams remain usable. The contents of buffers that are not shared with the host are lost; reading them is an
    /// error until they are written. A device that restarts by itself ([`elinvar_driver::Features::restarts`]) loses only pending
    /// work.
    ///
    /// # Errors
    /// `Unsupported` if the driver does not support resets; `DeviceLost` if the reset fails; `WouldDeadlock` in a waker or in the
    /// destructor of a buffer's memory.
    pub fn reset(&self) -> Result<()> {
        self.expect_here("Device::reset")?;
        Callback::expect_none("Device::reset")?;
        let _alone = self.recovery().resetting.lock();
        self.reset_counted()
    }

    /// Resets the device, unless it was reset since the counter was `seen`. A device that restarts by itself has already done so and
    /// is not reset, which keeps work that was submitted since.
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

    /// Marks the device as lost, and ends all pending work.
    pub(crate) fn lose(&self, cause: &Error) {
        self.lose_breaker(cause);
        let in_flight = self.state().mark_lost(cause);
        // Recovering queues first: their submissions must not be retried once the loss is reported.
        let queues: Vec<Arc<Submissions>> =
            self.recovery().queues.lock().iter().filter_map(Weak::upgrade).collect();
        queues.iter().for_each(|queue| Layer::lose(queue, cause));
        in_flight.into_iter().for_each(|work| work.lose(cause));
    }

    fn reset_counted(&self) -> Result<()> {
        self.coalescers().flush();
        self.state().begin_reset();
        let reset = self.driver().reset();
        event::reset(self, reset.as_ref().err());
        if reset.is_ok() {
            self.recovery().count_reset();
            let lost = Error::DeviceLost("the content was lost when the device was reset".into());
            // All memory of a device that restarts by itself keeps its content.
            if !self.caps().features.restarts {
                let own: Vec<Arc<Storage>> =
                    self.recovery().own.lock().iter().filter_map(Weak::upgrade).collect();
                own.iter().for_each(|storage| storage.lose(&lost));
            }
            if self.breaker().restore() {
                event::breaker(self, &BreakerState::Closed);
            }
        }
        self.state().end_reset(reset.is_ok());
        reset
    }

    /// Call `call` until it succeeds or the policy gives up. For host calls, such as compilation, allocation or the creation of a
    /// stream. Blocks between attempts. [`RecoveryPolicy::rerun`] is not used.
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
    /// The error of the last call; `Refused` while the breaker is open; `WouldDeadlock` in a waker or in the destructor of a buffer's
    /// memory.
    pub fn recover<T>(&self, policy: &RecoveryPolicy, mut call: impl FnMut() -> Result<T>) -> Result<T> {
        self.expect_here("Device::recover")?;
        Callback::expect_none("Device::recover")?;
        let notes = self.trace().notes(None, Priority::Normal);
        let mut tried = Attempts { made: 0, ..Attempts::first(self.recovery().work()) };
        tried.no_rerun = Some("a host call cannot run on another device".into());
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
                self.note_decision(notes, &decision);
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
        let permit = self.admit()?;
        let result = call();
        self.settle(permit, result.as_ref().err());
        result
    }

    /// Returns a permit to the breaker with the result of the work.
    fn settle(&self, permit: Permit, error: Option<&Error>) {
        let verdict = match error.map(FaultClass::of) {
            None => Verdict::Good,
            Some(FaultClass::Transient | FaultClass::DeviceLost | FaultClass::KernelFault) => Verdict::Bad,
            Some(_) => Verdict::Neutral,
        };
        if let Some(state) = self.breaker().settle(permit, verdict, Instant::now()) {
            event::breaker(self, &state);
        }
    }

    /// Requests a permit of the breaker.
    ///
    /// # Errors
    /// As [`Breaker::admit`].
    fn admit(&self) -> Result<Permit> {
        let permit = self.breaker().admit(Instant::now())?;
        if permit.probe {
            event::breaker(self, &BreakerState::HalfOpen);
        }
        Ok(permit)
    }

    fn lose_breaker(&self, cause: &Error) {
        if self.breaker().lose(cause) {
            event::device_lost(self, cause);
            event::breaker(self, &BreakerState::Terminal(cause.clone()));
        }
    }

    /// Called when recovery gives up. After a `DeviceLost`, makes the breaker terminal, unless the device was reset since the
    /// counter was `seen`, or restarts by itself.
    fn note_loss(&self, error: &Error, seen: u64) {
        if FaultClass::of(error) == FaultClass::DeviceLost {
            let _alone = self.recovery().resetting.lock();
            match self.recovery().resets() == seen {
                true if self.caps().features.restarts => self.recovery().count_reset(),
                true => self.lose_breaker(error),
                false => {}
            }
        }
    }

    fn note_decision(&self, notes: Option<Notes>, decision: &Decision) {
        self.counters().decision(decision.action);
        event::decision(self, decision);
        if let Some(notes) = notes {
            let decision = notes.event(TraceStep::Recovery(Box::new(decision.clone())));
            self.note(notes, std::iter::once(decision));
        }
    }
}
