//! Pooling: `MPSCNNPoolingMax`, `MPSCNNPoolingAverage`.
//!
//! With clamped edges, elements outside of the image count as the nearest element for a maximum, which does not change the result because a
//! window always overlaps the image, and are excluded from an average. Otherwise they count as zeros.
#![allow(unsafe_code)] // calls the framework

use elinvar_driver::primitive::{PoolKind, Pooling};
use elinvar_driver::{Error, Result};
use objc2::AnyThread as _;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::MTLDevice;
use objc2_metal_performance_shaders::{
    MPSCNNKernel, MPSCNNPoolingAverage, MPSCNNPoolingMax, MPSImageEdgeMode,
};

use super::image::Copies;
use super::{Call, offset};

/// The MPS kernels of a pooling.
#[derive(Clone)]
pub(super) struct Kernels {
    pool: Retained<MPSCNNKernel>,
    copies: Copies,
}

pub(super) fn make(device: &ProtocolObject<dyn MTLDevice>, p: &Pooling) -> Result<Kernels> {
    let [height, width] = p.window.size.map(|size| size as usize);
    let [down, across] = p.window.stride.map(|stride| stride as usize);
    let edge = match p.kind {
        PoolKind::Max | PoolKind::Average => MPSImageEdgeMode::Clamp,
        PoolKind::AverageWithPadding => MPSImageEdgeMode::Zero,
        other => return Err(Error::unsupported(format!("pooling {other:?} on a Metal device"))),
    };
    // SAFETY: plain numbers, none of which is 0; no other code uses the kernel yet.
    let pool = unsafe {
        let pool = if p.kind == PoolKind::Max {
            let kernel = MPSCNNPoolingMax::alloc();
            Retained::into_super(
                MPSCNNPoolingMax::initWithDevice_kernelWidth_kernelHeight_strideInPixelsX_strideInPixelsY(
                    kernel, device, width, height, across, down,
                ),
            )
        } else {
            let kernel = MPSCNNPoolingAverage::alloc();
            Retained::into_super(
                MPSCNNPoolingAverage::initWithDevice_kernelWidth_kernelHeight_strideInPixelsX_strideInPixelsY(
                    kernel, device, width, height, across, down,
                ),
            )
        };
        pool.setOffset(offset(&p.window));
        pool.setEdgeMode(edge);
        Retained::into_super(pool)
    };
    Ok(Kernels { pool, copies: Copies::new(device, p.layout) })
}

pub(super) fn encode(call: &Call<'_>, p: &Pooling, kernels: &Kernels) -> Result<()> {
    let sizes = [p.source, p.result()];
    for image in 0..p.source.count {
        let row = |at, size| call.image(at, image, size, p.data_type);
        let (source, result) = (row(0, p.source)?, row(1, sizes[1])?);
        kernels.copies.apply(call, &kernels.pool, p.data_type, sizes, [&source, &result]);
    }
    Ok(())
}
