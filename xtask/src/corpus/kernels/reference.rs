//! References that several families share: sums of products, attention, normalization, the discrete Fourier transform.

use super::case::Near;

/// Half a unit in the last place of 1 in `float`.
pub const U: f64 = 1.0 / (1_u64 << 24) as f64;

/// A sum, with one rounding of the sum of magnitudes for each term and two for the products.
pub fn sum(terms: impl Iterator<Item = f64>, rounding: f64) -> Near {
    let (mut sum, mut magnitude, mut count) = (0.0, 0.0, 2.0);
    for term in terms {
        sum += term;
        magnitude += term.abs();
        count += 1.0;
    }
    (sum, count * rounding * magnitude)
}

/// A product of matrices, `[rows, inner]` by `[inner, columns]`, given by their elements.
pub fn product(
    [rows, inner, columns]: [usize; 3],
    left: impl Fn(usize, usize) -> f64,
    right: impl Fn(usize, usize) -> f64,
    rounding: f64,
) -> Vec<Near> {
    let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    places.map(|(row, column)| sum((0..inner).map(|k| left(row, k) * right(k, column)), rounding)).collect()
}

/// What an attention kernel may add to the errors of `float`.
pub const ATTENTION: &str =
    "roundings of the products' terms, 3 + |2x| ulp of each exp and rescaling, roundings of the sums";

/// Attention of one query: the average of the values, weighted by `softmax(scale · query · key)`. Each row is a slice; all sums are in
/// `float`, and the maximum may change with every key.
pub fn attention(query: &[f64], keys: &[&[f64]], values: &[&[f64]], scale: f64) -> Vec<Near> {
    let dot = |key: &[f64]| -> f64 { query.iter().zip(key).map(|(q, k)| q * k * scale).sum() };
    let magnitude = |key: &[f64]| -> f64 { query.iter().zip(key).map(|(q, k)| (q * k * scale).abs()).sum() };
    let scores: Vec<f64> = keys.iter().map(|key| dot(key)).collect();
    let of_scores = keys.iter().map(|key| magnitude(key)).fold(0.0, f64::max) * U * (query.len() + 4) as f64;
    let top = scores.iter().copied().fold(f64::MIN, f64::max);
    let range = top - scores.iter().copied().fold(f64::MAX, f64::min);
    let count = keys.len() as f64;
    let relative = 4.0 * of_scores + 2.0 * U * (3.0 * (count + 2.0) + 4.0 * range) + U * (2.0 * count + 16.0);
    let weights: Vec<f64> = scores.iter().map(|score| (score - top).exp()).collect();
    let total: f64 = weights.iter().sum();
    (0..values[0].len())
        .map(|i| {
            let terms = weights.iter().zip(values).map(|(weight, value)| weight / total * value[i]);
            let (value, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
            (value, 2.0 * relative * size)
        })
        .collect()
}

/// The discrete Fourier transform by its definition, of real and imaginary parts; `sign` is that of the exponent.
pub fn fourier(signal: &[[f64; 2]], sign: f64) -> Vec<[f64; 2]> {
    let count = signal.len();
    let turn = |k: usize| (sign * std::f64::consts::TAU * k as f64 / count as f64).sin_cos();
    let turns: Vec<(f64, f64)> = (0..count).map(turn).collect();
    (0..count)
        .map(|k| {
            signal.iter().enumerate().fold([0.0, 0.0], |[re, im], (j, [x, y])| {
                let (sin, cos) = turns[k * j % count];
                [re + x * cos - y * sin, im + x * sin + y * cos]
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_examples() {
        assert_eq!(product([1, 2, 1], |_, k| [3.0, 4.0][k], |k, _| [5.0, 6.0][k], 0.0), [(39.0, 0.0)]);
        let [a, b]: [&[f64]; 2] = [&[1.0, 0.0], &[0.0, 1.0]];
        // Equal scores: the mean of the values.
        let mean = attention(&[0.0, 0.0], &[a, b], &[&[2.0], &[4.0]], 1.0);
        assert!((mean[0].0 - 3.0).abs() < 1e-12 && mean[0].1 < 1e-4);
        let first = attention(&[90.0, 0.0], &[a, b], &[&[2.0], &[4.0]], 1.0);
        assert!((first[0].0 - 2.0).abs() < 1e-12);
        let transform = fourier(&[[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [0.0, 0.0]], -1.0);
        assert!((transform[1][0] - 2.0).abs() < 1e-12 && transform[0][0].abs() < 1e-12);
    }
}
