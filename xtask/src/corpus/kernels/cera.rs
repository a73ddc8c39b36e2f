//! cera's kernels: attention of one query in several forms, products with matrices of numbers and of quantized blocks, element-wise
//! arithmetic.

use elinvar::f16;

use super::case::{Case, EXACT, Near, guarded};
use super::element::Member::{F32, I32};
use super::element::{Element, Sequence, packed};
use super::ggml::quants::{blocks, from_q4_0, from_q8_0};
use super::reference::{ATTENTION, U, attention, product, sum};

const CORPUS: &str = "cera";
const COUNT: usize = 300;
const SUM: &str = "one rounding of the sum of magnitudes for each term";

pub fn cases() -> Vec<Case> {
    let mut cases = element_wise();
    // The first kernel takes multiples of 32 only.
    for (file, name, dim) in
        [("attention.metal", "attention", 96), ("flash_attention.metal", "flash_attention", 40)]
    {
        cases.push(decode(file, name.into(), dim, 6));
        cases.push(decode(file, format!("{name}_hd64"), 64, 6));
        cases.push(decode(file, format!("{name}_hd128"), 128, 6));
    }
    cases.extend([
        decode("attention_gqa.metal", "attention_gqa".into(), 64, 2),
        bidirectional(),
        convolution(),
    ]);
    for accumulates in [false, true] {
        cases.extend([gemv(accumulates), gemm(accumulates)]);
        cases.push(quantized("gemv_q8_0.metal", "gemv_q8_0", accumulates, ("q8_0", 34, from_q8_0)));
        cases.push(quantized("gemv_q4_0.metal", "gemv_q4_0", accumulates, ("q4_0", 18, from_q4_0)));
    }
    cases.push(gemv_half());
    cases
}

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    Sequence(seed).between(count, -2.0, 2.0)
}

fn values<T: Element>(numbers: &[T]) -> Vec<f64> {
    numbers.iter().map(|x| x.value()).collect()
}

/// With the kernel's name for the variant that adds to its output.
fn variant(kernel: &str, accumulates: bool) -> String {
    format!("{kernel}{}", if accumulates { "_accum" } else { "" })
}

/// Adds results to an output's content, or replaces it.
fn stored(case: Case, want: Vec<Near>, accumulates: bool) -> Case {
    if !accumulates {
        return case.near::<f32>(want, SUM);
    }
    let before = numbers(want.len(), 97);
    let added = want.iter().zip(&before).map(|((value, error), old)| {
        let total = value + old.value();
        (total, error + U * total.abs())
    });
    case.updated_near::<f32>(&guarded(&before), added.collect(), SUM)
}

fn element_wise() -> Vec<Case> {
    let (a, b) = (numbers(COUNT, 3), numbers(COUNT, 5));
    let factor = 0.37_f32;
    let case = |kernel: &str| Case::new(CORPUS, "elementwise.metal", kernel).threads(320, 64);
    let size = |second: i32| packed(&[I32(COUNT as i32), I32(second)]);
    let scaled = packed(&[I32(COUNT as i32), F32(factor)]);
    let all = |function: &dyn Fn(f32, f32) -> f32| -> Vec<Option<f32>> {
        a.iter().zip(&b).map(|(x, y)| Some(function(*x, *y))).collect()
    };
    let near = |function: &dyn Fn(f64, f64) -> f64, roundings: f64| -> Vec<Near> {
        let values = a.iter().zip(&b).map(|(x, y)| function(x.value(), y.value()));
        values.map(|value| (value, roundings * U * value.abs())).collect()
    };
    let group = 7;
    let gated: Vec<Near> = (0..COUNT)
        .map(|i| {
            let value = a[i].value() / (1.0 + (-b[i / group].value()).exp());
            (value, 24.0 * U * value.abs())
        })
        .collect();
    let before = guarded(&a);
    let added: Vec<Near> = a
        .iter()
        .zip(&b)
        .map(|(x, y)| {
            let (x, y) = (x.value(), f64::from(factor) * y.value());
            (x + y, 2.0 * U * (x.abs() + y.abs()))
        })
        .collect();
    const SIGMOID: &str = "exp of 3 + |2x| ulp, a division of 2.5 ulp, two roundings";
    vec![
        case("memcpy_f32").input(&a).full_output(a.clone()).bytes(size(0)),
        case("add_inplace").updated(&before, &all(&|x, y| x + y)).input(&b).bytes(size(0)),
        case("mul_inplace").updated(&before, &all(&|x, y| x * y)).input(&b).bytes(size(0)),
        case("mul_out").input(&a).input(&b).output(&all(&|x, y| x * y)).bytes(size(0)),
        case("cast_f32_to_f16")
            .input(&a)
            .full_output(a.iter().map(|x| f16::of(x.value())).collect::<Vec<f16>>())
            .bytes(size(0)),
        case("silu_mul_inplace")
            .updated_near::<f32>(&before, near(&|x, y| x / (1.0 + (-x).exp()) * y, 24.0), SIGMOID)
            .input(&b)
            .bytes(size(0)),
        case("scaled_add_inplace")
            .updated_near::<f32>(&before, added, "two roundings, or one of a fused product and sum")
            .input(&b)
            .bytes(scaled.clone()),
        case("scale_f32").updated(&before, &all(&|x, _| x * factor)).bytes(scaled),
        case("sigmoid_head_gate_inplace")
            .updated_near::<f32>(&before, gated, SIGMOID)
            .input(&b)
            .bytes(size(group as i32)),
    ]
}

