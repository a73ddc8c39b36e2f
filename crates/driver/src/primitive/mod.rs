//! [`Primitive`]: what the library of a device's vendor computes (Metal Performance Shaders), as plain data.
//!
//! A primitive is shapes and numbers. The memory it works on comes beside it as a list of operands, as the bindings of a
//! launch do; [`Primitive::operands`] says which there are, in which order, and how many bytes each takes. What a device has
//! is [`crate::Caps::primitives`]. All checks of shapes and sizes are here, for the runtime and all drivers.
//!
//! Sizes count elements, strides count bytes. Matrices lie row after row; the elements of a row follow one another.
//! Sums are of `f32` at least; how they are rounded is the library's.

mod image;
mod matrix;
mod set;

use std::fmt;
use std::sync::Arc;

use crate::{Error, MemorySlice, Result, Scalar};

pub use image::{Convolution, Images, Layout, Padding, PoolKind, Pooling, Window};
pub use matrix::{Extent, MatMul, MatVec, Matrix, Reduction, ReductionKind, Softmax};
pub use set::Primitives;

/// The type of a primitive's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Float {
    /// 16 bits.
    F16,
    /// 32 bits.
    F32,
}

impl Float {
    /// Both.
    pub const ALL: [Self; 2] = [Self::F16, Self::F32];

    /// Bytes of an element.
    pub const fn size(self) -> u64 {
        self.scalar().size()
    }

    /// The same type among MSL's scalars.
    pub const fn scalar(self) -> Scalar {
        match self {
            Self::F16 => Scalar::F16,
            Self::F32 => Scalar::F32,
        }
    }
}

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F16 => "f16",
            Self::F32 => "f32",
        })
    }
}

/// What a primitive computes.
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
}

impl PrimitiveKind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::MatMul, Self::MatVec, Self::Softmax, Self::Reduction, Self::Convolution, Self::Pooling];

    /// What messages call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MatMul => "matrix multiplication",
            Self::MatVec => "matrix-vector multiplication",
            Self::Softmax => "softmax",
            Self::Reduction => "reduction",
            Self::Convolution => "convolution",
            Self::Pooling => "pooling",
        }
    }
}

/// One computation of a vendor's library.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Primitive {
    /// The product of matrices. Operands: left, right, result.
    MatMul(MatMul),
    /// The product of a matrix and a vector. Operands: matrix, vector, result.
    MatVec(MatVec),
    /// Softmax of each row. Operands: source, result.
    Softmax(Softmax),
    /// One number of each row or column. Operands: source, result.
    Reduction(Reduction),
    /// Convolution of images. Operands: source, weights, bias where there is one, result.
    Convolution(Convolution),
    /// Pooling of images. Operands: source, result.
    Pooling(Pooling),
}

/// What a primitive does to an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandUse {
    /// It is read.
    Read,
    /// All its bytes are written, and none is read.
    Replaced,
    /// Its elements are written, the bytes between its rows are not, and none is read.
    Written,
    /// Its elements are read and written.
    Updated,
}

/// One operand of a primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Its name in messages.
    pub name: &'static str,
    /// The type of its elements.
    pub float: Float,
    /// Bytes from its first element to the end of its last.
    pub bytes: u64,
    /// What is done to it.
    pub used: OperandUse,
}

impl Primitive {
    /// Which it is.
    pub const fn kind(&self) -> PrimitiveKind {
        match self {
            Self::MatMul(_) => PrimitiveKind::MatMul,
            Self::MatVec(_) => PrimitiveKind::MatVec,
            Self::Softmax(_) => PrimitiveKind::Softmax,
            Self::Reduction(_) => PrimitiveKind::Reduction,
            Self::Convolution(_) => PrimitiveKind::Convolution,
            Self::Pooling(_) => PrimitiveKind::Pooling,
        }
    }

