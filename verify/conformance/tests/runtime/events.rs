//! Events, groups and priorities on the simulated device, which is held, fails and is released on demand.

use crate::support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use elinvar::{Buffer, Device, Error, Event, EventStats, Priority, Stream};
use elinvar_conformance::sim::{Op, Sim};
use support::{Bench, assert_poisoned, block_on, invalid};

fn two(device: &Device) -> (Stream, Stream) {
    (device.stream().unwrap(), device.stream().unwrap())
}

fn data(bench: &Bench) -> Buffer<u32> {
    bench.device.buffer(1).unwrap()
}

#[test]
fn the_host_waits_and_signals() {
    let Bench { device, .. } = Bench::new();
    let event = device.event().unwrap();
    assert_eq!((event.value(), event.time_ns()), (0, None));
    assert!(!event.wait_timeout(1, Duration::ZERO).unwrap());
    let waits = [event.reached(1), event.reached(2)];
    let waiter = thread::spawn({
        let event = event.clone();
        move || event.wait(2)
    });
    event.signal(1);
    assert!(waits[0].is_done() && !waits[1].is_done());
    let first = event.time_ns();
    event.signal(5);
    waiter.join().unwrap().unwrap();
    assert!(block_on(waits[1].clone()).unwrap().end_ns >= first.unwrap());
    event.signal(3);
    assert_eq!((event.value(), event.wait(5).is_ok()), (5, true), "it never goes back");
}

#[test]
fn a_stream_waits_for_another() {
    let bench = Bench::new();
    let (first, second) = two(&bench.device);
    let event = bench.device.event().unwrap();
    let (mut source, mut target) = (data(&bench), data(&bench));
    second.wait_for(&event, 1).unwrap();
    let copied = second.copy(&source, &mut target).unwrap();
    first.fill(&mut source, 9).unwrap();
    first.synchronize().unwrap();
    assert!(!copied.is_done());
    first.signal(&event, 1).unwrap();
    copied.wait().unwrap();
    assert_eq!(target.to_vec().unwrap(), [9]);
}

#[test]
fn failure_reaches_who_waits_with_the_first_cause() {
    let bench = Bench::new();
    let (second, third) = two(&bench.device);
    let (event, next) = (bench.device.event().unwrap(), bench.device.event().unwrap());
    let mut buffer = data(&bench);
    second.wait_for(&event, 1).unwrap();
    let written = second.fill(&mut buffer, 3).unwrap();
    second.signal(&next, 1).unwrap();
    third.wait_for(&next, 1).unwrap();
    let last = third.command_buffer().submit().unwrap();
    let fail = bench.fail();
    bench.launch(&fail, (&mut data(&bench),)).unwrap();
    bench.stream.signal(&event, 1).unwrap();
    assert_poisoned(event.wait(1));
    assert_poisoned(written.wait());
    assert_poisoned(last.wait());
    assert_poisoned(buffer.to_vec());
    assert!(second.acknowledge().is_some() && third.acknowledge().is_some());
    second.synchronize().unwrap();
    assert_poisoned(event.wait(1));
}

#[test]
fn cancelled_and_unsubmitted_work_fails_its_events() {
    let bench = Bench::new();
    let event = bench.device.event().unwrap();
    bench.sim.hold();
    let signal = bench.stream.signal(&event, 1).unwrap();
    assert!(signal.cancel());
    assert!(matches!(event.wait(1), Err(Error::Poisoned(cause)) if matches!(*cause, Error::Cancelled)));
    bench.sim.release();

    let (event, mut buffer) = (bench.device.event().unwrap(), data(&bench));
    let (fail, look) = (bench.fail(), bench.look());
    bench.launch(&fail, (&mut buffer,)).unwrap().wait().unwrap_err();
    let other = bench.device.stream().unwrap();
    let mut command_buffer = other.command_buffer();
    // SAFETY: the kernel only reads its argument.
    #[allow(unsafe_code)]
    unsafe {
        command_buffer.launch(&look, elinvar::Grid::threads(1), (&buffer,)).unwrap();
    }
    command_buffer.signal(&event, 1);
    assert_poisoned(command_buffer.submit().unwrap().wait());
    assert_poisoned(event.wait(1));
}

#[test]
fn a_submission_that_is_refused_leaves_its_events_alone() {
    let bench = Bench::new();
    let event = bench.device.event().unwrap();
    bench.sim.fail_next(Op::Submit, Error::OutOfMemory { requested: 1, available: 0 });
    assert!(matches!(bench.stream.signal(&event, 1), Err(Error::OutOfMemory { .. })));
    assert_eq!(bench.stream.in_flight(), 0);
    bench.stream.signal(&event, 1).unwrap();
    event.wait(1).unwrap();
}

