//! Lane-bit analysis: integers and pointers as a uniform part plus a constant for each bit of the thread's index in its simdgroup.
//!
//! Where a thread's element of a matrix is, is computed from the index by shifts, masks, sums and products with constants. Each bit of the
//! index then adds its own constant to the address, and the address of any other thread's element is known from one's own.
//!
//! An optimistic fixed point over the kernel. What is uniform is taken from [`DivergenceAnalysis`].

use std::collections::{HashMap, HashSet};

use elinvar_ir::{BinaryOp, CastOp, Const, Function, Inst, Module, Op, Operand, Type, ValueId};

use super::shared_memory;
use crate::analysis::divergence::DivergenceAnalysis;
use crate::support::gep::{Step, steps};

/// Bits of an index in a simdgroup.
pub(super) const BITS: usize = 5;
/// Alignment, as a power of two, of zero.
const ZERO: u32 = 63;
/// Maximum number of threads of a threadgroup.
const MOST_THREADS: u64 = 1024;
/// Maximum number of products of a sum that is compared with the thread's index.
const MOST_PRODUCTS: usize = 8;
/// Maximum depth of that sum's operations.
const DEEPEST: usize = 6;

/// A uniform part, and a constant for each bit of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    /// What each bit adds if it is set; for pointers, in bytes.
    pub bits: [i64; BITS],
    /// The uniform part is a multiple of this power of two.
    pub align: u32,
    /// For pointers: whether the address is in shared memory.
    pub shared: bool,
    /// Whether the sum is exact in unsigned arithmetic, and in signed arithmetic.
    exact: [bool; 2],
    /// Of integers: an upper bound, if the sum without wrapping around cannot be negative.
    most: u64,
}

impl Sum {
    const fn uniform(align: u32) -> Self {
        Self { bits: [0; BITS], align, shared: false, exact: [true; 2], most: u64::MAX }
    }

    const ZERO: Self = Self { most: 0, ..Self::uniform(ZERO) };

    /// The thread's index in its threadgroup.
    const INDEX: Self = Self { bits: [1, 2, 4, 8, 16], most: MOST_THREADS - 1, ..Self::uniform(5) };

    fn is_uniform(&self) -> bool {
        self.bits == [0; BITS]
    }

    /// Whether all parts are different bits of a number.
    fn is_disjoint(&self) -> bool {
        let set: Vec<i64> = self.bits.into_iter().filter(|bit| *bit != 0).collect();
        let is_bit = |bit: &i64| *bit > 0 && bit.count_ones() == 1 && bit.trailing_zeros() < self.align;
        set.iter().all(is_bit) && set.iter().fold(0, |all, bit| all | bit) == set.iter().sum()
    }

    /// This sum and another one.
    fn plus(self, other: Self, factor: i64, exact: [bool; 2]) -> Option<Self> {
        let mut bits = self.bits;
        for (bit, more) in bits.iter_mut().zip(other.bits) {
            *bit = bit.checked_add(more.checked_mul(factor)?)?;
        }
        let align = other.align + factor.trailing_zeros();
        let exact = [0, 1].map(|at| exact[at] && self.exact[at] && other.exact[at]);
        let more = u64::try_from(factor).map_or(u64::MAX, |factor| other.most.saturating_mul(factor));
        let most = self.most.saturating_add(more);
        Some(Self { bits, align: self.align.min(align).min(ZERO), shared: self.shared, exact, most })
    }

    /// As an integer of this width, whose bound may show that no operation wrapped around.
    fn bounded(self, width: u32) -> Self {
        match self.most.leading_zeros() > 64 - width.min(64) {
            true => Self { exact: [true; 2], ..self },
            false => self,
        }
    }

    fn times(self, factor: i64, exact: [bool; 2]) -> Option<Self> {
        if factor == 0 {
            return Some(Self::ZERO);
        }
        Self::ZERO.plus(self, factor, exact)
    }

    fn masked(self, mask: u64) -> Option<Self> {
        let is_zero = self.align >= 64 - mask.leading_zeros();
        let align = if is_zero { ZERO } else { self.align.max(mask.trailing_zeros()) };
        let keep = |bit: i64| if bit as u64 & mask == 0 { 0 } else { bit };
        let most = self.most.min(mask);
        self.is_disjoint().then(|| Self { bits: self.bits.map(keep), most, ..Self::uniform(align) })
    }

