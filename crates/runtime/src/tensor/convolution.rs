//! [`Convolution`]: convolutions and transposed convolutions, and their algorithms.

use elinvar_driver::Result;

use crate::Grid;
use crate::tensor::activation::Activation;
use crate::tensor::axes::Axes;
use crate::tensor::data_type::DataType;
use crate::tensor::kernel_cache::{File, Value};
use crate::tensor::map::{Map, Operand, map};
use crate::tensor::matmul::{Epilogue, Matrix, Product};
use crate::tensor::operation::{Operands, Operate, expect_float, expect_shape, fail};
use crate::tensor::plan::{StepArg, Steps};
use crate::tensor::view::{Dims, TensorRef};
use crate::tensor::window::{Along, Geometry, Window, three};

/// A convolution of images with one to three spatial axes: cross-correlation, as in neural networks.
///
/// Inputs: `x` of shape `[n, in, …]`; `weights` of `[out, in / groups, …]`, or, transposed, of `[in, out / groups, …]`; `bias` of `[out]` if
/// it is set. Output: `result` of `[n, out, …]`. All are floats. The spatial axes of the result have
/// `(size + padding - dilation · (window - 1) - 1) / stride + 1` elements, rounded down; transposed, `(size - 1) · stride + dilation ·
/// (window - 1) + 1 - padding`, or up to `stride - 1` more, as the result's shape says. Images with the channels last are given as views
/// with permuted axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// How the windows move.
    pub window: Window,
    /// Groups of channels, each of which is convolved for itself.
    pub groups: usize,
    /// Whether it is the transposed (fractionally strided) convolution.
    pub transposed: bool,
    /// Whether there is a bias.
    pub bias: bool,
    /// Activation function.
    pub activation: Activation,
}

impl Default for Convolution {
    /// Windows of stride 1, without padding, groups or bias.
    fn default() -> Self {
        Self {
            window: Window::default(),
            groups: 1,
            transposed: false,
            bias: false,
            activation: Activation::None,
        }
    }
}

const DIRECT: &str = "direct";
const UNFOLDED: &str = "unfolded matrix product";
const POINTWISE: &str = "matrix product";

/// Channels of the result that a thread of the direct kernel has.
const BLOCK: usize = 4;
/// Columns of a packed panel of a product.
const PANEL: usize = 32;
/// Elements of the largest image that is unfolded.
const LARGEST_UNFOLDED: usize = 1 << 32;
/// Largest workspace of an unfolded matrix, unless one image needs more.
const MOST_UNFOLDED: usize = 256 << 20;

/// The checked shape of a convolution.
struct Shape {
    along: Vec<Along>,
    /// Channels of a group.
    in_channels: usize,
    out_channels: usize,
}

impl Convolution {
    fn shape(&self, operands: &Operands<'_>) -> Result<Shape> {
        let (name, x, weights, result) =
            (self.name(), operands.inputs[0], operands.inputs[1], operands.outputs[0]);
        if x.rank() < 3 || weights.rank() != x.rank() {
            return Err(fail(
                name,
                format_args!("`x` {x} and `weights` {weights} must have the same number of axes, 3 to 5"),
            ));
        }
        let along = self.window.along(name, &weights.shape()[2..])?;
        let (channels, groups) = (x.shape()[1], self.groups);
        if groups == 0 || !channels.is_multiple_of(groups) {
            return Err(fail(name, format_args!("`x` {x}: {channels} channels in {groups} groups")));
        }
        let in_channels = channels / groups;
        let (of_in, all_out) = match self.transposed {
            true => (weights.shape()[0] / groups, weights.shape()[1] * groups),
            false => (weights.shape()[1], weights.shape()[0]),
        };
        let is_even = all_out.is_multiple_of(groups) && (!self.transposed || weights.shape()[0] == channels);
        if of_in != in_channels || !is_even {
            return Err(fail(
                name,
                format_args!("`weights` {weights} for `x` {x} in {groups} groups: their channels do not fit"),
            ));
        }
        let mut shape: Dims = [x.shape()[0], all_out].as_slice().into();
        for (axis, along) in along.iter().enumerate() {
            let (input, given) = (x.shape()[axis + 2], result.shape().get(axis + 2).copied().unwrap_or(0));
            let size = match self.transposed {
                false => along.windows(input),
                true => along.covered(input).map(|least| given.clamp(least, least + along.stride - 1)),
            };
            shape.push(size.ok_or_else(|| {
                let (size, padding) = (along.size, along.padding);
                fail(
                    name,
                    format_args!(
                        "`x` {x}: axis {} with padding {padding:?} has no place for a window of {size}",
                        axis + 2
                    ),
                )
            })?);
        }
        let reason = format!("expected for `x` {x} and `weights` {weights}");
        expect_shape(name, ("result", result), (&reason, &shape))?;
        if let Some(bias) = operands.inputs.get(2) {
            expect_shape(name, ("bias", bias), ("expected for `result`", &[all_out]))?;
        }
        Ok(Shape { along, in_channels, out_channels: all_out / groups })
    }

