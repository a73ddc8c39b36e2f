//! tract's kernels with two operands: arithmetic, comparison and bits of all integer types and two float types, on views of five axes,
//! and selection.

use elinvar::f16;

use crate::corpus::kernels::case::{Case, Near};
use crate::corpus::kernels::element::{Element, Layout, Sequence};

pub(super) const CORPUS: &str = "tract-metal";
const FILE: &str = "bin_ops.metal";

/// Sizes of the output. The outermost axes share the depth of the grid; the innermost is longer than a threadgroup.
const SHAPE: [u64; 5] = [2, 3, 2, 3, 11];

/// Calls a generic function for each of the types.
macro_rules! for_types {
    ($cases:ident, $function:ident $arguments:tt: $($T:ty)*) => {
        $cases.extend([$($function::<$T> $arguments),*])
    };
}
pub(in crate::corpus::kernels) use for_types;

/// An operation on integers, modulo 2ⁿ.
type Integer = fn(i128, i128) -> i128;
/// An operation on floats, with its error in units of the last place.
type Float = fn(f64, f64) -> f64;

/// Operations on integers of every type, with the range of their right operands.
const INTEGER: &[(&str, Integer, (f64, f64))] = &[
    ("mul", i128::wrapping_mul, ANY),
    ("add", |x, y| x + y, ANY),
    ("sub", |x, y| x - y, ANY),
    ("min", Ord::min, ANY),
    ("max", Ord::max, ANY),
    ("bitand", |x, y| x & y, ANY),
    ("bitor", |x, y| x | y, ANY),
    ("bitxor", |x, y| x ^ y, ANY),
    ("div", |x, y| x / y, (1.0, 100.0)),
    ("pow", |x, y| (0..y).fold(1, |product, _| i128::wrapping_mul(product, x)), (0.0, 10.0)),
];
/// All values of the type.
const ANY: (f64, f64) = (0.0, 0.0);

const FLOAT: &[(&str, Float, f64)] = &[
    ("mul", |x, y| x * y, 0.0),
    ("add", |x, y| x + y, 0.0),
    ("sub", |x, y| x - y, 0.0),
    ("min", f64::min, 0.0),
    ("max", f64::max, 0.0),
    ("div", |x, y| x / y, 2.5),
];

/// Whether a comparison holds for an order of the operands.
type Accepts = fn(std::cmp::Ordering) -> bool;

const COMPARISONS: &[(&str, Accepts)] = &[
    ("lt", |order| order.is_lt()),
    ("gt", |order| order.is_gt()),
    ("lte", |order| order.is_le()),
    ("gte", |order| order.is_ge()),
    ("eq", |order| order.is_eq()),
    ("ne", |order| order.is_ne()),
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, operation, right) in INTEGER {
        for_types!(cases, integer(name, *operation, *right): i8 i16 i32 i64 u8 u16 u32 u64);
    }
    for (name, operation, units) in FLOAT {
        for_types!(cases, float(name, *operation, *units): f32 f16);
    }
    for (number, (name, accepts)) in COMPARISONS.iter().enumerate() {
        for_types!(cases, comparison(name, *accepts): f32 i8 u64);
        match number % 2 {
            0 => for_types!(cases, comparison(name, *accepts): f16 i64 u16),
            _ => for_types!(cases, comparison(name, *accepts): i16 u8 i32),
        }
    }
    for_types!(cases, selection(): u8 u16 u32 u64);
    for (name, operation) in [("add", FLOAT[1]), ("sub", FLOAT[2]), ("mul", FLOAT[0])] {
        for_types!(cases, row(name, operation.1): f32 f16);
    }
    cases
}

/// Views of the operands and of the output: permuted with a gap, broadcast along two axes, rows with a gap.
fn views() -> [Layout; 3] {
    [
        Layout::new(&SHAPE, &[3 * 2 * 3 * 12, 12, 3 * 3 * 12, 3 * 12, 1]),
        Layout::new(&SHAPE, &[0, 22, 11, 0, 1]),
        Layout::new(&SHAPE, &[234, 78, 39, 13, 1]),
    ]
}

/// A case without its operands, which are made from the views' extents.
fn launched<T: Element, O: Element>(name: &str, left: &[T], right: &[T], want: &[Option<O>]) -> Case {
    let [l, r, o] = views();
    Case::new(CORPUS, FILE, format!("bin_ops::{name}_{}", T::SHORT))
        .input(left)
        .value(&l.dims)
        .value(&l.strides)
        .input(right)
        .value(&r.dims)
        .value(&r.strides)
        .output(want)
        .value(&o.dims)
        .value(&o.strides)
        .groups((SHAPE[3] as usize, SHAPE[2] as usize, (SHAPE[0] * SHAPE[1]) as usize), 8)
}

