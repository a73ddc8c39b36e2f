//! Control-equivalence classes: blocks that are executed by the same lanes and share a mask.
//!
//! All lanes that are active in one block of a class are active in the others, on each pass of control. A class is identified by
//! its first block, which computes the mask. A block is in another's class if no divergent branch decides between the two.

use std::collections::{HashMap, HashSet};

use elinvar_ir::BlockId;

use crate::analysis::cfg::Cfg;

/// The classes of the blocks of a CFG.
pub(crate) struct MaskClasses {
    class: Vec<Option<BlockId>>,
    /// For each loop, whether its exit is divergent: lanes leave it in different iterations.
    pub divergent_loops: Vec<bool>,
}

impl MaskClasses {
    /// `divergent`: for each block, whether its branch may diverge.
    pub fn new(cfg: &Cfg, divergent: &[bool]) -> Self {
        Self::with(cfg, divergent, &HashSet::new())
    }

    /// As `new`, but the blocks of `alone` begin new classes.
    pub fn with(cfg: &Cfg, divergent: &[bool], alone: &HashSet<BlockId>) -> Self {
        let mut masks =
            Self { class: vec![None; divergent.len()], divergent_loops: vec![false; cfg.loops.len()] };
        for block in &cfg.order {
            // The class of a loop may turn out to be that of the surrounding code once its end is known.
            let class = match cfg.header_of(*block) {
                Some(_) => *block,
                None if alone.contains(block) => *block,
                None => masks.find(cfg, divergent, *block),
            };
            masks.class[block.0 as usize] = Some(class);
            let mut ended: Vec<usize> =
                cfg.loops_around(*block).filter(|l| cfg.loops[*l].last == *block).collect();
            ended.dedup();
            for l in ended {
                masks.end_loop(cfg, divergent, l, alone);
            }
        }
        masks
    }

    /// The first block of the class.
    pub fn of(&self, block: BlockId) -> BlockId {
        let mut at = block;
        while let Some(next) = self.class[at.0 as usize].filter(|next| *next != at) {
            at = next;
        }
        at
    }

    /// Whether the block is the first of its class.
    pub fn is_own(&self, block: BlockId) -> bool {
        self.of(block) == block
    }

    /// For each class, by its first block, the last index in the CFG's order from which control may reach one of
    /// its blocks without passing the first.
    pub fn until(&self, cfg: &Cfg) -> HashMap<BlockId, usize> {
        let mut until = HashMap::new();
        for block in &cfg.order {
            let first = self.of(*block);
            let around = cfg.loops_around(*block).filter(|l| !cfg.contains(*l, first));
            let places = around.map(|l| cfg.position(cfg.loops[l].last));
            let last = places.fold(cfg.position(*block), usize::max);
            let known = until.entry(first).or_insert(last);
            *known = last.max(*known);
        }
        until
    }

    /// Whether lanes may enter a block by different edges, so that its phis are selects.
    pub fn mixes(&self, cfg: &Cfg, divergent: &[bool], block: BlockId) -> bool {
        let mixed = |from: Vec<BlockId>| {
            let one = from.first().map(|p| self.of(*p));
            from.len() > 1 && from.iter().any(|p| divergent[p.0 as usize] || Some(self.of(*p)) != one)
        };
        let (back, entries) = cfg.predecessors[block.0 as usize]
            .iter()
            .partition::<Vec<BlockId>, _>(|p| cfg.is_back_edge(**p, block));
        mixed(entries) || mixed(back)
    }

    /// Whether some edge into the block leaves a loop with a divergent exit.
    pub fn gathers(&self, cfg: &Cfg, block: BlockId) -> bool {
        cfg.predecessors[block.0 as usize].iter().any(|p| self.leaves_divergent_loop(cfg, *p, block))
    }

    /// Whether `to` is outside some loop with a divergent exit that contains `from`.
    pub fn leaves_divergent_loop(&self, cfg: &Cfg, from: BlockId, to: BlockId) -> bool {
        cfg.loops_around(from).any(|l| self.divergent_loops[l] && !cfg.contains(l, to))
    }

    fn find(&self, cfg: &Cfg, divergent: &[bool], block: BlockId) -> BlockId {
        let home = match cfg.header_of(block) {
            Some(l) => cfg.loops[l].parent,
            None => cfg.loop_of(block),
        };
        let above = std::iter::successors(cfg.idom(block), |b| cfg.idom(*b));
        let ahead = above.into_iter().find(|b| cfg.loop_of(*b) == home);
        if let Some(ahead) = ahead.filter(|b| cfg.post_dominates(block, *b)) {
            return self.of(ahead);
        }
        let mut classes = cfg.entries(block).map(|from| {
            let together = !divergent[from.0 as usize] && !self.leaves_divergent_loop(cfg, from, block);
            together.then(|| self.of(from))
        });
        match classes.next() {
            Some(Some(first)) if classes.all(|c| c == Some(first)) => first,
            _ => block,
        }
    }

