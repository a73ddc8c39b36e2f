//! `Primitive::check`: memory that is too short, misaligned or shared is refused, and memory that just fits is taken.

mod common;

use std::sync::Arc;

use elinvar_driver::primitive::{Convolution, DataType, Images, Layout, MatMul, MatVec, Matrix, Window};
use elinvar_driver::{Error, Memory, MemorySlice, Primitive};

use common::Counted;

fn memory(bytes: u64) -> Arc<dyn Memory> {
    Arc::new(Counted(bytes))
}

fn slice(memory: &Arc<dyn Memory>, offset: u64, len: u64) -> MemorySlice {
    MemorySlice { memory: memory.clone(), offset, len }
}

fn refusal(primitive: Primitive, memory: &[MemorySlice]) -> String {
    match primitive.check(memory) {
        Err(Error::InvalidArgument(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// Left 60 bytes, right 40, result 24.
const PRODUCT: Primitive = Primitive::MatMul(MatMul::packed(DataType::F32, 3, 5, 2));

#[test]
fn only_an_empty_memory_is_empty() {
    assert!(memory(0).is_empty() && !memory(1).is_empty());
}

#[test]
fn each_operand_needs_its_bytes() {
    let all = memory(1000);
    let [left, right, result] = [(0, 60), (60, 40), (100, 24)].map(|(at, len)| slice(&all, at, len));
    PRODUCT.check(&[left.clone(), right.clone(), result.clone()]).unwrap();
    let short = |slice: &MemorySlice| MemorySlice { len: slice.len - 1, ..slice.clone() };
    let cases = [
        ([short(&left), right.clone(), result.clone()], "`left` needs 60 bytes, 59 given"),
        ([left.clone(), short(&right), result.clone()], "`right` needs 40 bytes, 39 given"),
        ([left.clone(), right.clone(), short(&result)], "`result` needs 24 bytes, 23 given"),
    ];
    for (memory, expected) in cases {
        let text = refusal(PRODUCT, &memory);
        assert_eq!(text, format!("matrix multiplication: {expected}"));
    }
    let text = refusal(PRODUCT, &[left, right]);
    assert_eq!(text, "matrix multiplication: expected 3 operands (left, right, result), 2 given");
}

#[test]
fn each_operand_begins_at_an_element() {
    let all = memory(1000);
    for (offset, fits) in [(200, true), (201, false), (202, false), (203, false), (204, true)] {
        let operands = [slice(&all, 0, 60), slice(&all, offset, 40), slice(&all, 100, 24)];
        match fits {
            true => PRODUCT.check(&operands).unwrap(),
            false => assert_eq!(
                refusal(PRODUCT, &operands),
                format!("matrix multiplication: `right` at offset {offset} is not aligned to 4 bytes")
            ),
        }
    }
    // Elements of an operand, not of the primitive: the weights of a convolution of halves are floats.
    let source = Images { count: 1, channels: 1, height: 2, width: 2 };
    let (window, layout) = (Window::new(1, 1), Layout::ChannelsLast);
    let convolution = Convolution {
        weight_type: DataType::F32,
        ..Convolution::new(DataType::F16, layout, source, 1, window)
    };
    let operands = |source: u64, weights: u64| [(source, 8), (weights, 4), (500, 8)];
    let check = |places: [(u64, u64); 3]| {
        Primitive::Convolution(convolution).check(&places.map(|(at, len)| slice(&all, at, len)))
    };
    check(operands(2, 16)).unwrap();
    assert!(check(operands(1, 16)).unwrap_err().to_string().contains("`source` at offset 1"));
    assert!(check(operands(2, 18)).unwrap_err().to_string().contains("`weights` at offset 18"));
}

#[test]
fn the_result_shares_no_byte_with_what_is_read() {
    let (all, other) = (memory(1000), memory(1000));
    // The result lies at 400..424. Bytes behind an operand's last element are not its own, however long the slice is.
    for (offset, fits) in [(340, true), (344, false), (400, false), (420, false), (424, true)] {
        let operands = [slice(&all, offset, 100), slice(&other, 400, 40), slice(&all, 400, 100)];
        match fits {
            true => PRODUCT.check(&operands).unwrap(),
            false => {
                assert_eq!(refusal(PRODUCT, &operands), "matrix multiplication: `result` overlaps `left`")
            }
        }
    }
    let right = [slice(&other, 0, 60), slice(&all, 420, 40), slice(&all, 400, 24)];
    assert!(refusal(PRODUCT, &right).contains("`result` overlaps `right`"));
    // Other memory at the same place, and operands that are only read.
    PRODUCT.check(&[slice(&other, 400, 60), slice(&other, 400, 40), slice(&all, 400, 24)]).unwrap();
}

#[test]
fn vectors_have_the_matrix_s_size_as_it_is_multiplied() {
    let matrix = Matrix::packed(DataType::F16, 3, 5);
    let product = |transpose| MatVec { data_type: DataType::F16, matrix, transpose, alpha: 1.0, beta: 0.0 };
    assert_eq!((product(false).size(), product(true).size()), ((3, 5), (5, 3)));
    let bytes = |product: MatVec| {
        let operands = Primitive::MatVec(product).operands().unwrap();
        operands.iter().map(|operand| operand.bytes).collect::<Vec<_>>()
    };
    assert_eq!(bytes(product(false)), [30, 10, 6]);
    assert_eq!(bytes(product(true)), [30, 6, 10]);
}
