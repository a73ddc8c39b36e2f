//! Makes simdgroups reach barriers as a whole: a barrier that any lane of a simdgroup reaches becomes one that all its lanes reach.
//!
//! On Apple GPUs a simdgroup arrives at a barrier for all its lanes, active or not; lanes that have taken another path wait where
//! the paths join. After this pass no lane misses a barrier that others of its simdgroup reach, so that it does not matter whether
//! barriers count threads or simdgroups. The blocks of a [region](crate::analysis::divergent_barriers) run in topological order, which all lanes follow, each
//! executing the blocks to which its own path leads. A lane's target is its *pc*:
//!
//! ```text
//! if (c) {                         pc = c ? 1 : end;
//!     A                            if (pc == 1) { A; pc = 2; }
//!     threadgroup_barrier();  →    if (simd_any(pc == 2)) {
//!     B                                threadgroup_barrier();
//! }                                    if (pc == 2) { B; pc = end; }
//! C                                }
//!                                  C
//! ```
//!
//! At the end of a loop control returns to its header while a lane's pc is the header. Parts without barriers that have one entry
//! and one exit keep their control flow. A region in which only the first branch diverges needs no pc ([`uniform`]). Values that cross blocks pass through stack slots, which are promoted at once.

mod tails;
mod uniform;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use elinvar_ir::{
    BlockId, Const, Function, Inst, IntPredicate, Module, Op, Operand, PostDominators, Term, Type, Typed,
    ValueId, predecessors,
};

use crate::Error;
use crate::analysis::cfg::{Cfg, Loop};
use crate::analysis::divergent_barriers::{self, DivergentRegion, has_barrier, is_barrier};
use crate::intrinsic::{Group, GroupCall, GroupOp, Intrinsic};
use crate::support::builder::{Builder, i32_const};
use crate::support::ir::{callee_name, rename_incoming};
use crate::transform::mem2reg;
use uniform::UniformRegion;

/// Maximum number of regions of a function.
const MOST: usize = 256;

/// Maximum number of ends of regions that are duplicated in a function.
const MOST_COPIES: usize = 32;

/// Rewrites the regions of a function of `module`; returns whether there are any.
///
/// # Errors
/// `Malformed` if a region remains.
pub(crate) fn converge(module: &Module, function: &mut Function) -> Result<bool, Error> {
    if !function.block_ids().any(|block| has_barrier(function, block)) {
        return Ok(false);
    }
    let mut split = function.clone();
    split_at_barriers(&mut split);
    let mut copies = 0;
    for number in 0..MOST + MOST_COPIES {
        // Irreducible control flow is rejected where it matters.
        let Ok(cfg) = Cfg::new(&split, BlockId(0), |_| false) else { return Ok(false) };
        let regions = divergent_barriers::regions(module, &split, &cfg);
        let Some(region) = regions.into_iter().next() else {
            if number > 0 {
                *function = split;
            }
            return Ok(number > 0);
        };
        if copies < MOST_COPIES && tails::duplicate(&mut split, &cfg, &region) {
            copies += 1;
            continue;
        }
        Rewrite::new(&mut split, &cfg, &region).run();
        mem2reg::promote(&mut split);
    }
    Err(Error::Malformed("too many regions with barriers that not all threads reach".into()))
}

/// Splits blocks so that each barrier is the first instruction of its block.
fn split_at_barriers(function: &mut Function) {
    let mut index = 0;
    while index < function.blocks.len() {
        let block = BlockId(index as u32);
        index += 1;
        let barrier = function.block(block).insts.iter().skip(1).position(is_barrier);
        let Some(at) = barrier.map(|at| at + 1) else { continue };
        let rest = function.new_block(None);
        let before = function.block_mut(block);
        let insts = before.insts.split_off(at);
        let term = std::mem::replace(&mut before.term, Term::Br(rest));
        let term_metadata = std::mem::take(&mut before.term_metadata);
        rename_incoming(function, &term, block, rest);
        let block = function.block_mut(rest);
        (block.insts, block.term, block.term_metadata) = (insts, term, term_metadata);
    }
}

