//! The driver and its devices: the CPU, or parts of it.

use std::any::Any;
use std::sync::Arc;

use elinvar_cache::Cache;
use elinvar_driver::sync::Mutex;
use elinvar_driver::{
    CacheLookups, Caps, Device, Driver, Energy, Error, HostBlock, Init, Library, Link, LinkKind, Log, Memory,
    PerProcess, Place, Priority, Queue, Reach, Readings, ResidentThreads, Result, Source, Storage,
};

use crate::cores::{self, Cores};
use crate::guest::Guest;
use crate::library::CpuLibrary;
use crate::memory::{Account, HostMemory};
use crate::pool::Pool;
use crate::queue::{CpuBackend, CpuQueue};
use crate::sensors::HostSensors;
use crate::{cooperative, crash, host, limits};

/// The CPU driver of this process, with a worker per available processor; its devices are created on first use and kept. `ELINVAR_CPU_DEVICES` is
/// their number, 1 by default; they divide the processors.
pub fn driver() -> CpuDriver {
    static PROCESS: PerProcess<CpuDriver> = PerProcess::new(|| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        CpuDriver { devices: cores::devices(), ..CpuDriver::with_threads(threads) }
    });
    PROCESS.get().clone()
}

/// Capabilities and limits of a device with `workers` worker threads.
pub fn caps(workers: usize) -> Caps {
    host::caps(workers)
}

/// Memory that the system could still give a program, in bytes.
pub fn available_memory() -> u64 {
    limits::available()
}

/// CPU driver. It always has a device. Clones share its devices.
#[derive(Clone)]
pub struct CpuDriver {
    threads: usize,
    /// Number of devices.
    devices: Result<usize>,
    cache: Cache,
    all: Arc<Mutex<Vec<Arc<CpuDevice>>>>,
}

impl CpuDriver {
    /// A driver with its own device with `threads` worker threads, at least one.
    pub fn with_threads(threads: usize) -> Self {
        Self::with_cache(threads, elinvar_code::user_cache())
    }

    /// A driver with a cache other than the user's.
    pub fn with_cache(threads: usize, cache: &Cache) -> Self {
        Self { threads: threads.max(1), devices: Ok(1), cache: cache.clone(), all: Arc::default() }
    }

    /// A driver with `devices` devices, at least one, that divide the processors and `threads` worker threads.
    pub fn with_devices(devices: usize, threads: usize) -> Self {
        Self { devices: Ok(devices.max(1)), ..Self::with_threads(threads) }
    }

    /// Starts a guest thread, which can run the device's work in addition to its workers.
    ///
    /// # Errors
    /// `Environment` when it cannot be started.
    pub fn spawn_guest(&self, name: String, body: impl FnOnce(Guest) + Send + 'static) -> Result<()> {
        Guest::spawn(&self.all()?[0].pool, name, body)
    }

    /// The devices, at least one.
    fn all(&self) -> Result<Vec<Arc<CpuDevice>>> {
        let mut all = self.all.lock();
        if all.is_empty() {
            let family = Arc::new(());
            let open = |cores| Ok(Arc::new(CpuDevice::on(cores, &self.cache, family.clone())?));
            let opened = cores::shares(self.devices.clone()?, self.threads).into_iter().map(open);
            *all = opened.collect::<Result<_>>()?;
        }
        Ok(all.clone())
    }

    /// The version with which a cache of compiled kernels is opened: the version of this build of the compiler.
    pub const CACHE_VERSION: &str = elinvar_code::COMPILER;
}

impl Driver for CpuDriver {
    fn name(&self) -> &'static str {
        "cpu"
    }

    /// The devices. Fails if worker threads cannot be started, or the number of devices is invalid.
    fn devices(&self) -> Result<Vec<Arc<dyn Device>>> {
        Ok(self.all()?.into_iter().map(|device| device as Arc<dyn Device>).collect())
    }
}

/// A CPU device, a pool of worker threads.
pub(crate) struct CpuDevice {
    caps: Caps,
    cores: Cores,
    /// The same for all devices of a driver.
    family: Arc<()>,
    cache: Cache,
    account: Arc<Account>,
    pool: Arc<Pool>,
    log: Arc<Log>,
}

impl CpuDevice {
    #[cfg(test)]
    pub(crate) fn new(workers: usize, cache: &Cache) -> Result<Self> {
        Self::on(Cores { workers, ..Cores::default() }, cache, Arc::default())
    }

    fn on(cores: Cores, cache: &Cache, family: Arc<()>) -> Result<Self> {
        crash::install();
        let caps = host::caps(cores.workers);
        let _read = cooperative::memory();
        let account = Arc::new(Account::new(caps.limits.total_memory).on(cores.memory_node()));
        let (pool, cache, log) = (Arc::new(Pool::on(&cores)?), cache.counted(), Log::new());
        Ok(Self { caps, cores, family, cache, account, pool, log })
    }
}

