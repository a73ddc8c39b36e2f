//! A queue: submissions in order, at most one begun, and of that at most one command buffer committed.
//!
//! A submission is encoded where its turn comes: by the thread that submits it if nothing is before it, else in the
//! completion handler of what was. One that comes to an event that is not there yet is put aside, and the event's callback
//! gives the queue its next turn.
//!
//! Events that a command buffer raises before it has ended are raised when Metal tells that it has come so far; at its end
//! all of them are, in order, before anything else is said of it. If it fails, those that it has come to are raised, and
//! the others fail.
//!
//! Invariants:
//! - `busy` is true exactly while a submission is encoded, in flight, ending or put aside; whoever sets it has the turn.
//! - What a submission ends in is fixed early: a failure marks all that wait behind it, and, until it is acknowledged,
//!   those that come.
//! - `done` is called once, in a completion handler or on the device's dispatch queue, without any lock held.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use block2::RcBlock;
use elinvar_driver::{
    Command, Done, Error, Event, Queue, Result, Submission, Timing, end_submission, panic_text,
};
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLCommandBuffer, MTLCommandQueue, MTLDevice as _};
use parking_lot::Mutex;

use super::core::Core;
use super::encode::{self, Step};
use super::encoding::{CommandBuffer, Trail};
use super::label::label;
use super::marks::Marks;
use super::signals::Signals;
use super::{failure, host, validation};

type Completed = RcBlock<dyn Fn(NonNull<ProtocolObject<dyn MTLCommandBuffer>>)>;

/// A queue's handle. What is in flight keeps the rest alive.
pub(super) struct MetalQueue {
    lane: Arc<Lane>,
}

struct Lane {
    core: Arc<Core>,
    queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    /// What Metal calls when a command buffer has ended; one for all of them.
    completed: Block,
    marks: Marks,
    state: Mutex<State>,
}

/// A block that any thread may call.
struct Block(Completed);

#[allow(unsafe_code)] // blocks are not sent by default
// SAFETY: what the block holds may be used from any thread, and blocks are counted atomically.
unsafe impl Send for Block {}
#[allow(unsafe_code)] // as above
// SAFETY: as above; calling it changes nothing of its own.
unsafe impl Sync for Block {}

#[derive(Default)]
struct State {
    waiting: VecDeque<Entry>,
    /// The submission that has come to an event that is not there yet.
    aside: Option<Entry>,
    /// The submission whose command buffer is committed, with what belongs to that.
    flight: Option<(Entry, Trail)>,
    /// Keeps the lane while its handle may be gone.
    this: Option<Arc<Lane>>,
    /// What the next command buffer's notes are kept in.
    trail: Option<Trail>,
    busy: bool,
    /// The submission that has the turn; 0 for none.
    turn: u64,
    last_id: u64,
    failure: Option<Error>,
}

struct Entry {
    id: u64,
    commands: Arc<[Command]>,
    /// Number of the command that comes next.
    next: usize,
    /// When the first began.
    start_ns: Option<u64>,
    /// When what has run has ended.
    end_ns: u64,
    done: Done,
    /// Set when it is not to go on, and whether that is a failure of the queue.
    ends: Option<(Error, bool)>,
}

impl MetalQueue {
    pub(super) fn new(core: &Arc<Core>) -> Result<Self> {
        let queue = autoreleasepool(|_| core.device.newCommandQueue());
        let queue = queue.ok_or_else(|| {
            Error::Environment(format!(
                "Metal device `{}` cannot create another command queue",
                core.caps.name
            ))
        })?;
        let number = core.queues.fetch_add(1, Ordering::Relaxed) + 1;
        queue.setLabel(Some(&label(format_args!("elinvar {number}"))));
        let lane = Arc::new_cyclic(|lane: &Weak<Lane>| {
            let ended = lane.clone();
            let completed = RcBlock::new(move |buffer: NonNull<ProtocolObject<dyn MTLCommandBuffer>>| {
                // What unwinds from here would end the process.
                let _panic = catch_unwind(AssertUnwindSafe(|| {
                    let Some(lane) = ended.upgrade() else { return };
                    #[allow(unsafe_code)] // an argument from Metal
                    // SAFETY: Metal hands its handler a command buffer that lives as long as the call.
                    let buffer = unsafe { buffer.as_ref() };
                    autoreleasepool(|_| lane.completed(buffer));
                }));
            });
            let marks = Marks::new(autoreleasepool(|_| signals(core, lane)));
            Lane { core: core.clone(), queue, completed: Block(completed), marks, state: Mutex::default() }
        });
        Ok(Self { lane })
    }
}

