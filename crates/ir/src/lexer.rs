//! Splits IR text into tokens, in one pass over its bytes.
//!
//! Tokens are spans of the text; names and strings are unescaped by [`unescape`] only when needed.
//! Comments and white space separate tokens and are dropped.

use crate::parser::ParseError;

/// Kind of a token. The text of a token includes its sigil.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A keyword, a type, an attribute, a label without its colon: `define`, `i32`, `for.body`, `...`.
    Word,
    /// `42`, `-7`, `u0xFF`, `s0xFF`.
    Int,
    /// `1.0e+00`, `0x7FF0000000000000`, `0xH3C00`.
    Float,
    /// `"…"`.
    String,
    /// `c"…"`.
    Bytes,
    /// `%name`, `%7`, `%"a b"`.
    Local,
    /// `@name`, `@7`, `@"a b"`.
    Global,
    /// `$name`, `$"a b"`.
    Comdat,
    /// `!name`, `!7`, or `!` alone before `{` and strings.
    Metadata,
    /// `#7`, `#dbg_value`.
    Hash,
    /// One of `(){}[]<>,=*|:^`.
    Punct(u8),
    /// The end of the text; the last token, always present.
    End,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
    /// 1-based.
    pub line: u32,
}

impl Token {
    pub fn text<'a>(&self, source: &'a str) -> &'a str {
        &source[self.start..self.end]
    }
}

/// All tokens of the text, [`Kind::End`] last.
pub(crate) fn tokens(source: &str) -> Result<Vec<Token>, ParseError> {
    let mut lexer = Lexer { bytes: source.as_bytes(), at: 0, line: 1 };
    let mut all = Vec::with_capacity(source.len() / 4);
    loop {
        let token = lexer.next()?;
        all.push(token);
        if token.kind == Kind::End {
            return Ok(all);
        }
    }
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
    line: u32,
}

impl Lexer<'_> {
    fn next(&mut self) -> Result<Token, ParseError> {
        self.skip_space();
        let (start, line) = (self.at, self.line);
        let kind = match self.peek(0) {
            None => Kind::End,
            Some(b'"') => self.string(Kind::String)?,
            Some(b'c') if self.peek(1) == Some(b'"') => {
                self.at += 1;
                self.string(Kind::Bytes)?
            }
            Some(b'%') => self.name(Kind::Local, "%")?,
            Some(b'@') => self.name(Kind::Global, "@")?,
            Some(b'$') if !self.label_follows() => self.name(Kind::Comdat, "$")?,
            Some(b'!') => {
                self.at += 1;
                self.skip_while(|b| is_word(b) || b == b'\\');
                Kind::Metadata
            }
            Some(b'#') => {
                self.at += 1;
                self.skip_while(is_word);
                Kind::Hash
            }
            Some(b'u' | b's') if self.hex_integer() => {
                self.skip_while(is_word);
                Kind::Int
            }
            Some(b'+' | b'-' | b'0'..=b'9') => self.number()?,
            Some(b) if is_word(b) => {
                self.skip_while(is_word);
                Kind::Word
            }
            Some(b) if b"(){}[]<>,=*|:^".contains(&b) => {
                self.at += 1;
                Kind::Punct(b)
            }
            Some(_) => return Err(self.unexpected_character()),
        };
        Ok(Token { kind, start, end: self.at, line })
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn skip_while(&mut self, accept: impl Fn(u8) -> bool) {
        while self.peek(0).is_some_and(&accept) {
            self.at += 1;
        }
    }

    fn skip_space(&mut self) {
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\n' => {
                    self.line += 1;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b';' => self.skip_while(|b| b != b'\n'),
                _ => return,
            }
        }
    }

    /// The quoted part; the cursor stands at the opening quote.
    fn string(&mut self, kind: Kind) -> Result<Kind, ParseError> {
        let line = self.line;
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            self.at += 1;
            match byte {
                b'"' => return Ok(kind),
                b'\n' => self.line += 1,
                _ => {}
            }
        }
        Err(ParseError::new(line, "a string without its closing quote"))
    }

    fn name(&mut self, kind: Kind, sigil: &str) -> Result<Kind, ParseError> {
        self.at += 1;
        if self.peek(0) == Some(b'"') {
            return self.string(kind);
        }
        let start = self.at;
        self.skip_while(is_word);
        if self.at == start {
            return Err(ParseError::new(self.line, format!("`{sigil}` without a name")));
        }
        Ok(kind)
    }

    /// Whether a word that starts here is a label; labels may begin with `$`.
    fn label_follows(&self) -> bool {
        let mut end = self.at;
        while self.bytes.get(end).is_some_and(|b| is_word(*b)) {
            end += 1;
        }
        self.bytes.get(end) == Some(&b':')
    }

    fn hex_integer(&self) -> bool {
        self.peek(1) == Some(b'0')
            && self.peek(2) == Some(b'x')
            && self.peek(3).is_some_and(|b| b.is_ascii_hexdigit())
    }

    fn number(&mut self) -> Result<Kind, ParseError> {
        let start = self.at;
        self.at += 1;
        self.skip_while(|b| is_word(b) || b == b'+');
        let text = &self.bytes[start..self.at];
        let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
        if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) {
            return Ok(Kind::Int);
        }
        if digits.starts_with(b"0x") && digits.iter().all(u8::is_ascii_alphanumeric) {
            return Ok(Kind::Float);
        }
        let text = String::from_utf8_lossy(text);
        if text.contains('.') && text.parse::<f64>().is_ok() {
            return Ok(Kind::Float);
        }
        Err(ParseError::new(self.line, format!("`{text}` is not a number")))
    }

    fn unexpected_character(&self) -> ParseError {
        let rest = String::from_utf8_lossy(&self.bytes[self.at..self.bytes.len().min(self.at + 4)]);
        let character = rest.chars().next().unwrap_or(' ');
        ParseError::new(self.line, format!("unexpected character {character:?}"))
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'$' | b'-')
}

