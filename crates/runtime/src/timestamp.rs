//! [`Timestamp`]: when a device came to a place in its work.
//!
//! Timestamps have a pool of their own, apart from events: one is used again when its last handle and the work that
//! notes it are gone.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use elinvar_driver::{Command, Result, Stamp};

use crate::pool::{Given, PoolLimits, Stock};
use crate::{Batch, Device, EventStats, Stream};

/// When a device came to a place in its work, by its own clock. Cloning gives another handle on the same one.
#[derive(Clone)]
pub struct Timestamp {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    stamp: Arc<Stamp>,
}

impl Timestamp {
    fn new(device: Device) -> Result<Self> {
        let stamp = device.timestamps().take()?;
        Ok(Self { inner: Arc::new(Inner { device, stamp }) })
    }

    /// The time in nanoseconds of [`Device::clock_ns`]; `None` until the device has been there, and if it never will.
    pub fn ns(&self) -> Option<u64> {
        self.inner.stamp.ns()
    }

    /// The time from an earlier timestamp of the same device to this one; `None` while one of them has no time, or if this
    /// is the earlier one.
    pub fn since(&self, earlier: &Timestamp) -> Option<Duration> {
        let same = self.inner.device == earlier.inner.device;
        let ns = self.ns().filter(|_| same)?.checked_sub(earlier.ns()?)?;
        Some(Duration::from_nanos(ns))
    }
}

impl Batch {
    /// Add the noting of the time when what the batch has so far has ended.
    ///
    /// # Errors
    /// None today; making one may fail on devices that have few.
    pub fn timestamp(&mut self) -> Result<Timestamp> {
        let timestamp = Timestamp::new(self.device().clone())?;
        self.push_timestamp(Command::Timestamp { into: timestamp.inner.stamp.clone() });
        Ok(timestamp)
    }
}

impl Stream {
    /// Note the time when the work that the stream has now has ended.
    ///
    /// # Errors
    /// As [`Batch::submit`].
    pub fn timestamp(&self) -> Result<Timestamp> {
        let mut batch = self.batch();
        let timestamp = batch.timestamp()?;
        batch.submit().map(|_| timestamp)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.device.timestamps().give_back(&self.stamp);
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({:?} ns)", self.ns())
    }
}

/// The timestamps of a device that wait to be used again, and how many there are.
pub(crate) struct Timestamps {
    stock: Stock<(), Arc<Stamp>>,
}

impl Timestamps {
    /// As many are kept as a program that times each of its launches uses at a time.
    const KEPT: u64 = 256;

    pub(crate) fn new() -> Self {
        let idle_time = Duration::from_secs(60);
        Self { stock: Stock::new(PoolLimits { budget: u64::MAX, idle_bytes: Self::KEPT, idle_time }) }
    }

    /// Each counts as one byte.
    fn take(&self) -> Result<Arc<Stamp>> {
        let Given { block, .. } = self.stock.take((), 1, 1, || Ok(Arc::new(Stamp::new())))?;
        block.clear();
        Ok(block)
    }

    fn give_back(&self, stamp: &Arc<Stamp>) {
        // Any other handle belongs to work that has not ended, or may be done again.
        match Arc::strong_count(stamp) {
            1 => self.stock.put((), 1, 1, stamp.clone()),
            _ => self.stock.discard((), 1, 1),
        }
    }

    pub(crate) fn stats(&self) -> EventStats {
        EventStats::of(&self.stock.stats())
    }

    pub(crate) fn drop_idle_since(&self, then: Instant) {
        self.stock.drop_idle_since(then);
    }
}
