//! [`Capture`]: a GPU trace of a device's work, for the vendor's tools, such as Xcode. And captures of launches in our own format ([`crate::capture`]), on any device.

use std::path::Path;
use std::sync::Arc;

use elinvar_capture::{CaptureFile, CapturingDevice, Replay};
use elinvar_driver as driver;

use crate::{Device, Result};

/// A capture in progress. Dropping it ends the capture and ignores errors.
#[must_use = "it ends when it is dropped"]
pub struct Capture {
    inner: Box<dyn driver::Capture>,
}

impl Device {
    /// A device over the same hardware whose launches are captured to `file`, which `elinvar replay` and [`Device::replay`] read. It is another device: its buffers,
    /// kernels and streams are its own. `ELINVAR_CAPTURE=FILE` does this to all devices of a program.
    pub fn capturing(&self, file: &Arc<CaptureFile>) -> Self {
        Self::new(CapturingDevice::new(self.driver_arc(), file.clone()))
    }

    /// Replays captured launches on this device. Floating-point elements may differ by `tolerance` of the larger of both; 0 is for equal bytes.
    ///
    /// # Safety
    /// As [`Replay::new`]: kernels run with the arguments in the capture.
    ///
    /// # Errors
    /// As [`Replay::new`].
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn replay<'a>(
        &self,
        capture: &'a elinvar_capture::Capture,
        tolerance: f64,
    ) -> Result<Replay<'a>> {
        self.expect_here("Device::replay")?;
        // SAFETY: guaranteed by the caller.
        unsafe { Replay::new(capture, self.driver_arc(), tolerance) }
    }

    /// Starts a GPU trace of the device's work, to a new file at `path`. On Metal the file name ends in `.gputrace`, for Xcode.
    ///
    /// Contains all work that begins and ends while the capture is in progress. Wait for earlier work before it begins
    /// ([`crate::Stream::synchronize`]), and for the captured work before [`Capture::end`].
    ///
    /// # Errors
    /// `Unsupported` if the device or the process cannot capture, with the reason; `InvalidArgument` if `path` exists or another
    /// capture is in progress.
    pub fn capture(&self, path: impl AsRef<Path>) -> Result<Capture> {
        Ok(Capture { inner: self.driver().capture(path.as_ref())? })
    }
}

impl Capture {
    /// Ends the capture and writes the trace.
    ///
    /// # Errors
    /// `Environment` if the trace could not be written, or the capture was ended elsewhere.
    pub fn end(self) -> Result<()> {
        self.inner.end()
    }
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Capture")
    }
}
