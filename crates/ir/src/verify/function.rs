//! The structure of a function: ids, definitions, phis, dominance, terminators.

use super::instructions::typed_operands;
use super::{Check, VerifyError, is_sized};
use crate::dominators::Dominators;
use crate::model::{BlockId, Function, Inst, Op, Operand, Term, Type, ValueId};

/// Where a value is defined.
#[derive(Clone, Copy, PartialEq)]
enum Site {
    Nowhere,
    Param,
    /// The instruction at this index of the block.
    Inst(BlockId, usize),
}

pub(super) fn verify(check: &Check, function: &Function, errors: &mut Vec<VerifyError>) {
    let mut verifier = Verifier { check, function, errors, sites: Vec::new() };
    let before = verifier.errors.len();
    verifier.params();
    verifier.definitions();
    verifier.targets();
    if verifier.errors.len() > before || function.is_declaration() {
        return;
    }
    let edges = edges(function);
    let dominators = Dominators::compute(function);
    for block in function.block_ids() {
        verifier.phis(block, &edges[block.0 as usize]);
        verifier.block(block, &dominators);
    }
}

struct Verifier<'a, 'e> {
    check: &'a Check<'a>,
    function: &'a Function,
    errors: &'e mut Vec<VerifyError>,
    /// By value.
    sites: Vec<Site>,
}

/// The predecessors of each block, once per edge.
fn edges(function: &Function) -> Vec<Vec<BlockId>> {
    let mut all = vec![Vec::new(); function.blocks.len()];
    for from in function.block_ids() {
        for to in function.block(from).term.successors() {
            all[to.0 as usize].push(from);
        }
    }
    all
}

impl Verifier<'_, '_> {
    fn report(&mut self, block: Option<BlockId>, message: impl Into<String>) {
        let name = |b: BlockId| self.function.block(b).name.clone().unwrap_or_else(|| b.0.to_string());
        self.errors.push(VerifyError {
            function: Some(self.function.name.clone()),
            block: block.map(name),
            message: message.into(),
        });
    }

    fn value_name(&self, value: ValueId) -> String {
        let name = self.function.values.get(value.0 as usize).and_then(|info| info.name.as_deref());
        name.map_or_else(|| format!("value {}", value.0), |name| format!("`%{name}`"))
    }

    fn params(&mut self) {
        let function = self.function;
        self.sites = vec![Site::Nowhere; function.values.len()];
        if matches!(function.ret, Type::Metadata) && !function.name.starts_with("llvm.") {
            self.report(None, "the return type is `metadata`");
        }
        for param in &function.params {
            if param.ty == Type::Void {
                self.report(None, "a parameter has the type `void`");
            }
            self.define(None, param.value, &param.ty, Site::Param);
        }
    }

    fn definitions(&mut self) {
        let function = self.function;
        for id in function.block_ids() {
            for (at, inst) in function.block(id).insts.iter().enumerate() {
                match (inst.op.result_type(self.check.module), inst.result) {
                    (None, _) => self.report(Some(id), "an instruction's operands do not fit its operation"),
                    (Some(Type::Void), None) => {}
                    (Some(Type::Void), Some(value)) => {
                        let name = self.value_name(value);
                        self.report(Some(id), format!("{name} is the result of an instruction without one"));
                    }
                    (Some(ty), Some(value)) => self.define(Some(id), value, &ty, Site::Inst(id, at)),
                    (Some(ty), None) => {
                        self.report(Some(id), format!("an instruction of type `{ty}` has no result"));
                    }
                }
            }
        }
    }

    fn define(&mut self, block: Option<BlockId>, value: ValueId, ty: &Type, site: Site) {
        let name = self.value_name(value);
        let Some(info) = self.function.values.get(value.0 as usize) else {
            return self.report(block, format!("{name} does not exist"));
        };
        if info.ty != *ty {
            self.report(block, format!("{name} of type `{}` is defined as `{ty}`", info.ty));
        }
        if self.sites[value.0 as usize] != Site::Nowhere {
            self.report(block, format!("{name} is defined twice"));
        }
        self.sites[value.0 as usize] = site;
    }

    /// Every block reference is within the function, and none leads to the entry.
    fn targets(&mut self) {
        let function = self.function;
        let count = function.blocks.len();
        for id in function.block_ids() {
            for to in function.block(id).term.successors() {
                match to.0 as usize {
                    0 => self.report(Some(id), "a branch to the entry block"),
                    at if at >= count => {
                        self.report(Some(id), format!("a branch to block {at}, which does not exist"))
                    }
                    _ => {}
                }
            }
        }
    }

