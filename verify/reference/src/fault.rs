//! Faults of a kernel, and their location.

use elinvar_ir::Location;

/// Result of what runs inside one instruction, before its place is known.
pub(crate) type Result<T> = std::result::Result<T, Problem>;

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// An access outside its allocation.
    #[error("access of {len} bytes at offset {offset} of {what}, which has {size} bytes")]
    OutOfBounds {
        /// The allocation.
        what: String,
        /// In bytes from its beginning.
        offset: i64,
        /// Bytes accessed.
        len: u64,
        /// Bytes of the allocation.
        size: u64,
    },
    /// An access through a pointer to nothing: null, freed, or never a pointer.
    #[error("access of {len} bytes at address {address:#x}, where no memory is mapped")]
    Wild {
        /// The address.
        address: u64,
        /// Bytes accessed.
        len: u64,
    },
    /// An access at an offset that its type does not allow.
    #[error("access at offset {offset} of {what} that needs an alignment of {align}")]
    Misaligned {
        /// The allocation.
        what: String,
        /// In bytes from its beginning.
        offset: i64,
        /// What the access needs.
        align: u64,
    },
    /// A write to a constant.
    #[error("write to {what}, which is constant")]
    ReadOnly {
        /// The allocation.
        what: String,
    },
    /// A decision or an address that rests on memory never written.
    #[error("{what} is not initialized")]
    Uninitialized {
        /// What needs the value.
        what: &'static str,
    },
    /// Threads of a group wait at different barriers.
    #[error("threads of the group wait at another barrier{}", other.as_ref().map(|l| format!(", at {l}")).unwrap_or_default())]
    DivergentBarrier {
        /// The other barrier.
        other: Option<Location>,
    },
    /// A lane waits for others that do not come.
    #[error("a lane waits for lanes of its mask that never arrive")]
    Stuck,
    /// Code that the kernel promises never to reach.
    #[error("unreachable code is reached")]
    Unreachable,
    /// More instructions than [`Options::steps`](crate::Options::steps).
    #[error("the limit of {0} instructions is reached")]
    Steps(u64),
    /// Calls nested deeper than any kernel's.
    #[error("{0} calls are nested")]
    Depth(usize),
    /// A construct that the interpreter does not do.
    #[error("{0} is not supported by the reference interpreter")]
    Unsupported(String),
    /// The module, or the launch, does not fit together.
    #[error("malformed: {0}")]
    Malformed(String),
}

/// A [`Problem`] with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}{}", place(.location), thread_text(.function, .group, .thread))]
pub struct Fault {
    /// What happened.
    pub problem: Box<Problem>,
    /// Where in the user's source.
    pub location: Option<Location>,
    /// The function that was running; empty before the first.
    pub function: String,
    /// The threadgroup's position.
    pub group: [u32; 3],
    /// The thread's position in its group, when it is one thread's doing.
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
