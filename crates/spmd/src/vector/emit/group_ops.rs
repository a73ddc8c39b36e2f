//! Simdgroup and quadgroup operations; a vector is a simdgroup here.
//!
//! Inactive lanes do not participate in reductions. The value that a shuffle reads from one is undefined, as in Metal. A shuffle
//! by a constant is one instruction; others use memory.

use elinvar_ir::{BinaryOp, Call, CastOp, Const, IntPredicate, Op, Operand, Type, Typed, ValueId};

use super::{Emit, Forms};
use crate::intrinsic::{Element, Extent, Group, GroupCall, GroupOp, QUADGROUP, Reduction};
use crate::support::builder::i32_const;
use crate::support::vector_intrinsics::mangled;

/// Source lane of each lane.
enum Lanes {
    Constant(Vec<u32>),
    Computed(Operand),
}

/// Selection of the source lanes of a shuffle.
#[derive(Clone, Copy)]
enum Shuffle {
    To,
    Xor,
    Up,
    Down,
    RotateUp,
    RotateDown,
}

/// A reduction's operation and its neutral element.
struct Fold {
    reduce: &'static str,
    identity: Const,
    combine: Combine,
}

enum Combine {
    Binary(BinaryOp),
    Call(&'static str),
}

impl Emit<'_, '_> {
    /// Emits a group operation.
    pub fn group_op(&mut self, function: GroupCall, call: &Call, result: ValueId) {
        let ty = self.source.kernel.function.ty(result).clone();
        let width = match function.group {
            Group::Simdgroup => self.lanes(),
            Group::Quadgroup => QUADGROUP,
        };
        let uniform = self.source.uniform.of(result).is_uniform();
        let vector = match function.op {
            GroupOp::Ballot => self.ballot(call, width),
            GroupOp::IsFirst => self.is_first(width),
            GroupOp::MatrixMultiplyAccumulate => return self.multiply_accumulate(call, result),
            GroupOp::BroadcastFirst if uniform => {
                let vector = self.shared(call, 0);
                let lane = self.first_lane(0);
                // Without an active lane there is no first one.
                let lane = self.b.binary(BinaryOp::And, "", &Type::I32, lane, i32_const(width - 1)).into();
                let one = self.extract(vector, &ty, lane);
                return self.define_uniform(result, one);
            }
            GroupOp::BroadcastFirst => {
                let first = self.first_of_group(width);
                let vector = self.shared(call, 0);
                self.permute(vector, &ty, &Lanes::Computed(first))
            }
            GroupOp::Broadcast | GroupOp::Shuffle if uniform => {
                let vector = self.shared(call, 0);
                let lane = self.scalar(&call.args[1].op, 0);
                let lane = self.b.cast(CastOp::ZExt, call.args[1].ty.clone(), lane, Type::I32);
                let lane = self.b.binary(BinaryOp::And, "", &Type::I32, lane, i32_const(width - 1));
                let one = self.extract(vector, &ty, lane.into());
                return self.define_uniform(result, one);
            }
            GroupOp::Broadcast | GroupOp::Shuffle => self.shuffled(Shuffle::To, call, &ty, width),
            GroupOp::ShuffleXor => self.shuffled(Shuffle::Xor, call, &ty, width),
            GroupOp::ShuffleUp => self.shuffled(Shuffle::Up, call, &ty, width),
            GroupOp::ShuffleDown => self.shuffled(Shuffle::Down, call, &ty, width),
            GroupOp::ShuffleRotateUp => self.shuffled(Shuffle::RotateUp, call, &ty, width),
            GroupOp::ShuffleRotateDown => self.shuffled(Shuffle::RotateDown, call, &ty, width),
            GroupOp::ShuffleAndFillUp => self.filled(call, &ty, width, true),
            GroupOp::ShuffleAndFillDown => self.filled(call, &ty, width, false),
            GroupOp::Sum
            | GroupOp::Product
            | GroupOp::Min
            | GroupOp::Max
            | GroupOp::And
            | GroupOp::Or
            | GroupOp::Xor
            | GroupOp::PrefixInclusiveSum
            | GroupOp::PrefixExclusiveSum
            | GroupOp::PrefixInclusiveProduct
            | GroupOp::PrefixExclusiveProduct => return self.reduction(function, call, width, result),
        };
        match uniform {
            true => self.define_uniform(result, vector),
            false => self.define(result, Forms { scalars: Vec::new(), vectors: vec![vector] }),
        }
    }

    fn shuffled(&mut self, how: Shuffle, call: &Call, ty: &Type, width: u32) -> Operand {
        let vector = self.shared(call, 0);
        let lanes = self.sources(how, call, width);
        self.permute(vector, ty, &lanes)
    }

