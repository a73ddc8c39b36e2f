//! Launches: arguments of every kind, grids and threadgroups of various shapes, threadgroup memory beyond 48 KiB, limits.

use std::sync::Arc;

use elinvar_driver::{Binding, Command, Dim3, Error, PipelineOptions};

use crate::bench::{Bench, Test, bound, dispatch, expect_all, fill, number, slice, submit, words};

pub const TESTS: &[Test] = &[
    ("an_addition", addition),
    ("values_and_buffers_for_constants", constants),
    ("bytes_for_a_pointer", bytes_for_a_pointer),
    ("grids_beyond_the_limits_of_y_and_z", long_grids),
    ("threadgroups_at_the_edge", edges),
    ("much_threadgroup_memory", threadgroup_memory),
    ("limits_of_a_kernel", limits),
    ("launches_without_a_pause", many),
    ("a_list_that_comes_again_and_again", again_and_again),
];

fn addition(bench: &Bench) {
    const N: u32 = 1_000_003;
    let add = bench.pipeline("add");
    let (a, b) = (
        bench.holding(&(0..N).collect::<Vec<_>>()),
        bench.holding(&(0..N).map(|i| i * 7).collect::<Vec<_>>()),
    );
    let c = bench.memory(4 * u64::from(N));
    let arguments = || vec![bound(&a), bound(&b), bound(&c), number(N - 3)];
    let launch = dispatch(&add, arguments(), Dim3::from(N), Dim3::from(256));
    let timing = submit(&bench.queue(), [launch]).wait().unwrap();
    assert!(timing.end_ns > timing.start_ns, "{timing:?}");
    expect_all(&words(&c), |i| if i as u32 >= N - 3 { 0 } else { 8 * i as u32 });
}

fn constants(bench: &Bench) {
    let add = bench.pipeline("add");
    let (a, c) = (bench.holding(&[1; 1000]), bench.memory(4000));
    let n = bench.holding(&[0, 0, 700]);
    let arguments = vec![bound(&a), bound(&a), bound(&c), Binding::Memory(slice(&n, 8, 4))];
    let queue = bench.queue();
    submit(&queue, [dispatch(&add, arguments, Dim3::from(1000), Dim3::from(64))]).wait().unwrap();
    expect_all(&words(&c), |i| if i < 700 { 2 } else { 0 });
}

fn bytes_for_a_pointer(bench: &Bench) {
    let take = bench.pipeline("take");
    let queue = bench.queue();
    let outs: Vec<_> = (0..300).map(|_| bench.memory(4 * 1000)).collect();
    let mut last = Vec::new();
    for (k, out) in outs.iter().enumerate() {
        let table: Vec<u8> = (0..100_u32).flat_map(|i| (i * 1000 + k as u32).to_ne_bytes()).collect();
        let arguments = vec![Binding::bytes(&table), bound(out)];
        last.push(submit(&queue, [dispatch(&take, arguments, Dim3::from(1000), Dim3::from(128))]));
    }
    for done in &last {
        done.wait().unwrap();
    }
    for (k, out) in outs.iter().enumerate() {
        expect_all(&words(out), |i| (i as u32 % 100) * 1000 + k as u32 + i as u32);
    }
}

fn long_grids(bench: &Bench) {
    let count = bench.pipeline("count");
    for (x, y, z) in [(1, 200_000, 1), (3, 5, 70_000), (2, 140_001, 3), (5, 3, 2)] {
        let out = bench.memory(4 * u64::from(x * y * z));
        let n = Binding::Bytes([x, y, z, 0].iter().flat_map(|n: &u32| n.to_ne_bytes()).collect());
        let launch = dispatch(&count, vec![bound(&out), n], Dim3::new(x, y, z), Dim3::new(2, 2, 1));
        submit(&bench.queue(), [launch]).wait().unwrap();
        expect_all(&words(&out), |_| 1);
    }
}

fn edges(bench: &Bench) {
    let size = bench.pipeline("size");
    let out = bench.memory(4 * 1000);
    submit(&bench.queue(), [dispatch(&size, vec![bound(&out)], Dim3::from(999), Dim3::from(128))])
        .wait()
        .unwrap();
    expect_all(&words(&out), |i| match i {
        0..896 => 128_128,
        896..999 => 103_128,
        _ => 0,
    });
}