#[test]
fn nobody_waits_for_an_event_that_is_gone() {
    let bench = Bench::new();
    let event = bench.device.event().unwrap();
    let (on_host, on_device) = (event.reached(1), bench.stream.wait_for(&event, 1).unwrap());
    drop(event);
    for result in [on_host.wait(), on_device.wait()] {
        let text = result.unwrap_err().to_string();
        assert!(text.ends_with("was dropped, and nothing is left that could signal it"), "{text}");
    }
    bench.stream.acknowledge();
    // A signal in flight counts as a possible signaler.
    let event = bench.device.event().unwrap();
    bench.sim.hold();
    let (first, second) = two(&bench.device);
    first.signal(&event, 1).unwrap();
    let reached = event.reached(1);
    let waited = second.wait_for(&event, 1).unwrap();
    drop(event);
    bench.sim.release();
    reached.wait().unwrap();
    waited.wait().unwrap();
}

#[test]
fn a_circle_is_refused_and_nothing_of_it_runs() {
    let bench = Bench::new();
    let (first, second) = two(&bench.device);
    let (a, b) = (bench.device.event().unwrap(), bench.device.event().unwrap());
    first.wait_for(&a, 1).unwrap();
    first.signal(&b, 1).unwrap();
    let before = bench.sim.commands().len();
    let mut command_buffer = second.command_buffer();
    command_buffer.wait_for(&b, 1);
    command_buffer.signal(&a, 1);
    let text = invalid(command_buffer.submit());
    assert!(text.starts_with("streams would deadlock: stream "), "{text}");
    assert_eq!((bench.sim.commands().len(), second.in_flight()), (before, 0));
    assert_eq!(
        invalid({
            let mut own = second.command_buffer();
            let event = bench.device.event().unwrap();
            own.wait_for(&event, 1);
            own.signal(&event, 1);
            own.submit()
        })
        .matches("waits for event")
        .count(),
        1
    );
    // In the right order there is no deadlock.
    second.signal(&a, 1).unwrap();
    second.wait_for(&b, 1).unwrap();
    second.synchronize().unwrap();
}

#[test]
fn events_are_used_again() {
    let bench = Bench::new();
    for round in 1..=20 {
        let events: Vec<Event> = (0..3).map(|_| bench.device.event().unwrap()).collect();
        for event in &events {
            assert_eq!((event.value(), event.time_ns()), (0, None));
            bench.stream.signal(event, round).unwrap();
            event.wait(round).unwrap();
        }
        bench.stream.synchronize().unwrap();
        bench.sim.forget_commands();
    }
    let stats = bench.device.event_stats();
    assert_eq!((stats.live, stats.peak, stats.idle, stats.created, stats.reused), (0, 3, 3, 3, 57));
    let failed = bench.device.event().unwrap();
    failed.fail(&Error::Cancelled);
    drop(failed);
    let EventStats { idle, live, .. } = bench.device.event_stats();
    assert_eq!((idle, live), (2, 0), "a failed one is not");
}

#[test]
fn a_group_opens_streams_as_work_comes_and_balances_it() {
    let bench = Bench::new();
    let group = bench.device.stream_group();
    assert_eq!((group.most(), group.open()), (4, 0), "as many as the device says");
    let idle = group.next().unwrap();
    idle.synchronize().unwrap();
    assert_eq!(format!("{:?}", group.next().unwrap()), format!("{idle:?}"), "it has nothing to do");
    bench.sim.hold();
    let mut loads = Vec::new();
    for _ in 0..10 {
        let stream = group.next().unwrap();
        stream.command_buffer().submit().unwrap();
        loads.push(stream.in_flight());
    }
    assert_eq!((group.open(), loads), (4, vec![1, 1, 1, 1, 2, 2, 2, 2, 3, 3]));
    bench.sim.release();
    group.synchronize().unwrap();
    let failing = group.next().unwrap();
    bench.sim.fail_next(Op::Execute, support::fault());
    let mut commands = failing.command_buffer();
    commands.fill(&mut bench.device.buffer::<u32>(1).unwrap(), 1).unwrap();
    commands.submit().unwrap().wait().unwrap_err();
    assert_poisoned(group.synchronize());
}

#[test]
fn priorities_reach_the_driver() {
    let bench = Bench::new();
    bench.device.stream_with(Priority::High).unwrap();
    bench.device.stream_group_with(2, Priority::Low).next().unwrap();
    assert_eq!(bench.sim.queues(), [Priority::Normal, Priority::High, Priority::Low]);
    let without =
        Bench::on(elinvar_conformance::sim::Sim::with_caps(|caps| caps.features.priorities = false));
    for priority in [Priority::Low, Priority::High] {
        assert!(matches!(without.device.stream_with(priority), Err(Error::Unsupported(_))));
        assert!(matches!(without.device.stream_group_with(2, priority).next(), Err(Error::Unsupported(_))));
    }
    without.device.stream_with(Priority::Normal).unwrap();
}

