//! [`KernelType`]: types whose layout is the same on both sides; [`Number`]: bounds for type parameters of kernels.

use std::ops::{Add, Div, Mul, Rem, Sub};

use bytemuck::Pod;
use half::f16;

use crate::{Lane, Vec2, Vec3, Vec4};

/// A type of buffers and arguments of kernels. Derived for structs by `#[derive(elinvar::KernelType)]`, which asserts that the layout is that
/// of MSL: `#[repr(C)]` without padding.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type of kernels",
    label = "not a type of kernels",
    note = "use numbers of 8 to 64 bits without `f64`, vectors of them, and structs with `#[derive(elinvar::KernelType)]` and `#[repr(C)]`"
)]
pub trait KernelType: Pod {}

/// A number that a kernel is generic over: it has `+ - * / %`, comparisons, `ZERO` and `ONE`.
pub trait Number:
    KernelType
    + Send
    + Sync
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Rem<Output = Self>
{
    /// Its name in MSL.
    const MSL: &'static str;
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
}

macro_rules! numbers {
    ($($ty:ty => $msl:literal, $zero:expr, $one:expr;)*) => {$(
        impl KernelType for $ty {}

        impl Number for $ty {
            const MSL: &'static str = $msl;
            const ZERO: Self = $zero;
            const ONE: Self = $one;
        }
    )*};
}
numbers! {
    i8 => "char", 0, 1;
    i16 => "short", 0, 1;
    i32 => "int", 0, 1;
    i64 => "long", 0, 1;
    u8 => "uchar", 0, 1;
    u16 => "ushort", 0, 1;
    u32 => "uint", 0, 1;
    u64 => "ulong", 0, 1;
    f32 => "float", 0.0, 1.0;
    f16 => "half", f16::ZERO, f16::ONE;
}

impl<T: KernelType + Lane> KernelType for Vec2<T> {}
impl<T: KernelType + Lane> KernelType for Vec3<T> {}
impl<T: KernelType + Lane> KernelType for Vec4<T> {}
impl<T: KernelType, const N: usize> KernelType for [T; N] where [T; N]: Pod {}
