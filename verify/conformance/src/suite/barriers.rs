//! Threadgroup barriers: values written before a barrier are visible after it; divergent barriers.

use elinvar::{Device, DeviceKind, Error, Grid, Threadgroup};

use super::{CaseResult, expect_all, kernel, run};

cases!("barriers": neighbors, early_return_counts_as_arrived, uniform_branch, runtime_loop, private_array_survives,
    transpose_tile, two_dynamic_arguments, barrier_in_a_function, device_memory_too, different_barriers_fault,
    divergent_barrier_refused, nested_loops, edge_group, skipped_in_a_loop, left_by_some_in_the_last_round);

/// Each thread writes its value, waits, and reads that of its right neighbor, repeatedly.
const NEIGHBOURS: &str =
    "kernel void neighbors(device const uint* in [[buffer(0)]], device uint* out [[buffer(1)]],
        constant uint& rounds [[buffer(2)]], threadgroup uint* shared [[threadgroup(0)]],
        uint i [[thread_position_in_grid]], uint local [[thread_index_in_threadgroup]],
        uint threads [[threads_per_threadgroup]]) {
        uint mine = in[i];
        for (uint round = 0; round < rounds; ++round) {
            shared[local] = mine;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            mine = 3u * mine + shared[(local + 1) % threads] + round;
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
        out[i] = mine;
    }";

fn neighbors_of(device: &Device, n: usize, group: usize) -> CaseResult {
    let kernel = kernel(device, "neighbors", NEIGHBOURS)?;
    let input: Vec<u32> = (0..n as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let buffer = device.buffer_with_data(&input)?;
    let mut out = device.buffer::<u32>(n)?;
    let args = (&buffer, &mut out, 9_u32, Threadgroup::of::<u32>(group));
    run(device, &kernel, Grid::threads(n).group(group as u32), args)?;
    let mut expected = input;
    for part in expected.chunks_mut(group) {
        for round in 0..9 {
            let before = part.to_vec();
            for (i, value) in part.iter_mut().enumerate() {
                let neighbor = before[(i + 1) % before.len()];
                *value = before[i].wrapping_mul(3).wrapping_add(neighbor).wrapping_add(round);
            }
        }
    }
    expect_all(&out.to_vec()?, |i| expected[i]);
    Ok(())
}

fn neighbors(device: &Device) -> CaseResult {
    for group in [1, 2, 31, 32, 64, 256, 1024] {
        neighbors_of(device, 3 * group, group)?;
    }
    Ok(())
}

fn edge_group(device: &Device) -> CaseResult {
    neighbors_of(device, 1000, 256)?;
    neighbors_of(device, 5, 64)
}

fn early_return_counts_as_arrived(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "partial",
        "kernel void partial(device uint* out [[buffer(0)]], constant uint& n [[buffer(1)]],
                uint i [[thread_position_in_grid]], uint local [[thread_position_in_threadgroup]]) {
            threadgroup uint shared[64];
            shared[local] = 7u;
            if (i >= n) { out[i] = 1000u + i; return; }
            shared[local] = i;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            uint first = shared[0];
            if (local % 3u == 0u) { out[i] = first; return; }
            threadgroup_barrier(mem_flags::mem_threadgroup);
            out[i] = first + shared[local];
        }",
    )?;
    let mut out = device.buffer::<u32>(192)?;
    run(device, &kernel, Grid::threads(192).group(64), (&mut out, 150_u32))?;
    expect_all(&out.to_vec()?, |i| {
        let (i, first) = (i as u32, i as u32 / 64 * 64);
        if i >= 150 {
            1000 + i
        } else if i % 64 % 3 == 0 {
            first
        } else {
            first + i
        }
    });
    Ok(())
}

