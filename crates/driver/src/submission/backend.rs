//! [`Backend`]: what a driver's queue adds to the submission core, and what it is given to do so.

use std::sync::Arc;

use super::queue::SubmissionQueue;
use super::state::{Kind, Position};
use crate::{Command, Error, Event, Result, Submission};

/// What is done once the lock of a queue is released.
pub type Deferred<B, R> = Box<dyn FnOnce(&Arc<SubmissionQueue<B>>) -> R + Send>;

/// The device's half of a queue.
///
/// [`Backend::begin`] and [`Backend::wait`] are called by one thread at a time, in the order of submission, without a lock held.
///
/// # Safety
/// An operation is reported as completed only when the device no longer accesses its memory, and commands that
/// [`Backend::begin`] failed to issue are not executed: the host uses the memory once a submission has ended.
#[allow(unsafe_code)] // safe code relies on it
pub unsafe trait Backend: Send + Sync + Sized + 'static {
    /// What a thread needs to begin commands: a worker of the CPU driver, `()` where any thread can.
    type Thread;
    /// State of one submission, such as a flag that stops it.
    type Work: Send;
    /// A point that the device comes to: when it has, the operation that was announced with it has completed.
    type Fence: Send;

    /// Whether the backend is a layer over another queue, which executes waits, signals and timestamps itself: [`Backend::begin`] is
    /// then given whole submissions, also empty ones, up to the signals at the end ([`last_signals`]). Those are raised here, so that
    /// none of the other queue's failures reaches an event.
    const IS_LAYER: bool = false;

    /// A thread for the calling thread, where any thread may begin commands. Then [`Queue::submit`](crate::Queue::submit) issues
    /// what it can before it returns; otherwise issue is left to [`Backend::schedule`].
    fn thread() -> Option<Self::Thread> {
        None
    }

    /// State for a new submission.
    fn work(&self) -> Self::Work;

    /// Take back the state of a submission that has ended.
    fn recycle(&self, _work: Self::Work) {}

    /// Check that the device is this process's, before any lock is taken: in a child of `fork` nobody may hold them.
    ///
    /// # Errors
    /// `DeviceLost` in a child of the process that opened the device.
    fn expect_here(&self, _what: &str) -> Result<()> {
        Ok(())
    }

    /// Spin until `is_over` answers true, as [`Queue::spin`](crate::Queue::spin).
    fn spin(&self, _queue: &Arc<SubmissionQueue<Self>>, is_over: &mut dyn FnMut() -> bool) {
        while !is_over() {}
    }

    /// Check a submission before it is queued, without a lock held. An error is the answer of `submit`.
    ///
    /// # Errors
    /// What `submit` is to return.
    fn admit(&self, _commands: &[Command]) -> Result<()> {
        Ok(())
    }

    /// Begin commands of a submission from [`Issue::next`] on: at least one, up to any number before the next
    /// [`Command::Wait`]. The first is neither a wait, a signal nor a timestamp, unless this is a layer.
    ///
    /// # Errors
    /// What the submission ends in, once what was announced has completed.
    fn begin(&self, issue: &mut Issue<'_, Self>, thread: &mut Self::Thread) -> Result<Issued>;

    /// Make the device wait for an event that has not reached `value` yet; `false` where the host has to wait.
    ///
    /// # Errors
    /// As [`Backend::begin`].
    fn wait(&self, _issue: &mut Issue<'_, Self>, _event: &Arc<dyn Event>, _value: u64) -> Result<bool> {
        Ok(false)
    }

    /// The error that a panic of [`Backend::begin`] or [`Backend::wait`] becomes.
    fn panicked(&self, message: &str) -> Error;

    /// The point behind everything that was issued, for a signal or a timestamp; `None` if it takes effect once the operations
    /// before it have completed.
    fn mark(&self, _issue: &mut Issue<'_, Self>) -> Option<Self::Fence> {
        None
    }

    /// Run [`SubmissionQueue::turn`] soon, on a thread where callbacks may be made.
    fn schedule(&self, queue: Arc<SubmissionQueue<Self>>);

    /// Whether other queues wait for this thread, so that a turn ends between two submissions.
    fn yields(&self, _thread: &Self::Thread) -> bool {
        false
    }

    /// The device's clock, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Take a submission that has begun back from the device. Called under the queue's lock, so it must not block: the answer is
    /// what asks the device, afterwards. On `true` its operations complete as [`Completed::Cancelled`]. `None` if it cannot be done.
    fn cancel(
        &self,
        _work: &Self::Work,
        _fences: &mut dyn Iterator<Item = &Self::Fence>,
    ) -> Option<Deferred<Self, bool>> {
        None
    }

    /// Stop a submission that has begun and has operations in flight, or is being issued. Called under the queue's lock, so it
    /// must not block; what it returns is called afterwards. If either fails, the submission is not stopped.
    ///
    /// # Errors
    /// `Unsupported` where nothing that runs can be stopped.
    fn stop(
        &self,
        work: &Self::Work,
        fences: &mut dyn Iterator<Item = &Self::Fence>,
        cause: &Error,
    ) -> Result<Option<Deferred<Self, Result<()>>>>;

    /// Whether the failure of the first submission is to be dealt with before it ends: the queue is then suspended until
    /// [`SubmissionQueue::retry`], [`SubmissionQueue::fail_first`] or [`SubmissionQueue::complete_first`]. Called under the queue's lock.
    fn suspends(&self, _work: &mut Self::Work, _error: &Error) -> bool {
        false
    }

    /// Whether the device may have begun a submission that is issued again, so that it cannot be cancelled any more. Called under the
    /// queue's lock.
    fn may_have_begun(&self, _work: &Self::Work) -> bool {
        false
    }

    /// The failure of the queue was acknowledged.
    fn acknowledged(&self) {}

    /// A submission has ended, and its `done` was called.
    fn ended(&self, _queue: &Arc<SubmissionQueue<Self>>, _submission: Submission) {}
}

