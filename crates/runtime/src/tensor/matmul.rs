//! [`MatMul`]: matrix products, matrix-vector products, and their algorithms.

use elinvar_driver::{DeviceKind, Result};

use crate::Grid;
use crate::tensor::activation::Activation;
use crate::tensor::axes::{Axes, bytes_of};
use crate::tensor::data_type::DataType;
use crate::tensor::kernel_cache::{File, Value};
use crate::tensor::map::{Map, Operand, map};
use crate::tensor::operation::{Operands, Operate, Within, expect_shape, fail};
use crate::tensor::plan::{StepArg, Steps};
use crate::tensor::rows::step_class;
use crate::tensor::view::{Dims, MAX_RANK, TensorRef};

/// A matrix product: `result = activation(alpha · left · right + beta · result + bias)`.
///
/// Inputs: `left` of shape `[…, m, k]`, `right` of `[…, k, n]`, and `bias` if it is set, which is broadcast to the result. Output: `result`
/// of `[…, m, n]`. The axes before the last two are the batch, and are broadcast to the result's by NumPy's rules. A `left` with one axis is
/// a row, a `right` with one axis a column; the result lacks that axis. Any axes may be transposed.
///
/// `left` and `right` have the same type: floats, or `i8`. Of floats, the others are floats of any type, and terms are summed in `f32`. Of
/// `i8`, the others are `i32`, sums wrap, `alpha` is 1, `beta` 0 or 1, and the activation none or [`Activation::Relu`].
///
/// If `beta` is 0, the result is not read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatMul {
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of the result's previous content.
    pub beta: f32,
    /// Whether there is a bias.
    pub bias: bool,
    /// Activation function.
    pub activation: Activation,
}

impl Default for MatMul {
    fn default() -> Self {
        Self { alpha: 1.0, beta: 0.0, bias: false, activation: Activation::None }
    }
}

const COLUMNS: &str = "columns";
const DOTS: &str = "dot products";
const TILES: &str = "simdgroup matrices";
const BLOCKS: &str = "blocks";
const OPERATIONS: &str = "tensor operations";

/// Rows of the result that a thread of the kernels has.
const ROWS_OF_COLUMNS: usize = 8;
const ROWS_OF_DOTS: usize = 4;
/// Side of a threadgroup's tile of the result.
const TILE: usize = 64;
/// Sides of a threadgroup's block of the result, with the threads for floats and for shorter types.
const BLOCK_SIDES: [usize; 2] = [128, 64];
const BLOCK_THREADS: [u32; 2] = [256, 128];
/// Rows and columns of a threadgroup's tile of `matmul2d`, and its threads.
const OPERATION_TILE: [usize; 2] = [128, 256];
const OPERATION_THREADS: u32 = 256;
/// Bytes of a word that threads load.
const WORD: u64 = 16;
/// Elements of the largest factors that are packed.
const MOST_PACKED: usize = 1 << 32;
/// Columns of a packed panel.
const PANEL: usize = 32;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Size {
    rows: u64,
    columns: u64,
    terms: u64,
    a: [u64; 2],
    b: [u64; 2],
    b_panel: u64,
    out: [u64; 2],
    bias: [u64; 2],
    alpha: f32,
    beta: f32,
}

/// A matrix: memory with strides of rows and columns.
#[derive(Clone)]
pub(crate) struct Matrix {
    pub(crate) arg: StepArg,
    pub(crate) row: usize,
    pub(crate) column: usize,
}

impl Matrix {
    fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }
}

/// A product of matrices with two axes, over a batch. The batch has the strides of `a`, `b`, `out` and `bias`.
#[derive(Clone)]
pub(crate) struct Product {
    pub(crate) data_type: DataType,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) terms: usize,
    pub(crate) a: Matrix,
    pub(crate) b: Matrix,
    /// Stride of groups of 32 columns of `b`.
    pub(crate) b_panel: usize,
    pub(crate) out: Matrix,
    pub(crate) bias: Matrix,
    pub(crate) batch: Axes,
}

/// What happens to the sums of a product.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue {
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
    pub(crate) activation: Activation,
    pub(crate) out_type: DataType,
    /// The type of the bias, if there is one.
    pub(crate) bias_type: Option<DataType>,
}

