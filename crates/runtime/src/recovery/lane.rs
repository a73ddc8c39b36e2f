//! What a [`super::RecoveringQueue`] has in hand, and the thread that sees to it.
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
use super::queue::Report;
use super::{Action, Attempts, Decision, RecoveryPolicy, decide, replay};
use crate::Device;
use crate::completion::given_up;
use crate::trace::Notes;

pub(super) struct Lane {
    pub(super) device: Device,
    policy: RecoveryPolicy,
    pub(super) inner: Arc<dyn Queue>,
    pub(super) sending: Mutex<()>,
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) last_id: u64,
    /// In order; those that the driver has had are first.
    pub(super) entries: VecDeque<Entry>,
    /// How many of them the driver has had.
    sent: usize,
    /// The one that has to end before more is sent.
    alone: Option<u64>,
    /// Set until it is acknowledged.
    pub(super) failure: Option<Error>,
    /// The first has failed, and it is seen to.
    pub(super) recovering: bool,
    /// What has ended and is to be told by the thread.
    pub(super) ends: Vec<(Entry, Result<Timing>)>,
    /// Some wait because of what the driver has, and may be sent when something ends.
    held: bool,
    /// It has, or a failure was seen to.
    pub(super) resume: bool,
    pub(super) closed: bool,
}

pub(super) enum Progress {
    Waiting,
    /// The driver is being given it.
    Sending,
    /// It has dropped what it was given, while it was.
    Dropped,
    Sent(Submission),
    Ended(Result<Timing>),
}

pub(super) struct Entry {
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
    pub(super) progress: Progress,
    permit: Option<Permit>,
    pub(super) tried: Attempts,
    /// Resets of the device when it was sent.
    seen: u64,
    /// Whether the device may have begun it.
    pub(super) begun: bool,
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
        let lane = Arc::new(Self { device: device.clone(), policy, inner, sending, state, changed });
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
            let (first, entry) = (at == 0, &mut state.entries[at]);
            let admitted = self.admit(entry);
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
    fn was_sent(&self, state: &mut State, id: u64, result: Result<Submission>) -> bool {
        let Some(at) = state.find(id) else { return true };
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
        while let Some((decision, error)) = self.decide(state) {
            self.pause(state, &decision);
            let Some(first) = state.entries.front_mut() else { break };
            let (seen, commands) = (first.seen, first.commands.clone());
            match decision.action {
                Action::GiveUp | Action::Refuse => {
                    if first.tried.not_again.is_none() && !first.tried.stopped {
                        MutexGuard::unlocked(state, || self.device.note_loss(&error, seen));
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
        (state.recovering, state.resume) = (false, true);
    }

    /// What is done about the first; `None` when it has not failed.
    fn decide(&self, state: &mut State) -> Option<(Decision, Error)> {
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

impl State {
    pub(super) fn find(&self, id: u64) -> Option<usize> {
        // Ids ascend, with gaps where others were cancelled.
        self.entries.binary_search_by_key(&id, |entry| entry.id).ok()
    }

    fn next_to_send(&self) -> Option<usize> {
        let next = self.entries.get(self.sent)?;
        let may = !self.recovering && self.alone.is_none() && !(next.signals_within && self.sent > 0);
        (may && matches!(next.progress, Progress::Waiting)).then_some(self.sent)
    }

    pub(super) fn remove(&mut self, at: usize) -> Entry {
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
    pub(super) fn new(
        id: u64,
        commands: Arc<[Command]>,
        done: Done,
        notes: Option<Notes>,
        poison: Option<Error>,
        tried: Attempts,
        seen: u64,
    ) -> Self {
        let len = replay::last_signals(&commands);
        let inner = if len == commands.len() { commands.clone() } else { commands[..len].into() };
        let signals_within = inner.iter().any(replay::is_signal);
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
