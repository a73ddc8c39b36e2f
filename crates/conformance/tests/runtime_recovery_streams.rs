//! Streams that recover: work that is done again, elsewhere, or not, while what is behind it waits.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use elinvar::driver::{Access, CodeFacts, Scalar};
use elinvar::{
    Action, BreakerLimits, BreakerState, Buffer, Component, Device, Error, Grid, HostUse, Kernel,
    RecoveryPolicy, Source, Status, Stream, TraceStep,
};
use elinvar_conformance::sim::{Launch, Op, Sim};
use support::{Bench, assert_poisoned, fault, launch, pointer, signature};

/// Without waits.
fn policy(device: &Device) -> RecoveryPolicy {
    RecoveryPolicy { backoff: Duration::ZERO, attempts: 3, resets: 1, ..RecoveryPolicy::of(device) }
}

fn recovering(bench: &Bench) -> Stream {
    bench.device.trace().start(10_000);
    bench.device.stream_recovering(policy(&bench.device)).unwrap()
}

/// Actions and reasons in the trace.
fn decisions(device: &Device) -> Vec<(Action, String)> {
    let events = device.trace().events();
    let decision = |event: &elinvar::TraceEvent| match &event.step {
        TraceStep::Recovery(decision) => Some((decision.action, decision.reason.clone())),
        _ => None,
    };
    events.iter().filter_map(decision).collect()
}

fn actions(device: &Device) -> Vec<Action> {
    decisions(device).into_iter().map(|(action, _)| action).collect()
}

fn outside() -> Error {
    Error::Environment("a file was away".into())
}

fn full() -> Error {
    Error::OutOfMemory { requested: 1, available: 0 }
}

/// `double(device const uint* in, device uint* out)`, which only writes `out`; as often as `failures` says it writes junk and
/// fails.
fn double(bench: &Bench, failures: &Arc<AtomicU32>, error: Error) -> Kernel {
    let failures = failures.clone();
    let args = vec![pointer("in", Scalar::U32, Access::Read), pointer("out", Scalar::U32, Access::ReadWrite)];
    let mut signature = signature("double", args);
    signature.code = Some(CodeFacts { only_written: 0b10, ..CodeFacts::default() });
    bench.declare(signature, move |launch: &Launch<'_>| {
        let input: Vec<u32> = words(&launch.bytes(0)?);
        let left = failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let output: Vec<u32> = input.iter().map(|x| if left.is_ok() { 77 } else { 2 * x }).collect();
        launch.write(1, bytemuck::cast_slice(&output))?;
        left.map_or(Ok(()), |_| Err(error.clone()))
    })
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()
}

fn failing(times: u32) -> Arc<AtomicU32> {
    Arc::new(AtomicU32::new(times))
}

fn in_and_out(device: &Device) -> (Buffer<u32>, Buffer<u32>) {
    (device.buffer_from(&[1, 2, 3]).unwrap(), device.buffer(3).unwrap())
}

#[test]
fn work_that_failed_is_done_again_and_what_is_behind_it_waits() {
    let bench = Bench::new();
    let stream = recovering(&bench);
    let double = double(&bench, &failing(2), Error::Timeout("the device's own".into()));
    let (a, mut b) = in_and_out(&bench.device);
    let mut c = bench.device.buffer::<u32>(3).unwrap();
    bench.sim.hold();
    let first = launch(&double, &stream, Grid::threads(3), (&a, &mut b)).unwrap();
    let behind = launch(&double, &stream, Grid::threads(3), (&b, &mut c)).unwrap();
    bench.sim.release();
    assert_eq!((b.to_vec().unwrap(), c.to_vec().unwrap()), (vec![2, 4, 6], vec![4, 8, 12]));
    assert!(first.wait().is_ok() && behind.wait().is_ok() && stream.acknowledge().is_none());
    assert_eq!(actions(&bench.device), [Action::Retry, Action::Retry]);
    // In the trace they are between the steps of their submission.
    let events = bench.device.trace().events();
    let of_first: Vec<_> = events.iter().filter(|e| e.submission == events[0].submission).collect();
    let names: Vec<&str> = of_first.iter().map(|event| event.step.name()).collect();
    assert_eq!(names[6..], ["commit", "recovery", "recovery", "complete", "release"]);
    assert!(of_first.iter().all(|event| event.stream == of_first[0].stream));
}

