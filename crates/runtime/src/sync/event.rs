//! [`Event`]: a counter by which streams and the host order their work.
//!
//! An event is a driver's event with a start of its own: when the last handle is gone and no work in flight will raise it, a
//! good one goes back to the device to be used again, and one that somebody still waits for fails, so that nobody waits
//! for ever. Waiting holds no handle; a signal in flight does.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use elinvar_driver::{self as driver, Error, Result, Timing};

use crate::sync::completion::{Outcome, Promise};
use crate::sync::dependencies::Step;
use crate::{Completion, Device};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A counter that only grows, from 0. Cloning gives another handle on the same counter.
///
/// Streams raise it ([`crate::Stream::signal`]) and wait for it ([`crate::Stream::wait_for`]), also those of other devices;
/// so does the host. When work that would have raised it fails or is cancelled, the event fails for good: waiting
/// for more than it has reached then ends in [`Error::Poisoned`] with the first cause.
#[derive(Clone)]
pub struct Event {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    event: Arc<dyn driver::Event>,
    /// The value of the driver's event that is this one's 0.
    base: u64,
    id: u64,
}

impl Event {
    pub(crate) fn new(device: Device) -> Result<Self> {
        let event = device.events().take(|| device.driver().event())?;
        let (base, id) = (event.value(), NEXT.fetch_add(1, Ordering::Relaxed));
        Ok(Self { inner: Arc::new(Inner { device, event, base, id }) })
    }

    /// The value that it has reached.
    pub fn value(&self) -> u64 {
        self.inner.event.value() - self.inner.base
    }

    /// When it was raised last, in nanoseconds of the clock of the device that raised it, or of its own if the host did;
    /// `None` before the first time. The time between two events of a device is the difference.
    pub fn time_ns(&self) -> Option<u64> {
        self.inner.event.time_ns().filter(|_| self.value() > 0)
    }

    /// Raise it from the host. Nothing happens if it is as high already or has failed.
    pub fn signal(&self, value: u64) {
        if !self.inner.device.is_here() {
            return;
        }
        self.inner.event.signal(self.inner.value(value), self.inner.device.clock_ns());
    }

    /// Let it fail with this cause.
    pub fn fail(&self, cause: &Error) {
        if !self.inner.device.is_here() {
            return;
        }
        self.inner.event.fail(cause);
    }

    /// The moment when it reaches `value`: to wait for, with or without timeout, or to `await`.
    pub fn reached(&self, value: u64) -> Completion {
        if let Err(error) = self.inner.device.expect_here("an event") {
            return Completion::new(Outcome::failed(error), None);
        }
        let (promise, outcome) = Promise::new();
        // Held until it is called, so that the event is known to be waited for when the last handle is dropped.
        let event = self.inner.event.clone();
        let reached = move |result: Result<()>| {
            let at = event.time_ns().unwrap_or(0);
            promise.resolve(result.map(|()| Timing { start_ns: at, end_ns: at }));
        };
        self.inner.event.when(self.inner.value(value), Box::new(reached));
        Completion::new(outcome, None)
    }

    /// Has `then` called when it has reached `value` or cannot any more, by who raises it.
    pub(crate) fn when(&self, value: u64, then: impl FnOnce(Result<()>) + Send + 'static) {
        self.inner.event.when(self.inner.value(value), Box::new(then));
    }

    /// Block until it has reached `value`.
    ///
    /// # Errors
    /// `Poisoned` when it has failed, or when nobody is left who could raise it.
    pub fn wait(&self, value: u64) -> Result<()> {
        self.reached(value).wait().map(drop)
    }

    /// Block until it has reached `value`, at most for `timeout`; whether it has.
    ///
    /// # Errors
    /// As [`Event::wait`].
    pub fn wait_timeout(&self, value: u64, timeout: Duration) -> Result<bool> {
        Ok(self.reached(value).wait_timeout(timeout)?.is_some())
    }

    /// A wait for `value`, or the signal of it, as data.
    pub(crate) fn step(&self, value: u64, signals: bool) -> Step {
        let Inner { event, id, .. } = &*self.inner;
        Step { event: event.clone(), id: *id, value: self.inner.value(value), shown: value, signals }
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
        // This handle is one; any other belongs to somebody who waits, or to a command.
        if Arc::strong_count(event) == 1 && event.failure().is_none() {
            events.put(event.clone());
        } else {
            let id = self.id;
            event.fail(&Error::invalid(format!("event {id} was dropped with nobody left to raise it")));
            events.discard();
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({}, at {})", self.inner.id, self.value())
    }
}
