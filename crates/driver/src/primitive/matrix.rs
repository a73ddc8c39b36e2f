//! Primitives over matrices: products, softmax, reductions.

use super::{Checked, Float, Operand, OperandUse, bytes, expect};

/// How a matrix lies in memory, from the first byte of its operand on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// Rows.
    pub rows: u32,
    /// Elements of a row.
    pub columns: u32,
    /// Bytes from one row to the next.
    pub row_bytes: u64,
    /// Bytes from one matrix to the next where there are several; a multiple of `row_bytes`.
    pub matrix_bytes: u64,
}

impl Matrix {
    /// Rows without gaps.
    pub const fn packed(float: Float, rows: u32, columns: u32) -> Self {
        Self::strided(rows, columns, columns as u64 * float.size())
    }

    /// Rows `row_bytes` apart.
    pub const fn strided(rows: u32, columns: u32, row_bytes: u64) -> Self {
        Self { rows, columns, row_bytes, matrix_bytes: row_bytes.saturating_mul(rows as u64) }
    }

    const fn turned(self, transpose: bool) -> (u32, u32) {
        if transpose { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }

    fn operand(self, name: &'static str, float: Float, matrices: u32, written: Written) -> Checked<Operand> {
        let Self { rows, columns, row_bytes, matrix_bytes } = self;
        let (size, row) = (float.size(), u64::from(columns) * float.size());
        expect(rows > 0 && columns > 0, || {
            format!("`{name}` has {rows} rows and {columns} columns, and none of the two may be 0")
        })?;
        expect(row_bytes >= row && row_bytes.is_multiple_of(size), || {
            format!("`{name}` has rows {row_bytes} bytes apart, which is no multiple of {size} from {row} on")
        })?;
        let all = u128::from(row_bytes) * u128::from(rows);
        expect(
            matrices == 1 || u128::from(matrix_bytes) >= all && matrix_bytes.is_multiple_of(row_bytes),
            || {
                format!(
                    "`{name}` has matrices {matrix_bytes} bytes apart, which is no multiple of {row_bytes} from {all} on"
                )
            },
        )?;
        let last = u128::from(matrices - 1) * u128::from(matrix_bytes);
        let total = last + u128::from(rows - 1) * u128::from(row_bytes) + u128::from(row);
        let bytes = bytes(name, total)?;
        let gapless = total == u128::from(matrices) * u128::from(rows) * u128::from(row);
        let used = match written {
            Written::No => OperandUse::Read,
            Written::Added => OperandUse::Updated,
            Written::Set if gapless => OperandUse::Replaced,
            Written::Set => OperandUse::Written,
        };
        Ok(Operand { name, float, bytes, used })
    }
}

/// What is done to an operand's elements.
#[derive(Clone, Copy)]
enum Written {
    No,
    Set,
    Added,
}

impl Written {
    fn with(beta: f32) -> Self {
        if beta == 0.0 { Self::Set } else { Self::Added }
    }
}

fn expect_finite(alpha: f32, beta: f32) -> Checked<()> {
    expect(alpha.is_finite() && beta.is_finite(), || format!("alpha {alpha} and beta {beta} must be finite"))
}

/// A vector: elements that follow one another.
fn vector(name: &'static str, float: Float, length: u32, written: Written) -> Checked<Operand> {
    Matrix::packed(float, 1, length).operand(name, float, 1, written)
}

/// `result = alpha · left · right + beta · result`, for each of some matrices. With a beta of 0 it does not count what the
/// result held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatMul {
    /// The type of all elements.
    pub float: Float,
    /// How many products, each of matrices of its own.
    pub matrices: u32,
    /// The left factor as it lies in memory.
    pub left: Matrix,
    /// Whether it is transposed first.
    pub transpose_left: bool,
    /// The right factor as it lies in memory.
    pub right: Matrix,
    /// Whether it is transposed first.
    pub transpose_right: bool,
    /// The result.
    pub result: Matrix,
    /// The product's factor.
    pub alpha: f32,
    /// The factor of what the result held.
    pub beta: f32,
}

impl MatMul {
    /// The product of two matrices of packed rows: `left` is `rows` × `interior`, `right` is `interior` × `columns`.
    pub const fn packed(float: Float, rows: u32, interior: u32, columns: u32) -> Self {
        Self {
            float,
            matrices: 1,
            left: Matrix::packed(float, rows, interior),
            transpose_left: false,
            right: Matrix::packed(float, interior, columns),
            transpose_right: false,
            result: Matrix::packed(float, rows, columns),
            alpha: 1.0,
            beta: 0.0,
        }
    }

