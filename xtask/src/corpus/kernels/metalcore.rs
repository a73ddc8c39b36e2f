//! metalcore's kernels of linear algebra: factorizations and solutions of batches of small matrices.
//!
//! `qr_batched_kernel` is not among them: all its threads use a sum by `simd_shuffle_down`, which only the first has.

use super::case::{Case, Near, guarded};
use super::element::{Element, Sequence};
use super::reference::{U, product, sum};

const CORPUS: &str = "metalcore";
const FILE: &str = "core_kernels.metal";
const SUM: &str = "one rounding of the sum of magnitudes for each term";
const STABLE: &str = "128 roundings of the size, for each row, of matrices whose condition is below 16";

const BATCH: usize = 3;

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        orthogonal("qr_batched_8x8_register_kernel", 8, 0, (4, 4)),
        orthogonal("qr_batched_16x16_kernel", 16, 2 * 256 + 32, (BATCH * 32, 32)),
        orthogonal("qr_batched_32x32_kernel", 32, 64, (BATCH * 32, 32)),
        orthogonal("qr_batched_32x32_single_thread_kernel", 32, 3 * 1024, (BATCH, 1)),
        cholesky(),
        lu(),
        solve(),
    ];
    cases.extend(triangular());
    cases.extend(reductions());
    cases
}

fn sizes(case: Case, values: &[usize]) -> Case {
    values.iter().fold(case, |case, value| case.value([*value as u32]))
}

/// Random matrices with a dominant diagonal.
fn matrices(n: usize, seed: u64) -> Vec<f32> {
    let mut all: Vec<f32> = Sequence(seed).between(BATCH * n * n, -1.0, 1.0);
    for (e, value) in all.iter_mut().enumerate() {
        if e / n % n == e % n {
            *value += (n as f32).copysign(*value);
        }
    }
    all
}

fn stable(n: usize, values: impl IntoIterator<Item = f64>, size: f64) -> Vec<Near> {
    values.into_iter().map(|value| (value, 128.0 * U * n as f64 * size)).collect()
}

fn rows(data: &[f32], n: usize, batch: usize) -> Vec<Vec<f64>> {
    data[batch * n * n..][..n * n].chunks(n).map(|row| row.iter().map(|x| x.value()).collect()).collect()
}

