//! [`Matrix`] and [`Vector`]: [`MPSMatrix`](https://developer.apple.com/documentation/metalperformanceshaders/mpsmatrix) and
//! [`MPSVector`](https://developer.apple.com/documentation/metalperformanceshaders/mpsvector), views of buffers.

use std::sync::Arc;

use elinvar_objc::{Declaration, Property, Ref};
use half::f16;

use crate::device::Device;
use crate::memory::buffer::Buffer;
use crate::memory::store::Store;
use crate::require;

/// Element types, as `MPSDataType` values.
pub const FLOAT32: u32 = 0x1000_0020;
pub const FLOAT16: u32 = 0x1000_0010;

/// Size of an element in bytes.
fn size_of_type(kind: u32) -> usize {
    (kind & 0xffff) as usize / 8
}

/// Memory layout of a matrix.
#[derive(Clone, Default)]
pub struct MatrixDescriptor {
    rows: Property<usize>,
    columns: Property<usize>,
    matrices: Property<usize>,
    row_bytes: Property<usize>,
    matrix_bytes: Property<usize>,
    kind: Property<u32>,
}

elinvar_objc::object!(MatrixDescriptor, c"MPSMatrixDescriptor");

impl MatrixDescriptor {
    fn several(
        rows: usize,
        columns: usize,
        matrices: usize,
        row_bytes: usize,
        matrix_bytes: usize,
        kind: u32,
    ) -> Ref<Self> {
        let [rows, columns, matrices, row_bytes, matrix_bytes] =
            [rows, columns, matrices, row_bytes, matrix_bytes].map(Property::new);
        Ref::new(Self { rows, columns, matrices, row_bytes, matrix_bytes, kind: Property::new(kind) })
    }

    fn one(rows: usize, columns: usize, row_bytes: usize, kind: u32) -> Ref<Self> {
        Self::several(rows, columns, 1, row_bytes, rows.saturating_mul(row_bytes), kind)
    }
}

/// Memory layout of a vector.
#[derive(Clone, Default)]
pub struct VectorDescriptor {
    length: Property<usize>,
    vectors: Property<usize>,
    vector_bytes: Property<usize>,
    kind: Property<u32>,
}

elinvar_objc::object!(VectorDescriptor, c"MPSVectorDescriptor");

impl VectorDescriptor {
    fn several(length: usize, vectors: usize, vector_bytes: usize, kind: u32) -> Ref<Self> {
        let [length, vectors, vector_bytes] = [length, vectors, vector_bytes].map(Property::new);
        Ref::new(Self { length, vectors, vector_bytes, kind: Property::new(kind) })
    }
}

/// A view of one or several row-major matrices.
#[derive(Clone)]
pub struct View {
    buffer: Ref<Buffer>,
    offset: usize,
    pub rows: usize,
    pub columns: usize,
    pub matrices: usize,
    row_bytes: usize,
    matrix_bytes: usize,
    kind: u32,
}

impl View {
    fn check(self, method: &str) -> Option<Self> {
        let (kind, row) = (self.kind, size_of_type(self.kind) * self.columns);
        require!(matches!(kind, FLOAT32 | FLOAT16), "{method} elements of type {kind:#x} are not supported");
        require!(self.rows > 0 && self.columns > 0 && self.matrices > 0, "{method} there are no elements");
        require!(
            self.row_bytes >= row,
            "{method} a row has {row} bytes, but the row stride is {}",
            self.row_bytes
        );
        let last = (self.matrices - 1) * self.matrix_bytes + (self.rows - 1) * self.row_bytes + row;
        let has = self.buffer.store().length();
        require!(
            self.offset + last <= has,
            "{method} {last} bytes from {} on are not within the buffer's {has}",
            self.offset
        );
        Some(self)
    }

