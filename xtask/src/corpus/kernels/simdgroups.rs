//! Kernels that exchange values between the threads of a simdgroup: reductions, normalization, softmax.

use elinvar::{Constants, bf16, f16};

use super::case::{Case, EXACT, Near};
use super::element::Member::{self, F32, I32, I64, U64};
use super::element::{Element, Sequence, packed};
use super::tensor::Tensor;

const CANDLE: (&str, &str) = ("candle-metal-kernels", "reduce.metal");
const LLAMA: &str = "llama-cpp-sys-2";
const FLOAT: f64 = f32::ROUNDING;

/// Number of rows, and their length: more than a simdgroup, and not a multiple of it.
const ROWS: usize = 3;
const WIDTH: usize = 203;

pub fn cases() -> Vec<Case> {
    vec![
        reduce::<f32>("sum", sum_near),
        reduce::<u32>("sum", |row| (row.iter().sum(), 0.0)),
        maximum::<i64>(),
        minimum::<f16>(),
        reduce::<i64>("sum", |row| (row.iter().sum(), 0.0)),
        maximum::<f32>(),
        maximum::<bf16>(),
        maximum::<f16>(),
        maximum::<u32>(),
        maximum::<u8>(),
        minimum::<f32>(),
        minimum::<bf16>(),
        minimum::<u32>(),
        minimum::<u8>(),
        minimum::<i64>(),
        place::<f32>("argmax", |a, b| a > b),
        place::<f16>("argmax", |a, b| a > b),
        place::<u32>("argmax", |a, b| a > b),
        place::<i64>("argmax", |a, b| a > b),
        place::<f32>("argmin", |a, b| a < b),
        place::<f16>("argmin", |a, b| a < b),
        place::<u32>("argmin", |a, b| a < b),
        place::<i64>("argmin", |a, b| a < b),
        layer_norm(),
        softmax(),
        rms_norm(),
        sum_rows(),
        argmax(),
        masked_softmax(),
    ]
}

fn samples<T: Element>(count: usize) -> Vec<T> {
    Sequence(131).between(count, -4.0, 4.0)
}

fn values<T: Element>(row: &[T]) -> Vec<f64> {
    row.iter().map(|v| v.value()).collect()
}

const SUM: &str = "a rounding of the sum of magnitudes for each step of the longest chain, 16";

fn sum_near(row: &[f64]) -> Near {
    (row.iter().sum(), 16.0 * FLOAT * row.iter().map(|v| v.abs()).sum::<f64>())
}

fn reduce<T: Element>(name: &str, reduced: fn(&[f64]) -> Near) -> Case {
    let input: Vec<T> = match T::SHORT {
        "u32" => Sequence(132).between(ROWS * WIDTH, 0.0, 1e6),
        "u8" => Sequence(132).between(ROWS * WIDTH, 3.0, 250.0),
        "i64" => Sequence(132).between(ROWS * WIDTH, -1e9, 1e9),
        _ => samples(ROWS * WIDTH),
    };
    let want = input.chunks(WIDTH).map(|row| reduced(&values(row))).collect();
    let tolerance = if name == "sum" && T::ROUNDING > 0.0 { SUM } else { EXACT };
    Case::new(CANDLE.0, CANDLE.1, format!("fast_{name}_{}", T::SHORT))
        .value([(ROWS * WIDTH) as u32])
        .value([1_u32])
        .value([(ROWS * WIDTH) as u32])
        .value([WIDTH as u32])
        .input(&input)
        .near::<T>(want, tolerance)
        .groups(ROWS, 64)
}

fn maximum<T: Element>() -> Case {
    reduce::<T>("max", |row| (row.iter().copied().fold(f64::NEG_INFINITY, f64::max), 0.0))
}

fn minimum<T: Element>() -> Case {
    reduce::<T>("min", |row| (row.iter().copied().fold(f64::INFINITY, f64::min), 0.0))
}