    /// The type of its elements.
    pub const fn float(&self) -> Float {
        match self {
            Self::MatMul(p) => p.float,
            Self::MatVec(p) => p.float,
            Self::Softmax(p) => p.float,
            Self::Reduction(p) => p.float,
            Self::Convolution(p) => p.float,
            Self::Pooling(p) => p.float,
        }
    }

    /// Its operands, in order.
    ///
    /// # Errors
    /// `InvalidArgument` naming the operand whose shape is wrong.
    pub fn operands(&self) -> Result<Vec<Operand>> {
        let operands = match self {
            Self::MatMul(p) => p.operands(),
            Self::MatVec(p) => p.operands(),
            Self::Softmax(p) => p.operands(),
            Self::Reduction(p) => p.operands(),
            Self::Convolution(p) => p.operands(),
            Self::Pooling(p) => p.operands(),
        };
        operands.map_err(|Wrong(text)| Error::invalid(format!("{}: {text}", self.kind().name())))
    }

    /// Compares memory with the operands: as many, each large enough and aligned to its elements, and what is written
    /// apart from all others.
    ///
    /// # Errors
    /// `InvalidArgument` naming the operand.
    pub fn check(&self, memory: &[MemorySlice]) -> Result<()> {
        let (operands, kind) = (self.operands_for(memory.len())?, self.kind().name());
        for (operand, slice) in operands.iter().zip(memory) {
            let Operand { name, float, bytes, .. } = *operand;
            if slice.len < bytes {
                let given = slice.len;
                return Err(Error::invalid(format!(
                    "{kind}: `{name}` takes {bytes} bytes, its memory has {given}"
                )));
            }
            if !slice.offset.is_multiple_of(float.size()) {
                let offset = slice.offset;
                return Err(Error::invalid(format!(
                    "{kind}: `{name}` begins at byte {offset} of its memory, which is no multiple of {}",
                    float.size()
                )));
            }
        }
        let (Some((result, others)), Some((written, memory))) = (operands.split_last(), memory.split_last())
        else {
            return Ok(());
        };
        for (operand, slice) in others.iter().zip(memory) {
            if overlap(slice, operand.bytes, written, result.bytes) {
                let (name, result) = (operand.name, result.name);
                return Err(Error::invalid(format!("{kind}: `{result}` and `{name}` share memory")));
            }
        }
        Ok(())
    }

    /// Its operands, where so many are given.
    ///
    /// # Errors
    /// As [`Primitive::operands`], and `InvalidArgument` with the names of those there are.
    pub fn operands_for(&self, given: usize) -> Result<Vec<Operand>> {
        let operands = self.operands()?;
        if operands.len() == given {
            return Ok(operands);
        }
        let (kind, count) = (self.kind().name(), operands.len());
        let names = operands.iter().map(|operand| operand.name).collect::<Vec<_>>().join(", ");
        Err(Error::invalid(format!("{kind}: {count} operands ({names}), {given} given")))
    }
}

fn overlap(a: &MemorySlice, a_bytes: u64, b: &MemorySlice, b_bytes: u64) -> bool {
    let same = std::ptr::addr_eq(Arc::as_ptr(&a.memory), Arc::as_ptr(&b.memory));
    same && a.offset < b.offset.saturating_add(b_bytes) && b.offset < a.offset.saturating_add(a_bytes)
}

/// What is wrong with a shape.
struct Wrong(String);

/// Shapes' own result.
type Checked<T> = Result<T, Wrong>;

/// A size as a number of bytes, if it is one that memory can have.
fn bytes(name: &str, size: u128) -> Checked<u64> {
    let fits = u64::try_from(size).ok().filter(|size| *size <= i64::MAX as u64);
    fits.ok_or_else(|| Wrong(format!("`{name}` takes {size} bytes, more than memory can have")))
}

fn expect(holds: bool, text: impl FnOnce() -> String) -> Checked<()> {
    if holds { Ok(()) } else { Err(Wrong(text())) }
}

#[cfg(test)]
mod tests;
