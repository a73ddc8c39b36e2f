//! [`MPSCNNPoolingMax`](https://developer.apple.com/documentation/metalperformanceshaders/mpscnnpoolingmax) and
//! [`MPSCNNPoolingAverage`](https://developer.apple.com/documentation/metalperformanceshaders/mpscnnpoolingaverage). With clamped edges, an
//! average excludes elements outside of the image; `zeroPadSize` is not supported.

use elinvar_objc::{Declaration, Declared, Ref};

use super::filter::{EDGE_CLAMP, Filter, Settings, Slide, Source, filter};
use super::image::Image;
use crate::commands::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::require;

/// Common parameters.
struct Window {
    filter: Filter,
    rows: Slide,
    columns: Slide,
}

/// Reduces the elements of a channel at some rows and columns, which may be outside of the image.
type Pool = fn(&Source, Settings, &[(isize, isize)], usize) -> f64;

struct Max(Window);

elinvar_objc::object!(Max, c"MPSCNNPoolingMax");

struct Average(Window);

elinvar_objc::object!(Average, c"MPSCNNPoolingAverage");

impl Window {
    fn new(device: Ref<Device>, width: usize, height: usize, across: usize, down: usize) -> Option<Self> {
        let sizes = [width, height, across, down];
        require!(
            sizes.iter().all(|size| *size > 0),
            "-[MPSCNNPooling initWithDevice:…]: sizes must not be 0: {sizes:?}"
        );
        let slide = |size, stride| Slide { size, stride, dilation: 1 };
        let (rows, columns) = (slide(height, down), slide(width, across));
        Some(Self { filter: Filter::new(device), rows, columns })
    }

    fn encode(&self, buffer: &Ref<CommandBuffer>, images: [&Ref<Image>; 2], one: Pool) {
        const METHOD: &str = "-[MPSCNNPooling encodeToCommandBuffer:sourceImage:destinationImage:]:";
        let [source, result] = images.map(|image| image.size.channels);
        require!(source == result, "{METHOD} {source} source channels, but {result} destination channels");
        let (rows, columns) = (self.rows, self.columns);
        self.filter.encode(METHOD, buffer, images, move |source, settings, [row, column, channel]| {
            let down = (0..rows.size).map(|point| rows.at(settings.offset.y, row, point));
            let across =
                |y| (0..columns.size).map(move |point| (y, columns.at(settings.offset.x, column, point)));
            let points: Vec<(isize, isize)> = down.flat_map(across).collect();
            one(source, settings, &points, channel)
        });
    }
}

fn greatest(source: &Source, _: Settings, points: &[(isize, isize)], channel: usize) -> f64 {
    let numbers = points.iter().map(|(row, column)| source.number(*row, *column, channel));
    numbers.fold(f64::NEG_INFINITY, f64::max)
}

fn average(source: &Source, settings: Settings, points: &[(isize, isize)], channel: usize) -> f64 {
    let inside: Vec<f64> =
        points.iter().filter_map(|(row, column)| source.within(*row, *column, channel)).collect();
    let count = if settings.edge == EDGE_CLAMP { inside.len() } else { points.len() };
    if count == 0 { 0.0 } else { inside.iter().sum::<f64>() / count as f64 }
}

fn declare<T, F>(of: F) -> Declaration<T>
where
    T: Declared,
    F: Fn(&T) -> &Window + Copy + 'static,
{
    filter(Declaration::<T>::new().below(c"MPSCNNKernel"), move |this: &T| &of(this).filter)
        .method("kernelWidth", move |this: &Ref<T>| of(this).columns.size)
        .method("kernelHeight", move |this: &Ref<T>| of(this).rows.size)
        .method("strideInPixelsX", move |this: &Ref<T>| of(this).columns.stride)
        .method("strideInPixelsY", move |this: &Ref<T>| of(this).rows.stride)
}

const INIT: &str = "initWithDevice:kernelWidth:kernelHeight:strideInPixelsX:strideInPixelsY:";
const ENCODE: &str = "encodeToCommandBuffer:sourceImage:destinationImage:";

pub fn register() {
    declare(|max: &Max| &max.0)
        .init(INIT, |device: Ref<Device>, width: usize, height: usize, across: usize, down: usize| {
            Window::new(device, width, height, across, down).map(Max)
        })
        .method(
            ENCODE,
            |this: &Ref<Max>, buffer: Ref<CommandBuffer>, source: Ref<Image>, result: Ref<Image>| {
                this.0.encode(&buffer, [&source, &result], greatest);
            },
        )
        .register();
    declare(|average: &Average| &average.0)
        .init(INIT, |device: Ref<Device>, width: usize, height: usize, across: usize, down: usize| {
            Window::new(device, width, height, across, down).map(Average)
        })
        .method(
            ENCODE,
            |this: &Ref<Average>, buffer: Ref<CommandBuffer>, source: Ref<Image>, result: Ref<Image>| {
                this.0.encode(&buffer, [&source, &result], average);
            },
        )
        .register();
}
