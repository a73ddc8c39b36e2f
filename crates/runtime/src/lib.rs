//! Compute kernels written for Apple Metal, on any hardware.
//!
//! A kernel in Metal Shading Language is compiled for a [`Device`], launched on a [`Stream`] over a [`Grid`]
//! of threads, and reads and writes [`Buffer`]s. The vocabulary is Metal's, the results are the same on
//! every device, and what a device cannot do is [`Error::Unsupported`] with the reason.
//!
//! ```no_run
//! use elinvar::{Device, Grid, Source};
//!
//! # fn main() -> elinvar::Result<()> {
//! let device = Device::best()?;
//! let library = device.compile(Source::msl(
//!     "#include <metal_stdlib>
//!      using namespace metal;
//!      kernel void vector_add(device const float* a, device const float* b, device float* out,
//!                             constant uint& n, uint i [[thread_position_in_grid]]) {
//!          if (i < n) { out[i] = a[i] + b[i]; }
//!      }",
//! ))?;
//! let add = library.kernel("vector_add")?;
//!
//! let a = device.buffer_from(&[1.0f32, 2.0, 3.0])?;
//! let b = device.buffer_from(&[10.0f32, 20.0, 30.0])?;
//! let mut out = device.buffer::<f32>(3)?; // zeroed
//!
//! let stream = device.stream()?;
//! // SAFETY: the kernel writes `out[i]` for `i < n` only, and all three buffers have `n` elements.
//! let done = unsafe { add.launch(&stream, Grid::threads(a.len()), (&a, &b, &mut out, 3u32)) }?;
//! done.wait()?; // or `done.await?`; reading a buffer waits by itself
//! assert_eq!(out.to_vec()?, [11.0, 22.0, 33.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//!
//! - **Launches are checked** against the kernel's [`Signature`] before anything is recorded; a refusal names
//!   the kernel, the argument and its position.
//! - **Memory lives** as long as work needs it. Any handle may be dropped with work in flight.
//! - **Host access waits** for the work that conflicts with it. While a [`Map`] or [`MapMut`] lives, work that
//!   conflicts is refused.
//! - **Order**: work of one stream takes effect in order. Different streams are ordered by [`Event`]s only; those
//!   that would wait for one another in a circle are refused.
//! - **Failure** is sticky on its stream until [`Stream::acknowledge`]; work behind it ends in
//!   [`Error::Poisoned`] with the first cause, and so does reading what it should have written.
//! - **Recovery** is for whom asks for it: streams of [`Device::stream_recovering`] and calls through [`Device::recover`]. What
//!   may have overwritten its inputs is never run again.
#![warn(missing_docs)]

mod args;
mod batch;
mod bind;
mod buffer;
mod bundle;
mod capture;
mod completion;
mod constants;
mod deadline;
mod dependencies;
mod device;
mod drivers;
mod event;
mod flight;
mod gather;
mod graph;
mod grid;
mod group;
#[cfg(test)]
mod host_tests;
mod host_use;
mod identity;
mod kernel;
mod known;
mod learned;
mod library;
mod loss;
mod map;
mod pool;
mod primitive;
mod profile;
mod recording;
mod recovery;
mod reused;
mod slice;
mod slots;
mod span;
mod stream;
mod suggest;
mod sync;
mod timestamp;
mod touched;
mod trace;
mod transfer;
mod tune;
mod usage;

pub use args::{Arg, Args, Threadgroup};
pub use batch::Batch;
pub use buffer::Buffer;
pub use bundle::Bundle;
pub use capture::Capture;
pub use completion::Completion;
pub use constants::{ConstantValue, Constants};
pub use device::Device;
pub use event::Event;
pub use flight::WhenFull;
pub use gather::Gathering;
pub use graph::{
    Batching, Graph, GraphStats, Node, Parameter, ParameterKey, Plan, PlanOptions, Route, Transfer,
};
pub use grid::{Extent, Grid, Side};
pub use group::StreamGroup;
pub use host_use::HostUse;
pub use kernel::{CheckedKernel, Kernel};
pub use learned::Learned;
pub use library::Library;
pub use map::{Map, MapMut};
pub use pool::{Pool, PoolLimits, PoolStats, Pressure, Site};
pub use profile::Profile;
pub use recording::Recording;
pub use recovery::{
    Action, Attempts, Breaker, BreakerLimits, BreakerMemory, BreakerState, Component, Decision, FaultClass,
    Finding, Goal, Health, Notice, RecoveryPolicy, Status, Watch, WatchOptions, decide,
};
pub use reused::EventStats;
pub use slice::{BufferSlice, BufferSliceMut};
pub use slots::SlotStats;
pub use stream::Stream;
pub use suggest::Suggestion;
pub use timestamp::Timestamp;
pub use trace::{StepStats, Trace, TraceEvent, TraceStep};
pub use transfer::Download;

pub use bytemuck::Pod;
pub use elinvar_driver as driver;
pub use elinvar_driver::{
    Access, ArgKind, Builtin, Caps, CodeFacts, DeviceKind, Diagnostic, Dim3, ElementType, Error, Fault,
    FunctionConstant, Label, MathMode, MetalLibrary, Piece, Primitive, PrimitiveKind, Primitives, Priority,
    Result, Scalar, Severity, Signature, Source, StopsAt, Storage, Thermal, Timing, UnsupportedKernel,
};
pub use elinvar_driver_isolated::{Options as IsolatedOptions, serve_if_asked};
pub use half::{bf16, f16};

/// The README and the pages of `docs/`, whose examples are run as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/bundles.md")]
    mod bundles {}
    #[doc = include_str!("../../../docs/memory.md")]
    mod memory {}
    #[doc = include_str!("../../../docs/errors-and-recovery.md")]
    mod errors_and_recovery {}
    #[doc = include_str!("../../../docs/launches.md")]
    mod launches {}
    #[doc = include_str!("../../../docs/streams-and-events.md")]
    mod streams_and_events {}
    #[doc = include_str!("../../../docs/isolation.md")]
    mod isolation {}
    #[doc = include_str!("../../../docs/graphs.md")]
    mod graphs {}
    #[doc = include_str!("../../../docs/function-constants.md")]
    mod function_constants {}
}
