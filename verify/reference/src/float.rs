//! Floating-point arithmetic on encodings.
//!
//! half and bfloat are computed in float and rounded, which is correctly rounded for `+ - * /` and square roots. Fast-math flags
//! have no effect.

use elinvar_ir::{BinaryOp, FloatPredicate, Type};
use half::{bf16, f16};

use crate::fault::{Problem, Result};
use crate::value::{signed, truncated};

/// Whether two operands are computed in double.
fn is_double(ty: &Type) -> bool {
    matches!(ty, Type::Double)
}

/// The value of an encoding, exactly.
pub(crate) fn decode(ty: &Type, bits: u128) -> Result<f64> {
    Ok(match ty {
        Type::Half => f16::from_bits(bits as u16).to_f64(),
        Type::BFloat => bf16::from_bits(bits as u16).to_f64(),
        Type::Float => f64::from(f32::from_bits(bits as u32)),
        Type::Double => f64::from_bits(bits as u64),
        other => return Err(Problem::Malformed(format!("{other:?} as a float"))),
    })
}

/// The encoding of a value, rounded to nearest even.
pub(crate) fn encode(ty: &Type, value: f64) -> Result<u128> {
    Ok(match ty {
        Type::Half => u128::from(f16::from_f32(to_odd(value)).to_bits()),
        Type::BFloat => u128::from(bf16::from_f32(to_odd(value)).to_bits()),
        Type::Float => u128::from((value as f32).to_bits()),
        Type::Double => u128::from(value.to_bits()),
        other => return Err(Problem::Malformed(format!("{other:?} as a float"))),
    })
}

/// Rounds toward zero, with a sticky lowest bit, so that a second rounding is correct.
fn to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let wide = f64::from(nearest);
    if wide == value || value.is_nan() {
        return nearest;
    }
    let toward_zero = if wide.abs() > value.abs() { nearest.to_bits() - 1 } else { nearest.to_bits() };
    f32::from_bits(toward_zero | 1)
}

/// Applies a function of float or of double, depending on the type.
pub(crate) fn apply<const N: usize>(
    ty: &Type,
    operands: [u128; N],
    single: impl FnOnce([f32; N]) -> f32,
    double: impl FnOnce([f64; N]) -> f64,
) -> Result<u128> {
    let mut values = [0.0; N];
    for (value, bits) in values.iter_mut().zip(operands) {
        *value = decode(ty, bits)?;
    }
    if is_double(ty) {
        return encode(ty, double(values));
    }
    encode(ty, f64::from(single(values.map(|v| v as f32))))
}

pub(crate) fn binary(op: BinaryOp, ty: &Type, a: u128, b: u128) -> Result<u128> {
    let operands = [a, b];
    match op {
        BinaryOp::FAdd => apply(ty, operands, |[a, b]| a + b, |[a, b]| a + b),
        BinaryOp::FSub => apply(ty, operands, |[a, b]| a - b, |[a, b]| a - b),
        BinaryOp::FMul => apply(ty, operands, |[a, b]| a * b, |[a, b]| a * b),
        BinaryOp::FDiv => apply(ty, operands, |[a, b]| a / b, |[a, b]| a / b),
        BinaryOp::FRem => apply(ty, operands, |[a, b]| a % b, |[a, b]| a % b),
        _ => Err(Problem::Malformed(format!("{op} of floats"))),
    }
}

/// Flip the sign bit, also of a NaN.
pub(crate) fn negated(ty: &Type, bits: u128) -> Result<u128> {
    Ok(bits ^ 1 << (crate::value::width(ty)? - 1))
}

