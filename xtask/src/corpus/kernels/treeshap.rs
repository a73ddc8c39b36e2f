//! metal-treeshap's kernels: Shapley values of decision trees, whose paths are packed in simdgroups.
//!
//! The reference sums over all subsets of a path's features, as Shapley's definition does.

use super::case::{Case, Near, guarded};
use super::element::Member::{F32, I32};
use super::element::{Element, Sequence, packed};
use super::reference::{U, sum};

const CORPUS: &str = "metal-treeshap";
const FILE: &str = "treeshap.metal";
const SHAP: &str =
    "the recurrences' roundings: 2000 of the sum of magnitudes, which a path multiplies by its length";

const ROWS: usize = 45;
const COLUMNS: usize = 9;
const GROUPS: usize = 2;
/// The first row of the tile.
const OFFSET: usize = 3;

/// A feature on a path: its interval and the share of training samples in it.
struct Split {
    feature: usize,
    zero: f32,
    lower: f32,
    upper: f32,
    missing: bool,
}

struct Path {
    group: usize,
    value: f32,
    splits: Vec<Split>,
}

/// Paths of up to 7 features; each bin has as many as fit into 32 lanes.
fn paths() -> (Vec<Path>, Vec<u32>) {
    let mut sequence = Sequence(3);
    let mut all = Vec::new();
    let (mut bins, mut lanes) = (vec![0], 0);
    let mut elements = 0;
    for number in 0..40 {
        let depth = 1 + (sequence.next() % 7) as usize;
        if lanes + depth + 1 > 32 {
            bins.push(elements);
            lanes = 0;
        }
        lanes += depth + 1;
        elements += depth as u32 + 1;
        let mut features = sequence.shuffled(COLUMNS);
        features.truncate(depth);
        features.sort_unstable();
        let splits = features.into_iter().map(|feature| {
            let bounds: Vec<f32> = sequence.between(3, 0.0, 1.0);
            let (lower, upper) = match sequence.next() % 4 {
                0 => (f32::NEG_INFINITY, bounds[0]),
                1 => (bounds[0], f32::INFINITY),
                _ => (bounds[0].min(bounds[1]) - 0.3, bounds[0].max(bounds[1]) + 0.1),
            };
            Split {
                feature,
                zero: 0.125 + bounds[2] * 0.75,
                lower,
                upper,
                missing: sequence.next().is_multiple_of(2),
            }
        });
        let splits = splits.collect();
        all.push(Path { group: number % GROUPS, value: sequence.between::<f32>(1, -1.0, 1.0)[0], splits });
    }
    bins.push(elements);
    (all, bins)
}

/// Values of features; some are missing, some are infinite.
fn samples() -> Vec<f32> {
    let mut all: Vec<f32> = Sequence(5).between((ROWS + OFFSET) * COLUMNS, 0.0, 1.0);
    for (number, value) in all.iter_mut().enumerate() {
        match number % 13 {
            4 => *value = f32::NAN,
            9 => *value = f32::INFINITY,
            _ => {}
        }
    }
    all
}

impl Split {
    fn holds(&self, x: f32) -> bool {
        match x {
            x if x.is_nan() => self.missing,
            x if x == f32::INFINITY => self.upper == f32::INFINITY,
            x => x >= self.lower && x < self.upper,
        }
    }
}

/// The path's contribution to each of its features, for a row.
fn contributions(path: &Path, row: &[f32]) -> Vec<f64> {
    let count = path.splits.len();
    let share = |split: &Split| {
        let one = if split.holds(row[split.feature]) { 1.0 } else { 0.0 };
        (one, split.zero.value())
    };
    let shares: Vec<(f64, f64)> = path.splits.iter().map(share).collect();
    let factorial = |n: usize| (1..=n).map(|k| k as f64).product::<f64>();
    (0..count)
        .map(|own| {
            let mut total = 0.0;
            for subset in 0..1_u32 << count {
                if subset >> own & 1 == 1 {
                    continue;
                }
                let size = subset.count_ones() as usize;
                let weight = factorial(size) * factorial(count - size - 1) / factorial(count);
                let others = (0..count).filter(|j| *j != own);
                let product: f64 =
                    others.map(|j| if subset >> j & 1 == 1 { shares[j].0 } else { shares[j].1 }).product();
                total += weight * product;
            }
            let (one, zero) = shares[own];
            total * (one - zero) * path.value.value()
        })
        .collect()
}

