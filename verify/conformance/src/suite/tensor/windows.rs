//! Convolutions, by each algorithm, and pooling.

use elinvar::Device;
use elinvar::tensor::{
    Activation, Convolution, DataType, Plan, Pooling, PoolingKind, Route, TensorMut, TensorRef, Window,
};

use super::super::{CaseResult, Failure};
use super::{Layout, Near, Random, Stored, UNIT, compute, indices, linear};

cases! {
    "tensor": convolutions, convolutions_of_one_and_three_axes, transposed_convolutions, grouped_convolutions, pointwise_convolutions,
    channels_last, random_convolutions, refused_convolutions, windows_by_the_library, pooling, pooling_of_one_and_three_axes, refused_pooling
}

const DIRECT: &str = "direct";
const UNFOLDED: &str = "unfolded matrix product";
const POINTWISE: &str = "matrix product";

/// Runs a convolution by the planner's choice, or by an algorithm.
fn convolve(
    operation: &Convolution,
    algorithm: Option<&'static str>,
    inputs: &[&Stored],
    out: &mut Stored,
) -> Result<&'static str, Failure> {
    let inputs = inputs.iter().map(|input| input.view()).collect::<elinvar::Result<Vec<_>>>()?;
    let inputs: Vec<&TensorRef<'_>> = inputs.iter().collect();
    let mut out: TensorMut<'_> = out.view_mut()?;
    let plan = match algorithm {
        None => Plan::new(operation.clone(), &inputs, &mut [&mut out], Route::Kernel)?,
        Some(algorithm) => Plan::with_algorithm(operation.clone(), &inputs, &mut [&mut out], algorithm)?,
    };
    plan.device().stream()?.tensor_plan(&plan)?.wait()?;
    Ok(plan.algorithm())
}

/// A value for an axis of a list that may be for all axes.
fn along<T: Copy>(list: &[T], axis: usize) -> T {
    list[if list.len() == 1 { 0 } else { axis }]
}

/// The terms of each element of the result, by the definition: each element of `x` meets each place of the window.
fn terms(
    of: &Convolution,
    (x, xs): (&[usize], &[f64]),
    (w, ws): (&[usize], &[f64]),
    out: &[usize],
) -> Vec<Vec<f64>> {
    let mut sums = vec![Vec::new(); out.iter().product()];
    let (in_channels, out_channels) = (x[1] / of.groups, out[1] / of.groups);
    for (at, value) in indices(x).zip(xs) {
        let group = at[1] / in_channels;
        'places: for place in indices(&w[2..]) {
            let mut target = vec![at[0], 0];
            for axis in 0..place.len() {
                let (stride, dilation) = (along(&of.window.stride, axis), along(&of.window.dilation, axis));
                let (padding, position) = (along(&of.window.padding, axis).0 as i64, at[axis + 2] as i64);
                let tap = (place[axis] * dilation) as i64;
                // The result that this element adds to, by this place of the window.
                let (reached, stride) = match of.transposed {
                    true => (position * stride as i64 - padding + tap, 1),
                    false => (position + padding - tap, stride as i64),
                };
                if reached < 0 || reached % stride != 0 || reached / stride >= out[axis + 2] as i64 {
                    continue 'places;
                }
                target.push((reached / stride) as usize);
            }
            for channel in 0..out_channels {
                target[1] = group * out_channels + channel;
                let first = match of.transposed {
                    true => [at[1], channel],
                    false => [target[1], at[1] % in_channels],
                };
                let weight = ws[linear(&[&first[..], &place].concat(), w)];
                sums[linear(&target, out)].push(value * weight);
            }
        }
    }
    sums
}

/// The shapes of a convolution.
struct Shapes<'s> {
    x: &'s [usize],
    weights: &'s [usize],
    out: &'s [usize],
}

