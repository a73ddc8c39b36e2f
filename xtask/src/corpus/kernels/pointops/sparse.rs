//! Sparse convolution, its gradients and its table of pairs; pooling of voxels; keys on a Z-order curve.

use std::collections::BTreeMap;

use super::super::case::{Case, Near};
use super::super::element::{Element, Sequence};
use super::super::reference::{U, sum};
use super::{CORPUS, SUM, long, longs};

const ROWS: usize = 45;
const IN: usize = 5;
const OUT: usize = 4;
/// Sizes of the window.
const WINDOW: [usize; 3] = [3, 3, 1];
const VOLUME: usize = 9;
const DILATION: [i32; 3] = [1, 2, 1];

/// Cells of a sparse grid, `[batch, x, y, z]`, and which of them are neighbors.
struct Grid {
    cells: Vec<[i32; 4]>,
    /// For each place in the window and each cell, the cell that lies there.
    sources: Vec<Option<usize>>,
}

impl Grid {
    fn new() -> Self {
        let mut sequence = Sequence(113);
        let all = sequence.shuffled(2 * 6 * 6 * 2);
        let cell = |index: &usize| [index / 72, index / 12 % 6, index / 2 % 6, index % 2].map(|x| x as i32);
        let cells: Vec<[i32; 4]> = all.iter().take(ROWS).map(cell).collect();
        let known: BTreeMap<[i32; 4], usize> =
            cells.iter().enumerate().map(|(row, cell)| (*cell, row)).collect();
        let sources = (0..VOLUME).flat_map(|place| {
            let offset = [place / 3, place % 3, 0];
            let shift = [0, 1, 2].map(|k| (offset[k] as i32 - (WINDOW[k] / 2) as i32) * DILATION[k]);
            let of = |cell: &[i32; 4]| {
                known.get(&[cell[0], cell[1] + shift[0], cell[2] + shift[1], cell[3] + shift[2]]).copied()
            };
            cells.iter().map(of).collect::<Vec<_>>()
        });
        let sources = sources.collect();
        Self { cells, sources }
    }

    /// Place in the window, source and output of each pair; by place, then by output.
    fn pairs(&self) -> Vec<[usize; 3]> {
        let all = self.sources.iter().enumerate();
        all.filter_map(|(slot, source)| Some([slot / ROWS, (*source)?, slot % ROWS])).collect()
    }
}

/// Start of the run of each number below `count`.
fn starts(sorted: impl Iterator<Item = usize>, count: usize) -> Vec<usize> {
    let mut starts = vec![0; count + 1];
    sorted.for_each(|number| starts[number + 1] += 1);
    (0..count).for_each(|number| starts[number + 1] += starts[number]);
    starts
}

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    Sequence(seed).between(count, -1.0, 1.0)
}

pub fn cases() -> Vec<Case> {
    let mut cases = convolution();
    cases.extend(table());
    cases.extend([pooled(), keys()]);
    cases
}

fn weight(out: usize, channel: usize, place: usize) -> usize {
    (out * IN + channel) * VOLUME + place
}

