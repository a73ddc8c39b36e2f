//! [`MPSCNNConvolution`](https://developer.apple.com/documentation/metalperformanceshaders/mpscnnconvolution), its descriptor,
//! and [`MPSCNNConvolutionWeightsAndBiasesState`](https://developer.apple.com/documentation/metalperformanceshaders/mpscnnconvolutionweightsandbiasesstate).
//!
//! Weights come from the program's data source when a convolution is created, and from buffers, in command buffer order, when they are
//! reloaded. They are rounded to 16 bits unless the data source's `kernelWeightsDataType` specifies otherwise. Groups, neurons and
//! quantized weights are not supported.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use elinvar_objc::{Declaration, Demand, Id, Object, Property, Ref, Selector};
use half::f16;
use parking_lot::Mutex;

use super::filter::{Filter, Slide, filter};
use super::image::Image;
use super::matrix::{FLOAT16, FLOAT32};
use crate::commands::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::memory::buffer::Buffer;
use crate::require;

/// `MPSCNNConvolutionDescriptor`.
#[derive(Clone)]
struct ConvolutionDescriptor {
    width: Property<usize>,
    height: Property<usize>,
    inputs: Property<usize>,
    outputs: Property<usize>,
    across: Property<usize>,
    down: Property<usize>,
    dilation_across: Property<usize>,
    dilation_down: Property<usize>,
    groups: Property<usize>,
}

elinvar_objc::object!(ConvolutionDescriptor, c"MPSCNNConvolutionDescriptor");

impl ConvolutionDescriptor {
    fn new(width: usize, height: usize, inputs: usize, outputs: usize) -> Option<Ref<Self>> {
        let sizes = [width, height, inputs, outputs];
        require!(
            sizes.iter().all(|size| *size > 0),
            "+[MPSCNNConvolutionDescriptor cnnConvolutionDescriptorWith…]: sizes must not be 0: {sizes:?}"
        );
        let [width, height, inputs, outputs] = sizes.map(Property::new);
        let [across, down, dilation_across, dilation_down, groups] = [1; 5].map(Property::new);
        Some(Ref::new(Self {
            width,
            height,
            inputs,
            outputs,
            across,
            down,
            dilation_across,
            dilation_down,
            groups,
        }))
    }

    fn shape(&self) -> Shape {
        let rows =
            Slide { size: self.height.get(), stride: self.down.get(), dilation: self.dilation_down.get() };
        let columns =
            Slide { size: self.width.get(), stride: self.across.get(), dilation: self.dilation_across.get() };
        Shape { rows, columns, inputs: self.inputs.get(), outputs: self.outputs.get() }
    }
}

/// A convolution without its weights.
#[derive(Clone, Copy)]
struct Shape {
    rows: Slide,
    columns: Slide,
    inputs: usize,
    outputs: usize,
}

impl Shape {
    fn weights(self) -> usize {
        self.outputs * self.rows.size * self.columns.size * self.inputs
    }
}

/// Layout `[output channel][row][column][input channel]`, and one bias per output channel.
#[derive(Clone, Default)]
struct Weights {
    weights: Vec<f64>,
    biases: Vec<f64>,
}

/// Reads numbers from memory of the program.
///
/// # Safety
/// `from` points to that many elements of the type, which are not written concurrently.
unsafe fn numbers(from: *const u8, count: usize, kind: u32) -> Vec<f64> {
    let number = |at: usize| {
        // SAFETY: the caller's promise.
        unsafe {
            match kind {
                FLOAT16 => from.cast::<f16>().add(at).read_unaligned().to_f64(),
                _ => f64::from(from.cast::<f32>().add(at).read_unaligned()),
            }
        }
    };
    (0..count).map(number).collect()
}

/// Rounds numbers to the kernel's weight type.
fn kept(numbers: Vec<f64>, halves: bool) -> Vec<f64> {
    match halves {
        true => numbers.into_iter().map(|number| f16::from_f64(number).to_f64()).collect(),
        false => numbers,
    }
}

/// Sends a message to the data source; `None` if it does not implement the method.
///
/// # Safety
/// The method takes nothing and returns an `R`.
unsafe fn ask<R>(source: &Object, name: &CStr) -> Option<R> {
    let selector = Selector::of(name);
    let imp = source.implementation(selector)?;
    // SAFETY: the caller's promise.
    unsafe {
        let imp: unsafe extern "C-unwind" fn(Id, Selector) -> R = std::mem::transmute(imp);
        Some(imp(source.id(), selector))
    }
}

