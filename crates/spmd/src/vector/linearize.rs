//! The order in which the masked copy of a region runs its blocks: partial linearisation.
//!
//! Where lanes part, all sides are run one after the other, each for its own lanes; branches that no lane takes
//! apart stay branches. Nodes are numbered in the region's order. Whatever lanes may still have to go to is
//! pending; control always goes on to the first node among what it could go to and what is pending, and the rest
//! stays pending there (Moll and Hack, Partial Control-Flow Linearization, 2018).
//!
//! A loop that lanes leave in different iterations has a node at its end, which goes round while a lane is left
//! inside. What leaves the region stands at the end: returns, arrivals at barriers, the end itself.

use std::collections::{BTreeSet, HashMap, HashSet};

use elinvar_ir::{BlockId, Function, Term};

use crate::analysis::cfg::Flow;
use crate::analysis::mask_classes::Masks;

/// A node's number.
pub(crate) type NodeId = usize;

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    Block(BlockId),
    /// The end of a loop that lanes leave in different iterations.
    LoopEnd(usize),
    Return,
    Barrier(usize),
    End,
}

/// Where control goes from a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Onward {
    /// Every lane takes the same edge: per successor, where the edge leads and where control goes.
    Together(Vec<(BlockId, Target, NodeId)>),
    /// Lanes take different edges; control goes on to one node.
    Apart(Vec<(BlockId, Target)>, NodeId),
    /// The node has no edges of its own, or one.
    To(Option<Target>, NodeId),
}

/// Where an edge leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Node(NodeId),
    /// Round again, in a loop that all lanes leave together: to the header.
    Again(BlockId),
}

/// The plan of a region.
pub(crate) struct Plan {
    pub nodes: Vec<Node>,
    pub number: HashMap<Node, NodeId>,
    /// Where control goes from each node when its lanes have run it.
    pub onward: Vec<Onward>,
    /// Where control goes instead of a node for which no lane is active, if that is looked at.
    pub skip: Vec<Option<NodeId>>,
}

/// What the plan needs to know of a region.
pub(crate) struct Shape<'a> {
    pub function: &'a Function,
    pub flow: &'a Flow,
    pub masks: &'a Masks,
    pub divergent: &'a [bool],
    /// The barrier behind a block.
    pub barrier_after: &'a dyn Fn(BlockId) -> Option<usize>,
    /// Whether it matters who has returned.
    pub returns: bool,
    /// The blocks that may be skipped.
    pub skippable: &'a dyn Fn(BlockId) -> bool,
}

impl Plan {
    pub fn new(shape: &Shape<'_>) -> Self {
        let nodes = nodes(shape);
        let number: HashMap<Node, NodeId> = nodes.iter().enumerate().map(|(i, n)| (*n, i)).collect();
        let end = nodes.len() - 1;
        let mut pending: Vec<BTreeSet<NodeId>> = vec![BTreeSet::new(); nodes.len()];
        pending[0].insert(end);
        let mut plan = Self { nodes, number, onward: Vec::new(), skip: Vec::new() };
        for at in 0..plan.nodes.len() {
            let mut waiting = pending[at].clone();
            // However lanes leave such a loop, its end sees to it that all of them have.
            waiting.extend(shape.loop_end(plan.nodes[at]).map(|node| plan.number[&node]));
            let mut go = |targets: &[NodeId]| {
                let all: BTreeSet<NodeId> = waiting.iter().chain(targets).copied().collect();
                let next = all.first().copied().unwrap_or(end);
                pending[next].extend(all.into_iter().filter(|n| *n != next));
                next
            };
            let node = plan.nodes[at];
            let skip = match node {
                Node::Block(block) if (shape.skippable)(block) => Some(go(&[])),
                _ => None,
            };
            let onward = match node {
                Node::Block(block) => plan.after_block(shape, block, &mut go),
                Node::LoopEnd(_) | Node::Return | Node::Barrier(_) => Onward::To(None, go(&[])),
                Node::End => Onward::To(None, end),
            };
            plan.skip.push(skip);
            plan.onward.push(onward);
        }
        plan
    }

