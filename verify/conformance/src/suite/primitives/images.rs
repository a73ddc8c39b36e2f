//! Convolution and pooling, in both data layouts.

use elinvar::driver::primitive::{Convolution, DataType, Images, Layout, Padding, PoolKind, Pooling, Window};
use elinvar::{Buffer, Device, Grid, Primitive, bf16, f16};

use super::{BEFORE, CaseResult, Exact, Number, Parts, computed, kernel, launch, numbers, taken, typed};

cases!("primitives": convolutions, convolutions_with_weights_of_f32, weights_of_the_same_stream, pooling);

const SOURCES: [Images; 3] = [
    Images { count: 1, channels: 1, height: 5, width: 6 },
    Images { count: 2, channels: 3, height: 7, width: 5 },
    Images { count: 1, channels: 6, height: 8, width: 9 },
];

fn windows() -> [Window; 5] {
    [
        Window::new(1, 1),
        Window::new(3, 2),
        Window { padding: Padding::all(1), ..Window::new(3, 3) },
        Window {
            stride: [2, 3],
            padding: Padding { top: 0, bottom: 1, left: 2, right: 1 },
            ..Window::new(2, 4)
        },
        Window { stride: [1, 2], dilation: [2, 1], padding: Padding::all(1), ..Window::new(2, 3) },
    ]
}

/// Index of an element of images.
fn at(layout: Layout, size: Images, [image, channel, row, column]: [usize; 4]) -> usize {
    let [channels, height, width] = [size.channels, size.height, size.width].map(|size| size as usize);
    match layout {
        Layout::ChannelsFirst => ((image * channels + channel) * height + row) * width + column,
        Layout::ChannelsLast => ((image * height + row) * width + column) * channels + channel,
    }
}

fn count(size: Images) -> usize {
    size.elements() as usize * size.count as usize
}

/// Position in the source of each point of the window, in order; `None` outside the image.
fn points(window: &Window, source: Images, [row, column]: [usize; 2]) -> Vec<Option<[usize; 2]>> {
    let along = |size: u32, image: u32, before: u32, stride: u32, dilation: u32, position: usize| {
        (0..size as usize).map(move |point| {
            let place = position * stride as usize + point * dilation as usize;
            place.checked_sub(before as usize).filter(|place| *place < image as usize)
        })
    };
    let Window { size, stride, dilation, padding } = window;
    let rows = along(size[0], source.height, padding.top, stride[0], dilation[0], row);
    let columns = || along(size[1], source.width, padding.left, stride[1], dilation[1], column);
    rows.flat_map(|row| columns().map(move |column| Some([row?, column?]))).collect()
}

/// Compares every element of a result after the first `skip` elements, and the elements around it.
#[track_caller]
fn expect<T: Number>(
    what: &str,
    result: &Buffer<T>,
    (layout, size, skip): (Layout, Images, usize),
    exact: impl Fn([usize; 4]) -> Exact,
) -> elinvar::Result<()> {
    let got = result.to_vec()?;
    let [images, channels, height, width] =
        [size.count, size.channels, size.height, size.width].map(|size| size as usize);
    for number in 0..images * channels * height * width {
        let (point, column) = (number / width, number % width);
        let (plane, row) = (point / height, point % height);
        let place = [plane / channels, plane % channels, row, column];
        exact(place).expect(got[skip + at(layout, size, place)], format_args!("{what}: {place:?}"));
    }
    let own = skip..skip + count(size);
    for (at, value) in got.iter().enumerate().filter(|(at, _)| !own.contains(at)) {
        assert_eq!(value.get(), BEFORE, "{what}: element {at} of the buffer is not the result's");
    }
    Ok(())
}

/// A buffer of `skip` elements, `count` elements and three more.
fn stored<T: Number>(device: &Device, count: usize, skip: usize, seed: u32) -> elinvar::Result<Buffer<T>> {
    let values = if seed == 0 { vec![BEFORE; skip + count + 3] } else { numbers(skip + count + 3, seed) };
    device.buffer_with_data(&typed::<T>(&values))
}

