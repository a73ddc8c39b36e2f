//! A queue: submissions in order, sent ahead to the worker up to the first wait whose event is not there yet.
//!
//! A submission goes to the worker in *pieces*, runs of commands between its waits and signals. The worker's queue runs pieces in
//! order, so those of later submissions are sent before earlier ones have ended; only a wait holds back what is behind it.
//! Signals are raised by the host, when the pieces before them have ended.
//!
//! Invariants:
//! - Entries end in order (but those that are cancelled), each by one thread at a time ([`Lane::settle`]) without a lock of the lane held. That
//!   thread is the device's own or who reads what the worker sends: the reader, or one that waits for the lane's only piece.
//! - What an entry ends in is fixed when one before it fails, or its own first piece does.
//! - Pieces of one lane are with one worker: nothing is sent to the next before all that was with the last is known to be lost.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use elinvar_driver::sync::{Condvar, Mutex};
use elinvar_driver::{
    Command, Done, Error, Event, Priority, Queue, Result, Submission, Timing, end_submission,
};

use crate::device::{Core, Task};
use crate::link::{Link, Unsent, lost_to};
use crate::wire::ToWorker;

/// How often a piece is given to another worker, when one ends before it has it.
const TRIES: usize = 3;

/// A queue's handle. Submissions in flight keep the rest alive.
pub(crate) struct IsolatedQueue {
    lane: Arc<Lane>,
}

/// A queue's submissions.
pub(crate) struct Lane {
    pub(crate) core: Arc<Core>,
    pub(crate) id: u64,
    pub(crate) priority: Priority,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    last: u64,
    failure: Option<Error>,
    /// A thread is in [`Lane::settle`], or calls what that has found.
    settling: bool,
    /// That thread looks again.
    again: bool,
    /// The entry that a thread is ending.
    ending: Option<u64>,
    /// The worker that has pieces, and how many.
    with: Option<(Arc<Link>, usize)>,
}

struct Entry {
    id: u64,
    commands: Arc<[Command]>,
    /// Number of the command that comes next.
    next: usize,
    steps: VecDeque<Step>,
    /// Whether it has come further than a wait.
    has_begun: bool,
    waits: bool,
    start_ns: Option<u64>,
    end_ns: u64,
    /// What it is to end in, if it does not end well before.
    stop: Option<Error>,
    /// The worker has been told, and is watched.
    is_watched: bool,
    error: Option<Error>,
    /// The error is that of an entry before it.
    is_poisoned: bool,
    is_cancelled: bool,
    done: Done,
}

/// What has been begun and has not ended, in order.
enum Step {
    Piece {
        id: u64,
        commands: Range<usize>,
    },
    /// The signal that is command number so many.
    Signal(usize),
}

/// What is done without the lock.
enum Action {
    Signal(Arc<dyn Event>, u64),
    End(Box<Entry>, Result<Timing>),
    Await(Await),
}

/// An event that an entry waits for.
struct Await {
    event: Arc<dyn Event>,
    value: u64,
    entry: u64,
}

impl IsolatedQueue {
    pub(crate) fn new(core: &Arc<Core>, priority: Priority) -> Self {
        let (id, state, ended) = (core.number(), Mutex::default(), Condvar::new());
        Self { lane: Arc::new(Lane { core: core.clone(), id, priority, state, ended }) }
    }

    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }
}

#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: a submission ends when the worker says that its own queue has ended it, or when the worker's process is gone, with its
// mappings of the memory.
unsafe impl Queue for IsolatedQueue {
    fn submit(&self, commands: Arc<[Command]>, done: Done) -> Result<Submission> {
        let lane = &self.lane;
        lane.core.process.expect_this(&"a submission")?;
        let mut state = lane.state.lock();
        state.last += 1;
        let id = state.last;
        let error = state.failure.as_ref().map(Error::poison);
        let is_poisoned = error.is_some();
        state.entries.push_back(Entry {
            id,
            commands,
            next: 0,
            steps: VecDeque::new(),
            has_begun: false,
            waits: false,
            start_ns: None,
            end_ns: 0,
            stop: None,
            is_watched: false,
            error,
            is_poisoned,
            is_cancelled: false,
            done,
        });
        let wait = lane.advance(&mut state);
        let is_settled = state.entries.front().is_none_or(|entry| !entry.can_go_on());
        drop(state);
        if let Some(wait) = wait {
            lane.wait_for(wait);
        }
        if !is_settled {
            lane.core.task(Task::Settle(lane.clone()));
        }
        Ok(Submission(id))
    }

