//! [`Layer`]: a backend of the submission core whose device is the driver's queue.
//!
//! Submissions are passed to the driver's queue in order, without delay. When one fails, the driver's queue poisons those behind it, and
//! the failure suspends this queue. [`super::thread`] then executes the action that [`super::decide`] chooses.
//!
//! Invariants:
//! - The driver does not see the signals at the end of a submission, because it would fail the events at the first failure. A
//!   submission that signals before its end is submitted alone and is never retried.
//! - After a failure, nothing is submitted to the driver's queue until everything in flight has ended and the failure was acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use elinvar_driver::submission::{Backend, Completed, Deferred, Issue, Issued, SubmissionQueue};
use elinvar_driver::sync::{Condvar, Mutex};
use elinvar_driver::{Callback, Command, Done, Error, Queue, Result, Submission, Timing};

use super::breaker::Permit;
use super::{Attempts, RecoveryPolicy, replay};
use crate::Device;
use crate::observe::trace::Notes;
use crate::sync::completion::given_up;
use crate::sync::device_state::StateGuard;

/// The submission queue of a recovering stream.
pub(super) type Submissions = SubmissionQueue<Layer>;

/// Recovery over one queue of the driver.
pub(super) struct Layer {
    pub(super) device: Device,
    pub(super) policy: RecoveryPolicy,
    pub(super) inner: Arc<dyn Queue>,
    /// Whether the driver's queue has an unacknowledged failure.
    inner_failed: AtomicBool,
    /// Number of losses of the device.
    pub(super) losses: AtomicU64,
    /// Whether the driver may still hold work from before the device loss.
    has_lost: AtomicBool,
    /// Held while data is copied to or from another device.
    pub(super) carrying: Mutex<()>,
    pub(super) wake: Mutex<Wake>,
    pub(super) woken: Condvar,
}

/// Wake-up flags of the recovery thread.
#[derive(Default)]
pub(super) struct Wake {
    pub(super) is_due: bool,
    /// Whether the handle was dropped, so that there are no further submissions.
    pub(super) is_closed: bool,
}

/// Recovery's state of one submission.
pub(super) struct Work {
    pub(super) notes: Option<Notes>,
    pub(super) tried: Attempts,
    /// [`super::Recovery::resets`] when it was submitted to the driver.
    pub(super) seen: u64,
    /// [`Layer::losses`] when it was submitted to the driver.
    losses: u64,
    /// Whether the device may have started it.
    pub(super) begun: bool,
    permit: Option<Permit>,
    /// The commands without trailing signals; `None` if there are no trailing signals.
    shortened: Option<Arc<[Command]>>,
    /// Its submission in the driver's queue.
    inner: Option<Submission>,
    /// Whether the driver's `submit` has not returned yet.
    is_submitting: bool,
    /// Whether the driver dropped `done` without calling it before `submit` returned.
    was_dropped: bool,
}

impl Layer {
    pub(super) fn new(device: &Device, policy: RecoveryPolicy, inner: Arc<dyn Queue>) -> Self {
        Self {
            device: device.clone(),
            policy,
            inner,
            inner_failed: AtomicBool::new(false),
            losses: AtomicU64::new(0),
            has_lost: AtomicBool::new(false),
            carrying: Mutex::default(),
            wake: Mutex::default(),
            woken: Condvar::new(),
        }
    }

    pub(super) fn work_noted(&self, notes: Option<Notes>) -> Work {
        let recovery = self.device.recovery();
        Work {
            notes,
            tried: Attempts { made: 0, ..Attempts::first(recovery.work()) },
            seen: recovery.resets(),
            losses: 0,
            begun: false,
            permit: None,
            shortened: None,
            inner: None,
            is_submitting: false,
            was_dropped: false,
        }
    }

    /// Wakes the recovery thread.
    pub(super) fn wake(&self) {
        self.wake.lock().is_due = true;
        self.woken.notify_all();
    }

    /// Acknowledges the failure of the driver's queue. Nothing must be in flight.
    pub(super) fn acknowledge_inner(&self) {
        self.inner_failed.store(false, Ordering::Release);
        self.inner.acknowledge();
    }

