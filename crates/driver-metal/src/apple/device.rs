//! The Metal driver and its devices: all Metal devices, the system's default first.

use std::any::Any;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

use elinvar_cache::Cache;
use elinvar_code::user_cache;
use elinvar_driver::primitive::GraphLibrary;
use elinvar_driver::{
    Caps, Capture, Device, Driver, Energy, Error, Event, HostBlock, Init, Library, Log, Memory, Priority,
    Queue, Reach, Readings, Result, Source, Storage, Thermal,
};
use objc2::rc::autoreleasepool;
use objc2_metal::{MTLCopyAllDevices, MTLCreateSystemDefaultDevice, MTLDevice as _};
use parking_lot::Mutex;

use super::core::Core;
use super::crossing;
use super::memory::MetalMemory;
use super::queue::{CommandQueue, MetalEvent};
use super::removal::{Lost, Watch, Watched};
use super::{capture, commands, compile, host};

const NO_SENSORS: &str =
    "Metal reports no power, energy, clocks or utilization (`powermetrics` does, for root)";

/// The Metal driver of this process. Its devices are created on first use and kept.
pub fn driver() -> MetalDriver {
    static PROCESS: LazyLock<MetalDriver> = LazyLock::new(|| MetalDriver::with_cache(user_cache()));
    PROCESS.clone()
}

/// Metal driver. Clones share the same devices.
#[derive(Clone)]
pub struct MetalDriver {
    cache: Cache,
    devices: Arc<Mutex<Option<Vec<Arc<MetalDevice>>>>>,
}

impl MetalDriver {
    /// A driver with separate devices, and a cache other than the user's.
    pub fn with_cache(cache: &Cache) -> Self {
        Self { cache: cache.clone(), devices: Arc::default() }
    }

    /// The version with which a cache of compiled kernels is opened: that of this build of the compilers, so that all drivers share the
    /// front end's results.
    pub const CACHE_VERSION: &str = elinvar_code::COMPILER;
}

impl Driver for MetalDriver {
    fn name(&self) -> &'static str {
        "metal"
    }

    /// All devices of `MTLCopyAllDevices`. Fails for a device that cannot run the driver's own kernels.
    fn devices(&self) -> Result<Vec<Arc<dyn Device>>> {
        let mut found = self.devices.lock();
        let devices = match &*found {
            Some(devices) => devices,
            None => found.insert(open_all(&self.cache)?),
        };
        Ok(devices.iter().map(|device| device.clone() as Arc<dyn Device>).collect())
    }
}

fn open_all(cache: &Cache) -> Result<Vec<Arc<MetalDevice>>> {
    autoreleasepool(|_| {
        let default = MTLCreateSystemDefaultDevice().map(|device| device.registryID());
        let mut devices: Vec<_> = MTLCopyAllDevices().iter().collect();
        devices.sort_by_key(|device| Some(device.registryID()) != default);
        let devices: Vec<Watched> =
            devices.into_iter().map(|device| (device, Arc::<Lost>::default())).collect();
        let watch = Watch::begin(&devices).map(Arc::new);
        let open = |device| {
            Ok(Arc::new(MetalDevice { core: Core::open(device, cache.clone())?, _watch: watch.clone() }))
        };
        devices.into_iter().map(open).collect()
    })
}

/// A GPU.
pub(crate) struct MetalDevice {
    core: Arc<Core>,
    /// Notifies the core when the device is removed.
    _watch: Option<Arc<Watch>>,
}

#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: each allocation is a separate `MTLBuffer`; the queue implements the contract.
unsafe impl Device for MetalDevice {
    fn details(&self) -> Vec<(&'static str, String)> {
        let graph = self.core.caps.features.primitives.graph();
        let text = graph.map_or_else(
            || "is not used: it needs macOS 12.3 and Metal Performance Shaders".into(),
            GraphLibrary::description,
        );
        vec![("MPSGraph", text)]
    }

    fn caps(&self) -> &Caps {
        &self.core.caps
    }

