//! Events: counters that order queues and the host.

use std::any::Any;
use std::fmt;

use crate::{Command, Error, Result};

/// Called once, when an event has reached a value or can no longer; not under a lock of the event.
pub type Reached = Box<dyn FnOnce(Result<()>) + Send>;

/// A counter that only grows, from 0. Queues and the host raise it and wait until it has reached a value.
///
/// It can fail, once and for good: it then keeps its value, and waiting for more ends in [`Error::Poisoned`].
pub trait Event: Send + Sync + Any {
    /// The value that it has reached.
    fn value(&self) -> u64;

    /// When it got there, by the clock that it was signalled with; `None` before the first time.
    fn time_ns(&self) -> Option<u64>;

    /// Why it has failed, if it has.
    fn failure(&self) -> Option<Error>;

    /// Whether it may still reach `value`: it is below, and has not failed.
    fn is_pending(&self, value: u64) -> bool;

    /// Raise it to `value`, at the time `now_ns` of the clock of the device. Nothing happens if it is as high already or has
    /// failed.
    fn signal(&self, value: u64, now_ns: u64);

    /// Let it fail with this cause. Only the first counts.
    fn fail(&self, cause: &Error);

    /// Have `then` called once it has reached `value`, or cannot any more; at once where that is known.
    fn when(&self, value: u64, then: Reached);
}

impl fmt::Debug for dyn Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event(at {})", self.value())
    }
}

/// Let all events fail that `commands` have not raised and now never will, because of `cause`. A driver calls this when a
/// submission ends in an error.
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
