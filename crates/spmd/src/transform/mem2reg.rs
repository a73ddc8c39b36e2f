//! Promotes stack slots to SSA values, and removes dead code, as LLVM's mem2reg and ADCE do: clang reads less text.
//!
//! A slot is promoted if its address is used by loads and stores of its whole type only. Phis are placed in the iterated dominance frontier of
//! a slot's stores, where it is live and its value is not a [known constant](super::slot_values), and values are renamed in a walk over the
//! dominator tree (R. Cytron et al., "Efficiently computing static single assignment form and the control dependence graph", 1991). Phis
//! that no live instruction uses are dead. Nothing here recurses.

use std::collections::{HashMap, HashSet};

use elinvar_ir::{BlockId, Const, Dominators, Function, Inst, Op, Operand, Type, ValueId, predecessors};

use crate::support::ir::callee_name;
use crate::support::vector_intrinsics::is_elementwise;
use crate::transform::slot_values::{Access, SlotValues};

/// Promotes the slots of `function`.
pub(crate) fn promote(function: &mut Function) {
    let slots = slots(function);
    if !slots.is_empty() {
        Promotion::new(function, slots).run();
    }
}

/// The slots that can be promoted: address and type, in the order of the text.
fn slots(function: &Function) -> Vec<(ValueId, Type)> {
    let Some(entry) = function.blocks.first() else { return Vec::new() };
    let mut types: HashMap<ValueId, &Type> = HashMap::new();
    let mut order = Vec::new();
    for inst in &entry.insts {
        if let (Op::Alloca { ty, count: None, addrspace: 0, .. }, Some(result)) = (&inst.op, inst.result) {
            types.insert(result, ty);
            order.push(result);
        }
    }
    for block in &function.blocks {
        for inst in &block.insts {
            let whole = match &inst.op {
                Op::Load { ty, ptr, volatile: false, atomic: None, .. } => {
                    ptr.op.value().filter(|slot| types.get(slot).is_some_and(|own| *own == ty))
                }
                Op::Store { value, ptr, volatile: false, atomic: None, .. } => {
                    let slot = ptr.op.value().filter(|slot| types.get(slot) == Some(&&value.ty));
                    slot.filter(|slot| value.op.value() != Some(*slot))
                }
                _ => None,
            };
            for operand in inst.op.operands() {
                if let Some(value) = operand.value()
                    && Some(value) != whole
                {
                    types.remove(&value);
                }
            }
        }
        for operand in block.term.operands() {
            operand.value().map(|value| types.remove(&value));
        }
    }
    order.into_iter().filter_map(|slot| Some((slot, types.get(&slot)?.to_owned().clone()))).collect()
}

struct Promotion<'f> {
    function: &'f mut Function,
    slots: Vec<(ValueId, Type)>,
    /// Position of each slot in `slots`.
    numbers: HashMap<ValueId, usize>,
    children: Vec<Vec<BlockId>>,
    frontiers: Vec<Vec<BlockId>>,
    is_reachable: Vec<bool>,
    /// Per block, its phis: the slot, the result, and the incoming values.
    phis: Vec<Vec<Phi>>,
    /// What loads are replaced by.
    loads: HashMap<ValueId, Operand>,
}

struct Phi {
    slot: usize,
    result: ValueId,
    incoming: Vec<(Operand, BlockId)>,
}

/// A step of the walk over the dominator tree.
enum Step {
    Enter(BlockId),
    /// Restores the values of the slots that a block has changed.
    Leave(Vec<(usize, Operand)>),
}

impl<'f> Promotion<'f> {
    fn new(function: &'f mut Function, slots: Vec<(ValueId, Type)>) -> Self {
        let dominators = Dominators::compute(function);
        let count = function.blocks.len();
        let mut frontiers = vec![Vec::new(); count];
        let preds = predecessors(function);
        for block in function.block_ids().filter(|block| dominators.is_reachable(*block)) {
            let idom = dominators.idom(block);
            for pred in preds[block.0 as usize].iter().filter(|pred| dominators.is_reachable(**pred)) {
                let mut at = Some(*pred);
                while let Some(runner) = at.filter(|_| at != idom) {
                    let frontier: &mut Vec<BlockId> = &mut frontiers[runner.0 as usize];
                    if frontier.last() != Some(&block) {
                        frontier.push(block);
                    }
                    at = dominators.idom(runner);
                }
            }
        }
        let is_reachable = function.block_ids().map(|block| dominators.is_reachable(block)).collect();
        let numbers = slots.iter().enumerate().map(|(number, (slot, _))| (*slot, number)).collect();
        let phis = (0..count).map(|_| Vec::new()).collect();
        let children = dominators.children();
        Self { function, slots, numbers, children, frontiers, is_reachable, phis, loads: HashMap::new() }
    }

