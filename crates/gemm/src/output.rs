//! [`Output`]: where and how a finished tile is written.

use crate::element::{Element, narrow, widen};

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

impl Output {
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
