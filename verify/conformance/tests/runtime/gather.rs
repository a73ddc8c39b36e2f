//! Coalescing of small submissions under `PowerPreference::LowPower`.

use crate::support;

use std::thread;
use std::time::Duration;

use elinvar::{Coalescing, Device, Error, Grid, PowerPreference, StopsAt, WhenFull};
use elinvar_conformance::sim::{Op, Sim};
use support::recovery::outside;
use support::{Bench, assert_poisoned, block_on, fault, launch};

const NEVER: Duration = Duration::from_secs(1_000_000);

/// A device that coalesces up to 64 commands, without a time limit.
fn efficient() -> Bench {
    let bench = Bench::new();
    bench.device.set_power_preference(PowerPreference::LowPower).unwrap();
    bench.device.set_coalescing(Coalescing { time: NEVER, ..Coalescing::default() });
    bench
}

#[test]
fn a_thousand_launches_are_few_submissions() {
    for (goal, submissions) in [(PowerPreference::HighPerformance, 1000), (PowerPreference::LowPower, 16)] {
        let bench = efficient();
        bench.device.set_power_preference(goal).unwrap();
        let increment = bench.increment();
        let mut counts: Vec<_> = (0..10).map(|_| bench.device.buffer::<u32>(1).unwrap()).collect();
        let done: Vec<_> =
            (0..1000).map(|i| bench.launch(&increment, (&mut counts[i % 10],)).unwrap()).collect();
        assert_eq!(
            bench.sim.submissions(),
            if goal == PowerPreference::HighPerformance { 1000 } else { 1000 / 64 }
        );
        for count in &counts {
            assert_eq!(count.to_vec().unwrap(), [100]);
        }
        assert!(done.iter().all(|done| done.wait().is_ok()));
        assert_eq!(bench.sim.submissions(), submissions, "{goal:?}: reading has sent the rest");
    }
}

#[test]
fn who_waits_is_not_kept_waiting() {
    let bench = efficient();
    let mut data = bench.device.buffer::<u32>(1).unwrap();
    let mut expect = 0u32;
    let mut next = || {
        expect += 1;
        let before = bench.sim.submissions();
        let done = bench.stream.fill(&mut data, expect).unwrap();
        assert!(!done.is_done() && bench.sim.submissions() == before, "{expect} is kept");
        done
    };
    next().wait().unwrap();
    assert!(next().wait_timeout(NEVER).unwrap().is_some());
    block_on(next()).unwrap();
    next();
    bench.stream.flush();
    while bench.stream.in_flight() > 0 {
        thread::yield_now();
    }
    drop(next());
    bench.stream.synchronize().unwrap();
    let done = next();
    bench.device.set_power_preference(PowerPreference::HighPerformance).unwrap();
    while !done.is_done() {
        thread::yield_now();
    }
    assert_eq!((data.to_vec().unwrap(), bench.sim.submissions()), (vec![6], 7), "and an empty one");
}

#[test]
fn what_is_gathered_goes_when_its_time_has_passed_and_with_its_stream() {
    let bench = efficient();
    let (mut a, mut b) = (bench.device.buffer::<u32>(1).unwrap(), bench.device.buffer::<u32>(1).unwrap());
    let stream = bench.device.stream().unwrap();
    let filled = |of: &Device, value| {
        while of.pool().stats().live_buffers > value {
            thread::yield_now();
        }
    };
    stream.fill(&mut a, 1).unwrap();
    drop((a, stream));
    bench.device.set_coalescing(Coalescing { time: Duration::from_millis(1), commands: 1_000_000 });
    bench.stream.fill(&mut b, 1).unwrap();
    drop(b);
    while bench.sim.submissions() < 2 {
        thread::yield_now();
    }
    bench.sim.forget_commands();
    while bench.sim.open_queues() > 1 {
        thread::yield_now();
    }
    bench.sim.forget_commands();
    filled(&bench.device, 0);
}

