//! mistral.rs's dequantization kernels, and its gated activation.

use elinvar::{Scalar, bf16, f16};

use super::candle::unary::{erf, gelu};
use super::case::{Case, Near};
use super::element::{Element, Member, Sequence, packed};

const CORPUS: &str = "mistralrs-quant";
const FLOAT: f64 = f32::ROUNDING;

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        hqq::<f32>(8, 1, 8),
        hqq::<bf16>(8, 1, 8),
        hqq::<f16>(4, 2, 8),
        hqq::<f32>(2, 4, 8),
        hqq::<bf16>(1, 8, 8),
        hqq::<f16>(3, 10, 32),
        f8q8::<f32>(),
        f8q8::<f16>(),
        nf4::<f32>(),
        nf4::<f16>(),
        fp4::<bf16>(),
        int8::<f32>(),
        int8::<bf16>(),
        blockwise_fp8::<f32>(),
        blockwise_fp8::<bf16>(),
    ];
    cases.extend([fp8_to::<f32>(), fp8_to::<f16>(), to_fp8::<f32>(), to_fp8::<bf16>()]);
    cases.extend([fp8_scaled::<f16>("pertensor", usize::MAX), fp8_scaled::<f32>("vector", 128)]);
    cases.extend([fp8_scaled::<bf16>("vector", 128)]);
    cases.extend([glu::<f32>(0), glu::<f16>(1), glu::<bf16>(3)]);
    cases.extend([affine::<f32>(64, 4), affine::<f16>(32, 8), affine::<bf16>(128, 2)]);
    cases.extend([affine::<f32>(32, 3), affine::<f16>(64, 6)]);
    cases
}

/// Name of the type in these kernels' names.
fn name<T: Element>() -> &'static str {
    match T::SCALAR {
        Scalar::F16 => "half",
        Scalar::BF16 => "bfloat",
        _ => "float",
    }
}

/// Name of the type in kernels that use a typedef for `bfloat`.
fn alias<T: Element>() -> &'static str {
    if T::SCALAR == Scalar::BF16 { "bfloat16_t" } else { name::<T>() }
}

/// Half-quadratic quantization: `chunks` numbers of `bits` bits per word, the first in the highest bits, each with the zero and scale of
/// its column.
fn hqq<T: Element>(bits: usize, chunks: usize, word: usize) -> Case {
    let (height, width) = (7, 9);
    let mut sequence = Sequence(51);
    let words: Vec<u32> = sequence.any(height * width);
    let (scale, zero): (Vec<T>, Vec<T>) =
        (sequence.between(width, -1.0, 1.0), sequence.between(width, 0.0, (1 << bits.min(4)) as f64));
    let number = |chunk: usize, i: usize| match bits {
        8 => f64::from(words[i] as i8),
        _ => f64::from(words[i] >> ((chunks - 1 - chunk) * bits) & ((1 << bits) - 1)),
    };
    let want = (0..chunks * words.len()).map(|k| {
        let (chunk, i) = (k / words.len(), k % words.len());
        let value = (number(chunk, i) - zero[i % width].value()) * scale[i % width].value();
        (value, 2.1 * T::ROUNDING * value.abs())
    });
    let case = Case::new(CORPUS, "hqq_dequantize.metal", format!("dequantize_{bits}bit_{}", name::<T>()));
    let case = if word == 8 {
        case.input(&words.iter().map(|w| *w as i8).collect::<Vec<_>>())
    } else {
        case.input(&words.iter().map(|w| *w as i32).collect::<Vec<_>>())
    };
    case.input(&scale)
        .input(&zero)
        .near::<T>(want.collect(), "2 roundings: a difference and a product")
        .value([height as u32])
        .value([width as u32])
        .threads(words.len(), 32)
}

