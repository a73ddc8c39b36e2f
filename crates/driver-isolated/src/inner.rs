//! Differences between the kinds of inner devices, on the host: capabilities, code, device memory.

use std::sync::Arc;

use elinvar_cache::Cache;
use elinvar_code::{Declared, max_threads};
use elinvar_driver::sync::Mutex;
use elinvar_driver::{
    Caps, DeviceKind, Dim3, Energy, Error, Packed, PipelineOptions, Quantity, Readings, Result, Signature,
    Source, StopsAt, Thermal, Tier,
};
use elinvar_driver_cpu::HostSensors;
use elinvar_driver_cuda::{DeviceBlock, Gpu};
use elinvar_native::{Form, Made, Specialization, Target};

use crate::Options;
use crate::free::Free;
use crate::wire::Inner;

/// Start of the device addresses of workers' device memory: unused in any process, and above those of the arena.
pub(crate) const ADDRESSES: u64 = 0x3000_0000_0000;
/// Number of device addresses.
pub(crate) const ADDRESSES_LEN: u64 = 1 << 44;

/// Alignment of blocks that share a granule, in bytes.
const ALIGN: u64 = 512;

/// The kind of device in the worker.
pub(crate) enum InnerDevice {
    Cpu { threads: usize },
    Cuda { gpu: Box<Gpu>, index: usize, state: Mutex<State> },
}

/// Allocated device memory.
pub(crate) struct State {
    addresses: Free,
    used: u64,
    /// Granules that several blocks share.
    shared: Vec<Shared>,
}

/// A shared granule and its free parts.
struct Shared {
    slab: Arc<Slab>,
    free: Free,
    pieces: usize,
}

/// Device memory in whole granules, which workers identify by a number. It belongs to this process, and every worker maps it at the same address.
pub(crate) struct Slab {
    pub(crate) id: u64,
    pub(crate) block: DeviceBlock,
    pub(crate) address: u64,
}

/// A block of a slab: all of it, or one of several that share a granule.
pub(crate) struct DevicePiece {
    pub(crate) slab: Arc<Slab>,
    pub(crate) offset: u64,
    bytes: u64,
}

impl State {
    /// Allocates whole granules.
    fn slab(&mut self, gpu: &Gpu, bytes: u64, limit: u64, number: impl FnOnce() -> u64) -> Result<Arc<Slab>> {
        let none = |used: u64| Error::OutOfMemory { requested: bytes, available: limit.saturating_sub(used) };
        let size = bytes.checked_next_multiple_of(gpu.granule());
        let used = size.and_then(|size| self.used.checked_add(size)).filter(|used| *used <= limit);
        let (Some(size), Some(used)) = (size, used) else { return Err(none(self.used)) };
        let block = gpu.allocate(size)?;
        // Guard: the granule behind it is never mapped.
        let address = self.addresses.take(size + gpu.granule()).ok_or_else(|| none(self.used))?;
        self.used = used;
        Ok(Arc::new(Slab { id: number(), block, address }))
    }
}

impl InnerDevice {
    pub(crate) fn new(options: &Options) -> Result<Self> {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        match options.kind {
            DeviceKind::Cpu if options.index > 0 => Err(Error::invalid(format!(
                "no CPU device {} in a worker process: the index must be 0",
                options.index
            ))),
            DeviceKind::Cpu => Ok(Self::Cpu { threads: options.threads.unwrap_or_else(processors).max(1) }),
            DeviceKind::Cuda if options.private_memory.is_some() => Err(Error::unsupported(
                "a private memory limit for the worker process of a GPU: the NVIDIA driver's own mappings would count towards it",
            )),
            DeviceKind::Cuda => {
                let (gpu, index) = (Box::new(Gpu::open(options.index)?), options.index);
                let addresses = Free::new(ADDRESSES, ADDRESSES_LEN);
                let state = State { addresses, used: 0, shared: Vec::new() };
                Ok(Self::Cuda { gpu, index, state: Mutex::new(state) })
            }
            kind => Err(Error::unsupported(format!(
                "a {} device in a worker process: only CPU and CUDA devices can be isolated",
                kind.name()
            ))),
        }
    }

    pub(crate) fn message(&self) -> Inner {
        match self {
            Self::Cpu { threads } => Inner::Cpu { threads: *threads },
            Self::Cuda { index, .. } => Inner::Cuda { index: *index },
        }
    }

