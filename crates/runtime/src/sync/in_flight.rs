//! How many submissions a stream has in flight, and what happens when it has as many as it may.

use std::sync::Arc;
use std::time::{Duration, Instant};

use elinvar_driver::sync::{Condvar, Mutex};
use elinvar_driver::{Callback, Error, Result};

use crate::sync::loss::Loss;

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
pub(crate) struct InFlightCount {
    limit: Option<(usize, WhenFull)>,
    count: Mutex<usize>,
    left: Condvar,
}

/// A submission that is counted until this is dropped.
pub(crate) struct InFlight(Arc<InFlightCount>);

impl InFlightCount {
    pub(crate) fn limited(most: usize, when_full: WhenFull) -> Self {
        Self { limit: Some((most.max(1), when_full)), ..Self::default() }
    }

    pub(crate) fn count(&self) -> usize {
        *self.count.lock()
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Has those who wait look again whether there is anything to wait for.
    pub(crate) fn look_again(&self) {
        let _count = self.count.lock();
        self.left.notify_all();
    }

    /// Count one more.
    ///
    /// # Errors
    /// `QueueFull`; why the device is lost, when there is no room.
    pub(crate) fn enter(self: &Arc<Self>, loss: &Loss) -> Result<InFlight> {
        let mut count = self.count.lock();
        if let Some((limit, when_full)) = self.limit {
            let end = match when_full {
                WhenFull::Block => None,
                WhenFull::Reject => Some(Instant::now()),
                WhenFull::Deadline(timeout) => Instant::now().checked_add(timeout),
            };
            while *count >= limit {
                // What is in flight on a lost device may never end.
                loss.check()?;
                if end.is_none_or(|end| end > Instant::now()) {
                    Callback::expect_none("a submission to a stream that is full")?;
                }
                let late = match end {
                    None => {
                        self.left.wait(&mut count);
                        false
                    }
                    Some(end) => self.left.wait_until(&mut count, end).timed_out(),
                };
                if late && *count >= limit {
                    return Err(Error::QueueFull { limit });
                }
            }
        }
        *count += 1;
        Ok(InFlight(self.clone()))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        *self.0.count.lock() -= 1;
        if self.0.limit.is_some() {
            self.0.left.notify_one();
        }
    }
}
