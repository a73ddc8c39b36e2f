//! Kernels that combine simdgroup functions with memory, barriers and control flow.

use elinvar::{Device, Grid};

use super::lanes::Shape;
use super::{CaseResult, expect_all, kernel, run};

cases!("simdgroup_kernels": places, two_levels, transposed_by_simdgroup, loop_while_any, compaction, after_a_loop,
    in_a_function, scan_of_a_row,
    in_step, returns_in_a_loop);

/// Simdgroup attributes agree with simdgroup functions: a thread's lane, and the threads that take part in its sum.
fn places(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "places",
        "kernel void places(device uint4* out, uint3 p [[thread_position_in_grid]], uint3 size [[threads_per_grid]],
                uint lane [[thread_index_in_simdgroup]], uint group [[simdgroup_index_in_threadgroup]],
                uint groups [[simdgroups_per_threadgroup]]) {
            uint i = p.x + size.x * (p.y + size.y * p.z);
            out[i] = uint4(lane, group, groups, simd_sum(i));
        }",
    )?;
    let shapes = [
        Shape::line(70, 70),
        Shape { grid: [19, 9, 1], group: [8, 6, 1] },
        Shape { grid: [33, 5, 1], group: [32, 2, 1] },
        Shape { grid: [7, 7, 5], group: [5, 4, 3] },
        Shape { grid: [3, 3, 40], group: [2, 2, 16] },
    ];
    for shape in shapes {
        let mut out = device.buffer::<[u32; 4]>(shape.threads())?;
        run(device, &kernel, shape.grid(), (&mut out,))?;
        let peers = shape.peers(32);
        expect_all(&out.to_vec()?, |t| {
            let (group, nominal) = shape.place(t);
            let last = (0..shape.threads()).map(|t| shape.place(t)).filter(|(g, _)| *g == group);
            let last = last.map(|(_, nominal)| nominal).max().unwrap_or(0);
            let sum: usize = peers[t].1.iter().flatten().sum();
            [nominal % 32, nominal / 32, last / 32 + 1, sum].map(|n| n as u32)
        });
    }
    Ok(())
}

/// A sum over a threadgroup: per simdgroup, then of these sums by the first simdgroup.
fn two_levels(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "two_levels",
        "kernel void two_levels(device const uint* in, device uint* out, uint i [[thread_position_in_grid]],
                uint lane [[thread_index_in_simdgroup]], uint group [[simdgroup_index_in_threadgroup]],
                uint groups [[simdgroups_per_threadgroup]]) {
            threadgroup uint parts[32];
            uint sum = simd_sum(in[i]);
            if (lane == 0) parts[group] = sum;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (group == 0) {
                uint all = simd_sum(lane < groups ? parts[lane] : 0u);
                if (simd_is_first()) parts[0] = all;
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
            out[i] = parts[0] + sum;
        }",
    )?;
    let input: Vec<u32> = (0..2100_u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let buffer = device.buffer_with_data(&input)?;
    for group in [32, 100, 256, 1024] {
        let mut out = device.buffer::<u32>(input.len())?;
        run(device, &kernel, Grid::threads(input.len()).group(group as u32), (&buffer, &mut out))?;
        let sums: Vec<Vec<u32>> = input
            .chunks(group)
            .map(|g| g.chunks(32).map(|s| s.iter().fold(0, |a: u32, b| a.wrapping_add(*b))).collect())
            .collect();
        expect_all(&out.to_vec()?, |i| {
            let parts = &sums[i / group];
            let all = parts.iter().fold(0, |a: u32, b| a.wrapping_add(*b));
            all.wrapping_add(parts[i % group / 32])
        });
    }
    Ok(())
}

