//! Control-flow graph of a region or a whole function: topological order, dominators and loops.
//!
//! The order is topological except for back edges, and the blocks of a loop are contiguous. Code emitted in this order can be
//! executed from top to bottom, with branches around blocks without active lanes.

use elinvar_ir::{BlockId, Dominators, Function, PostDominators, postorder};

/// The reachable blocks from an entry, and their edges.
pub(crate) struct Cfg {
    /// The blocks in topological order.
    pub order: Vec<BlockId>,
    /// Successors of each block, without duplicates; empty for unreachable blocks.
    pub successors: Vec<Vec<BlockId>>,
    pub predecessors: Vec<Vec<BlockId>>,
    pub loops: Vec<Loop>,
    /// The innermost loop of each block.
    loop_of: Vec<Option<usize>>,
    position: Vec<usize>,
    dominators: Dominators,
    post: PostDominators,
}

/// A natural loop.
pub(crate) struct Loop {
    pub header: BlockId,
    pub parent: Option<usize>,
    /// The blocks with an edge back to the header.
    pub latches: Vec<BlockId>,
    /// The last of its blocks in the order.
    pub last: BlockId,
}

/// The graph is irreducible: a loop has two entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Irreducible;

impl Cfg {
    /// The graph from `entry`; blocks for which `ends` holds have no successors.
    pub fn new(
        function: &Function,
        entry: BlockId,
        ends: impl Fn(BlockId) -> bool,
    ) -> Result<Self, Irreducible> {
        let successors = reached(function, entry, ends);
        let count = successors.len();
        let mut predecessors = vec![Vec::new(); count];
        for (from, list) in successors.iter().enumerate() {
            list.iter().for_each(|to| predecessors[to.0 as usize].push(BlockId(from as u32)));
        }
        let dominators = Dominators::of(&indices(&successors), entry);
        let mut cfg = Self {
            order: Vec::new(),
            successors,
            predecessors,
            loops: Vec::new(),
            loop_of: vec![None; count],
            position: vec![usize::MAX; count],
            dominators,
            post: PostDominators::of(&[]),
        };
        cfg.find_loops(entry)?;
        cfg.sort(entry);
        cfg.post = PostDominators::of(&indices(&cfg.once()));
        Ok(cfg)
    }

    /// The graph with each loop executed once: back edges lead to the loop's exits.
    fn once(&self) -> Vec<Vec<BlockId>> {
        let mut exits: Vec<Vec<BlockId>> = Vec::new();
        let onward = |exits: &[Vec<BlockId>], from: BlockId, to: BlockId| match self.is_back_edge(from, to) {
            true => self.header_of(to).and_then(|l| exits.get(l)).cloned().unwrap_or_default(),
            false => vec![to],
        };
        // Loops follow the loops that contain them.
        for l in 0..self.loops.len() {
            let (first, last) = (self.position(self.loops[l].header), self.position(self.loops[l].last));
            let mut found = Vec::new();
            for from in &self.order[first..=last] {
                for to in self.successors[from.0 as usize].iter().filter(|to| !self.contains(l, **to)) {
                    found.extend(onward(&exits, *from, *to));
                }
            }
            found.sort_unstable();
            found.dedup();
            exits.push(found);
        }
        let all = (0..self.successors.len() as u32).map(BlockId);
        all.map(|from| {
            self.successors[from.0 as usize].iter().flat_map(|to| onward(&exits, from, *to)).collect()
        })
        .collect()
    }

    /// Whether the edge leads back to the header of a loop.
    pub fn is_back_edge(&self, from: BlockId, to: BlockId) -> bool {
        self.dominators.dominates(to, from) && self.reaches(from) && self.reaches(to)
    }

    pub fn reaches(&self, block: BlockId) -> bool {
        self.dominators.is_reachable(block)
    }

    /// Index of a block in the order.
    pub fn position(&self, block: BlockId) -> usize {
        self.position[block.0 as usize]
    }

    pub fn loop_of(&self, block: BlockId) -> Option<usize> {
        self.loop_of[block.0 as usize]
    }

    /// The loop whose header the block is.
    pub fn header_of(&self, block: BlockId) -> Option<usize> {
        self.loop_of(block).filter(|l| self.loops[*l].header == block)
    }

