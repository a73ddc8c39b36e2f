//! `<metal_geometric>` and `<metal_pack>`.

use elinvar::{MathMode, f16};

use super::sheet::{Near, Sheet, Value, sheets};

sheets!("geometric_functions": on_float2, on_float3, on_float4, on_other_types, bending, packing, packing_edges, unpacking);

const ROWS: usize = 6;

fn p<const N: usize>(i: usize) -> [f32; N] {
    std::array::from_fn(|k| ((i * 7 + k * 3) % 11) as f32 * 0.75 - 3.0)
}

fn q<const N: usize>(i: usize) -> [f32; N] {
    std::array::from_fn(|k| ((i * 5 + k * 2) % 7) as f32 - 2.5)
}

fn dot<const N: usize>(a: [f32; N], b: [f32; N]) -> f64 {
    (0..N).map(|k| f64::from(a[k]) * f64::from(b[k])).sum()
}

fn minus<const N: usize>(a: [f32; N], b: [f32; N]) -> [f32; N] {
    std::array::from_fn(|k| a[k] - b[k])
}

fn close(v: f64) -> Near {
    Near(v as f32, (v.abs() * 2e-6 + 2e-6) as f32)
}

/// One column per component, because the size of a vector of three is not that of three scalars.
fn columns<const N: usize>(mut sheet: Sheet) -> Sheet {
    for k in 0..N {
        let (a, b): (Vec<f32>, Vec<f32>) = (0..ROWS).map(|i| (p::<N>(i)[k], q::<N>(i)[k])).unzip();
        sheet = sheet.column(&format!("p{k}"), &a).column(&format!("q{k}"), &b);
    }
    let list = |letter: &str| (0..N).map(|k| format!("{letter}{k}")).collect::<Vec<_>>().join(", ");
    sheet.declare(&format!("#define P float{N}({})\n#define Q float{N}({})", list("p"), list("q")))
}

