//! [`Encoding`]: a command buffer under construction, with one open encoder at a time.
//!
//! Dispatches are encoded for concurrent execution, with a barrier before a dispatch that depends on accesses since the last barrier (read
//! after write, write after read, write after write). Between encoders, Metal's hazard tracking keeps the order. If times are sampled within
//! a command buffer, a fence keeps it (`stamps`). An open encoder is ended on drop, because Metal does not accept a command buffer
//! with an open encoder.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use elinvar_driver::{Error, Result};
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSRange, NSString};
use objc2_metal::{
    MTLBarrierScope, MTLBlitCommandEncoder, MTLCommandBuffer, MTLCommandEncoder as _, MTLCommandQueue,
    MTLComputeCommandEncoder, MTLComputePipelineState as _, MTLDevice as _, MTLDispatchType, MTLFence,
    MTLResourceOptions, MTLSize,
};

use super::buffer::Buffer;
use super::commands::{Executing, Lane, Levels};
use super::core::Core;
use super::crossing::Between;
use super::kernels::State;
use super::label::label;
use super::mps::InUse;
use super::queue::CommandBufferEnd;
use super::queue::parts::Parts;
use super::rounds::Rounds;
use super::signals::Signals;
use super::stamps::Stamps;
use crate::clock::Moment;
use crate::hazards::{Hazards, Touch};

/// Maximum length for `setBytes`.
const MOST_SET_BYTES: usize = 4096;
/// Granularity of blits on macOS, in bytes.
pub(super) const WORD: usize = 4;
/// Maximum number of threads in a dispatch of the driver's own kernels, whose positions have 32 bits.
const MOST_THREADS: usize = 1 << 30;

pub(super) type CommandBuffer = Retained<ProtocolObject<dyn MTLCommandBuffer>>;
pub(super) type ComputeEncoder = Retained<ProtocolObject<dyn MTLComputeCommandEncoder>>;
pub(super) type BlitEncoder = Retained<ProtocolObject<dyn MTLBlitCommandEncoder>>;

/// A position in a buffer.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) buffer: &'a Buffer,
    pub(super) offset: usize,
}

impl Place<'_> {
    fn plus(self, bytes: usize) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

/// Data that belongs to a command buffer, kept until it has ended.
#[derive(Default)]
pub(super) struct BufferInfo {
    /// Number of the submission.
    pub(super) submission: u64,
    /// Gate for which it waits first, if it has not begun.
    pub(super) waits: Vec<CommandBufferEnd>,
    /// For each encoder, in order, the indices of its commands.
    pub(super) encoders: Vec<Range<usize>>,
    /// For each signal within it, in order, the ticket and the index of the command.
    pub(super) signals: Vec<(u64, usize)>,
    /// Indices of the timestamps within it, in order.
    pub(super) stamps: Vec<usize>,
    /// Both clocks at commit, if times are sampled.
    pub(super) committed: Moment,
    /// Buffers created for its commands.
    kept: Vec<Buffer>,
    /// MPS kernels that its commands use.
    kernels: Vec<InUse>,
    /// Accesses since the last barrier.
    hazards: Hazards,
    /// The command buffer's device, if it is not the queue's.
    pub(super) other: Option<Arc<Core>>,
    /// Result of the first half of a copy between devices, for the second; not released by [`BufferInfo::clear`].
    pub(super) between: Option<Between>,
    /// The commands in memory that it executes.
    pub(super) executing: Option<Executing>,
    /// Indirect command buffers that it uses.
    lanes: Vec<Lane>,
    /// Levels of nested launches so far, for the next command buffer; not released by [`BufferInfo::clear`].
    pub(super) levels: Option<Levels>,
    /// Rounds of a launch with grid barriers so far; as `levels`.
    pub(super) rounds: Option<Rounds>,
    /// Command buffers before it that a library has committed, with the first of the commands.
    pub(super) parts: Parts,
    /// Launches with shader validation: the labels of their encoders, and the indices of their commands.
    pub(super) validated: Vec<(String, usize)>,
}

