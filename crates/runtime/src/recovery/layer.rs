//! [`Layer`]: what recovery adds to the submission core. Its device is the driver's queue.
//!
//! Work goes to the driver as it comes, in order. When a submission fails, those behind it end as poisoned in the driver's queue, and
//! here the failure suspends the queue. [`super::thread`] does then what [`super::decide`] says.
//!
//! Invariants:
//! - The driver never sees the signals at the end of a submission: it would fail the events at the first failure. A submission that
//!   signals before its end is submitted alone and is never run again.
//! - Nothing is submitted behind a failure of the driver's queue before everything in flight has ended and it was acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use elinvar_driver::submission::{Backend, Completed, Deferred, Issue, Issued, SubmissionQueue};
use elinvar_driver::sync::{Condvar, Mutex};
use elinvar_driver::{Callback, Command, Done, Error, Queue, Result, Submission, Timing};

use super::breaker::Permit;
use super::{Attempts, RecoveryPolicy, replay};
use crate::Device;
use crate::observe::trace::Notes;
use crate::sync::completion::given_up;
use crate::sync::device_state::StateGuard;

/// The submissions of a stream that recovers.
pub(super) type Submissions = SubmissionQueue<Layer>;

/// What recovery has for one queue of the driver.
pub(super) struct Layer {
    pub(super) device: Device,
    pub(super) policy: RecoveryPolicy,
    pub(super) inner: Arc<dyn Queue>,
    /// Whether the driver's queue has a failure to be acknowledged.
    inner_failed: AtomicBool,
    /// How often the device was lost.
    pub(super) losses: AtomicU64,
    /// Whether the driver may still have work of before the device was lost.
    has_lost: AtomicBool,
    /// Held while work is carried to or from another device.
    pub(super) carrying: Mutex<()>,
    pub(super) wake: Mutex<Wake>,
    pub(super) woken: Condvar,
}

/// What the thread is woken for.
#[derive(Default)]
pub(super) struct Wake {
    pub(super) is_due: bool,
    /// Whether nothing is submitted any more.
    pub(super) is_closed: bool,
}

/// One submission.
pub(super) struct Work {
    pub(super) notes: Option<Notes>,
    pub(super) tried: Attempts,
    /// Resets of the device when it was submitted to the driver.
    pub(super) seen: u64,
    /// Losses of the device when it was.
    losses: u64,
    /// Whether the device may have begun it.
    pub(super) begun: bool,
    permit: Option<Permit>,
    /// The commands without the signals at the end, if there are any.
    shortened: Option<Arc<[Command]>>,
    /// What it is in the driver's queue.
    inner: Option<Submission>,
    /// Whether the driver's `submit` has yet to return.
    is_submitting: bool,
    /// Whether the driver has dropped `done` meanwhile, without a call.
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

    /// Have the thread look at the queue.
    pub(super) fn wake(&self) {
        self.wake.lock().is_due = true;
        self.woken.notify_all();
    }

    /// Forget the failure of the driver's queue, which has nothing in flight.
    pub(super) fn acknowledge_inner(&self) {
        self.inner_failed.store(false, Ordering::Release);
        self.inner.acknowledge();
    }

    /// The device is lost, with what runs on it: all ends in the cause, and nothing is tried again. What the driver has then is kept
    /// until the driver has let go of it, if ever.
    pub(super) fn lose(queue: &Arc<Submissions>, cause: &Error) {
        let layer = queue.backend();
        layer.losses.fetch_add(1, Ordering::AcqRel);
        layer.has_lost.store(true, Ordering::Release);
        queue.abandon(false, cause, |_| cause.clone());
        layer.wake();
        // Nobody looks at the memory of this any more once this has returned.
        drop(layer.carrying.lock());
    }

    /// Whether the work may be given to the device: the breaker's permit.
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
        self.device.breaker().admit(Instant::now())
    }

    /// What the driver is given: the commands without the signals at the end.
    fn for_driver(issue: &Issue<'_, Self>) -> Arc<[Command]> {
        let commands = issue.commands();
        let run = issue.run();
        if run.len() == commands.len() {
            return commands.clone();
        }
        let shortened = issue.with_work(|work| work.shortened.get_or_insert_with(|| run.into()).clone());
        shortened.unwrap_or_else(|| Arc::new([]))
    }

    /// The driver's `done`.
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

    /// The driver's `done` was dropped without a call.
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

#[allow(unsafe_code)] // promises what the submission core asks for
// SAFETY: an operation is completed when the driver's queue has called its `done`, or has dropped it.
unsafe impl Backend for Layer {
    type Thread = ();
    type Work = Work;
    /// The number of the submission.
    type Fence = u64;
    const IS_LAYER: bool = true;

    /// A callback of a driver must not submit: that may wait for a transfer.
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
            // Asked again when it is the first.
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

/// Tells the queue how a submission to the driver has ended; that it was given up, if it is dropped without.
struct Report {
    queue: Arc<Submissions>,
    id: u64,
    told: bool,
}

impl Report {
    fn done(queue: &Arc<Submissions>, id: u64) -> Done {
        let mut report = Self { queue: queue.clone(), id, told: false };
        Done::new(move |result| {
            report.told = true;
            report.queue.backend().completed(&report.queue, report.id, result);
        })
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let layer = self.queue.backend();
        if !self.told && layer.device.is_here() {
            layer.dropped(&self.queue, self.id);
        }
    }
}