/// Threads of a simdgroup exchange values in threadgroup memory, with a simdgroup barrier in between.
fn transposed_by_simdgroup(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "transposed",
        "kernel void transposed(device uint* data, constant uint& rounds, uint i [[thread_position_in_grid]],
                uint lane [[thread_index_in_simdgroup]], uint group [[simdgroup_index_in_threadgroup]]) {
            threadgroup uint shared[4][32];
            uint mine = data[i];
            for (uint round = 0; round < rounds + group; ++round) {
                shared[group][lane] = mine + round;
                simdgroup_barrier(mem_flags::mem_threadgroup);
                mine = shared[group][(lane * 5u + 3u) % 32u];
                simdgroup_barrier(mem_flags::mem_threadgroup);
            }
            data[i] = mine;
        }",
    )?;
    let mut expected: Vec<u32> = (0..384).map(|i| i * 17).collect();
    let mut data = device.buffer_with_data(&expected)?;
    run(device, &kernel, Grid::threads(384).group(128), (&mut data, 3_u32))?;
    for (number, part) in expected.chunks_mut(32).enumerate() {
        for round in 0..3 + number as u32 % 4 {
            let before = part.to_vec();
            for (lane, value) in part.iter_mut().enumerate() {
                *value = before[(lane * 5 + 3) % 32] + round;
            }
        }
    }
    expect_all(&data.to_vec()?, |i| expected[i]);
    Ok(())
}

/// A loop that all lanes of a simdgroup leave together; other simdgroups stay longer.
fn loop_while_any(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "collatz",
        "kernel void collatz(device const uint* in, device uint2* out, uint i [[thread_position_in_grid]]) {
            uint n = in[i], steps = 0, rounds = 0;
            while (simd_any(n != 1u)) {
                if (n != 1u) { n = n % 2u == 0u ? n / 2u : 3u * n + 1u; ++steps; }
                ++rounds;
            }
            out[i] = uint2(steps, rounds);
        }",
    )?;
    let input: Vec<u32> = (0..300).map(|i| i * 7 + 1).collect();
    let mut out = device.buffer::<[u32; 2]>(300)?;
    run(device, &kernel, Grid::threads(300).group(96), (&device.buffer_with_data(&input)?, &mut out))?;
    let steps: Vec<u32> = input
        .iter()
        .map(|n| {
            let next = |n: &u32| (*n != 1).then(|| if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 });
            std::iter::successors(Some(*n), next).count() as u32 - 1
        })
        .collect();
    let shape = Shape::line(300, 96);
    let peers = shape.peers(32);
    expect_all(&out.to_vec()?, |t| {
        [steps[t], peers[t].1.iter().flatten().map(|t| steps[*t]).max().unwrap_or(0)]
    });
    Ok(())
}

/// Stores the selected values contiguously, at positions from a ballot and from a prefix sum.
fn compaction(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "compact",
        "kernel void compact(device const int* in, device int* out, device atomic_uint* used,
                uint lane [[thread_index_in_simdgroup]], uint i [[thread_position_in_grid]]) {
            bool keep = in[i] % 3 == 0;
            ulong votes = simd_vote::vote_t(simd_ballot(keep));
            uint before = popcount(votes & ((1ul << lane) - 1));
            uint first = 0;
            if (simd_is_first()) first = atomic_fetch_add_explicit(used, popcount(uint(votes)), memory_order_relaxed);
            first = simd_broadcast_first(first);
            if (before != simd_prefix_exclusive_sum(uint(keep))) return;
            if (keep) out[first + before] = in[i];
        }",
    )?;
    let input: Vec<i32> = (0..777).map(|i| i * 5 % 1000).collect();
    let mut out = device.buffer_with_data(&[-1_i32; 777])?;
    let mut used = device.buffer_with_data(&[0_u32])?;
    let args = (&device.buffer_with_data(&input)?, &mut out, &mut used);
    run(device, &kernel, Grid::threads(777).group(128), args)?;
    let mut expected: Vec<i32> = input.into_iter().filter(|v| v % 3 == 0).collect();
    let count = expected.len();
    assert_eq!(used.to_vec()?, [count as u32]);
    let mut got = out.to_vec()?;
    assert!(got[count..].iter().all(|v| *v == -1));
    got.truncate(count);
    // The order of the simdgroups is not defined.
    got.sort_unstable();
    expected.sort_unstable();
    expect_all(&got, |i| expected[i]);
    Ok(())
}

