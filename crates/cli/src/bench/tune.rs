//! `elinvar bench tune`: the threadgroup sizes that `Kernel::tune` finds and `Kernel::suggest` expects, against all sizes and against 256 threads.
//!
//! All sizes are measured first. Then the fastest, the tuned, the suggested and the usual size are measured again in turns, so that disturbances
//! affect all of them, and their shortest times are compared.

use elinvar::{Device, Grid, Kernel, KernelOptions, Stream, Suggestion, Tier, Tuning};
use serde_json::json;

use super::carried::compile;
use super::cpu::problem::Problem;
use super::cpu::{Build, Contestant as _, OnDevice, PROBLEMS};
use super::{Context, machine_name};
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::report::{print_json, print_table, say, time_text};

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
/// Target duration of a measurement.
const ROUND_NS: u64 = 3_000_000;
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

/// Measures the problems of these names, or all.
pub fn run(context: &Context, names: &[String], json: bool) -> Result<()> {
    if let Some(unknown) = names.iter().find(|name| !ANY_SIZE.contains(&name.as_str())) {
        return Err(Failure::usage(format!("`{unknown}` is not among {}", ANY_SIZE.join(", "))));
    }
    let wanted =
        |name: &str| ANY_SIZE.contains(&name) && (names.is_empty() || names.iter().any(|n| n == name));
    let problems: Vec<(&'static str, Build)> =
        PROBLEMS.into_iter().filter(|(name, _)| wanted(name)).collect();
    let progress = Progress::new(problems.len());
    let mut rows = Vec::new();
    for (name, build) in problems {
        progress.begin(name);
        let mut problem = build();
        rows.push(measure(context, name, &problem)?);
        for (_, threads) in FEW.into_iter().filter(|(few, _)| *few == name) {
            (problem.threads, problem.group) = ([threads, 1, 1], [threads.min(256), 1, 1]);
            rows.push(measure(context, name, &problem)?);
        }
        progress.end();
    }
    drop(progress);
    let mean = |of: fn(&Row) -> f64| {
        (rows.iter().map(|row| of(row).ln()).sum::<f64>() / rows.len().max(1) as f64).exp()
    };
    let (of_suggestion, gain, of_best) = (mean(Row::of_suggestion), mean(Row::gain), mean(Row::of_best));
    if json {
        let one = |(size, ns): (Size, u64)| json!({ "group": size, "ns": ns });
        let row = |row: &Row| json!({ "name": row.name, "threads": row.threads, "sizes": row.sizes, "usual": one(row.usual), "suggested": one(row.suggested), "tuned": one(row.tuned), "best": one(row.best) });
        return print_json(&json!({
            "device": machine_name(&context.device), "threads": context.threads, "gain": gain, "of_best": of_best, "of_suggestion": of_suggestion,
            "kernels": rows.iter().map(row).collect::<Vec<_>>(),
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
    ))
}

fn size_text([x, y, z]: Size) -> String {
    match (y, z) {
        (1, 1) => x.to_string(),
        (_, 1) => format!("{x}x{y}"),
        _ => format!("{x}x{y}x{z}"),
    }
}

fn measure(context: &Context, name: &'static str, problem: &Problem) -> Result<Row> {
    let device = &context.device;
    let library = compile(device, format!("{}.metal", problem.file), problem.metal)?;
    let kernel = library.kernel_with(problem.kernel, KernelOptions::new().tier(Tier::Optimized))?;
    let suggested = sides(&kernel.suggest(problem.threads)?);
    let sizes = all_sizes(problem.threads, &kernel);
    let mut held = Vec::new();
    for size in &sizes {
        held.push(OnDevice::with(device, kernel.clone(), problem.threads, *size, &problem.args)?);
    }
    let once = held.first_mut().map_or(Ok(1), |first| first.run(1).and_then(|_| first.run(1)))?;
    let count = (ROUND_NS / once.max(1)).clamp(1, 200);
    let mut times = vec![u64::MAX; sizes.len()];
    for _ in 0..FIRST_ROUNDS {
        for (held, time) in held.iter_mut().zip(&mut times) {
            *time = (held.run(count)? / count).min(*time);
        }
    }
    let fastest =
        times.iter().zip(&sizes).min_by_key(|(time, _)| **time).map_or(suggested, |(_, size)| *size);
    drop(held);
    let tuned = tune(device, &kernel, problem)?;
    let compared = [problem.group, suggested, tuned, fastest];
    let mut again = Vec::new();
    for size in compared {
        again.push((OnDevice::with(device, kernel.clone(), problem.threads, size, &problem.args)?, u64::MAX));
    }
    for _ in 0..ROUNDS {
        for (held, time) in &mut again {
            *time = (held.run(count)? / count).min(*time);
        }
    }
    // The same size has the same time.
    let time = |size: Size| {
        let same = compared.into_iter().zip(&again).filter(|(other, _)| *other == size);
        same.map(|(_, (_, time))| *time).min().unwrap_or(u64::MAX)
    };
    let best = compared.into_iter().min_by_key(|size| time(*size)).unwrap_or(fastest);
    let row = |size: Size| (size, time(size));
    Ok(Row {
        name,
        threads: problem.threads,
        sizes: sizes.len(),
        usual: row(problem.group),
        suggested: row(suggested),
        tuned: row(tuned),
        best: row(best),
    })
}

/// The size that [`Kernel::tune_with`] measures.
#[allow(unsafe_code)] // launches
pub(super) fn tune(device: &Device, kernel: &Kernel, problem: &Problem) -> Result<Size> {
    let mut held = OnDevice::with(device, kernel.clone(), problem.threads, problem.group, &problem.args)?;
    let stream: Stream = device.stream()?;
    let args = held.args();
    // SAFETY: the sizes of a problem are those of its kernel's arguments.
    let found =
        unsafe { kernel.tune_with(&stream, Grid::threads(problem.threads), &args, Tuning::Measured) }?;
    Ok(sides(&found))
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
