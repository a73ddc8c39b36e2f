//! Emission of one instruction: as a scalar, as a vector instruction, or replicated lane by lane.

use std::collections::HashSet;

use elinvar_ir::{Call, CastOp, Const, Inst, Op, Operand, Type, Typed, ValueId};

use super::value::clear_flags;
use super::{Emit, Forms};
use crate::analysis::index_narrowing::chain;
use crate::intrinsic::{GroupOp, Intrinsic};
use crate::support::builder::call;
use crate::support::ir::callee_name;
use crate::support::vector_intrinsics::Elementwise;

impl Emit<'_, '_> {
    /// Emits the instruction at `index` of the current block; phis have been emitted before.
    pub fn instruction(&mut self, index: usize, inst: &Inst) {
        self.b.location = inst.metadata.iter().filter(|(kind, _)| kind == "dbg").cloned().collect();
        self.instruction_here(index, inst);
        self.b.location.clear();
    }

    fn instruction_here(&mut self, index: usize, inst: &Inst) {
        if !matches!(inst.op, Op::Call(_) | Op::Phi { .. }) {
            self.call_products_for(&inst.op);
        }
        match &inst.op {
            Op::Phi { .. } => {}
            Op::Load { .. } | Op::Store { .. } if self.in_interleave_group(index) => {}
            Op::Load { .. } => self.load_inst(inst),
            Op::Store { .. } => self.store_inst(inst),
            Op::Fence(_) => self.b.push(Inst { metadata: Vec::new(), ..inst.clone() }),
            Op::Call(call) => self.call_inst(inst, call),
            Op::AtomicRmw { .. } => self.atomic_inst(inst),
            Op::CmpXchg { .. } => self.serial(inst),
            _ => self.pure(inst),
        }
    }

    fn call_inst(&mut self, inst: &Inst, call: &Call) {
        let name = callee_name(call).unwrap_or_default();
        if let (Some(Intrinsic::Group(function)), Some(result)) = (Intrinsic::parse(name), inst.result) {
            if function.op != GroupOp::MatrixMultiplyAccumulate {
                self.call_products_for(&inst.op);
            }
            return self.group_op(function, call, result);
        }
        self.call_products_for(&inst.op);
        match Elementwise::of(call) {
            Some(_) => self.pure(inst),
            None => self.serial(inst),
        }
    }

    /// Computes a value in the current block, after its operands that are not available.
    pub fn rematerialize(&mut self, value: ValueId) {
        if self.is_here(value) {
            return;
        }
        let Some(inst) = self.source.definition(value) else { return };
        inst.op.operands().into_iter().filter_map(Operand::value).for_each(|v| self.rematerialize(v));
        self.pure(inst);
    }

    /// An instruction without side effects.
    fn pure(&mut self, inst: &Inst) {
        let Some(result) = inst.result else { return };
        let ty = self.source.kernel.function.ty(result).clone();
        let known = self.source.uniform.of(result).clone();
        let mut forms = Forms::default();
        let (scalars, vectors) = self.source.counts(&known);
        for part in 0..scalars {
            let op = self.scalar_op(&inst.op, part);
            forms.scalars.push(self.b.value(ty.clone(), None, op).into());
        }
        for part in 0..vectors {
            let op = self.vector_op(&inst.op, part);
            let wide = self.wide(&ty);
            forms.vectors.push(self.b.value(wide, None, op).into());
        }
        self.define(result, forms);
    }

    /// The scalar operation, on lane 0's values.
    pub fn scalar_op(&mut self, op: &Op, part: usize) -> Op {
        let mut op = op.clone();
        op.map_operands(|o| *o = self.scalar(o, part));
        clear_flags(&mut op);
        op
    }

    /// The vector operation.
    fn vector_op(&mut self, op: &Op, part: usize) -> Op {
        let mut op = match op {
            Op::Cast { op, flags, from, to } => {
                let from = self.typed(from, part);
                Op::Cast { op: *op, flags: flags.clone(), from, to: self.wide(to) }
            }
            Op::Select { flags, cond, a, b } => {
                let (a, b) = (self.typed(a, part), self.typed(b, part));
                // A uniform condition remains scalar.
                let cond = match self.known(&cond.op, &cond.ty).is_uniform() {
                    true => Typed::new(Type::I1, self.scalar(&cond.op, part)),
                    false => self.typed(cond, part),
                };
                Op::Select { flags: flags.clone(), cond, a, b }
            }
            Op::Freeze(value) => Op::Freeze(self.typed(value, part)),
            Op::ExtractValue { agg, path } => {
                Op::ExtractValue { agg: self.typed(agg, part), path: path.clone() }
            }
            Op::InsertValue { agg, value, path } => {
                let (agg, value) = (self.typed(agg, part), self.typed(value, part));
                Op::InsertValue { agg, value, path: path.clone() }
            }
            Op::Gep { .. } => self.vector_gep(op, part),
            Op::Call(call) => self.vector_call(call, part),
            Op::Binary { .. } | Op::FNeg { .. } | Op::ICmp { .. } | Op::FCmp { .. } => {
                self.vector_arithmetic(op, part)
            }
            other => other.clone(),
        };
        clear_flags(&mut op);
        op
    }

    fn typed(&mut self, typed: &Typed, part: usize) -> Typed {
        let vector = self.vector(&typed.op, &typed.ty, part);
        Typed::new(self.wide(&typed.ty), vector)
    }

