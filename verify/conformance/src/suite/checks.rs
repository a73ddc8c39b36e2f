//! Checked kernels: out-of-bounds reads are zero, writes are dropped, and the fault describes the access.

use elinvar::{CheckedKernel, Device, Error, Fault, Grid, Source, Threadgroup};

use super::{CaseResult, expect_all};

cases!("checks": within_bounds_nothing_changes, read_past_the_end, write_past_the_end, before_the_start, wide_indices,
    slices_are_bounds, dynamic_threadgroup_memory, threadgroup_variable, private_array, constant_table, atomics,
    struct_copy, one_of_two_buffers, barriers_and_early_return, divergent_barriers, pointer_from_memory_is_refused,
    empty_buffer, works_after_a_fault);

fn checked(device: &Device, name: &str, body: &str) -> elinvar::Result<CheckedKernel> {
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{body}");
    device.compile(Source::named(format!("{name}.metal"), text))?.checked_kernel(name)
}

fn run(device: &Device, kernel: &CheckedKernel, grid: Grid, args: impl elinvar::Args) -> elinvar::Result<()> {
    kernel.launch(&device.stream()?, grid, args)?.wait().map(drop)
}

/// Expects a fault. Its message must contain all parts and its location the line, unless the caps say that the device cannot name accesses;
/// then a location must be correct if there is one.
#[track_caller]
fn fault(device: &Device, result: elinvar::Result<()>, line: u32, parts: &[&str]) -> Fault {
    let tells = device.caps().features.names_accesses;
    match result {
        Err(Error::Fault(fault)) => {
            for part in parts.iter().filter(|_| tells) {
                assert!(fault.message.contains(part), "`{part}` is missing in: {fault}");
            }
            let is_right = |place: &String| place.ends_with(&format!(".metal:{line}"));
            assert!(fault.location.as_ref().map_or(!tells, is_right), "{fault} is not at line {line}");
            fault
        }
        other => panic!("expected a fault, got {other:?}"),
    }
}

/// Content after a failed launch, read through a copy on a new stream.
fn left_behind(device: &Device, data: &elinvar::Buffer<u32>) -> elinvar::Result<Vec<u32>> {
    let stream = device.stream()?;
    let mut copy = device.buffer::<u32>(data.len())?;
    match stream.copy(data, &mut copy)?.wait() {
        Ok(_) => copy.to_vec(),
        Err(error) => Err(error),
    }
}

const COPY: &str =
    "kernel void copy_from(device const uint* in [[buffer(0)]], device uint* out [[buffer(1)]],
        constant int& shift [[buffer(2)]], uint i [[thread_position_in_grid]]) {
        uint value =
            in[int(i) + shift];
        out[i] = value;
    }";

fn within_bounds_nothing_changes(device: &Device) -> CaseResult {
    let kernel = checked(device, "copy_from", COPY)?;
    let input = device.buffer_with_data(&(0..1000).collect::<Vec<u32>>())?;
    let mut out = device.buffer::<u32>(900)?;
    run(device, &kernel, Grid::threads(900), (&input, &mut out, 100_i32))?;
    expect_all(&out.to_vec()?, |i| i as u32 + 100);
    Ok(())
}

fn read_past_the_end(device: &Device) -> CaseResult {
    let kernel = checked(device, "copy_from", COPY)?;
    let input = device.buffer_with_data(&vec![7_u32; 100])?;
    let mut out = device.buffer_with_data(&vec![1_u32; 101])?;
    let result = run(device, &kernel, Grid::threads(101).group(32), (&input, &mut out, 0_i32));
    let found =
        fault(device, result, 6, &["read", "element 100", "argument 0 `in`", "100 elements", "(100, 0, 0)"]);
    assert_eq!(found.kernel, "copy_from");
    // The launch has failed, so its output cannot be read.
    assert!(matches!(out.to_vec(), Err(Error::Poisoned(_))));
    assert!(matches!(left_behind(device, &out), Err(Error::Poisoned(_))));
    Ok(())
}

