//! [`Map`]: element-wise operations with broadcasting; copies and casts.

use elinvar_driver::Result;

use crate::Grid;
use crate::tensor::DataType;
use crate::tensor::axes::{Axes, bytes_of, fits_32_bits};
use crate::tensor::kernel_cache::File;
use crate::tensor::operation::{Operands, Operate, Within, fail};
use crate::tensor::plan::{StepArg, Steps};
use crate::tensor::view::{Dims, TensorRef};

/// An element-wise operation of one to three inputs, which are broadcast to the shape of the output by NumPy's rules.
///
/// Inputs: as many as the function has arguments. Output: the result, of any type. If all operands are integers, the function is computed
/// in `i32`, and wraps; otherwise it is computed in `f32`. A float is stored as an integer truncated and saturated, NaN as 0; an `i32` is
/// stored as a shorter integer by its lower bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Map {
    /// Of one input: `x`.
    Unary(Unary),
    /// Of two inputs: `left`, `right`.
    Binary(Binary),
    /// Of three inputs: `first`, `second`, `third`.
    Ternary(Ternary),
}

macro_rules! functions {
    ($(#[$doc:meta])* $name:ident: $($(#[$item:meta])* $function:ident = $code:literal, $text:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$item])* $function = $code,)*
        }

        impl $name {
            /// All functions.
            pub const ALL: &[Self] = &[$(Self::$function),*];

            /// Name in messages.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$function => $text,)*
                }
            }
        }
    };
}

functions! {
    /// A function of one argument, `x`.
    Unary:
    /// `x`: a copy, or a cast if the types differ.
    Copy = 0, "copy";
    /// `-x`.
    Negate = 1, "negate";
    /// `|x|`.
    Abs = 2, "abs";
    /// `e^x`.
    Exp = 3, "exp";
    /// Natural logarithm.
    Log = 4, "log";
    /// Square root.
    Sqrt = 5, "sqrt";
    /// `1 / √x`.
    Rsqrt = 6, "rsqrt";
    /// Sine.
    Sin = 7, "sin";
    /// Cosine.
    Cos = 8, "cos";
    /// The largest integer up to `x`.
    Floor = 9, "floor";
    /// The smallest integer from `x`.
    Ceil = 10, "ceil";
    /// The nearest integer, of two the even one.
    Round = 11, "round";
    /// `1 / x`.
    Reciprocal = 12, "reciprocal";
    /// `x²`.
    Square = 13, "square";
    /// The error function, within 1.5e-7.
    Erf = 14, "erf";
    /// `max(x, 0)`.
    Relu = 21, "relu";
    /// `x · Φ(x)`, with the normal distribution function Φ.
    Gelu = 22, "gelu";
    /// Gelu's approximation by tanh.
    GeluTanh = 23, "gelu_tanh";
    /// `x · sigmoid(x)`.
    Silu = 24, "silu";
    /// `1 / (1 + e^-x)`.
    Sigmoid = 25, "sigmoid";
    /// Hyperbolic tangent.
    Tanh = 26, "tanh";
}

functions! {
    /// A function of two arguments. Comparisons are 1 or 0.
    Binary:
    /// `left + right`.
    Add = 40, "add";
    /// `left - right`.
    Subtract = 41, "subtract";
    /// `left · right`.
    Multiply = 42, "multiply";
    /// `left / right`. Of integers truncated, and 0 by 0.
    Divide = 43, "divide";
    /// The smaller, or NaN if one is.
    Min = 44, "min";
    /// The larger, or NaN if one is.
    Max = 45, "max";
    /// `left ^ right`.
    Power = 46, "power";
    /// `left = right`.
    Equal = 47, "equal";
    /// `left ≠ right`.
    NotEqual = 48, "not_equal";
    /// `left < right`.
    Less = 49, "less";
    /// `left ≤ right`.
    LessEqual = 50, "less_equal";
    /// `left > right`.
    Greater = 51, "greater";
    /// `left ≥ right`.
    GreaterEqual = 52, "greater_equal";
}

