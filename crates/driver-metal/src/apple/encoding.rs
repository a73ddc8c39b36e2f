//! [`Encoding`]: the encoders of a command buffer, one at a time, and what is done with them.
//!
//! Dispatches are encoded for running side by side, with a barrier before one that uses what those since the last barrier
//! have written, or writes what they use. Between encoders Metal itself keeps the order, since buffers are tracked.
//! Where times are noted in the middle of a command buffer, a fence keeps it (`stamps`).
//! Whatever encoder is open ends when the value is dropped: Metal refuses a command buffer with an open one.

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
use super::core::Core;
use super::crossing::Between;
use super::kernels::State;
use super::label::label;
use super::mps::InUse;
use super::queue::CommandBufferEnd;
use super::signals::Signals;
use super::stamps::Stamps;
use crate::clock::Moment;
use crate::hazards::{Hazards, Touch};

/// The most bytes that `setBytes` takes.
const MOST_SET_BYTES: usize = 4096;
/// Blits take whole words on macOS.
pub(super) const WORD: usize = 4;
/// Threads of one dispatch of our own kernels, whose positions have 32 bits.
const MOST_THREADS: usize = 1 << 30;

pub(super) type CommandBuffer = Retained<ProtocolObject<dyn MTLCommandBuffer>>;
pub(super) type ComputeEncoder = Retained<ProtocolObject<dyn MTLComputeCommandEncoder>>;
pub(super) type BlitEncoder = Retained<ProtocolObject<dyn MTLBlitCommandEncoder>>;

/// A byte of a buffer.
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

/// What belongs to a command buffer beside its commands, and stays until it has ended.
#[derive(Default)]
pub(super) struct BufferInfo {
    /// The number of the submission.
    pub(super) submission: u64,
    /// What it waits for first, if it has not begun.
    pub(super) waits: Vec<CommandBufferEnd>,
    /// For each encoder, in order, the numbers of the commands in it.
    pub(super) encoders: Vec<Range<usize>>,
    /// Of each signal within it, in order, the ticket and the number of the command.
    pub(super) signals: Vec<(u64, usize)>,
    /// The numbers of the timestamps within it, in order.
    pub(super) stamps: Vec<usize>,
    /// What the clocks showed when it was committed, if it has such.
    pub(super) committed: Moment,
    /// Buffers made for its commands.
    kept: Vec<Buffer>,
    /// Kernels of Metal Performance Shaders that its commands use.
    kernels: Vec<InUse>,
    /// What commands have used since the last barrier.
    hazards: Hazards,
    /// The device of the command buffer, where that is another than the queue's.
    pub(super) other: Option<Arc<Core>>,
    /// What the first half of a copy between devices has brought for the second; not let go of by [`BufferInfo::clear`].
    pub(super) between: Option<Between>,
    /// The launches with shader validation: the labels of their encoders, and the numbers of their commands.
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
    /// Made for the first encoder.
    buffer: Option<CommandBuffer>,
    info: &'a mut BufferInfo,
    open: Open,
    /// Whether the command buffer keeps what it uses.
    retains: bool,
    /// Where times are noted within the command buffer.
    stamps: Option<&'a Stamps>,
    /// The number of the command that is being encoded.
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

    /// Note times within the command buffer, which has not begun.
    pub(super) fn note_times(&mut self, stamps: Option<&'a Stamps>) {
        self.stamps = stamps;
    }

    /// Whether there is something for the device.
    pub(super) fn has_begun(&self) -> bool {
        self.buffer.is_some()
    }

    /// The command buffer, ready to be committed; `None` where there is nothing for the device.
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

    /// End the encoder that is open.
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

    /// The command buffer with no encoder open, for a command that encodes itself.
    pub(super) fn library(&mut self) -> Result<CommandBuffer> {
        self.end();
        self.entered(true);
        self.buffer()
    }

    /// The kernels that the command buffer's commands use.
    pub(super) fn kernels(&mut self) -> &mut Vec<InUse> {
        &mut self.info.kernels
    }

    /// Whether the command buffer fails where Metal says so, and only there: shader validation tells of faults afterwards.
    pub(super) fn ends_as_metal_says(&self) -> bool {
        self.info.validated.is_empty()
    }

    /// Raise the event of this command when what is before it has ended.
    pub(super) fn signal(&mut self, signals: &Signals) -> Result<()> {
        self.end();
        let ticket = signals.encode(&self.buffer()?);
        self.info.signals.push((ticket, self.command));
        Ok(())
    }

    /// Note the time of this command. `false` where that is not possible within the command buffer.
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

    /// What a new encoder waits for: the one before it.
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

    /// A compute encoder, in which a command with these uses may be encoded now.
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

