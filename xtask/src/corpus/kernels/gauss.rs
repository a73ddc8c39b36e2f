//! metal-gauss's kernels of structural similarity, with gradients, and metal-candle's of low-rank products, softmax and normalization.

use super::case::{Case, Near};
use super::element::Member::{F32, I32};
use super::element::{Element, Sequence, packed};
use super::reference::{U, product, sum};

const GAUSS: &str = "metal-gauss";
const CANDLE: &str = "metal-candle";
const SUM: &str = "one rounding of the sum of magnitudes for each term";
const DIFFERENCE: &str =
    "roundings of the products and sums, divisions of 2.5 ulp; the reference is a difference quotient in f64";

const WIDTH: usize = 17;
const HEIGHT: usize = 9;
const PIXELS: usize = WIDTH * HEIGHT;

pub fn cases() -> Vec<Case> {
    let mut cases = similarity();
    cases.extend(blurs());
    cases.extend(low_rank());
    cases.extend(rows());
    cases
}

/// Structural similarity of means, second moments and the mixed moment.
fn index([x, y, xx, yy, xy]: [f64; 5]) -> f64 {
    let (first, second) = (0.0001, 0.0009);
    let of_means = (2.0 * x * y + first) / (x * x + y * y + first);
    let of_variances = (2.0 * (xy - x * y) + second) / (xx - x * x + yy - y * y + second);
    of_means * of_variances
}

/// Moments of the three channels of some pixels; the last rows have none.
fn similarity() -> Vec<Case> {
    let used = PIXELS - 20;
    let mut moments = vec![0.0_f32; 15 * PIXELS];
    let mut sequence = Sequence(3);
    for e in 0..3 * PIXELS {
        let v: Vec<f32> = sequence.between(5, 0.1, 0.9);
        let (channel, pixel) = (e / PIXELS, e % PIXELS);
        let values = [
            v[0],
            v[1],
            v[0] * v[0] + 0.1 + v[2] * 0.1,
            v[1] * v[1] + 0.1 + v[3] * 0.1,
            v[0] * v[1] + v[4] * 0.05,
        ];
        for (which, value) in values.into_iter().enumerate() {
            moments[(3 * which + channel) * PIXELS + pixel] = value;
        }
    }
    let of = |e: usize| [0, 1, 2, 3, 4].map(|which| moments[3 * which * PIXELS + e].value());
    let untouched = (f32::untouched().value(), 0.0);
    let is_used = |e: usize| e % PIXELS < used;
    let forward = (0..3 * PIXELS).map(|e| if is_used(e) { (index(of(e)), 400.0 * U) } else { untouched });
    let slopes: Vec<f32> = sequence.between(3 * PIXELS, -1.0, 1.0);
    let backward = (0..15 * PIXELS).map(|e| {
        let (which, place) = (e / PIXELS / 3, e % (3 * PIXELS));
        if !is_used(place) {
            return untouched;
        }
        let step = 1e-6;
        let moved = |by: f64| {
            let mut moments = of(place);
            moments[which] += by;
            index(moments)
        };
        let value = slopes[place].value() * (moved(step) - moved(-step)) / (2.0 * step);
        (value, 2e-4 + 2e-5 * value.abs())
    });
    let case = |kernel: &str| Case::new(GAUSS, "ssim.metal", kernel);
    let sizes = [used as u32, PIXELS as u32];
    vec![
        case("ssim_tail_forward")
            .input(&moments)
            .near::<f32>(forward.collect(), DIFFERENCE)
            .value(sizes)
            .threads((3 * used).next_multiple_of(32), 32),
        case("ssim_tail_backward")
            .input(&moments)
            .input(&slopes)
            .near::<f32>(backward.collect(), DIFFERENCE)
            .value(sizes)
            .threads((3 * used).next_multiple_of(32), 32),
    ]
}