    fn shifted_right(self, by: u32) -> Option<Self> {
        let align = if self.align == ZERO { ZERO } else { self.align.saturating_sub(by) };
        let most = if self.most == u64::MAX { u64::MAX } else { self.most >> by };
        self.is_disjoint().then(|| Self {
            bits: self.bits.map(|bit| bit >> by),
            most,
            ..Self::uniform(align)
        })
    }

    /// Whether no number that this sum may be has a bit of the mask.
    fn lacks(&self, mask: u64) -> bool {
        let width = 64 - mask.leading_zeros();
        let low = |bit: i64| bit as u64 & !(u64::MAX << width.min(63));
        mask != 0
            && self.align >= width
            && self.bits.into_iter().map(low).sum::<u64>() < 1 << mask.trailing_zeros()
    }

    fn join(self, other: Self) -> Option<Self> {
        let exact = [0, 1].map(|at| self.exact[at] && other.exact[at]);
        // No larger bound, which could grow with each iteration of a loop.
        let most = if self.most == other.most { self.most } else { u64::MAX };
        let (align, shared) = (self.align.min(other.align), self.shared && other.shared);
        let joined = Self { align, shared, exact, most, ..self };
        (self.bits == other.bits).then_some(joined)
    }
}

/// The sums of a kernel's values.
pub(super) struct LaneBits {
    /// Absent before the first visit; `None` for any other value.
    values: HashMap<ValueId, Option<Sum>>,
}

impl LaneBits {
    /// The analysis of a kernel, from the thread's position and the threadgroup's size in each dimension.
    pub fn new(
        module: &Module,
        kernel: &Function,
        divergence: &DivergenceAnalysis,
        [position, size]: &[[Operand; 3]; 2],
    ) -> Self {
        let parameters = kernel.params.iter().map(|parameter| (parameter.value, Some(Sum::uniform(0))));
        let mut sums = Self { values: parameters.collect() };
        let definitions: HashMap<ValueId, &Op> = kernel
            .blocks
            .iter()
            .flat_map(|block| &block.insts)
            .filter_map(|inst| Some((inst.result?, &inst.op)))
            .collect();
        let index = index(position, size);
        for (value, op) in &definitions {
            let is_sum = matches!(op, Op::Binary { op: BinaryOp::Add, ty: Type::I32, .. });
            if is_sum
                && products(&definitions, *value, DEEPEST).is_some_and(|products| Some(products) == index)
            {
                sums.values.insert(*value, Some(Sum::INDEX));
            }
        }
        let fixed: HashSet<ValueId> = sums.values.keys().copied().collect();
        loop {
            let mut changed = false;
            for inst in kernel.blocks.iter().flat_map(|block| &block.insts) {
                let Some(result) = inst.result.filter(|result| !fixed.contains(result)) else { continue };
                let Some(found) = sums.of_inst(module, divergence, result, inst) else { continue };
                changed |= sums.values.insert(result, found) != Some(found);
            }
            if !changed {
                return sums;
            }
        }
    }

    /// The sum of a value, if it is one.
    pub fn of(&self, operand: &Operand) -> Option<Sum> {
        self.seen(operand).flatten()
    }

    /// Whether an operation of this kind adds its operands, although it does not say so.
    pub fn adds(&self, op: &Op) -> bool {
        match op {
            Op::Binary { op: BinaryOp::Or, ty: Type::Int(width), a, b, .. } => {
                let mask = constant(b, *width);
                mask.is_some_and(|mask| self.of(a).is_some_and(|sum| sum.lacks(mask)))
            }
            _ => false,
        }
    }

    /// `None` before the first visit.
    fn seen(&self, operand: &Operand) -> Option<Option<Sum>> {
        match operand {
            Operand::Value(value) => self.values.get(value).copied(),
            Operand::Const(constant) => Some(of_constant(constant)),
        }
    }