/// A part of a region: a block, or barrier-free blocks that one block enters and all leave to the same one.
struct Node {
    head: BlockId,
    blocks: BTreeSet<BlockId>,
    /// The only target outside, of more than one block.
    exit: Option<BlockId>,
    /// Whether the head begins with a barrier.
    has_barrier: bool,
}

struct Rewrite<'a> {
    function: &'a mut Function,
    cfg: &'a Cfg,
    region: &'a DivergentRegion,
    /// In topological order.
    nodes: Vec<Node>,
    /// The node of each block of the region.
    node_of: HashMap<BlockId, usize>,
    pc: ValueId,
    /// Slots of values that cross nodes, and the block that defines each.
    slots: BTreeMap<ValueId, (ValueId, BlockId)>,
    /// Slots of the incoming values of phis of nodes' heads and of the join.
    incoming: BTreeMap<ValueId, ValueId>,
    /// Allocas to be added to the entry block.
    allocas: Vec<Inst>,
    /// If the branches between nodes are uniform.
    uniform: Option<UniformRegion>,
}

impl<'a> Rewrite<'a> {
    fn new(function: &'a mut Function, cfg: &'a Cfg, region: &'a DivergentRegion) -> Self {
        let nodes = nodes(function, cfg, region);
        let each = nodes.iter().enumerate().flat_map(|(n, node)| node.blocks.iter().map(move |b| (*b, n)));
        let node_of = each.collect();
        let uniform = UniformRegion::of(function, cfg, region, &nodes, &node_of);
        let (slots, incoming) = (BTreeMap::new(), BTreeMap::new());
        let mut rewrite = Self {
            pc: ValueId(0),
            function,
            cfg,
            region,
            nodes,
            node_of,
            slots,
            incoming,
            allocas: Vec::new(),
            uniform,
        };
        rewrite.pc = rewrite.slot(Type::I32, "pc");
        rewrite
    }

    fn slot(&mut self, ty: Type, name: &str) -> ValueId {
        let result = self.function.new_value(Type::PTR, Some(name));
        let op = Op::Alloca { ty, count: None, align: None, addrspace: 0 };
        self.allocas.push(Inst { result: Some(result), op, metadata: Vec::new() });
        result
    }

    fn run(mut self) {
        self.find_slots();
        self.demote();
        match self.uniform.take() {
            Some(uniform) => self.write_uniform(&uniform),
            None => self.write_chain(),
        }
        self.function.block_mut(BlockId(0)).insts.splice(0..0, self.allocas);
    }

    /// Where a value is available without a slot: in the node of its block, or in the block.
    fn place(&self, block: BlockId) -> (Option<usize>, BlockId) {
        match self.node_of.get(&block) {
            Some(node) => (Some(*node), self.nodes[*node].head),
            None => (None, block),
        }
    }

    fn is_demoted_phi_block(&self, block: BlockId) -> bool {
        self.region.join == Some(block)
            || self.node_of.get(&block).is_some_and(|n| self.nodes[*n].head == block)
    }

