//! Barriers, and functions of a simdgroup.

use half::f16;

use crate::host::{SIMDGROUP, current};
use crate::mem_flags::MemFlags;

/// Waits for all threads of the threadgroup.
pub fn threadgroup_barrier(_: MemFlags) {
    let (group, index) = current("threadgroup_barrier");
    group.barrier(index);
}

/// Waits for all threads of the simdgroup.
pub fn simdgroup_barrier(_: MemFlags) {
    let (group, index) = current("simdgroup_barrier");
    group.exchange(index, 0);
}

/// A number that threads of a simdgroup exchange.
pub trait Exchange: Copy + PartialOrd {
    /// Its bits.
    fn bits(self) -> u64;
    /// From its bits.
    fn from_bits_of(bits: u64) -> Self;
    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// The product; integers wrap.
    fn times(self, other: Self) -> Self;
    /// 0.
    fn zero() -> Self;
}

macro_rules! integers {
    ($($ty:ty)*) => {$(
        impl Exchange for $ty {
            fn bits(self) -> u64 {
                self as u64
            }
            fn from_bits_of(bits: u64) -> Self {
                bits as Self
            }
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn zero() -> Self {
                0
            }
        }
    )*};
}
integers!(i8 i16 i32 u8 u16 u32 i64 u64 usize);

macro_rules! floats {
    ($($ty:ty, $bits:ty, $zero:expr;)*) => {$(
        impl Exchange for $ty {
            fn bits(self) -> u64 {
                u64::from(self.to_bits())
            }
            fn from_bits_of(bits: u64) -> Self {
                Self::from_bits(bits as $bits)
            }
            fn plus(self, other: Self) -> Self {
                self + other
            }
            fn times(self, other: Self) -> Self {
                self * other
            }
            fn zero() -> Self {
                $zero
            }
        }
    )*};
}
floats! {
    f32, u32, 0.0;
    f16, u16, f16::ZERO;
}

/// The values of the simdgroup's threads by lane, and the lane of this thread.
fn gather<T: Exchange>(what: &str, value: T) -> (Vec<Option<T>>, usize) {
    let (group, index) = current(what);
    let values = group.exchange(index, value.bits());
    (values.iter().map(|bits| bits.map(T::from_bits_of)).collect(), index % SIMDGROUP as usize)
}

fn reduce<T: Exchange>(what: &str, value: T, f: impl Fn(T, T) -> T) -> T {
    let (values, _) = gather(what, value);
    values.into_iter().flatten().reduce(f).unwrap_or(value)
}

/// The sum over the simdgroup.
pub fn simd_sum<T: Exchange>(value: T) -> T {
    reduce("simd_sum", value, T::plus)
}

/// The product over the simdgroup.
pub fn simd_product<T: Exchange>(value: T) -> T {
    reduce("simd_product", value, T::times)
}

/// The least value of the simdgroup.
pub fn simd_min<T: Exchange>(value: T) -> T {
    reduce("simd_min", value, |a, b| if b < a { b } else { a })
}

/// The largest value of the simdgroup.
pub fn simd_max<T: Exchange>(value: T) -> T {
    reduce("simd_max", value, |a, b| if b > a { b } else { a })
}

/// The bitwise and over the simdgroup.
pub fn simd_and<T: Exchange>(value: T) -> T {
    reduce("simd_and", value, |a, b| T::from_bits_of(a.bits() & b.bits()))
}

/// The bitwise or over the simdgroup.
pub fn simd_or<T: Exchange>(value: T) -> T {
    reduce("simd_or", value, |a, b| T::from_bits_of(a.bits() | b.bits()))
}

/// The bitwise exclusive or over the simdgroup.
pub fn simd_xor<T: Exchange>(value: T) -> T {
    reduce("simd_xor", value, |a, b| T::from_bits_of(a.bits() ^ b.bits()))
}

/// The sum over the lanes before this one.
pub fn simd_prefix_exclusive_sum<T: Exchange>(value: T) -> T {
    let (values, lane) = gather("simd_prefix_exclusive_sum", value);
    values[..lane].iter().flatten().fold(T::zero(), |sum, value| sum.plus(*value))
}

/// The sum over the lanes up to this one.
pub fn simd_prefix_inclusive_sum<T: Exchange>(value: T) -> T {
    let (values, lane) = gather("simd_prefix_inclusive_sum", value);
    values[..=lane].iter().flatten().fold(T::zero(), |sum, value| sum.plus(*value))
}

/// The value of the first lane.
pub fn simd_broadcast_first<T: Exchange>(value: T) -> T {
    let (values, _) = gather("simd_broadcast_first", value);
    values.into_iter().flatten().next().unwrap_or(value)
}

/// The value of a lane; this thread's, if that has ended or is out of range.
pub fn simd_broadcast<T: Exchange>(value: T, lane: u32) -> T {
    simd_shuffle(value, lane)
}

/// The value of a lane that each thread chooses; this thread's, if that has ended or is out of range.
pub fn simd_shuffle<T: Exchange>(value: T, lane: u32) -> T {
    let (values, _) = gather("simd_shuffle", value);
    values.get(lane as usize).copied().flatten().unwrap_or(value)
}

/// The value of the lane whose index is this one's, exclusive-or `mask`.
pub fn simd_shuffle_xor<T: Exchange>(value: T, mask: u32) -> T {
    let (values, lane) = gather("simd_shuffle_xor", value);
    values.get(lane ^ mask as usize).copied().flatten().unwrap_or(value)
}

/// The value of the lane `delta` below; this thread's if there is none.
pub fn simd_shuffle_up<T: Exchange>(value: T, delta: u32) -> T {
    let (values, lane) = gather("simd_shuffle_up", value);
    let from = lane.checked_sub(delta as usize);
    from.and_then(|lane| values.get(lane).copied().flatten()).unwrap_or(value)
}

/// The value of the lane `delta` above; this thread's if there is none.
pub fn simd_shuffle_down<T: Exchange>(value: T, delta: u32) -> T {
    let (values, lane) = gather("simd_shuffle_down", value);
    values.get(lane + delta as usize).copied().flatten().unwrap_or(value)
}

/// Whether the condition holds for all threads of the simdgroup.
pub fn simd_all(condition: bool) -> bool {
    reduce("simd_all", u32::from(condition), u32::min) != 0
}

/// Whether the condition holds for a thread of the simdgroup.
pub fn simd_any(condition: bool) -> bool {
    reduce("simd_any", u32::from(condition), u32::max) != 0
}
