//! [`CapturingDevice`]: passes everything to the device that it wraps, and remembers where kernels come from.

use std::any::Any;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use elinvar_driver::{
    CacheLookups, Caps, Capture, CollectiveLibrary, Device, Diagnostic, Energy, Event, FunctionConstant,
    HostBlock, Init, Library, Link, Log, Memory, Pipeline, PipelineOptions, Place, Primitive, Priority,
    Queue, Reach, Readings, ResidentThreads, Result, Signature, Source, Storage, Thermal, UnsupportedKernel,
};

use crate::format::SourceRecord;
use crate::queue::CapturingQueue;
use crate::write::CaptureFile;

/// A device whose launches are captured. It returns the wrapped device's memory, kernels and events; only its queues differ: they copy what a launch uses, on the device,
/// before and after it.
pub struct CapturingDevice {
    below: Arc<dyn Device>,
    pub(crate) origins: Arc<Origins>,
    file: Arc<CaptureFile>,
    number: u32,
}

/// Kernels by the address of their pipeline, which is kept allocated.
#[derive(Default)]
pub(crate) struct Origins(Mutex<HashMap<usize, Origin>>);

/// A pipeline, and the number of its kernel in the file if it has a source.
type Origin = (Weak<dyn Pipeline>, Option<u32>);

impl Origins {
    fn note(&self, pipeline: &Arc<dyn Pipeline>, kernel: Option<u32>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == all.capacity() {
            all.retain(|_, (pipeline, _)| pipeline.strong_count() > 0);
        }
        all.insert(Arc::as_ptr(pipeline).addr(), (Arc::downgrade(pipeline), kernel));
    }

    /// Number of a kernel in the file; `None` if it has no source.
    pub(crate) fn of(&self, pipeline: &Arc<dyn Pipeline>) -> Option<u32> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&Arc::as_ptr(pipeline).addr()).and_then(|(_, kernel)| *kernel)
    }
}

impl CapturingDevice {
    /// Wraps a device.
    pub fn new(below: Arc<dyn Device>, file: Arc<CaptureFile>) -> Arc<Self> {
        let number = file.device(below.caps().kind.name(), &below.caps().name);
        Arc::new(Self { below, origins: Arc::default(), file, number })
    }
}

#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: memory is the wrapped device's, and queues submit to its queues.
unsafe impl Device for CapturingDevice {
    fn caps(&self) -> &Caps {
        self.below.caps()
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        self.below.details()
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
        let (below, source) = (self.below.compile(source)?, SourceRecord::new(source));
        Ok(Arc::new(CapturingLibrary {
            below,
            source,
            file: self.file.clone(),
            origins: self.origins.clone(),
        }))
    }

    fn queue_with(&self, priority: Priority) -> Result<Arc<dyn Queue>> {
        let queue = self.below.queue_with(priority)?;
        Ok(Arc::new(CapturingQueue::new(
            self.below.clone(),
            queue,
            self.origins.clone(),
            self.file.clone(),
            self.number,
        )))
    }

    fn resident_queue(&self, threads: ResidentThreads) -> Result<Arc<dyn Queue>> {
        self.file.not_captured("a resident kernel", "it exchanges items with the host while it runs");
        self.below.resident_queue(threads)
    }

    fn expect_executes_commands(&self) -> Result<()> {
        self.below.expect_executes_commands()
    }

    fn expect_nested_launches(&self) -> Result<()> {
        self.below.expect_nested_launches()
    }

    fn expect_primitive(&self, primitive: &Primitive) -> Result<()> {
        self.below.expect_primitive(primitive)
    }

    fn event(&self) -> Result<Arc<dyn Event>> {
        self.below.event()
    }

    fn clock_ns(&self) -> u64 {
        self.below.clock_ns()
    }

    fn timing_error_ns(&self) -> u64 {
        self.below.timing_error_ns()
    }

    fn use_units(&self, units: u32) -> Result<()> {
        self.below.use_units(units)
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

    fn cache_lookups(&self) -> Option<CacheLookups> {
        self.below.cache_lookups()
    }

    fn collectives(&self) -> Result<Arc<dyn CollectiveLibrary>> {
        self.below.collectives()
    }

    fn place(&self) -> Place {
        self.below.place()
    }

    fn peer_access(&self, other: &dyn Device) -> Result<()> {
        match (other as &dyn Any).downcast_ref::<Self>() {
            Some(other) => self.below.peer_access(&*other.below),
            None => self.below.peer_access(other),
        }
    }

    fn link(&self, other: &dyn Device) -> Option<Link> {
        match (other as &dyn Any).downcast_ref::<Self>() {
            Some(other) => self.below.link(&*other.below),
            None => self.below.link(other),
        }
    }

    fn reaches(&self, other: &dyn Device) -> Option<Reach> {
        // A driver knows its own devices.
        match (other as &dyn Any).downcast_ref::<Self>() {
            Some(other) => self.below.reaches(&*other.below),
            None => self.below.reaches(other),
        }
    }

    fn capture(&self, path: &Path) -> Result<Box<dyn Capture>> {
        self.below.capture(path)
    }

    fn log(&self) -> Option<&Arc<Log>> {
        self.below.log()
    }

    fn lost(&self) -> Option<elinvar_driver::Error> {
        self.below.lost()
    }

    fn reset(&self) -> Result<()> {
        self.below.reset()
    }
}

struct CapturingLibrary {
    below: Arc<dyn Library>,
    source: Option<SourceRecord>,
    file: Arc<CaptureFile>,
    origins: Arc<Origins>,
}

impl Library for CapturingLibrary {
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
        let pipeline = self.below.pipeline(kernel, options)?;
        let number = self.source.as_ref().map(|source| self.file.kernel(source, kernel, options));
        self.origins.note(&pipeline, number);
        // What a launch with a deadline uses.
        if let Some(stoppable) = pipeline.stoppable() {
            self.origins.note(&stoppable, number);
        }
        Ok(pipeline)
    }
}
