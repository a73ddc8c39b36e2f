//! [`Error`]: the error type of drivers and runtime. Programs decide on the variant, not on the message.

use std::sync::Arc;

use crate::{Diagnostic, Label, diagnostic};

/// [`std::result::Result`] with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a driver or of the runtime. Variants are distinguished by how a caller can react.
#[derive(Clone, Debug, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Error {
    /// The source does not compile. Each diagnostic has file, line and column.
    #[error("{}", diagnostic::summary(.0))]
    Compile(Vec<Diagnostic>),

    /// The call is invalid. The message names the argument and, for limits, the allowed range.
    #[error("{0}")]
    InvalidArgument(String),

    /// The device, driver or build lacks a feature. The message has the reason.
    #[error("unsupported: {0}")]
    Unsupported(String),

    /// An allocation failed.
    #[error("out of memory: {requested} bytes requested, {available} available")]
    OutOfMemory {
        /// Requested size in bytes.
        requested: u64,
        /// Available size in bytes, an estimate.
        available: u64,
    },

    /// A kernel faulted at run time.
    #[error("{0}")]
    Fault(Fault),

    /// The work did not run because earlier work failed; holds the first cause, which is never `Poisoned` itself.
    #[error("not run, because earlier work failed: {0}")]
    Poisoned(Arc<Error>),

    /// The work exceeded its deadline.
    #[error("timed out: {0}")]
    Timeout(String),

    /// The stream has reached its limit of pending submissions.
    #[error("the queue is full: {limit} submissions are in flight")]
    QueueFull {
        /// Maximum number of pending submissions.
        limit: usize,
    },

    /// The work was cancelled before it began.
    #[error("cancelled before it began")]
    Cancelled,

    /// The device was removed or has failed; it accepts no work until it is reset.
    #[error("device lost: {0}")]
    DeviceLost(String),

    /// The device's circuit breaker is open. The message says when it will be probed again.
    #[error("refused: {0}")]
    Refused(String),

    /// The call would block in a callback, on a thread that the awaited work may need. The message has the alternative. The call had
    /// no effect.
    #[error("would deadlock: {0}")]
    WouldDeadlock(String),

    /// A member of a communicator has failed or does not respond. The communicator is unusable, and can be shrunk.
    #[error("rank {rank} has failed: {reason}")]
    RankFailed {
        /// Rank of the member that failed.
        rank: u32,
        /// What is known of it.
        reason: String,
    },

    /// The work of one member of a group of devices has failed.
    #[error("shard {shard} on `{device}`: {cause}")]
    ShardFailed {
        /// Number of the member.
        shard: usize,
        /// Name of its device.
        device: String,
        /// Its error.
        cause: Arc<Error>,
    },

    /// The environment failed: the compiler could not be found or run, a file could not be read or written, a thread could not be
    /// started.
    #[error("{0}")]
    Environment(String),
}

/// A kernel fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Fault {
    /// Name of the kernel.
    pub kernel: String,
    /// Description, such as the access that was out of bounds.
    pub message: String,
    /// Source location as `file:line`, if known.
    pub location: Option<String>,
    /// Label of the launch, if it has one.
    pub launch: Option<Arc<Label>>,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "kernel `{}`", self.kernel)?;
        if let Some(label) = &self.launch {
            write!(f, ", launch {label}")?;
        }
        if let Some(location) = &self.location {
            write!(f, " at {location}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl Error {
    /// Creates an [`Error::InvalidArgument`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::InvalidArgument(message.into())
    }

    /// Creates an [`Error::Unsupported`].
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::Unsupported(message.into())
    }

    /// The error of work that did not run because of this one: [`Error::Poisoned`] with the first cause, without nesting.
    pub fn poison(&self) -> Self {
        match self {
            Self::Poisoned(_) => self.clone(),
            other => Self::Poisoned(Arc::new(other.clone())),
        }
    }
}