/// The elements of the output, computed from those of the operands.
fn computed<T: Element, O: Element>(
    left: &[T],
    right: &[T],
    operation: impl Fn(T, T) -> O,
) -> Vec<Option<O>> {
    let [l, r, o] = views();
    let mut want = vec![None; o.extent()];
    for i in 0..o.len() {
        want[o.place(i)] = Some(operation(left[l.place(i)], right[r.place(i)]));
    }
    want
}

fn integer<T: Element>(name: &str, operation: Integer, right: (f64, f64)) -> Case {
    let [l, r, _] = views();
    let mut sequence = Sequence(name.len() as u64 + 31);
    let left = sequence.any::<T>(l.extent());
    let right = match right {
        ANY => sequence.any::<T>(r.extent()),
        (low, high) => sequence.between(r.extent(), low, high),
    };
    let want = computed(&left, &right, |x, y| T::of_integer(operation(x.integer(), y.integer())));
    launched(name, &left, &right, &want)
}

fn float<T: Element>(name: &str, operation: Float, units: f64) -> Case {
    let [l, r, o] = views();
    let mut sequence = Sequence(37);
    let left: Vec<T> = sequence.between(l.extent(), -30.0, 30.0);
    let right: Vec<T> = sequence.between(r.extent(), 0.25, 8.0);
    if units == 0.0 {
        let want = computed(&left, &right, |x, y| T::of(operation(x.value(), y.value())));
        let mut case = launched(name, &left, &right, &want);
        case.tolerance = "exact: one rounding";
        return case;
    }
    let units = if T::SHORT == "f32" { units } else { 1.0 };
    let mut want: Vec<Near> = vec![(T::untouched().value(), 0.0); o.extent()];
    for i in 0..o.len() {
        let value = operation(left[l.place(i)].value(), right[r.place(i)].value());
        want[o.place(i)] = (value, 2.0 * T::ROUNDING * units * value.abs());
    }
    let near = Case::new(CORPUS, FILE, "")
        .near::<T>(want, "2.5 ulp of a division in fast math, 1 ulp for shorter types");
    let mut case = launched::<T, T>(name, &left, &right, &vec![None; o.extent()]);
    case.tolerance = near.tolerance;
    case.arguments[6] = near.arguments.into_iter().next().expect("the output");
    case
}

fn comparison<T: Element>(name: &str, accepts: Accepts) -> Case {
    let [l, r, _] = views();
    let mut sequence = Sequence(41);
    // Few different values, so that many pairs are equal.
    let mut values = |count| -> Vec<T> {
        let halves = sequence.between::<f32>(count, 0.0, 12.0);
        halves.into_iter().map(|x| T::of(f64::from(x).floor() / 2.0)).collect()
    };
    let (left, right) = (values(l.extent()), values(r.extent()));
    let want =
        computed(&left, &right, |x, y| u8::from(x.value().partial_cmp(&y.value()).is_some_and(accepts)));
    launched(name, &left, &right, &want)
}

/// The right operand is one row of four vectors of four elements.
fn row<T: Element>(name: &str, operation: Float) -> Case {
    let (rows, columns) = (9, 16);
    let mut sequence = Sequence(43);
    let left: Vec<T> = sequence.between(rows * columns, -8.0, 8.0);
    let right: Vec<T> = sequence.between(columns, 0.5, 4.0);
    let want = left.iter().enumerate().map(|(i, x)| T::of(operation(x.value(), right[i % columns].value())));
    let mut case = Case::new(CORPUS, FILE, format!("bin_ops::{name}_1row_{}", T::SHORT))
        .input(&left)
        .input(&right)
        .full_output(want.collect::<Vec<T>>())
        .value([columns as u64])
        .threads(rows * columns / 4, 32);
    case.tolerance = "exact: one rounding";
    case
}

fn selection<T: Element>() -> Case {
    let [then, other, out] = views();
    let condition = Layout::new(&SHAPE, &[0, 0, 0, 11, 1]);
    let mut sequence = Sequence(47);
    let flags: Vec<u8> = sequence.between(condition.extent(), 0.0, 2.0);
    let (left, right) = (sequence.any::<T>(then.extent()), sequence.any::<T>(other.extent()));
    let mut want = vec![None; out.extent()];
    for i in 0..out.len() {
        let chosen = if flags[condition.place(i)] != 0 { left[then.place(i)] } else { right[other.place(i)] };
        want[out.place(i)] = Some(chosen);
    }
    Case::new(CORPUS, FILE, format!("bin_ops::iff_generic_{}", T::SHORT))
        .input(&flags)
        .cast()
        .input(&left)
        .input(&right)
        .output(&want)
        .value(SHAPE)
        .value(&condition.strides)
        .value(&then.strides)
        .value(&other.strides)
        .value(&out.strides)
        .threads(out.len() + 5, 64)
}
