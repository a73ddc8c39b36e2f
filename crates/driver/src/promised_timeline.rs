//! [`PromisedTimeline`]: an event in host memory that knows the points in the work of a device at which it will be signaled.
//!
//! A signal that a queue issues behind work in flight is *promised*: another queue may have its device wait for that work, without
//! the host.

use std::any::Any;

use crate::sync::Mutex;
use crate::{Error, Event, Reached, Timeline};

/// A point in the work of a device, behind which an event is signaled unless the work fails.
pub trait Promise: Clone + Send + 'static {
    /// The event is about to be signaled. Called before waits for the event end.
    fn kept(&self) {}
}

/// A [`Timeline`] with promised signals.
pub struct PromisedTimeline<P> {
    timeline: Timeline,
    /// The points of values that the event has not reached.
    promises: Mutex<Vec<(u64, P)>>,
}

impl<P: Promise> PromisedTimeline<P> {
    /// Creates an event with value 0 and no promises.
    pub fn new() -> Self {
        Self { timeline: Timeline::new(), promises: Mutex::new(Vec::new()) }
    }

    /// The event as one of this type.
    pub fn of(event: &dyn Event) -> Option<&Self> {
        let event: &dyn Any = event;
        event.downcast_ref()
    }

    /// Promises `value` at a point. No effect if the event has reached the value or has failed.
    pub fn promise(&self, value: u64, point: P) {
        let mut promises = self.promises.lock();
        if self.timeline.is_pending(value) {
            promises.push((value, point));
        }
    }

    /// The first promised point at which the event has at least this value.
    pub fn promised(&self, value: u64) -> Option<P> {
        let promises = self.promises.lock();
        promises.iter().find(|(promised, _)| *promised >= value).map(|(_, point)| point.clone())
    }

    fn keep(&self, value: u64) {
        self.promises
            .lock()
            .extract_if(.., |(promised, _)| *promised <= value)
            .for_each(|(_, point)| point.kept());
    }
}

impl<P: Promise> Default for PromisedTimeline<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Promise> Event for PromisedTimeline<P> {
    fn value(&self) -> u64 {
        self.timeline.value()
    }

    fn time_ns(&self) -> Option<u64> {
        self.timeline.time_ns()
    }

    fn failure(&self) -> Option<Error> {
        self.timeline.failure()
    }

    fn is_pending(&self, value: u64) -> bool {
        self.timeline.is_pending(value)
    }

    fn signal(&self, value: u64, now_ns: u64) {
        self.keep(value);
        self.timeline.signal(value, now_ns);
        // What was promised meanwhile.
        self.keep(value);
    }

    fn fail(&self, cause: &Error) {
        self.timeline.fail(cause);
        self.promises.lock().clear();
    }

    fn when(&self, value: u64, then: Reached) {
        self.timeline.when(value, then);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Clone)]
    struct Point(&'static str, Arc<AtomicU32>);

    impl Promise for Point {
        fn kept(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn name(event: &PromisedTimeline<Point>, value: u64) -> Option<&'static str> {
        event.promised(value).map(|point| point.0)
    }

    #[test]
    fn the_first_point_of_at_least_a_value_is_its_promise() {
        let (event, kept) = (PromisedTimeline::new(), Arc::<AtomicU32>::default());
        event.promise(2, Point("two", kept.clone()));
        event.promise(4, Point("four", kept));
        assert_eq!(
            [1, 2, 3, 4, 5].map(|value| name(&event, value)),
            [Some("two"), Some("two"), Some("four"), Some("four"), None]
        );
    }

    #[test]
    fn promises_are_kept_before_waits_end_and_forgotten_then() {
        let (event, kept) = (PromisedTimeline::new(), Arc::<AtomicU32>::default());
        event.promise(1, Point("one", kept.clone()));
        event.promise(2, Point("two", kept.clone()));
        let (sender, seen) = std::sync::mpsc::channel();
        let at_wake = kept.clone();
        event.when(1, Box::new(move |_| sender.send(at_wake.load(Ordering::Relaxed)).unwrap()));
        event.signal(1, 0);
        assert_eq!(seen.try_recv(), Ok(1));
        assert_eq!([1, 2].map(|value| name(&event, value)), [Some("two"); 2]);
        event.promise(1, Point("late", kept.clone()));
        assert_eq!(name(&event, 1), Some("two"), "1 is reached: nothing is promised");
        event.signal(2, 0);
        assert_eq!((name(&event, 1), kept.load(Ordering::Relaxed)), (None, 2));
    }

    #[test]
    fn a_failure_ends_all_promises() {
        let (event, kept) = (PromisedTimeline::new(), Arc::<AtomicU32>::default());
        event.promise(1, Point("one", kept.clone()));
        event.fail(&Error::Cancelled);
        event.promise(2, Point("two", kept.clone()));
        assert_eq!((name(&event, 1), kept.load(Ordering::Relaxed)), (None, 0));
    }
}
