//! Faults of a kernel, and their location.

use elinvar_ir::Location;

/// Result of executing one instruction, before its location is known.
pub(crate) type Result<T> = std::result::Result<T, Problem>;

/// A kind of fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// An access outside its allocation.
    #[error("access of {len} bytes at offset {offset} of {what}, which has {size} bytes")]
    OutOfBounds {
        /// The allocation.
        what: String,
        /// Offset in bytes from its start.
        offset: i64,
        /// Size of the access in bytes.
        len: u64,
        /// Size of the allocation in bytes.
        size: u64,
    },
    /// An access through an invalid pointer: null, freed, or never a pointer.
    #[error("access of {len} bytes at address {address:#x}, where no memory is mapped")]
    Wild {
        /// The address.
        address: u64,
        /// Size of the access in bytes.
        len: u64,
    },
    /// A misaligned access.
    #[error("access at offset {offset} of {what} that needs an alignment of {align}")]
    Misaligned {
        /// The allocation.
        what: String,
        /// Offset in bytes from its start.
        offset: i64,
        /// The required alignment in bytes.
        align: u64,
    },
    /// A write to a constant.
    #[error("write to {what}, which is constant")]
    ReadOnly {
        /// The allocation.
        what: String,
    },
    /// Control flow or an address depends on uninitialized memory.
    #[error("{what} is not initialized")]
    Uninitialized {
        /// What depends on it.
        what: &'static str,
    },
    /// Threads of a threadgroup wait at different barriers.
    #[error("threads of the group wait at another barrier{}", other.as_ref().map(|l| format!(", at {l}")).unwrap_or_default())]
    DivergentBarrier {
        /// The other barrier.
        other: Option<Location>,
    },
    /// Threadgroups have ended, or wait at another grid barrier, while others wait at one.
    #[error("not all threadgroups arrive at the grid barrier")]
    MissedGridBarrier,
    /// A lane waits for lanes that never arrive.
    #[error("a lane waits for lanes of its mask that never arrive")]
    Stuck,
    /// `unreachable` was executed.
    #[error("unreachable code is reached")]
    Unreachable,
    /// The limit [`Options::steps`](crate::Options::steps) was exceeded.
    #[error("the limit of {0} instructions is reached")]
    Steps(u64),
    /// Maximum call depth exceeded.
    #[error("{0} calls are nested")]
    Depth(usize),
    /// A construct that the interpreter does not support.
    #[error("{0} is not supported by the reference interpreter")]
    Unsupported(String),
    /// The module or the launch is inconsistent.
    #[error("malformed: {0}")]
    Malformed(String),
}

/// A [`Problem`] with its location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}{}", place(.location), thread_text(.function, .group, .thread))]
pub struct Fault {
    /// What happened.
    pub problem: Box<Problem>,
    /// Location in the user's source.
    pub location: Option<Location>,
    /// The function that was executing; empty before the first.
    pub function: String,
    /// The threadgroup's position.
    pub group: [u32; 3],
    /// Position of the thread in its threadgroup, if the fault is of one thread.
    pub thread: Option<[u32; 3]>,
}

impl Fault {
    /// A problem before any thread runs.
    pub(crate) fn outside(problem: Problem, function: String) -> Fault {
        Fault { problem: Box::new(problem), location: None, function, group: [0; 3], thread: None }
    }
}

fn place(location: &Option<Location>) -> String {
    location.as_ref().map_or_else(String::new, |l| format!("{l}: "))
}

fn thread_text(function: &str, group: &[u32; 3], thread: &Option<[u32; 3]>) -> String {
    let thread = thread.map_or_else(String::new, |t| format!("thread {t:?} of "));
    let function = if function.is_empty() { String::new() } else { format!(", in `{function}`") };
    format!(" ({thread}group {group:?}{function})")
}
