//! [`Turns`]: while a process has several communicators of vendors' libraries, their collectives run one at a time.
//!
//! A library's kernel waits on the device for those of the other members. Two communicators are therefore a deadlock when one device runs the first and
//! another the second while something keeps the rest from starting: streams share hardware queues, in which a wait holds up what is behind it, and calls
//! such as the release of memory wait for whatever the device runs (NCCL's documentation, "Using multiple NCCL communicators concurrently"). A collective
//! takes its turn when all members have begun it, so that it ends without any other.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ring::Ring;
use elinvar_driver::Result;

/// Longest time between two looks at whether the communicator has failed.
const LOOK: Duration = Duration::from_millis(1);

/// The communicators of this process.
static TURNS: Turns = Turns {
    state: Mutex::new(State { communicators: BTreeMap::new(), current: None }),
    changed: Condvar::new(),
};

struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Number of members in this process of each communicator, by its identity in the library.
    communicators: BTreeMap<Vec<u8>, usize>,
    /// The collective whose turn it is: identity of its communicator and number, and how many members of this process run it.
    current: Option<(Vec<u8>, u64, usize)>,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A member of a library's communicator in this process.
pub(crate) struct Registration(Vec<u8>);

impl Registration {
    /// Registers a member of the communicator with that identity.
    pub(crate) fn new(identity: Vec<u8>) -> Self {
        *TURNS.lock().communicators.entry(identity.clone()).or_default() += 1;
        Self(identity)
    }

    /// Whether the process has no other communicator of a library.
    pub(crate) fn is_alone(&self) -> bool {
        TURNS.lock().communicators.len() <= 1
    }

    /// Waits for the turn of a collective of this communicator, by its number.
    ///
    /// # Errors
    /// The communicator's failure.
    pub(crate) fn wait(&self, number: u64, ring: &Ring) -> Result<Turn> {
        let mut state = TURNS.lock();
        loop {
            ring.expect_whole()?;
            match &mut state.current {
                current @ None => *current = Some((self.0.clone(), number, 1)),
                Some((identity, of, members)) if *identity == self.0 && *of == number => *members += 1,
                Some(_) => {
                    let waited = TURNS.changed.wait_timeout(state, LOOK);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
            }
            return Ok(Turn);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let communicators = &mut TURNS.lock().communicators;
        if let Some(members) = communicators.get_mut(&self.0) {
            *members -= 1;
            if *members == 0 {
                communicators.remove(&self.0);
            }
        }
    }
}

/// Keeps the collectives of other communicators from beginning until it is dropped.
pub(crate) struct Turn;

impl Drop for Turn {
    fn drop(&mut self) {
        let current = &mut TURNS.lock().current;
        if let Some((.., members)) = current {
            *members -= 1;
            if *members == 0 {
                *current = None;
            }
        }
        TURNS.changed.notify_all();
    }
}
