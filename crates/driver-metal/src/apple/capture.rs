//! [`begin`]: captures the command buffers of a device to a GPU trace, which Xcode opens.
//!
//! Metal captures command buffers that are created after the start and committed before the end; the driver creates and commits a command
//! buffer when it is issued. A process has one capture at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use elinvar_driver::{Capture, Error, Result};
use objc2::rc::{Retained, autoreleasepool};
use objc2_foundation::{NSString, NSURL};
use objc2_metal::{MTLCaptureDescriptor, MTLCaptureDestination, MTLCaptureError, MTLCaptureManager};

use super::core::Core;

struct Trace {
    core: Arc<Core>,
    path: PathBuf,
    ended: bool,
}

#[allow(unsafe_code)] // the bindings leave it open
fn manager() -> Retained<MTLCaptureManager> {
    // SAFETY: Metal has one capture manager per process, usable on any thread.
    unsafe { MTLCaptureManager::sharedCaptureManager() }
}

fn message(core: &Core, path: &Path, what: &str) -> String {
    format!("capture of Metal device `{}` to `{}`: {what}", core.caps.name, path.display())
}

pub(super) fn begin(core: &Arc<Core>, path: &Path) -> Result<Box<dyn Capture>> {
    core.expect_present()?;
    let invalid = |what: &str| Error::InvalidArgument(message(core, path, what));
    if path.exists() {
        return Err(invalid("the path already exists"));
    }
    let text = path.to_str().ok_or_else(|| invalid("the path is not UTF-8"))?;
    let manager = manager();
    if manager.isCapturing() {
        return Err(invalid("another capture of this process has not ended"));
    }
    if !manager.supportsDestination(MTLCaptureDestination::GPUTraceDocument) {
        let what = "Metal writes no GPU trace for this process; METAL_CAPTURE_ENABLED=1 in its environment allows it";
        return Err(Error::Unsupported(message(core, path, what)));
    }
    let descriptor = MTLCaptureDescriptor::new();
    #[allow(unsafe_code)] // the bindings take any object
    // SAFETY: a device can be captured.
    unsafe {
        descriptor.setCaptureObject(Some((*core.device).as_ref()));
    }
    descriptor.setDestination(MTLCaptureDestination::GPUTraceDocument);
    descriptor.setOutputURL(Some(&NSURL::fileURLWithPath(&NSString::from_str(text))));
    manager.startCaptureWithDescriptor_error(&descriptor).map_err(|error| {
        let text = message(core, path, &error.localizedDescription().to_string());
        match MTLCaptureError(error.code()) {
            MTLCaptureError::NotSupported => Error::Unsupported(text),
            MTLCaptureError::AlreadyCapturing | MTLCaptureError::InvalidDescriptor => {
                Error::InvalidArgument(text)
            }
            _ => Error::Environment(text),
        }
    })?;
    Ok(Box::new(Trace { core: core.clone(), path: path.to_owned(), ended: false }))
}

impl Trace {
    fn stop(&mut self) -> Result<()> {
        self.ended = true;
        autoreleasepool(|_| {
            let failed = |what: &str| Err(Error::Environment(message(&self.core, &self.path, what)));
            let manager = manager();
            if !manager.isCapturing() {
                return failed("it was stopped outside of Elinvar");
            }
            manager.stopCapture();
            if self.path.exists() { Ok(()) } else { failed("Metal wrote no trace") }
        })
    }
}

impl Capture for Trace {
    fn end(mut self: Box<Self>) -> Result<()> {
        self.stop()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if !self.ended
            && let Err(error) = self.stop()
        {
            tracing::warn!(%error, "a capture was dropped");
        }
    }
}
