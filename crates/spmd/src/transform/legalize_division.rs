//! Legalizes integer division and shifts: defines the result for every operand.
//!
//! In LLVM, division by zero, `MIN / -1` and shifts by at least the width are undefined, and x86 traps on the first two. After
//! this pass a division by zero gives 0 (quotient and remainder), `MIN / -1` gives `MIN` with remainder 0, and shift amounts are
//! taken modulo the width. Constant divisors and amounts that are known to be safe are not changed.

use elinvar_ir::{BinaryOp, Const, Function, Inst, IntPredicate, Op, Operand, Type, Typed};

/// Legalizes every division and shift of `function`.
pub(crate) fn legalize(function: &mut Function) {
    for index in 0..function.blocks.len() {
        let insts = std::mem::take(&mut function.blocks[index].insts);
        let mut out = Vec::with_capacity(insts.len());
        for inst in insts {
            guard_inst(function, inst, &mut out);
        }
        function.blocks[index].insts = out;
    }
}

fn guard_inst(function: &mut Function, inst: Inst, out: &mut Vec<Inst>) {
    let Op::Binary { op, ty, a, b, .. } = &inst.op else {
        out.push(inst);
        return;
    };
    let Type::Int(width) = *ty.scalar() else {
        out.push(inst);
        return;
    };
    let mut legalizer = Legalizer { function, out, ty: ty.clone(), width };
    match op {
        BinaryOp::Shl | BinaryOp::LShr | BinaryOp::AShr if !legalizer.is_small(b) => {
            let amount = legalizer.modulo_width(b.clone());
            let op = Op::Binary { op: *op, flags: String::new(), ty: ty.clone(), a: a.clone(), b: amount };
            out.push(Inst { op, ..inst });
        }
        BinaryOp::UDiv | BinaryOp::URem if !legalizer.is_harmless_divisor(b, false) => {
            legalizer.unsigned(*op, a.clone(), b.clone(), inst);
        }
        BinaryOp::SDiv | BinaryOp::SRem if !legalizer.is_harmless_divisor(b, true) => {
            legalizer.signed(*op, a.clone(), b.clone(), inst);
        }
        _ => out.push(inst),
    }
}

struct Legalizer<'a> {
    function: &'a mut Function,
    out: &'a mut Vec<Inst>,
    ty: Type,
    width: u32,
}

impl Legalizer<'_> {
    fn constant(&self, value: i128) -> Operand {
        let one = Const::int(self.width, value);
        match &self.ty {
            Type::Vector(lanes, element) => {
                Operand::Const(Const::Vector(vec![((**element).clone(), one); *lanes as usize]))
            }
            _ => Operand::Const(one),
        }
    }

    fn is_small(&self, amount: &Operand) -> bool {
        each_int(amount, &|c| c.as_unsigned(self.width).is_some_and(|n| n < u128::from(self.width)))
    }

    fn is_harmless_divisor(&self, divisor: &Operand, signed: bool) -> bool {
        each_int(divisor, &|c| matches!(c, Const::Int(n) if *n != 0 && !(signed && *n == -1)))
    }

    fn emit(&mut self, ty: Type, op: Op) -> Operand {
        let result = self.function.new_value(ty, None);
        self.out.push(Inst { result: Some(result), op, metadata: Vec::new() });
        result.into()
    }

    fn binary(&mut self, op: BinaryOp, a: Operand, b: Operand) -> Operand {
        let ty = self.ty.clone();
        self.emit(ty.clone(), Op::Binary { op, flags: String::new(), ty, a, b })
    }

    fn equals(&mut self, a: &Operand, value: i128) -> Operand {
        let b = self.constant(value);
        let op =
            Op::ICmp { flags: String::new(), pred: IntPredicate::Eq, ty: self.ty.clone(), a: a.clone(), b };
        self.emit(self.condition_type(), op)
    }

    fn condition_type(&self) -> Type {
        match &self.ty {
            Type::Vector(lanes, _) => Type::vector(*lanes, Type::I1),
            _ => Type::I1,
        }
    }

    fn select_op(&self, cond: Operand, a: Operand, b: Operand) -> Op {
        Op::Select {
            flags: String::new(),
            cond: Typed::new(self.condition_type(), cond),
            a: Typed::new(self.ty.clone(), a),
            b: Typed::new(self.ty.clone(), b),
        }
    }

    fn select(&mut self, cond: Operand, a: Operand, b: Operand) -> Operand {
        let op = self.select_op(cond, a, b);
        self.emit(self.ty.clone(), op)
    }

    fn modulo_width(&mut self, amount: Operand) -> Operand {
        if self.width.is_power_of_two() {
            let mask = self.constant(i128::from(self.width) - 1);
            return self.binary(BinaryOp::And, amount, mask);
        }
        let width = self.constant(i128::from(self.width));
        self.binary(BinaryOp::URem, amount, width)
    }

    fn unsigned(&mut self, op: BinaryOp, a: Operand, b: Operand, inst: Inst) {
        let is_zero = self.equals(&b, 0);
        let one = self.constant(1);
        let divisor = self.select(is_zero.clone(), one, b);
        let quotient = self.binary(op, a, divisor);
        let last = self.select_op(is_zero, self.constant(0), quotient);
        self.out.push(Inst { op: last, ..inst });
    }

    fn signed(&mut self, op: BinaryOp, a: Operand, b: Operand, inst: Inst) {
        let is_zero = self.equals(&b, 0);
        let is_minus_one = self.equals(&b, -1);
        let one = self.constant(1);
        let divisor = self.select(is_zero.clone(), one.clone(), b);
        let divisor = self.select(is_minus_one.clone(), one, divisor);
        let plain = self.binary(op, a.clone(), divisor);
        let zero = self.constant(0);
        let by_minus_one = match op {
            BinaryOp::SDiv => self.binary(BinaryOp::Sub, zero.clone(), a),
            _ => zero.clone(),
        };
        let result = self.select(is_minus_one, by_minus_one, plain);
        let last = self.select_op(is_zero, zero, result);
        self.out.push(Inst { op: last, ..inst });
    }
}

/// Whether `test` holds for a constant integer, or for every lane of a constant vector.
fn each_int(operand: &Operand, test: &dyn Fn(&Const) -> bool) -> bool {
    match operand {
        Operand::Const(c @ (Const::Int(_) | Const::Zero)) => test(c),
        Operand::Const(Const::Splat(part)) => test(&part.1),
        Operand::Const(Const::Vector(parts)) => parts.iter().all(|(_, c)| test(c)),
        _ => false,
    }
}
