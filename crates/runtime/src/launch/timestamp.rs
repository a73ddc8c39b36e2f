//! [`Timestamp`]: a time on the device's clock at a point of a stream.
//!
//! Timestamps have their own pool; one is reused when its last handle and the work that writes it are gone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use elinvar_driver::{Command, Result, TimestampSlot};

use crate::{CommandBuffer, Device, Stream, TraceStep};

/// A time on the device's clock at a point of a stream. A clone is another handle on the same timestamp.
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

    /// The time in nanoseconds on the clock of [`Device::clock_ns`]; `None` until the device has reached the point, and if it
    /// never does.
    pub fn ns(&self) -> Option<u64> {
        self.inner.stamp.ns()
    }

    /// Time from an earlier timestamp of the same device. `None` if one of them has no time, `earlier` is later, or the devices
    /// differ.
    pub fn since(&self, earlier: &Timestamp) -> Option<Duration> {
        let same = self.inner.device == earlier.inner.device;
        let ns = self.ns().filter(|_| same)?.checked_sub(earlier.ns()?)?;
        Some(Duration::from_nanos(ns))
    }
}

impl CommandBuffer {
    /// Adds a timestamp: the time when the preceding commands of the command buffer have ended.
    ///
    /// # Errors
    /// The driver's, if it cannot create another timestamp; none at present.
    pub fn timestamp(&mut self) -> Result<Timestamp> {
        let timestamp = Timestamp::new(self.device().clone())?;
        let into = timestamp.inner.stamp.clone();
        self.push(Command::Timestamp { into }, Vec::new(), TraceStep::Timestamp);
        Ok(timestamp)
    }
}

impl Stream {
    /// Submits a timestamp: the time when the stream's pending work has ended.
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
        // Any other reference belongs to work that is pending or may be rerun.
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
