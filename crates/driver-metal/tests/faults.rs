//! Failures injected at each step with the stand-ins for Apple's libraries, and the state after them.
#![cfg(elinvar_apple)]
#![allow(unsafe_code)] // reads memory

mod support;

use std::sync::Arc;
use std::sync::mpsc::channel;

use elinvar_driver::{Command, Done, Error, Init, PipelineOptions, Result, Source, Storage, Timing};
use objc2_metal::MTLCommandBufferError;
use support::standin::{
    ALLOCATION, COMMAND_BUFFER, ENCODER, EXECUTION, Fixture, LIBRARY, PIPELINE, QUEUE, alone, fail, inject,
    live, without_pool,
};
use support::{devices, devices_that_compile, memory, run, submit, whole, words};

#[test]
fn what_cannot_be_made_is_an_error_and_the_next_is_made() {
    let _alone = alone();
    let device = devices_that_compile().swap_remove(0);
    for storage in [Storage::Shared, Storage::Private, Storage::Managed] {
        fail(ALLOCATION);
        let error = device.allocate(100, storage, Init::Zeroed).err().unwrap();
        assert!(matches!(error, Error::OutOfMemory { requested: 100, .. }), "{error}");
        device.allocate(100, storage, Init::Zeroed).unwrap();
    }
    let source = Source::msl(Fixture::SOURCE);
    fail(LIBRARY);
    assert!(device.compile(&source).is_err());
    let library = device.compile(&source).unwrap();
    fail(PIPELINE);
    let error = library.pipeline("add_k", &PipelineOptions::default()).err().unwrap();
    assert!(matches!(error, Error::Compile(_)), "{error}");
    library.pipeline("add_k", &PipelineOptions::default()).unwrap();
    fail(QUEUE);
    assert!(
        matches!(device.queue().err().unwrap(), Error::Environment(text) if text.contains("another command queue"))
    );
    device.queue().unwrap();
}

#[test]
fn what_cannot_be_encoded_fails_and_does_nothing() {
    let _alone = alone();
    let fixture = Fixture::new();
    let queue = fixture.device.queue().unwrap();
    for (site, nth) in [(COMMAND_BUFFER, 1), (ENCODER, 1), (ENCODER, 2)] {
        inject(site, nth, MTLCommandBufferError::Internal, -1);
        let error = run(&*queue, vec![fixture.add(1), fixture.copy(), fixture.add(1)]).unwrap_err();
        assert!(matches!(error, Error::Environment(_)), "{error}");
        assert!(matches!(run(&*queue, vec![fixture.add(1)]), Err(Error::Poisoned(_))));
        assert!(queue.acknowledge().is_some());
    }
    assert!(words(&fixture.x).iter().all(|word| *word == 0));
    run(&*queue, vec![fixture.add(5)]).unwrap();
    assert!(words(&fixture.x).iter().all(|word| *word == 5));
}

#[test]
fn a_staged_transfer_that_fails_is_an_error() {
    let _alone = alone();
    let Fixture { device, .. } = Fixture::new();
    let private = memory(&*device, 64, Storage::Private);
    for site in [COMMAND_BUFFER, ENCODER, EXECUTION] {
        fail(site);
        let mut bytes = [0; 64];
        // SAFETY: in range, and no other code uses it.
        assert!(unsafe { private.read(0, &mut bytes) }.is_err(), "site {site}");
        // SAFETY: as above.
        unsafe { private.read(0, &mut bytes) }.unwrap();
    }
}

/// Submits work that fails with this code in the last of its three encoders; returns the error of the submission.
fn failed(fixture: &Fixture, code: MTLCommandBufferError) -> Error {
    let (queue, other) = (fixture.device.queue().unwrap(), fixture.device.queue().unwrap());
    let event = fixture.device.event().unwrap();
    let wait = vec![Command::Wait { event: event.clone(), value: 1 }, fixture.add(1000)];
    let waits = submit(&*other, wait).1;
    inject(EXECUTION, 1, code, 2);
    let signal = Command::Signal { event, value: 1 };
    let commands = vec![fixture.add(1), fixture.copy(), fixture.labeled(100, "guilty"), signal];
    let error = run(&*queue, commands).unwrap_err();
    let is_poisoned = |result: Result<Timing>| matches!(result, Err(Error::Poisoned(_)));
    // On a lost device, everything may end with that error.
    let waited = waits.recv().unwrap();
    assert!(matches!(waited, Err(Error::Poisoned(_) | Error::DeviceLost(_))), "{code:?}: {waited:?}");
    assert!(is_poisoned(run(&*queue, vec![fixture.add(1000)])), "{code:?}");
    assert!(queue.acknowledge().is_some());
    error
}

