//! ggml's kernels that quantize, dequantize and copy rows of blocks.
//!
//! A block is a half-precision scale and 32 or 256 short integers. The scales of the sources are powers of two or short sums, so that the
//! kernels' results are exact in any order of operations.

use elinvar::f16;

use super::super::case::Case;
use super::super::element::Member::I64;
use super::super::element::{Element, Sequence, packed};
use super::super::tensor::Tensor;
use super::moves::get_rows_members;

const LLAMA: (&str, &str) = ("llama-cpp-sys-2", "quantize.metal");

pub fn cases() -> Vec<Case> {
    vec![
        quantize("q8_0", 34, 127.0, q8_0),
        quantize("q4_0", 18, -8.0, q4_0),
        dequantize::<f32>("q4_0", 18, from_q4_0),
        dequantize::<f16>("q8_0", 34, from_q8_0),
        dequantize::<f32>("q5_1", 24, from_q5_1),
        rows("q4_0", 18, 32, from_q4_0),
        rows("q8_0", 34, 32, from_q8_0),
        rows("q5_1", 24, 32, from_q5_1),
        rows("q4_K", 144, 256, from_q4_k),
        rows("q6_K", 210, 256, from_q6_k),
    ]
}

/// Returns the numbers of a block.
type Read = fn(&[u8]) -> Vec<f64>;

/// The half at an offset in a block.
fn half(block: &[u8], at: usize) -> f64 {
    f16::from_le_bytes([block[at], block[at + 1]]).into()
}

/// 4-bit numbers: the low halves of all bytes, then the high halves.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.iter().map(|byte| byte & 15).chain(bytes.iter().map(|byte| byte >> 4))
}

pub fn from_q4_0(block: &[u8]) -> Vec<f64> {
    nibbles(&block[2..]).map(|q| half(block, 0) * (f64::from(q) - 8.0)).collect()
}

pub fn from_q8_0(block: &[u8]) -> Vec<f64> {
    block[2..].iter().map(|q| half(block, 0) * f64::from(*q as i8)).collect()
}

/// 5-bit numbers with the fifth bits stored separately; a scale and a minimum.
pub fn from_q5_1(block: &[u8]) -> Vec<f64> {
    let high = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
    let number = |(i, q): (usize, u8)| f64::from(u32::from(q) | (high >> i & 1) << 4);
    nibbles(&block[8..]).enumerate().map(|iq| half(block, 0) * number(iq) + half(block, 2)).collect()
}

/// Eight parts of 32 numbers, each with a 6-bit scale and a 6-bit minimum; those of four parts are not split.
pub fn from_q4_k(block: &[u8]) -> Vec<f64> {
    let (scales, numbers) = (&block[4..16], &block[16..]);
    let part = |j: usize| match j {
        0..4 => (scales[j] & 63, scales[j + 4] & 63),
        _ => (scales[j + 4] & 15 | scales[j - 4] >> 6 << 4, scales[j + 4] >> 4 | scales[j] >> 6 << 4),
    };
    let value = |i: usize| {
        let (scale, minimum) = part(i / 32);
        let byte = numbers[i / 64 * 32 + i % 32];
        let number = if i & 32 == 0 { byte & 15 } else { byte >> 4 };
        half(block, 0) * f64::from(scale) * f64::from(number) - half(block, 2) * f64::from(minimum)
    };
    (0..256).map(value).collect()
}

/// 6-bit numbers, stored as four and two bits, in halves of 128; an 8-bit scale per 16 numbers.
pub fn from_q6_k(block: &[u8]) -> Vec<f64> {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let value = |i: usize| {
        let (part, quarter, place) = (i / 128, i % 128 / 32, i % 32);
        let byte = low[part * 64 + quarter % 2 * 32 + place];
        let four = if quarter < 2 { byte & 15 } else { byte >> 4 };
        let two = high[part * 32 + place] >> (2 * quarter) & 3;
        half(block, 208) * f64::from(scales[i / 16] as i8) * (f64::from(two << 4 | four) - 32.0)
    };
    (0..256).map(value).collect()
}

/// Blocks of random numbers, with scales and minima from 1/64 to 1.
pub fn blocks(format: &str, count: usize, size: usize) -> Vec<u8> {
    let mut sequence = Sequence(101);
    let mut bytes: Vec<u8> = sequence.any(count * size);
    let places: &[usize] = match format {
        "q5_1" | "q4_K" => &[0, 2],
        "q6_K" => &[208],
        _ => &[0],
    };
    for block in bytes.chunks_mut(size) {
        for place in places {
            let scale = f16::of(2f64.powi(-((sequence.next() % 7) as i32)));
            block[*place..place + 2].copy_from_slice(&scale.to_le_bytes());
        }
    }
    bytes
}

