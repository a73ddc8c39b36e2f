//! The Metal backend of the submission core: encodes commands to command buffers at issue, on the submitting thread if possible.
//!
//! Events that a command buffer raises before its end are raised when Metal reports them. At its end, all remaining ones are raised in order,
//! before its completion is reported. If it fails, those that it has reached are raised, and the others fail.
//!
//! Command buffers are committed ahead of those in flight as far as [`Ahead`] allows.
//!
//! Callbacks are made in completion handlers, on the queue of shared events, and on the device's dispatch queue ([`Tasks`](super::tasks::Tasks)).

mod event;
mod footprint;
pub(super) mod parts;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use block2::RcBlock;
use elinvar_driver::submission::{
    Backend, Completed, Deferred, Issue, Issued, QueueHandle, SubmissionQueue, Waiting,
};
use elinvar_driver::{Command, Error, Event, Result};
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::{NSObjectProtocol as _, ProtocolObject};
use objc2::sel;
use objc2_metal::{MTLCommandBuffer, MTLCommandQueue, MTLDevice as _, MTLSharedEvent};
use parking_lot::Mutex;

use super::core::Core;
use super::encoding::{BufferInfo, CommandBuffer};
use super::label::label;
use super::marks::Marks;
use super::signals::Signals;
use super::{commands, crossing, encode, failure, host, rounds, validation};
use crate::ahead::{Ahead, Footprint};

pub(super) use event::{CommandBufferEnd, MetalEvent};

type Completion = RcBlock<dyn Fn(NonNull<ProtocolObject<dyn MTLCommandBuffer>>)>;

pub(super) type MetalQueue = QueueHandle<CommandQueue>;

type Submissions = SubmissionQueue<CommandQueue>;

/// The backend of a Metal command queue.
pub(super) struct CommandQueue {
    core: Arc<Core>,
    queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    /// Completion handler, shared by all command buffers.
    completion: Block,
    marks: Marks,
    /// Shared event that the GPU raises to the number of each command buffer at its end. Created when a signal is first promised.
    ends: OnceLock<Option<Retained<ProtocolObject<dyn MTLSharedEvent>>>>,
    buffers: Mutex<Buffers>,
}

/// A block that any thread may call.
struct Block(Completion);

#[allow(unsafe_code)] // blocks are not sent by default
// SAFETY: the captures of the block may be used on any thread, and blocks are reference-counted atomically.
unsafe impl Send for Block {}
#[allow(unsafe_code)] // as above
// SAFETY: as above; calling it does not mutate it.
unsafe impl Sync for Block {}

#[derive(Default)]
struct Buffers {
    /// Command buffers that are committed and have not ended, in order.
    committed: VecDeque<Committed>,
    ahead: Ahead,
    /// Gates for which the next command buffers must wait.
    waits: Vec<CommandBufferEnd>,
    /// Whether the end of the last committed command buffer is encoded as a signal.
    is_end_raised: bool,
    /// End time of the last command buffer.
    last_ns: u64,
    /// Reused `BufferInfo`s for the next command buffers.
    spare: Vec<BufferInfo>,
}

impl Buffers {
    /// Nothing is in flight, and all gates are open.
    fn restart(&mut self) {
        self.ahead.restart();
        self.waits.clear();
        self.is_end_raised = false;
    }
}

struct Committed {
    /// Address of the command buffer.
    address: usize,
    info: BufferInfo,
    /// Commands of its submission.
    commands: Arc<[Command]>,
    /// Its number in [`Ahead`].
    number: u64,
    /// The error in which its submission must end, if any.
    stop: Option<Error>,
}

/// Fence of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fence {
    /// The end of the command buffer at this address.
    Buffer(usize),
    /// A signal within a command buffer, by its ticket.
    Ticket(u64),
}

/// Encoded commands.
struct Encoded {
    /// `None` if there is no work for the device.
    buffer: Option<CommandBuffer>,
    /// Index of the next command.
    next: usize,
    /// Whether issue must pause until it has completed.
    drain: bool,
}

