//! Numbers of a thread: evaluates the part of a kernel that does not depend on the contents of memory.
//!
//! Integers wrap at their width, as in the kernel. What depends on loaded data has no number.

use std::collections::HashMap;

use elinvar_ir::{BinaryOp, Callee, CastOp, Const, IntPredicate, Op, Operand, Type, Typed, ValueId};
use elinvar_spmd::intrinsic::{Intrinsic, Position};

use crate::forms::Kernel;
use crate::poly::Root;

/// Sizes of a launch and numbers in the memory of `constant` arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Threads of the grid.
    pub grid: [u32; 3],
    /// Threads of a full threadgroup; those at the edges of the grid may be smaller.
    pub group: [u32; 3],
    /// The memory of arguments, by index: that of `constant` arguments, from which numbers are read. Missing bytes are unknown.
    pub constants: HashMap<usize, Vec<u8>>,
}

/// A thread of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position3 {
    pub group: [u32; 3],
    pub thread: [u32; 3],
}

/// An address: an object, or none for a plain number, and an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    pub root: Option<Root>,
    pub value: i128,
}

impl Number {
    fn plain(value: i128) -> Self {
        Self { root: None, value }
    }
}

/// Longest chain of operations behind a number.
const MAX_DEPTH: u32 = 400;

/// The state of one thread: the numbers of its phis.
pub(crate) struct Thread<'k, 'm> {
    kernel: &'k Kernel<'m>,
    launch: &'k Launch,
    at: Position3,
    phis: HashMap<ValueId, Option<Number>>,
    known: HashMap<ValueId, Option<Number>>,
}

impl<'k, 'm> Thread<'k, 'm> {
    pub fn new(kernel: &'k Kernel<'m>, launch: &'k Launch, at: Position3) -> Self {
        Self { kernel, launch, at, phis: HashMap::new(), known: HashMap::new() }
    }

    /// Sets the numbers of phis, all at once.
    pub fn assign(&mut self, phis: Vec<(ValueId, Option<Number>)>) {
        if !phis.is_empty() {
            self.phis.extend(phis);
            self.known.clear();
        }
    }

    /// The numbers of all phis.
    pub fn state(&self) -> HashMap<ValueId, Option<Number>> {
        self.phis.clone()
    }

    /// Goes back to a state.
    pub fn restore(&mut self, state: HashMap<ValueId, Option<Number>>) {
        self.phis = state;
        self.known.clear();
    }

    /// The number of an operand, zero-extended from its width.
    pub fn number(&mut self, operand: &Operand, ty: &Type) -> Option<Number> {
        self.operand(operand, ty, 0)
    }

    /// The value of a condition.
    pub fn condition(&mut self, operand: &Operand) -> Option<bool> {
        Some(self.number(operand, &Type::I1)?.value & 1 == 1)
    }

    fn operand(&mut self, operand: &Operand, ty: &Type, depth: u32) -> Option<Number> {
        match operand {
            Operand::Const(constant) => self.constant(constant, ty),
            Operand::Value(value) => self.value(*value, depth),
        }
    }

    fn constant(&mut self, constant: &Const, ty: &Type) -> Option<Number> {
        match constant {
            Const::Int(_) | Const::Zero if ty.is_int() => {
                let Type::Int(width) = ty else { return None };
                Some(Number::plain(i128::try_from(constant.as_unsigned(*width)?).ok()?))
            }
            Const::Null | Const::Zero => Some(Number::plain(0)),
            Const::Global(name) => Some(Number { root: Some(Root::Global(name.clone())), value: 0 }),
            Const::Gep { source, base, indices, .. } => {
                let indices: Vec<Typed> =
                    indices.iter().map(|(ty, index)| Typed::new(ty.clone(), index.clone())).collect();
                let base = self.constant(&base.1, &base.0)?;
                self.offset(base, source, &indices, 0)
            }
            _ => None,
        }
    }

    fn value(&mut self, value: ValueId, depth: u32) -> Option<Number> {
        if depth > MAX_DEPTH {
            return None;
        }
        if let Some(known) = self.phis.get(&value).or_else(|| self.known.get(&value)) {
            return known.clone();
        }
        let number = self.compute(value, depth + 1);
        self.known.insert(value, number.clone());
        number
    }

