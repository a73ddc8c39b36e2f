//! Tensor operations, by kernels and by libraries, compared with the same operations in `f64` on the host.
//!
//! Operands are multiples of 1/16 up to 2 in magnitude, which are exact in every type, at sizes that are no multiples of anything, in
//! row-major order, transposed, and as slices of larger tensors. Every element of a result is compared, and the elements around a slice
//! must not change. A tolerance is derived where it is used; [`Near`] adds the rounding of the result's type.

mod attention;
mod distant;
mod errors;
mod libraries;
mod maps;
mod normalization;
mod order;
mod products;
mod reductions;
mod shapes;
mod windows;

use elinvar::tensor::{DataType, Operation, Plan, Route, TensorMut, TensorRef};
use elinvar::{Buffer, Device, bf16, f16};

use super::{Case, CaseResult};
pub(super) use distant::distant_rows;

/// All cases of the chapter.
pub(super) fn all() -> Vec<Case> {
    [
        shapes::CASES,
        maps::CASES,
        reductions::CASES,
        products::CASES,
        normalization::CASES,
        windows::CASES,
        attention::CASES,
        order::CASES,
        errors::CASES,
        libraries::CASES,
    ]
    .concat()
}

/// Half a unit in the last place of 1: a rounding to the type has at most this relative error.
const fn unit(data_type: DataType) -> f64 {
    match data_type {
        DataType::F16 => 1.0 / (1 << 11) as f64,
        DataType::BF16 => 1.0 / (1 << 8) as f64,
        _ => UNIT,
    }
}

/// Half a unit in the last place of a `f32` 1.
const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// Values of this magnitude and less may be 0: subnormal numbers of the shortest type.
const fn least(data_type: DataType) -> f64 {
    match data_type {
        DataType::F16 => 1.0 / (1 << 24) as f64,
        _ => f32::MIN_POSITIVE as f64,
    }
}

/// An exact value with the error that `f32` arithmetic may have made before the result was rounded.
#[derive(Clone, Copy, Debug)]
struct Near {
    value: f64,
    error: f64,
}

impl Near {
    fn exact(value: f64) -> Self {
        Self { value, error: 0.0 }
    }

    /// A sum of `terms` in any order, each with a relative error of a few roundings: `(terms + 2) · u · Σ|term|`.
    fn sum(terms: impl IntoIterator<Item = f64>) -> Self {
        let (mut value, mut size, mut count) = (0.0, 0.0, 0.0);
        for term in terms {
            value += term;
            size += term.abs();
            count += 1.0;
        }
        Self { value, error: (count + 2.0) * UNIT * size }
    }

    fn accepts(self, got: f64, data_type: DataType) -> bool {
        let Self { value, error } = self;
        if value.is_nan() || value.is_infinite() {
            return got.to_bits() == value.to_bits() || got.is_nan() && value.is_nan();
        }
        let largest = if data_type == DataType::F16 { 65504.0 } else { f64::from(f32::MAX) };
        if got.is_infinite() {
            return value.abs() + error >= largest && got.is_sign_positive() == value.is_sign_positive();
        }
        let rounding = if data_type.is_float() { unit(data_type) * (value.abs() + error) } else { 0.0 };
        (got - value).abs() <= error + rounding + if data_type.is_float() { least(data_type) } else { 0.0 }
    }
}

/// Pseudorandom numbers, determined by a seed.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A multiple of 1/16 from -2 to 2, or an integer from -100 to 100.
    fn value(&mut self, data_type: DataType) -> f64 {
        match data_type {
            DataType::U8 => self.below(4) as f64,
            DataType::I8 | DataType::I32 => self.below(201) as f64 - 100.0,
            _ => self.below(65) as f64 / 16.0 - 2.0,
        }
    }

    fn values(&mut self, count: usize, data_type: DataType) -> Vec<f64> {
        (0..count).map(|_| self.value(data_type)).collect()
    }
}

fn encode(values: &[f64], data_type: DataType) -> Vec<u8> {
    let of = |value: &f64| match data_type {
        DataType::F32 => (*value as f32).to_le_bytes().to_vec(),
        DataType::F16 => f16::from_f64(*value).to_le_bytes().to_vec(),
        DataType::BF16 => bf16::from_f64(*value).to_le_bytes().to_vec(),
        DataType::I32 => (*value as i32).to_le_bytes().to_vec(),
        DataType::I8 => (*value as i8).to_le_bytes().to_vec(),
        DataType::U8 => vec![*value as u8],
        other => panic!("{other}"),
    };
    values.iter().flat_map(of).collect()
}

