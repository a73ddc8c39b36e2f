//! Mod/ref analysis: the arguments that a kernel may write, regardless of their declared types, since `const` can be cast away.
//!
//! A store counts for the arguments that its pointer may be derived from. A store through a pointer from memory or from an
//! integer counts for the arguments whose addresses the kernel has stored or converted to an integer; addresses that the launch
//! provides in memory belong to resources, whose use the launch declares. An address that is only stored to such a resource, as by
//! a kernel that encodes an indirect command buffer, is for other launches.

use std::collections::{HashMap, HashSet};

use elinvar_ir::{Call, CastOp, Function, Module, Op, Operand, Typed, ValueId};

use crate::intrinsic::Intrinsic;
use crate::support::ir::{callee_name, threadgroup_globals};
use crate::transform::bounds::{RootKind, Roots, Source, all_of};

/// Bit set of arguments (bit i: argument i) that the function `entry` of a module may write. Arguments from 64 on count as written.
pub(crate) fn may_write(module: &Module, entry: &Function) -> u64 {
    let mut seen = HashMap::new();
    let effects = Effects::of(module, entry, &mut seen);
    effects.written | if effects.unknown { effects.escaped } else { 0 }
}

/// Effects of a function on the memory of its parameters.
#[derive(Clone, Copy, Debug, Default)]
struct Effects {
    /// Bit set of written parameters.
    written: u64,
    /// Bit set of escaping parameters: their addresses are stored, or converted to integers.
    escaped: u64,
    /// Whether it writes through pointers from memory or integers.
    unknown: bool,
}

impl Effects {
    fn of<'m>(module: &'m Module, function: &'m Function, seen: &mut HashMap<&'m str, Effects>) -> Self {
        let roots = Roots::new(module, function, &[], &threadgroup_globals(module));
        let mut effects = Self::default();
        let elsewhere = stored_to_resources(function, &roots);
        for inst in function.blocks.iter().flat_map(|block| &block.insts) {
            let of = |pointer: &Operand| parameters(function, &roots, pointer);
            match &inst.op {
                Op::Store { value, ptr, .. } => {
                    effects.write(of(&ptr.op));
                    if of(&ptr.op) != (0, true) {
                        effects.escape(&of, value);
                    }
                }
                Op::Cast { op: CastOp::PtrToInt, .. }
                    if inst.result.is_some_and(|id| elsewhere.contains(&id)) => {}
                Op::AtomicRmw { ptr, value, .. } => {
                    effects.write(of(&ptr.op));
                    effects.escape(&of, value);
                }
                Op::CmpXchg { ptr, new, .. } => {
                    effects.write(of(&ptr.op));
                    effects.escape(&of, new);
                }
                Op::Cast { op: CastOp::PtrToInt | CastOp::AddrSpaceCast | CastOp::BitCast, from, .. } => {
                    effects.escape(&of, from);
                }
                Op::InsertValue { value, .. } | Op::InsertElement { value, .. } => effects.escape(&of, value),
                Op::Call(call) => effects.call(module, call, &of, seen),
                _ => {}
            }
        }
        effects
    }

    /// Records a write through a pointer.
    fn write(&mut self, (parameters, unknown): (u64, bool)) {
        self.written |= parameters;
        self.unknown |= unknown;
    }

    fn escape(&mut self, of: &impl Fn(&Operand) -> (u64, bool), value: &Typed) {
        if value.ty.is_ptr() {
            self.escaped |= of(&value.op).0;
        }
    }

    fn call<'m>(
        &mut self,
        module: &'m Module,
        call: &Call,
        of: &impl Fn(&Operand) -> (u64, bool),
        seen: &mut HashMap<&'m str, Effects>,
    ) {
        let name = callee_name(call).unwrap_or_default();
        let pointers = call.args.iter().enumerate().filter(|(_, arg)| arg.ty.is_ptr());
        let writes: Effects = match module.function(name).filter(|f| !f.is_declaration()) {
            Some(callee) => match seen.get(callee.name.as_str()) {
                Some(known) => *known,
                None => {
                    // Recursion is rejected elsewhere.
                    seen.insert(
                        &callee.name,
                        Effects { written: u64::MAX, escaped: u64::MAX, unknown: true },
                    );
                    let found = Effects::of(module, callee, seen);
                    seen.insert(&callee.name, found);
                    found
                }
            },
            None if ["llvm.memcpy.", "llvm.memmove.", "llvm.memset."]
                .iter()
                .any(|head| name.starts_with(head)) =>
            {
                Effects { written: 1, ..Effects::default() }
            }
            None if name.starts_with("llvm.") => Effects::default(),
            // The factors of a product are read.
            None if Intrinsic::parse(name) == Some(Intrinsic::HasTensorProduct) => Effects::default(),
            None if Intrinsic::parse(name) == Some(Intrinsic::TensorProduct) => {
                Effects { written: 1, ..Effects::default() }
            }
            None => Effects { written: u64::MAX, ..Effects::default() },
        };
        for (index, arg) in pointers {
            let (parameters, unknown) = of(&arg.op);
            if bit(writes.written, index) {
                self.write((parameters, unknown));
            }
            if bit(writes.escaped, index) {
                self.escaped |= parameters;
            }
        }
        self.unknown |= writes.unknown;
    }
}

