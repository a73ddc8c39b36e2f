//! Primitives through [MPSGraph](https://developer.apple.com/documentation/metalperformanceshadersgraph), which the shaders lack.
//!
//! A primitive is a graph of a few operations, compiled to an executable for its shape; the device's cache of kernels keeps it. Values of 16
//! bits are converted to `f32` first where an operation would otherwise round them before the last one. An operand is an array without
//! gaps: `MPSNDArray` with an offset (macOS 15), or else the start of a buffer. A graph does not read what it writes: an operand that is
//! updated is copied first.
//!
//! MPSGraph may commit the command buffer that it encodes to, and go on in another one of the same queue ([`Held`]).
#![allow(unsafe_code)] // calls the framework

mod attention;
mod build;
mod convolution;
mod held;
mod normalization;
mod product;

use elinvar_driver::primitive::{DataType, GraphLibrary, OperandUse};
use elinvar_driver::{Error, MemorySlice, Primitive, Result};
use objc2::rc::Retained;
use objc2::runtime::{AnyClass, ProtocolObject};
use objc2::{AnyThread as _, sel};
use objc2_foundation::{NSArray, NSOperatingSystemVersion, NSProcessInfo};
use objc2_metal::{MTLDevice, MTLResourceOptions};
use objc2_metal_performance_shaders::{MPSNDArray, MPSNDArrayDescriptor};
use objc2_metal_performance_shaders_graph::{MPSGraphExecutable, MPSGraphTensorData};

use super::super::buffer::Buffer;
use super::super::encoding::{Encoding, Place};
use super::super::memory::located;
use super::mps_type;
use build::{Builder, numbers};
use held::Held;

/// What MPSGraph computes on this system; `None` before macOS 12.3, whose executables can be restricted to the GPU. Classes and methods are looked
/// up, because each system has more of them.
pub(super) fn library() -> Option<GraphLibrary> {
    let has = |class: &std::ffi::CStr, method| {
        AnyClass::get(class).is_some_and(|class| class.instance_method(method).is_some())
    };
    let encodes =
        has(c"MPSGraphExecutable", sel!(encodeToCommandBuffer:inputsArray:resultsArray:executionDescriptor:));
    if !encodes || !has(c"MPSGraphCompilationDescriptor", sel!(setOptimizationLevel:)) {
        return None;
    }
    Some(GraphLibrary {
        bf16: is_at_least(14),
        volumes: has(c"MPSGraph", sel!(convolution3DWithSourceTensor:weightsTensor:descriptor:name:)),
        offsets: has(c"MPSNDArray", sel!(initWithBuffer:offset:descriptor:))
            && has(c"MPSNDArrayDescriptor", sel!(setPreferPackedRows:)),
        attention: has(
            c"MPSGraph",
            sel!(scaledDotProductAttentionWithQueryTensor:keyTensor:valueTensor:maskTensor:scale:name:),
        ),
    })
}

/// Whether the system is this version of macOS, or the corresponding one of another system, or later.
fn is_at_least(macos: isize) -> bool {
    // iOS and tvOS have been three versions ahead until 26.
    let major = if cfg!(any(target_os = "ios", target_os = "tvos")) { macos + 3 } else { macos };
    let version = NSOperatingSystemVersion { majorVersion: major, minorVersion: 0, patchVersion: 0 };
    NSProcessInfo::processInfo().isOperatingSystemAtLeastVersion(version)
}

/// A compiled graph.
#[derive(Clone)]
pub(super) struct Graph {
    executable: Retained<MPSGraphExecutable>,
    /// The arrays that it takes, in its order.
    inputs: Vec<Operand>,
    /// The arrays that it makes, in its order.
    results: Vec<Operand>,
}

/// An array of a graph: an operand of the primitive.
#[derive(Clone, Debug)]
struct Operand {
    index: usize,
    shape: Vec<usize>,
    data_type: DataType,
}

