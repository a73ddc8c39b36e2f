//! Wrong shapes, axes, types and overlaps are named.

use elinvar::tensor::{DataType, Map, Plan, Reduce, Reduction, Route, Softmax, TensorMut, TensorRef, Unary};
use elinvar::{Device, Error};

use super::super::CaseResult;

cases! { "tensor": views_beyond_their_buffer, shapes_that_do_not_fit, overlaps, routes_that_are_missing }

/// Expects an invalid argument whose message has all parts.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: elinvar::Result<T>, parts: &[&str]) {
    let Err(Error::InvalidArgument(text)) = result else {
        panic!("accepted, expected {parts:?}: {result:?}")
    };
    for part in parts {
        assert!(text.contains(part), "`{text}` lacks `{part}`");
    }
}

fn views_beyond_their_buffer(device: &Device) -> CaseResult {
    let mut buffer = device.buffer::<f32>(24)?;
    refused(buffer.tensor(&[5, 5]), &["[5, 5]", "index 24", "24 of f32"]);
    refused(buffer.tensor(&[usize::MAX, 2]), &["beyond 63 bits"]);
    refused(TensorRef::strided(&buffer, &[usize::MAX, 2], &[0, 0], 0), &["beyond 63 bits"]);
    refused(buffer.tensor(&[1])?.broadcast(&[1 << 40, 1 << 40]), &["beyond 63 bits"]);
    refused(buffer.tensor(&[0])?.broadcast(&[1 << 40, 1 << 40, 0]), &["beyond 63 bits"]);
    refused(buffer.tensor(&[1; 9]), &["9 axes", "at most 8"]);
    refused(TensorRef::strided(&buffer, &[2, 2], &[usize::MAX, 1], 0), &["buffer has 24"]);
    refused(TensorRef::strided(&buffer, &[2], &[usize::MAX], usize::MAX), &["beyond 64 bits"]);
    refused(TensorRef::strided(&buffer, &[1], &[1], 24), &["index 24"]);
    refused(TensorRef::strided(&buffer, &[2, 2], &[1], 0), &["1 strides for 2 axes"]);
    TensorRef::strided(&buffer, &[0], &[1], 24)?;
    let tensor = buffer.tensor(&[4, 6])?;
    refused(tensor.slice(1, 2..7), &["slice 2..7", "axis 1", "6 elements"]);
    refused(tensor.slice_step(1, 0..6, 0), &["step 0"]);
    refused(tensor.slice(2, 0..1), &["no axis 2"]);
    refused(tensor.permute(&[0, 0]), &["[0, 0]", "each axis"]);
    refused(tensor.reshape(&[5, 5]), &["24 elements", "[5, 5]"]);
    refused(tensor.transpose(0, 1)?.reshape(&[24]), &["copy it first"]);
    refused(tensor.broadcast(&[4, 5]), &["[4, 6]", "[4, 5]", "axis 1 has 6 elements, not 5 or 1"]);
    refused(tensor.broadcast(&[6]), &["2 axes, more than 1"]);
    let bytes = device.buffer::<u8>(16)?;
    refused(TensorRef::of_bytes(bytes.slice(2..16)?, DataType::F32, &[3]), &["byte 2", "multiple of 4"]);
    refused(TensorMut::strided(&mut buffer, &[4, 4], &[1, 1], 0), &["axis", "other axes"]);
    refused(TensorMut::strided(&mut buffer, &[3], &[0], 0), &["axis 0"]);
    TensorMut::strided(&mut buffer, &[1, 3], &[0, 2], 0)?;
    Ok(())
}