fn write_past_the_end(device: &Device) -> CaseResult {
    let kernel = checked(
        device,
        "fill_all",
        "kernel void fill_all(device uint* out [[buffer(0)]], device uint* count [[buffer(1)]],
            uint i [[thread_position_in_grid]]) {
            out[i * 3u] = i;
            count[i] = i + 1u;
        }",
    )?;
    let mut all = device.buffer::<u32>(64)?;
    let mut count = device.buffer::<u32>(30)?;
    let result = run(device, &kernel, Grid::threads(30), (all.slice_mut(10..40)?, &mut count));
    fault(device, result, 5, &["write", "element 30", "argument 0 `out`", "30 elements", "(10, 0, 0)"]);
    // Writing the whole buffer clears the poisoning; a second launch within bounds changes nothing else.
    all.fill(5)?;
    run(device, &kernel, Grid::threads(10), (all.slice_mut(10..40)?, &mut count))?;
    expect_all(&all.to_vec()?, |i| {
        if (10..40).contains(&i) && (i - 10) % 3 == 0 { (i as u32 - 10) / 3 } else { 5 }
    });
    Ok(())
}

fn before_the_start(device: &Device) -> CaseResult {
    let kernel = checked(device, "copy_from", COPY)?;
    let input = device.buffer_with_data(&vec![7_u32; 100])?;
    let mut out = device.buffer::<u32>(100)?;
    let result = run(device, &kernel, Grid::threads(100), (&input, &mut out, -1_i32));
    fault(device, result, 6, &["read", "element -1", "argument 0 `in`", "(0, 0, 0)"]);
    Ok(())
}

/// An index is computed with all 64 bits: the sum may be in bounds although its parts are not, and out of bounds although its low 32 bits
/// are in bounds.
fn wide_indices(device: &Device) -> CaseResult {
    let body = "kernel void wide(device const uint* in [[buffer(0)]], device uint* out [[buffer(1)]],
        device const uint* o [[buffer(2)]], constant ulong& more [[buffer(3)]],
        uint i [[thread_position_in_grid]]) {
        out[i] =
            in[more + (ulong)o[i]];
    }";
    let kernel = checked(device, "wide", body)?;
    let input = device.buffer_with_data(&(0..500).collect::<Vec<u32>>())?;
    let mut out = device.buffer::<u32>(100)?;
    let o = device.buffer_with_data(&(0..100).map(|i| 4_294_967_200 + i / 2).collect::<Vec<u32>>())?;
    let back = 4_294_967_000_u64.wrapping_neg();
    run(device, &kernel, Grid::threads(100), (&input, &mut out, &o, back))?;
    expect_all(&out.to_vec()?, |i| 200 + i as u32 / 2);
    // A single thread, because any of several faulting threads may be reported.
    let result = run(device, &kernel, Grid::threads(1), (&input, &mut out, &o, 500_u64));
    fault(device, result, 7, &["read", "element 4294967700", "argument 0 `in`", "500 elements", "(0, 0, 0)"]);
    Ok(())
}

/// The bounds are those of the slice that is passed, not of the whole buffer.
fn slices_are_bounds(device: &Device) -> CaseResult {
    let kernel = checked(device, "copy_from", COPY)?;
    let input = device.buffer_with_data(&(0..100).collect::<Vec<u32>>())?;
    let mut out = device.buffer::<u32>(20)?;
    run(device, &kernel, Grid::threads(20), (input.slice(30..50)?, &mut out, 0_i32))?;
    expect_all(&out.to_vec()?, |i| i as u32 + 30);
    let result = run(device, &kernel, Grid::threads(20), (input.slice(30..49)?, &mut out, 0_i32));
    fault(device, result, 6, &["element 19", "19 elements", "(19, 0, 0)"]);
    Ok(())
}

