//! Symbolic forms of a kernel's integers and addresses, and what each value depends on.
//!
//! A value with a closed form is a polynomial over positions, sizes, numbers in `constant` arguments and loop counters. What has none is a
//! symbol of its own, with a [`Taint`] that tells whether lanes can differ in it, and whether they differ because of loaded data.

use std::collections::HashMap;

use elinvar_driver::{ArgKind, Signature};
use elinvar_ir::{
    BinaryOp, BlockId, Callee, CastOp, Const, Dominators, Function, Inst, IntPredicate, Module, Op, Operand,
    PostDominators, Term, Type, Typed, ValueId,
};
use elinvar_spmd::THREADGROUP_SECTION;
use elinvar_spmd::intrinsic::{GroupOp, Intrinsic, Position, SIMDGROUP, Uniform};

use crate::loops::Loops;
use crate::poly::{Poly, Root, Symbol};

/// What a value depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taint {
    /// Lanes of a simdgroup can differ in it.
    pub lane: bool,
    /// Lanes can differ in it because of what they loaded.
    pub data: bool,
}

impl Taint {
    const DATA: Self = Self { lane: true, data: true };

    fn or(self, other: Self) -> Self {
        Self { lane: self.lane || other.lane, data: self.data || other.data }
    }
}

/// Address spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Space {
    /// Buffers.
    Device,
    /// Buffers and program-scope variables that are only read.
    Constant,
    /// Memory of the threadgroup.
    Threadgroup,
    /// A thread's own variables.
    Thread,
    /// Through an address in memory.
    Unknown,
}

/// A kernel with its values' forms.
pub(crate) struct Kernel<'m> {
    pub module: &'m Module,
    pub function: &'m Function,
    pub signature: &'m Signature,
    pub loops: Loops,
    pub post: PostDominators,
    pub dominators: Dominators,
    forms: Vec<Poly>,
    taints: Vec<Taint>,
    /// By block, whether its branch can diverge within a simdgroup.
    pub divergent: Vec<bool>,
    defined: HashMap<ValueId, (BlockId, usize)>,
}

impl<'m> Kernel<'m> {
    pub fn new(module: &'m Module, function: &'m Function, signature: &'m Signature) -> Self {
        let dominators = Dominators::compute(function);
        let mut defined = HashMap::new();
        for block in function.block_ids() {
            for (at, inst) in function.block(block).insts.iter().enumerate() {
                defined.extend(inst.result.map(|result| (result, (block, at))));
            }
        }
        let own = |index: usize| Poly::symbol(Symbol::Value(ValueId(index as u32)));
        let mut kernel = Self {
            module,
            function,
            signature,
            loops: Loops::new(function, &dominators),
            post: PostDominators::compute(function),
            dominators,
            forms: (0..function.values.len()).map(own).collect(),
            taints: vec![Taint::default(); function.values.len()],
            divergent: vec![false; function.blocks.len()],
            defined,
        };
        for (index, param) in function.params.iter().enumerate() {
            kernel.forms[param.value.0 as usize] = Poly::symbol(Symbol::Base(Root::Argument(index)));
        }
        kernel.compute_forms();
        kernel.compute_taints();
        kernel
    }

