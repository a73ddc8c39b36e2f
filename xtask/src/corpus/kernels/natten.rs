//! natten-mps's kernels: neighborhood attention in one, two and three dimensions, its gradients, and fused forms of both.
//!
//! The neighborhood of a position has `kernel` positions of its own residue modulo the dilation: those nearest to it, or, on a causal axis,
//! those up to it.

use elinvar::f16;

use super::case::{Case, Near};
use super::element::{Element, Sequence};
use super::reference::{ATTENTION, U, attention, sum};

const CORPUS: &str = "natten-mps";
const MAIN: &str = "_core/_metal_shaders.0.metal";
const FUSED: &str = "_core/_metal_shaders.1.metal";
const SUM: &str = "one rounding of the sum of magnitudes for each term, one of the output's type";
const GRADIENT: &str = "the errors of the scores, of exp and of the sums, each relative to the magnitudes; one rounding of the output's type";

const BATCH: usize = 2;
const HEADS: usize = 3;

/// One axis of the space.
#[derive(Clone, Copy)]
struct Axis {
    length: usize,
    kernel: usize,
    dilation: usize,
    causal: bool,
    /// Every so many-th position has an output.
    stride: usize,
}

impl Axis {
    fn outputs(&self) -> usize {
        self.length.div_ceil(self.stride)
    }

    /// Neighbors of a position; a causal axis lacks those before its start.
    fn window(&self, at: usize) -> Vec<Option<usize>> {
        let residue = at % self.dilation;
        let own = at / self.dilation;
        let count = (self.length - residue).div_ceil(self.dilation);
        let first = if self.causal {
            own as isize - (self.kernel as isize - 1)
        } else {
            (own as isize - (self.kernel / 2) as isize).clamp(0, (count - self.kernel) as isize)
        };
        (first..first + self.kernel as isize)
            .map(|index| usize::try_from(index).ok().map(|index| index * self.dilation + residue))
            .collect()
    }
}

/// The space in which attention is computed.
#[derive(Clone)]
struct Space {
    axes: Vec<Axis>,
    dim: usize,
}

/// A query: its position, its neighbors, and its output, for one batch and head.
struct Query {
    at: usize,
    neighbors: Vec<Option<usize>>,
}

impl Space {
    fn new(dimensions: usize, causal: bool, strided: bool) -> Self {
        let lengths = [[13, 0, 0], [10, 11, 0], [7, 6, 8]][dimensions - 1];
        let kernels = [[5, 0, 0], [3, 5, 0], [3, 3, 3]][dimensions - 1];
        let dilations = [[2, 0, 0], [3, 2, 0], [2, 1, 2]][dimensions - 1];
        let axis = |k: usize| Axis {
            length: lengths[k],
            kernel: kernels[k],
            dilation: dilations[k],
            // Not all axes, where there are flags for each.
            causal: causal && k != 1,
            stride: if strided { [2, 3, 2][k] } else { 1 },
        };
        Self { axes: (0..dimensions).map(axis).collect(), dim: 8 }
    }

    fn list(&self, of: impl Fn(&Axis) -> usize) -> Vec<usize> {
        self.axes.iter().map(of).collect()
    }

    fn lengths(&self) -> Vec<usize> {
        self.list(|axis| axis.length)
    }

    fn outputs(&self) -> Vec<usize> {
        self.list(Axis::outputs)
    }

    /// Number of neighbors of a position.
    fn reach(&self) -> usize {
        self.axes.iter().map(|axis| axis.kernel).product()
    }

    fn positions(&self) -> usize {
        self.lengths().iter().product()
    }

    /// The queries of one head, in order.
    fn queries(&self) -> Vec<Query> {
        let sizes = self.outputs();
        (0..sizes.iter().product())
            .map(|output| {
                let mut rest = output;
                let mut places = vec![0; sizes.len()];
                for (place, size) in places.iter_mut().zip(&sizes).rev() {
                    (*place, rest) = (rest % size, rest / size);
                }
                let (mut at, mut neighbors) = (0, vec![Some(0)]);
                for (axis, place) in self.axes.iter().zip(places) {
                    let place = place * axis.stride;
                    at = at * axis.length + place;
                    let window = axis.window(place);
                    let joined = |a: &Option<usize>, b: &Option<usize>| Some((*a)? * axis.length + (*b)?);
                    neighbors = neighbors
                        .iter()
                        .flat_map(|before| window.iter().map(move |own| joined(before, own)))
                        .collect();
                }
                Query { at, neighbors }
            })
            .collect()
    }