    /// Memory is zeroed for either `init`, by Metal.
    fn allocate(&self, bytes: u64, storage: Storage, _init: Init) -> Result<Arc<dyn Memory>> {
        self.core.expect_present()?;
        let limit = self.core.caps.limits.max_buffer_bytes;
        if bytes > limit {
            return Err(Error::invalid(format!("a buffer of {bytes} bytes: the limit is {limit} bytes")));
        }
        let made = MetalMemory::new(&self.core, bytes, storage);
        Ok(Arc::new(made.map_err(|error| self.core.explained(error))?))
    }

    fn available_memory(&self) -> u64 {
        self.core.available()
    }

    #[allow(unsafe_code)] // hands on the caller's promise
    unsafe fn wrap(&self, block: HostBlock) -> Result<Arc<dyn Memory>> {
        self.core.expect_present()?;
        // SAFETY: the caller guarantees the preconditions.
        let made = unsafe { MetalMemory::wrap(&self.core, block) };
        Ok(Arc::new(made.map_err(|error| self.core.explained(error))?))
    }

    fn compile(&self, source: &Source) -> Result<Arc<dyn Library>> {
        autoreleasepool(|_| compile::library(&self.core, source)).map_err(|error| self.core.explained(error))
    }

    fn expect_executes_commands(&self) -> Result<()> {
        commands::expect(&self.core)
    }

    fn expect_nested_launches(&self) -> Result<()> {
        commands::expect(&self.core)
    }

    /// Only normal priority is supported, because `MTLCommandQueue` and its descriptor have no priority.
    fn event(&self) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(MetalEvent::default()))
    }

    fn queue_with(&self, priority: Priority) -> Result<Arc<dyn Queue>> {
        self.core.expect_present()?;
        if priority != Priority::Normal {
            let name = &self.core.caps.name;
            return Err(Error::unsupported(format!(
                "a queue of {priority:?} priority on device `{name}`: Metal's command queues have no priorities"
            )));
        }
        Ok(Arc::new(CommandQueue::open(&self.core).map_err(|error| self.core.explained(error))?))
    }

    fn log(&self) -> Option<&Arc<Log>> {
        self.core.log.as_ref().map(|log| &log.log)
    }

    fn clock_ns(&self) -> u64 {
        host::now_ns()
    }

    fn timing_error_ns(&self) -> u64 {
        self.core.timing_error_ns.load(Ordering::Relaxed)
    }

    /// `NSProcessInfo.thermalState`, for a GPU on the processor's chip.
    fn thermal(&self) -> Result<Thermal> {
        let caps = self.caps();
        if !caps.features.unified_memory {
            let name = &caps.name;
            return Err(Error::unsupported(format!(
                "macOS reports the thermal state of the system only, and device `{name}` is a chip of its own"
            )));
        }
        autoreleasepool(|_| host::thermal())
    }

    fn readings(&self) -> Result<Readings> {
        Err(Error::unsupported(format!("{NO_SENSORS}: device `{}`", self.caps().name)))
    }

    fn count_events(&self) -> Result<()> {
        Err(Error::unsupported(format!("{NO_SENSORS}: device `{}`", self.caps().name)))
    }

    fn energy(&self) -> Result<Energy> {
        Err(Error::unsupported(format!("{NO_SENSORS}: device `{}`", self.caps().name)))
    }

    /// Captures to a GPU trace.
    fn capture(&self, path: &Path) -> Result<Box<dyn Capture>> {
        autoreleasepool(|_| capture::begin(&self.core, path))
    }

    fn reaches(&self, other: &dyn Device) -> Option<Reach> {
        let other: &dyn Any = other;
        let other = other.downcast_ref::<Self>()?;
        Some(autoreleasepool(|_| crossing::reach(&self.core, &other.core)))
    }

    fn reset(&self) -> Result<()> {
        Err(Error::unsupported(format!(
            "reset of Metal device `{}`: Metal restarts GPUs by itself and has no API for it",
            self.core.caps.name
        )))
    }
}
