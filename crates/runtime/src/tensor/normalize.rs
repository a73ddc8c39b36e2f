//! [`Normalize`]: batch, layer, group and RMS normalization.

use elinvar_driver::Result;

use crate::tensor::axes::{Axes, bytes_of};
use crate::tensor::data_type::DataType;
use crate::tensor::kernel_cache::{File, Value};
use crate::tensor::map::{elements_of_a_thread, flat_grid, rows_grid};
use crate::tensor::operation::{
    Operands, Operate, Within, expect_float, expect_shape, fail, named_axes, reduced_shape,
};
use crate::tensor::plan::{StepArg, Steps};
use crate::tensor::rows::{Rows, step_class};
use crate::tensor::view::{Dims, TensorRef};

/// Where mean and variance come from, and whether they are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Statistics {
    /// Those of `x`.
    #[default]
    Computed,
    /// Those of `x`, which are outputs as well: `mean`, unless the normalization does not center, and `inverse_deviation`, `1 / √(variance
    /// + ε)`. They are `f32`, with the shape of `x` where the reduced axes have size 1.
    Saved,
    /// As `Saved`; and the outputs `running_mean` and `running_variance`, of the same type and shape, become `(1 - momentum) · previous +
    /// momentum · new`, with the unbiased variance (divisor n − 1).
    Running {
        /// Weight of the new statistics.
        momentum: f32,
    },
    /// Inputs: `mean`, unless the normalization does not center, and `variance`. They are `f32`, and broadcast to `x`.
    Given,
}

/// Normalization: `result = (x - mean) / √(variance + ε) · scale + bias`.
///
/// Inputs: `x`; `scale` and `bias` if they are set, which are broadcast to `x`; those of [`Statistics::Given`]. Outputs: `result`, with the
/// shape of `x`; those of [`Statistics::Saved`] or [`Statistics::Running`]. Mean and variance (divisor n) are over the axes, for each index
/// of the others.
///
/// For a batch normalization of channels in axis 1 of `[n, c, h, w]`, `scale` has the shape `[c, 1, 1]`. For a group normalization, `x` and
/// `result` are reshaped to `[n, groups, c / groups, …]`, and `scale` to `[groups, c / groups, 1, …]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalize {
    /// The axes that mean and variance are over.
    pub axes: Vec<usize>,
    /// Added to the variance.
    pub epsilon: f32,
    /// Whether the mean is subtracted. Without it, the variance is the mean of squares (RMS normalization).
    pub center: bool,
    /// Whether there is a scale.
    pub scale: bool,
    /// Whether there is a bias.
    pub bias: bool,
    /// The statistics.
    pub statistics: Statistics,
}

impl Normalize {
    fn new(axes: Vec<usize>) -> Self {
        let (center, statistics) = (true, Statistics::Computed);
        Self { axes, epsilon: 1e-5, center, scale: true, bias: true, statistics }
    }

    /// Layer normalization over these axes, with scale, bias and an ε of 1e-5.
    pub fn layer(axes: &[usize]) -> Self {
        Self::new(axes.to_vec())
    }

    /// RMS normalization over these axes, with scale and an ε of 1e-5, without bias.
    pub fn rms(axes: &[usize]) -> Self {
        Self { center: false, bias: false, ..Self::layer(axes) }
    }

    /// Batch normalization of a tensor of `rank` axes, over all but axis `channels`, with scale, bias and an ε of 1e-5.
    pub fn batch(channels: usize, rank: usize) -> Self {
        Self::new((0..rank).filter(|axis| *axis != channels).collect())
    }

    /// Group normalization of a tensor of `rank` axes, reshaped to `[n, groups, c / groups, …]`, with scale, bias and an ε of 1e-5.
    pub fn group(rank: usize) -> Self {
        Self::new((2..rank).collect())
    }

    /// Sets where mean and variance come from.
    #[must_use]
    pub fn statistics(self, statistics: Statistics) -> Self {
        Self { statistics, ..self }
    }

    fn saves(&self) -> bool {
        matches!(self.statistics, Statistics::Saved | Statistics::Running { .. })
    }

    fn runs(&self) -> bool {
        matches!(self.statistics, Statistics::Running { .. })
    }
}

