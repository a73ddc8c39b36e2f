//! What a [`super::RecoveringQueue`] has in hand, and the thread that sees to it.
//!
//! Invariants:
//! - What was submitted ends in order, each once; cancelled work apart, which ends when the driver has let go of it.
//! - The driver never sees a signal at the end of a submission: it would fail the event at the first failure. Such events are
//!   raised here. A submission that signals before its end goes alone and is never run again.
//! - `sending` orders what goes to the driver; `state` is locked for moments, and by callbacks.
//! - When the device is lost ([`crate::sync::loss`]), all ends in the cause and nothing is tried again. What the driver has then is kept
//!   until the driver has let go of it, if ever; the thread does not wait for that.

use std::sync::Arc;
use std::time::Instant;

use elinvar_driver::sync::{Condvar, Mutex, MutexGuard};
use elinvar_driver::{Command, Error, Priority, Queue, Result, Submission, Timing};

use super::breaker::Permit;
use super::entry::{Entry, Progress, State};
use super::queue::Report;
use super::{Action, Decision, RecoveryPolicy, decide, replay};
use crate::Device;
use crate::sync::completion::given_up;
use crate::sync::loss::Present;

pub(super) struct Lane {
    pub(super) device: Device,
    policy: RecoveryPolicy,
    pub(super) inner: Arc<dyn Queue>,
    pub(super) sending: Mutex<()>,
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
    /// Held while work is carried to or from another device.
    carrying: Mutex<()>,
}

impl Lane {
    /// An empty lane over a queue of the device's own, with its thread.
    pub(super) fn start(
        device: &Device,
        priority: Priority,
        mut policy: RecoveryPolicy,
    ) -> Result<Arc<Self>> {
        policy.rerun.take_if(|other| other == device);
        let inner = device.driver().queue_with(priority)?;
        let (sending, state, changed) = (Mutex::default(), Mutex::default(), Condvar::new());
        let (device, carrying) = (device.clone(), Mutex::default());
        let lane = Arc::new(Self { device, policy, inner, sending, state, changed, carrying });
        lane.device.recovery().tend(&lane);
        let of_thread = lane.clone();
        let thread =
            std::thread::Builder::new().name("elinvar-recovery".into()).spawn(move || of_thread.tend());
        thread.map_err(|error| Error::Environment(format!("a thread for recovery: {error}")))?;
        Ok(lane)
    }

    /// Gives the driver what it may have.
    pub(super) fn send(self: &Arc<Self>, _order: &MutexGuard<'_, ()>, mut state: MutexGuard<'_, State>) {
        loop {
            let Some(at) = state.next_to_send() else {
                state.held = state.sent < state.entries.len();
                return;
            };
            if std::mem::take(&mut state.has_failed) {
                self.inner.acknowledge();
            }
            let (first, entry) = (at == 0, &mut state.entries[at]);
            let present = self.device.loss().hold();
            let admitted = self.admit(&present, entry);
            let permit = match admitted {
                Ok(permit) => permit,
                Err(error) => {
                    if first {
                        entry.progress = Progress::Ended(Err(error));
                        state.recovering = true;
                        self.changed.notify_all();
                    } else {
                        state.held = true;
                    }
                    return;
                }
            };
            let alone = entry.signals_within || permit.as_ref().is_some_and(|permit| permit.probe);
            (entry.permit, entry.progress) = (permit, Progress::Sending);
            entry.tried.made += 1;
            let (id, commands) = (entry.id, entry.for_driver());
            state.alone = alone.then_some(id);
            state.sent += 1;
            let submit = || self.inner.submit(commands, Report::done(self, id));
            let result = MutexGuard::unlocked(&mut state, submit);
            if !self.was_sent(&mut state, id, result) {
                return;
            }
        }
    }

    /// Whether the work may be given to the device: the breaker's permit, which what does not run needs not.
    fn admit(&self, present: &Present<'_>, entry: &mut Entry) -> Result<Option<Permit>> {
        if entry.poison.is_some() {
            return Ok(None);
        }
        present.expect_content()?;
        let resets = self.device.recovery().resets();
        if std::mem::replace(&mut entry.seen, resets) != resets
            && !self.device.caps().features.restarts
            && let Some(why) = replay::lost_input(&entry.commands)
        {
            entry.tried.not_again = Some(why.clone());
            return Err(Error::DeviceLost(why));
        }
        self.device.breaker().admit(Instant::now()).map(Some)
    }

