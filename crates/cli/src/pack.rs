//! `elinvar pack`: compiles kernels ahead of time into a bundle.
//!
//! What compiles is packed; the rest is reported, and the exit code is 1.

mod manifest;
mod packer;
mod report;
mod selected;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use elinvar::{Dim3, Error, MathMode};
use elinvar_code::{Bundle, Declared};
use elinvar_driver::PipelineOptions;
use elinvar_native::SizeBound;
use serde_json::json;

use crate::constant;
use crate::failure::{Failure, Result};
use crate::output;
use crate::parallel::in_parallel;
use crate::progress::Progress;
use crate::report::{print_json, say};
use crate::selection::KernelPattern;
use crate::source::{Math, SourceOptions};
use crate::target::Target;
use crate::value::{parse_size, split_pair};
use packer::Packer;
use report::Report;
use selected::Selected;

/// Compile Metal files ahead of time into a bundle
#[derive(Args)]
#[command(after_help = "Examples:\n  elinvar pack kernels/*.metal -o kernels.bundle --target cuda:sm_90\n  \
    elinvar pack gemm.metal -o gemm.bundle --target cuda --constant use_bias=true --checked\n  \
    elinvar pack sum.metal -o sum.bundle --target cpu:x86-64-v3 --target cuda --group 64 --group 16,16\n  \
    elinvar pack gemm.metal -o gemm.bundle --target cuda --target metal --manifest kernels.toml\n  \
    elinvar pack gemm.metal -o gemm.bundle --target metal --metallib gemm.metallib\n  \
    elinvar run kernels.bundle --kernel vector_add …\n\n\
    A manifest lists kernels with the values of their function constants, and optionally with other options:\n  \
    [[kernel]]\n  name = \"gemm_*\"                           # a name or a pattern\n  \
    file = \"gemm.metal\"                       # only of this file\n  \
    constants = { use_bias = true, 3 = 0.5 }  # by name or index; arrays for vectors\n  \
    groups = [256, [16, 16]]                  # as --group\n  \
    math = \"safe\"                             # as --math\n  \
    checked = true                            # as --checked\n  \
    large-buffers = true                      # as --large-buffers\n\
    A kernel in several tables is packed in several specializations.\n\n\
    What cannot be compiled is reported, a line for each kernel and target, and the rest is packed; the exit code is then 1.\n\n\
    A bundle contains native code, which is executed without verification: load only bundles that you trust.")]
pub struct Pack {
    /// Metal source files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Output file
    #[arg(short = 'o', value_name = "BUNDLE")]
    bundle: PathBuf,
    /// Compilation target; may be repeated
    #[arg(long = "target", value_name = "cpu[:LEVEL]|cuda[:sm_NN]|metal", default_value = "cuda")]
    targets: Vec<Target>,
    /// Pack the kernels that this file lists
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["kernels", "constants"])]
    manifest: Option<PathBuf>,
    /// Threadgroup size for which CPU kernels are compiled; may be repeated
    #[arg(long = "group", value_name = "X[,Y[,Z]]", value_parser = parse_size, default_value = "256")]
    groups: Vec<Dim3>,
    /// Also compile CPU kernels for other threadgroup sizes, as one code that takes the size as a value. It is slower, and serves sizes that
    /// fill the processor's vectors; without it, kernels run with the packed sizes only
    #[arg(long)]
    any_group: bool,
    /// Also compile CPU kernels for buffers above 2 GiB
    #[arg(long)]
    large_buffers: bool,
    /// Value of a function constant, such as `7u32` or `true`; may be repeated
    #[arg(long = "constant", value_name = "NAME|INDEX=VALUE", value_parser = split_pair, allow_hyphen_values = true)]
    constants: Vec<(String, String)>,
    /// Compile only kernels of this name, or whose names match a pattern such as `gemm_*`; may be repeated
    #[arg(long = "kernel", value_name = "K")]
    kernels: Vec<KernelPattern>,
    /// Also compile each kernel with bounds checks
    #[arg(long)]
    checked: bool,
    /// Floating-point math mode
    #[arg(long, value_enum, default_value = "fast")]
    math: Math,
    /// For --target metal, a library that was compiled of a file on a Mac, in place of its text: of the only file, or of the one of
    /// this name except for the extension; may be repeated
    #[arg(long = "metallib", value_name = "FILE.metallib")]
    metallibs: Vec<PathBuf>,
    #[command(flatten)]
    options: SourceOptions,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A kernel in one specialization.