    fn cancel(&self, submission: Submission) -> bool {
        let lane = &self.lane;
        let mut state = lane.state.lock();
        let with = state.with.as_ref().map(|(link, _)| link.clone());
        let Some(entry) = state.entry(submission.0) else { return false };
        if entry.is_cancelled {
            return false;
        }
        if entry.has_begun {
            let signaled = matches!(entry.steps.front(), Some(Step::Signal(_)) | None);
            let pieces: Vec<u64> = entry.pieces().collect();
            let is_first = entry.commands[..entry.first_piece()].iter().all(is_wait);
            let (Some(link), false, true) = (with, signaled, is_first) else { return false };
            // While the worker is asked, no lock is held: what it sends is read meanwhile.
            drop(state);
            if !link.cancel(lane.id, pieces, lane.core.number()) {
                return false;
            }
            state = lane.state.lock();
            let Some(entry) = state.entry(submission.0) else { return true };
            entry.is_cancelled = true;
        } else {
            entry.is_cancelled = true;
        }
        drop(state);
        lane.core.task(Task::Settle(lane.clone()));
        true
    }

    fn stop(&self, submission: Submission, cause: Error) -> Result<bool> {
        let lane = &self.lane;
        let mut state = lane.state.lock();
        let with = state.with.as_ref().map(|(link, _)| link.clone());
        let Some(entry) = state.entry(submission.0) else { return Ok(false) };
        entry.stop.get_or_insert_with(|| cause.clone());
        let pieces: Vec<u64> = entry.pieces().collect();
        drop(state);
        if let (Some(link), false) = (with, pieces.is_empty()) {
            link.tell(&ToWorker::Stop { queue: lane.id, pieces, cause });
        }
        lane.core.task(Task::Settle(lane.clone()));
        Ok(true)
    }

    fn spin(&self, is_over: &mut dyn FnMut() -> bool) {
        let with = self.lane.state.lock().with.as_ref().map(|(link, _)| link.clone());
        match with {
            Some(link) => link.spin(&self.lane, is_over),
            None => while !is_over() {},
        }
    }

    fn acknowledge(&self) -> Option<Error> {
        let lane = &self.lane;
        let mut state = lane.state.lock();
        let failure = state.failure.take()?;
        // Before anything that is submitted from now on.
        let link = state.with.as_ref().map(|(link, _)| link.clone()).or_else(|| lane.core.present());
        if let Some(link) = link {
            link.tell(&ToWorker::Acknowledge { queue: lane.id });
        }
        Some(failure)
    }
}

fn is_wait(command: &Command) -> bool {
    matches!(command, Command::Wait { .. })
}

impl State {
    fn entry(&mut self, id: u64) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.id == id)
    }

    /// What waits behind a failure ends in it.
    fn fail(&mut self, error: &Error) {
        for entry in self.entries.iter_mut().filter(|entry| entry.error.is_none()) {
            (entry.error, entry.is_poisoned) = (Some(error.poison()), true);
        }
        self.failure = Some(error.clone());
    }

    fn piece_left(&mut self) {
        if let Some((_, count)) = &mut self.with {
            *count -= 1;
        }
        self.with.take_if(|(_, count)| *count == 0);
    }
}

impl Entry {
    /// The pieces that the worker has.
    fn pieces(&self) -> impl Iterator<Item = u64> {
        self.steps.iter().filter_map(|step| match step {
            Step::Piece { id, .. } => Some(*id),
            Step::Signal(_) => None,
        })
    }

