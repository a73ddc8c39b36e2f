//! The `cpu` suite: whole kernels against hand-written Rust.

use elinvar::{Arg, Batch, Buffer, Grid, Kernel, Source, Stream};

use super::{Context, Measured, compare, native};
use crate::failure::Result;
use crate::report::median;

pub(super) const VECTOR_ADD: &str = "\
#include <metal_stdlib>
using namespace metal;
kernel void vector_add(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                       device float* out [[buffer(2)]], constant uint& n [[buffer(3)]],
                       uint id [[thread_position_in_grid]])
{
    if (id < n) {
        out[id] = a[id] + b[id];
    }
}
";

const MATMUL: &str = "\
#include <metal_stdlib>
using namespace metal;
kernel void matmul_naive(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                         device float* c [[buffer(2)]], constant uint& n [[buffer(3)]],
                         uint2 position [[thread_position_in_grid]])
{
    if (position.x >= n || position.y >= n) {
        return;
    }
    float sum = 0.0f;
    for (uint i = 0; i < n; ++i) {
        sum += a[position.y * n + i] * b[i * n + position.x];
    }
    c[position.y * n + position.x] = sum;
}
";

/// Submissions whose median counts.
const ROUNDS: usize = 7;

/// The device's time of one dispatch, of so many in a submission.
#[allow(unsafe_code)] // launches
fn time_kernel(kernel: &Kernel, stream: &Stream, grid: Grid, args: &[Arg], dispatches: usize) -> Result<u64> {
    // SAFETY: both kernels stay below the `n` that they are given with buffers of that size.
    time_launches(stream, dispatches, |batch| unsafe { batch.launch(kernel, grid, args) })
}

/// As [`time_kernel`], for whatever `launch` adds to a batch.
fn time_launches(
    stream: &Stream,
    dispatches: usize,
    mut launch: impl FnMut(&mut Batch) -> elinvar::Result<()>,
) -> Result<u64> {
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        let mut batch = stream.batch();
        for _ in 0..dispatches {
            launch(&mut batch)?;
        }
        let timing = batch.submit()?.wait()?;
        if round > 0 {
            times.push((timing.end_ns - timing.start_ns) / dispatches as u64); // the first one warms up
        }
    }
    Ok(median(times))
}

pub(super) fn vector_add(context: &Context) -> Result<Measured> {
    let n = 16 << 20;
    let device = &context.device;
    let a: Vec<f32> = (0..n).map(|i| (i % 1021) as f32).collect();
    let b: Vec<f32> = (0..n).map(|i| (i % 509) as f32 * 0.5).collect();
    let mut sum = vec![0.0f32; n];
    let kernel = device.compile(Source::named("vector_add.metal", VECTOR_ADD))?.kernel("vector_add")?;
    let (a_buffer, b_buffer) = (device.buffer_from(&a)?, device.buffer_from(&b)?);
    let mut out = device.buffer::<f32>(n)?;
    let args = [Arg::from(&a_buffer), Arg::from(&b_buffer), Arg::from(&mut out), Arg::from(n as u32)];
    let ours = time_kernel(&kernel, &device.stream()?, Grid::threads(n).group(256), &args, 10)?;
    let native = native::time(ROUNDS, 10, || native::vector_add(&a, &b, &mut sum, context.threads));
    compare("vector_add", &out.to_vec()?, &sum)?;
    Ok(Measured {
        size: "16777216 floats, group 256".into(),
        median_ns: ours,
        bytes: Some(12 * n as u64),
        flops: Some(n as u64),
        baselines: vec![("native", native)],
        ..Measured::default()
    })
}

