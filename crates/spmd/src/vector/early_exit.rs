//! Branches at which a step finds that the steps behind it have nothing to do in a region.
//!
//! `if (thread < count) { … }` up to the next barrier: the threads of later steps have larger numbers, so once no
//! thread of a step goes inside, none of a later step does. All of them would only arrive at the barrier, which needs
//! one step. The rounds of a reduction then cost what is in them, not what the group has threads.
//!
//! It needs that what stands before the branch in the region, and on the way from it to the barrier, has no effect
//! and leaves nothing of each thread's own behind the barrier.

use std::collections::{HashMap, HashSet};

use elinvar_ir::{BinaryOp, BlockId, CastOp, IntPredicate, Op, Operand, Term, Type};

use crate::analysis::regions::Region;
use crate::intrinsic::Position;
use crate::vector::barrier_context::BarrierContext;
use crate::vector::workgroup::Inputs;

/// How far back a compared number is followed.
const DEPTH: u32 = 6;
/// Branches of a region that are looked at.
const CANDIDATES: usize = 4;

/// What the analysis is made of.
pub(crate) struct EarlyExits<'a> {
    pub inputs: &'a Inputs<'a>,
    pub context: &'a BarrierContext,
}

impl EarlyExits<'_> {
    /// The blocks that end in such a branch, with where it then goes.
    pub fn of(&self, region: &Region) -> HashMap<BlockId, BlockId> {
        let branches = self.first_branches(region).into_iter().take(CANDIDATES);
        let exits = branches.filter_map(|block| Some((block, self.taken_by_all_behind(block)?)));
        exits.filter(|(_, to)| self.does_nothing(region, *to)).collect()
    }

    /// The branches which threads of the group take apart and that come first, with nothing done before.
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

    /// Where a branch goes for every step behind one that goes there with all lanes.
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

    /// The largest value of a number that does not become smaller from thread to thread, in the order of the steps.
    fn ascends(&self, operand: &Operand, depth: u32) -> Option<u64> {
        let value = operand.value()?;
        let [_, y, z] = self.inputs.layout.group;
        if let Some((Position::Thread, dim)) = self.inputs.kernel.positions.get(&value) {
            let is_outermost = [y * z == 1, z == 1, true][*dim];
            return is_outermost.then(|| self.inputs.layout.thread(*dim).max);
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

    fn constant(&self, operand: &Operand, width: u32) -> Option<u64> {
        match operand {
            Operand::Const(c) => c.as_unsigned(width).and_then(|n| u64::try_from(n).ok()),
            Operand::Value(value) => {
                let known = self.inputs.group.of(*value);
                known.constant.or((known.max == 0).then_some(0))
            }
        }
    }

    /// Whether steps that go on from `to` do nothing but arrive at one barrier, or return unnoticed.
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

    /// Whether a block does more than compute and read.
    fn has_effect(&self, block: BlockId) -> bool {
        self.inputs.kernel.function.block(block).insts.iter().any(|inst| match &inst.op {
            Op::Load { volatile, atomic, .. } => *volatile || atomic.is_some(),
            Op::Store { .. } | Op::AtomicRmw { .. } | Op::CmpXchg { .. } | Op::Fence(_) | Op::Call(_) => true,
            _ => false,
        })
    }
}

/// The predicate with its sides exchanged.
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
