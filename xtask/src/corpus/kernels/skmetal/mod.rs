//! skmetal's kernels: estimators of machine learning, that is distances, clustering, nearest neighbors, trees, scaling and gradients.

mod neighbors;

use elinvar::f16;

use super::case::{Case, Near, guarded};
use super::element::{Element, Sequence};
use super::reference::{U, product, sum};

const CORPUS: &str = "skmetal";
const SUM: &str = "one rounding of the sum of magnitudes for each term";
const EXP: &str = "exp of 3 + |2x| ulp, divisions of 2.5 ulp, roundings";

/// Rows and columns of the data; the second group of 16 columns is not full.
const ROWS: usize = 301;
const COLUMNS: usize = 20;

pub fn cases() -> Vec<Case> {
    let families = [
        columns(),
        distances(),
        element_wise(),
        regression(),
        clusters(),
        reductions(),
        products(),
        neighbors::cases(),
    ];
    families.into_iter().flatten().collect()
}

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    Sequence(seed).between(count, -2.0, 2.0)
}

fn positive(count: usize, seed: u64) -> Vec<f32> {
    Sequence(seed).between(count, 0.25, 2.0)
}

/// A parameter of type `uint`.
fn size(case: Case, values: &[usize]) -> Case {
    values.iter().fold(case, |case, value| case.value([*value as u32]))
}

/// Values with a number of roundings of each.
fn relative(values: impl Iterator<Item = f64>, roundings: f64) -> Vec<Near> {
    values.map(|value| (value, roundings * U * value.abs())).collect()
}

fn column(data: &[f32], columns: usize, index: usize) -> impl Iterator<Item = f64> + '_ {
    data.iter().skip(index).step_by(columns).map(|x| x.value())
}

/// Mean of a column, with the error of its sum.
fn mean(data: &[f32], columns: usize, index: usize) -> Near {
    let (total, error) = sum(column(data, columns, index), U);
    let count = (data.len() / columns) as f64;
    (total / count, error / count + 4.0 * U * (total / count).abs())
}

fn columns() -> Vec<Case> {
    let data = numbers(ROWS * COLUMNS, 3);
    let case = |file, kernel| Case::new(CORPUS, file, kernel);
    let means: Vec<Near> = (0..COLUMNS).map(|c| mean(&data, COLUMNS, c)).collect();
    let centers = numbers(COLUMNS, 5);
    let scales = positive(COLUMNS, 7);
    let centered: Vec<Near> = data
        .iter()
        .enumerate()
        .map(|(i, x)| {
            let (mean, error) = means[i % COLUMNS];
            (x.value() - mean, error + 2.0 * U * (x.value().abs() + mean.abs()))
        })
        .collect();
    let shifted: Vec<Option<f32>> =
        data.iter().enumerate().map(|(i, x)| Some(x - centers[i % COLUMNS])).collect();
    let variance = |c: usize| {
        let mean = means[c].0;
        let (total, error) = sum(column(&data, COLUMNS, c).map(|x| (x - mean) * (x - mean)), U);
        (total / ROWS as f64, 4.0 * error / ROWS as f64)
    };
    let extreme = |c: usize, pick: fn(f64, f64) -> f64| {
        column(&data, COLUMNS, c).reduce(pick).map_or(0.0, |x| x) as f32
    };
    let transformed: Vec<Near> = data
        .iter()
        .enumerate()
        .map(|(i, x)| {
            let c = i % COLUMNS;
            let (x, center, scale) = (x.value(), centers[c].value(), scales[c].value());
            ((x - center) * scale, 2.0 * U * (x.abs() + center.abs()) * scale)
        })
        .collect();
    let (low, high) = (-0.5_f32, 1.5_f32);
    let lows: Vec<f32> = centers.iter().map(|x| x - 3.0).collect();
    let highs: Vec<f32> = lows.iter().zip(&scales).map(|(low, range)| low + range).collect();
    let scaled: Vec<Near> = data
        .iter()
        .enumerate()
        .map(|(i, x)| {
            let (from, to) = (lows[i % COLUMNS].value(), highs[i % COLUMNS].value());
            let scale = (high - low).value() / (to - from);
            let part = (x.value() - from) * scale;
            (part + low.value(), 12.0 * U * ((x.value().abs() + from.abs()) * scale + 1.0))
        })
        .collect();
    let sizes = [ROWS, COLUMNS];
    let whole = COLUMNS.div_ceil(16);
    vec![
        size(
            case("CenterColumns.metal", "column_means").input(&data).near::<f32>(means.clone(), SUM),
            &sizes,
        )
        .groups(whole, 256),
        size(
            case("CenterColumns.metal", "column_means_and_center")
                .updated_near::<f32>(&guarded(&data), centered, SUM)
                .near::<f32>(means.clone(), SUM),
            &sizes,
        )
        .groups(whole, 256),
        size(
            case("CenterColumns.metal", "center_columns").updated(&guarded(&data), &shifted).input(&centers),
            &sizes,
        )
        .threads(ROWS, 64),
        size(
            case("StandardScalerKernels.metal", "scaler_fit")
                .input(&data)
                .near::<f32>(means.iter().map(|(value, error)| (*value, 4.0 * error)).collect(), SUM)
                .near::<f32>(
                    (0..COLUMNS).map(variance).collect(),
                    "Welford's recurrence: four roundings for each term",
                ),
            &sizes,
        )
        .groups(whole, 256),
        size(
            case("MinMaxKernels.metal", "column_minmax")
                .input(&data)
                .full_output((0..COLUMNS).map(|c| extreme(c, f64::min)))
                .full_output((0..COLUMNS).map(|c| extreme(c, f64::max))),
            &sizes,
        )
        .groups(whole, 256),
        size(
            case("MinMaxKernels.metal", "minmax_transform")
                .input(&data)
                .near::<f32>(scaled, "a division of 2.5 ulp, four roundings")
                .input(&lows)
                .input(&highs),
            &sizes,
        )
        .value([low])
        .value([high])
        .threads((32, ROWS), (16, 4)),
        size(
            case("ExtraKernels.metal", "column_transform")
                .input(&data)
                .near::<f32>(transformed, "two roundings")
                .input(&centers)
                .input(&scales),
            &sizes,
        )
        .threads(ROWS * COLUMNS + 12, 64),
    ]
}