    /// Threads for one position each, and more that have none.
    fn grid(&self, sizes: &[usize]) -> [usize; 3] {
        let [x, y, z] = match *sizes {
            [x] => [x, HEADS, BATCH],
            [y, x] => [x, y, BATCH * HEADS],
            [z, y, x] => [x, y, BATCH * HEADS * z],
            _ => [0; 3],
        };
        [x + 1, y + 1, z + 1]
    }

    fn sized(&self, case: Case) -> Case {
        let sizes = [
            vec![BATCH, HEADS],
            self.lengths(),
            vec![self.dim],
            self.list(|axis| axis.kernel),
            self.list(|axis| axis.dilation),
        ];
        ints(case, &sizes.concat())
    }

    fn flags(&self, case: Case) -> Case {
        ints(case, &self.list(|axis| axis.causal.into()))
    }

    fn strides(&self, case: Case) -> Case {
        ints(case, &[self.list(|axis| axis.stride), self.outputs()].concat())
    }
}

/// Parameters of type `int`.
fn ints(case: Case, values: &[usize]) -> Case {
    values.iter().fold(case, |case, value| case.value([*value as i32]))
}

fn numbers<T: Element>(count: usize, seed: u64) -> Vec<T> {
    Sequence(seed).between(count, -1.0, 1.0)
}

fn values<T: Element>(numbers: &[T]) -> Vec<f64> {
    numbers.iter().map(|x| x.value()).collect()
}

/// With the rounding to the output's type.
fn stored<T: Element>((value, error): Near) -> Near {
    let rounding = if T::ROUNDING > U { T::ROUNDING * value.abs() * 1.01 + 6e-8 } else { 0.0 };
    (value, if value.is_finite() { error + rounding } else { 0.0 })
}

/// Rows of all batches and heads: `rows` of `width` numbers for each.
#[derive(Clone, Copy)]
struct Rows<'a> {
    data: &'a [f64],
    rows: usize,
    width: usize,
}

impl<'a> Rows<'a> {
    fn of(data: &'a [f64], rows: usize, width: usize) -> Self {
        Self { data, rows, width }
    }

    fn row(&self, head: usize, index: usize) -> &'a [f64] {
        &self.data[(head * self.rows + index) * self.width..][..self.width]
    }
}

fn dot(a: &[f64], b: &[f64]) -> Near {
    sum(a.iter().zip(b).map(|(a, b)| a * b), U)
}

/// Sums of rows with weights: one for each of `rows` places of each head.
fn gathered(rows: usize, width: usize, terms: impl Fn(usize) -> Vec<Vec<(f64, Vec<f64>)>>) -> Vec<Near> {
    let mut all = Vec::new();
    for head in 0..BATCH * HEADS {
        let of_rows = terms(head);
        assert_eq!(of_rows.len(), rows);
        for row in of_rows {
            all.extend((0..width).map(|d| sum(row.iter().map(|(weight, value)| weight * value[d]), U)));
        }
    }
    all
}

fn suffix<T: Element>() -> &'static str {
    if T::ROUNDING > U { "_f16" } else { "" }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dimensions in 1..=3 {
        for (causal, strided) in [(false, false), (true, false), (false, true), (true, true)] {
            let space = Space::new(dimensions, causal, strided);
            cases.extend(forward::<f32>(&space, causal, strided));
            cases.extend(forward::<f16>(&space, causal, strided));
        }
        let space = Space::new(dimensions, true, true);
        cases.extend(backward::<f32>(&space));
        cases.extend(backward::<f16>(&space));
        cases.extend(fused::<f32>(&space));
        cases.extend(fused::<f16>(&space));
        cases.extend(of_lengths::<f32>(dimensions));
        cases.extend(of_lengths::<f16>(dimensions));
    }
    for dimensions in 1..=2 {
        for kernel in [3, 5, 7] {
            cases.extend(biased(dimensions, kernel));
        }
    }
    cases
}

