//! Image primitives: convolution and pooling.
//!
//! A window slides over the padded image. Its first position begins at row `-padding.top` and column `-padding.left`; each further
//! position is a stride later, as long as the window lies within the padded image.

use super::matrix::expect_float;
use super::{Checked, DataType, Operand, OperandUse, bytes, expect};

/// Memory layout of images. Elements are packed, and so are the images of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// `[image][channel][row][column]` (NCHW).
    ChannelsFirst,
    /// `[image][row][column][channel]` (NHWC).
    ChannelsLast,
}

/// Shape of a batch of images of equal size. Every size is at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Images {
    /// Number of images.
    pub count: u32,
    /// Number of channels: elements per pixel.
    pub channels: u32,
    /// Height in pixels (rows).
    pub height: u32,
    /// Width in pixels (columns).
    pub width: u32,
}

impl Images {
    /// Number of elements of one image: channels × height × width.
    pub const fn elements(&self) -> u128 {
        self.channels as u128 * self.height as u128 * self.width as u128
    }

    fn operand(self, name: &'static str, data_type: DataType, used: OperandUse) -> Checked<Operand> {
        let Self { count, channels, height, width } = self;
        expect([count, channels, height, width].iter().all(|size| *size > 0), || {
            format!(
                "`{name}` is {count} images of {channels} channels and {height} × {width} pixels; sizes must not be 0"
            )
        })?;
        // At most 2^96 elements of an image; the number of images and the element size can overflow 128 bits.
        let total = self.elements().checked_mul(u128::from(count) * u128::from(data_type.size()));
        Ok(Operand { name, data_type, bytes: bytes(name, total.unwrap_or(u128::MAX))?, used })
    }
}

/// Padding of an image, in pixels. On each side it must be less than the window's [span](Window::span).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Padding {
    /// Rows above the image.
    pub top: u32,
    /// Rows below the image.
    pub bottom: u32,
    /// Columns to the left of the image.
    pub left: u32,
    /// Columns to the right of the image.
    pub right: u32,
}

impl Padding {
    /// `size` pixels on each of the four sides.
    pub const fn all(size: u32) -> Self {
        Self { top: size, bottom: size, left: size, right: size }
    }

    /// Whether opposite sides have the same padding.
    pub const fn is_symmetric(&self) -> bool {
        self.top == self.bottom && self.left == self.right
    }
}

/// Sliding window. Pairs are `[vertical, horizontal]`, in pixels; sizes, strides and dilations are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Height and width: pixels sampled along each axis.
    pub size: [u32; 2],
    /// Distance between consecutive positions.
    pub stride: [u32; 2],
    /// Distance between consecutive samples of the window; 1 for a dense window.
    pub dilation: [u32; 2],
    /// Padding of the image.
    pub padding: Padding,
}

impl Window {
    /// A dense window of `height` × `width` pixels with stride 1 and no padding.
    pub const fn new(height: u32, width: u32) -> Self {
        Self { size: [height, width], stride: [1, 1], dilation: [1, 1], padding: Padding::all(0) }
    }

    /// Height and width of the image area that the window covers, in pixels: `(size - 1) · dilation + 1`.
    pub const fn span(&self) -> [u64; 2] {
        let [height, width] = self.size;
        let [down, across] = self.dilation;
        [
            height.saturating_sub(1) as u64 * down as u64 + 1,
            width.saturating_sub(1) as u64 * across as u64 + 1,
        ]
    }

    /// Number of vertical and horizontal positions; each is at least 1.
    fn positions(&self, source: Images) -> Checked<[u32; 2]> {
        let pairs = [("sizes", self.size), ("strides", self.stride), ("dilations", self.dilation)];
        for (name, [down, across]) in pairs {
            expect(down > 0 && across > 0, || {
                format!("the window's {name} are [{down}, {across}]; both must be at least 1")
            })?;
        }
        let Padding { top, bottom, left, right } = self.padding;
        let [rows, columns] = self.span();
        let along = |image: u32, before: u32, after: u32, span: u64, stride: u32, what: &str| {
            let room = u64::from(image) + u64::from(before) + u64::from(after);
            expect(span <= room, || {
                format!("the window spans {span} {what}, more than the {room} of the padded image")
            })?;
            expect(u64::from(before.max(after)) < span, || {
                format!(
                    "the padding of {} {what} must be less than the window's span of {span}",
                    before.max(after)
                )
            })?;
            let count = (room - span) / u64::from(stride) + 1;
            u32::try_from(count).map_err(|_| super::Wrong(format!("`result` has {count} {what}")))
        };
        Ok([
            along(source.height, top, bottom, rows, self.stride[0], "rows")?,
            along(source.width, left, right, columns, self.stride[1], "columns")?,
        ])
    }
}