pub(super) fn matmul_naive(context: &Context) -> Result<Measured> {
    let n = 512;
    let device = &context.device;
    // Small whole numbers: every sum is exact, in whatever order it is taken.
    let a: Vec<f32> = (0..n * n).map(|i| (i % 7) as f32 - 3.0).collect();
    let b: Vec<f32> = (0..n * n).map(|i| (i % 5) as f32 - 2.0).collect();
    let mut product = vec![0.0f32; n * n];
    let kernel = device.compile(Source::named("matmul_naive.metal", MATMUL))?.kernel("matmul_naive")?;
    let (a_buffer, b_buffer) = (device.buffer_from(&a)?, device.buffer_from(&b)?);
    let mut c = device.buffer::<f32>(n * n)?;
    let args = [Arg::from(&a_buffer), Arg::from(&b_buffer), Arg::from(&mut c), Arg::from(n as u32)];
    let ours = time_kernel(&kernel, &device.stream()?, Grid::threads((n, n)).group((32, 8)), &args, 4)?;
    let native = native::time(ROUNDS, 4, || native::matmul(&a, &b, &mut product, n, context.threads));
    compare("matmul_naive", &c.to_vec()?, &product)?;
    Ok(Measured {
        size: "512x512x512 floats, group 32x8".into(),
        median_ns: ours,
        bytes: Some(12 * (n * n) as u64),
        flops: Some(2 * (n * n * n) as u64),
        baselines: vec![("native", native)],
        ..Measured::default()
    })
}

/// `vector_add` with bounds checks, against itself without.
pub(super) fn vector_add_checked(context: &Context) -> Result<Measured> {
    let n = 16 << 20;
    let device = &context.device;
    let a: Vec<f32> = (0..n).map(|i| (i % 1021) as f32).collect();
    let b: Vec<f32> = (0..n).map(|i| (i % 509) as f32 * 0.5).collect();
    let (a, b) = (device.buffer_from(&a)?, device.buffer_from(&b)?);
    let source = Source::named("vector_add.metal", VECTOR_ADD);
    let sizes = (Grid::threads(n).group(256), n, 10);
    against_unchecked(context, source, "vector_add", sizes, |out| {
        vec![Arg::from(&a), Arg::from(&b), Arg::from(out), Arg::from(n as u32)]
    })
    .map(|measured| Measured { size: "16777216 floats, group 256".into(), ..measured })
}

/// `matmul_naive` with bounds checks, against itself without.
pub(super) fn matmul_naive_checked(context: &Context) -> Result<Measured> {
    let n = 512;
    let device = &context.device;
    let a: Vec<f32> = (0..n * n).map(|i| (i % 7) as f32 - 3.0).collect();
    let b: Vec<f32> = (0..n * n).map(|i| (i % 5) as f32 - 2.0).collect();
    let (a, b) = (device.buffer_from(&a)?, device.buffer_from(&b)?);
    let source = Source::named("matmul_naive.metal", MATMUL);
    let sizes = (Grid::threads((n, n)).group((32, 8)), n * n, 4);
    against_unchecked(context, source, "matmul_naive", sizes, |out| {
        vec![Arg::from(&a), Arg::from(&b), Arg::from(out), Arg::from(n as u32)]
    })
    .map(|measured| Measured { size: "512x512x512 floats, group 32x8".into(), ..measured })
}

/// Times a kernel that writes one float per thread with checks and without, and compares the results.
fn against_unchecked(
    context: &Context,
    source: Source,
    name: &str,
    (grid, elements, dispatches): (Grid, usize, usize),
    args: impl Fn(&mut Buffer<f32>) -> Vec<Arg>,
) -> Result<Measured> {
    let device = &context.device;
    let stream = device.stream()?;
    let (mut with, mut without) = (device.buffer::<f32>(elements)?, device.buffer::<f32>(elements)?);
    let library = device.compile(source)?;
    let checked = library.checked_kernel(name)?;
    let list = args(&mut with);
    let ours = time_launches(&stream, dispatches, |batch| batch.launch_checked(&checked, grid, &list))?;
    let list = args(&mut without);
    let unchecked = time_kernel(&library.kernel(name)?, &stream, grid, &list, dispatches)?;
    compare(name, &with.to_vec()?, &without.to_vec()?)?;
    let baselines = vec![("unchecked", unchecked)];
    Ok(Measured { size: String::new(), median_ns: ours, baselines, ..Measured::default() })
}
