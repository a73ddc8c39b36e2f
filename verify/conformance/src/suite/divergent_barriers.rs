//! Barriers that not all threads of a simdgroup reach: a simdgroup arrives if any of its lanes does, lanes that took another path wait
//! where the paths join, and exited simdgroups count as arrived.
//!
//! The expected values come from a simulation of 64 threads, two simdgroups, in which lanes keep their values unless they are active.

use elinvar::{Device, Grid};

use super::{CaseResult, expect_all, kernel, run};

cases!("divergent_barriers": loop_in_a_branch, shuffle_xor, sums, quads, early_return, break_out, continue_on, nested_loops,
    else_branch, two_in_a_row, switch, until_a_value, threadgroup_memory, lanes_wait_at_the_join, short_circuit,
    uniform_loops, loops_of_half_the_lanes,
    several_groups, in_rows, private_array, wide_values);

/// The numbers of threads that take the branch around a barrier.
const SIZES: [u32; 8] = [0, 1, 17, 31, 32, 33, 63, 64];

/// Two simdgroups of 32 lanes.
type Lanes<T> = [T; 64];

fn lanes<T>(of: impl Fn(usize) -> T) -> Lanes<T> {
    std::array::from_fn(of)
}

/// The values after `simd_shuffle_down`: the own value where there is no lane.
fn shuffled_down(values: Lanes<f32>, by: usize) -> Lanes<f32> {
    lanes(|i| if i % 32 + by < 32 { values[i + by] } else { values[i] })
}

fn simd_sum(values: Lanes<u32>) -> Lanes<u32> {
    lanes(|i| values[i / 32 * 32..][..32].iter().fold(0, |sum: u32, v| sum.wrapping_add(*v)))
}

/// Runs a kernel `test` of one threadgroup for each of [`SIZES`]: with its output `out`, the number `n`, and `i`, `lane` and `simdgroup`.
fn expect_for_sizes(device: &Device, body: &str, expected: impl Fn(u32) -> Lanes<u32>) -> CaseResult {
    let kernel = kernel(device, "test", &text(body))?;
    for n in SIZES {
        let mut out = device.buffer_with_data(&[u32::MAX; 64])?;
        run(device, &kernel, Grid::threads(64).group(64), (&mut out, n))?;
        let (got, expected) = (out.to_vec()?, expected(n));
        assert!(got == expected, "n = {n}:\n{got:?}\n{expected:?}");
    }
    Ok(())
}

fn text(body: &str) -> String {
    format!(
        "kernel void test(device uint* out [[buffer(0)]], constant uint& n [[buffer(1)]],
            uint i [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
            uint simdgroup [[simdgroup_index_in_threadgroup]]) {{
            uint r = 0;
            {body}
        }}"
    )
}

/// As published kernels have it: a loop with a barrier behind a bounds check, then a reduction by shuffles.
fn loop_in_a_branch(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "reduce",
        "kernel void reduce(device float* out [[buffer(0)]], constant uint& n [[buffer(1)]],
            uint i [[thread_position_in_threadgroup]]) {
            float r = 0;
            if (i < n) {
                for (uint k = 0; k < 3; ++k) {
                    threadgroup_barrier(mem_flags::mem_none);
                    r += i + k;
                }
            }
            for (ushort s = 4; s >= 1; s >>= 1) r += simd_shuffle_down(r, 4 * s);
            out[i] = r;
        }",
    )?;
    for n in SIZES {
        let mut out = device.buffer::<f32>(64)?;
        run(device, &kernel, Grid::threads(64).group(64), (&mut out, n))?;
        let mut expected = lanes(|i| if (i as u32) < n { (3 * i + 3) as f32 } else { 0.0 });
        for by in [16, 8, 4] {
            let other = shuffled_down(expected, by);
            expected = lanes(|i| expected[i] + other[i]);
        }
        assert_eq!(out.to_vec()?, expected, "n = {n}");
    }
    Ok(())
}

fn shuffle_xor(device: &Device) -> CaseResult {
    let body = "if (i < n) {
            r = i * 5 + 1;
            threadgroup_barrier(mem_flags::mem_none);
            r += 3;
        }
        out[i] = r * 1000 + simd_shuffle_xor(r, ushort(1));";
    expect_for_sizes(device, body, |n| {
        let r = lanes(|i| if (i as u32) < n { i as u32 * 5 + 4 } else { 0 });
        lanes(|i| r[i] * 1000 + r[i ^ 1])
    })
}