    fn geometry(&self, shape: &Shape, operands: &Operands<'_>) -> Result<Geometry> {
        let (x, weights, result) = (operands.inputs[0], operands.inputs[1], operands.outputs[0]);
        let mut geometry = Geometry::new(self.name(), &shape.along, x, result)?;
        let strides = weights.strides();
        // In the weights of a transposed convolution, the channels of the input come first.
        let (out, of_in) = if self.transposed { (strides[1], strides[0]) } else { (strides[0], strides[1]) };
        let of_group = if self.transposed { shape.in_channels * of_in } else { shape.out_channels * out };
        geometry.in_channels = shape.in_channels as u32;
        geometry.out_channels = shape.out_channels as u32;
        geometry.groups = self.groups as u32;
        geometry.weight_group = of_group as u64;
        (geometry.weight_out, geometry.weight_in) = (out as u64, of_in as u64);
        geometry.weight_space = three(&strides[2..], 0);
        geometry.bias = operands.inputs.get(2).map_or(0, |bias| bias.strides()[0] as u64);
        Ok(geometry)
    }

    fn constants(
        &self,
        geometry: &Geometry,
        operands: &Operands<'_>,
        out_type: DataType,
    ) -> Vec<(u32, Value)> {
        let bias = operands.inputs.get(2).map(|bias| bias.data_type);
        vec![
            (0, operands.inputs[0].data_type.code().into()),
            (1, out_type.code().into()),
            (2, operands.inputs[1].data_type.code().into()),
            (3, bias.unwrap_or(out_type).code().into()),
            (4, bias.is_some().into()),
            (5, self.activation.code().into()),
            (6, self.transposed.into()),
            (7, (geometry.is_dense() && !self.transposed).into()),
        ]
    }

    fn direct(&self, shape: &Shape, operands: &Operands<'_>, steps: &mut Steps) -> Result<()> {
        let (x, weights, result) = (operands.inputs[0], operands.inputs[1], operands.outputs[0]);
        let geometry = self.geometry(shape, operands)?;
        let constants = self.constants(&geometry, operands, result.data_type);
        let (width, lines) = geometry.threads();
        let blocks = shape.out_channels.div_ceil(BLOCK) * self.groups * x.shape()[0];
        let args = [
            StepArg::tensor(x, false),
            StepArg::tensor(weights, false),
            operands.inputs.get(2).map_or_else(StepArg::unbound, |bias| StepArg::tensor(bias, false)),
            StepArg::tensor(result, true),
            geometry.arg(),
        ];
        steps.launch(File::Window, "convolve", &constants, Grid::threads((width, lines, blocks)), args)
    }

    /// The weights as a matrix with consecutive rows of `terms` elements for each channel of the result, of type `data_type`: as they are,
    /// or copied. Returns it with its stride of groups.
    fn weight_matrix(
        &self,
        shape: &Shape,
        weights: &TensorRef<'_>,
        data_type: DataType,
        steps: &mut Steps,
    ) -> Result<(Matrix, usize)> {
        let (groups, taps) = (self.groups, &weights.shape()[2..]);
        let terms = shape.in_channels * taps.iter().product::<usize>();
        let strides = weights.strides();
        if !self.transposed && weights.data_type == data_type && weights.is_contiguous() {
            let matrix = Matrix { arg: StepArg::tensor(weights, false), row: terms, column: 1 };
            return Ok((matrix, terms * shape.out_channels));
        }
        // Groups, channels of the result, channels of the input, window.
        let of_group =
            if self.transposed { shape.in_channels * strides[0] } else { shape.out_channels * strides[0] };
        let channels = if self.transposed { [strides[1], strides[0]] } else { [strides[0], strides[1]] };
        let sizes: Dims =
            [groups, shape.out_channels, shape.in_channels].iter().chain(taps).copied().collect();
        let from = Operand {
            arg: StepArg::tensor(weights, false),
            data_type: weights.data_type,
            strides: [of_group].iter().chain(&channels).chain(&strides[2..]).copied().collect(),
        };
        let memory = steps.workspace((groups * shape.out_channels * terms) as u64 * data_type.size());
        let mut to =
            Operand { arg: StepArg::Workspace(memory), data_type, strides: Dims::from_elem(1, sizes.len()) };
        for axis in (0..sizes.len() - 1).rev() {
            to.strides[axis] = to.strides[axis + 1] * sizes[axis + 1];
        }
        map(Map::COPY, &sizes, &[from], &to, steps)?;
        Ok((Matrix { arg: to.arg, row: terms, column: 1 }, terms * shape.out_channels))
    }