#[allow(clippy::too_many_arguments)] // a test
fn check(
    device: &Device,
    of: &Convolution,
    algorithm: Option<&'static str>,
    shapes: &Shapes<'_>,
    types: [DataType; 3],
    layouts: [Layout; 3],
    random: &mut Random,
) -> Result<&'static str, Failure> {
    let [layout_x, layout_w, layout_out] = layouts;
    let (x, xs) = Stored::random(device, types[0], shapes.x, layout_x, random)?;
    let (w, ws) = Stored::random(device, types[1], shapes.weights, layout_w, random)?;
    let (bias, bs) = Stored::random(device, DataType::F32, &[shapes.out[1]], Layout::row_major(), random)?;
    let mut out = Stored::new(device, types[2], shapes.out, layout_out, &[])?;
    let inputs = if of.bias { vec![&x, &w, &bias] } else { vec![&x, &w] };
    let used = convolve(of, algorithm, &inputs, &mut out)?;
    assert!(algorithm.is_none_or(|algorithm| used == algorithm));
    let sums = terms(of, (shapes.x, &xs), (shapes.weights, &ws), shapes.out);
    let space: usize = shapes.out[2..].iter().product();
    out.expect(&format!("{of:?} of {:?} by {used}", shapes.x), |at| {
        let Near { value, error } = Near::sum(sums[at].iter().copied());
        let value = value + if of.bias { bs[at / space % shapes.out[1]] } else { 0.0 };
        let error = error + 2.0 * UNIT * value.abs();
        let value = if of.activation == Activation::Relu { value.max(0.0) } else { value };
        Near { value, error }
    })?;
    Ok(used)
}

fn row_major() -> [Layout; 3] {
    [Layout::row_major(), Layout::row_major(), Layout::row_major()]
}

/// Strides, paddings and dilations, of every type.
fn convolutions(device: &Device) -> CaseResult {
    let mut random = Random::new(51);
    for (number, data_type) in DataType::FLOATS.into_iter().enumerate() {
        for algorithm in [DIRECT, UNFOLDED] {
            let plain = Convolution::default();
            let shapes = Shapes { x: &[2, 3, 7, 35], weights: &[5, 3, 3, 2], out: &[2, 5, 5, 34] };
            check(device, &plain, Some(algorithm), &shapes, [data_type; 3], row_major(), &mut random)?;
            let window = Window { stride: vec![2, 3], padding: vec![(1, 2), (0, 3)], dilation: vec![2, 1] };
            let of =
                Convolution { window, bias: true, activation: Activation::Relu, ..Convolution::default() };
            let shapes = Shapes { x: &[1, 4, 9, 11], weights: &[9, 4, 3, 3], out: &[1, 9, 4, 4] };
            if number == 0 || algorithm == DIRECT {
                check(device, &of, Some(algorithm), &shapes, [data_type; 3], row_major(), &mut random)?;
            }
        }
    }
    // Weights of another type than the images.
    let types = [DataType::F16, DataType::F32, DataType::F32];
    let shapes = Shapes { x: &[1, 8, 5, 5], weights: &[8, 8, 1, 1], out: &[1, 8, 5, 5] };
    check(device, &Convolution::default(), None, &shapes, types, row_major(), &mut random).map(drop)
}

fn convolutions_of_one_and_three_axes(device: &Device) -> CaseResult {
    let mut random = Random::new(52);
    let padded = Convolution { window: Window::stride(1).padded(2), bias: true, ..Convolution::default() };
    let strided = Convolution { window: Window::stride(2).padded(1), ..Convolution::default() };
    for (of, x, weights, out) in [
        (&padded, vec![2, 3, 67], vec![4, 3, 5], vec![2, 4, 67]),
        (&strided, vec![1, 2, 5, 6, 7], vec![3, 2, 3, 3, 3], vec![1, 3, 3, 3, 4]),
    ] {
        for algorithm in [DIRECT, UNFOLDED] {
            let shapes = Shapes { x: &x, weights: &weights, out: &out };
            check(device, of, Some(algorithm), &shapes, [DataType::F32; 3], row_major(), &mut random)?;
        }
    }
    Ok(())
}

