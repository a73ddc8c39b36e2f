//! Constants as values.

use elinvar_ir::{CastOp, Const, Module, Type};

use crate::address;
use crate::fault::{Problem, Result};
use crate::float;
use crate::value::{Value, resolve, truncated, width};

/// Resolves globals and functions to addresses.
pub(crate) trait Globals {
    /// The address of `@name`.
    fn address(&self, name: &str) -> Result<u64>;
}

/// The value of a constant of type `ty`. Undef is zero.
pub(crate) fn value(ty: &Type, constant: &Const, module: &Module, globals: &dyn Globals) -> Result<Value> {
    let each = |items: &[(Type, Const)]| {
        let items = items.iter().map(|(ty, c)| value(ty, c, module, globals));
        Ok(Value::List(items.collect::<Result<_>>()?))
    };
    match constant {
        Const::Int(n) => Ok(Value::Bits(truncated(*n as u128, width(ty)?))),
        Const::Float(text) => Ok(Value::Bits(encoding(ty, text)?)),
        Const::Null | Const::Zero | Const::Undef => Value::filled(ty, module, &Value::Bits(0)),
        Const::Poison => Value::filled(ty, module, &Value::Poison),
        Const::String(bytes) => Ok(Value::List(bytes.iter().map(|b| Value::Bits(u128::from(*b))).collect())),
        Const::Array(items) | Const::Vector(items) | Const::Struct { fields: items, .. } => each(items),
        Const::Splat(item) => match resolve(ty, module)? {
            Type::Vector(lanes, _) => {
                Ok(Value::List(vec![value(&item.0, &item.1, module, globals)?; *lanes as usize]))
            }
            other => Err(Problem::Malformed(format!("a splat of type {other:?}"))),
        },
        Const::Global(name) => Ok(Value::Bits(u128::from(globals.address(name)?))),
        Const::Gep { source, base, indices, .. } => {
            let mut at = value(&base.0, &base.1, module, globals)?;
            let mut list = Vec::new();
            for (ty, index) in indices {
                list.push((ty, value(ty, index, module, globals)?));
            }
            at = address::element(&at, source, &list, module)?;
            Ok(at)
        }
        Const::Cast { op, from, to } => {
            let from_value = value(&from.0, &from.1, module, globals)?;
            match op {
                CastOp::PtrToInt | CastOp::IntToPtr | CastOp::Trunc => {
                    let to = width(to)?;
                    from_value.map(&mut |bits| Ok(truncated(bits, to)))
                }
                CastOp::AddrSpaceCast | CastOp::BitCast if from.0.is_ptr() && to.is_ptr() => Ok(from_value),
                _ => Err(Problem::Unsupported(format!("a constant expression with {op}"))),
            }
        }
    }
}

/// The encoding of a float constant in LLVM's spelling.
fn encoding(ty: &Type, text: &str) -> Result<u128> {
    let malformed = || Problem::Malformed(format!("`{text}` as a constant of type {ty:?}"));
    let hex = |digits: &str| u64::from_str_radix(digits, 16).map_err(|_| malformed());
    if let Some(digits) = text.strip_prefix("0xH").or_else(|| text.strip_prefix("0xR")) {
        return Ok(u128::from(hex(digits)?));
    }
    let value = match text.strip_prefix("0x") {
        // Float constants are also written as the double of the same value; conversion by bits preserves NaN payloads.
        Some(digits) if *ty == Type::Float && f64::from_bits(hex(digits)?).is_nan() => {
            let bits = hex(digits)?;
            return Ok(u128::from((bits >> 32 & 0x8000_0000) | 0x7f80_0000 | (bits >> 29 & 0x7f_ffff)));
        }
        Some(digits) => f64::from_bits(hex(digits)?),
        None => text.parse().map_err(|_| malformed())?,
    };
    float::encode(ty, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct None;

    impl Globals for None {
        fn address(&self, name: &str) -> Result<u64> {
            Err(Problem::Malformed(name.to_owned()))
        }
    }

    fn bits(ty: Type, constant: Const) -> Value {
        value(&ty, &constant, &Module::default(), &None).unwrap()
    }

    #[test]
    fn floats_in_every_spelling() {
        let float = |text: &str| Const::Float(text.to_owned());
        assert_eq!(bits(Type::Float, float("1.500000e+00")), Value::Bits(u128::from(1.5f32.to_bits())));
        assert_eq!(bits(Type::Float, float("0x7FF0000000000000")), Value::Bits(0x7f80_0000));
        assert_eq!(bits(Type::Float, float("0xFFF8000000000000")), Value::Bits(0xffc0_0000));
        assert_eq!(bits(Type::Half, float("0xH3C00")), Value::Bits(0x3c00));
        assert_eq!(bits(Type::BFloat, float("0xR3F80")), Value::Bits(0x3f80));
    }

    #[test]
    fn integers_and_aggregates() {
        assert_eq!(bits(Type::I1, Const::Int(-1)), Value::Bits(1));
        assert_eq!(bits(Type::I16, Const::Int(-2)), Value::Bits(0xfffe));
        let pair = Type::vector(2, Type::I8);
        let two = Value::List(vec![Value::Bits(3); 2]);
        assert_eq!(bits(pair.clone(), Const::Splat(Box::new((Type::I8, Const::Int(3))))), two);
        assert_eq!(bits(pair, Const::Undef), Value::List(vec![Value::Bits(0); 2]));
    }
}
