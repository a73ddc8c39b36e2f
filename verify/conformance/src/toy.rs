//! A toy driver: the minimal implementation of a driver, in one file. Its device runs kernels synchronously in the reference interpreter,
//! on a new thread for each turn of a queue.
//!
//! It is complete for what it supports, and the chapters of the suite about memory, launches, order and failure run on it
//! (`tests/drivers.rs`). Everything else is an error with the reason: bundles, addresses in memory, launches with overlapping arguments.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use elinvar_driver::submission::{Backend, Deferred, Issue, Issued, QueueHandle, SubmissionQueue};
use elinvar_driver::{
    Binding, Caps, Command, Device, DeviceKind, Diagnostic, Dim3, Dispatch, Error, Fault, Features,
    FunctionConstant, Grid, Init, Library, Limits, Log, LogKernel, LogSite, Memory, MemorySlice, Pipeline,
    PipelineOptions, Primitives, Priority, Queue, Result, Signature, Source, StopsAt, Storage,
    UnsupportedKernel,
};
use elinvar_msl::{CachedProgram, Toolchain};
use elinvar_reference::{Argument, Launch, LogRecord};

/// A new device.
pub fn device() -> Arc<dyn Device> {
    let (threads, bytes) = (1024, 1 << 28);
    let limits = Limits {
        simdgroup_width: 32,
        max_threads_per_threadgroup: threads,
        max_threadgroup_size: Dim3::new(threads, threads, 64),
        max_threadgroup_memory: 32 * 1024,
        max_buffer_bytes: bytes,
        total_memory: bytes,
        working_set: bytes,
        memory_granule: ALIGN as u64,
        wrap_granule: None,
        compute_units: 1,
        parallel_queues: 1,
        vector_bits: None,
    };
    let features = Features {
        unified_memory: true,
        managed_memory: false,
        stops_at: StopsAt::Never,
        restarts: false,
        sees_counts: true,
        priorities: false,
        names_accesses: false,
        tensor_products: false,
        primitives: Primitives::NONE,
    };
    let caps = Caps { name: "toy".into(), kind: DeviceKind::Sim, limits, features };
    Arc::new(ToyDevice { caps, start: Instant::now(), log: Log::new() })
}

struct ToyDevice {
    caps: Caps,
    start: Instant,
    log: Arc<Log>,
}

#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: each memory is a separate allocation, and the interpreter checks every access.
unsafe impl Device for ToyDevice {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn allocate(&self, bytes: u64, storage: Storage, _: Init) -> Result<Arc<dyn Memory>> {
        let most = self.caps.limits.max_buffer_bytes;
        match storage {
            Storage::Shared | Storage::Private if bytes <= most => {
                Ok(Arc::new(ToyMemory::new(bytes, storage)))
            }
            Storage::Shared | Storage::Private => {
                Err(Error::invalid(format!("a buffer of {bytes} bytes; device `toy` allows {most}")))
            }
            other => Err(Error::unsupported(format!("device `toy` has no {other:?} storage"))),
        }
    }

    fn available_memory(&self) -> u64 {
        self.caps.limits.total_memory
    }

    fn compile(&self, source: &Source) -> Result<Arc<dyn Library>> {
        let toolchain = Toolchain::find_with(elinvar_code::user_cache());
        let toolchain = toolchain.map_err(|error| Error::Environment(error.to_string()))?;
        let program = CachedProgram::new(&toolchain, source).map_err(compile_error)?;
        Ok(Arc::new(ToyLibrary { program, source: Arc::new(source.clone()), log: self.log.clone() }))
    }

    fn queue_with(&self, priority: Priority) -> Result<Arc<dyn Queue>> {
        match priority {
            Priority::Normal => Ok(Arc::new(QueueHandle::new(ToyQueue { start: self.start }))),
            other => Err(Error::unsupported(format!("device `toy` has no queues of priority {other:?}"))),
        }
    }

    fn log(&self) -> Option<&Arc<Log>> {
        Some(&self.log)
    }

    fn clock_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

fn compile_error(error: elinvar_msl::Error) -> Error {
    match error {
        elinvar_msl::Error::Compile(diagnostics) => Error::Compile(diagnostics),
        elinvar_msl::Error::Unsupported(reason) => Error::unsupported(reason),
        elinvar_msl::Error::NoKernel { .. } | elinvar_msl::Error::Constant(_) => {
            Error::invalid(error.to_string())
        }
        other => Error::Environment(other.to_string()),
    }
}

/// Maximum number of threadgroups of a launch.
const MAX_GROUPS: u128 = 1 << 32;
/// Alignment of memory in bytes.
const ALIGN: usize = 256;

/// Zeroed host memory.
struct ToyMemory {
    address: NonNull<u8>,
    len: usize,
    storage: Storage,
    _blocks: Vec<Block>,
}

#[derive(Clone)]
#[repr(C, align(256))]
struct Block([u8; ALIGN]);

impl ToyMemory {
    fn new(bytes: u64, storage: Storage) -> Self {
        let len = bytes as usize;
        let mut blocks = vec![Block([0; ALIGN]); len.div_ceil(ALIGN)];
        let address = NonNull::new(blocks.as_mut_ptr()).unwrap_or(NonNull::dangling()).cast();
        Self { address, len, storage, _blocks: blocks }
    }
}

#[allow(unsafe_code)] // the contract's memory is accessed through its address
mod access {
    use super::*;

