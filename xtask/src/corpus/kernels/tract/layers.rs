//! tract's layers: reductions, softmax, activations, rotary embedding, products of matrices, Fourier transforms.

use elinvar::f16;

use super::binary::{CORPUS, for_types};
use crate::corpus::kernels::candle::unary::gelu;
use crate::corpus::kernels::case::{Case, Near};
use crate::corpus::kernels::element::{Element, Sequence};
use crate::corpus::kernels::reference::{U, fourier, product, sum};

const FILE: &str = "nn/nn_ops.metal";
const COUNT: usize = 264;

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // With one simdgroup, and with three.
    for (suffix, threads) in [("", 32), ("_large", 96)] {
        for_types!(cases, reduce("sum", suffix, threads, add): f32 f16);
        for_types!(cases, reduce("prod", suffix, threads, multiply): f32 f16);
        for_types!(cases, reduce("min", suffix, threads, least): f32 f16);
        for_types!(cases, reduce("max", suffix, threads, largest): f32 f16);
        for_types!(cases, reduce("mean_of_squares", suffix, threads, squares): f32 f16);
    }
    for_types!(cases, softmax("softmax_nd3", 45): f32 f16);
    for_types!(cases, softmax("softmax_nd3_contig", 132): f32 f16);
    for_types!(cases, activation("silu", 1, silu): f32 f16);
    for_types!(cases, activation("silu_4", 4, silu): f32 f16);
    for_types!(cases, activation("gelu_approx", 1, |x| (gelu(x), 32.0 * x.abs())): f32 f16);
    for_types!(cases, leaky(): f32 f16);
    for rank in 2..=4 {
        for_types!(cases, rope(rank): f32 f16);
    }
    for_types!(cases, matvec(): f32 f16);
    for_types!(cases, matmul(): f32 f16);
    for size in [256, 512, 1024, 2048] {
        cases.extend([transform(size, "forward", -1.0), transform(size, "inverse", 1.0), frames(size)]);
    }
    cases
}

/// A reduction of a row, with its error; the second argument is the type's rounding.
type Reduction = fn(&[f64], f64) -> Near;

fn add(row: &[f64], rounding: f64) -> Near {
    sum(row.iter().copied(), rounding)
}

fn multiply(row: &[f64], rounding: f64) -> Near {
    let value: f64 = row.iter().product();
    (value, value.abs() * rounding * row.len() as f64)
}

fn least(row: &[f64], _: f64) -> Near {
    (row.iter().copied().fold(f64::MAX, f64::min), 0.0)
}

fn largest(row: &[f64], _: f64) -> Near {
    (row.iter().copied().fold(f64::MIN, f64::max), 0.0)
}

/// In `float`, with one rounding of the type at the end.
fn squares(row: &[f64], rounding: f64) -> Near {
    let (total, error) = sum(row.iter().map(|x| x * x), U);
    let count = row.len() as f64;
    (total / count, error / count + (6.0 * U + rounding) * total / count)
}

/// The middle axis of three.
fn reduce<T: Element>(name: &str, suffix: &str, threads: usize, reduction: Reduction) -> Case {
    let (outer, length, inner) = (2, 77, 3);
    let (low, high) = if name == "prod" { (0.9, 1.1) } else { (-4.0, 4.0) };
    let input: Vec<T> = Sequence(3).between(outer * length * inner, low, high);
    let mut want = Vec::new();
    for at in 0..outer * inner {
        let row: Vec<f64> =
            (0..length).map(|k| input[(at / inner * length + k) * inner + at % inner].value()).collect();
        want.push(reduction(&row, T::ROUNDING));
    }
    Case::new(CORPUS, FILE, format!("nn_ops::reduce_{name}_nd3_{}{suffix}", T::SHORT))
        .input(&input)
        .near::<T>(want, "one rounding of the result's magnitude for each term; minimum and maximum exact")
        .value([outer, length, inner].map(|n| n as u64))
        .value([length * inner, inner, 1].map(|n| n as u64))
        .value([inner as u64, 1, 1])
        .groups((inner, 1, outer), threads)
}