    /// Operations whose operands have the same type.
    fn vector_arithmetic(&mut self, op: &Op, part: usize) -> Op {
        let mut op = op.clone();
        if let Op::Binary { ty, .. } | Op::FNeg { ty, .. } | Op::ICmp { ty, .. } | Op::FCmp { ty, .. } =
            &mut op
        {
            let scalar = ty.clone();
            *ty = self.wide(&scalar);
            op.map_operands(|o| *o = self.vector(o, &scalar, part));
        }
        op
    }

    fn vector_call(&mut self, from: &Call, part: usize) -> Op {
        let Some(known) = Elementwise::of(from) else { return Op::Call(from.clone()) };
        let mut args = Vec::new();
        for (i, arg) in from.args.iter().enumerate() {
            args.push(match known.is_vector(i) {
                true => (self.wide(&arg.ty), self.vector(&arg.op, &arg.ty, part)),
                false => (arg.ty.clone(), self.scalar(&arg.op, part)),
            });
        }
        let mut op = call(self.wide(&from.ret), &known.vector_name(from, self.lanes()), &args);
        if let Op::Call(call) = &mut op {
            call.flags.clone_from(&from.flags);
        }
        op
    }

    /// A vector of addresses.
    fn vector_gep(&mut self, op: &Op, part: usize) -> Op {
        let Op::Gep { base, .. } = op else { return op.clone() };
        let base = self.vector_base(base, part);
        self.vector_gep_from(op, base, part, &HashSet::new())
    }

    /// A uniform base remains scalar, so that LLVM recognizes it.
    fn vector_base(&mut self, base: &Typed, part: usize) -> Typed {
        match self.known(&base.op, &base.ty).is_uniform() {
            true => Typed::new(Type::PTR, self.scalar(&base.op, part)),
            false => self.typed(base, part),
        }
    }

    /// A vector of addresses from a base, with the indices of `narrow` as signed 32-bit numbers.
    fn vector_gep_from(&mut self, op: &Op, base: Typed, part: usize, narrow: &HashSet<ValueId>) -> Op {
        let Op::Gep { flags, source, indices, .. } = op else { return op.clone() };
        let mut new = Vec::new();
        for index in indices {
            new.push(match (&index.op, self.known(&index.op, &index.ty).is_uniform()) {
                (Operand::Const(_), _) => index.clone(),
                (_, true) => Typed::new(index.ty.clone(), self.scalar(&index.op, part)),
                (Operand::Value(v), false) if narrow.contains(v) => self.narrow_index(*v, index, part),
                _ => self.typed(index, part),
            });
        }
        // With uniform operands only, the address would be uniform.
        if base.ty.is_ptr() && new.iter().all(|i| i.ty.is_int()) {
            let zero = Typed::new(self.wide(&Type::I64), Const::Zero);
            let first = Op::Gep { flags: flags.clone(), source: source.clone(), base, indices: new };
            let first = self.b.value(Type::PTR, None, first);
            let base = Typed::new(Type::PTR, first);
            return Op::Gep { flags: String::new(), source: Type::I8, base, indices: vec![zero] };
        }
        Op::Gep { flags: flags.clone(), source: source.clone(), base, indices: new }
    }

    /// Sign-extends an unsigned 32-bit number.
    fn narrow_index(&mut self, value: ValueId, index: &Typed, part: usize) -> Typed {
        match self.source.definition(value).map(|inst| &inst.op) {
            Some(Op::Cast { from, .. }) => {
                let vector = self.typed(from, part);
                let to = self.wide(&index.ty);
                Typed::new(to.clone(), self.b.cast(CastOp::SExt, vector.ty, vector.op, to))
            }
            _ => self.typed(index, part),
        }
    }

    /// The addresses of an access for the active lanes, with narrow indices where they are exact: see
    /// [`crate::analysis::index_narrowing`].
    pub(super) fn addresses(&mut self, ptr: &Typed, part: usize) -> Operand {
        let source = self.source;
        let narrow = ptr.op.value().and_then(|v| Some((v, source.uniform.narrow().of(v)?)));
        let Some((address, narrow)) = narrow else { return self.vector(&ptr.op, &ptr.ty, part) };
        let here =
            |v: ValueId| source.uniform.stays(v, self.block) && !source.uniform.has_left(v, self.block);
        let mut steps = chain(source.kernel, source.uniform, address);
        // The operands of the extensions must be unchanged since.
        let from = |v: &ValueId| source.definition(*v).and_then(|i| i.op.operands().first()?.value());
        let froms_here = narrow.iter().filter_map(from).all(|v| !source.uniform.has_left(v, self.block));
        if !froms_here || !steps.iter().map(|s| s.0).chain(narrow.iter().copied()).all(here) {
            return self.vector(&ptr.op, &ptr.ty, part);
        }
        let mut base = None;
        while let Some((value, op)) = steps.pop() {
            if source.uniform.of(value).is_uniform() {
                continue;
            }
            let Op::Gep { base: first, .. } = op else { continue };
            let from = match base.take() {
                Some(base) => base,
                None => self.vector_base(first, part),
            };
            let mut op = self.vector_gep_from(op, from, part, narrow);
            clear_flags(&mut op);
            let wide = self.wide(&Type::PTR);
            base = Some(Typed::new(wide.clone(), self.b.value(wide, None, op)));
        }
        base.map_or_else(|| self.vector(&ptr.op, &ptr.ty, part), |base| base.op)
    }
}
