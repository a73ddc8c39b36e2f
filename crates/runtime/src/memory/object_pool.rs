//! [`ObjectPool`]: events and timestamps of a device that wait to be used again, and how many there are.

use std::time::{Duration, Instant};

use elinvar_driver::Result;

use crate::memory::pool::{Given, PoolLimits, Stock};

/// As many are kept as a program of many streams, or one that times each of its launches, uses at a time.
const KEPT: u64 = 256;

/// Events or timestamps of a device, as they are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventStats {
    /// In use.
    pub live: u64,
    /// The most that ever were in use.
    pub peak: u64,
    /// Kept to be used again. What is idle for a minute is dropped.
    pub idle: u64,
    /// Ever made by the driver.
    pub created: u64,
    /// Requests that an idle one served.
    pub reused: u64,
}

impl EventStats {
    /// The part of those made that is in use, from 0 to 1; 0 where none was made.
    pub fn utilisation(&self) -> f64 {
        let there = self.live + self.idle;
        if there == 0 { 0.0 } else { self.live as f64 / there as f64 }
    }
}

/// Things of one kind. In its stock each counts as one byte.
pub(crate) struct ObjectPool<T> {
    stock: Stock<(), T>,
}

impl<T> ObjectPool<T> {
    pub(crate) fn new() -> Self {
        let idle_time = Duration::from_secs(60);
        Self { stock: Stock::new(PoolLimits { budget: u64::MAX, idle_bytes: KEPT, idle_time }) }
    }

    /// One that was used before, or what `make` makes.
    pub(crate) fn take(&self, make: impl Fn() -> Result<T>) -> Result<T> {
        let Given { block, .. } = self.stock.take((), 1, 1, make)?;
        Ok(block)
    }

    /// Give one back to be used again.
    pub(crate) fn put(&self, one: T) {
        self.stock.put((), 1, 1, one);
    }

    /// One that was taken is not used again.
    pub(crate) fn discard(&self) {
        self.stock.discard((), 1, 1);
    }

    pub(crate) fn stats(&self) -> EventStats {
        let stats = self.stock.stats();
        EventStats {
            live: stats.live_buffers,
            peak: stats.peak_bytes,
            idle: stats.idle_blocks,
            created: stats.misses,
            reused: stats.hits,
        }
    }

    pub(crate) fn drop_idle_since(&self, then: Instant) {
        self.stock.drop_idle_since(then);
    }
}
