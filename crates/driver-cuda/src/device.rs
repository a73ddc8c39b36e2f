//! The CUDA driver and its devices, the NVIDIA GPUs of this machine.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::{CUdevice, CUdevice_attribute_enum as Attribute};
use elinvar_cache::Cache;
use elinvar_driver::{
    CacheLookups, Caps, CollectiveLibrary, Device, Driver, Energy, Error, Event, HostBlock, Init, Library,
    Link, LinkKind, Log, Memory, Place, Primitive, Priority, Queue, Reach, Readings, ResidentThreads, Result,
    Source, Storage, Thermal,
};
use elinvar_ptx::Target;

use crate::api::{Api, Version, api};
use crate::caps::{attribute, capability, caps, details};
use crate::clock::now_ns;
use crate::commands;
use crate::context::Context;
use crate::failure::{Failure, code};
use crate::libraries::nccl::Nccl;
use crate::library::CudaLibrary;
use crate::log::DeviceLog;
use crate::memory::CudaMemory;
use crate::nvml::Sensor;
use crate::peers;
use crate::queue::{CudaEvent, Stream};
use crate::shared::Shared;

const NO_GPU: &str = "the NVIDIA driver finds no GPU";

/// The CUDA driver of this process.
pub fn driver() -> CudaDriver {
    CudaDriver { cache: elinvar_code::user_cache().clone() }
}

/// CUDA driver. A device is opened when devices are listed, and kept open until nothing uses it.
#[derive(Clone)]
pub struct CudaDriver {
    cache: Cache,
}

impl CudaDriver {
    /// A driver with a cache other than the user's.
    pub fn with_cache(cache: &Cache) -> Self {
        Self { cache: cache.clone() }
    }

    /// Opens only the device with this index, from 0.
    ///
    /// # Errors
    /// `Unsupported` without a driver or a GPU; `InvalidArgument`, with the range, if the index is out of range; `DeviceLost` if the device
    /// does not respond.
    pub fn device(&self, index: usize) -> Result<Arc<dyn Device>> {
        let api = api().map_err(Error::Unsupported)?;
        Ok(Arc::new(CudaDevice::open(api, nth(api, index)?, &self.cache)?))
    }
}

impl Driver for CudaDriver {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn devices(&self) -> Result<Vec<Arc<dyn Device>>> {
        let Ok(api) = api() else { return Ok(Vec::new()) };
        let devices = list(api).map_err(|failure| Error::DeviceLost(failure.text(api)))?;
        let open = |device| Ok(Arc::new(CudaDevice::open(api, device, &self.cache)?) as Arc<dyn Device>);
        devices.into_iter().map(open).collect()
    }

    fn absence(&self) -> Option<String> {
        match api() {
            Err(reason) => Some(reason),
            Ok(api) => match list(api) {
                Ok(devices) if devices.is_empty() => Some(NO_GPU.into()),
                Ok(_) => None,
                Err(failure) => Some(failure.text(api)),
            },
        }
    }
}

/// The handle of the device with this index, from 0.
pub(crate) fn nth(api: &Api, index: usize) -> Result<CUdevice> {
    let all = list(api).map_err(|failure| failure.error(api, "an NVIDIA GPU"))?;
    let Some(last) = all.len().checked_sub(1) else { return Err(Error::unsupported(NO_GPU)) };
    let none = || Error::invalid(format!("no NVIDIA GPU {index}: indices are 0 to {last}"));
    all.get(index).copied().ok_or_else(none)
}

#[allow(unsafe_code)] // C functions
fn list(api: &Api) -> Result<Vec<CUdevice>, Failure> {
    let mut count = 0;
    // SAFETY: it writes a number.
    match unsafe { api.device_count(&mut count) } {
        Err(Failure { code: code::NO_DEVICE, .. }) => return Ok(Vec::new()),
        other => other?,
    }
    let mut devices = Vec::new();
    for ordinal in 0..count {
        let mut device = 0;
        // SAFETY: it writes a handle.
        unsafe { api.device(&mut device, ordinal) }?;
        devices.push(device);
    }
    Ok(devices)
}

