//! `steel_*`: matrix products of the crate candle-metal-kernels, which are MLX's "steel" kernels over `simdgroup_matrix`, compared with
//! two libraries. The sources are those of the `candle` suite.

use elinvar::{Arg, Buffer, Device, Grid, Kernel, Pod, Stream, f16};

use super::super::cuda::candle;
use super::super::{Context, Measured};
use super::problem::{Argument, Native, scattered};
use super::team::Team;
use super::{Contestant, MOST_ITERATIONS, OnHost, ROUND_NS, blas, take_turns};
use crate::failure::Result;
use crate::report::median;

/// Number of rows and columns of each matrix.
const SIDE: usize = 1024;

/// Threadgroups of four simdgroups, each with 2 by 2 matrices of sums.
pub fn f32_32(context: &Context) -> Result<Measured> {
    measure::<f32>(context, "gemm_nn_f32_f32_32_32_16_2_2", 32, |v| v, |v| v)
}

/// Threadgroups of four simdgroups, each with 4 by 4 matrices of sums.
pub fn f32_64(context: &Context) -> Result<Measured> {
    measure::<f32>(context, "gemm_nn_f32_f32_64_64_16_2_2", 64, |v| v, |v| v)
}

/// As [`f32_32`], of halves, with sums of floats.
pub fn f16_32(context: &Context) -> Result<Measured> {
    measure(context, "gemm_nn_f16_f16_32_32_16_2_2", 32, f16::from_f32, f16::to_f32)
}

/// As [`f32_64`], of halves, with sums of floats.
pub fn f16_64(context: &Context) -> Result<Measured> {
    measure(context, "gemm_nn_f16_f16_64_64_16_2_2", 64, f16::from_f32, f16::to_f32)
}

/// A kernel of `mlx_gemm.metal` with its arguments.
struct Steel<T: Pod> {
    kernel: Kernel,
    stream: Stream,
    grid: Grid,
    args: Vec<Arg>,
    product: Buffer<T>,
    number: fn(T) -> f32,
}

impl<T: Pod> Steel<T> {
    fn new(
        device: &Device,
        (name, tile): (&str, usize),
        factors: &[Argument],
        of: fn(f32) -> T,
        number: fn(T) -> f32,
    ) -> Result<Self> {
        let kernel = candle::matmul_kernel(device, name)?;
        let hold = |argument: &Argument| {
            let numbers: Vec<T> = argument.floats().iter().map(|v| of(*v)).collect();
            device.buffer_with_data(&numbers)
        };
        let (left, right) = (hold(&factors[0])?, hold(&factors[1])?);
        let mut product: Buffer<T> = device.buffer(SIDE * SIDE)?;
        let args = candle::matmul_arguments(device, &kernel, (SIDE, tile), [&left, &right], &mut product)?;
        let tiles = SIDE / tile;
        let grid = Grid::threads([tiles * 32, tiles * 2, 2]).group([32, 2, 2]);
        Ok(Self { kernel, stream: device.stream()?, grid, args, product, number })
    }
}

impl<T: Pod> Contestant for Steel<T> {
    #[allow(unsafe_code)] // launches
    fn run(&mut self, iterations: u64) -> Result<u64> {
        let mut commands = self.stream.command_buffer();
        for _ in 0..iterations {
            // SAFETY: the crate's own host code launches the kernel with these sizes.
            unsafe { commands.launch(&self.kernel, self.grid.clone(), &self.args) }?;
        }
        let timing = commands.submit()?.wait()?;
        Ok(timing.end_ns - timing.start_ns)
    }

    fn arguments(&self) -> Result<Vec<Argument>> {
        Ok(vec![Argument::Floats(self.product.to_vec()?.into_iter().map(self.number).collect())])
    }
}

fn measure<T: Pod>(
    context: &Context,
    name: &str,
    tile: usize,
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
    let team = Team::new(context.threads)?;
    let mut work: Vec<(&'static str, Native)> = vec![("gemm", blas::gemm)];
    if blas::openblas().is_ok() {
        work.push(("openblas", blas::sgemm));
    }
    let ours = Steel::new(&context.device, (name, tile), &args, of, number)?;
    let mut contestants: Vec<(&'static str, Box<dyn Contestant + '_>)> = vec![("ours", Box::new(ours))];
    for (name, work) in work {
        contestants.push((name, Box::new(OnHost { work, args: args.clone(), team: &team })));
    }
    let (mut results, mut counts) = (Vec::new(), Vec::new());
    for (_, contestant) in &mut contestants {
        contestant.run(1)?;
        results.push(contestant.arguments()?);
        counts.push((ROUND_NS / contestant.run(1)?.max(1)).clamp(1, MOST_ITERATIONS));
    }
    super::super::compare(name, results[0][0].floats(), results[1][2].floats())?;
    let times = take_turns(&mut contestants, &counts)?;
    let mut times = contestants.iter().zip(times).map(|((name, _), times)| (*name, median(times)));
    let median_ns = times.next().map_or(0, |(_, ns)| ns);
    Ok(Measured {
        size: format!("{name}: {SIDE} x {SIDE}"),
        median_ns,
        bytes: Some(3 * (SIDE * SIDE * size_of::<T>()) as u64),
        flops: Some(2 * (SIDE as u64).pow(3)),
        baselines: times.collect(),
        ..Measured::default()
    })
}
