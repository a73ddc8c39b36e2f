//! [`Stamps`]: how a command buffer notes times in its middle.
//!
//! A time is a counter sample of a blit encoder of its own, which writes one word: GPUs are known to leave out encoders that do
//! nothing, and their samples with them. Where counters are sampled at the ends of passes (Apple's GPUs), it is that of the
//! encoder's end; where they are sampled between copies, one behind its copy. A fence lets the encoders of such a
//! command buffer follow one another, so that what is before the time has ended and nothing behind it has begun.
//!
//! Samples are ticks of the GPU's clock. What both clocks show is asked when the command buffer is committed and when it has
//! ended; [`Span`] has the formula. `sampleTimestamps:gpuTimestamp:` gives the host's time in nanoseconds, of one of two
//! clocks, depending on the system (documentation of `MTLTimestamp`). It is taken if it is within what our own clock shows before and
//! behind the call; else the middle of these is.
//!
//! A sample that was not taken (`MTLCounterErrorValue`, or one from outside the span) gives no time: the stamp stays
//! without, and the device's counters are not used again. Without counters a timestamp ends its command buffer.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use elinvar_driver::{Error, Result};
use objc2::rc::Retained;
use objc2::runtime::{NSObjectProtocol as _, ProtocolObject};
use objc2::sel;
use objc2_foundation::{NSRange, ns_string};
use objc2_metal::{
    MTLBlitCommandEncoder as _, MTLBlitPassDescriptor, MTLCommandBuffer as _, MTLCommandEncoder as _,
    MTLCommonCounterSetTimestamp, MTLCommonCounterTimestamp, MTLCounter as _, MTLCounterDontSample,
    MTLCounterSampleBuffer, MTLCounterSampleBufferDescriptor, MTLCounterSamplingPoint, MTLCounterSet,
    MTLDevice, MTLFence, MTLResourceOptions, MTLStorageMode,
};

use super::buffer::Buffer;
use super::core::Core;
use super::encoding::{BlitEncoder, CommandBuffer};
use super::host;
use crate::clock::{Moment, Span};

/// Times of one command buffer: a few pages of samples are all that some devices have for all of a process.
const MOST: usize = 256;
/// Bytes that an encoder writes to be one.
const WORD: usize = 4;

/// Where a device samples its counters.
#[derive(Clone, Copy, PartialEq)]
enum Point {
    /// At the ends of passes.
    Pass,
    /// Between copies.
    Blit,
}

/// How a device notes times, if it can.
pub(super) struct Counters {
    set: Option<(Retained<ProtocolObject<dyn MTLCounterSet>>, Point)>,
    /// A sample was not taken that should have been.
    failed: AtomicBool,
}

impl Counters {
    pub(super) fn of(device: &ProtocolObject<dyn MTLDevice>) -> Self {
        let set = point(device).and_then(|point| Some((timestamps(device)?, point)));
        Self { set, failed: AtomicBool::new(false) }
    }

    /// Do not use them again.
    pub(super) fn distrust(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }
}

/// `supportsCounterSampling:` is there from macOS 11 on.
fn point(device: &ProtocolObject<dyn MTLDevice>) -> Option<Point> {
    if !device.respondsToSelector(sel!(supportsCounterSampling:)) {
        return None;
    }
    let points = [
        (MTLCounterSamplingPoint::AtStageBoundary, Point::Pass),
        (MTLCounterSamplingPoint::AtBlitBoundary, Point::Blit),
    ];
    points.into_iter().find(|(point, _)| device.supportsCounterSampling(*point)).map(|(_, point)| point)
}

/// The set of counters that has the time.
#[allow(unsafe_code)] // constants of Metal's
fn timestamps(device: &ProtocolObject<dyn MTLDevice>) -> Option<Retained<ProtocolObject<dyn MTLCounterSet>>> {
    // SAFETY: constants of the framework, there since macOS 10.15.
    let (set, counter) = unsafe { (MTLCommonCounterSetTimestamp, MTLCommonCounterTimestamp) };
    let has_time = |of: &ProtocolObject<dyn MTLCounterSet>| {
        of.counters().iter().any(|one| one.name().isEqualToString(counter))
    };
    let mut sets = device.counterSets()?.into_iter();
    sets.find(|one| one.name().isEqualToString(set) && has_time(one))
}

