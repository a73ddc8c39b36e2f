//! [`Pool`]: a device's memory, kept for reuse and counted.
//!
//! Buffers get their memory here and give it back when the last handle is gone and the device has finished all work that
//! uses it. Given back, a block waits for the next request of its size instead of going to the driver. A block that
//! held something is cleared before it is handed out, unless uninitialised memory is asked for.
//!
//! `class` says which block serves a request, `shelf` keeps and counts, `stock` orders the steps between threads.
//! Which storage mode a buffer has is decided elsewhere.

mod class;
mod shelf;
mod stats;
mod stock;

use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Device, Init, Memory, Result, Storage};

pub use stats::{PoolLimits, PoolStats, Pressure, Site};
pub(crate) use stock::{Given, Stock};

/// How often the system is asked what memory it has left, at most.
const POLL: Duration = Duration::from_millis(100);

/// The memory of a device: what buffers have, what waits to be used again, and how much of both there may be.
pub struct Pool {
    driver: Arc<dyn Device>,
    stock: Stock<Storage, Arc<dyn Memory>>,
    polled: Mutex<Option<Instant>>,
    /// Buffers and bytes by where they were allocated; kept in debug builds.
    sites: Mutex<HashMap<&'static Location<'static>, (u64, u64)>>,
}

/// What a buffer has from the pool, to be given back.
#[derive(Clone)]
pub(crate) struct Block {
    pub(crate) memory: Arc<dyn Memory>,
    /// Bytes that were asked for.
    pub(crate) bytes: u64,
    origin: Origin,
    site: &'static Location<'static>,
}

/// Where a block is from, which is where it goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The pool, with the bytes of its class.
    Pool(u64),
    /// The host: it is not kept.
    Host,
    /// Nowhere: it stands for memory and is not counted.
    Nowhere,
}

impl Block {
    /// A block that stands for memory that others give.
    pub(crate) fn placeholder(memory: Arc<dyn Memory>, site: &'static Location<'static>) -> Self {
        Self { bytes: memory.len(), memory, origin: Origin::Nowhere, site }
    }

    /// Whether it only stands for memory.
    pub(crate) fn is_placeholder(&self) -> bool {
        self.origin == Origin::Nowhere
    }
}

impl Pool {
    pub(crate) fn new(driver: Arc<dyn Device>) -> Self {
        let budget = driver.caps().limits.working_set;
        let limits = PoolLimits { budget, idle_bytes: budget / 4, idle_time: Duration::from_secs(60) };
        Self { driver, stock: Stock::new(limits), polled: Mutex::default(), sites: Mutex::default() }
    }

    /// What there is and what was, of one moment.
    pub fn stats(&self) -> PoolStats {
        self.stock.stats()
    }

    /// Give idle blocks back to the driver, the longest idle first, until at most `keep` bytes are idle. Returns the bytes
    /// that were given back.
    pub fn trim(&self, keep: u64) -> u64 {
        self.stock.trim(keep)
    }

    /// Give the blocks back to the driver that have been idle for longer. It happens by itself too, see
    /// [`PoolLimits::idle_time`].
    pub fn trim_idle(&self, longer_than: Duration) {
        self.sweep(Instant::now(), longer_than);
    }

    /// The most blocks of each storage mode and size that buffers ever had at a time.
    pub(crate) fn most_given(&self) -> Vec<(Storage, u64, u64)> {
        self.stock.most_given()
    }

    /// Have so many idle blocks of this size, as far as the limits allow; how many of them were made.
    ///
    /// # Errors
    /// As [`Pool::allocate`]; what was made by then stays.
    pub(crate) fn warm(&self, storage: Storage, size: u64, count: u64) -> Result<u64> {
        let misses = self.stats().misses;
        let mut blocks = Vec::new();
        let mut end = Ok(());
        // What the blocks take, which is more than what is asked for.
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

    /// What it may hold.
    pub fn limits(&self) -> PoolLimits {
        self.stock.limits()
    }

    /// Change what it may hold. What is idle beyond it goes at once; what buffers have stays theirs.
    pub fn set_limits(&self, limits: PoolLimits) {
        self.stock.set_limits(limits);
    }

    /// The buffers there are by the place of the program that allocated them, the most bytes first: in a program that
    /// should have none left, a list of leaks. Counted in builds with debug assertions; empty in others.
    pub fn sites(&self) -> Vec<Site> {
        let sites = self.sites.lock();
        let mut list: Vec<Site> = sites
            .iter()
            .map(|(location, (buffers, bytes))| Site { location, buffers: *buffers, bytes: *bytes })
            .collect();
        list.sort_by_key(|site| (std::cmp::Reverse(site.bytes), site.location.file(), site.location.line()));
        list
    }

    /// Keep less while the platform says that memory is short.
    pub(crate) fn notice(&self, pressure: Pressure) {
        self.stock.notice(pressure);
    }

    /// Memory for a buffer of `bytes`.
    pub(crate) fn allocate(
        &self,
        bytes: u64,
        storage: Storage,
        init: Init,
        site: &'static Location<'static>,
    ) -> Result<Block> {
        let caps = self.driver.caps();
        let size = class::block_size(bytes, caps.limits.memory_granule, caps.limits.max_buffer_bytes);
        let given = self.stock.take(storage, bytes, size, || {
            self.poll();
            self.driver.allocate(size, storage, init)
        })?;
        let Given { block: memory, size, used } = given;
        let block = Block { memory, bytes, origin: Origin::Pool(size), site };
        self.enter(&block);
        if used && init == Init::Zeroed {
            self.clear(&block).inspect_err(|_| self.give_back(block.clone()))?;
        }
        Ok(block)
    }

    /// Count memory of the host that a buffer uses in place.
    pub(crate) fn adopt(&self, memory: Arc<dyn Memory>, site: &'static Location<'static>) -> Block {
        let block = Block { bytes: memory.len(), memory, origin: Origin::Host, site };
        self.stock.wrap(block.bytes);
        self.enter(&block);
        block
    }

    /// Take a block back. The device is done with it, and nobody else has it.
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

    /// Give back to the driver what has been idle for longer at `now`.
    pub(crate) fn sweep(&self, now: Instant, longer_than: Duration) {
        if let Some(then) = now.checked_sub(longer_than) {
            self.stock.drop_idle_since(then);
        }
    }

    #[allow(unsafe_code)] // writes to memory of the device
    fn clear(&self, block: &Block) -> Result<()> {
        // SAFETY: the block is at least that long; it was given back, so the device is done with it and no buffer has
        // it, and it was taken for this caller alone.
        unsafe { block.memory.clear(block.bytes) }
    }

    fn enter(&self, block: &Block) {
        if cfg!(debug_assertions) {
            let mut sites = self.sites.lock();
            let (buffers, bytes) = sites.entry(block.site).or_default();
            (*buffers, *bytes) = (*buffers + 1, *bytes + block.bytes);
        }
    }

    /// Ask the system what it has left, unless that was done just now.
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
