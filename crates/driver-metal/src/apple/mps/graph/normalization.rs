//! Normalization, by MPSGraph's mean, variance and normalization, in `f32`.
#![allow(unsafe_code)] // calls the framework

use elinvar_driver::primitive::{BatchNorm, BatchStatistics, DataType, Layout, Normalization};
use elinvar_driver::{Error, Result};

use super::build::{Builder, Value, numbers};

/// Mean and variance over axes, whose sizes become 1.
fn statistics(builder: &Builder, x: &Value, axes: &[usize]) -> [Value; 2] {
    // SAFETY: the value is of this graph, and has these axes.
    unsafe {
        let mean = builder.graph.meanOfTensor_axes_name(x, &numbers(axes), None);
        let variance = builder.graph.varianceOfTensor_meanTensor_axes_name(x, &mean, &numbers(axes), None);
        [mean, variance]
    }
}

/// `1 / √(variance + ε)`.
fn inverse_deviation(builder: &Builder, variance: &Value, epsilon: f32) -> Value {
    let sum = builder.add(variance, &builder.number(epsilon.into()));
    // SAFETY: the values are of this graph.
    unsafe {
        let root = builder.graph.squareRootWithTensor_name(&sum, None);
        builder.graph.reciprocalWithTensor_name(&root, None)
    }
}

/// The axes of the source are volumes, channels and points, or volumes and points, and channels.
pub(super) fn batch(builder: &mut Builder, p: &BatchNorm) -> Result<()> {
    let channels = p.source.channels as usize;
    let points = p.source.size.iter().map(|points| *points as usize).product::<usize>();
    let count = p.source.count as usize;
    let (shape, axes, vector) = match p.layout {
        Layout::ChannelsFirst => (vec![count, channels, points], vec![0, 2], vec![1, channels, 1]),
        Layout::ChannelsLast => (vec![count * points, channels], vec![0], vec![1, channels]),
    };
    let x = builder.wide(0, &shape, p.data_type);
    let parameter = |builder: &mut Builder, index| builder.operand(index, &vector, DataType::F32);
    let (scale, bias) = (parameter(builder, 1), parameter(builder, 2));
    let [mean, variance] = match p.statistics {
        BatchStatistics::Given => [3, 4].map(|index| parameter(builder, index)),
        BatchStatistics::Saved | BatchStatistics::Running { .. } => statistics(builder, &x, &axes),
        _ => return Err(Error::unsupported(format!("statistics {:?} by MPSGraph", p.statistics))),
    };
    // SAFETY: the values are of this graph.
    let value = unsafe {
        builder.graph.normalizationWithTensor_meanTensor_varianceTensor_gammaTensor_betaTensor_epsilon_name(
            &x,
            &mean,
            &variance,
            Some(&scale),
            Some(&bias),
            p.epsilon,
            None,
        )
    };
    let mut last = 5;
    if let BatchStatistics::Running { momentum } = p.statistics {
        last = 7;
        let elements = (count * points) as f64;
        let unbiased = builder.multiply(&variance, &builder.number(elements / (elements - 1.0)));
        for (index, new) in [(5, &mean), (6, &unbiased)] {
            let previous = parameter(builder, index);
            let kept = builder.multiply(&previous, &builder.number(1.0 - f64::from(momentum)));
            let added = builder.multiply(new, &builder.number(momentum.into()));
            let value = builder.add(&kept, &added);
            builder.result(index, value, &vector, DataType::F32);
        }
    }
    if p.statistics != BatchStatistics::Given {
        let deviation = inverse_deviation(builder, &variance, p.epsilon);
        builder.result(3, mean, &vector, DataType::F32);
        builder.result(4, deviation, &vector, DataType::F32);
    }
    let value = builder.cast(value, DataType::F32, p.data_type);
    builder.result(last, value, &shape, p.data_type);
    Ok(())
}

/// Layer, group and RMS normalization: over the last two of four axes.
pub(super) fn rows(builder: &mut Builder, p: &Normalization) {
    let shape = p.shape.map(|size| size as usize);
    let [rows, groups, channels, _] = shape;
    let x = builder.wide(0, &shape, p.data_type);
    let mut index = 0;
    let mut parameter = |builder: &mut Builder, has: bool| {
        has.then(|| {
            index += 1;
            builder.wide(index, &[1, groups, channels, 1], p.parameter_type)
        })
    };
    let (scale, bias) = (parameter(builder, p.scale), parameter(builder, p.bias));
    let mut next = index + 1;
    let kept = [rows, groups, 1, 1];
    let (value, saved) = if p.center {
        let [mean, variance] = statistics(builder, &x, &[2, 3]);
        // SAFETY: the values are of this graph.
        let value = unsafe {
            builder
                .graph
                .normalizationWithTensor_meanTensor_varianceTensor_gammaTensor_betaTensor_epsilon_name(
                    &x,
                    &mean,
                    &variance,
                    scale.as_deref(),
                    bias.as_deref(),
                    p.epsilon,
                    None,
                )
        };
        let deviation = p.saved.then(|| inverse_deviation(builder, &variance, p.epsilon));
        (value, [p.saved.then_some(mean), deviation])
    } else {
        let squares = builder.multiply(&x, &x);
        // SAFETY: the value is of this graph, and has these axes.
        let mean = unsafe { builder.graph.meanOfTensor_axes_name(&squares, &numbers(&[2, 3]), None) };
        let deviation = inverse_deviation(builder, &mean, p.epsilon);
        let mut value = builder.multiply(&x, &deviation);
        if let Some(scale) = &scale {
            value = builder.multiply(&value, scale);
        }
        if let Some(bias) = &bias {
            value = builder.add(&value, bias);
        }
        (value, [None, p.saved.then_some(deviation)])
    };
    for value in saved.into_iter().flatten() {
        builder.result(next, value, &kept, DataType::F32);
        next += 1;
    }
    let value = builder.cast(value, DataType::F32, p.data_type);
    builder.result(next, value, &shape, p.data_type);
}
