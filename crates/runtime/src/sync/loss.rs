//! [`Loss`]: availability of a device. It is lost if its running work cannot be stopped. During a reset, the content of
//! device-only memory is unavailable.
//!
//! When a device is lost, all pending work ends immediately, and new work is rejected. The driver keeps the resources of the work
//! until it has released them, possibly forever: their memory is not reused while the device may still write to it.
//!
//! Invariant: work is passed to the driver, and content is read, while a [`Present`] is held. A loss and the begin and end of a
//! reset wait for it, so none of them can occur between a check and the operation that depends on it.

use std::sync::{Arc, Weak};

use elinvar_driver::sync::{Mutex, RwLock, RwLockReadGuard};
use elinvar_driver::{Command, Error, Result, fail_signals};
use slab::Slab;

use crate::sync::completion::Outcome;
use crate::sync::in_flight::InFlightCount;

/// Pending work of a device, and the cause of its loss, if it is lost.
#[derive(Default)]
pub(crate) struct Loss {
    fate: RwLock<Fate>,
    in_flight: Mutex<Slab<Pending>>,
}

#[derive(Default)]
struct Fate {
    lost: Option<Error>,
    resetting: bool,
}

/// A pending submission.
#[derive(Clone)]
pub(crate) struct Pending {
    outcome: Weak<Outcome>,
    commands: Weak<[Command]>,
    /// The counter of its stream, on which other submissions may wait.
    in_flight_count: Weak<InFlightCount>,
}

/// While it is held, the device is not marked as lost and no reset begins or ends. Must not be held for long, nor
/// during a wait.
pub(crate) struct Present<'a>(RwLockReadGuard<'a, Fate>);

impl Present<'_> {
    /// # Errors
    /// The cause of the loss.
    pub(crate) fn expect(&self) -> Result<()> {
        self.0.lost.clone().map_or(Ok(()), Err)
    }

    /// As [`Present::expect`], for content that a reset loses.
    ///
    /// # Errors
    /// `DeviceLost` also during a reset.
    pub(crate) fn expect_content(&self) -> Result<()> {
        self.expect()?;
        match self.is_resetting() {
            true => Err(Error::DeviceLost("the device is being reset".into())),
            false => Ok(()),
        }
    }

    pub(crate) fn is_resetting(&self) -> bool {
        self.0.resetting
    }
}

/// Number of pending work, for [`Loss::leave`].
#[derive(Clone, Copy)]
pub(crate) struct Entry(usize);

impl Pending {
    pub(crate) fn new(
        outcome: &Arc<Outcome>,
        commands: &Arc<[Command]>,
        in_flight_count: &Arc<InFlightCount>,
    ) -> Self {
        let (outcome, commands) = (Arc::downgrade(outcome), Arc::downgrade(commands));
        Self { outcome, commands, in_flight_count: Arc::downgrade(in_flight_count) }
    }

    fn is_pending(&self) -> bool {
        self.outcome.upgrade().is_some_and(|outcome| outcome.get().is_none())
    }

    fn is_of(&self, outcome: &Arc<Outcome>) -> bool {
        std::ptr::eq(self.outcome.as_ptr(), Arc::as_ptr(outcome))
    }

    /// Ends the submission with the cause, fails the events that it would have signaled, and wakes submissions that wait for room.
    pub(crate) fn lose(self, cause: &Error) {
        if let Some(outcome) = self.outcome.upgrade() {
            if let Some(commands) = self.commands.upgrade().filter(|_| !matches!(outcome.get(), Some(Ok(_))))
            {
                fail_signals(&commands, cause);
            }
            outcome.resolve(Err(cause.clone()));
        }
        if let Some(in_flight_count) = self.in_flight_count.upgrade() {
            in_flight_count.look_again();
        }
    }
}

impl Loss {
    /// Holds the current state.
    pub(crate) fn hold(&self) -> Present<'_> {
        // A thread may hold it recursively.
        Present(self.fate.read())
    }

    /// # Errors
    /// The cause.
    pub(crate) fn check(&self) -> Result<()> {
        self.hold().expect()
    }

    /// Registers work that is about to be submitted, which must happen while the result is held. `uses_content`: whether it uses content
    /// that a reset loses.
    ///
    /// # Errors
    /// The cause.
    pub(crate) fn enter(&self, pending: Pending, uses_content: bool) -> Result<(Present<'_>, Entry)> {
        let present = self.hold();
        if uses_content { present.expect_content() } else { present.expect() }?;
        let mut in_flight = self.in_flight.lock();
        if in_flight.len() == in_flight.capacity() {
            // Of work that the driver has dropped.
            in_flight.retain(|_, pending| pending.is_pending());
        }
        Ok((present, Entry(in_flight.insert(pending))))
    }

    /// Removes work that has ended, or was not submitted after all.
    pub(crate) fn leave(&self, Entry(entry): Entry, outcome: &Arc<Outcome>) {
        let mut in_flight = self.in_flight.lock();
        // After a loss the number may be another's.
        if in_flight.get(entry).is_some_and(|pending| pending.is_of(outcome)) {
            in_flight.remove(entry);
        }
    }

    /// Outcomes of pending work.
    pub(crate) fn pending(&self) -> Vec<Arc<Outcome>> {
        self.in_flight.lock().iter().filter_map(|(_, pending)| pending.outcome.upgrade()).collect()
    }

    /// Marks the device as lost. Returns the pending work, which the caller must end.
    pub(crate) fn declare(&self, cause: &Error) -> Vec<Pending> {
        self.fate.write().lost.get_or_insert_with(|| cause.clone());
        self.in_flight.lock().drain().collect()
    }

    /// Marks the begin of a reset.
    pub(crate) fn begin_reset(&self) {
        self.fate.write().resetting = true;
    }

    /// Marks the end of a reset; `is_back`: whether it succeeded.
    pub(crate) fn end_reset(&self, is_back: bool) {
        let mut fate = self.fate.write();
        fate.resetting = false;
        fate.lost.take_if(|_| is_back);
    }
}
