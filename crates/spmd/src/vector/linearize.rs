//! Partial control-flow linearization: the order in which the masked version of a region runs its blocks.
//!
//! After a divergent branch, all sides are run one after the other, each for its own lanes; uniform branches remain branches.
//! Nodes are numbered in the region's order. A node with lanes that may still reach it is *pending*; control always continues at
//! the first node among its targets and the pending nodes, and the others remain pending there (Moll and Hack, "Partial
//! Control-Flow Linearization", PLDI 2018).
//!
//! A loop with a divergent exit has a node at its end, which iterates while a lane is active in the loop. Nodes that leave the
//! region are last: returns, barriers, the end itself.

use std::collections::{BTreeSet, HashMap, HashSet};

use elinvar_ir::{BlockId, Function, Term};
use fixedbitset::FixedBitSet;

use crate::analysis::cfg::Cfg;
use crate::analysis::mask_classes::MaskClasses;

/// A node's number.
pub(crate) type NodeId = usize;

/// A node of the linearized order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    Block(BlockId),
    /// The end of a loop with a divergent exit.
    LoopEnd(usize),
    Return,
    Barrier(usize),
    End,
}

/// Control flow out of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Onward {
    /// A uniform branch: for each successor, the target of the edge and the next node.
    Uniform(Vec<(BlockId, Target, NodeId)>),
    /// A divergent branch; control continues at one node.
    Divergent(Vec<(BlockId, Target)>, NodeId),
    /// The node has no edges of its own, or one.
    To(Option<Target>, NodeId),
}

/// Target of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Node(NodeId),
    /// The back edge of a loop with a uniform exit: the header.
    Again(BlockId),
}

/// The linearization of a region.
pub(crate) struct Linearization {
    pub nodes: Vec<Node>,
    pub number: HashMap<Node, NodeId>,
    /// Control flow out of each node.
    pub onward: Vec<Onward>,
    /// The next node if no lane is active in a node that tests for it.
    pub skip: Vec<Option<NodeId>>,
}

/// Inputs of the linearization.
pub(crate) struct Input<'a> {
    pub function: &'a Function,
    pub cfg: &'a Cfg,
    pub masks: &'a MaskClasses,
    pub divergent: &'a [bool],
    /// The barrier at the end of a block.
    pub barrier_after: &'a dyn Fn(BlockId) -> Option<usize>,
    /// Whether returned lanes are recorded.
    pub returns: bool,
    /// The blocks that can be skipped without active lanes.
    pub skippable: &'a dyn Fn(BlockId) -> bool,
}

impl Linearization {
    pub fn new(input: &Input<'_>) -> Self {
        let nodes = nodes(input);
        let number: HashMap<Node, NodeId> = nodes.iter().enumerate().map(|(i, n)| (*n, i)).collect();
        let end = nodes.len() - 1;
        let mut pending: Vec<BTreeSet<NodeId>> = vec![BTreeSet::new(); nodes.len()];
        pending[0].insert(end);
        let mut linearization = Self { nodes, number, onward: Vec::new(), skip: Vec::new() };
        for at in 0..linearization.nodes.len() {
            let mut waiting = pending[at].clone();
            // The loop's end waits until all lanes have left.
            waiting.extend(input.loop_end(linearization.nodes[at]).map(|node| linearization.number[&node]));
            let mut go = |targets: &[NodeId]| {
                let all: BTreeSet<NodeId> = waiting.iter().chain(targets).copied().collect();
                let next = all.first().copied().unwrap_or(end);
                pending[next].extend(all.into_iter().filter(|n| *n != next));
                next
            };
            let node = linearization.nodes[at];
            let skip = match node {
                Node::Block(block) if (input.skippable)(block) => Some(go(&[])),
                _ => None,
            };
            let onward = match node {
                Node::Block(block) => linearization.after_block(input, block, &mut go),
                Node::LoopEnd(_) | Node::Return | Node::Barrier(_) => Onward::To(None, go(&[])),
                Node::End => Onward::To(None, end),
            };
            linearization.skip.push(skip);
            linearization.onward.push(onward);
        }
        linearization
    }

