//! MSL's floating-point types on the host: f64 represents all their values exactly, and is rounded once to each type.

use elinvar::{bf16, f16};

use super::sheet::Value;

/// Rounds to odd: an inexact result has an odd last bit, so a second rounding gives the correctly rounded result.
fn odd(v: f64) -> f32 {
    let f = v as f32;
    if f.is_nan() || f64::from(f) == v {
        return f;
    }
    let bits = if f64::from(f).abs() > v.abs() { f.to_bits() - 1 } else { f.to_bits() };
    f32::from_bits(bits | 1)
}

pub(super) fn round_half(v: f64) -> f16 {
    f16::from_f32(odd(v))
}

pub(super) fn round_bfloat(v: f64) -> bf16 {
    bf16::from_f32(odd(v))
}

/// A floating-point type.
pub(super) trait Float: Value + bytemuck::Pod + std::fmt::Debug {
    /// The nearest value.
    fn from_f64(v: f64) -> Self;
    fn to_f64(self) -> f64;
}

macro_rules! floats {
    ($($host:ty, $round:expr;)*) => {$(
        impl Float for $host {
            fn from_f64(v: f64) -> Self {
                $round(v)
            }
            fn to_f64(self) -> f64 {
                self.into()
            }
        }
    )*};
}
floats! {
    f32, |v| v as f32;
    f16, round_half;
    bf16, round_bfloat;
}
