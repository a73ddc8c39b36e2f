//! Memory accesses of an instruction.

use std::collections::HashMap;

use elinvar_ir::{Call, Const, Function, Location, Module, Op, Operand, Type, Typed, ValueId};

use crate::Error;
use crate::analysis::alias_roots::{Roots, Source};
use crate::intrinsic::{Intrinsic, Position};
use crate::support::demangle::source_name;
use crate::support::gep::constant_bytes;
use crate::support::ir::callee_name;

/// A byte range that an instruction accesses.
pub(super) struct Access {
    pub pointer: Operand,
    /// Number of bytes, an i64.
    pub bytes: Operand,
    /// Required alignment, a power of two.
    pub align: u64,
    pub writes: bool,
}

/// The accesses of an instruction, writes first.
///
/// # Errors
/// `Unsupported` for an instruction with unknown accesses.
pub(super) fn accesses(module: &Module, op: &Op, location: Option<Location>) -> Result<Vec<Access>, Error> {
    let fixed = |ty: &Type, ptr: &Typed, align: &Option<u64>, writes| {
        if ptr.ty != Type::PTR {
            let what = "bounds checks in a processor-specific address space";
            return Err(Error::unsupported(what, location.clone()));
        }
        let (size, natural) = ty.size_align(module);
        let (bytes, align) = (Operand::int(64, size.into()), align.unwrap_or(natural));
        Ok(vec![Access { pointer: ptr.op.clone(), bytes, align, writes }])
    };
    match op {
        Op::Load { ty, ptr, align, .. } => fixed(ty, ptr, align, false),
        Op::Store { value, ptr, align, .. } => fixed(&value.ty, ptr, align, true),
        Op::AtomicRmw { ptr, value, align, .. } => fixed(&value.ty, ptr, align, true),
        Op::CmpXchg { ptr, new, align, .. } => fixed(&new.ty, ptr, align, true),
        Op::Call(call) => of_call(module, call, location),
        _ => Ok(Vec::new()),
    }
}

/// The accesses of a call of a memory intrinsic.
fn of_call(module: &Module, call: &Call, location: Option<Location>) -> Result<Vec<Access>, Error> {
    let name = callee_name(call).unwrap_or_default();
    let begins = |head: &str| name.strip_prefix(head).is_some_and(|rest| rest.starts_with(".p0"));
    let copies = begins("llvm.memcpy") || begins("llvm.memmove");
    if !copies && !begins("llvm.memset") {
        let takes_pointer =
            call.args.iter().any(|arg| !matches!(arg.ty, Type::Metadata) && has_pointer(&arg.ty));
        check_call(module, name, takes_pointer || has_pointer(&call.ret), location)?;
        return Ok(Vec::new());
    }
    let known = call.args.len() >= 3 && call.args[0].ty == Type::PTR && call.args[2].ty == Type::I64;
    if !known || (copies && call.args[1].ty != Type::PTR) {
        return Err(Error::unsupported(format!("bounds checks of `{name}`"), location));
    }
    let access = |index: usize, writes| Access {
        pointer: call.args[index].op.clone(),
        bytes: call.args[2].op.clone(),
        align: 1,
        writes,
    };
    Ok(if copies { vec![access(0, true), access(1, false)] } else { vec![access(0, true)] })
}

/// Whether a type is or contains a pointer.
fn has_pointer(ty: &Type) -> bool {
    match ty {
        Type::Ptr(_) | Type::Named(_) => true,
        Type::Vector(_, element) | Type::Array(_, element) => has_pointer(element),
        Type::Struct { fields, .. } => fields.iter().any(has_pointer),
        _ => false,
    }
}

/// Intrinsics that take pointers and access no memory.
const HINTS: [&str; 6] = [
    "llvm.assume",
    "llvm.invariant.",
    "llvm.launder.invariant.group.",
    "llvm.lifetime.",
    "llvm.objectsize.",
    "llvm.strip.invariant.group.",
];

