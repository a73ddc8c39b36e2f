//! candle's kernels for images and signals: im2col and col2im, pooling, resizing, transposed convolutions.
//!
//! candle calls the third dimension of an image its width in pooling and nearest-neighbor resizing, and its height elsewhere; the
//! references use the indices of the dimensions instead.

use elinvar::{bf16, f16};

use super::super::case::{Case, EXACT, Near};
use super::super::element::{Element, Layout, Sequence};

const CORPUS: &str = "candle-metal-kernels";
const FLOAT: f64 = f32::ROUNDING;

pub fn cases() -> Vec<Case> {
    vec![
        im2col::<f32>(),
        im2col::<u8>(),
        im2col_1d::<f16>(),
        col2im_1d::<f32>(),
        col2im_1d::<u32>(),
        nearest::<f32>(),
        nearest::<bf16>(),
        bilinear::<f32>(),
        bilinear::<f16>(),
        pool::<f16>(true),
        pool::<u8>(true),
        pool::<f32>(false),
        pool::<u32>(false),
        transposed_1d::<f32>(),
        transposed_1d::<bf16>(),
        transposed_2d::<f16>(),
    ]
}

/// An image whose dimensions are in another order in memory.
fn image() -> Layout {
    Layout::new(&[2, 3, 7, 5], &[105, 1, 15, 3])
}

fn samples<T: Element>(count: usize) -> Vec<T> {
    Sequence(121).between(count, 0.0, 30.0)
}

fn sizes(case: Case, sizes: &[usize]) -> Case {
    sizes.iter().fold(case, |case, size| case.value([*size as u64]))
}

fn layout(case: Case, layout: &Layout) -> Case {
    case.value(&layout.dims).value(&layout.strides)
}

/// Offset of an index in memory.
fn place(layout: &Layout, index: [usize; 4]) -> usize {
    index.iter().zip(&layout.strides).map(|(i, stride)| i * *stride as usize).sum()
}

fn case<T: Element>(name: &str) -> Case {
    Case::new(CORPUS, "conv.metal", format!("{name}_{}", T::SHORT))
}

/// The index `offset - padding` in an array of length `end`, if it is within the array.
fn inside(offset: usize, padding: usize, end: usize) -> Option<usize> {
    offset.checked_sub(padding).filter(|place| *place < end)
}

fn im2col<T: Element>() -> Case {
    let source = image();
    let ([kh, kw], stride, padding, dilation, [oh, ow]) = ([3, 2], 2, 1, 1, [4, 3]);
    let input: Vec<T> = samples(source.extent());
    let row = 3 * kh * kw;
    let count = 2 * oh * ow * row;
    let want = (0..count).map(|i| {
        let (window, k) = (i / row, i % row);
        let (batch, y, x) = (window / (oh * ow), window / ow % oh, window % ow);
        let (map, ky, kx) = (k / (kh * kw), k / kw % kh, k % kw);
        let y = inside(y * stride + ky * dilation, padding, 7);
        let x = inside(x * stride + kx * dilation, padding, 5);
        y.zip(x).map_or(T::of(0.0), |(y, x)| input[place(&source, [batch, map, y, x])])
    });
    let want: Vec<T> = want.collect();
    let case = sizes(case::<T>("im2col"), &[count, oh, ow, kh, kw, stride, padding, dilation]);
    layout(case, &source).input(&input).full_output(want).threads(count + 13, 32)
}

fn im2col_1d<T: Element>() -> Case {
    let source = Layout::new(&[2, 3, 11], &[33, 1, 3]);
    let (taps, stride, padding, dilation, length) = (3, 2, 2, 2, 6);
    let input: Vec<T> = samples(source.extent());
    let count = 2 * length * 3 * taps;
    let want = (0..count).map(|i| {
        let (batch, x, map, k) = (i / taps / 3 / length, i / taps / 3 % length, i / taps % 3, i % taps);
        let x = inside(x * stride + k * dilation, padding, 11);
        x.map_or(T::of(0.0), |x| input[batch * 33 + map + x * 3])
    });
    let want: Vec<T> = want.collect();
    let case = sizes(case::<T>("im2col1d"), &[count, length, taps, stride, padding, dilation]);
    layout(case, &source).input(&input).full_output(want).threads(count + 13, 32)
}

const SUM: &str = "one rounding of the sum of magnitudes for each term, and one of the type; integers exact";

