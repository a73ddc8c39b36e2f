//! `elinvar translate`: kernels of another language as Metal Shading Language.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use elinvar::MathMode;
use elinvar_msl::Toolchain;
use elinvar_translate::{CudaOptions, Error, Options, Translation};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::output;
use crate::report::{print_json, say_text, visible};
use crate::source::SourceOptions;

/// A language that is translated.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Language {
    /// OpenCL C 1.2
    Opencl,
    /// CUDA C++
    Cuda,
    /// WebGPU Shading Language
    Wgsl,
    /// A compute shader in GLSL 4.50
    Glsl,
    /// A SPIR-V module
    Spirv,
}

/// Translate kernels of another language to Metal Shading Language
///
/// Writes MSL that needs only Metal's headers, with the names of kernels and arguments; of OpenCL C also the comments and, by `#line` directives,
/// the lines. A report on standard error says what was mapped how.
#[derive(Args)]
#[command(after_help = "Examples:\n  elinvar translate --from opencl saxpy.cl -o saxpy.metal\n  \
    elinvar translate --from opencl -I include -D TILE=16 --kernel gemm kernels.cl | less\n  \
    elinvar translate --from cuda reduce.cu -o reduce.metal\n  \
    elinvar translate --from wgsl reduce.wgsl -o reduce.metal\n\n\
    A kernel that cannot be translated is an error with its line; the others are written, and the exit code is 1.")]
pub struct Translate {
    /// Language of the file
    #[arg(long, value_enum)]
    from: Language,
    /// Source file
    file: PathBuf,
    /// Write the translation to this file in place of standard output
    #[arg(short = 'o', value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    options: SourceOptions,
    /// Translate only this kernel; may be repeated
    #[arg(long = "kernel", value_name = "K")]
    kernels: Vec<String>,
    /// Of CUDA, compute in `float` where arithmetic in `double` has no other translation
    #[arg(long)]
    double_as_float: bool,
    /// Of CUDA, write the launches `<<<>>>` as Rust to this file
    #[arg(long, value_name = "FILE")]
    host_stub: Option<PathBuf>,
    /// Of CUDA: headers that are not found are empty, and errors outside of kernels and what they use are ignored
    #[arg(long)]
    skip_host: bool,
    /// Of CUDA: an instance of a template, such as `scale<float, 4>`
    #[arg(long = "instance", value_name = "NAME<..>")]
    instances: Vec<String>,
    /// Write no `#line` directives
    #[arg(long)]
    no_lines: bool,
    /// Write no report
    #[arg(long)]
    quiet: bool,
    /// Print JSON: the translation and the report
    #[arg(long)]
    json: bool,
}

impl Translate {
    pub fn run(self) -> Result<()> {
        let translation = self.translation()?;
        self.expect_kernels(&translation)?;
        if let Some(out) = &self.out {
            output::replace_with(out, &translation.msl)?;
        }
        if let (Some(file), Some(text)) = (&self.host_stub, &translation.host) {
            output::replace_with(file, text)?;
        }
        if self.json {
            print_json(&report_json(&translation))?;
        } else {
            if self.out.is_none() {
                say_text(&translation.msl)?;
            }
            translation.errors.iter().for_each(|error| eprintln!("{error}"));
            if !self.quiet {
                eprint!("{}", visible(&report_text(&translation)));
            }
        }
        if translation.errors.is_empty() { Ok(()) } else { Err(Failure::Reported(1)) }
    }

