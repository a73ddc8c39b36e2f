//! Barriers and fences, as PTX has them, and integer arithmetic that is defined for every operand.
//!
//! A threadgroup barrier is `bar.sync 0`, which orders all memory among the threads of a block. With `mem_device` it has a
//! fence of the device before it: what a thread wrote before the barrier is seen by other blocks once they have seen what
//! any thread of this one writes atomically behind it (PTX ISA, "Memory Consistency Model": causality order).

use elinvar_ir::{CallArg, Function, Inst, Module, Op, Operand, Type};

use crate::builder::call;
use crate::guard::guard;
use crate::prepare::callee_name;
use crate::primitive::{DEVICE_FLAGS, THREADGROUP_BARRIER};

const BARRIER: &str = "llvm.nvvm.barrier0";
const FENCE: &str = "llvm.nvvm.membar.gl";

/// Write the kernel's barriers and fences, and those of the functions that are not inlined.
pub(super) fn write(module: &mut Module, kernel: &mut Function) {
    for function in module.functions.iter_mut().chain([kernel]) {
        guard(function);
        for block in &mut function.blocks {
            let insts = std::mem::take(&mut block.insts);
            block.insts = insts.into_iter().flat_map(written).collect();
        }
    }
}

fn written(inst: Inst) -> Vec<Inst> {
    let effect =
        |name: &str| Inst { result: None, op: call(Type::Void, name, &[]), metadata: inst.metadata.clone() };
    match &inst.op {
        Op::Call(call) if callee_name(call) == Some(THREADGROUP_BARRIER) => {
            let fence = orders_device(&call.args).then(|| effect(FENCE));
            fence.into_iter().chain([effect(BARRIER)]).collect()
        }
        Op::Fence(_) => vec![effect(FENCE)],
        _ => vec![inst],
    }
}

/// Whether a barrier's flags, if they are known, include device memory.
fn orders_device(args: &[CallArg]) -> bool {
    match args.first().map(|a| &a.op) {
        Some(Operand::Const(c)) => c.as_unsigned(32).is_none_or(|flags| flags & DEVICE_FLAGS != 0),
        _ => true,
    }
}