#[test]
fn every_error_of_a_command_buffer_has_its_kind_and_names_the_launch() {
    let _alone = alone();
    let fixture = Fixture::new();
    let launch = "kernel `add_k`, launch `guilty` (7)";
    for code in [
        MTLCommandBufferError::Internal,
        MTLCommandBufferError::PageFault,
        MTLCommandBufferError::StackOverflow,
        MTLCommandBufferError(99),
    ] {
        let error = failed(&fixture, code);
        assert!(matches!(&error, Error::Fault(fault) if fault.kernel == "add_k"), "{code:?}: {error}");
        assert!(error.to_string().starts_with(launch), "{code:?}: {error}");
    }
    let error = failed(&fixture, MTLCommandBufferError::Timeout);
    assert!(matches!(&error, Error::Timeout(text) if text.starts_with(launch)), "{error}");
    let error = failed(&fixture, MTLCommandBufferError::InvalidResource);
    assert!(matches!(&error, Error::InvalidArgument(text) if text.starts_with(launch)), "{error}");
    let error = failed(&fixture, MTLCommandBufferError::OutOfMemory);
    assert!(matches!(error, Error::OutOfMemory { requested: 800, .. }), "{error}");
    let error = failed(&fixture, MTLCommandBufferError::Memoryless);
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
    // The command buffers ran up to the failing encoder, and nothing behind it.
    let words = words(&fixture.x);
    assert!(words.iter().enumerate().all(|(i, word)| i == 2 || *word == 8), "{words:?}");
    for code in [MTLCommandBufferError::AccessRevoked, MTLCommandBufferError::NotPermitted] {
        let fixture = Fixture::new();
        assert!(matches!(failed(&fixture, code), Error::DeviceLost(_)), "{code:?}");
        let refused = fixture.device.allocate(4, Storage::Shared, Init::Zeroed).err();
        assert!(matches!(refused, Some(Error::DeviceLost(_))), "{code:?}: {refused:?}");
        assert!(matches!(fixture.device.queue().err(), Some(Error::DeviceLost(_))), "{code:?}");
    }
}

#[test]
fn nothing_stays_when_all_is_dropped() {
    let _alone = alone();
    let use_all = || {
        let fixture = Fixture::new();
        let (queue, private) =
            (fixture.device.queue().unwrap(), memory(&*fixture.device, 1000, Storage::Private));
        support::write(&private, 3, &[1; 500]);
        for round in 0..10 {
            let copy = Command::Copy {
                source: support::slice(&private, 1, 99),
                target: support::slice(&private, 40, 99),
            };
            let fill = Command::Fill { target: whole(&private), pattern: vec![1, 2, 3, round] };
            run(&*queue, vec![fixture.add(1), copy, fill, fixture.labeled(1, "one"), fixture.add(2)])
                .unwrap();
        }
        let event = fixture.device.event().unwrap();
        let signal = |value| Command::Signal { event: event.clone(), value };
        run(&*queue, vec![fixture.add(1), signal(1), fixture.add(1), signal(2), fixture.add(1)]).unwrap();
        fail(EXECUTION);
        run(&*queue, vec![fixture.add(1), signal(3), fixture.add(1)]).unwrap_err();
        fail(ENCODER);
        drop(queue.acknowledge());
        run(&*queue, vec![fixture.add(1)]).unwrap_err();
        let never = fixture.device.event().unwrap();
        let (aside, _ended) =
            submit(&*fixture.device.queue().unwrap(), vec![Command::Wait { event: never.clone(), value: 1 }]);
        let _ = aside;
        never.fail(&Error::Cancelled);
    };
    use_all();
    use_all();
    assert_eq!(live(), [0; 7], "buffers, command buffers, encoders, queues, pipelines, events, blocks");
    assert_eq!(without_pool(), 0);
}

/// A submission that ends on the device's dispatch queue is reported from there, before the dispatch queue releases the command queue.
/// Until then the stand-in counts it as work.
#[test]
fn queues_are_gone_when_the_stand_in_has_settled() {
    let _alone = alone();
    let device = devices().remove(0);
    for round in 0..100 {
        let (queue, event) = (device.queue().unwrap(), device.event().unwrap());
        let ((told, ended), (go_on, may_go_on)) = (channel(), channel());
        let wait = Command::Wait { event: event.clone(), value: 1 };
        let done = move |result| {
            told.send(result).unwrap();
            may_go_on.recv().unwrap();
        };
        queue.submit(Arc::new([wait]), Done::new(done)).unwrap();
        event.signal(1, 0);
        ended.recv().unwrap().unwrap();
        drop(queue);
        go_on.send(()).unwrap();
        assert_eq!(live()[3], 1, "round {round}: the device's own queue is left");
    }
}