struct Job<'a> {
    kernel: &'a str,
    options: PipelineOptions,
    selected: &'a Selected,
}

impl Pack {
    pub fn run(self) -> Result<()> {
        let metallibs = self.metallibs()?;
        let mut selected = self.selected()?;
        let mut bundle = Bundle::default();
        let mut report = Report::default();
        let progress = Progress::new(self.files.len());
        for file in &self.files {
            progress.begin(&file.to_string_lossy());
            let metallib = metallibs.iter().find(|(of, _)| of == file).map(|(_, bytes)| bytes.as_slice());
            self.pack_file(file, metallib, &mut selected, &mut bundle, &mut report);
            progress.end();
        }
        drop(progress);
        report.expect_matched(&selected, self.files.len());
        report.print_missing();
        let name = self.bundle.display();
        if report.packed == 0 {
            return Err(Failure::input(format!("{name}: no kernel was packed, so it is not written")));
        }
        let bytes = bundle.to_bytes();
        let cannot = |error| Failure::input(format!("{name}: {error}"));
        output::replace(&self.bundle, |file| file.write_all(&bytes)).map_err(cannot)?;
        let (packed, missing) = (report.packed, report.missing.len());
        if self.json {
            let missing: Vec<_> = report.missing.iter().map(report::Missing::to_json).collect();
            let bundle = name.to_string();
            print_json(
                &json!({ "bundle": bundle, "kernels": packed, "bytes": bytes.len(), "missing": missing }),
            )?;
        } else {
            let plural = if packed == 1 { "" } else { "s" };
            let missing = if missing == 0 { String::new() } else { format!(", {missing} not packed") };
            say(format_args!("{name}: {packed} kernel{plural}, {} bytes{missing}", bytes.len()))?;
        }
        if missing == 0 { Ok(()) } else { Err(Failure::Reported(1)) }
    }

    /// The kernels to pack: those of the manifest, or of the command line.
    fn selected(&self) -> Result<Vec<Selected>> {
        let (math, large_buffers) = (MathMode::from(self.math), self.large_buffers);
        let default = |constants| Selected {
            kernels: self.kernels.clone(),
            constants,
            groups: self.groups.clone(),
            math,
            checked: self.checked,
            any_group: self.any_group,
            large_buffers,
            known: Vec::new(),
        };
        let Some(manifest) = &self.manifest else {
            let constants = constant::parse(&self.constants)?;
            return Ok(vec![default(selected::Constants::Given(constants))]);
        };
        let entries = manifest::read(manifest)?;
        entries.iter().try_for_each(|entry| entry.expect_file(&self.files))?;
        let entries = entries.into_iter().map(|entry| {
            let default = default(selected::Constants::Given(Vec::new()));
            Selected {
                kernels: vec![entry.kernels.clone()],
                groups: entry.groups.clone().unwrap_or(default.groups),
                math: entry.math.unwrap_or(math),
                checked: entry.checked.unwrap_or(self.checked),
                any_group: self.any_group,
                large_buffers: entry.large_buffers.unwrap_or(large_buffers),
                constants: selected::Constants::Manifest(entry),
                known: Vec::new(),
            }
        });
        Ok(entries.collect())
    }