    /// Whether the loop contains the block.
    pub fn contains(&self, l: usize, block: BlockId) -> bool {
        self.encloses(l, self.loop_of(block))
    }

    /// Whether the loop is `inner` or contains it.
    pub fn encloses(&self, l: usize, inner: Option<usize>) -> bool {
        std::iter::successors(inner, |i| self.loops[*i].parent).any(|i| i == l)
    }

    /// The loops that contain the block, from the innermost.
    pub fn loops_around(&self, block: BlockId) -> impl Iterator<Item = usize> {
        std::iter::successors(self.loop_of(block), |i| self.loops[*i].parent)
    }

    pub fn dominates(&self, a: BlockId, b: BlockId) -> bool {
        self.dominators.dominates(a, b)
    }

    pub fn idom(&self, block: BlockId) -> Option<BlockId> {
        self.dominators.idom(block)
    }

    /// Whether every path from `b` to an end passes `a`, without another iteration of a loop around both; not
    /// when no path from `b` ends.
    pub fn post_dominates(&self, a: BlockId, b: BlockId) -> bool {
        self.post.reaches_exit(b) && self.post.post_dominates(a, b)
    }

    /// The edges into a block, except back edges.
    pub fn entries(&self, block: BlockId) -> impl Iterator<Item = BlockId> {
        self.predecessors[block.0 as usize].iter().copied().filter(move |p| !self.is_back_edge(*p, block))
    }

    fn find_loops(&mut self, entry: BlockId) -> Result<(), Irreducible> {
        let mut reverse = postorder(&indices(&self.successors), entry.0 as usize);
        reverse.reverse();
        let reverse: Vec<BlockId> = reverse.into_iter().map(|b| BlockId(b as u32)).collect();
        let mut rank = vec![usize::MAX; self.successors.len()];
        reverse.iter().enumerate().for_each(|(i, b)| rank[b.0 as usize] = i);
        for header in &reverse {
            let retreating = |p: &&BlockId| rank[p.0 as usize] >= rank[header.0 as usize];
            let latches: Vec<BlockId> =
                self.predecessors[header.0 as usize].iter().filter(retreating).copied().collect();
            if latches.is_empty() {
                continue;
            }
            if !latches.iter().all(|latch| self.dominates(*header, *latch)) {
                return Err(Irreducible);
            }
            let index = self.loops.len();
            let parent = self.loop_of(*header);
            let mut todo = latches.clone();
            self.loop_of[header.0 as usize] = Some(index);
            while let Some(block) = todo.pop() {
                if self.loop_of[block.0 as usize] != Some(index) {
                    self.loop_of[block.0 as usize] = Some(index);
                    todo.extend(&self.predecessors[block.0 as usize]);
                }
            }
            self.loops.push(Loop { header: *header, parent, latches, last: *header });
        }
        Ok(())
    }

    /// Computes the order: next is the latest block whose predecessors are placed, within the innermost open loop.
    fn sort(&mut self, entry: BlockId) {
        let all = (0..self.successors.len() as u32).map(BlockId);
        let mut waits: Vec<usize> = all.map(|block| self.entries(block).count()).collect();
        // The last list has the blocks outside all loops.
        let outside = self.loops.len();
        let mut ready: Vec<Vec<BlockId>> = vec![Vec::new(); outside + 1];
        let mut inside = vec![outside];
        ready[outside].push(entry);
        while let Some(context) = inside.last().copied() {
            let Some(block) = ready[context].pop() else {
                inside.pop();
                continue;
            };
            self.position[block.0 as usize] = self.order.len();
            self.order.push(block);
            for l in self.loops_around(block).collect::<Vec<_>>() {
                self.loops[l].last = block;
            }
            if let Some(l) = self.header_of(block) {
                inside.push(l);
            }
            for to in self.successors[block.0 as usize].iter().rev() {
                if self.is_back_edge(block, *to) {
                    continue;
                }
                waits[to.0 as usize] -= 1;
                if waits[to.0 as usize] == 0 {
                    let home = match self.header_of(*to) {
                        Some(l) => self.loops[l].parent,
                        None => self.loop_of(*to),
                    };
                    ready[home.unwrap_or(outside)].push(*to);
                }
            }
        }
    }
}

fn indices(graph: &[Vec<BlockId>]) -> Vec<Vec<usize>> {
    graph.iter().map(|list| list.iter().map(|b| b.0 as usize).collect()).collect()
}

