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
//! Atomic operations with an ordering get fences of their scope before them, after them or both, and become relaxed: LLVM lowers
//! read-modify-write operations to relaxed ones, and has no lowering for some ordered loads and stores.

use std::collections::BTreeSet;

use elinvar_ir::{
    Atomic, Attachments, CallArg, Function, Inst, Location, Module, Op, Operand, Ordering, Type,
};

use super::system_atomics;
use crate::Error;
use crate::intrinsic::{DEVICE_FLAGS, Intrinsic};
use crate::support::builder::call;
use crate::support::ir::callee_name;

const BARRIER: &str = "llvm.nvvm.barrier0";
const FENCE: &str = "llvm.nvvm.membar.gl";
const SYSTEM_FENCE: &str = "llvm.nvvm.membar.sys";

/// Lowers the barriers, fences and atomic operations of the kernel, and of the functions that are not inlined.
pub(super) fn write(module: &mut Module, kernel: &mut Function) -> Result<(), Error> {
    let mut called = BTreeSet::new();
    let mut functions = std::mem::take(&mut module.functions);
    for function in functions.iter_mut().chain([kernel]) {
        for block in &mut function.blocks {
            let mut insts = Vec::with_capacity(block.insts.len());
            for inst in std::mem::take(&mut block.insts) {
                insts.extend(written(inst, &mut called, |at| module.location(at))?);
            }
            block.insts = insts;
        }
    }
    module.functions = functions;
    system_atomics::add(module, &called)
}

fn written(
    mut inst: Inst,
    called: &mut BTreeSet<String>,
    location: impl Fn(&Attachments) -> Option<Location>,
) -> Result<Vec<Inst>, Error> {
    let metadata = inst.metadata.clone();
    let effect =
        |name: &str| Inst { result: None, op: call(Type::Void, name, &[]), metadata: metadata.clone() };
    let (before, behind) = relax(&mut inst.op);
    let of_system = system_atomics::scope(&mut inst.op, called, || location(&metadata))?;
    if before || behind {
        let name = if of_system { SYSTEM_FENCE } else { FENCE };
        let fence = |is_due: bool| is_due.then(|| effect(name));
        return Ok(fence(before).into_iter().chain([inst]).chain(fence(behind)).collect());
    }
    Ok(lowered(inst, effect))
}

fn lowered(inst: Inst, effect: impl Fn(&str) -> Inst) -> Vec<Inst> {
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
