//! Strided and interleaved accesses: threads that access several elements at a constant distance from those of their neighbors, with and
//! without gaps, in place and in reverse; neighbors, clamped and wrapped around at the edges; private arrays with constant, uniform and varying indices.

use elinvar::{Device, Grid, Source};

use super::{CaseResult, expect_all, kernel, run};

cases!("accesses": whole_records, records_with_gaps, records_in_place, backwards, vectors_of_vectors, private_arrays,
    private_tables, private_structs, bytes_at_any_address, wide_indices, neighbors_at_edges, checked_neighbors_at_edges);

/// Not a multiple of the threadgroup size, so the last threadgroup has lanes without a thread.
const THREADS: usize = 200;
const GROUP: u32 = 64;

fn grid() -> Grid {
    Grid::threads(THREADS).group(GROUP)
}

/// 32-bit unsigned indices from memory in 64-bit arithmetic: none is truncated or sign-extended.
fn wide_indices(device: &Device) -> CaseResult {
    const COUNT: usize = 200;
    const FROM: u32 = 4_294_967_000;
    let text =
        "kernel void wide(device const uint* o, device const uint* y, device uint* out, device uchar* bytes,
            device const ulong* large, constant ulong& from, uint i [[thread_position_in_grid]]) {
            uint v = y[(ulong)o[i] - 4294967000ul];
            if (o[i] & 1) v += 1000 * y[(ulong)o[i] - from];
            v += 1000000 * *(y + (ulong)o[i] - from);
            out[(ulong)o[i] - 4294967000ul] = v;
            if (o[i] % 3 == 0) out[(ulong)o[i] - from + 200ul] = v + 1;
            bytes[(ulong)o[i] - from] = uchar(i);
            out[400 + i] = y[large[i] - 0x8000000000000000ul] + y[(long)(int)o[i] + 296l]
                + ((device const ushort*)y)[2ul * o[i] - 8589934000ul];
        }";
    let kernel = kernel(device, "wide", text)?;
    let place = |i: usize| i * 7 % COUNT;
    let o = device.buffer_with_data(&(0..COUNT).map(|i| FROM + place(i) as u32).collect::<Vec<_>>())?;
    let y = device.buffer_with_data(&(0..COUNT as u32).map(|j| 3 * j).collect::<Vec<_>>())?;
    let large =
        device.buffer_with_data(&(0..COUNT).map(|i| (1 << 63) + place(i) as u64).collect::<Vec<_>>())?;
    let mut out = device.buffer_with_data(&vec![7_u32; 600])?;
    let mut bytes = device.buffer::<u8>(COUNT)?;
    run(device, &kernel, grid(), (&o, &y, &mut out, &mut bytes, &large, u64::from(FROM)))?;
    let of = |j: usize| {
        let (odd, y) = ((FROM + j as u32) & 1, 3 * j as u32);
        y + odd * 1000 * y + 1_000_000 * y
    };
    expect_all(&out.to_vec()?, |e| match e {
        0..200 => of(e),
        200..400 if (FROM + (e as u32 - 200)).is_multiple_of(3) => of(e - 200) + 1,
        200..400 => 7,
        _ => 9 * place(e - 400) as u32,
    });
    let mut places = [0_u8; COUNT];
    (0..COUNT).for_each(|i| places[place(i)] = i as u8);
    expect_all(&bytes.to_vec()?, |j| places[j]);
    Ok(())
}

/// Sizes of records in elements.
const SIZES: [usize; 5] = [2, 3, 4, 5, 8];

