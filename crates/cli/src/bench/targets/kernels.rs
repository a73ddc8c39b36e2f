//! Targets of kernels: library products, threadgroup sizes, work that the device decides, caches.

use std::time::Instant;

use elinvar::tensor::{MatMul, Plan, Route};
use elinvar::{Buffer, Device, Error, Grid, LaunchQueue, Stream};

use super::super::carried::compile;
use super::super::checks::MATMUL;
use super::super::cpu::{Contestant as _, OnDevice, PROBLEMS};
use super::super::runtime::timed;
use super::super::{Context, compile as compilation, tune};
use super::overhead;
use crate::failure::Result;
use crate::report::median;

const ROUNDS: usize = 9;
/// The threadgroup size that programs use without measuring.
const USUAL: usize = 256;

/// A product of matrices by a route, with small integers, whose sums are exact in any order.
struct Product {
    stream: Stream,
    a: Buffer<f32>,
    b: Buffer<f32>,
    out: Buffer<f32>,
    expected: Vec<f32>,
    side: usize,
}

impl Product {
    fn new(device: &Device, side: usize) -> Result<Self> {
        let matrix = |limit: usize| -> Vec<f32> {
            (0..side * side).map(|i| (i * 7 % 31 % limit) as f32 - (limit / 2) as f32).collect()
        };
        let (a, b) = (matrix(7), matrix(5));
        let mut expected = vec![0.0_f32; side * side];
        for (row, sums) in a.chunks(side).zip(expected.chunks_mut(side)) {
            for (factor, others) in row.iter().zip(b.chunks(side)) {
                sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += factor * other);
            }
        }
        Ok(Self {
            stream: device.stream()?,
            a: device.buffer_with_data(&a)?,
            b: device.buffer_with_data(&b)?,
            out: device.buffer(side * side)?,
            expected,
            side,
        })
    }

    fn plan(&mut self, route: Route) -> Result<Plan> {
        let shape = [self.side; 2];
        let views = [self.a.tensor(&shape)?, self.b.tensor(&shape)?];
        let mut out = self.out.tensor_mut(&shape)?;
        Ok(Plan::new(MatMul::default(), &[&views[0], &views[1]], &mut [&mut out], route)?)
    }

    fn check(&self) -> Result<()> {
        super::super::compare("matmul", &self.out.to_vec()?, &self.expected)
    }
}

/// Time of a product with `Route::Auto`, in milliseconds.
pub(super) fn matmul(context: &Context) -> Result<f64> {
    let mut product = Product::new(&context.device, 1024)?;
    let plan = product.plan(Route::Auto)?;
    let ns = timed(30, || {
        product.stream.tensor_plan(&plan)?.wait()?;
        Ok(())
    })?;
    product.check()?;
    Ok(ns as f64 / 1e6)
}

/// How many times as fast as a kernel of a few lines the library is.
#[allow(unsafe_code)] // launches
pub(super) fn library(context: &Context, side: usize) -> Result<f64> {
    let mut product = Product::new(&context.device, side)?;
    let plan = product.plan(Route::Vendor)?;
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        let timing = product.stream.tensor_plan(&plan)?.wait()?;
        times.extend((round > 0).then_some(timing.end_ns - timing.start_ns));
    }
    product.check()?;
    product.out.fill(0.0)?;
    let kernel = compile(&context.device, "matmul.metal", MATMUL)?.kernel("matmul_naive")?;
    let mut others = Vec::new();
    for round in 0..=ROUNDS {
        let grid = Grid::threads((side, side)).group((32, 8));
        let args = (&product.a, &product.b, &mut product.out, side as u32);
        // SAFETY: the matrices have the size that is passed.
        let timing = unsafe { kernel.launch(&product.stream, grid, args) }?.wait()?;
        others.extend((round > 0).then_some(timing.end_ns - timing.start_ns));
    }
    product.check()?;
    Ok(median(others) as f64 / median(times).max(1) as f64)
}

