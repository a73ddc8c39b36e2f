//! What a lane has in hand: its entries in order, and how far each is.
//!
//! What ends for good is taken out here and told by the lane. Nothing here waits, decides, or calls the driver.

use std::collections::VecDeque;
use std::sync::Arc;

use elinvar_driver::{Callback, Command, Done, Error, Result, Submission, Timing, fail_signals};

use super::breaker::Permit;
use super::{Attempts, replay};
use crate::observe::trace::Notes;

#[derive(Default)]
pub(super) struct State {
    pub(super) last_id: u64,
    /// In order; those that the driver has had are first.
    pub(super) entries: VecDeque<Entry>,
    /// How many of them the driver has had.
    pub(super) sent: usize,
    /// The one that has to end before more is sent.
    pub(super) alone: Option<u64>,
    /// Set until it is acknowledged.
    pub(super) failure: Option<Error>,
    /// The first has failed, and it is seen to.
    pub(super) recovering: bool,
    /// What has ended and is to be told by the thread.
    pub(super) ends: Vec<(Entry, Result<Timing>)>,
    /// Some wait because of what the driver has, and may be sent when something ends.
    pub(super) held: bool,
    /// It has, or a failure was seen to.
    pub(super) resume: bool,
    pub(super) closed: bool,
    /// How often the device was lost.
    pub(super) losses: u64,
    /// What the driver had then, and has, with what it has ended in for everybody else.
    pub(super) left: Vec<(Entry, Error)>,
    /// The driver's queue has failed with what was left to it.
    pub(super) has_failed: bool,
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
    pub(super) id: u64,
    pub(super) commands: Arc<[Command]>,
    /// What the driver gets: without the signals at the end.
    pub(super) inner: Arc<[Command]>,
    /// Whether that still signals.
    pub(super) signals_within: bool,
    pub(super) done: Done,
    pub(super) notes: Option<Notes>,
    /// Set when it is not to run.
    pub(super) poison: Option<Error>,
    pub(super) progress: Progress,
    pub(super) permit: Option<Permit>,
    pub(super) tried: Attempts,
    /// Resets of the device when it was sent.
    pub(super) seen: u64,
    /// Whether the device may have begun it.
    pub(super) begun: bool,
}

impl State {
    pub(super) fn find(&self, id: u64) -> Option<usize> {
        // Ids ascend, with gaps where others were cancelled.
        self.entries.binary_search_by_key(&id, |entry| entry.id).ok()
    }

    /// The first, if it is still this one.
    pub(super) fn first(&mut self, id: u64) -> Option<&mut Entry> {
        self.entries.front_mut().filter(|first| first.id == id)
    }

    /// How far one is that the driver has, whether it is left to it or not.
    pub(super) fn progress(&mut self, id: u64) -> Option<&mut Progress> {
        if let Some(at) = self.find(id) {
            return Some(&mut self.entries[at].progress);
        }
        self.left.iter_mut().find(|(entry, _)| entry.id == id).map(|(entry, _)| &mut entry.progress)
    }

    /// Ends all there is; what the driver has is left to it.
    pub(super) fn lose(&mut self, cause: &Error) {
        self.losses += 1;
        for entry in std::mem::take(&mut self.entries) {
            self.failure.get_or_insert_with(|| cause.clone());
            match entry.is_with_driver() {
                true => self.left.push((entry, cause.clone())),
                false => self.ends.push((entry, Err(cause.clone()))),
            }
        }
        (self.sent, self.alone, self.held) = (0, None, false);
    }

    /// Takes what was left to the driver, which has let go of it.
    pub(super) fn take_left(&mut self, id: u64) -> Option<(Entry, Error)> {
        let at = self.left.iter().position(|(entry, _)| entry.id == id)?;
        (self.has_failed, self.resume) = (true, true);
        Some(self.left.swap_remove(at))
    }

    /// The driver's answer to a submission that was left to it meanwhile; whether there is something to tell.
    pub(super) fn was_left(&mut self, id: u64, result: Result<Submission>) -> bool {
        let Some((entry, _)) = self.left.iter_mut().find(|(entry, _)| entry.id == id) else { return false };
        match (result, &entry.progress) {
            (Ok(submission), Progress::Sending) => {
                entry.progress = Progress::Sent(submission);
                return false;
            }
            (Ok(_), Progress::Sent(_)) => return false,
            _ => {}
        }
        let gone = self.take_left(id).map(|(entry, cause)| (entry, Err(cause)));
        self.ends.extend(gone);
        true
    }

    pub(super) fn next_to_send(&self) -> Option<usize> {
        let next = self.entries.get(self.sent)?;
        if !self.left.is_empty() {
            return None;
        }
        let may = !self.recovering && self.alone.is_none() && !(next.signals_within && self.sent > 0);
        (may && matches!(next.progress, Progress::Waiting)).then_some(self.sent)
    }

    pub(super) fn remove(&mut self, at: usize) -> Entry {
        self.sent -= usize::from(at < self.sent);
        self.entries.remove(at).expect("`at` was found under this lock")
    }

    /// Takes what has ended for good; a failure of the first has to be seen to.
    pub(super) fn take_ready(&mut self) -> Vec<(Entry, Result<Timing>)> {
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
    pub(super) fn wait_again(&mut self) {
        for entry in self.entries.iter_mut().skip(1).filter(|entry| !entry.tried.stopped) {
            entry.progress = Progress::Waiting;
        }
        (self.sent, self.alone) = (0, None);
    }

    /// Lets the first be sent again, unless it was told to end.
    pub(super) fn try_again(&mut self) {
        if let Some(first) = self.entries.front_mut().filter(|first| !first.tried.stopped) {
            first.progress = Progress::Waiting;
            (self.recovering, self.resume) = (false, true);
        }
    }

    pub(super) fn end_first(&mut self, result: Result<Timing>) {
        let first = self.remove(0);
        self.ends.push((first, result));
        (self.recovering, self.resume) = (false, true);
    }

    /// The first has failed for good, and with it what is behind.
    pub(super) fn give_up(&mut self, error: Error) {
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

    pub(super) fn is_with_driver(&self) -> bool {
        matches!(self.progress, Progress::Sending | Progress::Dropped | Progress::Sent(_))
    }

    /// What the driver gets; nothing to do for what is not to run, so that it ends in its turn.
    pub(super) fn for_driver(&self) -> Arc<[Command]> {
        if self.poison.is_some() { Arc::new([]) } else { self.inner.clone() }
    }

    /// Raises or fails its events, lets go of what it names, and then tells.
    pub(super) fn tell(self, result: Result<Timing>) {
        let Self { commands, inner, done, .. } = self;
        let _callback = Callback::enter();
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
        done.call(result);
    }
}
