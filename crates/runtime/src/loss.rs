//! [`Loss`]: whether a device is lost, because something runs on it that cannot be stopped.
//!
//! Everything in flight is then told so at once, and nothing new is taken. What the work uses stays with the driver until
//! that lets go of it, if ever: its memory is not used again while the device may still write to it.

use std::sync::{Arc, Weak};

use elinvar_driver::{Command, Error, Result, fail_signals};
use parking_lot::Mutex;

use crate::completion::Outcome;

/// What is in flight on a device, and why the device is lost, if it is.
#[derive(Default)]
pub(crate) struct Loss {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    cause: Option<Error>,
    in_flight: Vec<(Weak<Outcome>, Weak<[Command]>)>,
}

impl Loss {
    /// # Errors
    /// The cause.
    pub(crate) fn check(&self) -> Result<()> {
        self.state.lock().cause.clone().map_or(Ok(()), Err)
    }

    /// Enters work that is about to be submitted.
    ///
    /// # Errors
    /// The cause.
    pub(crate) fn enter(&self, outcome: &Arc<Outcome>, commands: &Arc<[Command]>) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(cause) = &state.cause {
            return Err(cause.clone());
        }
        if state.in_flight.len() == state.in_flight.capacity() {
            let is_pending = |outcome: &Weak<Outcome>| outcome.upgrade().is_some_and(|o| o.get().is_none());
            state.in_flight.retain(|(outcome, _)| is_pending(outcome));
        }
        state.in_flight.push((Arc::downgrade(outcome), Arc::downgrade(commands)));
        Ok(())
    }

    /// The device is lost. Work that has not ended does so, in the cause, and what it would have raised fails.
    pub(crate) fn lose(&self, cause: &Error) {
        let mut state = self.state.lock();
        state.cause.get_or_insert_with(|| cause.clone());
        let in_flight = std::mem::take(&mut state.in_flight);
        drop(state);
        for (outcome, commands) in in_flight {
            let Some(outcome) = outcome.upgrade() else { continue };
            if let Some(commands) = commands.upgrade().filter(|_| !matches!(outcome.get(), Some(Ok(_)))) {
                fail_signals(&commands, cause);
            }
            outcome.resolve(Err(cause.clone()));
        }
    }

    /// The device is back.
    pub(crate) fn restore(&self) {
        self.state.lock().cause = None;
    }
}
