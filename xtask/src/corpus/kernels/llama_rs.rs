//! llama-rs' kernels, all in `float`: attention with and without a cache, products, normalization, blocks of quantized numbers.

use super::candle::unary::gelu;
use super::case::{Case, Near, guarded};
use super::element::Member::{F32, I32};
use super::element::{Element, Sequence, packed};
use super::ggml::quants::{blocks, from_q4_k, from_q6_k, from_q8_0};
use super::reference::{ATTENTION, U, attention, product, sum};

const CORPUS: &str = "llama-rs";
const COUNT: usize = 333;

pub fn cases() -> Vec<Case> {
    let mut cases = vec![causal(), cached(), layer_norm(), rms_sum(), rms_scale(), maxima(), rope(true)];
    cases.extend([matmul(), matvec(), vec_mat(), exponentials(), divided()]);
    cases.extend([
        dequantized("dequant_q8_0.metal", "q8_0", 34, from_q8_0),
        dequantized("dequant_q4_k.metal", "q4_K", 144, from_q4_k),
        dequantized("dequant_q6_k.metal", "q6_K", 210, from_q6_k),
    ]);
    cases.extend([
        binary("add.metal", "add_f32", |x, y| x + y),
        binary("mul.metal", "mul_f32", |x, y| x * y),
        unary("gelu.metal", "gelu_f32", "tanh of 5 ulp, and ten roundings of |x|", |x| {
            (gelu(x), 20.0 * U * x.abs())
        }),
        unary("silu.metal", "silu_f32", "exp of 3 + |2x| ulp, a division of 2.5 ulp", |x| {
            let value = x / (1.0 + (-x).exp());
            (value, value.abs() * U * (14.0 + 4.0 * x.abs()))
        }),
        scale(),
    ]);
    cases
}

fn case(file: &'static str, kernel: &str) -> Case {
    Case::new(CORPUS, file, kernel)
}

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    Sequence(seed).between(count, -2.0, 2.0)
}

fn values(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|x| f64::from(*x)).collect()
}

const HEADS: usize = 4;
const SHARED: usize = 2;
const DIM: usize = 40;

/// Attention of `queries` positions of each head to the keys that are not later; two heads share their keys.
fn heads(queries: usize, keys: usize, rows: usize) -> (Vec<f32>, Vec<f32>, Vec<f32>, Vec<Near>) {
    let q = numbers(HEADS * queries * DIM, 3);
    let (k, v) = (numbers(HEADS / SHARED * rows * DIM, 5), numbers(HEADS / SHARED * rows * DIM, 7));
    let (query, key, value) = (values(&q), values(&k), values(&v));
    let mut want = Vec::new();
    for row in 0..HEADS * queries {
        let (head, position) = (row / queries, row % queries);
        let visible = keys - queries + position + 1;
        let slices = |all: &'_ Vec<f64>| -> Vec<Vec<f64>> {
            let start = head / SHARED * rows;
            (start..start + visible).map(|at| all[at * DIM..][..DIM].to_vec()).collect()
        };
        let (keys, values) = (slices(&key), slices(&value));
        let keys: Vec<&[f64]> = keys.iter().map(Vec::as_slice).collect();
        let values: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
        want.extend(attention(&query[row * DIM..][..DIM], &keys, &values, SCALE));
    }
    (q, k, v, want)
}

const SCALE: f64 = 0.15625;

fn causal() -> Case {
    let (queries, keys) = (3, 9);
    let (q, k, v, want) = heads(queries, keys, keys);
    let sizes = [HEADS, HEADS / SHARED, queries, keys, DIM].map(|n| I32(n as i32));
    case("attention.metal", "attention_f32")
        .input(&q)
        .input(&k)
        .input(&v)
        .near::<f32>(want, ATTENTION)
        .bytes(packed(&[&sizes[..], &[F32(SCALE as f32)]].concat()))
        .groups((HEADS, queries), 256)
}

/// One position, and a cache with room for more keys.
fn cached() -> Case {
    let (keys, rows) = (11, 16);
    let (q, k, v, want) = heads(1, keys, rows);
    let sizes = [HEADS, HEADS / SHARED, keys, rows, DIM].map(|n| I32(n as i32));
    case("attention_cached.metal", "attention_cached_f32")
        .input(&q)
        .input(&k)
        .input(&v)
        .near::<f32>(want, ATTENTION)
        .bytes(packed(&[&sizes[..], &[F32(SCALE as f32)]].concat()))
        .groups(HEADS, 256)
}