/// Scores of the neighbors, and averages of their values with given weights.
fn forward<T: Element>(space: &Space, causal: bool, strided: bool) -> [Case; 2] {
    let (heads, positions, reach, dim) = (BATCH * HEADS, space.positions(), space.reach(), space.dim);
    let queries = space.queries();
    let [query, key] = [3, 5].map(|seed| numbers::<T>(heads * positions * dim, seed));
    let weights = numbers::<T>(heads * queries.len() * reach, 7);
    let (q, k, w) = (values(&query), values(&key), values(&weights));
    let (q, k) = (Rows::of(&q, positions, dim), Rows::of(&k, positions, dim));
    let w = Rows::of(&w, queries.len(), reach);
    let scores = (0..heads).flat_map(|head| {
        queries.iter().flat_map(move |query| query.neighbors.iter().map(move |at| (head, query.at, *at)))
    });
    let scores = scores.map(|(head, own, at)| {
        stored::<T>(at.map_or((f64::NEG_INFINITY, 0.0), |at| dot(q.row(head, own), k.row(head, at))))
    });
    let scores = scores.collect();
    let averages = gathered(queries.len(), dim, |head| {
        let of = |(output, query): (usize, &Query)| {
            let pairs = w.row(head, output).iter().zip(&query.neighbors);
            pairs.filter_map(|(weight, at)| Some((*weight, k.row(head, (*at)?).to_vec()))).collect()
        };
        queries.iter().enumerate().map(of).collect()
    });
    let kind = format!(
        "{}{}forward{}",
        if causal { "causal_" } else { "" },
        if strided { "strided_" } else { "" },
        suffix::<T>()
    );
    let d = space.axes.len();
    let finish = |case: Case| {
        let mut case = space.sized(case);
        if causal && d > 1 {
            case = space.flags(case);
        }
        if strided {
            case = space.strides(case);
        }
        case.threads(space.grid(&space.outputs()), (4, 4))
    };
    [
        finish(
            Case::new(CORPUS, MAIN, format!("natten{d}d_qk_{kind}"))
                .input(&query)
                .input(&key)
                .near::<T>(scores, SUM),
        ),
        finish(
            Case::new(CORPUS, MAIN, format!("natten{d}d_av_{kind}"))
                .input(&weights)
                .input(&key)
                .near::<T>(averages.into_iter().map(stored::<T>).collect(), SUM),
        ),
    ]
}

