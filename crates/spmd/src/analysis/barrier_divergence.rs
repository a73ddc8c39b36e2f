//! Rejects barriers at which the simdgroups of a threadgroup provably do not meet.
//!
//! A branch counts as divergent only if its condition can be evaluated here, from thread positions and constants, and simdgroups of
//! the first threadgroup take different sides of it. Rejected is a barrier on one side of such a branch if the other side reaches
//! another barrier first. A simdgroup arrives at a barrier if any of its lanes does, and exited simdgroups count as arrived: a
//! barrier that some simdgroups bypass until they return is valid. Conditions that are known at run time only are checked by the
//! compiled code.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};

use elinvar_ir::{BinaryOp, BlockId, CastOp, Const, Module, Op, Operand, Term, Type, ValueId};

use crate::Error;
use crate::analysis::regions::{Region, reachable, regions};
use crate::intrinsic::{Position, SIMDGROUP};
use crate::kernel::Kernel;
use crate::transform::{lower_intrinsics, scalarize};

/// Sizes for which [`Entry::check_any_size`] evaluates conditions: the largest in each direction and square ones.
const SIZES: [[u32; 3]; 6] = [[1024, 1, 1], [64, 1, 1], [32, 32, 1], [8, 8, 16], [1, 1024, 1], [1, 1, 1024]];

/// The entry of a module, lowered for the check.
pub(crate) struct Entry {
    kernel: Kernel,
    regions: Vec<Region>,
}

impl Entry {
    /// Lowers the entry.
    ///
    /// # Errors
    /// Those of the lowering of intrinsics.
    pub(crate) fn of(module: &Module) -> Result<Self, Error> {
        let mut kernel = lower_intrinsics::lower(module)?;
        scalarize::scalarize(module, &mut kernel.function);
        let regions = regions(&kernel);
        Ok(Self { kernel, regions })
    }

    /// Checks it for threadgroups of this size.
    ///
    /// # Errors
    /// `DivergentBarrier`.
    pub(crate) fn check(&self, group: [u32; 3]) -> Result<(), Error> {
        check(&self.kernel, &self.regions, group)
    }

    /// Checks it for threadgroups whose size is known at run time only.
    ///
    /// # Errors
    /// `Unsupported` with the location of the barrier, if simdgroups do not meet for some size.
    pub(crate) fn check_any_size(&self) -> Result<(), Error> {
        SIZES.iter().try_for_each(|group| self.check(*group)).map_err(|error| match error {
            Error::DivergentBarrier { location, .. } => Error::unsupported(
                "a barrier under control flow that depends on the threadgroup size, which is known at run time only",
                location,
            ),
            error => error,
        })
    }
}

/// Checks every branch of `kernel`.
fn check(kernel: &Kernel, regions: &[Region], group: [u32; 3]) -> Result<(), Error> {
    if kernel.barriers.is_empty() {
        return Ok(());
    }
    let conditions = Conditions::new(kernel, group);
    for block in kernel.function.block_ids() {
        let decides = match &kernel.function.block(block).term {
            Term::CondBr { cond, .. } => cond,
            Term::Switch { value, .. } => &value.op,
            _ => continue,
        };
        if conditions.parts_simdgroups(decides) {
            check_branch(kernel, regions, block)?;
        }
    }
    Ok(())
}

fn check_branch(kernel: &Kernel, regions: &[Region], branch: BlockId) -> Result<(), Error> {
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
            if kernel.barriers.iter().any(|b| side[b.from.0 as usize]) {
                return Err(Error::DivergentBarrier {
                    location: barrier.location.clone(),
                    branch: kernel.branch_locations.get(&branch).cloned(),
                });
            }
        }
    }
    Ok(())
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

    /// Whether a value is known for every thread, and the sets of values of two simdgroups differ.
    fn parts_simdgroups(&self, operand: &Operand) -> bool {
        let Operand::Value(value) = operand else { return false };
        let ty = self.kernel.function.ty(*value).clone();
        let Type::Int(_) = ty else { return false };
        let [x, y, z] = self.group;
        let threads: Vec<[u32; 3]> = (0..x * y * z).map(|i| [i % x, i / x % y, i / x / y]).collect();
        let mut first: Option<BTreeSet<u128>> = None;
        for simdgroup in threads.chunks(SIMDGROUP as usize) {
            let values = simdgroup.iter().map(|thread| self.operand(operand, &ty, *thread, &Cell::new(FUEL)));
            let Some(values) = values.collect::<Option<BTreeSet<u128>>>() else { return false };
            if *first.get_or_insert_with(|| values.clone()) != values {
                return true;
            }
        }
        false
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
                Position::Grid
                | Position::Groups
                | Position::ArgumentBytes
                | Position::FaultRecord
                | Position::LogRing
                | Position::LogKernel
                | Position::GridCounter => None,
            };
        }
        match self.definitions.get(&value)? {
            Op::Binary { op, ty, a, b, .. } => {
                let (a, b) = (self.operand(a, ty, thread, fuel)?, self.operand(b, ty, thread, fuel)?);
                binary(*op, ty, a, b)
            }
            Op::ICmp { pred, ty, a, b, .. } => {
                let (a, b) = (self.operand(a, ty, thread, fuel)?, self.operand(b, ty, thread, fuel)?);
                Some(pred.holds([a, b], [signed(ty, a)?, signed(ty, b)?]).into())
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
