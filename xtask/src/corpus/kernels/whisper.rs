//! Kernels of whisper.cpp's single file: an older ggml, in part with the same kernels and arguments.

use elinvar::f16;

use super::case::{Case, EXACT, Near};
use super::element::Member::F32;
use super::element::{Element, Member, Sequence, packed};
use super::ggml::{layers, maps, moves, quants};

const CORPUS: (&str, &str) = ("whisper-rs-sys", "ggml-metal.metal");
const FLOAT: f64 = f32::ROUNDING;

/// Number of elements: whole vectors of four.
const COUNT: usize = 4 * 57;

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        moves::triangle::<f32>(2),
        moves::repeat::<i16>("i16"),
        moves::get_rows::<f16, f32>("f16"),
        moves::set_rows::<f32, i64, f16>("f16_i64"),
        moves::argsort(true),
        moves::arange(),
        moves::reflect(),
        moves::copy::<f32, f16>(),
        quants::quantize("q8_0", 34, 127.0, quants::q8_0),
        quants::dequantize::<f32>("q5_1", 24, quants::from_q5_1),
        quants::rows("q4_0", 18, 32, quants::from_q4_0),
        quants::rows("q6_K", 210, 256, quants::from_q6_k),
        maps::gated::<f32>("swiglu_f32", maps::silu),
        layers::wkv6(),
    ];
    cases.extend([
        map("scale_f32_4", &[F32(1.5), F32(-0.25)], "exact: an fma, or two roundings", |x| {
            (x * 1.5 - 0.25, 2.0 * FLOAT * (1.5 * x.abs() + 0.25))
        }),
        map("fill_f32", &[F32(2.75)], EXACT, |_| (2.75, 0.0)),
        map("clamp_f32", &[F32(-1.5), F32(2.0)], EXACT, |x| (x.clamp(-1.5, 2.0), 0.0)),
        map("leaky_relu_f32_4", &[F32(0.1)], "one rounding", |x| {
            (if x > 0.0 { x } else { x * f64::from(0.1_f32) }, FLOAT * x.abs())
        }),
        map("relu_f32_4", &[], EXACT, |x| (x.max(0.0), 0.0)),
        map("silu_f32", &[], "exp and a division: 9 + |2x| ulp", maps::silu),
        map("gelu_erf_f32_4", &[], "32 roundings of |x|", maps::gelu_erf),
        map("sqr_f32", &[], "exact: one rounding", |x| (x * x, 0.0)),
        map("sgn_f32", &[], EXACT, |x| (if x == 0.0 { 0.0 } else { x.signum() }, 0.0)),
        map("hardsigmoid_f32_4", &[], "a division of 2.5 ulp and a sum of values up to 2", |x| {
            ((x / 6.0 + 0.5).clamp(0.0, 1.0), 8.0 * FLOAT)
        }),
    ]);
    cases.into_iter().map(|case| case.of(CORPUS.0, CORPUS.1)).collect()
}

/// A function of each element, four at a time if the name ends in `_4`.
fn map(name: &str, parameters: &[Member], tolerance: &'static str, near: fn(f64) -> Near) -> Case {
    let mut input: Vec<f32> = Sequence(111).between(COUNT, -4.0, 4.0);
    input[7] = 0.0;
    let case = Case::new(CORPUS.0, CORPUS.1, format!("kernel_{name}"));
    let case = if parameters.is_empty() { case } else { case.bytes(packed(parameters)) };
    let threads = if name.ends_with("_4") { COUNT / 4 } else { COUNT };
    let case = case.input(&input);
    case.near::<f32>(input.iter().map(|x| near(x.value())).collect(), tolerance).threads(threads, 32)
}