impl BufferInfo {
    pub(super) fn clear(&mut self) {
        self.encoders.clear();
        self.signals.clear();
        self.stamps.clear();
        self.kept.clear();
        self.kernels.clear();
        self.hazards.clear();
        self.other = None;
        self.executing = None;
        self.lanes.clear();
        self.parts.clear();
        self.validated.clear();
    }
}

enum Open {
    None,
    Compute(ComputeEncoder),
    Blit(BlitEncoder),
}

pub(super) struct Encoding<'a> {
    pub(super) core: &'a Core,
    queue: &'a ProtocolObject<dyn MTLCommandQueue>,
    /// Created with the first encoder.
    buffer: Option<CommandBuffer>,
    info: &'a mut BufferInfo,
    open: Open,
    /// Whether the command buffer retains its resources.
    retains: bool,
    /// Sampling of times within the command buffer.
    stamps: Option<&'a Stamps>,
    /// Index of the command that is being encoded.
    pub(super) command: usize,
}

impl<'a> Encoding<'a> {
    pub(super) fn new(
        core: &'a Core,
        queue: &'a ProtocolObject<dyn MTLCommandQueue>,
        info: &'a mut BufferInfo,
        retains: bool,
    ) -> Self {
        info.clear();
        Self { core, queue, buffer: None, info, open: Open::None, retains, stamps: None, command: 0 }
    }

    /// Enables sampling of times within the command buffer, which must be empty.
    pub(super) fn note_times(&mut self, stamps: Option<&'a Stamps>) {
        self.stamps = stamps;
    }

    /// Whether there is work for the device.
    pub(super) fn has_begun(&self) -> bool {
        self.buffer.is_some()
    }

    /// The command buffer, ready to be committed; `None` if there is no work for the device.
    pub(super) fn finish(mut self) -> Option<CommandBuffer> {
        self.end();
        self.buffer.take()
    }

    fn buffer(&mut self) -> Result<CommandBuffer> {
        if let Some(buffer) = &self.buffer {
            return Ok(buffer.clone());
        }
        let buffer = self.queue.commandBufferWithDescriptor(self.core.descriptor(self.retains));
        let buffer = buffer.ok_or_else(|| Error::Environment("Metal has no command buffer".into()))?;
        if self.info.submission > 0 {
            buffer.setLabel(Some(&label(format_args!("submission {}", self.info.submission))));
        }
        for wait in &self.info.waits {
            buffer.encodeWaitForEvent_value(ProtocolObject::from_ref(&*wait.counter), wait.number);
        }
        Ok(self.buffer.insert(buffer).clone())
    }

    /// Ends the open encoder.
    pub(super) fn end(&mut self) {
        match (std::mem::replace(&mut self.open, Open::None), self.stamps) {
            (Open::None, _) => {}
            (Open::Compute(encoder), None) => encoder.endEncoding(),
            (Open::Compute(encoder), Some(stamps)) => {
                encoder.updateFence(&stamps.fence);
                encoder.endEncoding();
            }
            (Open::Blit(encoder), None) => encoder.endEncoding(),
            (Open::Blit(encoder), Some(stamps)) => {
                encoder.updateFence(&stamps.fence);
                encoder.endEncoding();
            }
        }
        self.info.hazards.clear();
    }

    /// The command buffer without an open encoder, for a primitive, which creates its own.
    pub(super) fn library(&mut self) -> Result<CommandBuffer> {
        self.end();
        self.entered(true);
        self.buffer()
    }

    /// Goes on in another command buffer of the queue, if a library has committed this one and goes on there.
    pub(super) fn go_on_in(&mut self, next: CommandBuffer) {
        let Some(buffer) = self.buffer.as_mut().filter(|buffer| **buffer != next) else { return };
        self.info.parts.push(std::mem::replace(buffer, next));
    }

