//! 8x8 simdgroup matrices: element layout, all variants of loads and stores, products.

use bytemuck::Pod;
use elinvar::{Device, Grid, Threadgroup, bf16, f16};

use super::sheet::Value;
use super::{CaseResult, expect_all, kernel, run};

cases!("simdgroup_matrices": layout, forms_of_half, forms_of_bfloat, forms_of_float, products_of_half,
    products_of_bfloat, products_of_float, mixed_products, made, tiled_product, element_by_element,
    tiles_of_half, tiles_of_bfloat, tiles_of_float, shared_factors_of_half, shared_factors_of_bfloat,
    shared_factors_of_float, shuffles_beside_products);

/// An element type, in which small integers are exact.
trait Element: Value + Pod + PartialEq + std::fmt::Debug {
    fn of(n: f32) -> Self;
    fn number(self) -> f32;
}
macro_rules! elements {
    ($($ty:ty: $from:expr, $to:expr;)*) => {$(
        impl Element for $ty {
            fn of(n: f32) -> Self {
                $from(n)
            }
            fn number(self) -> f32 {
                $to(self)
            }
        }
    )*};
}
elements! {
    f16: f16::from_f32, f16::to_f32;
    bf16: bf16::from_f32, bf16::to_f32;
    f32: std::convert::identity, std::convert::identity;
}

/// Integers from -4 to 4.
fn numbers<T: Element>(count: usize, seed: usize) -> Vec<T> {
    (0..count).map(|i| T::of(((i * 7 + seed * 5 + i / 9) % 9) as f32 - 4.0)).collect()
}

/// Row and column of element 0 or 1 of a thread.
fn place(lane: usize, element: usize) -> (usize, usize) {
    (lane / 16 * 4 + lane / 2 % 4, lane / 8 % 2 * 4 + lane % 2 * 2 + element)
}

fn layout(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "thread_elements",
        "kernel void thread_elements(device const float* in, device float2* out, uint i [[thread_position_in_grid]]) {
            simdgroup_float8x8 m;
            simdgroup_load(m, in + 64u * (i / 32u));
            out[i] = m.thread_elements();
        }",
    )?;
    let input: Vec<f32> = (0..128).map(|i| i as f32).collect();
    let (input, mut out) = (device.buffer_with_data(&input)?, device.buffer::<[f32; 2]>(64)?);
    run(device, &kernel, Grid::threads(64).group(64), (&input, &mut out))?;
    expect_all(&out.to_vec()?, |t| {
        [0, 1].map(|e| {
            let (row, column) = place(t % 32, e);
            (t / 32 * 64 + row * 8 + column) as f32
        })
    });
    Ok(())
}

/// Loads and stores with each combination of stride, origin and transposition, in device and threadgroup memory.
fn forms<T: Element>(device: &Device) -> CaseResult {
    const WIDTH: usize = 24;
    let text = "template <typename P> METAL_FUNC void copy(P from, device TYPE* to) {
            simdgroup_matrix<TYPE, 8, 8> m;
            simdgroup_load(m, from, WIDTH);
            simdgroup_store(m, to);
            simdgroup_load(m, from, WIDTH, ulong2(5, 3));
            simdgroup_store(m, to + 64, 8);
            simdgroup_load(m, from, WIDTH, ulong2(2, 9), true);
            simdgroup_store(m, to + 128, 8, ulong2(0, 0));
            simdgroup_load(m, from + 4, WIDTH, 0, false);
            simdgroup_store(m, to + 192, 8, ulong2(0, 0), true);
            simdgroup_load(m, from);
            simdgroup_store(m, to + 256, 8, 0, false);
        }
        kernel void forms(device const TYPE* in, device TYPE* out, device TYPE* placed,
                threadgroup TYPE* shared, uint i [[thread_index_in_threadgroup]]) {
            for (uint k = i; k < WIDTH * WIDTH; k += 32) shared[k] = in[k];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            copy(in, out);
            copy((threadgroup const TYPE*)shared, out + 320);
            simdgroup_matrix<TYPE, 8, 8> m;
            simdgroup_load(m, in, WIDTH);
            simdgroup_store(m, placed, WIDTH, ulong2(11, 6));
            threadgroup_barrier(mem_flags::mem_threadgroup);
            simdgroup_store(m, shared, WIDTH, ulong2(1, 2), true);
            simdgroup_barrier(mem_flags::mem_threadgroup);
            for (uint k = i; k < 64; k += 32) out[640 + k] = shared[(k / 8 + 2) * WIDTH + k % 8 + 1];
        }";
    let text = text.replace("TYPE", &T::msl()).replace("WIDTH", &WIDTH.to_string());
    let kernel = kernel(device, "forms", &text)?;
    // Every element differs from those that a wrong variant would read.
    let values: Vec<T> = (0..WIDTH * WIDTH).map(|i| T::of((i % 256) as f32)).collect();
    let (input, mut out) = (device.buffer_with_data(&values)?, device.buffer::<T>(704)?);
    let mut placed = device.buffer_with_data(&[T::of(-1.0); WIDTH * WIDTH])?;
    let shared = Threadgroup::of::<T>(WIDTH * WIDTH);
    run(device, &kernel, Grid::threads(32).group(32), (&input, &mut out, &mut placed, shared))?;
    expect_all(&out.to_vec()?, |e| {
        let (form, row, column) = (e / 64 % 5, e / 8 % 8, e % 8);
        let (form, row, column) = if e < 640 { (form, row, column) } else { (5, row, column) };
        values[match form {
            0 => row * WIDTH + column,
            1 => (row + 3) * WIDTH + column + 5,
            2 => (column + 9) * WIDTH + row + 2,
            3 => column * WIDTH + row + 4,
            4 => row * 8 + column,
            _ => column * WIDTH + row,
        }]
    });
    expect_all(&placed.to_vec()?, |e| {
        let (row, column) = (e / WIDTH, e % WIDTH);
        let inside = (6..14).contains(&row) && (11..19).contains(&column);
        if inside { values[(row - 6) * WIDTH + column - 11] } else { T::of(-1.0) }
    });
    Ok(())
}

