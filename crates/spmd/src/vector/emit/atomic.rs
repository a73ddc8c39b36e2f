//! Atomic operations.
//!
//! One worker runs a threadgroup from start to end, so an atomic operation on threadgroup memory is a plain load, operation and
//! store of one lane after the other. If all lanes update one location and none uses the previous value, their values are reduced
//! first.

use elinvar_ir::{Atomic, BinaryOp, Inst, IntPredicate, Op, Operand, RmwOp, Type, Typed};

use super::Emit;
use crate::intrinsic::Reduction;

impl Emit<'_, '_> {
    pub fn atomic_inst(&mut self, inst: &Inst) {
        let Op::AtomicRmw { op, ptr, value, align, atomic, .. } = &inst.op else { return };
        let unused = inst.result.is_none_or(|r| !self.source.used.contains(&r));
        let one_place = self.known(&ptr.op, &ptr.ty).is_uniform();
        if let Some((reduction, unsigned)) = merging(*op, &value.ty)
            && unused
            && one_place
            && self.lanes() > 1
            && self.factor() == 1
        {
            let whole = self.merged(reduction, unsigned, value);
            let at = self.scalar(&ptr.op, 0);
            return self.atomic_one(*op, at, Typed::new(value.ty.clone(), whole), *align, atomic, ptr);
        }
        self.serial(inst);
    }

    /// Whether an atomic operation can be non-atomic.
    pub fn is_plain_change(&self, op: RmwOp, ptr: &Typed) -> bool {
        is_plain(op) && self.source.is_threadgroup(&ptr.op)
    }

    fn atomic_one(
        &mut self,
        op: RmwOp,
        at: Operand,
        value: Typed,
        align: Option<u64>,
        atomic: &Atomic,
        ptr: &Typed,
    ) {
        let place = Typed::new(Type::PTR, at);
        if self.is_plain_change(op, ptr) {
            self.read_modify_write(op, &place, &value, align);
            return;
        }
        let ty = value.ty.clone();
        let op = Op::AtomicRmw { op, ptr: place, value, align, volatile: false, atomic: atomic.clone() };
        self.b.value(ty, None, op);
    }

    /// A non-atomic read-modify-write; returns the previous value.
    pub fn read_modify_write(
        &mut self,
        op: RmwOp,
        ptr: &Typed,
        value: &Typed,
        align: Option<u64>,
    ) -> Operand {
        let ty = value.ty.clone();
        let load = Op::Load { ty: ty.clone(), ptr: ptr.clone(), align, volatile: false, atomic: None };
        let before: Operand = self.b.value(ty.clone(), None, load).into();
        let after = self.changed(op, &ty, before.clone(), value.op.clone());
        self.b.effect(Op::Store {
            value: Typed::new(ty, after),
            ptr: ptr.clone(),
            align,
            volatile: false,
            atomic: None,
        });
        before
    }

    fn changed(&mut self, op: RmwOp, ty: &Type, before: Operand, value: Operand) -> Operand {
        let plain = match op {
            RmwOp::Add => Some(BinaryOp::Add),
            RmwOp::Sub => Some(BinaryOp::Sub),
            RmwOp::And => Some(BinaryOp::And),
            RmwOp::Or => Some(BinaryOp::Or),
            RmwOp::Xor => Some(BinaryOp::Xor),
            RmwOp::FAdd => Some(BinaryOp::FAdd),
            RmwOp::FSub => Some(BinaryOp::FSub),
            _ => None,
        };
        if let Some(op) = plain {
            return self.b.binary(op, "", ty, before, value).into();
        }
        let pred = match op {
            RmwOp::Max => IntPredicate::Sgt,
            RmwOp::Min => IntPredicate::Slt,
            RmwOp::UMax => IntPredicate::Ugt,
            RmwOp::UMin => IntPredicate::Ult,
            _ => return value,
        };
        let keep = self.b.icmp(pred, ty, before.clone(), value.clone());
        self.b.select(ty, keep, before, value).into()
    }
}

/// Whether [`Emit::read_modify_write`] supports the operation.
fn is_plain(op: RmwOp) -> bool {
    use RmwOp::*;
    matches!(op, Xchg | Add | Sub | And | Or | Xor | Max | Min | UMax | UMin | FAdd | FSub)
}

/// The reduction that combines the values of several lanes, and whether they are unsigned.
fn merging(op: RmwOp, ty: &Type) -> Option<(Reduction, bool)> {
    if !ty.is_int() {
        return None;
    }
    Some(match op {
        RmwOp::Add | RmwOp::Sub => (Reduction::Sum, false),
        RmwOp::And => (Reduction::And, false),
        RmwOp::Or => (Reduction::Or, false),
        RmwOp::Xor => (Reduction::Xor, false),
        RmwOp::Max => (Reduction::Max, false),
        RmwOp::Min => (Reduction::Min, false),
        RmwOp::UMax => (Reduction::Max, true),
        RmwOp::UMin => (Reduction::Min, true),
        _ => return None,
    })
}
