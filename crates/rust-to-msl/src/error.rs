//! [`Error`]: what the subset lacks, at the user's span, with what to write instead.

use proc_macro2::Span;

/// A part of a kernel that cannot be translated.
#[derive(Clone, Debug)]
pub struct Error {
    /// Where.
    pub span: Span,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl Error {
    /// Creates an error.
    pub fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into() }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// An error at a span.
pub(crate) fn fail<T>(span: Span, message: impl Into<String>) -> Result<T> {
    Err(Error::new(span, message))
}
