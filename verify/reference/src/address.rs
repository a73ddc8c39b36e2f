//! Addresses of elements.

use elinvar_ir::{Module, Type};

use crate::fault::{Problem, Result};
use crate::value::{Value, resolve, signed, truncated, width};

/// `getelementptr source, base, indices`, where any operand may be a vector.
pub(crate) fn element(
    base: &Value,
    source: &Type,
    indices: &[(&Type, Value)],
    module: &Module,
) -> Result<Value> {
    let lists = std::iter::once(base).chain(indices.iter().map(|(_, v)| v));
    let lanes = lists.filter_map(|v| v.list().ok()).map(<[Value]>::len).next();
    let Some(lanes) = lanes else { return scalar(base, source, indices, module) };
    let lane = |v: &Value, i: usize| match v {
        Value::List(items) => items.get(i).cloned().unwrap_or(Value::Poison),
        one => one.clone(),
    };
    let each = (0..lanes).map(|i| {
        let indices: Vec<_> = indices.iter().map(|(ty, v)| (ty.scalar(), lane(v, i))).collect();
        scalar(&lane(base, i), source, &indices, module)
    });
    Ok(Value::List(each.collect::<Result<_>>()?))
}

fn scalar(base: &Value, source: &Type, indices: &[(&Type, Value)], module: &Module) -> Result<Value> {
    let Some(base) = base.bits()? else { return Ok(Value::Poison) };
    let mut at = base;
    let mut ty = source;
    for (position, (index_ty, index)) in indices.iter().enumerate() {
        let Some(index) = index.bits()? else { return Ok(Value::Poison) };
        let index = signed(index, width(index_ty)?);
        if position > 0 {
            let within = resolve(ty, module)?;
            if let Type::Struct { fields, .. } = within {
                let field = usize::try_from(index).ok().filter(|i| *i < fields.len());
                let known = field.and_then(|f| Some((f, within.field_offset(f, module)?)));
                let (field, offset) =
                    known.ok_or_else(|| Problem::Malformed(format!("no field {index} in {ty:?}")))?;
                at = at.wrapping_add(u128::from(offset));
                ty = &fields[field];
                continue;
            }
            ty = match within {
                Type::Array(_, element) | Type::Vector(_, element) => element,
                other => return Err(Problem::Malformed(format!("an index into {other:?}"))),
            };
        }
        let size = ty.size_align(module).0;
        at = at.wrapping_add(index.wrapping_mul(i128::from(size)) as u128);
    }
    Ok(Value::Bits(truncated(at, 64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_elements_and_negative_indices() {
        let module = Module::default();
        let inner = Type::array(4, Type::I16);
        let outer = Type::Struct { packed: false, fields: vec![Type::I8, inner] };
        let at = |indices: &[i64]| {
            let indices: Vec<_> =
                indices.iter().map(|i| (&Type::I64, Value::Bits(u128::from(*i as u64)))).collect();
            element(&Value::Bits(100), &outer, &indices, &module)
        };
        assert_eq!(at(&[1]), Ok(Value::Bits(110)));
        assert_eq!(at(&[-1, 1, 2]), Ok(Value::Bits(96)));
        assert!(at(&[0, 2]).is_err());
    }

    #[test]
    fn vectors_of_addresses() {
        let two = Type::vector(2, Type::I32);
        let indices = [(&two, Value::List(vec![Value::Bits(1), Value::Bits(0xffff_ffff)]))];
        let at = element(&Value::Bits(100), &Type::I32, &indices, &Module::default());
        assert_eq!(at, Ok(Value::List(vec![Value::Bits(104), Value::Bits(96)])));
    }
}