/// A GPU.
pub(crate) struct CudaDevice {
    caps: Caps,
    capability: (u32, u32),
    cache: Cache,
    shared: Arc<Shared>,
    sensor: Sensor,
    log: Arc<DeviceLog>,
    /// Range of stream priorities: the lowest, and the highest, which is the smaller number.
    priorities: OnceLock<(i32, i32)>,
}

impl CudaDevice {
    fn open(api: &'static Api, device: CUdevice, cache: &Cache) -> Result<Self> {
        let failed = |failure: Failure| Error::DeviceLost(format!("an NVIDIA GPU: {}", failure.text(api)));
        let mut caps = caps(api, device).map_err(failed)?;
        let capability = capability(api, device).map_err(failed)?;
        let has_pools = attribute(api, device, Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)
            .map_err(failed)?
            != 0;
        let context = Context::new(api, device, caps.name.clone(), has_pools)?;
        let shared = Shared::new(Arc::new(context), cache)?;
        caps.features.primitives = shared.libraries.primitives();
        let sensor = Sensor::of(api, device);
        let log = DeviceLog::new(&shared.context);
        Ok(Self {
            caps,
            capability,
            cache: cache.counted(),
            shared,
            sensor,
            log,
            priorities: OnceLock::new(),
        })
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.shared.context
    }

    /// CUDA's number for a priority.
    #[allow(unsafe_code)] // a C function
    fn priority(&self, priority: Priority) -> Result<i32> {
        let context = &self.shared.context;
        let (least, greatest) = match self.priorities.get() {
            Some(range) => *range,
            None => {
                let _current = context.enter()?;
                let (mut least, mut greatest) = (0, 0);
                // SAFETY: it writes two numbers.
                let told = unsafe { context.api.priority_range(&mut least, &mut greatest) };
                told.map_err(|failure| context.error(failure, "asking for priorities"))?;
                *self.priorities.get_or_init(|| (least, greatest))
            }
        };
        Ok(match priority {
            Priority::Low => least,
            Priority::Normal => i32::midpoint(least, greatest),
            Priority::High => greatest,
        })
    }
}

