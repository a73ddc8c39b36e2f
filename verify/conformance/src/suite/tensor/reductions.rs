//! Reductions and softmax along any axes.

use elinvar::Device;
use elinvar::tensor::{DataType, Map, Reduce, Reduction, Softmax};

use super::super::CaseResult;
use super::{Layout, Near, Random, Stored, UNIT, compute, indices, linear};

cases! { "tensor": reductions, sums_of_integers, random_axes, long_rows, extremes, softmax, softmax_of_any_axis, softmax_of_lengths, softmax_of_many_rows, softmax_of_mixed_rows, softmax_of_growing_columns, softmax_of_growing_rows, softmax_of_many_columns, softmax_extremes }

const ALL: [Reduction; 7] = [
    Reduction::Sum,
    Reduction::Mean,
    Reduction::Product,
    Reduction::Min,
    Reduction::Max,
    Reduction::ArgMin,
    Reduction::ArgMax,
];

/// The reduction of values, in the order of their indices.
fn reduce(reduction: Reduction, values: &[f64]) -> Near {
    let count = values.len() as f64;
    let first = |best: fn(f64, f64) -> bool| {
        let is_nan = values.iter().position(|value| value.is_nan());
        let mut index = 0;
        for (at, value) in values.iter().enumerate() {
            if best(*value, values[index]) {
                index = at;
            }
        }
        is_nan.unwrap_or(index)
    };
    match reduction {
        Reduction::Sum => Near::sum(values.iter().copied()),
        Reduction::Mean => {
            let Near { value, error } = Near::sum(values.iter().copied());
            Near { value: value / count, error: (error + UNIT * value.abs()) / count }
        }
        Reduction::Product => {
            let value: f64 = values.iter().product();
            Near { value, error: (count + 1.0) * UNIT * value.abs() }
        }
        Reduction::Min => Near::exact(values[first(|a, b| a < b)]),
        Reduction::Max => Near::exact(values[first(|a, b| a > b)]),
        Reduction::ArgMin => Near::exact(first(|a, b| a < b) as f64),
        Reduction::ArgMax => Near::exact(first(|a, b| a > b) as f64),
        other => panic!("{other:?}"),
    }
}

/// The values that each element of the result is reduced from.
fn groups(values: &[f64], shape: &[usize], axes: &[usize]) -> Vec<Vec<f64>> {
    let kept: Vec<usize> =
        shape.iter().enumerate().map(|(axis, size)| if axes.contains(&axis) { 1 } else { *size }).collect();
    let mut groups = vec![Vec::new(); kept.iter().product()];
    for (index, value) in indices(shape).zip(values) {
        let index: Vec<usize> =
            index.iter().enumerate().map(|(axis, at)| if axes.contains(&axis) { 0 } else { *at }).collect();
        groups[linear(&index, &kept)].push(*value);
    }
    groups
}

fn check(
    device: &Device,
    operation: Reduce,
    (x, values): &(Stored, Vec<f64>),
    out_type: DataType,
    layout: Layout,
) -> CaseResult {
    let shape: Vec<usize> = x.shape.clone();
    let kept = |(axis, size): (usize, &usize)| match (operation.axes.contains(&axis), operation.keep_axes) {
        (true, true) => Some(1),
        (true, false) => None,
        _ => Some(*size),
    };
    let result: Vec<usize> = shape.iter().enumerate().filter_map(kept).collect();
    let layout = Layout {
        order: if layout.order.len() == result.len() { layout.order } else { Vec::new() },
        ..Layout::default()
    };
    let mut out = Stored::new(device, out_type, &result, layout, &[])?;
    let groups = groups(values, &shape, &operation.axes);
    let what = format!("{operation:?} of {shape:?} {:?}", x.layout);
    compute(device, operation.clone(), &[x], &mut [&mut out])?;
    out.expect(&what, |at| reduce(operation.reduction, &groups[at]))
}

/// Every reduction of every type, along rows and columns.
fn reductions(device: &Device) -> CaseResult {
    let mut random = Random::new(11);
    for reduction in ALL {
        let is_index = matches!(reduction, Reduction::ArgMin | Reduction::ArgMax);
        for data_type in DataType::FLOATS {
            let x = Stored::random(device, data_type, &[5, 67], Layout::row_major(), &mut random)?;
            let out_type = if is_index { DataType::I32 } else { data_type };
            check(device, Reduce::new(reduction, &[1]), &x, out_type, Layout::row_major())?;
            if data_type != DataType::BF16 {
                check(device, Reduce::new(reduction, &[0]).keep_axes(), &x, out_type, Layout::row_major())?;
            }
        }
    }
    Ok(())
}