    /// A compute encoder with this label for one launch with shader validation, which tells of encoders.
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

    /// A buffer of so many bytes and no more, but for one at least, that stays until the command buffer has ended.
    pub(super) fn exact(&mut self, bytes: u64) -> Result<Buffer> {
        let made = self.core.exact_buffer(bytes.max(1), MTLResourceOptions::StorageModePrivate);
        made.map(|made| self.keep(made)).ok_or_else(|| self.core.out_of_memory(bytes))
    }

    /// A buffer that stays until the command buffer has ended.
    pub(super) fn transient(&mut self, bytes: usize, options: MTLResourceOptions) -> Result<Buffer> {
        self.core.buffer(bytes as u64, options).map(|made| self.keep(made))
    }

    /// Keep a buffer until the command buffer has ended.
    pub(super) fn keep(&mut self, buffer: Buffer) -> Buffer {
        self.info.kept.push(buffer.clone());
        buffer
    }

    /// A buffer with these bytes, or a zero if there are none, that stays until the command buffer has ended.
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

    /// Give a kernel a pointer to a copy of `bytes`.
    #[allow(unsafe_code)] // hands an address to Metal
    pub(super) fn set_bytes(&mut self, encoder: &ComputeEncoder, bytes: &[u8], index: usize) -> Result<()> {
        // Metal refuses a length of 0.
        let bytes = if bytes.is_empty() { &[0; WORD] } else { bytes };
        let address = NonNull::from(bytes).cast::<c_void>();
        if bytes.len() <= MOST_SET_BYTES {
            // SAFETY: Metal copies that many bytes from there.
            unsafe { encoder.setBytes_length_atIndex(address, bytes.len(), index) };
            return Ok(());
        }
        let made = self.buffer_with(bytes)?;
        // SAFETY: the buffer stays until the command buffer has ended.
        unsafe { encoder.setBuffer_offset_atIndex(Some(&made), 0, index) };
        Ok(())
    }

    /// Copy bytes between buffers, also within one.
    #[allow(unsafe_code)] // hands ranges to Metal
    pub(super) fn copy(&mut self, source: Place<'_>, target: Place<'_>, len: usize) -> Result<()> {
        let same = std::ptr::eq::<ProtocolObject<_>>(&raw const **source.buffer, &raw const **target.buffer);
        if len == 0 || (same && source.offset == target.offset) {
            return Ok(());
        }
        if same && source.offset.abs_diff(target.offset) < len {
            // Metal leaves overlapping copies undefined.
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
        // SAFETY: the callers have checked both ranges, which do not overlap; the buffers stay until the command buffer has
        // ended.
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

    /// By a kernel, which has an encoder of its own, since what it uses is not on the list of uses.
    #[allow(unsafe_code)] // binds buffers
    fn copy_bytes(&mut self, source: Place<'_>, target: Place<'_>, len: usize) -> Result<()> {
        self.end();
        for begin in (0..len).step_by(MOST_THREADS) {
            let count = MOST_THREADS.min(len - begin);
            let encoder = self.compute(std::iter::empty())?;
            for (place, index) in [(source.plus(begin), 0), (target.plus(begin), 1)] {
                // SAFETY: the callers have checked the ranges; the buffers stay until the command buffer has ended.
                unsafe { encoder.setBuffer_offset_atIndex(Some(place.buffer), place.offset, index) };
            }
            self.run(&encoder, &self.core.kernels.copy_bytes, count, 1)?;
        }
        self.end();
        Ok(())
    }

    /// Repeat `pattern`, whose length divides `len`.
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
        // Whole words of a whole number of patterns.
        let (repeat, unit) = if words { (pattern.repeat(WORD), WORD) } else { (pattern.to_vec(), 1) };
        let kernels = &self.core.kernels;
        let kernel = if words { &kernels.fill_words } else { &kernels.fill_bytes };
        self.fill_by(kernel, target, len, &repeat, unit)
    }

    /// By a kernel, as [`Encoding::copy_bytes`].
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
        // Each part begins with a whole pattern.
        let step = MOST_THREADS / period * period;
        for begin in (0..len / unit).step_by(step) {
            let count = step.min(len / unit - begin);
            let (encoder, place) = (self.compute(std::iter::empty())?, target.plus(begin * unit));
            // SAFETY: the callers have checked the range; the buffer stays until the command buffer has ended.
            unsafe { encoder.setBuffer_offset_atIndex(Some(place.buffer), place.offset, 0) };
            self.set_bytes(&encoder, pattern, 1)?;
            self.run(&encoder, kernel, count, period)?;
        }
        self.end();
        Ok(())
    }

    /// Run one of our kernels, which look at the count themselves.
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
