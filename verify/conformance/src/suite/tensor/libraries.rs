//! The vendor's route: operations by the device's library, as the chapter `primitives` knows them, from views. What a library has not is
//! left out; a case is unsupported if it has nothing of it.

use elinvar::tensor::{
    Activation, Attention, Convolution, DataType, Mask, MatMul, Normalize, Operation, Plan, Pooling,
    PoolingKind, Route, Softmax, Statistics, TensorMut, TensorRef, Window,
};
use elinvar::{Device, DeviceKind, Error};

use super::attention::exact;
use super::normalization::Rows;
use super::reductions::softmax_of;
use super::windows::terms;
use super::{CaseResult, Layout, Near, Random, Stored, UNIT, broadcast, indices};

cases! {
    "tensor": products_by_the_library, batches_by_the_library, integers_by_the_library, windows_by_the_library,
    volumes_by_the_library, transposed_convolutions_by_the_library, batch_normalization_by_the_library, softmax_by_the_library,
    normalization_by_the_library, attention_by_the_library
}

/// How many operations the library has computed, or why it has none of them.
#[derive(Default)]
struct Tally {
    computed: usize,
    refused: Option<Error>,
}

impl Tally {
    /// Computes an operation by the library; whether the library has it.
    fn compute(
        &mut self,
        operation: impl Into<Operation>,
        inputs: &[&Stored],
        out: &mut Stored,
    ) -> elinvar::Result<bool> {
        self.compute_all(operation, inputs, &mut [out])
    }

