//! [`Vec2`], [`Vec3`], [`Vec4`]: vectors with the size and alignment of Metal's, so a `Vec3<f32>` has 16 bytes.

use std::fmt;
use std::ops::{
    Add, AddAssign, BitAnd, BitOr, BitXor, Div, DivAssign, Index, IndexMut, Mul, MulAssign, Neg, Rem, Sub,
    SubAssign,
};

use bytemuck::{Pod, Zeroable};
use half::f16;

/// A scalar that vectors have as lanes.
pub trait Lane: Copy + Default + PartialEq + fmt::Debug + 'static {
    /// Has the alignment of a vector of two.
    type Align2: Copy + PartialEq + fmt::Debug + 'static;
    /// Has the alignment of a vector of three or four.
    type Align4: Copy + PartialEq + fmt::Debug + 'static;
}

macro_rules! alignments {
    ($($name:ident $bytes:literal)*) => {$(
        #[doc(hidden)]
        #[repr(align($bytes))]
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name;
    )*};
}
alignments!(A2 2 A4 4 A8 8 A16 16 A32 32);

macro_rules! lanes {
    ($($ty:ty: $two:ty, $four:ty;)*) => {$(
        impl Lane for $ty {
            type Align2 = $two;
            type Align4 = $four;
        }
    )*};
}
lanes! {
    i8: A2, A4;
    u8: A2, A4;
    i16: A4, A8;
    u16: A4, A8;
    f16: A4, A8;
    i32: A8, A16;
    u32: A8, A16;
    f32: A8, A16;
    i64: A16, A32;
    u64: A16, A32;
    usize: A16, A32;
}

