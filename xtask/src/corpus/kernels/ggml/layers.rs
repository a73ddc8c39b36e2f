//! ggml's kernels for layers: pooling, resizing, convolutions, rotary positions, recurrences.

use elinvar::{Constants, f16};

use super::super::case::{Case, Near};
use super::super::element::Member::{self, Bool, F32, I32, I64, U64};
use super::super::element::{Element, Sequence, packed};
use super::super::tensor::Tensor;

const CORPUS: &str = "llama-cpp-sys-2";
const FLOAT: f64 = f32::ROUNDING;

pub fn cases() -> Vec<Case> {
    vec![
        pool_2d(true),
        pool_2d(false),
        pool_1d(true),
        pool_1d(false),
        resize(false),
        resize(true),
        timestep(),
        im2col::<f32>(),
        im2col::<f16>(),
        conv_transpose::<f32>("f32_f32"),
        conv_transpose::<f16>("f16_f32"),
        ssm_conv(),
        wkv6(),
        rope::<f32>("norm", 1),
        rope::<f16>("neox", 4),
    ]
}

const SUM: &str = "one rounding of the sum of magnitudes for each term, and one of the type";

/// A sum of products in float: its value, and one rounding of the sum of magnitudes per term.
fn sum(terms: impl Iterator<Item = f64>) -> Near {
    let (value, size, count) = terms.fold((0.0, 0.0, 1.0), |(value, size, count), term: f64| {
        (value + term, size + term.abs(), count + 1.0)
    });
    (value, FLOAT * size * count)
}

/// The indices below `end` that a window covers.
fn window(start: i64, length: i64, end: i64) -> impl Iterator<Item = i64> + Clone {
    start.max(0)..(start + length).min(end)
}

/// Maximum, or mean of the whole window with zeros outside of the image.
fn pool_2d(largest: bool) -> Case {
    let ([k0, k1], [s0, s1], [p0, p1]) = ([3, 2], [2, 1], [1, 1]);
    let ([width, height], [out_width, out_height], maps) = ([11, 9], [6, 10], 3);
    let input: Vec<f32> = Sequence(91).between((maps * width * height) as usize, -4.0, 4.0);
    let want = (0..maps * out_width * out_height).map(|i| {
        let (map, y, x) = (i / out_width / out_height, i / out_width % out_height, i % out_width);
        let columns = window(x * s0 - p0, k0, width);
        let values = window(y * s1 - p1, k1, height).flat_map(|row| {
            let input = &input;
            columns.clone().map(move |column| input[((map * height + row) * width + column) as usize].value())
        });
        if largest {
            (values.fold(f64::NEG_INFINITY, f64::max), 0.0)
        } else {
            sum(values.map(|v| v / (k0 * k1) as f64))
        }
    });
    let want: Vec<Near> = want.collect();
    let mut members: Vec<Member> = [k0, k1, s0, s1, p0, p1].map(|n| I32(n as i32)).to_vec();
    members.extend([height, width, out_height, out_width, want.len() as i64].map(I64));
    let name = if largest { "max" } else { "avg" };
    let threads = want.len() + 9;
    Case::new(CORPUS, "pool.metal", format!("kernel_pool_2d_{name}_f32"))
        .bytes(packed(&members))
        .input(&input)
        .near::<f32>(want, if largest { super::super::case::EXACT } else { SUM })
        .threads(threads, 32)
}

/// Maximum, or mean of the elements within the row.
fn pool_1d(largest: bool) -> Case {
    let (k, s, p, width, out_width, rows) = (4, 3, 2, 17, 6, 5);
    let input: Vec<f32> = Sequence(92).between((rows * width) as usize, -4.0, 4.0);
    let want = (0..rows * out_width).map(|i| {
        let (row, x) = (i / out_width, i % out_width);
        let values = window(x * s - p, k, width).map(|column| input[(row * width + column) as usize].value());
        let count = values.clone().count() as f64;
        if largest { (values.fold(f64::NEG_INFINITY, f64::max), 0.0) } else { sum(values.map(|v| v / count)) }
    });
    let want: Vec<Near> = want.collect();
    let mut members: Vec<Member> = [k, s, p].map(|n| I32(n as i32)).to_vec();
    members.extend([width, out_width, want.len() as i64].map(I64));
    let name = if largest { "max" } else { "avg" };
    let threads = want.len() + 9;
    Case::new(CORPUS, "pool.metal", format!("kernel_pool_1d_{name}_f32"))
        .bytes(packed(&members))
        .input(&input)
        .near::<f32>(want, if largest { super::super::case::EXACT } else { SUM })
        .threads(threads, 32)
}

