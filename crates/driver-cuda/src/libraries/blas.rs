//! Matrix products by cuBLASLt.
//!
//! cuBLASLt stores matrices by columns. A row-major matrix is the transpose of the column-major matrix with the same bytes, so the driver
//! asks for the transposed product: `resultᵀ = op(right)ᵀ · op(left)ᵀ`. See `cublasLtMatmul` in NVIDIA's cuBLAS documentation.

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use elinvar_driver::primitive::{Activation, DataType, MatMul, Matrix};
use parking_lot::Mutex;

use super::WORKSPACE;
use super::algorithms::Algorithms;
use super::load::{Descriptor, Object, Status, library};

/// `cublasComputeType_t`: sums in `f32` without TensorFloat-32, and in `i32`.
const COMPUTE_32F: i32 = 68;
const COMPUTE_32I: i32 = 72;
/// `CUBLAS_OP_T`.
const TRANSPOSE: i32 = 1;
/// `CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE`: parts of a sum are added in the type of the sum, and not in that of the result.
const COMPUTE_TYPE: u32 = 2;
/// `CUBLAS_STATUS_NOT_SUPPORTED`.
const NOT_SUPPORTED: i32 = 15;

/// `cublasLtMatmulDescAttributes_t`.
mod desc {
    pub(super) const TRANSPOSE_A: i32 = 3;
    pub(super) const TRANSPOSE_B: i32 = 4;
    pub(super) const EPILOGUE: i32 = 7;
    pub(super) const BIAS: i32 = 8;
}

/// `cublasLtMatrixLayoutAttribute_t`.
mod layout {
    pub(super) const BATCH_COUNT: i32 = 5;
    pub(super) const BATCH_STRIDE: i32 = 6;
}

/// `cublasLtMatmulPreferenceAttributes_t`.
mod preference {
    pub(super) const WORKSPACE_BYTES: i32 = 1;
    pub(super) const REDUCTION_SCHEMES: i32 = 3;
    /// Of A; those of B, C and D follow.
    pub(super) const ALIGNMENT: i32 = 5;
}

/// `cublasLtEpilogue_t`: bits.
mod epilogue {
    pub(super) const NONE: i32 = 1;
    pub(super) const RELU: i32 = 2;
    pub(super) const BIAS: i32 = 4;
    pub(super) const GELU: i32 = 32;
}

/// `cublasLtMatmulAlgo_t`.
type Algorithm = [u64; 8];

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Suggestion {
    algorithm: Algorithm,
    workspace: usize,
    status: i32,
    waves: f32,
    reserved: [i32; 4],
}

impl Suggestion {
    const NONE: Self =
        Self { algorithm: [0; 8], workspace: 0, status: NOT_SUPPORTED, waves: 0.0, reserved: [0; 4] };
}

library! {
    /// Functions of cuBLASLt.
    Functions {
        create = "cublasLtCreate"(handle: *mut Object);
        destroy = "cublasLtDestroy"(handle: Object);
        create_desc = "cublasLtMatmulDescCreate"(desc: *mut Object, compute: i32, scale: i32);
        destroy_desc = "cublasLtMatmulDescDestroy"(desc: Object);
        set_desc = "cublasLtMatmulDescSetAttribute"(desc: Object, attribute: i32, value: *const c_void, bytes: usize);
        create_layout = "cublasLtMatrixLayoutCreate"(layout: *mut Object, ty: i32, rows: u64, columns: u64, stride: i64);
        destroy_layout = "cublasLtMatrixLayoutDestroy"(layout: Object);
        set_layout = "cublasLtMatrixLayoutSetAttribute"(layout: Object, attribute: i32, value: *const c_void, bytes: usize);
        create_preference = "cublasLtMatmulPreferenceCreate"(preference: *mut Object);
        destroy_preference = "cublasLtMatmulPreferenceDestroy"(preference: Object);
        set_preference = "cublasLtMatmulPreferenceSetAttribute"(
            preference: Object, attribute: i32, value: *const c_void, bytes: usize,
        );
        suggest = "cublasLtMatmulAlgoGetHeuristic"(
            handle: Object, desc: Object, a: Object, b: Object, c: Object, d: Object, preference: Object, wanted: i32,
            suggestions: *mut Suggestion, count: *mut i32,
        );
        check = "cublasLtMatmulAlgoCheck"(
            handle: Object, desc: Object, a: Object, b: Object, c: Object, d: Object, algorithm: *const Algorithm,
            suggestion: *mut Suggestion,
        );
        multiply = "cublasLtMatmul"(
            handle: Object, desc: Object, alpha: *const c_void, a: CUdeviceptr, a_layout: Object, b: CUdeviceptr, b_layout: Object,
            beta: *const c_void, c: CUdeviceptr, c_layout: Object, d: CUdeviceptr, d_layout: Object, algorithm: *const Algorithm,
            workspace: CUdeviceptr, workspace_bytes: usize, stream: CUstream,
        );
    }
}

