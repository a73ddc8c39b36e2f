//! Copies between matrices and images:
//! [`MPSMatrixCopyToImage`](https://developer.apple.com/documentation/metalperformanceshaders/mpsmatrixcopytoimage),
//! [`MPSImageCopyToMatrix`](https://developer.apple.com/documentation/metalperformanceshaders/mpsimagecopytomatrix), and
//! [`MPSMatrixCopy`](https://developer.apple.com/documentation/metalperformanceshaders/mpsmatrixcopy) from one matrix to another.
//!
//! An image is one row of a matrix, in one of two data layouts, with the matrix's element type. Matrix offsets and transposing copies are
//! not supported.

use elinvar_objc::{Declaration, Ref};

use super::image::{Image, ImageSize};
use super::matrix::{Matrix, View};
use super::{Kernel, kernel};
use crate::commands::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::require;

/// `MPSDataLayoutFeatureChannelsxHeightxWidth`; the other one is 0.
const CHANNELS_FIRST: usize = 1;

struct ToImage {
    kernel: Kernel,
    layout: usize,
}

elinvar_objc::object!(ToImage, c"MPSMatrixCopyToImage");

struct ToMatrix {
    kernel: Kernel,
    layout: usize,
}

elinvar_objc::object!(ToMatrix, c"MPSImageCopyToMatrix");

/// Index of an element in a row.
fn place(layout: usize, size: ImageSize, row: usize, column: usize, channel: usize) -> usize {
    match layout {
        CHANNELS_FIRST => (channel * size.height + row) * size.width + column,
        _ => (row * size.width + column) * size.channels + channel,
    }
}

fn matches(method: &str, view: &View, image: &Image) -> bool {
    let (numbers, has) = (image.size.count(), view.columns);
    require!(has >= numbers, "{method} a row of {has} elements has no room for {:?}", image.size);
    require!(view.kind() == image.kind, "{method} matrix and image have different types");
    true
}

impl ToImage {
    fn encode(this: &Ref<Self>, buffer: Ref<CommandBuffer>, source: Ref<Matrix>, image: Ref<Image>) {
        const METHOD: &str = "-[MPSMatrixCopyToImage encodeToCommandBuffer:sourceMatrix:destinationImage:]:";
        if !matches(METHOD, &source.view, &image) || !image.is_usable(METHOD, &buffer, false) {
            return;
        }
        let (elements, points, layout) = (source.view.elements(), image.points(), this.layout);
        let work = move || {
            let size = points.size;
            points.set_all(|row, column, channel| {
                elements.get(0, 0, place(layout, size, row, column, channel))
            });
            Ok(())
        };
        this.kernel.encode(METHOD, &buffer, Box::new(work));
    }
}

impl ToMatrix {
    fn encode(this: &Ref<Self>, buffer: Ref<CommandBuffer>, image: Ref<Image>, result: Ref<Matrix>) {
        const METHOD: &str = "-[MPSImageCopyToMatrix encodeToCommandBuffer:sourceImage:destinationMatrix:]:";
        if !matches(METHOD, &result.view, &image) || !image.is_usable(METHOD, &buffer, true) {
            return;
        }
        let (elements, points, layout) = (result.view.elements(), image.points(), this.layout);
        let work = move || {
            let (size, all) = (points.size, points.copy());
            for (at, number) in all.into_iter().enumerate() {
                let (point, channel) = (at / size.channels, at % size.channels);
                let (row, column) = (point / size.width, point % size.width);
                elements.set(0, 0, place(layout, size, row, column, channel), number);
            }
            Ok(())
        };
        this.kernel.encode(METHOD, &buffer, Box::new(work));
    }
}

/// `MPSMatrixCopyOffsets`: rows and columns of the source, rows and columns of the destination.
#[derive(Clone, Copy)]
#[repr(C)]
struct Offsets {
    source: [u32; 2],
    destination: [u32; 2],
}

elinvar_objc::structures! { Offsets => "{?=IIII}" }

