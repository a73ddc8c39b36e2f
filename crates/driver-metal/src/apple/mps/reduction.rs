//! Reductions: `MPSNNReduceRowSum` and similar kernels, on a matrix as an image of one channel.
//!
//! A row of the matrix is a row of the image. Rows with padding are packed first, by `MPSMatrixCopy`.
#![allow(unsafe_code)] // calls the framework

use elinvar_driver::primitive::{Extent, Images, Layout, Matrix, Reduction, ReductionKind};
use elinvar_driver::{Error, Result};
use objc2::AnyThread as _;
use objc2::rc::{Allocated, Retained};
use objc2::runtime::ProtocolObject;
use objc2_metal::MTLDevice;
use objc2_metal_performance_shaders::{
    MPSCNNKernel, MPSMatrixCopy, MPSMatrixCopyDescriptor, MPSMatrixCopyOffsets, MPSNNReduceColumnMax,
    MPSNNReduceColumnMean, MPSNNReduceColumnMin, MPSNNReduceColumnSum, MPSNNReduceRowMax, MPSNNReduceRowMean,
    MPSNNReduceRowMin, MPSNNReduceRowSum, MPSNNReduceUnary,
};

use super::Call;
use super::image::Copies;

type Device = ProtocolObject<dyn MTLDevice>;

/// The MPS kernels of a reduction.
#[derive(Clone)]
pub(super) struct Kernels {
    reduce: Retained<MPSCNNKernel>,
    copies: Copies,
    /// Packs the rows.
    pack: Option<Retained<MPSMatrixCopy>>,
}

/// Size of the packed matrix in bytes, if one is needed.
pub(super) fn packed_bytes(p: &Reduction) -> Option<u64> {
    let Matrix { rows, columns, row_bytes, .. } = p.source;
    let packed = Matrix::packed(p.data_type, rows, columns);
    (rows > 1 && row_bytes != packed.row_bytes).then_some(packed.matrix_bytes)
}

pub(super) fn make(device: &Device, p: &Reduction) -> Result<Kernels> {
    let (rows, columns) = (p.source.rows as usize, p.source.columns as usize);
    // SAFETY: plain numbers, none of which is 0.
    let pack = packed_bytes(p).map(|_| unsafe {
        MPSMatrixCopy::initWithDevice_copyRows_copyColumns_sourcesAreTransposed_destinationsAreTransposed(
            MPSMatrixCopy::alloc(),
            device,
            rows,
            columns,
            false,
            false,
        )
    });
    Ok(Kernels { reduce: reduce(device, p)?, copies: Copies::new(device, Layout::ChannelsLast), pack })
}

macro_rules! made {
    ($class:ident, $device:expr) => {{
        let object: Allocated<$class> = $class::alloc();
        // SAFETY: makes a kernel.
        let kernel: Retained<MPSNNReduceUnary> =
            unsafe { Retained::into_super($class::initWithDevice(object, $device)) };
        kernel
    }};
}

fn reduce(device: &Device, p: &Reduction) -> Result<Retained<MPSCNNKernel>> {
    use Extent::{Column, Row};
    let kernel = match (p.each, p.kind) {
        (Row, ReductionKind::Sum) => made!(MPSNNReduceRowSum, device),
        (Row, ReductionKind::Mean) => made!(MPSNNReduceRowMean, device),
        (Row, ReductionKind::Min) => made!(MPSNNReduceRowMin, device),
        (Row, ReductionKind::Max) => made!(MPSNNReduceRowMax, device),
        (Column, ReductionKind::Sum) => made!(MPSNNReduceColumnSum, device),
        (Column, ReductionKind::Mean) => made!(MPSNNReduceColumnMean, device),
        (Column, ReductionKind::Min) => made!(MPSNNReduceColumnMin, device),
        (Column, ReductionKind::Max) => made!(MPSNNReduceColumnMax, device),
        (_, other) => return Err(Error::unsupported(format!("reduction {other:?} on a Metal device"))),
    };
    Ok(Retained::into_super(kernel))
}

pub(super) fn encode(call: &Call<'_>, p: &Reduction, kernels: &Kernels) -> Result<()> {
    let Matrix { rows: height, columns: width, .. } = p.source;
    let whole = Images { count: 1, channels: 1, height, width };
    let result = match p.each {
        Extent::Row => Images { width: 1, ..whole },
        Extent::Column => Images { height: 1, ..whole },
    };
    let source = match (&kernels.pack, &call.scratch) {
        (Some(pack), Some(scratch)) => {
            let gapped = call.matrices(0, p.source, 1, p.data_type)?;
            let packed = call.view((scratch, 0), Matrix::packed(p.data_type, height, width), 1, p.data_type);
            let offsets = MPSMatrixCopyOffsets {
                sourceRowOffset: 0,
                sourceColumnOffset: 0,
                destinationRowOffset: 0,
                destinationColumnOffset: 0,
            };
            // SAFETY: both matrices have the rows and columns that the kernel copies.
            unsafe {
                let copy = MPSMatrixCopyDescriptor::descriptorWithSourceMatrix_destinationMatrix_offsets(
                    &gapped, &packed, offsets,
                );
                pack.encodeToCommandBuffer_copyDescriptor(&call.buffer, &copy);
            }
            call.row((scratch, 0), whole, p.data_type)
        }
        _ => call.row(call.place(0)?, whole, p.data_type),
    };
    let row = call.row(call.place(1)?, result, p.data_type);
    kernels.copies.apply(call, &kernels.reduce, p.data_type, [whole, result], [&source, &row]);
    Ok(())
}