    /// The blocks that need their own mask for this linearization to be correct.
    ///
    /// Control may pass a block without lanes for it, since nodes pending on one path are pending on
    /// all paths. This concerns a target of a uniform branch with other nodes before it, and a block of a class
    /// whose first block may not have been executed on the path.
    pub fn lacking_masks(&self, input: &Input<'_>) -> HashSet<BlockId> {
        let mut lacking = HashSet::new();
        let mut add = |block: BlockId| {
            if !input.masks.is_own(block) {
                lacking.insert(block);
            }
        };
        let mut known: Vec<Option<Executed>> = vec![None; self.nodes.len()];
        known[0] = Some(Executed::with_capacity(self.nodes.len()));
        for at in 0..self.nodes.len() {
            let Some(mut executed) = known[at].take() else { continue };
            if let Node::Block(block) = self.nodes[at] {
                if input.masks.is_own(block) {
                    executed.insert(at);
                } else if !executed.contains(self.number[&Node::Block(input.masks.of(block))]) {
                    add(block);
                }
            }
            if let Some(skip) = self.skip[at] {
                meet(&mut known[skip], &executed);
            }
            if let Node::Block(block) = self.nodes[at]
                && input.divergent[block.0 as usize]
            {
                // The uniform version enters here, with the masks of dominating classes set.
                let mut set = Executed::with_capacity(self.nodes.len());
                let above = std::iter::successors(Some(block), |b| input.cfg.idom(*b));
                above
                    .filter(|b| input.masks.is_own(*b))
                    .for_each(|b| set.insert(self.number[&Node::Block(b)]));
                executed.intersect_with(&set);
            }
            match &self.onward[at] {
                Onward::Uniform(edges) => {
                    for (to, target, next) in edges {
                        if let Target::Node(node) = target {
                            if node != next && matches!(self.nodes[*node], Node::Block(_)) {
                                add(*to);
                            }
                            meet(&mut known[*next], &executed);
                        }
                    }
                }
                Onward::Divergent(_, next) | Onward::To(_, next) if *next > at => {
                    meet(&mut known[*next], &executed)
                }
                Onward::Divergent(..) | Onward::To(..) => {}
            }
        }
        lacking
    }

    fn after_block(
        &self,
        input: &Input<'_>,
        block: BlockId,
        go: &mut dyn FnMut(&[NodeId]) -> NodeId,
    ) -> Onward {
        if let Some(barrier) = (input.barrier_after)(block) {
            let node = self.number[&Node::Barrier(barrier)];
            return Onward::To(Some(Target::Node(node)), go(&[node]));
        }
        let end = self.nodes.len() - 1;
        if let Term::Ret(_) | Term::Unreachable = input.function.block(block).term {
            let target = self.number.get(&Node::Return).copied().unwrap_or(end);
            return Onward::To(Some(Target::Node(target)), go(&[target]));
        }
        let target = |to: BlockId| {
            if !input.cfg.is_back_edge(block, to) {
                return Target::Node(self.number[&Node::Block(to)]);
            }
            let l = input.cfg.header_of(to).filter(|l| input.masks.divergent_loops[*l]);
            l.map_or(Target::Again(to), |l| Target::Node(self.number[&Node::LoopEnd(l)]))
        };
        let edges: Vec<(BlockId, Target)> =
            input.cfg.successors[block.0 as usize].iter().map(|to| (*to, target(*to))).collect();
        let number = |target: &Target| match target {
            Target::Node(node) => *node,
            Target::Again(header) => self.number[&Node::Block(*header)],
        };
        if input.divergent[block.0 as usize] && edges.len() > 1 {
            let all: Vec<NodeId> = edges.iter().map(|(_, t)| number(t)).collect();
            let next = go(&all);
            return Onward::Divergent(edges, next);
        }
        let together = edges.into_iter().map(|(to, target)| {
            let next = match target {
                Target::Again(_) => number(&target),
                Target::Node(node) => go(&[node]),
            };
            (to, target, next)
        });
        Onward::Uniform(together.collect())
    }
}

/// Nodes that have been executed on every path.
type Executed = FixedBitSet;

fn meet(at: &mut Option<Executed>, executed: &Executed) {
    match at {
        Some(known) => known.intersect_with(executed),
        None => *at = Some(executed.clone()),
    }
}

impl Input<'_> {
    /// The end node of the loop with a divergent exit that begins with a node.
    fn loop_end(&self, node: Node) -> Option<Node> {
        let Node::Block(block) = node else { return None };
        let l = self.cfg.header_of(block).filter(|l| self.masks.divergent_loops[*l])?;
        Some(Node::LoopEnd(l))
    }
}