/// Reflections of Householder; each makes the diagonal's sign the opposite of what it was.
fn reflections(mut r: Vec<Vec<f64>>) -> [Vec<Vec<f64>>; 2] {
    let n = r.len();
    let mut q: Vec<Vec<f64>> =
        (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    for k in 0..n {
        let norm = (k..n).map(|i| r[i][k] * r[i][k]).sum::<f64>().sqrt();
        let mut v: Vec<f64> = (k..n).map(|i| r[i][k]).collect();
        v[0] += if v[0] >= 0.0 { norm } else { -norm };
        let square: f64 = v.iter().map(|x| x * x).sum();
        for j in 0..n {
            // R = H R, and Q = Q H.
            let dot: f64 = (k..n).map(|i| v[i - k] * r[i][j]).sum();
            (k..n).for_each(|i| r[i][j] -= 2.0 * v[i - k] * dot / square);
            let dot: f64 = (k..n).map(|i| v[i - k] * q[j][i]).sum();
            (k..n).for_each(|i| q[j][i] -= 2.0 * v[i - k] * dot / square);
        }
    }
    (0..n).for_each(|i| (0..i).for_each(|j| r[i][j] = 0.0));
    [q, r]
}

fn orthogonal(kernel: &str, n: usize, shared: usize, (threads, group): (usize, usize)) -> Case {
    let a = matrices(n, 3);
    let parts: Vec<[Vec<Vec<f64>>; 2]> = (0..BATCH).map(|batch| reflections(rows(&a, n, batch))).collect();
    let of = |which: usize, size: f64| {
        stable(n, parts.iter().flat_map(|part| part[which].iter().flatten().copied()), size)
    };
    let case = Case::new(CORPUS, FILE, kernel)
        .input(&a)
        .near::<f32>(of(0, 1.0), STABLE)
        .near::<f32>(of(1, n as f64), STABLE);
    let case =
        if kernel == "qr_batched_kernel" { sizes(case, &[n, n, BATCH]) } else { sizes(case, &[BATCH]) };
    let case = if shared == 0 { case } else { case.threadgroup(shared * 4) };
    case.threads(threads, group)
}

/// `A = L Lᵀ` of a symmetric matrix; only its lower part is read.
fn cholesky() -> Case {
    let n = 21;
    let mut a = matrices(n, 5);
    for batch in 0..BATCH {
        for i in 0..n {
            let place = batch * n * n + i * n + i;
            a[place] = a[place].abs() + 1.0;
        }
    }
    let want = (0..BATCH).flat_map(|batch| {
        let a = rows(&a, n, batch);
        let mut l = vec![vec![0.0; n]; n];
        for i in 0..n {
            for j in 0..=i {
                let dot: f64 = (0..j).map(|k| l[i][k] * l[j][k]).sum();
                l[i][j] = if i == j { (a[i][i] - dot).sqrt() } else { (a[i][j] - dot) / l[j][j] };
            }
        }
        l.into_iter().flatten()
    });
    let want = stable(n, want, 6.0);
    let case =
        Case::new(CORPUS, FILE, "cholesky_batched_kernel").updated_near::<f32>(&guarded(&a), want, STABLE);
    sizes(case, &[n, BATCH]).threadgroup(n * n * 4).groups(BATCH, 64)
}

/// Elimination with row exchanges: the factors in one matrix, and the row that each step takes.
fn eliminated(mut a: Vec<Vec<f64>>) -> (Vec<Vec<f64>>, Vec<usize>) {
    let n = a.len();
    let mut taken = Vec::new();
    for k in 0..n {
        let largest =
            (k..n).reduce(|best, i| if a[i][k].abs() > a[best][k].abs() { i } else { best }).unwrap_or(k);
        taken.push(largest);
        a.swap(k, largest);
        for i in k + 1..n {
            a[i][k] /= a[k][k];
            for j in k + 1..n {
                a[i][j] -= a[i][k] * a[k][j];
            }
        }
    }
    (a, taken)
}

/// Matrices whose largest elements are in another row each.
fn shuffled(n: usize, seed: u64) -> Vec<f32> {
    let a = matrices(n, seed);
    let order = Sequence(seed).shuffled(n);
    (0..a.len()).map(|e| a[e / (n * n) * n * n + order[e / n % n] * n + e % n]).collect()
}

fn lu() -> Case {
    let n = 19;
    let a = shuffled(n, 7);
    let parts: Vec<_> = (0..BATCH).map(|batch| eliminated(rows(&a, n, batch))).collect();
    let factors = parts.iter().flat_map(|(a, _)| a.iter().flatten().copied());
    let case = Case::new(CORPUS, FILE, "lu_batched_kernel")
        .updated_near::<f32>(&guarded(&a), stable(n, factors, n as f64), STABLE)
        .full_output(parts.iter().flat_map(|(_, taken)| taken.iter().map(|row| *row as i32)));
    sizes(case, &[n, BATCH]).groups(BATCH, 64)
}

/// Solution of the triangular system of the given rows, for each column.
fn substituted(a: &[Vec<f64>], b: &mut [Vec<f64>], is_lower: bool, has_unit: bool) {
    let n = a.len();
    for step in 0..n {
        let i = if is_lower { step } else { n - 1 - step };
        let others = if is_lower { 0..i } else { i + 1..n };
        for c in 0..b[i].len() {
            let dot: f64 = others.clone().map(|j| a[i][j] * b[j][c]).sum();
            b[i][c] = (b[i][c] - dot) / if has_unit { 1.0 } else { a[i][i] };
        }
    }
}

/// Right-hand sides of each batch.
fn sides(n: usize, columns: usize, seed: u64) -> (Vec<f32>, Vec<Vec<Vec<f64>>>) {
    let all: Vec<f32> = Sequence(seed).between(BATCH * n * columns, -1.0, 1.0);
    let batches = all
        .chunks(n * columns)
        .map(|part| part.chunks(columns).map(|row| row.iter().map(|x| x.value()).collect()).collect());
    let batches = batches.collect();
    (all, batches)
}

fn solve() -> Case {
    let (n, columns) = (17, 4);
    let a = shuffled(n, 11);
    let (b, mut x) = sides(n, columns, 13);
    let parts: Vec<_> = (0..BATCH).map(|batch| eliminated(rows(&a, n, batch))).collect();
    for ((factors, taken), x) in parts.iter().zip(&mut x) {
        for (row, other) in taken.iter().enumerate() {
            x.swap(row, *other);
        }
        substituted(factors, x, true, true);
        substituted(factors, x, false, false);
    }
    let factors = parts.iter().flat_map(|(a, _)| a.iter().flatten().copied());
    let case = Case::new(CORPUS, FILE, "solve_batched_kernel")
        .updated_near::<f32>(&guarded(&a), stable(n, factors, n as f64), STABLE)
        .updated_near::<f32>(&guarded(&b), stable(n, x.into_iter().flatten().flatten(), 1.0), STABLE)
        .full_output(parts.iter().flat_map(|(_, taken)| taken.iter().map(|row| *row as i32)));
    sizes(case, &[n, columns, BATCH]).groups(BATCH, 64)
}

fn triangular() -> Vec<Case> {
    let case = |kernel: &str| Case::new(CORPUS, FILE, kernel);
    // Positive diagonals.
    let factor = |n: usize, seed: u64| -> Vec<f32> {
        let a = matrices(n, seed);
        a.iter().enumerate().map(|(e, x)| if e / n % n == e % n { x.abs() } else { *x }).collect()
    };
    let solved = |a: &[f32], n: usize, mut b: Vec<Vec<Vec<f64>>>, steps: &[bool]| {
        for (batch, b) in b.iter_mut().enumerate() {
            let lower = rows(a, n, batch);
            let transposed: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| lower[j][i]).collect()).collect();
            for step in steps {
                // The second step of two takes the transposed matrix.
                let rows = if steps.len() == 2 && !step { &transposed } else { &lower };
                substituted(rows, b, *step, false);
            }
        }
        stable(n, b.into_iter().flatten().flatten(), 1.0)
    };
    let mut cases = Vec::new();
    for (kernel, n, columns, shared, grid) in [
        ("trsm_batched_8x8_register_kernel", 8, 3, 0, (4, 4)),
        ("trsm_batched_16x16_kernel", 16, 5, 1024, (BATCH * 32, 32)),
        ("trsm_batched_32x32_kernel", 32, 3, 1024, (BATCH * 32, 32)),
        ("trsm_batched_kernel", 20, 7, 140, (BATCH * 64, 64)),
    ] {
        let a = factor(n, 17);
        let (b, of) = sides(n, columns, 19);
        let case = case(kernel).input(&a).input(&b).near::<f32>(solved(&a, n, of, &[false]), STABLE);
        let case = if kernel == "trsm_batched_kernel" {
            sizes(case, &[n, columns, BATCH])
        } else {
            sizes(case, &[BATCH, columns])
        };
        let case = if shared == 0 { case } else { case.threadgroup(shared * 4) };
        cases.push(case.threads(grid.0, grid.1));
    }
    let (n, columns) = (18, 5);
    let a = factor(n, 23);
    for (kernel, steps) in [
        ("trsm_lower_batched_kernel", &[true][..]),
        ("trsm_upper_batched_kernel", &[false]),
        ("cholesky_solve_batched_kernel", &[true, false]),
    ] {
        let (b, of) = sides(n, columns, 29);
        let case = case(kernel).input(&a).updated_near::<f32>(&guarded(&b), solved(&a, n, of, steps), STABLE);
        cases.push(sizes(case, &[n, columns, BATCH]).threadgroup(n * 4).groups(BATCH, 32));
    }
    cases
}

