//! Results of atomic operations. Threads run one at a time, so they are plain read-modify-writes.

use elinvar_ir::{BinaryOp, RmwOp, Type};

use crate::fault::{Problem, Result};
use crate::value::{truncated, width};
use crate::{float, integer};

pub(crate) fn updated(op: RmwOp, ty: &Type, old: u128, operand: u128) -> Result<u128> {
    let width = width(ty)?;
    let binary = |op| integer::binary(op, width, old, operand);
    let pair = |name| {
        let result = integer::pair(name, width, old, operand).map(|r| truncated(r, width));
        result.ok_or_else(|| Problem::Unsupported(format!("the atomic operation {op}")))
    };
    match op {
        RmwOp::Xchg => Ok(operand),
        RmwOp::Add => binary(BinaryOp::Add),
        RmwOp::Sub => binary(BinaryOp::Sub),
        RmwOp::And => binary(BinaryOp::And),
        RmwOp::Nand => Ok(truncated(!(old & operand), width)),
        RmwOp::Or => binary(BinaryOp::Or),
        RmwOp::Xor => binary(BinaryOp::Xor),
        RmwOp::Max => pair("smax"),
        RmwOp::Min => pair("smin"),
        RmwOp::UMax => pair("umax"),
        RmwOp::UMin => pair("umin"),
        RmwOp::FAdd => float::binary(BinaryOp::FAdd, ty, old, operand),
        RmwOp::FSub => float::binary(BinaryOp::FSub, ty, old, operand),
        RmwOp::FMax => float::apply(ty, [old, operand], |[a, b]| a.max(b), |[a, b]| a.max(b)),
        RmwOp::FMin => float::apply(ty, [old, operand], |[a, b]| a.min(b), |[a, b]| a.min(b)),
        RmwOp::UIncWrap => Ok(if old >= operand { 0 } else { old + 1 }),
        RmwOp::UDecWrap => Ok(if old == 0 || old > operand { operand } else { old - 1 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_matter() {
        assert_eq!(updated(RmwOp::Max, &Type::I32, 0xffff_ffff, 1), Ok(1));
        assert_eq!(updated(RmwOp::UMax, &Type::I32, 0xffff_ffff, 1), Ok(0xffff_ffff));
        assert_eq!(updated(RmwOp::Sub, &Type::I32, 0, 1), Ok(0xffff_ffff));
        assert_eq!(updated(RmwOp::UDecWrap, &Type::I32, 0, 5), Ok(5));
    }
}
