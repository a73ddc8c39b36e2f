//! Dispatches: which threadgroups run, in which order, with which arguments, and how they fail.

use std::any::Any;

use elinvar_driver::{Binding, Device, Dim3, Error, Fault, Library as _, PipelineOptions, Source};

use crate::kernel::CpuPipeline;
use crate::library::CpuLibrary;
use crate::testing::{self, bound, dispatch, memory, ordered_pipeline, pipeline, run, words};

#[test]
fn every_group_runs_once() {
    let (quick, slow) = (pipeline(testing::COUNT), pipeline(testing::SLOW_COUNT));
    for threads in [1, 2, 3, 8] {
        let device = testing::device(threads);
        let queue = device.queue().unwrap();
        for grid in
            [Dim3::from(1), Dim3::from(999), Dim3::new(7, 5, 3), Dim3::new(1, 1, 333), Dim3::from(70_001)]
        {
            for kernel in [&quick, &slow] {
                let counts = memory(&device, 4 * grid.volume() as usize);
                run(&*queue, vec![dispatch(kernel, grid, vec![bound(&counts)])]).unwrap();
                assert!(words(&counts).iter().all(|n| *n == 1), "{grid:?} on {threads} threads");
                if grid.x > 1000 {
                    break;
                }
            }
        }
    }
}

#[test]
fn grids_without_threads_run_nothing() {
    let device = testing::device(2);
    let queue = device.queue().unwrap();
    let (kernel, counts) = (pipeline(testing::COUNT), memory(&device, 4));
    for grid in [Dim3::new(0, 1, 1), Dim3::new(5, 0, 5), Dim3::new(1, 1, 0)] {
        run(&*queue, vec![dispatch(&kernel, grid, vec![bound(&counts)])]).unwrap();
    }
    assert_eq!(words(&counts), [0]);
    let grid = Dim3::new(u32::MAX, u32::MAX, u32::MAX);
    let error = run(&*queue, vec![dispatch(&kernel, grid, vec![bound(&counts)])]).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
}

#[test]
fn one_worker_starts_groups_in_ascending_order() {
    let device = testing::device(1);
    let queue = device.queue().unwrap();
    let (counter, order) = (memory(&device, 4), memory(&device, 4 * 35 * 9));
    let command = dispatch(&pipeline(testing::ORDER), (35, 3, 3), vec![bound(&counter), bound(&order)]);
    run(&*queue, vec![command]).unwrap();
    assert!(words(&order).into_iter().eq(0..35 * 9));
}

#[test]
fn groups_may_wait_for_earlier_groups() {
    const GROUPS: u32 = 10_000;
    let kernel = ordered_pipeline(testing::LOOK_BACK, true);
    for threads in [1, 4] {
        let device = testing::device(threads);
        let queue = device.queue().unwrap();
        for _ in 0..5 {
            let sums = memory(&device, 8 * GROUPS as usize);
            run(&*queue, vec![dispatch(&kernel, GROUPS, vec![bound(&sums)])]).unwrap();
            let low = words(&sums).into_iter().step_by(2);
            assert!(low.eq(1..=GROUPS), "{threads} threads");
        }
    }
}

#[test]
fn a_fault_stops_the_dispatch_and_names_its_place() {
    const GROUPS: u32 = 1_000_000;
    let kernel = pipeline(testing::FAULT);
    for threads in [1, 4] {
        let device = testing::device(threads);
        let queue = device.queue().unwrap();
        for wrong in [100, GROUPS / 2, GROUPS - 1] {
            let count = memory(&device, 4);
            let value = Binding::bytes(&u64::from(wrong).to_ne_bytes());
            let commands = vec![dispatch(&kernel, GROUPS, vec![bound(&count), value])];
            let Err(Error::Fault(fault)) = run(&*queue, commands) else { panic!("no fault") };
            let location = Some("test.metal:3".into());
            assert_eq!(
                fault,
                Fault { kernel: "kernel".into(), message: "it is the last".into(), location, launch: None }
            );
            assert!(words(&count)[0] < GROUPS, "{:?}", words(&count));
            if threads == 1 {
                assert_eq!(words(&count), [wrong]);
            }
            queue.acknowledge();
        }
    }
}

#[test]
fn groups_start_in_ascending_order_where_the_kernel_could_tell() {
    let text = "#include <metal_stdlib>
        using namespace metal;
        kernel void plain(device uint* out, uint i [[thread_position_in_grid]]) { out[i] = i; }
        kernel void counts(device atomic_uint* n) { atomic_fetch_add_explicit(n, 1u, memory_order_relaxed); }
        kernel void tickets(device atomic_uint* n, device uint* out, uint i [[thread_position_in_grid]]) {
            out[i] = atomic_fetch_add_explicit(n, 1u, memory_order_relaxed);
        }";
    let source = Source::named("order.metal", text);
    let library = CpuLibrary::new(&elinvar_cache::Cache::off(), &source, elinvar_driver::Log::new()).unwrap();
    for (name, ascending) in [("plain", false), ("counts", false), ("tickets", true)] {
        let pipeline = library.pipeline(name, &PipelineOptions::default()).unwrap();
        pipeline.prepare(Dim3::from(8)).unwrap();
        let pipeline: &dyn Any = &*pipeline;
        let kernel = pipeline.downcast_ref::<CpuPipeline>().unwrap().kernel(Dim3::from(8), 0).unwrap();
        assert_eq!(kernel.ascending, ascending, "{name}");
    }
}

