//! Primitives over images: convolution and pooling.
//!
//! A window moves over the image, padded with what is not there. Its first position begins `padding` before the image's
//! first row and column, each further one a stride later, as long as it is within image and padding.

use super::{Checked, Float, Operand, OperandUse, bytes, expect};

/// The order of an image's elements. Images follow one another without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// `[image][channel][row][column]`.
    ChannelsFirst,
    /// `[image][row][column][channel]`.
    ChannelsLast,
}

/// Some images of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Images {
    /// How many.
    pub count: u32,
    /// Numbers of a point.
    pub channels: u32,
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
}

impl Images {
    /// Elements of one image.
    pub const fn elements(&self) -> u128 {
        self.channels as u128 * self.height as u128 * self.width as u128
    }

    fn operand(self, name: &'static str, float: Float, used: OperandUse) -> Checked<Operand> {
        let Self { count, channels, height, width } = self;
        expect([count, channels, height, width].iter().all(|size| *size > 0), || {
            format!(
                "`{name}` is {count} images of {channels} channels and {height} × {width} points, none may be 0"
            )
        })?;
        // A product of five numbers of 32 bits at most, the last of which is small.
        let total = self.elements().checked_mul(u128::from(count) * u128::from(float.size()));
        Ok(Operand { name, float, bytes: bytes(name, total.unwrap_or(u128::MAX))?, used })
    }
}

/// How far the window reaches over the image's edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Padding {
    /// Rows before the first.
    pub top: u32,
    /// Rows behind the last.
    pub bottom: u32,
    /// Columns before the first.
    pub left: u32,
    /// Columns behind the last.
    pub right: u32,
}

impl Padding {
    /// As much on all sides.
    pub const fn all(size: u32) -> Self {
        Self { top: size, bottom: size, left: size, right: size }
    }
}

/// A window and how it moves: pairs are of rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Points that it takes.
    pub size: [u32; 2],
    /// From one position to the next.
    pub stride: [u32; 2],
    /// From one point that it takes to the next.
    pub dilation: [u32; 2],
    /// How far it reaches over the edges.
    pub padding: Padding,
}

impl Window {
    /// One that moves by one, takes points that follow one another and stays within the image.
    pub const fn new(height: u32, width: u32) -> Self {
        Self { size: [height, width], stride: [1, 1], dilation: [1, 1], padding: Padding::all(0) }
    }

    /// Rows and columns from its first point to its last.
    pub const fn span(&self) -> [u64; 2] {
        let [height, width] = self.size;
        let [down, across] = self.dilation;
        [
            height.saturating_sub(1) as u64 * down as u64 + 1,
            width.saturating_sub(1) as u64 * across as u64 + 1,
        ]
    }

    /// How often it fits along rows and columns; each is at least 1.
    fn positions(&self, source: Images) -> Checked<[u32; 2]> {
        let pairs = [("sizes", self.size), ("strides", self.stride), ("dilations", self.dilation)];
        for (name, [down, across]) in pairs {
            expect(down > 0 && across > 0, || {
                format!("the window's {name} are {down} and {across}, and none of the two may be 0")
            })?;
        }
        let Padding { top, bottom, left, right } = self.padding;
        let [rows, columns] = self.span();
        let along = |image: u32, before: u32, behind: u32, span: u64, stride: u32, what: &str| {
            let room = u64::from(image) + u64::from(before) + u64::from(behind);
            expect(span <= room, || {
                format!("the window takes {span} {what}, image and padding have {room}")
            })?;
            expect(u64::from(before.max(behind)) < span, || {
                format!("the padding of {} {what} is not less than the window's {span}", before.max(behind))
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

/// `result[o][y][x] = bias[o] + Σ weights[o][i][j][c] · source[c][y · stride + i · dilation − top][x …]`, with zeros for what
/// is not in the image. Weights lie as `[channel of the result][row][column][channel of the source]`. Weights and bias
/// are `f32` whatever the images' elements are; a device may round the weights to those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// The type of the images' elements.
    pub float: Float,
    /// The order of the images' elements.
    pub layout: Layout,
    /// The source.
    pub source: Images,
    /// Channels of the result.
    pub channels: u32,
    /// The window that the weights cover.
    pub window: Window,
    /// Whether there is a bias, one number for each channel of the result.
    pub bias: bool,
}

impl Convolution {
    /// The result's images; as many as the source's. For a shape that is wrong, nothing of use.
    pub fn result(&self) -> Images {
        let [height, width] = self.window.positions(self.source).unwrap_or_default();
        Images { channels: self.channels, height, width, ..self.source }
    }

    /// How many weights there are.
    pub const fn weights(&self) -> u128 {
        let [height, width] = self.window.size;
        (self.channels as u128 * self.source.channels as u128).saturating_mul(height as u128 * width as u128)
    }

    pub(super) fn operands(&self) -> Checked<Vec<Operand>> {
        let mut operands = vec![self.source.operand("source", self.float, OperandUse::Read)?];
        let [height, width] = self.window.positions(self.source)?;
        let float = Float::F32;
        let weights = bytes("weights", self.weights().saturating_mul(u128::from(float.size())))?;
        operands.push(Operand { name: "weights", float, bytes: weights, used: OperandUse::Read });
        if self.bias {
            let bytes = u64::from(self.channels) * float.size();
            operands.push(Operand { name: "bias", float, bytes, used: OperandUse::Read });
        }
        let result = Images { channels: self.channels, height, width, ..self.source };
        operands.push(result.operand("result", self.float, OperandUse::Replaced)?);
        Ok(operands)
    }
}

/// What a window's numbers become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PoolKind {
    /// The greatest of those in the image.
    Max,
    /// The mean of those in the image.
    Average,
    /// Their sum divided by the window's size, as if zeros were around the image.
    AverageWithPadding,
}

/// One number of each position of a window, for each channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooling {
    /// The type of all elements.
    pub float: Float,
    /// The order of the images' elements.
    pub layout: Layout,
    /// The source.
    pub source: Images,
    /// The window, whose dilation is 1.
    pub window: Window,
    /// What its numbers become.
    pub kind: PoolKind,
}

impl Pooling {
    /// The result's images; as many as the source's. For a shape that is wrong, nothing of use.
    pub fn result(&self) -> Images {
        let [height, width] = self.window.positions(self.source).unwrap_or_default();
        Images { height, width, ..self.source }
    }

    pub(super) fn operands(&self) -> Checked<Vec<Operand>> {
        let source = self.source.operand("source", self.float, OperandUse::Read)?;
        let [down, across] = self.window.dilation;
        expect(self.window.dilation == [1, 1], || {
            format!("the window's dilations are {down} and {across}, and pooling has none")
        })?;
        let [height, width] = self.window.positions(self.source)?;
        let result = Images { height, width, ..self.source };
        Ok(vec![source, result.operand("result", self.float, OperandUse::Replaced)?])
    }
}