    /// Ends all submissions in `cause`, without retries. Submissions that the driver holds are kept alive until the driver releases
    /// them, which may be never.
    pub(super) fn lose(queue: &Arc<Submissions>, cause: &Error) {
        let layer = queue.backend();
        layer.losses.fetch_add(1, Ordering::AcqRel);
        layer.has_lost.store(true, Ordering::Release);
        queue.abandon(false, cause, |_| cause.clone());
        layer.wake();
        // On return, no rerun accesses the device's memory any more.
        drop(layer.carrying.lock());
    }

    /// Requests the breaker's permit for a submission.
    ///
    /// # Errors
    /// `DeviceLost` if the inputs were lost in a reset; the breaker's refusal.
    fn permit(&self, state: &StateGuard<'_>, issue: &Issue<'_, Self>) -> Result<Permit> {
        state.check_content()?;
        let resets = self.device.recovery().resets();
        let seen = issue.with_work(|work| std::mem::replace(&mut work.seen, resets));
        if seen.is_some_and(|seen| seen != resets)
            && !self.device.caps().features.restarts
            && let Some(why) = replay::lost_input(issue.commands())
        {
            issue.with_work(|work| work.tried.not_again = Some(why.clone()));
            return Err(Error::DeviceLost(why));
        }
        self.device.admit()
    }

    /// The commands for the driver: without the trailing signals.
    fn for_driver(issue: &Issue<'_, Self>) -> Arc<[Command]> {
        let commands = issue.commands();
        let run = issue.run();
        if run.len() == commands.len() {
            return commands.clone();
        }
        let shortened = issue.with_work(|work| work.shortened.get_or_insert_with(|| run.into()).clone());
        shortened.unwrap_or_else(|| Arc::new([]))
    }

    /// The driver has called `done`.
    fn completed(&self, queue: &Arc<Submissions>, id: u64, result: Result<Timing>) {
        let is_it = |fence: &u64| *fence == id;
        let Some((commands, is_stopped)) =
            queue.with_operation(is_it, |_, commands, stop| (commands.clone(), stop.is_some()))
        else {
            return;
        };
        let losses = self.losses.load(Ordering::Acquire);
        let permit = queue.with_work(id, |work| {
            work.begun |= !matches!(&result, Ok(_) | Err(Error::Poisoned(_) | Error::Cancelled));
            work.permit.take().filter(|_| work.losses == losses)
        });
        if let Some(permit) = permit.flatten() {
            self.device.settle(permit, result.as_ref().err().filter(|_| !is_stopped));
        }
        let completed = match result {
            Ok(timing) => {
                self.device.recovery().vitals.latency(&commands, timing);
                Completed::Executed { start_ns: Some(timing.start_ns), end_ns: timing.end_ns }
            }
            Err(Error::Cancelled) => Completed::Cancelled,
            Err(error) => {
                self.inner_failed.store(true, Ordering::Release);
                Completed::Failed(error)
            }
        };
        drop(commands);
        queue.complete(is_it, completed);
        queue.settle();
        if queue.is_suspended() {
            self.wake();
        }
    }

    /// The driver has dropped `done` without calling it.
    fn dropped(&self, queue: &Arc<Submissions>, id: u64) {
        let is_submitting = queue.with_work(id, |work| {
            work.was_dropped = work.is_submitting;
            work.is_submitting
        });
        if is_submitting == Some(false) {
            self.completed(queue, id, Err(given_up()));
        }
    }
}

#[allow(unsafe_code)] // implements the unsafe trait of the submission core
// SAFETY: an operation completes when the driver's queue has called or dropped its `done`.
unsafe impl Backend for Layer {
    type Thread = ();
    type Work = Work;
    /// The number of the submission.
    type Fence = u64;
    const IS_LAYER: bool = true;

    /// Driver callbacks must not submit, because submission may wait for a transfer.
    fn thread() -> Option<()> {
        (!Callback::is_running()).then_some(())
    }

    fn work(&self) -> Work {
        self.work_noted(None)
    }

    fn expect_here(&self, what: &str) -> Result<()> {
        self.device.expect_here(what)
    }