    /// The instruction that defines a value.
    pub fn definition(&self, value: ValueId) -> Option<&'m Inst> {
        let (block, at) = self.defined.get(&value)?;
        self.function.block(*block).insts.get(*at)
    }

    pub fn form(&self, operand: &Operand) -> Poly {
        match operand {
            Operand::Value(value) => self.forms[value.0 as usize].clone(),
            Operand::Const(constant) => self.form_of_constant(constant),
        }
    }

    pub fn taint(&self, operand: &Operand) -> Taint {
        operand.value().map_or_else(Taint::default, |value| self.taints[value.0 as usize])
    }

    /// The taint of a symbol.
    pub fn taint_of(&self, symbol: &Symbol) -> Taint {
        match symbol {
            Symbol::Value(value) => self.taints[value.0 as usize],
            Symbol::Thread(_) | Symbol::Lane => Taint { lane: true, data: false },
            _ => Taint::default(),
        }
    }

    /// Number of threadgroup barriers in a block.
    pub fn barriers_of(&self, block: BlockId) -> f64 {
        let is_barrier = |inst: &&Inst| match &inst.op {
            Op::Call(call) => match &call.callee {
                Callee::Function(name) => {
                    Intrinsic::parse(name).is_some_and(Intrinsic::is_threadgroup_barrier)
                }
                Callee::Indirect(_) => false,
            },
            _ => false,
        };
        self.function.block(block).insts.iter().filter(is_barrier).count() as f64
    }

    /// The block that defines a value; `None` for a parameter.
    pub fn block_of(&self, value: ValueId) -> Option<BlockId> {
        self.defined.get(&value).map(|(block, _)| *block)
    }

    /// The address space of an object.
    pub fn space(&self, root: Option<&Root>) -> Space {
        match root {
            Some(Root::Argument(index)) => match self.signature.args.get(*index) {
                Some(arg) if arg.kind == ArgKind::Threadgroup => Space::Threadgroup,
                Some(arg) if arg.constant => Space::Constant,
                _ => Space::Device,
            },
            Some(Root::Global(name)) => match self.module.global(name) {
                Some(global) if global.section.as_deref() == Some(THREADGROUP_SECTION) => Space::Threadgroup,
                _ => Space::Constant,
            },
            Some(Root::Private(_)) => Space::Thread,
            None => Space::Unknown,
        }
    }

    fn form_of_constant(&self, constant: &Const) -> Poly {
        match constant {
            Const::Int(value) => Poly::constant(*value),
            Const::Zero | Const::Null => Poly::constant(0),
            Const::Global(name) => Poly::symbol(Symbol::Base(Root::Global(name.clone()))),
            Const::Gep { source, base, indices, .. } => {
                let indices: Vec<Typed> =
                    indices.iter().map(|(ty, index)| Typed::new(ty.clone(), index.clone())).collect();
                let base = self.form_of_constant(&base.1);
                self.offset(source, &indices).and_then(|offset| base.plus(&offset, 1)).unwrap_or(base)
            }
            _ => Poly::constant(0),
        }
    }

    fn compute_forms(&mut self) {
        // In reverse postorder, every operand but those over back edges is known.
        let successors: Vec<Vec<usize>> = self
            .function
            .blocks
            .iter()
            .map(|b| b.term.successors().iter().map(|s| s.0 as usize).collect())
            .collect();
        let mut order = elinvar_ir::postorder(&successors, 0);
        order.reverse();
        // The second round sees the forms of values over back edges; a recurrence is recognized then.
        for _ in 0..3 {
            for block in order.iter().map(|block| BlockId(*block as u32)) {
                for inst in &self.function.block(block).insts {
                    if let Some(result) = inst.result
                        && let Some(form) = self.form_of(block, result, inst)
                    {
                        self.forms[result.0 as usize] = form;
                    }
                }
            }
        }
    }

    fn form_of(&self, block: BlockId, result: ValueId, inst: &Inst) -> Option<Poly> {
        match &inst.op {
            Op::Binary { op, ty: Type::Int(width), a, b, .. } => self.arithmetic(*op, *width, a, b),
            Op::Cast {
                op: CastOp::ZExt | CastOp::SExt | CastOp::PtrToInt | CastOp::IntToPtr | CastOp::AddrSpaceCast,
                from,
                to,
                ..
            } if !matches!(to, Type::Vector(..)) && from.ty != Type::I1 => Some(self.form(&from.op)),
            // Truncation of a value that fits: positions and counters have 32 bits.
            Op::Cast { op: CastOp::Trunc, from, to: Type::Int(16..), .. } => Some(self.form(&from.op)),
            Op::Freeze(value) if !matches!(value.ty, Type::Vector(..)) => Some(self.form(&value.op)),
            Op::Gep { source, base, indices, .. } if base.ty.is_ptr() => {
                self.form(&base.op).plus(&self.offset(source, indices)?, 1)
            }
            Op::Alloca { .. } => Some(Poly::symbol(Symbol::Base(Root::Private(result)))),
            Op::Load { ty: Type::Int(_), ptr, .. } => self.scalar(ptr).map(Poly::symbol),
            Op::Call(call) => {
                let Callee::Function(name) = &call.callee else { return None };
                let Some(Intrinsic::Position(position)) = Intrinsic::parse(name) else { return None };
                let dimension = match call.args.first().map(|arg| &arg.op) {
                    Some(Operand::Const(constant)) => u8::try_from(constant.as_unsigned(32)?).ok()?,
                    _ => return None,
                };
                symbol_of(position, dimension).map(Poly::symbol)
            }
            Op::Phi { incoming, .. } => self.form_of_phi(block, result, incoming),
            _ => None,
        }
    }

    /// The number in a `constant` argument that a load reads.
    fn scalar(&self, ptr: &Typed) -> Option<Symbol> {
        let form = self.form(&ptr.op);
        let Some(Root::Argument(index)) = form.root() else { return None };
        let offset = form.without(|symbol| matches!(symbol, Symbol::Base(_))).as_constant()?;
        let symbol = Symbol::Scalar(*index, offset);
        (form.symbols().count() == 1 && self.signature.args.get(*index)?.constant).then_some(symbol)
    }

    fn arithmetic(&self, op: BinaryOp, width: u32, a: &Operand, b: &Operand) -> Option<Poly> {
        let (x, y) = (self.form(a), self.form(b));
        match op {
            BinaryOp::Add => x.plus(&y, 1),
            BinaryOp::Sub => x.plus(&y, -1),
            BinaryOp::Mul => x.times(&y),
            BinaryOp::Shl => {
                let by = u32::try_from(y.as_constant()?).ok().filter(|by| *by < width.min(64))?;
                x.times(&Poly::constant(1 << by))
            }
            // `a | b` without common bits, as clang writes sums.
            BinaryOp::Or => {
                let bits = y.as_constant().filter(|bits| *bits >= 0)?;
                let fits = x.is_multiple_of((bits as u128 + 1).next_power_of_two());
                if fits { x.plus(&y, 1) } else { None }
            }
            // Also `(index << 3) & 248`, as clang writes `(index & 31) << 3`.
            BinaryOp::And => {
                let mask = u128::try_from(y.as_constant()?).ok().filter(|mask| *mask > 0)?;
                let unit = 1 << mask.trailing_zeros();
                let is_lane = mask == (u128::from(SIMDGROUP) - 1) * unit && is_linear(&x.divided(unit)?);
                let lane = Poly::symbol(Symbol::Lane);
                if is_lane { lane.times(&Poly::constant(i128::try_from(unit).ok()?)) } else { None }
            }
            BinaryOp::URem if y.as_constant() == Some(i128::from(SIMDGROUP)) && is_linear(&x) => {
                Some(Poly::symbol(Symbol::Lane))
            }
            BinaryOp::LShr if y.as_constant() == Some(5) && is_linear(&x) => {
                Some(Poly::symbol(Symbol::Simdgroup))
            }
            BinaryOp::UDiv if y.as_constant() == Some(i128::from(SIMDGROUP)) && is_linear(&x) => {
                Some(Poly::symbol(Symbol::Simdgroup))
            }
            _ => None,
        }
    }

    /// The sum of a `getelementptr`'s indices in bytes.
    fn offset(&self, source: &Type, indices: &[Typed]) -> Option<Poly> {
        let mut sum = Poly::default();
        let mut at = source.clone();
        for (level, index) in indices.iter().enumerate() {
            if level > 0 {
                match at.resolve(self.module)?.clone() {
                    Type::Array(_, element) | Type::Vector(_, element) => at = *element,
                    ty @ Type::Struct { .. } => {
                        let Operand::Const(field) = &index.op else { return None };
                        let field = field.as_unsigned(32)?;
                        let offset = ty.field_offset(usize::try_from(field).ok()?, self.module)?;
                        sum = sum.plus(&Poly::constant(i128::from(offset)), 1)?;
                        at = ty.element(u64::try_from(field).ok()?, self.module)?.clone();
                        continue;
                    }
                    _ => return None,
                }
            }
            let (size, align) = at.size_align(self.module);
            sum = sum.plus(&self.form(&index.op), i128::from(size.next_multiple_of(align.max(1))))?;
        }
        Some(sum)
    }

    fn form_of_phi(&self, block: BlockId, result: ValueId, incoming: &[(Operand, BlockId)]) -> Option<Poly> {
        let own = Symbol::Value(result);
        let form = |(operand, from): &(Operand, BlockId)| self.known_at(operand, *from, block);
        if let Some(index) = self.loops.with_header(block) {
            let is_inside = |(_, from): &&(Operand, BlockId)| self.loops.all[index].contains(*from);
            let (back, entries): (Vec<_>, Vec<_>) = incoming.iter().partition(is_inside);
            let entry = same(entries.into_iter().map(form))?;
            let current = &self.forms[result.0 as usize];
            let next = same(back.into_iter().map(form))?;
            if next == entry || next == Poly::symbol(own.clone()) {
                return Some(entry);
            }
            let step = next.plus(current, -1)?;
            let changes = |symbol: &Symbol| match symbol {
                Symbol::Iteration(inner) => {
                    self.loops.all[*inner].header == block
                        || self.loops.all[index].contains(self.loops.all[*inner].header)
                }
                Symbol::Value(value) => {
                    self.defined.get(value).is_some_and(|(b, _)| self.loops.all[index].contains(*b))
                }
                _ => false,
            };
            if step.symbols().any(changes) {
                // Once it was a recurrence, it stays one.
                return None;
            }
            return entry.plus(&step.times(&Poly::symbol(Symbol::Iteration(index)))?, 1);
        }
        same(incoming.iter().map(form))
    }

    /// The form of an operand on the edge between two blocks: on the way of `if (x == 3)`, 3 is `x`.
    fn known_at(&self, operand: &Operand, from: BlockId, to: BlockId) -> Poly {
        let form = self.form(operand);
        let Term::CondBr { cond: Operand::Value(cond), then, other } = &self.function.block(from).term else {
            return form;
        };
        let Some(Inst { op: Op::ICmp { pred, a, b, .. }, .. }) = self.definition(*cond) else { return form };
        let equal = match pred {
            IntPredicate::Eq => *then == to && *other != to,
            IntPredicate::Ne => *other == to && *then != to,
            _ => false,
        };
        if equal && form.as_constant().is_some() && self.form(b) == form { self.form(a) } else { form }
    }

    fn compute_taints(&mut self) {
        loop {
            let (taints, divergent) = (self.taints.clone(), self.divergent.clone());
            for block in self.function.block_ids() {
                let joins = self.joins_divergent(block);
                for inst in &self.function.block(block).insts {
                    let Some(result) = inst.result else { continue };
                    let mut taint = self.taint_of_inst(inst);
                    if joins && matches!(inst.op, Op::Phi { .. }) && self.loops.with_header(block).is_none() {
                        taint.lane = true;
                    }
                    let known = self.taints[result.0 as usize];
                    self.taints[result.0 as usize] = known.or(taint);
                }
                let operands = self.function.block(block).term.operands();
                let branches = self.function.block(block).term.successors().len() > 1;
                self.divergent[block.0 as usize] =
                    branches && operands.iter().any(|operand| self.taint(operand).lane);
            }
            if taints == self.taints && divergent == self.divergent {
                return;
            }
        }
    }

    /// Whether a comparison is of a thread's index with a multiple of a simdgroup's threads: clang writes `simdgroup == 0` so.
    fn selects_simdgroups(&self, pred: IntPredicate, a: &Operand, b: &Operand) -> bool {
        let Some(limit) = self.form(b).as_constant().filter(|_| is_linear(&self.form(a))) else {
            return false;
        };
        let first = match pred {
            IntPredicate::Ult | IntPredicate::Uge => limit,
            IntPredicate::Ule | IntPredicate::Ugt => limit + 1,
            _ => return false,
        };
        first % i128::from(SIMDGROUP) == 0
    }

    /// Whether a divergent branch ends at a block.
    fn joins_divergent(&self, block: BlockId) -> bool {
        let branch =
            |from: &BlockId| self.divergent[from.0 as usize] && self.post.ipdom(*from) == Some(block);
        self.function.block_ids().any(|from| branch(&from))
    }

    fn taint_of_inst(&self, inst: &Inst) -> Taint {
        let operands = || {
            inst.op
                .operands()
                .into_iter()
                .map(|operand| self.taint(operand))
                .fold(Taint::default(), Taint::or)
        };
        // A closed form knows better than its operands: an address in a threadgroup's row, say.
        match &inst.op {
            Op::Load { ptr, .. } => {
                let taint = self.taint(&ptr.op);
                let private = self.space(self.form(&ptr.op).root()) == Space::Thread;
                if taint.lane || private { Taint::DATA } else { Taint::default() }
            }
            Op::AtomicRmw { .. } | Op::CmpXchg { .. } => Taint::DATA,
            Op::ICmp { pred, a, b, .. } if self.selects_simdgroups(*pred, a, b) => Taint::default(),
            Op::Call(call) => {
                let Callee::Function(name) = &call.callee else { return Taint::DATA };
                match Intrinsic::parse(name) {
                    Some(Intrinsic::Position(Position::Thread)) => Taint { lane: true, data: false },
                    Some(Intrinsic::Position(_)) => Taint::default(),
                    // By the lane, not by data.
                    Some(Intrinsic::Group(group)) if group.op == GroupOp::IsFirst => {
                        Taint { lane: true, data: false }
                    }
                    Some(Intrinsic::Group(group)) => {
                        let uniform = match group.op.declaration().uniform {
                            Uniform::Always => true,
                            Uniform::WithArgument(index) => {
                                call.args.get(index).is_some_and(|arg| !self.taint(&arg.op).lane)
                            }
                            Uniform::Never => false,
                        };
                        if uniform && group.group.width() == SIMDGROUP {
                            Taint::default()
                        } else {
                            Taint::DATA
                        }
                    }
                    Some(_) => Taint::default(),
                    None if name.starts_with("llvm.") => operands(),
                    None => Taint::DATA,
                }
            }
            _ => {
                let by_form = inst.result.map(|result| &self.forms[result.0 as usize]).filter(|form| {
                    !form.symbols().any(|symbol| inst.result.is_some_and(|r| *symbol == Symbol::Value(r)))
                });
                match by_form {
                    Some(form) => {
                        form.symbols().map(|symbol| self.taint_of(symbol)).fold(Taint::default(), Taint::or)
                    }
                    None => operands(),
                }
            }
        }
    }
}