/// A queue's samples, used by one command buffer at a time.
pub(super) struct Stamps {
    samples: Retained<ProtocolObject<dyn MTLCounterSampleBuffer>>,
    point: Point,
    pub(super) fence: Retained<ProtocolObject<dyn MTLFence>>,
    word: Buffer,
}

#[allow(unsafe_code)] // the bindings leave it open for sample buffers
// SAFETY: Metal's device objects may be used from any thread; it is resolved only when no command buffer samples.
unsafe impl Send for Stamps {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Stamps {}

impl Stamps {
    /// `None` where times cannot be noted within a command buffer.
    #[allow(unsafe_code)] // sets a number
    pub(super) fn new(core: &Core) -> Option<Self> {
        let (set, point) = core.counters.set.as_ref()?;
        let descriptor = MTLCounterSampleBufferDescriptor::new();
        descriptor.setCounterSet(Some(set));
        descriptor.setStorageMode(MTLStorageMode::Shared);
        // SAFETY: any number may be asked for; the answer to one that is too large is an error.
        unsafe { descriptor.setSampleCount(MOST) };
        let samples = core.device.newCounterSampleBufferWithDescriptor_error(&descriptor).ok()?;
        let word = core.buffer(WORD as u64, MTLResourceOptions::StorageModePrivate).ok()?;
        Some(Self { samples, point: *point, fence: core.device.newFence()?, word })
    }

    /// Whether there is a sample of this number, and samples are taken.
    pub(super) fn has(&self, core: &Core, index: usize) -> bool {
        index < MOST && !core.counters.failed.load(Ordering::Relaxed)
    }

    /// An encoder that takes a sample at its end.
    #[allow(unsafe_code)] // hands numbers to Metal
    pub(super) fn encoder(&self, buffer: &CommandBuffer, index: usize) -> Result<BlitEncoder> {
        let none = || Error::Environment("Metal has no blit encoder".into());
        if self.point == Point::Blit {
            return buffer.blitCommandEncoder().ok_or_else(none);
        }
        let pass = MTLBlitPassDescriptor::new();
        // SAFETY: there is an attachment 0, and the callers have checked the sample's number.
        unsafe {
            let attachment = pass.sampleBufferAttachments().objectAtIndexedSubscript(0);
            attachment.setSampleBuffer(Some(&self.samples));
            attachment.setStartOfEncoderSampleIndex(MTLCounterDontSample);
            attachment.setEndOfEncoderSampleIndex(index);
        }
        buffer.blitCommandEncoderWithDescriptor(&pass).ok_or_else(none)
    }

    /// What the encoder does.
    #[allow(unsafe_code)] // hands a number to Metal
    pub(super) fn encode(&self, encoder: &BlitEncoder, index: usize) {
        encoder.setLabel(Some(ns_string!("timestamp")));
        encoder.fillBuffer_range_value(&self.word, NSRange { location: 0, length: WORD }, 0);
        if self.point == Point::Blit {
            // SAFETY: the callers have checked the sample's number.
            unsafe {
                encoder.sampleCountersInBuffer_atSampleIndex_withBarrier(&self.samples, index, true);
            }
        }
    }

    /// The times of the first `count` samples of a command buffer that has ended.
    #[allow(unsafe_code)] // hands a range to Metal
    pub(super) fn times(&self, count: usize, span: Span) -> impl Iterator<Item = Option<u64>> {
        // SAFETY: the samples were encoded, so there are as many.
        let data = unsafe { self.samples.resolveCounterRange(NSRange { location: 0, length: count }) };
        let bytes = data.map(|data| data.to_vec()).unwrap_or_default();
        (0..count).map(move |index| {
            let (ticks, _) = bytes.get(8 * index..)?.split_first_chunk()?;
            span.host_ns(u64::from_ne_bytes(*ticks))
        })
    }
}

/// What both clocks show now.
#[allow(unsafe_code)] // writes two numbers
pub(super) fn moment(core: &Core) -> Moment {
    let (mut cpu, mut ticks) = (0, 0);
    let before = host::now_ns();
    // SAFETY: both are places for a number.
    unsafe { core.device.sampleTimestamps_gpuTimestamp(NonNull::from(&mut cpu), NonNull::from(&mut ticks)) };
    let behind = host::now_ns();
    Moment::between(before, behind, cpu, ticks)
}
