//! [`NdArray`]: [`MPSNDArray`](https://developer.apple.com/documentation/metalperformanceshaders/mpsndarray) over a buffer, and
//! [`TensorData`]: [`MPSGraphTensorData`](https://developer.apple.com/documentation/metalperformanceshadersgraph/mpsgraphtensordata).
//!
//! Rows of an array are padded to multiples of 16 bytes, unless its descriptor asks for packed rows. Views with strides are not there.

use std::sync::Arc;

use elinvar_objc::foundation::{NsArray, os_version};
use elinvar_objc::{Declaration, Property, Ref};
use half::{bf16, f16};

use super::tensor::{BFLOAT16, FLOAT16, FLOAT32, INT32, exists, numbers, size_of_type, sizes};
use crate::memory::buffer::Buffer;
use crate::memory::store::Store;
use crate::require;

/// Alignment of rows that are not packed, in bytes.
const ROW: usize = 16;

/// `MPSNDArrayDescriptor`.
pub struct ArrayDescriptor {
    kind: u32,
    shape: Vec<usize>,
    packs_rows: Property<bool>,
}

elinvar_objc::object!(ArrayDescriptor, c"MPSNDArrayDescriptor");

impl ArrayDescriptor {
    fn of(kind: u32, shape: Ref<NsArray>) -> Option<Ref<Self>> {
        const METHOD: &str = "+[MPSNDArrayDescriptor descriptorWithDataType:shape:]:";
        let shape = sizes(&shape);
        require!(shape.is_some(), "{METHOD} a size is negative");
        let shape = shape?;
        require!(exists(kind), "{METHOD} there is no type {kind:#x}");
        require!(shape.len() <= 16, "{METHOD} {} dimensions", shape.len());
        let count = shape.iter().try_fold(1_usize, |count, size| count.checked_mul(*size));
        require!(
            count.is_some_and(|count| i32::try_from(count).is_ok() && count > 0),
            "{METHOD} {shape:?} has no elements, or 2³¹ or more"
        );
        Some(Ref::new(Self { kind, shape, packs_rows: Property::default() }))
    }
}

/// An array in a buffer.
#[derive(Clone)]
pub struct View {
    buffer: Ref<Buffer>,
    offset: usize,
    pub shape: Vec<usize>,
    pub kind: u32,
    row_bytes: usize,
}

impl View {
    fn check(self, method: &str) -> Option<Self> {
        let Self { offset, shape, kind, row_bytes, .. } = &self;
        require!(exists(*kind), "{method} there is no type {kind:#x}");
        let rows: usize = shape.iter().rev().skip(1).product();
        let row = shape.last().copied().unwrap_or(1) * size_of_type(*kind);
        let (bytes, has) = ((rows - 1) * row_bytes + row, self.buffer.store().length());
        require!(
            offset + bytes <= has,
            "{method} {bytes} bytes from {offset} on are not within the buffer's {has}"
        );
        require!(
            offset.is_multiple_of(size_of_type(*kind)),
            "{method} offset {offset} is not that of an element"
        );
        Some(self)
    }

    /// Its bytes, kept alive while a command buffer uses them.
    pub fn elements(&self) -> Elements {
        Elements { view: self.clone(), store: self.buffer.store().clone() }
    }
}

/// A view with element access.
pub struct Elements {
    view: View,
    store: Arc<Store>,
}

impl Elements {
    fn addresses(&self) -> impl Iterator<Item = *mut u8> {
        let View { offset, shape, kind, row_bytes, .. } = &self.view;
        let (offset, size, row_bytes) = (*offset, size_of_type(*kind), *row_bytes);
        let row = shape.last().copied().unwrap_or(1);
        let (bytes, count) = (self.store.device_bytes(), shape.iter().product::<usize>());
        // The view has been checked against the buffer.
        (0..count).map(move |at| bytes.wrapping_add(offset + at / row * row_bytes + at % row * size))
    }

