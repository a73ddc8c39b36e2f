//! Queues: order, cancellation, failure, panics, and dropping with work in flight.

use std::sync::Arc;
use std::sync::mpsc::channel;

use elinvar_driver::{Binding, Command, Device, Dim3, Error, Pipeline, Queue, Result, Signature};

use crate::testing::{self, Gate, bound, dispatch, memory, ordered_pipeline, pipeline, run, submit, words};

/// A kernel of another driver, whose signature is inaccessible.
struct Panicking;

impl Pipeline for Panicking {
    fn signature(&self) -> &Signature {
        panic!("no signature")
    }
    fn max_threads_per_threadgroup(&self) -> u32 {
        1
    }
    fn prepare(&self, _group: Dim3) -> Result<()> {
        Ok(())
    }
}

/// A command that fails.
fn failing() -> Command {
    dispatch(&pipeline(testing::COUNT), Dim3::new(u32::MAX, u32::MAX, u32::MAX), vec![])
}

#[test]
fn many_queues_from_many_threads_keep_their_own_order() {
    const STEPS: u32 = 200;
    let kernel = pipeline(testing::STEP);
    for workers in [1, 3] {
        let device = testing::device(workers);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let queue = device.queue().unwrap();
                    let value = memory(&device, 4);
                    let (sender, ended) = channel();
                    for n in 0..STEPS {
                        let add = Binding::bytes(&n.to_ne_bytes());
                        let commands = [dispatch(&kernel, 1, vec![bound(&value), add])];
                        let sender = sender.clone();
                        let done = elinvar_driver::Done::new(move |result: Result<_>| {
                            sender.send(result.map(|_| n)).unwrap()
                        });
                        queue.submit(Arc::new(commands), done).unwrap();
                    }
                    let ends: Vec<u32> = (0..STEPS).map(|_| ended.recv().unwrap().unwrap()).collect();
                    assert!(ends.into_iter().eq(0..STEPS));
                    let expected = (0..STEPS).fold(0_u32, |sum, n| sum.wrapping_mul(3).wrapping_add(n));
                    assert_eq!(words(&value), [expected]);
                });
            }
        });
    }
}

#[test]
fn long_dispatches_of_many_queues_end_on_few_workers() {
    let kernel = pipeline(testing::SLOW_COUNT);
    let device = testing::device(2);
    let work: Vec<_> = (0..6)
        .map(|_| {
            let (queue, counts) = (device.queue().unwrap(), memory(&device, 4 * 100));
            let command = dispatch(&kernel, 100, vec![bound(&counts)]);
            let outcome = submit(&*queue, vec![command.clone(), command]).1;
            (outcome, counts)
        })
        .collect();
    for (outcome, counts) in work {
        outcome.recv().unwrap().unwrap();
        assert!(words(&counts).iter().all(|n| *n == 2));
    }
}

#[test]
fn dispatches_of_many_queues_run_every_group_once() {
    const SIZES: [u32; 5] = [1, 7, 129, 1023, 9001];
    for workers in [1, 2, 3, 8] {
        let device = testing::device(workers);
        let work: Vec<_> = [(0, false), (1, true), (2, false)]
            .map(|(first, ascending)| {
                let kernel = ordered_pipeline(testing::COUNT, ascending);
                let (queue, counts) = (device.queue().unwrap(), memory(&device, 4 * 9001));
                let size = |n: usize| SIZES[(first + n) % SIZES.len()];
                let ends: Vec<_> = (0..60)
                    .map(|submission| {
                        let commands =
                            (0..10).map(|n| dispatch(&kernel, size(submission + n), vec![bound(&counts)]));
                        submit(&*queue, commands.collect()).1
                    })
                    .collect();
                (ends, counts)
            })
            .into();
        for (ends, counts) in work {
            ends.into_iter().for_each(|end| _ = end.recv().unwrap().unwrap());
            // Each size came in a fifth of 600 dispatches.
            let expected = |group| 120 * SIZES.iter().filter(|size| **size > group).count() as u32;
            assert!(words(&counts).into_iter().eq((0..9001).map(expected)), "{workers} workers");
        }
    }
}

#[test]
fn what_waits_can_be_cancelled_once_and_what_runs_cannot() {
    let device = testing::device(2);
    let queue = device.queue().unwrap();
    let (gate, counts, kernel) = (Gate::new(&device), memory(&device, 4), pipeline(testing::COUNT));
    let count = || vec![dispatch(&kernel, 1, vec![bound(&counts)])];
    let (running, running_end) = submit(&*queue, vec![gate.command()]);
    let (_, kept_end) = submit(&*queue, count());
    let (waiting, waiting_end) = submit(&*queue, count());
    let (_, last_end) = submit(&*queue, count());
    assert!(queue.cancel(waiting));
    assert!(!queue.cancel(waiting));
    // The other worker reports completion while the gate is still closed.
    assert!(matches!(waiting_end.recv().unwrap(), Err(Error::Cancelled)));
    gate.open();
    running_end.recv().unwrap().unwrap();
    assert!(!queue.cancel(running));
    kept_end.recv().unwrap().unwrap();
    last_end.recv().unwrap().unwrap();
    assert_eq!(words(&counts), [2]);
    assert!(queue.acknowledge().is_none());
}