    /// Capabilities and limits. `memory` limits buffer memory and is reported as the device's memory.
    pub(crate) fn caps(&self, memory: Option<u64>) -> Caps {
        let mut caps = match self {
            Self::Cpu { threads } => elinvar_driver_cpu::caps(*threads),
            // Work that does not stop is ended with the worker.
            Self::Cuda { gpu, .. } => {
                let mut caps = gpu.caps().clone();
                caps.features.stops_at = StopsAt::Never;
                caps
            }
        };
        caps.name = format!("{} (isolated)", caps.name);
        caps.limits.wrap_granule = None;
        caps.features.restarts = true;
        caps.limits.total_memory =
            memory.map_or(caps.limits.total_memory, |most| most.min(caps.limits.total_memory));
        caps.limits.max_buffer_bytes = caps.limits.max_buffer_bytes.min(caps.limits.total_memory);
        caps.limits.working_set = caps.limits.working_set.min(caps.limits.total_memory);
        caps
    }

    /// Number of threads that share a dispatch's work, for estimates of its processor time; one for a GPU.
    pub(crate) fn workers(&self) -> u64 {
        match self {
            Self::Cpu { threads } => *threads as u64,
            Self::Cuda { .. } => 1,
        }
    }

    /// Whether callbacks may wait for the worker, because it replies to another thread.
    pub(crate) fn has_device_memory(&self) -> bool {
        matches!(self, Self::Cuda { .. })
    }

    pub(crate) fn details(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Cpu { .. } => Vec::new(),
            Self::Cuda { gpu, .. } => gpu.details(),
        }
    }

    pub(crate) fn thermal(&self, name: &str) -> Result<Thermal> {
        match self {
            Self::Cpu { .. } => {
                Err(Error::unsupported(format!("the temperature of device `{name}` is not measured")))
            }
            Self::Cuda { gpu, .. } => gpu.thermal(),
        }
    }

    /// Those of the hardware; the host reads them, so that they do not depend on the worker.
    pub(crate) fn readings(&self) -> Result<Readings> {
        let mut readings = match self {
            Self::Cpu { .. } => HostSensors::this().of_machine(),
            Self::Cuda { gpu, .. } => return gpu.readings(),
        };
        let of_worker = || Err(Error::unsupported("kernels run in a worker process, which is not measured"));
        for mode in ["user", "system"] {
            readings.add(Quantity::ProcessCpuTime, &[mode], of_worker());
        }
        readings.add(Quantity::ProcessMemory, &[], of_worker());
        readings.add(Quantity::ProcessTaskClock, &[], of_worker());
        Ok(readings)
    }

    pub(crate) fn energy(&self) -> Result<Energy> {
        match self {
            Self::Cpu { .. } => HostSensors::this().energy(),
            Self::Cuda { gpu, .. } => gpu.energy(),
        }
    }

    /// Limit of device memory in bytes, given the option `limit`; `None` for a device without device memory.
    pub(crate) fn available(&self, limit: u64) -> Option<u64> {
        let Self::Cuda { gpu, state, .. } = self else { return None };
        let left = limit.saturating_sub(state.lock().used);
        Some(gpu.free_memory().map_or(left, |free| left.min(free)))
    }

    /// Allocates device memory of at least `bytes` bytes, within `limit` in total. Its contents are undefined. `number` is used if a slab is
    /// created.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(crate) fn allocate(
        &self,
        bytes: u64,
        limit: u64,
        number: impl FnOnce() -> u64,
    ) -> Result<DevicePiece> {
        let Self::Cuda { gpu, state, .. } = self else {
            return Err(Error::unsupported("device memory of a CPU device"));
        };
        let state = &mut *state.lock();
        let whole = gpu.granule();
        let small = bytes.max(1).next_multiple_of(ALIGN);
        if small >= whole {
            let slab = state.slab(gpu, bytes, limit, number)?;
            let bytes = slab.block.bytes();
            return Ok(DevicePiece { slab, offset: 0, bytes });
        }
        for shared in &mut state.shared {
            if let Some(offset) = shared.free.take(small) {
                shared.pieces += 1;
                return Ok(DevicePiece { slab: shared.slab.clone(), offset, bytes: small });
            }
        }
        let slab = state.slab(gpu, whole, limit, number)?;
        let mut free = Free::new(0, whole);
        let offset = free.take(small).unwrap_or_default();
        state.shared.push(Shared { slab: slab.clone(), free, pieces: 1 });
        Ok(DevicePiece { slab, offset, bytes: small })
    }

    /// Frees a block, which no worker uses any more. If its slab is freed too, `forget` tells the worker by the slab's number before the addresses
    /// are reused.
    pub(crate) fn give_back(&self, piece: &DevicePiece, forget: impl FnOnce(u64)) {
        let Self::Cuda { gpu, state, .. } = self else { return };
        let state = &mut *state.lock();
        let DevicePiece { slab, offset, bytes } = piece;
        if let Some(at) = state.shared.iter().position(|shared| Arc::ptr_eq(&shared.slab, slab)) {
            let shared = &mut state.shared[at];
            shared.free.give_back(*offset, *bytes);
            shared.pieces -= 1;
            if shared.pieces > 0 {
                return;
            }
            state.shared.swap_remove(at);
        }
        forget(slab.id);
        let size = slab.block.bytes();
        state.used -= size;
        state.addresses.give_back(slab.address, size + gpu.granule());
    }

    /// Validates a source, or reads it from its bundle.
    ///
    /// # Errors
    /// As [`elinvar_driver::Device::compile`].
    pub(crate) fn compile(&self, cache: &Cache, source: &Source) -> Result<Code> {
        Ok(match self {
            Self::Cpu { .. } => {
                Code::Cpu(Arc::new(elinvar_native::Library::new(cache, source, Target::from_env()?)?))
            }
            Self::Cuda { gpu, .. } => {
                let library = Arc::new(elinvar_ptx::Library::new(cache, source, gpu.target())?);
                Code::Cuda(library, gpu.caps().limits.max_threadgroup_size)
            }
        })
    }
}

