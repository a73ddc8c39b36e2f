//! Splits the control-flow graph at barriers.
//!
//! A region is the code that a thread can run without waiting: it begins at the entry or after a barrier, and ends at barriers
//! and returns. Regions share blocks if a barrier-free path leads from one into another; each region is emitted separately.

use std::collections::{BTreeSet, HashSet};

use elinvar_ir::{BlockId, Function, Term, ValueId};

use crate::analysis::uniformity::Uniformity;
use crate::kernel::Kernel;

/// A region.
pub(crate) struct Region {
    /// Its first block.
    pub start: BlockId,
    /// Its blocks, in order of index.
    pub blocks: Vec<BlockId>,
    /// The barriers that it can reach, in order.
    pub barriers: Vec<usize>,
    /// Whether a thread can return in it.
    pub returns: bool,
}

/// The region of the entry, then one per barrier, in the order of [`Kernel::barriers`]. The region of a
/// barrier that no path reaches is empty.
pub(crate) fn regions(kernel: &Kernel) -> Vec<Region> {
    let mut regions = vec![region(kernel, BlockId(0))];
    regions.extend(kernel.barriers.iter().map(|b| region(kernel, b.cont)));
    let mut reached = vec![false; regions.len()];
    let mut todo = vec![0];
    while let Some(index) = todo.pop() {
        if !std::mem::replace(&mut reached[index], true) {
            todo.extend(regions[index].barriers.iter().map(|b| b + 1));
        }
    }
    for (region, reached) in regions.iter_mut().zip(reached) {
        if !reached {
            region.blocks.clear();
            region.barriers.clear();
        }
    }
    regions
}

fn region(kernel: &Kernel, start: BlockId) -> Region {
    let function = &kernel.function;
    let inside = reachable(kernel, start, None);
    let blocks: Vec<BlockId> = function.block_ids().filter(|b| inside[b.0 as usize]).collect();
    let mut barriers: Vec<usize> = blocks.iter().filter_map(|b| kernel.barrier_after(*b)).collect();
    barriers.sort_unstable();
    let returns = blocks.iter().any(|b| matches!(function.block(*b).term, Term::Ret(_)));
    Region { start, blocks, barriers, returns }
}

impl Region {
    /// The values that its blocks define.
    pub fn defined(&self, kernel: &Kernel) -> BTreeSet<ValueId> {
        let insts = self.blocks.iter().flat_map(|b| &kernel.function.block(*b).insts);
        insts.filter_map(|i| i.result).collect()
    }

    /// A set of blocks with at least one in every loop of the region: the targets of retreating edges.
    pub fn back_edge_targets(&self, kernel: &Kernel) -> HashSet<BlockId> {
        let from = self.blocks.iter().filter(|b| kernel.barrier_after(**b).is_none());
        let edges =
            from.flat_map(|b| kernel.function.block(*b).term.successors().into_iter().map(|to| (*b, to)));
        edges.filter(|(from, to)| to <= from).map(|(_, to)| to).collect()
    }
}

/// Whether some threads of a threadgroup may return while others reach a barrier. `group` is the uniformity over the whole
/// threadgroup.
pub(crate) fn returns_diverge(kernel: &Kernel, regions: &[Region], group: &Uniformity) -> bool {
    regions.iter().filter(|r| r.returns && !r.barriers.is_empty()).any(|region| {
        region.blocks.iter().filter(|b| group.divergent[b.0 as usize]).any(|branch| {
            let inside = reachable(kernel, *branch, None);
            let reached = || kernel.function.block_ids().filter(|b| inside[b.0 as usize]);
            reached().any(|b| matches!(kernel.function.block(b).term, Term::Ret(_)))
                && reached().any(|b| kernel.barrier_after(b).is_some())
        })
    })
}

/// The blocks on paths from `start` that cross no barrier and do not enter `stop`.
pub(crate) fn reachable(kernel: &Kernel, start: BlockId, stop: Option<BlockId>) -> Vec<bool> {
    let function: &Function = &kernel.function;
    let mut inside = vec![false; function.blocks.len()];
    let mut todo = vec![start];
    while let Some(block) = todo.pop() {
        if Some(block) == stop || std::mem::replace(&mut inside[block.0 as usize], true) {
            continue;
        }
        if kernel.barrier_after(block).is_none() {
            todo.extend(function.block(block).term.successors());
        }
    }
    inside
}
