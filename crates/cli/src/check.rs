//! `elinvar check`: whether files compile for a target, and what their kernels take.
//!
//! It goes through the target's driver and not through a launch, so that it needs no arguments. Each kernel
//! is built for a threadgroup of one simdgroup, because some kernels are refused only then.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use elinvar::{DeviceKind, Diagnostic, Dim3, Error, MathMode, Severity, Signature, Source};
use elinvar_driver::{Driver, PipelineOptions};
use serde_json::{Value, json};

use crate::failure::{Failure, Result, exit_code};
use crate::report::{print_json, say};
use crate::select::absent;
use crate::signature;
use crate::source::SourceOptions;

/// Compile Metal files, each on its own, and print what their kernels take
#[derive(Args)]
#[command(after_help = "Examples:\n  elinvar check examples/matmul.metal\n  \
    elinvar check -I include -D TILE=16 kernels/*.metal\n  \
    elinvar check examples/reduce.metal --kernel reduce --json\n\n\
    Exit code 1 when a file or a kernel has errors.")]
pub struct Check {
    /// Metal source files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    options: SourceOptions,
    /// What to compile for
    #[arg(long, value_enum, default_value = "cpu")]
    target: Target,
    /// Look at this kernel only
    #[arg(long, value_name = "K")]
    kernel: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Target {
    Cpu,
    Cuda,
}

/// What came of one file.
struct Checked {
    file: String,
    kernels: Vec<Signature>,
    diagnostics: Vec<Diagnostic>,
    /// Refusals that have no place in the source.
    failures: Vec<Failure>,
}

impl Check {
    pub fn run(self) -> Result<()> {
        let device = target_device(self.target)?;
        let checked: Vec<Checked> =
            self.files.iter().map(|file| self.check(&*device, file)).collect::<Result<_>>()?;
        if self.json {
            let files: Vec<Value> = checked.iter().map(Checked::to_json).collect();
            print_json(&json!({ "files": files }))?;
        } else {
            checked.iter().try_for_each(Checked::print)?;
        }
        match checked.iter().filter_map(Checked::exit_code).max() {
            Some(code) => Err(Failure::Reported(code)),
            None => Ok(()),
        }
    }

    fn check(&self, device: &dyn elinvar_driver::Device, file: &Path) -> Result<Checked> {
        let mut checked = Checked {
            file: file.display().to_string(),
            kernels: Vec::new(),
            diagnostics: Vec::new(),
            failures: Vec::new(),
        };
        let compiled = self
            .options
            .load(file, MathMode::default())
            .map(Source::check_spaces)
            .and_then(|source| device.compile(&source).map_err(Failure::from));
        let library = match compiled {
            Ok(library) => library,
            Err(failure) => {
                checked.add(failure);
                return Ok(checked);
            }
        };
        checked.diagnostics.extend(library.warnings().iter().cloned());
        let names: Vec<&str> = match &self.kernel {
            Some(name) => vec![name],
            None => library.kernels().iter().map(|kernel| kernel.name.as_str()).collect(),
        };
        for name in names {
            if let Err(error) = checked.build(&*library, name) {
                checked.add(error.into());
            }
        }
        Ok(checked)
    }
}

fn target_device(target: Target) -> Result<Arc<dyn elinvar_driver::Device>> {
    match target {
        Target::Cuda => Err(absent(DeviceKind::Cuda, 0).into()),
        Target::Cpu => {
            let devices = elinvar_driver_cpu::driver().devices()?;
            Ok(devices.into_iter().next().ok_or_else(|| absent(DeviceKind::Cpu, 0))?)
        }
    }
}

impl Checked {
    /// Builds one kernel; its signature is listed even if it is refused.
    fn build(&mut self, library: &dyn elinvar_driver::Library, name: &str) -> Result<(), Error> {
        let pipeline = match library.pipeline(name, &PipelineOptions::default()) {
            Ok(pipeline) => pipeline,
            Err(error) => {
                self.kernels.extend(library.kernels().iter().find(|k| k.name == name).cloned());
                return Err(error);
            }
        };
        self.kernels.push(pipeline.signature().clone());
        pipeline.prepare(Dim3::from(pipeline.max_threads_per_threadgroup().min(32)))
    }

    fn add(&mut self, failure: Failure) {
        match failure {
            Failure::Runtime(Error::Compile(diagnostics)) => self.diagnostics.extend(diagnostics),
            other => self.failures.push(other),
        }
    }

    fn exit_code(&self) -> Option<u8> {
        let wrong = self.diagnostics.iter().any(|d| d.severity == Severity::Error);
        let compile = wrong.then(|| exit_code(&Error::Compile(Vec::new())));
        self.failures.iter().map(Failure::exit_code).chain(compile).max()
    }

    fn print(&self) -> Result<()> {
        for kernel in &self.kernels {
            say(format_args!("{}\n", signature::text(kernel)))?;
        }
        for diagnostic in &self.diagnostics {
            eprintln!("{diagnostic}");
        }
        for failure in &self.failures {
            eprintln!("error: {failure}");
        }
        if self.exit_code().is_none() {
            let count = self.kernels.len();
            let plural = if count == 1 { "" } else { "s" };
            say(format_args!("{}: {count} kernel{plural}, no errors", self.file))?;
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let kernels: Vec<Value> = self.kernels.iter().map(signature::to_json).collect();
        let diagnostics: Vec<Value> = self.diagnostics.iter().map(diagnostic_json).collect();
        let errors: Vec<String> = self.failures.iter().map(ToString::to_string).collect();
        json!({ "file": self.file, "kernels": kernels, "diagnostics": diagnostics, "errors": errors })
    }
}

fn diagnostic_json(diagnostic: &Diagnostic) -> Value {
    let notes: Vec<Value> = diagnostic.notes.iter().map(diagnostic_json).collect();
    json!({
        "severity": diagnostic.severity.to_string(),
        "file": diagnostic.file,
        "line": diagnostic.line,
        "column": diagnostic.column,
        "message": diagnostic.message,
        "source_line": diagnostic.source_line,
        "notes": notes,
    })
}
