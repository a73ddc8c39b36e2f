//! Masks of converged lanes of a simdgroup for each block, for votes, shuffles and reductions.
//!
//! The hardware does not guarantee that diverged lanes reconverge, so masks do not depend on which lanes happen to execute
//! together. They are computed from branches alone:
//!
//! - If every lane that reached a dominating block reaches this one, within the same iteration, the mask is that block's.
//! - After a branch it is the ballot of the preceding lanes on the branch's condition.
//! - Otherwise, at joins that not all lanes reach, all lanes of a dominator vote: with yes on the edges into the block, with no on the
//!   edges that bypass it. It is the nearest dominator whose lanes come by such an edge before they leave the blocks that it dominates.
//! - The lanes of a loop's next iteration are those of its latch that take the back edge. The lanes of a loop with several latches
//!   vote on the back edges and on the exits.
//!
//! Lanes do not vote on the way to a return without group operations. Those that remain may wait for them at a barrier before the
//! vote, and a vote does not wait for lanes that have exited.
//!
//! Blocks are in an order that all edges except back edges follow; a vote is due on an edge that passes its position in that
//! order. Every lane therefore casts the votes that it shares with others in the same order, and each vote waits for the lanes of
//! its mask that have not exited (PTX ISA, "vote.sync": from sm_70 on they need not be at one instruction). Uniform branches
//! ([`divergence`](crate::analysis::divergence)) need no votes.

use std::collections::{BTreeMap, HashMap};

use elinvar_ir::{BinaryOp, BlockId, Const, Function, Inst, IntPredicate, Op, Operand, Term, Type, ValueId};

use crate::analysis::cfg::Cfg;
use crate::analysis::divergence::DivergenceAnalysis;
use crate::support::builder::{Builder, call, i32_const};
use crate::support::ir::callee_name;

const VOTE: &str = "llvm.nvvm.vote.ballot.sync";

/// Position of a vote in the order: at a block, or at the end of a loop, inner loops first.
type Place = (usize, usize);

/// A vote on an edge.
struct Vote {
    mask: Operand,
    yes: bool,
    result: ValueId,
}

/// Computes masks on demand; [`ActiveMasks::write`] inserts them into the function.
pub(super) struct ActiveMasks<'f> {
    function: &'f mut Function,
    cfg: Cfg,
    divergence: DivergenceAnalysis,
    /// By block: whether all paths from it end in a return without a group operation or a loop.
    returns: Vec<bool>,
    known: HashMap<BlockId, Operand>,
    /// Votes by edge, in order.
    votes: BTreeMap<(BlockId, BlockId), BTreeMap<Place, Vote>>,
    /// Votes on a branch, at the end of its block: for a mask, the results by successor.
    branches: BTreeMap<BlockId, (Operand, Vec<(BlockId, ValueId)>)>,
    /// Masks that are phis over the incoming edges of a block.
    joins: BTreeMap<BlockId, (ValueId, Vec<(BlockId, Operand)>)>,
}

impl<'f> ActiveMasks<'f> {
    /// `first` is the block in which all lanes of `mask` begin.
    pub fn new(
        function: &'f mut Function,
        cfg: Cfg,
        divergence: DivergenceAnalysis,
        first: BlockId,
        mask: Operand,
    ) -> Self {
        let returns = returns(function, &cfg);
        let known = HashMap::from([(first, mask)]);
        let (votes, branches, joins) = Default::default();
        Self { function, cfg, divergence, returns, known, votes, branches, joins }
    }

    /// The mask of a block.
    pub fn of(&mut self, block: BlockId) -> Operand {
        if let Some(mask) = self.known.get(&block) {
            return mask.clone();
        }
        if let Some(l) = self.cfg.loop_of(block) {
            // The mask of a header needs those of blocks of its loop.
            let header = self.cfg.loops[l].header;
            if header != block {
                self.of(header);
            }
            if let Some(mask) = self.known.get(&block) {
                return mask.clone();
            }
        }
        let header = self.cfg.header_of(block);
        let parted = header.filter(|l| self.parts_lanes(*l));
        match parted {
            None => {
                let mask = self.entered(block);
                if let (Some(l), Some((_, incoming))) = (header, self.joins.get_mut(&block)) {
                    incoming.extend(self.cfg.loops[l].latches.iter().map(|from| (*from, mask.clone())));
                }
                self.known.insert(block, mask.clone());
                mask
            }
            Some(l) => self.looped(block, l),
        }
    }

