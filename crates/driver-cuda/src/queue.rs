//! A queue: a stream of the driver, and on the host what the stream has not been given yet.
//!
//! Submissions are given to the stream in order, ahead of their turn, so that the device need not wait for the host between
//! them. What has been given has begun: it cannot be cancelled. Kept back on the host is
//!
//! - what waits for an event that the device does not know to come ([`CudaEvent`](crate::event::CudaEvent)), and all behind
//!   it;
//! - what is behind a launch with bounds checks, until it is known whether that has failed;
//! - what is further ahead than about a millisecond of work, so that of long work little is given that could still be
//!   cancelled, and the stream never has more launches than the driver takes without waiting.
//!
//! Invariants:
//! - `flying` lists in order what the host has to do as the device comes along; only the device's thread takes from it.
//! - While `flying` has anything the lane is on the list of that thread (`is_watched`), which keeps it alive.
//! - A submission's memory is let go of when the device has done all of it, also when it ends in an error.
//! - `done` and the callbacks of events are called without any lock held.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cudarc::driver::sys::CUstream;
use elinvar_driver::{Command, Done, Error, Event, Queue, Result, Submission, Timing, fail_signals};
use parking_lot::{Mutex, MutexGuard};

use crate::clock::now_ns;
use crate::context::{DeviceEvent, Handle};
use crate::encode::{Encoder, HostStep, Step, pipeline};
use crate::event::CudaEvent;
use crate::failure::Failure;
use crate::kept::Kept;
use crate::shared::Shared;

/// Submissions are given ahead for about so much work.
const AHEAD_NS: u64 = 1_000_000;
/// What a submission is taken to need before any has been seen.
const FIRST_NS: u64 = AHEAD_NS / 4;
/// Commands that a stream is given at most; the driver takes about a thousand without waiting.
const MOST_AHEAD: u32 = 512;
/// Commands between two points at which the host learns how far the device is.
const PART: u32 = 128;

/// A queue's handle.
pub(crate) struct CudaQueue {
    lane: Arc<Lane>,
}

/// A stream and what is to be done on it.
pub(crate) struct Lane {
    shared: Arc<Shared>,
    stream: Handle<CUstream>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What has not been given to the device, or not all of it: the first only.
    waiting: VecDeque<Entry>,
    /// What the host has to do as the device comes along.
    flying: VecDeque<Mark>,
    /// The number of the event's callback that the first of `waiting` waits for.
    gate: Option<u64>,
    gates: u64,
    /// Whether nothing may be given before what flies has ended.
    holds: bool,
    /// The last point that was recorded, while something flies.
    tail: Option<Arc<DeviceEvent>>,
    /// Whether the stream was given something since.
    has_more: bool,
    /// What the driver has answered that ends everything.
    broken: Option<Failure>,
    /// Commands and submissions that the stream has been given and that have not ended.
    commands_ahead: u32,
    submissions_ahead: u64,
    /// What a submission takes, about.
    mean_ns: Option<u64>,
    /// When the submission began whose marks come next, and the last time that was told.
    start_ns: u64,
    last_ns: u64,
    last_id: u64,
    failure: Option<Error>,
    is_watched: bool,
    params: Vec<u8>,
}

struct Entry {
    id: u64,
    commands: Arc<[Command]>,
    /// Number of the command that comes next.
    next: usize,
    /// Whether the device has been given any of it.
    has_begun: bool,
    /// Events that the stream waits for on the device.
    waits: Vec<(Arc<dyn Event>, u64)>,
    done: Done,
    /// Set when it is not to run, or not on.
    ended: Option<Error>,
}

/// Something for the host to do when the device has come so far.
struct Mark {
    /// `None`: when what is before it has been done.
    at: Option<Arc<DeviceEvent>>,
    /// It was given by the host then, so it was not before.
    given_ns: u64,
    /// Commands that the device has done then.
    commands: u32,
    kept: Kept,
    what: What,
}

enum What {
    /// A submission begins.
    Begin,
    Host(HostStep),
    /// A part of a submission has ended.
    Part,
    /// A submission has ended.
    End(Ending),
}

