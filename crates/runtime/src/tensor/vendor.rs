//! The vendor's route: operations of the device's library, as a [`Primitive`].
//!
//! This is the one place that decides which operations a library computes. An operation is eligible if a primitive of the driver's
//! contract describes it and its operands exactly, and the device's library takes it.

use elinvar_driver::primitive as driver;
use elinvar_driver::{Caps, MemorySlice, Primitive};

use crate::tensor::matmul::{Matrix, Product};
use crate::tensor::operation::{Operands, Operation, Place};
use crate::tensor::view::TensorRef;
use crate::tensor::window::Along;
use crate::tensor::{
    Activation, Convolution, DataType, MatMul, Pooling, PoolingKind, Reduce, Reduction, Softmax,
};

/// The primitive that computes an operation on a device, and its operands in order; `None` if the device's library has none.
///
/// The operands have been checked, and the outputs have elements.
pub(crate) fn primitive(
    caps: &Caps,
    operation: &Operation,
    operands: &Operands<'_>,
) -> Option<(Primitive, Vec<Place>)> {
    let primitive = match operation {
        Operation::MatMul(matmul) => product(matmul, operands)?,
        Operation::Softmax(softmax) => softmax_of_rows(softmax, operands)?,
        Operation::Reduce(reduce) => reduction(reduce, operands)?,
        Operation::Convolution(convolution) => images(convolution, operands)?,
        Operation::Pooling(pooling) => pooled(pooling, operands)?,
        _ => return None,
    };
    let inputs = (0..operands.inputs.len()).map(Place::Input);
    let order: Vec<Place> = inputs.chain([Place::Output(0)]).collect();
    let wanted = primitive.operands_for(order.len()).ok()?;
    let memory: Vec<MemorySlice> = order
        .iter()
        .zip(&wanted)
        .map(|(place, operand)| {
            let slice = operands.view(*place).used_span().memory_slice();
            MemorySlice { len: operand.bytes.min(slice.len), ..slice }
        })
        .collect();
    let is_taken = primitive.check(&memory).is_ok()
        && caps.features.primitives.expect(&primitive, &memory, &caps.name).is_ok();
    is_taken.then_some((primitive, order))
}

fn data_type(data_type: DataType) -> Option<driver::DataType> {
    match data_type {
        DataType::F32 => Some(driver::DataType::F32),
        DataType::F16 => Some(driver::DataType::F16),
        DataType::BF16 => Some(driver::DataType::BF16),
        DataType::I8 => Some(driver::DataType::I8),
        DataType::I32 => Some(driver::DataType::I32),
        DataType::U8 => None,
    }
}

fn length(size: usize) -> Option<u32> {
    u32::try_from(size).ok()
}

/// A matrix of `rows` × `columns` elements of `size` bytes, and whether it is stored transposed. `batch` is the stride of matrices.
fn matrix(
    of: &Matrix,
    rows: usize,
    columns: usize,
    batch: usize,
    size: u64,
) -> Option<(driver::Matrix, bool)> {
    let has_rows = |row: usize, column: usize, rows: usize, columns: usize| {
        (column == 1 || columns == 1) && (row >= columns || rows == 1)
    };
    let (transposed, row, rows, columns) = if has_rows(of.row, of.column, rows, columns) {
        (false, of.row, rows, columns)
    } else if has_rows(of.column, of.row, columns, rows) {
        (true, of.column, columns, rows)
    } else {
        return None;
    };
    // The stride of a single row is not used, and may be anything.
    let row = if rows == 1 { columns } else { row };
    let matrix = driver::Matrix::strided(length(rows)?, length(columns)?, row as u64 * size);
    Some((driver::Matrix { matrix_bytes: batch as u64 * size, ..matrix }, transposed))
}