fn decode(bytes: &[u8], data_type: DataType) -> Vec<f64> {
    let of = |bytes: &[u8]| match (data_type, bytes) {
        (DataType::F32, [a, b, c, d]) => f32::from_le_bytes([*a, *b, *c, *d]).into(),
        (DataType::F16, [a, b]) => f16::from_le_bytes([*a, *b]).to_f64(),
        (DataType::BF16, [a, b]) => bf16::from_le_bytes([*a, *b]).to_f64(),
        (DataType::I32, [a, b, c, d]) => i32::from_le_bytes([*a, *b, *c, *d]).into(),
        (DataType::I8, [a]) => a.cast_signed().into(),
        (DataType::U8, [a]) => (*a).into(),
        (other, bytes) => panic!("{other} of {} bytes", bytes.len()),
    };
    bytes.chunks_exact(data_type.size() as usize).map(of).collect()
}

/// How a tensor lies in its buffer.
#[derive(Clone, Debug, Default, PartialEq)]
struct Layout {
    /// Axes in the order of memory, the outermost first; row-major if empty.
    order: Vec<usize>,
    /// Elements before and after the tensor along each of its axes.
    margins: Vec<(usize, usize)>,
    /// Steps between elements along each axis.
    steps: Vec<usize>,
}

impl Layout {
    fn row_major() -> Self {
        Self::default()
    }

    /// The last two axes exchanged.
    fn transposed(rank: usize) -> Self {
        let mut order: Vec<usize> = (0..rank).collect();
        if rank > 1 {
            order.swap(rank - 1, rank - 2);
        }
        Self { order, ..Self::default() }
    }

    /// Any order, with margins and steps.
    fn random(rank: usize, random: &mut Random) -> Self {
        let mut order: Vec<usize> = (0..rank).collect();
        for at in (1..rank).rev() {
            order.swap(at, random.below(at + 1));
        }
        if random.below(3) == 0 {
            return Self { order, ..Self::default() };
        }
        let margins = (0..rank).map(|_| (random.below(3), random.below(3))).collect();
        let steps = (0..rank).map(|_| random.pick(&[1, 1, 1, 2])).collect();
        Self { order, margins, steps }
    }
}

/// A tensor in a buffer that may be larger.
struct Stored {
    buffer: Buffer<u8>,
    data_type: DataType,
    shape: Vec<usize>,
    layout: Layout,
    /// The content of the buffer, in elements.
    before: Vec<f64>,
}

impl Stored {
    fn new(
        device: &Device,
        data_type: DataType,
        shape: &[usize],
        layout: Layout,
        values: &[f64],
    ) -> Result<Self, super::Failure> {
        let mut stored =
            Self { buffer: device.buffer(0)?, data_type, shape: shape.to_vec(), layout, before: Vec::new() };
        let count: usize = stored.outer().iter().product();
        // Elements outside the tensor have a value that none of it has.
        stored.before = vec![7.0; count];
        for (value, at) in values.iter().zip(stored.places()) {
            stored.before[at] = *value;
        }
        stored.buffer = device.buffer_with_data(&encode(&stored.before, data_type))?;
        Ok(stored)
    }

    fn random(
        device: &Device,
        data_type: DataType,
        shape: &[usize],
        layout: Layout,
        random: &mut Random,
    ) -> Result<(Self, Vec<f64>), super::Failure> {
        let values = random.values(shape.iter().product(), data_type);
        Ok((Self::new(device, data_type, shape, layout, &values)?, values))
    }

    fn order(&self) -> Vec<usize> {
        match self.layout.order.is_empty() {
            true => (0..self.shape.len()).collect(),
            false => self.layout.order.clone(),
        }
    }

    fn margin(&self, axis: usize) -> (usize, usize) {
        self.layout.margins.get(axis).copied().unwrap_or_default()
    }

    fn step(&self, axis: usize) -> usize {
        self.layout.steps.get(axis).copied().unwrap_or(1)
    }

    /// Size of the whole buffer along an axis.
    fn outer_size(&self, axis: usize) -> usize {
        let (before, after) = self.margin(axis);
        before + self.shape[axis] * self.step(axis) + after
    }

    /// Shape of the whole buffer, in the order of memory.
    fn outer(&self) -> Vec<usize> {
        self.order().iter().map(|axis| self.outer_size(*axis)).collect()
    }

