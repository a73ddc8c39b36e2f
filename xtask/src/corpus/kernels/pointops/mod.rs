//! mps-pointops's kernels: searches in clouds of points, sampling, sparse convolution, and hierarchies of boxes.
//!
//! Coordinates are small integers, so that squares of distances are exact, and many are equal: ties go to the lower index.

mod boxes;
mod sampling;
mod sparse;

use elinvar::f16;

use super::case::{Case, Near};
use super::element::{Element, Sequence};
use super::reference::U;

const CORPUS: &str = "mps-pointops";
const ROOT: &str = "sqrt of 3 ulp";
const SUM: &str = "one rounding of the sum of magnitudes for each term";

/// Points whose coordinates are integers below 24.
#[derive(Clone)]
struct Cloud {
    dim: usize,
    data: Vec<f32>,
}

impl Cloud {
    fn new(count: usize, dim: usize, seed: u64) -> Self {
        Self {
            dim,
            data: Sequence(seed).between(count * dim, 0.0, 24.0).iter().map(|x: &f32| x.floor()).collect(),
        }
    }

    fn row(&self, index: usize) -> &[f32] {
        &self.data[index * self.dim..][..self.dim]
    }

    /// Makes the point no number.
    fn spoil(&mut self, index: usize, value: f32) {
        let dim = self.dim;
        self.data[index * dim + index % dim] = value;
    }

    fn is_finite(&self, index: usize) -> bool {
        self.row(index).iter().all(|x| x.is_finite())
    }
}

fn squared(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

fn long(case: Case, values: &[usize]) -> Case {
    values.iter().fold(case, |case, value| case.value([*value as i64]))
}

fn longs(values: &[usize]) -> Vec<i64> {
    values.iter().map(|value| *value as i64).collect()
}

fn roots(values: &[f32]) -> Vec<Near> {
    values.iter().map(|value| (value.value().sqrt(), 6.0 * U * value.value().sqrt())).collect()
}

/// The `count` nearest points of a range: squares of the distances and indices.
fn nearest(query: &[f32], points: &Cloud, range: std::ops::Range<usize>, count: usize) -> Vec<(f32, usize)> {
    let mut all: Vec<(f32, usize)> = range
        .filter(|index| points.is_finite(*index))
        .map(|index| (squared(query, points.row(index)), index))
        .collect();
    if query.iter().any(|x| !x.is_finite()) {
        all.clear();
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    all.truncate(count);
    all
}

/// The first `count` points of a range within a radius.
fn within(
    query: &[f32],
    points: &Cloud,
    range: std::ops::Range<usize>,
    count: usize,
    radius: f32,
) -> Vec<(f32, usize)> {
    let finite = query.iter().all(|x| x.is_finite());
    range
        .filter(|index| finite && points.is_finite(*index))
        .map(|index| (squared(query, points.row(index)), index))
        .filter(|(distance, _)| *distance < radius * radius)
        .take(count)
        .collect()
}

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        ball::<f32>(),
        ball::<f16>(),
        knn(),
        flat_knn(),
        radius::<f32>(),
        radius::<f16>(),
        one_nearest(),
    ];
    cases.extend(chamfer());
    cases.extend(features());
    cases.extend(three());
    cases.extend(sampling::cases());
    cases.extend(sparse::cases());
    cases.extend(boxes::cases());
    cases
}

/// The cloud in another type; its coordinates are exact in it.
fn narrow<T: Element>(cloud: &Cloud) -> Vec<T> {
    cloud.data.iter().map(|x| T::of(x.value())).collect()
}

