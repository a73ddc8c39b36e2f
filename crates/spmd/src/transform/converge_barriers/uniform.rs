//! Regions with uniform control flow: the lanes that bypass the barriers follow the others around them.
//!
//! If only the region's first branch diverges, as that of a bounds check around a loop, all lanes can take the branches between its
//! nodes together, and no lane needs a pc. Values on which these branches depend are computed by all lanes, outside of the nodes, so that
//! loop counters stay uniform:
//!
//! ```text
//! if (c) {                                if (simd_any(c)) {
//!     for (k = 0; k < n; ++k) {               for (k = 0; k < n; ++k) {
//!         threadgroup_barrier();      →           threadgroup_barrier();
//!         A                                       if (c) A
//!     }                                       }
//! }                                       }
//! ```

use std::collections::{HashMap, HashSet};

use elinvar_ir::{BinaryOp, BlockId, Const, Function, Inst, Op, Operand, Term, Type, ValueId};

use super::{Node, Rewrite, any};
use crate::analysis::cfg::Cfg;
use crate::analysis::divergence::DivergenceAnalysis;
use crate::analysis::divergent_barriers::{DivergentRegion, is_barrier};
use crate::support::builder::Builder;

/// A region whose branches between nodes are uniform.
pub(super) struct UniformRegion {
    branch: BlockId,
    join: BlockId,
    /// The condition of the branch, and whether lanes for which it holds enter the region.
    condition: Operand,
    enters: bool,
    /// The values that all lanes compute.
    pub values: HashSet<ValueId>,
}

impl UniformRegion {
    /// Whether a region with these nodes has this form.
    pub fn of(
        function: &Function,
        cfg: &Cfg,
        region: &DivergentRegion,
        nodes: &[Node],
        node_of: &HashMap<BlockId, usize>,
    ) -> Option<Self> {
        let (branch, join) = (*region.branches.first().filter(|_| region.branches.len() == 1)?, region.join?);
        let Term::CondBr { cond, then, other } = &function.block(branch).term else { return None };
        let enters = match (*then == join, *other == join) {
            (false, true) => true,
            (true, false) => false,
            _ => return None,
        };
        let is_entry = |block: &BlockId| {
            let from = cfg.predecessors[block.0 as usize].iter();
            from.into_iter().all(|from| *from == branch || region.blocks.contains(from))
        };
        if region.blocks.contains(&branch) || !region.blocks.iter().all(is_entry) {
            return None;
        }
        let divergence = DivergenceAnalysis::new(function, cfg);
        let insts = region.blocks.iter().flat_map(|block| &function.block(*block).insts);
        let definitions = insts.filter_map(|inst| Some((inst.result?, inst))).collect();
        let mut values = Values { definitions, shared: candidates(function, cfg, &divergence, nodes) };
        loop {
            let is_computable = |value: &ValueId| values.is_computable(*value, node_of);
            let kept: HashSet<ValueId> = values.shared.iter().copied().filter(is_computable).collect();
            if kept.len() == values.shared.len() {
                break;
            }
            values.shared = kept;
        }
        let decided = |node: &Node| match &function.block(node.head).term {
            _ if node.exit.is_some() => true,
            Term::Br(_) => true,
            Term::CondBr { cond: decides, .. } => values.are_known(decides),
            Term::Switch { value, .. } => values.are_known(&value.op),
            Term::Ret(_) | Term::Unreachable => false,
        };
        let is_uniform = nodes.iter().all(decided);
        is_uniform.then(|| Self { branch, join, condition: cond.clone(), enters, values: values.shared })
    }
}

/// Uniform values of nodes' heads that any lane can compute, and to which no loop within a node leads back.
fn candidates(
    function: &Function,
    cfg: &Cfg,
    divergence: &DivergenceAnalysis,
    nodes: &[Node],
) -> HashSet<ValueId> {
    let mut values = HashSet::new();
    for node in nodes {
        let is_inner = |from: &BlockId| node.exit.is_some() && node.blocks.contains(from);
        if cfg.predecessors[node.head.0 as usize].iter().any(is_inner) {
            continue;
        }
        for Inst { op, result, .. } in &function.block(node.head).insts {
            let is_pure = matches!(
                op,
                Op::Binary { .. }
                    | Op::ICmp { .. }
                    | Op::Cast { .. }
                    | Op::Select { .. }
                    | Op::Freeze(_)
                    | Op::Phi { .. }
            );
            values.extend(result.filter(|value| is_pure && divergence.is_uniform(*value)));
        }
    }
    values
}

/// The values of a region.
struct Values<'f> {
    /// The instructions that define them.
    definitions: HashMap<ValueId, &'f Inst>,
    /// Those that all lanes compute.
    shared: HashSet<ValueId>,
}

