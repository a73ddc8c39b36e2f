//! [`Cancellation`]: how one thread stops a compilation on another.
//!
//! A compilation runs within [`Cancellation::run`]. Whatever takes long in it, such as a compiler's process, asks for the thread's
//! [`Cancellation::current`] and registers how it is stopped. What was computed is discarded then: a cancelled compilation has no result.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sync::Mutex;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Cancellation>>> = const { RefCell::new(None) };
}

type Stop = Box<dyn FnOnce() + Send>;

/// Stops a compilation.
#[derive(Default)]
pub struct Cancellation {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_cancelled: bool,
    next: u64,
    stops: BTreeMap<u64, Stop>,
}

/// A registration with [`Cancellation::on_cancel`]; ends when it is dropped.
#[must_use]
pub struct OnCancel {
    of: Arc<Cancellation>,
    number: u64,
}

impl Cancellation {
    /// A cancellation of a compilation that has not begun.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Stops the compilation, now and in what it begins later. Repeated calls have no effect.
    pub fn cancel(&self) {
        let stops = {
            let mut state = self.state.lock();
            state.is_cancelled = true;
            std::mem::take(&mut state.stops)
        };
        stops.into_values().for_each(|stop| stop());
    }

    /// Whether it has been cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.state.lock().is_cancelled
    }

    /// Calls `stop` when it is cancelled, on the thread that cancels; at once if it has been.
    pub fn on_cancel(self: &Arc<Self>, stop: impl FnOnce() + Send + 'static) -> OnCancel {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        if state.is_cancelled {
            drop(state);
            stop();
        } else {
            state.stops.insert(number, Box::new(stop));
        }
        OnCancel { of: self.clone(), number }
    }

    /// Runs a compilation on this thread.
    pub fn run<T>(self: &Arc<Self>, compile: impl FnOnce() -> T) -> T {
        with_current(Some(self.clone()), compile)
    }

    /// Runs a part of the compilation that cannot be cancelled, because other compilations use its result.
    pub fn shield<T>(part: impl FnOnce() -> T) -> T {
        with_current(None, part)
    }

    /// The cancellation of the compilation that runs on this thread, if it can be cancelled.
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }
}

fn with_current<T>(current: Option<Arc<Cancellation>>, run: impl FnOnce() -> T) -> T {
    /// Restores the outer one, also after a panic.
    struct Outer(Option<Arc<Cancellation>>);
    impl Drop for Outer {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _outer = Outer(CURRENT.replace(current));
    run()
}

impl Drop for OnCancel {
    fn drop(&mut self) {
        let _removed = self.of.state.lock().stops.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn stops_what_is_registered_once_and_what_comes_later() {
        let (cancellation, calls) = (Cancellation::new(), Arc::new(AtomicU32::new(0)));
        let count = |by: u32| {
            let calls = calls.clone();
            move || {
                calls.fetch_add(by, Ordering::Relaxed);
            }
        };
        drop(cancellation.on_cancel(count(1)));
        let registered = cancellation.on_cancel(count(10));
        assert!(!cancellation.is_cancelled());
        cancellation.cancel();
        cancellation.cancel();
        drop(registered);
        drop(cancellation.on_cancel(count(100)));
        assert_eq!(calls.load(Ordering::Relaxed), 110);
    }

    #[test]
    fn is_the_threads_while_it_runs() {
        let [outer, inner] = [Cancellation::new(), Cancellation::new()];
        let is =
            |of: &Arc<Cancellation>| Cancellation::current().is_some_and(|current| Arc::ptr_eq(&current, of));
        assert!(Cancellation::current().is_none());
        outer.run(|| {
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                inner.run(|| {
                    assert!(is(&inner));
                    std::panic::resume_unwind(Box::new(()));
                })
            }));
            assert!(panicked.is_err() && is(&outer));
            assert!(Cancellation::shield(|| Cancellation::current().is_none()) && is(&outer));
            assert!(std::thread::spawn(|| Cancellation::current().is_none()).join().expect("no panic"));
        });
        assert!(Cancellation::current().is_none());
    }
}
