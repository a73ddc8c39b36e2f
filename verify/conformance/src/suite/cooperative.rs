//! Cooperative launches: grid barriers, what is visible and what is kept behind them, and the launches that are rejected.

use std::time::Duration;

use elinvar::{
    Args, CheckedKernel, Completion, Device, DeviceKind, Error, Graph, Grid, Kernel, Source, Stream,
    Threadgroup,
};

use super::{Case, CaseResult, expect_all};

mod control_flow;

cases!("cooperative": stencil, producers_and_consumers, conjugate_gradient, several_barriers, loops_and_branches, names_and_statements,
    threadgroup_memory_is_kept, private_values_are_kept, threads_that_return, group_sizes, many_groups, atomics_across_groups,
    too_large_a_grid, ordinary_launches_are_refused, no_grid_barrier, a_fault_ends_the_launch, checked_kernels,
    a_missed_barrier, a_deadline_while_groups_wait, repeated_in_a_graph, at_the_same_time);

/// All cases of the chapter.
pub(super) fn all() -> Vec<Case> {
    [CASES, control_flow::CASES].concat()
}

const PREAMBLE: &str = "#include <metal_stdlib>\n#include <elinvar/grid>\nusing namespace metal;\n";

/// Compiles `body` after a preamble of three lines.
pub(super) fn kernel(device: &Device, name: &str, body: &str) -> elinvar::Result<Kernel> {
    device.compile(Source::named(format!("{name}.metal"), format!("{PREAMBLE}{body}")))?.kernel(name)
}

fn checked(device: &Device, name: &str, body: &str) -> elinvar::Result<CheckedKernel> {
    device.compile(Source::named(format!("{name}.metal"), format!("{PREAMBLE}{body}")))?.checked_kernel(name)
}

/// Launches on a stream. The kernels of this chapter stay within their arguments' bounds.
fn launch(kernel: &Kernel, stream: &Stream, grid: Grid, args: impl Args) -> elinvar::Result<Completion> {
    // SAFETY: every kernel of this chapter stays within its arguments; see its case.
    #[allow(unsafe_code)]
    unsafe {
        kernel.launch_cooperative(stream, grid, args)
    }
}

/// Launches on a new stream and waits.
pub(super) fn run(device: &Device, kernel: &Kernel, grid: Grid, args: impl Args) -> elinvar::Result<()> {
    launch(kernel, &device.stream()?, grid, args)?.wait().map(drop)
}

/// Numbers that differ from one another.
fn mixed(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| i.wrapping_mul(2_654_435_761) ^ i >> 3).collect()
}

/// The most groups of a size, at most `groups`.
fn at_most(kernel: &Kernel, groups: u64, group: u32) -> elinvar::Result<usize> {
    Ok(kernel.resident_groups(group, 0)?.min(groups) as usize)
}

const STENCIL: &str =
    "uint next(device const uint* from, uint i, uint n) {
        return 3u * from[i] + 5u * from[(i + 1u) % n] + 7u * from[(i + n - 1u) % n] + 1u;
    }
    kernel void step_once(device const uint* from [[buffer(0)]], device uint* to [[buffer(1)]], constant uint& n [[buffer(2)]],
        uint i [[thread_position_in_grid]]) { to[i] = next(from, i, n); }
    kernel void stencil(device uint* a [[buffer(0)]], device uint* b [[buffer(1)]], constant uint& n [[buffer(2)]],
        constant uint& steps [[buffer(3)]], uint i [[thread_position_in_grid]]) {
        for (uint s = 0; s < steps; ++s) {
            device uint* from = s % 2u == 0u ? a : b;
            device uint* to = s % 2u == 0u ? b : a;
            to[i] = next(from, i, n);
            elinvar::grid_barrier();
        }
    }";

/// Many steps in one launch equal as many launches, and the host's numbers.
fn stencil(device: &Device) -> CaseResult {
    let (one, many) = (kernel(device, "stencil", STENCIL)?, kernel(device, "step_once", STENCIL)?);
    let stream = device.stream()?;
    for (n, group, steps) in [(4096, 64, 1000_u32), (5000, 256, 101), (1, 1, 5), (100, 33, 64)] {
        let mut expected = mixed(n);
        let buffers =
            || -> elinvar::Result<_> { Ok((device.buffer_with_data(&expected)?, device.buffer::<u32>(n)?)) };
        let ((mut a, mut b), (mut c, mut d)) = (buffers()?, buffers()?);
        let grid = || Grid::threads(n).group(group);
        launch(&one, &stream, grid(), (&mut a, &mut b, n as u32, steps))?;
        for step in 0..steps {
            let (from, to) = if step % 2 == 0 { (&c, &mut d) } else { (&d, &mut c) };
            super::launch(&many, &stream, grid(), (from, to, n as u32))?;
        }
        for _ in 0..steps {
            let at = |i: usize| expected[i % n];
            let next = |i: usize| {
                let sides = at(i + 1).wrapping_mul(5).wrapping_add(at(i + n - 1).wrapping_mul(7));
                at(i).wrapping_mul(3).wrapping_add(sides).wrapping_add(1)
            };
            expected = (0..n).map(next).collect();
        }
        let results = if steps % 2 == 0 { [a.to_vec()?, c.to_vec()?] } else { [b.to_vec()?, d.to_vec()?] };
        results.iter().for_each(|result| expect_all(result, |i| expected[i]));
    }
    Ok(())
}

