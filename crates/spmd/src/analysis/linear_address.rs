//! Addresses as sums: a pointer, products of indices and sizes, and a constant. Addresses whose sums differ in the constant only are that
//! many bytes apart, however the sums were computed: clang hoists parts of them out of loops.
//!
//! Sums are modulo 2⁶⁴, as addresses are, or modulo 2³². Extended and truncated numbers of 32 bits and more are equal modulo 2³², so that
//! sums are known through them, whether they wrap around or not. Differences are then known up to a multiple of 2³², which suffices for
//! two accesses to one object of at most 2³¹ bytes: they are less than 2³¹ bytes apart.

use elinvar_ir::{BinaryOp, CastOp, Const, Module, Op, Operand, Type, Typed, ValueId};

use crate::support::gep::{Step, constant_bytes, steps};

/// Maximum number of operations of an index that are analyzed.
const MOST: usize = 16;

/// The part of an address that is known at run time only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub base: Operand,
    /// Indices with their factors in bytes, in ascending order, once each.
    terms: Vec<(ValueId, i64)>,
}

/// What sums are modulo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Modulus {
    Bits32,
    Bits64,
}

impl Modulus {
    /// The least number, of either sign, that is equal to this one.
    fn reduce(self, number: i128) -> Option<i64> {
        match self {
            Self::Bits32 => Some(i64::from(number as i32)),
            Self::Bits64 => i64::try_from(number).ok(),
        }
    }

    /// Whether numbers of this type stay equal if they are extended or truncated to other such types.
    fn keeps(self, ty: &Type) -> bool {
        match self {
            Self::Bits32 => matches!(ty, Type::Int(32..=64)),
            Self::Bits64 => *ty == Type::I64,
        }
    }
}

/// The root of an address and its offset from it in bytes. `definition` gives the operation that defines a value.
pub(crate) fn decompose<'a>(
    module: &Module,
    definition: impl Fn(ValueId) -> Option<&'a Op>,
    address: ValueId,
    modulus: Modulus,
) -> Option<(Root, i64)> {
    let mut sum = Sum { definition: &definition, modulus, terms: Vec::new(), offset: 0, left: MOST };
    let mut base = Operand::Value(address);
    while let Some(Op::Gep { source, base: Typed { op: next, .. }, indices, .. }) =
        base.value().and_then(&definition)
    {
        let before = (sum.terms.clone(), sum.offset);
        let known = steps(module, source, indices).into_iter().zip(indices).all(|(step, index)| match step {
            Some(Step::Field(bytes)) => sum.constant(1, bytes.into()).is_some(),
            Some(Step::Elements(size)) => match (&index.op, i64::try_from(size)) {
                (Operand::Const(_), Ok(size)) => sum.index(&index.op, size).is_some(),
                (Operand::Value(_), Ok(size)) if modulus.keeps(&index.ty) => {
                    sum.index(&index.op, size).is_some()
                }
                _ => false,
            },
            None => false,
        });
        if !known {
            (sum.terms, sum.offset) = before;
            break;
        }
        base = next.clone();
    }
    while let Operand::Const(Const::Gep { source, base: inner, indices, .. }) = &base {
        let indices: Vec<Typed> = indices.iter().map(|(ty, c)| Typed::new(ty.clone(), c.clone())).collect();
        let Some(bytes) = constant_bytes(module, source, &indices) else { break };
        sum.constant(1, bytes.into())?;
        base = inner.1.clone().into();
    }
    let Sum { mut terms, offset, .. } = sum;
    terms.sort_unstable();
    terms.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 = kept.1.wrapping_add(next.1);
        }
        same
    });
    Some((Root { base, terms }, offset))
}

struct Sum<'d, D> {
    definition: &'d D,
    modulus: Modulus,
    terms: Vec<(ValueId, i64)>,
    offset: i64,
    /// Number of operations that may still be analyzed.
    left: usize,
}

impl<'a, D: Fn(ValueId) -> Option<&'a Op>> Sum<'_, D> {
    fn constant(&mut self, factor: i64, value: i128) -> Option<()> {
        let bytes = value.checked_mul(factor.into())?.checked_add(self.offset.into())?;
        self.offset = self.modulus.reduce(bytes)?;
        Some(())
    }

    /// Adds an index times a factor.
    fn index(&mut self, index: &Operand, factor: i64) -> Option<()> {
        let value = match index {
            Operand::Const(Const::Zero) => return Some(()),
            Operand::Const(Const::Int(value)) => return self.constant(factor, *value),
            Operand::Const(_) => return None,
            Operand::Value(value) => *value,
        };
        self.left = self.left.saturating_sub(1);
        let op = (self.left > 0).then(|| (self.definition)(value)).flatten();
        match op {
            Some(Op::Binary { op: BinaryOp::Add, a, b, .. }) => {
                self.index(a, factor)?;
                self.index(b, factor)
            }
            Some(Op::Binary { op: BinaryOp::Or, flags, a, b, .. }) if flags.contains("disjoint") => {
                self.index(a, factor)?;
                self.index(b, factor)
            }
            Some(Op::Binary { op, a, b: Operand::Const(by), .. })
                if self.multiple(*op, by, factor).is_some() =>
            {
                self.index(a, self.multiple(*op, by, factor)?)
            }
            Some(Op::Cast { op: CastOp::SExt | CastOp::ZExt | CastOp::Trunc, from, to, .. })
                if self.modulus.keeps(&from.ty) && self.modulus.keeps(to) =>
            {
                self.index(&from.op, factor)
            }
            _ => {
                self.terms.push((value, factor));
                Some(())
            }
        }
    }

    /// The factor of a value that is multiplied with a constant, or shifted by it.
    fn multiple(&self, op: BinaryOp, by: &Const, factor: i64) -> Option<i64> {
        let Const::Int(by) = by else { return None };
        let by = match op {
            BinaryOp::Mul => *by,
            BinaryOp::Shl => 1 << u32::try_from(*by).ok().filter(|by| *by < 63)?,
            _ => return None,
        };
        self.modulus.reduce(by.checked_mul(factor.into())?)
    }
}
