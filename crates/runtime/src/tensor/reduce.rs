//! [`Reduce`] and [`Softmax`]: operations along axes.

use elinvar_driver::Result;

use crate::tensor::DataType;
use crate::tensor::axes::{Axes, bytes_of, fits_32_bits};
use crate::tensor::kernel_cache::File;
use crate::tensor::operation::{
    Operands, Operate, expect_float, expect_shape, fail, named_axes, reduced_shape,
};
use crate::tensor::plan::{StepArg, Steps};
use crate::tensor::rows::{GROUP, Rows, SIMDGROUP, step_class};
use crate::tensor::view::Dims;

/// What elements are reduced to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reduction {
    /// Sum; 0 of no elements.
    Sum = 0,
    /// Arithmetic mean; NaN of no elements.
    Mean = 1,
    /// Product; 1 of no elements.
    Product = 2,
    /// Minimum, or NaN if an element is.
    Min = 3,
    /// Maximum, or NaN if an element is.
    Max = 4,
    /// Index of the minimum, the first of several; that of the first NaN, if there is one. Along several axes, it counts their elements in
    /// row-major order.
    ArgMin = 5,
    /// Index of the maximum, as for the minimum.
    ArgMax = 6,
}

/// A reduction along axes.
///
/// Input: `x`. Output: `result`, with the shape of `x` without the axes, or with these axes of size 1. The types may differ. Integers are
/// reduced to integers in `i32`, wrapping; the result of an index is `i32`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    /// What the elements are reduced to.
    pub reduction: Reduction,
    /// The axes, in any order. None: each element for itself.
    pub axes: Vec<usize>,
    /// Whether the axes are kept in the result, with size 1.
    pub keep_axes: bool,
}

impl Reduce {
    /// A reduction that removes the axes.
    pub fn new(reduction: Reduction, axes: &[usize]) -> Self {
        Self { reduction, axes: axes.to_vec(), keep_axes: false }
    }

    /// A sum that removes the axes.
    pub fn sum(axes: &[usize]) -> Self {
        Self::new(Reduction::Sum, axes)
    }

    /// A mean that removes the axes.
    pub fn mean(axes: &[usize]) -> Self {
        Self::new(Reduction::Mean, axes)
    }

    /// Keeps the axes in the result, with size 1.
    #[must_use]
    pub fn keep_axes(self) -> Self {
        Self { keep_axes: true, ..self }
    }

    fn is_index(&self) -> bool {
        matches!(self.reduction, Reduction::ArgMin | Reduction::ArgMax)
    }
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Size {
    inner: u64,
    inner_step: u64,
    outer: u64,
    inner_parts: u64,
    outer_parts: u64,
    kept_step: u64,
    kept_out_step: u64,
    divisor: f32,
    rows: u32,
}

impl Operate for Reduce {
    fn name(&self) -> &'static str {
        match self.reduction {
            Reduction::Sum => "sum",
            Reduction::Mean => "mean",
            Reduction::Product => "product",
            Reduction::Min => "minimum",
            Reduction::Max => "maximum",
            Reduction::ArgMin => "argmin",
            Reduction::ArgMax => "argmax",
        }
    }

    fn operands(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        (vec!["x"], vec!["result"])
    }

    fn check(&self, operands: &Operands<'_>) -> Result<()> {
        let (name, x, result) = (self.name(), operands.inputs[0], operands.outputs[0]);
        let named = named_axes(name, &self.axes, x.shape())?;
        let shape = reduced_shape(x.shape(), &named, self.keep_axes);
        let axes = &self.axes;
        let reason = format!("expected for `x` {x} along {axes:?}");
        expect_shape(name, ("result", result), (&reason, &shape))?;
        let is_extreme = !matches!(self.reduction, Reduction::Sum | Reduction::Mean | Reduction::Product);
        let length: usize = axes.iter().map(|axis| x.shape()[*axis]).product();
        if is_extreme && length == 0 && !result.is_empty() {
            return Err(fail(name, format_args!("`x` {x} has no elements along {axes:?}")));
        }
        if self.is_index() && result.data_type != DataType::I32 {
            return Err(fail(name, format_args!("`result` {result}: an index is i32")));
        }
        if self.is_index() && length > i32::MAX as usize {
            return Err(fail(name, format_args!("`x` {x} has {length} elements along {axes:?}, beyond i32")));
        }
        let to_integer = !result.data_type.is_float() && !self.is_index();
        if to_integer && (x.data_type.is_float() || self.reduction == Reduction::Mean) {
            return Err(fail(name, format_args!("`result` {result}: it must be of floats for `x` {x}")));
        }
        Ok(())
    }

