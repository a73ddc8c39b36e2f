//! `elinvar pack`: compiles kernels ahead of time into a bundle.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use elinvar::{Dim3, Error, Signature, Source};
use elinvar_code::{Bundle, Declared};
use elinvar_driver::{Constant, PipelineOptions};
use elinvar_native::SizeBound;
use serde_json::json;

use crate::check::is;
use crate::constant;
use crate::failure::{Failure, Result};
use crate::output;
use crate::report::{print_json, say};
use crate::source::{Math, SourceOptions};
use crate::target::Target;
use crate::value::{parse_size, split_pair};

/// Compile Metal files ahead of time into a bundle
#[derive(Args)]
#[command(after_help = "Examples:\n  elinvar pack kernels/*.metal -o kernels.bundle --target cuda:sm_90\n  \
    elinvar pack gemm.metal -o gemm.bundle --target cuda --constant use_bias=true --checked\n  \
    elinvar pack sum.metal -o sum.bundle --target cpu:x86-64-v3 --target cuda --group 64 --group 16,16\n  \
    elinvar run kernels.bundle --kernel vector_add …\n\n\
    A bundle contains native code, which is executed without verification: load only bundles that you trust.")]
pub struct Pack {
    /// Metal source files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Output file
    #[arg(short = 'o', value_name = "BUNDLE")]
    bundle: PathBuf,
    /// Compilation target; may be repeated
    #[arg(long = "target", value_name = "cpu[:LEVEL]|cuda[:sm_NN]", default_value = "cuda")]
    targets: Vec<Target>,
    /// Threadgroup size for which CPU kernels are compiled; may be repeated
    #[arg(long = "group", value_name = "X[,Y[,Z]]", value_parser = parse_size, default_value = "256")]
    groups: Vec<Dim3>,
    /// Also compile CPU kernels for buffers above 2 GiB
    #[arg(long)]
    large_buffers: bool,
    /// Value of a function constant, such as `7u32` or `true`; may be repeated
    #[arg(long = "constant", value_name = "NAME|INDEX=VALUE", value_parser = split_pair, allow_hyphen_values = true)]
    constants: Vec<(String, String)>,
    /// Compile only this kernel; may be repeated
    #[arg(long = "kernel", value_name = "K")]
    kernels: Vec<String>,
    /// Also compile each kernel with bounds checks
    #[arg(long)]
    checked: bool,
    /// Floating-point math mode
    #[arg(long, value_enum, default_value = "fast")]
    math: Math,
    #[command(flatten)]
    options: SourceOptions,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Pack {
    pub fn run(self) -> Result<()> {
        let constants = constant::parse(&self.constants)?;
        let mut bundle = Bundle::default();
        let mut packed = Vec::new();
        for file in &self.files {
            let source = self.options.load(file, self.math.into())?;
            for target in &self.targets {
                packed.extend(self.pack(&source, *target, &constants, &mut bundle)?);
            }
        }
        if let Some(missing) = self.kernels.iter().find(|kernel| !packed.contains(kernel)) {
            return Err(Failure::input(format!("no kernel `{missing}` was packed")));
        }
        let packed = packed.len();
        let bytes = bundle.to_bytes();
        let cannot = |error| Failure::input(format!("{}: {error}", self.bundle.display()));
        output::replace(&self.bundle, |file| file.write_all(&bytes)).map_err(cannot)?;
        if self.json {
            let bundle = self.bundle.display().to_string();
            return print_json(&json!({ "bundle": bundle, "kernels": packed, "bytes": bytes.len() }));
        }
        let plural = if packed == 1 { "" } else { "s" };
        say(format_args!("{}: {packed} kernel{plural}, {} bytes", self.bundle.display(), bytes.len()))
    }

    /// Pack the kernels of a source. Returns their names.
    fn pack(
        &self,
        source: &Source,
        target: Target,
        constants: &[Constant],
        bundle: &mut Bundle,
    ) -> Result<Vec<String>> {
        let cache = elinvar_code::user_cache();
        match target {
            Target::Cuda(target) => {
                let compiler = elinvar_ptx::Compiler::packing(cache, source, target, bundle)?;
                let seen = Seen::of(compiler.declared(), constants);
                self.pack_kernels(&seen, |kernel, options| compiler.pack(kernel, options, bundle).map(drop))
            }
            Target::Cpu(level) => {
                let levels = elinvar_native::Target::levels();
                let level = level.or_else(|| levels.into_iter().find(|level| *level != TOP_LEVEL));
                let target = elinvar_native::Target::of(level.unwrap_or_default())?;
                let compiler = elinvar_native::Compiler::packing(cache, source, target, bundle)?;
                let seen = Seen::of(compiler.declared(), constants);
                let bounds = [SizeBound::DEFAULT, SizeBound::NONE];
                let bounds = &bounds[..1 + usize::from(self.large_buffers)];
                self.pack_kernels(&seen, |kernel, options| {
                    compiler.pack(kernel, options, &self.groups, bounds, bundle)
                })
            }
        }
    }

    fn pack_kernels(
        &self,
        seen: &Seen<'_>,
        mut pack: impl FnMut(&str, &PipelineOptions) -> elinvar::Result<()>,
    ) -> Result<Vec<String>> {
        let plain = PipelineOptions {
            constants: seen.constants.clone(),
            checked: false,
            ..PipelineOptions::default()
        };
        let mut packed = Vec::new();
        let wanted = |kernel: &&Signature| self.kernels.is_empty() || self.kernels.contains(&kernel.name);
        for kernel in seen.kernels.iter().filter(wanted) {
            match pack(&kernel.name, &plain) {
                Ok(()) => packed.push(kernel.name.clone()),
                // One that needs constants that were not given is not wrong.
                Err(Error::InvalidArgument(why)) if seen.declared > plain.constants.len() => {
                    let Signature { file, line, .. } = kernel;
                    eprintln!("{file}:{line}: warning: {why}; it is not packed, give values with --constant");
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            if self.checked {
                match pack(&kernel.name, &PipelineOptions { checked: true, ..plain.clone() }) {
                    Ok(()) => {}
                    Err(Error::Unsupported(why)) => {
                        eprintln!("warning: not packed with bounds checks: {why}")
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(packed)
    }
}

/// The highest level, which few machines have.
const TOP_LEVEL: &str = "x86-64-v4";

/// What a source declares, as far as packing needs it.
struct Seen<'a> {
    kernels: &'a [Signature],
    /// Number of declared function constants.
    declared: usize,
    /// Given values of declared constants.
    constants: Vec<Constant>,
}

impl<'a> Seen<'a> {
    /// Warnings are shown.
    fn of(declared: &'a Declared, given: &[Constant]) -> Self {
        let Declared { kernels, unsupported: _, constants, warnings } = declared;
        warnings.iter().for_each(|warning| eprintln!("{warning}"));
        let own = given.iter().filter(|given| constants.iter().any(|known| is(known, given)));
        Self { kernels, declared: constants.len(), constants: own.cloned().collect() }
    }
}