/// Gradients of scores and of averages, for queries, keys, values and weights.
fn backward<T: Element>(space: &Space) -> Vec<Case> {
    let (heads, positions, reach, dim) = (BATCH * HEADS, space.positions(), space.reach(), space.dim);
    let queries = space.queries();
    let outputs = queries.len();
    let [key, query] = [11, 13].map(|seed| numbers::<T>(heads * positions * dim, seed));
    let weights = numbers::<T>(heads * outputs * reach, 17);
    let slopes = numbers::<T>(heads * outputs * dim, 19);
    let (k, q, w, s) = (values(&key), values(&query), values(&weights), values(&slopes));
    let (k, q) = (Rows::of(&k, positions, dim), Rows::of(&q, positions, dim));
    let (w, s) = (Rows::of(&w, outputs, reach), Rows::of(&s, outputs, dim));
    let of_queries = gathered(positions, dim, |head| {
        let mut rows = vec![Vec::new(); positions];
        for (output, query) in queries.iter().enumerate() {
            let pairs = w.row(head, output).iter().zip(&query.neighbors);
            rows[query.at] =
                pairs.filter_map(|(weight, at)| Some((*weight, k.row(head, (*at)?).to_vec()))).collect();
        }
        rows
    });
    let of_weights = (0..heads).flat_map(|head| {
        let of = move |(output, query): (usize, &Query)| {
            let dots = query
                .neighbors
                .iter()
                .map(|at| at.map_or((0.0, 0.0), |at| dot(s.row(head, output), k.row(head, at))));
            dots.map(stored::<T>).collect::<Vec<_>>()
        };
        queries.iter().enumerate().flat_map(of).collect::<Vec<_>>()
    });
    let of_weights = of_weights.collect::<Vec<_>>();
    // For each position the queries of which it is a neighbor: the place of its weight and the row of the query.
    let mut edges = vec![Vec::new(); positions];
    for (output, query) in queries.iter().enumerate() {
        for (number, at) in query.neighbors.iter().enumerate() {
            if let Some(at) = at {
                edges[*at].push((output, number, query.at));
            }
        }
    }
    let starts: Vec<i32> = edges
        .iter()
        .scan(0, |start, list| {
            *start += list.len() as i32;
            Some(*start)
        })
        .collect();
    let starts = [&[0][..], &starts].concat();
    let flat = || edges.iter().flatten();
    let weights_at: Vec<i32> = flat().map(|(output, number, _)| (output * reach + number) as i32).collect();
    let queries_at: Vec<i32> = flat().map(|(_, _, at)| (at * dim) as i32).collect();
    let slopes_at: Vec<i32> = flat().map(|(output, _, _)| (output * dim) as i32).collect();
    let scattered = |by_query: bool| {
        gathered(positions, dim, |head| {
            let term = |(output, number, at): &(usize, usize, usize)| {
                let row = if by_query { q.row(head, *at) } else { s.row(head, *output) };
                (w.row(head, *output)[*number], row.to_vec())
            };
            edges.iter().map(|list| list.iter().map(term).collect()).collect()
        })
        .into_iter()
        .map(stored::<T>)
        .collect::<Vec<_>>()
    };
    let d = space.axes.len();
    let name = |what: &str| Case::new(CORPUS, MAIN, format!("natten{d}d_{what}{}", suffix::<T>()));
    let finish = |case: Case, sizes: &[usize]| {
        space.flags(space.strides(space.sized(case))).threads(space.grid(sizes), (4, 4))
    };
    let lengths = if d == 3 { vec![positions] } else { space.lengths() };
    let inverse = |case: Case| {
        let sizes = [vec![BATCH, HEADS], lengths.clone(), vec![dim, outputs, reach]].concat();
        ints(case, &sizes).threads([dim, positions + 1, heads + 1], (8, 4))
    };
    vec![
        finish(
            name("q_backward")
                .input(&weights)
                .input(&key)
                .near::<T>(of_queries.into_iter().map(stored::<T>).collect(), SUM),
            &space.lengths(),
        ),
        finish(name("a_backward").input(&slopes).input(&key).near::<T>(of_weights, SUM), &space.outputs()),
        inverse(
            name("k_backward_inv")
                .input(&weights)
                .input(&query)
                .near::<T>(scattered(true), SUM)
                .input(&starts)
                .input(&weights_at)
                .input(&queries_at),
        ),
        inverse(
            name("v_backward_inv")
                .input(&slopes)
                .input(&weights)
                .near::<T>(scattered(false), SUM)
                .input(&starts)
                .input(&weights_at)
                .input(&slopes_at),
        ),
    ]
}

