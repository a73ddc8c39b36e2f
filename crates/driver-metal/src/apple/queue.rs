//! A queue's half that is Metal's: commands are encoded to command buffers where they are issued, by the thread that submits if it can.
//!
//! Events that a command buffer raises before it has ended are raised when Metal reports it; at its end all of them are, in order,
//! before anything else is said of it. If it fails, those that it has come to are raised, and the others fail.
//!
//! Callbacks are made in completion handlers, on the queue of shared events, and on the device's dispatch queue ([`Tasks`](super::tasks::Tasks)).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use block2::RcBlock;
use elinvar_driver::submission::{Backend, Completed, Deferred, Issue, Issued, QueueHandle, SubmissionQueue};
use elinvar_driver::{Command, Error, Result};
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLCommandBuffer, MTLCommandQueue, MTLDevice as _};
use parking_lot::Mutex;

use super::core::Core;
use super::encoding::{BufferInfo, CommandBuffer};
use super::label::label;
use super::marks::Marks;
use super::signals::Signals;
use super::{crossing, encode, failure, host, validation};

type Completion = RcBlock<dyn Fn(NonNull<ProtocolObject<dyn MTLCommandBuffer>>)>;

pub(super) type MetalQueue = QueueHandle<CommandQueue>;

type Submissions = SubmissionQueue<CommandQueue>;

/// A queue of Metal.
pub(super) struct CommandQueue {
    core: Arc<Core>,
    queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    /// What Metal calls when a command buffer has ended; one for all of them.
    completion: Block,
    marks: Marks,
    buffers: Mutex<Buffers>,
}

/// A block that any thread may call.
struct Block(Completion);

#[allow(unsafe_code)] // blocks are not sent by default
// SAFETY: what the block holds may be used from any thread, and blocks are counted atomically.
unsafe impl Send for Block {}
#[allow(unsafe_code)] // as above
// SAFETY: as above; calling it changes nothing of its own.
unsafe impl Sync for Block {}

#[derive(Default)]
struct Buffers {
    /// Command buffers that are committed, in order, by address, with the commands of their submission.
    committed: VecDeque<(usize, BufferInfo, Arc<[Command]>)>,
    /// What the next command buffers are described in.
    spare: Vec<BufferInfo>,
}

/// What an operation of the queue ends with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fence {
    /// The command buffer at this address.
    Buffer(usize),
    /// A signal within a command buffer, by its ticket.
    Ticket(u64),
}

/// Commands that were encoded.
struct Encoded {
    /// `None` if the device has nothing to do.
    buffer: Option<CommandBuffer>,
    /// Index of the command that is next.
    next: usize,
    /// Whether nothing may be committed behind it before it has completed.
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
                // What unwinds from here would end the process.
                let _panic = catch_unwind(AssertUnwindSafe(|| {
                    let Some(submissions) = ended.upgrade() else { return };
                    #[allow(unsafe_code)] // an argument from Metal
                    // SAFETY: Metal hands its handler a command buffer that lives as long as the call.
                    let buffer = unsafe { buffer.as_ref() };
                    autoreleasepool(|_| Self::completed(&submissions, buffer));
                }));
            });
            let marks = Marks::new(autoreleasepool(|_| signals(core, submissions)));
            let (core, completion, buffers) = (core.clone(), Block(completion), Mutex::default());
            Self { core, queue, completion, marks, buffers }
        }))
    }
}

/// The queue's, through which it learns what its command buffers have come to.
fn signals(core: &Core, submissions: &Weak<Submissions>) -> Option<Signals> {
    let submissions = submissions.clone();
    Signals::new(core, move |ticket| {
        // What unwinds from here would end the process.
        let _panic = catch_unwind(AssertUnwindSafe(|| {
            let Some(submissions) = submissions.upgrade() else { return };
            autoreleasepool(|_| {
                raise(&submissions, ticket, host::now_ns());
                submissions.turn(&mut ());
            });
        }));
    })
}

/// The device has come to all signals up to a ticket.
fn raise(submissions: &Submissions, ticket: u64, end_ns: u64) {
    let is_reached = |fence: &Fence| matches!(fence, Fence::Ticket(one) if *one <= ticket);
    let executed = || Completed::Executed { start_ns: None, end_ns };
    while submissions.complete(is_reached, executed()).is_some() {}
}