impl MatMul {
    /// The product of two-dimensional matrices, over a batch with few axes.
    pub(crate) fn product(&self, operands: &Operands<'_>) -> Result<Product> {
        Ok(Views::new(self.name(), operands)?.product().with_batch_as_rows())
    }
}

/// The operands with at least two axes, broadcast to the batch of the result.
struct Views<'v> {
    left: TensorRef<'v>,
    right: TensorRef<'v>,
    result: TensorRef<'v>,
    bias: Option<TensorRef<'v>>,
}

impl<'v> Views<'v> {
    /// # Errors
    /// `InvalidArgument` if shapes do not fit.
    fn new(name: &str, operands: &Operands<'v>) -> Result<Self> {
        let [left, right] = [operands.inputs[0], operands.inputs[1]];
        let result = operands.outputs[0];
        if left.rank() == 0 || right.rank() == 0 {
            return Err(fail(name, format_args!("`left` {left} and `right` {right} must have an axis")));
        }
        let bias = operands.inputs.get(2).map(|bias| bias.broadcast(result.shape()));
        let bias = bias.transpose().map_err(|error| error.within(name, "bias"))?;
        // A row has an axis of one row, a column one of one column; so have the result and the bias.
        let (is_row, is_column) = (left.rank() == 1, right.rank() == 1);
        let matrix = |view: &TensorRef<'v>| {
            let view = if is_column { view.expand(view.rank())? } else { view.clone() };
            if is_row { view.expand(view.rank().saturating_sub(1)) } else { Ok(view) }
        };
        let (wide, shape) = (usize::from(is_row) + usize::from(is_column), result.shape());
        if shape.len() + wide < 2 {
            return Err(fail(
                name,
                format_args!("`result` {result} has too few axes for `left` {left} and `right` {right}"),
            ));
        }
        let result = matrix(result)?;
        let bias = bias.map(|bias| matrix(&bias)).transpose()?;
        let left = if is_row { left.expand(0)? } else { left.clone() };
        let right = if is_column { right.expand(1)? } else { right.clone() };
        let last = |view: &TensorRef<'_>, back: usize| view.shape()[view.rank() - back];
        let (terms, others) = (last(&left, 1), last(&right, 2));
        if terms != others {
            let axes = (operands.inputs[0].rank() - 1, operands.inputs[1].rank().saturating_sub(2));
            return Err(fail(
                name,
                format_args!(
                    "`left` {} and `right` {}: axis {} has {terms} elements, axis {} has {others}",
                    operands.inputs[0], operands.inputs[1], axes.0, axes.1
                ),
            ));
        }
        let (rows, columns) = (last(&left, 2), last(&right, 1));
        let batch = &result.shape()[..result.rank() - 2];
        let full =
            |rows: usize, columns: usize| -> Dims { batch.iter().copied().chain([rows, columns]).collect() };
        let reason = format!("expected for `left` {} and `right` {}", operands.inputs[0], operands.inputs[1]);
        expect_shape(name, ("result", &result), (&reason, &full(rows, columns)))?;
        let left = left.broadcast(&full(rows, terms)).map_err(|error| error.within(name, "left"))?;
        let right = right.broadcast(&full(terms, columns)).map_err(|error| error.within(name, "right"))?;
        Ok(Self { left, right, result, bias })
    }

    fn product(&self) -> Product {
        let rank = self.result.rank();
        let [rows, columns] = [self.result.shape()[rank - 2], self.result.shape()[rank - 1]];
        let matrix = |view: &TensorRef<'_>, writable: bool| Matrix {
            arg: StepArg::tensor(view, writable),
            row: view.strides()[rank - 2],
            column: view.strides()[rank - 1],
        };
        let no_strides = Dims::from_elem(0, rank);
        let bias_strides = self.bias.as_ref().map_or(&no_strides[..], |bias| bias.strides());
        let all = [self.left.strides(), self.right.strides(), self.result.strides(), bias_strides];
        let batch = Axes::new(&self.result.shape()[..rank - 2], &all.map(|strides| &strides[..rank - 2]));
        let (a, b, out) = (matrix(&self.left, false), matrix(&self.right, false), matrix(&self.result, true));
        // Without a bias, its argument is not read.
        let no_bias = || Matrix { row: 0, column: 0, ..a.clone() };
        let bias = self.bias.as_ref().map_or_else(no_bias, |bias| matrix(bias, false));
        Product {
            data_type: self.left.data_type,
            rows,
            columns,
            terms: self.left.shape()[rank - 1],
            b_panel: b.column * PANEL,
            a,
            b,
            out,
            bias,
            batch: batch.sorted(2).collapsed(),
        }
    }
}