/// The methods of `MPSCNNConvolutionDataSource` that are used here.
const DATA_SOURCE: [Demand; 8] = {
    const fn demand(selector: &'static CStr, types: &'static CStr, required: bool) -> Demand {
        Demand { selector, types, required }
    }
    [
        demand(c"dataType", c"I@:", true),
        demand(c"descriptor", c"@@:", true),
        demand(c"weights", c"^v@:", true),
        demand(c"biasTerms", c"^f@:", true),
        demand(c"load", c"c@:", true),
        demand(c"purge", c"v@:", true),
        demand(c"label", c"@@:", true),
        demand(c"kernelWeightsDataType", c"I@:", false),
    ]
};

struct Convolution {
    filter: Filter,
    shape: Shape,
    halves: bool,
    has_biases: bool,
    accumulator: Property<usize>,
    weights: Arc<Mutex<Weights>>,
    source: Object,
}

elinvar_objc::object!(Convolution, c"MPSCNNConvolution");

/// `MPSNNConvolutionAccumulatorPrecisionOptionFloat`.
const ACCUMULATES_FLOAT: usize = 1;

impl Convolution {
    fn of(device: Ref<Device>, source: Object) -> Option<Self> {
        const METHOD: &str = "-[MPSCNNConvolution initWithDevice:weights:]:";
        // SAFETY: the methods of the protocol `MPSCNNConvolutionDataSource`, with its types.
        let (loaded, descriptor, kind) = unsafe {
            let loaded: Option<i8> = ask(&source, c"load");
            let descriptor = ask(&source, c"descriptor").and_then(|id: Id| Object::from_lent(id));
            (loaded, descriptor, ask::<u32>(&source, c"dataType"))
        };
        require!(loaded.is_some_and(|loaded| loaded != 0), "{METHOD} the data source has not loaded");
        let descriptor = descriptor.and_then(|object| object.downcast::<ConvolutionDescriptor>());
        require!(descriptor.is_some(), "{METHOD} the data source has no descriptor");
        let (descriptor, kind) = (descriptor?, kind?);
        require!(descriptor.groups.get() == 1, "{METHOD} groups are not supported");
        require!(matches!(kind, FLOAT32 | FLOAT16), "{METHOD} weights of type {kind:#x} are not supported");
        // SAFETY: as above.
        let kept_as: Option<u32> = unsafe { ask(&source, c"kernelWeightsDataType") };
        let halves = kept_as.unwrap_or(FLOAT16) == FLOAT16;
        require!(halves || kind == FLOAT32, "{METHOD} weights of 16 bits are kept in 16 bits");
        let shape = descriptor.shape();
        // SAFETY: as above; the data source guarantees that many elements until it is purged.
        let weights = unsafe {
            let weights: *const c_void = ask(&source, c"weights")?;
            require!(!weights.is_null(), "{METHOD} the data source has no weights");
            let biases: *const c_void = ask(&source, c"biasTerms")?;
            let count = if biases.is_null() { 0 } else { shape.outputs };
            let weights = kept(numbers(weights.cast(), shape.weights(), kind), halves);
            let biases = numbers(biases.cast(), count, FLOAT32);
            ask::<()>(&source, c"purge");
            Weights { weights, biases }
        };
        Some(Self {
            filter: Filter::new(device),
            shape,
            halves,
            has_biases: !weights.biases.is_empty(),
            accumulator: Property::new(ACCUMULATES_FLOAT),
            weights: Arc::new(Mutex::new(weights)),
            source,
        })
    }

    fn reload(this: &Ref<Self>, buffer: Ref<CommandBuffer>, state: Ref<State>) {
        const METHOD: &str = "-[MPSCNNConvolution reloadWeightsAndBiasesWithCommandBuffer:state:]:";
        let (count, outputs) = (this.shape.weights(), this.shape.outputs);
        require!(state.count == (count, outputs), "{METHOD} the state is of another shape");
        // A guess: a convolution without biases ignores them.
        let has = state.biases.is_some();
        require!(has == this.has_biases, "{METHOD} either both or neither must have biases");
        let store = |(buffer, offset): &(Ref<Buffer>, usize)| (buffer.store().clone(), *offset);
        let (from, biases) = (store(&state.weights), state.biases.as_ref().map(store));
        let (weights, halves) = (this.weights.clone(), this.halves);
        let work = move || {
            // SAFETY: the ranges were checked when the state was created; the program is responsible for ordering command buffers that share
            // buffers.
            let read = |(store, offset): &(Arc<crate::memory::store::Store>, usize), count| unsafe {
                numbers(store.device_bytes().add(*offset), count, FLOAT32)
            };
            let biases = biases.as_ref().map(|biases| read(biases, outputs)).unwrap_or_default();
            *weights.lock() = Weights { weights: kept(read(&from, count), halves), biases };
            Ok(())
        };
        this.filter.kernel().encode(METHOD, &buffer, Box::new(work));
    }

