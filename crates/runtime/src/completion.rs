//! [`Completion`]: how submitted work ended, for any number of waiters.
//!
//! An [`Outcome`] is set once, by the driver's callback, and read by everybody: host threads that
//! wait, futures, and the accounts of the memory that the work uses. It never runs user code under its
//! lock. A `Completion` is an outcome plus what is needed to cancel the work.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use elinvar_driver::{Error, Queue, Result, Submission, Timing};
use parking_lot::{Condvar, Mutex};

use crate::gather::Gather;

/// How long a waiting thread spins before it sleeps: about the round trip of an empty dispatch.
const SPIN: Duration = Duration::from_micros(20);
/// How long of that it keeps the processor to itself.
const ALONE: Duration = Duration::from_micros(5);

thread_local! {
    /// Whether the work that this thread waited for last took longer than spinning is worth. It then sleeps at once, so
    /// that its processor is free when the device's own threads look for one.
    static LAST_WAS_LONG: Cell<bool> = const { Cell::new(false) };
}

/// The end of one submission, set once.
#[derive(Default)]
pub(crate) struct Outcome {
    result: OnceLock<Result<Timing>>,
    wakers: Mutex<Vec<(u64, Waker)>>,
    /// Where the work is kept until it goes to the driver with other work, if it is.
    gather: OnceLock<Weak<Gather>>,
    resolved: Condvar,
    next_waiter: AtomicU64,
}

impl Outcome {
    /// An outcome that is known already.
    pub(crate) fn failed(error: Error) -> Arc<Self> {
        let outcome = Self::default();
        outcome.resolve(Err(error));
        Arc::new(outcome)
    }

    pub(crate) fn get(&self) -> Option<&Result<Timing>> {
        self.result.get()
    }

    /// The work is kept there until somebody waits for it.
    pub(crate) fn is_kept_in(&self, gather: &Arc<Gather>) {
        let _once = self.gather.set(Arc::downgrade(gather));
    }

    /// Has the work go to the driver, if it is kept.
    fn hurry(&self) {
        if let Some(gather) = self.gather.get().and_then(Weak::upgrade) {
            gather.flush();
        }
    }

    /// Sets the result and wakes everybody; only the first call counts.
    pub(crate) fn resolve(&self, result: Result<Timing>) {
        if self.result.set(result).is_err() {
            return;
        }
        // Taken after the result is set: a waiter that holds the lock has either seen the result or is
        // asleep by the time this lock is ours.
        let wakers = std::mem::take(&mut *self.wakers.lock());
        self.resolved.notify_all();
        for (_, waker) in wakers {
            // A waker is user code, and this runs on a driver's thread, which must not unwind.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }

    /// Waits until the outcome is known, or until the deadline.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Option<&Result<Timing>> {
        let result = self.wait_somehow(deadline);
        if let Some(Ok(timing)) = result {
            let took = Duration::from_nanos(timing.end_ns.saturating_sub(timing.start_ns));
            LAST_WAS_LONG.set(took > SPIN);
        }
        result
    }

    fn wait_somehow(&self, deadline: Option<Instant>) -> Option<&Result<Timing>> {
        self.hurry();
        let begin = Instant::now();
        let spin = if LAST_WAS_LONG.get() { Duration::ZERO } else { SPIN };
        let spin_end = deadline.map_or(begin + spin, |d| d.min(begin + spin));
        loop {
            if let Some(result) = self.get() {
                return Some(result);
            }
            let now = Instant::now();
            if now >= spin_end {
                break;
            }
            match now - begin < ALONE {
                true => std::hint::spin_loop(),
                false => std::thread::yield_now(),
            }
        }
        let mut lock = self.wakers.lock();
        while self.get().is_none() {
            match deadline {
                None => self.resolved.wait(&mut lock),
                Some(deadline) => {
                    if self.resolved.wait_until(&mut lock, deadline).timed_out() {
                        break;
                    }
                }
            }
        }
        self.get()
    }
}

/// The driver's side of an [`Outcome`]: dropped without an answer, it resolves as an error.
pub(crate) struct Promise(Arc<Outcome>);

impl Promise {
    pub(crate) fn new() -> (Self, Arc<Outcome>) {
        let outcome = Arc::new(Outcome::default());
        (Self(outcome.clone()), outcome)
    }

