//! Devices that are lost, reset, fail repeatedly or slow down, and work that is rerun on another device.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use elinvar::driver::{Access, Command, Scalar};
use elinvar::{
    Action, BreakerLimits, BreakerState, Component, Device, Error, Grid, HostAccess, RecoveryPolicy, Source,
    Status, StopsAt,
};
use elinvar_conformance::sim::{Op, Sim};
use support::recovery::{
    actions, decisions, double, failing, in_and_out, outside, policy, recovering, words,
};
use support::{Bench, launch, pointer, signature};

#[test]
fn a_device_lost_before_during_and_behind_the_work_is_reset() {
    let bench = Bench::new();
    let stream = recovering(&bench);
    let (a, mut b) = in_and_out(&bench.device);
    let (begun, begins) = channel();
    let double = {
        let begun = begun.clone();
        let double = double(&bench, &failing(0), outside());
        // `wait` runs until the device is lost or the test drops the receiver.
        let wait = bench.declare(signature("wait", vec![]), move |launch| {
            let _first = begun.send(());
            while launch.stopped().is_ok() && begun.send(()).is_ok() {
                thread::yield_now();
            }
            launch.stopped()
        });
        (double, wait)
    };
    bench.sim.lose("before it is submitted");
    launch(&double.0, &stream, Grid::threads(3), (&a, &mut b)).unwrap();
    assert_eq!((b.to_vec().unwrap(), bench.sim.resets()), (vec![2, 4, 6], 1));
    let running = launch(&double.1, &stream, Grid::threads(1), ()).unwrap();
    b.fill(0).unwrap();
    launch(&double.0, &stream, Grid::threads(3), (&a, &mut b)).unwrap();
    begins.recv().unwrap();
    bench.sim.lose("while it runs");
    drop(begins);
    running.wait().unwrap();
    assert_eq!((b.to_vec().unwrap(), bench.sim.resets()), (vec![2, 4, 6], 2));
    assert_eq!(actions(&bench.device), [Action::Reset, Action::Reset]);
}

#[test]
fn work_of_other_streams_survives_a_reset() {
    let bench = Bench::new();
    let resets = recovering(&bench);
    let none = RecoveryPolicy { resets: 0, ..policy(&bench.device) };
    let other = bench.device.stream_recovering(none).unwrap();
    let double = double(&bench, &failing(0), outside());
    let (a, mut b) = in_and_out(&bench.device);
    let mut c = bench.device.buffer::<u32>(3).unwrap();
    bench.sim.hold();
    let pending = launch(&double, &other, Grid::threads(3), (&a, &mut b)).unwrap();
    bench.sim.fail_next(Op::Submit, Error::DeviceLost("at submission".into()));
    launch(&double, &resets, Grid::threads(3), (&a, &mut c)).unwrap();
    while bench.sim.resets() == 0 {
        thread::yield_now();
    }
    bench.sim.release();
    assert_eq!(c.to_vec().unwrap(), [2, 4, 6]);
    // The reset has ended the work, which is retried although its own policy allows no reset.
    pending.wait().unwrap();
    assert_eq!(b.to_vec().unwrap(), [2, 4, 6]);
    assert!(matches!(bench.device.breaker().state(), BreakerState::Closed));
    let mut done = actions(&bench.device);
    done.sort_by_key(|action| action.name());
    assert_eq!(done, [Action::Reset, Action::Retry]);
    assert_eq!(bench.device.health().of(Component::Queues), Status::Degraded, "attempts count");
}

