//! [`GraphLibrary`]: what Apple's MPSGraph computes beside Metal Performance Shaders.
//!
//! It computes what the shaders lack: products with a bias and an activation, shared factors, `bf16`, convolutions of groups, of three axes and
//! transposed, normalization and attention. Operands have no gaps, because MPSGraph reads arrays without gaps.

use super::{Attention, DataType, Matrix, Operand, Primitive, PrimitiveKind, VolumeConvolution};
use crate::MemorySlice;

/// MPSGraph, as a version of the system has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GraphLibrary {
    /// Whether it computes with `bf16` (macOS 14).
    pub bf16: bool,
    /// Whether it convolves along three axes (macOS 13.2).
    pub volumes: bool,
    /// Whether operands may begin anywhere in a buffer, at a multiple of their element size (macOS 15).
    pub offsets: bool,
    /// Whether attention is one operation of it (macOS 15); otherwise it is composed.
    pub attention: bool,
}

impl GraphLibrary {
    /// What it has and lacks, for display.
    pub fn description(self) -> String {
        let all = [
            (self.bf16, "bf16 (macOS 14)"),
            (self.volumes, "convolution along three axes (macOS 13.2)"),
            (self.offsets, "operands within a buffer (macOS 15)"),
            (self.attention, "attention as one operation (macOS 15)"),
        ];
        let lacks: Vec<&str> = all.into_iter().filter(|(has, _)| !has).map(|(_, name)| name).collect();
        if lacks.is_empty() { "is used".into() } else { format!("is used, without {}", lacks.join(", ")) }
    }

    /// Whether an operation is supported for an element type.
    pub(super) const fn has(self, kind: PrimitiveKind, data_type: DataType) -> bool {
        let has_type = match data_type {
            DataType::F16 | DataType::F32 => true,
            DataType::BF16 => self.bf16,
            DataType::I8 | DataType::I32 => false,
        };
        has_type
            && matches!(
                kind,
                PrimitiveKind::MatMul
                    | PrimitiveKind::VolumeConvolution
                    | PrimitiveKind::BatchNorm
                    | PrimitiveKind::Normalization
                    | PrimitiveKind::Attention
            )
    }

    /// What it lacks for a primitive of [`GraphLibrary::has`] with these operands.
    pub(super) fn lacks(self, primitive: &Primitive, operands: &[MemorySlice]) -> Option<&'static str> {
        let wanted = primitive.operands().unwrap_or_default();
        if !self.offsets && operands.iter().any(|operand| operand.offset != 0) {
            return Some("takes operands at the start of a buffer only, before macOS 15");
        }
        if wanted.iter().any(is_large) {
            return Some("takes operands of less than 2³¹ elements only");
        }
        if !self.bf16 && wanted.iter().any(|operand| operand.data_type == DataType::BF16) {
            return Some("computes with bf16 from macOS 14 on only");
        }
        let (broken, lacks) = match primitive {
            Primitive::MatMul(p) => {
                let mut all = [p.left, p.right, p.result].into_iter();
                let has_gaps = all.any(|matrix| !has_no_gaps(&matrix, p.matrices, p.data_type.size()));
                (has_gaps, "takes matrices without gaps only")
            }
            Primitive::VolumeConvolution(p) => {
                (!self.volumes && !p.is_flat(), "convolves along three axes from macOS 13.2 on only")
            }
            Primitive::Attention(p) => {
                let scores = [p.batch, p.heads, p.queries, p.keys].map(u128::from);
                let scores = scores.into_iter().fold(1_u128, u128::saturating_mul);
                (scores > i32::MAX as u128, "takes scores of less than 2³¹ elements only")
            }
            _ => (false, ""),
        };
        broken.then_some(lacks)
    }

    /// Name of its operation for a primitive.
    pub(super) fn algorithm(self, primitive: &Primitive) -> &'static str {
        match primitive {
            Primitive::MatMul(_) => "MPSGraph matrixMultiplication",
            Primitive::VolumeConvolution(p) => match (p.is_flat(), p.transposed) {
                (true, false) => "MPSGraph convolution2D",
                (true, true) => "MPSGraph convolution2DDataGradient",
                (false, false) => "MPSGraph convolution3D",
                (false, true) => "MPSGraph convolution3DDataGradient",
            },
            Primitive::BatchNorm(_) => "MPSGraph normalization",
            Primitive::Normalization(p) if p.center => "MPSGraph normalization",
            Primitive::Normalization(_) => "MPSGraph mean of squares",
            Primitive::Attention(p) if self.attends(p) => "MPSGraph scaledDotProductAttention",
            Primitive::Attention(_) => "MPSGraph matrixMultiplication, exponent and sums",
            _ => "MPSGraph",
        }
    }
}

impl GraphLibrary {
    /// Whether an attention is its operation of that name, which has values as wide as keys, and no rule for queries for which no key counts.
    pub const fn attends(self, p: &Attention) -> bool {
        self.attention && p.width == p.value_width && p.mask.is_none()
    }
}

fn is_large(operand: &Operand) -> bool {
    operand.bytes / operand.data_type.size() > i32::MAX as u64
}

fn has_no_gaps(matrix: &Matrix, count: u32, size: u64) -> bool {
    let row = u64::from(matrix.columns) * size;
    let (rows, all) = (u64::from(matrix.rows), row.saturating_mul(matrix.rows.into()));
    // Strides of a single row and of a single matrix are not used; a stride of 0 is that of a shared factor.
    (rows == 1 || matrix.row_bytes == row)
        && (count == 1 || matrix.matrix_bytes == 0 || matrix.matrix_bytes == all)
}

impl VolumeConvolution {
    /// Whether the first spatial axis is a single point everywhere, so that it is a convolution of images.
    pub const fn is_flat(&self) -> bool {
        self.source.size[0] == 1
            && self.result.size[0] == 1
            && self.window.size[0] == 1
            && self.window.padding[0] == 0
    }
}
