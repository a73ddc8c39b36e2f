//! Atomic operations.
//!
//! One worker runs a threadgroup from start to end, so an atomic operation on threadgroup memory is a plain load, operation and
//! store of one lane after the other. If all lanes update one location and none uses the previous value, their values are reduced
//! first.

use elinvar_ir::{Atomic, BinaryOp, CastOp, Inst, IntPredicate, Op, Operand, RmwOp, Type, Typed};

use super::Emit;
use crate::intrinsic::Reduction;
use crate::vector::private_counters::Table;

impl<'a> Emit<'a, '_> {
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
        match self.source.table(&ptr.op) {
            Some(table) => self.update_table(inst, ptr, table),
            None if unused && self.lanes() > 1 && self.is_plain_change(*op, ptr) => self.update_own(inst),
            None => self.serial(inst),
        }
    }

    /// Updates a table of counters, or the buffer atomically if an address is outside of the table.
    fn update_table(&mut self, inst: &Inst, ptr: &Typed, table: &'a Table) {
        let (wide, mask) = (self.wide(&Type::I64), self.mask_type());
        let first = self.splat(table.first.clone(), &Type::I64);
        let bytes = self.splat(table.bytes.clone(), &Type::I64);
        let inside: Vec<Operand> = (0..self.factor())
            .map(|part| {
                let at = self.addresses(ptr, part);
                let at = self.b.cast(CastOp::PtrToInt, self.wide(&Type::PTR), at, wide.clone());
                let offset = self.b.binary(BinaryOp::Sub, "", &wide, at, first.clone());
                let op = Op::ICmp {
                    flags: String::new(),
                    pred: IntPredicate::Ult,
                    ty: wide.clone(),
                    a: offset.into(),
                    b: bytes.clone(),
                };
                let inside: Operand = self.b.value(mask.clone(), None, op).into();
                let Some(active) = self.mask.as_ref().map(|masks| masks[part].clone()) else {
                    return inside;
                };
                let ones = self.mask_of(true);
                let inactive = self.b.binary(BinaryOp::Xor, "", &mask, active, ones);
                self.b.binary(BinaryOp::Or, "", &mask, inside, inactive).into()
            })
            .collect();
        let inside = self.all(&inside);
        let [own, buffer, done] = [(); 3].map(|()| self.b.f.new_block(None));
        self.b.cond_br(inside, own, buffer);
        // What one branch loads is not available behind it.
        let aside = std::mem::replace(&mut self.aside, true);
        self.b.at = own;
        self.table = Some(table);
        self.update_own(inst);
        self.table = None;
        self.b.br(done);
        self.b.at = buffer;
        (0..self.factor()).for_each(|part| drop(self.serial_part(inst, part)));
        self.b.br(done);
        self.aside = aside;
        self.b.at = done;
    }

    /// Updates memory that no other worker accesses, without using the previous values: lanes in a row together, others in order.
    fn update_own(&mut self, inst: &Inst) {
        let Op::AtomicRmw { op, ptr, value, align, .. } = &inst.op else { return };
        let access = self.access(&value.ty, *align);
        for part in 0..self.factor() {
            let Some(at) = self.row(ptr, access.size, part) else {
                self.serial_part(inst, part);
                continue;
            };
            let at = self.in_table(at);
            let wide = self.wide(&access.ty);
            let by = self.vector(&value.op, &value.ty, part);
            let before = self.load_row(&access, at.clone(), part);
            let after = self.changed(*op, &wide, before, by);
            self.store_row(&access, after, at, part);
        }
    }

    /// The place of an address in the current table, or the address itself if there is none.
    pub(super) fn in_table(&mut self, at: Operand) -> Operand {
        let Some(table) = self.table else { return at };
        let at = self.b.cast(CastOp::PtrToInt, Type::PTR, at, Type::I64);
        let offset = self.b.binary(BinaryOp::Sub, "", &Type::I64, at, table.first.clone());
        self.b.gep(Type::I8, table.address.clone(), offset).into()
    }

    /// Whether an atomic operation can be non-atomic.
    pub fn is_plain_change(&self, op: RmwOp, ptr: &Typed) -> bool {
        is_plain(op) && (self.table.is_some() || self.source.is_threadgroup(&ptr.op))
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
        let cond = match ty {
            Type::Vector(..) => self.mask_type(),
            _ => Type::I1,
        };
        let (a, b) = (before.clone(), value.clone());
        let keep = Op::ICmp { flags: String::new(), pred, ty: ty.clone(), a, b };
        let cond = Typed::new(cond.clone(), self.b.value(cond, None, keep));
        let (a, b) = (Typed::new(ty.clone(), before), Typed::new(ty.clone(), value));
        self.b.value(ty.clone(), None, Op::Select { flags: String::new(), cond, a, b }).into()
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
