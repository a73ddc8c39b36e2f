//! Nearest neighbors, connected components, and trees of decisions.

use super::super::case::{Case, guarded};
use super::super::element::{Element, Sequence};
use super::super::reference::{U, sum};
use super::{CORPUS, SUM, numbers, positive, size};

pub fn cases() -> Vec<Case> {
    let mut cases = neighbors();
    cases.extend(graphs());
    cases.push(trees());
    cases
}

fn neighbors() -> Vec<Case> {
    let case = |kernel| Case::new(CORPUS, "KNNKernels.metal", kernel);
    let (queries, train, k) = (37, 50, 6);
    // Multiples of a power of two: every sum is exact, and no two are equal.
    let dots: Vec<f32> = Sequence(137).shuffled(queries * train).iter().map(|i| *i as f32 / 64.0).collect();
    let (q, t) = (vec![100.0_f32; queries], vec![0.0_f32; train]);
    let sorted = |value: &dyn Fn(usize, usize) -> f32, row: usize, count: usize| {
        let mut all: Vec<(f32, i32)> = (0..train).map(|j| (value(row, j), j as i32)).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all.truncate(count);
        all
    };
    let shifted: Vec<f32> = dots.iter().map(|x| x - 30.0).collect();
    // All are positive, so none becomes zero.
    let positive_squares = |row: usize, j: usize| q[row] + t[j] - 2.0 * shifted[row * train + j];
    let top: Vec<(f32, i32)> = (0..queries).flat_map(|row| sorted(&positive_squares, row, k)).collect();
    let width = 12;
    let grid = |count: usize, seed: u64| -> Vec<f32> {
        Sequence(seed).any::<u32>(count * width).iter().map(|x| (x % 4096) as f32 / 64.0).collect()
    };
    let (xq, xt) = (grid(queries, 139), grid(train, 149));
    let manhattan = |row: usize, j: usize| {
        (0..width).map(|c| (xq[row * width + c] - xt[j * width + c]).abs()).sum::<f32>()
    };
    let top_manhattan: Vec<(f32, i32)> = (0..queries).flat_map(|row| sorted(&manhattan, row, k)).collect();
    let split = |pairs: &[(f32, i32)]| -> (Vec<f32>, Vec<i32>) { pairs.iter().copied().unzip() };
    let (values, indices) = split(&top);
    let (values_m, indices_m) = split(&top_manhattan);
    // Each list is ascending; those of the tile are odd multiples, so none is equal.
    let list = |seed: u64, odd: usize| -> Vec<f32> {
        let mut sequence = Sequence(seed);
        (0..queries)
            .flat_map(|_| {
                let mut row: Vec<usize> = sequence.shuffled(20)[..k].iter().map(|i| 2 * i + odd).collect();
                row.sort_unstable();
                row.into_iter().map(|i| i as f32).collect::<Vec<_>>()
            })
            .collect()
    };
    let (tile, global) = (list(151, 1), list(157, 0));
    let (tile_at, global_at): (Vec<i32>, Vec<i32>) = (
        (0..queries * k).map(|e| (e * 3 % 50) as i32).collect(),
        (0..queries * k).map(|e| (e * 7 % 50) as i32).collect(),
    );
    let start = 1000;
    let merged: Vec<(f32, i32)> = (0..queries)
        .flat_map(|row| {
            let at = row * k..(row + 1) * k;
            let mut all: Vec<(f32, i32)> = at.clone().map(|e| (tile[e], tile_at[e] + start)).collect();
            all.extend(at.map(|e| (global[e], global_at[e])));
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            all.truncate(k);
            all
        })
        .collect();
    let (merged_values, merged_at) = split(&merged);
    let some = |v: &[f32]| v.iter().map(|x| Some(*x)).collect::<Vec<_>>();
    let some_at = |v: &[i32]| v.iter().map(|x| Some(*x)).collect::<Vec<_>>();
    let labels: Vec<f32> = (0..train).map(|j| (j * j % 7) as f32).collect();
    let chosen: Vec<i32> = Sequence(163).between(queries * k, 0.0, train as f64);
    let vote = |row: usize, weight: &dyn Fn(usize) -> f64| {
        let mut counts = [0.0; 7];
        for e in row * k..(row + 1) * k {
            counts[labels[chosen[e] as usize] as usize] += weight(e);
        }
        counts
    };
    let classes = (0..queries).map(|row| {
        let counts = vote(row, &|_| 1.0);
        let most = counts.iter().copied().fold(0.0, f64::max);
        counts.iter().position(|count| *count == most).unwrap_or(0) as f32
    });
    let away = positive(queries * k, 167);
    let weighted = (0..queries).map(|row| {
        let counts = vote(row, &|e| 1.0 / (away[e].value() + 1e-10));
        let best = counts.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        best.map_or(0, |(class, _)| class) as f32
    });
    let targets = numbers(train, 173);
    let target = |e: usize| targets[chosen[e] as usize].value();
    let average = (0..queries).map(|row| {
        let (total, error) = sum((row * k..(row + 1) * k).map(target), U);
        (total / k as f64, 2.0 * error / k as f64)
    });
    let weighted_average = (0..queries).map(|row| {
        let weight = |e: usize| 1.0 / away[e].value();
        let at = || row * k..(row + 1) * k;
        let total: f64 = at().map(weight).sum();
        let terms = at().map(|e| weight(e) * target(e) / total);
        let (value, error) = sum(terms, U);
        (value, 4.0 * error + 16.0 * U)
    });
    // 37 · 50 is no multiple of four elements, but its rest is one that the last thread takes alone.
    let (nq, nt) = (7, 19);
    let (dot, rq, rt) = (numbers(nq * nt, 179), positive(nq, 181), positive(nt, 191));
    let negated = (0..nq * nt).map(|e| {
        let (row, column) = (e / nt, e % nt);
        let value = dot[e].value() / (rq[row].value() * rt[column].value()).sqrt();
        (value, 16.0 * U * value.abs())
    });
    vec![
        size(
            case("knn_select_tile_topk")
                .input(&shifted)
                .input(&q)
                .input(&t)
                .full_output(values)
                .full_output(indices),
            &[queries, train, k],
        )
        .groups(2, 16),
        size(
            case("knn_select_tile_topk_manhattan")
                .input(&xq)
                .input(&xt)
                .full_output(values_m)
                .full_output(indices_m),
            &[queries, train, width, k],
        )
        .groups(2, 16),
        size(
            case("knn_merge_topk")
                .input(&tile)
                .input(&tile_at)
                .updated(&guarded(&global), &some(&merged_values))
                .updated(&guarded(&global_at), &some_at(&merged_at))
                .full_output(merged_values.clone())
                .full_output(merged_at.clone()),
            &[queries, k, start as usize],
        )
        .groups(1, 32),
        size(
            case("knn_vote_classify").input(&chosen).input(&labels).full_output(classes.collect::<Vec<_>>()),
            &[queries, k],
        )
        .threads(64, 32),
        size(
            case("knn_vote_classify_weighted")
                .input(&chosen)
                .input(&away)
                .input(&labels)
                .full_output(weighted.collect::<Vec<_>>()),
            &[queries, k],
        )
        .threads(64, 32),
        size(
            case("knn_vote_regress").input(&chosen).input(&targets).near::<f32>(average.collect(), SUM),
            &[queries, k],
        )
        .threads(64, 32),
        size(
            case("knn_vote_regress_weighted")
                .input(&chosen)
                .input(&away)
                .input(&targets)
                .near::<f32>(weighted_average.collect(), "divisions of 2.5 ulp, roundings of the sums"),
            &[queries, k],
        )
        .threads(64, 32),
        size(
            case("knn_negate_distances")
                .input(&dot)
                .input(&rq)
                .input(&rt)
                .near::<f32>(negated.collect(), "two rsqrt of 2 ulp, four roundings"),
            &[nq, nt, 1],
        )
        .threads(64, 32),
    ]
}

