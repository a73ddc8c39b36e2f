//! References for `<metal_math>` in f64: C99 with Annex F, C23 for multiples of pi, IEEE 754 for powr.

use std::f64::consts::PI;

use super::numbers::Float;

pub(super) type Unary = (&'static str, fn(f64) -> f64);
pub(super) type Binary = (&'static str, fn(f64, f64) -> f64);

/// Functions of one argument whose results are exact or correctly rounded.
pub(super) const ROUNDED: [Unary; 8] = [
    ("ceil", f64::ceil),
    ("fabs", f64::abs),
    ("floor", f64::floor),
    ("fract", fract),
    ("rint", f64::round_ties_even),
    ("round", f64::round),
    ("sqrt", f64::sqrt),
    ("trunc", f64::trunc),
];

/// Other functions of one argument, except functions of an angle.
pub(super) const UNARY: [Unary; 19] = [
    ("acos", f64::acos),
    ("acosh", acosh),
    ("asin", f64::asin),
    ("asinh", f64::asinh),
    ("atan", f64::atan),
    ("atanh", f64::atanh),
    ("cosh", f64::cosh),
    ("cospi", cospi),
    ("exp", f64::exp),
    ("exp2", f64::exp2),
    ("exp10", |v| 10f64.powf(v)),
    ("log", f64::ln),
    ("log2", f64::log2),
    ("log10", f64::log10),
    ("rsqrt", |v| 1.0 / v.sqrt()),
    ("sinh", f64::sinh),
    ("sinpi", sinpi),
    ("tanh", f64::tanh),
    ("tanpi", tanpi),
];

/// Functions of an angle, whose fast forms are specified for angles up to 10^5.
pub(super) const ANGLE: [Unary; 3] = [("cos", f64::cos), ("sin", f64::sin), ("tan", f64::tan)];

pub(super) const BINARY: [Binary; 5] = [
    ("atan2", f64::atan2),
    ("copysign", f64::copysign),
    ("divide", |a, b| a / b),
    ("fdim", |a, b| if a <= b { 0.0 } else { a - b }),
    ("fmod", |a, b| a % b),
];

pub(super) const POWERS: [Binary; 2] = [("pow", f64::powf), ("powr", powr)];

fn fract(v: f64) -> f64 {
    if v.is_infinite() { 0.0 } else { v - v.floor() }
}

fn acosh(v: f64) -> f64 {
    if v < 1.0 { f64::NAN } else { v.acosh() }
}

fn sinpi(v: f64) -> f64 {
    let turn = v % 2.0;
    if turn.fract() == 0.0 { 0f64.copysign(v) } else { (turn * PI).sin() }
}

fn cospi(v: f64) -> f64 {
    let turn = (v % 2.0).abs();
    if turn == 0.5 || turn == 1.5 { 0.0 } else { (turn * PI).cos() }
}

/// The signs of zeros alternate between even and odd integers, and those of the infinities between them.
fn tanpi(v: f64) -> f64 {
    let turn = v % 2.0;
    if turn.fract() == 0.0 {
        let zero = 0f64.copysign(v);
        if turn == 0.0 { zero } else { -zero }
    } else if turn.fract().abs() == 0.5 {
        if (turn - 0.5).rem_euclid(2.0) == 0.0 { f64::INFINITY } else { f64::NEG_INFINITY }
    } else {
        (turn * PI).tan()
    }
}

fn powr(a: f64, b: f64) -> f64 {
    let none = a < 0.0 || (a == 0.0 || a.is_infinite()) && b == 0.0 || a == 1.0 && b.is_infinite();
    if none || a.is_nan() || b.is_nan() { f64::NAN } else { a.abs().powf(b) }
}

/// Mantissa in [0.5, 1), and exponent.
pub(super) fn frexp(v: f64) -> (f64, i32) {
    if v == 0.0 || !v.is_finite() {
        return (v, 0);
    }
    let exponent = ((v.to_bits() >> 52) & 0x7ff) as i32 - 1022;
    (v / 2f64.powi(exponent), exponent)
}

pub(super) fn ilogb(v: f64) -> i32 {
    match v {
        _ if v == 0.0 => i32::MIN,
        _ if !v.is_finite() => i32::MAX,
        _ => frexp(v).1 - 1,
    }
}

/// The fractional and the integral part, both with the sign of the number.
pub(super) fn modf(v: f64) -> (f64, f64) {
    let rest = if v.is_infinite() { 0.0 } else { v - v.trunc() };
    (rest.copysign(v), v.trunc())
}

/// The neighbor of a number in the order of the format's bit patterns; both zeros count as one number.
pub(super) fn nextafter<T: Float>(from: T, to: T) -> T {
    let (a, b) = (from.to_f64(), to.to_f64());
    if a.is_nan() || b.is_nan() {
        return T::from_f64(f64::NAN);
    }
    if a == b {
        return to;
    }
    let size = std::mem::size_of::<T>();
    let mut bits = bytemuck::bytes_of(&from).iter().rev().fold(0i64, |n, b| n << 8 | i64::from(*b));
    let sign = 1i64 << (8 * size - 1);
    if bits & sign != 0 {
        bits = -(bits & !sign);
    }
    bits += if a < b { 1 } else { -1 };
    // The step up from the least negative number leads to negative zero.
    let negative = bits < 0 || bits == 0 && a < 0.0;
    let bits = bits.abs() | if negative { sign } else { 0 };
    bytemuck::pod_read_unaligned(&bits.to_le_bytes()[..size])
}

/// a * b + c with an odd last bit if the sum is inexact in f64 (round to odd), so that a second rounding gives the result of a single
/// rounding. The product of two 24-bit numbers is exact in f64.
pub(super) fn fused(a: f64, b: f64, c: f64) -> f64 {
    let product = a * b;
    let sum = product + c;
    let part = sum - product;
    let rest = (product - (sum - part)) + (c - part);
    if rest == 0.0 || !rest.is_finite() || sum.to_bits() & 1 == 1 {
        return sum;
    }
    let away = (rest > 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}
