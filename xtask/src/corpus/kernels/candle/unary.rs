//! candle's element-wise kernels with one input: unary functions, copies, fills, casts, affine maps.
//!
//! Their definitions are the mathematical functions, computed here in f64. The permitted error is the sum of what the Metal specification
//! permits its functions in fast math and half a unit for each rounding of intermediate results.

use elinvar::{bf16, f16};

use super::super::case::{Case, EXACT, Near};
use super::super::element::{Element, Layout, Sequence};

const CORPUS: &str = "candle-metal-kernels";

/// Number of elements: odd, and more than one threadgroup.
const COUNT: usize = 517;

/// The arithmetic of the type that a kernel computes in.
#[derive(Clone, Copy)]
struct Arithmetic {
    /// Maximum relative error of a rounding, half a unit in the last place.
    rounding: f64,
    /// Whether it is `float`, whose functions have the bounds of fast math; those of shorter types are within one unit.
    float: bool,
}

impl Arithmetic {
    fn of<T: Element>() -> Self {
        Self { rounding: T::ROUNDING, float: T::SHORT == "f32" }
    }

    /// The error of a function whose bound in fast math is `units`.
    fn function(self, value: f64, units: f64) -> f64 {
        2.0 * self.rounding * value.abs() * if self.float { units } else { 1.0 }
    }
}

const F32: f64 = f32::ROUNDING;

/// A unary function: its name, the range of samples, the function, and a description of the tolerance.
struct Function {
    name: &'static str,
    range: (f64, f64),
    near: fn(f64, Arithmetic) -> Near,
    tolerance: &'static str,
}

const WIDE: (f64, f64) = (-6.0, 6.0);

const FUNCTIONS: &[Function] = &[
    Function { name: "copy", range: WIDE, near: |x, _| (x, 0.0), tolerance: EXACT },
    Function { name: "neg", range: WIDE, near: |x, _| (-x, 0.0), tolerance: EXACT },
    Function { name: "abs", range: WIDE, near: |x, _| (x.abs(), 0.0), tolerance: EXACT },
    Function { name: "relu", range: WIDE, near: |x, _| (x.max(0.0), 0.0), tolerance: EXACT },
    Function { name: "ceil", range: WIDE, near: |x, _| (x.ceil(), 0.0), tolerance: EXACT },
    Function { name: "floor", range: WIDE, near: |x, _| (x.floor(), 0.0), tolerance: EXACT },
    Function { name: "round", range: WIDE, near: |x, _| (x.round(), 0.0), tolerance: EXACT },
    Function {
        name: "sign",
        range: WIDE,
        near: |x, _| (if x == 0.0 { 0.0 } else { x.signum() }, 0.0),
        tolerance: EXACT,
    },
    Function { name: "sqr", range: WIDE, near: |x, _| (x * x, 0.0), tolerance: "exact: one rounding" },
    Function {
        name: "recip",
        range: (0.05, 20.0),
        near: |x, a| (x.recip(), a.function(x.recip(), 2.5)),
        tolerance: "2.5 ulp of a division in fast math, 1 ulp for shorter types",
    },
    Function {
        name: "sqrt",
        range: (0.01, 40.0),
        near: |x, a| (x.sqrt(), a.function(x.sqrt(), 3.0)),
        tolerance: "3 ulp: x · rsqrt(x), 1 ulp for shorter types",
    },
    Function {
        name: "exp",
        range: WIDE,
        near: |x, a| (x.exp(), a.function(x.exp(), 3.0 + (2.0 * x).abs())),
        tolerance: "3 + |2x| ulp, 1 ulp for shorter types",
    },
    Function {
        name: "log",
        range: (0.01, 40.0),
        near: |x, a| (x.ln(), a.function(x.ln(), 3.0).max(8.0 * a.rounding)),
        tolerance: "3 ulp, or 2⁻²¹ (float) near 1",
    },
    Function {
        name: "sin",
        range: (-3.1, 3.1),
        near: |x, a| (x.sin(), if a.float { 2f64.powi(-13) } else { 2.0 * a.rounding }),
        tolerance: "2⁻¹³ in fast math, 1 ulp of 1.0 for shorter types",
    },
    Function {
        name: "cos",
        range: (-3.1, 3.1),
        near: |x, a| (x.cos(), if a.float { 2f64.powi(-13) } else { 2.0 * a.rounding }),
        tolerance: "2⁻¹³ in fast math, 1 ulp of 1.0 for shorter types",
    },
    Function {
        name: "tanh",
        range: WIDE,
        near: |x, a| (x.tanh(), a.function(x.tanh(), 5.0)),
        tolerance: "5 ulp of precise::tanh, 1 ulp for shorter types",
    },
    Function {
        name: "sigmoid",
        range: WIDE,
        near: |x, a| (sigmoid(x), sigmoid_error(x, a)),
        tolerance: "exp, addition and division: 7 + |2x| ulp, 4 ulp for shorter types",
    },
    Function {
        name: "silu",
        range: WIDE,
        near: |x, a| (x * sigmoid(x), x.abs() * sigmoid_error(x, a)),
        tolerance: "exp, addition and division: 7 + |2x| ulp, 4 ulp for shorter types",
    },
    Function {
        name: "gelu",
        range: WIDE,
        near: |x, a| (gelu(x), if x > 5.0 { 0.0 } else { 10.0 * a.rounding * x.abs() }),
        tolerance: "10 roundings of |x|: six in tanh's argument, which tanh attenuates, tanh, three after it",
    },
    Function {
        name: "erf",
        range: WIDE,
        near: |x, a| (erf(x), 32.0 * F32 + a.rounding * erf(x).abs()),
        tolerance: "32 roundings of float: exp and ten operations on values up to 1.5; one of the type",
    },
    Function {
        name: "gelu_erf",
        range: WIDE,
        near: |x, a| {
            let value = x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)) / 2.0;
            (value, 32.0 * F32 * x.abs() + a.rounding * value.abs())
        },
        tolerance: "as erf, times |x|",
    },
];