fn uniform_branch(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "maybe",
        "kernel void maybe(device uint* out [[buffer(0)]], device const uint* flags [[buffer(1)]],
                uint i [[thread_position_in_grid]], uint local [[thread_position_in_threadgroup]],
                uint group [[threadgroup_position_in_grid]], uint threads [[threads_per_threadgroup]]) {
            threadgroup uint shared[128];
            uint value = i * 5u;
            if (flags[group] != 0u) {
                shared[local] = value;
                threadgroup_barrier(mem_flags::mem_threadgroup);
                value = shared[threads - 1u - local];
                threadgroup_barrier(mem_flags::mem_threadgroup);
            } else {
                value += 1u;
            }
            out[i] = value;
        }",
    )?;
    let flags: Vec<u32> = vec![1, 0, 0, 1, 1];
    let buffer = device.buffer_with_data(&flags)?;
    let mut out = device.buffer::<u32>(5 * 128)?;
    run(device, &kernel, Grid::threads(5 * 128).group(128), (&mut out, &buffer))?;
    expect_all(&out.to_vec()?, |i| {
        let (group, local) = (i / 128, i % 128);
        if flags[group] != 0 { (group * 128 + 127 - local) as u32 * 5 } else { i as u32 * 5 + 1 }
    });
    Ok(())
}

fn runtime_loop(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "rotate_by",
        "kernel void rotate_by(device uint* out [[buffer(0)]], constant uint& steps [[buffer(1)]],
                uint local [[thread_position_in_threadgroup]], uint threads [[threads_per_threadgroup]]) {
            threadgroup uint a[96];
            threadgroup uint b[96];
            a[local] = local;
            uint step = 0u;
            while (true) {
                threadgroup_barrier(mem_flags::mem_threadgroup);
                if (step == steps) break;
                b[local] = a[(local + 1u) % threads];
                threadgroup_barrier(mem_flags::mem_threadgroup);
                a[local] = b[local];
                ++step;
            }
            out[local] = a[local];
        }",
    )?;
    for steps in [0, 1, 5, 95, 100] {
        let mut out = device.buffer::<u32>(96)?;
        run(device, &kernel, Grid::threads(96).group(96), (&mut out, steps))?;
        expect_all(&out.to_vec()?, |i| (i as u32 + steps) % 96);
    }
    Ok(())
}

fn nested_loops(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "tiles",
        "kernel void tiles(device uint* out [[buffer(0)]], constant uint2& size [[buffer(1)]],
                uint local [[thread_position_in_threadgroup]]) {
            threadgroup uint shared[40];
            uint sum = local;
            for (uint i = 0; i < size.x; ++i) {
                shared[local] = sum + i;
                threadgroup_barrier(mem_flags::mem_threadgroup);
                for (uint j = 0; j < size.y; ++j) {
                    sum += shared[(local + j) % 40u];
                    if (j % 2u == 0u) {
                        threadgroup_barrier(mem_flags::mem_threadgroup);
                        shared[(local + 3u * j) % 40u] = sum ^ j;
                        threadgroup_barrier(mem_flags::mem_threadgroup);
                    }
                }
                threadgroup_barrier(mem_flags::mem_threadgroup);
            }
            out[local] = sum;
        }",
    )?;
    let mut out = device.buffer::<u32>(40)?;
    let size = [4_u32, 5];
    run(device, &kernel, Grid::threads(40).group(40), (&mut out, elinvar::Arg::value(&size)))?;
    let mut shared = [0_u32; 40];
    let mut sums: [u32; 40] = std::array::from_fn(|i| i as u32);
    for i in 0..4 {
        for t in 0..40 {
            shared[t] = sums[t].wrapping_add(i);
        }
        for j in 0..5 {
            for t in 0..40 {
                sums[t] = sums[t].wrapping_add(shared[(t + j) % 40]);
            }
            if j % 2 == 0 {
                for t in 0..40 {
                    shared[(t + 3 * j) % 40] = sums[t] ^ j as u32;
                }
            }
        }
    }
    expect_all(&out.to_vec()?, |i| sums[i]);
    Ok(())
}