fn transposed_convolutions(device: &Device) -> CaseResult {
    let mut random = Random::new(53);
    let plain = Convolution { transposed: true, bias: true, ..Convolution::default() };
    let window = Window { stride: vec![2, 3], padding: vec![(1, 1), (0, 2)], dilation: vec![1, 2] };
    let strided = Convolution { window, transposed: true, groups: 2, ..Convolution::default() };
    for (of, x, weights, out) in [
        (&plain, vec![2, 3, 4, 5], vec![3, 4, 3, 3], vec![2, 4, 6, 7]),
        // The height could be 7 or 8.
        (&strided, vec![1, 4, 4, 5], vec![4, 3, 3, 2], vec![1, 6, 7, 13]),
        (&strided, vec![1, 4, 4, 5], vec![4, 3, 3, 2], vec![1, 6, 8, 13]),
    ] {
        for algorithm in [DIRECT, UNFOLDED] {
            let shapes = Shapes { x: &x, weights: &weights, out: &out };
            check(device, of, Some(algorithm), &shapes, [DataType::F32; 3], row_major(), &mut random)?;
        }
    }
    Ok(())
}

/// Groups, down to one channel each.
fn grouped_convolutions(device: &Device) -> CaseResult {
    let mut random = Random::new(54);
    for (groups, x, weights, out) in
        [(2, [2, 6, 5, 7], [4, 3, 2, 3], [2, 4, 4, 5]), (5, [1, 5, 8, 9], [10, 1, 3, 3], [1, 10, 6, 7])]
    {
        for algorithm in [DIRECT, UNFOLDED] {
            let of = Convolution { groups, bias: true, ..Convolution::default() };
            let shapes = Shapes { x: &x, weights: &weights, out: &out };
            check(device, &of, Some(algorithm), &shapes, [DataType::F32; 3], row_major(), &mut random)?;
        }
    }
    Ok(())
}

/// Windows of one element are a product without unfolding.
fn pointwise_convolutions(device: &Device) -> CaseResult {
    let mut random = Random::new(55);
    for (data_type, groups) in [(DataType::F32, 1), (DataType::F16, 2)] {
        let of = Convolution { groups, bias: true, ..Convolution::default() };
        let (x, weights, out) = ([3, 10, 5, 7], [40, 10 / groups, 1, 1], [3, 40, 5, 7]);
        let shapes = Shapes { x: &x, weights: &weights, out: &out };
        check(device, &of, Some(POINTWISE), &shapes, [data_type; 3], row_major(), &mut random)?;
    }
    Ok(())
}

/// Images whose channels are contiguous, in each algorithm; a result whose space is no single axis is computed directly.
fn channels_last(device: &Device) -> CaseResult {
    let mut random = Random::new(56);
    let last = || Layout { order: vec![0, 2, 3, 1], ..Layout::default() };
    let of = Convolution { window: Window::stride(1).padded(1), ..Convolution::default() };
    let shapes = Shapes { x: &[2, 9, 5, 6], weights: &[11, 9, 3, 3], out: &[2, 11, 5, 6] };
    for algorithm in [DIRECT, UNFOLDED] {
        check(
            device,
            &of,
            Some(algorithm),
            &shapes,
            [DataType::F32; 3],
            [last(), last(), last()],
            &mut random,
        )?;
    }
    let shapes = Shapes { x: &[2, 9, 5, 6], weights: &[11, 9, 1, 1], out: &[2, 11, 5, 6] };
    let plain = Convolution::default();
    check(
        device,
        &plain,
        Some(POINTWISE),
        &shapes,
        [DataType::F32; 3],
        [last(), last(), last()],
        &mut random,
    )?;
    let margins = Layout { margins: vec![(1, 1); 4], ..last() };
    let used =
        check(device, &plain, None, &shapes, [DataType::F32; 3], [last(), last(), margins], &mut random)?;
    assert_eq!(used, DIRECT);
    Ok(())
}