fn dynamic_threadgroup_memory(device: &Device) -> CaseResult {
    let kernel = checked(
        device,
        "rotate_left",
        "kernel void rotate_left(device uint* out [[buffer(0)]], threadgroup uint* shared [[threadgroup(0)]],
            uint i [[thread_position_in_grid]], uint local [[thread_position_in_threadgroup]]) {
            shared[local] = i;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            out[i] = shared[(local + 1u) % 32u];
        }",
    )?;
    let mut out = device.buffer::<u32>(64)?;
    run(device, &kernel, Grid::threads(64).group(32), (&mut out, Threadgroup::of::<u32>(32)))?;
    expect_all(&out.to_vec()?, |i| (i / 32 * 32 + (i + 1) % 32) as u32);
    let result = run(device, &kernel, Grid::threads(64).group(32), (&mut out, Threadgroup::of::<u32>(31)));
    fault(device, result, 5, &["write", "element 31", "argument 1 `shared`", "31 elements"]);
    Ok(())
}

fn threadgroup_variable(device: &Device) -> CaseResult {
    let kernel = checked(
        device,
        "too_small",
        "kernel void too_small(device uint* out [[buffer(0)]], uint local [[thread_position_in_threadgroup]]) {
            threadgroup uint tile[8];
            tile[local] = local;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            out[local] = tile[local ^ 1u];
        }",
    )?;
    let mut out = device.buffer::<u32>(16)?;
    run(device, &kernel, Grid::threads(8).group(8), (out.slice_mut(0..8)?,))?;
    expect_all(&out.to_vec()?, |i| if i < 8 { i as u32 ^ 1 } else { 0 });
    let result = run(device, &kernel, Grid::threads(16).group(16), (&mut out,));
    fault(device, result, 5, &["write", "byte 32", "threadgroup variable `tile`", "32 bytes", "(8, 0, 0)"]);
    Ok(())
}

fn private_array(device: &Device) -> CaseResult {
    let kernel = checked(
        device,
        "picks",
        "kernel void picks(device uint* data [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            uint mine[4] = {i, i + 1u, i + 2u, i + 3u};
            mine[(i + 1u) % 4u] *= 10u;
            data[i] = mine[data[i]];
        }",
    )?;
    let mut data = device.buffer_with_data(&[0_u32, 3, 1, 2])?;
    run(device, &kernel, Grid::threads(4), (&mut data,))?;
    assert_eq!(data.to_vec()?, [0, 4, 3, 5]);
    let mut data = device.buffer_with_data(&[0_u32, 4, 1, 2])?;
    let result = run(device, &kernel, Grid::threads(4), (&mut data,));
    fault(device, result, 6, &["read", "byte 16", "a private array of 16 bytes", "(1, 0, 0)"]);
    Ok(())
}

fn constant_table(device: &Device) -> CaseResult {
    let kernel = checked(
        device,
        "table",
        "constant uint primes[6] = {2, 3, 5, 7, 11, 13};
        kernel void table(device uint* data [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            data[i] = primes[data[i]];
        }",
    )?;
    let mut data = device.buffer_with_data(&[5_u32, 0, 2])?;
    run(device, &kernel, Grid::threads(3), (&mut data,))?;
    assert_eq!(data.to_vec()?, [13, 2, 5]);
    let mut data = device.buffer_with_data(&[5_u32, 0, 6])?;
    fault(
        device,
        run(device, &kernel, Grid::threads(3), (&mut data,)),
        5,
        &["read", "constant array", "(2, 0, 0)"],
    );
    Ok(())
}

fn atomics(device: &Device) -> CaseResult {
    let kernel = checked(
        device,
        "bins",
        "kernel void bins(device const uint* in [[buffer(0)]], device atomic_uint* bins [[buffer(1)]],
            uint i [[thread_position_in_grid]]) {
            atomic_fetch_add_explicit(&bins[in[i]], 1u, memory_order_relaxed);
            uint seen = 0u;
            while (!atomic_compare_exchange_weak_explicit(&bins[in[i]], &seen, seen + 1u, memory_order_relaxed,
                                                          memory_order_relaxed)) {}
        }",
    )?;
    let input = device.buffer_with_data(&[0_u32, 1, 1, 2, 3])?;
    let mut bins = device.buffer::<u32>(4)?;
    run(device, &kernel, Grid::threads(5), (&input, &mut bins))?;
    assert_eq!(bins.to_vec()?, [2, 4, 2, 2]);
    let mut bins = device.buffer::<u32>(3)?;
    let result = run(device, &kernel, Grid::threads(5), (&input, &mut bins));
    fault(device, result, 5, &["write", "element 3", "argument 1 `bins`", "(4, 0, 0)"]);
    Ok(())
}

