//! Image kernels over buffers: operands are copied to temporary images, and the result image is copied back.
//!
//! A copy treats an image as one row of a matrix, in either data layout. Temporary images belong to the command buffer, which reuses
//! their memory.
#![allow(unsafe_code)] // calls the framework

use elinvar_driver::primitive::{DataType, Images, Layout};
use objc2::AnyThread as _;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::MTLDevice;
use objc2_metal_performance_shaders::{
    MPSCNNKernel, MPSDataLayout, MPSImageCopyToMatrix, MPSImageDescriptor, MPSImageFeatureChannelFormat,
    MPSMatrix, MPSMatrixCopyToImage, MPSTemporaryImage,
};

use super::Call;

/// Copies to and from images.
#[derive(Clone)]
pub(super) struct Copies {
    into: Retained<MPSMatrixCopyToImage>,
    out: Retained<MPSImageCopyToMatrix>,
}

impl Copies {
    pub(super) fn new(device: &ProtocolObject<dyn MTLDevice>, layout: Layout) -> Self {
        let layout = match layout {
            Layout::ChannelsFirst => MPSDataLayout::FeatureChannelsxHeightxWidth,
            Layout::ChannelsLast => MPSDataLayout::HeightxWidthxFeatureChannels,
        };
        // SAFETY: makes kernels.
        unsafe {
            Self {
                into: MPSMatrixCopyToImage::initWithDevice_dataLayout(
                    MPSMatrixCopyToImage::alloc(),
                    device,
                    layout,
                ),
                out: MPSImageCopyToMatrix::initWithDevice_dataLayout(
                    MPSImageCopyToMatrix::alloc(),
                    device,
                    layout,
                ),
            }
        }
    }

    /// Applies a kernel to one image; `sizes` are the sizes of source and result, which are stored in `rows`.
    pub(super) fn apply(
        &self,
        call: &Call<'_>,
        kernel: &MPSCNNKernel,
        data_type: DataType,
        sizes: [Images; 2],
        rows: [&MPSMatrix; 2],
    ) {
        let ([source, result], buffer) = (sizes.map(|size| temporary(call, data_type, size)), &call.buffer);
        // SAFETY: each image has the number of elements of its row, with the same type; it is written before it is read, and read once, which is
        // the initial read count of a temporary image.
        unsafe {
            self.into.encodeToCommandBuffer_sourceMatrix_destinationImage(buffer, rows[0], &source);
            kernel.encodeToCommandBuffer_sourceImage_destinationImage(buffer, &source, &result);
            self.out.encodeToCommandBuffer_sourceImage_destinationMatrix(buffer, &result, rows[1]);
        }
    }
}

fn temporary(call: &Call<'_>, data_type: DataType, size: Images) -> Retained<MPSTemporaryImage> {
    let format = match data_type {
        DataType::F16 => MPSImageFeatureChannelFormat::Float16,
        DataType::F32 => MPSImageFeatureChannelFormat::Float32,
        // Not among the device's primitives.
        _ => MPSImageFeatureChannelFormat::None,
    };
    let Images { channels, height, width, .. } = size;
    // SAFETY: plain numbers within the limits of textures, which are part of the caps.
    unsafe {
        let descriptor = MPSImageDescriptor::imageDescriptorWithChannelFormat_width_height_featureChannels(
            format,
            width as usize,
            height as usize,
            channels as usize,
        );
        MPSTemporaryImage::temporaryImageWithCommandBuffer_imageDescriptor(&call.buffer, &descriptor)
    }
}
