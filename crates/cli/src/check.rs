//! `elinvar check`: whether files compile for a target, and what their kernels take.
//!
//! It goes through the target's compiler and not through a launch, so that it needs no arguments and no device. Each kernel
//! is built for a threadgroup of one simdgroup, because some kernels are refused only then.

use std::path::{Path, PathBuf};

use clap::Args;
use elinvar::{Diagnostic, Dim3, Error, MathMode, Severity, Signature, Source};
use elinvar_driver::{Constant, ConstantKey, FunctionConstant, PipelineOptions};
use serde_json::{Value, json};

use crate::annotation;
use crate::constant;
use crate::failure::{Failure, Result, exit_code};
use crate::report::{print_json, say};
use crate::signature;
use crate::source::SourceOptions;
use crate::stages::Times;
use crate::target::Target;
use crate::value::split_pair;

/// Compile Metal files, each on its own, and print what their kernels take
#[derive(Args)]
#[command(after_help = "Examples:\n  elinvar check examples/matmul.metal\n  \
    elinvar check -I include -D TILE=16 kernels/*.metal\n  \
    elinvar check examples/reduce.metal --kernel reduce --json\n  \
    elinvar check gemm.metal --constant use_bias=true --constant 3=0.5f32\n  \
    elinvar check --github kernels/*.metal\n  \
    elinvar check --times examples/matmul.metal\n  \
    elinvar check --target cuda:sm_90 kernels/*.metal\n\n\
    Warnings include what Metal refuses and Elinvar takes, such as a pointer into another address\n\
    space. A kernel that needs the value of a function constant is built when it is given.\n\n\
    Stages: cache (looking for what was made before), preprocess, header (our declarations are read or\n\
    made, beside preprocess), rewrite, check, spaces; then for each kernel entry, define, optimize, parse, passes,\n\
    codegen, link, load.\n\n\
    Exit code 1 when a file or a kernel has errors.")]
pub struct Check {
    /// Metal source files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    options: SourceOptions,
    /// What to compile for
    #[arg(long, value_name = "cpu|cuda[:sm_NN]", default_value = "cpu")]
    target: Target,
    /// Look at this kernel only
    #[arg(long, value_name = "K")]
    kernel: Option<String>,
    /// The value of a function constant, by name or index, such as `7u32` or `true`
    #[arg(long = "constant", value_name = "NAME|INDEX=VALUE", value_parser = split_pair, allow_hyphen_values = true)]
    constants: Vec<(String, String)>,
    /// Say how long each stage of the compilation took, for the source and for each kernel
    #[arg(long)]
    times: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print what is wrong as annotations for GitHub Actions, and nothing else
    #[arg(long, conflicts_with = "json")]
    github: bool,
}

/// What came of one file.
struct Checked {
    file: String,
    kernels: Vec<Signature>,
    diagnostics: Vec<Diagnostic>,
    /// Refusals that have no place in the source.
    failures: Vec<Failure>,
    /// The function constants that it declares.
    constants: Vec<FunctionConstant>,
    times: Vec<Times>,
}

impl Check {
    pub fn run(self) -> Result<()> {
        let constants = constant::parse(&self.constants)?;
        let checked: Vec<Checked> =
            self.files.iter().map(|file| self.check(file, &constants)).collect::<Result<_>>()?;
        expect_declared(&constants, &checked)?;
        if self.json {
            let files: Vec<Value> = checked.iter().map(|checked| checked.to_json(self.times)).collect();
            print_json(&json!({ "files": files }))?;
        } else if self.github {
            checked.iter().try_for_each(Checked::annotate)?;
        } else {
            checked.iter().try_for_each(|checked| checked.print(self.times))?;
        }
        match checked.iter().filter_map(Checked::exit_code).max() {
            Some(code) => Err(Failure::Reported(code)),
            None => Ok(()),
        }
    }

    fn check(&self, file: &Path, constants: &[Constant]) -> Result<Checked> {
        let mut checked = Checked {
            file: file.display().to_string(),
            kernels: Vec::new(),
            diagnostics: Vec::new(),
            failures: Vec::new(),
            constants: Vec::new(),
            times: Vec::new(),
        };
        let (compiled, times) = Times::of(None, || {
            self.options
                .load(file, MathMode::default())
                .map(Source::check_spaces)
                .and_then(|source| self.target.compile(&source))
        });
        checked.times.push(times);
        let library = match compiled {
            Ok(library) => library,
            Err(failure) => {
                checked.add(failure);
                return Ok(checked);
            }
        };
        checked.diagnostics.extend(library.warnings().iter().cloned());
        checked.constants = library.constants().to_vec();
        let own = constants.iter().filter(|c| checked.constants.iter().any(|known| is(known, c)));
        let options = PipelineOptions { constants: own.cloned().collect(), checked: false };
        let names: Vec<&str> = match &self.kernel {
            Some(name) => vec![name],
            None => library.kernels().iter().map(|kernel| kernel.name.as_str()).collect(),
        };
        for name in names {
            let (built, times) = Times::of(Some(name), || checked.build(&*library, name, &options));
            checked.times.push(times);
            if let Err(error) = built {
                checked.add(error.into());
            }
        }
        Ok(checked)
    }
}

/// Whether a value is meant for this constant.
pub fn is(known: &FunctionConstant, given: &Constant) -> bool {
    match &given.key {
        ConstantKey::Index(index) => known.index == *index,
        ConstantKey::Name(name) => known.name == *name,
    }
}

/// A constant that no file declares is a mistake; one that another file declares is none.
fn expect_declared(constants: &[Constant], files: &[Checked]) -> Result<()> {
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

impl Checked {
    /// Builds one kernel; its signature is listed even if it is refused.
    fn build(
        &mut self,
        library: &dyn elinvar_driver::Library,
        name: &str,
        options: &PipelineOptions,
    ) -> Result<(), Error> {
        let pipeline = match library.pipeline(name, options) {
            Ok(pipeline) => pipeline,
            Err(error) => {
                let Some(kernel) = library.kernels().iter().find(|k| k.name == name) else {
                    return Err(error);
                };
                self.kernels.push(kernel.clone());
                let fits =
                    |c: &Constant| self.constants.iter().any(|k| is(k, c) && k.ty.scalar() == Some(c.scalar));
                let missing = self.constants.len() > options.constants.len();
                let missing = missing && options.constants.iter().all(fits);
                return match error {
                    Error::InvalidArgument(why) if missing => {
                        self.diagnostics.push(not_built(kernel, &why));
                        Ok(())
                    }
                    error => Err(error),
                };
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

    fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|d| d.severity == Severity::Error)
    }

    fn exit_code(&self) -> Option<u8> {
        let compile = self.has_errors().then(|| exit_code(&Error::Compile(Vec::new())));
        self.failures.iter().map(Failure::exit_code).chain(compile).max()
    }

    fn print(&self, times: bool) -> Result<()> {
        for kernel in &self.kernels {
            say(format_args!("{}\n", signature::text(kernel)))?;
        }
        if times {
            Times::print(&self.times)?;
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

    fn annotate(&self) -> Result<()> {
        self.diagnostics.iter().try_for_each(|d| say(annotation::of(d)))?;
        self.failures.iter().try_for_each(|f| say(annotation::error(&self.file, &f.to_string())))
    }

    fn to_json(&self, times: bool) -> Value {
        let kernels: Vec<Value> = self.kernels.iter().map(signature::to_json).collect();
        let diagnostics: Vec<Value> = self.diagnostics.iter().map(diagnostic_json).collect();
        let errors: Vec<String> = self.failures.iter().map(ToString::to_string).collect();
        let mut file =
            json!({ "file": self.file, "kernels": kernels, "diagnostics": diagnostics, "errors": errors });
        if times {
            file["times"] = self.times.iter().map(Times::to_json).collect();
        }
        file
    }
}

/// A kernel that is right as far as it can be told without values of function constants.
fn not_built(kernel: &Signature, why: &str) -> Diagnostic {
    let message = format!("{why}; it is not built, give values with --constant");
    Diagnostic {
        severity: Severity::Warning,
        ..Diagnostic::error(kernel.file.clone(), kernel.line, 0, message)
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