    fn encode(this: &Ref<Self>, buffer: Ref<CommandBuffer>, source: Ref<Image>, result: Ref<Image>) {
        const METHOD: &str = "-[MPSCNNConvolution encodeToCommandBuffer:sourceImage:destinationImage:]:";
        let Shape { rows, columns, inputs, outputs } = this.shape;
        let channels = (source.size.channels, result.size.channels);
        require!(channels == (inputs, outputs), "{METHOD} {channels:?} channels, not {inputs} and {outputs}");
        let exact = this.halves || this.accumulator.get() == ACCUMULATES_FLOAT;
        require!(exact, "{METHOD} weights of 32 bits need sums of 32 bits");
        let weights = this.weights.clone();
        let images = [&source, &result];
        this.filter.encode(METHOD, &buffer, images, move |source, settings, [row, column, output]| {
            let weights = weights.lock();
            let mut sum = weights.biases.get(output).copied().unwrap_or(0.0);
            for down in 0..rows.size {
                for across in 0..columns.size {
                    let y = rows.at(settings.offset.y, row, down);
                    let x = columns.at(settings.offset.x, column, across);
                    let first = ((output * rows.size + down) * columns.size + across) * inputs;
                    let own = &weights.weights[first..first + inputs];
                    let term = |(input, weight): (usize, &f64)| weight * source.number(y, x, input);
                    sum += own.iter().enumerate().map(term).sum::<f64>();
                }
            }
            sum
        });
    }
}

/// `MPSCNNConvolutionWeightsAndBiasesState` over buffers of the program.
struct State {
    weights: (Ref<Buffer>, usize),
    biases: Option<(Ref<Buffer>, usize)>,
    /// Weights and output channels.
    count: (usize, usize),
}

elinvar_objc::object!(State, c"MPSCNNConvolutionWeightsAndBiasesState");

impl State {
    fn of(
        weights: Ref<Buffer>,
        weights_offset: usize,
        biases: Option<Ref<Buffer>>,
        biases_offset: usize,
        descriptor: Ref<ConvolutionDescriptor>,
    ) -> Option<Self> {
        const METHOD: &str = "-[MPSCNNConvolutionWeightsAndBiasesState initWithWeights:…]:";
        let shape = descriptor.shape();
        let fits = |buffer: &Ref<Buffer>, offset: usize, count: usize| {
            offset.is_multiple_of(4) && offset + count * 4 <= buffer.store().length()
        };
        require!(
            fits(&weights, weights_offset, shape.weights()),
            "{METHOD} {} weights from {weights_offset} on are not within the buffer",
            shape.weights()
        );
        let all = biases.as_ref().is_none_or(|biases| fits(biases, biases_offset, shape.outputs));
        require!(all, "{METHOD} the biases from {biases_offset} on are not within the buffer");
        Some(Self {
            weights: (weights, weights_offset),
            biases: biases.map(|biases| (biases, biases_offset)),
            count: (shape.weights(), shape.outputs),
        })
    }
}

pub fn register() {
    elinvar_objc::describe(c"MPSCNNConvolutionDataSource", &DATA_SOURCE);
    type Descriptor = ConvolutionDescriptor;
    Declaration::<Descriptor>::new()
        .class_method(
            "cnnConvolutionDescriptorWithKernelWidth:kernelHeight:inputFeatureChannels:outputFeatureChannels:",
            Descriptor::new,
        )
        .property("kernelWidth", |d: &Descriptor| &d.width)
        .property("kernelHeight", |d: &Descriptor| &d.height)
        .property("inputFeatureChannels", |d: &Descriptor| &d.inputs)
        .property("outputFeatureChannels", |d: &Descriptor| &d.outputs)
        .property("strideInPixelsX", |d: &Descriptor| &d.across)
        .property("strideInPixelsY", |d: &Descriptor| &d.down)
        .property("dilationRateX", |d: &Descriptor| &d.dilation_across)
        .property("dilationRateY", |d: &Descriptor| &d.dilation_down)
        .property("groups", |d: &Descriptor| &d.groups)
        .copies()
        .register();
    filter(Declaration::<Convolution>::new().below(c"MPSCNNKernel"), |c: &Convolution| &c.filter)
        .init("initWithDevice:weights:", Convolution::of)
        .property("accumulatorPrecisionOption", |c: &Convolution| &c.accumulator)
        .method("dataSource", |this: &Ref<Convolution>| this.source.clone())
        .method("inputFeatureChannels", |this: &Ref<Convolution>| this.shape.inputs)
        .method("outputFeatureChannels", |this: &Ref<Convolution>| this.shape.outputs)
        .method("reloadWeightsAndBiasesWithCommandBuffer:state:", Convolution::reload)
        .method("encodeToCommandBuffer:sourceImage:destinationImage:", Convolution::encode)
        .register();
    Declaration::<State>::new()
        .init("initWithWeights:weightsOffset:biases:biasesOffset:cnnConvolutionDescriptor:", State::of)
        .register();
}