struct Ending {
    id: u64,
    commands: Arc<[Command]>,
    has_begun: bool,
    waits: Vec<(Arc<dyn Event>, u64)>,
    done: Done,
    result: Result<()>,
}

/// What is done without the lock.
enum Reached {
    Signal(Arc<dyn Event>, u64, u64),
    End(Arc<[Command]>, Done, Result<Timing>),
}

/// What a turn has brought.
pub(crate) struct Turn {
    pub(crate) has_done: bool,
    pub(crate) goes_on: bool,
}

/// How far giving a submission came.
enum Given {
    All,
    Part,
    Gate(Arc<dyn Event>, u64),
}

impl CudaQueue {
    pub(crate) fn new(shared: &Arc<Shared>, priority: i32) -> Result<Self> {
        let _current = shared.context.enter()?;
        let stream = Handle(shared.context.create_stream(priority)?);
        let lane = Arc::new(Lane { shared: shared.clone(), stream, state: Mutex::default() });
        shared.register(&lane);
        Ok(Self { lane })
    }
}

impl Queue for CudaQueue {
    fn submit(&self, commands: Arc<[Command]>, done: Done) -> Result<Submission> {
        if let Some(lost) = self.lane.shared.context.lost() {
            return Err(lost.clone());
        }
        // Not under the lock: code may have to be made for what is bound.
        for command in commands.iter() {
            if let Command::Dispatch(dispatch) = command {
                pipeline(dispatch)?.function(&dispatch.bindings)?;
            }
        }
        let mut state = self.lane.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        let ended = state.failure.as_ref().map(Error::poison);
        let waits = Vec::new();
        state.waiting.push_back(Entry { id, commands, next: 0, has_begun: false, waits, done, ended });
        self.lane.advance(state);
        Ok(Submission(id))
    }

    fn cancel(&self, submission: Submission) -> bool {
        let mut state = self.lane.state.lock();
        // Ids ascend, with gaps where others were cancelled.
        let Ok(index) = state.waiting.binary_search_by_key(&submission.0, |entry| entry.id) else {
            return false;
        };
        if state.waiting[index].has_begun {
            return false;
        }
        let Some(entry) = state.waiting.remove(index) else { return false };
        if index == 0 {
            state.gate = None;
        }
        let end = move || Reached::End(entry.commands, entry.done, Err(Error::Cancelled)).act();
        self.lane.shared.poller.run_soon(Box::new(end));
        self.lane.advance(state);
        true
    }

    /// What the device has been given runs to its end.
    fn stop(&self, submission: Submission, cause: Error) -> Result<bool> {
        let running = || Error::unsupported("what an NVIDIA GPU has been given runs to its end");
        let mut state = self.lane.state.lock();
        let Ok(index) = state.waiting.binary_search_by_key(&submission.0, |entry| entry.id) else {
            let flies = state.flying.iter().find_map(|mark| match &mark.what {
                What::End(end) if end.id == submission.0 => Some(end.has_begun),
                _ => None,
            });
            return if flies == Some(true) { Err(running()) } else { Ok(flies.is_some()) };
        };
        if state.waiting[index].has_begun && state.gate.is_none() {
            return Err(running());
        }
        let entry = &mut state.waiting[index];
        entry.ended.get_or_insert(cause);
        if index == 0 {
            state.gate = None;
        }
        self.lane.advance(state);
        Ok(true)
    }

    fn acknowledge(&self) -> Option<Error> {
        self.lane.state.lock().failure.take()
    }
}

impl Lane {
    /// Give the device what it may have, and see to what comes of it.
    fn advance(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let gate = self.give(&mut state);
        let is_new = !state.flying.is_empty() && !state.is_watched;
        state.is_watched |= is_new;
        drop(state);
        if is_new {
            self.shared.poller.watch(self.clone());
        }
        let Some((event, value, number)) = gate else { return };
        let lane = self.clone();
        let open = move |_| {
            let mut state = lane.state.lock();
            // Another number: it was cancelled or stopped.
            if state.gate == Some(number) {
                state.gate = None;
                lane.advance(state);
            }
        };
        event.when(value, Box::new(open));
    }