fn private_array_survives(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "private_array",
        "kernel void private_array(device uint* out [[buffer(0)]], constant uint& n [[buffer(1)]],
                uint i [[thread_position_in_grid]], uint local [[thread_position_in_threadgroup]]) {
            threadgroup uint shared[64];
            uint mine[16];
            for (uint k = 0; k < n; ++k) mine[k] = i * 100u + k;
            shared[local] = mine[i % n];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            uint sum = shared[(local + 1u) % 64u];
            for (uint k = 0; k < n; ++k) sum += mine[(k + i) % n] * (k + 1u);
            out[i] = sum;
        }",
    )?;
    let n = 11_u32;
    let mut out = device.buffer::<u32>(128)?;
    run(device, &kernel, Grid::threads(128).group(64), (&mut out, n))?;
    expect_all(&out.to_vec()?, |i| {
        let i = i as u32;
        let neighbor = i / 64 * 64 + (i + 1) % 64;
        let weighted: u32 = (0..n).map(|k| (i * 100 + (k + i) % n) * (k + 1)).sum();
        neighbor * 100 + neighbor % n + weighted
    });
    Ok(())
}

fn transpose_tile(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "transpose_tile",
        "kernel void transpose_tile(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
                uint2 p [[thread_position_in_grid]], uint2 local [[thread_position_in_threadgroup]],
                uint2 group [[threadgroup_position_in_grid]], uint2 size [[threads_per_grid]]) {
            threadgroup float tile[16][17];
            tile[local.y][local.x] = in[p.y * size.x + p.x];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            out[(group.x * 16u + local.y) * size.y + group.y * 16u + local.x] = tile[local.x][local.y];
        }",
    )?;
    let (w, h) = (64, 48);
    let input: Vec<f32> = (0..w * h).map(|i| i as f32).collect();
    let buffer = device.buffer_with_data(&input)?;
    let mut out = device.buffer::<f32>(w * h)?;
    run(device, &kernel, Grid::threads((w, h)).group((16, 16)), (&buffer, &mut out))?;
    expect_all(&out.to_vec()?, |i| input[i % h * w + i / h]);
    Ok(())
}

fn two_dynamic_arguments(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "two",
        "kernel void two(threadgroup uchar* small [[threadgroup(1)]], device uint* out [[buffer(0)]],
                threadgroup float4* large [[threadgroup(0)]], uint local [[thread_position_in_threadgroup]]) {
            threadgroup uint fixed[20];
            small[local] = uchar(local * 3u);
            large[local] = float4(local, 1, 2, 3);
            fixed[local] = 1000u * local;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            uint other = 19u - local;
            out[local] = fixed[other] + small[other] + uint(large[other].x + large[other].w);
        }",
    )?;
    let mut out = device.buffer::<u32>(20)?;
    let args = (Threadgroup::bytes(21), &mut out, Threadgroup::of::<[f32; 4]>(20));
    run(device, &kernel, Grid::threads(20).group(20), args)?;
    expect_all(&out.to_vec()?, |i| {
        let other = 19 - i as u32;
        1000 * other + other * 3 + other + 3
    });
    Ok(())
}

fn barrier_in_a_function(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "uses_sum",
        "static uint group_sum(uint value, threadgroup uint* shared, uint local, uint threads) {
            shared[local] = value;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            uint sum = 0;
            for (uint i = 0; i < threads; ++i) sum += shared[i];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            return sum;
        }
        kernel void uses_sum(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]],
                uint local [[thread_position_in_threadgroup]], uint threads [[threads_per_threadgroup]]) {
            threadgroup uint shared[50];
            uint a = group_sum(i, shared, local, threads);
            uint b = group_sum(i * i, shared, local, threads);
            out[i] = group_sum(a + local, shared, local, threads) ^ b;
        }",
    )?;
    let mut out = device.buffer::<u32>(100)?;
    run(device, &kernel, Grid::threads(100).group(50), (&mut out,))?;
    expect_all(&out.to_vec()?, |i| {
        let range = i as u32 / 50 * 50..i as u32 / 50 * 50 + 50;
        let (a, b): (u32, u32) = (range.clone().sum(), range.map(|i| i * i).sum());
        (0..50).map(|local| a + local).sum::<u32>() ^ b
    });
    Ok(())
}