    fn define_uniform(&mut self, result: ValueId, value: Operand) {
        self.define(result, Forms { scalars: vec![value], vectors: Vec::new() });
    }

    fn argument(&mut self, call: &Call, index: usize) -> Operand {
        let arg = &call.args[index];
        self.vector(&arg.op, &arg.ty, 0)
    }

    /// An argument that other lanes read. Inactive lanes are frozen, so that code can branch on their values.
    pub(super) fn shared(&mut self, call: &Call, index: usize) -> Operand {
        let vector = self.argument(call, index);
        if self.mask.is_none() {
            return vector;
        }
        let wide = self.wide(&call.args[index].ty);
        self.b.value(wide.clone(), None, Op::Freeze(Typed::new(wide, vector))).into()
    }

    /// An argument as a vector of i32.
    fn numbers(&mut self, call: &Call, index: usize) -> Operand {
        let vector = self.argument(call, index);
        let from = self.wide(&call.args[index].ty);
        if call.args[index].ty == Type::I32 {
            return vector;
        }
        let to = self.wide(&Type::I32);
        self.b.cast(CastOp::ZExt, from, vector, to).into()
    }

    pub(super) fn constant_argument(call: &Call, index: usize) -> Option<u32> {
        match &call.args.get(index)?.op {
            Operand::Const(c) => c.as_unsigned(16).map(|n| n as u32),
            Operand::Value(_) => None,
        }
    }

    /// Ballot of the argument over active lanes: one number for a simdgroup, one for each quadgroup.
    fn ballot(&mut self, call: &Call, width: u32) -> Operand {
        let cond = self.argument(call, 0);
        let mask = self.part_mask(0);
        let votes = self.and(mask, cond);
        let bits = self.bits(votes);
        if width == self.lanes() {
            return self.b.cast(CastOp::ZExt, Type::Int(width), bits, Type::I64).into();
        }
        let quads = self.of_quads(bits);
        let (narrow, wide) = (self.wide(&Type::I32), self.wide(&Type::I64));
        self.b.cast(CastOp::ZExt, narrow, quads, wide).into()
    }

    /// For each lane, the four bits of its quadgroup.
    fn of_quads(&mut self, bits: Operand) -> Operand {
        let wide = self.wide(&Type::I32);
        let all = self.splat(bits, &Type::I32);
        let first = self.lane_table(|l| l & !3);
        let shifted = self.b.binary(BinaryOp::LShr, "", &wide, all, first);
        let four = self.lane_table(|_| 15);
        self.b.binary(BinaryOp::And, "", &wide, shifted, four).into()
    }

    /// For each lane, the first active lane of its group.
    fn first_of_group(&mut self, width: u32) -> Operand {
        if width == self.lanes() {
            let first = self.first_lane(0);
            return self.splat(first, &Type::I32);
        }
        let mask = self.part_mask(0);
        let bits = self.bits(mask);
        let quads = self.of_quads(bits);
        let wide = self.wide(&Type::I32);
        let args = [(wide.clone(), quads), (Type::I1, Const::int(1, 0).into())];
        let name = format!("llvm.cttz.{}", mangled(&Type::I32, self.lanes()));
        let zeros = self.b.call(wide.clone(), &name, &args);
        let base = self.lane_table(|l| l & !3);
        self.b.binary(BinaryOp::Add, "", &wide, zeros, base).into()
    }

    fn is_first(&mut self, width: u32) -> Operand {
        let first = self.first_of_group(width);
        let numbers = self.lane_numbers();
        self.compare(IntPredicate::Eq, first, numbers)
    }

    fn compare(&mut self, pred: IntPredicate, a: Operand, b: Operand) -> Operand {
        let op = Op::ICmp { flags: String::new(), pred, ty: self.wide(&Type::I32), a, b };
        let ty = self.mask_type();
        self.b.value(ty, None, op).into()
    }

    fn lane_table(&self, of: impl Fn(u32) -> u32) -> Operand {
        Const::Vector((0..self.lanes()).map(|l| (Type::I32, i32_const(of(l)))).collect()).into()
    }

