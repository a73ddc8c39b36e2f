//! `elinvar check`: compiles files for targets, and lists what their kernels take and which targets support them.
//!
//! It uses the target's compiler without a launch, so that it needs neither arguments nor a device. Unless asked to, it does not
//! generate code for the target, which takes most of a compilation's time and rejects nothing that the passes before it accept.

mod compiler;
mod emit;
mod file_report;

use std::path::{Path, PathBuf};

use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use elinvar::{Dim3, MathMode, Signature, Source};
use elinvar_code::Declared;
use elinvar_driver::{Constant, ConstantKey, FunctionConstant, PipelineOptions, Tier};
use serde_json::{Value, json};

use crate::constant;
use crate::failure::{Failure, Result};
use crate::report::print_json;
use crate::source::SourceOptions;
use crate::stages::Times;
use crate::target::Target;
use crate::value::{parse_size, split_pair};
use compiler::Compiler;
use emit::Emit;
use file_report::FileReport;

/// Most kernels that are compiled together. With twice as many, starting clang saves another 2 %, and an error repeats more work.
const MAX_BATCH: usize = 10;

/// Compile Metal files separately, and print the parameters of their kernels
#[derive(Args)]
#[command(after_help = "Examples:\n  elinvar check examples/matmul.metal\n  \
    elinvar check -I include -D TILE=16 kernels/*.metal\n  \
    elinvar check examples/reduce.metal --kernel reduce --json\n  \
    elinvar check gemm.metal --constant use_bias=true --constant 3=0.5f32\n  \
    elinvar check --github kernels/*.metal\n  \
    elinvar check --times examples/matmul.metal\n  \
    elinvar check --target cpu --target cuda:sm_90 kernels/*.metal\n  \
    elinvar check --emit ptx gemm.metal --kernel gemm\n  \
    elinvar check --emit asm gemm.metal --group 16,16\n\n\
    The status of each kernel for each target is one of: ok; unsupported, with the reason, such as a texture\n\
    parameter; not built, because values of function constants are missing; or error.\n\n\
    Warnings include code that Metal rejects and Elinvar accepts, such as a pointer to another address\n\
    space. A kernel that requires the value of a function constant is built if the value is given.\n\n\
    Stages: cache (lookup), preprocess, header (the precompiled header, concurrent with preprocess), rewrite,\n\
    select (of overloaded kernel templates), check, spaces; then for each kernel precompile (of the source, for the\n\
    second kernel), entry, define, optimize, parse, passes, codegen, link, load.\n\n\
    --emit prints the code of all kernels, or of --kernel, in source order. Each kernel's code starts with a\n\
    comment with its name, location and target, and ends with an empty line.\n\n\
    Environment: ELINVAR_DUMP=PASS,... or all writes the IR after each named compiler pass to the folder\n\
    ELINVAR_DUMP_DIR (elinvar-dump if not set); code from the cache is not dumped, so set ELINVAR_CACHE=off.\n\
    ELINVAR_VERIFY_EACH=1 verifies the IR after each pass.\n\n\
    The exit code is 1 if a file or a kernel has errors, or a target does not support a kernel.")]
pub struct Check {
    /// Metal source files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    options: SourceOptions,
    /// Compilation target; may be repeated
    ///
    /// The default is cpu, and cuda for --emit ptx.
    #[arg(long = "target", value_name = "cpu|cuda[:sm_NN]")]
    targets: Vec<Target>,
    /// Check only this kernel
    #[arg(long, value_name = "K")]
    kernel: Option<String>,
    /// Value of a function constant, such as `7u32` or `true`; may be repeated
    #[arg(long = "constant", value_name = "NAME|INDEX=VALUE", value_parser = split_pair, allow_hyphen_values = true)]
    constants: Vec<(String, String)>,
    /// Print only the kernels' code, in this form
    #[arg(long, value_enum, value_name = "FORM", conflicts_with_all = ["json", "github", "times"])]
    emit: Option<Emit>,
    /// Threadgroup size for --emit vector-ir and --emit asm
    ///
    /// The default is 256 threads along x, or the kernel's maximum if it is lower.
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = parse_size, requires = "emit")]
    group: Option<Dim3>,
    /// Generate code for the target too
    #[arg(long, conflicts_with = "emit")]
    codegen: bool,
    /// Print the duration of each stage of the compilation, for the source and for each kernel
    ///
    /// Each kernel is compiled separately, which takes longer than a check without durations.
    #[arg(long)]
    times: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print only diagnostics, as annotations for GitHub Actions
    #[arg(long, conflicts_with = "json")]
    github: bool,
}

impl Check {
    pub fn run(self) -> Result<()> {
        let constants = constant::parse(&self.constants)?;
        if let Some(emit) = self.emit {
            return self.emit(emit, &constants);
        }
        let reports: Vec<FileReport> = self.files.iter().map(|file| self.check(file, &constants)).collect();
        expect_declared(&constants, &reports)?;
        if self.json {
            let files: Vec<Value> = reports.iter().map(|report| report.to_json(self.times)).collect();
            print_json(&json!({ "files": files }))?;
        } else if self.github {
            reports.iter().try_for_each(FileReport::annotate)?;
        } else {
            reports.iter().try_for_each(|report| report.print(self.times))?;
        }
        expect_no_errors(&reports)
    }

    fn emit(&self, emit: Emit, constants: &[Constant]) -> Result<()> {
        let target = emit.target(&self.targets)?;
        let mut all = Vec::new();
        for file in &self.files {
            let mut report = FileReport::new(file.display().to_string());
            match self.options.load(file, MathMode::default()) {
                Ok(source) => {
                    let what = (emit, target, self.group);
                    emit::print(what, &source, self.kernel.as_deref(), constants, &mut report)?;
                }
                Err(failure) => report.fail(failure),
            }
            report.print_diagnostics();
            all.push(report);
        }
        expect_declared(constants, &all)?;
        expect_no_errors(&all)
    }

    fn check(&self, file: &Path, constants: &[Constant]) -> FileReport {
        let mut report = FileReport::new(file.display().to_string());
        match self.options.load(file, MathMode::default()).map(Source::check_spaces) {
            Ok(source) => {
                let cpu = [Target::Cpu(None)];
                for target in if self.targets.is_empty() { &cpu[..] } else { &self.targets } {
                    self.check_for(*target, &source, constants, &mut report);
                }
            }
            Err(failure) => report.fail(failure),
        }
        report
    }

    /// How many kernels are compiled together: so many that starting clang counts little, and at least four batches for each processor, which
    /// take different times. Stages are timed by kernel.
    fn batch_size(&self, kernels: usize) -> usize {
        if self.times { 1 } else { (kernels / (4 * processors())).clamp(1, MAX_BATCH) }
    }

    fn check_for(&self, target: Target, source: &Source, constants: &[Constant], report: &mut FileReport) {
        let (compiler, times) = Times::of(None, || Compiler::new(target, source));
        report.took(target, times);
        let compiler = match compiler {
            Ok(compiler) => compiler,
            Err(error) => return report.fail(error.into()),
        };
        let Declared { kernels, unsupported, constants: declared, warnings } = compiler.declared();
        warnings.iter().for_each(|warning| report.note(warning));
        report.constants = declared.clone();
        let own = constants.iter().filter(|c| report.constants.iter().any(|known| is(known, c)));
        let options =
            PipelineOptions { constants: own.cloned().collect(), checked: false, tier: Tier::Optimized };
        let wanted = |name: &str| self.kernel.as_deref().is_none_or(|kernel| kernel == name);
        let kernels: Vec<&Signature> = kernels.iter().filter(|kernel| wanted(&kernel.name)).collect();
        let build = |batch: &[&Signature]| {
            Times::of(Some(&batch[0].name), || compiler.build(batch, &options, self.codegen))
        };
        let batches: Vec<&[&Signature]> = kernels.chunks(self.batch_size(kernels.len())).collect();
        for (batch, (built, times)) in batches.iter().zip(in_parallel(&batches, build)) {
            report.took(target, times);
            batch.iter().zip(built).for_each(|(kernel, built)| report.enter(target, kernel, built));
        }
        for kernel in unsupported.iter().filter(|kernel| wanted(&kernel.name)) {
            report.enter_unsupported(target, kernel);
        }
        if let Some(name) = &self.kernel
            && !report.has(name)
            && let Err(error) = compiler.signature(name, &options)
        {
            report.fail(error.into());
        }
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The results for all items, in their order, computed by as many threads as there are processors.
fn in_parallel<I: Copy + Sync, T: Send>(items: &[I], work: impl Fn(I) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let threads = processors().min(items.len());
    let run = || {
        let mut done = Vec::new();
        while let Some((index, item)) = items.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((index, work(*item)));
        }
        done
    };
    let mut all: Vec<(usize, T)> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let joined = started.into_iter().map(|thread| thread.join());
        joined.flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}

/// Whether a value is for this constant.
pub fn is(known: &FunctionConstant, given: &Constant) -> bool {
    match &given.key {
        ConstantKey::Index(index) => known.index == *index,
        ConstantKey::Name(name) => known.name == *name,
    }
}

/// Fails with the highest exit code of all files.
fn expect_no_errors(files: &[FileReport]) -> Result<()> {
    match files.iter().filter_map(FileReport::exit_code).max() {
        Some(code) => Err(Failure::Reported(code)),
        None => Ok(()),
    }
}

/// Rejects a constant that no file declares.
fn expect_declared(constants: &[Constant], files: &[FileReport]) -> Result<()> {
    let compiled = files.iter().all(|file| !file.has_errors());
    let unknown =
        constants.iter().find(|given| !files.iter().flat_map(|f| &f.constants).any(|c| is(c, given)));
    match unknown.filter(|_| compiled) {
        Some(Constant { key: ConstantKey::Name(name), .. }) => {
            Err(Failure::input(format!("--constant {name}: no file declares a function constant `{name}`")))
        }
        Some(Constant { key: ConstantKey::Index(index), .. }) => Err(Failure::input(format!(
            "--constant {index}: no file declares a function constant with index {index}"
        ))),
        None => Ok(()),
    }
}
