//! [`Position`]: types that positions and sizes are given in.

use crate::{Lane, Vec2, Vec3};

/// A type of a parameter such as `#[thread_position_in_grid] i: usize`.
pub trait Position {
    /// From the numbers along x, y and z.
    fn from_sizes(sizes: [u32; 3]) -> Self;
}

macro_rules! positions {
    ($($ty:ty)*) => {$(
        impl Position for $ty {
            fn from_sizes(sizes: [u32; 3]) -> Self {
                sizes[0] as Self
            }
        }
    )*};
}
positions!(usize u32 u16);

impl<T: Position + Lane> Position for Vec2<T> {
    fn from_sizes([x, y, z]: [u32; 3]) -> Self {
        Self::new(T::from_sizes([x, y, z]), T::from_sizes([y, z, x]))
    }
}

impl<T: Position + Lane> Position for Vec3<T> {
    fn from_sizes([x, y, z]: [u32; 3]) -> Self {
        Self::new(T::from_sizes([x, y, z]), T::from_sizes([y, z, x]), T::from_sizes([z, x, y]))
    }
}
