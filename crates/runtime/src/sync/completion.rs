//! [`Completion`]: result of submitted work, for any number of waiters.
//!
//! An [`Outcome`] is set once, by the driver's callback, and read by host threads that wait, by futures, and by the usage records
//! of the memory that the work uses. It does not run user code under its lock. A `Completion` is an outcome and the means to
//! cancel the work.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use elinvar_driver::sync::{Condvar, Mutex, OnceLock};
use elinvar_driver::{Callback, Error, Process, Queue, Result, Submission, Timing};
use smallvec::SmallVec;

use crate::sync::coalesce::Coalescer;

/// Time that a waiting thread spins before it sleeps: about the round trip of an empty dispatch.
const SPIN: Duration = Duration::from_micros(20);
/// Part of that time in which it spins without yielding.
const ALONE: Duration = Duration::from_micros(5);

thread_local! {
    /// Whether this thread's last wait exceeded the spin time. The next wait then sleeps immediately, so that the
    /// processor is free for the device's threads.
    static LAST_WAS_LONG: Cell<bool> = const { Cell::new(false) };
}

/// Result of a submission, set once.
pub(crate) struct Outcome {
    /// The process that created it: a forked child receives no notification.
    process: Process,
    result: OnceLock<Result<Timing>>,
    wakers: Mutex<Vec<(u64, Waker)>>,
    /// The coalescer that holds the work, if any.
    coalescer: OnceLock<Weak<Coalescer>>,
    resolved: Condvar,
    next_waiter: AtomicU64,
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            process: Process::this(),
            result: OnceLock::new(),
            wakers: Mutex::default(),
            coalescer: OnceLock::new(),
            resolved: Condvar::new(),
            next_waiter: AtomicU64::new(0),
        }
    }
}

impl Outcome {
    /// An outcome that is already set.
    pub(crate) fn failed(error: Error) -> Arc<Self> {
        let outcome = Self::default();
        outcome.resolve(Err(error));
        Arc::new(outcome)
    }

    pub(crate) fn get(&self) -> Option<&Result<Timing>> {
        self.result.get()
    }

    /// Records that the work is held by a coalescer until somebody waits for it.
    pub(crate) fn is_kept_in(&self, coalescer: &Arc<Coalescer>) {
        let _once = self.coalescer.set(Arc::downgrade(coalescer));
    }

    /// Submits the work to the driver if a coalescer holds it.
    fn hurry(&self) {
        if let Some(coalescer) = self.coalescer.get().and_then(Weak::upgrade) {
            coalescer.flush();
        }
    }

