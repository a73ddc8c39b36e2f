//! ruvllm's kernels: normalization, rotary embeddings, activations, products with vectors, and numbers of four bits.

use elinvar::f16;

use super::case::{Case, Near, guarded};
use super::element::Member::{self, F32, I32};
use super::element::{Element, Sequence, packed};
use super::reference::{U, sum};

const CORPUS: &str = "ruvllm";
const SUM: &str = "one rounding of the sum of magnitudes for each term, one of the output's type";
const NORM: &str = "roundings of the sums, rsqrt of 2 ulp, four roundings, of the output's type";
const ROTATION: &str = "two roundings, of the output's type";
const ANGLE: &str = "pow of 16 ulp and sine and cosine of 2⁻¹¹ of large angles, two roundings";
const EXP: &str = "exp of 3 + |2x| ulp, a division of 2.5 ulp, roundings";

pub fn cases() -> Vec<Case> {
    let mut cases = norms();
    cases.extend(fused());
    cases.extend(rotations());
    cases.extend(vectors());
    cases.extend(four_bits());
    cases
}

fn numbers<T: Element>(count: usize, seed: u64) -> Vec<T> {
    Sequence(seed).between(count, -2.0, 2.0)
}

fn params(values: &[Member]) -> Vec<u8> {
    packed(values)
}

fn int(value: usize) -> Member {
    I32(value as i32)
}

/// With roundings to the output's type, if it is shorter than `float`.
fn stored<T: Element>((value, error): Near, roundings: f64) -> Near {
    (value, error + if T::ROUNDING > U { roundings * T::ROUNDING * value.abs() + 1e-7 } else { 0.0 })
}

const WIDTH: usize = 140;
const BATCH: usize = 3;
const EPS: f32 = 1e-5;

/// `x · weight / sqrt(mean(x²) + eps)` for each row.
fn rms(x: &[f64], weight: &[f64]) -> Vec<Near> {
    let width = weight.len();
    x.chunks(width)
        .flat_map(|row| {
            let mean = row.iter().map(|x| x * x).sum::<f64>() / width as f64;
            let factor = 1.0 / (mean + EPS.value()).sqrt();
            let all = row.iter().zip(weight).map(move |(x, w)| x * factor * w);
            all.map(|value| (value, U * (width as f64 + 16.0) * value.abs())).collect::<Vec<_>>()
        })
        .collect()
}

