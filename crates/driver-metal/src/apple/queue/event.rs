//! Events: the host's timeline, and the command buffers in flight behind which it is raised.
//!
//! A signal that a queue has come to behind a command buffer in flight is *promised*. A queue of the same device that waits for it may
//! have its GPU wait for that command buffer. Whether the event is raised is known when the host does so, or fails it.

use std::any::Any;
use std::sync::Arc;

use elinvar_driver::{Error, Event, Reached, Timeline};
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::MTLSharedEvent;
use parking_lot::Mutex;

use crate::ahead::Gate;
use crate::apple::core::Core;

/// An event of this driver.
#[derive(Default)]
pub(in crate::apple) struct MetalEvent {
    line: Timeline,
    /// With the values that it will have.
    promises: Mutex<Vec<(u64, Promise)>>,
}

/// A point that a GPU comes to.
#[derive(Clone)]
pub(in crate::apple) struct Promise {
    /// Of the queue.
    pub(in crate::apple) counter: Retained<ProtocolObject<dyn MTLSharedEvent>>,
    /// What the counter is raised to.
    pub(in crate::apple) number: u64,
    /// What may fail before.
    pub(in crate::apple) gate: Arc<Gate>,
    /// The address of the device.
    pub(in crate::apple) device: usize,
}

impl Promise {
    pub(super) fn is_of(&self, core: &Arc<Core>) -> bool {
        self.device == Arc::as_ptr(core).addr()
    }
}

impl MetalEvent {
    /// As one of this driver's.
    pub(super) fn of(event: &dyn Event) -> Option<&Self> {
        let event: &dyn Any = event;
        event.downcast_ref()
    }

    pub(super) fn promise(&self, value: u64, promise: Promise) {
        let mut promises = self.promises.lock();
        if self.line.is_pending(value) {
            promises.push((value, promise));
        }
    }

    /// Where it will have this value, if nothing fails.
    pub(super) fn promised(&self, value: u64) -> Option<Promise> {
        let promises = self.promises.lock();
        promises.iter().find(|(at_least, _)| *at_least >= value).map(|(_, promise)| promise.clone())
    }
}

impl Event for MetalEvent {
    fn value(&self) -> u64 {
        self.line.value()
    }

    fn time_ns(&self) -> Option<u64> {
        self.line.time_ns()
    }

    fn failure(&self) -> Option<Error> {
        self.line.failure()
    }

    fn is_pending(&self, value: u64) -> bool {
        self.line.is_pending(value)
    }

    fn signal(&self, value: u64, now_ns: u64) {
        // Before who waits goes on.
        for (_, promise) in self.promises.lock().extract_if(.., |(at, _)| *at <= value) {
            promise.gate.open();
        }
        self.line.signal(value, now_ns);
    }

    fn fail(&self, cause: &Error) {
        self.promises.lock().clear();
        self.line.fail(cause);
    }

    fn when(&self, value: u64, then: Reached) {
        self.line.when(value, then);
    }
}