    fn begin(&self, issue: &mut Issue<'_, Self>, (): &mut ()) -> Result<Issued> {
        let is_first = issue.in_flight() == 0;
        let signals_within = issue.run().iter().any(replay::is_signal);
        if is_first {
            self.has_lost.store(false, Ordering::Release);
            if self.inner_failed.load(Ordering::Acquire) {
                self.acknowledge_inner();
            }
        } else if signals_within
            || self.inner_failed.load(Ordering::Acquire)
            || self.has_lost.load(Ordering::Acquire)
        {
            return Ok(Issued::Full);
        }
        let state = self.device.state().read();
        let permit = match self.permit(&state, issue) {
            Ok(permit) => permit,
            Err(error) if is_first => return Err(error),
            // Retried when this submission is the first in the queue.
            Err(_) => return Ok(Issued::Full),
        };
        let drain = signals_within || permit.probe;
        let losses = self.losses.load(Ordering::Acquire);
        issue.with_work(|work| {
            (work.permit, work.losses, work.is_submitting) = (Some(permit), losses, true);
            work.tried.made += 1;
        });
        let id = issue.submission().0;
        issue.announce(issue.next() + issue.run().len(), id);
        let result = self.inner.submit(Self::for_driver(issue), Report::done(issue.queue(), id));
        drop(state);
        let (was_dropped, begun) = issue
            .with_work(|work| {
                work.is_submitting = false;
                work.inner = result.as_ref().ok().copied();
                (std::mem::take(&mut work.was_dropped), work.begun)
            })
            .unwrap_or_default();
        let Err(error) = result else {
            if was_dropped {
                self.completed(issue.queue(), id, Err(given_up()));
            }
            return Ok(Issued::InFlight { drain });
        };
        issue.retract();
        if let Some(permit) = issue.with_work(|work| work.permit.take()).flatten() {
            self.device.settle(permit, Some(&error));
        }
        if is_first || begun {
            return Err(error);
        }
        issue.with_work(|work| work.tried.made -= 1);
        Ok(Issued::Full)
    }

    fn panicked(&self, message: &str) -> Error {
        Error::Environment(format!("the driver's queue panicked: {message}"))
    }

    fn schedule(&self, _queue: Arc<Submissions>) {
        self.wake();
    }

    fn now_ns(&self) -> u64 {
        self.device.clock_ns()
    }

    fn cancel(&self, work: &Work, _fences: &mut dyn Iterator<Item = &u64>) -> Option<Deferred<Self, bool>> {
        let inner = work.inner?;
        Some(Box::new(move |queue| queue.backend().inner.cancel(inner)))
    }

    fn stop(
        &self,
        work: &Work,
        _fences: &mut dyn Iterator<Item = &u64>,
        cause: &Error,
    ) -> Result<Option<Deferred<Self, Result<()>>>> {
        let Some(inner) = work.inner else { return Ok(None) };
        let cause = cause.clone();
        Ok(Some(Box::new(move |queue| queue.backend().inner.stop(inner, cause).map(drop))))
    }

    fn suspends(&self, _work: &mut Work, _error: &Error) -> bool {
        true
    }

    fn may_have_begun(&self, work: &Work) -> bool {
        work.begun
    }

    fn ended(&self, _queue: &Arc<Submissions>, _submission: Submission) {
        let mut wake = self.wake.lock();
        if wake.is_closed {
            wake.is_due = true;
            self.woken.notify_all();
        }
    }
}

/// Reports the result of a driver submission to the queue. Dropping it without a result reports that the work was dropped.
struct Report {
    queue: Arc<Submissions>,
    id: u64,
    is_reported: bool,
}

impl Report {
    fn done(queue: &Arc<Submissions>, id: u64) -> Done {
        let mut report = Self { queue: queue.clone(), id, is_reported: false };
        Done::new(move |result| {
            report.is_reported = true;
            report.queue.backend().completed(&report.queue, report.id, result);
        })
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let layer = self.queue.backend();
        if !self.is_reported && layer.device.is_here() {
            layer.dropped(&self.queue, self.id);
        }
    }
}
