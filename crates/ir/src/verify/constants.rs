//! Constants fit their types and name symbols that exist.

use super::Check;
use crate::model::{Const, Type};

impl Check<'_> {
    pub(super) fn constant(&self, ty: &Type, constant: &Const) -> Result<(), String> {
        let shape = match ty.resolve(self.module) {
            Some(shape) => shape,
            None if matches!(constant, Const::Undef | Const::Poison | Const::Zero) => return Ok(()),
            None => return Err(format!("a constant of the opaque type `{ty}`")),
        };
        let fits = match (constant, shape) {
            (Const::Undef | Const::Poison | Const::Zero, _) => !matches!(ty, Type::Void),
            (Const::Int(value), Type::Int(width)) => Const::int(*width, *value) == *constant,
            (Const::Float(_), shape) => shape.is_float(),
            (Const::Null, Type::Ptr(_)) => true,
            (Const::Global(name), Type::Ptr(_)) => return self.symbol(name),
            (Const::String(bytes), Type::Array(count, element)) => {
                **element == Type::I8 && *count == bytes.len() as u64
            }
            (Const::Array(all), Type::Array(count, element)) => {
                self.elements(all)?;
                *count == all.len() as u64 && all.iter().all(|(t, _)| t == &**element)
            }
            (Const::Vector(all), Type::Vector(lanes, element)) => {
                self.elements(all)?;
                *lanes as usize == all.len() && all.iter().all(|(t, _)| t == &**element)
            }
            (Const::Splat(one), Type::Vector(_, element)) => {
                self.constant(&one.0, &one.1)?;
                one.0 == **element
            }
            (Const::Struct { packed, fields: all }, Type::Struct { packed: p, fields }) => {
                self.elements(all)?;
                packed == p && fields.iter().eq(all.iter().map(|(t, _)| t))
            }
            (Const::Gep { base, indices, .. }, _) => {
                self.constant(&base.0, &base.1)?;
                self.elements(indices)?;
                base.0.scalar().is_ptr()
                    && shape.scalar().is_ptr()
                    && indices.iter().all(|(t, _)| t.scalar().is_int())
            }
            (Const::Cast { from, to, .. }, shape) => {
                self.constant(&from.0, &from.1)?;
                **to == *shape
            }
            _ => false,
        };
        if fits { Ok(()) } else { Err(format!("a constant does not fit its type `{ty}`")) }
    }

    fn elements(&self, all: &[(Type, Const)]) -> Result<(), String> {
        all.iter().try_for_each(|(ty, constant)| self.constant(ty, constant))
    }

    fn symbol(&self, name: &str) -> Result<(), String> {
        match self.symbols.contains_key(name) {
            true => Ok(()),
            false => Err(format!("`@{name}` is not defined")),
        }
    }
}
