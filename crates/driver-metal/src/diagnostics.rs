//! Parser of the Metal compiler's text output.
//!
//! A message is a line `FILE:LINE:COLUMN: error: TEXT`, possibly without the column, followed by the source line and a line with a caret. Other lines
//! concern the whole compilation and are omitted. Metal names the source `program_source`. Because the text that it compiles names the
//! user's files with `#line` (`flatten`), that name refers only to generated lines.

use elinvar_driver::{Diagnostic, Severity, Source};

const KINDS: [(&str, Severity); 4] = [
    (": fatal error: ", Severity::Error),
    (": error: ", Severity::Error),
    (": warning: ", Severity::Warning),
    (": note: ", Severity::Note),
];

/// The messages in `text`, with their notes. A text without any message with a location is one message about the source.
pub(crate) fn parse(text: &str, source: &Source, severity: Severity) -> Vec<Diagnostic> {
    let mut found: Vec<Diagnostic> = Vec::new();
    for line in text.lines() {
        let Some(diagnostic) = message(line, source) else { continue };
        match (diagnostic.severity, found.last_mut()) {
            (Severity::Note, Some(last)) => last.notes.push(diagnostic),
            (Severity::Note, None) => {}
            _ => found.push(diagnostic),
        }
    }
    if found.is_empty() {
        let file = source.files.first().map_or("", |file| &file.name);
        found.push(Diagnostic { severity, ..Diagnostic::error(file, 0, 0, text.trim()) });
    }
    found
}

fn message(line: &str, source: &Source) -> Option<Diagnostic> {
    let kinds = KINDS.iter().filter_map(|(mark, severity)| Some((line.find(mark)?, mark.len(), *severity)));
    let (at, len, severity) = kinds.min_by_key(|(at, ..)| *at)?;
    let (rest, last) = line[..at].rsplit_once(':')?;
    let last: u32 = last.parse().ok()?;
    let before = rest.rsplit_once(':').and_then(|(file, number)| Some((file, number.parse().ok()?)));
    let (file, number, column): (&str, u32, u32) =
        before.map_or((rest, last, 0), |(file, number)| (file, number, last));
    let own = source.files.iter().find(|own| own.name == file);
    let text = own.and_then(|own| own.text.lines().nth((number as usize).checked_sub(1)?));
    Some(Diagnostic {
        severity,
        source_line: text.map(str::to_owned),
        ..Diagnostic::error(file, number, column, &line[at + len..])
    })
}

/// Adds columns to errors of Metal that lack them, from another compiler's errors of the same source.
pub(crate) fn with_columns(found: Vec<Diagnostic>, other: &[Diagnostic]) -> Vec<Diagnostic> {
    let fuller = |diagnostic: Diagnostic| {
        let same = |known: &&Diagnostic| (&known.file, known.line) == (&diagnostic.file, diagnostic.line);
        let known = other.iter().find(same).filter(|_| diagnostic.column == 0).cloned();
        known.unwrap_or(diagnostic)
    };
    found.into_iter().map(fuller).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_place_line_and_notes() {
        let source = Source::named("bad.metal", "one\n  two three\n");
        let text = "Compilation failed: \n\nbad.metal:2:7: error: unknown type name 'three'\n  two three\n      ^\n\
                    other.h:9:1: note: declared here\nbad.metal:1:1: warning: unused: error: x\n2 errors generated.\n";
        let found = parse(text, &source, Severity::Error);
        assert_eq!(found.len(), 2);
        assert_eq!(
            found[0].to_string(),
            "bad.metal:2:7: error: unknown type name 'three'\n    2 |   two three\n      |       ^\n\
             other.h:9:1: note: declared here"
        );
        assert_eq!((found[1].severity, found[1].message.as_str()), (Severity::Warning, "unused: error: x"));
    }

    #[test]
    fn a_column_that_is_missing_comes_from_another_compiler() {
        let source = Source::named("a:b.metal", "");
        let found =
            parse("a:b.metal:7: error: first\na:b.metal:8:2: error: second", &source, Severity::Error);
        assert_eq!((found[0].file.as_str(), found[0].line, found[0].column), ("a:b.metal", 7, 0));
        let other = [7, 8].map(|line| Diagnostic::error("a:b.metal", line, 5, "other"));
        let columns: Vec<_> =
            with_columns(found, &other).into_iter().map(|d| (d.column, d.message)).collect();
        assert_eq!(columns, [(5, "other".to_owned()), (2, "second".into())]);
    }

    #[test]
    fn a_text_without_a_place_is_about_the_source() {
        let source = Source::named("k.metal", "");
        let found = parse("Compiler encountered an internal error\n", &source, Severity::Error);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "k.metal: error: Compiler encountered an internal error");
    }
}
