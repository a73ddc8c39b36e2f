//! Instructions and terminators, each on its line without indentation.

use std::fmt::{self, Display, Formatter};

use super::constants::{Constant, TypedValue, Value, spaced};
use super::names::{Escaped, Names, Quoted};
use crate::model::{Atomic, Attachments, Call, Callee, Inst, Op, Operand, Term, Type, Typed};

/// An instruction with its result and metadata.
pub(super) struct Instruction<'a>(pub &'a Names, pub &'a Inst);

impl Display for Instruction<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Instruction(names, inst) = self;
        if let Some(result) = inst.result {
            write!(f, "{} = ", names.value(result))?;
        }
        op(f, names, &inst.op)?;
        attachments(f, &inst.metadata)
    }
}

/// `, !dbg !7`, each.
pub(super) fn attachments(f: &mut Formatter<'_>, all: &Attachments) -> fmt::Result {
    all.iter().try_for_each(|(kind, id)| write!(f, ", !{kind} !{}", id.0))
}

fn op(f: &mut Formatter<'_>, names: &Names, op: &Op) -> fmt::Result {
    let typed = |value| TypedValue(names, value);
    match op {
        Op::Binary { op, flags, ty, a, b } => pair(f, names, op.text(), flags, (ty, a, b)),
        Op::ICmp { flags, pred, ty, a, b } => {
            f.write_str("icmp")?;
            spaced(f, flags)?;
            pair(f, names, &format!(" {pred}"), "", (ty, a, b))
        }
        Op::FCmp { flags, pred, ty, a, b } => {
            f.write_str("fcmp")?;
            spaced(f, flags)?;
            pair(f, names, &format!(" {pred}"), "", (ty, a, b))
        }
        Op::FNeg { flags, ty, a } => {
            f.write_str("fneg")?;
            spaced(f, flags)?;
            write!(f, " {ty} {}", Value(names, ty, a))
        }
        Op::Cast { op, flags, from, to } => {
            f.write_str(op.text())?;
            spaced(f, flags)?;
            write!(f, " {} to {to}", typed(from))
        }
        Op::Select { flags, cond, a, b } => {
            f.write_str("select")?;
            spaced(f, flags)?;
            write!(f, " {}, {}, {}", typed(cond), typed(a), typed(b))
        }
        Op::Phi { flags, ty, incoming } => {
            f.write_str("phi")?;
            spaced(f, flags)?;
            write!(f, " {ty} ")?;
            for (at, (value, from)) in incoming.iter().enumerate() {
                let comma = if at == 0 { "" } else { ", " };
                write!(f, "{comma}[ {}, {} ]", Value(names, ty, value), names.block(*from))?;
            }
            Ok(())
        }
        Op::Freeze(value) => write!(f, "freeze {}", typed(value)),
        Op::Call(call) => print_call(f, names, call),
        Op::ExtractValue { agg, path } => {
            write!(f, "extractvalue {}", typed(agg))?;
            path.iter().try_for_each(|index| write!(f, ", {index}"))
        }
        Op::InsertValue { agg, value, path } => {
            write!(f, "insertvalue {}, {}", typed(agg), typed(value))?;
            path.iter().try_for_each(|index| write!(f, ", {index}"))
        }
        Op::ExtractElement { vector, index } => {
            write!(f, "extractelement {}, {}", typed(vector), typed(index))
        }
        Op::InsertElement { vector, value, index } => {
            write!(f, "insertelement {}, {}, {}", typed(vector), typed(value), typed(index))
        }
        Op::ShuffleVector { a, b, mask } => {
            write!(f, "shufflevector {}, {}, {}", typed(a), typed(b), typed(mask))
        }
        Op::Alloca { .. }
        | Op::Load { .. }
        | Op::Store { .. }
        | Op::Gep { .. }
        | Op::AtomicRmw { .. }
        | Op::CmpXchg { .. }
        | Op::Fence(_) => memory(f, names, op),
    }
}

fn pair(
    f: &mut Formatter<'_>,
    names: &Names,
    word: &str,
    flags: &str,
    (ty, a, b): (&Type, &Operand, &Operand),
) -> fmt::Result {
    f.write_str(word)?;
    spaced(f, flags)?;
    write!(f, " {ty} {}, {}", Value(names, ty, a), Value(names, ty, b))
}

