//! `<metal_math>` over edge values, in float, half and bfloat, in safe and in fast math.
//!
//! Zeros, infinities and NaN must be exact, including their sign; other results must be within the function's bound.

use std::rc::Rc;

use elinvar::{MathMode, bf16, f16};

use super::math_references::{ANGLE, BINARY, POWERS, ROUNDED, UNARY, frexp, fused, ilogb, modf, nextafter};
use super::numbers::Float;
use super::sheet::{Sheet, Value, Word, pairs, sheets};

sheets!("math_functions": unary_float, unary_half, unary_bfloat, unary_float_fast, unary_half_fast,
    unary_bfloat_fast, binary_float, binary_half, binary_bfloat, binary_float_fast, binary_half_fast,
    binary_bfloat_fast, parts_of_floats, parts_of_halves, parts_of_bfloats, fused_floats, fused_halves,
    fused_bfloats, every_half, vectors_as_scalars, vectors_as_scalars_fast, forms, large_angles);

/// A result as a float: special values must be equal, others within the bound.
#[derive(Clone, Copy, Debug)]
struct Close(f64, f64);

impl Value for Close {
    fn msl() -> String {
        "float".to_owned()
    }
    fn words(self) -> Vec<Word> {
        vec![if self.1 == 0.0 {
            Word::Float(self.0 as f32)
        } else {
            Word::Near(self.0 as f32, self.1 as f32)
        }]
    }
    fn count() -> usize {
        1
    }
}

