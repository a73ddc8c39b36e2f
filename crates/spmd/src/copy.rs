//! Copies a region's blocks into the output, for the thread that the surrounding loop has picked.
//!
//! A value that is live across some barrier lives in a stack slot: its definition stores there, each
//! use loads. clang turns the slots into registers where it can, which spares this pass the repair of
//! SSA form. All other values are copied as they are.

use std::collections::{BTreeSet, HashMap, HashSet};

use elinvar_ir::{BlockId, Inst, Op, Operand, Term, Type, ValueId};

use crate::builder::Builder;
use crate::constants::Threadgroup;
use crate::prepare::Kernel;
use crate::region::Region;

/// What a copy of a region refers to.
pub(crate) struct Scope<'a> {
    pub kernel: &'a Kernel,
    pub region: &'a Region,
    pub threadgroup: &'a Threadgroup,
    /// Parameters, positions and private arrays: values known without a definition in the region.
    pub known: HashMap<ValueId, Operand>,
    /// Stack slots of the values that live across barriers.
    pub slots: &'a HashMap<ValueId, Operand>,
    /// Where a thread goes that arrives at a barrier, by barrier.
    pub arrive: HashMap<usize, BlockId>,
    /// Where a thread goes that returns.
    pub returned: BlockId,
}

/// A region in the course of being copied.
struct Copy<'a, 'f> {
    scope: &'a Scope<'a>,
    b: Builder<'f>,
    blocks: HashMap<BlockId, BlockId>,
    values: HashMap<ValueId, ValueId>,
}

/// The values that a region's own blocks define.
pub(crate) fn defined(kernel: &Kernel, region: &Region) -> BTreeSet<ValueId> {
    let insts = region.blocks.iter().flat_map(|b| &kernel.function.block(*b).insts);
    insts.filter_map(|i| i.result).collect()
}

/// Copy the region of `scope` into the function of `b`; returns the copy of its first block.
pub(crate) fn copy(scope: &Scope<'_>, b: Builder<'_>) -> BlockId {
    let mut copy = Copy { scope, b, blocks: HashMap::new(), values: HashMap::new() };
    let function = &scope.kernel.function;
    for block in &scope.region.blocks {
        let new = copy.b.f.new_block(None);
        copy.blocks.insert(*block, new);
    }
    for value in defined(scope.kernel, scope.region) {
        let info = &function.values[value.0 as usize];
        let new = copy.b.f.new_value(info.ty.clone(), info.name.as_deref());
        copy.values.insert(value, new);
    }
    for block in &scope.region.blocks {
        copy.phis(*block);
    }
    for block in &scope.region.blocks {
        copy.block(*block);
    }
    copy.blocks[&scope.region.start]
}

impl Copy<'_, '_> {
    /// Copy the phis of a block, still without incoming values, and store those that have a slot.
    fn phis(&mut self, old: BlockId) {
        self.b.at = self.blocks[&old];
        let insts = &self.scope.kernel.function.block(old).insts;
        let phis = insts.iter().filter(|i| matches!(i.op, Op::Phi { .. }));
        let phis: Vec<(ValueId, &Inst)> = phis.filter_map(|i| Some((i.result?, i))).collect();
        for (result, inst) in &phis {
            let Op::Phi { flags, ty, .. } = &inst.op else { continue };
            let op = Op::Phi { flags: flags.clone(), ty: ty.clone(), incoming: Vec::new() };
            self.b.push(Inst { result: Some(self.values[result]), op, metadata: Vec::new() });
        }
        for (result, _) in phis {
            self.store_to_slot(result);
        }
    }

    fn block(&mut self, old: BlockId) {
        let kernel = self.scope.kernel;
        self.b.at = self.blocks[&old];
        let source = kernel.function.block(old);
        for inst in source.insts.iter().filter(|i| !matches!(i.op, Op::Phi { .. })) {
            let mut op = inst.op.clone();
            op.map_operands(|o| *o = self.resolve(o));
            let result = inst.result.map(|r| self.values[&r]);
            self.b.push(Inst { result, op, metadata: Vec::new() });
            if let Some(result) = inst.result {
                self.store_to_slot(result);
            }
        }
        if let Some(barrier) = kernel.barrier_after(old) {
            self.b.br(self.scope.arrive[&barrier]);
            return;
        }
        let mut term = source.term.clone();
        if let Term::Ret(_) = term {
            self.b.br(self.scope.returned);
            return;
        }
        self.feed_phis(old, &term);
        term.map_operands(|o| *o = self.resolve(o));
        term.map_successors(|s| self.blocks[&s]);
        self.b.end(term);
    }

    /// Give the phis of the blocks behind `term` their values for the edges from `old`.
    fn feed_phis(&mut self, old: BlockId, term: &Term) {
        let from = self.b.at;
        let successors: HashSet<BlockId> = term.successors().into_iter().collect();
        for successor in successors {
            let target = self.blocks[&successor];
            let insts = &self.scope.kernel.function.block(successor).insts;
            let mut nth = 0;
            for inst in insts {
                let Op::Phi { incoming, .. } = &inst.op else { continue };
                for (operand, _) in incoming.iter().filter(|(_, pred)| *pred == old) {
                    let operand = self.resolve(operand);
                    let Op::Phi { incoming, .. } = &mut self.b.f.block_mut(target).insts[nth].op else {
                        unreachable!("the phis of a copied block come first")
                    };
                    incoming.push((operand, from));
                }
                nth += 1;
            }
        }
    }

    /// What stands for an operand at the end of the current block.
    fn resolve(&mut self, operand: &Operand) -> Operand {
        let value = match operand {
            Operand::Const(c) => return self.scope.threadgroup.resolve(c),
            Operand::Value(value) => *value,
        };
        if let Some(known) = self.scope.known.get(&value) {
            return known.clone();
        }
        if let Some(slot) = self.scope.slots.get(&value) {
            let ty: Type = self.scope.kernel.function.ty(value).clone();
            return self.b.load(ty, slot.clone(), None).into();
        }
        self.values[&value].into()
    }

    fn store_to_slot(&mut self, value: ValueId) {
        if let Some(slot) = self.scope.slots.get(&value) {
            let ty = self.scope.kernel.function.ty(value).clone();
            self.b.store(ty, self.values[&value], slot.clone());
        }
    }
}
