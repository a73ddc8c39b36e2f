//! Convolution: `MPSCNNConvolution`, whose weights are loaded from the operands at each encoding.
//!
//! The framework requests weights from a data source when a convolution is created; ours provides zeros. The actual weights come
//! from device buffers through `reloadWeightsAndBiases`, ordered in the command buffer.
#![allow(unsafe_code)] // calls the framework, and is called by it

use std::ffi::c_void;
use std::ptr::NonNull;

use elinvar_driver::primitive::Convolution;
use elinvar_driver::{Error, Result};
use objc2::rc::Retained;
use objc2::runtime::{NSObject, ProtocolObject};
use objc2::{AnyThread, DefinedClass as _, define_class, msg_send};
use objc2_foundation::{NSCopying, NSObjectProtocol, NSString, NSZone};
use objc2_metal::MTLDevice;
use objc2_metal_performance_shaders::{
    MPSCNNConvolution, MPSCNNConvolutionDataSource, MPSCNNConvolutionDescriptor,
    MPSCNNConvolutionWeightsAndBiasesState, MPSDataType, MPSImageEdgeMode,
    MPSNNConvolutionAccumulatorPrecisionOption,
};

use super::image::Copies;
use super::{Call, mps_type, offset};

/// The MPS kernels of a convolution.
#[derive(Clone)]
pub(super) struct Kernels {
    convolution: Retained<MPSCNNConvolution>,
    descriptor: Retained<MPSCNNConvolutionDescriptor>,
    copies: Copies,
}

/// Data source of a convolution.
struct Zeros {
    descriptor: Retained<MPSCNNConvolutionDescriptor>,
    weights: Vec<f32>,
    /// Empty for none.
    bias: Vec<f32>,
    /// The type in which the kernel stores the weights.
    kept: MPSDataType,
}

define_class!(
    // SAFETY: `NSObject` has no subclassing requirements, and there is no `Drop`.
    #[unsafe(super(NSObject))]
    #[ivars = Zeros]
    struct Source;

    // SAFETY: `NSObject` implements the protocol.
    unsafe impl NSObjectProtocol for Source {}

    // SAFETY: it is immutable, so it is its own copy.
    unsafe impl NSCopying for Source {
        #[unsafe(method_id(copyWithZone:))]
        fn copy_with_zone(&self, _zone: *mut NSZone) -> Retained<Self> {
            // SAFETY: the object is alive.
            unsafe { Retained::retain(std::ptr::from_ref(self).cast_mut()) }.expect("`self` is not nil")
        }
    }

    // SAFETY: the methods have the protocol's types, and the pointers stay valid as long as the object.
    unsafe impl MPSCNNConvolutionDataSource for Source {
        #[unsafe(method(dataType))]
        fn data_type(&self) -> MPSDataType {
            MPSDataType::Float32
        }

        #[unsafe(method_id(descriptor))]
        fn descriptor(&self) -> Retained<MPSCNNConvolutionDescriptor> {
            self.ivars().descriptor.clone()
        }

        #[unsafe(method(weights))]
        fn weights(&self) -> NonNull<c_void> {
            NonNull::from(self.ivars().weights.as_slice()).cast()
        }

        #[unsafe(method(biasTerms))]
        fn bias_terms(&self) -> *mut f32 {
            let bias = &self.ivars().bias;
            if bias.is_empty() { std::ptr::null_mut() } else { bias.as_ptr().cast_mut() }
        }

        #[unsafe(method(load))]
        fn load(&self) -> bool {
            true
        }

        #[unsafe(method(purge))]
        fn purge(&self) {}

        #[unsafe(method_id(label))]
        fn label(&self) -> Option<Retained<NSString>> {
            None
        }

        #[unsafe(method(kernelWeightsDataType))]
        fn kernel_weights_data_type(&self) -> MPSDataType {
            self.ivars().kept
        }
    }
);

impl Source {
    fn new(zeros: Zeros) -> Retained<Self> {
        let this = Self::alloc().set_ivars(zeros);
        // SAFETY: `NSObject`'s initializer has no preconditions.
        unsafe { msg_send![super(this), init] }
    }
}

pub(super) fn make(device: &ProtocolObject<dyn MTLDevice>, p: &Convolution) -> Result<Kernels> {
    let [height, width] = p.window.size.map(|size| size as usize);
    let [down, across] = p.window.stride.map(|stride| stride as usize);
    let [dilation_down, dilation_across] = p.window.dilation.map(|dilation| dilation as usize);
    let (inputs, outputs) = (p.source.channels as usize, p.channels as usize);
    let count = usize::try_from(p.weights());
    let count = count.map_err(|_| Error::invalid(format!("convolution: {} weights", p.weights())))?;
    // SAFETY: plain numbers, none of which is 0.
    let descriptor = unsafe {
        let descriptor = MPSCNNConvolutionDescriptor::cnnConvolutionDescriptorWithKernelWidth_kernelHeight_inputFeatureChannels_outputFeatureChannels(
            width, height, inputs, outputs,
        );
        descriptor.setStrideInPixelsX(across);
        descriptor.setStrideInPixelsY(down);
        descriptor.setDilationRateX(dilation_across);
        descriptor.setDilationRateY(dilation_down);
        descriptor
    };
    let source = Source::new(Zeros {
        descriptor: descriptor.clone(),
        weights: vec![0.0; count],
        bias: if p.bias { vec![0.0; outputs] } else { Vec::new() },
        kept: mps_type(p.data_type),
    });
    // SAFETY: the source has the data that the descriptor describes; no other code uses the kernel yet.
    let convolution = unsafe {
        let source = ProtocolObject::from_ref(&*source);
        let kernel = MPSCNNConvolution::initWithDevice_weights(MPSCNNConvolution::alloc(), device, source);
        kernel.setOffset(offset(&p.window));
        kernel.setEdgeMode(MPSImageEdgeMode::Zero);
        kernel.setAccumulatorPrecisionOption(MPSNNConvolutionAccumulatorPrecisionOption::Float);
        kernel
    };
    Ok(Kernels { convolution, descriptor, copies: Copies::new(device, p.layout) })
}

pub(super) fn encode(call: &Call<'_>, p: &Convolution, kernels: &Kernels) -> Result<()> {
    let (weights, weights_offset) = call.place(1)?;
    let bias = if p.bias { Some(call.place(2)?) } else { None };
    let (bias, bias_offset) = bias.map_or((None, 0), |(buffer, offset)| (Some(&**buffer), offset));
    let state = MPSCNNConvolutionWeightsAndBiasesState::alloc();
    // SAFETY: the primitive's validation has compared the operands with the descriptor's weights and biases, and their offsets with the size of
    // a float.
    unsafe {
        let state = MPSCNNConvolutionWeightsAndBiasesState::initWithWeights_weightsOffset_biases_biasesOffset_cnnConvolutionDescriptor(
            state,
            weights,
            weights_offset,
            bias,
            bias_offset,
            &kernels.descriptor,
        );
        kernels.convolution.reloadWeightsAndBiasesWithCommandBuffer_state(&call.buffer, &state);
    }
    let (sizes, last) = ([p.source, p.result()], call.operands.len() - 1);
    for image in 0..p.source.count {
        let row = |at, size| call.image(at, image, size, p.data_type);
        let (source, result) = (row(0, p.source)?, row(last, sizes[1])?);
        kernels.copies.apply(call, &kernels.convolution, p.data_type, sizes, [&source, &result]);
    }
    Ok(())
}