/// Upscaling by two: linear interpolation of two neighbors, or cubic interpolation of four, with weights below 3/2.
fn resize(cubic: bool) -> Case {
    let (source, target) = (Tensor::with_gap([7, 5, 2, 1], 4, 2), Tensor::new([14, 10, 2, 1], 4));
    let input: Vec<f32> = Sequence(93).between(source.extent(), -4.0, 4.0);
    // Indices and weights along one dimension. The linear kernel clamps the position to the array.
    let along = |i: usize, count: usize| -> Vec<(usize, f64)> {
        let place = (i as f64 + 0.5) / 2.0 - 0.5;
        let (first, last) = (place.floor(), count as f64 - 1.0);
        if !cubic {
            let first = first.clamp(0.0, last);
            let part = (place - first).clamp(0.0, 1.0);
            return vec![(first as usize, 1.0 - part), ((first + 1.0).min(last) as usize, part)];
        }
        let weight = |x: f64| match x.abs() {
            x if x <= 1.0 => (1.25 * x - 2.25) * x * x + 1.0,
            x => ((-0.75 * x + 3.75) * x - 6.0) * x + 3.0,
        };
        let tap = |k: f64| ((first + k).clamp(0.0, last) as usize, weight(place - first - k));
        [-1.0, 0.0, 1.0, 2.0].map(tap).to_vec()
    };
    let want = target.indices().map(|i| {
        let columns = along(i[0], 7);
        let terms = along(i[1], 5).into_iter().flat_map(|(y, wy)| {
            let input = &input;
            columns
                .iter()
                .map(move |(x, wx)| input[source.place([*x, y, i[2], i[3]])].value() * wx * wy)
                .collect::<Vec<_>>()
        });
        let (value, error) = sum(terms);
        (value, error + 16.0 * FLOAT * 16.0)
    });
    let want = want.collect();
    let scales = [2.0, 2.0, 1.0, 1.0, 0.5].map(F32).to_vec();
    let name = if cubic { "bicubic" } else { "bilinear" };
    Case::new(CORPUS, "upscale.metal", format!("kernel_upscale_{name}_f32"))
        .bytes(packed(&[source.long_members(), target.long_members(), scales].concat()))
        .input(&input)
        .near::<f32>(want, "a rounding for each of the 4 or 16 terms, 16 roundings of the weights times 16")
        .constants(Constants::new().set(1500, false))
        .groups((10, 2, 1), 8)
}

/// Cosines and sines of a time at decreasing frequencies, and a zero if the size is odd.
fn timestep() -> Case {
    let (size, period) = (15_usize, 100_i32);
    let times = [0.5_f32, 1.25, 3.0];
    let half = size / 2;
    let want = times.iter().flat_map(|time| {
        let angle = move |j: usize| time.value() * (-f64::from(period).ln() * j as f64 / half as f64).exp();
        // exp of arguments down to −4.6 is within 13 ulp, and the log and division of its argument add 10 roundings.
        let error = move |j: usize| 2f64.powi(-13) + 100.0 * FLOAT * angle(j);
        let cosines = (0..half).map(move |j| (angle(j).cos(), error(j)));
        let sines = (0..half).map(move |j| (angle(j).sin(), error(j)));
        cosines.chain(sines).chain([(0.0, 0.0)])
    });
    let want = want.collect();
    Case::new(CORPUS, "misc.metal", "kernel_timestep_embedding_f32")
        .bytes(packed(&[U64((size * 4) as u64), I32(size as i32), I32(period)]))
        .input(&times)
        .near::<f32>(want, "2⁻¹³ of sine and cosine in fast math, 100 roundings of the angle")
        .groups(times.len(), 4)
}