/// Random shapes, strides and windows, by the planner's choice.
fn random_convolutions(device: &Device) -> CaseResult {
    let mut random = Random::new(57);
    for round in 0..8 {
        let rank = 1 + round % 3;
        let groups = random.pick(&[1, 1, 2]);
        let (channels, outputs) = (groups * (1 + random.below(9)), groups * (1 + random.below(9)));
        let size: Vec<usize> = (0..rank).map(|_| 1 + random.below(3)).collect();
        let window = Window {
            stride: (0..rank).map(|_| 1 + random.below(3)).collect(),
            padding: (0..rank).map(|_| (random.below(3), random.below(3))).collect(),
            dilation: (0..rank).map(|_| 1 + random.below(2)).collect(),
        };
        let transposed = random.below(3) == 0;
        let space: Vec<usize> = (0..rank).map(|_| 5 + random.below(8)).collect();
        let result = (0..rank).map(|axis| {
            let (low, high) = window.padding[axis];
            let extent = (size[axis] - 1) * window.dilation[axis] + 1;
            match transposed {
                true => ((space[axis] - 1) * window.stride[axis] + extent).saturating_sub(low + high),
                false => (space[axis] + low + high - extent) / window.stride[axis] + 1,
            }
        });
        let x = [vec![2, channels], space.clone()].concat();
        let out = [vec![2, outputs], result.collect()].concat();
        let first = if transposed { [channels, outputs / groups] } else { [outputs, channels / groups] };
        let weights = [first.to_vec(), size.clone()].concat();
        let of = Convolution { window, groups, transposed, bias: round % 2 == 0, ..Convolution::default() };
        let layouts = [&x, &weights, &out].map(|shape| Layout::random(shape.len(), &mut random));
        let types = [random.pick(&DataType::FLOATS), random.pick(&DataType::FLOATS), DataType::F32];
        check(
            device,
            &of,
            None,
            &Shapes { x: &x, weights: &weights, out: &out },
            types,
            layouts,
            &mut random,
        )?;
    }
    Ok(())
}

fn refused_convolutions(device: &Device) -> CaseResult {
    let float = |shape: &[usize]| Stored::new(device, DataType::F32, shape, Layout::row_major(), &[]);
    let plain = Convolution::default();
    let of = |window: Window| Convolution { window, ..Convolution::default() };
    let two = Window { stride: vec![1, 1, 1], ..Window::default() };
    for (operation, x, weights, out, parts) in [
        (
            plain.clone(),
            &[1, 3, 8, 8][..],
            &[4, 3, 3, 3][..],
            &[1, 4, 6, 5][..],
            &["`result` [1, 4, 6, 5]", "axis 3 has 5 elements, not 6"][..],
        ),
        (
            plain.clone(),
            &[1, 3, 8, 8],
            &[4, 2, 3, 3],
            &[1, 4, 6, 6],
            &["`weights` [4, 2, 3, 3]", "`x` [1, 3, 8, 8]", "channels do not fit"],
        ),
        (
            plain.clone(),
            &[1, 3, 2, 8],
            &[4, 3, 3, 3],
            &[1, 4, 1, 6],
            &["`x` [1, 3, 2, 8]", "axis 2", "window of 3"],
        ),
        (plain.clone(), &[3, 8], &[4, 3], &[4, 6], &["same number of axes"]),
        (
            Convolution { groups: 2, ..plain.clone() },
            &[1, 3, 8, 8],
            &[4, 3, 3, 3],
            &[1, 4, 6, 6],
            &["3 channels in 2 groups"],
        ),
        (Convolution { groups: 0, ..plain }, &[1, 3, 8, 8], &[4, 3, 3, 3], &[1, 4, 6, 6], &["0 groups"]),
        (of(Window::stride(0)), &[1, 3, 8, 8], &[4, 3, 3, 3], &[1, 4, 6, 6], &["spatial axis 0", "stride 0"]),
        (of(Window::stride(1).padded(usize::MAX)), &[1, 3, 8, 8], &[4, 3, 3, 3], &[1, 4, 6, 6], &["2³⁰"]),
        (of(two), &[1, 3, 8, 8], &[4, 3, 3, 3], &[1, 4, 6, 6], &["3 strides", "2 spatial axes"]),
    ] {
        let mut out = float(out)?;
        let (x, weights) = (float(x)?, float(weights)?);
        let error = convolve(&operation, None, &[&x, &weights], &mut out)
            .err()
            .map_or_else(String::new, |e| e.to_string());
        for part in parts {
            assert!(error.contains(part), "`{error}` lacks `{part}`");
        }
    }
    Ok(())
}

