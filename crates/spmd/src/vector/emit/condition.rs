//! Branch conditions over all lanes: whether all lanes satisfy a condition, and whether any may.
//!
//! A comparison of a value that is monotonic over the lanes with a uniform value is decided by the first and the last lane, in
//! scalars.

use elinvar_ir::{BinaryOp, Const, IntPredicate, Op, Operand, Type, Typed};

use super::Emit;
use crate::analysis::vector_shape::Offsets;

/// Maximum depth of the analysis of a condition.
const DEPTH: u32 = 4;

/// Results for the lanes of a vector: an i1 each.
struct Lanes {
    /// Whether all lanes satisfy the condition. If `any` is inexact, it may be false though all do.
    all: Operand,
    /// Whether any lane does. May be true though none does.
    any: Operand,
}

impl Emit<'_, '_> {
    /// Whether all lanes of all vectors satisfy a condition, in the uniform version.
    pub fn all_fulfil(&mut self, cond: &Operand) -> Operand {
        self.decided(cond, BinaryOp::And, |lanes| lanes.all, Self::all)
    }

    /// Whether any lane of any vector may satisfy a condition, in the uniform version.
    pub fn any_may_fulfil(&mut self, cond: &Operand) -> Operand {
        self.decided(cond, BinaryOp::Or, |lanes| lanes.any, Self::any)
    }

    /// The scalar results of all vectors, combined by `op`; or `of_masks`, if one has none.
    fn decided(
        &mut self,
        cond: &Operand,
        op: BinaryOp,
        of_lanes: fn(Lanes) -> Operand,
        of_masks: fn(&mut Self, &[Operand]) -> Operand,
    ) -> Operand {
        let known: Option<Vec<Operand>> =
            (0..self.factor()).map(|part| self.lanes_of(cond, part, DEPTH).map(of_lanes)).collect();
        if let Some(known) = known {
            let joined = known.into_iter().reduce(|a, b| self.b.binary(op, "", &Type::I1, a, b).into());
            return joined.unwrap_or(Const::Poison.into());
        }
        let masks: Vec<Operand> = (0..self.factor()).map(|part| self.vector(cond, &Type::I1, part)).collect();
        of_masks(self, &masks)
    }

    fn lanes_of(&mut self, cond: &Operand, part: usize, depth: u32) -> Option<Lanes> {
        if self.known(cond, &Type::I1).is_uniform() {
            let one = self.scalar(cond, part);
            return Some(Lanes { all: one.clone(), any: one });
        }
        let value = cond.value()?;
        let source = self.source;
        // Its operands are available in its own block only.
        if depth == 0 || source.uniform.home(value) != Some(self.block) {
            return None;
        }
        let truth = Operand::Const(Const::int(1, -1));
        match &source.definition(value)?.op {
            Op::ICmp { pred, ty, a, b, .. } => self.compared(*pred, ty, a, b, part),
            Op::Binary { op: BinaryOp::And, a, b, .. } => self.both(a, b, part, depth),
            Op::Select { cond, a, b, .. } if matches!(&b.op, Operand::Const(c) if c.as_unsigned(1) == Some(0)) => {
                self.both(&cond.op, &a.op, part, depth)
            }
            Op::Binary { op: BinaryOp::Xor, a, b, .. } if *b == truth => {
                let not = self.lanes_of(a, part, depth - 1)?;
                let mut opposite =
                    |of: Operand| self.b.binary(BinaryOp::Xor, "", &Type::I1, of, truth.clone()).into();
                Some(Lanes { all: opposite(not.any), any: opposite(not.all) })
            }
            _ => None,
        }
    }

    fn both(&mut self, a: &Operand, b: &Operand, part: usize, depth: u32) -> Option<Lanes> {
        let a = self.lanes_of(a, part, depth - 1)?;
        let b = self.lanes_of(b, part, depth - 1)?;
        // The second condition may be undefined where the first does not hold.
        let mut and = |a: Operand, b: Operand| -> Operand {
            let bit = |o: Operand| Typed::new(Type::I1, o);
            let none = bit(Const::int(1, 0).into());
            let op = Op::Select { flags: String::new(), cond: bit(a), a: bit(b), b: none };
            self.b.value(Type::I1, None, op).into()
        };
        Some(Lanes { all: and(a.all, b.all), any: and(a.any, b.any) })
    }

    /// A comparison of a value that increases with the lane, on either side, with a uniform one.
    fn compared(
        &mut self,
        pred: IntPredicate,
        ty: &Type,
        a: &Operand,
        b: &Operand,
        part: usize,
    ) -> Option<Lanes> {
        let Type::Int(width) = *ty else { return None };
        let (of_a, of_b) = (self.known(a, ty), self.known(b, ty));
        let (grows, left) = match (of_a.is_uniform(), of_b.is_uniform()) {
            (false, true) => (of_a, true),
            (true, false) => (of_b, false),
            _ => return None,
        };
        let pattern = grows.pattern()?;
        let Offsets::Linear(step) = pattern.offsets else { return None };
        let signed =
            matches!(pred, IntPredicate::Slt | IntPredicate::Sle | IntPredicate::Sgt | IntPredicate::Sge);
        let positive = width <= 64 && grows.max < 1 << (width - 1);
        if step <= 0 || pattern.loose || !pattern.unwrapped || (signed && !positive) {
            return None;
        }
        let less = match pred {
            IntPredicate::Ult | IntPredicate::Ule | IntPredicate::Slt | IntPredicate::Sle => left,
            IntPredicate::Ugt | IntPredicate::Uge | IntPredicate::Sgt | IntPredicate::Sge => !left,
            _ => return None,
        };
        let span = Const::int(width, i128::from(step) * i128::from(self.lanes() - 1));
        let (first, other) = match left {
            true => (self.scalar(a, part), self.scalar(b, part)),
            false => (self.scalar(b, part), self.scalar(a, part)),
        };
        let last = Operand::from(self.b.binary(BinaryOp::Add, "", ty, first.clone(), span));
        let mut compare = |number: Operand| -> Operand {
            let (a, b) = if left { (number, other.clone()) } else { (other.clone(), number) };
            self.b.icmp(pred, ty, a, b).into()
        };
        let (first, last) = (compare(first), compare(last));
        Some(if less { Lanes { all: last, any: first } } else { Lanes { all: first, any: last } })
    }
}