fn product<T: Element>(a: &[T], b: &[T], e: usize) -> f32 {
    (0..8).map(|k| a[e / 8 * 8 + k].number() * b[k * 8 + e % 8].number()).sum()
}

/// Four simdgroups, each with its own matrices.
fn products<T: Element>(device: &Device) -> CaseResult {
    let text = "kernel void products(device const TYPE* a, device const TYPE* b, device const TYPE* c, device TYPE* out,
                uint group [[simdgroup_index_in_threadgroup]]) {
            simdgroup_matrix<TYPE, 8, 8> x, y, z, d;
            simdgroup_load(x, a + 64 * group);
            simdgroup_load(y, b + 64 * group);
            simdgroup_load(z, c + 64 * group);
            device TYPE* o = out + 256 * group;
            simdgroup_multiply(d, x, y);
            simdgroup_store(d, o);
            simdgroup_multiply_accumulate(d, x, y, z);
            simdgroup_store(d, o + 64);
            simdgroup_multiply_accumulate(z, y, x, z);
            simdgroup_store(z, o + 128);
            simdgroup_store(x * y, o + 192);
        }";
    let kernel = kernel(device, "products", &text.replace("TYPE", &T::msl()))?;
    let [a, b, c] = [1, 2, 3].map(|seed| numbers::<T>(256, seed));
    let [x, y, z] = [&a, &b, &c].map(|v| device.buffer_with_data(v));
    let mut out = device.buffer::<T>(1024)?;
    run(device, &kernel, Grid::threads(128).group(128), (&x?, &y?, &z?, &mut out))?;
    expect_all(&out.to_vec()?, |i| {
        let (group, form, e) = (i / 256, i / 64 % 4, i % 64);
        let of = |v: &'_ Vec<T>| v[group * 64..][..64].to_vec();
        let (a, b, c) = (of(&a), of(&b), of(&c));
        T::of(match form {
            0 | 3 => product(&a, &b, e),
            1 => product(&a, &b, e) + c[e].number(),
            _ => product(&b, &a, e) + c[e].number(),
        })
    });
    Ok(())
}

/// Factors in 16-bit types and the sum in float.
fn mixed_products(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "mixed",
        "kernel void mixed(device const half* a, device const bfloat* b, device const float* c, device float* out) {
            simdgroup_half8x8 x;
            simdgroup_bfloat8x8 y;
            simdgroup_float8x8 z;
            simdgroup_load(x, a);
            simdgroup_load(y, b);
            simdgroup_load(z, c);
            simdgroup_multiply_accumulate(z, x, x, z);
            simdgroup_multiply_accumulate(z, y, y, z);
            simdgroup_store(z, out);
        }",
    )?;
    let (a, b, c) = (numbers::<f16>(64, 1), numbers::<bf16>(64, 2), numbers::<f32>(64, 3));
    let mut out = device.buffer::<f32>(64)?;
    let args = (
        &device.buffer_with_data(&a)?,
        &device.buffer_with_data(&b)?,
        &device.buffer_with_data(&c)?,
        &mut out,
    );
    run(device, &kernel, Grid::threads(32).group(32), args)?;
    expect_all(&out.to_vec()?, |e| c[e] + product(&a, &a, e) + product(&b, &b, e));
    Ok(())
}

