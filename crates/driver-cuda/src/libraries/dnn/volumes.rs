//! Convolutions of volumes, their transposes, and batch normalization by cuDNN.
//!
//! cuDNN has a transposed convolution as the gradient of a convolution's data. Of its algorithms those are used whose sums are in `f32`
//! and in a fixed order: products of matrices, but neither transforms nor atomic additions.

use cudarc::driver::sys::CUdeviceptr;
use elinvar_driver::primitive::{BatchNorm, BatchStatistics, DataType, Layout, VolumeConvolution, Volumes};

use super::{
    CROSS_CORRELATION, Descriptor, FMA_MATH, Functions, Handle, NOT_SUPPORTED, Object, Status,
    TENSOR_OP_MATH, WORKSPACE, keep, layout_code, number, position, type_code,
};

/// `CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM` and `CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM`.
const FORWARD: &[i32] = &[1, 0];
/// `CUDNN_CONVOLUTION_BWD_DATA_ALGO_1`.
const TRANSPOSED: &[i32] = &[1];
/// `CUDNN_BATCHNORM_SPATIAL`: statistics of each channel.
const SPATIAL: i32 = 1;
pub(super) struct VolumePlan {
    source: Descriptor<Functions>,
    weights: Descriptor<Functions>,
    convolution: Descriptor<Functions>,
    bias: Option<Descriptor<Functions>>,
    result: Descriptor<Functions>,
    algorithm: i32,
    workspace: usize,
}

pub(super) struct BatchNormPlan {
    volumes: Descriptor<Functions>,
    channels: Descriptor<Functions>,
}

/// The last axes, as many as the library needs: at least two.
fn spatial(sizes: [u32; 3], axes: usize) -> Result<Vec<i32>, Status> {
    sizes[3 - axes..].iter().map(|size| number(*size)).collect()
}

#[allow(unsafe_code)] // C functions
impl Handle {
    /// Appends a convolution to the stream: source, weights, bias if there is one, result. `workspace` has [`WORKSPACE`] bytes.
    pub(in super::super) fn convolve_volumes(
        &mut self,
        p: &VolumeConvolution,
        operands: &[CUdeviceptr],
        workspace: CUdeviceptr,
    ) -> Result<(), Status> {
        let at = self.volume_plan(p)?;
        let (plan, f, one, zero) = (&self.volumes[at].1, &self.functions, 1.0, 0.0);
        let (source, weights, result) = (operands[0], operands[1], operands[operands.len() - 1]);
        let [x, w, convolution, y] =
            [&plan.source, &plan.weights, &plan.convolution, &plan.result].map(|owned| owned.object);
        let (algorithm, bytes) = (plan.algorithm, plan.workspace);
        // SAFETY: the plan was made for these shapes; the submission keeps the operands, and the stream its workspace.
        unsafe {
            if p.transposed {
                f.convolve_back(
                    self.handle,
                    &one,
                    w,
                    weights,
                    x,
                    source,
                    convolution,
                    algorithm,
                    workspace,
                    bytes,
                    &zero,
                    y,
                    result,
                )?;
            } else {
                f.convolve(
                    self.handle,
                    &one,
                    x,
                    source,
                    w,
                    weights,
                    convolution,
                    algorithm,
                    workspace,
                    bytes,
                    &zero,
                    y,
                    result,
                )?;
            }
            match &plan.bias {
                Some(bias) => f.add(self.handle, &one, bias.object, operands[2], &one, y, result),
                None => Ok(()),
            }
        }
    }

    /// The place of the prepared convolution.
    pub(in super::super) fn volume_plan(&mut self, p: &VolumeConvolution) -> Result<usize, Status> {
        if let Some(at) = position(&self.volumes, p) {
            return Ok(at);
        }
        let plan = self.prepare_volumes(p)?;
        Ok(keep(&mut self.volumes, *p, plan))
    }

    fn prepare_volumes(&self, p: &VolumeConvolution) -> Result<VolumePlan, Status> {
        let f = &self.functions;
        let is_flat = p.window.size[0] == 1 && p.source.size[0] == 1 && p.result.size[0] == 1;
        let axes = if is_flat { 2 } else { 3 };
        let (source, result) = (
            self.volumes_of(p.data_type, p.layout, p.source, axes)?,
            self.volumes_of(p.data_type, p.layout, p.result, axes)?,
        );
        let weights = self.owned(Functions::create_filter, Functions::destroy_filter)?;
        let [read, made] = p.forward();
        let mut sizes = vec![number(made.channels)?, number(read.channels / p.groups)?];
        sizes.extend(spatial(p.window.size, axes)?);
        let (ty, layout, dims) = (type_code(p.data_type), layout_code(p.layout), axes as i32 + 2);
        // SAFETY: it reads as many sizes as there are.
        unsafe { f.set_filter_nd(weights.object, ty, layout, dims, sizes.as_ptr()) }?;
        let convolution = self.owned(Functions::create_convolution, Functions::destroy_convolution)?;
        let math = if p.data_type == DataType::F32 { FMA_MATH } else { TENSOR_OP_MATH };
        let window = &p.window;
        let [padding, stride, dilation] =
            [spatial(window.padding, axes)?, spatial(window.stride, axes)?, spatial(window.dilation, axes)?];
        // SAFETY: it reads as many numbers as there are axes.
        unsafe {
            f.set_convolution_nd(
                convolution.object,
                axes as i32,
                padding.as_ptr(),
                stride.as_ptr(),
                dilation.as_ptr(),
                CROSS_CORRELATION,
                type_code(DataType::F32),
            )?;
            f.set_groups(convolution.object, number(p.groups)?)?;
            f.set_math(convolution.object, math)?;
        }
        let objects = [&source, &weights, &convolution, &result].map(|owned| owned.object);
        let (algorithm, workspace) = self.choose_of_volumes(objects, p.transposed)?;
        let vector = Volumes { count: 1, channels: p.result.channels, size: [1; 3] };
        let bias = p.bias.then(|| self.volumes_of(p.data_type, p.layout, vector, axes)).transpose()?;
        Ok(VolumePlan { source, weights, convolution, bias, result, algorithm, workspace })
    }

