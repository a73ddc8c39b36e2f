//! [`Capture`]: a recording of a device's work for the tools of its maker, such as Xcode.

use std::path::Path;

use elinvar_driver as driver;

use crate::{Device, Result};

/// A recording of a device's work, until it is ended or dropped.
#[must_use = "it ends when it is dropped"]
pub struct Capture {
    inner: Box<dyn driver::Capture>,
}

impl Device {
    /// Record the work of the device from now on, to a file at `path` that is not there yet. On Metal it is a GPU trace, whose name
    /// ends in `.gputrace`, for Xcode.
    ///
    /// What begins and ends while it is recorded is in it for sure: have what was submitted before ended
    /// ([`crate::Stream::synchronize`]), and likewise what is to be in it before [`Capture::end`].
    ///
    /// # Errors
    /// `Unsupported` where the device or the process cannot do it, with the reason; `InvalidArgument` if there is
    /// something at `path`, or a recording is under way.
    pub fn capture(&self, path: impl AsRef<Path>) -> Result<Capture> {
        Ok(Capture { inner: self.driver().capture(path.as_ref())? })
    }
}

impl Capture {
    /// End it, and write what is to be written.
    ///
    /// # Errors
    /// `Environment` when nothing was written, or somebody else has ended it.
    pub fn end(self) -> Result<()> {
        self.inner.end()
    }
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Capture")
    }
}