/// Convolution of a batch of images, without flipping the weights (cross-correlation).
///
/// `result[o][y][x] = bias[o] + Σ weights[o][i][j][c] · source[c][y · stride + i · dilation − top][x · stride + j · dilation − left]`,
/// with zeros outside the image. In a grouped convolution, the channels of source and result are split into that many groups of equal
/// size, and each group of the result is computed from that of the source. A device may round the weights to the images' type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// Element type of the images.
    pub data_type: DataType,
    /// Memory layout of source and result.
    pub layout: Layout,
    /// Shape of the source.
    pub source: Images,
    /// Number of channels of the result, at least 1.
    pub channels: u32,
    /// The window; its size is that of the weights.
    pub window: Window,
    /// Number of groups: at least 1, and a divisor of both numbers of channels.
    pub groups: u32,
    /// Element type of weights and bias: that of the images, or [`DataType::F32`].
    pub weight_type: DataType,
    /// Memory layout of the weights: `[output channel][input channel of the group][row][column]` for [`Layout::ChannelsFirst`],
    /// `[output channel][row][column][input channel of the group]` for [`Layout::ChannelsLast`].
    pub weight_layout: Layout,
    /// Whether there is a bias operand: one element for each channel of the result.
    pub bias: bool,
}

impl Convolution {
    /// A convolution without groups and bias, whose weights have the images' type and layout.
    pub const fn new(
        data_type: DataType,
        layout: Layout,
        source: Images,
        channels: u32,
        window: Window,
    ) -> Self {
        let (weight_type, weight_layout) = (data_type, layout);
        Self {
            data_type,
            layout,
            source,
            channels,
            window,
            groups: 1,
            weight_type,
            weight_layout,
            bias: false,
        }
    }

    /// Shape of the result. Height and width are 0 if the shapes are invalid ([`Primitive::operands`](super::Primitive::operands)).
    pub fn result(&self) -> Images {
        let [height, width] = self.window.positions(self.source).unwrap_or_default();
        Images { channels: self.channels, height, width, ..self.source }
    }

    /// Number of weights: output channels × input channels of a group × window height × window width. 0 if there are 0 groups.
    pub const fn weights(&self) -> u128 {
        let [height, width] = self.window.size;
        let Some(inputs) = self.source.channels.checked_div(self.groups) else { return 0 };
        (self.channels as u128 * inputs as u128).saturating_mul(height as u128 * width as u128)
    }

    pub(super) fn operands(&self) -> Checked<Vec<Operand>> {
        let Self { data_type, groups, weight_type, .. } = *self;
        expect_float(data_type)?;
        expect(weight_type == data_type || weight_type == DataType::F32, || {
            format!("the weights are {weight_type}; they must be {data_type}, as the images, or f32")
        })?;
        let mut operands = vec![self.source.operand("source", data_type, OperandUse::Read)?];
        let (inputs, outputs) = (self.source.channels, self.channels);
        expect(groups > 0 && inputs.is_multiple_of(groups) && outputs.is_multiple_of(groups), || {
            format!(
                "{groups} groups; it must divide the {inputs} channels of `source` and the {outputs} of `result`"
            )
        })?;
        let [height, width] = self.window.positions(self.source)?;
        let weights = bytes("weights", self.weights().saturating_mul(u128::from(weight_type.size())))?;
        operands.push(Operand {
            name: "weights",
            data_type: weight_type,
            bytes: weights,
            used: OperandUse::Read,
        });
        if self.bias {
            let bytes = u64::from(self.channels) * weight_type.size();
            operands.push(Operand { name: "bias", data_type: weight_type, bytes, used: OperandUse::Read });
        }
        let result = Images { channels: self.channels, height, width, ..self.source };
        operands.push(result.operand("result", self.data_type, OperandUse::Replaced)?);
        Ok(operands)
    }
}

/// Pooling function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PoolKind {
    /// Maximum of the window's pixels inside the image.
    Max,
    /// Mean of the window's pixels inside the image (padding is not counted).
    Average,
    /// Sum of the window's pixels inside the image, divided by the window's size (padding counts as zeros).
    AverageWithPadding,
}

/// Pooling of a batch of images, for each channel separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooling {
    /// Element type of source and result.
    pub data_type: DataType,
    /// Memory layout of source and result.
    pub layout: Layout,
    /// Shape of the source.
    pub source: Images,
    /// The window. Its dilation must be `[1, 1]`.
    pub window: Window,
    /// The pooling function.
    pub kind: PoolKind,
}

impl Pooling {
    /// Shape of the result. Height and width are 0 if the shapes are invalid ([`Primitive::operands`](super::Primitive::operands)).
    pub fn result(&self) -> Images {
        let [height, width] = self.window.positions(self.source).unwrap_or_default();
        Images { height, width, ..self.source }
    }

    pub(super) fn operands(&self) -> Checked<Vec<Operand>> {
        expect_float(self.data_type)?;
        let source = self.source.operand("source", self.data_type, OperandUse::Read)?;
        let [down, across] = self.window.dilation;
        expect(self.window.dilation == [1, 1], || {
            format!("the window's dilations are [{down}, {across}]; pooling does not support dilation")
        })?;
        let [height, width] = self.window.positions(self.source)?;
        let result = Images { height, width, ..self.source };
        Ok(vec![source, result.operand("result", self.data_type, OperandUse::Replaced)?])
    }
}