fn layer_norm() -> Case {
    let (x, weights, biases) = (numbers(COUNT, 11), numbers(COUNT, 13), numbers(COUNT, 17));
    let count = COUNT as f64;
    let mean = values(&x).iter().sum::<f64>() / count;
    let variance = values(&x).iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
    let epsilon = 1e-5;
    let scale = (variance + epsilon).sqrt().recip();
    let want = (0..COUNT).map(|i| {
        let (part, bias) = ((f64::from(x[i]) - mean) * scale * f64::from(weights[i]), f64::from(biases[i]));
        (part + bias, 16.0 * U * (part.abs() + bias.abs()) + 16.0 * U * f64::from(weights[i]).abs())
    });
    let want = want.collect();
    case("layer_norm.metal", "layer_norm_f32")
        .input(&x)
        .input(&weights)
        .input(&biases)
        .near::<f32>(want, "16 roundings of the parts: two sums in trees, a division, rsqrt of 2 ulp")
        .bytes(packed(&[I32(COUNT as i32), F32(epsilon as f32)]))
        .threads(256, 256)
}

/// Sums of squares, one for each threadgroup.
fn rms_sum() -> Case {
    let x = numbers(COUNT, 19);
    let want: Vec<Near> = x.chunks(128).map(|part| sum(values(part).into_iter().map(|x| x * x), U)).collect();
    let groups = want.len();
    case("rms_norm_sum.metal", "rms_norm_sum_f32")
        .input(&x)
        .near::<f32>(want, "one rounding of the sum for each term")
        .value([COUNT as i32])
        .groups(groups, 128)
}

fn rms_scale() -> Case {
    let (x, weights) = (numbers(COUNT, 23), numbers(COUNT, 29));
    let scale = 0.75_f32;
    let want = x.iter().zip(&weights).map(|(x, w)| {
        let value = f64::from(*x) * f64::from(scale) * f64::from(*w);
        (value, 3.0 * U * value.abs())
    });
    let want = want.collect();
    case("rms_norm_scale.metal", "rms_norm_scale_f32")
        .input(&x)
        .input(&weights)
        .near::<f32>(want, "two roundings")
        .bytes(packed(&[I32(COUNT as i32), F32(scale)]))
        .threads(384, 64)
}

fn maxima() -> Case {
    let x = numbers(COUNT, 31);
    let want: Vec<f32> = x.chunks(64).map(|part| part.iter().copied().fold(f32::MIN, f32::max)).collect();
    let groups = want.len();
    case("softmax_max.metal", "softmax_max_f32")
        .input(&x)
        .full_output(want)
        .value([COUNT as i32])
        .groups(groups, 64)
}

fn exponentials() -> Case {
    let (x, top) = (numbers(COUNT, 37), 2.0_f32);
    let want = values(&x).into_iter().map(|x| {
        let argument = x - f64::from(top);
        (argument.exp(), argument.exp() * U * (8.0 + 8.0 * argument.abs()))
    });
    let want = want.collect();
    case("softmax_exp.metal", "softmax_exp_f32")
        .input(&x)
        .near::<f32>(want, "3 + |2x| ulp, and a rounding of x")
        .bytes(packed(&[I32(COUNT as i32), F32(top)]))
        .threads(384, 64)
}

fn divided() -> Case {
    let (x, factor) = (numbers(COUNT, 41), 0.1_f32);
    let want: Vec<Option<f32>> = x.iter().map(|x| Some(x * factor)).collect();
    case("softmax_div.metal", "softmax_div_f32")
        .updated(&guarded(&x), &want)
        .bytes(packed(&[I32(COUNT as i32), F32(factor)]))
        .threads(384, 64)
}

fn scale() -> Case {
    let (x, factor) = (numbers(COUNT, 43), -1.7_f32);
    case("scale.metal", "scale_f32")
        .input(&x)
        .full_output(x.iter().map(|x| x * factor).collect::<Vec<f32>>())
        .bytes(packed(&[I32(COUNT as i32), F32(factor)]))
        .threads(384, 64)
}

fn binary(file: &'static str, kernel: &str, operation: fn(f32, f32) -> f32) -> Case {
    let (x, y) = (numbers(COUNT, 47), numbers(COUNT, 53));
    case(file, kernel)
        .input(&x)
        .input(&y)
        .full_output(x.iter().zip(&y).map(|(x, y)| operation(*x, *y)).collect::<Vec<f32>>())
        .value([COUNT as i32])
        .threads(384, 64)
}

