//! Diagnostics as workflow commands of GitHub Actions, which annotate the source.

use std::fmt::Write;

use elinvar::{Diagnostic, Severity};

/// `::error file=…,line=…,col=…::message`, with the notes as further lines of the message.
pub fn of(diagnostic: &Diagnostic) -> String {
    let level = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "notice",
    };
    let Diagnostic { file, line, column, message, notes, .. } = diagnostic;
    let mut out = format!("::{level} file={}", escaped(file, true));
    if *line > 0 {
        let _ = write!(out, ",line={line}");
    }
    if *column > 0 {
        let _ = write!(out, ",col={column}");
    }
    let mut text = message.clone();
    for note in notes {
        let _ = write!(text, "\n{}:{}: note: {}", note.file, note.line, note.message);
    }
    out + "::" + &escaped(&text, false)
}

/// An annotation of a file as a whole.
pub fn error(file: &str, message: &str) -> String {
    of(&Diagnostic::error(file, 0, 0, message))
}

/// Escape line breaks, and separators in a property, as the runner decodes them.
fn escaped(text: &str, property: bool) -> String {
    let text = text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    if property { text.replace(':', "%3A").replace(',', "%2C") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_that_the_runner_takes() {
        let mut d = Diagnostic::error("a,b:c.metal", 3, 14, "100 % wrong:\nreally");
        assert_eq!(of(&d), "::error file=a%2Cb%3Ac.metal,line=3,col=14::100 %25 wrong:%0Areally");
        d.notes.push(Diagnostic::error("n.metal", 7, 1, "because"));
        d.severity = Severity::Warning;
        d.column = 0;
        let text =
            "::warning file=a%2Cb%3Ac.metal,line=3::100 %25 wrong:%0Areally%0An.metal:7: note: because";
        assert_eq!(of(&d), text);
        assert_eq!(error("k.metal", "no kernel"), "::error file=k.metal::no kernel");
    }
}
