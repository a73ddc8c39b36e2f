//! The rows `compile_large_…` of the `compile` suite: a kernel that is costly to optimize, until its first launch has ended and until it is
//! optimized, and what a launch costs while its code is replaced.

use std::time::{Duration, Instant};

use elinvar::{Buffer, Device, Grid, Kernel, KernelOptions, Source, Stream, Tier};

use super::compile::{device, folder};
use super::{Context, Measured};
use crate::failure::Result;
use crate::report::median;

const RUNS: u32 = 3;
/// Rounds of the generator, unrolled: about 2 MB of vectorized IR.
const ROUNDS: u32 = 3000;
const N: usize = GROUP;
const GROUP: usize = 64;
/// Launches before and after the replacement that are looked at.
const AROUND: usize = 200;
const PATIENCE: Duration = Duration::from_secs(120);

/// A kernel with `ROUNDS` rounds; every number makes another source.
fn source(number: u32) -> Source {
    let rounds: String =
        (0..ROUNDS).map(|k| format!("x = (x ^ (x >> {})) * {}u;\n", 1 + k % 15, 2 * k + 3)).collect();
    let body = format!("uint x = i + {number}u;\n{rounds}out[i] = x;");
    Source::named(
        "large.metal",
        format!("kernel void large(device uint* out, uint i [[thread_position_in_grid]]) {{ {body} }}"),
    )
}

fn expected(number: u32, i: u32) -> u32 {
    (0..ROUNDS).fold(i + number, |x, k| (x ^ (x >> (1 + k % 15))).wrapping_mul(2 * k + 3))
}

struct Large {
    kernel: Kernel,
    stream: Stream,
    out: Buffer<u32>,
    number: u32,
}

impl Large {
    /// Compiles the kernel without a cached result.
    fn compile(number: u32, tier: Tier) -> Result<Self> {
        let device = Device::new(device(folder()?.path())?);
        let kernel = device.compile(source(number))?.kernel_with("large", KernelOptions::new().tier(tier))?;
        let (stream, out) = (device.stream()?, device.buffer(N)?);
        Ok(Self { kernel, stream, out, number })
    }

    fn launch(&mut self) -> Result<()> {
        let grid = Grid::threads(N).group(GROUP);
        // SAFETY: each thread writes its own element, and there are as many.
        #[allow(unsafe_code)]
        unsafe { self.kernel.launch(&self.stream, grid, (&mut self.out,)) }?.wait()?;
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let expected: Vec<u32> = (0..N as u32).map(|i| expected(self.number, i)).collect();
        match self.out.to_vec()? == expected {
            true => Ok(()),
            false => Err(elinvar::Error::DeviceLost("large: a wrong result".into()).into()),
        }
    }
}

fn first_launch(tier: Tier, what: &str) -> Result<Measured> {
    let one = |number| {
        let start = Instant::now();
        let mut large = Large::compile(number, tier)?;
        large.launch()?;
        let ns = start.elapsed().as_nanos() as u64;
        large.check()?;
        Ok(ns)
    };
    let times: Vec<u64> = (0..RUNS).map(one).collect::<Result<_>>()?;
    Ok(Measured { size: format!("{what}, {RUNS} times"), median_ns: median(times), ..Measured::default() })
}

/// From its text to the end of its first launch.
pub(super) fn first(_: &Context) -> Result<Measured> {
    first_launch(Tier::Adaptive, "to the first launch")
}

/// The same, if the launch waits for optimized code.
pub(super) fn optimized(_: &Context) -> Result<Measured> {
    first_launch(Tier::Optimized, "to the first launch, optimized")
}

/// The longest launch around the replacement of its code, and of as many launches before.
pub(super) fn replacement(_: &Context) -> Result<Measured> {
    let mut large = Large::compile(RUNS, Tier::Adaptive)?;
    let (start, mut times) = (Instant::now(), Vec::new());
    let mut replaced = None;
    while replaced.is_none_or(|at| times.len() < at + AROUND) && start.elapsed() < PATIENCE {
        let begun = Instant::now();
        large.launch()?;
        times.push(begun.elapsed().as_nanos() as u64);
        if replaced.is_none() && large.kernel.is_optimized(GROUP)? == Some(true) {
            replaced = Some(times.len());
        }
    }
    large.check()?;
    let at =
        replaced.ok_or_else(|| elinvar::Error::Environment("the kernel was not optimized in time".into()))?;
    let longest = |times: &[u64]| times.iter().copied().max().unwrap_or_default();
    let (around, before) = (&times[at.saturating_sub(AROUND)..], &times[..at.saturating_sub(AROUND)]);
    let size = format!(
        "longest of {} launches around the replacement; medians {:.0} µs before, {:.0} µs after",
        around.len(),
        median(times[..at].to_vec()) as f64 / 1e3,
        median(times[at..].to_vec()) as f64 / 1e3
    );
    let baselines = vec![("before", longest(&before[before.len().saturating_sub(around.len())..]))];
    Ok(Measured { size, median_ns: longest(around), baselines, ..Measured::default() })
}
