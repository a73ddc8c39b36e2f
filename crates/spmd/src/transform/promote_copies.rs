//! Promotes private variables that are only copied: LLVM's SROA leaves a struct in memory if `llvm.memcpy` alone accesses it, such as the
//! elements of an array in which a kernel holds the next tile while it computes the last one.
//!
//! A copy becomes a load and a store of a vector of `i32`, and each part of the variable that is copied by itself a value. Other accesses,
//! overlapping parts, copies to or from variables that stay in memory, and copies that are not aligned to 4 bytes leave it in memory.

use std::collections::{BTreeMap, HashMap, HashSet};

use elinvar_ir::{Call, CallArg, Function, Inst, Module, Op, Operand, Type, Typed, ValueId};

use crate::support::ir::callee_name;
use crate::transform::mem2reg;

const COPY: &str = "llvm.memcpy.p0.p0.i64";
const LIFETIMES: [&str; 2] = ["llvm.lifetime.start.p0", "llvm.lifetime.end.p0"];
/// Size and least alignment of a word in bytes.
const WORD: u64 = 4;
/// Maximum size of a copy, and of a variable, in bytes.
const LARGEST_COPY: u64 = 64;
const MOST: u64 = 512;

/// A copy of constant size.
struct Copy<'c> {
    to: &'c CallArg,
    from: &'c CallArg,
    bytes: u64,
}

impl<'c> Copy<'c> {
    fn of(inst: &'c Inst) -> Option<Self> {
        let Op::Call(call) = &inst.op else { return None };
        let [to, from, bytes, volatile] = arguments(call)?;
        let (Operand::Const(bytes), Operand::Const(volatile)) = (&bytes.op, &volatile.op) else {
            return None;
        };
        let bytes = u64::try_from(bytes.as_unsigned(64)?).ok()?;
        (volatile.as_unsigned(1) == Some(0)).then_some(Self { to, from, bytes })
    }

    fn sides(&self) -> [&'c CallArg; 2] {
        [self.to, self.from]
    }
}

fn arguments(call: &Call) -> Option<&[CallArg; 4]> {
    (callee_name(call) == Some(COPY)).then(|| call.args[..].try_into().ok()).flatten()
}

fn is_lifetime(inst: &Inst) -> bool {
    matches!(&inst.op, Op::Call(call) if callee_name(call).is_some_and(|name| LIFETIMES.contains(&name)))
}

/// A part of a variable: the variable, and an offset in bytes.
type Part = (ValueId, u64);

/// The parts of a function's variables that become values.
struct Parts {
    /// Addresses of variables that become values.
    addresses: HashMap<ValueId, Part>,
    /// Size of each part in bytes.
    sizes: BTreeMap<Part, u64>,
}

/// Promotes the variables of the functions that a module defines; `None` if there are none.
pub(crate) fn promote(module: &Module) -> Option<Module> {
    let found: Vec<Parts> = module.functions.iter().map(|f| Parts::of(module, f)).collect();
    if found.iter().all(|parts| parts.sizes.is_empty()) {
        return None;
    }
    let mut module = module.clone();
    for (function, parts) in module.functions.iter_mut().zip(found) {
        if !parts.sizes.is_empty() {
            rewrite(function, &parts);
            mem2reg::promote(function);
        }
    }
    Some(module)
}

impl Parts {
    fn of(module: &Module, function: &Function) -> Self {
        let mut parts = Self { addresses: HashMap::new(), sizes: BTreeMap::new() };
        let mut variables = parts.find(module, function);
        let insts = || function.blocks.iter().flat_map(|block| &block.insts);
        for inst in insts().filter(|inst| !is_lifetime(inst)) {
            let copy = Copy::of(inst);
            let is_address = inst.result.is_some_and(|result| parts.addresses.contains_key(&result));
            let operands = inst.op.operands();
            let uses = operands.iter().filter_map(|operand| parts.addresses.get(&operand.value()?));
            for part in uses.filter(|_| !is_address) {
                let size = copy.as_ref().map(|copy| copy.bytes).filter(|bytes| is_small(*bytes));
                let same = size.is_some_and(|size| *parts.sizes.entry(*part).or_insert(size) == size);
                if !same {
                    variables.remove(&part.0);
                }
            }
        }
        for operand in function.blocks.iter().flat_map(|block| block.term.operands()) {
            let part = operand.value().and_then(|value| parts.addresses.get(&value));
            part.map(|part| variables.remove(&part.0));
        }
        // Parts of a variable that overlap.
        for (((variable, at), size), ((next, from), _)) in parts.sizes.iter().zip(parts.sizes.iter().skip(1))
        {
            if variable == next && at + size > *from {
                variables.remove(variable);
            }
        }
        // A variable that is copied to or from one that stays in memory stays there too.
        loop {
            let before = variables.len();
            for copy in insts().filter_map(Copy::of) {
                let [to, from] = copy.sides().map(|side| Some(parts.addresses.get(&side.op.value()?)?.0));
                for (own, other, side) in [(to, from, copy.from), (from, to, copy.to)] {
                    let fits = other.map_or(side.align() >= WORD, |other| variables.contains(&other));
                    if let Some(own) = own.filter(|_| !fits) {
                        variables.remove(&own);
                    }
                }
            }
            if variables.len() == before {
                break;
            }
        }
        parts.sizes.retain(|part, _| variables.contains(&part.0));
        parts.addresses.retain(|_, part| variables.contains(&part.0));
        parts
    }

