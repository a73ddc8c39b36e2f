//! Scalarizes a thread's own short vectors, so that all values are scalars before vectorization over threads.
//!
//! clang uses such vectors for small structs. A function with an unknown vector operation is not changed.

use std::collections::HashMap;

use elinvar_ir::{
    BinaryOp, Call, Callee, CastOp, Const, Function, Inst, IntPredicate, Module, Op, Operand, Type, Typed,
    ValueId,
};

use crate::support::builder::call;
use crate::support::ir::callee_name;

/// Replaces all vector values of `function` by scalars.
pub(crate) fn scalarize(module: &Module, function: &mut Function) {
    let insts = || function.blocks.iter().flat_map(|b| &b.insts);
    if !insts().any(|i| is_of_vectors(function, i)) || !insts().all(|i| is_known(function, i)) {
        return;
    }
    let mut parts = HashMap::new();
    for value in (0..function.values.len() as u32).map(ValueId) {
        if let Type::Vector(count, element) = function.ty(value).clone() {
            let each = (0..count).map(|_| function.new_value((*element).clone(), None)).collect::<Vec<_>>();
            parts.insert(value, each);
        }
    }
    for block in 0..function.blocks.len() {
        let insts = std::mem::take(&mut function.blocks[block].insts);
        let mut work = Work { module, function, parts: &parts, out: Vec::with_capacity(insts.len()) };
        insts.into_iter().for_each(|inst| work.inst(inst));
        function.blocks[block].insts = work.out;
    }
}

fn is_vector(ty: &Type) -> bool {
    matches!(ty, Type::Vector(..))
}

fn is_of_vectors(function: &Function, inst: &Inst) -> bool {
    let operand = |o: &&Operand| o.value().is_some_and(|v| is_vector(function.ty(v)));
    inst.result.is_some_and(|r| is_vector(function.ty(r)))
        || inst.op.operands().iter().any(operand)
        || matches!(&inst.op, Op::Store { value, .. } if is_vector(&value.ty))
}

/// Whether an instruction can be scalarized.
fn is_known(function: &Function, inst: &Inst) -> bool {
    if !is_of_vectors(function, inst) {
        return true;
    }
    let plain = |volatile: bool, atomic: bool, ty: &Type| !volatile && !atomic && *ty.scalar() != Type::I1;
    match &inst.op {
        Op::Phi { .. } | Op::Binary { .. } | Op::FNeg { .. } | Op::ICmp { .. } | Op::FCmp { .. } => true,
        Op::Select { .. } | Op::Freeze(_) | Op::InsertElement { .. } | Op::ExtractElement { .. } => true,
        Op::Load { ty, volatile, atomic, .. } => plain(*volatile, atomic.is_some(), ty),
        Op::Store { value, volatile, atomic, .. } => plain(*volatile, atomic.is_some(), &value.ty),
        Op::ShuffleVector { mask, .. } => matches!(&mask.op, Operand::Const(_)),
        Op::Cast { op: CastOp::BitCast, from, to, .. } => {
            bits(&from.ty).is_some_and(|b| b <= 64) && bits(to).is_some() && !from.ty.is_ptr() && !to.is_ptr()
        }
        Op::Cast { .. } => true,
        Op::Call(call) => scalar_name(call).is_some(),
        _ => false,
    }
}

/// Bit width of a number or a vector.
fn bits(ty: &Type) -> Option<u32> {
    match ty {
        Type::Int(width) => Some(*width),
        Type::Half | Type::BFloat => Some(16),
        Type::Float => Some(32),
        Type::Double => Some(64),
        Type::Vector(count, element) => Some(count * bits(element)?),
        _ => None,
    }
}

