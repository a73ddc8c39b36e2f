//! A scripted device: it begins commands and completes them when the test says so.

use std::sync::Arc;

use elinvar_driver::primitive::{DataType, Matrix, Softmax};
use elinvar_driver::submission::{
    Backend, Completed, Deferred, Issue, Issued, QueueHandle, SubmissionQueue, Waiting,
};
use elinvar_driver::sync::Mutex;
use elinvar_driver::{
    Command, Done, Error, Event, Primitive, Promise, PromisedTimeline, Queue, Result, Submission, Timeline,
    Timing,
};

/// How the device executes commands.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum Mode {
    /// Asynchronously: commands are in flight until the test completes them.
    #[default]
    Ahead,
    /// Synchronously in `begin`, on the thread of a turn.
    AtOnce,
}

#[derive(Default)]
pub(crate) struct Device<const IS_LAYER: bool = false> {
    pub(crate) mode: Mode,
    /// Commands that were begun, in order: submission and command index.
    pub(crate) begun: Mutex<Vec<(u64, usize)>>,
    pub(crate) scheduled: Mutex<Vec<Arc<SubmissionQueue<Self>>>>,
    /// Errors injected into the next calls of `begin`.
    pub(crate) errors: Mutex<Vec<Error>>,
    pub(crate) room: Mutex<Option<usize>>,
    pub(crate) drains: Mutex<bool>,
    pub(crate) waits: Mutex<bool>,
    pub(crate) suspends: Mutex<bool>,
    /// Whether `begin` announces commands and then fails to issue them.
    pub(crate) retracts: Mutex<bool>,
    /// Whether stopping fails in the callback.
    pub(crate) stop_fails: bool,
    pub(crate) can_stop: bool,
    pub(crate) can_cancel: bool,
    pub(crate) next_fence: Mutex<u64>,
    /// Called by the next `recycle`.
    pub(crate) on_recycle: Mutex<Option<Callback<()>>>,
    /// Whether signals and timestamps have fences.
    pub(crate) marks: Mutex<bool>,
    /// Called with the fence of the next mark, when it has been announced.
    pub(crate) on_mark: Mutex<Option<Callback<u64>>>,
}

pub(crate) type Callback<A> = Box<dyn FnOnce(A) + Send>;

/// An event for whose promised signals the device waits.
pub(crate) type PromisedEvent = PromisedTimeline<Point>;

#[derive(Clone)]
pub(crate) struct Point;

impl Promise for Point {}

/// A thread of the device.
pub(crate) struct Thread;

#[allow(unsafe_code)] // implements an unsafe trait
// SAFETY: the commands access no memory.
unsafe impl<const IS_LAYER: bool> Backend for Device<IS_LAYER> {
    type Thread = Thread;
    type Work = ();
    type Fence = u64;
    const IS_LAYER: bool = IS_LAYER;

    fn thread() -> Option<Thread> {
        None
    }

    fn work(&self) {}

    fn recycle(&self, (): ()) {
        if let Some(callback) = self.on_recycle.lock().take() {
            callback(());
        }
    }

    fn begin(&self, issue: &mut Issue<'_, Self>, _thread: &mut Thread) -> Result<Issued> {
        if let Some(error) = self.errors.lock().pop() {
            return Err(error);
        }
        if self.room.lock().is_some_and(|room| issue.in_flight() >= room) {
            return Ok(Issued::Full);
        }
        assert!(IS_LAYER || !issue.run().is_empty());
        self.begun.lock().push((issue.submission().0, issue.next()));
        if self.mode == Mode::AtOnce {
            let at = issue.next() as u64;
            return Ok(Issued::Executed { next: issue.next() + 1, start_ns: 10 * at, end_ns: 10 * at + 5 });
        }
        let fence = self.fence();
        issue.announce(issue.next() + if IS_LAYER { issue.run().len() } else { 1 }, fence);
        if std::mem::take(&mut *self.retracts.lock()) {
            assert_eq!(issue.retract(), Some(fence));
            return Ok(Issued::Full);
        }
        Ok(Issued::InFlight { drain: *self.drains.lock() })
    }

    fn wait(&self, _issue: &mut Issue<'_, Self>, event: &Arc<dyn Event>, value: u64) -> Result<Waiting> {
        if let Some(event) = PromisedEvent::of(&**event) {
            return Ok(if event.promised(value).is_some() { Waiting::Device } else { Waiting::Promise });
        }
        Ok(if *self.waits.lock() { Waiting::Device } else { Waiting::Host })
    }

    fn mark(&self, issue: &mut Issue<'_, Self>) -> bool {
        if !*self.marks.lock() {
            return false;
        }
        let fence = self.fence();
        issue.announce_mark(issue.next(), fence);
        if let Some(callback) = self.on_mark.lock().take() {
            callback(fence);
        }
        true
    }

