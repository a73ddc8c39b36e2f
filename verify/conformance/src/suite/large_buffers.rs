//! Buffers of 4 and 12 GiB, read and written at both ends and in between.
//!
//! A case touches few pages of its buffer, so where memory is committed on first use it needs little of it. Each case exists for both
//! sizes: indices of bytes exceed 31 and 32 bits in both, those of `float` elements in the second.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytemuck::Pod;
use elinvar::{
    Arg, Buffer, CheckedKernel, Device, Error, Graph, Grid, HostAccess, Kernel, RecoveryPolicy, Source,
};
use parking_lot::Mutex;

use super::{Case, CaseResult, expect_all, kernel, launch, run};

/// The cases of a function, one for each size.
macro_rules! sized {
    ($($name:ident),* $(,)?) => {
        pub(super) const CASES: &[Case] = &[$(
            Case {
                name: concat!("large_buffers::", stringify!($name), "_of_4_gib"),
                run: |device| alone(|| $name(device, 4 << 30)),
                parts: Vec::new,
            },
            Case {
                name: concat!("large_buffers::", stringify!($name), "_of_12_gib"),
                run: |device| alone(|| $name(device, 12 << 30)),
                parts: Vec::new,
            },
        )*];
    };
}

sized!(
    contiguous_accesses,
    indices_that_wrap_around,
    gathers_and_scatters,
    strides,
    atomics,
    checked_accesses,
    groups,
    slices,
    one_of_two,
    copies_and_fills,
    maps,
    transients,
    launches_of_every_kind,
    pointers_in_memory,
    tensors,
);

/// Tensors with distant rows.
fn tensors(device: &Device, size: u64) -> CaseResult {
    super::tensor::distant_rows(device, &mut large(device, size)?)
}

/// Runs one case of this process at a time: each may need most of the memory.
fn alone(case: impl FnOnce() -> CaseResult) -> CaseResult {
    static TURN: Mutex<()> = Mutex::new(());
    let _mine = TURN.lock();
    case()
}

/// Compiles kernels of a source. Cases do so before they allocate, so that they have the same kernels on every device.
fn kernels<const K: usize>(device: &Device, names: [&str; K], text: &str) -> elinvar::Result<[Kernel; K]> {
    let made = names.iter().map(|name| kernel(device, name, text)).collect::<elinvar::Result<Vec<_>>>()?;
    Ok(std::array::from_fn(|i| made[i].clone()))
}

/// Reason of a case for which the device has too little memory.
const SHORT: &str = "memory is short";

/// Why a device cannot run a case of this chapter: its memory. `None` if it must.
pub fn memory_is_short(device: &Device, case: &str) -> Option<&'static str> {
    let gib: u64 =
        case.strip_prefix("large_buffers::")?.strip_suffix("_gib")?.rsplit('_').next()?.parse().ok()?;
    (most(device) < gib << 30).then_some(SHORT)
}

/// Size of the largest buffer that leaves some memory to others.
fn most(device: &Device) -> u64 {
    let (limits, budget) = (&device.caps().limits, device.pool().limits().budget);
    limits.max_buffer_bytes.min(budget.saturating_sub(1 << 30))
}

/// A zeroed buffer of `bytes` bytes in the device's memory. `Unsupported` if it has too little, or cannot allocate it now.
fn large<T: Pod>(device: &Device, bytes: u64) -> elinvar::Result<Buffer<T>> {
    large_for(device, bytes, HostAccess::Never)
}

fn large_for<T: Pod>(device: &Device, bytes: u64, host: HostAccess) -> elinvar::Result<Buffer<T>> {
    let short =
        |have: u64| Err(Error::Unsupported(format!("a buffer of {bytes} bytes: {SHORT}: {have} bytes")));
    if most(device) < bytes {
        return short(most(device));
    }
    // An idle block would be reused, and cleared completely.
    device.pool().trim(0);
    match device.buffer_for::<T>(bytes as usize / size_of::<T>(), host) {
        Err(Error::OutOfMemory { available, .. }) => short(available),
        other => other,
    }
}

/// Compares elements from `first` on.
#[track_caller]
fn expect_at<T: Pod + PartialEq + std::fmt::Debug>(
    x: &Buffer<T>,
    first: usize,
    expected: &[T],
) -> CaseResult {
    let got = x.slice(first..first + expected.len())?.to_vec()?;
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_eq!(got, expected, "element {} of {}", first + i, x.len());
    }
    Ok(())
}

/// Number of places: whole vectors, and whole threadgroups of 32.
const PLACES: usize = 64;

/// Distinct places at both ends of `len` elements, at powers of two, and between.
fn places(len: usize) -> Vec<usize> {
    let mut bases = vec![0, 1, 7, 1000, len / 3, len / 2 + 1, len - 1, len - 2, len - 9, len - 1000];
    bases.extend((28..34).flat_map(|power| [(1_usize << power) - 1, 1 << power, (1 << power) + 5]));
    bases.retain(|at| *at < len);
    let mut all: BTreeSet<usize> = bases.iter().copied().collect();
    let more = (1..PLACES).flat_map(|k| bases.iter().map(move |at| at + 17 * k)).filter(|at| *at < len);
    for at in more {
        if all.len() < PLACES {
            all.insert(at);
        }
    }
    let all: Vec<usize> = all.into_iter().collect();
    // Adjacent lanes are far apart.
    let places: Vec<usize> = (0..PLACES).map(|i| all[i * 13 % PLACES]).collect();
    assert!(places.contains(&0) && places.contains(&(len - 1)));
    places
}