fn device_memory_too(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "through_device",
        "kernel void through_device(device uint* data [[buffer(0)]], device uint* out [[buffer(1)]],
                uint i [[thread_position_in_grid]], uint local [[thread_position_in_threadgroup]],
                uint threads [[threads_per_threadgroup]]) {
            data[i] = i * 2u;
            threadgroup_barrier(mem_flags::mem_device);
            out[i] = data[i - local + (local + 7u) % threads];
        }",
    )?;
    let mut data = device.buffer::<u32>(256)?;
    let mut out = device.buffer::<u32>(256)?;
    run(device, &kernel, Grid::threads(256).group(64), (&mut data, &mut out))?;
    expect_all(&out.to_vec()?, |i| (i as u32 / 64 * 64 + (i as u32 % 64 + 7) % 64) * 2);
    Ok(())
}

/// The barrier that a thread reaches is only known at run time.
fn different_barriers_fault(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "mixed",
        "kernel void mixed(device uint* data [[buffer(0)]], uint local [[thread_position_in_threadgroup]]) {
            threadgroup uint shared[64];
            shared[local] = local;
            if (data[local] != 0u) {
                threadgroup_barrier(mem_flags::mem_threadgroup);
                shared[local] += 1u;
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
            data[local] = shared[63u - local];
        }",
    )?;
    let mut same = device.buffer_with_data(&[1_u32; 64])?;
    run(device, &kernel, Grid::threads(64).group(64), (&mut same,))?;
    expect_all(&same.to_vec()?, |i| 64 - i as u32);
    expect_defined(device)?;
    let mut flags = [0_u32; 64];
    flags[5] = 1;
    let mut mixed = device.buffer_with_data(&flags)?;
    match run(device, &kernel, Grid::threads(64).group(64), (&mut mixed,)) {
        Err(Error::Fault(fault)) => {
            assert_eq!(fault.kernel, "mixed");
            assert!(fault.message.contains("different barriers"), "{fault}");
            let location = fault.location.unwrap_or_default();
            assert!(
                ["mixed.metal:7", "mixed.metal:10"].iter().any(|l| location.starts_with(l)),
                "{location}"
            );
        }
        Ok(()) => {
            let text = "this device does not detect that threads of a threadgroup wait at different barriers";
            return Err(Error::unsupported(text).into());
        }
        other => panic!("expected a fault, got {other:?}"),
    }
    Ok(())
}

/// A barrier that some threads miss can hang a GPU permanently, so this is not tested on devices that do not detect it.
fn expect_defined(device: &Device) -> CaseResult {
    if device.kind() == DeviceKind::Metal {
        return Err(
            Error::unsupported("Metal leaves undefined what happens at a barrier that threads miss").into()
        );
    }
    Ok(())
}

/// That simdgroups reach different barriers is known before the launch.
fn divergent_barrier_refused(device: &Device) -> CaseResult {
    expect_defined(device)?;
    let kernel = kernel(
        device,
        "half_of_them",
        "kernel void half_of_them(device uint* data [[buffer(0)]], uint local [[thread_position_in_threadgroup]]) {
            if (local < 32u) {
                threadgroup_barrier(mem_flags::mem_threadgroup);
                data[local] += 2u;
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
            data[local] += 1u;
        }",
    );
    let mut data = device.buffer::<u32>(64)?;
    let result = kernel.and_then(|kernel| run(device, &kernel, Grid::threads(64).group(64), (&mut data,)));
    match result {
        Err(Error::Compile(diagnostics)) => {
            assert_eq!(diagnostics.len(), 1, "{diagnostics:?}");
            assert_eq!((diagnostics[0].file.as_str(), diagnostics[0].line), ("half_of_them.metal", 5));
            assert!(diagnostics[0].message.contains("threadgroup_barrier"), "{}", diagnostics[0]);
        }
        other => panic!("expected a diagnostic, got {other:?}"),
    }
    Ok(())
}