/// `(x - mean) / sqrt(variance + eps) · weight + bias` for each row.
fn layer(x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<Near> {
    let width = weight.len();
    x.chunks(width)
        .flat_map(|row| {
            let mean = row.iter().sum::<f64>() / width as f64;
            let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / width as f64;
            let factor = 1.0 / (variance + EPS.value()).sqrt();
            let of = move |((x, w), b): ((&f64, &f64), &f64)| {
                let value = (x - mean) * factor * w;
                // The variance is a difference of means.
                let error = U * (4.0 * width as f64 + 32.0) * (value.abs() + w.abs());
                (value + b, error + 2.0 * U * b.abs())
            };
            row.iter().zip(weight).zip(bias).map(of).collect::<Vec<_>>()
        })
        .collect()
}

fn values<T: Element>(numbers: &[T]) -> Vec<f64> {
    numbers.iter().map(|x| x.value()).collect()
}

fn near<T: Element>(of: Vec<Near>, roundings: f64) -> Vec<Near> {
    of.into_iter().map(|near| stored::<T>(near, roundings)).collect()
}

fn norms() -> Vec<Case> {
    let case = |kernel: &str, threads: usize| {
        Case::new(CORPUS, "norm.metal", kernel).groups((1, BATCH), (threads, 1))
    };
    let count = BATCH * WIDTH;
    let (x, residual, weight, bias) = (
        numbers::<f32>(count, 3),
        numbers::<f32>(count, 5),
        numbers::<f32>(WIDTH, 7),
        numbers::<f32>(WIDTH, 11),
    );
    let (hx, hw) = (numbers::<f16>(count, 13), numbers::<f16>(WIDTH, 17));
    let bytes = params(&[int(WIDTH), F32(EPS), int(4), int(0)]);
    let total: Vec<f32> = x.iter().zip(&residual).map(|(x, r)| x + r).collect();
    let some: Vec<Option<f32>> = total.iter().map(|x| Some(*x)).collect();
    let (w, b) = (values(&weight), values(&bias));
    let mut cases = Vec::new();
    // The first forms take one simdgroup.
    for (suffix, threads) in [("_v2", 128), ("", 32)] {
        cases.extend([
            case(&format!("rms_norm{suffix}"), threads)
                .updated_near::<f32>(&guarded(&x), rms(&values(&x), &w), NORM)
                .input(&weight)
                .bytes(bytes.clone()),
            case(&format!("layer_norm{suffix}"), threads)
                .updated_near::<f32>(&guarded(&x), layer(&values(&x), &w, &b), NORM)
                .input(&weight)
                .input(&bias)
                .bytes(bytes.clone()),
            case(&format!("rms_norm_residual{suffix}"), threads)
                .updated_near::<f32>(&guarded(&x), rms(&values(&total), &w), NORM)
                .updated(&guarded(&residual), &some)
                .input(&weight)
                .bytes(bytes.clone()),
            case(&format!("rms_norm_f16{suffix}"), threads)
                .updated_near::<f16>(&guarded(&hx), near::<f16>(rms(&values(&hx), &values(&hw)), 4.0), NORM)
                .input(&hw)
                .bytes(bytes.clone()),
        ]);
    }
    // Two batches of three groups of channels.
    let (groups, width) = (3, 70);
    let (x, weight) = (numbers::<f32>(2 * groups * width, 19), numbers::<f32>(groups * width, 23));
    let (all, w) = (values(&x), values(&weight));
    let want =
        all.chunks(width).enumerate().flat_map(|(row, part)| rms(part, &w[row % groups * width..][..width]));
    cases.push(
        Case::new(CORPUS, "norm.metal", "group_rms_norm")
            .updated_near::<f32>(&guarded(&x), want.collect(), NORM)
            .input(&weight)
            .value([groups as u32])
            .value([width as u32])
            .value([EPS])
            .groups((1, groups, 2), (64, 1)),
    );
    cases
}

fn fused() -> Vec<Case> {
    let case = |kernel: &str| Case::new(CORPUS, "fused_ops.metal", kernel);
    let count = BATCH * WIDTH;
    let (x, residual, weight, bias) = (
        numbers::<f32>(count, 29),
        numbers::<f32>(count, 31),
        numbers::<f32>(WIDTH, 37),
        numbers::<f32>(WIDTH, 41),
    );
    let halves = [43, 47, 53, 59].map(|seed| numbers::<f16>(if seed < 50 { count } else { WIDTH }, seed));
    let [hx, hr, hw, hb] = &halves;
    let total: Vec<f32> = x.iter().zip(&residual).map(|(x, r)| x + r).collect();
    let half_total: Vec<f64> = hx.iter().zip(hr).map(|(x, r)| x.value() + r.value()).collect();
    let some: Vec<Option<f32>> = total.iter().map(|x| Some(*x)).collect();
    let bytes = params(&[int(WIDTH), int(BATCH), F32(EPS), int(1)]);
    let gated = |gate: &[f64], up: &[f64]| -> Vec<Near> {
        let all = gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u);
        all.map(|value| (value, 24.0 * U * value.abs())).collect()
    };
    let sizes = params(&[int(WIDTH), int(BATCH)]);
    let shifted = || x.iter().enumerate().map(|(e, x)| x + bias[e % WIDTH]);
    let gelu = shifted().map(|x| {
        let x = x.value();
        let inner = 0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x);
        (0.5 * x * (1.0 + inner.tanh()), 64.0 * U * (x.abs() + 1.0))
    });
    let activation = params(&[int(count), int(WIDTH)]);
    let length = 203;
    let [a, b, c] = [61, 67, 71].map(|seed| numbers::<f32>(length, seed));
    let added = (0..length).map(|e| (a[e] + b[e]) * c[e]);
    let (dim, heads, positions, keys) = (10, 3, 4, 6);
    let rows = positions * heads * dim;
    let (q, k) = (numbers::<f32>(rows, 73), numbers::<f32>(rows, 79));
    let (cos, sin) = (numbers::<f32>(positions * dim / 2, 83), numbers::<f32>(positions * dim / 2, 89));
    let table = |e: usize| e / dim / heads * (dim / 2) + e % dim / 2;
    let slopes = (0..heads * positions * keys).map(|e| {
        let (head, position, key) = (e / keys / positions, e / keys % positions, e % keys);
        let slope = (-8.0 * (head + 1) as f64 / heads as f64).exp2();
        let value = slope * (position as f64 - key as f64);
        (value, 16.0 * U * value.abs())
    });
    let grid = |case: Case, threads: usize| case.groups((1, BATCH), (threads, 1));
    vec![
        grid(
            case("fused_layernorm_residual")
                .input(&x)
                .input(&residual)
                .input(&weight)
                .input(&bias)
                .near::<f32>(layer(&values(&total), &values(&weight), &values(&bias)), NORM)
                .bytes(bytes.clone()),
            96,
        ),
        grid(
            case("fused_layernorm_residual_f16")
                .input(hx)
                .input(hr)
                .input(hw)
                .input(hb)
                .near::<f16>(near::<f16>(layer(&half_total, &values(hw), &values(hb)), 1.0), NORM)
                .bytes(bytes.clone()),
            96,
        ),
        grid(
            case("fused_rmsnorm_residual")
                .input(&x)
                .updated(&guarded(&residual), &some)
                .input(&weight)
                .near::<f32>(rms(&values(&total), &values(&weight)), NORM)
                .bytes(bytes),
            96,
        ),
        grid(
            case("fused_swiglu")
                .input(&x)
                .input(&residual)
                .near::<f32>(gated(&values(&x), &values(&residual)), EXP)
                .bytes(sizes.clone()),
            64,
        ),
        grid(
            case("fused_swiglu_f16")
                .input(hx)
                .input(hr)
                .near::<f16>(near::<f16>(gated(&values(hx), &values(hr)), 1.0), EXP)
                .bytes(sizes),
            64,
        ),
        case("fused_bias_gelu")
            .updated_near::<f32>(&guarded(&x), gelu.collect(), "tanh of 5 ulp, roundings")
            .input(&bias)
            .bytes(activation.clone())
            .threads(448, 64),
        case("fused_bias_relu")
            .updated(&guarded(&x), &shifted().map(|x| Some(x.max(0.0))).collect::<Vec<_>>())
            .input(&bias)
            .bytes(activation)
            .threads(448, 64),
        case("fused_add_mul")
            .input(&a)
            .input(&b)
            .input(&c)
            .full_output(added)
            .value([length as u32])
            .threads(64, 32),
        case("fused_rotary_bias")
            .updated_near::<f32>(
                &guarded(&q),
                rotated(&q, |e| (cos[table(e)].value(), sin[table(e)].value())),
                ROTATION,
            )
            .updated_near::<f32>(
                &guarded(&k),
                rotated(&k, |e| (cos[table(e)].value(), sin[table(e)].value())),
                ROTATION,
            )
            .near::<f32>(slopes.collect(), ROTATION)
            .input(&cos)
            .input(&sin)
            .bytes(params(&[int(dim), int(heads), int(positions), int(keys), F32(1e4), int(1)]))
            .threads((8, heads, positions), (4, 1)),
    ]
}