    fn compute_all(
        &mut self,
        operation: impl Into<Operation>,
        inputs: &[&Stored],
        outputs: &mut [&mut Stored],
    ) -> elinvar::Result<bool> {
        let operation = operation.into();
        let inputs = inputs.iter().map(|input| input.view()).collect::<elinvar::Result<Vec<_>>>()?;
        let inputs: Vec<&TensorRef<'_>> = inputs.iter().collect();
        let outputs = outputs.iter_mut().map(|output| output.view_mut());
        let mut outputs = outputs.collect::<elinvar::Result<Vec<_>>>()?;
        let mut outputs: Vec<&mut TensorMut<'_>> = outputs.iter_mut().collect();
        let plan = match Plan::new(operation.clone(), &inputs, &mut outputs, Route::Vendor) {
            Ok(plan) => plan,
            Err(refused @ Error::Unsupported(_)) => {
                self.refused = Some(refused);
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        assert_eq!((plan.route(), plan.steps()), (Route::Vendor, 1));
        // MPSGraph compiles for each shape, which is not worth it for a small operation. On NVIDIA GPUs a launch costs less than a call of the library
        // for products whose sums have few terms. Kernels are compiled, too: a few of MPSGraph's show it.
        let by_graph = plan.algorithm().starts_with("MPSGraph ");
        let is_product = matches!(operation, Operation::MatMul(_)) && inputs[0].data_type().is_float();
        let is_short = inputs[0].shape().last().is_some_and(|terms| *terms <= 128);
        let by_launch = (plan.device().kind() == DeviceKind::Cuda && is_product && is_short)
            && Plan::new(operation.clone(), &inputs, &mut outputs, Route::Kernel).is_ok();
        if !by_graph || self.computed < 3 {
            let auto = Plan::new(operation, &inputs, &mut outputs, Route::Auto)?.route();
            assert_eq!(auto, if by_graph || by_launch { Route::Kernel } else { Route::Vendor });
        }
        plan.device().stream()?.tensor_plan(&plan)?.wait()?;
        self.computed += 1;
        Ok(true)
    }

    /// As [`Tally::end`]; a library that computes some of them on an Apple device computes all that its system has.
    fn end_of_all(self, device: &Device) -> CaseResult {
        if let Some(refused) = self.refused.as_ref().filter(|_| self.computed > 0) {
            let text = refused.to_string();
            let is_old = ["from macOS", "before macOS"].iter().any(|system| text.contains(system));
            assert!(device.kind() != DeviceKind::Metal || is_old, "{text}");
        }
        self.end()
    }

    fn end(self) -> CaseResult {
        match self.refused {
            Some(refused) if self.computed == 0 => Err(refused.into()),
            _ => Ok(()),
        }
    }
}

/// An element of a product: the sum of its terms.
fn sum((left, x): (&[usize], &[f64]), (right, y): (&[usize], &[f64]), index: &[usize]) -> Near {
    let (batch, last) = index.split_at(index.len() - 2);
    let of = |shape: &[usize], values: &[f64], place: [usize; 2]| {
        let index: Vec<usize> = batch.iter().copied().chain(place).collect();
        values[broadcast(&index, shape)]
    };
    let terms = left[left.len() - 1];
    Near::sum((0..terms).map(|k| of(left, x, [last[0], k]) * of(right, y, [k, last[1]])))
}

/// Each type, each order of the factors, factors of the sums, a bias and activations.
fn products_by_the_library(device: &Device) -> CaseResult {
    let (mut random, mut tally) = (Random::new(71), Tally::default());
    for (data_type, activation) in DataType::FLOATS.into_iter().flat_map(|data_type| {
        [Activation::None, Activation::Relu, Activation::GeluTanh].map(|activation| (data_type, activation))
    }) {
        for (number, [m, k, n]) in
            [[1, 8, 16], [17, 33, 9], [64, 40, 72], [130, 256, 8], [3, 1, 5]].into_iter().enumerate()
        {
            let layout = |turned: bool| if turned { Layout::transposed(2) } else { Layout::row_major() };
            let (left, right) = (layout(number % 2 == 1), layout(number % 3 == 1));
            let (a, x) = Stored::random(device, data_type, &[m, k], left, &mut random)?;
            let (b, y) = Stored::random(device, data_type, &[k, n], right, &mut random)?;
            let (bias, z) = Stored::random(device, data_type, &[n], Layout::row_major(), &mut random)?;
            let before = random.values(m * n, data_type);
            for (has_bias, beta) in [(false, 0.0), (true, 0.0), (false, -0.5)] {
                let mut out = Stored::new(device, data_type, &[m, n], Layout::row_major(), &before)?;
                let operation = MatMul { alpha: 0.25, beta, bias: has_bias, activation };
                let inputs = if has_bias { vec![&a, &b, &bias] } else { vec![&a, &b] };
                if !tally.compute(operation, &inputs, &mut out)? {
                    continue;
                }
                let index: Vec<Vec<usize>> = indices(&[m, n]).collect();
                let what = format!("{data_type} {operation:?} of {m} × {k} × {n}");
                out.expect(&what, |at| {
                    let sum = sum((&[m, k], &x), (&[k, n], &y), &index[at]);
                    let added = f64::from(beta) * before[at] + if has_bias { z[at % n] } else { 0.0 };
                    let value = 0.25 * sum.value + added;
                    let error = 0.25 * sum.error + 8.0 * UNIT * (value.abs() + 8.0);
                    match activation {
                        Activation::Relu => Near { value: value.max(0.0), error },
                        Activation::GeluTanh => {
                            let inner =
                                (2.0 / std::f64::consts::PI).sqrt() * (value + 0.044_715 * value.powi(3));
                            // GPUs have a hyperbolic tangent with a relative error of up to 2⁻¹¹ (PTX ISA, `tanh.approx.f32`).
                            let error = 1.2 * error + value.abs() / (1 << 11) as f64;
                            Near { value: 0.5 * value * (1.0 + inner.tanh()), error }
                        }
                        _ => Near { value, error },
                    }
                })?;
            }
        }
    }
    tally.end_of_all(device)
}

/// Batches, with a factor that all products have in common, and vectors.
fn batches_by_the_library(device: &Device) -> CaseResult {
    let (mut random, mut tally) = (Random::new(72), Tally::default());
    for data_type in DataType::FLOATS {
        for (left, right, result) in [
            (vec![3, 5, 8], vec![3, 8, 16], vec![3, 5, 16]),
            (vec![3, 5, 8], vec![8, 16], vec![3, 5, 16]),
            (vec![5, 8], vec![4, 8, 3], vec![4, 5, 3]),
            (vec![1, 5, 8], vec![4, 8, 3], vec![4, 5, 3]),
            (vec![2, 1, 7], vec![2, 7, 1], vec![2, 1, 1]),
        ] {
            for turned in [false, true] {
                let layout = |shape: &[usize]| {
                    let mut order: Vec<usize> = (0..shape.len()).collect();
                    if turned {
                        order.swap(shape.len() - 2, shape.len() - 1);
                    }
                    Layout { order, ..Layout::default() }
                };
                let (a, x) = Stored::random(device, data_type, &left, layout(&left), &mut random)?;
                let (b, y) = Stored::random(device, data_type, &right, layout(&right), &mut random)?;
                let mut out = Stored::new(device, data_type, &result, Layout::row_major(), &[])?;
                if tally.compute(MatMul::default(), &[&a, &b], &mut out)? {
                    let index: Vec<Vec<usize>> = indices(&result).collect();
                    let what = format!("{data_type} {left:?} · {right:?}, turned: {turned}");
                    out.expect(&what, |at| sum((&left, &x), (&right, &y), &index[at]))?;
                }
            }
        }
        for turned in [false, true] {
            let layout = if turned { Layout::transposed(2) } else { Layout::row_major() };
            let (a, x) = Stored::random(device, data_type, &[35, 67], layout, &mut random)?;
            let (b, y) = Stored::random(device, data_type, &[67], Layout::row_major(), &mut random)?;
            let mut out = Stored::new(device, data_type, &[35], Layout::row_major(), &[])?;
            if tally.compute(MatMul::default(), &[&a, &b], &mut out)? {
                out.expect("a vector", |at| sum((&[35, 67], &x), (&[67, 1], &y), &[at, 0]))?;
            }
        }
    }
    tally.end_of_all(device)
}

fn integers_by_the_library(device: &Device) -> CaseResult {
    let (mut random, mut tally) = (Random::new(73), Tally::default());
    for [m, k, n] in [[1, 4, 4], [33, 64, 20], [17, 129, 9]] {
        let (a, x) = Stored::random(device, DataType::I8, &[m, k], Layout::row_major(), &mut random)?;
        let (b, y) = Stored::random(device, DataType::I8, &[k, n], Layout::transposed(2), &mut random)?;
        let before = random.values(m * n, DataType::I32);
        let mut out = Stored::new(device, DataType::I32, &[m, n], Layout::row_major(), &before)?;
        if tally.compute(MatMul { beta: 1.0, ..MatMul::default() }, &[&a, &b], &mut out)? {
            let index: Vec<Vec<usize>> = indices(&[m, n]).collect();
            out.expect("integers", |at| {
                Near::exact(sum((&[m, k], &x), (&[k, n], &y), &index[at]).value + before[at])
            })?;
        }
    }
    tally.end()
}

/// Convolutions and pooling in both layouts, with groups, and with one spatial axis.
fn windows_by_the_library(device: &Device) -> CaseResult {
    let (mut random, mut tally) = (Random::new(74), Tally::default());
    let windows = [
        Window::default(),
        Window::stride(2).padded(1),
        Window { stride: vec![1, 2], padding: vec![(1, 1), (0, 0)], dilation: vec![2, 1] },
    ];
    for (window, data_type) in windows.iter().flat_map(|window| DataType::FLOATS.map(|ty| (window, ty))) {
        let pads = window.padding.iter().any(|pad| *pad != (0, 0));
        let shapes = [
            (1, false, false, [3, 2]),
            (1, true, true, [3, 2]),
            (2, true, false, [3, 2]),
            (6, false, false, [3, 2]),
            (1, true, false, [1, 1]),
            (1, true, true, [1, 1]),
        ];
        // The padding has to be less than the window.
        for (groups, bias, last, [height, width]) in
            shapes.into_iter().filter(|(.., size)| !pads || *size != [1, 1])
        {
            let (x, weights) = ([2, 6, 9, 8], [12, 6 / groups, height, width]);
            let size = |axis: usize| {
                let at = |list: &[usize]| list[if list.len() == 1 { 0 } else { axis }];
                let (low, high) = window.padding[if window.padding.len() == 1 { 0 } else { axis }];
                (x[axis + 2] + low + high - (weights[axis + 2] - 1) * at(&window.dilation) - 1)
                    / at(&window.stride)
                    + 1
            };
            let result = [2, 12, size(0), size(1)];
            let layout = || {
                if last {
                    Layout { order: vec![0, 2, 3, 1], ..Layout::default() }
                } else {
                    Layout::row_major()
                }
            };
            let (source, xs) = Stored::random(device, data_type, &x, layout(), &mut random)?;
            let (filters, ws) = Stored::random(device, data_type, &weights, layout(), &mut random)?;
            let (added, bs) = Stored::random(device, data_type, &[12], Layout::row_major(), &mut random)?;
            let mut out = Stored::new(device, data_type, &result, layout(), &[])?;
            let of = Convolution { window: window.clone(), groups, bias, ..Convolution::default() };
            let inputs = if bias { vec![&source, &filters, &added] } else { vec![&source, &filters] };
            if tally.compute(of.clone(), &inputs, &mut out)? {
                let sums = terms(&of, (&x, &xs), (&weights, &ws), &result);
                let space = result[2] * result[3];
                out.expect(&format!("{data_type} {of:?}, channels last: {last}"), |at| {
                    let near = Near::sum(sums[at].iter().copied());
                    let value = near.value + if bias { bs[at / space % 12] } else { 0.0 };
                    Near { value, error: near.error + 2.0 * UNIT * value.abs() }
                })?;
            }
        }
    }
    let kinds = [PoolingKind::Max, PoolingKind::Average, PoolingKind::AverageWithPadding];
    for (kind, data_type) in kinds.into_iter().flat_map(|kind| DataType::FLOATS.map(|ty| (kind, ty))) {
        let (source, xs) = Stored::random(device, data_type, &[2, 3, 11], Layout::row_major(), &mut random)?;
        let mut out = Stored::new(device, data_type, &[2, 3, 5], Layout::row_major(), &[])?;
        let of = Pooling::new(kind, &[3], Window::stride(2));
        if tally.compute(of, &[&source], &mut out)? {
            out.expect(&format!("{kind:?} of {data_type}"), |at| {
                let (line, first) = (at / 5 * 11, at % 5 * 2);
                let all = &xs[line + first..line + first + 3];
                match kind {
                    PoolingKind::Max => Near::exact(all.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
                    _ => Near { value: all.iter().sum::<f64>() / 3.0, error: 16.0 * UNIT },
                }
            })?;
        }
    }
    tally.end()
}

/// A convolution by the library, in both layouts of its images.
fn convolve_by_the_library(
    device: &Device,
    (of, x, weights, result): (&Convolution, &[usize], &[usize], &[usize]),
    random: &mut Random,
    tally: &mut Tally,
) -> CaseResult {
    for (data_type, last) in DataType::FLOATS.into_iter().flat_map(|ty| [(ty, false), (ty, true)]) {
        let order: Vec<usize> = [0].into_iter().chain(2..x.len()).chain([1]).collect();
        let layout = || Layout { order: if last { order.clone() } else { Vec::new() }, ..Layout::default() };
        let (source, xs) = Stored::random(device, data_type, x, layout(), random)?;
        let (filters, ws) = Stored::random(device, data_type, weights, layout(), random)?;
        let (added, bs) = Stored::random(device, data_type, &[result[1]], Layout::row_major(), random)?;
        let mut out = Stored::new(device, data_type, result, layout(), &[])?;
        let inputs = if of.bias { vec![&source, &filters, &added] } else { vec![&source, &filters] };
        if tally.compute(of.clone(), &inputs, &mut out)? {
            let sums = terms(of, (x, &xs), (weights, &ws), result);
            let space: usize = result[2..].iter().product();
            out.expect(&format!("{data_type} {of:?} of {x:?}, channels last: {last}"), |at| {
                let near = Near::sum(sums[at].iter().copied());
                let value = near.value + if of.bias { bs[at / space % result[1]] } else { 0.0 };
                Near { value, error: near.error + 2.0 * UNIT * value.abs() }
            })?;
        }
    }
    Ok(())
}

/// Three spatial axes, with strides, dilations, groups and a bias.
fn volumes_by_the_library(device: &Device) -> CaseResult {
    let (mut random, mut tally) = (Random::new(75), Tally::default());
    let plain = Convolution { bias: true, ..Convolution::default() };
    let window =
        Window { stride: vec![1, 2, 2], padding: vec![(1, 1), (0, 0), (2, 2)], dilation: vec![1, 1, 2] };
    let grouped = Convolution { window: window.clone(), groups: 2, ..Convolution::default() };
    let strided = Convolution { window, ..Convolution::default() };
    for (of, x, weights, result) in [
        (&plain, [2, 3, 4, 5, 6], [8, 3, 2, 3, 3], [2, 8, 3, 3, 4]),
        (&strided, [1, 4, 5, 7, 9], [5, 4, 3, 3, 2], [1, 5, 5, 3, 6]),
        (&grouped, [1, 4, 5, 7, 9], [6, 2, 3, 3, 2], [1, 6, 5, 3, 6]),
        (&plain, [1, 16, 3, 3, 3], [16, 16, 1, 1, 1], [1, 16, 3, 3, 3]),
    ] {
        convolve_by_the_library(device, (of, &x, &weights, &result), &mut random, &mut tally)?;
    }
    tally.end_of_all(device)
}

/// Of one, two and three spatial axes; where several sizes of the result have as many positions, all of them.
fn transposed_convolutions_by_the_library(device: &Device) -> CaseResult {
    let (mut random, mut tally) = (Random::new(76), Tally::default());
    let plain = Convolution { transposed: true, bias: true, ..Convolution::default() };
    let window = Window { stride: vec![2, 3], padding: vec![(1, 1), (0, 2)], dilation: vec![1, 2] };
    let strided = Convolution { window, transposed: true, groups: 2, ..Convolution::default() };
    let doubled =
        Convolution { window: Window::stride(2).padded(1), transposed: true, ..Convolution::default() };
    for (of, x, weights, result) in [
        (&plain, vec![2, 3, 4, 5], vec![3, 4, 3, 3], vec![2, 4, 6, 7]),
        (&strided, vec![1, 4, 4, 5], vec![4, 3, 3, 2], vec![1, 6, 7, 13]),
        (&strided, vec![1, 4, 4, 5], vec![4, 3, 3, 2], vec![1, 6, 8, 13]),
        (&doubled, vec![2, 16, 9], vec![16, 8, 4], vec![2, 8, 18]),
        (&doubled, vec![1, 6, 3, 4, 5], vec![6, 5, 3, 3, 3], vec![1, 5, 5, 7, 9]),
        (&plain, vec![1, 2, 3, 4, 5], vec![2, 3, 2, 1, 3], vec![1, 3, 4, 4, 7]),
    ] {
        convolve_by_the_library(device, (of, &x, &weights, &result), &mut random, &mut tally)?;
    }
    tally.end()
}

/// Training, with and without running statistics, and inference. Also with a mean that is large, where differences of squares are lost.
fn batch_normalization_by_the_library(device: &Device) -> CaseResult {
    let (mut random, mut tally) = (Random::new(77), Tally::default());
    let last = Layout { order: vec![0, 2, 3, 1], ..Layout::default() };
    let layouts = [Layout::row_major(), last];
    let all =
        DataType::FLOATS.into_iter().flat_map(|ty| layouts.iter().map(move |layout| (ty, layout.clone())));
    for ((data_type, layout), statistics) in all.flat_map(|all| {
        [Statistics::Saved, Statistics::Running { momentum: 0.25 }, Statistics::Given]
            .map(|of| (all.clone(), of))
    }) {
        let shape = [3, 5, 7, 11];
        let (x, values) = Stored::random(device, data_type, &shape, layout.clone(), &mut random)?;
        let vector = |random: &mut Random| {
            Stored::random(device, DataType::F32, &[1, 5, 1, 1], Layout::row_major(), random)
        };
        let ((scale, a), (bias, b)) = (vector(&mut random)?, vector(&mut random)?);
        let ((mut mean, means), (mut deviation, _)) = (vector(&mut random)?, vector(&mut random)?);
        let variances: Vec<f64> = means.iter().map(|mean| mean.abs() + 0.5).collect();
        let variance = Stored::new(device, DataType::F32, &[1, 5, 1, 1], Layout::row_major(), &variances)?;
        let mut running = [vector(&mut random)?, vector(&mut random)?];
        let mut out = Stored::new(device, data_type, &shape, layout, &[])?;
        let of = Normalize::batch(1, 4).statistics(statistics);
        let [(running_mean, _), (running_variance, _)] = &mut running;
        let computed = match statistics {
            Statistics::Given => {
                tally.compute(of.clone(), &[&x, &scale, &bias, &mean, &variance], &mut out)?
            }
            Statistics::Running { .. } => {
                let outputs = &mut [&mut out, &mut mean, &mut deviation, running_mean, running_variance];
                tally.compute_all(of.clone(), &[&x, &scale, &bias], outputs)?
            }
            _ => tally.compute_all(
                of.clone(),
                &[&x, &scale, &bias],
                &mut [&mut out, &mut mean, &mut deviation],
            )?,
        };
        if !computed {
            continue;
        }
        let (rows, index) = (Rows::new(&values, &shape, &of), indices(&shape).collect::<Vec<_>>());
        let is_given = statistics == Statistics::Given;
        out.expect(&format!("{data_type} {of:?}"), |at| {
            let channel = index[at][1];
            let (mean, deviation, _) = match is_given {
                true => (means[channel], 1.0 / (variances[channel] + f64::from(of.epsilon)).sqrt(), 0.0),
                false => rows.of(&index[at]),
            };
            let centered = values[at] - mean;
            let value = centered * deviation * a[channel] + b[channel];
            let error = (rows.mean_error() * deviation + centered.abs() * rows.deviation_error(deviation))
                * a[channel].abs();
            Near { value, error: error + 8.0 * UNIT * (value.abs() + b[channel].abs()) }
        })?;
        if is_given {
            continue;
        }
        mean.expect("mean", |at| Near { value: rows.statistics[at].0, error: rows.mean_error() })?;
        deviation.expect("deviation", |at| {
            let value = rows.statistics[at].1;
            Near { value, error: rows.deviation_error(value) }
        })?;
        if let Statistics::Running { .. } = statistics {
            let [(running_mean, before_mean), (running_variance, before_variance)] = &running;
            running_mean.expect("running mean", |at| {
                let value = 0.75 * before_mean[at] + 0.25 * rows.statistics[at].0;
                Near { value, error: 0.25 * rows.mean_error() + 4.0 * UNIT * 2.0 }
            })?;
            running_variance.expect("running variance", |at| {
                let (_, _, unbiased) = rows.statistics[at];
                let value = 0.75 * before_variance[at] + 0.25 * unbiased;
                Near { value, error: (rows.length + 16.0) * UNIT * unbiased + 4.0 * UNIT * 2.0 }
            })?;
        }
    }
    // A mean of 4096 and deviations of a quarter: E[x²] - E[x]² would lose all digits.
    let values: Vec<f64> = (0..4096).map(|at| 4096.0 + f64::from(at % 3 - 1) / 4.0).collect();
    let vector = |value: f64| Stored::new(device, DataType::F32, &[1], Layout::row_major(), &[value]);
    let (scale, bias) = (vector(1.0)?, vector(0.0)?);
    let statistic = || Stored::new(device, DataType::F32, &[1, 1], Layout::row_major(), &[]);
    let (mut mean, mut deviation) = (statistic()?, statistic()?);
    let x = Stored::new(device, DataType::F32, &[4096, 1], Layout::row_major(), &values)?;
    let mut out = Stored::new(device, DataType::F32, &[4096, 1], Layout::row_major(), &[])?;
    let of = Normalize::batch(1, 2).statistics(Statistics::Saved);
    if tally.compute_all(of.clone(), &[&x, &scale, &bias], &mut [&mut out, &mut mean, &mut deviation])? {
        let (of_all, wide, _) = Rows::new(&values, &[4096, 1], &of).statistics[0];
        // The mean is rounded to 2^-12, which is 1/830 of the deviation.
        out.expect("a large mean", |at| Near { value: (values[at] - of_all) * wide, error: 5e-3 })?;
    }
    tally.end_of_all(device)
}

/// Rows with and without padding between them, of every type.
fn softmax_by_the_library(device: &Device) -> CaseResult {
    let (mut random, mut tally) = (Random::new(78), Tally::default());
    for data_type in DataType::FLOATS {
        for (shape, gap) in [([1, 1], 0), ([5, 67], 0), ([33, 128], 3), ([3, 1500], 1), ([2, 9000], 0)] {
            let layout = || Layout { margins: vec![(0, 0), (0, gap)], ..Layout::default() };
            let (x, values) = Stored::random(device, data_type, &shape, layout(), &mut random)?;
            for logarithm in [false, true] {
                let operation = Softmax { axis: 1, logarithm };
                let mut out = Stored::new(device, data_type, &shape, layout(), &[])?;
                if tally.compute(operation, &[&x], &mut out)? {
                    let expected = softmax_of(operation, &values, &shape);
                    out.expect(&format!("{data_type} {operation:?} of {shape:?}"), |at| expected[at])?;
                }
            }
        }
    }
    let values =
        [[3e38, 3e38, -3e38], [f64::NEG_INFINITY, 0.0, 0.0], [f64::NEG_INFINITY; 3], [f64::NAN, 0.0, 0.0]];
    let x = Stored::new(device, DataType::F32, &[4, 3], Layout::row_major(), values.as_flattened())?;
    let mut out = Stored::new(device, DataType::F32, &[4, 3], Layout::row_major(), &[])?;
    if tally.compute(Softmax::new(1), &[&x], &mut out)? {
        let (half, none) = (Near { value: 0.5, error: 8.0 * UNIT }, Near::exact(f64::NAN));
        let zero = Near::exact(0.0);
        let expected = [[half, half, zero], [zero, half, half], [none; 3], [none; 3]];
        out.expect("extremes", |at| expected.as_flattened()[at])?;
    }
    tally.end()
}

/// Layer, group, instance and RMS normalization, with and without parameters and saved statistics, at sizes that are no multiples of anything.
fn normalization_by_the_library(device: &Device) -> CaseResult {
    let (mut random, mut tally) = (Random::new(79), Tally::default());
    let plain = |of: Normalize| Normalize { scale: false, bias: false, ..of };
    let cases: [(Normalize, &[usize], &[usize]); 8] = [
        (Normalize::layer(&[2]), &[3, 5, 67], &[67]),
        (Normalize::layer(&[1, 2]), &[2, 41, 37], &[41, 37]),
        (plain(Normalize::layer(&[1])), &[1, 1009], &[]),
        (Normalize::group(5), &[2, 2, 3, 5, 7], &[2, 3, 1, 1]),
        (Normalize::layer(&[2, 3]), &[3, 5, 7, 3], &[5, 1, 1]),
        (Normalize::rms(&[1]), &[9, 130], &[130]),
        (Normalize { bias: true, ..Normalize::rms(&[2]) }, &[2, 3, 33], &[3, 33]),
        (Normalize { epsilon: 0.25, ..Normalize::layer(&[0, 1]) }, &[7, 11], &[1]),
    ];
    for ((of, shape, part), data_type) in cases.iter().flat_map(|case| DataType::FLOATS.map(|ty| (case, ty)))
    {
        for statistics in [Statistics::Computed, Statistics::Saved] {
            let of = of.clone().statistics(statistics);
            let (x, values) = Stored::random(device, data_type, shape, Layout::row_major(), &mut random)?;
            let mut parameter = || Stored::random(device, data_type, part, Layout::row_major(), &mut random);
            let ((scale, a), (bias, b)) = (parameter()?, parameter()?);
            let rows = Rows::new(&values, shape, &of);
            let statistic = || Stored::new(device, DataType::F32, &rows.kept, Layout::row_major(), &[]);
            let (mut mean, mut deviation) = (statistic()?, statistic()?);
            let mut out = Stored::new(device, data_type, shape, Layout::row_major(), &[])?;
            let optional = [(of.scale, &scale), (of.bias, &bias)].into_iter().filter(|(has, _)| *has);
            let inputs: Vec<&Stored> = [&x].into_iter().chain(optional.map(|(_, stored)| stored)).collect();
            let saves = of.statistics == Statistics::Saved;
            let mut outputs = vec![&mut out];
            if saves && of.center {
                outputs.push(&mut mean);
            }
            if saves {
                outputs.push(&mut deviation);
            }
            if !tally.compute_all(of.clone(), &inputs, &mut outputs)? {
                continue;
            }
            let index: Vec<Vec<usize>> = indices(shape).collect();
            out.expect(&format!("{data_type} {of:?} of {shape:?}"), |at| {
                let (mean, deviation, _) = rows.of(&index[at]);
                let place = broadcast(&index[at], part);
                let (a, b) = (if of.scale { a[place] } else { 1.0 }, if of.bias { b[place] } else { 0.0 });
                let centered = values[at] - mean;
                let value = centered * deviation * a + b;
                let mean_error = if of.center { rows.mean_error() } else { 0.0 };
                let error =
                    (mean_error * deviation + centered.abs() * rows.deviation_error(deviation)) * a.abs();
                Near { value, error: error + 8.0 * UNIT * (value.abs() + b.abs()) }
            })?;
            if saves && of.center {
                mean.expect("mean", |at| Near { value: rows.statistics[at].0, error: rows.mean_error() })?;
            }
            if saves {
                deviation.expect("deviation", |at| {
                    let value = rows.statistics[at].1;
                    Near { value, error: rows.deviation_error(value) }
                })?;
            }
        }
    }
    tally.end_of_all(device)
}

/// Each type, shared heads, causal, with masks, and with values that are wider than keys.
fn attention_by_the_library(device: &Device) -> CaseResult {
    let (mut random, mut tally) = (Random::new(80), Tally::default());
    let (plain, causal) = (Attention::default(), Attention::causal());
    let later = Attention { causal: Some(30), scale: Some(-0.5), ..plain };
    let masked = Attention { mask: Mask::Additive, ..plain };
    let both = Attention { causal: Some(3), ..masked };
    /// An operation, its sizes, and shape and type of its mask.
    type Case<'c> = (Attention, [usize; 7], Option<(&'c [usize], DataType)>);
    let cases: [Case<'_>; 11] = [
        (plain, [2, 3, 3, 19, 37, 40, 40], None),
        (plain, [2, 3, 3, 19, 37, 40, 33], None),
        (plain, [1, 6, 2, 5, 33, 16, 16], None),
        (plain, [1, 1, 1, 1, 1, 1, 1], None),
        (causal, [1, 6, 3, 17, 17, 16, 16], None),
        (causal, [1, 1, 1, 70, 9, 5, 3], None),
        (later, [1, 4, 2, 3, 33, 32, 32], None),
        (masked, [2, 2, 2, 9, 35, 8, 8], Some((&[9, 35], DataType::F32))),
        (masked, [2, 4, 2, 9, 35, 8, 8], Some((&[2, 1, 1, 35], DataType::BF16))),
        (both, [2, 4, 2, 9, 35, 8, 8], Some((&[4, 9, 1], DataType::F16))),
        (masked, [1, 2, 1, 3, 5, 8, 8], Some((&[], DataType::F32))),
    ];
    for ((of, sizes, mask), data_type) in cases.iter().flat_map(|case| DataType::FLOATS.map(|ty| (case, ty)))
    {
        let [batch, heads, key_heads, queries, keys, width, value_width] = *sizes;
        let mut operand =
            |shape: [usize; 4]| Stored::random(device, data_type, &shape, Layout::row_major(), &mut random);
        let (q, qs) = operand([batch, heads, queries, width])?;
        let (k, ks) = operand([batch, key_heads, keys, width])?;
        let (v, vs) = operand([batch, key_heads, keys, value_width])?;
        let mut out =
            Stored::new(device, data_type, &[batch, heads, queries, value_width], Layout::row_major(), &[])?;
        let mask = mask.map(|(shape, data_type)| {
            let mut values = random.values(shape.iter().product(), data_type);
            values[0] = f64::NEG_INFINITY;
            Stored::new(device, data_type, shape, Layout::row_major(), &values).map(|made| (made, values))
        });
        let mask = mask.transpose()?;
        let inputs: Vec<&Stored> =
            [&q, &k, &v].into_iter().chain(mask.as_ref().map(|(made, _)| made)).collect();
        if tally.compute(*of, &inputs, &mut out)? {
            let masked = mask.as_ref().map(|(made, values)| (&made.shape[..], &values[..]));
            let wanted = exact(of, data_type, *sizes, [&qs, &ks, &vs], masked);
            out.expect(&format!("{data_type} {of:?} of {sizes:?}"), |at| wanted[at])?;
        }
    }
    tally.end_of_all(device)
}