const CONTIGUOUS: &str = "
    kernel void bytes(device uchar* x, constant ulong& base, uint i [[thread_position_in_grid]]) {
        x[base + i] += uchar(i * 3u + 1u); }
    kernel void floats(device float* x, constant ulong& base, uint i [[thread_position_in_grid]]) {
        if (i % 3u != 1u) x[base + i] += float(i) + 1.0f; }
    kernel void vectors(device float4* x, constant ulong& base, uint i [[thread_position_in_grid]]) {
        x[base + i] += float4(float(i), 1.0f, 2.0f, 3.0f); }";
/// Number of threads: the last threadgroup and the last vector are partial.
const N: usize = 1003;

fn contiguous_accesses(device: &Device, size: u64) -> CaseResult {
    fn at_both_ends<T: Pod + PartialEq + std::fmt::Debug>(
        device: &Device,
        size: u64,
        kernel: &Kernel,
        sum: impl Fn(usize) -> T,
    ) -> CaseResult {
        let mut x = large::<T>(device, size)?;
        let len = x.len();
        let zero = [T::zeroed(); 9];
        let middle = [28, 31, 32].map(|power| (1_usize << power) - N / 2);
        for base in [0, len - N].into_iter().chain(middle.into_iter().filter(|at| at + N < len - N)) {
            // A new page is zero.
            expect_at(&x, base, &[T::zeroed(); N])?;
            run(device, kernel, Grid::threads(N).group(64), (&mut x, base as u64))?;
            expect_at(&x, base, &(0..N).map(&sum).collect::<Vec<_>>())?;
            if base > 0 {
                expect_at(&x, base - zero.len(), &zero)?;
            }
            if base + N < len {
                expect_at(&x, base + N, &zero)?;
            }
        }
        Ok(())
    }
    let [bytes, floats, vectors] = kernels(device, ["bytes", "floats", "vectors"], CONTIGUOUS)?;
    at_both_ends(device, size, &bytes, |i| (i * 3 + 1) as u8)?;
    at_both_ends(device, size, &floats, |i| if i % 3 == 1 { 0.0 } else { i as f32 + 1.0 })?;
    at_both_ends(device, size, &vectors, |i| [i as f32, 1.0, 2.0, 3.0])
}