/// Inside the branch the sum is of the active lanes, behind it of all.
fn sums(device: &Device) -> CaseResult {
    let body = "if (i < n) {
            threadgroup_barrier(mem_flags::mem_threadgroup);
            r = simd_sum(i + 1);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            r += simd_prefix_exclusive_sum(1u);
        }
        out[i] = r + 7 * simd_sum(r);";
    expect_for_sizes(device, body, |n| {
        let is_in = |i: usize| (i as u32) < n;
        let inside = simd_sum(lanes(|i| if is_in(i) { i as u32 + 1 } else { 0 }));
        let r = lanes(|i| if is_in(i) { inside[i] + i as u32 % 32 } else { 0 });
        let sum = simd_sum(r);
        lanes(|i| r[i] + 7 * sum[i])
    })
}

fn quads(device: &Device) -> CaseResult {
    let body = "if (i < n) {
            r = i;
            threadgroup_barrier(mem_flags::mem_none);
            r += 7;
        }
        out[i] = quad_sum(r) * 1000 + quad_shuffle_xor(r, ushort(2));";
    expect_for_sizes(device, body, |n| {
        let r = lanes(|i| if (i as u32) < n { i as u32 + 7 } else { 0 });
        lanes(|i| r[i / 4 * 4..][..4].iter().sum::<u32>() * 1000 + r[i ^ 2])
    })
}

/// Threads that have returned are inactive, in barriers and in simdgroup functions.
fn early_return(device: &Device) -> CaseResult {
    let body = "if (i >= n) return;
        threadgroup_barrier(mem_flags::mem_none);
        r = simd_sum(i);
        if ((i & 1) != 0) {
            threadgroup_barrier(mem_flags::mem_none);
            r += 1;
        }
        out[i] = r + simd_sum(r);";
    expect_for_sizes(device, body, |n| {
        let is_in = |i: usize| (i as u32) < n;
        let first = simd_sum(lanes(|i| if is_in(i) { i as u32 } else { 0 }));
        let r = lanes(|i| if is_in(i) { first[i] + (i as u32 & 1) } else { 0 });
        let sum = simd_sum(r);
        lanes(|i| if is_in(i) { r[i] + sum[i] } else { u32::MAX })
    })
}

fn break_out(device: &Device) -> CaseResult {
    let body = "for (uint k = 0; k < 8; ++k) {
            if (k >= (i + n) % 5) break;
            threadgroup_barrier(mem_flags::mem_none);
            r += k + 1;
        }
        out[i] = r + 100 * simd_sum(r);";
    expect_for_sizes(device, body, |n| {
        let r = lanes(|i| (0..(i as u32 + n) % 5).map(|k| k + 1).sum());
        let sum = simd_sum(r);
        lanes(|i| r[i] + 100 * sum[i])
    })
}

fn continue_on(device: &Device) -> CaseResult {
    let body = "for (uint k = 0; k < 6; ++k) {
            if ((i + k + n) % 3 == 0) continue;
            threadgroup_barrier(mem_flags::mem_none);
            r = r * 3 + k + simd_sum(1u);
        }
        out[i] = r + simd_shuffle_xor(r, ushort(3));";
    expect_for_sizes(device, body, |n| {
        let mut r = [0_u32; 64];
        for k in 0..6 {
            let stays = |i: usize| !(i as u32 + k + n).is_multiple_of(3);
            let count = simd_sum(lanes(|i| stays(i).into()));
            r = lanes(|i| if stays(i) { r[i] * 3 + k + count[i] } else { r[i] });
        }
        lanes(|i| r[i] + r[i ^ 3])
    })
}

fn nested_loops(device: &Device) -> CaseResult {
    let body = "for (uint a = 0; a < 1 + (i + n) % 3; ++a) {
            for (uint b = 0; b < i % 4; ++b) {
                threadgroup_barrier(mem_flags::mem_none);
                r = r * 3 + b;
            }
            r += simd_sum(1u);
        }
        out[i] = r + simd_shuffle_xor(r, ushort(5));";
    expect_for_sizes(device, body, |n| {
        let mut r = [0_u32; 64];
        for a in 0..3 {
            let is_in = |i: usize| a < 1 + (i as u32 + n) % 3;
            let count = simd_sum(lanes(|i| is_in(i).into()));
            let inner = |i: usize| (0..i as u32 % 4).fold(r[i], |r, b| r.wrapping_mul(3).wrapping_add(b));
            r = lanes(|i| if is_in(i) { inner(i).wrapping_add(count[i]) } else { r[i] });
        }
        lanes(|i| r[i].wrapping_add(r[i ^ 5]))
    })
}

