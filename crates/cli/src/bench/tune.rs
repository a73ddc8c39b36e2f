//! `elinvar bench tune`: the threadgroup sizes that `Kernel::tune` finds and `Kernel::suggest` expects, against all sizes and against 256 threads, for
//! kernels of the benchmarks and of the crate candle-metal-kernels, whose sources `ELINVAR_CANDLE` names.
//!
//! What a launch writes has to be the same in all sizes, byte by byte. All sizes are measured first. Then the fastest, the tuned, the suggested and the usual size are measured again in turns, so that disturbances
//! affect all of them, and their shortest times are compared.

mod candle;
mod launch;

use elinvar::{Device, Kernel, KernelOptions, Suggestion, Tier};
use serde_json::json;

use super::carried::compile;
use super::cpu::PROBLEMS;
use super::cpu::problem::Problem;
use super::cuda::candle as published;
use super::{Context, machine_name};
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::report::{print_json, print_table, say, time_text};
use candle::{FIXED, FREE, Free};
use launch::{Given, Launch};

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

/// Rounds over all sizes, and of those that are compared.
const FIRST_ROUNDS: usize = 3;
const ROUNDS: usize = 25;
/// Target duration of a measurement, and most launches of one submission.
const ROUND_NS: u64 = 3_000_000;
const MOST_LAUNCHES: u64 = 4096;
const MOST_THREADS: usize = 1024;

type Size = [usize; 3];

struct Row {
    name: &'static str,
    threads: Size,
    sizes: usize,
    /// 256 threads in the shape that the benchmark's launch has.
    usual: (Size, u64),
    suggested: (Size, u64),
    tuned: (Size, u64),
    best: (Size, u64),
}

impl Row {
    fn of_suggestion(&self) -> f64 {
        self.usual.1 as f64 / self.suggested.1.max(1) as f64
    }

    fn gain(&self) -> f64 {
        self.usual.1 as f64 / self.tuned.1.max(1) as f64
    }

    fn of_best(&self) -> f64 {
        self.tuned.1 as f64 / self.best.1.max(1) as f64
    }
}

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

fn launch_of(device: &Device, kernel: Kernel, problem: &Problem) -> Result<Launch> {
    let given = problem.args.iter().map(Given::of).collect();
    Launch::new(device, kernel, problem.threads, given)
}