    fn flops(&self, operands: &Operands<'_>) -> u64 {
        operands.inputs[0].len() as u64
    }

    fn add_steps(&self, operands: &Operands<'_>, steps: &mut Steps) -> Result<()> {
        let (x, result) = (operands.inputs[0], operands.outputs[0]);
        let named = named_axes(self.name(), &self.axes, x.shape())?;
        let mut kept_strides = result.strides().iter();
        let result_strides: Dims = named
            .iter()
            .map(|named| match (named, self.keep_axes) {
                (true, false) => 0,
                _ => kept_strides.next().copied().unwrap_or(0),
            })
            .collect();
        let axes = Axes::new(x.shape(), &[x.strides(), &result_strides]);
        let rows = Rows::new(&axes, &named, self.is_index());
        let parts = if self.is_index() { 1 } else { rows.parts(steps.device().caps().limits.compute_units) };
        let source = Source { arg: StepArg::tensor(x, false), data_type: x.data_type };
        let target = Source { arg: StepArg::tensor(result, true), data_type: result.data_type };
        let floats = x.data_type.is_float() || result.data_type.is_float();
        let launch = Launch { reduction: self.reduction, floats, wide: !operands.fit_32_bits() };
        let count = rows.length() as f32;
        if parts == 1 {
            steps.algorithm = if rows.are_columns() { "columns" } else { "rows" };
            return launch.add(rows, 1, count, source, target, steps);
        }
        steps.algorithm = if rows.are_columns() { "columns in parts" } else { "rows in parts" };
        let data_type = if floats { DataType::F32 } else { DataType::I32 };
        let workspace = steps.workspace((rows.count() * parts) as u64 * 4);
        let partial = || Source { arg: StepArg::Workspace(workspace), data_type };
        // The strides of the parts' results, which are consecutive for each row.
        let mut stride = parts;
        let mut strides = Dims::from_elem(0, rows.kept.sizes.len());
        for (axis, size) in rows.kept.sizes.iter().enumerate().rev() {
            strides[axis] = stride;
            stride *= size;
        }
        let of = |kept: [&Dims; 2], reduced: Axes| Rows {
            kept: Axes { sizes: rows.kept.sizes.clone(), strides: kept.map(Dims::clone).to_vec() },
            reduced,
        };
        let parts_axis = Axes::new(&[parts], &[&[1], &[0]]);
        let first = of([&rows.kept.strides[0], &strides], rows.reduced.clone());
        let second = of([&strides, &rows.kept.strides[1]], parts_axis);
        let sum = match self.reduction {
            Reduction::Mean => Reduction::Sum,
            other => other,
        };
        Launch { reduction: sum, ..launch }.add(first, parts, 1.0, source, partial(), steps)?;
        launch.add(second, 1, count, partial(), target, steps)
    }
}

/// Memory with its element type.
struct Source {
    arg: StepArg,
    data_type: DataType,
}

struct Launch {
    reduction: Reduction,
    /// Whether elements are reduced as floats.
    floats: bool,
    /// Whether indices have 64 bits.
    wide: bool,
}

