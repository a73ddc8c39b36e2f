//! The `candle` suite: published kernels of the crate candle-metal-kernels on an NVIDIA GPU, with the fraction of the GPU's peak that they
//! reach.
//!
//! The sources are not part of this repository: `ELINVAR_CANDLE` names the crate's folder `src/metal_src`, or a bundle of its
//! `reduce.metal` and `mlx_gemm.metal`. They are launched with the arguments and sizes of the crate's host code (version 0.11.1). The peak
//! is measured as well: `copy` is the time of a copy of the same number of bytes by the driver, `peak` the time of the same number of
//! multiply-adds in registers, in CUDA C++.
#![allow(unsafe_code)] // launches, and loading a bundle

use std::path::PathBuf;

use elinvar::driver::Arg as Declared;
use elinvar::{Arg, Buffer, Bundle, Constants, Device, Error, Grid, Kernel, Library, Pod, Source, f16};

use super::nvrtc::Module;
use super::{Context, Measured, gpu};
use crate::bench::cpu::problem::scattered;
use crate::failure::{Failure, Result};
use crate::report::median;

pub(in super::super) const FOLDER: &str = "ELINVAR_CANDLE";
const ROUNDS: usize = 15;
/// Number of reduced rows, and their length.
const ROWS: usize = 32_768;
const ROW: usize = 4096;
/// Number of rows and columns of each matrix.
const SIDE: usize = 4096;
/// Size of a copy in bytes.
const COPY: usize = 1 << 30;

/// Whether the environment names the sources.
pub(in super::super) fn is_named() -> bool {
    std::env::var_os(FOLDER).is_some_and(|path| !path.is_empty())
}

pub(in super::super) fn library(device: &Device, file: &str) -> Result<Library> {
    let path = std::env::var_os(FOLDER).filter(|path| !path.is_empty()).map(PathBuf::from);
    let path = path.ok_or_else(|| {
        let what = "the folder src/metal_src of the crate candle-metal-kernels, or a bundle of its files";
        Failure::usage(format!("{FOLDER} is not set; it names {what}"))
    })?;
    let source = if path.is_dir() {
        let file = path.join(file);
        let cannot = |error| Failure::input(format!("{}: {error}", file.display()));
        let text = std::fs::read_to_string(&file).map_err(cannot)?;
        Source::named(file.display().to_string(), text).include_dir(&path)
    } else {
        // SAFETY: the user of the benchmark has named the file to be run.
        unsafe { Bundle::open(&path) }?.source(file)?
    };
    Ok(device.compile(source)?)
}

/// The sum of each row.
pub(in super::super) fn sum(context: &Context) -> Result<Measured> {
    rows(context, "fast_sum_f32", 1, |row, out| {
        let exact: f64 = row.iter().copied().map(f64::from).sum();
        let size: f64 = row.iter().map(|x| f64::from(x.abs())).sum();
        (f64::from(out[0]) - exact).abs() <= 1e-6 * size
    })
}

