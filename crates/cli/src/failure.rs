//! [`Failure`]: why a verb failed, and its exit code.

use elinvar::Error;

use crate::report::visible;

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The command line does not follow the grammar.
    #[error("{0}")]
    Usage(String),
    /// The kernel, its file or its arguments are wrong.
    #[error("{0}")]
    Input(String),
    /// An error of the runtime or the device.
    #[error("{0}")]
    Runtime(#[from] Error),
    /// The verb has already printed its diagnostics.
    #[error("the sources have errors")]
    Reported(u8),
    /// The environment failed: a result cannot be written.
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

    /// Prefix the message with what it is about.
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

    /// Print the failure to standard error. Compiler diagnostics have their own prefix.
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

/// 1 for errors of the source or the arguments, 3 for those of device or machine.
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
