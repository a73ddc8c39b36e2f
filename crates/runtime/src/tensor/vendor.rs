//! The vendor's route: operations of a library, as a [`Primitive`].
//!
//! This is the one place that decides which operations a library computes. An operation is eligible if a primitive of the driver's
//! contract describes it and its operands exactly, and the device has that primitive for the element type.

use elinvar_driver::primitive::{
    self as driver, Convolution as DriverConvolution, DataType as DriverType, Extent, Images, Layout,
    MatMul as DriverMatMul, MatVec, Matrix, Padding, PoolKind, Pooling as DriverPooling,
    Reduction as DriverReduction, ReductionKind, Softmax as DriverSoftmax, Window as DriverWindow,
};
use elinvar_driver::{Caps, MemorySlice, Primitive};

use crate::tensor::convolution::Convolution;
use crate::tensor::operation::{Operands, Operation, Place};
use crate::tensor::pooling::{Pooling, PoolingKind};
use crate::tensor::reduce::{Reduce, Reduction, Softmax};
use crate::tensor::view::TensorRef;
use crate::tensor::window::Along;
use crate::tensor::{Activation, DataType, MatMul};

/// The primitive that computes an operation on a device, and its operands in order; `None` if the device's library has none.
///
/// The operands have been checked, and the outputs have elements.
pub(crate) fn primitive(
    caps: &Caps,
    operation: &Operation,
    operands: &Operands<'_>,
) -> Option<(Primitive, Vec<Place>)> {
    if operands.inputs.iter().any(|input| input.is_empty()) {
        return None;
    }
    let (primitive, order) = match operation {
        Operation::Softmax(softmax) => softmax_of_rows(softmax, operands)?,
        Operation::Reduce(reduce) => reduction(reduce, operands)?,
        Operation::MatMul(matmul) => product(matmul, operands)?,
        Operation::Convolution(convolution) => convolved(convolution, operands)?,
        Operation::Pooling(pooling) => pooled(pooling, operands)?,
        _ => return None,
    };
    let memory: Vec<MemorySlice> =
        order.iter().map(|place| operands.at(*place).used_span().memory_slice()).collect();
    let fits = primitive.operands().is_ok()
        && caps.features.primitives.expect(&primitive, &memory, &caps.name).is_ok();
    fits.then_some((primitive, order))
}

fn driver_type(data_type: DataType) -> Option<DriverType> {
    match data_type {
        DataType::F32 => Some(DriverType::F32),
        DataType::F16 => Some(DriverType::F16),
        DataType::BF16 => Some(DriverType::BF16),
        DataType::I8 => Some(DriverType::I8),
        DataType::I32 => Some(DriverType::I32),
        DataType::U8 => None,
    }
}

fn float(data_type: DataType) -> Option<DriverType> {
    driver_type(data_type).filter(|data_type| data_type.is_float())
}

/// A number of elements.
fn number(size: usize) -> Option<u32> {
    u32::try_from(size).ok()
}

/// A view of two axes with contiguous rows.
fn matrix(view: &TensorRef<'_>) -> Option<Matrix> {
    let ([rows, columns], [row, step]) = (view.shape(), view.strides()) else { return None };
    let contiguous = (*step == 1 || *columns == 1) && (*row >= *columns || *rows == 1);
    let bytes = (*row).max(*columns) as u64 * view.data_type().size();
    contiguous.then_some(Matrix::strided(number(*rows)?, number(*columns)?, bytes))
}

fn softmax_of_rows(softmax: &Softmax, operands: &Operands<'_>) -> Option<(Primitive, Vec<Place>)> {
    let (source, result) = (operands.inputs[0], operands.outputs[0]);
    if softmax.axis != 1 || source.data_type() != result.data_type() {
        return None;
    }
    let primitive = DriverSoftmax {
        data_type: float(source.data_type())?,
        source: matrix(source)?,
        result: matrix(result)?,
        logarithm: softmax.logarithm,
    };
    Some((Primitive::Softmax(primitive), vec![Place::Input(0), Place::Output(0)]))
}

fn reduction(reduce: &Reduce, operands: &Operands<'_>) -> Option<(Primitive, Vec<Place>)> {
    let (source, result) = (operands.inputs[0], operands.outputs[0]);
    let kind = match reduce.reduction {
        Reduction::Sum => ReductionKind::Sum,
        Reduction::Mean => ReductionKind::Mean,
        // The library's extremes may ignore NaN.
        _ => return None,
    };
    let each = match reduce.axes[..] {
        [1] => Extent::Row,
        [0] => Extent::Column,
        _ => return None,
    };
    if source.data_type() != result.data_type() || !result.is_contiguous() {
        return None;
    }
    let primitive =
        DriverReduction { data_type: float(source.data_type())?, kind, each, source: matrix(source)? };
    Some((Primitive::Reduction(primitive), vec![Place::Input(0), Place::Output(0)]))
}

