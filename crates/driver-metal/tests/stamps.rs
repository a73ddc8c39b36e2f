//! Timestamps within a command buffer: one command buffer for all of them, conversion of GPU time to host time, failed samples.
#![cfg(elinvar_apple)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use elinvar_driver::{Command, Event, TimestampSlot};
use objc2_metal::MTLCommandBufferError;
use support::standin::{EXECUTION, Fixture, Held, SAMPLE, alone, committed, has_counters, inject_on};
use support::{run, submit, words};

/// Timeout of all waits, far longer than any of them takes.
const LONG: Duration = Duration::from_secs(60);
/// Tolerance of a comparison of times: two ticks of a 27 MHz clock, as both times may be rounded down by one.
const TICK_NS: u64 = 80;

fn stamps<const N: usize>() -> [Arc<TimestampSlot>; N] {
    std::array::from_fn(|_| Arc::default())
}

fn stamp(into: &Arc<TimestampSlot>) -> Command {
    Command::Timestamp { into: into.clone() }
}

/// Waits until the event reaches the value.
fn come_to(event: &Arc<dyn Event>, value: u64) {
    let (sender, receiver) = std::sync::mpsc::channel();
    event.when(value, Box::new(move |result| drop(sender.send(result))));
    receiver.recv_timeout(LONG).expect("it comes there").unwrap();
}

/// Runs kernels and both kinds of copies with timestamps between them, and checks that all but `missing` have a time; returns the number of
/// command buffers used.
fn buffers(number: usize, fixture: &Fixture, missing: Option<usize>) -> u64 {
    let queue = fixture.device.queue().unwrap();
    let times = stamps::<6>();
    times.iter().for_each(|time| time.set(1));
    let (before, begin) = (fixture.device.clock_ns(), committed(number));
    let odd =
        Command::Copy { source: support::slice(&fixture.x, 0, 3), target: support::slice(&fixture.x, 4, 3) };
    let commands = vec![
        stamp(&times[0]),
        fixture.add(1),
        fixture.add(1),
        stamp(&times[1]),
        stamp(&times[2]),
        fixture.copy(),
        stamp(&times[3]),
        odd,
        stamp(&times[4]),
        fixture.add(2),
        stamp(&times[5]),
    ];
    let timing = run(&*queue, commands).unwrap();
    let took = committed(number) - begin;
    let mut known = vec![Some(before), Some(timing.start_ns)];
    known.extend(times.iter().enumerate().filter(|(i, _)| Some(*i) != missing).map(|(_, time)| time.ns()));
    known.extend([Some(timing.end_ns), Some(fixture.device.clock_ns())]);
    assert!(known.iter().all(Option::is_some) && known.is_sorted(), "{known:?}");
    assert!(missing.is_none_or(|missing| times[missing].ns().is_none()), "a time is invented: {times:?}");
    took
}

#[test]
fn kernels_with_timestamps_between_them_are_one_command_buffer() {
    let _alone = alone();
    for (number, fixture) in Fixture::all() {
        assert_eq!(buffers(number, &fixture, None), if has_counters(number) { 1 } else { 4 });
        assert!(words(&fixture.x).iter().all(|word| *word == 4));
    }
}

#[test]
fn times_of_the_gpus_clock_are_the_hosts() {
    let _alone = alone();
    for (number, fixture) in Fixture::all().filter(|(number, _)| has_counters(*number)) {
        let queue = fixture.device.queue().unwrap();
        let (event, [first, second]) = (fixture.device.event().unwrap(), stamps());
        let signal = |value| Command::Signal { event: event.clone(), value };
        let commands = vec![
            fixture.add(1),
            signal(1),
            stamp(&first),
            fixture.add(2),
            signal(2),
            stamp(&second),
            fixture.add(4),
        ];
        // Encoders: kernel, timestamp, kernel, timestamp, kernel. The command buffer is held before each timestamp.
        let mut held = Held::before(number, 1);
        let ended = submit(&*queue, commands).1;
        come_to(&event, 1);
        let mut bounds = vec![fixture.device.clock_ns()];
        held.go_on_to(3);
        come_to(&event, 2);
        bounds.push(fixture.device.clock_ns());
        drop(held);
        ended.recv_timeout(LONG).expect("it ends").unwrap();
        bounds.push(fixture.device.clock_ns());
        let times = [&first, &second].map(|stamp| stamp.ns().unwrap());
        for (time, bounds) in times.iter().zip(bounds.windows(2)) {
            assert!(
                (bounds[0].saturating_sub(TICK_NS)..=bounds[1] + TICK_NS).contains(time),
                "device {number}: {times:?} of {bounds:?}"
            );
        }
        assert!(words(&fixture.x).iter().all(|word| *word == 7));
    }
}

#[test]
fn a_sample_that_fails_gives_no_time_and_counters_are_not_used_again() {
    let _alone = alone();
    for (number, fixture) in Fixture::all().filter(|(number, _)| has_counters(*number)) {
        inject_on(number, SAMPLE, 3, MTLCommandBufferError::Internal, -1);
        assert_eq!(buffers(number, &fixture, Some(3)), 1);
        assert_eq!(buffers(number, &fixture, None), 4, "each time ends its command buffer");
    }
}

#[test]
fn a_failure_keeps_the_times_before_it() {
    let _alone = alone();
    for (number, fixture) in Fixture::all() {
        let queue = fixture.device.queue().unwrap();
        let [first, second] = stamps();
        let (nth, encoder) = if has_counters(number) { (1, 2) } else { (2, 0) };
        inject_on(number, EXECUTION, nth, MTLCommandBufferError::Internal, encoder);
        let before = fixture.device.clock_ns();
        let commands = vec![fixture.add(1), stamp(&first), fixture.add(1), stamp(&second), fixture.add(1)];
        run(&*queue, commands).unwrap_err();
        let time = first.ns().expect("it came there");
        assert!((before..=fixture.device.clock_ns() + TICK_NS).contains(&(time + TICK_NS)));
        assert_eq!(second.ns(), None);
        assert!(queue.acknowledge().is_some());
        // Samples that are missing because of the failure do not disable the counters.
        assert_eq!(buffers(number, &fixture, None), if has_counters(number) { 1 } else { 4 });
    }
}

/// The timestamp that exceeds the maximum number of samples ends its command buffer.
#[test]
fn more_timestamps_than_samples() {
    let _alone = alone();
    for (number, fixture) in Fixture::all() {
        let queue = fixture.device.queue().unwrap();
        let times = stamps::<300>();
        let commands = times.iter().flat_map(|time| [fixture.add(1), stamp(time)]).collect();
        let before = committed(number);
        run(&*queue, commands).unwrap();
        assert_eq!(committed(number) - before, if has_counters(number) { 2 } else { 300 });
        let ns: Vec<_> = times.iter().map(|time| time.ns().unwrap()).collect();
        assert!(ns.is_sorted(), "{ns:?}");
        assert!(words(&fixture.x).iter().all(|word| *word == 300));
    }
}