fn reductions() -> Vec<Case> {
    let case = |kernel: &str| Case::new(CORPUS, FILE, kernel);
    let (m, n, k) = (13, 9, 4);
    let a: Vec<f32> = Sequence(31).between(BATCH * m * n, -1.0, 1.0);
    let b: Vec<f32> = Sequence(37).between(BATCH * m * k, -1.0, 1.0);
    let part = |batch: usize| &a[batch * m * n..][..m * n];
    let gram = (0..BATCH).flat_map(|batch| {
        let a = part(batch);
        product([n, m, n], |i, j| a[j * n + i].value(), |j, c| a[j * n + c].value(), U)
    });
    let projected = (0..BATCH).flat_map(|batch| {
        let (a, b) = (part(batch), &b[batch * m * k..]);
        product([n, m, k], |i, j| a[j * n + i].value(), |j, c| b[j * k + c].value(), U)
    });
    let norm = |values: &mut dyn Iterator<Item = f64>| {
        let (square, error) = sum(values.map(|x| x * x), U);
        (square.sqrt(), error / square.sqrt() + 4.0 * U * square.sqrt())
    };
    let norms = (0..BATCH).map(|batch| norm(&mut part(batch).iter().map(|x| x.value())));
    let columns = (0..n).map(|c| norm(&mut part(0).iter().skip(c).step_by(n).map(|x| x.value())));
    let width = 77;
    let square = matrices(width, 41);
    let traces =
        (0..BATCH).map(|batch| sum((0..width).map(|i| square[(batch * width + i) * width + i].value()), U));
    let scores: Vec<f32> = Sequence(43).between(BATCH * width, -4.0, 4.0);
    let temperature = 0.7_f32;
    let softmax = scores.chunks(width).flat_map(|row| {
        let scaled = || row.iter().map(|x| x.value() / temperature.value());
        let top = scaled().fold(f64::MIN, f64::max);
        let total: f64 = scaled().map(|x| (x - top).exp()).sum();
        scaled()
            .map(|x| {
                let value = (x - top).exp() / total;
                (value, U * value * (width as f64 + 32.0 + 8.0 * (top.abs() + x.abs())))
            })
            .collect::<Vec<_>>()
    });
    let dims = [2, 3, 5, 4];
    let moved: Vec<f32> = Sequence(47).between(120, -1.0, 1.0);
    let swapped = (0..120).map(|e| {
        let (d, i, j, b) = (e % 4, e / 4 % 3, e / 12 % 5, e / 60);
        moved[((b * 3 + i) * 5 + j) * 4 + d]
    });
    vec![
        sizes(case("syrk_batched_kernel").input(&a).near::<f32>(gram.collect(), SUM), &[m, n, BATCH])
            .threads((12, 12, BATCH), (4, 4)),
        sizes(
            case("batched_qt_b_kernel").input(&a).input(&b).near::<f32>(projected.collect(), SUM),
            &[m, n, k, BATCH],
        )
        .threads((8, 12, BATCH), (4, 4)),
        sizes(
            case("frobenius_norm_batched_kernel").input(&a).near::<f32>(norms.collect(), SUM),
            &[m, n, BATCH],
        )
        .threadgroup(64 * 4)
        .groups(BATCH, 64),
        sizes(case("column_norms_kernel").input(&a[..m * n]).near::<f32>(columns.collect(), SUM), &[m, n])
            .threadgroup(32 * 4)
            .groups(n, 32),
        sizes(
            case("trace_batched_kernel").input(&square).near::<f32>(traces.collect(), SUM),
            &[width, BATCH],
        )
        .threadgroup(64 * 4)
        .groups(BATCH, 64),
        sizes(
            case("softmax_batched_kernel").updated_near::<f32>(
                &guarded(&scores),
                softmax.collect(),
                "exp of 3 + |2x| ulp, roundings of the sums",
            ),
            &[width, BATCH],
        )
        .value([temperature])
        .threadgroup(64 * 4)
        .groups(BATCH, 64),
        sizes(case("transpose_0213_kernel").input(&moved).full_output(swapped), &dims).threads(128, 32),
    ]
}
