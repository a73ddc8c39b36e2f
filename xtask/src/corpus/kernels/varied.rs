//! Kernels of several packages: matrices of simdgroups, normalization and softmax of tessl, Fourier transforms of rlx-metal, an
//! optimizer's step, fills, and sums by atomic operations.

use elinvar::bf16;

use super::candle::unary::gelu;
use super::case::{Case, Near, guarded};
use super::element::Member::{F32, I32};
use super::element::{Element, Sequence, packed};
use super::reference::{U, fourier, product, sum};

const TESSL: &str = "tessl";
const SUM: &str = "one rounding of the sum of magnitudes for each term";

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        matmul("matmul_simdgroup_f32", [32, 24, 16]),
        matmul("matmul_simdgroup_edges_f32", [19, 21, 13]),
    ];
    // A kernel has one case: one of them takes the path for tiles within the result.
    cases.extend(
        [("f32", false), ("nt_f32", true), ("tn_f32", false)]
            .map(|(kernel, interior)| tensor_product(kernel, interior)),
    );
    cases.extend([softmax(), row_sum(), row_max(), rms_norm::<f32>(), rms_norm::<bf16>(), residual()]);
    cases.extend([silu(), gelu_tanh::<f32>("mlp_gelu_tanh"), gelu_tanh::<bf16>("mlp_gelu_tanh_bf16")]);
    cases.extend([radix("fft_radix2_full_f32", 256, false), radix("fft_radix2_full_big_f32", 512, true)]);
    cases.extend([radix("fft_radix4_full_f32", 512, false), adam(), fill(), copy(), atomic_sum()]);
    cases
}

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    Sequence(seed).between(count, -2.0, 2.0)
}

/// A number in `float` is rounded to the type.
fn rounded<T: Element>((value, error): Near) -> Near {
    (value, error + if T::SHORT == "f32" { 0.0 } else { T::ROUNDING * value.abs() })
}

/// Tiles of eight by eight; the second kernel takes any sizes.
fn matmul(kernel: &str, [m, k, n]: [usize; 3]) -> Case {
    let (a, b) = (numbers(m * k, 3), numbers(k * n, 5));
    let want = product([m, k, n], |i, j| a[i * k + j].value(), |j, c| b[j * n + c].value(), U);
    Case::new(TESSL, "matmul_simdgroup.metal", kernel)
        .input(&a)
        .input(&b)
        .near::<f32>(want, SUM)
        .value([m as u32])
        .value([n as u32])
        .value([k as u32])
        .groups((n.div_ceil(16), m.div_ceil(16)), 128)
}

/// Tiles of 32 by 32, whose factors are tensors of Metal 4 over device memory; at the edges, the tensors' extents bound them.
fn tensor_product(kernel: &str, interior: bool) -> Case {
    let [m, k, n] = [70, 45, 50];
    let (a, b) = (numbers(m * k, 7), numbers(k * n, 11));
    let left = |i: usize, j: usize| {
        if kernel.starts_with("tn") { a[j * m + i].value() } else { a[i * k + j].value() }
    };
    let right = |j: usize, c: usize| {
        if kernel.starts_with("nt") { b[c * k + j].value() } else { b[j * n + c].value() }
    };
    let (columns, rows) = (n.div_ceil(32), m.div_ceil(32));
    Case::new(TESSL, "matmul_tensorops.metal", format!("matmul2d_tensorops_{kernel}"))
        .input(&a)
        .input(&b)
        .near::<f32>(product([m, k, n], left, right, U), SUM)
        .value([m as u32])
        .value([n as u32])
        .value([k as u32])
        .value([columns as u32])
        .value([rows as u32])
        .value([u32::from(interior)])
        .groups(columns * rows, 32)
}

const ROWS: usize = 3;
const COLUMNS: usize = 90;