functions! {
    /// A function of three arguments.
    Ternary:
    /// `second` where `first` is not 0, `third` elsewhere.
    Select = 60, "select";
    /// `first · second + third`, rounded once.
    Fma = 61, "fma";
}

impl Map {
    /// A copy, to any strides, or a cast.
    pub const COPY: Self = Self::Unary(Unary::Copy);
    /// Sum of two tensors.
    pub const ADD: Self = Self::Binary(Binary::Add);
    /// Difference of two tensors.
    pub const SUBTRACT: Self = Self::Binary(Binary::Subtract);
    /// Element-wise product of two tensors.
    pub const MULTIPLY: Self = Self::Binary(Binary::Multiply);
    /// Quotient of two tensors.
    pub const DIVIDE: Self = Self::Binary(Binary::Divide);
    /// Choice between two tensors by a mask.
    pub const SELECT: Self = Self::Ternary(Ternary::Select);

    fn code(self) -> u32 {
        match self {
            Self::Unary(function) => function as u32,
            Self::Binary(function) => function as u32,
            Self::Ternary(function) => function as u32,
        }
    }

    /// Whether it is defined for integers.
    fn is_of_integers(self) -> bool {
        match self {
            Self::Unary(function) => {
                matches!(function, Unary::Copy | Unary::Negate | Unary::Abs | Unary::Square | Unary::Relu)
            }
            Self::Binary(function) => function != Binary::Power,
            Self::Ternary(_) => true,
        }
    }
}

impl Operate for Map {
    fn name(&self) -> &'static str {
        match self {
            Self::Unary(function) => function.name(),
            Self::Binary(function) => function.name(),
            Self::Ternary(function) => function.name(),
        }
    }

    fn operands(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let inputs = match self {
            Self::Unary(_) => vec!["x"],
            Self::Binary(_) => vec!["left", "right"],
            Self::Ternary(_) => vec!["first", "second", "third"],
        };
        (inputs, vec!["result"])
    }

    fn check(&self, operands: &Operands<'_>) -> Result<()> {
        let names = self.operands().0;
        for (name, input) in names.iter().zip(operands.inputs) {
            let fits = input.broadcast(operands.outputs[0].shape());
            fits.map_err(|error| error.within(self.name(), name))?;
        }
        if is_of_integers(operands) && !self.is_of_integers() {
            let types = operands.inputs[0].data_type;
            return Err(fail(self.name(), format_args!("is not defined for integers ({types})")));
        }
        Ok(())
    }

    fn flops(&self, operands: &Operands<'_>) -> u64 {
        let per_element = match self {
            Self::Unary(Unary::Copy) => 0,
            Self::Ternary(Ternary::Fma) => 2,
            _ => 1,
        };
        per_element * operands.outputs[0].len() as u64
    }

    fn add_steps(&self, operands: &Operands<'_>, steps: &mut Steps) -> Result<()> {
        let output = operands.outputs[0];
        let inputs = operands.inputs.iter().map(|input| input.broadcast(output.shape()));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        if *self == Self::COPY && transpose(&inputs[0], output, steps)? {
            return Ok(());
        }
        let inputs: Vec<Operand> = inputs.iter().map(|input| Operand::of(input, false)).collect();
        map(*self, output.shape(), &inputs, &Operand::of(output, true), steps)
    }

    fn is_element_wise(&self) -> bool {
        true
    }
}

fn is_of_integers(operands: &Operands<'_>) -> bool {
    operands.inputs.iter().chain(operands.outputs).all(|view| !view.data_type.is_float())
}

/// Rows at least this long are an axis of the grid; others would leave threads of a simdgroup idle.
const LONG_ROW: usize = 32;
/// Largest size of a grid along one axis.
const LONGEST_SIDE: usize = 1 << 30;

