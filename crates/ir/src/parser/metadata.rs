//! Metadata: module-level nodes, attachments and metadata arguments, kept as text.

use super::{Parser, Result};
use crate::lexer::Kind;
use crate::model::{Attachments, MetadataId, MetadataNode};

impl<'a> Parser<'a> {
    /// `!12 = …`, `!name = …`.
    pub(super) fn metadata_node(&mut self) -> Result<()> {
        let name = self.text()[1..].to_owned();
        if name.is_empty() {
            return self.expected("the name of a metadata node");
        }
        self.advance();
        self.expect(b'=')?;
        let text = self.metadata_text()?.to_owned();
        self.module.metadata.push(MetadataNode { name, text });
        Ok(())
    }

    /// The text of one metadata value: `!7`, `!{…}`, `distinct !DILocation(…)`, `!"…"`.
    pub(super) fn metadata_text(&mut self) -> Result<&'a str> {
        let start = self.at;
        self.eat_word("distinct");
        if self.peek().kind != Kind::Metadata {
            return self.expected("metadata");
        }
        let name = &self.advance().text(self.source)[1..];
        match self.peek().kind {
            Kind::Punct(b'{') if name.is_empty() => self.skip_group()?,
            Kind::Punct(b'(') if !name.is_empty() && !super::is_number(name) => self.skip_group()?,
            Kind::String if name.is_empty() => {
                self.advance();
            }
            _ if super::is_number(name) => {}
            _ => return self.expected("the content of a metadata node"),
        }
        let text = self.slice(start, self.at);
        if text.contains('\n') {
            // Broken text: kept as it is, it could swallow what follows.
            return Err(super::ParseError::new(self.tokens[start].line, "metadata over several lines"));
        }
        Ok(text)
    }

    /// `, !dbg !7, !tbaa !8`, after an instruction or a global.
    pub(super) fn attachments_after_commas(&mut self) -> Result<Attachments> {
        let mut all = Vec::new();
        while self.is_punct(b',') && self.peek_at(1).kind == Kind::Metadata {
            self.advance();
            all.push(self.attachment()?);
        }
        Ok(all)
    }

    /// `!dbg !7 !prof !8`, of a function.
    pub(super) fn attachments(&mut self) -> Result<Attachments> {
        let mut all = Vec::new();
        while self.peek().kind == Kind::Metadata {
            all.push(self.attachment()?);
        }
        Ok(all)
    }

    pub(super) fn attachment(&mut self) -> Result<(String, MetadataId)> {
        let kind = self.text()[1..].to_owned();
        if kind.is_empty() || super::is_number(&kind) {
            return self.expected("the kind of a metadata attachment");
        }
        self.advance();
        let bare = self.text().strip_prefix('!').filter(|rest| super::is_number(rest));
        if let Some(number) = bare {
            let Ok(id) = number.parse() else { return self.expected("the number of a metadata node") };
            self.advance();
            return Ok((kind, MetadataId(id)));
        }
        let text = self.metadata_text()?.to_owned();
        let id = self.next_metadata;
        self.next_metadata += 1;
        self.inline_metadata.push(MetadataNode { name: id.to_string(), text });
        Ok((kind, MetadataId(id)))
    }

    /// A number above all that the text uses for metadata.
    pub(super) fn first_free_metadata(&self) -> Result<u32> {
        let mut free = 0u32;
        for token in self.tokens.iter().filter(|t| t.kind == Kind::Metadata) {
            let number = &token.text(self.source)[1..];
            if !super::is_number(number) {
                continue;
            }
            match number.parse::<u32>() {
                Ok(n) if n < 1 << 30 => free = free.max(n + 1),
                _ => {
                    return Err(super::ParseError::new(
                        token.line,
                        format!("metadata number {number} is too large"),
                    ));
                }
            }
        }
        Ok(free)
    }
}