/// An 8-bit float: a sign, four exponent bits with bias 7, three bits of the significand. Subnormal numbers are eighths of 2^`subnormal`.
fn e4m3(byte: u8, subnormal: i32) -> f64 {
    let (exponent, significand) = (i32::from(byte >> 3 & 15), f64::from(byte & 7) / 8.0);
    let size = match exponent {
        0 => significand * 2f64.powi(subnormal),
        _ => (1.0 + significand) * 2f64.powi(exponent - 7),
    };
    if byte >= 128 { -size } else { size }
}

/// E4M3 as float8.metal reads it: subnormal numbers are eighths of 2⁻⁹ instead of 2⁻⁶.
fn fp8(byte: u8) -> f64 {
    e4m3(byte, -9)
}

/// All bytes except the two NaNs.
fn numbers() -> Vec<u8> {
    (0..=255).filter(|byte| byte & 127 != 127).collect()
}

/// Blocks of an 8-bit scale, relative to 448, and 32 integers.
fn f8q8<T: Element>() -> Case {
    let blocks = 21;
    let mut words: Vec<u8> = Sequence(52).any(blocks * 33);
    for block in words.chunks_mut(33) {
        block[0] = if block[0] & 127 == 127 { 0x38 } else { block[0] };
    }
    let want = words.chunks(33).flat_map(|block| {
        let scale = e4m3(block[0], -6) / 448.0;
        block[1..].iter().map(move |q| {
            let value = f64::from(*q as i8) * scale;
            (value, (6.0 * FLOAT + T::ROUNDING) * value.abs() + 2f64.powi(-25))
        })
    });
    let want = want.collect();
    Case::new(CORPUS, "f8q8.metal", format!("f8q8_dequantize_{}", name::<T>()))
        .input(&words)
        .near::<T>(want, "a division of 2.5 ulp and a product in float, one rounding to the type")
        .value([blocks as u32])
        .threads(blocks + 3, 8)
}

/// A product in float, rounded to the type.
fn product<T: Element>(a: f64, b: f64) -> T {
    T::of(f64::from((a * b) as f32))
}

const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

fn nf4<T: Element>() -> Case {
    nibbles::<T>("nf4", &NF4)
}

/// 4-bit values with the sign in the highest bit.
fn fp4<T: Element>() -> Case {
    let sizes = [0.0, 1.0 / 192.0, 2.0 / 3.0, 1.0, 1.0 / 3.0, 0.5, 1.0 / 6.0, 0.25];
    let table: Vec<f32> = sizes.iter().copied().chain(sizes.iter().map(|size| -size)).collect();
    nibbles::<T>("fp4", &table)
}

/// Bytes of two numbers, the high half first. A thread processes a block of bytes, and uses every second scale.
fn nibbles<T: Element>(format: &str, table: &[f32]) -> Case {
    let (size, bytes) = (16, 100_usize);
    let blocks = bytes.div_ceil(size);
    let mut sequence = Sequence(53);
    let input: Vec<u8> = sequence.any(bytes);
    let scales: Vec<f32> = sequence.between(2 * blocks, 0.1, 4.0);
    let want = input.iter().enumerate().flat_map(|(i, byte)| {
        let scale = scales[i / size * 2].value();
        [byte >> 4, byte & 15].map(|half| product::<T>(table[usize::from(half)].into(), scale))
    });
    let want: Vec<T> = want.collect();
    Case::new(CORPUS, "bnb_dequantize.metal", format!("kernel_dequantize_{format}_{}", alias::<T>()))
        .input(&[0.0_f32; 256])
        .input(&input)
        .input(&scales)
        .full_output(want)
        .value([size as i32])
        .value([bytes as i32])
        .threads(blocks, 4)
}

/// Bytes as indices of a table; a block has one scale.
fn int8<T: Element>() -> Case {
    let (size, count) = (16, 100_usize);
    let mut sequence = Sequence(54);
    let code: Vec<f32> = sequence.between(256, -1.0, 1.0);
    let input: Vec<u8> = sequence.any(count);
    let scales: Vec<f32> = sequence.between(count.div_ceil(size), 0.1, 4.0);
    let want = input
        .iter()
        .enumerate()
        .map(|(i, byte)| product::<T>(code[usize::from(*byte)].into(), scales[i / size].into()));
    let want: Vec<T> = want.collect();
    Case::new(CORPUS, "bnb_dequantize.metal", format!("kernel_dequantize_int8_{}", alias::<T>()))
        .input(&code)
        .input(&input)
        .input(&scales)
        .full_output(want)
        .value([size as i32])
        .value([count as i32])
        .threads(count.div_ceil(size), 4)
}

