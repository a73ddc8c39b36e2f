//! Replaces the type `bfloat` by `i16`.
//!
//! LLVM has vector types of `bfloat` only for processors with AVX512-BF16 or AVX-NE-CONVERT. For others it takes phis, selects and
//! shuffles of such vectors apart, into an instruction per lane. All processors have vectors of `i16`.
//!
//! Runs after [`super::lower_bfloat`], which leaves of arithmetic only extensions to `float`. Calls of intrinsics keep their types, behind
//! bitcasts; so do values that are loaded from or stored to aggregates.

use std::collections::{HashMap, HashSet};

use elinvar_ir::{
    Attachments, BinaryOp, CastOp, Const, Function, Inst, Op, Operand, Term, Type, Typed, ValueId,
};

use crate::support::ir::callee_name;

/// Rewrites `function`. `defined` are the names of the functions that are rewritten.
pub(crate) fn rewrite(function: &mut Function, defined: &HashSet<String>) {
    function.ret = replaced(&function.ret);
    for param in &mut function.params {
        param.ty = replaced(&param.ty);
    }
    let bfloats: HashSet<ValueId> = (0..function.values.len() as u32)
        .map(ValueId)
        .filter(|value| is_bfloat(function.ty(*value)))
        .collect();
    for value in &bfloats {
        let ty = &mut function.values[value.0 as usize].ty;
        *ty = replaced(ty);
    }
    let mut same = HashMap::new();
    for index in 0..function.blocks.len() {
        let insts = std::mem::take(&mut function.blocks[index].insts);
        let mut output =
            Output { function, insts: Vec::with_capacity(insts.len()), bfloats: &bfloats, same: &mut same };
        for inst in insts {
            output.push(inst, defined);
        }
        let insts = output.insts;
        let block = &mut function.blocks[index];
        block.insts = insts;
        if let Term::Ret(Some(value)) = &mut block.term {
            replace(value);
        }
    }
    let substitute = |operand: &mut Operand| {
        while let Some(known) = operand.value().and_then(|value| same.get(&value)) {
            *operand = known.clone();
        }
    };
    for block in &mut function.blocks {
        block.insts.iter_mut().for_each(|inst| inst.op.map_operands(substitute));
        block.term.map_operands(substitute);
    }
}

/// The type with `bfloat`, vectors and arrays of it replaced; structs are left.
pub(crate) fn replaced(ty: &Type) -> Type {
    match ty {
        Type::BFloat => Type::I16,
        Type::Vector(lanes, element) => Type::vector(*lanes, replaced(element)),
        Type::Array(count, element) => Type::array(*count, replaced(element)),
        other => other.clone(),
    }
}

fn is_bfloat(ty: &Type) -> bool {
    *ty.scalar() == Type::BFloat
}

/// A constant of type `bfloat`, or of a vector of it, as `i16`.
fn replaced_const(constant: &Const) -> Const {
    match constant {
        Const::Float(text) => {
            let bits = text.strip_prefix("0xR").and_then(|digits| i128::from_str_radix(digits, 16).ok());
            bits.map_or_else(|| constant.clone(), |bits| Const::int(16, bits))
        }
        Const::Vector(elements) => {
            Const::Vector(elements.iter().map(|(_, c)| (Type::I16, replaced_const(c))).collect())
        }
        Const::Splat(element) => Const::Splat(Box::new((Type::I16, replaced_const(&element.1)))),
        other => other.clone(),
    }
}

fn replace_operand(operand: &mut Operand) {
    if let Operand::Const(constant) = operand {
        *constant = replaced_const(constant);
    }
}

fn replace(value: &mut Typed) {
    if is_bfloat(&value.ty) {
        value.ty = replaced(&value.ty);
        replace_operand(&mut value.op);
    }
}

/// The instructions of a block, rewritten.
struct Output<'a> {
    function: &'a mut Function,
    insts: Vec<Inst>,
    /// The values that had type `bfloat`.
    bfloats: &'a HashSet<ValueId>,
    /// Results of bitcasts between `bfloat` and `i16`, which are removed.
    same: &'a mut HashMap<ValueId, Operand>,
}