/// Sums of 32 bits that wrap around within a vector. Both sides of the jump are in the buffer.
fn indices_that_wrap_around(device: &Device, size: u64) -> CaseResult {
    let text = "
        kernel void unsigned_sum(device uchar* x, device uchar* y, constant uint& n, uint i [[thread_position_in_grid]]) {
            y[i] = x[n + i]; x[n + i] = uchar(i + 1u); }
        kernel void signed_sum(device uchar* x, device uchar* y, constant uint& n, uint i [[thread_position_in_grid]]) {
            device uchar* middle = x + 0x80000000ul;
            y[i] = middle[as_type<int>(n + i)]; middle[as_type<int>(n + i)] = uchar(i + 1u); }
        kernel void backwards(device uchar* x, device uchar* y, constant uint& n, uint i [[thread_position_in_grid]]) {
            y[i] = x[n - i]; x[n - i] = uchar(i + 1u); }
        kernel void rows(device packed_uchar3* x, device packed_uchar3* y, constant uint& n,
                uint i [[thread_position_in_grid]]) {
            y[i] = x[n + i]; x[n + i] = packed_uchar3(i + 1u, 7, 9); }
        kernel void divergent(device uchar* x, device uchar* y, constant uint& n, uint i [[thread_position_in_grid]]) {
            if (y[i] == 0) { y[i] = x[n + i]; x[n + i] = uchar(i + 1u); } }";
    let names = ["unsigned_sum", "signed_sum", "backwards", "divergent"];
    let built = kernels(device, names, text)?;
    let rows = kernel(device, "rows", text)?;
    let mut x = large::<u8>(device, size)?;
    let top = 1_usize << 32;
    let threads = 250;
    let of = |i: u32, n: u32| n.wrapping_add(i) as usize;
    let signed = |i: u32, n: u32| (i64::from(n.wrapping_add(i) as i32) + (1 << 31)) as usize;
    let back = |i: u32, n: u32| n.wrapping_sub(i) as usize;
    type Index<'a> = &'a dyn Fn(u32, u32) -> usize;
    let cases: [(u32, Index<'_>); 4] =
        [(u32::MAX - 100, &of), ((1 << 31) - 101, &signed), (100, &back), (u32::MAX - 69, &of)];
    let mut content: BTreeMap<usize, u8> = BTreeMap::new();
    for (kernel, (n, index)) in built.iter().zip(cases) {
        let mut y = device.buffer::<u8>(threads)?;
        run(device, kernel, Grid::threads(threads).group(32), (&mut x, &mut y, n))?;
        let before = |i: usize| content.get(&index(i as u32, n)).copied().unwrap_or(0);
        expect_all(&y.to_vec()?, before);
        content.extend((0..threads).map(|i| (index(i as u32, n), (i + 1) as u8)));
        for first in [0, top - 400] {
            let expected = (first..first + 400).map(|at| content.get(&at).copied().unwrap_or(0));
            expect_at(&x, first, &expected.collect::<Vec<_>>())?;
        }
        if x.len() > top {
            expect_at(&x, top, &[0; 400])?;
        }
    }
    // An element of three bytes: 3 · 2^32 bytes are 12 GiB, so that the jump is within the larger buffer only.
    let elements = x.len() / 3;
    let n = if elements == top { u32::MAX - 100 } else { (elements - threads) as u32 };
    let mut y = device.buffer::<u8>(3 * threads)?;
    let part = 3 * elements;
    run(device, &rows, Grid::threads(threads).group(32), (x.slice_mut(0..part)?, &mut y, n))?;
    let at = |i: usize| 3 * of(i as u32, n);
    for i in 0..threads {
        let expected: Vec<u8> = (at(i)..at(i) + 3).map(|at| content.get(&at).copied().unwrap_or(0)).collect();
        assert_eq!(y.slice(3 * i..3 * i + 3)?.to_vec()?, expected, "element {i}");
        expect_at(&x, at(i), &[(i + 1) as u8, 7, 9])?;
    }
    Ok(())
}

/// A kernel that loads and then stores one element for each index.
fn exchange(element: &str, index: &str) -> String {
    format!(
        "kernel void exchange(device {element}* x, device const {index}* at, device {element}* y,
                uint i [[thread_position_in_grid]]) {{
            y[i] = x[at[i]]; x[at[i]] = y[i] * {element}(2) + {element}(i + 1u); }}
        kernel void visited(device {element}* x, device const {index}* at, device {element}* y, constant uint& n,
                uint i [[thread_position_in_grid]]) {{
            for (uint k = i; k < n; k += 16u) if ((at[k] & 1) == 0) y[k] = x[at[k]]; else x[at[k]] = {element}(k + 3u); }}"
    )
}

fn gathers_and_scatters(device: &Device, size: u64) -> CaseResult {
    fn by<T: Pod + PartialEq + std::fmt::Debug, I: Pod>(
        device: &Device,
        size: u64,
        [exchange, visited]: &[Kernel; 2],
        of: impl Fn(usize) -> T,
        convert: impl Fn(usize) -> Option<I>,
    ) -> CaseResult {
        let mut x = large::<T>(device, size)?;
        let places: Vec<usize> = places(x.len()).into_iter().filter(|at| convert(*at).is_some()).collect();
        let indices: Vec<I> = places.iter().filter_map(|at| convert(*at)).collect();
        let (n, at) = (places.len(), device.buffer_with_data(&indices)?);
        for round in 0..2 {
            let mut y = device.buffer::<T>(n)?;
            run(device, exchange, Grid::threads(n).group(32), (&mut x, &at, &mut y))?;
            let (before, after) = (|i| of(round * (i + 1)), |i| of((2 * round + 1) * (i + 1)));
            expect_all(&y.to_vec()?, before);
            for (i, at) in places.iter().enumerate() {
                expect_at(&x, *at, &[after(i)])?;
            }
        }
        let mut y = device.buffer::<T>(n)?;
        run(device, visited, Grid::threads(16).group(16), (&mut x, &at, &mut y, n as u32))?;
        let stays = |i: usize| places[i].is_multiple_of(2);
        expect_all(&y.to_vec()?, |i| if stays(i) { of(3 * (i + 1)) } else { of(0) });
        for (i, at) in places.iter().enumerate() {
            expect_at(&x, *at, &[if stays(i) { of(3 * (i + 1)) } else { of(i + 3) }])?;
        }
        Ok(())
    }
    let types = [
        ("uchar", "uint"),
        ("uchar", "ulong"),
        ("ushort", "uint"),
        ("float", "uint"),
        ("float", "ulong"),
        ("float", "int"),
        ("float4", "uint"),
    ];
    let of = |(element, index)| kernels(device, ["exchange", "visited"], &exchange(element, index));
    let built = types.into_iter().map(of).collect::<elinvar::Result<Vec<_>>>()?;
    let uint = |at: usize| u32::try_from(at).ok();
    let ulong = |at: usize| Some(at as u64);
    let int = |at: usize| i32::try_from(at).ok();
    let float4 = |k: usize| [k as f32; 4];
    by(device, size, &built[0], |k| k as u8, uint)?;
    by(device, size, &built[1], |k| k as u8, ulong)?;
    by(device, size, &built[2], |k| k as u16, uint)?;
    by(device, size, &built[3], |k| k as f32, uint)?;
    by(device, size, &built[4], |k| k as f32, ulong)?;
    by(device, size, &built[5], |k| k as f32, int)?;
    by(device, size, &built[6], float4, uint)
}

fn strides(device: &Device, size: u64) -> CaseResult {
    let text = "
        kernel void far_apart(device uchar* x, constant size_t& stride, uint i [[thread_position_in_grid]]) {
            x[i * stride] += uchar(i + 1u); }
        kernel void floats(device float* x, device float* y, constant ulong& stride, uint i [[thread_position_in_grid]]) {
            y[i] = x[i * stride]; x[i * stride] = float(i); }
        kernel void packed(device packed_float3* x, constant uint& n, uint i [[thread_position_in_grid]]) {
            float3 v = x[n + i]; x[n + i] = v.zxy + float3(float(i), 1.0f, 2.0f); }
        kernel void halves(device half* x, constant uint& n, uint i [[thread_position_in_grid]]) {
            x[n + 2u * i] = half(i); }";
    let [far_apart, floats, packed, halves] =
        kernels(device, ["far_apart", "floats", "packed", "halves"], text)?;
    let threads = 41;
    let mut x = large::<u8>(device, size)?;
    let stride = (x.len() - 1) / (threads - 1);
    for round in 1..=2 {
        run(device, &far_apart, Grid::threads(threads).group(16), (&mut x, stride as u64))?;
        for i in 0..threads {
            expect_at(&x, i * stride, &[(round * (i + 1)) as u8])?;
        }
    }
    drop(x);
    let (mut x, mut y) = (large::<f32>(device, size)?, device.buffer::<f32>(threads)?);
    let stride = (x.len() - 1) / (threads - 1);
    for round in 0..2 {
        let arguments = (&mut x, &mut y, stride as u64);
        run(device, &floats, Grid::threads(threads).group(16), arguments)?;
        expect_all(&y.to_vec()?, |i| if round == 0 { 0.0 } else { i as f32 });
    }
    for i in 0..threads {
        expect_at(&x, i * stride, &[i as f32])?;
    }
    // Elements of 12 bytes: the last ones, and those around byte 2^31.
    let len = x.len() / 3;
    for n in [len - 500, (1 << 31) / 12 - 250, 16] {
        x.slice_mut(3 * n..3 * (n + 500))?.fill(4.0)?;
        run(device, &packed, Grid::threads(500).group(64), (x.slice_mut(0..3 * len)?, n as u32))?;
        let lane = |i: usize| [4.0 + i as f32, 5.0, 6.0];
        expect_at(&x, 3 * n, &(0..500).flat_map(lane).collect::<Vec<_>>())?;
    }
    drop(x);
    let mut x = large::<elinvar::f16>(device, size)?;
    // 2^32 elements of 2 bytes are within 12 GiB: the index wraps around.
    let n = if x.len() > 1 << 32 { u32::MAX - 99 } else { (x.len() - 500) as u32 };
    run(device, &halves, Grid::threads(200).group(64), (&mut x, n))?;
    for i in 0..200_u32 {
        let at = n.wrapping_add(2 * i) as usize;
        expect_at(&x, at, &[elinvar::f16::from_f32(i as f32), elinvar::f16::from_f32(0.0)])?;
    }
    Ok(())
}

fn atomics(device: &Device, size: u64) -> CaseResult {
    let text = "
        kernel void count(device atomic_uint* x, device const ulong* at, constant uint& n, device uint* old,
                uint i [[thread_position_in_grid]]) {
            old[i] = atomic_fetch_add_explicit(x + at[i % n], i / n + 1u, memory_order_relaxed); }
        kernel void largest(device atomic_int* x, device const uint* at, constant uint& n,
                uint i [[thread_position_in_grid]]) {
            atomic_fetch_max_explicit(&x[at[i % n]], int(i), memory_order_relaxed); }
        kernel void negate(device atomic_int* x, device const uint* at, uint i [[thread_position_in_grid]]) {
            // It may fail for no reason.
            for (uint k = 0; k < 100u; ++k) {
                int expected = int(i) + 64;
                if (atomic_compare_exchange_weak_explicit(&x[at[i]], &expected, -int(i),
                    memory_order_relaxed, memory_order_relaxed)) break;
            }
        }";
    let [count, largest, negate] = kernels(device, ["count", "largest", "negate"], text)?;
    let mut x = large::<u32>(device, size)?;
    let places = places(x.len());
    let n = places.len();
    let at = device.buffer_with_data(&places.iter().map(|at| *at as u64).collect::<Vec<_>>())?;
    let mut old = device.buffer::<u32>(4 * n)?;
    run(device, &count, Grid::threads(4 * n).group(32), (&mut x, &at, n as u32, &mut old))?;
    for at in &places {
        expect_at(&x, *at, &[10])?;
    }
    let old = old.to_vec()?;
    for i in 0..n {
        // The four additions to an element, in some order.
        let mut values: Vec<(u32, u32)> = (0..4).map(|k| (old[k * n + i], k as u32 + 1)).collect();
        values.sort_unstable();
        let sums = values.iter().scan(0, |sum, (_, more)| Some(std::mem::replace(sum, *sum + more)));
        assert_eq!(sums.collect::<Vec<_>>(), values.iter().map(|(old, _)| *old).collect::<Vec<_>>());
    }
    drop(x);
    let mut x = large::<i32>(device, size)?;
    let at = device.buffer_with_data(&places.iter().map(|at| *at as u32).collect::<Vec<_>>())?;
    run(device, &largest, Grid::threads(2 * n).group(32), (&mut x, &at, n as u32))?;
    for (i, at) in places.iter().enumerate() {
        expect_at(&x, *at, &[(n + i) as i32])?;
    }
    run(device, &negate, Grid::threads(n).group(32), (&mut x, &at))?;
    for (i, at) in places.iter().enumerate() {
        expect_at(&x, *at, &[-(i as i32)])?;
    }
    Ok(())
}

fn checked(device: &Device, name: &str, text: &str) -> elinvar::Result<CheckedKernel> {
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{text}");
    device.compile(Source::named("large.metal", text))?.checked_kernel(name)
}

fn checked_accesses(device: &Device, size: u64) -> CaseResult {
    let text = "
        kernel void bytes(device uchar* x, device const ulong* at, device uchar* y, uint i [[thread_position_in_grid]]) {
            y[i] = x[at[i]];
            x[at[i]] = uchar(i + 1u);
        }
        kernel void shifted(device uchar* x, device uchar* y, constant uint& n, uint i [[thread_position_in_grid]]) {
            y[i] = x[n + i];
            x[n + i] = uchar(i + 1u);
        }
        kernel void floats(device float* x, device const uint* at, uint i [[thread_position_in_grid]]) {
            x[at[i]] = float(i);
        }";
    // First of all, so that a device whose memory is short gives that reason.
    let mut x = large::<u8>(device, size)?;
    let of = |name| checked(device, name, text);
    let (bytes, shifted, floats) = (of("bytes")?, of("shifted")?, of("floats")?);
    let stream = device.stream()?;
    let places = places(x.len());
    let n = places.len();
    let at = device.buffer_with_data(&places.iter().map(|at| *at as u64).collect::<Vec<_>>())?;
    for round in 0..2 {
        let mut y = device.buffer::<u8>(n)?;
        bytes.launch(&stream, Grid::threads(n).group(32), (&mut x, &at, &mut y))?.wait()?;
        expect_all(&y.to_vec()?, |i| if round == 0 { 0 } else { (i + 1) as u8 });
        for (i, at) in places.iter().enumerate() {
            expect_at(&x, *at, &[(i + 1) as u8])?;
        }
    }
    let len = x.len();
    let told = |result: elinvar::Result<_>, parts: &[String]| match result {
        Err(Error::Fault(fault)) => {
            for part in parts.iter().filter(|_| device.caps().features.names_accesses) {
                assert!(fault.message.contains(part.as_str()), "`{part}` is missing in: {fault}");
            }
        }
        other => panic!("expected a fault, got {:?}", other.map(drop)),
    };
    drop(x);
    // After a fault the content of a buffer is missing, so each has its own.
    for wrong in [len as u64, len as u64 + 5, (1 << 40) + 3, 3_u64.wrapping_neg()] {
        let mut x = large::<u8>(device, size)?;
        let (at, mut y) = (device.buffer_with_data(&[wrong])?, device.buffer::<u8>(1)?);
        let stream = device.stream()?;
        let result = bytes.launch(&stream, Grid::threads(1), (&mut x, &at, &mut y))?.wait();
        let parts = [format!("read of element {} of argument 0 `x` (uchar, {len} elements)", wrong as i64)];
        told(result, &parts);
    }
    // A slice at the end has its own bounds, before and behind it.
    let part = len - 300;
    for wrong in [300, 1_u64.wrapping_neg(), (1 << 32) + 299] {
        let mut x = large::<u8>(device, size)?;
        let (at, mut y) = (device.buffer_with_data(&[wrong])?, device.buffer::<u8>(1)?);
        let stream = device.stream()?;
        let result = bytes.launch(&stream, Grid::threads(1), (x.slice_mut(part..len)?, &at, &mut y))?.wait();
        told(result, &[format!("element {} of argument 0 `x` (uchar, 300 elements)", wrong as i64)]);
    }
    let mut x = large::<u8>(device, size)?;
    let (first, threads) = (u32::MAX - 99, 200);
    let mut y = device.buffer::<u8>(threads)?;
    shifted.launch(&device.stream()?, Grid::threads(threads).group(32), (&mut x, &mut y, first))?.wait()?;
    for i in 0..threads {
        expect_at(&x, first.wrapping_add(i as u32) as usize, &[(i + 1) as u8])?;
    }
    drop(x);
    let mut x = large::<f32>(device, size)?;
    let ends = [x.len() - 1, 0, x.len() / 2, x.len() - 2, 1];
    let at = device.buffer_with_data(&ends.map(|at| at as u32))?;
    floats.launch(&device.stream()?, Grid::threads(5), (&mut x, &at))?.wait()?;
    for (i, at) in ends.into_iter().enumerate() {
        expect_at(&x, at, &[i as f32])?;
    }
    let (at, stream) = (device.buffer_with_data(&[x.len() as u32 + 7])?, device.stream()?);
    let result = floats.launch(&stream, Grid::threads(1), (&mut x, &at))?.wait();
    told(
        result,
        &[format!("write to element {} of argument 0 `x` (float, {} elements)", x.len() + 7, x.len())],
    );
    Ok(())
}

/// Threadgroup memory, barriers and simdgroup functions beside accesses to a large buffer.
fn groups(device: &Device, size: u64) -> CaseResult {
    let text = "
        kernel void sums(device float* x, device float* y, constant ulong& last, uint i [[thread_position_in_grid]],
                uint t [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
            threadgroup float tile[64];
            float own[4];
            for (uint k = 0; k < 4u; ++k) own[k] = x[last - (ulong)i * 4u - k];
            tile[t ^ 1u] = own[t & 3u] + own[(t + 1u) & 3u];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            float sum = simd_sum(tile[63u - t]);
            if (simd_is_first()) x[last - 4096u - (ulong)(i / 32u)] = sum;
            threadgroup_barrier(mem_flags::mem_device);
            y[i] = x[last - 4096u - (ulong)((i / 32u) ^ 1u)];
        }";
    let sums = kernel(device, "sums", text)?;
    let mut x = large::<f32>(device, size)?;
    let (len, threads) = (x.len(), 256);
    let value = |back: usize| (back % 97) as f32;
    let end: Vec<f32> = (0..4 * threads).map(|at| value(4 * threads - 1 - at)).collect();
    x.slice_mut(len - end.len()..len)?.write(&end)?;
    let mut y = device.buffer::<f32>(threads)?;
    run(device, &sums, Grid::threads(threads).group(64), (&mut x, &mut y, (len - 1) as u64))?;
    let of = |thread: usize| {
        let own = |k: usize| value(4 * thread + k);
        own(thread & 3) + own((thread + 1) & 3)
    };
    let sum = |simdgroup: usize| -> f32 {
        let group = simdgroup / 2 * 64;
        (0..32).map(|lane| of(group + ((63 - (simdgroup % 2 * 32 + lane)) ^ 1))).sum()
    };
    for simdgroup in 0..threads / 32 {
        expect_at(&x, len - 1 - 4096 - simdgroup, &[sum(simdgroup)])?;
    }
    expect_all(&y.to_vec()?, |i| sum((i / 32) ^ 1));
    Ok(())
}

const ADD: &str =
    "kernel void add(device const uint* a, device const uint* at, device uint* b, constant uint& n,
        uint i [[thread_position_in_grid]]) { b[n + i] = a[at[i]] + i; }";

/// Arguments that are parts of a large buffer.
fn slices(device: &Device, size: u64) -> CaseResult {
    let add = kernel(device, "add", ADD)?;
    let mut x = large::<u32>(device, size)?;
    let (len, n) = (x.len(), 100);
    x.slice_mut(len - n..len)?.write(&(0..n as u32).map(|i| i * i).collect::<Vec<_>>())?;
    let at = device.buffer_with_data(&(0..n as u32).rev().collect::<Vec<_>>())?;
    let mut out = device.buffer::<u32>(n)?;
    run(device, &add, Grid::threads(n).group(32), (x.slice(len - n..len)?, &at, &mut out, 0_u32))?;
    let squares = |i: usize| ((n - 1 - i) * (n - 1 - i) + i) as u32;
    expect_all(&out.to_vec()?, squares);
    for first in [0, len / 2 + 3, len - n - 64] {
        run(device, &add, Grid::threads(n).group(32), (&out, &at, x.slice_mut(first..first + n)?, 0_u32))?;
        let expected: Vec<u32> = (0..n).map(|i| squares(n - 1 - i) + i as u32).collect();
        expect_at(&x, first, &expected)?;
    }
    Ok(())
}

/// One kernel, with small and with large buffers in turn.
fn one_of_two(device: &Device, size: u64) -> CaseResult {
    let add = kernel(device, "add", ADD)?;
    let mut x = large::<u32>(device, size)?;
    let (len, n) = (x.len(), 100);
    let small = device.buffer_with_data(&(0..n as u32).map(|i| 3 * i).collect::<Vec<_>>())?;
    let at = device.buffer_with_data(&(0..n as u32).map(|i| i * 7 % 100).collect::<Vec<_>>())?;
    let ends = device.buffer_with_data(&(0..n).map(|i| (len - 1 - i) as u32).collect::<Vec<_>>())?;
    let stream = device.stream()?;
    let grid = || Grid::threads(n).group(32);
    for _ in 0..3 {
        let mut first = device.buffer::<u32>(n)?;
        launch(&add, &stream, grid(), (&small, &at, &mut first, 0_u32))?;
        launch(&add, &stream, grid(), (&first, &at, &mut x, (len - n) as u32))?;
        let mut last = device.buffer::<u32>(n)?;
        launch(&add, &stream, grid(), (&x, &ends, &mut last, 0_u32))?.wait()?;
        let once = |i: usize| 3 * (i * 7 % 100) + i;
        let twice = |i: usize| once(i * 7 % 100) + i;
        expect_all(&first.to_vec()?, |i| once(i) as u32);
        expect_at(&x, len - n, &(0..n).map(|i| twice(i) as u32).collect::<Vec<_>>())?;
        expect_all(&last.to_vec()?, |i| (twice(n - 1 - i) + i) as u32);
    }
    Ok(())
}

fn copies_and_fills(device: &Device, size: u64) -> CaseResult {
    let stream = device.stream()?;
    let mut x = large::<u32>(device, size)?;
    let len = x.len();
    stream.fill(x.slice_mut(len - 1000..len)?, 0x0102_0304_u32)?;
    stream.fill(x.slice_mut((1 << 29) - 50..(1 << 29) + 50)?, 9_u32)?.wait()?;
    expect_at(&x, len - 1001, &[&[0][..], &[0x0102_0304; 1000]].concat())?;
    expect_at(&x, (1 << 29) - 51, &[&[0][..], &[9; 100], &[0]].concat())?;
    let mut small = device.buffer::<u32>(200)?;
    stream.copy(x.slice(len - 100..len)?, small.slice_mut(50..150)?)?;
    stream.copy(small.slice(40..160)?, x.slice_mut(len - 3000..len - 2880)?)?.wait()?;
    let expected = |i: usize| if (50..150).contains(&i) { 0x0102_0304 } else { 0 };
    expect_all(&small.to_vec()?, expected);
    expect_at(&x, len - 3000, &(40..160).map(expected).collect::<Vec<_>>())?;
    // Overlapping ranges at the end, and the host's view.
    x.slice_mut(len - 100..len)?.write(&(0..100).collect::<Vec<u32>>())?;
    let copy = x.slice(len - 100..len)?.to_vec()?;
    assert_eq!(copy, (0..100).collect::<Vec<u32>>());
    stream.upload(&[5, 6, 7], x.slice_mut(len - 3..len)?)?;
    let end = stream.download(x.slice(len - 5..len)?)?;
    assert_eq!(end.wait()?, [95, 96, 5, 6, 7]);
    Ok(())
}

/// The host's view of a buffer. Without unified memory, a map would copy all of it.
fn maps(device: &Device, size: u64) -> CaseResult {
    let add = kernel(device, "add", ADD)?;
    if !device.caps().features.unified_memory {
        return Err(Error::unsupported(
            "host and device have no unified memory: a map would copy the buffer",
        )
        .into());
    }
    let mut x = large_for::<u32>(device, size, HostAccess::ReadWrite)?;
    let len = x.len();
    {
        let mut view = x.map_mut()?;
        assert_eq!((view.len(), view[len - 1], view[len / 2]), (len, 0, 0));
        (view[0], view[len / 2], view[len - 1]) = (3, 5, 7);
    }
    let at = device.buffer_with_data(&[0_u32, (len / 2) as u32, (len - 1) as u32])?;
    let mut sums = device.buffer::<u32>(3)?;
    run(device, &add, Grid::threads(3), (&x, &at, &mut sums, 0_u32))?;
    assert_eq!(sums.to_vec()?, [3, 6, 9]);
    run(device, &add, Grid::threads(3), (&sums, &device.buffer::<u32>(3)?, &mut x, (len - 3) as u32))?;
    assert_eq!(x.map()?[len - 3..], [3, 4, 5]);
    Ok(())
}

#[allow(unsafe_code)] // launches
fn launches_of_every_kind(device: &Device, size: u64) -> CaseResult {
    let text = "kernel void put(device uint* x, device const uint* at, constant uint& k,
            uint i [[thread_position_in_grid]]) { x[at[i]] += k + i; }";
    let put = kernel(device, "put", text)?;
    let mut x = large::<u32>(device, size)?;
    let (len, n) = (x.len(), 64);
    let ends = |i: usize| if i.is_multiple_of(2) { i } else { len - i };
    let at = device.buffer_with_data(&(0..n).map(|i| ends(i) as u32).collect::<Vec<_>>())?;
    // After the additions of 1 to k.
    let expect = |x: &Buffer<u32>, k: usize| {
        (0..n).try_for_each(|i| expect_at(x, ends(i), &[(k * (k + 1) / 2 + k * i) as u32]))
    };
    let stream = device.stream()?;
    // Indirect, with a deadline, recorded, recovering, and a graph.
    let counts = device.buffer_with_data(&[2_u32, 1, 1])?;
    launch(&put, &stream, Grid::indirect(&counts).group(32), (&mut x, &at, 1_u32))?.wait()?;
    expect(&x, 1)?;
    let mut commands = stream.command_buffer();
    commands.deadline(Duration::from_secs(600))?;
    // SAFETY: every index of `at` is within `x`, here and below.
    unsafe { commands.launch(&put, Grid::threads(n).group(32), (&mut x, &at, 2_u32)) }?;
    commands.submit()?.wait()?;
    expect(&x, 2)?;
    let mut commands = stream.command_buffer();
    // SAFETY: as above.
    unsafe { commands.launch(&put, Grid::threads(n).group(32), (&mut x, &at, 3_u32)) }?;
    let recording = commands.record()?;
    // SAFETY: as above.
    unsafe { device.stream()?.replay(&recording) }?.wait()?;
    expect(&x, 3)?;
    let recovering = device.stream_recovering(RecoveryPolicy::of(device))?;
    launch(&put, &recovering, Grid::threads(n).group(32), (&mut x, &at, 4_u32))?.wait()?;
    expect(&x, 4)?;
    graph(device, &put, &mut x, &at)?;
    expect(&x, 5)
}

