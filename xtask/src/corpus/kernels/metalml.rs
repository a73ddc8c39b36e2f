//! metalml's kernels: statistics, products and distances by tiles, clusters, neighbors, trees and kernel functions.
//!
//! Sizes are an array of `uint`.

use super::case::{Case, Near, guarded};
use super::element::{Element, Sequence};
use super::reference::{U, sum};

const CORPUS: &str = "metalml";
const FILE: &str = "kernels.metal";
const SUM: &str = "one rounding of the sum of magnitudes for each term";
const EXP: &str = "exp of 3 + |2x| ulp, tanh of 5 ulp, divisions of 2.5 ulp, roundings of the sums";

const N: usize = 300;
const D: usize = 21;

pub fn cases() -> Vec<Case> {
    let mut cases = statistics();
    cases.extend(products());
    cases.extend(distances());
    cases.extend(predictions());
    cases
}

fn case(kernel: &str) -> Case {
    Case::new(CORPUS, FILE, kernel)
}

fn sizes(case: Case, values: &[usize]) -> Case {
    case.input(&values.iter().map(|value| *value as u32).collect::<Vec<_>>())
}

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    Sequence(seed).between(count, -1.0, 1.0)
}

fn positive(count: usize, seed: u64) -> Vec<f32> {
    Sequence(seed).between(count, 0.5, 2.0)
}

/// Mean relative to the first row, variance, minimum and maximum of each column.
fn moments(x: &[f32], rows: std::ops::Range<usize>) -> [Vec<f64>; 4] {
    let column = |j: usize| rows.clone().map(move |i| x[i * D + j].value());
    let count = rows.len() as f64;
    let mean = |j: usize| column(j).map(|v| v - x[j].value()).sum::<f64>() / count;
    let spread = |j: usize| column(j).map(|v| (v - x[j].value() - mean(j)).powi(2)).sum::<f64>();
    [
        (0..D).map(mean).collect(),
        (0..D).map(spread).collect(),
        (0..D).map(|j| column(j).fold(f64::INFINITY, f64::min)).collect(),
        (0..D).map(|j| column(j).fold(f64::NEG_INFINITY, f64::max)).collect(),
    ]
}

/// Extremes are exact, the others have a rounding for each row.
fn near(parts: [Vec<f64>; 4], scale: f64) -> Vec<Near> {
    let [mean, spread, low, high] = parts;
    let loose = |values: Vec<f64>, factor: f64| {
        values.into_iter().map(move |v| (v * factor, U * (4.0 * N as f64) * (v.abs() * factor + factor)))
    };
    let exact = |values: Vec<f64>| values.into_iter().map(|v| (v, 0.0));
    loose(mean, 1.0).chain(loose(spread, scale)).chain(exact(low)).chain(exact(high)).collect()
}

