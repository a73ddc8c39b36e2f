//! Operations of cuDNN, through its functions for single operations (`cudnn_cnn.h`, `cudnn_ops.h`). This file has the library,
//! convolution and pooling of images.

mod volumes;

use std::path::Path;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use elinvar_driver::primitive::{
    BatchNorm, Convolution, DataType, Images, Layout, PoolKind, Pooling, VolumeConvolution,
};

use super::WORKSPACE;
use super::algorithms::Algorithms;
use super::load::{Descriptor, Object, Status, library};
use crate::context::Context;
use volumes::{BatchNormPlan, VolumePlan};

/// `CUDNN_STATUS_NOT_SUPPORTED` of version 9.
const NOT_SUPPORTED: i32 = 3000;
/// `CUDNN_CROSS_CORRELATION`.
const CROSS_CORRELATION: i32 = 1;
/// `cudnnMathType_t`: tensor cores for 16-bit types, and `f32` without TensorFloat-32.
const TENSOR_OP_MATH: i32 = 1;
const FMA_MATH: i32 = 3;
/// `CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM`, the one algorithm that adds a bias without an activation.
const WITH_BIAS: i32 = 1;
/// `CUDNN_ACTIVATION_IDENTITY`.
const IDENTITY: i32 = 5;
/// `CUDNN_PROPAGATE_NAN`.
const PROPAGATE_NAN: i32 = 1;

/// `cudnnConvolutionFwdAlgoPerf_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Suggestion {
    algorithm: i32,
    status: i32,
    time: f32,
    workspace: usize,
    determinism: i32,
    math: i32,
    reserved: [i32; 3],
}

