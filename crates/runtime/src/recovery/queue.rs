//! [`RecoveringQueue`]: a queue over the driver's own that keeps what it hands on until that has ended well.
//!
//! Work goes to the driver as it comes, in order. When a submission fails, those behind it end as poisoned in the driver's
//! queue; here they wait. A thread of the queue does what [`decide`] says about the first, and hands on again what
//! waits: to the outside nothing has happened, or the first has failed for good, which is then the queue's failure as the contract
//! has it.
//!
//! Invariants:
//! - What was submitted ends in order, each once; cancelled work apart, which ends when the driver has let go of it.
//! - The driver never sees a signal at the end of a submission: it would fail the event at the first failure. Such events are
//!   raised here. A submission that signals before its end goes alone and is never run again.
//! - `sending` orders what goes to the driver; `state` is locked for moments, and by callbacks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use elinvar_driver::{Command, Done, Error, Priority, Queue, Result, Submission, Timing, fail_signals};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::breaker::Permit;
use super::{Action, Attempts, Decision, RecoveryPolicy, decide, replay};
use crate::Device;
use crate::trace::Notes;

/// The handle; dropping it lets what was submitted finish.
pub(crate) struct RecoveringQueue {
    lane: Arc<Lane>,
}

struct Lane {
    device: Device,
    policy: RecoveryPolicy,
    inner: Arc<dyn Queue>,
    sending: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    last_id: u64,
    /// In order; those that the driver has had are first.
    entries: VecDeque<Entry>,
    /// How many of them the driver has had.
    sent: usize,
    /// The one that has to end before more is sent.
    alone: Option<u64>,
    /// Set until it is acknowledged.
    failure: Option<Error>,
    /// The first has failed, and it is seen to.
    recovering: bool,
    /// What has ended and is to be told by the thread.
    ends: Vec<(Entry, Result<Timing>)>,
    /// Something has ended, and more may be sent.
    resume: bool,
    closed: bool,
}

enum Progress {
    Waiting,
    /// The driver is being given it.
    Sending,
    /// It has dropped what it was given, while it was.
    Dropped,
    Sent(Submission),
    Ended(Result<Timing>),
}

struct Entry {
    id: u64,
    commands: Arc<[Command]>,
    /// What the driver gets: without the signals at the end.
    inner: Arc<[Command]>,
    /// Whether that still signals.
    signals_within: bool,
    done: Done,
    notes: Option<Notes>,
    /// Set when it is not to run.
    poison: Option<Error>,
    progress: Progress,
    permit: Option<Permit>,
    tried: Attempts,
    /// Resets of the device when it was sent.
    seen: u64,
    /// Whether the device may have begun it.
    begun: bool,
}

impl RecoveringQueue {
    pub(crate) fn new(device: &Device, priority: Priority, policy: RecoveryPolicy) -> Result<Self> {
        let inner = device.driver().queue_with(priority)?;
        let (sending, state, changed) = (Mutex::default(), Mutex::default(), Condvar::new());
        let lane = Arc::new(Lane { device: device.clone(), policy, inner, sending, state, changed });
        let of_thread = lane.clone();
        std::thread::Builder::new()
            .name("elinvar-recovery".into())
            .spawn(move || of_thread.tend())
            .map_err(|error| Error::Environment(format!("a thread for recovery: {error}")))?;
        Ok(Self { lane })
    }

    /// As [`Queue::submit`]; decisions are noted with the rest of the submission.
    pub(crate) fn submit_noted(
        &self,
        commands: Arc<[Command]>,
        done: Done,
        notes: Option<Notes>,
    ) -> Result<Submission> {
        let order = self.lane.sending.lock();
        let mut state = self.lane.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        let poison = state.failure.as_ref().map(Error::poison);
        let recovery = self.lane.device.recovery();
        let (seen, tried) = (recovery.resets(), Attempts { made: 0, ..Attempts::first(recovery.work()) });
        state.entries.push_back(Entry::new(id, commands, done, notes, poison, tried, seen));
        drop(state);
        self.lane.send(&order);
        Ok(Submission(id))
    }
}

impl Queue for RecoveringQueue {
    fn submit(&self, commands: Arc<[Command]>, done: Done) -> Result<Submission> {
        self.submit_noted(commands, done, None)
    }

