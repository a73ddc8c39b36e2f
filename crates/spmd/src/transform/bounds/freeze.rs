//! Removes undefined behavior from checked code, so that no later optimization can remove a check.
//!
//! LLVM may assume that undefined behavior does not occur and that poison is not used: from `unreachable`, a loop without
//! effects, an overflow marked as impossible, or an uninitialized value, it may conclude that a check cannot fail, or may have
//! any outcome. This pass removes all of these. Values that the source leaves undefined then have some fixed value, equal for a
//! check and for the access behind it:
//!
//! - no flag, attribute or metadata makes assumptions about values;
//! - `undef` and `poison` are zero; private memory is zero-initialized;
//! - loaded, converted and extracted values are frozen: memory that other threads write concurrently may differ between two reads
//!   (LLVM Language Reference, "freeze");
//! - `unreachable` returns; loops are not assumed to end.

use elinvar_ir::{BlockId, Call, CastOp, Const, Function, Inst, Module, Op, Operand, Term, Type, Typed};

use crate::support::builder::{call, i64_const};
use crate::support::ir::callee_name;

/// Function attributes that control the compilation and make no assumptions.
const KEPT: [&str; 7] =
    ["alwaysinline", "cold", "convergent", "noinline", "nounwind", "null_pointer_is_valid", "optsize"];

/// Parameter attributes that belong to the calling convention.
const PASSED: [&str; 4] = ["immarg", "inreg", "signext", "zeroext"];

/// Removes undefined behavior from a module.
pub(crate) fn define(module: &mut Module) {
    for (_, text) in &mut module.attributes {
        *text = kept(text, |word| KEPT.contains(&word) || word.starts_with('"'));
    }
    let mut functions = std::mem::take(&mut module.functions);
    for function in &mut functions {
        signature(function);
        if !function.is_declaration() {
            body(module, function);
        }
    }
    module.functions = functions;
}

/// The attributes of a list for which a predicate holds.
fn kept(text: &str, test: impl Fn(&str) -> bool) -> String {
    text.split_whitespace().filter(|word| test(word)).collect::<Vec<_>>().join(" ")
}

fn passed(text: &str) -> String {
    kept(text, |word| PASSED.contains(&word))
}

fn signature(function: &mut Function) {
    function.ret_attrs = passed(&function.ret_attrs);
    for param in &mut function.params {
        param.attrs = passed(&param.attrs);
    }
    function.suffix = kept(&function.suffix, |word| KEPT.contains(&word) || word.starts_with('#'));
}

fn body(module: &Module, function: &mut Function) {
    for index in 0..function.blocks.len() {
        let block = &mut function.blocks[index];
        block.term_metadata.retain(|(kind, _)| kind == "dbg");
        if block.term == Term::Unreachable {
            block.term = Term::Ret(zero_of(&function.ret));
        }
        let mut term = std::mem::replace(&mut function.blocks[index].term, Term::Unreachable);
        term.map_operands(whole);
        function.blocks[index].term = term;
        let insts = std::mem::take(&mut function.blocks[index].insts);
        let mut out = Vec::with_capacity(insts.len());
        for inst in insts {
            write(module, function, inst, BlockId(index as u32), &mut out);
        }
        function.blocks[index].insts = out;
    }
}

fn zero_of(ty: &Type) -> Option<Typed> {
    (*ty != Type::Void).then(|| Typed::new(ty.clone(), zero(ty)))
}

fn zero(ty: &Type) -> Const {
    if ty.is_ptr() { Const::Null } else { Const::Zero }
}

/// Rewrites an instruction without undefined behavior.
fn write(module: &Module, function: &mut Function, mut inst: Inst, block: BlockId, out: &mut Vec<Inst>) {
    inst.metadata.retain(|(kind, _)| kind == "dbg");
    if let Op::Call(call) = &mut inst.op {
        if callee_name(call) == Some("llvm.assume") {
            return;
        }
        self::called(call);
    }
    flags(&mut inst.op);
    if !has_metadata(&inst.op) {
        inst.op.map_operands(whole);
    }
    let (fresh, cleared) = (needs_freeze(&inst.op), memory_of(module, &inst, block));
    match inst.result.filter(|_| fresh) {
        Some(result) => {
            let ty = function.ty(result).clone();
            let inner = function.new_value(ty.clone(), None);
            let metadata = inst.metadata.clone();
            out.push(Inst { result: Some(inner), ..inst });
            out.push(Inst { result: Some(result), op: Op::Freeze(Typed::new(ty, inner)), metadata });
        }
        None => out.push(inst),
    }
    out.extend(cleared);
}