/// Weights have the images' type.
fn convolutions(device: &Device) -> CaseResult {
    let mut parts = Parts::default();
    for_shapes(|layout, source, window, channels, bias| {
        convolution::<f32, f32>(device, &mut parts, layout, source, window, channels, bias)?;
        convolution::<f16, f16>(device, &mut parts, layout, source, window, channels, !bias)?;
        convolution::<bf16, bf16>(device, &mut parts, layout, source, window, channels, bias)
    })?;
    parts.end()
}

fn convolutions_with_weights_of_f32(device: &Device) -> CaseResult {
    let mut parts = Parts::default();
    for_shapes(|layout, source, window, channels, bias| {
        convolution::<f16, f32>(device, &mut parts, layout, source, window, channels, bias)?;
        convolution::<bf16, f32>(device, &mut parts, layout, source, window, channels, !bias)
    })?;
    parts.end()
}

fn for_shapes(mut check: impl FnMut(Layout, Images, Window, u32, bool) -> CaseResult) -> CaseResult {
    for (number, (window, source)) in windows().into_iter().zip(SOURCES.into_iter().cycle()).enumerate() {
        for (layout, bias, channels) in
            [(Layout::ChannelsFirst, true, 1), (Layout::ChannelsLast, number % 2 == 0, 5)]
        {
            check(layout, source, window, channels, bias)?;
        }
    }
    Ok(())
}

/// Weights of type `W`, in both layouts.
fn convolution<T: Number, W: Number>(
    device: &Device,
    parts: &mut Parts,
    layout: Layout,
    images: Images,
    window: Window,
    channels: u32,
    bias: bool,
) -> CaseResult {
    for weight_layout in [Layout::ChannelsFirst, Layout::ChannelsLast] {
        let (data_type, weight_type) = (T::DATA_TYPE, W::DATA_TYPE);
        let p = Convolution::new(data_type, layout, images, channels, window);
        parts.add(convolved::<T, W>(device, Convolution { weight_type, weight_layout, bias, ..p }))?;
        // A group for each channel, and two results of each.
        let (groups, channels) = (images.channels, 2 * images.channels);
        let p = Convolution { weight_type, weight_layout, bias, groups, channels, ..p };
        parts.add(convolved::<T, W>(device, p))?;
    }
    Ok(())
}

fn convolved<T: Number, W: Number>(device: &Device, p: Convolution) -> CaseResult {
    let skip = 4;
    let Convolution { layout, source: images, channels, window, bias, groups, .. } = p;
    let (primitive, size, weights) = (Primitive::Convolution(p), p.result(), p.weights() as usize);
    let source = stored::<T>(device, count(images), skip, 11)?;
    let weights = stored::<W>(device, weights, skip, 12)?;
    let biases = stored::<W>(device, channels as usize, skip, 13)?;
    let mut result = stored::<T>(device, count(size), skip, 0)?;
    let stream = device.stream()?;
    let behind = |count: usize| skip..skip + count;
    let (s, w) = (source.slice(behind(count(images)))?, weights.slice(behind(p.weights() as usize))?);
    let b = biases.slice(behind(channels as usize))?;
    let r = result.slice_mut(behind(count(size)))?;
    match bias {
        true => computed(&stream, &primitive, (s, w, b, r))?,
        false => computed(&stream, &primitive, (s, w, r))?,
    }
    let (source, weights, biases) = (source.to_vec()?, weights.to_vec()?, biases.to_vec()?);
    let exact = |[image, output, row, column]: [usize; 4]| {
        let mut terms = vec![if bias { biases[skip + output].get() } else { 0.0 }];
        let inputs = (images.channels / groups) as usize;
        let group = output / (channels / groups) as usize;
        let all = points(&window, images, [row, column]);
        for (point, place) in all.iter().enumerate() {
            let Some([y, x]) = *place else { continue };
            for input in 0..inputs {
                let weight = match p.weight_layout {
                    Layout::ChannelsFirst => (output * inputs + input) * all.len() + point,
                    Layout::ChannelsLast => (output * all.len() + point) * inputs + input,
                };
                let channel = group * inputs + input;
                let value = source[skip + at(layout, images, [image, channel, y, x])].get();
                terms.push(weights[skip + weight].get() * value);
            }
        }
        Exact::of(terms)
    };
    expect(&format!("{primitive:?}"), &result, (layout, size, skip), exact)?;
    Ok(())
}