/// Values after a loop that lanes leave separately, which were uniform inside the loop.
fn after_a_loop(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "last",
        "kernel void last(device const uint* in, device uint2* out, uint i [[thread_position_in_grid]]) {
            uint sum = 0, k = 0;
            for (; k <= in[i]; ++k) sum = simd_sum(k + 1u);
            out[i] = uint2(sum, simd_max(sum));
        }",
    )?;
    let input: Vec<u32> = (0..100).map(|i| i * 7 % 10).collect();
    let mut out = device.buffer::<[u32; 2]>(100)?;
    run(device, &kernel, Grid::threads(100).group(64), (&device.buffer_with_data(&input)?, &mut out))?;
    let peers = Shape::line(100, 64).peers(32);
    let sum = |t: usize| {
        let last = input[t];
        peers[t].1.iter().flatten().filter(|p| input[**p] >= last).count() as u32 * (last + 1)
    };
    expect_all(&out.to_vec()?, |t| [sum(t), peers[t].1.iter().flatten().map(|p| sum(*p)).max().unwrap_or(0)]);
    Ok(())
}

/// A struct with a custom operator, reduced by a tree of shuffles in a function template.
fn in_a_function(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "best",
        "struct Best { float value; uint at; };
        static Best better(Best a, Best b) {
            if (a.value > b.value || (a.value == b.value && a.at < b.at)) return a;
            return b;
        }
        template <typename T, typename F> static T reduced(T v, F f) {
            for (ushort step = 16; step > 0; step /= 2) v = f(v, step);
            return v;
        }
        kernel void best(device const float* in, device float* values, device uint* places,
                uint i [[thread_position_in_grid]]) {
            Best mine = {in[i], i};
            Best all = reduced(mine, [](Best b, ushort step) {
                Best other = {simd_shuffle_xor(b.value, step), simd_shuffle_xor(b.at, step)};
                return better(b, other);
            });
            values[i] = all.value;
            places[i] = all.at;
        }",
    )?;
    let input: Vec<f32> = (0..256_usize).map(|i| (i * 37 % 19) as f32).collect();
    let (mut values, mut places) = (device.buffer::<f32>(256)?, device.buffer::<u32>(256)?);
    let args = (&device.buffer_with_data(&input)?, &mut values, &mut places);
    run(device, &kernel, Grid::threads(256).group(64), args)?;
    let best = |i: usize| {
        let of = i / 32 * 32..i / 32 * 32 + 32;
        of.rev().max_by(|a, b| input[*a].total_cmp(&input[*b])).unwrap_or(0)
    };
    expect_all(&values.to_vec()?, |i| input[best(i)]);
    expect_all(&places.to_vec()?, |i| best(i) as u32);
    Ok(())
}

/// Prefix sums of a row by one threadgroup: within simdgroups, across them, and from one section to the next.
fn scan_of_a_row(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "scan",
        "kernel void scan(device const int* in, device int* out, constant uint& n,
                uint row [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                uint group [[simdgroup_index_in_threadgroup]], uint groups [[simdgroups_per_threadgroup]]) {
            threadgroup int parts[32];
            int carried = 0;
            for (uint start = 0; start < n; start += threads) {
                uint at = start + t;
                int value = at < n ? in[row * n + at] : 0;
                int sum = simd_prefix_inclusive_sum(value);
                if (lane == 31) parts[group] = sum;
                threadgroup_barrier(mem_flags::mem_threadgroup);
                if (group == 0 && lane < groups) parts[lane] = simd_prefix_inclusive_sum(parts[lane]);
                threadgroup_barrier(mem_flags::mem_threadgroup);
                sum += carried + (group > 0 ? parts[group - 1] : 0);
                if (at < n) out[row * n + at] = sum;
                carried += parts[groups - 1];
                threadgroup_barrier(mem_flags::mem_threadgroup);
            }
        }",
    )?;
    let (rows, n) = (3, 1000);
    let input: Vec<i32> = (0..rows * n).map(|i| (i * 31 % 101) as i32 - 50).collect();
    let buffer = device.buffer_with_data(&input)?;
    for group in [32, 128, 1024] {
        let mut out = device.buffer::<i32>(rows * n)?;
        run(device, &kernel, Grid::groups(rows).group(group), (&buffer, &mut out, n as u32))?;
        expect_all(&out.to_vec()?, |i| input[i / n * n..=i].iter().sum());
    }
    Ok(())
}