/// Elements of a thread along an axis on a GPU: their loads are under way together.
const PER_THREAD: usize = 4;

/// Number of elements that a thread of an element-wise kernel computes along an axis of `inner` elements.
pub(crate) fn elements_of_a_thread(steps: &Steps, inner: usize) -> usize {
    if steps.is_cpu() || inner < 256 * PER_THREAD { 1 } else { PER_THREAD }
}

/// The grid for `count` threads along x, and `rows` along y and z; the last row may be a part.
pub(crate) fn rows_grid(x: usize, rows: usize) -> Grid {
    let y = rows.clamp(1, 1 << 16);
    Grid::threads((x, y, rows.div_ceil(y)))
}

/// The grid for `count` threads, in rows of which the last may be a part.
pub(crate) fn flat_grid(count: usize) -> Grid {
    let x = count.clamp(1, LONGEST_SIDE / 1024);
    rows_grid(x, count.div_ceil(x))
}

/// An operand of the element-wise kernel, which has the result's shape.
#[derive(Clone)]
pub(crate) struct Operand {
    pub(crate) arg: StepArg,
    pub(crate) data_type: DataType,
    pub(crate) strides: Dims,
}

impl Operand {
    pub(crate) fn of(view: &TensorRef<'_>, writable: bool) -> Self {
        Self {
            arg: StepArg::tensor(view, writable),
            data_type: view.data_type,
            strides: view.strides.clone(),
        }
    }

    /// Number of elements from the first to the last.
    fn extent(&self, shape: &[usize]) -> usize {
        let last = |(size, stride): (&usize, &usize)| size.saturating_sub(1) * stride;
        1 + shape.iter().zip(&self.strides).map(last).sum::<usize>()
    }
}

/// Launches the element-wise kernel over `shape`, which all operands have.
pub(crate) fn map(
    map: Map,
    shape: &[usize],
    inputs: &[Operand],
    output: &Operand,
    steps: &mut Steps,
) -> Result<()> {
    let operand = |at: usize| inputs.get(at).unwrap_or(&inputs[0]);
    let all = [output, operand(0), operand(1), operand(2)];
    let axes = Axes::new(shape, &all.map(|view| &view.strides[..])).sorted(0).collapsed();
    let (inner, inner_strides, outer) = axes.split_inner();
    let is_flat = axes.sizes.len() > 1 && inner < LONG_ROW || inner > LONGEST_SIDE;
    let per_thread = if is_flat { 1 } else { elements_of_a_thread(steps, inner) };
    let (axes, grid) = if is_flat {
        let grid = flat_grid(axes.count());
        (axes, grid)
    } else {
        let rows = outer.count();
        (outer, rows_grid(inner.div_ceil(per_thread), rows))
    };
    let step = |at: usize| match inner_strides[at] {
        _ if is_flat => 2,
        few @ 0..=1 => few as u32,
        _ => 2,
    };
    let integers = all[..=inputs.len()].iter().all(|view| !view.data_type.is_float());
    let fits = fits_32_bits(all.map(|view| view.extent(shape)).into_iter().chain([shape.iter().product()]));
    let name = match (integers, fits) {
        (false, true) => "map_float_32",
        (false, false) => "map_float_64",
        (true, true) => "map_int_32",
        (true, false) => "map_int_64",
    };
    let mut constants = vec![(0, map.code().into())];
    constants.extend(all.iter().zip(1..).map(|(view, index)| (index, view.data_type.code().into())));
    constants.extend((0..4).map(|at| (5 + at as u32, step(at).into())));
    constants.extend([
        (9, (axes.rank_class() as u32).into()),
        (10, is_flat.into()),
        (11, (inputs.len() as u32).into()),
        (12, (per_thread as u32).into()),
    ]);
    let inner_steps: [u64; 4] = std::array::from_fn(|at| inner_strides.get(at).copied().unwrap_or(0) as u64);
    let [out, a, b, c] = inner_steps;
    let args = [
        operand(0).arg.clone(),
        operand(1).arg.clone(),
        operand(2).arg.clone(),
        output.arg.clone(),
        StepArg::bytes(axes.bytes()),
        StepArg::bytes(bytes_of(&[inner as u64, out, a, b, c])),
    ];
    steps.algorithm = "element-wise";
    steps.launch(File::Map, name, &constants, grid, args)
}

