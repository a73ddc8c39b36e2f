//! Products, softmax and reductions.

use elinvar::driver::primitive::{
    Activation, DataType, Extent, MatMul, MatVec, Matrix, Reduction, ReductionKind, Softmax,
};
use elinvar::{Device, Primitive, bf16, f16};

use super::{CaseResult, Exact, Number, Parts, Stored, computed, numbers, points, typed};

cases!("primitives": products_f32, products_f16, products_bf16, products_i8, products_with_bias_and_activation,
    products_of_several, a_beta_of_zero_ignores_what_was_there, matrix_and_vector, softmax_of_rows, reductions);

/// Number of elements before a matrix, and of padding elements between rows.
const PLACES: [[usize; 2]; 3] = [[0, 0], [4, 0], [8, 4]];

/// Rows, interior, columns.
const SHAPES: [[u32; 3]; 5] = [[1, 1, 1], [3, 5, 2], [17, 33, 9], [1, 40, 7], [32, 16, 32]];

fn products_f32(device: &Device) -> CaseResult {
    products_of::<f32>(device)
}

fn products_f16(device: &Device) -> CaseResult {
    products_of::<f16>(device)
}

fn products_bf16(device: &Device) -> CaseResult {
    products_of::<bf16>(device)
}

fn products_of<T: Number>(device: &Device) -> CaseResult {
    for (number, shape) in SHAPES.into_iter().enumerate() {
        for (transposes, factors) in [(0, [1.0, 0.0]), (1, [0.5, 0.0]), (2, [1.0, 1.0]), (3, [-2.0, 0.25])] {
            let with = |transposes| Product { transposes, factors, ..Product::default() };
            product::<T>(device, shape, with(transposes), PLACES[number % 3])?;
            product::<T>(device, shape, with(3 - transposes), PLACES[(number + 1) % 3])?;
        }
    }
    Ok(())
}

fn products_of_several(device: &Device) -> CaseResult {
    let mut parts = Parts::default();
    for (transposes, place) in PLACES.into_iter().enumerate() {
        for shared in [false, true] {
            let with = Product {
                transposes: transposes as u32,
                factors: [1.5, 0.5],
                count: 3,
                shared,
                ..Product::default()
            };
            parts.add(product::<f32>(device, [5, 7, 3], with, place))?;
            parts.add(product::<f16>(device, [5, 7, 3], with, place))?;
            parts.add(product::<bf16>(device, [5, 7, 3], with, place))?;
        }
    }
    parts.end()
}

fn products_with_bias_and_activation(device: &Device) -> CaseResult {
    let mut parts = Parts::default();
    for (number, shape) in SHAPES.into_iter().enumerate() {
        for (bias, activation) in [
            (true, Activation::None),
            (false, Activation::Relu),
            (true, Activation::Relu),
            (false, Activation::Gelu),
            (true, Activation::Gelu),
        ] {
            let transposes = number as u32 % 4;
            let with = Product { transposes, factors: [0.125, 0.0], bias, activation, ..Product::default() };
            parts.add(product::<f32>(device, shape, with, PLACES[number % 3]))?;
            parts.add(product::<f16>(device, shape, with, PLACES[number % 3]))?;
            parts.add(product::<bf16>(device, shape, with, PLACES[number % 3]))?;
            let with = Product { factors: [0.25, 0.5], count: 2, ..with };
            parts.add(product::<f32>(device, shape, with, PLACES[number % 3]))?;
        }
    }
    parts.end()
}

/// What a product has besides its shape.
#[derive(Clone, Copy)]
struct Product {
    /// Bit 0: the left factor is transposed; bit 1: the right one.
    transposes: u32,
    /// Alpha and beta.
    factors: [f32; 2],
    bias: bool,
    activation: Activation,
    count: usize,
    /// All products have the right factor in common.
    shared: bool,
}

impl Default for Product {
    fn default() -> Self {
        let (bias, activation, shared) = (false, Activation::None, false);
        Self { transposes: 0, factors: [1.0, 0.0], bias, activation, count: 1, shared }
    }
}