fn sums_of_integers(device: &Device) -> CaseResult {
    let mut random = Random::new(12);
    let values: Vec<i32> = (0..300).map(|_| random.next() as i32).collect();
    let x = device.buffer_with_data(&values)?;
    let mut out = device.buffer::<i32>(3)?;
    let stream = device.stream()?;
    type Function = fn(i32, i32) -> i32;
    let all: [(Reduction, Function); 4] = [
        (Reduction::Sum, i32::wrapping_add),
        (Reduction::Product, i32::wrapping_mul),
        (Reduction::Min, i32::min),
        (Reduction::Max, i32::max),
    ];
    for (reduction, expected) in all {
        stream.tensor(
            Reduce::new(reduction, &[1]),
            &[&x.tensor(&[3, 100])?],
            &mut [&mut out.tensor_mut(&[3])?],
        )?;
        let wanted: Vec<i32> =
            values.chunks(100).map(|row| row.iter().copied().reduce(expected).unwrap_or(0)).collect();
        assert_eq!(out.to_vec()?, wanted, "{reduction:?}");
    }
    // Bytes are summed in i32.
    let bytes: Vec<i8> = values.iter().map(|value| *value as i8).collect();
    let x = device.buffer_with_data(&bytes)?;
    stream.tensor(Reduce::sum(&[1]), &[&x.tensor(&[3, 100])?], &mut [&mut out.tensor_mut(&[3])?])?;
    let wanted: Vec<i32> = bytes.chunks(100).map(|row| row.iter().map(|x| i32::from(*x)).sum()).collect();
    assert_eq!(out.to_vec()?, wanted);
    Ok(())
}

/// Random shapes, strides and sets of axes.
fn random_axes(device: &Device) -> CaseResult {
    let mut random = Random::new(13);
    for round in 0..12 {
        let rank = 1 + round % 5;
        let shape: Vec<usize> = (0..rank).map(|_| random.pick(&[1, 2, 3, 5, 35])).collect();
        let shape = if shape.iter().product::<usize>() > 3000 { vec![4; rank] } else { shape };
        let axes: Vec<usize> = (0..rank).filter(|_| random.below(2) == 0).collect();
        let data_type = random.pick(&DataType::FLOATS);
        let layout = Layout::random(rank, &mut random);
        let x = Stored::random(device, data_type, &shape, layout, &mut random)?;
        let reduction = [Reduction::Sum, Reduction::Max, Reduction::ArgMax][round % 3];
        let out_type = if reduction == Reduction::ArgMax { DataType::I32 } else { DataType::F32 };
        let operation = Reduce { reduction, axes, keep_axes: random.below(2) == 0 };
        let layout = Layout { order: Layout::random(rank, &mut random).order, ..Layout::default() };
        check(device, operation, &x, out_type, layout)?;
    }
    Ok(())
}

/// Few results of many elements, which are reduced in parts.
fn long_rows(device: &Device) -> CaseResult {
    let mut random = Random::new(14);
    let x = Stored::random(device, DataType::F32, &[2, 70_001], Layout::row_major(), &mut random)?;
    check(device, Reduce::sum(&[0, 1]), &x, DataType::F32, Layout::row_major())?;
    check(device, Reduce::mean(&[1]), &x, DataType::F32, Layout::row_major())?;
    check(device, Reduce::new(Reduction::ArgMin, &[1]), &x, DataType::I32, Layout::row_major())?;
    let x = Stored::random(device, DataType::F16, &[3001, 33], Layout::row_major(), &mut random)?;
    check(device, Reduce::mean(&[0]), &x, DataType::F32, Layout::row_major())?;
    check(device, Reduce::new(Reduction::Max, &[0]), &x, DataType::F16, Layout::row_major())
}

