//! [`Compiler`]: the compiler for a target, with or without code generation.

use elinvar::{Dim3, Error, Signature, Source};
use elinvar_code::{Declared, max_threads, user_cache};
use elinvar_driver::PipelineOptions;
use elinvar_native::{Form, SizeBound};
use elinvar_ptx::Constants;

use super::file_report::Built;
use super::is;
use crate::target::Target;

/// Threads of the threadgroup that a kernel is checked for, or as many as it allows: those of a simdgroup, because some kernels
/// are rejected only then.
const CHECKED_THREADS: u32 = 32;

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

    /// Compiles a kernel: up to the last of the compiler's own passes, or with `codegen` to code for the target. The signature is
    /// known even if the kernel is rejected.
    pub fn build(&self, kernel: &Signature, options: &PipelineOptions, codegen: bool) -> Built {
        let signature = match self.signature(&kernel.name, options) {
            Ok(signature) => signature,
            Err(error) => {
                let constants = &self.declared().constants;
                let fits = |c: &_| constants.iter().any(|k| is(k, c) && k.ty.scalar() == Some(c.scalar));
                let missing = constants.len() > options.constants.len() && options.constants.iter().all(fits);
                return match error {
                    Error::InvalidArgument(why) if missing => Built::Incomplete(why),
                    error => Built::Refused(kernel.clone(), error),
                };
            }
        };
        match self.compile(&signature, options, codegen) {
            Ok(()) => Built::Ok(signature),
            Err(error) => Built::Refused(signature, error),
        }
    }

    fn compile(&self, kernel: &Signature, options: &PipelineOptions, codegen: bool) -> Result<(), Error> {
        let name = kernel.name.as_str();
        let group = Dim3::from(max_threads(kernel).min(CHECKED_THREADS));
        match self {
            Self::Cpu(compiler) => {
                let form = Form { group: Some(group), stoppable: false, objects: SizeBound::DEFAULT };
                match codegen {
                    true => compiler.kernel(name, options, form).map(drop),
                    false => compiler.check(name, options, form),
                }
            }
            Self::Cuda(compiler) => {
                match codegen {
                    true => compiler.kernel(name, options, Constants::Values).map(drop)?,
                    false => compiler.check(name, options, Constants::Values)?,
                }
                compiler.check_group(name, options, group)
            }
        }
    }
}