/// The elements of all paths as the kernels read them: first the path's root, then its features.
fn elements(paths: &[Path]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        let mut add = |feature: i32, zero: f32, lower: f32, upper: f32, missing: bool| {
            bytes.extend(packed(&[
                I32(number as i32),
                I32(feature),
                I32(path.group as i32),
                F32(zero),
                F32(path.value),
                F32(lower),
                F32(upper),
                I32(missing.into()),
            ]));
        };
        // A root has a share of one.
        add(-1, 1.0, f32::NEG_INFINITY, f32::INFINITY, false);
        for split in &path.splits {
            add(split.feature as i32, split.zero, split.lower, split.upper, split.missing);
        }
    }
    bytes
}

pub fn cases() -> Vec<Case> {
    let (paths, bins) = paths();
    let rows = samples();
    let row = |index: usize| &rows[(index + OFFSET) * COLUMNS..][..COLUMNS];
    let case = |kernel: &str| Case::new(CORPUS, FILE, kernel);
    let cells = GROUPS * (COLUMNS + 1);
    let bank = 8;
    let (bin_count, banks) = (bins.len() - 1, ROWS.div_ceil(bank));
    // The slot of an element that is no root: those of a cell are consecutive.
    let mut slots: Vec<(usize, usize, usize)> = Vec::new();
    let mut number = 0;
    for path in &paths {
        number += 1;
        for split in &path.splits {
            slots.push((path.group, split.feature, number));
            number += 1;
        }
    }
    slots.sort_unstable();
    let mut slot_of = vec![0_u32; number];
    for (slot, (_, _, element)) in slots.iter().enumerate() {
        slot_of[*element] = slot as u32;
    }
    let partial_count = slots.len();
    let before: Vec<f32> = Sequence(7).between((ROWS + OFFSET) * cells, -1.0, 1.0);
    let mut want: Vec<Near> = before.iter().map(|x| (x.value(), 0.0)).collect();
    let mut partials = vec![(0.0, 0.0); ROWS * partial_count];
    for index in 0..ROWS {
        let mut number = 0;
        for path in &paths {
            number += 1;
            for (split, value) in path.splits.iter().zip(contributions(path, row(index))) {
                let error = 2000.0 * U * (value.abs() + path.value.value().abs());
                let place = ((index + OFFSET) * GROUPS + path.group) * (COLUMNS + 1) + split.feature;
                want[place].0 += value;
                want[place].1 += error + 64.0 * U;
                partials[index * partial_count + slot_of[number] as usize] = (value, error);
                number += 1;
            }
        }
    }
    let threads = (bin_count * banks * 32).next_multiple_of(256);
    let sizes = [ROWS, OFFSET, COLUMNS, GROUPS, bin_count, bank];
    let int = |value: &usize| I32(*value as i32);
    let params = packed(&sizes.iter().map(int).collect::<Vec<_>>());
    let data = elements(&paths);
    let shap = |kernel| {
        case(kernel)
            .input(&rows)
            .input(&data)
            .cast()
            .input(&bins)
            .updated_near::<f32>(&guarded(&before), want.clone(), SHAP)
            .bytes(params.clone())
            .threads(threads, 256)
    };
    // Segments of the slots: those of a cell, in chunks of at most 16.
    let mut chunks: Vec<(usize, usize)> = Vec::new();
    let mut active: Vec<(usize, usize, usize, usize)> = Vec::new();
    let mut start = 0;
    for cell in slots.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let first = chunks.len();
        let end = start + cell.len();
        while start < end {
            let next = end.min(start + 16);
            chunks.push((start, next));
            start = next;
        }
        active.push((cell[0].0, cell[0].1, first, chunks.len()));
    }
    let more = [partial_count, active.len(), chunks.len()];
    let params_of_all = packed(&sizes.iter().chain(&more).map(int).collect::<Vec<_>>());
    let given: Vec<f32> = partials.iter().map(|(value, _)| *value as f32).collect();
    let sums = |of: &[f32], (from, to): (usize, usize)| sum(of[from..to].iter().map(|x| x.value()), U);
    let chunk_sums: Vec<Near> = (0..ROWS * chunks.len())
        .map(|e| sums(&given[e / chunks.len() * partial_count..], chunks[e % chunks.len()]))
        .collect();
    let parts: Vec<f32> = Sequence(11).between(ROWS * chunks.len(), -1.0, 1.0);
    let mut totals: Vec<Near> = before.iter().map(|x| (x.value(), 0.0)).collect();
    for index in 0..ROWS {
        for (group, feature, from, to) in &active {
            let place = ((index + OFFSET) * GROUPS + group) * (COLUMNS + 1) + feature;
            totals[place] = sums(&parts[index * chunks.len()..], (*from, *to));
        }
    }
    let words = |list: Vec<[usize; 4]>, width: usize| -> Vec<u32> {
        list.iter().flat_map(|entry| entry[..width].iter().map(|n| *n as u32)).collect()
    };
    let chunk_list = words(chunks.iter().map(|(from, to)| [*from, *to, 0, 0]).collect(), 2);
    let cell_list = words(active.iter().map(|(a, b, c, d)| [*a, *b, *c, *d]).collect(), 4);
    let bias = [0.25_f32, -0.75];
    let filled = (0..ROWS * cells)
        .map(|e| if e % (COLUMNS + 1) == COLUMNS { bias[e / (COLUMNS + 1) % GROUPS] } else { 0.0 });
    const KAHAN: &str = "one rounding of the sum of magnitudes for each term";
    vec![
        case("fill_output_bias")
            .full_output(filled.collect::<Vec<_>>())
            .input(&bias)
            .bytes(packed(&[ROWS, GROUPS, COLUMNS].iter().map(int).collect::<Vec<_>>()))
            .threads((ROWS * cells).next_multiple_of(256), 256),
        shap("shap_first_order"),
        shap("shap_first_order_simdgroup"),
        case("shap_partials")
            .input(&rows)
            .input(&data)
            .cast()
            .input(&bins)
            .input(&slot_of)
            .near::<f32>(partials, SHAP)
            .bytes(params_of_all.clone())
            .threads(threads, 256),
        case("reduce_partials_chunks")
            .input(&given)
            .input(&chunk_list)
            .cast()
            .near::<f32>(chunk_sums, KAHAN)
            .bytes(params_of_all.clone())
            .threads((ROWS * chunks.len()).next_multiple_of(256), 256),
        case("reduce_chunks_serial")
            .input(&parts)
            .input(&cell_list)
            .cast()
            .updated_near::<f32>(&guarded(&before), totals, KAHAN)
            .bytes(params_of_all)
            .threads((ROWS * active.len()).next_multiple_of(256), 256),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contributions_add_up() {
        // Efficiency: the values of all features and the mean add up to the path's output.
        let (paths, _) = paths();
        let rows = samples();
        for path in &paths {
            let row = &rows[..COLUMNS];
            let mean: f64 = path.splits.iter().map(|split| split.zero.value()).product();
            let output =
                if path.splits.iter().all(|split| split.holds(row[split.feature])) { 1.0 } else { 0.0 };
            let total: f64 = contributions(path, row).iter().sum();
            assert!((total - (output - mean) * path.value.value()).abs() < 1e-12);
        }
    }
}