fn product(matmul: &MatMul, operands: &Operands<'_>) -> Option<Primitive> {
    let product = matmul.product(operands).ok()?;
    let Product { rows, columns, terms, ref batch, .. } = product;
    let (matrices, strides) = match batch.sizes[..] {
        [] => (1, [0; 4]),
        [count] => (length(count)?, std::array::from_fn(|operand| batch.strides[operand][0])),
        _ => return None,
    };
    let (factors, result) = (product.data_type, operands.outputs[0].data_type());
    if result != if factors == DataType::I8 { DataType::I32 } else { factors } {
        return None;
    }
    let has_plain_bias = || {
        let bias = operands.inputs[2];
        bias.data_type() == factors && bias.rank() == 1 && bias.is_contiguous() && bias.len() == columns
    };
    if matmul.bias
        && !(has_plain_bias() && product.bias.column == 1 && product.bias.row == 0 && strides[3] == 0)
    {
        return None;
    }
    let activation = match matmul.activation {
        Activation::None => driver::Activation::None,
        Activation::Relu => driver::Activation::Relu,
        Activation::GeluTanh => driver::Activation::Gelu,
        _ => return None,
    };
    let (left, transpose_left) = matrix(&product.a, rows, terms, strides[0], factors.size())?;
    let (right, transpose_right) = matrix(&product.b, terms, columns, strides[1], factors.size())?;
    let (result, false) = matrix(&product.out, rows, columns, strides[2], result.size())? else {
        return None;
    };
    Some(Primitive::MatMul(driver::MatMul {
        data_type: data_type(factors)?,
        matrices,
        left,
        transpose_left,
        right,
        transpose_right,
        result,
        alpha: matmul.alpha,
        beta: matmul.beta,
        bias: matmul.bias,
        activation,
    }))
}

/// A view of two axes with contiguous rows.
fn rows(view: &TensorRef<'_>) -> Option<driver::Matrix> {
    let ([rows, columns], [row, step]) = (view.shape(), view.strides()) else { return None };
    let is_contiguous = (*step == 1 || *columns == 1) && (*row >= *columns || *rows == 1);
    let bytes = (*row).max(*columns) as u64 * view.data_type().size();
    is_contiguous.then_some(driver::Matrix::strided(length(*rows)?, length(*columns)?, bytes))
}

fn softmax_of_rows(softmax: &Softmax, operands: &Operands<'_>) -> Option<Primitive> {
    let (source, result) = (operands.inputs[0], operands.outputs[0]);
    if softmax.axis != 1 || source.data_type() != result.data_type() {
        return None;
    }
    let data_type = data_type(source.data_type())?;
    let (source, result, logarithm) = (rows(source)?, rows(result)?, softmax.logarithm);
    Some(Primitive::Softmax(driver::Softmax { data_type, source, result, logarithm }))
}

fn reduction(reduce: &Reduce, operands: &Operands<'_>) -> Option<Primitive> {
    let (source, result) = (operands.inputs[0], operands.outputs[0]);
    let kind = match reduce.reduction {
        Reduction::Sum => driver::ReductionKind::Sum,
        Reduction::Mean => driver::ReductionKind::Mean,
        // A library's extremes may ignore NaN.
        _ => return None,
    };
    let each = match reduce.axes[..] {
        [1] => driver::Extent::Row,
        [0] => driver::Extent::Column,
        _ => return None,
    };
    let same = source.data_type() == result.data_type() && source.data_type().is_float();
    if !same || !result.is_contiguous() || source.is_empty() {
        return None;
    }
    let (data_type, source) = (data_type(source.data_type())?, rows(source)?);
    Some(Primitive::Reduction(driver::Reduction { data_type, kind, each, source }))
}

/// The layout of images `[n, channels, height, width]` without gaps.
fn layout(view: &TensorRef<'_>) -> Option<driver::Layout> {
    if view.is_contiguous() {
        return Some(driver::Layout::ChannelsFirst);
    }
    let last = view.permute(&[0, 2, 3, 1]).ok()?;
    last.is_contiguous().then_some(driver::Layout::ChannelsLast)
}