#[test]
fn a_launch_that_works_in_place_is_not_done_again() {
    let bench = Bench::new();
    let stream = recovering(&bench);
    let increment = bench.increment();
    let mut data = bench.device.buffer_from(&[5u32]).unwrap();
    bench.sim.fail_next(Op::Execute, outside());
    let done = launch(&increment, &stream, Grid::threads(1), (&mut data,)).unwrap();
    assert!(matches!(done.wait(), Err(Error::Environment(_))));
    let reason = "kernel `increment`, argument 0 `data` (device uint*): it works in place, and may have overwritten its input";
    assert_eq!(decisions(&bench.device), [(Action::GiveUp, reason.into())]);
    assert!(matches!(data.to_vec(), Err(Error::Poisoned(_))), "half of it may be done");
    stream.acknowledge();
    // What has not begun can be: the submission itself is refused.
    data.write(&[5]).unwrap();
    bench.sim.fail_next(Op::Submit, outside());
    launch(&increment, &stream, Grid::threads(1), (&mut data,)).unwrap().wait().unwrap();
    assert_eq!(data.to_vec().unwrap(), [6]);
}

#[test]
fn two_arguments_of_one_buffer_work_in_place() {
    let bench = Bench::new();
    let stream = recovering(&bench);
    let failures = failing(2);
    let double = double(&bench, &failures, outside());
    let mut data = bench.device.buffer_from(&[1u32, 2, 3, 4, 5, 6]).unwrap();
    let whole = data.clone();
    // Two halves of one buffer share nothing.
    let (input, output) = (whole.slice(0..3).unwrap(), data.slice_mut(3..6).unwrap());
    launch(&double, &stream, Grid::threads(3), (input, output)).unwrap().wait().unwrap();
    assert_eq!(data.to_vec().unwrap(), [1, 2, 3, 2, 4, 6]);
    failures.store(1, Ordering::SeqCst);
    let (input, output) = (whole.slice(0..3).unwrap(), data.slice_mut(2..5).unwrap());
    let done = launch(&double, &stream, Grid::threads(3), (input, output)).unwrap();
    assert!(matches!(done.wait(), Err(Error::Environment(_))));
    let last = decisions(&bench.device).pop().unwrap();
    assert_eq!(last.0, Action::GiveUp);
    assert!(last.1.starts_with("kernel `double`, argument 0 `in`"), "{}", last.1);
}

#[test]
fn what_a_batch_has_written_for_certain_is_no_input() {
    let bench = Bench::new();
    let stream = recovering(&bench);
    let increment = bench.increment();
    let mut data = bench.device.buffer::<u32>(1).unwrap();
    let mut batch = stream.batch();
    batch.fill(&mut data, 40).unwrap();
    // SAFETY: the kernel keeps within its argument.
    #[allow(unsafe_code)]
    unsafe {
        batch.launch(&increment, Grid::threads(1), (&mut data,)).unwrap();
    }
    bench.sim.fail_next(Op::Execute, outside());
    batch.submit().unwrap().wait().unwrap();
    assert_eq!(data.to_vec().unwrap(), [41]);
    // A copy whose source is overwritten behind it cannot.
    let (mut a, mut b) = in_and_out(&bench.device);
    let mut batch = stream.batch();
    batch.copy(&a, &mut b).unwrap();
    batch.fill(&mut a, 0).unwrap();
    bench.sim.fail_next(Op::Execute, outside());
    assert!(batch.submit().unwrap().wait().is_err());
    assert!(decisions(&bench.device).pop().unwrap().1.starts_with("copy: the source: it works in place"));
}

#[test]
fn out_of_memory_while_it_runs_trims_and_does_it_again() {
    let bench = Bench::new();
    let stream = recovering(&bench);
    let double = double(&bench, &failing(1), full());
    let (a, mut b) = in_and_out(&bench.device);
    drop(bench.device.buffer::<u32>(5000).unwrap());
    assert_eq!(bench.device.pool().stats().idle_blocks, 1);
    launch(&double, &stream, Grid::threads(3), (&a, &mut b)).unwrap();
    assert_eq!(b.to_vec().unwrap(), [2, 4, 6]);
    assert_eq!((actions(&bench.device), bench.device.pool().stats().idle_blocks), (vec![Action::Trim], 0));
}

