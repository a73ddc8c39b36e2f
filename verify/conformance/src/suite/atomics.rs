//! Atomics: every function on every type, in device and threadgroup memory; fences and memory flags.

use elinvar::{Device, Grid};

use super::{CaseResult, expect_all, kernel, run};

cases!("atomics": fetch_int_device, fetch_uint_device, fetch_int_threadgroup, fetch_uint_threadgroup, values_before,
    float_add_device, float_add_threadgroup, float_exchange, ulong_min_max, bools, compare_exchange_weak,
    compare_exchange_fails, compare_exchange_strong, lock_with_acquire_and_release, atomic_arrays_in_structs,
    generic_type, every_flag_of_a_barrier, every_order_and_scope_of_a_fence, every_order_of_an_operation,
    tickets_are_unique, counters, counters_beside_their_data, coherent_fetch, coherent_exchange);

const N: u32 = 3000;

/// The read-modify-write functions, in the order of the elements of `cells`.
fn fetch_body(ty: &str) -> String {
    format!(
        "atomic_fetch_add_explicit(&cells[0], {ty}(i), memory_order_relaxed);
         atomic_fetch_sub_explicit(&cells[1], {ty}(i), memory_order_relaxed);
         atomic_fetch_min_explicit(&cells[2], {ty}(i * 2654435761u), memory_order_relaxed);
         atomic_fetch_max_explicit(&cells[3], {ty}(i * 2654435761u), memory_order_relaxed);
         atomic_fetch_and_explicit(&cells[4], {ty}(~(1u << (i % 29u))), memory_order_relaxed);
         atomic_fetch_or_explicit(&cells[5], {ty}(1u << (i % 31u)), memory_order_relaxed);
         atomic_fetch_xor_explicit(&cells[6], {ty}(i * 77u), memory_order_relaxed);
         if (i == 5u) atomic_exchange_explicit(&cells[7], {ty}(55), memory_order_relaxed);
         if (i == 6u) atomic_store_explicit(&cells[8], {ty}(66), memory_order_relaxed);
         if (i == 7u) atomic_fetch_add_explicit(&cells[9], atomic_load_explicit(&cells[10], memory_order_relaxed),
                                                memory_order_relaxed);"
    )
}

const START: [u32; 11] = [7, 9, 12345, 12345, u32::MAX, 0, 0, 1, 2, 3, 40];

/// The values after them; `less` is the comparison of the type.
fn fetch_expected(n: u32, less: fn(u32, u32) -> bool) -> [u32; 11] {
    let mut cells = START;
    for i in 0..n {
        let mixed = i.wrapping_mul(2_654_435_761);
        cells[0] = cells[0].wrapping_add(i);
        cells[1] = cells[1].wrapping_sub(i);
        if less(mixed, cells[2]) {
            cells[2] = mixed;
        }
        if less(cells[3], mixed) {
            cells[3] = mixed;
        }
        cells[4] &= !(1 << (i % 29));
        cells[5] |= 1 << (i % 31);
        cells[6] ^= i.wrapping_mul(77);
    }
    cells[7..11].copy_from_slice(&[55, 66, 43, 40]);
    cells
}

fn fetch_device(device: &Device, space: &str, ty: &str, less: fn(u32, u32) -> bool) -> CaseResult {
    let body = format!(
        "kernel void fetch({space} atomic_{ty}* cells [[buffer(0)]], uint i [[thread_position_in_grid]]) {{ {} }}",
        fetch_body(ty)
    );
    let kernel = kernel(device, "fetch", &body)?;
    let expected = fetch_expected(N, less);
    if ty == "int" {
        let mut cells = device.buffer_with_data(&START.map(|v| v as i32))?;
        run(device, &kernel, Grid::threads(N), (&mut cells,))?;
        expect_all(&cells.to_vec()?, |k| expected[k] as i32);
    } else {
        let mut cells = device.buffer_with_data(&START)?;
        run(device, &kernel, Grid::threads(N), (&mut cells,))?;
        expect_all(&cells.to_vec()?, |k| expected[k]);
    }
    Ok(())
}