#[test]
fn failure_poisons_what_is_behind_until_acknowledged() {
    let device = testing::device(2);
    let queue = device.queue().unwrap();
    let (gate, counts, kernel) = (Gate::new(&device), memory(&device, 4), pipeline(testing::COUNT));
    let count = || vec![dispatch(&kernel, 1, vec![bound(&counts)])];
    let gated = submit(&*queue, vec![gate.command()]).1;
    let failed = submit(&*queue, vec![failing()]).1;
    let behind = submit(&*queue, count()).1;
    gate.open();
    gated.recv().unwrap().unwrap();
    let cause = failed.recv().unwrap().unwrap_err();
    assert!(matches!(&cause, Error::InvalidArgument(_)), "{cause}");
    let Err(Error::Poisoned(first)) = behind.recv().unwrap() else { panic!("not poisoned") };
    assert_eq!(first.to_string(), cause.to_string());
    let Err(Error::Poisoned(first)) = run(&*queue, count()) else { panic!("not poisoned") };
    assert_eq!(first.to_string(), cause.to_string());
    assert_eq!(words(&counts), [0]);

    assert_eq!(queue.acknowledge().unwrap().to_string(), cause.to_string());
    assert!(queue.acknowledge().is_none());
    run(&*queue, count()).unwrap();
    assert_eq!(words(&counts), [1]);
    run(&*device.queue().unwrap(), count()).unwrap();
}

#[test]
fn acknowledging_does_not_revive_what_was_behind_the_failure() {
    let device = testing::device(1);
    let queue = device.queue().unwrap();
    let (counts, kernel) = (memory(&device, 4), pipeline(testing::COUNT));
    let gate = Gate::new(&device);
    let (sender, acknowledged) = channel();
    let weak = Arc::downgrade(&queue);
    let gated = submit(&*queue, vec![gate.command()]).1;
    let done = elinvar_driver::Done::new(move |result: Result<_>| {
        assert!(result.is_err());
        sender.send(weak.upgrade().unwrap().acknowledge().is_some()).unwrap();
    });
    queue.submit(Arc::new([failing()]), done).unwrap();
    let behind = submit(&*queue, vec![dispatch(&kernel, 1, vec![bound(&counts)])]).1;
    gate.open();
    gated.recv().unwrap().unwrap();
    assert!(acknowledged.recv().unwrap());
    assert!(matches!(behind.recv().unwrap(), Err(Error::Poisoned(_))));
    assert_eq!(words(&counts), [0]);
}

#[test]
fn panics_become_errors_and_the_workers_live_on() {
    let device = testing::device(1);
    let queue = device.queue().unwrap();
    let foreign: Arc<dyn Pipeline> = Arc::new(Panicking);
    let Err(Error::DeviceLost(message)) = run(&*queue, vec![dispatch(&foreign, 1, vec![])]) else {
        panic!("no error")
    };
    assert!(message.ends_with("panicked: no signature"), "{message}");
    queue.acknowledge();

    queue.submit(Arc::new([]), elinvar_driver::Done::new(|_| panic!("in a callback"))).unwrap();
    run(&*queue, vec![]).unwrap();
}

#[test]
fn dropped_queues_and_devices_let_their_work_finish() {
    let kernel = pipeline(testing::SLOW_COUNT);
    let device = testing::device(2);
    let (gate, counts) = (Gate::new(&device), memory(&device, 4 * 50));
    let queue = device.queue().unwrap();
    let gated = submit(&*queue, vec![gate.command()]).1;
    let outcomes: Vec<_> =
        (0..5).map(|_| submit(&*queue, vec![dispatch(&kernel, 50, vec![bound(&counts)])]).1).collect();
    drop(queue);
    drop(device);
    gate.open();
    gated.recv().unwrap().unwrap();
    for outcome in outcomes {
        outcome.recv().unwrap().unwrap();
    }
    assert!(words(&counts).iter().all(|n| *n == 5));
}

#[test]
fn the_last_handle_may_be_dropped_in_a_callback() {
    let queue: Arc<dyn Queue> = testing::device(1).queue().unwrap();
    let (sender, ended) = channel();
    let (go, gone) = channel::<()>();
    let own = queue.clone();
    let done = elinvar_driver::Done::new(move |_| {
        gone.recv().unwrap_err();
        drop(own);
        sender.send(()).unwrap();
    });
    queue.submit(Arc::new([]), done).unwrap();
    drop(queue);
    drop(go);
    ended.recv().unwrap();
}

#[test]
fn what_commands_name_is_released_before_done() {
    let device = testing::device(1);
    let queue = device.queue().unwrap();
    let counts = memory(&device, 4);
    run(&*queue, vec![dispatch(&pipeline(testing::COUNT), 1, vec![bound(&counts)])]).unwrap();
    assert_eq!(Arc::strong_count(&counts), 1);
}