/// Rejects calls that access memory outside the scope of this pass.
fn check_call(
    module: &Module,
    name: &str,
    takes_pointer: bool,
    location: Option<Location>,
) -> Result<(), Error> {
    // The function of the checks themselves; kernels cannot have this name.
    // Log calls read string literals.
    let own =
        matches!(Intrinsic::parse(name), Some(Intrinsic::Position(Position::FaultRecord) | Intrinsic::Log));
    if own || HINTS.iter().any(|hint| name.starts_with(hint)) || (name.starts_with("llvm.") && !takes_pointer)
    {
        return Ok(());
    }
    let defined = module.function(name).is_some_and(|f| !f.is_declaration());
    if takes_pointer || (defined && touches_memory(module, name)) {
        let what = format!("bounds checks in the function `{}`, which was not inlined", source_name(name));
        return Err(Error::unsupported(what, location));
    }
    Ok(())
}

/// Whether a defined function itself accesses memory. Its callees are examined separately,
/// if they take pointers or have a body with accesses.
fn touches_memory(module: &Module, name: &str) -> bool {
    let insts = module.function(name).into_iter().flat_map(|f| &f.blocks).flat_map(|b| &b.insts);
    insts.into_iter().any(|inst| {
        matches!(
            inst.op,
            Op::Load { .. }
                | Op::Store { .. }
                | Op::AtomicRmw { .. }
                | Op::CmpXchg { .. }
                | Op::Alloca { .. }
                | Op::Call(_)
        )
    })
}

/// The result of an out-of-bounds access: zero; for a compare-exchange a
/// success, so that a retry loop ends.
pub(super) fn instead(op: &Op) -> Const {
    match op {
        Op::CmpXchg { new, .. } => Const::Struct {
            packed: false,
            fields: vec![(new.ty.clone(), Const::Zero), (Type::I1, Const::int(1, 1))],
        },
        _ => Const::Zero,
    }
}

/// Whether an access is provably within its only root.
pub(super) fn is_certain(
    module: &Module,
    geps: &HashMap<ValueId, Op>,
    roots: &Roots,
    access: &Access,
) -> bool {
    let Source::One(root) = roots.source(&access.pointer) else { return false };
    let offset = constant_offset(module, geps, roots, &access.pointer);
    let length = match &access.bytes {
        Operand::Const(length) => length.as_unsigned(64),
        Operand::Value(_) => None,
    };
    let ends = offset.zip(length).map(|(offset, length)| u128::from(offset) + length);
    ends.is_some_and(|ends| ends <= u128::from(roots.list[root].bytes))
}

/// The offset of a pointer from the start of its only root, if constant. `geps` are the function's
/// address computations with constant indices.
pub(super) fn constant_offset(
    module: &Module,
    geps: &HashMap<ValueId, Op>,
    roots: &Roots,
    pointer: &Operand,
) -> Option<u64> {
    match pointer {
        Operand::Value(value) if roots.of_value.contains_key(value) => Some(0),
        Operand::Value(value) => {
            let Op::Gep { source, base, indices, .. } = geps.get(value)? else { return None };
            let start = constant_offset(module, geps, roots, &base.op)?;
            start.checked_add_signed(constant_bytes(module, source, indices)?)
        }
        Operand::Const(Const::Global(_)) => Some(0),
        Operand::Const(Const::Gep { source, base, indices, .. }) => {
            let start = constant_offset(module, geps, roots, &Operand::Const(base.1.clone()))?;
            let indices: Vec<Typed> =
                indices.iter().map(|(ty, c)| Typed::new(ty.clone(), c.clone())).collect();
            start.checked_add_signed(constant_bytes(module, source, &indices)?)
        }
        Operand::Const(_) => None,
    }
}

/// The address computations of a function whose indices are all constant.
pub(super) fn constant_geps(function: &Function) -> HashMap<ValueId, Op> {
    let insts = function.blocks.iter().flat_map(|b| &b.insts);
    let constant = |op: &Op| match op {
        Op::Gep { indices, .. } => indices.iter().all(|i| i.op.value().is_none()),
        _ => false,
    };
    insts.filter(|i| constant(&i.op)).filter_map(|i| Some((i.result?, i.op.clone()))).collect()
}