fn sigmoid(x: f64) -> f64 {
    (1.0 + (-x).exp()).recip()
}

fn sigmoid_error(x: f64, a: Arithmetic) -> f64 {
    a.function(sigmoid(x), 3.0 + (2.0 * x).abs())
        + 2.0 * a.rounding * sigmoid(x) * if a.float { 4.0 } else { 3.0 }
}

/// The tanh approximation; beyond 5 it is the identity.
pub fn gelu(x: f64) -> f64 {
    let slope = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
    if x > 5.0 { x } else { 0.5 * x * (1.0 + (slope * (x + 0.044_715 * x * x * x)).tanh()) }
}

/// Abramowitz and Stegun, formula 7.1.26.
pub fn erf(x: f64) -> f64 {
    let t = (1.0 + 0.327_591_1 * x.abs()).recip();
    let sum = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592]
        .iter()
        .fold(0.0, |sum, coefficient| (sum + coefficient) * t);
    (1.0 - sum * (-x * x).exp()).copysign(x)
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, function) in FUNCTIONS.iter().enumerate() {
        cases.push(plain::<f32>(function));
        match number % 3 {
            0 => cases.extend([plain::<f16>(function), strided::<bf16>(function)]),
            1 => cases.extend([plain::<bf16>(function), strided::<f32>(function)]),
            _ => cases.extend([plain::<bf16>(function), strided::<f16>(function)]),
        }
    }
    cases.extend([copy::<u8>(), copy::<u32>(), copy::<i64>()]);
    cases.extend([copy_2d::<f32>(), copy_2d::<i64>(), copy_2d::<u8>()]);
    cases.extend([set::<f16>(), set::<u32>(), set_strided::<bf16>(), set_strided::<i64>()]);
    cases
}

