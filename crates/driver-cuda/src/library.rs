//! Libraries: the PTX of a source's kernels, compiled here or ahead of time.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use elinvar_cache::Cache;
use elinvar_code::canonical;
use elinvar_driver::{
    Diagnostic, Dim3, FunctionConstant, Library, Pipeline, PipelineOptions, Result, Signature, Source,
    UnsupportedKernel,
};
use elinvar_ptx::Target;
use parking_lot::Mutex;

use crate::context::Context;
use crate::log::DeviceLog;
use crate::pipeline::CudaPipeline;

/// A validated source.
pub(crate) struct CudaLibrary {
    context: Arc<Context>,
    log: Arc<DeviceLog>,
    max_size: Dim3,
    code: Arc<elinvar_ptx::Library>,
    pipelines: Mutex<HashMap<(String, PipelineOptions), Arc<CudaPipeline>>>,
}

impl CudaLibrary {
    pub(crate) fn new(
        (context, log): (&Arc<Context>, &Arc<DeviceLog>),
        max_size: Dim3,
        cache: &Cache,
        source: &Source,
        target: Target,
    ) -> Result<Self> {
        let code = Arc::new(elinvar_ptx::Library::new(cache, source, target)?);
        Ok(Self { context: context.clone(), log: log.clone(), max_size, code, pipelines: Mutex::default() })
    }

    fn make(&self, kernel: &str, options: &PipelineOptions) -> Result<CudaPipeline> {
        if let Some(lost) = self.context.lost() {
            return Err(lost.clone());
        }
        let (log, code) = (self.log.clone(), self.code.clone());
        let (kernel, options) = (kernel.to_owned(), options.clone());
        let checks = (code.clone(), kernel.clone(), options.clone());
        // Of all variants.
        let logs = OnceLock::new();
        let make = move |constants| {
            let ptx = code.kernel(&kernel, &options, constants)?;
            let log = logs.get_or_init(|| log.kernel(&ptx.signature)).clone()?;
            Ok((ptx, log))
        };
        let check = move |group| checks.0.check_group(&checks.1, &checks.2, group);
        CudaPipeline::new(&self.context, self.max_size, Box::new(make), Box::new(check))
    }
}

impl Library for CudaLibrary {
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