    fn panicked(&self, message: &str) -> Error {
        Error::Environment(format!("the driver of a test panicked: {message}"))
    }

    fn schedule(&self, queue: Arc<SubmissionQueue<Self>>) {
        self.scheduled.lock().push(queue);
    }

    fn now_ns(&self) -> u64 {
        1000
    }

    fn cancel(&self, (): &(), fences: &mut dyn Iterator<Item = &u64>) -> Option<Deferred<Self, bool>> {
        assert!(fences.next().is_some());
        self.can_cancel.then(|| Box::new(|_: &_| true) as Deferred<Self, bool>)
    }

    fn stop(
        &self,
        (): &(),
        _: &mut dyn Iterator<Item = &u64>,
        _: &Error,
    ) -> Result<Option<Deferred<Self, Result<()>>>> {
        if self.stop_fails {
            return Ok(Some(Box::new(|_: &_| Err(Error::unsupported("a test")))));
        }
        if self.can_stop { Ok(None) } else { Err(Error::unsupported("a test")) }
    }

    fn suspends(&self, (): &mut (), _error: &Error) -> bool {
        *self.suspends.lock()
    }
}

impl<const IS_LAYER: bool> Device<IS_LAYER> {
    pub(crate) fn fence(&self) -> u64 {
        let mut next = self.next_fence.lock();
        *next += 1;
        *next
    }
}

pub(crate) type Ends = Arc<Mutex<Vec<(u64, Result<Timing>)>>>;

pub(crate) struct Fixture<const IS_LAYER: bool = false> {
    pub(crate) queue: QueueHandle<Device<IS_LAYER>>,
    pub(crate) ends: Ends,
}

impl<const IS_LAYER: bool> Fixture<IS_LAYER> {
    pub(crate) fn new(device: Device<IS_LAYER>) -> Self {
        Self { queue: QueueHandle::new(device), ends: Ends::default() }
    }

    pub(crate) fn device(&self) -> &Device<IS_LAYER> {
        self.queue.submissions().backend()
    }

    pub(crate) fn submit(&self, commands: Vec<Command>) -> Submission {
        let (ends, id) = (self.ends.clone(), Arc::new(Mutex::new(0)));
        let number = id.clone();
        let done = move |result| ends.lock().push((*number.lock(), result));
        let submission = self.queue.submit(commands.into(), Done::new(done)).unwrap();
        *id.lock() = submission.0;
        submission
    }

    /// Run all scheduled turns.
    pub(crate) fn run(&self) {
        loop {
            let Some(queue) = self.device().scheduled.lock().pop() else { return };
            queue.turn(&mut Thread);
        }
    }

    pub(crate) fn submit_and_run(&self, commands: Vec<Command>) -> Submission {
        let submission = self.submit(commands);
        self.run();
        submission
    }

    pub(crate) fn complete(&self, fence: u64, completed: Completed) {
        let queue = self.queue.submissions();
        assert_eq!(queue.complete(|other| *other == fence, completed), Some(fence));
        queue.turn(&mut Thread);
        self.run();
    }

    pub(crate) fn executed(&self, fence: u64) {
        self.complete(fence, Completed::Executed { start_ns: Some(100 * fence), end_ns: 100 * fence + 50 });
    }

    /// Submissions that have ended since the last call.
    pub(crate) fn ended(&self) -> Vec<(u64, Result<Timing>)> {
        std::mem::take(&mut self.ends.lock())
    }

    pub(crate) fn numbers(&self) -> Vec<(u64, &'static str)> {
        let name = |result: Result<Timing>| match result {
            Ok(_) => "ok",
            Err(Error::Poisoned(_)) => "poisoned",
            Err(Error::Cancelled) => "cancelled",
            Err(Error::DeviceLost(_)) => "lost",
            Err(_) => "failed",
        };
        self.ended().into_iter().map(|(id, result)| (id, name(result))).collect()
    }
}

pub(crate) fn work() -> Command {
    let matrix = Matrix { rows: 1, columns: 1, row_bytes: 4, matrix_bytes: 4 };
    let softmax = Softmax { data_type: DataType::F32, source: matrix, result: matrix, logarithm: false };
    Command::Primitive { primitive: Primitive::Softmax(softmax), operands: Vec::new() }
}

pub(crate) fn signal(event: &Arc<Timeline>, value: u64) -> Command {
    Command::Signal { event: event.clone(), value }
}

pub(crate) fn wait(event: &Arc<Timeline>, value: u64) -> Command {
    Command::Wait { event: event.clone(), value }
}

pub(crate) fn error() -> Error {
    Error::Environment("a failure of a test".into())
}

pub(crate) fn ahead() -> Fixture {
    Fixture::<false>::new(Device::default())
}