fn unary(file: &'static str, kernel: &str, tolerance: &'static str, near: fn(f64) -> Near) -> Case {
    let x: Vec<f32> = Sequence(59).between(COUNT, -4.0, 4.0);
    let want = values(&x).into_iter().map(near).collect();
    case(file, kernel).input(&x).near::<f32>(want, tolerance).value([COUNT as i32]).threads(384, 64)
}

/// The halves of each head's vector turn by angles that fall with the position in the vector.
fn rope(halves: bool) -> Case {
    let (query_heads, key_heads, dim, position, base) = (3, 2, 20, 5, 1000.0_f64);
    let (q, k) = (numbers(query_heads * dim, 61), numbers(key_heads * dim, 67));
    let turned = |x: &[f32]| -> Vec<Near> {
        let mut want = vec![(0.0, 0.0); x.len()];
        for head in 0..x.len() / dim {
            for pair in 0..dim / 2 {
                let (a, b) = if halves { (pair, pair + dim / 2) } else { (2 * pair, 2 * pair + 1) };
                let (a, b) = (head * dim + a, head * dim + b);
                let angle = f64::from(position) * base.powf(-((2 * pair) as f64) / dim as f64);
                let (sin, cos) = angle.sin_cos();
                let (x, y) = (f64::from(x[a]), f64::from(x[b]));
                // 2⁻¹³ of the functions, and the angle's own error.
                let error = (2f64.powi(-13) + 64.0 * U * angle) * (x.abs() + y.abs()) * 1.5;
                (want[a], want[b]) = ((x * cos - y * sin, error), (x * sin + y * cos, error));
            }
        }
        want
    };
    const TOLERANCE: &str = "sin and cos of 2⁻¹³, pow of 16 ulp in the angle";
    let (rotated_q, rotated_k) = (turned(&q), turned(&k));
    let sizes = [query_heads as i32, key_heads as i32, dim as i32, position].map(I32);
    let rest = [F32(base as f32), F32(1.0), I32(halves.into())];
    case("rope.metal", "rope_f32")
        .updated_near::<f32>(&guarded(&q), rotated_q, TOLERANCE)
        .updated_near::<f32>(&guarded(&k), rotated_k, TOLERANCE)
        .bytes(packed(&[&sizes[..], &rest].concat()))
        .groups(query_heads, 32)
}

const SUM: &str = "one rounding of the sum of magnitudes for each term";

fn matmul() -> Case {
    let [m, k, n] = [21, 37, 19];
    let (a, b) = (numbers(m * k, 71), numbers(k * n, 73));
    let want = product([m, k, n], |i, j| a[i * k + j].value(), |i, j| b[i * n + j].value(), U);
    case("matmul.metal", "matmul_f32")
        .input(&a)
        .input(&b)
        .near::<f32>(want, SUM)
        .bytes(packed(&[m, k, n].map(|n| I32(n as i32))))
        .groups((2, 2), (16, 16))
}

fn matvec() -> Case {
    let (m, n) = (45, 37);
    let (a, x) = (numbers(m * n, 79), numbers(n, 83));
    let want = product([m, n, 1], |i, j| a[i * n + j].value(), |j, _| x[j].value(), U);
    case("matvec.metal", "matvec_f32")
        .input(&a)
        .input(&x)
        .near::<f32>(want, SUM)
        .bytes(packed(&[I32(m as i32), I32(n as i32)]))
        .threads(64, 32)
}

/// The matrix is stored by columns.
fn vec_mat() -> Case {
    let (k, n) = (37, 45);
    let (a, b) = (numbers(k, 89), numbers(k * n, 97));
    let want = product([1, k, n], |_, i| a[i].value(), |i, j| b[j * k + i].value(), U);
    case("vec_mat.metal", "vec_mat_f32")
        .input(&a)
        .input(&b)
        .near::<f32>(want, SUM)
        .bytes(packed(&[I32(k as i32), I32(n as i32)]))
        .threads(64, 32)
}

fn dequantized(file: &'static str, format: &str, size: usize, read: fn(&[u8]) -> Vec<f64>) -> Case {
    let (kernel, count) = (file.trim_end_matches(".metal"), 3);
    let bytes = blocks(format, count, size);
    let want: Vec<f32> = bytes.chunks(size).flat_map(read).map(|x| x as f32).collect();
    let threads = want.len() / count;
    case(file, kernel).input(&bytes).full_output(want).value([count as i32]).groups(count, threads)
}