/// The bytes of a string's inside: `\22` is a quote, `\\` a backslash, any other backslash is itself.
pub(crate) fn unescape(inside: &str) -> Vec<u8> {
    let bytes = inside.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |i: usize| bytes.get(i).and_then(|b| (*b as char).to_digit(16));
        match (bytes[at], bytes.get(at + 1), hex(at + 1), hex(at + 2)) {
            (b'\\', Some(b'\\'), ..) => {
                out.push(b'\\');
                at += 2;
            }
            (b'\\', _, Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<(Kind, &str)> {
        let all = tokens(source).expect("tokens");
        all.iter().filter(|t| t.kind != Kind::End).map(|t| (t.kind, t.text(source))).collect()
    }

    #[test]
    fn each_kind() {
        assert_eq!(
            kinds(r#"%"a b" = add i32 -1, @x.y ; gone"#),
            [
                (Kind::Local, "%\"a b\""),
                (Kind::Punct(b'='), "="),
                (Kind::Word, "add"),
                (Kind::Word, "i32"),
                (Kind::Int, "-1"),
                (Kind::Punct(b','), ","),
                (Kind::Global, "@x.y"),
            ]
        );
        assert_eq!(
            kinds("0xH3C00 -1.500000e+00 !7 ! #dbg_value $c $c: c\"a\\00\""),
            [
                (Kind::Float, "0xH3C00"),
                (Kind::Float, "-1.500000e+00"),
                (Kind::Metadata, "!7"),
                (Kind::Metadata, "!"),
                (Kind::Hash, "#dbg_value"),
                (Kind::Comdat, "$c"),
                (Kind::Word, "$c"),
                (Kind::Punct(b':'), ":"),
                (Kind::Bytes, "c\"a\\00\""),
            ]
        );
    }

    #[test]
    fn escapes() {
        assert_eq!(unescape(r"a\22\5C\\b\zz\0"), b"a\"\\\\b\\zz\\0");
    }

    #[test]
    fn lines_count_through_strings_and_comments() {
        let source = "a ; b\n\"x\ny\" c";
        let lines: Vec<u32> = tokens(source).expect("tokens").iter().map(|t| t.line).collect();
        assert_eq!(lines, [1, 2, 3, 3]);
    }
}