impl Product {
    /// The product of the transposed matrices, whose result is the transposed result.
    fn transposed(self) -> Self {
        let Self { a, b, out, bias, .. } = self;
        let swap = |mut strides: Vec<Dims>| {
            strides.swap(0, 1);
            strides
        };
        Self {
            rows: self.columns,
            columns: self.rows,
            b_panel: a.row * PANEL,
            a: b.transposed(),
            b: a.transposed(),
            out: out.transposed(),
            bias: bias.transposed(),
            batch: Axes { sizes: self.batch.sizes, strides: swap(self.batch.strides) },
            ..self
        }
    }

    /// With the innermost axes of the batch as rows, where `b` is the same for all of them.
    fn with_batch_as_rows(mut self) -> Self {
        loop {
            let mut batch = self.batch.clone();
            let Some(size) = batch.sizes.pop() else { return self };
            let strides: Vec<usize> = batch.strides.iter_mut().filter_map(Dims::pop).collect();
            let rows = [self.a.row, 0, self.out.row, self.bias.row].map(|row| row.checked_mul(self.rows));
            let joins = self.rows == 1 || strides.iter().zip(rows).all(|(stride, row)| Some(*stride) == row);
            if strides[1] != 0 || !joins {
                return self;
            }
            if self.rows == 1 {
                (self.a.row, self.out.row, self.bias.row) = (strides[0], strides[2], strides[3]);
            }
            self.rows *= size;
            self.batch = batch;
        }
    }

    /// Whether `b` is in panels of 32 columns.
    fn is_packed(&self) -> bool {
        self.b.column == 1 && self.b.row == PANEL
    }

    /// Whether both factors are in whole words along an axis with stride 1.
    fn is_aligned(&self) -> bool {
        let size = self.data_type.size();
        let in_words = |elements: usize| (elements as u64).is_multiple_of(WORD / size);
        let is_aligned = |matrix: &Matrix, rows: usize, columns: usize| {
            let (other, consecutive) =
                if matrix.column == 1 { (matrix.row, columns) } else { (matrix.column, rows) };
            let is_whole =
                matrix.arg.offset().is_multiple_of(WORD) && in_words(other) && in_words(consecutive);
            is_whole && (matrix.column == 1 || matrix.row == 1)
        };
        let batch = self.batch.strides[..2].iter().flatten();
        is_aligned(&self.a, self.rows, self.terms)
            && is_aligned(&self.b, self.terms, self.columns)
            && batch.copied().all(in_words)
    }