fn product<T: Number>(
    device: &Device,
    [rows, interior, columns]: [u32; 3],
    Product { transposes, factors: [alpha, beta], bias, activation, count, shared }: Product,
    place: [usize; 2],
) -> CaseResult {
    let (transpose_left, transpose_right) = (transposes & 1 == 1, transposes & 2 == 2);
    let turned = |[rows, columns]: [u32; 2], turn: bool| if turn { [columns, rows] } else { [rows, columns] };
    let left = Stored::<T>::new(device, turned([rows, interior], transpose_left), place, count, 1)?;
    let right_size = turned([interior, columns], transpose_right);
    let mut right = Stored::<T>::new(device, right_size, place, if shared { 1 } else { count }, 2)?;
    if shared {
        right.shape.matrix_bytes = 0;
    }
    let biases = Stored::<T>::new(device, [1, columns], [place[0], 0], 1, 8)?;
    let mut result =
        Stored::<T>::new(device, [rows, columns], place, count, if beta == 0.0 { 0 } else { 3 })?;
    let (a, b, before, added) = (left.values()?, right.values()?, result.values()?, biases.values()?);
    let primitive = Primitive::MatMul(MatMul {
        data_type: T::DATA_TYPE,
        matrices: count as u32,
        left: left.shape,
        transpose_left,
        right: right.shape,
        transpose_right,
        result: result.shape,
        alpha,
        beta,
        bias,
        activation,
    });
    let (l, r, range) =
        (left.buffer.slice(left.range())?, right.buffer.slice(right.range())?, result.range());
    let (stream, written) = (device.stream()?, result.buffer.slice_mut(range)?);
    match bias {
        true => computed(&stream, &primitive, (l, r, biases.buffer.slice(biases.range())?, written))?,
        false => computed(&stream, &primitive, (l, r, written))?,
    }
    let exact = |matrix: usize, row: usize, column: usize| {
        let term = |k: usize| {
            let (x, y) = if transpose_left { (k, row) } else { (row, k) };
            let (u, v) = if transpose_right { (column, k) } else { (k, column) };
            a[left.at(matrix, x, y)] * b[right.at(matrix, u, v)] * f64::from(alpha)
        };
        let held = f64::from(beta) * before[result.at(matrix, row, column)];
        let sum = Exact::of((0..interior as usize).map(term).chain([held]));
        activated(if bias { sum.plus(added[biases.at(0, 0, column)], T::UNIT) } else { sum }, activation)
    };
    result.expect(&format!("{primitive:?}"), &before, exact)?;
    Ok(())
}

/// The slope of both functions is less than 1.2, and the error of a hyperbolic tangent is less than 2⁻¹⁰ on GPUs
/// ([PTX ISA, `tanh.approx`](https://docs.nvidia.com/cuda/parallel-thread-execution/)).
fn activated(exact: Exact, activation: Activation) -> Exact {
    let Exact { value: x, size, terms } = exact;
    match activation {
        Activation::Relu => Exact { value: x.max(0.0), ..exact },
        Activation::Gelu => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            let of_tanh = x.abs() * 2f64.powi(-10) / f64::from(f32::EPSILON) / terms;
            Exact { value: x / 2.0 * (1.0 + inner.tanh()), size: 1.2 * size + of_tanh, terms }
        }
        _ => exact,
    }
}

/// Products of integers are exact.
fn products_i8(device: &Device) -> CaseResult {
    let mut parts = Parts::default();
    for [rows, interior, columns] in [[1, 4, 4], [3, 8, 12], [33, 64, 20], [17, 129, 9], [128, 256, 64]] {
        for (transposes, beta) in [(2u32, 0.0), (2, 1.0), (0, 0.0), (1, 1.0), (3, 0.0)] {
            parts.add(integer_product(device, [rows, interior, columns], transposes, beta))?;
        }
    }
    parts.end()
}