impl Values<'_> {
    /// Whether all lanes know an operand: it comes from outside the region, or they compute it.
    fn are_known(&self, operand: &Operand) -> bool {
        let is_known = |value| self.shared.contains(&value) || !self.definitions.contains_key(&value);
        operand.value().is_none_or(is_known)
    }

    /// Whether all lanes know the operands of a value. The incoming values of a phi must not depend on the path through a node.
    fn is_computable(&self, value: ValueId, node_of: &HashMap<BlockId, usize>) -> bool {
        let Some(inst) = self.definitions.get(&value) else { return false };
        if let Op::Phi { incoming, .. } = &inst.op {
            let is_one = |(operand, from): &(Operand, BlockId)| {
                let node = node_of.get(from);
                let same = |(_, other): &&(Operand, BlockId)| node.is_some() && node_of.get(other) == node;
                incoming.iter().filter(same).all(|(other, _)| other == operand)
            };
            if !incoming.iter().all(is_one) {
                return false;
            }
        }
        inst.op.operands().into_iter().all(|operand| self.are_known(operand))
    }
}

impl Rewrite<'_> {
    /// Connects the nodes by the region's own branches; only lanes that enter the region execute them.
    pub(super) fn write_uniform(&mut self, uniform: &UniformRegion) {
        let count = self.nodes.len();
        let guards: Vec<BlockId> = (0..count).map(|_| self.function.new_block(None)).collect();
        let after: Vec<BlockId> = (0..count).map(|_| self.function.new_block(None)).collect();
        let target = |node_of: &HashMap<BlockId, usize>, to: BlockId| {
            node_of.get(&to).map_or(uniform.join, |node| guards[*node])
        };
        for (number, node) in self.nodes.iter().enumerate() {
            let head = node.head;
            match node.exit {
                Some(exit) => {
                    let behind = target(&self.node_of, exit);
                    self.function.block_mut(after[number]).term = Term::Br(behind);
                    for block in &node.blocks {
                        let term = &mut self.function.block_mut(*block).term;
                        term.map_successors(|to| if to == exit { after[number] } else { to });
                    }
                }
                None => {
                    let code = self.function.block_mut(head);
                    let mut term = std::mem::replace(&mut code.term, Term::Br(after[number]));
                    let metadata = std::mem::take(&mut code.term_metadata);
                    term.map_successors(|to| target(&self.node_of, to));
                    let code = self.function.block_mut(after[number]);
                    (code.term, code.term_metadata) = (term, metadata);
                }
            }
        }
        for (number, guard) in guards.iter().enumerate() {
            let head = self.nodes[number].head;
            let insts = std::mem::take(&mut self.function.block_mut(head).insts);
            let is_shared = |inst: &Inst| {
                is_barrier(inst) && self.nodes[number].has_barrier
                    || inst.result.is_some_and(|result| uniform.values.contains(&result))
            };
            let (mut shared, own): (Vec<Inst>, Vec<Inst>) = insts.into_iter().partition(is_shared);
            for phi in &mut shared {
                let Op::Phi { incoming, .. } = &mut phi.op else { continue };
                let mut edges: Vec<(Operand, BlockId)> = Vec::new();
                for (operand, from) in incoming.drain(..) {
                    let from = self.node_of.get(&from).map_or(from, |node| after[*node]);
                    if !edges.iter().any(|(_, known)| *known == from) {
                        let to = |to: &&BlockId| **to == *guard;
                        // The edge of the branch is written below.
                        let count =
                            self.function.block(from).term.successors().iter().filter(to).count().max(1);
                        edges.extend(std::iter::repeat_n((operand, from), count));
                    }
                }
                *incoming = edges;
            }
            // Phis first.
            shared.sort_by_key(|inst| !matches!(inst.op, Op::Phi { .. }));
            self.function.block_mut(head).insts = own;
            let mut b = Builder::new(self.function, *guard);
            shared.into_iter().for_each(|inst| b.push(inst));
            let [then, other] = if uniform.enters { [head, after[number]] } else { [after[number], head] };
            b.cond_br(uniform.condition.clone(), then, other);
        }
        let branch = uniform.branch;
        let entered = self.function.block(branch).term.successors();
        let entry = entered.into_iter().find(|to| *to != uniform.join);
        let first = entry.map_or(uniform.join, |entry| target(&self.node_of, entry));
        let mut b = Builder::new(self.function, branch);
        let mut enters = uniform.condition.clone();
        if !uniform.enters {
            enters = b.binary(BinaryOp::Xor, "", &Type::I1, enters, Const::int(1, 1)).into();
        }
        let some = any(&mut b, enters);
        b.cond_br(some, first, uniform.join);
    }
}
