//! Predecessors, dominators and post-dominators of a function's blocks.
//!
//! The algorithm is that of Cooper, Harvey and Kennedy; trees are numbered so that each query is
//! constant-time. Nothing here recurses. Block references outside the function are ignored; the verifier
//! reports them.

use crate::model::{BlockId, Function};

/// The predecessors of each block, in the order of the text, without repetitions.
pub fn predecessors(function: &Function) -> Vec<Vec<BlockId>> {
    let mut all = vec![Vec::new(); function.blocks.len()];
    for from in function.block_ids() {
        for to in function.block(from).term.successors() {
            if let Some(list) = all.get_mut(to.0 as usize)
                && list.last() != Some(&from)
            {
                list.push(from);
            }
        }
    }
    all
}

/// Dominator tree of a function.
#[derive(Clone, Debug)]
pub struct Dominators {
    tree: Tree,
}

impl Dominators {
    pub fn compute(function: &Function) -> Dominators {
        Dominators::of(&successors(function), BlockId(0))
    }

    /// The tree of any graph over block ids, with its successors and its entry.
    pub fn of(successors: &[Vec<usize>], root: BlockId) -> Dominators {
        Dominators { tree: Tree::compute(successors, root.0 as usize) }
    }

    /// Whether every path from the entry to `b` passes `a`; a block dominates itself. A block that cannot
    /// be reached is dominated by all.
    pub fn dominates(&self, a: BlockId, b: BlockId) -> bool {
        !self.is_reachable(b) || self.tree.contains(a.0 as usize, b.0 as usize)
    }

    /// The closest other block that dominates this one; `None` for the entry and unreachable blocks.
    pub fn idom(&self, block: BlockId) -> Option<BlockId> {
        self.tree.parent(block.0 as usize).map(|b| BlockId(b as u32))
    }

    /// For each block, those that it is the closest dominator of, in the order of the text.
    pub fn children(&self) -> Vec<Vec<BlockId>> {
        let count = self.tree.parents.len();
        let mut children = vec![Vec::new(); count];
        for block in (0..count as u32).map(BlockId) {
            if let Some(idom) = self.idom(block) {
                children[idom.0 as usize].push(block);
            }
        }
        children
    }

    pub fn is_reachable(&self, block: BlockId) -> bool {
        self.tree.is_reached(block.0 as usize)
    }
}

/// Post-dominator tree of a function. All blocks without successors lead to a virtual
/// exit.
#[derive(Clone, Debug)]
pub struct PostDominators {
    tree: Tree,
    exit: usize,
}

impl PostDominators {
    pub fn compute(function: &Function) -> PostDominators {
        PostDominators::of(&successors(function))
    }

    /// The tree of any graph over block ids, with its successors.
    pub fn of(successors: &[Vec<usize>]) -> PostDominators {
        let exit = successors.len();
        let mut backwards = vec![Vec::new(); exit + 1];
        for (from, list) in successors.iter().enumerate() {
            if list.is_empty() {
                backwards[exit].push(from);
            }
            list.iter().for_each(|to| backwards[*to].push(from));
        }
        PostDominators { tree: Tree::compute(&backwards, exit), exit }
    }

    /// Whether every path from `b` to the exit passes `a`; a block post-dominates itself. False, except
    /// for itself, when no exit can be reached from `b`.
    pub fn post_dominates(&self, a: BlockId, b: BlockId) -> bool {
        a == b || self.tree.contains(a.0 as usize, b.0 as usize)
    }

    /// The closest other block that post-dominates this one; `None` when that is the virtual exit, or
    /// when no exit can be reached.
    pub fn ipdom(&self, block: BlockId) -> Option<BlockId> {
        let parent = self.tree.parent(block.0 as usize)?;
        (parent != self.exit).then_some(BlockId(parent as u32))
    }

    /// Whether an exit is reachable from the block.
    pub fn reaches_exit(&self, block: BlockId) -> bool {
        self.tree.is_reached(block.0 as usize)
    }
}

fn successors(function: &Function) -> Vec<Vec<usize>> {
    let count = function.blocks.len();
    let of = |b: BlockId| function.block(b).term.successors().into_iter().map(|s| s.0 as usize);
    function.block_ids().map(|b| of(b).filter(|s| *s < count).collect()).collect()
}

/// A dominator tree over node indices.
#[derive(Clone, Debug)]
struct Tree {
    /// The parent of each reached node; the root's is itself.
    parents: Vec<Option<usize>>,
    /// When a depth-first walk of the tree enters and leaves each node.
    spans: Vec<(usize, usize)>,
}

impl Tree {
    fn compute(successors: &[Vec<usize>], root: usize) -> Tree {
        let mut parents = vec![None; successors.len()];
        if successors.is_empty() {
            return Tree { parents, spans: Vec::new() };
        }
        let postorder = postorder(successors, root);
        let mut rank = vec![usize::MAX; successors.len()];
        let mut predecessors = vec![Vec::new(); successors.len()];
        for (at, node) in postorder.iter().enumerate() {
            rank[*node] = at;
            successors[*node].iter().for_each(|to| predecessors[*to].push(*node));
        }
        parents[root] = Some(root);
        let mut changed = true;
        while changed {
            changed = false;
            for node in postorder.iter().rev().copied().filter(|n| *n != root) {
                let known = predecessors[node].iter().copied().filter(|p| parents[*p].is_some());
                let parent = known.reduce(|a, b| common(&parents, &rank, a, b));
                changed |= parents[node] != parent;
                parents[node] = parent;
            }
        }
        let spans = spans(&parents, root);
        Tree { parents, spans }
    }

