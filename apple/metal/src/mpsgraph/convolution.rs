//! [`Convolution`]: descriptors of convolutions along
//! [two](https://developer.apple.com/documentation/metalperformanceshadersgraph/mpsgraphconvolution2dopdescriptor) and
//! [three](https://developer.apple.com/documentation/metalperformanceshadersgraph/mpsgraphconvolution3dopdescriptor) axes, and their
//! computation. Padding is explicit. Weights are in the order output channels, input channels of a group, points.

use std::sync::Arc;

use elinvar_objc::foundation::os_version;
use elinvar_objc::{Declaration, Ref};

use crate::require;

/// Values of `MPSGraphTensorNamedDataLayout` and `MPSGraphPaddingStyle`.
const FIRST: [usize; 2] = [0, 7];
const LAST: [usize; 2] = [1, 8];
const WEIGHTS: [usize; 2] = [2, 9];
const EXPLICIT: usize = 0;

/// Strides, dilations and padding, the outermost axis first.
#[derive(Clone, Debug)]
pub struct Convolution {
    strides: Vec<usize>,
    dilations: Vec<usize>,
    padding: Vec<(usize, usize)>,
    pub groups: usize,
    /// Whether the channels are behind the points.
    channels_last: bool,
}

impl Convolution {
    fn of(
        [strides, dilations]: [Vec<usize>; 2],
        padding: Vec<(usize, usize)>,
        groups: usize,
        [style, layout, weights]: [usize; 3],
    ) -> Option<Self> {
        let axes = strides.len() - 2;
        let positive = strides.iter().chain(&dilations).chain([&groups]).all(|number| *number > 0);
        require!(positive, "a convolution's strides, dilations and groups are positive");
        require!(style == EXPLICIT, "padding style {style} is not supported");
        require!(weights == WEIGHTS[axes], "weights layout {weights} is not supported");
        require!(
            [FIRST[axes], LAST[axes]].contains(&layout),
            "data layout {layout} is none of images or volumes"
        );
        Some(Self { strides, dilations, padding, groups, channels_last: layout == LAST[axes] })
    }

    /// Number of spatial axes.
    pub fn axes(&self) -> usize {
        self.strides.len()
    }

    /// Channels and points of an array in the descriptor's layout.
    fn parts<'s>(&self, shape: &'s [usize]) -> (usize, &'s [usize]) {
        match self.channels_last {
            true => (shape[shape.len() - 1], &shape[1..shape.len() - 1]),
            false => (shape[1], &shape[2..]),
        }
    }

    fn shape(&self, count: usize, channels: usize, points: &[usize]) -> Vec<usize> {
        match self.channels_last {
            true => [&[count][..], points, &[channels]].concat(),
            false => [&[count, channels][..], points].concat(),
        }
    }

    /// Shape of the result, or why there is none.
    pub fn result(&self, source: &[usize], weights: &[usize]) -> Result<Vec<usize>, String> {
        let rank = self.axes() + 2;
        if source.len() != rank || weights.len() != rank {
            return Err(format!("source {source:?} and weights {weights:?} must be of rank {rank}"));
        }
        let (channels, points) = self.parts(source);
        let groups = self.groups;
        if weights[1] * groups != channels || !weights[0].is_multiple_of(groups) {
            return Err(format!("{groups} groups of weights {weights:?} for {channels} channels"));
        }
        let mut positions = Vec::new();
        for (axis, points) in points.iter().enumerate() {
            let span = (weights[axis + 2] - 1) * self.dilations[axis] + 1;
            let room = points + self.padding[axis].0 + self.padding[axis].1;
            if span > room {
                return Err(format!("a window of {span} points in {room}"));
            }
            positions.push((room - span) / self.strides[axis] + 1);
        }
        Ok(self.shape(source[0], weights[0], &positions))
    }

    /// Calls `visit` for each term: indices of a source's element, of a weight and of a result's element. Shapes are of the convolution.
    fn terms(
        &self,
        source: &[usize],
        weights: &[usize],
        result: &[usize],
        mut visit: impl FnMut(usize, usize, usize),
    ) {
        let ((inputs, points), (outputs, positions)) = (self.parts(source), self.parts(result));
        let (count, window) = (source[0], &weights[2..]);
        let (size, inside): (usize, usize) = (positions.iter().product(), points.iter().product());
        let taps: usize = window.iter().product();
        let place =
            |n: usize, channel: usize, channels: usize, at: usize, all: usize| match self.channels_last {
                true => (n * all + at) * channels + channel,
                false => (n * channels + channel) * all + at,
            };
        let of_group = outputs / self.groups;
        for (position, tap) in (0..size).flat_map(|position| (0..taps).map(move |tap| (position, tap))) {
            let (mut rest, mut tap_rest, mut stride, mut at) = (position, tap, 1, Some(0));
            for axis in (0..points.len()).rev() {
                let place = rest % positions[axis] * self.strides[axis]
                    + tap_rest % window[axis] * self.dilations[axis];
                rest /= positions[axis];
                tap_rest /= window[axis];
                let inner = place.checked_sub(self.padding[axis].0).filter(|place| *place < points[axis]);
                at = at.zip(inner).map(|(at, inner)| at + inner * stride);
                stride *= points[axis];
            }
            let Some(at) = at else { continue };
            for (n, output, input) in (0..count).flat_map(|n| {
                (0..outputs).flat_map(move |output| (0..weights[1]).map(move |input| (n, output, input)))
            }) {
                let from = output / of_group * weights[1] + input;
                visit(
                    place(n, from, inputs, at, inside),
                    (output * weights[1] + input) * taps + tap,
                    place(n, output, outputs, position, size),
                );
            }
        }
    }

    pub fn convolve(
        &self,
        source: &[usize],
        weights: &[usize],
        result: &[usize],
        inputs: &[Arc<Vec<f64>>],
    ) -> Vec<f64> {
        let mut sums = vec![0.0; result.iter().product()];
        self.terms(source, weights, result, |from, weight, to| {
            sums[to] += inputs[0][from] * inputs[1][weight]
        });
        sums
    }

    /// `gradient` is that of the result; the result is that of the source.
    pub fn transpose(
        &self,
        gradient: &[usize],
        weights: &[usize],
        source: &[usize],
        inputs: &[Arc<Vec<f64>>],
    ) -> Vec<f64> {
        let mut sums = vec![0.0; source.iter().product()];
        self.terms(source, weights, gradient, |to, weight, from| {
            sums[to] += inputs[0][from] * inputs[1][weight]
        });
        sums
    }
}