/// Index of the first value in the order of `before`; all values are distinct.
fn place<T: Element>(name: &str, before: fn(f64, f64) -> bool) -> Case {
    let input: Vec<T> =
        Sequence(136).shuffled(ROWS * WIDTH).into_iter().map(|v| T::of(v as f64 + 2.0)).collect();
    let want = input.chunks(WIDTH).map(|row| {
        let best = (0..row.len()).reduce(|a, b| if before(row[b].value(), row[a].value()) { b } else { a });
        best.map_or(u32::MAX, |i| i as u32)
    });
    let want: Vec<u32> = want.collect();
    Case::new(CANDLE.0, CANDLE.1, format!("fast_{name}_{}", T::SHORT))
        .value([(ROWS * WIDTH) as u32])
        .value([2_u32])
        .value([ROWS as u32, WIDTH as u32])
        .value([WIDTH as u32])
        .input(&input)
        .full_output(want)
        .groups(ROWS, 64)
}

fn layer_norm() -> Case {
    let input: Vec<f32> = samples(ROWS * WIDTH);
    let (alpha, beta): (Vec<f32>, Vec<f32>) =
        (Sequence(137).between(WIDTH, 0.5, 2.0), Sequence(138).between(WIDTH, -1.0, 1.0));
    let want = input.chunks(WIDTH).flat_map(|row| {
        let row = values(row);
        let mean = row.iter().sum::<f64>() / WIDTH as f64;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / WIDTH as f64;
        let scale = (variance + f64::from(1e-5_f32)).sqrt().recip();
        let near = |(i, x): (usize, &f64)| {
            let scaled = (x - mean) * scale * alpha[i].value();
            (scaled + beta[i].value(), 64.0 * FLOAT * (4.0 + scaled.abs()))
        };
        row.iter().enumerate().map(near).collect::<Vec<Near>>()
    });
    let want = want.collect();
    Case::new(CANDLE.0, CANDLE.1, "layernorm_f32")
        .value([(ROWS * WIDTH) as u32])
        .value([WIDTH as u32])
        .input(&input)
        .near::<f32>(
            want,
            "mean and variance step by step, a root and a product: 64 roundings of the value and of 4",
        )
        .input(&alpha)
        .input(&beta)
        .value([1e-5_f32])
        .groups(ROWS, 64)
}

const EXPONENTIALS: &str = "exp within 3 + |2x| ulp for x down to −8, a sum and a division: 64 roundings";

/// `exp(x)` over its sum for each element of a row; `more` is added to the sum.
fn softmax_of(row: &[f64], more: f64) -> Vec<Near> {
    let sum: f64 = row.iter().map(|x| x.exp()).sum::<f64>() + more;
    row.iter().map(|x| (x.exp() / sum, 64.0 * FLOAT * x.exp() / sum)).collect()
}

fn softmax() -> Case {
    let input: Vec<f32> = samples(ROWS * WIDTH);
    let want = input.chunks(WIDTH).flat_map(|row| softmax_of(&values(row), 0.0)).collect();
    Case::new(CANDLE.0, CANDLE.1, "softmax_f32")
        .value([(ROWS * WIDTH) as u32])
        .value([WIDTH as u32])
        .input(&input)
        .near::<f32>(want, EXPONENTIALS)
        .groups(ROWS, 64)
}

fn rms_norm() -> Case {
    let input: Vec<f32> = samples(ROWS * WIDTH);
    let alpha: Vec<f32> = Sequence(133).between(WIDTH, 0.5, 2.0);
    let want = input.chunks(WIDTH).flat_map(|row| {
        let mean = row.iter().map(|x| x.value() * x.value()).sum::<f64>() / WIDTH as f64;
        let scale = (mean + f64::from(1e-5_f32)).sqrt().recip();
        let near = |(x, a): (&f32, &f32)| {
            (x.value() * scale * a.value(), 32.0 * FLOAT * (x.value() * scale * a.value()).abs())
        };
        row.iter().zip(&alpha).map(near).collect::<Vec<Near>>()
    });
    let want = want.collect();
    Case::new(CANDLE.0, CANDLE.1, "rmsnorm_f32")
        .value([(ROWS * WIDTH) as u32])
        .value([WIDTH as u32])
        .input(&input)
        .near::<f32>(want, "a sum of squares in 16 steps, a root and three products: 32 roundings")
        .input(&alpha)
        .value([1e-5_f32])
        .groups(ROWS, 64)
}