    fn is_reached(&self, node: usize) -> bool {
        self.parents.get(node).is_some_and(Option::is_some)
    }

    fn parent(&self, node: usize) -> Option<usize> {
        self.parents.get(node).copied().flatten().filter(|p| *p != node)
    }

    fn contains(&self, a: usize, b: usize) -> bool {
        self.is_reached(a)
            && self.is_reached(b)
            && self.spans[a].0 <= self.spans[b].0
            && self.spans[b].1 <= self.spans[a].1
    }
}

/// The closest node above both.
fn common(parents: &[Option<usize>], rank: &[usize], mut a: usize, mut b: usize) -> usize {
    while a != b {
        while rank[a] < rank[b] {
            a = parents[a].unwrap_or(b);
        }
        while rank[b] < rank[a] {
            b = parents[b].unwrap_or(a);
        }
    }
    a
}

/// The nodes reached from `root`, each behind those that its edges lead to (but for edges back).
pub fn postorder(successors: &[Vec<usize>], root: usize) -> Vec<usize> {
    let mut order = Vec::with_capacity(successors.len());
    let mut seen = vec![false; successors.len()];
    let mut stack = vec![(root, 0)];
    seen[root] = true;
    while let Some((node, next)) = stack.last_mut() {
        match successors[*node].get(*next).copied() {
            Some(to) => {
                *next += 1;
                if !std::mem::replace(&mut seen[to], true) {
                    stack.push((to, 0));
                }
            }
            None => {
                order.push(*node);
                stack.pop();
            }
        }
    }
    order
}

fn spans(parents: &[Option<usize>], root: usize) -> Vec<(usize, usize)> {
    let mut children = vec![Vec::new(); parents.len()];
    for (node, parent) in parents.iter().enumerate() {
        if let Some(parent) = parent
            && *parent != node
        {
            children[*parent].push(node);
        }
    }
    let mut spans = vec![(0, 0); parents.len()];
    let mut clock = 0;
    let mut stack = vec![(root, false)];
    while let Some((node, done)) = stack.pop() {
        clock += 1;
        if done {
            spans[node].1 = clock;
            continue;
        }
        spans[node].0 = clock;
        stack.push((node, true));
        stack.extend(children[node].iter().map(|child| (*child, false)));
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Operand, Term, Type};

    /// A function whose block `n` leads to the listed blocks; none is a return.
    fn graph(edges: &[&[u32]]) -> Function {
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
        f
    }

    fn parents(count: u32, of: impl Fn(BlockId) -> Option<BlockId>) -> Vec<Option<u32>> {
        (0..count).map(|b| of(BlockId(b)).map(|p| p.0)).collect()
    }

    #[test]
    fn of_a_loop_with_a_branch() {
        // 0 -> 1; 1 -> 2 | 5; 2 -> 3 | 4; 3 -> 4; 4 -> 1; 5 ret; 6 unreachable -> 5
        let f = graph(&[&[1], &[2, 5], &[3, 4], &[4], &[1], &[], &[5]]);
        let dom = Dominators::compute(&f);
        let expected = [None, Some(0), Some(1), Some(2), Some(2), Some(1), None];
        assert_eq!(parents(7, |b| dom.idom(b)), expected);
        assert!(dom.dominates(BlockId(1), BlockId(4)) && dom.dominates(BlockId(4), BlockId(4)));
        assert!(!dom.dominates(BlockId(3), BlockId(4)));
        assert!(dom.dominates(BlockId(3), BlockId(6)) && !dom.dominates(BlockId(6), BlockId(3)));

        let post = PostDominators::compute(&f);
        let expected = [Some(1), Some(5), Some(4), Some(4), Some(1), None, Some(5)];
        assert_eq!(parents(7, |b| post.ipdom(b)), expected);
        assert!(post.post_dominates(BlockId(5), BlockId(0)));
        assert!(!post.post_dominates(BlockId(3), BlockId(2)));
    }

    #[test]
    fn of_an_irreducible_graph_with_an_endless_loop() {
        // 0 -> 1 | 2; 1 -> 2 | 4; 2 -> 1 | 3; 3 -> 3; 4 ret
        let f = graph(&[&[1, 2], &[2, 4], &[1, 3], &[3], &[]]);
        let dom = Dominators::compute(&f);
        assert_eq!(parents(5, |b| dom.idom(b)), [None, Some(0), Some(0), Some(2), Some(1)]);
        let children = [vec![1, 2], vec![4], vec![3], vec![], vec![]];
        assert_eq!(
            dom.children(),
            children.map(|blocks| blocks.into_iter().map(BlockId).collect::<Vec<_>>())
        );
        let post = PostDominators::compute(&f);
        assert!(!post.reaches_exit(BlockId(3)));
        assert_eq!(post.ipdom(BlockId(3)), None);
        assert_eq!(post.ipdom(BlockId(2)), Some(BlockId(1)), "only paths that end count");
    }

    #[test]
    fn of_two_exits_and_of_nothing() {
        let f = graph(&[&[1, 2], &[], &[]]);
        let post = PostDominators::compute(&f);
        assert_eq!(parents(3, |b| post.ipdom(b)), [None, None, None]);
        let empty = Function::new("f", Type::Void);
        assert_eq!(Dominators::compute(&empty).idom(BlockId(0)), None);
        assert_eq!(PostDominators::compute(&empty).ipdom(BlockId(0)), None);
    }

    #[test]
    fn predecessors_do_not_repeat() {
        let f = graph(&[&[1, 1], &[1, 2], &[]]);
        assert_eq!(predecessors(&f), [vec![], vec![BlockId(0), BlockId(1)], vec![BlockId(1)]]);
    }
}
