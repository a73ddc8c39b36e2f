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

use elinvar_driver::Diagnostic;

pub use self::cuda::{CudaOptions, translate as cuda};
pub use self::naga::{Language, shader, spirv};
pub use opencl::report::Argument;
pub use opencl::{Kernel, Options, Translation, translate as opencl};

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