/// A removed device stays removed for the whole process, so each case runs in a child process.
#[test]
fn a_device_that_is_removed_is_lost() {
    for test in
        ["removed_in_flight", "removed_while_encoding", "removed_at_an_allocation", "removed_in_a_transfer"]
    {
        let mut process = std::process::Command::new(std::env::current_exe().unwrap());
        let out = process.args(["--exact", "--ignored", test]).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && text.contains("1 passed"), "{text}{errors}");
    }
}

fn remove(site: u32, nth: u64, encoder: isize) {
    inject(site, nth, MTLCommandBufferError::DeviceRemoved, encoder);
}

fn is_lost<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::DeviceLost(_)))
}

/// Checks that all calls on the device return `DeviceLost`, that nothing hangs and that no object is leaked.
fn expect_lost(fixture: Fixture, queue: Arc<dyn elinvar_driver::Queue>) {
    let Fixture { device, x, .. } = &fixture;
    assert!(is_lost(&device.allocate(4, Storage::Private, Init::Zeroed)));
    assert!(is_lost(&device.queue()) && is_lost(&device.compile(&Source::msl(Fixture::SOURCE))));
    drop(queue.acknowledge());
    for _ in 0..3 {
        assert!(is_lost(&run(&*queue, vec![fixture.add(1)])));
        assert!(matches!(run(&*queue, vec![fixture.add(1)]), Err(Error::Poisoned(_))));
        assert!(matches!(queue.acknowledge(), Some(Error::DeviceLost(_))));
    }
    // The host can still read shared memory.
    assert_eq!(words(x).len(), 100);
    drop((fixture, queue));
    assert_eq!(live(), [0; 7], "buffers, command buffers, encoders, queues, pipelines, events, blocks");
}

#[test]
#[ignore = "takes the process's device away"]
fn removed_in_flight() {
    let fixture = Fixture::new();
    let mut queues: Vec<_> = (0..4).map(|_| fixture.device.queue().unwrap()).collect();
    let event = fixture.device.event().unwrap();
    let wait = Command::Wait { event: event.clone(), value: 1 };
    let waits = submit(&*queues[0], vec![wait, fixture.add(1)]).1;
    // The tenth command buffer that starts fails in its second encoder.
    remove(EXECUTION, 10, 1);
    let work = || vec![fixture.add(1), fixture.copy(), fixture.add(1)];
    let all: Vec<_> = (0..40).map(|at| submit(&*queues[1 + at % 3], work()).1).collect();
    let raises = submit(&*queues[1], vec![fixture.add(1), Command::Signal { event, value: 1 }]).1;
    let mut lost = 0;
    for ended in all.into_iter().chain([waits, raises]) {
        match ended.recv().unwrap() {
            Ok(_) => {}
            Err(Error::DeviceLost(_)) => lost += 1,
            Err(Error::Poisoned(cause)) => assert!(matches!(*cause, Error::DeviceLost(_)), "{cause}"),
            Err(other) => panic!("{other}"),
        }
    }
    assert!(lost > 0);
    let queue = queues.swap_remove(2);
    drop(queues);
    expect_lost(fixture, queue);
}

#[test]
#[ignore = "takes the process's device away"]
fn removed_while_encoding() {
    let fixture = Fixture::new();
    let (queue, other) = (fixture.device.queue().unwrap(), fixture.device.queue().unwrap());
    remove(ENCODER, 2, -1);
    let ended = run(&*queue, vec![fixture.add(1), fixture.copy(), fixture.add(1)]);
    assert!(is_lost(&ended), "{ended:?}");
    assert!(is_lost(&run(&*other, vec![fixture.add(1)])));
    drop(other);
    assert!(words(&fixture.x).iter().all(|word| *word == 0));
    expect_lost(fixture, queue);
}

#[test]
#[ignore = "takes the process's device away"]
fn removed_at_an_allocation() {
    let fixture = Fixture::new();
    let queue = fixture.device.queue().unwrap();
    run(&*queue, vec![fixture.add(1)]).unwrap();
    remove(ALLOCATION, 1, -1);
    let refused = fixture.device.allocate(100, Storage::Shared, Init::Zeroed).err();
    assert!(matches!(refused, Some(Error::DeviceLost(_))), "{refused:?}");
    expect_lost(fixture, queue);
}

#[test]
#[ignore = "takes the process's device away"]
fn removed_in_a_transfer() {
    let fixture = Fixture::new();
    let queue = fixture.device.queue().unwrap();
    let private = memory(&*fixture.device, 64, Storage::Private);
    remove(EXECUTION, 1, 0);
    for _ in 0..2 {
        // SAFETY: in range, and no other code uses it.
        assert!(is_lost(&unsafe { private.read(0, &mut [0; 64]) }));
    }
    drop(private);
    expect_lost(fixture, queue);
}