/// Each threadgroup reads what another one, and all others, wrote before the barrier.
fn producers_and_consumers(device: &Device) -> CaseResult {
    let relay = kernel(
        device,
        "relay",
        "kernel void relay(device uint* ring [[buffer(0)]], device uint* out [[buffer(1)]], constant uint& rounds [[buffer(2)]],
            uint i [[thread_position_in_grid]], uint n [[threads_per_grid]], uint local [[thread_position_in_threadgroup]],
            uint group [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]],
            uint threads [[threads_per_threadgroup]]) {
            uint value = ring[i];
            for (uint round = 1; round <= rounds; ++round) {
                uint from = ((group + round) % groups) * threads + (threads - 1u - local);
                uint taken = ring[from];
                elinvar::grid_barrier();
                value = value * 9u + taken;
                ring[i] = value;
                elinvar::grid_barrier();
            }
            out[i] = ring[n - 1u - i];
        }",
    )?;
    let (groups, threads, rounds) = (24, 96, 30);
    let mut ring = mixed(groups * threads);
    let (mut buffer, mut out) = (device.buffer_with_data(&ring)?, device.buffer::<u32>(ring.len())?);
    run(device, &relay, Grid::groups(groups).group(threads), (&mut buffer, &mut out, rounds as u32))?;
    for round in 1..=rounds {
        let taken = |i: usize| ring[((i / threads + round) % groups) * threads + (threads - 1 - i % threads)];
        ring = (0..ring.len()).map(|i| ring[i].wrapping_mul(9).wrapping_add(taken(i))).collect();
    }
    expect_all(&out.to_vec()?, |i| ring[ring.len() - 1 - i]);
    expect_all(&buffer.to_vec()?, |i| ring[i]);
    Ok(())
}

/// Solves A x = b for a matrix with diagonal 4 and neighbors -1, in one launch.
const CG: &str =
    "kernel void solve(device float* x [[buffer(0)]], device const float* b [[buffer(1)]], device float* direction [[buffer(2)]],
        device float* partial [[buffer(3)]], constant uint& most [[buffer(4)]], device uint* steps [[buffer(5)]],
        threadgroup float* local [[threadgroup(0)]], uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {
        auto grid = elinvar::this_grid();
        float solution = 0.0f, residual = b[i], p = residual;
        direction[i] = p;
        float rr = grid.reduce(residual * residual, elinvar::plus(), local, partial);
        uint step = 0;
        for (; step < most && rr > 1e-12f; ++step) {
            float left = i > 0u ? direction[i - 1u] : 0.0f, right = i + 1u < n ? direction[i + 1u] : 0.0f;
            float ap = 4.0f * p - left - right;
            float alpha = rr / grid.reduce(p * ap, elinvar::plus(), local, partial);
            solution += alpha * p;
            residual -= alpha * ap;
            float next = grid.reduce(residual * residual, elinvar::plus(), local, partial);
            p = residual + next / rr * p;
            rr = next;
            direction[i] = p;
            grid.sync();
        }
        x[i] = solution;
        if (i == 0u) steps[0] = step;
    }";

fn conjugate_gradient(device: &Device) -> CaseResult {
    let solve = kernel(device, "solve", CG)?;
    for (n, group) in [(2048, 128), (300, 64), (32, 32)] {
        let solution: Vec<f64> = (0..n).map(|i| f64::from((i * 37 % 101) as u32) / 50.0 - 1.0).collect();
        let at = |i: i64| usize::try_from(i).ok().and_then(|i| solution.get(i)).copied().unwrap_or(0.0);
        let b: Vec<f32> = (0..n as i64).map(|i| (4.0 * at(i) - at(i - 1) - at(i + 1)) as f32).collect();
        let (mut x, b) = (device.buffer::<f32>(n)?, device.buffer_with_data(&b)?);
        let (mut direction, mut partial) =
            (device.buffer::<f32>(n)?, device.buffer::<f32>(n.div_ceil(group))?);
        let mut steps = device.buffer::<u32>(1)?;
        let memory = Threadgroup::of::<f32>(group);
        let args = (&mut x, &b, &mut direction, &mut partial, 100_u32, &mut steps, memory);
        run(device, &solve, Grid::threads(n).group(group as u32), args)?;
        for (i, value) in x.to_vec()?.into_iter().enumerate() {
            assert!(
                (f64::from(value) - solution[i]).abs() < 1e-4,
                "{i} of {n}: {value}, not {}",
                solution[i]
            );
        }
        // The condition number is below 3: an error falls by a factor of 3.7 in each step at least.
        let steps = steps.to_vec()?[0];
        assert!((5..40).contains(&steps), "{steps} steps");
    }
    Ok(())
}