    /// Finds the variables of the first block, and the addresses at constant offsets from them.
    fn find(&mut self, module: &Module, function: &Function) -> HashSet<ValueId> {
        let mut variables = HashSet::new();
        for inst in function.blocks.iter().flat_map(|block| &block.insts) {
            let Some(result) = inst.result else { continue };
            match &inst.op {
                Op::Alloca { ty, count: None, addrspace: 0, .. } => {
                    self.addresses.insert(result, (result, 0));
                    if (WORD..=MOST).contains(&ty.size_align(module).0) {
                        variables.insert(result);
                    }
                }
                Op::Gep { source: Type::I8, base, indices, .. } => {
                    let base = base.op.value().and_then(|base| self.addresses.get(&base));
                    let Some((variable, at)) = base.copied() else { continue };
                    let offset = match &indices[..] {
                        [Typed { op: Operand::Const(offset), .. }] => offset.as_unsigned(64),
                        _ => None,
                    };
                    match offset.and_then(|offset| at.checked_add(u64::try_from(offset).ok()?)) {
                        Some(offset) => drop(self.addresses.insert(result, (variable, offset))),
                        None => drop(variables.remove(&variable)),
                    }
                }
                _ => {}
            }
        }
        variables
    }
}

fn is_small(bytes: u64) -> bool {
    (WORD..=LARGEST_COPY).contains(&bytes) && bytes.is_multiple_of(WORD)
}

/// A vector of as many bytes.
fn words(bytes: u64) -> Type {
    match u32::try_from(bytes / WORD) {
        Ok(1) | Err(_) => Type::I32,
        Ok(count) => Type::Vector(count, Box::new(Type::I32)),
    }
}

fn rewrite(function: &mut Function, parts: &Parts) {
    let mut slots = HashMap::new();
    let mut allocas = Vec::new();
    for (part, bytes) in &parts.sizes {
        let slot = function.new_value(Type::PTR, None);
        slots.insert(*part, slot);
        let op = Op::Alloca { ty: words(*bytes), count: None, align: None, addrspace: 0 };
        allocas.push(Inst { result: Some(slot), op, metadata: Vec::new() });
    }
    for block in 0..function.blocks.len() {
        let insts = std::mem::take(&mut function.blocks[block].insts);
        let mut out = std::mem::take(&mut allocas);
        for inst in insts {
            let part = |operand: &Operand| parts.addresses.get(&operand.value()?).copied();
            let uses_part = inst.op.operands().iter().any(|operand| part(operand).is_some());
            if inst.result.is_some_and(|result| parts.addresses.contains_key(&result)) {
                // The variable, or an address in it.
                continue;
            }
            let Some(copy) = Copy::of(&inst).filter(|_| uses_part) else {
                if !uses_part {
                    out.push(inst);
                }
                continue;
            };
            let ty = words(copy.bytes);
            let side = |arg: &CallArg| match part(&arg.op).and_then(|part| slots.get(&part)) {
                Some(slot) => (Typed::new(Type::PTR, *slot), None),
                None => (Typed::new(Type::PTR, arg.op.clone()), Some(arg.align())),
            };
            let ((to, to_align), (from, from_align)) = (side(copy.to), side(copy.from));
            let value = function.new_value(ty.clone(), None);
            let load =
                Op::Load { ty: ty.clone(), ptr: from, align: from_align, volatile: false, atomic: None };
            out.push(Inst { result: Some(value), op: load, metadata: inst.metadata.clone() });
            let value = Typed::new(ty, value);
            let store = Op::Store { value, ptr: to, align: to_align, volatile: false, atomic: None };
            out.push(Inst { result: None, op: store, metadata: inst.metadata });
        }
        function.blocks[block].insts = out;
    }
}
