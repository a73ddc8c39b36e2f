//! [`Primitive`]: an operation of a library for tensors (Metal Performance Shaders, cuBLASLt, cuDNN), as plain data.
//!
//! A primitive is a descriptor: shapes, strides and scale factors. Its operands are passed separately, like the bindings of a
//! launch; [`Primitive::operands`] lists them in order, with the size in bytes of each. [`crate::Features::primitives`] lists what a
//! device supports. Shapes and sizes are validated here, for the runtime and all drivers.
//!
//! Sizes are in elements, strides in bytes. Matrices are row-major, with contiguous rows. Accumulation is at least in `f32`;
//! rounding and order of summation are the library's.

mod attention;
mod graph;
mod image;
mod matrix;
mod set;
mod volume;

use std::fmt;
use std::sync::Arc;

use crate::{Error, MemorySlice, Result, Scalar};

pub use attention::{Attention, AttentionMask, Normalization};
pub use graph::GraphLibrary;
pub use image::{Convolution, Images, Layout, Padding, PoolKind, Pooling, Window};
pub use matrix::{Activation, Extent, MatMul, MatVec, Matrix, Reduction, ReductionKind, Softmax};
pub use set::{PrimitiveLibrary, Primitives};
pub use volume::{BatchNorm, BatchStatistics, VolumeConvolution, VolumeWindow, Volumes};

/// Element type of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DataType {
    /// IEEE 754 binary16, `half` in MSL.
    F16,
    /// The upper half of a binary32 number, `bfloat` in MSL.
    BF16,
    /// IEEE 754 binary32, `float` in MSL.
    F32,
    /// Signed 8-bit integer, `char` in MSL: the factors of a matrix product only.
    I8,
    /// Signed 32-bit integer, `int` in MSL: the result of a product of [`DataType::I8`].
    I32,
}

impl DataType {
    /// All types.
    pub const ALL: [Self; 5] = [Self::F16, Self::BF16, Self::F32, Self::I8, Self::I32];

    /// The floating-point types.
    pub const FLOATS: [Self; 3] = [Self::F16, Self::BF16, Self::F32];

    /// Size of an element in bytes: 1, 2 or 4. It is also the required alignment.
    pub const fn size(self) -> u64 {
        self.scalar().size()
    }

    /// The corresponding MSL scalar type.
    pub const fn scalar(self) -> Scalar {
        match self {
            Self::F16 => Scalar::F16,
            Self::BF16 => Scalar::BF16,
            Self::F32 => Scalar::F32,
            Self::I8 => Scalar::I8,
            Self::I32 => Scalar::I32,
        }
    }

    /// Whether it is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32)
    }

    /// Name used in messages, such as `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::I8 => "i8",
            Self::I32 => "i32",
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The operation of a primitive, without its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PrimitiveKind {
    /// [`MatMul`].
    MatMul,
    /// [`MatVec`].
    MatVec,
    /// [`Softmax`].
    Softmax,
    /// [`Reduction`].
    Reduction,
    /// [`Convolution`].
    Convolution,
    /// [`Pooling`].
    Pooling,
    /// [`VolumeConvolution`].
    VolumeConvolution,
    /// [`BatchNorm`].
    BatchNorm,
    /// [`Normalization`].
    Normalization,
    /// [`Attention`].
    Attention,
}

impl PrimitiveKind {
    /// All operations.
    pub const ALL: [Self; 10] = [
        Self::MatMul,
        Self::MatVec,
        Self::Softmax,
        Self::Reduction,
        Self::Convolution,
        Self::Pooling,
        Self::VolumeConvolution,
        Self::BatchNorm,
        Self::Normalization,
        Self::Attention,
    ];

    /// Name used in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MatMul => "matrix multiplication",
            Self::MatVec => "matrix-vector multiplication",
            Self::Softmax => "softmax",
            Self::Reduction => "reduction",
            Self::Convolution => "convolution",
            Self::Pooling => "pooling",
            Self::VolumeConvolution => "convolution of volumes",
            Self::BatchNorm => "batch normalization",
            Self::Normalization => "normalization",
            Self::Attention => "attention",
        }
    }
}

/// An operation of the vendor's library with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Primitive {
    /// Matrix-matrix product. Operands: left, right, bias if [`MatMul::bias`] is set, result.
    MatMul(MatMul),
    /// Matrix-vector product. Operands: matrix, vector, result.
    MatVec(MatVec),
    /// Softmax of each row. Operands: source, result.
    Softmax(Softmax),
    /// Reduction of each row or column to a scalar. Operands: source, result.
    Reduction(Reduction),
    /// Convolution of images. Operands: source, weights, bias if [`Convolution::bias`] is set, result.
    Convolution(Convolution),
    /// Pooling of images. Operands: source, result.
    Pooling(Pooling),
    /// Convolution of volumes, or its transpose. Operands: source, weights, bias if [`VolumeConvolution::bias`] is set, result.
    VolumeConvolution(VolumeConvolution),
    /// Batch normalization. Operands: source, scale, bias, mean, variance or inverse deviation, running statistics, result.
    BatchNorm(BatchNorm),
    /// Normalization of rows. Operands: source, scale and bias if they are set, saved mean and inverse deviation if they are set, result.
    Normalization(Normalization),
    /// Attention. Operands: query, key, value, mask if there is one, result.
    Attention(Attention),
}

/// How a primitive accesses an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandUse {
    /// Read only.
    Read,
    /// Every byte is overwritten; none is read.
    Replaced,
    /// Every element is overwritten, padding between rows is not; none is read.
    Written,
    /// Elements are read and written (beta is not 0).
    Updated,
}