/// The library's convolution and pooling, in the layouts and shapes that it takes, are those of the kernels. It must have the plain ones.
fn windows_by_the_library(device: &Device) -> CaseResult {
    let mut random = Random::new(60);
    let last = || Layout { order: vec![0, 2, 3, 1], ..Layout::default() };
    let window = Window { stride: vec![2, 1], padding: vec![(1, 1), (2, 2)], dilation: vec![1, 2] };
    let of = Convolution { window, ..Convolution::default() };
    let (x, weights, out) = ([2, 4, 9, 11], [6, 4, 3, 3], [2, 6, 5, 11]);
    for layout in [Layout::row_major(), last()] {
        let (stored, xs) = Stored::random(device, DataType::F32, &x, layout.clone(), &mut random)?;
        let (filter, ws) = Stored::random(device, DataType::F32, &weights, last(), &mut random)?;
        let mut result = Stored::new(device, DataType::F32, &out, layout.clone(), &[])?;
        {
            let (x, weights, mut view) = (stored.view()?, filter.view()?, result.view_mut()?);
            // Weights with the channels last are taken with images of the same layout by every library.
            let route = if layout == last() { Route::Vendor } else { Route::Auto };
            let plan = Plan::new(of.clone(), &[&x, &weights], &mut [&mut view], route)?;
            device.stream()?.tensor_plan(&plan)?.wait()?;
        }
        let sums = terms(&of, (&x, &xs), (&weights, &ws), &out);
        result.expect("convolution by the library", |at| Near::sum(sums[at].iter().copied()))?;
        let pool = Pooling::new(PoolingKind::Average, &[3, 3], Window::stride(2).padded(1));
        let mut result = Stored::new(device, DataType::F32, &[2, 4, 5, 6], layout, &[])?;
        {
            let (x, mut view) = (stored.view()?, result.view_mut()?);
            let plan = Plan::new(pool.clone(), &[&x], &mut [&mut view], Route::Vendor)?;
            device.stream()?.tensor_plan(&plan)?.wait()?;
        }
        let windows = windows(&pool, (&x, &xs), &[2, 4, 5, 6]);
        result.expect("pooling by the library", |at| {
            let Near { value, error } = Near::sum(windows[at].iter().copied());
            let count = windows[at].len() as f64;
            Near { value: value / count, error: error / count + UNIT * value.abs() }
        })?;
    }
    Ok(())
}

/// The elements of each window that are within the image.
fn windows(of: &Pooling, (x, xs): (&[usize], &[f64]), out: &[usize]) -> Vec<Vec<f64>> {
    let window = |index: Vec<usize>| {
        let element = |place: Vec<usize>| {
            let mut at = index[..2].to_vec();
            for axis in 0..place.len() {
                let first = index[axis + 2] * along(&of.window.stride, axis);
                let position = first + place[axis] * along(&of.window.dilation, axis);
                let position = position.checked_sub(along(&of.window.padding, axis).0);
                at.push(position.filter(|position| *position < x[axis + 2])?);
            }
            Some(xs[linear(&at, x)])
        };
        indices(&of.size).filter_map(element).collect()
    };
    indices(out).map(window).collect()
}

