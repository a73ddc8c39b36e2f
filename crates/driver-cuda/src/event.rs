//! Events: the host's timeline, and the points of streams where the device will raise it.
//!
//! A signal that the device has been given is *promised*: a stream that waits for it waits on the device, and the host takes
//! no part. Only what is sure to come is promised, which is all that the device has been given: what may yet fail, such as a
//! launch with bounds checks, has nothing behind it there. Everything else waits for the host's timeline.

use std::any::Any;
use std::sync::Arc;

use elinvar_driver::{Error, Event, Reached, Timeline};
use parking_lot::Mutex;

use crate::context::DeviceEvent;

/// An event of this driver.
#[derive(Default)]
pub(crate) struct CudaEvent {
    line: Timeline,
    /// What it will have at which point.
    promised: Mutex<Vec<(u64, Arc<DeviceEvent>)>>,
}

impl CudaEvent {
    /// As one of this driver's.
    pub(crate) fn of(event: &dyn Event) -> Option<&Self> {
        let event: &dyn Any = event;
        event.downcast_ref()
    }

    /// The device raises it to `value` at this point.
    pub(crate) fn promise(&self, value: u64, at: &Arc<DeviceEvent>) {
        self.promised.lock().push((value, at.clone()));
    }

    /// Where it will have this value, if that is sure.
    pub(crate) fn promised(&self, value: u64) -> Option<Arc<DeviceEvent>> {
        let promised = self.promised.lock();
        promised.iter().find(|(at_least, _)| *at_least >= value).map(|(_, at)| at.clone())
    }
}

impl Event for CudaEvent {
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
        self.line.signal(value, now_ns);
        self.promised.lock().retain(|(later, _)| *later > value);
    }

    fn fail(&self, cause: &Error) {
        self.line.fail(cause);
        self.promised.lock().clear();
    }

    fn when(&self, value: u64, then: Reached) {
        self.line.when(value, then);
    }
}
