//! Constants and the operands that are one.

use std::fmt::{self, Display, Formatter};

use super::names::{Escaped, Names, Quoted};
use crate::model::{Const, Operand, Type, Typed};

/// A constant of a type, without the type.
pub(super) struct Constant<'a>(pub &'a Type, pub &'a Const);

impl Display for Constant<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.1 {
            Const::Int(value) if *self.0 == Type::I1 => write!(f, "{}", value & 1 == 1),
            Const::Int(value) => write!(f, "{value}"),
            Const::Float(text) => f.write_str(text),
            Const::Null => f.write_str("null"),
            Const::Undef => f.write_str("undef"),
            Const::Poison => f.write_str("poison"),
            Const::Zero => f.write_str("zeroinitializer"),
            Const::String(bytes) => write!(f, "c\"{}\"", Escaped(bytes)),
            Const::Array(elements) => write!(f, "[{}]", Elements(elements)),
            Const::Struct { packed, fields } => match (packed, fields.is_empty()) {
                (true, _) => write!(f, "<{{ {} }}>", Elements(fields)),
                (false, true) => f.write_str("{}"),
                (false, false) => write!(f, "{{ {} }}", Elements(fields)),
            },
            Const::Vector(elements) => write!(f, "<{}>", Elements(elements)),
            Const::Splat(element) => write!(f, "splat ({})", TypedConst(element)),
            Const::Global(name) => write!(f, "@{}", Quoted(name)),
            Const::Gep { flags, source, base, indices } => {
                f.write_str("getelementptr")?;
                spaced(f, flags)?;
                write!(f, " ({source}, {}", TypedConst(base))?;
                for index in indices {
                    write!(f, ", {}", TypedConst(index))?;
                }
                f.write_str(")")
            }
            Const::Cast { op, from, to } => write!(f, "{op} ({} to {to})", TypedConst(from)),
        }
    }
}

struct TypedConst<'a>(&'a (Type, Const));

impl Display for TypedConst<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (ty, constant) = self.0;
        write!(f, "{ty} {}", Constant(ty, constant))
    }
}

struct Elements<'a>(&'a [(Type, Const)]);

impl Display for Elements<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, element) in self.0.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { ", " }, TypedConst(element))?;
        }
        Ok(())
    }
}

/// An operand of a type, without the type.
pub(super) struct Value<'a>(pub &'a Names, pub &'a Type, pub &'a Operand);

impl Display for Value<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.2 {
            Operand::Value(value) => write!(f, "{}", self.0.value(*value)),
            Operand::Const(constant) => write!(f, "{}", Constant(self.1, constant)),
        }
    }
}

/// An operand with its type.
pub(super) struct TypedValue<'a>(pub &'a Names, pub &'a Typed);

impl Display for TypedValue<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.1.ty, Value(self.0, &self.1.ty, &self.1.op))
    }
}

/// A space and the text, or nothing for an empty text.
pub(super) fn spaced(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    match text.is_empty() {
        true => Ok(()),
        false => write!(f, " {text}"),
    }
}
