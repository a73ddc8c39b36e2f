//! A lane: a stream of the driver, and on the host what the stream has not been given yet.
//!
//! Submissions are given to the stream in order, ahead of their turn, so that the device need not wait for the host between
//! them. What has been given has begun: it cannot be cancelled. Kept back on the host is
//!
//! - what waits for an event that the device does not know to come ([`CudaEvent`](crate::event::CudaEvent)), and all behind
//!   it;
//! - what is behind a launch with bounds checks, until it is known whether that has failed;
//! - an indirect launch, until the device has done all before it and has brought its counts to the host. CUDA launches nothing
//!   of a size that the host does not know, so the device waits for the host once for each such launch;
//! - what is further ahead than about a millisecond of work, so that of long work little is given that could still be
//!   cancelled, and the stream never has more launches than the driver takes without waiting.
//!
//! Two locks, in this order: `state` is held while the stream is given work, which takes as long as the driver's calls do;
//! `flight` for moments only, so that noticing what has ended and giving more do not hold each other up.
//!
//! Invariants:
//! - `Flight::marks` lists in order what the host has to do as the device comes along; only the device's thread takes from it.
//! - While it has anything the lane is on the list of that thread (`is_watched`), which keeps it alive.
//! - What waits only for room is given when something has ended: `has_backlog` is set before it is seen that something flies.
//! - A submission's memory is let go of when the device has done all of it, also when it ends in an error.
//! - `done` and the callbacks of events are called without any lock held.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys::CUstream;
use elinvar_driver::{Command, Dim3, Done, Error, Event, Result};
use parking_lot::{Mutex, MutexGuard};

use crate::arrive::{Ending, Mark, What};
use crate::clock::now_ns;
use crate::context::{DeviceEvent, Handle};
use crate::encode::{Encoder, HostStep, Step};
use crate::event::CudaEvent;
use crate::failure::Failure;
use crate::kept::Kept;
use crate::shared::Shared;

/// Submissions are given ahead for about so much work.
const AHEAD_NS: u64 = 1_000_000;
/// What a submission is taken to need before any has been seen.
const FIRST_NS: u64 = AHEAD_NS / 4;
/// Commands that a stream is given at most; the driver takes about a thousand without waiting.
const MOST_AHEAD: u32 = 960;
/// Commands between two points at which the host learns how far the device is.
const PART: u32 = 128;

/// A stream and what is to be done on it.
pub(crate) struct Lane {
    pub(crate) shared: Arc<Shared>,
    stream: Handle<CUstream>,
    pub(crate) state: Mutex<State>,
    pub(crate) flight: Mutex<Flight>,
    /// Whether something waits for nothing but what flies.
    pub(crate) has_backlog: AtomicBool,
}

/// What has not been given to the device, and the stream's end.
#[derive(Default)]
pub(crate) struct State {
    /// Submissions of which the device has not been given all: of the first only it may have been given some.
    pub(crate) waiting: VecDeque<Entry>,
    /// The number of the event's callback that the first of `waiting` waits for.
    pub(crate) gate: Option<u64>,
    gates: u64,
    /// Whether nothing may be given before what flies has ended.
    pub(crate) holds: bool,
    /// The last point that was recorded.
    tail: Option<Arc<DeviceEvent>>,
    /// Whether the stream was given something since.
    has_more: bool,
    pub(crate) last_id: u64,
    pub(crate) failure: Option<Error>,
    /// Whether the device's thread has to be told of the lane.
    is_new: bool,
    params: Vec<u8>,
}

/// What the device has been given and has not been seen to have ended.
#[derive(Default)]
pub(crate) struct Flight {
    /// What the host has to do as the device comes along.
    pub(crate) marks: VecDeque<Mark>,
    /// What the driver has answered that ends everything.
    pub(crate) broken: Option<Failure>,
    pub(crate) commands: u32,
    pub(crate) submissions: u64,
    /// What a submission takes, about.
    pub(crate) mean_ns: Option<u64>,
    /// When the submission began whose marks come next, and the last time that was told.
    pub(crate) start_ns: u64,
    pub(crate) last_ns: u64,
    pub(crate) is_watched: bool,
}

pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) commands: Arc<[Command]>,
    /// Number of the command that comes next.
    pub(crate) next: usize,
    /// Whether the device has been given any of it.
    pub(crate) has_begun: bool,
    /// The threadgroups of the command that comes next, an indirect launch, once they are known.
    pub(crate) counts: Option<Dim3>,
    /// Events that the stream waits for on the device.
    pub(crate) waits: Vec<(Arc<dyn Event>, u64)>,
    pub(crate) done: Done,
    /// Set when it is not to run, or not on.
    pub(crate) ended: Option<Error>,
}

/// How far giving a submission came.
enum Given {
    All,
    Part,
    Gate(Arc<dyn Event>, u64),
}

