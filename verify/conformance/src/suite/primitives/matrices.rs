//! Products, softmax and reductions.

use elinvar::driver::primitive::{Extent, MatMul, MatVec, Matrix, Reduction, ReductionKind, Softmax};
use elinvar::{Device, Primitive, f16};

use super::{CaseResult, Exact, Number, Stored, computed, points, typed};

cases!("primitives": products, products_of_several, a_beta_of_zero_ignores_what_was_there, matrix_and_vector,
    softmax_of_rows, reductions);

/// Number of elements before a matrix, and of padding elements between rows.
const PLACES: [[usize; 2]; 3] = [[0, 0], [4, 0], [8, 4]];

/// Rows, interior, columns.
const SHAPES: [[u32; 3]; 5] = [[1, 1, 1], [3, 5, 2], [17, 33, 9], [1, 40, 7], [32, 16, 32]];

fn products(device: &Device) -> CaseResult {
    products_of::<f32>(device)?;
    products_of::<f16>(device)
}

fn products_of<T: Number>(device: &Device) -> CaseResult {
    for (number, shape) in SHAPES.into_iter().enumerate() {
        for (transposes, factors) in [(0, [1.0, 0.0]), (1, [0.5, 0.0]), (2, [1.0, 1.0]), (3, [-2.0, 0.25])] {
            product::<T>(device, shape, transposes, factors, PLACES[number % 3], 1)?;
            product::<T>(device, shape, 3 - transposes, factors, PLACES[(number + 1) % 3], 1)?;
        }
    }
    Ok(())
}

fn products_of_several(device: &Device) -> CaseResult {
    for (transposes, place) in PLACES.into_iter().enumerate() {
        product::<f32>(device, [5, 7, 3], transposes as u32, [1.5, 0.5], place, 3)?;
        product::<f16>(device, [5, 7, 3], transposes as u32, [1.5, 0.5], place, 3)?;
    }
    Ok(())
}

fn product<T: Number>(
    device: &Device,
    [rows, interior, columns]: [u32; 3],
    transposes: u32,
    [alpha, beta]: [f32; 2],
    place: [usize; 2],
    count: usize,
) -> CaseResult {
    let (transpose_left, transpose_right) = (transposes & 1 == 1, transposes & 2 == 2);
    let turned = |[rows, columns]: [u32; 2], turn: bool| if turn { [columns, rows] } else { [rows, columns] };
    let left = Stored::<T>::new(device, turned([rows, interior], transpose_left), place, count, 1)?;
    let right = Stored::<T>::new(device, turned([interior, columns], transpose_right), place, count, 2)?;
    let mut result =
        Stored::<T>::new(device, [rows, columns], place, count, if beta == 0.0 { 0 } else { 3 })?;
    let (a, b, before) = (left.values()?, right.values()?, result.values()?);
    let primitive = Primitive::MatMul(MatMul {
        float: T::FLOAT,
        matrices: count as u32,
        left: left.shape,
        transpose_left,
        right: right.shape,
        transpose_right,
        result: result.shape,
        alpha,
        beta,
    });
    let operands = (left.buffer.slice(left.range())?, right.buffer.slice(right.range())?, result.range());
    let (l, r, range) = operands;
    computed(&device.stream()?, &primitive, (l, r, result.buffer.slice_mut(range)?))?;
    let exact = |matrix: usize, row: usize, column: usize| {
        let term = |k: usize| {
            let (x, y) = if transpose_left { (k, row) } else { (row, k) };
            let (u, v) = if transpose_right { (column, k) } else { (k, column) };
            a[left.at(matrix, x, y)] * b[right.at(matrix, u, v)] * f64::from(alpha)
        };
        let held = f64::from(beta) * before[result.at(matrix, row, column)];
        Exact::of((0..interior as usize).map(term).chain([held]))
    };
    result.expect(&format!("{primitive:?}"), &before, exact)?;
    Ok(())
}

fn a_beta_of_zero_ignores_what_was_there(device: &Device) -> CaseResult {
    let stream = device.stream()?;
    let (a, b) = (device.buffer_with_data(&[2.0f32, 3.0])?, device.buffer_with_data(&[4.0f32, 5.0])?);
    let mut result = device.buffer_with_data(&[f32::NAN])?;
    let product = Primitive::MatMul(MatMul::packed(f32::FLOAT, 1, 2, 1));
    computed(&stream, &product, (&a, &b, &mut result))?;
    assert_eq!(result.to_vec()?, [23.0]);
    result.fill(f32::INFINITY)?;
    let matrix = Matrix::packed(f32::FLOAT, 1, 2);
    let product = MatVec { float: f32::FLOAT, matrix, transpose: false, alpha: -1.0, beta: 0.0 };
    computed(&stream, &Primitive::MatVec(product), (&a, &b, &mut result))?;
    assert_eq!(result.to_vec()?, [-23.0]);
    Ok(())
}

fn matrix_and_vector(device: &Device) -> CaseResult {
    for (number, [rows, columns, _]) in SHAPES.into_iter().enumerate() {
        for (transpose, factors) in [(false, [1.0, 0.0]), (true, [0.5, 2.0]), (false, [-1.0, 1.0])] {
            vector_product::<f32>(device, [rows, columns], transpose, factors, PLACES[number % 3])?;
            vector_product::<f16>(device, [rows, columns], transpose, factors, PLACES[number % 3])?;
        }
    }
    Ok(())
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
        Primitive::MatVec(MatVec { float: T::FLOAT, matrix: matrix.shape, transpose, alpha, beta });
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
        float: T::FLOAT,
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
    let reduction = Reduction { float: T::FLOAT, kind, each, source: source.shape };
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
