//! The submission core: threads that submit, cancel and stop beside threads that take turns and report what has completed.

use std::sync::Arc;

use elinvar_driver::primitive::{DataType, Matrix, Softmax};
use elinvar_driver::{Command, Done, Error, Event as _, Primitive, Result, Submission, Timing};
use loom::thread;

use crate::model;
use crate::submission_source::{Backend, Completed, Deferred, Issue, Issued, SubmissionQueue};
use crate::sync::Mutex;
use crate::timeline::Timeline;

/// A device that executes commands at once, or has them in flight until it is told. `HERE` if any thread may begin commands.
struct Device<const HERE: bool> {
    at_once: bool,
    scheduled: Mutex<Vec<Arc<SubmissionQueue<Self>>>>,
    begun: Mutex<Vec<u64>>,
}

type Ends = Arc<Mutex<Vec<(u64, Result<Timing>)>>>;

#[allow(unsafe_code)] // promises what the trait asks for
// SAFETY: there is no memory.
unsafe impl<const HERE: bool> Backend for Device<HERE> {
    type Thread = ();
    type Work = ();
    type Fence = u64;

    fn thread() -> Option<()> {
        HERE.then_some(())
    }

    fn work(&self) {}

    fn begin(&self, issue: &mut Issue<'_, Self>, (): &mut ()) -> Result<Issued> {
        let submission = issue.submission().0;
        self.begun.lock().push(submission);
        let next = issue.next() + 1;
        if self.at_once {
            return Ok(Issued::Executed { next, start_ns: 0, end_ns: 0 });
        }
        issue.announce(next, submission);
        Ok(Issued::InFlight { drain: false })
    }

    fn panicked(&self, message: &str) -> Error {
        Error::Environment(format!("the driver of a model panicked: {message}"))
    }