    fn cancel(&self, submission: Submission) -> bool {
        let _order = self.lane.sending.lock();
        let mut state = self.lane.state.lock();
        let Some(at) = state.find(submission.0) else { return false };
        match state.entries[at].progress {
            Progress::Sent(inner) => {
                drop(state);
                self.lane.inner.cancel(inner)
            }
            Progress::Waiting if !(state.entries[at].begun || at == 0 && state.recovering) => {
                let entry = state.remove(at);
                state.ends.push((entry, Err(Error::Cancelled)));
                self.lane.changed.notify_all();
                true
            }
            _ => false,
        }
    }

    fn stop(&self, submission: Submission, cause: Error) -> Result<bool> {
        let _order = self.lane.sending.lock();
        let mut state = self.lane.state.lock();
        let Some(at) = state.find(submission.0) else { return Ok(false) };
        let entry = &mut state.entries[at];
        entry.tried.stopped = true;
        match entry.progress {
            Progress::Sent(inner) => {
                drop(state);
                self.lane.inner.stop(inner, cause)
            }
            Progress::Ended(Ok(_)) => Ok(false),
            _ => {
                // Seen to in its turn.
                entry.progress = Progress::Ended(Err(cause));
                state.resume = true;
                self.lane.changed.notify_all();
                Ok(true)
            }
        }
    }

    fn acknowledge(&self) -> Option<Error> {
        self.lane.state.lock().failure.take()
    }
}

impl Drop for RecoveringQueue {
    fn drop(&mut self) {
        self.lane.state.lock().closed = true;
        self.lane.changed.notify_all();
    }
}

/// Tells the lane how a submission has ended; that it was given up, if it is dropped without.
struct Report {
    lane: Arc<Lane>,
    id: u64,
    told: bool,
}

impl Report {
    fn done(lane: &Arc<Lane>, id: u64) -> Done {
        let mut report = Self { lane: lane.clone(), id, told: false };
        Box::new(move |result| {
            report.told = true;
            report.lane.ended(report.id, result);
        })
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if !self.told {
            self.lane.dropped(self.id);
        }
    }
}