    fn run(mut self) {
        let values = SlotValues::new(self.function, self.slots.len(), |inst| self.access(inst));
        self.place_phis(&values);
        self.rename(&values);
        self.rewrite();
    }

    fn access(&self, inst: &Inst) -> Option<Access> {
        let number = |ptr: &Operand| self.numbers.get(&ptr.value()?).copied();
        match &inst.op {
            Op::Store { value, ptr, .. } => Some(Access::Store(number(&ptr.op)?, value.op.clone())),
            Op::Load { ptr, .. } => Some(Access::Load(number(&ptr.op)?)),
            _ => None,
        }
    }

    fn place_phis(&mut self, values: &SlotValues) {
        let mut stores = vec![Vec::new(); self.slots.len()];
        for block in self.function.block_ids().filter(|block| self.is_reachable[block.0 as usize]) {
            for inst in &self.function.block(block).insts {
                if let Some(Access::Store(slot, _)) = self.access(inst)
                    && stores[slot].last() != Some(&block)
                {
                    stores[slot].push(block);
                }
            }
        }
        let mut placed = HashSet::new();
        for (slot, mut todo) in stores.into_iter().enumerate() {
            placed.clear();
            while let Some(block) = todo.pop() {
                for at in &self.frontiers[block.0 as usize] {
                    if values.is_live(*at, slot) && placed.insert(*at) {
                        let (address, ty) = &self.slots[slot];
                        let name = self.function.values[address.0 as usize].name.clone();
                        let result = self.function.new_value(ty.clone(), name.as_deref());
                        self.phis[at.0 as usize].push(Phi { slot, result, incoming: Vec::new() });
                        todo.push(*at);
                    }
                }
            }
        }
    }

    fn rename(&mut self, facts: &SlotValues) {
        let mut values: Vec<Operand> = vec![Const::Undef.into(); self.slots.len()];
        let mut steps = vec![Step::Enter(BlockId(0))];
        while let Some(step) = steps.pop() {
            let block = match step {
                Step::Enter(block) => block,
                Step::Leave(before) => {
                    before.into_iter().rev().for_each(|(slot, value)| values[slot] = value);
                    continue;
                }
            };
            let mut before = Vec::new();
            let mut set = |values: &mut Vec<Operand>, slot: usize, value: Operand| {
                before.push((slot, std::mem::replace(&mut values[slot], value)));
            };
            for phi in &self.phis[block.0 as usize] {
                set(&mut values, phi.slot, phi.result.into());
            }
            let mut known = facts.known(block);
            for inst in &self.function.block(block).insts {
                match (self.access(inst), inst.result) {
                    (Some(Access::Store(slot, value)), _) => {
                        facts.store(&mut known, slot, &value);
                        // A value that was loaded from a slot is what the slot held.
                        let value =
                            value.value().and_then(|value| self.loads.get(&value).cloned()).unwrap_or(value);
                        set(&mut values, slot, value);
                    }
                    (Some(Access::Load(slot)), Some(result)) => {
                        let value = facts.constant(&known, slot).unwrap_or(&values[slot]);
                        self.loads.insert(result, value.clone());
                    }
                    _ => {}
                }
            }
            for successor in self.function.block(block).term.successors() {
                for phi in &mut self.phis[successor.0 as usize] {
                    let value = facts.constant(&known, phi.slot).unwrap_or(&values[phi.slot]);
                    phi.incoming.push((value.clone(), block));
                }
            }
            steps.push(Step::Leave(before));
            steps.extend(self.children[block.0 as usize].iter().map(|child| Step::Enter(*child)));
        }
    }