/// Adds 5 and the thread's number by a graph that was planned for a small buffer.
#[allow(unsafe_code)] // launches
fn graph(device: &Device, put: &Kernel, x: &mut Buffer<u32>, at: &Buffer<u32>) -> CaseResult {
    let (len, n) = (x.len(), at.len());
    let (mut part, stream) = (device.buffer::<u32>(n)?, device.stream()?);
    let low = device.buffer_with_data(&(0..n as u32).collect::<Vec<_>>())?;
    let mut graph = Graph::new();
    // SAFETY: every index is within the buffer of n elements, and within the halves of the large one below.
    unsafe { graph.launch(put, Grid::threads(n).group(32), (&mut part, &low, 5_u32)) }?;
    graph.buffer("x", &part)?;
    let mut plan = graph.plan()?;
    // SAFETY: as above.
    unsafe { plan.run(&stream) }?.wait()?;
    expect_all(&part.to_vec()?, |i| 5 + i as u32);
    plan.set("x", x.slice_mut(len - 2 * n..len - n)?)?;
    // SAFETY: as above.
    unsafe { plan.run(&stream) }?.wait()?;
    expect_at(x, len - 2 * n, &(0..n).map(|i| 5 + i as u32).collect::<Vec<_>>())?;
    let mut graph = Graph::new();
    // SAFETY: as in the caller.
    unsafe { graph.launch(put, Grid::threads(n).group(32), (&mut *x, at, 5_u32)) }?;
    let mut plan = graph.plan()?;
    // SAFETY: as in the caller.
    unsafe { plan.run(&stream) }?.wait()?;
    Ok(())
}

