//! Liveness across barriers: the values that a thread needs after each barrier.
//!
//! One traversal per value, backwards from its uses to its definition, so the cost is the total size of live ranges. Kernels
//! without barriers have none.

use std::collections::BTreeSet;

use elinvar_ir::{BlockId, Function, Op, Operand, ValueId};

use crate::kernel::Kernel;

/// Values live across barriers.
#[derive(Clone)]
pub(crate) struct Liveness {
    /// For each barrier, the values defined before it and used after it.
    pub across: Vec<BTreeSet<ValueId>>,
    /// For each barrier, values that are rematerialized after it, from values available in every iteration; disjoint from the above.
    pub rematerialized: Vec<Vec<ValueId>>,
    /// Union of the live values, in order.
    pub all: Vec<ValueId>,
}

/// Computes liveness across each barrier, without rematerialization. Positions and private arrays are not included: they are
/// rematerialized at their uses. Neither are parameters, which are uniform.
pub(crate) fn across_barriers(kernel: &Kernel) -> Liveness {
    let mut across = vec![BTreeSet::new(); kernel.barriers.len()];
    if !kernel.barriers.is_empty() {
        let function = &kernel.function;
        let walk = Walk::new(kernel);
        let uses = upward_uses(function, &walk.defined_in);
        let mut seen = vec![u32::MAX; function.blocks.len()];
        for (value, blocks) in uses.into_iter().enumerate() {
            walk.value(ValueId(value as u32), blocks, &mut seen, &mut across);
        }
    }
    let rematerialized = vec![Vec::new(); across.len()];
    let mut live = Liveness { across, rematerialized, all: Vec::new() };
    live.unite();
    live
}

impl Liveness {
    /// Adds the operands of each live value according to `parts`, transitively.
    pub fn with_address_operands(mut self, parts: impl Fn(ValueId) -> Vec<ValueId>) -> Self {
        for values in &mut self.across {
            let mut todo: Vec<ValueId> = values.iter().copied().collect();
            while let Some(value) = todo.pop() {
                todo.extend(parts(value).into_iter().filter(|v| values.insert(*v)));
            }
        }
        self.unite();
        self
    }

    /// Selects the values for which `is_cheap` holds for rematerialization.
    pub fn rematerialize(mut self, is_cheap: impl Fn(ValueId) -> bool) -> Self {
        for (across, rematerialized) in self.across.iter_mut().zip(&mut self.rematerialized) {
            rematerialized.extend(across.iter().copied().filter(|v| is_cheap(*v)));
            across.retain(|v| !is_cheap(*v));
        }
        self.unite();
        self
    }

    fn unite(&mut self) {
        let all: BTreeSet<ValueId> = self.across.iter().flatten().copied().collect();
        self.all = all.into_iter().collect();
    }
}

struct Walk {
    defined_in: Vec<Option<BlockId>>,
    predecessors: Vec<Vec<BlockId>>,
    /// The barrier whose continuation a block is.
    continues: Vec<Option<usize>>,
}

impl Walk {
    fn new(kernel: &Kernel) -> Self {
        let function = &kernel.function;
        let mut defined_in = vec![None; function.values.len()];
        let mut predecessors = vec![Vec::new(); function.blocks.len()];
        for id in function.block_ids() {
            for inst in &function.block(id).insts {
                if let Some(result) = inst.result {
                    defined_in[result.0 as usize] = Some(id);
                }
            }
            for successor in function.block(id).term.successors() {
                predecessors[successor.0 as usize].push(id);
            }
        }
        let mut continues = vec![None; function.blocks.len()];
        for (index, barrier) in kernel.barriers.iter().enumerate() {
            continues[barrier.cont.0 as usize] = Some(index);
        }
        Self { defined_in, predecessors, continues }
    }

    /// Marks the barriers after which `value` is live; `todo` has the blocks with upward-exposed uses.
    fn value(
        &self,
        value: ValueId,
        mut todo: Vec<BlockId>,
        seen: &mut [u32],
        across: &mut [BTreeSet<ValueId>],
    ) {
        let Some(home) = self.defined_in[value.0 as usize] else { return };
        while let Some(block) = todo.pop() {
            if std::mem::replace(&mut seen[block.0 as usize], value.0) == value.0 {
                continue;
            }
            if let Some(barrier) = self.continues[block.0 as usize] {
                across[barrier].insert(value);
            }
            todo.extend(self.predecessors[block.0 as usize].iter().filter(|p| **p != home));
        }
    }
}

/// For each value, the blocks at whose start it is live because of a use in them, or on an edge out of
/// them into a phi.
fn upward_uses(function: &Function, defined_in: &[Option<BlockId>]) -> Vec<Vec<BlockId>> {
    let mut uses = vec![Vec::new(); function.values.len()];
    let mut add = |operand: &Operand, block: BlockId| {
        if let Operand::Value(value) = operand
            && defined_in[value.0 as usize] != Some(block)
        {
            uses[value.0 as usize].push(block);
        }
    };
    for id in function.block_ids() {
        let block = function.block(id);
        for inst in &block.insts {
            match &inst.op {
                Op::Phi { incoming, .. } => incoming.iter().for_each(|(operand, from)| add(operand, *from)),
                op => op.operands().into_iter().for_each(|operand| add(operand, id)),
            }
        }
        block.term.operands().into_iter().for_each(|operand| add(operand, id));
    }
    uses
}
