//! mps-spectro's kernels: the frames of a short-time Fourier transform, their overlapping sum, and the gradients of both.

use elinvar::f16;

use super::case::Case;
use super::element::{Element, Sequence};
use super::reference::{U, sum};

const CORPUS: &str = "mps-spectro";
const FILE: &str = "_shaders.0.metal";
const SUM: &str = "one rounding of the sum of magnitudes for each term, a division of 2.5 ulp, one rounding of the output's type";

const BATCH: usize = 2;
const FRAMES: usize = 9;
const WIDTH: usize = 20;
const HOP: usize = 6;
/// Samples that are mirrored at both ends.
const PAD: usize = 10;
/// Of the signal without its ends. The last frame covers the end but for one sample: the kernel of the gradient lacks that one.
const LENGTH: usize = (FRAMES - 1) * HOP + WIDTH - 2 * PAD + 1;

pub fn cases() -> Vec<Case> {
    let mut cases = overlapped::<f32>("float");
    cases.extend(overlapped::<f16>("half"));
    cases.extend(overlapped::<f16>("mixed"));
    cases.extend(frames());
    cases.extend(gradients());
    cases
}

fn ints(case: Case, values: &[usize]) -> Case {
    values.iter().fold(case, |case, value| case.value([*value as i32]))
}

/// A window that is zero at its start.
fn window() -> Vec<f32> {
    let at = |j: usize| (std::f64::consts::PI * j as f64 / WIDTH as f64).sin().powi(2);
    (0..WIDTH).map(|j| at(j) as f32).collect()
}

fn squares(window: &[f32]) -> Vec<f32> {
    window.iter().map(|w| w * w).collect()
}

/// Frames that have a sample, and its place in each.
fn covering(sample: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..FRAMES).filter_map(move |f| Some((f, sample.checked_sub(f * HOP)?))).filter(|(_, j)| *j < WIDTH)
}

/// Sums of windowed frames, divided by the sum of the windows' squares; frames are columns, or rows.
fn overlapped<T: Element>(name: &str) -> Vec<Case> {
    let length = (FRAMES - 1) * HOP + WIDTH;
    let frames: Vec<T> = Sequence(3).between(BATCH * FRAMES * WIDTH, -1.0, 1.0);
    let (window, squares) = (window(), squares(&window()));
    let narrow = |values: &[f32]| -> Vec<f16> { values.iter().map(|x| f16::of(x.value())).collect() };
    let (half_window, half_squares) = (narrow(&window), narrow(&squares));
    let is_half = name == "half";
    let weight = |j: usize| if is_half { half_window[j].value() } else { window[j].value() };
    let square = |j: usize| if is_half { half_squares[j].value() } else { squares[j].value() };
    let rounding = if is_half { f16::ROUNDING } else { U };
    let case = |suffix: &str, by_rows: bool| {
        let place = |batch: usize, f: usize, j: usize| {
            batch * FRAMES * WIDTH + if by_rows { f * WIDTH + j } else { j * FRAMES + f }
        };
        let want = (0..BATCH * length).map(|e| {
            let at = || covering(e % length);
            let terms = at().map(|(f, j)| frames[place(e / length, f, j)].value() * weight(j));
            let (value, error) = sum(terms, rounding);
            let total: f64 = at().map(|(_, j)| square(j)).sum();
            if total <= 1e-11 {
                (0.0, 0.0)
            } else {
                (value / total, error / total + 8.0 * rounding * (value / total).abs())
            }
        });
        let case =
            Case::new(CORPUS, FILE, format!("istft_overlap_add_div_envelope_{name}{suffix}")).input(&frames);
        let case = if is_half {
            case.input(&half_window).input(&half_squares).near::<f16>(want.collect(), SUM)
        } else {
            case.input(&window).input(&squares).near::<f32>(want.collect(), SUM)
        };
        ints(case, &[BATCH, FRAMES, WIDTH, HOP, length]).threads((BATCH * length).next_multiple_of(32), 32)
    };
    vec![case("", false), case("_t", true)]
}

/// The sample of the signal that a padded place mirrors.
fn mirrored(place: usize) -> usize {
    let at = place as isize - PAD as isize;
    let last = LENGTH as isize - 1;
    (if at < 0 {
        -at
    } else if at > last {
        2 * last - at
    } else {
        at
    }) as usize
}

fn frames() -> [Case; 2] {
    let signal: Vec<f32> = Sequence(5).between(BATCH * LENGTH, -1.0, 1.0);
    let window = window();
    let want: Vec<f32> = (0..BATCH * FRAMES * WIDTH)
        .map(|e| {
            let (batch, f, j) = (e / WIDTH / FRAMES, e / WIDTH % FRAMES, e % WIDTH);
            signal[batch * LENGTH + mirrored(f * HOP + j)] * window[j]
        })
        .collect();
    let case = |kernel: &str| {
        let case = Case::new(CORPUS, FILE, kernel).input(&signal).input(&window).full_output(want.clone());
        ints(case, &[BATCH, LENGTH, WIDTH, HOP, FRAMES, PAD])
    };
    // Tiles of four frames.
    let tile = 4;
    [
        case("stft_extract_frames_float").threads((24, 10, BATCH), (8, 2)),
        ints(case("stft_extract_frames_tiled_float"), &[tile, (tile - 1) * HOP + WIDTH])
            .groups((1, FRAMES.div_ceil(tile), BATCH), (32, 1)),
    ]
}

fn gradients() -> [Case; 2] {
    let window = window();
    let slopes: Vec<f32> = Sequence(7).between(BATCH * FRAMES * WIDTH, -1.0, 1.0);
    let mut terms = vec![Vec::new(); BATCH * LENGTH];
    for (e, slope) in slopes.iter().enumerate() {
        let (batch, f, j) = (e / WIDTH / FRAMES, e / WIDTH % FRAMES, e % WIDTH);
        terms[batch * LENGTH + mirrored(f * HOP + j)].push(slope.value() * window[j].value());
    }
    let of_signal = terms.into_iter().map(|terms| sum(terms.into_iter(), U));
    // The output is shorter than the frames.
    let length = (FRAMES - 1) * HOP + WIDTH - 5;
    let squares = squares(&window);
    let of_output: Vec<f32> = Sequence(11).between(BATCH * length, -1.0, 1.0);
    let of_frames = (0..BATCH * WIDTH * FRAMES).map(|e| {
        let (batch, j, f) = (e / FRAMES / WIDTH, e / FRAMES % WIDTH, e % FRAMES);
        let t = f * HOP + j;
        let total: f64 = covering(t).map(|(_, j)| squares[j].value()).sum();
        if t >= length || total <= 1e-11 {
            return (0.0, 0.0);
        }
        let value = of_output[batch * length + t].value() * window[j].value() / total;
        (value, 12.0 * U * value.abs())
    });
    let case = |kernel: &str| Case::new(CORPUS, FILE, kernel);
    [
        ints(
            case("stft_backward_input_float")
                .input(&slopes)
                .input(&window)
                .near::<f32>(of_signal.collect(), SUM),
            &[BATCH, LENGTH, WIDTH, HOP, FRAMES, PAD],
        )
        .threads((BATCH * LENGTH).next_multiple_of(32), 32),
        ints(
            case("istft_backward_frames_float")
                .input(&of_output)
                .input(&window)
                .input(&squares)
                .near::<f32>(of_frames.collect(), SUM),
            &[BATCH, FRAMES, WIDTH, HOP, length],
        )
        .threads((24, 10, BATCH), (8, 2)),
    ]
}
