//! [`KernelCache`]: the compiled kernels of a device's tensor operations.
//!
//! A kernel is compiled when an operation first needs it, for values of its function constants, and kept with the device. The
//! driver's cache on disk is below it.

use std::collections::HashMap;
use std::sync::Arc;

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Error, MathMode, Pipeline, Result, Source, SourceFile};

use crate::{Constants, Device, Kernel, KernelOptions, Library};

/// A source file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum File {
    Map,
    Reduce,
    Softmax,
    MatMul,
    /// Products by `matmul2d`, behind the text of [`File::MatMul`].
    TensorOperations,
    Normalize,
    Window,
    Attention,
    /// Attention by blocks, behind the text of [`File::Attention`].
    AttentionBlocks,
}

impl File {
    fn name_and_text(self) -> (&'static str, &'static str) {
        match self {
            Self::Map => ("map.metal", include_str!("kernels/map.metal")),
            Self::Reduce => ("reduce.metal", include_str!("kernels/reduce.metal")),
            Self::MatMul => ("matmul.metal", include_str!("kernels/matmul.metal")),
            Self::TensorOperations => {
                ("tensor_operations.metal", include_str!("kernels/tensor_operations.metal"))
            }
            Self::Normalize => ("normalize.metal", include_str!("kernels/normalize.metal")),
            Self::Window => ("window.metal", include_str!("kernels/window.metal")),
            Self::Attention => ("attention.metal", include_str!("kernels/attention.metal")),
            Self::AttentionBlocks => {
                ("attention_blocks.metal", include_str!("kernels/attention_blocks.metal"))
            }
            Self::Softmax => ("softmax.metal", include_str!("kernels/softmax.metal")),
        }
    }

    /// The file behind the definitions that all share.
    fn source(self) -> Source {
        let file = |name: &str, text: &str| SourceFile { name: name.into(), text: text.into() };
        let (name, text) = self.name_and_text();
        let mut files = vec![file("common.metal", include_str!("kernels/common.metal"))];
        let before = match self {
            Self::TensorOperations => Some(Self::MatMul),
            Self::AttentionBlocks => Some(Self::Attention),
            _ => None,
        };
        files.extend(before.map(Self::name_and_text).map(|(name, text)| file(name, text)));
        files.push(file(name, text));
        // Units for matrix products sum in an order of their own.
        let multiplies = matches!(self, Self::MatMul | Self::TensorOperations | Self::AttentionBlocks);
        let math = if multiplies { MathMode::Relaxed } else { MathMode::Safe };
        Source { files, math, ..Source::default() }
    }
}

/// Value of a function constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Value {
    Uint(u32),
    Bool(bool),
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Uint(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

/// A kernel with values of function constants, by index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Specialization {
    pub(crate) file: File,
    pub(crate) name: &'static str,
    pub(crate) constants: Vec<(u32, Value)>,
}

/// The compiled kernels of a device. Does not keep the device alive.
#[derive(Default)]
pub(crate) struct KernelCache {
    libraries: Mutex<HashMap<File, Arc<dyn elinvar_driver::Library>>>,
    pipelines: Mutex<HashMap<Specialization, Compiled>>,
}

/// A pipeline and the identity of its kernel.
type Compiled = (Arc<dyn Pipeline>, Arc<str>);

/// Threads of a simdgroup that the kernels are written for.
const SIMDGROUP: u32 = 32;

impl KernelCache {
    /// The kernel, compiled for `device` if it has not been.
    pub(crate) fn kernel(&self, device: &Device, wanted: &Specialization) -> Result<Kernel> {
        let known = self.pipelines.lock().get(wanted).cloned();
        if let Some((pipeline, identity)) = known {
            return Ok(Kernel::new(device.clone(), pipeline, identity));
        }
        let width = device.caps().limits.simdgroup_width;
        if width != SIMDGROUP {
            return Err(Error::unsupported(format!(
                "tensor operations need simdgroups of {SIMDGROUP} threads; device `{}` has {width}",
                device.name()
            )));
        }
        let constants = wanted.constants.iter().fold(Constants::new(), |all, (index, value)| match value {
            Value::Uint(value) => all.set(*index, *value),
            Value::Bool(value) => all.set(*index, *value),
        });
        let library = self.library(device, wanted.file)?;
        let kernel = library.kernel_with(wanted.name, KernelOptions::new().constants(&constants))?;
        self.pipelines.lock().insert(wanted.clone(), (kernel.pipeline.clone(), kernel.identity.clone()));
        Ok(kernel)
    }

    fn library(&self, device: &Device, file: File) -> Result<Library> {
        let source = file.source();
        let known = self.libraries.lock().get(&file).cloned();
        if let Some(known) = known {
            return Ok(Library::new(device.clone(), known, &source));
        }
        let library = device.compile(&source)?;
        self.libraries.lock().insert(file, library.driver().clone());
        Ok(library)
    }

    /// Releases all kernels; those in use stay until their work has ended.
    pub(crate) fn clear(&self) {
        self.pipelines.lock().clear();
        self.libraries.lock().clear();
    }
}