/// Square of the distance between rows of 11 columns; the last three are no whole vector.
fn distance(a: &[f32], b: &[f32], width: usize) -> Near {
    let terms = (0..width).map(|k| (a[k].value() - b[k].value()).powi(2));
    let (value, error) = sum(terms, U);
    (value, 4.0 * error + 8.0 * U)
}

fn distances() -> Vec<Case> {
    let width = 12;
    let (rows, others) = (77, 9);
    let (a, b) = (numbers(rows * width, 11), numbers(others * width, 13));
    let owner: Vec<u32> = (0..rows).map(|i| (i * 5 % others) as u32).collect();
    let row = |data: &[f32], i: usize| data[i * width..][..width].to_vec();
    let norms = |data: &[f32]| -> Vec<Near> {
        data.chunks(width).map(|row| sum(row.iter().map(|x| x.value() * x.value()), U)).collect()
    };
    let nearest: Vec<Near> =
        (0..rows).map(|i| distance(&row(&a, i), &row(&b, owner[i] as usize), width)).collect();
    let (x, y, cross) = (positive(rows, 17), positive(others, 19), numbers(rows * others, 23));
    let corrected: Vec<Near> = (0..rows * others)
        .map(|e| {
            let terms = [x[e / others].value(), y[e % others].value(), -2.0 * cross[e].value()];
            sum(terms.into_iter(), U)
        })
        .collect();
    let norm = positive(rows, 29);
    let dots = numbers(rows * rows, 31);
    let pairs: Vec<Near> = (0..rows * rows)
        .map(|e| {
            let terms = [norm[e / rows].value(), norm[e % rows].value(), -2.0 * dots[e].value()];
            let (value, error) = sum(terms.into_iter(), U);
            (value.max(0.0), error)
        })
        .collect();
    let case = |kernel| Case::new(CORPUS, "DistanceKernels.metal", kernel);
    vec![
        size(case("row_norm_sq").input(&a).near::<f32>(norms(&a), SUM), &[rows, width]).threads(96, 32),
        size(
            case("compute_mindists").input(&a).input(&b).input(&owner).near::<f32>(nearest, SUM),
            &[rows, width],
        )
        .threads(96, 32),
        size(
            case("distance_correct")
                .updated_near::<f32>(&guarded(&cross), corrected, SUM)
                .input(&x)
                .input(&y),
            &[rows, others],
        )
        .threads((16, 80), (8, 8)),
        size(
            Case::new(CORPUS, "PairwiseDistKernels.metal", "pairwise_from_cross")
                .input(&norm)
                .input(&dots)
                .near::<f32>(pairs, SUM),
            &[rows],
        )
        .threads((80, 80), (16, 16)),
    ]
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn element_wise() -> Vec<Case> {
    let count = 300;
    let (a, b) = (numbers(count, 37), numbers(count, 41));
    let n = |case: Case| size(case, &[count]).threads(320, 64);
    let case = |kernel| Case::new(CORPUS, "ElementWiseKernels.metal", kernel);
    let scalar = 0.37_f32;
    let pairs = || a.iter().zip(&b);
    let before = guarded(&a);
    let (rows, columns) = (15, 20);
    let gamma = 0.7_f32;
    let probability = Sequence(43).between::<f32>(count, 0.0, 1.0);
    let classes: Vec<f32> = (0..rows).map(|i| (i * 7 % columns) as f32).collect();
    let residual = (0..count)
        .map(|e| probability[e] - f32::from(u8::from(e % columns == classes[e / columns] as usize)));
    let (tests, vectors, width) = (30, 13, 11);
    // Rows of whole vectors, so that each is aligned.
    let width_used = width + 1;
    let (x, s) = (numbers(tests * width_used, 47), numbers(vectors * width_used, 53));
    let (weights, bias) = (numbers(vectors, 59), [0.31_f32]);
    let small = 0.05_f32;
    let decisions: Vec<Near> = (0..tests)
        .map(|i| {
            let terms = (0..vectors).map(|k| {
                let (d, error) = distance(&x[i * width_used..], &s[k * width_used..], width_used);
                let value = weights[k].value() * (-small.value() * d).exp();
                (value, value.abs() * (small.value() * error + U * (8.0 + 4.0 * small.value() * d)))
            });
            let (values, errors): (Vec<f64>, Vec<f64>) = terms.unzip();
            let (value, error) = sum(values.into_iter().chain([bias[0].value()]), U);
            (value, error + errors.iter().sum::<f64>())
        })
        .collect();
    vec![
        n(case("sigmoid").input(&a).near::<f32>(relative(a.iter().map(|x| sigmoid(x.value())), 16.0), EXP)),
        n(case("subtract").input(&a).input(&b).full_output(pairs().map(|(x, y)| x - y))),
        n(case("add_scalar")
            .updated(&before, &a.iter().map(|x| Some(x + scalar)).collect::<Vec<_>>())
            .value([scalar])),
        n(case("axpy")
            .updated_near::<f32>(
                &before,
                pairs()
                    .map(|(x, y)| {
                        let (x, y) = (x.value(), scalar.value() * y.value());
                        (x + y, 2.0 * U * (x.abs() + y.abs()))
                    })
                    .collect(),
                "two roundings, or one of a fused product and sum",
            )
            .input(&b)
            .value([scalar])),
        size(
            case("rbf_apply")
                .updated_near::<f32>(
                    &before,
                    relative(a.iter().map(|x| (-gamma.value() * x.value()).exp()), 16.0),
                    EXP,
                )
                .value([gamma]),
            &[rows, columns],
        )
        .threads((32, 16), (8, 8)),
        size(
            case("svc_predict_binary")
                .input(&x)
                .input(&s)
                .input(&weights)
                .input(&bias)
                .near::<f32>(decisions, "exp of 3 + |2x| ulp, roundings of the sums"),
            &[tests, vectors, width_used],
        )
        .value([small])
        .threads(32, 32),
        size(
            case("add_diagonal")
                .updated(
                    &guarded(&a[..289]),
                    &(0..289)
                        .map(|e| Some(a[e] + if e / 17 == e % 17 { scalar } else { 0.0 }))
                        .collect::<Vec<_>>(),
                )
                .value([scalar]),
            &[17],
        )
        .threads(32, 32),
        size(
            case("softmax_residual")
                .input(&probability)
                .input(&classes)
                .full_output(residual.collect::<Vec<f32>>()),
            &[rows, columns],
        )
        .threads((32, 16), (8, 8)),
        n(Case::new(CORPUS, "ExtraKernels.metal", "soft_threshold")
            .full_output(a.iter().map(|x| if x.abs() <= scalar { 0.0 } else { x - scalar.copysign(*x) }))
            .input(&a)
            .value([scalar])),
        n(Case::new(CORPUS, "ExtraKernels.metal", "scale_f32")
            .updated(&before, &a.iter().map(|x| Some(x * scalar)).collect::<Vec<_>>())
            .value([scalar])),
    ]
}

/// Logistic regression: probabilities, weights, gradients and losses.
fn regression() -> Vec<Case> {
    let count = 300;
    let case = |kernel| Case::new(CORPUS, "IrlsKernels.metal", kernel);
    let (linear, bias) = (Sequence(61).between::<f32>(count, -6.0, 6.0), 0.21_f32);
    let labels: Vec<f32> = (0..count).map(|i| (i * 5 % 3 % 2) as f32).collect();
    let shifted = || linear.iter().map(|x| x.value() + bias.value());
    let weights = shifted().map(|x| {
        let p = sigmoid(x);
        // The error of `1 - p` is absolute.
        ((p * (1.0 - p)).sqrt(), 32.0 * U * (p / (1.0 - p)).sqrt().max(1.0))
    });
    const FAST: &str = "fast::exp of 3 + |2x| ulp, a division of 2.5 ulp, roundings";
    let probabilities = || relative(linear.iter().map(|x| sigmoid(x.value())), 40.0);
    let losses = || {
        let pairs = linear.iter().zip(&labels);
        pairs.map(|(x, y)| {
            let t = -(2.0 * y.value() - 1.0) * x.value();
            let value = t.max(0.0) + (-t.abs()).exp().ln_1p();
            (value, U * (32.0 + 4.0 * value))
        })
    };
    let residuals = linear.iter().zip(&labels).map(|(x, y)| {
        let p = sigmoid(x.value());
        (p - y.value(), 42.0 * U)
    });
    let (rows, columns) = (25, 12);
    let x = numbers(rows * columns, 67);
    let (p, y, w) = (positive(rows, 71), positive(rows, 73), positive(rows, 79));
    let (features, classes, alpha) = (17, 5, 0.6_f32);
    let (hessian, gradient, v) =
        (numbers(features * features, 83), numbers(features, 89), numbers(features, 97));
    let added = |old: f32, weight: f32| {
        let (old, more) = (old.value(), alpha.value() * weight.value());
        (old + more, 2.0 * U * (old.abs() + more.abs()))
    };
    let probability = Sequence(101).between::<f32>(rows * classes, 0.001, 1.0);
    let class: Vec<f32> = (0..rows).map(|i| (i * 3 % classes) as f32).collect();
    let entropy = (0..rows).map(|i| {
        let value = -probability[i * classes + class[i] as usize].value().ln();
        (value, U * (8.0 + 4.0 * value))
    });
    let (slopes, matrix) = (numbers(features * classes, 103), numbers(features * classes, 107));
    let regularized =
        (0..features * classes).map(|e| added(slopes[e], matrix[e % features * classes + e / features]));
    vec![
        size(
            case("compute_linear_irls")
                .updated_near::<f32>(&guarded(&linear), relative(shifted().map(sigmoid), 44.0), FAST)
                .near::<f32>(weights.collect(), FAST)
                .value([bias]),
            &[count],
        )
        .threads(320, 64),
        size(
            case("compute_error_scale")
                .input(&p)
                .input(&y)
                .input(&x)
                .input(&w)
                .full_output(p.iter().zip(&y).map(|(p, y)| p - y))
                .full_output((0..rows * columns).map(|e| x[e] * w[e / columns])),
            &[rows, columns],
        )
        .threads(32, 32),
        size(
            case("l2_reg_irls")
                .updated(
                    &guarded(&hessian),
                    &(0..features * features)
                        .map(|e| Some(hessian[e] + if e / features == e % features { alpha } else { 0.0 }))
                        .collect::<Vec<_>>(),
                )
                .updated_near::<f32>(
                    &guarded(&gradient),
                    gradient.iter().zip(&v).map(|(old, w)| added(*old, *w)).collect(),
                    "two roundings, or one of a fused product and sum",
                )
                .input(&v)
                .value([alpha]),
            &[features],
        )
        .threads(32, 32),
        size(
            case("sigmoid_grad_loss_binary")
                .input(&linear)
                .input(&labels)
                .near::<f32>(probabilities(), FAST)
                .near::<f32>(residuals.collect(), FAST)
                .near::<f32>(losses().collect(), "exp of 3 + |2x| ulp, log of 3 ulp or 2⁻²¹, roundings"),
            &[count],
        )
        .threads(320, 64),
        size(
            case("log_loss_binary")
                .input(&linear)
                .input(&labels)
                .near::<f32>(losses().collect(), "exp of 3 + |2x| ulp, log of 3 ulp or 2⁻²¹, roundings"),
            &[count],
        )
        .threads(320, 64),
        size(
            case("cross_entropy_loss")
                .input(&probability)
                .input(&class)
                .near::<f32>(entropy.collect(), "log of 3 ulp or 2⁻²¹"),
            &[rows, classes],
        )
        .threads(32, 32),
        size(
            case("multinomial_grad_l2")
                .updated_near::<f32>(
                    &guarded(&slopes),
                    regularized.collect(),
                    "two roundings, or one of a fused product and sum",
                )
                .input(&matrix)
                .value([alpha]),
            &[features, classes],
        )
        .threads((8, 32), (8, 8)),
    ]
}

fn clusters() -> Vec<Case> {
    let case = |kernel| Case::new(CORPUS, "KMeansKernels.metal", kernel);
    let (n, d, k, groups) = (150, 12, 7, 4);
    let (x, centroids, old) = (numbers(n * d, 109), numbers(k * d, 113), numbers(k * d, 127));
    let of = |data: &[f32], i: usize| data[i * d..][..d].to_vec();
    // The nearest two are further apart than the kernel's roundings.
    let nearest: Vec<u32> = (0..n)
        .map(|i| {
            let all = (0..k).map(|c| distance(&of(&x, i), &of(&centroids, c), d).0);
            let best = all.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
            best.map_or(0, |(c, _)| c as u32)
        })
        .collect();
    let share = n.div_ceil(groups);
    let members = |group: usize, cluster: usize| {
        let rows = group * share..n.min((group + 1) * share);
        rows.filter(|i| nearest[*i] as usize == cluster).collect::<Vec<_>>()
    };
    let partial: Vec<Near> = (0..groups * k * d)
        .map(|e| {
            let rows = members(e / d / k, e / d % k);
            sum(rows.iter().map(|i| x[i * d + e % d].value()), U)
        })
        .collect();
    let counts: Vec<u32> = (0..groups * k).map(|e| members(e / k, e % k).len() as u32).collect();
    let parts = numbers(groups * k * d, 131);
    // One cluster is empty.
    let sizes: Vec<u32> =
        (0..groups * k).map(|e| if e % k == 3 { 0 } else { (e * 5 % 9 + 1) as u32 }).collect();
    let combined: Vec<Near> = (0..k * d)
        .map(|e| {
            let count: u32 = (0..groups).map(|g| sizes[g * k + e / d]).sum();
            let (total, error) = sum((0..groups).map(|g| parts[g * k * d + e].value()), U);
            if count == 0 { (0.0, 0.0) } else { (total / f64::from(count), 2.0 * error / f64::from(count)) }
        })
        .collect();
    let total = |rows: std::ops::Range<usize>| {
        let terms = rows.map(|i| distance(&of(&x, i), &of(&centroids, nearest[i] as usize), d));
        let (values, errors): (Vec<f64>, Vec<f64>) = terms.unzip();
        let (value, error) = sum(values.into_iter(), U);
        (value, error + errors.iter().sum::<f64>())
    };
    let shift = (0..k).map(|c| distance(&of(&centroids, c), &of(&old, c), d));
    let furthest = shift.reduce(|a, b| if a.0 > b.0 { a } else { b }).into_iter().collect();
    vec![
        size(case("kmeans_assign").input(&x).input(&centroids).full_output(nearest.clone()), &[n, d, k])
            .threads(160, 32),
        size(
            case("kmeans_accumulate").input(&x).input(&nearest).near::<f32>(partial, SUM).full_output(counts),
            &[n, d, k, groups],
        )
        .groups((k, groups), 256),
        size(
            case("kmeans_combine_normalize").input(&parts).input(&sizes).near::<f32>(combined, SUM),
            &[k, d, groups],
        )
        .threads((16, 8), (8, 8)),
        size(
            case("kmeans_inertia")
                .input(&x)
                .input(&centroids)
                .input(&nearest)
                .near::<f32>(vec![total(0..64), total(64..128), total(128..n)], SUM),
            &[n, d],
        )
        .groups(3, 64),
        size(case("kmeans_shift").input(&centroids).input(&old).near::<f32>(furthest, SUM), &[k, d])
            .groups(1, 64),
    ]
}

fn reductions() -> Vec<Case> {
    let case = |kernel| Case::new(CORPUS, "ReductionKernels.metal", kernel);
    let (n, groups, group) = (1_003, 3, 64);
    let (a, b) = (numbers(n, 193), numbers(n, 197));
    // Vectors of four in turns, and the rest by single elements from the first thread on.
    let owner = |i: usize| {
        let thread = if i < n / 4 * 4 { i / 4 } else { i - n / 4 * 4 };
        thread % (groups * group) / group
    };
    let of = |which: usize| (0..n).filter(move |i| owner(*i) == which);
    let sums = (0..groups).map(|g| sum(of(g).map(|i| a[i].value()), U));
    let squares = (0..groups).map(|g| sum(of(g).map(|i| a[i].value().powi(2)), U));
    let largest = (0..groups).map(|g| of(g).map(|i| (a[i] - b[i]).abs()).fold(0.0, f32::max));
    let behind = |values: Vec<Near>| {
        let skipped = [(f32::untouched().value(), 0.0); 2];
        [&skipped[..], &values].concat()
    };
    vec![
        size(case("reduce_sum").input(&a).near::<f32>(sums.collect(), SUM), &[n, groups])
            .groups(groups, group),
        size(case("norm2").input(&a).near::<f32>(behind(squares.collect()), SUM), &[n, groups, 2])
            .groups(groups, group),
        size(
            case("max_abs_diff")
                .input(&a)
                .input(&b)
                .output(&[None, None].into_iter().chain(largest.map(Some)).collect::<Vec<_>>()),
            &[n, groups, 2],
        )
        .groups(groups, group),
    ]
}

fn products() -> Vec<Case> {
    let case = |kernel| Case::new(CORPUS, "SIMDGroupGEMM.metal", kernel);
    let [m, n, k] = [16, 24, 40];
    let (a, b) = (numbers(m * k, 199), numbers(k * n, 211));
    let halves = |values: &[f32]| -> Vec<f16> { values.iter().map(|x| f16::of(x.value())).collect() };
    let (ha, hb) = (halves(&a), halves(&b));
    let want = product([m, k, n], |i, j| a[i * k + j].value(), |j, c| b[j * n + c].value(), U);
    let half = product([m, k, n], |i, j| ha[i * k + j].value(), |j, c| hb[j * n + c].value(), f16::ROUNDING);
    let count = 300;
    let x = numbers(count, 223);
    let narrow = halves(&x);
    vec![
        size(case("simdgroup_gemm_f32").input(&a).input(&b).near::<f32>(want, SUM), &[m, n, k])
            .groups((n / 8, m / 8), 32),
        size(case("simdgroup_gemm_f16").input(&ha).input(&hb).near::<f16>(half, SUM), &[m, n, k])
            .groups((n / 8, m / 8), 32),
        size(case("convert_f32_to_f16").input(&x).full_output(narrow.clone()), &[count]).threads(320, 64),
        size(
            case("convert_f16_to_f32").input(&narrow).full_output(narrow.iter().map(|x| x.value() as f32)),
            &[count],
        )
        .threads(320, 64),
    ]
}
