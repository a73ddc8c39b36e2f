//! Errors of the front end.

use elinvar_driver::{Diagnostic, similar_names};

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, by what the caller can do about it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source is wrong; at least one diagnostic has severity error.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Compile(Vec<Diagnostic>),

    /// The kernel is valid Metal, but not supported.
    #[error("{0}")]
    Unsupported(String),

    /// There is no such kernel.
    #[error("no kernel `{name}` in the source; {}", similar_names("kernels", name, .known.iter().map(String::as_str)))]
    NoKernel {
        /// The requested name.
        name: String,
        /// The kernels of the source.
        known: Vec<String>,
    },

    /// A function constant is unknown, has another type, or is needed and has no value; the message names it.
    #[error("{0}")]
    Constant(String),

    /// No usable clang; the message lists the candidates and how to install one.
    #[error("{0}")]
    Toolchain(String),

    /// clang failed without a diagnostic.
    #[error("{detail}\nto reproduce: {command}")]
    Clang {
        /// The command line that reproduces it, with its input.
        command: String,
        /// Exit status and output.
        detail: String,
    },

    /// A file could not be read or written, or a process could not be started.
    #[error("{0}")]
    Io(String),
}

impl From<Error> for elinvar_driver::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Compile(diagnostics) => Self::Compile(diagnostics),
            Error::Unsupported(what) => Self::Unsupported(what),
            Error::NoKernel { .. } | Error::Constant(_) => Self::InvalidArgument(error.to_string()),
            Error::Toolchain(_) | Error::Clang { .. } | Error::Io(_) => Self::Environment(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_kernel_lists_what_there_is() {
        let known = vec!["add".to_owned(), "sub".to_owned()];
        let error = Error::NoKernel { name: "mul".into(), known };
        assert_eq!(error.to_string(), "no kernel `mul` in the source; it has `add`, `sub`");
        assert!(matches!(elinvar_driver::Error::from(error), elinvar_driver::Error::InvalidArgument(_)));
    }
}