fn signed_less(a: u32, b: u32) -> bool {
    (a as i32) < b as i32
}

fn fetch_int_device(device: &Device) -> CaseResult {
    fetch_device(device, "device", "int", signed_less)
}

fn fetch_uint_device(device: &Device) -> CaseResult {
    fetch_device(device, "device", "uint", |a, b| a < b)
}

/// One threadgroup whose threads work on cells in threadgroup memory.
fn fetch_threadgroup(device: &Device, ty: &str, less: fn(u32, u32) -> bool) -> CaseResult {
    let body = format!(
        "kernel void fetch(device uint* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {{
            threadgroup atomic_{ty} cells[11];
            if (i < 11u) atomic_store_explicit(&cells[i], {ty}(out[i]), memory_order_relaxed);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            {}
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (i < 11u) out[i] = uint(atomic_load_explicit(&cells[i], memory_order_relaxed));
        }}",
        fetch_body(ty)
    );
    let kernel = kernel(device, "fetch", &body)?;
    let mut cells = device.buffer_with_data(&START)?;
    run(device, &kernel, Grid::threads(500).group(500), (&mut cells,))?;
    let expected = fetch_expected(500, less);
    expect_all(&cells.to_vec()?, |k| expected[k]);
    Ok(())
}

fn fetch_int_threadgroup(device: &Device) -> CaseResult {
    fetch_threadgroup(device, "int", signed_less)
}

fn fetch_uint_threadgroup(device: &Device) -> CaseResult {
    fetch_threadgroup(device, "uint", |a, b| a < b)
}

/// Each function returns the previous value; a single thread makes the order deterministic.
fn values_before(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "before",
        "kernel void before(device atomic_int* c [[buffer(0)]], device int* out [[buffer(1)]]) {
            out[0] = atomic_fetch_add_explicit(c, 5, memory_order_relaxed);
            out[1] = atomic_fetch_sub_explicit(c, 20, memory_order_relaxed);
            out[2] = atomic_fetch_min_explicit(c, -100, memory_order_relaxed);
            out[3] = atomic_fetch_max_explicit(c, 77, memory_order_relaxed);
            out[4] = atomic_fetch_and_explicit(c, 0x0f, memory_order_relaxed);
            out[5] = atomic_fetch_or_explicit(c, 0x30, memory_order_relaxed);
            out[6] = atomic_fetch_xor_explicit(c, -1, memory_order_relaxed);
            out[7] = atomic_exchange_explicit(c, 1000, memory_order_relaxed);
            out[8] = atomic_load_explicit(c, memory_order_relaxed);
        }",
    )?;
    let mut cell = device.buffer_with_data(&[10_i32])?;
    let mut out = device.buffer::<i32>(9)?;
    run(device, &kernel, Grid::threads(1), (&mut cell, &mut out))?;
    assert_eq!(out.to_vec()?, [10, 15, -5, -100, 77, 77 & 15, 0x3d, !0x3d, 1000]);
    Ok(())
}

fn float_add_device(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "add",
        "kernel void add(device atomic_float* sums [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            atomic_fetch_add_explicit(&sums[0], float(i % 16u) * 0.25f, memory_order_relaxed);
            atomic_fetch_sub_explicit(&sums[1], float(i % 4u), memory_order_relaxed);
        }",
    )?;
    let mut sums = device.buffer_with_data(&[0.5_f32, 0.0])?;
    run(device, &kernel, Grid::threads(N), (&mut sums,))?;
    let of = |modulus: u32, scale: f32| (0..N).map(|i| (i % modulus) as f32 * scale).sum::<f32>();
    assert_eq!(sums.to_vec()?, [0.5 + of(16, 0.25), -of(4, 1.0)]);
    Ok(())
}