    /// Allocates the slots.
    fn find_slots(&mut self) {
        let mut homes: HashMap<ValueId, BlockId> = HashMap::new();
        for block in self.function.block_ids() {
            for result in self.function.block(block).insts.iter().filter_map(|inst| inst.result) {
                homes.insert(result, block);
            }
        }
        let mut crossing: BTreeSet<ValueId> = BTreeSet::new();
        let mut phis: BTreeSet<ValueId> = BTreeSet::new();
        for block in self.function.block_ids() {
            let mut used = |value: ValueId, at: BlockId| {
                let Some(home) = homes.get(&value).copied() else { return };
                let is_inside = |block: BlockId| self.node_of.contains_key(&block);
                // The entry block dominates all others, and the only branch of a uniform region its blocks.
                let dominates = home == BlockId(0) || self.uniform.is_some();
                let crosses = is_inside(home) || is_inside(at) && !dominates;
                if crosses && self.place(home) != self.place(at) {
                    crossing.insert(value);
                }
            };
            let code = self.function.block(block);
            for inst in &code.insts {
                match (&inst.op, inst.result) {
                    (Op::Phi { incoming, .. }, Some(result)) => {
                        incoming.iter().for_each(|(operand, from)| {
                            operand.value().into_iter().for_each(|value| used(value, *from));
                        });
                        if self.is_demoted_phi_block(block) {
                            phis.insert(result);
                        }
                    }
                    (op, _) => {
                        op.operands().into_iter().filter_map(Operand::value).for_each(|v| used(v, block))
                    }
                }
            }
            code.term.operands().into_iter().filter_map(Operand::value).for_each(|v| used(v, block));
        }
        if let Some(uniform) = &self.uniform {
            crossing.retain(|value| !uniform.values.contains(value));
            phis.retain(|value| !uniform.values.contains(value));
        }
        for value in crossing {
            let slot = self.slot(self.function.ty(value).clone(), "crossing");
            self.slots.insert(value, (slot, homes[&value]));
        }
        for phi in phis {
            let slot = self.slot(self.function.ty(phi).clone(), "incoming");
            self.incoming.insert(phi, slot);
        }
    }

    /// Replaces the values that cross nodes, and the phis of heads and of the join, by their slots.
    fn demote(&mut self) {
        let original = self.function.clone();
        // Operands of phis that are kept, at the ends of the blocks that they come from.
        let mut replaced: HashMap<(BlockId, ValueId), ValueId> = HashMap::new();
        for block in original.block_ids() {
            let code = original.block(block);
            let (phis, rest) = code.insts.split_at(phis(&original, block).count());
            let mut out = Vec::new();
            for phi in phis {
                let slot = phi.result.and_then(|result| Some((result, *self.incoming.get(&result)?)));
                out.push(match slot {
                    Some((result, slot)) => load(result, original.ty(result), slot),
                    None => phi.clone(),
                });
            }
            phis.iter().filter_map(|phi| phi.result).for_each(|result| self.save(result, &mut out));
            // What the block uses, loaded at its start.
            let mut here: HashMap<ValueId, ValueId> = HashMap::new();
            let used = rest.iter().flat_map(|inst| inst.op.operands()).chain(code.term.operands());
            let used: BTreeSet<ValueId> = used.filter_map(Operand::value).collect();
            used.into_iter().for_each(|value| self.fetch(value, block, &mut here, &mut out));
            for inst in rest {
                let mut inst = inst.clone();
                inst.op.map_operands(|operand| substitute(operand, &here));
                let result = inst.result;
                out.push(inst);
                result.into_iter().for_each(|result| self.save(result, &mut out));
            }
            // All incoming values are read before any is stored: a value may be another phi of the target.
            let mut stores = Vec::new();
            let targets: BTreeSet<BlockId> = code.term.successors().into_iter().collect();
            for phi in targets.into_iter().flat_map(|to| self::phis(&original, to)) {
                let (Op::Phi { incoming, ty, .. }, Some(result)) = (&phi.op, phi.result) else { continue };
                let Some((operand, _)) = incoming.iter().find(|(_, from)| *from == block) else { continue };
                let mut operand = operand.clone();
                if let Some(value) = operand.value() {
                    self.fetch(value, block, &mut here, &mut out);
                    replaced.extend(here.get(&value).map(|loaded| ((block, value), *loaded)));
                }
                substitute(&mut operand, &here);
                stores.extend(self.incoming.get(&result).map(|slot| store(ty, operand, *slot)));
            }
            out.extend(stores);
            let code = self.function.block_mut(block);
            code.insts = out;
            code.term.map_operands(|operand| substitute(operand, &here));
        }
        for inst in self.function.blocks.iter_mut().flat_map(|block| &mut block.insts) {
            let Op::Phi { incoming, .. } = &mut inst.op else { continue };
            for (operand, from) in incoming {
                if let Some(loaded) = operand.value().and_then(|value| replaced.get(&(*from, value))) {
                    *operand = (*loaded).into();
                }
            }
        }
    }

