//! If-conversion of divergent branches: a branch around a few instructions without effects becomes those instructions and selects.
//!
//! ```text
//!   block ──┐                      block
//!     │    then      becomes      then's instructions
//!   join ←──┘                      selects
//! ```
//!
//! Lanes that diverge execute both sides anyway, so that only the masks go. A branch costs more than its instructions: each
//! version of a region has a copy of them, and where control moves between the versions each live value needs a phi.

use std::collections::HashMap;

use elinvar_ir::{BinaryOp, BlockId, Function, Inst, Op, Operand, Term, Type, Typed, ValueId, predecessors};

use crate::kernel::Kernel;
use crate::support::ir::callee_name;

/// Maximum cost of the instructions that a branch decides on.
const LIMIT: usize = 12;
/// The same for a kernel with many divergent branches, whose code would be large.
const LIMIT_OF_MANY: usize = 48;
/// Number of divergent branches that are many.
const MANY: usize = 64;

/// Intrinsics of a few instructions.
const CHEAP: &[&str] = &[
    "abs", "copysign", "ctlz", "ctpop", "cttz", "fabs", "fma", "fmuladd", "fshl", "fshr", "maxnum", "minnum",
    "smax", "smin", "umax", "umin",
];

/// Converts branches of `kernel`, those of the blocks in `divergent`.
pub(crate) fn convert(kernel: &mut Kernel, divergent: &[bool]) {
    let limit = match divergent.iter().filter(|divergent| **divergent).count() {
        count if count >= MANY => LIMIT_OF_MANY,
        _ => LIMIT,
    };
    let is_fixed = |block: BlockId| kernel.barriers.iter().any(|b| b.from == block || b.cont == block);
    let fixed: Vec<bool> = kernel.function.block_ids().map(is_fixed).collect();
    let preds = predecessors(&kernel.function);
    let divergent = divergent.to_vec();
    let mut conversion = IfConversion { kernel, divergent, preds, fixed, limit, replaced: HashMap::new() };
    // The blocks of an inner branch follow those around it, in most cases.
    let mut has_changed = true;
    while std::mem::take(&mut has_changed) {
        for block in (0..conversion.divergent.len()).rev() {
            while conversion.divergent[block] && conversion.block(BlockId(block as u32)) {
                has_changed = true;
            }
        }
    }
    conversion.replace_phis();
}

/// Whether some branch of the kernel could be converted if it were divergent.
pub(crate) fn may_convert(kernel: &Kernel) -> bool {
    let function = &kernel.function;
    function.blocks.iter().any(|block| {
        matches!(block.term, Term::CondBr { .. })
            && block.term.successors().iter().any(|side| cost(&function.block(*side).insts).is_some())
    })
}

struct IfConversion<'k> {
    kernel: &'k mut Kernel,
    divergent: Vec<bool>,
    preds: Vec<Vec<BlockId>>,
    /// Blocks at barriers, which are neither moved nor merged.
    fixed: Vec<bool>,
    limit: usize,
    /// The values of phis of merged blocks.
    replaced: HashMap<ValueId, Operand>,
}

