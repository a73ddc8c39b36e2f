//! Operations of cuDNN called bare: the baseline of convolutions, batch normalization and softmax, without Elinvar between.
#![allow(unsafe_code)] // C functions

use std::ffi::c_void;
use std::path::Path;
use std::ptr::null_mut;

use cudarc::driver::result;
use elinvar::Error;
use libloading::Library;

use super::nvrtc::{Module, failed};
use crate::failure::{Failure, Result};

type Object = *mut c_void;
type Create = unsafe extern "C" fn(*mut Object) -> i32;
type Set = unsafe extern "C" fn(Object, i32) -> i32;
type SetStream = unsafe extern "C" fn(Object, Object) -> i32;
type SetTensor = unsafe extern "C" fn(Object, i32, i32, *const i32, *const i32) -> i32;
type SetFilter = unsafe extern "C" fn(Object, i32, i32, i32, *const i32) -> i32;
type SetConvolution = unsafe extern "C" fn(Object, i32, *const i32, *const i32, *const i32, i32, i32) -> i32;
type FindAlgorithm =
    unsafe extern "C" fn(Object, Object, Object, Object, Object, i32, *mut i32, *mut Found) -> i32;
type Convolve = unsafe extern "C" fn(
    Object,
    *const f32,
    Object,
    u64,
    Object,
    u64,
    Object,
    i32,
    u64,
    usize,
    *const f32,
    Object,
    u64,
) -> i32;
type NormalizeBy = unsafe extern "C" fn(
    Object,
    i32,
    *const f32,
    *const f32,
    Object,
    u64,
    Object,
    u64,
    Object,
    u64,
    u64,
    u64,
    u64,
    f64,
) -> i32;
type Normalize = unsafe extern "C" fn(
    Object,
    i32,
    *const f32,
    *const f32,
    Object,
    u64,
    Object,
    u64,
    Object,
    u64,
    u64,
    f64,
    u64,
    u64,
    f64,
    u64,
    u64,
) -> i32;
type Softmax =
    unsafe extern "C" fn(Object, i32, i32, *const f32, Object, u64, *const f32, Object, u64) -> i32;

/// `cudnnConvolutionFwdAlgoPerf_t`, and that of backward data.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Found {
    algorithm: i32,
    status: i32,
    time: f32,
    workspace: usize,
    determinism: i32,
    math: i32,
    reserved: [i32; 3],
}

/// Bytes of workspace that the library may use.
const WORKSPACE: usize = 64 << 20;
/// `CUDNN_DATA_FLOAT`, `CUDNN_TENSOR_NCHW`, `CUDNN_CROSS_CORRELATION`, `CUDNN_FMA_MATH` (no TensorFloat-32).
const FLOAT: i32 = 0;
const CHANNELS_FIRST: i32 = 0;
const CROSS_CORRELATION: i32 = 1;
const FMA_MATH: i32 = 3;
/// `CUDNN_BATCHNORM_SPATIAL`.
const SPATIAL: i32 = 1;
/// `CUDNN_SOFTMAX_ACCURATE` and `CUDNN_SOFTMAX_MODE_CHANNEL`.
const ACCURATE: i32 = 1;
const CHANNEL: i32 = 1;

/// An operation on row-major tensors of floats.
pub(in super::super) enum Operation<'s> {
    /// Inputs: `x`, weights. The library's fastest algorithm by its own measurement.
    Convolution {
        x: &'s [i32],
        weights: &'s [i32],
        result: &'s [i32],
        stride: i32,
        padding: i32,
        transposed: bool,
    },
    /// Inputs: `x`, scale and bias; mean and variance, unless in training.
    BatchNorm { shape: &'s [i32], training: bool },
    /// Input: `x`, along an axis of a matrix.
    Softmax { shape: [i32; 2], axis: usize },
}

/// An operation by the library.
pub(in super::super) struct Dnn {
    module: Module,
    call: Box<dyn Fn() -> i32>,
    /// Inputs, result, workspace, and statistics.
    memory: Vec<u64>,
    result: u64,
    len: usize,
}

fn done(call: &str, code: i32) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::DeviceLost(format!("the baseline: {call}: cuDNN status {code}")).into())
}

/// A function of the library.
fn symbol<F: Copy>(library: &Library, name: &str) -> Result<F> {
    // SAFETY: the caller names the type of the library's header.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|function| *function).map_err(|error| Failure::from(Error::Environment(error.to_string())))
}

