//! [`Compiler`]: the compiler for a target, with or without code generation.

use elinvar::{Error, Signature, Source};
use elinvar_code::{Declared, Rejected, Verdict, check_sizes, user_cache};
use elinvar_driver::PipelineOptions;
use elinvar_msl::{CachedProgram, Toolchain};
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
            Target::Metal => Err(Error::unsupported(
                "Metal compiles on Apple devices; `--syntax-only` checks what is known without",
            )),
        }
    }

    /// Declarations of the source.
    pub fn declared(&self) -> &Declared {
        match self {
            Self::Cpu(compiler) => compiler.declared(),
            Self::Cuda(compiler) => compiler.declared(),
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
        }
    }

    /// Compiles kernels up to the last of the compiler's own passes, or with `codegen` to code for the target. The signature is
    /// known even if a kernel is rejected.
    pub fn build(&self, kernels: &[&Signature], options: &PipelineOptions, codegen: bool) -> Vec<Built> {
        let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        let verdicts = match self {
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