/// Barriers in sequence, in a function, directly behind one another, and beside a threadgroup barrier.
fn several_barriers(device: &Device) -> CaseResult {
    let shift = kernel(
        device,
        "shift",
        "void move_by(device uint* x, uint i, uint n, uint by) {
            uint taken = x[(i + by) % n];
            elinvar::grid_barrier();
            x[i] = taken;
            elinvar::this_grid().sync();
        }
        kernel void shift(device uint* x [[buffer(0)]], device uint* out [[buffer(1)]], uint i [[thread_position_in_grid]],
            uint n [[threads_per_grid]], uint local [[thread_position_in_threadgroup]], uint threads [[threads_per_threadgroup]]) {
            threadgroup uint part[64];
            x[i] = i * i;
            elinvar::grid_barrier();
            elinvar::grid_barrier();
            move_by(x, i, n, 1u);
            part[local] = x[(i + 65u) % n];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            uint across = part[threads - 1u - local];
            move_by(x, i, n, 100u);
            elinvar::grid_barrier();
            out[i] = across * 3u + x[n - 1u - i];
        }",
    )?;
    let n = 640;
    let (mut x, mut out) = (device.buffer::<u32>(n)?, device.buffer::<u32>(n)?);
    run(device, &shift, Grid::threads(n).group(64), (&mut x, &mut out))?;
    let square = |i: usize| (i % n * (i % n)) as u32;
    expect_all(&out.to_vec()?, |i| {
        let mirrored = i / 64 * 64 + (63 - i % 64);
        square(mirrored + 66) * 3 + square(n - 1 - i + 101)
    });
    Ok(())
}

/// Barriers in nested loops with exits, and in branches that are uniform over the grid.
fn loops_and_branches(device: &Device) -> CaseResult {
    let paths = kernel(
        device,
        "paths",
        "kernel void paths(device uint* x [[buffer(0)]], device const uint* plan [[buffer(1)]], constant uint& length [[buffer(2)]],
            uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {
            uint at = 0;
            while (true) {
                uint what = at < length ? plan[at] : 9u;
                ++at;
                if (what == 9u) break;
                uint taken = x[(i + what) % n];
                if (what == 0u) { x[i] += 1u; elinvar::grid_barrier(); continue; }
                if (what == 1u) {
                    elinvar::grid_barrier();
                    x[i] = taken + 1u;
                } else if (what == 2u) {
                    for (uint k = 0; k < at; ++k) {
                        elinvar::grid_barrier();
                        x[i] = taken + k;
                        elinvar::grid_barrier();
                        taken = x[(i + k) % n];
                        if (k == 3u) break;
                    }
                    elinvar::grid_barrier();
                    x[i] ^= taken;
                } else {
                    elinvar::grid_barrier();
                    x[i] = taken * what;
                }
                elinvar::grid_barrier();
            }
        }",
    )?;
    let n = 700;
    for plan in [vec![0, 1, 0, 2, 3, 1, 0, 7, 2, 1], vec![9], vec![0, 0], vec![2, 2, 2, 9, 1], vec![1; 50]] {
        let mut x = mixed(n);
        let (mut buffer, steps) = (device.buffer_with_data(&x)?, device.buffer_with_data(&plan)?);
        let args = (&mut buffer, &steps, plan.len() as u32);
        run(device, &paths, Grid::threads(n).group(100), args)?;
        for (at, what) in plan.iter().copied().take_while(|what| *what != 9).enumerate() {
            let read = |x: &[u32], by: usize| (0..n).map(|i| x[(i + by) % n]).collect::<Vec<_>>();
            let mut taken = read(&x, what as usize);
            match what {
                0 => x.iter_mut().for_each(|x| *x = x.wrapping_add(1)),
                1 => x = taken.iter().map(|taken| taken.wrapping_add(1)).collect(),
                2 => {
                    for k in 0..=(at as u32).min(3) {
                        x = taken.iter().map(|taken| taken.wrapping_add(k)).collect();
                        taken = read(&x, k as usize);
                    }
                    x = x.iter().zip(&taken).map(|(x, taken)| x ^ taken).collect();
                }
                _ => x = taken.iter().map(|taken| taken.wrapping_mul(what)).collect(),
            }
        }
        expect_all(&buffer.to_vec()?, |i| x[i]);
    }
    Ok(())
}