fn float_add_threadgroup(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "add",
        "kernel void add(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]],
                uint group [[threadgroup_position_in_grid]]) {
            threadgroup atomic_float sum;
            if (i == 0u) atomic_store_explicit(&sum, 0.0f, memory_order_relaxed);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            atomic_fetch_add_explicit(&sum, float(i), memory_order_relaxed);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (i == 0u) out[group] = atomic_load_explicit(&sum, memory_order_relaxed);
        }",
    )?;
    let mut out = device.buffer::<f32>(4)?;
    run(device, &kernel, Grid::threads(400).group(100), (&mut out,))?;
    expect_all(&out.to_vec()?, |_| 4950.0);
    Ok(())
}

fn float_exchange(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "largest",
        "kernel void largest(device atomic_float* cell [[buffer(0)]], device float* before [[buffer(1)]],
                device const float* in [[buffer(2)]], uint i [[thread_position_in_grid]]) {
            float seen = atomic_load_explicit(&cell[0], memory_order_relaxed);
            while (in[i] > seen && !atomic_compare_exchange_weak_explicit(&cell[0], &seen, in[i],
                                                                          memory_order_relaxed, memory_order_relaxed)) {}
            if (i == 3u) before[0] = atomic_exchange_explicit(&cell[1], 2.5f, memory_order_relaxed);
        }",
    )?;
    let values: Vec<f32> = (0..N).map(|i| ((i * 7919) % 3001) as f32 - 1500.5).collect();
    let input = device.buffer_with_data(&values)?;
    let mut cell = device.buffer_with_data(&[-1e30_f32, 1.25])?;
    let mut before = device.buffer::<f32>(1)?;
    run(device, &kernel, Grid::threads(N), (&mut cell, &mut before, &input))?;
    let largest = values.iter().copied().fold(f32::MIN, f32::max);
    assert_eq!((cell.to_vec()?, before.to_vec()?), (vec![largest, 2.5], vec![1.25]));
    Ok(())
}

fn ulong_min_max(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "extremes",
        "kernel void extremes(device atomic_ulong* cells [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            ulong v = (ulong(i * 2654435761u) << 32) | i;
            atomic_min_explicit(&cells[0], v | (1ul << 63), memory_order_relaxed);
            atomic_max_explicit(&cells[1], v, memory_order_relaxed);
        }",
    )?;
    let mut cells = device.buffer_with_data(&[u64::MAX, 0])?;
    run(device, &kernel, Grid::threads(N), (&mut cells,))?;
    let of = |i: u32| u64::from(i.wrapping_mul(2_654_435_761)) << 32 | u64::from(i);
    let least = (0..N).map(|i| of(i) | 1 << 63).min().unwrap_or(0);
    assert_eq!(cells.to_vec()?, [least, (0..N).map(of).max().unwrap_or(0)]);
    Ok(())
}

fn bools(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "once",
        "kernel void once(device uint* firsts [[buffer(0)]], uint i [[thread_position_in_threadgroup]],
                uint group [[threadgroup_position_in_grid]]) {
            threadgroup atomic_bool taken;
            atomic_store_explicit(&taken, false, memory_order_relaxed);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (!atomic_exchange_explicit(&taken, true, memory_order_relaxed)) firsts[group] += 1u;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (i == 0u && atomic_load_explicit(&taken, memory_order_relaxed)) firsts[group] += 10u;
        }",
    )?;
    let mut firsts = device.buffer::<u32>(5)?;
    run(device, &kernel, Grid::threads(320).group(64), (&mut firsts,))?;
    expect_all(&firsts.to_vec()?, |_| 11);
    Ok(())
}

/// A sum of squares by compare and exchange, signed and unsigned.
fn compare_exchange_weak(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "squares",
        "template <typename A, typename T> METAL_FUNC void add(device A* cell, T v) {
            T seen = atomic_load_explicit(cell, memory_order_relaxed);
            while (!atomic_compare_exchange_weak_explicit(cell, &seen, seen + v * v, memory_order_relaxed,
                                                          memory_order_relaxed)) {}
        }
        kernel void squares(device atomic_int* s [[buffer(0)]], device atomic_uint* u [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {
            add(s, int(i % 100u) - 50);
            add(u, i % 100u);
        }",
    )?;
    let (mut s, mut u) = (device.buffer::<i32>(1)?, device.buffer::<u32>(1)?);
    run(device, &kernel, Grid::threads(N), (&mut s, &mut u))?;
    let expected: i32 = (0..N as i32).map(|i| (i % 100 - 50).pow(2)).sum();
    assert_eq!(s.to_vec()?, [expected]);
    assert_eq!(u.to_vec()?, [(0..N).map(|i| (i % 100).pow(2)).sum::<u32>()]);
    Ok(())
}

