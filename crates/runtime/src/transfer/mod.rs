//! Copies, within a device and between devices.
//!
//! A copy between devices is one command where a driver reaches both, and is staged through host memory otherwise: in chunks, so that both devices copy at
//! once. A staged copy has commands on the stream, and on a stream of the other device, its companion, which events order. The stream waits for the
//! companion, so that the copy takes effect in the order of the stream, and its failure is the stream's.

mod chunks;
mod route;
mod staging;
mod stats;
mod topology;

use bytemuck::Pod;
use elinvar_driver::{Error, Result};

use crate::memory::span::Span;
use crate::{BufferSlice, BufferSliceMut, CommandBuffer, Completion, Device, Stream};

pub use route::Route;
pub(crate) use route::in_one;
pub(crate) use staging::{Staged, carry, staged};
pub(crate) use stats::TransferLog;
pub use stats::TransferStats;
pub use topology::{Measured, Pair, Topology, TopologyDevice};

impl CommandBuffer {
    /// Adds a copy between buffers or slices of the same length, one of which may be of another device. They may overlap, with the semantics of `memmove`.
    ///
    /// Copies between devices take the first route that exists ([`Device::route_to`]). A staged one is submitted with the command buffer, partly to a
    /// stream of the other device.
    ///
    /// # Errors
    /// `InvalidArgument` for different lengths, or if neither buffer is of the command buffer's device; `OutOfMemory` for staging memory.
    pub fn copy<'s, 't, T: Pod>(
        &mut self,
        source: impl Into<BufferSlice<'s, T>>,
        target: impl Into<BufferSliceMut<'t, T>>,
    ) -> Result<()> {
        self.add_copy(source.into(), target.into(), false)
    }

    /// Adds a copy; `is_alone` if it is the only command.
    fn add_copy<T: Pod>(
        &mut self,
        source: BufferSlice<'_, T>,
        target: BufferSliceMut<'_, T>,
        is_alone: bool,
    ) -> Result<()> {
        if source.len() != target.len() {
            let (from, to) = (source.len(), target.len());
            return Err(Error::invalid(format!("copy: the source has {from} elements, the target {to}")));
        }
        let (source, target) = (source.span, target.span);
        let (from, to) = (&source.storage.device, &target.storage.device);
        if from == to || (from != self.device() && to != self.device()) {
            return self.copy_span(&source, &target);
        }
        let mark = self.mark();
        self.copy_between(&source, &target, is_alone).inspect_err(|_| self.truncate(mark))
    }

    fn copy_between(&mut self, source: &Span, target: &Span, is_alone: bool) -> Result<()> {
        let (from, to) = (source.storage.device.clone(), target.storage.device.clone());
        if source.storage.block.is_placeholder() || target.storage.block.is_placeholder() {
            return Err(Error::unsupported(
                "a copy of a graph's transient between devices; `Graph::copy` adds one",
            ));
        }
        if source.len == 0 {
            return Ok(());
        }
        let in_one = in_one(&from, &to);
        // One command takes the time of its submission, unless that is coalesced with others.
        let is_timed = !is_alone || in_one.is_none() || self.device().coalescers().is_on();
        let begin = is_timed.then(|| self.timestamp()).transpose()?;
        let route = match in_one {
            Some(route) => {
                self.use_for_copy(source, target);
                self.push_copy(source, target);
                route
            }
            None => chunks::copy(self, source, target)?,
        };
        let (end, bytes) = (is_timed.then(|| self.timestamp()).transpose()?, source.len);
        let times = begin.zip(end);
        self.accompany(Box::new(move |done| from.transfers().begin(&to, route, bytes, times, done)));
        Ok(())
    }
}

impl Stream {
    /// Copies a buffer or slice to another of the same length, behind the stream's pending work. One of them may be of another device.
    ///
    /// # Errors
    /// As [`CommandBuffer::copy`] and [`CommandBuffer::submit`].
    pub fn copy<'s, 't, T: Pod>(
        &self,
        source: impl Into<BufferSlice<'s, T>>,
        target: impl Into<BufferSliceMut<'t, T>>,
    ) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        command_buffer.add_copy(source.into(), target.into(), true)?;
        command_buffer.submit()
    }
}

impl Device {
    /// The route of copies from this device to another; [`Device::transfers_to`] has that of each copy. `None` for the device itself.
    pub fn route_to(&self, other: &Device) -> Option<Route> {
        if self == other {
            return None;
        }
        let staged = match other.caps().limits.wrap_granule {
            Some(_) => Route::HostInPlace,
            None => Route::Host,
        };
        Some(in_one(self, other).unwrap_or(staged))
    }

    /// Statistics of the copies of streams from this device to another, by route, since the device was opened. Copies in graphs are in
    /// [`crate::GraphStats::transfers`].
    pub fn transfers_to(&self, other: &Device) -> Vec<TransferStats> {
        self.transfers().stats(other)
    }

    /// Allows kernels of this device to access buffers of another from now on, as their arguments. Repeated calls have no effect.
    ///
    /// Without it, such an argument is an error of the launch. Accesses pass the link between the devices ([`crate::Topology`]).
    ///
    /// # Errors
    /// `Unsupported` with the reason if the hardware or the driver does not support it.
    pub fn peer_access(&self, other: &Device) -> Result<()> {
        self.expect_here("Device::peer_access")?;
        if self != other {
            self.driver().peer_access(other.driver())?;
            self.add_peer(other);
        }
        Ok(())
    }
}
