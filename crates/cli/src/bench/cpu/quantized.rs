//! `mul_mv_*`: products of ggml's quantized matrices and a vector, as for one token of a language model, compared with hand-written Rust
//! that multiplies while it dequantizes, and with OpenBLAS's `sgemv` for the dequantized matrix.

use elinvar::driver::Scalar;
use elinvar::{Arg, Constants, Grid, Threadgroup, f16};
use multiversion::multiversion;

use super::super::{Context, Measured};
use super::blas;
use super::problem::{Agreement, Argument, Native, scattered};
use super::published::{self, Baselines, Published};
use super::team::Team;
use crate::failure::Result;

const ROWS: usize = 4096;
const COLUMNS: usize = 4096;
/// Simdgroups of a threadgroup: `N_SG_Q4_0` and `N_SG_Q4_K` of `ggml-metal-impl.h`.
const SIMDGROUPS: usize = 2;

/// Blocks of a quantized type.
struct Format {
    kernel: &'static str,
    /// Rows of a simdgroup: `N_R0_Q4_0` and `N_R0_Q4_K`.
    rows: usize,
    /// Elements and bytes of a block, and the offsets of its halves.
    elements: usize,
    bytes: usize,
    halves: &'static [usize],
    dequantize: fn(&[u8], &mut [f32]),
    native: Native,
}

/// 4-bit numbers with a scale for 32 of them.
pub fn q4_0(context: &Context) -> Result<Measured> {
    let native: Native = |args, team| rows(args, team, row_q4_0);
    let dequantize = |block: &[u8], out: &mut [f32]| {
        let scale = half(&block[..2]);
        for (i, byte) in block[2..18].iter().enumerate() {
            out[i] = scale * (f32::from(byte & 15) - 8.0);
            out[i + 16] = scale * (f32::from(byte >> 4) - 8.0);
        }
    };
    let kernel = "kernel_mul_mv_q4_0_f32";
    measure(context, Format { kernel, rows: 4, elements: 32, bytes: 18, halves: &[0], dequantize, native })
}

/// 4-bit numbers with a 6-bit scale and minimum for 32 of them, and scales of these for 256.
pub fn q4_k(context: &Context) -> Result<Measured> {
    let native: Native = |args, team| rows(args, team, row_q4_k);
    let dequantize = |block: &[u8], out: &mut [f32]| {
        let (scale, least) = (half(&block[..2]), half(&block[2..4]));
        for (part, out) in out.chunks_exact_mut(32).enumerate() {
            let (factor, minimum) = parts(&block[4..16], part);
            let bytes = &block[16 + part / 2 * 32..][..32];
            for (out, byte) in out.iter_mut().zip(bytes) {
                let number = if part % 2 == 0 { byte & 15 } else { byte >> 4 };
                *out = scale * factor * f32::from(number) - least * minimum;
            }
        }
    };
    let kernel = "kernel_mul_mv_q4_K_f32";
    let halves = &[0, 2];
    measure(context, Format { kernel, rows: 2, elements: 256, bytes: 144, halves, dequantize, native })
}