#[test]
fn what_waits_signals_or_has_a_deadline_goes_alone_and_in_order() {
    let bench = efficient();
    let other = bench.device.stream().unwrap();
    let event = bench.device.event().unwrap();
    let mut data = bench.device.buffer::<u32>(1).unwrap();
    let mut copy = bench.device.buffer::<u32>(1).unwrap();
    bench.stream.fill(&mut data, 7).unwrap();
    bench.stream.signal(&event, 1).unwrap();
    assert_eq!(bench.sim.submissions(), 2, "the fill has gone before the signal");
    other.wait_for(&event, 1).unwrap();
    other.copy(&data, &mut copy).unwrap();
    assert_eq!(copy.to_vec().unwrap(), [7]);
    bench.stream.fill(&mut data, 8).unwrap();
    let mut command_buffer = bench.stream.command_buffer();
    command_buffer.copy(&data, &mut copy).unwrap();
    command_buffer.deadline(NEVER).unwrap();
    command_buffer.submit().unwrap();
    assert_eq!(bench.sim.submissions(), 6);
    assert_eq!(copy.to_vec().unwrap(), [8]);
    let limited = bench.device.stream().unwrap().limited(1, WhenFull::Block);
    (0..3).for_each(|value| drop(limited.fill(&mut data, value).unwrap()));
    assert_eq!((data.to_vec().unwrap(), bench.sim.submissions()), (vec![2], 9), "there is room for one");
}

#[test]
fn what_goes_together_ends_together() {
    let bench = efficient();
    let (mut data, mut other) =
        (bench.device.buffer::<u32>(1).unwrap(), bench.device.buffer::<u32>(1).unwrap());
    let before = bench.stream.fill(&mut data, 1).unwrap();
    let fails = bench.launch(&bench.fail(), (&mut other,)).unwrap();
    let taken = bench.stream.fill(&mut other, 1).unwrap();
    assert!(taken.cancel() && !taken.cancel());
    assert!(matches!(fails.wait(), Err(Error::Fault(_))) && matches!(before.wait(), Err(Error::Fault(_))));
    assert!(matches!(taken.wait(), Err(Error::Cancelled)));
    assert_poisoned(data.to_vec());
    assert_poisoned(bench.stream.fill(&mut data, 1).unwrap().wait());
    assert_eq!(bench.stream.acknowledge().map(|error| error.to_string()), Some(fault().to_string()));
    // The driver rejects the whole submission.
    bench.sim.fail_next(Op::Submit, outside());
    let done = bench.stream.fill(&mut data, 2).unwrap();
    assert!(matches!(done.wait(), Err(Error::Environment(_))));
    bench.stream.fill(&mut data, 3).unwrap();
    assert_eq!(data.to_vec().unwrap(), [3]);
}

/// Coalesced work that was reported as failed does not run after a reset, and a reset ends coalesced work.
#[test]
fn a_loss_and_a_reset_reach_what_is_gathered() {
    let bench = Bench::on(Sim::with_caps(|caps| caps.features.stops_at = StopsAt::Never));
    bench.device.set_power_preference(PowerPreference::LowPower).unwrap();
    bench.device.set_coalescing(Coalescing { time: NEVER, ..Coalescing::default() });
    let mut data = bench.device.buffer_with_data(&[5_u32]).unwrap();
    let kept = bench.stream.fill(&mut data, 1).unwrap();
    bench.sim.hold();
    let late = bench.device.stream().unwrap();
    let mut command_buffer = late.command_buffer();
    command_buffer.deadline(Duration::ZERO).unwrap();
    assert!(matches!(command_buffer.submit().unwrap().wait(), Err(Error::Timeout(_))));
    // A wait submits coalesced work: the loss, which follows the timeout, comes first.
    while !kept.is_done() {
        thread::yield_now();
    }
    assert!(matches!(kept.wait(), Err(Error::DeviceLost(_))));
    bench.device.reset().unwrap();
    bench.sim.release();
    bench.sim.forget_commands();
    data.write(&[6]).unwrap();
    bench.stream.flush();
    bench.stream.synchronize().unwrap();
    assert_eq!((data.to_vec().unwrap(), bench.sim.commands().len()), (vec![6], 0));
    // A reset ends coalesced work like work in flight.
    bench.sim.hold();
    let increment = bench.increment();
    let kept = launch(&increment, &bench.stream, Grid::threads(1), (&mut data,)).unwrap();
    bench.device.reset().unwrap();
    assert!(matches!(kept.wait(), Err(Error::DeviceLost(_))));
    bench.sim.release();
}