impl CommandQueue {
    pub(super) fn open(core: &Arc<Core>) -> Result<MetalQueue> {
        let queue = autoreleasepool(|_| core.device.newCommandQueue());
        let queue = queue.ok_or_else(|| {
            Error::Environment(format!(
                "Metal device `{}` cannot create another command queue",
                core.caps.name
            ))
        })?;
        let number = core.queues.fetch_add(1, Ordering::Relaxed) + 1;
        queue.setLabel(Some(&label(format_args!("elinvar {number}"))));
        Ok(QueueHandle::new_cyclic(|submissions| {
            let ended = submissions.clone();
            let completion = RcBlock::new(move |buffer: NonNull<ProtocolObject<dyn MTLCommandBuffer>>| {
                // A panic that unwinds from here would abort the process.
                let _panic = catch_unwind(AssertUnwindSafe(|| {
                    let Some(submissions) = ended.upgrade() else { return };
                    #[allow(unsafe_code)] // an argument from Metal
                    // SAFETY: Metal passes a command buffer to its handler that lives as long as the call.
                    let buffer = unsafe { buffer.as_ref() };
                    autoreleasepool(|_| Self::completed(&submissions, buffer));
                }));
            });
            let marks = Marks::new(autoreleasepool(|_| signals(core, submissions)));
            let (core, completion, buffers) = (core.clone(), Block(completion), Mutex::default());
            Self { core, queue, completion, marks, ends: OnceLock::new(), buffers }
        }))
    }
}

/// Creates the queue's `Signals`, which report the tickets that its command buffers reach.
fn signals(core: &Core, submissions: &Weak<Submissions>) -> Option<Signals> {
    let submissions = submissions.clone();
    Signals::new(core, move |ticket| {
        // A panic that unwinds from here would abort the process.
        let _panic = catch_unwind(AssertUnwindSafe(|| {
            let Some(submissions) = submissions.upgrade() else { return };
            autoreleasepool(|_| {
                raise(&submissions, ticket, host::now_ns());
                submissions.turn(&mut ());
            });
        }));
    })
}

/// `None` if Metal has no shared events.
fn ends(core: &Core) -> Option<Retained<ProtocolObject<dyn MTLSharedEvent>>> {
    let has_events = core.device.respondsToSelector(sel!(newSharedEvent));
    has_events.then(|| autoreleasepool(|_| core.device.newSharedEvent())).flatten()
}

/// The device has reached all signals up to a ticket.
fn raise(submissions: &Submissions, ticket: u64, end_ns: u64) {
    let is_reached = |fence: &Fence| matches!(fence, Fence::Ticket(one) if *one <= ticket);
    let executed = || Completed::Executed { start_ns: None, end_ns };
    while submissions.complete(is_reached, executed()).is_some() {}
}

#[allow(unsafe_code)] // promises what the trait asks for
// SAFETY: a command buffer's operation completes in its completion handler; a command buffer that is not committed is not announced.
unsafe impl Backend for CommandQueue {
    type Thread = ();
    type Work = ();
    type Fence = Fence;

    fn thread() -> Option<()> {
        Some(())
    }

    fn work(&self) {}

    fn begin(&self, issue: &mut Issue<'_, Self>, (): &mut ()) -> Result<Issued> {
        let commands = &issue.commands()[issue.next()..];
        let is_ahead = issue.in_flight() > 0;
        if is_ahead && encode::is_alone(&commands[0]) {
            return Ok(Issued::Full);
        }
        let mut buffers = self.buffers.lock();
        if !is_ahead {
            buffers.restart();
        }
        let mut footprint = buffers.ahead.footprint();
        let mut info = buffers.spare.pop().unwrap_or_default();
        drop(buffers);
        footprint::note(&mut footprint, commands);
        let mut buffers = self.buffers.lock();
        if !buffers.ahead.allows(&footprint) {
            drop(buffers);
            self.keep(info, Some(footprint));
            return Ok(Issued::Full);
        }
        buffers.waits.retain(|wait| !wait.gate.is_open());
        info.waits.clone_from(&buffers.waits);
        drop(buffers);
        info.submission = issue.submission().0;
        let begun = autoreleasepool(|_| self.encode(issue, &mut info));
        match begun {
            Ok(Encoded { buffer: Some(buffer), next, drain }) => {
                self.commit(issue, next, info, footprint, &buffer);
                Ok(Issued::InFlight { drain })
            }
            Ok(Encoded { buffer: None, next, .. }) => {
                self.keep(info, Some(footprint));
                // Commands without device work complete in order, too.
                if is_ahead {
                    return Ok(Issued::Full);
                }
                let now = host::now_ns();
                Ok(Issued::Executed { next, start_ns: now, end_ns: now })
            }
            Err(error) => Err(self.core.explained(error)),
        }
    }

    /// The GPU waits for a promised event, if the work behind the wait may be committed before the event is known to be raised.
    fn wait(&self, issue: &mut Issue<'_, Self>, event: &Arc<dyn Event>, value: u64) -> Result<Waiting> {
        let promise = MetalEvent::of(&**event).and_then(|event| event.promised(value));
        let Some(promise) = promise.filter(|promise| promise.is_of(&self.core)) else {
            return Ok(Waiting::Host);
        };
        let mut buffers = self.buffers.lock();
        if issue.in_flight() == 0 {
            buffers.restart();
        }
        let mut next = buffers.ahead.footprint();
        footprint::note(&mut next, &issue.commands()[issue.next() + 1..]);
        let is_allowed = buffers.ahead.enter(&promise.gate, &next);
        buffers.ahead.recycle(next);
        if is_allowed {
            buffers.waits.push(promise);
            buffers.is_end_raised = false;
        }
        Ok(if is_allowed { Waiting::Device } else { Waiting::Host })
    }