/// `MPSMatrixCopyDescriptor`: of one copy.
struct CopyDescriptor {
    source: View,
    destination: View,
    offsets: Offsets,
}

elinvar_objc::object!(CopyDescriptor, c"MPSMatrixCopyDescriptor");

struct MatrixCopy {
    kernel: Kernel,
    rows: usize,
    columns: usize,
}

elinvar_objc::object!(MatrixCopy, c"MPSMatrixCopy");

impl MatrixCopy {
    fn of(
        device: Ref<Device>,
        rows: usize,
        columns: usize,
        sources_transposed: bool,
        destinations_transposed: bool,
    ) -> Option<Self> {
        require!(
            !sources_transposed && !destinations_transposed,
            "-[MPSMatrixCopy initWithDevice:…]: transposition is not supported"
        );
        Some(Self { kernel: Kernel::new(device), rows, columns })
    }

    fn encode(this: &Ref<Self>, buffer: Ref<CommandBuffer>, copy: Ref<CopyDescriptor>) {
        const METHOD: &str = "-[MPSMatrixCopy encodeToCommandBuffer:copyDescriptor:]:";
        let (rows, columns, Offsets { source, destination }) = (this.rows, this.columns, copy.offsets);
        let fits = |view: &View, [row, column]: [u32; 2]| {
            row as usize + rows <= view.rows && column as usize + columns <= view.columns
        };
        let both = fits(&copy.source, source) && fits(&copy.destination, destination);
        require!(both, "{METHOD} {rows} rows and {columns} columns are not within both matrices");
        require!(copy.source.kind() == copy.destination.kind(), "{METHOD} the matrices have different types");
        let (from, to) = (copy.source.elements(), copy.destination.elements());
        let work = move || {
            for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                let number = from.get(0, source[0] as usize + row, source[1] as usize + column);
                to.set(0, destination[0] as usize + row, destination[1] as usize + column, number);
            }
            Ok(())
        };
        this.kernel.encode(METHOD, &buffer, Box::new(work));
    }
}

pub fn register() {
    kernel(Declaration::<ToImage>::new().below(c"MPSKernel"), |k: &ToImage| &k.kernel)
        .init("initWithDevice:dataLayout:", |device: Ref<Device>, layout: usize| {
            Some(ToImage { kernel: Kernel::new(device), layout })
        })
        .method("dataLayout", |this: &Ref<ToImage>| this.layout)
        .method("encodeToCommandBuffer:sourceMatrix:destinationImage:", ToImage::encode)
        .register();
    kernel(Declaration::<ToMatrix>::new().below(c"MPSKernel"), |k: &ToMatrix| &k.kernel)
        .init("initWithDevice:dataLayout:", |device: Ref<Device>, layout: usize| {
            Some(ToMatrix { kernel: Kernel::new(device), layout })
        })
        .method("dataLayout", |this: &Ref<ToMatrix>| this.layout)
        .method("encodeToCommandBuffer:sourceImage:destinationMatrix:", ToMatrix::encode)
        .register();
    Declaration::<CopyDescriptor>::new()
        .class_method(
            "descriptorWithSourceMatrix:destinationMatrix:offsets:",
            |source: Ref<Matrix>, destination: Ref<Matrix>, offsets: Offsets| {
                let (source, destination) = (source.view.clone(), destination.view.clone());
                Ref::new(CopyDescriptor { source, destination, offsets })
            },
        )
        .register();
    kernel(Declaration::<MatrixCopy>::new().below(c"MPSKernel"), |k: &MatrixCopy| &k.kernel)
        .init(
            "initWithDevice:copyRows:copyColumns:sourcesAreTransposed:destinationsAreTransposed:",
            MatrixCopy::of,
        )
        .method("copyRows", |this: &Ref<MatrixCopy>| this.rows)
        .method("copyColumns", |this: &Ref<MatrixCopy>| this.columns)
        .method("encodeToCommandBuffer:copyDescriptor:", MatrixCopy::encode)
        .register();
}