/// One operand of a primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Name used in messages, such as `left`.
    pub name: &'static str,
    /// Element type.
    pub data_type: DataType,
    /// Size in bytes, from the start of the first element to the end of the last.
    pub bytes: u64,
    /// How it is accessed.
    pub used: OperandUse,
}

impl Primitive {
    /// Returns the operation.
    pub const fn kind(&self) -> PrimitiveKind {
        match self {
            Self::MatMul(_) => PrimitiveKind::MatMul,
            Self::MatVec(_) => PrimitiveKind::MatVec,
            Self::Softmax(_) => PrimitiveKind::Softmax,
            Self::Reduction(_) => PrimitiveKind::Reduction,
            Self::Convolution(_) => PrimitiveKind::Convolution,
            Self::Pooling(_) => PrimitiveKind::Pooling,
            Self::VolumeConvolution(_) => PrimitiveKind::VolumeConvolution,
            Self::BatchNorm(_) => PrimitiveKind::BatchNorm,
            Self::Normalization(_) => PrimitiveKind::Normalization,
            Self::Attention(_) => PrimitiveKind::Attention,
        }
    }

    /// Returns the element type. The weights and bias of a convolution may have another one, and so has the result of a product of
    /// integers.
    pub const fn data_type(&self) -> DataType {
        match self {
            Self::MatMul(p) => p.data_type,
            Self::MatVec(p) => p.data_type,
            Self::Softmax(p) => p.data_type,
            Self::Reduction(p) => p.data_type,
            Self::Convolution(p) => p.data_type,
            Self::Pooling(p) => p.data_type,
            Self::VolumeConvolution(p) => p.data_type,
            Self::BatchNorm(p) => p.data_type,
            Self::Normalization(p) => p.data_type,
            Self::Attention(p) => p.data_type,
        }
    }

    /// Returns the operands, in the order in which they are passed; the result is last.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a shape is invalid: a size of 0, a stride smaller than a row, shapes that do not match, a
    /// window larger than its padded image, a factor that is not finite, or an operand beyond `i64::MAX` bytes. The message names
    /// the operand.
    pub fn operands(&self) -> Result<Vec<Operand>> {
        let operands = match self {
            Self::MatMul(p) => p.operands(),
            Self::MatVec(p) => p.operands(),
            Self::Softmax(p) => p.operands(),
            Self::Reduction(p) => p.operands(),
            Self::Convolution(p) => p.operands(),
            Self::Pooling(p) => p.operands(),
            Self::VolumeConvolution(p) => p.operands(),
            Self::BatchNorm(p) => p.operands(),
            Self::Normalization(p) => p.operands(),
            Self::Attention(p) => p.operands(),
        };
        operands.map_err(|Wrong(text)| Error::invalid(format!("{}: {text}", self.kind().name())))
    }

    /// Validates `memory` against the operands: their number, that each is large enough and aligned to its element size, and that
    /// no operand that is written overlaps another one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] that names the operand; see also [`Primitive::operands`].
    pub fn check(&self, memory: &[MemorySlice]) -> Result<()> {
        let (operands, kind) = (self.operands_for(memory.len())?, self.kind().name());
        for (operand, slice) in operands.iter().zip(memory) {
            let Operand { name, data_type, bytes, .. } = *operand;
            if slice.len < bytes {
                let given = slice.len;
                return Err(Error::invalid(format!("{kind}: `{name}` needs {bytes} bytes, {given} given")));
            }
            if !slice.offset.is_multiple_of(data_type.size()) {
                let offset = slice.offset;
                return Err(Error::invalid(format!(
                    "{kind}: `{name}` at offset {offset} is not aligned to {} bytes",
                    data_type.size()
                )));
            }
        }
        let all: Vec<_> = operands.iter().zip(memory).collect();
        let written =
            all.iter().enumerate().rev().filter(|(_, (operand, _))| operand.used != OperandUse::Read);
        for (at, (result, slice)) in written {
            for (operand, other) in
                all.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other)
            {
                if overlap(other, operand.bytes, slice, result.bytes) {
                    let (name, result) = (operand.name, result.name);
                    return Err(Error::invalid(format!("{kind}: `{result}` overlaps `{name}`")));
                }
            }
        }
        Ok(())
    }

    /// Returns the operands if there are `given` of them.
    ///
    /// # Errors
    /// As [`Primitive::operands`], and [`Error::InvalidArgument`] that lists the operands if their number differs.
    pub fn operands_for(&self, given: usize) -> Result<Vec<Operand>> {
        let operands = self.operands()?;
        if operands.len() == given {
            return Ok(operands);
        }
        let (kind, count) = (self.kind().name(), operands.len());
        let names = operands.iter().map(|operand| operand.name).collect::<Vec<_>>().join(", ");
        Err(Error::invalid(format!("{kind}: expected {count} operands ({names}), {given} given")))
    }
}

fn overlap(a: &MemorySlice, a_bytes: u64, b: &MemorySlice, b_bytes: u64) -> bool {
    let same = std::ptr::addr_eq(Arc::as_ptr(&a.memory), Arc::as_ptr(&b.memory));
    same && a.offset < b.offset.saturating_add(b_bytes) && b.offset < a.offset.saturating_add(a_bytes)
}

/// Why a shape is invalid.
struct Wrong(String);

/// Result of validating a shape.
type Checked<T> = Result<T, Wrong>;

/// Checks a size in bytes against the largest possible allocation.
fn bytes(name: &str, size: u128) -> Checked<u64> {
    let fits = u64::try_from(size).ok().filter(|size| *size <= i64::MAX as u64);
    fits.ok_or_else(|| Wrong(format!("`{name}` needs {size} bytes, more than an allocation can have")))
}

fn expect(holds: bool, text: impl FnOnce() -> String) -> Checked<()> {
    if holds { Ok(()) } else { Err(Wrong(text())) }
}

#[cfg(test)]
mod tests;
