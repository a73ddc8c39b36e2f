//! The evaluation of a graph: each node in double precision, rounded once to its type.

use std::collections::HashMap;
use std::sync::Arc;

use super::operations::{Operation, Reduction};
use super::tensor::{Node, rounded};

type Values = Arc<Vec<f64>>;

/// Values of nodes, by their addresses.
pub struct Evaluation(HashMap<usize, Values>);

impl Evaluation {
    /// With the values of placeholders.
    pub fn new(feeds: impl IntoIterator<Item = (Arc<Node>, Vec<f64>)>) -> Self {
        Self(feeds.into_iter().map(|(node, values)| (Arc::as_ptr(&node).addr(), Arc::new(values))).collect())
    }

    /// The elements of a node, in row-major order.
    pub fn of(&mut self, node: &Arc<Node>) -> Values {
        let address = Arc::as_ptr(node).addr();
        if let Some(known) = self.0.get(&address) {
            return known.clone();
        }
        let inputs: Vec<Values> = node.inputs.iter().map(|input| self.of(input)).collect();
        let values: Vec<f64> =
            compute(node, &inputs).into_iter().map(|value| rounded(value, node.kind)).collect();
        let values = Arc::new(values);
        self.0.insert(address, values.clone());
        values
    }
}

/// Index in an operand that is broadcast to `to`, for each element of it.
fn places(from: &[usize], to: &[usize]) -> Vec<usize> {
    let mut strides = vec![0; to.len()];
    let mut stride = 1;
    for (axis, size) in from.iter().enumerate().rev() {
        strides[to.len() - from.len() + axis] = if *size == 1 { 0 } else { stride };
        stride *= size;
    }
    indices(to, &strides)
}

/// Sums of index times stride, for all indices of a shape in row-major order.
fn indices(shape: &[usize], strides: &[usize]) -> Vec<usize> {
    shape.iter().zip(strides).fold(vec![0], |places, (size, stride)| {
        places.iter().flat_map(|place| (0..*size).map(move |at| place + at * stride)).collect()
    })
}

