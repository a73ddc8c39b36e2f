//! [`Core`]: state shared by a device's memory, pipelines and queues.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use elinvar_cache::Cache;
use elinvar_driver::{Caps, Error, Result};
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_metal::{
    MTLBuffer as _, MTLCommandBufferDescriptor, MTLCommandBufferErrorOption, MTLCommandQueue, MTLDevice,
    MTLLogState, MTLResourceOptions, MTLSharedEventListener,
};
use parking_lot::Mutex;

use super::buffer::Buffer;
use super::caps::{self, Features};
use super::commands::Translator;
use super::kernel_log::KernelLog;
use super::kernels::Kernels;
use super::label::label;
use super::mps::Stock;
use super::removal::{Lost, Watched};
use super::stamps::Counters;
use super::tasks::Tasks;
use super::transfer::Transfer;

pub(super) struct Core {
    pub(super) device: Retained<ProtocolObject<dyn MTLDevice>>,
    /// Queue for operations on behalf of the host and of other devices.
    pub(super) queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    pub(super) caps: Caps,
    pub(super) features: Features,
    pub(super) kernels: Kernels,
    /// Translation of commands in memory.
    pub(super) translator: Translator,
    pub(super) tasks: Tasks,
    pub(super) cache: Cache,
    /// Log lines of kernels; `None` if the system has no log states.
    pub(super) log: Option<KernelLog>,
    pub(super) stock: Arc<Stock>,
    descriptors: Descriptors,
    pub(super) counters: Counters,
    /// Half of the longest interval in which both clocks were read.
    pub(super) timing_error_ns: AtomicU64,
    /// Number of queues created.
    pub(super) queues: AtomicU64,
    pub(super) transfer: Mutex<Transfer>,
    /// The listener with the dispatch queue for notifications of shared events.
    pub(super) listener: OnceLock<Retained<MTLSharedEventListener>>,
    lost: Arc<Lost>,
}

impl Core {
    pub(super) fn open((device, lost): Watched, cache: Cache) -> Result<Arc<Self>> {
        autoreleasepool(|_| {
            let features = Features::of(&device);
            let kernels = Kernels::compile(&device, &cache)?;
            let caps = caps::caps(&device, features, kernels.plain());
            let queue = device.newCommandQueue().ok_or_else(|| {
                Error::Environment(format!("Metal device `{}` has no command queue", caps.name))
            })?;
            queue.setLabel(Some(&label(format_args!("elinvar: for the host and other devices"))));
            let counters = Counters::of(&device);
            let log = KernelLog::of(&device);
            let (tasks, transfer) = (Tasks::new(), Mutex::default());
            Ok(Arc::new(Self {
                device,
                queue,
                caps,
                features,
                kernels,
                translator: Translator::default(),
                tasks,
                cache,
                log,
                stock: Arc::default(),
                descriptors: Descriptors::new(None),
                counters,
                timing_error_ns: AtomicU64::new(0),
                queues: AtomicU64::new(0),
                transfer,
                listener: OnceLock::new(),
                lost,
            }))
        })
    }

    /// Allocates `bytes` of memory, zeroed according to the documentation of `newBufferWithLength:options:`. The length is rounded up, so that
    /// blits can use whole words.
    pub(super) fn buffer(&self, bytes: u64, options: MTLResourceOptions) -> Result<Buffer> {
        let length = bytes.max(1).checked_next_multiple_of(16);
        let made = length.and_then(|length| self.exact_buffer(length, options));
        made.ok_or_else(|| self.out_of_memory(bytes))
    }

    /// Allocates exactly this length, which must not be 0.
    pub(super) fn exact_buffer(&self, length: u64, options: MTLResourceOptions) -> Option<Buffer> {
        self.device.newBufferWithLength_options(usize::try_from(length).ok()?, options).map(Buffer)
    }

    /// The error when Metal does not allocate memory.
    pub(super) fn out_of_memory(&self, bytes: u64) -> Error {
        Error::OutOfMemory { requested: bytes, available: self.available() }
    }

    /// Memory in bytes that Metal recommends to use and that is not allocated.
    pub(super) fn available(&self) -> u64 {
        self.caps.limits.working_set.saturating_sub(self.device.currentAllocatedSize() as u64)
    }

    /// Descriptor of command buffers.
    pub(super) fn descriptor(&self, retains: bool) -> &MTLCommandBufferDescriptor {
        let logging = self.log.as_ref().and_then(KernelLog::descriptors);
        let Descriptors { plain, retaining } = logging.unwrap_or(&self.descriptors);
        if retains { retaining } else { plain }
    }

    pub(super) fn expect_present(&self) -> Result<()> {
        self.lost.expect_present()
    }

    /// Records that the device is lost, if the error says so.
    pub(super) fn note(&self, error: &Error) {
        self.lost.note(error);
    }

    /// The reason of a failure: the loss of the device, if it is lost; otherwise the error.
    pub(super) fn explained(&self, error: Error) -> Error {
        self.lost.expect_present().err().unwrap_or(error)
    }
}

/// Descriptors of command buffers with encoder execution status: unretained, because submissions retain resources, and retained.
pub(super) struct Descriptors {
    plain: Retained<MTLCommandBufferDescriptor>,
    retaining: Retained<MTLCommandBufferDescriptor>,
}

#[allow(unsafe_code)] // the bindings leave it open
// SAFETY: never changed after creation, and only read by Metal.
unsafe impl Send for Descriptors {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Descriptors {}

impl Descriptors {
    pub(super) fn new(log: Option<&ProtocolObject<dyn MTLLogState>>) -> Self {
        let descriptor = |retains| {
            let descriptor = MTLCommandBufferDescriptor::new();
            descriptor.setRetainedReferences(retains);
            descriptor.setErrorOptions(MTLCommandBufferErrorOption::EncoderExecutionStatus);
            if log.is_some() {
                descriptor.setLogState(log);
            }
            descriptor
        };
        Self { plain: descriptor(false), retaining: descriptor(true) }
    }
}

/// Bytes of a buffer that the host can access.
pub(super) fn contents(buffer: &Buffer) -> std::ptr::NonNull<u8> {
    buffer.contents().cast()
}
