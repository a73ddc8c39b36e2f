//! The output of `clang -E`: the text, and the inclusions that it reports.
//!
//! `-dI` and `-dE` leave inclusion directives in the output, with the names as spelled; they are removed from the text here. Any
//! other line that begins with `#` was produced by a macro, would be a directive to the next reader, and is an error.

use std::collections::BTreeSet;

use crate::lex::{TokenKind, tokenize};
use crate::preprocess::source_map::parse_line_marker;

/// The marker that nondeterministic macros expand to; see [`NONDETERMINISTIC_MACROS`].
pub(crate) const NONDETERMINISTIC: &str = "elinvar_uncertain";

/// Macros that depend on the time or on files that may be absent. They are defined as the string [`NONDETERMINISTIC`], which
/// shows up in the text or, in a condition, in a diagnostic.
pub(crate) const NONDETERMINISTIC_MACROS: [&str; 6] =
    ["__DATE__", "__TIME__", "__TIMESTAMP__", "__has_include", "__has_include_next", "__has_embed"];

/// An `#include`, `#import`, `#include_next` or `#embed` directive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IncludeDirective {
    /// The name between quotes or brackets.
    pub name: String,
    pub quoted: bool,
}

/// The parsed output.
#[derive(Debug, Default)]
pub(crate) struct PreprocessorOutput {
    /// The text, without inclusion directives.
    pub text: String,
    /// Files that line markers enter. A source's `#line` may name further ones.
    pub included_files: BTreeSet<String>,
    pub directives: BTreeSet<IncludeDirective>,
    /// Whether an `#embed` was left as a directive.
    pub has_embed: bool,
    /// Offset of a `#` at the beginning of a line that is not a known directive.
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
                // The digraph `%:`.
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

/// Whether the preprocessor leaves such a directive in its output.
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

/// Parse `#include <file> /* clang -E -dI */`.
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