    /// Source lanes of a shuffle within groups of `width`.
    fn sources(&mut self, how: Shuffle, call: &Call, width: u32) -> Lanes {
        let low = width - 1;
        if let Some(by) = Self::constant_argument(call, 1) {
            let from = |lane: u32| {
                let (base, at) = (lane & !low, lane & low);
                match how {
                    Shuffle::To => base + (by & low),
                    Shuffle::Xor => base + ((at ^ by) & low),
                    Shuffle::Up => at.checked_sub(by).map_or(lane, |at| base + at),
                    Shuffle::Down if at + by < width => lane + by,
                    Shuffle::Down => lane,
                    Shuffle::RotateUp => base + (at.wrapping_sub(by) & low),
                    Shuffle::RotateDown => base + ((at + by) & low),
                }
            };
            return Lanes::Constant((0..self.lanes()).map(from).collect());
        }
        let by = self.numbers(call, 1);
        let wide = self.wide(&Type::I32);
        let (lane, base, at) =
            (self.lane_numbers(), self.lane_table(|l| l & !low), self.lane_table(|l| l & low));
        let binary = |emit: &mut Self, op, a: &Operand, b: &Operand| -> Operand {
            emit.b.binary(op, "", &wide, a.clone(), b.clone()).into()
        };
        let within = self.lane_table(|_| low);
        let moved = match how {
            Shuffle::To => by,
            Shuffle::Xor => binary(self, BinaryOp::Xor, &at, &by),
            Shuffle::Up | Shuffle::RotateUp => binary(self, BinaryOp::Sub, &at, &by),
            Shuffle::Down | Shuffle::RotateDown => binary(self, BinaryOp::Add, &at, &by),
        };
        let wrapped = binary(self, BinaryOp::And, &moved, &within);
        let there = binary(self, BinaryOp::Add, &base, &wrapped);
        if matches!(how, Shuffle::Up | Shuffle::Down) {
            let inside = self.compare(IntPredicate::Ule, moved, within);
            return Lanes::Computed(self.blend(inside, &Type::I32, there, lane));
        }
        Lanes::Computed(there)
    }

    fn permute(&mut self, vector: Operand, ty: &Type, lanes: &Lanes) -> Operand {
        let wide = self.wide(ty);
        match lanes {
            Lanes::Constant(from) => self.shuffle(&self.wide(ty), vector, None, from),
            Lanes::Computed(_) if matches!(ty, Type::Half | Type::BFloat) => {
                let bits = self.wide(&Type::Int(16));
                let value = self.b.cast(CastOp::BitCast, wide.clone(), vector, bits.clone());
                let moved = self.permute(value.into(), &Type::Int(16), lanes);
                self.b.cast(CastOp::BitCast, bits, moved, wide).into()
            }
            // Processors have no narrower gathers.
            Lanes::Computed(_) if matches!(ty, Type::Int(width) if *width < 32) => {
                let words = self.wide(&Type::I32);
                let value = self.b.cast(CastOp::ZExt, wide.clone(), vector, words.clone());
                let moved = self.permute(value.into(), &Type::I32, lanes);
                self.b.cast(CastOp::Trunc, words, moved, wide).into()
            }
            Lanes::Computed(index) => {
                let slot = self.slot(wide.clone());
                self.b.store(wide.clone(), vector, slot.clone());
                let addresses = Op::Gep {
                    flags: String::new(),
                    source: ty.clone(),
                    base: Typed::new(Type::PTR, slot),
                    indices: vec![Typed::new(self.wide(&Type::I32), index.clone())],
                };
                let addresses = self.b.value(self.wide(&Type::PTR), None, addresses);
                let access = self.access(ty, None);
                self.gather(&access, addresses.into(), 0)
            }
        }
    }