impl Lane {
    /// Gives the driver what it may have.
    fn send(self: &Arc<Self>, _order: &MutexGuard<'_, ()>) {
        loop {
            let mut state = self.state.lock();
            let Some(at) = state.next_to_send() else { return };
            let (first, entry) = (at == 0, &mut state.entries[at]);
            let admitted = self.admit(entry);
            let permit = match admitted {
                Ok(permit) => permit,
                Err(error) => {
                    // What is not the first is looked at again in its turn.
                    if first {
                        entry.progress = Progress::Ended(Err(error));
                        state.recovering = true;
                        self.changed.notify_all();
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
            drop(state);
            let result = self.inner.submit(commands, Report::done(self, id));
            if !self.was_sent(id, result) {
                return;
            }
        }
    }

    /// Whether the work may be given to the device: the breaker's permit, which what does not run needs not.
    fn admit(&self, entry: &mut Entry) -> Result<Option<Permit>> {
        if entry.poison.is_some() {
            return Ok(None);
        }
        let resets = self.device.recovery().resets();
        if std::mem::replace(&mut entry.seen, resets) != resets
            && let Some(why) = replay::lost_input(&entry.commands)
        {
            entry.tried.not_again = Some(why.clone());
            return Err(Error::DeviceLost(why));
        }
        self.device.breaker().admit(Instant::now()).map(Some)
    }

    /// Takes the driver's answer to a submission; whether more may follow.
    fn was_sent(&self, id: u64, result: Result<Submission>) -> bool {
        let mut state = self.state.lock();
        let Some(at) = state.find(id) else { return true };
        let entry = &mut state.entries[at];
        match (result, &entry.progress) {
            (Ok(submission), Progress::Sending) => {
                entry.progress = Progress::Sent(submission);
                true
            }
            (Ok(_), Progress::Dropped) => {
                drop(state);
                self.ended(id, Err(given_up()));
                true
            }
            (Ok(_), _) => true,
            (Err(error), _) => {
                if let Some(permit) = entry.permit.take() {
                    self.device.settle(permit, Some(&error));
                }
                if at == 0 || entry.poison.is_some() {
                    entry.progress = Progress::Ended(Err(error));
                    let ready = state.take_ready();
                    state.ends.extend(ready);
                } else {
                    // In its turn again.
                    (entry.progress, entry.tried.made) = (Progress::Waiting, entry.tried.made - 1);
                    state.sent -= 1;
                }
                state.alone.take_if(|alone| *alone == id);
                self.changed.notify_all();
                false
            }
        }
    }

    /// The driver's callback.
    fn ended(&self, id: u64, result: Result<Timing>) {
        let mut state = self.state.lock();
        let Some(at) = state.find(id) else { return };
        let entry = &mut state.entries[at];
        if let Some(permit) = entry.permit.take() {
            let counts = result.as_ref().err().filter(|_| !entry.tried.stopped);
            self.device.settle(permit, counts);
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
        state.resume = state.sent < state.entries.len();
        if state.resume || state.recovering || state.closed {
            self.changed.notify_all();
        }
        drop(state);
        ready.into_iter().for_each(|(entry, result)| entry.tell(result));
    }

    /// The driver's callback was dropped without a call.
    fn dropped(&self, id: u64) {
        let mut state = self.state.lock();
        if let Some(at) = state.find(id) {
            let progress = &mut state.entries[at].progress;
            match progress {
                Progress::Sending => *progress = Progress::Dropped,
                _ => {
                    drop(state);
                    self.ended(id, Err(given_up()));
                }
            }
        }
    }

    /// The thread: sees to failures, sends what had to wait, tells what nobody else can.
    fn tend(self: Arc<Self>) {
        let mut state = self.state.lock();
        loop {
            Self::tell_ends(&mut state);
            if state.recovering {
                self.recover(&mut state);
            } else if std::mem::take(&mut state.resume) {
                let ready = state.take_ready();
                state.ends.extend(ready);
                MutexGuard::unlocked(&mut state, || self.send(&self.sending.lock()));
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
        // What was behind it has ended as poisoned, and waits again.
        self.inner.acknowledge();
        state.wait_again();
        while let Some((decision, error)) = self.decide(state) {
            self.pause(state, &decision);
            let Some(first) = state.entries.front_mut() else { break };
            let (seen, commands) = (first.seen, first.commands.clone());
            match decision.action {
                Action::GiveUp | Action::Refuse => {
                    if first.tried.not_again.is_none() && !first.tried.stopped {
                        self.device.note_loss(&error);
                    }
                    return state.give_up(error);
                }
                Action::Rerun => match MutexGuard::unlocked(state, || self.rerun(&commands)) {
                    Ok(timing) => return state.end_first(Ok(timing)),
                    Err(why) => state.change_first(|tried| tried.no_rerun = Some(why.to_string())),
                },
                Action::Reset => match MutexGuard::unlocked(state, || self.device.reset_since(seen)) {
                    Ok(()) => {
                        state.change_first(|tried| tried.resets += 1);
                        return state.try_again();
                    }
                    Err(why) => state.change_first(|tried| tried.no_reset = Some(why.to_string())),
                },
                Action::Trim => {
                    MutexGuard::unlocked(state, || self.device.pool().trim(0));
                    return state.try_again();
                }
                Action::Retry => return state.try_again(),
            }
        }
        state.recovering = false;
    }

    /// What is done about the first; `None` when it has not failed.
    fn decide(&self, state: &mut State) -> Option<(Decision, Error)> {
        let first = state.entries.front_mut()?;
        let Progress::Ended(Err(error)) = &first.progress else { return None };
        let error = error.clone();
        if first.begun && first.tried.not_again.is_none() {
            first.tried.not_again = replay::not_again(&first.commands);
        }
        let decision = decide(&error, &self.policy, &first.tried);
        self.device.note(first.notes, &decision);
        Some((decision, error))
    }

    /// Lets the time of a decision pass, unless the work is told to end.
    fn pause(&self, state: &mut MutexGuard<'_, State>, decision: &Decision) {
        let end = Instant::now().checked_add(decision.after);
        let stopped = |state: &State| state.entries.front().is_none_or(|first| first.tried.stopped);
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

    fn rerun(&self, commands: &[Command]) -> Result<Timing> {
        match &self.policy.rerun {
            Some(device) => replay::rerun(&self.device, commands, device),
            None => Err(Error::unsupported("the policy names no other device")),
        }
    }
}

fn given_up() -> Error {
    Error::DeviceLost("the driver gave the work up without an answer".into())
}

impl State {
    fn find(&self, id: u64) -> Option<usize> {
        // Ids ascend, with gaps where others were cancelled.
        self.entries.binary_search_by_key(&id, |entry| entry.id).ok()
    }

    fn next_to_send(&self) -> Option<usize> {
        let next = self.entries.get(self.sent)?;
        let may = !self.recovering && self.alone.is_none() && !(next.signals_within && self.sent > 0);
        (may && matches!(next.progress, Progress::Waiting)).then_some(self.sent)
    }

    fn remove(&mut self, at: usize) -> Entry {
        self.sent -= usize::from(at < self.sent);
        self.entries.remove(at).expect("`at` was found under this lock")
    }

    /// Takes what has ended for good; a failure of the first has to be seen to.
    fn take_ready(&mut self) -> Vec<(Entry, Result<Timing>)> {
        let mut ready = Vec::new();
        while !self.recovering
            && let Some(Entry { progress: Progress::Ended(result), poison, .. }) = self.entries.front()
        {
            let result = poison.clone().map_or_else(|| result.clone(), Err);
            if result.is_err() && poison.is_none() {
                self.recovering = true;
                break;
            }
            ready.push((self.remove(0), result));
        }
        ready
    }

    /// Lets all but the first wait, whatever they ended in.
    fn wait_again(&mut self) {
        for entry in self.entries.iter_mut().skip(1).filter(|entry| !entry.tried.stopped) {
            entry.progress = Progress::Waiting;
        }
        (self.sent, self.alone) = (0, None);
    }

    /// Lets the first be sent again, unless it was told to end.
    fn try_again(&mut self) {
        if let Some(first) = self.entries.front_mut().filter(|first| !first.tried.stopped) {
            first.progress = Progress::Waiting;
            (self.recovering, self.resume) = (false, true);
        }
    }

    fn change_first(&mut self, change: impl FnOnce(&mut Attempts)) {
        if let Some(first) = self.entries.front_mut() {
            change(&mut first.tried);
        }
    }

    fn end_first(&mut self, result: Result<Timing>) {
        let first = self.remove(0);
        self.ends.push((first, result));
        (self.recovering, self.resume) = (false, true);
    }

    /// The first has failed for good, and with it what is behind.
    fn give_up(&mut self, error: Error) {
        for entry in self.entries.iter_mut().skip(1) {
            entry.poison.get_or_insert_with(|| error.poison());
            entry.progress = Progress::Waiting;
        }
        self.failure = Some(error.clone());
        self.end_first(Err(error));
    }
}

impl Entry {
    fn new(
        id: u64,
        commands: Arc<[Command]>,
        done: Done,
        notes: Option<Notes>,
        poison: Option<Error>,
        tried: Attempts,
        seen: u64,
    ) -> Self {
        let is_signal = |command: &Command| matches!(command, Command::Signal { .. });
        let len = commands.iter().rposition(|command| !is_signal(command)).map_or(0, |last| last + 1);
        let inner = if len == commands.len() { commands.clone() } else { commands[..len].into() };
        let signals_within = inner.iter().any(is_signal);
        let (progress, permit, begun) = (Progress::Waiting, None, false);
        Self {
            id,
            commands,
            inner,
            signals_within,
            done,
            notes,
            poison,
            progress,
            permit,
            tried,
            seen,
            begun,
        }
    }

    fn is_with_driver(&self) -> bool {
        matches!(self.progress, Progress::Sending | Progress::Dropped | Progress::Sent(_))
    }

    /// What the driver gets; nothing to do for what is not to run, so that it ends in its turn.
    fn for_driver(&self) -> Arc<[Command]> {
        if self.poison.is_some() { Arc::new([]) } else { self.inner.clone() }
    }

    /// Raises or fails its events, lets go of what it names, and then tells.
    fn tell(self, result: Result<Timing>) {
        let Self { commands, inner, done, .. } = self;
        match &result {
            Ok(timing) => {
                for command in &commands[inner.len()..] {
                    if let Command::Signal { event, value } = command {
                        event.signal(*value, timing.end_ns);
                    }
                }
            }
            Err(error) => fail_signals(&commands, error),
        }
        drop((commands, inner));
        done(result);
    }
}
