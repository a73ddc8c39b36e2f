//! Signals within a command buffer: one command buffer for all of them, events raised before its end, failures.
#![cfg(elinvar_apple)]

mod support;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use elinvar_driver::{Command, Error, Event, Result, Storage, Timeline};
use objc2_metal::MTLCommandBufferError;
use support::standin::{EXECUTION, Fixture, Held, OBJECT, alone, committed, inject_on};
use support::{memory, run, submit, words};

/// Timeout of all waits, far longer than any of them takes.
const LONG: Duration = Duration::from_secs(60);

fn signal(event: &Arc<dyn Event>, value: u64) -> Command {
    Command::Signal { event: event.clone(), value }
}

fn reached(event: &Arc<dyn Event>, value: u64) -> Receiver<Result<()>> {
    let (sender, receiver) = channel();
    event.when(value, Box::new(move |result| drop(sender.send(result))));
    receiver
}

/// Runs three kernels with signals between them; returns the number of command buffers used.
fn buffers(number: usize, fixture: &Fixture, event: &Arc<dyn Event>) -> u64 {
    let queue = fixture.device.queue().unwrap();
    let before = committed(number);
    let commands = vec![
        fixture.add(1),
        signal(event, 1),
        fixture.add(2),
        signal(event, 2),
        fixture.add(4),
        signal(event, 3),
    ];
    run(&*queue, commands).unwrap();
    assert_eq!(event.value(), 3);
    committed(number) - before
}

/// Whether the simulated system version has shared events.
fn has_events() -> bool {
    std::env::var("ELINVAR_APPLE_OS").map_or(true, |version| version != "10.13")
}

#[test]
fn kernels_with_signals_between_them_are_one_command_buffer() {
    let _alone = alone();
    for (number, fixture) in Fixture::all() {
        let expected = if has_events() { 1 } else { 3 };
        assert_eq!(buffers(number, &fixture, &fixture.device.event().unwrap()), expected);
        // An event of another driver is raised in the same way.
        let foreign: Arc<dyn Event> = Arc::new(Timeline::new());
        assert_eq!(buffers(number, &fixture, &foreign), expected);
        assert!(words(&fixture.x).iter().all(|word| *word == 14));
    }
}

#[test]
fn without_shared_events_a_signal_ends_its_command_buffer() {
    let _alone = alone();
    for (number, fixture) in Fixture::all() {
        inject_on(number, OBJECT, 1, MTLCommandBufferError::Internal, -1);
        assert_eq!(buffers(number, &fixture, &fixture.device.event().unwrap()), 3);
        assert!(words(&fixture.x).iter().all(|word| *word == 7));
    }
    let tests = std::env::current_exe().unwrap();
    let old = std::process::Command::new(tests)
        .args(["--exact", "kernels_with_signals_between_them_are_one_command_buffer"])
        .env("ELINVAR_APPLE_OS", "10.13")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&old.stdout);
    assert!(
        old.status.success() && said.contains("1 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&old.stderr)
    );
}

#[test]
fn who_waits_goes_on_before_the_command_buffer_has_ended() {
    let _alone = alone();
    for (number, fixture) in Fixture::all() {
        let (queue, other) = (fixture.device.queue().unwrap(), fixture.device.queue().unwrap());
        let (y, event) = (memory(&*fixture.device, 400, Storage::Shared), fixture.device.event().unwrap());
        let wait = Command::Wait { event: event.clone(), value: 1 };
        let (second, before) = (reached(&event, 2), fixture.device.clock_ns());
        // The last kernel is in a separate encoder, behind the signal.
        let held = Held::before(number, 1);
        let commands = vec![fixture.add(1), signal(&event, 1), fixture.add(2), signal(&event, 2)];
        let ended = submit(&*queue, commands).1;
        let waited = submit(&*other, vec![wait, fixture.add_to(&y, 5)]).1;
        waited.recv_timeout(LONG).expect("it goes on while the last kernel is held").unwrap();
        assert!(words(&y).iter().all(|word| *word == 5));
        assert!((before..=fixture.device.clock_ns()).contains(&event.time_ns().unwrap()));
        assert!(ended.try_recv().is_err() && second.try_recv().is_err() && event.value() == 1);
        drop(held);
        ended.recv_timeout(LONG).expect("it ends").unwrap();
        assert!(event.value() == 2 && second.try_recv().unwrap().is_ok(), "it is raised before `done`");
        assert!(words(&fixture.x).iter().all(|word| *word == 3));
    }
}

#[test]
fn after_a_failure_what_was_reached_stays_and_the_rest_fails() {
    let _alone = alone();
    for (number, fixture) in Fixture::all() {
        let queue = fixture.device.queue().unwrap();
        let events: Vec<_> = (0..3).map(|_| fixture.device.event().unwrap()).collect();
        let waiting: Vec<_> = events.iter().map(|event| reached(event, 1)).collect();
        // Fails in the second encoder, which is that of the second kernel.
        inject_on(number, EXECUTION, 1, MTLCommandBufferError::Internal, 1);
        let mut commands = Vec::new();
        for event in &events {
            commands.extend([fixture.add(1), signal(event, 1)]);
        }
        commands.push(fixture.add(1));
        let error = run(&*queue, commands).unwrap_err();
        assert!(matches!(&error, Error::Fault(fault) if fault.kernel == "add_k"), "{error}");
        assert!(words(&fixture.x).iter().all(|word| *word == 1));
        assert!(events[0].value() == 1 && events[0].failure().is_none());
        assert!(waiting[0].recv_timeout(LONG).unwrap().is_ok());
        for (event, waiting) in events.iter().zip(&waiting).skip(1) {
            assert!(event.value() == 0 && event.failure().is_some());
            assert!(matches!(waiting.recv_timeout(LONG).unwrap(), Err(Error::Poisoned(_))));
        }
        assert!(queue.acknowledge().is_some());
        // The queue's signals continue after the failed ones.
        let event = fixture.device.event().unwrap();
        let before = committed(number);
        run(&*queue, vec![fixture.add(1), signal(&event, 4), fixture.add(1)]).unwrap();
        assert_eq!((event.value(), committed(number) - before), (4, 1));
        assert!(words(&fixture.x).iter().all(|word| *word == 3));
    }
}

#[test]
fn values_only_grow() {
    let _alone = alone();
    for (number, fixture) in Fixture::all() {
        let queue = fixture.device.queue().unwrap();
        let (event, first) = (fixture.device.event().unwrap(), fixture.device.event().unwrap());
        let commands = vec![
            fixture.add(1),
            signal(&event, 2),
            signal(&first, 1),
            fixture.add(1),
            signal(&event, 3),
            fixture.add(1),
            signal(&event, 7),
            fixture.add(1),
        ];
        let held = Held::before(number, 1);
        let ended = submit(&*queue, commands).1;
        reached(&first, 1).recv_timeout(LONG).expect("it comes to its first signals").unwrap();
        assert_eq!(event.value(), 2, "signals are raised in order");
        event.signal(5, fixture.device.clock_ns());
        let time = event.time_ns();
        drop(held);
        let held = Held::before(number, 3);
        reached(&event, 7).recv_timeout(LONG).expect("it comes to its last signal").unwrap();
        assert!(event.time_ns() > time);
        assert_eq!(event.value(), 7);
        drop(held);
        ended.recv_timeout(LONG).expect("it ends").unwrap();
        assert_eq!(event.value(), 7);
    }
}
