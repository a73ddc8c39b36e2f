//! Lowers barriers, fences and atomic orderings to those of PTX.
//!
//! A threadgroup barrier is `bar.sync 0`, which orders all memory among the threads of a block. With `mem_device` it is preceded
//! by a device-scope fence: writes of a thread before the barrier are visible to other blocks after they observe an atomic write
//! by any thread of this block after the barrier (PTX ISA, "Memory Consistency Model": causality order).
//!
//! A sequentially consistent fence has system scope, since the headers use it for `thread_scope_system`; others have device scope.
//! Volatile accesses remain: LLVM lowers them to `ld.volatile` and `st.volatile`, which are relaxed with system scope (PTX ISA,
//! "ld.volatile").
//!
//! Atomic operations with an ordering get device-scope fences before them, after them or both, and become relaxed: LLVM lowers
//! read-modify-write operations to relaxed ones, and has no lowering for some ordered loads and stores.

use elinvar_ir::{Atomic, CallArg, Function, Inst, Module, Op, Operand, Ordering, Type};

use crate::intrinsic::{DEVICE_FLAGS, Intrinsic};
use crate::support::builder::call;
use crate::support::ir::callee_name;

const BARRIER: &str = "llvm.nvvm.barrier0";
const FENCE: &str = "llvm.nvvm.membar.gl";
const SYSTEM_FENCE: &str = "llvm.nvvm.membar.sys";

/// Lowers the barriers and fences of the kernel, and of the functions that are not inlined.
pub(super) fn write(module: &mut Module, kernel: &mut Function) {
    for function in module.functions.iter_mut().chain([kernel]) {
        for block in &mut function.blocks {
            let insts = std::mem::take(&mut block.insts);
            block.insts = insts.into_iter().flat_map(written).collect();
        }
    }
}

fn written(mut inst: Inst) -> Vec<Inst> {
    let metadata = inst.metadata.clone();
    let effect =
        |name: &str| Inst { result: None, op: call(Type::Void, name, &[]), metadata: metadata.clone() };
    let (before, behind) = relax(&mut inst.op);
    if before || behind {
        let fence = |is_due: bool| is_due.then(|| effect(FENCE));
        return fence(before).into_iter().chain([inst]).chain(fence(behind)).collect();
    }
    match &inst.op {
        Op::Call(call)
            if callee_name(call).and_then(Intrinsic::parse) == Some(Intrinsic::ThreadgroupBarrier) =>
        {
            let fence = orders_device(&call.args).then(|| effect(FENCE));
            fence.into_iter().chain([effect(BARRIER)]).collect()
        }
        Op::Fence(Atomic { scope: Some(scope), .. }) if scope == "singlethread" => Vec::new(),
        Op::Fence(Atomic { ordering: Ordering::SeqCst, .. }) => vec![effect(SYSTEM_FENCE)],
        Op::Fence(_) => vec![effect(FENCE)],
        _ => vec![inst],
    }
}

/// Makes an atomic operation relaxed; returns whether it had release and acquire ordering.
fn relax(op: &mut Op) -> (bool, bool) {
    let (ordering, failure) = match op {
        Op::Load { atomic: Some(atomic), .. } | Op::Store { atomic: Some(atomic), .. } => {
            (&mut atomic.ordering, None)
        }
        Op::AtomicRmw { atomic, .. } => (&mut atomic.ordering, None),
        Op::CmpXchg { success, failure, .. } => (&mut success.ordering, Some(failure)),
        _ => return (false, false),
    };
    let given = [Some(*ordering), failure.as_deref().copied()];
    let any = |of: [Ordering; 3]| given.into_iter().flatten().any(|ordering| of.contains(&ordering));
    let release = any([Ordering::Release, Ordering::AcqRel, Ordering::SeqCst]);
    let acquire = any([Ordering::Acquire, Ordering::AcqRel, Ordering::SeqCst]);
    *ordering = Ordering::Monotonic;
    if let Some(failure) = failure {
        *failure = Ordering::Monotonic;
    }
    (release, acquire)
}

/// Whether a barrier's flags include device memory; true if they are unknown.
fn orders_device(args: &[CallArg]) -> bool {
    match args.first().map(|a| &a.op) {
        Some(Operand::Const(c)) => c.as_unsigned(32).is_none_or(|flags| flags & DEVICE_FLAGS != 0),
        _ => true,
    }
}