fn compare_exchange_fails(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "refuse",
        "kernel void refuse(device atomic_uint* c [[buffer(0)]], device uint* out [[buffer(1)]]) {
            uint expected = 5;
            out[0] = atomic_compare_exchange_weak_explicit(c, &expected, 9u, memory_order_relaxed, memory_order_relaxed);
            out[1] = expected;
            while (!atomic_compare_exchange_weak_explicit(c, &expected, 9u, memory_order_relaxed, memory_order_relaxed)) {}
            out[2] = expected;
        }",
    )?;
    let mut cell = device.buffer_with_data(&[7_u32])?;
    let mut out = device.buffer_with_data(&[99_u32; 3])?;
    run(device, &kernel, Grid::threads(1), (&mut cell, &mut out))?;
    assert_eq!((cell.to_vec()?, out.to_vec()?), (vec![9], vec![0, 7, 7]));
    Ok(())
}

fn compare_exchange_strong(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "claim",
        "kernel void claim(device atomic_uint* cells [[buffer(0)]], device atomic_uint* won [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {
            uint empty = 0;
            if (atomic_compare_exchange_strong_explicit(&cells[i % 10u], &empty, i + 1u, memory_order_relaxed,
                                                        memory_order_relaxed))
                atomic_fetch_add_explicit(won, 1u, memory_order_relaxed);
        }",
    )?;
    let (mut cells, mut won) = (device.buffer::<u32>(10)?, device.buffer::<u32>(1)?);
    run(device, &kernel, Grid::threads(N), (&mut cells, &mut won))?;
    assert_eq!(won.to_vec()?, [10], "each cell is claimed once");
    for (k, claimed) in cells.to_vec()?.iter().enumerate() {
        assert_eq!((claimed - 1) % 10, k as u32, "by a thread of its own");
    }
    Ok(())
}

/// Data handed from threadgroup to threadgroup: writes before the flag is set are visible after it is seen.
fn lock_with_acquire_and_release(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "pass_on",
        "kernel void pass_on(device atomic_uint* turn [[buffer(0)]], volatile device uint* data [[buffer(1)]],
                uint group [[threadgroup_position_in_grid]]) {
            while (atomic_load_explicit(turn, memory_order_relaxed) != group) {}
            atomic_thread_fence(mem_flags::mem_device, memory_order_acquire, thread_scope_device);
            data[group + 1] = data[group] * 3u + group;
            atomic_thread_fence(mem_flags::mem_device, memory_order_release, thread_scope_device);
            atomic_store_explicit(turn, group + 1u, memory_order_relaxed);
        }",
    )?;
    let mut turn = device.buffer::<u32>(1)?;
    let mut data = device.buffer_with_data(&[1_u32; 101])?;
    run(device, &kernel, Grid::groups(100).group(1), (&mut turn, &mut data))?;
    let mut value = 1_u32;
    for (group, got) in data.to_vec()?[1..].iter().enumerate() {
        value = value.wrapping_mul(3).wrapping_add(group as u32);
        assert_eq!(*got, value, "group {group}");
    }
    Ok(())
}

fn atomic_arrays_in_structs(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "tally",
        "struct Tally { uint factor; atomic_uint counts[4]; atomic_int balance; };
        kernel void tally(device Tally& t [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            atomic_fetch_add_explicit(&t.counts[i % 4u], t.factor, memory_order_relaxed);
            atomic_fetch_sub_explicit(&t.balance, 1, memory_order_relaxed);
        }",
    )?;
    let mut t = device.buffer_with_data(&[[3_u32, 0, 0, 0, 0, 0]])?;
    run(device, &kernel, Grid::threads(N), (&mut t,))?;
    let each = N / 4 * 3;
    assert_eq!(t.to_vec()?, [[3, each, each, each, each, 0_u32.wrapping_sub(N)]]);
    Ok(())
}