library! {
    /// Functions of cuDNN.
    Functions {
        create = "cudnnCreate"(handle: *mut Object);
        destroy = "cudnnDestroy"(handle: Object);
        set_stream = "cudnnSetStream"(handle: Object, stream: CUstream);
        create_tensor = "cudnnCreateTensorDescriptor"(tensor: *mut Object);
        destroy_tensor = "cudnnDestroyTensorDescriptor"(tensor: Object);
        set_tensor = "cudnnSetTensor4dDescriptor"(
            tensor: Object, layout: i32, ty: i32, count: i32, channels: i32, height: i32, width: i32,
        );
        create_filter = "cudnnCreateFilterDescriptor"(filter: *mut Object);
        destroy_filter = "cudnnDestroyFilterDescriptor"(filter: Object);
        set_filter = "cudnnSetFilter4dDescriptor"(
            filter: Object, ty: i32, layout: i32, outputs: i32, inputs: i32, height: i32, width: i32,
        );
        create_convolution = "cudnnCreateConvolutionDescriptor"(convolution: *mut Object);
        destroy_convolution = "cudnnDestroyConvolutionDescriptor"(convolution: Object);
        set_convolution = "cudnnSetConvolution2dDescriptor"(
            convolution: Object, pad_rows: i32, pad_columns: i32, stride_down: i32, stride_across: i32, dilation_down: i32,
            dilation_across: i32, mode: i32, compute: i32,
        );
        set_groups = "cudnnSetConvolutionGroupCount"(convolution: Object, groups: i32);
        set_math = "cudnnSetConvolutionMathType"(convolution: Object, math: i32);
        suggest = "cudnnGetConvolutionForwardAlgorithm_v7"(
            handle: Object, source: Object, weights: Object, convolution: Object, result: Object, wanted: i32, count: *mut i32,
            suggestions: *mut Suggestion,
        );
        workspace = "cudnnGetConvolutionForwardWorkspaceSize"(
            handle: Object, source: Object, weights: Object, convolution: Object, result: Object, algorithm: i32,
            bytes: *mut usize,
        );
        convolve = "cudnnConvolutionForward"(
            handle: Object, alpha: *const f32, source_tensor: Object, source: CUdeviceptr, filter: Object, weights: CUdeviceptr,
            convolution: Object, algorithm: i32, workspace: CUdeviceptr, bytes: usize, beta: *const f32, result_tensor: Object,
            result: CUdeviceptr,
        );
        convolve_with_bias = "cudnnConvolutionBiasActivationForward"(
            handle: Object, alpha: *const f32, source_tensor: Object, source: CUdeviceptr, filter: Object, weights: CUdeviceptr,
            convolution: Object, algorithm: i32, workspace: CUdeviceptr, bytes: usize, beta: *const f32, added_tensor: Object,
            added: CUdeviceptr, bias_tensor: Object, bias: CUdeviceptr, activation: Object, result_tensor: Object,
            result: CUdeviceptr,
        );
        create_activation = "cudnnCreateActivationDescriptor"(activation: *mut Object);
        destroy_activation = "cudnnDestroyActivationDescriptor"(activation: Object);
        set_activation = "cudnnSetActivationDescriptor"(activation: Object, mode: i32, nan: i32, coefficient: f64);
        create_pooling = "cudnnCreatePoolingDescriptor"(pooling: *mut Object);
        destroy_pooling = "cudnnDestroyPoolingDescriptor"(pooling: Object);
        set_pooling = "cudnnSetPooling2dDescriptor"(
            pooling: Object, mode: i32, nan: i32, height: i32, width: i32, pad_rows: i32, pad_columns: i32, stride_down: i32,
            stride_across: i32,
        );
        set_tensor_nd = "cudnnSetTensorNdDescriptor"(
            tensor: Object, ty: i32, dims: i32, sizes: *const i32, strides: *const i32,
        );
        set_filter_nd = "cudnnSetFilterNdDescriptor"(filter: Object, ty: i32, layout: i32, dims: i32, sizes: *const i32);
        set_convolution_nd = "cudnnSetConvolutionNdDescriptor"(
            convolution: Object, axes: i32, padding: *const i32, stride: *const i32, dilation: *const i32, mode: i32,
            compute: i32,
        );
        workspace_back = "cudnnGetConvolutionBackwardDataWorkspaceSize"(
            handle: Object, weights: Object, source: Object, convolution: Object, result: Object, algorithm: i32,
            bytes: *mut usize,
        );
        convolve_back = "cudnnConvolutionBackwardData"(
            handle: Object, alpha: *const f32, filter: Object, weights: CUdeviceptr, source_tensor: Object, source: CUdeviceptr,
            convolution: Object, algorithm: i32, workspace: CUdeviceptr, bytes: usize, beta: *const f32, result_tensor: Object,
            result: CUdeviceptr,
        );
        add = "cudnnAddTensor"(
            handle: Object, alpha: *const f32, added_tensor: Object, added: CUdeviceptr, beta: *const f32, result_tensor: Object,
            result: CUdeviceptr,
        );
        normalize_by = "cudnnBatchNormalizationForwardInference"(
            handle: Object, mode: i32, alpha: *const f32, beta: *const f32, source_tensor: Object, source: CUdeviceptr,
            result_tensor: Object, result: CUdeviceptr, channels: Object, scale: CUdeviceptr, bias: CUdeviceptr,
            mean: CUdeviceptr, variance: CUdeviceptr, epsilon: f64,
        );
        normalize = "cudnnBatchNormalizationForwardTraining"(
            handle: Object, mode: i32, alpha: *const f32, beta: *const f32, source_tensor: Object, source: CUdeviceptr,
            result_tensor: Object, result: CUdeviceptr, channels: Object, scale: CUdeviceptr, bias: CUdeviceptr, momentum: f64,
            running_mean: CUdeviceptr, running_variance: CUdeviceptr, epsilon: f64, mean: CUdeviceptr,
            inverse_deviation: CUdeviceptr,
        );
        pool = "cudnnPoolingForward"(
            handle: Object, pooling: Object, alpha: *const f32, source_tensor: Object, source: CUdeviceptr, beta: *const f32,
            result_tensor: Object, result: CUdeviceptr,
        );
    }
}

/// cuDNN, loaded.
pub(super) struct Dnn {
    functions: Arc<Functions>,
    algorithms: Arc<Algorithms>,
}

/// A handle of cuDNN, for one stream, with the operations that it has prepared.
pub(super) struct Handle {
    context: Arc<Context>,
    functions: Arc<Functions>,
    algorithms: Arc<Algorithms>,
    handle: Object,
    convolutions: Vec<(Convolution, ConvolutionPlan)>,
    poolings: Vec<(Pooling, PoolingPlan)>,
    volumes: Vec<(VolumeConvolution, VolumePlan)>,
    batch_norms: Vec<(BatchNorm, BatchNormPlan)>,
}

