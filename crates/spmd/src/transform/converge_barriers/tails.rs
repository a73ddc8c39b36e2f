//! Duplicates barrier-free ends of a region that lanes enter on both sides of a barrier.
//!
//! clang merges equal ends, such as the `store; return` of several iterations of an unrolled loop:
//!
//! ```text
//! if (c) goto end;  barrier;  if (d) goto end;  barrier;  …  end: store; return;
//! ```
//!
//! Lanes that leave before a barrier would run the shared end behind it, where others already expect what it stores. After this pass,
//! each end is entered either before a barrier or behind it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use elinvar_ir::{BlockId, Function, Op, Operand, ValueId};

use super::{has_group_call, substitute};
use crate::analysis::cfg::Cfg;
use crate::analysis::divergent_barriers::{self, DivergentRegion, has_barrier};

/// Maximum number of instructions of an end.
const MOST: usize = 256;

/// Duplicates the first such end; returns whether there is one.
pub(super) fn duplicate(function: &mut Function, cfg: &Cfg, region: &DivergentRegion) -> bool {
    let inside = cfg.order.iter().copied().filter(|block| region.blocks.contains(block));
    let candidates: Vec<BlockId> = inside.collect();
    let barriers: Vec<usize> =
        candidates.iter().filter(|b| has_barrier(function, **b)).map(|b| cfg.position(*b)).collect();
    for head in candidates {
        // Predecessors by the number of barriers up to them.
        let mut sides: BTreeMap<usize, Vec<BlockId>> = BTreeMap::new();
        for from in cfg.predecessors[head.0 as usize].iter().filter(|from| cfg.reaches(**from)) {
            let passed = barriers.iter().filter(|at| **at <= cfg.position(*from)).count();
            sides.entry(passed).or_default().push(*from);
        }
        if sides.len() < 2 {
            continue;
        }
        let Some(tail) = tail(function, region, head) else { continue };
        sides.pop_last();
        for from in sides.values() {
            copy(function, region, &tail, head, from);
        }
        return true;
    }
    false
}

/// The blocks from `head` to the end of the region, if they have effects, no barrier and no function of a simdgroup, and no value of theirs is
/// used behind them.
fn tail(function: &Function, region: &DivergentRegion, head: BlockId) -> Option<BTreeSet<BlockId>> {
    let blocks = divergent_barriers::reachable(function, vec![head], region.join);
    let is_plain = |block: &BlockId| {
        region.blocks.contains(block) && !has_barrier(function, *block) && !has_group_call(function, *block)
    };
    let insts = || blocks.iter().flat_map(|block| &function.block(*block).insts);
    let is_effect =
        |op: &Op| matches!(op, Op::Store { .. } | Op::AtomicRmw { .. } | Op::CmpXchg { .. } | Op::Call(_));
    if !blocks.iter().all(is_plain)
        || !insts().any(|inst| is_effect(&inst.op))
        || insts().any(|inst| matches!(inst.op, Op::Alloca { .. }))
        || insts().count() > MOST
    {
        return None;
    }
    let defined: BTreeSet<ValueId> = insts().filter_map(|inst| inst.result).collect();
    let escapes = |operand: &Operand| operand.value().is_some_and(|value| defined.contains(&value));
    let used_behind = function.block_ids().filter(|block| !blocks.contains(block)).any(|block| {
        let code = function.block(block);
        let by_inst = code.insts.iter().any(|inst| match &inst.op {
            Op::Phi { incoming, .. } => {
                incoming.iter().any(|(operand, from)| !blocks.contains(from) && escapes(operand))
            }
            op => op.operands().into_iter().any(escapes),
        });
        by_inst || code.term.operands().into_iter().any(escapes)
    });
    (!used_behind).then_some(blocks)
}

/// Copies a tail for the predecessors `from` of its head.
fn copy(
    function: &mut Function,
    region: &DivergentRegion,
    tail: &BTreeSet<BlockId>,
    head: BlockId,
    from: &[BlockId],
) {
    let blocks: HashMap<BlockId, BlockId> =
        tail.iter().map(|block| (*block, function.new_block(None))).collect();
    let mut values: HashMap<ValueId, ValueId> = HashMap::new();
    for block in tail {
        for result in function.block(*block).insts.clone().into_iter().filter_map(|inst| inst.result) {
            let ty = function.ty(result).clone();
            values.insert(result, function.new_value(ty, None));
        }
    }
    for (block, copied) in &blocks {
        let mut code = function.block(*block).clone();
        for inst in &mut code.insts {
            if let Op::Phi { incoming, .. } = &mut inst.op {
                incoming.retain(|(_, origin)| match *block == head && !tail.contains(origin) {
                    true => from.contains(origin),
                    false => tail.contains(origin),
                });
                incoming.iter_mut().for_each(|(_, origin)| *origin = *blocks.get(origin).unwrap_or(origin));
            }
            inst.op.map_operands(|operand| substitute(operand, &values));
            inst.result = inst.result.map(|result| values[&result]);
        }
        code.term.map_operands(|operand| substitute(operand, &values));
        code.term.map_successors(|to| *blocks.get(&to).unwrap_or(&to));
        let target = function.block_mut(*copied);
        (target.insts, target.term, target.term_metadata) = (code.insts, code.term, code.term_metadata);
    }
    if let Some(join) = region.join {
        for inst in &mut function.block_mut(join).insts {
            let Op::Phi { incoming, .. } = &mut inst.op else { break };
            let copies = incoming.iter().filter_map(|(operand, origin)| {
                let mut operand = operand.clone();
                substitute(&mut operand, &values);
                Some((operand, *blocks.get(origin)?))
            });
            let copies: Vec<_> = copies.collect();
            incoming.extend(copies);
        }
    }
    for block in from {
        function.block_mut(*block).term.map_successors(|to| if to == head { blocks[&head] } else { to });
    }
    for inst in &mut function.block_mut(head).insts {
        let Op::Phi { incoming, .. } = &mut inst.op else { break };
        incoming.retain(|(_, origin)| !from.contains(origin));
    }
}