fn generic_type(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "generic",
        "template <typename T> METAL_FUNC void bump(volatile device atomic<T>* c, T by) {
            atomic_fetch_add_explicit(c, by, memory_order_relaxed);
        }
        kernel void generic(device atomic<int>* a [[buffer(0)]], device metal::atomic<uint>* b [[buffer(1)]]) {
            bump(a, -2);
            bump(b, 3u);
        }",
    )?;
    let (mut a, mut b) = (device.buffer::<i32>(1)?, device.buffer::<u32>(1)?);
    run(device, &kernel, Grid::threads(N), (&mut a, &mut b))?;
    assert_eq!((a.to_vec()?, b.to_vec()?), (vec![-2 * N as i32], vec![3 * N]));
    Ok(())
}

/// With any flags, a barrier makes the threads wait, and orders accesses to the memory that the flags name.
fn every_flag_of_a_barrier(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "turn",
        "kernel void turn(device uint* data [[buffer(0)]], uint i [[thread_position_in_threadgroup]],
                uint n [[threads_per_threadgroup]]) {
            threadgroup uint shared[64];
            shared[i] = data[i];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            uint v = shared[(i + 1u) % n];
            threadgroup_barrier(mem_flags::mem_none);
            data[i] = v;
            threadgroup_barrier(mem_flags::mem_device);
            v = data[(i + 1u) % n];
            threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
            data[i] = v;
            threadgroup_barrier(mem_flags::mem_texture);
            threadgroup_barrier(mem_flags::mem_threadgroup_imageblock);
        }",
    )?;
    let mut data = device.buffer_with_data(&(0..64_u32).collect::<Vec<_>>())?;
    run(device, &kernel, Grid::threads(64).group(64), (&mut data,))?;
    expect_all(&data.to_vec()?, |i| (i as u32 + 2) % 64);
    Ok(())
}

fn every_order_and_scope_of_a_fence(device: &Device) -> CaseResult {
    let mut fences = String::new();
    for order in ["relaxed", "acquire", "release", "acq_rel", "seq_cst"] {
        for scope in ["thread", "simdgroup", "threadgroup", "device"] {
            for flag in ["mem_none", "mem_device", "mem_threadgroup", "mem_texture"] {
                fences += &format!(
                    "atomic_thread_fence(mem_flags::{flag}, memory_order_{order}, thread_scope_{scope}); *c += 1u;\n"
                );
            }
        }
    }
    let body = format!("kernel void fences(volatile device uint* c [[buffer(0)]]) {{ {fences} }}");
    let kernel = kernel(device, "fences", &body)?;
    let mut count = device.buffer::<u32>(1)?;
    run(device, &kernel, Grid::threads(1), (&mut count,))?;
    assert_eq!(count.to_vec()?, [80]);
    Ok(())
}

fn every_order_of_an_operation(device: &Device) -> CaseResult {
    let mut lines = String::new();
    let orders =
        |of: &[&'static str]| of.iter().map(|order| format!("memory_order_{order}")).collect::<Vec<_>>();
    for place in ["device_cell", "&shared_cell"] {
        for order in orders(&["relaxed", "acquire", "seq_cst"]) {
            lines += &format!("*sum += atomic_load_explicit({place}, {order});\n");
        }
        for order in orders(&["relaxed", "release", "seq_cst"]) {
            lines += &format!("atomic_store_explicit({place}, *sum, {order});\n");
        }
        for order in orders(&["relaxed", "acquire", "release", "acq_rel", "seq_cst"]) {
            lines += &format!(
                "*sum += atomic_fetch_add_explicit({place}, 1u, {order});
                 old = *sum;
                 *sum += atomic_exchange_explicit({place}, old, {order});
                 while (!atomic_compare_exchange_weak_explicit({place}, &old, 3u, {order}, memory_order_relaxed)) {{}}\n"
            );
        }
    }
    let body = format!(
        "kernel void orders(device atomic_uint* device_cell [[buffer(0)]], volatile device uint* sum [[buffer(1)]]) {{
            threadgroup atomic_uint shared_cell;
            atomic_store_explicit(&shared_cell, 5u, memory_order_relaxed);
            uint old;
            {lines}
            *sum += atomic_load_explicit(&shared_cell, memory_order_relaxed);
        }}"
    );
    let kernel = kernel(device, "orders", &body)?;
    let (mut cell, mut sum) = (device.buffer_with_data(&[5_u32])?, device.buffer_with_data(&[1_u32])?);
    run(device, &kernel, Grid::threads(1), (&mut cell, &mut sum))?;
    let mut expected = 1_u32;
    let mut cells = [5_u32; 2];
    for cell in &mut cells {
        expected += 3 * *cell;
        *cell = expected;
        for _ in 0..5 {
            expected += *cell;
            expected += *cell + 1;
            *cell = 3;
        }
    }
    assert_eq!((cell.to_vec()?, sum.to_vec()?), (vec![cells[0]], vec![expected + cells[1]]));
    Ok(())
}