    /// Stores a value that crosses nodes after its definition.
    fn save(&self, value: ValueId, out: &mut Vec<Inst>) {
        if let Some((slot, _)) = self.slots.get(&value) {
            out.push(store(self.function.ty(value), value.into(), *slot));
        }
    }

    /// Loads a value that crosses nodes, unless the block is in the node that defines it.
    fn fetch(
        &mut self,
        value: ValueId,
        block: BlockId,
        here: &mut HashMap<ValueId, ValueId>,
        out: &mut Vec<Inst>,
    ) {
        let Some((slot, home)) = self.slots.get(&value).copied() else { return };
        if self.place(home) == self.place(block) || here.contains_key(&value) {
            return;
        }
        let ty = self.function.ty(value).clone();
        let loaded = self.function.new_value(ty.clone(), None);
        out.push(load(loaded, &ty, slot));
        here.insert(value, loaded);
    }

    /// Connects the nodes in order.
    fn write_chain(&mut self) {
        let guards: Vec<BlockId> = self.nodes.iter().map(|_| self.function.new_block(None)).collect();
        let end = self.function.new_block(None);
        self.function.block_mut(end).term = self.region.join.map_or(Term::Ret(None), Term::Br);
        // From the last node, for the blocks behind each.
        let loops = self.loops();
        for number in (0..self.nodes.len()).rev() {
            let mut next = guards.get(number + 1).copied().unwrap_or(end);
            for header in loops.iter().filter(|(_, last)| *last == number).map(|(header, _)| *header) {
                let latch = self.function.new_block(None);
                let mut b = Builder::new(self.function, latch);
                let is_there = is_at(&mut b, self.pc, header);
                let any = any(&mut b, is_there);
                b.cond_br(any, guards[header], next);
                next = latch;
            }
            self.write_node(number, guards[number], next);
        }
        self.write_entries(guards[0]);
    }

    /// The loops that are not within a node: the nodes of the header and of the end, outer loops first.
    fn loops(&self) -> Vec<(usize, usize)> {
        let mut loops = Vec::new();
        for (l, _) in self.cfg.loops.iter().enumerate() {
            let header = self.cfg.loops[l].header;
            let Some(node) = self.node_of.get(&header).copied() else { continue };
            let inside = |node: &Node| self.cfg.contains(l, node.head);
            let last = self.nodes.iter().rposition(inside).unwrap_or(node);
            let is_whole = last == node
                && self.cfg.loops[l]
                    .latches
                    .iter()
                    .all(|latch| self.nodes[node].exit.is_some() && self.nodes[node].blocks.contains(latch));
            if !is_whole {
                loops.push((node, last));
            }
        }
        loops
    }

    /// A node, entered from its guard by the lanes whose pc it is. All lanes continue at `next`.
    fn write_node(&mut self, number: usize, guard: BlockId, next: BlockId) {
        let Node { head, blocks, exit, has_barrier } = &self.nodes[number];
        let barrier = has_barrier.then(|| self.function.block_mut(*head).insts.iter().position(is_barrier));
        let barrier = barrier.flatten().map(|at| self.function.block_mut(*head).insts.remove(at));
        let pc = self.pc;
        let mut b = Builder::new(self.function, guard);
        let is_here = is_at(&mut b, pc, number);
        if let Some(barrier) = barrier {
            let arrived = b.f.new_block(None);
            let any = any(&mut b, is_here);
            b.cond_br(any, arrived, next);
            b.at = arrived;
            b.push(barrier);
        }
        b.cond_br(is_here, *head, next);
        let target =
            |to: BlockId| i32_const(self.node_of.get(&to).copied().unwrap_or(self.nodes.len()) as u32);
        if let Some(exit) = exit {
            b.at = b.f.new_block(None);
            b.store(Type::I32, target(*exit), pc);
            b.br(next);
            let tail = b.at;
            for block in blocks {
                let term = &mut self.function.block_mut(*block).term;
                term.map_successors(|to| if to == *exit { tail } else { to });
            }
            return;
        }
        b.at = *head;
        let onward: Operand = match b.f.block(*head).term.clone() {
            Term::Br(to) => target(to).into(),
            Term::CondBr { cond, then, other } => {
                b.select(&Type::I32, cond, target(then), target(other)).into()
            }
            Term::Switch { value, default, cases } => {
                cases.iter().fold(target(default).into(), |otherwise: Operand, (case, to)| {
                    let is_case = b.icmp(IntPredicate::Eq, &value.ty, value.op.clone(), case.clone());
                    b.select(&Type::I32, is_case, target(*to), otherwise).into()
                })
            }
            Term::Ret(_) | Term::Unreachable => i32_const(self.nodes.len() as u32).into(),
        };
        b.store(Type::I32, onward, pc);
        b.br(next);
    }