/// Two transients of half the size each. Their memory is one, so that it is larger than either.
#[allow(unsafe_code)] // launches, and transients that are written before they are read
fn transients(device: &Device, size: u64) -> CaseResult {
    let text = "
        kernel void put(device uchar* x, device const uint* at, constant uint& n, uint i [[thread_position_in_grid]]) {
            x[at[i]] = uchar(i * 3u); x[n + i] = uchar(i + 1u); }
        kernel void sum(device const uchar* a, device const uchar* b, device const uint* at, device uint* y,
                constant uint& n, uint i [[thread_position_in_grid]]) {
            y[i] = a[at[i]] + 1000u * b[n + i]; }";
    let [put, sum] = kernels(device, ["put", "sum"], text)?;
    // Reserves as much before, for the reason if there is too little memory.
    drop(large::<u8>(device, size)?);
    device.pool().trim(0);
    let (len, n) = ((size / 2) as usize, 64_usize);
    // A `uint` reaches the end of the smaller ones, and 4 GiB of the larger ones.
    let reach = len.min(1 << 32);
    let at: Vec<u32> = (0..n).map(|i| if i.is_multiple_of(2) { i } else { reach - 1 - i } as u32).collect();
    let at = device.buffer_with_data(&at)?;
    let mut y = device.buffer::<u32>(n)?;
    let mut graph = Graph::new();
    // SAFETY: what is read was written by `put`, here and below.
    let mut a = unsafe { graph.transient_uninit::<u8>(device, len) }?;
    // SAFETY: as above.
    let mut b = unsafe { graph.transient_uninit::<u8>(device, len) }?;
    let (middle, top) = ((reach / 2) as u32, (reach - n) as u32);
    let grid = || Grid::threads(n).group(32);
    // SAFETY: every index is within the transients, here and below.
    unsafe { graph.launch(&put, grid(), (&mut a, &at, middle)) }?;
    // SAFETY: as above.
    unsafe { graph.launch(&put, grid(), (&mut b, &at, top - 200)) }?;
    // SAFETY: as above.
    unsafe { graph.launch(&sum, grid(), (&a, &b, &at, &mut y, top - 200)) }?;
    let mut plan = graph.plan()?;
    assert!(plan.stats().arena_bytes >= size, "{:?}", plan.stats());
    let stream = device.stream()?;
    for _ in 0..2 {
        // SAFETY: as above.
        unsafe { plan.run(&stream) }?.wait()?;
        expect_all(&y.to_vec()?, |i| u32::from((i * 3) as u8) + 1000 * (i as u32 + 1));
    }
    Ok(())
}