    /// Give the stream what it may have. Gives the event to wait for and the gate's number.
    fn give(&self, state: &mut State) -> Option<(Arc<dyn Event>, u64, u64)> {
        let current = self.shared.context.enter();
        while state.gate.is_none() && !state.holds && state.has_room() {
            let mut entry = state.waiting.pop_front()?;
            let lost = current.as_ref().err().cloned();
            if let Some(cause) = lost.or_else(|| entry.ended.take()) {
                state.fail_unless_poisoned(&cause);
                self.end(state, entry, Kept::default(), 0, Err(cause));
                continue;
            }
            let (mut kept, mut count) = (Kept::default(), 0);
            match self.part(state, &mut entry, &mut kept, &mut count) {
                Ok(Given::All) => self.end(state, entry, kept, count, Ok(())),
                Ok(Given::Part) => {
                    state.holds = kept.has_checks();
                    self.mark(state, kept, count, What::Part);
                    state.waiting.push_front(entry);
                }
                Ok(Given::Gate(event, value)) => {
                    if count > 0 {
                        self.mark(state, kept, count, What::Part);
                    }
                    state.waiting.push_front(entry);
                    state.gates += 1;
                    state.gate = Some(state.gates);
                    return Some((event, value, state.gates));
                }
                Err(error) => {
                    state.fail(&error);
                    self.end(state, entry, kept, count, Err(error));
                }
            }
        }
        None
    }

    /// Give the stream commands of a submission: all, or as many as make a part.
    fn part(&self, state: &mut State, entry: &mut Entry, kept: &mut Kept, count: &mut u32) -> Result<Given> {
        let mut params = std::mem::take(&mut state.params);
        let given = self.part_with(state, entry, kept, count, &mut params);
        state.params = params;
        given
    }

    fn part_with(
        &self,
        state: &mut State,
        entry: &mut Entry,
        kept: &mut Kept,
        count: &mut u32,
        params: &mut Vec<u8>,
    ) -> Result<Given> {
        let commands = entry.commands.clone();
        while let Some(command) = commands.get(entry.next) {
            if kept.has_checks() || *count >= PART {
                return Ok(Given::Part);
            }
            if !entry.has_begun && !matches!(command, Command::Wait { .. }) {
                self.begin(state, entry, command);
            }
            let mut encoder = Encoder { shared: &self.shared, stream: self.stream.0, kept, params };
            match encoder.encode(command)? {
                Step::Nothing => {}
                Step::Work => {
                    state.has_more = true;
                    *count += 1;
                }
                Step::Waits(event, value) => {
                    if !entry.has_begun {
                        self.begin(state, entry, command);
                    }
                    state.has_more = true;
                    entry.waits.push((event, value));
                }
                Step::Host(step) => self.mark(state, Kept::default(), 0, What::Host(step)),
                Step::Gate(event, value) => return Ok(Given::Gate(event, value)),
            }
            entry.next += 1;
        }
        // What may have failed has to be looked at before it can be said to have ended.
        Ok(if kept.has_checks() { Given::Part } else { Given::All })
    }

    /// A submission begins now, or when what is before it has ended.
    fn begin(&self, state: &mut State, entry: &mut Entry, first: &Command) {
        entry.has_begun = true;
        state.submissions_ahead += 1;
        // With nothing before it there is no point in the stream yet that says when.
        let works = !matches!(first, Command::Signal { .. } | Command::Timestamp { .. });
        state.has_more |= works && state.flying.is_empty();
        self.mark(state, Kept::default(), 0, What::Begin);
    }

    fn end(&self, state: &mut State, entry: Entry, kept: Kept, count: u32, result: Result<()>) {
        let Entry { id, commands, has_begun, waits, done, .. } = entry;
        self.mark(state, kept, count, What::End(Ending { id, commands, has_begun, waits, done, result }));
    }

