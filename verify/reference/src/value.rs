//! Values: bits of scalars, and lists of them.
//!
//! Invariant: a value of vector, array or struct type is a [`Value::List`] of that many values; any
//! other is [`Value::Bits`], of which only the type's width is set, or [`Value::Poison`].

use elinvar_ir::{Module, Type};

use crate::fault::{Problem, Result};

/// A run-time value. Its type is known from the instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// An integer, an encoded float, or an address.
    Bits(u128),
    /// A scalar without a value: uninitialized, or poison.
    Poison,
    List(Vec<Value>),
}

impl Value {
    pub(crate) fn bool(value: bool) -> Value {
        Value::Bits(u128::from(value))
    }

    /// A value of this type whose scalars are all `scalar`.
    pub(crate) fn filled(ty: &Type, module: &Module, scalar: &Value) -> Result<Value> {
        let ty = resolve(ty, module)?;
        Ok(match ty {
            Type::Vector(lanes, element) => {
                Value::List(vec![Value::filled(element, module, scalar)?; *lanes as usize])
            }
            Type::Array(count, element) => {
                Value::List(vec![Value::filled(element, module, scalar)?; length(*count)?])
            }
            Type::Struct { fields, .. } => {
                Value::List(fields.iter().map(|f| Value::filled(f, module, scalar)).collect::<Result<_>>()?)
            }
            Type::Void | Type::Metadata => return Err(Problem::Malformed(format!("a value of type {ty:?}"))),
            _ => scalar.clone(),
        })
    }

    /// The same shape with every scalar poison.
    pub(crate) fn poisoned(&self) -> Value {
        match self {
            Value::List(items) => Value::List(items.iter().map(Value::poisoned).collect()),
            _ => Value::Poison,
        }
    }

    /// The same value with zero for poison.
    pub(crate) fn frozen(self) -> Value {
        match self {
            Value::List(items) => Value::List(items.into_iter().map(Value::frozen).collect()),
            Value::Poison => Value::Bits(0),
            bits => bits,
        }
    }

    /// A scalar's bits, `None` for poison.
    pub(crate) fn bits(&self) -> Result<Option<u128>> {
        match self {
            Value::Bits(bits) => Ok(Some(*bits)),
            Value::Poison => Ok(None),
            Value::List(_) => Err(Problem::Malformed("a scalar operation on an aggregate".into())),
        }
    }

    /// A scalar's bits where control flow or an address depends on them.
    pub(crate) fn known(&self, what: &'static str) -> Result<u128> {
        self.bits()?.ok_or(Problem::Uninitialized { what })
    }

    /// The elements of an aggregate.
    pub(crate) fn list(&self) -> Result<&[Value]> {
        match self {
            Value::List(items) => Ok(items),
            _ => Err(Problem::Malformed("an operation on the elements of a scalar".into())),
        }
    }

    pub(crate) fn into_list(self) -> Result<Vec<Value>> {
        match self {
            Value::List(items) => Ok(items),
            _ => Err(Problem::Malformed("an operation on the elements of a scalar".into())),
        }
    }

    /// Apply `f` to the scalar, or to every lane.
    pub(crate) fn map(&self, f: &mut dyn FnMut(u128) -> Result<u128>) -> Result<Value> {
        Ok(match self {
            Value::Bits(a) => Value::Bits(f(*a)?),
            Value::Poison => Value::Poison,
            Value::List(items) => Value::List(items.iter().map(|i| i.map(f)).collect::<Result<_>>()?),
        })
    }

    /// Apply `f` to two scalars, or lane by lane; poison where either is.
    pub(crate) fn zip(&self, other: &Value, f: &mut dyn FnMut(u128, u128) -> Result<u128>) -> Result<Value> {
        Ok(match (self, other) {
            (Value::Bits(a), Value::Bits(b)) => Value::Bits(f(*a, *b)?),
            (Value::List(a), Value::List(b)) if a.len() == b.len() => {
                Value::List(a.iter().zip(b).map(|(a, b)| a.zip(b, f)).collect::<Result<_>>()?)
            }
            (Value::List(_), _) | (_, Value::List(_)) => {
                return Err(Problem::Malformed("operands of different shapes".into()));
            }
            _ => Value::Poison,
        })
    }
}

/// The type behind a name.
pub(crate) fn resolve<'a>(ty: &'a Type, module: &'a Module) -> Result<&'a Type> {
    ty.resolve(module).ok_or_else(|| Problem::Malformed(format!("the type {ty:?} is not defined")))
}

/// The width of a scalar in bits.
pub(crate) fn width(ty: &Type) -> Result<u32> {
    match ty {
        Type::Int(width) if (1..=128).contains(width) => Ok(*width),
        Type::Half | Type::BFloat => Ok(16),
        Type::Float => Ok(32),
        Type::Double | Type::Ptr(_) => Ok(64),
        other => Err(Problem::Unsupported(format!("a scalar of type {other:?}"))),
    }
}

/// The low `width` bits.
pub(crate) fn truncated(bits: u128, width: u32) -> u128 {
    if width >= 128 { bits } else { bits & ((1 << width) - 1) }
}

/// The value of `width` bits as a signed number.
pub(crate) fn signed(bits: u128, width: u32) -> i128 {
    let shift = 128 - width.clamp(1, 128);
    ((bits << shift) as i128) >> shift
}

/// Converts a number of elements, which must be small.
pub(crate) fn length(count: u64) -> Result<usize> {
    usize::try_from(count)
        .ok()
        .filter(|n| *n <= 1 << 24)
        .ok_or_else(|| Problem::Unsupported(format!("an aggregate of {count} elements")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_kept() {
        assert_eq!(truncated(u128::MAX, 24), 0xff_ffff);
        assert_eq!(truncated(u128::MAX, 128), u128::MAX);
        assert_eq!(signed(0x80, 8), -128);
        assert_eq!(signed(1, 1), -1);
        assert_eq!(signed(u128::MAX, 128), -1);
    }

    #[test]
    fn poison_stays_in_its_lane() {
        let a = Value::List(vec![Value::Bits(1), Value::Poison]);
        let b = Value::List(vec![Value::Bits(2), Value::Bits(3)]);
        let sum = a.zip(&b, &mut |a, b| Ok(a + b)).unwrap();
        assert_eq!(sum, Value::List(vec![Value::Bits(3), Value::Poison]));
        assert_eq!(sum.clone().frozen(), Value::List(vec![Value::Bits(3), Value::Bits(0)]));
        assert!(a.zip(&Value::Bits(1), &mut |a, b| Ok(a + b)).is_err());
    }
}
