//! Upper bound of the sizes of memory objects, for which code is specialized.
//!
//! A lane's address depends on 64 bits of its index. Knowing that all objects are small makes cheaper addresses exact: indices of
//! gathers that are signed 32-bit numbers ([`index_narrowing`](crate::analysis::index_narrowing)), and contiguous accesses by indices
//! that could wrap around at 2³² ([`vector_shape`](crate::analysis::vector_shape)). Each analysis compares the bound, times the
//! element size, with what it assumes, so large elements need a large object before they lose anything.

use crate::kernel::Kernel;
use elinvar_ir::{Const, Operand};

/// A power of two, which the sizes in bytes of all memory objects of a launch do not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeBound(u8);

impl SizeBound {
    /// 2 GiB, for which code has the cheapest addresses.
    pub const DEFAULT: Self = Self(31);
    /// No bound.
    pub const NONE: Self = Self(63);
    /// The largest bound below [`SizeBound::NONE`], 64 GiB. A `uint` index of a 16-byte element, the largest of MSL's vectors of
    /// 32-bit numbers, does not reach further.
    const LARGEST: Self = Self(36);

    /// The least bound of an object of `bytes` bytes: one of 2, 4, 8, 16, 32 and 64 GiB, or none.
    pub fn of(bytes: u64) -> Self {
        let log2 = bytes.checked_next_power_of_two().map_or(63, u64::trailing_zeros);
        match log2 as u8 {
            small if small <= Self::DEFAULT.0 => Self::DEFAULT,
            large if large > Self::LARGEST.0 => Self::NONE,
            log2 => Self(log2),
        }
    }

    /// Size in bytes, inclusive.
    pub fn bytes(self) -> u64 {
        1 << self.0
    }

    /// The base-2 logarithm of the size, in 31 to 63.
    pub fn log2(self) -> u32 {
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
        let (gib, log2) = (1_u64 << 30, |bytes| SizeBound::of(bytes).log2());
        assert_eq!([0, 1, gib, 2 * gib - 1, 2 * gib].map(log2), [31; 5]);
        assert_eq!([2 * gib + 1, 3 * gib, 4 * gib].map(log2), [32; 3]);
        assert_eq!([4 * gib + 4096, 8 * gib, 8 * gib + 1, 12 * gib].map(log2), [33, 33, 34, 34]);
        assert_eq!([64 * gib, 64 * gib + 1, 1 << 63, u64::MAX].map(log2), [36, 63, 63, 63]);
        for bytes in [1, 2 * gib, 2 * gib + 1, 5 * gib, 64 * gib, 65 * gib, 1 << 63] {
            assert!(bytes <= SizeBound::of(bytes).bytes());
        }
        assert_eq!(SizeBound::default(), SizeBound::of(0));
    }
}