fn struct_copy(device: &Device) -> CaseResult {
    let kernel = checked(
        device,
        "swap_all",
        "struct Item { uint a[20]; float4 b; };
        kernel void swap_all(device const Item* in [[buffer(0)]], device Item* out [[buffer(1)]],
            constant uint& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {
            out[i] = in[n - 1u - i];
        }",
    )?;
    let words = 24;
    let data: Vec<u32> = (0..words * 5).collect();
    let bytes: &[u8] = bytemuck::cast_slice(&data);
    let input = device.buffer_with_data(bytes)?;
    let mut out = device.buffer::<u8>(bytes.len())?;
    run(device, &kernel, Grid::threads(5), (&input, &mut out, 5_u32))?;
    let got = out.to_vec()?;
    expect_all(bytemuck::cast_slice::<u8, u32>(&got), |i| {
        let (item, word) = (i as u32 / words, i as u32 % words);
        (4 - item) * words + word
    });
    let result = run(device, &kernel, Grid::threads(5), (&input, &mut out, 6_u32));
    fault(device, result, 6, &["element 5", "argument 0 `in`", "5 elements", "(0, 0, 0)"]);
    Ok(())
}

/// The buffer that a pointer points to is only known at run time.
fn one_of_two_buffers(device: &Device) -> CaseResult {
    let kernel = checked(
        device,
        "either",
        "kernel void either(device uint* a [[buffer(0)]], device uint* b [[buffer(1)]],
            constant uint& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {
            device uint* p = (i & 1u) ? a : b;
            for (uint k = 0; k < n; ++k) {
                p[i] += 1u;
                p = p == a ? b : a;
            }
        }",
    )?;
    let (mut a, mut b) = (device.buffer::<u32>(10)?, device.buffer::<u32>(8)?);
    run(device, &kernel, Grid::threads(8), (&mut a, &mut b, 3_u32))?;
    expect_all(&a.to_vec()?, |i| if i >= 8 { 0 } else { 1 + i as u32 % 2 });
    expect_all(&b.to_vec()?, |i| 2 - i as u32 % 2);
    let result = run(device, &kernel, Grid::threads(10), (&mut a, &mut b, 1_u32));
    fault(device, result, 7, &["element 8", "argument 1 `b`", "8 elements", "(8, 0, 0)"]);
    Ok(())
}

fn barriers_and_early_return(device: &Device) -> CaseResult {
    let kernel = checked(
        device,
        "meets",
        "kernel void meets(device uint* out [[buffer(0)]], constant uint& n [[buffer(1)]],
            uint i [[thread_position_in_grid]], uint local [[thread_position_in_threadgroup]]) {
            threadgroup uint shared[32];
            if (i >= n) return;
            uint mine = i;
            for (uint k = 0; k < 5u; ++k) {
                shared[local] = mine;
                threadgroup_barrier(mem_flags::mem_threadgroup);
                mine += shared[0] + k;
                threadgroup_barrier(mem_flags::mem_threadgroup);
            }
            out[i] = mine;
        }",
    )?;
    let mut out = device.buffer::<u32>(96)?;
    run(device, &kernel, Grid::threads(96).group(32), (&mut out, 80_u32))?;
    expect_all(&out.to_vec()?, |i| {
        if i >= 80 {
            return 0;
        }
        let (mut mine, mut first) = (i as u32, i as u32 / 32 * 32);
        for k in 0..5 {
            mine += first + k;
            first = 2 * first + k;
        }
        mine
    });
    Ok(())
}

