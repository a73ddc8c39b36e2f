//! Constants, checked against their type.

use super::{Parser, Result};
use crate::lexer::{Kind, unescape};
use crate::model::{CastOp, Const, Type};

/// Constants and constant expressions that are rejected by name.
const UNSUPPORTED: &[&str] = &[
    "add",
    "sub",
    "mul",
    "shl",
    "xor",
    "icmp",
    "fcmp",
    "select",
    "extractelement",
    "insertelement",
    "shufflevector",
    "blockaddress",
    "dso_local_equivalent",
    "no_cfi",
    "none",
    "ptrauth",
    "asm",
];

impl Parser<'_> {
    /// `T c`.
    pub(super) fn typed_const(&mut self) -> Result<(Type, Const)> {
        let ty = self.ty()?;
        let constant = self.constant(&ty)?;
        Ok((ty, constant))
    }

    pub(super) fn constant(&mut self, ty: &Type) -> Result<Const> {
        self.nested(|p| p.bare_constant(ty))
    }

    fn bare_constant(&mut self, ty: &Type) -> Result<Const> {
        match self.peek().kind {
            Kind::Int => self.integer(ty),
            Kind::Float => self.float(ty),
            Kind::Bytes => self.bytes(ty),
            Kind::Word => self.word_constant(ty),
            Kind::Global if ty.is_ptr() => Ok(Const::Global(self.name(Kind::Global, "a global")?)),
            Kind::Punct(b'[' | b'{' | b'<') => self.aggregate(ty),
            Kind::Local => self.error(format!("{} in a constant", self.found())),
            _ => self.expected(&format!("a constant of type `{ty}`")),
        }
    }

    fn mismatch<T>(&self, ty: &Type) -> Result<T> {
        self.error(format!("{} is not a constant of type `{ty}`", self.found()))
    }

    fn integer(&mut self, ty: &Type) -> Result<Const> {
        let Type::Int(width) = *ty else { return self.mismatch(ty) };
        let text = self.text();
        let value = match text.strip_prefix("u0x").or_else(|| text.strip_prefix("s0x")) {
            Some(hex) => u128::from_str_radix(hex, 16).ok().map(|v| v as i128),
            None => text.parse::<i128>().or_else(|_| text.parse::<u128>().map(|v| v as i128)).ok(),
        };
        let fits = |v: &i128| width >= 128 || (-(1i128 << (width - 1))..1i128 << width.min(126)).contains(v);
        match value.filter(|v| width == 127 || fits(v)) {
            Some(value) => {
                self.advance();
                Ok(Const::int(width, value))
            }
            None => self.mismatch(ty),
        }
    }

    fn float(&mut self, ty: &Type) -> Result<Const> {
        let text = self.text();
        let fits = match ty {
            Type::Half => !text.starts_with("0x") || text.starts_with("0xH"),
            Type::BFloat => !text.starts_with("0x") || text.starts_with("0xR"),
            Type::Float | Type::Double => {
                text.strip_prefix("0x").is_none_or(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
            }
            _ => false,
        };
        if !fits {
            return self.mismatch(ty);
        }
        self.advance();
        Ok(Const::Float(text.to_owned()))
    }

    fn bytes(&mut self, ty: &Type) -> Result<Const> {
        let text = self.text();
        let bytes = unescape(&text[2..text.len() - 1]);
        if *ty != Type::array(bytes.len() as u64, Type::I8) {
            return self.error(format!("a string of {} bytes is not a constant of type `{ty}`", bytes.len()));
        }
        self.advance();
        Ok(Const::String(bytes))
    }

    fn word_constant(&mut self, ty: &Type) -> Result<Const> {
        let word = self.text();
        let simple = match word {
            "true" if *ty == Type::I1 => Const::Int(-1),
            "false" if *ty == Type::I1 => Const::Int(0),
            "null" if ty.is_ptr() => Const::Null,
            "undef" => Const::Undef,
            "poison" => Const::Poison,
            "zeroinitializer" => Const::Zero,
            "true" | "false" | "null" => return self.mismatch(ty),
            "splat" => return self.splat(ty),
            "getelementptr" => return self.const_gep(),
            _ if CastOp::parse(word).is_some() => return self.const_cast(),
            _ if UNSUPPORTED.contains(&word) => return self.error(format!("unsupported constant `{word}`")),
            _ => return self.error(format!("unknown constant `{word}`")),
        };
        self.advance();
        Ok(simple)
    }

    fn splat(&mut self, ty: &Type) -> Result<Const> {
        if !matches!(ty, Type::Vector(..)) {
            return self.mismatch(ty);
        }
        self.advance();
        self.expect(b'(')?;
        let element = self.typed_const()?;
        self.expect(b')')?;
        match element.0 == *ty.scalar() {
            true => Ok(Const::Splat(Box::new(element))),
            false => {
                self.error_behind(format!("a splat of `{}` is not a constant of type `{ty}`", element.0))
            }
        }
    }

    fn aggregate(&mut self, ty: &Type) -> Result<Const> {
        let open = self.advance();
        let packed = open.kind == Kind::Punct(b'<') && self.eat(b'{');
        match open.kind {
            Kind::Punct(b'[') => Ok(Const::Array(self.elements(b']', ty)?)),
            Kind::Punct(b'{') => Ok(Const::Struct { packed, fields: self.elements(b'}', ty)? }),
            _ if packed => {
                let fields = self.elements(b'}', ty)?;
                self.expect(b'>')?;
                Ok(Const::Struct { packed, fields })
            }
            _ => Ok(Const::Vector(self.elements(b'>', ty)?)),
        }
    }

    /// The elements of an aggregate of type `ty`. Their own types must be those of `ty`; a named struct
    /// is checked by the verifier, which knows all definitions.
    fn elements(&mut self, close: u8, ty: &Type) -> Result<Vec<(Type, Const)>> {
        let line = self.line();
        let elements = self.list(close, |p| p.typed_const())?;
        let same = |element: &Type| elements.iter().all(|(t, _)| t == element);
        let fits = match (close, ty) {
            (b']', Type::Array(count, element)) => *count == elements.len() as u64 && same(element),
            (b'>', Type::Vector(lanes, element)) => *lanes as usize == elements.len() && same(element),
            (b'}', Type::Struct { fields, .. }) => fields.iter().eq(elements.iter().map(|(t, _)| t)),
            (b'}', Type::Named(_)) => true,
            _ => false,
        };
        match fits {
            true => Ok(elements),
            false => {
                Err(super::ParseError::new(line, format!("an aggregate is not a constant of type `{ty}`")))
            }
        }
    }

    fn const_gep(&mut self) -> Result<Const> {
        self.advance();
        let flags = self.gep_flags(true)?;
        self.expect(b'(')?;
        let source = Box::new(self.ty()?);
        self.expect(b',')?;
        let base = Box::new(self.typed_const()?);
        let mut indices = Vec::new();
        while self.eat(b',') {
            indices.push(self.typed_const()?);
        }
        self.expect(b')')?;
        Ok(Const::Gep { flags, source, base, indices })
    }

    fn const_cast(&mut self) -> Result<Const> {
        let Some(op) = CastOp::parse(self.text()) else { return self.expected("a cast") };
        self.advance();
        self.expect(b'(')?;
        let from = Box::new(self.typed_const()?);
        self.expect_word("to")?;
        let to = Box::new(self.ty()?);
        self.expect(b')')?;
        Ok(Const::Cast { op, from, to })
    }
}