    fn of_inst(
        &self,
        module: &Module,
        divergence: &DivergenceAnalysis,
        result: ValueId,
        inst: &Inst,
    ) -> Option<Option<Sum>> {
        let is_selected = divergence.is_selected(result);
        let computed = match &inst.op {
            Op::Phi { incoming, .. } if !is_selected => {
                let mut seen = incoming.iter().filter_map(|(operand, _)| self.seen(operand));
                let first = seen.next()?;
                seen.fold(first, |all, next| all.and_then(|all| all.join(next?)))
            }
            Op::Phi { .. } => None,
            op => {
                if op.operands().into_iter().any(|operand| self.seen(operand).is_none()) {
                    return None;
                }
                self.of_op(module, op).filter(|_| !is_selected)
            }
        };
        Some(computed.or_else(|| divergence.is_uniform(result).then_some(Sum::uniform(0))))
    }

    fn of_op(&self, module: &Module, op: &Op) -> Option<Sum> {
        match op {
            Op::Binary { op, flags, ty: Type::Int(width), a, b } => {
                let exact = ["nuw", "nsw"].map(|flag| flags.split_whitespace().any(|word| word == flag));
                let is_disjoint = flags.contains("disjoint");
                let sums = [self.of(a)?, self.of(b)?];
                let constants = [a, b].map(|operand| constant(operand, *width));
                binary(*op, exact, is_disjoint, sums, constants).map(|sum| sum.bounded(*width))
            }
            Op::Cast { op, flags, from, to } => {
                let sum = self.of(&from.op)?;
                let [unsigned, signed] = sum.exact;
                match op {
                    CastOp::ZExt if unsigned || signed && flags.contains("nneg") => Some(sum),
                    CastOp::SExt if signed => Some(sum),
                    CastOp::Trunc => {
                        let width = if let Type::Int(width) = to { *width } else { 0 };
                        let fits = sum.bounded(width).exact == [true; 2] && sum.most != u64::MAX;
                        let most = if fits { sum.most } else { u64::MAX };
                        Some(Sum { exact: [sum.is_uniform() || fits; 2], most, ..sum })
                    }
                    CastOp::AddrSpaceCast => Some(Sum { shared: sum.shared || is_shared(&from.ty), ..sum }),
                    _ => None,
                }
            }
            Op::Freeze(from) => self.of(&from.op),
            Op::Select { cond, a, b, .. } => {
                let is_uniform = self.of(&cond.op).is_some_and(|cond| cond.is_uniform());
                self.of(&a.op)?.join(self.of(&b.op)?).filter(|_| is_uniform)
            }
            Op::Gep { source, base, indices, .. } => {
                let dynamic = base.op == shared_memory::dynamic().1;
                let mut sum = self.of(&base.op)?;
                for (step, index) in steps(module, source, indices).into_iter().zip(indices) {
                    let exact = [true; 2];
                    sum = match step? {
                        Step::Field(bytes) => sum.plus(of_integer(i64::try_from(bytes).ok()?), 1, exact)?,
                        // The offsets of a launch's threadgroup memory are multiples of the alignment of shared memory.
                        Step::Elements(1)
                            if dynamic && index.ty == Type::I32 && index.op.value().is_some() =>
                        {
                            sum
                        }
                        Step::Elements(size) => {
                            let at = self.of(&index.op)?;
                            // Indices are sign-extended to the width of pointers.
                            let fits = at.exact[1] || index.ty == Type::I64;
                            fits.then(|| sum.plus(at, i64::try_from(size).ok()?, exact))??
                        }
                    };
                }
                Some(sum)
            }
            _ => None,
        }
    }
}

fn is_shared(ty: &Type) -> bool {
    *ty == Type::Ptr(shared_memory::SPACE)
}

fn of_integer(value: i64) -> Sum {
    let align = if value == 0 { ZERO } else { value.trailing_zeros() };
    Sum { most: u64::try_from(value).unwrap_or(u64::MAX), ..Sum::uniform(align) }
}

fn of_constant(constant: &Const) -> Option<Sum> {
    let all = |of: &Const| of_constant(of);
    match constant {
        Const::Int(value) => Some(of_integer(*value as i64)),
        Const::Zero => Some(Sum::ZERO),
        Const::Cast { op: CastOp::AddrSpaceCast, from, .. } => {
            let sum = all(&from.1)?;
            Some(Sum { shared: sum.shared || is_shared(&from.0), align: sum.align, ..sum })
        }
        Const::Gep { source, base, indices, .. } => {
            let sum = all(&base.1)?;
            // Of the constants that clang makes, the first index counts bytes or is zero.
            match &indices[..] {
                [(_, Const::Int(bytes))] if **source == Type::I8 => {
                    sum.plus(of_integer(i64::try_from(*bytes).ok()?), 1, [true; 2])
                }
                _ => Some(Sum { align: 0, ..sum }),
            }
        }
        // Variables in shared memory; others are not asked for.
        Const::Global(_) => Some(Sum::uniform(shared_memory::ALIGN.trailing_zeros())),
        _ => Some(Sum::uniform(0)),
    }
}

