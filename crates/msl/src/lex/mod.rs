//! A lexer for C++ text, before or after preprocessing.
//!
//! It is total and takes linear time. Comments and white space are skipped. `>>` is two tokens, so that template lists can be
//! matched.

pub(crate) mod numeric_literal;
pub(crate) mod token_buffer;

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// An identifier or keyword.
    Identifier,
    /// A numeric literal with its suffix.
    NumericLiteral,
    /// A string or character literal.
    StringLiteral,
    /// A preprocessing directive, from `#` to the end of the line.
    Directive,
    /// Anything else.
    Punctuator,
}

/// A token: kind and byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub kind: TokenKind,
    pub start: usize,
    pub end: usize,
}

const PUNCTUATORS: [&str; 22] = [
    "<<=", "...", "->*", "::", "->", "++", "--", "<=", "==", "!=", "&&", "||", "+=", "-=", "*=", "/=", "%=",
    "&=", "|=", "^=", "<<", "##",
];

/// Tokenize `text`.
pub(crate) fn tokenize(text: &str) -> Vec<Token> {
    let mut scanner = Scanner { bytes: text.as_bytes(), at: 0, line_start: true };
    let mut tokens = Vec::with_capacity(text.len() / 4);
    while let Some(token) = scanner.next() {
        tokens.push(token);
    }
    tokens
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    line_start: bool,
}

impl Scanner<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn next(&mut self) -> Option<Token> {
        self.skip_blank();
        if self.at >= self.bytes.len() {
            return None;
        }
        let start = self.at;
        let first_of_line = std::mem::replace(&mut self.line_start, false);
        let kind = match self.peek(0) {
            b'#' if first_of_line => {
                self.directive();
                TokenKind::Directive
            }
            b'"' | b'\'' => {
                self.quoted();
                TokenKind::StringLiteral
            }
            b'R' if self.peek(1) == b'"' => {
                self.raw_string();
                TokenKind::StringLiteral
            }
            c if c.is_ascii_digit() || (c == b'.' && self.peek(1).is_ascii_digit()) => {
                self.number();
                TokenKind::NumericLiteral
            }
            c if is_identifier_byte(c) => {
                while self.at < self.bytes.len() && is_identifier_byte(self.peek(0)) {
                    self.at += 1;
                }
                TokenKind::Identifier
            }
            _ => {
                let rest = &self.bytes[self.at..];
                self.at += PUNCTUATORS.iter().find(|p| rest.starts_with(p.as_bytes())).map_or(1, |p| p.len());
                TokenKind::Punctuator
            }
        };
        Some(Token { kind, start, end: self.at })
    }

    fn skip_blank(&mut self) {
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b'\n' => {
                    self.line_start = true;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'\\' if self.peek(1) == b'\n' => self.at += 2,
                b'\\' if self.peek(1) == b'\r' && self.peek(2) == b'\n' => self.at += 3,
                b'/' if self.peek(1) == b'/' => self.skip_line(),
                b'/' if self.peek(1) == b'*' => {
                    let body = &self.bytes[self.at + 2..];
                    let end = body.windows(2).position(|w| w == b"*/").map_or(body.len(), |p| p + 2);
                    self.at += 2 + end;
                }
                _ => return,
            }
        }
    }

    /// Skip to the end of the line; a backslash continues it.
    fn skip_line(&mut self) {
        while self.at < self.bytes.len() && self.peek(0) != b'\n' {
            let continued = self.peek(0) == b'\\' && self.peek(1) == b'\n';
            self.at += if continued { 2 } else { 1 };
        }
        self.at = self.at.min(self.bytes.len());
    }

    fn directive(&mut self) {
        self.skip_line();
    }

    fn quoted(&mut self) {
        let quote = self.peek(0);
        self.at += 1;
        while self.at < self.bytes.len() && self.peek(0) != b'\n' {
            let c = self.peek(0);
            self.at += if c == b'\\' && self.at + 1 < self.bytes.len() { 2 } else { 1 };
            if c == quote {
                break;
            }
        }
    }

    fn raw_string(&mut self) {
        let body = &self.bytes[self.at + 2..];
        let Some(open) = body.iter().take(17).position(|&c| c == b'(') else {
            self.at += 1; // no raw string after all: the word `R`
            return;
        };
        let mut close = vec![b')'];
        close.extend_from_slice(&body[..open]);
        close.push(b'"');
        let text = &body[open..];
        let end = text.windows(close.len()).position(|w| w == close).map_or(text.len(), |p| p + close.len());
        self.at += 2 + open + end;
    }

    fn number(&mut self) {
        while self.at < self.bytes.len() {
            let c = self.peek(0);
            let signed = matches!(c, b'e' | b'E' | b'p' | b'P') && matches!(self.peek(1), b'+' | b'-');
            if signed {
                self.at += 2;
            } else if c == b'.' || is_identifier_byte(c) || (c == b'\'' && is_identifier_byte(self.peek(1))) {
                self.at += 1;
            } else {
                break;
            }
        }
    }
}

/// Letters, digits, underscore, `$` and all non-ASCII bytes, so that characters are never split.
fn is_identifier_byte(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_' || c == b'$' || c >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        tokenize(text).iter().map(|t| &text[t.start..t.end]).collect()
    }

    #[test]
    fn splits_what_the_rewriter_looks_at() {
        assert_eq!(texts("a[[b(0)]]"), ["a", "[", "[", "b", "(", "0", ")", "]", "]"]);
        assert_eq!(texts("v<w<x>>y<<=1"), ["v", "<", "w", "<", "x", ">", ">", "y", "<<=", "1"]);
        assert_eq!(texts("1.5e-3f+.5h 0x1p-3 1'000"), ["1.5e-3f", "+", ".5h", "0x1p-3", "1'000"]);
        assert_eq!(texts("\"a\\\"b\" 'c' R\"x(a)\"b)x\" d"), ["\"a\\\"b\"", "'c'", "R\"x(a)\"b)x\"", "d"]);
        assert_eq!(texts("a // b\n/* c\n */ é\n  # 1 \"f\"\nd # e"), ["a", "é", "# 1 \"f\"", "d", "#", "e"]);
    }

    #[test]
    fn any_text_gives_tokens_in_order_on_character_borders() {
        for text in ["\"", "'\\", "/*", "R\"", "R\"(", "\\", "#", "0x", "\u{1F600}\\\n", "\"\\é", "//\\"] {
            let mut last = 0;
            for token in tokenize(text) {
                assert!(
                    token.start >= last && token.end > token.start && token.end <= text.len(),
                    "{text:?}"
                );
                assert!(text.is_char_boundary(token.start), "{text:?}");
                last = token.end;
            }
        }
    }
}
