//! Libraries and pipelines: compiled by the host, loaded by the worker.
//!
//! CPU code is compiled for a threadgroup size, or is general code ([`BySize`]), and is loaded by [`Pipeline::prepare`]. GPU code is the same
//! for all sizes and is loaded with the pipeline, because only the GPU's driver knows the maximum threadgroup size.

use std::collections::HashMap;
use std::sync::Arc;

use elinvar_cache::Cache;
use elinvar_driver::sync::{Mutex, OnceLock};
use elinvar_driver::{
    Diagnostic, Dim3, Error, FunctionConstant, Library, LogKernel, Packed, Pipeline, PipelineOptions, Result,
    Signature, Source, UnsupportedKernel,
};
use elinvar_native::{BySize, Form, Made, SizeBound};

use crate::device::Core;
use crate::inner::{Code, SpecializedKernel};
use crate::link::Unsent;
use crate::wire::{LogLoan, ToWorker};

/// Maximum number of workers that are asked to load a kernel, if workers end while they load it.
const TRIES: usize = 3;

pub(crate) struct IsolatedLibrary {
    core: Arc<Core>,
    code: Code,
    pipelines: Mutex<HashMap<(String, PipelineOptions), Arc<IsolatedPipeline>>>,
}

impl IsolatedLibrary {
    pub(crate) fn new(core: &Arc<Core>, cache: &Cache, source: &Source) -> Result<Self> {
        let code = core.inner.compile(cache, source)?;
        Ok(Self { core: core.clone(), code, pipelines: Mutex::default() })
    }
}

impl Library for IsolatedLibrary {
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
        let key = (kernel.to_owned(), options.clone());
        if let Some(pipeline) = self.pipelines.lock().get(&key) {
            return Ok(pipeline.clone());
        }
        // Not under the lock; if two threads build the same pipeline, the second drops its own.
        let kernel = Arc::new(self.code.kernel(kernel, options)?);
        let log = KernelLog::new(&self.core, kernel.signature())?;
        let whole = Whole::load(&self.core, &kernel, log.as_ref())?;
        let made = Arc::new(IsolatedPipeline::new(&self.core, kernel, whole, log, false));
        Ok(self.pipelines.lock().entry(key).or_insert(made).clone())
    }
}

/// A kernel.
pub(crate) struct IsolatedPipeline {
    core: Arc<Core>,
    kernel: Arc<SpecializedKernel>,
    is_stoppable: bool,
    whole: Option<Whole>,
    /// Its log calls, if it has any.
    log: Option<KernelLog>,
    /// The pipeline of code that can be stopped in loops.
    stoppable: OnceLock<Arc<IsolatedPipeline>>,
    /// Largest numbers of threadgroups of cooperative launches, by threadgroup size and dynamic threadgroup memory.
    resident: Mutex<HashMap<(Dim3, u64), u64>>,
    /// Its code, by the threadgroup sizes that have been accepted.
    code: BySize<Arc<Function>>,
}

/// A kernel's log calls, and where its worker writes their records.
#[derive(Clone)]
struct KernelLog {
    kernel: Arc<LogKernel>,
    loan: LogLoan,
}

impl KernelLog {
    /// `None` for a kernel without log calls.
    fn new(core: &Core, signature: &Signature) -> Result<Option<Self>> {
        let Some(kernel) = core.log.kernel(signature) else { return Ok(None) };
        let (piece, size) = core.log_pages()?;
        let loan = LogLoan { offset: piece.offset, len: piece.bytes, size, kernel: kernel.number() };
        Ok(Some(Self { kernel, loan }))
    }
}

/// A kernel's code, for one threadgroup size or for all, as workers load it.
pub(crate) struct Function {
    core: Arc<Core>,
    pub(crate) id: u64,
    packed: Packed,
    kernel: Arc<SpecializedKernel>,
    group: Option<Dim3>,
    stoppable: bool,
    objects: SizeBound,
    log: Option<LogLoan>,
}

impl Function {
    /// Maximum threadgroup size, as limited by the source.
    pub(crate) fn max_threads(&self) -> u32 {
        self.kernel.max_threads()
    }