/// The queue's, through which it learns what its command buffer has come to.
fn signals(core: &Core, lane: &Weak<Lane>) -> Option<Signals> {
    let lane = lane.clone();
    Signals::new(core, move |ticket| {
        // What unwinds from here would end the process.
        let _panic = catch_unwind(AssertUnwindSafe(|| {
            let Some(lane) = lane.upgrade() else { return };
            autoreleasepool(|_| lane.raise(ticket, host::now_ns()));
        }));
    })
}

#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: `done` is called by Metal's completion handlers, or where nothing was committed.
unsafe impl Queue for MetalQueue {
    fn submit(&self, commands: Arc<[Command]>, done: Done) -> Result<Submission> {
        let mut state = self.lane.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        let ends = state.failure.as_ref().map(|failure| (failure.poison(), false));
        let entry = Entry { id, commands, next: 0, start_ns: None, end_ns: 0, done, ends };
        let is_first = !std::mem::replace(&mut state.busy, true);
        if is_first {
            state.turn = id;
            state.this = Some(self.lane.clone());
            drop(state);
            if let Some((entry, result)) = autoreleasepool(|_| self.lane.go_on(entry)) {
                // Not here: the program may hold what its callback wants.
                let lane = self.lane.clone();
                self.lane.core.tasks.push(move || lane.end(entry, result));
            }
        } else {
            state.waiting.push_back(entry);
        }
        Ok(Submission(id))
    }

    fn cancel(&self, submission: Submission) -> bool {
        let mut state = self.lane.state.lock();
        let aside = state.aside.take_if(|entry| entry.id == submission.0 && entry.has_only_waited());
        let was_aside = aside.is_some();
        let entry = aside.or_else(|| {
            let index = state.waiting.iter().position(|entry| entry.id == submission.0)?;
            state.waiting.remove(index)
        });
        drop(state);
        let Some(entry) = entry else { return false };
        let lane = self.lane.clone();
        self.lane.core.tasks.push(move || {
            entry.end(Err(Error::Cancelled));
            if was_aside {
                lane.next();
            }
        });
        true
    }

    /// Only what has not begun, or waits for an event: what runs on a GPU runs to its end.
    fn stop(&self, submission: Submission, cause: Error) -> Result<bool> {
        let mut state = self.lane.state.lock();
        if let Some(entry) = state.waiting.iter_mut().find(|entry| entry.id == submission.0) {
            entry.ends.get_or_insert((cause, true));
            return Ok(true);
        }
        if let Some(entry) = state.aside.take_if(|entry| entry.id == submission.0) {
            drop(state);
            let lane = self.lane.clone();
            self.lane.core.tasks.push(move || lane.end(entry, Err(cause)));
            return Ok(true);
        }
        if state.turn == submission.0 {
            Err(Error::unsupported("Metal cannot stop running work"))
        } else {
            Ok(false)
        }
    }

    fn acknowledge(&self) -> Option<Error> {
        self.lane.state.lock().failure.take()
    }
}

impl Lane {
    /// Takes the submission that has the turn as far as it gets; gives it back at its end.
    fn go_on(self: &Arc<Self>, mut entry: Entry) -> Option<(Entry, Result<Timing>)> {
        if let Some((error, fails)) = entry.ends.take() {
            if fails {
                self.fail(&error);
            }
            return Some((entry, Err(error)));
        }
        let now = host::now_ns();
        if entry.start_ns.is_none() {
            entry.end_ns = now;
            entry.start_ns = entry.commands.first().is_none_or(encode::is_hosts).then_some(now);
        }
        let mut trail = self.state.lock().trail.take().unwrap_or_default();
        trail.submission = entry.id;
        let step = contained(|| {
            let (next, end_ns) = (&mut entry.next, &mut entry.end_ns);
            encode::step(&self.core, &self.queue, &self.marks, &entry.commands, next, end_ns, &mut trail)
        });
        match step {
            Ok(Step::Device(buffer)) => {
                self.commit(entry, trail, &buffer);
                return None;
            }
            Ok(Step::Wait(event, value)) => {
                self.keep(trail);
                self.put_aside(entry, &*event, value);
                return None;
            }
            Ok(Step::End) => {}
            Err(error) => {
                let error = self.core.explained(error);
                self.fail(&error);
                return Some((entry, Err(error)));
            }
        }
        self.keep(trail);
        let timing = Timing { start_ns: entry.start_ns.unwrap_or(now), end_ns: entry.end_ns };
        Some((entry, Ok(timing)))
    }

    #[allow(unsafe_code)] // hands a block to Metal
    fn commit(&self, entry: Entry, mut trail: Trail, buffer: &CommandBuffer) {
        self.marks.before(&self.core, &mut trail);
        self.state.lock().flight = Some((entry, trail));
        // SAFETY: the block is valid, and Metal retains it.
        unsafe { buffer.addCompletedHandler(RcBlock::as_ptr(&self.completed.0)) };
        buffer.commit();
    }

