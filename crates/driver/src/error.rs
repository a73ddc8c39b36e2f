//! The one error type of drivers and runtime. Decide on the variant, never on message text.

use std::sync::Arc;

use crate::{Diagnostic, Label, diagnostic};

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, by what the caller can do about it.
#[derive(Clone, Debug, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Error {
    /// The kernel's source is wrong; each diagnostic has file, line and column.
    #[error("{}", diagnostic::summary(.0))]
    Compile(Vec<Diagnostic>),

    /// The call is wrong; the message names the thing and, for limits, the allowed range.
    #[error("{0}")]
    InvalidArgument(String),

    /// This device, driver or build cannot do it; the message says why.
    #[error("unsupported: {0}")]
    Unsupported(String),

    /// There is no memory left for it.
    #[error("out of memory: {requested} bytes asked for, {available} available")]
    OutOfMemory {
        /// Bytes asked for.
        requested: u64,
        /// Bytes that could have been had, as far as known.
        available: u64,
    },

    /// A kernel did something wrong while it ran.
    #[error("{0}")]
    Fault(Fault),

    /// The work did not run because work before it had failed; holds the first cause.
    #[error("not run, because earlier work failed: {0}")]
    Poisoned(Arc<Error>),

    /// The work took longer than its deadline.
    #[error("timed out: {0}")]
    Timeout(String),

    /// The stream has as many submissions in flight as it may.
    #[error("the queue is full: {limit} submissions are in flight")]
    QueueFull {
        /// How many it may have.
        limit: usize,
    },

    /// The work was cancelled before it began.
    #[error("cancelled before it began")]
    Cancelled,

    /// The device is gone or has failed for good.
    #[error("device lost: {0}")]
    DeviceLost(String),

    /// The device is not given the work, because it has failed too often; the message says when it is tried again.
    #[error("refused: {0}")]
    Refused(String),

    /// The call would block in a callback, on a thread that may have to finish what is waited for; the message says what to do
    /// instead. Nothing has changed.
    #[error("would deadlock: {0}")]
    WouldDeadlock(String),

    /// Something outside failed that a kernel needs: the compiler could not be found or run, a file
    /// could not be read or written.
    #[error("{0}")]
    Environment(String),
}

/// A kernel's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Fault {
    /// The kernel's name.
    pub kernel: String,
    /// What happened.
    pub message: String,
    /// Where, as `file:line`, when known.
    pub location: Option<String>,
    /// What the program calls the launch, if anything.
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
    /// Shorthand for [`Error::InvalidArgument`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::InvalidArgument(message.into())
    }

    /// Shorthand for [`Error::Unsupported`].
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::Unsupported(message.into())
    }

    /// What work behind this failure ends in: `Poisoned`, with the first cause and no nesting.
    pub fn poison(&self) -> Self {
        match self {
            Self::Poisoned(_) => self.clone(),
            other => Self::Poisoned(Arc::new(other.clone())),
        }
    }
}