fn made(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "made",
        "kernel void made(device float* out, constant float& v) {
            simdgroup_store(make_filled_simdgroup_matrix<float, 8, 8>(v), out);
            simdgroup_store(make_filled_simdgroup_matrix<float, 8>(0.5f), out + 64);
            simdgroup_store(make_diagonal_simdgroup_matrix<float, 8, 8>(v), out + 128);
            simdgroup_store(simdgroup_float8x8(2.0f), out + 192);
            simdgroup_float8x8 zero(0);
            simdgroup_store(zero, out + 256);
            simdgroup_matrix<float, 8> rows_as_columns = {};
            simdgroup_store(rows_as_columns, out + 320);
        }",
    )?;
    let mut out = device.buffer_with_data(&[9_f32; 384])?;
    run(device, &kernel, Grid::threads(32).group(32), (&mut out, 3.0_f32))?;
    expect_all(&out.to_vec()?, |i| {
        let diagonal = i % 64 / 8 == i % 8;
        match i / 64 {
            0 => 3.0,
            1 => 0.5,
            2 if diagonal => 3.0,
            3 if diagonal => 2.0,
            _ => 0.0,
        }
    });
    Ok(())
}

/// A product of larger matrices: four simdgroups, tiles in threadgroup memory, and four accumulators per simdgroup.
fn tiled_product(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "tiled",
        "kernel void tiled(device const half* a, device const half* b, device float* c, constant uint& n,
                uint2 group [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                uint s [[simdgroup_index_in_threadgroup]]) {
            threadgroup half left[32 * 16];
            threadgroup half right[16 * 32];
            simdgroup_float8x8 sum[4];
            for (uint i = 0; i < 4; ++i) sum[i] = make_filled_simdgroup_matrix<float, 8>(0.0f);
            for (uint k = 0; k < n; k += 16) {
                for (uint e = t; e < 512; e += 128) {
                    left[e] = a[(group.y * 32 + e / 16) * n + k + e % 16];
                    right[e] = b[(k + e / 32) * n + group.x * 32 + e % 32];
                }
                threadgroup_barrier(mem_flags::mem_threadgroup);
                for (uint part = 0; part < 16; part += 8) {
                    simdgroup_half8x8 x, y;
                    simdgroup_load(x, left + s * 8 * 16 + part, 16);
                    for (uint i = 0; i < 4; ++i) {
                        simdgroup_load(y, right + part * 32 + i * 8, 32);
                        simdgroup_multiply_accumulate(sum[i], x, y, sum[i]);
                    }
                }
                threadgroup_barrier(mem_flags::mem_threadgroup);
            }
            for (uint i = 0; i < 4; ++i)
                simdgroup_store(sum[i], c + (group.y * 32 + s * 8) * n + group.x * 32 + i * 8, n);
        }",
    )?;
    let n = 64;
    let (a, b) = (numbers::<f16>(n * n, 4), numbers::<f16>(n * n, 5));
    let mut out = device.buffer::<f32>(n * n)?;
    let args = (&device.buffer_with_data(&a)?, &device.buffer_with_data(&b)?, &mut out, n as u32);
    run(device, &kernel, Grid::groups((2, 2)).group(128), args)?;
    expect_all(&out.to_vec()?, |e| {
        (0..n).map(|k| a[e / n * n + k].to_f32() * b[k * n + e % n].to_f32()).sum::<f32>()
    });
    Ok(())
}

