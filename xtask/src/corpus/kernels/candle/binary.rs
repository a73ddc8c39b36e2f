//! candle's kernels with two inputs or mixed types: arithmetic, comparison, selection, casts, affine maps, fills.

use elinvar::{Constants, bf16, f16};

use super::super::case::{Case, Near};
use super::super::element::{Element, Layout, Sequence};
use super::unary::{view, workers};

const CORPUS: &str = "candle-metal-kernels";
const COUNT: usize = 389;

pub fn cases() -> Vec<Case> {
    let mut cases = arithmetic();
    cases.extend(comparisons());
    cases.extend(casts());
    cases.extend(affine());
    cases.extend(selections());
    cases.extend([fill::<u8>(), fill::<u32>(), fill::<i64>(), fill::<f16>(), fill::<f32>(), fill::<bf16>()]);
    cases
}

/// An operation on floats with one rounding, or on integers modulo 2ⁿ.
type Operation<T> = fn(T, T) -> Near;

fn add<T: Element>(x: T, y: T) -> Near {
    whole(x, y, x.value() + y.value(), x.integer() + y.integer())
}
fn sub<T: Element>(x: T, y: T) -> Near {
    whole(x, y, x.value() - y.value(), x.integer() - y.integer())
}
fn mul<T: Element>(x: T, y: T) -> Near {
    whole(x, y, x.value() * y.value(), x.integer() * y.integer())
}
/// Floats are within 2.5 ulp, the bound of fast math; shorter float types within one ulp.
fn div<T: Element>(x: T, y: T) -> Near {
    if T::ROUNDING == 0.0 {
        return (T::of_integer(x.integer() / y.integer()).value(), 0.0);
    }
    let value = x.value() / y.value();
    (value, 2.0 * T::ROUNDING * value.abs() * if T::SHORT == "f32" { 2.5 } else { 1.0 })
}
fn smaller<T: Element>(x: T, y: T) -> Near {
    (x.value().min(y.value()), 0.0)
}
fn larger<T: Element>(x: T, y: T) -> Near {
    (x.value().max(y.value()), 0.0)
}
fn whole<T: Element>(_: T, _: T, float: f64, integer: i128) -> Near {
    (if T::ROUNDING == 0.0 { T::of_integer(integer).value() } else { float }, 0.0)
}

const DIVISION: &str = "2.5 ulp of a division in fast math, 1 ulp for shorter types, integers exact";

fn arithmetic() -> Vec<Case> {
    vec![
        contiguous::<f32>("badd", add),
        contiguous::<i64>("badd", add),
        contiguous::<u8>("bsub", sub),
        contiguous::<f16>("bsub", sub),
        contiguous::<bf16>("bmul", mul),
        contiguous::<u32>("bmul", mul),
        contiguous::<f32>("bdiv", div),
        contiguous::<i64>("bdiv", div),
        contiguous::<f16>("bminimum", smaller),
        contiguous::<u8>("bmaximum", larger),
        indexed::<f32>("badd", "_strided", add),
        indexed::<bf16>("bsub", "_lstrided", sub),
        indexed::<u32>("bmul", "_rstrided", mul),
        indexed::<f16>("bdiv", "_cs", div),
        indexed::<i64>("bmaximum", "_sc", larger),
        indexed::<f32>("bminimum", "_rss", smaller),
        indexed::<u8>("badd", "_lss", add),
        indexed::<f16>("bmul", "_scalar", mul),
    ]
}

fn pair<T: Element>(count: usize) -> (Vec<T>, Vec<T>) {
    let mut sequence = Sequence(21);
    (sequence.between(count, 1.0, 200.0), sequence.between(count, 1.0, 30.0))
}

fn contiguous<T: Element>(name: &str, operation: Operation<T>) -> Case {
    let (left, right) = pair::<T>(COUNT);
    let want = left.iter().zip(&right).map(|(x, y)| operation(*x, *y)).collect();
    Case::new(CORPUS, "binary.metal", format!("{name}_{}", T::SHORT))
        .value([COUNT as u64])
        .input(&left)
        .input(&right)
        .near::<T>(want, if name == "bdiv" { DIVISION } else { "exact: one rounding" })
        .threads(workers::<T>(COUNT), 64)
}

/// Indexing of both operands: `s` by strides, `c` contiguous, `1` always the first element.
fn indexers(variant: &str) -> [char; 2] {
    match variant {
        "_strided" => ['s', 's'],
        "_lstrided" => ['s', 'c'],
        "_rstrided" => ['c', 's'],
        "_cs" => ['c', '1'],
        "_sc" => ['1', 'c'],
        "_rss" => ['1', 's'],
        "_lss" => ['s', '1'],
        _ => ['1', '1'],
    }
}

