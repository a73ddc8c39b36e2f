//! Versions loops whose counter might wrap, so that LLVM can compute how often they run and unroll them.
//!
//! ```text
//! for (uint i = first; i < end; i += 1024) sum += x[i];
//! ```
//!
//! `i + 1024` wraps if `end` is above 2³² - 1024, so the number of iterations is not known before the loop, and LLVM does not unroll it:
//! each load waits for the one before it. Where `end` is not above that bound, which is tested before the loop, a copy of the loop runs whose
//! counter does not wrap.
//!
//! Applies to loops of one block without calls and atomic operations that load from memory, unless `unroll(disable)` asks for the loop as
//! written. The copy is unrolled four times, whatever else a pragma asks for: `unroll(full)` has no effect on a loop of this kind.

use std::collections::HashMap;

use elinvar_ir::{
    BinaryOp, Block, BlockId, Const, Function, Inst, IntPredicate, MetadataId, MetadataNode, Module, Op,
    Operand, Term, Type, ValueId,
};

use crate::support::ir::callee_name;

/// Maximum number of instructions.
const MOST: usize = 40;
/// Iterations of the unrolled loop. Strides are often the number of threads, and loops short: with eight, most would end in the remainder.
const UNROLLED: u32 = 4;

/// A loop, which is one block.
struct Loop {
    block: BlockId,
    /// The block before it, and that behind it.
    entry: BlockId,
    exit: BlockId,
    /// The counter's value in the first iteration, and the bound that it stays below.
    first: Operand,
    end: Operand,
    ty: Type,
    /// Added in each iteration, by the instruction with this index.
    step: u128,
    add: usize,
}

/// Versions the loops of the kernel and of the functions that are not inlined.
pub(super) fn version(module: &mut Module, kernel: &mut Function) {
    let disabled = |block: &Block| is_disabled(module, block);
    let is_kept = |function: &Function| -> Vec<bool> { function.blocks.iter().map(&disabled).collect() };
    let kept: Vec<Vec<bool>> = module.functions.iter().map(&is_kept).collect();
    let kept_in_kernel = is_kept(kernel);
    let mut pragmas = Pragmas::new(module);
    let functions = module.functions.iter_mut().zip(kept).chain([(kernel, kept_in_kernel)]);
    for (function, kept) in functions {
        let blocks: Vec<BlockId> = function.block_ids().collect();
        for block in blocks.into_iter().zip(kept).filter_map(|(block, kept)| (!kept).then_some(block)) {
            if let Some(found) = candidate(function, block) {
                copy(function, &found, pragmas.node());
            }
        }
    }
    module.metadata.extend(pragmas.nodes);
}

/// Metadata of loops that are to be unrolled.
struct Pragmas {
    next: u32,
    nodes: Vec<MetadataNode>,
}

impl Pragmas {
    fn new(module: &Module) -> Self {
        let numbers = module.metadata.iter().filter_map(|node| node.name.parse::<u32>().ok());
        Self { next: numbers.max().map_or(0, |last| last + 1), nodes: Vec::new() }
    }

    /// The node of another loop.
    fn node(&mut self) -> MetadataId {
        let (of_loop, count) = (self.next, self.next + 1);
        self.next += 2;
        let loop_text = format!("distinct !{{!{of_loop}, !{count}}}");
        let count_text = format!("!{{!\"llvm.loop.unroll.count\", i32 {UNROLLED}}}");
        for (number, text) in [(of_loop, loop_text), (count, count_text)] {
            self.nodes.push(MetadataNode { name: number.to_string(), text });
        }
        MetadataId(of_loop)
    }
}

/// Whether the loop that a block ends has the pragma `unroll(disable)`.
fn is_disabled(module: &Module, block: &Block) -> bool {
    let of = block.term_metadata.iter().find(|(kind, _)| kind == "llvm.loop");
    let Some(text) = of.and_then(|(_, id)| module.metadata_node(*id)) else { return false };
    let numbers = text.split(['{', '}', ',', ' ']).filter_map(|part| part.strip_prefix('!')?.parse().ok());
    let nodes = numbers.filter_map(|number| module.metadata_node(MetadataId(number)));
    [text].into_iter().chain(nodes).any(|text| text.contains("llvm.loop.unroll.disable"))
}

