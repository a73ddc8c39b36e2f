//! Reads IR text: a hand-written parser, one pass over the tokens after the named types are known.
//!
//! The parser accepts what clang emits for compute code, and reports a [`ParseError`] with the construct and its line for anything
//! else. It drops only debug records (`#dbg_value(…)` and calls of `llvm.dbg.*`), which have no effect at run time.
//!
//! This file has the cursor; the submodules have the parts of the grammar.

mod attributes;
mod calls;
mod constants;
mod flags;
mod function;
mod instructions;
mod memory;
mod metadata;
mod module;
mod scope;
mod types;

use std::fmt;

use crate::lexer::{self, Kind, Token};
use crate::model::{MetadataNode, Module};

/// Text that is not IR, or IR outside the subset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// 1-based.
    pub line: u32,
    pub message: String,
}

impl ParseError {
    pub(crate) fn new(line: u32, message: impl Into<String>) -> ParseError {
        ParseError { line, message: message.into() }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IR line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

type Result<T> = std::result::Result<T, ParseError>;

/// Maximum nesting depth of types and constants.
const MAX_DEPTH: u32 = 100;

impl Module {
    /// Read a module from IR text.
    pub fn parse(text: &str) -> Result<Module> {
        let mut parser = Parser {
            source: text,
            tokens: lexer::tokens(text)?,
            at: 0,
            depth: 0,
            module: Module::default(),
            scope: scope::Scope::default(),
            next_metadata: 0,
            inline_metadata: Vec::new(),
        };
        parser.module()?;
        Ok(parser.module)
    }
}

struct Parser<'a> {
    source: &'a str,
    tokens: Vec<Token>,
    at: usize,
    depth: u32,
    module: Module,
    /// Names of the function being read.
    scope: scope::Scope,
    /// A number above those of all nodes of the text.
    next_metadata: u32,
    /// Nodes written inside an attachment, which the model numbers.
    inline_metadata: Vec<MetadataNode>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token {
        self.peek_at(0)
    }

    /// The token `ahead` of the cursor; the end token beyond the last.
    fn peek_at(&self, ahead: usize) -> Token {
        self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    fn text(&self) -> &'a str {
        self.peek().text(self.source)
    }

    fn text_at(&self, ahead: usize) -> &'a str {
        self.peek_at(ahead).text(self.source)
    }

    fn line(&self) -> u32 {
        self.peek().line
    }

    fn advance(&mut self) -> Token {
        let token = self.peek();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    /// An error at the current token.
    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(ParseError::new(self.line(), message))
    }

    /// An error about the last token taken.
    fn error_behind<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(ParseError::new(self.tokens[self.at.saturating_sub(1)].line, message))
    }

    /// The current token, for messages.
    fn found(&self) -> String {
        match self.peek().kind {
            Kind::End => "the end of the text".to_owned(),
            _ => format!("`{}`", shorten(self.text())),
        }
    }

    fn expected<T>(&self, what: &str) -> Result<T> {
        self.error(format!("expected {what}, found {}", self.found()))
    }

    fn is_punct(&self, punct: u8) -> bool {
        self.peek().kind == Kind::Punct(punct)
    }

    fn eat(&mut self, punct: u8) -> bool {
        let found = self.is_punct(punct);
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, punct: u8) -> Result<()> {
        match self.eat(punct) {
            true => Ok(()),
            false => self.expected(&format!("`{}`", punct as char)),
        }
    }

    fn is_word(&self, word: &str) -> bool {
        self.peek().kind == Kind::Word && self.text() == word
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.advance();
        }
        found
    }

    fn expect_word(&mut self, word: &str) -> Result<()> {
        match self.eat_word(word) {
            true => Ok(()),
            false => self.expected(&format!("`{word}`")),
        }
    }

    /// Any word, taken.
    fn word(&mut self, what: &str) -> Result<&'a str> {
        match self.peek().kind {
            Kind::Word => Ok(self.advance().text(self.source)),
            _ => self.expected(what),
        }
    }

    /// An unsigned decimal number that fits `T`.
    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T> {
        if self.peek().kind != Kind::Int {
            return self.expected(what);
        }
        match self.text().parse() {
            Ok(value) => {
                self.advance();
                Ok(value)
            }
            Err(_) => self.expected(what),
        }
    }

    /// A quoted string, unescaped.
    fn string(&mut self, what: &str) -> Result<String> {
        if self.peek().kind != Kind::String {
            return self.expected(what);
        }
        let text = self.text();
        let string = self.utf8(&text[1..text.len() - 1])?;
        self.advance();
        Ok(string)
    }

    fn utf8(&self, inside: &str) -> Result<String> {
        match String::from_utf8(lexer::unescape(inside)) {
            Ok(string) => Ok(string),
            Err(_) => self.error(format!("`{}` is not UTF-8", shorten(inside))),
        }
    }

    /// A name behind a one-byte sigil: `%x`, `@"a b"`. Bare names of digits are numbers; a quoted name of
    /// digits would be taken for one when printed, so it is refused.
    fn name(&mut self, kind: Kind, what: &str) -> Result<String> {
        if self.peek().kind != kind {
            return self.expected(what);
        }
        let bare = &self.text()[1..];
        let name = match bare.strip_prefix('"') {
            None => bare.to_owned(),
            Some(quoted) => {
                let name = self.utf8(&quoted[..quoted.len() - 1])?;
                if name.is_empty() || is_number(&name) {
                    return self.error(format!("unsupported name `{}`", self.text()));
                }
                name
            }
        };
        self.advance();
        Ok(name)
    }

    /// The text between two tokens, without `end`.
    fn slice(&self, start: usize, end: usize) -> &'a str {
        match end > start {
            true => &self.source[self.tokens[start].start..self.tokens[end - 1].end],
            false => "",
        }
    }

    /// Skips one bracketed group; the cursor is at its opening bracket.
    fn skip_group(&mut self) -> Result<()> {
        let line = self.line();
        let mut closers = Vec::new();
        loop {
            match self.peek().kind {
                Kind::Punct(b'(') => closers.push(b')'),
                Kind::Punct(b'{') => closers.push(b'}'),
                Kind::Punct(b'[') => closers.push(b']'),
                Kind::Punct(close @ (b')' | b'}' | b']')) if closers.pop() != Some(close) => {
                    return self.error(format!("unbalanced `{}`", close as char));
                }
                Kind::End => return Err(ParseError::new(line, "a bracket without its closing bracket")),
                _ => {}
            }
            self.advance();
            if closers.is_empty() {
                return Ok(());
            }
        }
    }

    /// Run `part` one level deeper.
    fn nested<T>(&mut self, part: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return self.error(format!("types or constants nest deeper than {MAX_DEPTH}"));
        }
        self.depth += 1;
        let result = part(self);
        self.depth -= 1;
        result
    }

    /// Parts separated by commas up to `close`, which is consumed.
    fn list<T>(&mut self, close: u8, mut part: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut all = Vec::new();
        if self.eat(close) {
            return Ok(all);
        }
        loop {
            all.push(part(self)?);
            if !self.eat(b',') {
                self.expect(close)?;
                return Ok(all);
            }
        }
    }
}

/// At most 60 characters of a text, for messages.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

pub(crate) fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit())
}
