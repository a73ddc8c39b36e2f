//! [`Filter`]: common parts of [`MPSCNNKernel`](https://developer.apple.com/documentation/metalperformanceshaders/mpscnnkernel)s, which
//! compute an image from an image.

use elinvar_objc::{Declaration, Declared, Property, Ref};

use super::image::{Image, ImageSize, Points};
use super::{Kernel, kernel};
use crate::commands::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::require;

/// `MPSOffset`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Offset {
    pub x: isize,
    pub y: isize,
    z: isize,
}

elinvar_objc::structures! { Offset => "{?=qqq}" }

/// `MPSImageEdgeModeZero`, the default: zeros outside of the image.
pub const EDGE_ZERO: usize = 0;
/// `MPSImageEdgeModeClamp`: the nearest element of the image.
pub const EDGE_CLAMP: usize = 1;

/// What they have.
pub struct Filter {
    kernel: Kernel,
    offset: Property<Offset>,
    edge: Property<usize>,
}

/// `MPSCNNKernel` itself.
struct Base(Filter);

elinvar_objc::object!(Base, c"MPSCNNKernel");

/// Window parameters along one dimension.
///
/// The window starts at `offset - span / 2`, where the span of the dilated window is divided with truncation, as the documentation of
/// [`MPSCNNConvolutionDescriptor`](https://developer.apple.com/documentation/metalperformanceshaders/mpscnnconvolutiondescriptor) specifies
/// for its width; for pooling this is a guess.
#[derive(Clone, Copy)]
pub struct Slide {
    pub size: usize,
    pub stride: usize,
    pub dilation: usize,
}

impl Slide {
    /// Source coordinate of a window element, for a result coordinate.
    pub fn at(self, offset: isize, result: usize, point: usize) -> isize {
        let span = (self.size - 1) * self.dilation + 1;
        offset + signed(result * self.stride) - signed(span / 2) + signed(point * self.dilation)
    }
}

/// Does not truncate, because images are small.
pub fn signed(number: usize) -> isize {
    isize::try_from(number).unwrap_or(isize::MAX)
}

/// How a filter is applied.
#[derive(Clone, Copy)]
pub struct Settings {
    pub offset: Offset,
    pub edge: usize,
}

/// Elements of the source, with padding.
pub struct Source {
    points: Points,
    numbers: Vec<f64>,
    edge: usize,
}

impl Source {
    pub fn size(&self) -> ImageSize {
        self.points.size
    }

    /// An element of the image; `None` outside.
    pub fn within(&self, row: isize, column: isize, channel: usize) -> Option<f64> {
        self.points.number(&self.numbers, row, column, channel)
    }

    /// An element of the image, or of the padding that the edge mode defines.
    pub fn number(&self, row: isize, column: isize, channel: usize) -> f64 {
        let ImageSize { width, height, .. } = self.size();
        let number = match self.edge {
            EDGE_CLAMP => {
                let (row, column) = (row.clamp(0, signed(height - 1)), column.clamp(0, signed(width - 1)));
                self.within(row, column, channel)
            }
            _ => self.within(row, column, channel),
        };
        number.unwrap_or(0.0)
    }
}

impl Filter {
    pub fn new(device: Ref<Device>) -> Self {
        let kernel = Kernel::new(device);
        Self { kernel, offset: Property::default(), edge: Property::new(EDGE_ZERO) }
    }

    /// The filter's kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Computes each element of the result with `number`, given row, column and channel.
    pub fn encode(
        &self,
        method: &str,
        buffer: &Ref<CommandBuffer>,
        [source, result]: [&Ref<Image>; 2],
        number: impl Fn(&Source, Settings, [usize; 3]) -> f64 + Send + 'static,
    ) {
        require!(!source.is(result), "{method} source and destination are the same image");
        if !source.is_usable(method, buffer, true) || !result.is_usable(method, buffer, false) {
            return;
        }
        let settings = Settings { offset: self.offset.get(), edge: self.edge.get() };
        let known = matches!(settings.edge, EDGE_ZERO | EDGE_CLAMP);
        require!(known, "{method} the edge mode {} is not supported", settings.edge);
        let (points, result) = (source.points(), result.points());
        let work = move || {
            let source = Source { numbers: points.copy(), points, edge: settings.edge };
            result.set_all(|row, column, channel| number(&source, settings, [row, column, channel]));
            Ok(())
        };
        self.kernel.encode(method, buffer, Box::new(work));
    }
}

/// The methods of `MPSCNNKernel`.
pub fn filter<T, F>(class: Declaration<T>, of: F) -> Declaration<T>
where
    T: Declared,
    F: Fn(&T) -> &Filter + Copy + 'static,
{
    kernel(class, move |this: &T| &of(this).kernel)
        .property("offset", move |this: &T| &of(this).offset)
        .property("edgeMode", move |this: &T| &of(this).edge)
}

pub fn register() {
    filter(Declaration::<Base>::new().below(c"MPSKernel"), |base: &Base| &base.0).register();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_counted_from_its_middle() {
        let all = |slide: Slide, offset| -> Vec<isize> {
            (0..2)
                .flat_map(|result| (0..slide.size).map(move |point| slide.at(offset, result, point)))
                .collect()
        };
        assert_eq!(all(Slide { size: 3, stride: 1, dilation: 1 }, 0), [-1, 0, 1, 0, 1, 2]);
        // Of two elements, the left one is before the center.
        assert_eq!(all(Slide { size: 2, stride: 2, dilation: 1 }, 1), [0, 1, 2, 3]);
        assert_eq!(all(Slide { size: 3, stride: 1, dilation: 2 }, 2), [0, 2, 4, 1, 3, 5]);
    }
}