    /// Have the host do something when the device has come so far.
    fn mark(&self, state: &mut State, kept: Kept, commands: u32, what: What) {
        let context = &self.shared.context;
        if kept.has_checks() {
            state.broken = kept.fetch(context, self.stream.0).err().or(state.broken);
        }
        if state.has_more {
            state.has_more = false;
            match DeviceEvent::record(context, self.stream.0) {
                Ok(event) => state.tail = Some(Arc::new(event)),
                Err(failure) => state.broken = Some(failure),
            }
        }
        let at = state.tail.clone();
        if let (What::Host(HostStep::Signal(event, value)), Some(at)) = (&what, &at)
            && let Some(event) = CudaEvent::of(&**event)
        {
            event.promise(*value, at);
        }
        state.commands_ahead += commands;
        state.flying.push_back(Mark { at, given_ns: now_ns(), commands, kept, what });
    }

    /// Do what is to be done for what the device has come to. Only the device's thread calls this.
    pub(crate) fn turn(self: &Arc<Self>) -> Turn {
        let mut reached = Vec::new();
        let mut state = self.state.lock();
        let collected = self.collect(&mut state, &mut reached);
        drop(state);
        let has_done = !reached.is_empty();
        reached.into_iter().for_each(Reached::act);
        if let Err(failure) = collected {
            self.shared.fail(failure);
        }
        state = self.state.lock();
        state.is_watched = !state.flying.is_empty() || !state.waiting.is_empty() && state.gate.is_none();
        let goes_on = state.is_watched;
        self.advance(state);
        Turn { has_done, goes_on }
    }

    fn collect(&self, state: &mut State, reached: &mut Vec<Reached>) -> Result<(), Failure> {
        let Ok(_current) = self.shared.context.enter() else {
            self.abandon_locked(state, None, reached);
            return Ok(());
        };
        if let Some(failure) = state.broken {
            return Err(failure);
        }
        let mut come: Option<(Arc<DeviceEvent>, u64)> = None;
        while let Some(mark) = state.flying.front() {
            let ns = match &mark.at {
                None => state.last_ns.max(mark.given_ns),
                Some(at) => match &come {
                    Some((known, ns)) if Arc::ptr_eq(known, at) => *ns,
                    _ if !at.has_come()? => break,
                    _ => {
                        let ns = self.shared.clock.place(at)?;
                        come = Some((at.clone(), ns));
                        ns
                    }
                },
            };
            if let What::End(end) = &mark.what
                && end.waits.iter().any(|(event, value)| event.value() < *value && event.failure().is_none())
            {
                // The device knows it, the host not yet: its turn comes.
                break;
            }
            let ns = ns.max(mark.given_ns).min(now_ns()).max(state.last_ns);
            state.last_ns = ns;
            if let Some(mark) = state.flying.pop_front() {
                self.pass(state, mark, ns, reached);
            }
        }
        if state.flying.is_empty() {
            state.tail = None;
            self.shared.clock.refresh()?;
        }
        Ok(())
    }

    /// The device has come to a mark.
    fn pass(&self, state: &mut State, mark: Mark, ns: u64, reached: &mut Vec<Reached>) {
        let Mark { commands, kept, what, .. } = mark;
        state.commands_ahead -= commands;
        let (has_checks, fault) = (kept.has_checks(), kept.fault());
        kept.end(&self.shared.chunks);
        match what {
            What::Begin => state.start_ns = ns,
            What::Host(HostStep::Stamp(into)) => into.set(ns),
            What::Host(HostStep::Signal(event, value)) => reached.push(Reached::Signal(event, value, ns)),
            What::Part => {
                state.holds &= !has_checks;
                if let (Some(fault), Some(entry)) = (fault, state.waiting.front_mut()) {
                    entry.ended = Some(fault);
                }
            }
            What::End(end) => {
                let timing = Timing { start_ns: if end.has_begun { state.start_ns } else { ns }, end_ns: ns };
                if end.has_begun {
                    state.submissions_ahead -= 1;
                    let took = timing.end_ns.saturating_sub(timing.start_ns);
                    state.mean_ns = Some(state.mean_ns.map_or(took, |mean| (3 * mean + took) / 4));
                }
                reached.push(Reached::End(end.commands, end.done, end.result.map(|()| timing)));
            }
        }
    }