    /// With floats in place of shorter types, and `b` in panels of 32 columns whose rows are consecutive, in the workspace.
    fn packed(self, steps: &mut Steps) -> Result<Self> {
        let data_type = if self.data_type.is_float() { DataType::F32 } else { self.data_type };
        let size = data_type.size();
        // Axes of the batch that `b` is not repeated along.
        let own = |operand: usize| self.batch.select(|axis| self.batch.strides[operand][axis] != 0);
        let source = |matrix: &Matrix, batch: &Axes, operand: usize, inner: &[usize]| Operand {
            arg: matrix.arg.clone(),
            data_type: self.data_type,
            strides: batch.strides[operand].iter().chain(inner).copied().collect(),
        };
        let shape =
            |batch: &Axes, inner: &[usize]| -> Dims { batch.sizes.iter().chain(inner).copied().collect() };
        // Strides of the batch in the workspace, of matrices of `len` elements.
        let strides = |batch: &Axes, len: usize| -> Dims {
            let mut stride = len;
            let mut strides = Dims::from_elem(0, batch.sizes.len());
            for (axis, size) in batch.sizes.iter().enumerate().rev() {
                strides[axis] = stride;
                stride *= size;
            }
            strides
        };
        let widen = |batch: &Axes, own: &Dims, operand: usize| -> Dims {
            let mut own = own.iter();
            let all = self.batch.strides[operand].iter();
            debug_assert!(batch.sizes.len() <= self.batch.sizes.len());
            all.map(|stride| if *stride == 0 { 0 } else { own.next().copied().unwrap_or(0) }).collect()
        };
        let mut packed = self.clone();
        let (batch, panels) = (own(1), self.columns.div_ceil(PANEL));
        let panel = self.terms * PANEL;
        let memory = steps.workspace((batch.count() * panels * panel) as u64 * size);
        let ours = strides(&batch, panels * panel);
        let (whole, rest) = (self.columns / PANEL, self.columns % PANEL);
        for (first, count, width) in [(0, whole, PANEL), (whole, usize::from(rest > 0), rest)] {
            if count == 0 {
                continue;
            }
            let shape = shape(&batch, &[count, self.terms, width]);
            let mut from = source(&self.b, &batch, 1, &[self.b.column * PANEL, self.b.row, self.b.column]);
            from.arg = from.arg.skipping((first * PANEL * self.b.column) as u64 * self.data_type.size());
            let strides = ours.iter().copied().chain([panel, PANEL, 1]).collect();
            let arg = StepArg::Workspace(memory).skipping((first * panel) as u64 * size);
            let to = Operand { arg, data_type, strides };
            map(Map::COPY, &shape, &[from], &to, steps)?;
        }
        packed.batch.strides[1] = widen(&batch, &ours, 1);
        (packed.b, packed.b_panel) =
            (Matrix { arg: StepArg::Workspace(memory), row: PANEL, column: 1 }, panel);
        if data_type != self.data_type {
            let batch = own(0);
            let memory = steps.workspace((batch.count() * self.rows * self.terms) as u64 * size);
            let ours = strides(&batch, self.rows * self.terms);
            let from = source(&self.a, &batch, 0, &[self.a.row, self.a.column]);
            let strides = ours.iter().copied().chain([self.terms, 1]).collect();
            let to = Operand { arg: StepArg::Workspace(memory), data_type, strides };
            map(Map::COPY, &shape(&batch, &[self.rows, self.terms]), &[from], &to, steps)?;
            packed.batch.strides[0] = widen(&batch, &ours, 0);
            packed.a = Matrix { arg: StepArg::Workspace(memory), row: self.terms, column: 1 };
        }
        packed.data_type = data_type;
        Ok(packed)
    }

    /// Whether `matmul2d` computes it: types of 16 bits, sizes and strides of 32.
    fn fits_operations(&self) -> bool {
        let is_short = matches!(self.data_type, DataType::F16 | DataType::BF16);
        let strides = [self.a.row, self.a.column, self.b.row, self.b.column, self.out.row];
        let sizes = [self.rows, self.columns, self.terms, self.batch.count()];
        is_short && self.is_aligned() && strides.into_iter().chain(sizes).all(|n| n < 1 << 30)
    }

    fn launch(&self, kernel: &'static str, grid: Grid, epilogue: Epilogue, steps: &mut Steps) -> Result<()> {
        self.launch_of(File::MatMul, kernel, grid, epilogue, steps)
    }

    fn launch_of(
        &self,
        file: File,
        kernel: &'static str,
        grid: Grid,
        epilogue: Epilogue,
        steps: &mut Steps,
    ) -> Result<()> {
        let Epilogue { alpha, beta, activation, out_type, bias_type } = epilogue;
        let constants: [(u32, Value); 10] = [
            (0, out_type.code().into()),
            (1, bias_type.unwrap_or(out_type).code().into()),
            (2, activation.code().into()),
            (3, bias_type.is_some().into()),
            (4, (beta != 0.0).into()),
            (5, (self.batch.rank_class() as u32).into()),
            (6, step_class(self.a.column).into()),
            (7, step_class(self.b.row).into()),
            (8, step_class(self.b.column).into()),
            (9, step_class(self.out.column).into()),
        ];
        let size = Size {
            rows: self.rows as u64,
            columns: self.columns as u64,
            terms: self.terms as u64,
            a: [self.a.row as u64, self.a.column as u64],
            b: [self.b.row as u64, self.b.column as u64],
            b_panel: self.b_panel as u64,
            out: [self.out.row as u64, self.out.column as u64],
            bias: [self.bias.row as u64, self.bias.column as u64],
            alpha,
            beta,
        };
        let args = [
            self.a.arg.clone(),
            self.b.arg.clone(),
            self.bias.arg.clone(),
            self.out.arg.clone(),
            StepArg::bytes(self.batch.bytes()),
            StepArg::bytes(bytes_of(&size)),
        ];
        steps.launch(file, kernel, &constants, grid, args)
    }