    /// All elements.
    pub fn read(&self) -> Vec<f64> {
        let kind = self.view.kind;
        // SAFETY: within the buffer; the program is responsible for ordering command buffers that share it.
        let read = |at: *mut u8| unsafe {
            match kind {
                FLOAT32 => f64::from(at.cast::<f32>().read_unaligned()),
                FLOAT16 => at.cast::<f16>().read_unaligned().to_f64(),
                BFLOAT16 => at.cast::<bf16>().read_unaligned().to_f64(),
                INT32 => f64::from(at.cast::<i32>().read_unaligned()),
                _ => f64::from(at.read()),
            }
        };
        self.addresses().map(read).collect()
    }

    /// Sets all elements, which have been rounded to the type.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // they have been rounded
    pub fn write(&self, values: &[f64]) {
        let kind = self.view.kind;
        for (at, value) in self.addresses().zip(values) {
            // SAFETY: as above.
            unsafe {
                match kind {
                    FLOAT32 => at.cast::<f32>().write_unaligned(*value as f32),
                    FLOAT16 => at.cast::<f16>().write_unaligned(f16::from_f64(*value)),
                    BFLOAT16 => at.cast::<bf16>().write_unaligned(bf16::from_f64(*value)),
                    INT32 => at.cast::<i32>().write_unaligned(*value as i32),
                    _ => at.write(*value as u8),
                }
            }
        }
    }
}

/// `MPSNDArray`.
pub struct NdArray(View);

elinvar_objc::object!(NdArray, c"MPSNDArray");

impl NdArray {
    fn over(buffer: Ref<Buffer>, offset: usize, descriptor: Ref<ArrayDescriptor>) -> Option<Self> {
        let (shape, kind) = (descriptor.shape.clone(), descriptor.kind);
        let row = shape.last().copied().unwrap_or(1) * size_of_type(kind);
        let row_bytes = if descriptor.packs_rows.get() { row } else { row.next_multiple_of(ROW) };
        let view = View { buffer, offset, shape, kind, row_bytes };
        Some(Self(view.check("-[MPSNDArray initWithBuffer:offset:descriptor:]:")?))
    }
}

/// `MPSGraphTensorData`.
pub struct TensorData(pub View);

elinvar_objc::object!(TensorData, c"MPSGraphTensorData");

impl TensorData {
    fn over(buffer: Ref<Buffer>, shape: Ref<NsArray>, kind: u32) -> Option<Self> {
        const METHOD: &str = "-[MPSGraphTensorData initWithMTLBuffer:shape:dataType:]:";
        let shape = sizes(&shape);
        require!(shape.as_ref().is_some_and(|shape| !shape.contains(&0)), "{METHOD} a size is not positive");
        let shape = shape?;
        let row_bytes = shape.last().copied().unwrap_or(1) * size_of_type(kind);
        Some(Self(View { buffer, offset: 0, shape, kind, row_bytes }.check(METHOD)?))
    }
}

pub fn register() {
    let offsets = os_version() >= super::OFFSETS;
    Declaration::<ArrayDescriptor>::new()
        .class_method("descriptorWithDataType:shape:", ArrayDescriptor::of)
        .method("dataType", |this: &Ref<ArrayDescriptor>| this.kind)
        .method("numberOfDimensions", |this: &Ref<ArrayDescriptor>| this.shape.len())
        .method("getShape", |this: &Ref<ArrayDescriptor>| numbers(&this.shape))
        .when(offsets, |class| class.property("preferPackedRows", |d: &ArrayDescriptor| &d.packs_rows))
        .register();
    Declaration::<NdArray>::new()
        .when(offsets, |class| class.init("initWithBuffer:offset:descriptor:", NdArray::over))
        .method("dataType", |this: &Ref<NdArray>| this.0.kind)
        .method("numberOfDimensions", |this: &Ref<NdArray>| this.0.shape.len())
        .method("userBuffer", |this: &Ref<NdArray>| this.0.buffer.clone())
        .register();
    if os_version() < super::FRAMEWORK {
        return;
    }
    Declaration::<TensorData>::new()
        .init("initWithMTLBuffer:shape:dataType:", TensorData::over)
        .init("initWithMPSNDArray:", |array: Ref<NdArray>| Some(TensorData(array.0.clone())))
        .method("shape", |this: &Ref<TensorData>| numbers(&this.0.shape))
        .method("dataType", |this: &Ref<TensorData>| this.0.kind)
        .register();
}