/// A sum in float or in integers, rounded to the type.
fn sum<T: Element>(terms: impl Iterator<Item = f64>) -> Near {
    let (value, size, count) = terms.fold((0.0, 0.0, 1.0), |(value, size, count), term: f64| {
        (value + term, size + term.abs(), count + 1.0)
    });
    if T::ROUNDING == 0.0 {
        return (value, 0.0);
    }
    (value, FLOAT * size * count + if T::SHORT == "f32" { 0.0 } else { T::ROUNDING * value.abs() })
}

/// Windows of a signal, `[batch][window][map][tap]`, summed where they overlap.
fn col2im_1d<T: Element>() -> Case {
    let (batches, windows, maps, taps, stride) = (2, 6, 3, 4, 2);
    let length = (windows - 1) * stride + taps;
    let input: Vec<T> = samples(batches * windows * maps * taps);
    let count = batches * maps * length;
    let want = (0..count).map(|i| {
        let (batch, map, x) = (i / length / maps, i / length % maps, i % length);
        sum::<T>((0..windows).filter_map(|window| {
            let tap = x.checked_sub(window * stride).filter(|tap| *tap < taps)?;
            Some(input[((batch * windows + window) * maps + map) * taps + tap].value())
        }))
    });
    let want = want.collect();
    sizes(case::<T>("col2im1d"), &[count, length, windows, maps, taps, stride])
        .input(&input)
        .near::<T>(want, SUM)
        .threads(count + 13, 32)
}

/// The output sizes are no multiples of the input sizes, so scaled indices are integers only at zero.
fn nearest<T: Element>() -> Case {
    let (source, [a, b]) = (image(), [9, 8]);
    let input: Vec<T> = samples(source.extent());
    let count = 2 * 3 * a * b;
    let want = (0..count).map(|i| {
        let (batch, map, y, x) = (i / (a * b) / 3, i / (a * b) % 3, i / b % a, i % b);
        input[place(&source, [batch, map, y * 7 / a, x * 5 / b])]
    });
    let want: Vec<T> = want.collect();
    let case = sizes(case::<T>("upsample_nearest2d"), &[a, b]).value([7.0_f32 / 9.0]).value([5.0_f32 / 8.0]);
    layout(case, &source).input(&input).full_output(want).threads(count + 13, 32)
}

/// Align-corners sampling: output i reads input i * (in - 1) / (out - 1).
fn bilinear<T: Element>() -> Case {
    let (source, [height, width]) = (image(), [10, 9]);
    let input: Vec<T> = samples(source.extent());
    let count = 2 * 3 * height * width;
    let along = |i: usize, from: usize, to: usize| {
        let place = i as f64 * (from - 1) as f64 / (to - 1) as f64;
        let first = (place.floor() as usize).min(from - 1);
        (first, (first + 1).min(from - 1), place - first as f64)
    };
    let want = (0..count).map(|i| {
        let (batch, map) = (i / (height * width) / 3, i / (height * width) % 3);
        let (y0, y1, wy) = along(i / width % height, 7, height);
        let (x0, x1, wx) = along(i % width, 5, width);
        let value = |y: usize, x: usize| input[place(&source, [batch, map, y, x])].value();
        let top = value(y0, x0) * (1.0 - wx) + value(y0, x1) * wx;
        let bottom = value(y1, x0) * (1.0 - wx) + value(y1, x1) * wx;
        let result = top * (1.0 - wy) + bottom * wy;
        // The weights may have the rounding error of a position up to 6, multiplied by a difference of up to 30.
        (result, FLOAT * 30.0 * 40.0 + if T::SHORT == "f32" { 0.0 } else { T::ROUNDING * result })
    });
    let want = want.collect();
    let case = sizes(case::<T>("upsample_bilinear2d"), &[width, height]).value([1_u8]);
    let case = case.value([0_u8]).value([0.0_f32]).value([0_u8]).value([0.0_f32]);
    layout(case, &source)
        .input(&input)
        .near::<T>(
            want,
            "40 roundings of values up to 30, whose weights depend on the position; one of the type",
        )
        .threads(count + 13, 32)
}