/// cuBLASLt on a device. Calls may come from several threads.
pub(super) struct Blas {
    functions: Arc<Functions>,
    handle: Object,
    algorithms: Algorithms,
    plans: Mutex<HashMap<Shape, Arc<Plan>>>,
}

#[allow(unsafe_code)] // the library's promise
// SAFETY: cuBLAS documentation, "Thread Safety": a cuBLASLt handle may be used by several threads at a time.
unsafe impl Send for Blas {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Blas {}

/// What decides about the algorithm of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape {
    data_type: DataType,
    matrices: u32,
    factors: [(Matrix, bool); 2],
    result: Matrix,
    bias: bool,
    activation: Activation,
    /// Alignments of the operands in bytes: right, left, result, result.
    alignments: [u32; 4],
}

/// A product prepared for its shape.
struct Plan {
    /// Locked while a call uses it, because the address of the bias is part of it.
    desc: Mutex<Descriptor<Functions>>,
    right: Descriptor<Functions>,
    left: Descriptor<Functions>,
    result: Descriptor<Functions>,
    algorithm: Algorithm,
    workspace: usize,
}

/// Addresses of the operands of a product.
pub(super) struct Operands {
    pub(super) left: CUdeviceptr,
    pub(super) right: CUdeviceptr,
    pub(super) bias: Option<CUdeviceptr>,
    pub(super) result: CUdeviceptr,
}

/// `cudaDataType_t`.
fn type_code(data_type: DataType) -> i32 {
    match data_type {
        DataType::F16 => 2,
        DataType::BF16 => 14,
        DataType::I8 => 3,
        DataType::I32 => 10,
        _ => 0,
    }
}

#[allow(unsafe_code)] // C functions
impl Blas {
    /// The context must be current.
    pub(super) fn open(path: &Path, algorithms: Algorithms) -> Result<Self, String> {
        let functions = Arc::new(Functions::open(path)?);
        let mut handle = std::ptr::null_mut();
        // SAFETY: it writes a handle for the current context.
        unsafe { functions.create(&mut handle) }
            .map_err(|Status { call, code }| format!("{call}: cuBLAS status {code}"))?;
        Ok(Self { functions, handle, algorithms, plans: Mutex::default() })
    }

    /// Appends a product to a stream. `workspace` has [`WORKSPACE`] bytes. The context must be current.
    pub(super) fn multiply(
        &self,
        stream: CUstream,
        p: &MatMul,
        operands: &Operands,
        workspace: CUdeviceptr,
    ) -> Result<(), Status> {
        let plan = self.plan(p, operands)?;
        let (alpha, beta) = match p.data_type {
            DataType::I8 => ((p.alpha as i32).to_ne_bytes(), (p.beta as i32).to_ne_bytes()),
            _ => (p.alpha.to_ne_bytes(), p.beta.to_ne_bytes()),
        };
        let desc = plan.desc.lock();
        if let Some(bias) = operands.bias {
            // SAFETY: the attribute is an address.
            unsafe {
                self.functions.set_desc(desc.object, desc::BIAS, (&raw const bias).cast(), size_of_val(&bias))
            }?;
        }
        let Operands { left, right, result, .. } = *operands;
        // SAFETY: the plan was made for these shapes and alignments; the submission keeps the operands and the stream its workspace.
        unsafe {
            self.functions.multiply(
                self.handle,
                desc.object,
                alpha.as_ptr().cast(),
                right,
                plan.right.object,
                left,
                plan.left.object,
                beta.as_ptr().cast(),
                result,
                plan.result.object,
                result,
                plan.result.object,
                &plan.algorithm,
                workspace,
                plan.workspace,
                stream,
            )
        }
    }