fn measure(context: &Context, format: Format) -> Result<Measured> {
    let device = &context.device;
    let blocks = ROWS * COLUMNS / format.elements;
    let mut matrix: Vec<u8> = scattered(blocks * format.bytes, 256).map(|v| v as u8).collect();
    for block in matrix.chunks_exact_mut(format.bytes) {
        for at in format.halves {
            let scale = f16::from_f32(f32::from(block[*at]) / 4096.0);
            block[*at..at + 2].copy_from_slice(&scale.to_le_bytes());
        }
    }
    let vector: Vec<f32> = scattered(COLUMNS, 2001).map(|v| v as f32 / 1000.0 - 1.0).collect();
    let constants = [(600, SIMDGROUPS as i16), (602, 1), (603, 1), (604, 1)];
    let constants = constants.into_iter().fold(Constants::new(), |all, (index, value)| all.set(index, value));
    let kernel = published::ggml(device, "mul_mv.metal", format.kernel, &constants)?;
    let params = device.buffer_with_data(&[parameters(&format)])?;
    let (left, right) = (device.buffer_with_data(&matrix)?, device.buffer_with_data(&vector)?);
    let mut out = device.buffer::<f32>(ROWS)?;
    let bytes = |buffer: Arg| buffer.of(Scalar::I8);
    let mut args = vec![(&params).into()];
    args.extend([(&left).into(), (&right).into(), (&mut out).into()].map(bytes));
    if kernel.signature().args.len() > args.len() {
        // Not used by this kernel; its host binds no memory.
        args.push(Threadgroup::bytes(16).into());
    }
    let groups = ROWS / (format.rows * SIMDGROUPS);
    let ours = Published {
        kernel,
        stream: device.stream()?,
        grid: Grid::threads([groups * 32, SIMDGROUPS]).group([32, SIMDGROUPS]),
        args,
        result: Box::new(|| Ok(out.to_vec()?)),
    };
    let mut works: Vec<(&'static str, Native)> = vec![("native", format.native)];
    let mut dequantized = Vec::new();
    if blas::openblas().is_ok() {
        works.push(("openblas", blas::sgemv));
        dequantized = vec![0.0; ROWS * COLUMNS];
        let rows = dequantized.chunks_exact_mut(format.elements);
        matrix.chunks_exact(format.bytes).zip(rows).for_each(|(block, out)| (format.dequantize)(block, out));
    }
    let bytes = matrix.len() + 4 * (ROWS + COLUMNS);
    let args = vec![
        Argument::Bytes(matrix),
        Argument::Floats(vector),
        Argument::Floats(vec![0.0; ROWS]),
        Argument::Floats(dequantized),
    ];
    let work = Measured {
        size: format!("{}: {ROWS} x {COLUMNS}", format.kernel),
        bytes: Some(bytes as u64),
        flops: Some(2 * (ROWS * COLUMNS) as u64),
        ..Measured::default()
    };
    let baselines = Baselines { works, args, result: 2, agreement: Agreement::Within(1e-5) };
    published::measure(context, ours, baselines, work)
}

/// `ggml_metal_kargs_mul_mv`, as words of 8 bytes.
fn parameters(format: &Format) -> [u64; 14] {
    let row_bytes = format.bytes * COLUMNS / format.elements;
    let pair = |low: usize, high: usize| low as u64 | (high as u64) << 32;
    let matrix = (row_bytes * ROWS) as u64;
    let vector = 4 * COLUMNS as u64;
    [
        pair(COLUMNS, ROWS),
        1,
        format.bytes as u64,
        row_bytes as u64,
        matrix,
        matrix,
        pair(COLUMNS, 1),
        1,
        4,
        vector,
        vector,
        vector,
        pair(ROWS, 1),
        pair(format.rows, 0x1_0001),
    ]
}

/// The product of each row, whose bytes `row` takes, and the vector.
fn rows(args: &mut [Argument], team: &Team, row: fn(&[u8], &[f32]) -> f32) {
    let [matrix, vector, out, _] = args else { return };
    let (matrix, vector) = (matrix.bytes(), vector.floats());
    let bytes = matrix.len() / ROWS;
    team.share(out.floats_mut(), 1, |first, out| {
        let rows = matrix[first * bytes..].chunks_exact(bytes);
        out.iter_mut().zip(rows).for_each(|(out, bytes)| *out = row(bytes, vector));
    });
}

/// A half as a float, without branches; infinities and NaNs do not occur.
#[inline(always)]
fn half(bytes: &[u8]) -> f32 {
    let bits = u32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    let magnitude = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
    f32::from_bits(magnitude.to_bits() | (bits & 0x8000) << 16)
}

#[multiversion(targets = "simd")]
fn row_q4_0(row: &[u8], vector: &[f32]) -> f32 {
    let mut sums = [0.0f32; 16];
    for (block, x) in row.as_chunks::<18>().0.iter().zip(vector.as_chunks::<32>().0) {
        let scale = half(&block[..2]);
        for i in 0..16 {
            let byte = i32::from(block[2 + i]);
            let (low, high) = ((byte & 15) - 8, (byte >> 4) - 8);
            sums[i] += scale * (low as f32 * x[i] + high as f32 * x[16 + i]);
        }
    }
    sums.iter().sum()
}

/// The factor and the minimum of a part of 32 elements, from 12 bytes.
#[inline(always)]
fn parts(bytes: &[u8], part: usize) -> (f32, f32) {
    let (factor, minimum) = match part {
        0..4 => (bytes[part] & 63, bytes[part + 4] & 63),
        _ => (bytes[part + 4] & 15 | bytes[part - 4] >> 6 << 4, bytes[part + 4] >> 4 | bytes[part] >> 6 << 4),
    };
    (f32::from(factor), f32::from(minimum))
}

#[multiversion(targets = "simd")]
fn row_q4_k(row: &[u8], vector: &[f32]) -> f32 {
    let (mut sums, mut minima) = ([0.0f32; 32], [0.0f32; 32]);
    for (block, x) in row.as_chunks::<144>().0.iter().zip(vector.as_chunks::<256>().0) {
        let (scale, least) = (half(&block[..2]), half(&block[2..4]));
        for pair in 0..4 {
            let (low, low_minimum) = parts(&block[4..16], 2 * pair);
            let (high, high_minimum) = parts(&block[4..16], 2 * pair + 1);
            let (low, high) = (scale * low, scale * high);
            let (low_minimum, high_minimum) = (least * low_minimum, least * high_minimum);
            for i in 0..32 {
                let byte = i32::from(block[16 + 32 * pair + i]);
                let (first, second) = (x[64 * pair + i], x[64 * pair + 32 + i]);
                sums[i] += low * (byte & 15) as f32 * first + high * (byte >> 4) as f32 * second;
                minima[i] += low_minimum * first + high_minimum * second;
            }
        }
    }
    sums.iter().zip(minima).map(|(sum, minimum)| sum - minimum).sum()
}
