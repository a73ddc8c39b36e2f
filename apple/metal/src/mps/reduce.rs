//! [`MPSNNReduceUnary`](https://developer.apple.com/documentation/metalperformanceshaders/mpsnnreduceunary): one result for each row or
//! column of an image. Reductions over feature channels and `clipRectSource` are not supported.

use elinvar_objc::{Declaration, Declared, Ref};

use super::filter::{Filter, Source, filter};
use super::image::{Image, ImageSize};
use crate::commands::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::require;

/// The class with a number of [`KINDS`].
struct Reduce<const KIND: usize>(Filter);

/// Whether rows are reduced (otherwise columns), and the reduction.
type Kind = (bool, fn(&[f64]) -> f64);

const KINDS: [Kind; 8] = [
    (true, sum),
    (true, mean),
    (true, least),
    (true, greatest),
    (false, sum),
    (false, mean),
    (false, least),
    (false, greatest),
];

elinvar_objc::object!(Reduce<0>, c"MPSNNReduceRowSum");
elinvar_objc::object!(Reduce<1>, c"MPSNNReduceRowMean");
elinvar_objc::object!(Reduce<2>, c"MPSNNReduceRowMin");
elinvar_objc::object!(Reduce<3>, c"MPSNNReduceRowMax");
elinvar_objc::object!(Reduce<4>, c"MPSNNReduceColumnSum");
elinvar_objc::object!(Reduce<5>, c"MPSNNReduceColumnMean");
elinvar_objc::object!(Reduce<6>, c"MPSNNReduceColumnMin");
elinvar_objc::object!(Reduce<7>, c"MPSNNReduceColumnMax");

fn sum(numbers: &[f64]) -> f64 {
    numbers.iter().sum()
}

fn mean(numbers: &[f64]) -> f64 {
    sum(numbers) / numbers.len() as f64
}

fn least(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::INFINITY, f64::min)
}

fn greatest(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// The numbers of a row or column.
fn line(source: &Source, of_row: bool, at: usize, channel: usize) -> Vec<f64> {
    let ImageSize { width, height, .. } = source.size();
    let signed = super::filter::signed;
    let numbers: Vec<Option<f64>> = match of_row {
        true => (0..width).map(|column| source.within(signed(at), signed(column), channel)).collect(),
        false => (0..height).map(|row| source.within(signed(row), signed(at), channel)).collect(),
    };
    numbers.into_iter().flatten().collect()
}

fn encode<const KIND: usize>(
    this: &Ref<Reduce<KIND>>,
    buffer: Ref<CommandBuffer>,
    source: Ref<Image>,
    result: Ref<Image>,
) {
    const METHOD: &str = "-[MPSNNReduceUnary encodeToCommandBuffer:sourceImage:destinationImage:]:";
    let (of_row, make) = KINDS[KIND];
    let own = source.size;
    let expected = if of_row { ImageSize { width: 1, ..own } } else { ImageSize { height: 1, ..own } };
    // A guess: the result must have exactly this size.
    require!(result.size == expected, "{METHOD} the result is {:?}, needed is {expected:?}", result.size);
    this.0.encode(METHOD, &buffer, [&source, &result], move |source, _, [row, column, channel]| {
        make(&line(source, of_row, if of_row { row } else { column }, channel))
    });
}

fn declare<const KIND: usize>()
where
    Reduce<KIND>: Declared,
{
    let class = Declaration::<Reduce<KIND>>::new().below(c"MPSCNNKernel");
    filter(class, |this: &Reduce<KIND>| &this.0)
        .init("initWithDevice:", |device: Ref<Device>| Some(Reduce::<KIND>(Filter::new(device))))
        .method("encodeToCommandBuffer:sourceImage:destinationImage:", encode::<KIND>)
        .register();
}

pub fn register() {
    declare::<0>();
    declare::<1>();
    declare::<2>();
    declare::<3>();
    declare::<4>();
    declare::<5>();
    declare::<6>();
    declare::<7>();
}
