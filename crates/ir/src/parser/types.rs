//! Types.

use super::{Parser, Result};
use crate::lexer::Kind;
use crate::model::Type;

/// Types that compute kernels do not use, which are rejected.
const UNSUPPORTED: &[&str] =
    &["fp128", "x86_fp80", "ppc_fp128", "x86_amx", "x86_mmx", "label", "token", "target", "vscale", "opaque"];

impl Parser<'_> {
    pub(super) fn ty(&mut self) -> Result<Type> {
        let ty = self.nested(|p| p.bare_type())?;
        match self.is_punct(b'*') {
            true => self.error("unsupported typed pointer"),
            false => Ok(ty),
        }
    }

    /// Whether the current token can only begin a type.
    pub(super) fn at_type(&self) -> bool {
        match self.peek().kind {
            Kind::Punct(b'{' | b'<' | b'[') | Kind::Local => true,
            Kind::Word => simple(self.text()).is_some() || UNSUPPORTED.contains(&self.text()),
            _ => false,
        }
    }

    fn bare_type(&mut self) -> Result<Type> {
        match self.peek().kind {
            Kind::Local => Ok(Type::Named(self.name(Kind::Local, "a type")?)),
            Kind::Punct(b'{') => {
                self.advance();
                Ok(Type::Struct { packed: false, fields: self.list(b'}', |p| p.element_type())? })
            }
            Kind::Punct(b'[') => {
                self.advance();
                let count = self.number("the length of an array")?;
                self.expect_word("x")?;
                let element = self.element_type()?;
                self.expect(b']')?;
                Ok(Type::array(count, element))
            }
            Kind::Punct(b'<') => {
                self.advance();
                self.vector_or_packed()
            }
            Kind::Word => self.word_type(),
            _ => self.expected("a type"),
        }
    }

    fn vector_or_packed(&mut self) -> Result<Type> {
        if self.eat(b'{') {
            let fields = self.list(b'}', |p| p.element_type())?;
            self.expect(b'>')?;
            return Ok(Type::Struct { packed: true, fields });
        }
        if self.is_word("vscale") {
            return self.error("unsupported scalable vector type");
        }
        let lanes = self.number("the length of a vector")?;
        self.expect_word("x")?;
        let line = self.line();
        let element = self.ty()?;
        self.expect(b'>')?;
        if lanes == 0 || !(element.is_int() || element.is_float() || element.is_ptr()) {
            return Err(super::ParseError::new(line, format!("invalid vector type `<{lanes} x {element}>`")));
        }
        Ok(Type::vector(lanes, element))
    }

    /// A type that has values in memory.
    fn element_type(&mut self) -> Result<Type> {
        if self.is_word("void") || self.is_word("metadata") {
            return self.error(format!("`{}` cannot be part of a type", self.text()));
        }
        self.ty()
    }

    fn word_type(&mut self) -> Result<Type> {
        let word = self.text();
        let Some(ty) = simple(word) else {
            return match UNSUPPORTED.contains(&word) {
                true => self.error(format!("unsupported type `{word}`")),
                false => self.expected("a type"),
            };
        };
        self.advance();
        if ty == Type::PTR && self.is_word("addrspace") {
            return Ok(Type::Ptr(self.address_space()?));
        }
        Ok(ty)
    }

    /// `addrspace(n)`; the cursor stands at the word.
    pub(super) fn address_space(&mut self) -> Result<u32> {
        self.expect_word("addrspace")?;
        self.expect(b'(')?;
        let space = self.number("an address space")?;
        self.expect(b')')?;
        Ok(space)
    }
}

fn simple(word: &str) -> Option<Type> {
    Some(match word {
        "void" => Type::Void,
        "half" => Type::Half,
        "bfloat" => Type::BFloat,
        "float" => Type::Float,
        "double" => Type::Double,
        "ptr" => Type::PTR,
        "metadata" => Type::Metadata,
        _ => {
            let bits: u32 = word.strip_prefix('i').filter(|digits| super::is_number(digits))?.parse().ok()?;
            return (1..1 << 23).contains(&bits).then_some(Type::Int(bits));
        }
    })
}