impl CpuDevice {
    /// The other device, if it is of the same driver.
    fn related<'d>(&self, other: &'d dyn Device) -> Option<&'d Self> {
        let other: &dyn Any = other;
        other.downcast_ref::<Self>().filter(|other| Arc::ptr_eq(&self.family, &other.family))
    }

    /// An error for a buffer above the size limit.
    fn expect_allowed(&self, bytes: u64) -> Result<()> {
        self.pool.expect_here("an allocation")?;
        let limit = self.caps.limits.max_buffer_bytes;
        if bytes <= limit {
            return Ok(());
        }
        Err(Error::invalid(format!("a buffer of {bytes} bytes: the limit is {limit} bytes")))
    }
}

#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: each allocation has pages of its own; the queue is the driver's.
unsafe impl Device for CpuDevice {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        if !self.cores.bound {
            return Vec::new();
        }
        let node = self.cores.node.map(|node| ("NUMA node", node.to_string()));
        [("processors", cores::list_text(&self.cores.cpus))].into_iter().chain(node).collect()
    }

    /// Every storage mode is host memory. Memory is zeroed for either `init`: the pages are new.
    fn allocate(&self, bytes: u64, storage: Storage, _init: Init) -> Result<Arc<dyn Memory>> {
        self.expect_allowed(bytes)?;
        Ok(Arc::new(HostMemory::new(bytes, storage, self.account.clone())?))
    }

    fn available_memory(&self) -> u64 {
        self.account.available().min(limits::available())
    }

    #[allow(unsafe_code)] // hands on the caller's promise
    unsafe fn wrap(&self, block: HostBlock) -> Result<Arc<dyn Memory>> {
        self.expect_allowed(block.bytes)?;
        // SAFETY: the caller promises what this asks for.
        Ok(Arc::new(unsafe { HostMemory::wrap(block, self.account.clone()) }?))
    }

    fn compile(&self, source: &Source) -> Result<Arc<dyn Library>> {
        self.pool.expect_here("a compilation")?;
        Ok(Arc::new(CpuLibrary::new(&self.cache, source, self.log.clone())?))
    }

    fn queue_with(&self, priority: Priority) -> Result<Arc<dyn Queue>> {
        self.pool.expect_here("a queue")?;
        Ok(Arc::new(CpuQueue::new(CpuBackend::new(self.pool.clone(), priority))))
    }

    fn expect_nested_launches(&self) -> Result<()> {
        Ok(())
    }

    fn expect_executes_commands(&self) -> Result<()> {
        Ok(())
    }

    fn resident_queue(&self, threads: ResidentThreads) -> Result<Arc<dyn Queue>> {
        self.pool.expect_here("a queue")?;
        Ok(Arc::new(CpuQueue::new(CpuBackend::resident(self.pool.clone(), threads))))
    }

    fn place(&self) -> Place {
        Place { numa_node: self.cores.node, cpus: self.cores.cpus.clone(), pci: None }
    }

    /// Devices of one driver use memory of the process.
    fn reaches(&self, other: &dyn Device) -> Option<Reach> {
        self.related(other).map(|_| Reach::Peer)
    }

    fn peer_access(&self, other: &dyn Device) -> Result<()> {
        if self.related(other).is_some() {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "kernels of device `{}` cannot access memory of device `{}`, which is of another driver",
            self.caps.name,
            other.caps().name
        )))
    }

    fn link(&self, other: &dyn Device) -> Option<Link> {
        let other = self.related(other)?;
        let kind = match (self.cores.node, other.cores.node) {
            (Some(one), Some(two)) if one != two => LinkKind::Numa { distance: cores::distance(one, two) },
            _ => LinkKind::Memory,
        };
        Some(Link { kind, access: true, atomics: true, expected: None })
    }

    fn clock_ns(&self) -> u64 {
        host::now_ns()
    }

    fn use_units(&self, units: u32) -> Result<()> {
        self.pool.expect_here("a change of compute units")?;
        self.pool.use_workers(units as usize);
        Ok(())
    }

    /// The machine's and this process's.
    fn readings(&self) -> Result<Readings> {
        Ok(HostSensors::this().readings(&self.pool.threads()))
    }

    /// Of all processor packages and their memory.
    fn energy(&self) -> Result<Energy> {
        HostSensors::this().energy()
    }

    fn cache_lookups(&self) -> Option<CacheLookups> {
        let [hits, misses] = self.cache.lookups()?;
        Some(CacheLookups { hits, misses })
    }

    fn count_events(&self) -> Result<()> {
        HostSensors::this().count_events()
    }

    fn log(&self) -> Option<&Arc<Log>> {
        Some(&self.log)
    }

    fn reset(&self) -> Result<()> {
        Err(Error::unsupported("reset of the CPU device: a thread that runs a kernel cannot be terminated"))
    }
}
