//! [`Loss`]: whether a device is there. It is not while something runs on it that cannot be stopped, nor, for content that it
//! alone has, while it is reset.
//!
//! When it is lost, everything in flight is told so at once, and nothing new is taken. What the work uses stays with the driver
//! until that lets go of it, if ever: its memory is not used again while the device may still write to it.
//!
//! Invariant: work is handed to the driver, and content looked at, while a [`Present`] is held, which a loss and the beginning
//! and the end of a reset wait for. So none of them comes between a look at this and what follows from it.

use std::sync::{Arc, Weak};

use elinvar_driver::sync::{Mutex, RwLock, RwLockReadGuard};
use elinvar_driver::{Command, Error, Result, fail_signals};

use crate::sync::completion::Outcome;
use crate::sync::in_flight::InFlightCount;

/// What is in flight on a device, and why the device is lost, if it is.
#[derive(Default)]
pub(crate) struct Loss {
    fate: RwLock<Fate>,
    in_flight: Mutex<Vec<Pending>>,
}

#[derive(Default)]
struct Fate {
    lost: Option<Error>,
    resetting: bool,
}

/// Work that the device has.
#[derive(Clone)]
pub(crate) struct Pending {
    outcome: Weak<Outcome>,
    commands: Weak<[Command]>,
    /// Of its stream, where others may wait for it to end.
    in_flight_count: Weak<InFlightCount>,
}

/// The device does not get lost, and no reset begins or ends, as long as this is held. To be held for moments, and not
/// while anything is waited for.
pub(crate) struct Present<'a>(RwLockReadGuard<'a, Fate>);

impl Present<'_> {
    /// # Errors
    /// Why the device is lost.
    pub(crate) fn expect(&self) -> Result<()> {
        self.0.lost.clone().map_or(Ok(()), Err)
    }

    /// As [`Present::expect`], for content that a reset takes away.
    ///
    /// # Errors
    /// `DeviceLost` also while the device is reset.
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

    /// It ends in the cause, and what it would have raised fails. Who waits until there is room behind it looks again.
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
    /// Holds the device as it is.
    pub(crate) fn hold(&self) -> Present<'_> {
        // Held by one thread several times, around what it calls.
        Present(self.fate.read())
    }

    /// # Errors
    /// The cause.
    pub(crate) fn check(&self) -> Result<()> {
        self.hold().expect()
    }

    /// Enters work that is about to be submitted, which is to be done while what this returns is held; whether it uses content
    /// that a reset takes away.
    ///
    /// # Errors
    /// The cause.
    pub(crate) fn enter(&self, flying: Pending, uses_content: bool) -> Result<Present<'_>> {
        let present = self.hold();
        if uses_content { present.expect_content() } else { present.expect() }?;
        let mut in_flight = self.in_flight.lock();
        if in_flight.len() == in_flight.capacity() {
            in_flight.retain(Pending::is_pending);
        }
        in_flight.push(flying);
        Ok(present)
    }

    /// The outcomes of what is in flight.
    pub(crate) fn pending(&self) -> Vec<Arc<Outcome>> {
        self.in_flight.lock().iter().filter_map(|flying| flying.outcome.upgrade()).collect()
    }

    /// The device is lost. Returns the work that has to be told.
    pub(crate) fn declare(&self, cause: &Error) -> Vec<Pending> {
        self.fate.write().lost.get_or_insert_with(|| cause.clone());
        std::mem::take(&mut self.in_flight.lock())
    }

    /// A reset begins.
    pub(crate) fn begin_reset(&self) {
        self.fate.write().resetting = true;
    }

    /// It has ended; whether the device is back.
    pub(crate) fn end_reset(&self, is_back: bool) {
        let mut fate = self.fate.write();
        fate.resetting = false;
        fate.lost.take_if(|_| is_back);
    }
}
