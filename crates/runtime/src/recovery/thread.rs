//! The thread of a recovering queue. It recovers from failures, and issues and retires submissions when no other thread does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use elinvar_driver::submission::{Suspended, last_signals};
use elinvar_driver::{Command, Error, Result, Submission, Timing};

use super::layer::{Layer, Submissions};
use super::{Action, Decision, decide, replay};

/// The failure of the first submission, with the decision about it.
struct Failure {
    submission: Submission,
    commands: Arc<[Command]>,
    error: Error,
    decision: Decision,
    /// Number of resets of the device at the last attempt.
    seen: u64,
    /// Whether giving up after a device loss makes the breaker terminal.
    notes_loss: bool,
}

/// Start the thread. It ends when the queue's handle was dropped and nothing is left to issue.
pub(super) fn start(queue: &Arc<Submissions>) -> Result<()> {
    let queue = queue.clone();
    let thread = std::thread::Builder::new().name("elinvar-recovery".into()).spawn(move || run(&queue));
    thread.map(drop).map_err(|error| Error::Environment(format!("cannot start the recovery thread: {error}")))
}

fn run(queue: &Arc<Submissions>) {
    let layer = queue.backend();
    loop {
        let mut wake = layer.wake.lock();
        while !std::mem::take(&mut wake.is_due) {
            layer.woken.wait(&mut wake);
        }
        let is_closed = wake.is_closed;
        drop(wake);
        queue.turn(&mut ());
        if queue.with_suspended(|_| ()).is_some() {
            layer.recover(queue);
        }
        // Submissions that the driver still holds end on the driver's threads.
        if is_closed && queue.is_decided() {
            return;
        }
    }
}

impl Layer {
    /// Recover from the failure of the first submission, until it is retried or has ended.
    fn recover(&self, queue: &Arc<Submissions>) {
        // If a reset has ended the submission, that reset must have finished before the decision.
        self.device.recovery().wait_for_reset();
        self.acknowledge_inner();
        let losses = self.losses.load(Ordering::Acquire);
        while let Some(failure) = self.decide(queue) {
            let Failure { submission, commands, error, decision, seen, notes_loss } = failure;
            if !self.pause(queue, submission, &decision) {
                continue;
            }
            match decision.action {
                Action::GiveUp | Action::Refuse => {
                    if notes_loss {
                        self.device.note_loss(&error, seen);
                    }
                    queue.fail_first(submission, error);
                }
                Action::Rerun => match self.rerun(&commands, losses) {
                    Ok((timing, carried)) => {
                        queue.complete_first(submission, last_signals(&commands), timing);
                        // Report the completion before a reset can discard the results.
                        queue.settle();
                        drop(carried);
                    }
                    Err(why) => self.note(queue, submission, |first| first.no_rerun = Some(why.to_string())),
                },
                Action::Reset => match self.device.reset_since(seen) {
                    Ok(()) => {
                        self.note(queue, submission, |first| first.resets += 1);
                        queue.retry(submission);
                    }
                    Err(why) => self.note(queue, submission, |first| first.no_reset = Some(why.to_string())),
                },
                Action::Trim => {
                    self.device.pool().trim(0);
                    queue.retry(submission);
                }
                Action::Retry => drop(queue.retry(submission)),
            }
        }
    }

    /// Decides about the first submission. Returns `None` if the queue is no longer suspended.
    fn decide(&self, queue: &Arc<Submissions>) -> Option<Failure> {
        let resets = self.device.recovery().resets();
        let (failure, notes) = queue.with_suspended(|first| {
            let Suspended { submission, commands, error, is_stopped, work } = first;
            let tried = &mut work.tried;
            tried.stopped = is_stopped;
            if work.begun && tried.not_again.is_none() {
                tried.not_again = replay::not_again(commands);
            }
            tried.is_back = resets != work.seen;
            let decision = decide(error, &self.policy, tried);
            let notes_loss = tried.not_again.is_none() && !is_stopped;
            let (commands, error, seen) = (commands.clone(), error.clone(), work.seen);
            (Failure { submission, commands, error, decision, seen, notes_loss }, work.notes)
        })?;
        self.device.note_decision(notes, &failure.decision);
        if !matches!(failure.decision.action, Action::GiveUp | Action::Refuse) {
            // A submission that is given up is counted when it ends.
            self.device.recovery().vitals.submission(Some(&failure.error));
        }
        Some(failure)
    }

    /// Updates the attempts of the first submission.
    fn note(&self, queue: &Arc<Submissions>, submission: Submission, f: impl FnOnce(&mut super::Attempts)) {
        queue.with_work(submission.0, |work| f(&mut work.tried));
    }

    /// Waits for the delay of a decision. Returns `false` if the submission was stopped or lost meanwhile.
    fn pause(&self, queue: &Arc<Submissions>, submission: Submission, decision: &Decision) -> bool {
        let is_stopped = |first: Suspended<'_, Self>| first.submission != submission || first.is_stopped;
        let end = Instant::now().checked_add(decision.after);
        let mut is_over = decision.after.is_zero();
        while !is_over {
            if queue.with_suspended(is_stopped) != Some(false) {
                return false;
            }
            let mut wake = self.wake.lock();
            if std::mem::take(&mut wake.is_due) {
                drop(wake);
                // End submissions that were cancelled during the delay.
                queue.turn(&mut ());
                continue;
            }
            match end {
                Some(end) => is_over = self.woken.wait_until(&mut wake, end).timed_out(),
                None => self.woken.wait(&mut wake),
            }
        }
        true
    }

    /// Run commands on the other device, unless this device was lost since `losses` was read.
    fn rerun(&self, commands: &[Command], losses: u64) -> Result<(Timing, impl Sized + use<'_>)> {
        let Some(device) = &self.policy.rerun else {
            return Err(Error::unsupported("the recovery policy has no device for reruns"));
        };
        let carry = move || {
            let carrying = self.carrying.lock();
            if self.losses.load(Ordering::Acquire) != losses {
                let text = "the device was lost during the rerun";
                return Err(Error::DeviceLost(text.into()));
            }
            loop {
                self.device.recovery().wait_for_reset();
                let state = self.device.state().read();
                if !state.is_resetting() {
                    return Ok((carrying, state));
                }
            }
        };
        replay::rerun(&self.device, commands, device, carry)
    }
}