/// Variables of one name in several scopes, parameters that change, and statements of all forms around barriers.
fn names_and_statements(device: &Device) -> CaseResult {
    let names = kernel(
        device,
        "names",
        "kernel void names(device uint* x [[buffer(0)]], device uint* out [[buffer(1)]], uint i [[thread_position_in_grid]],
            const uint n [[threads_per_grid]]) {
            const uint first = i * 3u + 1u;
            uint value = first, step = 0, left(n - i);
            i += 1u;
            x[i - 1u] = value;
            elinvar::grid_barrier();
            device uint* own = x + i - 1u;
            device const uint* next = x + (i % n);
            do {
                uint value = *next + step; // another one
                { uint step = value; value = step * 2u; }
                elinvar::grid_barrier();
                if (step == 1u) { ++step; continue; }
                *own = value;
                elinvar::grid_barrier();
                ++step;
            } while (step < 4u);
            for (;;) {
                if (step > 6u) break;
                uint2 pair{step, value};
                if (step % 2u == 0u) elinvar::grid_barrier();
                else step += pair.x - pair.x;
                for (uint k = 0; k < 3u; ++k) { if (k == 1u) continue; if (k == 2u) break; value += pair.x * pair.y; }
                ++step;
            }
            switch (step % 3u) { case 0: value += 1u; break; default: value += 2u; }
            out[i - 1u] = value + i + left + first;
        }",
    )?;
    let n = 333;
    let (mut x, mut out) = (device.buffer::<u32>(n)?, device.buffer::<u32>(n)?);
    run(device, &names, Grid::threads(n).group(50), (&mut x, &mut out))?;
    let first = |i: usize| 3 * i as u32 + 1;
    let mut expected: Vec<u32> = (0..n).map(first).collect();
    for step in [0, 2, 3] {
        expected = (0..n).map(|i| (expected[(i + 1) % n].wrapping_add(step)).wrapping_mul(2)).collect();
    }
    expect_all(&x.to_vec()?, |i| expected[i]);
    // Three steps from 4 on: times 5, 6 and 7; then 7 modulo 3 is 1.
    expect_all(&out.to_vec()?, |i| first(i) * 210 + 2 + (i as u32 + 1) + (n - i) as u32 + first(i));
    Ok(())
}

/// Static and dynamic threadgroup memory of each group is kept while the others run.
fn threadgroup_memory_is_kept(device: &Device) -> CaseResult {
    let keep = kernel(
        device,
        "keep",
        "struct Pair { uint a; ushort b; };
        kernel void keep(device uint* x [[buffer(0)]], device uint* out [[buffer(1)]], threadgroup uint* dynamic [[threadgroup(0)]],
            threadgroup ushort* more [[threadgroup(1)]], uint i [[thread_position_in_grid]], uint n [[threads_per_grid]],
            uint local [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
            uint threads [[threads_per_threadgroup]]) {
            threadgroup Pair pairs[50];
            threadgroup uint total;
            pairs[local] = Pair{i * 7u, ushort(group)};
            dynamic[local] = i ^ 1234u;
            more[local] = ushort(i * 3u);
            if (local == 0u) total = group * 1000u;
            for (uint round = 0; round < 4u; ++round) {
                x[i] = i + round;
                elinvar::grid_barrier();
                uint other = x[(i + threads * 3u + 1u) % n];
                dynamic[(local + round) % threads] += other;
                if (local == round) total += other;
                elinvar::grid_barrier();
            }
            uint next = (local + 1u) % threads;
            out[i] = pairs[next].a + pairs[next].b * 3u + dynamic[next] + more[next] + total;
        }",
    )?;
    let (groups, threads) = (37, 50);
    let n = groups * threads;
    let (mut x, mut out) = (device.buffer::<u32>(n)?, device.buffer::<u32>(n)?);
    let memory = (Threadgroup::of::<u32>(threads), Threadgroup::of::<u16>(threads));
    let args = (&mut x, &mut out, memory.0, memory.1);
    run(device, &keep, Grid::groups(groups).group(threads), args)?;
    let other = |i: usize, round: usize| ((i + threads * 3 + 1) % n + round) as u32;
    expect_all(&out.to_vec()?, |i| {
        let (group, next) = (i / threads, (i % threads + 1) % threads);
        let first = group * threads;
        let of = (first + next) as u32;
        let added = (0..4).map(|round| other(first + (next + threads - round) % threads, round));
        let dynamic = added.fold(of ^ 1234, u32::wrapping_add);
        let total =
            (0..4).map(|round| other(first + round, round)).fold(group as u32 * 1000, u32::wrapping_add);
        let pair = of.wrapping_mul(7).wrapping_add(group as u32 * 3);
        pair.wrapping_add(dynamic).wrapping_add(of * 3 % 65536).wrapping_add(total)
    });
    Ok(())
}

/// Values of all kinds and private arrays are kept.
fn private_values_are_kept(device: &Device) -> CaseResult {
    let keep = kernel(
        device,
        "privates",
        "kernel void privates(device uint* x [[buffer(0)]], device uint* out [[buffer(1)]], device const uint* seeds [[buffer(2)]],
            uint i [[thread_position_in_grid]], uint n [[threads_per_grid]], uint lane [[thread_index_in_simdgroup]],
            uint group [[threadgroup_position_in_grid]]) {
            uint seed = seeds[i];
            uint shared = seeds[group];
            float4 v = float4(float(seed % 100u), float(i % 7u), 3.0f, 0.5f);
            half h = half(seed % 64u);
            ulong wide = ulong(seed) * 4294967311ul;
            bool odd = (seed & 1u) != 0u;
            ushort small = ushort(seed);
            uint table[8];
            for (uint k = 0; k < 8u; ++k) table[k] = seed * (k + 1u);
            thread uint* place = &table[seed % 8u];
            for (uint round = 0; round < 3u; ++round) {
                x[i] = seed + round;
                elinvar::grid_barrier();
                uint other = x[(i + 517u) % n];
                table[other % 8u] += other;
                *place += round;
                v.x += float(other % 16u);
                wide ^= other;
                if (odd) small += ushort(other);
                elinvar::grid_barrier();
            }
            uint sum = 0;
            for (uint k = 0; k < 8u; ++k) sum = sum * 31u + table[k];
            out[i] = sum + uint(v.x) + uint(v.y) * 3u + uint(v.z + v.w) + uint(h) + uint(wide >> 7) + small + shared + lane;
        }",
    )?;
    let n = 1500;
    let seeds = mixed(n);
    let (mut x, mut out) = (device.buffer::<u32>(n)?, device.buffer::<u32>(n)?);
    let buffer = device.buffer_with_data(&seeds)?;
    run(device, &keep, Grid::threads(n).group(96), (&mut x, &mut out, &buffer))?;
    expect_all(&out.to_vec()?, |i| {
        let seed = seeds[i];
        let mut table: Vec<u32> = (1..=8).map(|k| seed.wrapping_mul(k)).collect();
        let (mut vx, mut wide, mut small) =
            (seed % 100, u64::from(seed).wrapping_mul(4_294_967_311), seed as u16);
        for round in 0..3 {
            let other = seeds[(i + 517) % n].wrapping_add(round);
            let places = [(other % 8, other), (seed % 8, round)];
            places.iter().for_each(|(k, by)| table[*k as usize] = table[*k as usize].wrapping_add(*by));
            vx += other % 16;
            wide ^= u64::from(other);
            small = small.wrapping_add(if seed & 1 == 1 { other as u16 } else { 0 });
        }
        let sum = table.iter().fold(0_u32, |sum, value| sum.wrapping_mul(31).wrapping_add(*value));
        let parts = [vx, (i % 7) as u32 * 3, 3, seed % 64, (wide >> 7) as u32, small.into(), seeds[i / 96]];
        parts.into_iter().fold(sum, u32::wrapping_add).wrapping_add((i % 96 % 32) as u32)
    });
    Ok(())
}

