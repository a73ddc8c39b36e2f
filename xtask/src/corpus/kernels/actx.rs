//! actx's kernels: arithmetic and comparisons of arrays, with sizes of one repeated, some under names of library functions.

use super::case::{Case, Near};
use super::element::{Element, Sequence};
use super::reference::U;

const CORPUS: &str = "actx";

pub fn cases() -> Vec<Case> {
    let mut cases = binary();
    cases.extend(compared());
    cases.extend(made());
    cases.extend(functions());
    cases
}

fn binary() -> Vec<Case> {
    let (left, right, out) = ([3, 1, 5], [4, 1], [3, 4, 5]);
    let a: Vec<f32> = Sequence(3).between(15, 0.5, 2.0);
    let b: Vec<f32> = Sequence(5).between(4, 0.5, 2.0);
    let at = |e: usize| (a[e / 20 * 5 + e % 5], b[e / 5 % 4]);
    let case = |kernel: &str| Case::new(CORPUS, "arithmetic.metal", kernel).input(&a).input(&b);
    let finish = |case: Case| {
        case.input::<i32>(&left).input::<i32>(&right).input::<i32>(&out).value([3_i32, 2, 3]).threads(60, 32)
    };
    let exact = |of: fn(f32, f32) -> f32| (0..60).map(&at).map(move |(a, b)| of(a, b)).collect::<Vec<f32>>();
    let quotients = (0..60).map(|e| {
        let value = at(e).0.value() / at(e).1.value();
        (value, 5.0 * U * value)
    });
    vec![
        finish(case("__add__").full_output(exact(|a, b| a + b))),
        finish(case("__sub__").full_output(exact(|a, b| a - b))),
        finish(case("__mul__").full_output(exact(|a, b| a * b))),
        finish(case("__div__").near::<f32>(quotients.collect(), "a division of 2.5 ulp")),
    ]
}

fn compared() -> Vec<Case> {
    let of =
        |seed: u64| -> Vec<f32> { Sequence(seed).any::<u8>(90).iter().map(|x| (x % 5).into()).collect() };
    let (a, b) = (of(7), of(11));
    let case = |name: &str, holds: fn(&f32, &f32) -> bool| {
        let want = a.iter().zip(&b).map(|(a, b)| f32::from(u8::from(holds(a, b))));
        Case::new(CORPUS, "comparisons.metal", format!("logical_{name}"))
            .input(&a)
            .input(&b)
            .full_output(want)
            .threads(90, 32)
    };
    vec![
        case("e", f32::eq),
        case("ne", f32::ne),
        case("gt", f32::gt),
        case("gte", f32::ge),
        case("lt", f32::lt),
        case("lte", f32::le),
    ]
}

fn made() -> Vec<Case> {
    let case = |kernel: &str, want: Vec<f32>| Case::new(CORPUS, "init.metal", kernel).full_output(want);
    let square = (0..81).map(|e| f32::from(u8::from(e / 9 == e % 9))).collect();
    vec![
        case("__ones__", vec![1.0; 70]).value([7_u32, 10]).threads(70, 32),
        case("__zeros__", vec![0.0; 70]).value([7_u32, 10]).threads(70, 32),
        case("__full__", vec![0.37; 70]).value([0.37_f32]).value([7_u32, 10]).threads(70, 32),
        case("__eye__", square).value([9_u32, 9]).threads(81, 32),
    ]
}

/// `exp`, `log` and `sqrt` are kernels that call the functions of these names.
fn functions() -> Vec<Case> {
    let x: Vec<f32> = Sequence(13).between(63, 0.25, 4.0);
    let case = |kernel: &str, of: fn(f64) -> f64, ulps: f64| {
        let want: Vec<Near> =
            x.iter().map(|x| of(x.value())).map(|y| (y, U * (ulps * y.abs() + 4.0))).collect();
        Case::new(CORPUS, "math_functions.metal", kernel)
            .input(&x)
            .near::<f32>(want, "log of 3 ulp or 2⁻²¹, exp of 3 + |2x| ulp, sqrt of 3 ulp")
            .value([7_u32, 9])
            .threads(64, 32)
    };
    let power = 1.7_f32;
    let powers = x.iter().map(|x| x.value().powf(power.value())).map(|y| (y, 64.0 * U * y));
    vec![
        case("exp", f64::exp, 24.0),
        case("log", f64::ln, 8.0),
        case("sqrt", f64::sqrt, 6.0),
        Case::new(CORPUS, "math_functions.metal", "__pow__")
            .input(&x)
            .input(&[power])
            .near::<f32>(powers.collect(), "exp2(y · log2 x) in float: 16 ulp at these sizes")
            .value([7_u32, 9])
            .threads(64, 32),
    ]
}
