//! [`Pool`]: a caching allocator for a device's memory, with statistics.
//!
//! Buffers allocate from the pool. Their blocks return when the last handle is gone and the device has finished all work that
//! uses them. A returned block is kept for the next request of its size instead of being freed. A reused block is cleared, unless
//! uninitialized memory was requested.
//!
//! `class` determines the size of blocks, `shelf` keeps and counts them, `stock` orders the steps between threads. The storage
//! mode is chosen elsewhere.

mod class;
mod shelf;
mod stats;
mod stock;

use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Device, Error, Init, Memory, Result, Storage};

pub use stats::{PoolLimits, PoolStats, Pressure, Site};
pub(crate) use stock::{Given, Stock};

/// Minimum interval between queries of the system's available memory.
const POLL: Duration = Duration::from_millis(100);

/// The memory pool of a device: a caching allocator with limits and statistics.
pub struct Pool {
    driver: Arc<dyn Device>,
    stock: Stock<Storage, Arc<dyn Memory>>,
    polled: Mutex<Option<Instant>>,
    /// See [`Pool::set_padding`].
    padding: AtomicU64,
    /// Number and bytes of buffers by allocation site; debug builds only.
    sites: Mutex<HashMap<&'static Location<'static>, (u64, u64)>>,
}

/// A block of the pool that belongs to a buffer.
#[derive(Clone)]
pub(crate) struct Block {
    pub(crate) memory: Arc<dyn Memory>,
    /// Requested size in bytes.
    pub(crate) bytes: u64,
    origin: Origin,
    site: &'static Location<'static>,
}

/// Origin of a block, which determines what happens when it is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The pool, with the size of its class in bytes.
    Pool(u64),
    /// Imported host memory: not kept.
    Host,
    /// A placeholder: not counted.
    Nowhere,
}

impl Block {
    /// A placeholder for memory that is assigned later.
    pub(crate) fn placeholder(memory: Arc<dyn Memory>, site: &'static Location<'static>) -> Self {
        Self { bytes: memory.len(), memory, origin: Origin::Nowhere, site }
    }

    /// Whether it is a placeholder.
    pub(crate) fn is_placeholder(&self) -> bool {
        self.origin == Origin::Nowhere
    }
}

impl Pool {
    pub(crate) fn new(driver: Arc<dyn Device>) -> Self {
        let budget = driver.caps().limits.working_set;
        let limits = PoolLimits { budget, idle_bytes: budget / 4, idle_time: Duration::from_secs(60) };
        Self {
            driver,
            stock: Stock::new(limits),
            polled: Mutex::default(),
            padding: AtomicU64::new(0),
            sites: Mutex::default(),
        }
    }

    /// A consistent snapshot of the statistics.
    pub fn stats(&self) -> PoolStats {
        self.stock.stats()
    }

    /// `live_bytes` and `idle_bytes` of the statistics.
    pub(crate) fn live_and_idle(&self) -> (u64, u64) {
        self.stock.live_and_idle()
    }

    /// Frees idle blocks, least recently used first, until at most `keep` bytes are idle. Returns the number of bytes freed.
    pub fn trim(&self, keep: u64) -> u64 {
        self.stock.trim(keep)
    }

    /// Frees blocks that have been idle for longer than `longer_than`. Also happens automatically; see [`PoolLimits::idle_time`].
    pub fn trim_idle(&self, longer_than: Duration) {
        self.sweep(Instant::now(), longer_than);
    }

    /// Maximum number of blocks in use at a time, as (storage mode, block size in bytes, count).
    pub(crate) fn most_given(&self) -> Vec<(Storage, u64, u64)> {
        self.stock.most_given()
    }

    /// Preallocates up to `count` idle blocks of `size` bytes, within the limits. Returns the number of blocks allocated.
    ///
    /// # Errors
    /// As [`Pool::allocate`]; blocks allocated before the error are kept.
    pub(crate) fn warm(&self, storage: Storage, size: u64, count: u64) -> Result<u64> {
        let misses = self.stats().misses;
        let mut blocks = Vec::new();
        let mut end = Ok(());
        // Block size, which is larger than the requested size.
        let caps = self.driver.caps();
        let each = class::block_size(size, caps.limits.memory_granule, caps.limits.max_buffer_bytes);
        for _ in 0..count {
            let held = each.saturating_mul(blocks.len() as u64);
            if held.saturating_add(each) > self.limits().idle_bytes {
                break;
            }
            match self.allocate(size, storage, Init::Uninitialized, Location::caller()) {
                Ok(block) => blocks.push(block),
                Err(error) => {
                    end = Err(error);
                    break;
                }
            }
        }
        blocks.into_iter().for_each(|block| self.give_back(block));
        end.map(|()| self.stats().misses - misses)
    }

    /// Allocates up to `count` idle blocks for buffers of `bytes` bytes, so that the next buffers of this size and storage mode are
    /// allocated without the driver. Returns the number of blocks that were allocated: fewer if there were idle ones, or if
    /// [`PoolLimits::idle_bytes`] would be exceeded.
    ///
    /// # Errors
    /// `OutOfMemory`; `InvalidArgument` for more bytes than the device's largest buffer. Blocks allocated before the error are kept.
    pub fn reserve(&self, bytes: u64, storage: Storage, count: u64) -> Result<u64> {
        let limit = self.driver.caps().limits.max_buffer_bytes;
        if bytes > limit {
            return Err(Error::invalid(format!(
                "blocks of {bytes} bytes; the device's largest buffer has {limit}"
            )));
        }
        self.warm(storage, bytes, count)
    }

