//! [`Image`]: [`MPSImage`](https://developer.apple.com/documentation/metalperformanceshaders/mpsimage) and
//! [`MPSTemporaryImage`](https://developer.apple.com/documentation/metalperformanceshaders/mpstemporaryimage), with elements of 16 or 32 bits,
//! one image each.
//!
//! A temporary image belongs to one command buffer; each read decrements its `readCount`, and at 0 it must not be used any more. There are no
//! underlying textures. The maximum size is that of textures in Apple's
//! [Metal Feature Set Tables](https://developer.apple.com/metal/Metal-Feature-Set-Tables.pdf).

use std::sync::Arc;

use elinvar_objc::{Declaration, Declared as _, Property, Ref};
use half::f16;
use parking_lot::Mutex;

use super::matrix::{FLOAT16, FLOAT32};
use crate::commands::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::require;

/// `MPSImageFeatureChannelFormat`.
const FORMAT_FLOAT16: usize = 3;
const FORMAT_FLOAT32: usize = 4;

/// Maximum width and height of a texture, on the families Apple3 and Mac2 and later.
const MOST_POINTS: usize = 16384;
/// Maximum number of texture layers, each of which holds four channels.
const MOST_CHANNELS: usize = 2048 * 4;

/// `MPSImageDescriptor`.
#[derive(Clone, Default)]
pub struct ImageDescriptor {
    format: Property<usize>,
    width: Property<usize>,
    height: Property<usize>,
    channels: Property<usize>,
    images: Property<usize>,
    storage: Property<usize>,
}

elinvar_objc::object!(ImageDescriptor, c"MPSImageDescriptor");

/// `MTLStorageModePrivate`.
const PRIVATE: usize = 2;

impl ImageDescriptor {
    fn single(format: usize, width: usize, height: usize, channels: usize) -> Ref<Self> {
        let [format, width, height, channels, images, storage] =
            [format, width, height, channels, 1, PRIVATE].map(Property::new);
        Ref::new(Self { format, width, height, channels, images, storage })
    }
}

/// An image: one element per channel and pixel.
pub struct Image {
    device: Ref<Device>,
    pub size: ImageSize,
    /// Element type, as for matrices.
    pub kind: u32,
    numbers: Arc<Mutex<Vec<f64>>>,
    temporary: Option<Temporary>,
}

/// Dimensions of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSize {
    pub width: usize,
    pub height: usize,
    pub channels: usize,
}

impl ImageSize {
    /// Total number of elements.
    pub fn count(self) -> usize {
        self.width * self.height * self.channels
    }
}

struct Temporary {
    buffer: usize,
    reads: Property<usize>,
}

elinvar_objc::object!(Image, c"MPSImage");

/// The class of temporary images, whose objects hold an [`Image`].
struct TemporaryImage;

elinvar_objc::object!(TemporaryImage, c"MPSTemporaryImage");

impl Image {
    fn of(
        method: &str,
        device: Ref<Device>,
        descriptor: &ImageDescriptor,
        temporary: Option<Temporary>,
    ) -> Option<Self> {
        let (width, height, channels) =
            (descriptor.width.get(), descriptor.height.get(), descriptor.channels.get());
        let size = ImageSize { width, height, channels };
        require!(width > 0 && height > 0 && channels > 0, "{method} the size {size:?} is empty");
        let fits = width.max(height) <= MOST_POINTS && channels <= MOST_CHANNELS;
        require!(fits, "{method} {size:?} is larger than a texture");
        require!(descriptor.images.get() == 1, "{method} several images in one are not supported");
        let kind = match descriptor.format.get() {
            FORMAT_FLOAT16 => FLOAT16,
            FORMAT_FLOAT32 => FLOAT32,
            _ => 0,
        };
        require!(kind != 0, "{method} the channel format {} is not supported", descriptor.format.get());
        // Initial contents of textures are undefined; this value cannot be a result by chance.
        let numbers = Arc::new(Mutex::new(vec![f64::NAN; size.count()]));
        Some(Self { device, size, kind, numbers, temporary })
    }

    fn temporary(buffer: Ref<CommandBuffer>, descriptor: Ref<ImageDescriptor>) -> Option<Ref<Self>> {
        const METHOD: &str = "+[MPSTemporaryImage temporaryImageWithCommandBuffer:imageDescriptor:]:";
        let temporary = Temporary { buffer: buffer.id().addr(), reads: Property::new(1) };
        let image = Self::of(METHOD, buffer.queue.device.clone(), &descriptor, Some(temporary))?;
        Some(Ref::of_class(TemporaryImage::class(), image))
    }