/// Attention of one position of each head; heads share keys in groups of three or two, which are stored in `half`.
fn decode(file: &'static str, kernel: String, dim: usize, groups: usize) -> Case {
    let (heads, keys) = (6, 21);
    let shared = if groups == heads { 3 } else { heads / groups };
    let key_heads = heads / shared;
    let q = numbers(heads * dim, 7);
    let (k, v): (Vec<f16>, Vec<f16>) = (
        Sequence(11).between(keys * key_heads * dim, -1.0, 1.0),
        Sequence(13).between(keys * key_heads * dim, -1.0, 1.0),
    );
    let scale = 0.125;
    let want = (0..heads).flat_map(|head| {
        let rows = |all: &[f16]| -> Vec<Vec<f64>> {
            all.chunks(key_heads * dim).map(|row| values(&row[head / shared * dim..][..dim])).collect()
        };
        let (keys, values_of) = (rows(&k), rows(&v));
        let keys: Vec<&[f64]> = keys.iter().map(Vec::as_slice).collect();
        let values_of: Vec<&[f64]> = values_of.iter().map(Vec::as_slice).collect();
        attention(&values(&q[head * dim..][..dim]), &keys, &values_of, scale)
    });
    let want = want.collect();
    let sizes = [heads, key_heads, dim, key_heads * dim, keys].map(|n| I32(n as i32));
    Case::new(CORPUS, file, kernel)
        .input(&q)
        .input(&k)
        .input(&v)
        .near::<f32>(want, ATTENTION)
        .bytes(packed(&[&sizes[..], &[F32(scale as f32), I32(0), I32(0)]].concat()))
        .groups(groups, 256)
}

/// Every token to every token.
fn bidirectional() -> Case {
    let (tokens, heads, dim) = (5, 3, 20);
    let row = heads * dim;
    let [q, k, v] = [17, 19, 23].map(|seed| numbers(tokens * row, seed));
    let scale = 0.25;
    let want = (0..tokens * heads).flat_map(|at| {
        let (token, head) = (at / heads, at % heads);
        let rows = |all: &[f32]| -> Vec<Vec<f64>> {
            all.chunks(row).map(|token| values(&token[head * dim..][..dim])).collect()
        };
        let (keys, values_of) = (rows(&k), rows(&v));
        let keys: Vec<&[f64]> = keys.iter().map(Vec::as_slice).collect();
        let values_of: Vec<&[f64]> = values_of.iter().map(Vec::as_slice).collect();
        attention(&values(&q[token * row + head * dim..][..dim]), &keys, &values_of, scale)
    });
    let want = want.collect();
    Case::new(CORPUS, "vit_attention.metal", "vit_attention")
        .input(&q)
        .input(&k)
        .input(&v)
        .near::<f32>(want, ATTENTION)
        .bytes(packed(&[I32(tokens as i32), I32(heads as i32), I32(dim as i32), F32(scale as f32)]))
        .groups((tokens, heads), 256)
}