    /// Whether a loop has a divergent exit.
    fn parts_lanes(&self, l: usize) -> bool {
        let leaves = |block: &BlockId| {
            self.divergence.is_divergent(*block)
                && self.cfg.contains(l, *block)
                && self.cfg.successors[block.0 as usize].iter().any(|to| !self.cfg.contains(l, *to))
        };
        self.cfg.order.iter().any(leaves)
    }

    /// The innermost loop of a block; of a header, on entry, the enclosing loop.
    fn home(&self, block: BlockId) -> Option<usize> {
        match self.cfg.header_of(block) {
            Some(l) => self.cfg.loops[l].parent,
            None => self.cfg.loop_of(block),
        }
    }

    /// The mask on entry to a block, by edges other than back edges.
    fn entered(&mut self, block: BlockId) -> Operand {
        let home = self.home(block);
        let dominators: Vec<BlockId> =
            std::iter::successors(self.cfg.idom(block), |b| self.cfg.idom(*b)).collect();
        let near = dominators.iter().copied().find(|d| self.cfg.loop_of(*d) == home);
        let same = |d: &BlockId| self.cfg.loop_of(*d) == home && self.cfg.post_dominates(block, *d);
        if let Some(d) = dominators.iter().copied().find(same) {
            return self.of(d);
        }
        let entries: Vec<BlockId> = self.cfg.entries(block).collect();
        if let [from] = entries[..]
            && self.cfg.loop_of(from) == home
        {
            return self.behind_branch(from, block);
        }
        let Some(near) = near else { return self.known_first() };
        if !self.is_parted_between(near, block) {
            return self.of(near);
        }
        let is_voter = |d: &BlockId| self.cfg.loop_of(*d) == home && self.all_pass(*d, block);
        let voter = dominators.iter().copied().find(is_voter).unwrap_or(near);
        let mask = self.of(voter);
        self.vote(block, &mask, voter);
        let incoming = entries.iter().map(|from| (*from, self.result((*from, block), self.place(block))));
        let incoming: Vec<(BlockId, Operand)> = incoming.collect();
        let join = self.function.new_value(Type::I32, None);
        self.joins.insert(block, (join, incoming));
        join.into()
    }

    /// The first block dominates all others and is in no loop.
    fn known_first(&self) -> Operand {
        Const::int(32, -1).into()
    }

    /// The mask of a loop's header in each iteration.
    fn looped(&mut self, header: BlockId, l: usize) -> Operand {
        let entered = self.entered(header);
        let mask = self.function.new_value(Type::I32, None);
        self.known.insert(header, mask.into());
        let next: Vec<(BlockId, Operand)> = match self.cfg.loops[l].latches[..] {
            [latch] if self.cfg.loop_of(latch) == Some(l) => vec![(latch, self.behind_branch(latch, header))],
            _ => self.vote_at_end(header, l, &mask.into()),
        };
        let entries = self.cfg.entries(header).map(|from| (from, entered.clone()));
        let mut incoming: Vec<(BlockId, Operand)> = entries.collect();
        // A header whose entry mask is voted has a value for each edge.
        if let Some((join, by_edge)) = self.joins.remove(&header)
            && entered == Operand::Value(join)
        {
            incoming = by_edge;
        }
        incoming.extend(next);
        self.joins.insert(header, (mask, incoming));
        mask.into()
    }

    /// Adds a vote of the lanes of an iteration on whether they begin the next one. Returns the results by latch.
    fn vote_at_end(&mut self, header: BlockId, l: usize, mask: &Operand) -> Vec<(BlockId, Operand)> {
        let place = self.end_of(l);
        let votes = |(from, to): &(BlockId, BlockId)| {
            self.cfg.contains(l, *from) && (*to == header || !self.cfg.contains(l, *to))
        };
        let edges: Vec<(BlockId, BlockId)> = self.edges().filter(votes).collect();
        for (from, to) in edges {
            self.add((from, to), place, mask.clone(), to == header);
        }
        let latches = self.cfg.loops[l].latches.iter();
        latches.map(|from| (*from, self.result((*from, header), place))).collect()
    }

