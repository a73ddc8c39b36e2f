//! [`Library`]: a compiled source.
//!
//! A library lists what its kernels take and gives them by name. The compilation itself is the driver's.

use std::fmt;
use std::sync::Arc;

use elinvar_driver::{Diagnostic, PipelineOptions, Result, Signature, Source};

use crate::{CheckedKernel, Device, Kernel};

/// A compiled source. Cloning gives another handle.
#[derive(Clone)]
pub struct Library {
    device: Device,
    driver: Arc<dyn elinvar_driver::Library>,
    source_name: Arc<str>,
}

impl Library {
    pub(crate) fn new(device: Device, driver: Arc<dyn elinvar_driver::Library>, source: &Source) -> Self {
        let names: Vec<&str> = source.pieces.iter().map(|piece| piece.name.as_str()).collect();
        Self { device, driver, source_name: names.join(", ").into() }
    }

    /// What each kernel takes, in the order of the source. [`Signature::code`] may be unknown here; it is known
    /// from [`Kernel::signature`].
    pub fn kernels(&self) -> &[Signature] {
        self.driver.kernels()
    }

    /// Warnings of the compilation.
    pub fn warnings(&self) -> &[Diagnostic] {
        self.driver.warnings()
    }

    /// The name of the source in diagnostics; several pieces are separated by commas.
    pub fn source_name(&self) -> &str {
        &self.source_name
    }

    /// The device it was compiled for.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The kernel of that name.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such kernel, with the names there are; `Compile` and
    /// `Unsupported` when the device's own compiler refuses it.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        Ok(Kernel::new(self.device.clone(), self.driver.pipeline(name, &PipelineOptions::default())?))
    }
}

impl Library {
    /// The kernel of that name with bounds checks compiled in, whose launch is safe.
    ///
    /// # Errors
    /// As [`Library::kernel`]; `Unsupported` with the source line where the device or the kernel's
    /// pointers do not allow checks: a pointer that the kernel reads from memory has no bounds that
    /// could be known.
    pub fn checked_kernel(&self, name: &str) -> Result<CheckedKernel> {
        let options = PipelineOptions { checked: true, ..PipelineOptions::default() };
        let pipeline = self.driver.pipeline(name, &options)?;
        Ok(CheckedKernel { kernel: Kernel::new(self.device.clone(), pipeline) })
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.kernels().iter().map(|k| k.name.as_str()).collect();
        write!(f, "Library({}: {})", self.source_name, names.join(", "))
    }
}