    /// The worker that has loaded it.
    pub(crate) fn message(&self) -> ToWorker<'_> {
        ToWorker::Load {
            function: self.id,
            bundle: &self.packed.bundle,
            key: self.packed.key,
            kernel: &self.kernel.signature().name,
            options: self.kernel.options().clone(),
            group: self.group,
            stoppable: self.stoppable,
            largest: self.objects.bytes(),
            log: self.log,
        }
    }

    fn new(
        core: &Arc<Core>,
        kernel: &Arc<SpecializedKernel>,
        log: Option<&KernelLog>,
        packed: Packed,
        form: Option<Form>,
    ) -> Self {
        let (group, stoppable) = (form.and_then(|form| form.group), form.is_some_and(|form| form.stoppable));
        let objects = form.map_or(SizeBound::DEFAULT, |form| form.objects);
        let (core, id, kernel) = (core.clone(), core.number(), kernel.clone());
        Self { core, id, packed, kernel, group, stoppable, objects, log: log.map(|log| log.loan) }
    }

    /// Makes a worker load it. Returns the maximum number of threads per threadgroup.
    fn load(&self) -> Result<u32> {
        for _ in 0..TRIES {
            match self.core.link()?.load(self) {
                Ok(threads) => return Ok(threads),
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

/// A kernel's code for all threadgroup sizes, loaded.
struct Whole {
    function: Arc<Function>,
    max_threads: u32,
}

impl Whole {
    /// `None` for a kernel whose code is compiled per size.
    fn load(
        core: &Arc<Core>,
        kernel: &Arc<SpecializedKernel>,
        log: Option<&KernelLog>,
    ) -> Result<Option<Self>> {
        let Some(packed) = kernel.for_all_sizes() else { return Ok(None) };
        let function = Arc::new(Function::new(core, kernel, log, packed.clone(), None));
        let max_threads = function.load()?;
        Ok(Some(Self { function, max_threads }))
    }
}

impl IsolatedPipeline {
    fn new(
        core: &Arc<Core>,
        kernel: Arc<SpecializedKernel>,
        whole: Option<Whole>,
        log: Option<KernelLog>,
        is_stoppable: bool,
    ) -> Self {
        let max_threads = whole.as_ref().map_or_else(|| kernel.max_threads(), |whole| whole.max_threads);
        let function = whole.as_ref().map(|whole| whole.function.clone());
        let (to, of, logs) = (core.clone(), kernel.clone(), log.clone());
        let code = BySize::new(kernel.specialization(), move |group, objects, optimize| {
            if let Some(group) = group {
                of.expect_group(group, max_threads)?;
            }
            if let Some(whole) = &function {
                return Ok(Made {
                    code: whole.clone(),
                    optimized: true,
                    optimizable: false,
                    row_sizes: None,
                });
            }
            let form = Form { group, stoppable: is_stoppable, objects };
            let Made { code, optimized, optimizable, row_sizes } = of.for_form(form, optimize)?;
            let function = Function::new(&to, &of, logs.as_ref(), code, Some(form));
            function.load()?;
            Ok(Made { code: Arc::new(function), optimized, optimizable, row_sizes })
        });
        let (core, stoppable, resident) = (core.clone(), OnceLock::new(), Mutex::default());
        Self { core, kernel, is_stoppable, whole, log, stoppable, resident, code }
    }

    /// The kernel for this threadgroup size and largest memory, which [`Pipeline::prepare_for`] has built.
    pub(crate) fn function(&self, group: Dim3, largest: u64) -> Result<Arc<Function>> {
        let function = self.code.get(group, self.bound(largest)).map(|function| (*function).clone());
        function.ok_or_else(|| {
            let (name, Dim3 { x, y, z }) = (&self.kernel.signature().name, group);
            Error::invalid(format!("kernel `{name}` has not been prepared for threadgroups of {x}x{y}x{z}"))
        })
    }

    /// Reports the processor time of a dispatch.
    pub(crate) fn ran(&self, group: Dim3, largest: u64, ns: u64) {
        self.code.ran(group, self.bound(largest), ns);
    }

    /// The bound of buffers for which code is specialized. The code for all threadgroup sizes, a GPU's, is for all buffers, too.
    fn bound(&self, largest: u64) -> SizeBound {
        if self.whole.is_some() { SizeBound::DEFAULT } else { SizeBound::of(largest) }
    }
}

impl Pipeline for IsolatedPipeline {
    fn signature(&self) -> &Signature {
        self.kernel.signature()
    }

    fn max_threads_per_threadgroup(&self) -> u32 {
        self.whole.as_ref().map_or_else(|| self.kernel.max_threads(), |whole| whole.max_threads)
    }

    fn prepare(&self, group: Dim3) -> Result<()> {
        self.prepare_for(group, 0)
    }

    fn prepare_for(&self, group: Dim3, largest: u64) -> Result<()> {
        self.code.prepare(group, self.bound(largest))
    }

    /// On the thread that reads the worker's replies, the worker checks the launch alone.
    fn resident_groups(&self, group: Dim3, threadgroup_bytes: u64) -> Result<u64> {
        let size = (group, threadgroup_bytes);
        if let Some(known) = self.resident.lock().get(&size) {
            return Ok(*known);
        }
        self.prepare(group)?;
        let function = self.function(group, 0)?;
        for _ in 0..TRIES {
            match self.core.link()?.resident_groups(&function, size, self.core.number()) {
                Ok(Some(groups)) => {
                    self.resident.lock().insert(size, groups);
                    return Ok(groups);
                }
                Ok(None) => return Ok(u64::MAX),
                Err(Unsent::Wrong(error)) => return Err(error),
                Err(Unsent::Lost) => {}
            }
        }
        let name = &self.kernel.signature().name;
        Err(Error::DeviceLost(format!("the worker process ended while it measured kernel `{name}`")))
    }

    fn optimize(&self, group: Dim3) -> Result<()> {
        self.code.optimize(group)
    }

    fn is_optimized(&self, group: Dim3) -> Option<bool> {
        self.code.is_optimized(group)
    }

    fn log_kernel(&self) -> Option<&Arc<LogKernel>> {
        self.log.as_ref().map(|log| &log.kernel)
    }

    fn stoppable(&self) -> Option<Arc<dyn Pipeline>> {
        if self.is_stoppable || self.whole.is_some() {
            return None;
        }
        let make = || Arc::new(Self::new(&self.core, self.kernel.clone(), None, self.log.clone(), true));
        Some(self.stoppable.get_or_init(make).clone())
    }
}
