//! Convolutions: products of the weights and of images in [phases](elinvar_gemm::phases). One job packs the weights, another arranges the
//! images, and a third multiplies blocks of output channels and positions.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use elinvar_driver::primitive::{Convolution, Layout, MatMul, Matrix, Window};
use elinvar_driver::{Error, MemorySlice, Result};
use elinvar_gemm::phases::{Phases, SLACK};
use elinvar_gemm::{Bias, Block, Element, Left, Level, Lines, Output, Right, multiply, pack, packed_len};

use super::packed::{self, BiasOf};
use super::{PER_NS, as_floats, demand, element, keep, lines_of_block, most_panels, run, wanted_blocks};
use crate::encode::address;
use crate::job::Work;
use crate::pool::Worker;
use crate::scratch::Scratch;
use crate::stop::Stop;

/// The most panels of positions in a block.
const MOST_COLUMNS: usize = 64;

/// A convolution, or a part of it: some images, which are arranged at a time.
#[derive(Clone)]
struct Images {
    level: Level,
    phases: Phases,
    element: Element,
    weight_element: Element,
    is_channels_first: bool,
    source: *const u8,
    weights: *const u8,
    output: Output,
    /// Groups of channels, and the input and output channels of a group.
    groups: usize,
    inputs: usize,
    outputs: usize,
    /// Where each weight's pixels are.
    offsets: Arc<[usize]>,
    images: Range<usize>,
    /// Packed weights of each group, and arranged images.
    panels: *mut f32,
    arranged: *mut f32,
    /// Output channels and positions of a block.
    block: [usize; 2],
    stop: Arc<Stop>,
}