/// For each query the first neighbors within a radius, in batches of different lengths.
fn ball<T: Element>() -> Case {
    let (batches, queries, points, count) = (2, 13, 150, 40);
    let (mut q, mut p) = (Cloud::new(batches * queries, 3, 3), Cloud::new(batches * points, 3, 5));
    q.spoil(4, f32::NAN);
    p.spoil(7, f32::INFINITY);
    p.spoil(40, f32::NAN);
    let (of_queries, of_points) = ([13, 10], [150, 77]);
    let radius = 12.0_f32;
    let (mut indices, mut distances) = (Vec::new(), Vec::new());
    for query in 0..batches * queries {
        let batch = query / queries;
        let range = batch * points..batch * points + of_points[batch];
        let mut found = within(q.row(query), &p, range, count, radius);
        if query % queries >= of_queries[batch] {
            found.clear();
        }
        let start = batch * points;
        indices.extend(found.iter().map(|(_, index)| (index - start) as i64));
        distances.extend(found.iter().map(|(distance, _)| *distance));
        indices.resize((query + 1) * count, -1);
        distances.resize((query + 1) * count, 0.0);
    }
    let case = Case::new(CORPUS, "ball_query.metal", format!("ball_query_{}", T::SHORT))
        .input(&narrow::<T>(&q))
        .input(&narrow::<T>(&p))
        .input(&longs(&of_queries))
        .input(&longs(&of_points))
        .full_output(indices)
        .full_output(distances);
    long(case, &[batches, queries, points, count])
        .value([radius * radius])
        .value([radius])
        .groups((batches * queries).div_ceil(8), 256)
}

/// The nearest point by three norms; queries and points of batches of different lengths, one of them empty.
fn chamfer() -> Vec<Case> {
    let (batches, queries, points) = (3, 11, 90);
    let (of_queries, of_points) = ([11, 8, 11], [90, 65, 0]);
    let case = |kernel: &str, dim: usize, norm: usize| {
        let (q, p) = (Cloud::new(batches * queries, dim, 7), Cloud::new(batches * points, dim, 11));
        let away = |a: &[f32], b: &[f32]| -> f32 {
            if norm == 1 { a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum() } else { squared(a, b) }
        };
        let best: Vec<(f32, i64)> = (0..batches * queries)
            .map(|query| {
                let batch = query / queries;
                let known = query % queries < of_queries[batch];
                let all = (0..of_points[batch]).filter(|_| known);
                let all = all.map(|index| (away(q.row(query), p.row(batch * points + index)), index as i64));
                all.reduce(|a, b| if b.0 < a.0 { b } else { a }).unwrap_or((0.0, -1))
            })
            .collect();
        let case = Case::new(CORPUS, "chamfer_nn.metal", kernel)
            .input(&q.data)
            .input(&p.data)
            .input(&longs(&of_queries))
            .input(&longs(&of_points))
            .full_output(best.iter().map(|(distance, _)| *distance))
            .full_output(best.iter().map(|(_, index)| *index));
        let case = long(case, &[batches, queries, points]);
        let case = if kernel.contains("_nd_") { long(case, &[dim, norm]) } else { case };
        case.groups((batches * queries).div_ceil(8), 256)
    };
    vec![
        case("chamfer_nearest_f32", 3, 2),
        case("chamfer_nearest_l1_f32", 3, 1),
        case("chamfer_nearest_nd_f32", 5, 1),
    ]
}

/// More neighbors than a simdgroup has lanes, in a list that is sorted while it is made.
fn knn() -> Case {
    let (batches, queries, points, count) = (2, 11, 300, 45);
    let (q, p) = (Cloud::new(batches * queries, 3, 13), Cloud::new(batches * points, 3, 17));
    let found: Vec<(f32, usize)> = (0..batches * queries)
        .flat_map(|query| {
            let start = query / queries * points;
            let all = nearest(q.row(query), &p, start..start + points, count);
            all.into_iter().map(move |(distance, index)| (distance, index - start))
        })
        .collect();
    let distances: Vec<f32> = found.iter().map(|(distance, _)| *distance).collect();
    let case = Case::new(CORPUS, "knn.metal", "knn")
        .input(&q.data)
        .input(&p.data)
        .near::<f32>(roots(&distances), ROOT)
        .full_output(found.iter().map(|(_, index)| *index as i64));
    // Ten chunks of points, visited in steps of three.
    long(case, &[queries, points, count, 3]).groups((queries.div_ceil(8), batches), 256)
}

/// Ranges of queries and of points of each batch.
const QUERIES: [usize; 4] = [0, 9, 9, 20];
const POINTS: [usize; 4] = [0, 120, 150, 187];

