//! Classification of a kernel's calls: intrinsics of the headers and of LLVM, functions of its module, and memory functions of the C library.

use std::collections::BTreeSet;

use elinvar_ir::{Call, Function, Location, Module, Op, Operand};

use crate::intrinsic::{Intrinsic, PREFIX, Position};
use crate::kernel::BarrierKind;
use crate::support::constants::mentions;
use crate::support::demangle::source_name;
use crate::support::ir::callee_name;
use crate::{ENTRY, Error, nvptx};

/// Class of a call.
pub(crate) enum CallKind {
    /// A hint without effect.
    Dropped,
    /// Executed for each thread, unchanged.
    Ordinary,
    /// A position or size along a dimension.
    Position(Position, usize),
    /// A barrier of at least the threadgroup.
    Barrier(BarrierKind),
    /// A simdgroup barrier.
    SimdgroupBarrier,
    /// A simdgroup or quadgroup operation.
    Group,
    /// A log call.
    Log,
}

/// Intrinsics without effect on a kernel's results.
const HINTS: &[&str] = &[
    "llvm.assume",
    "llvm.donothing",
    "llvm.experimental.noalias.scope.decl",
    "llvm.lifetime.end",
    "llvm.lifetime.start",
];

/// External functions that kernels may call: memory functions that clang inserts. MSL's math functions are defined in the headers, so IR
/// calls no function of libm by name.
pub(crate) const EXTERNAL: &[&str] = &["bcmp", "memcmp", "memcpy", "memmove", "memset"];

/// Classifies a call of the entry.
pub(crate) fn classify(module: &Module, call: &Call, location: Option<Location>) -> Result<CallKind, Error> {
    let Some(name) = callee_name(call) else {
        return Err(Error::unsupported("a call through a function pointer", location));
    };
    match Intrinsic::parse(name) {
        Some(Intrinsic::Position(position)) => return classify_position(position, name, call),
        Some(Intrinsic::ThreadgroupBarrier) => return Ok(CallKind::Barrier(BarrierKind::Threadgroup)),
        Some(Intrinsic::GridBarrier) => return Ok(CallKind::Barrier(BarrierKind::Grid)),
        Some(Intrinsic::Yield) => {
            let idle = match call.args.first().map(|arg| &arg.op) {
                Some(Operand::Const(idle)) => idle.as_unsigned(32) != Some(0),
                _ => true,
            };
            return Ok(CallKind::Barrier(BarrierKind::Yield { idle }));
        }
        Some(Intrinsic::SimdgroupBarrier) => return Ok(CallKind::SimdgroupBarrier),
        Some(Intrinsic::Group(_)) => return Ok(CallKind::Group),
        Some(Intrinsic::Scale) => return Ok(CallKind::Ordinary),
        Some(Intrinsic::Log) => return Ok(CallKind::Log),
        Some(Intrinsic::HasTensorProduct | Intrinsic::TensorProduct) => return Ok(CallKind::Ordinary),
        None => {}
    }
    if name.starts_with(PREFIX) && module.function(name).is_none_or(Function::is_declaration) {
        return Err(Error::unsupported(format!("`{name}` on the CPU"), location));
    }
    if name.starts_with("llvm.") {
        return Ok(if is_hint(name) { CallKind::Dropped } else { CallKind::Ordinary });
    }
    match module.function(name) {
        Some(f) if !f.is_declaration() => Ok(CallKind::Ordinary),
        _ if EXTERNAL.binary_search(&name).is_ok() || nvptx::is_of_tensor_products(name) => {
            Ok(CallKind::Ordinary)
        }
        _ => Err(Error::unsupported(undefined_call(name), location)),
    }
}

/// Describes the call of a function that has no definition.
pub(crate) fn undefined_call(name: &str) -> String {
    let function = source_name(name);
    match name.contains("5metal10raytracing") {
        true => format!("ray tracing, here `{function}`"),
        false => format!("a call of `{function}`, which is declared but not defined"),
    }
}

/// Whether a function has no effect on a kernel's results.
pub(crate) fn is_hint(name: &str) -> bool {
    HINTS.iter().any(|h| name == *h || name.strip_prefix(h).is_some_and(|r| r.starts_with('.')))
}

fn classify_position(position: Position, name: &str, call: &Call) -> Result<CallKind, Error> {
    let dimension = call.args.first().and_then(|a| match &a.op {
        Operand::Const(c) => c.as_unsigned(32),
        Operand::Value(_) => None,
    });
    match dimension {
        None if !position.has_dimension() => Ok(CallKind::Position(position, 0)),
        Some(argument) if position == Position::ArgumentBytes => {
            Ok(CallKind::Position(position, argument as usize))
        }
        Some(dimension @ 0..=2) => Ok(CallKind::Position(position, dimension as usize)),
        _ => Err(Error::Malformed(format!("`{name}` without a constant dimension"))),
    }
}

/// The defined functions that `entry` calls, transitively. They run for each thread, so they must not use positions,
/// synchronize, or reference threadgroup variables: functions that do must be inlined.
pub(crate) fn callees(
    module: &Module,
    entry: &Function,
    threadgroup: &[String],
) -> Result<Vec<String>, Error> {
    let mut reached = BTreeSet::new();
    let mut todo = vec![entry];
    while let Some(function) = todo.pop() {
        for inst in function.blocks.iter().flat_map(|b| &b.insts) {
            let location = module.location(&inst.metadata);
            if function.name != ENTRY {
                check_per_thread(module, function, &inst.op, threadgroup, location)?;
            }
            let Op::Call(call) = &inst.op else { continue };
            let callee = callee_name(call).and_then(|n| module.function(n)).filter(|f| !f.is_declaration());
            if let Some(callee) = callee
                && reached.insert(callee.name.clone())
            {
                todo.push(callee);
            }
        }
    }
    Ok(reached.into_iter().collect())
}

fn check_per_thread(
    module: &Module,
    function: &Function,
    op: &Op,
    threadgroup: &[String],
    location: Option<Location>,
) -> Result<(), Error> {
    let refuse = |what: &str| {
        let name = source_name(&function.name);
        Err(Error::unsupported(
            format!("{what} in the function `{name}`, which was not inlined"),
            location.clone(),
        ))
    };
    if let Op::Call(call) = op {
        match classify(module, call, location.clone())? {
            CallKind::Barrier(_) => return refuse("a barrier"),
            CallKind::SimdgroupBarrier => return refuse("a simdgroup barrier"),
            CallKind::Group => return refuse("a simdgroup function"),
            CallKind::Position(..) => return refuse("a thread position"),
            CallKind::Log => return refuse("a log call"),
            CallKind::Dropped | CallKind::Ordinary => {}
        }
    }
    let names_threadgroup = |o: &&Operand| match o {
        Operand::Const(c) => mentions(c, &|name: &str| threadgroup.iter().any(|t| t == name)),
        Operand::Value(_) => false,
    };
    if op.operands().iter().any(names_threadgroup) {
        return refuse("a threadgroup variable");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_names_are_sorted() {
        assert!(EXTERNAL.is_sorted());
    }
}
