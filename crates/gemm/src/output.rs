//! [`Output`]: where and how a finished tile is written.

use crate::element::{Element, narrow, widen};
use crate::simd::Simd;

/// Columns of the widest tile.
const MOST_COLUMNS: usize = 32;

/// Function of each element, after the bias has been added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// The identity.
    None,
    /// `max(x, 0)`; NaN stays NaN.
    Relu,
    /// `x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))` ([Hendrycks and Gimpel](https://arxiv.org/abs/1606.08415)).
    Gelu,
}

impl Activation {
    /// The function's value.
    pub fn of(self, x: f32) -> f32 {
        match self {
            Self::Relu if x < 0.0 => 0.0,
            Self::Gelu => {
                let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
                0.5 * x * (1.0 + inner.tanh())
            }
            _ => x,
        }
    }
}

/// What is added to each element.
#[derive(Clone, Copy, Debug)]
pub enum Bias {
    /// Nothing.
    None,
    /// An element for each row.
    Rows(*const f32),
    /// An element for each column.
    Columns(*const f32),
}

/// A result in memory: `f(alpha · product + beta · result + bias)`. If beta is 0, the result is not read.
///
/// Columns are lines of `pitch`, of which the first `width` are elements of the result; what is computed for the others is dropped.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// The first element.
    pub first: *mut u8,
    /// Element type.
    pub element: Element,
    /// Distance between rows, in elements.
    pub row: isize,
    /// Distance between lines of columns, in elements.
    pub line: isize,
    /// Distance between the columns of a line, in elements.
    pub column: isize,
    /// Columns of a line, at least 1.
    pub pitch: usize,
    /// Columns of a line that exist.
    pub width: usize,
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of the result's previous elements.
    pub beta: f32,
    /// What is added.
    pub bias: Bias,
    /// Function of the sum.
    pub activation: Activation,
}

/// A tile of the result whose columns are contiguous floats: `alpha · product + beta · result + bias`.
#[derive(Clone, Copy)]
pub(crate) struct Contiguous {
    /// The first element, and the distance of rows.
    pub(crate) first: *mut f32,
    pub(crate) row: isize,
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
    /// At the tile's first row or column.
    pub(crate) bias: Bias,
}

impl Contiguous {
    /// Writes a tile. Each step is a loop of its own, which is unrolled, so that the sums stay in registers.
    ///
    /// # Safety
    /// The processor must have the vectors, the result the tile's elements, and the bias an element for each row or column.
    #[inline(always)]
    pub(crate) unsafe fn write<S: Simd, const R: usize, const V: usize>(
        &self,
        mut sums: [[S::Vector; V]; R],
    ) {
        let first = |r: usize| self.first.wrapping_offset(r.cast_signed() * self.row);
        // SAFETY: the caller's promise.
        unsafe {
            if self.alpha != 1.0 {
                let alpha = S::splat(&raw const self.alpha);
                sums = sums.map(|row| row.map(|sum| S::multiply(alpha, sum)));
            }
            if self.beta != 0.0 {
                let beta = S::splat(&raw const self.beta);
                for (r, row) in sums.iter_mut().enumerate() {
                    for (v, sum) in row.iter_mut().enumerate() {
                        *sum = S::add(*sum, S::multiply(beta, S::load(first(r).add(v * S::LANES))));
                    }
                }
            }
            match self.bias {
                Bias::None => {}
                Bias::Rows(bias) => {
                    for (r, row) in sums.iter_mut().enumerate() {
                        *row = row.map(|sum| S::add(sum, S::splat(bias.add(r))));
                    }
                }
                Bias::Columns(bias) => {
                    for row in &mut sums {
                        for (v, sum) in row.iter_mut().enumerate() {
                            *sum = S::add(*sum, S::load(bias.add(v * S::LANES)));
                        }
                    }
                }
            }
            for (r, row) in sums.iter().enumerate() {
                for (v, sum) in row.iter().enumerate() {
                    S::store(first(r).add(v * S::LANES), *sum);
                }
            }
        }
    }
}

impl Output {
    /// The tile at a row and column, if its columns are contiguous floats and nothing but a bias is added.
    #[inline(always)]
    pub(crate) fn contiguous(&self, [row, column]: [usize; 2], columns: usize) -> Option<Contiguous> {
        let is_contiguous = self.element == Element::F32
            && self.column == 1
            && self.activation == Activation::None
            && column + columns <= self.width;
        is_contiguous.then(|| Contiguous {
            first: self
                .first
                .cast::<f32>()
                .wrapping_offset(row.cast_signed() * self.row)
                .wrapping_add(column),
            row: self.row,
            alpha: self.alpha,
            beta: self.beta,
            bias: match self.bias {
                Bias::None => Bias::None,
                Bias::Rows(bias) => Bias::Rows(bias.wrapping_add(row)),
                Bias::Columns(bias) => Bias::Columns(bias.wrapping_add(column)),
            },
        })
    }

    /// Writes a tile whose rows are `stride` apart, at a row and column of the result.
    ///
    /// # Safety
    /// Elements of the result must be valid, and so must those of the bias. `tile` has `rows` rows of `stride` elements.
    #[inline(always)]
    pub(crate) unsafe fn write(
        &self,
        tile: *const f32,
        stride: usize,
        [row, column]: [usize; 2],
        [rows, columns]: [usize; 2],
    ) {
        let mut done = 0;
        while done < columns {
            let (line, at) = ((column + done) / self.pitch, (column + done) % self.pitch);
            let count = (self.pitch - at).min(columns - done);
            let kept = self.width.saturating_sub(at).min(count);
            for r in 0..rows {
                let index = (row + r).cast_signed() * self.row
                    + line.cast_signed() * self.line
                    + at.cast_signed() * self.column;
                // SAFETY: the caller's promise.
                unsafe {
                    let sums = std::slice::from_raw_parts(tile.add(r * stride + done), kept);
                    self.write_row(sums, index, row + r, column + done);
                }
            }
            done += count;
        }
    }

    /// Writes at most as many elements as a tile has columns, from an index on.
    ///
    /// # Safety
    /// As for [`Output::write`].
    #[inline(always)]
    unsafe fn write_row(&self, sums: &[f32], index: isize, row: usize, column: usize) {
        let mut values = [0.0; MOST_COLUMNS];
        let values = &mut values[..sums.len()];
        for (value, sum) in values.iter_mut().zip(sums) {
            *value = self.alpha * sum;
        }
        let first = self.element.at(self.first, index).cast_mut();
        // SAFETY: the caller's promise.
        unsafe {
            if self.beta != 0.0 {
                let mut held = [0.0; MOST_COLUMNS];
                let held = &mut held[..sums.len()];
                widen(self.element, first, self.column, held);
                for (value, held) in values.iter_mut().zip(held) {
                    *value += self.beta * *held;
                }
            }
            match self.bias {
                Bias::None => {}
                Bias::Rows(bias) => {
                    let added = bias.add(row).read();
                    values.iter_mut().for_each(|value| *value += added);
                }
                Bias::Columns(bias) => {
                    let bias = std::slice::from_raw_parts(bias.add(column), sums.len());
                    for (value, added) in values.iter_mut().zip(bias) {
                        *value += added;
                    }
                }
            }
            if self.activation != Activation::None {
                values.iter_mut().for_each(|value| *value = self.activation.of(*value));
            }
            narrow(self.element, values, first, self.column);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_keep_nan() {
        for activation in [Activation::None, Activation::Relu, Activation::Gelu] {
            assert!(activation.of(f32::NAN).is_nan());
        }
        assert_eq!(Activation::Relu.of(-3.0), 0.0);
    }
}