fn reached(function: &Function, entry: BlockId, ends: impl Fn(BlockId) -> bool) -> Vec<Vec<BlockId>> {
    let mut successors = vec![Vec::new(); function.blocks.len()];
    let mut seen = vec![false; function.blocks.len()];
    let mut todo = vec![entry];
    while let Some(block) = todo.pop() {
        if std::mem::replace(&mut seen[block.0 as usize], true) || ends(block) {
            continue;
        }
        for to in function.block(block).term.successors() {
            if !successors[block.0 as usize].contains(&to) {
                successors[block.0 as usize].push(to);
                todo.push(to);
            }
        }
    }
    successors
}

#[cfg(test)]
pub(crate) mod tests {
    use elinvar_ir::{Operand, Term, Type};

    use super::*;

    /// A function whose block `n` branches to the blocks of `edges[n]`, and returns if there are none.
    pub(crate) fn graph(edges: &[&[u32]]) -> Function {
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

    fn order(cfg: &Cfg) -> Vec<u32> {
        cfg.order.iter().map(|b| b.0).collect()
    }

    #[test]
    fn loops_stand_together_and_arms_too() {
        // 0 → 1 (loop: 1 → 2 | 5; 2 → 3 | 4; 3 → 4; 4 → 1), 5 → 6 | 8, 6 → 7, 7 → 9, 8 → 9.
        let f = graph(&[&[1], &[5, 2], &[3, 4], &[4], &[1], &[6, 8], &[7], &[9], &[9], &[]]);
        let cfg = Cfg::new(&f, BlockId(0), |_| false).unwrap();
        assert_eq!(order(&cfg), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!((cfg.loops.len(), cfg.loops[0].last), (1, BlockId(4)));
        assert!(cfg.is_back_edge(BlockId(4), BlockId(1)) && !cfg.is_back_edge(BlockId(1), BlockId(2)));
        assert!(cfg.contains(0, BlockId(3)) && !cfg.contains(0, BlockId(5)));
        assert_eq!(cfg.entries(BlockId(1)).collect::<Vec<_>>(), [BlockId(0)]);
    }

    #[test]
    fn nested_loops() {
        // 0 → 1; 1 → 2; 2 → 2 | 3; 3 → 1 | 4.
        let f = graph(&[&[1], &[2], &[2, 3], &[1, 4], &[]]);
        let cfg = Cfg::new(&f, BlockId(0), |_| false).unwrap();
        assert_eq!(order(&cfg), [0, 1, 2, 3, 4]);
        let inner = cfg.loop_of(BlockId(2)).unwrap();
        let outer = cfg.loop_of(BlockId(3)).unwrap();
        assert_eq!(cfg.loops[inner].parent, Some(outer));
        assert_eq!(cfg.loops_around(BlockId(2)).collect::<Vec<_>>(), [inner, outer]);
        assert_eq!(cfg.header_of(BlockId(2)), Some(inner));
    }

    #[test]
    fn cut_at_ends_and_from_the_middle_of_a_loop() {
        // A loop 1 → 2 → 1 whose edge 1 → 2 ends; begun at 2.
        let f = graph(&[&[1], &[2, 3], &[1], &[]]);
        let cfg = Cfg::new(&f, BlockId(2), |b| b == BlockId(1)).unwrap();
        assert_eq!(order(&cfg), [2, 1]);
        assert!(cfg.loops.is_empty() && !cfg.reaches(BlockId(3)));
    }

    #[test]
    fn post_dominance_is_within_an_iteration() {
        // loop { 1: if (..) continue (3); 2: if (..) break (4) }
        let f = graph(&[&[1], &[2, 3], &[4, 3], &[1], &[]]);
        let cfg = Cfg::new(&f, BlockId(0), |_| false).unwrap();
        assert!(!cfg.post_dominates(BlockId(2), BlockId(1)));
        assert!(cfg.post_dominates(BlockId(4), BlockId(0)) && cfg.post_dominates(BlockId(4), BlockId(3)));
        assert!(cfg.post_dominates(BlockId(1), BlockId(0)));
    }

    #[test]
    fn two_entries_are_refused() {
        let f = graph(&[&[1, 2], &[2], &[1, 3], &[]]);
        assert!(Cfg::new(&f, BlockId(0), |_| false).is_err());
    }
}