/// `struct Table { device uint* x; ulong n; }`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Table {
    x: u64,
    n: u64,
}

fn pointers_in_memory(device: &Device, size: u64) -> CaseResult {
    let text = "struct Table { device uchar* x; ulong n; };
        kernel void follow(constant Table& table, device const uint* at, device uchar* y,
                uint i [[thread_position_in_grid]]) {
            y[i] = table.x[at[i]]; table.x[at[i]] = uchar(i + 1u); table.x[table.n - 1u - i] = uchar(100u + i); }";
    let follow = kernel(device, "follow", text)?;
    let mut x = large::<u8>(device, size)?;
    let (len, n) = (x.len(), 40);
    let index = |i: usize| u32::MAX - 1000 - (i as u32) * 50_000_000;
    let at = device.buffer_with_data(&(0..n).map(index).collect::<Vec<_>>())?;
    let table = Table { x: x.gpu_address()?, n: len as u64 };
    for round in 0..2 {
        let mut y = device.buffer::<u8>(n)?;
        let list = (Arg::value(&table), &at, &mut y, Arg::use_resource(&mut x));
        run(device, &follow, Grid::threads(n).group(32), list)?;
        expect_all(&y.to_vec()?, |i| if round == 0 { 0 } else { (i + 1) as u8 });
    }
    for i in 0..n {
        expect_at(&x, index(i) as usize, &[(i + 1) as u8])?;
        expect_at(&x, len - 1 - i, &[(100 + i) as u8])?;
    }
    Ok(())
}