#[test]
fn what_cannot_be_helped_fails_as_on_any_stream() {
    let bench = Bench::new();
    let stream = recovering(&bench);
    let event = bench.device.event().unwrap();
    let mut data = bench.device.buffer::<u32>(1).unwrap();
    bench.sim.hold();
    let failed = launch(&bench.fail(), &stream, Grid::threads(1), (&mut data,)).unwrap();
    let behind = stream.signal(&event, 1).unwrap();
    bench.sim.release();
    assert!(matches!(failed.wait(), Err(Error::Fault(_))));
    assert_poisoned(behind.wait());
    assert_poisoned(event.wait(1));
    assert_poisoned(stream.fill(&mut data, 1).unwrap().wait());
    assert!(matches!(stream.acknowledge(), Some(Error::Fault(_))));
    assert!(stream.acknowledge().is_none());
    stream.fill(&mut data, 2).unwrap();
    assert_eq!(data.to_vec().unwrap(), [2]);
    assert_eq!(decisions(&bench.device), [(Action::GiveUp, "the kernel faulted, and would again".into())]);
    let faults = RecoveryPolicy { faults: true, ..policy(&bench.device) };
    let stream = bench.device.stream_recovering(faults).unwrap();
    let double = double(&bench, &failing(2), fault());
    let (a, mut b) = in_and_out(&bench.device);
    launch(&double, &stream, Grid::threads(3), (&a, &mut b)).unwrap();
    assert_eq!(b.to_vec().unwrap(), [2, 4, 6]);
}

#[test]
fn an_event_is_raised_when_the_work_has_ended_well_at_last() {
    let bench = Bench::new();
    let (stream, other) = (recovering(&bench), bench.device.stream().unwrap());
    let double = double(&bench, &failing(2), outside());
    let (a, mut b) = in_and_out(&bench.device);
    let mut c = bench.device.buffer::<u32>(3).unwrap();
    let ready = bench.device.event().unwrap();
    other.wait_for(&ready, 1).unwrap();
    let copied = other.copy(&b, &mut c).unwrap();
    let mut batch = stream.batch();
    // SAFETY: the kernel keeps within its arguments.
    #[allow(unsafe_code)]
    unsafe {
        batch.launch(&double, Grid::threads(3), (&a, &mut b)).unwrap();
    }
    batch.signal(&ready, 1);
    batch.submit().unwrap();
    copied.wait().unwrap();
    assert_eq!(c.to_vec().unwrap(), [2, 4, 6]);
    // A signal with work behind it happens once.
    let mut batch = stream.batch();
    batch.signal(&ready, 2);
    batch.fill(&mut b, 1).unwrap();
    bench.sim.fail_next(Op::Execute, outside());
    assert!(matches!(batch.submit().unwrap().wait(), Err(Error::Environment(_))));
    assert!(decisions(&bench.device).pop().unwrap().1.starts_with("it may have raised an event"));
    // Another's failure is not this stream's to mend.
    stream.acknowledge();
    stream.wait_for(&ready, 2).unwrap();
    assert!(matches!(stream.synchronize(), Err(Error::Poisoned(_))));
}

#[test]
fn a_device_lost_before_during_and_behind_the_work_is_reset() {
    let bench = Bench::new();
    let stream = recovering(&bench);
    let (a, mut b) = in_and_out(&bench.device);
    let (begun, begins) = channel();
    let double = {
        let begun = begun.clone();
        let double = double(&bench, &failing(0), outside());
        // `wait` lets the test lose the device while it runs.
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
    // The reset has ended it, and it is done again though its own policy has none.
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
    let mut a = bench.device.buffer_for::<u32>(3, HostUse::Never).unwrap();
    let mut b = bench.device.buffer_for::<u32>(3, HostUse::Never).unwrap();
    a.write(&[1, 2, 3]).unwrap();
    bench.sim.fail_next(Op::Read, Error::DeviceLost("on the bus".into()));
    assert!(matches!(a.to_vec(), Err(Error::DeviceLost(_))));
    bench.sim.lose("unplugged");
    assert!(matches!(a.to_vec(), Err(Error::DeviceLost(_))));
    let done = launch(&double, &stream, Grid::threads(3), (&a, &mut b)).unwrap();
    assert!(matches!(done.wait(), Err(Error::DeviceLost(_))));
    let all = decisions(&bench.device);
    assert_eq!(all[0].0, Action::Reset);
    let reason = "kernel `double`, argument 0 `in` (device const uint*): its content was lost when the device was reset";
    assert_eq!(all[1..], [(Action::GiveUp, reason.into())]);
    stream.acknowledge();
    a.write(&[4, 5, 6]).unwrap();
    launch(&double, &stream, Grid::threads(3), (&a, &mut b)).unwrap().wait().unwrap();
    assert_eq!(b.to_vec().unwrap(), [8, 10, 12]);
}

/// Another device, whose `double` adds a hundred, to be told apart.
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
    let data = bench.device.buffer_from(&[0u32, 0, 1, 2, 3]).unwrap();
    let (input, mut b) = (data.slice(2..5).unwrap(), bench.device.buffer_from(&[9u32; 5]).unwrap());
    let done = launch(&double, &stream, Grid::threads(3), (input, b.slice_mut(1..4).unwrap())).unwrap();
    done.wait().unwrap();
    assert_eq!(b.to_vec().unwrap(), [9, 102, 104, 106, 9]);
    assert_eq!(actions(&bench.device), [Action::Retry, Action::Retry, Action::Rerun]);
    // The device itself goes on.
    launch(&double, &stream, Grid::threads(3), (&data, &mut b)).unwrap();
    assert_eq!(b.to_vec().unwrap()[..3], [0, 0, 2]);
    // A kernel that the other device does not have.
    let fill = bench.declare(signature("only_here", vec![]), |_| Err(outside()));
    assert!(launch(&fill, &stream, Grid::threads(3), ()).unwrap().wait().is_err());
    let last = decisions(&bench.device).pop().unwrap();
    assert_eq!(last.0, Action::GiveUp);
    assert!(last.1.contains("no kernel `only_here`"), "{}", last.1);
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
    let (a, mut b) = (bench.device.buffer_from(&input).unwrap(), bench.device.buffer::<u32>(1000).unwrap());
    launch(&triple, &stream, Grid::threads(1000).group(64), (&a, &mut b, 999u32)).unwrap().wait().unwrap();
    let expected: Vec<u32> = (0..1000).map(|i| if i < 999 { 3 * i } else { 0 }).collect();
    assert_eq!(b.to_vec().unwrap(), expected);
}