/// Operands of the kernels, in the order of their strides.
const X: usize = 0;
const Y: usize = 1;
const SCALE: usize = 2;
const BIAS: usize = 3;
const MEAN: usize = 4;
const DEVIATION: usize = 5;
const RUNNING_MEAN: usize = 6;
const RUNNING_VARIANCE: usize = 7;
/// Number of the row, for intermediate results.
const ROW: usize = 8;
const OPERANDS: usize = 9;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Size {
    inner: u64,
    outer: u64,
    inner_parts: u64,
    outer_parts: u64,
    rows: u64,
    inner_steps: [u64; 4],
    kept_steps: [u64; OPERANDS],
    epsilon: f32,
    momentum: f32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct ApplySize {
    width: u64,
    steps: [u64; 6],
    epsilon: f32,
    padding: u32,
}

/// The operands of a normalization. Those that are missing have strides 0.
struct Views<'v> {
    all: Vec<TensorRef<'v>>,
    is_missing: Vec<bool>,
    is_reduced: Vec<bool>,
}

impl<'v> Views<'v> {
    fn new(of: &Normalize, operands: &Operands<'v>) -> Result<Self> {
        let (name, x) = (of.name(), operands.inputs[0]);
        let is_reduced = named_axes(name, &of.axes, x.shape())?;
        let (inputs, outputs) = of.operands();
        let input =
            |wanted: &str| inputs.iter().position(|name| *name == wanted).map(|at| operands.inputs[at]);
        let output =
            |wanted: &str| outputs.iter().position(|name| *name == wanted).map(|at| operands.outputs[at]);
        let kept = reduced_shape(x.shape(), &is_reduced, true);
        let missing = || {
            let mut view = x.clone();
            view.strides.fill(0);
            view
        };
        let view = |name_of: &str| -> Result<TensorRef<'v>> {
            let Some(view) = input(name_of).or_else(|| output(name_of)) else { return Ok(missing()) };
            view.broadcast(x.shape()).map_err(|error| error.within(name, name_of))
        };
        for name_of in ["mean", "inverse_deviation", "running_mean", "running_variance"] {
            if let Some(view) = output(name_of) {
                expect_shape(name, (name_of, view), ("expected for `x`", &kept))?;
            }
        }
        let result = operands.outputs[0];
        expect_shape(name, ("result", result), ("expected as of `x`", x.shape()))?;
        let deviation = if of.statistics == Statistics::Given { "variance" } else { "inverse_deviation" };
        let named = ["scale", "bias", "mean", deviation, "running_mean", "running_variance"];
        let others = named.iter().map(|name| view(name)).collect::<Result<Vec<_>>>()?;
        let is_missing = named.map(|name| input(name).is_none() && output(name).is_none());
        Ok(Self {
            all: [x.clone(), result.clone()].into_iter().chain(others).collect(),
            is_missing: [false, false].into_iter().chain(is_missing).collect(),
            is_reduced,
        })
    }

    fn arg(&self, operand: usize) -> StepArg {
        match self.is_missing[operand] {
            true => StepArg::unbound(),
            false => StepArg::tensor(&self.all[operand], !matches!(operand, X | SCALE | BIAS)),
        }
    }

    /// All axes, with the strides of all operands, and of the number of the row.
    fn axes(&self) -> Axes {
        let shape = self.all[X].shape();
        let mut row = Dims::from_elem(0, shape.len());
        let mut stride = 1;
        for axis in (0..shape.len()).rev().filter(|axis| !self.is_reduced[*axis]) {
            row[axis] = stride;
            stride *= shape[axis];
        }
        let strides: Vec<&[usize]> = self.all.iter().map(|view| view.strides()).chain([&row[..]]).collect();
        Axes::new(shape, &strides)
    }

    fn fit_32_bits(&self) -> bool {
        crate::tensor::axes::fits_32_bits(self.all.iter().map(|view| view.extent().max(self.all[X].len())))
    }
}

