//! The errors of this crate.

use elinvar_ir::Location;

/// Why a kernel could not be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A construct that the CPU compiler does not do.
    #[error("{}{what}", place(.location))]
    Unsupported {
        /// The construct.
        what: String,
        /// Where in the user's source.
        location: Option<Location>,
    },
    /// A barrier that some threads of the group reach and others provably miss.
    #[error(
        "{}threadgroup_barrier under control flow that differs between the threads of a threadgroup{}",
        place(.location),
        branch_text(.branch)
    )]
    DivergentBarrier {
        /// The barrier.
        location: Option<Location>,
        /// The branch that decides.
        branch: Option<Location>,
    },
    /// The module is not what the front end promises; not the user's fault.
    #[error("malformed kernel module: {0}")]
    Malformed(String),
    /// `ELINVAR_DUMP` names a pass that does not exist, or a dump cannot be written.
    #[error("ELINVAR_DUMP: {0}")]
    Dump(String),
}

impl Error {
    pub(crate) fn unsupported(what: impl Into<String>, location: Option<Location>) -> Self {
        Self::Unsupported { what: what.into(), location }
    }
}

fn place(location: &Option<Location>) -> String {
    location.as_ref().map_or_else(String::new, |l| format!("{l}: "))
}

fn branch_text(branch: &Option<Location>) -> String {
    branch.as_ref().map_or_else(String::new, |l| format!(" (the branch is at line {})", l.line))
}
