//! The floating-point formats of MSL: encodings, values, and units in the last place.

use bytemuck::Pod;
use elinvar::{bf16, f16};

/// A binary floating-point format, whose values f64 represents exactly.
pub trait Format: Pod {
    /// Name of the type in MSL.
    const NAME: &'static str;
    /// Number of bits of a value.
    const BITS: u32;
    /// Number of bits of the significand, with the hidden bit.
    const DIGITS: i32;
    /// Exponents of the smallest and of the largest normal number.
    const EXPONENTS: (i32, i32);
    /// The value with these bits.
    fn of_bits(bits: u32) -> Self;
    /// Its value.
    fn value(self) -> f64;
    /// The nearest value, rounded through float: only for inputs.
    fn near(value: f64) -> Self;

    /// Distance of neighboring values at this magnitude.
    fn unit(size: f64) -> f64 {
        let exponent = ((size.to_bits() >> 52) & 0x7ff) as i32 - 1023;
        let exponent = exponent.clamp(Self::EXPONENTS.0, Self::EXPONENTS.1);
        2f64.powi(exponent - (Self::DIGITS - 1))
    }

    /// Magnitude that represents infinity in a result: the next value after the largest if the exponent range were not limited.
    fn beyond() -> f64 {
        2f64.powi(Self::EXPONENTS.1 + 1)
    }
}

impl Format for f32 {
    const NAME: &'static str = "float";
    const BITS: u32 = 32;
    const DIGITS: i32 = 24;
    const EXPONENTS: (i32, i32) = (-126, 127);
    fn of_bits(bits: u32) -> Self {
        Self::from_bits(bits)
    }
    fn value(self) -> f64 {
        self.into()
    }
    fn near(value: f64) -> Self {
        value as Self
    }
}

impl Format for f16 {
    const NAME: &'static str = "half";
    const BITS: u32 = 16;
    const DIGITS: i32 = 11;
    const EXPONENTS: (i32, i32) = (-14, 15);
    fn of_bits(bits: u32) -> Self {
        Self::from_bits(bits as u16)
    }
    fn value(self) -> f64 {
        self.into()
    }
    fn near(value: f64) -> Self {
        Self::from_f32(value as f32)
    }
}

impl Format for bf16 {
    const NAME: &'static str = "bfloat";
    const BITS: u32 = 16;
    const DIGITS: i32 = 8;
    const EXPONENTS: (i32, i32) = (-126, 127);
    fn of_bits(bits: u32) -> Self {
        Self::from_bits(bits as u16)
    }
    fn value(self) -> f64 {
        self.into()
    }
    fn near(value: f64) -> Self {
        Self::from_f32(value as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_the_distance_of_neighbors() {
        for value in [1.0f32, 1.5, 3.0e-39, 1.0e-45, 3.0e38, 0.0] {
            let next = f32::from_bits(value.to_bits() + 1);
            assert_eq!(f32::unit(value.into()), f64::from(next) - f64::from(value), "{value}");
        }
        assert_eq!(f16::unit(65504.0), 32.0);
        assert_eq!(f16::unit(1e-7), 2f64.powi(-24));
        assert_eq!(bf16::unit(1.0), 2f64.powi(-7));
    }
}
