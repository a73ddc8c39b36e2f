//! Metal's functions that Rust's numbers lack as methods.

use std::ops::{Mul, Sub};

use crate::{Vec2, Vec3, Vec4};

/// Vectors of `f32`.
pub trait Vector: Copy + Mul<f32, Output = Self> + Sub<Output = Self> {
    /// The sum of the products of lanes.
    fn product(self, other: Self) -> f32;
}

macro_rules! vectors {
    ($($name:ident)*) => {$(
        impl Vector for $name<f32> {
            fn product(self, other: Self) -> f32 {
                self.dot(other)
            }
        }

        impl Mix<f32> for $name<f32> {
            fn mixed(self, other: Self, factor: f32) -> Self {
                self + (other - self) * factor
            }
        }

        impl Mix<$name<f32>> for $name<f32> {
            fn mixed(self, other: Self, factor: Self) -> Self {
                self + (other - self) * factor
            }
        }
    )*};
}
vectors!(Vec2 Vec3 Vec4);

/// Values between which [`mix`] interpolates.
pub trait Mix<F> {
    /// `self + (other - self) * factor`.
    fn mixed(self, other: Self, factor: F) -> Self;
}

impl Mix<Self> for f32 {
    fn mixed(self, other: Self, factor: Self) -> Self {
        self + (other - self) * factor
    }
}

/// The sum of the products of lanes.
pub fn dot<V: Vector>(a: V, b: V) -> f32 {
    a.product(b)
}

/// The Euclidean length.
pub fn length<V: Vector>(v: V) -> f32 {
    v.product(v).sqrt()
}

/// The length of the difference.
pub fn distance<V: Vector>(a: V, b: V) -> f32 {
    length(a - b)
}

/// The vector of length 1 with this direction.
pub fn normalize<V: Vector>(v: V) -> V {
    v * (1.0 / length(v))
}

/// The cross product.
pub fn cross(a: Vec3<f32>, b: Vec3<f32>) -> Vec3<f32> {
    Vec3::new(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x)
}

/// `a + (b - a) * factor`; the factor of vectors is a vector or a number.
pub fn mix<F, T: Mix<F>>(a: T, b: T, factor: F) -> T {
    a.mixed(b, factor)
}

/// 0 if `x` is less than `edge`, otherwise 1.
pub fn step(edge: f32, x: f32) -> f32 {
    if x < edge { 0.0 } else { 1.0 }
}

/// Hermite interpolation from 0 at `low` to 1 at `high`.
pub fn smoothstep(low: f32, high: f32, x: f32) -> f32 {
    let t = saturate((x - low) / (high - low));
    t * t * (3.0 - 2.0 * t)
}

/// The number limited to 0 to 1; 0 for NaN.
pub fn saturate(x: f32) -> f32 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

/// 1 divided by the square root.
pub fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}

/// Integers of which [`mulhi`] gives the upper half of a product.
pub trait Wide {
    /// The upper half of the product.
    fn upper(self, other: Self) -> Self;
}

macro_rules! wide {
    ($($ty:ty, $wide:ty;)*) => {$(
        impl Wide for $ty {
            fn upper(self, other: Self) -> Self {
                ((self as $wide * other as $wide) >> Self::BITS) as Self
            }
        }
    )*};
}
wide! {
    i32, i64;
    u32, u64;
    i64, i128;
    u64, u128;
}

/// The upper half of the product.
pub fn mulhi<T: Wide>(a: T, b: T) -> T {
    a.upper(b)
}
