//! [`Library`]: a compiled source.
//!
//! A library lists the signatures of its kernels and creates kernels by name. The driver compiles.

use std::fmt;
use std::sync::Arc;

use elinvar_driver::{
    Diagnostic, FunctionConstant, Pipeline, PipelineOptions, Result, Signature, Source, UnsupportedKernel,
};

use crate::observe::event;
use crate::{CheckedKernel, Compilation, Device, Kernel, KernelOptions};

/// A compiled source. A clone is another handle.
#[derive(Clone)]
pub struct Library {
    device: Device,
    driver: Arc<dyn elinvar_driver::Library>,
    source: Arc<Source>,
    source_name: Arc<str>,
    /// Hash of the source's identity and include folders.
    source_hash: blake3::Hash,
}

impl Library {
    pub(crate) fn new(device: Device, driver: Arc<dyn elinvar_driver::Library>, source: &Source) -> Self {
        let names: Vec<&str> = source.files.iter().map(|file| file.name.as_str()).collect();
        let source_hash = hash(source);
        let (source, source_name) = (Arc::new(source.clone()), names.join(", ").into());
        Self { device, driver, source, source_name, source_hash }
    }

    pub(crate) fn driver(&self) -> &Arc<dyn elinvar_driver::Library> {
        &self.driver
    }

    /// Signatures of the kernels, in source order, including arguments that depend on a function constant. [`Signature::code`]
    /// may be `None` here; see [`Kernel::signature`].
    pub fn kernels(&self) -> &[Signature] {
        self.driver.kernels()
    }

    /// Function constants that the source declares, in source order.
    pub fn constants(&self) -> &[FunctionConstant] {
        self.driver.constants()
    }

    /// Valid kernels that the device does not support, in source order, with the reason.
    pub fn unsupported(&self) -> &[UnsupportedKernel] {
        self.driver.unsupported()
    }

    /// Warnings of the compilation.
    pub fn warnings(&self) -> &[Diagnostic] {
        self.driver.warnings()
    }

    /// Name of the source in diagnostics; several files are separated by commas.
    pub fn source_name(&self) -> &str {
        &self.source_name
    }

    /// The device that it was compiled for.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The kernel of this name.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such kernel, with the most similar names; `Compile` and `Unsupported` if the device's
    /// compiler rejects it.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        self.kernel_with(name, KernelOptions::new())
    }

    /// The kernel of this name, specialized with values of function constants, or with other [`KernelOptions`]. Its signature lacks the
    /// arguments that the values disable.
    ///
    /// # Errors
    /// As [`Library::kernel`]; `InvalidArgument` also if a constant is unknown, has another type, or has no value and is used.
    /// The message names it and lists the declared constants.
    pub fn kernel_with(&self, name: &str, options: impl Into<KernelOptions>) -> Result<Kernel> {
        self.build(name, options.into().pipeline(false))
    }

    /// The kernel as [`Library::kernel_with`], in the background. The compilation can be cancelled.
    pub fn kernel_async(
        &self,
        name: impl Into<String>,
        options: impl Into<KernelOptions>,
    ) -> Compilation<Kernel> {
        let (library, name, options) = (self.clone(), name.into(), options.into());
        Compilation::begin(move || library.kernel_with(&name, options))
    }

    pub(crate) fn build(&self, name: &str, options: PipelineOptions) -> Result<Kernel> {
        self.device.expect_here("a kernel")?;
        let identity = self.identity(name, &options);
        let pipeline = self.pipeline(name, options)?;
        Ok(Kernel::new(self.device.clone(), pipeline, identity.into()))
    }

    /// Identifies a kernel across processes, by source, name and options.
    pub(crate) fn identity(&self, name: &str, options: &PipelineOptions) -> String {
        let mut hash = blake3::Hasher::new();
        let (constants, checked) = (&options.constants, options.checked);
        hash.update(self.source_hash.as_bytes()).update(format!("{constants:?}{checked}").as_bytes());
        format!("{name}:{}", hash.finalize().to_hex())
    }
}

impl Library {
    /// The kernel of this name with compiled-in bounds checks, whose launch is safe.
    ///
    /// # Errors
    /// As [`Library::kernel`]; `Unsupported`, with the source line, if the device or a pointer of the kernel does not allow
    /// checks: the bounds of a pointer that the kernel loads from memory are unknown.
    pub fn checked_kernel(&self, name: &str) -> Result<CheckedKernel> {
        self.checked_kernel_with(name, KernelOptions::new())
    }

    /// As [`Library::checked_kernel`], specialized with values of function constants, or with other [`KernelOptions`].
    ///
    /// # Errors
    /// As [`Library::checked_kernel`] and [`Library::kernel_with`].
    pub fn checked_kernel_with(
        &self,
        name: &str,
        options: impl Into<KernelOptions>,
    ) -> Result<CheckedKernel> {
        Ok(CheckedKernel { kernel: self.build(name, options.into().pipeline(true))? })
    }

    fn pipeline(&self, name: &str, options: PipelineOptions) -> Result<Arc<dyn Pipeline>> {
        let span = event::kernel(&self.device, name);
        let pipeline = span.in_scope(|| self.device.compiled(self.driver.pipeline(name, &options)));
        event::compiled(&span, &self.device, pipeline.as_ref().err());
        let pipeline = pipeline?;
        self.device.recovery().origins.note(&pipeline, &self.source, options);
        Ok(pipeline)
    }
}

/// Hash of the source's identity and its include folders. The texts of included files are not hashed.
fn hash(source: &Source) -> blake3::Hash {
    let mut hash = blake3::Hasher::new();
    hash.update(&source.identity()).update(format!("{:?}", source.include_dirs).as_bytes());
    hash.finalize()
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.kernels().iter().map(|k| k.name.as_str()).collect();
        write!(f, "Library({}: {})", self.source_name, names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_other_include_directories_have_other_hashes() {
        let source = |folder: &str| hash(&Source::msl("kernel void k() {}").include_dir(folder));
        assert_ne!(source("a"), source("b"));
        assert_eq!(source("a"), source("a"));
        assert_ne!(hash(&Source::msl("a")), hash(&Source::msl("b")));
    }
}