    fn rewrite(self) {
        let Self { function, slots, numbers, is_reachable, phis, loads, .. } = self;
        let preds = predecessors(function);
        let replace = |operand: &mut Operand| {
            if let Some(value) = operand.value().and_then(|value| loads.get(&value)) {
                *operand = value.clone();
            }
        };
        let is_slot = |operand: &Operand| operand.value().is_some_and(|value| numbers.contains_key(&value));
        let unreached: Operand = Const::Poison.into();
        for (index, phis) in phis.into_iter().enumerate() {
            let block = &mut function.blocks[index];
            let is_reachable = is_reachable[index];
            block.insts.retain_mut(|inst| match &mut inst.op {
                Op::Alloca { .. } => !inst.result.is_some_and(|result| numbers.contains_key(&result)),
                Op::Store { ptr, .. } => !is_slot(&ptr.op),
                // Loads of blocks that cannot be reached have no value.
                Op::Load { ty, ptr, .. } if is_slot(&ptr.op) && !is_reachable => {
                    inst.op = Op::Freeze(elinvar_ir::Typed::new(ty.clone(), unreached.clone()));
                    true
                }
                Op::Load { ptr, .. } => !is_slot(&ptr.op),
                _ => true,
            });
            block.insts.iter_mut().for_each(|inst| inst.op.map_operands(replace));
            block.term.map_operands(replace);
            let first = phis.into_iter().map(|phi| {
                let mut incoming = phi.incoming;
                let unreached_preds =
                    preds[index].iter().filter(|pred| !incoming.iter().any(|(_, from)| from == *pred));
                let more: Vec<_> = unreached_preds.map(|pred| (unreached.clone(), *pred)).collect();
                incoming.extend(more);
                let op = Op::Phi { flags: String::new(), ty: slots[phi.slot].1.clone(), incoming };
                Inst { result: Some(phi.result), op, metadata: Vec::new() }
            });
            let rest = std::mem::take(&mut block.insts);
            block.insts = first.chain(rest).collect();
        }
    }
}

/// Removes instructions without effects whose results no live instruction uses.
pub(crate) fn remove_dead_code(function: &mut Function) {
    let mut definitions: HashMap<ValueId, (usize, usize)> = HashMap::new();
    let mut live: HashSet<ValueId> = HashSet::new();
    let mut todo: Vec<ValueId> = Vec::new();
    let mut uses = |operands: Vec<&Operand>, todo: &mut Vec<ValueId>| {
        for value in operands.into_iter().filter_map(|operand| operand.value()) {
            if live.insert(value) {
                todo.push(value);
            }
        }
    };
    for (index, block) in function.blocks.iter().enumerate() {
        for (at, inst) in block.insts.iter().enumerate() {
            match inst.result {
                Some(result) if is_removable(&inst.op) => {
                    definitions.insert(result, (index, at));
                }
                _ => uses(inst.op.operands(), &mut todo),
            }
        }
        uses(block.term.operands(), &mut todo);
    }
    while let Some(value) = todo.pop() {
        if let Some((block, at)) = definitions.get(&value) {
            uses(function.blocks[*block].insts[*at].op.operands(), &mut todo);
        }
    }
    for block in &mut function.blocks {
        block.insts.retain(|inst| {
            !is_removable(&inst.op) || inst.result.is_none_or(|result| live.contains(&result))
        });
    }
}

