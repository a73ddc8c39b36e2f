//! The measured functions: each with two references and its error bounds.

use super::exact::{self, Exact};

/// An error bound: its text in the specification, and its value in units in the last place.
#[derive(Clone, Copy)]
pub struct Bound {
    pub text: &'static str,
    pub units: f64,
}

/// A function of up to three arguments.
pub struct Function {
    pub name: &'static str,
    pub arity: usize,
    /// In f64, with an error far below a unit of float.
    pub double: fn([f64; 3]) -> f64,
    /// With 160 bits; only called for finite arguments for which `double` is finite and not zero.
    pub exact: fn([Exact; 3]) -> Exact,
    /// Ranges of interest, from which additional samples are taken.
    pub focus: &'static [(f64, f64)],
    /// Bound in safe math, that of `precise`.
    pub safe: Bound,
    /// Bound in fast math, that of `fast`, and the largest argument for which it holds.
    pub fast: Bound,
    pub fast_range: f64,
}

const fn units(text: &'static str, units: f64) -> Bound {
    Bound { text, units }
}
const ROUNDED: Bound = units("correctly rounded", 0.5);
const U2: Bound = units("2 ulp", 2.0);
const U4: Bound = units("4 ulp", 4.0);
const U5: Bound = units("5 ulp", 5.0);
const U6: Bound = units("6 ulp", 6.0);
const U16: Bound = units("16 ulp", 16.0);
const EXP: Bound = units("3 + ⌊abs(2x)⌋ ulp", 3.0);
const LOG: Bound = units("2⁻²¹ absolute on [0.5, 2], else 3 ulp", 3.0);
const WAVE: Bound = units("2⁻¹³ absolute on [−π, π]", 2048.0);
const PI_WAVE: Bound = units("2⁻¹³ absolute on [−1, 1]", 2048.0);
const DERIVED: Bound = units("as exp2(y · log2(x))", f64::INFINITY);
const FREE: Bound = units("by its formula", f64::INFINITY);
const FRACT: Bound = units("correctly rounded, below 1", 1.0);
const FAST_DIVIDE: Bound = units("2.5 ulp", 2.5);

macro_rules! function {
    ($name:literal, $arity:literal, $double:expr, $exact:expr, [$($focus:expr),*], $safe:expr, $fast:expr) => {
        function!($name, $arity, $double, $exact, [$($focus),*], $safe, $fast, f64::INFINITY)
    };
    ($name:literal, $arity:literal, $double:expr, $exact:expr, [$($focus:expr),*], $safe:expr, $fast:expr, $range:expr) => {
        Function {
            name: $name,
            arity: $arity,
            double: $double,
            exact: $exact,
            focus: &[$($focus),*],
            safe: $safe,
            fast: $fast,
            fast_range: $range,
        }
    };
}

/// The quarter turn nearest to `pi * x`, and the distance of x from it.
fn quarter(x: f64) -> (i64, f64) {
    let turn = x % 2.0;
    let n = (turn * 2.0).round();
    (n as i64 & 3, turn - n * 0.5)
}
fn sinpi(x: f64) -> f64 {
    let (n, rest) = quarter(x);
    let (sine, cosine) = (rest * std::f64::consts::PI).sin_cos();
    [sine, cosine, -sine, -cosine][n as usize]
}
fn cospi(x: f64) -> f64 {
    let (n, rest) = quarter(x);
    let (sine, cosine) = (rest * std::f64::consts::PI).sin_cos();
    [cosine, -sine, -cosine, sine][n as usize]
}
fn tanpi(x: f64) -> f64 {
    let (n, rest) = quarter(x);
    match (n & 1, rest == 0.0) {
        (0, _) => (rest * std::f64::consts::PI).tan(),
        (_, true) => f64::INFINITY.copysign(2.0 - n as f64),
        _ => -1.0 / (rest * std::f64::consts::PI).tan(),
    }
}
fn acosh(x: f64) -> f64 {
    let t = x - 1.0;
    if x < 1.0 {
        return f64::NAN;
    }
    if x > 1e100 { x.ln() + std::f64::consts::LN_2 } else { (t + (t * (x + 1.0)).sqrt()).ln_1p() }
}
fn asinh(x: f64) -> f64 {
    let a = x.abs();
    let value =
        if a > 1e100 { a.ln() + std::f64::consts::LN_2 } else { (a + a * a / (1.0 + a.hypot(1.0))).ln_1p() };
    value.copysign(x)
}
fn powr(x: f64, y: f64) -> f64 {
    let none = x < 0.0 || (x == 0.0 || x.is_infinite()) && y == 0.0 || x == 1.0 && y.is_infinite();
    if none || x.is_nan() || y.is_nan() { f64::NAN } else { x.abs().powf(y) }
}
fn fract(x: f64) -> f64 {
    if x.is_infinite() { 0.0 } else { x - x.floor() }
}
fn fdim(x: f64, y: f64) -> f64 {
    if x <= y { 0.0 } else { x - y }
}
fn exact_pow([x, y, _]: [Exact; 3]) -> Exact {
    // The sign is compared separately.
    let size = if x < exact::from(0.0) { -x } else { x };
    size.powf(&y)
}