    /// A signal behind command buffers in flight is promised, except for the queue's first, from which on the ends are encoded.
    fn mark(&self, issue: &mut Issue<'_, Self>) -> bool {
        self.promise(&issue.commands()[issue.next()]);
        false
    }

    fn panicked(&self, message: &str) -> Error {
        Error::Environment(format!("the Metal driver panicked: {message}"))
    }

    fn schedule(&self, queue: Arc<Submissions>) {
        self.core.tasks.push(move || queue.turn(&mut ()));
    }

    fn now_ns(&self) -> u64 {
        host::now_ns()
    }

    /// Running GPU work cannot be stopped. Work committed behind it runs as well, and ends in the cause.
    fn stop(
        &self,
        (): &(),
        fences: &mut dyn Iterator<Item = &Fence>,
        cause: &Error,
    ) -> Result<Option<Deferred<Self, Result<()>>>> {
        let committed = &mut self.buffers.lock().committed;
        let runs = |buffer: &Committed| buffer.info.waits.iter().all(|wait| wait.gate.is_open());
        let mut are_behind = false;
        for fence in fences {
            let Fence::Buffer(address) = fence else { continue };
            match committed.iter().position(|buffer| buffer.address == *address) {
                Some(0) if runs(&committed[0]) => {
                    return Err(Error::unsupported("Metal cannot stop running work"));
                }
                Some(at) => {
                    committed[at].stop.get_or_insert_with(|| cause.clone());
                    are_behind = true;
                }
                // It has reached its end.
                None => are_behind = true,
            }
        }
        match are_behind {
            true => Ok(None),
            false => Err(Error::unsupported("Metal cannot stop running work")),
        }
    }
}

impl CommandQueue {
    /// Promises the end of the last committed command buffer, if `command` is a signal.
    fn promise(&self, command: &Command) {
        let Command::Signal { event, value } = command else { return };
        let Some(event) = MetalEvent::of(&**event) else { return };
        let Some(counter) = self.ends.get_or_init(|| ends(&self.core)).clone() else { return };
        let mut buffers = self.buffers.lock();
        let gate = if buffers.is_end_raised { buffers.ahead.gate() } else { None };
        drop(buffers);
        if let Some((number, gate)) = gate {
            let device = Arc::as_ptr(&self.core).addr();
            let gate = Arc::new(gate);
            event.promise(*value, CommandBufferEnd { counter, number, gate, device });
        }
    }

    fn encode(&self, issue: &Issue<'_, Self>, info: &mut BufferInfo) -> Result<Encoded> {
        let (commands, mut next) = (issue.commands(), issue.next());
        if encode::crosses(&commands[next])
            && let Command::Copy { source, target } = &commands[next]
        {
            let (buffer, is_last) = crossing::half((&self.core, &*self.queue), (source, target), next, info)?;
            return Ok(Encoded { buffer: Some(buffer), next: next + usize::from(is_last), drain: true });
        }
        if commands::executes(&commands[next]) {
            let place = (issue.submission().0, next);
            let (buffer, is_last) =
                commands::encode((&self.core, &*self.queue), &commands[next], place, info)?;
            return Ok(Encoded { buffer, next: next + usize::from(is_last), drain: true });
        }
        if let Command::Dispatch(dispatch) = &commands[next]
            && rounds::is_for(dispatch)
        {
            let place = (issue.submission().0, next);
            let buffer = rounds::encode((&self.core, &*self.queue), dispatch, place, info)?;
            let next = next + usize::from(buffer.is_none());
            return Ok(Encoded { buffer, next, drain: true });
        }
        let buffer = encode::encode(&self.core, &self.queue, &self.marks, commands, &mut next, info)?;
        Ok(Encoded { buffer, next, drain: false })
    }