fn statistics() -> Vec<Case> {
    const WELFORD: &str = "Welford's recurrence: four roundings for each term";
    let x = numbers(N * D, 3);
    let chunks = [0..256, 256..N];
    let partial: Vec<Near> = chunks.iter().flat_map(|rows| near(moments(&x, rows.clone()), 1.0)).collect();
    let given: Vec<f32> = chunks
        .iter()
        .flat_map(|rows| {
            moments(&x, rows.clone()).into_iter().flatten().map(|v| v as f32).collect::<Vec<_>>()
        })
        .collect();
    let all = near(moments(&x, 0..N), 1.0 / N as f64);
    let [mean, spread, ..] = moments(&x, 0..N);
    let stats: Vec<f32> =
        mean.iter().copied().chain(spread.iter().map(|v| v / N as f64)).map(|v| v as f32).collect();
    let standard = (0..N * D).map(|e| {
        let j = e % D;
        let value = (x[e].value() - x[j].value() - stats[j].value()) / stats[D + j].value().sqrt();
        (value, 16.0 * U * (value.abs() + 8.0))
    });
    let (high, low, scale) = (numbers(D, 5), numbers(D, 7), positive(D, 11));
    let shifted = (0..N * D).map(|e| {
        let j = e % D;
        let (x, high, low, scale) = (x[e].value(), high[j].value(), low[j].value(), scale[j].value());
        ((x - high - low) / scale, 12.0 * U * (x.abs() + high.abs() + low.abs()) / scale)
    });
    let scaled = (0..N * D).map(|e| {
        let (product, bias) = (x[e].value() * scale[e % D].value(), high[e % D].value());
        (product + bias, 2.0 * U * (product.abs() + bias.abs()))
    });
    let normal = x.chunks(D).flat_map(|row| {
        let size = row.iter().map(|x| x.value() * x.value()).sum::<f64>().sqrt();
        row.iter().map(move |x| (x.value() / size, U * 64.0 * (x.value() / size).abs())).collect::<Vec<_>>()
    });
    let threads = (N * D).next_multiple_of(32);
    vec![
        sizes(case("stats_partial").input(&x).near::<f32>(partial, WELFORD), &[N, D])
            .groups((D.div_ceil(16), 2), (16, 16)),
        sizes(case("stats_finish").input(&given).near::<f32>(all.clone(), WELFORD), &[N, D]).threads(32, 32),
        sizes(case("column_stats").input(&x).near::<f32>(all, WELFORD), &[N, D]).groups(D, 256),
        sizes(
            case("standardize_fitted")
                .input(&x)
                .input(&stats)
                .near::<f32>(standard.collect(), "sqrt and a division of 3 ulp"),
            &[N, D, 1, 1],
        )
        .threads(threads, 32),
        sizes(
            case("standardize")
                .input(&x)
                .input(&high)
                .input(&low)
                .input(&scale)
                .near::<f32>(shifted.collect(), "two roundings and a division of 2.5 ulp"),
            &[N, D],
        )
        .threads(threads, 32),
        sizes(
            case("affine")
                .input(&x)
                .input(&scale)
                .input(&high)
                .near::<f32>(scaled.collect(), "two roundings, or one"),
            &[N, D],
        )
        .threads(threads, 32),
        sizes(
            case("normalize_rows")
                .input(&x)
                .near::<f32>(normal.collect(), "divisions of 2.5 ulp, roundings of the sum"),
            &[N, D, 2],
        )
        .threads(320, 32),
    ]
}

fn products() -> Vec<Case> {
    // Blocks are whole tiles of samples.
    let (targets, block) = (3, 112);
    let (x, y) = (numbers(N * D, 13), numbers(N * targets, 17));
    let columns = D + targets;
    let at = |i: usize, c: usize| if c < D { x[i * D + c].value() } else { y[i * targets + c - D].value() };
    let parts = N.div_ceil(block);
    let partial = (0..parts * D * columns).map(|e| {
        let (part, row, column) = (e / columns / D, e / columns % D, e % columns);
        sum((part * block..N.min((part + 1) * block)).map(|i| at(i, row) * at(i, column)), U)
    });
    let pieces = numbers(parts * D * columns, 19);
    let size = D * columns;
    let total = |e: usize| sum((0..parts).map(|part| pieces[part * size + e].value()), U);
    // What is above the diagonal is taken from below.
    let mirrored = (0..size).map(|e| {
        let (row, column) = (e / columns, e % columns);
        total(if column < D && column > row { column * columns + row } else { e })
    });
    let (m, n, k) = (37, 29, 45);
    let (a, b) = (numbers(m * k, 23), numbers(k * n, 29));
    let matmul =
        super::reference::product([m, k, n], |i, j| a[i * k + j].value(), |j, c| b[j * n + c].value(), U);
    let (weights, bias) = (numbers(D * 5, 31), numbers(5, 37));
    let means = numbers(2 * D, 41);
    let centered = |e: usize| x[e].value() - means[e % D].value() - means[D + e % D].value();
    let projected = (0..N * 5).map(|e| {
        let terms = (0..D).map(|j| centered(e / 5 * D + j) * weights[j * 5 + e % 5].value());
        let (value, error) = sum(terms.chain([bias[e % 5].value()]), U);
        (value, error + 4.0 * U * D as f64)
    });
    // With the hyperbolic tangent.
    let activated = (0..N * 5).map(|e| {
        let terms = (0..D).map(|j| x[e / 5 * D + j].value() * weights[j * 5 + e % 5].value());
        let (value, error) = sum(terms.chain([bias[e % 5].value()]), U);
        (value.tanh(), error + 12.0 * U)
    });
    vec![
        sizes(
            case("gram_partial").input(&x).input(&y).near::<f32>(partial.collect(), SUM),
            &[N, D, targets, block],
        )
        .groups((columns.div_ceil(16), D.div_ceil(16), parts), (16, 16)),
        sizes(
            case("gram_finish").input(&pieces).near::<f32>((0..size).map(total).collect(), SUM),
            &[N, D, targets, block],
        )
        .threads(size.next_multiple_of(32), 32),
        sizes(
            case("gram_symmetric_finish").input(&pieces).near::<f32>(mirrored.collect(), SUM),
            &[N, D, targets, block],
        )
        .threads(size.next_multiple_of(32), 32),
        sizes(case("matmul").input(&a).input(&b).near::<f32>(matmul, SUM), &[m, n, k])
            .groups((n.div_ceil(16), m.div_ceil(16)), (16, 16)),
        sizes(
            case("projection_tiled")
                .input(&x)
                .input(&weights)
                .input(&bias)
                .input(&means)
                .near::<f32>(projected.collect(), SUM),
            &[N, D, 5, 1],
        )
        .groups((1, N.div_ceil(16)), (16, 16)),
        sizes(
            case("linear_small").input(&x).input(&weights).input(&bias).near::<f32>(activated.collect(), EXP),
            &[N, D, 5, 2],
        )
        .threads(N * 5 * 32, 64),
    ]
}

