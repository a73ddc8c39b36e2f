//! Products by cuBLASLt called bare: the baseline of the vendor's route, without Elinvar between.
#![allow(unsafe_code)] // C functions

use std::ffi::c_void;
use std::path::Path;
use std::ptr::null_mut;
use std::time::Instant;

use cudarc::driver::result;
use elinvar::Error;
use elinvar::tensor::DataType;
use libloading::Library;

use super::nvrtc::{Module, failed};
use crate::failure::{Failure, Result};

type Object = *mut c_void;
/// Create a descriptor of a product, with the type of sums and of the factors.
type CreateDesc = unsafe extern "C" fn(*mut Object, i32, i32) -> i32;
type CreateLayout = unsafe extern "C" fn(*mut Object, i32, u64, u64, i64) -> i32;
type Create = unsafe extern "C" fn(*mut Object) -> i32;
type Set = unsafe extern "C" fn(Object, i32, *const c_void, usize) -> i32;
type Suggest = unsafe extern "C" fn(
    Object,
    Object,
    Object,
    Object,
    Object,
    Object,
    Object,
    i32,
    *mut Suggestion,
    *mut i32,
) -> i32;
type Multiply = unsafe extern "C" fn(
    Object,
    Object,
    *const c_void,
    u64,
    Object,
    u64,
    Object,
    *const c_void,
    u64,
    Object,
    u64,
    Object,
    *const [u64; 8],
    u64,
    usize,
    Object,
) -> i32;

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
struct Suggestion {
    algorithm: [u64; 8],
    workspace: usize,
    status: i32,
    waves: f32,
    reserved: [i32; 4],
}

/// `CUBLAS_COMPUTE_32F`, `CUDA_R_32F`, and `CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES`.
const COMPUTE: i32 = 68;
const F32: i32 = 0;
const WORKSPACE_BYTES: i32 = 1;
/// Bytes of workspace that the library may use.
const WORKSPACE: usize = 64 << 20;

/// A product of square matrices by the library.
pub(in super::super) struct Product {
    module: Module,
    multiply: Multiply,
    handle: Object,
    desc: Object,
    layout: Object,
    suggestion: Suggestion,
    /// Factors, result and workspace.
    memory: [u64; 4],
    bytes: usize,
}

fn refused(call: &str, code: i32) -> Failure {
    Error::DeviceLost(format!("the baseline: {call}: cuBLAS status {code}")).into()
}