fn tickets_are_unique(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "tickets",
        "kernel void tickets(device atomic_uint* next [[buffer(0)]], device uint* out [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {
            out[i] = atomic_fetch_add_explicit(next, 1u, memory_order_relaxed);
        }",
    )?;
    let (mut next, mut out) = (device.buffer::<u32>(1)?, device.buffer::<u32>(20_000)?);
    run(device, &kernel, Grid::threads(20_000), (&mut next, &mut out))?;
    let mut tickets = out.to_vec()?;
    tickets.sort_unstable();
    expect_all(&tickets, |i| i as u32);
    Ok(())
}

/// Updates without results, of few and of many counters.
fn counters(device: &Device) -> CaseResult {
    type Update = fn(u32, u32) -> u32;
    let updates: [(&str, Update); 7] = [
        ("add", u32::wrapping_add),
        ("sub", u32::wrapping_sub),
        ("or", |a, b| a | b),
        ("xor", |a, b| a ^ b),
        ("and", |a, b| a & b),
        ("max", u32::max),
        ("min", u32::min),
    ];
    let data: Vec<u32> = (0..20_000_u32).map(|i| i.wrapping_mul(2_654_435_761) >> 9).collect();
    let values = device.buffer_with_data(&data)?;
    for (name, update) in updates {
        let text = format!(
            "kernel void count(device const uint* data [[buffer(0)]], device atomic_uint* bins [[buffer(1)]],
                    constant uint& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {{
                if (data[i] % 3u == 0u) return;
                atomic_fetch_{name}_explicit(&bins[data[i] % n], data[i], memory_order_relaxed);
            }}"
        );
        let kernel = kernel(device, "count", &text)?;
        for n in [1, 61, 5000] {
            let mut expected: Vec<u32> = (0..n).map(|k| k * 77_777 + 5).collect();
            let mut bins = device.buffer_with_data(&expected)?;
            for value in data.iter().filter(|value| **value % 3 != 0) {
                let bin = &mut expected[(value % n) as usize];
                *bin = update(*bin, *value);
            }
            run(device, &kernel, Grid::threads(data.len()), (&values, &mut bins, n))?;
            expect_all(&bins.to_vec()?, |k| expected[k]);
        }
    }
    Ok(())
}

fn counters_beside_their_data(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "count",
        "kernel void count(device uint* all [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            device atomic_uint* bins = (device atomic_uint*)all;
            atomic_fetch_add_explicit(&bins[all[64u + i] % 64u], 1u, memory_order_relaxed);
        }",
    )?;
    let data: Vec<u32> = (0..4096_u32).map(|i| i.wrapping_mul(2_654_435_761) >> 7).collect();
    let mut expected = [vec![0; 64], data.clone()].concat();
    let mut all = device.buffer_with_data(&expected)?;
    data.iter().for_each(|value| expected[(value % 64) as usize] += 1);
    run(device, &kernel, Grid::threads(data.len()), (&mut all,))?;
    expect_all(&all.to_vec()?, |k| expected[k]);
    Ok(())
}