/// Side of the tile of threadgroup memory.
const TILE: usize = 32;
/// Rows of threads of a tile.
const TILE_ROWS: usize = 8;
/// Side of the tile in registers, and of the threadgroup.
const SIDE: usize = 16;
/// Threadgroups of the rows that a CPU transposes before the next ones: 1024 rows, whose pages' translations it keeps.
const BLOCK: usize = 4;
/// Most threadgroups along z: matrices of a transposition, or blocks of their rows.
const MOST_MATRICES: usize = 1 << 16;

/// Launches the copy by tiles if the innermost axes of source and target differ; returns whether it did.
fn transpose(source: &TensorRef<'_>, target: &TensorRef<'_>, steps: &mut Steps) -> Result<bool> {
    let is_cpu = steps.is_cpu();
    // Tiles hold floats, which are exact for all types but `i32`, or, on a CPU, elements of one type as they are.
    let is_exact = |view: &TensorRef<'_>| view.data_type != DataType::I32;
    let is_exact = is_exact(source) && is_exact(target) || is_cpu && source.data_type == target.data_type;
    let axes = Axes::new(target.shape(), &[source.strides(), target.strides()]).sorted(1).collapsed();
    let innermost = |operand: usize| {
        (0..axes.sizes.len()).find(|axis| axes.strides[operand][*axis] == 1 && axes.sizes[*axis] > 1)
    };
    let (Some(row), Some(column)) = (innermost(0), innermost(1)) else { return Ok(false) };
    let matrices = axes.select(|axis| axis != row && axis != column);
    let (columns, rows) = (axes.sizes[column], axes.sizes[row]);
    let blocks = if is_cpu { rows.div_ceil(SIDE * SIDE * BLOCK) } else { 1 };
    let is_small = rows < SIDE || columns < SIDE;
    if row == column || is_small || matrices.count() * blocks > MOST_MATRICES || !is_exact {
        return Ok(false);
    }
    let size = [columns, rows, axes.strides[0][column], axes.strides[1][row]].map(|value| value as u64);
    let constants = [
        (1, target.data_type.code().into()),
        (2, source.data_type.code().into()),
        (9, (matrices.rank_class() as u32).into()),
    ];
    let name = match (is_cpu, fits_32_bits([source.extent(), target.extent()])) {
        (true, true) => "transpose_in_registers_32",
        (true, false) => "transpose_in_registers_64",
        (false, true) => "transpose_32",
        (false, false) => "transpose_64",
    };
    let mut args = vec![
        StepArg::tensor(source, false),
        StepArg::tensor(target, true),
        StepArg::bytes(matrices.bytes()),
        StepArg::bytes(bytes_of(&size)),
    ];
    let (grid, group) = if is_cpu {
        args.push(StepArg::bytes(bytes_of(&(blocks as u32))));
        let of_a_block = rows.div_ceil(SIDE * SIDE).min(BLOCK);
        ((of_a_block, columns.div_ceil(SIDE), matrices.count() * blocks), (SIDE, SIDE))
    } else {
        ((columns.div_ceil(TILE), rows.div_ceil(TILE), matrices.count()), (TILE, TILE_ROWS))
    };
    steps.algorithm = if is_cpu { "transposition in registers" } else { "transposition by tiles" };
    steps.launch(File::Map, name, &constants, Grid::groups(grid).group(group), args)?;
    Ok(true)
}