/// Windows of an image as rows, rounded to the type.
fn im2col<T: Element>() -> Case {
    let ([iw, ih], [kw, kh], [s0, s1, p0, p1, d0, d1]) = ([9_i64, 7], [3_i64, 2], [2_i64, 1, 1, 2, 1, 2]);
    let (maps, batches, [ow, oh]) = (3_i64, 2_i64, [5_i64, 9]);
    let input: Vec<f32> = Sequence(94).between((batches * maps * iw * ih) as usize, -4.0, 4.0);
    let row = maps * kh * kw;
    let want = (0..batches * oh * ow * row).map(|i| {
        let (place, k) = (i / row, i % row);
        let (map, ky, kx) = (k / (kh * kw), k / kw % kh, k % kw);
        let (batch, oy, ox) = (place / (oh * ow), place / ow % oh, place % ow);
        let (y, x) = (oy * s1 + ky * d1 - p1, ox * s0 + kx * d0 - p0);
        let inside = (0..ih).contains(&y) && (0..iw).contains(&x);
        T::of(if inside { input[(((batch * maps + map) * ih + y) * iw + x) as usize].value() } else { 0.0 })
    });
    let want: Vec<T> = want.collect();
    let mut members = vec![U64((maps * iw * ih) as u64), U64((iw * ih) as u64)];
    members.extend([iw, ih, row, s0, s1, p0, p1, d0, d1, batches, kh, kw, kh * kw].map(|n| I32(n as i32)));
    Case::new(CORPUS, "conv.metal", format!("kernel_im2col_{}", T::SHORT))
        .bytes(packed(&members))
        .input(&input)
        .full_output(want)
        .groups((maps as u32, oh as u32, ow as u32), (batches as u32, kh as u32, kw as u32))
}

fn conv_transpose<T: Element>(name: &str) -> Case {
    let (channels, length, taps, stride, outputs) = (3, 8, 5, 2, 4);
    let out_length = (length - 1) * stride + taps;
    let mut sequence = Sequence(95);
    let weights: Vec<T> = sequence.between(channels * outputs * taps, -1.0, 1.0);
    let input: Vec<f32> = sequence.between(channels * length, -4.0, 4.0);
    let want = (0..outputs * out_length).map(|k| {
        let (output, j) = (k / out_length, k % out_length);
        sum((0..channels * length).filter_map(|i| {
            let tap = j.checked_sub(i % length * stride).filter(|tap| *tap < taps)?;
            let weight = weights[(i / length * outputs + output) * taps + tap].value();
            Some(weight * input[i].value())
        }))
    });
    let want = want.collect();
    let mut members: Vec<Member> = [channels, length, taps, stride].map(|n| I32(n as i32)).to_vec();
    members.extend([4, out_length * 4].map(|n| U64(n as u64)));
    Case::new(CORPUS, "conv.metal", format!("kernel_conv_transpose_1d_{name}"))
        .bytes(packed(&members))
        .input(&weights)
        .input(&input)
        .near::<f32>(want, SUM)
        .groups((out_length, outputs), 1)
}

/// A convolution with four taps per channel.
fn ssm_conv() -> Case {
    let (taps, channels, times, batches) = (4, 7, 6, 2);
    let source = Tensor::new([taps - 1 + times, channels, batches, 1], 4);
    let target = Tensor::new([channels, times, batches, 1], 4);
    let mut sequence = Sequence(96);
    let input: Vec<f32> = sequence.between(source.extent(), -4.0, 4.0);
    let weights: Vec<f32> = sequence.between(taps * channels, -1.0, 1.0);
    let want = target.indices().map(|[channel, time, batch, _]| {
        sum((0..taps).map(|k| {
            input[source.place([time + k, channel, batch, 0])].value() * weights[channel * taps + k].value()
        }))
    });
    let want = want.collect();
    let sizes = |tensor: &Tensor| [0, 1, 2].map(|k| I64(tensor.ne[k] as i64));
    let distances = |tensor: &Tensor| [0, 1, 2].map(|k| U64(tensor.nb[k] as u64));
    let mut members = [sizes(&source), distances(&source)].concat();
    members.extend([I64(channels as i64), U64(4), U64((taps * 4) as u64)]);
    members.extend([sizes(&target), distances(&target)].concat());
    Case::new(CORPUS, "ssm.metal", "kernel_ssm_conv_f32_f32")
        .bytes(packed(&members))
        .input(&input)
        .input(&weights)
        .near::<f32>(want, SUM)
        .constants(Constants::new().set(901, false).set(902, taps as i32))
        .groups((channels, times, batches), 1)
}

