//! The `cpu` suite: kernels on the CPU device, compared with other implementations of the same work.
//!
//! Every contestant (the device, `native`, the libraries, an OpenCL driver) gets its own copy of a problem's data and the same
//! number of threads. Each result is verified against `native`'s before the measurement. Rounds of the contestants are
//! interleaved, so that disturbances affect all of them.

mod attention;
mod blas;
mod device;
mod histogram;
mod linear;
mod mandelbrot;
mod matmul;
mod nbody;
mod onednn;
mod opencl;
pub mod problem;
pub mod published;
mod quantized;
mod reduce;
mod softmax;
mod steel;
mod stencil;
mod team;
pub mod tensor;

use std::time::Instant;

use elinvar::Error;

use super::{Context, Measured};
use crate::failure::Result;
use crate::report::median;
pub use device::OnDevice;
use opencl::OpenCl;
use problem::{Argument, Native};
use team::Team;

use problem::Problem;

/// Number of rounds, of which the median is reported; fewer, but at least [`FEWEST`], if they take longer than [`MOST_NS`] in total.
const ROUNDS: usize = 25;
const FEWEST: usize = 5;
const MOST_NS: u64 = 1_000_000_000;
/// Target duration of a round, which determines its number of iterations. Short, so that most rounds are not interrupted on a machine with
/// other load.
const ROUND_NS: u64 = 4_000_000;
const MOST_ITERATIONS: u64 = 2000;

/// Builds a problem with its data.
pub type Build = fn() -> Problem;

/// The problems by name.
pub const PROBLEMS: [(&str, Build); 14] = [
    ("saxpy_dram", linear::saxpy_dram),
    ("saxpy_l2", linear::saxpy_l2),
    ("matmul_naive", matmul::naive),
    ("matmul_naive_16x16", matmul::naive_16x16),
    ("matmul_tiled", matmul::tiled),
    ("reduce_tree", reduce::tree),
    ("reduce_simd", reduce::simd),
    ("mandelbrot", mandelbrot::mandelbrot),
    ("histogram_device", histogram::device),
    ("histogram_threadgroup", histogram::threadgroup),
    ("gather", linear::gather),
    ("softmax", softmax::softmax),
    ("stencil3d", stencil::stencil3d),
    ("nbody", nbody::nbody),
];

/// Baselines that are unavailable on this machine, with the reason.
pub fn absences() -> Vec<(&'static str, String)> {
    let absent = [
        ("openblas", blas::openblas().err().map(str::to_owned)),
        ("onednn", onednn::onednn().err().map(str::to_owned)),
        ("pocl", opencl::absence()),
    ];
    absent.into_iter().filter_map(|(name, why)| Some((name, why?))).collect()
}

/// An implementation of a problem.
pub trait Contestant {
    /// Runs the work this often and returns the duration.
    fn run(&mut self, iterations: u64) -> Result<u64>;
    /// Current contents of the problem's arguments.
    fn arguments(&self) -> Result<Vec<Argument>>;
}

/// Rust, or a library called from Rust.
struct OnHost<'t> {
    work: Native,
    args: Vec<Argument>,
    team: &'t Team,
}

impl Contestant for OnHost<'_> {
    fn run(&mut self, iterations: u64) -> Result<u64> {
        let Self { work, args, team } = self;
        let start = Instant::now();
        team.inside(|| (0..iterations).for_each(|_| work(args, team)));
        Ok(start.elapsed().as_nanos() as u64)
    }

    fn arguments(&self) -> Result<Vec<Argument>> {
        Ok(self.args.clone())
    }
}

/// Measures one problem in the context.
pub fn measure(context: &Context, problem: Build) -> Result<Measured> {
    let problem = problem();
    let team = Team::new(context.threads)?;
    let host = |work| OnHost { work, args: problem.args.clone(), team: &team };
    let mut contestants: Vec<(&'static str, Box<dyn Contestant + '_>)> = vec![
        ("native", Box::new(host(problem.native))),
        ("ours", Box::new(OnDevice::new(&context.device, &problem)?)),
    ];
    for (name, work) in &problem.others {
        contestants.push((name, Box::new(host(*work))));
    }
    if let Some(opencl) = OpenCl::new(&problem, context.threads)? {
        contestants.push(("pocl", Box::new(opencl)));
    }
    let counts = check(&problem, &mut contestants)?;
    let times = take_turns(&mut contestants, &counts)?;
    let mut baselines: Vec<(&'static str, u64)> =
        contestants.iter().zip(times).map(|((name, _), times)| (*name, median(times))).collect();
    let (_, median_ns) = baselines.remove(1);
    Ok(Measured {
        size: problem.size.into(),
        median_ns,
        bytes: problem.bytes,
        flops: problem.flops,
        baselines,
        ..Measured::default()
    })
}

type Contestants<'c> = [(&'static str, Box<dyn Contestant + 'c>)];

/// Times per iteration of each round, for each implementation.
fn take_turns(contestants: &mut Contestants, counts: &[u64]) -> Result<Vec<Vec<u64>>> {
    let mut times = vec![Vec::with_capacity(ROUNDS); contestants.len()];
    for _ in 0..ROUNDS {
        for (((_, contestant), count), times) in contestants.iter_mut().zip(counts).zip(&mut times) {
            let spent: u64 = times.iter().map(|time| time * count).sum();
            if times.len() < FEWEST || spent < MOST_NS {
                times.push(contestant.run(*count)? / count);
            }
        }
    }
    Ok(times)
}

/// Runs each once and compares its result with that of the first; returns the number of iterations per round.
fn check(problem: &Problem, contestants: &mut Contestants) -> Result<Vec<u64>> {
    let mut expected: Option<Vec<f64>> = None;
    let mut counts = Vec::new();
    for (who, contestant) in contestants {
        contestant.run(1)?;
        let result = (problem.result)(&contestant.arguments()?);
        match &expected {
            None => expected = Some(result),
            Some(expected) => {
                if let Some(difference) = problem.agreement.difference(&result, expected) {
                    let name = problem.name;
                    let text = format!("{name}: the result of {who} differs from native's: {difference}");
                    return Err(Error::DeviceLost(text).into());
                }
            }
        }
        let once = contestant.run(1)?.max(1);
        counts.push((ROUND_NS / once).clamp(1, MOST_ITERATIONS));
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baselines_agree_on_any_number_of_threads() {
        for (_, problem) in PROBLEMS {
            let problem = problem();
            let run = |threads, work: Native| {
                let team = Team::new(threads).expect("threads");
                let mut args = problem.args.clone();
                team.inside(|| work(&mut args, &team));
                (problem.result)(&args)
            };
            let one = run(1, problem.native);
            let others = problem.others.iter().map(|(name, work)| (*name, *work));
            for (name, work) in std::iter::once(("native", problem.native)).chain(others) {
                let difference = problem.agreement.difference(&run(3, work), &one);
                assert_eq!(difference, None, "{} of {name}", problem.name);
            }
        }
    }
}
