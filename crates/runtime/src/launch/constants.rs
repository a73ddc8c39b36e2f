//! [`Constants`]: values of function constants, with which a kernel is specialized.
//!
//! The values are validated against the source when the kernel is created.

use elinvar_driver::{Constant, ConstantKey, Scalar};
use half::{bf16, f16};

/// Values of function constants, by name or by index.
///
/// ```
/// # use elinvar::Constants;
/// let constants = Constants::new().set("use_bias", true).set(3, 7u32).set("scale", [1.0f32, 2.0]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Constants {
    pub(crate) list: Vec<Constant>,
}

impl Constants {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value. The key is the constant's qualified name, or the index of its `[[function_constant(n)]]`. The value's type
    /// must be the constant's type; [`crate::Library::kernel_with`] checks both.
    #[must_use]
    pub fn set(self, key: impl Into<ConstantKey>, value: impl ConstantValue) -> Self {
        let mut bytes = Vec::new();
        let scalar = value.write(&mut bytes);
        self.set_bytes(key, scalar, bytes)
    }

    /// The last value that was set for this key, if it has this type.
    pub fn get<V: ConstantValue>(&self, key: impl Into<ConstantKey>) -> Option<V> {
        let key = key.into();
        let constant = self.list.iter().rev().find(|constant| constant.key == key)?;
        V::read(constant.scalar, &constant.bytes)
    }

    /// The values, in the order in which they were added.
    pub fn values(&self) -> &[Constant] {
        &self.list
    }

    /// Adds a value whose type is known at run time only, as [`Constants::set`] does. `scalar` is the component type. `bytes`
    /// holds 1 component for a scalar or 2 to 4 for a vector, each [`Scalar::size`] bytes in native byte order, without padding;
    /// a `bool` is one byte, 0 or 1. [`crate::Library::kernel_with`] rejects any other length.
    #[must_use]
    pub fn set_bytes(
        mut self,
        key: impl Into<ConstantKey>,
        scalar: Scalar,
        bytes: impl Into<Vec<u8>>,
    ) -> Self {
        self.list.push(Constant { key: key.into(), scalar, bytes: bytes.into() });
        self
    }
}

/// Host types of function constants: MSL's scalar types, and arrays of 2 to 4 of them for vectors.
pub trait ConstantValue: sealed::Sealed {
    /// Appends the value's bytes in native byte order. Returns the component type.
    #[doc(hidden)]
    fn write(&self, bytes: &mut Vec<u8>) -> Scalar;

    /// The value of these bytes, if they are of this type.
    #[doc(hidden)]
    fn read(scalar: Scalar, bytes: &[u8]) -> Option<Self>
    where
        Self: Sized;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! scalars {
    ($($host:ty => $scalar:ident),*) => {$(
        impl sealed::Sealed for $host {}
        impl ConstantValue for $host {
            fn write(&self, bytes: &mut Vec<u8>) -> Scalar {
                bytes.extend(self.to_ne_bytes());
                Scalar::$scalar
            }

            fn read(scalar: Scalar, bytes: &[u8]) -> Option<Self> {
                let bytes = bytes.try_into().ok().filter(|_| scalar == Scalar::$scalar);
                bytes.map(Self::from_ne_bytes)
            }
        }
    )*};
}
scalars!(i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, u64 => U64);
scalars!(f16 => F16, bf16 => BF16, f32 => F32);

impl sealed::Sealed for bool {}
impl ConstantValue for bool {
    fn write(&self, bytes: &mut Vec<u8>) -> Scalar {
        bytes.push(u8::from(*self));
        Scalar::Bool
    }

    fn read(scalar: Scalar, bytes: &[u8]) -> Option<Self> {
        match bytes {
            [byte] if scalar == Scalar::Bool => Some(*byte != 0),
            _ => None,
        }
    }
}

macro_rules! vectors {
    ($($lanes:literal),*) => {$(
        impl<T: ConstantValue> sealed::Sealed for [T; $lanes] {}
        impl<T: ConstantValue> ConstantValue for [T; $lanes] {
            fn write(&self, bytes: &mut Vec<u8>) -> Scalar {
                let [first, rest @ ..] = self;
                let scalar = first.write(bytes);
                for value in rest {
                    value.write(bytes);
                }
                scalar
            }

            fn read(scalar: Scalar, bytes: &[u8]) -> Option<Self> {
                let size = bytes.len() / $lanes;
                let lanes = (size > 0).then(|| bytes.chunks(size).map(|bytes| T::read(scalar, bytes)));
                lanes?.collect::<Option<Vec<T>>>()?.try_into().ok()
            }
        }
    )*};
}
vectors!(2, 3, 4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_bytes() {
        let constants = Constants::new().set(3, 7u32).set("b", true).set(String::from("v"), [1.0f32, -2.0]);
        let got: Vec<_> =
            constants.values().iter().map(|c| (c.key.clone(), c.scalar, c.bytes.as_slice())).collect();
        let vector = [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0];
        assert_eq!(
            got,
            [
                (ConstantKey::Index(3), Scalar::U32, &[7, 0, 0, 0][..]),
                (ConstantKey::Name("b".into()), Scalar::Bool, &[1]),
                (ConstantKey::Name("v".into()), Scalar::F32, &vector),
            ]
        );
        assert_eq!(constants.get::<u32>(3), Some(7));
        assert_eq!(
            (constants.get::<i32>(3), constants.get::<u32>("b"), constants.get::<u32>(4)),
            (None, None, None)
        );
        assert_eq!((constants.get("b"), constants.get("v")), (Some(true), Some([1.0f32, -2.0])));
        assert_eq!((constants.get::<[f32; 3]>("v"), constants.get::<f32>("v")), (None, None));
        assert_eq!(constants.clone().set("b", false).get("b"), Some(false), "the last");
    }
}
