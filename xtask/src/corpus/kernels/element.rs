//! Scalar types of buffers for references: values, limits, samples, layouts.

use std::fmt::Debug;

use bytemuck::Pod;
use elinvar::{Scalar, bf16, f16};

use super::case::UNTOUCHED;

/// A scalar type of MSL with its host type.
pub trait Element: Pod + Debug + Send + Sync + PartialEq {
    const SCALAR: Scalar;
    /// Abbreviation in the names of candle's kernels.
    const SHORT: &'static str;
    /// Maximum relative error of a rounding; zero for integers.
    const ROUNDING: f64;

    /// Its value; for integers of more than 53 bits the nearest.
    fn value(self) -> f64;
    /// The nearest float, ties to even; for integers the truncated value.
    fn of(value: f64) -> Self;
    /// The integer with these low bits; for floats the nearest value.
    fn of_integer(value: i128) -> Self;
    /// The integer part.
    fn integer(self) -> i128;

    /// Content of an output before the launch.
    fn untouched() -> Self {
        bytemuck::pod_read_unaligned(&[UNTOUCHED; 16][..size_of::<Self>()])
    }

    /// Reads elements from bytes, without alignment requirements.
    fn read(bytes: &[u8]) -> Vec<Self> {
        bytes.chunks_exact(size_of::<Self>()).map(bytemuck::pod_read_unaligned).collect()
    }

    /// Whether the numbers are equal; all NaNs are equal, and so are both zeros.
    fn same(self, other: Self) -> bool {
        self == other || self.value().is_nan() && other.value().is_nan()
    }
}

macro_rules! integers {
    ($($host:ident => $scalar:ident, $short:literal;)*) => {$(
        impl Element for $host {
            const SCALAR: Scalar = Scalar::$scalar;
            const SHORT: &'static str = $short;
            const ROUNDING: f64 = 0.0;
            fn value(self) -> f64 {
                self as f64
            }
            fn of(value: f64) -> Self {
                value as Self
            }
            fn of_integer(value: i128) -> Self {
                value as Self
            }
            fn integer(self) -> i128 {
                self.into()
            }
        }
    )*};
}
integers! {
    i8 => I8, "i8";
    u8 => U8, "u8";
    i16 => I16, "i16";
    u16 => U16, "u16";
    i32 => I32, "i32";
    u32 => U32, "u32";
    i64 => I64, "i64";
    u64 => U64, "u64";
}

macro_rules! floats {
    ($($host:ident => $scalar:ident, $short:literal, $digits:literal, $of:expr;)*) => {$(
        impl Element for $host {
            const SCALAR: Scalar = Scalar::$scalar;
            const SHORT: &'static str = $short;
            const ROUNDING: f64 = 1.0 / (1_u64 << $digits) as f64;
            fn value(self) -> f64 {
                self.into()
            }
            fn of(value: f64) -> Self {
                $of(value)
            }
            fn of_integer(value: i128) -> Self {
                $of(value as f64)
            }
            fn integer(self) -> i128 {
                self.value() as i128
            }
        }
    )*};
}
floats! {
    f32 => F32, "f32", 24, |value| value as f32;
    f16 => F16, "f16", 11, f16::from_f64;
    bf16 => BF16, "bf16", 8, bf16::from_f64;
}

/// A deterministic sequence of numbers (splitmix64).
pub struct Sequence(pub u64);

impl Sequence {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Elements between `low` and `high`; integers from `low` up to, but not including, `high`.
    pub fn between<T: Element>(&mut self, count: usize, low: f64, high: f64) -> Vec<T> {
        let one = |bits: u64| low + (high - low) * ((bits >> 11) as f64 / (1_u64 << 53) as f64);
        (0..count)
            .map(|_| {
                let value = one(self.next());
                T::of(if T::ROUNDING == 0.0 { value.floor() } else { value })
            })
            .collect()
    }

    /// Elements with random bits; for integers.
    pub fn any<T: Element>(&mut self, count: usize) -> Vec<T> {
        (0..count).map(|_| T::of_integer(self.next().into())).collect()
    }