impl Output<'_> {
    fn push(&mut self, mut inst: Inst, defined: &HashSet<String>) {
        match &mut inst.op {
            Op::Load { ty, .. } => *ty = if is_bfloat(ty) { replaced(ty) } else { ty.clone() },
            Op::Phi { ty, incoming, .. } if is_bfloat(ty) => {
                *ty = replaced(ty);
                incoming.iter_mut().for_each(|(operand, _)| replace_operand(operand));
            }
            Op::Select { a, b, .. }
            | Op::InsertElement { vector: a, value: b, .. }
            | Op::ShuffleVector { a, b, .. } => {
                [a, b].into_iter().for_each(replace);
            }
            Op::Freeze(value) | Op::Store { value, .. } | Op::ExtractElement { vector: value, .. } => {
                replace(value)
            }
            Op::Cast { op: CastOp::FpExt, from, to, .. } if is_bfloat(&from.ty) => {
                replace(from);
                let (from, to) = (from.clone(), to.clone());
                return self.extend(from, to, inst.result, inst.metadata);
            }
            Op::Cast { op: CastOp::BitCast, from, to, .. } => {
                replace(from);
                *to = if is_bfloat(to) { replaced(to) } else { to.clone() };
                if let Some(result) = inst.result.filter(|_| from.ty == *to) {
                    self.same.insert(result, from.op.clone());
                    return;
                }
            }
            Op::Call(call) if callee_name(call).is_some_and(|name| defined.contains(name)) => {
                call.ret = replaced(&call.ret);
                for arg in call.args.iter_mut().filter(|arg| is_bfloat(&arg.ty)) {
                    arg.ty = replaced(&arg.ty);
                    replace_operand(&mut arg.op);
                }
            }
            Op::Alloca { ty, .. } | Op::Gep { source: ty, .. } => *ty = replaced(ty),
            _ => return self.keep(inst),
        }
        self.insts.push(inst);
    }

    /// An instruction whose operands and result keep their types.
    fn keep(&mut self, mut inst: Inst) {
        let mut casts = Vec::new();
        let (function, bfloats) = (&mut *self.function, self.bfloats);
        inst.op.map_operands(|operand| {
            if let Operand::Value(value) = operand
                && bfloats.contains(value)
            {
                let from = Typed::new(function.ty(*value).clone(), *value);
                let to = from.ty.with_scalar(Type::BFloat);
                let kept = function.new_value(to.clone(), None);
                casts.push((kept, Op::Cast { op: CastOp::BitCast, flags: String::new(), from, to }));
                *operand = kept.into();
            }
        });
        for (kept, op) in casts {
            self.insts.push(Inst { result: Some(kept), op, metadata: inst.metadata.clone() });
        }
        let Some(result) = inst.result.filter(|result| self.bfloats.contains(result)) else {
            return self.insts.push(inst);
        };
        let to = self.function.ty(result).clone();
        let from = to.with_scalar(Type::BFloat);
        let kept = self.function.new_value(from.clone(), None);
        let metadata = inst.metadata.clone();
        self.insts.push(Inst { result: Some(kept), ..inst });
        let op = Op::Cast { op: CastOp::BitCast, flags: String::new(), from: Typed::new(from, kept), to };
        self.insts.push(Inst { result: Some(result), op, metadata });
    }

    /// Extension to `float`: the bits are the upper half.
    fn extend(&mut self, from: Typed, to: Type, result: Option<ValueId>, metadata: Attachments) {
        let (word, float) = (from.ty.with_scalar(Type::I32), from.ty.with_scalar(Type::Float));
        let sixteen = match from.ty.lanes() {
            Some(lanes) => Const::Vector(vec![(Type::I32, Const::int(32, 16)); lanes as usize]),
            None => Const::int(32, 16),
        };
        let mut define = |result: Option<ValueId>, ty: &Type, op: Op| {
            let result = result.unwrap_or_else(|| self.function.new_value(ty.clone(), None));
            self.insts.push(Inst { result: Some(result), op, metadata: metadata.clone() });
            result
        };
        let cast = |op, from: Typed, to: &Type| Op::Cast { op, flags: String::new(), from, to: to.clone() };
        let wide = define(None, &word, cast(CastOp::ZExt, from, &word));
        let shifted = Op::Binary {
            op: BinaryOp::Shl,
            flags: String::new(),
            ty: word.clone(),
            a: wide.into(),
            b: sixteen.into(),
        };
        let shifted = define(None, &word, shifted);
        let bits = Typed::new(word, shifted);
        if to == float {
            define(result, &float, cast(CastOp::BitCast, bits, &float));
        } else {
            let single = define(None, &float, cast(CastOp::BitCast, bits, &float));
            define(result, &to, cast(CastOp::FpExt, Typed::new(float, single), &to));
        }
    }
}
