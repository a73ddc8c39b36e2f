//! Natural loops: the blocks of each back edge's loop, from the innermost one outwards.

use elinvar_ir::{BlockId, Dominators, Function, predecessors};

/// A natural loop.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub header: BlockId,
    /// By block, whether it belongs to the loop.
    blocks: Vec<bool>,
}

impl Loop {
    pub fn contains(&self, block: BlockId) -> bool {
        self.blocks.get(block.0 as usize).copied().unwrap_or(false)
    }
}

/// The loops of a function, in the order of their headers in the text.
#[derive(Clone, Debug)]
pub(crate) struct Loops {
    pub all: Vec<Loop>,
}

impl Loops {
    pub fn new(function: &Function, dominators: &Dominators) -> Self {
        let before = predecessors(function);
        let mut all: Vec<Loop> = Vec::new();
        for header in function.block_ids().filter(|block| dominators.is_reachable(*block)) {
            let mut blocks = vec![false; function.blocks.len()];
            let latches = before[header.0 as usize].iter().copied();
            let mut next: Vec<BlockId> = latches
                .filter(|latch| dominators.is_reachable(*latch) && dominators.dominates(header, *latch))
                .collect();
            if next.is_empty() {
                continue;
            }
            blocks[header.0 as usize] = true;
            while let Some(block) = next.pop() {
                if !std::mem::replace(&mut blocks[block.0 as usize], true) {
                    next.extend(before[block.0 as usize].iter().filter(|b| dominators.is_reachable(**b)));
                }
            }
            all.push(Loop { header, blocks });
        }
        Self { all }
    }

    /// The loops around a block, outermost first.
    pub fn around(&self, block: BlockId) -> Vec<usize> {
        let mut around: Vec<usize> = (0..self.all.len()).filter(|l| self.all[*l].contains(block)).collect();
        around
            .sort_by_key(|l| std::cmp::Reverse(self.all[*l].blocks.iter().filter(|inside| **inside).count()));
        around
    }

    /// The loop with this header.
    pub fn with_header(&self, block: BlockId) -> Option<usize> {
        self.all.iter().position(|l| l.header == block)
    }
}