fn pointer_from_memory_is_refused(device: &Device) -> CaseResult {
    let kernel = checked(
        device,
        "follows",
        "struct Table { device uint* data; uint n; };
        kernel void follows(constant Table& table [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            table.data[i] = i;
        }",
    );
    let result = kernel.and_then(|kernel| {
        let table = device.buffer::<u8>(16)?;
        run(device, &kernel, Grid::threads(1), (&table,))
    });
    match result {
        Err(Error::Unsupported(message)) if message.contains("follows.metal:5") => {
            assert!(message.contains("pointer"), "{message}");
        }
        Err(error @ Error::Unsupported(_)) => return Err(error.into()),
        other => panic!("expected `Unsupported`, got {other:?}"),
    }
    Ok(())
}

fn empty_buffer(device: &Device) -> CaseResult {
    let kernel = checked(device, "copy_from", COPY)?;
    let (input, mut out) = (device.buffer::<u32>(0)?, device.buffer::<u32>(4)?);
    let result = run(device, &kernel, Grid::threads(4), (&input, &mut out, 0_i32));
    fault(device, result, 6, &["read", "argument 0 `in`", "0 elements"]);
    Ok(())
}

fn works_after_a_fault(device: &Device) -> CaseResult {
    let kernel = checked(device, "copy_from", COPY)?;
    let input = device.buffer_with_data(&(0..50).collect::<Vec<u32>>())?;
    let mut out = device.buffer::<u32>(60)?;
    let stream = device.stream()?;
    let failed = kernel.launch(&stream, Grid::threads(60), (&input, &mut out, 0_i32))?;
    let behind = kernel.launch(&stream, Grid::threads(50), (&input, &mut out, 0_i32))?;
    assert!(matches!(failed.wait(), Err(Error::Fault(_))));
    assert!(matches!(behind.wait(), Err(Error::Poisoned(_))));
    assert!(matches!(stream.acknowledge(), Some(Error::Fault(_))));
    out.fill(9)?;
    kernel.launch(&stream, Grid::threads(50), (&input, &mut out, 0_i32))?.wait()?;
    expect_all(&out.to_vec()?, |i| if i < 50 { i as u32 } else { 9 });
    Ok(())
}

/// Accesses between barriers that not all lanes of a simdgroup reach, within bounds and beyond.
fn divergent_barriers(device: &Device) -> CaseResult {
    let kernel = checked(
        device,
        "parts",
        "kernel void parts(device uint* out [[buffer(0)]], constant uint& n [[buffer(1)]],
            uint i [[thread_position_in_threadgroup]]) {
            uint r = 0;
            if (i < n) {
                for (uint k = 0; k < 3; ++k) {
                    threadgroup_barrier(mem_flags::mem_none);
                    r += out[i] + k;
                }
            }
            out[i] = r + simd_shuffle_xor(r, ushort(1));
        }",
    )?;
    for n in [0_u32, 1, 17, 32, 33, 64] {
        let mut out = device.buffer_with_data(&(0..64).collect::<Vec<u32>>())?;
        run(device, &kernel, Grid::threads(64).group(64), (&mut out, n))?;
        let r = |i: usize| if (i as u32) < n { 3 * i as u32 + 3 } else { 0 };
        expect_all(&out.to_vec()?, |i| r(i) + r(i ^ 1));
    }
    let mut short = device.buffer_with_data(&(0..16).collect::<Vec<u32>>())?;
    let result = run(device, &kernel, Grid::threads(32).group(32), (&mut short, 17_u32));
    fault(device, result, 9, &["read", "element 16", "16 elements"]);
    Ok(())
}