/// NaN wins, and the first of equal elements has the index. Without elements there is the neutral one.
fn extremes(device: &Device) -> CaseResult {
    let mut values = Random::new(15).values(64, DataType::F32);
    (values[5], values[9], values[40]) = (f64::NAN, f64::NAN, f64::INFINITY);
    values[33] = values[40];
    let x = (Stored::new(device, DataType::F32, &[2, 32], Layout::row_major(), &values)?, values);
    for reduction in [Reduction::Min, Reduction::Max] {
        let mut out = Stored::new(device, DataType::F32, &[2], Layout::row_major(), &[])?;
        compute(device, Reduce::new(reduction, &[1]), &[&x.0], &mut [&mut out])?;
        let least = x.1[32..].iter().copied().fold(f64::INFINITY, f64::min);
        let second = if reduction == Reduction::Min { least } else { f64::INFINITY };
        out.expect("extremes", |at| Near::exact([f64::NAN, second][at]))?;
    }
    for reduction in [Reduction::ArgMin, Reduction::ArgMax] {
        check(device, Reduce::new(reduction, &[1]), &x, DataType::I32, Layout::row_major())?;
        check(device, Reduce::new(reduction, &[0, 1]), &x, DataType::I32, Layout::row_major())?;
    }
    for (reduction, expected) in
        [(Reduction::Sum, 0.0), (Reduction::Product, 1.0), (Reduction::Mean, f64::NAN)]
    {
        let empty = Stored::new(device, DataType::F32, &[3, 0], Layout::row_major(), &[])?;
        let mut out = Stored::new(device, DataType::F32, &[3], Layout::row_major(), &[])?;
        compute(device, Reduce::new(reduction, &[1]), &[&empty], &mut [&mut out])?;
        out.expect("of no elements", |_| Near::exact(expected))?;
    }
    Ok(())
}

/// Exponentials have 8 roundings, a sum of n terms n, and the argument one of its magnitude.
fn check_softmax(device: &Device, operation: Softmax, x: &(Stored, Vec<f64>), mut out: Stored) -> CaseResult {
    let (stored, values) = x;
    compute(device, operation, &[stored], &mut [&mut out])?;
    let expected = softmax_of(operation, values, &stored.shape);
    out.expect(&format!("{operation:?} of {:?}", stored.shape), |at| expected[at])
}

/// The elements of a softmax.
pub(super) fn softmax_of(operation: Softmax, values: &[f64], shape: &[usize]) -> Vec<Near> {
    let groups = groups(values, shape, &[operation.axis]);
    let kept: Vec<usize> =
        shape.iter().enumerate().map(|(axis, size)| if axis == operation.axis { 1 } else { *size }).collect();
    let sums: Vec<(f64, f64)> = groups
        .iter()
        .map(|group| {
            let most = group.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            (most, group.iter().map(|x| (x - most).exp()).sum())
        })
        .collect();
    let count = shape[operation.axis] as f64;
    let element = |(mut of, value): (Vec<usize>, &f64)| {
        of[operation.axis] = 0;
        let (most, sum) = sums[linear(&of, &kept)];
        let shifted = value - most;
        match operation.logarithm {
            true => Near {
                value: shifted - sum.ln(),
                error: (count + 20.0) * UNIT * (1.0 + shifted.abs() + sum.ln()),
            },
            false => {
                let value = shifted.exp() / sum;
                // Of minus infinity, exactly 0.
                let error = if value == 0.0 { 0.0 } else { (count + 20.0 + shifted.abs()) * UNIT * value };
                Near { value, error }
            }
        }
    };
    indices(shape).zip(values).map(element).collect()
}

fn softmax(device: &Device) -> CaseResult {
    let mut random = Random::new(16);
    for data_type in DataType::FLOATS {
        for (shape, axis) in [([5, 67], 1), ([67, 35], 0), ([1, 1], 1)] {
            let x = Stored::random(device, data_type, &shape, Layout::row_major(), &mut random)?;
            for logarithm in [false, true] {
                let out = Stored::new(device, data_type, &shape, Layout::row_major(), &[])?;
                check_softmax(device, Softmax { axis, logarithm }, &x, out)?;
            }
        }
    }
    // Rows and columns of several blocks of elements, with a rest.
    for (shape, axis) in [([3, 1500], 1), ([70, 131], 1), ([131, 97], 0), ([5, 128], 1), ([9, 300], 0)] {
        let x = Stored::random(device, DataType::F32, &shape, Layout::row_major(), &mut random)?;
        for logarithm in [false, true] {
            let out = Stored::new(device, DataType::F32, &shape, Layout::row_major(), &[])?;
            check_softmax(device, Softmax { axis, logarithm }, &x, out)?;
        }
    }
    Ok(())
}

