//! One instruction of the kernel: once for lane 0, as a vector instruction, or lane by lane.

use elinvar_ir::{Call, CastOp, Const, Inst, Op, Operand, Type, Typed, ValueId};

use super::value::clear_flags;
use super::{Emit, Forms};
use crate::builder::call;
use crate::elementwise::Elementwise;
use crate::prepare::callee_name;
use crate::primitive;

impl Emit<'_, '_> {
    /// Write what the instruction at `index` of the present block does; phis have been written before.
    pub fn instruction(&mut self, index: usize, inst: &Inst) {
        match &inst.op {
            Op::Phi { .. } => {}
            Op::Load { .. } | Op::Store { .. } if self.in_run(index) => {}
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
        if let (Some(function), Some(result)) = (primitive::exchange(name), inst.result) {
            return self.exchange(function, call, result);
        }
        match Elementwise::of(call) {
            Some(_) => self.pure(inst),
            None => self.serial(inst),
        }
    }

    /// Compute a value in the present block, and before it what it is computed from, as far as these are not there.
    pub fn anew(&mut self, value: ValueId) {
        if self.is_here(value) {
            return;
        }
        let Some(inst) = self.source.definition(value) else { return };
        inst.op.operands().into_iter().filter_map(Operand::value).for_each(|v| self.anew(v));
        self.pure(inst);
    }

    /// An instruction without effects.
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

    /// The operation on lane 0's values.
    pub fn scalar_op(&mut self, op: &Op, part: usize) -> Op {
        let mut op = op.clone();
        op.map_operands(|o| *o = self.scalar(o, part));
        clear_flags(&mut op);
        op
    }

    /// The operation on vectors.
    fn vector_op(&mut self, op: &Op, part: usize) -> Op {
        let mut op = match op {
            Op::Cast { op, flags, from, to } => {
                let from = self.typed(from, part);
                Op::Cast { op: *op, flags: flags.clone(), from, to: self.wide(to) }
            }
            Op::Select { flags, cond, a, b } => {
                let (a, b) = (self.typed(a, part), self.typed(b, part));
                // A condition that all lanes share stays one.
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

    /// Operations whose operands all have one type.
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

    /// An address per lane: a common base stays one, so that it is seen as such.
    fn vector_gep(&mut self, op: &Op, part: usize) -> Op {
        let Op::Gep { flags, source, base, indices } = op else { return op.clone() };
        let base = match self.known(&base.op, &base.ty).is_uniform() {
            true => Typed::new(Type::PTR, self.scalar(&base.op, part)),
            false => Typed::new(self.wide(&base.ty), self.vector(&base.op, &base.ty, part)),
        };
        let mut new = Vec::new();
        for index in indices {
            new.push(match (&index.op, self.known(&index.op, &index.ty).is_uniform()) {
                (Operand::Const(_), _) => index.clone(),
                (_, true) => Typed::new(index.ty.clone(), self.scalar(&index.op, part)),
                (Operand::Value(v), false) => self.vector_index(*v, &index.ty, part),
            });
        }
        // With nothing but common operands there would be one address.
        if base.ty.is_ptr() && new.iter().all(|i| i.ty.is_int()) {
            let zero = Typed::new(self.wide(&Type::I64), Const::Zero);
            let first = Op::Gep { flags: flags.clone(), source: source.clone(), base, indices: new };
            let first = self.b.value(Type::PTR, None, first);
            let base = Typed::new(Type::PTR, first);
            return Op::Gep { flags: String::new(), source: Type::I8, base, indices: vec![zero] };
        }
        Op::Gep { flags: flags.clone(), source: source.clone(), base, indices: new }
    }

    /// An index per lane. Of a number that was widened without sign the signed one is taken: the two are the same
    /// for all lanes that access memory, since no memory is that large, and the signed one is what processors have
    /// gather instructions for.
    fn vector_index(&mut self, value: ValueId, ty: &Type, part: usize) -> Typed {
        let widened = match self.source.definition(value).map(|i| &i.op) {
            Some(Op::Cast { op: CastOp::ZExt, from, .. }) if from.ty == Type::I32 => Some(from.clone()),
            _ => None,
        };
        let narrow = widened.filter(|from| match &from.op {
            Operand::Value(v) => {
                let uniform = self.source.uniform;
                uniform.stays(value, self.block) && !uniform.has_left(*v, self.block)
            }
            Operand::Const(_) => false,
        });
        match narrow {
            Some(from) if !self.source.uniform.has_left(value, self.block) => {
                let vector = self.vector(&from.op, &from.ty, part);
                let (from, to) = (self.wide(&from.ty), self.wide(ty));
                Typed::new(to.clone(), self.b.cast(CastOp::SExt, from, vector, to))
            }
            _ => Typed::new(self.wide(ty), self.vector(&value.into(), ty, part)),
        }
    }
}