/// `MPSGraphConvolution2DOpDescriptor`.
pub struct Images(pub Convolution);

elinvar_objc::object!(Images, c"MPSGraphConvolution2DOpDescriptor");

/// `MPSGraphConvolution3DOpDescriptor`.
pub struct Volumes(pub Convolution);

elinvar_objc::object!(Volumes, c"MPSGraphConvolution3DOpDescriptor");

pub fn register() {
    Declaration::<Images>::new()
        .class_method(
            "descriptorWithStrideInX:strideInY:dilationRateInX:dilationRateInY:groups:paddingLeft:paddingRight:paddingTop:paddingBottom:paddingStyle:dataLayout:weightsLayout:",
            |x: usize, y: usize, dilation_x: usize, dilation_y: usize, groups: usize, left: usize, right: usize, top: usize, bottom: usize, style: usize, layout: usize, weights: usize| {
                let padding = vec![(top, bottom), (left, right)];
                let steps = [vec![y, x], vec![dilation_y, dilation_x]];
                Convolution::of(steps, padding, groups, [style, layout, weights]).map(Images).map(Ref::new)
            },
        )
        .method("groups", |this: &Ref<Images>| this.0.groups)
        .register();
    if os_version() < super::VOLUMES {
        return;
    }
    Declaration::<Volumes>::new()
        .class_method(
            "descriptorWithStrideInX:strideInY:strideInZ:dilationRateInX:dilationRateInY:dilationRateInZ:groups:paddingLeft:paddingRight:paddingTop:paddingBottom:paddingFront:paddingBack:paddingStyle:dataLayout:weightsLayout:",
            |x: usize, y: usize, z: usize, dilation_x: usize, dilation_y: usize, dilation_z: usize, groups: usize, left: usize, right: usize, top: usize, bottom: usize, front: usize, back: usize, style: usize, layout: usize, weights: usize| {
                let padding = vec![(front, back), (top, bottom), (left, right)];
                let steps = [vec![z, y, x], vec![dilation_z, dilation_y, dilation_x]];
                Convolution::of(steps, padding, groups, [style, layout, weights]).map(Volumes).map(Ref::new)
            },
        )
        .method("groups", |this: &Ref<Volumes>| this.0.groups)
        .register();
}
