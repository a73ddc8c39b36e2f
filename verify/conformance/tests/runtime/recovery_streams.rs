//! Recovering streams: work that is retried or not, while later work waits.

use crate::support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use elinvar::{Action, BreakerLimits, Device, Error, Grid, RecoveryPolicy, Source};
use elinvar_conformance::sim::Op;
use support::recovery::{actions, decisions, double, failing, full, in_and_out, outside, policy, recovering};
use support::{Bench, assert_poisoned, fault, launch, signature};

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
    // In the trace, the decisions are between the steps of their submission.
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
    let mut data = bench.device.buffer_with_data(&[5u32]).unwrap();
    bench.sim.fail_next(Op::Execute, outside());
    let done = launch(&increment, &stream, Grid::threads(1), (&mut data,)).unwrap();
    assert!(matches!(done.wait(), Err(Error::Environment(_))));
    let reason = "kernel `increment`, argument 0 `data` (device uint*): modified in place, so its original contents may be lost";
    assert_eq!(decisions(&bench.device), [(Action::GiveUp, reason.into())]);
    assert!(matches!(data.to_vec(), Err(Error::Poisoned(_))), "half of it may be done");
    stream.acknowledge();
    // Work that has not begun can be retried: here the submission itself is refused.
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
    let mut data = bench.device.buffer_with_data(&[1u32, 2, 3, 4, 5, 6]).unwrap();
    let whole = data.clone();
    // The two halves of the buffer do not overlap.
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
    let mut commands = stream.command_buffer();
    commands.fill(&mut data, 40).unwrap();
    // SAFETY: the kernel stays within its argument.
    #[allow(unsafe_code)]
    unsafe {
        commands.launch(&increment, Grid::threads(1), (&mut data,)).unwrap();
    }
    bench.sim.fail_next(Op::Execute, outside());
    commands.submit().unwrap().wait().unwrap();
    assert_eq!(data.to_vec().unwrap(), [41]);
    // A copy whose source is overwritten later in the submission cannot.
    let (mut a, mut b) = in_and_out(&bench.device);
    let mut commands = stream.command_buffer();
    commands.copy(&a, &mut b).unwrap();
    commands.fill(&mut a, 0).unwrap();
    bench.sim.fail_next(Op::Execute, outside());
    assert!(commands.submit().unwrap().wait().is_err());
    assert!(decisions(&bench.device).pop().unwrap().1.starts_with("copy: the source: modified in place"));
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
    assert_eq!(decisions(&bench.device), [(Action::GiveUp, "the kernel faulted".into())]);
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
    let mut commands = stream.command_buffer();
    // SAFETY: the kernel stays within its arguments.
    #[allow(unsafe_code)]
    unsafe {
        commands.launch(&double, Grid::threads(3), (&a, &mut b)).unwrap();
    }
    commands.signal(&ready, 1);
    commands.submit().unwrap();
    copied.wait().unwrap();
    assert_eq!(c.to_vec().unwrap(), [2, 4, 6]);
    // A signal with work behind it must happen only once.
    let mut commands = stream.command_buffer();
    commands.signal(&ready, 2);
    commands.fill(&mut b, 1).unwrap();
    commands.signal(&ready, 3);
    bench.sim.fail_next(Op::Execute, outside());
    assert!(matches!(commands.submit().unwrap().wait(), Err(Error::Environment(_))));
    assert!(decisions(&bench.device).pop().unwrap().1.starts_with("it may have signaled an event"));
    // A stream does not recover from failures of other streams.
    stream.acknowledge();
    assert_eq!(ready.value(), 2);
    stream.wait_for(&ready, 3).unwrap();
    assert!(matches!(stream.synchronize(), Err(Error::Poisoned(_))));
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
fn what_waits_for_another_attempt_ends_at_its_deadline() {
    let mut deadline = Duration::from_millis(20);
    // On a busy machine the deadline may pass before the first attempt; then there is no decision.
    while !ends_at_its_deadline(deadline) {
        deadline *= 4;
    }
}