impl Operate for Normalize {
    fn name(&self) -> &'static str {
        "normalize"
    }

    fn operands(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let (mut inputs, mut outputs) = (vec!["x"], vec!["result"]);
        let optional = [("scale", self.scale), ("bias", self.bias)];
        inputs.extend(optional.iter().filter(|(_, has)| *has).map(|(name, _)| name));
        let mean = self.center.then_some("mean");
        match self.statistics {
            Statistics::Computed => {}
            Statistics::Given => inputs.extend(mean.into_iter().chain(["variance"])),
            Statistics::Saved => outputs.extend(mean.into_iter().chain(["inverse_deviation"])),
            Statistics::Running { .. } => {
                outputs.extend(mean.into_iter().chain([
                    "inverse_deviation",
                    "running_mean",
                    "running_variance",
                ]));
            }
        }
        (inputs, outputs)
    }

    fn check(&self, operands: &Operands<'_>) -> Result<()> {
        let (inputs, outputs) = self.operands();
        let inputs = inputs.iter().zip(operands.inputs);
        for (name, view) in inputs.chain(outputs.iter().zip(operands.outputs)) {
            expect_float(self.name(), name, view)?;
            let is_statistic = !["x", "result", "scale", "bias"].contains(name);
            if is_statistic && view.data_type != DataType::F32 {
                return Err(fail(self.name(), format_args!("`{name}` {view}: statistics are f32")));
            }
        }
        if self.runs() && !self.center {
            return Err(fail(self.name(), "running statistics need a mean, which is not subtracted"));
        }
        Views::new(self, operands).map(drop)
    }

    fn flops(&self, operands: &Operands<'_>) -> u64 {
        // Mean: 1; squares: 3; result: 4.
        let per_element = if self.statistics == Statistics::Given { 4 } else { 8 };
        per_element * operands.inputs[0].len() as u64
    }

    fn add_steps(&self, operands: &Operands<'_>, steps: &mut Steps) -> Result<()> {
        let views = Views::new(self, operands)?;
        let axes = views.axes();
        if operands.inputs[0].is_empty() {
            return Err(fail(self.name(), format_args!("`x` {} has no elements", operands.inputs[0])));
        }
        if self.statistics == Statistics::Given {
            steps.algorithm = "element-wise";
            let statistics = [views.arg(MEAN), views.arg(DEVIATION)];
            return self.apply(&views, &axes, statistics, true, steps);
        }
        let rows = Rows::new(&axes, &views.is_reduced, false);
        let parts = rows.parts(steps.device().caps().limits.compute_units);
        if parts == 1 {
            steps.algorithm = if rows.are_columns() { "columns" } else { "rows" };
            let args = [X, SCALE, BIAS, Y, MEAN, DEVIATION, RUNNING_MEAN, RUNNING_VARIANCE];
            let args = args.map(|operand| views.arg(operand)).into();
            return self.launch("normalize", &views, &rows, 1, args, steps);
        }
        let count = rows.count() as u64;
        let [mean, deviation] = [(); 2].map(|()| StepArg::Workspace(steps.workspace(count * 4)));
        let partial = StepArg::Workspace(steps.workspace(count * parts as u64 * 8));
        let args = vec![views.arg(X), partial.clone()];
        self.launch("normalize_statistics", &views, &rows, parts, args, steps)?;
        let saved = [MEAN, DEVIATION, RUNNING_MEAN, RUNNING_VARIANCE].map(|operand| views.arg(operand));
        let args = [partial, mean.clone(), deviation.clone()].into_iter().chain(saved).collect();
        self.launch("normalize_merge", &views, &rows, parts, args, steps)?;
        // The statistics are now at the number of each row.
        let mut of_rows = axes;
        of_rows.strides[MEAN] = of_rows.strides[ROW].clone();
        of_rows.strides[DEVIATION] = of_rows.strides[ROW].clone();
        self.apply(&views, &of_rows, [mean, deviation], false, steps)?;
        steps.algorithm = if rows.are_columns() { "columns in parts" } else { "rows in parts" };
        Ok(())
    }
}

impl Normalize {
    /// Function constants that all kernels have.
    fn constants(&self, views: &Views<'_>) -> Vec<(u32, Value)> {
        let code = |operand: usize| views.all[operand].data_type.code().into();
        vec![
            (0, code(X)),
            (1, code(Y)),
            (2, code(SCALE)),
            (3, code(BIAS)),
            (12, self.center.into()),
            (13, self.scale.into()),
            (14, self.bias.into()),
            (15, self.saves().into()),
            (16, self.runs().into()),
        ]
    }