#[test]
fn the_compiler_says_what_is_only_written() {
    let text = "#include <metal_stdlib>
        using namespace metal;
        kernel void plain(device const float* in, device float* out, uint i [[thread_position_in_grid]]) {
            out[i] = 2 * in[i];
        }
        kernel void both(device float* a, device float* b, device atomic_uint* c, device float* unused,
                         uint i [[thread_position_in_grid]]) {
            threadgroup float tile[32];
            tile[i % 32] = a[i];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            b[i] = tile[31 - i % 32];
            a[i] += 1;
            atomic_fetch_add_explicit(c, 1, memory_order_relaxed);
        }";
    let library = Device::cpu().unwrap().compile(Source::msl(text)).unwrap();
    let only_written = |name| library.kernel(name).unwrap().signature().code.unwrap().only_written;
    assert_eq!((only_written("plain"), only_written("both")), (0b10, 0b10));
}

#[test]
fn inputs_that_the_host_cannot_reach_are_not_run_elsewhere() {
    let (bench, other) = (Bench::on(Sim::discrete()), elsewhere());
    bench.device.trace().start(100);
    let policy = RecoveryPolicy { rerun: Some(other.device), resets: 0, ..policy(&bench.device) };
    let stream = bench.device.stream_recovering(policy).unwrap();
    let double = double(&bench, &failing(0), outside());
    let mut a = bench.device.buffer_for::<u32>(3, HostUse::Never).unwrap();
    let mut b = bench.device.buffer_for::<u32>(3, HostUse::Staging).unwrap();
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
    // Open for no time: what comes first is the probe, and what is behind it waits for it.
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

#[test]
fn what_waits_for_another_attempt_can_be_told_to_end_and_what_is_behind_it_cancelled() {
    let bench = Bench::new();
    bench.device.trace().start(1000);
    let forever = Duration::MAX;
    let patient = RecoveryPolicy { backoff: forever, longest: forever, ..policy(&bench.device) };
    let stream = bench.device.stream_recovering(patient).unwrap();
    let mut data = bench.device.buffer::<u32>(1).unwrap();
    bench.sim.fail_next(Op::Execute, outside());
    let mut batch = stream.batch();
    batch.fill(&mut data, 1).unwrap();
    batch.deadline(Duration::from_millis(20)).unwrap();
    let late = batch.submit().unwrap();
    while actions(&bench.device).is_empty() {
        thread::yield_now();
    }
    assert!(!late.cancel(), "it has begun");
    let behind = stream.fill(&mut data, 2).unwrap();
    assert!(behind.cancel());
    assert!(matches!(behind.wait(), Err(Error::Cancelled)));
    assert!(matches!(late.wait(), Err(Error::Timeout(_))));
    assert_eq!(decisions(&bench.device).pop().unwrap(), (Action::GiveUp, "it was told to end".into()));
    stream.acknowledge();
    // What runs, or waits in the driver's queue.
    bench.sim.hold();
    let done: Vec<_> = (3..6).map(|value| stream.fill(&mut data, value).unwrap()).collect();
    assert!(done[1].cancel() && !done[1].cancel());
    bench.sim.release();
    assert!(done[0].wait().is_ok() && matches!(done[1].wait(), Err(Error::Cancelled)));
    assert_eq!(data.to_vec().unwrap(), [5]);
}

#[test]
fn a_queue_that_is_full_is_tried_again() {
    let bench = Bench::new();
    let stream = recovering(&bench);
    let mut data = bench.device.buffer::<u32>(1).unwrap();
    bench.sim.hold();
    let first = stream.fill(&mut data, 1).unwrap();
    bench.sim.fail_next(Op::Submit, Error::QueueFull { limit: 1 });
    let second = stream.fill(&mut data, 2).unwrap();
    bench.sim.release();
    assert!(first.wait().is_ok() && second.wait().is_ok());
    assert_eq!(
        (data.to_vec().unwrap(), actions(&bench.device).len()),
        (vec![2], 0),
        "it waited for the first"
    );
    (0..3).for_each(|_| bench.sim.fail_next(Op::Submit, Error::QueueFull { limit: 1 }));
    assert!(matches!(stream.fill(&mut data, 3).unwrap().wait(), Err(Error::QueueFull { limit: 1 })));
    assert_eq!(actions(&bench.device), [Action::Retry, Action::Retry, Action::GiveUp]);
}

#[test]
fn all_may_be_dropped_while_it_recovers() {
    let bench = Bench::new();
    let device = bench.device.clone();
    let stream = recovering(&bench);
    let double = double(&bench, &failing(2), outside());
    let (a, mut b) = in_and_out(&device);
    let mut c = device.buffer::<u32>(3).unwrap();
    bench.sim.hold();
    launch(&double, &stream, Grid::threads(3), (&a, &mut b)).unwrap();
    let last = launch(&double, &stream, Grid::threads(3), (&b, &mut c)).unwrap();
    let sim = bench.sim.clone();
    drop((a, b, stream, double, bench));
    sim.release();
    last.wait().unwrap();
    drop(last);
    assert_eq!(c.to_vec().unwrap(), [4, 8, 12]);
    sim.forget_commands();
    while device.pool().stats().live_buffers > 1 {
        thread::yield_now(); // the recording of the last attempt goes with its queue
    }
}

/// The simulated clock goes on by one with each look at it, so a kernel takes as long as it looks.
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

/// Streams of many threads on a device that fails and is lost at random: all resolves, and what is reported as done is right.
#[test]
fn threads_recover_from_random_faults() {
    let bench = Bench::new();
    bench.device.breaker().set_limits(BreakerLimits {
        failures: 6,
        cooldown: Duration::ZERO,
        longest: Duration::ZERO,
    });
    bench.sim.add_kernel(signature("nothing", vec![]));
    let double = double(&bench, &failing(0), outside());
    let policy = RecoveryPolicy { attempts: 6, resets: 6, ..policy(&bench.device) };
    thread::scope(|scope| {
        for t in 0..16u32 {
            let (bench, double, policy) = (&bench, &double, policy.clone());
            scope.spawn(move || {
                let device = &bench.device;
                let stream = device.recover(&policy, || device.stream_recovering(policy.clone()));
                let Ok(stream) = stream else { return };
                for i in 0..60u32 {
                    match (t * 61 + i) % 11 {
                        0 => bench.sim.fail_next(Op::Execute, outside()),
                        3 => bench.sim.fail_next(Op::Submit, full()),
                        7 if i % 7 == 0 => bench.sim.lose("at random"),
                        _ => {}
                    }
                    let Ok(a) = device.recover(&policy, || device.buffer_from(&[t, i, t + i])) else {
                        continue;
                    };
                    let Ok(mut b) = device.recover(&policy, || device.buffer::<u32>(3)) else { continue };
                    let done = launch(double, &stream, Grid::threads(3), (&a, &mut b)).unwrap();
                    match done.wait_timeout(Duration::from_secs(60)) {
                        Ok(timing) => {
                            assert!(timing.is_some(), "never resolved");
                            assert_eq!(b.to_vec().unwrap(), [2 * t, 2 * i, 2 * (t + i)]);
                        }
                        Err(_) => drop(stream.acknowledge()),
                    }
                }
            });
        }
    });
    bench.device.reset().unwrap();
    let library = bench.device.recover(&policy, || bench.device.compile(Source::msl(""))).unwrap();
    assert_eq!(library.kernels().len(), 2);
}