fn softmax() -> Case {
    let x = numbers(ROWS * COLUMNS, 7);
    let want = x.chunks(COLUMNS).flat_map(|row| {
        let top = row.iter().map(|x| x.value()).fold(f64::MIN, f64::max);
        let weights: Vec<f64> = row.iter().map(|x| (x.value() - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        let error = U * (4.0 * 11.0 + COLUMNS as f64 + 10.0);
        weights.into_iter().map(move |weight| (weight / total, weight / total * error)).collect::<Vec<_>>()
    });
    let want = want.collect();
    Case::new(TESSL, "reduce.metal", "softmax_rows_f32")
        .input(&x)
        .near::<f32>(want, "exp of 3 + |2x| ulp twice, roundings of the sum, a division")
        .value([COLUMNS as u32])
        .groups(ROWS, 64)
}

fn row_sum() -> Case {
    let x = numbers(ROWS * COLUMNS, 11);
    let want = x.chunks(COLUMNS).map(|row| sum(row.iter().map(|x| x.value()), U)).collect();
    Case::new(TESSL, "reduce.metal", "row_sum_f32")
        .input(&x)
        .near::<f32>(want, SUM)
        .value([COLUMNS as u32])
        .groups(ROWS, 64)
}

fn row_max() -> Case {
    let x = numbers(ROWS * COLUMNS, 13);
    let want: Vec<f32> = x.chunks(COLUMNS).map(|row| row.iter().copied().fold(f32::MIN, f32::max)).collect();
    Case::new(TESSL, "reduce.metal", "row_max_f32")
        .input(&x)
        .full_output(want)
        .value([COLUMNS as u32])
        .groups(ROWS, 64)
}

const EPSILON: f32 = 1e-5;
const RMS: &str = "roundings of the sum of squares, rsqrt of 2 ulp, two products, and one of the type";

/// Rows divided by the root of the mean of their squares, times weights.
fn normalized(x: &[f32], weights: &[f32]) -> Vec<Near> {
    let row = |row: &[f32]| {
        let mean = row.iter().map(|x| x.value().powi(2)).sum::<f64>() / COLUMNS as f64;
        let scale = (mean + f64::from(EPSILON)).sqrt().recip();
        let values = row.iter().zip(weights).map(move |(x, w)| x.value() * scale * w.value());
        values.map(|value| (value, value.abs() * U * (COLUMNS as f64 / 2.0 + 12.0))).collect::<Vec<Near>>()
    };
    x.chunks(COLUMNS).flat_map(row).collect()
}

fn rms_norm<T: Element>() -> Case {
    let (x, weights) = (numbers(ROWS * COLUMNS, 17), numbers(COLUMNS, 19));
    let want = normalized(&x, &weights).into_iter().map(rounded::<T>).collect();
    Case::new(TESSL, "rms_norm.metal", format!("rms_norm_{}", T::SHORT))
        .input(&x)
        .input(&weights)
        .near::<T>(want, RMS)
        .value([ROWS as u32])
        .value([COLUMNS as u32])
        .value([EPSILON])
        .groups(ROWS, 64)
}

fn residual() -> Case {
    let (x, weights, before) =
        (numbers(ROWS * COLUMNS, 23), numbers(COLUMNS, 29), numbers(ROWS * COLUMNS, 31));
    let scale = 0.5_f32;
    let added = normalized(&x, &weights).into_iter().zip(&before).map(|((value, error), old)| {
        let total = f64::from(scale) * (old.value() + value);
        (total, error + 2.0 * U * (old.value().abs() + value.abs()))
    });
    let want = added.collect();
    Case::new(TESSL, "rms_norm.metal", "rms_norm_residual_add_f32")
        .input(&x)
        .input(&weights)
        .updated_near::<f32>(&guarded(&before), want, RMS)
        .value([ROWS as u32])
        .value([COLUMNS as u32])
        .value([EPSILON])
        .value([scale])
        .groups(ROWS, 64)
}

const COUNT: usize = 211;

fn gated<T: Element>(
    file: &'static str,
    kernel: &str,
    tolerance: &'static str,
    near: fn(f64) -> Near,
) -> Case {
    let (gate, up) = (numbers(COUNT, 37), numbers(COUNT, 41));
    let want = gate.iter().zip(&up).map(|(gate, up)| {
        let (value, error) = near(gate.value());
        rounded::<T>((value * up.value(), (error + U * value.abs()) * up.value().abs()))
    });
    let want = want.collect();
    Case::new(TESSL, file, kernel)
        .input(&gate)
        .input(&up)
        .near::<T>(want, tolerance)
        .value([COUNT as u32])
        .threads(256, 64)
}

fn silu() -> Case {
    gated::<f32>(
        "mlp_silu.metal",
        "mlp_silu",
        "exp of 3 + |2x| ulp, a division of 2.5 ulp, two roundings",
        |x| {
            let value = x / (1.0 + (-x).exp());
            (value, 24.0 * U * value.abs())
        },
    )
}

fn gelu_tanh<T: Element>(kernel: &str) -> Case {
    const TOLERANCE: &str = "tanh of 5 ulp, and ten roundings of |x|; one of the type";
    gated::<T>("mlp_gelu_tanh.metal", kernel, TOLERANCE, |x| (gelu(x), 20.0 * U * x.abs()))
}

/// Rows of real parts and imaginary parts, in one buffer with the results.
fn radix(kernel: &str, size: usize, inverse: bool) -> Case {
    let rows = 2;
    let (start, scale) = (7, if inverse { 1.0 / size as f64 } else { 1.0 });
    let signal = numbers(rows * 2 * size, 43);
    let mut want: Vec<Near> = vec![(f32::untouched().value(), 0.0); start];
    want.extend(signal.iter().map(|x| (x.value(), 0.0)));
    for row in signal.chunks(2 * size) {
        let parts: Vec<[f64; 2]> = (0..size).map(|i| [row[i].value(), row[size + i].value()]).collect();
        let energy = parts.iter().map(|[x, y]| x * x + y * y).sum::<f64>();
        let error = f64::from(size.ilog2()) * (2f64.powi(-11) + 8.0 * U) * energy.sqrt() * scale;
        let transformed = fourier(&parts, if inverse { 1.0 } else { -1.0 });
        for k in 0..2 {
            want.extend(transformed.iter().map(|x| (x[k] * scale, error)));
        }
    }
    let mut before = vec![f32::untouched(); start];
    before.extend(&signal);
    before.extend(vec![f32::untouched(); signal.len()]);
    let case = Case::new("rlx-metal", "fft_gpu.msl", kernel)
        .updated_near::<f32>(
            &guarded(&before),
            want,
            "for each pass 2⁻¹³ of sin and cos in fast math, of the signal's norm",
        )
        .value([start as u32])
        .value([(start + signal.len()) as u32])
        .value([size as u32])
        .value([size.ilog2()])
        .value([u32::from(inverse)])
        .value([scale as f32])
        .value([rows as u32]);
    let case = if kernel.contains("radix4") { case.value([0_u32]) } else { case };
    case.groups(rows, 64)
}

/// One step of Adam.
fn adam() -> Case {
    let (p, g, m) = (numbers(COUNT, 47), numbers(COUNT, 53), numbers(COUNT, 59));
    let v: Vec<f32> = Sequence(61).between(COUNT, 0.01, 1.0);
    let [rate, b1, b2, epsilon, bc1, root] = [0.01_f32, 0.9, 0.99, 1e-8, 0.5, 0.7];
    let wide = |x: f32| f64::from(x);
    let (mut new_p, mut new_m, mut new_v) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..COUNT {
        let (kept, more) = (wide(b1) * m[i].value(), (1.0 - wide(b1)) * g[i].value());
        let mean = kept + more;
        let of_mean = 4.0 * U * (kept.abs() + more.abs());
        let square = wide(b2) * v[i].value() + (1.0 - wide(b2)) * g[i].value().powi(2);
        let step = wide(rate) / wide(bc1) / (square.sqrt() / wide(root) + wide(epsilon));
        new_m.push((mean, of_mean));
        new_v.push((square, 8.0 * U * square));
        new_p.push((
            p[i].value() - step * mean,
            U * p[i].value().abs() + step * (of_mean + 40.0 * U * mean.abs()),
        ));
    }
    const TOLERANCE: &str = "sqrt and divisions of 3 ulp, roundings of the products and sums";
    Case::new("metal-gauss", "adam.metal", "adam_step")
        .updated_near::<f32>(&guarded(&p), new_p, TOLERANCE)
        .input(&g)
        .updated_near::<f32>(&guarded(&m), new_m, TOLERANCE)
        .updated_near::<f32>(&guarded(&v), new_v, TOLERANCE)
        .bytes(packed(&[I32(COUNT as i32), F32(rate), F32(b1), F32(b2), F32(epsilon), F32(bc1), F32(root)]))
        .threads(256, 64)
}

fn fill() -> Case {
    let (value, count) = (0x1234_5678_u32, 100);
    let mut want = vec![Some(value); count];
    want.extend(vec![None; 9]);
    Case::new("gfx-backend-metal", "fill.metal", "cs_fill_buffer")
        .output(&want)
        .bytes(packed(&[I32(value as i32), I32(count as i32)]))
        .threads(128, 32)
}

/// Bytes between offsets that are no multiples of four.
fn copy() -> Case {
    let (count, to, from) = (77, 5, 3);
    let source: Vec<u8> = Sequence(67).any(100);
    let mut want = vec![None; to];
    want.extend(source[from..from + count].iter().copied().map(Some));
    Case::new("gfx-backend-metal", "fill.metal", "cs_copy_buffer")
        .output(&want)
        .input(&source)
        .bytes(packed(&[I32(count as i32), I32((to << 16 | from) as i32)]))
        .threads(96, 32)
}

fn atomic_sum() -> Case {
    let data: Vec<u32> = Sequence(71).any(COUNT);
    let total = data.iter().fold(9_u32, |sum, x| sum.wrapping_add(*x));
    Case::new("metal", "compute/shaders.metal", "sum")
        .input(&data)
        .updated(&guarded(&[9_u32]), &[Some(total)])
        .threads(COUNT, 64)
}