fn check_pooling(
    device: &Device,
    of: &Pooling,
    shapes: [&[usize]; 2],
    data_type: DataType,
    layouts: [Layout; 2],
    random: &mut Random,
) -> CaseResult {
    let [layout_x, layout_out] = layouts;
    let (x, xs) = Stored::random(device, data_type, shapes[0], layout_x, random)?;
    let mut out = Stored::new(device, data_type, shapes[1], layout_out, &[])?;
    compute(device, of.clone(), &[&x], &mut [&mut out])?;
    let windows = windows(of, (shapes[0], &xs), shapes[1]);
    let all = of.size.iter().product::<usize>() as f64;
    out.expect(&format!("{of:?}"), |at| {
        let window = &windows[at];
        let Near { value, error } = Near::sum(window.iter().copied());
        let count = if of.kind == PoolingKind::Average { window.len() as f64 } else { all };
        match of.kind {
            PoolingKind::Max => Near::exact(window.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            _ => Near { value: value / count, error: error / count + UNIT * value.abs() },
        }
    })
}

const KINDS: [PoolingKind; 3] = [PoolingKind::Max, PoolingKind::Average, PoolingKind::AverageWithPadding];

fn pooling(device: &Device) -> CaseResult {
    let mut random = Random::new(58);
    for kind in KINDS {
        for data_type in DataType::FLOATS {
            let of = Pooling::new(kind, &[3, 2], Window::stride(2).padded(1));
            let layouts = [Layout::row_major(), Layout::row_major()];
            check_pooling(device, &of, [&[2, 3, 7, 37], &[2, 3, 4, 19]], data_type, layouts, &mut random)?;
        }
        let window = Window { stride: vec![1, 2], padding: vec![(0, 1), (2, 0)], dilation: vec![2, 1] };
        let of = Pooling::new(kind, &[2, 3], window);
        let layouts =
            [Layout { order: vec![0, 2, 3, 1], ..Layout::default() }, Layout::random(4, &mut random)];
        check_pooling(device, &of, [&[1, 5, 6, 9], &[1, 5, 5, 5]], DataType::F32, layouts, &mut random)?;
    }
    // A NaN is the maximum of its windows.
    let mut values = random.values(9, DataType::F32);
    values[4] = f64::NAN;
    let x = Stored::new(device, DataType::F32, &[1, 1, 9], Layout::row_major(), &values)?;
    let mut out = Stored::new(device, DataType::F32, &[1, 1, 3], Layout::row_major(), &[])?;
    compute(device, Pooling::new(PoolingKind::Max, &[3], Window::stride(3)), &[&x], &mut [&mut out])?;
    out.expect("NaN", |at| {
        let most = values[at * 3..at * 3 + 3].iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Near::exact(if at == 1 { f64::NAN } else { most })
    })
}

fn pooling_of_one_and_three_axes(device: &Device) -> CaseResult {
    let mut random = Random::new(59);
    for kind in KINDS {
        let layouts = || [Layout::row_major(), Layout::row_major()];
        let of = Pooling::new(kind, &[5], Window::stride(3).padded(2));
        check_pooling(device, &of, [&[2, 3, 67], &[2, 3, 23]], DataType::F32, layouts(), &mut random)?;
        let of = Pooling::new(kind, &[2, 3, 2], Window::stride(1));
        check_pooling(
            device,
            &of,
            [&[1, 2, 4, 5, 6], &[1, 2, 3, 3, 5]],
            DataType::F32,
            layouts(),
            &mut random,
        )?;
    }
    Ok(())
}

fn refused_pooling(device: &Device) -> CaseResult {
    let float = |shape: &[usize]| Stored::new(device, DataType::F32, shape, Layout::row_major(), &[]);
    for (size, x, out, parts) in [
        (
            &[2, 2][..],
            &[1, 3, 8, 8][..],
            &[1, 3, 7, 8][..],
            &["max_pooling", "`result` [1, 3, 7, 8]", "axis 3 has 8 elements, not 7"][..],
        ),
        (&[9, 2], &[1, 3, 8, 8], &[1, 3, 1, 7], &["axis 2", "window of 9"]),
        (&[2], &[1, 3, 8, 8], &[1, 3, 7, 7], &["those of [2]"]),
        (&[0, 2], &[1, 3, 8, 8], &[1, 3, 7, 7], &["window of 0"]),
    ] {
        let (x, mut out) = (float(x)?, float(out)?);
        let of = Pooling::new(PoolingKind::Max, size, Window::default());
        let error =
            compute(device, of, &[&x], &mut [&mut out]).err().map_or_else(String::new, |e| e.to_string());
        for part in parts {
            assert!(error.contains(part), "`{error}` lacks `{part}`");
        }
    }
    Ok(())
}