    /// The blocks that must have a mask of their own for this plan to be right.
    ///
    /// A block may stand in the way of lanes that do not go there: what is pending on one way to a node is so on
    /// all of them. So a block to which a branch leads that all lanes take together, if other nodes come before
    /// it; and a block of a class whose first block may not have been run on the way.
    pub fn lacking_masks(&self, shape: &Shape<'_>) -> HashSet<BlockId> {
        let mut lacking = HashSet::new();
        let mut add = |block: BlockId| {
            if !shape.masks.is_own(block) {
                lacking.insert(block);
            }
        };
        let mut known: Vec<Option<Run>> = vec![None; self.nodes.len()];
        known[0] = Some(Run::new(self.nodes.len()));
        for at in 0..self.nodes.len() {
            let Some(mut run) = known[at].take() else { continue };
            if let Node::Block(block) = self.nodes[at] {
                if shape.masks.is_own(block) {
                    run.add(at);
                } else if !run.has(self.number[&Node::Block(shape.masks.of(block))]) {
                    add(block);
                }
            }
            if let Some(skip) = self.skip[at] {
                meet(&mut known[skip], &run);
            }
            if let Node::Block(block) = self.nodes[at]
                && shape.divergent[block.0 as usize]
            {
                // The copy for all lanes comes in here, with the masks of what dominates the block set.
                let mut set = Run::new(self.nodes.len());
                let above = std::iter::successors(Some(block), |b| shape.flow.idom(*b));
                above.filter(|b| shape.masks.is_own(*b)).for_each(|b| set.add(self.number[&Node::Block(b)]));
                run.meet(&set);
            }
            match &self.onward[at] {
                Onward::Together(edges) => {
                    for (to, target, next) in edges {
                        if let Target::Node(node) = target {
                            if node != next && matches!(self.nodes[*node], Node::Block(_)) {
                                add(*to);
                            }
                            meet(&mut known[*next], &run);
                        }
                    }
                }
                Onward::Apart(_, next) | Onward::To(_, next) if *next > at => meet(&mut known[*next], &run),
                Onward::Apart(..) | Onward::To(..) => {}
            }
        }
        lacking
    }

    fn after_block(
        &self,
        shape: &Shape<'_>,
        block: BlockId,
        go: &mut dyn FnMut(&[NodeId]) -> NodeId,
    ) -> Onward {
        if let Some(barrier) = (shape.barrier_after)(block) {
            let node = self.number[&Node::Barrier(barrier)];
            return Onward::To(Some(Target::Node(node)), go(&[node]));
        }
        let end = self.nodes.len() - 1;
        if let Term::Ret(_) | Term::Unreachable = shape.function.block(block).term {
            let target = self.number.get(&Node::Return).copied().unwrap_or(end);
            return Onward::To(Some(Target::Node(target)), go(&[target]));
        }
        let target = |to: BlockId| {
            if !shape.flow.is_back_edge(block, to) {
                return Target::Node(self.number[&Node::Block(to)]);
            }
            let l = shape.flow.header_of(to).filter(|l| shape.masks.divergent_loops[*l]);
            l.map_or(Target::Again(to), |l| Target::Node(self.number[&Node::LoopEnd(l)]))
        };
        let edges: Vec<(BlockId, Target)> =
            shape.flow.successors[block.0 as usize].iter().map(|to| (*to, target(*to))).collect();
        let number = |target: &Target| match target {
            Target::Node(node) => *node,
            Target::Again(header) => self.number[&Node::Block(*header)],
        };
        if shape.divergent[block.0 as usize] && edges.len() > 1 {
            let all: Vec<NodeId> = edges.iter().map(|(_, t)| number(t)).collect();
            let next = go(&all);
            return Onward::Apart(edges, next);
        }
        let together = edges.into_iter().map(|(to, target)| {
            let next = match target {
                Target::Again(_) => number(&target),
                Target::Node(node) => go(&[node]),
            };
            (to, target, next)
        });
        Onward::Together(together.collect())
    }
}

/// Nodes that have been run on every way.
#[derive(Clone)]
struct Run(Vec<u64>);

impl Run {
    fn new(nodes: usize) -> Self {
        Self(vec![0; nodes.div_ceil(64)])
    }

    fn add(&mut self, node: NodeId) {
        self.0[node / 64] |= 1 << (node % 64);
    }

    fn has(&self, node: NodeId) -> bool {
        self.0[node / 64] >> (node % 64) & 1 == 1
    }

    fn meet(&mut self, other: &Run) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a &= b);
    }
}

fn meet(at: &mut Option<Run>, run: &Run) {
    match at {
        Some(known) => known.meet(run),
        None => *at = Some(run.clone()),
    }
}

impl Shape<'_> {
    /// The end of the loop that begins with a node and that lanes leave in different iterations.
    fn loop_end(&self, node: Node) -> Option<Node> {
        let Node::Block(block) = node else { return None };
        let l = self.flow.header_of(block).filter(|l| self.masks.divergent_loops[*l])?;
        Some(Node::LoopEnd(l))
    }
}