/// Whether the work had failed by its deadline and was waiting for another attempt.
fn ends_at_its_deadline(deadline: Duration) -> bool {
    let bench = Bench::new();
    bench.device.trace().start(1000);
    let forever = Duration::MAX;
    let patient = RecoveryPolicy { backoff: forever, longest: forever, ..policy(&bench.device) };
    let stream = bench.device.stream_recovering(patient).unwrap();
    let mut data = bench.device.buffer::<u32>(1).unwrap();
    bench.sim.fail_next(Op::Execute, outside());
    let mut commands = stream.command_buffer();
    commands.fill(&mut data, 1).unwrap();
    commands.deadline(deadline).unwrap();
    let ended = commands.submit().unwrap().wait();
    assert!(matches!(ended, Err(Error::Timeout(_))), "{ended:?}");
    let decisions = decisions(&bench.device);
    if let Some(last) = decisions.last() {
        assert_eq!(*last, (Action::GiveUp, "it was stopped".into()));
    }
    assert!(matches!(stream.acknowledge(), Some(Error::Timeout(_))));
    decisions.len() > 1
}

#[test]
fn what_the_driver_has_can_be_cancelled() {
    let bench = Bench::new();
    let stream = recovering(&bench);
    let mut data = bench.device.buffer::<u32>(1).unwrap();
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

/// Streams of many threads on a device with random faults and losses: every completion resolves, what is reported as done is correct, and
/// failed work is retried.
#[test]
fn threads_recover_from_random_faults() {
    const THREADS: u32 = 16;
    const ROUNDS: u32 = 60;
    let bench = Bench::new();
    bench.device.breaker().set_limits(BreakerLimits {
        failures: 6,
        cooldown: Duration::ZERO,
        longest: Duration::ZERO,
    });
    bench.device.trace().start(100_000);
    bench.sim.add_kernel(signature("nothing", vec![]));
    let double = double(&bench, &failing(0), outside());
    let policy = RecoveryPolicy { attempts: 6, resets: 6, ..policy(&bench.device) };
    let done = AtomicU32::new(0);
    thread::scope(|scope| {
        for t in 0..THREADS {
            let (bench, double, policy, done) = (&bench, &double, policy.clone(), &done);
            scope.spawn(move || {
                let device = &bench.device;
                // It is refused while the breaker is open, or tries the device for another thread.
                let begun = Instant::now();
                let stream = loop {
                    match device.recover(&policy, || device.stream_recovering(policy.clone())) {
                        Ok(stream) => break stream,
                        Err(error) => {
                            assert!(begun.elapsed() < Duration::from_secs(60), "no stream: {error}")
                        }
                    }
                    thread::yield_now();
                };
                for i in 0..ROUNDS {
                    match (t * 61 + i) % 11 {
                        0 => bench.sim.fail_next(Op::Execute, outside()),
                        3 => bench.sim.fail_next(Op::Submit, full()),
                        7 if i % 7 == 0 => bench.sim.lose("at random"),
                        _ => {}
                    }
                    let Ok(a) = device.recover(&policy, || device.buffer_with_data(&[t, i, t + i])) else {
                        continue;
                    };
                    let Ok(mut b) = device.recover(&policy, || device.buffer::<u32>(3)) else { continue };
                    let launched = launch(double, &stream, Grid::threads(3), (&a, &mut b)).unwrap();
                    match launched.wait_timeout(Duration::from_secs(60)) {
                        Ok(timing) => {
                            assert!(timing.is_some(), "never resolved");
                            assert_eq!(b.to_vec().unwrap(), [2 * t, 2 * i, 2 * (t + i)]);
                            done.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(_) => drop(stream.acknowledge()),
                    }
                }
            });
        }
    });
    let (done, all) = (done.into_inner(), THREADS * ROUNDS);
    let actions = actions(&bench.device);
    let count = |action| actions.iter().filter(|taken| **taken == action).count();
    let [retries, trims, resets, ends] =
        [&[Action::Retry][..], &[Action::Trim], &[Action::Reset], &[Action::GiveUp, Action::Refuse]]
            .map(|kinds| kinds.iter().map(|kind| count(*kind)).sum::<usize>());
    let summary =
        format!("{done} of {all} done; {retries} retries, {trims} trims, {resets} resets, {ends} ends");
    eprintln!("{summary}");
    assert!(retries > 0 && trims > 0 && resets > 0, "{summary}");
    // A failure ends at most one attempt per thread, and six failed attempts end a work: about 380 failed attempts, thus at most 64 works.
    assert!(done >= all * 9 / 10, "{summary}");
    bench.device.reset().unwrap();
    let library = bench.device.recover(&policy, || bench.device.compile(Source::msl(""))).unwrap();
    assert_eq!(library.kernels().len(), 2);
}