/// Tiles of a matrix with one scale each, and rows with padding.
fn blockwise_fp8<T: Element>() -> Case {
    let (height, width, stride, tile) = (19, 29_usize, 31, [8, 12]);
    let mut sequence = Sequence(55);
    let valid = numbers();
    let weights: Vec<u8> =
        sequence.between::<u8>(height * stride, 0.0, 254.0).iter().map(|i| valid[usize::from(*i)]).collect();
    let scale_stride = width.div_ceil(tile[1]) + 1;
    let scales: Vec<f32> = sequence.between(height.div_ceil(tile[0]) * scale_stride, 0.1, 2.0);
    let want: Vec<Option<T>> = (0..height * stride)
        .map(|i| {
            let (y, x) = (i / stride, i % stride);
            let scale = || scales[y / tile[0] * scale_stride + x / tile[1]].value();
            (x < width).then(|| product::<T>(fp8(weights[i]), scale()))
        })
        .collect();
    let sizes = [height, width, stride, scale_stride, tile[0], tile[1]].map(|size| Member::I32(size as i32));
    Case::new(CORPUS, "blockwise_fp8.metal", format!("dequant_fp8_blockwise_{}", alias::<T>()))
        .input(&weights)
        .input(&scales)
        .output(&want)
        .bytes(packed(&sizes))
        .groups((width.div_ceil(tile[1]), height.div_ceil(tile[0])), (5, 3))
}

fn fp8_to<T: Element>() -> Case {
    let input = numbers();
    Case::new(CORPUS, "scalar_fp8.metal", format!("fp8_to_dtype_{}", alias::<T>()))
        .input(&input)
        .full_output(input.iter().map(|byte| T::of(fp8(*byte))))
        .value([input.len() as u32])
        .threads(input.len() + 7, 32)
}

/// Rounds to E4M3, ties away from zero; from 256 on to the maximum, 448, and below 2⁻⁶ to zero.
fn nearest_e4m3(value: f64) -> u8 {
    let sign = if value.is_sign_negative() { 128 } else { 0 };
    let exponent = (value.abs().log2().floor() as i32).max(-127) + 7;
    if exponent > 14 {
        return sign | 0x7e;
    }
    if exponent <= 0 || value == 0.0 {
        return sign;
    }
    let rounded = ((value.abs() / 2f64.powi(exponent - 7) - 1.0) * 8.0 + 0.5).floor() as u8;
    match (exponent, rounded) {
        (14, 8) => sign | 0x7e,
        _ => sign | (((exponent as u8) << 3) + rounded),
    }
}

fn to_fp8<T: Element>() -> Case {
    let mut sequence = Sequence(56);
    let mut input: Vec<T> = sequence.between(150, -1000.0, 1000.0);
    input.extend(sequence.between::<T>(150, -1.0, 1.0));
    input.extend(sequence.between::<T>(20, -0.02, 0.02));
    input.extend([0.0, 448.0, -448.0, 255.9, 240.0, 1.0625, -1.1875, 0.015_625].map(T::of));
    let want = input.iter().map(|v| nearest_e4m3(v.value()));
    let want: Vec<u8> = want.collect();
    Case::new(CORPUS, "scalar_fp8.metal", format!("dtype_to_fp8_{}", alias::<T>()))
        .input(&input)
        .full_output(want)
        .value([input.len() as u32])
        .threads(input.len() + 7, 32)
}