    /// A shift within segments of lanes, filled from another value's lanes.
    fn filled(&mut self, call: &Call, ty: &Type, width: u32, up: bool) -> Operand {
        let (own, other) = (self.shared(call, 0), self.shared(call, 1));
        if let (Some(by), Some(segment)) =
            (Self::constant_argument(call, 2), Self::constant_argument(call, 3))
        {
            let segment = segment.clamp(1, width);
            let lanes = self.lanes();
            let from = |lane: u32| {
                let group = lane / width * width;
                let (base, at) = (lane - (lane - group) % segment, (lane - group) % segment);
                let comes = match up {
                    true if at >= by => base + at - by,
                    true => lanes + (base + at + segment).wrapping_sub(by) % lanes,
                    false if at + by < segment => base + at + by,
                    false => lanes + (base + at + by - segment) % lanes,
                };
                comes % (2 * lanes)
            };
            let from: Vec<u32> = (0..lanes).map(from).collect();
            return self.shuffle(&self.wide(ty), own, Some(other), &from);
        }
        let wide = self.wide(&Type::I32);
        let by = self.numbers(call, 2);
        let segment = self.numbers(call, 3);
        let bound = |emit: &mut Self, name: &str, v: Operand, to: u32| -> Operand {
            let limit = emit.lane_table(|_| to);
            let name = format!("llvm.{name}.{}", mangled(&Type::I32, emit.lanes()));
            emit.b.call(wide.clone(), &name, &[(wide.clone(), v), (wide.clone(), limit)]).into()
        };
        let segment = bound(self, "umin", segment, width);
        let segment = bound(self, "umax", segment, 1);
        let binary = |emit: &mut Self, op, a: &Operand, b: &Operand| -> Operand {
            emit.b.binary(op, "", &wide, a.clone(), b.clone()).into()
        };
        let (lane, at_group) = (self.lane_numbers(), self.lane_table(|l| l % width));
        let at = binary(self, BinaryOp::URem, &at_group, &segment);
        let (op, back) = if up { (BinaryOp::Sub, BinaryOp::Add) } else { (BinaryOp::Add, BinaryOp::Sub) };
        let moved = binary(self, op, &at, &by);
        let inside = self.compare(IntPredicate::Ult, moved, segment.clone());
        let near = binary(self, op, &lane, &by);
        let far = binary(self, back, &near, &segment);
        let all = self.lane_table(|_| self.lanes() - 1);
        let near = binary(self, BinaryOp::And, &near, &all);
        let far = binary(self, BinaryOp::And, &far, &all);
        let own = self.permute(own, ty, &Lanes::Computed(near));
        let other = self.permute(other, ty, &Lanes::Computed(far));
        self.blend(inside, ty, own, other)
    }

    /// Reductions and scans.
    fn reduction(&mut self, function: GroupCall, call: &Call, width: u32, result: ValueId) {
        let Some((reduction, extent)) = function.op.reduction() else { return };
        let ty = &self.source.kernel.function.ty(result).clone();
        let value = self.argument(call, 0);
        // Half precision is reduced in single precision and rounded once.
        let inner = if matches!(ty, Type::Half | Type::BFloat) { Type::Float } else { ty.clone() };
        let value = self.convert(CastOp::FpExt, value, ty, &inner);
        let fold = fold(reduction, &inner, function.element.is_some_and(Element::is_unsigned));
        // The empty sum is 0, not -0, the neutral element.
        let identity = match (extent, reduction) {
            (Extent::Exclusive, Reduction::Sum) => Const::Zero,
            _ => fold.identity.clone(),
        };
        let neutral = self.splat_const(&inner, &identity);
        let value = match self.mask.clone() {
            Some(mask) => self.blend(mask[0].clone(), &inner, value, neutral.clone()),
            None => value,
        };
        if extent == Extent::All && width == self.lanes() {
            let one = self.reduce(&fold, &inner, value);
            let one = match inner == *ty {
                true => one,
                false => self.b.cast(CastOp::FpTrunc, inner, one, ty.clone()).into(),
            };
            return self.define_uniform(result, one);
        }
        let value = match extent {
            Extent::Inclusive => self.scan(&fold, &inner, value, &neutral, width),
            Extent::Exclusive => {
                let sums = self.scan(&fold, &inner, value, &neutral, width);
                self.shuffle(&self.wide(&inner), sums, Some(neutral), &self.shifted_up(1, width))
            }
            Extent::All => self.butterfly(&fold, &inner, value, width),
        };
        let value = self.convert(CastOp::FpTrunc, value, &inner, ty);
        self.define(result, Forms { scalars: Vec::new(), vectors: vec![value] });
    }

    /// Reduces the active lanes' values to a scalar.
    pub fn merged(&mut self, reduction: Reduction, unsigned: bool, value: &Typed) -> Operand {
        let vector = self.vector(&value.op, &value.ty, 0);
        let fold = fold(reduction, &value.ty, unsigned);
        let vector = match self.mask.clone() {
            Some(mask) => {
                let neutral = self.splat_const(&value.ty, &fold.identity);
                self.blend(mask[0].clone(), &value.ty, vector, neutral)
            }
            None => vector,
        };
        self.reduce(&fold, &value.ty, vector)
    }

    fn convert(&mut self, op: CastOp, value: Operand, from: &Type, to: &Type) -> Operand {
        if from == to {
            return value;
        }
        let (from, to) = (self.wide(from), self.wide(to));
        self.b.cast(op, from, value, to).into()
    }

    fn reduce(&mut self, fold: &Fold, ty: &Type, value: Operand) -> Operand {
        // LLVM would take sums in the order of the lanes, and minima and maxima of floats too.
        if ty.is_float() {
            return self.reduce_halves(fold, ty, value);
        }
        let name = format!("llvm.vector.reduce.{}.{}", fold.reduce, mangled(ty, self.lanes()));
        self.b.call(ty.clone(), &name, &[(self.wide(ty), value)]).into()
    }

