//! Libraries: the machine code of a source's kernels, compiled here or ahead of time, and loaded when a pipeline is prepared.

use std::collections::HashMap;
use std::sync::Arc;

use elinvar_cache::Cache;
use elinvar_code::canonical;
use elinvar_driver::sync::Mutex;
use elinvar_driver::{
    Diagnostic, FunctionConstant, Library, Log, Pipeline, PipelineOptions, Result, Signature, Source, Tier,
    UnsupportedKernel,
};
use elinvar_native::{Loaded, Made, Object, Target};

use crate::kernel::{CompiledKernel, CpuPipeline};
use crate::loader::Code;

/// A validated source.
pub(crate) struct CpuLibrary {
    code: Arc<elinvar_native::Library>,
    log: Arc<Log>,
    pipelines: Mutex<HashMap<(String, PipelineOptions), Arc<CpuPipeline>>>,
}

impl CpuLibrary {
    /// Compiles a source with the cache and the clang that is found, or reads it from its bundle.
    pub(crate) fn new(cache: &Cache, source: &Source, log: Arc<Log>) -> Result<Self> {
        let code = Arc::new(elinvar_native::Library::new(cache, source, Target::from_env()?)?);
        Ok(Self { code, log, pipelines: Mutex::default() })
    }

    fn make(&self, name: &str, options: &PipelineOptions) -> Result<CpuPipeline> {
        let signature = self.code.signature(name, options)?;
        let (code, of, options) = (self.code.clone(), signature.clone(), options.clone());
        let optimized = PipelineOptions { tier: Tier::Optimized, ..options.clone() };
        let specialization = self.code.specialization(&options);
        let thread = (self.code.clone(), name.to_owned(), options.clone());
        let ir = move || thread.0.ir(&thread.1, &thread.2);
        let build = move |form, optimize| {
            let load = |bytes: &[u8]| Code::from_bytes(bytes, Object::SYMBOL);
            let options = if optimize { &optimized } else { &options };
            let Loaded { loaded, object, optimizable } = code.kernel_with(&of.name, options, form, load)?;
            let (optimized, row_sizes) = (object.optimized, object.row_sizes);
            Ok(Made { code: CompiledKernel::new(&of, loaded, object), optimized, optimizable, row_sizes })
        };
        let log = self.log.kernel(&signature);
        Ok(CpuPipeline::new(signature, specialization, Arc::new(build), log).with_ir(Arc::new(ir)))
    }
}

impl Library for CpuLibrary {
    fn kernels(&self) -> &[Signature] {
        &self.code.declared().kernels
    }

    fn unsupported(&self) -> &[UnsupportedKernel] {
        &self.code.declared().unsupported
    }

    fn warnings(&self) -> &[Diagnostic] {
        &self.code.declared().warnings
    }

    fn constants(&self) -> &[FunctionConstant] {
        &self.code.declared().constants
    }

    fn pipeline(&self, kernel: &str, options: &PipelineOptions) -> Result<Arc<dyn Pipeline>> {
        let key = (kernel.to_owned(), canonical(self.constants(), options));
        if let Some(pipeline) = self.pipelines.lock().get(&key) {
            return Ok(pipeline.clone());
        }
        // Not under the lock, so that pipelines of other kernels remain available. If two threads build the same pipeline, the second
        // drops its own.
        let made = Arc::new(self.make(kernel, options)?);
        Ok(self.pipelines.lock().entry(key).or_insert(made).clone())
    }
}