    fn schedule(&self, queue: Arc<SubmissionQueue<Self>>) {
        self.scheduled.lock().push(queue);
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn stop(
        &self,
        (): &(),
        _: &mut dyn Iterator<Item = &u64>,
        _: &Error,
    ) -> Result<Option<Deferred<Self, Result<()>>>> {
        Err(Error::unsupported("a model"))
    }
}

fn queue<const HERE: bool>(at_once: bool) -> Arc<SubmissionQueue<Device<HERE>>> {
    SubmissionQueue::new(Device { at_once, scheduled: Mutex::new(Vec::new()), begun: Mutex::new(Vec::new()) })
}

/// Take the turns that are scheduled now.
fn turns<const HERE: bool>(queue: &SubmissionQueue<Device<HERE>>) {
    loop {
        let Some(next) = queue.backend().scheduled.lock().pop() else { return };
        next.turn(&mut ());
    }
}

fn submit<const HERE: bool>(
    queue: &Arc<SubmissionQueue<Device<HERE>>>,
    ends: &Ends,
    name: u64,
    commands: Vec<Command>,
) -> Submission {
    let ends = ends.clone();
    let done = Done::new(move |result| ends.lock().push((name, result)));
    queue.submit(commands.into(), done).expect("it is admitted").0
}

fn work() -> Command {
    let matrix = Matrix { rows: 1, columns: 1, row_bytes: 4, matrix_bytes: 4 };
    let softmax = Softmax { data_type: DataType::F32, source: matrix, result: matrix, logarithm: false };
    Command::Primitive { primitive: Primitive::Softmax(softmax), operands: Vec::new() }
}

fn ends() -> Ends {
    Arc::new(Mutex::new(Vec::new()))
}

#[test]
fn no_submission_is_left_whoever_takes_the_turn() {
    model(|| {
        let (queue, ends) = (queue::<false>(true), ends());
        let submits = thread::spawn({
            let (queue, ends) = (queue.clone(), ends.clone());
            move || {
                submit(&queue, &ends, 1, vec![work()]);
                submit(&queue, &ends, 2, vec![work()]);
            }
        });
        let worker = thread::spawn({
            let queue = queue.clone();
            move || turns(&queue)
        });
        turns(&queue);
        submits.join().unwrap();
        worker.join().unwrap();
        // What was scheduled last nobody has taken yet; what was not scheduled nobody takes.
        turns(&queue);
        let names: Vec<u64> = ends.lock().iter().map(|(name, _)| *name).collect();
        assert_eq!(names, [1, 2]);
        assert_eq!(*queue.backend().begun.lock(), [1, 2]);
    });
}

#[test]
fn what_completes_beside_a_submission_is_retired_once() {
    model(|| {
        let (queue, ends) = (queue::<false>(false), ends());
        submit(&queue, &ends, 1, vec![work()]);
        turns(&queue);
        let device = thread::spawn({
            let queue = queue.clone();
            move || {
                let executed = Completed::Executed { start_ns: None, end_ns: 0 };
                assert_eq!(queue.complete(|fence| *fence == 1, executed), Some(1));
                queue.turn(&mut ());
            }
        });
        submit(&queue, &ends, 2, vec![]);
        turns(&queue);
        device.join().unwrap();
        turns(&queue);
        let names: Vec<u64> = ends.lock().iter().map(|(name, _)| *name).collect();
        assert_eq!(names, [1, 2]);
    });
}

#[test]
fn a_submission_is_cancelled_or_executed() {
    model(|| {
        let (queue, ends) = (queue::<false>(true), ends());
        let submission = submit(&queue, &ends, 1, vec![work()]);
        let worker = thread::spawn({
            let queue = queue.clone();
            move || turns(&queue)
        });
        let is_cancelled = queue.cancel(submission);
        turns(&queue);
        worker.join().unwrap();
        turns(&queue);
        let ends = ends.lock();
        assert_eq!(ends.len(), 1);
        assert_eq!(matches!(ends[0].1, Err(Error::Cancelled)), is_cancelled);
        assert_eq!(queue.backend().begun.lock().is_empty(), is_cancelled);
    });
}

/// How a submission ends that waits for 1 while `signal` runs.
fn ends_beside(signal: impl Fn(&Timeline)) -> Vec<(u64, Result<Timing>)> {
    let (queue, ends) = (queue::<false>(true), ends());
    let event = Arc::new(Timeline::new());
    submit(&queue, &ends, 1, vec![Command::Wait { event: event.clone(), value: 1 }, work()]);
    let worker = thread::spawn({
        let queue = queue.clone();
        move || turns(&queue)
    });
    signal(&event);
    worker.join().unwrap();
    turns(&queue);
    std::mem::take(&mut *ends.lock())
}

#[test]
fn an_event_that_comes_beside_the_wait_unblocks_it() {
    model(|| {
        let ends = ends_beside(|event| event.signal(1, 0));
        assert_eq!(ends.len(), 1);
    });
}

/// As one whose last handle is dropped behind its signal.
#[test]
fn an_event_that_fails_behind_its_signal_unblocks_the_wait() {
    model(|| {
        let ends = ends_beside(|event| {
            event.signal(1, 0);
            event.fail(&Error::Cancelled);
        });
        assert!(matches!(ends[..], [(1, Ok(_))]), "it has reached the value");
    });
}

#[test]
fn a_stop_beside_a_blocked_wait_ends_it_once() {
    model(|| {
        let (queue, ends) = (queue::<false>(true), ends());
        let event = Arc::new(Timeline::new());
        let wait = Command::Wait { event: event.clone(), value: 1 };
        let submission = submit(&queue, &ends, 1, vec![wait, work()]);
        turns(&queue);
        let stops = thread::spawn({
            let queue = queue.clone();
            move || queue.stop(submission, Error::Cancelled).is_ok_and(|found| found)
        });
        event.signal(1, 0);
        turns(&queue);
        let is_stopped = stops.join().unwrap();
        turns(&queue);
        let ends = ends.lock();
        assert_eq!(ends.len(), 1);
        assert!(is_stopped || ends[0].1.is_ok());
        assert_eq!(queue.backend().begun.lock().is_empty(), ends[0].1.is_err());
    });
}

#[test]
fn what_completes_while_it_is_issued_is_ended_by_who_completes_it() {
    model(|| {
        let (queue, ends) = (queue::<true>(false), ends());
        let device = thread::spawn({
            let queue = queue.clone();
            move || {
                let executed = || Completed::Executed { start_ns: None, end_ns: 0 };
                while queue.complete(|fence| *fence == 1, executed()).is_none() {
                    thread::yield_now();
                }
                queue.turn(&mut ());
            }
        });
        submit(&queue, &ends, 1, vec![work()]);
        device.join().unwrap();
        // Nobody takes the turns that were scheduled: the threads that would may be in callbacks.
        assert_eq!(ends.lock().len(), 1);
    });
}
