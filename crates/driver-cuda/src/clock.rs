//! The device's clock, in nanoseconds: the host's monotonic clock, at which the device's own events are placed.
//!
//! The device tells how long passed between two of its events, as a float of milliseconds that gets coarser with their
//! distance. So there is an *anchor*: an event whose time on the host's clock is known to a few microseconds, because the
//! host waited for it. It is taken anew when it has become old, while nothing is in flight.
//!
//! Events placed by the same anchor are as far apart as the device says. What is told is never before the host asked for
//! the work nor after it learnt of its end.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUstream;
use elinvar_driver::Result;
use parking_lot::Mutex;

use crate::context::{Context, DeviceEvent, Handle};
use crate::failure::Failure;

/// An anchor older than this is taken anew at the next occasion: a millisecond float of 2 s is exact to 0.25 µs.
const OLD: Duration = Duration::from_secs(2);
/// And than this at once, though something is in flight.
const TOO_OLD: Duration = Duration::from_secs(8);
/// Of so many tries the one is taken in which host and device were closest.
const TRIES: u32 = 5;

/// Nanoseconds of the host's monotonic clock since this was first asked for.
pub(crate) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    // One more, so that no time is 0. Fits for 584 years.
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

/// Places events of one device in time.
pub(crate) struct Clock {
    context: Arc<Context>,
    stream: Handle<CUstream>,
    anchor: Mutex<Anchor>,
}

struct Anchor {
    event: DeviceEvent,
    ns: u64,
    taken: Instant,
}

impl Clock {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self> {
        now_ns();
        let _current = context.enter()?;
        let stream = Handle(context.create_stream(0)?);
        let anchor = Mutex::new(
            take(context, stream.0).map_err(|failure| context.error(failure, "reading its clock"))?,
        );
        Ok(Self { context: context.clone(), stream, anchor })
    }

    /// Take the anchor anew if it is old. The context is current, and nothing that was recorded is to be compared with what
    /// will be.
    pub(crate) fn refresh(&self) -> Result<(), Failure> {
        let mut anchor = self.anchor.lock();
        if anchor.taken.elapsed() >= OLD {
            *anchor = take(&self.context, self.stream.0)?;
        }
        Ok(())
    }

    /// The time of an event that the device has come to. The context is current.
    pub(crate) fn place(&self, event: &DeviceEvent) -> Result<u64, Failure> {
        let mut anchor = self.anchor.lock();
        if anchor.taken.elapsed() >= TOO_OLD {
            *anchor = take(&self.context, self.stream.0)?;
        }
        let since = event.since(&anchor.event)?;
        Ok(anchor.ns.saturating_add_signed(since))
    }
}

impl Drop for Clock {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // SAFETY: the stream is ours. A failure leaves it to the process's end.
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
            best = Some((apart, Anchor { event, ns: before + apart / 2, taken: Instant::now() }));
        }
    }
    // There is at least one try, and each that comes so far is kept or beaten.
    best.map(|(_, anchor)| anchor)
        .ok_or(Failure { call: "cuEventRecord", code: crate::failure::code::UNKNOWN })
}