    /// The MPS kernels that the command buffer's commands use.
    pub(super) fn kernels(&mut self) -> &mut Vec<InUse> {
        &mut self.info.kernels
    }

    /// Whether the command buffer fails only if Metal reports an error; faults of shader validation are reported in logs after the end.
    pub(super) fn ends_as_metal_says(&self) -> bool {
        self.info.validated.is_empty()
    }

    /// Raises the event of this command when everything before it has completed.
    pub(super) fn signal(&mut self, signals: &Signals) -> Result<()> {
        self.end();
        let ticket = signals.encode(&self.buffer()?);
        self.info.signals.push((ticket, self.command));
        Ok(())
    }

    /// Samples the time of this command. Returns `false` if that is not possible within the command buffer.
    pub(super) fn stamp(&mut self) -> Result<bool> {
        let (core, index) = (self.core, self.info.stamps.len());
        let Some(stamps) = self.stamps.filter(|stamps| stamps.has(core, index)) else { return Ok(false) };
        self.end();
        self.entered(true);
        let encoder = stamps.encoder(&self.buffer()?, index)?;
        self.open = Open::Blit(encoder.clone());
        if let Some(fence) = self.fence() {
            encoder.waitForFence(fence);
        }
        stamps.encode(&encoder, index);
        self.end();
        self.info.stamps.push(self.command);
        Ok(true)
    }

