//! [`Window`]: the geometry of convolution and pooling, and its form for the kernels.

use elinvar_driver::Result;

use crate::tensor::axes::bytes_of;
use crate::tensor::operation::fail;
use crate::tensor::plan::StepArg;
use crate::tensor::view::{Dims, TensorRef};

/// Most spatial axes.
pub(crate) const MOST_SPACE: usize = 3;

/// How a window moves over the spatial axes of `[n, channels, …]`, one entry for each of them; a list of one entry is for all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Distance of neighboring windows.
    pub stride: Vec<usize>,
    /// Elements before the first and after the last: zeros for a convolution, nothing for a maximum.
    pub padding: Vec<(usize, usize)>,
    /// Distance of the elements of a window.
    pub dilation: Vec<usize>,
}

impl Default for Window {
    /// Stride 1, no padding, dilation 1.
    fn default() -> Self {
        Self { stride: vec![1], padding: vec![(0, 0)], dilation: vec![1] }
    }
}

impl Window {
    /// Windows of this stride.
    pub fn stride(stride: usize) -> Self {
        Self { stride: vec![stride], ..Self::default() }
    }

    /// With as many elements before and after each axis.
    #[must_use]
    pub fn padded(self, padding: usize) -> Self {
        Self { padding: vec![(padding, padding)], ..self }
    }

    /// With this distance of the elements of a window.
    #[must_use]
    pub fn dilated(self, dilation: usize) -> Self {
        Self { dilation: vec![dilation], ..self }
    }
}

/// A window along one axis.
#[derive(Clone, Copy)]
pub(crate) struct Along {
    pub(crate) size: usize,
    pub(crate) stride: usize,
    pub(crate) padding: (usize, usize),
    pub(crate) dilation: usize,
}

impl Along {
    /// Elements from the first to the last of a window.
    fn extent(self) -> Option<usize> {
        self.size.checked_sub(1)?.checked_mul(self.dilation)?.checked_add(1)
    }

    /// Number of windows over `input` elements; `None` if none fits.
    pub(crate) fn windows(self, input: usize) -> Option<usize> {
        let padded = input.checked_add(self.padding.0)?.checked_add(self.padding.1)?;
        Some(padded.checked_sub(self.extent()?)? / self.stride + 1)
    }

    /// Least number of elements that `windows` windows cover, without the padding: the result of a transposed convolution.
    pub(crate) fn covered(self, windows: usize) -> Option<usize> {
        let last = windows.checked_sub(1)?.checked_mul(self.stride)?;
        last.checked_add(self.extent()?)?.checked_sub(self.padding.0.checked_add(self.padding.1)?)
    }
}

impl Window {
    /// The window along each axis, for windows of `sizes` elements.
    pub(crate) fn along(&self, operation: &str, sizes: &[usize]) -> Result<Vec<Along>> {
        let rank = sizes.len();
        let fits = |len: usize| len == 1 || len == rank;
        if rank == 0 || rank > MOST_SPACE {
            return Err(fail(operation, format_args!("{rank} spatial axes, 1 to {MOST_SPACE} supported")));
        }
        let (stride, padding, dilation) = (self.stride.len(), self.padding.len(), self.dilation.len());
        if !fits(stride) || !fits(padding) || !fits(dilation) {
            return Err(fail(
                operation,
                format_args!(
                    "{stride} strides, {padding} paddings and {dilation} dilations for {rank} spatial axes"
                ),
            ));
        }
        let pick = |len: usize, axis: usize| if len == 1 { 0 } else { axis };
        let along = sizes.iter().enumerate().map(|(axis, size)| Along {
            size: *size,
            stride: self.stride[pick(stride, axis)],
            padding: self.padding[pick(padding, axis)],
            dilation: self.dilation[pick(dilation, axis)],
        });
        let along: Vec<Along> = along.collect();
        // Positions are 32-bit integers in the kernels.
        let is_small = |value: usize| value < 1 << 30;
        for (axis, of) in along.iter().enumerate() {
            let reach = of.extent().filter(|extent| is_small(*extent));
            let fits = [of.padding.0, of.padding.1, of.stride].into_iter().all(is_small) && reach.is_some();
            if of.stride == 0 || of.dilation == 0 || of.size == 0 || !fits {
                return Err(fail(
                    operation,
                    format_args!(
                        "spatial axis {axis}: window of {}, stride {}, dilation {}, padding {:?}: all but the padding \
                         must be at least 1, and none 2³⁰ or more",
                        of.size, of.stride, of.dilation, of.padding
                    ),
                ));
            }
        }
        Ok(along)
    }
}

