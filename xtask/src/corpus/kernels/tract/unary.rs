//! tract's element-wise kernels: mathematical functions of two float types, and what there is of them for integers.
//!
//! Every second one works in place. The permitted error is what the Metal specification permits the functions in fast math, or in
//! `precise` where the kernel asks for it, and half a unit for each rounding of intermediate results.

use elinvar::f16;

use super::binary::{CORPUS, for_types};
use crate::corpus::kernels::case::{Case, EXACT, Near, guarded};
use crate::corpus::kernels::element::{Element, Sequence};

const FILE: &str = "element_wise.metal";
/// Number of elements: odd, and more than one threadgroup.
const COUNT: usize = 277;

/// A function of floats: name, range of samples, value, and error for a value, in halves of units of the last place of 1.0.
struct Function {
    name: &'static str,
    range: (f64, f64),
    value: fn(f64) -> f64,
    error: Error,
}

enum Error {
    None,
    /// In units of the last place of the value, for `float`; 1 for shorter types.
    Units(f64),
    /// For `float` and for shorter types as a number of roundings of a value of this size.
    Roundings(f64, f64, fn(f64) -> f64),
}
use Error::{Roundings, Units};

const WIDE: (f64, f64) = (-6.0, 6.0);
const TRIGONOMETRIC: Error = Roundings(2048.0, 2.0, |_| 1.0);

const FUNCTIONS: &[Function] = &[
    Function { name: "abs", range: WIDE, value: f64::abs, error: Error::None },
    Function { name: "neg", range: WIDE, value: |x| -x, error: Error::None },
    Function { name: "ceil", range: WIDE, value: f64::ceil, error: Error::None },
    Function { name: "floor", range: WIDE, value: f64::floor, error: Error::None },
    Function { name: "round", range: WIDE, value: f64::round, error: Error::None },
    Function { name: "roundhalftoeven", range: WIDE, value: f64::round_ties_even, error: Error::None },
    Function {
        name: "sign",
        range: WIDE,
        value: |x| if x == 0.0 { 0.0 } else { x.signum() },
        error: Error::None,
    },
    Function { name: "exp", range: WIDE, value: f64::exp, error: Units(4.0) },
    Function {
        name: "ln",
        range: (0.01, 40.0),
        value: f64::ln,
        error: Roundings(8.0, 2.0, |v| v.abs().max(1.0)),
    },
    Function { name: "sqrt", range: (0.01, 40.0), value: f64::sqrt, error: Units(1.0) },
    Function { name: "rsqrt", range: (0.01, 40.0), value: |x| x.sqrt().recip(), error: Units(2.0) },
    Function { name: "recip", range: (0.05, 20.0), value: f64::recip, error: Units(2.5) },
    Function { name: "square", range: (0.1, 6.0), value: |x| x * x, error: Units(16.0) },
    Function {
        name: "sigmoid",
        range: WIDE,
        value: |x| (1.0 + (-x).exp()).recip(),
        error: Roundings(16.0, 8.0, |_| 1.0),
    },
    Function { name: "cos", range: (-3.1, 3.1), value: f64::cos, error: TRIGONOMETRIC },
    Function { name: "sin", range: (-3.1, 3.1), value: f64::sin, error: TRIGONOMETRIC },
    Function { name: "tan", range: (-1.0, 1.0), value: f64::tan, error: Roundings(10240.0, 2.0, |_| 1.5) },
    Function { name: "acos", range: (-0.9, 0.9), value: f64::acos, error: Units(5.0) },
    Function { name: "asin", range: (-0.9, 0.9), value: f64::asin, error: Units(5.0) },
    Function { name: "atan", range: WIDE, value: f64::atan, error: Units(5.0) },
    Function { name: "acosh", range: (1.1, 20.0), value: f64::acosh, error: Units(5.0) },
    Function { name: "asinh", range: WIDE, value: f64::asinh, error: Units(5.0) },
    Function { name: "atanh", range: (-0.9, 0.9), value: f64::atanh, error: Units(5.0) },
    Function { name: "cosh", range: WIDE, value: f64::cosh, error: Units(5.0) },
    Function { name: "sinh", range: WIDE, value: f64::sinh, error: Units(5.0) },
    Function { name: "tanh", range: WIDE, value: f64::tanh, error: Units(5.0) },
    // A rational approximation of degree 16, whose power is taken by a logarithm.
    Function {
        name: "erf",
        range: (-3.5, 3.5),
        value: erf,
        error: Roundings(340.0, 340.0 / 8192.0 + 2.0, |_| 1.0),
    },
    Function {
        name: "hardswish",
        range: WIDE,
        value: |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        error: Roundings(10.0, 6.0, f64::abs),
    },
    Function { name: "silu", range: WIDE, value: |x| x / (1.0 + (-x).exp()), error: Units(21.0) },
];