    fn plan(&self, p: &MatMul, operands: &Operands) -> Result<Arc<Plan>, Status> {
        let Operands { left, right, result, .. } = *operands;
        let alignments = [right, left, result, result].map(|address| 1 << address.trailing_zeros().min(8));
        let shape = Shape {
            data_type: p.data_type,
            matrices: p.matrices,
            factors: [(p.left, p.transpose_left), (p.right, p.transpose_right)],
            result: p.result,
            bias: p.bias,
            activation: p.activation,
            alignments,
        };
        if let Some(plan) = self.plans.lock().get(&shape) {
            return Ok(plan.clone());
        }
        let plan = Arc::new(self.prepare(p, operands, &shape)?);
        let mut plans = self.plans.lock();
        if plans.len() >= super::MOST_PLANS {
            plans.clear();
        }
        plans.insert(shape, plan.clone());
        Ok(plan)
    }

    fn prepare(&self, p: &MatMul, operands: &Operands, shape: &Shape) -> Result<Plan, Status> {
        let functions = &self.functions;
        let (compute, scale) = match p.data_type {
            DataType::I8 => (COMPUTE_32I, type_code(DataType::I32)),
            _ => (COMPUTE_32F, type_code(DataType::F32)),
        };
        // SAFETY: plain numbers; both functions are for this descriptor.
        let desc = unsafe {
            Descriptor::new(functions, |f, desc| f.create_desc(desc, compute, scale), Functions::destroy_desc)
        }?;
        let activation = match p.activation {
            Activation::Relu => epilogue::RELU,
            Activation::Gelu => epilogue::GELU,
            _ => 0,
        };
        let after = activation | if p.bias { epilogue::BIAS } else { 0 };
        let mut attributes = vec![(desc::EPILOGUE, if after == 0 { epilogue::NONE } else { after })];
        attributes.extend(p.transpose_right.then_some((desc::TRANSPOSE_A, TRANSPOSE)));
        attributes.extend(p.transpose_left.then_some((desc::TRANSPOSE_B, TRANSPOSE)));
        for (attribute, value) in attributes {
            // SAFETY: these attributes are 32-bit numbers.
            unsafe { functions.set_desc(desc.object, attribute, (&raw const value).cast(), 4) }?;
        }
        if let Some(bias) = operands.bias {
            // SAFETY: the attribute is an address.
            unsafe {
                functions.set_desc(desc.object, desc::BIAS, (&raw const bias).cast(), size_of_val(&bias))
            }?;
        }
        let [right, left] = [p.right, p.left].map(|matrix| self.layout(p.data_type, matrix, p.matrices));
        let (right, left) = (right?, left?);
        let result = self.layout(p.result_type(), p.result, p.matrices)?;
        let (algorithm, workspace) = self.choose(&desc, [&right, &left, &result], shape)?;
        Ok(Plan { desc: Mutex::new(desc), right, left, result, algorithm, workspace })
    }

    /// The layout of a row-major matrix as the column-major matrix that its bytes are.
    fn layout(
        &self,
        data_type: DataType,
        matrix: Matrix,
        matrices: u32,
    ) -> Result<Descriptor<Functions>, Status> {
        let (functions, size) = (&self.functions, data_type.size());
        let (rows, columns) = (u64::from(matrix.columns), u64::from(matrix.rows));
        let stride = (matrix.row_bytes / size) as i64;
        let ty = type_code(data_type);
        // SAFETY: plain numbers; both functions are for this descriptor.
        let layout = unsafe {
            let create = |f: &Functions, layout| f.create_layout(layout, ty, rows, columns, stride);
            Descriptor::new(functions, create, Functions::destroy_layout)
        }?;
        if matrices > 1 {
            let (count, stride) = (matrices as i32, (matrix.matrix_bytes / size) as i64);
            // SAFETY: a 32-bit and a 64-bit number.
            unsafe {
                functions.set_layout(layout.object, layout::BATCH_COUNT, (&raw const count).cast(), 4)?;
                functions.set_layout(layout.object, layout::BATCH_STRIDE, (&raw const stride).cast(), 8)?;
            }
        }
        Ok(layout)
    }