    /// The mask of an edge.
    fn behind_branch(&mut self, from: BlockId, to: BlockId) -> Operand {
        let mask = self.of(from);
        if !self.divergence.is_divergent(from) {
            return mask;
        }
        let result = self.function.new_value(Type::I32, None);
        self.branches.entry(from).or_insert_with(|| (mask, Vec::new())).1.push((to, result));
        result.into()
    }

    /// Whether lanes may diverge between a block and one that it dominates.
    fn is_parted_between(&self, from: BlockId, to: BlockId) -> bool {
        let (first, last) = (self.cfg.position(from), self.cfg.position(to));
        self.cfg.order[first..last].iter().any(|b| self.divergence.is_divergent(*b))
    }

    /// Whether all lanes of `near` take an edge that passes the position of `block`, which it dominates, before one out of the blocks
    /// that it dominates.
    fn all_pass(&self, near: BlockId, block: BlockId) -> bool {
        let at = self.cfg.position(block);
        let leaves = |(from, to): (BlockId, BlockId)| {
            self.cfg.dominates(near, from)
                && !self.cfg.dominates(near, to)
                && !self.cfg.is_back_edge(from, to)
                && self.cfg.position(to) < at
        };
        !self.edges().any(leaves)
    }

    fn place(&self, block: BlockId) -> Place {
        (self.cfg.position(block), 0)
    }

    fn end_of(&self, l: usize) -> Place {
        let outer = std::iter::successors(self.cfg.loops[l].parent, |o| self.cfg.loops[*o].parent).count();
        (self.cfg.position(self.cfg.loops[l].last), usize::MAX - outer)
    }

    fn edges(&self) -> impl Iterator<Item = (BlockId, BlockId)> {
        self.cfg
            .order
            .iter()
            .flat_map(|from| self.cfg.successors[from.0 as usize].iter().map(|to| (*from, *to)))
    }

    /// Adds a vote of the lanes of `mask`, which are converged in `near`, on whether they reach `block`.
    fn vote(&mut self, block: BlockId, mask: &Operand, near: BlockId) {
        let at = self.cfg.position(block);
        let passes = |(from, to): &(BlockId, BlockId)| {
            let (begin, end) = (self.cfg.position(*from), self.cfg.position(*to));
            let ahead = self.cfg.dominates(near, *from) && begin < at;
            // To the header of a loop around both, to the block, or to one after it.
            ahead
                && match self.cfg.is_back_edge(*from, *to) {
                    true => end <= self.cfg.position(near),
                    false => end >= at,
                }
        };
        let edges: Vec<(BlockId, BlockId)> = self.edges().filter(passes).collect();
        for (from, to) in edges {
            self.add((from, to), self.place(block), mask.clone(), to == block);
        }
    }

    /// Adds a vote on an edge; none with no on the way to a return.
    fn add(&mut self, edge: (BlockId, BlockId), place: Place, mask: Operand, yes: bool) {
        if !yes && self.returns[edge.1.0 as usize] {
            return;
        }
        let result = self.function.new_value(Type::I32, None);
        self.votes.entry(edge).or_default().insert(place, Vote { mask, yes, result });
    }

    fn result(&self, edge: (BlockId, BlockId), place: Place) -> Operand {
        let vote = self.votes.get(&edge).and_then(|votes| votes.get(&place));
        vote.map_or_else(|| self.known_first(), |vote| vote.result.into())
    }

