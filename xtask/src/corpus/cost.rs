//! `cargo xtask corpus --cost`: the size of kernels' code, and the time that compiling them takes, for this machine's processor.
//!
//! The first launch waits for the code of its tier, which is unoptimized if optimization is costly; then optimized code is made, too. No cache
//! is used. A kernel's growth is the number of instructions of its vectorized function, without those of an empty kernel's (the loops over
//! threadgroups and vectors), divided by that of its scalar code. The budget for it holds over all measured kernels: the sample, or with
//! `--all` every kernel.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use elinvar_cache::Cache;
use elinvar_code::max_threads;
use elinvar_driver::{Dim3, Error, PipelineOptions, Source, Tier};
use elinvar_ir::Module;
use elinvar_native::{Compiler, Form, SizeBound, Target};

use super::sources::Corpus;
use super::{constants, in_parallel, run, sample};

/// Largest median and largest growth.
const BUDGET: [f64; 2] = [8.0, 40.0];
/// Threads of a threadgroup along x, if the kernel allows as many.
const THREADS: u32 = 256;
/// Number of kernels that the report lists.
const LISTED: usize = 12;

/// One compiled kernel.
pub(super) struct Cost {
    file: String,
    kernel: String,
    /// Instructions of the scalar code and of the vectorized function.
    instructions: [usize; 2],
    object_bytes: usize,
    /// Of the front end, the passes, and code generation for the first launch.
    seconds: [f64; 3],
    /// Optimization in the background.
    later: Later,
}

/// What follows the first launch.
#[derive(Clone, Copy)]
enum Later {
    /// Nothing: its code was optimized.
    Nothing,
    /// Optimized code, after so many seconds of code generation.
    Optimized(f64),
    /// Optimization exceeded a limit, after so many seconds.
    Killed(f64),
}

impl Cost {
    fn growth(&self) -> f64 {
        self.instructions[1] as f64 / self.instructions[0].max(1) as f64
    }

    /// Seconds until the kernel can be launched.
    fn first_launch(&self) -> f64 {
        self.seconds.iter().sum()
    }

    /// Seconds until the kernel is optimized.
    fn total(&self) -> f64 {
        match self.later {
            Later::Nothing => self.first_launch(),
            Later::Optimized(code) | Later::Killed(code) => self.first_launch() + self.seconds[1] + code,
        }
    }
}

/// The costs of a corpus' kernels, and what was not compiled, with the reason.
pub(super) fn measure(
    corpus: &Corpus,
    folder: &Path,
    all: bool,
    part: Option<&str>,
) -> anyhow::Result<(Vec<Cost>, Vec<String>)> {
    let (mut names, _) = corpus.files(folder, &mut BTreeSet::new())?;
    names.retain(|name| corpus.refusal(name).is_none());
    let (mut costs, mut failures) = (Vec::new(), Vec::new());
    let mut compilers = Vec::new();
    for (name, compiler) in names.iter().zip(in_parallel(&names, |name| compiler(corpus, folder, name))) {
        match compiler {
            Ok(compiler) => compilers.push((name, compiler)),
            Err(why) => failures.push(format!("{name}: {why}")),
        }
    }
    let kernels: Vec<(&str, &Compiler, &str)> = compilers
        .iter()
        .flat_map(|(name, compiler)| {
            let of = move |kernel| (name.as_str(), compiler, kernel);
            chosen(compiler, all, part).into_iter().map(of)
        })
        .collect();
    for one in in_parallel(&kernels, |(name, compiler, kernel)| {
        cost(compiler, name, kernel).map_err(|error| format!("{name}: `{kernel}`: {error}"))
    }) {
        match one {
            Ok(cost) => costs.push(cost),
            Err(why) => failures.push(why),
        }
    }
    Ok((costs, failures))
}

fn compiler(corpus: &Corpus, folder: &Path, name: &str) -> Result<Compiler, String> {
    let source = run::source(corpus, folder, name)?;
    let target = Target::from_env().map_err(|error| error.to_string())?;
    Compiler::new(&Cache::off(), &source, target).map_err(|error| error.to_string())
}

/// Names of the kernels that are measured: all, those with a part in their name, or a sample.
fn chosen<'c>(compiler: &'c Compiler, all: bool, part: Option<&str>) -> Vec<&'c str> {
    let names: Vec<&str> = compiler.declared().kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    match part {
        Some(part) => names.into_iter().filter(|name| name.contains(part)).collect(),
        None if all => names,
        None => sample(names.len()).into_iter().map(|index| names[index]).collect(),
    }
}

fn cost(compiler: &Compiler, file: &str, kernel: &str) -> Result<Cost, Error> {
    let options = &PipelineOptions {
        constants: constants(&compiler.declared().constants),
        checked: false,
        tier: Tier::Adaptive,
    };
    let start = Instant::now();
    let signature = compiler.signature(kernel, options)?;
    let front = start.elapsed().as_secs_f64();
    let form = Form {
        group: Some(Dim3::from(max_threads(&signature).min(THREADS))),
        stoppable: false,
        objects: SizeBound::DEFAULT,
    };
    let scalar = instructions(&compiler.ir(kernel, options)?)?;
    let start = Instant::now();
    let vector = compiler.vector_ir(kernel, options, form)?;
    let passes = start.elapsed().as_secs_f64();
    let vector = instructions(&vector)?.saturating_sub(empty()?);
    let code = |tier| {
        let (start, options) = (Instant::now(), PipelineOptions { tier, ..options.clone() });
        let made = compiler.kernel_with(kernel, &options, form, |_| Ok(()))?;
        Ok::<_, Error>((made, (start.elapsed().as_secs_f64() - passes).max(0.0)))
    };
    let (first, seconds) = code(Tier::Adaptive)?;
    let (later, object) = match first.optimizable {
        false => (Later::Nothing, first.object),
        true => {
            let (optimized, seconds) = code(Tier::Optimized)?;
            let later = if optimized.object.optimized { Later::Optimized } else { Later::Killed };
            (later(seconds), optimized.object)
        }
    };
    Ok(Cost {
        file: file.into(),
        kernel: kernel.into(),
        instructions: [scalar, vector],
        object_bytes: object.bytes.len(),
        seconds: [front, passes, seconds],
        later,
    })
}

