//! Lowers `bfloat` arithmetic, comparisons and conversions to `float` arithmetic and integer operations.
//!
//! On x86-64, LLVM converts `float` to `bfloat` with a function call for each lane of a vector: only AVX512-BF16 has an instruction, and
//! it flushes subnormals. Integer operations round a whole vector at once.
//!
//! Each operation is performed in `float` and its result rounded to `bfloat`. For addition, subtraction, multiplication, division and
//! square root this gives the correctly rounded result, because `float` has at least 2·8 + 2 significant bits (S. Figueroa, "When is
//! double rounding innocuous?", 1995). Fast-math flags are dropped, since the rounding in between must not be optimized away.

use elinvar_ir::{
    Attachments, BinaryOp, Call, CastOp, Const, FloatPredicate, Function, Inst, Op, Operand, Type, Typed,
    ValueId,
};

use crate::support::builder::call as call_of;
use crate::support::ir::callee_name;

/// Intrinsics that are computed in `float` and rounded. Except for `sqrt` and `fma`, the result is exact.
const ROUNDED: [&str; 14] = [
    "canonicalize",
    "ceil",
    "floor",
    "fma",
    "maximum",
    "maxnum",
    "minimum",
    "minnum",
    "nearbyint",
    "rint",
    "round",
    "roundeven",
    "sqrt",
    "trunc",
];
/// Intrinsics whose arguments are `bfloat` and whose results are integers.
const TO_INTEGER: [&str; 2] = ["fptosi.sat", "fptoui.sat"];

const SIGN: i128 = 0x8000;

/// Rewrites the instructions of `function`.
pub(crate) fn lower(function: &mut Function) {
    for index in 0..function.blocks.len() {
        let insts = std::mem::take(&mut function.blocks[index].insts);
        let mut out = Vec::with_capacity(insts.len());
        for inst in insts {
            match shape(&inst.op) {
                Some(lanes) => {
                    let metadata = inst.metadata.clone();
                    Lowering { function, out: &mut out, lanes, metadata }.lower(inst);
                }
                None => out.push(inst),
            }
        }
        function.blocks[index].insts = out;
    }
}

/// Whether an operation is lowered: `Some(None)` for scalars, `Some(Some(lanes))` for vectors.
fn shape(op: &Op) -> Option<Option<u32>> {
    let ty = match op {
        Op::Binary { op, ty, .. } if is_arithmetic(*op) => ty,
        Op::FNeg { ty, .. } | Op::FCmp { ty, .. } => ty,
        Op::Cast { op: CastOp::FpTrunc, from, to, .. } if *from.ty.scalar() == Type::Float => to,
        Op::Cast { op: CastOp::SiToFp | CastOp::UiToFp, to, .. } => to,
        Op::Cast { op: CastOp::FpToSi | CastOp::FpToUi, from, .. } => &from.ty,
        Op::Call(call) if intrinsic(call).is_some() => &call.args.first()?.ty,
        _ => return None,
    };
    match ty {
        Type::BFloat => Some(None),
        Type::Vector(lanes, element) if **element == Type::BFloat => Some(Some(*lanes)),
        _ => None,
    }
}

fn is_arithmetic(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::FAdd | BinaryOp::FSub | BinaryOp::FMul | BinaryOp::FDiv)
}

/// The name of an intrinsic that is lowered, without `llvm.` and types.
fn intrinsic(call: &Call) -> Option<&'static str> {
    let name = callee_name(call)?.strip_prefix("llvm.")?;
    let others = ["copysign", "fabs", "fmuladd"];
    let mut known = ROUNDED.iter().chain(&TO_INTEGER).chain(&others);
    known.find(|known| name.strip_prefix(**known).is_some_and(|types| types.starts_with('.'))).copied()
}

/// Emits the operations that replace an instruction.
struct Lowering<'a> {
    function: &'a mut Function,
    out: &'a mut Vec<Inst>,
    /// `None` for scalars.
    lanes: Option<u32>,
    metadata: Attachments,
}

