//! [`Backend`]: the interface between the submission core and a driver's queue.

use std::sync::Arc;

use super::queue::SubmissionQueue;
use super::state::Position;
use crate::{Command, Error, Event, Result, Submission};

/// A callback to run after the queue's lock is released.
pub type Deferred<B, R> = Box<dyn FnOnce(&Arc<SubmissionQueue<B>>) -> R + Send>;

/// The driver-specific half of a queue.
///
/// [`Backend::begin`] and [`Backend::wait`] are called by one thread at a time, in the order of submission, without a lock held.
///
/// # Safety
/// The host accesses the memory of a submission after it has ended. Therefore an operation must be reported as completed only when the
/// device no longer accesses its memory, and commands that [`Backend::begin`] failed to issue must not be executed.
#[allow(unsafe_code)] // safe code relies on implementations
pub unsafe trait Backend: Send + Sync + Sized + 'static {
    /// Per-thread state for issuing commands: a worker of the CPU driver; `()` if any thread can issue.
    type Thread;
    /// State of one submission, such as a flag that stops it.
    type Work: Send;
    /// A point in the device's execution. The operation that was announced with a fence has completed when the device reaches it.
    type Fence: Send;

    /// Whether the backend is a layer over another queue, which executes waits, signals and timestamps. [`Backend::begin`] then
    /// receives whole submissions, including empty ones, without trailing signals ([`last_signals`]). The core raises the trailing
    /// signals, so that failures of the inner queue do not fail the events.
    const IS_LAYER: bool = false;

    /// Per-thread state for the calling thread, if it may issue commands. [`Queue::submit`](crate::Queue::submit) then issues as much
    /// as possible before it returns; otherwise it leaves issue to [`Backend::schedule`].
    fn thread() -> Option<Self::Thread> {
        None
    }

    /// State for a new submission.
    fn work(&self) -> Self::Work;

    /// Receive the state of a submission that has ended, for reuse. Issue that was [`Issued::Full`] then resumes.
    fn recycle(&self, _work: Self::Work) {}

    /// Check that this process has opened the device. Called before any lock is taken, because in a child of `fork` a lock may be held
    /// by a thread that does not exist.
    ///
    /// # Errors
    /// `DeviceLost` in a child of the process that opened the device.
    fn expect_here(&self, _what: &str) -> Result<()> {
        Ok(())
    }

    /// Spin until `is_over` returns true; see [`Queue::spin`](crate::Queue::spin).
    fn spin(&self, _queue: &Arc<SubmissionQueue<Self>>, is_over: &mut dyn FnMut() -> bool) {
        while !is_over() {}
    }

    /// Validate a submission before it is queued. Called without a lock held.
    ///
    /// # Errors
    /// Returned from `submit`.
    fn admit(&self, _commands: &[Command]) -> Result<()> {
        Ok(())
    }

    /// Begin commands of a submission, starting at [`Issue::next`]: at least one, and none behind the next [`Command::Wait`]. The first
    /// command is not a wait, signal or timestamp, unless this is a layer.
    ///
    /// # Errors
    /// The submission ends in the error when all announced operations have completed.
    fn begin(&self, issue: &mut Issue<'_, Self>, thread: &mut Self::Thread) -> Result<Issued>;

    /// Make the device wait for an event that has not reached `value` yet.
    ///
    /// # Errors
    /// As [`Backend::begin`].
    fn wait(&self, _issue: &mut Issue<'_, Self>, _event: &Arc<dyn Event>, _value: u64) -> Result<Waiting> {
        Ok(Waiting::Host)
    }

    /// Converts a panic of [`Backend::begin`] or [`Backend::wait`] to an error.
    fn panicked(&self, message: &str) -> Error;

    /// Insert a fence behind everything that was issued, for the signal or timestamp at [`Issue::next`], and announce it with
    /// [`Issue::announce_mark`]. Returns `false`, with nothing announced, if the command takes effect when the operations before it have
    /// completed.
    fn mark(&self, _issue: &mut Issue<'_, Self>) -> bool {
        false
    }

    /// Run [`SubmissionQueue::turn`] soon, on a thread where callbacks may be made.
    fn schedule(&self, queue: Arc<SubmissionQueue<Self>>);

    /// Whether other queues wait for this thread, so that the turn should end after the current submission.
    fn yields(&self, _thread: &Self::Thread) -> bool {
        false
    }

    /// The device's clock, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Cancel a submission that has begun. Called under the queue's lock, so it must not block; the returned callback asks the device,
    /// without the lock. If the callback returns `true`, the submission's operations complete as [`Completed::Cancelled`]. `None` if
    /// the device cannot cancel it.
    fn cancel(
        &self,
        _work: &Self::Work,
        _fences: &mut dyn Iterator<Item = &Self::Fence>,
    ) -> Option<Deferred<Self, bool>> {
        None
    }

    /// Stop a submission that has operations in flight or is being issued. Called under the queue's lock, so it must not block; the
    /// returned callback runs without the lock. If either fails, the submission is not stopped.
    ///
    /// # Errors
    /// `Unsupported` if the device cannot stop running work.
    fn stop(
        &self,
        work: &Self::Work,
        fences: &mut dyn Iterator<Item = &Self::Fence>,
        cause: &Error,
    ) -> Result<Option<Deferred<Self, Result<()>>>>;

    /// Whether the failure of the first submission suspends the queue, instead of ending the submission, until
    /// [`SubmissionQueue::retry`], [`SubmissionQueue::fail_first`] or [`SubmissionQueue::complete_first`]. Called under the queue's lock.
    fn suspends(&self, _work: &mut Self::Work, _error: &Error) -> bool {
        false
    }

    /// Whether the device may have begun a submission that is reissued after a suspension, so that it can no longer be cancelled.
    /// Called under the queue's lock.
    fn may_have_begun(&self, _work: &Self::Work) -> bool {
        false
    }

    /// Called when the failure of the queue was acknowledged.
    fn acknowledged(&self) {}

    /// Called when a submission has ended and its `done` has returned.
    fn ended(&self, _queue: &Arc<SubmissionQueue<Self>>, _submission: Submission) {}
}