/// Number of instructions of an empty kernel's vectorized function.
fn empty() -> Result<usize, Error> {
    static COUNT: OnceLock<usize> = OnceLock::new();
    if let Some(count) = COUNT.get() {
        return Ok(*count);
    }
    let source = Source::msl("kernel void empty(device float* x) {}");
    let compiler = Compiler::new(&Cache::off(), &source, Target::from_env()?)?;
    let form = Form { group: Some(Dim3::from(THREADS)), stoppable: false, objects: SizeBound::DEFAULT };
    let count = instructions(&compiler.vector_ir("empty", &PipelineOptions::default(), form)?)?;
    Ok(*COUNT.get_or_init(|| count))
}

fn instructions(text: &str) -> Result<usize, Error> {
    let module = Module::parse(text).map_err(|error| Error::Environment(error.to_string()))?;
    Ok(module.functions.iter().flat_map(|f| &f.blocks).map(|block| block.insts.len() + 1).sum())
}

/// A report of the largest and slowest kernels, and whether the budget holds and every kernel was compiled.
pub(super) fn report(costs: &mut [Cost], failures: &[String]) -> (String, bool) {
    let mut text = String::new();
    let mut list = |title: &str, costs: &[Cost]| {
        let _ = writeln!(text, "{title}:");
        for cost in costs.iter().take(LISTED) {
            let ([scalar, vector], [front, passes, code]) = (cost.instructions, cost.seconds);
            let later = match cost.later {
                Later::Nothing => String::new(),
                Later::Optimized(seconds) => format!(", optimized in {seconds:.2}"),
                Later::Killed(seconds) => format!(", not optimized in {seconds:.2}"),
            };
            let _ = writeln!(
                text,
                "  {:5.1} x ({scalar} to {vector})  {:6.2} s (front end {front:.2}, passes {passes:.2}, code {code:.2}{later})  {:5} kB  {} {}",
                cost.growth(),
                cost.first_launch(),
                cost.object_bytes / 1024,
                cost.file,
                cost.kernel
            );
        }
    };
    costs.sort_by(|a, b| b.total().total_cmp(&a.total()));
    list("slowest until optimized", costs);
    let total = [middle(costs, Cost::total), costs.first().map_or(0.0, Cost::total)];
    costs.sort_by(|a, b| b.first_launch().total_cmp(&a.first_launch()));
    list("slowest first launch", costs);
    let first = [middle(costs, Cost::first_launch), costs.first().map_or(0.0, Cost::first_launch)];
    let later = costs.iter().filter(|cost| !matches!(cost.later, Later::Nothing)).count();
    let killed = costs.iter().filter(|cost| matches!(cost.later, Later::Killed(_))).count();
    costs.sort_by(|a, b| b.growth().total_cmp(&a.growth()));
    list("largest growth", costs);
    let growth = [middle(costs, Cost::growth), costs.first().map_or(0.0, Cost::growth)];
    for failure in failures {
        let _ = writeln!(text, "not compiled: {failure}");
    }
    let within = growth.iter().zip(BUDGET).all(|(growth, most)| *growth <= most);
    let _ = writeln!(
        text,
        "{} kernels compiled, {} not; growth {:.1} at the median, {:.1} at worst (budget {} and {}{})\n\
         first launch after {:.2} s at the median, {:.2} s at worst; {later} unoptimized\n\
         optimized after {:.2} s at the median, {:.2} s at worst; {killed} exceeded a limit",
        costs.len(),
        failures.len(),
        growth[0],
        growth[1],
        BUDGET[0],
        BUDGET[1],
        if within { "" } else { ", exceeded" },
        first[0],
        first[1],
        total[0],
        total[1]
    );
    (text, within && failures.is_empty())
}

/// The median.
fn middle(costs: &[Cost], of: impl Fn(&Cost) -> f64) -> f64 {
    let mut values: Vec<f64> = costs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(scalar: usize, vector: usize) -> Cost {
        let (file, kernel) = ("f.metal".into(), "k".into());
        Cost {
            file,
            kernel,
            instructions: [scalar, vector],
            object_bytes: 2048,
            seconds: [0.1, 0.2, 0.3],
            later: Later::Nothing,
        }
    }

    #[test]
    fn the_budget_is_for_the_median_and_the_worst() {
        let holds = |growths: &[usize]| {
            let mut costs: Vec<Cost> = growths.iter().map(|growth| cost(10, growth * 10)).collect();
            report(&mut costs, &[]).1
        };
        assert!(holds(&[1, 8, 40]) && !holds(&[1, 8, 41]) && !holds(&[1, 9, 9]));
        assert!(!report(&mut [cost(1, 1)], &["f: killed".into()]).1);
    }

    #[test]
    fn instructions_are_those_of_all_functions() {
        let text =
            "define void @f() {\n  %x = add i32 1, 2\n  ret void\n}\ndefine void @g() {\n  ret void\n}\n";
        assert_eq!(instructions(text).ok(), Some(3));
    }
}