    /// Combines the lower with the upper half until one element is left.
    fn reduce_halves(&mut self, fold: &Fold, ty: &Type, mut value: Operand) -> Operand {
        let mut lanes = self.lanes();
        while lanes > 1 {
            let whole = Type::vector(lanes, ty.clone());
            let [lower, upper] = [0, lanes / 2].map(|first| {
                let order: Vec<u32> = (first..first + lanes / 2).collect();
                self.shuffle(&whole, value.clone(), None, &order)
            });
            lanes /= 2;
            value = self.combine(fold, ty, lanes, lower, upper);
        }
        let vector = Typed::new(Type::vector(1, ty.clone()), value);
        let index = Typed::new(Type::I32, Const::int(32, 0));
        self.b.value(ty.clone(), None, Op::ExtractElement { vector, index }).into()
    }

    fn combine(&mut self, fold: &Fold, ty: &Type, lanes: u32, a: Operand, b: Operand) -> Operand {
        let wide = Type::vector(lanes, ty.clone());
        match fold.combine {
            Combine::Binary(op) => self.b.binary(op, "", &wide, a, b).into(),
            Combine::Call(name) => {
                let name = format!("llvm.{name}.{}", mangled(ty, lanes));
                self.b.call(wide.clone(), &name, &[(wide.clone(), a), (wide, b)]).into()
            }
        }
    }

    /// Broadcasts the result of each group to its lanes.
    fn butterfly(&mut self, fold: &Fold, ty: &Type, mut value: Operand, width: u32) -> Operand {
        let mut distance = 1;
        while distance < width {
            let from: Vec<u32> = (0..self.lanes()).map(|l| l ^ distance).collect();
            let other = self.shuffle(&self.wide(ty), value.clone(), None, &from);
            value = self.combine(fold, ty, self.lanes(), value, other);
            distance *= 2;
        }
        value
    }

    fn scan(&mut self, fold: &Fold, ty: &Type, mut value: Operand, neutral: &Operand, width: u32) -> Operand {
        let mut distance = 1;
        while distance < width {
            let other = self.shuffle(
                &self.wide(ty),
                value.clone(),
                Some(neutral.clone()),
                &self.shifted_up(distance, width),
            );
            value = self.combine(fold, ty, self.lanes(), other, value);
            distance *= 2;
        }
        value
    }

    /// The value of a preceding lane at a distance, or the fill value.
    fn shifted_up(&self, by: u32, width: u32) -> Vec<u32> {
        let lanes = self.lanes();
        (0..lanes).map(|l| if l % width >= by { l - by } else { lanes }).collect()
    }
}

fn fold(reduction: Reduction, ty: &Type, unsigned: bool) -> Fold {
    let bits = if let Type::Int(width) = ty { *width } else { 32 };
    let int = |value: i128| Const::int(bits, value);
    let float = |text: &str| Const::Float(text.to_owned());
    let highest = (1_i128 << (bits - 1)) - 1;
    let (reduce, identity, combine) = match (reduction, ty.is_float()) {
        (Reduction::Sum, true) => ("fadd", float("-0.000000e+00"), Combine::Binary(BinaryOp::FAdd)),
        (Reduction::Product, true) => ("fmul", float("1.000000e+00"), Combine::Binary(BinaryOp::FMul)),
        (Reduction::Min, true) => ("fmin", float("0x7FF0000000000000"), Combine::Call("minnum")),
        (Reduction::Max, true) => ("fmax", float("0xFFF0000000000000"), Combine::Call("maxnum")),
        (Reduction::Sum, false) => ("add", int(0), Combine::Binary(BinaryOp::Add)),
        (Reduction::Product, false) => ("mul", int(1), Combine::Binary(BinaryOp::Mul)),
        (Reduction::And, _) => ("and", int(-1), Combine::Binary(BinaryOp::And)),
        (Reduction::Or, _) => ("or", int(0), Combine::Binary(BinaryOp::Or)),
        (Reduction::Xor, _) => ("xor", int(0), Combine::Binary(BinaryOp::Xor)),
        (Reduction::Min, false) if unsigned => ("umin", int(-1), Combine::Call("umin")),
        (Reduction::Max, false) if unsigned => ("umax", int(0), Combine::Call("umax")),
        (Reduction::Min, false) => ("smin", int(highest), Combine::Call("smin")),
        (Reduction::Max, false) => ("smax", int(-highest - 1), Combine::Call("smax")),
    };
    Fold { reduce, identity, combine }
}