/// Columns in which each element is greater than those before, or only the last one, by more than a running maximum is off.
fn softmax_of_growing_columns(device: &Device) -> CaseResult {
    let (rows, columns) = (41, 70);
    let shape = [rows, columns];
    let value = |at: usize| {
        let (row, column) = (at / columns, at % columns);
        match column % 4 {
            0 => row as f64 * 1.75 - 20.0,
            1 => 30.0 - row as f64 * 1.5,
            2 if row == rows - 1 => 60.0,
            2 => -0.25 * column as f64,
            _ => ((row * 7 + column * 3) % 32) as f64 - 16.0,
        }
    };
    let values: Vec<f64> = (0..rows * columns).map(value).collect();
    for data_type in DataType::FLOATS {
        for logarithm in [false, true] {
            let x = Stored::new(device, DataType::F32, &shape, Layout::row_major(), &values)?;
            let out = Stored::new(device, data_type, &shape, Layout::row_major(), &[])?;
            // Results far below 1 are subnormal in `half`.
            if data_type != DataType::F16 || logarithm {
                check_softmax(device, Softmax { axis: 0, logarithm }, &(x, values.clone()), out)?;
            }
        }
    }
    Ok(())
}

/// Rows that are too long to be kept, of which the maximum changes late, is alone behind minus infinities, or is not a number.
fn softmax_of_growing_rows(device: &Device) -> CaseResult {
    let columns = 40_013;
    let value = |at: usize| match (at / columns, at % columns) {
        (0, column) => column as f64 * 0.001 - 20.0,
        (1, column) if column < 39_000 => f64::NEG_INFINITY,
        (2, column) if column == columns - 1 => 60.0,
        (3, 17) => f64::NAN,
        (4, _) => f64::NEG_INFINITY,
        (5, 40_000) => f64::INFINITY,
        (row, column) => ((row * 7 + column * 3) % 32) as f64 * 0.25 - 4.0,
    };
    let shape = [7, columns];
    let values: Vec<f64> = (0..7 * columns).map(value).collect();
    let x = Stored::new(device, DataType::F32, &shape, Layout::row_major(), &values)?;
    let x = (x, values);
    for logarithm in [false, true] {
        for data_type in [DataType::F32, DataType::BF16] {
            let out = Stored::new(device, data_type, &shape, Layout::row_major(), &[])?;
            check_softmax(device, Softmax { axis: 1, logarithm }, &x, out)?;
        }
    }
    Ok(())
}

/// Rows of one element, of odd lengths, longer than what is kept of them, and with gaps between their elements.
fn softmax_of_lengths(device: &Device) -> CaseResult {
    let mut random = Random::new(18);
    for (shape, axis) in [
        (vec![70, 1], 1),
        (vec![90, 31], 1),
        (vec![333, 129], 1),
        (vec![67, 3, 5], 1),
        (vec![90, 70, 3], 1),
        (vec![40, 7, 33], 0),
        (vec![2, 32_768], 1),
        (vec![3, 32_801], 1),
        (vec![1, 300_001], 1),
    ] {
        for data_type in DataType::FLOATS {
            let layout = Layout { margins: vec![(1, 2); shape.len()], ..Layout::row_major() };
            let x = Stored::random(device, data_type, &shape, layout, &mut random)?;
            for (to, logarithm) in [(data_type, false), (data_type, true), (DataType::F32, false)] {
                let out = Stored::new(device, to, &shape, Layout::row_major(), &[])?;
                check_softmax(device, Softmax { axis, logarithm }, &x, out)?;
            }
        }
    }
    Ok(())
}

/// More rows than a grid's axis may have threadgroups, and than one simdgroup has.
fn softmax_of_many_rows(device: &Device) -> CaseResult {
    for (shape, logarithm) in [([65_539, 5], false), ([70_001, 1], true), ([131_075, 33], false)] {
        let value = |at: usize| ((at * 7 + at / shape[1] * 3) % 32) as f64 * 0.25 - 4.0;
        let values: Vec<f64> = (0..shape[0] * shape[1]).map(value).collect();
        let x = Stored::new(device, DataType::F32, &shape, Layout::row_major(), &values)?;
        let out = Stored::new(device, DataType::F32, &shape, Layout::row_major(), &[])?;
        check_softmax(device, Softmax { axis: 1, logarithm }, &(x, values), out)?;
    }
    Ok(())
}

