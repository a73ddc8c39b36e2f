//! [`Stamps`]: samples times within a command buffer.
//!
//! A time is a counter sample of a separate blit encoder that writes one word: some GPUs skip empty encoders, and their samples. On devices
//! that sample at the boundaries of passes (Apple GPUs), the sample is that of the encoder's end; on devices that sample between blits, it
//! follows the blit. A fence serializes the encoders of such a command buffer, so that everything before the sample has completed and nothing
//! behind it has begun.
//!
//! Samples are ticks of the GPU's clock. Both clocks are read when the command buffer is committed and when it has ended; [`Span`] has the
//! formula. `sampleTimestamps:gpuTimestamp:` returns the host time in nanoseconds, of one of two clocks depending on the system (documentation
//! of `MTLTimestamp`). The value is used if it is between readings of our clock before and after the call; otherwise their
//! mean is used.
//!
//! If a sample was not taken (`MTLCounterErrorValue`, or a value outside of the span), the timestamp stays empty and the device's counters
//! are not used again. Without counters, a timestamp ends its command buffer.

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

/// Maximum number of samples of a command buffer: some devices have only a few pages of samples per process.
const MOST: usize = 256;
/// Number of bytes that the blit encoder writes, so that it is not empty.
const WORD: usize = 4;

/// Where a device can sample its counters.
#[derive(Clone, Copy, PartialEq)]
enum Point {
    /// At the boundaries of passes.
    Pass,
    /// Between blits.
    Blit,
}

/// How a device samples times, if it can.
pub(super) struct Counters {
    set: Option<(Retained<ProtocolObject<dyn MTLCounterSet>>, Point)>,
    /// A sample that should have been taken is missing.
    failed: AtomicBool,
}

impl Counters {
    pub(super) fn of(device: &ProtocolObject<dyn MTLDevice>) -> Self {
        let set = point(device).and_then(|point| Some((timestamps(device)?, point)));
        Self { set, failed: AtomicBool::new(false) }
    }

    /// Disables the counters.
    pub(super) fn distrust(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }
}

/// `supportsCounterSampling:` requires macOS 11.
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

/// The counter set that has timestamps.
#[allow(unsafe_code)] // constants of Metal's
fn timestamps(device: &ProtocolObject<dyn MTLDevice>) -> Option<Retained<ProtocolObject<dyn MTLCounterSet>>> {
    // SAFETY: constants of the framework since macOS 10.15.
    let (set, counter) = unsafe { (MTLCommonCounterSetTimestamp, MTLCommonCounterTimestamp) };
    let has_time = |of: &ProtocolObject<dyn MTLCounterSet>| {
        of.counters().iter().any(|one| one.name().isEqualToString(counter))
    };
    let mut sets = device.counterSets()?.into_iter();
    sets.find(|one| one.name().isEqualToString(set) && has_time(one))
}

/// The sample buffer of a queue, used by one command buffer at a time.
pub(super) struct Stamps {
    samples: Retained<ProtocolObject<dyn MTLCounterSampleBuffer>>,
    point: Point,
    pub(super) fence: Retained<ProtocolObject<dyn MTLFence>>,
    word: Buffer,
}

#[allow(unsafe_code)] // the bindings leave it open for sample buffers
// SAFETY: Metal's device objects may be used on any thread; it is resolved only when no command buffer uses it.
unsafe impl Send for Stamps {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Stamps {}

impl Stamps {
    /// `None` if times cannot be sampled within a command buffer.
    #[allow(unsafe_code)] // sets a number
    pub(super) fn new(core: &Core) -> Option<Self> {
        let (set, point) = core.counters.set.as_ref()?;
        let descriptor = MTLCounterSampleBufferDescriptor::new();
        descriptor.setCounterSet(Some(set));
        descriptor.setStorageMode(MTLStorageMode::Shared);
        // SAFETY: any count may be requested; too large a count is an error.
        unsafe { descriptor.setSampleCount(MOST) };
        let samples = core.device.newCounterSampleBufferWithDescriptor_error(&descriptor).ok()?;
        let word = core.buffer(WORD as u64, MTLResourceOptions::StorageModePrivate).ok()?;
        Some(Self { samples, point: *point, fence: core.device.newFence()?, word })
    }

    /// Whether there is a sample with this index, and sampling is enabled.
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
        // SAFETY: attachment 0 exists, and the callers have checked the sample's index.
        unsafe {
            let attachment = pass.sampleBufferAttachments().objectAtIndexedSubscript(0);
            attachment.setSampleBuffer(Some(&self.samples));
            attachment.setStartOfEncoderSampleIndex(MTLCounterDontSample);
            attachment.setEndOfEncoderSampleIndex(index);
        }
        buffer.blitCommandEncoderWithDescriptor(&pass).ok_or_else(none)
    }

    /// Encodes the write of the encoder.
    #[allow(unsafe_code)] // hands a number to Metal
    pub(super) fn encode(&self, encoder: &BlitEncoder, index: usize) {
        encoder.setLabel(Some(ns_string!("timestamp")));
        encoder.fillBuffer_range_value(&self.word, NSRange { location: 0, length: WORD }, 0);
        if self.point == Point::Blit {
            // SAFETY: the callers have checked the sample's index.
            unsafe {
                encoder.sampleCountersInBuffer_atSampleIndex_withBarrier(&self.samples, index, true);
            }
        }
    }

    /// The times of the first `count` samples of a command buffer that has ended.
    #[allow(unsafe_code)] // hands a range to Metal
    pub(super) fn times(&self, count: usize, span: Span) -> impl Iterator<Item = Option<u64>> {
        // SAFETY: that many samples were encoded.
        let data = unsafe { self.samples.resolveCounterRange(NSRange { location: 0, length: count }) };
        let bytes = data.map(|data| data.to_vec()).unwrap_or_default();
        (0..count).map(move |index| {
            let (ticks, _) = bytes.get(8 * index..)?.split_first_chunk()?;
            span.host_ns(u64::from_ne_bytes(*ticks))
        })
    }
}

/// Reads both clocks.
#[allow(unsafe_code)] // writes two numbers
pub(super) fn moment(core: &Core) -> Moment {
    let (mut cpu, mut ticks) = (0, 0);
    let before = host::now_ns();
    // SAFETY: both point to a number.
    unsafe { core.device.sampleTimestamps_gpuTimestamp(NonNull::from(&mut cpu), NonNull::from(&mut ticks)) };
    let behind = host::now_ns();
    core.timing_error_ns.fetch_max((behind - before).div_ceil(2), Ordering::Relaxed);
    Moment::between(before, behind, cpu, ticks)
}