    fn has_pieces(&self) -> bool {
        self.pieces().next().is_some()
    }

    /// Number of the command that the first piece begins with.
    fn first_piece(&self) -> usize {
        let first = self.steps.iter().find_map(|step| match step {
            Step::Piece { commands, .. } => Some(commands.start),
            Step::Signal(_) => None,
        });
        first.unwrap_or(self.next)
    }

    /// Whether there is something to do about it, if it is the first.
    fn can_go_on(&self) -> bool {
        let is_over = self.next == self.commands.len() || self.error.is_some() || self.stop.is_some();
        match self.steps.front() {
            Some(Step::Signal(_)) => true,
            Some(Step::Piece { .. }) => self.stop.is_some() && !self.is_watched,
            None => is_over || self.is_cancelled,
        }
    }
}

impl Lane {
    /// Send what can be sent. Gives the event that has to come before more can.
    fn advance(self: &Arc<Self>, state: &mut State) -> Option<Await> {
        let State { entries, with, .. } = state;
        for entry in entries {
            if entry.error.is_some() || entry.stop.is_some() || entry.is_cancelled {
                return None;
            }
            while let Some(command) = entry.commands.get(entry.next) {
                match command {
                    Command::Wait { event, value } if event.value() >= *value => entry.next += 1,
                    Command::Wait { event, value } => {
                        if let Some(cause) = event.failure() {
                            entry.error = Some(cause);
                            return None;
                        }
                        let is_new = !std::mem::replace(&mut entry.waits, true);
                        let wait = Await { event: event.clone(), value: *value, entry: entry.id };
                        return is_new.then_some(wait);
                    }
                    Command::Signal { .. } => {
                        entry.steps.push_back(Step::Signal(entry.next));
                        entry.next += 1;
                        entry.has_begun = true;
                    }
                    _ => match self.send(entry, with) {
                        Ok(true) => {}
                        Ok(false) => return None,
                        Err(error) => {
                            entry.error = Some(error);
                            return None;
                        }
                    },
                }
            }
        }
        None
    }

    /// Send an entry's commands up to the next wait or signal; `false` if that has to wait until a lost worker is dealt with.
    fn send(self: &Arc<Self>, entry: &mut Entry, with: &mut Option<(Arc<Link>, usize)>) -> Result<bool> {
        let rest = &entry.commands[entry.next..];
        let stays = |command: &Command| matches!(command, Command::Wait { .. } | Command::Signal { .. });
        let len = rest.iter().position(stays).unwrap_or(rest.len());
        let piece = self.core.number();
        for _ in 0..TRIES {
            let link = match with {
                Some((link, _)) => link.clone(),
                None => self.core.link()?,
            };
            match link.submit(self, piece, &rest[..len]) {
                Ok(()) => {
                    with.get_or_insert((link, 0)).1 += 1;
                    entry.steps.push_back(Step::Piece { id: piece, commands: entry.next..entry.next + len });
                    entry.next += len;
                    entry.has_begun = true;
                    return Ok(true);
                }
                Err(Unsent::Wrong(error)) => return Err(error),
                Err(Unsent::Lost) if with.is_some() => return Ok(false),
                Err(Unsent::Lost) => {}
            }
        }
        Err(Error::DeviceLost("worker processes end before they accept work".into()))
    }

    /// Have the lane go on when an event is there.
    fn wait_for(self: &Arc<Self>, wait: Await) {
        let lane = self.clone();
        let Await { event, value, entry } = wait;
        let go_on = move |_| {
            let mut state = lane.state.lock();
            let Some(entry) = state.entry(entry) else { return };
            entry.waits = false;
            drop(state);
            lane.core.task(Task::Settle(lane.clone()));
        };
        event.when(value, Box::new(go_on));
    }

