//! Tokens of MSL text by their positions, without comments.

use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An identifier, a keyword or a number.
    Word,
    /// A string or a character.
    Quoted,
    /// One character.
    Mark,
    /// A line of the preprocessor.
    Directive,
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) at: Range<usize>,
}

/// A text and its tokens.
pub(super) struct Text<'t> {
    pub(super) text: &'t str,
    pub(super) tokens: Vec<Token>,
}

impl<'t> Text<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        let bytes = text.as_bytes();
        let (mut at, mut begins, mut tokens) = (0, true, Vec::new());
        while let Some(byte) = bytes.get(at).copied() {
            let rest = &text[at..];
            let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
            let (kind, len) = match byte {
                b'\n' => {
                    (begins, at) = (true, at + 1);
                    continue;
                }
                _ if byte.is_ascii_whitespace() => {
                    at += 1;
                    continue;
                }
                _ if rest.starts_with("//") => {
                    at += rest.find('\n').unwrap_or(rest.len());
                    continue;
                }
                _ if rest.starts_with("/*") => {
                    at += rest.find("*/").map_or(rest.len(), |end| end + 2);
                    continue;
                }
                b'#' if begins => {
                    let mut len = 0;
                    for line in rest.split_inclusive('\n') {
                        len += line.len();
                        if !line.trim_end().ends_with('\\') {
                            break;
                        }
                    }
                    (Kind::Directive, len.min(rest.trim_end_matches('\n').len().max(1)))
                }
                b'"' | b'\'' => {
                    let mut escaped = false;
                    let end = rest.bytes().skip(1).position(|other| {
                        let ends = other == byte && !escaped;
                        escaped = other == b'\\' && !escaped;
                        ends
                    });
                    (Kind::Quoted, end.map_or(rest.len(), |end| end + 2))
                }
                _ if is_word(byte) => {
                    let is_part = |(at, other): (usize, u8)| {
                        is_word(other) || (other == b'.' && byte.is_ascii_digit() && at > 0)
                    };
                    (Kind::Word, rest.bytes().enumerate().take_while(|pair| is_part(*pair)).count())
                }
                _ => (Kind::Mark, 1),
            };
            begins = kind == Kind::Directive;
            tokens.push(Token { kind, at: at..at + len });
            at += len;
        }
        Self { text, tokens }
    }

    /// The text of a token; empty behind the last one.
    pub(super) fn word(&self, token: usize) -> &'t str {
        self.tokens.get(token).map_or("", |token| &self.text[token.at.clone()])
    }

    /// Whether these are the texts of the tokens from one on.
    pub(super) fn are(&self, first: usize, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(at, word)| self.word(first + at) == *word)
    }

    /// The token behind the bracket that closes the one at a token, if there is one.
    pub(super) fn behind(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for at in open..self.tokens.len() {
            match self.word(at) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// The text of a range of tokens.
    pub(super) fn of_range(&self, range: &Range<usize>) -> &'t str {
        match (self.tokens.get(range.start), range.end.checked_sub(1).and_then(|last| self.tokens.get(last)))
        {
            (Some(first), Some(last)) if range.start < range.end => &self.text[first.at.start..last.at.end],
            _ => "",
        }
    }

    /// File and line of a token, by the `#line` directives.
    pub(super) fn place(&self, token: usize) -> (String, usize) {
        let end = self.tokens.get(token).map_or(self.text.len(), |token| token.at.start);
        let (mut file, mut line) = (String::new(), 1);
        for row in self.text[..end].split_inclusive('\n') {
            let mut words = row.trim().splitn(3, ' ');
            match (words.next(), words.next().and_then(|number| number.parse().ok()), words.next()) {
                (Some("#line"), Some(number), Some(name)) => {
                    (line, file) = (number, name.trim_matches('"').to_owned());
                }
                _ => line += usize::from(row.ends_with('\n')),
            }
        }
        (file, line)
    }
}
