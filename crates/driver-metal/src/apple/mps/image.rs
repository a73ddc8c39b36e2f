//! Kernels that take images, over buffers: an operand is copied to a temporary image, and the result's image back.
//!
//! A copy takes an image as one row of a matrix, in either order of its numbers. Temporary images are the command buffer's
//! own, which uses their memory again.
#![allow(unsafe_code)] // calls the framework

use elinvar_driver::primitive::{Float, Images, Layout};
use objc2::AnyThread as _;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::MTLDevice;
use objc2_metal_performance_shaders::{
    MPSCNNKernel, MPSDataLayout, MPSImageCopyToMatrix, MPSImageDescriptor, MPSImageFeatureChannelFormat,
    MPSMatrix, MPSMatrixCopyToImage, MPSTemporaryImage,
};

use super::Call;

/// Copies to images and back.
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

    /// Applies a kernel to one image; `sizes` are of source and result, which `rows` hold.
    pub(super) fn apply(
        &self,
        call: &Call<'_>,
        kernel: &MPSCNNKernel,
        float: Float,
        sizes: [Images; 2],
        rows: [&MPSMatrix; 2],
    ) {
        let ([source, result], buffer) = (sizes.map(|size| temporary(call, float, size)), &call.buffer);
        // SAFETY: each image has as many numbers as its row, of the same type; each is written before it is read, and read
        // once, as a temporary image's read count says at first.
        unsafe {
            self.into.encodeToCommandBuffer_sourceMatrix_destinationImage(buffer, rows[0], &source);
            kernel.encodeToCommandBuffer_sourceImage_destinationImage(buffer, &source, &result);
            self.out.encodeToCommandBuffer_sourceImage_destinationMatrix(buffer, &result, rows[1]);
        }
    }
}

fn temporary(call: &Call<'_>, float: Float, size: Images) -> Retained<MPSTemporaryImage> {
    let format = match float {
        Float::F16 => MPSImageFeatureChannelFormat::Float16,
        Float::F32 => MPSImageFeatureChannelFormat::Float32,
    };
    let Images { channels, height, width, .. } = size;
    // SAFETY: plain numbers within the limits of textures, which the caps say.
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
