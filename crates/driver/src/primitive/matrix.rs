//! Matrix primitives: products, softmax, reductions.

use super::{Checked, DataType, Operand, OperandUse, bytes, expect};

/// Shape and memory layout of a row-major matrix, or of a batch of them. It begins at the first byte of its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// Number of rows, at least 1.
    pub rows: u32,
    /// Number of columns (elements of a row), at least 1.
    pub columns: u32,
    /// Row stride in bytes: a multiple of the element size, at least the size of a row.
    pub row_bytes: u64,
    /// Matrix stride in bytes, in a batch: a multiple of `row_bytes`, at least `rows · row_bytes`, or 0 for a factor that all
    /// products of the batch have in common. Ignored for a single matrix.
    pub matrix_bytes: u64,
}

impl Matrix {
    /// A matrix without padding between rows.
    pub const fn packed(data_type: DataType, rows: u32, columns: u32) -> Self {
        Self::strided(rows, columns, columns as u64 * data_type.size())
    }

    /// A matrix with a row stride of `row_bytes` bytes.
    pub const fn strided(rows: u32, columns: u32, row_bytes: u64) -> Self {
        Self { rows, columns, row_bytes, matrix_bytes: row_bytes.saturating_mul(rows as u64) }
    }

    const fn turned(self, transpose: bool) -> (u32, u32) {
        if transpose { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }

    fn operand(
        self,
        name: &'static str,
        data_type: DataType,
        matrices: u32,
        written: Written,
    ) -> Checked<Operand> {
        let Self { rows, columns, row_bytes, matrix_bytes } = self;
        let (size, row) = (data_type.size(), u64::from(columns) * data_type.size());
        expect(rows > 0 && columns > 0, || {
            format!("`{name}` is {rows} × {columns}; both must be at least 1")
        })?;
        expect(row_bytes >= row && row_bytes.is_multiple_of(size), || {
            format!(
                "`{name}` has a row stride of {row_bytes} bytes; it must be a multiple of {size} and at least {row}"
            )
        })?;
        let all = u128::from(row_bytes) * u128::from(rows);
        let shared = matrix_bytes == 0 && matches!(written, Written::No);
        expect(
            matrices == 1
                || shared
                || u128::from(matrix_bytes) >= all && matrix_bytes.is_multiple_of(row_bytes),
            || {
                format!(
                    "`{name}` has a matrix stride of {matrix_bytes} bytes; it must be a multiple of {row_bytes} and at least {all}"
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
        Ok(Operand { name, data_type, bytes, used })
    }
}

/// How an operand's elements are written.
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

pub(super) fn expect_float(data_type: DataType) -> Checked<()> {
    expect(data_type.is_float(), || {
        format!("the element type is {data_type}; it must be a floating-point type")
    })
}

/// The type of a product's result.
const fn result_type(data_type: DataType) -> DataType {
    match data_type {
        DataType::I8 => DataType::I32,
        other => other,
    }
}

/// A vector of contiguous elements.
fn vector(name: &'static str, data_type: DataType, length: u32, written: Written) -> Checked<Operand> {
    Matrix::packed(data_type, 1, length).operand(name, data_type, 1, written)
}

/// Function of each element of a product, after the bias has been added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// The identity.
    #[default]
    None,
    /// `max(x, 0)`.
    Relu,
    /// `x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))` ([Hendrycks and Gimpel](https://arxiv.org/abs/1606.08415)).
    Gelu,
}

/// Matrix-matrix product (GEMM), batched: `result = f(alpha · op(left) · op(right) + beta · result + bias)`, where `op` is the identity
/// or the transpose, and `f` the activation. If beta is 0, the result is not read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatMul {
    /// Element type of all operands; the result of factors of [`DataType::I8`] is [`DataType::I32`], which wraps around.
    pub data_type: DataType,
    /// Batch size, at least 1.
    pub matrices: u32,
    /// Layout of the left operand, before transposition.
    pub left: Matrix,
    /// Whether the left operand is transposed.
    pub transpose_left: bool,
    /// Layout of the right operand, before transposition.
    pub right: Matrix,
    /// Whether the right operand is transposed.
    pub transpose_right: bool,
    /// Layout of the result.
    pub result: Matrix,
    /// Factor of the product; must be finite, and 1 for integers.
    pub alpha: f32,
    /// Factor of the result's previous content; must be finite, and 0 or 1 for integers.
    pub beta: f32,
    /// Whether there is a bias operand: one element for each column of the result. Not for integers.
    pub bias: bool,
    /// Function of each element. The identity for integers.
    pub activation: Activation,
}

impl MatMul {
    /// A single product without transposition or padding, with alpha 1 and beta 0: `left` is `rows` × `interior`, `right` is
    /// `interior` × `columns`.
    pub const fn packed(data_type: DataType, rows: u32, interior: u32, columns: u32) -> Self {
        Self {
            data_type,
            matrices: 1,
            left: Matrix::packed(data_type, rows, interior),
            transpose_left: false,
            right: Matrix::packed(data_type, interior, columns),
            transpose_right: false,
            result: Matrix::packed(result_type(data_type), rows, columns),
            alpha: 1.0,
            beta: 0.0,
            bias: false,
            activation: Activation::None,
        }
    }

    /// The inner dimension: columns of `op(left)`.
    pub const fn interior(&self) -> u32 {
        self.left.turned(self.transpose_left).1
    }

    /// Element type of the result.
    pub const fn result_type(&self) -> DataType {
        result_type(self.data_type)
    }

    fn expect_integer_product(&self) -> Checked<()> {
        let Self { alpha, beta, bias, activation, .. } = *self;
        expect(alpha == 1.0 && (beta == 0.0 || beta == 1.0), || {
            format!("alpha {alpha} and beta {beta}: a product of integers needs alpha 1 and beta 0 or 1")
        })?;
        expect(!bias && activation == Activation::None, || {
            "a product of integers has neither bias nor activation".into()
        })
    }

    pub(super) fn operands(&self) -> Checked<Vec<Operand>> {
        let (data_type, matrices) = (self.data_type, self.matrices);
        expect(matrices > 0, || "the batch size is 0".into())?;
        expect_finite(self.alpha, self.beta)?;
        match data_type {
            DataType::I8 => self.expect_integer_product()?,
            other => expect_float(other)?,
        }
        let result = self.result.operand("result", self.result_type(), matrices, Written::with(self.beta))?;
        let mut operands = vec![
            self.left.operand("left", data_type, matrices, Written::No)?,
            self.right.operand("right", data_type, matrices, Written::No)?,
        ];
        if self.bias {
            operands.push(vector("bias", data_type, self.result.columns, Written::No)?);
        }
        operands.push(result);
        let (rows, interior) = self.left.turned(self.transpose_left);
        let (terms, columns) = self.right.turned(self.transpose_right);
        expect(terms == interior, || {
            format!(
                "the inner dimensions differ: `left` is {rows} × {interior}, `right` is {terms} × {columns}"
            )
        })?;
        let result = (self.result.rows, self.result.columns);
        expect(result == (rows, columns), || {
            format!("`result` is {} × {}, the product is {rows} × {columns}", result.0, result.1)
        })?;
        Ok(operands)
    }
}

/// Matrix-vector product (GEMV): `result = alpha · op(matrix) · vector + beta · result`, where `op` is the identity or the transpose.
/// If beta is 0, the result is not read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatVec {
    /// Element type of all operands.
    pub data_type: DataType,
    /// Layout of the matrix, before transposition. The vector has as many elements as `op(matrix)` has columns, the result as many
    /// as it has rows; both are contiguous.
    pub matrix: Matrix,
    /// Whether the matrix is transposed.
    pub transpose: bool,
    /// Factor of the product; must be finite.
    pub alpha: f32,
    /// Factor of the result's previous content; must be finite.
    pub beta: f32,
}

impl MatVec {
    /// Rows and columns of `op(matrix)`.
    pub const fn size(&self) -> (u32, u32) {
        self.matrix.turned(self.transpose)
    }

