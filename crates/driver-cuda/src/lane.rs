//! A lane: a stream of the driver, and on the host what the stream has not been given yet.
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
use std::sync::Arc;

use cudarc::driver::sys::CUstream;
use elinvar_driver::{Command, Done, Error, Event, Result};
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
const MOST_AHEAD: u32 = 512;
/// Commands between two points at which the host learns how far the device is.
const PART: u32 = 128;

/// A stream and what is to be done on it.
pub(crate) struct Lane {
    pub(crate) shared: Arc<Shared>,
    stream: Handle<CUstream>,
    pub(crate) state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    /// What has not been given to the device, or not all of it: the first only.
    pub(crate) waiting: VecDeque<Entry>,
    /// What the host has to do as the device comes along.
    pub(crate) flying: VecDeque<Mark>,
    /// The number of the event's callback that the first of `waiting` waits for.
    pub(crate) gate: Option<u64>,
    pub(crate) gates: u64,
    /// Whether nothing may be given before what flies has ended.
    pub(crate) holds: bool,
    /// The last point that was recorded, while something flies.
    pub(crate) tail: Option<Arc<DeviceEvent>>,
    /// Whether the stream was given something since.
    pub(crate) has_more: bool,
    /// What the driver has answered that ends everything.
    pub(crate) broken: Option<Failure>,
    /// Commands and submissions that the stream has been given and that have not ended.
    pub(crate) commands_ahead: u32,
    pub(crate) submissions_ahead: u64,
    /// What a submission takes, about.
    pub(crate) mean_ns: Option<u64>,
    /// When the submission began whose marks come next, and the last time that was told.
    pub(crate) start_ns: u64,
    pub(crate) last_ns: u64,
    pub(crate) last_id: u64,
    pub(crate) failure: Option<Error>,
    pub(crate) is_watched: bool,
    pub(crate) params: Vec<u8>,
}

pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) commands: Arc<[Command]>,
    /// Number of the command that comes next.
    pub(crate) next: usize,
    /// Whether the device has been given any of it.
    pub(crate) has_begun: bool,
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
        let lane = Arc::new(Self { shared: shared.clone(), stream, state: Mutex::default() });
        shared.register(&lane);
        Ok(lane)
    }

    /// Give the device what it may have, and see to what comes of it.
    pub(crate) fn advance(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
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
