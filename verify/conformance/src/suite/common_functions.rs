//! `<metal_common>`, and minima and maxima, for float, half and bfloat.

use elinvar::{bf16, f16};

use super::numbers::Float;
use super::sheet::{Near, Sheet, near, sheets};

sheets!("common_functions": on_float, on_half, on_bfloat, interpolation, of_integers, of_mixed_arguments);

type Unary = (&'static str, fn(f64) -> f64);
type Binary = (&'static str, fn(f64, f64) -> f64);
type Ternary = (&'static str, fn(f64, f64, f64) -> f64);

fn sign(v: f64) -> f64 {
    if v.is_nan() {
        0.0
    } else if v == 0.0 {
        v
    } else {
        v.signum()
    }
}

fn median(a: f64, b: f64, c: f64) -> f64 {
    let mut all = [a, b, c];
    all.sort_by(f64::total_cmp);
    all[1]
}

const UNARY: [Unary; 4] = [
    ("abs", f64::abs),
    ("fabs", f64::abs),
    ("sign", sign),
    ("saturate", |v| if v > 0.0 { v.min(1.0) } else { 0.0 }),
];

/// If one argument is NaN, `min` and `max` of f64 return the other one, as MSL's do.
const BINARY: [Binary; 5] = [
    ("min", f64::min),
    ("max", f64::max),
    ("fmin", f64::min),
    ("fmax", f64::max),
    ("step", |edge, v| if v < edge { 0.0 } else { 1.0 }),
];

const TERNARY: [Ternary; 7] = [
    ("min3", |a, b, c| a.min(b).min(c)),
    ("max3", |a, b, c| a.max(b).max(c)),
    ("fmin3", |a, b, c| a.min(b).min(c)),
    ("fmax3", |a, b, c| a.max(b).max(c)),
    ("median3", median),
    ("fmedian3", median),
    ("ordered_clamp", |v, a, b| v.max(a.min(b)).min(a.max(b))),
];

/// Without zeros of both signs: which of them is the minimum is not specified.
const EDGES: [f64; 11] =
    [0.0, 1.0, -1.0, 0.5, -2.25, 1e-6, 300.0, -60000.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];

fn family<T: Float>(name: &'static str) -> Sheet {
    let edges: Vec<T> = EDGES.iter().map(|v| T::from_f64(*v)).collect();
    let numbers: Vec<T> = edges.iter().copied().filter(|v| !v.to_f64().is_nan()).collect();
    let mut rows = Vec::new();
    for a in &edges {
        for b in &numbers {
            rows.extend(numbers.iter().map(|c| (*a, *b, *c)));
        }
    }
    let column = |k: fn(&(T, T, T)) -> T| rows.iter().map(k).collect::<Vec<T>>();
    let columns = [column(|r| r.0), column(|r| r.1), column(|r| r.2)];
    let row = move |i: usize| (rows[i].0.to_f64(), rows[i].1.to_f64(), rows[i].2.to_f64());
    let row = std::rc::Rc::new(row);
    let ty = T::msl();
    let mut sheet = Sheet::new(name)
        .declare("template <typename T> METAL_FUNC T ordered_clamp(T v, T a, T b) { return clamp(v, min(a, b), max(a, b)); }")
        .column("a", &columns[0])
        .column("b", &columns[1])
        .column("c", &columns[2]);
    for (f, reference) in UNARY {
        let (r1, r2) = (row.clone(), row.clone());
        sheet = sheet
            .line(&format!("{f}(a)"), move |i| T::from_f64(reference(r1(i).0)))
            .line(&format!("{f}({ty}2(b, a))"), move |i| {
                [r2(i).1, r2(i).0].map(|v| T::from_f64(reference(v)))
            });
    }
    for (f, reference) in BINARY {
        let (r1, r2) = (row.clone(), row.clone());
        sheet = sheet.line(&format!("{f}(a, b)"), move |i| T::from_f64(reference(r1(i).0, r1(i).1))).line(
            &format!("{f}({ty}3(b, a, c), {ty}3(c, b, b))"),
            move |i| {
                let (a, b, c) = r2(i);
                [reference(b, c), reference(a, b), reference(c, b)].map(T::from_f64)
            },
        );
    }
    for (f, reference) in TERNARY {
        // The median of values with a NaN is not specified.
        let safe = if f.ends_with("median3") { "(isnan(a) ? b : a)" } else { "a" };
        let median = f.ends_with("median3");
        let pick = move |(a, b, c): (f64, f64, f64)| if median && a.is_nan() { (b, b, c) } else { (a, b, c) };
        let (r1, r2) = (row.clone(), row.clone());
        sheet = sheet
            .line(&format!("{f}({safe}, b, c)"), move |i| {
                let (a, b, c) = pick(r1(i));
                T::from_f64(reference(a, b, c))
            })
            .line(&format!("{f}({ty}4({safe}, b, c, b), {ty}4(b), {ty}4(c, b, c, c))"), move |i| {
                let (a, b, c) = pick(r2(i));
                [reference(a, b, c), reference(b, b, b), reference(c, b, c), reference(b, b, c)]
                    .map(T::from_f64)
            });
    }
    sheet.line(&format!("sign({ty}(-0.0))"), |_| T::from_f64(-0.0))
}

fn on_float() -> Sheet {
    family::<f32>("on_float")
}
fn on_half() -> Sheet {
    family::<f16>("on_half")
}
fn on_bfloat() -> Sheet {
    family::<bf16>("on_bfloat")
}

fn interpolation() -> Sheet {
    let a = [0.0_f32, 1.0, -3.0, 5.5, 1e6];
    let b = [1.0_f32, 2.0, 7.0, 5.75, -1e6];
    let t = [0.0_f32, 1.0, 0.5, 5.6, 0.1];
    let mix = |a: f32, b: f32, t: f32| f64::from(a) + (f64::from(b) - f64::from(a)) * f64::from(t);
    let smooth = |a: f32, b: f32, v: f32| {
        let t = ((f64::from(v) - f64::from(a)) / (f64::from(b) - f64::from(a))).clamp(0.0, 1.0);
        t * t * (3.0 - 2.0 * t)
    };
    let wide = |v: f64| Near(v as f32, (v.abs() * 1e-5 + 1e-6) as f32);
    Sheet::new("interpolation")
        .column("a", &a)
        .column("b", &b)
        .column("t", &t)
        .line("mix(a, b, t)", move |i| wide(mix(a[i], b[i], t[i])))
        .line("mix(float2(a, b), float2(b, a), t)", move |i| {
            [wide(mix(a[i], b[i], t[i])), wide(mix(b[i], a[i], t[i]))]
        })
        .line("mix(float2(a, b), float2(b, a), float2(t, 0.25))", move |i| {
            [wide(mix(a[i], b[i], t[i])), near(mix(b[i], a[i], 0.25))]
        })
        .line("float(mix(half(t), half(3), half(0.5)))", move |i| half_mix(t[i]))
        .line("smoothstep(a, b, t)", move |i| wide(smooth(a[i], b[i], t[i])))
        .line("smoothstep(a, b, a)", |_| 0.0_f32)
        .line("smoothstep(a, b, b)", |_| 1.0_f32)
        .line("smoothstep(float2(0), float2(1, 2), float2(t))", move |i| {
            [wide(smooth(0.0, 1.0, t[i])), wide(smooth(0.0, 2.0, t[i]))]
        })
        .line("smoothstep(0, 1, float3(t, -1, 2))", move |i| {
            [wide(smooth(0.0, 1.0, t[i])), Near(0.0, 0.0), Near(1.0, 0.0)]
        })
        .line("fast::clamp(t, 0.25f, 0.75f) + precise::max(a, b)", move |i| {
            t[i].clamp(0.25, 0.75) + a[i].max(b[i])
        })
}

fn of_integers() -> Sheet {
    let x = [0_i32, -1, 7, i32::MIN, i32::MAX];
    Sheet::new("of_integers")
        .column("x", &x)
        .line("clamp(x, -5, 5)", move |i| x[i].clamp(-5, 5))
        .line("clamp(int3(x, 2, -9), -5, 5)", move |i| [x[i].clamp(-5, 5), 2, -5])
        .line("clamp(uint(x), 3u, 10u)", move |i| (x[i] as u32).clamp(3, 10))
        .line("clamp(char2(char(x)), char(-3), char(3))", move |i| [(x[i] as i8).clamp(-3, 3); 2])
        .line("min(x, 3)", move |i| x[i].min(3))
        .line("max(uint2(uint(x), 1), 2u)", move |i| [(x[i] as u32).max(2), 2])
        .line("abs(short(x))", move |i| (x[i] as i16).wrapping_abs())
        .line("abs(int2(x, -4))", move |i| [x[i].wrapping_abs(), 4])
        .line("min(ulong(x), 9ul)", move |i| (x[i] as u64).min(9))
}

/// Scalars of different types are converted to the type of an operation on them; a scalar combined with a vector to the vector's element
/// type.
fn of_mixed_arguments() -> Sheet {
    let f = [0.75_f32, -4.0];
    Sheet::new("of_mixed_arguments")
        .column("f", &f)
        .line("max(f, 0)", move |i| f[i].max(0.0))
        .line("min(0.5h, f)", move |i| f[i].min(0.5))
        .line("clamp(f, 0, 1)", move |i| f[i].clamp(0.0, 1.0))
        .line("clamp(float2(f, 3), 0, 1)", move |i| [f[i].clamp(0.0, 1.0), 1.0])
        .line("max(half3(f), 0)", move |i| [f16::from_f32(f[i].max(0.0)); 3])
        .line("min(float4(f), 0.5h)", move |i| [f[i].min(0.5); 4])
        .line("max(packed_float3(f, 0, 1), float3(0))", move |i| [f[i].max(0.0), 0.0, 1.0])
        .line("step(0, float2(f, 1))", move |i| [if f[i] < 0.0 { 0.0_f32 } else { 1.0 }, 1.0])
        .line("saturate(float3(f, 2, -2))", move |i| [f[i].clamp(0.0, 1.0), 1.0, 0.0])
        .line("metal::max(bfloat(f), bfloat(1))", |_| bf16::ONE)
        .block("scalar types", "auto r = min(char(3), short(f));", "r", move |i| 3.min(f[i] as i32))
}

/// `mix(v, 3, 0.5)` in half, with each operation rounded.
fn half_mix(v: f32) -> f32 {
    let v = f16::from_f32(v);
    let rest = f16::from_f32(3.0 - v.to_f32());
    f16::from_f32(v.to_f32() + rest.to_f32() * 0.5).to_f32()
}