/// Number of threads that candle launches for `count` elements: each processes eight bytes.
pub fn workers<T>(count: usize) -> usize {
    count.div_ceil(8_usize.div_ceil(size_of::<T>()))
}

/// A view of an array with permuted dimensions and padding between rows.
pub fn view() -> Layout {
    Layout::new(&[5, 3, 7], &[8, 43, 1])
}

fn samples<T: Element>(function: &Function, count: usize) -> Vec<T> {
    let (low, high) = function.range;
    let mut samples: Vec<T> = Sequence(count as u64).between(count, low, high);
    // Ties and zeros, if they are in the function's range.
    for (sample, special) in samples.iter_mut().zip([0.5, 1.5, 2.5, 1.0, 4.0, -0.5, -1.5, -2.0, 0.0]) {
        if (low..high).contains(&special) {
            *sample = T::of(special);
        }
    }
    samples
}

fn plain<T: Element>(function: &Function) -> Case {
    let input: Vec<T> = samples(function, COUNT);
    let arithmetic = Arithmetic::of::<T>();
    let want = input.iter().map(|x| (function.near)(x.value(), arithmetic)).collect();
    Case::new(CORPUS, "unary.metal", format!("{}_{}", function.name, T::SHORT))
        .value([COUNT as u64])
        .input(&input)
        .near::<T>(want, function.tolerance)
        .threads(workers::<T>(COUNT), 64)
}

fn strided<T: Element>(function: &Function) -> Case {
    let layout = view();
    let input: Vec<T> = samples(function, layout.extent());
    let arithmetic = Arithmetic::of::<T>();
    let want =
        (0..layout.len()).map(|i| (function.near)(input[layout.place(i)].value(), arithmetic)).collect();
    strided_case(format!("{}_{}_strided", function.name, T::SHORT), &layout)
        .input(&input)
        .near::<T>(want, function.tolerance)
}

fn strided_case(kernel: String, layout: &Layout) -> Case {
    Case::new(CORPUS, "unary.metal", kernel)
        .value([layout.len() as u64])
        .value([layout.dims.len() as u64])
        .value(&layout.dims)
        .value(&layout.strides)
        .threads(layout.len(), 32)
}

fn copy<T: Element>() -> Case {
    let input: Vec<T> = Sequence(3).any(COUNT);
    Case::new(CORPUS, "unary.metal", format!("copy_{}", T::SHORT))
        .value([COUNT as u64])
        .input(&input)
        .full_output(input)
        .threads(workers::<T>(COUNT), 64)
}

/// Different row strides in source and target.
fn copy_2d<T: Element>() -> Case {
    let (rows, columns, source, target) = (7, 13, 17, 15);
    let input: Vec<T> = Sequence(4).between(rows * source, 0.0, 200.0);
    let mut want = vec![None; rows * target];
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        want[row * target + column] = Some(input[row * source + column]);
    }
    Case::new(CORPUS, "unary.metal", format!("copy2d_{}", T::SHORT))
        .value([rows as i64])
        .value([columns as i64])
        .value([source as i64])
        .value([target as i64])
        .input(&input)
        .output(&want)
        .threads((rows, columns), (4, 8))
}

fn set<T: Element>() -> Case {
    let value = T::of(77.0);
    Case::new(CORPUS, "unary.metal", format!("const_set_{}", T::SHORT))
        .value([COUNT as u64])
        .value([value])
        .full_output([value; COUNT])
        .threads(workers::<T>(COUNT), 64)
}

fn set_strided<T: Element>() -> Case {
    let (layout, value) = (view(), T::of(-3.0));
    let mut want = vec![None; layout.extent()];
    for i in 0..layout.len() {
        want[layout.place(i)] = Some(value);
    }
    strided_case(format!("const_set_{}_strided", T::SHORT), &layout).value([value]).output(&want)
}
