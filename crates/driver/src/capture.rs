//! [`Capture`]: a GPU trace of a device's work, for the vendor's tools.

use crate::Result;

/// A capture in progress. Dropping it ends the capture and ignores errors.
pub trait Capture: Send {
    /// Ends the capture and writes the trace.
    ///
    /// # Errors
    /// `Environment` if the trace could not be written, or the capture was ended elsewhere.
    fn end(self: Box<Self>) -> Result<()>;
}