/// One round of Shiloach and Vishkin's algorithm for connected components.
fn graphs() -> Vec<Case> {
    let case = |kernel| Case::new(CORPUS, "ExtraKernels.metal", kernel);
    let n = 40;
    // No edge has an end whose parent another edge changes: the order of threads does not matter.
    let edges: Vec<i32> =
        (0..n / 2).flat_map(|i| if i % 3 == 0 { [2 * i + 1, 2 * i] } else { [2 * i, 2 * i + 1] }).collect();
    let parent: Vec<i32> = (0..n).collect();
    let hooked: Vec<Option<i32>> = (0..n).map(|i| Some(i / 2 * 2)).collect();
    // Chains of two: a root is its own parent.
    let chain: Vec<i32> = (0..n)
        .map(|i| {
            if i % 4 == 0 {
                i
            } else if i % 4 == 1 {
                i - 1
            } else {
                i / 4 * 4 + 1
            }
        })
        .collect();
    // Threads whose parent is a root write what is there.
    let short: Vec<Option<i32>> = (0..n).map(|i| Some(i / 4 * 4)).collect();
    vec![
        size(case("sv_init").full_output(parent.clone()), &[n as usize]).threads(64, 32),
        size(case("sv_hook").input(&edges).updated(&guarded(&parent), &hooked), &[n as usize / 2])
            .threads(32, 32),
        size(case("sv_shortcut").updated(&guarded(&chain), &short), &[n as usize]).threads(64, 32),
    ]
}

/// Trees of decisions in one array: complete ones of depth 3, of which the first two leaves are missing.
fn trees() -> Case {
    let (samples, features, count) = (60, 5, 4);
    let x = numbers(samples * features, 227);
    let nodes = 15;
    let total = nodes * count;
    let (values, thresholds) = (numbers(total, 229), numbers(total, 233));
    let feature: Vec<i32> = Sequence(239).between(total, 0.0, features as f64);
    let leaf = |node: usize| node >= 7 || node == 3;
    let child = |second: usize| {
        (0..total).map(|e| (2 * (e % nodes) + 1 + second) as i32 % nodes as i32).collect::<Vec<_>>()
    };
    let leaves: Vec<u8> = (0..total).map(|e| u8::from(leaf(e % nodes))).collect();
    let base = [0.4_f32];
    let want = (0..samples).map(|i| {
        let terms = (0..count).map(|tree| {
            let mut node = 0;
            while !leaf(node) {
                let at = tree * nodes + node;
                let right = x[i * features + feature[at] as usize] > thresholds[at];
                node = 2 * node + 1 + usize::from(right);
            }
            values[tree * nodes + node].value()
        });
        sum(terms.chain([base[0].value()]), U)
    });
    let want = want.collect();
    let case = Case::new(CORPUS, "TreeKernels.metal", "tree_predict_all")
        .input(&x)
        .input(&values)
        .input(&feature)
        .input(&thresholds)
        .input(&child(0))
        .input(&child(1))
        .input(&leaves)
        .input(&(0..count).map(|tree| (tree * nodes) as u32).collect::<Vec<_>>())
        .input(&[nodes as u32; 4])
        .input(&base)
        .near::<f32>(want, SUM);
    size(case, &[samples, features, count]).threads(64, 32)
}