    fn unfolded(
        &self,
        shape: &Shape,
        operands: &Operands<'_>,
        space: usize,
        steps: &mut Steps,
    ) -> Result<()> {
        let (x, weights) = (operands.inputs[0], operands.inputs[1]);
        let is_cpu = steps.is_cpu();
        let widens = is_cpu || x.data_type != weights.data_type;
        let data_type = if widens { DataType::F32 } else { x.data_type };
        let mut geometry = self.geometry(shape, operands)?;
        let constants = self.constants(&geometry, operands, data_type);
        let (width, lines) = geometry.threads();
        let (columns, groups, images) = (width * lines, self.groups, x.shape()[0]);
        let terms = shape.in_channels * weights.shape()[2..].iter().product::<usize>();
        let (a, a_group) = self.weight_matrix(shape, weights, data_type, steps)?;
        // In panels for the product by columns; as rows for simdgroup matrices.
        let panels = columns.div_ceil(PANEL);
        let (panel, row) = if is_cpu { (terms * PANEL, PANEL) } else { (PANEL, panels * PANEL) };
        let matrix = terms * panels * PANEL;
        (geometry.matrix, geometry.panel, geometry.row) = (matrix as u64, panel as u64, row as u64);
        let bytes = matrix * groups * data_type.size() as usize;
        let at_once = (MOST_UNFOLDED / bytes.max(1)).clamp(1, images);
        let memory = StepArg::Workspace(steps.workspace((bytes * at_once) as u64));
        for first in (0..images).step_by(at_once) {
            let count = at_once.min(images - first);
            geometry.first_image = first as u32;
            let args = [StepArg::tensor(x, false), memory.clone(), geometry.arg()];
            let grid = Grid::threads((width, lines, count * groups * terms));
            steps.launch(File::Window, "unfold", &constants, grid, args)?;
            let b = Matrix { arg: memory.clone(), row, column: 1 };
            let (a, b) = ((a.clone(), a_group), (b, [groups * matrix, matrix]));
            self.product(
                shape,
                operands,
                (first, count),
                (data_type, terms, columns),
                a,
                b,
                panel,
                space,
                steps,
            )?;
        }
        Ok(())
    }

    /// The product of weights and columns, for `count` images from the first.
    #[allow(clippy::too_many_arguments)] // the sizes of one product
    fn product(
        &self,
        shape: &Shape,
        operands: &Operands<'_>,
        (first, count): (usize, usize),
        (data_type, terms, columns): (DataType, usize, usize),
        (a, a_group): (Matrix, usize),
        (b, [b_image, b_group]): (Matrix, [usize; 2]),
        b_panel: usize,
        space: usize,
        steps: &mut Steps,
    ) -> Result<()> {
        let result = operands.outputs[0];
        let (image, channel) = (result.strides()[0], result.strides()[1]);
        let bias = operands.inputs.get(2);
        let bias_step = bias.map_or(0, |bias| bias.strides()[0]);
        let strides: [[usize; 2]; 4] = [
            [0, a_group],
            [b_image, b_group],
            [image, shape.out_channels * channel],
            [0, shape.out_channels * bias_step],
        ];
        let strides: Vec<&[usize]> = strides.iter().map(|strides| &strides[..]).collect();
        let begin = (first * image) as u64 * result.data_type.size();
        let product = Product {
            data_type,
            rows: shape.out_channels,
            columns,
            terms,
            a,
            b,
            b_panel,
            out: Matrix { arg: StepArg::tensor(result, true).skipping(begin), row: channel, column: space },
            bias: Matrix {
                arg: bias.map_or_else(StepArg::unbound, |bias| StepArg::tensor(bias, false)),
                row: bias_step,
                column: 0,
            },
            batch: Axes::new(&[count, self.groups], &strides).collapsed(),
        };
        let epilogue = Epilogue {
            alpha: 1.0,
            beta: 0.0,
            activation: self.activation,
            out_type: result.data_type,
            bias_type: bias.map(|bias| bias.data_type),
        };
        product.add_steps(epilogue, None, steps)
    }
}

