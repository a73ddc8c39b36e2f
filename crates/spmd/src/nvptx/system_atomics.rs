//! Read-modify-write operations with system scope: those on volatile memory, as that of `coherent` buffers, which the host or another
//! device may update at the same time.
//!
//! LLVM 19 lowers every `atomicrmw` and `cmpxchg` to PTX without a scope, which means `.gpu` (PTX ISA, "atom"); later versions follow
//! the scope in the IR. Operations on other memory therefore say `device`, and those on volatile memory are calls of LLVM's intrinsics
//! with system scope. What these lack is a function of this module that the kernel calls.

use std::collections::BTreeSet;

use elinvar_ir::{Atomic, Location, Module, Op, Operand, RmwOp, Type, Typed};

use crate::Error;
use crate::support::builder::call;

/// Prefix of the functions' names.
const PREFIX: &str = "elinvar.atomic.";

/// The scope of a GPU.
const DEVICE: &str = "device";

/// Gives the operation its scope. `functions` are the names of the functions to add. Returns whether the scope is the system.
pub(super) fn scope(
    op: &mut Op,
    functions: &mut BTreeSet<String>,
    location: impl FnOnce() -> Option<Location>,
) -> Result<bool, Error> {
    let (what, ty, args) = match op {
        Op::AtomicRmw { volatile: false, atomic, .. }
        | Op::CmpXchg { volatile: false, success: atomic, .. } => {
            device(atomic);
            return Ok(false);
        }
        Op::AtomicRmw { op, ptr, value, .. } => (op.text(), value.ty.clone(), vec![&*ptr, &*value]),
        Op::CmpXchg { ptr, expected, new, .. } => ("cmpxchg", new.ty.clone(), vec![&*ptr, &*expected, &*new]),
        Op::Load { atomic: Some(_), volatile, .. } | Op::Store { atomic: Some(_), volatile, .. } => {
            return Ok(*volatile);
        }
        _ => return Ok(false),
    };
    let is_bool = ty == Type::I8 && matches!(what, "xchg" | "cmpxchg");
    if !matches!(ty, Type::Int(32 | 64) | Type::Float) && !is_bool {
        let what = format!("an atomic operation on {ty} in `coherent` or volatile memory");
        return Err(Error::unsupported(what, location()));
    }
    let args: Vec<(Type, Operand)> =
        args.into_iter().map(|Typed { ty, op }| (ty.clone(), op.clone())).collect();
    *op = match RmwOp::parse(what).and_then(|op| intrinsic(op, &ty)) {
        Some(name) => call(ty, &name, &args),
        None => {
            let name = format!("{PREFIX}{what}.{ty}");
            functions.insert(name.clone());
            let fields = vec![ty.clone(), Type::I1];
            let result = if what == "cmpxchg" { Type::Struct { packed: false, fields } } else { ty };
            call(result, &name, &args)
        }
    };
    Ok(true)
}

fn device(atomic: &mut Atomic) {
    if atomic.scope.is_none() {
        atomic.scope = Some(DEVICE.to_owned());
    }
}

/// LLVM's intrinsic for the operation.
fn intrinsic(op: RmwOp, ty: &Type) -> Option<String> {
    let name = match (op, ty) {
        (RmwOp::FAdd, Type::Float) => "add",
        (_, Type::Float | Type::Int(8)) => return None,
        (RmwOp::Add, _) => "add",
        (RmwOp::And, _) => "and",
        (RmwOp::Or, _) => "or",
        (RmwOp::Xor, _) => "xor",
        (RmwOp::Max, _) => "max",
        (RmwOp::Min, _) => "min",
        (RmwOp::Xchg, _) => "exch",
        _ => return None,
    };
    let (class, suffix) = if *ty == Type::Float { ("f", "f32".to_owned()) } else { ("i", ty.to_string()) };
    Some(format!("llvm.nvvm.atomic.{name}.gen.{class}.sys.{suffix}.p0"))
}

/// Adds the functions.
pub(super) fn add(module: &mut Module, functions: &BTreeSet<String>) -> Result<(), Error> {
    let texts: Option<String> = functions.iter().map(|name| define(name)).collect();
    let text = texts.ok_or_else(|| Error::Malformed(format!("atomic operations {functions:?}")))?;
    let parsed = Module::parse(&text).map_err(|error| Error::Malformed(format!("{error} in\n{text}")))?;
    module.functions.extend(parsed.functions);
    Ok(())
}