/// Matrices with contiguous rows, and whether they are transposed.
#[derive(Clone, Copy)]
struct Factor {
    matrix: Matrix,
    transposed: bool,
    /// Number of matrices; 1 if they are all the same.
    count: u32,
}

/// A view of two axes, or of three, as matrices.
fn factor(view: &TensorRef<'_>) -> Option<Factor> {
    let (shape, strides) = (view.shape(), view.strides());
    let (batch, [rows, columns], [row, step]) = match (shape, strides) {
        ([rows, columns], [row, step]) => (None, [*rows, *columns], [*row, *step]),
        ([count, rows, columns], [of_matrix, row, step]) => {
            (Some((*count, *of_matrix)), [*rows, *columns], [*row, *step])
        }
        _ => return None,
    };
    // The stride of an axis with one element does not matter.
    let is_matrix = |[rows, columns]: [usize; 2], [row, step]: [usize; 2]| {
        (step == 1 || columns == 1) && (row >= columns || rows == 1)
    };
    let transposed = !is_matrix([rows, columns], [row, step]);
    let ([rows, columns], [row, step]) =
        if transposed { ([columns, rows], [step, row]) } else { ([rows, columns], [row, step]) };
    if !is_matrix([rows, columns], [row, step]) {
        return None;
    }
    let size = view.data_type().size();
    let single = Matrix::strided(number(rows)?, number(columns)?, row.max(columns) as u64 * size);
    let (count, matrix_bytes) = match batch {
        None | Some((1, _)) | Some((_, 0)) => (1, 0),
        Some((count, of_matrix)) => (number(count)?, of_matrix as u64 * size),
    };
    Some(Factor { matrix: Matrix { matrix_bytes, ..single }, transposed, count })
}

fn activation(activation: Activation) -> Option<driver::Activation> {
    match activation {
        Activation::None => Some(driver::Activation::None),
        Activation::Relu => Some(driver::Activation::Relu),
        Activation::GeluTanh => Some(driver::Activation::Gelu),
        _ => None,
    }
}

fn product(matmul: &MatMul, operands: &Operands<'_>) -> Option<(Primitive, Vec<Place>)> {
    let (left, right, result) = (operands.inputs[0], operands.inputs[1], operands.outputs[0]);
    let data_type = driver_type(left.data_type())?;
    let MatMul { alpha, beta, bias, .. } = *matmul;
    if left.rank() == 2 && right.rank() == 1 {
        return vector_product(matmul, operands);
    }
    let left = factor(left)?;
    let right = factor(right)?;
    let result = factor(result).filter(|result| !result.transposed)?;
    let mut primitive = DriverMatMul {
        data_type,
        matrices: result.count,
        left: left.matrix,
        transpose_left: left.transposed,
        right: right.matrix,
        transpose_right: right.transposed,
        result: result.matrix,
        alpha,
        beta,
        bias,
        activation: activation(matmul.activation)?,
    };
    if driver_type(operands.outputs[0].data_type())? != primitive.result_type() {
        return None;
    }
    // The rows of all matrices are those of one, if they have the same distance and one right factor.
    let p = &mut primitive;
    let follow = |matrix: Matrix| matrix.matrix_bytes == matrix.row_bytes * u64::from(matrix.rows);
    if result.count > 1
        && right.count == 1
        && left.count == result.count
        && !left.transposed
        && follow(p.left)
        && follow(p.result)
    {
        let rows = p.left.rows.checked_mul(result.count)?;
        (p.left.rows, p.result.rows, p.matrices) = (rows, rows, 1);
    }
    let mut order = vec![Place::Input(0), Place::Input(1)];
    if bias {
        let bias = operands.inputs[2];
        let fits = bias.shape() == [p.result.columns as usize] && bias.is_contiguous();
        if !fits || driver_type(bias.data_type())? != data_type {
            return None;
        }
        order.push(Place::Input(2));
    }
    order.push(Place::Output(0));
    Some((Primitive::MatMul(primitive), order))
}