#[allow(unsafe_code)] // the library's promise
// SAFETY: cuDNN documentation, "Thread Safety": a handle and descriptors may be used by one thread after another.
unsafe impl Send for Handle {}
#[allow(unsafe_code)] // nothing is done with a shared reference
// SAFETY: all methods take an exclusive reference.
unsafe impl Sync for Handle {}

struct ConvolutionPlan {
    source: Descriptor<Functions>,
    weights: Descriptor<Functions>,
    convolution: Descriptor<Functions>,
    /// With the identity as activation.
    bias: Option<(Descriptor<Functions>, Descriptor<Functions>)>,
    result: Descriptor<Functions>,
    algorithm: i32,
    workspace: usize,
}

struct PoolingPlan {
    source: Descriptor<Functions>,
    pooling: Descriptor<Functions>,
    result: Descriptor<Functions>,
}

/// `cudnnDataType_t`.
fn type_code(data_type: DataType) -> i32 {
    match data_type {
        DataType::F16 => 2,
        DataType::BF16 => 9,
        _ => 0,
    }
}

/// `cudnnTensorFormat_t`.
fn layout_code(layout: Layout) -> i32 {
    match layout {
        Layout::ChannelsFirst => 0,
        Layout::ChannelsLast => 1,
    }
}

/// A size as the library takes it.
fn number(size: u32) -> Result<i32, Status> {
    i32::try_from(size).map_err(|_| Status { call: "cuDNN", code: NOT_SUPPORTED })
}

/// The place of an operation among prepared ones.
fn position<O: PartialEq, P>(plans: &[(O, P)], operation: &O) -> Option<usize> {
    plans.iter().position(|(known, _)| known == operation)
}

/// Keeps a prepared operation, in place of the oldest if there are many. Returns its place.
fn keep<O, P>(plans: &mut Vec<(O, P)>, operation: O, plan: P) -> usize {
    if plans.len() >= super::MOST_PLANS {
        plans.remove(0);
    }
    plans.push((operation, plan));
    plans.len() - 1
}

impl Dnn {
    pub(super) fn open(path: &Path, algorithms: Algorithms) -> Result<Self, String> {
        Ok(Self { functions: Arc::new(Functions::open(path)?), algorithms: Arc::new(algorithms) })
    }

    /// A handle for a stream. The context must be current.
    #[allow(unsafe_code)] // C functions
    pub(super) fn handle(&self, context: &Arc<Context>, stream: CUstream) -> Result<Handle, Status> {
        let functions = self.functions.clone();
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes a handle for the current context.
        unsafe { functions.create(&mut handle) }?;
        let (context, algorithms) = (context.clone(), self.algorithms.clone());
        let handle = Handle {
            context,
            functions,
            algorithms,
            handle,
            convolutions: Vec::new(),
            poolings: Vec::new(),
            volumes: Vec::new(),
            batch_norms: Vec::new(),
        };
        // SAFETY: the stream is of the context.
        unsafe { handle.functions.set_stream(handle.handle, stream) }?;
        Ok(handle)
    }
}

impl Drop for Handle {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // SAFETY: nothing uses the handle any more. There is nothing to do about a failure.
            let _closed = unsafe { self.functions.destroy(self.handle) };
        }
    }
}

#[allow(unsafe_code)] // C functions
impl Handle {
    /// Appends a convolution to the stream: source, weights, bias if there is one, result. `workspace` has [`WORKSPACE`] bytes.
    pub(super) fn convolve(
        &mut self,
        p: &Convolution,
        operands: &[CUdeviceptr],
        workspace: CUdeviceptr,
    ) -> Result<(), Status> {
        let at = self.convolution_plan(p)?;
        let plan = &self.convolutions[at].1;
        let (f, one, zero) = (&self.functions, 1.0, 0.0);
        let (source, weights, result) = (operands[0], operands[1], operands[operands.len() - 1]);
        let ConvolutionPlan {
            source: x,
            weights: w,
            convolution,
            result: y,
            algorithm,
            workspace: bytes,
            ..
        } = plan;
        match &plan.bias {
            // SAFETY: the plan was made for these shapes; the submission keeps the operands, and the stream its workspace.
            None => unsafe {
                f.convolve(
                    self.handle,
                    &one,
                    x.object,
                    source,
                    w.object,
                    weights,
                    convolution.object,
                    *algorithm,
                    workspace,
                    *bytes,
                    &zero,
                    y.object,
                    result,
                )
            },
            // SAFETY: as above.
            Some((bias, identity)) => unsafe {
                f.convolve_with_bias(
                    self.handle,
                    &one,
                    x.object,
                    source,
                    w.object,
                    weights,
                    convolution.object,
                    *algorithm,
                    workspace,
                    *bytes,
                    &zero,
                    y.object,
                    result,
                    bias.object,
                    operands[2],
                    identity.object,
                    y.object,
                    result,
                )
            },
        }
    }