/// A kernel of the same stream changes the weights between convolutions of one shape, without waits.
fn weights_of_the_same_stream(device: &Device) -> CaseResult {
    let add =
        "kernel void add(device float* data, constant float& value, uint i [[thread_position_in_grid]]) {
            data[i] += value;
        }";
    let (add, stream) = (kernel(device, "add", add)?, device.stream()?);
    let images = Images { count: 1, channels: 4, height: 4, width: 4 };
    let (layout, window) = (Layout::ChannelsLast, Window::new(2, 2));
    let p = Convolution::new(DataType::F32, layout, images, 4, window);
    let (primitive, count) = (Primitive::Convolution(p), p.weights() as usize);
    let source = device.buffer_with_data(&[1.0f32; 64])?;
    let mut weights = device.buffer::<f32>(count)?;
    let mut results = Vec::new();
    let mut commands = stream.command_buffer();
    for round in 0..6 {
        let mut result = device.buffer::<f32>(36)?;
        // SAFETY: the kernel modifies one element per thread of the grid.
        #[allow(unsafe_code)]
        unsafe { commands.launch(&add, Grid::threads(count), (&mut weights, 1.0f32)) }?;
        let recorded = commands.primitive(&primitive, (&source, &weights, &mut result));
        taken(device, &primitive, recorded)?;
        results.push(result);
        if round % 2 == 1 {
            std::mem::replace(&mut commands, stream.command_buffer()).submit()?;
        }
    }
    launch(&add, &stream, Grid::threads(count), (&mut weights, 100.0f32))?;
    for (round, result) in results.iter().enumerate() {
        assert_eq!(result.to_vec()?, [16.0 * (round + 1) as f32; 36], "round {round}");
    }
    Ok(())
}

fn pooling(device: &Device) -> CaseResult {
    use PoolKind::{Average, AverageWithPadding, Max};
    let mut parts = Parts::default();
    for (window, source) in windows().into_iter().zip(SOURCES.into_iter().cycle()) {
        let window = Window { dilation: [1, 1], ..window };
        for (number, kind) in [Max, Average, AverageWithPadding].into_iter().enumerate() {
            let layouts = [Layout::ChannelsFirst, Layout::ChannelsLast];
            parts.add(pool::<f32>(device, layouts[number % 2], source, window, kind))?;
            parts.add(pool::<f16>(device, layouts[1 - number % 2], source, window, kind))?;
            parts.add(pool::<bf16>(device, layouts[number % 2], source, window, kind))?;
        }
    }
    parts.end()
}

fn pool<T: Number>(
    device: &Device,
    layout: Layout,
    images: Images,
    window: Window,
    kind: PoolKind,
) -> CaseResult {
    let skip = 4;
    let p = Pooling { data_type: T::DATA_TYPE, layout, source: images, window, kind };
    let (primitive, size) = (Primitive::Pooling(p), p.result());
    let mut source = stored::<T>(device, count(images), skip, 14)?;
    if kind == PoolKind::Max {
        // Negative values, so that padding with zeros would be detected.
        let below: Vec<f64> = source.to_vec()?.into_iter().map(|value| value.get() - 3.0).collect();
        source.write(&typed::<T>(&below))?;
    }
    let mut result = stored::<T>(device, count(size), skip, 0)?;
    let operands = (source.slice(skip..skip + count(images))?, result.slice_mut(skip..skip + count(size))?);
    computed(&device.stream()?, &primitive, operands)?;
    let source = source.to_vec()?;
    let exact = |[image, channel, row, column]: [usize; 4]| {
        let all = points(&window, images, [row, column]);
        let number = |[y, x]: [usize; 2]| source[skip + at(layout, images, [image, channel, y, x])].get();
        let inside: Vec<f64> = all.iter().flatten().map(|place| number(*place)).collect();
        let size = inside.len();
        match kind {
            PoolKind::Max => {
                let value = inside.into_iter().fold(f64::NEG_INFINITY, f64::max);
                Exact { value, ..Exact::default() }
            }
            PoolKind::Average => Exact::of(inside).times(1.0 / size as f64),
            _ => Exact::of(inside).times(1.0 / all.len() as f64),
        }
    };
    expect(&format!("{primitive:?}"), &result, (layout, size, skip), exact)?;
    Ok(())
}
