//! [`Capture`]: a recording of a device's work, for the tools of its maker.

use crate::Result;

/// A recording that has begun. Dropping it ends it as well, and says nothing.
pub trait Capture: Send {
    /// End it, and write what is to be written.
    ///
    /// # Errors
    /// `Environment` when nothing was written, or somebody else has ended it.
    fn end(self: Box<Self>) -> Result<()>;
}
