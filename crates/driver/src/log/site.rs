//! [`LogSite`]: a log call in a kernel's code, with which its records become lines.

use std::fmt;

use super::format::{self, Piece};
use crate::Scalar;

/// Maximum number of components that a log call takes.
pub const MAX_LOG_WORDS: usize = 64;

/// Level of a log line, in ascending order of severity; the levels of Metal's `MTLLogLevel`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LogLevel {
    /// `log_debug`.
    Debug,
    /// `log_info`.
    Info,
    /// `log` and `printf`.
    #[default]
    Notice,
    /// `log_error`.
    Error,
    /// `log_fault`.
    Fault,
}

impl LogLevel {
    /// All levels, in ascending order.
    pub const ALL: [Self; 5] = [Self::Debug, Self::Info, Self::Notice, Self::Error, Self::Fault];
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Error => "error",
            Self::Fault => "fault",
        })
    }
}

/// A value that a log call takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LogValue {
    /// A scalar or a vector. A record has a word for each component: integers are extended to 64 bits according to their signs,
    /// floating-point numbers are the bits of a `float`.
    Number {
        /// Component type.
        scalar: Scalar,
        /// Number of components; 1 for a scalar.
        lanes: u8,
    },
    /// A string literal. A record has its address, which only `%p` shows.
    Text(String),
    /// A pointer.
    Pointer,
}

impl LogValue {
    /// Number of words in a record.
    pub fn words(&self) -> usize {
        match self {
            Self::Number { lanes, .. } => usize::from(*lanes),
            Self::Text(_) | Self::Pointer => 1,
        }
    }
}

impl fmt::Display for LogValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { scalar, lanes: 1 } => write!(f, "of type `{}`", scalar.msl_name()),
            Self::Number { scalar, lanes } => write!(f, "of type `{}{lanes}`", scalar.msl_name()),
            Self::Text(_) => f.write_str("a string"),
            Self::Pointer => f.write_str("a pointer"),
        }
    }
}

/// A log call in a kernel's code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LogSite {
    /// Level.
    pub level: LogLevel,
    /// Subsystem of the `os_log`; empty for the default one.
    pub subsystem: String,
    /// Category of the `os_log`; empty for the default one.
    pub category: String,
    /// The format.
    pub format: String,
    /// The values.
    pub values: Vec<LogValue>,
    /// Source file of the call; empty if it is not known.
    pub file: String,
    /// Line of the call, from 1; 0 if it is not known.
    pub line: u32,
}

impl LogSite {
    /// Number of words of its records.
    pub fn words(&self) -> usize {
        self.values.iter().map(LogValue::words).sum()
    }

    /// Checks that the format is one, and fits the values.
    ///
    /// # Errors
    /// What does not fit, and what the conversion formats.
    pub fn check(&self) -> Result<(), String> {
        if self.words() > MAX_LOG_WORDS {
            let words = self.words();
            return Err(format!("{words} values, with the components of vectors: at most {MAX_LOG_WORDS}"));
        }
        format::check(&format::parse(&self.format)?, &self.values)
    }

    /// The message of a record. A format that [`LogSite::check`] rejects is shown as it is.
    pub fn message(&self, words: &[u64]) -> String {
        format::message(&self.pieces(), &self.values, words)
    }

    /// The parts of the format; one that does not fit the values is text.
    pub(super) fn pieces(&self) -> Vec<Piece> {
        let pieces = format::parse(&self.format).ok();
        let pieces = pieces.filter(|pieces| format::check(pieces, &self.values).is_ok());
        pieces.unwrap_or_else(|| vec![Piece::Text(self.format.clone())])
    }
}
