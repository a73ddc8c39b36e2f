//! [`Tensor`]: [`MPSGraphTensor`](https://developer.apple.com/documentation/metalperformanceshadersgraph/mpsgraphtensor): the result of an
//! operation of a graph; and the element types.

use std::ffi::c_void;
use std::sync::Arc;

use elinvar_objc::foundation::{NsArray, NsNumber, os_version};
use elinvar_objc::{Declaration, Ref};
use half::{bf16, f16};

use super::operations::Operation;

/// Element types, as `MPSDataType` values.
pub const FLOAT32: u32 = 0x1000_0020;
pub const FLOAT16: u32 = 0x1000_0010;
pub const BFLOAT16: u32 = 0x9000_0010;
pub const INT32: u32 = 0x2000_0020;
pub const UINT8: u32 = 8;
pub const BOOL: u32 = 0x8000_0008;

/// Size of an element in bytes.
pub fn size_of_type(kind: u32) -> usize {
    (kind & 0xffff) as usize / 8
}

pub fn is_float(kind: u32) -> bool {
    matches!(kind, FLOAT32 | FLOAT16 | BFLOAT16)
}

/// Whether this system has the type.
pub fn exists(kind: u32) -> bool {
    matches!(kind, FLOAT32 | FLOAT16 | INT32 | UINT8 | BOOL)
        || kind == BFLOAT16 && os_version() >= super::BFLOAT
}

/// A value as the type has it.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // rounding is meant
pub fn rounded(value: f64, kind: u32) -> f64 {
    match kind {
        FLOAT16 => f16::from_f64(value).to_f64(),
        BFLOAT16 => bf16::from_f64(value).to_f64(),
        FLOAT32 => f64::from(value as f32),
        INT32 => f64::from(value as i32),
        UINT8 => f64::from(value as u8),
        _ => f64::from(u8::from(value != 0.0)),
    }
}

/// An operation, its operands, and the shape and the type of its result.
pub struct Node {
    pub operation: Operation,
    pub inputs: Vec<Arc<Node>>,
    pub shape: Vec<usize>,
    pub kind: u32,
}

impl Node {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }
}

/// `MPSGraphTensor`.
pub struct Tensor {
    /// The graph's number.
    pub graph: u64,
    pub node: Arc<Node>,
}

elinvar_objc::object!(Tensor, c"MPSGraphTensor");

/// The whole numbers of an array.
pub fn whole(array: &Ref<NsArray>) -> Option<Vec<i64>> {
    array
        .objects()
        .iter()
        .map(|object| object.downcast::<NsNumber>().map(|number| number.integer()))
        .collect()
}

/// The sizes of a shape.
pub fn sizes(array: &Ref<NsArray>) -> Option<Vec<usize>> {
    whole(array)?.into_iter().map(|size| usize::try_from(size).ok()).collect()
}

/// A shape as an array of numbers.
#[allow(clippy::cast_possible_wrap)] // sizes of arrays
pub fn numbers(shape: &[usize]) -> Ref<NsArray> {
    NsArray::new(shape.iter().map(|size| Ref::new(NsNumber::Integer(*size as i64)).into_object()))
}

pub fn register() {
    Declaration::<Tensor>::new()
        .method("shape", |this: &Ref<Tensor>| numbers(&this.node.shape))
        .method("dataType", |this: &Ref<Tensor>| this.node.kind)
        .method("copyWithZone:", |this: &Ref<Tensor>, _: *mut c_void| this.clone())
        .register();
}