fn threadgroup_memory(bench: &Bench) {
    let turn = bench.pipeline("turn");
    let data = bench.holding(&(0..20_000).collect::<Vec<u32>>());
    let launch = |a, b| {
        let arguments = vec![bound(&data), Binding::Threadgroup(a), Binding::Threadgroup(b)];
        dispatch(&turn, arguments, Dim3::from(256), Dim3::from(256))
    };
    let queue = bench.queue();
    submit(&queue, [launch(80_000, 20_000)]).wait().unwrap();
    expect_all(&words(&data), |i| 20_000 - i as u32);
    let most = bench.device.caps().limits.max_threadgroup_memory;
    let refused = submit(&queue, [launch(most, 16)]).wait();
    assert!(matches!(&refused, Err(Error::InvalidArgument(text)) if text.contains("`turn`")), "{refused:?}");
    assert!(queue.acknowledge().is_some());
}

fn limits(bench: &Bench) {
    let add = bench.pipeline("add");
    let most = add.max_threads_per_threadgroup();
    assert!((32..=bench.device.caps().limits.max_threads_per_threadgroup).contains(&most), "{most}");
    add.prepare(Dim3::from(most)).unwrap();
    for group in [Dim3::from(most + 1), Dim3::from(0), Dim3::new(1, 1, 65)] {
        let refused = add.prepare(group);
        assert!(
            matches!(&refused, Err(Error::InvalidArgument(text)) if text.contains("`add`")),
            "{refused:?}"
        );
    }
    let source = elinvar_driver::Source::named("kernels.metal", include_str!("kernels.metal"));
    let library = bench.device.compile(&source).unwrap();
    let missing = library.pipeline("none", &PipelineOptions::default()).err();
    assert!(matches!(&missing, Some(Error::InvalidArgument(_) | Error::Unsupported(_))), "{missing:?}");
}

fn many(bench: &Bench) {
    let step = bench.pipeline("step_k");
    let queue = bench.queue();
    let x = bench.memory(4 * 4096);
    let launch = |k| dispatch(&step, vec![bound(&x), number(k)], Dim3::from(4096), Dim3::from(256));
    for k in 0..5000 {
        submit(&queue, [launch(k)]);
    }
    submit(&queue, (5000..10_000).map(launch).collect::<Vec<_>>()).wait().unwrap();
    let expected = (0..10_000_u32).fold(0_u32, |x, k| x.wrapping_mul(3).wrapping_add(k));
    expect_all(&words(&x), |_| expected);
    submit(&queue, [fill(&x, 0)]).wait().unwrap();
}

/// From the third submission on the list is a CUDA graph; results and intermediate values stay the same.
fn again_and_again(bench: &Bench) {
    let step = bench.pipeline("step_k");
    let (queue, other) = (bench.queue(), bench.queue());
    let (x, y) = (bench.memory(4 * 1024), bench.memory(4 * 1024));
    let copy = |from: &_, to: &_| Command::Copy { source: slice(from, 0, 4096), target: slice(to, 0, 4096) };
    let shifted = Command::Copy { source: slice(&y, 0, 4092), target: slice(&y, 4, 4092) };
    let launch = |k| dispatch(&step, vec![bound(&x), number(k)], Dim3::from(1024), Dim3::from(256));
    let list: Vec<Command> =
        (0..200).map(launch).chain([copy(&x, &y), shifted, copy(&y, &x), fill(&y, 7)]).collect();
    let list: Arc<[Command]> = list.into();
    let mut expected = vec![0_u32; 1024];
    for round in 0..12 {
        let queue = if round % 4 == 3 { &other } else { &queue };
        submit(queue, list.clone()).wait().unwrap();
        for k in 0..200 {
            expected.iter_mut().for_each(|x| *x = x.wrapping_mul(3).wrapping_add(k));
        }
        expected.copy_within(0..1023, 1);
        expect_all(&words(&x), |i| expected[i]);
        expect_all(&words(&y), |_| 7);
    }
    // Many submissions in flight.
    let all: Vec<_> = (0..50).map(|_| submit(&queue, list.clone())).collect();
    for done in &all {
        done.wait().unwrap();
        for k in 0..200 {
            expected.iter_mut().for_each(|x| *x = x.wrapping_mul(3).wrapping_add(k));
        }
        expected.copy_within(0..1023, 1);
    }
    expect_all(&words(&x), |i| expected[i]);
}
