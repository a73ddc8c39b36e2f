//! Kernels of other languages as Metal Shading Language.
//!
//! [`opencl`] translates OpenCL C 1.2. The result is readable MSL that needs only Metal's headers: names of kernels and arguments, comments and
//! the source's lines are kept, and `#line` directives name the original files, so that diagnostics, faults and sanitizer reports do.
//!
//! clang parses the source, as a separate process; its typed tree decides what each expression means.
//!
//! [`cuda`] translates CUDA C++ in the same way: templates are instantiated, generic pointers get address spaces.
//!
//! [`shader`] and [`spirv`] translate WGSL, GLSL and SPIR-V by the library naga.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod cuda;
mod naga;
mod opencl;

use std::borrow::Cow;

use elinvar_driver::{Diagnostic, Source, SourceLanguage};

pub use self::cuda::{CudaOptions, translate as cuda};
pub use self::naga::{Language, shader, spirv};
pub use opencl::report::Argument;
pub use opencl::{Kernel, Options, Translation, translate as opencl};

/// The translation of an OpenCL C source as a source in MSL, with the same libraries. A source in MSL is returned as it is.
///
/// # Errors
/// `Compile` with the places in the original files, if it is not valid, or if one of its kernels has no counterpart in MSL; `Environment` if
/// there is no clang.
pub fn as_msl(source: &Source) -> elinvar_driver::Result<Cow<'_, Source>> {
    if source.language != SourceLanguage::OpenClC {
        return Ok(Cow::Borrowed(source));
    }
    let toolchain = elinvar_msl::Toolchain::find()?;
    let translation = opencl(&toolchain, source, &Options::default()).map_err(|error| match error {
        Error::Compile(all) => elinvar_driver::Error::Compile(all),
        Error::Environment(why) => elinvar_driver::Error::Environment(why),
    })?;
    if !translation.errors.is_empty() {
        return Err(elinvar_driver::Error::Compile(translation.errors));
    }
    let name = source.files.first().map_or("kernel.cl", |file| &file.name);
    let (libraries, check_spaces) = (source.libraries.clone(), source.check_spaces);
    Ok(Cow::Owned(Source { libraries, check_spaces, ..Source::named(name, translation.msl) }))
}

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a source is not translated at all.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source is wrong: it is not valid in its own language.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Compile(Vec<Diagnostic>),
    /// There is no clang, or it failed.
    #[error("{0}")]
    Environment(String),
}
