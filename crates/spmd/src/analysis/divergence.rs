//! Which branches threads of a simdgroup may take apart.
//!
//! A value varies if it follows from a thread's own position, from memory of its own or from what only it reads; or if it
//! is chosen by a branch that threads take apart; or if it leaves a loop that threads leave in different iterations. What
//! does not vary is the same for the threads that are together, and so is the way they take on it.

use std::collections::HashSet;

use elinvar_ir::{Block, BlockId, Call, Function, Inst, Op, Operand, Term, ValueId};

use crate::analysis::cfg::Cfg;
use crate::intrinsic::{Intrinsic, Uniform};
use crate::support::ir::callee_name;

/// What varies between threads that are together.
pub(crate) struct DivergenceAnalysis {
    values: HashSet<ValueId>,
    /// The blocks whose branch threads take apart.
    branches: HashSet<BlockId>,
}

impl DivergenceAnalysis {
    pub fn new(function: &Function, cfg: &Cfg) -> Self {
        let mut divergence = Self { values: HashSet::new(), branches: HashSet::new() };
        while divergence.step(function, cfg) {}
        divergence
    }

    /// Whether threads may take a block's branch apart.
    pub fn is_divergent(&self, block: BlockId) -> bool {
        self.branches.contains(&block)
    }

    /// Look at everything once; whether that found something.
    fn step(&mut self, function: &Function, cfg: &Cfg) -> bool {
        let before = (self.values.len(), self.branches.len());
        for inst in function.blocks.iter().flat_map(|b| &b.insts) {
            if let Some(result) = inst.result
                && self.varies(inst)
            {
                self.values.insert(result);
            }
        }
        for block in &cfg.order {
            if self.decides(&function.block(*block).term) && self.branches.insert(*block) {
                self.join(function, cfg, *block);
                self.leave(function, cfg, *block);
            }
        }
        before != (self.values.len(), self.branches.len())
    }

    fn has(&self, operand: &Operand) -> bool {
        operand.value().is_some_and(|value| self.values.contains(&value))
    }

    fn varies(&self, inst: &Inst) -> bool {
        match &inst.op {
            Op::Alloca { .. } | Op::AtomicRmw { .. } | Op::CmpXchg { .. } => true,
            Op::Load { volatile: true, .. } | Op::Load { atomic: Some(_), .. } => true,
            Op::Call(call) => match callee_name(call) {
                Some(name) if name.starts_with("llvm.nvvm.read.ptx.sreg.tid.") => true,
                Some(name) if name.starts_with("llvm.") => call.args.iter().any(|a| self.has(&a.op)),
                Some(name) => !self.is_uniform(name, call),
                None => true,
            },
            op => op.operands().iter().any(|operand| self.has(operand)),
        }
    }

    /// Whether all threads of a simdgroup that make a call together get one value.
    fn is_uniform(&self, name: &str, call: &Call) -> bool {
        let Some(Intrinsic::Group(function)) = Intrinsic::parse(name) else { return false };
        match function.uniform() {
            Uniform::Always => true,
            Uniform::Never => false,
            Uniform::WithArgument(index) => call.args.get(index).is_some_and(|lane| !self.has(&lane.op)),
        }
    }

    fn decides(&self, term: &Term) -> bool {
        match term {
            Term::CondBr { cond, then, other } => then != other && self.has(cond),
            Term::Switch { value, .. } => self.has(&value.op),
            _ => false,
        }
    }

    /// What is chosen where the sides of a branch meet again varies.
    fn join(&mut self, function: &Function, cfg: &Cfg, branch: BlockId) {
        let sides: Vec<HashSet<BlockId>> =
            cfg.successors[branch.0 as usize].iter().map(|side| behind(cfg, branch, *side)).collect();
        for block in &cfg.order {
            if sides.iter().filter(|side| side.contains(block)).count() > 1 {
                self.values.extend(phis(function.block(*block)).filter_map(|phi| phi.result));
            }
        }
    }

    /// What is used behind a loop that threads leave by a branch varies: it is from different iterations.
    fn leave(&mut self, function: &Function, cfg: &Cfg, branch: BlockId) {
        for l in cfg.loops_around(branch).collect::<Vec<_>>() {
            if cfg.successors[branch.0 as usize].iter().all(|to| cfg.contains(l, *to)) {
                continue;
            }
            let (inside, outside): (Vec<BlockId>, Vec<BlockId>) =
                cfg.order.iter().partition(|block| cfg.contains(l, **block));
            let used: HashSet<ValueId> =
                outside.iter().flat_map(|block| uses(function.block(*block))).collect();
            let made = inside.iter().flat_map(|block| &function.block(*block).insts);
            self.values.extend(made.filter_map(|inst| inst.result).filter(|value| used.contains(value)));
        }
    }
}

/// The blocks from `side` on, to where all ways from `branch` have met.
fn behind(cfg: &Cfg, branch: BlockId, side: BlockId) -> HashSet<BlockId> {
    let (mut seen, mut todo) = (HashSet::new(), vec![side]);
    while let Some(block) = todo.pop() {
        if seen.insert(block) && block != branch && !cfg.post_dominates(block, branch) {
            todo.extend(&cfg.successors[block.0 as usize]);
        }
    }
    seen
}

fn phis(block: &Block) -> impl Iterator<Item = &Inst> {
    block.insts.iter().take_while(|inst| matches!(inst.op, Op::Phi { .. }))
}

fn uses(block: &Block) -> impl Iterator<Item = ValueId> + '_ {
    let operands = block.insts.iter().flat_map(|inst| inst.op.operands()).chain(block.term.operands());
    operands.filter_map(Operand::value)
}