fn has_metadata(op: &Op) -> bool {
    matches!(op, Op::Call(call) if call.args.iter().any(|arg| arg.ty == Type::Metadata))
}

/// A call without assumptions about its arguments and result.
fn called(call: &mut Call) {
    call.ret_attrs = passed(&call.ret_attrs);
    call.attrs = kept(&call.attrs, |word| KEPT.contains(&word) || word.starts_with('#'));
    call.bundles.clear();
    for arg in &mut call.args {
        if arg.ty != Type::Metadata {
            arg.attrs = passed(&arg.attrs);
        }
    }
    // The last argument makes the result for the minimum, or for zero, poison.
    let name = callee_name(call).unwrap_or_default();
    let poisons = ["llvm.abs.", "llvm.ctlz.", "llvm.cttz."].iter().any(|head| name.starts_with(head));
    if let (true, Some(last)) = (poisons, call.args.get_mut(1)) {
        last.op = Const::int(1, 0).into();
    }
}

/// Removes the flags that can make a result poison.
fn flags(op: &mut Op) {
    match op {
        Op::Binary { flags, ty, .. } if !ty.scalar().is_float() => flags.clear(),
        Op::ICmp { flags, .. } | Op::Gep { flags, .. } => flags.clear(),
        Op::Binary { flags, .. }
        | Op::FNeg { flags, .. }
        | Op::FCmp { flags, .. }
        | Op::Select { flags, .. }
        | Op::Phi { flags, .. } => *flags = of_floats(flags),
        Op::Cast { flags, op, .. } => match op {
            CastOp::FpExt | CastOp::FpTrunc => *flags = of_floats(flags),
            _ => flags.clear(),
        },
        Op::Call(call) => call.flags = of_floats(&call.flags),
        _ => {}
    }
}

/// Fast-math flags without `nnan` and `ninf`.
fn of_floats(flags: &str) -> String {
    let mut words = Vec::new();
    for word in flags.split_whitespace() {
        match word {
            "nnan" | "ninf" => {}
            "fast" => words.extend(["reassoc", "nsz", "arcp", "contract", "afn"]),
            other => words.push(other),
        }
    }
    words.join(" ")
}

/// Replaces `undef` and `poison` by zero.
fn whole(operand: &mut Operand) {
    if let Operand::Const(constant) = operand {
        defined(constant);
    }
}

fn defined(constant: &mut Const) {
    match constant {
        Const::Undef | Const::Poison => *constant = Const::Zero,
        Const::Array(parts) | Const::Vector(parts) | Const::Struct { fields: parts, .. } => {
            parts.iter_mut().for_each(|(_, part)| defined(part));
        }
        Const::Splat(part) => defined(&mut part.1),
        Const::Gep { flags, base, indices, .. } => {
            flags.clear();
            defined(&mut base.1);
            indices.iter_mut().for_each(|(_, index)| defined(index));
        }
        Const::Cast { from, .. } => defined(&mut from.1),
        _ => {}
    }
}

/// Whether a result may be poison or undefined though its operands are not. Division and shifts are legalized later.
fn needs_freeze(op: &Op) -> bool {
    match op {
        Op::Load { .. } => true,
        Op::Cast { op, .. } => matches!(op, CastOp::FpToSi | CastOp::FpToUi),
        Op::ExtractElement { index, .. } | Op::InsertElement { index, .. } => index.op.value().is_some(),
        _ => false,
    }
}

/// Instructions that zero private memory.
fn memory_of(module: &Module, inst: &Inst, block: BlockId) -> Option<Inst> {
    let (Op::Alloca { ty, count, addrspace: 0, .. }, Some(result)) = (&inst.op, inst.result) else {
        return None;
    };
    let count = match count.as_ref().map(|count| &count.op) {
        None => 1,
        Some(Operand::Const(count)) => u64::try_from(count.as_unsigned(64)?).ok()?,
        Some(Operand::Value(_)) => return None,
    };
    let bytes = ty.size_align(module).0.checked_mul(count).filter(|_| block == BlockId(0))?;
    let args = [
        (Type::PTR, result.into()),
        (Type::I8, Const::int(8, 0).into()),
        (Type::I64, i64_const(bytes).into()),
        (Type::I1, Const::int(1, 0).into()),
    ];
    Some(Inst { result: None, op: call(Type::Void, "llvm.memset.p0.i64", &args), metadata: Vec::new() })
}
