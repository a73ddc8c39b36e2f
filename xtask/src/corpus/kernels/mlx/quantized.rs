//! MLX's products with quantized matrices: integers of two to eight bits with scales and offsets, and the formats MXFP4, MXFP8 and NVFP4.

use elinvar::{bf16, f16};

use super::super::case::{Case, Near};
use super::super::element::{Element, Sequence};
use super::super::reference::{U, sum};

const CORPUS: &str = "mlx-metal";
const SUM: &str =
    "one rounding of the sum of magnitudes for each term, three of the type for weights and output";

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for bits in [2, 3, 4, 5, 6, 8] {
        cases.extend(affine::<f32>("float32", 64, bits));
    }
    cases.extend(affine::<f16>("float16", 32, 3));
    cases.extend(affine::<f16>("float16", 32, 4));
    cases.extend(affine::<bf16>("bfloat16", 128, 6));
    cases.extend(floats::<f32>("float32", 32, 4));
    cases.extend(floats::<f32>("float32", 32, 8));
    cases.extend(floats::<f32>("float32", 16, 4));
    cases.extend(floats::<bf16>("bfloat16", 32, 4));
    cases.extend(floats::<f16>("float16", 16, 4));
    cases
}

/// A matrix of numbers of a few bits, in rows; each part of a row has its own scale.
struct Matrix<T> {
    columns: usize,
    group: usize,
    bits: usize,
    bytes: Vec<u8>,
    scales: Vec<T>,
    /// Without offsets for floats.
    offsets: Vec<T>,
}

impl<T: Element> Matrix<T> {
    fn new(rows: usize, columns: usize, group: usize, bits: usize) -> Self {
        let parts = rows * columns / group;
        Self {
            columns,
            group,
            bits,
            bytes: Sequence(3).any(rows * columns * bits / 8),
            scales: Sequence(5).between(parts, 0.01, 0.1),
            offsets: Sequence(7).between(parts, -1.0, 1.0),
        }
    }

    /// The code of an element: bits in the order of the bytes, lowest first.
    fn code(&self, index: usize) -> u32 {
        (0..self.bits)
            .map(|bit| index * self.bits + bit)
            .enumerate()
            .fold(0, |code, (bit, place)| code | u32::from(self.bytes[place / 8] >> (place % 8) & 1) << bit)
    }

    /// Value of an element, and the sum of the magnitudes of its terms.
    fn value(&self, index: usize) -> [f64; 2] {
        let part = index / self.group;
        let product = self.scales[part].value() * f64::from(self.code(index));
        let offset = self.offsets[part].value();
        [product + offset, product.abs() + offset.abs()]
    }
}

/// Sum of the products of a row of `x` with weights and their magnitudes.
fn dot<T: Element>(x: &[T], weight: impl Fn(usize) -> [f64; 2]) -> Near {
    let (value, error) = sum(x.iter().enumerate().map(|(k, x)| x.value() * weight(k)[0]), U);
    let size: f64 = x.iter().enumerate().map(|(k, x)| x.value().abs() * weight(k)[1]).sum();
    (
        value,
        error
            + (4.0 * U + if T::ROUNDING > U { 2.1 * T::ROUNDING } else { 0.0 }) * size
            + T::ROUNDING * value.abs(),
    )
}

fn ints(case: Case, values: &[usize]) -> Case {
    values.iter().fold(case, |case, value| case.value([*value as i32]))
}

/// Sizes and strides of batches, of which there are none.
fn unbatched(case: Case, strides: usize) -> Case {
    let case = ints(case, &[0]).input(&[1_i32]).input(&[0_i64]);
    let case = ints(case, &[0]).input(&[1_i32]).input(&[0_i64]);
    (1..strides).fold(case, |case, _| case.input(&[0_i64]))
}