    /// The place of the prepared convolution.
    pub(super) fn convolution_plan(&mut self, p: &Convolution) -> Result<usize, Status> {
        if let Some(at) = position(&self.convolutions, p) {
            return Ok(at);
        }
        let plan = self.prepare_convolution(p)?;
        Ok(keep(&mut self.convolutions, *p, plan))
    }

    fn prepare_convolution(&self, p: &Convolution) -> Result<ConvolutionPlan, Status> {
        let f = &self.functions;
        let source = self.images(p.data_type, p.layout, p.source)?;
        let result = self.images(p.data_type, p.layout, p.result())?;
        let weights = self.owned(Functions::create_filter, Functions::destroy_filter)?;
        let [height, width] = [number(p.window.size[0])?, number(p.window.size[1])?];
        let (outputs, inputs) = (number(p.channels)?, number(p.source.channels / p.groups)?);
        let (ty, layout) = (type_code(p.weight_type), layout_code(p.weight_layout));
        // SAFETY: plain numbers.
        unsafe { f.set_filter(weights.object, ty, layout, outputs, inputs, height, width) }?;
        let convolution = self.owned(Functions::create_convolution, Functions::destroy_convolution)?;
        let math = if p.data_type == DataType::F32 { FMA_MATH } else { TENSOR_OP_MATH };
        let window = &p.window;
        // SAFETY: plain numbers.
        unsafe {
            f.set_convolution(
                convolution.object,
                number(window.padding.top)?,
                number(window.padding.left)?,
                number(window.stride[0])?,
                number(window.stride[1])?,
                number(window.dilation[0])?,
                number(window.dilation[1])?,
                CROSS_CORRELATION,
                type_code(DataType::F32),
            )?;
            f.set_groups(convolution.object, number(p.groups)?)?;
            f.set_math(convolution.object, math)?;
        }
        let objects = [&source, &weights, &convolution, &result].map(|owned| owned.object);
        let (algorithm, workspace) = self.choose(objects, p)?;
        let bias = if p.bias {
            let size = Images { count: 1, channels: p.channels, height: 1, width: 1 };
            let identity = self.owned(Functions::create_activation, Functions::destroy_activation)?;
            // SAFETY: plain numbers.
            unsafe { f.set_activation(identity.object, IDENTITY, PROPAGATE_NAN, 0.0) }?;
            Some((self.images(p.weight_type, p.layout, size)?, identity))
        } else {
            None
        };
        Ok(ConvolutionPlan { source, weights, convolution, bias, result, algorithm, workspace })
    }

    /// The algorithm that is known for a convolution, or the library's first suggestion that works in the workspace; and the bytes of it.
    fn choose(&self, objects: [Object; 4], p: &Convolution) -> Result<(i32, usize), Status> {
        let wanted = if p.bias { Some(WITH_BIAS) } else { self.algorithms.load(p) };
        let fits = |algorithm: i32| -> Result<usize, Status> {
            let ([source, weights, convolution, result], mut bytes) = (objects, 0);
            // SAFETY: it writes a number.
            unsafe {
                self.functions.workspace(
                    self.handle,
                    source,
                    weights,
                    convolution,
                    result,
                    algorithm,
                    &mut bytes,
                )
            }?;
            let refused = Status { call: "cudnnGetConvolutionForwardWorkspaceSize", code: NOT_SUPPORTED };
            if bytes as u64 <= WORKSPACE { Ok(bytes) } else { Err(refused) }
        };
        match (wanted, p.bias) {
            (Some(algorithm), true) => return Ok((algorithm, fits(algorithm)?)),
            (Some(algorithm), false) => {
                if let Ok(bytes) = fits(algorithm) {
                    return Ok((algorithm, bytes));
                }
            }
            (None, _) => {}
        }
        let (algorithm, workspace) = self.suggestion(objects)?;
        self.algorithms.store(p, &algorithm);
        Ok((algorithm, workspace))
    }

