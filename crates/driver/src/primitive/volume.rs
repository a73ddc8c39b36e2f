//! Primitives of volumes, which have up to three spatial axes: convolution, also transposed, and batch normalization.

use super::matrix::expect_float;
use super::{Checked, DataType, Layout, Operand, OperandUse, bytes, expect};

/// Shape of a batch of volumes of equal size. Every size is at least 1; images have a depth of 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Volumes {
    /// Number of volumes.
    pub count: u32,
    /// Number of channels: elements per point.
    pub channels: u32,
    /// Depth, height and width.
    pub size: [u32; 3],
}

impl Volumes {
    /// Number of elements of all volumes.
    pub fn elements(&self) -> u128 {
        let channels = u128::from(self.count) * u128::from(self.channels);
        self.size.iter().fold(channels, |elements, size| elements.saturating_mul(u128::from(*size)))
    }

    fn operand(self, name: &'static str, data_type: DataType, used: OperandUse) -> Checked<Operand> {
        let Self { count, channels, size: [depth, height, width] } = self;
        expect([count, channels, depth, height, width].iter().all(|size| *size > 0), || {
            format!(
                "`{name}` is {count} volumes of {channels} channels and {depth} × {height} × {width} points; sizes must not be 0"
            )
        })?;
        let bytes = bytes(name, self.elements().saturating_mul(u128::from(data_type.size())))?;
        Ok(Operand { name, data_type, bytes, used })
    }
}

/// Sliding window along depth, height and width. Sizes, strides and dilations are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VolumeWindow {
    /// Points sampled along each axis.
    pub size: [u32; 3],
    /// Distance between consecutive positions.
    pub stride: [u32; 3],
    /// Distance between consecutive samples of the window; 1 for a dense window.
    pub dilation: [u32; 3],
    /// Points of padding on each of both sides.
    pub padding: [u32; 3],
}

impl VolumeWindow {
    /// Number of positions along each axis.
    fn positions(&self, of: [u32; 3]) -> Checked<[u32; 3]> {
        for (name, values) in [("sizes", self.size), ("strides", self.stride), ("dilations", self.dilation)] {
            expect(values.iter().all(|value| *value > 0), || {
                format!("the window's {name} are {values:?}; all must be at least 1")
            })?;
        }
        let mut positions = [0; 3];
        for (axis, positions) in positions.iter_mut().enumerate() {
            let span = (u64::from(self.size[axis]) - 1) * u64::from(self.dilation[axis]) + 1;
            let room = u64::from(of[axis]) + 2 * u64::from(self.padding[axis]);
            expect(span <= room, || {
                format!(
                    "the window spans {span} points along axis {axis}, more than the {room} of the padded volume"
                )
            })?;
            let count = (room - span) / u64::from(self.stride[axis]) + 1;
            *positions = u32::try_from(count)
                .map_err(|_| super::Wrong(format!("{count} positions along axis {axis}")))?;
        }
        Ok(positions)
    }
}

/// Convolution of a batch of volumes, without flipping the weights, or its transpose.
///
/// A convolution is `result[o][y] = bias[o] + Σ weights[o][i][c] · source[c][y · stride + i · dilation − padding]`, with zeros outside the
/// volume; y and i have three coordinates. Transposed, each element of the source is added to the elements of the result that a
/// convolution of the result would have read for it: `result[c][y · stride + i · dilation − padding] += weights[o][i][c] · source[o][y]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeConvolution {
    /// Element type of all operands.
    pub data_type: DataType,
    /// Memory layout of source, weights and result: channels before the spatial axes, or after them.
    pub layout: Layout,
    /// Shape of the source.
    pub source: Volumes,
    /// Shape of the result. Its size follows from the source's; transposed, the source's follows from it.
    pub result: Volumes,
    /// The window; its size is that of the weights.
    pub window: VolumeWindow,
    /// Number of groups: at least 1, and a divisor of both numbers of channels.
    pub groups: u32,
    /// Whether there is a bias operand: one element for each channel of the result.
    pub bias: bool,
    /// Whether it is transposed. Weights are `[output channel][input channel of the group]…`, and transposed
    /// `[input channel][output channel of the group]…`.
    pub transposed: bool,
}

impl VolumeConvolution {
    /// Shapes as of a convolution that is not transposed: what it reads, and what it writes.
    pub const fn forward(&self) -> [Volumes; 2] {
        if self.transposed { [self.result, self.source] } else { [self.source, self.result] }
    }