    /// The command buffer in flight has ended.
    fn completed(self: &Arc<Self>, buffer: &ProtocolObject<dyn MTLCommandBuffer>) {
        let last = self.state.lock().flight.as_ref().and_then(|(_, trail)| trail.signals.last().copied());
        let failed = buffer.error();
        if let Some((signals, (last, _))) = self.marks.signals.as_ref().zip(last) {
            match &failed {
                None => self.raise(last, host::from_seconds(buffer.GPUEndTime())),
                Some(_) => self.raise(signals.reached(), host::now_ns()),
            }
        }
        let Some((mut entry, mut trail)) = self.state.lock().flight.take() else { return };
        let start = host::from_seconds(buffer.GPUStartTime());
        entry.start_ns.get_or_insert(start);
        entry.end_ns = host::from_seconds(buffer.GPUEndTime()).max(start);
        self.marks.note_times(&self.core, buffer, failed.is_none(), &entry.commands, &trail);
        let error = match failed {
            Some(error) => {
                let core = trail.other.as_ref().unwrap_or(&self.core);
                let error = failure::error(core, &error, &entry.commands, &trail);
                core.note(&error);
                error
            }
            None => match validation::fault(buffer, &entry.commands, &trail) {
                Some(fault) => Error::Fault(fault),
                None => {
                    trail.clear();
                    self.keep(trail);
                    return self.turn(entry);
                }
            },
        };
        self.fail(&error);
        if let Some((signals, (last, _))) = self.marks.signals.as_ref().zip(last) {
            signals.give_up(last);
        }
        // What a half of a copy has brought is of no use.
        drop(trail);
        self.end(entry, Err(error));
    }

    /// Raise the events that the command buffer in flight has come to with this ticket, in order; those that are raised stay as
    /// they are.
    fn raise(&self, ticket: u64, now_ns: u64) {
        let mut raised = 0;
        loop {
            let state = self.state.lock();
            let Some((entry, trail)) = &state.flight else { return };
            let next = trail.signals.iter().find(|(one, _)| (raised + 1..=ticket).contains(one));
            let Some(&(one, command)) = next else { return };
            let Command::Signal { event, value } = entry.commands[command].clone() else { return };
            drop(state);
            event.signal(value, now_ns);
            raised = one;
        }
    }

    /// As [`Lane::go_on`], where callbacks may be made; goes on with the next submissions.
    fn turn(self: &Arc<Self>, entry: Entry) {
        if let Some((entry, result)) = self.go_on(entry) {
            self.end(entry, result);
        }
    }

    fn end(self: &Arc<Self>, entry: Entry, result: Result<Timing>) {
        entry.end(result);
        self.next();
    }

    /// The turn goes to the next submissions, until one is in flight or put aside.
    fn next(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            let Some(entry) = state.waiting.pop_front() else {
                (state.busy, state.turn) = (false, 0);
                let this = state.this.take();
                drop(state);
                return drop(this);
            };
            state.turn = entry.id;
            drop(state);
            match self.go_on(entry) {
                Some((entry, result)) => entry.end(result),
                None => return,
            }
        }
    }

    /// Keep a submission until the event is there. Nothing of the queue may be touched after it: another thread may have its
    /// turn by then.
    fn put_aside(self: &Arc<Self>, entry: Entry, event: &dyn Event, value: u64) {
        let (id, next) = (entry.id, entry.next);
        self.state.lock().aside = Some(entry);
        let lane = self.clone();
        let resume = move || {
            let entry = lane.state.lock().aside.take_if(|entry| entry.id == id && entry.next == next);
            // Without it, it was cancelled or stopped, and the queue has its turn.
            if let Some(entry) = entry {
                lane.turn(entry);
            }
        };
        let core = self.core.clone();
        event.when(value, Box::new(move |_| core.tasks.push(resume)));
    }

    fn keep(&self, trail: Trail) {
        self.state.lock().trail = Some(trail);
    }

    fn fail(&self, error: &Error) {
        let mut state = self.state.lock();
        for entry in &mut state.waiting {
            entry.ends = Some((error.poison(), false));
        }
        state.failure = Some(error.clone());
    }
}

impl Entry {
    /// Whether it has come no further than an event.
    fn has_only_waited(&self) -> bool {
        self.commands[..self.next].iter().all(|command| matches!(command, Command::Wait { .. }))
    }

    fn end(self, result: Result<Timing>) {
        end_submission(self.commands, self.done, result);
    }
}

/// Run `f`; its panic becomes an error.
fn contained<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        Err(Error::Environment(format!("the Metal driver panicked: {}", panic_text(&*payload))))
    })
}