fn family<const N: usize>(name: &'static str) -> Sheet
where
    [Near; N]: Value,
{
    columns::<N>(Sheet::new(name).math(MathMode::Fast))
        .line("dot(P, Q)", |i| close(dot(p::<N>(i), q::<N>(i))))
        .line("length_squared(P)", |i| close(dot(p::<N>(i), p::<N>(i))))
        .line("length(P)", |i| close(dot(p::<N>(i), p::<N>(i)).sqrt()))
        .line("distance(P, Q)", |i| {
            let d = minus(p::<N>(i), q::<N>(i));
            close(dot(d, d).sqrt())
        })
        .line("distance_squared(P, Q)", |i| {
            let d = minus(p::<N>(i), q::<N>(i));
            close(dot(d, d))
        })
        .line("normalize(Q)", |i| {
            let length = dot(q::<N>(i), q::<N>(i)).sqrt();
            q::<N>(i).map(|v| close(f64::from(v) / length))
        })
        .line("reflect(P, Q)", |i| {
            let by = 2.0 * dot(p::<N>(i), q::<N>(i));
            std::array::from_fn::<_, N, _>(|k| close(f64::from(p::<N>(i)[k]) - by * f64::from(q::<N>(i)[k])))
        })
        .line("faceforward(P, Q, P)", |i| {
            let front = dot(p::<N>(i), q::<N>(i)) < 0.0;
            p::<N>(i).map(|v| close(f64::from(if front { v } else { -v })))
        })
        .line("fast::length(P) + precise::distance(P, P)", |i| close(dot(p::<N>(i), p::<N>(i)).sqrt()))
}

fn on_float2() -> Sheet {
    family::<2>("on_float2")
}

fn on_float3() -> Sheet {
    let cross = |a: [f32; 3], b: [f32; 3]| {
        std::array::from_fn::<_, 3, _>(|k| {
            let (m, n) = ((k + 1) % 3, (k + 2) % 3);
            close(f64::from(a[m]) * f64::from(b[n]) - f64::from(a[n]) * f64::from(b[m]))
        })
    };
    family::<3>("on_float3")
        .line("cross(P, Q)", move |i| cross(p(i), q(i)))
        .line("cross(packed_float3(P), Q)", move |i| cross(p(i), q(i)))
        .line("reflect(packed_float3(P), float3(0, 1, 0))", |i| {
            let [x, y, z] = p(i);
            [x, -y, z].map(|v| close(f64::from(v)))
        })
}

fn on_float4() -> Sheet {
    family::<4>("on_float4")
}

/// Small integers, which are exact in half and bfloat.
fn on_other_types() -> Sheet {
    Sheet::new("on_other_types")
        .column("n", &[1_i32, -2, 3])
        .line("dot(half3(n, 2, 3), half3(4, 5, 6))", |i| f16::from_f32([32.0, 20.0, 40.0][i]))
        .line("dot(bfloat2(n, 2), bfloat2(3, 4))", |i| elinvar::bf16::from_f32([11.0, 2.0, 17.0][i]))
        .line("dot(int3(n), int3(1, 10, 100))", |i| [111_i32, -222, 333][i])
        .line("length_squared(half2(n))", |i| f16::from_f32([2.0, 8.0, 18.0][i]))
        .line("length(half2(3, 4) * half(n))", |i| f16::from_f32([5.0, 10.0, 15.0][i]))
        .line("cross(half3(n, 0, 0), half3(0, 1, 0))", |i| [0.0, 0.0, [1.0, -2.0, 3.0][i]].map(f16::from_f32))
        .line("distance(half2(n, 1), half2(n, 4))", |_| f16::from_f32(3.0))
        .line("normalize(half2(n, 0))", |i| [if i == 1 { -1.0 } else { 1.0 }, 0.0].map(f16::from_f32))
        .line("faceforward(half2(1, 2), half2(n), half2(1))", |i| {
            [1.0, 2.0].map(|v| f16::from_f32(if i == 1 { v } else { -v }))
        })
}

fn bending() -> Sheet {
    let angles = [0.0_f32, 0.3, 0.8, 1.2, 1.5];
    let refract = |angle: f32, ratio: f64| {
        let (x, y) = (f64::from(angle.sin()), -f64::from(angle.cos()));
        let k = 1.0 - ratio * ratio * (1.0 - y * y);
        // The normal is (0, 1).
        if k < 0.0 { [close(0.0); 2] } else { [close(ratio * x), close(ratio * y - (ratio * y + k.sqrt()))] }
    };
    let (x, y): (Vec<f32>, Vec<f32>) = angles.iter().map(|a| (a.sin(), -a.cos())).unzip();
    let looser = |v: [Near; 2]| v.map(|n| Near(n.0, 1e-5));
    Sheet::new("bending")
        .column("x", &x)
        .column("y", &y)
        .line("refract(float2(x, y), float2(0, 1), 0.75f)", move |i| looser(refract(angles[i], 0.75)))
        .line("refract(float2(x, y), float2(0, 1), 1.5)", move |i| looser(refract(angles[i], 1.5)))
        .line("refract(float3(x, y, 0), packed_float3(0, 1, 0), 1).xy", move |i| {
            looser(refract(angles[i], 1.0))
        })
}

fn unorm(v: f32, bits: u32) -> u32 {
    let most = f64::from((1_u32 << bits) - 1);
    (if v > 0.0 { f64::from(v).min(1.0) } else { 0.0 } * most).round_ties_even() as u32
}

fn snorm(v: f32, bits: u32) -> u32 {
    let most = f64::from((1_u32 << (bits - 1)) - 1);
    let v = if v.is_nan() { 0.0 } else { f64::from(v).clamp(-1.0, 1.0) };
    (v * most).round_ties_even() as i32 as u32 & ((1 << bits) - 1)
}

fn pack_family(name: &'static str, v: Vec<f32>) -> Sheet {
    let w: Vec<f32> = v.iter().rev().copied().collect();
    let at = std::rc::Rc::new((v.clone(), w.clone()));
    let row = || {
        let at = at.clone();
        move |i: usize| (at.0[i], at.1[i])
    };
    let (r1, r2, r3, r4, r5, r6, r7) = (row(), row(), row(), row(), row(), row(), row());
    Sheet::new(name)
        .column("v", &v)
        .column("w", &w)
        .line("pack_float_to_unorm4x8(float4(v, w, 0.5f, v))", move |i| {
            let (v, w) = r1(i);
            unorm(v, 8) | unorm(w, 8) << 8 | unorm(0.5, 8) << 16 | unorm(v, 8) << 24
        })
        .line("pack_float_to_snorm4x8(float4(v, w, -0.5f, v))", move |i| {
            let (v, w) = r2(i);
            snorm(v, 8) | snorm(w, 8) << 8 | snorm(-0.5, 8) << 16 | snorm(v, 8) << 24
        })
        .line("pack_float_to_unorm2x16(float2(v, w))", move |i| unorm(r3(i).0, 16) | unorm(r3(i).1, 16) << 16)
        .line("pack_float_to_snorm2x16(float2(v, w))", move |i| snorm(r4(i).0, 16) | snorm(r4(i).1, 16) << 16)
        .line("pack_float_to_unorm10a2(float4(v, w, 0.25f, w))", move |i| {
            let (v, w) = r5(i);
            unorm(v, 10) | unorm(w, 10) << 10 | unorm(0.25, 10) << 20 | unorm(w, 2) << 30
        })
        .line("pack_float_to_unorm565(float3(v, w, 0.25f))", move |i| {
            let (v, w) = r6(i);
            (unorm(v, 5) << 11 | unorm(w, 6) << 5 | unorm(0.25, 5)) as u16
        })
        .line("pack_half_to_snorm4x8(half4(half(v), half(w), 0, 1))", move |i| {
            let half = |v: f32| f16::from_f32(v).to_f32();
            snorm(half(r7(i).0), 8) | snorm(half(r7(i).1), 8) << 8 | snorm(1.0, 8) << 24
        })
}

fn packing() -> Sheet {
    pack_family("packing", (0..200).map(|i| i as f32 * 0.0113 - 1.1).collect())
}

fn packing_edges() -> Sheet {
    let special = [0.0, -0.0, 1.0, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40, 1e30];
    pack_family("packing_edges", special.to_vec())
}

fn unpacking() -> Sheet {
    let words: Vec<u32> = (0..64_u32).map(|i| i.wrapping_mul(0x9e37_79b9) ^ 0x8000_7f80).collect();
    let word = std::rc::Rc::new(words.clone());
    let row = || {
        let word = word.clone();
        move |i: usize| word[i]
    };
    let (w1, w2, w3, w4, w5, w6, w7) = (row(), row(), row(), row(), row(), row(), row());
    let u = |w: u32, at: u32, bits: u32| {
        close(f64::from(w >> at & ((1 << bits) - 1)) / f64::from((1 << bits) - 1))
    };
    let s = |w: u32, at: u32, bits: u32| {
        let v = ((w << (32 - bits - at)) as i32) >> (32 - bits);
        close((f64::from(v) / f64::from((1 << (bits - 1)) - 1)).max(-1.0))
    };
    let linear = |n: Near| {
        let v = f64::from(n.0);
        close(if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) })
    };
    Sheet::new("unpacking")
        .column("w", &words)
        .line("unpack_unorm4x8_to_float(w)", move |i| [0, 8, 16, 24].map(|at| u(w1(i), at, 8)))
        .line("unpack_snorm4x8_to_float(w)", move |i| [0, 8, 16, 24].map(|at| s(w2(i), at, 8)))
        .line("unpack_unorm2x16_to_float(w)", move |i| [0, 16].map(|at| u(w3(i), at, 16)))
        .line("unpack_snorm2x16_to_float(w)", move |i| [0, 16].map(|at| s(w4(i), at, 16)))
        .line("unpack_unorm10a2_to_float(w)", move |i| {
            [u(w5(i), 0, 10), u(w5(i), 10, 10), u(w5(i), 20, 10), u(w5(i), 30, 2)]
        })
        .line("unpack_unorm565_to_float(ushort(w))", move |i| {
            [u(w6(i), 11, 5), u(w6(i), 5, 6), u(w6(i), 0, 5)]
        })
        .line("unpack_unorm4x8_srgb_to_float(w)", move |i| {
            let [r, g, b, a] = [0, 8, 16, 24].map(|at| u(w7(i), at, 8));
            [linear(r), linear(g), linear(b), a]
        })
        .line("pack_float_to_srgb_unorm4x8(unpack_unorm4x8_srgb_to_float(w)) ^ w", |_| 0_u32)
        .line("pack_half_to_unorm565(unpack_unorm565_to_half(ushort(w))) ^ ushort(w)", |_| 0_i32)
}
