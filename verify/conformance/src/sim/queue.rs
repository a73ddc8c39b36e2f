//! A queue of the simulated device: one thread, and the contract's rules of failure and cancellation.
//!
//! All callbacks are made from the queue's thread, without a lock held. The thread ends when the queue
//! has been dropped and nothing is left to do.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};

use elinvar_driver::sync::{Condvar, Mutex, MutexGuard, OnceLock};
use elinvar_driver::{
    Command, Dim3, Dispatch, Done, Error, Event, Fault, Grid, MemorySlice, Queue, Result, Submission, Timing,
    end_submission, panic_text,
};

use super::memory::SimMemory;
use super::{Launch, Op, Shared};

/// The word to a submission that it is to end.
#[derive(Default)]
pub(super) struct Stop {
    cause: OnceLock<Error>,
    /// Wakes the queue's thread while that waits for an event.
    waits: Mutex<Option<Sender<Result<()>>>>,
}

impl Stop {
    /// Only the first cause counts.
    fn set(&self, cause: &Error) {
        let _earlier = self.cause.set(cause.clone());
        if let Some(waits) = &*self.waits.lock() {
            let _gone = waits.send(Err(cause.clone()));
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        self.cause.get().map_or(Ok(()), |cause| Err(cause.clone()))
    }
}

/// A submission that has not begun.
pub(super) struct Entry {
    id: Submission,
    commands: Arc<[Command]>,
    stop: Arc<Stop>,
    done: Done,
}

impl Entry {
    /// Lets go of what the commands name, and then tells.
    fn end(self, result: Result<Timing>) {
        end_submission(self.commands, self.done, result);
    }
}

/// What a queue and its thread share.
#[derive(Default)]
pub(super) struct Lane {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    waiting: VecDeque<Entry>,
    /// What ends without having run, and how.
    ends: Vec<(Entry, Error)>,
    /// Whether the thread is outside of [`Lane::next`].
    busy: bool,
    failed: Option<Error>,
    /// What runs, and the word to it that it is to end.
    running: Option<(Submission, Arc<Stop>)>,
    closed: bool,
}

/// What the thread does next.
enum Step {
    Ends(Vec<(Entry, Error)>),
    Poisoned(Entry, Error),
    Run(Entry),
    End,
}

impl Lane {
    /// Makes the thread look again.
    pub(super) fn wake(&self) {
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    /// Tells what runs to end in `cause`.
    pub(super) fn stop_running(&self, cause: &Error) {
        if let Some((_, stop)) = &self.state.lock().running {
            stop.set(cause);
        }
    }

    /// Ends all there is in `cause`, and waits until it has ended.
    pub(super) fn abandon(&self, cause: &Error) {
        let mut state = self.state.lock();
        if let Some((_, stop)) = &state.running {
            stop.set(cause);
        }
        let waiting = std::mem::take(&mut state.waiting);
        if !waiting.is_empty() {
            state.failed.get_or_insert_with(|| cause.clone());
        }
        state.ends.extend(waiting.into_iter().map(|entry| (entry, cause.clone())));
        self.changed.notify_all();
        while state.busy || !state.ends.is_empty() {
            self.changed.wait(&mut state);
        }
    }

    fn next(&self, shared: &Shared) -> Step {
        let mut state = self.state.lock();
        state.busy = false;
        self.changed.notify_all();
        let step = self.wait_for_step(shared, &mut state);
        state.busy = true;
        step
    }

    fn wait_for_step(&self, shared: &Shared, state: &mut MutexGuard<'_, State>) -> Step {
        loop {
            if !state.ends.is_empty() {
                return Step::Ends(std::mem::take(&mut state.ends));
            }
            if !shared.held.load(Ordering::SeqCst)
                && let Some(entry) = state.waiting.pop_front()
            {
                return match &state.failed {
                    Some(cause) => Step::Poisoned(entry, cause.poison()),
                    None => {
                        state.running = Some((entry.id, entry.stop.clone()));
                        Step::Run(entry)
                    }
                };
            }
            if state.closed && state.waiting.is_empty() {
                return Step::End;
            }
            self.changed.wait(state);
        }
    }

    fn run(&self, shared: &Shared) {
        loop {
            match self.next(shared) {
                Step::Ends(all) => all.into_iter().for_each(|(entry, cause)| entry.end(Err(cause))),
                Step::Poisoned(entry, error) => entry.end(Err(error)),
                Step::Run(entry) => {
                    let start_ns = shared.now_ns();
                    let result = execute(shared, &entry);
                    let end_ns = shared.now_ns();
                    let mut state = self.state.lock();
                    state.running = None;
                    if let Err(error) = &result {
                        state.failed = Some(error.clone());
                    }
                    drop(state);
                    entry.end(result.map(|()| Timing { start_ns, end_ns }));
                }
                Step::End => {
                    self.state.lock().busy = false;
                    self.changed.notify_all();
                    return;
                }
            }
        }
    }
}

/// A queue; dropping it lets what was submitted finish.
pub(super) struct SimQueue {
    shared: Arc<Shared>,
    lane: Arc<Lane>,
}

impl SimQueue {
    pub(super) fn start(shared: Arc<Shared>) -> Result<Self> {
        let lane = Arc::new(Lane::default());
        let (of_thread, to_run) = (shared.clone(), lane.clone());
        std::thread::Builder::new()
            .name("sim-queue".into())
            .spawn(move || to_run.run(&of_thread))
            .map_err(|error| Error::Environment(format!("starting a thread for a queue: {error}")))?;
        Ok(Self { shared, lane })
    }