    /// The algorithm that is known for the shape, or the library's first suggestion that works; and the bytes of its workspace.
    fn choose(
        &self,
        desc: &Descriptor<Functions>,
        layouts: [&Descriptor<Functions>; 3],
        shape: &Shape,
    ) -> Result<(Algorithm, usize), Status> {
        let known = self.algorithms.load(shape).and_then(|algorithm| self.checked(desc, layouts, algorithm));
        if let Some(known) = known {
            return Ok(known);
        }
        let (algorithm, workspace) = self.suggestion(desc, layouts, shape.alignments)?;
        self.algorithms.store(shape, &algorithm);
        Ok((algorithm, workspace))
    }

    /// The algorithm and the bytes of its workspace, if the library can compute the product by it.
    fn checked(
        &self,
        desc: &Descriptor<Functions>,
        [right, left, result]: [&Descriptor<Functions>; 3],
        algorithm: Algorithm,
    ) -> Option<(Algorithm, usize)> {
        let (desc, right, left, result) = (desc.object, right.object, left.object, result.object);
        let mut checked = Suggestion::NONE;
        // SAFETY: it reads the algorithm and writes a suggestion.
        let done = unsafe {
            self.functions.check(self.handle, desc, right, left, result, result, &algorithm, &mut checked)
        };
        let works = done.is_ok() && checked.status == 0 && checked.workspace as u64 <= WORKSPACE;
        works.then_some((algorithm, checked.workspace))
    }

    /// The library's first suggestion that works.
    fn suggestion(
        &self,
        desc: &Descriptor<Functions>,
        [right, left, result]: [&Descriptor<Functions>; 3],
        alignments: [u32; 4],
    ) -> Result<(Algorithm, usize), Status> {
        let functions = &self.functions;
        // SAFETY: both functions are for this descriptor.
        let preference = unsafe {
            Descriptor::new(
                functions,
                |f, preference| f.create_preference(preference),
                Functions::destroy_preference,
            )
        }?;
        let bytes = WORKSPACE;
        // SAFETY: a 64-bit number.
        unsafe {
            functions.set_preference(
                preference.object,
                preference::WORKSPACE_BYTES,
                (&raw const bytes).cast(),
                8,
            )
        }?;
        let schemes = COMPUTE_TYPE;
        // SAFETY: a 32-bit number.
        unsafe {
            functions.set_preference(
                preference.object,
                preference::REDUCTION_SCHEMES,
                (&raw const schemes).cast(),
                4,
            )
        }?;
        for (attribute, alignment) in (preference::ALIGNMENT..).zip(&alignments) {
            // SAFETY: a 32-bit number.
            unsafe {
                functions.set_preference(
                    preference.object,
                    attribute,
                    std::ptr::from_ref(alignment).cast(),
                    4,
                )
            }?;
        }
        let (mut suggestions, mut count) = ([Suggestion::NONE; 8], 0);
        // SAFETY: it writes at most 8 suggestions.
        unsafe {
            functions.suggest(
                self.handle,
                desc.object,
                right.object,
                left.object,
                result.object,
                result.object,
                preference.object,
                8,
                suggestions.as_mut_ptr(),
                &mut count,
            )
        }?;
        let given = suggestions.iter().take(usize::try_from(count).unwrap_or(0));
        let works = given.into_iter().find(|suggestion| suggestion.status == 0);
        let Suggestion { algorithm, workspace, .. } =
            works.ok_or(Status { call: "cublasLtMatmulAlgoGetHeuristic", code: NOT_SUPPORTED })?;
        Ok((*algorithm, *workspace))
    }

    /// The context must be current.
    pub(super) fn close(&self) {
        // SAFETY: nothing uses the handle any more. There is nothing to do about a failure.
        let _closed = unsafe { self.functions.destroy(self.handle) };
    }
}
