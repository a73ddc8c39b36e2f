//! Checked kernels with arbitrary pointers, launched with arguments between guard pages.
//!
//! A [`Wild`] kernel is compiled once and launched repeatedly ([`Launches`]). Each argument has its own pages, as close to a
//! guard page before or behind it as its alignment allows; read-only arguments are in read-only pages. After a launch every byte
//! around the arguments must be unchanged, and a fault must be one of the kernel's. A launch of one thread with small numbers
//! that the reference interpreter runs without a fault must have the interpreter's results.
//!
//! A kernel that accesses other memory may end the process, which the caller must isolate.

mod memory;
mod run;
mod text;

use anyhow::{Context, Result};
use elinvar_driver::Source;
use elinvar_driver_cpu::Code;
use elinvar_ir::Module;
use elinvar_msl::{Program, Toolchain};
use elinvar_native::{Generator, Target};
use elinvar_spmd::bounds::Given;
use elinvar_spmd::{Compiled, SizeBound};

pub use run::{Launched, Launches};

use crate::compile::compile_for;
use crate::module;
use crate::random::Random;

/// A random kernel with arbitrary pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wild {
    /// Its seed.
    pub seed: u64,
    /// Threadgroup size.
    pub group: u32,
    /// Vector width in threads.
    pub lanes: u32,
    /// Whether clang optimizes the checked code.
    pub optimized: bool,
    /// Whether the threadgroup's size is a value of the launch, if there is such code for this size.
    pub dynamic: bool,
    text: String,
}

/// A kernel as machine code and for the interpreter.
pub(crate) struct Built {
    pub code: Code,
    pub made: Compiled,
    pub unoptimized: Module,
    /// The arguments that the code may write, as a bit mask.
    pub may_write: u64,
}

/// The alignments of the arguments.
pub(crate) const ALIGNS: [u64; 8] = [4, 1, 8, 8, 4, 8, 8, 4];

impl Wild {
    /// Generates the kernel of a seed.
    pub fn random(seed: u64, optimized: bool) -> Self {
        let mut random = Random::new(seed ^ 0x0bad_5eed);
        let group = random.pick(&[1, 4, 8, 16, 19, 32]);
        let lanes = random.pick(&[1, 4, 8, 8, 16, 16, 32]);
        Self { seed, group, lanes, optimized, dynamic: seed % 3 == 1, text: text::kernel(seed, group) }
    }

    /// A source with this kernel alone.
    pub fn source(&self) -> String {
        let Self { seed, group, lanes, optimized, dynamic, text } = self;
        let header = text::HEADER;
        format!(
            "// seed {seed} group {group} lanes {lanes} optimized {optimized} dynamic {dynamic}\n{header}{text}"
        )
    }
}

/// Compiles kernels, all optimized or none, in few runs of clang: for each the kernel, or the compiler's error.
///
/// # Errors
/// When the text does not compile.
pub(crate) fn build(kernels: &[Wild]) -> Result<Vec<Result<Built, String>>> {
    let toolchain = Toolchain::find()?;
    let text = kernels.iter().fold(text::HEADER.to_owned(), |all, kernel| all + &kernel.text);
    let program = Program::compile(&toolchain, &Source::named("wild.metal", &*text))?;
    let names: Vec<String> = kernels.iter().map(|kernel| format!("k{}", kernel.seed)).collect();
    let together = program.combine(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
    let (unoptimized, optimized) = (together.unoptimized(), together.optimized());
    let entry = |entries: &elinvar_msl::Entries, at: usize| Module::parse(&entries.alone(at));
    let mut made = Vec::new();
    for (at, kernel) in kernels.iter().enumerate() {
        let module = entry(&optimized, at)?;
        let compiled = compile_for(&module, options(kernel), [kernel.group, 1, 1], kernel.dynamic);
        let compiled = compiled.map_err(|error| error.to_string());
        let may_write = elinvar_spmd::facts(&module).map_err(|error| error.to_string());
        made.push((compiled, may_write.map(|facts| facts.may_write), entry(&unoptimized, at)?));
    }
    let target = target(kernels.first().context("no kernels")?);
    let texts = made.iter().filter_map(|(compiled, ..)| Some(compiled.as_ref().ok()?.ir.as_str()));
    let (all, symbols) = module::together(texts);
    let generator = Generator::new(toolchain.path(), target);
    let codes = Code::all_from_bytes(&generator.object(&all)?, &symbols)?;
    let mut codes = codes.into_iter();
    let built = made.into_iter().map(|(compiled, may_write, unoptimized)| {
        let made = compiled?;
        let code = codes.next().ok_or("no machine code")?;
        Ok(Built { code, made, unoptimized, may_write: may_write? })
    });
    Ok(built.collect())
}

fn target(kernel: &Wild) -> Target {
    let target = Target::new(None, Some(kernel.lanes));
    if kernel.optimized { target } else { target.unoptimized() }
}

fn options(kernel: &Wild) -> elinvar_spmd::Options {
    let target = target(kernel);
    let mut given = ALIGNS.map(|align| Given { bytes: 0, align });
    given[text::REFERENCE].bytes = text::BYTES[text::REFERENCE] as u64;
    elinvar_spmd::Options {
        group: [kernel.group, 1, 1].into(),
        lanes: target.lanes(),
        registers: target.registers(),
        gathers: target.gathers(),
        half_arithmetic: target.half_arithmetic(),
        scalef: target.scalef(),
        threadgroup_args: (0..8).map(|at| at == 7).collect(),
        name: "fuzz".into(),
        invariant_bytes: given.iter().map(|given| given.bytes).collect(),
        checks: Some(given.to_vec()),
        stoppable: false,
        objects: SizeBound::DEFAULT,
        ascending: false,
    }
}