fn affine<T: Element>(name: &str, group: usize, bits: usize) -> Vec<Case> {
    let case = |kernel: &str, matrix: &Matrix<T>| {
        Case::new(CORPUS, "quantized.metal", format!("affine_{kernel}_{name}_gs_{group}_b_{bits}"))
            .input(&words(&matrix.bytes))
            .cast()
            .input(&matrix.scales)
            .input(&matrix.offsets)
    };
    let numbers = |count: usize, seed: u64| -> Vec<T> { Sequence(seed).between(count, -1.0, 1.0) };
    let (rows, k) = (45, 384);
    let matrix = Matrix::<T>::new(rows, k, group, bits);
    // Eight numbers to as many bytes as a number has bits, or one byte.
    let packs = rows * k
        / if matches!(bits, 3 | 5) {
            8
        } else if bits == 6 {
            4
        } else {
            8 / bits
        };
    let unpacked = (0..rows * k).map(|e| {
        let [value, size] = matrix.value(e);
        (value, 3.0 * T::ROUNDING.max(U) * size)
    });
    let vector = numbers(k, 11);
    let by_vector = (0..rows).map(|row| dot(&vector, |k| matrix.value(row * matrix.columns + k)));
    let m = 37;
    let x = numbers(m * k, 13);
    let transposed =
        (0..m * rows).map(|e| dot(&x[e / rows * k..][..k], |k| matrix.value(e % rows * matrix.columns + k)));
    // Rows of 128 numbers, of which each is a column of the product.
    let (inner, n) = (75, 128);
    let other = Matrix::<T>::new(inner, n, group, bits);
    let y = numbers(m * inner, 17);
    let plain = (0..m * n).map(|e| dot(&y[e / n * inner..][..inner], |k| other.value(k * n + e % n)));
    let dequantize =
        Case::new(CORPUS, "quantized.metal", format!("affine_dequantize_{name}_gs_{group}_b_{bits}"))
            .input(&matrix.bytes)
            .input(&matrix.scales)
            .input(&matrix.offsets)
            .near::<T>(unpacked.collect(), "two roundings of the type")
            .threads((packs / 8, 8), (16, 2));
    vec![
        dequantize,
        unbatched(
            ints(case("qmv", &matrix).input(&vector).near::<T>(by_vector.collect(), SUM), &[k, rows]),
            3,
        )
        .groups((1, rows.div_ceil(8)), (32, 2)),
        unbatched(
            ints(case("qmm_t", &matrix).input(&x).near::<T>(transposed.collect(), SUM), &[k, rows, m]),
            3,
        )
        .groups((rows.div_ceil(32), m.div_ceil(32)), (32, 2, 2)),
        unbatched(ints(case("qmm_n", &other).input(&y).near::<T>(plain.collect(), SUM), &[inner, n, m]), 3)
            .groups((n / 32, m.div_ceil(32)), (32, 2, 2)),
    ]
}

fn words(bytes: &[u8]) -> Vec<u32> {
    u32::read(bytes)
}

/// A float of a few bits with a sign, an exponent and a mantissa, all of whose codes but NaN are finite.
fn small(code: u32, exponent: u32, mantissa: u32, bias: i32) -> f64 {
    let (e, m) = ((code >> mantissa) & ((1 << exponent) - 1), code & ((1 << mantissa) - 1));
    let size = if e == 0 {
        f64::from(m) * 2_f64.powi(1 - bias - mantissa as i32)
    } else {
        f64::from(m + (1 << mantissa)) * 2_f64.powi(e as i32 - bias - mantissa as i32)
    };
    if code >> (exponent + mantissa) & 1 == 1 { -size } else { size }
}

/// Groups of 32 with a power of two as scale, or of 16 with a float of eight bits.
fn floats<T: Element>(name: &str, group: usize, bits: usize) -> Vec<Case> {
    let (rows, k) = (45, 384);
    let mut matrix = Matrix::<T>::new(rows, k, group, bits);
    if bits == 8 {
        // No NaN.
        matrix.bytes.iter_mut().filter(|byte| **byte & 127 == 127).for_each(|byte| *byte ^= 8);
    }
    let scales: Vec<u8> = Sequence(19)
        .any::<u8>(rows * k / group)
        .iter()
        .map(|x| if group == 16 { 40 + x % 32 } else { 121 + x % 8 })
        .collect();
    let scale = |index: usize| {
        let code = scales[index / group];
        if group == 16 { small(code.into(), 4, 3, 7) } else { 2_f64.powi(i32::from(code) - 127) }
    };
    let value = |index: usize| {
        let code = matrix.code(index);
        let number = if bits == 8 { small(code, 4, 3, 7) } else { small(code, 2, 1, 1) };
        [scale(index) * number, (scale(index) * number).abs()]
    };
    let numbers = |count: usize, seed: u64| -> Vec<T> { Sequence(seed).between(count, -1.0, 1.0) };
    let vector = numbers(k, 23);
    let m = 37;
    let x = numbers(m * k, 29);
    let unpacked = (0..rows * k).map(|e| (value(e)[0], 2.0 * T::ROUNDING * value(e)[1]));
    let by_vector = (0..rows).map(|row| dot(&vector, |j| value(row * k + j)));
    let product = (0..m * rows).map(|e| dot(&x[e / rows * k..][..k], |j| value(e % rows * k + j)));
    let case = |kernel: &str| {
        Case::new(CORPUS, "fp_quantized.metal", format!("fp_{kernel}_{name}_gs_{group}_b_{bits}"))
    };
    // There is no scale of all.
    let operands =
        |kernel: &str| case(kernel).input(&words(&matrix.bytes)).cast().input(&scales).input(&[1.0_f32]);
    let packs = rows * k * bits / 8;
    vec![
        case("dequantize")
            .input(&matrix.bytes)
            .input(&scales)
            .input(&[1.0_f32])
            .near::<T>(unpacked.collect(), "two roundings of the type")
            .threads((packs / 8, 8), (16, 2)),
        unbatched(ints(operands("qmv").input(&vector).near::<T>(by_vector.collect(), SUM), &[k, rows]), 2)
            .groups((1, rows.div_ceil(8)), (32, 2)),
        unbatched(ints(operands("qmm_t").input(&x).near::<T>(product.collect(), SUM), &[k, rows, m]), 2)
            .groups((rows.div_ceil(32), m.div_ceil(32)), (32, 2, 2)),
    ]
}