/// The text of a function: a loop over a compare-and-swap of the bits, for a byte of the word that contains it.
fn define(name: &str) -> Option<String> {
    let (what, ty) = name.strip_prefix(PREFIX)?.split_once('.')?;
    let bits = if ty == "i64" { ty } else { "i32" };
    let cas = |at: &str, seen: &str, new: &str| {
        let name = format!("llvm.nvvm.atomic.cas.gen.i.sys.{bits}.p0");
        format!("call {bits} @{name}(ptr {at}, {bits} {seen}, {bits} {new})")
    };
    let is_compare = what == "cmpxchg";
    let (result, parameters) = match is_compare {
        true => (format!("{{ {ty}, i1 }}"), format!("ptr %p, {ty} %expected, {ty} %v")),
        false => (ty.to_owned(), format!("ptr %p, {ty} %v")),
    };
    let head = format!("define internal {result} @{name}({parameters}) alwaysinline nounwind {{\nstart:\n");
    let pair = format!(
        "%pair = insertvalue {result} undef, {ty} %old, 0\n\
         \x20 %result = insertvalue {result} %pair, i1 %same, 1\n\
         \x20 ret {result} %result\n}}\n"
    );
    if ty == "i8" {
        let next =
            if is_compare { "select i1 %same, i8 %v, i8 %old" } else { "select i1 true, i8 %v, i8 %v" };
        let same = if is_compare { "%same = icmp eq i8 %old, %expected\n  " } else { "" };
        let end = if is_compare { pair } else { "ret i8 %old\n}\n".to_owned() };
        let cas = cas("%at", "%seen", "%new");
        return Some(format!(
            "{head}\
             \x20 %address = ptrtoint ptr %p to i64\n\
             \x20 %aligned = and i64 %address, -4\n\
             \x20 %at = inttoptr i64 %aligned to ptr\n\
             \x20 %byte = trunc i64 %address to i32\n\
             \x20 %index = and i32 %byte, 3\n\
             \x20 %shift = shl i32 %index, 3\n\
             \x20 %mask = shl i32 255, %shift\n\
             \x20 %others = xor i32 %mask, -1\n\
             \x20 %first = load volatile i32, ptr %at, align 4\n\
             \x20 br label %again\n\
             again:\n\
             \x20 %seen = phi i32 [ %first, %start ], [ %now, %again ]\n\
             \x20 %shifted = lshr i32 %seen, %shift\n\
             \x20 %old = trunc i32 %shifted to i8\n\
             \x20 {same}%next = {next}\n\
             \x20 %wide = zext i8 %next to i32\n\
             \x20 %placed = shl i32 %wide, %shift\n\
             \x20 %kept = and i32 %seen, %others\n\
             \x20 %new = or i32 %kept, %placed\n\
             \x20 %now = {cas}\n\
             \x20 %done = icmp eq i32 %now, %seen\n\
             \x20 br i1 %done, label %end, label %again\n\
             end:\n\
             \x20 {end}"
        ));
    }
    if is_compare {
        let cas = cas("%p", "%expected", "%v");
        return Some(format!("{head}  %old = {cas}\n  %same = icmp eq {ty} %old, %expected\n  {pair}"));
    }
    let select = |order: &str| {
        let compare = if ty == "float" { "fcmp" } else { "icmp" };
        format!(
            "%keeps = {compare} {order} {ty} %value, %v\n  %next = select i1 %keeps, {ty} %value, {ty} %v"
        )
    };
    let next = match RmwOp::parse(what)? {
        RmwOp::UMax => select("ugt"),
        RmwOp::UMin => select("ult"),
        RmwOp::FMax => select("ogt"),
        RmwOp::FMin => select("olt"),
        RmwOp::Xchg => format!("%next = select i1 true, {ty} %v, {ty} %v"),
        RmwOp::Nand => format!("%both = and {ty} %value, %v\n  %next = xor {ty} %both, -1"),
        op @ (RmwOp::Sub | RmwOp::FSub) => format!("%next = {op} {ty} %value, %v"),
        _ => return None,
    };
    let cas = cas("%p", "%seen", "%new");
    Some(format!(
        "{head}\
         \x20 %first = load volatile {bits}, ptr %p\n\
         \x20 br label %again\n\
         again:\n\
         \x20 %seen = phi {bits} [ %first, %start ], [ %old, %again ]\n\
         \x20 %value = bitcast {bits} %seen to {ty}\n\
         \x20 {next}\n\
         \x20 %new = bitcast {ty} %next to {bits}\n\
         \x20 %old = {cas}\n\
         \x20 %done = icmp eq {bits} %old, %seen\n\
         \x20 br i1 %done, label %end, label %again\n\
         end:\n\
         \x20 %result = bitcast {bits} %old to {ty}\n\
         \x20 ret {ty} %result\n}}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_an_intrinsic_or_a_function() {
        for ty in [Type::I32, Type::I64, Type::Float] {
            let is_float = ty == Type::Float;
            for &op in RmwOp::ALL {
                let of_floats = matches!(op, RmwOp::FAdd | RmwOp::FSub | RmwOp::FMax | RmwOp::FMin);
                // LLVM makes these of no operation of MSL.
                let other = matches!(op, RmwOp::UIncWrap | RmwOp::UDecWrap);
                if other || is_float != of_floats && op != RmwOp::Xchg {
                    continue;
                }
                if intrinsic(op, &ty).is_none() {
                    Module::parse(&define(&format!("{PREFIX}{op}.{ty}")).unwrap()).unwrap();
                }
            }
        }
        for name in ["xchg.i8", "cmpxchg.i8", "cmpxchg.i32", "cmpxchg.i64"] {
            Module::parse(&define(&format!("{PREFIX}{name}")).unwrap()).unwrap();
        }
    }
}