impl Graph {
    /// Builds and compiles the graph of a primitive.
    pub(super) fn new(
        device: &ProtocolObject<dyn MTLDevice>,
        primitive: &Primitive,
        library: GraphLibrary,
    ) -> Result<Self> {
        let mut builder = Builder::new();
        match primitive {
            Primitive::MatMul(p) => product::build(&mut builder, p),
            Primitive::VolumeConvolution(p) => convolution::build(&mut builder, p)?,
            Primitive::BatchNorm(p) => normalization::batch(&mut builder, p)?,
            Primitive::Normalization(p) => normalization::rows(&mut builder, p),
            Primitive::Attention(p) => attention::build(&mut builder, p, library),
            other => return Err(Error::unsupported(format!("{} by MPSGraph", other.kind().name()))),
        }
        builder.compile(device)
    }

    /// Encodes the graph.
    pub(super) fn encode(
        &self,
        encoding: &mut Encoding<'_>,
        primitive: &Primitive,
        operands: &[MemorySlice],
    ) -> Result<()> {
        let core = encoding.core;
        let uses = primitive.operands_for(operands.len())?;
        let mut places = Vec::with_capacity(operands.len());
        for operand in operands {
            places.push(located(core, operand).map(|(buffer, offset)| (buffer.clone(), offset))?);
        }
        let results = self.arrays(&self.results, &places);
        for (at, operand) in
            uses.iter().enumerate().filter(|(_, operand)| operand.used == OperandUse::Updated)
        {
            // Does not overflow: the operand does not.
            let bytes = operand.bytes as usize;
            let copy = encoding.transient(bytes, MTLResourceOptions::StorageModePrivate)?;
            let (buffer, offset) = &places[at];
            let target = Place { buffer: &copy, offset: 0 };
            encoding.copy(Place { buffer, offset: *offset }, target, bytes)?;
            places[at] = (copy, 0);
        }
        let inputs = self.arrays(&self.inputs, &places);
        let held = Held::new(&encoding.library()?);
        // SAFETY: the arrays have the types and shapes that the executable was compiled for, are in memory that the submission keeps alive,
        // and results overlap no input.
        unsafe {
            self.executable.encodeToCommandBuffer_inputsArray_resultsArray_executionDescriptor(
                &held,
                &inputs,
                Some(&results),
                None,
            );
            encoding.go_on_in(held.rootCommandBuffer());
        }
        Ok(())
    }

    fn arrays(&self, of: &[Operand], places: &[(Buffer, usize)]) -> Retained<NSArray<MPSGraphTensorData>> {
        let data: Vec<_> = of.iter().map(|operand| operand.data(&places[operand.index])).collect();
        NSArray::from_retained_slice(&data)
    }
}

impl Operand {
    /// Its memory as MPSGraph takes it. What begins at the start of a buffer needs no `MPSNDArray` with an offset.
    fn data(&self, (buffer, offset): &(Buffer, usize)) -> Retained<MPSGraphTensorData> {
        let (shape, data_type) = (numbers(&self.shape), mps_type(self.data_type));
        let data = MPSGraphTensorData::alloc();
        // SAFETY: plain numbers; the primitive's validation has compared the sizes with the operand's, and the submission keeps the buffer
        // alive.
        unsafe {
            if *offset == 0 {
                return MPSGraphTensorData::initWithMTLBuffer_shape_dataType(data, buffer, &shape, data_type);
            }
            let descriptor = MPSNDArrayDescriptor::descriptorWithDataType_shape(data_type, &shape);
            // By default rows are padded to multiples of 16 bytes.
            descriptor.setPreferPackedRows(true);
            let array = MPSNDArray::initWithBuffer_offset_descriptor(
                MPSNDArray::alloc(),
                buffer,
                *offset,
                &descriptor,
            );
            MPSGraphTensorData::initWithMPSNDArray(data, &array)
        }
    }
}