/// The scalar form of an intrinsic's name: `llvm.fabs.f32` for `llvm.fabs.v2f32`.
fn scalar_name(call: &Call) -> Option<String> {
    let name = callee_name(call)?;
    name.strip_prefix("llvm.").filter(|n| !n.starts_with("vector.") && !n.starts_with("masked."))?;
    let scalar =
        |word: &str| match word.strip_prefix('v').map(|w| w.trim_start_matches(|c: char| c.is_ascii_digit()))
        {
            Some(rest) if word.len() > rest.len() + 1 && rest.starts_with(['f', 'b', 'i']) => rest.to_owned(),
            _ => word.to_owned(),
        };
    let scalars: Vec<String> = name.split('.').map(scalar).collect();
    let name_of_one = scalars.join(".");
    (name_of_one != name).then_some(name_of_one)
}

/// Element `index` of a constant vector.
fn element_of(c: &Const, index: usize) -> Const {
    match c {
        Const::Vector(parts) => parts.get(index).map_or(Const::Poison, |(_, c)| c.clone()),
        Const::Splat(part) => part.1.clone(),
        other => other.clone(),
    }
}

struct Work<'a> {
    module: &'a Module,
    function: &'a mut Function,
    parts: &'a HashMap<ValueId, Vec<ValueId>>,
    out: Vec<Inst>,
}