/// Layout of rows of blocks: `ne` counts numbers, strides are those of blocks.
fn of_blocks(ne: [usize; 4], block: usize, size: usize) -> Tensor {
    let mut tensor = Tensor::new([ne[0] / block, ne[1], ne[2], ne[3]], size);
    tensor.ne[0] = ne[0];
    tensor
}

fn copy_case(kernel: String, units: usize, source: &Tensor, target: &Tensor) -> Case {
    let members = [vec![I64(units as i64)], source.long_members(), target.long_members()].concat();
    Case::new(LLAMA.0, LLAMA.1, kernel)
        .bytes(packed(&members))
        .groups((source.ne[1] * units.div_ceil(4), source.ne[2], source.ne[3]), (4, 1, 1))
}

/// Rows of blocks whose largest number is `top` times a power of two. The others are a quarter above a step, so that rounding has no ties.
pub fn quantize(format: &str, size: usize, top: f64, quantized: fn(&[f64], f64) -> Vec<u8>) -> Case {
    let ne = [160, 3, 2, 2];
    let (source, target) = (Tensor::with_gap(ne, 4, 3), of_blocks(ne, 32, size));
    let mut sequence = Sequence(102);
    let mut input = vec![0.0_f32; source.extent()];
    let mut want = Vec::new();
    for (row, block) in (0..12).flat_map(|row| (0..5).map(move |block| (row, block))) {
        let step = 2f64.powi(-((sequence.next() % 5) as i32));
        let mut numbers: Vec<f64> = sequence
            .between::<f32>(32, -0.85, 0.85)
            .iter()
            .map(|v| (v.value() * top).round() + 0.25)
            .collect();
        numbers[sequence.next() as usize % 32] = top;
        let start = row * 163 + block * 32;
        for (slot, number) in input[start..start + 32].iter_mut().zip(&numbers) {
            *slot = (number * step) as f32;
        }
        want.extend(quantized(&numbers, step));
    }
    copy_case(format!("kernel_cpy_f32_{format}"), 5, &source, &target).input(&input).full_output(want)
}

pub fn q8_0(numbers: &[f64], step: f64) -> Vec<u8> {
    let scale = f16::of(step).to_le_bytes();
    scale.into_iter().chain(numbers.iter().map(|n| n.round() as i8 as u8)).collect()
}

/// The number with the largest magnitude is −8 steps; a byte holds two numbers whose indices differ by 16.
fn q4_0(numbers: &[f64], step: f64) -> Vec<u8> {
    let four = |n: f64| ((n + 8.5).floor() as u8).min(15);
    let scale = f16::of(step).to_le_bytes();
    scale.into_iter().chain((0..16).map(|i| four(numbers[i]) | four(numbers[16 + i]) << 4)).collect()
}

pub fn dequantize<T: Element>(format: &str, size: usize, read: Read) -> Case {
    let ne = [160, 3, 2, 2];
    let (source, target) = (of_blocks(ne, 32, size), Tensor::new(ne, size_of::<T>()));
    let input = blocks(format, 160 / 32 * 12, size);
    let want: Vec<T> = input.chunks(size).flat_map(read).map(T::of).collect();
    copy_case(format!("kernel_cpy_{format}_{}", T::SHORT), 10, &source, &target)
        .input(&input)
        .full_output(want)
}

/// Rows of blocks by index.
pub fn rows(format: &str, size: usize, block: usize, read: Read) -> Case {
    let (width, count) = (512, 9);
    let source = of_blocks([width, count, 2, 1], block, size);
    let (ids, target) = (Tensor::new([5, 2, 1, 1], 4), Tensor::new([width, 5, 2, 1], 4));
    let input = blocks(format, width / block * count * 2, size);
    let numbers: Vec<f64> = input.chunks(size).flat_map(read).collect();
    let rows: Vec<i32> = Sequence(103).between(10, 0.0, count as f64);
    let want = target.indices().map(|i| {
        let row = rows[ids.place([i[1], i[2], 0, 0])] as usize;
        f32::of(numbers[(i[2] * count + row) * width + i[0]])
    });
    let want: Vec<f32> = want.collect();
    let units = width / 16;
    Case::new(LLAMA.0, LLAMA.1, format!("kernel_get_rows_{format}"))
        .bytes(get_rows_members(units, &source, &ids, &target))
        .input(&input)
        .input(&rows)
        .full_output(want)
        .groups((5 * units.div_ceil(8), 2, 1), 8)
}