/// RWKV 6: for each token, each head's state matrix is read with a vector, decays, and an outer product is added to it.
pub fn wkv6() -> Case {
    const SIZE: usize = 64;
    let (batches, heads, times) = (2, 2, 3);
    let (channels, tokens) = (heads * SIZE, batches * times);
    let mut sequence = Sequence(97);
    let [k, v, r]: [Vec<f32>; 3] = [0; 3].map(|_| sequence.between(tokens * channels, -1.0, 1.0));
    let first: Vec<f32> = sequence.between(channels, -1.0, 1.0);
    let fade: Vec<f32> = sequence.between(tokens * channels, 0.5, 1.0);
    let state: Vec<f32> = sequence.between(batches * heads * SIZE * SIZE, -1.0, 1.0);
    let mut matrix: Vec<f64> = state.iter().map(|s| s.value()).collect();
    let mut read = vec![0.0; tokens * channels];
    for (token, head) in (0..tokens).flat_map(|token| (0..heads).map(move |head| (token, head))) {
        let (base, start) = (token * channels + head * SIZE, (token / times * heads + head) * SIZE * SIZE);
        for (j, i) in (0..SIZE).flat_map(|j| (0..SIZE).map(move |i| (j, i))) {
            let (cell, product) =
                (&mut matrix[start + j * SIZE + i], k[base + j].value() * v[base + i].value());
            read[base + i] += r[base + j].value() * (first[head * SIZE + j].value() * product + *cell);
            *cell = *cell * fade[base + j].value() + product;
        }
    }
    // A cell stays below four; 64 terms with it are summed.
    let mut want: Vec<Near> = read.iter().map(|y| (*y, 70.0 * 64.0 * 5.0 * FLOAT)).collect();
    want.extend(matrix.iter().map(|cell| (*cell, 4.0 * 4.0 * FLOAT)));
    Case::new(CORPUS, "wkv.metal", "kernel_rwkv_wkv6_f32")
        .input(&k)
        .input(&v)
        .input(&r)
        .input(&first)
        .input(&fade)
        .input(&state)
        .near::<f32>(want, "a rounding of a cell, below 4, for each step; in a read one for each of 64 terms")
        .value([batches as u32])
        .value([tokens as u32])
        .value([channels as u32])
        .value([heads as u32])
        .groups(batches * heads, SIZE)
}

/// Rotates pairs `distance` apart by the position times a decreasing frequency; the rest is copied.
fn rope<T: Element>(name: &str, distance: usize) -> Case {
    let (turned, base) = (8, 50.0_f64);
    let size = size_of::<T>();
    let (source, target) = (Tensor::with_gap([12, 3, 4, 2], size, 1), Tensor::new([12, 3, 4, 2], size));
    let input: Vec<T> = Sequence(98).between(source.extent(), -3.0, 3.0);
    let positions = [0_i32, 3, 1, 2];
    let want = target.indices().map(|i| {
        let x = |k: usize| input[source.place([k, i[1], i[2], i[3]])].value();
        if i[0] >= turned {
            return (x(i[0]), 0.0);
        }
        let is_second = i[0] / distance % 2 == 1;
        let first = if is_second { i[0] - distance } else { i[0] };
        let pair = if distance == 1 { first / 2 } else { first };
        let angle = f64::from(positions[i[2]]) * base.powf(-2.0 * pair as f64 / turned as f64);
        let (a, b) = (x(first), x(first + distance));
        let value =
            if is_second { a * angle.sin() + b * angle.cos() } else { a * angle.cos() - b * angle.sin() };
        (value, (a.abs() + b.abs()) * (2f64.powi(-13) + 64.0 * FLOAT) + T::ROUNDING * value.abs())
    });
    let want = want.collect();
    let numbers = [0, turned as i32, 0, 4096].map(I32);
    let factors = [base as f32, 1.0, 0.0, 1.0, 32.0, 1.0].map(F32);
    let members = [source.members(), target.members(), numbers.to_vec(), factors.to_vec()];
    let rest = [I32(0), I32(0), I32(0), I32(0), Bool(false), Bool(false)];
    Case::new(CORPUS, "rope.metal", format!("kernel_rope_{name}_{}", T::SHORT))
        .bytes(packed(&[members.concat(), rest.to_vec()].concat()))
        .input(&input)
        .input(&positions)
        .input(&[0.0_f32])
        .near::<T>(
            want,
            "2⁻¹³ of sine and cosine in fast math, 64 roundings of an angle up to 3, one of the type",
        )
        .constants(Constants::new().set(800, false).set(801, false))
        .groups((3, 4, 2), 4)
}
