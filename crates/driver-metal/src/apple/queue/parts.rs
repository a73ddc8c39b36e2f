//! [`Parts`]: command buffers that a library has committed while it encoded to them, before the one that the queue commits.
//!
//! The queue is not told of their completion. They complete before the last one, because they are of the same queue.

use objc2::rc::Retained;
use objc2_foundation::NSError;
use objc2_metal::{MTLCommandBuffer as _, MTLCommandBufferStatus};

use crate::apple::encoding::CommandBuffer;

/// Committed command buffers, in order. When they are released, their commands have been executed.
#[derive(Default)]
pub(in crate::apple) struct Parts(Vec<CommandBuffer>);

#[allow(unsafe_code)] // the bindings leave it open
// SAFETY: committed command buffers are only queried and waited for, which Metal allows on any thread.
unsafe impl Send for Parts {}

impl Parts {
    pub(in crate::apple) fn push(&mut self, buffer: CommandBuffer) {
        self.0.push(buffer);
    }

    /// Waits for those that have not completed, as after an error, and releases all.
    pub(in crate::apple) fn clear(&mut self) {
        for buffer in self.0.drain(..) {
            if !matches!(buffer.status(), MTLCommandBufferStatus::Completed | MTLCommandBufferStatus::Error) {
                buffer.waitUntilCompleted();
            }
        }
    }

    /// The error of the first that has failed. All have completed.
    pub(in crate::apple) fn error(&self) -> Option<Retained<NSError>> {
        self.0.iter().find_map(|buffer| buffer.error())
    }

    /// When the first began, in seconds. It has completed.
    pub(in crate::apple) fn start(&self) -> Option<f64> {
        self.0.first().map(|buffer| buffer.GPUStartTime())
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.clear();
    }
}