    pub(super) fn operands(&self) -> Checked<Vec<Operand>> {
        let Self { data_type, source, result, groups, .. } = *self;
        expect_float(data_type)?;
        let mut operands = vec![source.operand("source", data_type, OperandUse::Read)?];
        let written = result.operand("result", data_type, OperandUse::Replaced)?;
        let (inputs, outputs) = (source.channels, result.channels);
        expect(groups > 0 && inputs.is_multiple_of(groups) && outputs.is_multiple_of(groups), || {
            format!(
                "{groups} groups; it must divide the {inputs} channels of `source` and the {outputs} of `result`"
            )
        })?;
        let [read, made] = self.forward();
        let positions = self.window.positions(read.size)?;
        expect(positions == made.size && source.count == result.count, || {
            format!(
                "`source` is {} of {:?} points and `result` {} of {:?}; the window has {positions:?} positions",
                source.count, source.size, result.count, result.size
            )
        })?;
        let channels = u128::from(made.channels) * u128::from(read.channels / groups);
        let weights = self.window.size.iter().fold(channels, |all, size| all.saturating_mul((*size).into()));
        let used = OperandUse::Read;
        let weights = bytes("weights", weights.saturating_mul(data_type.size().into()))?;
        operands.push(Operand { name: "weights", data_type, bytes: weights, used });
        if self.bias {
            operands.push(Operand {
                name: "bias",
                data_type,
                bytes: u64::from(outputs) * data_type.size(),
                used,
            });
        }
        operands.push(written);
        Ok(operands)
    }
}

/// Where mean and variance of a batch normalization come from.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum BatchStatistics {
    /// Operands: mean, variance.
    Given,
    /// Those of the source, which are results as well: mean and inverse deviation, `1 / √(variance + ε)`.
    Saved,
    /// As `Saved`; and the operands running mean and running variance become `(1 - momentum) · previous + momentum · new`, with the
    /// unbiased variance (divisor n − 1), of at least two elements.
    Running {
        /// Weight of the new statistics: 0 to 1.
        momentum: f32,
    },
}

/// Batch normalization of each channel: `result = (source - mean) / √(variance + ε) · scale + bias`. The variance has divisor n.
///
/// Scale, bias and statistics are vectors of `f32`, with an element for each channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNorm {
    /// Element type of source and result.
    pub data_type: DataType,
    /// Memory layout of source and result.
    pub layout: Layout,
    /// Shape of source and result.
    pub source: Volumes,
    /// Added to the variance: finite and not negative.
    pub epsilon: f32,
    /// The statistics.
    pub statistics: BatchStatistics,
}

impl BatchNorm {
    pub(super) fn operands(&self) -> Checked<Vec<Operand>> {
        expect_float(self.data_type)?;
        expect(self.epsilon.is_finite() && self.epsilon >= 0.0, || {
            format!("ε is {}; it must be finite and not negative", self.epsilon)
        })?;
        let (data_type, bytes) = (DataType::F32, u64::from(self.source.channels) * DataType::F32.size());
        let vector = |name, used| Operand { name, data_type, bytes, used };
        let [mean, deviation] = match self.statistics {
            BatchStatistics::Given => [("mean", OperandUse::Read), ("variance", OperandUse::Read)],
            BatchStatistics::Saved | BatchStatistics::Running { .. } => {
                [("mean", OperandUse::Replaced), ("inverse_deviation", OperandUse::Replaced)]
            }
        };
        let mut operands = vec![
            self.source.operand("source", self.data_type, OperandUse::Read)?,
            vector("scale", OperandUse::Read),
            vector("bias", OperandUse::Read),
            vector(mean.0, mean.1),
            vector(deviation.0, deviation.1),
        ];
        if let BatchStatistics::Running { momentum } = self.statistics {
            expect((0.0..=1.0).contains(&momentum), || {
                format!("the momentum is {momentum}; it must be 0 to 1")
            })?;
            expect(self.source.elements() > u128::from(self.source.channels), || {
                "running statistics need at least two elements of a channel".into()
            })?;
            operands
                .extend(["running_mean", "running_variance"].map(|name| vector(name, OperandUse::Updated)));
        }
        operands.push(self.source.operand("result", self.data_type, OperandUse::Replaced)?);
        Ok(operands)
    }
}
