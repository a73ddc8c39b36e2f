//! The vendor's route: operations of the device's library, as a [`Primitive`].
//!
//! This is the one place that decides which operations a library computes. An operation is eligible if a primitive of the driver's
//! contract describes it and its operands exactly, and the device's library takes it.

mod models;

use elinvar_driver::primitive as driver;
use elinvar_driver::{Error, MemorySlice, Primitive};

use crate::Device;
use crate::tensor::matmul::{Matrix, Product};
use crate::tensor::operation::{Operands, Operation, Place};
use crate::tensor::view::TensorRef;
use crate::tensor::window::Along;
use crate::tensor::{
    Activation, Attention, Convolution, DataType, MatMul, Normalize, Pooling, PoolingKind, Reduce, Reduction,
    Softmax, Statistics,
};

/// A primitive that computes an operation.
pub(crate) struct Chosen {
    pub(crate) primitive: Primitive,
    /// Its operands in order.
    pub(crate) order: Vec<Place>,
    /// What the library calls it, for display.
    pub(crate) algorithm: &'static str,
    /// Whether the library compiles it for each shape, which takes longer than a small operation.
    pub(crate) compiles: bool,
}

/// Whether an operation comes with other shapes each time: attention to a sequence that grows.
pub(crate) fn changes_shape(operation: &Operation) -> bool {
    matches!(operation, Operation::Attention(Attention { causal: Some(1..), .. }))
}

/// The primitive that computes an operation on a device. If the device's library has none: why, as far as there is a primitive.
///
/// The operands have been checked, and the outputs have elements.
pub(crate) fn primitive(
    device: &Device,
    operation: &Operation,
    operands: &Operands<'_>,
) -> Result<Chosen, Option<Error>> {
    let inputs = (0..operands.inputs.len()).map(Place::Input);
    let outputs = (1..operands.outputs.len()).map(Place::Output);
    let order: Vec<Place> = inputs.chain(outputs).chain([Place::Output(0)]).collect();
    let candidates = match operation {
        Operation::MatMul(matmul) => [product(matmul, operands), None],
        Operation::Softmax(softmax) => [softmax_of_rows(softmax, operands), None],
        Operation::Reduce(reduce) => [reduction(reduce, operands), None],
        Operation::Convolution(convolution) => {
            [images(convolution, operands), volumes(convolution, operands)]
        }
        Operation::Normalize(of) => [batch_norm(of, operands), models::normalization(of, operands)],
        Operation::Pooling(pooling) => [pooled(pooling, operands), None],
        Operation::Attention(attention) => [models::attention(attention, operands), None],
        _ => [None, None],
    };
    let mut refused = None;
    for primitive in candidates.into_iter().flatten() {
        match takes(device, &primitive, &order, operands) {
            Ok((algorithm, compiles)) => return Ok(Chosen { primitive, order, algorithm, compiles }),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused)
}

/// The library's name for a primitive, if it takes it, and whether it compiles it.
fn takes(
    device: &Device,
    primitive: &Primitive,
    order: &[Place],
    operands: &Operands<'_>,
) -> Result<(&'static str, bool), Error> {
    let wanted = primitive.operands_for(order.len())?;
    let memory: Vec<MemorySlice> = order
        .iter()
        .zip(&wanted)
        .map(|(place, operand)| {
            let slice = operands.view(*place).used_span().memory_slice();
            MemorySlice { len: operand.bytes.min(slice.len), ..slice }
        })
        .collect();
    let caps = device.caps();
    primitive.check(&memory)?;
    caps.features.primitives.expect(primitive, &memory, &caps.name)?;
    device.driver().expect_primitive(primitive)?;
    let primitives = caps.features.primitives;
    Ok((primitives.algorithm(primitive, &memory), primitives.is_for_graph(primitive, &memory)))
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

/// The layout of images or volumes `[n, channels, …]` without gaps.
fn layout(view: &TensorRef<'_>) -> Option<driver::Layout> {
    if view.is_contiguous() {
        return Some(driver::Layout::ChannelsFirst);
    }
    let order: Vec<usize> = [0].into_iter().chain(2..view.rank()).chain([1]).collect();
    let last = view.permute(&order).ok()?;
    last.is_contiguous().then_some(driver::Layout::ChannelsLast)
}

/// The layout of a view beside images of layout `images`: elements of one channel or one point are in the same order both ways.
fn layout_beside(images: driver::Layout, view: &TensorRef<'_>) -> Option<driver::Layout> {
    let has_either = view.shape()[1] == 1 || view.shape()[2..].iter().all(|size| *size == 1);
    layout(view).map(|own| if has_either { images } else { own })
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
    if layout_beside(layout_of_images, &result)? != layout_of_images {
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
        weight_layout: layout_beside(layout_of_images, &weights)?,
        bias: convolution.bias,
    }))
}