fn nodes(input: &Input<'_>) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut barriers = BTreeSet::new();
    for block in &input.cfg.order {
        nodes.push(Node::Block(*block));
        let ended = input.cfg.loops_around(*block).filter(|l| input.cfg.loops[*l].last == *block);
        nodes.extend(ended.filter(|l| input.masks.divergent_loops[*l]).map(Node::LoopEnd));
        barriers.extend((input.barrier_after)(*block));
    }
    if input.returns {
        nodes.push(Node::Return);
    }
    nodes.extend(barriers.into_iter().map(Node::Barrier));
    nodes.push(Node::End);
    nodes
}

#[cfg(test)]
mod tests {

    use super::*;

    fn linearization(edges: &[&[u32]], apart: &[u32]) -> Linearization {
        let f = crate::analysis::cfg::tests::graph(edges);
        let cfg = Cfg::new(&f, BlockId(0), |_| false).unwrap();
        let divergent: Vec<bool> = (0..edges.len() as u32).map(|b| apart.contains(&b)).collect();
        let masks = MaskClasses::new(&cfg, &divergent);
        Linearization::new(&Input {
            function: &f,
            cfg: &cfg,
            masks: &masks,
            divergent: &divergent,
            barrier_after: &|_| None,
            returns: false,
            skippable: &|block| masks.is_own(block),
        })
    }

    fn next(linearization: &Linearization, block: u32) -> Vec<Node> {
        let to = |n: &NodeId| linearization.nodes[*n];
        match &linearization.onward[linearization.number[&Node::Block(BlockId(block))]] {
            Onward::Uniform(edges) => edges.iter().map(|(_, _, n)| to(n)).collect(),
            Onward::Divergent(_, n) | Onward::To(_, n) => vec![to(n)],
        }
    }

    fn block(n: u32) -> Node {
        Node::Block(BlockId(n))
    }

    #[test]
    fn both_arms_in_turn() {
        let diamond: &[&[u32]] = &[&[1, 2], &[3], &[3], &[]];
        let apart = linearization(diamond, &[0]);
        assert_eq!([next(&apart, 0), next(&apart, 1), next(&apart, 2)], [[block(1)], [block(2)], [block(3)]]);
        assert_eq!(apart.skip[1].map(|n| apart.nodes[n]), Some(block(2)));
        assert_eq!(next(&linearization(diamond, &[]), 0), [block(1), block(2)]);
    }

    #[test]
    fn a_return_leads_to_the_end() {
        let linearization = linearization(&[&[1, 2], &[], &[]], &[0]);
        let end = linearization.number[&Node::End];
        let returns = |n: u32| linearization.onward[linearization.number[&block(n)]].clone();
        assert_eq!(returns(1), Onward::To(Some(Target::Node(end)), linearization.number[&block(2)]));
        assert_eq!(returns(2), Onward::To(Some(Target::Node(end)), end));
    }

    #[test]
    fn nodes_have_been_run_where_they_have_on_every_way() {
        let with = |nodes: &[NodeId]| {
            let mut executed = Executed::with_capacity(100);
            nodes.iter().for_each(|node| executed.insert(*node));
            executed
        };
        let mut executed = with(&[1, 3, 64, 70]);
        executed.intersect_with(&with(&[3, 5, 70, 99]));
        let all: Vec<NodeId> = (0..100).filter(|node| executed.contains(*node)).collect();
        assert_eq!(all, [3, 70]);
    }

    #[test]
    fn a_branch_taken_together_within_an_arm() {
        // 0 → 1 | 4; 1 → 2 | 3; 2, 3, 4 → 5. All paths of the first arm go on to the second.
        let linearization = linearization(&[&[1, 4], &[2, 3], &[5], &[5], &[5], &[]], &[0]);
        assert_eq!(next(&linearization, 1), [block(2), block(3)]);
        assert_eq!(
            [next(&linearization, 2), next(&linearization, 3), next(&linearization, 4)],
            [[block(4)], [block(4)], [block(5)]]
        );
    }

    #[test]
    fn a_loop_left_apart_ends_at_its_end() {
        // 0 → 1; 1 → 2 | 4; 2 → 3 | 4; 3 → 1.
        let linearization = linearization(&[&[1], &[2, 4], &[3, 4], &[1], &[]], &[2]);
        assert_eq!(next(&linearization, 2), [block(3)]);
        assert_eq!(next(&linearization, 3), [Node::LoopEnd(0)]);
        let end = linearization.number[&Node::LoopEnd(0)];
        assert_eq!(linearization.onward[end], Onward::To(None, linearization.number[&block(4)]));
        // All lanes leave at the header: the end of the loop is still on the way for those that left before.
        assert_eq!(next(&linearization, 1), [block(2), Node::LoopEnd(0)]);
    }
}