#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: each allocation is separate; the queue implements the contract.
unsafe impl Device for CudaDevice {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let context = &self.shared.context;
        let mut details = details(context.api, context.device).unwrap_or_default();
        let mut version = 0;
        #[allow(unsafe_code)] // a C function
        // SAFETY: it writes a number.
        let told = unsafe { context.api.driver_version(&mut version) };
        if told.is_ok() {
            details.push(("driver for CUDA", Version(version).to_string()));
        }
        details.extend(self.shared.libraries.details());
        let linker = self.shared.linker.as_ref();
        let runtime = linker.map_or_else(Clone::clone, |linker| linker.runtime().display().to_string());
        details.push(("device runtime", runtime));
        if let Some(celsius) = self.sensor.celsius() {
            details.push(("temperature", format!("{celsius} °C")));
        }
        details
    }

    fn allocate(&self, bytes: u64, storage: Storage, init: Init) -> Result<Arc<dyn Memory>> {
        let limit = self.caps.limits.max_buffer_bytes;
        if bytes > limit {
            return Err(Error::invalid(format!("a buffer of {bytes} bytes: the limit is {limit} bytes")));
        }
        Ok(Arc::new(CudaMemory::new(&self.shared.context, bytes, storage, init)?))
    }

    fn available_memory(&self) -> u64 {
        self.shared.context.memory().map_or(0, |(free, _)| free)
    }

    #[allow(unsafe_code)] // hands on the caller's promise
    unsafe fn wrap(&self, block: HostBlock) -> Result<Arc<dyn Memory>> {
        if self.caps.limits.wrap_granule.is_none() {
            let (name, bytes) = (&self.caps.name, block.bytes);
            return Err(Error::unsupported(format!(
                "device `{name}` cannot use {bytes} bytes of host memory in place"
            )));
        }
        // SAFETY: the caller guarantees the preconditions.
        Ok(Arc::new(unsafe { CudaMemory::wrap(&self.shared.context, block) }?))
    }

    fn compile(&self, source: &Source) -> Result<Arc<dyn Library>> {
        let (major, minor) = self.capability;
        let target = Target::of(major, minor)?;
        let (context, size) = (&self.shared.context, self.caps.limits.max_threadgroup_size);
        Ok(Arc::new(CudaLibrary::new((context, &self.log), size, &self.cache, source, target)?))
    }

    fn queue_with(&self, priority: Priority) -> Result<Arc<dyn Queue>> {
        let priority = self.priority(priority)?;
        Ok(Arc::new(Stream::new(&self.shared, priority)?))
    }

    fn expect_executes_commands(&self) -> Result<()> {
        commands::expect_linker(&self.shared, "indirect command buffers").map(drop)
    }

    fn expect_primitive(&self, primitive: &Primitive) -> Result<()> {
        self.shared.libraries.expect(primitive)
    }

    fn expect_nested_launches(&self) -> Result<()> {
        commands::expect_linker(&self.shared, "kernels that launch kernels").map(drop)
    }

    /// A stream: a resident kernel polls memory of the host, and sleeps between polls.
    fn resident_queue(&self, _threads: ResidentThreads) -> Result<Arc<dyn Queue>> {
        self.queue_with(Priority::Normal)
    }

    fn event(&self) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(CudaEvent::default()))
    }

    fn clock_ns(&self) -> u64 {
        now_ns()
    }

    fn timing_error_ns(&self) -> u64 {
        self.shared.clock.error_ns()
    }

    fn thermal(&self) -> Result<Thermal> {
        self.sensor.thermal()
    }

    fn readings(&self) -> Result<Readings> {
        self.sensor.readings()
    }

    fn cache_lookups(&self) -> Option<CacheLookups> {
        let [hits, misses] = self.cache.lookups()?;
        Some(CacheLookups { hits, misses })
    }

    fn energy(&self) -> Result<Energy> {
        self.sensor.energy()
    }

    fn reaches(&self, other: &dyn Device) -> Option<Reach> {
        let other: &dyn Any = other;
        let other = other.downcast_ref::<Self>()?;
        Some(peers::reach(&self.shared.context, &other.shared.context))
    }

    fn peer_access(&self, other: &dyn Device) -> Result<()> {
        let (ours, theirs) = (&self.caps.name, &other.caps().name);
        let other: &dyn Any = other;
        let reach =
            other.downcast_ref::<Self>().map(|o| peers::reach(&self.shared.context, &o.shared.context));
        match reach {
            Some(Reach::Peer) => Ok(()),
            _ => Err(Error::unsupported(format!(
                "kernels of device `{ours}` cannot access memory of device `{theirs}`: no peer access"
            ))),
        }
    }

    fn collectives(&self) -> Result<Arc<dyn CollectiveLibrary>> {
        Ok(Arc::new(Nccl::open(&self.shared.context)?))
    }

    fn place(&self) -> Place {
        let pci = self.sensor.pci();
        let node = pci.as_ref().and_then(|pci| {
            let text = std::fs::read_to_string(format!("/sys/bus/pci/devices/{pci}/numa_node"));
            text.ok()?.trim().parse().ok()
        });
        Place { numa_node: node, cpus: Vec::new(), pci }
    }

    fn link(&self, other: &dyn Device) -> Option<Link> {
        let other: &dyn Any = other;
        let other = other.downcast_ref::<Self>()?;
        let access = peers::reach(&self.shared.context, &other.shared.context) == Reach::Peer;
        let unknown = Link { kind: LinkKind::Host, access, atomics: false, expected: None };
        Some(self.sensor.link(&other.sensor, access).unwrap_or(unknown))
    }

    fn log(&self) -> Option<&Arc<Log>> {
        Some(&self.log.log)
    }

    fn lost(&self) -> Option<Error> {
        self.shared.context.lost().cloned()
    }

    fn reset(&self) -> Result<()> {
        let name = &self.caps.name;
        Err(Error::unsupported(match self.shared.context.lost() {
            None => {
                format!("reset of device `{name}`: a running kernel can be terminated only with its process")
            }
            Some(cause) => {
                format!(
                    "reset of device `{name}`: only a new process can use it, because the CUDA context is lost: {cause}"
                )
            }
        }))
    }
}
