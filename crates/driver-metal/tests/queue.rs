//! Queues: order, events, timestamps, cancellation and failures, on every device.
#![cfg(any(target_vendor = "apple", elinvar_apple))]

mod support;

use std::sync::Arc;
use std::sync::mpsc::channel;

use elinvar_driver::{
    Access, Binding, Command, Device, Dim3, Dispatch, Done, Error, Grid, Pipeline, Priority, Result, Storage,
    TimestampSlot, Use,
};
use support::{devices, dispatch, memory, pipeline, read, run, slice, submit, whole, words, write};

const STEP: &str = "kernel void step_k(device uint* x [[buffer(0)]], constant uint& k [[buffer(1)]],
    uint i [[thread_position_in_grid]]) { x[i] = x[i] * 3u + k; }";
const N: u32 = 1000;
const BYTES: u64 = 4000;

fn step(pipeline: &Arc<dyn Pipeline>, memory: &Arc<dyn elinvar_driver::Memory>, k: u32) -> Command {
    let bindings = vec![Binding::Memory(whole(memory)), Binding::bytes(&k.to_ne_bytes())];
    // Divides the grid, as some devices require.
    dispatch(pipeline, bindings, N, 50)
}

#[test]
fn dispatches_copies_and_fills_take_effect_in_order() {
    for device in devices() {
        let (device, step_k) = (&*device, pipeline(&*device, STEP, "step_k"));
        for storage in [Storage::Shared, Storage::Private] {
            let (x, y) = (memory(device, BYTES, storage), memory(device, BYTES, storage));
            let mut commands = vec![Command::Fill { target: whole(&x), pattern: 7_u32.to_ne_bytes().into() }];
            for k in 0..20 {
                commands.push(step(&step_k, &x, k));
                commands.push(step(&step_k, &y, k));
                if k % 5 == 4 {
                    commands.push(Command::Copy { source: whole(&x), target: whole(&y) });
                }
            }
            commands.push(step(&step_k, &y, 5));
            run(&*device.queue().unwrap(), commands).unwrap();
            let folded = (0..20).fold(7_u32, |x, k| x.wrapping_mul(3).wrapping_add(k));
            assert!(words(&x).iter().all(|word| *word == folded));
            assert!(words(&y).iter().all(|word| *word == folded.wrapping_mul(3).wrapping_add(5)));
        }
    }
}

#[test]
fn submissions_of_a_queue_follow_one_another() {
    for device in devices() {
        let step_k = pipeline(&*device, STEP, "step_k");
        let x = memory(&*device, BYTES, Storage::Shared);
        let queue = device.queue().unwrap();
        let all: Vec<_> = (0..50).map(|k| submit(&*queue, vec![step(&step_k, &x, k)]).1).collect();
        let mut before = 0;
        for ended in all {
            let timing = ended.recv().unwrap().unwrap();
            assert!(before <= timing.start_ns && timing.start_ns <= timing.end_ns, "{before} {timing:?}");
            before = timing.end_ns;
        }
        assert!(before <= device.clock_ns());
        let folded = (0..50).fold(0_u32, |x, k| x.wrapping_mul(3).wrapping_add(k));
        assert!(words(&x).iter().all(|word| *word == folded));
    }
}

#[test]
fn values_of_every_size_reach_the_kernel() {
    let body = "kernel void sums(device uint* out [[buffer(0)]], constant uint* in [[buffer(1)]],
        constant uint& n [[buffer(2)]]) { uint s = 0; for (uint i = 0; i < n; i++) s += in[i]; out[0] = s; }";
    for device in devices() {
        let sums = pipeline(&*device, body, "sums");
        let queue = device.queue().unwrap();
        for count in [1_u32, 1023, 1024, 1025, 20_000] {
            let out = memory(&*device, 4, Storage::Shared);
            let data: Vec<u8> = (0..count).flat_map(|i| (i * i).to_ne_bytes()).collect();
            let bindings = vec![
                Binding::Memory(whole(&out)),
                Binding::bytes(&data),
                Binding::bytes(&count.to_ne_bytes()),
            ];
            run(&*queue, vec![dispatch(&sums, bindings, 1, 1)]).unwrap();
            assert_eq!(words(&out), [(0..count).fold(0_u32, |sum, i| sum.wrapping_add(i * i))], "{count}");
        }
    }
}