/// Threads that return count as arrived, also the first ones of a threadgroup.
fn threads_that_return(device: &Device) -> CaseResult {
    let leave = kernel(
        device,
        "leave",
        "kernel void leave(device uint* x [[buffer(0)]], device uint* out [[buffer(1)]], uint i [[thread_position_in_grid]],
            uint n [[threads_per_grid]], uint local [[thread_position_in_threadgroup]], uint threads [[threads_per_threadgroup]]) {
            x[i] = i;
            out[i] = 1u;
            if (local < 5u) return;
            elinvar::grid_barrier();
            out[i] = 2u + x[(i + 501u) % n];
            if (local % 3u == 0u) return;
            elinvar::grid_barrier();
            x[i] = 7u * i;
            elinvar::grid_barrier();
            if (local + 1u != threads) return;
            out[i] += x[(i + 1000u) % n];
            elinvar::grid_barrier();
            out[i] += 1u;
        }",
    )?;
    let (n, group) = (2000, 128);
    let (mut x, mut out) = (device.buffer::<u32>(n)?, device.buffer::<u32>(n)?);
    run(device, &leave, Grid::threads(n).group(group as u32), (&mut x, &mut out))?;
    let seven = |local: usize| local >= 5 && !local.is_multiple_of(3);
    expect_all(&out.to_vec()?, |i| {
        let (local, far) = (i % group, ((i + 1000) % n) as u32);
        let first = if local < 5 { 1 } else { 2 + ((i + 501) % n) as u32 };
        let size = group.min(n - i / group * group);
        let is_last = local + 1 == size && seven(local);
        first + if is_last { 1 + far * if seven(far as usize % group) { 7 } else { 1 } } else { 0 }
    });
    Ok(())
}

const ROTATE: &str =
    "kernel void rotate_by(device uint* x [[buffer(0)]], constant uint& rounds [[buffer(1)]], uint3 p [[thread_position_in_grid]],
        uint3 size [[threads_per_grid]]) {
        uint n = size.x * size.y * size.z, i = (p.z * size.y + p.y) * size.x + p.x;
        for (uint round = 0; round < rounds; ++round) {
            uint taken = x[(i + 1u) % n];
            elinvar::grid_barrier();
            x[i] = taken + round;
            elinvar::grid_barrier();
        }
    }";

