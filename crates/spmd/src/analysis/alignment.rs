//! Alignment analysis: the guaranteed alignment of each pointer of a function.
//!
//! A misaligned access ends the program on some processors, and the context on a GPU; accesses whose pointers are not provably
//! aligned are checked at run time.

use std::collections::HashMap;

use elinvar_ir::{Const, Function, Module, Op, Operand, Type, Typed, ValueId};

use super::alias_roots::{Roots, Source};
use crate::support::gep::{Step, constant_bytes, steps};

/// Maximum alignment that is tracked.
const MOST: u64 = 64;

/// Alignments of pointers, powers of two.
pub(crate) struct Alignments {
    values: HashMap<ValueId, u64>,
}

impl Alignments {
    /// Runs the analysis: an optimiztic fixed point, which starts with all pointers aligned.
    pub fn new(module: &Module, function: &Function, roots: &Roots) -> Self {
        let mut alignments = Self { values: HashMap::new() };
        for (value, root) in &roots.of_value {
            alignments.values.insert(*value, roots.list[*root].align.min(MOST));
        }
        loop {
            let mut changed = false;
            for inst in function.blocks.iter().flat_map(|block| &block.insts) {
                let Some(result) = inst.result.filter(|result| function.ty(*result).is_ptr()) else {
                    continue;
                };
                if roots.of_value.contains_key(&result) {
                    continue;
                }
                let found = match roots.source(&result.into()) {
                    Source::Unknown(_) => 1,
                    _ => alignments.of_result(module, roots, &inst.op),
                };
                changed |= alignments.values.insert(result, found) != Some(found);
            }
            if !changed {
                return alignments;
            }
        }
    }

    fn of_result(&self, module: &Module, roots: &Roots, op: &Op) -> u64 {
        let of = |operand: &Operand| self.of(module, roots, operand);
        match op {
            Op::Gep { source, base, indices, .. } => of(&base.op).min(moved(module, source, indices)),
            Op::Freeze(inner) => of(&inner.op),
            Op::Select { a, b, .. } => of(&a.op).min(of(&b.op)),
            Op::Phi { incoming, .. } => incoming.iter().map(|(operand, _)| of(operand)).min().unwrap_or(1),
            Op::Call(call) => call.args.first().map_or(1, |arg| of(&arg.op)),
            _ => 1,
        }
    }

    /// Alignment of a pointer.
    pub fn of(&self, module: &Module, roots: &Roots, pointer: &Operand) -> u64 {
        match pointer {
            Operand::Value(value) => self.values.get(value).copied().unwrap_or(MOST),
            Operand::Const(constant) => of_constant(module, roots, constant),
        }
    }
}

fn of_constant(module: &Module, roots: &Roots, constant: &Const) -> u64 {
    match constant {
        Const::Global(name) => roots.of_global.get(name).map_or(1, |root| roots.list[*root].align.min(MOST)),
        Const::Gep { source, base, indices, .. } => {
            let indices: Vec<Typed> =
                indices.iter().map(|(ty, c)| Typed::new(ty.clone(), c.clone())).collect();
            of_constant(module, roots, &base.1).min(moved(module, source, &indices))
        }
        Const::Null | Const::Zero => MOST,
        _ => 1,
    }
}

/// Alignment of the offset of an address computation.
fn moved(module: &Module, source: &Type, indices: &[Typed]) -> u64 {
    let of = |bytes: u64| if bytes == 0 { MOST } else { (1 << bytes.trailing_zeros()).min(MOST) };
    if let Some(bytes) = constant_bytes(module, source, indices) {
        return of(bytes.unsigned_abs());
    }
    let all = steps(module, source, indices).into_iter();
    all.map(|step| match step {
        Some(Step::Field(bytes) | Step::Elements(bytes)) => of(bytes),
        None => 1,
    })
    .min()
    .unwrap_or(1)
}