impl Lane {
    pub(crate) fn new(shared: &Arc<Shared>, priority: i32) -> Result<Arc<Self>> {
        let _current = shared.context.enter()?;
        let stream = Handle(shared.context.create_stream(priority)?);
        let (state, flight, has_backlog) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        let lane = Arc::new(Self { shared: shared.clone(), stream, state, flight, has_backlog });
        shared.register(&lane);
        Ok(lane)
    }

    /// Give the device what it may have, and see to what comes of it.
    pub(crate) fn advance(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let gate = loop {
            let gate = self.give(&mut state);
            let waits = state.gate.is_none() && !state.waiting.is_empty();
            self.has_backlog.store(waits, Ordering::Release);
            // If what it was to wait for has ended meanwhile, nobody else gives it. What holds it ends with the device's thread.
            if !waits || state.holds || !self.flight.lock().marks.is_empty() {
                break gate;
            }
        };
        let is_new = std::mem::take(&mut state.is_new);
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
        while state.gate.is_none() && !state.holds && self.has_room(state) {
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
                    state.holds = kept.has_news();
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
                    // Part of a command may have been given.
                    state.has_more |= entry.has_begun;
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
        if entry.next == 0
            && let Some(replay) = self.shared.replays.find(&self.shared, &commands)
        {
            self.begin(state, entry, &commands[0]);
            replay.launch(self.stream.0)?;
            (state.has_more, *count, entry.next) = (true, 1, commands.len());
            return Ok(Given::All);
        }
        while let Some(command) = commands.get(entry.next) {
            if kept.has_news() || *count >= PART {
                return Ok(Given::Part);
            }
            if !entry.has_begun && !matches!(command, Command::Wait { .. }) {
                self.begin(state, entry, command);
            }
            let (stream, counts) = (self.stream.0, entry.counts.take());
            let mut encoder = Encoder { shared: &self.shared, stream, kept, params, counts };
            match encoder.encode(command)? {
                Step::Nothing => {}
                Step::Work => {
                    state.has_more = true;
                    *count += 1;
                }
                Step::Counts => {
                    state.has_more = true;
                    *count += 1;
                    continue;
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
        Ok(if kept.has_news() { Given::Part } else { Given::All })
    }

    /// A submission begins now, or when what is before it has ended.
    fn begin(&self, state: &mut State, entry: &mut Entry, first: &Command) {
        entry.has_begun = true;
        let mut flight = self.flight.lock();
        flight.submissions += 1;
        if flight.marks.is_empty() {
            // With nothing before it there is no point in the stream yet that says when.
            state.tail = None;
            state.has_more |= !matches!(first, Command::Signal { .. } | Command::Timestamp { .. });
        }
        drop(flight);
        self.mark(state, Kept::default(), 0, What::Begin);
    }

    fn end(&self, state: &mut State, entry: Entry, kept: Kept, count: u32, result: Result<()>) {
        let Entry { id, commands, has_begun, waits, done, .. } = entry;
        self.mark(state, kept, count, What::End(Ending { id, commands, has_begun, waits, done, result }));
    }

    /// Have the host do something when the device has come so far.
    fn mark(&self, state: &mut State, kept: Kept, commands: u32, what: What) {
        let context = &self.shared.context;
        let mut broken = None;
        if kept.has_news() {
            broken = kept.fetch(context, self.stream.0).err();
        }
        if state.has_more {
            state.has_more = false;
            match DeviceEvent::record(context, self.stream.0) {
                Ok(event) => state.tail = Some(Arc::new(event)),
                Err(failure) => broken = Some(failure),
            }
        }
        let at = state.tail.clone();
        if let (What::Host(HostStep::Signal(event, value)), Some(at)) = (&what, &at)
            && let Some(event) = CudaEvent::of(&**event)
        {
            event.promise(*value, at);
        }
        let mut flight = self.flight.lock();
        flight.broken = broken.or(flight.broken);
        flight.commands += commands;
        flight.marks.push_back(Mark { at, given_ns: now_ns(), commands, kept, what });
        state.is_new |= !std::mem::replace(&mut flight.is_watched, true);
    }

    /// Whether more may be given.
    fn has_room(&self, state: &State) -> bool {
        let flight = self.flight.lock();
        let most = (AHEAD_NS / flight.mean_ns.unwrap_or(FIRST_NS).max(1)).clamp(2, u64::from(MOST_AHEAD));
        let goes_on = state.waiting.front().is_some_and(|entry| entry.has_begun);
        flight.commands + PART <= MOST_AHEAD && (goes_on || flight.submissions < most)
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
    /// Nothing waits any more, and this is the failure.
    pub(crate) fn forget(&mut self, failure: Error) {
        *self = Self { last_id: self.last_id, failure: Some(failure), ..Self::default() };
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