/// Speedup by the measured threadgroup size against 256, in percent: the geometric mean.
#[allow(unsafe_code)] // launches
pub(super) fn threadgroup_size(context: &Context) -> Result<f64> {
    let device = &context.device;
    let mut logarithms = Vec::new();
    for (_, build) in PROBLEMS.iter().filter(|(name, _)| tune::ANY_SIZE.contains(name)) {
        let problem = build();
        let library = compile(device, format!("{}.metal", problem.file), problem.metal)?;
        let kernel = library.kernel(problem.kernel)?;
        let on_device =
            |group: [usize; 3]| OnDevice::with(device, kernel.clone(), problem.threads, group, &problem.args);
        let tuned = tune::tune(device, &kernel, &problem)?;
        let (mut ours, mut usual) = (on_device(tuned)?, on_device([USUAL, 1, 1])?);
        let (first, _) = (ours.run(1)?, usual.run(1)?);
        let count = (4_000_000 / first.max(1)).clamp(1, 200);
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (which, times) in [&mut ours, &mut usual].into_iter().zip(&mut times) {
                times.push(which.run(count)?);
            }
        }
        let [ours, usual] = times.map(median);
        logarithms.push((usual as f64 / ours.max(1) as f64).ln());
    }
    let mean = logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64;
    Ok(100.0 * (mean.exp() - 1.0))
}

/// Time that steps with a grid barrier behind each take more than steps in a launch each, in percent.
#[allow(unsafe_code)] // launches
pub(super) fn grid_barrier(context: &Context) -> Result<f64> {
    const N: usize = 32 << 20;
    const STEPS: u32 = 20;
    let device = &context.device;
    let library = compile(device, "targets_grid.metal", include_str!("../kernels/targets_grid.metal"))?;
    let (all, one) = (library.kernel("steps_with_barriers")?, library.kernel("one_step")?);
    let stream = device.stream()?;
    let (from, mut to) = (device.buffer_with_data(&vec![1.0_f32; N])?, device.buffer::<f32>(N)?);
    let grid = || Grid::groups(4 * device.caps().limits.compute_units as usize).group(256);
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        for (which, times) in times.iter_mut().enumerate() {
            let done = if which == 0 {
                // SAFETY: threads access elements below `N` only.
                unsafe { all.launch_cooperative(&stream, grid(), (&from, &mut to, N as u32, STEPS)) }?
            } else {
                let mut commands = stream.command_buffer();
                for step in 0..STEPS {
                    // SAFETY: as above.
                    unsafe { commands.launch(&one, grid(), (&from, &mut to, N as u32, step)) }?;
                }
                commands.submit()?
            };
            let timing = done.wait()?;
            times.extend((round > 0).then_some(timing.end_ns - timing.start_ns));
        }
        super::super::compare("the steps", &to.to_vec()?, &vec![STEPS as f32; N])?;
    }
    let [barriers, launches] = times.map(median);
    Ok(overhead(barriers, launches))
}

/// Time that launches of a kernel take more than those of the host, in percent.
#[allow(unsafe_code)] // launches
pub(super) fn nested(context: &Context) -> Result<f64> {
    const PARTS: usize = 64;
    const SIZE: usize = 256 << 10;
    let device = &context.device;
    let library = compile(device, "targets_nested.metal", include_str!("../kernels/targets_nested.metal"))?;
    let (enqueue, part) = (library.kernel("enqueue_parts")?, library.kernel("part")?);
    let stream = device.stream()?;
    let mut queue = LaunchQueue::new(device, PARTS as u32, 1, &[&part])?;
    let first: Vec<u32> = (0..(PARTS * SIZE) as u32).collect();
    let (mut x, mut y) = (device.buffer_with_data(&first)?, device.buffer_with_data(&first)?);
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        let start = Instant::now();
        // SAFETY: each launch has its own elements.
        unsafe {
            enqueue.launch_nested(
                &stream,
                &mut queue,
                Grid::threads(PARTS).group(PARTS),
                (&mut x, SIZE as u32),
            )
        }?;
        stream.synchronize()?;
        let nested = start.elapsed().as_nanos() as u64;
        let start = Instant::now();
        let mut commands = stream.command_buffer();
        for number in 0..PARTS {
            let elements = y.slice_mut(number * SIZE..(number + 1) * SIZE)?;
            // SAFETY: as above.
            unsafe { commands.launch(&part, Grid::threads(SIZE).group(256), (elements,)) }?;
        }
        commands.submit()?.wait()?;
        let recorded = start.elapsed().as_nanos() as u64;
        if round > 0 {
            times[0].push(nested);
            times[1].push(recorded);
        }
    }
    if x.to_vec()? != y.to_vec()? {
        return Err(Error::DeviceLost("launches of a kernel and of the host differ".into()).into());
    }
    let [nested, recorded] = times.map(median);
    Ok(overhead(nested, recorded))
}

/// Time of a compilation that the cache saves, in percent.
pub(super) fn cache_saves(context: &Context) -> Result<f64> {
    let (cold, cached) = (compilation::cold(context)?.median_ns, compilation::cached(context)?.median_ns);
    Ok(100.0 * (1.0 - cached as f64 / cold.max(1) as f64))
}
