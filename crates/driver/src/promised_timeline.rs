//! [`PromisedTimeline`]: an event in host memory that knows the points in the work of a device at which it will be signaled.
//!
//! A signal that a queue issues behind work in flight is *promised*: another queue may have its device wait for that work, without
//! the host.

use std::any::Any;

use crate::sync::Mutex;
use crate::{Error, Event, Expected, Reached, Timeline};

/// A point in the work of a device, behind which an event is signaled unless the work fails.
pub trait Promise: Clone + Send + 'static {
    /// The event is about to be signaled. Called before waits for the event end.
    fn kept(&self) {}
}

/// A [`Timeline`] with promised signals.
pub struct PromisedTimeline<P> {
    timeline: Timeline,
    promises: Mutex<Promises<P>>,
}

struct Promises<P> {
    /// The points of values that the event has not reached.
    points: Vec<(u64, P)>,
    /// Callbacks of waits for values that are neither reached nor promised.
    hopes: Vec<(u64, Expected)>,
}

impl<P: Promise> PromisedTimeline<P> {
    /// Creates an event with value 0 and no promises.
    pub fn new() -> Self {
        let promises = Promises { points: Vec::new(), hopes: Vec::new() };
        Self { timeline: Timeline::new(), promises: Mutex::new(promises) }
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
            promises.points.push((value, point));
        }
        drop(promises);
        self.end_hopes(value);
    }

    /// Calls the callbacks of waits for values up to this one.
    fn end_hopes(&self, value: u64) {
        let ended: Vec<_> = self.promises.lock().hopes.extract_if(.., |(hoped, _)| *hoped <= value).collect();
        ended.into_iter().for_each(|(_, then)| then());
    }

    /// The first promised point at which the event has at least this value.
    pub fn promised(&self, value: u64) -> Option<P> {
        self.promises.lock().promised(value).cloned()
    }

    fn keep(&self, value: u64) {
        self.promises
            .lock()
            .points
            .extract_if(.., |(promised, _)| *promised <= value)
            .for_each(|(_, point)| point.kept());
    }
}

impl<P> Promises<P> {
    fn promised(&self, value: u64) -> Option<&P> {
        self.points.iter().find(|(promised, _)| *promised >= value).map(|(_, point)| point)
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
        self.end_hopes(value);
    }

    fn fail(&self, cause: &Error) {
        self.timeline.fail(cause);
        self.promises.lock().points.clear();
        self.end_hopes(u64::MAX);
    }

    fn when(&self, value: u64, then: Reached) {
        self.timeline.when(value, then);
    }

    fn when_expected(&self, value: u64, then: Expected) {
        let mut promises = self.promises.lock();
        if self.timeline.is_pending(value) && promises.promised(value).is_none() {
            return promises.hopes.push((value, then));
        }
        drop(promises);
        then();
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
    fn an_event_is_expected_once_it_is_promised_or_reached_or_has_failed() {
        let event = PromisedTimeline::new();
        let calls = [(); 4].map(|()| Arc::<AtomicU32>::default());
        let expect = |at: usize, value| {
            let calls = calls[at].clone();
            event.when_expected(
                value,
                Box::new(move || {
                    calls.fetch_add(1, Ordering::Relaxed);
                }),
            );
        };
        let counts = || calls.each_ref().map(|calls| calls.load(Ordering::Relaxed));
        (0..3).for_each(|at| expect(at, at as u64 + 1));
        assert_eq!(counts(), [0, 0, 0, 0]);
        event.promise(2, Point("two", Arc::default()));
        assert_eq!(counts(), [1, 1, 0, 0]);
        expect(3, 1);
        assert_eq!(counts(), [1, 1, 0, 1], "2 is promised, and thereby 1");
        event.signal(2, 0);
        assert_eq!(counts(), [1, 1, 0, 1]);
        event.fail(&Error::Cancelled);
        assert_eq!(counts(), [1, 1, 1, 1]);
        expect(2, 9);
        assert_eq!(counts(), [1, 1, 2, 1], "it has failed");
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