/// Pieces of 8 to 48 bytes, copied as bytes between all offsets modulo 16 through threadgroup memory.
fn bytes_at_any_address(device: &Device) -> CaseResult {
    const PIECES: [usize; 5] = [8, 12, 16, 32, 48];
    let text = "template <uint n> struct Bytes { uchar v[n]; };
        template <uint n> void copy(device const uchar* a, device uchar* b, threadgroup uchar* shared) {
            *((threadgroup Bytes<n>*)shared) = *((device const Bytes<n>*)a);
            *((device Bytes<n>*)b) = *((threadgroup const Bytes<n>*)shared);
        }
        kernel void copies(device const uchar* a, device uchar* b, uint2 place [[thread_position_in_grid]]) {
            threadgroup uchar shared[16 * 80];
            uint from = place.x, to = place.y;
            device uchar* out = b + (to * 16 + from) * 512;
            threadgroup uchar* own = shared + from * 80 + from + to % 3;
            copy<8>(a + from, out + to, own);
            copy<12>(a + 80 + from, out + 80 + to, own);
            copy<16>(a + 160 + from, out + 160 + to, own);
            copy<32>(a + 240 + from, out + 240 + to, own);
            copy<48>(a + 320 + from, out + 320 + to, own);
        }";
    let kernel = kernel(device, "copies", text)?;
    let input: Vec<u8> = (0..512).map(|i| (i * 7 + i / 251) as u8).collect();
    let (a, mut b) = (device.buffer_with_data(&input)?, device.buffer::<u8>(16 * 16 * 512)?);
    run(device, &kernel, Grid::threads((16, 16)).group((16, 1)), (&a, &mut b))?;
    expect_all(&b.to_vec()?, |e| {
        let (from, to, at) = (e / 512 % 16, e / 512 / 16, e % 512);
        let piece = PIECES.get(at / 80).copied().unwrap_or(0);
        let byte = (at % 80).wrapping_sub(to);
        if byte < piece { input[at / 80 * 80 + from + byte] } else { 0 }
    });
    Ok(())
}

/// Runs `body` with a type `T` and the record's size `n` as template arguments on records of all sizes, stored one size after the other;
/// compares with `expected(record size, input, element)`.
macro_rules! records {
    ($device:expr, $name:literal, $body:expr, $msl:literal: $rust:ty, $expected:expr) => {{
        let (mut calls, mut starts, mut length) = (String::new(), Vec::new(), 0);
        for n in SIZES {
            starts.push(length);
            calls += &format!("each<{}, {n}>(a + {length} + {n} * i, b + {length} + {n} * i);\n", $msl);
            length += n * THREADS;
        }
        let text = format!(
            "template <typename T, uint n> void each(device const T* a, device T* b) {{ {} }}
            kernel void {}_{}(device const {2}* a, device {2}* b, uint i [[thread_position_in_grid]]) {{ {calls} }}",
            $body, $name, $msl
        );
        let kernel = kernel($device, &format!("{}_{}", $name, $msl), &text)?;
        let input: Vec<$rust> = (0..length).map(|i| (i * 7 % 61) as $rust).collect();
        let a = $device.buffer_with_data(&input)?;
        let mut b = $device.buffer_with_data(&vec![99 as $rust; length])?;
        run($device, &kernel, grid(), (&a, &mut b))?;
        let expected = $expected;
        expect_all(&b.to_vec()?, |e| {
            let size = starts.iter().rposition(|start| *start <= e).unwrap_or(0);
            let (n, start) = (SIZES[size], starts[size]);
            let first = start + (e - start) / n * n;
            expected(n, &input[first..][..n], e - first)
        });
    }};
}

fn whole_records(device: &Device) -> CaseResult {
    let body = "T t[n]; for (uint k = 0; k < n; k++) t[k] = a[k];
        for (uint k = 0; k < n; k++) b[k] = t[n - 1 - k] + T(k);";
    records!(device, "whole", body, "uchar": u8, |n: usize, record: &[u8], k: usize| record[n - 1 - k] + k as u8);
    records!(device, "whole", body, "short": i16, |n: usize, record: &[i16], k: usize| record[n - 1 - k] + k as i16);
    records!(device, "whole", body, "float": f32, |n: usize, record: &[f32], k: usize| record[n - 1 - k] + k as f32);
    records!(device, "whole", body, "ulong": u64, |n: usize, record: &[u64], k: usize| record[n - 1 - k] + k as u64);
    Ok(())
}

fn records_with_gaps(device: &Device) -> CaseResult {
    let body = "T first = a[0], last = a[n - 1]; b[n / 2] = first + last;";
    records!(device, "gaps", body, "uint": u32, |n: usize, record: &[u32], k: usize| {
        if k == n / 2 { record[0] + record[n - 1] } else { 99 }
    });
    records!(device, "gaps", body, "uchar": u8, |n: usize, record: &[u8], k: usize| {
        if k == n / 2 { record[0] + record[n - 1] } else { 99 }
    });
    Ok(())
}

