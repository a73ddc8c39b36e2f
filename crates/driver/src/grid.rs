//! [`Grid`]: how much a launch runs, and where that is known from.
//!
//! Threads known when the launch is recorded, or counts of threadgroups that the device's own work leaves in memory. What
//! the counts mean for a threadgroup's size is computed here, so that every driver that sees them refuses the same ones.

use crate::{Dim3, MemorySlice};

/// The size of a launch.
#[derive(Clone, Debug)]
pub enum Grid {
    /// So many threads. If a size is zero nothing runs.
    Threads(Dim3),
    /// Whole threadgroups: their counts along x, y and z are the three 32-bit numbers that these [`Grid::COUNTS_BYTES`] bytes
    /// hold when what is before the launch in its queue has taken effect. The offset is a multiple of
    /// [`Grid::COUNTS_ALIGN`]. If a count is zero nothing runs.
    ///
    /// Counts that give more than `u32::MAX` threads along a dimension, or more threadgroups than the device runs,
    /// end the submission in an error that names the kernel and the counts. Where the device alone sees the counts
    /// ([`Caps::sees_counts`](crate::Caps::sees_counts)) what they do is undefined, as with Metal's
    /// `dispatchThreadgroups(indirectBuffer:…)`.
    Indirect(MemorySlice),
}

impl Grid {
    /// Bytes of the counts.
    pub const COUNTS_BYTES: u64 = 12;
    /// What the offset of the counts in their memory is a multiple of.
    pub const COUNTS_ALIGN: u64 = 4;

    /// The threads, if they are known before the launch runs.
    pub fn threads(&self) -> Option<Dim3> {
        match self {
            Self::Threads(threads) => Some(*threads),
            Self::Indirect(_) => None,
        }
    }

    /// Where the counts are, if they are read when the launch runs.
    pub fn counts(&self) -> Option<&MemorySlice> {
        match self {
            Self::Threads(_) => None,
            Self::Indirect(counts) => Some(counts),
        }
    }
}

impl Dim3 {
    /// So many of `piece`, per dimension; `None` if one is beyond 32 bits. Nothing at all if a count is zero.
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
