//! Tensors whose elements are further apart than 32-bit indices reach: rows at both ends of a large buffer and in between.

use elinvar::tensor::{Map, Normalize, Operation, Plan, Reduce, Route, Softmax, TensorMut, TensorRef};
use elinvar::{Buffer, Device, f16};

use super::super::CaseResult;

const ROWS: usize = 33;
const COLUMNS: usize = 64;

/// Runs kernels, and returns the result.
fn compute(
    device: &Device,
    operation: impl Into<Operation>,
    x: &TensorRef<'_>,
    shape: &[usize],
) -> Result<Vec<f64>, super::super::Failure> {
    let mut out = device.buffer::<f32>(shape.iter().product())?;
    let plan = Plan::new(operation, &[x], &mut [&mut out.tensor_mut(shape)?], Route::Kernel)?;
    device.stream()?.tensor_plan(&plan)?.wait()?;
    Ok(out.to_vec()?.into_iter().map(f64::from).collect())
}

#[track_caller]
fn expect(what: &str, got: &[f64], expected: impl Fn(usize) -> f64) {
    for (at, got) in got.iter().enumerate() {
        let expected = expected(at);
        // Sums of up to 64 terms up to 6, in f32.
        let allowed = 66.0 * super::UNIT * 64.0 * 6.0;
        assert!((got - expected).abs() <= allowed, "{what}: element {at}: {got}, expected {expected}");
    }
}

/// Operations with and without the first axis innermost, by the variants of the kernels with 64-bit indices. `x` is zeroed.
pub(crate) fn distant_rows(device: &Device, x: &mut Buffer<f16>) -> CaseResult {
    let len = x.len();
    let stride = (len - COLUMNS) / (ROWS - 1);
    assert!((ROWS - 1) * stride + COLUMNS >= 1 << 31, "32 bits do not reach");
    let value = |row: usize, column: usize| ((row * 7 + column * 3) % 13) as f64 - 6.0;
    let at = |i: usize| value(i / COLUMNS, i % COLUMNS);
    let small: Vec<f32> = (0..ROWS * COLUMNS).map(|i| at(i) as f32).collect();
    let small = device.buffer_with_data(&small)?;
    {
        let shape = [ROWS, COLUMNS];
        let mut rows = TensorMut::strided(&mut *x, &shape, &[stride, 1], 0)?;
        device.stream()?.tensor(Map::COPY, &[&small.tensor(&shape)?], &mut [&mut rows])?.wait()?;
    }
    for row in 0..ROWS {
        let got = x.slice(row * stride..row * stride + COLUMNS)?.to_vec()?;
        let got: Vec<f64> = got.into_iter().map(f16::to_f64).collect();
        expect("a copy to distant rows", &got, |column| value(row, column));
    }
    let rows = TensorRef::strided(&*x, &[ROWS, COLUMNS], &[stride, 1], 0)?;
    expect("a copy", &compute(device, Map::COPY, &rows, &[ROWS, COLUMNS])?, at);
    let turned = compute(device, Map::COPY, &rows.transpose(0, 1)?, &[COLUMNS, ROWS])?;
    expect("a transpose", &turned, |i| value(i % ROWS, i / ROWS));
    let row = |row: usize| (0..COLUMNS).map(move |column| value(row, column));
    let column = |column: usize| (0..ROWS).map(move |row| value(row, column));
    expect("sums of rows", &compute(device, Reduce::sum(&[1]), &rows, &[ROWS])?, |i| row(i).sum());
    expect("sums of columns", &compute(device, Reduce::sum(&[0]), &rows, &[COLUMNS])?, |i| column(i).sum());
    let softmax = compute(device, Softmax::new(1), &rows, &[ROWS, COLUMNS])?;
    expect("softmax of rows", &softmax, |i| at(i).exp() / row(i / COLUMNS).map(f64::exp).sum::<f64>());
    let softmax = compute(device, Softmax::new(0), &rows, &[ROWS, COLUMNS])?;
    expect("softmax of columns", &softmax, |i| at(i).exp() / column(i % COLUMNS).map(f64::exp).sum::<f64>());
    let of = Normalize { scale: false, bias: false, ..Normalize::layer(&[1]) };
    expect("layer normalization", &compute(device, of, &rows, &[ROWS, COLUMNS])?, |i| {
        let mean = row(i / COLUMNS).sum::<f64>() / COLUMNS as f64;
        let variance = row(i / COLUMNS).map(|x| (x - mean).powi(2)).sum::<f64>() / COLUMNS as f64;
        (at(i) - mean) / (variance + 1e-5).sqrt()
    });
    Ok(())
}
