//! Types and literals as MSL writes them.

use crate::error::{Error, Result};
use crate::program::Program;
use crate::types::{Scalar, Ty};

/// An integer as a literal of its type.
pub(crate) fn integer_text(scalar: Scalar, value: i128) -> String {
    let suffix = match scalar {
        Scalar::I64 => "l",
        Scalar::U64 => "ul",
        Scalar::U32 | Scalar::Usize => "u",
        _ => "",
    };
    let least = -(1i128 << (scalar.bits() - 1));
    let text = if value == least && scalar.bits() >= 32 {
        format!("(-{}{suffix} - 1{suffix})", -(value + 1))
    } else {
        format!("{value}{suffix}")
    };
    if scalar.bits() < 32 { format!("{}({text})", scalar.msl()) } else { text }
}

impl Program<'_> {
    /// The name of a type of values.
    pub(crate) fn type_name(&mut self, ty: &Ty) -> Result<String> {
        Ok(match ty {
            Ty::Unit | Ty::Never => "void".into(),
            Ty::Scalar(scalar) => scalar.msl().into(),
            Ty::Vector(lanes, lane) => format!("{}{lanes}", self.type_name(lane)?),
            Ty::Array(element, length) => format!("array<{}, {length}>", self.type_name(element)?),
            Ty::Struct(name) => {
                self.use_struct(name)?;
                name.clone()
            }
            Ty::Enum(name) => {
                self.use_enum(name)?;
                name.clone()
            }
            Ty::Param(name) => name.clone(),
            Ty::Tuple(fields) => self.tuple(fields)?,
            Ty::Atomic(Scalar::I32) => "atomic_int".into(),
            Ty::Atomic(_) => "atomic_uint".into(),
            Ty::Ref { .. } | Ty::Slice(_) | Ty::Var(_) => {
                return Err(Error::new(
                    self.span,
                    format!("a value of type `{ty}` cannot be kept in a kernel"),
                ));
            }
        })
    }
}
