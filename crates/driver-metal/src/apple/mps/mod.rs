//! Primitives through [Metal Performance Shaders](https://developer.apple.com/documentation/metalperformanceshaders).
//!
//! The framework's kernels create their own encoders in a command buffer; the driver's encoder is ended before. A kernel is created for a
//! shape, so the device's [`Stock`] caches kernels of recent shapes. A kernel that a command buffer uses is removed from the cache until
//! the command buffer has ended, because MPS objects are not thread-safe, and a convolution stores its weights.

mod convolution;
mod graph;
mod image;
mod matrix;
mod pooling;
mod reduction;

use std::sync::Arc;

use elinvar_driver::primitive::{DataType, GraphLibrary, Images, Matrix, Padding, PrimitiveLibrary, Window};
use elinvar_driver::{Error, MemorySlice, Primitive, PrimitiveKind, Primitives, Result};
use objc2::AnyThread as _;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLDevice, MTLGPUFamily, MTLResourceOptions};
use objc2_metal_performance_shaders::{
    MPSDataType, MPSMatrix, MPSMatrixDescriptor, MPSMatrixMultiplication, MPSMatrixSoftMax,
    MPSMatrixVectorMultiplication, MPSOffset, MPSSupportsMTLDevice, MPSVector, MPSVectorDescriptor,
};
use parking_lot::Mutex;

use super::buffer::Buffer;
use super::core::Core;
use super::encoding::{CommandBuffer, Encoding};
use super::memory::located;

/// Maximum number of cached kernels of a device.
const MOST_KEPT: usize = 32;

/// The primitives that the framework supports on a device.
#[allow(unsafe_code)] // asks the framework
pub(super) fn primitives(device: &ProtocolObject<dyn MTLDevice>) -> Primitives {
    // SAFETY: queries a device.
    if !unsafe { MPSSupportsMTLDevice(Some(device)) } {
        return Primitives::NONE;
    }
    let mut set = Primitives::of(PrimitiveLibrary::MetalPerformanceShaders);
    let kinds = [
        PrimitiveKind::MatMul,
        PrimitiveKind::MatVec,
        PrimitiveKind::Softmax,
        PrimitiveKind::Reduction,
        PrimitiveKind::Convolution,
        PrimitiveKind::Pooling,
    ];
    for kind in kinds {
        set = set.with(kind, DataType::F16).with(kind, DataType::F32);
    }
    // Texture limits of the families Apple2, and of Apple3, Mac2 and later (Metal feature set tables); a layer has four channels.
    let newer = [MTLGPUFamily::Apple3, MTLGPUFamily::Mac2, MTLGPUFamily::Metal3];
    let side = if newer.into_iter().any(|family| device.supportsFamily(family)) { 16384 } else { 8192 };
    let set = set.with_images(side, 4 * 2048);
    graph::library().map_or(set, |graph| set.with_graph(graph))
}

/// An MPS kernel, created for one shape.
#[derive(Clone)]
enum Kernel {
    MatMul(Retained<MPSMatrixMultiplication>),
    MatVec(Retained<MPSMatrixVectorMultiplication>),
    Softmax(Retained<MPSMatrixSoftMax>),
    Reduction(reduction::Kernels),
    Convolution(convolution::Kernels),
    Pooling(pooling::Kernels),
    Graph(graph::Graph),
}

#[allow(unsafe_code)] // the bindings leave it open
// SAFETY: MPS objects may be used by one thread after another; a kernel is owned by the cache or by a command buffer of a queue, both
// of which are locked for access.
unsafe impl Send for Kernel {}

/// Cache of kernels that no command buffer uses, by their shapes; the most recently returned is the last.
#[derive(Default)]
pub(super) struct Stock {
    idle: Mutex<Vec<(Primitive, Kernel)>>,
}

impl Stock {
    fn take(&self, primitive: &Primitive) -> Option<Kernel> {
        let mut idle = self.idle.lock();
        let at = idle.iter().rposition(|(known, _)| known == primitive)?;
        Some(idle.remove(at).1)
    }

    fn give_back(&self, primitive: Primitive, kernel: Kernel) {
        let mut idle = self.idle.lock();
        idle.push((primitive, kernel));
        let first = (idle.len() > MOST_KEPT).then(|| idle.remove(0));
        drop(idle);
        drop(first);
    }
}