    fn translation(&self) -> Result<Translation> {
        let load = || self.options.load_lossy(&self.file, MathMode::default());
        let translation = match self.from {
            Language::Opencl => {
                let toolchain = Toolchain::find().map_err(elinvar_driver::Error::from)?;
                let options = Options { lines: !self.no_lines, kernels: self.kernels.clone() };
                elinvar_translate::opencl(&toolchain, &load()?, &options)
            }
            Language::Cuda => {
                let toolchain = Toolchain::find().map_err(elinvar_driver::Error::from)?;
                let options = CudaOptions {
                    lines: !self.no_lines,
                    kernels: self.kernels.clone(),
                    double_as_float: self.double_as_float,
                    host_stub: self.host_stub.is_some(),
                    skip_host: self.skip_host,
                    instances: self.instances.clone(),
                };
                elinvar_translate::cuda(&toolchain, &load()?, &options)
            }
            _ if !self.kernels.is_empty() => return Err(Failure::usage("--kernel is for OpenCL C and CUDA")),
            Language::Wgsl => elinvar_translate::shader(&load()?, elinvar_translate::Language::Wgsl),
            Language::Glsl => elinvar_translate::shader(&load()?, elinvar_translate::Language::Glsl),
            Language::Spirv => {
                let name = self.file.display().to_string();
                let bytes =
                    std::fs::read(&self.file).map_err(|error| Failure::input(format!("{name}: {error}")))?;
                elinvar_translate::spirv(&name, &bytes)
            }
        };
        let has_lines = !self.no_lines || matches!(self.from, Language::Opencl | Language::Cuda);
        let translation = translation.map(|mut translation| {
            if !has_lines {
                let rows = translation.msl.split_inclusive('\n').filter(|row| !row.starts_with("#line "));
                translation.msl = rows.collect();
            }
            translation
        });
        translation.map_err(|error| match error {
            Error::Compile(diagnostics) => Failure::Runtime(elinvar_driver::Error::Compile(diagnostics)),
            other => Failure::Machine(other.to_string()),
        })
    }

    /// Rejects names of kernels that the file does not have.
    fn expect_kernels(&self, translation: &Translation) -> Result<()> {
        let has = |name: &String| {
            translation.kernels.iter().any(|kernel| kernel.name == *name)
                || translation.refused.contains(name)
        };
        let file = self.file.display();
        if let Some(name) = self.kernels.iter().find(|name| !has(name)) {
            return Err(Failure::input(format!("--kernel {name}: {file} has no such kernel")));
        }
        if translation.kernels.is_empty() && translation.refused.is_empty() {
            let templates: Vec<String> =
                translation.templates.iter().map(|example| format!("--instance '{example}'")).collect();
            return Err(Failure::input(match templates.is_empty() {
                true => format!("{file} has no kernel"),
                false => format!("{file} only has templates without an instance: {}", templates.join(" ")),
            }));
        }
        Ok(())
    }
}

fn report_text(translation: &Translation) -> String {
    let mut text = String::new();
    for kernel in &translation.kernels {
        text.push_str(&format!("kernel {}\n", kernel.name));
        let width =
            kernel.arguments.iter().map(|argument| argument.source.chars().count()).max().unwrap_or(0);
        for argument in &kernel.arguments {
            text.push_str(&format!("  {:<width$}  {}\n", argument.source, argument.msl));
        }
        if let Some([x, y, z]) = kernel.group_size {
            text.push_str(&format!("  launch it with threadgroups of {x},{y},{z}\n"));
        }
    }
    for name in &translation.refused {
        text.push_str(&format!("kernel {name}: not translated\n"));
    }
    let list = |text: &mut String, title: &str, items: Vec<String>| {
        if !items.is_empty() {
            text.push_str(&format!("{title}\n"));
            items.iter().for_each(|item| text.push_str(&format!("  {item}\n")));
        }
    };
    let arrow = |(from, to): (&String, &String)| format!("{from} → {to}");
    let changed = translation.functions.iter().filter(|(from, to)| from != to);
    list(&mut text, "functions", changed.map(arrow).collect());
    list(&mut text, "renamed", translation.renamed.iter().map(|(from, to)| arrow((from, to))).collect());
    let instance = |example: &String| format!("--instance '{example}'");
    list(&mut text, "templates without an instance", translation.templates.iter().map(instance).collect());
    list(&mut text, "differences", translation.differences.iter().cloned().collect());
    text
}

fn report_json(translation: &Translation) -> Value {
    let kernels: Vec<Value> = translation
        .kernels
        .iter()
        .map(|kernel| {
            let arguments: Vec<Value> = kernel
                .arguments
                .iter()
                .map(|argument| json!({ "source": argument.source, "msl": argument.msl }))
                .collect();
            json!({ "name": kernel.name, "arguments": arguments, "group_size": kernel.group_size })
        })
        .collect();
    json!({
        "msl": translation.msl,
        "kernels": kernels,
        "refused": translation.refused,
        "errors": translation.errors,
        "functions": translation.functions,
        "renamed": translation.renamed,
        "differences": translation.differences,
        "templates": translation.templates,
    })
}