fn candidate(function: &Function, block: BlockId) -> Option<Loop> {
    let code = function.block(block);
    let Term::CondBr { cond: Operand::Value(cond), then, other } = &code.term else { return None };
    let (stays, exit) = (*then == block, if *then == block { *other } else { *then });
    if !(stays || *other == block) || exit == block || code.insts.len() > MOST {
        return None;
    }
    if !code.insts.iter().all(|inst| is_plain(&inst.op)) || !code.insts.iter().any(loads) {
        return None;
    }
    let defined = |value: ValueId| code.insts.iter().position(|inst| inst.result == Some(value));
    let is_invariant = |operand: &Operand| operand.value().is_none_or(|value| defined(value).is_none());
    let Op::ICmp { pred, ty, a, b, .. } = &code.insts[defined(*cond)?].op else { return None };
    // Stays while next < end.
    let (next, end) = match (pred, stays) {
        (IntPredicate::Ult, true) | (IntPredicate::Uge, false) => (a, b),
        (IntPredicate::Ugt, true) | (IntPredicate::Ule, false) => (b, a),
        _ => return None,
    };
    let (Type::Int(width), true) = (ty, is_invariant(end)) else { return None };
    let add = defined(next.value()?)?;
    let Op::Binary { op: BinaryOp::Add, flags, a, b, .. } = &code.insts[add].op else { return None };
    let (counter, Operand::Const(step)) = (a.value()?, b) else { return None };
    let step = step.as_unsigned(*width).filter(|step| *step > 1 && *step < 1 << (width - 1))?;
    if flags.contains("nuw") {
        return None;
    }
    let Op::Phi { incoming, .. } = &code.insts[defined(counter)?].op else { return None };
    let [one, two] = &incoming[..] else { return None };
    let (outside, inside) = if one.1 == block { (two, one) } else { (one, two) };
    if inside.0 != *next || inside.1 != block || outside.1 == block {
        return None;
    }
    let entries =
        function.block_ids().filter(|from| function.block(*from).term.successors().contains(&block));
    let is_only_entry = entries.filter(|from| *from != block).eq([outside.1]);
    let (first, end, ty) = (outside.0.clone(), end.clone(), ty.clone());
    is_only_entry.then_some(Loop { block, entry: outside.1, exit, first, end, ty, step, add })
}

fn loads(inst: &Inst) -> bool {
    matches!(inst.op, Op::Load { atomic: None, volatile: false, .. })
}

fn is_plain(op: &Op) -> bool {
    match op {
        Op::Call(call) => callee_name(call).is_some_and(|name| {
            [
                "llvm.fma.",
                "llvm.fmuladd.",
                "llvm.umin.",
                "llvm.umax.",
                "llvm.smin.",
                "llvm.smax.",
                "llvm.dbg.",
            ]
            .iter()
            .any(|known| name.starts_with(known))
        }),
        Op::Load { atomic, volatile, .. } | Op::Store { atomic, volatile, .. } => {
            atomic.is_none() && !volatile
        }
        Op::AtomicRmw { .. } | Op::CmpXchg { .. } | Op::Fence(_) | Op::Alloca { .. } => false,
        _ => true,
    }
}

