//! [`Stop`]: the word to a submission that it is to end.
//!
//! Workers look at it before each range of threadgroups, which takes some microseconds, so a look must cost nothing.

use std::sync::OnceLock;

use elinvar_driver::{Error, Result};

/// Set once, with what the submission then ends in.
#[derive(Default)]
pub(crate) struct Stop {
    cause: OnceLock<Error>,
}

impl Stop {
    /// Only the first cause counts.
    pub(crate) fn set(&self, cause: Error) {
        let _earlier = self.cause.set(cause);
    }

    /// The cause, once it is set.
    pub(crate) fn check(&self) -> Result<()> {
        self.cause.get().map_or(Ok(()), |cause| Err(cause.clone()))
    }
}