#[allow(unsafe_code)] // addresses of memory that the submission keeps, and of panels that the worker keeps
// SAFETY: groups write disjoint panels, channels or blocks of the result; the rest is only read.
unsafe impl Send for Images {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Images {}

/// Packs weights: a group is a group of channels.
struct Packing(Images);

/// Arranges images: a group is a channel of an image.
struct Arranging(Images);

/// Multiplies: a group is a block of output channels and positions of an image.
struct Multiplying(Images);

/// Computes a convolution: source, weights, bias if there is one, result; with room for `room` elements of arranged images at a time, or
/// for one image.
pub(super) fn convolve(
    p: &Convolution,
    operands: &[MemorySlice],
    room: usize,
    stop: &Arc<Stop>,
    worker: &mut Worker,
) -> Result<()> {
    let [source, weights, .., result] = operands else {
        return Err(Error::invalid("convolution: operands are missing"));
    };
    if let Some((product, bias_of)) = as_product(p) {
        let mut operands = operands.to_vec();
        if bias_of == BiasOf::Rows {
            operands.swap(0, 1);
        }
        return packed::multiply(&product, &operands, bias_of, room, stop, worker);
    }
    let (level, of_images) = (Level::of_processor(), p.result());
    let both = |pair: [u32; 2]| pair.map(|size| size as usize);
    let phases = Phases {
        image: both([p.source.height, p.source.width]),
        window: both(p.window.size),
        stride: both(p.window.stride),
        dilation: both(p.window.dilation),
        padding: both([p.window.padding.top, p.window.padding.left]),
        positions: both([of_images.height, of_images.width]),
    };
    let (count, channels, groups) = (p.source.count as usize, p.source.channels as usize, p.groups as usize);
    let (inputs, outputs) = (channels / groups, p.channels as usize / groups);
    let offsets: Arc<[usize]> = offsets(&phases, inputs, p.weight_layout).into();
    let of_weights = groups * packed_len(outputs, offsets.len(), level.rows());
    let of_image = channels * phases.channel_len();
    let at_a_time = (room / of_image).clamp(1, count);
    let of_bias = if p.bias { p.channels as usize } else { 0 };
    let elements = of_weights + of_bias + at_a_time * of_image + SLACK;
    let mut kept = std::mem::take(&mut worker.panels);
    let panels = kept.reserve(elements as u64 * 4)?.cast::<f32>();
    let of_bias = panels.wrapping_add(of_weights);
    let (element, weight_element) = (element(p.data_type)?, element(p.weight_type)?);
    let bias = bias(p, operands, weight_element, of_bias)?;
    let arranged = panels.wrapping_add(elements - at_a_time * of_image - SLACK);
    zero_slack(panels, elements);
    let (width, channels_of_result) = (phases.positions[1] as isize, p.channels as isize);
    let pixels = phases.positions[0] as isize * width;
    let (row, line, column) = match p.layout {
        Layout::ChannelsFirst => (pixels, width, 1),
        Layout::ChannelsLast => (1, width * channels_of_result, channels_of_result),
    };
    let output = Output {
        first: address(result)?,
        element,
        row,
        line,
        column,
        pitch: phases.size()[1],
        width: phases.positions[1],
        alpha: 1.0,
        beta: 0.0,
        bias,
        activation: elinvar_gemm::Activation::None,
    };
    let mut images = Images {
        level,
        phases,
        element,
        weight_element,
        is_channels_first: p.layout == Layout::ChannelsFirst,
        source: address(source)?,
        weights: address(weights)?,
        output,
        groups,
        inputs,
        outputs,
        offsets,
        images: 0..0,
        panels,
        arranged,
        block: [0, 0],
        stop: stop.clone(),
    };
    // An element takes about 0.2 ns to pack or arrange.
    worker
        .run(&Arc::new(Packing(images.clone())), demand(groups as u64, (of_weights / groups / 5) as u64))?;
    for first in (0..count).step_by(at_a_time) {
        images.images = first..count.min(first + at_a_time);
        images.divide(worker.workers());
        let channel_ns = (images.phases.channel_len() / 5) as u64;
        worker.run(
            &Arc::new(Arranging(images.clone())),
            demand((images.images.len() * channels) as u64, channel_ns),
        )?;
        stop.check()?;
        let [down, across] = images.blocks();
        let block_ns = (images.block[0] * images.block[1] * images.offsets.len()) as u64 / PER_NS;
        let blocks = images.images.len() * groups * down * across;
        worker.run(&Arc::new(Multiplying(images.clone())), demand(blocks as u64, block_ns))?;
        stop.check()?;
    }
    keep(kept, room, worker);
    Ok(())
}

/// A convolution with a window of one pixel, which is a product of weights and images, or of images and weights.
fn as_product(p: &Convolution) -> Option<(MatMul, BiasOf)> {
    let is_whole = p.window == Window { dilation: p.window.dilation, ..Window::new(1, 1) };
    if !is_whole || p.groups != 1 || p.weight_type != p.data_type {
        return None;
    }
    let pixels = p.source.height.checked_mul(p.source.width)?;
    let (inputs, outputs) = (p.source.channels, p.channels);
    let (product, bias_of) = match p.layout {
        Layout::ChannelsFirst => {
            let mut product = MatMul::packed(p.data_type, outputs, inputs, pixels);
            product.matrices = p.source.count;
            product.left.matrix_bytes = 0;
            (product, BiasOf::Rows)
        }
        Layout::ChannelsLast => {
            let pixels = pixels.checked_mul(p.source.count)?;
            let mut product = MatMul::packed(p.data_type, pixels, inputs, outputs);
            product.right = Matrix::packed(p.data_type, outputs, inputs);
            product.transpose_right = true;
            (product, BiasOf::Columns)
        }
    };
    Some((MatMul { bias: p.bias, ..product }, bias_of))
}

/// Where the pixels of each weight of an output channel are, in the order of the weights.
fn offsets(phases: &Phases, inputs: usize, layout: Layout) -> Vec<usize> {
    let [height, width] = phases.window;
    let weight = |index: usize| match layout {
        Layout::ChannelsFirst => [index / (height * width), index / width % height, index % width],
        Layout::ChannelsLast => [index % inputs, index / inputs / width, index / inputs % width],
    };
    let of = |index| {
        let [channel, row, column] = weight(index);
        phases.offset(channel, row, column)
    };
    (0..inputs * height * width).map(of).collect()
}

/// The bias, as `f32`; other types are converted to `room`.
#[allow(unsafe_code)] // addresses of operands
fn bias(p: &Convolution, operands: &[MemorySlice], element: Element, room: *mut f32) -> Result<Bias> {
    if !p.bias {
        return Ok(Bias::None);
    }
    // SAFETY: the primitive was validated: there is an element for each output channel; the room has as many.
    let first = unsafe { as_floats(address(&operands[2])?, element, p.channels as usize, room) };
    Ok(Bias::Rows(first))
}

/// Elements behind the last image are read, and not used.
#[allow(unsafe_code)] // addresses of panels
fn zero_slack(panels: *mut f32, elements: usize) {
    // SAFETY: there are so many elements.
    unsafe { panels.add(elements - SLACK).write_bytes(0, SLACK) };
}

impl Images {
    /// Chooses the size of blocks.
    fn divide(&mut self, workers: usize) {
        let (tall, wide) = (self.level.rows(), self.level.columns());
        let (of_images, wanted) = (self.images.len() * self.groups, wanted_blocks(workers));
        let rows = lines_of_block(self.outputs, tall, 1, most_panels(tall));
        let tiles = of_images * self.outputs.div_ceil(rows);
        self.block =
            [rows, lines_of_block(self.phases.columns(), wide, wanted.div_ceil(tiles), MOST_COLUMNS)];
    }