fn batch_of(query: usize) -> usize {
    QUERIES.iter().rposition(|start| *start <= query).unwrap_or(0)
}

fn range_of(query: usize) -> std::ops::Range<usize> {
    let batch = batch_of(query);
    POINTS[batch]..POINTS[batch + 1]
}

/// A row of indices for each query, with `-1` where there are fewer.
fn rows(count: usize, of: impl Fn(usize) -> Vec<(f32, usize)>) -> Vec<i64> {
    let mut all = Vec::new();
    for query in 0..QUERIES[3] {
        all.extend(of(query).iter().map(|(_, index)| *index as i64));
        all.resize((query + 1) * count, -1);
    }
    all
}

fn flat_knn() -> Case {
    let count = 40;
    let (mut q, mut p) = (Cloud::new(QUERIES[3], 3, 19), Cloud::new(POINTS[3], 3, 23));
    q.spoil(5, f32::NAN);
    p.spoil(30, f32::NAN);
    p.spoil(160, f32::INFINITY);
    let want = rows(count, |query| nearest(q.row(query), &p, range_of(query), count));
    let case = Case::new(CORPUS, "flat_search.metal", "flat_knn_indices")
        .input(&q.data)
        .input(&p.data)
        .input(&longs(&QUERIES))
        .input(&longs(&POINTS))
        .full_output(want);
    long(case, &[QUERIES[3], 3, count]).groups(QUERIES[3].div_ceil(8), 256)
}

fn radius<T: Element>() -> Case {
    let (count, radius) = (20, 11.0_f32);
    let (mut q, mut p) = (Cloud::new(QUERIES[3], 3, 29), Cloud::new(POINTS[3], 3, 31));
    q.spoil(15, f32::INFINITY);
    p.spoil(2, f32::NAN);
    // A point of the same index is left out.
    let want = rows(count, |query| {
        let found = within(q.row(query), &p, range_of(query), count + 1, radius);
        found.into_iter().filter(|(_, index)| *index != query).take(count).collect()
    });
    let case = Case::new(CORPUS, "flat_search.metal", format!("flat_radius_indices_{}", T::SHORT))
        .input(&narrow::<T>(&q))
        .input(&narrow::<T>(&p))
        .input(&longs(&QUERIES))
        .input(&longs(&POINTS))
        .full_output(want);
    let case = long(case, &[QUERIES[3], 3, count]).value([radius * radius]).value([radius]);
    long(case, &[1]).groups(QUERIES[3].div_ceil(8), 256)
}

fn one_nearest() -> Case {
    let (q, p) = (Cloud::new(QUERIES[3], 4, 37), Cloud::new(POINTS[3], 4, 41));
    let want = (0..QUERIES[3]).map(|query| nearest(q.row(query), &p, range_of(query), 1)[0].1 as i64);
    let case = Case::new(CORPUS, "nearest.metal", "nearest_flat_f32")
        .input(&q.data)
        .input(&p.data)
        .input(&longs(&QUERIES))
        .input(&longs(&POINTS))
        .full_output(want);
    long(case, &[QUERIES[3], 3, 4]).groups(QUERIES[3].div_ceil(8), 256)
}