impl Launch {
    fn add(
        &self,
        rows: Rows,
        parts: usize,
        divisor: f32,
        source: Source,
        target: Source,
        steps: &mut Steps,
    ) -> Result<()> {
        let columns = rows.are_columns();
        let (inner, inner_steps, outer) = rows.reduced.split_inner();
        let (_, kept_steps, kept_outer) = rows.kept.split_inner();
        let by_outer = outer.count() >= parts;
        let size = Size {
            inner: inner as u64,
            inner_step: inner_steps[0] as u64,
            outer: outer.count() as u64,
            inner_parts: if by_outer { 1 } else { parts as u64 },
            outer_parts: if by_outer { parts as u64 } else { 1 },
            kept_step: kept_steps[0] as u64,
            kept_out_step: kept_steps[1] as u64,
            divisor,
            rows: u32::try_from(rows.count()).unwrap_or(u32::MAX),
        };
        let kept = if columns { &kept_outer } else { &rows.kept };
        let step = if columns { kept_steps[0] } else { inner_steps[0] };
        let threads_along_inner = columns || inner >= outer.count().min(64);
        let constants = [
            (0, (self.reduction as u32).into()),
            (1, target.data_type.code().into()),
            (2, source.data_type.code().into()),
            (3, (kept.rank_class() as u32).into()),
            (4, (outer.rank_class() as u32).into()),
            (5, step_class(step).into()),
            (6, rows.are_long().into()),
            (7, threads_along_inner.into()),
        ];
        let name = match (columns, self.floats, self.wide) {
            (false, true, false) => "reduce_rows_float_32",
            (false, true, true) => "reduce_rows_float_64",
            (false, false, false) => "reduce_rows_int_32",
            (false, false, true) => "reduce_rows_int_64",
            (true, true, false) => "reduce_columns_float_32",
            (true, true, true) => "reduce_columns_float_64",
            (true, false, false) => "reduce_columns_int_32",
            (true, false, true) => "reduce_columns_int_64",
        };
        let grid = if columns { rows.column_grid(parts) } else { rows.grid(parts)? };
        // The kernels take the strides of the input alone for the reduced axes.
        let reduced = Axes { sizes: outer.sizes.clone(), strides: outer.strides[..1].to_vec() };
        let args = [
            source.arg,
            target.arg,
            StepArg::bytes(kept.bytes()),
            StepArg::bytes(reduced.bytes()),
            StepArg::bytes(bytes_of(&size)),
        ];
        steps.launch(File::Reduce, name, &constants, grid, args)
    }
}

/// Softmax along an axis: `e^xᵢ / Σⱼ e^xⱼ`, or its natural logarithm. The maximum is subtracted first, so that nothing overflows. A row
/// with a NaN, or with `-∞` only, is NaN.
///
/// Input: `x`, of floats. Output: `result`, of floats, with the same shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Softmax {
    /// The axis.
    pub axis: usize,
    /// Whether the result is the logarithm.
    pub logarithm: bool,
}

impl Softmax {
    /// Softmax along an axis.
    pub fn new(axis: usize) -> Self {
        Self { axis, logarithm: false }
    }

    /// The logarithm of softmax along an axis.
    pub fn logarithm(axis: usize) -> Self {
        Self { axis, logarithm: true }
    }
}

/// Simdgroups that share columns on a GPU: the second number where only so many can hold the columns in registers.
const COLUMN_PARTS: [usize; 2] = [16, 32];
/// Threads of a threadgroup for columns on a CPU: of few columns, and of many.
const COLUMNS: [usize; 2] = [64, 256];
/// Threads of a row that fewer cannot hold in registers.
const WIDE_GROUP: usize = 1024;
/// Elements of a row or column that a thread can hold in registers on a GPU.
const MOST_HELD: usize = 32;
/// Exponentials of a row that a thread can keep in private memory on a CPU.
const MOST_KEPT: usize = 1024;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct SoftmaxSize {
    count: u64,
    steps: [u64; 2],
    kept_steps: [u64; 2],
    rows: u64,
    /// Consecutive rows of a simdgroup on a CPU.
    together: u64,
}