/// The softmax of each row.
pub(in super::super) fn softmax(context: &Context) -> Result<Measured> {
    rows(context, "softmax_f32", ROW, |row, out| {
        let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = row.iter().map(|x| f64::from(x - highest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.iter().zip(out).all(|(power, out)| (f64::from(*out) - power / sum).abs() <= 2e-5 * power / sum)
    })
}

/// Measures a kernel of `reduce.metal` that writes `each` elements per row, which `right` verifies.
fn rows(
    context: &Context,
    name: &str,
    each: usize,
    right: impl Fn(&[f32], &[f32]) -> bool,
) -> Result<Measured> {
    let device = gpu(context)?;
    let kernel = library(device, "reduce.metal")?.kernel(name)?;
    let numbers: Vec<f32> = scattered(ROWS * ROW, 1 << 20).map(|v| v as f32 / 131_072.0 - 4.0).collect();
    let input = device.buffer_with_data(&numbers)?;
    let mut output = device.buffer::<f32>(ROWS * each)?;
    let dims = device.buffer_with_data(&[(ROWS * ROW) as u32])?;
    let args = arguments(&kernel, |argument| match argument {
        "src_numel" => Some(((ROWS * ROW) as u32).into()),
        "num_dims" => Some(1_u32.into()),
        "dims" => Some((&dims).into()),
        "el_per_block" => Some((ROW as u32).into()),
        "src" => Some((&input).into()),
        "dst" => Some((&mut output).into()),
        _ => None,
    })?;
    let width = (kernel.max_threads_per_threadgroup() as usize).min((ROW / 2).next_power_of_two());
    let group = 1 << width.min(1024).ilog2();
    let ns = timed(device, &kernel, &Grid::threads(ROWS * group).group(group), &args)?;
    let made = output.to_vec()?;
    if let Some(row) = (0..ROWS).find(|r| !right(&numbers[r * ROW..][..ROW], &made[r * each..][..each])) {
        return Err(wrong(name, row));
    }
    let bytes = 4 * (ROWS * (ROW + each)) as u64;
    let rate = copied(device)?;
    Ok(Measured {
        size: format!("{name}: {ROWS} rows of {ROW} floats, groups of {group}"),
        median_ns: ns,
        bytes: Some(bytes),
        baselines: vec![("copy", (bytes as f64 / rate) as u64)],
        ..Measured::default()
    })
}

/// A matrix product of floats.
pub(in super::super) fn matmul_f32(context: &Context) -> Result<Measured> {
    matmul::<f32>(context, "gemm_nn_f32_f32_64_64_16_2_2", [32, 2, 2], "peak_float", |v| v, f64::from)
}

/// A matrix product of halves.
pub(in super::super) fn matmul_f16(context: &Context) -> Result<Measured> {
    matmul(context, "gemm_nn_f16_f16_64_64_16_1_2", [32, 2, 1], "peak_half", f16::from_f32, f64::from)
}

/// A kernel of `mlx_gemm.metal`, for one product of matrices whose sizes are multiples of the tiles'.
pub(in super::super) fn matmul_kernel(device: &Device, name: &str) -> Result<Kernel> {
    let constants =
        [(10, false), (100, false), (110, false), (200, true), (201, true), (202, true), (300, false)];
    let constants = constants.into_iter().fold(Constants::new(), |all, (index, value)| all.set(index, value));
    Ok(library(device, "mlx_gemm.metal")?.kernel_with(name, &constants)?)
}

/// Its arguments for square matrices, by the length of their sides and that of a threadgroup's tile.
pub(in super::super) fn matmul_arguments<T: Pod>(
    device: &Device,
    kernel: &Kernel,
    (side, tile): (usize, usize),
    [left, right]: [&Buffer<T>; 2],
    product: &mut Buffer<T>,
) -> Result<Vec<Arg>> {
    let params = device.buffer_with_data(&[parameters(side as u64, tile as u64)])?;
    let shape = device.buffer_with_data(&[1_i32])?;
    let strides = device.buffer_with_data(&[(side * side) as u64; 2])?;
    arguments(kernel, |argument| match argument {
        "A" => Some(left.into()),
        "B" => Some(right.into()),
        "D" => Some((&mut *product).into()),
        "params" => Some((&params).into()),
        "batch_shape" => Some((&shape).into()),
        "batch_strides" => Some((&strides).into()),
        _ => None,
    })
}

/// `GEMMParams` of `mlx_gemm.metal`, as words of 8 bytes.
fn parameters(n: u64, tile: u64) -> [u64; 9] {
    let pair = |low: u64, high: u64| low | high << 32;
    let tiles = n / tile;
    // M and N, K and lda, ldb and ldd, the tiles, three strides between matrices, no swizzle and the steps of 16 along K, 1.
    [pair(n, n), pair(n, n), pair(n, n), pair(tiles, tiles), n * n, n * n, n * n, pair(0, n / 16), 1]
}

fn matmul<T: Pod>(
    context: &Context,
    name: &str,
    group: [usize; 3],
    peak: &'static str,
    of: fn(f32) -> T,
    number: fn(T) -> f64,
) -> Result<Measured> {
    let device = gpu(context)?;
    let kernel = matmul_kernel(device, name)?;
    // Small integers: every sum is exact in any order, also in half.
    let matrix = |limit: u32| -> Vec<T> {
        scattered(SIDE * SIDE, limit).map(|v| of(v as f32 - (limit / 2) as f32)).collect()
    };
    let (a, b) = (matrix(7), matrix(5));
    let (left, right) = (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?);
    let mut product: Buffer<T> = device.buffer(SIDE * SIDE)?;
    let args = matmul_arguments(device, &kernel, (SIDE, 64), [&left, &right], &mut product)?;
    let tiles = SIDE / 64;
    let threads = [tiles * group[0], tiles * group[1], group[2]];
    let ns = timed(device, &kernel, &Grid::threads(threads).group(group), &args)?;
    let numbers = |of: &[T]| of.iter().map(|v| number(*v)).collect::<Vec<f64>>();
    if let Some(row) = differs(&numbers(&a), &numbers(&b), &numbers(&product.to_vec()?)) {
        return Err(wrong(name, row));
    }
    let flops = 2 * (SIDE as u64).pow(3);
    let peak = measured_peak(device, peak)?.map(|rate| ("peak", (flops as f64 / rate) as u64));
    Ok(Measured {
        size: format!("{name}: {SIDE} x {SIDE}"),
        median_ns: ns,
        bytes: Some(3 * (SIDE * SIDE * size_of::<T>()) as u64),
        flops: Some(flops),
        baselines: peak.into_iter().collect(),
        ..Measured::default()
    })
}

/// The first row in which C is not A · B. For each of four vectors x of random integers, C · x must be A · (B · x), all of which are
/// computed exactly.
fn differs(a: &[f64], b: &[f64], c: &[f64]) -> Option<usize> {
    let times = |m: &[f64], x: &[f64]| -> Vec<f64> {
        m.chunks_exact(SIDE).map(|row| row.iter().zip(x).map(|(m, x)| m * x).sum()).collect()
    };
    let numbers: Vec<f64> = scattered(4 * SIDE, 1 << 16).map(|v| f64::from(v + 1)).collect();
    numbers.chunks_exact(SIDE).find_map(|x| {
        let (ours, exact) = (times(c, x), times(a, &times(b, x)));
        (0..SIDE).find(|row| ours[*row] != exact[*row])
    })
}

fn wrong(kernel: &str, row: usize) -> Failure {
    Error::DeviceLost(format!("{kernel}: row {row} of the result is wrong")).into()
}

/// Arguments of a kernel, by their names in the source.
fn arguments(kernel: &Kernel, mut of: impl FnMut(&str) -> Option<Arg>) -> Result<Vec<Arg>> {
    let one = |argument: &Declared| {
        of(&argument.name).ok_or_else(|| {
            let name = &kernel.signature().name;
            Failure::input(format!(
                "kernel `{name}` takes `{}`, which version 0.11.1 does not",
                argument.name
            ))
        })
    };
    kernel.signature().args.iter().map(one).collect()
}

/// Median time of a launch.
fn timed(device: &Device, kernel: &Kernel, grid: &Grid, args: &[Arg]) -> Result<u64> {
    let stream = device.stream()?;
    let run = |count: u64| -> Result<u64> {
        let mut commands = stream.command_buffer();
        for _ in 0..count {
            // SAFETY: the crate's own host code launches the kernel with these sizes.
            unsafe { commands.launch(kernel, grid.clone(), args) }?;
        }
        let timing = commands.submit()?.wait()?;
        Ok((timing.end_ns - timing.start_ns) / count)
    };
    let count = (super::ROUND_NS / run(1)?.max(1)).clamp(1, super::MOST_ITERATIONS);
    Ok(median((0..ROUNDS).map(|_| run(count)).collect::<Result<_>>()?))
}

/// Bytes per nanosecond that a copy within the device reads and writes.
fn copied(device: &Device) -> Result<f64> {
    Ok((2 * COPY) as f64 / median(super::host::copies(device, COPY, ROUNDS)?) as f64)
}

/// Operations per nanosecond of a kernel of `baselines.cu` that does nothing else; `None` without NVRTC.
fn measured_peak(device: &Device, kernel: &str) -> Result<Option<f64>> {
    /// Iterations of a thread's loop, threads per block, and blocks per multiprocessor.
    const STEPS: u64 = 4096;
    const THREADS: u32 = 256;
    const BLOCKS: u32 = 8;
    let Some(module) = Module::new(kernel, &[])? else { return Ok(None) };
    module.enter()?;
    let blocks = device.caps().limits.compute_units * BLOCKS;
    // Per thread: sixteen multiply-adds, or its share of eight products of a 16x16 and a 16x8 matrix.
    let each = if kernel == "peak_half" { 8 * 4096 / 32 } else { 16 * 2 };
    let flops = u64::from(blocks * THREADS) * STEPS * each;
    let mut nowhere = 0_u64;
    let mut steps = STEPS as u32;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let mut params = [(&raw mut nowhere).cast(), (&raw mut steps).cast()];
        // SAFETY: the kernel takes an address, to which it does not write, and a number.
        times.push(module.timed(|| unsafe { module.launch([blocks, 1, 1], [THREADS, 1, 1], &mut params) })?);
    }
    Ok(Some(flops as f64 / median(times) as f64))
}