/// Scores, softmax and averages in one kernel, by a simdgroup for each query, and its gradient.
fn fused<T: Element>(space: &Space) -> [Case; 2] {
    // More than the lanes of a simdgroup.
    let space = Space { dim: 40, ..space.clone() };
    let (heads, positions, dim) = (BATCH * HEADS, space.positions(), space.dim);
    let queries = space.queries();
    let outputs = queries.len();
    let scale = 0.25_f32;
    let data = [23, 29, 31].map(|seed| numbers::<T>(heads * positions * dim, seed));
    let real = [0, 1, 2].map(|which| values(&data[which]));
    let [q, k, v] = [0, 1, 2].map(|which| Rows::of(&real[which], positions, dim));
    let slopes = numbers::<T>(heads * outputs * dim, 37);
    let s = values(&slopes);
    let s = Rows::of(&s, outputs, dim);
    let (mut averages, mut logarithms) = (Vec::new(), Vec::new());
    for head in 0..heads {
        for query in &queries {
            let near: Vec<usize> = query.neighbors.iter().flatten().copied().collect();
            let keys: Vec<&[f64]> = near.iter().map(|at| k.row(head, *at)).collect();
            let rows: Vec<&[f64]> = near.iter().map(|at| v.row(head, *at)).collect();
            averages.extend(attention(q.row(head, query.at), &keys, &rows, scale.value()));
            let scores = keys.iter().map(|key| dot(q.row(head, query.at), key).0 * scale.value());
            let value = scores.map(f64::exp).sum::<f64>().ln();
            logarithms.push((value, U * (64.0 + 8.0 * dim as f64)));
        }
    }
    let averages: Vec<Near> = averages.into_iter().map(stored::<T>).collect();
    let given: Vec<T> = averages.iter().map(|(value, _)| T::of(*value)).collect();
    let lse: Vec<f32> = logarithms.iter().map(|(value, _)| *value as f32).collect();
    let g = values(&given);
    let g = Rows::of(&g, outputs, dim);
    let (mut weights, mut logits) = (Vec::new(), Vec::new());
    let mut of_queries = vec![(0.0, 0.0); heads * positions * dim];
    let mut written = vec![false; of_queries.len()];
    for head in 0..heads {
        for (output, query) in queries.iter().enumerate() {
            let (level, level_error) = dot(g.row(head, output), s.row(head, output));
            let mut row = vec![(0.0, 0.0); dim];
            for at in &query.neighbors {
                let Some(at) = at else {
                    weights.push((0.0, 0.0));
                    logits.push((0.0, 0.0));
                    continue;
                };
                let (score, score_error) = dot(q.row(head, query.at), k.row(head, *at));
                let log = lse[head * outputs + output].value();
                let weight = (score * scale.value() - log).exp();
                let of_weight = score_error + U * (16.0 + 4.0 * log.abs() + 4.0 * score.abs());
                let (slope, slope_error) = dot(s.row(head, output), v.row(head, *at));
                let value = weight * (slope - level) * scale.value();
                let error = weight
                    * scale.value()
                    * (slope_error + level_error + (of_weight + 4.0 * U) * (slope.abs() + level.abs()));
                weights.push((weight, of_weight * weight));
                logits.push((value, error));
                for (d, (sum, errors)) in row.iter_mut().enumerate() {
                    let key = k.row(head, *at)[d];
                    *sum += value * key;
                    *errors += (error + 64.0 * U * value.abs()) * key.abs();
                }
            }
            let start = (head * positions + query.at) * dim;
            for (d, sum) in row.into_iter().enumerate() {
                of_queries[start + d] = stored::<T>(sum);
                written[start + d] = true;
            }
        }
    }
    // Positions without an output are left as they are.
    for (value, written) in of_queries.iter_mut().zip(written) {
        if !written {
            *value = (T::untouched().value(), 0.0);
        }
    }
    let d = space.axes.len();
    let name = |what: &str| Case::new(CORPUS, FUSED, format!("natten{d}d_fused_{what}{}", suffix::<T>()));
    let finish = |case: Case| {
        let [x, y, z] = space.grid(&space.outputs());
        space.flags(space.strides(space.sized(case)).value([scale])).threads([x * 32, y, z], (32, 2))
    };
    let inputs = |case: Case| data.iter().fold(case, |case, data| case.input(data));
    [
        finish(inputs(name("forward")).near::<T>(averages, ATTENTION).near::<f32>(logarithms, ATTENTION)),
        finish(
            inputs(name("backward"))
                .input(&slopes)
                .input(&given)
                .input(&lse)
                .near::<T>(of_queries, GRADIENT)
                .near::<f32>(weights, GRADIENT)
                .near::<f32>(logits, GRADIENT),
        ),
    ]
}