/// A descriptor, which is left until the process ends.
fn object(library: &Library, create: &str) -> Result<Object> {
    let mut object = null_mut();
    // SAFETY: it writes an object.
    done(create, unsafe { symbol::<Create>(library, create)?(&mut object) })?;
    Ok(object)
}

fn tensor(library: &Library, shape: &[i32]) -> Result<Object> {
    let tensor = object(library, "cudnnCreateTensorDescriptor")?;
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    let set: SetTensor = symbol(library, "cudnnSetTensorNdDescriptor")?;
    // SAFETY: it reads as many sizes and strides.
    let code = unsafe { set(tensor, FLOAT, shape.len() as i32, shape.as_ptr(), strides.as_ptr()) };
    done("cudnnSetTensorNdDescriptor", code)?;
    Ok(tensor)
}

impl Dnn {
    /// `len` is the number of elements of the result. The library is the one that the device has found.
    pub(in super::super) fn new(
        path: &Path,
        operation: &Operation<'_>,
        inputs: &[&[f32]],
        len: usize,
    ) -> Result<std::result::Result<Self, String>> {
        let Some(module) = Module::new("empty", &[])? else {
            return Ok(Err("NVRTC is not installed".into()));
        };
        module.enter()?;
        // SAFETY: runs the library's initializers. It is never unloaded.
        let library: &'static Library = match unsafe { Library::new(path) } {
            Ok(library) => Box::leak(Box::new(library)),
            Err(error) => return Ok(Err(error.to_string())),
        };
        let mut memory = Vec::new();
        for bytes in
            inputs.iter().map(|input| size_of_val(*input)).chain([len * 4, WORKSPACE, len.min(1 << 16) * 4])
        {
            // SAFETY: freed when this value is dropped.
            memory.push(unsafe { result::malloc_sync(bytes) }.map_err(failed)?);
        }
        for (input, place) in inputs.iter().zip(&memory) {
            // SAFETY: the allocation has that many bytes.
            unsafe { result::memcpy_htod_sync(*place, input) }.map_err(failed)?;
        }
        let handle = object(library, "cudnnCreate")?;
        // SAFETY: the stream is the module's.
        let code = unsafe { symbol::<SetStream>(library, "cudnnSetStream")?(handle, module.stream.cast()) };
        done("cudnnSetStream", code)?;
        let result = memory[inputs.len()];
        let call = prepare(library, handle, operation, &memory, inputs.len())?;
        Ok(Ok(Self { module, call, memory, result, len }))
    }

    /// Device time of this many calls.
    pub(in super::super) fn device_time(&self, iterations: u64) -> Result<u64> {
        self.module.enter()?;
        let mut code = 0;
        let ns = self.module.timed(|| {
            code = (0..iterations).map(|_| (self.call)()).find(|code| *code != 0).unwrap_or(0);
            Ok(())
        })?;
        done("an operation", code)?;
        Ok(ns)
    }

    /// The elements of the result.
    pub(in super::super) fn result(&self) -> Result<Vec<f32>> {
        self.module.enter()?;
        self.module.synchronize()?;
        let mut all = vec![0.0f32; self.len];
        // SAFETY: the allocation has that many elements.
        unsafe { result::memcpy_dtoh_sync(&mut all, self.result) }.map_err(failed)?;
        Ok(all)
    }
}