    fn compute(&mut self, value: ValueId, depth: u32) -> Option<Number> {
        let kernel = self.kernel;
        if let Some(index) = kernel.function.params.iter().position(|param| param.value == value) {
            return Some(Number { root: Some(Root::Argument(index)), value: 0 });
        }
        match &kernel.definition(value)?.op {
            Op::Binary { op, ty: ty @ Type::Int(width), a, b, .. } => {
                let (a, b) = (self.operand(a, ty, depth)?, self.operand(b, ty, depth)?);
                binary(*op, *width, a, b)
            }
            Op::ICmp { pred, ty, a, b, .. } => {
                let (a, b) = (self.operand(a, ty, depth)?, self.operand(b, ty, depth)?);
                (a.root == b.root).then_some(())?;
                let width = if let Type::Int(width) = ty { *width } else { 64 };
                Some(Number::plain(i128::from(compare(*pred, width, a.value, b.value))))
            }
            Op::Cast { op, from, to, .. } => {
                let number = self.operand(&from.op, &from.ty, depth)?;
                cast(*op, &from.ty, to, number)
            }
            Op::Select { cond, a, b, .. } if cond.ty == Type::I1 => {
                let chosen = if self.operand(&cond.op, &cond.ty, depth)?.value & 1 == 1 { a } else { b };
                self.operand(&chosen.op, &chosen.ty, depth)
            }
            Op::Freeze(value) => self.operand(&value.op, &value.ty, depth),
            Op::Gep { source, base, indices, .. } if base.ty.is_ptr() => {
                let base = self.operand(&base.op, &base.ty, depth)?;
                self.offset(base, source, indices, depth)
            }
            Op::Alloca { .. } => Some(Number { root: Some(Root::Private(value)), value: 0 }),
            Op::Load { ty: Type::Int(width), ptr, .. } => {
                let address = self.operand(&ptr.op, &ptr.ty, depth)?;
                self.load(&address, width / 8)
            }
            Op::Call(call) => {
                let Callee::Function(name) = &call.callee else { return None };
                match Intrinsic::parse(name) {
                    Some(Intrinsic::Position(position)) => self.position(position, &call.args.first()?.op),
                    Some(_) => None,
                    None => {
                        let Type::Int(width) = call.ret else { return None };
                        let mut args = Vec::new();
                        for arg in call.args.iter().filter(|arg| arg.ty.is_int()) {
                            args.push(self.operand(&arg.op, &arg.ty, depth)?.value);
                        }
                        called(name, width, &args).map(Number::plain)
                    }
                }
            }
            _ => None,
        }
    }

    fn offset(&mut self, base: Number, source: &Type, indices: &[Typed], depth: u32) -> Option<Number> {
        let module = self.kernel.module;
        let mut sum = base.value;
        let mut at = source.clone();
        for (level, index) in indices.iter().enumerate() {
            let number = self.operand(&index.op, &index.ty, depth)?.value;
            if level > 0 {
                match at.resolve(module)?.clone() {
                    Type::Array(_, element) | Type::Vector(_, element) => at = *element,
                    ty @ Type::Struct { .. } => {
                        sum += i128::from(ty.field_offset(usize::try_from(number).ok()?, module)?);
                        at = ty.element(u64::try_from(number).ok()?, module)?.clone();
                        continue;
                    }
                    _ => return None,
                }
            }
            let Type::Int(width) = index.ty else { return None };
            let (size, align) = at.size_align(module);
            sum += signed(number, width) * i128::from(size.next_multiple_of(align.max(1)));
        }
        Some(Number { root: base.root, value: sum })
    }

    /// A number in a `constant` argument.
    fn load(&self, address: &Number, bytes: u32) -> Option<Number> {
        let Some(Root::Argument(index)) = &address.root else { return None };
        if !self.kernel.signature.args.get(*index)?.constant {
            return None;
        }
        let start = usize::try_from(address.value).ok()?;
        let memory = self.launch.constants.get(index)?.get(start..start.checked_add(bytes as usize)?)?;
        Some(Number::plain(memory.iter().rev().fold(0, |number, byte| number << 8 | i128::from(*byte))))
    }