impl Product {
    /// Of `n` x `n` elements, which are bytes of `left` and `right`. The library is the one that the device has found.
    pub(in super::super) fn new(
        path: &Path,
        data_type: DataType,
        n: usize,
        left: &[u8],
        right: &[u8],
    ) -> Result<std::result::Result<Self, String>> {
        let Some(module) = Module::new("empty", &[])? else {
            return Ok(Err("NVRTC is not installed".into()));
        };
        module.enter()?;
        // SAFETY: runs the library's initializers. It is never unloaded.
        let library = match unsafe { Library::new(path) } {
            Ok(library) => Box::leak(Box::new(library)),
            Err(error) => return Ok(Err(error.to_string())),
        };
        let missing = |error: libloading::Error| Failure::from(Error::Environment(error.to_string()));
        let ty = match data_type {
            DataType::F16 => 2,
            DataType::BF16 => 14,
            _ => F32,
        };
        let done = |call: &'static str, code: i32| if code == 0 { Ok(()) } else { Err(refused(call, code)) };
        let bytes = left.len();
        let mut memory = [0; 4];
        for (place, len) in memory.iter_mut().zip([bytes, bytes, bytes, WORKSPACE]) {
            // SAFETY: freed when this value is dropped.
            *place = unsafe { result::malloc_sync(len) }.map_err(failed)?;
        }
        let (mut handle, mut desc, mut layout, mut preference) =
            (null_mut(), null_mut(), null_mut(), null_mut());
        let mut suggestion =
            Suggestion { algorithm: [0; 8], workspace: 0, status: 1, waves: 0.0, reserved: [0; 4] };
        let (mut count, limit) = (0, WORKSPACE as u64);
        // SAFETY: the symbols have the types of `cublasLt.h`, and the arguments are objects that the calls before have made.
        let multiply = unsafe {
            result::memcpy_htod_sync(memory[0], left).map_err(failed)?;
            result::memcpy_htod_sync(memory[1], right).map_err(failed)?;
            let create = library.get::<Create>(b"cublasLtCreate").map_err(missing)?;
            done("cublasLtCreate", create(&mut handle))?;
            let create = library.get::<CreateDesc>(b"cublasLtMatmulDescCreate").map_err(missing)?;
            done("cublasLtMatmulDescCreate", create(&mut desc, COMPUTE, F32))?;
            let create = library.get::<CreateLayout>(b"cublasLtMatrixLayoutCreate").map_err(missing)?;
            let side = n as u64;
            done("cublasLtMatrixLayoutCreate", create(&mut layout, ty, side, side, n as i64))?;
            let create = library.get::<Create>(b"cublasLtMatmulPreferenceCreate").map_err(missing)?;
            done("cublasLtMatmulPreferenceCreate", create(&mut preference))?;
            let set = library.get::<Set>(b"cublasLtMatmulPreferenceSetAttribute").map_err(missing)?;
            let value = (&raw const limit).cast();
            done("cublasLtMatmulPreferenceSetAttribute", set(preference, WORKSPACE_BYTES, value, 8))?;
            let suggest = library.get::<Suggest>(b"cublasLtMatmulAlgoGetHeuristic").map_err(missing)?;
            let code = suggest(
                handle,
                desc,
                layout,
                layout,
                layout,
                layout,
                preference,
                1,
                &mut suggestion,
                &mut count,
            );
            done("cublasLtMatmulAlgoGetHeuristic", code)?;
            *library.get::<Multiply>(b"cublasLtMatmul").map_err(missing)?
        };
        Ok(Ok(Self { module, multiply, handle, desc, layout, suggestion, memory, bytes }))
    }

    /// Calls the library. Row-major matrices are column-major transposes, so the factors change places.
    fn call(&self) -> Result<()> {
        let Self { handle, desc, layout, suggestion, memory: [left, right, out, workspace], .. } = self;
        let (one, zero) = (1.0f32, 0.0f32);
        // SAFETY: objects and memory belong to this value.
        let code = unsafe {
            (self.multiply)(
                *handle,
                *desc,
                (&raw const one).cast(),
                *right,
                *layout,
                *left,
                *layout,
                (&raw const zero).cast(),
                *out,
                *layout,
                *out,
                *layout,
                &suggestion.algorithm,
                *workspace,
                suggestion.workspace,
                self.module.stream.cast(),
            )
        };
        if code == 0 { Ok(()) } else { Err(refused("cublasLtMatmul", code)) }
    }

    /// Device time of this many products.
    pub(in super::super) fn device_time(&self, iterations: u64) -> Result<u64> {
        self.module.enter()?;
        let mut called = Ok(());
        let ns = self.module.timed(|| {
            called = (0..iterations).try_for_each(|_| self.call());
            Ok(())
        })?;
        called.map(|()| ns)
    }

    /// Host time until this many products have ended.
    pub(in super::super) fn host_time(&self, iterations: u64) -> Result<u64> {
        self.module.enter()?;
        let start = Instant::now();
        (0..iterations).try_for_each(|_| self.call())?;
        self.module.synchronize()?;
        Ok(start.elapsed().as_nanos() as u64)
    }

    /// The bytes of the result.
    pub(in super::super) fn result(&self) -> Result<Vec<u8>> {
        self.module.enter()?;
        self.module.synchronize()?;
        let mut bytes = vec![0; self.bytes];
        // SAFETY: the allocation has that many bytes.
        unsafe { result::memcpy_dtoh_sync(&mut bytes, self.memory[2]) }.map_err(failed)?;
        Ok(bytes)
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        for place in self.memory {
            // SAFETY: allocated by `new`, and not used any more. After an error it is left until the process ends.
            let _left = unsafe { result::free_sync(place) };
        }
    }
}
