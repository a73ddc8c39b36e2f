//! candle's random numbers: a combined Tausworthe and linear congruential generator, uniform and normal.
//!
//! The kernel has a race: its first thread replaces the seed that the others read. Four threads run in lockstep on every device that runs
//! them as one vector, and all read the seed before it is replaced.

use std::f64::consts::TAU;

use elinvar::{bf16, f16};

use super::super::case::{Case, Near};
use super::super::element::Element;
use super::super::reference::U;

const CORPUS: &str = "candle-metal-kernels";
const FILE: &str = "random.metal";
const SEED: [u32; 2] = [0x1234_5678, 0x9abc_def1];

/// The generator of GPU Gems 3, chapter 37, with candle's constants. Its state is a `float` below 1.
struct Generator {
    state: f32,
}

fn tausworthe(z: u32, shifts: [u32; 3], mask: u32) -> u32 {
    let b = ((z << shifts[0]) ^ z) >> shifts[1];
    ((z & mask) << shifts[2]) ^ b
}

/// All four generators from their own values.
fn combined(z: [u32; 3], masks: [u32; 3]) -> u32 {
    let shifts = [[13, 19, 12], [2, 25, 4], [3, 11, 17]];
    let parts = (0..3).map(|k| tausworthe(z[k], shifts[k], masks[k]));
    parts.fold(z[0].wrapping_mul(1_664_525).wrapping_add(1_013_904_223), |all, part| all ^ part)
}

/// candle's masks lack a digit each, except that of the second.
const MASKS: [u32; 3] = [429_496_729, 4_294_967_288, 429_496_280];

fn fraction(word: u32) -> f32 {
    word as f32 / 4_294_967_296.0
}

impl Generator {
    fn new(thread: u32) -> Self {
        let seed = u64::from(SEED[0]) << 32 | u64::from(SEED[1]);
        let factors: [u64; 4] =
            [0x9E37_79B9_7F4A_7C15, 0xF39C_C060_5CED_C834, 0x1082_276B_F3A2_7251, 0xF86C_6A11_D0C1_8E95];
        let seeds = [seed, thread.into(), 1, 1];
        let word = |k: usize| seeds[k].wrapping_mul(factors[k]).wrapping_mul(1_099_087_573) as u32;
        let first = combined([word(0), word(1), word(2)], [4_294_967_294, 4_294_967_288, 4_294_967_280]);
        let last = (1..4).fold(first, |all, k| combined([all ^ word(k); 3], MASKS));
        Self { state: fraction(last) }
    }

    fn next(&mut self) -> f32 {
        let result = self.state;
        self.state = fraction(combined([(f64::from(self.state) * 4_294_967_296.0) as u32; 3], MASKS));
        result
    }
}

pub fn cases() -> Vec<Case> {
    [of::<f32>(8), of::<f16>(7), of::<bf16>(8)].into_iter().flatten().collect()
}

/// A thread makes the numbers of an index and of its mirror; the middle of an odd count is that of no other.
fn places(count: usize, thread: usize) -> [Option<usize>; 2] {
    let mirror = count - (1 - count % 2) - thread;
    [Some(thread), (mirror < count).then_some(mirror)]
}

fn of<T: Element>(count: usize) -> [Case; 2] {
    let (low, high) = (-1.5_f32, 2.25_f32);
    let (mean, deviation) = (0.5_f32, 1.75_f32);
    let threads = count.div_ceil(2);
    let (mut uniform, mut normal) = (vec![(0.0, 0.0); count], vec![(0.0, 0.0); count]);
    let mut seeds = [0_u64; 2];
    let within = |value: f64, error: f64| -> Near { (value, error + T::ROUNDING * value.abs()) };
    for thread in 0..threads {
        let mut generator = Generator::new(thread as u32);
        let all = [(); 3].map(|()| generator.next());
        if thread == 0 {
            seeds = [1, 2].map(|k| (all[k].value() * 4_294_967_296.0) as u64);
        }
        // The first thread takes one more for the seed.
        let second = if thread == 0 { all[2] } else { all[1] };
        for (place, number) in places(count, thread).into_iter().zip([all[0], second]) {
            if let Some(place) = place {
                let value = number.value() * (high - low).value() + low.value();
                uniform[place] = within(value, 4.0 * U * 4.0);
            }
        }
        let size = deviation.value() * (-2.0 * all[0].value().ln()).sqrt();
        let (sin, cos) = (TAU * all[1].value()).sin_cos();
        for (place, part) in places(count, thread).into_iter().zip([cos, sin]) {
            if let Some(place) = place {
                normal[place] = within(size * part + mean.value(), U * (64.0 * size + 4.0));
            }
        }
    }
    let seed_after = |number: u64| [Some((number >> 32) as u32), Some(number as u32)];
    let case = |kernel: &str| {
        Case::new(CORPUS, FILE, format!("rand_{kernel}_{}", T::SHORT))
            .value([count as u64])
            .threads(threads, 4)
    };
    [
        case("uniform")
            .value([low])
            .value([high])
            .updated(&SEED, &seed_after(seeds[0]))
            .cast()
            .near::<T>(uniform, "two roundings of a product and a sum, one of the type"),
        case("normal")
            .value([mean])
            .value([deviation])
            .updated(&SEED, &seed_after(seeds[1]))
            .cast()
            .near::<T>(
                normal,
                "sine and cosine of 2⁻¹⁹, log of 3 ulp, sqrt of 3 ulp, roundings, one of the type",
            ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread() {
        let numbers: Vec<f32> = (0..1000).map(|thread| Generator::new(thread).next()).collect();
        let mean = numbers.iter().map(|x| x.value()).sum::<f64>() / 1000.0;
        assert!((mean - 0.5).abs() < 0.05, "{mean}");
        assert_eq!((places(4, 0), places(4, 1)), ([Some(0), Some(3)], [Some(1), Some(2)]));
        assert_eq!((places(5, 0), places(5, 2)), ([Some(0), None], [Some(2), Some(3)]));
    }
}