    /// Element type.
    pub fn kind(&self) -> u32 {
        self.kind
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
    fn address(&self, matrix: usize, row: usize, column: usize) -> *mut u8 {
        let View { offset, matrix_bytes, row_bytes, kind, .. } = self.view;
        let at = offset + matrix * matrix_bytes + row * row_bytes + column * size_of_type(kind);
        // Callers check indices against the view, which was checked against the buffer.
        self.store.device_bytes().wrapping_add(at)
    }

    /// Whether the element exists.
    fn has(&self, matrix: usize, row: usize, column: usize) -> bool {
        matrix < self.view.matrices && row < self.view.rows && column < self.view.columns
    }

    /// Reads an element; 0 outside of the view.
    pub fn get(&self, matrix: usize, row: usize, column: usize) -> f64 {
        if !self.has(matrix, row, column) {
            return 0.0;
        }
        let address = self.address(matrix, row, column);
        // SAFETY: within the buffer; the program is responsible for ordering command buffers that share it.
        unsafe {
            if self.view.kind == FLOAT16 {
                f64::from(address.cast::<f16>().read_unaligned())
            } else {
                f64::from(address.cast::<f32>().read_unaligned())
            }
        }
    }

    /// Writes an element; no effect outside of the view.
    #[allow(clippy::cast_possible_truncation)] // rounding to the elements' type is meant
    pub fn set(&self, matrix: usize, row: usize, column: usize, value: f64) {
        if !self.has(matrix, row, column) {
            return;
        }
        let address = self.address(matrix, row, column);
        // SAFETY: as above.
        unsafe {
            if self.view.kind == FLOAT16 {
                address.cast::<f16>().write_unaligned(f16::from_f64(value));
            } else {
                address.cast::<f32>().write_unaligned(value as f32);
            }
        }
    }
}

/// `MPSMatrix`.
pub struct Matrix {
    device: Ref<Device>,
    pub view: View,
}

elinvar_objc::object!(Matrix, c"MPSMatrix");

/// `MPSVector`: a matrix each of whose matrices is one column.
pub struct Vector {
    device: Ref<Device>,
    pub view: View,
}

elinvar_objc::object!(Vector, c"MPSVector");

impl Matrix {
    fn over(buffer: Ref<Buffer>, offset: usize, descriptor: Ref<MatrixDescriptor>) -> Option<Self> {
        let device = buffer.device().clone();
        let view = View {
            buffer,
            offset,
            rows: descriptor.rows.get(),
            columns: descriptor.columns.get(),
            matrices: descriptor.matrices.get().max(1),
            row_bytes: descriptor.row_bytes.get(),
            matrix_bytes: descriptor.matrix_bytes.get(),
            kind: descriptor.kind.get(),
        };
        Some(Self { device, view: view.check("-[MPSMatrix initWithBuffer:descriptor:]:")? })
    }
}

impl Vector {
    fn over(buffer: Ref<Buffer>, offset: usize, descriptor: Ref<VectorDescriptor>) -> Option<Self> {
        let device = buffer.device().clone();
        let kind = descriptor.kind.get();
        let view = View {
            buffer,
            offset,
            rows: descriptor.length.get(),
            columns: 1,
            matrices: descriptor.vectors.get().max(1),
            row_bytes: size_of_type(kind),
            matrix_bytes: descriptor.vector_bytes.get(),
            kind,
        };
        Some(Self { device, view: view.check("-[MPSVector initWithBuffer:descriptor:]:")? })
    }
}

/// Recommended row alignment in bytes.
fn recommended(count: usize, kind: u32) -> usize {
    (count * size_of_type(kind)).next_multiple_of(16)
}

pub fn register() {
    Declaration::<MatrixDescriptor>::new()
        .class_method("matrixDescriptorWithRows:columns:rowBytes:dataType:", MatrixDescriptor::one)
        .class_method("matrixDescriptorWithDimensions:columns:rowBytes:dataType:", MatrixDescriptor::one)
        .class_method(
            "matrixDescriptorWithRows:columns:matrices:rowBytes:matrixBytes:dataType:",
            MatrixDescriptor::several,
        )
        .class_method("rowBytesForColumns:dataType:", recommended)
        .class_method("rowBytesFromColumns:dataType:", recommended)
        .property("rows", |d: &MatrixDescriptor| &d.rows)
        .property("columns", |d: &MatrixDescriptor| &d.columns)
        .getter("matrices", |d: &MatrixDescriptor| &d.matrices)
        .property("rowBytes", |d: &MatrixDescriptor| &d.row_bytes)
        .getter("matrixBytes", |d: &MatrixDescriptor| &d.matrix_bytes)
        .property("dataType", |d: &MatrixDescriptor| &d.kind)
        .register();
    Declaration::<VectorDescriptor>::new()
        .class_method("vectorDescriptorWithLength:dataType:", |length: usize, kind: u32| {
            VectorDescriptor::several(length, 1, length.saturating_mul(size_of_type(kind)), kind)
        })
        .class_method("vectorDescriptorWithLength:vectors:vectorBytes:dataType:", VectorDescriptor::several)
        .class_method("vectorBytesForLength:dataType:", recommended)
        .property("length", |d: &VectorDescriptor| &d.length)
        .getter("vectors", |d: &VectorDescriptor| &d.vectors)
        .getter("vectorBytes", |d: &VectorDescriptor| &d.vector_bytes)
        .property("dataType", |d: &VectorDescriptor| &d.kind)
        .register();
    Declaration::<Matrix>::new()
        .init("initWithBuffer:descriptor:", |buffer: Ref<Buffer>, d: Ref<MatrixDescriptor>| {
            Matrix::over(buffer, 0, d)
        })
        .init("initWithBuffer:offset:descriptor:", Matrix::over)
        .method("device", |this: &Ref<Matrix>| this.device.clone())
        .method("rows", |this: &Ref<Matrix>| this.view.rows)
        .method("columns", |this: &Ref<Matrix>| this.view.columns)
        .method("matrices", |this: &Ref<Matrix>| this.view.matrices)
        .method("rowBytes", |this: &Ref<Matrix>| this.view.row_bytes)
        .method("matrixBytes", |this: &Ref<Matrix>| this.view.matrix_bytes)
        .method("dataType", |this: &Ref<Matrix>| this.view.kind)
        .method("offset", |this: &Ref<Matrix>| this.view.offset)
        .method("data", |this: &Ref<Matrix>| this.view.buffer.clone())
        .register();
    Declaration::<Vector>::new()
        .init("initWithBuffer:descriptor:", |buffer: Ref<Buffer>, d: Ref<VectorDescriptor>| {
            Vector::over(buffer, 0, d)
        })
        .init("initWithBuffer:offset:descriptor:", Vector::over)
        .method("device", |this: &Ref<Vector>| this.device.clone())
        .method("length", |this: &Ref<Vector>| this.view.rows)
        .method("vectors", |this: &Ref<Vector>| this.view.matrices)
        .method("vectorBytes", |this: &Ref<Vector>| this.view.matrix_bytes)
        .method("dataType", |this: &Ref<Vector>| this.view.kind)
        .method("offset", |this: &Ref<Vector>| this.view.offset)
        .method("data", |this: &Ref<Vector>| this.view.buffer.clone())
        .register();
}
