//! [`ObjectPool`]: a pool of reusable events or timestamps of a device, with statistics.

use std::time::{Duration, Instant};

use elinvar_driver::Result;

use crate::memory::pool::{Given, PoolLimits, Stock};

/// Maximum number of idle objects: enough for programs with many streams, or with timestamps around each launch.
const KEPT: u64 = 256;

/// Statistics of a device's events or timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventStats {
    /// Number in use.
    pub live: u64,
    /// Maximum number in use at a time.
    pub peak: u64,
    /// Number of idle objects, kept for reuse. Those that are idle for a minute are dropped.
    pub idle: u64,
    /// Number created by the driver.
    pub created: u64,
    /// Number of requests served by an idle object.
    pub reused: u64,
}

impl EventStats {
    /// Objects in use relative to those in use or idle, from 0 to 1; 0 if there are none.
    pub fn utilization(&self) -> f64 {
        let there = self.live + self.idle;
        if there == 0 { 0.0 } else { self.live as f64 / there as f64 }
    }
}

/// A pool of objects of one kind. In its stock each object counts as one byte.
pub(crate) struct ObjectPool<T> {
    stock: Stock<(), T>,
}

impl<T> ObjectPool<T> {
    pub(crate) fn new() -> Self {
        let idle_time = Duration::from_secs(60);
        Self { stock: Stock::new(PoolLimits { budget: u64::MAX, idle_bytes: KEPT, idle_time }) }
    }

    /// Takes an idle object, or creates one with `make`.
    pub(crate) fn take(&self, make: impl Fn() -> Result<T>) -> Result<T> {
        let Given { block, .. } = self.stock.take((), 1, 1, make)?;
        Ok(block)
    }

    /// Returns an object for reuse.
    pub(crate) fn put(&self, one: T) {
        self.stock.put((), 1, 1, one);
    }

    /// Records that a taken object will not be returned.
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
