//! Scalar types: all conversions, `as_type`, and arithmetic of half and bfloat in their own precision.

use elinvar::{MathMode, bf16, f16};

use super::numbers::{round_bfloat, round_half};
use super::sheet::{Sheet, Value, sheets};

sheets!("types": conversions, vector_conversions, reinterpreted_2, reinterpreted_4, reinterpreted_8, reinterpreted_16,
    reinterpreted_bytes, half_arithmetic, bfloat_arithmetic, half_bits, promotions);

/// A value of any scalar type: f64 holds every float, i128 every integer.
#[derive(Clone, Copy, Debug)]
enum Number {
    Integer(i128),
    Float(f64),
}

trait Scalar: Value {
    fn number(self) -> Number;
    fn from_number(n: Number) -> Self;
}

macro_rules! integers {
    ($($host:ty),*) => {$(
        impl Scalar for $host {
            fn number(self) -> Number {
                Number::Integer(i128::from(self))
            }
            /// Integers wrap; floats are truncated and saturate; NaN becomes zero.
            fn from_number(n: Number) -> Self {
                match n {
                    Number::Integer(v) => v as $host,
                    Number::Float(v) => v as $host,
                }
            }
        }
    )*};
}
integers!(i8, u8, i16, u16, i32, u32, i64, u64);

macro_rules! floats {
    ($($host:ty, $from:expr;)*) => {$(
        impl Scalar for $host {
            fn number(self) -> Number {
                Number::Float(f64::from(self))
            }
            fn from_number(n: Number) -> Self {
                $from(n)
            }
        }
    )*};
}
floats! {
    f32, |n| match n {
        Number::Integer(v) => v as f32,
        Number::Float(v) => v as f32,
    };
    f16, |n| match n {
        Number::Integer(v) => f16::from_f32(v as f32),
        Number::Float(v) => round_half(v),
    };
    // The conversion of an integer to bfloat goes through float, so the result may be rounded twice.
    bf16, |n| match n {
        Number::Integer(v) => bf16::from_f32(v as f32),
        Number::Float(v) => round_bfloat(v),
    };
}

impl Scalar for bool {
    fn number(self) -> Number {
        Number::Integer(i128::from(self))
    }
    fn from_number(n: Number) -> Self {
        match n {
            Number::Integer(v) => v != 0,
            Number::Float(v) => v != 0.0,
        }
    }
}

