//! Upper bound of the sizes of memory objects, for which code is specialized.
//!
//! A lane's address depends on 64 bits of its index. Knowing that all objects are small makes cheaper addresses exact: indices of
//! gathers that are signed 32-bit numbers ([`index_narrowing`](crate::analysis::index_narrowing)), and contiguous accesses by indices
//! that could wrap around at 2³² ([`vector_shape`](crate::analysis::vector_shape)). Each analysis compares the bound, times the
//! element size, with what it assumes, so large elements need a large object before they lose anything.

use crate::kernel::Kernel;
use elinvar_ir::{Const, Operand};

/// An upper bound of the sizes of all memory objects of a launch: 2 GiB, a larger power of two or 15/16 of one, up to 64 GiB, or none.
///
/// An index of 32 bits that wraps around stays in an object of a power of two, times the element size, but not in a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeBound(u8);

impl SizeBound {
    /// 2 GiB, for which code has the cheapest addresses.
    pub const DEFAULT: Self = Self(0);
    /// No bound. The largest other one is 64 GiB: a `uint` index of a 16-byte element, the largest vector of 32-bit numbers, does not
    /// reach further.
    pub const NONE: Self = Self(11);

    /// The least bound of an object of `bytes` bytes.
    pub fn of(bytes: u64) -> Self {
        (0..Self::NONE.0).map(Self).find(|bound| bytes <= bound.bytes()).unwrap_or(Self::NONE)
    }

    /// Size in bytes, inclusive.
    pub fn bytes(self) -> u64 {
        let power = 1 << (31 + self.0.div_ceil(2));
        match self {
            Self::NONE => 1 << 63,
            Self(number) if number.is_multiple_of(2) => power,
            Self(_) => power - power / 16,
        }
    }

    /// Its index in ascending order; 0 for [`SizeBound::DEFAULT`].
    pub fn number(self) -> u32 {
        self.0.into()
    }
}

impl Default for SizeBound {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Kernel {
    /// Upper bound of the object that contains the address `base`, in bytes. Variables of the kernel itself are never large.
    pub(crate) fn bound_of(&self, base: &Operand) -> u64 {
        let is_own = match base {
            Operand::Const(c) => matches!(c, Const::Global(_)),
            Operand::Value(v) => self.private_arrays.iter().any(|array| array.value == *v),
        };
        if is_own { SizeBound::DEFAULT.bytes() } else { self.objects.bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_inclusive() {
        let gib = 1_u64 << 30;
        let all: Vec<u64> = (0..SizeBound::NONE.0).map(|number| SizeBound(number).bytes()).collect();
        let quarters = [8, 15, 16, 30, 32, 60, 64, 120, 128, 240, 256];
        assert_eq!(all, quarters.map(|quarter| quarter * gib / 4));
        for (number, bytes) in all.into_iter().enumerate() {
            assert_eq!(SizeBound::of(bytes).number(), number as u32);
            assert_eq!(SizeBound::of(bytes + 1).number(), number as u32 + 1);
        }
        assert_eq!([0, 1, gib, 2 * gib - 1].map(SizeBound::of), [SizeBound::DEFAULT; 4]);
        assert_eq!([64 * gib + 1, 1 << 63, u64::MAX].map(SizeBound::of), [SizeBound::NONE; 3]);
        assert_eq!(SizeBound::default(), SizeBound::of(0));
    }
}