    /// Launches a kernel over rows.
    fn launch(
        &self,
        kernel: &str,
        views: &Views<'_>,
        rows: &Rows,
        parts: usize,
        mut args: Vec<StepArg>,
        steps: &mut Steps,
    ) -> Result<()> {
        let is_merge = kernel == "normalize_merge";
        let columns = rows.are_columns();
        let (inner, inner_steps, outer) = rows.reduced.split_inner();
        let (_, kept_steps, kept_outer) = rows.kept.split_inner();
        let by_outer = outer.count() >= parts;
        let momentum = if let Statistics::Running { momentum } = self.statistics { momentum } else { 0.0 };
        let size = Size {
            inner: inner as u64,
            outer: outer.count() as u64,
            inner_parts: if by_outer { 1 } else { parts as u64 },
            outer_parts: if by_outer { parts as u64 } else { 1 },
            rows: rows.count() as u64,
            inner_steps: std::array::from_fn(|operand| inner_steps[operand] as u64),
            kept_steps: std::array::from_fn(|operand| kept_steps[operand] as u64),
            epsilon: self.epsilon,
            momentum,
        };
        let kept = if columns && !is_merge { &kept_outer } else { &rows.kept };
        let along = if columns { &kept_steps } else { &inner_steps };
        let reduced = Axes { sizes: outer.sizes.clone(), strides: outer.strides[..4].to_vec() };
        let mut constants = self.constants(views);
        constants.extend([
            (4, (kept.rank_class() as u32).into()),
            (5, (outer.rank_class() as u32).into()),
            (6, step_class(along[X]).into()),
            (7, step_class(along[Y]).into()),
            (8, parameter_class([along[SCALE], along[BIAS]]).into()),
            (9, rows.are_long().into()),
            (10, (columns || inner >= outer.count().min(64)).into()),
            (11, columns.into()),
        ]);
        let name = match (kernel, views.fit_32_bits()) {
            ("normalize", true) => "normalize_32",
            ("normalize", false) => "normalize_64",
            ("normalize_statistics", true) => "normalize_statistics_32",
            ("normalize_statistics", false) => "normalize_statistics_64",
            (_, true) => "normalize_merge_32",
            (_, false) => "normalize_merge_64",
        };
        args.push(StepArg::bytes(kept.bytes()));
        if !is_merge {
            args.push(StepArg::bytes(reduced.bytes()));
        }
        args.push(StepArg::bytes(bytes_of(&size)));
        let grid = match (is_merge, columns) {
            (true, _) => flat_grid(rows.count()),
            (false, true) => rows.column_grid(parts),
            (false, false) => rows.grid(parts)?,
        };
        steps.launch(File::Normalize, name, &constants, grid, args)
    }

    /// Launches the element-wise kernel with statistics.
    fn apply(
        &self,
        views: &Views<'_>,
        axes: &Axes,
        statistics: [StepArg; 2],
        of_variance: bool,
        steps: &mut Steps,
    ) -> Result<()> {
        let axes = Axes { sizes: axes.sizes.clone(), strides: axes.strides[..6].to_vec() };
        let axes = axes.sorted(Y).collapsed();
        let (inner, inner_steps, outer) = axes.split_inner();
        let is_flat = inner < 32 && axes.sizes.len() > 1;
        let parameters: Dims = inner_steps[SCALE..].into();
        let mut constants = self.constants(views);
        let per_thread = if is_flat { 1 } else { elements_of_a_thread(steps, inner) };
        let (kept, grid) = if is_flat {
            (&axes, flat_grid(axes.count()))
        } else {
            (&outer, rows_grid(inner.div_ceil(per_thread), outer.count()))
        };
        constants.extend([
            (4, (kept.rank_class() as u32).into()),
            (6, step_class(inner_steps[X]).into()),
            (7, step_class(inner_steps[Y]).into()),
            (8, parameter_class(parameters).into()),
            (17, of_variance.into()),
            (18, is_flat.into()),
            (19, (per_thread as u32).into()),
        ]);
        let size = ApplySize {
            width: inner as u64,
            steps: std::array::from_fn(|operand| inner_steps[operand] as u64),
            epsilon: self.epsilon,
            padding: 0,
        };
        let name = if views.fit_32_bits() { "normalize_apply_32" } else { "normalize_apply_64" };
        let [mean, deviation] = statistics;
        let args = [
            views.arg(X),
            views.arg(SCALE),
            views.arg(BIAS),
            views.arg(Y),
            mean,
            deviation,
            StepArg::bytes(kept.bytes()),
            StepArg::bytes(bytes_of(&size)),
        ];
        steps.launch(File::Normalize, name, &constants, grid, args)
    }
}

/// Strides as a function constant: all 0, all 1, or 2 for any other.
fn parameter_class(strides: impl IntoIterator<Item = usize> + Clone) -> u32 {
    let all = |stride: usize| strides.clone().into_iter().all(|of| of == stride);
    match (all(0), all(1)) {
        (true, _) => 0,
        (_, true) => 1,
        _ => 2,
    }
}
