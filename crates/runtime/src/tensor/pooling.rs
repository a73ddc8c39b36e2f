//! [`Pooling`]: maxima and means of windows.

use elinvar_driver::Result;

use crate::Grid;
use crate::tensor::kernel_cache::File;
use crate::tensor::operation::{Operands, Operate, expect_float, expect_shape, fail};
use crate::tensor::plan::{StepArg, Steps};
use crate::tensor::view::Dims;
use crate::tensor::window::{Geometry, Window};

/// What the elements of a window become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolingKind {
    /// The maximum of those within the image, or NaN if one is.
    Max = 0,
    /// The mean of those within the image.
    Average = 1,
    /// The mean of all, of which those in the padding are 0.
    AverageWithPadding = 2,
}

/// Pooling of images with one to three spatial axes.
///
/// Input: `x` of shape `[n, channels, …]`, of floats. Output: `result` of `[n, channels, …]`, of floats, whose spatial axes have
/// `(size + padding - dilation · (window - 1) - 1) / stride + 1` elements, rounded down. Images with the channels last are given as views
/// with permuted axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pooling {
    /// What the elements become.
    pub kind: PoolingKind,
    /// Size of the windows along each spatial axis.
    pub size: Vec<usize>,
    /// How the windows move.
    pub window: Window,
}

impl Pooling {
    /// Pooling of windows of this size.
    pub fn new(kind: PoolingKind, size: &[usize], window: Window) -> Self {
        Self { kind, size: size.to_vec(), window }
    }
}

impl Operate for Pooling {
    fn name(&self) -> &'static str {
        match self.kind {
            PoolingKind::Max => "max_pooling",
            PoolingKind::Average | PoolingKind::AverageWithPadding => "average_pooling",
        }
    }

    fn operands(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        (vec!["x"], vec!["result"])
    }

    fn check(&self, operands: &Operands<'_>) -> Result<()> {
        let (name, x, result) = (self.name(), operands.inputs[0], operands.outputs[0]);
        expect_float(name, "x", x)?;
        expect_float(name, "result", result)?;
        if x.rank() != self.size.len() + 2 {
            let size = &self.size;
            return Err(fail(
                name,
                format_args!("`x` {x}: its axes are not n, channels, and those of {size:?}"),
            ));
        }
        let along = self.window.along(name, &self.size)?;
        let mut shape: Dims = x.shape()[..2].into();
        for (axis, along) in along.iter().enumerate() {
            let input = x.shape()[axis + 2];
            let windows = along.windows(input).ok_or_else(|| {
                let (size, padding) = (along.size, along.padding);
                fail(
                    name,
                    format_args!(
                        "`x` {x}: axis {} with padding {padding:?} is shorter than a window of {size}",
                        axis + 2
                    ),
                )
            })?;
            shape.push(windows);
        }
        expect_shape(name, ("result", result), ("expected for `x`", &shape))?;
        Geometry::new(name, &along, x, result).map(drop)
    }

    fn flops(&self, operands: &Operands<'_>) -> u64 {
        let window = self.size.iter().fold(1u64, |all, size| all.saturating_mul(*size as u64));
        (operands.outputs[0].len() as u64).saturating_mul(window)
    }

    fn add_steps(&self, operands: &Operands<'_>, steps: &mut Steps) -> Result<()> {
        let (x, result) = (operands.inputs[0], operands.outputs[0]);
        let along = self.window.along(self.name(), &self.size)?;
        let mut geometry = Geometry::new(self.name(), &along, x, result)?;
        geometry.in_channels = x.shape()[1] as u32;
        let constants = [
            (0, x.data_type.code().into()),
            (1, result.data_type.code().into()),
            (6, false.into()),
            (7, geometry.is_dense().into()),
            (8, (self.kind as u32).into()),
        ];
        let (width, lines) = geometry.threads();
        let grid = Grid::threads((width, lines, x.shape()[0] * x.shape()[1]));
        let args = [StepArg::tensor(x, false), StepArg::tensor(result, true), geometry.arg()];
        steps.algorithm = "direct";
        steps.launch(File::Window, "pool", &constants, grid, args)
    }
}