/// Pairs of neighbors, rotated by an angle for each.
fn rotated<T: Element>(x: &[T], turn: impl Fn(usize) -> (f64, f64)) -> Vec<Near> {
    (0..x.len())
        .map(|e| {
            let (a, b) = (x[e / 2 * 2].value(), x[e / 2 * 2 + 1].value());
            let (cos, sin) = turn(e);
            let [first, second] = if e % 2 == 0 { [a * cos, -b * sin] } else { [a * sin, b * cos] };
            // Of both products and the sum, in the type.
            (first + second, 3.0 * T::ROUNDING.max(U) * (first.abs() + second.abs()))
        })
        .collect()
}

fn rotations() -> Vec<Case> {
    let case = |kernel: &str| Case::new(CORPUS, "rope.metal", kernel);
    let (dim, heads, batches, position) = (12, 3, 4, 5);
    let half = dim / 2;
    let count = batches * heads * dim;
    let (x, hx) = (numbers::<f32>(count, 97), numbers::<f16>(count, 101));
    let table = |seed: u64| numbers::<f32>(16 * half, seed);
    let (cos, sin) = (table(103), table(107));
    let (hc, hs) = (numbers::<f16>(16 * half, 109), numbers::<f16>(16 * half, 113));
    let base = 10_000.0_f32;
    let bytes = params(&[int(dim), int(heads), int(position), F32(base)]);
    let grid = |case: Case| case.threads((8, heads, batches), (4, 1));
    let at = |e: usize, position: usize| position * half + e % dim / 2;
    let given = |position: usize| {
        let (cos, sin) = (&cos, &sin);
        move |e: usize| (cos[at(e, position)].value(), sin[at(e, position)].value())
    };
    let given_half = |position: usize| {
        let (cos, sin) = (&hc, &hs);
        move |e: usize| (cos[at(e, position)].value(), sin[at(e, position)].value())
    };
    let frequency = |d: usize| base.value().powf(-2.0 * d as f64 / dim as f64);
    let computed = |e: usize, position: usize| {
        let (sin, cos) = (position as f64 * frequency(e % dim / 2)).sin_cos();
        (cos, sin)
    };
    // The error of the angle.
    let wide = |near: Vec<Near>, position: f64| -> Vec<Near> {
        near.into_iter().map(|(value, error)| (value, error + 4.0 * (2e-6 + 64.0 * U * position))).collect()
    };
    let positions: Vec<u32> = (0..batches).map(|i| (i * 5 % 16) as u32).collect();
    let place = |e: usize| positions[e / dim / heads] as usize;
    let mut cases = vec![
        grid(
            case("apply_rope_precomputed")
                .updated_near::<f32>(&guarded(&x), rotated(&x, given(position)), ROTATION)
                .input(&cos)
                .input(&sin)
                .bytes(bytes.clone()),
        ),
        grid(
            case("apply_rope_vec2")
                .updated_near::<f32>(&guarded(&x), rotated(&x, given(position)), ROTATION)
                .input(&cos)
                .input(&sin)
                .bytes(bytes.clone()),
        ),
        grid(
            case("apply_rope")
                .updated_near::<f32>(&guarded(&x), rotated(&x, given(0)), ROTATION)
                .input(&cos)
                .input(&sin)
                .bytes(bytes.clone()),
        ),
        grid(
            case("apply_rope_inline")
                .updated_near::<f32>(&guarded(&x), wide(rotated(&x, |e| computed(e, position)), 5.0), ANGLE)
                .bytes(bytes.clone()),
        ),
        grid(
            case("apply_rope_f16_v2")
                .updated_near::<f16>(&guarded(&hx), rotated(&hx, given_half(position)), ROTATION)
                .input(&hc)
                .input(&hs)
                .bytes(bytes.clone()),
        ),
        grid(
            case("apply_rope_f16")
                .updated_near::<f16>(&guarded(&hx), rotated(&hx, given_half(0)), ROTATION)
                .input(&hc)
                .input(&hs)
                .bytes(bytes),
        ),
        // Two batches of two positions.
        grid(
            case("apply_rope_batched_v2")
                .updated_near::<f32>(&guarded(&x), rotated(&x, |e| given(place(e))(e)), ROTATION)
                .input(&cos)
                .input(&sin)
                .input(&positions)
                .bytes(params(&[int(dim), int(heads), int(2), int(2), F32(base), int(0), int(0), int(0)])),
        ),
        grid(
            case("apply_rope_batched")
                .updated_near::<f32>(&guarded(&x), wide(rotated(&x, |e| computed(e, place(e))), 15.0), ANGLE)
                .input(&positions)
                .value([heads as u32])
                .value([dim as u32])
                .value([2_u32])
                .value([base]),
        ),
    ];
    let length = 20;
    for kernel in ["precompute_rope_tables_v2", "precompute_rope_tables"] {
        let of = |pick: fn(f64) -> f64| -> Vec<Near> {
            let angle = |e: usize| (e / half) as f64 * frequency(e % half);
            (0..length * half).map(|e| (pick(angle(e)), 2e-6 + 64.0 * U * angle(e))).collect()
        };
        cases.push(
            case(kernel)
                .near::<f32>(of(f64::cos), ANGLE)
                .near::<f32>(of(f64::sin), ANGLE)
                .value([dim as u32])
                .value([length as u32])
                .value([base])
                .threads((8, length + 4), (8, 4)),
        );
    }
    let (rows, keys) = (6, 7);
    let scores = numbers::<f32>(2 * heads * rows * keys, 127);
    let biased = scores.iter().enumerate().map(|(e, score)| {
        let slope = (-8.0 * ((e / keys / rows % heads) + 1) as f64 / heads as f64).exp2();
        let bias = slope * ((e / keys % rows) as f64 - (e % keys) as f64);
        (score.value() + bias, 8.0 * U * (score.value().abs() + bias.abs()))
    });
    cases.push(
        case("apply_alibi")
            .updated_near::<f32>(&guarded(&scores), biased.collect(), "exp2 of 2 ulp, three roundings")
            .value([rows as u32])
            .value([keys as u32])
            .value([heads as u32])
            .threads((8, 8, 2 * heads), (8, 4)),
    );
    let (query_heads, key_heads) = (3, 2);
    let (q, k) = (numbers::<f32>(4 * query_heads * dim, 131), numbers::<f32>(4 * key_heads * dim, 137));
    let of = |data: &[f32], heads: usize| rotated(data, |e| given(positions[e / dim / heads] as usize)(e));
    cases.push(grid(
        case("apply_rope_qk_fused")
            .updated_near::<f32>(&guarded(&q), of(&q, query_heads), ROTATION)
            .updated_near::<f32>(&guarded(&k), of(&k, key_heads), ROTATION)
            .input(&cos)
            .input(&sin)
            .input(&positions)
            .value([query_heads as u32])
            .value([key_heads as u32])
            .value([dim as u32])
            .value([2_u32]),
    ));
    cases
}