/// Scores and averages in spaces of which each batch has its own part.
fn of_lengths<T: Element>(dimensions: usize) -> [Case; 2] {
    let space = Space::new(dimensions, false, false);
    let (heads, positions, reach, dim) = (BATCH * HEADS, space.positions(), space.reach(), space.dim);
    let shorter = |batch: usize, axis: &Axis| axis.length - batch;
    let sizes: Vec<i32> =
        (0..BATCH).flat_map(|batch| space.axes.iter().map(move |axis| shorter(batch, axis) as i32)).collect();
    let [query, key] = [41, 43].map(|seed| numbers::<T>(heads * positions * dim, seed));
    let weights = numbers::<T>(heads * positions * reach, 47);
    let (q, k, w) = (values(&query), values(&key), values(&weights));
    let (q, k, w) =
        (Rows::of(&q, positions, dim), Rows::of(&k, positions, dim), Rows::of(&w, positions, reach));
    let untouched = (T::untouched().value(), 0.0);
    let mut scores = vec![untouched; heads * positions * reach];
    let mut averages = vec![untouched; heads * positions * dim];
    for head in 0..heads {
        let batch = head / HEADS;
        let part = Space {
            axes: space.axes.iter().map(|axis| Axis { length: shorter(batch, axis), ..*axis }).collect(),
            dim,
        };
        // From a position of the part to that of the whole.
        let whole = |at: usize| {
            let (mut rest, mut place, mut factor) = (at, 0, 1);
            for (own, all) in part.axes.iter().zip(&space.axes).rev() {
                place += rest % own.length * factor;
                rest /= own.length;
                factor *= all.length;
            }
            place
        };
        for query in part.queries() {
            let own = whole(query.at);
            let near: Vec<usize> = query.neighbors.iter().flatten().map(|at| whole(*at)).collect();
            for (number, at) in near.iter().enumerate() {
                scores[(head * positions + own) * reach + number] =
                    stored::<T>(dot(q.row(head, own), k.row(head, *at)));
            }
            for d in 0..dim {
                let terms =
                    w.row(head, own).iter().zip(&near).map(|(weight, at)| weight * k.row(head, *at)[d]);
                averages[(head * positions + own) * dim + d] = stored::<T>(sum(terms, U));
            }
        }
    }
    let file =
        ["_core/_metal_shaders.2.metal", "_core/_metal_shaders.3.metal", "_core/_metal_shaders.4.metal"];
    let name = |what: &str| {
        let kernel = format!("natten{dimensions}d_{what}_varlen_forward{}", suffix::<T>());
        Case::new(CORPUS, file[dimensions - 1], kernel)
    };
    let finish = |case: Case| space.sized(case.input(&sizes)).threads(space.grid(&space.lengths()), (4, 4));
    [
        finish(name("qk").input(&query).input(&key).near::<T>(scores, SUM)),
        finish(name("av").input(&weights).input(&key).near::<T>(averages, SUM)),
    ]
}