/// Each store changes the value of the next load.
fn records_in_place(device: &Device) -> CaseResult {
    let body = "for (uint k = 0; k < n; k++) b[k] = a[k];
        b[0] = b[1] + T(1); b[1] = b[0] + b[n - 1]; b[n - 1] = b[1]; b[0] = b[n - 1] + T(2);";
    let expected = |n: usize, record: &[f32], k: usize| {
        let mut b = record.to_vec();
        b[0] = b[1] + 1.0;
        b[1] = b[0] + b[n - 1];
        b[n - 1] = b[1];
        b[0] = b[n - 1] + 2.0;
        b[k]
    };
    records!(device, "in_place", body, "float": f32, expected);
    Ok(())
}

fn backwards(device: &Device) -> CaseResult {
    let text =
        "kernel void backwards(device const uint2* a, device uint2* b, uint i [[thread_position_in_grid]],
            uint size [[threads_per_grid]]) {
        uint at = size - 1 - i;
        b[at] = a[at].yx + uint2(i, 3);
    }";
    let kernel = kernel(device, "backwards", text)?;
    let input: Vec<u32> = (0..2 * THREADS as u32).map(|i| i * i).collect();
    let (a, mut b) = (device.buffer_with_data(&input)?, device.buffer::<u32>(input.len())?);
    run(device, &kernel, grid(), (&a, &mut b))?;
    expect_all(&b.to_vec()?, |e| match e % 2 {
        0 => input[e + 1] + (THREADS - 1 - e / 2) as u32,
        _ => input[e - 1] + 3,
    });
    Ok(())
}

/// Size of a particle in words.
const WORDS: usize = 12;

#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Particle([u32; WORDS]);

/// Matrices and structs of vectors, with strides that differ from their row sizes, in 2-D threadgroups.
fn vectors_of_vectors(device: &Device) -> CaseResult {
    let text = "struct Particle { float3 at; float mass; half4 color; ushort2 cell; };
    kernel void move(device const Particle* a, device Particle* b, device float4* m, device float2* u,
            uint2 p [[thread_position_in_grid]], uint2 size [[threads_per_grid]]) {
        uint i = p.y * size.x + p.x;
        Particle x = a[i];
        x.at = x.at.zxy * x.mass;
        x.color = x.color.abgr;
        x.cell = ushort2(x.cell.y, p.x);
        b[i] = x;
        *(device float3x4*)(m + 3 * i) = float3x4(float4(x.at, 1), float4(x.mass), float4(i));
        *(device float4x2*)(u + 4 * i) = float4x2(float2(x.at.xy), float2(x.at.z, i), float2(p), float2(size));
    }";
    let kernel = kernel(device, "move", text)?;
    let [x, y] = [20usize, 10];
    // 48 bytes: `at` 16 (a float3), `mass` 4 and padding 4, `color` 8, `cell` 4, and padding 12 to a multiple of 16.
    let half = |v: f32| u32::from(elinvar::f16::from_f32(v).to_bits());
    let particle = |i: usize| {
        let f = |k: usize| (i * 4 + k) as f32;
        let color = [half(f(0)) | half(f(1)) << 16, half(f(2)) | half(f(3)) << 16];
        let mut all = [0u32; WORDS];
        all[..3].copy_from_slice(&[f(0).to_bits(), f(1).to_bits(), f(2).to_bits()]);
        all[4] = 2f32.to_bits();
        all[6..8].copy_from_slice(&color);
        all[8] = (i as u32) | (i as u32 + 5) << 16;
        Particle(all)
    };
    let input: Vec<Particle> = (0..x * y).map(particle).collect();
    let a = device.buffer_with_data(&input)?;
    let mut b = device.buffer::<Particle>(input.len())?;
    let mut m = device.buffer::<f32>(12 * x * y)?;
    let mut u = device.buffer::<f32>(8 * x * y)?;
    run(device, &kernel, Grid::threads([x, y]).group([8, 4]), (&a, &mut b, &mut m, &mut u))?;
    let at = |i: usize| [2, 0, 1].map(|k| (i * 4 + k) as f32 * 2.0);
    let swapped = |word: u32| word.rotate_left(16);
    let moved: Vec<u32> = b.to_vec()?.into_iter().flat_map(|p| p.0).collect();
    expect_all(&moved, |e| {
        let (i, k) = (e / WORDS, e % WORDS);
        let from = particle(i).0;
        match k {
            0..=2 => at(i)[k].to_bits(),
            4 => from[4],
            6 => swapped(from[7]),
            7 => swapped(from[6]),
            8 => (i as u32 + 5) | ((i % x) as u32) << 16,
            _ => 0,
        }
    });
    expect_all(&m.to_vec()?, |e| {
        let (i, k) = (e / 12, e % 12);
        match k {
            0..=2 => at(i)[k],
            3 => 1.0,
            4..=7 => 2.0,
            _ => i as f32,
        }
    });
    expect_all(&u.to_vec()?, |e| {
        let (i, k) = (e / 8, e % 8);
        let values =
            [at(i)[0], at(i)[1], at(i)[2], i as f32, (i % x) as f32, (i / x) as f32, x as f32, y as f32];
        values[k]
    });
    Ok(())
}

