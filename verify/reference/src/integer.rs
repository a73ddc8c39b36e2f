//! Integer arithmetic on bit patterns of a given width.
//!
//! Defined for every operand, as in the compilers: a division by zero gives 0, `MIN / -1` gives `MIN` with remainder 0, shift
//! amounts are taken modulo the width. Bits of results above the width are 0.

use elinvar_ir::{BinaryOp, IntPredicate};

use crate::fault::{Problem, Result};
use crate::value::{signed, truncated};

pub(crate) fn binary(op: BinaryOp, width: u32, a: u128, b: u128) -> Result<u128> {
    let (sa, sb) = (signed(a, width), signed(b, width));
    let amount = (b % u128::from(width)) as u32;
    let result = match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::UDiv => a.checked_div(b).unwrap_or(0),
        BinaryOp::URem => a.checked_rem(b).unwrap_or(0),
        BinaryOp::SDiv if sb == 0 => 0,
        BinaryOp::SDiv => sa.wrapping_div(sb) as u128,
        BinaryOp::SRem if sb == 0 => 0,
        BinaryOp::SRem => sa.wrapping_rem(sb) as u128,
        BinaryOp::Shl => a << amount,
        BinaryOp::LShr => a >> amount,
        BinaryOp::AShr => (sa >> amount) as u128,
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::FAdd | BinaryOp::FSub | BinaryOp::FMul | BinaryOp::FDiv | BinaryOp::FRem => {
            return Err(Problem::Malformed(format!("{op} of integers")));
        }
    };
    Ok(truncated(result, width))
}

pub(crate) fn compare(pred: IntPredicate, width: u32, a: u128, b: u128) -> bool {
    let (sa, sb) = (signed(a, width), signed(b, width));
    match pred {
        IntPredicate::Eq => a == b,
        IntPredicate::Ne => a != b,
        IntPredicate::Ugt => a > b,
        IntPredicate::Uge => a >= b,
        IntPredicate::Ult => a < b,
        IntPredicate::Ule => a <= b,
        IntPredicate::Sgt => sa > sb,
        IntPredicate::Sge => sa >= sb,
        IntPredicate::Slt => sa < sb,
        IntPredicate::Sle => sa <= sb,
    }
}

/// An intrinsic of one operand, `llvm.ctpop` and its kin.
pub(crate) fn unary(name: &str, width: u32, a: u128) -> Option<u128> {
    let above = 128 - width;
    let result = match name {
        "ctpop" => u128::from(a.count_ones()),
        "ctlz" => u128::from(a.leading_zeros() - above),
        "cttz" => u128::from(a.trailing_zeros().min(width)),
        "bitreverse" => a.reverse_bits() >> above,
        "bswap" => a.swap_bytes() >> above,
        "abs" => signed(a, width).wrapping_abs() as u128,
        _ => return None,
    };
    Some(truncated(result, width))
}

/// An intrinsic of two operands, `llvm.umin` and its kin.
pub(crate) fn pair(name: &str, width: u32, a: u128, b: u128) -> Option<u128> {
    let (sa, sb) = (signed(a, width), signed(b, width));
    let (least, most) = (signed(1 << (width - 1), width), signed((1 << (width - 1)) - 1, width));
    let all = truncated(u128::MAX, width);
    let result = match name {
        "umin" => a.min(b),
        "umax" => a.max(b),
        "smin" => sa.min(sb) as u128,
        "smax" => sa.max(sb) as u128,
        "uadd.sat" => a.checked_add(b).map_or(all, |sum| sum.min(all)),
        "usub.sat" => a.saturating_sub(b),
        "sadd.sat" => sa.saturating_add(sb).clamp(least, most) as u128,
        "ssub.sat" => sa.saturating_sub(sb).clamp(least, most) as u128,
        "ucmp" => a.cmp(&b) as i8 as u128,
        "scmp" => sa.cmp(&sb) as i8 as u128,
        _ => return None,
    };
    Some(result)
}

/// The high or low part of two values side by side, shifted: `llvm.fshl`, `llvm.fshr`.
pub(crate) fn funnel(left: bool, width: u32, high: u128, low: u128, amount: u128) -> u128 {
    let amount = (amount % u128::from(width)) as u32;
    let result = match (left, amount) {
        (true, 0) => high,
        (false, 0) => low,
        (true, n) => high << n | low >> (width - n),
        (false, n) => high << (width - n) | low >> n,
    };
    truncated(result, width)
}

/// `llvm.sadd.with.overflow` and its kin: the result and whether it does not fit.
pub(crate) fn overflowing(name: &str, width: u32, a: u128, b: u128) -> Option<(u128, bool)> {
    let (sa, sb) = (signed(a, width), signed(b, width));
    let unsigned = |r: Option<u128>, wrapped: u128| {
        (truncated(wrapped, width), r.is_none_or(|r| truncated(r, width) != r))
    };
    let checked = |r: Option<i128>, wrapped: i128| {
        (truncated(wrapped as u128, width), r.is_none_or(|r| signed(r as u128, width) != r))
    };
    Some(match name {
        "uadd.with.overflow" => unsigned(a.checked_add(b), a.wrapping_add(b)),
        "usub.with.overflow" => unsigned(a.checked_sub(b), a.wrapping_sub(b)),
        "umul.with.overflow" => unsigned(a.checked_mul(b), a.wrapping_mul(b)),
        "sadd.with.overflow" => checked(sa.checked_add(sb), sa.wrapping_add(sb)),
        "ssub.with.overflow" => checked(sa.checked_sub(sb), sa.wrapping_sub(sb)),
        "smul.with.overflow" => checked(sa.checked_mul(sb), sa.wrapping_mul(sb)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_and_shifts_are_defined() {
        assert_eq!(binary(BinaryOp::SDiv, 8, 0x80, 0xff), Ok(0x80));
        assert_eq!(binary(BinaryOp::SRem, 8, 0x80, 0xff), Ok(0));
        assert_eq!(binary(BinaryOp::SDiv, 8, 0xf9, 2), Ok(0xfd));
        assert_eq!(binary(BinaryOp::URem, 32, 7, 0), Ok(0));
        assert_eq!(binary(BinaryOp::Shl, 24, 1, 25), Ok(2));
        assert_eq!(binary(BinaryOp::AShr, 16, 0x8000, 4), Ok(0xf800));
    }

    #[test]
    fn intrinsics() {
        assert_eq!(unary("ctlz", 16, 1), Some(15));
        assert_eq!(unary("cttz", 16, 0), Some(16));
        assert_eq!(unary("bitreverse", 8, 0b1100_0000), Some(3));
        assert_eq!(unary("abs", 8, 0x80), Some(0x80));
        assert_eq!(pair("sadd.sat", 8, 0x70, 0x70), Some(0x7f));
        assert_eq!(pair("uadd.sat", 8, 0xf0, 0x70), Some(0xff));
        assert_eq!(pair("ssub.sat", 8, 0x80, 1).map(|r| truncated(r, 8)), Some(0x80));
        assert_eq!(funnel(true, 8, 0b1000_0001, 0b1000_0000, 1), 0b0000_0011);
        assert_eq!(funnel(false, 8, 1, 2, 9), 0b1000_0001);
        assert_eq!(overflowing("smul.with.overflow", 8, 0x40, 2), Some((0x80, true)));
        assert_eq!(overflowing("usub.with.overflow", 8, 1, 2), Some((0xff, true)));
    }
}