    /// Do all that is to be done now: raise events, end submissions, send more.
    pub(crate) fn settle(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            if state.settling {
                state.again = true;
                return;
            }
            state.settling = true;
        }
        loop {
            let action = {
                let mut state = self.state.lock();
                let action = self.next_action(&mut state);
                if action.is_none() && !std::mem::take(&mut state.again) {
                    state.settling = false;
                    self.ended.notify_all();
                    return;
                }
                action
            };
            match action {
                Some(Action::Signal(event, value)) => {
                    // A panic is of somebody's callback, and has been reported.
                    let _panic = catch_unwind(AssertUnwindSafe(|| event.signal(value, self.core.now_ns())));
                }
                Some(Action::End(entry, result)) => {
                    let Entry { commands, done, .. } = *entry;
                    end_submission(commands, done, result);
                    let mut state = self.state.lock();
                    state.ending = None;
                    self.ended.notify_all();
                }
                Some(Action::Await(wait)) => self.wait_for(wait),
                None => {}
            }
        }
    }

    fn next_action(self: &Arc<Self>, state: &mut State) -> Option<Action> {
        let gone = |entry: &Entry| entry.is_cancelled && !entry.has_pieces();
        if let Some(at) = state.entries.iter().position(gone) {
            let entry = state.entries.remove(at)?;
            return Some(Self::end(state, entry, Err(Error::Cancelled)));
        }
        loop {
            if let Some(action) = self.first_action(state) {
                return Some(action);
            }
            let before = state.entries.front().map(Entry::can_go_on);
            if let Some(wait) = self.advance(state) {
                return Some(Action::Await(wait));
            }
            if before == Some(true) || !state.entries.front().is_some_and(Entry::can_go_on) {
                return None;
            }
        }
    }

    /// What is to be done about the first entry.
    fn first_action(self: &Arc<Self>, state: &mut State) -> Option<Action> {
        let entry = state.entries.front_mut()?;
        if entry.is_cancelled {
            return None;
        }
        if let (Some(Step::Signal(at)), None) = (entry.steps.front(), &entry.error) {
            let at = *at;
            entry.steps.pop_front();
            if let Command::Signal { event, value } = &entry.commands[at] {
                return Some(Action::Signal(event.clone(), *value));
            }
        }
        if entry.has_pieces() {
            self.watch(entry, state.with.as_ref().map(|(link, _)| link));
            return None;
        }
        let is_over = entry.next == entry.commands.len();
        let result = match (&entry.error, &entry.stop) {
            (Some(error), _) => Err(error.clone()),
            (None, None) if is_over => Ok(()),
            (None, Some(_)) if is_over && entry.has_begun => Ok(()),
            (None, Some(cause)) => Err(cause.clone()),
            (None, None) => return None,
        };
        let now = self.core.now_ns();
        let start_ns = entry.start_ns.unwrap_or(now);
        let timing = Timing { start_ns, end_ns: if entry.start_ns.is_some() { entry.end_ns } else { now } };
        let entry = state.entries.pop_front()?;
        if let Err(error) = &result
            && !entry.is_poisoned
        {
            state.fail(error);
        }
        Some(Self::end(state, entry, result.map(|()| timing)))
    }

    fn end(state: &mut State, entry: Entry, result: Result<Timing>) -> Action {
        state.ending = Some(entry.id);
        Action::End(Box::new(entry), result)
    }

    /// Has the worker ended, if what was told to stop and runs does not end in time.
    fn watch(self: &Arc<Self>, entry: &mut Entry, link: Option<&Arc<Link>>) {
        if let (Some(cause), false, Some(link)) = (&entry.stop, entry.is_watched, link) {
            link.arm(Instant::now() + self.core.options.grace, self, entry.id, lost_to(cause));
            entry.is_watched = true;
        }
    }

    /// A worker has ended a piece, at times of its clock.
    pub(crate) fn piece_ended(
        &self,
        link: &Link,
        piece: u64,
        result: Result<(u64, u64)>,
        stamps: &[Option<u64>],
    ) {
        let mut state = self.state.lock();
        let has = |entry: &&mut Entry| entry.pieces().any(|id| id == piece);
        let Some(entry) = state.entries.iter_mut().find(has) else { return };
        let is_it = |step: &Step| matches!(step, Step::Piece { id, .. } if *id == piece);
        let at = entry.steps.iter().position(is_it);
        let Some(Step::Piece { commands, .. }) = at.and_then(|at| entry.steps.remove(at)) else { return };
        let marks = entry.commands[commands].iter().filter_map(|command| match command {
            Command::Timestamp { into } => Some(into),
            _ => None,
        });
        for (into, noted) in marks.zip(stamps) {
            noted.iter().for_each(|noted| into.set(link.time(*noted)));
        }
        match result {
            Ok((start, end)) => {
                entry.start_ns.get_or_insert(link.time(start));
                entry.end_ns = link.time(end);
            }
            Err(Error::Cancelled) => entry.is_cancelled = true,
            Err(error) => {
                // The worker knows of the failure before it, perhaps sooner than that has been seen to here.
                entry.is_poisoned |= matches!(error, Error::Poisoned(_));
                entry.error.get_or_insert(error);
            }
        }
        state.piece_left();
    }

    /// Why an entry is to stop whose piece a worker has and cannot stop.
    pub(crate) fn stopping(&self, piece: u64) -> Option<Error> {
        let state = self.state.lock();
        let entry = state.entries.iter().find(|entry| entry.pieces().any(|id| id == piece))?;
        entry.stop.clone()
    }

    /// Whether an entry is the first and a worker has pieces of it.
    pub(crate) fn is_running(&self, entry: u64) -> bool {
        let state = self.state.lock();
        state.entries.front().is_some_and(|first| first.id == entry && first.has_pieces())
    }

    /// The kernels of the first piece that has not ended.
    pub(crate) fn running(&self) -> Vec<String> {
        let state = self.state.lock();
        let Some(entry) = state.entries.iter().find(|entry| entry.has_pieces()) else { return Vec::new() };
        let first = entry.steps.iter().find_map(|step| match step {
            Step::Piece { commands, .. } => Some(commands.clone()),
            Step::Signal(_) => None,
        });
        let mut names = Vec::new();
        for command in &entry.commands[first.unwrap_or_default()] {
            if let Command::Dispatch(dispatch) = command
                && !names.contains(&dispatch.pipeline.signature().name)
            {
                names.push(dispatch.pipeline.signature().name.clone());
            }
        }
        names
    }

    /// A worker has ended, and with it all its pieces.
    pub(crate) fn lose(&self, number: u64, cause: &Error) {
        let mut state = self.state.lock();
        if state.with.take_if(|(link, _)| link.number == number).is_none() {
            return;
        }
        // What is behind the first is marked when that ends.
        let mut cause = Some(cause);
        for entry in state.entries.iter_mut().filter(|entry| entry.has_pieces()) {
            entry.steps.retain(|step| matches!(step, Step::Signal(_)));
            if let Some(cause) = cause.take() {
                let error = entry.stop.as_ref().unwrap_or(cause).clone();
                entry.error.get_or_insert(error);
            }
        }
    }

    /// All that is in flight is to end in `cause`, once no worker has it; the last of it.
    pub(crate) fn abandon(&self, cause: &Error) -> u64 {
        let mut state = self.state.lock();
        for entry in &mut state.entries {
            entry.error.get_or_insert_with(|| cause.clone());
        }
        if !state.entries.is_empty() {
            state.failure.get_or_insert_with(|| cause.clone());
        }
        state.last
    }

    /// Blocks until all up to an entry have ended.
    pub(crate) fn wait_until_ended(&self, last: u64) {
        let mut state = self.state.lock();
        let is_left = |state: &State| {
            state.ending.is_some_and(|id| id <= last)
                || state.entries.front().is_some_and(|entry| entry.id <= last)
        };
        while is_left(&state) {
            self.ended.wait(&mut state);
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.core.forget(&ToWorker::Close { queue: self.id });
    }
}
