//! `elinvar bench tune`: the threadgroup sizes that `Kernel::tune` finds and `Kernel::suggest` expects, against all sizes and against 256 threads, for
//! kernels of the benchmarks and of the crate candle-metal-kernels, whose sources `ELINVAR_CANDLE` names.
//!
//! How a launch is measured is `elinvar_sizes`'s.

mod candle;

use elinvar::{Device, Error, Kernel, KernelOptions, Tier};
use elinvar_sizes::{Given, Launch, Means, Row, Size};
use serde_json::json;

use super::carried::compile;
use super::cpu::PROBLEMS;
use super::cpu::problem::{Argument, Problem};
use super::cuda::candle as published;
use super::{Context, machine_name};
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::report::{print_json, print_table, say, time_text};
use candle::{FIXED, FREE, Free};

/// Problems whose kernels allow any threadgroup size.
pub(super) const ANY_SIZE: [&str; 8] = [
    "saxpy_dram",
    "saxpy_l2",
    "matmul_naive",
    "mandelbrot",
    "histogram_device",
    "gather",
    "stencil3d",
    "nbody",
];

/// Problems that are measured with few threads too.
const FEW: [(&str, usize); 4] = [("saxpy_l2", 1024), ("gather", 256), ("nbody", 768), ("nbody", 256)];

/// A launch to be measured: of a benchmark with this many threads, or with its own, or of the crate candle-metal-kernels.
enum Work {
    Problem(fn() -> Problem, Option<usize>),
    Candle(&'static Free),
}

/// What runs by these names (or all), of which `bench` are the benchmarks' kernels and `candle` those of the crate.
fn works(names: &[String]) -> Result<Vec<(&'static str, Work)>> {
    let is_candle = |name: &str| FREE.iter().any(|free| free.kernel == name);
    let is_known =
        |name: &str| ANY_SIZE.contains(&name) || is_candle(name) || ["bench", "candle"].contains(&name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let mut known: Vec<&str> = FREE.iter().map(|free| free.kernel).collect();
        known.dedup();
        let (bench, candle) = (ANY_SIZE.join(", "), known.join(", "));
        let groups = format!("bench ({bench}) and candle ({candle})");
        return Err(Failure::usage(format!("`{unknown}` is not among {groups}")));
    }
    let wanted = |group: &str, name: &str| names.is_empty() || names.iter().any(|n| n == group || n == name);
    let mut works = Vec::new();
    for (name, build) in PROBLEMS.into_iter().filter(|(name, _)| ANY_SIZE.contains(name)) {
        if wanted("bench", name) {
            let few = FEW.into_iter().filter(|(few, _)| *few == name).map(|(_, threads)| Some(threads));
            works.extend([None].into_iter().chain(few).map(|threads| (name, Work::Problem(build, threads))));
        }
    }
    if published::is_named() || names.iter().any(|name| name == "candle" || is_candle(name)) {
        let free = FREE.iter().filter(|free| wanted("candle", free.kernel));
        works.extend(free.map(|free| (free.kernel, Work::Candle(free))));
    }
    Ok(works)
}

impl Work {
    /// The launch, and its usual size of 256 threads.
    fn on(&self, device: &Device) -> Result<(Launch, Size)> {
        match self {
            Self::Problem(build, few) => {
                let mut problem = build();
                if let Some(threads) = *few {
                    (problem.threads, problem.group) = ([threads, 1, 1], [threads.min(256), 1, 1]);
                }
                let library = compile(device, format!("{}.metal", problem.file), problem.metal)?;
                let options = KernelOptions::new().tier(Tier::Optimized);
                let kernel = library.kernel_with(problem.kernel, options)?;
                Ok((launch_of(device, kernel, &problem)?, problem.group))
            }
            Self::Candle(free) => free.on(device),
        }
    }
}

#[allow(unsafe_code)] // launches
fn launch_of(device: &Device, kernel: Kernel, problem: &Problem) -> Result<Launch> {
    // SAFETY: a problem's arguments have the sizes that its kernel's definition requires.
    Ok(unsafe { Launch::new(device, kernel, problem.threads, problem.args.iter().map(given).collect()) }?)
}

/// The argument of a benchmark's problem.
fn given(argument: &Argument) -> Given {
    let bytes = argument.raw().to_vec();
    match argument {
        Argument::Float(_) | Argument::Word(_) => Given::Value(bytes),
        _ => Given::Memory(bytes),
    }
}

/// Measures the kernels of these names, or all.
pub fn run(context: &Context, names: &[String], json: bool) -> Result<()> {
    let works = works(names)?;
    let progress = Progress::new(works.len());
    let mut rows = Vec::new();
    for (name, work) in works {
        progress.begin(name);
        rows.push(measure(context, name, &work)?);
        progress.end();
    }
    drop(progress);
    let fixed = fixed(&context.device, names)?;
    let is_absent = names.is_empty() && !published::is_named();
    let absent = is_absent.then(|| {
        format!(
            "kernels of the crate candle-metal-kernels are not measured: {} is not set",
            published::FOLDER
        )
    });
    let Means { of_suggestion, gain, of_best } = Means::of(&rows);
    if json {
        let fixed_json = |(file, count, reason): &(_, usize, _)| json!({ "file": file, "kernels": count, "reason": reason });
        return print_json(&json!({
            "device": machine_name(&context.device), "threads": context.threads, "gain": gain, "of_best": of_best, "of_suggestion": of_suggestion,
            "kernels": rows.iter().map(Row::json).collect::<Vec<_>>(), "fixed": fixed.iter().map(fixed_json).collect::<Vec<_>>(), "not_measured": absent,
        }));
    }
    say(format_args!("{}, {} threads", machine_name(&context.device), context.threads))?;
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.cells(time_text)).collect();
    print_table(&Row::HEAD, &cells)?;
    say(format_args!(
        "geometric means: 256/suggested {of_suggestion:.3}, 256/tuned {gain:.3}, tuned/best {of_best:.3}"
    ))?;
    for (file, count, reason) in fixed {
        say(format_args!("not measured: {count} kernels of {file}: {reason}"))?;
    }
    absent.map_or(Ok(()), say)
}

/// File, number and reason of the crate's kernels whose size is not free, if all kernels of the crate are measured.
fn fixed(device: &Device, names: &[String]) -> Result<Vec<(&'static str, usize, &'static str)>> {
    let is_wanted = names.is_empty() || names.iter().any(|name| name == "candle");
    if !is_wanted || !published::is_named() {
        return Ok(Vec::new());
    }
    FIXED.iter().map(|fixed| Ok((fixed.file, fixed.count(device)?, fixed.reason))).collect()
}

fn measure(context: &Context, name: &'static str, work: &Work) -> Result<Row> {
    let (mut launch, usual) = work.on(&context.device)?;
    Row::measure(name, &mut launch, usual)?.map_err(|why| Error::DeviceLost(why).into())
}

/// The size that [`Kernel::tune_with`](elinvar::Kernel::tune_with) measures.
pub(super) fn tune(device: &Device, kernel: &Kernel, problem: &Problem) -> Result<Size> {
    Ok(launch_of(device, kernel.clone(), problem)?.tune()?)
}
