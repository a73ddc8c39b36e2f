//! Stopping of submissions that run, that wait for an event, and that wait in the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use elinvar_driver::{Command, Device, Error, Memory};

use crate::testing::{self, Gate, bound, dispatch, memory, pipeline, run, submit, words};

fn late() -> Error {
    Error::Timeout("late".into())
}

/// Waits until the first threadgroup has run.
#[allow(unsafe_code)] // an atomic in memory that a kernel writes
fn wait_for_first(counts: &Arc<dyn Memory>) {
    let word = counts.host_ptr().unwrap().cast::<AtomicU32>();
    // SAFETY: four aligned bytes that are only used atomically, alive while `counts` is.
    while unsafe { word.as_ref() }.load(Ordering::Relaxed) == 0 {
        std::hint::spin_loop();
    }
}

#[test]
fn no_threadgroup_begins_once_it_is_stopped() {
    const GROUPS: u32 = 2_000_000;
    for workers in [1, 3] {
        let device = testing::device(workers);
        let queue = device.queue().unwrap();
        let counts = memory(&device, 4 * GROUPS as usize);
        let slow = pipeline(testing::SLOW_COUNT);
        let work = dispatch(&slow, GROUPS, vec![bound(&counts)]);
        let (id, ended) = submit(&*queue, vec![work.clone(), work]);
        let (_, behind) = submit(&*queue, vec![]);
        // Threadgroups of several microseconds each: the whole dispatch would take a minute.
        wait_for_first(&counts);
        assert!(queue.stop(id, late()).unwrap());
        assert!(matches!(ended.recv().unwrap(), Err(Error::Timeout(text)) if text == "late"));
        assert!(
            matches!(behind.recv().unwrap(), Err(Error::Poisoned(cause)) if matches!(*cause, Error::Timeout(_)))
        );
        assert!(words(&counts).contains(&0));
        assert!(!queue.stop(id, late()).unwrap(), "it has ended");
        queue.acknowledge();
        run(&*queue, vec![]).unwrap();
    }
}

#[test]
fn what_waits_ends_in_the_cause_without_running() {
    let device = testing::device(1);
    let event = device.event().unwrap();
    let counts = memory(&device, 4);
    let count = dispatch(&pipeline(testing::COUNT), 1, vec![bound(&counts)]);
    let wait = Command::Wait { event: event.clone(), value: 1 };

    let waiting = device.queue().unwrap();
    let (id, ended) = submit(&*waiting, vec![count.clone(), wait, count.clone()]);
    run(&*device.queue().unwrap(), vec![]).unwrap();
    assert!(waiting.stop(id, late()).unwrap());
    assert!(matches!(ended.recv().unwrap(), Err(Error::Timeout(_))));

    let (gate, queue) = (Gate::new(&device), device.queue().unwrap());
    let (_, running) = submit(&*queue, vec![gate.command()]);
    let (id, ended) = submit(&*queue, vec![count]);
    assert!(queue.stop(id, late()).unwrap());
    gate.open();
    running.recv().unwrap().unwrap();
    assert!(matches!(ended.recv().unwrap(), Err(Error::Timeout(_))));
    assert_eq!(words(&counts), [1]);
}
