//! Events: queues that wait for each other and for the host, without blocking a worker.

use std::sync::Arc;
use std::sync::mpsc::channel;

use elinvar_driver::{Binding, Command, Device, Error, Event, Priority, TimestampSlot};

use crate::testing::{self, Gate, bound, dispatch, memory, pipeline, run, submit, words};

fn wait(event: &Arc<dyn Event>, value: u64) -> Command {
    Command::Wait { event: event.clone(), value }
}

fn signal(event: &Arc<dyn Event>, value: u64) -> Command {
    Command::Signal { event: event.clone(), value }
}

#[test]
fn many_queues_wait_in_a_chain_on_few_workers() {
    const QUEUES: u64 = 40;
    let step = pipeline(testing::STEP);
    for workers in [1, 3] {
        let device = testing::device(workers);
        let event = device.event().unwrap();
        let value = memory(&device, 4);
        let queues: Vec<_> = (0..QUEUES).map(|_| device.queue().unwrap()).collect();
        // The last of the chain is submitted first.
        let ends: Vec<_> = (0..QUEUES)
            .rev()
            .map(|n| {
                let add = Binding::bytes(&(n as u32).to_ne_bytes());
                let commands = vec![
                    wait(&event, n),
                    dispatch(&step, 1, vec![bound(&value), add]),
                    signal(&event, n + 1),
                ];
                submit(&*queues[n as usize], commands).1
            })
            .collect();
        for end in ends {
            end.recv().unwrap().unwrap();
        }
        let expected = (0..QUEUES as u32).fold(0_u32, |sum, n| sum.wrapping_mul(3).wrapping_add(n));
        assert_eq!((words(&value), event.value()), (vec![expected], QUEUES));
    }
}

#[test]
fn the_host_lets_a_queue_go_on_where_it_stopped() {
    let device = testing::device(1);
    let (queue, other) = (device.queue().unwrap(), device.queue().unwrap());
    let event = device.event().unwrap();
    let counts = memory(&device, 8);
    let kernel = pipeline(testing::COUNT);
    let count = || dispatch(&kernel, 2, vec![bound(&counts)]);
    let (_, ended) = submit(&*queue, vec![count(), wait(&event, 1), count(), wait(&event, 2), count()]);
    let (_, behind) = submit(&*queue, vec![count()]);
    for value in 1..=2 {
        run(&*other, vec![]).unwrap();
        assert!(ended.try_recv().is_err() && behind.try_recv().is_err());
        event.signal(value, 0);
    }
    let timing = ended.recv().unwrap().unwrap();
    assert!(timing.end_ns >= timing.start_ns && timing.start_ns > 0);
    behind.recv().unwrap().unwrap();
    assert_eq!(words(&counts), [4, 4]);
}

#[test]
fn a_failed_event_fails_who_waits_and_what_that_would_have_raised() {
    let device = testing::device(2);
    let (first, second) = (device.queue().unwrap(), device.queue().unwrap());
    let (event, next) = (device.event().unwrap(), device.event().unwrap());
    let (_, waiting) = submit(&*second, vec![wait(&event, 1), signal(&next, 1)]);
    let fault = pipeline(testing::FAULT);
    let (counts, last) = (memory(&device, 4), memory(&device, 8));
    let failed =
        run(&*first, vec![dispatch(&fault, 1, vec![bound(&counts), bound(&last)]), signal(&event, 1)]);
    assert!(matches!(failed, Err(Error::Fault(_))), "{failed:?}");
    for result in [waiting.recv().unwrap(), run(&*second, vec![wait(&next, 1)])] {
        assert!(matches!(result, Err(Error::Poisoned(cause)) if matches!(*cause, Error::Fault(_))));
    }
    assert_eq!((event.value(), next.value()), (0, 0));
    second.acknowledge();
    run(&*second, vec![]).unwrap();
}

#[test]
fn what_waits_with_nothing_done_can_be_cancelled_and_nothing_else() {
    let device = testing::device(1);
    let queue = device.queue().unwrap();
    let (event, raised) = (device.event().unwrap(), device.event().unwrap());
    let gate = Gate::new(&device);
    let (waits, cancelled) = submit(&*queue, vec![wait(&event, 0), wait(&event, 1), signal(&raised, 1)]);
    let (_, behind) = submit(&*queue, vec![]);
    assert!(queue.cancel(waits));
    assert!(matches!(cancelled.recv().unwrap(), Err(Error::Cancelled)));
    behind.recv().unwrap().unwrap();
    assert!(matches!(raised.failure(), Some(Error::Poisoned(_))), "it will not be raised any more");
    event.signal(1, 0);
    let slot = Arc::new(TimestampSlot::new());
    let stamp = Command::Timestamp { into: slot.clone() };
    let (begun, ended) = submit(&*queue, vec![gate.command(), stamp, wait(&event, 2)]);
    gate.open();
    while slot.ns().is_none() {
        std::thread::yield_now();
    }
    assert!(!queue.cancel(begun), "a dispatch of it has run");
    event.signal(2, 0);
    ended.recv().unwrap().unwrap();
    assert!(!queue.cancel(begun));
}

#[test]
fn all_is_dropped_while_a_queue_waits() {
    let device = testing::device(2);
    let event = device.event().unwrap();
    let counts = memory(&device, 8);
    let kernel = pipeline(testing::COUNT);
    let queue = device.queue().unwrap();
    let (_, ended) = submit(&*queue, vec![wait(&event, 1), dispatch(&kernel, 2, vec![bound(&counts)])]);
    drop((queue, device));
    event.signal(1, 0);
    ended.recv().unwrap().unwrap();
    assert_eq!(words(&counts), [1, 1]);
}

#[test]
fn the_higher_priority_goes_first() {
    let device = testing::device(1);
    let gate = Gate::new(&device);
    let (_, busy) = submit(&*device.queue().unwrap(), vec![gate.command()]);
    let (sender, order) = channel();
    let levels = [Priority::Low, Priority::Normal, Priority::High, Priority::Low, Priority::High];
    let queues = levels.map(|priority| device.queue_with(priority).unwrap());
    for (queue, priority) in queues.iter().zip(levels) {
        let sender = sender.clone();
        queue
            .submit(Arc::new([]), elinvar_driver::Done::new(move |_| sender.send(priority).unwrap()))
            .unwrap();
    }
    gate.open();
    busy.recv().unwrap().unwrap();
    let order: Vec<Priority> = order.iter().take(5).collect();
    assert!(order.is_sorted_by(|a, b| a >= b), "{order:?}");
}