    // SAFETY: the address is that of memory owned by the value; callers of the methods prevent races.
    unsafe impl Send for ToyMemory {}
    // SAFETY: as above.
    unsafe impl Sync for ToyMemory {}

    // SAFETY: the address is that of the blocks, which live as long as the value and are only accessed through the address.
    unsafe impl Memory for ToyMemory {
        fn len(&self) -> u64 {
            self.len as u64
        }

        fn storage(&self) -> Storage {
            self.storage
        }

        fn host_ptr(&self) -> Option<NonNull<u8>> {
            (self.storage == Storage::Shared).then_some(self.address)
        }

        unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
            elinvar_driver::expect_within(self.len(), offset, target.len() as u64)?;
            let (from, len) = (offset as usize, target.len());
            // SAFETY: the range is within the memory, which no other code writes during the call.
            unsafe { self.address.add(from).copy_to_nonoverlapping(NonNull::from(target).cast(), len) };
            Ok(())
        }

        unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
            elinvar_driver::expect_within(self.len(), offset, source.len() as u64)?;
            let (to, len) = (offset as usize, source.len());
            // SAFETY: the range is within the memory, which no other code accesses during the call.
            unsafe { self.address.add(to).copy_from_nonoverlapping(NonNull::from(source).cast(), len) };
            Ok(())
        }

        unsafe fn clear(&self, len: u64) -> Result<()> {
            // SAFETY: as for `write`.
            unsafe { self.write(0, &vec![0; len as usize]) }
        }
    }

    /// Reads the bytes of a slice for a command of a queue.
    pub(super) fn load(slice: &MemorySlice) -> Result<Vec<u8>> {
        let mut bytes = vec![0; slice.len as usize];
        // SAFETY: the runtime prevents writes to what a command in flight reads, and a queue executes its commands one by one.
        unsafe { slice.memory.read(slice.offset, &mut bytes) }.map(|()| bytes)
    }

    /// Writes the bytes of a slice for a command of a queue.
    pub(super) fn store(slice: &MemorySlice, bytes: &[u8]) -> Result<()> {
        // SAFETY: as for `load`.
        unsafe { slice.memory.write(slice.offset, bytes) }
    }
}

/// A compiled source.
struct ToyLibrary {
    program: CachedProgram,
    source: Arc<Source>,
    log: Arc<Log>,
}

impl Library for ToyLibrary {
    fn kernels(&self) -> &[Signature] {
        self.program.kernels()
    }

    fn unsupported(&self) -> &[UnsupportedKernel] {
        self.program.unsupported()
    }

    fn warnings(&self) -> &[Diagnostic] {
        self.program.warnings()
    }

    fn constants(&self) -> &[FunctionConstant] {
        self.program.constants()
    }

    /// All kernels are checked: an access outside an argument is a fault.
    fn pipeline(&self, kernel: &str, options: &PipelineOptions) -> Result<Arc<dyn Pipeline>> {
        let specialized = self.program.specialize(kernel, &options.constants).map_err(compile_error)?;
        let module = elinvar_ir::Module::parse(&specialized.ir);
        let module = module.map_err(|error| Error::unsupported(error.to_string()))?;
        let origin = elinvar_code::Origin { signature: specialized.signature, source: self.source.clone() };
        let logs = origin.logs(&module)?;
        let signature = Signature { logs, ..origin.signature };
        let log = self.log.kernel(&signature);
        Ok(Arc::new(ToyPipeline { signature, module, log }))
    }
}

struct ToyPipeline {
    signature: Signature,
    module: elinvar_ir::Module,
    log: Option<Arc<LogKernel>>,
}

impl Pipeline for ToyPipeline {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn max_threads_per_threadgroup(&self) -> u32 {
        elinvar_code::max_threads(&self.signature)
    }

    fn log_kernel(&self) -> Option<&Arc<LogKernel>> {
        self.log.as_ref()
    }

    fn prepare(&self, group: Dim3) -> Result<()> {
        elinvar_code::check_group(&self.signature, group)
    }
}

impl ToyPipeline {
    /// Stores a log record that the interpreter has read.
    fn store(&self, record: LogRecord) {
        let is_it = |site: &LogSite| {
            let LogSite { format, subsystem, category, level, .. } = site;
            (format, subsystem, category, *level as u8)
                == (&record.format, &record.subsystem, &record.category, record.level)
                && site.words() == record.words.len()
        };
        let site = self.signature.logs.iter().position(is_it);
        if let (Some(kernel), Some(site)) = (&self.log, site) {
            kernel.log().store(kernel, site as u16, record.thread, record.words);
        }
    }