/// A simdgroup with lanes on both sides passes both barriers, one after the other.
fn else_branch(device: &Device) -> CaseResult {
    let body = "if (lane < n / 2) {
            threadgroup_barrier(mem_flags::mem_none);
            r = i + simd_sum(1u);
        } else {
            r = simd_sum(2u);
            threadgroup_barrier(mem_flags::mem_none);
            r += 2 * i;
        }
        out[i] = r + simd_sum(r);";
    expect_for_sizes(device, body, |n| {
        let is_in = |i: usize| (i as u32 % 32) < n / 2;
        let count = simd_sum(lanes(|i| is_in(i).into()));
        let r = lanes(|i| match is_in(i) {
            true => i as u32 + count[i],
            false => 2 * (32 - count[i]) + 2 * i as u32,
        });
        let sum = simd_sum(r);
        lanes(|i| r[i] + sum[i])
    })
}

fn two_in_a_row(device: &Device) -> CaseResult {
    let body = "r = i;
        if (lane < n / 2) {
            threadgroup_barrier(mem_flags::mem_none);
            r += 1;
        }
        uint x = simd_sum(r);
        if (lane >= n / 2) {
            threadgroup_barrier(mem_flags::mem_none);
            r += x;
        }
        threadgroup_barrier(mem_flags::mem_none);
        out[i] = r + simd_sum(r);";
    expect_for_sizes(device, body, |n| {
        let is_in = |i: usize| (i as u32 % 32) < n / 2;
        let r = lanes(|i| i as u32 + u32::from(is_in(i)));
        let x = simd_sum(r);
        let r = lanes(|i| if is_in(i) { r[i] } else { r[i] + x[i] });
        let sum = simd_sum(r);
        lanes(|i| r[i] + sum[i])
    })
}

fn switch(device: &Device) -> CaseResult {
    let body = "switch ((i + n) % 4) {
            case 0: threadgroup_barrier(mem_flags::mem_none); r = 1; break;
            case 1: r = 2;
            case 2: threadgroup_barrier(mem_flags::mem_none); r += 10; break;
            default: r = 5;
        }
        out[i] = r * 1000 + simd_sum(r) + simd_shuffle_xor(r, ushort(1));";
    expect_for_sizes(device, body, |n| {
        let r = lanes(|i| [1, 12, 10, 5][(i + n as usize) % 4]);
        let sum = simd_sum(r);
        lanes(|i| r[i] * 1000 + sum[i] + r[i ^ 1])
    })
}

/// The simdgroups leave the loop in different rounds: the first one to do so has returned.
fn until_a_value(device: &Device) -> CaseResult {
    let body = "uint v = i + n, c = 0;
        do {
            threadgroup_barrier(mem_flags::mem_none);
            v = v * 5 + 1 + simd_sum(1u);
            ++c;
        } while ((v & 7) > 2 && c < 9);
        out[i] = v + c + simd_max(c);";
    expect_for_sizes(device, body, |n| {
        let (mut v, mut c) = (lanes(|i| i as u32 + n), [0_u32; 64]);
        let mut active = [true; 64];
        while active.contains(&true) {
            let count = simd_sum(active.map(u32::from));
            v = lanes(|i| if active[i] { v[i].wrapping_mul(5).wrapping_add(1 + count[i]) } else { v[i] });
            c = lanes(|i| c[i] + u32::from(active[i]));
            active = lanes(|i| active[i] && v[i] & 7 > 2 && c[i] < 9);
        }
        let most = lanes(|i| c[i / 32 * 32..][..32].iter().copied().max().unwrap_or(0));
        lanes(|i| v[i].wrapping_add(c[i] + most[i]))
    })
}

fn threadgroup_memory(device: &Device) -> CaseResult {
    let body = "threadgroup uint tile[64];
        if (i < n) {
            tile[i] = 3 * i + 1;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            r = tile[(i + 1) % n];
        }
        out[i] = r + simd_sum(r);";
    expect_for_sizes(device, body, |n| {
        let r = lanes(|i| if (i as u32) < n { 3 * ((i as u32 + 1) % n) + 1 } else { 0 });
        let sum = simd_sum(r);
        lanes(|i| r[i] + sum[i])
    })
}