/// 256 threads in the shape of a grid.
fn usual_of(threads: Size) -> Size {
    if threads[1] > 1 { [32, 8, 1] } else { [256, 1, 1] }
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
    let mean = |of: fn(&Row) -> f64| {
        (rows.iter().map(|row| of(row).ln()).sum::<f64>() / rows.len().max(1) as f64).exp()
    };
    let (of_suggestion, gain, of_best) = (mean(Row::of_suggestion), mean(Row::gain), mean(Row::of_best));
    if json {
        let one = |(size, ns): (Size, u64)| json!({ "group": size, "ns": ns });
        let row = |row: &Row| json!({ "name": row.name, "threads": row.threads, "sizes": row.sizes, "usual": one(row.usual), "suggested": one(row.suggested), "tuned": one(row.tuned), "best": one(row.best) });
        let fixed_json = |(file, count, reason): &(_, usize, _)| json!({ "file": file, "kernels": count, "reason": reason });
        return print_json(&json!({
            "device": machine_name(&context.device), "threads": context.threads, "gain": gain, "of_best": of_best, "of_suggestion": of_suggestion,
            "kernels": rows.iter().map(row).collect::<Vec<_>>(), "fixed": fixed.iter().map(fixed_json).collect::<Vec<_>>(), "not_measured": absent,
        }));
    }
    say(format_args!("{}, {} threads", machine_name(&context.device), context.threads))?;
    let cell = |(size, ns): (Size, u64)| format!("{} {}", size_text(size), time_text(ns));
    let row = |row: &Row| {
        vec![
            row.name.to_owned(),
            size_text(row.threads),
            row.sizes.to_string(),
            cell(row.usual),
            cell(row.suggested),
            cell(row.tuned),
            cell(row.best),
            format!("{:.3}", row.of_suggestion()),
            format!("{:.3}", row.gain()),
            format!("{:.3}", row.of_best()),
        ]
    };
    let cells: Vec<Vec<String>> = rows.iter().map(row).collect();
    let head = [
        "kernel",
        "threads",
        "sizes",
        "256",
        "suggested",
        "tuned",
        "best",
        "256/suggested",
        "256/tuned",
        "tuned/best",
    ];
    print_table(&head, &cells)?;
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

fn size_text([x, y, z]: Size) -> String {
    match (y, z) {
        (1, 1) => x.to_string(),
        (_, 1) => format!("{x}x{y}"),
        _ => format!("{x}x{y}x{z}"),
    }
}

fn measure(context: &Context, name: &'static str, work: &Work) -> Result<Row> {
    let (mut launch, usual) = work.on(&context.device)?;
    let threads = launch.threads;
    let suggested = sides(&launch.kernel.suggest(threads)?);
    let sizes = all_sizes(threads, &launch.kernel);
    let mut known = sizes.clone();
    known.extend([usual, suggested]);
    launch.prepare(&known)?;
    launch.expect_same(usual, &known)?;
    let once = launch.run(usual, 1)?.min(launch.run(usual, 1)?);
    let count = (ROUND_NS / once.max(1)).clamp(1, MOST_LAUNCHES);
    let mut times = vec![u64::MAX; sizes.len()];
    for _ in 0..FIRST_ROUNDS {
        for (size, time) in sizes.iter().zip(&mut times) {
            *time = (launch.run(*size, count)? / count).min(*time);
        }
    }
    let fastest =
        times.iter().zip(&sizes).min_by_key(|(time, _)| **time).map_or(suggested, |(_, size)| *size);
    let tuned = launch.tune()?;
    launch.expect_same(usual, &[tuned])?;
    let mut compared: Vec<(Size, u64)> = Vec::new();
    for size in [usual, suggested, tuned, fastest] {
        if compared.iter().all(|(known, _)| *known != size) {
            compared.push((size, u64::MAX));
        }
    }
    for _ in 0..ROUNDS {
        for (size, time) in &mut compared {
            *time = (launch.run(*size, count)? / count).min(*time);
        }
    }
    let row = |size: Size| {
        let ns = compared.iter().find(|(known, _)| *known == size).map_or(u64::MAX, |(_, ns)| *ns);
        (size, ns)
    };
    let best = compared.iter().min_by_key(|(_, ns)| *ns).copied().unwrap_or(row(fastest));
    Ok(Row {
        name,
        threads,
        sizes: sizes.len(),
        usual: row(usual),
        suggested: row(suggested),
        tuned: row(tuned),
        best,
    })
}

/// The size that [`Kernel::tune_with`](elinvar::Kernel::tune_with) measures.
pub(super) fn tune(device: &Device, kernel: &Kernel, problem: &Problem) -> Result<Size> {
    launch_of(device, kernel.clone(), problem)?.tune()
}

fn sides(suggestion: &Suggestion) -> Size {
    suggestion.group.to_array().map(|side| side as usize)
}

/// Multiples of a simdgroup along x for one dimension; powers of two in each for more.
fn all_sizes(threads: Size, kernel: &Kernel) -> Vec<Size> {
    let most = MOST_THREADS.min(kernel.max_threads_per_threadgroup() as usize);
    if threads[1] <= 1 && threads[2] <= 1 {
        return (1..=most / 32).map(|simdgroups| [simdgroups * 32, 1, 1]).collect();
    }
    let powers =
        |from: u32, most: usize| (from..=10).map(|power| 1 << power).filter(move |side| *side <= most);
    let mut sizes = Vec::new();
    for x in powers(2, threads[0]) {
        for y in powers(0, threads[1]) {
            for z in powers(0, threads[2].min(64)) {
                if (32..=most).contains(&(x * y * z)) {
                    sizes.push([x, y, z]);
                }
            }
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_all_within_the_limits() {
        let library = Device::cpu().unwrap().compile(elinvar::Source::msl(
            "kernel void k(device float* a [[buffer(0)]], uint i [[thread_position_in_grid]]) { a[i] = 1.0f; }",
        ));
        let kernel = library.unwrap().kernel("k").unwrap();
        assert_eq!(all_sizes([4096, 1, 1], &kernel).len(), 32);
        let plane = all_sizes([512, 512, 1], &kernel);
        assert!(plane.contains(&[32, 8, 1]) && plane.contains(&[8, 8, 1]) && plane.len() > 30);
        assert!(
            all_sizes([128, 128, 128], &kernel)
                .iter()
                .all(|size| (32..=1024).contains(&size.iter().product::<usize>()))
        );
    }
}