/// `alpha · A · x + beta · y`.
fn vectors() -> Vec<Case> {
    let (alpha, beta) = (0.75_f32, -1.25_f32);
    let case = |kernel: &str, m: usize, n: usize, stride: usize| {
        let (a, x, y) = (numbers::<f32>(m * stride, 139), numbers::<f32>(n, 149), numbers::<f32>(m, 151));
        let want = (0..m).map(|row| {
            let terms = (0..n).map(|c| alpha.value() * a[row * stride + c].value() * x[c].value());
            sum(terms.chain([beta.value() * y[row].value()]), U)
        });
        Case::new(CORPUS, "gemv.metal", kernel)
            .input(&a)
            .input(&x)
            .updated_near::<f32>(&guarded(&y), want.collect(), SUM)
            .bytes(params(&[int(m), int(n), int(stride), F32(alpha), F32(beta)]))
    };
    let (m, n) = (9, 256);
    let (a, hx, x) = (numbers::<f16>(m * n, 157), numbers::<f16>(n, 163), numbers::<f32>(n, 167));
    let y = numbers::<f32>(m, 173);
    let mixed = (0..m).map(|row| {
        let terms = (0..n).map(|c| alpha.value() * a[row * n + c].value() * x[c].value());
        sum(terms.chain([beta.value() * y[row].value()]), U)
    });
    let halves = (0..m).map(|row| {
        let (value, error) = sum((0..n).map(|c| a[row * n + c].value() * hx[c].value()), U);
        // The sum and the product are rounded to the type.
        (alpha.value() * value, error + 2.1 * f16::ROUNDING * value.abs())
    });
    let (batches, rows, width) = (3, 6, 132);
    let (ba, bx) = (numbers::<f32>(batches * rows * width, 179), numbers::<f32>(batches * width, 181));
    let batched = (0..batches * rows)
        .map(|e| sum((0..width).map(|c| ba[e * width + c].value() * bx[e / rows * width + c].value()), U));
    let dims = params(&[int(rows), int(width), int(batches), int(0)]);
    vec![
        case("gemv_optimized_f32", 9, 256, 260).groups(3, (32, 4)),
        case("gemv_tiled_f32", 16, 600, 600).groups(2, 256),
        case("gemv_simple_f32", 37, 75, 80).threads(64, 32),
        Case::new(CORPUS, "gemv.metal", "gemv_optimized_f16")
            .input(&a)
            .input(&hx)
            .near::<f16>(halves.collect(), SUM)
            .bytes(params(&[int(m), int(n), int(n), F32(alpha), F32(0.0)]))
            .groups(3, (32, 4)),
        Case::new(CORPUS, "gemv.metal", "gemv_mixed_f16_f32")
            .input(&a)
            .input(&x)
            .updated_near::<f32>(&guarded(&y), mixed.collect(), SUM)
            .bytes(params(&[int(m), int(n), int(n), F32(alpha), F32(beta)]))
            .groups(3, (32, 4)),
        Case::new(CORPUS, "gemv.metal", "batched_gemv_f32")
            .input(&ba)
            .input(&bx)
            .near::<f32>(batched.collect(), SUM)
            .bytes(dims)
            .groups((2, batches), (32, 4)),
    ]
}