/// Result of [`Backend::begin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issued {
    /// The commands before `next` have been executed.
    Executed {
        /// Index of the next command.
        next: usize,
        /// Start time of the first executed command, on the device's clock.
        start_ns: u64,
        /// End time of the last executed command, on the device's clock.
        end_ns: u64,
    },
    /// Commands are in flight; they were announced with [`Issue::announce`].
    InFlight {
        /// Whether issue must pause until everything in flight has completed.
        drain: bool,
    },
    /// Nothing was begun. Issue resumes when an operation in flight completes, when a submission ends, or after
    /// [`SubmissionQueue::resume`].
    Full,
}

/// Result of [`Backend::wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The device waits; what follows is issued.
    Device,
    /// The device can wait once the signal is promised; the host waits until then ([`Event::when_expected`]), and asks again.
    Promise,
    /// The host waits until the event has reached the value.
    Host,
}

/// Result of an operation.
#[derive(Clone, Debug)]
pub enum Completed {
    /// It was executed.
    Executed {
        /// Start time, if the device reports it.
        start_ns: Option<u64>,
        /// End time.
        end_ns: u64,
    },
    /// It failed, and so does its submission.
    Failed(Error),
    /// It was not executed, because an earlier operation had failed.
    Poisoned(Error),
    /// It was not executed, because its submission was cancelled.
    Cancelled,
}

/// The submission that is being issued.
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

    /// Index of the next command.
    pub fn next(&self) -> usize {
        self.position.next
    }

    /// The commands from the next one up to the first wait, signal or timestamp; for a layer, up to the trailing signals.
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

    /// As [`Issue::run`], with timestamps, for a device that executes commands synchronously.
    pub fn run_with_timestamps(&self) -> &[Command] {
        let rest = &self.position.commands[self.position.next..];
        let ends = |command: &Command| matches!(command, Command::Wait { .. } | Command::Signal { .. });
        &rest[..rest.iter().position(ends).unwrap_or(rest.len())]
    }

    /// Number of operations in flight on the queue.
    pub fn in_flight(&self) -> usize {
        self.position.in_flight
    }

    /// Whether a part of the submission was begun before.
    pub fn had_begun(&self) -> bool {
        self.position.had_begun
    }

    /// Access the submission's state.
    pub fn with_work<R>(&self, f: impl FnOnce(&mut B::Work) -> R) -> Option<R> {
        self.queue.with_work(self.position.submission, f)
    }

    /// Announce the commands before `next` as in flight; they have completed when the device reaches `fence`. Must be called before the
    /// device can reach it. If they are the last commands, the submission may end before [`Backend::begin`] returns.
    pub fn announce(&self, next: usize, fence: B::Fence) {
        self.queue.announce_commands(self.position.submission, next, fence);
    }

    /// Announce a fence at which the submission starts on the device.
    pub fn announce_start(&self, fence: B::Fence) {
        self.queue.announce_start(self.position.submission, fence);
    }

    /// Announce a signal or a timestamp: the command with index `command` takes effect when the device reaches `fence`.
    pub fn announce_mark(&self, command: usize, fence: B::Fence) {
        self.queue.announce_mark(self.position.submission, command, fence);
    }

    /// Withdraw the announced operation, because it was not submitted to the device.
    pub fn retract(&self) -> Option<B::Fence> {
        self.queue.retract(self.position.submission, self.position.next)
    }
}

/// Index of the first trailing signal of `commands`; the number of commands, if the last one is not a signal.
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
    /// Its failure; the cause of the stop, if it was stopped.
    pub error: &'s Error,
    /// Whether it was stopped.
    pub is_stopped: bool,
    /// Its state.
    pub work: &'s mut B::Work,
}