/// Ordinary rows between those with infinities, NaNs, and numbers of large magnitude: each row is on its own.
fn softmax_of_mixed_rows(device: &Device) -> CaseResult {
    let (rows, columns) = (701, 75);
    let value = |at: usize| {
        let (row, column) = (at / columns, at % columns);
        let special = column == row % columns;
        match row % 9 {
            1 if special => f64::NAN,
            2 if special => f64::INFINITY,
            3 if special => f64::NEG_INFINITY,
            4 => f64::NEG_INFINITY,
            5 if special => 3e38,
            6 => -3e38,
            7 if special => -3e38,
            _ => ((row * 5 + column * 3) % 64) as f64 * 0.125 - 4.0,
        }
    };
    let values: Vec<f64> = (0..rows * columns).map(value).collect();
    for logarithm in [false, true] {
        let x = Stored::new(device, DataType::F32, &[rows, columns], Layout::row_major(), &values)?;
        let out = Stored::new(device, DataType::F32, &[rows, columns], Layout::row_major(), &[])?;
        check_softmax(device, Softmax { axis: 1, logarithm }, &(x, values.clone()), out)?;
    }
    Ok(())
}

/// More outer axes than a grid has rows.
fn softmax_of_many_columns(device: &Device) -> CaseResult {
    let shape = [65_539, 2, 32];
    let len = shape.iter().product();
    let x = device.buffer_with_data(&vec![1.5f32; len])?;
    let mut out = device.buffer_with_data(&vec![7.0f32; len])?;
    device
        .stream()?
        .tensor(Softmax::new(1), &[&x.tensor(&shape)?], &mut [&mut out.tensor_mut(&shape)?])?
        .wait()?;
    assert_eq!(out.to_vec()?.iter().position(|value| *value != 0.5), None);
    Ok(())
}

fn softmax_of_any_axis(device: &Device) -> CaseResult {
    let mut random = Random::new(17);
    for round in 0..6 {
        let (rank, axis) = (1 + round % 4, random.below(1 + round % 4));
        let shape: Vec<usize> = (0..rank).map(|_| random.pick(&[1, 2, 5, 37])).collect();
        let layout = Layout::random(rank, &mut random);
        let x = Stored::random(device, random.pick(&DataType::FLOATS), &shape, layout, &mut random)?;
        let layout = Layout::random(rank, &mut random);
        let out = Stored::new(device, DataType::F32, &shape, layout, &[])?;
        check_softmax(device, Softmax::new(axis), &x, out)?;
    }
    Ok(())
}

/// Large numbers do not overflow; rows without a finite number are NaN.
fn softmax_extremes(device: &Device) -> CaseResult {
    let values = [
        [3e38, 3e38, -3e38],
        [f64::NEG_INFINITY, 0.0, 0.0],
        [f64::NEG_INFINITY; 3],
        [f64::NAN, 0.0, 0.0],
        [f64::INFINITY, 0.0, 0.0],
    ];
    let x = Stored::new(device, DataType::F32, &[5, 3], Layout::row_major(), values.as_flattened())?;
    let mut out = Stored::new(device, DataType::F32, &[5, 3], Layout::row_major(), &[])?;
    compute(device, Softmax::new(1), &[&x], &mut [&mut out])?;
    let expected = [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [f64::NAN; 3], [f64::NAN; 3], [f64::NAN; 3]];
    // An infinity minus itself makes the sum NaN; the other elements of the row are then NaN, too.
    out.expect("softmax", |at| Near { value: expected.as_flattened()[at], error: 20.0 * UNIT })?;
    let empty = Stored::new(device, DataType::F32, &[3, 0], Layout::row_major(), &[])?;
    let mut nothing = Stored::new(device, DataType::F32, &[3, 0], Layout::row_major(), &[])?;
    compute(device, Softmax::new(1), &[&empty], &mut [&mut nothing])?;
    compute(device, Map::COPY, &[&empty], &mut [&mut nothing])
}