fn indexed<T: Element>(name: &str, variant: &str, operation: Operation<T>) -> Case {
    let (left_layout, right_layout) = (view(), Layout::new(&[5, 3, 7], &[0, 2, 6]));
    let extent = left_layout.extent().max(right_layout.extent());
    let (left, right) = pair::<T>(extent);
    let place = |indexer, layout: &Layout, i| match indexer {
        's' => layout.place(i),
        'c' => i,
        _ => 0,
    };
    let [l, r] = indexers(variant);
    let count = left_layout.len();
    let want = (0..count)
        .map(|i| operation(left[place(l, &left_layout, i)], right[place(r, &right_layout, i)]))
        .collect();
    Case::new(CORPUS, "binary.metal", format!("{name}_{}{variant}", T::SHORT))
        .value([count as u64])
        .value([3_u64])
        .value(&left_layout.dims)
        .value(&left_layout.strides)
        .value(&right_layout.strides)
        .input(&left)
        .input(&right)
        .near::<T>(want, if name == "bdiv" { DIVISION } else { "exact: one rounding" })
        .threads(workers::<T>(count), 32)
}

fn comparisons() -> Vec<Case> {
    vec![
        compare::<f32>("eq", |x, y| x == y),
        compare::<i64>("ne", |x, y| x != y),
        compare::<f16>("le", |x, y| x <= y),
        compare::<u8>("lt", |x, y| x < y),
        compare::<bf16>("ge", |x, y| x >= y),
        compare::<u32>("gt", |x, y| x > y),
    ]
}

fn compare<T: Element>(name: &str, holds: fn(f64, f64) -> bool) -> Case {
    let mut sequence = Sequence(5);
    let (left, right): (Vec<T>, Vec<T>) = (few(&mut sequence, COUNT, 4.0), few(&mut sequence, COUNT, 4.0));
    let want = left.iter().zip(&right).map(|(x, y)| u8::from(holds(x.value(), y.value())));
    Case::new(CORPUS, "binary.metal", format!("{name}_{}", T::SHORT))
        .value([COUNT as u64])
        .input(&left)
        .input(&right)
        .full_output(want)
        .threads(workers::<T>(COUNT), 64)
}

/// Integers below `limit`, many of which are equal.
fn few<T: Element>(sequence: &mut Sequence, count: usize, limit: f64) -> Vec<T> {
    sequence.between::<u8>(count, 0.0, limit).into_iter().map(|v| T::of(v.into())).collect()
}

fn casts() -> Vec<Case> {
    vec![
        cast::<f32, f16>(-1e4, 1e4),
        cast::<f32, bf16>(-1e4, 1e4),
        cast::<f16, f32>(-1e4, 1e4),
        cast::<bf16, f16>(-1e4, 1e4),
        cast::<f32, i64>(-1e6, 1e6),
        cast::<f16, u8>(0.0, 255.0),
        cast::<i64, f32>(-1e15, 1e15),
        cast::<u32, bf16>(0.0, 4e9),
        cast::<u8, i64>(0.0, 256.0),
        cast::<i64, u8>(-1e6, 1e6),
        cast_strided::<f32, u32>(0.0, 4e9),
        cast_strided::<bf16, f32>(-1e4, 1e4),
        cast_strided::<u8, f16>(0.0, 256.0),
    ]
}

/// Rounds to the nearest float, truncates to an integer, and wraps modulo 2ⁿ between integers.
fn convert<T: Element, U: Element>(value: T) -> U {
    if T::ROUNDING == 0.0 { U::of_integer(value.integer()) } else { U::of(value.value()) }
}

fn cast<T: Element, U: Element>(low: f64, high: f64) -> Case {
    let input: Vec<T> = Sequence(6).between(COUNT, low, high);
    Case::new(CORPUS, "cast.metal", format!("cast_{}_{}", T::SHORT, U::SHORT))
        .value([COUNT as u64])
        .input(&input)
        .full_output(input.iter().map(|v| convert::<T, U>(*v)))
        .threads(workers::<T>(COUNT), 64)
}

fn cast_strided<T: Element, U: Element>(low: f64, high: f64) -> Case {
    let layout = view();
    let input: Vec<T> = Sequence(7).between(layout.extent(), low, high);
    Case::new(CORPUS, "cast.metal", format!("cast_{}_{}_strided", T::SHORT, U::SHORT))
        .value([layout.len() as u64])
        .value([3_u64])
        .value(&layout.dims)
        .value(&layout.strides)
        .input(&input)
        .full_output((0..layout.len()).map(|i| convert::<T, U>(input[layout.place(i)])))
        .threads(layout.len(), 32)
}

const AFFINE: &str = "exact: fma in float, then one rounding to the type";
const POWER: &str = "exp2(y · log2 x) in float: 16 ulp of float at these sizes; one rounding of the type";
const ELU: &str =
    "exp in the type, 3 + |2x| ulp or 1 ulp for shorter types, and two roundings of values up to 1";

