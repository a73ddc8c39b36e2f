//! [`Event`]: monotonic counters that synchronize queues and the host.

use std::any::Any;
use std::fmt;

use crate::{Command, Error, Result};

/// Callback of a wait: called once, when the event has reached the value or can no longer reach it, without a lock of the event held.
pub type Reached = Box<dyn FnOnce(Result<()>) + Send>;

/// Callback of [`Event::when_expected`], called once, without a lock of the event held.
pub type Expected = Box<dyn FnOnce() + Send>;

/// A monotonic counter that starts at 0 (a timeline semaphore). Queues and the host signal values and wait for them.
///
/// An event can fail, permanently: it keeps its value, and waits for greater values end in [`Error::Poisoned`].
pub trait Event: Send + Sync + Any {
    /// Current value.
    fn value(&self) -> u64;

    /// Time of the last signal in nanoseconds, on the clock of the device that signaled; `None` before the first signal.
    fn time_ns(&self) -> Option<u64>;

    /// The cause of its failure, if it has failed.
    fn failure(&self) -> Option<Error>;

    /// The cause if it has failed and cannot reach `value`. It may reach a value and fail between two calls, so this reads the failure first: an event that has
    /// failed keeps its value.
    fn failure_below(&self, value: u64) -> Option<Error> {
        self.failure().filter(|_| self.value() < value)
    }

    /// Whether a wait for `value` is pending: the value is not reached, and the event has not failed.
    fn is_pending(&self, value: u64) -> bool;

    /// Signals `value` at the time `now_ns` (nanoseconds, on the device's clock). No effect if the current value is not less, or if
    /// the event has failed.
    fn signal(&self, value: u64, now_ns: u64);

    /// Fails the event with a cause. The first cause is kept.
    fn fail(&self, cause: &Error);

    /// Calls `then` when `value` is reached or can no longer be reached; immediately if either is the case.
    fn when(&self, value: u64, then: Reached);

    /// Calls `then` as soon as a device may be made to wait for `value`: when its signal is promised ([`PromisedTimeline`](crate::PromisedTimeline)), or
    /// as [`Event::when`], which it is by default.
    fn when_expected(&self, value: u64, then: Expected) {
        self.when(value, Box::new(move |_| then()));
    }
}

impl fmt::Debug for dyn Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event(at {})", self.value())
    }
}

/// Fails all events that `commands` would have signaled and have not, with `cause`. A driver calls this when a submission ends in an
/// error.
pub fn fail_signals(commands: &[Command], cause: &Error) {
    for command in commands {
        if let Command::Signal { event, value } = command
            && event.value() < *value
        {
            event.fail(cause);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::Timeline;

    fn reached(event: &Timeline, value: u64) -> Receiver<Result<()>> {
        let (sender, receiver) = channel();
        event.when(value, Box::new(move |result| sender.send(result).unwrap()));
        receiver
    }

    #[test]
    fn it_grows_and_tells_those_who_wait() {
        let event = Timeline::new();
        assert_eq!((event.value(), event.time_ns()), (0, None));
        let (now, two, three) = (reached(&event, 0), reached(&event, 2), reached(&event, 3));
        assert!(now.try_recv().unwrap().is_ok());
        event.signal(1, 10);
        assert!(two.try_recv().is_err());
        event.signal(2, 20);
        assert!(two.try_recv().unwrap().is_ok() && three.try_recv().is_err());
        event.signal(1, 30);
        assert_eq!((event.value(), event.time_ns()), (2, Some(20)), "it never goes back");
        event.signal(u64::MAX, 40);
        assert!(three.try_recv().unwrap().is_ok() && reached(&event, u64::MAX).try_recv().unwrap().is_ok());
    }

    #[test]
    fn a_failure_is_for_good_and_for_what_was_not_reached() {
        let event = Timeline::new();
        event.signal(1, 0);
        let two = reached(&event, 2);
        event.fail(&Error::Cancelled);
        event.fail(&Error::DeviceLost("later".into()));
        event.signal(9, 1);
        let is_poisoned = |result: Result<()>| matches!(result, Err(Error::Poisoned(cause)) if matches!(*cause, Error::Cancelled));
        assert!(is_poisoned(two.try_recv().unwrap()));
        assert!(is_poisoned(reached(&event, 2).try_recv().unwrap()));
        assert!(reached(&event, 1).try_recv().unwrap().is_ok());
        assert_eq!(event.value(), 1);
    }

    #[test]
    fn a_callback_may_use_the_event() {
        let event = Arc::new(Timeline::new());
        let (sender, values) = channel();
        event.when(
            1,
            Box::new({
                let event = event.clone();
                move |_| {
                    event.signal(2, 0);
                    sender.send(event.value()).unwrap();
                }
            }),
        );
        event.signal(1, 0);
        assert_eq!(values.try_recv(), Ok(2));
    }

    #[test]
    fn what_a_failed_submission_would_have_signalled_fails() {
        let events: Vec<Arc<Timeline>> = (0..2).map(|_| Arc::default()).collect();
        events[0].signal(3, 0);
        let signal = |event: &Arc<Timeline>| Command::Signal { event: event.clone(), value: 3 };
        fail_signals(&[signal(&events[0]), signal(&events[1])], &Error::Cancelled);
        assert!(events[0].failure().is_none(), "it was reached before");
        assert!(events[1].failure().is_some());
    }
}