/// Private arrays with constant, uniform and per-thread indices, initialized to zero and in a loop.
fn private_arrays(device: &Device) -> CaseResult {
    let text = "kernel void private_arrays(device const uint* a, device uint* b, constant uint& n,
            uint i [[thread_position_in_grid]]) {
        uint own[16] = {};
        ushort small[24];
        for (uint k = 0; k < 24; k++) small[k] = ushort(a[(i + k) % 200] ^ k);
        for (uint k = 0; k < n; k++) {
            own[a[(i * 3 + k) % 200] % 16] += k + 1;
            small[(k * i) % 24] += ushort(own[k % 16]);
        }
        if (i % 3 == 0) own[i % 16] = small[n % 24];
        uint sum = 0;
        for (uint k = 0; k < 16; k++) sum = sum * 31 + own[k] + small[(k + i) % 24];
        b[i] = sum;
    }";
    let kernel = kernel(device, "private_arrays", text)?;
    let input: Vec<u32> = (0..THREADS as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 7).collect();
    let (a, mut b) = (device.buffer_with_data(&input)?, device.buffer::<u32>(THREADS)?);
    let n = 37usize;
    run(device, &kernel, grid(), (&a, &mut b, n as u32))?;
    expect_all(&b.to_vec()?, |i| {
        let (mut own, mut small) = ([0u32; 16], [0u16; 24]);
        (0..24).for_each(|k| small[k] = (input[(i + k) % 200] ^ k as u32) as u16);
        for k in 0..n {
            own[input[(i * 3 + k) % 200] as usize % 16] += k as u32 + 1;
            small[(k * i) % 24] = small[(k * i) % 24].wrapping_add(own[k % 16] as u16);
        }
        if i % 3 == 0 {
            own[i % 16] = small[n % 24].into();
        }
        (0..16).fold(0u32, |sum, k| {
            sum.wrapping_mul(31).wrapping_add(own[k]).wrapping_add(small[(k + i) % 24].into())
        })
    });
    Ok(())
}

/// An array of arrays whose content is used after a barrier.
fn private_tables(device: &Device) -> CaseResult {
    let text = "kernel void private_tables(device float* b, uint i [[thread_position_in_grid]],
            uint l [[thread_index_in_threadgroup]], uint size [[threads_per_threadgroup]]) {
        threadgroup float shared[64];
        float table[4][5];
        for (uint r = 0; r < 4; r++) for (uint c = 0; c < 5; c++) table[r][c] = float(r * 10 + c + l);
        shared[l] = table[l % 4][l % 5];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        table[(l + 1) % 4][2] += shared[(l + 7) % size];
        float sum = 0;
        for (uint r = 0; r < 4; r++) sum += table[r][(i + r) % 5] * float(r + 1);
        b[i] = sum;
    }";
    let kernel = kernel(device, "private_tables", text)?;
    let mut b = device.buffer::<f32>(THREADS)?;
    run(device, &kernel, grid(), (&mut b,))?;
    let of = |l: usize, r: usize, c: usize| (r * 10 + c + l) as f32;
    expect_all(&b.to_vec()?, |i| {
        let l = i % GROUP as usize;
        let size = (THREADS - i / 64 * 64).min(64);
        let other = (l + 7) % size;
        let added = of(other, other % 4, other % 5);
        (0..4).fold(0.0, |sum, r| {
            let c = (i + r) % 5;
            let more = if r == (l + 1) % 4 && c == 2 { added } else { 0.0 };
            sum + (of(l, r, c) + more) * (r + 1) as f32
        })
    });
    Ok(())
}

