//! Replaces `or disjoint`, to which clang turns sums of numbers that have no bit in common, by `add`: analyses of addresses know sums.
//!
//! Operands with a bit in common are poison, so that their sum is as good. `freeze` removes the flag, hence this pass runs before it.

use elinvar_ir::{BinaryOp, Function, Module, Op};

/// The module with sums, if it has an `or disjoint`.
pub(crate) fn lower(module: &Module) -> Option<Module> {
    let mut found =
        module.functions.iter().flat_map(|function| &function.blocks).flat_map(|block| &block.insts);
    found.any(|inst| is_sum(&inst.op)).then(|| {
        let mut module = module.clone();
        module.functions.iter_mut().for_each(rewrite);
        module
    })
}

fn is_sum(op: &Op) -> bool {
    matches!(op, Op::Binary { op: BinaryOp::Or, flags, .. } if flags == "disjoint")
}

fn rewrite(function: &mut Function) {
    for inst in function.blocks.iter_mut().flat_map(|block| &mut block.insts) {
        if is_sum(&inst.op)
            && let Op::Binary { op, flags, .. } = &mut inst.op
        {
            (*op, *flags) = (BinaryOp::Add, "nuw nsw".to_owned());
        }
    }
}
