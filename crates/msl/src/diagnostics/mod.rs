//! Parses clang's diagnostics, maps them to the user's source and renders types as in MSL.

pub(crate) mod address_spaces;
mod reasons;
pub(crate) mod type_names;

use std::collections::HashSet;

use elinvar_driver::{Diagnostic, Severity};

use crate::preprocess::source_map::{Location, SourceMap};
use crate::rewrite::buffer::RewriteBuffer;

/// A diagnostic as clang prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClangDiagnostic {
    pub file: String,
    pub line: u32,
    pub column: u32,
    pub severity: Severity,
    pub text: String,
}

/// Parse clang's standard error; other lines are skipped.
pub(crate) fn parse(stderr: &str) -> Vec<ClangDiagnostic> {
    stderr.lines().filter_map(message).collect()
}

/// [`parse`] for file names that contain line breaks or colons.
pub(crate) fn parse_with_files(stderr: &str, files: &[String]) -> Vec<ClangDiagnostic> {
    let mut odd: Vec<&String> = files.iter().filter(|name| name.contains(['\n', ':'])).collect();
    odd.sort_by_key(|name| std::cmp::Reverse(name.len()));
    let mut text = format!("\n{stderr}");
    for (index, name) in odd.iter().enumerate() {
        for before in ["\n", INCLUDED] {
            text = text.replace(&format!("{before}{name}:"), &format!("{before}\u{1}{index}\u{1}:"));
        }
    }
    let named = |mut m: ClangDiagnostic| {
        let index = m.file.strip_prefix('\u{1}').and_then(|rest| rest.strip_suffix('\u{1}'));
        if let Some(name) = index.and_then(|index| odd.get(index.parse::<usize>().ok()?)) {
            m.file = (*name).clone();
        }
        m
    };
    parse(&text).into_iter().map(named).collect()
}

/// Beginning of a line of the include stack.
const INCLUDED: &str = "\nIn file included from ";

fn message(line: &str) -> Option<ClangDiagnostic> {
    const KINDS: [(&str, Severity); 4] = [
        (": fatal error: ", Severity::Error),
        (": error: ", Severity::Error),
        (": warning: ", Severity::Warning),
        (": note: ", Severity::Note),
    ];
    let (at, kind, severity) = KINDS
        .iter()
        .filter_map(|(kind, severity)| Some((line.find(kind)?, *kind, *severity)))
        .min_by_key(|m| m.0)?;
    let (rest, column) = line[..at].rsplit_once(':')?;
    let (file, number) = rest.rsplit_once(':')?;
    Some(ClangDiagnostic {
        file: file.to_owned(),
        line: number.parse().ok()?,
        column: column.parse().ok()?,
        severity,
        text: line[at + kind.len()..].to_owned(),
    })
}

/// The location of a preprocessor diagnostic, which is in the user's files already.
pub(crate) fn source_location(source_map: &SourceMap, m: &ClangDiagnostic) -> Location {
    let source_line = source_map.source_line(&m.file, m.line);
    Location { file: m.file.clone(), line: m.line, column: m.column, source_line }
}

/// The location of a diagnostic about rewritten text on standard input.
pub(crate) fn rewritten_location(
    source_map: &SourceMap,
    text: &RewriteBuffer,
    m: &ClangDiagnostic,
) -> Option<Location> {
    (m.file == "<stdin>").then(|| source_map.location(text.input(text.offset(m.line, m.column))))
}

/// Remove diagnostics about glue when an error in the user's text explains them.
pub(crate) fn without_glue(messages: Vec<ClangDiagnostic>, text: &RewriteBuffer) -> Vec<ClangDiagnostic> {
    let own = |m: &ClangDiagnostic| m.file != "<stdin>" || !text.is_glue(text.offset(m.line, m.column));
    let explained = messages.iter().any(|m| m.severity == Severity::Error && m.file == "<stdin>" && own(m));
    // An unterminated literal or bracket in the user's text swallows the end of this pragma.
    let pushed = |m: &ClangDiagnostic| m.text.starts_with("unterminated '#pragma clang attribute push'");
    let explained_otherwise = messages.iter().any(|m| m.severity == Severity::Error && own(m) && !pushed(m));
    let telling = |m: &ClangDiagnostic| (!explained || own(m)) && !(explained_otherwise && pushed(m));
    messages.into_iter().filter(telling).collect()
}

