//! The driver contract's sources, libraries and pipelines, for tools that compile and run nothing.

use std::sync::Arc;

use elinvar_cache::Cache;
use elinvar_code::{check_group, max_threads};
use elinvar_driver::{
    Diagnostic, Dim3, FunctionConstant, Library, Pipeline, PipelineOptions, Result, Signature, Source,
    UnsupportedKernel,
};

use crate::compiler::{Compiler, Constants, Ptx};
use crate::target::Target;

/// Compiles sources for a target, which need not be installed.
pub struct Sources {
    cache: Cache,
    target: Target,
}

impl Sources {
    /// Creates a compiler for a target, with a cache.
    pub fn new(cache: &Cache, target: Target) -> Self {
        Self { cache: cache.clone(), target }
    }

    /// Validates a source; kernels are compiled when their pipelines are requested.
    ///
    /// # Errors
    /// As [`Compiler::new`].
    pub fn compile(&self, source: &Source) -> Result<Arc<dyn Library>> {
        Ok(Arc::new(Checking { compiler: Arc::new(Compiler::new(&self.cache, source, self.target)?) }))
    }
}

struct Checking {
    compiler: Arc<Compiler>,
}

impl Library for Checking {
    fn kernels(&self) -> &[Signature] {
        &self.compiler.declared().kernels
    }

    fn unsupported(&self) -> &[UnsupportedKernel] {
        &self.compiler.declared().unsupported
    }

    fn warnings(&self) -> &[Diagnostic] {
        &self.compiler.declared().warnings
    }

    fn constants(&self) -> &[FunctionConstant] {
        &self.compiler.declared().constants
    }

    fn pipeline(&self, kernel: &str, options: &PipelineOptions) -> Result<Arc<dyn Pipeline>> {
        Ok(Arc::new(Made {
            ptx: self.compiler.kernel(kernel, options, Constants::Values)?,
            compiler: self.compiler.clone(),
            options: options.clone(),
        }))
    }
}

/// A compiled kernel.
struct Made {
    ptx: Ptx,
    compiler: Arc<Compiler>,
    options: PipelineOptions,
}

impl Pipeline for Made {
    fn signature(&self) -> &Signature {
        &self.ptx.signature
    }

    fn max_threads_per_threadgroup(&self) -> u32 {
        max_threads(&self.ptx.signature)
    }

    fn prepare(&self, group: Dim3) -> Result<()> {
        check_group(&self.ptx.signature, group)?;
        self.compiler.check_group(&self.ptx.signature.name, &self.options, group)
    }
}
