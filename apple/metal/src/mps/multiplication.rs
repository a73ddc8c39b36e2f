//! [`MPSMatrixMultiplication`](https://developer.apple.com/documentation/metalperformanceshaders/mpsmatrixmultiplication) and
//! [`MPSMatrixVectorMultiplication`](https://developer.apple.com/documentation/metalperformanceshaders/mpsmatrixvectormultiplication):
//! `C = alpha * op(A) * op(B) + beta * C`. If beta is 0, C is not read.

use elinvar_objc::{Declaration, Property, Ref};

use super::matrix::{Elements, Matrix, Vector, View};
use super::{Kernel, kernel};
use crate::commands::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::require;
use crate::values::Size;

/// One product.
#[derive(Clone, Copy)]
struct Product {
    transpose_left: bool,
    transpose_right: bool,
    rows: usize,
    columns: usize,
    interior: usize,
    alpha: f64,
    beta: f64,
}

/// Origins of the submatrices of three matrices.
#[derive(Clone, Copy, Default)]
struct Origins {
    left: (usize, usize),
    right: (usize, usize),
    result: (usize, usize),
}

impl Product {
    fn left(&self, left: &Elements, origins: Origins, matrix: usize, row: usize, at: usize) -> f64 {
        let (row, column) = if self.transpose_left { (at, row) } else { (row, at) };
        left.get(matrix, origins.left.0 + row, origins.left.1 + column)
    }

    fn right(&self, right: &Elements, origins: Origins, matrix: usize, at: usize, column: usize) -> f64 {
        let (row, column) = if self.transpose_right { (column, at) } else { (at, column) };
        right.get(matrix, origins.right.0 + row, origins.right.1 + column)
    }

    fn compute(&self, [left, right, result]: [&Elements; 3], origins: Origins, matrix: usize) {
        // Computes each row completely before writing it, because the result may be one of the factors.
        let sums: Vec<f64> = (0..self.rows)
            .flat_map(|row| (0..self.columns).map(move |column| (row, column)))
            .map(|(row, column)| {
                let term = |at| {
                    self.left(left, origins, matrix, row, at) * self.right(right, origins, matrix, at, column)
                };
                (0..self.interior).map(term).sum()
            })
            .collect();
        for (at, sum) in sums.into_iter().enumerate() {
            let (row, column) = (origins.result.0 + at / self.columns, origins.result.1 + at % self.columns);
            let before = if self.beta == 0.0 { 0.0 } else { self.beta * result.get(matrix, row, column) };
            result.set(matrix, row, column, self.alpha * sum + before);
        }
    }
}

struct Multiplication {
    kernel: Kernel,
    product: Product,
    left: Property<Size>,
    right: Property<Size>,
    result: Property<Size>,
    batch_start: Property<usize>,
    batch_size: Property<usize>,
}

elinvar_objc::object!(Multiplication, c"MPSMatrixMultiplication");

fn origin(property: &Property<Size>) -> (usize, usize) {
    // A guess: x is the row index.
    let Size { width, height, .. } = property.get();
    (width, height)
}

/// Whether a submatrix is within a matrix.
fn has(view: &View, origin: (usize, usize), rows: usize, columns: usize) -> bool {
    origin.0 + rows <= view.rows && origin.1 + columns <= view.columns
}

impl Multiplication {
    fn of(device: Ref<Device>, product: Product) -> Option<Self> {
        Some(Self {
            kernel: Kernel::new(device),
            product,
            left: Property::default(),
            right: Property::default(),
            result: Property::default(),
            batch_start: Property::default(),
            batch_size: Property::new(usize::MAX),
        })
    }

    #[allow(clippy::too_many_arguments)] // the method's
    fn with_all(
        device: Ref<Device>,
        transpose_left: bool,
        transpose_right: bool,
        rows: usize,
        columns: usize,
        interior: usize,
        alpha: f64,
        beta: f64,
    ) -> Option<Self> {
        Self::of(device, Product { transpose_left, transpose_right, rows, columns, interior, alpha, beta })
    }

    fn plain(device: Ref<Device>, rows: usize, columns: usize, interior: usize) -> Option<Self> {
        Self::with_all(device, false, false, rows, columns, interior, 1.0, 0.0)
    }