    /// Redirects the edges into the region, and those of its branches, to its first guard.
    fn write_entries(&mut self, first: BlockId) {
        for block in self.cfg.order.iter().copied().filter(|block| !self.region.blocks.contains(block)) {
            let is_branch = self.region.branches.contains(&block);
            let targets: BTreeSet<BlockId> =
                self.function.block(block).term.successors().into_iter().collect();
            for to in targets.into_iter().filter(|to| is_branch || self.node_of.contains_key(to)) {
                let number = self.node_of.get(&to).copied().unwrap_or(self.nodes.len());
                let edge = self.function.new_block(None);
                let mut b = Builder::new(self.function, edge);
                b.store(Type::I32, i32_const(number as u32), self.pc);
                b.br(first);
                self.function.block_mut(block).term.map_successors(|s| if s == to { edge } else { s });
            }
        }
    }
}

/// The nodes of a region: as large as possible.
fn nodes(function: &Function, cfg: &Cfg, region: &DivergentRegion) -> Vec<Node> {
    let post = PostDominators::compute(function);
    let before = predecessors(function);
    let mut nodes: Vec<Node> = Vec::new();
    let mut taken: HashSet<BlockId> = HashSet::new();
    for head in cfg.order.iter().copied().filter(|block| region.blocks.contains(block)) {
        if taken.contains(&head) {
            continue;
        }
        let has_barrier = has_barrier(function, head);
        let mut node = Node { head, blocks: BTreeSet::from([head]), exit: None, has_barrier };
        let exits = std::iter::successors(post.ipdom(head), |block| post.ipdom(*block));
        for exit in exits.take_while(|exit| region.blocks.contains(exit) || region.join == Some(*exit)) {
            let blocks = divergent_barriers::reachable(function, vec![head], Some(exit));
            let mut inner = blocks.iter().filter(|block| **block != head);
            if inner.any(|block| divergent_barriers::has_barrier(function, *block)) {
                break;
            }
            let comes_from_inside = |block: &BlockId| {
                let mut from = before[block.0 as usize].iter().filter(|from| cfg.reaches(**from));
                match *block == head {
                    true => !has_barrier || from.all(|from| !blocks.contains(from)),
                    false => from.all(|from| blocks.contains(from)),
                }
            };
            if blocks.iter().all(comes_from_inside) {
                (node.blocks, node.exit) = (blocks, Some(exit));
            }
            if region.join == Some(exit) {
                break;
            }
        }
        taken.extend(&node.blocks);
        nodes.push(node);
    }
    barriers_last(function, cfg, nodes)
}

