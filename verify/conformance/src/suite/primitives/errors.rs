//! Invalid calls are refused immediately, with the operand's name, on every device.

use elinvar::driver::primitive::{DataType, Extent, MatMul, Matrix, Reduction, ReductionKind, Softmax};
use elinvar::{Arg, Device, Error, Primitive, Scalar, f16};

use super::{CaseResult, computed};

cases!("primitives": shapes_that_are_wrong, buffers_that_do_not_fit, memory_that_is_shared, memory_side_by_side,
    images_beyond_the_limit, a_refusal_changes_nothing);

#[track_caller]
fn refused<T>(result: elinvar::Result<T>, reason: &str) {
    match result {
        Err(Error::InvalidArgument(text)) => assert!(text.contains(reason), "`{text}` without `{reason}`"),
        Err(other) => panic!("expected `{reason}`, got {other:?}"),
        Ok(_) => panic!("taken, expected `{reason}`"),
    }
}

fn shapes_that_are_wrong(device: &Device) -> CaseResult {
    let stream = device.stream()?;
    let (a, b) = (device.buffer::<f32>(64)?, device.buffer::<f32>(64)?);
    let mut result = device.buffer::<f32>(64)?;
    let mut refuse = |change: fn(&mut MatMul), reason: &str| {
        let mut product = MatMul::packed(DataType::F32, 3, 4, 5);
        change(&mut product);
        refused(stream.primitive(&Primitive::MatMul(product), (&a, &b, &mut result)), reason);
    };
    refuse(|p| p.right.rows = 3, "inner dimensions differ: `left` is 3 × 4, `right` is 3 × 5");
    refuse(|p| p.result.rows = 2, "`result` is 2 × 5, the product is 3 × 5");
    refuse(|p| p.left.columns = 0, "`left` is 3 × 0");
    refuse(|p| p.left.row_bytes = 15, "`left` has a row stride of 15 bytes");
    refuse(|p| p.beta = f32::INFINITY, "beta inf");
    let (source, result_shape) = (Matrix::packed(DataType::F32, 2, 2), Matrix::packed(DataType::F32, 2, 3));
    let softmax = Softmax { data_type: DataType::F32, source, result: result_shape, logarithm: false };
    refused(
        stream.primitive(&Primitive::Softmax(softmax), (&a, &mut result)),
        "`source` is 2 × 2, `result` is 2 × 3",
    );
    Ok(())
}

fn buffers_that_do_not_fit(device: &Device) -> CaseResult {
    let stream = device.stream()?;
    let product = Primitive::MatMul(MatMul::packed(DataType::F32, 3, 4, 5));
    let (a, b) = (device.buffer::<f32>(12)?, device.buffer::<f32>(20)?);
    let mut result = device.buffer::<f32>(15)?;
    refused(stream.primitive(&product, (&a, &b)), "3 operands (left, right, result), 2 given");
    refused(stream.primitive(&product, (&b, &a, &mut result)), "`right` needs 80 bytes, 48 given");
    refused(stream.primitive(&product, (&a, &b, &result)), "`result` is written; pass the buffer as `&mut`");
    refused(stream.primitive(&product, (&a, 1.0f32, &mut result)), "`right` is not a buffer");
    let half = device.buffer::<f16>(40)?;
    refused(stream.primitive(&product, (&a, &half, &mut result)), "`right` requires a buffer of f32");
    let bytes = device.buffer::<u8>(100)?;
    let odd = Arg::from(bytes.slice(2..90)?).of(Scalar::F32);
    refused(stream.primitive(&product, (&a, odd, &mut result)), "`right` at offset");
    Ok(())
}

fn memory_that_is_shared(device: &Device) -> CaseResult {
    let stream = device.stream()?;
    let product = Primitive::MatMul(MatMul::packed(DataType::F32, 2, 2, 2));
    let a = device.buffer::<f32>(4)?;
    let both = device.buffer::<f32>(8)?;
    let alias = both.clone();
    let mut tail = alias;
    refused(
        stream.primitive(&product, (&a, both.slice(0..4)?, tail.slice_mut(3..7)?)),
        "`result` overlaps `right`",
    );
    Ok(())
}

/// Operands may be in one buffer, and both factors may be the same memory.
fn memory_side_by_side(device: &Device) -> CaseResult {
    let stream = device.stream()?;
    let product = Primitive::MatMul(MatMul::packed(DataType::F32, 2, 2, 2));
    let both = device.buffer_with_data(&[1.0f32, 2.0, 3.0, 4.0, -1.0, -1.0, -1.0, -1.0])?;
    let mut tail = both.clone();
    computed(&stream, &product, (both.slice(0..4)?, both.slice(0..4)?, tail.slice_mut(4..8)?))?;
    assert_eq!(both.to_vec()?, [1.0, 2.0, 3.0, 4.0, 7.0, 10.0, 15.0, 22.0]);
    Ok(())
}

fn images_beyond_the_limit(device: &Device) -> CaseResult {
    let stream = device.stream()?;
    let columns = 1 << 20;
    let (source, mut result) = (device.buffer::<f32>(columns as usize)?, device.buffer::<f32>(1)?);
    let sum = |columns| {
        let source = Matrix::packed(DataType::F32, 1, columns);
        let (kind, each) = (ReductionKind::Sum, Extent::Row);
        Primitive::Reduction(Reduction { data_type: DataType::F32, kind, each, source })
    };
    computed(&stream, &sum(4), (source.slice(0..4)?, &mut result))?;
    match stream.primitive(&sum(columns), (&source, &mut result)) {
        Err(Error::Unsupported(text)) => assert!(text.contains("`source` has 1 × 1048576"), "{text}"),
        other => panic!("{other:?}"),
    }
    Ok(())
}

fn a_refusal_changes_nothing(device: &Device) -> CaseResult {
    let stream = device.stream()?;
    let (mut commands, a) = (stream.command_buffer(), device.buffer::<f32>(4)?);
    let mut result = device.buffer_with_data(&[1.0f32; 4])?;
    refused(
        commands.primitive(&Primitive::MatMul(MatMul::packed(DataType::F32, 2, 2, 2)), (&a, &a, &result)),
        "`result` is written",
    );
    commands.fill(&mut result, 2.0)?;
    commands.submit()?.wait()?;
    assert_eq!(result.to_vec()?, [2.0; 4]);
    Ok(())
}