fn affine() -> Vec<Case> {
    let map = |x: f64| (f64::from(x.mul_add(1.5, 0.25) as f32), 0.0);
    let power = |unit: f64| {
        move |x: f64| {
            let value = x.powf(1.75);
            (value, value * (32.0 * f32::ROUNDING + unit))
        }
    };
    let elu = |unit: f64| {
        move |x: f64| {
            let negative = 0.75 * (x.exp() - 1.0);
            if x > 0.0 { (x, 0.0) } else { (negative, unit * 2.0 * ((3.0 - 2.0 * x) * x.exp() + 2.0)) }
        }
    };
    vec![
        mapped::<f32>("affine", &[1.5, 0.25], (-8.0, 8.0), AFFINE, map),
        mapped::<f16>("affine", &[1.5, 0.25], (-8.0, 8.0), AFFINE, map),
        mapped::<u8>("affine", &[1.5, 0.25], (0.0, 160.0), AFFINE, map),
        mapped::<i64>("affine", &[1.5, 0.25], (-1e5, 1e5), AFFINE, map),
        mapped_strided::<bf16>("affine", &[1.5, 0.25], (-8.0, 8.0), AFFINE, map),
        mapped::<f32>("powf", &[1.75], (0.1, 9.0), POWER, power(f32::ROUNDING)),
        mapped::<f16>("powf", &[1.75], (0.1, 9.0), POWER, power(f16::ROUNDING)),
        mapped_strided::<bf16>("powf", &[1.75], (0.1, 9.0), POWER, power(bf16::ROUNDING)),
        mapped::<f32>("elu", &[0.75], (-4.0, 4.0), ELU, elu(f32::ROUNDING)),
        mapped::<f16>("elu", &[0.75], (-4.0, 4.0), ELU, elu(f16::ROUNDING)),
        mapped_strided::<bf16>("elu", &[0.75], (-4.0, 4.0), ELU, elu(bf16::ROUNDING)),
    ]
}

fn mapped<T: Element>(
    name: &str,
    parameters: &[f32],
    (low, high): (f64, f64),
    tolerance: &'static str,
    map: impl Fn(f64) -> Near,
) -> Case {
    let input: Vec<T> = Sequence(8).between(COUNT, low, high);
    let mut case = Case::new(CORPUS, "affine.metal", format!("{name}_{}", T::SHORT)).value([COUNT as u64]);
    for parameter in parameters {
        case = case.value([*parameter]);
    }
    case.input(&input)
        .near::<T>(input.iter().map(|x| map(x.value())).collect(), tolerance)
        .threads(workers::<T>(COUNT), 64)
}

fn mapped_strided<T: Element>(
    name: &str,
    parameters: &[f32],
    (low, high): (f64, f64),
    tolerance: &'static str,
    map: impl Fn(f64) -> Near,
) -> Case {
    let layout = view();
    let input: Vec<T> = Sequence(9).between(layout.extent(), low, high);
    let mut case = Case::new(CORPUS, "affine.metal", format!("{name}_{}_strided", T::SHORT))
        .value([layout.len() as u64])
        .value([3_u64])
        .value(&layout.dims)
        .value(&layout.strides);
    for parameter in parameters {
        case = case.value([*parameter]);
    }
    let want = (0..layout.len()).map(|i| map(input[layout.place(i)].value())).collect();
    case.input(&input).near::<T>(want, tolerance).threads(layout.len(), 32)
}

fn selections() -> Vec<Case> {
    vec![
        select::<u8, f32>([true, true, true]),
        select::<u32, f16>([false, true, true]),
        select::<i64, i64>([false, false, false]),
        select::<u8, bf16>([true, false, true]),
        select::<u32, u8>([true, true, false]),
        select::<i64, u32>([true, false, false]),
    ]
}

/// `where`: function constants select which of condition, then and else are contiguous.
fn select<I: Element, T: Element>(contiguous: [bool; 3]) -> Case {
    let layouts = [view(), Layout::new(&[5, 3, 7], &[21, 1, 3]), Layout::new(&[5, 3, 7], &[0, 7, 1])];
    let extent = layouts.iter().map(Layout::extent).max().unwrap_or(0);
    let mut sequence = Sequence(10);
    let condition: Vec<I> = few(&mut sequence, extent, 3.0);
    let (then, otherwise): (Vec<T>, Vec<T>) =
        (sequence.between(extent, 0.0, 100.0), sequence.between(extent, 100.0, 200.0));
    let place = |k: usize, i: usize| if contiguous[k] { i } else { layouts[k].place(i) };
    let count = layouts[0].len();
    let want = (0..count).map(|i| {
        let holds = condition[place(0, i)].integer() != 0;
        if holds { then[place(1, i)] } else { otherwise[place(2, i)] }
    });
    let mut case = Case::new(CORPUS, "ternary.metal", format!("where_{}_{}", I::SHORT, T::SHORT))
        .value([count as u64])
        .value([3_u64])
        .value(&layouts[0].dims);
    for layout in &layouts {
        case = case.value(&layout.strides);
    }
    let constants = Constants::new().set(0, contiguous[0]).set(1, contiguous[1]).set(2, contiguous[2]);
    case.input(&condition)
        .input(&then)
        .input(&otherwise)
        .full_output(want)
        .constants(constants)
        .threads(workers::<T>(count), 32)
}

fn fill<T: Element>() -> Case {
    Case::new(CORPUS, "fill.metal", format!("fill_{}", T::SHORT))
        .full_output([T::of(42.0); COUNT])
        .value([T::of(42.0)])
        .value([COUNT as u64])
        .threads(COUNT.next_multiple_of(64), 64)
}