fn features() -> [Case; 2] {
    let (batches, queries, points, dim, count) = (2, 10, 70, 6, 36);
    let (mut q, p) = (Cloud::new(batches * queries, dim, 43), Cloud::new(batches * points, dim, 47));
    q.spoil(3, f32::NAN);
    let found: Vec<Option<(f32, usize)>> = (0..batches * queries)
        .flat_map(|query| {
            let start = query / queries * points;
            let all = nearest(q.row(query), &p, start..start + points, count);
            let mut row: Vec<_> =
                all.into_iter().map(|(distance, index)| Some((distance, index - start))).collect();
            row.resize(count, None);
            row
        })
        .collect();
    let distances: Vec<f32> =
        found.iter().map(|entry| entry.map_or(f32::INFINITY, |(distance, _)| distance)).collect();
    let near = roots(&distances)
        .into_iter()
        .map(|(value, error)| (value, if value.is_finite() { error } else { 0.0 }));
    let dense = Case::new(CORPUS, "feature_knn.metal", "feature_knn_dense")
        .input(&q.data)
        .input(&p.data)
        .near::<f32>(near.collect(), ROOT)
        .full_output(found.iter().map(|entry| entry.map_or(-1, |(_, index)| index as i64)));
    let (q, p) = (Cloud::new(QUERIES[3], dim, 53), Cloud::new(POINTS[3], dim, 59));
    let want = rows(count, |query| nearest(q.row(query), &p, range_of(query), count));
    let flat = Case::new(CORPUS, "feature_knn.metal", "feature_knn_flat")
        .input(&q.data)
        .input(&p.data)
        .input(&longs(&QUERIES))
        .input(&longs(&POINTS))
        .full_output(want);
    [
        long(dense, &[queries, points, count, dim]).groups((queries.div_ceil(8), batches), 256),
        long(flat, &[QUERIES[3], 3, count, dim]).groups(QUERIES[3].div_ceil(8), 256),
    ]
}

/// The three nearest points, and interpolation between their features.
fn three() -> [Case; 3] {
    let (batches, n, m, channels) = (2, 30, 25, 4);
    let (unknown, known) = (Cloud::new(batches * n, 3, 61), Cloud::new(batches * m, 3, 67));
    let found: Vec<(f32, i32)> = (0..batches * n)
        .flat_map(|query| {
            let start = query / n * m;
            let all = nearest(unknown.row(query), &known, start..start + m, 3);
            all.into_iter().map(move |(distance, index)| (distance, (index - start) as i32))
        })
        .collect();
    let distances: Vec<f32> = found.iter().map(|(distance, _)| *distance).collect();
    let indices: Vec<i32> = found.iter().map(|(_, index)| *index).collect();
    let values: Vec<f32> = Sequence(71).between(batches * channels * m, -1.0, 1.0);
    let weights: Vec<f32> = Sequence(73).between(batches * n * 3, 0.0, 1.0);
    let slopes: Vec<f32> = Sequence(79).between(batches * channels * n, -1.0, 1.0);
    let total = batches * channels * n;
    // Place of each term: of a feature and of a weight.
    let terms = |e: usize| {
        let (batch, channel, point) = (e / n / channels, e / n % channels, e % n);
        let triplet = (batch * n + point) * 3;
        [0, 1, 2].map(|k| ((batch * channels + channel) * m + indices[triplet + k] as usize, triplet + k))
    };
    let interpolated: Vec<Near> = (0..total)
        .map(|e| {
            let products =
                terms(e).map(|(feature, weight)| values[feature].value() * weights[weight].value());
            super::reference::sum(products.into_iter(), U)
        })
        .collect();
    let before: Vec<f32> = Sequence(83).between(values.len(), -1.0, 1.0);
    let mut gradient: Vec<Vec<f64>> = before.iter().map(|x| vec![x.value()]).collect();
    for (e, slope) in slopes.iter().enumerate() {
        for (feature, weight) in terms(e) {
            gradient[feature].push(slope.value() * weights[weight].value());
        }
    }
    let gradient = gradient.into_iter().map(|terms| super::reference::sum(terms.into_iter(), U)).collect();
    let case = |kernel: &str| Case::new(CORPUS, "pointnet2.metal", kernel);
    [
        long(
            case("three_nn_f32")
                .input(&unknown.data)
                .input(&known.data)
                .near::<f32>(roots(&distances), ROOT)
                .full_output(indices.clone()),
            &[n, m],
        )
        .threads(batches * n, 32),
        long(
            case("three_interpolate_f32")
                .input(&values)
                .input(&indices)
                .input(&weights)
                .near::<f32>(interpolated, SUM),
            &[channels, m, n],
        )
        .threads(total, 32),
        long(
            case("three_interpolate_backward_f32")
                .input(&slopes)
                .input(&indices)
                .input(&weights)
                .updated_near::<f32>(&super::case::guarded(&before), gradient, SUM)
                .cast(),
            &[channels, m, n],
        )
        .threads(total, 32),
    ]
}