    /// Numbers of blocks of output channels and positions, of a group of channels.
    fn blocks(&self) -> [usize; 2] {
        [self.outputs.div_ceil(self.block[0]), self.phases.columns().div_ceil(self.block[1])]
    }

    /// The packed weights of a group.
    fn panels(&self, group: usize) -> *mut f32 {
        self.panels.wrapping_add(group * packed_len(self.outputs, self.offsets.len(), self.level.rows()))
    }

    /// The channel of an arranged image.
    fn arranged(&self, image: usize, channel: usize) -> *mut f32 {
        let channels = self.groups * self.inputs;
        let index = (image - self.images.start) * channels + channel;
        self.arranged.wrapping_add(index * self.phases.channel_len())
    }

    #[allow(unsafe_code)] // addresses of operands and panels
    fn pack_weights(&self, group: usize, scratch: &mut Scratch) -> Result<()> {
        let terms = self.offsets.len();
        let count = self.outputs * terms;
        let first = self.weight_element.at(self.weights, (group * count) as isize);
        let converted = if self.weight_element == Element::F32 { 0 } else { count };
        let room = scratch.reserve(converted as u64 * 4)?.cast();
        // SAFETY: the primitive was validated against its operands; the panels of groups are disjoint.
        unsafe {
            let first = as_floats(first, self.weight_element, count, room);
            let lines = Lines { first, line: terms as isize, term: 1 };
            pack(lines, self.outputs, terms, self.level.rows(), self.panels(group));
        }
        Ok(())
    }

    #[allow(unsafe_code)] // addresses of operands and panels
    fn arrange(&self, index: usize) {
        let channels = self.groups * self.inputs;
        let (image, channel) = (self.images.start + index / channels, index % channels);
        let [height, width] = self.phases.image;
        let (pixel, channel_stride) =
            if self.is_channels_first { (1, height * width) } else { (channels, 1) };
        let index = image * channels * height * width + channel * channel_stride;
        let first = self.element.at(self.source, index as isize);
        let strides = [(width * pixel) as isize, pixel as isize];
        // SAFETY: the primitive was validated against its operands; channels are disjoint.
        unsafe { self.phases.arrange(self.element, first, strides, self.arranged(image, channel)) };
    }

    #[allow(unsafe_code)] // addresses of operands and panels
    fn multiply_block(&self, index: usize) {
        let ([down, across], terms) = (self.blocks(), self.offsets.len());
        let (row, column) = (index / across % down * self.block[0], index % across * self.block[1]);
        let of_image = index / (down * across);
        let (image, group) = (self.images.start + of_image / self.groups, of_image % self.groups);
        let [height, width] = self.phases.positions;
        let channels = self.groups * self.outputs;
        let first_channel = group * self.outputs;
        let of_group = if self.is_channels_first { first_channel * height * width } else { first_channel };
        let index = image * channels * height * width + of_group;
        let first = self.output.element.at(self.output.first, index as isize).cast_mut();
        let bias = match self.output.bias {
            Bias::Rows(bias) => Bias::Rows(bias.wrapping_add(first_channel)),
            other => other,
        };
        let output = Output { first, bias, ..self.output };
        let block = Block {
            left: Left::Panels(self.panels(group).wrapping_add(row * terms)),
            right: Right::Offsets {
                first: self.arranged(image, group * self.inputs).wrapping_add(column),
                offsets: &self.offsets,
            },
            at: [row, column],
            size: [self.block[0].min(self.outputs - row), self.block[1].min(self.phases.columns() - column)],
            terms,
            sums: std::ptr::null_mut(),
            is_first: true,
            is_last: true,
        };
        // SAFETY: the primitive was validated against its operands; weights and images are prepared; no other group has the block.
        // Concurrent accesses would be a race of the program.
        unsafe { multiply(self.level, &block, &output) };
    }
}

impl Work for Packing {
    fn run(&self, groups: Range<u64>, scratch: &mut Scratch) -> ControlFlow<()> {
        run(&self.0.stop, groups, |group| self.0.pack_weights(group, scratch))
    }
}

impl Work for Arranging {
    fn run(&self, groups: Range<u64>, _scratch: &mut Scratch) -> ControlFlow<()> {
        run(&self.0.stop, groups, |group| {
            self.0.arrange(group);
            Ok(())
        })
    }
}

impl Work for Multiplying {
    fn run(&self, groups: Range<u64>, _scratch: &mut Scratch) -> ControlFlow<()> {
        run(&self.0.stop, groups, |group| {
            self.0.multiply_block(group);
            Ok(())
        })
    }
}
