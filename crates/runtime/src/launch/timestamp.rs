//! [`Timestamp`]: when a device came to a place in its work.
//!
//! Timestamps have a pool of their own, apart from events: one is used again when its last handle and the work that
//! notes it are gone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use elinvar_driver::{Command, Result, TimestampSlot};

use crate::{CommandBuffer, Device, Stream, TraceStep};

/// When a device came to a place in its work, by its own clock. Cloning gives another handle on the same one.
#[derive(Clone)]
pub struct Timestamp {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    stamp: Arc<TimestampSlot>,
}

impl Timestamp {
    fn new(device: Device) -> Result<Self> {
        let stamp = device.timestamps().take(|| Ok(Arc::new(TimestampSlot::new())))?;
        stamp.clear();
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

impl CommandBuffer {
    /// Add the noting of the time when what the command buffer has so far has ended.
    ///
    /// # Errors
    /// None today; making one may fail on devices that have few.
    pub fn timestamp(&mut self) -> Result<Timestamp> {
        let timestamp = Timestamp::new(self.device().clone())?;
        let into = timestamp.inner.stamp.clone();
        self.push(Command::Timestamp { into }, Vec::new(), TraceStep::Timestamp);
        Ok(timestamp)
    }
}

impl Stream {
    /// Note the time when the work that the stream has now has ended.
    ///
    /// # Errors
    /// As [`CommandBuffer::submit`].
    pub fn timestamp(&self) -> Result<Timestamp> {
        let mut command_buffer = self.command_buffer();
        let timestamp = command_buffer.timestamp()?;
        command_buffer.submit().map(|_| timestamp)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Any other handle belongs to work that has not ended, or may be done again.
        match Arc::strong_count(&self.stamp) {
            1 => self.device.timestamps().put(self.stamp.clone()),
            _ => self.device.timestamps().discard(),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({:?} ns)", self.ns())
    }
}
