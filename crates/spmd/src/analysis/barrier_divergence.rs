//! Rejects barriers that some threads of a threadgroup reach and others provably do not.
//!
//! A branch counts as divergent only if its condition can be evaluated here, from thread positions and constants, and differs
//! between threads of the first threadgroup. Exited threads count as arrived, so a barrier after an early return is valid.
//! Rejected is a barrier on one side of such a branch if the other side reaches another barrier, or reaches the join with work
//! left to do. Conditions that are known at run time only are checked by the compiled code.
//!
//! An optimizer may have merged the last stores of both sides of an early return into one at the join. Such an instruction has
//! lost its line, which distinguishes it from other work at the join; or it is at the join of several returns in one line, and
//! some paths from the barrier bypass it.

use std::cell::Cell;
use std::collections::HashMap;

use elinvar_ir::{
    BinaryOp, BlockId, CastOp, Const, Inst, IntPredicate, Module, Op, Operand, Term, Type, ValueId,
};

use crate::Error;
use crate::analysis::regions::{Region, reachable};
use crate::intrinsic::Position;
use crate::kernel::Kernel;
use crate::support::ir::callee_name;
use crate::transform::bounds::RECORD;

/// Checks every branch of `kernel` for threadgroups of a dynamic size: a branch that diverges for some sizes counts as divergent for all.
///
/// # Errors
/// `Unsupported` with the location of the barrier.
pub(crate) fn check_any_size(module: &Module, kernel: &Kernel, regions: &[Region]) -> Result<(), Error> {
    let conditions = Conditions::new(kernel, [1; 3]);
    check_branches(module, kernel, regions, |decides| conditions.may_vary(decides)).map_err(|error| match error {
        Error::DivergentBarrier { location, .. } => Error::unsupported(
            "a barrier under control flow that depends on the threadgroup size, which is known at run time only",
            location,
        ),
        error => error,
    })
}

/// Checks every branch of `kernel` for threadgroups of this size.
pub(crate) fn check(
    module: &Module,
    kernel: &Kernel,
    regions: &[Region],
    group: [u32; 3],
) -> Result<(), Error> {
    let conditions = Conditions::new(kernel, group);
    check_branches(module, kernel, regions, |decides| conditions.varies(decides))
}

/// Checks the branches whose condition diverges.
fn check_branches(
    module: &Module,
    kernel: &Kernel,
    regions: &[Region],
    diverges: impl Fn(&Operand) -> bool,
) -> Result<(), Error> {
    if kernel.barriers.is_empty() {
        return Ok(());
    }
    for block in kernel.function.block_ids() {
        let decides = match &kernel.function.block(block).term {
            Term::CondBr { cond, .. } => cond,
            Term::Switch { value, .. } => &value.op,
            _ => continue,
        };
        if diverges(decides) {
            check_branch(module, kernel, regions, block)?;
        }
    }
    Ok(())
}

fn check_branch(module: &Module, kernel: &Kernel, regions: &[Region], branch: BlockId) -> Result<(), Error> {
    let mut successors = kernel.function.block(branch).term.successors();
    successors.sort_unstable();
    successors.dedup();
    let sides: Vec<Vec<bool>> = successors.iter().map(|s| reachable(kernel, *s, Some(branch))).collect();
    for (index, barrier) in kernel.barriers.iter().enumerate() {
        if regions[index + 1].blocks.is_empty() {
            continue;
        }
        let reaches = |side: &Vec<bool>| side[barrier.from.0 as usize];
        if !sides.iter().any(reaches) {
            continue;
        }
        for side in sides.iter().filter(|side| !reaches(side)) {
            let other_barrier = kernel.barriers.iter().any(|b| side[b.from.0 as usize]);
            if other_barrier || joins_with_work(module, kernel, barrier.cont, side) {
                return Err(Error::DivergentBarrier {
                    location: barrier.location.clone(),
                    branch: kernel.branch_locations.get(&branch).cloned(),
                });
            }
        }
    }
    Ok(())
}

/// Whether every path from `after` reaches a block of `side` with an effect.
fn joins_with_work(module: &Module, kernel: &Kernel, after: BlockId, side: &[bool]) -> bool {
    let mut seen = vec![false; side.len()];
    let mut todo = vec![after];
    let mut joins = false;
    while let Some(block) = todo.pop() {
        if std::mem::replace(&mut seen[block.0 as usize], true) {
            continue;
        }
        let code = kernel.function.block(block);
        if side[block.0 as usize] && code.insts.iter().any(|i| is_work(module, i)) {
            joins = true;
        } else if matches!(code.term, Term::Ret(_)) {
            return false;
        } else {
            todo.extend(code.term.successors());
        }
    }
    joins
}

/// Whether an instruction has a visible effect, at its original place in the source.
fn is_work(module: &Module, inst: &Inst) -> bool {
    let has_effect = match &inst.op {
        Op::Store { .. } | Op::AtomicRmw { .. } | Op::CmpXchg { .. } => true,
        Op::Call(call) => inst.result.is_none() && callee_name(call) != Some(RECORD),
        _ => false,
    };
    let node =
        inst.metadata.iter().find(|(kind, _)| kind == "dbg").and_then(|(_, id)| module.metadata_node(*id));
    let merged = node.is_some_and(|text| text.contains("line: 0,"));
    has_effect && !merged
}

/// Evaluates values that depend on the thread's position only.
struct Conditions<'k> {
    kernel: &'k Kernel,
    definitions: HashMap<ValueId, &'k Op>,
    group: [u32; 3],
}