    /// Takes the driver's answer to a submission; whether more may follow.
    fn was_sent(&self, state: &mut State, id: u64, result: Result<Submission>) -> bool {
        let Some(at) = state.find(id) else {
            if state.was_left(id, result) {
                self.changed.notify_all();
            }
            return true;
        };
        let entry = &mut state.entries[at];
        let error = match (result, &entry.progress) {
            (Ok(submission), Progress::Sending) => {
                entry.progress = Progress::Sent(submission);
                return true;
            }
            (Ok(_), Progress::Dropped) => {
                entry.begun = true;
                given_up()
            }
            (Ok(_), _) => return true,
            (Err(error), _) => error,
        };
        if let Some(permit) = entry.permit.take() {
            self.device.settle(permit, Some(&error));
        }
        if at == 0 || entry.poison.is_some() || entry.begun {
            entry.progress = Progress::Ended(Err(error));
            let ready = state.take_ready();
            state.ends.extend(ready);
        } else {
            // In its turn again.
            (entry.progress, entry.tried.made) = (Progress::Waiting, entry.tried.made - 1);
            state.sent -= 1;
        }
        state.held = true;
        state.alone.take_if(|alone| *alone == id);
        self.changed.notify_all();
        false
    }

    /// The driver's callback.
    pub(super) fn ended(&self, id: u64, result: Result<Timing>) {
        let mut state = self.state.lock();
        if let Some((entry, cause)) = state.take_left(id) {
            self.changed.notify_all();
            drop(state);
            return entry.tell(Err(cause));
        }
        let Some(at) = state.find(id) else { return };
        let entry = &mut state.entries[at];
        if let Some(permit) = entry.permit.take() {
            let counts = result.as_ref().err().filter(|_| !entry.tried.stopped);
            self.device.settle(permit, counts);
        }
        if let Ok(timing) = &result {
            self.device.recovery().vitals.latency(&entry.commands, *timing);
        }
        entry.begun |= !matches!(&result, Ok(_) | Err(Error::Poisoned(_) | Error::Cancelled));
        let cancelled = matches!(result, Err(Error::Cancelled));
        entry.progress = Progress::Ended(result);
        state.alone.take_if(|alone| *alone == id);
        let mut ready = Vec::new();
        if cancelled {
            ready.push((state.remove(at), Err(Error::Cancelled)));
        }
        ready.extend(state.take_ready());
        state.resume |= std::mem::take(&mut state.held);
        if state.resume || state.recovering || state.closed {
            self.changed.notify_all();
        }
        drop(state);
        ready.into_iter().for_each(|(entry, result)| entry.tell(result));
    }

    /// The driver's callback was dropped without a call.
    pub(super) fn dropped(&self, id: u64) {
        let mut state = self.state.lock();
        match state.progress(id) {
            Some(progress @ Progress::Sending) => *progress = Progress::Dropped,
            Some(_) => {
                drop(state);
                self.ended(id, Err(given_up()));
            }
            None => {}
        }
    }

    /// The device is lost, with what runs on it: all ends in the cause, and nothing is tried again.
    pub(super) fn lose(&self, cause: &Error) {
        self.state.lock().lose(cause);
        self.changed.notify_all();
        // Nobody looks at the memory of this any more once this has returned.
        drop(self.carrying.lock());
    }

    /// The thread: sees to failures, sends what had to wait, tells what nobody else can.
    pub(super) fn tend(self: Arc<Self>) {
        let mut state = self.state.lock();
        loop {
            Self::tell_ends(&mut state);
            if state.recovering {
                self.recover(&mut state);
            } else if std::mem::take(&mut state.resume) {
                let ready = state.take_ready();
                state.ends.extend(ready);
                MutexGuard::unlocked(&mut state, || self.send(&self.sending.lock(), self.state.lock()));
            } else if state.closed && state.entries.is_empty() && state.ends.is_empty() {
                return;
            } else if state.ends.is_empty() {
                self.changed.wait(&mut state);
            }
        }
    }

    fn tell_ends(state: &mut MutexGuard<'_, State>) {
        let ends = std::mem::take(&mut state.ends);
        if !ends.is_empty() {
            MutexGuard::unlocked(state, || ends.into_iter().for_each(|(entry, result)| entry.tell(result)));
        }
    }

