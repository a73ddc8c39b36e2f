//! Compiles many kernels of one source with few processes, each as the CPU driver compiles it.

use std::sync::Arc;

use anyhow::{Context, Result};
use elinvar_driver::{LogSite, Source};
use elinvar_driver_cpu::Code;
use elinvar_ir::{Callee, Module, Op};
use elinvar_msl::{Program, Toolchain};
use elinvar_native::{Generator, Target};
use elinvar_spmd::bounds::Given;
use elinvar_spmd::intrinsic::Intrinsic;
use elinvar_spmd::nvptx::Argument;
use elinvar_spmd::{Compiled, GroupSize, SizeBound};

use crate::generate::Shape;
use crate::module;

/// Compilation options of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Vector width in threads.
    pub lanes: u32,
    /// Clang's name of the target processor; `None` is this machine's.
    pub processor: Option<&'static str>,
    /// Whether clang optimizes the machine code.
    pub optimized: bool,
    /// Whether accesses are checked against their bounds.
    pub checked: bool,
    /// Whether loops check the stop flag, which is never set.
    pub stoppable: bool,
    /// Whether buffers may have any size.
    pub large: bool,
    /// Whether the threadgroup's size is a value of the launch, if there is such code for this size.
    pub dynamic: bool,
    /// Whether the threadgroup barriers are compiled as grid barriers, at which the function returns and is resumed.
    pub grid: bool,
}

impl Setting {
    fn target(&self) -> Target {
        let target = Target::new(self.processor, Some(self.lanes));
        if self.optimized { target } else { target.unoptimized() }
    }

    /// Whether one run of clang can compile both.
    fn shares_code(&self, other: &Setting) -> bool {
        (self.processor, self.optimized) == (other.processor, other.optimized)
    }
}

/// A kernel of a source, with its launch and how it is compiled.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub name: String,
    /// Name of the compiled kernel, if it differs from that of the interpreted one.
    pub plain: Option<String>,
    pub shape: Shape,
    /// The value of `n`.
    pub n: u32,
    /// The seed of its input.
    pub seed: u64,
    pub setting: Setting,
}

impl Case {
    /// Whether another case is the same kernel and launch, and thus the same for the interpreter.
    pub fn is_same_launch(&self, other: &Self) -> bool {
        let launch = |case: &Self| (case.shape, case.n, case.seed);
        self.name == other.name && launch(self) == launch(other)
    }
}

/// A case, compiled in all ways.
pub(crate) struct Built {
    pub kernel: Arc<Interpretable>,
    /// The compiler's error.
    pub compiled: std::result::Result<Runnable, String>,
}

/// A kernel for the interpreter.
pub(crate) struct Interpretable {
    pub unoptimized: Module,
    /// Optimized, the compilers' input.
    optimized: Module,
    /// Lowered for NVPTX; or the compiler's error.
    pub prepared: std::result::Result<Module, String>,
    /// The log calls of the optimized code.
    pub logs: Vec<LogSite>,
}

/// A kernel as machine code.
pub(crate) struct Runnable {
    pub code: Code,
    pub made: Compiled,
}

/// Compiles kernels of a source. Cases of the same kernel share intermediate results.
///
/// # Errors
/// When the text does not compile, or clang refuses code of ours.
pub(crate) fn compile(text: &str, cases: &[Case]) -> Result<Vec<Built>> {
    let toolchain = Toolchain::find()?;
    let program = Program::compile(&toolchain, &Source::named("random.metal", text))?;
    let both = cases.iter().flat_map(|case| [Some(&case.name), case.plain.as_ref()]);
    let mut names: Vec<&str> = both.flatten().map(String::as_str).collect();
    names.dedup();
    let together = program.combine(&names)?;
    let (unoptimized, optimized) = (together.unoptimized(), together.optimized());
    let module = |entries: &elinvar_msl::Entries, name: &str| -> Result<Module> {
        let place = names.iter().position(|other| *other == name).context("a kernel without a place")?;
        Ok(Module::parse(&entries.alone(place))?)
    };
    let interpretable = |name: &str| -> Result<Arc<Interpretable>> {
        let (unoptimized, optimized) = (module(&unoptimized, name)?, module(&optimized, name)?);
        let (prepared, logs) = (prepared(&optimized), elinvar_code::log_sites(&optimized)?);
        Ok(Arc::new(Interpretable { unoptimized, optimized, prepared, logs }))
    };
    let mut kernels: Vec<Arc<Interpretable>> = Vec::new();
    let mut functions = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let kernel = match cases[..at].iter().position(|other| other.name == case.name) {
            Some(same) => kernels[same].clone(),
            None => interpretable(&case.name)?,
        };
        functions.push(match &case.plain {
            Some(plain) => work_group(&module(&optimized, plain)?, case),
            None => work_group(&kernel.optimized, case),
        });
        kernels.push(kernel);
    }
    let codes = build(toolchain.path(), cases, &functions)?;
    let built = kernels.into_iter().zip(functions).zip(codes).map(|((kernel, made), code)| {
        let runnable = |made| Some(Runnable { code: code?, made });
        let compiled = made.and_then(|made| runnable(made).ok_or_else(|| "no machine code".to_owned()));
        Built { kernel, compiled }
    });
    Ok(built.collect())
}