fn image_shape(view: &TensorRef<'_>) -> Option<driver::Images> {
    let [count, channels, height, width] = view.shape() else { return None };
    let (count, channels) = (length(*count)?, length(*channels)?);
    Some(driver::Images { count, channels, height: length(*height)?, width: length(*width)? })
}

/// Two spatial axes: of one, the height is 1.
fn with_height<'v>(view: &TensorRef<'v>) -> Option<TensorRef<'v>> {
    if view.rank() == 3 { view.expand(2).ok() } else { Some(view.clone()) }
}

fn window(along: &[Along]) -> Option<driver::Window> {
    let one = Along { size: 1, stride: 1, padding: (0, 0), dilation: 1 };
    let (down, across) = match along {
        [across] => (one, *across),
        [down, across] => (*down, *across),
        _ => return None,
    };
    let both = |of: fn(&Along) -> usize| Some([length(of(&down))?, length(of(&across))?]);
    let (top, bottom) = (length(down.padding.0)?, length(down.padding.1)?);
    let (left, right) = (length(across.padding.0)?, length(across.padding.1)?);
    Some(driver::Window {
        size: both(|along| along.size)?,
        stride: both(|along| along.stride)?,
        dilation: both(|along| along.dilation)?,
        padding: driver::Padding { top, bottom, left, right },
    })
}

fn images(convolution: &Convolution, operands: &Operands<'_>) -> Option<Primitive> {
    let [x, weights] = [with_height(operands.inputs[0])?, with_height(operands.inputs[1])?];
    let result = with_height(operands.outputs[0])?;
    let weight_type = weights.data_type();
    let has_plain_bias = || {
        let bias = operands.inputs[2];
        bias.data_type() == weight_type && bias.is_contiguous()
    };
    let plain = !convolution.transposed && convolution.activation == Activation::None;
    if !plain || x.data_type() != result.data_type() || convolution.bias && !has_plain_bias() {
        return None;
    }
    let along = convolution.window.along("convolution", &operands.inputs[1].shape()[2..]).ok()?;
    let layout_of_images = layout(&x)?;
    // Elements of one channel or one point are in the same order both ways.
    let has_either =
        |view: &TensorRef<'_>| view.shape()[1] == 1 || view.shape()[2] == 1 && view.shape()[3] == 1;
    let layout_as_images =
        |view: &TensorRef<'_>| layout(view).map(|own| if has_either(view) { layout_of_images } else { own });
    if layout_as_images(&result)? != layout_of_images {
        return None;
    }
    Some(Primitive::Convolution(driver::Convolution {
        data_type: data_type(x.data_type())?,
        layout: layout_of_images,
        source: image_shape(&x)?,
        channels: length(result.shape()[1])?,
        window: window(&along)?,
        groups: length(convolution.groups)?,
        weight_type: data_type(weight_type)?,
        weight_layout: layout_as_images(&weights)?,
        bias: convolution.bias,
    }))
}

fn pooled(pooling: &Pooling, operands: &Operands<'_>) -> Option<Primitive> {
    let (x, result) = (with_height(operands.inputs[0])?, with_height(operands.outputs[0])?);
    let kind = match pooling.kind {
        // A library's maximum may ignore NaN.
        PoolingKind::Max => return None,
        PoolingKind::Average => driver::PoolKind::Average,
        PoolingKind::AverageWithPadding => driver::PoolKind::AverageWithPadding,
    };
    let along = pooling.window.along("pooling", &pooling.size).ok()?;
    let layout_of_images = layout(&x)?;
    if x.data_type() != result.data_type() || layout(&result)? != layout_of_images {
        return None;
    }
    let (data_type, source, window) = (data_type(x.data_type())?, image_shape(&x)?, window(&along)?);
    Some(Primitive::Pooling(driver::Pooling { data_type, layout: layout_of_images, source, window, kind }))
}
