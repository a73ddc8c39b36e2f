//! [`Operation`]: a tensor operation as plain data, and the checks that all have in common.

use elinvar_driver::{Error, Result};

use crate::Device;
use crate::launch::args::Arg;
use crate::tensor::attention::Attention;
use crate::tensor::convolution::Convolution;
use crate::tensor::map::Map;
use crate::tensor::matmul::MatMul;
use crate::tensor::normalize::Normalize;
use crate::tensor::overlap::{is_identical, may_overlap};
use crate::tensor::plan::{Steps, typed_arg};
use crate::tensor::pooling::Pooling;
use crate::tensor::reduce::{Reduce, Softmax};
use crate::tensor::view::{Dims, TensorRef};

/// A tensor operation with its parameters. Operands are passed separately, in the order that each operation lists.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// Element-wise.
    Map(Map),
    /// Sums, extremes and means along axes.
    Reduce(Reduce),
    /// Softmax along an axis.
    Softmax(Softmax),
    /// Matrix product.
    MatMul(MatMul),
    /// Batch, layer, group and RMS normalization.
    Normalize(Normalize),
    /// Scaled dot-product attention.
    Attention(Attention),
    /// Pooling.
    Pooling(Pooling),
    /// Convolution and transposed convolution.
    Convolution(Convolution),
}

impl From<Map> for Operation {
    fn from(operation: Map) -> Self {
        Self::Map(operation)
    }
}

impl From<Reduce> for Operation {
    fn from(operation: Reduce) -> Self {
        Self::Reduce(operation)
    }
}

impl From<Softmax> for Operation {
    fn from(operation: Softmax) -> Self {
        Self::Softmax(operation)
    }
}

impl From<Normalize> for Operation {
    fn from(operation: Normalize) -> Self {
        Self::Normalize(operation)
    }
}

impl From<Convolution> for Operation {
    fn from(operation: Convolution) -> Self {
        Self::Convolution(operation)
    }
}

impl From<Pooling> for Operation {
    fn from(operation: Pooling) -> Self {
        Self::Pooling(operation)
    }
}

impl From<Attention> for Operation {
    fn from(operation: Attention) -> Self {
        Self::Attention(operation)
    }
}

impl From<MatMul> for Operation {
    fn from(operation: MatMul) -> Self {
        Self::MatMul(operation)
    }
}

/// Operands of an operation.
#[derive(Clone, Copy)]
pub(crate) struct Operands<'o> {
    pub(crate) inputs: &'o [&'o TensorRef<'o>],
    pub(crate) outputs: &'o [&'o TensorRef<'o>],
}

/// An operand of a primitive, by its place among an operation's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Input(usize),
    Output(usize),
}

/// What an operation implements. Shapes are checked before any other method is called.
pub(crate) trait Operate {
    /// Name in messages.
    fn name(&self) -> &'static str;

    /// Names of the inputs and outputs.
    fn operands(&self) -> (Vec<&'static str>, Vec<&'static str>);

    /// Checks shapes and types. The number of operands is right.
    fn check(&self, operands: &Operands<'_>) -> Result<()>;

    /// As [`Plan::flops`](crate::tensor::Plan::flops).
    fn flops(&self, operands: &Operands<'_>) -> u64;

    /// Adds launches of kernels. The outputs have elements.
    fn add_steps(&self, operands: &Operands<'_>, steps: &mut Steps) -> Result<()>;

    /// Names of the algorithms that can be asked for.
    fn algorithms(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether an element of the output depends on the elements of the inputs at its index only.
    fn is_element_wise(&self) -> bool {
        false
    }
}

impl Operation {
    fn as_operate(&self) -> &dyn Operate {
        match self {
            Self::Map(operation) => operation,
            Self::Reduce(operation) => operation,
            Self::Softmax(operation) => operation,
            Self::MatMul(operation) => operation,
            Self::Normalize(operation) => operation,
            Self::Attention(operation) => operation,
            Self::Pooling(operation) => operation,
            Self::Convolution(operation) => operation,
        }
    }

    /// Names of the algorithms of the kernels, if there are several; see [`Plan::with_algorithm`](crate::tensor::Plan::with_algorithm).
    pub fn algorithms(&self) -> &'static [&'static str] {
        self.as_operate().algorithms()
    }

    /// Name of the operation.
    pub fn name(&self) -> &'static str {
        self.as_operate().name()
    }

    pub(crate) fn flops(&self, operands: &Operands<'_>) -> u64 {
        self.as_operate().flops(operands)
    }

    pub(crate) fn add_steps(&self, operands: &Operands<'_>, steps: &mut Steps) -> Result<()> {
        self.as_operate().add_steps(operands, steps)
    }

    /// Checks everything about the operands; returns their device.
    pub(crate) fn check(&self, operands: &Operands<'_>) -> Result<Device> {
        let this = self.as_operate();
        let (inputs, outputs) = this.operands();
        let given = (operands.inputs.len(), operands.outputs.len());
        if given != (inputs.len(), outputs.len()) {
            return Err(self.fail(format_args!(
                "takes {} inputs ({}) and {} outputs ({}), {} and {} given",
                inputs.len(),
                inputs.join(", "),
                outputs.len(),
                outputs.join(", "),
                given.0,
                given.1
            )));
        }
        let named_inputs: Vec<_> = inputs.into_iter().zip(operands.inputs).collect();
        let named_outputs: Vec<_> = outputs.into_iter().zip(operands.outputs).collect();
        let device = operands.outputs[0].device().clone();
        for (name, view) in named_inputs.iter().chain(&named_outputs) {
            device.expect_same(view.device(), || format!("{}: `{name}` is", self.name()))?;
        }
        this.check(operands)?;
        for (at, (name, output)) in named_outputs.iter().enumerate() {
            for (other, view) in named_inputs.iter().chain(&named_outputs[..at]) {
                let in_place = this.is_element_wise() && is_identical(view, output);
                if !in_place && may_overlap(view, output) {
                    return Err(
                        self.fail(format_args!("output `{name}` {output} may overlap `{other}` {view}"))
                    );
                }
            }
        }
        Ok(device)
    }

    fn fail(&self, text: impl std::fmt::Display) -> Error {
        fail(self.name(), text)
    }
}

impl Operands<'_> {
    /// Bytes of all elements; those of a broadcast axis count once.
    pub(crate) fn bytes(&self) -> u64 {
        let elements = |view: &TensorRef<'_>| -> u64 {
            let axes = view.shape.iter().zip(&view.strides);
            axes.map(|(size, stride)| if *stride == 0 && *size > 0 { 1 } else { *size as u64 }).product()
        };
        let all = self.inputs.iter().chain(self.outputs);
        all.map(|view| elements(view) * view.data_type.size()).sum()
    }

