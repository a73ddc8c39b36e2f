//! Kernels with one thread for each element.

use elinvar::{bf16, f16};

use super::{Case, Kind, Value, bytes, floats, memory, number, words};

const N: usize = 300;
const UNARY: &str = "candle-kernels-0.9.1/src/unary.cu";
const BINARY: &str = "candle-kernels-0.9.1/src/binary.cu";

fn case(
    file: &'static str,
    kernel: &'static str,
    args: Vec<Value>,
    result: usize,
    expected: Vec<u8>,
    kind: Kind,
    ulp: u32,
) -> Case {
    Case { file, kernel, groups: [3, 1, 1], group: [64, 1, 1], shared: 0, args, result, expected, kind, ulp }
}

/// Shape and strides of `N` elements in order, or of a transposed matrix.
fn layout(is_transposed: bool) -> Vec<u64> {
    if is_transposed { vec![20, 15, 1, 20] } else { vec![20, 15, 15, 1] }
}

fn at(is_transposed: bool, i: usize) -> usize {
    if is_transposed { i / 15 + i % 15 * 20 } else { i }
}

/// `out[i] = f(in[i])` of candle, over a transposed input for every other kernel.
fn unary(kernel: &'static str, ulp: u32, f: impl Fn(f64) -> f64) -> Case {
    let is_transposed = kernel.len().is_multiple_of(2);
    let input = floats(N, 1);
    let expected: Vec<f32> = (0..N).map(|i| f(f64::from(input[at(is_transposed, i)])) as f32).collect();
    let info = memory(&layout(is_transposed));
    let args = vec![number(N as u64), number(2u64), info, memory(&input), memory(&[7f32; N])];
    case(UNARY, kernel, args, 2, bytes(&expected), Kind::F32, ulp)
}

/// The same with a parameter.
fn unary_with(kernel: &'static str, parameter: f32, ulp: u32, f: impl Fn(f64) -> f64) -> Case {
    let mut case = unary(kernel, ulp, f);
    case.args.insert(3, number(parameter));
    case
}

