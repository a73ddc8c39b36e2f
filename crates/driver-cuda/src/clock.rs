//! The device's clock: the host's monotonic clock, in nanoseconds, to which device events are aligned.
//!
//! CUDA reports the time between two events as a float in milliseconds, whose resolution decreases with the distance. Times are therefore
//! relative to an *anchor*: an event whose host time is known within a few microseconds, because the host waited for it. An old anchor is
//! replaced while nothing is in flight.
//!
//! Differences of events with the same anchor are those that the device reports. Reported times are clamped between the time of
//! submission and the time at which the host observed completion.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUstream;
use elinvar_driver::Result;
use parking_lot::Mutex;

use crate::context::{Context, DeviceEvent, Handle};
use crate::failure::Failure;

/// Age at which the anchor is replaced when nothing is in flight: a float of 2 s in milliseconds has a resolution of 0.25 µs.
const OLD: Duration = Duration::from_secs(2);
/// Age at which the anchor is replaced even if work is in flight.
const TOO_OLD: Duration = Duration::from_secs(8);
/// Resolution of a time between an anchor and an event: that of a float of [`TOO_OLD`] in milliseconds, and of the events themselves, 0.5 µs
/// (CUDA driver API, `cuEventElapsedTime`).
const RESOLUTION_NS: u64 = 500 + 500;
/// Number of attempts to set an anchor; the attempt with the smallest difference between host and device is used.
const TRIES: u32 = 5;

/// Nanoseconds of the host's monotonic clock since the first call.
pub(crate) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    // Plus one, so that no time is 0. Does not overflow for 584 years.
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

/// Converts events of one device to times.
pub(crate) struct Clock {
    context: Arc<Context>,
    stream: Handle<CUstream>,
    anchor: Mutex<Anchor>,
    /// The largest error of an anchor, with the resolution.
    error_ns: AtomicU64,
}

struct Anchor {
    event: DeviceEvent,
    ns: u64,
    /// Half of the time in which the device reached it, rounded up.
    error_ns: u64,
    taken: Instant,
}

impl Clock {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self> {
        now_ns();
        let _current = context.enter()?;
        let stream = Handle(context.create_stream(0)?);
        let anchor =
            take(context, stream.0).map_err(|failure| context.error(failure, "reading its clock"))?;
        let error_ns = AtomicU64::new(anchor.error_ns + RESOLUTION_NS);
        Ok(Self { context: context.clone(), stream, anchor: Mutex::new(anchor), error_ns })
    }

    /// Bound of the error of the times so far.
    pub(crate) fn error_ns(&self) -> u64 {
        self.error_ns.load(Ordering::Relaxed)
    }

    /// Replaces the anchor if it is old. The context must be current. Events recorded before must not be compared with later ones.
    pub(crate) fn refresh(&self) -> Result<(), Failure> {
        let mut anchor = self.anchor.lock();
        if anchor.taken.elapsed() >= OLD {
            *anchor = take(&self.context, self.stream.0)?;
        }
        Ok(())
    }

    /// The time of an event that the device has reached. The context must be current.
    pub(crate) fn place(&self, event: &DeviceEvent) -> Result<u64, Failure> {
        let mut anchor = self.anchor.lock();
        if anchor.taken.elapsed() >= TOO_OLD {
            *anchor = take(&self.context, self.stream.0)?;
        }
        self.error_ns.fetch_max(anchor.error_ns + RESOLUTION_NS, Ordering::Relaxed);
        let since = event.since(&anchor.event)?;
        Ok(anchor.ns.saturating_add_signed(since))
    }
}

impl Drop for Clock {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // SAFETY: the stream is ours. On failure, it is released at the end of the process.
            let _left = unsafe { self.context.api.destroy_stream(self.stream.0) };
        }
    }
}

fn take(context: &Arc<Context>, stream: CUstream) -> Result<Anchor, Failure> {
    let mut best: Option<(u64, Anchor)> = None;
    for _ in 0..TRIES {
        let before = now_ns();
        let event = DeviceEvent::record(context, stream)?;
        event.wait()?;
        let after = now_ns();
        let apart = after - before;
        if best.as_ref().is_none_or(|(least, _)| apart < *least) {
            best = Some((
                apart,
                Anchor { event, ns: before + apart / 2, error_ns: apart.div_ceil(2), taken: Instant::now() },
            ));
        }
    }
    // There is at least one attempt, and the best successful one is kept.
    best.map(|(_, anchor)| anchor)
        .ok_or(Failure { call: "cuEventRecord", code: crate::failure::code::UNKNOWN })
}