impl Work<'_> {
    fn inst(&mut self, inst: Inst) {
        if !is_of_vectors(self.function, &inst) {
            self.out.push(inst);
            return;
        }
        let Some(results) = inst.result.and_then(|r| self.parts.get(&r).cloned()) else {
            return self.without_vector_result(inst);
        };
        match &inst.op {
            Op::InsertElement { vector, value, index } => {
                let (vector, value, index) = (vector.clone(), value.clone(), index.clone());
                for (i, result) in results.into_iter().enumerate() {
                    let old = self.element(&vector.op, i);
                    let cond = self.is_index(&index, i);
                    let ty = value.ty.clone();
                    let op = select(cond, &ty, value.op.clone(), old);
                    self.give(result, op, &inst);
                }
            }
            Op::ShuffleVector { a, b, mask } => {
                let Operand::Const(order) = &mask.op else { return };
                let count = a.ty.lanes().unwrap_or(1) as usize;
                for (i, result) in results.into_iter().enumerate() {
                    let from = match element_of(order, i) {
                        Const::Int(from) if (from as usize) < count => self.element(&a.op, from as usize),
                        Const::Int(from) => self.element(&b.op, from as usize - count),
                        Const::Zero => self.element(&a.op, 0),
                        _ => Const::Poison.into(),
                    };
                    let ty = a.ty.scalar().clone();
                    self.give(result, same(&ty, from), &inst);
                }
            }
            Op::Load { ty, ptr, align, .. } => {
                for (i, result) in results.into_iter().enumerate() {
                    let (ptr, align) = self.place(ty, ptr, *align, i);
                    let ty = ty.scalar().clone();
                    let op = Op::Load { ty, ptr, align: Some(align), volatile: false, atomic: None };
                    self.give(result, op, &inst);
                }
            }
            Op::Cast { op: CastOp::BitCast, from, to, .. } if from.ty.lanes() != to.lanes() => {
                let element = to.scalar().clone();
                for (i, result) in results.into_iter().enumerate() {
                    let op = self.bits_at(from, &element, i);
                    self.give(result, op, &inst);
                }
            }
            op => {
                for (i, result) in results.into_iter().enumerate() {
                    let op = self.of_element(op, i);
                    self.give(result, op, &inst);
                }
            }
        }
    }

    /// Scalarizes an instruction with vector operands and a scalar result.
    fn without_vector_result(&mut self, inst: Inst) {
        match &inst.op {
            Op::Store { value, ptr, align, .. } => {
                for i in 0..value.ty.lanes().unwrap_or(1) as usize {
                    let (ptr, align) = self.place(&value.ty, ptr, *align, i);
                    let one = Typed::new(value.ty.scalar().clone(), self.element(&value.op, i));
                    let op = Op::Store { value: one, ptr, align: Some(align), volatile: false, atomic: None };
                    self.out.push(Inst { result: None, op, metadata: inst.metadata.clone() });
                }
            }
            Op::ExtractElement { vector, index } => {
                let Some(result) = inst.result else { return };
                let ty = vector.ty.scalar().clone();
                let mut found = self.element(&vector.op, 0);
                for i in 1..vector.ty.lanes().unwrap_or(1) as usize {
                    let one = self.element(&vector.op, i);
                    found = match &index.op {
                        Operand::Const(c) if c.as_unsigned(64) == Some(i as u128) => one,
                        Operand::Const(_) => found,
                        Operand::Value(_) => {
                            let cond = self.is_index(index, i);
                            let op = select(cond, &ty, one, found);
                            self.value(ty.clone(), op).into()
                        }
                    };
                }
                self.give(result, same(&ty, found), &inst);
            }
            Op::Cast { from, to, .. } => {
                let Some(result) = inst.result else { return };
                let op = self.bits_at(from, to, 0);
                self.give(result, op, &inst);
            }
            _ => self.out.push(inst),
        }
    }

    fn give(&mut self, result: ValueId, op: Op, from: &Inst) {
        self.out.push(Inst { result: Some(result), op, metadata: from.metadata.clone() });
    }

    fn value(&mut self, ty: Type, op: Op) -> ValueId {
        let result = self.function.new_value(ty, None);
        self.out.push(Inst { result: Some(result), op, metadata: Vec::new() });
        result
    }

    fn element(&self, operand: &Operand, index: usize) -> Operand {
        match operand {
            Operand::Const(c) => element_of(c, index).into(),
            Operand::Value(v) => match self.parts.get(v) {
                Some(parts) => parts.get(index).map_or(Const::Poison.into(), |p| (*p).into()),
                None => operand.clone(),
            },
        }
    }

    /// Whether an index is `i`.
    fn is_index(&mut self, index: &Typed, i: usize) -> Operand {
        let Type::Int(width) = index.ty else { return Const::int(1, 0).into() };
        match &index.op {
            Operand::Const(c) => Const::int(1, -i128::from(c.as_unsigned(width) == Some(i as u128))).into(),
            Operand::Value(_) => {
                let op = Op::ICmp {
                    flags: String::new(),
                    pred: IntPredicate::Eq,
                    ty: index.ty.clone(),
                    a: index.op.clone(),
                    b: Operand::int(width, i as i128),
                };
                self.value(Type::I1, op).into()
            }
        }
    }

    /// Address and alignment of a vector element in memory.
    fn place(&mut self, ty: &Type, ptr: &Typed, align: Option<u64>, index: usize) -> (Typed, u64) {
        let size = ty.scalar().size_align(self.module).0;
        let align = align.unwrap_or_else(|| ty.size_align(self.module).1);
        let offset = size * index as u64;
        if offset == 0 {
            return (ptr.clone(), align);
        }
        let op = Op::Gep {
            flags: String::new(),
            source: Type::I8,
            base: ptr.clone(),
            indices: vec![Typed::new(Type::I64, Operand::int(64, i128::from(offset)))],
        };
        let at = self.value(Type::PTR, op);
        (Typed::new(Type::PTR, at), align.min(1 << offset.trailing_zeros()))
    }

    /// The operation on one element of each operand.
    fn of_element(&mut self, op: &Op, index: usize) -> Op {
        if let Op::Call(from) = op {
            return self.call_of_element(from, index);
        }
        let mut op = op.clone();
        let narrow = |t: &mut Type| *t = t.scalar().clone();
        op.map_operands(|o| *o = self.element(o, index));
        match &mut op {
            Op::Binary { ty, .. }
            | Op::FNeg { ty, .. }
            | Op::ICmp { ty, .. }
            | Op::FCmp { ty, .. }
            | Op::Phi { ty, .. } => narrow(ty),
            Op::Cast { from, to, .. } => {
                narrow(&mut from.ty);
                narrow(to);
            }
            Op::Select { cond, a, b, .. } => [cond, a, b].into_iter().for_each(|t| narrow(&mut t.ty)),
            Op::Freeze(value) => narrow(&mut value.ty),
            _ => {}
        }
        op
    }

    fn call_of_element(&mut self, from: &Call, index: usize) -> Op {
        let args: Vec<(Type, Operand)> =
            from.args.iter().map(|a| (a.ty.scalar().clone(), self.element(&a.op, index))).collect();
        let name = scalar_name(from).unwrap_or_default();
        let mut op = call(from.ret.scalar().clone(), &name, &args);
        if let Op::Call(Call { flags, callee: Callee::Function(_), .. }) = &mut op {
            flags.clone_from(&from.flags);
        }
        op
    }

    /// The bits of a number or a vector at the place of the element of this type at `index`, as one integer. Uses only the
    /// elements that overlap it: others may be poison.
    fn bits_at(&mut self, from: &Typed, ty: &Type, index: usize) -> Op {
        let all = bits(&from.ty).unwrap_or(64);
        let own = bits(from.ty.scalar()).unwrap_or(8);
        let wanted = bits(ty).unwrap_or(8);
        let (first, count) = if wanted.is_multiple_of(own) {
            (index as u32 * (wanted / own), wanted / own)
        } else if own.is_multiple_of(wanted) {
            (index as u32 * wanted / own, 1)
        } else {
            (0, all / own)
        };
        let whole = self.whole(from, first, count);
        self.cut(whole, count * own, ty, (index as u32 * wanted - first * own) / wanted)
    }

    /// Some elements of a vector, or a number, as one integer.
    fn whole(&mut self, from: &Typed, first: u32, count: u32) -> Operand {
        let Type::Vector(_, element) = &from.ty else {
            let int = Type::Int(bits(&from.ty).unwrap_or(64));
            return self.bitcast(from.ty.clone(), from.op.clone(), int);
        };
        let each = bits(element).unwrap_or(8);
        let (int, width) = (Type::Int(count * each), count * each);
        let mut whole: Operand = Operand::int(width, 0);
        for i in 0..count {
            let one = self.element(&from.op, (first + i) as usize);
            let one = self.bitcast((**element).clone(), one, Type::Int(each));
            let one = self.cast(CastOp::ZExt, Type::Int(each), one, int.clone());
            let shifted = self.binary(BinaryOp::Shl, &int, one, Operand::int(width, i128::from(i * each)));
            whole = self.binary(BinaryOp::Or, &int, whole, shifted);
        }
        whole
    }

    /// The element of this type at `index` of an integer.
    fn cut(&mut self, whole: Operand, width: u32, ty: &Type, index: u32) -> Op {
        let each = bits(ty).unwrap_or(8);
        let int = Type::Int(width);
        let low = self.binary(BinaryOp::LShr, &int, whole, Operand::int(width, i128::from(index * each)));
        let low = self.cast(CastOp::Trunc, int, low, Type::Int(each));
        Op::Cast {
            op: CastOp::BitCast,
            flags: String::new(),
            from: Typed::new(Type::Int(each), low),
            to: ty.clone(),
        }
    }

    fn binary(&mut self, op: BinaryOp, ty: &Type, a: Operand, b: Operand) -> Operand {
        let op = Op::Binary { op, flags: String::new(), ty: ty.clone(), a, b };
        self.value(ty.clone(), op).into()
    }

    fn bitcast(&mut self, from: Type, value: Operand, to: Type) -> Operand {
        self.cast(CastOp::BitCast, from, value, to)
    }

    fn cast(&mut self, op: CastOp, from: Type, value: Operand, to: Type) -> Operand {
        if from == to {
            return value;
        }
        let op = Op::Cast { op, flags: String::new(), from: Typed::new(from, value), to: to.clone() };
        self.value(to, op).into()
    }
}