    /// Whether the offsets of all operands fit the 32-bit variants of the kernels.
    pub(crate) fn fit_32_bits(&self) -> bool {
        let all = self.inputs.iter().chain(self.outputs);
        crate::tensor::axes::fits_32_bits(all.map(|view| view.extent().max(view.len())))
    }

    /// The operand at a place.
    pub(crate) fn view(&self, place: Place) -> &TensorRef<'_> {
        match place {
            Place::Input(at) => self.inputs[at],
            Place::Output(at) => self.outputs[at],
        }
    }

    /// An operand of a primitive.
    pub(crate) fn vendor_arg(&self, place: Place) -> Arg {
        typed_arg(self.view(place), matches!(place, Place::Output(_)))
    }
}

/// An error of a view, with the operand that it is of.
pub(crate) trait Within {
    fn within(self, operation: &str, name: &str) -> Error;
}

impl Within for Error {
    fn within(self, operation: &str, name: &str) -> Error {
        match self {
            Self::InvalidArgument(text) => fail(operation, format_args!("`{name}`: {text}")),
            other => other,
        }
    }
}

/// The error of an operation.
pub(crate) fn fail(operation: &str, text: impl std::fmt::Display) -> Error {
    Error::invalid(format!("{operation}: {text}"))
}

/// Checks that two operands have the same shape.
pub(crate) fn expect_shape(
    operation: &str,
    (name, view): (&str, &TensorRef<'_>),
    (reason, shape): (&str, &[usize]),
) -> Result<()> {
    if view.shape() == shape {
        return Ok(());
    }
    let differs = view.shape().iter().zip(shape).position(|(a, b)| a != b);
    let axis = match differs {
        Some(axis) if view.rank() == shape.len() => {
            format!("axis {axis} has {} elements, not {}", view.shape()[axis], shape[axis])
        }
        _ => format!("it has {} axes, not {}", view.rank(), shape.len()),
    };
    Err(fail(operation, format_args!("`{name}` {view}, {reason} {shape:?}: {axis}")))
}

/// Checks an operand's element type.
pub(crate) fn expect_float(operation: &str, name: &str, view: &TensorRef<'_>) -> Result<()> {
    if view.data_type.is_float() {
        return Ok(());
    }
    Err(fail(operation, format_args!("`{name}` {view}: its elements must be f32, f16 or bf16")))
}

/// Checks axes of a shape: each exists, and none is named twice. Returns whether each axis of the shape is named.
pub(crate) fn named_axes(operation: &str, axes: &[usize], shape: &[usize]) -> Result<Vec<bool>> {
    let mut named = vec![false; shape.len()];
    for axis in axes {
        match named.get_mut(*axis) {
            Some(named) if !*named => *named = true,
            Some(_) => return Err(fail(operation, format_args!("axis {axis} is named twice in {axes:?}"))),
            None => return Err(fail(operation, format_args!("shape {shape:?} has no axis {axis}"))),
        }
    }
    Ok(named)
}

/// The shape with each named axis of size 1, or without them.
pub(crate) fn reduced_shape(shape: &[usize], named: &[bool], keep: bool) -> Dims {
    let axes = shape.iter().zip(named).filter(|(_, named)| keep || !**named);
    axes.map(|(size, named)| if *named { 1 } else { *size }).collect()
}