/// A tensor of images for the kernels: strides of n, channels, and three spatial axes.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
struct Images {
    n: u64,
    channel: u64,
    space: [u64; 3],
}

impl Images {
    fn of(view: &TensorRef<'_>) -> Self {
        let strides = view.strides();
        Self { n: strides[0] as u64, channel: strides[1] as u64, space: three(&strides[2..], 0) }
    }
}

/// `Window` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct Geometry {
    input: [i32; 3],
    output: [i32; 3],
    size: [i32; 3],
    stride: [i32; 3],
    padding: [i32; 3],
    dilation: [i32; 3],
    pub(crate) in_channels: u32,
    pub(crate) out_channels: u32,
    pub(crate) groups: u32,
    pub(crate) elements: f32,
    x: Images,
    result: Images,
    pub(crate) weight_group: u64,
    pub(crate) weight_out: u64,
    pub(crate) weight_in: u64,
    pub(crate) weight_space: [u64; 3],
    pub(crate) bias: u64,
    pub(crate) matrix: u64,
    pub(crate) panel: u64,
    pub(crate) row: u64,
    pub(crate) first_image: u32,
    unused: u32,
}

/// Values of up to three spatial axes, with `rest` for axes in front of them.
pub(crate) fn three(values: &[usize], rest: u64) -> [u64; 3] {
    let mut all = [rest; 3];
    for (all, value) in all[3 - values.len()..].iter_mut().zip(values) {
        *all = *value as u64;
    }
    all
}

impl Geometry {
    /// The geometry of windows over `x`; checks that positions fit the kernels' integers.
    pub(crate) fn new(
        operation: &str,
        along: &[Along],
        x: &TensorRef<'_>,
        result: &TensorRef<'_>,
    ) -> Result<Self> {
        for view in [x, result] {
            if view.shape().iter().any(|size| *size >= 1 << 30) {
                return Err(fail(operation, format_args!("{view}: an axis of 2³⁰ elements or more")));
            }
        }
        let space = |values: Dims, rest: u64| three(&values, rest).map(|value| value as i32);
        let each = |of: fn(&Along) -> usize, rest: u64| space(along.iter().map(of).collect(), rest);
        Ok(Self {
            input: space(x.shape()[2..].into(), 1),
            output: space(result.shape()[2..].into(), 1),
            size: each(|along| along.size, 1),
            stride: each(|along| along.stride, 1),
            padding: each(|along| along.padding.0, 0),
            dilation: each(|along| along.dilation, 1),
            elements: along.iter().map(|along| along.size as f32).product(),
            groups: 1,
            x: Images::of(x),
            result: Images::of(result),
            ..Self::default()
        })
    }

    /// Whether neighbors along the width of the result read neighbors in memory.
    pub(crate) fn is_dense(&self) -> bool {
        self.stride[2] == 1 && self.x.space[2] == 1
    }

    /// Threads along x and y for the elements of the result's space.
    pub(crate) fn threads(&self) -> (usize, usize) {
        let [depth, height, width] = self.output.map(|size| size as usize);
        (width, height * depth)
    }

    pub(crate) fn arg(&self) -> StepArg {
        StepArg::bytes(bytes_of(self))
    }
}