macro_rules! vector {
    ($name:ident, $align:ident, $count:literal, $doc:literal, [$($lane:ident $at:literal),*], [$($pad:ident)?]) => {
        #[doc = $doc]
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name<T: Lane> {
            $(
                #[doc = concat!("Lane ", $at, ".")]
                pub $lane: T,
            )*
            $($pad: T,)?
            align: [T::$align; 0],
        }

        impl<T: Lane> $name<T> {
            /// A vector of these lanes.
            #[allow(clippy::too_many_arguments)]
            pub fn new($($lane: T),*) -> Self {
                Self { $($lane,)* $($pad: T::default(),)? align: [] }
            }

            /// A vector of equal lanes.
            pub fn splat(value: T) -> Self {
                Self::new($({ let _ = $at; value }),*)
            }

            fn map2(self, other: Self, f: impl Fn(T, T) -> T) -> Self {
                Self::new($(f(self.$lane, other.$lane)),*)
            }
        }

        // SAFETY: lanes of a scalar whose zero is all bits zero; the padding lane is one too.
        unsafe impl<T: Lane + Zeroable> Zeroable for $name<T> {}
        // SAFETY: lanes of plain data, with the padding as a lane; the size is a multiple of the alignment without further padding,
        // which `layout` tests for each lane type.
        unsafe impl<T: Lane + Pod> Pod for $name<T> {}

        impl<T: Lane> Default for $name<T> {
            fn default() -> Self {
                Self::splat(T::default())
            }
        }

        impl<T: Lane> PartialEq for $name<T> {
            fn eq(&self, other: &Self) -> bool {
                $(self.$lane == other.$lane)&&*
            }
        }

        impl<T: Lane> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name))$(.field(&self.$lane))*.finish()
            }
        }

        impl<T: Lane> Index<usize> for $name<T> {
            type Output = T;

            fn index(&self, index: usize) -> &T {
                [$(&self.$lane),*][index]
            }
        }

        impl<T: Lane> IndexMut<usize> for $name<T> {
            fn index_mut(&mut self, index: usize) -> &mut T {
                let lanes: [&mut T; $count] = [$(&mut self.$lane),*];
                lanes.into_iter().nth(index).expect("a lane of the vector")
            }
        }

        impl<T: Lane + Neg<Output = T>> Neg for $name<T> {
            type Output = Self;

            fn neg(self) -> Self {
                Self::new($(-self.$lane),*)
            }
        }

        vector!(@operators $name Add add, Sub sub, Mul mul, Div div, Rem rem, BitAnd bitand, BitOr bitor, BitXor bitxor);
        vector!(@assign $name AddAssign add_assign Add add, SubAssign sub_assign Sub sub, MulAssign mul_assign Mul mul, DivAssign div_assign Div div);

        impl Mul<$name<f32>> for f32 {
            type Output = $name<f32>;

            fn mul(self, vector: $name<f32>) -> $name<f32> {
                $name::splat(self) * vector
            }
        }

        impl $name<f32> {
            /// The smaller of both, lane by lane.
            pub fn min(self, other: Self) -> Self {
                self.map2(other, f32::min)
            }

            /// The larger of both, lane by lane.
            pub fn max(self, other: Self) -> Self {
                self.map2(other, f32::max)
            }

            /// The absolute value of each lane.
            pub fn abs(self) -> Self {
                Self::new($(self.$lane.abs()),*)
            }

            /// Each lane rounded down.
            pub fn floor(self) -> Self {
                Self::new($(self.$lane.floor()),*)
            }

            /// Each lane rounded up.
            pub fn ceil(self) -> Self {
                Self::new($(self.$lane.ceil()),*)
            }

            /// The square root of each lane.
            pub fn sqrt(self) -> Self {
                Self::new($(self.$lane.sqrt()),*)
            }

            /// `self * a + b`, rounded once.
            pub fn mul_add(self, a: Self, b: Self) -> Self {
                Self::new($(self.$lane.mul_add(a.$lane, b.$lane)),*)
            }

            /// The sum of the products of lanes.
            pub fn dot(self, other: Self) -> f32 {
                [$(self.$lane * other.$lane),*].into_iter().reduce(|sum, product| sum + product).unwrap_or(0.0)
            }

            /// The Euclidean length.
            pub fn length(self) -> f32 {
                self.dot(self).sqrt()
            }

            /// The vector of length 1 with this direction.
            pub fn normalize(self) -> Self {
                self * (1.0 / self.length())
            }
        }
    };
    (@operators $name:ident $($op:ident $method:ident),*) => {$(
        impl<T: Lane + $op<Output = T>> $op for $name<T> {
            type Output = Self;

            fn $method(self, other: Self) -> Self {
                self.map2(other, |a, b| a.$method(b))
            }
        }

        impl<T: Lane + $op<Output = T>> $op<T> for $name<T> {
            type Output = Self;

            fn $method(self, other: T) -> Self {
                self.map2(Self::splat(other), |a, b| a.$method(b))
            }
        }
    )*};
    (@assign $name:ident $($assign:ident $assign_method:ident $op:ident $method:ident),*) => {$(
        impl<T: Lane + $op<Output = T>> $assign for $name<T> {
            fn $assign_method(&mut self, other: Self) {
                *self = self.$method(other);
            }
        }

        impl<T: Lane + $op<Output = T>> $assign<T> for $name<T> {
            fn $assign_method(&mut self, other: T) {
                *self = self.$method(other);
            }
        }
    )*};
}

vector!(Vec2, Align2, 2, "Two lanes.", [x 0, y 1], []);
vector!(Vec3, Align4, 3, "Three lanes, with the size of four.", [x 0, y 1, z 2], [padding]);
vector!(Vec4, Align4, 4, "Four lanes.", [x 0, y 1, z 2, w 3], []);

elinvar_kernel_macro::swizzles!();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout() {
        fn check<T: Lane>() {
            let lane = size_of::<T>();
            assert_eq!((size_of::<Vec2<T>>(), align_of::<Vec2<T>>()), (2 * lane, 2 * lane));
            assert_eq!((size_of::<Vec3<T>>(), align_of::<Vec3<T>>()), (4 * lane, 4 * lane));
            assert_eq!((size_of::<Vec4<T>>(), align_of::<Vec4<T>>()), (4 * lane, 4 * lane));
        }
        check::<i8>();
        check::<u8>();
        check::<i16>();
        check::<u16>();
        check::<f16>();
        check::<i32>();
        check::<u32>();
        check::<f32>();
        check::<i64>();
        check::<u64>();
    }

    #[test]
    fn lanes_and_swizzles() {
        let v = Vec4::new(1.0f32, 2.0, 3.0, 4.0);
        assert_eq!(v.wzyx(), Vec4::new(4.0, 3.0, 2.0, 1.0));
        assert_eq!((v.xy() * 2.0 + v.zw()).y, 8.0);
        assert_eq!(v.xyz().dot(Vec3::splat(1.0)), 6.0);
        assert_eq!(v[2], 3.0);
    }
}