fn four_bits() -> Vec<Case> {
    let case = |kernel: &str| Case::new(CORPUS, "quantized.metal", kernel);
    let (n, k, group) = (11, 96, 32);
    let groups = k / group;
    let codes: Vec<u8> = Sequence(191).any(n * k / 2);
    let scales: Vec<f32> = Sequence(193).between(n * groups, 0.25, 1.0);
    let zeros: Vec<f32> = Sequence(197).between(n * groups, -2.0, 2.0);
    let signed = |code: u8| if code >= 8 { f64::from(code) - 16.0 } else { f64::from(code) };
    let code = |row: usize, c: usize| codes[(row * k + c) / 2] >> (c % 2 * 4) & 15;
    let weight = |row: usize, c: usize| {
        let place = row * groups + c / group;
        (signed(code(row, c)) - zeros[place].value()) * scales[place].value()
    };
    let x = numbers::<f32>(k, 199);
    let product = || {
        (0..n).map(|row| {
            let (value, error) = sum((0..k).map(|c| weight(row, c) * x[c].value()), U);
            (value, 4.0 * error)
        })
    };
    let bytes = params(&[int(n), int(k), int(group), int(0)]);
    let inputs = |kernel: &str| {
        case(kernel)
            .input(&codes)
            .input(&scales)
            .input(&zeros)
            .input(&x)
            .near::<f32>(product().collect(), SUM)
            .bytes(bytes.clone())
    };
    let unpacked = (0..n * k).map(|e| {
        let value = weight(e / k, e % k);
        (value, 2.0 * U * (value.abs() + scales[e / k * groups + e % k / group].value() * 10.0))
    });
    let data = numbers::<f32>(n * k, 211);
    let largest = |row: usize, part: usize| {
        data[row * k + part * group..][..group].iter().fold(0.0_f64, |most, x| most.max(x.value().abs()))
    };
    // The scale is that of `float`; no number is near the middle of two codes.
    let scale = |e: usize| largest(e / groups, e % groups) / 7.0;
    let data: Vec<f32> = data
        .iter()
        .enumerate()
        .map(|(e, x)| {
            let step = scale(e / k * groups + e % k / group);
            let place = x.value() / step;
            let is_middle = (place.fract().abs() - 0.5).abs() < 1e-3;
            if is_middle { (place.round() * step * 0.999) as f32 } else { *x }
        })
        .collect();
    let quantized = (0..n * k / 2).map(|byte| {
        let of =
            |e: usize| ((data[e].value() / scale(e / k * groups + e % k / group)).round() as i32 & 15) as u8;
        of(2 * byte) | of(2 * byte + 1) << 4
    });
    vec![
        inputs("int4_gemv").threads(32, 32),
        inputs("int4_gemv_simd").groups((1, n), (32, 1)),
        case("dequantize_int4_to_fp32")
            .input(&codes)
            .input(&scales)
            .input(&zeros)
            .near::<f32>(unpacked.collect(), "two roundings")
            .bytes(params(&[int(n), int(k), int(group)]))
            .threads((k, n + 1), (32, 4)),
        case("quantize_fp32_to_int4")
            .input(&data)
            .full_output(quantized)
            .near::<f32>(
                (0..n * groups).map(|e| (scale(e), 3.0 * U * scale(e))).collect(),
                "a division of 2.5 ulp",
            )
            .full_output(vec![0.0_f32; n * groups])
            .bytes(params(&[int(n), int(k), int(group)]))
            .threads((4, n + 1), (4, 4)),
    ]
}