fn erf(x: f64) -> f64 {
    // The series for small numbers, and the continued fraction of erfc.
    let a = x.abs();
    let value = if a < 2.5 {
        let (mut sum, mut term) = (a, a);
        for n in 1..80 {
            term *= -a * a / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        let mut fraction = 0.0;
        for n in (1..120).rev() {
            fraction = f64::from(n) / 2.0 / (a + fraction);
        }
        1.0 - (-a * a).exp() / (a + fraction) / std::f64::consts::PI.sqrt()
    };
    value.copysign(x)
}

fn binary<T: bytemuck::NoUninit + Copy, R: bytemuck::NoUninit>(
    kernel: &'static str,
    kind: Kind,
    [left, right]: [Vec<T>; 2],
    blank: R,
    f: impl Fn(T, T) -> R,
) -> Case {
    // The right operand is transposed.
    let expected: Vec<R> = (0..N).map(|i| f(left[i], right[at(true, i)])).collect();
    let info: Vec<u64> = vec![20, 15, 15, 1, 1, 20];
    let out: Vec<R> = (0..N).map(|_| blank).collect();
    let args =
        vec![number(N as u64), number(2u64), memory(&info), memory(&left), memory(&right), memory(&out)];
    case(BINARY, kernel, args, 3, bytes(&expected), kind, 0)
}

fn pair<T>(of: impl Fn(u32) -> T) -> [Vec<T>; 2] {
    [words(N, 2), words(N, 3)].map(|list| list.into_iter().map(&of).collect())
}

fn single(x: u32) -> f32 {
    (x >> 8) as f32 / 2_097_152.0 - 4.0
}

fn half(x: u32) -> f16 {
    f16::from_f32(single(x))
}

fn half_unary(kernel: &'static str, f: impl Fn(f32) -> f32) -> Case {
    let input: Vec<f16> = words(N, 4).into_iter().map(half).collect();
    let expected: Vec<f16> = input.iter().map(|x| f16::from_f32(f(x.to_f32()))).collect();
    let out = vec![f16::from_f32(9.0); N];
    let args = vec![number(N as u64), number(2u64), memory(&layout(false)), memory(&input), memory(&out)];
    case(UNARY, kernel, args, 2, bytes(&expected), Kind::F16, 0)
}

pub fn cases() -> Vec<Case> {
    let mut all = vec![
        unary("ucopy_f32", 0, |x| x),
        unary("uneg_f32", 0, |x| -x),
        unary("urecip_f32", 0, |x| 1.0 / x),
        unary("uexp_f32", 2, f64::exp),
        unary("usin_f32", 2, f64::sin),
        unary("ucos_f32", 2, f64::cos),
        unary("utanh_f32", 2, f64::tanh),
        unary("uerf_f32", 4, erf),
        unary("uceil_f32", 0, f64::ceil),
        unary("ufloor_f32", 0, f64::floor),
        unary("uround_f32", 0, f64::round),
        unary("uabs_f32", 0, f64::abs),
        unary("usqr_f32", 0, |x| x * x),
        unary("urelu_f32", 0, |x| x.max(0.0)),
        unary("usign_f32", 0, |x| {
            if x > 0.0 {
                1.0
            } else if x < 0.0 {
                -1.0
            } else {
                0.0
            }
        }),
        unary("usigmoid_f32", 4, |x| 1.0 / (1.0 + (-x).exp())),
        unary("usilu_f32", 4, |x| x / (1.0 + (-x).exp())),
        // Where the result cancels, its error is that of the exponential.
        unary_with("uelu_f32", 0.75, 64, |x| if x > 0.0 { x } else { 0.75 * (x.exp() - 1.0) }),
        unary_with("upowf_f32", 3.0, 4, |x| x * x * x),
        half_unary("uneg_f16", |x| -x),
        half_unary("usqr_f16", |x| x * x),
        half_unary("urelu_f16", |x| x.max(0.0)),
        half_unary("ufloor_f16", f32::floor),
        half_unary("uabs_f16", f32::abs),
        binary("badd_f32", Kind::F32, pair(single), 0f32, |a, b| a + b),
        binary("bdiv_f32", Kind::F32, pair(single), 0f32, |a, b| a / b),
        binary("bmaximum_f32", Kind::F32, pair(single), 0f32, f32::max),
        binary("bmul_u32", Kind::Exact(4), pair(|x| x), 0u32, u32::wrapping_mul),
        binary("bsub_i64", Kind::Exact(8), pair(|x| i64::from(x) << 8), 0i64, |a, b| a - b),
        binary("bminimum_u8", Kind::Exact(1), pair(|x| (x >> 9) as u8), 0u8, u8::min),
        binary("badd_u8", Kind::Exact(1), pair(|x| (x >> 9) as u8), 0u8, u8::wrapping_add),
        binary("bdiv_u32", Kind::Exact(4), pair(|x| x | 1), 0u32, |a, b| a / b),
        binary("lt_f32", Kind::Exact(1), pair(single), 9u8, |a, b| u8::from(a < b)),
        binary("eq_u32", Kind::Exact(1), pair(|x| x >> 30), 9u8, |a, b| u8::from(a == b)),
        binary("ge_i64", Kind::Exact(1), pair(|x| i64::from(x >> 29)), 9u8, |a, b| u8::from(a >= b)),
        binary("badd_f16", Kind::F16, pair(half), f16::from_f32(0.0), |a, b| {
            f16::from_f32(a.to_f32() + b.to_f32())
        }),
        binary("bmul_f16", Kind::F16, pair(half), f16::from_f32(0.0), |a, b| {
            f16::from_f32(a.to_f32() * b.to_f32())
        }),
        binary("bmul_bf16", Kind::BF16, pair(|x| bf16::from_f32(single(x))), bf16::from_f32(0.0), |a, b| {
            bf16::from_f32(a.to_f32() * b.to_f32())
        }),
    ];
    all.extend(others());
    all
}

fn others() -> Vec<Case> {
    let input = floats(N, 5);
    let whole = words(N, 6);
    let affine: Vec<f32> = input.iter().map(|x| x * 1.5 + 0.25).collect();
    let affine_args = vec![
        number(N as u64),
        number(2u64),
        memory(&layout(false)),
        memory(&input),
        memory(&[0f32; N]),
        number(1.5f32),
        number(0.25f32),
    ];
    let affine_u32: Vec<u32> = whole.iter().map(|x| x.wrapping_mul(7).wrapping_add(3)).collect();
    let affine_u32_args = vec![
        number(N as u64),
        number(2u64),
        memory(&layout(false)),
        memory(&whole),
        memory(&[0u32; N]),
        number(7u32),
        number(3u32),
    ];
    let copied: Vec<f32> =
        (0..N).map(|i| if i % 20 < 12 { input[i / 20 * 13 + i % 20] } else { -1.0 }).collect();
    let copy_args =
        vec![memory(&input), memory(&[-1f32; N]), number(15u32), number(12u32), number(13u32), number(20u32)];
    let set: Vec<u32> = vec![42; N];
    let chosen: Vec<f32> = (0..N).map(|i| if whole[i] & 1 == 1 { input[i] } else { affine[i] }).collect();
    let odd: Vec<u8> = whole.iter().map(|x| (x & 1) as u8).collect();
    let four: Vec<u64> = [20u64, 15].into_iter().chain([15, 1].repeat(3)).collect();
    let where_args = vec![
        number(N as u64),
        number(2u64),
        memory(&four),
        memory(&odd),
        memory(&input),
        memory(&affine),
        memory(&[0f32; N]),
    ];
    let ids: Vec<u32> = words(40, 7).into_iter().map(|x| x % 20).collect();
    let selected: Vec<f32> = (0..600).map(|i| input[ids[i / 15] as usize * 15 + i % 15]).collect();
    let select_args = vec![
        number(600u64),
        number(2u64),
        memory(&layout(false)),
        memory(&ids),
        memory(&input),
        memory(&[0f32; 600]),
        number(1u64),
        number(20u64),
        number(40u64),
        number(15u64),
    ];
    let places: Vec<u32> = words(N, 8).into_iter().map(|x| x % 20).collect();
    let gathered: Vec<f32> = (0..N).map(|i| input[places[i] as usize * 15 + i % 15]).collect();
    let gather_args = vec![
        number(N as u64),
        memory(&places),
        memory(&input),
        memory(&[0f32; N]),
        number(1u64),
        number(20u64),
        number(20u64),
        number(15u64),
    ];
    let mut added = vec![1f32; N];
    for (j, id) in ids.iter().enumerate().take(20) {
        (0..15).for_each(|k| added[*id as usize * 15 + k] += input[j * 15 + k]);
    }
    let add_args = vec![
        memory(&ids),
        number(20u64),
        memory(&input),
        memory(&[1f32; N]),
        number(1u64),
        number(20u64),
        number(20u64),
        number(15u64),
    ];
    let cast: Vec<f32> = whole.iter().map(|x| *x as f32).collect();
    let cast_args =
        vec![number(N as u64), number(2u64), memory(&layout(false)), memory(&whole), memory(&[0f32; N])];
    let halves: Vec<f16> = input.iter().map(|x| f16::from_f32(*x)).collect();
    let half_args =
        vec![number(N as u64), number(2u64), memory(&layout(false)), memory(&input), memory(&[0u16; N])];
    let sines: Vec<f32> = input.iter().map(|x| f64::from(*x).sin() as f32).collect();
    let sum: Vec<f32> = input.iter().zip(&affine).map(|(a, b)| a + b).collect();
    let indexing = "candle-kernels-0.9.1/src/indexing.cu";
    let fill = "candle-kernels-0.9.1/src/fill.cu";
    let cast_file = "candle-kernels-0.9.1/src/cast.cu";
    let mut cases = vec![
        case(
            "candle-kernels-0.9.1/src/affine.cu",
            "affine_f32",
            affine_args,
            2,
            bytes(&affine),
            Kind::F32,
            0,
        ),
        case(
            "candle-kernels-0.9.1/src/affine.cu",
            "affine_u32",
            affine_u32_args,
            2,
            bytes(&affine_u32),
            Kind::Exact(4),
            0,
        ),
        case(fill, "copy2d_f32", copy_args, 1, bytes(&copied), Kind::F32, 0),
        case(
            fill,
            "fill_u32",
            vec![memory(&[0u32; N]), number(42u32), number(N as u64)],
            0,
            bytes(&set),
            Kind::Exact(4),
            0,
        ),
        case(
            "candle-kernels-0.9.1/src/ternary.cu",
            "where_u8_f32",
            where_args,
            4,
            bytes(&chosen),
            Kind::F32,
            0,
        ),
        case(indexing, "is_u32_f32", select_args, 3, bytes(&selected), Kind::F32, 0),
        case(indexing, "gather_u32_f32", gather_args, 2, bytes(&gathered), Kind::F32, 0),
        case(indexing, "ia_u32_f32", add_args, 2, bytes(&added), Kind::F32, 0),
        case(cast_file, "cast_u32_f32", cast_args, 2, bytes(&cast), Kind::F32, 0),
        case(cast_file, "cast_f32_f16", half_args, 2, bytes(&halves), Kind::F16, 0),
        case(
            "cudarc-0.17.3/examples/sin.cu",
            "sin_kernel",
            vec![memory(&[9f32; N]), memory(&input), number(N as i32)],
            0,
            bytes(&sines),
            Kind::F32,
            2,
        ),
        case(
            "cust-0.3.2/resources/add.cu",
            "sum",
            vec![memory(&input), memory(&affine), memory(&[0f32; N]), number(N as i32)],
            2,
            bytes(&sum),
            Kind::F32,
            0,
        ),
    ];
    // These have one thread for each element.
    cases.iter_mut().for_each(|case| case.groups = [10, 1, 1]);
    cases
}
