//! A device that wraps another device, and also compiles every kernel that it is asked for to PTX, into a bundle.
//!
//! Every pipeline of a program is packed this way, including those that are determined at run time, such as by function constants;
//! `ptxas` can then assemble all of them without a GPU.

use std::sync::Arc;

use elinvar_cache::Cache;
use elinvar_driver::{
    Caps, Device, Diagnostic, Energy, Error, Event, FunctionConstant, HostBlock, Init, Library, Log, Memory,
    Pipeline, PipelineOptions, Priority, Queue, Readings, Result, Signature, Source, Storage, Thermal,
    UnsupportedKernel,
};
use elinvar_ptx::{Bundle, Compiler, Ptx, Target};
use parking_lot::Mutex;

/// The bundle and its contents so far.
#[derive(Default)]
pub struct Packed {
    /// The bundle.
    pub bundle: Bundle,
    /// Packed kernels, each with the name of its source.
    pub kernels: Vec<(String, Ptx)>,
    /// Kernels that the wrapped device supports and PTX does not, with the error.
    pub refused: Vec<(String, Error)>,
}

/// A device that packs every kernel that it compiles.
pub struct Packing {
    below: Arc<dyn Device>,
    cache: Cache,
    target: Target,
    packed: Arc<Mutex<Packed>>,
}

impl Packing {
    /// Wraps `below`, which uses the same compilation cache.
    pub fn new(below: Arc<dyn Device>, cache: &Cache, target: Target) -> Self {
        Self { below, cache: cache.clone(), target, packed: Arc::default() }
    }

    /// The contents so far, shared with the device.
    pub fn packed(&self) -> Arc<Mutex<Packed>> {
        self.packed.clone()
    }
}

#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: memory and queues are those of the wrapped device.
unsafe impl Device for Packing {
    fn caps(&self) -> &Caps {
        self.below.caps()
    }

    fn allocate(&self, bytes: u64, storage: Storage, init: Init) -> Result<Arc<dyn Memory>> {
        self.below.allocate(bytes, storage, init)
    }

    fn available_memory(&self) -> u64 {
        self.below.available_memory()
    }

    #[allow(unsafe_code)] // passes on what it is given
    unsafe fn wrap(&self, block: HostBlock) -> Result<Arc<dyn Memory>> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.below.wrap(block) }
    }

    fn compile(&self, source: &Source) -> Result<Arc<dyn Library>> {
        let compiled = self.below.compile(source);
        let mut bundle = Bundle::default();
        let compiler = Compiler::packing(&self.cache, source, self.target, &mut bundle);
        let mut packed = self.packed.lock();
        packed.bundle.extend(bundle);
        let name = source.files.first().map(|file| file.name.clone()).unwrap_or_default();
        match (compiled, compiler) {
            (Ok(below), Ok(compiler)) => {
                Ok(Arc::new(PackingLibrary { below, compiler, name, packed: self.packed.clone() }))
            }
            (Ok(below), Err(error)) => {
                packed.refused.push((name, error));
                Ok(below)
            }
            (Err(error), _) => Err(error),
        }
    }

    fn thermal(&self) -> Result<Thermal> {
        self.below.thermal()
    }

    fn readings(&self) -> Result<Readings> {
        self.below.readings()
    }

    fn count_events(&self) -> Result<()> {
        self.below.count_events()
    }

    fn energy(&self) -> Result<Energy> {
        self.below.energy()
    }

    fn log(&self) -> Option<&Arc<Log>> {
        self.below.log()
    }

    fn queue_with(&self, priority: Priority) -> Result<Arc<dyn Queue>> {
        self.below.queue_with(priority)
    }

    fn event(&self) -> Result<Arc<dyn Event>> {
        self.below.event()
    }

    fn clock_ns(&self) -> u64 {
        self.below.clock_ns()
    }

    fn use_units(&self, units: u32) -> Result<()> {
        self.below.use_units(units)
    }

    fn reset(&self) -> Result<()> {
        self.below.reset()
    }
}

struct PackingLibrary {
    below: Arc<dyn Library>,
    compiler: Compiler,
    name: String,
    packed: Arc<Mutex<Packed>>,
}

impl Library for PackingLibrary {
    fn kernels(&self) -> &[Signature] {
        self.below.kernels()
    }

    fn unsupported(&self) -> &[UnsupportedKernel] {
        self.below.unsupported()
    }

    fn warnings(&self) -> &[Diagnostic] {
        self.below.warnings()
    }

    fn constants(&self) -> &[FunctionConstant] {
        self.below.constants()
    }

    fn pipeline(&self, kernel: &str, options: &PipelineOptions) -> Result<Arc<dyn Pipeline>> {
        let pipeline = self.below.pipeline(kernel, options);
        let mut bundle = Bundle::default();
        let made = self.compiler.pack(kernel, options, &mut bundle);
        let mut packed = self.packed.lock();
        packed.bundle.extend(bundle);
        match made {
            Ok(made) => packed.kernels.extend(made.into_iter().map(|ptx| (self.name.clone(), ptx))),
            Err(error) if pipeline.is_ok() => {
                packed.refused.push((format!("{}: {kernel}", self.name), error))
            }
            Err(_) => {}
        }
        pipeline
    }
}