    /// Index in the buffer of each element of the tensor, in row-major order. Computed without the code under test.
    fn places(&self) -> Vec<usize> {
        let mut strides = vec![0; self.shape.len()];
        let mut stride = 1;
        for axis in self.order().into_iter().rev() {
            strides[axis] = stride;
            stride *= self.outer_size(axis);
        }
        let place = |index: Vec<usize>| {
            let along =
                |(axis, at): (usize, &usize)| (self.margin(axis).0 + at * self.step(axis)) * strides[axis];
            index.iter().enumerate().map(along).sum()
        };
        indices(&self.shape).map(place).collect()
    }

    fn view(&self) -> elinvar::Result<TensorRef<'_>> {
        let mut view = TensorRef::of_bytes(&self.buffer, self.data_type, &self.outer())?;
        view = view.permute(&self.inverse())?;
        for axis in 0..self.shape.len() {
            let begin = self.margin(axis).0;
            view =
                view.slice_step(axis, begin..begin + self.shape[axis] * self.step(axis), self.step(axis))?;
        }
        assert_eq!(view.shape(), self.shape);
        Ok(view)
    }

    fn view_mut(&mut self) -> elinvar::Result<TensorMut<'_>> {
        let (outer, inverse) = (self.outer(), self.inverse());
        let axes: Vec<_> = (0..self.shape.len())
            .map(|axis| (self.margin(axis).0, self.shape[axis] * self.step(axis), self.step(axis)))
            .collect();
        let mut view = TensorMut::of_bytes(&mut self.buffer, self.data_type, &outer)?.permute(&inverse)?;
        for (axis, (begin, len, step)) in axes.into_iter().enumerate() {
            view = view.slice_step(axis, begin..begin + len, step)?;
        }
        Ok(view)
    }

    fn inverse(&self) -> Vec<usize> {
        let order = self.order();
        (0..order.len()).map(|axis| order.iter().position(|of| *of == axis).unwrap_or(axis)).collect()
    }

    /// Compares every element with `expected`, and those around the tensor with what they were.
    #[track_caller]
    fn expect(&self, what: &str, expected: impl Fn(usize) -> Near) -> CaseResult {
        let got = decode(&self.buffer.to_vec()?, self.data_type);
        let places = self.places();
        for (at, place) in places.iter().enumerate() {
            let (expected, got) = (expected(at), got[*place]);
            assert!(
                expected.accepts(got, self.data_type),
                "{what}: element {at} of {:?} ({}, {:?}): {got}, expected {expected:?}",
                self.shape,
                self.data_type,
                self.layout
            );
        }
        let mut inside = vec![false; got.len()];
        places.iter().for_each(|place| inside[*place] = true);
        for (at, value) in got.iter().enumerate().filter(|(at, _)| !inside[*at]) {
            assert_eq!(
                value.to_bits(),
                self.before[at].to_bits(),
                "{what}: element {at} of the buffer has changed"
            );
        }
        Ok(())
    }
}

/// All indices of a shape, in row-major order.
fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let (shape, count) = (shape.to_vec(), shape.iter().product::<usize>());
    (0..count).map(move |mut linear| {
        let mut index = vec![0; shape.len()];
        for axis in (0..shape.len()).rev() {
            index[axis] = linear % shape[axis];
            linear /= shape[axis];
        }
        index
    })
}

/// Row-major index of an index.
fn linear(index: &[usize], shape: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |linear, (at, size)| linear * size + at)
}

/// Index in a tensor of shape `from` that is broadcast, of an index of the result.
fn broadcast(index: &[usize], from: &[usize]) -> usize {
    let index = &index[index.len() - from.len()..];
    let index: Vec<usize> =
        index.iter().zip(from).map(|(at, size)| if *size == 1 { 0 } else { *at }).collect();
    linear(&index, from)
}

/// Runs an operation by kernels, and waits.
fn compute(
    device: &Device,
    operation: impl Into<Operation>,
    inputs: &[&Stored],
    outputs: &mut [&mut Stored],
) -> CaseResult {
    let inputs = inputs.iter().map(|input| input.view()).collect::<elinvar::Result<Vec<_>>>()?;
    let mut outputs =
        outputs.iter_mut().map(|output| output.view_mut()).collect::<elinvar::Result<Vec<_>>>()?;
    let inputs: Vec<&TensorRef<'_>> = inputs.iter().collect();
    let mut outputs: Vec<&mut TensorMut<'_>> = outputs.iter_mut().collect();
    let plan = Plan::new(operation, &inputs, &mut outputs, Route::Kernel)?;
    assert_eq!(plan.route(), Route::Kernel);
    device.stream()?.tensor_plan(&plan)?.wait()?;
    Ok(())
}
