//! [`Dim3`]: a size or position in three dimensions.

use std::fmt;

/// A size or position in up to three dimensions, as in a kernel's `uint3`. Unused dimensions of a size are 1.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Dim3 {
    /// Component x, which varies fastest in linear order.
    pub x: u32,
    /// Component y.
    pub y: u32,
    /// Component z.
    pub z: u32,
}

impl Dim3 {
    /// Creates a size or position from its components.
    pub const fn new(x: u32, y: u32, z: u32) -> Self {
        Self { x, y, z }
    }

    /// Product of the components. Does not overflow: it is less than 2⁹⁶.
    pub const fn volume(self) -> u128 {
        self.x as u128 * self.y as u128 * self.z as u128
    }

    /// The components as `[x, y, z]`.
    pub const fn to_array(self) -> [u32; 3] {
        [self.x, self.y, self.z]
    }

    /// Componentwise division, rounded up: the number of pieces of size `piece` that cover `self`. A component of `piece` that is 0
    /// counts as 1.
    pub fn div_ceil(self, piece: Dim3) -> Dim3 {
        Dim3::new(
            self.x.div_ceil(piece.x.max(1)),
            self.y.div_ceil(piece.y.max(1)),
            self.z.div_ceil(piece.z.max(1)),
        )
    }
}

impl From<u32> for Dim3 {
    fn from(x: u32) -> Self {
        Self::new(x, 1, 1)
    }
}

impl From<(u32, u32)> for Dim3 {
    fn from((x, y): (u32, u32)) -> Self {
        Self::new(x, y, 1)
    }
}

impl From<(u32, u32, u32)> for Dim3 {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self::new(x, y, z)
    }
}

impl From<[u32; 3]> for Dim3 {
    fn from([x, y, z]: [u32; 3]) -> Self {
        Self::new(x, y, z)
    }
}

impl fmt::Display for Dim3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}×{}", self.x, self.y, self.z)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_cover_the_grid() {
        let grid = Dim3::new(1_000_003, 5, 1);
        assert_eq!(grid.div_ceil(Dim3::new(256, 4, 1)), Dim3::new(3907, 2, 1));
        assert_eq!(Dim3::new(0, 1, 1).div_ceil(Dim3::new(8, 1, 1)).volume(), 0);
        assert_eq!(Dim3::from(u32::MAX).volume(), u128::from(u32::MAX));
    }
}