/// Elements modified by the threads that hold them.
fn element_by_element(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "elements",
        "kernel void elements(device const float* in, device float* out, ushort lane [[thread_index_in_simdgroup]]) {
            simdgroup_float8x8 m, unit(1);
            simdgroup_load(m, in);
            m.thread_elements()[0] += float(lane);
            m.thread_elements()[1] *= 2.0f;
            simdgroup_multiply(m, m, unit);
            simdgroup_store(m, out);
        }",
    )?;
    let values = numbers::<f32>(64, 6);
    let mut out = device.buffer::<f32>(64)?;
    run(device, &kernel, Grid::threads(32).group(32), (&device.buffer_with_data(&values)?, &mut out))?;
    let mut expected = values;
    for lane in 0..32 {
        let [first, second] = [0, 1].map(|e| place(lane, e)).map(|(row, column)| row * 8 + column);
        expected[first] += lane as f32;
        expected[second] *= 2.0;
    }
    expect_all(&out.to_vec()?, |e| expected[e]);
    Ok(())
}

/// Products of 2 by 2 tiles with an inner dimension of two tiles, in threadgroups of many shapes; also the position of each thread, and a
/// sum over a simdgroup.
fn tiles<T: Element>(device: &Device) -> CaseResult {
    let text = "kernel void tiles(device const TYPE* a, device const TYPE* b, device float* c, device uint4* places,
                device float* sums, uint3 t [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                uint s [[simdgroup_index_in_threadgroup]], uint3 full [[dispatch_threads_per_threadgroup]],
                uint3 group [[threadgroup_position_in_grid]]) {
            uint total = full.x * full.y * full.z, first = group.z * total;
            uint n = (t.z * full.y + t.y) * full.x + t.x;
            places[first + n] = uint4(t, s * 32 + lane);
            if (n / 32 * 32 + 32 > total) return;
            uint at = (first / 32 + s) * 256;
            simdgroup_float8x8 sum[2][2] = {{simdgroup_float8x8(1.0f), simdgroup_float8x8(0.0f)},
                                            {make_filled_simdgroup_matrix<float, 8>(2.0f), simdgroup_float8x8(3.0f)}};
            for (uint k = 0; k < 16; k += 8) {
                simdgroup_matrix<TYPE, 8, 8> x[2], y[2];
                for (uint i = 0; i < 2; ++i) {
                    simdgroup_load(x[i], a + at + i * 128 + k, 16);
                    simdgroup_load(y[i], b + at + k * 16 + i * 8, 16);
                }
                for (uint i = 0; i < 2; ++i)
                    for (uint j = 0; j < 2; ++j)
                        simdgroup_multiply_accumulate(sum[i][j], x[i], y[j], sum[i][j]);
            }
            for (uint i = 0; i < 2; ++i)
                for (uint j = 0; j < 2; ++j) simdgroup_store(sum[i][j], c + at + i * 128 + j * 8, 16);
            sums[first + n] = simd_sum(float(lane * lane));
        }";
    let kernel = kernel(device, "tiles", &text.replace("TYPE", &T::msl()))?;
    // The grid of the last shape ends within its second threadgroup.
    let shapes = [[32, 1, 1], [64, 2, 1], [8, 4, 2], [16, 3, 2], [5, 8, 4], [40, 1, 1], [8, 4, 2]];
    for (shape, group) in shapes.into_iter().enumerate() {
        let depth = if shape + 1 == shapes.len() { 3 } else { group[2] };
        let (total, used) = (group.iter().product::<u32>() as usize, (group[0] * group[1] * depth) as usize);
        let simdgroups = used.div_ceil(32);
        let (a, b) = (numbers::<T>(simdgroups * 256, 1), numbers::<T>(simdgroups * 256, 2));
        let mut c = device.buffer_with_data(&vec![-1_f32; simdgroups * 256])?;
        let mut places = device.buffer_with_data(&vec![[9_u32; 4]; used])?;
        let mut sums = device.buffer_with_data(&vec![-1_f32; used])?;
        let args =
            (&device.buffer_with_data(&a)?, &device.buffer_with_data(&b)?, &mut c, &mut places, &mut sums);
        let grid = Grid::threads((group[0], group[1], depth)).group((group[0], group[1], group[2]));
        run(device, &kernel, grid, args)?;
        expect_all(&places.to_vec()?, |n| {
            let (n, [x, y, _]) = ((n % total) as u32, group);
            [n % x, n / x % y, n / x / y, n]
        });
        let is_whole = |n: usize| n % total / 32 * 32 + 32 <= total;
        expect_all(&sums.to_vec()?, |n| if is_whole(n) { 10416.0 } else { -1.0 });
        expect_all(&c.to_vec()?, |e| {
            let (first, row, column) = (e / 256 * 256, e / 16 % 16, e % 16);
            let start = match (row / 8, column / 8) {
                (1, 0) => 2.0,
                (0, 0) if row == column => 1.0,
                (1, 1) if row == column => 3.0,
                _ => 0.0,
            };
            let term = |k: usize| a[first + row * 16 + k].number() * b[first + k * 16 + column].number();
            if is_whole(e / 256 * 32) { (0..16).map(term).sum::<f32>() + start } else { -1.0 }
        });
    }
    Ok(())
}