#[test]
fn readback_from_a_lost_device_is_an_error_and_what_it_alone_had_is_no_input() {
    let bench = Bench::on(Sim::discrete());
    let stream = recovering(&bench);
    let double = double(&bench, &failing(0), outside());
    let mut a = bench.device.buffer_for::<u32>(3, HostAccess::Never).unwrap();
    let mut b = bench.device.buffer_for::<u32>(3, HostAccess::Never).unwrap();
    a.write(&[1, 2, 3]).unwrap();
    bench.sim.fail_next(Op::Read, Error::DeviceLost("on the bus".into()));
    assert!(matches!(a.to_vec(), Err(Error::DeviceLost(_))));
    bench.sim.lose("unplugged");
    assert!(matches!(a.to_vec(), Err(Error::DeviceLost(_))));
    let done = launch(&double, &stream, Grid::threads(3), (&a, &mut b)).unwrap();
    assert!(matches!(done.wait(), Err(Error::DeviceLost(_))));
    let all = decisions(&bench.device);
    assert_eq!(all[0].0, Action::Reset);
    let reason = "kernel `double`, argument 0 `in` (device const uint*): its contents were lost when the device was reset";
    assert_eq!(all[1..], [(Action::GiveUp, reason.into())]);
    stream.acknowledge();
    a.write(&[4, 5, 6]).unwrap();
    launch(&double, &stream, Grid::threads(3), (&a, &mut b)).unwrap().wait().unwrap();
    assert_eq!(b.to_vec().unwrap(), [8, 10, 12]);
}

/// Another device, whose `double` also adds 100 to distinguish its results.
fn elsewhere() -> Bench {
    let other = Bench::on(Sim::named("other"));
    let args = vec![pointer("in", Scalar::U32, Access::Read), pointer("out", Scalar::U32, Access::ReadWrite)];
    other.declare(signature("double", args), |launch| {
        let input: Vec<u32> = words(&launch.bytes(0)?);
        let output: Vec<u32> = input.iter().map(|x| 2 * x + 100).collect();
        launch.write(1, bytemuck::cast_slice(&output))
    });
    other
}

#[test]
fn what_the_device_does_not_get_done_is_run_on_another() {
    let (bench, other) = (Bench::new(), elsewhere());
    bench.device.trace().start(100);
    let policy = RecoveryPolicy { rerun: Some(other.device.clone()), ..policy(&bench.device) };
    let stream = bench.device.stream_recovering(policy).unwrap();
    let double = double(&bench, &failing(3), outside());
    let data = bench.device.buffer_with_data(&[0u32, 0, 1, 2, 3]).unwrap();
    let (input, mut b) = (data.slice(2..5).unwrap(), bench.device.buffer_with_data(&[9u32; 5]).unwrap());
    let done = launch(&double, &stream, Grid::threads(3), (input, b.slice_mut(1..4).unwrap())).unwrap();
    done.wait().unwrap();
    assert_eq!(b.to_vec().unwrap(), [9, 102, 104, 106, 9]);
    assert_eq!(actions(&bench.device), [Action::Retry, Action::Retry, Action::Rerun]);
    // The device itself remains usable.
    launch(&double, &stream, Grid::threads(3), (&data, &mut b)).unwrap();
    assert_eq!(b.to_vec().unwrap()[..3], [0, 0, 2]);
    // A kernel that the other device does not have.
    let fill = bench.declare(signature("only_here", vec![]), |_| Err(outside()));
    assert!(launch(&fill, &stream, Grid::threads(3), ()).unwrap().wait().is_err());
    let last = decisions(&bench.device).pop().unwrap();
    assert_eq!(last.0, Action::GiveUp);
    assert!(last.1.contains("no kernel `only_here`"), "{}", last.1);
}

/// Work with a deadline runs other code of the same kernel, and is rerun on another device nevertheless.
#[test]
fn what_has_a_deadline_and_timestamps_is_run_on_another() {
    let bench = Bench::on(Sim::with_caps(|caps| caps.features.stops_at = StopsAt::Loops));
    let other = elsewhere();
    bench.device.trace().start(100);
    let policy = RecoveryPolicy { attempts: 1, rerun: Some(other.device.clone()), ..policy(&bench.device) };
    let stream = bench.device.stream_recovering(policy).unwrap();
    let failures = failing(1);
    let double = double(&bench, &failures, outside());
    let run = || {
        let (a, mut b) = in_and_out(&bench.device);
        let mut command_buffer = stream.command_buffer();
        let before = command_buffer.timestamp().unwrap();
        // SAFETY: the kernel stays within its arguments.
        #[allow(unsafe_code)]
        unsafe { command_buffer.launch(&double, Grid::threads(3), (&a, &mut b)) }.unwrap();
        let after = command_buffer.timestamp().unwrap();
        command_buffer.deadline(Duration::from_secs(1000)).unwrap();
        command_buffer.submit().unwrap().wait().unwrap();
        (b.to_vec().unwrap(), before.ns(), after.since(&before))
    };
    // The kernel fails behind the first timestamp. Times of the other device's clock are not used here.
    let (doubled, before, between) = run();
    assert_eq!((doubled, between), (vec![102, 104, 106], None));
    assert!(before.is_some());
    assert_eq!(actions(&bench.device), [Action::Rerun]);
    let (doubled, _, between) = run();
    assert!(doubled == [2, 4, 6] && between.is_some());
    let of_here = |command: &Command| matches!(command, Command::Timestamp { .. });
    assert!(!other.sim.commands().iter().any(of_here));
}