fn vector_product(matmul: &MatMul, operands: &Operands<'_>) -> Option<(Primitive, Vec<Place>)> {
    let (left, vector, result) = (operands.inputs[0], operands.inputs[1], operands.outputs[0]);
    let is_plain = !matmul.bias && matmul.activation == Activation::None;
    let is_vector = |view: &TensorRef<'_>| view.is_contiguous() && view.data_type() == left.data_type();
    if !is_plain || !is_vector(vector) || !is_vector(result) {
        return None;
    }
    let Factor { matrix, transposed, .. } = factor(left)?;
    let (data_type, alpha, beta) = (float(left.data_type())?, matmul.alpha, matmul.beta);
    let primitive = MatVec { data_type, matrix, transpose: transposed, alpha, beta };
    Some((Primitive::MatVec(primitive), vec![Place::Input(0), Place::Input(1), Place::Output(0)]))
}

/// A view of images with one or two spatial axes whose elements are packed.
fn images(view: &TensorRef<'_>) -> Option<(Images, Layout)> {
    let (count, channels, [height, width]) = match *view.shape() {
        [count, channels, width] => (count, channels, [1, width]),
        [count, channels, height, width] => (count, channels, [height, width]),
        _ => return None,
    };
    let sizes = Images {
        count: number(count)?,
        channels: number(channels)?,
        height: number(height)?,
        width: number(width)?,
    };
    if view.is_contiguous() {
        return Some((sizes, Layout::ChannelsFirst));
    }
    let last: Vec<usize> = [0].into_iter().chain(2..view.rank()).chain([1]).collect();
    view.permute(&last).ok()?.is_contiguous().then_some((sizes, Layout::ChannelsLast))
}

/// The window along one or two axes.
fn window(along: &[Along]) -> Option<DriverWindow> {
    let one = Along { size: 1, stride: 1, padding: (0, 0), dilation: 1 };
    let [down, across] = match *along {
        [across] => [one, across],
        [down, across] => [down, across],
        _ => return None,
    };
    let pair = |of: fn(&Along) -> usize| Some([number(of(&down))?, number(of(&across))?]);
    Some(DriverWindow {
        size: pair(|along| along.size)?,
        stride: pair(|along| along.stride)?,
        dilation: pair(|along| along.dilation)?,
        padding: Padding {
            top: number(down.padding.0)?,
            bottom: number(down.padding.1)?,
            left: number(across.padding.0)?,
            right: number(across.padding.1)?,
        },
    })
}

fn convolved(convolution: &Convolution, operands: &Operands<'_>) -> Option<(Primitive, Vec<Place>)> {
    let (x, weights, result) = (operands.inputs[0], operands.inputs[1], operands.outputs[0]);
    if convolution.transposed || convolution.activation != Activation::None {
        return None;
    }
    let along = convolution.window.along("convolution", &weights.shape()[2..]).ok()?;
    let ((source, layout), (sizes, result_layout)) = (images(x)?, images(result)?);
    let (filters, weight_layout) = images(weights)?;
    let data_type = float(x.data_type())?;
    // Views whose elements are in the same order both ways have either layout.
    let is_either = |sizes: Images| sizes.channels == 1 || sizes.height == 1 && sizes.width == 1;
    if result.data_type() != x.data_type() || (result_layout != layout && !is_either(sizes)) {
        return None;
    }
    let weight_layout = if is_either(filters) { layout } else { weight_layout };
    let mut order = vec![Place::Input(0), Place::Input(1)];
    if convolution.bias {
        let bias = operands.inputs[2];
        if bias.data_type() != weights.data_type() || !bias.is_contiguous() {
            return None;
        }
        order.push(Place::Input(2));
    }
    order.push(Place::Output(0));
    let primitive = DriverConvolution {
        groups: number(convolution.groups)?,
        weight_type: float(weights.data_type())?,
        weight_layout,
        bias: convolution.bias,
        ..DriverConvolution::new(data_type, layout, source, filters.count, window(&along)?)
    };
    (primitive.result() == sizes).then_some((Primitive::Convolution(primitive), order))
}

fn pooled(pooling: &Pooling, operands: &Operands<'_>) -> Option<(Primitive, Vec<Place>)> {
    let (x, result) = (operands.inputs[0], operands.outputs[0]);
    let along = pooling.window.along("pooling", &pooling.size).ok()?;
    let kind = match pooling.kind {
        PoolingKind::Max => PoolKind::Max,
        PoolingKind::Average => PoolKind::Average,
        PoolingKind::AverageWithPadding => PoolKind::AverageWithPadding,
    };
    let ((source, layout), (sizes, result_layout)) = (images(x)?, images(result)?);
    if x.data_type() != result.data_type() || layout != result_layout {
        return None;
    }
    let data_type = float(x.data_type())?;
    let primitive = DriverPooling { data_type, layout, source, window: window(&along)?, kind };
    (primitive.result() == sizes)
        .then_some((Primitive::Pooling(primitive), vec![Place::Input(0), Place::Output(0)]))
}