#[allow(unsafe_code)] // promises what the trait asks for
// SAFETY: a command buffer's operation completes in its completion handler; one that is not committed is not announced.
unsafe impl Backend for CommandQueue {
    type Thread = ();
    type Work = ();
    type Fence = Fence;

    fn thread() -> Option<()> {
        Some(())
    }

    fn work(&self) {}

    fn begin(&self, issue: &mut Issue<'_, Self>, (): &mut ()) -> Result<Issued> {
        if issue.in_flight() > 0 {
            return Ok(Issued::Full);
        }
        let mut info = self.buffers.lock().spare.pop().unwrap_or_default();
        info.submission = issue.submission().0;
        let begun = autoreleasepool(|_| self.encode(issue, &mut info));
        match begun {
            Ok(Encoded { buffer: Some(buffer), next, drain }) => {
                self.commit(issue, next, info, &buffer);
                Ok(Issued::InFlight { drain })
            }
            Ok(Encoded { buffer: None, next, .. }) => {
                self.keep(info);
                let now = host::now_ns();
                Ok(Issued::Executed { next, start_ns: now, end_ns: now })
            }
            Err(error) => Err(self.core.explained(error)),
        }
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

    /// What runs on a GPU runs to its end.
    fn stop(
        &self,
        (): &(),
        _fences: &mut dyn Iterator<Item = &Fence>,
        _cause: &Error,
    ) -> Result<Option<Deferred<Self, Result<()>>>> {
        Err(Error::unsupported("Metal cannot stop running work"))
    }
}

impl CommandQueue {
    fn encode(&self, issue: &Issue<'_, Self>, info: &mut BufferInfo) -> Result<Encoded> {
        let (commands, mut next) = (issue.commands(), issue.next());
        if encode::crosses(&commands[next])
            && let Command::Copy { source, target } = &commands[next]
        {
            let (buffer, is_last) = crossing::half((&self.core, &*self.queue), (source, target), next, info)?;
            return Ok(Encoded { buffer: Some(buffer), next: next + usize::from(is_last), drain: true });
        }
        let buffer = encode::encode(&self.core, &self.queue, &self.marks, commands, &mut next, info)?;
        Ok(Encoded { buffer, next, drain: false })
    }

    #[allow(unsafe_code)] // hands a block to Metal
    fn commit(&self, issue: &Issue<'_, Self>, next: usize, mut info: BufferInfo, buffer: &CommandBuffer) {
        let address = address(buffer);
        for (ticket, command) in &info.signals {
            issue.announce_mark(*command, Fence::Ticket(*ticket));
        }
        self.marks.before(&self.core, &mut info);
        issue.announce(next, Fence::Buffer(address));
        self.buffers.lock().committed.push_back((address, info, issue.commands().clone()));
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
            let at = committed.iter().position(|(other, ..)| *other == address);
            at.and_then(|at| committed.remove(at))
        };
        let Some((_, mut info, commands)) = committed else { return };
        let failed = buffer.error();
        let start_ns = host::from_seconds(buffer.GPUStartTime());
        let end_ns = host::from_seconds(buffer.GPUEndTime()).max(start_ns);
        let last = info.signals.last().map(|(ticket, _)| *ticket);
        if let Some((signals, last)) = this.marks.signals.as_ref().zip(last) {
            match &failed {
                None => raise(submissions, last, end_ns),
                Some(_) => raise(submissions, signals.reached(), host::now_ns()),
            }
        }
        this.marks.note_times(&this.core, buffer, failed.is_none(), &commands, &info);
        let error = match failed {
            Some(error) => {
                let core = info.other.as_ref().unwrap_or(&this.core);
                let error = failure::error(core, &error, &commands, &info);
                core.note(&error);
                Some(error)
            }
            None => validation::fault(buffer, &commands, &info).map(Error::Fault),
        };
        let completed = match error {
            None => {
                info.clear();
                this.keep(info);
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
                // What a half of a copy has brought is of no use.
                drop(info);
                Completed::Failed(error)
            }
        };
        submissions.complete(|fence| *fence == Fence::Buffer(address), completed);
        submissions.turn(&mut ());
    }

    fn keep(&self, info: BufferInfo) {
        self.buffers.lock().spare.push(info);
    }
}

fn address(buffer: &CommandBuffer) -> usize {
    std::ptr::from_ref::<ProtocolObject<dyn MTLCommandBuffer>>(buffer).addr()
}
