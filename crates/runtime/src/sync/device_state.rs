//! [`DeviceState`]: availability of a device. It is lost if its running work cannot be stopped. During a reset, the content of
//! device-only memory is unavailable.
//!
//! When a device is lost, all pending work ends immediately, and new work is rejected. The driver keeps the resources of the work
//! until it has released them, possibly forever: their memory is not reused while the device may still write to it.
//!
//! Invariant: work is passed to the driver, and content is read, while a [`StateGuard`] is held. A loss and the begin and end of a
//! reset wait for it, so none of them can occur between a check and the operation that depends on it.

use std::sync::{Arc, Weak};

use elinvar_driver::sync::{Mutex, RwLock, RwLockReadGuard};
use elinvar_driver::{Command, Error, Result, fail_signals};
use slab::Slab;

use crate::sync::completion::Outcome;
use crate::sync::in_flight::InFlightCount;

/// Pending work of a device, and the cause of its loss, if it is lost.
#[derive(Default)]
pub(crate) struct DeviceState {
    availability: RwLock<Availability>,
    in_flight: Mutex<Slab<PendingSubmission>>,
}

#[derive(Default)]
struct Availability {
    lost: Option<Error>,
    resetting: bool,
}

/// A pending submission.
#[derive(Clone)]
pub(crate) struct PendingSubmission {
    outcome: Weak<Outcome>,
    commands: Weak<[Command]>,
    /// The counter of its stream, on which other submissions may wait.
    in_flight_count: Weak<InFlightCount>,
}

/// While it is held, the device is not marked as lost and no reset begins or ends. Must not be held for long, nor
/// during a wait.
pub(crate) struct StateGuard<'a>(RwLockReadGuard<'a, Availability>);

impl StateGuard<'_> {
    /// # Errors
    /// The cause of the loss.
    pub(crate) fn check_available(&self) -> Result<()> {
        self.0.lost.clone().map_or(Ok(()), Err)
    }

    /// As [`StateGuard::check_available`], for content that a reset loses.
    ///
    /// # Errors
    /// `DeviceLost` also during a reset.
    pub(crate) fn check_content(&self) -> Result<()> {
        self.check_available()?;
        match self.is_resetting() {
            true => Err(Error::DeviceLost("the device is being reset".into())),
            false => Ok(()),
        }
    }

    pub(crate) fn is_resetting(&self) -> bool {
        self.0.resetting
    }
}

/// Key of a pending submission, for [`DeviceState::unregister`].
#[derive(Clone, Copy)]
pub(crate) struct SubmissionId(usize);

impl PendingSubmission {
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

impl DeviceState {
    /// Holds the current state.
    pub(crate) fn read(&self) -> StateGuard<'_> {
        // A thread may hold it recursively.
        StateGuard(self.availability.read())
    }

    /// # Errors
    /// The cause.
    pub(crate) fn check(&self) -> Result<()> {
        self.read().check_available()
    }

    /// Registers work that is about to be submitted, which must happen while the result is held. `uses_content`: whether it uses content
    /// that a reset loses.
    ///
    /// # Errors
    /// The cause.
    pub(crate) fn register(
        &self,
        pending: PendingSubmission,
        uses_content: bool,
    ) -> Result<(StateGuard<'_>, SubmissionId)> {
        let state = self.read();
        if uses_content { state.check_content() } else { state.check_available() }?;
        let mut in_flight = self.in_flight.lock();
        if in_flight.len() == in_flight.capacity() {
            // Submissions that the driver dropped are still in the list.
            in_flight.retain(|_, pending| pending.is_pending());
        }
        Ok((state, SubmissionId(in_flight.insert(pending))))
    }

    /// Removes work that has ended, or was not submitted after all.
    pub(crate) fn unregister(&self, SubmissionId(id): SubmissionId, outcome: &Arc<Outcome>) {
        let mut in_flight = self.in_flight.lock();
        // After a loss, another submission may have the same ID.
        if in_flight.get(id).is_some_and(|pending| pending.is_of(outcome)) {
            in_flight.remove(id);
        }
    }

    /// Outcomes of pending work.
    pub(crate) fn pending(&self) -> Vec<Arc<Outcome>> {
        self.in_flight.lock().iter().filter_map(|(_, pending)| pending.outcome.upgrade()).collect()
    }

    /// Marks the device as lost. Returns the pending work, which the caller must end.
    pub(crate) fn mark_lost(&self, cause: &Error) -> Vec<PendingSubmission> {
        self.availability.write().lost.get_or_insert_with(|| cause.clone());
        self.in_flight.lock().drain().collect()
    }

    /// Marks the begin of a reset.
    pub(crate) fn begin_reset(&self) {
        self.availability.write().resetting = true;
    }

    /// Marks the end of a reset; `is_back`: whether it succeeded.
    pub(crate) fn end_reset(&self, is_back: bool) {
        let mut availability = self.availability.write();
        availability.resetting = false;
        availability.lost.take_if(|_| is_back);
    }
}