/// Moves nodes without a barrier before those with one that do not lead to them: what lanes do before they leave, others may expect
/// behind their barrier. A node that leaves a loop from its middle is moved into the loop, so that its lanes run it in their iteration, unless
/// it has functions of a simdgroup, for which the lanes of all iterations wait for each other.
fn barriers_last(function: &Function, cfg: &Cfg, nodes: Vec<Node>) -> Vec<Node> {
    let mut ordered: Vec<Node> = Vec::new();
    for node in nodes {
        let leads = |from: &Node| {
            let mut edges =
                from.blocks.iter().filter(|b| function.block(**b).term.successors().contains(&node.head));
            edges.any(|block| !cfg.is_back_edge(*block, node.head))
        };
        let at = ordered.iter().rposition(leads).map_or(0, |last| last + 1);
        let exchanges = node.blocks.iter().any(|block| has_group_call(function, *block));
        let stays =
            |l: usize| cfg.contains(l, node.head) || !exchanges && leaves_from_the_middle(cfg, &node, l);
        let is_in_place = at == 0 || cfg.loops_around(ordered[at - 1].head).all(stays);
        let passes_barrier = ordered[at..].iter().any(|other| other.has_barrier);
        match is_in_place && passes_barrier && !node.has_barrier {
            true => ordered.insert(at, node),
            false => ordered.push(node),
        }
    }
    ordered
}

/// Whether a node outside of a loop is entered from one of its blocks, and others leave the loop at its header or its end.
fn leaves_from_the_middle(cfg: &Cfg, node: &Node, l: usize) -> bool {
    let mut from = cfg.predecessors[node.head.0 as usize].iter().filter(|from| cfg.reaches(**from));
    let (Some(middle), None) = (from.next(), from.next()) else { return false };
    let Loop { header, latches, .. } = &cfg.loops[l];
    let mut ends = latches.iter().chain([header]).filter(|end| *end != middle);
    let leaves = |end: &BlockId| cfg.successors[end.0 as usize].iter().any(|to| !cfg.contains(l, *to));
    cfg.contains(l, *middle) && ends.any(leaves)
}

/// Whether a block calls a function of a simdgroup.
fn has_group_call(function: &Function, block: BlockId) -> bool {
    let calls_any = |inst: &Inst| match &inst.op {
        Op::Call(call) => matches!(
            callee_name(call).and_then(Intrinsic::parse),
            Some(Intrinsic::Group(_) | Intrinsic::SimdgroupBarrier)
        ),
        _ => false,
    };
    function.block(block).insts.iter().any(calls_any)
}

fn phis(function: &Function, block: BlockId) -> impl Iterator<Item = &Inst> {
    function.block(block).insts.iter().take_while(|inst| matches!(inst.op, Op::Phi { .. }))
}

fn substitute(operand: &mut Operand, by: &HashMap<ValueId, ValueId>) {
    if let Some(new) = operand.value().and_then(|value| by.get(&value)) {
        *operand = (*new).into();
    }
}

fn load(result: ValueId, ty: &Type, slot: ValueId) -> Inst {
    let ptr = Typed::new(Type::PTR, slot);
    let op = Op::Load { ty: ty.clone(), ptr, align: None, volatile: false, atomic: None };
    Inst { result: Some(result), op, metadata: Vec::new() }
}

fn store(ty: &Type, value: Operand, slot: ValueId) -> Inst {
    let (value, ptr) = (Typed::new(ty.clone(), value), Typed::new(Type::PTR, slot));
    let op = Op::Store { value, ptr, align: None, volatile: false, atomic: None };
    Inst { result: None, op, metadata: Vec::new() }
}

/// Whether the lane's pc is a node.
fn is_at(b: &mut Builder<'_>, pc: ValueId, node: usize) -> ValueId {
    let at = b.load(Type::I32, pc, None);
    b.icmp(IntPredicate::Eq, &Type::I32, at, i32_const(node as u32))
}

/// Whether a condition holds for any active lane of the simdgroup.
fn any(b: &mut Builder<'_>, condition: impl Into<Operand>) -> ValueId {
    let ballot = GroupCall { op: GroupOp::Ballot, group: Group::Simdgroup, element: None };
    let name = Intrinsic::Group(ballot).name();
    let mask = b.call(Type::I64, &name, &[(Type::I1, condition.into())]);
    b.icmp(IntPredicate::Ne, &Type::I64, mask, Const::int(64, 0))
}