fn sum_rows() -> Case {
    let (source, target) = (Tensor::with_gap([WIDTH, ROWS, 2, 1], 4, 3), Tensor::new([1, ROWS, 2, 1], 4));
    let input: Vec<f32> = samples(source.extent());
    let want = target.indices().map(|[_, y, z, w]| {
        let row: Vec<f64> = (0..WIDTH).map(|x| input[source.place([x, y, z, w])].value()).collect();
        sum_near(&row)
    });
    let want = want.collect();
    Case::new(LLAMA, "reduce.metal", "kernel_sum_rows_f32_f32")
        .bytes(packed(&[source.long_members(), target.long_members()].concat()))
        .input(&input)
        .near::<f32>(want, SUM)
        .threadgroup(32 * 4)
        .constants(Constants::new().set(1400, 10_i16))
        .groups((ROWS, 2, 1), 64)
}

fn argmax() -> Case {
    let input: Vec<f32> =
        Sequence(134).shuffled(ROWS * WIDTH).into_iter().map(|v| v as f32 - 300.0).collect();
    let want = input.chunks(WIDTH).map(|row| {
        (0..WIDTH as i32).max_by(|a, b| row[*a as usize].total_cmp(&row[*b as usize])).unwrap_or(-1)
    });
    let want: Vec<i32> = want.collect();
    Case::new(LLAMA, "misc.metal", "kernel_argmax_f32")
        .bytes(packed(&[I64(WIDTH as i64), U64((WIDTH * 4) as u64)]))
        .input(&input)
        .full_output(want)
        .threadgroup(32 * 8)
        .groups(ROWS, 64)
}

/// With an additive mask, and a sink per head that takes part in the sum.
fn masked_softmax() -> Case {
    let (heads, scale) = (2, 0.5_f32);
    let source = Tensor::new([WIDTH, ROWS, heads, 1], 4);
    let input: Vec<f32> = samples(source.extent());
    let mask: Vec<f32> = Sequence(135).between(ROWS * WIDTH, -1.0, 0.0);
    let sinks = [0.25_f32, -1.5];
    let want = input.chunks(WIDTH).enumerate().flat_map(|(row, numbers)| {
        let masked = numbers
            .iter()
            .zip(&mask[row % ROWS * WIDTH..])
            .map(|(x, m)| x.value() * scale.value() + m.value());
        softmax_of(&masked.collect::<Vec<f64>>(), sinks[row / ROWS].value().exp())
    });
    let want = want.collect();
    let mut members: Vec<Member> = [WIDTH, ROWS, heads].map(|n| I32(n as i32)).to_vec();
    members.extend([1, 2, 3].map(|k| U64(source.nb[k] as u64)));
    members.extend([ROWS, 1, 1].map(|n| I32(n as i32)));
    members.extend([WIDTH, ROWS * WIDTH, ROWS * WIDTH].map(|n| U64((n * 4) as u64)));
    members.extend([1, 2, 3].map(|k| U64(source.nb[k] as u64)));
    members.extend([F32(scale), F32(0.0), F32(1.0), F32(1.0), I32(1)]);
    Case::new(LLAMA, "softmax.metal", "kernel_soft_max_f32")
        .bytes(packed(&members))
        .input(&input)
        .input(&mask)
        .input(&sinks)
        .near::<f32>(want, EXPONENTIALS)
        .threadgroup(32 * 4)
        .groups((ROWS, heads, 1), 64)
}
