//! [`Kernel`]: a function of a library, ready to be launched.
//!
//! The kernel is a handle on the driver's pipeline. Its launch is in [`crate::stream`], with everything else
//! that a launch goes through.

use std::fmt;
use std::sync::Arc;

use elinvar_driver::{Pipeline, Signature};

use crate::Device;

/// A kernel of a [`crate::Library`]. Cloning gives another handle.
#[derive(Clone)]
pub struct Kernel {
    pub(crate) device: Device,
    pub(crate) pipeline: Arc<dyn Pipeline>,
}

impl Kernel {
    pub(crate) fn new(device: Device, pipeline: Arc<dyn Pipeline>) -> Self {
        Self { device, pipeline }
    }

    /// What the kernel takes.
    pub fn signature(&self) -> &Signature {
        self.pipeline.signature()
    }

    /// Threads of the largest threadgroup that this kernel can have on its device.
    pub fn max_threads_per_threadgroup(&self) -> u32 {
        self.pipeline.max_threads_per_threadgroup()
    }

    /// The device it was compiled for.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({})", self.signature().name)
    }
}
