//! The number of pending submissions of a stream, and its limit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use elinvar_driver::sync::{Condvar, Mutex};
use elinvar_driver::{Callback, Error, Result};

use crate::sync::device_state::DeviceState;

/// Behavior of a submission when its stream has reached its limit of pending submissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Block until a pending submission has ended.
    Block,
    /// Fail with [`Error::QueueFull`].
    Reject,
    /// Block for at most this time, then fail with [`Error::QueueFull`].
    Deadline(Duration),
}

/// The counter of one stream.
#[derive(Default)]
pub(crate) struct InFlightCount {
    limit: Option<(usize, WhenFull)>,
    count: Mutex<usize>,
    left: Condvar,
}

/// Counts a submission until it is dropped.
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

    /// Wakes waiting submissions, so that they notice a device loss.
    pub(crate) fn look_again(&self) {
        let _count = self.count.lock();
        self.left.notify_all();
    }

    /// Counts a submission.
    ///
    /// # Errors
    /// `QueueFull`; the cause of the device loss, if the stream is full.
    pub(crate) fn enter(self: &Arc<Self>, device: &DeviceState) -> Result<InFlight> {
        let mut count = self.count.lock();
        if let Some((limit, when_full)) = self.limit {
            let end = match when_full {
                WhenFull::Block => None,
                WhenFull::Reject => Some(Instant::now()),
                WhenFull::Deadline(timeout) => Instant::now().checked_add(timeout),
            };
            while *count >= limit {
                // Pending work of a lost device may never end.
                device.check()?;
                if end.is_none_or(|end| end > Instant::now()) {
                    Callback::expect_none("a submission to a full stream")?;
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
