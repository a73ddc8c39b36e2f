//! Early exits: branches at which an iteration determines that the following iterations have no work in a region.
//!
//! Example: `if (thread < count) { … }` up to the next barrier. The threads of later iterations have larger indices, so if no
//! thread of an iteration takes the branch, none of a later one does. The later iterations would only reach the barrier, for
//! which one iteration suffices. The rounds of a tree reduction then cost what they do, not the size of the threadgroup.
//!
//! Requires that the code before the branch in the region, and on the path from it to the barrier, has no effects, and that no
//! per-thread value it defines is live after the barrier.

use std::collections::{HashMap, HashSet};

use elinvar_ir::{BinaryOp, BlockId, CastOp, IntPredicate, Op, Operand, Term, Type};

use crate::analysis::regions::Region;
use crate::intrinsic::Position;
use crate::vector::barrier_context::BarrierContext;
use crate::vector::workgroup::Inputs;

/// Maximum depth of the analysis of a comparison's operand.
const DEPTH: u32 = 6;
/// Maximum number of branches of a region that are analyzed.
const CANDIDATES: usize = 4;

/// Inputs of the analysis.
pub(crate) struct EarlyExits<'a> {
    pub inputs: &'a Inputs<'a>,
    pub context: &'a BarrierContext,
}