/// The position of a thread in its threadgroup, in linear order, or its position along x.
fn is_linear(form: &Poly) -> bool {
    let x = Poly::symbol(Symbol::Thread(0));
    let linear = |size: fn(u8) -> Symbol| {
        let y = Poly::symbol(Symbol::Thread(1)).times(&Poly::symbol(size(0)))?;
        let z =
            Poly::symbol(Symbol::Thread(2)).times(&Poly::symbol(size(0)))?.times(&Poly::symbol(size(1)))?;
        x.plus(&y, 1)?.plus(&z, 1)
    };
    *form == x
        || linear(Symbol::GroupSize).as_ref() == Some(form)
        || linear(Symbol::FullGroupSize).as_ref() == Some(form)
}

/// The form of all, if they are equal.
fn same(mut forms: impl Iterator<Item = Poly>) -> Option<Poly> {
    let first = forms.next()?;
    forms.all(|form| form == first).then_some(first)
}

fn symbol_of(position: Position, dimension: u8) -> Option<Symbol> {
    Some(match position {
        Position::Thread => Symbol::Thread(dimension),
        Position::Group => Symbol::Group(dimension),
        Position::GroupSize => Symbol::GroupSize(dimension),
        Position::FullGroupSize => Symbol::FullGroupSize(dimension),
        Position::Grid => Symbol::Grid(dimension),
        Position::Groups => Symbol::Groups(dimension),
        Position::ArgumentBytes
        | Position::FaultRecord
        | Position::LogRing
        | Position::LogKernel
        | Position::GridCounter => return None,
    })
}