/// A kernel in use by a command buffer. When it is dropped, after the end of the command buffer, it returns to the cache.
pub(super) struct InUse {
    primitive: Primitive,
    kernel: Option<Kernel>,
    stock: Arc<Stock>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(kernel) = self.kernel.take() {
            self.stock.give_back(self.primitive, kernel);
        }
    }
}

/// Encodes a primitive. The bindings panic if the framework returns nil for an object that it should create; the queue converts the
/// panic to an error.
pub(super) fn encode(
    encoding: &mut Encoding<'_>,
    primitive: &Primitive,
    operands: &[MemorySlice],
) -> Result<()> {
    let core = encoding.core;
    primitive.check(operands)?;
    let primitives = core.caps.features.primitives;
    primitives.expect(primitive, operands, &core.caps.name)?;
    let by_graph = primitives.graph().filter(|_| primitives.is_for_graph(primitive, operands));
    let kernel = kernel(encoding, primitive, by_graph)?;
    if let Kernel::Graph(graph) = &kernel {
        return graph.encode(encoding, primitive, operands);
    }
    let scratch = match primitive {
        Primitive::Reduction(p) => reduction::packed_bytes(p),
        _ => None,
    };
    // Does not overflow, because the operand does not.
    let private = |bytes| encoding.transient(bytes as usize, MTLResourceOptions::StorageModePrivate);
    let scratch = scratch.map(private).transpose()?;
    Call { core, buffer: encoding.library()?, operands, scratch }.encode(primitive, &kernel)
}

/// A kernel for a primitive: one that this command buffer already uses, because its commands run in order; a cached one; or a new one.
fn kernel(
    encoding: &mut Encoding<'_>,
    primitive: &Primitive,
    by_graph: Option<GraphLibrary>,
) -> Result<Kernel> {
    let core = encoding.core;
    let in_use = encoding.kernels();
    let known = in_use.iter().find(|one| one.primitive == *primitive).and_then(|one| one.kernel.clone());
    if let Some(kernel) = known {
        return Ok(kernel);
    }
    let kernel = core.stock.take(primitive).map_or_else(|| make(&core.device, primitive, by_graph), Ok)?;
    let (primitive, stock) = (*primitive, core.stock.clone());
    in_use.push(InUse { primitive, kernel: Some(kernel.clone()), stock });
    Ok(kernel)
}

fn make(
    device: &ProtocolObject<dyn MTLDevice>,
    primitive: &Primitive,
    by_graph: Option<GraphLibrary>,
) -> Result<Kernel> {
    if let Some(library) = by_graph {
        return Ok(Kernel::Graph(graph::Graph::new(device, primitive, library)?));
    }
    Ok(match primitive {
        Primitive::MatMul(p) => Kernel::MatMul(matrix::mat_mul(device, p)),
        Primitive::MatVec(p) => Kernel::MatVec(matrix::mat_vec(device, p)),
        Primitive::Softmax(p) => Kernel::Softmax(matrix::softmax(device, p)),
        Primitive::Reduction(p) => Kernel::Reduction(reduction::make(device, p)?),
        Primitive::Convolution(p) => Kernel::Convolution(convolution::make(device, p)?),
        Primitive::Pooling(p) => Kernel::Pooling(pooling::make(device, p)?),
        other => return Err(unknown(other)),
    })
}

fn unknown(primitive: &Primitive) -> Error {
    Error::unsupported(format!("{} on a Metal device", primitive.kind().name()))
}

/// Command buffer and operands of a primitive.
struct Call<'a> {
    core: &'a Core,
    buffer: CommandBuffer,
    operands: &'a [MemorySlice],
    /// Temporary memory of the command buffer, if needed.
    scratch: Option<Buffer>,
}