    pub(super) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        self.lane.state.lock().closed = true;
        self.lane.changed.notify_all();
    }
}

#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: `done` is called when the simulated commands have ended, on the thread that has run them.
unsafe impl Queue for SimQueue {
    fn submit(&self, commands: Arc<[Command]>, done: Done) -> Result<Submission> {
        self.shared.failure(Op::Submit)?;
        let mut state = self.lane.state.lock();
        self.shared.commands.lock().extend(commands.iter().cloned());
        self.shared.submissions.fetch_add(1, Ordering::SeqCst);
        let id = Submission(state.next);
        state.next += 1;
        state.waiting.push_back(Entry { id, commands, stop: Arc::default(), done });
        self.lane.changed.notify_all();
        Ok(id)
    }

    fn cancel(&self, submission: Submission) -> bool {
        let mut state = self.lane.state.lock();
        let Some(at) = state.waiting.iter().position(|entry| entry.id == submission) else {
            return false;
        };
        let entry = state.waiting.remove(at);
        state.ends.extend(entry.map(|entry| (entry, Error::Cancelled)));
        self.lane.changed.notify_all();
        true
    }

    fn stop(&self, submission: Submission, cause: Error) -> Result<bool> {
        if !self.shared.can_stop {
            return Err(Error::unsupported("this device cannot stop running work"));
        }
        let state = self.lane.state.lock();
        let running = state.running.as_ref().filter(|(id, _)| *id == submission).map(|(_, stop)| stop);
        let waiting = || state.waiting.iter().find(|entry| entry.id == submission).map(|entry| &entry.stop);
        let stop = running.or_else(waiting);
        self.shared.stops.fetch_add(stop.is_some().into(), Ordering::SeqCst);
        stop.into_iter().for_each(|stop| stop.set(&cause));
        Ok(stop.is_some())
    }

    fn acknowledge(&self) -> Option<Error> {
        self.lane.state.lock().failed.take()
    }
}

fn execute(shared: &Shared, entry: &Entry) -> Result<()> {
    shared.failure(Op::Execute)?;
    entry.stop.check()?;
    for command in &*entry.commands {
        entry.stop.check()?;
        match command {
            Command::Dispatch(dispatch) => run_kernel(shared, dispatch, &entry.stop)?,
            Command::Copy { source, target } => copy(source, target)?,
            Command::Fill { target, pattern } => fill(target, pattern)?,
            Command::Signal { event, value } => event.signal(*value, shared.now_ns()),
            Command::Wait { event, value } => wait(&**event, *value, &entry.stop)?,
            Command::Timestamp { into } => into.set(shared.now_ns()),
            other => return Err(Error::unsupported(format!("the simulated device has no {other:?}"))),
        }
    }
    Ok(())
}

/// Stops the queue's thread until the event is there, or the submission is to end.
fn wait(event: &dyn Event, value: u64, stop: &Stop) -> Result<()> {
    let (sender, reached) = channel();
    *stop.waits.lock() = Some(sender.clone());
    stop.check()?;
    event.when(value, Box::new(move |result| drop(sender.send(result))));
    reached
        .recv()
        .unwrap_or_else(|_| Err(Error::DeviceLost("an event was given up without an answer".into())))
}

fn run_kernel(shared: &Shared, dispatch: &Dispatch, stop: &Stop) -> Result<()> {
    shared.launch_failure(dispatch)?;
    let name = &dispatch.pipeline.signature().name;
    let threads = match &dispatch.grid {
        Grid::Threads(threads) => *threads,
        Grid::Indirect(counts) => dispatch.threads_of(read_counts(counts)?)?,
    };
    let Some(body) = shared.body(name).filter(|_| threads.volume() > 0) else {
        return Ok(());
    };
    let launch = Launch { dispatch, threads, clock: &shared.clock, stop };
    catch_unwind(AssertUnwindSafe(|| body(&launch))).unwrap_or_else(|panic| {
        let text = panic_text(&*panic);
        Err(Error::Fault(Fault {
            kernel: name.clone(),
            message: format!("panicked: {text}"),
            location: None,
            launch: dispatch.label.clone(),
        }))
    })
}

fn address(slice: &MemorySlice) -> Result<*mut u8> {
    let memory: &dyn Any = &*slice.memory;
    let memory = memory.downcast_ref::<SimMemory>();
    let memory = memory.ok_or_else(|| Error::invalid("memory of another device in a command"))?;
    Ok(memory.address(slice.offset, slice.len))
}

#[allow(unsafe_code)] // stands in for the device
fn read_counts(counts: &MemorySlice) -> Result<Dim3> {
    let from = address(counts)?.cast::<[u32; 3]>();
    // SAFETY: the counts are within live memory; as for `copy`.
    Ok(unsafe { from.read_unaligned() }.into())
}

#[allow(unsafe_code)] // stands in for the device
fn copy(source: &MemorySlice, target: &MemorySlice) -> Result<()> {
    let (from, to) = (address(source)?, address(target)?);
    // SAFETY: both ranges are within live memory and of the same length; `copy` allows overlap. The runtime
    // keeps the host away, and tests give their copies no racing streams.
    unsafe { from.copy_to(to, source.len.min(target.len) as usize) };
    Ok(())
}

#[allow(unsafe_code)] // stands in for the device
fn fill(target: &MemorySlice, pattern: &[u8]) -> Result<()> {
    let base = address(target)?;
    for (at, byte) in (0..target.len as usize).zip(pattern.iter().cycle()) {
        // SAFETY: `at` is within the range, which is within live memory; as for `copy`.
        unsafe { base.add(at).write(*byte) };
    }
    Ok(())
}
