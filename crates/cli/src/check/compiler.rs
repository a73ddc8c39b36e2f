//! [`Compiler`]: the compiler for a target, with or without code generation.

use elinvar::{Error, Signature, Source};
use elinvar_analysis::{AppleFamily, System, language_violations};
use elinvar_code::{Accepted, Declared, Program, Rejected, Verdict, check_sizes, user_cache};
use elinvar_driver::PipelineOptions;
use elinvar_msl::{CachedProgram, InductionVariables, Toolchain};
use elinvar_native::{Form, SizeBound};
use elinvar_ptx::Constants;

use super::file_report::Built;
use super::is;
use crate::target::Target;

/// Declarations of a source, from the front end alone.
///
/// # Errors
/// `Compile` with the diagnostics; `Environment` if there is no clang.
pub fn declarations(source: &Source) -> Result<Declared, Error> {
    let toolchain = Toolchain::find_with(user_cache())?;
    Ok(CachedProgram::new(&toolchain, source)?.declared().clone())
}

/// The compiler for a target, which need not be installed, and a source.
pub enum Compiler {
    Cpu(elinvar_native::Compiler),
    Cuda(elinvar_ptx::Compiler),
    /// The front end, a family of Apple's GPUs, and a system.
    Apple(Program, AppleFamily, Option<System>),
}

impl Compiler {
    /// Validates a source.
    ///
    /// # Errors
    /// `Compile` with the diagnostics; `Environment` if there is no clang.
    pub fn new(target: Target, source: &Source) -> Result<Self, Error> {
        let native = |target| elinvar_native::Compiler::new(user_cache(), source, target).map(Self::Cpu);
        match target {
            Target::Cpu(None) => native(elinvar_native::Target::from_env()?),
            Target::Cpu(Some(level)) => native(elinvar_native::Target::of(level)?),
            Target::Cuda(target) => elinvar_ptx::Compiler::new(user_cache(), source, target).map(Self::Cuda),
            Target::Metal => Self::apple(source, AppleFamily::M1, None),
            Target::Apple(family, system) => Self::apple(source, family, system),
        }
    }

    fn apple(source: &Source, family: AppleFamily, system: Option<System>) -> Result<Self, Error> {
        let source = system.map_or_else(|| source.clone(), |system| of_system(source.clone(), system));
        let program = Program::new(user_cache(), &source, InductionVariables::AsWritten)?;
        Ok(Self::Apple(program, family, system))
    }

    /// Declarations of the source.
    pub fn declared(&self) -> &Declared {
        match self {
            Self::Cpu(compiler) => compiler.declared(),
            Self::Cuda(compiler) => compiler.declared(),
            Self::Apple(program, ..) => program.declared(),
        }
    }

    /// A kernel's signature, with facts about its code.
    ///
    /// # Errors
    /// Those of the front end for this kernel.
    pub fn signature(&self, name: &str, options: &PipelineOptions) -> Result<Signature, Error> {
        match self {
            Self::Cpu(compiler) => compiler.signature(name, options),
            Self::Cuda(compiler) => compiler.signature(name, options),
            Self::Apple(program, ..) => {
                Ok(program.thread(name, &options.constants)?.origin.signature.clone())
            }
        }
    }

    /// Compiles kernels up to the last of the compiler's own passes, or with `codegen` to code for the target. The signature is
    /// known even if a kernel is rejected.
    pub fn build(&self, kernels: &[&Signature], options: &PipelineOptions, codegen: bool) -> Vec<Built> {
        let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        let verdicts = match self {
            Self::Apple(program, family, system) => {
                names.iter().map(|name| portable(program, (*family, *system), name, options)).collect()
            }
            _ if codegen => names.iter().map(|name| self.generate(name, options)).collect(),
            Self::Cpu(compiler) => compiler.check(&names, options),
            Self::Cuda(compiler) => compiler.check(&names, options, Constants::Values),
        };
        let built = kernels.iter().zip(verdicts).map(|(kernel, verdict)| match verdict {
            Ok(accepted) => Built::Ok(accepted),
            Err(Rejected { signature: Some(signature), error }) => Built::Refused(*signature, error),
            Err(Rejected { signature: None, error }) => match error {
                Error::InvalidArgument(why) if self.misses_constants(options) => Built::Incomplete(why),
                error => Built::Refused((*kernel).clone(), error),
            },
        });
        built.collect()
    }

    /// Whether values of function constants are missing, and those that are given are right.
    fn misses_constants(&self, options: &PipelineOptions) -> bool {
        let constants = &self.declared().constants;
        let fits = |c: &_| constants.iter().any(|k| is(k, c) && k.ty.scalar() == Some(c.scalar));
        constants.len() > options.constants.len() && options.constants.iter().all(fits)
    }

    fn generate(&self, name: &str, options: &PipelineOptions) -> Verdict {
        let signature = self.signature(name, options).map_err(|error| Rejected { signature: None, error })?;
        check_sizes(&signature, |group| match self {
            Self::Apple(..) => Ok(()),
            Self::Cpu(compiler) => {
                let form = Form { group: Some(group), stoppable: false, objects: SizeBound::DEFAULT };
                compiler.kernel(name, options, form).map(drop)
            }
            Self::Cuda(compiler) => compiler
                .kernel(name, options, Constants::Values)
                .and_then(|_| compiler.check_group(name, options, group)),
        })
    }
}

/// A source with the macros that Metal's compiler defines for a system, unless the user defines the version.
fn of_system(source: Source, system: System) -> Source {
    const VERSION: &str = "__METAL_VERSION__";
    let is_given = source.defines.iter().any(|(name, _)| name == VERSION);
    let value = system.language().macro_value().to_string();
    let source = if is_given { source } else { source.define(VERSION, Some(&value)) };
    if matches!(system, System::Ios(..)) { source.define("__METAL_IOS__", Some("1")) } else { source }
}

/// Whether a family of Apple's GPUs and a system have the limits and features that a kernel needs, and Metal promises what it relies on.
fn portable(
    program: &Program,
    (family, system): (AppleFamily, Option<System>),
    name: &str,
    options: &PipelineOptions,
) -> Verdict {
    let read = || {
        let thread = program.thread(name, &options.constants)?;
        Ok((program.module(&thread)?, thread))
    };
    let (module, thread) = read().map_err(|error| Rejected { signature: None, error })?;
    let signature = thread.origin.signature.clone();
    let of_language = system.map(|system| language_violations(system, &module, &signature));
    let mut found: Vec<(Option<u32>, String)> = elinvar_analysis::violations(family, &module, &signature)
        .into_iter()
        .chain(of_language.into_iter().flatten())
        .map(|violation| {
            let own = violation.location.filter(|place| place.file == signature.file);
            (own.map(|place| place.line), violation.reason)
        })
        .collect();
    if let Some(line) = signature.code.and_then(|code| code.spin_wait) {
        let why = "this loop waits for another thread: Metal does not promise that the threadgroups of a grid run at the same time";
        found.push((Some(line), why.to_owned()));
    }
    if found.is_empty() {
        return Ok(Accepted { signature, beyond_one_simdgroup: None });
    }
    // At the place of the first, with all reasons.
    let line = found.iter().find_map(|(line, _)| *line).unwrap_or(signature.line);
    let reasons: Vec<String> = found.into_iter().map(|(_, reason)| reason).collect();
    let why = format!("{}:{line}: {}", signature.file, reasons.join("; "));
    Err(Rejected { signature: Some(Box::new(signature)), error: Error::unsupported(why) })
}
