//! Sample inputs: every value of the 16-bit formats; for float all exponents, ranges of interest, and edge cases.

use super::formats::Format;
use super::functions::Function;

/// A deterministic sequence of numbers (SplitMix64).
pub struct Sequence(pub u64);

impl Sequence {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`.
    fn between(&mut self, (low, high): (f64, f64)) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Zeros, limits, numbers around 1, multiples of pi/2, and thresholds of the exponential functions.
const EDGES: [f64; 26] = [
    0.0,
    1.0,
    0.5,
    0.25,
    2.0,
    1.5,
    3.0,
    10.0,
    0.1,
    std::f64::consts::FRAC_PI_4,
    std::f64::consts::FRAC_PI_2,
    std::f64::consts::PI,
    22.0,
    // The float nearest to a multiple of pi/2: 16367173 * 2^72.
    16_367_173.0 * (1u128 << 72) as f64,
    88.72284,
    103.97208,
    87.33655,
    127.99999,
    149.0,
    38.53184,
    45.1545,
    89.41599,
    1e5,
    131_072.0,
    8_388_608.0,
    f64::INFINITY,
];

/// The columns of arguments of a function, of equal length.
pub fn columns<F: Format>(function: &Function, samples: usize) -> [Vec<F>; 3] {
    if function.arity == 1 && F::BITS == 16 {
        let all: Vec<F> = (0..1 << 16).map(F::of_bits).collect();
        return [all.clone(), all.clone(), all];
    }
    let mut sequence = Sequence(function.name.bytes().fold(1, |seed, b| seed * 257 + u64::from(b)));
    let edges = edges::<F>();
    let mut columns: [Vec<F>; 3] = Default::default();
    for (k, column) in columns.iter_mut().enumerate() {
        for i in 0..edges.len().pow(function.arity.min(2) as u32) {
            column
                .push(edges[if k == 0 { i % edges.len() } else { i / edges.len() * (k * k) % edges.len() }]);
        }
        // Half of the samples are from the ranges of interest, the others of all magnitudes.
        for i in 0..samples {
            let focus = function.focus[i / 4 % function.focus.len()];
            column.push(match i % 4 {
                0 | 1 => F::near(sequence.between(focus)),
                2 => moderate(&mut sequence),
                _ => F::of_bits(sequence.next() as u32),
            });
        }
    }
    columns
}

/// A number with a magnitude from 2^-20 to 2^20.
fn moderate<F: Format>(sequence: &mut Sequence) -> F {
    let sign = if sequence.next() & 1 == 0 { 1.0 } else { -1.0 };
    F::near(sign * sequence.between((-20.0, 20.0)).exp2())
}

/// The edge cases with their neighbors, both signs, and the limits of the format.
fn edges<F: Format>() -> Vec<F> {
    let sign = 1u32 << (F::BITS - 1);
    let infinity = ((1u32 << (F::BITS - F::DIGITS as u32)) - 1) << (F::DIGITS - 1);
    let least_normal = 1u32 << (F::DIGITS - 1);
    let mut bits = vec![0, 1, 2, least_normal - 1, least_normal, infinity - 1, infinity, infinity + 1];
    for edge in EDGES {
        let middle = of_value::<F>(edge);
        bits.extend([middle, middle + 1, middle.saturating_sub(1)]);
    }
    bits.into_iter().flat_map(|b| [F::of_bits(b), F::of_bits(b | sign)]).collect()
}

/// The bits of the nearest number.
fn of_value<F: Format>(value: f64) -> u32 {
    bytemuck::bytes_of(&F::near(value)).iter().rev().fold(0, |bits, b| bits << 8 | u32::from(*b))
}

#[cfg(test)]
mod tests {
    use super::super::functions::FUNCTIONS;
    use super::*;
    use elinvar::f16;

    #[test]
    fn short_formats_are_covered() {
        let [all, ..] = columns::<f16>(&FUNCTIONS[0], 10);
        assert_eq!(all.len(), 65_536);
    }

    #[test]
    fn edges_have_the_ends() {
        let edges = edges::<f32>();
        for end in [0.0, f32::MAX, f32::INFINITY, f32::MIN_POSITIVE, 1e-45, -f32::MAX] {
            assert!(edges.contains(&end), "{end}");
        }
        assert!(edges.iter().any(|e| e.is_nan()));
    }

    #[test]
    fn columns_are_of_one_length_and_repeatable() {
        let function = FUNCTIONS.iter().find(|f| f.name == "fma").unwrap();
        let (a, b) = (columns::<f32>(function, 1000), columns::<f32>(function, 1000));
        assert!(a[0].len() > 1000 && a[0].len() == a[1].len() && a[1].len() == a[2].len());
        assert!((0..3).all(|k| a[k].iter().zip(&b[k]).all(|(x, y)| x.to_bits() == y.to_bits())));
    }
}
