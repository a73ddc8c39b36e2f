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
use elinvar_driver::{Command, Error, Process, Result, fail_signals};
use slab::Slab;

use crate::sync::completion::Outcome;
use crate::sync::in_flight::InFlightCount;

/// Pending work of a device, and the cause of its loss, if it is lost.
pub(crate) struct DeviceState {
    process: Process,
    availability: RwLock<Availability>,
    in_flight: Mutex<InFlight>,
}

#[derive(Default)]
struct InFlight {
    submissions: Slab<PendingSubmission>,
    /// How often the device was lost. Keys of submissions registered before a loss are no longer valid.
    losses: u64,
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

/// Keeps a submission in the list of pending work until it is dropped.
pub(crate) struct Registration {
    state: Arc<DeviceState>,
    key: usize,
    losses: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        // In a child of `fork`, another thread may have held the lock.
        if !self.state.process.is_this() {
            return;
        }
        let mut in_flight = self.state.in_flight.lock();
        if in_flight.losses == self.losses {
            in_flight.submissions.remove(self.key);
        }
    }
}

impl PendingSubmission {
    pub(crate) fn new(
        outcome: &Arc<Outcome>,
        commands: &Arc<[Command]>,
        in_flight_count: &Arc<InFlightCount>,
    ) -> Self {
        let (outcome, commands) = (Arc::downgrade(outcome), Arc::downgrade(commands));
        Self { outcome, commands, in_flight_count: Arc::downgrade(in_flight_count) }
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
    /// The state of a device that is available, created by this process.
    pub(crate) fn new() -> Arc<Self> {
        let (availability, in_flight) = (RwLock::default(), Mutex::default());
        Arc::new(Self { process: Process::this(), availability, in_flight })
    }

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
        self: &Arc<Self>,
        pending: PendingSubmission,
        uses_content: bool,
    ) -> Result<(StateGuard<'_>, Registration)> {
        let state = self.read();
        if uses_content { state.check_content() } else { state.check_available() }?;
        let mut in_flight = self.in_flight.lock();
        let (key, losses) = (in_flight.submissions.insert(pending), in_flight.losses);
        drop(in_flight);
        Ok((state, Registration { state: self.clone(), key, losses }))
    }

    /// Outcomes of pending work.
    pub(crate) fn pending(&self) -> Vec<Arc<Outcome>> {
        self.in_flight
            .lock()
            .submissions
            .iter()
            .filter_map(|(_, pending)| pending.outcome.upgrade())
            .collect()
    }

    /// Marks the device as lost. Returns the pending work, which the caller must end.
    pub(crate) fn mark_lost(&self, cause: &Error) -> Vec<PendingSubmission> {
        self.availability.write().lost.get_or_insert_with(|| cause.clone());
        let mut in_flight = self.in_flight.lock();
        in_flight.losses += 1;
        in_flight.submissions.drain().collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::completion::Promise;

    fn register(state: &Arc<DeviceState>) -> (Arc<Outcome>, Registration) {
        let (_, outcome) = Promise::new();
        let commands: Arc<[Command]> = Arc::new([]);
        let pending = PendingSubmission::new(&outcome, &commands, &Arc::default());
        let registration = state.register(pending, false).unwrap().1;
        (outcome, registration)
    }

    #[test]
    fn a_registration_lists_its_submission_until_it_is_dropped() {
        let state = DeviceState::new();
        let (first, second) = (register(&state), register(&state));
        assert_eq!(state.pending().len(), 2);
        drop(first.1);
        assert!(Arc::ptr_eq(&state.pending()[0], &second.0));
        drop(second.1);
        assert!(state.pending().is_empty());
    }

    #[test]
    fn a_registration_of_before_a_loss_does_not_remove_later_work() {
        let state = DeviceState::new();
        let before = register(&state);
        assert_eq!(state.mark_lost(&Error::Cancelled).len(), 1);
        assert!(state.pending().is_empty() && state.check().is_err());
        state.end_reset(true);
        // It has the key of the first.
        let after = register(&state);
        drop(before);
        assert!(Arc::ptr_eq(&state.pending()[0], &after.0));
    }
}