/// Lanes that miss the barrier read what the others of their simdgroup store behind it.
fn lanes_wait_at_the_join(device: &Device) -> CaseResult {
    let body = "threadgroup uint tile[64];
        tile[i] = 1;
        if (lane < n / 2) {
            threadgroup_barrier(mem_flags::mem_threadgroup);
            tile[i] = 7 + i;
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        out[i] = tile[i ^ 1];";
    expect_for_sizes(device, body, |n| {
        let tile = lanes(|i| if (i as u32 % 32) < n / 2 { 7 + i as u32 } else { 1 });
        lanes(|i| tile[i ^ 1])
    })
}

fn short_circuit(device: &Device) -> CaseResult {
    let body = "if (lane < n / 4 || ((i + n) % 5 == 1 && (i & 2) != 0)) {
            threadgroup_barrier(mem_flags::mem_none);
            r = i + simd_sum(1u);
        }
        out[i] = r + simd_shuffle_xor(r, ushort(7));";
    expect_for_sizes(device, body, |n| {
        let is_in = |i: usize| (i as u32 % 32) < n / 4 || (i as u32 + n) % 5 == 1 && i & 2 != 0;
        let count = simd_sum(lanes(|i| is_in(i).into()));
        let r = lanes(|i| if is_in(i) { i as u32 + count[i] } else { 0 });
        lanes(|i| r[i] + r[i ^ 7])
    })
}

/// Loops that all lanes behind the branch run alike.
fn uniform_loops(device: &Device) -> CaseResult {
    let body = "if (i < n) {
            for (uint a = 0; a < n % 4 + 1; ++a) {
                uint b = a;
                while (true) {
                    threadgroup_barrier(mem_flags::mem_none);
                    r = r * 3 + i + b;
                    if (b * 2 > n % 7) break;
                    if (b == 1) {
                        threadgroup_barrier(mem_flags::mem_none);
                        r += simd_sum(1u);
                    }
                    ++b;
                }
            }
        } else {
            r = 5;
        }
        out[i] = r + simd_shuffle_xor(r, ushort(1));";
    expect_for_sizes(device, body, |n| {
        let count = simd_sum(lanes(|i| ((i as u32) < n).into()));
        let r = lanes(|i| {
            if i as u32 >= n {
                return 5;
            }
            let mut r = 0_u32;
            for a in 0..n % 4 + 1 {
                let mut b = a;
                loop {
                    r = r.wrapping_mul(3).wrapping_add(i as u32 + b);
                    if b * 2 > n % 7 {
                        break;
                    }
                    if b == 1 {
                        r = r.wrapping_add(count[i]);
                    }
                    b += 1;
                }
            }
            r
        });
        lanes(|i| r[i].wrapping_add(r[i ^ 1]))
    })
}

/// The lanes for which the condition does not hold enter, and the loop's values are used behind it.
fn loops_of_half_the_lanes(device: &Device) -> CaseResult {
    let body = "threadgroup uint tile[64];
        uint last = 100, k = 7;
        if (lane >= n / 2) {
            r = 9;
        } else {
            for (k = 0; k < 2 + n / 16; ++k) {
                tile[i] = r + k;
                threadgroup_barrier(mem_flags::mem_threadgroup);
                if ((i ^ 1) % 32 < n / 2) r += tile[i ^ 1] * 3;
                last = k;
                threadgroup_barrier(mem_flags::mem_threadgroup);
            }
        }
        out[i] = r * 100 + last * 10 + k + simd_sum(r);";
    expect_for_sizes(device, body, |n| {
        let is_in = |i: usize| (i as u32 % 32) < n / 2;
        let mut r = lanes(|i| if is_in(i) { 0_u32 } else { 9 });
        for k in 0..2 + n / 16 {
            let tile = lanes(|i| r[i].wrapping_add(k));
            let other = |i: usize| if is_in(i ^ 1) { tile[i ^ 1].wrapping_mul(3) } else { 0 };
            r = lanes(|i| if is_in(i) { r[i].wrapping_add(other(i)) } else { r[i] });
        }
        let sum = simd_sum(r);
        let (last, k) = (1 + n / 16, 2 + n / 16);
        lanes(|i| {
            let tail = if is_in(i) { last * 10 + k } else { 1007 };
            r[i].wrapping_mul(100).wrapping_add(tail).wrapping_add(sum[i])
        })
    })
}

