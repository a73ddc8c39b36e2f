//! The errors of this crate.

use elinvar_ir::Location;

/// An error of the compilation of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel uses a construct that the back end does not support.
    #[error("{}{what}", place(.location))]
    Unsupported {
        /// The construct.
        what: String,
        /// Location in the user's source.
        location: Option<Location>,
    },
    /// A barrier at which the simdgroups of a threadgroup provably do not meet.
    #[error(
        "{}threadgroup_barrier under control flow that differs between the simdgroups of a threadgroup{}",
        place(.location),
        branch_text(.branch)
    )]
    DivergentBarrier {
        /// The barrier.
        location: Option<Location>,
        /// The divergent branch.
        branch: Option<Location>,
    },
    /// The module violates the front end's contract; an internal error.
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