#[allow(unsafe_code)] // makes views of buffers
impl Call<'_> {
    fn encode(&self, primitive: &Primitive, kernel: &Kernel) -> Result<()> {
        match (primitive, kernel) {
            (Primitive::MatMul(p), Kernel::MatMul(kernel)) => matrix::encode_mat_mul(self, p, kernel),
            (Primitive::MatVec(p), Kernel::MatVec(kernel)) => matrix::encode_mat_vec(self, p, kernel),
            (Primitive::Softmax(p), Kernel::Softmax(kernel)) => matrix::encode_softmax(self, p, kernel),
            (Primitive::Reduction(p), Kernel::Reduction(kernels)) => reduction::encode(self, p, kernels),
            (Primitive::Convolution(p), Kernel::Convolution(kernels)) => {
                convolution::encode(self, p, kernels)
            }
            (Primitive::Pooling(p), Kernel::Pooling(kernels)) => pooling::encode(self, p, kernels),
            (other, _) => Err(unknown(other)),
        }
    }

    /// An operand as matrices.
    fn matrices(
        &self,
        at: usize,
        matrix: Matrix,
        count: u32,
        data_type: DataType,
    ) -> Result<Retained<MPSMatrix>> {
        Ok(self.view(self.place(at)?, matrix, count, data_type))
    }

    /// Location of an operand.
    fn place(&self, at: usize) -> Result<(&Buffer, usize)> {
        located(self.core, &self.operands[at])
    }

    /// One image of an operand, as a matrix of one row.
    fn image(
        &self,
        at: usize,
        number: u32,
        size: Images,
        data_type: DataType,
    ) -> Result<Retained<MPSMatrix>> {
        let (buffer, offset) = self.place(at)?;
        // Does not overflow: within the operand.
        let before = size.elements() as usize * number as usize * data_type.size() as usize;
        Ok(self.row((buffer, offset + before), size, data_type))
    }

    /// An image as a matrix of one row.
    fn row(
        &self,
        (buffer, offset): (&Buffer, usize),
        size: Images,
        data_type: DataType,
    ) -> Retained<MPSMatrix> {
        // Does not overflow: within an operand.
        let columns = size.elements() as usize;
        let row_bytes = columns * data_type.size() as usize;
        // SAFETY: as for matrices.
        unsafe {
            let descriptor = MPSMatrixDescriptor::matrixDescriptorWithRows_columns_rowBytes_dataType(
                1,
                columns,
                row_bytes,
                mps_type(data_type),
            );
            MPSMatrix::initWithBuffer_offset_descriptor(MPSMatrix::alloc(), buffer, offset, &descriptor)
        }
    }

    /// Matrices at a location.
    fn view(
        &self,
        (buffer, offset): (&Buffer, usize),
        matrix: Matrix,
        count: u32,
        data_type: DataType,
    ) -> Retained<MPSMatrix> {
        let (rows, columns) = (matrix.rows as usize, matrix.columns as usize);
        // Does not overflow: within a buffer. Strides of single rows or matrices are not used.
        let row_bytes = match (rows, count) {
            (1, 1) => columns * data_type.size() as usize,
            _ => matrix.row_bytes as usize,
        };
        let matrix_bytes = if count == 1 { rows * row_bytes } else { matrix.matrix_bytes as usize };
        let kind = mps_type(data_type);
        // SAFETY: plain numbers; the primitive's validation has compared the sizes with the operand's, and the submission keeps the buffer alive.
        unsafe {
            let descriptor =
                MPSMatrixDescriptor::matrixDescriptorWithRows_columns_matrices_rowBytes_matrixBytes_dataType(
                    rows,
                    columns,
                    count as usize,
                    row_bytes,
                    matrix_bytes,
                    kind,
                );
            MPSMatrix::initWithBuffer_offset_descriptor(MPSMatrix::alloc(), buffer, offset, &descriptor)
        }
    }

    /// An operand as a vector.
    fn vector(&self, at: usize, length: u32, data_type: DataType) -> Result<Retained<MPSVector>> {
        let (buffer, offset) = self.place(at)?;
        // SAFETY: as for matrices.
        unsafe {
            let descriptor = MPSVectorDescriptor::vectorDescriptorWithLength_dataType(
                length as usize,
                mps_type(data_type),
            );
            Ok(MPSVector::initWithBuffer_offset_descriptor(MPSVector::alloc(), buffer, offset, &descriptor))
        }
    }
}

/// The framework's offset of a window, which it measures from the window's center, such that it starts where the contract's does.
fn offset(window: &Window) -> MPSOffset {
    let Padding { top, left, .. } = window.padding;
    // Does not overflow: window sizes are small.
    let [rows, columns] = window.span().map(|span| span as isize / 2);
    MPSOffset { x: columns - left as isize, y: rows - top as isize, z: 0 }
}

fn mps_type(data_type: DataType) -> MPSDataType {
    match data_type {
        DataType::F16 => MPSDataType::Float16,
        DataType::BF16 => MPSDataType::BFloat16,
        DataType::F32 => MPSDataType::Float32,
        // Not among the device's primitives.
        _ => MPSDataType::Invalid,
    }
}