fn memory(f: &mut Formatter<'_>, names: &Names, op: &Op) -> fmt::Result {
    let typed = |value| TypedValue(names, value);
    match op {
        Op::Alloca { ty, count, align, addrspace } => {
            write!(f, "alloca {ty}")?;
            if let Some(count) = count {
                write!(f, ", {}", typed(count))?;
            }
            alignment(f, *align)?;
            if *addrspace != 0 {
                write!(f, ", addrspace({addrspace})")?;
            }
            Ok(())
        }
        Op::Load { ty, ptr, align, volatile, atomic } => {
            f.write_str("load")?;
            access(f, *volatile, atomic.is_some())?;
            write!(f, " {ty}, {}", typed(ptr))?;
            atomic.iter().try_for_each(|atomic| ordering(f, atomic))?;
            alignment(f, *align)
        }
        Op::Store { value, ptr, align, volatile, atomic } => {
            f.write_str("store")?;
            access(f, *volatile, atomic.is_some())?;
            write!(f, " {}, {}", typed(value), typed(ptr))?;
            atomic.iter().try_for_each(|atomic| ordering(f, atomic))?;
            alignment(f, *align)
        }
        Op::Gep { flags, source, base, indices } => {
            f.write_str("getelementptr")?;
            spaced(f, flags)?;
            write!(f, " {source}, {}", typed(base))?;
            indices.iter().try_for_each(|index| write!(f, ", {}", typed(index)))
        }
        Op::AtomicRmw { op, ptr, value, align, volatile, atomic } => {
            f.write_str("atomicrmw")?;
            access(f, *volatile, false)?;
            write!(f, " {op} {}, {}", typed(ptr), typed(value))?;
            ordering(f, atomic)?;
            alignment(f, *align)
        }
        Op::CmpXchg { weak, ptr, expected, new, align, volatile, success, failure } => {
            f.write_str(if *weak { "cmpxchg weak" } else { "cmpxchg" })?;
            access(f, *volatile, false)?;
            write!(f, " {}, {}, {}", typed(ptr), typed(expected), typed(new))?;
            ordering(f, success)?;
            write!(f, " {failure}")?;
            alignment(f, *align)
        }
        Op::Fence(atomic) => {
            f.write_str("fence")?;
            ordering(f, atomic)
        }
        _ => Ok(()),
    }
}

fn access(f: &mut Formatter<'_>, volatile: bool, atomic: bool) -> fmt::Result {
    f.write_str(if atomic { " atomic" } else { "" })?;
    f.write_str(if volatile { " volatile" } else { "" })
}

fn ordering(f: &mut Formatter<'_>, atomic: &Atomic) -> fmt::Result {
    if let Some(scope) = &atomic.scope {
        write!(f, " syncscope(\"{}\")", Escaped(scope.as_bytes()))?;
    }
    write!(f, " {}", atomic.ordering)
}

fn alignment(f: &mut Formatter<'_>, align: Option<u64>) -> fmt::Result {
    match align {
        Some(align) => write!(f, ", align {align}"),
        None => Ok(()),
    }
}

fn print_call(f: &mut Formatter<'_>, names: &Names, call: &Call) -> fmt::Result {
    if !call.tail.is_empty() {
        write!(f, "{} ", call.tail)?;
    }
    f.write_str("call")?;
    spaced(f, &call.flags)?;
    spaced(f, &call.ret_attrs)?;
    write!(f, " {} ", call.ret)?;
    if let Some(params) = &call.variadic {
        f.write_str("(")?;
        params.iter().try_for_each(|ty| write!(f, "{ty}, "))?;
        f.write_str("...) ")?;
    }
    match &call.callee {
        Callee::Function(name) => write!(f, "@{}(", Quoted(name))?,
        Callee::Indirect(operand) => write!(f, "{}(", Value(names, &Type::PTR, operand))?,
    }
    for (at, arg) in call.args.iter().enumerate() {
        write!(f, "{}{}", if at == 0 { "" } else { ", " }, arg.ty)?;
        spaced(f, &arg.attrs)?;
        if arg.ty != Type::Metadata {
            write!(f, " {}", Value(names, &arg.ty, &arg.op))?;
        }
    }
    f.write_str(")")?;
    spaced(f, &call.attrs)?;
    bundles(f, names, call)
}

fn bundles(f: &mut Formatter<'_>, names: &Names, call: &Call) -> fmt::Result {
    for (at, bundle) in call.bundles.iter().enumerate() {
        f.write_str(if at == 0 { " [ " } else { ", " })?;
        write!(f, "\"{}\"(", Escaped(bundle.tag.as_bytes()))?;
        list(f, names, &bundle.inputs)?;
        f.write_str(")")?;
    }
    f.write_str(if call.bundles.is_empty() { "" } else { " ]" })
}

fn list(f: &mut Formatter<'_>, names: &Names, all: &[Typed]) -> fmt::Result {
    for (at, value) in all.iter().enumerate() {
        write!(f, "{}{}", if at == 0 { "" } else { ", " }, TypedValue(names, value))?;
    }
    Ok(())
}

/// A terminator, without its metadata.
pub(super) struct Terminator<'a>(pub &'a Names, pub &'a Term);

impl Display for Terminator<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Terminator(names, term) = self;
        match term {
            Term::Br(to) => write!(f, "br label {}", names.block(*to)),
            Term::CondBr { cond, then, other } => write!(
                f,
                "br i1 {}, label {}, label {}",
                Value(names, &Type::I1, cond),
                names.block(*then),
                names.block(*other)
            ),
            Term::Switch { value, default, cases } => {
                writeln!(f, "switch {}, label {} [", TypedValue(names, value), names.block(*default))?;
                for (constant, to) in cases {
                    let constant = Constant(&value.ty, constant);
                    writeln!(f, "    {} {constant}, label {}", value.ty, names.block(*to))?;
                }
                f.write_str("  ]")
            }
            Term::Ret(None) => f.write_str("ret void"),
            Term::Ret(Some(value)) => write!(f, "ret {}", TypedValue(names, value)),
            Term::Unreachable => f.write_str("unreachable"),
        }
    }
}