fn distance(x: &[f32], y: &[f32]) -> Near {
    let (value, error) = sum(x.iter().zip(y).map(|(x, y)| (x.value() - y.value()).powi(2)), U);
    (value, 4.0 * error)
}

fn distances() -> Vec<Case> {
    let k = 7;
    let (x, centers) = (numbers(N * D, 43), numbers(k * D, 47));
    let pairs: Vec<Near> =
        (0..N * k).map(|e| distance(&x[e / k * D..][..D], &centers[e % k * D..][..D])).collect();
    let labels: Vec<i32> = pairs
        .chunks(k)
        .map(|row| row.iter().enumerate().min_by(|a, b| a.1.0.total_cmp(&b.1.0)).map_or(0, |(c, _)| c as i32))
        .collect();
    let errors: Vec<Near> = pairs.chunks(k).zip(&labels).map(|(row, label)| row[*label as usize]).collect();
    let weights = positive(N, 53);
    // The last cluster is empty.
    let members: Vec<i32> = (0..N).map(|i| (i * 5 % (k - 1)) as i32).collect();
    let old = numbers(k * D, 59);
    let centers_of = (0..k * D).map(|e| {
        let of = || (0..N).filter(|i| members[*i] as usize == e / D);
        let (total, error) = sum(of().map(|i| weights[i].value() * x[i * D + e % D].value()), U);
        let count: f64 = of().map(|i| weights[i].value()).sum();
        if count == 0.0 { (old[e].value(), 0.0) } else { (total / count, error / count + 512.0 * U) }
    });
    let status = |want: Option<u32>| vec![want];
    let inputs = |kernel: &str| case(kernel).input(&x).input(&centers);
    vec![
        sizes(inputs("distances").near::<f32>(pairs.clone(), SUM), &[N, k, D])
            .threads((N * k).next_multiple_of(32), 32),
        sizes(inputs("distances_coalesced").near::<f32>(pairs.clone(), SUM), &[N, k, D])
            .threads(N * k * 32, 64),
        sizes(inputs("distances_tiled").near::<f32>(pairs, SUM), &[N, k, D])
            .groups((1, N.div_ceil(16)), (16, 16)),
        sizes(
            inputs("assign_clusters").full_output(labels.clone()).near::<f32>(errors.clone(), SUM),
            &[N, k, D],
        )
        .threads(320, 32),
        sizes(
            inputs("assign_coalesced")
                .full_output(labels)
                .near::<f32>(errors, SUM)
                .updated(&guarded(&[0_u32]), &status(Some(0))),
            &[N, k, D],
        )
        .threads(N * 32, 64),
        sizes(
            case("update_centers")
                .input(&x)
                .input(&members)
                .input(&weights)
                .input(&old)
                .near::<f32>(centers_of.collect(), SUM),
            &[N, k, D],
        )
        .threads((k * D).next_multiple_of(32), 32),
    ]
}

