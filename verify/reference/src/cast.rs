//! Conversions between types.

use elinvar_ir::{CastOp, Type};

use crate::fault::{Problem, Result};
use crate::float;
use crate::value::{Value, signed, truncated, width};

pub(crate) fn cast(op: CastOp, from: &Type, to: &Type, value: &Value) -> Result<Value> {
    if op == CastOp::BitCast {
        return bitcast(to, value, width(from.scalar())?);
    }
    let (source, target) = (from.scalar(), to.scalar());
    let (source_width, target_width) = (width(source)?, width(target)?);
    value.map(&mut |bits| {
        Ok(match op {
            CastOp::Trunc | CastOp::PtrToInt | CastOp::IntToPtr => truncated(bits, target_width),
            CastOp::ZExt | CastOp::AddrSpaceCast => bits,
            CastOp::SExt => truncated(signed(bits, source_width) as u128, target_width),
            CastOp::FpTrunc | CastOp::FpExt => float::encode(target, float::decode(source, bits)?)?,
            CastOp::FpToUi => float::to_int(float::decode(source, bits)?, target_width, false),
            CastOp::FpToSi => float::to_int(float::decode(source, bits)?, target_width, true),
            CastOp::UiToFp => float::from_int(target, bits, source_width, false)?,
            CastOp::SiToFp => float::from_int(target, bits, source_width, true)?,
            CastOp::BitCast => bits,
        })
    })
}

/// The same bits as another type, the first element in the lowest bits.
fn bitcast(to: &Type, value: &Value, from_width: u32) -> Result<Value> {
    let mut stream = Vec::new();
    let mut push = |scalar: &Value| -> Result<()> {
        let bits = scalar.bits()?;
        stream.extend((0..from_width).map(|i| bits.map(|b| b >> i & 1)));
        Ok(())
    };
    match value {
        Value::List(lanes) => lanes.iter().try_for_each(&mut push)?,
        scalar => push(scalar)?,
    }
    let to_width = width(to.scalar())? as usize;
    let lanes = to.lanes().unwrap_or(1) as usize;
    if stream.len() != lanes * to_width {
        return Err(Problem::Malformed(format!("a bitcast of {} bits to {to:?}", stream.len())));
    }
    let scalar =
        |bits: &[Option<u128>]| match bits.iter().rev().try_fold(0, |all, bit| Some(all << 1 | (*bit)?)) {
            Some(bits) => Value::Bits(bits),
            None => Value::Poison,
        };
    let mut scalars: Vec<Value> = stream.chunks(to_width).map(scalar).collect();
    match (to.lanes(), scalars.len()) {
        (None, 1) => Ok(scalars.remove(0)),
        _ => Ok(Value::List(scalars)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitcasts_regroup_bits() {
        let four = Type::vector(4, Type::I8);
        let bytes = cast(CastOp::BitCast, &Type::Float, &four, &Value::Bits(0x0403_0201)).unwrap();
        let expected = Value::List([1u128, 2, 3, 4].map(Value::Bits).to_vec());
        assert_eq!(bytes, expected);
        let back = cast(CastOp::BitCast, &four, &Type::I32, &expected);
        assert_eq!(back, Ok(Value::Bits(0x0403_0201)));
        assert!(cast(CastOp::BitCast, &four, &Type::I64, &expected).is_err());
    }

    #[test]
    fn widths_and_signs() {
        let bits = |v: Result<Value>| v.unwrap();
        assert_eq!(bits(cast(CastOp::SExt, &Type::I8, &Type::I16, &Value::Bits(0x80))), Value::Bits(0xff80));
        assert_eq!(bits(cast(CastOp::Trunc, &Type::I16, &Type::I1, &Value::Bits(3))), Value::Bits(1));
        let two = cast(CastOp::SiToFp, &Type::I32, &Type::Half, &Value::Bits(2));
        assert_eq!(two, Ok(Value::Bits(0x4000)));
    }
}