    /// Sets the result and wakes all waiters; later calls have no effect.
    pub(crate) fn resolve(&self, result: Result<Timing>) {
        if self.result.set(result).is_err() {
            return;
        }
        // Locked after the result is set: a waiter that held the lock has either seen the result or is
        // waiting by now.
        let wakers = std::mem::take(&mut *self.wakers.lock());
        self.resolved.notify_all();
        let _callback = Callback::enter();
        for (_, waker) in wakers {
            // A waker is user code, and a driver's thread must not unwind.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }

    /// Waits for the outcome. `what` names the wait in errors.
    ///
    /// # Errors
    /// `WouldDeadlock` in a callback, unless the outcome is set.
    pub(crate) fn wait(&self, what: &str) -> Result<&Result<Timing>> {
        loop {
            if let Some(result) = self.wait_until(None, what)? {
                return Ok(result);
            }
        }
    }

    /// Waits for the outcome until the deadline, and returns `None` then. With a deadline in the past it does not block.
    ///
    /// # Errors
    /// As [`Outcome::wait`].
    pub(crate) fn wait_until(
        &self,
        deadline: Option<Instant>,
        what: &str,
    ) -> Result<Option<&Result<Timing>>> {
        self.wait_with(deadline, what, |is_over| while !is_over() {})
    }

    /// As [`Outcome::wait_until`]; `spin` calls its argument until that returns true.
    ///
    /// # Errors
    /// As [`Outcome::wait_until`].
    fn wait_with(
        &self,
        deadline: Option<Instant>,
        what: &str,
        spin: impl FnOnce(&mut dyn FnMut() -> bool),
    ) -> Result<Option<&Result<Timing>>> {
        if let Some(result) = self.get() {
            return Ok(Some(result));
        }
        self.process.expect_this(&what)?;
        let begin = Instant::now();
        if deadline.is_none_or(|deadline| deadline > begin) {
            Callback::expect_none(what)?;
        }
        let result = self.block(begin, deadline, spin);
        if let Some(Ok(timing)) = result {
            let took = Duration::from_nanos(timing.end_ns.saturating_sub(timing.start_ns));
            LAST_WAS_LONG.set(took > SPIN);
        }
        Ok(result)
    }

    fn block(
        &self,
        begin: Instant,
        deadline: Option<Instant>,
        spin: impl FnOnce(&mut dyn FnMut() -> bool),
    ) -> Option<&Result<Timing>> {
        self.hurry();
        let longest = if LAST_WAS_LONG.get() { Duration::ZERO } else { SPIN };
        let spin_end = deadline.map_or(begin + longest, |d| d.min(begin + longest));
        spin(&mut || {
            if self.get().is_some() {
                return true;
            }
            let now = Instant::now();
            match now - begin < ALONE {
                true => std::hint::spin_loop(),
                false => std::thread::yield_now(),
            }
            now >= spin_end
        });
        if let Some(result) = self.get() {
            return Some(result);
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

/// Number of outcomes that a command list keeps. The last one may still be in use by the thread that resolves it.
const SPARE: usize = 2;
/// Outcomes of earlier submissions.
pub(crate) type Spare = SmallVec<[Arc<Outcome>; SPARE]>;

/// The driver's side of an [`Outcome`]: if dropped without a result, it resolves to an error.
pub(crate) struct Promise(Arc<Outcome>);

impl Promise {
    pub(crate) fn new() -> (Self, Arc<Outcome>) {
        let outcome = Arc::new(Outcome::default());
        (Self(outcome.clone()), outcome)
    }

    /// As [`Promise::new`], with one of the spare outcomes if nobody has it any more.
    pub(crate) fn reuse(spare: &mut Spare) -> (Self, Arc<Outcome>) {
        let unused = spare.iter_mut().find_map(|outcome| {
            *Arc::get_mut(outcome)? = Outcome::default();
            Some(outcome.clone())
        });
        let outcome = unused.unwrap_or_else(|| {
            let outcome = Arc::new(Outcome::default());
            spare.truncate(SPARE - 1);
            spare.insert(0, outcome.clone());
            outcome
        });
        (Self(outcome.clone()), outcome)
    }

    pub(crate) fn resolve(self, result: Result<Timing>) {
        self.0.resolve(result);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if self.0.get().is_none() && self.0.process.is_this() {
            self.0.resolve(Err(given_up()));
        }
    }
}

/// The error of work that the driver dropped without a result.
pub(crate) fn given_up() -> Error {
    Error::DeviceLost("the driver dropped the work without a result".into())
}

/// Handle on submitted work.
///
/// A future of the work's result, for any async executor; threads can wait for it too. Clones are independent waiters for the
/// same work. Dropping it does not affect the work.
pub struct Completion {
    outcome: Arc<Outcome>,
    /// Queue and submission; `None` if it was not submitted, because content that it reads is missing after a failure.
    origin: Option<(Arc<dyn Queue>, Submission)>,
    waiter: u64,
}

impl Completion {
    pub(crate) fn new(outcome: Arc<Outcome>, origin: Option<(Arc<dyn Queue>, Submission)>) -> Self {
        let waiter = outcome.next_waiter.fetch_add(1, Ordering::Relaxed);
        Self { outcome, origin, waiter }
    }

    /// Blocks until the work has ended. Returns the times when it ran.
    ///
    /// # Errors
    /// The work's error: `Fault`, `Poisoned` with the first cause, `Timeout`, `Cancelled`, `DeviceLost`. `WouldDeadlock` in a
    /// waker or the destructor of a buffer's memory, unless the work has ended.
    pub fn wait(&self) -> Result<Timing> {
        self.wait_for("a wait for submitted work")?.clone()
    }

    /// Blocks until the work has ended, successfully or not.
    ///
    /// # Errors
    /// `WouldDeadlock` in a callback, unless the work has ended.
    pub(crate) fn wait_for_end(&self, what: &str) -> Result<()> {
        self.wait_for(what).map(drop)
    }

    fn wait_for(&self, what: &str) -> Result<&Result<Timing>> {
        loop {
            if let Some(result) = self.outcome.wait_with(None, what, |is_over| self.spin(is_over))? {
                return Ok(result);
            }
        }
    }

    fn spin(&self, is_over: &mut dyn FnMut() -> bool) {
        match &self.origin {
            Some((queue, _)) => queue.spin(is_over),
            None => while !is_over() {},
        }
    }

    /// Blocks until the work has ended, for at most `timeout`. Returns `None` on a timeout, which does not affect the work.
    ///
    /// # Errors
    /// As [`Completion::wait`].
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Option<Timing>> {
        let deadline = Instant::now().checked_add(timeout);
        let spin = |is_over: &mut dyn FnMut() -> bool| self.spin(is_over);
        self.outcome.wait_with(deadline, "a wait for submitted work", spin)?.cloned().transpose()
    }

    /// The outcome alone, without the queue: it does not keep the queue alive, and cannot be cancelled.
    pub(crate) fn outcome_only(&self) -> Self {
        Self::new(self.outcome.clone(), None)
    }

    /// Whether the work has ended, successfully or not.
    pub fn is_done(&self) -> bool {
        self.outcome.get().is_some()
    }

    /// Ends the work with `cause`, as [`Queue::stop`].
    pub(crate) fn stop(&self, cause: &Error) -> Result<bool> {
        self.origin.as_ref().map_or(Ok(false), |(queue, submission)| queue.stop(*submission, cause.clone()))
    }

    /// Times when the work ran, if it has ended successfully.
    pub fn timing(&self) -> Option<Timing> {
        self.outcome.get().and_then(|result| result.as_ref().ok().copied())
    }

    /// Cancels the work if it has not begun. It then ends in [`Error::Cancelled`], and the return value is `true`. Returns
    /// `false`, without effect, if it has begun or ended.
    ///
    /// Memory that the work would have written keeps its content. A cancellation is not a failure: the work behind it runs.
    pub fn cancel(&self) -> bool {
        let here = self.outcome.process.is_this();
        here && self.origin.as_ref().is_some_and(|(queue, submission)| queue.cancel(*submission))
    }
}

impl Clone for Completion {
    fn clone(&self) -> Self {
        Self::new(self.outcome.clone(), self.origin.clone())
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if !self.is_done() && self.outcome.process.is_this() {
            let mut wakers = self.outcome.wakers.lock();
            if let Some(at) = wakers.iter().position(|(waiter, _)| *waiter == self.waiter) {
                let waker = wakers.swap_remove(at);
                drop(wakers); // the drop of a waker is user code
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
        if let Err(error) = self.outcome.process.expect_this(&"a wait for submitted work") {
            return Poll::Ready(Err(error));
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
            move || outcome.wait("a wait").cloned()
        });
        drop(promise);
        assert!(matches!(waiter.join().unwrap(), Ok(Err(Error::DeviceLost(_)))));
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
