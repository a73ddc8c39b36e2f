//! Divergence analysis: the branches at which threads of a simdgroup may diverge.
//!
//! A value is divergent if it depends on the thread's position, on private memory or on memory that only the thread reads (data
//! dependence); if it is selected by a divergent branch (sync dependence); or if it leaves a loop that threads leave in different
//! iterations (temporal divergence). Other values are uniform over converged threads.

use std::collections::{HashMap, HashSet};

use elinvar_ir::{Block, BlockId, Call, Function, Inst, Op, Operand, Term, ValueId};

use crate::analysis::cfg::Cfg;
use crate::intrinsic::{Intrinsic, Position, Uniform};
use crate::support::ir::callee_name;

/// Divergent values and branches.
pub(crate) struct DivergenceAnalysis {
    values: HashSet<ValueId>,
    /// Those that control flow makes divergent: by sync dependence or temporal divergence.
    selected: HashSet<ValueId>,
    /// Phis that select nothing.
    congruent: HashSet<ValueId>,
    /// Blocks with a divergent branch.
    branches: HashSet<BlockId>,
}

impl DivergenceAnalysis {
    pub fn new(function: &Function, cfg: &Cfg) -> Self {
        let (values, selected, branches) = (HashSet::new(), HashSet::new(), HashSet::new());
        let mut divergence = Self { values, selected, congruent: congruent(function), branches };
        while divergence.step(function, cfg) {}
        divergence
    }

    /// Whether the branch of a block may diverge.
    pub fn is_divergent(&self, block: BlockId) -> bool {
        self.branches.contains(&block)
    }

    /// Whether a value is the same for all converged threads.
    pub fn is_uniform(&self, value: ValueId) -> bool {
        !self.values.contains(&value)
    }

    /// Whether a value is divergent whatever its operands are: at a join of divergent paths, or behind a divergent loop.
    pub fn is_selected(&self, value: ValueId) -> bool {
        self.selected.contains(&value)
    }

    /// One iteration over the function; returns whether anything changed.
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
                self.values.extend(&self.selected);
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
                Some(name) => !self.returns_uniform(name, call),
                None => true,
            },
            op => op.operands().iter().any(|operand| self.has(operand)),
        }
    }

    /// Whether the result of a call is uniform over converged threads of a simdgroup.
    fn returns_uniform(&self, name: &str, call: &Call) -> bool {
        let function = match Intrinsic::parse(name) {
            Some(Intrinsic::Group(function)) => function,
            Some(Intrinsic::Position(position)) => return position != Position::Thread,
            // The question whether the device has a product of tensors, and its lowered form.
            Some(Intrinsic::HasTensorProduct) => return !call.args.iter().any(|arg| self.has(&arg.op)),
            None if name == crate::nvptx::TENSOR_QUESTION => {
                return !call.args.iter().any(|arg| self.has(&arg.op));
            }
            _ => return false,
        };
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

    /// Marks phis at the joins of a divergent branch as divergent.
    fn join(&mut self, function: &Function, cfg: &Cfg, branch: BlockId) {
        let sides: Vec<HashSet<BlockId>> =
            cfg.successors[branch.0 as usize].iter().map(|side| behind(cfg, branch, *side)).collect();
        for block in &cfg.order {
            if sides.iter().filter(|side| side.contains(block)).count() > 1 {
                let found = phis(function.block(*block)).filter_map(|phi| phi.result);
                self.selected.extend(found.filter(|phi| !self.congruent.contains(phi)));
            }
        }
    }

    /// Marks values used outside a loop with a divergent exit as divergent.
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
            self.selected.extend(made.filter_map(|inst| inst.result).filter(|value| used.contains(value)));
        }
    }
}

/// The blocks from `side` to the join of all paths from `branch`.
fn behind(cfg: &Cfg, branch: BlockId, side: BlockId) -> HashSet<BlockId> {
    let (mut seen, mut todo) = (HashSet::new(), vec![side]);
    while let Some(block) = todo.pop() {
        if seen.insert(block) && block != branch && !cfg.post_dominates(block, branch) {
            todo.extend(&cfg.successors[block.0 as usize]);
        }
    }
    seen
}

/// Phis whose incoming values are one, or are computed by the same operation from the same operands: partial redundancy elimination
/// leaves such phis.
fn congruent(function: &Function) -> HashSet<ValueId> {
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    let pure = insts.filter(|inst| matches!(inst.op, Op::Binary { .. } | Op::Cast { .. } | Op::Gep { .. }));
    let operations: HashMap<ValueId, &Op> = pure.filter_map(|inst| Some((inst.result?, &inst.op))).collect();
    let of = |operand: &Operand| operations.get(&operand.value()?).copied();
    let is_same = |a: &Operand, b: &Operand| a == b || of(a).is_some() && of(a) == of(b);
    let selects =
        |incoming: &[(Operand, BlockId)]| !incoming.windows(2).all(|pair| is_same(&pair[0].0, &pair[1].0));
    let all = function.blocks.iter().flat_map(phis);
    let same = all.filter(|phi| matches!(&phi.op, Op::Phi { incoming, .. } if !selects(incoming)));
    same.filter_map(|phi| phi.result).collect()
}

fn phis(block: &Block) -> impl Iterator<Item = &Inst> {
    block.insts.iter().take_while(|inst| matches!(inst.op, Op::Phi { .. }))
}

fn uses(block: &Block) -> impl Iterator<Item = ValueId> + '_ {
    let operands = block.insts.iter().flat_map(|inst| inst.op.operands()).chain(block.term.operands());
    operands.filter_map(Operand::value)
}