fn expect_rotated(x: &[u32], rounds: u32) {
    let before = mixed(x.len());
    let added = (0..rounds).sum::<u32>();
    expect_all(x, |i| before[(i + rounds as usize) % before.len()].wrapping_add(added));
}

/// Threadgroups of one thread, of odd sizes, of the largest size, in two and three dimensions, and smaller ones at the edges.
fn group_sizes(device: &Device) -> CaseResult {
    let rotate = kernel(device, "rotate_by", ROTATE)?;
    let sizes: [([u32; 3], [u32; 3]); 9] = [
        ([7, 1, 1], [1, 1, 1]),
        ([330, 1, 1], [33, 1, 1]),
        ([331, 1, 1], [33, 1, 1]),
        ([4096, 1, 1], [1024, 1, 1]),
        ([4097, 1, 1], [1024, 1, 1]),
        ([3, 1, 1], [256, 1, 1]),
        ([50, 20, 1], [16, 8, 1]),
        ([9, 10, 11], [4, 3, 2]),
        ([1, 1, 100], [1, 1, 64]),
    ];
    for (threads, group) in sizes {
        let most = group.iter().product::<u32>();
        if most > rotate.max_threads_per_threadgroup() {
            continue;
        }
        let n = threads.iter().product::<u32>() as usize;
        let mut x = device.buffer_with_data(&mixed(n))?;
        run(device, &rotate, Grid::threads(threads).group(group), (&mut x, 6_u32))?;
        expect_rotated(&x.to_vec()?, 6);
    }
    Ok(())
}

/// More threadgroups than a CPU has workers, and as many as a GPU can have.
fn many_groups(device: &Device) -> CaseResult {
    let rotate = kernel(device, "rotate_by", ROTATE)?;
    for (groups, threads, rounds) in [(1000, 32, 20_u32), (10_000, 64, 3)] {
        let groups = at_most(&rotate, groups, threads)?;
        assert!(groups >= 16, "{groups} threadgroups of {threads}");
        let mut x = device.buffer_with_data(&mixed(groups * threads as usize))?;
        run(device, &rotate, Grid::groups(groups).group(threads), (&mut x, rounds))?;
        expect_rotated(&x.to_vec()?, rounds);
    }
    Ok(())
}

/// Counters that all threads have updated before a barrier are complete behind it.
fn atomics_across_groups(device: &Device) -> CaseResult {
    let count = kernel(
        device,
        "count",
        "kernel void count(device const uint* x [[buffer(0)]], device atomic_uint* bins [[buffer(1)]], device uint* out [[buffer(2)]],
            uint i [[thread_position_in_grid]]) {
            uint bin = x[i] % 64u;
            atomic_fetch_add_explicit(&bins[bin], 1u, memory_order_relaxed);
            elinvar::grid_barrier();
            uint seen = atomic_load_explicit(&bins[bin], memory_order_relaxed);
            elinvar::grid_barrier();
            atomic_fetch_max_explicit(&bins[bin], x[i], memory_order_relaxed);
            elinvar::grid_barrier();
            out[i] = seen + 3u * atomic_load_explicit(&bins[bin], memory_order_relaxed);
        }",
    )?;
    let x = mixed(6000);
    let (input, mut bins) = (device.buffer_with_data(&x)?, device.buffer_with_data(&[0_u32; 64])?);
    let mut out = device.buffer::<u32>(x.len())?;
    run(device, &count, Grid::threads(x.len()).group(128), (&input, &mut bins, &mut out))?;
    let of = |bin: u32| x.iter().filter(move |x| **x % 64 == bin);
    let bins: Vec<[u32; 2]> =
        (0..64).map(|bin| [of(bin).count() as u32, of(bin).copied().max().unwrap_or(0)]).collect();
    expect_all(&out.to_vec()?, |i| {
        let [count, most] = bins[x[i] as usize % 64];
        count.wrapping_add(most.max(count).wrapping_mul(3))
    });
    Ok(())
}

/// A grid larger than can be resident is refused with the largest number, and runs with that number.
fn too_large_a_grid(device: &Device) -> CaseResult {
    let rotate = kernel(device, "rotate_by", ROTATE)?;
    let group = rotate.max_threads_per_threadgroup().min(1024);
    let most = rotate.resident_groups(group, 0)?;
    assert!(most >= 1 && rotate.resident_groups(32, 0)? >= most);
    assert!(rotate.resident_groups(group, 1 << 14)? <= most);
    let stream = device.stream()?;
    let mut x = device.buffer_with_data(&mixed(100))?;
    let too_many = Grid::groups(most + 1).group(group);
    let Err(Error::InvalidArgument(why)) = launch(&rotate, &stream, too_many, (&mut x, 1_u32)) else {
        panic!("launched {} threadgroups", most + 1);
    };
    for part in ["kernel `rotate_by`", &format!("{} threadgroups", most + 1), &format!("at most {most} are")]
    {
        assert!(why.contains(part), "{why}");
    }
    expect_rotated(&x.to_vec()?, 0);
    if most < 1 << 16 {
        let mut x = device.buffer_with_data(&mixed((most * u64::from(group)) as usize))?;
        launch(&rotate, &stream, Grid::groups(most).group(group), (&mut x, 2_u32))?;
        expect_rotated(&x.to_vec()?, 2);
    }
    Ok(())
}