/// An integer constant, from its bits.
fn constant(operand: &Operand, width: u32) -> Option<u64> {
    let Operand::Const(constant) = operand else { return None };
    constant.as_unsigned(width).and_then(|value| u64::try_from(value).ok())
}

fn binary(
    op: BinaryOp,
    exact: [bool; 2],
    is_disjoint: bool,
    [a, b]: [Sum; 2],
    [left, right]: [Option<u64>; 2],
) -> Option<Sum> {
    let both = a.is_uniform() && b.is_uniform();
    // A larger constant may be negative.
    let factor = |constant: u64| i64::try_from(constant).ok().filter(|constant| *constant < 1 << 31);
    match op {
        BinaryOp::Add => a.plus(b, 1, if both { [true; 2] } else { exact }),
        BinaryOp::Sub => a.plus(b, -1, if both { [true; 2] } else { exact }),
        BinaryOp::Or if is_disjoint || right.is_some_and(|mask| a.lacks(mask)) => a.plus(b, 1, [true; 2]),
        BinaryOp::Mul if both => {
            let most = a.most.saturating_mul(b.most);
            Some(Sum { most, ..Sum::uniform((a.align + b.align).min(ZERO)) })
        }
        BinaryOp::Mul => match (left, right) {
            (_, Some(constant)) => a.times(factor(constant)?, exact),
            (Some(constant), _) => b.times(factor(constant)?, exact),
            _ => None,
        },
        BinaryOp::Shl => {
            let by = right.filter(|by| *by < 32)?;
            a.times(1 << by, if both { [true; 2] } else { exact })
        }
        BinaryOp::And => match (left, right) {
            (_, Some(mask)) => a.masked(mask),
            (Some(mask), _) => b.masked(mask),
            _ => both.then(|| Sum::uniform(a.align.max(b.align))),
        },
        BinaryOp::Or | BinaryOp::Xor => both.then(|| Sum::uniform(a.align.min(b.align))),
        BinaryOp::LShr => a.shifted_right(u32::try_from(right?).ok().filter(|by| *by < 64)?),
        BinaryOp::UDiv => a.shifted_right(right.filter(|by| by.is_power_of_two())?.trailing_zeros()),
        BinaryOp::URem => a.masked(right.filter(|by| by.is_power_of_two())? - 1),
        _ => None,
    }
}

/// Products of a sum, each as its sorted factors.
type Products = Vec<Vec<ValueId>>;

/// x + width · (y + height · z).
fn index([x, y, z]: &[Operand; 3], [width, height, _]: &[Operand; 3]) -> Option<Products> {
    let all = [vec![x], vec![y, width], vec![z, height, width]];
    let mut products = Vec::new();
    for product in all {
        let mut factors = product.into_iter().map(Operand::value).collect::<Option<Vec<_>>>()?;
        factors.sort_unstable();
        products.push(factors);
    }
    products.sort_unstable();
    Some(products)
}

/// The products whose sum a value is.
fn products(definitions: &HashMap<ValueId, &Op>, value: ValueId, depth: usize) -> Option<Products> {
    let of = |operand: &Operand| products(definitions, operand.value()?, depth - 1);
    let mut all = match definitions.get(&value).filter(|_| depth > 0) {
        Some(Op::Binary { op: BinaryOp::Add, a, b, .. }) => [of(a)?, of(b)?].concat(),
        Some(Op::Binary { op: BinaryOp::Mul, a, b, .. }) => {
            let (left, right) = (of(a)?, of(b)?);
            let product =
                |one: &Vec<ValueId>| right.iter().map(|other| [&one[..], other].concat()).collect::<Vec<_>>();
            left.iter().flat_map(product).collect()
        }
        _ => vec![vec![value]],
    };
    all.iter_mut().for_each(|factors| factors.sort_unstable());
    all.sort_unstable();
    (all.len() <= MOST_PRODUCTS).then_some(all)
}