    /// Makes a new encoder wait for the previous one.
    fn fence(&self) -> Option<&'a ProtocolObject<dyn MTLFence>> {
        self.stamps.filter(|_| self.info.encoders.len() > 1).map(|stamps| &*stamps.fence)
    }

    fn entered(&mut self, new: bool) {
        let next = self.command + 1;
        match self.info.encoders.last_mut().filter(|_| !new) {
            Some(commands) => commands.end = next,
            None => self.info.encoders.push(self.command..next),
        }
    }

    /// A compute encoder for a command with these accesses, after a barrier if necessary.
    pub(super) fn compute(&mut self, uses: impl Iterator<Item = Touch>) -> Result<ComputeEncoder> {
        let open = match &self.open {
            Open::Compute(encoder) => Some(encoder.clone()),
            _ => None,
        };
        self.entered(open.is_none());
        if let Some(encoder) = open {
            if self.info.hazards.enter(uses) {
                encoder.memoryBarrierWithScope(MTLBarrierScope::Buffers);
            }
            return Ok(encoder);
        }
        self.end();
        let encoder = self.buffer()?.computeCommandEncoderWithDispatchType(MTLDispatchType::Concurrent);
        let encoder = encoder.ok_or_else(|| Error::Environment("Metal has no compute encoder".into()))?;
        if let Some(fence) = self.fence() {
            encoder.waitForFence(fence);
        }
        if self.core.features.validates {
            encoder.setLabel(Some(&label(format_args!("launches"))));
        }
        self.info.hazards.enter(uses);
        self.open = Open::Compute(encoder.clone());
        Ok(encoder)
    }

    /// A labeled compute encoder for one launch with shader validation, whose logs identify encoders by label.
    pub(super) fn alone(&mut self, label: String) -> Result<ComputeEncoder> {
        self.end();
        let encoder = self.compute(std::iter::empty())?;
        encoder.setLabel(Some(&NSString::from_str(&label)));
        self.info.validated.push((label, self.command));
        Ok(encoder)
    }

    fn blit(&mut self) -> Result<BlitEncoder> {
        let open = match &self.open {
            Open::Blit(encoder) => Some(encoder.clone()),
            _ => None,
        };
        self.entered(open.is_none());
        if let Some(encoder) = open {
            return Ok(encoder);
        }
        self.end();
        let encoder = self.buffer()?.blitCommandEncoder();
        let encoder = encoder.ok_or_else(|| Error::Environment("Metal has no blit encoder".into()))?;
        if let Some(fence) = self.fence() {
            encoder.waitForFence(fence);
        }
        self.open = Open::Blit(encoder.clone());
        Ok(encoder)
    }

    /// A buffer of exactly this size, at least one byte, kept until the command buffer has ended.
    pub(super) fn exact(&mut self, bytes: u64) -> Result<Buffer> {
        let made = self.core.exact_buffer(bytes.max(1), MTLResourceOptions::StorageModePrivate);
        made.map(|made| self.keep(made)).ok_or_else(|| self.core.out_of_memory(bytes))
    }

    /// A buffer that is kept until the command buffer has ended.
    pub(super) fn transient(&mut self, bytes: usize, options: MTLResourceOptions) -> Result<Buffer> {
        self.core.buffer(bytes as u64, options).map(|made| self.keep(made))
    }

    /// Keeps a buffer until the command buffer has ended.
    pub(super) fn keep(&mut self, buffer: Buffer) -> Buffer {
        self.info.kept.push(buffer.clone());
        buffer
    }

    /// Notes what the command buffer executes, and keeps its indirect command buffer.
    pub(super) fn executes(&mut self, executing: Executing, lane: Lane) {
        self.info.executing = Some(executing);
        self.info.lanes.push(lane);
    }

    /// A buffer with these bytes, or one zero byte if there are none, kept until the command buffer has ended.
    #[allow(unsafe_code)] // hands an address to Metal
    pub(super) fn buffer_with(&mut self, bytes: &[u8]) -> Result<Buffer> {
        let bytes = if bytes.is_empty() { &[0] } else { bytes };
        let (address, options) =
            (NonNull::from(bytes).cast::<c_void>(), MTLResourceOptions::StorageModeShared);
        // SAFETY: Metal copies that many bytes from there.
        let made =
            unsafe { self.core.device.newBufferWithBytes_length_options(address, bytes.len(), options) };
        made.map(|made| self.keep(Buffer(made))).ok_or_else(|| self.core.out_of_memory(bytes.len() as u64))
    }

    /// Binds a pointer to a copy of `bytes`.
    #[allow(unsafe_code)] // hands an address to Metal
    pub(super) fn set_bytes(&mut self, encoder: &ComputeEncoder, bytes: &[u8], index: usize) -> Result<()> {
        // Metal does not accept a length of 0.
        let bytes = if bytes.is_empty() { &[0; WORD] } else { bytes };
        let address = NonNull::from(bytes).cast::<c_void>();
        if bytes.len() <= MOST_SET_BYTES {
            // SAFETY: Metal copies that many bytes from there.
            unsafe { encoder.setBytes_length_atIndex(address, bytes.len(), index) };
            return Ok(());
        }
        let made = self.buffer_with(bytes)?;
        // SAFETY: the buffer is kept until the command buffer has ended.
        unsafe { encoder.setBuffer_offset_atIndex(Some(&made), 0, index) };
        Ok(())
    }

    /// Copies bytes between buffers, or within one.
    #[allow(unsafe_code)] // hands ranges to Metal
    pub(super) fn copy(&mut self, source: Place<'_>, target: Place<'_>, len: usize) -> Result<()> {
        let same = std::ptr::eq::<ProtocolObject<_>>(&raw const **source.buffer, &raw const **target.buffer);
        if len == 0 || (same && source.offset == target.offset) {
            return Ok(());
        }
        if same && source.offset.abs_diff(target.offset) < len {
            // Overlapping copies are undefined in Metal.
            let between = self.transient(len, MTLResourceOptions::StorageModePrivate)?;
            let between = Place { buffer: &between, offset: 0 };
            self.copy(source, between, len)?;
            return self.copy(between, target, len);
        }
        let words = [source.offset, target.offset, len].iter().all(|bytes| bytes.is_multiple_of(WORD));
        if !words {
            return self.copy_bytes(source, target, len);
        }
        let blit = self.blit()?;
        // SAFETY: the callers have checked both ranges, which do not overlap; the buffers are kept until the command buffer has ended.
        unsafe {
            blit.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(
                source.buffer,
                source.offset,
                target.buffer,
                target.offset,
                len,
            );
        }
        Ok(())
    }

    /// Copies with a kernel, in a separate encoder, because its accesses are not tracked by barriers.
    #[allow(unsafe_code)] // binds buffers
    fn copy_bytes(&mut self, source: Place<'_>, target: Place<'_>, len: usize) -> Result<()> {
        self.end();
        for begin in (0..len).step_by(MOST_THREADS) {
            let count = MOST_THREADS.min(len - begin);
            let encoder = self.compute(std::iter::empty())?;
            for (place, index) in [(source.plus(begin), 0), (target.plus(begin), 1)] {
                // SAFETY: the callers have checked the ranges; the buffers are kept until the command buffer has ended.
                unsafe { encoder.setBuffer_offset_atIndex(Some(place.buffer), place.offset, index) };
            }
            self.run(&encoder, &self.core.kernels.copy_bytes, count, 1)?;
        }
        self.end();
        Ok(())
    }

    /// Fills with `pattern`, whose length divides `len`.
    pub(super) fn fill(&mut self, target: Place<'_>, len: usize, pattern: &[u8]) -> Result<()> {
        if !(1..=16).contains(&pattern.len()) || !len.is_multiple_of(pattern.len()) {
            let pattern = pattern.len();
            return Err(Error::invalid(format!("fill of {len} bytes with a pattern of {pattern} bytes")));
        }
        if len == 0 {
            return Ok(());
        }
        let words = target.offset.is_multiple_of(WORD) && len.is_multiple_of(WORD);
        if words && pattern.iter().all(|byte| *byte == pattern[0]) {
            let range = NSRange { location: target.offset, length: len };
            self.blit()?.fillBuffer_range_value(target.buffer, range, pattern[0]);
            return Ok(());
        }
        // Whole words of whole patterns.
        let (repeat, unit) = if words { (pattern.repeat(WORD), WORD) } else { (pattern.to_vec(), 1) };
        let kernels = &self.core.kernels;
        let kernel = if words { &kernels.fill_words } else { &kernels.fill_bytes };
        self.fill_by(kernel, target, len, &repeat, unit)
    }

    /// Fills with a kernel, as [`Encoding::copy_bytes`].
    #[allow(unsafe_code)] // binds a buffer
    fn fill_by(
        &mut self,
        kernel: &State,
        target: Place<'_>,
        len: usize,
        pattern: &[u8],
        unit: usize,
    ) -> Result<()> {
        self.end();
        let period = pattern.len() / unit;
        // Each part starts with a whole pattern.
        let step = MOST_THREADS / period * period;
        for begin in (0..len / unit).step_by(step) {
            let count = step.min(len / unit - begin);
            let (encoder, place) = (self.compute(std::iter::empty())?, target.plus(begin * unit));
            // SAFETY: the callers have checked the range; the buffer is kept until the command buffer has ended.
            unsafe { encoder.setBuffer_offset_atIndex(Some(place.buffer), place.offset, 0) };
            self.set_bytes(&encoder, pattern, 1)?;
            self.run(&encoder, kernel, count, period)?;
        }
        self.end();
        Ok(())
    }

    /// Runs one of the driver's kernels, which check the thread count themselves.
    fn run(&mut self, encoder: &ComputeEncoder, kernel: &State, count: usize, period: usize) -> Result<()> {
        let sizes = [count as u32, period as u32].map(u32::to_ne_bytes);
        self.set_bytes(encoder, sizes.as_flattened(), 2)?;
        encoder.setComputePipelineState(kernel);
        let threads = kernel.maxTotalThreadsPerThreadgroup().clamp(1, 256);
        let size = |width| MTLSize { width, height: 1, depth: 1 };
        encoder.dispatchThreadgroups_threadsPerThreadgroup(size(count.div_ceil(threads)), size(threads));
        Ok(())
    }
}

impl Drop for Encoding<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
