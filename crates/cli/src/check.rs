//! `elinvar check`: compiles files for targets, and lists what their kernels take and which targets support them.
//!
//! It uses the target's compiler without a launch, so that it needs neither arguments nor a device. Unless asked to, it does not
//! generate code for the target, which takes most of a compilation's time and rejects nothing that the passes before it accept.

mod compiler;
mod emit;
mod file_report;

use std::path::{Path, PathBuf};

use clap::Args;
use elinvar::{Dim3, Signature, Source};
use elinvar_code::Declared;
use elinvar_driver::{Constant, ConstantKey, FunctionConstant, PipelineOptions, Tier};
use serde_json::{Value, json};

use crate::constant;
use crate::failure::{Failure, Result};
use crate::parallel::{in_parallel, processors};
use crate::progress::Progress;
use crate::report::print_json;
use crate::selection::{KernelPattern, is_selected, unmatched};
use crate::source::{Math, SourceOptions};
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
    elinvar check gemm.metal --math safe --kernel 'gemm_*' --kernel 'affine_f?'\n  \
    elinvar check --syntax-only kernels/*.metal\n  \
    elinvar check gemm.metal --constant use_bias=true --constant 3=0.5f32\n  \
    elinvar check --github kernels/*.metal\n  \
    elinvar check --times examples/matmul.metal\n  \
    elinvar check --target cpu --target cuda:sm_90 kernels/*.metal\n  \
    elinvar check --target metal:apple7 --target metal:macos13 --target metal:msl2.4 kernels/*.metal\n  \
    elinvar check --emit ptx gemm.metal --kernel gemm\n  \
    elinvar check --emit asm gemm.metal --group 16,16\n\n\
    The status of each kernel for each target is one of: ok; unsupported, with the reason, such as a texture\n\
    parameter; not built, because values of function constants are missing; or error.\n\n\
    Warnings include code that Metal rejects and Elinvar accepts, such as a pointer to another address\n\
    space. A kernel that requires the value of a function constant is built if the value is given.\n\n\
    --syntax-only parses the files, checks all code and every explicit instantiation, and lists the kernels as\n\
    declared, in the time of one run of clang. Errors that depend on a target, and facts about a kernel's code\n\
    (barriers, atomics), are not determined.\n\n\
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
    /// The default is cpu, and cuda for --emit ptx. SYSTEM is a release of macOS or iOS, such as macos13 or ios16, or a version of the
    /// language, such as msl2.4.
    #[arg(long = "target", value_name = "cpu|cuda[:sm_NN]|metal[:appleN][:SYSTEM]")]
    targets: Vec<Target>,
    /// Check only kernels of this name, or whose names match a pattern such as `gemm_*`; may be repeated
    #[arg(long = "kernel", value_name = "K")]
    kernels: Vec<KernelPattern>,
    /// Only check the sources and list their kernels, without compiling each for a target
    #[arg(long, conflicts_with_all = ["targets", "constants", "emit", "codegen"])]
    syntax_only: bool,
    /// Floating-point math mode
    #[arg(long, value_enum, default_value = "fast")]
    math: Math,
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
        let progress = Progress::new(self.files.len());
        let mut reports: Vec<FileReport> = self
            .files
            .iter()
            .map(|file| {
                progress.begin(&file.to_string_lossy());
                let report = self.check(file, &constants);
                progress.end();
                report
            })
            .collect();
        drop(progress);
        self.expect_kernels(&mut reports);
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
            match self.options.load(file, self.math.into()) {
                Ok(source) => {
                    let what = (emit, target, self.group);
                    emit::print(what, &source, &self.kernels, constants, &mut report)?;
                }
                Err(failure) => report.fail(failure),
            }
            all.push(report);
        }
        self.expect_kernels(&mut all);
        all.iter().for_each(FileReport::print_diagnostics);
        expect_declared(constants, &all)?;
        expect_no_errors(&all)
    }

    fn check(&self, file: &Path, constants: &[Constant]) -> FileReport {
        let mut report = FileReport::new(file.display().to_string());
        match self.options.load(file, self.math.into()).map(Source::check_spaces) {
            Ok(source) if self.syntax_only => self.list(&source, &mut report),
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

    /// Enters the kernels of a source as they are declared.
    fn list(&self, source: &Source, report: &mut FileReport) {
        let (declared, times) = Times::of(None, || compiler::declarations(source));
        report.took(None, times);
        match declared {
            Ok(declared) => {
                report.declare(&declared);
                let is_selected = |name: &str| is_selected(&self.kernels, name);
                let kernels = declared.kernels.iter().filter(|kernel| is_selected(&kernel.name));
                kernels.for_each(|kernel| report.list(kernel));
                let unsupported = declared.unsupported.iter().filter(|kernel| is_selected(&kernel.name));
                unsupported.for_each(|kernel| report.enter_unsupported(None, kernel));
            }
            Err(error) => report.fail(error.into()),
        }
    }

    /// Reports patterns of `--kernel` that match no kernel of any file. If a file has errors, its kernels are unknown.
    fn expect_kernels(&self, reports: &mut [FileReport]) {
        if reports.iter().any(|report| !report.is_declared()) {
            return;
        }
        let place = match reports.len() {
            1 => "the source".to_owned(),
            count => format!("the {count} files"),
        };
        let known: Vec<&str> = reports.iter().flat_map(FileReport::declared).collect();
        let messages = unmatched(&self.kernels, &place, &known);
        if let Some(first) = reports.first_mut() {
            messages.into_iter().for_each(|message| first.fail(Failure::input(message)));
        }
    }

    /// How many kernels are compiled together: so many that starting clang counts little, and at least four batches for each processor, which
    /// take different times. Stages are timed by kernel.
    fn batch_size(&self, kernels: usize) -> usize {
        if self.times { 1 } else { (kernels / (4 * processors())).clamp(1, MAX_BATCH) }
    }

    fn check_for(&self, target: Target, source: &Source, constants: &[Constant], report: &mut FileReport) {
        let (compiler, times) = Times::of(None, || Compiler::new(target, source));
        report.took(Some(target), times);
        let compiler = match compiler {
            Ok(compiler) => compiler,
            Err(error) => return report.fail(error.into()),
        };
        let Declared { kernels, unsupported, .. } = compiler.declared();
        report.declare(compiler.declared());
        let own = constants.iter().filter(|c| report.constants.iter().any(|known| is(known, c)));
        let options =
            PipelineOptions { constants: own.cloned().collect(), checked: false, tier: Tier::Optimized };
        let wanted = |name: &str| is_selected(&self.kernels, name);
        let kernels: Vec<&Signature> = kernels.iter().filter(|kernel| wanted(&kernel.name)).collect();
        let build = |batch: &[&Signature]| {
            Times::of(Some(&batch[0].name), || compiler.build(batch, &options, self.codegen))
        };
        let batches: Vec<&[&Signature]> = kernels.chunks(self.batch_size(kernels.len())).collect();
        for (batch, (built, times)) in batches.iter().zip(in_parallel(&batches, build)) {
            report.took(Some(target), times);
            batch.iter().zip(built).for_each(|(kernel, built)| report.enter(target, kernel, built));
        }
        for kernel in unsupported.iter().filter(|kernel| wanted(&kernel.name)) {
            report.enter_unsupported(Some(target), kernel);
        }
    }
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