fn convolution() -> Vec<Case> {
    let grid = Grid::new();
    let mut pairs = grid.pairs();
    let by_place = pairs.clone();
    let places = starts(by_place.iter().map(|pair| pair[0]), VOLUME);
    pairs.sort_by_key(|pair| (pair[2], pair[0]));
    let rows = starts(pairs.iter().map(|pair| pair[2]), ROWS);
    let (sources, offsets): (Vec<usize>, Vec<usize>) = pairs.iter().map(|pair| (pair[1], pair[0])).unzip();
    let (features, slopes) = (numbers(ROWS * IN, 127), numbers(ROWS * OUT, 131));
    let (weights, bias) = (numbers(OUT * IN * VOLUME, 137), numbers(OUT, 139));
    let of = |row: usize| rows[row]..rows[row + 1];
    let forward = (0..ROWS * OUT).map(|e| {
        let (row, out) = (e / OUT, e % OUT);
        let term = |pair: usize, c: usize| {
            features[sources[pair] * IN + c].value() * weights[weight(out, c, offsets[pair])].value()
        };
        let terms = of(row).flat_map(|pair| (0..IN).map(move |c| (pair, c))).map(|(pair, c)| term(pair, c));
        sum(std::iter::once(bias[out].value()).chain(terms), U)
    });
    let gradient = |reversed: bool| -> Vec<Near> {
        (0..ROWS * IN)
            .map(|e| {
                let (row, c) = (e / IN, e % IN);
                let term = |pair: usize, out: usize| {
                    let place = if reversed { VOLUME - 1 - offsets[pair] } else { offsets[pair] };
                    slopes[sources[pair] * OUT + out].value() * weights[weight(out, c, place)].value()
                };
                let terms = of(row).flat_map(|pair| (0..OUT).map(move |out| (pair, out)));
                sum(terms.map(|(pair, out)| term(pair, out)), U)
            })
            .collect()
    };
    let of_weights = (0..OUT * IN * VOLUME).map(|e| {
        let (out, c, place) = (e / VOLUME / IN, e / VOLUME % IN, e % VOLUME);
        let pairs = &by_place[places[place]..places[place + 1]];
        sum(
            pairs.iter().map(|pair| slopes[pair[2] * OUT + out].value() * features[pair[1] * IN + c].value()),
            U,
        )
    });
    let case = |file: &'static str, kernel: &str| Case::new(CORPUS, file, kernel);
    let lists = |case: Case| case.input(&longs(&rows)).input(&longs(&sources)).input(&longs(&offsets));
    let sizes = [ROWS, IN, OUT, VOLUME];
    let flat: Vec<usize> = by_place.iter().flatten().copied().collect();
    vec![
        long(
            lists(case("subm_conv.metal", "subm_conv3d_f32").input(&features).input(&weights))
                .input(&bias)
                .near::<f32>(forward.collect(), SUM),
            &sizes,
        )
        .value([1_i32])
        .threads(192, 64),
        long(
            lists(case("subm_conv.metal", "subm_conv3d_grad_features_f32").input(&slopes).input(&weights))
                .near::<f32>(gradient(true), SUM),
            &sizes,
        )
        .threads(256, 64),
        long(
            case("subm_conv.metal", "subm_conv3d_grad_weights_f32")
                .input(&features)
                .input(&slopes)
                .input(&longs(&flat))
                .input(&longs(&places))
                .near::<f32>(of_weights.collect(), SUM),
            &sizes[1..],
        )
        .threads(192, 64),
        long(
            lists(
                case("sparse_conv_grad.metal", "sparse_conv3d_grad_features_f32")
                    .input(&slopes)
                    .input(&weights),
            )
            .near::<f32>(gradient(false), SUM),
            &sizes,
        )
        .threads(256, 64),
    ]
}

fn table() -> Vec<Case> {
    let grid = Grid::new();
    let flat: Vec<i32> = grid.cells.iter().flatten().copied().collect();
    let mut sorted: Vec<usize> = (0..ROWS).collect();
    sorted.sort_by_key(|row| grid.cells[*row]);
    let sources: Vec<i64> = grid.sources.iter().map(|source| source.map_or(-1, |row| row as i64)).collect();
    let valid: Vec<i32> = sources.iter().map(|source| i32::from(*source >= 0)).collect();
    let counted = |order: &dyn Fn(usize) -> usize| -> Vec<i64> {
        let sums = (0..VOLUME * ROWS).scan(0, |total, slot| {
            *total += i64::from(valid[order(slot)]);
            Some(*total)
        });
        sums.collect()
    };
    let pairs = grid.pairs();
    let mut by_output = pairs.clone();
    by_output.sort_by_key(|pair| (pair[2], pair[0]));
    let case = |kernel: &str| Case::new(CORPUS, "subm_rulebook.metal", kernel);
    let windows = WINDOW.iter().map(|size| *size as i32).chain(DILATION);
    vec![
        long(
            case("subm_rulebook_gather_axis_i32")
                .input(&flat)
                .input(&longs(&sorted))
                .full_output(sorted.iter().map(|row| grid.cells[*row][2])),
            &[ROWS],
        )
        .value([2_i32])
        .threads(64, 32),
        windows
            .fold(
                long(
                    case("subm_rulebook_lookup_i32")
                        .input(&flat)
                        .input(&longs(&sorted))
                        .full_output(sources.clone())
                        .full_output(valid.clone()),
                    &[ROWS],
                ),
                |case, value| case.value([value]),
            )
            .threads(VOLUME * ROWS + 11, 32),
        long(
            case("subm_rulebook_compact_i64")
                .input(&sources)
                .input(&counted(&|slot| slot))
                .input(&counted(&|slot| slot % VOLUME * ROWS + slot / VOLUME))
                .full_output(pairs.iter().flatten().map(|x| *x as i64))
                .full_output(longs(&starts(by_output.iter().map(|pair| pair[2]), ROWS)))
                .full_output(by_output.iter().map(|pair| pair[1] as i64))
                .full_output(by_output.iter().map(|pair| pair[0] as i64))
                .full_output(longs(&starts(pairs.iter().map(|pair| pair[0]), VOLUME))),
            &[ROWS, VOLUME],
        )
        .threads(VOLUME * ROWS + 11, 32),
    ]
}