    /// The first algorithm that the library has for a convolution and that works in the workspace; and the bytes of it.
    fn choose_of_volumes(
        &self,
        [source, weights, convolution, result]: [Object; 4],
        transposed: bool,
    ) -> Result<(i32, usize), Status> {
        let (f, handle) = (&self.functions, self.handle);
        let mut refused = Status { call: "cudnnConvolutionForward", code: NOT_SUPPORTED };
        for algorithm in if transposed { TRANSPOSED } else { FORWARD } {
            let mut bytes = 0;
            // SAFETY: both write a number.
            let asked = unsafe {
                if transposed {
                    f.workspace_back(handle, weights, source, convolution, result, *algorithm, &mut bytes)
                } else {
                    f.workspace(handle, source, weights, convolution, result, *algorithm, &mut bytes)
                }
            };
            match asked {
                Ok(()) if bytes as u64 <= WORKSPACE => return Ok((*algorithm, bytes)),
                Ok(()) => {}
                Err(status) => refused = status,
            }
        }
        Err(refused)
    }

    /// Appends a batch normalization to the stream, with its operands in order. The result is last.
    pub(in super::super) fn normalize(
        &mut self,
        p: &BatchNorm,
        operands: &[CUdeviceptr],
    ) -> Result<(), Status> {
        let at = match position(&self.batch_norms, p) {
            Some(at) => at,
            None => {
                let all = self.volumes_of(p.data_type, p.layout, p.source, 3)?;
                let vector = Volumes { count: 1, channels: p.source.channels, size: [1; 3] };
                let channels = self.volumes_of(DataType::F32, p.layout, vector, 3)?;
                keep(&mut self.batch_norms, *p, BatchNormPlan { volumes: all, channels })
            }
        };
        let BatchNormPlan { volumes, channels } = &self.batch_norms[at].1;
        let (volumes, channels, f, handle) = (volumes.object, channels.object, &self.functions, self.handle);
        let (x, y, epsilon) = (operands[0], operands[operands.len() - 1], f64::from(p.epsilon));
        let [scale, bias, mean, deviation] = [1, 2, 3, 4].map(|at| operands[at]);
        let (one, zero) = (1.0, 0.0);
        // SAFETY: the descriptors were made for these shapes; the submission keeps the operands. Running statistics may be missing.
        unsafe {
            match p.statistics {
                BatchStatistics::Given => f.normalize_by(
                    handle, SPATIAL, &one, &zero, volumes, x, volumes, y, channels, scale, bias, mean,
                    deviation, epsilon,
                ),
                BatchStatistics::Saved => f.normalize(
                    handle, SPATIAL, &one, &zero, volumes, x, volumes, y, channels, scale, bias, 0.0, 0, 0,
                    epsilon, mean, deviation,
                ),
                BatchStatistics::Running { momentum } => f.normalize(
                    handle,
                    SPATIAL,
                    &one,
                    &zero,
                    volumes,
                    x,
                    volumes,
                    y,
                    channels,
                    scale,
                    bias,
                    f64::from(momentum),
                    operands[5],
                    operands[6],
                    epsilon,
                    mean,
                    deviation,
                ),
                _ => Err(Status { call: "cudnnBatchNormalizationForwardTraining", code: NOT_SUPPORTED }),
            }
        }
    }

    /// Packed volumes with their last axes.
    fn volumes_of(
        &self,
        data_type: DataType,
        layout: Layout,
        of: Volumes,
        axes: usize,
    ) -> Result<Descriptor<Functions>, Status> {
        let mut sizes = vec![number(of.count)?, number(of.channels)?];
        sizes.extend(spatial(of.size, axes)?);
        // From the innermost axis to the outermost.
        let order: Vec<usize> = match layout {
            Layout::ChannelsFirst => (0..sizes.len()).rev().collect(),
            Layout::ChannelsLast => [1].into_iter().chain((2..sizes.len()).rev()).chain([0]).collect(),
        };
        let (mut strides, mut stride) = (vec![0; sizes.len()], 1_i32);
        for axis in order {
            strides[axis] = stride;
            let too_large = Status { call: "cudnnSetTensorNdDescriptor", code: NOT_SUPPORTED };
            stride = stride.checked_mul(sizes[axis]).ok_or(too_large)?;
        }
        self.tensor(data_type, &sizes, &strides)
    }

    fn tensor(
        &self,
        data_type: DataType,
        sizes: &[i32],
        strides: &[i32],
    ) -> Result<Descriptor<Functions>, Status> {
        let tensor = self.owned(Functions::create_tensor, Functions::destroy_tensor)?;
        let (ty, dims) = (type_code(data_type), sizes.len() as i32);
        // SAFETY: it reads as many sizes and strides.
        unsafe { self.functions.set_tensor_nd(tensor.object, ty, dims, sizes.as_ptr(), strides.as_ptr()) }?;
        Ok(tensor)
    }
}