fn shapes_that_do_not_fit(device: &Device) -> CaseResult {
    let stream = device.stream()?;
    let (x, mut out) = (device.buffer::<f32>(24)?, device.buffer::<f32>(24)?);
    let (bytes, mut numbers) = (device.buffer::<i8>(24)?, device.buffer::<i32>(24)?);
    let tensor = x.tensor(&[4, 6])?;
    let sum = |axes: &[usize]| Reduce::sum(axes);
    let mut target = out.tensor_mut(&[4, 5])?;
    refused(
        stream.tensor(Map::ADD, &[&tensor], &mut [&mut target]),
        &["add", "2 inputs (left, right)", "1 and 1 given"],
    );
    refused(
        stream.tensor(Map::COPY, &[&tensor], &mut [&mut target]),
        &["copy", "`x`", "[4, 6]", "[4, 5]", "axis 1"],
    );
    refused(stream.tensor(sum(&[1]), &[&tensor], &mut [&mut target]), &["sum", "`result`", "2 axes, not 1"]);
    refused(stream.tensor(sum(&[2]), &[&tensor], &mut [&mut target]), &["[4, 6]", "no axis 2"]);
    refused(stream.tensor(sum(&[1, 1]), &[&tensor], &mut [&mut target]), &["axis 1", "twice"]);
    refused(
        stream.tensor(sum(&[1]).keep_axes(), &[&tensor], &mut [&mut target]),
        &["axis 1 has 5 elements, not 1"],
    );
    refused(stream.tensor(Softmax::new(1), &[&tensor], &mut [&mut target]), &["softmax", "[4, 6]", "axis 1"]);
    let mut index = out.tensor_mut(&[4])?;
    let argmax = Reduce::new(Reduction::ArgMax, &[1]);
    refused(stream.tensor(argmax, &[&tensor], &mut [&mut index]), &["argmax", "an index is i32"]);
    let none = x.tensor(&[4, 0])?;
    refused(stream.tensor(Reduce::new(Reduction::Max, &[1]), &[&none], &mut [&mut index]), &["no elements"]);
    let integers = bytes.tensor(&[4, 6])?;
    let mut target = numbers.tensor_mut(&[4, 6])?;
    refused(stream.tensor(Map::Unary(Unary::Exp), &[&integers], &mut [&mut target]), &["exp", "integers"]);
    refused(stream.tensor(Softmax::new(1), &[&integers], &mut [&mut target]), &["`x`", "f32, f16 or bf16"]);
    let mut target = numbers.tensor_mut(&[4])?;
    refused(stream.tensor(Reduce::mean(&[1]), &[&integers], &mut [&mut target]), &["mean", "floats"]);
    refused(stream.tensor(sum(&[1]), &[&tensor], &mut [&mut target]), &["sum", "floats"]);
    // Nothing was recorded, and the stream goes on.
    stream.synchronize()?;
    assert_eq!(out.to_vec()?, [0.0; 24]);
    Ok(())
}

fn overlaps(device: &Device) -> CaseResult {
    let stream = device.stream()?;
    let mut buffer = device.buffer_with_data(&(0..24).map(|i| i as f32).collect::<Vec<_>>())?;
    let handle = buffer.clone();
    let whole = handle.tensor(&[4, 6])?;
    let mut target = buffer.tensor_mut(&[4, 6])?;
    // The same elements at other indices.
    let square = whole.slice(1, 0..4)?;
    let mut turned = target.slice(1, 0..4)?.transpose(0, 1)?;
    refused(
        stream.tensor(Map::COPY, &[&square], &mut [&mut turned]),
        &["copy", "output `result`", "may overlap `x`"],
    );
    // Rows that are shifted by one.
    target = buffer.tensor_mut(&[4, 6])?;
    let mut below = target.slice(0, 1..4)?;
    refused(stream.tensor(Map::COPY, &[&whole.slice(0, 0..3)?], &mut [&mut below]), &["may overlap"]);
    // In place is for maps only.
    target = buffer.tensor_mut(&[4, 6])?;
    refused(stream.tensor(Softmax::new(1), &[&whole], &mut [&mut target]), &["softmax", "may overlap"]);
    // Columns side by side, and every other element, do not overlap.
    let mut right = target.slice(1, 3..6)?;
    stream.tensor(Map::COPY, &[&whole.slice(1, 0..3)?], &mut [&mut right])?;
    let mut odd = buffer.tensor_mut(&[24])?.slice_step(0, 1..24, 2)?;
    let flat = handle.tensor(&[24])?.slice_step(0, 0..24, 2)?;
    stream.tensor(Map::COPY, &[&flat], &mut [&mut odd])?;
    let columns = (0..24).map(|i| (i / 6 * 6 + i % 6 % 3) as f32).collect::<Vec<_>>();
    let expected: Vec<f32> = (0..24).map(|i| columns[i / 2 * 2]).collect();
    assert_eq!(buffer.to_vec()?, expected);
    Ok(())
}

/// The kernels' route is everywhere; the vendor's is refused with the reason where it is missing.
fn routes_that_are_missing(device: &Device) -> CaseResult {
    let x = device.buffer::<f32>(6)?;
    let mut out = device.buffer::<f32>(6)?;
    let (x, mut out) = (x.tensor(&[2, 3])?, out.tensor_mut(&[2, 3])?);
    // No library has element-wise maps in the driver's contract.
    let plan = Plan::new(Map::COPY, &[&x], &mut [&mut out], Route::Vendor);
    let Err(Error::Unsupported(text)) = plan else { panic!("{plan:?}") };
    assert!(text.contains("has no library") && text.contains("route `kernel`"), "{text}");
    assert_eq!(Plan::new(Map::COPY, &[&x], &mut [&mut out], Route::Auto)?.route(), Route::Kernel);
    Ok(())
}