    /// Inserts the computed masks into the function.
    pub fn write(self) {
        let Self { function, votes, branches, joins, .. } = self;
        for (block, (mask, results)) in branches {
            for (to, result) in results {
                vote_on_branch(function, block, to, &mask, result);
            }
        }
        for (block, (value, incoming)) in joins {
            // Once for each edge: a switch may have several.
            let edges = |from: BlockId| {
                let targets = function.block(from).term.successors();
                targets.into_iter().filter(|to| *to == block).count()
            };
            let each = |(from, mask): (BlockId, Operand)| vec![(mask, from); edges(from)];
            let incoming = incoming.into_iter().flat_map(each).collect();
            let op = Op::Phi { flags: String::new(), ty: Type::I32, incoming };
            let phi = Inst { result: Some(value), op, metadata: Vec::new() };
            function.block_mut(block).insts.insert(0, phi);
        }
        for ((from, to), votes) in votes {
            let between = split_edge(function, from, to);
            for vote in votes.into_values() {
                let args = [(Type::I32, vote.mask), (Type::I1, Const::int(1, vote.yes.into()).into())];
                let op = call(Type::I32, VOTE, &args);
                let inst = Inst { result: Some(vote.result), op, metadata: Vec::new() };
                function.block_mut(between).insts.push(inst);
            }
        }
    }
}

/// By block: whether all paths from it end in a return without a group operation or a loop.
fn returns(function: &Function, cfg: &Cfg) -> Vec<bool> {
    let is_plain = |inst: &Inst| match &inst.op {
        Op::Call(call) => {
            callee_name(call).is_some_and(|name| name.starts_with("llvm.") && !name.starts_with("llvm.nvvm."))
        }
        _ => true,
    };
    let mut returns = vec![false; function.blocks.len()];
    // Outside of loops, successors are behind a block in the order.
    for block in cfg.order.iter().rev().filter(|block| cfg.loop_of(**block).is_none()) {
        returns[block.0 as usize] = function.block(*block).insts.iter().all(is_plain)
            && cfg.successors[block.0 as usize].iter().all(|to| returns[to.0 as usize]);
    }
    returns
}

/// Adds a vote of the lanes of `mask`, at the end of a block, on whether its branch goes to `to`.
fn vote_on_branch(function: &mut Function, block: BlockId, to: BlockId, mask: &Operand, result: ValueId) {
    let term = function.block(block).term.clone();
    let mut b = Builder::new(function, block);
    let goes = match &term {
        Term::CondBr { cond, then, .. } if *then == to => cond.clone(),
        Term::CondBr { cond, .. } => {
            b.binary(BinaryOp::Xor, "", &Type::I1, cond.clone(), Const::int(1, 1)).into()
        }
        Term::Switch { value, default, cases } => {
            // Whether it is one of the cases for `to`; for the default, none of the others.
            let wanted = |(_, target): &&(Const, BlockId)| (*target == to) != (*default == to);
            let mut any: Operand = Const::int(1, 0).into();
            for (case, _) in cases.iter().filter(wanted) {
                let is = b.icmp(IntPredicate::Eq, &value.ty, value.op.clone(), case.clone());
                any = b.binary(BinaryOp::Or, "", &Type::I1, any, is).into();
            }
            match *default == to {
                true => b.binary(BinaryOp::Xor, "", &Type::I1, any, Const::int(1, 1)).into(),
                false => any,
            }
        }
        _ => Const::int(1, 1).into(),
    };
    let op = call(Type::I32, VOTE, &[(Type::I32, mask.clone()), (Type::I1, goes)]);
    b.push(Inst { result: Some(result), op, metadata: Vec::new() });
}

/// A new block on an edge.
fn split_edge(function: &mut Function, from: BlockId, to: BlockId) -> BlockId {
    let between = function.new_block(None);
    function.block_mut(between).term = Term::Br(to);
    function.block_mut(from).term.map_successors(|s| if s == to { between } else { s });
    for inst in &mut function.block_mut(to).insts {
        let Op::Phi { incoming, .. } = &mut inst.op else { break };
        // A switch may have had several edges to it; now it has one.
        let mut seen = false;
        incoming.retain(|(_, block)| *block != from || !std::mem::replace(&mut seen, true));
        for (_, block) in incoming.iter_mut().filter(|(_, block)| *block == from) {
            *block = between;
        }
    }
    between
}

/// Ballot of a condition over all lanes, appended to a block.
pub(super) fn vote_of_all(b: &mut Builder<'_>, condition: impl Into<Operand>) -> ValueId {
    b.call(Type::I32, VOTE, &[(Type::I32, i32_const(u32::MAX).into()), (Type::I1, condition.into())])
}
