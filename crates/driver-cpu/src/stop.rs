//! [`Stop`]: the word to a submission that it is to end.
//!
//! Workers look at it before each range of threadgroups, which takes some microseconds, and code that can be stopped in
//! each loop, so a look must cost nothing.

use std::sync::atomic::{AtomicU8, Ordering};

use elinvar_driver::sync::OnceLock;
use elinvar_driver::{Error, Result};

/// Set once, with what the submission then ends in.
#[derive(Default)]
pub(crate) struct Stop {
    cause: OnceLock<Error>,
    /// Not 0 once the cause is there.
    byte: AtomicU8,
}

impl Stop {
    /// Only the first cause counts.
    pub(crate) fn set(&self, cause: Error) {
        let _earlier = self.cause.set(cause);
        self.byte.store(1, Ordering::Release);
    }

    /// The cause, once it is set.
    pub(crate) fn check(&self) -> Result<()> {
        self.cause.get().map_or(Ok(()), |cause| Err(cause.clone()))
    }

    /// The byte that compiled code looks at.
    pub(crate) fn byte(&self) -> *const u8 {
        self.byte.as_ptr().cast_const()
    }
}
