//! What `clang -E` wrote: the text, and what it says of files that were included.
//!
//! With `-dI` and `-dE` directives that include are in the output, with the names that they spell. They are taken out of
//! the text here. So is nothing else; but a line that begins with a `#` that a macro made would be a directive to
//! whatever reads the text next, and is an error.

use std::collections::BTreeSet;

use crate::lex::{TokenKind, tokenize};
use crate::preprocess::source_map::parse_line_marker;

/// Stands for whatever depends on more than files and text; see [`NONDETERMINISTIC_MACROS`].
pub(crate) const NONDETERMINISTIC: &str = "elinvar_uncertain";

/// Macros whose meaning depends on the time or on files that need not be there. Where one of them is expanded in spite of the
/// definition that it is given in their place, the text or a message has [`NONDETERMINISTIC`] in it: it is a string, so that
/// no condition takes it.
pub(crate) const NONDETERMINISTIC_MACROS: [&str; 6] =
    ["__DATE__", "__TIME__", "__TIMESTAMP__", "__has_include", "__has_include_next", "__has_embed"];

/// `#include` and the like.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IncludeDirective {
    /// What is between the quotes or brackets.
    pub name: String,
    pub quoted: bool,
}

/// The preprocessed text.
#[derive(Debug, Default)]
pub(crate) struct PreprocessorOutput {
    /// Without the directives.
    pub text: String,
    /// The files that were entered. A source may name others in the same way.
    pub included_files: BTreeSet<String>,
    pub directives: BTreeSet<IncludeDirective>,
    /// Whether there is an `#embed` among the directives, in place of what it gives.
    pub has_embed: bool,
    /// Where a line begins with a `#` that is no directive's.
    pub stray_directive: Option<usize>,
}

impl PreprocessorOutput {
    pub(crate) fn parse(output: &str) -> Self {
        let (mut found, mut copied) = (Self::default(), 0);
        let tokens = tokenize(output);
        for (index, token) in tokens.iter().enumerate() {
            let line = &output[token.start..token.end];
            let stray_directive = if token.kind == TokenKind::Directive {
                if let Some(directive) = include(line) {
                    found.has_embed |= line.starts_with("#embed");
                    found.directives.insert(directive);
                    found.text.push_str(&output[copied..token.start]);
                    copied = token.end;
                } else if let Some((_, name)) = parse_line_marker(line) {
                    let flags = line.rsplit('"').next().unwrap_or_default();
                    if flags.trim_start().starts_with('1') && !name.starts_with('<') {
                        found.included_files.insert(name);
                    }
                }
                !is_expected(line) || !output[..token.start].ends_with('\n') && token.start > 0
            } else {
                // The other spelling of `#`.
                line == "%"
                    && tokens.get(index + 1).is_some_and(|next| &output[token.end..next.end] == ":")
                    && begins_line(&output[..token.start])
            };
            if stray_directive {
                found.stray_directive.get_or_insert(found.text.len() + token.start - copied.min(token.start));
            }
        }
        found.text.push_str(&output[copied..]);
        found
    }
}

/// Whether a directive is one that the preprocessor leaves in its output.
fn is_expected(line: &str) -> bool {
    let word = line[1..].split(|c: char| !c.is_ascii_alphabetic()).next();
    parse_line_marker(line).is_some()
        || include(line).is_some()
        || matches!(word, Some("pragma" | "ident" | "sccs"))
}

fn begins_line(before: &str) -> bool {
    let blank = |c: &char| [' ', '\t', '\r', '\x0b', '\x0c'].contains(c);
    before.chars().rev().find(|c| !blank(c)).is_none_or(|c| c == '\n')
}

/// `#include <file> /* clang -E -dI */`
fn include(line: &str) -> Option<IncludeDirective> {
    let directive = line
        .trim_end()
        .strip_suffix(" /* clang -E -dI */")
        .or(line.trim_end().strip_suffix(" /* clang -E -dE */"))?;
    let words = ["#include ", "#import ", "#include_next ", "#__include_macros ", "#embed "];
    let name = words.iter().find_map(|word| directive.strip_prefix(word))?;
    let (quoted, close) = match name.chars().next()? {
        '"' => (true, '"'),
        '<' => (false, '>'),
        _ => return None,
    };
    let name = &name[1..];
    Some(IncludeDirective { name: name[..name.find(close)?].to_owned(), quoted })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_taken_out_and_told() {
        let output = "# 1 \"/dev/stdin\"\n# 1 \"k\"\n#include <a.h> /* clang -E -dI */\n# 1 \"k\"\n\
                      # 1 \"\\303\\251/a.h\" 1 3\nint a;\n# 2 \"k\" 2\n#embed \"b.bin\" limit(3) /* clang -E -dE */\n\
                      auto s = R\"(\n#include \"x\" /* clang -E -dI */\n)\";\n#pragma x\n";
        let found = PreprocessorOutput::parse(output);
        let directive = |name: &str, quoted| IncludeDirective { name: name.into(), quoted };
        assert_eq!(found.directives, [directive("a.h", false), directive("b.bin", true)].into());
        assert_eq!(found.included_files, ["é/a.h".to_owned()].into());
        assert!(found.has_embed && found.stray_directive.is_none());
        assert!(found.text.contains("# 1 \"k\"\n\n# 1 \"k\"") && found.text.contains("R\"(\n#include \"x\""));
        assert_eq!(found.text.lines().count(), output.lines().count());
    }

    #[test]
    fn a_directive_that_a_macro_made_is_found() {
        for made in [" # include \"a.h\"", " %: include \"a.h\"", " #pragma x", "#define X", " #"] {
            let text = format!("# 1 \"k\"\n#include <a.h> /* clang -E -dI */\nint a;\n{made}\n");
            let found = PreprocessorOutput::parse(&text);
            let at = found.text.rfind(made.trim_start()).unwrap();
            assert_eq!(found.stray_directive, Some(at), "{made}");
        }
        for other in ["int a = 5 %:b", "a # b", "# 3 \"x\" 2", "#pragma once"] {
            assert_eq!(PreprocessorOutput::parse(&format!("x\n{other}\n")).stray_directive, None, "{other}");
        }
    }
}