/// The simulated device has the source and fails; the processor compiles and runs it.
#[test]
fn the_processor_runs_what_another_device_cannot() {
    let bench = Bench::new();
    let text = "kernel void triple(device const uint* in, device uint* out, constant uint& n,
                                   uint i [[thread_position_in_grid]]) { if (i < n) { out[i] = 3 * in[i]; } }";
    let processor = Device::cpu().unwrap();
    let library = processor.compile(Source::msl(text)).unwrap();
    bench.sim.add_kernel_with(library.kernel("triple").unwrap().signature().clone(), |_| Err(outside()));
    let triple = bench.device.compile(Source::msl(text)).unwrap().kernel("triple").unwrap();
    let policy = RecoveryPolicy { rerun: Some(processor), ..policy(&bench.device) };
    let stream = bench.device.stream_recovering(policy).unwrap();
    let input: Vec<u32> = (0..1000).collect();
    let (a, mut b) =
        (bench.device.buffer_with_data(&input).unwrap(), bench.device.buffer::<u32>(1000).unwrap());
    launch(&triple, &stream, Grid::threads(1000).group(64), (&a, &mut b, 999u32)).unwrap().wait().unwrap();
    let expected: Vec<u32> = (0..1000).map(|i| if i < 999 { 3 * i } else { 0 }).collect();
    assert_eq!(b.to_vec().unwrap(), expected);
}

#[test]
fn inputs_that_the_host_cannot_reach_are_not_run_elsewhere() {
    let (bench, other) = (Bench::on(Sim::discrete()), elsewhere());
    bench.device.trace().start(100);
    let policy = RecoveryPolicy { rerun: Some(other.device), resets: 0, ..policy(&bench.device) };
    let stream = bench.device.stream_recovering(policy).unwrap();
    let double = double(&bench, &failing(0), outside());
    let mut a = bench.device.buffer_for::<u32>(3, HostAccess::Never).unwrap();
    let mut b = bench.device.buffer_for::<u32>(3, HostAccess::Staging).unwrap();
    a.write(&[1, 2, 3]).unwrap();
    bench.sim.lose("unplugged");
    let done = launch(&double, &stream, Grid::threads(3), (&a, &mut b)).unwrap();
    assert!(matches!(done.wait(), Err(Error::DeviceLost(_))));
    let all = decisions(&bench.device);
    assert_eq!((all[0].0, all[1].0), (Action::Rerun, Action::GiveUp));
    assert!(all[1].1.ends_with("device lost: unplugged"), "{}", all[1].1);
    assert!(matches!(bench.device.breaker().state(), BreakerState::Terminal(_)));
}

#[test]
fn what_waits_behind_work_that_runs_elsewhere_can_be_cancelled() {
    let (bench, other) = (Bench::new(), elsewhere());
    bench.device.trace().start(100);
    let policy = RecoveryPolicy { attempts: 1, rerun: Some(other.device), ..policy(&bench.device) };
    let stream = bench.device.stream_recovering(policy).unwrap();
    let double = double(&bench, &failing(1), outside());
    let (a, mut b) = in_and_out(&bench.device);
    other.sim.hold();
    let first = launch(&double, &stream, Grid::threads(3), (&a, &mut b)).unwrap();
    while actions(&bench.device).is_empty() {
        thread::yield_now();
    }
    assert!(!first.cancel(), "it has begun");
    let behind = stream.fill(&mut b, 2).unwrap();
    assert!(behind.cancel() && !behind.cancel());
    other.sim.release();
    first.wait().unwrap();
    assert!(matches!(behind.wait(), Err(Error::Cancelled)));
    assert_eq!(b.to_vec().unwrap(), [102, 104, 106]);
}