const TOLERANCE: &str = "the specification's bound of the function, and one rounding of each operation";

/// The error function's Taylor series.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, function) in FUNCTIONS.iter().enumerate() {
        cases.push(float::<f32>(function, number % 2 == 0));
        cases.push(float::<f16>(function, number % 2 == 1));
    }
    for_types!(cases, integer("abs", i128::abs): i8 i16 i32 i64 u8 u16 u32 u64);
    for_types!(cases, integer("neg", |x| -x): i8 i16 i32 i64);
    for_types!(cases, integer("sign", i128::signum): i8 i16 i32 i64);
    for_types!(cases, integer("bitnot", |x| !x): i8 i16 i32 i64 u8 u16 u32 u64);
    for_types!(cases, integer("ceil", |x| x): i8 u64);
    for_types!(cases, integer("floor", |x| x): i16 u32);
    for_types!(cases, integer("round", |x| x): i32 u16);
    for_types!(cases, integer("roundhalftoeven", |x| x): i64 u8);
    cases
}

fn float<T: Element>(function: &Function, in_place: bool) -> Case {
    let (low, high) = function.range;
    let mut input: Vec<T> = Sequence(53).between(COUNT, low, high);
    for (sample, special) in input.iter_mut().zip([0.5, 1.5, 2.5, 1.0, -0.5, -1.5, -2.5, -2.0, 0.0]) {
        if (low..high).contains(&special) {
            *sample = T::of(special);
        }
    }
    let short = T::SHORT != "f32";
    let near = |x: &T| -> Near {
        let value = (function.value)(x.value());
        let error = match function.error {
            Error::None => 0.0,
            Units(units) => 2.0 * value.abs() * if short { 1.0 } else { units },
            Roundings(long, brief, size) => {
                let size = if function.name == "hardswish" { x.value().abs() } else { size(value) };
                size * if short { brief } else { long }
            }
        };
        // Composed functions of a shorter type round in it more than once.
        let composed = if short && function.name == "silu" { 3.0 } else { 1.0 };
        (value, error * composed * T::ROUNDING)
    };
    let want: Vec<Near> = input.iter().map(near).collect();
    let tolerance = if matches!(function.error, Error::None) { EXACT } else { TOLERANCE };
    let case = Case::new(CORPUS, FILE, kernel(function.name, in_place, T::SHORT)).threads(COUNT, 64);
    if in_place {
        case.updated_near::<T>(&guarded(&input), want, tolerance)
    } else {
        case.input(&input).near::<T>(want, tolerance)
    }
}

fn integer<T: Element>(name: &str, function: fn(i128) -> i128) -> Case {
    let mut input: Vec<T> = Sequence(59).any(COUNT);
    (input[0], input[1]) = (T::of(0.0), T::of(1.0));
    // The magnitude of the least integer does not exist.
    let least = |x: &T| x.integer() < 0 && T::of_integer(-x.integer()).integer() < 0;
    input.iter_mut().filter(|x| least(x)).for_each(|x| *x = T::of(7.0));
    let want: Vec<T> = input.iter().map(|x| T::of_integer(function(x.integer()))).collect();
    // The identity must not be in place, where it could do nothing.
    let in_place = size_of::<T>() >= 4 && want != input;
    let case = Case::new(CORPUS, FILE, kernel(name, in_place, T::SHORT)).threads(COUNT, 64);
    if in_place {
        let want: Vec<Option<T>> = want.into_iter().map(Some).collect();
        case.updated(&guarded(&input), &want)
    } else {
        case.input(&input).full_output(want)
    }
}

fn kernel(name: &str, in_place: bool, ty: &str) -> String {
    format!("element_wise_ops::{name}_{}_{ty}", if in_place { "in_place" } else { "out_of_place" })
}