/// Whether an operation has no effect but its result.
pub(crate) fn is_removable(op: &Op) -> bool {
    match op {
        Op::Load { volatile, atomic, .. } => !volatile && atomic.is_none(),
        Op::Call(call) => {
            let reduces = callee_name(call).is_some_and(|name| name.starts_with("llvm.vector.reduce."));
            reduces || is_elementwise(call)
        }
        Op::Store { .. } | Op::Fence(_) | Op::AtomicRmw { .. } | Op::CmpXchg { .. } => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use elinvar_ir::{Module, verify};

    use super::*;

    fn promoted(text: &str) -> Vec<String> {
        let mut module = Module::parse(text).unwrap();
        promote(&mut module.functions[0]);
        remove_dead_code(&mut module.functions[0]);
        verify(&module).unwrap();
        module.functions[0].to_string().lines().map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn a_slot_becomes_phis_where_stores_meet() {
        let lines = promoted(
            "define i32 @f(i32 %n, i1 %c) {
            entry:
              %sum = alloca i32
              %i = alloca i32
              %unused = alloca i32
              store i32 0, ptr %sum
              store i32 0, ptr %i
              br label %head
            head:
              %i0 = load i32, ptr %i
              %more = icmp ult i32 %i0, %n
              br i1 %more, label %body, label %end
            body:
              br i1 %c, label %add, label %next
            add:
              %s0 = load i32, ptr %sum
              %s1 = add i32 %s0, %i0
              store i32 %s1, ptr %sum
              %dead = mul i32 %s1, %s1
              store i32 %dead, ptr %unused
              br label %next
            next:
              %i1 = add i32 %i0, 1
              store i32 %i1, ptr %i
              br label %head
            end:
              %s = load i32, ptr %sum
              ret i32 %s
            }",
        );
        let lines: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
        let expected = [
            "define i32 @f(i32 %n, i1 %c) {",
            "entry:",
            "br label %head",
            "head:",
            "%sum = phi i32 [ 0, %entry ], [ %sum.1, %next ]",
            "%i = phi i32 [ 0, %entry ], [ %i1, %next ]",
            "%more = icmp ult i32 %i, %n",
            "br i1 %more, label %body, label %end",
            "body:",
            "br i1 %c, label %add, label %next",
            "add:",
            "%s1 = add i32 %sum, %i",
            "br label %next",
            "next:",
            "%sum.1 = phi i32 [ %sum, %body ], [ %s1, %add ]",
            "%i1 = add i32 %i, 1",
            "br label %head",
            "end:",
            "ret i32 %sum",
            "}",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_slot_whose_address_is_used_otherwise_is_kept() {
        let text = "define i32 @f(i32 %n) {
              %passed = alloca i32
              %narrow = alloca i32
              %volatile = alloca i32
              %itself = alloca ptr
              store i32 %n, ptr %passed
              call void @g(ptr %passed)
              store i16 1, ptr %narrow
              store volatile i32 %n, ptr %volatile
              store ptr %itself, ptr %itself
              %a = load i32, ptr %passed
              %b = load i32, ptr %narrow
              %c = add i32 %a, %b
              ret i32 %c
            }
            declare void @g(ptr)";
        let before: Vec<String> = Module::parse(text).unwrap().functions[0]
            .to_string()
            .lines()
            .map(|line| line.trim().to_owned())
            .collect();
        assert_eq!(promoted(text), before);
    }

    #[test]
    fn both_edges_of_a_branch_and_blocks_that_cannot_be_reached_have_values() {
        let lines = promoted(
            "define i32 @f(i32 %n, i1 %c) {
            entry:
              %slot = alloca i32
              store i32 %n, ptr %slot
              br i1 %c, label %then, label %join
            then:
              store i32 7, ptr %slot
              br i1 %c, label %join, label %join
            lost:
              %x = load i32, ptr %slot
              %y = add i32 %x, 1
              store i32 %y, ptr %slot
              br label %join
            join:
              %s = load i32, ptr %slot
              ret i32 %s
            }",
        );
        let phi = lines.iter().find(|line| line.contains("phi")).unwrap();
        assert!(
            phi.ends_with("= phi i32 [ %n, %entry ], [ 7, %then ], [ 7, %then ], [ poison, %lost ]"),
            "{phi}"
        );
    }

    #[test]
    fn effects_and_what_they_use_stay() {
        let lines = promoted(
            "define void @f(ptr %p, i32 %n) {
              %a = add i32 %n, 1
              store i32 %a, ptr %p
              %old = atomicrmw add ptr %p, i32 1 monotonic
              %b = call i32 @g(i32 %n)
              %seen = load volatile i32, ptr %p
              %dead = load i32, ptr %p
              %more = add i32 %dead, %old
              ret void
            }
            declare i32 @g(i32)",
        );
        let has = |text: &str| lines.iter().any(|line| line.contains(text));
        assert!(has("%a = ") && has("atomicrmw") && has("call i32 @g") && has("load volatile"), "{lines:?}");
        assert!(!has("%dead") && !has("%more"), "{lines:?}");
    }
}