#[test]
fn a_device_that_fails_too_often_gets_no_work_and_then_a_probe() {
    let (bench, other) = (Bench::new(), elsewhere());
    let device = &bench.device;
    let once = RecoveryPolicy { attempts: 1, ..policy(device) };
    let limits = |cooldown| BreakerLimits { failures: 4, cooldown, longest: Duration::MAX };
    device.breaker().set_limits(limits(Duration::from_secs(3600)));
    device.trace().start(1000);
    let stream = device.stream_recovering(once.clone()).unwrap();
    let failures = failing(4);
    let double = double(&bench, &failures, outside());
    let (a, mut b) = in_and_out(device);
    for _ in 0..4 {
        assert!(matches!(
            launch(&double, &stream, Grid::threads(3), (&a, &mut b)).unwrap().wait(),
            Err(Error::Environment(_))
        ));
        stream.acknowledge();
    }
    bench.sim.forget_commands();
    let refused = launch(&double, &stream, Grid::threads(3), (&a, &mut b)).unwrap();
    assert!(matches!(refused.wait(), Err(Error::Refused(_))));
    assert_eq!((bench.sim.commands().len(), actions(device).pop()), (0, Some(Action::Refuse)));
    let elsewhere = RecoveryPolicy { rerun: Some(other.device), ..once };
    let stream = device.stream_recovering(elsewhere).unwrap();
    launch(&double, &stream, Grid::threads(3), (&a, &mut b)).unwrap().wait().unwrap();
    assert_eq!((b.to_vec().unwrap(), bench.sim.commands().len()), (vec![102, 104, 106], 0));
    // With a cooldown of zero, the first submission is the probe, and the work behind it waits for it.
    device.reset().unwrap();
    device.breaker().set_limits(limits(Duration::ZERO));
    failures.store(4, Ordering::SeqCst);
    for _ in 0..4 {
        launch(&double, &stream, Grid::threads(3), (&a, &mut b)).unwrap().wait().unwrap();
    }
    assert!(matches!(device.breaker().state(), BreakerState::Open { .. }));
    bench.sim.hold();
    let both: Vec<_> =
        (0..2).map(|_| launch(&double, &stream, Grid::threads(3), (&a, &mut b)).unwrap()).collect();
    bench.sim.forget_commands();
    assert!(matches!(device.breaker().state(), BreakerState::HalfOpen));
    let second = device.stream_recovering(policy(device)).unwrap();
    assert!(matches!(second.synchronize(), Err(Error::Refused(_))), "one probe at a time");
    bench.sim.release();
    both.iter().for_each(|done| assert!(done.wait().is_ok()));
    assert_eq!((b.to_vec().unwrap(), bench.sim.commands().len()), (vec![2, 4, 6], 1));
    assert!(matches!(device.breaker().state(), BreakerState::Closed));
}

/// The simulated clock advances by one with each reading, so the duration of a kernel is its number of readings.
#[test]
fn a_kernel_that_takes_longer_than_it_used_to_shows() {
    let bench = Bench::new();
    let stream = recovering(&bench);
    let slow = Arc::new(AtomicU32::new(0));
    let kernel = {
        let (slow, device) = (slow.clone(), bench.device.clone());
        bench.declare(signature("creeping", vec![]), move |_| {
            (0..slow.load(Ordering::SeqCst)).for_each(|_| assert!(device.clock_ns() > 0));
            Ok(())
        })
    };
    let run = |times: u32| {
        for _ in 0..times {
            launch(&kernel, &stream, Grid::threads(1), ()).unwrap().wait().unwrap();
        }
    };
    run(40);
    assert_eq!(bench.device.health().of(Component::Latency), Status::Healthy);
    slow.store(9, Ordering::SeqCst);
    run(10);
    let health = bench.device.health();
    assert_eq!(health.of(Component::Latency), Status::Degraded, "{health}");
    assert!(health.to_string().contains("kernel `creeping` takes"), "{health}");
}