/// An ordinary launch, and one whose size is in memory, are refused.
fn ordinary_launches_are_refused(device: &Device) -> CaseResult {
    let rotate = kernel(device, "rotate_by", ROTATE)?;
    assert!(rotate.signature().is_cooperative());
    let stream = device.stream()?;
    let mut x = device.buffer_with_data(&mixed(100))?;
    let why = |result: elinvar::Result<Completion>| match result {
        Err(Error::InvalidArgument(why)) => why,
        other => panic!("expected an error, got {other:?}"),
    };
    let ordinary = why(super::launch(&rotate, &stream, Grid::threads(100), (&mut x, 1_u32)));
    assert!(ordinary.contains("`rotate_by`") && ordinary.contains("launch_cooperative"), "{ordinary}");
    let counts = device.buffer_with_data(&[1_u32, 1, 1])?;
    let indirect = why(launch(&rotate, &stream, Grid::indirect(&counts).group(100), (&mut x, 1_u32)));
    assert!(indirect.contains("`rotate_by`") && indirect.contains("Grid::indirect"), "{indirect}");
    launch(&rotate, &stream, Grid::threads(100), (&mut x, 1_u32))?;
    expect_rotated(&x.to_vec()?, 1);
    Ok(())
}

/// A cooperative launch of a kernel without a grid barrier is like any other.
fn no_grid_barrier(device: &Device) -> CaseResult {
    let body = "kernel void plain(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 3u * i; }";
    let plain = kernel(device, "plain", body)?;
    assert!(!plain.signature().is_cooperative());
    let mut x = device.buffer::<u32>(100_000)?;
    run(device, &plain, Grid::threads(100_000), (&mut x,))?;
    expect_all(&x.to_vec()?, |i| 3 * i as u32);
    Ok(())
}

/// One threadgroup's fault between barriers ends the launch; the stream works on.
fn a_fault_ends_the_launch(device: &Device) -> CaseResult {
    let wild = checked(
        device,
        "wild",
        "kernel void wild(device uint* x [[buffer(0)]], constant uint& bad [[buffer(1)]], uint i [[thread_position_in_grid]]) {
            for (uint round = 0; round < 50u; ++round) {
                x[i == bad && round == 3u ? i + 100000u : i] = round;
                elinvar::grid_barrier();
            }
        }",
    )?;
    let stream = device.stream()?;
    let mut x = device.buffer::<u32>(3200)?;
    for bad in [0_u32, 1700, 3199] {
        let grid = Grid::threads(3200).group(64);
        let ended = wild.launch_cooperative(&stream, grid, (&mut x, bad))?.wait();
        let Err(Error::Fault(fault)) = &ended else { panic!("expected a fault, got {ended:?}") };
        assert_eq!(fault.kernel, "wild");
        if device.caps().features.names_accesses {
            let element = format!("element {}", bad + 100_000);
            assert!(fault.message.contains(&element) && fault.message.contains("`x`"), "{fault}");
            assert!(fault.location.as_deref().is_some_and(|at| at.starts_with("wild.metal:6")), "{fault}");
        }
        assert!(stream.acknowledge().is_some());
        x.fill(0)?;
        wild.launch_cooperative(&stream, Grid::threads(3200).group(64), (&mut x, 4000_u32))?.wait()?;
        expect_all(&x.to_vec()?, |_| 49);
    }
    Ok(())
}

/// Bounds checks change nothing of a correct kernel.
fn checked_kernels(device: &Device) -> CaseResult {
    let rotate = checked(device, "rotate_by", ROTATE)?;
    let stream = device.stream()?;
    let mut x = device.buffer_with_data(&mixed(1000))?;
    rotate.launch_cooperative(&stream, Grid::threads(1000).group(96), (&mut x, 5_u32))?.wait()?;
    expect_rotated(&x.to_vec()?, 5);
    let ordinary = rotate.launch(&stream, Grid::threads(1000).group(96), (&mut x, 5_u32));
    assert!(matches!(ordinary, Err(Error::InvalidArgument(_))), "{ordinary:?}");
    Ok(())
}