#[test]
fn commands_of_a_submission_run_one_after_the_other() {
    let device = testing::device(4);
    let queue = device.queue().unwrap();
    let (kernel, value) = (pipeline(testing::STEP), memory(&device, 4));
    let step = |n: u32| dispatch(&kernel, 1, vec![bound(&value), Binding::bytes(&n.to_ne_bytes())]);
    let timing = run(&*queue, (1..=20).map(step).collect()).unwrap();
    assert!(timing.end_ns >= timing.start_ns);
    let expected = (1..=20).fold(0_u32, |sum, n| sum.wrapping_mul(3).wrapping_add(n));
    assert_eq!(words(&value), [expected]);
    let later = run(&*queue, vec![]).unwrap();
    assert!(later.start_ns >= timing.end_ns);
}

#[test]
fn threadgroup_memory_is_aligned_and_grows_with_the_launch() {
    let device = testing::device(2);
    let queue = device.queue().unwrap();
    let (kernel, out) = (pipeline(testing::THREADGROUP), memory(&device, 24));
    for (first, second, offset) in [(1, 8, 16), (16, 100, 16), (17, 40_000, 32), (0, 1, 0), (33, 1 << 20, 48)]
    {
        let length = Binding::bytes(&u64::to_ne_bytes(second));
        let bindings = vec![bound(&out), Binding::Threadgroup(first), Binding::Threadgroup(second), length];
        run(&*queue, vec![dispatch(&kernel, 1, bindings)]).unwrap();
        assert_eq!(words(&out), [0, 0, offset, 0, 77, 0]);
    }
    let huge = vec![bound(&out), Binding::Threadgroup(u64::MAX)];
    assert!(matches!(run(&*queue, vec![dispatch(&kernel, 1, huge)]), Err(Error::InvalidArgument(_))));
    queue.acknowledge();
    let large = vec![bound(&out), Binding::Threadgroup(1 << 61)];
    assert!(matches!(run(&*queue, vec![dispatch(&kernel, 1, large)]), Err(Error::OutOfMemory { .. })));
}

#[test]
fn values_are_copied_and_the_command_can_be_submitted_again() {
    let device = testing::device(1);
    let queue = device.queue().unwrap();
    // COUNT increments its first argument, here a value of the command.
    let value = Binding::bytes(&7_u32.to_ne_bytes());
    let command = dispatch(&pipeline(testing::COUNT), 1, vec![value]);
    run(&*queue, vec![command.clone(), command.clone()]).unwrap();
    let elinvar_driver::Command::Dispatch(dispatch) = command else { unreachable!() };
    let Binding::Bytes(bytes) = &dispatch.bindings[0] else { unreachable!() };
    assert_eq!(bytes[..], 7_u32.to_ne_bytes());
}

#[test]
fn sizes_that_were_not_prepared_are_refused() {
    let device = testing::device(1);
    let queue = device.queue().unwrap();
    let mut command = dispatch(&pipeline(testing::COUNT), 1, vec![]);
    if let elinvar_driver::Command::Dispatch(dispatch) = &mut command {
        dispatch.group = Dim3::from(2);
    }
    let error = run(&*queue, vec![command]).unwrap_err();
    assert!(error.to_string().contains("not been prepared for threadgroups of 2x1x1"), "{error}");
}

/// Changes of the rounding mode by a kernel do not affect other code on the worker, including Rust code.
#[cfg(target_arch = "x86_64")]
#[test]
fn floating_point_modes_end_with_the_kernel() {
    let device = testing::device(1);
    let queue = device.queue().unwrap();
    let (spoil, third) = (pipeline(testing::SPOIL), pipeline(testing::THIRD));
    let data = memory(&device, 8);
    testing::write(&data, &[3.0_f32, 0.0].map(f32::to_ne_bytes).concat());
    run(&*queue, vec![dispatch(&spoil, 1, vec![bound(&data)])]).unwrap();
    run(&*queue, vec![dispatch(&third, 1, vec![bound(&data)])]).unwrap();
    assert_eq!(f32::from_bits(words(&data)[1]), 1.0 / 3.0);
    // Called on the worker.
    let (sender, modes) = std::sync::mpsc::channel();
    let done =
        elinvar_driver::Done::new(move |_| sender.send(crate::float_state::FloatState::current()).unwrap());
    queue.submit(vec![dispatch(&spoil, 1, vec![bound(&data)])].into(), done).unwrap();
    assert_eq!(modes.recv().unwrap(), crate::float_state::FloatState::current());
}