    /// The limits.
    pub fn limits(&self) -> PoolLimits {
        self.stock.limits()
    }

    /// Sets the limits. Idle blocks beyond them are freed immediately; buffers are not affected.
    pub fn set_limits(&self, limits: PoolLimits) {
        self.stock.set_limits(limits);
    }

    /// Sets the number of bytes of memory after each buffer that is allocated from now on: for kernels that access a few elements past the end
    /// of their buffers, which Metal's allocations often contain. Initially 0.
    ///
    /// What kernels read there is zero in a zeroed buffer, and otherwise undefined. Imported host memory is not padded, and padding
    /// changes neither a buffer's length nor what checked kernels report.
    pub fn set_padding(&self, bytes: u64) {
        self.padding.store(bytes, Ordering::Relaxed);
    }

    /// Live buffers by allocation site, in descending order of bytes: in a program that should have none, a list of leaks.
    /// Available in builds with debug assertions; empty in others.
    pub fn sites(&self) -> Vec<Site> {
        let sites = self.sites.lock();
        let mut list: Vec<Site> = sites
            .iter()
            .map(|(location, (buffers, bytes))| Site { location, buffers: *buffers, bytes: *bytes })
            .collect();
        list.sort_by_key(|site| (std::cmp::Reverse(site.bytes), site.location.file(), site.location.line()));
        list
    }

    /// Sets the memory pressure reported by the platform.
    pub(crate) fn notice(&self, pressure: Pressure) {
        self.stock.notice(pressure);
    }

    /// Allocates memory for a buffer of `bytes`.
    pub(crate) fn allocate(
        &self,
        bytes: u64,
        storage: Storage,
        init: Init,
        site: &'static Location<'static>,
    ) -> Result<Block> {
        let caps = self.driver.caps();
        let padded = bytes.saturating_add(self.padding.load(Ordering::Relaxed));
        let size = class::block_size(padded, caps.limits.memory_granule, caps.limits.max_buffer_bytes);
        let given = self.stock.take(storage, bytes, size, || {
            self.poll();
            self.driver.allocate(size, storage, init)
        })?;
        let Given { block: memory, size, used } = given;
        let block = Block { memory, bytes, origin: Origin::Pool(size), site };
        self.enter(&block);
        if used && init == Init::Zeroed {
            self.clear(&block, padded).inspect_err(|_| self.give_back(block.clone()))?;
        }
        Ok(block)
    }

    /// Counts imported host memory.
    pub(crate) fn adopt(&self, memory: Arc<dyn Memory>, site: &'static Location<'static>) -> Block {
        let block = Block { bytes: memory.len(), memory, origin: Origin::Host, site };
        self.stock.wrap(block.bytes);
        self.enter(&block);
        block
    }

    /// Returns a block, which the device has finished with and nothing else references.
    pub(crate) fn give_back(&self, block: Block) {
        let Block { memory, bytes, origin, site } = block;
        if cfg!(debug_assertions) && origin != Origin::Nowhere {
            let mut sites = self.sites.lock();
            if let Some((buffers, sum)) = sites.get_mut(site) {
                (*buffers, *sum) = (*buffers - 1, *sum - bytes);
                if *buffers == 0 {
                    sites.remove(site);
                }
            }
        }
        match origin {
            Origin::Pool(size) => self.stock.put(memory.storage(), bytes, size, memory),
            Origin::Host => self.stock.unwrap(bytes),
            Origin::Nowhere => {}
        }
    }

    /// Frees blocks that have been idle for longer than `longer_than` at `now`.
    pub(crate) fn sweep(&self, now: Instant, longer_than: Duration) {
        if let Some(then) = now.checked_sub(longer_than) {
            self.stock.drop_idle_since(then);
        }
    }

    #[allow(unsafe_code)] // writes to memory of the device
    fn clear(&self, block: &Block, bytes: u64) -> Result<()> {
        // SAFETY: the block is at least that long; it was returned, so neither device nor buffer uses
        // it, and only this caller has taken it.
        unsafe { block.memory.clear(bytes) }
    }

    fn enter(&self, block: &Block) {
        if cfg!(debug_assertions) {
            let mut sites = self.sites.lock();
            let (buffers, bytes) = sites.entry(block.site).or_default();
            (*buffers, *bytes) = (*buffers + 1, *bytes + block.bytes);
        }
    }

    /// Queries the system's available memory, at most once per [`POLL`].
    fn poll(&self) {
        let now = Instant::now();
        let mut polled = self.polled.lock();
        if polled.is_none_or(|last| now.duration_since(last) >= POLL) {
            *polled = Some(now);
            drop(polled);
            let available = self.driver.available_memory();
            self.stock.set_outside(Pressure::of_available(available, self.driver.caps().limits.total_memory));
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({}, {:?})", self.driver.caps().name, self.stats())
    }
}

#[cfg(test)]
mod tests {
    use elinvar_driver::Driver as _;

    use super::*;

    #[test]
    fn what_only_stands_for_memory_counts_nowhere() {
        let device = elinvar_driver_cpu::CpuDriver::with_threads(1).devices().unwrap().remove(0);
        let device = crate::Device::new(device);
        let buffer = device.buffer::<u8>(64).unwrap();
        let block = &buffer.span.storage.block;
        let sites = || -> Vec<(u64, u64)> {
            device.pool().sites().iter().map(|site| (site.buffers, site.bytes)).collect()
        };
        let before = sites();
        device.pool().give_back(Block::placeholder(block.memory.clone(), block.site));
        assert_eq!(sites(), before);
    }
}
