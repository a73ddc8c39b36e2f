//! Products of tensors that a device may compute better than the code of the headers: resolves the intrinsics for devices that do not.
//!
//! The headers ask whether the device has the product, and have code for the case that it has not. That answer becomes a constant, and what
//! only the other answer reaches is removed.

use elinvar_ir::{BlockId, Const, Function, Inst, Module, Op, Operand, Term, ValueId};

use crate::intrinsic::Intrinsic;
use crate::support::ir::callee_name;

/// The intrinsic that an instruction calls, if it is one of these.
fn of(inst: &Inst) -> Option<Intrinsic> {
    let Op::Call(call) = &inst.op else { return None };
    let intrinsic = Intrinsic::parse(callee_name(call)?)?;
    matches!(intrinsic, Intrinsic::HasTensorProduct | Intrinsic::TensorProduct).then_some(intrinsic)
}

/// Whether a module asks for products of tensors.
pub fn is_needed(module: &Module) -> bool {
    module.functions.iter().flat_map(|f| &f.blocks).flat_map(|b| &b.insts).any(|inst| of(inst).is_some())
}

/// Answers that the device has none.
pub fn decline(module: &mut Module) {
    for function in &mut module.functions {
        let answers: Vec<ValueId> = function
            .blocks
            .iter()
            .flat_map(|block| &block.insts)
            .filter(|inst| of(inst) == Some(Intrinsic::HasTensorProduct))
            .filter_map(|inst| inst.result)
            .collect();
        for block in &mut function.blocks {
            block.insts.retain(|inst| of(inst).is_none());
        }
        if answers.is_empty() {
            continue;
        }
        let no = |operand: &mut Operand| {
            if matches!(operand, Operand::Value(value) if answers.contains(value)) {
                *operand = Const::int(1, 0).into();
            }
        };
        for block in &mut function.blocks {
            block.insts.iter_mut().for_each(|inst| inst.op.map_operands(no));
            block.term.map_operands(no);
            if let Term::CondBr { cond: Operand::Const(cond), then, other } = &block.term
                && let Some(cond) = cond.as_unsigned(1)
            {
                block.term = Term::Br(if cond == 0 { *other } else { *then });
            }
        }
        prune(function);
    }
}

/// Empties blocks that are no longer reached, and removes them from phis.
fn prune(function: &mut Function) {
    let mut reached = vec![false; function.blocks.len()];
    let mut todo = vec![BlockId(0)];
    while let Some(block) = todo.pop() {
        if !std::mem::replace(&mut reached[block.0 as usize], true) {
            todo.extend(function.block(block).term.successors());
        }
    }
    let mut edges: Vec<Vec<BlockId>> = vec![Vec::new(); function.blocks.len()];
    for (index, block) in function.blocks.iter_mut().enumerate() {
        if !reached[index] {
            block.insts.clear();
            block.term = Term::Unreachable;
        }
        for to in block.term.successors() {
            edges[to.0 as usize].push(BlockId(index as u32));
        }
    }
    for (block, edges) in function.blocks.iter_mut().zip(&edges) {
        for inst in &mut block.insts {
            let Op::Phi { incoming, .. } = &mut inst.op else { continue };
            incoming.retain(|(_, from)| edges.contains(from));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_other_way_is_left() {
        let text = "define void @__elinvar_entry(ptr %e, ptr %a) {
entry:
  %has = call i1 @__elinvar_has_tensor_product(ptr %a, i64 64, ptr %a, i64 64, i32 1)
  br i1 %has, label %better, label %code
better:
  call void @__elinvar_tensor_product(ptr %e, ptr %a, i64 64, ptr %a, i64 64, i32 64, i32 8, i32 16, i32 1)
  br label %end
code:
  %x = load float, ptr %a, align 4
  br label %end
end:
  %y = phi float [ 0.000000e+00, %better ], [ %x, %code ]
  store float %y, ptr %e, align 4
  ret void
}
declare zeroext i1 @__elinvar_has_tensor_product(ptr, i64, ptr, i64, i32)
declare void @__elinvar_tensor_product(ptr, ptr, i64, ptr, i64, i32, i32, i32, i32)
";
        let mut module = Module::parse(text).unwrap();
        assert!(is_needed(&module));
        decline(&mut module);
        elinvar_ir::verify(&module).unwrap();
        assert!(!is_needed(&module));
        let text = module.to_string();
        assert!(text.contains("br label %code") && !text.contains("br i1"), "{text}");
        assert!(text.contains("phi float [ %x, %code ]"), "{text}");
    }
}
