//! The vendor's route: operations of the vendor's library, as a [`Primitive`].
//!
//! This is the one place that decides which operations a library computes. An operation is eligible if a primitive of the driver's
//! contract describes it and its operands exactly, and the device has that primitive for the element type.

use elinvar_driver::primitive::{
    Extent, Float, Matrix, Reduction as DriverReduction, ReductionKind, Softmax as DriverSoftmax,
};
use elinvar_driver::{Caps, Primitive};

use crate::tensor::DataType;
use crate::tensor::operation::{Operands, Operation, Place};
use crate::tensor::reduce::{Reduce, Reduction, Softmax};
use crate::tensor::view::TensorRef;

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