fn integer_product(
    device: &Device,
    [rows, interior, columns]: [u32; 3],
    transposes: u32,
    beta: f32,
) -> CaseResult {
    let (transpose_left, transpose_right) = (transposes & 1 == 1, transposes & 2 == 2);
    // 65 different values, and the extremes.
    let bytes = |count: u32, seed: u32| -> Vec<i8> {
        let all = numbers(count as usize, seed).into_iter().enumerate();
        all.map(|(i, value)| if i % 7 == 0 { [-128, 127][i % 2] } else { (value * 16.0) as i8 }).collect()
    };
    let (a, b) = (bytes(rows * interior, 1), bytes(interior * columns, 2));
    let before: Vec<i32> = (0..(rows * columns) as i32).map(|i| i * 1000 - 7).collect();
    let (left, right) = (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?);
    let mut result = device.buffer_with_data(&before)?;
    let turned = |[rows, columns]: [u32; 2], turn| if turn { [columns, rows] } else { [rows, columns] };
    let matrix = |size: [u32; 2]| Matrix::packed(DataType::I8, size[0], size[1]);
    let primitive = Primitive::MatMul(MatMul {
        left: matrix(turned([rows, interior], transpose_left)),
        transpose_left,
        right: matrix(turned([interior, columns], transpose_right)),
        transpose_right,
        beta,
        ..MatMul::packed(DataType::I8, rows, interior, columns)
    });
    computed(&device.stream()?, &primitive, (&left, &right, &mut result))?;
    let [rows, interior, columns] = [rows, interior, columns].map(|size| size as usize);
    for (at, (got, before)) in result.to_vec()?.into_iter().zip(before).enumerate() {
        let (row, column) = (at / columns, at % columns);
        let term = |k: usize| {
            let left = a[if transpose_left { k * rows + row } else { row * interior + k }];
            let right = b[if transpose_right { column * interior + k } else { k * columns + column }];
            i32::from(left) * i32::from(right)
        };
        let sum: i32 = (0..interior).map(term).sum();
        assert_eq!(got, sum + if beta == 0.0 { 0 } else { before }, "{primitive:?}: {row}, {column}");
    }
    Ok(())
}

fn a_beta_of_zero_ignores_what_was_there(device: &Device) -> CaseResult {
    let stream = device.stream()?;
    let (a, b) = (device.buffer_with_data(&[2.0f32, 3.0])?, device.buffer_with_data(&[4.0f32, 5.0])?);
    let mut result = device.buffer_with_data(&[f32::NAN])?;
    let product = Primitive::MatMul(MatMul::packed(DataType::F32, 1, 2, 1));
    computed(&stream, &product, (&a, &b, &mut result))?;
    assert_eq!(result.to_vec()?, [23.0]);
    result.fill(f32::INFINITY)?;
    let matrix = Matrix::packed(DataType::F32, 1, 2);
    let product = MatVec { data_type: DataType::F32, matrix, transpose: false, alpha: -1.0, beta: 0.0 };
    computed(&stream, &Primitive::MatVec(product), (&a, &b, &mut result))?;
    assert_eq!(result.to_vec()?, [-23.0]);
    Ok(())
}

fn matrix_and_vector(device: &Device) -> CaseResult {
    let mut parts = Parts::default();
    for (number, [rows, columns, _]) in SHAPES.into_iter().enumerate() {
        for (transpose, factors) in [(false, [1.0, 0.0]), (true, [0.5, 2.0]), (false, [-1.0, 1.0])] {
            let place = PLACES[number % 3];
            parts.add(vector_product::<f32>(device, [rows, columns], transpose, factors, place))?;
            parts.add(vector_product::<f16>(device, [rows, columns], transpose, factors, place))?;
            parts.add(vector_product::<bf16>(device, [rows, columns], transpose, factors, place))?;
        }
    }
    parts.end()
}

fn vector_product<T: Number>(
    device: &Device,
    size: [u32; 2],
    transpose: bool,
    [alpha, beta]: [f32; 2],
    place: [usize; 2],
) -> CaseResult {
    let matrix = Stored::<T>::new(device, size, place, 1, 4)?;
    let [rows, columns] = if transpose { [size[1], size[0]] } else { size };
    let vector = Stored::<T>::new(device, [1, columns], [place[0], 0], 1, 5)?;
    let mut result = Stored::<T>::new(device, [1, rows], [place[0], 0], 1, 6)?;
    let (m, v, before) = (matrix.values()?, vector.values()?, result.values()?);
    let primitive =
        Primitive::MatVec(MatVec { data_type: T::DATA_TYPE, matrix: matrix.shape, transpose, alpha, beta });
    let (l, r) = (matrix.buffer.slice(matrix.range())?, vector.buffer.slice(vector.range())?);
    let range = result.range();
    computed(&device.stream()?, &primitive, (l, r, result.buffer.slice_mut(range)?))?;
    let exact = |_: usize, _: usize, row: usize| {
        let term = |k: usize| {
            let (x, y) = if transpose { (k, row) } else { (row, k) };
            m[matrix.at(0, x, y)] * v[vector.at(0, 0, k)] * f64::from(alpha)
        };
        let held = f64::from(beta) * before[result.at(0, 0, row)];
        Exact::of((0..columns as usize).map(term).chain([held]))
    };
    result.expect(&format!("{primitive:?}"), &before, exact)?;
    Ok(())
}