fn private_array(device: &Device) -> CaseResult {
    let body = "uint a[8];
        for (uint k = 0; k < 8; ++k) a[k] = i * k;
        if (i < n) {
            threadgroup_barrier(mem_flags::mem_none);
            a[i % 8] += 1;
            threadgroup_barrier(mem_flags::mem_none);
            a[(i + n) % 8] += 100;
        }
        for (uint k = 0; k < 8; ++k) r = r * 3 + a[k];
        out[i] = r + simd_sum(a[i % 8]);";
    expect_for_sizes(device, body, |n| {
        let arrays = lanes(|i| {
            let mut a: [u32; 8] = std::array::from_fn(|k| (i * k) as u32);
            if (i as u32) < n {
                a[i % 8] += 1;
                a[(i + n as usize) % 8] += 100;
            }
            a
        });
        let sum = simd_sum(lanes(|i| arrays[i][i % 8]));
        lanes(|i| {
            arrays[i].iter().fold(0, |r: u32, a| r.wrapping_mul(3).wrapping_add(*a)).wrapping_add(sum[i])
        })
    })
}

/// Values of other types than 32-bit scalars are kept too.
fn wide_values(device: &Device) -> CaseResult {
    let body = "float4 f = float4(i, i + 1, i + 2, i + 3);
        ulong l = ulong(i) << 33;
        half h = half(i);
        bool b = (i & 1) != 0;
        device uint* p = out + i;
        if (i < n) {
            threadgroup_barrier(mem_flags::mem_none);
            f *= 2.0f;
            l += 5;
            h += half(1);
            b = !b;
            p = out + (i ^ 1);
            if ((i ^ 1) >= n) p = out + i;
        }
        float4 g = simd_shuffle_xor(f, ushort(2));
        *p = uint(f.x + f.w + g.y) + uint(l >> 33) + uint(l) + uint(simd_shuffle_xor(h, ushort(1))) + (b ? 1000 : 0);";
    expect_for_sizes(device, body, |n| {
        let is_in = |i: usize| (i as u32) < n;
        let mut out = [u32::MAX; 64];
        for i in 0..64 {
            let factor = |i: usize| if is_in(i) { 2 } else { 1 };
            let f = (i + i + 3) * factor(i) + ((i ^ 2) + 1) * factor(i ^ 2);
            let l = i + if is_in(i) { 5 } else { 0 };
            let h = (i ^ 1) + usize::from(is_in(i ^ 1));
            let b = (i & 1 != 0) != is_in(i);
            let to = if is_in(i) && is_in(i ^ 1) { i ^ 1 } else { i };
            out[to] = (f + l + h) as u32 + if b { 1000 } else { 0 };
        }
        out
    })
}

/// Threadgroups of three simdgroups, the last one smaller, each with another number of active threads.
fn several_groups(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "groups",
        "kernel void groups(device uint* out [[buffer(0)]], device const uint* counts [[buffer(1)]],
            uint i [[thread_position_in_grid]], uint local [[thread_position_in_threadgroup]],
            uint group [[threadgroup_position_in_grid]]) {
            uint r = 0;
            if (local < counts[group]) {
                for (uint k = 0; k < 2; ++k) {
                    threadgroup_barrier(mem_flags::mem_none);
                    r += i * (k + 1);
                }
            }
            out[i] = r + simd_sum(r + 1);
        }",
    )?;
    let counts: Vec<u32> = (0..11).map(|group| group * 23 % 97).collect();
    let counts_buffer = device.buffer_with_data(&counts)?;
    let mut out = device.buffer::<u32>(1000)?;
    run(device, &kernel, Grid::threads(1000).group(96), (&mut out, &counts_buffer))?;
    let r: Vec<u32> =
        (0..1000).map(|i| if i as u32 % 96 < counts[i / 96] { 3 * i as u32 } else { 0 }).collect();
    let sums: Vec<u32> = (0..1000)
        .map(|i| {
            let first = i / 96 * 96 + i % 96 / 32 * 32;
            r[first..(first + 32).min(1000)].iter().map(|r| r + 1).sum()
        })
        .collect();
    expect_all(&out.to_vec()?, |i| r[i] + sums[i]);
    Ok(())
}

/// A threadgroup of several short rows.
fn in_rows(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "test",
        &text(
            "if ((i * 7) % 64 < n) {
            threadgroup_barrier(mem_flags::mem_none);
            r = i + 1;
            threadgroup_barrier(mem_flags::mem_none);
            r *= 2;
        }
        out[i] = r + simd_sum(r);",
        ),
    )?;
    for n in SIZES {
        let mut out = device.buffer::<u32>(64)?;
        run(device, &kernel, Grid::threads([8, 4, 2]).group([8, 4, 2]), (&mut out, n))?;
        let r = lanes(|i| if (i as u32 * 7) % 64 < n { 2 * i as u32 + 2 } else { 0 });
        let sum = simd_sum(r);
        expect_all(&out.to_vec()?, |i| r[i] + sum[i]);
    }
    Ok(())
}
