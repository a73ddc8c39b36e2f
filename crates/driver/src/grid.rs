//! [`Grid`]: the size of a launch, direct or indirect.
//!
//! A direct launch has a number of threads; an indirect one reads threadgroup counts from memory when it begins. The conversion of
//! counts to threads is here, so that all drivers that see the counts reject the same ones.

use crate::{Dim3, MemorySlice};

/// The size of a launch.
#[derive(Clone, Debug)]
pub enum Grid {
    /// Number of threads in each dimension. If one is 0, nothing runs.
    Threads(Dim3),
    /// Number of threadgroups in each dimension, read from memory as three `u32` (x, y, z) when preceding work of the queue has
    /// taken effect. The slice has [`Grid::COUNTS_BYTES`] bytes, at an offset that is a multiple of [`Grid::COUNTS_ALIGN`]. If a
    /// count is 0, nothing runs.
    ///
    /// Counts that amount to more than `u32::MAX` threads in a dimension, or to more threadgroups than the device supports, end
    /// the submission in an error that names the kernel and the counts. If only the device sees the counts
    /// ([`Features::sees_counts`](crate::Features::sees_counts) is false), the effect of such counts is undefined, as with Metal's
    /// `dispatchThreadgroups(indirectBuffer:…)`.
    Indirect(MemorySlice),
}

impl Grid {
    /// Size of the counts in bytes.
    pub const COUNTS_BYTES: u64 = 12;
    /// Required alignment of the counts' offset, in bytes.
    pub const COUNTS_ALIGN: u64 = 4;

    /// Number of threads of a direct launch; `None` for an indirect one.
    pub fn threads(&self) -> Option<Dim3> {
        match self {
            Self::Threads(threads) => Some(*threads),
            Self::Indirect(_) => None,
        }
    }

    /// Memory of the counts of an indirect launch; `None` for a direct one.
    pub fn counts(&self) -> Option<&MemorySlice> {
        match self {
            Self::Threads(_) => None,
            Self::Indirect(counts) => Some(counts),
        }
    }
}

impl Dim3 {
    /// Componentwise product of counts and a size, such as threadgroups and their size; `None` if a component exceeds `u32::MAX`. If a
    /// count is 0, all components of the result are 0.
    pub fn of_pieces(self, piece: Dim3) -> Option<Dim3> {
        if self.volume() == 0 {
            return Some(Dim3::new(0, 0, 0));
        }
        let [x, y, z] = self.to_array();
        Some(Dim3::new(x.checked_mul(piece.x)?, y.checked_mul(piece.y)?, z.checked_mul(piece.z)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_a_grid_or_are_too_many() {
        let most = u32::MAX;
        assert_eq!(Dim3::new(3, 5, 7).of_pieces(Dim3::new(64, 2, 1)), Some(Dim3::new(192, 10, 7)));
        assert_eq!(Dim3::new(most, 1, most).of_pieces(Dim3::from(1)), Some(Dim3::new(most, 1, most)));
        assert_eq!(Dim3::new(1, most, 1).of_pieces(Dim3::new(1, 2, 1)), None);
        assert_eq!(Dim3::new(0, most, 1).of_pieces(Dim3::new(1, 2, 1)).map(Dim3::volume), Some(0));
    }
}