/// Maximum or mean of the windows that fit.
fn pool<T: Element>(largest: bool) -> Case {
    let (source, [k2, k3], [s2, s3]) = (image(), [3, 2], [2, 1]);
    let (a, b) = ((7 - k2) / s2 + 1, (5 - k3) / s3 + 1);
    let input: Vec<T> = samples(source.extent());
    let count = 2 * 3 * a * b;
    let want = (0..count).map(|i| {
        let (batch, map, y, x) = (i / (a * b) / 3, i / (a * b) % 3, i / b % a, i % b);
        let window = (0..k2 * k3)
            .map(|k| input[place(&source, [batch, map, y * s2 + k / k3, x * s3 + k % k3])].value());
        if largest {
            return (window.fold(f64::NEG_INFINITY, f64::max), 0.0);
        }
        let (value, error) = sum::<T>(window);
        let mean = value / (k2 * k3) as f64;
        (
            if T::ROUNDING == 0.0 { mean.floor() } else { mean },
            (error + 4.0 * FLOAT * value * T::ROUNDING.signum()) / 6.0,
        )
    });
    let want = want.collect();
    let name = if largest { "max_pool2d" } else { "avg_pool2d" };
    let case = sizes(case::<T>(name), &[k2, k3, s2, s3]);
    layout(case, &source)
        .input(&input)
        .near::<T>(
            want,
            if largest { EXACT } else { "a sum of six and a division of 2.5 ulp; integers exact" },
        )
        .threads(count + 13, 32)
}

fn transposed_1d<T: Element>() -> Case {
    let source = Layout::new(&[2, 3, 7], &[21, 1, 3]);
    let weights = Layout::new(&[3, 4, 5], &[20, 5, 1]);
    let (stride, padding, extra, dilation) = (2, 1, 1, 2);
    let length = 6 * stride + 4 * dilation + extra + 1 - 2 * padding;
    let mut sequence = Sequence(122);
    let input: Vec<T> = sequence.between(source.extent(), -2.0, 2.0);
    let kernel: Vec<T> = sequence.between(weights.extent(), -2.0, 2.0);
    let count = 2 * 4 * length;
    let want = (0..count).map(|i| {
        let (batch, output, x) = (i / length / 4, i / length % 4, i % length);
        sum::<T>((0..3 * 7 * 5).filter_map(|j| {
            let (map, from, tap) = (j / 35, j / 5 % 7, j % 5);
            let hit = from * stride + tap * dilation == x + padding;
            hit.then(|| {
                input[batch * 21 + map + from * 3].value() * kernel[map * 20 + output * 5 + tap].value()
            })
        }))
    });
    let want = want.collect();
    let case = sizes(case::<T>("conv_transpose1d"), &[length, stride, padding, extra, dilation]);
    layout(layout(case, &source), &weights)
        .input(&input)
        .input(&kernel)
        .near::<T>(want, SUM)
        .threads(count + 13, 32)
}

fn transposed_2d<T: Element>() -> Case {
    let source = image();
    let weights = Layout::new(&[3, 2, 2, 3], &[12, 6, 3, 1]);
    let (stride, padding, extra, dilation) = (2, 1, 0, 1);
    let (height, width) = (6 * stride + 2 - 2 * padding, 4 * stride + 3 - 2 * padding);
    let mut sequence = Sequence(123);
    let input: Vec<T> = sequence.between(source.extent(), -2.0, 2.0);
    let kernel: Vec<T> = sequence.between(weights.extent(), -2.0, 2.0);
    let count = 2 * 2 * height * width;
    let want = (0..count).map(|i| {
        let (batch, output) = (i / (height * width) / 2, i / (height * width) % 2);
        let (y, x) = (i / width % height, i % width);
        sum::<T>((0..3 * 2 * 3).filter_map(|j| {
            let (map, ky, kx) = (j / 6, j / 3 % 2, j % 3);
            let from = |place: usize, tap: usize, end: usize| {
                let offset = (place + padding).checked_sub(tap * dilation)?;
                (offset % stride == 0 && offset / stride < end).then_some(offset / stride)
            };
            let (sy, sx) = (from(y, ky, 7)?, from(x, kx, 5)?);
            let weight = kernel[place(&weights, [map, output, ky, kx])].value();
            Some(input[place(&source, [batch, map, sy, sx])].value() * weight)
        }))
    });
    let want = want.collect();
    let case = sizes(case::<T>("conv_transpose2d"), &[width, height, stride, padding, extra, dilation]);
    layout(layout(case, &source), &weights)
        .input(&input)
        .input(&kernel)
        .near::<T>(want, SUM)
        .threads(count + 13, 32)
}