    /// The compiled libraries, with the files that they were compiled of.
    fn metallibs(&self) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        if !self.metallibs.is_empty() && !self.targets.contains(&Target::Metal) {
            return Err(Failure::usage("--metallib needs --target metal"));
        }
        let mut found: Vec<(PathBuf, Vec<u8>)> = Vec::new();
        for path in &self.metallibs {
            let name = path.display();
            let bytes = std::fs::read(path).map_err(|error| Failure::input(format!("{name}: {error}")))?;
            let same = |file: &&PathBuf| self.files.len() == 1 || file.file_stem() == path.file_stem();
            let Some(file) = self.files.iter().find(same) else {
                let what = "no file on the command line has its name without the extension";
                return Err(Failure::usage(format!("--metallib {name}: {what}")));
            };
            if found.iter().any(|(known, _)| known == file) {
                let file = file.display();
                return Err(Failure::usage(format!("--metallib {name}: `{file}` has another library")));
            }
            found.push((file.clone(), bytes));
        }
        Ok(found)
    }

    /// Packs the kernels of a file that are selected. Errors are reported.
    fn pack_file(
        &self,
        file: &Path,
        metallib: Option<&[u8]>,
        selected: &mut [Selected],
        bundle: &mut Bundle,
        report: &mut Report,
    ) {
        let mut modes: Vec<MathMode> = Vec::new();
        for set in selected.iter().filter(|set| set.is_of(file)) {
            if !modes.contains(&set.math) {
                modes.push(set.math);
            }
        }
        for math in modes {
            let source = match self.options.load(file, math) {
                Ok(source) => source,
                Err(failure) => return report.fail_file(file, &failure),
            };
            for target in &self.targets {
                let packer = match Packer::new(*target, &source, metallib, bundle) {
                    Ok(packer) => packer,
                    Err(error) => return report.fail_file(file, &error.into()),
                };
                let declared = packer.declared();
                declared.warnings.iter().for_each(|warning| report.warn(warning.to_string()));
                let sets = selected.iter_mut().filter(|set| set.math == math && set.is_of(file));
                let jobs =
                    sets.flat_map(|set| jobs(set, *target, declared, report)).collect::<Vec<Job<'_>>>();
                let jobs: Vec<&Job<'_>> = jobs.iter().collect();
                for (job, (outcomes, own)) in jobs.iter().zip(in_parallel(&jobs, |job| pack(&packer, job))) {
                    bundle.extend(own);
                    enter(*target, job, declared, outcomes, report);
                }
            }
        }
    }
}

/// The kernels that are selected, with their options.
fn jobs<'a>(
    set: &'a mut Selected,
    target: Target,
    declared: &'a Declared,
    report: &mut Report,
) -> Vec<Job<'a>> {
    let names = declared.kernels.iter().map(|kernel| &kernel.name);
    for name in names.clone().chain(declared.unsupported.iter().map(|kernel| &kernel.name)) {
        if !set.known.contains(name) {
            set.known.push(name.clone());
        }
    }
    for kernel in declared.unsupported.iter().filter(|kernel| set.selects(&kernel.name)) {
        report.miss(&kernel.name, target, &kernel.reason.to_string());
    }
    let kernels: Vec<&str> = names.map(String::as_str).filter(|name| set.selects(name)).collect();
    if kernels.is_empty() {
        return Vec::new();
    }
    let set = &*set;
    match set.constants(&declared.constants) {
        Ok(constants) => {
            let options = PipelineOptions { constants, checked: false, ..PipelineOptions::default() };
            kernels
                .into_iter()
                .map(|kernel| Job { kernel, options: options.clone(), selected: set })
                .collect()
        }
        Err(failure) => {
            kernels.iter().for_each(|kernel| report.miss(kernel, target, &failure.to_string()));
            Vec::new()
        }
    }
}

type Outcome = elinvar::Result<()>;

/// Packs a kernel into a bundle of its own, without bounds checks and, if they are selected, with them.
fn pack(packer: &Packer, job: &Job<'_>) -> ((Outcome, Option<Outcome>), Bundle) {
    let Job { kernel, options, selected } = job;
    let mut bundle = Bundle::default();
    let bounds = [SizeBound::DEFAULT, SizeBound::NONE];
    let bounds = &bounds[..1 + usize::from(selected.large_buffers)];
    let plain = packer.pack(kernel, options, &selected.groups, selected.any_group, bounds, &mut bundle);
    let checked = (selected.checked && plain.is_ok()).then(|| {
        let options = PipelineOptions { checked: true, ..options.clone() };
        packer.pack(kernel, &options, &selected.groups, selected.any_group, bounds, &mut bundle)
    });
    ((plain, checked), bundle)
}

/// Reports what became of a kernel.
fn enter(
    target: Target,
    job: &Job<'_>,
    declared: &Declared,
    (plain, checked): (Outcome, Option<Outcome>),
    report: &mut Report,
) {
    let Job { kernel, options, selected } = job;
    match plain {
        Ok(()) => report.packed += 1,
        // One that needs constants and that nobody has asked for is not wrong.
        Err(Error::InvalidArgument(why))
            if selected.kernels.is_empty() && declared.constants.len() > options.constants.len() =>
        {
            let known = declared.kernels.iter().find(|known| known.name == *kernel);
            let place = known.map_or_else(String::new, |known| format!("{}:{}: ", known.file, known.line));
            report.warn(format!("{place}warning: {why}; it is not packed, give values with --constant"));
        }
        Err(error) => report.miss(kernel, target, &error.to_string()),
    }
    if let Some(Err(error)) = checked {
        report.miss(kernel, target, &format!("with bounds checks: {error}"));
    }
}