fn blurs() -> Vec<Case> {
    let image = |seed: u64| -> Vec<f32> { Sequence(seed).between(3 * PIXELS, 0.0, 1.0) };
    let (x, y) = (image(5), image(7));
    let weights: Vec<f32> = Sequence(11).between(11, 0.0, 0.2);
    // Eleven weights around a place; there is nothing outside.
    let blurred = |at: usize, length: usize, of: &dyn Fn(usize) -> f64| {
        let terms =
            (0..11).filter_map(|k| (at + k).checked_sub(5).filter(|at| *at < length).map(|at| (k, at)));
        let (value, error) = sum(terms.map(|(k, at)| weights[k].value() * of(at)), U);
        (value, 2.0 * error)
    };
    let stack = (0..15 * PIXELS).map(|e| {
        let (which, channel, row, column) = (e / PIXELS / 3, e / PIXELS % 3, e % PIXELS / WIDTH, e % WIDTH);
        blurred(column, WIDTH, &|at| {
            let (x, y) =
                (x[(row * WIDTH + at) * 3 + channel].value(), y[(row * WIDTH + at) * 3 + channel].value());
            [x, y, x * x, y * y, x * y][which]
        })
    });
    let planes: Vec<f32> = Sequence(13).between(15 * PIXELS, -1.0, 1.0);
    let columns = (0..15 * PIXELS).map(|e| {
        blurred(e % PIXELS / WIDTH, HEIGHT, &|at| {
            planes[e / PIXELS * PIXELS + at * WIDTH + e % WIDTH].value()
        })
    });
    let chained = (0..3 * PIXELS).map(|e| {
        let (pixel, channel) = (e / 3, e % 3);
        let plane = |which: usize| planes[(3 * which + channel) * PIXELS + pixel].value();
        let (value, error) =
            sum([plane(0), 2.0 * x[e].value() * plane(2), y[e].value() * plane(4)].into_iter(), U);
        (value, 2.0 * error)
    });
    let case = |kernel: &str| Case::new(GAUSS, "ssim.metal", kernel);
    vec![
        case("ssim_stack_blur_h")
            .input(&x)
            .input(&y)
            .input(&weights)
            .near::<f32>(stack.collect(), SUM)
            .value([WIDTH as u32, HEIGHT as u32])
            .threads((20, 10, 3), (4, 2)),
        case("ssim_blur15")
            .input(&planes)
            .input(&weights)
            .near::<f32>(columns.collect(), SUM)
            .value([WIDTH as u32, HEIGHT as u32, 1, 0])
            .threads((20, 10, 15), (4, 2)),
        case("ssim_chain_backward")
            .input(&x)
            .input(&y)
            .input(&planes)
            .near::<f32>(chained.collect(), SUM)
            .value([WIDTH as u32, HEIGHT as u32])
            .threads((20, 10, 3), (4, 2)),
    ]
}

const BATCH: usize = 2;
const LENGTH: usize = 3;

/// Products with two matrices of low rank.
fn low_rank() -> Vec<Case> {
    let (inputs, rank, outputs) = (30, 4, 11);
    let rows = BATCH * LENGTH;
    let scale = 0.5_f32;
    let numbers = |count: usize, seed: u64| -> Vec<f32> { Sequence(seed).between(count, -1.0, 1.0) };
    let (x, a, b) = (numbers(rows * inputs, 17), numbers(inputs * rank, 19), numbers(rank * outputs, 23));
    let hidden =
        product([rows, inputs, rank], |i, j| x[i * inputs + j].value(), |j, r| a[j * rank + r].value(), U);
    let want: Vec<Near> = (0..rows * outputs)
        .map(|e| {
            let terms =
                || (0..rank).map(|r| (hidden[e / outputs * rank + r], b[r * outputs + e % outputs].value()));
            let (value, error) = sum(terms().map(|((hidden, _), b)| hidden * b), U);
            let inner: f64 = terms().map(|((_, error), b)| error * b.abs()).sum();
            (value * scale.value(), (error + inner) * scale.value())
        })
        .collect();
    let sizes = [BATCH, LENGTH, inputs, rank, outputs].map(|size| I32(size as i32));
    let case = |kernel: &str| {
        Case::new(CANDLE, "kernels.metal", kernel)
            .input(&x)
            .input(&a)
            .input(&b)
            .near::<f32>(want.clone(), SUM)
            .bytes(packed(&[&sizes[..], &[F32(scale)]].concat()))
            .threads((2, 4, 12), (2, 2))
    };
    vec![case("fused_lora_forward"), case("fused_lora_forward_tiled")]
}

fn rows() -> Vec<Case> {
    let width = 100;
    let x: Vec<f32> = Sequence(29).between(BATCH * LENGTH * width, -3.0, 3.0);
    let eps = 1e-5_f32;
    let softmax = x.chunks(width).flat_map(|row| {
        let top = row.iter().map(|x| x.value()).fold(f64::MIN, f64::max);
        let total: f64 = row.iter().map(|x| (x.value() - top).exp()).sum();
        row.iter()
            .map(move |x| {
                let value = (x.value() - top).exp() / total;
                (value, U * value * (width as f64 + 32.0 + 2.0 * (top - x.value())))
            })
            .collect::<Vec<_>>()
    });
    let normal = x.chunks(width).flat_map(|row| {
        let mean = row.iter().map(|x| x.value() * x.value()).sum::<f64>() / width as f64;
        let root = (mean + eps.value()).sqrt();
        row.iter()
            .map(move |x| (x.value() / root, U * (width as f64 + 16.0) * (x.value() / root).abs()))
            .collect::<Vec<_>>()
    });
    let sizes = [BATCH, LENGTH, width].map(|size| I32(size as i32));
    let case = |kernel: &str| Case::new(CANDLE, "kernels.metal", kernel).input(&x);
    let grid = |case: Case| case.threadgroup(32 * 4).groups((1, LENGTH, BATCH), (32, 1, 1));
    vec![
        grid(
            case("fused_softmax")
                .near::<f32>(softmax.collect(), "exp of 3 + |2x| ulp, a division of 2.5 ulp, roundings")
                .bytes(packed(&sizes)),
        ),
        grid(
            case("fused_rms_norm")
                .near::<f32>(normal.collect(), "roundings of the sum, sqrt and a division of 3 ulp")
                .bytes(packed(&[&sizes[..], &[F32(eps)]].concat())),
        ),
    ]
}
