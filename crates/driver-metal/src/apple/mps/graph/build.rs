//! [`Builder`]: a graph under construction, and its compilation.
//!
//! Values are computed in `f32`, unless an operation says otherwise.

use elinvar_driver::primitive::DataType;
use elinvar_driver::{Error, Result};
use objc2::AnyThread as _;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSArray, NSDictionary, NSNumber};
use objc2_metal::MTLDevice;
use objc2_metal_performance_shaders::MPSDataType;
use objc2_metal_performance_shaders_graph::{
    MPSGraph, MPSGraphCompilationDescriptor, MPSGraphDevice, MPSGraphOptimization, MPSGraphOptions,
    MPSGraphShapedType, MPSGraphTensor,
};

use super::super::mps_type;
use super::{Graph, Operand};

/// An array of a graph.
pub(super) type Value = Retained<MPSGraphTensor>;

/// Numbers as MPSGraph takes shapes and axes.
pub(super) fn numbers(of: &[usize]) -> Retained<NSArray<NSNumber>> {
    let numbers: Vec<_> = of.iter().map(|number| NSNumber::numberWithUnsignedInteger(*number)).collect();
    NSArray::from_retained_slice(&numbers)
}

/// An operand, and the array of the graph that stands for it.
type Bound = (Operand, Value);

/// A graph under construction.
pub(super) struct Builder {
    pub(super) graph: Retained<MPSGraph>,
    inputs: Vec<Bound>,
    results: Vec<Bound>,
}

impl Builder {
    pub(super) fn new() -> Self {
        // SAFETY: makes a graph. Results stay on the GPU: nothing is synchronized for the host.
        let graph = unsafe {
            let graph = MPSGraph::new();
            graph.setOptions(MPSGraphOptions::None);
            graph
        };
        Self { graph, inputs: Vec::new(), results: Vec::new() }
    }

    /// The elements of an operand, in their type.
    pub(super) fn operand(&mut self, index: usize, shape: &[usize], data_type: DataType) -> Value {
        // SAFETY: plain numbers.
        let value = unsafe {
            self.graph.placeholderWithShape_dataType_name(Some(&numbers(shape)), mps_type(data_type), None)
        };
        self.inputs.push((Operand { index, shape: shape.to_vec(), data_type }, value.clone()));
        value
    }

    /// The elements of an operand, in `f32`.
    pub(super) fn wide(&mut self, index: usize, shape: &[usize], data_type: DataType) -> Value {
        let value = self.operand(index, shape, data_type);
        self.cast(value, data_type, DataType::F32)
    }

    /// Converts to another type, if it is one.
    pub(super) fn cast(&self, value: Value, from: DataType, to: DataType) -> Value {
        if from == to {
            return value;
        }
        // SAFETY: the value is of this graph, as in all functions below.
        unsafe { self.graph.castTensor_toType_name(&value, mps_type(to), None) }
    }

    /// A result of the graph, whose value has this type.
    pub(super) fn result(&mut self, index: usize, value: Value, shape: &[usize], data_type: DataType) {
        let value = self.reshape(&value, shape);
        self.results.push((Operand { index, shape: shape.to_vec(), data_type }, value));
    }

    /// A number of `f32`.
    pub(super) fn number(&self, value: f64) -> Value {
        // SAFETY: plain numbers.
        unsafe { self.graph.constantWithScalar_dataType(value, MPSDataType::Float32) }
    }

    /// A number of `f32` in each element.
    pub(super) fn numbers(&self, value: f64, shape: &[usize]) -> Value {
        // SAFETY: plain numbers.
        unsafe { self.graph.constantWithScalar_shape_dataType(value, &numbers(shape), MPSDataType::Float32) }
    }

    pub(super) fn reshape(&self, value: &Value, shape: &[usize]) -> Value {
        // SAFETY: as in `cast`.
        unsafe { self.graph.reshapeTensor_withShape_name(value, &numbers(shape), None) }
    }

    /// Exchanges two axes.
    pub(super) fn exchange(&self, value: &Value, one: usize, other: usize) -> Value {
        // SAFETY: as in `cast`.
        unsafe { self.graph.transposeTensor_dimension_withDimension_name(value, one, other, None) }
    }