/// A kernel as clang compiles it for NVPTX.
fn prepared(module: &Module) -> std::result::Result<Module, String> {
    let pointer = |constant| Argument::Pointer { constant };
    let options = elinvar_spmd::nvptx::Options {
        name: elinvar_msl::ENTRY.into(),
        arguments: [false, false, true, false, false].map(pointer).to_vec(),
        approximate: false,
        max_threads: None,
        checks: None,
        tensor_products: false,
    };
    let prepared = elinvar_spmd::nvptx::prepare(module, &options).map_err(|error| error.to_string())?;
    Module::parse(&prepared.ir).map_err(|error| format!("{error} in\n{}", prepared.ir))
}

fn work_group(module: &Module, case: &Case) -> std::result::Result<Compiled, String> {
    let suspending = case.setting.grid.then(|| with_grid_barriers(module));
    let module = suspending.as_ref().unwrap_or(module);
    let target = case.setting.target();
    let options = elinvar_spmd::Options {
        group: case.shape.group.into(),
        lanes: target.lanes(),
        registers: target.registers(),
        gathers: target.gathers(),
        half_arithmetic: target.half_arithmetic(),
        scalef: target.scalef(),
        threadgroup_args: vec![false; 5],
        name: "fuzz".into(),
        invariant_bytes: vec![0, 0, 4, 0, 0],
        checks: case
            .setting
            .checked
            .then(|| [0, 0, 4, 0, 0].map(|bytes| Given { bytes, align: 16 }).to_vec()),
        stoppable: case.setting.stoppable,
        objects: if case.setting.large { SizeBound::NONE } else { SizeBound::DEFAULT },
        ascending: false,
    };
    compile_for(module, options, case.shape.group, case.setting.dynamic).map_err(|error| error.to_string())
}

/// The module with a grid barrier for each threadgroup barrier.
fn with_grid_barriers(module: &Module) -> Module {
    let [from, to] = [Intrinsic::ThreadgroupBarrier, Intrinsic::GridBarrier].map(Intrinsic::name);
    let mut module = module.clone();
    for function in &mut module.functions {
        if function.name == from {
            (function.name, function.params) = (to.clone(), Vec::new());
        }
        for inst in function.blocks.iter_mut().flat_map(|block| &mut block.insts) {
            if let Op::Call(call) = &mut inst.op
                && matches!(&call.callee, Callee::Function(name) if *name == from)
            {
                (call.callee, call.args) = (Callee::Function(to.clone()), Vec::new());
            }
        }
    }
    module
}

/// Compiles a kernel for a threadgroup size; if `dynamic`, with code that takes it as a value, if there is such code for this size.
pub(crate) fn compile_for(
    module: &Module,
    options: elinvar_spmd::Options,
    group: [u32; 3],
    dynamic: bool,
) -> std::result::Result<Compiled, elinvar_spmd::Error> {
    let compiled = elinvar_spmd::compile(module, &options)?;
    match compiled.row_sizes.filter(|sizes| dynamic && sizes.contains(group)) {
        None => Ok(compiled),
        Some(_) => {
            let group = GroupSize::Dynamic(1024);
            elinvar_spmd::compile(module, &elinvar_spmd::Options { group, ..options })
        }
    }
}

/// Machine code of the cases, in order. One run of clang for all cases that can share it.
fn build(
    clang: &std::path::Path,
    cases: &[Case],
    functions: &[std::result::Result<Compiled, String>],
) -> Result<Vec<Option<Code>>> {
    let mut codes: Vec<Option<Code>> = cases.iter().map(|_| None).collect();
    let mut left: Vec<(usize, &Compiled)> =
        functions.iter().enumerate().filter_map(|(at, made)| Some((at, made.as_ref().ok()?))).collect();
    while let Some((first, _)) = left.first() {
        let setting = cases[*first].setting;
        let (now, later) = left.into_iter().partition(|(at, _)| cases[*at].setting.shares_code(&setting));
        let now: Vec<(usize, &Compiled)> = now;
        let (text, symbols) = module::together(now.iter().map(|(_, made)| made.ir.as_str()));
        let generator = Generator::new(clang, setting.target());
        let built = Code::all_from_bytes(&generator.object(&text)?, &symbols)?;
        for ((at, _), code) in now.iter().zip(built) {
            codes[*at] = Some(code);
        }
        left = later;
    }
    Ok(codes)
}
