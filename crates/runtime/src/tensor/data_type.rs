//! [`DataType`]: element types of tensors.

use std::fmt;

use bytemuck::Pod;
use elinvar_driver::Scalar;
use half::{bf16, f16};

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DataType {
    /// IEEE 754 binary32, `float` in MSL.
    F32,
    /// IEEE 754 binary16, `half` in MSL.
    F16,
    /// The upper half of a binary32, `bfloat` in MSL.
    BF16,
    /// Signed 32-bit integer, `int` in MSL.
    I32,
    /// Signed 8-bit integer, `char` in MSL.
    I8,
    /// Unsigned 8-bit integer, `uchar` in MSL. Masks and results of comparisons are `U8`: 0 is false, any other value is true.
    U8,
}

impl DataType {
    /// All types.
    pub const ALL: [Self; 6] = [Self::F32, Self::F16, Self::BF16, Self::I32, Self::I8, Self::U8];

    /// The floating-point types.
    pub const FLOATS: [Self; 3] = [Self::F32, Self::F16, Self::BF16];

    /// Size of an element in bytes, which is also its alignment.
    pub const fn size(self) -> u64 {
        self.scalar().size()
    }

    /// Whether it is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }

    /// The MSL scalar type.
    pub const fn scalar(self) -> Scalar {
        match self {
            Self::F32 => Scalar::F32,
            Self::F16 => Scalar::F16,
            Self::BF16 => Scalar::BF16,
            Self::I32 => Scalar::I32,
            Self::I8 => Scalar::I8,
            Self::U8 => Scalar::U8,
        }
    }

    /// Its number in the kernels (`common.metal`).
    pub(crate) const fn code(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I32 => "i32",
            Self::I8 => "i8",
            Self::U8 => "u8",
        })
    }
}

/// Host types of a tensor's elements.
pub trait Element: Pod + sealed::Sealed {
    /// The element type.
    const DATA_TYPE: DataType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($host:ty => $data_type:ident),*) => {$(
        impl sealed::Sealed for $host {}
        impl Element for $host {
            const DATA_TYPE: DataType = DataType::$data_type;
        }
    )*};
}
elements!(f32 => F32, f16 => F16, bf16 => BF16, i32 => I32, i8 => I8, u8 => U8);