    /// The library's first suggestion that works in the workspace.
    fn suggestion(
        &self,
        [source, weights, convolution, result]: [Object; 4],
    ) -> Result<(i32, usize), Status> {
        let f = &self.functions;
        let (mut suggestions, mut count) = ([Suggestion::default(); 8], 0);
        // SAFETY: it writes at most 8 suggestions.
        unsafe {
            f.suggest(
                self.handle,
                source,
                weights,
                convolution,
                result,
                8,
                &mut count,
                suggestions.as_mut_ptr(),
            )
        }?;
        let given = suggestions.iter().take(usize::try_from(count).unwrap_or(0));
        let works = given.into_iter().find(|one| one.status == 0 && one.workspace as u64 <= WORKSPACE);
        let works =
            works.ok_or(Status { call: "cudnnGetConvolutionForwardAlgorithm_v7", code: NOT_SUPPORTED })?;
        Ok((works.algorithm, works.workspace))
    }

    /// Appends a pooling to the stream.
    pub(super) fn pool(&mut self, p: &Pooling, [source, result]: [CUdeviceptr; 2]) -> Result<(), Status> {
        let at = match position(&self.poolings, p) {
            Some(at) => at,
            None => {
                let plan = self.prepare_pooling(p)?;
                keep(&mut self.poolings, *p, plan)
            }
        };
        let plan = &self.poolings[at].1;
        let (pooling, x, y) = (plan.pooling.object, plan.source.object, plan.result.object);
        // SAFETY: the plan was made for these shapes; the submission keeps the operands.
        unsafe { self.functions.pool(self.handle, pooling, &1.0, x, source, &0.0, y, result) }
    }

    fn prepare_pooling(&self, p: &Pooling) -> Result<PoolingPlan, Status> {
        let source = self.images(p.data_type, p.layout, p.source)?;
        let result = self.images(p.data_type, p.layout, p.result())?;
        let pooling = self.owned(Functions::create_pooling, Functions::destroy_pooling)?;
        // `cudnnPoolingMode_t`.
        let mode = match p.kind {
            PoolKind::Max => 0,
            PoolKind::AverageWithPadding => 1,
            PoolKind::Average => 2,
            _ => return Err(Status { call: "cudnnSetPooling2dDescriptor", code: NOT_SUPPORTED }),
        };
        let window = &p.window;
        // SAFETY: plain numbers.
        unsafe {
            self.functions.set_pooling(
                pooling.object,
                mode,
                PROPAGATE_NAN,
                number(window.size[0])?,
                number(window.size[1])?,
                number(window.padding.top)?,
                number(window.padding.left)?,
                number(window.stride[0])?,
                number(window.stride[1])?,
            )
        }?;
        Ok(PoolingPlan { source, pooling, result })
    }

    fn images(
        &self,
        data_type: DataType,
        layout: Layout,
        size: Images,
    ) -> Result<Descriptor<Functions>, Status> {
        let tensor = self.owned(Functions::create_tensor, Functions::destroy_tensor)?;
        let [count, channels, height, width] =
            [number(size.count)?, number(size.channels)?, number(size.height)?, number(size.width)?];
        let (ty, layout) = (type_code(data_type), layout_code(layout));
        // SAFETY: plain numbers.
        unsafe { self.functions.set_tensor(tensor.object, layout, ty, count, channels, height, width) }?;
        Ok(tensor)
    }

    fn owned(
        &self,
        create: unsafe fn(&Functions, *mut Object) -> Result<(), Status>,
        destroy: unsafe fn(&Functions, Object) -> Result<(), Status>,
    ) -> Result<Descriptor<Functions>, Status> {
        // SAFETY: all pairs are for one kind of descriptor.
        unsafe { Descriptor::new(&self.functions, |f, object| create(f, object), destroy) }
    }
}