    /// Whether a command buffer may use it; `reads` counts a read.
    pub fn is_usable(&self, method: &str, buffer: &Ref<CommandBuffer>, reads: bool) -> bool {
        let Some(temporary) = &self.temporary else { return true };
        let (own, left) = (temporary.buffer == buffer.id().addr(), temporary.reads.get());
        require!(own, "{method} the temporary image is another command buffer's");
        require!(left > 0, "{method} the temporary image has been read as often as its readCount said");
        if reads {
            temporary.reads.set(left - 1);
        }
        true
    }

    /// Its elements, kept alive while a command buffer uses them.
    pub fn points(&self) -> Points {
        Points { size: self.size, kind: self.kind, numbers: self.numbers.clone() }
    }

    fn read_count(&self) -> usize {
        self.temporary.as_ref().map_or(0, |temporary| temporary.reads.get())
    }

    fn set_read_count(&self, count: usize) {
        if let Some(temporary) = &self.temporary {
            temporary.reads.set(count);
        }
    }
}

/// Elements of an image.
pub struct Points {
    pub size: ImageSize,
    kind: u32,
    numbers: Arc<Mutex<Vec<f64>>>,
}

impl Points {
    fn at(&self, row: usize, column: usize, channel: usize) -> usize {
        (row * self.size.width + column) * self.size.channels + channel
    }

    /// All elements, in the order of [`Points::number`].
    pub fn copy(&self) -> Vec<f64> {
        self.numbers.lock().clone()
    }

    /// One of the elements returned by [`Points::copy`]; `None` outside.
    pub fn number(&self, all: &[f64], row: isize, column: isize, channel: usize) -> Option<f64> {
        let (row, column) = (usize::try_from(row).ok()?, usize::try_from(column).ok()?);
        let is_within = row < self.size.height && column < self.size.width;
        is_within.then(|| all[self.at(row, column, channel)])
    }

    /// Sets all elements.
    #[allow(clippy::cast_possible_truncation)] // rounding to the image's format is meant
    pub fn set_all(&self, mut number: impl FnMut(usize, usize, usize) -> f64) {
        let mut numbers = self.numbers.lock();
        for row in 0..self.size.height {
            for column in 0..self.size.width {
                for channel in 0..self.size.channels {
                    let exact = number(row, column, channel);
                    let rounded = match self.kind {
                        FLOAT16 => f16::from_f64(exact).to_f64(),
                        _ => f64::from(exact as f32),
                    };
                    numbers[self.at(row, column, channel)] = rounded;
                }
            }
        }
    }
}

pub fn register() {
    Declaration::<ImageDescriptor>::new()
        .class_method(
            "imageDescriptorWithChannelFormat:width:height:featureChannels:",
            ImageDescriptor::single,
        )
        .property("channelFormat", |d: &ImageDescriptor| &d.format)
        .property("width", |d: &ImageDescriptor| &d.width)
        .property("height", |d: &ImageDescriptor| &d.height)
        .property("featureChannels", |d: &ImageDescriptor| &d.channels)
        .property("numberOfImages", |d: &ImageDescriptor| &d.images)
        .property("storageMode", |d: &ImageDescriptor| &d.storage)
        .copies()
        .register();
    Declaration::<Image>::new()
        .init("initWithDevice:imageDescriptor:", |device: Ref<Device>, descriptor: Ref<ImageDescriptor>| {
            Image::of("-[MPSImage initWithDevice:imageDescriptor:]:", device, &descriptor, None)
        })
        .method("device", |this: &Ref<Image>| this.device.clone())
        .method("width", |this: &Ref<Image>| this.size.width)
        .method("height", |this: &Ref<Image>| this.size.height)
        .method("featureChannels", |this: &Ref<Image>| this.size.channels)
        .method("numberOfImages", |_: &Ref<Image>| 1_usize)
        .register();
    Declaration::<TemporaryImage>::new()
        .below(c"MPSImage")
        .class_method("temporaryImageWithCommandBuffer:imageDescriptor:", Image::temporary)
        .method("readCount", |this: &Ref<Image>| this.read_count())
        .method("setReadCount:", |this: &Ref<Image>, count: usize| this.set_read_count(count))
        .register();
}
