//! [`Stop`]: the stop flag of a submission.
//!
//! Workers read it before each range of threadgroups, which takes some microseconds, and stoppable code reads it in each loop iteration, so
//! reading it must be cheap.

use std::sync::atomic::{AtomicU8, Ordering};

use elinvar_driver::sync::OnceLock;
use elinvar_driver::{Error, Result};

/// Stop flag; set once, with the error in which the submission ends.
#[derive(Default)]
pub(crate) struct Stop {
    cause: OnceLock<Error>,
    /// Nonzero when `cause` is set.
    byte: AtomicU8,
}

impl Stop {
    /// Sets the cause, if it is not set yet.
    pub(crate) fn set(&self, cause: Error) {
        let _earlier = self.cause.set(cause);
        self.byte.store(1, Ordering::Release);
    }

    /// Whether it is set.
    pub(crate) fn is_set(&self) -> bool {
        self.byte.load(Ordering::Acquire) != 0
    }

    /// The cause, if it is set.
    pub(crate) fn check(&self) -> Result<()> {
        self.cause.get().map_or(Ok(()), |cause| Err(cause.clone()))
    }

    /// The byte that compiled code reads.
    pub(crate) fn byte(&self) -> *const u8 {
        self.byte.as_ptr().cast_const()
    }
}
