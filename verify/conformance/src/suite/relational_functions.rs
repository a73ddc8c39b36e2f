//! `<metal_relational>`: classification of floats of every width, selection.

use elinvar::{MathMode, bf16, f16};

use super::numbers::Float;
use super::sheet::{Sheet, sheets};

sheets!("relational_functions": on_float, on_half, on_bfloat, on_float_in_fast_mode, all_and_any, select_between);

/// Classification of a value by the host.
struct Class {
    nan: bool,
    infinite: bool,
    normal: bool,
    negative: bool,
}

fn family<T: Float>(name: &'static str, values: Vec<T>, class: fn(T) -> Class, math: MathMode) -> Sheet {
    let ty = T::msl();
    let mut sheet = Sheet::new(name).math(math).column("a", &values);
    type Question = (&'static str, fn(&Class) -> bool);
    let questions: [Question; 5] = [
        ("isnan", |c| c.nan),
        ("isinf", |c| c.infinite),
        ("isfinite", |c| !c.nan && !c.infinite),
        ("isnormal", |c| c.normal),
        ("signbit", |c| c.negative),
    ];
    for (f, reference) in questions {
        let (v1, v2, v3, v4) = (values.clone(), values.clone(), values.clone(), values.clone());
        let of = move |v: T| reference(&class(v));
        let one = T::from_f64(1.0);
        sheet = sheet
            .line(&format!("{f}(a)"), move |i| of(v1[i]))
            .line(&format!("{f}({ty}2(1, a))"), move |i| [of(one), of(v2[i])])
            .line(&format!("{f}({ty}3(a, 1, a))"), move |i| [of(v3[i]), of(one), of(v3[i])])
            .line(&format!("{f}({ty}4(1, a, 1, a))"), move |i| [of(one), of(v4[i]), of(one), of(v4[i])]);
    }
    let (v1, v2, v3) = (values.clone(), values.clone(), values);
    sheet
        .line(&format!("isordered(a, {ty}(1))"), move |i| !class(v1[i]).nan)
        .line(&format!("isunordered({ty}(1), a)"), move |i| class(v2[i]).nan)
        .line(&format!("isunordered({ty}2(a, 1), {ty}2(1, 1))"), move |i| [class(v3[i]).nan, false])
}

fn floats() -> Vec<f32> {
    let mut all = vec![0.0, 1.0, f32::MIN_POSITIVE, f32::from_bits(1), f32::from_bits(0x7f_ffff), f32::MAX];
    all.extend([f32::INFINITY, f32::NAN, f32::from_bits(0x7f80_0001), 3.25e-5]);
    let negative: Vec<f32> = all.iter().map(|v| -v).collect();
    all.extend(negative);
    all
}

fn float_class(v: f32) -> Class {
    Class {
        nan: v.is_nan(),
        infinite: v.is_infinite(),
        normal: v.is_normal(),
        negative: v.is_sign_negative(),
    }
}

fn on_float() -> Sheet {
    family("on_float", floats(), float_class, MathMode::Safe)
}

/// Infinities and NaN are classified correctly in the default mode as well.
fn on_float_in_fast_mode() -> Sheet {
    family("on_float_in_fast_mode", floats(), float_class, MathMode::Fast)
}

fn on_half() -> Sheet {
    let class = |v: f16| Class {
        nan: v.is_nan(),
        infinite: v.is_infinite(),
        normal: v.is_normal(),
        negative: v.is_sign_negative(),
    };
    family(
        "on_half",
        (0..=u16::MAX).step_by(31).chain([1, 0x3ff, 0x400]).map(f16::from_bits).collect(),
        class,
        MathMode::Safe,
    )
}

fn on_bfloat() -> Sheet {
    let class = |v: bf16| Class {
        nan: v.is_nan(),
        infinite: v.is_infinite(),
        normal: v.is_normal(),
        negative: v.is_sign_negative(),
    };
    family(
        "on_bfloat",
        (0..=u16::MAX).step_by(31).chain([1, 0x7f, 0x80]).map(bf16::from_bits).collect(),
        class,
        MathMode::Safe,
    )
}

fn all_and_any() -> Sheet {
    let n: Vec<u32> = (0..16).collect();
    let bit = |i: usize, k: usize| i >> k & 1 == 1;
    let of = move |i: usize, length: usize| (0..length).map(move |k| bit(i, k));
    let mut sheet =
        Sheet::new("all_and_any").column("n", &n).declare("#define B bool4(n & 1u, n & 2u, n & 4u, n & 8u)");
    for (length, letters) in [(2, "xy"), (3, "xyz"), (4, "xyzw")] {
        sheet = sheet
            .line(&format!("all(B.{letters})"), move |i| of(i, length).all(|b| b))
            .line(&format!("any(B.{letters})"), move |i| of(i, length).any(|b| b))
            .line(&format!("all(not(B.{letters}))"), move |i| !of(i, length).any(|b| b));
    }
    sheet
        .line("all(bool(n & 1u))", move |i| bit(i, 0))
        .line("any(uint2(n) == uint2(3, 5))", move |i| i == 3 || i == 5)
        .line("all(float3(n) < 7.5f)", move |i| i < 8)
}

fn select_between() -> Sheet {
    let a = [1.5_f32, f32::NAN, -0.0, 7.0];
    let b = [2.5_f32, 3.0, f32::INFINITY, 9.0];
    let c = [false, true, true, false].map(u32::from);
    let pick = move |i: usize, second: bool| if second { b[i] } else { a[i] };
    Sheet::new("select_between")
        .column("a", &a)
        .column("b", &b)
        .column("c", &c)
        .line("select(a, b, bool(c))", move |i| pick(i, c[i] != 0))
        .line("select(a, b, c != 0)", move |i| pick(i, c[i] != 0))
        .line("select(float2(a), float2(b), bool2(c, !c))", move |i| [pick(i, c[i] != 0), pick(i, c[i] == 0)])
        .line("select(float3(a), float3(b), float3(a) < float3(b, 0, 8))", move |i| {
            [pick(i, a[i] < b[i]), pick(i, a[i] < 0.0), pick(i, a[i] < 8.0)]
        })
        .line("select(float4(a), float4(b), bool(c))", move |i| [pick(i, c[i] != 0); 4])
        .line("select(int2(1, 2), int2(3, 4), bool2(c, true))", move |i| [if c[i] == 0 { 1 } else { 3 }, 4])
        .line("select(uchar(200), uchar(100), bool(c))", move |i| if c[i] == 0 { 200_u8 } else { 100 })
        .line("select(half4(1), half4(2), bool4(c, false, true, c))", move |i| {
            [c[i] != 0, false, true, c[i] != 0].map(|s| f16::from_f32(if s { 2.0 } else { 1.0 }))
        })
        .line("select(bfloat(1), bfloat(2), bool(c))", move |i| bf16::from_f32(1.0 + c[i] as f32))
        .line("select(-5l, 1l << 40, bool(c))", move |i| if c[i] == 0 { -5_i64 } else { 1 << 40 })
        .line("select(bool2(true), bool2(false), bool2(c, false))", move |i| [c[i] == 0, true])
        .line("select(float3(a), 0, isnan(float3(a, 1, b)))", move |i| {
            [a[i], 1.0, b[i]].map(|v| if v.is_nan() { 0.0 } else { a[i] })
        })
}
