//! `steel_*`: matrix products of the crate candle-metal-kernels, which are MLX's "steel" kernels over `simdgroup_matrix`, compared with
//! two libraries. The sources are those of the `candle` suite.

use elinvar::{Buffer, Grid, Pod, bf16, f16};

use super::super::cuda::candle;
use super::super::{Context, Measured};
use super::problem::{Agreement, Argument, Native, scattered};
use super::published::{self, Baselines, Published};
use super::{blas, onednn};
use crate::failure::Result;

/// Number of rows and columns of each matrix.
const SIDE: usize = 1024;
/// Tolerances: sums are exact, or rounded to the 8 bits of a bfloat.
const EXACT: f64 = 0.0;
const ROUNDED: f64 = 1.0 / 256.0;

/// Threadgroups of four simdgroups, each with 2 by 2 matrices of sums.
pub fn f32_32(context: &Context) -> Result<Measured> {
    measure::<f32>(context, "gemm_nn_f32_f32_32_32_16_2_2", (32, EXACT), |v| v, |v| v)
}

/// Threadgroups of four simdgroups, each with 4 by 4 matrices of sums.
pub fn f32_64(context: &Context) -> Result<Measured> {
    measure::<f32>(context, "gemm_nn_f32_f32_64_64_16_2_2", (64, EXACT), |v| v, |v| v)
}

/// As [`f32_32`], of halves, with sums of floats.
pub fn f16_32(context: &Context) -> Result<Measured> {
    measure(context, "gemm_nn_f16_f16_32_32_16_2_2", (32, EXACT), f16::from_f32, f16::to_f32)
}

/// As [`f32_64`], of halves, with sums of floats.
pub fn f16_64(context: &Context) -> Result<Measured> {
    measure(context, "gemm_nn_f16_f16_64_64_16_2_2", (64, EXACT), f16::from_f32, f16::to_f32)
}

/// As [`f32_32`], of bfloats, with sums of floats.
pub fn bf16_32(context: &Context) -> Result<Measured> {
    measure(context, "gemm_nn_bf16_bf16_32_32_16_2_2", (32, ROUNDED), bf16::from_f32, bf16::to_f32)
}

/// As [`f32_64`], of bfloats, with sums of floats.
pub fn bf16_64(context: &Context) -> Result<Measured> {
    measure(context, "gemm_nn_bf16_bf16_64_64_16_2_2", (64, ROUNDED), bf16::from_f32, bf16::to_f32)
}

fn measure<T: Pod>(
    context: &Context,
    name: &str,
    (tile, tolerance): (usize, f64),
    of: fn(f32) -> T,
    number: fn(T) -> f32,
) -> Result<Measured> {
    // Small integers: every sum is exact in any order, also in half.
    let matrix = |limit: u32| {
        let numbers = scattered(SIDE * SIDE, limit).map(|v| v as f32 - (limit / 2) as f32);
        Argument::Floats(numbers.collect())
    };
    let args =
        vec![matrix(7), matrix(5), Argument::Floats(vec![0.0; SIDE * SIDE]), Argument::Word(SIDE as u32)];
    let mut works: Vec<(&'static str, Native)> = vec![("gemm", blas::gemm)];
    if blas::openblas().is_ok() {
        works.push(("openblas", blas::sgemm));
    }
    if onednn::onednn().is_ok() {
        works.push(("onednn", onednn::sgemm));
    }
    let device = &context.device;
    let kernel = candle::matmul_kernel(device, name)?;
    let hold = |argument: &Argument| {
        let numbers: Vec<T> = argument.floats().iter().map(|v| of(*v)).collect();
        device.buffer_with_data(&numbers)
    };
    let (left, right) = (hold(&args[0])?, hold(&args[1])?);
    let mut product: Buffer<T> = device.buffer(SIDE * SIDE)?;
    let given = candle::matmul_arguments(device, &kernel, (SIDE, tile), [&left, &right], &mut product)?;
    let tiles = SIDE / tile;
    let ours = Published {
        kernel,
        stream: device.stream()?,
        grid: Grid::threads([tiles * 32, tiles * 2, 2]).group([32, 2, 2]),
        args: given,
        result: Box::new(|| Ok(product.to_vec()?.into_iter().map(number).collect())),
    };
    let baselines = Baselines { works, args, result: 2, agreement: Agreement::Within(tolerance) };
    let work = Measured {
        size: format!("{name}: {SIDE} x {SIDE}"),
        bytes: Some(3 * (SIDE * SIDE * size_of::<T>()) as u64),
        flops: Some(2 * (SIDE as u64).pow(3)),
        ..Measured::default()
    };
    published::measure(context, ours, baselines, work)
}