#[test]
fn threadgroup_memory_of_any_length_and_memory_by_address() {
    let body = "struct Refs { device uint* to; };
        kernel void turns(constant Refs& refs [[buffer(0)]], threadgroup uint* part [[threadgroup(0)]],
            uint i [[thread_index_in_threadgroup]]) {
            part[i] = i * 5u; threadgroup_barrier(mem_flags::mem_threadgroup); refs.to[i] = part[4u - i]; }";
    for device in devices() {
        let turns = pipeline(&*device, body, "turns");
        let out = memory(&*device, 20, Storage::Private);
        let Some(address) = out.gpu_address() else { continue };
        let bindings = vec![Binding::bytes(&address.to_ne_bytes()), Binding::Threadgroup(20)];
        let Command::Dispatch(plain) = dispatch(&turns, bindings, 5, 5) else { unreachable!("a dispatch") };
        let uses = vec![Use { slice: whole(&out), access: Access::ReadWrite }];
        let launch = Command::Dispatch(Dispatch { uses, ..plain });
        run(&*device.queue().unwrap(), vec![launch]).unwrap();
        assert_eq!(words(&out), [20, 15, 10, 5, 0]);
    }
}

/// On devices without smaller threadgroups at the edges of a grid, a kernel that cannot observe the threadgroup size gets another one; a
/// kernel that can is refused.
#[test]
fn grids_that_threadgroups_do_not_divide() {
    let body = "kernel void blind(device uint* x [[buffer(0)]], uint3 p [[thread_position_in_grid]],
            uint3 n [[threads_per_grid]]) { x[(p.z * n.y + p.y) * n.x + p.x] += p.x + 100u * p.y + 10000u * p.z; }
        kernel void seeing(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]],
            uint g [[threadgroup_position_in_grid]]) { x[i] = g; }";
    for device in devices() {
        let (blind, seeing) = (pipeline(&*device, body, "blind"), pipeline(&*device, body, "seeing"));
        let queue = device.queue().unwrap();
        let x = memory(&*device, 4 * 13 * 7 * 3, Storage::Shared);
        let (threads, group) = (Dim3::new(13, 7, 3), Dim3::new(8, 4, 2));
        let bindings = vec![Binding::Memory(whole(&x))];
        let launch = |pipeline: &Arc<dyn Pipeline>, threads, group| {
            Command::Dispatch(Dispatch {
                pipeline: pipeline.clone(),
                bindings: bindings.clone(),
                uses: Vec::new(),
                grid: Grid::Threads(threads),
                group,
                label: None,
            })
        };
        run(&*queue, vec![launch(&blind, threads, group)]).unwrap();
        let expected: Vec<u32> =
            (0..13 * 7 * 3).map(|i| i % 13 + 100 * (i / 13 % 7) + 10000 * (i / 13 / 7)).collect();
        assert_eq!(words(&x), expected);
        let refused = run(&*queue, vec![launch(&seeing, Dim3::from(100), Dim3::from(32))]);
        match refused {
            Ok(_) => assert!((0..100).all(|i| words(&x)[i] == i as u32 / 32)),
            Err(Error::Unsupported(text)) => {
                assert!(
                    text.contains("kernel `seeing`: the grid of 100×1×1 threads is not a multiple"),
                    "{text}"
                );
                assert!(queue.acknowledge().is_some());
                run(&*queue, vec![launch(&seeing, Dim3::from(96), Dim3::from(32))]).unwrap();
                assert!((0..96).all(|i| words(&x)[i] == i as u32 / 32));
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn events_and_stamps_come_between_the_commands() {
    for device in devices() {
        let step_k = pipeline(&*device, STEP, "step_k");
        let x = memory(&*device, BYTES, Storage::Shared);
        let (first, second) = (device.queue().unwrap(), device.queue().unwrap());
        let (to, back) = (device.event().unwrap(), device.event().unwrap());
        let stamps: Vec<Arc<TimestampSlot>> = (0..3).map(|_| Arc::default()).collect();
        let stamp = |i: usize| Command::Timestamp { into: stamps[i].clone() };
        let signal =
            |event: &Arc<dyn elinvar_driver::Event>| Command::Signal { event: event.clone(), value: 1 };
        let wait = |event: &Arc<dyn elinvar_driver::Event>| Command::Wait { event: event.clone(), value: 1 };
        let before = device.clock_ns();
        let commands = vec![
            stamp(0),
            step(&step_k, &x, 1),
            stamp(1),
            signal(&to),
            wait(&back),
            step(&step_k, &x, 2),
            stamp(2),
        ];
        let ended = submit(&*first, commands).1;
        let other = submit(&*second, vec![wait(&to), step(&step_k, &x, 5), signal(&back)]).1;
        let (timing, other) = (ended.recv().unwrap().unwrap(), other.recv().unwrap().unwrap());
        assert!(words(&x).iter().all(|word| *word == (3 + 5) * 3 + 2), "{:?}", &words(&x)[..2]);
        let ns: Vec<u64> = stamps.iter().map(|stamp| stamp.ns().unwrap()).collect();
        let (to, back) = (to.time_ns().unwrap(), back.time_ns().unwrap());
        let times =
            [before, timing.start_ns, ns[0], ns[1], to, back, ns[2], timing.end_ns, device.clock_ns()];
        assert!(times.is_sorted(), "{times:?}");
        assert!(other.start_ns <= other.end_ns && back <= other.end_ns, "{other:?}");
    }
}

#[test]
fn what_waits_can_be_cancelled_or_stopped() {
    for device in devices() {
        let step_k = pipeline(&*device, STEP, "step_k");
        let x = memory(&*device, BYTES, Storage::Shared);
        let (queue, event) = (device.queue().unwrap(), device.event().unwrap());
        let wait = || vec![Command::Wait { event: event.clone(), value: 1 }, step(&step_k, &x, 1)];
        let (aside, aside_ended) = submit(&*queue, wait());
        let (behind, behind_ended) = submit(&*queue, vec![step(&step_k, &x, 7)]);
        let (_, last) = submit(&*queue, wait());
        assert!(queue.cancel(behind) && !queue.cancel(behind));
        assert!(matches!(behind_ended.recv().unwrap(), Err(Error::Cancelled)));
        assert!(queue.cancel(aside));
        assert!(matches!(aside_ended.recv().unwrap(), Err(Error::Cancelled)));
        event.signal(1, device.clock_ns());
        let timing = last.recv().unwrap();
        assert!(timing.is_ok() && words(&x).iter().all(|word| *word == 1));

        let never = device.event().unwrap();
        let wait = Command::Wait { event: never.clone(), value: 1 };
        let (stopped, ended) = submit(&*queue, vec![wait, step(&step_k, &x, 1)]);
        let (_, poisoned) = submit(&*queue, vec![step(&step_k, &x, 1)]);
        assert!(queue.stop(stopped, Error::Timeout("late".into())).unwrap());
        assert!(matches!(ended.recv().unwrap(), Err(Error::Timeout(_))));
        drop(poisoned.recv().unwrap());
        assert!(!queue.stop(stopped, Error::Cancelled).unwrap(), "it has ended");
        drop(queue.acknowledge());
        run(&*queue, vec![step(&step_k, &x, 0)]).unwrap();
    }
}

#[test]
fn a_failure_is_sticky_and_goes_on_through_events() {
    for device in devices() {
        let step_k = pipeline(&*device, STEP, "step_k");
        let x = memory(&*device, BYTES, Storage::Shared);
        let (queue, other, event) =
            (device.queue().unwrap(), device.queue().unwrap(), device.event().unwrap());
        let waits =
            submit(&*other, vec![Command::Wait { event: event.clone(), value: 1 }, step(&step_k, &x, 1)]).1;
        let wrong = Command::Fill { target: slice(&x, 0, 3), pattern: vec![1, 2] };
        let fails = submit(&*queue, vec![step(&step_k, &x, 1), wrong, Command::Signal { event, value: 1 }]).1;
        let behind = submit(&*queue, vec![step(&step_k, &x, 1)]).1;
        assert!(matches!(fails.recv().unwrap(), Err(Error::InvalidArgument(_))));
        let is_poisoned = |result: Result<_>| matches!(result, Err(Error::Poisoned(cause)) if matches!(*cause, Error::InvalidArgument(_)));
        assert!(is_poisoned(behind.recv().unwrap()) && is_poisoned(waits.recv().unwrap()));
        assert!(read(&x).iter().all(|byte| *byte == 0), "nothing of a submission with a wrong command runs");
        assert!(
            queue.acknowledge().is_some() && queue.acknowledge().is_none() && other.acknowledge().is_some()
        );
        run(&*queue, vec![step(&step_k, &x, 4)]).unwrap();
        assert!(words(&x).iter().all(|word| *word == 4));
    }
}

#[test]
fn a_queue_finishes_when_it_is_dropped_and_callbacks_may_submit() {
    for device in devices() {
        let step_k = pipeline(&*device, STEP, "step_k");
        let x = memory(&*device, BYTES, Storage::Shared);
        let queue = device.queue().unwrap();
        let all: Vec<_> = (0..10).map(|k| submit(&*queue, vec![step(&step_k, &x, k)]).1).collect();
        drop(queue);
        assert!(all.into_iter().all(|ended| ended.recv().unwrap().is_ok()));

        let queue = device.queue().unwrap();
        let (sender, ended) = channel();
        let (again, next) = (queue.clone(), step(&step_k, &x, 1));
        let first = move |result: Result<_>| {
            assert!(result.is_ok());
            let then = Done::new(move |result: Result<_>| drop(sender.send(result)));
            again.submit(vec![next].into(), then).unwrap();
        };
        queue.submit(vec![step(&step_k, &x, 1)].into(), Done::new(first)).unwrap();
        assert!(ended.recv().unwrap().is_ok());
        let panics = |_: Result<_>| panic!("a callback of the test");
        queue.submit(Vec::new().into(), Done::new(panics)).unwrap();
        run(&*queue, Vec::new()).unwrap();
    }
}

#[test]
fn things_of_another_device_or_driver_are_refused() {
    let (ours, other) = (devices(), devices());
    for (device, other) in ours.iter().zip(&other) {
        let queue = device.queue().unwrap();
        let foreign = memory(&**other, 16, Storage::Shared);
        let refused = run(&*queue, vec![Command::Fill { target: whole(&foreign), pattern: vec![1] }]);
        assert!(
            matches!(&refused, Err(Error::InvalidArgument(text)) if text.contains("does not belong to Metal device")),
            "{refused:?}"
        );
        drop(queue.acknowledge());
        let (step_k, x) = (pipeline(&**other, STEP, "step_k"), memory(&**device, BYTES, Storage::Shared));
        let refused = run(&*queue, vec![step(&step_k, &x, 1)]);
        assert!(
            matches!(&refused, Err(Error::InvalidArgument(text)) if text.contains("`step_k`")),
            "{refused:?}"
        );
        write(&x, 0, &[1]);
    }
}

#[test]
fn threadgroups_beyond_the_limit_are_refused() {
    for device in devices() {
        let step_k = pipeline(&*device, STEP, "step_k");
        let most = step_k.max_threads_per_threadgroup();
        assert!(step_k.prepare(Dim3::from(most)).is_ok());
        for group in [Dim3::from(most + 1), Dim3::new(0, 1, 1), Dim3::new(u32::MAX, u32::MAX, 2)] {
            let error = step_k.prepare(group).unwrap_err();
            assert!(
                matches!(&error, Error::InvalidArgument(text) if text.contains("kernel `step_k`")),
                "{error}"
            );
        }
        expect_caps(&*device);
    }
}

fn expect_caps(device: &dyn Device) {
    let caps = device.caps();
    assert_eq!(caps.kind, elinvar_driver::DeviceKind::Metal);
    assert!(
        !caps.name.is_empty()
            && caps.limits.simdgroup_width > 0
            && caps.limits.working_set <= caps.limits.total_memory,
        "{caps:?}"
    );
    assert!(
        caps.limits.max_buffer_bytes <= caps.limits.total_memory
            && caps.limits.max_threadgroup_memory >= 16 << 10,
        "{caps:?}"
    );
    assert!(device.reset().is_err());
    assert!(!caps.features.priorities);
    for priority in [Priority::Low, Priority::High] {
        let refused = device.queue_with(priority).err();
        assert!(
            matches!(&refused, Some(Error::Unsupported(text)) if text.contains("no priorities")),
            "{refused:?}"
        );
    }
    // macOS reports the state of the system, which a GPU with unified memory is a part of.
    match device.thermal() {
        Ok(_) => assert!(caps.features.unified_memory),
        Err(Error::Unsupported(text)) => {
            assert!(!caps.features.unified_memory && text.contains("a chip of its own"), "{text}");
        }
        Err(other) => panic!("{other}"),
    }
}