/// Kernels of one size, with a bias for each relative position.
fn biased(dimensions: usize, kernel: usize) -> Vec<Case> {
    let dilation = 2;
    let lengths = [[17, 0], [15, 16]][dimensions - 1];
    let axis = |k: usize| Axis { length: lengths[k], kernel, dilation, causal: false, stride: 1 };
    let space = Space { axes: (0..dimensions).map(axis).collect(), dim: 5 };
    let (heads, positions, reach, dim) = (BATCH * HEADS, space.positions(), space.reach(), space.dim);
    let queries = space.queries();
    let span = (2 * kernel - 1).pow(dimensions as u32);
    let [query, key, slopes] = [53, 59, 61].map(|seed| numbers::<f32>(heads * positions * dim, seed));
    let weights: Vec<f32> = numbers(heads * positions * reach, 67);
    let bias: Vec<f32> = numbers(HEADS * span, 71);
    let (q, k, s, w) = (values(&query), values(&key), values(&slopes), values(&weights));
    let rows = |data| Rows::of(data, positions, dim);
    let (q, k, s, w) = (rows(&q), rows(&k), rows(&s), Rows::of(&w, positions, reach));
    // Number of the relative position of a neighbor.
    let relative = |from: usize, to: usize| {
        let (mut from, mut to, mut number, mut factor) = (from, to, 0, 1);
        for axis in space.axes.iter().rev() {
            let steps = (to % axis.length / dilation) + kernel - 1 - from % axis.length / dilation;
            number += steps * factor;
            factor *= 2 * kernel - 1;
            (from, to) = (from / axis.length, to / axis.length);
        }
        number
    };
    let near = |query: &Query| query.neighbors.iter().flatten().copied().collect::<Vec<_>>();
    let mut scores = Vec::new();
    let mut of_weights = Vec::new();
    let mut of_bias = vec![Vec::new(); HEADS * span];
    for head in 0..heads {
        for query in &queries {
            for (number, at) in near(query).into_iter().enumerate() {
                let place = head % HEADS * span + relative(query.at, at);
                let (value, error) = dot(q.row(head, query.at), k.row(head, at));
                let added = bias[place].value();
                scores.push((value + added, error + 2.0 * U * (value.abs() + added.abs())));
                of_weights.push(dot(s.row(head, query.at), k.row(head, at)));
                of_bias[place].push(w.row(head, query.at)[number]);
            }
        }
    }
    let of_bias: Vec<Near> = of_bias.into_iter().map(|terms| sum(terms.into_iter(), U)).collect();
    let averages = gathered(positions, dim, |head| {
        let of = |query: &Query| {
            let weights = w.row(head, query.at).iter().copied();
            weights.zip(near(query)).map(|(weight, at)| (weight, k.row(head, at).to_vec())).collect()
        };
        queries.iter().map(of).collect()
    });
    let scattered = |rows: &Rows| {
        gathered(positions, dim, |head| {
            let mut lists = vec![Vec::new(); positions];
            for query in &queries {
                for (number, at) in near(query).into_iter().enumerate() {
                    lists[at].push((w.row(head, query.at)[number], rows.row(head, query.at).to_vec()));
                }
            }
            lists
        })
    };
    let name = |what: &str| {
        let kernel = format!("natten{dimensions}d_{what}_k{kernel}");
        Case::new(CORPUS, "extras/allin1/_metal_shaders.0.metal", kernel)
    };
    let grid = |sizes: &[usize], z: usize| match *sizes {
        [x] => [x + 1, 1, z],
        [y, x] => [x + 1, y + 1, z],
        _ => [0; 3],
    };
    let finish = |case: Case| {
        let sizes = [vec![BATCH, HEADS], space.lengths(), vec![dim, dilation]].concat();
        ints(case, &sizes).threads(grid(&space.lengths(), heads), (4, 1))
    };
    let of_all = [vec![BATCH, HEADS], space.lengths(), vec![dilation]].concat();
    vec![
        finish(name("qkrpb").input(&query).input(&key).input(&bias).near::<f32>(scores, SUM)),
        finish(name("av").input(&weights).input(&key).near::<f32>(averages.clone(), SUM)),
        finish(name("dq").input(&query).input(&key).input(&weights).near::<f32>(averages, SUM)),
        finish(name("dk").input(&query).input(&key).input(&weights).near::<f32>(scattered(&q), SUM)),
        ints(name("drpb").input(&weights).near::<f32>(of_bias, SUM), &of_all)
            .threads(grid(&vec![2 * kernel - 1; dimensions], HEADS), (4, 1)),
        finish(name("dattn").input(&slopes).input(&key).near::<f32>(of_weights, SUM)),
        finish(name("dval").input(&slopes).input(&weights).near::<f32>(scattered(&s), SUM)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighborhoods() {
        let axis = Axis { length: 7, kernel: 3, dilation: 1, causal: false, stride: 1 };
        let known = |list: [usize; 3]| list.map(Some).to_vec();
        assert_eq!(
            (axis.window(0), axis.window(3), axis.window(6)),
            (known([0, 1, 2]), known([2, 3, 4]), known([4, 5, 6]))
        );
        let sparse = Axis { dilation: 2, ..axis };
        assert_eq!((sparse.window(5), sparse.window(6)), (known([1, 3, 5]), known([2, 4, 6])));
        let causal = Axis { causal: true, ..sparse };
        assert_eq!(causal.window(3), [None, Some(1), Some(3)]);
        assert_eq!(Axis { stride: 3, ..axis }.outputs(), 3);
        let plane = Space { axes: vec![axis, axis], dim: 1 };
        let query = &plane.queries()[7 * 3 + 6];
        assert_eq!((query.at, query.neighbors[0], query.neighbors[8]), (27, Some(18), Some(34)));
    }

    #[test]
    fn every_kernel_has_a_case() {
        assert_eq!(cases().len(), 72 + 12 + 12 + 42);
    }
}