    pub(crate) fn resolve(self, result: Result<Timing>) {
        self.0.resolve(result);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if self.0.get().is_none() {
            self.0.resolve(Err(given_up()));
        }
    }
}

/// What work ends in that the driver has dropped without an answer.
pub(crate) fn given_up() -> Error {
    Error::DeviceLost("the driver gave the work up without an answer".into())
}

/// Work that was given to a stream.
///
/// It is a future that resolves when the work has ended, on any executor; threads can wait for it as
/// well. Clones are independent waiters for the same work. Dropping it changes nothing: the work runs.
pub struct Completion {
    outcome: Arc<Outcome>,
    /// Where it was submitted; `None` if it never was, because what it reads had failed.
    origin: Option<(Arc<dyn Queue>, Submission)>,
    waiter: u64,
}

impl Completion {
    pub(crate) fn new(outcome: Arc<Outcome>, origin: Option<(Arc<dyn Queue>, Submission)>) -> Self {
        let waiter = outcome.next_waiter.fetch_add(1, Ordering::Relaxed);
        Self { outcome, origin, waiter }
    }

    /// Block until the work has ended.
    ///
    /// # Errors
    /// How the work failed: `Fault`, `Poisoned` with the first cause, `Cancelled`, `DeviceLost`.
    pub fn wait(&self) -> Result<Timing> {
        loop {
            if let Some(result) = self.outcome.wait(None) {
                return result.clone();
            }
        }
    }

    /// Block until the work has ended, at most for `timeout`; `None` when it has not ended by then, which
    /// changes nothing: the work goes on and can be waited for again.
    ///
    /// # Errors
    /// As [`Completion::wait`].
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Option<Timing>> {
        let deadline = Instant::now().checked_add(timeout);
        self.outcome.wait(deadline).cloned().transpose()
    }

    /// Whether the work has ended, well or not.
    pub fn is_done(&self) -> bool {
        self.outcome.get().is_some()
    }

    /// When the work ran, once it has ended well.
    pub fn timing(&self) -> Option<Timing> {
        self.outcome.get().and_then(|result| result.as_ref().ok().copied())
    }

    /// Take the work out of its stream if it has not begun: it then ends in [`Error::Cancelled`], and the
    /// answer is `true`. `false` when it has begun or ended; nothing changes then.
    ///
    /// Memory that the work would have written keeps what it holds. A cancelled submission is no
    /// failure: work behind it runs.
    pub fn cancel(&self) -> bool {
        self.origin.as_ref().is_some_and(|(queue, submission)| queue.cancel(*submission))
    }
}

impl Clone for Completion {
    fn clone(&self) -> Self {
        Self::new(self.outcome.clone(), self.origin.clone())
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if !self.is_done() {
            let mut wakers = self.outcome.wakers.lock();
            if let Some(at) = wakers.iter().position(|(waiter, _)| *waiter == self.waiter) {
                let waker = wakers.swap_remove(at);
                drop(wakers); // a waker's drop is user code
                drop(waker);
            }
        }
    }
}

impl Future for Completion {
    type Output = Result<Timing>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.outcome.get() {
            return Poll::Ready(result.clone());
        }
        self.outcome.hurry();
        let waker = context.waker().clone();
        let mut wakers = self.outcome.wakers.lock();
        if let Some(result) = self.outcome.get() {
            return Poll::Ready(result.clone());
        }
        let replaced = match wakers.iter_mut().find(|(waiter, _)| *waiter == self.waiter) {
            Some((_, old)) => Some(std::mem::replace(old, waker)),
            None => {
                wakers.push((self.waiter, waker));
                None
            }
        };
        drop(wakers);
        drop(replaced);
        Poll::Pending
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completion({:?})", self.outcome.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_that_is_dropped_is_an_error() {
        let (promise, outcome) = Promise::new();
        let waiter = std::thread::spawn({
            let outcome = outcome.clone();
            move || outcome.wait(None).cloned()
        });
        drop(promise);
        assert!(matches!(waiter.join().unwrap(), Some(Err(Error::DeviceLost(_)))));
        assert!(matches!(outcome.get(), Some(Err(Error::DeviceLost(_)))));
    }

    #[test]
    fn the_first_result_counts() {
        let (promise, outcome) = Promise::new();
        promise.resolve(Ok(Timing { start_ns: 1, end_ns: 2 }));
        outcome.resolve(Err(Error::Cancelled));
        assert!(matches!(outcome.get(), Some(Ok(Timing { start_ns: 1, end_ns: 2 }))));
    }
}