/// Of the middle axis; the second kernel requires that it is contiguous.
fn softmax<T: Element>(name: &str, length: usize) -> Case {
    let rows = 4;
    let input: Vec<T> = Sequence(5).between(rows * length, -5.0, 5.0);
    let want = input.chunks(length).flat_map(|row| {
        let top = row.iter().map(|x| x.value()).fold(f64::MIN, f64::max);
        let weights: Vec<f64> = row.iter().map(|x| (x.value() - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        // exp of up to ten, the sum, a division, and two roundings of the type.
        let error = U * (2.0 * 23.0 * 2.0 + length as f64 + 8.0) + 2.0 * T::ROUNDING;
        // Short numbers below the normal ones of the type have larger relative errors.
        let least = if T::SHORT == "f16" { 2f64.powi(-24) } else { 0.0 };
        weights
            .into_iter()
            .map(move |weight| (weight / total, weight / total * error + least))
            .collect::<Vec<_>>()
    });
    let want = want.collect();
    Case::new(CORPUS, FILE, format!("nn_ops::{name}_{}", T::SHORT))
        .input(&input)
        .near::<T>(want, "exp of 3 + |2x| ulp, roundings of the sum, and two of the type")
        .value([rows as u64, length as u64, 1])
        .value([length as u64, 1, 1])
        .groups((1, 1, rows), 32)
}

/// A value, and its error in roundings of `float`. The logistic function of negative numbers is a difference to 1.
fn silu(x: f64) -> Near {
    let value = x / (1.0 + (-x).exp());
    (value, value.abs() * (20.0 + 4.0 * x.abs()) + 16.0 * x.abs())
}

fn activation<T: Element>(name: &str, width: usize, near: fn(f64) -> Near) -> Case {
    // The cube is taken by `powr`, which is defined for positive numbers.
    let low = if name == "gelu_approx" { 0.01 } else { -5.0 };
    let input: Vec<T> = Sequence(7).between(COUNT, low, 5.0);
    // Vectors of four halves are computed in `half`.
    let steps = if width == 4 && T::SHORT == "f16" { 6.0 } else { 1.0 };
    let want = input.iter().map(|x| {
        let (value, error) = near(x.value());
        let own = value.abs() * steps * T::ROUNDING + if T::SHORT == "f16" { 2f64.powi(-25) } else { 0.0 };
        (value, error * U + own)
    });
    let want = want.collect();
    Case::new(CORPUS, FILE, format!("nn_ops::{name}_{}", T::SHORT))
        .input(&input)
        .near::<T>(want, "exp or tanh in fast math, roundings of float, and one of the type, or six in it")
        .threads(COUNT / width, 32)
}

fn leaky<T: Element>() -> Case {
    let input: Vec<T> = Sequence(11).between(COUNT, -5.0, 5.0);
    let slope = 0.125_f32;
    let want = input.iter().map(|x| if x.value() < 0.0 { T::of(x.value() * f64::from(slope)) } else { *x });
    Case::new(CORPUS, FILE, format!("nn_ops::leaky_relu_{}", T::SHORT))
        .input(&input)
        .full_output(want.collect::<Vec<T>>())
        .value([slope])
        .threads(COUNT, 32)
}

/// Pairs of the halves of each row turn by given angles, which are those of the last two axes.
fn rope<T: Element>(rank: usize) -> Case {
    let dims = &[2_usize, 3, 4, 10][4 - rank..];
    let (length, dim): (usize, usize) = (dims.iter().product(), dims[rank - 1]);
    let mut sequence = Sequence(13);
    let input: Vec<T> = sequence.between(length, -2.0, 2.0);
    let turns = dims[rank - 2] * dim;
    let (cos, sin): (Vec<T>, Vec<T>) =
        (sequence.between(turns, -1.0, 1.0), sequence.between(turns, -1.0, 1.0));
    let want = (0..length).map(|at| {
        let (low, partner) =
            (at % dim < dim / 2, if at % dim < dim / 2 { at + dim / 2 } else { at - dim / 2 });
        let turned = input[at].value() * cos[at % turns].value();
        let other = input[partner].value() * sin[at % turns].value();
        let value = if low { turned - other } else { turned + other };
        (value, 3.0 * T::ROUNDING * (turned.abs() + other.abs()))
    });
    let want = want.collect();
    let strides: Vec<u64> = (0..rank).map(|k| dims[k + 1..].iter().product::<usize>() as u64).collect();
    let mut of_turns = vec![0; rank];
    (of_turns[rank - 2], of_turns[rank - 1]) = (dim as u64, 1);
    let shape: Vec<u64> = dims.iter().map(|n| *n as u64).collect();
    let depth: usize = dims[..rank.saturating_sub(2)].iter().product();
    Case::new(CORPUS, FILE, format!("nn_ops::apply_rope_nd{rank}_{}", T::SHORT))
        .input(&input)
        .input(&cos)
        .input(&sin)
        .near::<T>(want, "three roundings of the sum of magnitudes")
        .value(&shape)
        .value(&strides)
        .value(&of_turns)
        .value(&strides)
        .threads((dim / 2, dims[rank - 2], depth), (5, 2, 1))
}

const MATMUL: &str = "matmul/basic/basic_mat_mul.metal";
const SUM: &str = "one rounding of the type, of the sum of magnitudes, for each term";

fn matvec<T: Element>() -> Case {
    let (m, k) = (10, 75);
    let mut sequence = Sequence(17);
    let (a, x): (Vec<T>, Vec<T>) = (sequence.between(m * k, -1.0, 1.0), sequence.between(k, -1.0, 1.0));
    let want = product([m, k, 1], |i, j| a[i * k + j].value(), |j, _| x[j].value(), T::ROUNDING);
    Case::new(CORPUS, MATMUL, format!("matmul::basic_matvec_{}", T::SHORT))
        .input(&a)
        .input(&x)
        .near::<T>(want, SUM)
        .value([m as i32])
        .value([k as i32])
        .groups((1, 3), 32)
}

/// The right matrix is transposed.
fn matmul<T: Element>() -> Case {
    let [m, k, n] = [6, 45, 9];
    let mut sequence = Sequence(19);
    let (a, b): (Vec<T>, Vec<T>) = (sequence.between(m * k, -1.0, 1.0), sequence.between(k * n, -1.0, 1.0));
    let want = product([m, k, n], |i, j| a[i * k + j].value(), |j, c| b[c * k + j].value(), T::ROUNDING);
    let case = Case::new(CORPUS, MATMUL, format!("matmul::basic_matmul_{}", T::SHORT))
        .input(&a)
        .input(&b)
        .near::<T>(want, SUM);
    let sizes = [m as i32, k as i32, n as i32, 0, 1];
    sizes.into_iter().fold(case, |case, size| case.value([size])).groups((3, 2), 32)
}

const FFT: &str = "fft.metal";
const FFT_TOLERANCE: &str =
    "for each pass 2⁻¹³ of sin and cos in fast math, and roundings, of the sum of magnitudes";

fn signal(count: usize, seed: u64) -> Vec<f32> {
    Sequence(seed).between(2 * count, -1.0, 1.0)
}

/// The transform of a signal, as interleaved parts.
fn near_transform(signal: &[f32], window: Option<&[f32]>, sign: f64) -> Vec<Near> {
    let weight = |i: usize| window.map_or(1.0, |window| f64::from(window[i]));
    let parts: Vec<[f64; 2]> =
        signal.chunks(2).enumerate().map(|(i, x)| [0, 1].map(|k| f64::from(x[k]) * weight(i))).collect();
    // Errors of the passes' factors are independent of each other; the root of the energy bounds what they add.
    let energy = parts.iter().map(|[x, y]| x * x + y * y).sum::<f64>();
    let passes = f64::from(parts.len().ilog2());
    let error = passes * (2f64.powi(-12) + 8.0 * U) * energy.sqrt();
    fourier(&parts, sign).into_iter().flatten().map(|x| (x, error)).collect()
}

fn transform(size: usize, name: &str, sign: f64) -> Case {
    let input = signal(2 * size, 23);
    let want = input.chunks(2 * size).flat_map(|signal| near_transform(signal, None, sign)).collect();
    Case::new(CORPUS, FFT, format!("fft{size}_{name}"))
        .input(&input)
        .near::<f32>(want, FFT_TOLERANCE)
        .groups(2, size / 2)
}

/// Transforms of overlapping frames with a window.
fn frames(size: usize) -> Case {
    let (frames, stride) = (2, size / 4);
    let length = size + (frames - 1) * stride;
    let (input, window): (Vec<f32>, Vec<f32>) = (signal(length, 29), Sequence(31).between(size, 0.0, 1.0));
    let want = (0..frames)
        .flat_map(|frame| near_transform(&input[2 * frame * stride..][..2 * size], Some(&window), -1.0))
        .collect();
    Case::new(CORPUS, FFT, format!("stft{size}_forward"))
        .input(&input)
        .input(&window)
        .near::<f32>(want, FFT_TOLERANCE)
        .value([length as i32])
        .value([frames as i32])
        .value([stride as i32])
        .groups((frames, 1), size / 2)
}
