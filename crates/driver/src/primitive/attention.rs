//! Primitives of models: attention, and normalization of rows.

use super::matrix::expect_float;
use super::{Checked, DataType, Operand, OperandUse, bytes, expect};

/// A row-major operand.
fn array(name: &'static str, data_type: DataType, sizes: &[u32], used: OperandUse) -> Checked<Operand> {
    expect(sizes.iter().all(|size| *size > 0), || {
        format!("`{name}` has the shape {sizes:?}; sizes must not be 0")
    })?;
    let size = |all: u128, size: &u32| all.saturating_mul((*size).into());
    let bytes = bytes(name, sizes.iter().fold(u128::from(data_type.size()), size))?;
    Ok(Operand { name, data_type, bytes, used })
}

/// Scaled dot-product attention: `result = softmax(scale · query · keyᵀ + mask) · value`, for each head.
///
/// Operands are row-major: `query` `[batch, heads, queries, width]`, `key` `[batch, key heads, keys, width]`, `value` `[batch, key heads, keys,
/// value width]`, `mask`, `result` `[batch, heads, queries, value width]`. Neighboring heads share keys and values. The result of a query for
/// which no key counts is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Element type of all operands but the mask.
    pub data_type: DataType,
    /// Number of sequences.
    pub batch: u32,
    /// Number of heads of queries: a multiple of `key_heads`.
    pub heads: u32,
    /// Number of heads of keys and values.
    pub key_heads: u32,
    /// Number of queries of a head.
    pub queries: u32,
    /// Number of keys of a head.
    pub keys: u32,
    /// Elements of a query and a key.
    pub width: u32,
    /// Elements of a value.
    pub value_width: u32,
    /// Factor of the scores: finite.
    pub scale: f32,
    /// If set, key `j` counts for query `i` if `j ≤ i + before`, where `before` is this number.
    pub causal: Option<u32>,
    /// The mask operand, if there is one.
    pub mask: Option<AttentionMask>,
}

/// The mask of an attention: numbers that are added to the scaled scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionMask {
    /// Element type.
    pub data_type: DataType,
    /// Its shape, each size of which is 1 or that of `[batch, heads, queries, keys]`.
    pub shape: [u32; 4],
}

impl Attention {
    pub(super) fn operands(&self) -> Checked<Vec<Operand>> {
        let Self { data_type, batch, heads, key_heads, queries, keys, width, value_width, .. } = *self;
        expect_float(data_type)?;
        expect(self.scale.is_finite(), || format!("the scale is {}; it must be finite", self.scale))?;
        expect(key_heads > 0 && heads.is_multiple_of(key_heads), || {
            format!("{heads} heads; it must be a multiple of the {key_heads} of `key`")
        })?;
        let read = OperandUse::Read;
        let mut operands = vec![
            array("query", data_type, &[batch, heads, queries, width], read)?,
            array("key", data_type, &[batch, key_heads, keys, width], read)?,
            array("value", data_type, &[batch, key_heads, keys, value_width], read)?,
        ];
        if let Some(mask) = self.mask {
            expect_float(mask.data_type)?;
            let scores = [batch, heads, queries, keys];
            let fits = mask.shape.iter().zip(scores).all(|(size, wanted)| *size == 1 || *size == wanted);
            expect(fits, || {
                format!("`mask` has the shape {:?}; it must be broadcast to {scores:?}", mask.shape)
            })?;
            operands.push(array("mask", mask.data_type, &mask.shape, read)?);
        }
        let result = [batch, heads, queries, value_width];
        operands.push(array("result", data_type, &result, OperandUse::Replaced)?);
        Ok(operands)
    }
}

/// Normalization of rows: `result = (source - mean) / √(variance + ε) · scale + bias`; layer, group and RMS normalization.
///
/// Source and result are row-major, of shape `[rows, groups, channels, points]`; mean and variance (divisor n) are over channels and points.
/// Scale and bias have the shape `[groups, channels]`, saved statistics `[rows, groups]` and `f32`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalization {
    /// Element type of source and result.
    pub data_type: DataType,
    /// Element type of scale and bias.
    pub parameter_type: DataType,
    /// `[rows, groups, channels, points]`.
    pub shape: [u32; 4],
    /// Added to the variance: finite and not negative.
    pub epsilon: f32,
    /// Whether the mean is subtracted. Otherwise, the variance is the mean of squares.
    pub center: bool,
    /// Whether there is a scale operand.
    pub scale: bool,
    /// Whether there is a bias operand.
    pub bias: bool,
    /// Whether mean, if it is subtracted, and inverse deviation are results as well.
    pub saved: bool,
}

impl Normalization {
    pub(super) fn operands(&self) -> Checked<Vec<Operand>> {
        let [rows, groups, channels, _] = self.shape;
        expect_float(self.data_type)?;
        expect_float(self.parameter_type)?;
        expect(self.epsilon.is_finite() && self.epsilon >= 0.0, || {
            format!("ε is {}; it must be finite and not negative", self.epsilon)
        })?;
        let mut operands = vec![array("source", self.data_type, &self.shape, OperandUse::Read)?];
        for (name, has) in [("scale", self.scale), ("bias", self.bias)] {
            if has {
                operands.push(array(name, self.parameter_type, &[groups, channels], OperandUse::Read)?);
            }
        }
        for (name, has) in [("mean", self.saved && self.center), ("inverse_deviation", self.saved)] {
            if has {
                operands.push(array(name, DataType::F32, &[rows, groups], OperandUse::Replaced)?);
            }
        }
        operands.push(array("result", self.data_type, &self.shape, OperandUse::Replaced)?);
        Ok(operands)
    }
}