/// The remainder of floats is a float, which f64 computes exactly.
fn exact_fmod([x, y, _]: [Exact; 3]) -> Exact {
    exact::from(x.to_f64().value() % y.to_f64().value())
}

pub static FUNCTIONS: &[Function] = &[
    function!("acos", 1, |a| a[0].acos(), |a| a[0].acos(), [(-1.0, 1.0), (0.4, 0.6)], U4, U5),
    function!("acosh", 1, |a| acosh(a[0]), |a| a[0].acosh(), [(1.0, 1.1), (1.0, 10.0), (8e3, 9e3)], U4, FREE),
    function!("asin", 1, |a| a[0].asin(), |a| a[0].asin(), [(-1.0, 1.0), (0.4, 0.6)], U4, U5),
    function!(
        "asinh",
        1,
        |a| asinh(a[0]),
        |a| a[0].asinh(),
        [(-1.0, 1.0), (-10.0, 10.0), (8e3, 9e3)],
        U4,
        FREE
    ),
    function!("atan", 1, |a| a[0].atan(), |a| a[0].atan(), [(-1.0, 1.0), (-5.0, 5.0)], U5, U5),
    function!(
        "atan2",
        2,
        |a| a[0].atan2(a[1]),
        |[y, x, _]| y.atan2(&x),
        [(-1.0, 1.0), (-5.0, 5.0)],
        U6,
        FREE
    ),
    function!("atanh", 1, |a| a[0].atanh(), |a| a[0].atanh(), [(-1.0, 1.0), (-0.01, 0.01)], U5, FREE),
    function!(
        "cos",
        1,
        |a| a[0].cos(),
        |a| a[0].cos(),
        [(-4.0, 4.0), (-1e5, 1e5), (1.570, 1.571)],
        U4,
        WAVE,
        1e5
    ),
    function!("cosh", 1, |a| a[0].cosh(), |a| a[0].cosh(), [(-2.0, 2.0), (-90.0, 90.0)], U4, FREE),
    function!("cospi", 1, |a| cospi(a[0]), |a| a[0].cos_pi(), [(-2.0, 2.0), (-1e3, 1e3)], U4, PI_WAVE),
    function!("divide", 2, |a| a[0] / a[1], |[x, y, _]| x / y, [(-2.0, 2.0)], ROUNDED, FAST_DIVIDE),
    function!(
        "exp",
        1,
        |a| a[0].exp(),
        |a| a[0].exp(),
        [(-1.0, 1.0), (-104.0, 89.0), (-104.0, -87.0)],
        U4,
        EXP
    ),
    function!(
        "exp2",
        1,
        |a| a[0].exp2(),
        |a| exact::from(2.0).powf(&a[0]),
        [(-1.0, 1.0), (-150.0, 128.0)],
        U4,
        EXP
    ),
    function!(
        "exp10",
        1,
        |a| 10f64.powf(a[0]),
        |a| exact::ten().powf(&a[0]),
        [(-1.0, 1.0), (-46.0, 39.0)],
        U4,
        EXP
    ),
    function!("fdim", 2, |a| fdim(a[0], a[1]), |[x, y, _]| x - y, [(-2.0, 2.0)], ROUNDED, ROUNDED),
    function!("fma", 3, |a| a[0].mul_add(a[1], a[2]), |[x, y, z]| x * y + z, [(-2.0, 2.0)], ROUNDED, ROUNDED),
    function!("fmod", 2, |a| a[0] % a[1], exact_fmod, [(-9.0, 9.0), (-1e6, 1e6)], ROUNDED, ROUNDED),
    function!("fract", 1, |a| fract(a[0]), |a| a[0].clone() - a[0].floor(), [(-2.0, 2.0)], FRACT, FRACT),
    function!("log", 1, |a| a[0].ln(), |a| a[0].ln(), [(0.5, 2.0), (0.99, 1.01)], U4, LOG),
    function!("log2", 1, |a| a[0].log2(), |a| a[0].log2(), [(0.5, 2.0), (0.99, 1.01)], U4, LOG),
    function!("log10", 1, |a| a[0].log10(), |a| a[0].log10(), [(0.5, 2.0), (0.99, 1.01)], U4, LOG),
    function!(
        "pow",
        2,
        |a| a[0].powf(a[1]),
        exact_pow,
        [(0.0, 5.0), (0.9, 1.1), (-20.0, 20.0)],
        U16,
        DERIVED
    ),
    function!(
        "powr",
        2,
        |a| powr(a[0], a[1]),
        exact_pow,
        [(0.0, 5.0), (0.9, 1.1), (0.0, 20.0)],
        U16,
        DERIVED
    ),
    function!("rsqrt", 1, |a| 1.0 / a[0].sqrt(), |a| exact::from(1.0) / a[0].sqrt(), [(0.25, 4.0)], U2, U2),
    function!(
        "sin",
        1,
        |a| a[0].sin(),
        |a| a[0].sin(),
        [(-4.0, 4.0), (-1e5, 1e5), (3.125, 3.1875)],
        U4,
        WAVE,
        1e5
    ),
    function!("sinh", 1, |a| a[0].sinh(), |a| a[0].sinh(), [(-2.0, 2.0), (-90.0, 90.0)], U4, FREE),
    function!("sinpi", 1, |a| sinpi(a[0]), |a| a[0].sin_pi(), [(-2.0, 2.0), (-1e3, 1e3)], U4, PI_WAVE),
    function!(
        "sqrt",
        1,
        |a| a[0].sqrt(),
        |a| a[0].sqrt(),
        [(0.25, 4.0)],
        ROUNDED,
        units("as x · rsqrt(x)", 3.0)
    ),
    function!(
        "tan",
        1,
        |a| a[0].tan(),
        |a| a[0].tan(),
        [(-4.0, 4.0), (-1e5, 1e5), (1.570, 1.571)],
        U6,
        FREE,
        1e5
    ),
    function!("tanh", 1, |a| a[0].tanh(), |a| a[0].tanh(), [(-1.0, 1.0), (-10.0, 10.0)], U5, FREE),
    function!("tanpi", 1, |a| tanpi(a[0]), |a| a[0].tan_pi(), [(-2.0, 2.0), (-1e3, 1e3)], U6, FREE),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Two independent references agree to far below a unit of float.
    #[test]
    fn double_and_exact_agree() {
        for f in FUNCTIONS {
            for args in [[0.75, 0.5, 0.25], [1.25, 0.375, -0.5], [0.03125, 1.5, 3.0], [1.0 + 1e-6, 0.1, 7.0]]
            {
                let double = (f.double)(args);
                if !double.is_finite() || double == 0.0 {
                    continue;
                }
                let exact = (f.exact)(args.map(exact::from));
                let error = exact::error(double, &exact, double.abs());
                assert!(error < 1e-13, "{} of {args:?}: {double}, off by {error}", f.name);
            }
        }
    }
}