/// Simdgroups of a threadgroup that run the same loop, each with its own values.
fn in_step(device: &Device) -> CaseResult {
    const THREADS: usize = 256;
    const ROUNDS: usize = 7;
    let kernel = kernel(
        device,
        "in_step",
        "kernel void in_step(device const float* a, device float* out, constant uint& rounds,
                uint i [[thread_index_in_threadgroup]]) {
            float total = 0;
            for (uint k = 0; k < rounds; ++k) {
                float v = a[k * 256 + i];
                total += simd_sum(v) + 2.0f * simd_shuffle_xor(v, 5) + 3.0f * simd_broadcast(v, 7)
                       + 5.0f * simd_prefix_exclusive_sum(v) + 7.0f * quad_max(v);
            }
            out[i] = total;
        }",
    )?;
    let values: Vec<f32> = (0..THREADS * ROUNDS).map(|i| ((i * 13 + i / 31) % 17) as f32).collect();
    let (a, mut out) = (device.buffer_with_data(&values)?, device.buffer::<f32>(THREADS)?);
    run(device, &kernel, Grid::threads(THREADS).group(THREADS as u32), (&a, &mut out, ROUNDS as u32))?;
    expect_all(&out.to_vec()?, |i| {
        let round = |k: usize| {
            let (all, lane) = (&values[k * THREADS + i / 32 * 32..][..32], i % 32);
            let most = all[lane / 4 * 4..][..4].iter().copied().fold(0.0, f32::max);
            let before: f32 = all[..lane].iter().sum();
            all.iter().sum::<f32>() + 2.0 * all[lane ^ 5] + 3.0 * all[7] + 5.0 * before + 7.0 * most
        };
        (0..ROUNDS).map(round).sum()
    });
    Ok(())
}

/// Threads return in different iterations of a loop; those that remain pass its barriers, read what the others have stored, and count
/// themselves with a simdgroup function.
fn returns_in_a_loop(device: &Device) -> CaseResult {
    const ROUNDS: usize = 3;
    let kernel = kernel(
        device,
        "returns",
        "kernel void returns(device uint* out, constant uint& rounds, uint i [[thread_position_in_grid]],
                uint local [[thread_position_in_threadgroup]]) {
            threadgroup uint stored[64];
            uint value = i;
            for (uint round = 0; round < rounds; ++round) {
                threadgroup_barrier(mem_flags::mem_threadgroup);
                if (local % 4u == round) { stored[local] = value + 1000u * round; out[i] = value; return; }
                threadgroup_barrier(mem_flags::mem_threadgroup);
                value += stored[local / 4u * 4u + round] + simd_sum(1u);
            }
            out[i] = value;
        }",
    )?;
    for threads in [64usize, 128, 100, 36, 4] {
        let mut out = device.buffer::<u32>(threads)?;
        run(device, &kernel, Grid::threads(threads).group(64), (&mut out, ROUNDS as u32))?;
        let mut values: Vec<usize> = (0..threads).collect();
        for round in 0..ROUNDS {
            let before = values.clone();
            for thread in (0..threads).filter(|thread| thread % 4 > round) {
                let simdgroup = (thread / 32 * 32..threads).take(32);
                let remaining = simdgroup.filter(|other| other % 4 > round).count();
                values[thread] += before[thread / 4 * 4 + round] + 1000 * round + remaining;
            }
        }
        expect_all(&out.to_vec()?, |thread| values[thread] as u32);
    }
    Ok(())
}