    /// Adds the launches of a product, by an algorithm that is asked for or by the best one.
    pub(crate) fn add_steps(self, epilogue: Epilogue, wanted: Option<&str>, steps: &mut Steps) -> Result<()> {
        let is_cpu = steps.is_cpu();
        let product = self;
        let batches = product.batch.count();
        let asked = wanted.is_some();

        // Few columns: the terms are what threads can step through together.
        let is_thin = |product: &Product| product.columns <= 4 && product.a.column == 1 && product.b.row == 1;
        let turned = product.clone().transposed();
        let thin = [&product, &turned].into_iter().find(|product| is_thin(product) || wanted == Some(DOTS));
        if let Some(product) = thin.filter(|_| wanted.is_none_or(|wanted| wanted == DOTS)) {
            let name = match product.data_type {
                DataType::F16 => "matmul_dots_f16",
                DataType::BF16 => "matmul_dots_bf16",
                DataType::I8 => "matmul_dots_i8",
                _ => "matmul_dots_f32",
            };
            let (simdgroups, blocks) = (4, product.rows.div_ceil(ROWS_OF_DOTS));
            let grid =
                Grid::groups((blocks.div_ceil(simdgroups), product.columns, batches)).group(32 * simdgroups);
            product.launch(name, grid, epilogue, steps)?;
            steps.algorithm = DOTS;
            return Ok(());
        }

        let [tall, wide] = OPERATION_TILE;
        let tiles = product.rows.div_ceil(tall).saturating_mul(product.columns.div_ceil(wide));
        let by_operations = wanted == Some(OPERATIONS)
            || !asked
                && steps.device().caps().features.tensor_products
                && tiles.saturating_mul(batches) >= steps.device().caps().limits.compute_units as usize / 2
                && product.terms >= TILE;
        if by_operations && product.fits_operations() {
            let name = match product.data_type {
                DataType::F16 => "matmul_operation_f16",
                _ => "matmul_operation_bf16",
            };
            let grid = Grid::groups((tiles, batches)).group(OPERATION_THREADS);
            product.launch_of(File::TensorOperations, name, grid, epilogue, steps)?;
            steps.algorithm = OPERATIONS;
            return Ok(());
        }

        let is_large = product.rows.min(product.columns) >= TILE / 4;
        let by_blocks = wanted == Some(BLOCKS)
            || !asked
                && !is_cpu
                && product.rows.min(product.columns) >= TILE / 2
                && product.terms >= TILE / 2;
        if by_blocks && product.data_type.is_float() && product.is_aligned() {
            let groups = |side: usize| (product.columns.div_ceil(side), product.rows.div_ceil(side), batches);
            let units = steps.device().caps().limits.compute_units as usize;
            let (columns, rows, _) = groups(BLOCK_SIDES[0]);
            let is_small = is_cpu || columns.saturating_mul(rows).saturating_mul(batches) < units;
            let side = BLOCK_SIDES[usize::from(is_small)];
            let is_wide =
                !is_small && product.data_type == DataType::F32 && steps.device().kind() == DeviceKind::Cuda;
            let name = match (product.data_type, is_small) {
                (DataType::F16, true) => "matmul_blocks_64_f16",
                (DataType::BF16, true) => "matmul_blocks_64_bf16",
                (_, true) => "matmul_blocks_64_f32",
                (DataType::F16, false) => "matmul_blocks_128_f16",
                (DataType::BF16, false) => "matmul_blocks_128_bf16",
                // 250 registers for a thread.
                (_, false) if is_wide => "matmul_blocks_128_f32_wide",
                (_, false) => "matmul_blocks_128_f32",
            };
            let threads = BLOCK_THREADS[usize::from(product.data_type != DataType::F32 || is_wide)];
            product.launch(name, Grid::groups(groups(side)).group(threads), epilogue, steps)?;
            steps.algorithm = BLOCKS;
            return Ok(());
        }
        let by_tiles =
            product.data_type.is_float() && (wanted == Some(TILES) || !asked && !is_cpu && is_large);
        if by_tiles {
            let name = match product.data_type {
                DataType::F16 => "matmul_tiles_f16",
                DataType::BF16 => "matmul_tiles_bf16",
                _ => "matmul_tiles_f32",
            };
            let grid = Grid::groups((product.columns.div_ceil(TILE), product.rows.div_ceil(TILE), batches));
            product.launch(name, grid.group(128), epilogue, steps)?;
            steps.algorithm = TILES;
            return Ok(());
        }

        // Threads of a simdgroup read neighbors in a row of `b`.
        let mut product = if product.b.column != 1 && product.a.row == 1 { turned } else { product };
        let size = product
            .terms
            .checked_mul(product.columns.max(product.rows))
            .and_then(|size| size.checked_mul(batches));
        let is_worth_packing = !product.is_packed()
            && size.is_some_and(|size| size < MOST_PACKED)
            && product.rows >= PANEL
            && product.columns >= PANEL;
        if is_cpu && is_worth_packing && product.terms > 0 && product.batch.sizes.len() + 3 <= MAX_RANK {
            product = product.packed(steps)?;
        }
        let many = product.rows > 2;
        let name = match (product.data_type, many) {
            (DataType::F16, true) => "matmul_columns_8_f16",
            (DataType::BF16, true) => "matmul_columns_8_bf16",
            (DataType::I8, true) => "matmul_columns_8_i8",
            (_, true) => "matmul_columns_8_f32",
            (DataType::F16, false) => "matmul_columns_1_f16",
            (DataType::BF16, false) => "matmul_columns_1_bf16",
            (DataType::I8, false) => "matmul_columns_1_i8",
            (_, false) => "matmul_columns_1_f32",
        };
        let blocks = product.rows.div_ceil(if many { ROWS_OF_COLUMNS } else { 1 });
        let grid = Grid::threads((product.columns, blocks, batches)).group((32, 8));
        product.launch(name, grid, epilogue, steps)?;
        steps.algorithm = COLUMNS;
        Ok(())
    }
}

