//! Threadgroup memory in shared memory: static variables, and the dynamic memory of a launch.

use elinvar_ir::{CastOp, Const, Global, Module, Operand, Type};

use super::MOST_STATIC;
use crate::support::constants::mentions;

/// The address space of shared memory (LLVM's user guide for NVPTX).
pub(super) const SPACE: u32 = 3;

/// The name of dynamic shared memory.
const DYNAMIC: &str = "elinvar_dynamic";

/// Alignment of each variable and of dynamic memory, in bytes.
pub(super) const ALIGN: u64 = 16;

/// The size of a variable is rounded up to a multiple of this: 8- and 16-bit atomics access the containing word.
const WORD: u64 = 4;

/// Shared memory of the kernel's own variables.
pub(super) struct Memory {
    pub static_bytes: u64,
    pub dynamic_base: u64,
}

/// Moves the threadgroup variables with these names to shared memory, and declares dynamic shared memory.
pub(super) fn place(module: &mut Module, names: &[String]) -> Memory {
    // Lists for the linker of another target, which refer to the old variables.
    module.globals.retain(|g| !g.name.starts_with("llvm."));
    let mut places: Vec<(String, u64)> = Vec::new();
    let mut sizes = Vec::new();
    let mut total = 0;
    for global in module.globals.iter().filter(|g| names.contains(&g.name)) {
        let size = global.ty.size_align(module).0;
        places.push((global.name.clone(), total));
        sizes.push(size);
        total += size.next_multiple_of(ALIGN);
    }
    let dynamic = total > MOST_STATIC;
    let stand_in = |name: &str| {
        let at = places.iter().find(|(n, _)| n == name)?.1;
        Some(if dynamic { generic(offset(at)) } else { generic(Const::Global(name.to_owned())) })
    };
    let replace = |operand: &mut Operand| {
        if let Operand::Const(constant) = operand
            && mentions(constant, &|name| names.iter().any(|n| n == name))
        {
            *constant = replaced(constant, &stand_in);
        }
    };
    for block in module.functions.iter_mut().flat_map(|f| &mut f.blocks) {
        block.insts.iter_mut().for_each(|inst| inst.op.map_operands(replace));
        block.term.map_operands(replace);
    }
    if dynamic {
        module.globals.retain(|g| !names.contains(&g.name));
    }
    for (global, size) in module.globals.iter_mut().filter(|g| names.contains(&g.name)).zip(sizes) {
        if !size.is_multiple_of(WORD) {
            global.ty = Type::array(size.next_multiple_of(WORD), Type::I8);
        }
        global.linkage = format!("internal unnamed_addr addrspace({SPACE})");
        global.section = None;
        global.init = Some(Const::Undef);
        global.align = Some(global.align.unwrap_or(ALIGN).max(ALIGN));
    }
    module.globals.push(Global {
        name: DYNAMIC.into(),
        linkage: format!("external addrspace({SPACE})"),
        constant: false,
        ty: Type::array(0, Type::I8),
        init: None,
        section: None,
        align: Some(ALIGN),
        suffix: String::new(),
        metadata: Vec::new(),
    });
    let (static_bytes, dynamic_base) = if dynamic { (0, total) } else { (total, 0) };
    Memory { static_bytes, dynamic_base }
}

/// The address of dynamic shared memory.
pub(super) fn dynamic() -> (Type, Operand) {
    (Type::Ptr(SPACE), Const::Global(DYNAMIC.into()).into())
}

fn offset(at: u64) -> Const {
    Const::Gep {
        flags: String::new(),
        source: Box::new(Type::I8),
        base: Box::new((Type::Ptr(SPACE), Const::Global(DYNAMIC.into()))),
        indices: vec![(Type::I64, Const::int(64, i128::from(at)))],
    }
}

/// Casts a shared address to the generic address space.
fn generic(constant: Const) -> Const {
    let from = Box::new((Type::Ptr(SPACE), constant));
    Const::Cast { op: CastOp::AddrSpaceCast, from, to: Box::new(Type::PTR) }
}

fn replaced(constant: &Const, stand_in: &dyn Fn(&str) -> Option<Const>) -> Const {
    let one = |(ty, c): &(Type, Const)| (ty.clone(), replaced(c, stand_in));
    let all = |parts: &[(Type, Const)]| parts.iter().map(one).collect();
    match constant {
        Const::Global(name) => stand_in(name).unwrap_or_else(|| constant.clone()),
        Const::Array(parts) => Const::Array(all(parts)),
        Const::Vector(parts) => Const::Vector(all(parts)),
        Const::Struct { packed, fields } => Const::Struct { packed: *packed, fields: all(fields) },
        Const::Splat(part) => Const::Splat(Box::new(one(part))),
        Const::Gep { flags, source, base, indices } => Const::Gep {
            flags: flags.clone(),
            source: source.clone(),
            base: Box::new(one(base)),
            indices: all(indices),
        },
        Const::Cast { op, from, to } => Const::Cast { op: *op, from: Box::new(one(from)), to: to.clone() },
        other => other.clone(),
    }
}