/// A layout of both factors in threadgroup memory: elements between rows, elements before the first row, and whether the left and the right
/// factor are transposed.
type Layout = (usize, usize, [bool; 2]);

/// Rows that are aligned by 16 bytes, and others; all transpositions.
const LAYOUTS: [Layout; 7] = [
    (40, 0, [false, false]),
    (40, 8, [true, false]),
    (48, 16, [false, true]),
    (40, 0, [true, true]),
    (36, 0, [false, true]),
    (44, 2, [false, false]),
    (40, 3, [true, false]),
];

/// Products of 16 by 32 and 32 by 16 elements in threadgroup memory, which is written again for each of three rounds; each of two
/// simdgroups begins eight rows further on. The left factor's first matrix is also both factors of a product.
fn shared_factors<T: Element>(device: &Device) -> CaseResult {
    const ROWS: usize = 40;
    const ROUNDS: usize = 3;
    let text = "template <uint STRIDE, uint SHIFT, bool LEFT, bool RIGHT>
        [[kernel]] void factors(device const TYPE* a, device const TYPE* b, device float* out, device float* squares,
                constant uint& rounds, uint i [[thread_index_in_threadgroup]], uint s [[simdgroup_index_in_threadgroup]]) {
            threadgroup TYPE left[2][40 * STRIDE + SHIFT], right[2][40 * STRIDE + SHIFT];
            simdgroup_float8x8 sum[2][2], square(0.0f);
            for (uint r = 0; r < 2; ++r)
                for (uint c = 0; c < 2; ++c) sum[r][c] = simdgroup_float8x8(0.0f);
            for (uint round = 0; round < rounds; ++round) {
                uint half_of = round & 1;
                for (uint at = i; at < 40 * STRIDE; at += 64) {
                    left[half_of][SHIFT + at] = a[round * 40 * STRIDE + at];
                    right[half_of][SHIFT + at] = b[round * 40 * STRIDE + at];
                }
                threadgroup_barrier(mem_flags::mem_threadgroup);
                threadgroup const TYPE* x = left[half_of] + SHIFT + 8 * s * STRIDE;
                threadgroup const TYPE* y = right[half_of] + SHIFT + 8 * s * STRIDE;
                for (uint k = 0; k < 32; k += 8) {
                    simdgroup_matrix<TYPE, 8, 8> m[2], n[2];
                    for (uint r = 0; r < 2; ++r) {
                        if (LEFT) simdgroup_load(m[r], x, STRIDE, ulong2(8 * r, k), true);
                        else simdgroup_load(m[r], x + 8 * r * STRIDE + k, STRIDE);
                        if (RIGHT) simdgroup_load(n[r], y + 8 * r * STRIDE + k, STRIDE, 0, true);
                        else simdgroup_load(n[r], y, STRIDE, ulong2(8 * r, k));
                    }
                    for (uint r = 0; r < 2; ++r)
                        for (uint c = 0; c < 2; ++c) simdgroup_multiply_accumulate(sum[r][c], m[r], n[c], sum[r][c]);
                    simdgroup_multiply_accumulate(square, m[0], m[0], square);
                }
            }
            for (uint r = 0; r < 2; ++r)
                for (uint c = 0; c < 2; ++c)
                    simdgroup_store(sum[r][c], out + 256 * s, 16, ulong2(8 * c, 8 * r));
            simdgroup_store(square, squares + 64 * s);
        }";
    for (stride, shift, [left, right]) in LAYOUTS {
        let instance = format!(
            "{text}
        template [[host_name(\"factors\")]] [[kernel]] decltype(factors<{stride}, {shift}, {left}, {right}>)
            factors<{stride}, {shift}, {left}, {right}>;"
        );
        let kernel = kernel(device, "factors", &instance.replace("TYPE", &T::msl()))?;
        let round = ROWS * stride;
        let [a, b] = [1, 2].map(|seed| numbers::<T>(round * ROUNDS, seed));
        let (mut out, mut squares) = (device.buffer::<f32>(2 * 256)?, device.buffer::<f32>(2 * 64)?);
        let args = (
            &device.buffer_with_data(&a)?,
            &device.buffer_with_data(&b)?,
            &mut out,
            &mut squares,
            ROUNDS as u32,
        );
        run(device, &kernel, Grid::threads(64).group(64), args)?;
        // Row and column of a factor, of a simdgroup in a round.
        let element = |of: &[T], transposed: bool, begin: usize, row: usize, column: usize| {
            let (row, column) = if transposed { (column, row) } else { (row, column) };
            of[begin + row * stride + column].number()
        };
        let terms = |simdgroup: usize| {
            let begin = move |round_at: usize| round_at * round + 8 * simdgroup * stride;
            (0..ROUNDS).flat_map(move |at| (0..32).map(move |k| (begin(at), k)))
        };
        expect_all(&out.to_vec()?, |e| {
            let (row, column) = (e / 16 % 16, e % 16);
            let term = |(begin, k)| element(&a, left, begin, row, k) * element(&b, right, begin, k, column);
            terms(e / 256).map(term).sum::<f32>()
        });
        expect_all(&squares.to_vec()?, |e| {
            let (row, column) = (e / 8 % 8, e % 8);
            let term = |(begin, k): (usize, usize)| {
                let inner = k / 8 * 8;
                let at = |row, column| element(&a, left, begin, row, column);
                at(row, k) * at(k % 8, inner + column)
            };
            terms(e / 64).map(term).sum::<f32>()
        });
    }
    Ok(())
}

fn forms_of_half(device: &Device) -> CaseResult {
    forms::<f16>(device)
}
fn forms_of_bfloat(device: &Device) -> CaseResult {
    forms::<bf16>(device)
}
fn forms_of_float(device: &Device) -> CaseResult {
    forms::<f32>(device)
}
fn products_of_half(device: &Device) -> CaseResult {
    products::<f16>(device)
}
fn products_of_bfloat(device: &Device) -> CaseResult {
    products::<bf16>(device)
}
fn products_of_float(device: &Device) -> CaseResult {
    products::<f32>(device)
}
fn tiles_of_half(device: &Device) -> CaseResult {
    tiles::<f16>(device)
}
fn tiles_of_bfloat(device: &Device) -> CaseResult {
    tiles::<bf16>(device)
}
fn tiles_of_float(device: &Device) -> CaseResult {
    tiles::<f32>(device)
}
fn shared_factors_of_half(device: &Device) -> CaseResult {
    shared_factors::<f16>(device)
}
fn shared_factors_of_bfloat(device: &Device) -> CaseResult {
    shared_factors::<bf16>(device)
}
fn shared_factors_of_float(device: &Device) -> CaseResult {
    shared_factors::<f32>(device)
}

/// Shuffles in a kernel with products: of whole simdgroups, and of half a simdgroup.
fn shuffles_beside_products(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "shuffles",
        "kernel void shuffles(device const half* in, device float* product, device uint4* out, constant uint& by,
                uint i [[thread_index_in_threadgroup]], uint s [[simdgroup_index_in_threadgroup]]) {
            if (s == 0) {
                simdgroup_half8x8 m;
                simdgroup_float8x8 p;
                simdgroup_load(m, in);
                simdgroup_multiply(p, m, m);
                simdgroup_store(p, product);
            }
            out[i] = uint4(simd_shuffle_xor(i, 8), simd_shuffle_xor(i, ushort(by)), simd_shuffle(i, ushort((i * 5 + by) % 16)),
                simd_broadcast(i, ushort(by)));
        }",
    )?;
    let factor = numbers::<f16>(64, 3);
    let input = device.buffer_with_data(&factor)?;
    for threads in [64, 48] {
        for by in [1, 2, 4, 7, 9, 14] {
            let (mut product, mut out) = (device.buffer::<f32>(64)?, device.buffer::<[u32; 4]>(threads)?);
            let args = (&input, &mut product, &mut out, by as u32);
            run(device, &kernel, Grid::threads(threads).group(threads), args)?;
            expect_all(&product.to_vec()?, |at| {
                (0..8).map(|k| factor[at / 8 * 8 + k].number() * factor[k * 8 + at % 8].number()).sum()
            });
            expect_all(&out.to_vec()?, |i| {
                let first = i / 32 * 32;
                [i ^ 8, i ^ by, first + (i * 5 + by) % 16, first + by].map(|index| index as u32)
            });
        }
    }
    Ok(())
}