/// Means of the points of each voxel. Large numbers cancel: the kernel keeps what a sum loses.
fn pooled() -> Case {
    let (points, dim, channels) = (60, 3, 4);
    let places = [0, 7, 8, 31, 60];
    let order = Sequence(149).shuffled(points);
    let positions = numbers(points * dim, 151);
    let mut features = numbers(points * channels, 157);
    for voxel in 0..4 {
        // Adjacent in no voxel of one point.
        let range = places[voxel]..places[voxel + 1];
        if range.len() > 2 {
            for (number, sign) in [(range.start, 1.0), (range.end - 1, -1.0)] {
                features[order[number] * channels..][..channels].fill(sign * 3e8);
            }
        }
    }
    let mean = |data: &[f32], width: usize, e: usize| -> Near {
        let range = places[e / width]..places[e / width + 1];
        let count = range.len() as f64;
        let values = range.map(|number| data[order[number] * width + e % width].value());
        let (total, magnitude) = values.fold((0.0, 0.0), |(total, size), x| (total + x, size + x.abs()));
        (total / count, 4.0 * U * (total / count).abs() + 64.0 * U * U * magnitude)
    };
    let case = Case::new(CORPUS, "voxel_pool.metal", "voxel_pool_f32")
        .input(&positions)
        .input(&features)
        .input(&longs(&order))
        .input(&longs(&places))
        .near::<f32>((0..4 * dim).map(|e| mean(&positions, dim, e)).collect(), SUM)
        .near::<f32>(
            (0..4 * channels).map(|e| mean(&features, channels, e)).collect(),
            "a sum with compensation and a division",
        );
    long(case, &[4, dim, channels]).value([1_i32]).threads(32, 32)
}

/// Bits of three cell numbers, interleaved.
fn keys() -> Case {
    let count = 100;
    let (origin, size) = ([-3.0_f32, 2.0, 0.5], 0.5_f32);
    let cells: Vec<u32> = Sequence(163).any::<u32>(count * 3).iter().map(|x| x % 40_000).collect();
    let mut points: Vec<f32> =
        cells.iter().enumerate().map(|(e, cell)| origin[e % 3] + (*cell as f32 + 0.25) * size).collect();
    points[7 * 3 + 1] = f32::NAN;
    points[20 * 3] = f32::INFINITY;
    points[33 * 3 + 2] = origin[2] - 1.0;
    let is_bad = |row: usize| matches!(row, 7 | 20 | 33);
    let key = |row: usize| {
        let bits = (0..63).map(|bit| u64::from(cells[row * 3 + bit % 3] >> (bit / 3) & 1) << bit);
        if is_bad(row) { i64::MAX } else { bits.sum::<u64>() as i64 }
    };
    let case = Case::new(CORPUS, "spatial_keys.metal", "spatial_morton_keys_f32")
        .input(&points)
        .input(&origin)
        .full_output((0..count).map(key))
        .full_output((0..count).map(|row| u8::from(is_bad(row))));
    long(case, &[count]).value([size]).threads(128, 32)
}