#[test]
fn a_profile_is_of_the_devices_clock() {
    let bench = Bench::new();
    // The simulated clock advances by one with each reading, by a submission or by the queue, and by what a launch takes.
    const TIMES: [u64; 10] = [5, 1, 9, 3, 7, 2, 10, 4, 8, 6];
    const READINGS: u64 = 100;
    let took = AtomicUsize::new(0);
    let signature = support::signature("slow", vec![]);
    let slow = bench.declare(signature, move |launch| {
        launch.take_ns(1_000_000 * TIMES[took.fetch_add(1, Ordering::Relaxed)]);
        Ok(())
    });
    let profile = bench
        .stream
        .profile(10, |command_buffer| {
            // SAFETY: the kernel has no arguments.
            #[allow(unsafe_code)]
            unsafe {
                command_buffer.launch(&slow, elinvar::Grid::threads(1), ())
            }
        })
        .unwrap();
    let is_close = |measured: u64, ms: u64| (ms * 1_000_000..ms * 1_000_000 + READINGS).contains(&measured);
    assert_eq!(profile.iterations(), 10);
    assert!(is_close(profile.min_ns(), 1) && is_close(profile.max_ns(), 10), "{profile:?}");
    assert!((profile.mean_ns() - 5.5e6).abs() < READINGS as f64, "{profile:?}");
    assert!(is_close(profile.percentile_ns(50.0), 5) && is_close(profile.percentile_ns(99.0), 10));
    // Ten in 55 ms.
    assert!((profile.throughput() / (1e10 / 55e6) - 1.0).abs() < 1e-4, "{profile:?}");
    assert_eq!(invalid(bench.stream.profile(0, |_| Ok(()))), "profile: no iterations");
}

/// Threads, each with its own stream, take turns at a counter, with failures in between.
#[test]
fn threads_take_turns() {
    const THREADS: u64 = 8;
    const TURNS: u64 = 25;
    let bench = Bench::new();
    let increment = bench.increment();
    let event = bench.device.event().unwrap();
    let counter = data(&bench);
    thread::scope(|scope| {
        for t in 0..THREADS {
            let (device, increment, event) = (&bench.device, &increment, &event);
            let mut counter = counter.clone();
            scope.spawn(move || {
                let stream = device.stream().unwrap();
                for turn in 0..TURNS {
                    let mine = turn * THREADS + t;
                    stream.wait_for(event, mine).unwrap();
                    support::launch(increment, &stream, elinvar::Grid::threads(1), (&mut counter,)).unwrap();
                    stream.signal(event, mine + 1).unwrap();
                }
            });
        }
    });
    event.wait(THREADS * TURNS).unwrap();
    assert_eq!(counter.to_vec().unwrap(), [(THREADS * TURNS) as u32]);
}

#[test]
fn events_order_streams_of_two_devices() {
    let (ours, theirs) = (Bench::new(), Bench::on(Sim::named("other")));
    let event = ours.device.event().unwrap();
    let mut buffer = data(&theirs);
    theirs.stream.wait_for(&event, 1).unwrap();
    let filled = theirs.stream.fill(&mut buffer, 4).unwrap();
    assert!(!filled.is_done());
    ours.stream.signal(&event, 1).unwrap();
    filled.wait().unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [4]);
}

#[test]
fn timestamps_are_used_again_and_tell_nothing_of_work_that_never_ran() {
    let bench = Bench::new();
    let stream = bench.device.stream().unwrap();
    bench.sim.hold();
    let first = stream.timestamp().unwrap();
    let mut command_buffer = stream.command_buffer();
    let cancelled = command_buffer.timestamp().unwrap();
    let done = command_buffer.submit().unwrap();
    assert_eq!((first.ns(), cancelled.ns(), cancelled.since(&first)), (None, None, None));
    assert!(done.cancel());
    bench.sim.release();
    stream.synchronize().unwrap();
    assert!(first.ns().is_some() && cancelled.ns().is_none());
    let stats = bench.device.timestamp_stats();
    assert_eq!((stats.live, stats.created, stats.utilization()), (2, 2, 1.0));
    let time = first.ns();
    bench.sim.forget_commands();
    drop((first, cancelled));
    let again = [stream.timestamp().unwrap(), stream.timestamp().unwrap()];
    stream.synchronize().unwrap();
    assert!(again.iter().all(|t| t.ns() > time), "{again:?} behind {time:?}");
    let stats = bench.device.timestamp_stats();
    assert_eq!((stats.live, stats.idle, stats.created, stats.reused), (2, 0, 2, 2));
    assert_eq!(bench.device.event_stats(), EventStats::default(), "apart from events");
}