    fn encode(
        this: &Ref<Self>,
        buffer: Ref<CommandBuffer>,
        left: Ref<Matrix>,
        right: Ref<Matrix>,
        result: Ref<Matrix>,
    ) {
        const METHOD: &str =
            "-[MPSMatrixMultiplication encodeToCommandBuffer:leftMatrix:rightMatrix:resultMatrix:]:";
        let product = this.product;
        let origins =
            Origins { left: origin(&this.left), right: origin(&this.right), result: origin(&this.result) };
        let Product { rows, columns, interior, .. } = product;
        let turned = |turn: bool, a: usize, b: usize| if turn { (b, a) } else { (a, b) };
        let (a, b) = turned(product.transpose_left, rows, interior);
        require!(
            has(&left.view, origins.left, a, b),
            "{METHOD} the left matrix does not have {a} rows and {b} columns"
        );
        let (a, b) = turned(product.transpose_right, interior, columns);
        require!(
            has(&right.view, origins.right, a, b),
            "{METHOD} the right matrix does not have {a} rows and {b} columns"
        );
        require!(
            has(&result.view, origins.result, rows, columns),
            "{METHOD} the result does not have {rows} rows and {columns} columns"
        );
        let count = left.view.matrices.min(right.view.matrices).min(result.view.matrices);
        let start = this.batch_start.get();
        let batch = start..start.saturating_add(this.batch_size.get()).min(count);
        let elements = [left.view.elements(), right.view.elements(), result.view.elements()];
        let work = move || {
            let [left, right, result] = &elements;
            for matrix in batch {
                product.compute([left, right, result], origins, matrix);
            }
            Ok(())
        };
        this.kernel.encode(METHOD, &buffer, Box::new(work));
    }
}

struct VectorMultiplication {
    kernel: Kernel,
    product: Product,
}

elinvar_objc::object!(VectorMultiplication, c"MPSMatrixVectorMultiplication");

impl VectorMultiplication {
    fn with_all(
        device: Ref<Device>,
        transpose_left: bool,
        rows: usize,
        interior: usize,
        alpha: f64,
        beta: f64,
    ) -> Option<Self> {
        let product =
            Product { transpose_left, transpose_right: false, rows, columns: 1, interior, alpha, beta };
        Some(Self { kernel: Kernel::new(device), product })
    }

    fn encode(
        this: &Ref<Self>,
        buffer: Ref<CommandBuffer>,
        matrix: Ref<Matrix>,
        vector: Ref<Vector>,
        result: Ref<Vector>,
    ) {
        const METHOD: &str =
            "-[MPSMatrixVectorMultiplication encodeToCommandBuffer:inputMatrix:inputVector:resultVector:]:";
        let product = this.product;
        let Product { rows, interior, .. } = product;
        let (a, b) = if product.transpose_left { (interior, rows) } else { (rows, interior) };
        require!(
            has(&matrix.view, (0, 0), a, b),
            "{METHOD} the matrix does not have {a} rows and {b} columns"
        );
        require!(
            has(&vector.view, (0, 0), interior, 1),
            "{METHOD} the vector does not have {interior} elements"
        );
        require!(has(&result.view, (0, 0), rows, 1), "{METHOD} the result does not have {rows} elements");
        let elements = [matrix.view.elements(), vector.view.elements(), result.view.elements()];
        let work = move || {
            let [matrix, vector, result] = &elements;
            product.compute([matrix, vector, result], Origins::default(), 0);
            Ok(())
        };
        this.kernel.encode(METHOD, &buffer, Box::new(work));
    }
}

pub fn register() {
    let multiplication = Declaration::<Multiplication>::new().below(c"MPSKernel");
    kernel(multiplication, |m: &Multiplication| &m.kernel)
        .init(
            "initWithDevice:transposeLeft:transposeRight:resultRows:resultColumns:interiorColumns:alpha:beta:",
            Multiplication::with_all,
        )
        .init("initWithDevice:resultRows:resultColumns:interiorColumns:", Multiplication::plain)
        .property("leftMatrixOrigin", |m: &Multiplication| &m.left)
        .property("rightMatrixOrigin", |m: &Multiplication| &m.right)
        .property("resultMatrixOrigin", |m: &Multiplication| &m.result)
        .property("batchStart", |m: &Multiplication| &m.batch_start)
        .property("batchSize", |m: &Multiplication| &m.batch_size)
        .method("encodeToCommandBuffer:leftMatrix:rightMatrix:resultMatrix:", Multiplication::encode)
        .register();
    let multiplication = Declaration::<VectorMultiplication>::new().below(c"MPSKernel");
    kernel(multiplication, |m: &VectorMultiplication| &m.kernel)
        .init("initWithDevice:transpose:rows:columns:alpha:beta:", VectorMultiplication::with_all)
        .init("initWithDevice:rows:columns:", |device: Ref<Device>, rows: usize, columns: usize| {
            VectorMultiplication::with_all(device, false, rows, columns, 1.0, 0.0)
        })
        .method("encodeToCommandBuffer:inputMatrix:inputVector:resultVector:", VectorMultiplication::encode)
        .register();
}