/// Three spatial axes: of fewer, the first ones have a size of 1.
fn with_depth<'v>(view: &TensorRef<'v>) -> Option<TensorRef<'v>> {
    (view.rank()..5).try_fold(view.clone(), |view, _| view.expand(2).ok())
}

fn volume_shape(view: &TensorRef<'_>) -> Option<driver::Volumes> {
    let [count, channels, depth, height, width] = view.shape() else { return None };
    let (count, channels) = (length(*count)?, length(*channels)?);
    Some(driver::Volumes { count, channels, size: [length(*depth)?, length(*height)?, length(*width)?] })
}

fn volumes(convolution: &Convolution, operands: &Operands<'_>) -> Option<Primitive> {
    let [x, weights] = [with_depth(operands.inputs[0])?, with_depth(operands.inputs[1])?];
    let result = with_depth(operands.outputs[0])?;
    let has_one_type = [&weights, &result].iter().all(|view| view.data_type() == x.data_type());
    let is_plain = |bias: &TensorRef<'_>| bias.data_type() == x.data_type() && bias.is_contiguous();
    let has_plain_bias = !convolution.bias || is_plain(operands.inputs[2]);
    if convolution.activation != Activation::None || !has_one_type || !has_plain_bias {
        return None;
    }
    let mut along = convolution.window.along("convolution", &operands.inputs[1].shape()[2..]).ok()?;
    while along.len() < 3 {
        along.insert(0, Along { size: 1, stride: 1, padding: (0, 0), dilation: 1 });
    }
    let layout = layout(&x)?;
    if [&weights, &result].iter().any(|view| layout_beside(layout, view) != Some(layout)) {
        return None;
    }
    let all = |of: fn(&Along) -> usize| -> Option<[u32; 3]> {
        Some([length(of(&along[0]))?, length(of(&along[1]))?, length(of(&along[2]))?])
    };
    Some(Primitive::VolumeConvolution(driver::VolumeConvolution {
        data_type: data_type(x.data_type())?,
        layout,
        source: volume_shape(&x)?,
        result: volume_shape(&result)?,
        window: driver::VolumeWindow {
            size: all(|along| along.size)?,
            stride: all(|along| along.stride)?,
            dilation: all(|along| along.dilation)?,
            // The padding at the end decides about the number of positions only, which the result has.
            padding: all(|along| along.padding.0)?,
        },
        groups: length(convolution.groups)?,
        bias: convolution.bias,
        transposed: convolution.transposed,
    }))
}

/// A normalization of each index of one axis, with parameters and statistics for it.
fn batch_norm(normalize: &Normalize, operands: &Operands<'_>) -> Option<Primitive> {
    let statistics = match normalize.statistics {
        Statistics::Given => driver::BatchStatistics::Given,
        Statistics::Saved => driver::BatchStatistics::Saved,
        Statistics::Running { momentum } => driver::BatchStatistics::Running { momentum },
        Statistics::Computed => return None,
    };
    let (x, result) = (operands.inputs[0], operands.outputs[0]);
    let mut kept = (0..x.rank()).filter(|axis| !normalize.axes.contains(axis));
    let (Some(channels), None) = (kept.next(), kept.next()) else { return None };
    let is_plain = normalize.center && normalize.scale && normalize.bias && (2..=5).contains(&x.rank());
    if !is_plain || channels == 0 || x.data_type() != result.data_type() {
        return None;
    }
    let is_vector = |view: &TensorRef<'_>| {
        let Ok(view) = view.broadcast(x.shape()) else { return false };
        let steps = view.shape().iter().zip(view.strides()).enumerate();
        let fits = |(axis, (size, stride)): (usize, (&usize, &usize))| {
            *size == 1 || *stride == usize::from(axis == channels)
        };
        view.data_type() == DataType::F32 && steps.into_iter().all(fits)
    };
    let others = operands.inputs[1..].iter().chain(&operands.outputs[1..]);
    if !others.into_iter().all(|view| is_vector(view)) {
        return None;
    }
    let mut order: Vec<usize> = (0..x.rank()).filter(|axis| *axis != channels).collect();
    order.insert(1, channels);
    let [x, result] = [x, result].map(|view| with_depth(&view.permute(&order).ok()?));
    let (x, result) = (x?, result?);
    let layout = layout(&x)?;
    if layout_beside(layout, &result)? != layout {
        return None;
    }
    let (data_type, source) = (data_type(x.data_type())?, volume_shape(&x)?);
    let epsilon = normalize.epsilon;
    Some(Primitive::BatchNorm(driver::BatchNorm { data_type, layout, source, epsilon, statistics }))
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