    /// Sees to the first, which has failed, until it is tried again or has ended.
    fn recover(&self, state: &mut MutexGuard<'_, State>) {
        while state.entries.iter().any(Entry::is_with_driver) {
            self.changed.wait(state);
            Self::tell_ends(state);
        }
        // A reset that has ended it is to be over before anything is decided.
        MutexGuard::unlocked(state, || self.device.recovery().wait_for_reset());
        // What was behind it has ended as poisoned, and waits again.
        self.inner.acknowledge();
        state.wait_again();
        while let Some((id, decision, error)) = self.decide(state) {
            self.pause(state, id, &decision);
            let Some(first) = state.first(id) else { break };
            let (seen, commands, losses) = (first.seen, first.commands.clone(), state.losses);
            let Some(first) = state.first(id) else { break };
            match decision.action {
                Action::GiveUp | Action::Refuse => {
                    if first.tried.not_again.is_none() && !first.tried.stopped {
                        MutexGuard::unlocked(state, || self.device.note_loss(&error, seen));
                    }
                    if state.first(id).is_some() {
                        return state.give_up(error);
                    }
                }
                Action::Rerun => {
                    let rerun = MutexGuard::unlocked(state, || self.rerun(&commands, losses));
                    match (state.first(id), rerun) {
                        (Some(_), Ok((timing, carried))) => {
                            state.end_first(Ok(timing));
                            // Told before a reset can take away what was brought back.
                            Self::tell_ends(state);
                            drop(carried);
                            return;
                        }
                        (Some(first), Err(why)) => first.tried.no_rerun = Some(why.to_string()),
                        (None, _) => break,
                    }
                }
                Action::Reset => {
                    let reset = MutexGuard::unlocked(state, || self.device.reset_since(seen));
                    match (state.first(id), reset) {
                        (Some(first), Ok(())) => {
                            first.tried.resets += 1;
                            return state.try_again();
                        }
                        (Some(first), Err(why)) => first.tried.no_reset = Some(why.to_string()),
                        (None, _) => break,
                    }
                }
                Action::Trim => {
                    MutexGuard::unlocked(state, || self.device.pool().trim(0));
                    if state.first(id).is_some() {
                        return state.try_again();
                    }
                }
                Action::Retry => return state.try_again(),
            }
        }
        (state.recovering, state.resume) = (false, true);
    }

    /// What is done about the first; `None` when it has not failed.
    fn decide(&self, state: &mut State) -> Option<(u64, Decision, Error)> {
        let first = state.entries.front_mut()?;
        let Progress::Ended(Err(error)) = &first.progress else { return None };
        let error = error.clone();
        if first.begun && first.tried.not_again.is_none() {
            first.tried.not_again = replay::not_again(&first.commands);
        }
        first.tried.is_back = self.device.recovery().resets() != first.seen;
        let decision = decide(&error, &self.policy, &first.tried);
        self.device.note(first.notes, &decision);
        if !matches!(decision.action, Action::GiveUp | Action::Refuse) {
            // What is given up counts when it ends.
            self.device.recovery().vitals.submission(Some(&error));
        }
        Some((first.id, decision, error))
    }

    /// Lets the time of a decision pass, unless the work is told to end.
    fn pause(&self, state: &mut MutexGuard<'_, State>, id: u64, decision: &Decision) {
        let end = Instant::now().checked_add(decision.after);
        let stopped = |state: &mut State| state.first(id).is_none_or(|first| first.tried.stopped);
        while !decision.after.is_zero() && !stopped(state) {
            let late = match end {
                Some(end) => self.changed.wait_until(state, end).timed_out(),
                None => {
                    self.changed.wait(state);
                    false
                }
            };
            Self::tell_ends(state);
            if late {
                return;
            }
        }
    }

    /// Runs commands on the other device, when this one was lost so often.
    fn rerun(&self, commands: &[Command], losses: u64) -> Result<(Timing, impl Sized + use<'_>)> {
        let Some(device) = &self.policy.rerun else {
            return Err(Error::unsupported("the policy names no other device"));
        };
        let carry = || {
            let carrying = self.carrying.lock();
            if self.state.lock().losses != losses {
                let text = "the device was lost meanwhile, and the work with it";
                return Err(Error::DeviceLost(text.into()));
            }
            loop {
                self.device.recovery().wait_for_reset();
                let present = self.device.loss().hold();
                if !present.is_resetting() {
                    return Ok((carrying, present));
                }
            }
        };
        replay::rerun(&self.device, commands, device, carry)
    }
}