/// Private arrays of structs with one or several element sizes, and of vectors.
fn private_structs(device: &Device) -> CaseResult {
    let text = "struct Pair { float key; uint value; };
    struct Mixed { ushort small; uint large; };
    kernel void private_structs(device const uint* a, device float4* b, uint i [[thread_position_in_grid]]) {
        Pair pairs[6]; Mixed mixed[4]; float4 rows[3]; packed_float3 thin[5];
        for (uint k = 0; k < 6; k++) { pairs[k].key = float(a[(i + k) % 200]); pairs[k].value = i * k; }
        for (uint k = 0; k < 4; k++) { mixed[k].small = ushort(i + k); mixed[k].large = i * i + k; }
        for (uint k = 0; k < 3; k++) rows[k] = float4(i, k, a[i], 1);
        for (uint k = 0; k < 5; k++) thin[k] = packed_float3(k, i, a[k]);
        uint j = a[i] % 3;
        rows[j][a[i] % 4] = -1;
        thin[j + 1][a[i] % 3] = 0.5f;
        pairs[j].value += mixed[(j + i) % 4].small;
        float4 sum = float4(pairs[a[i] % 6].key, float(pairs[(a[i] + 1) % 3].value), float(mixed[i % 4].large), 0);
        for (uint k = 0; k < 3; k++) sum += rows[k] * float(k + 1) + float4(thin[(k + i) % 5], 0);
        b[i] = sum;
    }";
    let kernel = kernel(device, "private_structs", text)?;
    let input: Vec<u32> = (0..THREADS as u32).map(|i| i * 37 % 101).collect();
    let (a, mut b) = (device.buffer_with_data(&input)?, device.buffer::<f32>(4 * THREADS)?);
    run(device, &kernel, grid(), (&a, &mut b))?;
    let thread = |i: usize| {
        let own = input[i] as usize;
        let mut values = [0, 1, 2, 3, 4, 5].map(|k| i * k);
        let j = own % 3;
        values[j] += i + (j + i) % 4;
        let mut rows = [0, 1, 2].map(|k| [i as f32, k as f32, own as f32, 1.0]);
        rows[j][own % 4] = -1.0;
        let mut thin = [0, 1, 2, 3, 4].map(|k| [k as f32, i as f32, input[k] as f32]);
        thin[j + 1][own % 3] = 0.5;
        let mut sum =
            [input[(i + own % 6) % 200] as f32, values[(own + 1) % 3] as f32, (i * i + i % 4) as f32, 0.0];
        for k in 0..3 {
            for c in 0..4 {
                let thin = if c < 3 { thin[(k + i) % 5][c] } else { 0.0 };
                sum[c] += rows[k][c] * (k + 1) as f32 + thin;
            }
        }
        sum
    };
    expect_all(&b.to_vec()?, |e| thread(e / 4)[e % 4]);
    Ok(())
}

/// Neighbors of each thread, at indices that are clamped to the array or wrapped around, in branches that some lanes take, too.
const NEIGHBORS: &str = "kernel void neighbors(device const uchar* a, device const ushort* b, device const uint* c, device const ulong* d,
        device ulong* out, constant uint& n, uint i [[thread_position_in_grid]]) {
        device ulong* to = out + 10 * i;
        to[0] = a[i > 0 ? i - 1 : 0];
        to[1] = b[min(i + 1, n - 1)];
        to[2] = c[(i + 3) % n];
        to[3] = d[(i + n - 2) % n];
        to[4] = c[max(int(i) - 5, 0)] + c[clamp(int(i) + 2, 4, 150)];
        to[5] = i % 3 == 0 ? c[min(i + 2, n - 1)] : 1000;
        if (c[i] % 2 == 0) to[6] = d[i == n - 1 ? 0 : i + 1]; else to[6] = b[(i + n - 1) % n];
        to[7] = c[(i + 30) & 63];
        ulong sum = 0;
        for (uint k = 0; k < 4; ++k) sum = sum * 3 + a[min(i + k, n - 1)] + c[(i + n - k) % n];
        to[8] = sum;
        to[9] = c[i < 100 ? i + 1 : i - 100];
    }";