impl IfConversion<'_> {
    fn function(&mut self) -> &mut Function {
        &mut self.kernel.function
    }

    /// Converts the branch of a block.
    fn block(&mut self, block: BlockId) -> bool {
        let Term::CondBr { cond, then, other } = self.function().block(block).term.clone() else {
            return false;
        };
        let sides = [then, other].map(|side| self.side(block, side));
        let (join, sides) = match sides {
            [Some((a, x)), Some((b, y))] if a == b && x + y <= self.limit => (a, [Some(then), Some(other)]),
            [Some((join, cost)), _] if join == other && cost <= self.limit => (join, [Some(then), None]),
            [_, Some((join, cost))] if join == then && cost <= self.limit => (join, [None, Some(other)]),
            _ => return false,
        };
        if join == block || then == other || !self.has_scalar_phis(join) {
            return false;
        }
        for side in sides.into_iter().flatten() {
            let insts = self.take(side).0;
            self.function().block_mut(block).insts.extend(insts);
        }
        let from = sides.map(|side| side.unwrap_or(block));
        self.select(block, join, &cond, from);
        self.function().block_mut(block).term = Term::Br(join);
        self.divergent[block.0 as usize] = false;
        self.preds[join.0 as usize].retain(|pred| !from.contains(pred) && *pred != block);
        self.preds[join.0 as usize].push(block);
        self.merge(block, join);
        true
    }

    /// Empties a block that is no longer reached.
    fn take(&mut self, block: BlockId) -> (Vec<Inst>, Term) {
        self.preds[block.0 as usize].clear();
        self.divergent[block.0 as usize] = false;
        let block = self.function().block_mut(block);
        (std::mem::take(&mut block.insts), std::mem::replace(&mut block.term, Term::Unreachable))
    }

    /// The block behind a side that all lanes can execute, and its cost.
    fn side(&self, block: BlockId, side: BlockId) -> Option<(BlockId, usize)> {
        let at = side.0 as usize;
        let is_alone = self.preds[at] == [block] && !self.fixed[at];
        let side = self.kernel.function.block(side);
        match side.term {
            Term::Br(join) if is_alone => Some((join, cost(&side.insts)?)),
            _ => None,
        }
    }

    fn has_scalar_phis(&self, join: BlockId) -> bool {
        self.kernel.function.block(join).insts.iter().all(|inst| match &inst.op {
            Op::Phi { ty, .. } => ty.is_int() || ty.is_float(),
            _ => true,
        })
    }

    /// Replaces the values that the phis of `join` have from two predecessors by selects in `block`.
    fn select(&mut self, block: BlockId, join: BlockId, cond: &Operand, from: [BlockId; 2]) {
        let function = self.function();
        let mut insts = std::mem::take(&mut function.block_mut(join).insts);
        for inst in &mut insts {
            let Op::Phi { ty, incoming, .. } = &mut inst.op else { break };
            let of = |pred: BlockId| {
                incoming.iter().find(|(_, from)| *from == pred).map(|(value, _)| value.clone())
            };
            let [Some(a), Some(b)] = from.map(of) else { continue };
            let value = match a == b {
                true => a,
                false => {
                    let [a, b] = [a, b].map(|value| Typed::new(ty.clone(), value));
                    let cond = Typed::new(Type::I1, cond.clone());
                    let op = Op::Select { flags: String::new(), cond, a, b };
                    let result = Some(function.new_value(ty.clone(), None));
                    function.block_mut(block).insts.push(Inst { result, op, metadata: Vec::new() });
                    result.map_or(Operand::int(1, 0), Operand::from)
                }
            };
            incoming.retain(|(_, pred)| !from.contains(pred));
            incoming.push((value, block));
        }
        function.block_mut(join).insts = insts;
    }

    /// Appends `join` to its only predecessor, so that a branch around both can be converted.
    fn merge(&mut self, block: BlockId, join: BlockId) {
        if self.preds[join.0 as usize] != [block] || self.fixed[join.0 as usize] {
            return;
        }
        let divergent = self.divergent[join.0 as usize];
        let (insts, term) = self.take(join);
        self.divergent[block.0 as usize] = divergent;
        for inst in insts {
            match (&inst.op, inst.result) {
                (Op::Phi { incoming, .. }, Some(result)) if incoming.len() == 1 => {
                    self.replaced.insert(result, incoming[0].0.clone());
                }
                _ => self.function().block_mut(block).insts.push(inst),
            }
        }
        for to in term.successors() {
            for inst in &mut self.function().block_mut(to).insts {
                let Op::Phi { incoming, .. } = &mut inst.op else { break };
                incoming.iter_mut().filter(|(_, from)| *from == join).for_each(|(_, from)| *from = block);
            }
            self.preds[to.0 as usize].iter_mut().filter(|pred| **pred == join).for_each(|pred| *pred = block);
        }
        self.function().block_mut(block).term = term;
        if let Some(location) = self.kernel.branch_locations.remove(&join) {
            self.kernel.branch_locations.insert(block, location);
        }
    }

    /// Replaces the phis of merged blocks by their values.
    fn replace_phis(self) {
        let Self { kernel, replaced, .. } = self;
        let replace = |operand: &mut Operand| {
            while let Some(value) = operand.value().and_then(|value| replaced.get(&value)) {
                *operand = value.clone();
            }
        };
        for block in &mut kernel.function.blocks {
            block.insts.iter_mut().for_each(|inst| inst.op.map_operands(replace));
            block.term.map_operands(replace);
        }
    }
}

/// The cost of instructions that have no effect and are defined for all lanes.
fn cost(insts: &[Inst]) -> Option<usize> {
    let one = |inst: &Inst| match &inst.op {
        Op::Binary { op: BinaryOp::FDiv, .. } => Some(8),
        Op::Binary { op: BinaryOp::UDiv | BinaryOp::SDiv | BinaryOp::URem | BinaryOp::SRem, .. } => None,
        Op::Binary { op: BinaryOp::FRem, .. } => None,
        Op::Binary { .. } | Op::FNeg { .. } | Op::ICmp { .. } | Op::FCmp { .. } | Op::Select { .. } => {
            Some(1)
        }
        Op::Cast { .. } | Op::Freeze(_) | Op::ExtractValue { .. } | Op::InsertValue { .. } => Some(1),
        Op::Call(call) if is_cheap(callee_name(call)?) => Some(2),
        _ => None,
    };
    insts.iter().map(one).sum()
}

fn is_cheap(name: &str) -> bool {
    let rest = name.strip_prefix("llvm.").unwrap_or_default();
    CHEAP.iter().any(|cheap| rest.strip_prefix(cheap).is_some_and(|types| types.starts_with('.')))
}