    /// Determines whether a loop's exit is divergent, and the class of its header, after all its blocks.
    fn end_loop(&mut self, cfg: &Cfg, divergent: &[bool], l: usize, alone: &HashSet<BlockId>) {
        let header = cfg.loops[l].header;
        let (first, last) = (cfg.position(header), cfg.position(cfg.loops[l].last));
        let apart = |b: BlockId| divergent[b.0 as usize] || self.of(b) != header;
        let exits = |b: &BlockId| cfg.successors[b.0 as usize].iter().any(|to| !cfg.contains(l, *to));
        let mut decisive = cfg.order[first..=last].iter().filter(|b| exits(b)).copied();
        let latches = &cfg.loops[l].latches;
        self.divergent_loops[l] = decisive.any(apart) || latches.len() > 1;
        if !self.divergent_loops[l] && !alone.contains(&header) {
            let around = self.find(cfg, divergent, header);
            self.class[header.0 as usize] = Some(around);
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    /// Blocks with the blocks behind each; those of `apart` are divergent.
    fn masks(edges: &[&[u32]], apart: &[u32]) -> (Cfg, MaskClasses) {
        let f = crate::analysis::cfg::tests::graph(edges);
        let cfg = Cfg::new(&f, BlockId(0), |_| false).unwrap();
        let divergent: Vec<bool> = (0..edges.len() as u32).map(|b| apart.contains(&b)).collect();
        let masks = MaskClasses::new(&cfg, &divergent);
        (cfg, masks)
    }

    /// The classes of the blocks and the divergence of the loops.
    fn classes(edges: &[&[u32]], apart: &[u32]) -> (Vec<u32>, Vec<bool>) {
        let (_, masks) = masks(edges, apart);
        ((0..edges.len() as u32).map(|b| masks.of(BlockId(b)).0).collect(), masks.divergent_loops)
    }

    #[test]
    fn branches() {
        // 0 → 1 | 2 → 3
        let diamond: &[&[u32]] = &[&[1, 2], &[3], &[3], &[]];
        assert_eq!(classes(diamond, &[]).0, [0, 0, 0, 0]);
        assert_eq!(classes(diamond, &[0]).0, [0, 1, 2, 0]);
        // An early return: 0 → 1 | 3; 1 → 2; 2 → 3.
        assert_eq!(classes(&[&[1, 3], &[2], &[3], &[]], &[0]).0, [0, 1, 1, 0]);
        // In an arm that lanes take apart from others, another branch: 0 → 1 | 4; 1 → 2 | 3; 2, 3 → 5; 4 → 5.
        assert_eq!(classes(&[&[1, 4], &[2, 3], &[5], &[5], &[5], &[]], &[0]).0, [0, 1, 1, 1, 4, 0]);
    }

    #[test]
    fn loops() {
        // 0 → 1; 1 → 2 | 3; 2 → 1.
        let edges: &[&[u32]] = &[&[1], &[2, 3], &[1], &[]];
        assert_eq!(classes(edges, &[]), (vec![0, 0, 0, 0], vec![false]));
        assert_eq!(classes(edges, &[1]), (vec![0, 1, 2, 0], vec![true]));
        // A break: 0 → 1; 1 → 2 | 4; 2 → 3 | 4; 3 → 1.
        let edges: &[&[u32]] = &[&[1], &[2, 4], &[3, 4], &[1], &[]];
        assert_eq!(classes(edges, &[2]), (vec![0, 1, 1, 3, 0], vec![true]));
    }

    #[test]
    fn a_loop_in_a_loop() {
        // 0 → 1; 1 → 2; 2 → 2 | 3; 3 → 1 | 4, lanes leaving the inner loop apart.
        let edges: &[&[u32]] = &[&[1], &[2], &[2, 3], &[1, 4], &[]];
        assert_eq!(classes(edges, &[2]), (vec![0, 0, 2, 0, 0], vec![false, true]));
        assert_eq!(classes(edges, &[3]), (vec![0, 1, 1, 1, 0], vec![true, false]));
    }

    #[test]
    fn the_lanes_of_a_loop_are_asked_for_until_its_end() {
        // 0 → 1; 1 → 2 | 3; 2 → 1; 3 → 4 | 5; 4, 5 → 6; 6 → 3 | 7: a loop, and one with a branch inside.
        let edges: &[&[u32]] = &[&[1], &[2, 3], &[1], &[4, 5], &[6], &[6], &[3, 7], &[]];
        let until = |apart: &[u32]| {
            let (cfg, masks) = masks(edges, apart);
            let until = masks.until(&cfg);
            move |class: u32| until.get(&BlockId(class)).map(|at| cfg.order[*at].0)
        };
        let of = until(&[1, 3, 6]);
        assert_eq!((of(0), of(1), of(2), of(4), of(3)), (Some(7), Some(1), Some(2), Some(4), Some(6)));
        // Lanes that leave the second loop together are those of the start all the way.
        let of = until(&[1, 3]);
        assert_eq!((of(0), of(3), of(4)), (Some(7), None, Some(4)));
    }

    #[test]
    fn continue_before_break() {
        // loop { 1: continue (3) or 2; 2: break (4) or 3 }, parting at 1.
        let edges: &[&[u32]] = &[&[1], &[2, 3], &[4, 3], &[1], &[]];
        assert_eq!(classes(edges, &[1]), (vec![0, 1, 2, 3, 0], vec![true]));
    }
}
