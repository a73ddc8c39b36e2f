//! The log of a device: its ring lies in pinned host memory, which kernels write in place, so that the host can read it while a kernel
//! runs and after one has destroyed the context. The writers' counters are in device memory.

use std::sync::{Arc, OnceLock};

use elinvar_driver::log::ring::LogMemory;
use elinvar_driver::{Error, Init, Log, LogKernel, Memory, Result, Signature, Storage};

use crate::context::Context;
use crate::memory::CudaMemory;

/// The log of a device.
pub(crate) struct DeviceLog {
    pub(crate) log: Arc<Log>,
    context: Arc<Context>,
    /// The writers' counters, made with the first kernel that has log calls.
    control: OnceLock<CudaMemory>,
}

/// What a kernel with log calls needs for a launch.
pub(crate) struct KernelLog {
    pub(crate) kernel: Arc<LogKernel>,
    /// Device address of the writers' counters.
    pub(crate) control: u64,
}

impl DeviceLog {
    pub(crate) fn new(context: &Arc<Context>) -> Arc<Self> {
        Arc::new(Self { log: Log::new(), context: context.clone(), control: OnceLock::new() })
    }

    /// Registers a kernel's log calls. `None` if it has none.
    pub(crate) fn kernel(&self, signature: &Signature) -> Result<Option<Arc<KernelLog>>> {
        let Some(kernel) = self.log.kernel(signature) else { return Ok(None) };
        Ok(Some(Arc::new(KernelLog { kernel, control: self.control()? })))
    }

    #[allow(unsafe_code)] // memory that kernels write while the host reads it
    fn control(&self) -> Result<u64> {
        if let Some(control) = self.control.get() {
            return control.at(0, 0);
        }
        // The ring may be lent by another process.
        let ring = self.log.memory_with(|bytes| {
            let size = LogMemory::size(bytes);
            let pinned = CudaMemory::new(&self.context, size, Storage::Shared, Init::Zeroed)?;
            let none = || Error::Environment("pinned memory without an address".into());
            let (host, device) = (pinned.host_ptr().ok_or_else(none)?, pinned.at(0, size)?);
            // SAFETY: the pages are zeroed, aligned to pages, stay pinned until `pinned` is dropped, and are the ring's alone.
            Ok(unsafe { LogMemory::new(host.cast(), device, bytes, pinned) })
        })?;
        let bytes = ring.control().to_bytes();
        let made = CudaMemory::new(&self.context, bytes.len() as u64, Storage::Private, Init::Uninitialized)?;
        // SAFETY: nothing else knows this memory.
        unsafe { made.write(0, &bytes) }?;
        // If two threads make it, kernels of both use the first one's.
        self.control.get_or_init(|| made).at(0, 0)
    }
}