/// The call of an operation. `memory` has the inputs, the result, the workspace and statistics.
fn prepare(
    library: &'static Library,
    handle: Object,
    operation: &Operation<'_>,
    memory: &[u64],
    inputs: usize,
) -> Result<Box<dyn Fn() -> i32>> {
    let (one, zero) = (1.0f32, 0.0f32);
    let given = memory[..inputs].to_vec();
    let [out, workspace, statistics] = [0, 1, 2].map(|at| memory[inputs + at]);
    Ok(match *operation {
        Operation::Convolution { x, weights, result, stride, padding, transposed } => {
            let (from, to) = (tensor(library, x)?, tensor(library, result)?);
            let filter = object(library, "cudnnCreateFilterDescriptor")?;
            let set: SetFilter = symbol(library, "cudnnSetFilterNdDescriptor")?;
            // SAFETY: it reads as many sizes.
            let code = unsafe { set(filter, FLOAT, CHANNELS_FIRST, weights.len() as i32, weights.as_ptr()) };
            done("cudnnSetFilterNdDescriptor", code)?;
            let convolution = object(library, "cudnnCreateConvolutionDescriptor")?;
            let axes = x.len() - 2;
            let [pads, strides, ones] = [padding, stride, 1].map(|value| vec![value; axes]);
            let set: SetConvolution = symbol(library, "cudnnSetConvolutionNdDescriptor")?;
            let set_math: Set = symbol(library, "cudnnSetConvolutionMathType")?;
            // SAFETY: it reads a number for each axis.
            unsafe {
                let (pads, strides, ones) = (pads.as_ptr(), strides.as_ptr(), ones.as_ptr());
                let code = set(convolution, axes as i32, pads, strides, ones, CROSS_CORRELATION, FLOAT);
                done("cudnnSetConvolutionNdDescriptor", code)?;
                done("cudnnSetConvolutionMathType", set_math(convolution, FMA_MATH))?;
            }
            let (find, convolve) = match transposed {
                true => ("cudnnFindConvolutionBackwardDataAlgorithm", "cudnnConvolutionBackwardData"),
                false => ("cudnnFindConvolutionForwardAlgorithm", "cudnnConvolutionForward"),
            };
            let (search, convolve): (FindAlgorithm, Convolve) =
                (symbol(library, find)?, symbol(library, convolve)?);
            let (mut found, mut count) = ([Found::default(); 8], 0);
            let (first, second) = if transposed { (filter, from) } else { (from, filter) };
            // SAFETY: it writes at most 8 algorithms.
            let code =
                unsafe { search(handle, first, second, convolution, to, 8, &mut count, found.as_mut_ptr()) };
            done(find, code)?;
            let all = found.iter().take(usize::try_from(count).unwrap_or(0));
            let works = |one: &&Found| one.status == 0 && one.workspace <= WORKSPACE && one.math == FMA_MATH;
            let best = *all
                .clone()
                .find(works)
                .or_else(|| all.clone().find(|one| one.status == 0 && one.workspace <= WORKSPACE))
                .ok_or_else(|| Failure::from(Error::Environment(format!("{find}: nothing works"))))?;
            let (first_at, second_at) = if transposed { (given[1], given[0]) } else { (given[0], given[1]) };
            // SAFETY: objects and memory live until the value is dropped; a filter and a tensor in the order of the function.
            Box::new(move || unsafe {
                convolve(
                    handle,
                    &one,
                    first,
                    first_at,
                    second,
                    second_at,
                    convolution,
                    best.algorithm,
                    workspace,
                    best.workspace,
                    &zero,
                    to,
                    out,
                )
            })
        }
        Operation::BatchNorm { shape, training } => {
            let mut vector = vec![1; shape.len()];
            vector[1] = shape[1];
            let (all, channels) = (tensor(library, shape)?, tensor(library, &vector)?);
            let saved = [statistics, statistics + shape[1] as u64 * 4];
            if training {
                let normalize: Normalize = symbol(library, "cudnnBatchNormalizationForwardTraining")?;
                // SAFETY: as above. There are no running statistics.
                Box::new(move || unsafe {
                    normalize(
                        handle, SPATIAL, &one, &zero, all, given[0], all, out, channels, given[1], given[2],
                        0.0, 0, 0, 1e-5, saved[0], saved[1],
                    )
                })
            } else {
                let normalize: NormalizeBy = symbol(library, "cudnnBatchNormalizationForwardInference")?;
                // SAFETY: as above.
                Box::new(move || unsafe {
                    normalize(
                        handle, SPATIAL, &one, &zero, all, given[0], all, out, channels, given[1], given[2],
                        given[3], given[4], 1e-5,
                    )
                })
            }
        }
        Operation::Softmax { shape: [rows, columns], axis } => {
            let shape = if axis == 1 { [rows, columns, 1, 1] } else { [1, rows, 1, columns] };
            let (all, softmax): (_, Softmax) =
                (tensor(library, &shape)?, symbol(library, "cudnnSoftmaxForward")?);
            // SAFETY: as above.
            Box::new(move || unsafe {
                softmax(handle, ACCURATE, CHANNEL, &one, all, given[0], &zero, all, out)
            })
        }
    })
}

impl Drop for Dnn {
    fn drop(&mut self) {
        for place in &self.memory {
            // SAFETY: allocated by `new`, and not used any more. After an error it is left until the process ends.
            let _left = unsafe { result::free_sync(*place) };
        }
    }
}
