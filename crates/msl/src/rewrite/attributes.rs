//! Attribute lists `[[…]]`: parsing, and which of them clang may see.

use crate::lex::token_buffer::TokenBuffer;

/// An attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    /// The name, without namespace.
    pub name: String,
    /// The text between the parentheses.
    pub argument: Option<String>,
    /// Offset of the name.
    pub offset: usize,
    /// Offset of the argument.
    pub argument_offset: usize,
}

/// Standard attributes of C++, which clang handles.
const STANDARD: [&str; 7] =
    ["maybe_unused", "nodiscard", "noreturn", "fallthrough", "likely", "unlikely", "deprecated"];

/// Parse the list that opens at token `i` and ends before `behind`.
pub(crate) fn parse(tokens: &TokenBuffer, i: usize, behind: usize) -> Vec<Attribute> {
    let mut found = Vec::new();
    for (from, to) in tokens.split_commas(i + 2, behind.saturating_sub(2)) {
        let mut at = from;
        while tokens.spelling(at + 1) == "::" && at + 2 < to {
            at += 2;
        }
        let (argument, argument_offset) = match tokens.after_group(at + 1) {
            Some(end) if tokens.spelling(at + 1) == "(" && end <= to => {
                (Some(tokens.source_text(at + 2, end - 1).to_owned()), tokens.start(at + 2))
            }
            _ => (None, tokens.start(at)),
        };
        found.push(Attribute {
            name: tokens.spelling(at).to_owned(),
            argument,
            offset: tokens.start(at),
            argument_offset,
        });
    }
    found
}

/// Whether clang may see the list.
pub(crate) fn standard(list: &[Attribute]) -> bool {
    list.iter().all(|a| STANDARD.contains(&a.name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        let tokens = TokenBuffer::new("[[buffer(A + 1), gpu::host_name(\"x,y\"), id]]");
        let list = parse(&tokens, 0, tokens.len());
        let pairs: Vec<_> = list.iter().map(|a| (a.name.as_str(), a.argument.as_deref())).collect();
        assert_eq!(pairs, [("buffer", Some("A + 1")), ("host_name", Some("\"x,y\"")), ("id", None)]);
        assert_eq!(list[0].argument_offset, 9);
        assert!(!standard(&list));
        let tokens = TokenBuffer::new("[[maybe_unused]]");
        assert!(standard(&parse(&tokens, 0, tokens.len())));
        assert!(parse(&TokenBuffer::new("[[]]"), 0, 4).is_empty());
    }
}