/// Adds the copy, and the test before it.
fn copy(function: &mut Function, of: &Loop, pragma: MetadataId) {
    let mut code = function.block(of.block).clone();
    let copied = function.new_block(None);
    let test = function.new_block(None);
    let mut values: HashMap<ValueId, ValueId> = HashMap::new();
    for value in code.insts.iter().filter_map(|inst| inst.result) {
        let ty = function.ty(value).clone();
        values.insert(value, function.new_value(ty, None));
    }
    let rename = |operand: &mut Operand| {
        if let Some(renamed) = operand.value().and_then(|value| values.get(&value)) {
            *operand = Operand::Value(*renamed);
        }
    };
    for inst in &mut code.insts {
        inst.op.map_operands(rename);
        inst.result = inst.result.map(|result| values[&result]);
        if let Op::Phi { incoming, .. } = &mut inst.op {
            incoming.iter_mut().for_each(|(_, from)| *from = if *from == of.block { copied } else { test });
        }
    }
    if let Op::Binary { flags, .. } = &mut code.insts[of.add].op {
        *flags = format!("nuw {flags}").trim().to_owned();
    }
    code.term.map_operands(rename);
    code.term.map_successors(|to| if to == of.block { copied } else { to });
    code.term_metadata.retain(|(kind, _)| kind != "llvm.loop");
    code.term_metadata.push(("llvm.loop".into(), pragma));
    leave_by_phis(function, of, copied, &values);
    let target = function.block_mut(copied);
    (target.insts, target.term, target.term_metadata) = (code.insts, code.term, code.term_metadata);

    let [no_wrap, begins, both] = [(); 3].map(|()| function.new_value(Type::Int(1), None));
    let Type::Int(width) = of.ty else { return };
    let bound = Operand::Const(Const::int(width, -(of.step as i128)));
    let compare = |result, pred, a: &Operand, b: Operand| Inst {
        result: Some(result),
        op: Op::ICmp { flags: String::new(), pred, ty: of.ty.clone(), a: a.clone(), b },
        metadata: Vec::new(),
    };
    let and = Op::Binary {
        op: BinaryOp::And,
        flags: String::new(),
        ty: Type::Int(1),
        a: Operand::Value(no_wrap),
        b: Operand::Value(begins),
    };
    let testing = function.block_mut(test);
    testing.insts = vec![
        compare(no_wrap, IntPredicate::Ule, &of.end, bound),
        compare(begins, IntPredicate::Ult, &of.first, of.end.clone()),
        Inst { result: Some(both), op: and, metadata: Vec::new() },
    ];
    testing.term = Term::CondBr { cond: Operand::Value(both), then: copied, other: of.block };
    function.block_mut(of.entry).term.map_successors(|to| if to == of.block { test } else { to });
    for inst in &mut function.block_mut(of.block).insts {
        let Op::Phi { incoming, .. } = &mut inst.op else { break };
        incoming.iter_mut().filter(|(_, from)| *from == of.entry).for_each(|(_, from)| *from = test);
    }
}

/// Makes the block behind the loop take the loop's values from both versions.
fn leave_by_phis(function: &mut Function, of: &Loop, copied: BlockId, values: &HashMap<ValueId, ValueId>) {
    for inst in &mut function.block_mut(of.exit).insts {
        let Op::Phi { incoming, .. } = &mut inst.op else { break };
        let from_loop = incoming.iter().filter(|(_, from)| *from == of.block);
        let more: Vec<_> = from_loop
            .map(|(operand, _)| {
                let renamed = operand.value().and_then(|value| values.get(&value));
                (renamed.map_or_else(|| operand.clone(), |value| Operand::Value(*value)), copied)
            })
            .collect();
        incoming.extend(more);
    }
    // Values that are used behind the loop without a phi: the loop is the only way there, so other edges to the exit come from behind it.
    let preds =
        function.block_ids().filter(|from| function.block(*from).term.successors().contains(&of.exit));
    let others: Vec<BlockId> = preds.filter(|from| *from != of.block && *from != copied).collect();
    let mut merged: HashMap<ValueId, ValueId> = HashMap::new();
    let mut phis = Vec::new();
    let blocks: Vec<BlockId> = function.block_ids().filter(|block| *block != of.block).collect();
    for block in blocks {
        let mut insts = std::mem::take(&mut function.block_mut(block).insts);
        let mut term = function.block(block).term.clone();
        let mut replace = |operand: &mut Operand, function: &mut Function| {
            let Some(value) = operand.value() else { return };
            let Some(other) = values.get(&value) else { return };
            let merged = *merged.entry(value).or_insert_with(|| {
                let ty = function.ty(value).clone();
                let result = function.new_value(ty.clone(), None);
                let mut incoming = vec![(Operand::Value(value), of.block), (Operand::Value(*other), copied)];
                incoming.extend(others.iter().map(|from| (Operand::Value(result), *from)));
                phis.push(Inst {
                    result: Some(result),
                    op: Op::Phi { flags: String::new(), ty, incoming },
                    metadata: Vec::new(),
                });
                result
            });
            *operand = Operand::Value(merged);
        };
        for inst in &mut insts {
            match &mut inst.op {
                Op::Phi { incoming, .. } => {
                    for (operand, from) in incoming {
                        let is_from_loop = *from == of.block || *from == copied;
                        if !(is_from_loop && block == of.exit) {
                            replace(operand, function);
                        }
                    }
                }
                op => op.map_operands(|operand| replace(operand, function)),
            }
        }
        term.map_operands(|operand| replace(operand, function));
        let code = function.block_mut(block);
        (code.insts, code.term) = (insts, term);
    }
    function.block_mut(of.exit).insts.splice(0..0, phis);
}