/// All threads skip the barrier in some rounds. The decision is uniform, but made from per-thread values, so a compiler cannot know that.
fn skipped_in_a_loop(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "skips",
        "kernel void skips(device uint* out [[buffer(0)]], device const uint* skips [[buffer(1)]],
                constant uint& rounds [[buffer(2)]], uint local [[thread_position_in_threadgroup]]) {
            threadgroup uint shared[64];
            uint sum = local;
            for (uint round = 0; round < rounds; ++round) {
                threadgroup_barrier(mem_flags::mem_threadgroup);
                sum = sum * 3u + round;
                if (skips[round * 64u + local] != 0u) continue;
                shared[local] = sum;
                threadgroup_barrier(mem_flags::mem_threadgroup);
                sum += shared[local ^ 1u] * (round + 1u);
            }
            out[local] = sum;
        }",
    )?;
    let rounds = [0_u32, 1, 0, 0, 1, 1, 0];
    let skips: Vec<u32> = rounds.iter().flat_map(|skip| [*skip; 64]).collect();
    let skips = device.buffer_with_data(&skips)?;
    let mut sums: [u32; 64] = std::array::from_fn(|i| i as u32);
    for (round, skip) in (0_u32..).zip(rounds) {
        let shared = sums.map(|sum| sum.wrapping_mul(3).wrapping_add(round));
        let other = |t: usize| if skip == 0 { shared[t ^ 1].wrapping_mul(round + 1) } else { 0 };
        sums = std::array::from_fn(|t| shared[t].wrapping_add(other(t)));
    }
    // Also with a partial threadgroup at the edge of the grid.
    for threads in [64, 60] {
        let mut out = device.buffer::<u32>(64)?;
        let args = (&mut out, &skips, rounds.len() as u32);
        run(device, &kernel, Grid::threads(threads).group(64), args)?;
        expect_all(&out.to_vec()?, |i| if i < threads { sums[i] } else { 0 });
    }
    Ok(())
}

/// In the last round some threads skip the barrier and return while the others wait: a thread that has returned counts as arrived.
fn left_by_some_in_the_last_round(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "leaves",
        "kernel void leaves(device uint* out [[buffer(0)]], device const uint* last [[buffer(1)]],
                constant uint& rounds [[buffer(2)]], uint local [[thread_position_in_threadgroup]]) {
            threadgroup uint shared[64];
            uint sum = local;
            for (uint round = 0; round < rounds; ++round) {
                threadgroup_barrier(mem_flags::mem_threadgroup);
                sum = sum * 3u + round;
                if (last[local] == round) continue;
                shared[local] = sum;
                threadgroup_barrier(mem_flags::mem_threadgroup);
                sum += shared[local ^ 2u] * (round + 1u);
            }
            out[local] = sum;
        }",
    )?;
    let rounds = 4_u32;
    let leaves = |t: usize| t % 4 == 1 || t % 4 == 3 || t > 40;
    let last: Vec<u32> = (0..64).map(|t| if leaves(t) { rounds - 1 } else { rounds }).collect();
    let last = device.buffer_with_data(&last)?;
    let mut out = device.buffer::<u32>(64)?;
    run(device, &kernel, Grid::threads(64).group(64), (&mut out, &last, rounds))?;
    let mut sums: [u32; 64] = std::array::from_fn(|i| i as u32);
    let mut shared = [0_u32; 64];
    for round in 0..rounds {
        let stays = |t: usize| round < rounds - 1 || !leaves(t);
        sums = sums.map(|sum| sum.wrapping_mul(3).wrapping_add(round));
        (0..64).filter(|t| stays(*t)).for_each(|t| shared[t] = sums[t]);
        for t in (0..64).filter(|t| stays(*t)) {
            sums[t] = sums[t].wrapping_add(shared[t ^ 2].wrapping_mul(round + 1));
        }
    }
    expect_all(&out.to_vec()?, |i| sums[i]);
    Ok(())
}
