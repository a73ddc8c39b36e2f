//! [`Writer`]: lines of MSL with the spans of the Rust code that they are from.

use proc_macro2::Span;

/// A line of MSL.
#[derive(Clone, Debug)]
pub struct Line {
    pub depth: usize,
    pub text: String,
    pub span: Option<Span>,
}

/// Lines, and how deep the next is indented.
#[derive(Default)]
pub struct Writer {
    pub lines: Vec<Line>,
    depth: usize,
    span: Option<Span>,
}

impl Writer {
    /// The span of the lines that follow.
    pub fn at(&mut self, span: Span) {
        self.span = Some(span);
    }

    pub fn line(&mut self, text: impl Into<String>) {
        self.lines.push(Line { depth: self.depth, text: text.into(), span: self.span });
    }

    pub fn open(&mut self, text: impl Into<String>) {
        self.line(text);
        self.depth += 1;
    }

    pub fn close(&mut self, text: impl Into<String>) {
        self.depth = self.depth.saturating_sub(1);
        self.line(text);
    }
}