/// Integers that are only stored, through pointers from memory that lead to no parameter.
fn stored_to_resources(function: &Function, roots: &Roots) -> HashSet<ValueId> {
    let (mut stored, mut other) = (HashSet::new(), HashSet::new());
    for block in &function.blocks {
        for inst in &block.insts {
            if let Op::Store { value, ptr, .. } = &inst.op
                && parameters(function, roots, &ptr.op) == (0, true)
            {
                stored.extend(value.op.value());
                other.extend(ptr.op.value());
            } else {
                other.extend(inst.op.operands().into_iter().filter_map(Operand::value));
            }
        }
        other.extend(block.term.operands().into_iter().filter_map(Operand::value));
    }
    &stored - &other
}

fn bit(bits: u64, index: usize) -> bool {
    index >= 64 || bits >> index & 1 == 1
}

/// Bit set of parameters that a pointer may be derived from, and whether it may point to other memory than the function's own.
fn parameters(function: &Function, roots: &Roots, pointer: &Operand) -> (u64, bool) {
    if let Source::Unknown(_) = roots.source(pointer) {
        // One of several may be known all the same.
        return (
            all_of(function, roots, pointer).iter().fold(0, |bits, root| bits | of_kind(&root.kind)),
            true,
        );
    }
    let all = all_of(function, roots, pointer);
    (all.iter().fold(0, |bits, root| bits | of_kind(&root.kind)), false)
}

fn of_kind(kind: &RootKind) -> u64 {
    match kind {
        RootKind::Argument(index) if *index < 64 => 1 << index,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(body: &str) -> u64 {
        let text = format!(
            "define void @__elinvar_entry(ptr %a, ptr %b, ptr %c, i1 %w, i64 %i) {{\n{body}\n  ret void\n}}
            define internal void @second(ptr %x, ptr %y) noinline {{\n  store i32 1, ptr %y\n  ret void\n}}
            define internal void @keeps(ptr %x) noinline {{\n  store ptr %x, ptr @kept\n  ret void\n}}
            @kept = internal global ptr null
            declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
            declare float @frexpf(float, ptr)"
        );
        let module = Module::parse(&text).unwrap();
        may_write(&module, module.function("__elinvar_entry").unwrap())
    }

    #[test]
    fn what_is_stored_to() {
        for (body, expected) in [
            ("%v = load i32, ptr %a\n store i32 %v, ptr %b", 0b10),
            (
                "%p = select i1 %w, ptr %a, ptr %c\n %q = getelementptr i32, ptr %p, i64 %i\n store i32 1, ptr %q",
                0b101,
            ),
            // One that it may be in two ways.
            (
                "%p = select i1 %w, ptr %a, ptr %c\n %q = select i1 %w, ptr %a, ptr %p\n store i32 1, ptr %q",
                0b101,
            ),
            (
                "%u = load ptr, ptr %b\n %p = select i1 %w, ptr %a, ptr %u\n %q = select i1 %w, ptr %a, ptr %p\n \
                 store i32 1, ptr %q",
                0b1,
            ),
            ("%v = atomicrmw add ptr %c, i32 1 monotonic", 0b100),
            ("call void @llvm.memcpy.p0.p0.i64(ptr %a, ptr %b, i64 8, i1 false)", 0b1),
            ("call void @second(ptr %a, ptr %b)", 0b10),
            ("%f = call float @frexpf(float 1.0, ptr %c)", 0b100),
            // Through an address that the launch gave.
            ("%p = load ptr, ptr %a\n store i32 1, ptr %p", 0),
            // Through one that the kernel has put there itself.
            ("%m = alloca ptr\n store ptr %b, ptr %m\n %p = load ptr, ptr %m\n store i32 1, ptr %p", 0b10),
            ("call void @keeps(ptr %c)\n %p = load ptr, ptr @kept\n store i32 1, ptr %p", 0b100),
            ("%n = ptrtoint ptr %a to i64\n %p = inttoptr i64 %n to ptr\n store i32 1, ptr %p", 0b1),
            ("%n = ptrtoint ptr %a to i64\n store i64 %n, ptr %b", 0b10),
            // To memory that an argument leads to.
            (
                "%m = load ptr, ptr %c\n %n = ptrtoint ptr %a to i64\n store i64 %n, ptr %m\n store ptr %b, ptr %m",
                0,
            ),
            (
                "%m = load ptr, ptr %c\n %n = ptrtoint ptr %a to i64\n store i64 %n, ptr %m\n \
                 %o = add i64 %n, 4\n store i64 %o, ptr %m",
                0b1,
            ),
        ] {
            assert_eq!(written(body), expected, "{body}");
        }
    }
}
