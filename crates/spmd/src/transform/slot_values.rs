//! [`SlotValues`]: which stack slots hold a known constant at the start of a block, and which are live.
//!
//! A mask of pending lanes is zero except between the divergent branches that add lanes and the block that takes them. A load where that is
//! known is not a use, so that the mask is dead elsewhere, and promotion needs no phis for it there.

use elinvar_ir::{BlockId, Const, Function, Inst, Operand, postorder, predecessors};
use fixedbitset::FixedBitSet;

/// What an instruction does with a slot.
pub(crate) enum Access {
    Load(usize),
    Store(usize, Operand),
}

/// Facts on the slots at the start of each block.
pub(crate) struct SlotValues {
    /// Per slot, the constant that may be known: the first one that is stored to it.
    constants: Vec<Operand>,
    /// Per block, the slots that hold their constant, or nothing yet.
    known: Vec<FixedBitSet>,
    /// Per block, the slots with a value that may be loaded before the next store, and that is not known.
    live: Vec<FixedBitSet>,
}

impl SlotValues {
    /// Of `count` slots, which instructions access as `access` says.
    pub fn new(function: &Function, count: usize, access: impl Fn(&Inst) -> Option<Access>) -> Self {
        let accesses: Vec<Vec<Access>> =
            function.blocks.iter().map(|block| block.insts.iter().filter_map(&access).collect()).collect();
        let blocks = accesses.len();
        let none = || vec![FixedBitSet::with_capacity(count); blocks];
        let mut constants: Vec<Operand> = vec![Const::Undef.into(); count];
        for one in accesses.iter().flatten() {
            if let Access::Store(slot, value @ Operand::Const(_)) = one
                && is_undef(&constants[*slot])
            {
                constants[*slot] = value.clone();
            }
        }
        let mut all = FixedBitSet::with_capacity(count);
        all.insert_range(..);
        let mut values = Self { constants, known: vec![all; blocks], live: none() };
        values.find_known(function, &accesses);
        values.find_live(function, &accesses);
        values
    }

    /// The slots that hold their constant at the start of a block.
    pub fn known(&self, block: BlockId) -> FixedBitSet {
        self.known[block.0 as usize].clone()
    }

    /// Updates the slots that hold their constant after a store.
    pub fn store(&self, known: &mut FixedBitSet, slot: usize, value: &Operand) {
        known.set(slot, *value == self.constants[slot] || is_undef(value));
    }

    /// The constant of a slot that holds it.
    pub fn constant(&self, known: &FixedBitSet, slot: usize) -> Option<&Operand> {
        known.contains(slot).then(|| &self.constants[slot])
    }

    /// Whether a slot has to have a value at the start of a block.
    pub fn is_live(&self, block: BlockId, slot: usize) -> bool {
        self.live[block.0 as usize].contains(slot)
    }

    /// Forward data flow, from the assumption that everything is known.
    fn find_known(&mut self, function: &Function, accesses: &[Vec<Access>]) {
        let successors: Vec<Vec<usize>> = function
            .blocks
            .iter()
            .map(|block| block.term.successors().iter().map(|to| to.0 as usize).collect())
            .collect();
        let mut order = postorder(&successors, 0);
        order.reverse();
        let mut has_changed = true;
        while std::mem::take(&mut has_changed) {
            for from in &order {
                let mut known = self.known[*from].clone();
                for one in &accesses[*from] {
                    if let Access::Store(slot, value) = one {
                        self.store(&mut known, *slot, value);
                    }
                }
                for to in &successors[*from] {
                    let before = &mut self.known[*to];
                    if !before.is_subset(&known) {
                        before.intersect_with(&known);
                        has_changed = true;
                    }
                }
            }
        }
    }

    /// Backward data flow, from each load up to the stores that it may see.
    fn find_live(&mut self, function: &Function, accesses: &[Vec<Access>]) {
        let mut stored = self.live.clone();
        let mut todo = Vec::new();
        for (block, accesses) in accesses.iter().enumerate() {
            for one in accesses {
                match one {
                    Access::Store(slot, _) => stored[block].insert(*slot),
                    Access::Load(slot) if !stored[block].contains(*slot) => todo.push((block, *slot)),
                    Access::Load(_) => {}
                }
            }
        }
        let preds = predecessors(function);
        while let Some((block, slot)) = todo.pop() {
            if self.known[block].contains(slot) || self.live[block].put(slot) {
                continue;
            }
            let before = preds[block].iter().map(|pred| pred.0 as usize);
            todo.extend(before.filter(|pred| !stored[*pred].contains(slot)).map(|pred| (pred, slot)));
        }
    }
}

fn is_undef(value: &Operand) -> bool {
    matches!(value, Operand::Const(Const::Undef | Const::Poison))
}

#[cfg(test)]
mod tests {
    use elinvar_ir::{Module, Op};

    use super::*;

    fn access(inst: &Inst) -> Option<Access> {
        match &inst.op {
            Op::Store { value, .. } => Some(Access::Store(0, value.op.clone())),
            Op::Load { .. } => Some(Access::Load(0)),
            _ => None,
        }
    }

    /// For each block, whether the slot's constant is known at its start, and whether the slot is live there.
    fn facts(text: &str) -> Vec<(bool, bool)> {
        let module = Module::parse(text).unwrap();
        let function = &module.functions[0];
        let values = SlotValues::new(function, 1, access);
        function
            .block_ids()
            .map(|block| (values.constant(&values.known(block), 0).is_some(), values.is_live(block, 0)))
            .collect()
    }

    #[test]
    fn a_mask_is_live_between_the_branch_that_adds_lanes_and_the_block_that_takes_them() {
        let facts = facts(
            "define void @f(i32 %x, i1 %c) {
            entry:
              %mask = alloca i32
              store i32 0, ptr %mask
              br label %head
            head:
              br i1 %c, label %add, label %next
            add:
              %before = load i32, ptr %mask
              %both = or i32 %before, %x
              store i32 %both, ptr %mask
              br label %between
            between:
              br label %take
            take:
              %lanes = load i32, ptr %mask
              store i32 0, ptr %mask
              br label %next
            next:
              br i1 %c, label %head, label %end
            end:
              ret void
            }",
        );
        let known = [true, true, true, false, false, true, true];
        let live = [false, false, false, true, true, false, false];
        assert_eq!(facts, known.into_iter().zip(live).collect::<Vec<_>>());
    }

    #[test]
    fn a_slot_that_holds_different_constants_is_not_known_where_they_meet() {
        let facts = facts(
            "define void @f(i1 %c) {
            entry:
              %slot = alloca i32
              store i32 0, ptr %slot
              br i1 %c, label %other, label %join
            other:
              store i32 1, ptr %slot
              br label %join
            join:
              %x = load i32, ptr %slot
              ret void
            }",
        );
        assert_eq!(facts, [(true, false), (true, false), (false, true)]);
    }
}
