//! The vendor's route: operations of the vendor's library, as a [`Primitive`].
//!
//! This is the one place that decides which operations a library computes. An operation is eligible if a primitive of the driver's
//! contract describes it and its operands exactly, and the device has that primitive for the element type.

use elinvar_driver::primitive::{
    Extent, Float, MatMul as DriverMatMul, Matrix, Reduction as DriverReduction, ReductionKind,
    Softmax as DriverSoftmax,
};
use elinvar_driver::{Caps, Primitive};

use crate::tensor::operation::{Operands, Operation, Place};
use crate::tensor::reduce::{Reduce, Reduction, Softmax};
use crate::tensor::view::TensorRef;
use crate::tensor::{Activation, DataType, MatMul};

/// The primitive that computes an operation on a device, and its operands in order; `None` if the device's library has none.
///
/// The operands have been checked, and the outputs have elements.
pub(crate) fn primitive(
    caps: &Caps,
    operation: &Operation,
    operands: &Operands<'_>,
) -> Option<(Primitive, Vec<Place>)> {
    let (primitive, order) = match operation {
        Operation::Softmax(softmax) => softmax_of_rows(softmax, operands)?,
        Operation::Reduce(reduce) => reduction(reduce, operands)?,
        Operation::MatMul(matmul) => product(matmul, operands)?,
        _ => return None,
    };
    let fits =
        primitive.operands().is_ok() && caps.features.primitives.expect(&primitive, &caps.name).is_ok();
    fits.then_some((primitive, order))
}

fn float(data_type: DataType) -> Option<Float> {
    match data_type {
        DataType::F32 => Some(Float::F32),
        DataType::F16 => Some(Float::F16),
        _ => None,
    }
}

/// A view of two axes with contiguous rows.
fn matrix(view: &TensorRef<'_>) -> Option<Matrix> {
    let ([rows, columns], [row, step]) = (view.shape(), view.strides()) else { return None };
    let contiguous = (*step == 1 || *columns == 1) && (*row >= *columns || *rows == 1);
    let bytes = (*row).max(*columns) as u64 * view.data_type().size();
    contiguous.then_some(Matrix::strided(u32::try_from(*rows).ok()?, u32::try_from(*columns).ok()?, bytes))
}

fn softmax_of_rows(softmax: &Softmax, operands: &Operands<'_>) -> Option<(Primitive, Vec<Place>)> {
    let (source, result) = (operands.inputs[0], operands.outputs[0]);
    if softmax.axis != 1 || source.data_type() != result.data_type() {
        return None;
    }
    let primitive = DriverSoftmax {
        float: float(source.data_type())?,
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
    if source.data_type() != result.data_type() || !result.is_contiguous() || source.is_empty() {
        return None;
    }
    let primitive =
        DriverReduction { float: float(source.data_type())?, kind, each, source: matrix(source)? };
    Some((Primitive::Reduction(primitive), vec![Place::Input(0), Place::Output(0)]))
}

/// A view of two axes, or of three, as matrices with contiguous rows, and whether they are transposed.
fn matrices(view: &TensorRef<'_>) -> Option<(Matrix, bool)> {
    let is_matrix = |view: &TensorRef<'_>| {
        let [.., row, column] = view.strides()[..] else { return false };
        column == 1 && row >= view.shape()[view.rank() - 1]
    };
    let transposed = !is_matrix(view);
    let view = if transposed { view.transpose(view.rank() - 2, view.rank() - 1).ok()? } else { view.clone() };
    let ([.., rows, columns], [.., row, _]) = (view.shape(), view.strides()) else { return None };
    let (rows, columns) = (u32::try_from(*rows).ok()?, u32::try_from(*columns).ok()?);
    let bytes = |elements: usize| elements as u64 * view.data_type().size();
    let matrix = Matrix::strided(rows, columns, bytes(*row));
    let matrix_bytes = if view.rank() == 3 { bytes(view.strides()[0]) } else { matrix.matrix_bytes };
    is_matrix(&view).then_some((Matrix { matrix_bytes, ..matrix }, transposed))
}

fn product(matmul: &MatMul, operands: &Operands<'_>) -> Option<(Primitive, Vec<Place>)> {
    let (left, right, result) = (operands.inputs[0], operands.inputs[1], operands.outputs[0]);
    let same = [left, right, result].iter().all(|view| {
        view.rank() == result.rank()
            && view.rank() >= 2
            && view.data_type() == result.data_type()
            && view.shape()[..view.rank() - 2] == result.shape()[..result.rank() - 2]
    });
    if !same || !(2..=3).contains(&result.rank()) || matmul.bias || matmul.activation != Activation::None {
        return None;
    }
    let ((left, transpose_left), (right, transpose_right)) = (matrices(left)?, matrices(right)?);
    let matrices_of_batch = if result.rank() == 3 { u32::try_from(result.shape()[0]).ok()? } else { 1 };
    let (float, (result, false)) = (float(result.data_type())?, matrices(result)?) else { return None };
    let (alpha, beta, matrices) = (matmul.alpha, matmul.beta, matrices_of_batch);
    let primitive =
        DriverMatMul { float, matrices, left, transpose_left, right, transpose_right, result, alpha, beta };
    Some((Primitive::MatMul(primitive), vec![Place::Input(0), Place::Input(1), Place::Output(0)]))
}