fn softmax_of_rows(device: &Device) -> CaseResult {
    for (number, [rows, columns, _]) in SHAPES.into_iter().enumerate() {
        for logarithm in [false, true] {
            softmax_of::<f32>(device, [rows, columns], logarithm, PLACES[number % 3])?;
            softmax_of::<f16>(device, [rows, columns], logarithm, PLACES[number % 3])?;
        }
    }
    Ok(())
}

fn softmax_of<T: Number>(device: &Device, size: [u32; 2], logarithm: bool, place: [usize; 2]) -> CaseResult {
    let mut source = Stored::<T>::new(device, size, place, 1, 7)?;
    // Some values are so large that their exponential is not representable.
    let mut values = source.values()?;
    values.iter_mut().step_by(5).for_each(|value| *value += 500.0);
    source.buffer.write(&typed::<T>(&values))?;
    let values = source.values()?;
    let mut result = Stored::<T>::new(device, size, place, 1, 0)?;
    let before = result.values()?;
    let primitive = Primitive::Softmax(Softmax {
        data_type: T::DATA_TYPE,
        source: source.shape,
        result: result.shape,
        logarithm,
    });
    let range = result.range();
    let operands = (source.buffer.slice(source.range())?, result.buffer.slice_mut(range)?);
    computed(&device.stream()?, &primitive, operands)?;
    let exact = |_: usize, row: usize, column: usize| {
        let value = |column: usize| values[source.at(0, row, column)];
        let columns = size[1] as usize;
        let greatest = (0..columns).map(value).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = (0..columns).map(|k| (value(k) - greatest).exp()).sum();
        let log = value(column) - greatest - sum.ln();
        // An exponential has an error of a few units in the last place, and a difference of large numbers has that of the numbers.
        let (value, size) = if logarithm { (log, 4.0 + log.abs()) } else { (log.exp(), 8.0 * log.exp()) };
        Exact { value, size, terms: columns as f64 }
    };
    result.expect(&format!("{primitive:?}"), &before, exact)?;
    Ok(())
}

fn reductions(device: &Device) -> CaseResult {
    use ReductionKind::{Max, Mean, Min, Sum};
    for (number, [rows, columns, _]) in SHAPES.into_iter().enumerate() {
        for (kind, each) in [Sum, Mean, Min, Max].into_iter().zip([Extent::Row, Extent::Column].repeat(2)) {
            let other = if each == Extent::Row { Extent::Column } else { Extent::Row };
            reduction::<f32>(device, [rows, columns], kind, each, PLACES[number % 3])?;
            reduction::<f32>(device, [rows, columns], kind, other, PLACES[(number + 1) % 3])?;
            reduction::<f16>(device, [rows, columns], kind, each, PLACES[(number + 2) % 3])?;
            reduction::<f16>(device, [rows, columns], kind, other, PLACES[number % 3])?;
        }
    }
    Ok(())
}

fn reduction<T: Number>(
    device: &Device,
    size: [u32; 2],
    kind: ReductionKind,
    each: Extent,
    place: [usize; 2],
) -> CaseResult {
    let source = Stored::<T>::new(device, size, place, 1, 9)?;
    let values = source.values()?;
    let reduction = Reduction { data_type: T::DATA_TYPE, kind, each, source: source.shape };
    let mut result = Stored::<T>::new(device, [1, reduction.length()], [place[0], 0], 1, 0)?;
    let before = result.values()?;
    let primitive = Primitive::Reduction(reduction);
    let range = result.range();
    let operands = (source.buffer.slice(source.range())?, result.buffer.slice_mut(range)?);
    computed(&device.stream()?, &primitive, operands)?;
    let exact = |_: usize, _: usize, at: usize| {
        let all = points(size[0] as usize, size[1] as usize);
        let own = all.filter(|(row, column)| at == if each == Extent::Row { *row } else { *column });
        let own: Vec<f64> = own.map(|(row, column)| values[source.at(0, row, column)]).collect();
        let extreme = |value: f64| Exact { value, ..Exact::default() };
        match kind {
            ReductionKind::Min => extreme(own.into_iter().fold(f64::INFINITY, f64::min)),
            ReductionKind::Max => extreme(own.into_iter().fold(f64::NEG_INFINITY, f64::max)),
            ReductionKind::Mean => Exact::of(own.iter().copied()).times(1.0 / own.len() as f64),
            _ => Exact::of(own),
        }
    };
    result.expect(&format!("{primitive:?}"), &before, exact)?;
    Ok(())
}
