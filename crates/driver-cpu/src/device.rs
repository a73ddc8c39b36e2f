//! The driver and its one device, the CPU.

use std::sync::Arc;

use elinvar_cache::Cache;
use elinvar_driver::sync::Mutex;
use elinvar_driver::{
    Caps, Device, Driver, Energy, Error, HostBlock, Init, Library, Log, Memory, PerProcess, Priority, Queue,
    Readings, ResidentThreads, Result, Source, Storage,
};

use crate::guest::Guest;
use crate::library::CpuLibrary;
use crate::memory::{Account, HostMemory};
use crate::pool::Pool;
use crate::queue::{CpuBackend, CpuQueue};
use crate::sensors::HostSensors;
use crate::{cooperative, crash, host, limits};

/// The CPU driver of this process: one device with a worker per available processor, created on first use and kept.
pub fn driver() -> CpuDriver {
    static PROCESS: PerProcess<CpuDriver> = PerProcess::new(|| {
        CpuDriver::with_threads(std::thread::available_parallelism().map_or(1, usize::from))
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

/// CPU driver. It always has one device, which clones share.
#[derive(Clone)]
pub struct CpuDriver {
    threads: usize,
    cache: Cache,
    device: Arc<Mutex<Option<Arc<CpuDevice>>>>,
}

impl CpuDriver {
    /// A driver with its own device with `threads` worker threads, at least one.
    pub fn with_threads(threads: usize) -> Self {
        Self::with_cache(threads, elinvar_code::user_cache())
    }

    /// A driver with a cache other than the user's.
    pub fn with_cache(threads: usize, cache: &Cache) -> Self {
        Self { threads: threads.max(1), cache: cache.clone(), device: Arc::default() }
    }

    /// Starts a guest thread, which can run the device's work in addition to its workers.
    ///
    /// # Errors
    /// `Environment` when it cannot be started.
    pub fn spawn_guest(&self, name: String, body: impl FnOnce(Guest) + Send + 'static) -> Result<()> {
        Guest::spawn(&self.one()?.pool, name, body)
    }

    fn one(&self) -> Result<Arc<CpuDevice>> {
        let mut slot = self.device.lock();
        if let Some(device) = &*slot {
            return Ok(device.clone());
        }
        let device = Arc::new(CpuDevice::new(self.threads, &self.cache)?);
        Ok(slot.insert(device).clone())
    }

    /// The version with which a cache of compiled kernels is opened: the version of this build of the compiler.
    pub const CACHE_VERSION: &str = elinvar_code::COMPILER;
}

impl Driver for CpuDriver {
    fn name(&self) -> &'static str {
        "cpu"
    }

    /// The device. Fails if worker threads cannot be started.
    fn devices(&self) -> Result<Vec<Arc<dyn Device>>> {
        Ok(vec![self.one()?])
    }
}

/// The CPU device, a pool of worker threads.
pub(crate) struct CpuDevice {
    caps: Caps,
    cache: Cache,
    account: Arc<Account>,
    pool: Arc<Pool>,
    log: Arc<Log>,
}

impl CpuDevice {
    pub(crate) fn new(threads: usize, cache: &Cache) -> Result<Self> {
        crash::install();
        let caps = host::caps(threads);
        let _read = cooperative::memory();
        let account = Arc::new(Account::new(caps.limits.total_memory));
        Ok(Self { caps, cache: cache.clone(), account, pool: Arc::new(Pool::new(threads)?), log: Log::new() })
    }
}

impl CpuDevice {
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
        Ok(HostSensors::this().readings())
    }

    /// Of all processor packages and their memory.
    fn energy(&self) -> Result<Energy> {
        HostSensors::this().energy()
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
