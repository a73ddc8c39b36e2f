//! [`Failure`]: why a verb ended without a result, and the exit code that says so.

use elinvar::Error;

use crate::report::visible;

/// The end of a verb that did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The command line does not follow the grammar.
    #[error("{0}")]
    Usage(String),
    /// The kernel, its file or its arguments are wrong.
    #[error("{0}")]
    Input(String),
    /// What the runtime or the device answered.
    #[error("{0}")]
    Runtime(#[from] Error),
    /// The verb has printed its diagnostics as its result.
    #[error("the sources have errors")]
    Reported(u8),
    /// The machine refuses: a result cannot be written.
    #[error("{0}")]
    Machine(String),
}

pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    pub fn input(message: impl Into<String>) -> Self {
        Self::Input(message.into())
    }

    /// Put the place that the failure is about before its message.
    pub fn at(self, place: &str) -> Self {
        match self {
            Self::Usage(message) => Self::Usage(format!("{place}: {message}")),
            Self::Input(message) => Self::Input(format!("{place}: {message}")),
            other => other,
        }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Input(_) => 1,
            Self::Reported(code) => *code,
            Self::Machine(_) => 3,
            Self::Runtime(error) => exit_code(error),
        }
    }

    /// Write the failure to stderr. A compiler's diagnostics begin with their place and stand as they are.
    pub fn print(&self) {
        match self {
            Self::Reported(_) => {}
            Self::Runtime(Error::Compile(diagnostics)) if !diagnostics.is_empty() => {
                eprintln!("{}", visible(&self.to_string()))
            }
            _ => eprintln!("error: {}", visible(&self.to_string())),
        }
    }
}

/// 1 for what the caller of the kernel can mend, 3 for what the device or the machine did.
pub fn exit_code(error: &Error) -> u8 {
    match error {
        Error::Compile(_) | Error::InvalidArgument(_) | Error::Unsupported(_) | Error::Fault(_) => 1,
        Error::Poisoned(cause) => exit_code(cause),
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn exit_codes_tell_whose_fault_it_is() {
        assert_eq!(Failure::usage("x").exit_code(), 2);
        assert_eq!(Failure::input("x").exit_code(), 1);
        assert_eq!(Failure::from(Error::unsupported("x")).exit_code(), 1);
        assert_eq!(Failure::from(Error::Timeout("x".into())).exit_code(), 3);
        assert_eq!(Failure::from(Error::Environment("x".into())).exit_code(), 3);
        let lost = Error::DeviceLost("x".into());
        assert_eq!(Failure::from(Error::Poisoned(Arc::new(lost))).exit_code(), 3);
        assert_eq!(Failure::from(Error::Poisoned(Arc::new(Error::invalid("x")))).exit_code(), 1);
    }

    #[test]
    fn a_place_keeps_the_kind() {
        let failure = Failure::input("is wrong").at("--arg a=1");
        assert_eq!((failure.to_string().as_str(), failure.exit_code()), ("--arg a=1: is wrong", 1));
    }
}
