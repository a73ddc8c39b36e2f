//! Libraries and pipelines: compiled by the host, loaded by the worker.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use elinvar_cache::Cache;
use elinvar_driver::sync::{Mutex, RwLock};
use elinvar_driver::{
    Diagnostic, Dim3, Error, FunctionConstant, Library, Packed, Pipeline, PipelineOptions, Result, Signature,
    Source,
};
use elinvar_driver_cpu::{Unloaded, UnloadedKernel};

use crate::device::Core;
use crate::link::Unsent;
use crate::wire::ToWorker;

/// How often a kernel is given to another worker, when one ends while it loads it.
const TRIES: usize = 3;

pub(crate) struct IsolatedLibrary {
    core: Arc<Core>,
    source: Unloaded,
    pipelines: Mutex<HashMap<(String, PipelineOptions), Arc<IsolatedPipeline>>>,
}

impl IsolatedLibrary {
    pub(crate) fn new(core: &Arc<Core>, cache: &Cache, source: &Source) -> Result<Self> {
        let source = Unloaded::new(cache, source)?;
        Ok(Self { core: core.clone(), source, pipelines: Mutex::default() })
    }
}

impl Library for IsolatedLibrary {
    fn kernels(&self) -> &[Signature] {
        self.source.library().kernels()
    }

    fn warnings(&self) -> &[Diagnostic] {
        self.source.library().warnings()
    }

    fn constants(&self) -> &[FunctionConstant] {
        self.source.library().constants()
    }

    fn pipeline(&self, kernel: &str, options: &PipelineOptions) -> Result<Arc<dyn Pipeline>> {
        let key = (kernel.to_owned(), options.clone());
        if let Some(pipeline) = self.pipelines.lock().get(&key) {
            return Ok(pipeline.clone());
        }
        // Not under the lock: of two threads that make the same one, the second drops its own.
        let unloaded = Arc::new(self.source.kernel(kernel, options)?);
        let made = Arc::new(IsolatedPipeline::new(&self.core, unloaded, false));
        Ok(self.pipelines.lock().entry(key).or_insert(made).clone())
    }
}

/// A kernel.
pub(crate) struct IsolatedPipeline {
    core: Arc<Core>,
    kernel: Arc<UnloadedKernel>,
    is_stoppable: bool,
    /// The pipeline of code that can be stopped in loops.
    stoppable: OnceLock<Arc<IsolatedPipeline>>,
    ready: RwLock<HashMap<Dim3, Arc<Function>>>,
    /// Held by the one thread that builds a size.
    building: Mutex<()>,
}

/// A kernel for a threadgroup size, as workers load it.
pub(crate) struct Function {
    core: Arc<Core>,
    pub(crate) id: u64,
    packed: Packed,
    kernel: Arc<UnloadedKernel>,
    group: Dim3,
    stoppable: bool,
}

impl Function {
    /// What has it loaded.
    pub(crate) fn message(&self) -> ToWorker<'_> {
        ToWorker::Load {
            function: self.id,
            bundle: &self.packed.bundle,
            key: self.packed.key,
            kernel: &self.kernel.signature().name,
            options: self.kernel.options().clone(),
            group: self.group,
            stoppable: self.stoppable,
        }
    }

    /// Have a worker load it.
    fn load(&self) -> Result<()> {
        for _ in 0..TRIES {
            match self.core.link()?.load(self) {
                Ok(()) => return Ok(()),
                Err(Unsent::Wrong(error)) => return Err(error),
                Err(Unsent::Lost) => {}
            }
        }
        let name = &self.kernel.signature().name;
        Err(Error::DeviceLost(format!("the worker process ended while it loaded kernel `{name}`")))
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        self.core.forget(&ToWorker::Unload { function: self.id });
    }
}

impl IsolatedPipeline {
    fn new(core: &Arc<Core>, kernel: Arc<UnloadedKernel>, is_stoppable: bool) -> Self {
        let (stoppable, ready, building) = (OnceLock::new(), RwLock::default(), Mutex::default());
        Self { core: core.clone(), kernel, is_stoppable, stoppable, ready, building }
    }

    /// The kernel for threadgroups of this size, which [`Pipeline::prepare`] has made.
    pub(crate) fn function(&self, group: Dim3) -> Result<Arc<Function>> {
        let function = self.ready.read().get(&group).cloned();
        function.ok_or_else(|| {
            let (name, Dim3 { x, y, z }) = (&self.kernel.signature().name, group);
            Error::invalid(format!("kernel `{name}` has not been prepared for threadgroups of {x}x{y}x{z}"))
        })
    }
}

impl Pipeline for IsolatedPipeline {
    fn signature(&self) -> &Signature {
        self.kernel.signature()
    }

    fn max_threads_per_threadgroup(&self) -> u32 {
        self.kernel.max_threads()
    }

    fn prepare(&self, group: Dim3) -> Result<()> {
        if self.ready.read().contains_key(&group) {
            return Ok(());
        }
        let _mine = self.building.lock();
        if self.ready.read().contains_key(&group) {
            return Ok(());
        }
        let packed = self.kernel.pack(group, self.is_stoppable)?;
        let (core, kernel, stoppable) = (self.core.clone(), self.kernel.clone(), self.is_stoppable);
        let function = Function { id: core.number(), core, packed, kernel, group, stoppable };
        function.load()?;
        self.ready.write().insert(group, Arc::new(function));
        Ok(())
    }

    fn stoppable(&self) -> Option<Arc<dyn Pipeline>> {
        if self.is_stoppable {
            return None;
        }
        let make = || Arc::new(Self::new(&self.core, self.kernel.clone(), true));
        Some(self.stoppable.get_or_init(make).clone())
    }
}