const COHERENT: &str = "coherent(system) device";

fn coherent_fetch(device: &Device) -> CaseResult {
    fetch_device(device, COHERENT, "int", signed_less)?;
    fetch_device(device, COHERENT, "uint", |a, b| a < b)?;
    fetch_device(device, "device coherent(device)", "uint", |a, b| a < b)?;
    fetch_device(device, "volatile device", "uint", |a, b| a < b)
}

/// Exchanges of coherent words, floats and booleans among others in a word, and the operations on floats and 64 bits.
fn coherent_exchange(device: &Device) -> CaseResult {
    let body = format!(
        "struct Cells {{ atomic_uint chain, count; atomic_float sum, difference, last; atomic_bool before, flag, won, behind; }};
         kernel void exchange({COHERENT} uint* words [[buffer(0)]], {COHERENT} atomic_ulong* limits [[buffer(1)]],
                              device uint* chain [[buffer(2)]], device float* last [[buffer(3)]],
                              device uint* first [[buffer(4)]], device uint* winner [[buffer(5)]],
                              uint i [[thread_position_in_grid]]) {{
             {COHERENT} Cells* cells = ({COHERENT} Cells*)words;
             chain[i] = atomic_exchange_explicit(&cells->chain, i + 1, memory_order_relaxed);
             uint seen = atomic_load_explicit(&cells->count, memory_order_relaxed);
             while (!atomic_compare_exchange_weak_explicit(&cells->count, &seen, seen + 3, memory_order_relaxed,
                                                           memory_order_relaxed)) {{}}
             atomic_fetch_add_explicit(&cells->sum, 0.5f, memory_order_relaxed);
             atomic_fetch_sub_explicit(&cells->difference, 0.25f, memory_order_relaxed);
             last[i] = atomic_exchange_explicit(&cells->last, float(i + 1), memory_order_relaxed);
             first[i] = !atomic_exchange_explicit(&cells->flag, true, memory_order_relaxed);
             bool expected = false;
             winner[i] = atomic_compare_exchange_strong_explicit(&cells->won, &expected, true, memory_order_relaxed,
                                                                 memory_order_relaxed);
             atomic_max_explicit(&limits[0], ulong(i) << 33, memory_order_relaxed);
             atomic_min_explicit(&limits[1], ~(ulong(i) << 33), memory_order_relaxed);
         }}"
    );
    let kernel = kernel(device, "exchange", &body)?;
    let n = N as usize;
    let mut cells = device.buffer_with_data(&[0_u32, 5, 0, 0, 0, 0])?;
    let mut limits = device.buffer_with_data(&[0_u64, u64::MAX])?;
    let mut chain = device.buffer::<u32>(n)?;
    let mut last = device.buffer::<f32>(n)?;
    let (mut first, mut winner) = (device.buffer::<u32>(n)?, device.buffer::<u32>(n)?);
    let args = (&mut cells, &mut limits, &mut chain, &mut last, &mut first, &mut winner);
    run(device, &kernel, Grid::threads(N), args)?;
    let cells = cells.to_vec()?;
    expect_all(&cells[1..4], |k| [5 + 3 * N, (N as f32 * 0.5).to_bits(), (N as f32 * -0.25).to_bits()][k]);
    expect_all(&cells[5..], |_| 0x0001_0100);
    let largest = u64::from(N - 1) << 33;
    expect_all(&limits.to_vec()?, |k| [largest, !largest][k]);
    // Each value but the last is the previous one of exactly one exchange.
    let mut chain = chain.to_vec()?;
    chain.push(cells[0]);
    chain.sort_unstable();
    expect_all(&chain, |k| k as u32);
    let mut last: Vec<u32> = last.to_vec()?.iter().map(|value| *value as u32).collect();
    last.push(f32::from_bits(cells[4]) as u32);
    last.sort_unstable();
    expect_all(&last, |k| k as u32);
    for once in [first.to_vec()?, winner.to_vec()?] {
        assert_eq!(once.iter().sum::<u32>(), 1);
    }
    Ok(())
}