    /// The kernels that the device has been given and may not have ended, by submission.
    pub(crate) fn suspects(&self) -> Vec<Arc<[Command]>> {
        let state = self.state.lock();
        let flying = state.flying.iter().filter_map(|mark| match &mark.what {
            What::End(end) if end.has_begun && end.result.is_ok() => Some(end.commands.clone()),
            _ => None,
        });
        flying
            .chain(state.waiting.iter().filter(|entry| entry.has_begun).map(|entry| entry.commands.clone()))
            .collect()
    }

    /// Let everything end, since the context has. The submission of `guilty` ends in that error.
    pub(crate) fn abandon(&self, guilty: Option<(&Arc<[Command]>, &Error)>) {
        let mut reached = Vec::new();
        self.abandon_locked(&mut self.state.lock(), guilty, &mut reached);
        reached.into_iter().for_each(Reached::act);
    }

    fn abandon_locked(
        &self,
        state: &mut State,
        guilty: Option<(&Arc<[Command]>, &Error)>,
        reached: &mut Vec<Reached>,
    ) {
        let lost = self.shared.context.lost().cloned();
        let lost =
            lost.unwrap_or_else(|| Error::DeviceLost(format!("device `{}`", self.shared.context.name)));
        let mut behind = lost.clone();
        let mut end = |commands: Arc<[Command]>, done, known: Result<()>| {
            let error = match (guilty, known) {
                (_, Err(known)) => known,
                (Some((theirs, fault)), _) if Arc::ptr_eq(theirs, &commands) => {
                    behind = fault.poison();
                    (*fault).clone()
                }
                _ => behind.clone(),
            };
            reached.push(Reached::End(commands, done, Err(error)));
        };
        for mark in std::mem::take(&mut state.flying) {
            if let What::End(Ending { commands, done, result, .. }) = mark.what {
                end(commands, done, result);
            }
        }
        for entry in std::mem::take(&mut state.waiting) {
            end(entry.commands, entry.done, entry.ended.map_or(Ok(()), Err));
        }
        let failure = state.failure.take().unwrap_or_else(|| guilty.map_or(lost, |(_, fault)| fault.clone()));
        *state = State {
            last_id: state.last_id,
            is_watched: state.is_watched,
            failure: Some(failure),
            ..State::default()
        };
    }
}

impl Drop for Lane {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        if let Ok(_current) = self.shared.context.enter() {
            // SAFETY: the stream is this lane's alone, and nothing flies.
            let _left = unsafe { self.shared.context.api.destroy_stream(self.stream.0) };
        }
    }
}

impl State {
    /// Whether more may be given.
    fn has_room(&self) -> bool {
        let most = (AHEAD_NS / self.mean_ns.unwrap_or(FIRST_NS).max(1)).clamp(2, u64::from(MOST_AHEAD));
        let goes_on = self.waiting.front().is_some_and(|entry| entry.has_begun);
        self.commands_ahead + PART <= MOST_AHEAD && (goes_on || self.submissions_ahead < most)
    }

    /// What waits behind a failure, and what comes, is not to run.
    fn fail(&mut self, error: &Error) {
        for entry in &mut self.waiting {
            entry.ended = Some(error.poison());
        }
        self.failure = Some(error.clone());
    }

    /// The same, unless it is the failure of something before it, which all know.
    fn fail_unless_poisoned(&mut self, cause: &Error) {
        if !matches!(cause, Error::Poisoned(_)) {
            self.fail(cause);
        }
    }
}

impl Reached {
    /// Tell those who wait. A panic of a callback ends here: the hook has reported it, and nobody is left to tell.
    fn act(self) {
        let told = catch_unwind(AssertUnwindSafe(|| match self {
            Self::Signal(event, value, ns) => event.signal(value, ns),
            Self::End(commands, done, result) => {
                if let Err(error) = &result {
                    fail_signals(&commands, error);
                }
                // Let go of what they name before anybody learns of the end.
                drop(commands);
                done(result);
            }
        }));
        if told.is_err() {
            tracing::error!("a callback has panicked");
        }
    }
}