    fn phis(&mut self, id: BlockId, edges: &[BlockId]) {
        let function = self.function;
        let mut expected = edges.to_vec();
        expected.sort();
        let mut behind = false;
        for inst in &function.block(id).insts {
            let Op::Phi { incoming, .. } = &inst.op else {
                behind = true;
                continue;
            };
            if behind {
                self.report(Some(id), "a phi behind another instruction");
            }
            let mut from: Vec<BlockId> = incoming.iter().map(|(_, from)| *from).collect();
            from.sort();
            if from != expected {
                let name = inst.result.map(|r| self.value_name(r)).unwrap_or_default();
                self.report(Some(id), format!("the incoming blocks of phi {name} are not the predecessors"));
            }
        }
    }

    fn block(&mut self, id: BlockId, dominators: &Dominators) {
        let function = self.function;
        let block = function.block(id);
        for (at, inst) in block.insts.iter().enumerate() {
            for (ty, operand) in typed_operands(&inst.op) {
                self.operand(id, ty, operand);
            }
            self.uses(id, at, inst, dominators);
            if let Err(message) = self.check.instruction(&inst.op) {
                self.report(Some(id), message);
            }
        }
        for operand in block.term.operands() {
            self.dominated(id, (id, block.insts.len()), operand, dominators);
        }
        self.terminator(id, &block.term);
    }

    fn operand(&mut self, block: BlockId, ty: &Type, operand: &Operand) {
        match operand {
            Operand::Value(value) => {
                let Some(info) = self.function.values.get(value.0 as usize) else { return };
                if info.ty != *ty {
                    let name = self.value_name(*value);
                    self.report(Some(block), format!("{name} of type `{}` is used as `{ty}`", info.ty));
                }
            }
            // A metadata argument is kept as text.
            Operand::Const(_) if *ty == Type::Metadata => {}
            Operand::Const(constant) => {
                if let Err(message) = self.check.constant(ty, constant) {
                    self.report(Some(block), message);
                }
            }
        }
    }

    fn uses(&mut self, id: BlockId, at: usize, inst: &Inst, dominators: &Dominators) {
        if let Op::Phi { incoming, .. } = &inst.op {
            for (operand, from) in incoming {
                let Some(block) = self.function.blocks.get(from.0 as usize) else { continue };
                self.dominated(id, (*from, block.insts.len()), operand, dominators);
            }
            return;
        }
        for operand in inst.op.operands() {
            self.dominated(id, (id, at), operand, dominators);
        }
    }

    /// The definition of a value dominates its use.
    fn dominated(
        &mut self,
        block: BlockId,
        place: (BlockId, usize),
        operand: &Operand,
        dominators: &Dominators,
    ) {
        let Some(value) = operand.value() else { return };
        let dominated = match self.sites.get(value.0 as usize) {
            None | Some(Site::Nowhere) => {
                let name = self.value_name(value);
                return self.report(Some(block), format!("{name} is used but not defined"));
            }
            Some(Site::Param) => true,
            Some(Site::Inst(at, _)) if !dominators.is_reachable(place.0) || *at != place.0 => {
                dominators.dominates(*at, place.0)
            }
            Some(Site::Inst(_, index)) => *index < place.1,
        };
        if !dominated {
            let name = self.value_name(value);
            self.report(Some(block), format!("{name} is used where its definition does not dominate"));
        }
    }

    fn terminator(&mut self, id: BlockId, term: &Term) {
        match term {
            Term::CondBr { cond, .. } => self.operand(id, &Type::I1, cond),
            Term::Switch { value, cases, .. } => {
                self.operand(id, &value.ty, &value.op);
                if !value.ty.is_int() {
                    self.report(Some(id), format!("a switch on the type `{}`", value.ty));
                }
                let mut seen = std::collections::HashSet::new();
                for (constant, _) in cases {
                    self.operand(id, &value.ty, &Operand::Const(constant.clone()));
                    if !seen.insert(constant) {
                        self.report(Some(id), "a switch with the same case twice");
                    }
                }
            }
            Term::Ret(None) if self.function.ret != Type::Void => {
                self.report(Some(id), format!("`ret void` in a function of type `{}`", self.function.ret));
            }
            Term::Ret(Some(value)) => {
                self.operand(id, &value.ty, &value.op);
                if value.ty != self.function.ret || !is_sized(&value.ty) {
                    let message = format!("`ret {}` in a function of type `{}`", value.ty, self.function.ret);
                    self.report(Some(id), message);
                }
            }
            Term::Br(_) | Term::Ret(None) | Term::Unreachable => {}
        }
    }
}
