//! Queries and edits of IR, shared by several passes.

use elinvar_ir::{BlockId, Call, Callee, Const, Function, Inst, Module, Op, Operand, Term, Type};

use crate::THREADGROUP_SECTION;

/// Names of the threadgroup variables of a module.
pub(crate) fn threadgroup_globals(module: &Module) -> Vec<String> {
    let is_threadgroup = |section: &Option<String>| section.as_deref() == Some(THREADGROUP_SECTION);
    module.globals.iter().filter(|g| is_threadgroup(&g.section)).map(|g| g.name.clone()).collect()
}

/// The reachable blocks, each after its immediate dominator.
pub(crate) fn blocks_in_order(function: &Function) -> Vec<BlockId> {
    let successors = |b: &elinvar_ir::Block| b.term.successors().iter().map(|s| s.0 as usize).collect();
    let successors: Vec<Vec<usize>> = function.blocks.iter().map(successors).collect();
    let order = elinvar_ir::postorder(&successors, 0);
    order.into_iter().rev().map(|b| BlockId(b as u32)).collect()
}

/// Whether a type is a number or a pointer, and so can be an element of a vector.
pub(crate) fn is_number(ty: &Type) -> bool {
    matches!(ty, Type::Int(8 | 16 | 32 | 64) | Type::Half | Type::BFloat | Type::Float | Type::Ptr(_))
}

/// Replaces the predecessor `old` by `new` in the phis of the successors of `term`.
pub(crate) fn rename_incoming(function: &mut Function, term: &Term, old: BlockId, new: BlockId) {
    for successor in term.successors() {
        for inst in &mut function.block_mut(successor).insts {
            let Inst { op: Op::Phi { incoming, .. }, .. } = inst else { break };
            for (_, from) in incoming {
                if *from == old {
                    *from = new;
                }
            }
        }
    }
}

/// The name of the function that a call names.
pub(crate) fn callee_name(call: &Call) -> Option<&str> {
    match &call.callee {
        Callee::Function(name) => Some(name),
        Callee::Indirect(Operand::Const(Const::Global(name))) => Some(name),
        Callee::Indirect(_) => None,
    }
}