fn strides(shape: &[usize]) -> Vec<usize> {
    (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect()
}

/// The row to which each element of a shape belongs along the axes, and the number of rows.
fn rows(shape: &[usize], axes: &[usize]) -> (Vec<usize>, usize) {
    let kept: Vec<usize> =
        shape.iter().enumerate().map(|(axis, size)| if axes.contains(&axis) { 1 } else { *size }).collect();
    (places(&kept, shape), kept.iter().product())
}

fn compute(node: &Node, inputs: &[Values]) -> Vec<f64> {
    let shape = &node.shape;
    let broadcast = |index: usize| -> Vec<f64> {
        let places = places(&node.inputs[index].shape, shape);
        places.into_iter().map(|at| inputs[index][at]).collect()
    };
    match &node.operation {
        // A placeholder that is not fed has been refused.
        Operation::Placeholder => vec![f64::NAN; node.len()],
        Operation::Constant(value) => vec![*value; node.len()],
        Operation::Cast | Operation::Reshape => inputs[0].to_vec(),
        Operation::Exchange(one, other) => {
            let mut steps = strides(&node.inputs[0].shape);
            steps.swap(*one, *other);
            indices(shape, &steps).into_iter().map(|at| inputs[0][at]).collect()
        }
        Operation::Broadcast => broadcast(0),
        Operation::Unary(of) => inputs[0].iter().map(|x| of(*x)).collect(),
        Operation::Binary(of) => {
            broadcast(0).into_iter().zip(broadcast(1)).map(|(left, right)| of(left, right)).collect()
        }
        Operation::Select => {
            let both = broadcast(1).into_iter().zip(broadcast(2));
            broadcast(0)
                .into_iter()
                .zip(both)
                .map(|(is, (yes, no))| if is != 0.0 { yes } else { no })
                .collect()
        }
        Operation::Product => product([&node.inputs[0].shape, &node.inputs[1].shape], shape, inputs),
        Operation::Reduce(reduction, axes) => reduce(*reduction, &node.inputs[0].shape, axes, &inputs[0]),
        Operation::Variance(axes) => {
            let (row, count) = rows(&node.inputs[0].shape, axes);
            let mut sums = vec![0.0; count];
            for (x, row) in inputs[0].iter().zip(&row) {
                sums[*row] += (x - inputs[1][*row]).powi(2);
            }
            sums.iter().map(|sum| sum / (row.len() / count) as f64).collect()
        }
        Operation::Normalize { epsilon, gamma, beta } => {
            let (mean, variance) = (broadcast(1), broadcast(2));
            let scale = if *gamma { broadcast(3) } else { vec![1.0; node.len()] };
            let bias = if *beta { broadcast(3 + usize::from(*gamma)) } else { vec![0.0; node.len()] };
            let one = |at: usize| {
                (inputs[0][at] - mean[at]) / (variance[at] + epsilon).sqrt() * scale[at] + bias[at]
            };
            (0..node.len()).map(one).collect()
        }
        Operation::Softmax(axis) => softmax(shape, *axis, &inputs[0]),
        Operation::Band(lower, upper) => {
            let (rows, columns) = (shape[shape.len() - 2], shape[shape.len() - 1]);
            let is_within = |at: usize| {
                let (row, column) = ((at / columns % rows) as i64, (at % columns) as i64);
                (*lower < 0 || row - column <= *lower) && (*upper < 0 || column - row <= *upper)
            };
            let one = |(at, x): (usize, &f64)| if is_within(at) { *x } else { 0.0 };
            inputs[0].iter().enumerate().map(one).collect()
        }
        Operation::Convolve(of) => of.convolve(&node.inputs[0].shape, &node.inputs[1].shape, shape, inputs),
        Operation::Transpose(of) => of.transpose(&node.inputs[0].shape, &node.inputs[1].shape, shape, inputs),
        Operation::Attend { scale } => attend(node, *scale, inputs),
    }
}

/// Products of matrices; `to` is the shape of the result.
fn product([left, right]: [&[usize]; 2], to: &[usize], inputs: &[Values]) -> Vec<f64> {
    let ([rows, columns], terms) =
        (to.split_last_chunk::<2>().map_or([1, 1], |(_, last)| *last), left[left.len() - 1]);
    let batch = &to[..to.len() - 2];
    let first = |of: &[usize], size: usize| -> Vec<usize> {
        places(&of[..of.len() - 2], batch).into_iter().map(|at| at * size).collect()
    };
    let (from_left, from_right) = (first(left, rows * terms), first(right, terms * columns));
    let mut result = vec![0.0; to.iter().product()];
    for (matrix, result) in result.chunks_exact_mut(rows * columns).enumerate() {
        let (x, y) = (&inputs[0][from_left[matrix]..], &inputs[1][from_right[matrix]..]);
        for (row, result) in result.chunks_exact_mut(columns).enumerate() {
            for term in 0..terms {
                let (x, y) = (x[row * terms + term], &y[term * columns..][..columns]);
                result.iter_mut().zip(y).for_each(|(sum, y)| *sum += x * y);
            }
        }
    }
    result
}

fn reduce(reduction: Reduction, shape: &[usize], axes: &[usize], x: &[f64]) -> Vec<f64> {
    let (row, count) = rows(shape, axes);
    let none = if matches!(reduction, Reduction::Maximum) { f64::NEG_INFINITY } else { 0.0 };
    let mut results = vec![none; count];
    for (x, row) in x.iter().zip(&row) {
        let result = &mut results[*row];
        *result = if matches!(reduction, Reduction::Maximum) { result.max(*x) } else { *result + x };
    }
    if matches!(reduction, Reduction::Mean) {
        results.iter_mut().for_each(|sum| *sum /= (row.len() / count) as f64);
    }
    results
}

fn softmax(shape: &[usize], axis: usize, x: &[f64]) -> Vec<f64> {
    let (row, count) = rows(shape, &[axis]);
    let mut most = vec![f64::NEG_INFINITY; count];
    x.iter().zip(&row).for_each(|(x, row)| most[*row] = most[*row].max(*x));
    let powers: Vec<f64> = x.iter().zip(&row).map(|(x, row)| (x - most[*row]).exp()).collect();
    let mut sums = vec![0.0; count];
    powers.iter().zip(&row).for_each(|(x, row)| sums[*row] += x);
    powers.iter().zip(&row).map(|(x, row)| x / sums[*row]).collect()
}

fn attend(node: &Node, scale: f64, inputs: &[Values]) -> Vec<f64> {
    let [q, k, v] = [0, 1, 2].map(|index| &node.inputs[index].shape);
    let (queries, keys, width, value_width) = (q[2], k[2], q[3], v[3]);
    let scores_shape = [q[0], q[1], queries, keys];
    let first = |of: &[usize]| places(&of[..2], &q[..2]);
    let (of_keys, of_values) = (first(k), first(v));
    let mask = node.inputs.get(3).map(|mask| places(&mask.shape, &scores_shape));
    let mut scores = vec![0.0; scores_shape.iter().product()];
    for (at, score) in scores.iter_mut().enumerate() {
        let (head, query, key) = (at / keys / queries, at / keys, at % keys);
        let x = &inputs[0][query * width..][..width];
        let y = &inputs[1][(of_keys[head] * keys + key) * width..][..width];
        let sum: f64 = x.iter().zip(y).map(|(x, y)| x * y).sum();
        *score = scale * sum + mask.as_ref().map_or(0.0, |places| inputs[3][places[at]]);
    }
    let weights = softmax(&scores_shape, 3, &scores);
    let mut result = vec![0.0; node.len()];
    for (query, result) in result.chunks_exact_mut(value_width).enumerate() {
        let head = query / queries;
        for key in 0..keys {
            let y = &inputs[2][(of_values[head] * keys + key) * value_width..][..value_width];
            let weight = weights[query * keys + key];
            result.iter_mut().zip(y).for_each(|(sum, y)| *sum += weight * y);
        }
    }
    result
}