    /// The same product with the vectors as matrices of one column.
    pub const fn as_mat_mul(&self) -> MatMul {
        let (rows, columns) = self.size();
        MatMul {
            left: self.matrix,
            transpose_left: self.transpose,
            alpha: self.alpha,
            beta: self.beta,
            ..MatMul::packed(self.data_type, rows, columns, 1)
        }
    }

    pub(super) fn operands(&self) -> Checked<Vec<Operand>> {
        expect_finite(self.alpha, self.beta)?;
        expect_float(self.data_type)?;
        let (rows, columns) = self.size();
        Ok(vec![
            self.matrix.operand("matrix", self.data_type, 1, Written::No)?,
            vector("vector", self.data_type, columns, Written::No)?,
            vector("result", self.data_type, rows, Written::with(self.beta))?,
        ])
    }
}

/// Softmax of each row: `result[i][j] = exp(source[i][j]) / Σₖ exp(source[i][k])`, or its logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax {
    /// Element type of all operands.
    pub data_type: DataType,
    /// Layout of the source.
    pub source: Matrix,
    /// Layout of the result, of the same rows and columns.
    pub result: Matrix,
    /// Whether the result is the natural logarithm (log-softmax).
    pub logarithm: bool,
}

impl Softmax {
    pub(super) fn operands(&self) -> Checked<Vec<Operand>> {
        let (source, result) = (self.source, self.result);
        expect_float(self.data_type)?;
        expect((source.rows, source.columns) == (result.rows, result.columns), || {
            let Matrix { rows, columns, .. } = source;
            format!(
                "the shapes differ: `source` is {rows} × {columns}, `result` is {} × {}",
                result.rows, result.columns
            )
        })?;
        Ok(vec![
            source.operand("source", self.data_type, 1, Written::No)?,
            result.operand("result", self.data_type, 1, Written::Set)?,
        ])
    }
}

/// Reduction function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReductionKind {
    /// Sum.
    Sum,
    /// Arithmetic mean.
    Mean,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
}

/// Axis of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// One result for each row.
    Row,
    /// One result for each column.
    Column,
}

/// Reduction of each row or column of a matrix to a scalar. The result is a contiguous vector of [`Reduction::length`] elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// Element type of all operands.
    pub data_type: DataType,
    /// The reduction function.
    pub kind: ReductionKind,
    /// The axis.
    pub each: Extent,
    /// Layout of the source.
    pub source: Matrix,
}

impl Reduction {
    /// Number of elements of the result.
    pub const fn length(&self) -> u32 {
        match self.each {
            Extent::Row => self.source.rows,
            Extent::Column => self.source.columns,
        }
    }

    pub(super) fn operands(&self) -> Checked<Vec<Operand>> {
        expect_float(self.data_type)?;
        Ok(vec![
            self.source.operand("source", self.data_type, 1, Written::No)?,
            vector("result", self.data_type, self.length(), Written::Set)?,
        ])
    }
}
