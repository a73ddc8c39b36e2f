//! [`Event`]: a counter that orders work of streams and the host.
//!
//! An event is a driver's event with an offset. When the last handle is gone and no pending work will signal it, an intact event
//! returns to the device's pool, and one that somebody waits for fails, so that nobody waits forever. A wait holds no handle; a
//! pending signal does.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use elinvar_driver::{self as driver, Error, Result, Timing};

use crate::sync::completion::{Outcome, Promise};
use crate::sync::dependencies::EventOp;
use crate::{Completion, Device};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A monotonic counter that starts at 0 (a timeline semaphore). A clone is another handle on the same counter.
///
/// Streams of any device signal values ([`crate::Stream::signal`]) and wait for them ([`crate::Stream::wait_for`]); so does the
/// host. If work that would have signaled it fails or is cancelled, the event fails permanently: waits for greater values then
/// end in [`Error::Poisoned`] with the first cause.
#[derive(Clone)]
pub struct Event {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    event: Arc<dyn driver::Event>,
    /// The driver's value that corresponds to 0.
    base: u64,
    id: u64,
}

impl Event {
    pub(crate) fn new(device: Device) -> Result<Self> {
        let event = device.events().take(|| device.driver().event())?;
        let (base, id) = (event.value(), NEXT.fetch_add(1, Ordering::Relaxed));
        Ok(Self { inner: Arc::new(Inner { device, event, base, id }) })
    }

    /// Current value.
    pub fn value(&self) -> u64 {
        self.inner.event.value() - self.inner.base
    }

    /// Time of the last signal in nanoseconds, on the clock of the device that signaled, or of the event's own device if the host
    /// did; `None` before the first signal. Differences are meaningful between signals of one device.
    pub fn time_ns(&self) -> Option<u64> {
        self.inner.event.time_ns().filter(|_| self.value() > 0)
    }

    /// Signals `value` from the host. No effect if the current value is not less, or if the event has failed.
    pub fn signal(&self, value: u64) {
        if !self.inner.device.is_here() {
            return;
        }
        self.inner.event.signal(self.inner.value(value), self.inner.device.clock_ns());
    }

    /// Fails the event with a cause. The first cause is kept.
    pub fn fail(&self, cause: &Error) {
        if !self.inner.device.is_here() {
            return;
        }
        self.inner.event.fail(cause);
    }

    /// A completion that resolves when the event reaches `value`; it can be waited for, with or without timeout, or awaited.
    pub fn reached(&self, value: u64) -> Completion {
        if let Err(error) = self.inner.device.expect_here("an event") {
            return Completion::new(Outcome::failed(error), None);
        }
        let (promise, outcome) = Promise::new();
        // The callback holds the driver's event, so that a drop of the last handle detects the waiter.
        let event = self.inner.event.clone();
        let reached = move |result: Result<()>| {
            let at = event.time_ns().unwrap_or(0);
            promise.resolve(result.map(|()| Timing { start_ns: at, end_ns: at }));
        };
        self.inner.event.when(self.inner.value(value), Box::new(reached));
        Completion::new(outcome, None)
    }

    /// Calls `then` when `value` is reached or can no longer be reached, on the signaling thread.
    pub(crate) fn when(&self, value: u64, then: impl FnOnce(Result<()>) + Send + 'static) {
        self.inner.event.when(self.inner.value(value), Box::new(then));
    }

    /// Blocks until the event reaches `value`.
    ///
    /// # Errors
    /// `Poisoned` if the event has failed, or if nothing is left that could signal it; `WouldDeadlock` as [`Completion::wait`].
    pub fn wait(&self, value: u64) -> Result<()> {
        self.reached(value).wait().map(drop)
    }

    /// Blocks until the event reaches `value`, for at most `timeout`. Returns whether it has.
    ///
    /// # Errors
    /// As [`Event::wait`].
    pub fn wait_timeout(&self, value: u64, timeout: Duration) -> Result<bool> {
        Ok(self.reached(value).wait_timeout(timeout)?.is_some())
    }

    /// The driver's event, and its value.
    pub(crate) fn point(&self, value: u64) -> driver::Point {
        driver::Point { event: self.inner.event.clone(), value: self.inner.value(value) }
    }

    /// A wait for `value`, or a signal of it, as data.
    pub(crate) fn op(&self, value: u64, signals: bool) -> EventOp {
        let Inner { event, id, .. } = &*self.inner;
        EventOp { event: event.clone(), id: *id, value: self.inner.value(value), shown: value, signals }
    }
}

impl Inner {
    fn value(&self, value: u64) -> u64 {
        self.base.saturating_add(value)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.device.is_here() {
            return;
        }
        let (events, event) = (self.device.events(), &self.event);
        // One reference is this handle's; any other belongs to a waiter or a command.
        if Arc::strong_count(event) == 1 && event.failure().is_none() {
            events.put(event.clone());
        } else {
            let id = self.id;
            event.fail(&Error::invalid(format!(
                "event {id} was dropped, and nothing is left that could signal it"
            )));
            events.discard();
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({}, at {})", self.inner.id, self.value())
    }
}