pub(crate) fn compare(pred: FloatPredicate, a: f64, b: f64) -> bool {
    let unordered = a.is_nan() || b.is_nan();
    match pred {
        FloatPredicate::False => false,
        FloatPredicate::True => true,
        FloatPredicate::Ord => !unordered,
        FloatPredicate::Uno => unordered,
        FloatPredicate::Oeq => a == b,
        FloatPredicate::Ogt => a > b,
        FloatPredicate::Oge => a >= b,
        FloatPredicate::Olt => a < b,
        FloatPredicate::Ole => a <= b,
        FloatPredicate::One => !unordered && a != b,
        FloatPredicate::Ueq => unordered || a == b,
        FloatPredicate::Ugt => unordered || a > b,
        FloatPredicate::Uge => unordered || a >= b,
        FloatPredicate::Ult => unordered || a < b,
        FloatPredicate::Ule => unordered || a <= b,
        FloatPredicate::Une => unordered || a != b,
    }
}

/// Converts to an integer, toward zero. NaN gives 0; values out of range saturate.
pub(crate) fn to_int(value: f64, width: u32, is_signed: bool) -> u128 {
    if is_signed {
        let (least, most) = (signed(1 << (width - 1), width), signed((1 << (width - 1)) - 1, width));
        truncated((value as i128).clamp(least, most) as u128, width)
    } else {
        (value as u128).min(truncated(u128::MAX, width))
    }
}

/// From an integer, rounded once.
pub(crate) fn from_int(ty: &Type, bits: u128, width: u32, is_signed: bool) -> Result<u128> {
    let negative = is_signed && signed(bits, width) < 0;
    let magnitude = if negative { signed(bits, width).unsigned_abs() } else { bits };
    // Above 2^53, only the leading bits and a sticky bit matter to the narrower types.
    let value = match ty {
        Type::Double => magnitude as f64,
        Type::Float => f64::from(magnitude as f32),
        _ => odd_rounded(magnitude),
    };
    encode(ty, if negative { -value } else { value })
}

/// The 53 leading bits with a sticky lowest bit, so that a second rounding is correct.
fn odd_rounded(magnitude: u128) -> f64 {
    let excess = (128 - magnitude.leading_zeros()).saturating_sub(53);
    let kept = magnitude >> excess;
    let sticky = u128::from(kept << excess != magnitude);
    (((kept | sticky) << excess) as f64).abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(value: f32) -> u128 {
        u128::from(f16::from_f32(value).to_bits())
    }

    #[test]
    fn arithmetic_rounds_to_its_type() {
        assert_eq!(binary(BinaryOp::FAdd, &Type::Half, half(2048.0), half(1.0)), Ok(half(2048.0)));
        assert_eq!(binary(BinaryOp::FMul, &Type::Half, half(1000.0), half(1000.0)), Ok(half(f32::INFINITY)));
        let one = u128::from(1.0f32.to_bits());
        assert_eq!(binary(BinaryOp::FAdd, &Type::Float, one, u128::from(1e-8f32.to_bits())), Ok(one));
        assert_eq!(negated(&Type::Float, 0), Ok(0x8000_0000));
    }

    #[test]
    fn conversions() {
        assert_eq!(to_int(-1.5, 32, true), 0xffff_ffff);
        assert_eq!(to_int(300.0, 8, false), 255);
        assert_eq!(to_int(f64::NAN, 8, true), 0);
        assert_eq!(from_int(&Type::Float, 0xff, 8, true), Ok(u128::from((-1.0f32).to_bits())));
        // Just above a tie of bfloat: rounding to 53 bits without a sticky bit would lose the lowest bit.
        let above_tie = (1u128 << 63) | (1 << 55) | 1;
        let expected = u128::from(bf16::from_f32(9_295_429_630_892_703_744.0).to_bits());
        assert_eq!(from_int(&Type::BFloat, above_tie, 64, false), Ok(expected));
    }

    #[test]
    fn comparisons_know_nan() {
        assert!(compare(FloatPredicate::Une, f64::NAN, 1.0));
        assert!(!compare(FloatPredicate::One, f64::NAN, 1.0));
        assert!(compare(FloatPredicate::Ult, f64::NAN, 1.0));
    }
}