impl EarlyExits<'_> {
    /// The blocks with such a branch, each with the successor of an iteration without work.
    pub fn of(&self, region: &Region) -> HashMap<BlockId, BlockId> {
        let branches = self.first_branches(region).into_iter().take(CANDIDATES);
        let exits = branches.filter_map(|block| Some((block, self.taken_by_all_behind(block)?)));
        exits.filter(|(_, to)| self.does_nothing(region, *to)).collect()
    }

    /// The divergent branches that come first, without effects before them.
    fn first_branches(&self, region: &Region) -> Vec<BlockId> {
        let (mut before, mut branches) = (HashSet::new(), Vec::new());
        let mut todo = vec![region.start];
        while let Some(block) = todo.pop() {
            if before.contains(&block) || branches.contains(&block) || self.has_effect(block) {
                continue;
            }
            if self.inputs.group.divergent[block.0 as usize] {
                branches.push(block);
            } else if self.inputs.kernel.barrier_after(block).is_none() {
                before.insert(block);
                todo.extend(self.inputs.kernel.function.block(block).term.successors());
            }
        }
        let comes_back = region.blocks.iter().filter(|b| !before.contains(*b)).any(|b| {
            let successors = self.inputs.kernel.function.block(*b).term.successors();
            self.inputs.kernel.barrier_after(*b).is_none()
                && successors.iter().any(|to| before.contains(to) || branches.contains(to))
        });
        if comes_back { Vec::new() } else { branches }
    }

    /// The successor that all iterations take after one that takes it with all lanes.
    fn taken_by_all_behind(&self, block: BlockId) -> Option<BlockId> {
        let Term::CondBr { cond: Operand::Value(cond), then, other } =
            &self.inputs.kernel.function.block(block).term
        else {
            return None;
        };
        let Op::ICmp { pred, ty, a, b, .. } = &self.inputs.uniform.definition(self.inputs.kernel, *cond)?.op
        else {
            return None;
        };
        let same = |o: &Operand| self.inputs.group.at(o, ty, block).is_same();
        let (pred, number, limit) = if same(b) { (*pred, a, b) } else { (swapped(*pred), b, a) };
        let Type::Int(width) = *ty else { return None };
        if !same(limit) || width > 64 || then == other {
            return None;
        }
        let max = self.ascends(number, DEPTH)?;
        let is_zero = matches!(limit, Operand::Const(c) if c.as_unsigned(width) == Some(0));
        match pred {
            IntPredicate::Ult | IntPredicate::Ule => Some(*other),
            IntPredicate::Ugt | IntPredicate::Uge => Some(*then),
            IntPredicate::Slt | IntPredicate::Sle if max < 1 << (width - 1) => Some(*other),
            IntPredicate::Sgt | IntPredicate::Sge if max < 1 << (width - 1) => Some(*then),
            IntPredicate::Eq if is_zero => Some(*other),
            IntPredicate::Ne if is_zero => Some(*then),
            _ => None,
        }
    }

    /// The maximum of a value that is non-decreasing over the threads, in iteration order; `None` for other values.
    fn ascends(&self, operand: &Operand, depth: u32) -> Option<u64> {
        let value = operand.value()?;
        let [_, y, z] = self.inputs.layout.group;
        if let Some((Position::Thread, dim)) = self.inputs.kernel.positions.get(&value) {
            // With a dynamic size, whether y and z have one thread is tested where the branch is taken.
            let ascends = match self.inputs.layout.is_dynamic {
                true => *dim == 0,
                false => [y * z == 1, z == 1, true][*dim],
            };
            return ascends.then(|| self.inputs.layout.thread(*dim).max);
        }
        let inst = self.inputs.uniform.definition(self.inputs.kernel, value)?;
        let depth = depth.checked_sub(1)?;
        let Type::Int(width @ 1..=64) = *self.inputs.kernel.function.ty(value) else { return None };
        let fits = |max: u64, width: u32| (width == 64 || max < 1 << width).then_some(max);
        match &inst.op {
            Op::Cast { op: CastOp::ZExt, from, .. } => self.ascends(&from.op, depth),
            Op::Cast { op: CastOp::SExt, from, .. } => {
                let Type::Int(narrow) = from.ty else { return None };
                fits(self.ascends(&from.op, depth)?, narrow.checked_sub(1)?)
            }
            Op::Cast { op: CastOp::Trunc, from, .. } => fits(self.ascends(&from.op, depth)?, width),
            // A position in several dimensions.
            Op::Binary { op: BinaryOp::Add, a, b, .. } if self.is_zero_in_one_row(b, depth) => {
                self.ascends(a, depth)
            }
            Op::Binary { op: BinaryOp::Add, a, b, .. } if self.is_zero_in_one_row(a, depth) => {
                self.ascends(b, depth)
            }
            Op::Binary { op, a, b, .. } => {
                let constant = |o: &Operand| self.constant(o, width);
                let (number, by) = match (constant(a), constant(b)) {
                    (_, Some(by)) => (a, by),
                    (Some(by), None) if matches!(op, BinaryOp::Add | BinaryOp::Mul | BinaryOp::Or) => (b, by),
                    _ => return None,
                };
                let max = self.ascends(number, depth)?;
                match op {
                    BinaryOp::Add => fits(max.checked_add(by)?, width),
                    BinaryOp::Or if by == 0 => Some(max),
                    BinaryOp::Mul if by > 0 => fits(max.checked_mul(by)?, width),
                    BinaryOp::Shl if by < 32 => fits(max.checked_mul(1 << by)?, width),
                    BinaryOp::UDiv => max.checked_div(by),
                    BinaryOp::LShr if by < u64::from(width) => Some(max >> by),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Whether a value is zero in a threadgroup of one row, if its size is dynamic: y, z, and products of them.
    fn is_zero_in_one_row(&self, operand: &Operand, depth: u32) -> bool {
        let (kernel, Some(depth)) = (self.inputs.kernel, depth.checked_sub(1)) else { return false };
        let Some(value) = operand.value().filter(|_| self.inputs.layout.is_dynamic) else { return false };
        if let Some((position, dim)) = kernel.positions.get(&value) {
            return *position == Position::Thread && *dim > 0;
        }
        let is_zero = |operand: &Operand| self.is_zero_in_one_row(operand, depth);
        match self.inputs.uniform.definition(kernel, value).map(|inst| &inst.op) {
            Some(Op::Binary { op: BinaryOp::Mul, a, b, .. }) => is_zero(a) || is_zero(b),
            Some(Op::Binary { op: BinaryOp::Add, a, b, .. }) => is_zero(a) && is_zero(b),
            Some(Op::Binary { op: BinaryOp::Shl, a, .. }) => is_zero(a),
            Some(Op::Cast { op: CastOp::ZExt | CastOp::Trunc, from, .. }) => is_zero(&from.op),
            _ => false,
        }
    }

    fn constant(&self, operand: &Operand, width: u32) -> Option<u64> {
        match operand {
            Operand::Const(c) => c.as_unsigned(width).and_then(|n| u64::try_from(n).ok()),
            Operand::Value(value) => {
                let known = self.inputs.group.of(*value);
                known.constant.or((known.max == 0).then_some(0))
            }
        }
    }

    /// Whether iterations that continue at `to` only reach one barrier, or return without an observable effect.
    fn does_nothing(&self, region: &Region, to: BlockId) -> bool {
        let kernel = self.inputs.kernel;
        let (mut seen, mut todo, mut barriers) = (HashSet::new(), vec![to], HashSet::new());
        while let Some(block) = todo.pop() {
            if !seen.insert(block) {
                continue;
            }
            if self.has_effect(block) {
                return false;
            }
            match (kernel.barrier_after(block), &kernel.function.block(block).term) {
                (Some(barrier), _) => drop(barriers.insert(barrier)),
                (None, Term::Ret(_)) if self.context.returned.is_some() => return false,
                (None, term) => todo.extend(term.successors()),
            }
        }
        let own = region.defined(kernel);
        let keeps = |barrier: &usize| {
            self.inputs.live.across[*barrier].intersection(&own).any(|value| !self.context.is_shared(*value))
        };
        barriers.len() <= 1 && !barriers.iter().any(keeps)
    }

    /// Whether a block has side effects.
    fn has_effect(&self, block: BlockId) -> bool {
        self.inputs.kernel.function.block(block).insts.iter().any(|inst| match &inst.op {
            Op::Load { volatile, atomic, .. } => *volatile || atomic.is_some(),
            Op::Store { .. } | Op::AtomicRmw { .. } | Op::CmpXchg { .. } | Op::Fence(_) | Op::Call(_) => true,
            _ => false,
        })
    }
}

/// The predicate with swapped operands.
fn swapped(pred: IntPredicate) -> IntPredicate {
    use IntPredicate::{Eq, Ne, Sge, Sgt, Sle, Slt, Uge, Ugt, Ule, Ult};
    match pred {
        Eq | Ne => pred,
        Ult => Ugt,
        Ugt => Ult,
        Ule => Uge,
        Uge => Ule,
        Slt => Sgt,
        Sgt => Slt,
        Sle => Sge,
        Sge => Sle,
    }
}
