//! Tensor operations: products, convolutions, reductions, normalization, attention, and element-wise maps.
//!
//! A [`TensorRef`] or [`TensorMut`] is a view of a [`Buffer`](crate::Buffer): a shape, strides and an element type over its memory. An
//! operation is plain data, such as [`Reduce`] or [`MatMul`]. [`Stream::tensor`](crate::Stream::tensor) and
//! [`CommandBuffer::tensor`](crate::CommandBuffer::tensor) execute it for views of inputs and outputs; a [`Plan`] tells beforehand how.
//!
//! ```no_run
//! # fn main() -> elinvar::Result<()> {
//! use elinvar::Device;
//! use elinvar::tensor::{Map, Reduce};
//!
//! let device = Device::system_default()?;
//! let stream = device.stream()?;
//! let x = device.buffer_with_data(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let bias = device.buffer_with_data(&[10.0f32, 20.0, 30.0])?;
//! let mut sum = device.buffer::<f32>(6)?;
//! // The bias is repeated along the rows, by NumPy's rules.
//! stream.tensor(Map::ADD, &[&x.tensor(&[2, 3])?, &bias.tensor(&[3])?], &mut [&mut sum.tensor_mut(&[2, 3])?])?;
//! assert_eq!(sum.to_vec()?, [11.0, 22.0, 33.0, 14.0, 25.0, 36.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # Operands
//!
//! - Strides are in elements. A view is within its buffer by construction, and a mutable view names each element once.
//! - An output may not overlap another operand, except that the output of a [`Map`] may be one of its inputs, as the same view.
//! - Tensors without elements are allowed. An operation without outputs does nothing.
//! - Floating-point values are computed and summed in `f32`, whatever the element type, and rounded once when they are stored.
//!
//! # Routes
//!
//! An operation is computed by the vendor's library, as one [`Primitive`](crate::Primitive), or by kernels in MSL, which every device
//! runs. [`Route::Auto`] takes the faster one, by measurement.

mod activation;
mod attention;
mod axes;
mod convolution;
mod data_type;
mod kernel_cache;
mod map;
mod matmul;
mod normalize;
mod operation;
mod overlap;
mod plan;
mod pooling;
mod profile;
mod record;
mod reduce;
mod route_choices;
mod rows;
mod vendor;
mod view;
mod window;

pub use activation::Activation;
pub use attention::{Attention, Mask};
pub use convolution::Convolution;
pub use data_type::{DataType, Element};
pub(crate) use kernel_cache::KernelCache;
pub use map::{Binary, Map, Ternary, Unary};
pub use matmul::MatMul;
pub use normalize::{Normalize, Statistics};
pub use operation::Operation;
pub use plan::{Plan, Route};
pub use pooling::{Pooling, PoolingKind};
pub use profile::TensorProfile;
pub use reduce::{Reduce, Reduction, Softmax};
pub(crate) use route_choices::RouteChoices;
pub use view::{MAX_RANK, TensorMut, TensorRef};
pub use window::Window;
