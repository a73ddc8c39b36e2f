//! Model of the event: signals, a failure and waiters, in every interleaving.

use elinvar_driver::{Error, Event};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::model;
use crate::timeline::Timeline;

/// Numbers of callbacks with success and with an error.
#[derive(Default)]
struct Calls {
    reached: AtomicUsize,
    failed: AtomicUsize,
}

impl Calls {
    fn wait(self: &std::sync::Arc<Self>, event: &Timeline, value: u64) {
        let calls = self.clone();
        event.when(
            value,
            Box::new(move |result| {
                let count = if result.is_ok() { &calls.reached } else { &calls.failed };
                count.fetch_add(1, Ordering::SeqCst);
            }),
        );
    }

    fn counts(&self) -> (usize, usize) {
        (self.reached.load(Ordering::SeqCst), self.failed.load(Ordering::SeqCst))
    }
}

#[test]
fn who_waits_is_told_once_whatever_comes_first() {
    model(|| {
        let event = Arc::new(Timeline::new());
        let calls = std::sync::Arc::new(Calls::default());
        let signals = thread::spawn({
            let event = event.clone();
            move || {
                event.signal(1, 10);
                event.signal(2, 20);
            }
        });
        let waits = thread::spawn({
            let (event, calls) = (event.clone(), calls.clone());
            move || calls.wait(&event, 1)
        });
        calls.wait(&event, 2);
        signals.join().unwrap();
        waits.join().unwrap();
        assert_eq!(calls.counts(), (2, 0));
        assert_eq!((event.value(), event.time_ns()), (2, Some(20)));
    });
}

#[test]
fn a_failure_tells_all_who_were_not_reached() {
    model(|| {
        let event = Arc::new(Timeline::new());
        let calls = std::sync::Arc::new(Calls::default());
        calls.wait(&event, 1);
        let signals = thread::spawn({
            let event = event.clone();
            move || event.signal(1, 10)
        });
        let waits = thread::spawn({
            let (event, calls) = (event.clone(), calls.clone());
            move || calls.wait(&event, 2)
        });
        event.fail(&Error::Cancelled);
        signals.join().unwrap();
        waits.join().unwrap();
        let reached = event.value() as usize;
        assert_eq!(calls.counts(), (reached, 2 - reached), "1 is reached or not, 2 is not");
    });
}