/// Threadgroups that do not all arrive at a barrier are a fault, where the device detects it.
fn a_missed_barrier(device: &Device) -> CaseResult {
    if device.kind() != DeviceKind::Cpu {
        let text = "this device does not detect that threadgroups miss a grid barrier";
        // The kernel would not end. On a device without cooperative launches it has no code.
        kernel(device, "rotate_by", ROTATE)?;
        return Err(Error::unsupported(text).into());
    }
    let body = "kernel void miss(device uint* x [[buffer(0)]], constant uint& n [[buffer(1)]], uint i [[thread_position_in_grid]],
            uint group [[threadgroup_position_in_grid]]) {
            if (group >= n) return;
            x[i] = 1u;
            elinvar::grid_barrier();
            x[i] = 2u;
        }";
    let miss = kernel(device, "miss", body)?;
    let mut x = device.buffer::<u32>(640)?;
    run(device, &miss, Grid::threads(640).group(64), (&mut x, 10_u32))?;
    expect_all(&x.to_vec()?, |_| 2);
    let ended = run(device, &miss, Grid::threads(640).group(64), (&mut x, 9_u32));
    let Err(Error::Fault(fault)) = &ended else { panic!("expected a fault, got {ended:?}") };
    assert!(fault.message.contains("not all threadgroups"), "{fault}");
    assert_eq!((&*fault.kernel, fault.location.as_deref()), ("miss", Some("miss.metal:8")));
    // None arrives.
    x.fill(5)?;
    run(device, &miss, Grid::threads(640).group(64), (&mut x, 0_u32))?;
    expect_all(&x.to_vec()?, |_| 5);
    Ok(())
}

/// A launch that waits at barriers without end is stopped by its deadline.
fn a_deadline_while_groups_wait(device: &Device) -> CaseResult {
    let body = "kernel void forever(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            while (x[0] != 77u) {
                elinvar::grid_barrier();
                x[i + 1u] += 1u;
                elinvar::grid_barrier();
            }
        }";
    let forever = kernel(device, "forever", body)?;
    if device.caps().features.stops_at != elinvar::StopsAt::Loops {
        return Err(Error::unsupported("this device cannot stop a thread within a loop").into());
    }
    let stream = device.stream()?;
    let mut x = device.buffer_with_data(&[0_u32; 513])?;
    let mut commands = stream.command_buffer();
    commands.deadline(Duration::from_millis(30))?;
    // SAFETY: a thread accesses the first word and its own.
    #[allow(unsafe_code)]
    unsafe {
        commands.launch(&forever, Grid::threads(512).group(64).cooperative(), (&mut x,))?;
    }
    let ended = commands.submit()?.wait();
    let named = |text: &str| text.starts_with("kernel `forever`: ");
    assert!(matches!(&ended, Err(Error::Timeout(text)) if named(text)), "{ended:?}");
    assert!(matches!(stream.acknowledge(), Some(Error::Timeout(_))));
    x.fill(77)?;
    launch(&forever, &stream, Grid::threads(512).group(64), (&mut x,))?.wait()?;
    expect_all(&x.to_vec()?, |_| 77);
    Ok(())
}

/// A graph with cooperative launches among others runs many times.
fn repeated_in_a_graph(device: &Device) -> CaseResult {
    let rotate = kernel(device, "rotate_by", ROTATE)?;
    let mut x = device.buffer_with_data(&mixed(2000))?;
    let mut graph = Graph::new();
    for group in [64, 100] {
        // SAFETY: a thread accesses elements of the grid's size, which is the buffer's.
        #[allow(unsafe_code)]
        unsafe {
            graph.launch(&rotate, Grid::threads(2000).group(group).cooperative(), (&mut x, 2_u32))?;
        }
    }
    // SAFETY: as above; the launch is refused.
    #[allow(unsafe_code)]
    let ordinary = unsafe { graph.launch(&rotate, Grid::threads(2000), (&mut x, 2_u32)) };
    assert!(matches!(ordinary, Err(Error::InvalidArgument(_))), "{ordinary:?}");
    let mut plan = graph.plan()?;
    let stream = device.stream()?;
    for _ in 0..5 {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe {
            plan.run(&stream)?;
        }
    }
    let before = mixed(2000);
    expect_all(&x.to_vec()?, |i| before[(i + 20) % 2000].wrapping_add(10));
    Ok(())
}

/// Launches of one kernel at the same time do not wait for one another's threadgroups.
fn at_the_same_time(device: &Device) -> CaseResult {
    let rotate = kernel(device, "rotate_by", ROTATE)?;
    let streams = (0..6).map(|_| device.stream()).collect::<elinvar::Result<Vec<_>>>()?;
    let sizes = [700, 64, 2000, 33, 1000, 4096];
    let mut buffers = Vec::new();
    for n in sizes {
        buffers.push(device.buffer_with_data(&mixed(n))?);
    }
    for _ in 0..3 {
        for (stream, (x, n)) in streams.iter().zip(buffers.iter_mut().zip(sizes)) {
            launch(&rotate, stream, Grid::threads(n).group(64), (x, 1_u32))?;
        }
    }
    for x in buffers {
        let (x, before) = (x.to_vec()?, mixed(x.len()));
        expect_all(&x, |i| before[(i + 3) % before.len()]);
    }
    Ok(())
}