/// Stride of the spatial axes as one axis, if they are one.
fn space_stride(view: &TensorRef<'_>) -> Option<usize> {
    let axes = Axes::new(&view.shape()[2..], &[&view.strides()[2..]]).collapsed();
    let (_, strides, outer) = axes.split_inner();
    outer.sizes.is_empty().then_some(strides[0])
}

impl Operate for Convolution {
    fn name(&self) -> &'static str {
        if self.transposed { "transposed_convolution" } else { "convolution" }
    }

    fn operands(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let inputs = if self.bias { vec!["x", "weights", "bias"] } else { vec!["x", "weights"] };
        (inputs, vec!["result"])
    }

    fn check(&self, operands: &Operands<'_>) -> Result<()> {
        for (name, view) in self.operands().0.iter().zip(operands.inputs) {
            expect_float(self.name(), name, view)?;
        }
        expect_float(self.name(), "result", operands.outputs[0])?;
        let shape = self.shape(operands)?;
        self.geometry(&shape, operands).map(drop)
    }

    fn flops(&self, operands: &Operands<'_>) -> u64 {
        let (x, weights, result) = (operands.inputs[0], operands.inputs[1], operands.outputs[0]);
        let moved = if self.transposed { x } else { result };
        (2 * moved.len() as u64).saturating_mul(weights.shape()[1..].iter().product::<usize>() as u64)
    }

    fn algorithms(&self) -> &'static [&'static str] {
        &[DIRECT, UNFOLDED, POINTWISE]
    }

    fn add_steps(&self, operands: &Operands<'_>, steps: &mut Steps) -> Result<()> {
        let (x, weights, result) = (operands.inputs[0], operands.inputs[1], operands.outputs[0]);
        let shape = self.shape(operands)?;
        let wanted = steps.wanted;
        let may_use = |algorithm: &str| wanted.is_none_or(|wanted| wanted == algorithm);
        let terms = shape.in_channels * weights.shape()[2..].iter().product::<usize>();
        let is_worth_it = wanted.is_some() || shape.out_channels >= 8 && terms >= 8;
        let is_pointwise = !self.transposed
            && x.data_type == weights.data_type
            && shape.along.iter().all(|along| (along.size, along.stride, along.padding) == (1, 1, (0, 0)));
        if let (Some(space), true) = (space_stride(result), terms > 0 && is_worth_it) {
            if let (true, true, Some(step)) = (is_pointwise, may_use(POINTWISE), space_stride(x)) {
                let (a, a_group) = self.weight_matrix(&shape, weights, x.data_type, steps)?;
                let (image, channel) = (x.strides()[0], x.strides()[1]);
                let b = Matrix { arg: StepArg::tensor(x, false), row: channel, column: step };
                let (b, columns) =
                    ((b, [image, shape.in_channels * channel]), x.shape()[2..].iter().product());
                let sizes = (x.data_type, terms, columns);
                let images = (0, x.shape()[0]);
                self.product(&shape, operands, images, sizes, (a, a_group), b, step * PANEL, space, steps)?;
                steps.algorithm = POINTWISE;
                return Ok(());
            }
            let columns = result.shape()[2..].iter().product::<usize>();
            let size = terms.checked_mul(columns).and_then(|size| size.checked_mul(self.groups));
            if may_use(UNFOLDED) && size.is_some_and(|size| size < LARGEST_UNFOLDED) {
                self.unfolded(&shape, operands, space, steps)?;
                steps.algorithm = UNFOLDED;
                return Ok(());
            }
        }
        self.direct(&shape, operands, steps)?;
        steps.algorithm = DIRECT;
        Ok(())
    }
}