    /// Repeats elements by the rules of arithmetic operations.
    pub(super) fn broadcast(&self, value: &Value, shape: &[usize]) -> Value {
        // SAFETY: as in `cast`.
        unsafe { self.graph.broadcastTensor_toShape_name(value, &numbers(shape), None) }
    }

    pub(super) fn equal(&self, left: &Value, right: &Value) -> Value {
        // SAFETY: as in `cast`.
        unsafe { self.graph.equalWithPrimaryTensor_secondaryTensor_name(left, right, None) }
    }

    pub(super) fn select(&self, is: &Value, yes: &Value, no: &Value) -> Value {
        // SAFETY: as in `cast`.
        unsafe {
            self.graph
                .selectWithPredicateTensor_truePredicateTensor_falsePredicateTensor_name(is, yes, no, None)
        }
    }

    pub(super) fn add(&self, left: &Value, right: &Value) -> Value {
        // SAFETY: as in `cast`.
        unsafe { self.graph.additionWithPrimaryTensor_secondaryTensor_name(left, right, None) }
    }

    pub(super) fn multiply(&self, left: &Value, right: &Value) -> Value {
        // SAFETY: as in `cast`.
        unsafe { self.graph.multiplicationWithPrimaryTensor_secondaryTensor_name(left, right, None) }
    }

    /// Multiplies by a number, unless it is 1.
    pub(super) fn scale(&self, value: Value, by: f32) -> Value {
        if by == 1.0 { value } else { self.multiply(&value, &self.number(by.into())) }
    }

    /// Product of the last two axes; the others are broadcast.
    pub(super) fn product(&self, left: &Value, right: &Value) -> Value {
        // SAFETY: as in `cast`.
        unsafe { self.graph.matrixMultiplicationWithPrimaryTensor_secondaryTensor_name(left, right, None) }
    }

    /// Compiles the graph for the GPU.
    pub(super) fn compile(self, device: &ProtocolObject<dyn MTLDevice>) -> Result<Graph> {
        let Self { graph, inputs, results } = self;
        let mut types = Vec::with_capacity(inputs.len());
        for (operand, _) in &inputs {
            let shape = numbers(&operand.shape);
            // SAFETY: plain numbers.
            types.push(unsafe {
                MPSGraphShapedType::initWithShape_dataType(
                    MPSGraphShapedType::alloc(),
                    Some(&shape),
                    mps_type(operand.data_type),
                )
            });
        }
        let feeds: Vec<&MPSGraphTensor> = inputs.iter().map(|(_, value)| &**value).collect();
        let types: Vec<&MPSGraphShapedType> = types.iter().map(|of| &**of).collect();
        let targets: Vec<Value> = results.iter().map(|(_, value)| value.clone()).collect();
        // SAFETY: all values are of this graph. Level 0 computes on the GPU alone; level 1 may use the Neural Engine, which has no `f32`.
        let executable = unsafe {
            let descriptor = MPSGraphCompilationDescriptor::new();
            descriptor.setOptimizationLevel(MPSGraphOptimization::Level0);
            let executable = graph
                .compileWithDevice_feeds_targetTensors_targetOperations_compilationDescriptor(
                    Some(&MPSGraphDevice::deviceWithMTLDevice(device)),
                    &NSDictionary::from_slices(&feeds, &types),
                    &NSArray::from_retained_slice(&targets),
                    None,
                    Some(&descriptor),
                );
            executable.setOptions(MPSGraphOptions::None);
            executable
        };
        // SAFETY: queries of the executable.
        let (feeds, targets) = unsafe { (executable.feedTensors(), executable.targetTensors()) };
        let lost = || Error::Environment("MPSGraph has compiled a graph for other arrays".into());
        let inputs = feeds.and_then(|order| in_order(&order, &inputs)).ok_or_else(lost)?;
        let results = targets.and_then(|order| in_order(&order, &results)).ok_or_else(lost)?;
        Ok(Graph { executable, inputs, results })
    }
}

/// The operands in the executable's order, if it has all.
fn in_order(order: &NSArray<MPSGraphTensor>, all: &[Bound]) -> Option<Vec<Operand>> {
    let find =
        |value: Value| all.iter().find(|(_, known)| *known == value).map(|(operand, _)| operand.clone());
    let found: Vec<Operand> = order.iter().map(find).collect::<Option<_>>()?;
    (found.len() == all.len()).then_some(found)
}