    fn launch(&self, dispatch: &Dispatch) -> Result<()> {
        let threads = match &dispatch.grid {
            Grid::Threads(threads) => *threads,
            Grid::Indirect(counts) => {
                let bytes = access::load(counts)?;
                let count = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[4 * at + byte]));
                let counts = Dim3::new(count(0), count(1), count(2));
                if counts.volume() > MAX_GROUPS {
                    return Err(dispatch.fault(format!("{counts} threadgroups; at most {MAX_GROUPS} in all")));
                }
                dispatch.threads_of(counts)?
            }
        };
        if threads.volume() == 0 {
            return Ok(());
        }
        let load = |binding: &Binding| match binding {
            Binding::Memory(slice) => access::load(slice).map(Argument::Bytes),
            Binding::Bytes(bytes) => Ok(Argument::Bytes(bytes.to_vec())),
            Binding::Threadgroup(len) => Ok(Argument::Threadgroup(*len)),
            Binding::Unbound => Ok(Argument::Bytes(Vec::new())),
        };
        let arguments = dispatch.bindings.iter().map(load).collect::<Result<_>>()?;
        let launch = Launch { threads: threads.to_array(), group: dispatch.group.to_array(), arguments };
        let options = elinvar_reference::Options::default();
        let mut log = |record| self.store(record);
        let ran = elinvar_reference::run_logged(&self.module, &launch, &options, &mut log);
        let memory = ran.map_err(|fault| {
            let (kernel, location) =
                (self.signature.name.clone(), fault.location.as_ref().map(ToString::to_string));
            Error::Fault(Fault {
                kernel,
                message: fault.problem.to_string(),
                location,
                launch: dispatch.label.clone(),
            })
        })?;
        for (binding, bytes) in dispatch.bindings.iter().zip(memory) {
            if let Binding::Memory(slice) = binding {
                access::store(slice, &bytes)?;
            }
        }
        Ok(())
    }
}

/// The device's part of a queue; the rest is the submission core.
struct ToyQueue {
    start: Instant,
}

#[allow(unsafe_code)] // promises what the submission core asks for
// SAFETY: commands have been executed when `begin` returns.
unsafe impl Backend for ToyQueue {
    type Thread = ();
    type Work = ();
    /// Nothing is in flight.
    type Fence = std::convert::Infallible;

    fn work(&self) {}

    /// The only `match` on [`Command`].
    fn begin(&self, issue: &mut Issue<'_, Self>, (): &mut ()) -> Result<Issued> {
        let start_ns = self.now_ns();
        for command in issue.run() {
            match command {
                Command::Dispatch(dispatch) => {
                    let pipeline: &dyn Any = &*dispatch.pipeline;
                    let foreign =
                        || Error::invalid(format!("{:?} is not of device `toy`", dispatch.pipeline));
                    expect_apart(dispatch)?;
                    pipeline.downcast_ref::<ToyPipeline>().ok_or_else(foreign)?.launch(dispatch)?;
                }
                Command::Copy { source, target } => access::store(target, &access::load(source)?)?,
                Command::Fill { target, pattern } => {
                    access::store(target, &pattern.repeat(target.len as usize / pattern.len()))?;
                }
                other => return Err(Error::unsupported(format!("device `toy` has no command {other:?}"))),
            }
        }
        let next = issue.next() + issue.run().len();
        Ok(Issued::Executed { next, start_ns, end_ns: self.now_ns() })
    }

    fn panicked(&self, message: &str) -> Error {
        Error::Environment(format!("the toy driver panicked: {message}"))
    }

    fn schedule(&self, queue: Arc<SubmissionQueue<Self>>) {
        std::thread::spawn(move || queue.turn(&mut ()));
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn stop(
        &self,
        (): &(),
        _: &mut dyn Iterator<Item = &Self::Fence>,
        _: &Error,
    ) -> Result<Option<Deferred<Self, Result<()>>>> {
        Err(Error::unsupported("device `toy` cannot stop running work"))
    }
}

/// Refuses overlapping arguments, because the interpreter has a copy of each argument, and memory that is used through addresses.
fn expect_apart(dispatch: &Dispatch) -> Result<()> {
    let slices: Vec<&MemorySlice> = dispatch
        .bindings
        .iter()
        .filter_map(|binding| match binding {
            Binding::Memory(slice) => Some(slice),
            _ => None,
        })
        .collect();
    let overlap = |a: &MemorySlice, b: &MemorySlice| {
        Arc::ptr_eq(&a.memory, &b.memory) && a.offset < b.offset + b.len && b.offset < a.offset + a.len
    };
    let overlaps = (1..slices.len()).any(|at| slices[..at].iter().any(|other| overlap(other, slices[at])));
    match overlaps || !dispatch.uses.is_empty() {
        true => {
            Err(Error::unsupported("device `toy` has no arguments that overlap, and no addresses in memory"))
        }
        false => Ok(()),
    }
}