impl Operate for MatMul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn operands(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let inputs = if self.bias { vec!["left", "right", "bias"] } else { vec!["left", "right"] };
        (inputs, vec!["result"])
    }

    fn check(&self, operands: &Operands<'_>) -> Result<()> {
        let (left, right, result) = (operands.inputs[0], operands.inputs[1], operands.outputs[0]);
        Views::new(self.name(), operands)?;
        let wrong = |text: &str| {
            Err(fail(self.name(), format_args!("`left` {left}, `right` {right}, `result` {result}: {text}")))
        };
        let others = || operands.inputs.iter().skip(2).chain(operands.outputs);
        match (left.data_type, right.data_type) {
            (a, b) if a != b => wrong("the types of `left` and `right` differ"),
            (DataType::I8, _) if others().any(|view| view.data_type != DataType::I32) => {
                wrong("a product of i8 is i32, and so is its bias")
            }
            (DataType::I8, _) if self.alpha != 1.0 || self.beta != 0.0 && self.beta != 1.0 => {
                wrong("of i8, alpha is 1, and beta 0 or 1")
            }
            (DataType::I8, _) if !matches!(self.activation, Activation::None | Activation::Relu) => {
                wrong("of i8, the activation is none or relu")
            }
            (DataType::I8, _) => Ok(()),
            (a, _) if !a.is_float() => wrong("factors are floats or i8"),
            _ if others().any(|view| !view.data_type.is_float()) => {
                wrong("a product of floats is of floats, and so is its bias")
            }
            _ => Ok(()),
        }
    }

    fn flops(&self, operands: &Operands<'_>) -> u64 {
        let left = operands.inputs[0];
        let terms = left.shape()[left.rank() - 1] as u64;
        (2 * operands.outputs[0].len() as u64).saturating_mul(terms)
    }

    fn algorithms(&self) -> &'static [&'static str] {
        &[COLUMNS, DOTS, TILES, BLOCKS, OPERATIONS]
    }

    fn add_steps(&self, operands: &Operands<'_>, steps: &mut Steps) -> Result<()> {
        let Self { alpha, beta, activation, .. } = *self;
        let bias_type = operands.inputs.get(2).map(|bias| bias.data_type);
        let out_type = operands.outputs[0].data_type;
        let epilogue = Epilogue { alpha, beta, activation, out_type, bias_type };
        let wanted = steps.wanted;
        self.product(operands)?.add_steps(epilogue, wanted, steps)
    }
}