fn predictions() -> Vec<Case> {
    let classes = 5;
    let scores: Vec<f32> = Sequence(61).between(N * classes, -3.0, 3.0);
    let softmax = scores.chunks(classes).flat_map(|row| {
        let top = row.iter().map(|x| x.value()).fold(f64::MIN, f64::max);
        let total: f64 = row.iter().map(|x| (x.value() - top).exp()).sum();
        row.iter().map(move |x| ((x.value() - top).exp() / total, 64.0 * U)).collect::<Vec<_>>()
    });
    let bias = numbers(classes, 67);
    let relu = scores.iter().enumerate().map(|(e, x)| Some((x + bias[e % classes]).max(0.0)));
    // Distinct numbers, and some that are equal: the lower index is the first.
    let (rows, samples, k) = (20, 90, 6);
    let matrix: Vec<f32> = Sequence(71).any::<u8>(rows * samples).iter().map(|x| f32::from(x % 64)).collect();
    let nearest: Vec<(f32, usize)> = matrix
        .chunks(samples)
        .flat_map(|row| {
            let mut all: Vec<(f32, usize)> = row.iter().copied().zip(0..).collect();
            all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            all.truncate(k);
            all
        })
        .collect();
    let roots = nearest.iter().map(|(value, _)| (value.value().sqrt(), 6.0 * U * value.value().sqrt()));
    let x = numbers(N * D, 73);
    let vectors = numbers(9 * D, 79);
    let parameters = [0.3_f32, 0.5, 3.0];
    let radial = (0..N * 9).map(|e| {
        let (square, error) = distance(&x[e / 9 * D..][..D], &vectors[e % 9 * D..][..D]);
        let value = (-parameters[0].value() * square).exp();
        (value, value * (error + 16.0 * U + 4.0 * U * square))
    });
    let (mean, variance) = (numbers(classes * D, 83), positive(classes * D, 89));
    let gaussian = (0..N * classes).map(|e| {
        let at = |j: usize| e % classes * D + j;
        let terms = (0..D).map(|j| {
            (x[e / classes * D + j].value() - mean[at(j)].value()).powi(2) / variance[at(j)].value()
        });
        let (total, error) = sum(terms, U);
        (bias[e % classes].value() - 0.5 * total, 4.0 * error)
    });
    let trees = 3;
    let parts = numbers(trees * N * classes, 97);
    let average = (0..N * classes).map(|e| {
        let (total, error) = sum((0..trees).map(|t| parts[t * N * classes + e].value()), U);
        (total / trees as f64, error)
    });
    // Complete trees of depth 2: three inner nodes and four leaves.
    let nodes = 7 * trees;
    let thresholds = numbers(nodes, 101);
    let features: Vec<i32> =
        (0..nodes).map(|node| if node % 7 < 3 { (node * 5 % D) as i32 } else { -1 }).collect();
    let child = |side: usize| -> Vec<i32> {
        (0..nodes).map(|node| (node / 7 * 7 + node % 7 * 2 + 1 + side) as i32).collect()
    };
    let values = numbers(nodes * classes, 103);
    let leaves = (0..trees * N).flat_map(|row| {
        let (tree, sample) = (row / N, row % N);
        let mut node = 7 * tree;
        while features[node] >= 0 {
            let right = x[sample * D + features[node] as usize] > thresholds[node];
            node = 7 * tree + node % 7 * 2 + 1 + usize::from(right);
        }
        values[node * classes..][..classes].to_vec()
    });
    vec![
        sizes(
            case("softmax_rows").updated_near::<f32>(&guarded(&scores), softmax.collect(), EXP),
            &[N, classes],
        )
        .threads(320, 32),
        sizes(
            case("activation").updated(&guarded(&scores), &relu.collect::<Vec<_>>()).input(&bias),
            &[N, classes, 1],
        )
        .threads((N * classes).next_multiple_of(32), 32),
        sizes(
            case("knn_topk")
                .input(&matrix)
                .near::<f32>(roots.collect(), "sqrt of 3 ulp")
                .full_output(nearest.iter().map(|(_, index)| *index as i32)),
            &[rows, samples, k],
        )
        .threads(rows * 32, 64),
        sizes(
            case("svm_kernel")
                .input(&x)
                .input(&vectors)
                .input(&parameters)
                .near::<f32>(radial.collect(), EXP),
            &[N, D, 9, 1],
        )
        .threads(N * 9 * 32, 64),
        sizes(
            case("gaussian_scores")
                .input(&x)
                .input(&mean)
                .input(&variance)
                .input(&bias)
                .near::<f32>(gaussian.collect(), SUM),
            &[N, D, classes],
        )
        .threads(N * classes * 32, 64),
        sizes(
            case("forest_average").input(&parts).near::<f32>(average.collect(), SUM),
            &[N, D, trees, classes],
        )
        .threads((N * classes).next_multiple_of(32), 32),
        sizes(
            case("tree_scores")
                .input(&x)
                .input(&[0_i32, 7, 14])
                .input(&child(0))
                .input(&child(1))
                .input(&features)
                .input(&thresholds)
                .input(&values)
                .full_output(leaves.collect::<Vec<f32>>()),
            &[N, D, trees, classes],
        )
        .threads((trees * N).next_multiple_of(32), 32),
    ]
}
