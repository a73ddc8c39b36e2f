//! Indirect command buffers: launches in memory, which the host or a kernel encodes, and which are executed by range.
//!
//! [`launch_queue`] is for launches that kernels enqueue. [`buffer`] owns the memory and the host's encoding, [`execution`] what a stream does with it. The layout is that of
//! [`elinvar_driver::indirect`]; the driver validates every command when it executes it.

mod buffer;
mod execution;
mod launch_queue;

pub use buffer::{HostCommand, IndirectCommandBuffer, IndirectCommandBufferDescriptor};
pub use execution::{CommandSpan, Execution};
pub use launch_queue::LaunchQueue;
