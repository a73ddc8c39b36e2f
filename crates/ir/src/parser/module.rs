//! Top-level entities of a module.

use std::collections::HashSet;

use super::attributes::join;
use super::{ParseError, Parser, Result};
use crate::lexer::Kind;
use crate::model::{Global, Type};

impl Parser<'_> {
    pub(super) fn module(&mut self) -> Result<()> {
        self.next_metadata = self.first_free_metadata()?;
        self.named_types()?;
        while self.peek().kind != Kind::End {
            self.statement()?;
        }
        self.module.metadata.append(&mut self.inline_metadata);
        Ok(())
    }

    fn statement(&mut self) -> Result<()> {
        match self.peek().kind {
            Kind::Global => self.global(),
            Kind::Local => self.skip_named_type(),
            Kind::Comdat => self.comdat(),
            Kind::Metadata => self.metadata_node(),
            Kind::Punct(b'^') => self.error("unsupported module summary"),
            Kind::Word => match self.text() {
                "define" => self.define(),
                "declare" => self.declare(),
                "attributes" => self.attribute_group(),
                "source_filename" => {
                    self.advance();
                    self.expect(b'=')?;
                    self.module.source_filename = Some(self.string("the name of the source file")?);
                    Ok(())
                }
                "target" => self.target(),
                "module" => self.error("unsupported `module asm`"),
                "uselistorder" | "uselistorder_bb" => self.error("unsupported use-list order"),
                word => self.error(format!("unknown statement `{word}`")),
            },
            _ => self.expected("a statement of a module"),
        }
    }

    fn target(&mut self) -> Result<()> {
        self.advance();
        let property = self.word("`triple` or `datalayout`")?;
        self.expect(b'=')?;
        let value = Some(self.string("a quoted string")?);
        match property {
            "triple" => self.module.triple = value,
            "datalayout" => self.module.data_layout = value,
            other => return self.error_behind(format!("unknown target property `{other}`")),
        }
        Ok(())
    }

    /// Read all `%name = type …` ahead of the rest, which may use a type before its definition. Inside of
    /// brackets there is none.
    fn named_types(&mut self) -> Result<()> {
        let mut seen = HashSet::new();
        let mut depth = 0_usize;
        for at in 0..self.tokens.len() {
            self.at = at;
            match self.peek().kind {
                Kind::Punct(b'(' | b'{' | b'[') => depth += 1,
                Kind::Punct(b')' | b'}' | b']') => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > 0 || !self.at_named_type() {
                continue;
            }
            let line = self.line();
            let name = self.name(Kind::Local, "the name of a type")?;
            self.at += 2;
            let ty = match self.eat_word("opaque") {
                true => None,
                false => Some(self.ty()?),
            };
            if !matches!(ty, None | Some(Type::Struct { .. })) {
                return Err(ParseError::new(
                    line,
                    format!("unsupported alias `%{name}` of a type that is not a struct"),
                ));
            }
            if !seen.insert(name.clone()) {
                return Err(ParseError::new(line, format!("type `%{name}` is defined twice")));
            }
            self.module.types.push((name, ty));
        }
        self.at = 0;
        Ok(())
    }

    fn at_named_type(&self) -> bool {
        self.peek().kind == Kind::Local
            && self.peek_at(1).kind == Kind::Punct(b'=')
            && self.peek_at(2).kind == Kind::Word
            && self.text_at(2) == "type"
    }

    fn skip_named_type(&mut self) -> Result<()> {
        if !self.at_named_type() {
            return self.expected("a statement of a module");
        }
        self.at += 3;
        if !self.eat_word("opaque") {
            self.ty()?;
        }
        Ok(())
    }

    fn comdat(&mut self) -> Result<()> {
        let name = self.name(Kind::Comdat, "a comdat")?;
        self.expect(b'=')?;
        self.expect_word("comdat")?;
        let kind = self.word("the selection kind of a comdat")?;
        if !["any", "exactmatch", "largest", "nodeduplicate", "samesize"].contains(&kind) {
            return self.error_behind(format!("unknown comdat selection kind `{kind}`"));
        }
        self.module.comdats.push((name, kind.to_owned()));
        Ok(())
    }

    fn global(&mut self) -> Result<()> {
        let name = self.name(Kind::Global, "the name of a global")?;
        self.expect(b'=')?;
        let linkage = self.global_linkage()?;
        let constant = match self.text() {
            "global" => false,
            "constant" => true,
            kind @ ("alias" | "ifunc") => return self.error(format!("unsupported {kind} `@{name}`")),
            _ => return self.expected("`global` or `constant`"),
        };
        self.advance();
        let ty = self.ty()?;
        let external = linkage.split(' ').any(|word| word == "external" || word == "extern_weak");
        let init = match external {
            true => None,
            false => Some(self.constant(&ty)?),
        };
        let mut global = Global {
            name,
            linkage,
            constant,
            ty,
            init,
            section: None,
            align: None,
            suffix: String::new(),
            metadata: Vec::new(),
        };
        self.global_properties(&mut global)?;
        self.module.globals.push(global);
        Ok(())
    }

    /// `, section "…", comdat, align 4, !dbg !0 #1`.
    fn global_properties(&mut self, global: &mut Global) -> Result<()> {
        while self.eat(b',') {
            let start = self.at;
            if self.peek().kind == Kind::Metadata {
                global.metadata.push(self.attachment()?);
                continue;
            }
            match self.text() {
                "section" => {
                    self.advance();
                    global.section = Some(self.string("the name of a section")?);
                    continue;
                }
                "align" => {
                    self.advance();
                    global.align = Some(self.number("an alignment")?);
                    continue;
                }
                "comdat" => self.comdat_use()?,
                "partition" | "code_model" => {
                    self.advance();
                    self.string("a quoted name")?;
                }
                "no_sanitize_address"
                | "no_sanitize_hwaddress"
                | "sanitize_memtag"
                | "sanitize_address_dyninit" => {
                    self.advance();
                }
                _ => return self.error(format!("unknown property {} of a global", self.found())),
            }
            if !global.suffix.is_empty() {
                global.suffix.push_str(", ");
            }
            global.suffix.push_str(self.slice(start, self.at));
        }
        let start = self.at;
        let attributes = self.attributes()?;
        if !attributes.is_empty() {
            if self.at - start != 1 || !attributes.starts_with('#') {
                return self.error(format!("`{attributes}` behind a global; an attribute group is allowed"));
            }
            join(&mut global.suffix, &attributes);
        }
        Ok(())
    }
}