/// A validated source.
pub(crate) enum Code {
    Cpu(Arc<elinvar_native::Library>),
    /// With the maximum threadgroup size along each dimension.
    Cuda(Arc<elinvar_ptx::Library>, Dim3),
}

impl Code {
    pub(crate) fn declared(&self) -> &Declared {
        match self {
            Self::Cpu(library) => library.declared(),
            Self::Cuda(library, _) => library.declared(),
        }
    }

    /// A kernel, specialized.
    ///
    /// # Errors
    /// As [`elinvar_driver::Library::pipeline`].
    pub(crate) fn kernel(&self, name: &str, options: &PipelineOptions) -> Result<SpecializedKernel> {
        Ok(match self {
            Self::Cpu(library) => {
                let signature = library.signature(name, options)?;
                SpecializedKernel::Cpu { library: library.clone(), signature, options: options.clone() }
            }
            Self::Cuda(library, most) => {
                let (signature, packed) = library.pack(name, options)?;
                let (library, options, most) = (library.clone(), options.clone(), *most);
                SpecializedKernel::Cuda { library, signature, options, packed, most }
            }
        })
    }
}

/// A specialized kernel.
pub(crate) enum SpecializedKernel {
    /// Code compiled for a threadgroup size, or general code.
    Cpu { library: Arc<elinvar_native::Library>, signature: Signature, options: PipelineOptions },
    /// Code for all sizes.
    Cuda {
        library: Arc<elinvar_ptx::Library>,
        signature: Signature,
        options: PipelineOptions,
        packed: Packed,
        most: Dim3,
    },
}

impl SpecializedKernel {
    pub(crate) fn signature(&self) -> &Signature {
        match self {
            Self::Cpu { signature, .. } | Self::Cuda { signature, .. } => signature,
        }
    }

    pub(crate) fn options(&self) -> &PipelineOptions {
        match self {
            Self::Cpu { options, .. } | Self::Cuda { options, .. } => options,
        }
    }

    /// Maximum threadgroup size, as limited by the source and the compiler.
    pub(crate) fn max_threads(&self) -> u32 {
        match self {
            Self::Cpu { signature, .. } => max_threads(signature),
            Self::Cuda { signature, .. } => signature.max_threads_per_threadgroup.unwrap_or(u32::MAX),
        }
    }

    /// Checks a threadgroup size. For the CPU, sizes are checked when code is compiled.
    ///
    /// # Errors
    /// As [`elinvar_driver::Pipeline::prepare`].
    pub(crate) fn expect_group(&self, group: Dim3, max_threads: u32) -> Result<()> {
        let Self::Cuda { library, signature, options, most, .. } = self else { return Ok(()) };
        elinvar_driver_cuda::expect_group(&signature.name, group, max_threads, *most)?;
        library.check_group(&signature.name, options, group)
    }

    /// When its code is specialized for a threadgroup size.
    pub(crate) fn specialization(&self) -> Specialization {
        match self {
            Self::Cpu { library, options, .. } => library.specialization(options),
            Self::Cuda { .. } => Specialization::ALWAYS,
        }
    }

    /// Its code, if it is the same for all threadgroup sizes.
    pub(crate) fn for_all_sizes(&self) -> Option<&Packed> {
        match self {
            Self::Cpu { .. } => None,
            Self::Cuda { packed, .. } => Some(packed),
        }
    }

    /// Its code in a form, optimized if `optimize` is true and otherwise according to its tier.
    ///
    /// # Errors
    /// As [`elinvar_driver::Pipeline::prepare`].
    pub(crate) fn for_form(&self, form: Form, optimize: bool) -> Result<Made<Packed>> {
        match self {
            Self::Cpu { library, signature, options } => {
                let tier = if optimize { Tier::Optimized } else { options.tier };
                let options = PipelineOptions { tier, ..options.clone() };
                library.pack(&signature.name, &options, form)
            }
            Self::Cuda { packed, .. } => {
                Ok(Made { code: packed.clone(), optimized: true, optimizable: false, row_sizes: None })
            }
        }
    }
}