/// The value itself, as an instruction.
fn same(ty: &Type, value: Operand) -> Op {
    select(Const::int(1, -1).into(), ty, value.clone(), value)
}

fn select(cond: Operand, ty: &Type, a: Operand, b: Operand) -> Op {
    Op::Select {
        flags: String::new(),
        cond: Typed::new(Type::I1, cond),
        a: Typed::new(ty.clone(), a),
        b: Typed::new(ty.clone(), b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken_apart(body: &str) -> (String, Function) {
        let text = format!(
            "declare <2 x float> @llvm.fabs.v2f32(<2 x float>)\ndefine void @f(ptr %p, i32 %n, float %x) {{\n{body}\n ret void\n}}\n"
        );
        let module = Module::parse(&text).unwrap();
        let mut function = module.function("f").unwrap().clone();
        scalarize(&module, &mut function);
        let mut out = module.clone();
        out.functions = vec![function.clone()];
        (out.to_string(), function)
    }

    #[test]
    fn no_vector_is_left() {
        let (text, function) = taken_apart(
            "  %v = load <2 x float>, ptr %p, align 8
              %w = insertelement <2 x float> %v, float %x, i64 1
              %s = shufflevector <2 x float> %w, <2 x float> %v, <2 x i32> <i32 1, i32 2>
              %a = call <2 x float> @llvm.fabs.v2f32(<2 x float> %s)
              %m = fmul <2 x float> %a, <float 2.0, float 3.0>
              %c = fcmp olt <2 x float> %m, zeroinitializer
              %k = select <2 x i1> %c, <2 x float> %m, <2 x float> %v
              %e = extractelement <2 x float> %k, i32 %n
              %b = bitcast <2 x float> %k to i64
              %h = bitcast i64 %b to <4 x half>
              %q = extractelement <4 x half> %h, i64 3
              store <2 x float> %k, ptr %p, align 4
              store float %e, ptr %p
              store half %q, ptr %p",
        );
        assert!(!text.contains("<2 x") && !text.contains("<4 x"), "{text}");
        assert!(text.contains("call float @llvm.fabs.f32(float"), "{text}");
        assert!(text.contains("load float, ptr %p, align 8") && text.contains("align 4"), "{text}");
        assert!(function.blocks[0].insts.iter().all(|i| !is_of_vectors(&function, i)));
    }

    /// Clang passes structs of half and float in vectors of half, whose second element is never set.
    #[test]
    fn poison_beside_an_element_does_not_reach_it() {
        let (text, _) = taken_apart(
            "  %i = fptosi float %x to i16
              %v = insertelement <4 x i16> poison, i16 %i, i64 2
              %w = insertelement <4 x i16> %v, i16 7, i64 3
              %b = bitcast <4 x i16> %w to <2 x float>
              %e = extractelement <2 x float> %b, i64 1
              store float %e, ptr %p",
        );
        let stored = text.lines().find(|line| line.contains("store float")).unwrap();
        let mut wanted = vec![stored.split("float ").nth(1).unwrap().split(',').next().unwrap().to_owned()];
        let mut used = String::new();
        while let Some(name) = wanted.pop() {
            let Some(line) = text.lines().find(|line| line.trim_start().starts_with(&format!("{name} = ")))
            else {
                continue;
            };
            used.push_str(line);
            let operands = line.split(" = ").nth(1).unwrap().split([' ', ',']);
            wanted.extend(operands.filter(|word| word.starts_with('%')).map(str::to_owned));
        }
        assert!(used.contains("shl i32") && !used.contains("i64"), "{used}");
    }

    #[test]
    fn what_is_not_known_stays() {
        let (text, _) = taken_apart("  %v = load atomic <2 x float>, ptr %p monotonic, align 8");
        assert!(text.contains("<2 x float>"), "{text}");
    }
}
