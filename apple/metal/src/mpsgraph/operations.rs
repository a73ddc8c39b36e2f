//! [`Operation`]: what the nodes of a graph compute.

use super::convolution::Convolution;

/// An operation of a graph. Axes are those of the operands.
pub enum Operation {
    /// Data that is fed.
    Placeholder,
    /// The same number everywhere.
    Constant(f64),
    Cast,
    Reshape,
    /// Two axes exchanged.
    Exchange(usize, usize),
    /// The operand, repeated along axes of size 1 and before its axes.
    Broadcast,
    Unary(fn(f64) -> f64),
    /// Of two operands, which are broadcast.
    Binary(fn(f64, f64) -> f64),
    /// Of a condition and two operands, which are broadcast.
    Select,
    /// Product of the last two axes; the others are broadcast.
    Product,
    /// Of each row along the axes: sum, maximum or mean.
    Reduce(Reduction, Vec<usize>),
    /// Mean of squares of the differences to the second operand.
    Variance(Vec<usize>),
    /// `(x - mean) / √(variance + ε) · γ + β`; γ and β, if any, are the operands behind the third.
    Normalize {
        epsilon: f64,
        gamma: bool,
        beta: bool,
    },
    Softmax(usize),
    /// The elements from this many diagonals below the main one to so many above it, negative for all; zeros elsewhere.
    Band(i64, i64),
    Convolve(Convolution),
    /// The gradient of a convolution with respect to its source.
    Transpose(Convolution),
    /// `softmax(scale · q · kᵀ + mask) · v`; the mask, if any, is the fourth operand.
    Attend {
        scale: f64,
    },
}

/// A reduction.
#[derive(Clone, Copy)]
pub enum Reduction {
    Sum,
    Maximum,
    Mean,
}