/// Maximum number of operations of an expression; larger ones count as unknown.
const FUEL: u32 = 256;

impl<'k> Conditions<'k> {
    fn new(kernel: &'k Kernel, group: [u32; 3]) -> Self {
        let insts = kernel.function.blocks.iter().flat_map(|b| &b.insts);
        let definitions = insts.filter_map(|i| Some((i.result?, &i.op))).collect();
        Self { kernel, definitions, group }
    }

    fn varies(&self, operand: &Operand) -> bool {
        let Operand::Value(value) = operand else { return false };
        let ty = self.kernel.function.ty(*value).clone();
        let Type::Int(_) = ty else { return false };
        let mut first = None;
        for z in 0..self.group[2] {
            for y in 0..self.group[1] {
                for x in 0..self.group[0] {
                    let Some(now) = self.operand(operand, &ty, [x, y, z], &Cell::new(FUEL)) else {
                        return false;
                    };
                    if *first.get_or_insert(now) != now {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Whether a value can be evaluated and depends on the thread's position, so that it may vary in threadgroups of some size.
    fn may_vary(&self, operand: &Operand) -> bool {
        self.has_position(operand, &Cell::new(FUEL)) == Some(true)
    }

    /// Whether the thread's position is among the terms of a value; `None` if it has other terms than positions, sizes and constants.
    fn has_position(&self, operand: &Operand, fuel: &Cell<u32>) -> Option<bool> {
        let Operand::Value(value) = operand else { return Some(false) };
        fuel.set(fuel.get().checked_sub(1)?);
        if let Some((position, _)) = self.kernel.positions.get(value) {
            return match position {
                Position::Thread => Some(true),
                Position::Group | Position::GroupSize | Position::FullGroupSize => Some(false),
                Position::Grid | Position::Groups | Position::ArgumentBytes | Position::FaultRecord => None,
            };
        }
        let op = self.definitions.get(value)?;
        match op {
            // Of a select, only one side is evaluated.
            Op::Select { .. } => Some(true),
            Op::Binary { .. } | Op::ICmp { .. } | Op::Cast { .. } | Op::Freeze(_) => {
                let terms = op.operands().into_iter().map(|term| self.has_position(term, fuel));
                terms.collect::<Option<Vec<_>>>().map(|terms| terms.contains(&true))
            }
            _ => None,
        }
    }

    /// The value for one thread, zero-extended.
    fn operand(&self, operand: &Operand, ty: &Type, thread: [u32; 3], fuel: &Cell<u32>) -> Option<u128> {
        let Type::Int(width) = *ty else { return None };
        match operand {
            Operand::Const(c) => c.as_unsigned(width),
            Operand::Value(v) => {
                fuel.set(fuel.get().checked_sub(1)?);
                let raw = self.value(*v, thread, fuel)?;
                Const::int(width, raw as i128).as_unsigned(width)
            }
        }
    }

    fn value(&self, value: ValueId, thread: [u32; 3], fuel: &Cell<u32>) -> Option<u128> {
        if let Some((position, dim)) = self.kernel.positions.get(&value) {
            return match position {
                Position::Thread => Some(thread[*dim].into()),
                Position::Group => Some(0),
                Position::GroupSize | Position::FullGroupSize => Some(self.group[*dim].into()),
                Position::Grid | Position::Groups | Position::ArgumentBytes | Position::FaultRecord => None,
            };
        }
        match self.definitions.get(&value)? {
            Op::Binary { op, ty, a, b, .. } => {
                let (a, b) = (self.operand(a, ty, thread, fuel)?, self.operand(b, ty, thread, fuel)?);
                binary(*op, ty, a, b)
            }
            Op::ICmp { pred, ty, a, b, .. } => {
                let (a, b) = (self.operand(a, ty, thread, fuel)?, self.operand(b, ty, thread, fuel)?);
                Some(compare(*pred, signed(ty, a)?, signed(ty, b)?, a, b).into())
            }
            Op::Cast { op, from, .. } => {
                let inner = self.operand(&from.op, &from.ty, thread, fuel)?;
                match op {
                    CastOp::ZExt | CastOp::Trunc => Some(inner),
                    CastOp::SExt => Some(signed(&from.ty, inner)? as u128),
                    _ => None,
                }
            }
            Op::Select { cond, a, b, .. } => {
                let chosen = if self.operand(&cond.op, &cond.ty, thread, fuel)? & 1 == 1 { a } else { b };
                self.operand(&chosen.op, &chosen.ty, thread, fuel)
            }
            Op::Freeze(inner) => self.operand(&inner.op, &inner.ty, thread, fuel),
            _ => None,
        }
    }
}

fn signed(ty: &Type, value: u128) -> Option<i128> {
    let Type::Int(width) = *ty else { return None };
    match Const::int(width, value as i128) {
        Const::Int(v) => Some(v),
        _ => None,
    }
}

fn binary(op: BinaryOp, ty: &Type, a: u128, b: u128) -> Option<u128> {
    let Type::Int(width) = *ty else { return None };
    Some(match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::UDiv => a.checked_div(b)?,
        BinaryOp::URem => a.checked_rem(b)?,
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl if b < u128::from(width) => a << b,
        BinaryOp::LShr if b < u128::from(width) => a >> b,
        BinaryOp::AShr if b < u128::from(width) => (signed(ty, a)? >> b) as u128,
        _ => return None,
    })
}

fn compare(pred: IntPredicate, sa: i128, sb: i128, a: u128, b: u128) -> bool {
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