fn neighbors(n: usize) -> [Vec<u64>; 5] {
    let numbers = |by: u64| (0..n as u64).map(|i| i.wrapping_mul(by) >> 7).collect::<Vec<u64>>();
    let a: Vec<u64> = numbers(2_654_435_761).iter().map(|x| x & 0xff).collect();
    let b: Vec<u64> = numbers(40_503_077).iter().map(|x| x & 0xffff).collect();
    let c: Vec<u64> = numbers(2_246_822_519).iter().map(|x| x & 0xffff_ffff).collect();
    let d = numbers(0x9e37_79b9_7f4a_7c15);
    let mut out = Vec::with_capacity(10 * n);
    for i in 0..n {
        let wrapped = |add: usize| (i + add) % n;
        let sum = (0..4).fold(0_u64, |sum, k| {
            sum.wrapping_mul(3).wrapping_add(a[(i + k).min(n - 1)]).wrapping_add(c[wrapped(n - k)])
        });
        // Sums of two `uint` wrap.
        let clamped = (c[i.saturating_sub(5)] + c[(i + 2).clamp(4, 150)]) & 0xffff_ffff;
        let even = if c[i].is_multiple_of(2) { d[wrapped(1)] } else { b[wrapped(n - 1)] };
        out.extend([
            a[i.saturating_sub(1)],
            b[(i + 1).min(n - 1)],
            c[wrapped(3)],
            d[wrapped(n - 2)],
            clamped,
            if i % 3 == 0 { c[(i + 2).min(n - 1)] } else { 1000 },
            even,
            c[(i + 30) & 63],
            sum,
            c[if i < 100 { i + 1 } else { i - 100 }],
        ]);
    }
    [a, b, c, d, out]
}

fn neighbors_at_edges(device: &Device) -> CaseResult {
    let kernel = kernel(device, "neighbors", NEIGHBORS)?;
    for (n, group) in [(THREADS, GROUP), (151, 32), (1024, 256)] {
        let [a, b, c, d, expected] = neighbors(n);
        let a = device.buffer_with_data(&a.iter().map(|x| *x as u8).collect::<Vec<_>>())?;
        let b = device.buffer_with_data(&b.iter().map(|x| *x as u16).collect::<Vec<_>>())?;
        let c = device.buffer_with_data(&c.iter().map(|x| *x as u32).collect::<Vec<_>>())?;
        let (d, mut out) = (device.buffer_with_data(&d)?, device.buffer::<u64>(10 * n)?);
        run(device, &kernel, Grid::threads(n).group(group), (&a, &b, &c, &d, &mut out, n as u32))?;
        expect_all(&out.to_vec()?, |i| expected[i]);
    }
    Ok(())
}

/// The same with bounds checks, of which none fails.
fn checked_neighbors_at_edges(device: &Device) -> CaseResult {
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{NEIGHBORS}");
    let kernel = device.compile(Source::named("neighbors.metal", text))?.checked_kernel("neighbors")?;
    let n = THREADS;
    let [a, b, c, d, expected] = neighbors(n);
    let a = device.buffer_with_data(&a.iter().map(|x| *x as u8).collect::<Vec<_>>())?;
    let b = device.buffer_with_data(&b.iter().map(|x| *x as u16).collect::<Vec<_>>())?;
    let c = device.buffer_with_data(&c.iter().map(|x| *x as u32).collect::<Vec<_>>())?;
    let (d, mut out) = (device.buffer_with_data(&d)?, device.buffer::<u64>(10 * n)?);
    let args = (&a, &b, &c, &d, &mut out, n as u32);
    kernel.launch(&device.stream()?, Grid::threads(n).group(GROUP), args)?.wait()?;
    expect_all(&out.to_vec()?, |i| expected[i]);
    Ok(())
}