/// Permitted result of a function of type T for an exact value: an error of at most `units` in the last place.
fn close<T: Float>(exact: f64, units: f64) -> Close {
    let rounded = T::from_f64(exact).to_f64();
    if rounded == 0.0 || !rounded.is_finite() {
        return Close(rounded, 0.0);
    }
    let (digits, least) = match T::msl().as_str() {
        "half" => (11, -14),
        "bfloat" => (8, -126),
        _ => (24, -126),
    };
    let exponent = (((exact.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(least);
    Close(exact, units * 2f64.powi(exponent + 1 - digits))
}

/// Converts a result of type T to float.
const TYPED: &str = "template <typename T, typename U> METAL_FUNC float typed(U v) {
    static_assert(is_same_v<T, U>, \"the type of the result\");
    return float(v);
}
template <typename T> METAL_FUNC T quick(T v) { return fabs(float(v)) > 1e5f && !isinf(v) ? T(1) : v; }";

/// Zeros, the limits of the subnormal and normal numbers, neighbors of 1, halves, multiples of pi/2, infinities, NaN.
fn edges<T: Float>() -> Vec<T> {
    let next = |v: f64, to: f64| nextafter(T::from_f64(v), T::from_f64(to));
    let infinity = T::from_f64(f64::INFINITY);
    let least_normal = if T::msl() == "half" { 2f64.powi(-14) } else { 2f64.powi(-126) };
    let mut all: Vec<T> = [
        0.0,
        0.25,
        0.5,
        0.75,
        1.0,
        1.5,
        2.0,
        2.5,
        3.0,
        3.5,
        7.0,
        10.0,
        20.0,
        88.0,
        100.0,
        1000.0,
        0.001,
        0.3,
        0.62,
        4097.0,
        std::f64::consts::FRAC_PI_2,
        std::f64::consts::PI,
        least_normal,
    ]
    .map(T::from_f64)
    .to_vec();
    all.extend([next(0.0, 1.0), next(least_normal, 0.0), next(1.0, 0.0), next(1.0, 2.0), next(0.5, 0.0)]);
    all.extend([nextafter(infinity, T::from_f64(0.0)), infinity]);
    let negative: Vec<T> = all.iter().map(|v| T::from_f64(-v.to_f64())).collect();
    all.extend(negative);
    all.push(T::from_f64(f64::NAN));
    all
}

fn unary<T: Float>(name: &'static str, math: MathMode) -> Sheet {
    let edges = Rc::new(edges::<T>());
    let ty = T::msl();
    let mut sheet = Sheet::new(name).math(math).declare(TYPED).column("a", &edges);
    let exact = ROUNDED.into_iter().map(|f| (f, 0.5, "a"));
    let near = UNARY.into_iter().map(|f| (f, 4.0, "a"));
    let angle = if math == MathMode::Safe || ty == "half" { "a" } else { "quick(a)" };
    let angles = ANGLE.into_iter().map(|f| (f, 4.0, angle));
    for ((f, reference), units, argument) in exact.chain(near).chain(angles) {
        // Results in half and bfloat are rounded once, from float.
        let units = if ty == "float" { units } else { 0.502 };
        let edges = edges.clone();
        let last = nextafter(T::from_f64(1.0), T::from_f64(0.0)).to_f64();
        sheet = sheet.line(&format!("typed<{ty}>({f}({argument}))"), move |i| {
            let a = edges[i].to_f64();
            let a = if argument != "a" && a.is_finite() && a.abs() > 1e5 { 1.0 } else { a };
            let value = reference(a);
            close::<T>(if f == "fract" { if value > last { last } else { value } } else { value }, units)
        });
    }
    sheet
}

fn binary<T: Float>(name: &'static str, math: MathMode) -> Sheet {
    let edges = edges::<T>();
    let (a, b) = pairs(&edges, &edges);
    let ty = T::msl();
    let mut sheet = Sheet::new(name).math(math).declare(TYPED).column("a", &a).column("b", &b);
    let rows = Rc::new((a, b));
    let powers = if math == MathMode::Safe { 16.0 } else { 40.0 };
    let all = BINARY.into_iter().map(|f| (f, if f.0 == "atan2" { 6.0 } else { 0.5 }));
    for ((f, reference), units) in all.chain(POWERS.into_iter().map(|f| (f, powers))) {
        let units = if ty == "float" { units } else { 0.502 + if f.starts_with("pow") { 0.02 } else { 0.0 } };
        let rows = rows.clone();
        sheet = sheet.line(&format!("typed<{ty}>({f}(a, b))"), move |i| {
            close::<T>(reference(rows.0[i].to_f64(), rows.1[i].to_f64()), units)
        });
    }
    sheet.line("nextafter(a, b)", move |i| nextafter(rows.0[i], rows.1[i]))
}

macro_rules! sheets_of_types {
    ($($name:ident = $family:ident::<$ty:ty>($math:ident);)*) => {
        $(fn $name() -> Sheet {
            $family::<$ty>(stringify!($name), MathMode::$math)
        })*
    };
}
sheets_of_types! {
    unary_float = unary::<f32>(Safe);
    unary_half = unary::<f16>(Safe);
    unary_bfloat = unary::<bf16>(Safe);
    unary_float_fast = unary::<f32>(Fast);
    unary_half_fast = unary::<f16>(Fast);
    unary_bfloat_fast = unary::<bf16>(Fast);
    binary_float = binary::<f32>(Safe);
    binary_half = binary::<f16>(Safe);
    binary_bfloat = binary::<bf16>(Safe);
    binary_float_fast = binary::<f32>(Fast);
    binary_half_fast = binary::<f16>(Fast);
    binary_bfloat_fast = binary::<bf16>(Fast);
    parts_of_floats = parts::<f32>(Safe);
    parts_of_halves = parts::<f16>(Safe);
    parts_of_bfloats = parts::<bf16>(Safe);
    fused_floats = fusion::<f32>(Safe);
    fused_halves = fusion::<f16>(Safe);
    fused_bfloats = fusion::<bf16>(Safe);
    vectors_as_scalars = vectors::<f32>(Safe);
    vectors_as_scalars_fast = vectors::<f16>(Fast);
}

/// frexp, ldexp, ilogb, modf and sincos.
fn parts<T: Float>(name: &'static str, math: MathMode) -> Sheet {
    let exponents = [0, 1, -1, 5, -20, 15, -126, 127, -149, 150, -300, 2000, i32::MAX, i32::MIN];
    let (a, e) = pairs(&edges::<T>(), &exponents);
    let ty = T::msl();
    let sheet = Sheet::new(name).math(math).declare(TYPED).column("a", &a).column("e", &e);
    let a = Rc::new(a);
    let row = move |a: &Rc<Vec<T>>| {
        let a = a.clone();
        move |i: usize| a[i].to_f64()
    };
    let [r1, r2, r3, r4, r5, r6, r7, r8] = std::array::from_fn(|_| row(&a));
    sheet
        .block("frexp", "int x;", "frexp(a, x)", move |i| T::from_f64(frexp(r1(i)).0))
        .block("frexp's exponent", "int x; frexp(a, x);", "x", move |i| frexp(r2(i)).1)
        .line("ilogb(a)", move |i| ilogb(r3(i)))
        .block("modf", &format!("{ty} x;"), "modf(a, x)", move |i| T::from_f64(modf(r4(i)).0))
        .block("modf's whole part", &format!("{ty} x; modf(a, x);"), "x", move |i| T::from_f64(modf(r5(i)).1))
        // 2^e as two factors, each of which is representable in f64.
        .line("ldexp(a, e)", move |i| {
            let e = e[i].clamp(-600, 600);
            T::from_f64(r6(i) * 2f64.powi(e / 2) * 2f64.powi(e - e / 2))
        })
        .block("sincos", &format!("{ty} x;"), &format!("typed<{ty}>(sincos(a, x))"), move |i| {
            close::<T>(r7(i).sin(), 4.0)
        })
        .block("sincos's cosine", &format!("{ty} x; sincos(a, x);"), &format!("typed<{ty}>(x)"), move |i| {
            close::<T>(r8(i).cos(), 4.0)
        })
}

/// A single rounding, including cases where a separately rounded product or sum would round the other way.
fn fusion<T: Float>(name: &'static str, math: MathMode) -> Sheet {
    let some: Vec<T> = edges::<T>().into_iter().step_by(2).collect();
    let mut rows = Vec::new();
    for (i, a) in some.iter().enumerate() {
        for b in &some {
            rows.extend(some.iter().skip(i % 3).step_by(3).map(|c| [*a, *b, *c]));
        }
    }
    let one = |k: i32| T::from_f64(1.0 + 2f64.powi(-k));
    for k in 1..24 {
        for j in 1..24 {
            rows.extend([-40, -24, -11, 3, 20].map(|e| [one(k), one(j), T::from_f64(2f64.powi(e))]));
        }
    }
    let column = |k: usize| rows.iter().map(|r| r[k]).collect::<Vec<T>>();
    let sheet =
        Sheet::new(name).math(math).column("a", &column(0)).column("b", &column(1)).column("c", &column(2));
    sheet.line("fma(a, b, c)", move |i| {
        let [a, b, c] = rows[i].map(Float::to_f64);
        T::from_f64(if T::msl() == "float" {
            f64::from((a as f32).mul_add(b as f32, c as f32))
        } else {
            fused(a, b, c)
        })
    })
}

/// All 65,536 values of half.
fn every_half() -> Sheet {
    let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    let chosen = ["exp", "log", "tanh", "acos", "rsqrt", "exp10", "sinpi", "asinh", "sin", "cos", "tan"];
    let mut sheet = Sheet::new("every_half").declare(TYPED).column("a", &halves);
    for (f, reference) in UNARY.into_iter().chain(ANGLE).filter(|f| chosen.contains(&f.0)) {
        let halves = halves.clone();
        let text = format!("typed<half>({f}(a))");
        sheet = sheet.line(&text, move |i| close::<f16>(reference(halves[i].to_f64()), 0.502));
    }
    for (f, reference) in ROUNDED.into_iter().filter(|f| f.0 != "fract") {
        let halves = halves.clone();
        sheet = sheet.line(&format!("{f}(a)"), move |i| f16::from_f64(reference(halves[i].to_f64())));
    }
    sheet
}

/// Each component of a vector function is the result of the scalar function.
fn vectors<T: Float>(name: &'static str, math: MathMode) -> Sheet {
    let edges = edges::<T>();
    let (a, b) = pairs(&edges[..edges.len() / 2], &edges);
    let ty = T::msl();
    let mut sheet = Sheet::new(name).math(math).column("a", &a).column("b", &b).declare(
        "template <typename T> METAL_FUNC bool one(T a, T b) {
            return (a == b && signbit(a) == signbit(b)) || (isnan(a) && isnan(b));
        }
        template <typename T> METAL_FUNC bool same(vec<T, 2> v, T a, T b) { return one(v.x, a) && one(v.y, b); }
        template <typename T> METAL_FUNC bool same(vec<T, 3> v, T a, T b) { return same(v.xy, a, b) && one(v.z, a); }
        template <typename T> METAL_FUNC bool same(vec<T, 4> v, T a, T b) { return same(v.xyz, a, b) && one(v.w, b); }",
    );
    let unary = ROUNDED.into_iter().chain(UNARY).chain(ANGLE).map(|f| f.0);
    for (k, f) in unary.enumerate() {
        let arguments = ["a, b", "a, b, a", "a, b, a, b"][k % 3];
        sheet = sheet.line(&format!("same({f}({ty}{}({arguments})), {f}(a), {f}(b))", k % 3 + 2), |_| true);
    }
    for (k, f) in BINARY.into_iter().chain(POWERS).map(|f| f.0).chain(["nextafter"]).enumerate() {
        let (n, arguments) =
            (k % 3 + 2, [["a, b", "b, a"], ["a, b, a", "b, a, b"], ["a, b, a, b", "b, a, b, a"]][k % 3]);
        let [x, y] = arguments;
        sheet = sheet
            .line(&format!("same({f}({ty}{n}({x}), {ty}{n}({y})), {f}(a, b), {f}(b, a))"), |_| true)
            .line(&format!("same({f}({ty}{n}({x}), b), {f}(a, b), {f}(b, b))"), |_| true);
    }
    sheet
        .block(
            "frexp of 3",
            "int3 x; int p, q;",
            &format!("same(frexp({ty}3(a, b, a), x), frexp(a, p), frexp(b, q)) && all(x == int3(p, q, p))"),
            |_| true,
        )
        .block(
            "modf of 2",
            &format!("{ty}2 x; {ty} p, q;"),
            &format!("same(modf({ty}2(a, b), x), modf(a, p), modf(b, q)) && same(x, p, q)"),
            |_| true,
        )
        .block(
            "sincos of 4",
            &format!("{ty}4 x; {ty} p, q;"),
            &format!("same(sincos({ty}4(a, b, a, b), x), sincos(a, p), sincos(b, q)) && same(x, p, q)"),
            |_| true,
        )
        .line(&format!("same(ldexp({ty}2(a, b), int2(3, -3)), ldexp(a, 3), ldexp(b, -3))"), |_| true)
        .line(&format!("all(ilogb({ty}3(a, b, a)) == int3(ilogb(a), ilogb(b), ilogb(a)))"), |_| true)
        .line(&format!("same(fma({ty}2(a, b), {ty}2(b, a), {ty}2(a)), fma(a, b, a), fma(b, a, a))"), |_| true)
}

/// `fast` and `precise` by name, in the opposite mode.
fn forms() -> Sheet {
    let edges = Rc::new(edges::<f32>());
    let mut sheet = Sheet::new("forms").math(MathMode::Fast).column("a", &edges);
    for (f, reference) in ROUNDED.into_iter().chain(UNARY).chain(ANGLE).filter(|f| f.0 != "fract") {
        let edges = edges.clone();
        sheet =
            sheet.line(&format!("precise::{f}(a)"), move |i| close::<f32>(reference(edges[i].into()), 4.0));
    }
    for (f, reference) in UNARY {
        let edges = edges.clone();
        sheet = sheet.line(&format!("fast::{f}(a)"), move |i| close::<f32>(reference(edges[i].into()), 4.0));
    }
    for (f, reference) in POWERS {
        let edges = edges.clone();
        sheet = sheet.line(&format!("precise::{f}(a, 2.5f)"), move |i| {
            close::<f32>(reference(edges[i].into(), 2.5), 16.0)
        });
    }
    sheet
}

/// Precise functions of angles of all magnitudes, including those that are hardest to reduce.
fn large_angles() -> Sheet {
    let mut angles: Vec<f32> = (0..4000_u32).map(|i| f32::from_bits(0x4780_0000 + i * 230_000)).collect();
    angles.retain(|a| a.is_finite());
    angles.extend([16_367_173.0 * 2f32.powi(72), 1e30, 131_072.0, 131_071.99, f32::MAX, 3.141_592_7e7]);
    let negative: Vec<f32> = angles.iter().map(|a| -a).collect();
    angles.extend(negative);
    let mut sheet = Sheet::new("large_angles").column("a", &angles);
    for (f, reference) in ANGLE {
        let angles = angles.clone();
        sheet = sheet.line(&format!("{f}(a)"), move |i| close::<f32>(reference(angles[i].into()), 4.0));
    }
    sheet
}