/// How far [`Backend::begin`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issued {
    /// The commands before `next` have been executed.
    Executed {
        /// Index of the command that is next.
        next: usize,
        /// When the first of them began.
        start_ns: u64,
        /// When the last of them ended.
        end_ns: u64,
    },
    /// Commands are in flight, as [`Issue::announce`] was told.
    InFlight {
        /// Whether nothing more may be issued before everything in flight has completed.
        drain: bool,
    },
    /// Nothing was begun: there is no room before something in flight completes, or [`SubmissionQueue::resume`] is called.
    Full,
}

/// How an operation completed.
#[derive(Clone, Debug)]
pub enum Completed {
    /// It was executed.
    Executed {
        /// When it began, if the device tells.
        start_ns: Option<u64>,
        /// When it ended.
        end_ns: u64,
    },
    /// It failed, which is the failure of its submission.
    Failed(Error),
    /// It was not executed, because an earlier one had failed.
    Poisoned(Error),
    /// It was not executed, because its submission was cancelled.
    Cancelled,
}

/// A submission whose turn it is to be issued.
pub struct Issue<'q, B: Backend> {
    pub(super) queue: &'q Arc<SubmissionQueue<B>>,
    pub(super) position: Position,
}

impl<B: Backend> Issue<'_, B> {
    /// The queue.
    pub fn queue(&self) -> &Arc<SubmissionQueue<B>> {
        self.queue
    }

    /// The submission.
    pub fn submission(&self) -> Submission {
        Submission(self.position.submission)
    }

    /// All commands of the submission.
    pub fn commands(&self) -> &Arc<[Command]> {
        &self.position.commands
    }

    /// Index of the command that is next.
    pub fn next(&self) -> usize {
        self.position.next
    }

    /// The commands from the next on, up to the first wait, signal or timestamp; for a layer, up to the signals at the end.
    pub fn run(&self) -> &[Command] {
        if B::IS_LAYER {
            return &self.position.commands[self.position.next..last_signals(&self.position.commands)];
        }
        let rest = &self.position.commands[self.position.next..];
        let ends = |command: &Command| {
            matches!(command, Command::Wait { .. } | Command::Signal { .. } | Command::Timestamp { .. })
        };
        &rest[..rest.iter().position(ends).unwrap_or(rest.len())]
    }

    /// Operations in flight on the queue.
    pub fn in_flight(&self) -> usize {
        self.position.in_flight
    }

    /// Whether something of the submission was begun before.
    pub fn had_begun(&self) -> bool {
        self.position.had_begun
    }

    /// Use the submission's state.
    pub fn with_work<R>(&self, f: impl FnOnce(&mut B::Work) -> R) -> Option<R> {
        self.queue.with_work(self.position.submission, f)
    }

    /// Announce the commands before `next` as in flight; they have completed when the device comes to `fence`. To be called before the
    /// device can: if they are the last of the submission, that may end while [`Backend::begin`] has yet to return.
    pub fn announce(&self, next: usize, fence: B::Fence) {
        self.queue.announce_commands(self.position.submission, next, fence);
    }

    /// Announce the point at which the submission begins on the device.
    pub fn announce_start(&self, fence: B::Fence) {
        self.queue.announce(self.position.submission, Kind::Start, Some(fence));
    }

    /// Announce a signal or a timestamp among commands: the command of that index takes effect when the device comes to `fence`.
    pub fn announce_mark(&self, command: usize, fence: B::Fence) {
        let kind = Kind::mark(&self.position.commands, command);
        self.queue.announce(self.position.submission, kind, Some(fence));
    }

    /// Take back the one operation that was announced, which the device was not given after all.
    pub fn retract(&self) -> Option<B::Fence> {
        self.queue.retract(self.position.submission, self.position.next)
    }
}

/// Index of the first of the signals at the end of `commands`; their number, if they do not end in a signal.
pub fn last_signals(commands: &[Command]) -> usize {
    let is_other = |command: &Command| !matches!(command, Command::Signal { .. });
    commands.iter().rposition(is_other).map_or(0, |last| last + 1)
}

/// A submission whose failure has suspended its queue, with nothing in flight.
pub struct Suspended<'s, B: Backend> {
    /// The submission.
    pub submission: Submission,
    /// All of its commands.
    pub commands: &'s Arc<[Command]>,
    /// How it has failed: what it was to stop in, if it was stopped.
    pub error: &'s Error,
    /// Whether it was stopped.
    pub is_stopped: bool,
    /// Its state.
    pub work: &'s mut B::Work,
}