    /// How many terms an element of the product has.
    pub const fn interior(&self) -> u32 {
        self.left.turned(self.transpose_left).1
    }

    pub(super) fn operands(&self) -> Checked<Vec<Operand>> {
        let (float, matrices) = (self.float, self.matrices);
        expect(matrices > 0, || "there are 0 matrices".into())?;
        expect_finite(self.alpha, self.beta)?;
        let operands = vec![
            self.left.operand("left", float, matrices, Written::No)?,
            self.right.operand("right", float, matrices, Written::No)?,
            self.result.operand("result", float, matrices, Written::with(self.beta))?,
        ];
        let (rows, interior) = self.left.turned(self.transpose_left);
        let (terms, columns) = self.right.turned(self.transpose_right);
        expect(terms == interior, || {
            format!(
                "`left` is {rows} × {interior}, `right` is {terms} × {columns} where {interior} rows are needed"
            )
        })?;
        let result = (self.result.rows, self.result.columns);
        expect(result == (rows, columns), || {
            format!("`result` is {} × {}, the product is {rows} × {columns}", result.0, result.1)
        })?;
        Ok(operands)
    }
}

/// `result = alpha · matrix · vector + beta · result`. With a beta of 0 it does not count what the result held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatVec {
    /// The type of all elements.
    pub float: Float,
    /// The matrix as it lies in memory. The vector has as many elements as it has columns, the result as many as it has
    /// rows.
    pub matrix: Matrix,
    /// Whether the matrix is transposed first.
    pub transpose: bool,
    /// The product's factor.
    pub alpha: f32,
    /// The factor of what the result held.
    pub beta: f32,
}

impl MatVec {
    /// Rows and columns of the matrix that the vector is multiplied with.
    pub const fn size(&self) -> (u32, u32) {
        self.matrix.turned(self.transpose)
    }

    pub(super) fn operands(&self) -> Checked<Vec<Operand>> {
        expect_finite(self.alpha, self.beta)?;
        let (rows, columns) = self.size();
        Ok(vec![
            self.matrix.operand("matrix", self.float, 1, Written::No)?,
            vector("vector", self.float, columns, Written::No)?,
            vector("result", self.float, rows, Written::with(self.beta))?,
        ])
    }
}

/// `result[i][j] = exp(source[i][j]) / Σₖ exp(source[i][k])`, or its logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax {
    /// The type of all elements.
    pub float: Float,
    /// The source.
    pub source: Matrix,
    /// The result, of as many rows and columns.
    pub result: Matrix,
    /// Whether the result is the logarithm.
    pub logarithm: bool,
}

impl Softmax {
    pub(super) fn operands(&self) -> Checked<Vec<Operand>> {
        let (source, result) = (self.source, self.result);
        expect((source.rows, source.columns) == (result.rows, result.columns), || {
            let Matrix { rows, columns, .. } = source;
            format!("`source` is {rows} × {columns}, `result` {} × {}", result.rows, result.columns)
        })?;
        Ok(vec![
            source.operand("source", self.float, 1, Written::No)?,
            result.operand("result", self.float, 1, Written::Set)?,
        ])
    }
}

/// What is made of several numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReductionKind {
    /// Their sum.
    Sum,
    /// Their sum divided by their number.
    Mean,
    /// The least.
    Min,
    /// The greatest.
    Max,
}

/// Which numbers of a matrix make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// Those of a row.
    Row,
    /// Those of a column.
    Column,
}

/// One number of each row or each column, as a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// The type of all elements.
    pub float: Float,
    /// What is made of the numbers.
    pub kind: ReductionKind,
    /// Which numbers make one.
    pub each: Extent,
    /// The source.
    pub source: Matrix,
}

impl Reduction {
    /// How many numbers come out.
    pub const fn length(&self) -> u32 {
        match self.each {
            Extent::Row => self.source.rows,
            Extent::Column => self.source.columns,
        }
    }

    pub(super) fn operands(&self) -> Checked<Vec<Operand>> {
        Ok(vec![
            self.source.operand("source", self.float, 1, Written::No)?,
            vector("result", self.float, self.length(), Written::Set)?,
        ])
    }
}
