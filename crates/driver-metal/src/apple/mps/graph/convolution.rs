//! Convolutions along two and three axes, in groups, and transposed.
//!
//! A transposed convolution is the gradient of a convolution with respect to its source, whose weights it has.
#![allow(unsafe_code)] // calls the framework

use elinvar_driver::primitive::{DataType, Layout, VolumeConvolution, VolumeWindow};
use elinvar_driver::{Error, Result};
use objc2::rc::Retained;
use objc2_metal_performance_shaders_graph::{
    MPSGraphConvolution2DOpDescriptor, MPSGraphConvolution3DOpDescriptor, MPSGraphPaddingStyle,
    MPSGraphTensorNamedDataLayout,
};

use super::build::{Builder, Value, numbers};

/// Axes in the order of memory, of channels and points.
fn axes(count: u32, channels: u32, points: &[u32], layout: Layout) -> Vec<usize> {
    let (count, channels) = ([count as usize], [channels as usize]);
    let points: Vec<usize> = points.iter().map(|points| *points as usize).collect();
    match layout {
        Layout::ChannelsFirst => [&count[..], &channels, &points].concat(),
        Layout::ChannelsLast => [&count[..], &points, &channels].concat(),
    }
}

pub(super) fn build(builder: &mut Builder, p: &VolumeConvolution) -> Result<()> {
    let first = usize::from(p.is_flat());
    let data_type = p.data_type;
    // A convolution of 16 bits would be rounded before the bias is added; `bf16` is left to few operations.
    let computed = if p.bias || data_type == DataType::BF16 { DataType::F32 } else { data_type };
    let source = axes(p.source.count, p.source.channels, &p.source.size[first..], p.layout);
    let result = axes(p.result.count, p.result.channels, &p.result.size[first..], p.layout);
    let [read, made] = p.forward();
    let weights = axes(made.channels, read.channels / p.groups, &p.window.size[first..], p.layout);
    let (x, w) = (builder.operand(0, &source, data_type), builder.operand(1, &weights, data_type));
    let (x, mut w) = (builder.cast(x, data_type, computed), builder.cast(w, data_type, computed));
    if p.layout == Layout::ChannelsLast {
        // Output channels, points, input channels: to output channels, input channels, points.
        let last = weights.len() - 1;
        w = (1..last).rev().fold(w, |w, axis| builder.exchange(&w, axis, axis + 1));
    }
    let value = match p.is_flat() {
        true => images(builder, p, [&x, &w], &result)?,
        false => volumes(builder, p, [&x, &w], &result)?,
    };
    let mut last = 2;
    let value = if p.bias {
        last = 3;
        let channels = p.result.channels as usize;
        let bias = builder.wide(2, &[channels], data_type);
        let ones = vec![1; result.len() - 2];
        let shape = match p.layout {
            Layout::ChannelsFirst => [&[1, channels][..], &ones].concat(),
            Layout::ChannelsLast => vec![channels],
        };
        builder.add(&value, &builder.reshape(&bias, &shape))
    } else {
        value
    };
    let value = builder.cast(value, computed, data_type);
    builder.result(last, value, &result, data_type);
    Ok(())
}

fn refused() -> Error {
    Error::Environment("MPSGraph has made no descriptor of a convolution".into())
}

fn images(builder: &Builder, p: &VolumeConvolution, [x, w]: [&Value; 2], result: &[usize]) -> Result<Value> {
    let VolumeWindow { stride, dilation, padding, .. } = p.window;
    let [_, down, across] = stride.map(|stride| stride as usize);
    let [_, dilation_down, dilation_across] = dilation.map(|dilation| dilation as usize);
    let [_, vertical, horizontal] = padding.map(|padding| padding as usize);
    let layout = match p.layout {
        Layout::ChannelsFirst => MPSGraphTensorNamedDataLayout::NCHW,
        Layout::ChannelsLast => MPSGraphTensorNamedDataLayout::NHWC,
    };
    // SAFETY: plain numbers, and values of this graph.
    unsafe {
        let of: Option<Retained<_>> = MPSGraphConvolution2DOpDescriptor::descriptorWithStrideInX_strideInY_dilationRateInX_dilationRateInY_groups_paddingLeft_paddingRight_paddingTop_paddingBottom_paddingStyle_dataLayout_weightsLayout(
            across,
            down,
            dilation_across,
            dilation_down,
            p.groups as usize,
            horizontal,
            horizontal,
            vertical,
            vertical,
            MPSGraphPaddingStyle::Explicit,
            layout,
            MPSGraphTensorNamedDataLayout::OIHW,
        );
        let of = of.ok_or_else(refused)?;
        Ok(match p.transposed {
            false => {
                builder.graph.convolution2DWithSourceTensor_weightsTensor_descriptor_name(x, w, &of, None)
            }
            true => builder
                .graph
                .convolution2DDataGradientWithIncomingGradientTensor_weightsTensor_outputShape_forwardConvolutionDescriptor_name(
                    x,
                    w,
                    &numbers(result),
                    &of,
                    None,
                ),
        })
    }
}

fn volumes(builder: &Builder, p: &VolumeConvolution, [x, w]: [&Value; 2], result: &[usize]) -> Result<Value> {
    let VolumeWindow { stride, dilation, padding, .. } = p.window;
    let [inward, down, across] = stride.map(|stride| stride as usize);
    let [dilation_inward, dilation_down, dilation_across] = dilation.map(|dilation| dilation as usize);
    let [depth, vertical, horizontal] = padding.map(|padding| padding as usize);
    let layout = match p.layout {
        Layout::ChannelsFirst => MPSGraphTensorNamedDataLayout::NCDHW,
        Layout::ChannelsLast => MPSGraphTensorNamedDataLayout::NDHWC,
    };
    // SAFETY: plain numbers, and values of this graph.
    unsafe {
        let of: Option<Retained<_>> = MPSGraphConvolution3DOpDescriptor::descriptorWithStrideInX_strideInY_strideInZ_dilationRateInX_dilationRateInY_dilationRateInZ_groups_paddingLeft_paddingRight_paddingTop_paddingBottom_paddingFront_paddingBack_paddingStyle_dataLayout_weightsLayout(
            across,
            down,
            inward,
            dilation_across,
            dilation_down,
            dilation_inward,
            p.groups as usize,
            horizontal,
            horizontal,
            vertical,
            vertical,
            depth,
            depth,
            MPSGraphPaddingStyle::Explicit,
            layout,
            MPSGraphTensorNamedDataLayout::OIDHW,
        );
        let of = of.ok_or_else(refused)?;
        Ok(match p.transposed {
            false => {
                builder.graph.convolution3DWithSourceTensor_weightsTensor_descriptor_name(x, w, &of, None)
            }
            true => builder
                .graph
                .convolution3DDataGradientWithIncomingGradientTensor_weightsTensor_outputShape_forwardConvolutionDescriptor_name(
                    x,
                    w,
                    &numbers(result),
                    &of,
                    None,
                ),
        })
    }
}