const INTEGERS: [i128; 16] = [
    0,
    1,
    -1,
    2,
    127,
    -128,
    255,
    256,
    32767,
    -32769,
    65535,
    16_777_217,
    i32::MIN as i128,
    i32::MAX as i128,
    i64::MAX as i128,
    u64::MAX as i128,
];
const FLOATS: [f64; 16] = [
    0.0,
    -0.0,
    0.5,
    -0.999,
    1.0,
    -1.5,
    127.5,
    -128.9,
    300.25,
    65504.0,
    70000.0,
    -2.2e9,
    5e9,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

fn integers<T: Scalar>() -> Vec<T> {
    INTEGERS.iter().map(|v| T::from_number(Number::Integer(*v))).collect()
}

fn floats<T: Scalar>() -> Vec<T> {
    FLOATS.iter().map(|v| T::from_number(Number::Float(*v))).collect()
}

/// Calls a macro with each scalar type's host type and the name of its column.
macro_rules! with_scalars {
    ($call:ident) => {
        $call!(i8, "c");
        $call!(u8, "uc");
        $call!(i16, "s");
        $call!(u16, "us");
        $call!(i32, "i_");
        $call!(u32, "u");
        $call!(i64, "l");
        $call!(u64, "ul");
        $call!(f16, "h");
        $call!(bf16, "b");
        $call!(f32, "f");
    };
}

fn scalars(name: &'static str) -> Sheet {
    Sheet::new(name)
        .column("c", &integers::<i8>())
        .column("uc", &integers::<u8>())
        .column("s", &integers::<i16>())
        .column("us", &integers::<u16>())
        .column("i_", &integers::<i32>())
        .column("u", &integers::<u32>())
        .column("l", &integers::<i64>())
        .column("ul", &integers::<u64>())
        .column("h", &floats::<f16>())
        .column("b", &floats::<bf16>())
        .column("f", &floats::<f32>())
}

/// The values of a column of [`scalars`].
fn values<T: Scalar>() -> Vec<T> {
    match T::from_number(Number::Float(0.5)).number() {
        Number::Integer(_) => integers(),
        Number::Float(_) => floats(),
    }
}

fn converted<From: Scalar, To: Scalar>(sheet: Sheet, variable: &str) -> Sheet {
    let from = values::<From>();
    sheet.line(&format!("static_cast<{}>({variable})", To::msl()), move |i| To::from_number(from[i].number()))
}

fn conversions() -> Sheet {
    let mut sheet = scalars("conversions");
    macro_rules! from {
        ($from:ty, $variable:literal) => {
            macro_rules! to {
                ($to:ty, $other:literal) => {
                    sheet = converted::<$from, $to>(sheet, $variable);
                };
            }
            with_scalars!(to);
            sheet = converted::<$from, bool>(sheet, $variable);
        };
    }
    with_scalars!(from);
    sheet
}

fn converted_vector<From: Scalar, To: Scalar>(sheet: Sheet, variable: &str) -> Sheet {
    let from = values::<From>();
    let (f, t) = (From::msl(), To::msl());
    sheet.line(&format!("{t}3({f}3({variable}, {f}(1), {variable}))"), move |i| {
        let v = To::from_number(from[i].number());
        [v, To::from_number(Number::Integer(1)), v]
    })
}

fn vector_conversions() -> Sheet {
    let mut sheet = scalars("vector_conversions");
    macro_rules! from {
        ($from:ty, $variable:literal) => {
            macro_rules! to {
                ($to:ty, $other:literal) => {
                    sheet = converted_vector::<$from, $to>(sheet, $variable);
                };
            }
            with_scalars!(to);
            sheet = converted_vector::<$from, bool>(sheet, $variable);
        };
    }
    with_scalars!(from);
    sheet
}

/// Round trips through every pair of types of one size.
fn reinterpreted<T: Value + bytemuck::Pod + std::fmt::Debug>(
    name: &'static str,
    types: &[&str],
    values: Vec<T>,
) -> Sheet {
    let mut sheet = Sheet::new(name).column("v", &values);
    for first in types {
        for second in types {
            let values = values.clone();
            let line = format!("as_type<{}>(as_type<{first}>(as_type<{second}>(v)))", T::msl());
            sheet = sheet.line(&line, move |i| values[i]);
        }
    }
    sheet
}

fn reinterpreted_2() -> Sheet {
    let types = ["short", "ushort", "half", "bfloat", "char2", "uchar2"];
    reinterpreted("reinterpreted_2", &types, vec![0_u16, 1, 0x7c01, 0xffff, 0x8000, 0x1234])
}

fn reinterpreted_4() -> Sheet {
    let types = ["int", "uint", "float", "short2", "ushort2", "half2", "bfloat2", "char4", "uchar4"];
    reinterpreted(
        "reinterpreted_4",
        &types,
        vec![0_u32, 1, 0x7f80_0001, 0xffff_ffff, 0x8000_0000, 0x1234_5678],
    )
}

fn reinterpreted_8() -> Sheet {
    let types = ["long", "ulong", "int2", "uint2", "float2", "short4", "ushort4", "half4", "bfloat4"];
    reinterpreted(
        "reinterpreted_8",
        &types,
        vec![0_u64, 1, 0x7f80_0001_ff80_0001, u64::MAX, 0x0123_4567_89ab_cdef],
    )
}

fn reinterpreted_16() -> Sheet {
    let types = ["long2", "ulong2", "int4", "uint4", "float4"];
    let values = vec![[0_u32; 4], [1, 2, 3, 4], [0x7f80_0001, 0xff80_0001, u32::MAX, 0x8000_0000]];
    reinterpreted("reinterpreted_16", &types, values)
}

fn reinterpreted_bytes() -> Sheet {
    let values: Vec<u32> = vec![0, 0x3f80_0000, 0x1234_5678, 0x8765_4321, u32::MAX];
    let v = move |i: usize| values[i];
    let [v1, v2, v3, v4, v5, v6] = std::array::from_fn(|_| v.clone());
    Sheet::new("reinterpreted_bytes")
        .column("v", &(0..5).map(&v).collect::<Vec<_>>())
        .line("as_type<uchar4>(v)", move |i| v1(i).to_le_bytes())
        .line("as_type<char4>(v)", move |i| v2(i).to_le_bytes().map(|b| b as i8))
        .line("as_type<ushort2>(v)", move |i| [v3(i) as u16, (v3(i) >> 16) as u16])
        .line("as_type<float>(v)", move |i| f32::from_bits(v4(i)))
        .line("as_type<float3>(uint3(v, ~v, v + 1u))", move |i| {
            [v5(i), !v5(i), v5(i).wrapping_add(1)].map(f32::from_bits)
        })
        .line("as_type<uint>(as_type<uchar4>(v).wzyx)", move |i| v6(i).swap_bytes())
}

/// Every half and bfloat bit pattern, paired with another one.
fn patterns() -> (Vec<u16>, Vec<u16>) {
    let a: Vec<u16> = (0..=u16::MAX).collect();
    let b = a.iter().map(|a| a.wrapping_mul(40_503).rotate_left(5) ^ 0x3c00).collect();
    (a, b)
}

/// Avoids subnormal numbers: bfloat instructions may flush subnormal operands, and products must be normal as well.
fn large_or_zero(bits: u16) -> u16 {
    if bits & 0x7fff == 0 || bits & 0x6000 != 0 { bits } else { bits | 0x2000 }
}

/// The operators on values of a 16-bit type, each with a single rounding.
fn narrow_arithmetic<T: Value>(
    name: &'static str,
    (a, b): (Vec<u16>, Vec<u16>),
    from_bits: fn(u16) -> T,
    to: fn(T) -> f64,
    round: fn(f64) -> T,
) -> Sheet {
    let ty = T::msl();
    let mut sheet = Sheet::new(name)
        .column("ab", &a)
        .column("bb", &b)
        .declare(&format!("#define A as_type<{ty}>(ab)\n#define B as_type<{ty}>(bb)"));
    type Operator = (&'static str, fn(f64, f64) -> f64);
    let operators: [Operator; 4] =
        [("+", |a, b| a + b), ("-", |a, b| a - b), ("*", |a, b| a * b), ("/", |a, b| a / b)];
    for (operator, f) in operators {
        let (a, b) = (a.clone(), b.clone());
        sheet = sheet
            .line(&format!("A {operator} B"), move |i| round(f(to(from_bits(a[i])), to(from_bits(b[i])))));
    }
    let at = move |i: usize| (to(from_bits(a[i])), to(from_bits(b[i])));
    let [c1, c2, c3, c4, c5, c6] = std::array::from_fn(|_| at.clone());
    sheet
        .line("A < B", move |i| c1(i).0 < c1(i).1)
        .line("A == B", move |i| c2(i).0 == c2(i).1)
        .line("-A", move |i| round(-c3(i).0))
        .line("float(A)", move |i| c4(i).0 as f32)
        .block("two roundings", &format!("{ty} v = A * B; v += A;"), "v", move |i| {
            let (a, b) = c5(i);
            round(to(round(a * b)) + a)
        })
        .line(&format!("{ty}2(A, B) * {ty}(3) - {ty}2(B, A)"), move |i| {
            let (a, b) = c6(i);
            [round(to(round(a * 3.0)) - b), round(to(round(b * 3.0)) - a)]
        })
        .math(MathMode::Safe)
}

fn half_arithmetic() -> Sheet {
    narrow_arithmetic("half_arithmetic", patterns(), f16::from_bits, f16::to_f64, round_half)
}

fn bfloat_arithmetic() -> Sheet {
    let (a, b) = patterns();
    let normal = |bits: Vec<u16>| bits.into_iter().map(large_or_zero).collect();
    narrow_arithmetic(
        "bfloat_arithmetic",
        (normal(a), normal(b)),
        bf16::from_bits,
        bf16::to_f64,
        round_bfloat,
    )
}

/// Floats near each half, on either side of it and of the midpoint to the next.
fn half_bits() -> Sheet {
    let near: Vec<f32> = (0..=u16::MAX)
        .map(|bits| {
            let (v, offset) = (f16::from_bits(bits).to_f32(), (bits % 5) as i32 - 2);
            f32::from_bits(
                (v.to_bits() as i32).wrapping_add(offset + i32::from(bits % 3 == 0) * 0x1000) as u32
            )
        })
        .collect();
    let (n1, n2) = (near.clone(), near.clone());
    Sheet::new("half_bits")
        .column("f", &near)
        .line("half(f)", move |i| f16::from_f32(n1[i]))
        .line("bfloat(f)", move |i| bf16::from_f32(n2[i]))
}

/// Types of operations on two types.
fn promotions() -> Sheet {
    Sheet::new("promotions")
        .column("c", &[-3_i8])
        .column("us", &[65535_u16])
        .column("n", &[-7_i32])
        .column("u", &[7_u32])
        .column("l", &[1_i64 << 40])
        .column("h", &[f16::from_f32(1.5)])
        .column("f", &[0.1_f32])
        .column("b", &[bf16::from_f32(2.5)])
        .line("c + c", |_| -6_i32)
        .line("us * us", |_| 0xfffe_0001_u32 as i32)
        .line("c + u", |_| 4_u32)
        .line("n + u", |_| 0_u32)
        .line("n + l", |_| (1_i64 << 40) - 7)
        .line("us + h", |_| f16::INFINITY)
        .line("c * h", |_| f16::from_f32(-4.5))
        .line("h + f", |_| 1.6_f32)
        .line("b * f", |_| 0.25_f32)
        .line("b + n", |_| bf16::from_f32(-4.5))
        .line("h * 2.0h", |_| f16::from_f32(3.0))
        .line("h * 2.0", |_| 3.0_f32)
        .line("f * 2", |_| 0.2_f32)
        .line("1.0 / 3.0", |_| 1.0_f32 / 3.0)
        .line("true + true", |_| 2_i32)
        .line("'a'", |_| 97_i8)
        .line("n / 2 * 2", |_| -6_i32)
        .line("n % 4", |_| -3_i32)
        .line("n >> 1", |_| -4_i32)
        .line("u > n", |_| false)
        .line("c < 0 ? h : f", |_| 1.5_f32)
        .line("(n, u)", |_| 7_u32)
        .line("sizeof(l) + sizeof(h)", |_| 10_u64)
}
