//! Eliminates common subexpressions, as LLVM's EarlyCSE does for operations without memory: an operation is replaced by an equal one that
//! dominates it. Most are splats of uniform values, which the vectorizer emits for each use. Nothing here recurses.

use std::collections::HashMap;

use elinvar_ir::{BlockId, Dominators, Function, Op, Operand, ValueId};

use crate::transform::mem2reg::is_removable;

/// A step of the walk over the dominator tree.
enum Step {
    Enter(BlockId),
    /// Forgets the operations of the blocks that a block dominates.
    Leave(Vec<Op>),
}

/// Eliminates common subexpressions of `function`.
pub(crate) fn eliminate(function: &mut Function) {
    if function.blocks.is_empty() {
        return;
    }
    let children = Dominators::compute(function).children();
    let mut known: HashMap<Op, ValueId> = HashMap::new();
    let mut replaced: HashMap<ValueId, ValueId> = HashMap::new();
    let mut steps = vec![Step::Enter(BlockId(0))];
    while let Some(step) = steps.pop() {
        let block = match step {
            Step::Enter(block) => block,
            Step::Leave(ops) => {
                for op in &ops {
                    known.remove(op);
                }
                continue;
            }
        };
        let mut own = Vec::new();
        function.block_mut(block).insts.retain_mut(|inst| {
            inst.op.map_operands(|operand| replace(operand, &replaced));
            let Some(result) = inst.result.filter(|_| is_pure(&inst.op)) else { return true };
            if let Some(same) = known.get(&inst.op) {
                replaced.insert(result, *same);
                return false;
            }
            known.insert(inst.op.clone(), result);
            own.push(inst.op.clone());
            true
        });
        steps.push(Step::Leave(own));
        steps.extend(children[block.0 as usize].iter().map(|child| Step::Enter(*child)));
    }
    // Phis use values of blocks that are visited later.
    for block in &mut function.blocks {
        block.insts.iter_mut().for_each(|inst| inst.op.map_operands(|operand| replace(operand, &replaced)));
        block.term.map_operands(|operand| replace(operand, &replaced));
    }
}

fn replace(operand: &mut Operand, replaced: &HashMap<ValueId, ValueId>) {
    if let Some(same) = operand.value().and_then(|value| replaced.get(&value)) {
        *operand = (*same).into();
    }
}

/// Whether equal operations have equal results wherever they are.
fn is_pure(op: &Op) -> bool {
    is_removable(op) && !matches!(op, Op::Load { .. } | Op::Alloca { .. } | Op::Phi { .. })
}

#[cfg(test)]
mod tests {
    use elinvar_ir::{Module, verify};

    use super::*;

    fn eliminated(text: &str) -> String {
        let mut module = Module::parse(text).unwrap();
        eliminate(&mut module.functions[0]);
        verify(&module).unwrap();
        module.functions[0].to_string()
    }

    #[test]
    fn operations_that_dominate_equal_ones_replace_them() {
        let text = eliminated(
            "define i32 @f(i32 %n, i1 %c) {
            entry:
              %a = add i32 %n, 1
              %b = add i32 %n, 1
              %x = mul i32 %a, 3
              %y = mul i32 %b, 3
              br i1 %c, label %then, label %end
            then:
              %z = mul i32 %b, 3
              %only = xor i32 %z, %y
              br label %end
            end:
              %phi = phi i32 [ %y, %entry ], [ %only, %then ]
              %again = xor i32 %x, %x
              %sum = add i32 %phi, %again
              ret i32 %sum
            }",
        );
        for gone in ["%b", "%y", "%z"] {
            assert!(!text.contains(gone), "{gone} in {text}");
        }
        assert!(text.contains("%only = xor i32 %x, %x") && text.contains("[ %x, %entry ]"), "{text}");
        // The block that has an equal operation does not dominate this one.
        assert!(text.contains("%again = xor i32 %x, %x"), "{text}");
    }

    #[test]
    fn loads_calls_and_operations_with_other_flags_stay() {
        let source = "define i32 @f(ptr %p, i32 %n) {
              %a = load i32, ptr %p
              %b = load i32, ptr %p
              %c = call i32 @g()
              %d = call i32 @g()
              %e = add nuw i32 %a, %b
              %f = add i32 %a, %b
              %h = add i32 %c, %d
              %i = add i32 %e, %f
              %j = add i32 %h, %i
              ret i32 %j
            }
            declare i32 @g()";
        assert_eq!(eliminated(source), Module::parse(source).unwrap().functions[0].to_string());
    }
}