/// Attach notes to diagnostics. A diagnostic without location in the user's source takes that of its first note that has one;
/// other notes without location are dropped.
pub(crate) fn resolve(
    messages: Vec<ClangDiagnostic>,
    place: &dyn Fn(&ClangDiagnostic) -> Option<Location>,
) -> Vec<Diagnostic> {
    let mut found: Vec<Diagnostic> = Vec::new();
    let mut unplaced = false;
    for m in messages {
        let at = place(&m);
        let is_note = m.severity == Severity::Note;
        match (is_note, at) {
            (false, at) => {
                unplaced = at.is_none();
                found.push(diagnostic(&m, at));
            }
            (true, Some(at)) if unplaced => {
                unplaced = false;
                if let Some(last) = found.last_mut() {
                    (last.file, last.line, last.column) = (at.file, at.line, at.column);
                    last.source_line = at.source_line;
                }
            }
            (true, Some(at)) => {
                if let Some(last) = found.last_mut() {
                    last.notes.push(diagnostic(&m, Some(at)));
                }
            }
            (true, None) => {}
        }
    }
    // Errors without location follow from an error that has one.
    let placed = |d: &Diagnostic| !d.file.is_empty();
    if found.iter().any(|d| d.severity == Severity::Error && placed(d)) {
        found.retain(placed);
    }
    // Every instantiation of a template repeats its diagnostics.
    let mut seen = HashSet::new();
    found.retain(|d| seen.insert((d.file.clone(), d.line, d.column, d.message.clone())));
    found
}

fn diagnostic(m: &ClangDiagnostic, at: Option<Location>) -> Diagnostic {
    let at = at.unwrap_or(Location { file: String::new(), line: 0, column: 0, source_line: None });
    Diagnostic {
        severity: m.severity,
        file: at.file,
        line: at.line,
        column: at.column,
        message: reasons::with_reason(type_names::in_msl(&m.text)),
        source_line: at.source_line,
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_lines_that_are_messages() {
        let text = "In file included from <built-in>:1:\na:b.h:3:14: error: no member: error: x\n\
                    <stdin>:1:2: note: here\nfatal error: too many errors\n1 error generated.\n";
        let found = parse(text);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].file.as_str(), found[0].line, found[0].column), ("a:b.h", 3, 14));
        assert_eq!(found[0].text, "no member: error: x");
        assert_eq!(found[1].severity, Severity::Note);
    }

    #[test]
    fn a_file_with_a_name_like_a_message_makes_none() {
        for name in ["x:1:2: error: z/a.h", "x\ny:1:2: error: z/a.h"] {
            let text = format!(
                "In file included from k:1:\nIn file included from {name}:3:\n{name}:4:5: warning: w\n"
            );
            let found = parse_with_files(&text, &[name.to_owned(), "k".to_owned()]);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(
                (found[0].file.as_str(), found[0].line, found[0].severity),
                (name, 4, Severity::Warning)
            );
        }
    }

    #[test]
    fn errors_in_headers_move_to_the_call() {
        let text = "/t/elinvar_stdlib/x.h:1:1: error: static assertion failed\n\
                    /t/elinvar_stdlib/x.h:2:1: note: inside\n<stdin>:4:9: note: requested here\n<stdin>:5:1: note: and here\n";
        let place = |m: &ClangDiagnostic| {
            (m.file == "<stdin>").then(|| Location {
                file: "k".into(),
                line: m.line,
                column: m.column,
                source_line: None,
            })
        };
        let found = resolve(parse(text), &place);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].line, found[0].column, found[0].notes.len()), (4, 9, 1));
        assert_eq!(found[0].message, "static assertion failed");
    }
}
