//! Determines whether a kernel can observe the order in which its threadgroups start.
//!
//! Threadgroups can communicate only through atomic operations and volatile loads. An atomic operation whose result is unused
//! observes nothing.

use std::collections::HashSet;

use elinvar_ir::{Function, Inst, Module, Op, Operand, ValueId};

/// Whether the kernel, given as code for one thread, can observe the order of its threadgroups.
pub(crate) fn is_observed(module: &Module) -> bool {
    module.functions.iter().any(|function| {
        let used = used(function);
        let observes = |Inst { result, op, .. }: &Inst| match op {
            Op::Load { volatile, atomic, .. } => *volatile || atomic.is_some(),
            Op::AtomicRmw { .. } => result.is_some_and(|result| used.contains(&result)),
            Op::CmpXchg { .. } => true,
            _ => false,
        };
        function.blocks.iter().flat_map(|block| &block.insts).any(observes)
    })
}

/// Values with uses in the function.
fn used(function: &Function) -> HashSet<ValueId> {
    let value = |operand: &Operand| match operand {
        Operand::Value(value) => Some(*value),
        Operand::Const(_) => None,
    };
    let mut used = HashSet::new();
    for block in &function.blocks {
        used.extend(block.insts.iter().flat_map(|inst| inst.op.operands()).filter_map(value));
        used.extend(block.term.operands().into_iter().filter_map(value));
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomic_results_and_volatile_loads_are_observations() {
        let observed = |code: &str| {
            let text = format!("define i32 @f(ptr %p) {{\n  {code}\n}}\n");
            is_observed(&Module::parse(&text).unwrap())
        };
        assert!(!observed("%a = load i32, ptr %p\n  store i32 1, ptr %p\n  ret i32 %a"));
        assert!(!observed("%a = atomicrmw add ptr %p, i32 1 monotonic\n  ret i32 0"));
        assert!(!observed("store atomic i32 1, ptr %p monotonic, align 4\n  fence acq_rel\n  ret i32 0"));
        assert!(observed("%a = atomicrmw add ptr %p, i32 1 monotonic\n  ret i32 %a"));
        assert!(observed("%a = atomicrmw add ptr %p, i32 1 monotonic\n  %b = add i32 %a, 1\n  ret i32 0"));
        assert!(observed("%a = load atomic i32, ptr %p monotonic, align 4\n  ret i32 0"));
        assert!(observed("%a = load volatile i32, ptr %p\n  ret i32 0"));
        assert!(observed("%a = cmpxchg ptr %p, i32 0, i32 1 monotonic monotonic\n  ret i32 0"));
    }
}
