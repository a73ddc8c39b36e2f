//! [`Diagnostic`]: a compiler message with its source location.

use std::fmt;

/// Severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Severity {
    /// The compilation failed.
    Error,
    /// The compilation succeeded.
    Warning,
    /// Additional information on another diagnostic.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

/// A compiler message about a location in the user's source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Diagnostic {
    /// Severity.
    pub severity: Severity,
    /// File name as the user gave it.
    pub file: String,
    /// Line, from 1; 0 if the message concerns the whole file.
    pub line: u32,
    /// Column in bytes, from 1; 0 if unknown.
    pub column: u32,
    /// Message, without location and severity.
    pub message: String,
    /// Text of the source line, without its line terminator, if available.
    pub source_line: Option<String>,
    /// Notes, such as template instantiations and declarations.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "nested::notes"))]
    pub notes: Vec<Diagnostic>,
}

/// Reading of notes within notes.
#[cfg(feature = "serde")]
mod nested {
    use std::cell::Cell;

    use serde::de::{Deserialize, Deserializer, Error as _};

    use super::Diagnostic;

    /// Levels of notes that are read. Clang's notes have none within: a record with more was damaged or made up, and must not exhaust
    /// the stack.
    const DEEPEST: u32 = 15;

    thread_local! {
        static DEPTH: Cell<u32> = const { Cell::new(0) };
    }

    pub(super) fn notes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Diagnostic>, D::Error> {
        let depth = DEPTH.get();
        if depth == DEEPEST {
            return Vec::<TooDeep>::deserialize(from).map(|_none| Vec::new());
        }
        DEPTH.set(depth + 1);
        let notes = Vec::deserialize(from);
        DEPTH.set(depth);
        notes
    }

    /// A note that is nested too deeply.
    struct TooDeep;

    impl<'de> Deserialize<'de> for TooDeep {
        fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            Err(D::Error::custom("notes are nested too deeply"))
        }
    }
}

impl Diagnostic {
    /// An error at a location, without source line and notes.
    pub fn error(file: impl Into<String>, line: u32, column: u32, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            file: file.into(),
            line,
            column,
            message: message.into(),
            source_line: None,
            notes: Vec::new(),
        }
    }
}

impl fmt::Display for Diagnostic {
    /// `file:line:column: severity: message`, then the source line with a caret, then the notes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Visible(&self.file, ""))?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
            if self.column > 0 {
                write!(f, ":{}", self.column)?;
            }
        }
        write!(f, ": {}: {}", self.severity, Visible(&self.message, "\n\t"))?;
        if let Some(line) = &self.source_line {
            write!(f, "\n{:5} | {}", self.line, Visible(line, "\t"))?;
            if self.column > 0 {
                let before = line.get(..self.column as usize - 1).unwrap_or(line);
                let before = Visible(before, "\t").to_string();
                let pad: String = before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
                write!(f, "\n      | {pad}^")?;
            }
        }
        for note in &self.notes {
            write!(f, "\n{note}")?;
        }
        Ok(())
    }
}

/// Displays text with control characters and bidirectional formatting characters escaped, except those in the second field, so that
/// a source cannot control the terminal.
struct Visible<'a>(&'a str, &'a str);

impl fmt::Display for Visible<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            c if self.1.contains(c) => fmt::Write::write_char(f, c),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                write!(f, "{}", c.escape_unicode())
            }
            c if c.is_control() => write!(f, "{}", c.escape_unicode()),
            c => fmt::Write::write_char(f, c),
        })
    }
}

/// Message of an error with several diagnostics.
pub(crate) fn summary(diagnostics: &[Diagnostic]) -> String {
    let texts: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
    texts.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_control_a_terminal_is_escaped() {
        let mut d = Diagnostic::error("k\u{1b}[2J\n.metal", 3, 9, "no \u{7}such\nthing \u{202e}`y`");
        d.source_line = Some("\tx\u{1b}]0;y;\u{9b}\r".into());
        assert_eq!(
            d.to_string(),
            "k\\u{1b}[2J\\u{a}.metal:3:9: error: no \\u{7}such\nthing \\u{202e}`y`\n    3 | \tx\\u{1b}]0;y;\\u{9b}\\u{d}\n      | \t            ^"
        );
    }

    #[test]
    fn caret_stands_under_the_column() {
        let mut d = Diagnostic::error("k.metal", 3, 6, "no such name `y`");
        d.source_line = Some("\tx = y;".into());
        assert_eq!(d.to_string(), "k.metal:3:6: error: no such name `y`\n    3 | \tx = y;\n      | \t    ^");
    }
}