/// One scale per `each` elements.
fn fp8_scaled<T: Element>(variant: &str, each: usize) -> Case {
    let valid = numbers();
    let input: Vec<u8> = (0..2 * valid.len()).map(|i| valid[i % valid.len()]).collect();
    let scales: Vec<f32> = Sequence(57).between(input.len().div_ceil(each), 0.1, 2.0);
    let want: Vec<T> =
        input.iter().enumerate().map(|(i, v)| product::<T>(fp8(*v), scales[i / each].into())).collect();
    Case::new(CORPUS, "scalar_fp8.metal", format!("fp8_{variant}_dequant_{}", alias::<T>()))
        .input(&input)
        .input(&scales)
        .full_output(want)
        .value([input.len() as u32])
        .threads(input.len() + 7, 32)
}

/// `activation(a) * b`, with the activation computed in float and rounded to the type first.
fn glu<T: Element>(activation: i32) -> Case {
    let count = 333;
    let mut sequence = Sequence(58);
    let (a, b): (Vec<T>, Vec<T>) = (sequence.between(count, -7.0, 7.0), sequence.between(count, -2.0, 2.0));
    let activated = |x: f64| -> Near {
        match activation {
            0 => {
                let sigmoid = (1.0 + (-x).exp()).recip();
                (x * sigmoid, 2.0 * FLOAT * (7.0 + 2.0 * x.abs()) * (x * sigmoid).abs())
            }
            1 => (gelu(x), 10.0 * FLOAT * x.abs()),
            _ => (x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)) / 2.0, 32.0 * FLOAT * x.abs()),
        }
    };
    let want = a.iter().zip(&b).map(|(a, b)| {
        let (factor, error) = activated(a.value());
        let value = factor * b.value();
        (value, error * b.value().abs() + 2.1 * T::ROUNDING * value.abs())
    });
    let want = want.collect();
    Case::new(CORPUS, "fused_glu.metal", format!("fused_glu_{}", name::<T>()))
        .input(&a)
        .input(&b)
        .near::<T>(want, "the activation's in float (as silu, gelu, gelu_erf of candle) and two roundings")
        .value([count as u32])
        .value([activation])
        .threads(count + 11, 32)
}

/// Groups of numbers of `bits` bits, lowest first, each group with a scale and a bias.
fn affine<T: Element>(group: usize, bits: usize) -> Case {
    let groups = 6;
    let count = group * groups;
    let mut sequence = Sequence(59);
    let numbers: Vec<u32> = (0..count).map(|_| sequence.next() as u32 & ((1 << bits) - 1)).collect();
    let mut words = vec![0_u8; count * bits / 8];
    for (bit, byte) in (0..count * bits).map(|bit| (bit, bit / 8)) {
        words[byte] |= ((numbers[bit / bits] >> (bit % bits) & 1) as u8) << (bit % 8);
    }
    let (scales, biases): (Vec<T>, Vec<T>) =
        (sequence.between(groups, 0.01, 0.5), sequence.between(groups, -4.0, 4.0));
    let want = numbers.iter().enumerate().map(|(i, number)| {
        let (scaled, bias) = (f64::from(*number) * scales[i / group].value(), biases[i / group].value());
        (scaled + bias, 1.1 * T::ROUNDING * (scaled.abs() + (scaled + bias).abs()))
    });
    let want = want.collect();
    let ty = if T::SCALAR == Scalar::F32 { "float".to_owned() } else { format!("{}16_t", float_of::<T>()) };
    // A thread processes one byte, or three if the numbers are not aligned to bytes.
    let threads = words.len() / if bits.is_power_of_two() { 1 } else { 3 };
    Case::new(CORPUS, "quantized.metal", format!("affine_dequantize_{ty}_gs_{group}_b_{bits}"))
        .input(&words)
        .input(&scales)
        .input(&biases)
        .near::<T>(want, "two roundings: a product and a sum, or one of both")
        .threads((threads / 2, 2), (8, 2))
}

fn float_of<T: Element>() -> &'static str {
    if T::SCALAR == Scalar::BF16 { "bfloat" } else { "float" }
}