    #[allow(unsafe_code)] // hands a block to Metal
    fn commit(
        &self,
        issue: &Issue<'_, Self>,
        next: usize,
        mut info: BufferInfo,
        footprint: Footprint,
        buffer: &CommandBuffer,
    ) {
        let address = address(buffer);
        for (ticket, command) in &info.signals {
            issue.announce_mark(*command, Fence::Ticket(*ticket));
        }
        self.marks.before(&self.core, &mut info);
        issue.announce(next, Fence::Buffer(address));
        let commands = issue.commands().clone();
        let mut buffers = self.buffers.lock();
        let number = buffers.ahead.commit(footprint);
        let ends = self.ends.get().and_then(Option::as_ref).filter(|_| info.other.is_none());
        if let Some(ends) = ends {
            buffer.encodeSignalEvent_value(ProtocolObject::from_ref(&**ends), number);
        }
        buffers.is_end_raised = ends.is_some();
        buffers.committed.push_back(Committed { address, info, commands, number, stop: None });
        drop(buffers);
        // SAFETY: the block is valid, and Metal retains it.
        unsafe { buffer.addCompletedHandler(RcBlock::as_ptr(&self.completion.0)) };
        buffer.commit();
    }

    /// A command buffer has ended.
    fn completed(submissions: &Arc<Submissions>, buffer: &ProtocolObject<dyn MTLCommandBuffer>) {
        let this = submissions.backend();
        let address = std::ptr::from_ref(buffer).addr();
        let committed = {
            let committed = &mut this.buffers.lock().committed;
            let at = committed.iter().position(|other| other.address == address);
            at.and_then(|at| committed.remove(at))
        };
        let Some(Committed { mut info, commands, number, stop, .. }) = committed else { return };
        let failed = info.parts.error().or_else(|| buffer.error());
        let start = info.parts.start().unwrap_or_else(|| buffer.GPUStartTime());
        let [start_ns, end_ns] = this.in_order([start, buffer.GPUEndTime()]);
        let last = info.signals.last().map(|(ticket, _)| *ticket);
        if let Some((signals, last)) = this.marks.signals.as_ref().zip(last) {
            match &failed {
                None => raise(submissions, last, end_ns),
                Some(_) => raise(submissions, signals.reached(), host::now_ns()),
            }
        }
        this.marks.note_times(&this.core, buffer, failed.is_none(), &commands, &info);
        let core = info.other.as_ref().unwrap_or(&this.core);
        let error = match &failed {
            Some(error) => Some(failure::error(core, error, &commands, &info)),
            None => validation::fault(buffer, &commands, &info)
                .map(Error::Fault)
                .or_else(|| info.executing.as_ref()?.failure(&commands)),
        };
        let is_well = error.is_none() && stop.is_none();
        let mut buffers = this.buffers.lock();
        let (is_behind, committed) = (buffers.ahead.end(number, is_well), buffers.ahead.last());
        drop(buffers);
        if let (false, Some(Some(ends))) = (is_well, this.ends.get()) {
            // GPU waits for this and later command buffers are released, and fail with the event. Nothing more is committed until that is known.
            ends.setSignaledValue(committed);
        }
        if let Some(error) = error.as_ref().filter(|_| failed.is_some() && !is_behind) {
            // After a failure, Metal may reject work that the device could execute.
            core.note(error);
        }
        let error = stop.or(error);
        // Release the memory before the completion is reported.
        drop(commands);
        let completed = match error {
            None => {
                info.clear();
                this.keep(info, None);
                Completed::Executed { start_ns: Some(start_ns), end_ns }
            }
            Some(error) => {
                for (ticket, _) in &info.signals {
                    submissions
                        .complete(|fence| *fence == Fence::Ticket(*ticket), Completed::Failed(error.clone()));
                }
                if let Some((signals, last)) = this.marks.signals.as_ref().zip(last) {
                    signals.give_up(last);
                }
                // The result of the first half of a copy is not needed any more.
                drop(info);
                Completed::Failed(error)
            }
        };
        submissions.complete(|fence| *fence == Fence::Buffer(address), completed);
        submissions.turn(&mut ());
    }

    fn keep(&self, mut info: BufferInfo, footprint: Option<Footprint>) {
        info.waits.clear();
        let mut buffers = self.buffers.lock();
        buffers.spare.push(info);
        footprint.into_iter().for_each(|footprint| buffers.ahead.recycle(footprint));
    }

    /// Start and end of a command buffer in nanoseconds. If Metal started it concurrently with an earlier one, its start is moved behind that
    /// one's end, as the contract requires.
    fn in_order(&self, seconds: [f64; 2]) -> [u64; 2] {
        let last_ns = &mut self.buffers.lock().last_ns;
        let [start_ns, end_ns] = seconds.map(|time| host::from_seconds(time).max(*last_ns));
        *last_ns = end_ns.max(start_ns);
        [start_ns, *last_ns]
    }
}

fn address(buffer: &CommandBuffer) -> usize {
    std::ptr::from_ref::<ProtocolObject<dyn MTLCommandBuffer>>(buffer).addr()
}