fn nodes(shape: &Shape<'_>) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut barriers = BTreeSet::new();
    for block in &shape.flow.order {
        nodes.push(Node::Block(*block));
        let ended = shape.flow.loops_around(*block).filter(|l| shape.flow.loops[*l].last == *block);
        nodes.extend(ended.filter(|l| shape.masks.divergent_loops[*l]).map(Node::LoopEnd));
        barriers.extend((shape.barrier_after)(*block));
    }
    if shape.returns {
        nodes.push(Node::Return);
    }
    nodes.extend(barriers.into_iter().map(Node::Barrier));
    nodes.push(Node::End);
    nodes
}

#[cfg(test)]
mod tests {
    use elinvar_ir::{Operand, Type};

    use super::*;

    fn plan(edges: &[&[u32]], apart: &[u32]) -> Plan {
        let mut f = Function::new("f", Type::Void);
        for to in edges {
            let block = f.new_block(None);
            f.block_mut(block).term = match to {
                [] => Term::Ret(None),
                [a] => Term::Br(BlockId(*a)),
                [a, b, ..] => {
                    Term::CondBr { cond: Operand::int(1, 1), then: BlockId(*a), other: BlockId(*b) }
                }
            };
        }
        let flow = Flow::new(&f, BlockId(0), |_| false).unwrap();
        let divergent: Vec<bool> = (0..edges.len() as u32).map(|b| apart.contains(&b)).collect();
        let masks = Masks::new(&flow, &divergent);
        Plan::new(&Shape {
            function: &f,
            flow: &flow,
            masks: &masks,
            divergent: &divergent,
            barrier_after: &|_| None,
            returns: false,
            skippable: &|block| masks.is_own(block),
        })
    }

    fn next(plan: &Plan, block: u32) -> Vec<Node> {
        let to = |n: &NodeId| plan.nodes[*n];
        match &plan.onward[plan.number[&Node::Block(BlockId(block))]] {
            Onward::Together(edges) => edges.iter().map(|(_, _, n)| to(n)).collect(),
            Onward::Apart(_, n) | Onward::To(_, n) => vec![to(n)],
        }
    }

    fn block(n: u32) -> Node {
        Node::Block(BlockId(n))
    }

    #[test]
    fn both_arms_in_turn() {
        let diamond: &[&[u32]] = &[&[1, 2], &[3], &[3], &[]];
        let apart = plan(diamond, &[0]);
        assert_eq!([next(&apart, 0), next(&apart, 1), next(&apart, 2)], [[block(1)], [block(2)], [block(3)]]);
        assert_eq!(apart.skip[1].map(|n| apart.nodes[n]), Some(block(2)));
        assert_eq!(next(&plan(diamond, &[]), 0), [block(1), block(2)]);
    }

    #[test]
    fn a_return_leads_to_the_end() {
        let plan = plan(&[&[1, 2], &[], &[]], &[0]);
        let end = plan.number[&Node::End];
        let returns = |n: u32| plan.onward[plan.number[&block(n)]].clone();
        assert_eq!(returns(1), Onward::To(Some(Target::Node(end)), plan.number[&block(2)]));
        assert_eq!(returns(2), Onward::To(Some(Target::Node(end)), end));
    }

    #[test]
    fn nodes_have_been_run_where_they_have_on_every_way() {
        let with = |nodes: &[NodeId]| {
            let mut run = Run::new(100);
            nodes.iter().for_each(|node| run.add(*node));
            run
        };
        let mut run = with(&[1, 3, 64, 70]);
        run.meet(&with(&[3, 5, 70, 99]));
        let all: Vec<NodeId> = (0..100).filter(|node| run.has(*node)).collect();
        assert_eq!(all, [3, 70]);
    }

    #[test]
    fn a_branch_taken_together_within_an_arm() {
        // 0 → 1 | 4; 1 → 2 | 3; 2, 3, 4 → 5. All paths of the first arm go on to the second.
        let plan = plan(&[&[1, 4], &[2, 3], &[5], &[5], &[5], &[]], &[0]);
        assert_eq!(next(&plan, 1), [block(2), block(3)]);
        assert_eq!([next(&plan, 2), next(&plan, 3), next(&plan, 4)], [[block(4)], [block(4)], [block(5)]]);
    }

    #[test]
    fn a_loop_left_apart_ends_at_its_end() {
        // 0 → 1; 1 → 2 | 4; 2 → 3 | 4; 3 → 1.
        let plan = plan(&[&[1], &[2, 4], &[3, 4], &[1], &[]], &[2]);
        assert_eq!(next(&plan, 2), [block(3)]);
        assert_eq!(next(&plan, 3), [Node::LoopEnd(0)]);
        let end = plan.number[&Node::LoopEnd(0)];
        assert_eq!(plan.onward[end], Onward::To(None, plan.number[&block(4)]));
        // All lanes leave at the header: the end of the loop is still on the way for those that left before.
        assert_eq!(next(&plan, 1), [block(2), Node::LoopEnd(0)]);
    }
}