    fn position(&self, position: Position, dimension: &Operand) -> Option<Number> {
        let Operand::Const(dimension) = dimension else { return None };
        let d = usize::try_from(dimension.as_unsigned(32)?).ok().filter(|d| *d < 3)?;
        let Launch { grid, group, .. } = self.launch;
        let number = match position {
            Position::Thread => self.at.thread[d],
            Position::Group => self.at.group[d],
            Position::GroupSize => (grid[d] - self.at.group[d] * group[d]).min(group[d]),
            Position::FullGroupSize => group[d],
            Position::Grid => grid[d],
            Position::Groups => grid[d].div_ceil(group[d]),
            _ => return None,
        };
        Some(Number::plain(i128::from(number)))
    }
}

fn mask(value: i128, width: u32) -> i128 {
    if width >= 127 { value } else { value & ((1 << width) - 1) }
}

fn signed(value: i128, width: u32) -> i128 {
    if width >= 127 { value } else { value << (128 - width) >> (128 - width) }
}

fn binary(op: BinaryOp, width: u32, a: Number, b: Number) -> Option<Number> {
    let root = match (op, a.root, b.root) {
        (BinaryOp::Sub, x, y) if x == y => None,
        (BinaryOp::Add, Some(root), None) | (BinaryOp::Add, None, Some(root)) => Some(root),
        (BinaryOp::Sub, Some(root), None) => Some(root),
        (_, None, None) => None,
        _ => return None,
    };
    let (x, y) = (a.value, b.value);
    let shift = u32::try_from(y).unwrap_or(u32::MAX);
    let (sx, sy) = (signed(x, width), signed(y, width));
    let result = match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => mask(x, 64).wrapping_mul(mask(y, 64)),
        BinaryOp::And => x & y,
        BinaryOp::Or => x | y,
        BinaryOp::Xor => x ^ y,
        BinaryOp::Shl if shift < width => x << shift,
        BinaryOp::LShr if shift < width => x >> shift,
        BinaryOp::AShr if shift < width => sx >> shift,
        BinaryOp::UDiv => x.checked_div(y)?,
        BinaryOp::URem => x.checked_rem(y)?,
        BinaryOp::SDiv => sx.checked_div(sy)?,
        BinaryOp::SRem => sx.checked_rem(sy)?,
        _ => return None,
    };
    // An offset is signed.
    let value = if root.is_some() { signed(result, width) } else { mask(result, width) };
    Some(Number { root, value })
}

pub(crate) fn compare(pred: IntPredicate, width: u32, a: i128, b: i128) -> bool {
    pred.holds([mask(a, width), mask(b, width)], [signed(a, width), signed(b, width)])
}

fn cast(op: CastOp, from: &Type, to: &Type, number: Number) -> Option<Number> {
    let width = |ty: &Type| match ty {
        Type::Int(width) => Some(*width),
        Type::Ptr(_) => Some(64),
        _ => None,
    };
    let (from, to) = (width(from)?, width(to)?);
    match op {
        CastOp::ZExt | CastOp::PtrToInt | CastOp::IntToPtr | CastOp::AddrSpaceCast => Some(number),
        CastOp::SExt => Some(Number { value: mask(signed(number.value, from), to), ..number }),
        CastOp::Trunc if number.root.is_none() => Some(Number::plain(mask(number.value, to))),
        _ => None,
    }
}

/// An integer function of LLVM.
fn called(name: &str, width: u32, args: &[i128]) -> Option<i128> {
    let two = |f: fn(i128, i128) -> i128| Some(f(*args.first()?, *args.get(1)?));
    let by_sign = |f: fn(i128, i128) -> i128| {
        Some(mask(f(signed(*args.first()?, width), signed(*args.get(1)?, width)), width))
    };
    match name.strip_prefix("llvm.")?.split('.').next()? {
        "umin" => two(Ord::min),
        "umax" => two(Ord::max),
        "smin" => by_sign(Ord::min),
        "smax" => by_sign(Ord::max),
        "abs" => Some(mask(signed(*args.first()?, width).abs(), width)),
        "usub" => two(|a, b| (a - b).max(0)),
        "ctpop" => Some(i128::from(args.first()?.count_ones())),
        "ctlz" => Some(i128::from(args.first()?.leading_zeros()) - 128 + i128::from(width)),
        "cttz" => Some(i128::from(args.first()?.trailing_zeros().min(width))),
        "fshl" if args.first() == args.get(1) => {
            let (x, by) = (*args.first()?, u32::try_from(*args.get(2)?).ok()? % width);
            Some(if by == 0 { x } else { mask(x << by | x >> (width - by), width) })
        }
        _ => None,
    }
}