/// A centered filter of three rows, which does not read past the end of a prefix.
fn convolution() -> Case {
    let (rows, channels, prefix) = (7, 5, 3);
    let (stride, out_stride) = (3 * channels + 2, channels + 1);
    let (projected, weights) = (numbers(rows * stride, 29), numbers(3 * channels, 31));
    let gated = |row: usize, c: usize| {
        projected[row * stride + c].value() * projected[row * stride + 2 * channels + c].value()
    };
    let mut want = vec![(f32::untouched().value(), 0.0); rows * out_stride];
    for (row, c) in (0..rows).flat_map(|row| (0..channels).map(move |c| (row, c))) {
        let next = row + 1 < rows && row + 1 != prefix;
        let taps = [(row > 0, row.saturating_sub(1)), (true, row), (next, row + 1)];
        let gate = projected[row * stride + channels + c].value();
        let terms = taps.iter().enumerate().filter(|(_, (used, _))| *used);
        let terms = terms.map(|(k, (_, row))| gate * gated(*row, c) * weights[3 * c + k].value());
        let (value, error) = sum(terms, U);
        want[row * out_stride + c] = (value, 2.0 * error);
    }
    Case::new(CORPUS, "bidirectional.metal", "bidir_conv_centered")
        .input(&projected)
        .input(&weights)
        .near::<f32>(want, "two roundings of the sum of magnitudes for each term")
        .bytes(packed(&[rows, channels, prefix, stride, out_stride].map(|n| I32(n as i32))))
        .threads(rows * channels, 8)
}

fn gemv(accumulates: bool) -> Case {
    let (m, k) = (9, 75);
    let (a, x) = (numbers(m * k, 37), numbers(k, 41));
    let want = product([m, k, 1], |i, j| a[i * k + j].value(), |j, _| x[j].value(), U);
    let case = Case::new(CORPUS, "gemv_f32.metal", variant("gemv_f32", accumulates)).input(&a).input(&x);
    stored(case, want, accumulates).bytes(packed(&[I32(m as i32), I32(k as i32)])).groups(m, 32)
}

fn gemv_half() -> Case {
    let (m, k) = (10, 136);
    let a: Vec<f16> = Sequence(43).between((m + 2) * k, -1.0, 1.0);
    let x = numbers(k, 47);
    let want = product([m, k, 1], |i, j| a[i * k + j].value(), |j, _| x[j].value(), U);
    Case::new(CORPUS, "gemv_f16.metal", "gemv_f16")
        .input(&a)
        .input(&x)
        .near::<f32>(want, SUM)
        .bytes(packed(&[I32(m as i32), I32(k as i32)]))
        .groups(3, 64)
}

/// The right matrix is transposed.
fn gemm(accumulates: bool) -> Case {
    let [m, k, n] = [5, 75, 7];
    let (a, b) = (numbers(m * k, 53), numbers(n * k, 59));
    let want = product([m, k, n], |i, j| a[i * k + j].value(), |j, c| b[c * k + j].value(), U);
    let case = Case::new(CORPUS, "gemm_f32.metal", variant("gemm_f32_nt", accumulates)).input(&a).input(&b);
    stored(case, want, accumulates).bytes(packed(&[m, n, k].map(|n| I32(n as i32)))).groups(m * n, 32)
}

/// Name, size of a block of 32 numbers, and how it is read.
type Format = (&'static str, usize, fn(&[u8]) -> Vec<f64>);

fn quantized(file: &'static str, kernel: &str, accumulates: bool, (name, size, read): Format) -> Case {
    let (m, k) = (6, 320);
    let mut bytes = blocks(name, m * k / 32, size);
    let matrix: Vec<f64> = bytes.chunks(size).flat_map(read).collect();
    let x = numbers(k, 61);
    let want = product([m, k, 1], |i, j| matrix[i * k + j], |j, _| x[j].value(), U);
    // Blocks are read as words, past their end.
    bytes.resize((bytes.len() + 16).next_multiple_of(4), 0);
    let case = Case::new(CORPUS, file, variant(kernel, accumulates));
    let case = match name {
        "q4_0" => case.input(&u32::read(&bytes)),
        _ => case.input(&bytes),
    };
    let case = stored(case.input(&x), want, accumulates);
    let mut case = case.bytes(packed(&[I32(m as i32), I32(k as i32)])).groups(m / 2, 32);
    if case.tolerance == EXACT {
        case.tolerance = SUM;
    }
    case
}