impl Lowering<'_> {
    fn lower(&mut self, inst: Inst) {
        let Some(result) = inst.result else { return self.out.push(inst) };
        match inst.op {
            Op::Binary { op, a, b, .. } => {
                let value = self.arithmetic(op, &a, &b);
                self.round(value, result);
            }
            Op::FNeg { a, .. } => {
                let bits = self.bits(&a);
                let negated = self.integer(BinaryOp::Xor, 16, bits, SIGN);
                self.define_from_bits(negated, result);
            }
            Op::FCmp { pred, a, b, .. } => {
                let (ty, [a, b]) = (self.wide(), [a, b].map(|operand| self.extend(&operand)));
                self.define(result, Op::FCmp { flags: String::new(), pred, ty, a, b });
            }
            Op::Cast { op: CastOp::FpTrunc, from, .. } => self.round(from.op, result),
            Op::Cast { op: op @ (CastOp::SiToFp | CastOp::UiToFp), from, .. } => {
                let wide = self.wide();
                let value = self.cast(op, from, wide);
                self.round(value, result);
            }
            Op::Cast { op, from, to, .. } => {
                let from = Typed::new(self.wide(), self.extend(&from.op));
                self.define(result, Op::Cast { op, flags: String::new(), from, to });
            }
            Op::Call(call) => self.call(call, result),
            op => self.define(result, op),
        }
    }

    fn call(&mut self, call: Call, result: ValueId) {
        let (Some(name), Some(full)) = (intrinsic(&call), callee_name(&call).map(str::to_owned)) else {
            return self.define(result, Op::Call(call));
        };
        let given: Vec<Operand> = call.args.iter().map(|arg| arg.op.clone()).collect();
        match (name, &given[..]) {
            ("fabs", [value]) => {
                let bits = self.bits(value);
                let magnitude = self.integer(BinaryOp::And, 16, bits, !SIGN);
                self.define_from_bits(magnitude, result);
            }
            ("copysign", [value, sign]) => {
                let bits = [value, sign].map(|operand| self.bits(operand));
                let [magnitude, sign] = bits;
                let magnitude = self.integer(BinaryOp::And, 16, magnitude, !SIGN);
                let sign = self.integer(BinaryOp::And, 16, sign, SIGN);
                let either = self.binary(BinaryOp::Or, 16, magnitude, sign);
                self.define_from_bits(either, result);
            }
            // As LLVM, which fuses only types with an FMA instruction.
            ("fmuladd", [a, b, c]) => {
                let product = self.arithmetic(BinaryOp::FMul, a, b);
                let product = self.rounded(product);
                let sum = self.arithmetic(BinaryOp::FAdd, &product, c);
                self.round(sum, result);
            }
            _ => {
                let wide = self.wide();
                let args: Vec<_> = given.iter().map(|arg| (wide.clone(), self.extend(arg))).collect();
                let name = full.replace("bf16", "f32");
                if TO_INTEGER.iter().any(|to_integer| name[5..].starts_with(to_integer)) {
                    return self.define(result, call_of(call.ret, &name, &args));
                }
                let value = self.value(wide.clone(), call_of(wide, &name, &args));
                self.round(value, result);
            }
        }
    }

    /// A `float` operation on `bfloat` operands.
    fn arithmetic(&mut self, op: BinaryOp, a: &Operand, b: &Operand) -> Operand {
        let ty = self.wide();
        let (a, b) = (self.extend(a), self.extend(b));
        self.value(ty.clone(), Op::Binary { op, flags: String::new(), ty, a, b })
    }

    /// Defines `result` as a `float` rounded to `bfloat`, to nearest even. NaN stays NaN and becomes quiet.
    fn round(&mut self, value: Operand, result: ValueId) {
        let bits = self.cast(CastOp::BitCast, Typed::new(self.wide(), value.clone()), self.int(32));
        let high = self.integer(BinaryOp::LShr, 32, bits.clone(), 16);
        let odd = self.integer(BinaryOp::And, 32, high.clone(), 1);
        let bias = self.integer(BinaryOp::Add, 32, odd, 0x7fff);
        let sum = self.binary(BinaryOp::Add, 32, bits, bias);
        let rounded = self.integer(BinaryOp::LShr, 32, sum, 16);
        let quiet = self.integer(BinaryOp::Or, 32, high, 0x40);
        let (ty, condition) = (self.wide(), self.of(Type::I1));
        let (pred, a, b) = (FloatPredicate::Uno, value, Const::Zero.into());
        let is_nan = self.value(condition.clone(), Op::FCmp { flags: String::new(), pred, ty, a, b });
        let op = Op::Select {
            flags: String::new(),
            cond: Typed::new(condition, is_nan),
            a: Typed::new(self.int(32), quiet),
            b: Typed::new(self.int(32), rounded),
        };
        let selected = self.value(self.int(32), op);
        let narrow = self.cast(CastOp::Trunc, Typed::new(self.int(32), selected), self.int(16));
        self.define_from_bits(narrow, result);
    }

    fn rounded(&mut self, value: Operand) -> Operand {
        let result = self.function.new_value(self.of(Type::BFloat), None);
        self.round(value, result);
        result.into()
    }

    fn extend(&mut self, value: &Operand) -> Operand {
        self.cast(CastOp::FpExt, Typed::new(self.of(Type::BFloat), value.clone()), self.wide())
    }

    fn bits(&mut self, value: &Operand) -> Operand {
        self.cast(CastOp::BitCast, Typed::new(self.of(Type::BFloat), value.clone()), self.int(16))
    }

    fn define_from_bits(&mut self, bits: Operand, result: ValueId) {
        let (from, to) = (Typed::new(self.int(16), bits), self.of(Type::BFloat));
        self.define(result, Op::Cast { op: CastOp::BitCast, flags: String::new(), from, to });
    }

    fn cast(&mut self, op: CastOp, from: Typed, to: Type) -> Operand {
        self.value(to.clone(), Op::Cast { op, flags: String::new(), from, to })
    }

    fn binary(&mut self, op: BinaryOp, width: u32, a: Operand, b: Operand) -> Operand {
        let ty = self.int(width);
        self.value(ty.clone(), Op::Binary { op, flags: String::new(), ty, a, b })
    }

    /// An integer operation with a constant.
    fn integer(&mut self, op: BinaryOp, width: u32, a: Operand, b: i128) -> Operand {
        let one = Const::int(width, b);
        let b = match self.lanes {
            Some(lanes) => Const::Vector(vec![(Type::Int(width), one); lanes as usize]),
            None => one,
        };
        self.binary(op, width, a, b.into())
    }

    fn wide(&self) -> Type {
        self.of(Type::Float)
    }

    fn int(&self, width: u32) -> Type {
        self.of(Type::Int(width))
    }

    fn of(&self, scalar: Type) -> Type {
        match self.lanes {
            Some(lanes) => Type::vector(lanes, scalar),
            None => scalar,
        }
    }

    fn value(&mut self, ty: Type, op: Op) -> Operand {
        let result = self.function.new_value(ty, None);
        self.define(result, op);
        result.into()
    }

    fn define(&mut self, result: ValueId, op: Op) {
        self.out.push(Inst { result: Some(result), op, metadata: self.metadata.clone() });
    }
}
