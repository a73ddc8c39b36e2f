//! [`Packer`]: the compiler for a target, as far as packing needs it.

use elinvar::{Dim3, Error, Source};
use elinvar_code::{Bundle, Declared, user_cache};
use elinvar_driver::PipelineOptions;
use elinvar_native::SizeBound;

use crate::target::Target;

/// The highest level, which few machines have.
const TOP_LEVEL: &str = "x86-64-v4";

/// The compiler for a target and a source.
pub enum Packer {
    Cpu(elinvar_native::Compiler),
    Cuda(elinvar_ptx::Compiler),
    Metal(elinvar_driver_metal::Packer),
}

impl Packer {
    /// Validates a source and adds its declarations to a bundle, and for Metal its text, or the library that was compiled from it.
    ///
    /// # Errors
    /// `Compile` with the diagnostics; `Environment` if there is no clang.
    pub fn new(
        target: Target,
        source: &Source,
        metallib: Option<&[u8]>,
        bundle: &mut Bundle,
    ) -> Result<Self, Error> {
        let cache = user_cache();
        Ok(match target {
            Target::Cuda(target) => {
                Self::Cuda(elinvar_ptx::Compiler::packing(cache, source, target, bundle)?)
            }
            Target::Cpu(level) => {
                let levels = elinvar_native::Target::levels();
                let level = level.or_else(|| levels.into_iter().find(|level| *level != TOP_LEVEL));
                let target = elinvar_native::Target::of(level.unwrap_or_default())?;
                Self::Cpu(elinvar_native::Compiler::packing(cache, source, target, bundle)?)
            }
            Target::Apple(..) => {
                return Err(Error::invalid(
                    "a bundle's code for Apple GPUs is for all families: `--target metal`",
                ));
            }
            Target::Metal => Self::Metal(elinvar_driver_metal::Packer::new(cache, source, metallib, bundle)?),
        })
    }

    /// Declarations of the source.
    pub fn declared(&self) -> &Declared {
        match self {
            Self::Cpu(compiler) => compiler.declared(),
            Self::Cuda(compiler) => compiler.declared(),
            Self::Metal(packer) => packer.declared(),
        }
    }

    /// Adds a kernel to a bundle; CPU code is for threadgroups of these sizes, or general, and buffers of up to these sizes.
    ///
    /// # Errors
    /// Those of the compiler.
    pub fn pack(
        &self,
        kernel: &str,
        options: &PipelineOptions,
        groups: &[Dim3],
        general: bool,
        bounds: &[SizeBound],
        bundle: &mut Bundle,
    ) -> Result<(), Error> {
        match self {
            Self::Cpu(compiler) => compiler.pack(kernel, options, groups, general, bounds, bundle),
            Self::Cuda(compiler) => compiler.pack(kernel, options, bundle).map(drop),
            Self::Metal(packer) => packer.pack(kernel, options, bundle),
        }
    }
}