impl Operate for Softmax {
    fn name(&self) -> &'static str {
        if self.logarithm { "log_softmax" } else { "softmax" }
    }

    fn operands(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        (vec!["x"], vec!["result"])
    }

    fn check(&self, operands: &Operands<'_>) -> Result<()> {
        let (name, x, result) = (self.name(), operands.inputs[0], operands.outputs[0]);
        named_axes(name, &[self.axis], x.shape())?;
        expect_float(name, "x", x)?;
        expect_float(name, "result", result)?;
        expect_shape(name, ("result", result), ("expected as of `x`", x.shape()))
    }

    fn flops(&self, operands: &Operands<'_>) -> u64 {
        // A comparison, a subtraction, an exponential, a sum and a division.
        5 * operands.inputs[0].len() as u64
    }

    fn add_steps(&self, operands: &Operands<'_>, steps: &mut Steps) -> Result<()> {
        let (x, result) = (operands.inputs[0], operands.outputs[0]);
        let named = named_axes(self.name(), &[self.axis], x.shape())?;
        let rows = Rows::new(&Axes::new(x.shape(), &[x.strides(), result.strides()]), &named, false);
        let columns = rows.are_columns();
        let (count, axis_steps, _) = rows.reduced.split_inner();
        let (_, kept_steps, kept_outer) = rows.kept.split_inner();
        let pair = |steps: &Dims| [steps[0] as u64, steps[1] as u64];
        let units = steps.device().caps().limits.compute_units as usize;
        let together = rows.together(units);
        let size = SoftmaxSize {
            count: count as u64,
            steps: pair(&axis_steps),
            kept_steps: pair(&kept_steps),
            rows: rows.count() as u64,
            together: together as u64,
        };
        // On a GPU, simdgroups of a threadgroup share columns, of which there are too few for all units.
        let is_cpu = steps.is_cpu();
        let [few, many] = COLUMN_PARTS;
        let parts = match columns && !is_cpu && count >= 4 * few {
            true if count > few * MOST_HELD && count <= many * MOST_HELD => many,
            true => few,
            false => 1,
        };
        let wide = if count > GROUP * MOST_HELD { WIDE_GROUP } else { GROUP };
        let threads = match (columns, rows.are_long()) {
            (true, _) => parts,
            (false, true) => wide,
            (false, false) => SIMDGROUP,
        };
        let each = count.div_ceil(threads).next_power_of_two();
        let held = match is_cpu {
            true if columns || self.logarithm || count > MOST_KEPT * SIMDGROUP => 0,
            true => MOST_KEPT,
            false if each > MOST_HELD => 0,
            false => each,
        };
        let fits = fits_32_bits([x.extent(), result.extent()]);
        let (kept, along) = if columns { (&kept_outer, &kept_steps) } else { (&rows.kept, &axis_steps) };
        let constants = [
            (0, self.logarithm.into()),
            (1, result.data_type.code().into()),
            (2, x.data_type.code().into()),
            (3, (kept.rank_class() as u32).into()),
            (4, step_class(along[0]).into()),
            (5, step_class(along[1]).into()),
            (6, rows.are_long().into()),
            (7, (parts as u32).into()),
            (8, (held as u32).into()),
            (9, (threads as u32).into()),
            (10, (count == held * threads).into()),
        ];
        let name = match (is_cpu, columns, fits) {
            (true, true, true) => "softmax_blocks_of_columns_32",
            (true, true, false) => "softmax_blocks_of_columns_64",
            (true, false, true) => "softmax_pipelined_rows_32",
            (true, false, false) => "softmax_pipelined_rows_64",
            (false, false, true) => "softmax_rows_32",
            (false, false, false) => "softmax_rows_64",
            (false, true, true) => "softmax_columns_32",
            (false, true, false) => "softmax_columns_64",
        };
        steps.algorithm = match (columns, held) {
            (true, 0) => "columns",
            (false, _) if is_cpu => "pipelined rows",
            (false, 0) => "rows",
            (true, _) => "columns in registers",
            (false, _) => "rows in registers",
        };
        let grid = match (columns, parts) {
            (false, _) if is_cpu => rows.grid_of_simdgroups(together)?,
            (false, _) => rows.grid_of(1, wide)?,
            (true, 1) if is_cpu => {
                // Wide threadgroups access memory in order; each unit should have some.
                let is_wide = rows.count() >= 4 * units * COLUMNS[1];
                rows.column_grid(1).group(COLUMNS[usize::from(is_wide)])
            }
            (true, 1) => rows.column_grid(1),
            (true, _) => rows.grid_of_shared_columns(parts),
        };
        let args = [
            StepArg::tensor(x, false),
            StepArg::tensor(result, true),
            StepArg::bytes(kept.bytes()),
            StepArg::bytes(bytes_of(&size)),
        ];
        steps.launch(File::Softmax, name, &constants, grid, args)
    }
}
