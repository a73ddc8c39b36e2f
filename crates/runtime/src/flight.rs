//! How many submissions a stream has in flight, and what happens when it has as many as it may.

use std::sync::Arc;
use std::time::{Duration, Instant};

use elinvar_driver::{Error, Result};
use parking_lot::{Condvar, Mutex};

use crate::loss::Loss;

/// What a submission does when its stream has as many in flight as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It blocks until one has ended.
    Block,
    /// It is refused as [`Error::QueueFull`].
    Reject,
    /// It blocks for so long at most, and is then refused.
    Deadline(Duration),
}

/// The count of one stream.
#[derive(Default)]
pub(crate) struct Flight {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Default)]
struct State {
    count: usize,
    limit: Option<(usize, WhenFull)>,
}

/// A submission that is counted until this is dropped.
pub(crate) struct InFlight(Arc<Flight>);

impl Flight {
    pub(crate) fn limited(most: usize, when_full: WhenFull) -> Self {
        let state = State { count: 0, limit: Some((most.max(1), when_full)) };
        Self { state: Mutex::new(state), left: Condvar::new() }
    }

    pub(crate) fn count(&self) -> usize {
        self.state.lock().count
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.state.lock().limit.is_some()
    }

    /// Has those who wait look again whether there is anything to wait for.
    pub(crate) fn look_again(&self) {
        let _state = self.state.lock();
        self.left.notify_all();
    }

    /// Count one more.
    ///
    /// # Errors
    /// `QueueFull`; why the device is lost, when there is no room.
    pub(crate) fn enter(self: &Arc<Self>, loss: &Loss) -> Result<InFlight> {
        let mut state = self.state.lock();
        if let Some((limit, when_full)) = state.limit {
            let end = match when_full {
                WhenFull::Block => None,
                WhenFull::Reject => Some(Instant::now()),
                WhenFull::Deadline(timeout) => Instant::now().checked_add(timeout),
            };
            while state.count >= limit {
                // What is in flight on a lost device may never end.
                loss.check()?;
                let late = match end {
                    None => {
                        self.left.wait(&mut state);
                        false
                    }
                    Some(end) => self.left.wait_until(&mut state, end).timed_out(),
                };
                if late && state.count >= limit {
                    return Err(Error::QueueFull { limit });
                }
            }
        }
        state.count += 1;
        Ok(InFlight(self.clone()))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.count -= 1;
        if state.limit.is_some() {
            self.0.left.notify_one();
        }
    }
}
