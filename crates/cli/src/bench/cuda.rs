//! The `cuda` suite: kernels on an NVIDIA GPU, compared with the same kernels in CUDA C++; and the latency of launches and
//! copies, compared with calls of the CUDA driver.
//!
//! CUDA C++ is compiled by NVRTC, with its default options and with `--use_fast_math`: MSL's default is fast math too, but
//! preserves subnormal numbers here. Without NVRTC this baseline is skipped and the output says so. Each result is verified
//! against the baseline's before the measurement; then rounds are interleaved.

mod bare;
pub(super) mod candle;
mod dnn;
mod host;
mod nvrtc;
mod peer;
mod problems;

use elinvar::{Device, DeviceKind, Error};

use super::carried::compile;
use super::cpu::problem::Argument;
use super::cpu::{Contestant, OnDevice};
use super::{Context, Measured};
use crate::failure::Result;
use crate::report::median;

pub(super) use bare::Product;
pub(super) use candle::{is_named, matmul_f16, matmul_f32, softmax, sum};
pub(super) use dnn::{Dnn, Operation as DnnOperation};
pub(super) use host::{copy, downloads, graph, launch, launches_ended, uploads};
use nvrtc::Native;
pub(super) use nvrtc::absence;
pub(super) use peer::peer;
pub(super) use problems::Build;
pub(super) use problems::PROBLEMS;
use problems::Problem;

/// The baselines by name, with NVRTC's options.
const COMPILED: [(&str, &[&str]); 2] = [("nvrtc", &[]), ("nvrtc_fast", &["--use_fast_math"])];

/// Number of rounds, of which the median is reported.
const ROUNDS: usize = 15;
/// Target duration of a round, which determines its number of iterations, within the limit.
const ROUND_NS: u64 = 10_000_000;
const MOST_ITERATIONS: u64 = 100;

/// The device, if it is an NVIDIA GPU.
fn gpu(context: &Context) -> Result<&Device> {
    match context.device.kind() {
        DeviceKind::Cuda => Ok(&context.device),
        kind => Err(Error::unsupported(format!("the cuda suite on a device of kind {}", kind.name())).into()),
    }
}

/// Measures one kernel.
pub(super) fn measure(context: &Context, build: Build) -> Result<Measured> {
    let device = gpu(context)?;
    let problem = build();
    let kernel = compile(device, problem.file, problem.metal)?.kernel(problem.kernel)?;
    let mut ours = OnDevice::with(device, kernel, problem.threads, problem.group, &problem.args)?;
    let mut natives = Vec::new();
    for (name, options) in COMPILED {
        natives.extend(Native::new(&problem, options)?.map(|native| (name, native, Vec::new())));
    }
    ours.run(1)?;
    for (_, native, _) in &mut natives {
        native.run(1)?;
        compare(&problem, &ours, native)?;
    }
    let count = (ROUND_NS / ours.run(1)?.max(1)).clamp(1, MOST_ITERATIONS);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        times.push(ours.run(count)? / count);
        for (_, native, times) in &mut natives {
            times.push(native.run(count)? / count);
        }
    }
    Ok(Measured {
        size: problem.size.into(),
        median_ns: median(times),
        bytes: problem.bytes,
        flops: problem.flops,
        baselines: natives.into_iter().map(|(name, _, times)| (name, median(times))).collect(),
        ..Measured::default()
    })
}

/// Fails unless both results agree on every element.
fn compare(problem: &Problem, ours: &OnDevice, native: &Native) -> Result<()> {
    let pick = |arguments: Vec<Argument>| arguments.into_iter().nth(problem.result).map(|a| a.numbers());
    let (ours, theirs) = (pick(ours.arguments()?), pick(native.arguments()?));
    match problem.agreement.difference(&ours.unwrap_or_default(), &theirs.unwrap_or_default()) {
        None => Ok(()),
        Some(difference) => {
            let name = problem.kernel;
            Err(Error::DeviceLost(format!("{name}: the result differs from that of CUDA C++: {difference}"))
                .into())
        }
    }
}