    /// A permutation of the numbers below `count`.
    pub fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..count).collect();
        for i in (1..count).rev() {
            all.swap(i, self.next() as usize % (i + 1));
        }
        all
    }
}

/// Sizes and strides of an array in elements, outermost dimension first.
pub struct Layout {
    pub dims: Vec<u64>,
    pub strides: Vec<u64>,
}

impl Layout {
    pub fn new(dims: &[u64], strides: &[u64]) -> Self {
        Self { dims: dims.to_vec(), strides: strides.to_vec() }
    }

    /// Number of elements of the array.
    pub fn len(&self) -> usize {
        self.dims.iter().product::<u64>() as usize
    }

    /// Number of elements of the memory that the array spans.
    pub fn extent(&self) -> usize {
        let last = self.dims.iter().zip(&self.strides).map(|(dim, stride)| (dim - 1) * stride).sum::<u64>();
        last as usize + 1
    }

    /// Offset of element `index`, where the last dimension varies fastest.
    pub fn place(&self, index: usize) -> usize {
        let mut rest = index as u64;
        let mut place = 0;
        for (dim, stride) in self.dims.iter().zip(&self.strides).rev() {
            place += rest % dim * stride;
            rest /= dim;
        }
        place as usize
    }
}

/// A member of a struct.
#[derive(Clone, Copy)]
pub enum Member {
    I16(i16),
    I32(i32),
    I64(i64),
    U64(u64),
    F32(f32),
    Bool(bool),
}

/// Bytes of a struct, with each member at the next multiple of its size, as in C and MSL.
pub fn packed(members: &[Member]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut largest = 1;
    for member in members {
        let value: &[u8] = match member {
            Member::I16(v) => &v.to_le_bytes(),
            Member::I32(v) => &v.to_le_bytes(),
            Member::I64(v) => &v.to_le_bytes(),
            Member::U64(v) => &v.to_le_bytes(),
            Member::F32(v) => &v.to_le_bytes(),
            Member::Bool(v) => &[u8::from(*v)],
        };
        bytes.resize(bytes.len().next_multiple_of(value.len()), 0);
        bytes.extend(value);
        largest = largest.max(value.len());
    }
    bytes.resize(bytes.len().next_multiple_of(largest), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts() {
        let transposed = Layout::new(&[3, 2], &[1, 3]);
        assert_eq!((transposed.len(), transposed.extent()), (6, 6));
        assert_eq!((0..6).map(|i| transposed.place(i)).collect::<Vec<_>>(), [0, 3, 1, 4, 2, 5]);
        let broadcast = Layout::new(&[2, 2], &[0, 1]);
        assert_eq!((0..4).map(|i| broadcast.place(i)).collect::<Vec<_>>(), [0, 1, 0, 1]);
    }

    #[test]
    fn structs() {
        let bytes = packed(&[Member::I32(1), Member::U64(2), Member::Bool(true)]);
        assert_eq!(bytes, [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(packed(&[Member::I64(-1), Member::F32(1.0), Member::I32(3)]).len(), 16);
    }

    #[test]
    fn samples() {
        let mut sequence = Sequence(1);
        let floats: Vec<f16> = sequence.between(1000, -2.0, 3.0);
        assert!(floats.iter().all(|v| (-2.0..=3.0).contains(&v.value())));
        let integers: Vec<u8> = sequence.between(1000, 3.0, 6.0);
        assert_eq!(integers.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
        let mut order = sequence.shuffled(50);
        assert_ne!(order, (0..50).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn values() {
        assert_eq!(u8::of_integer(-1), 255);
        assert_eq!(bf16::of(1.0 + 1.0 / 256.0), bf16::ONE);
        assert_eq!(f16::ROUNDING, f64::from(f16::EPSILON) / 2.0);
        assert!(f32::NAN.same(-f32::NAN) && 0.0_f32.same(-0.0));
        assert_eq!(u32::untouched(), 0x5a5a_5a5a);
    }
}
