//! Compute kernels written for Apple Metal, on any hardware.
//!
//! A kernel in Metal Shading Language is compiled for a [`Device`] and launched on a [`Stream`] over a [`Grid`] of threads; it reads and
//! writes [`Buffer`]s. The terms are Metal's. Integer results are identical on every device. A feature that a device lacks is
//! [`Error::Unsupported`] with the reason.
//!
//! ```no_run
//! use elinvar::{Device, Grid, Source};
//!
//! # fn main() -> elinvar::Result<()> {
//! let device = Device::system_default()?;
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
//! let a = device.buffer_with_data(&[1.0f32, 2.0, 3.0])?;
//! let b = device.buffer_with_data(&[10.0f32, 20.0, 30.0])?;
//! let mut out = device.buffer::<f32>(3)?; // zeroed
//!
//! let stream = device.stream()?;
//! // SAFETY: the kernel writes `out[i]` for `i < n` only, and all three buffers have `n` elements.
//! let done = unsafe { add.launch(&stream, Grid::threads(a.len()), (&a, &b, &mut out, 3u32)) }?;
//! done.wait()?; // or `done.await?`; reading a buffer waits implicitly
//! assert_eq!(out.to_vec()?, [11.0, 22.0, 33.0]);
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - **Launches are validated** against the kernel's [`Signature`] before anything is recorded. An error names the kernel, the argument
//!   and its index.
//! - **Memory** is kept alive as long as work needs it. Handles may be dropped while work is pending.
//! - **Host access waits** for conflicting pending work. While a [`Map`] or [`MapMut`] exists, conflicting work is rejected.
//! - **Order.** Work of one stream takes effect in submission order. Different streams are ordered by [`Event`]s only; a wait that would
//!   deadlock is rejected.
//! - **Failures** are sticky: until [`Stream::acknowledge`], work behind a failure ends in [`Error::Poisoned`] with the first cause, and so
//!   does reading memory that the failed work should have written.
//! - **Recovery** is opt-in, by [`Device::stream_recovering`] and [`Device::recover`]. Work that may have overwritten its inputs is
//!   never rerun.
#![warn(missing_docs)]

mod collective;
mod device;
mod graph;
#[cfg(test)]
mod host_tests;
mod identity;
mod indirect;
mod launch;
mod locks;
mod memory;
mod observe;
mod recovery;
mod resident;
mod sharded;
mod sync;
pub mod tensor;
mod transfer;

pub use collective::{Communicator, Operation, Transport};
/// What kernels written in Rust use, and how they run on the host. The attribute of the same name translates a function.
pub mod kernel {
    pub use crate::launch::bound::{BoundKernel, ReadArg, WriteArg};
    pub use elinvar_kernel::*;
}

pub use elinvar_analysis as analysis;

pub use device::{Device, TuningCache};
pub use graph::{Batching, Graph, GraphStats, Node, Parameter, ParameterKey, Plan, PlanOptions, Transfer};
pub use indirect::{
    CommandSpan, Execution, HostCommand, IndirectCommandBuffer, IndirectCommandBufferDescriptor, LaunchQueue,
};
pub use launch::args::{Arg, ArgList, Args, Threadgroup};
pub use launch::bundle::{Bundle, LoadedBundle};
pub use launch::command_buffer::CommandBuffer;
pub use launch::command_list_pool::CommandListStats;
pub use launch::compilation::Compilation;
pub use launch::constants::{ConstantValue, Constants};
pub use launch::grid::{Extent, Grid, Side};
pub use launch::group::StreamGroup;
pub use launch::kernel::{CheckedKernel, Kernel};
pub use launch::kernel_options::KernelOptions;
pub use launch::library::Library;
pub use launch::profile::Profile;
pub use launch::recording::Recording;
pub use launch::stream::Stream;
pub use launch::suggest::Suggestion;
pub use launch::timestamp::Timestamp;
pub use launch::transfer::Download;
pub use launch::tune::Tuning;
pub use launch::variants::{TunedKernel, Variants};
pub use memory::buffer::Buffer;
pub use memory::host_access::HostAccess;
pub use memory::map::{Map, MapMut};
pub use memory::object_pool::EventStats;
pub use memory::pool::{Pool, PoolLimits, PoolStats, Pressure, Site};
pub use memory::slice::{BufferSlice, BufferSliceMut};
pub use observe::alerts::{Alert, AlertChange, AlertKind, AlertOptions, Alerts};
pub use observe::capture::Capture;
pub use observe::failures::FailurePattern;
pub use observe::health::{Component, Finding, Health, Status};
pub use observe::log::LogSubscription;
pub use observe::meter::{Consumption, Meter};
pub use observe::metrics::{
    Histogram, METRICS, Metric, MetricFamily, MetricKind, MetricPoint, MetricValue, Metrics,
};
pub use observe::notice::{Notice, PowerPreference};
pub use observe::profiling::{
    ProfileCommand, ProfileEvent, ProfileLine, ProfileMetric, ProfileRoofs, ProfileSpan, ProfileSubmission,
    ProfileWork,
};
pub use observe::trace::{
    ClockSample, DeviceSpan, GraphNode, HostSpan, InlineArguments, MemorySample, Origin, Replayed, StepStats,
    Timeline, TimelineCommand, TimelineSubmission, Trace, TraceDetail, TraceEvent, TraceStep, TracedCommand,
    TracedWork,
};
pub use observe::watch::{Watch, WatchOptions};
pub use recovery::{
    Action, Attempts, Breaker, BreakerLimits, BreakerMemory, BreakerState, Decision, FaultClass,
    RecoveryPolicy, decide,
};
pub use resident::{MessageQueue, PersistentKernel, Residency, Ticket};
pub use sharded::{DeviceGroup, Layout, Part, Sharded};
pub use sync::coalesce::Coalescing;
pub use sync::completion::Completion;
pub use sync::event::Event;
pub use sync::in_flight::WhenFull;
pub use transfer::{Measured, Pair, Route, Topology, TopologyDevice, TransferStats};

pub use bytemuck::Pod;
pub use elinvar_capture as capture;
pub use elinvar_collective::{Algorithm, Board, Environment, LinkCost, Network};
pub use elinvar_driver as driver;
pub use elinvar_driver::{
    Access, ArgKind, Builtin, Caps, CodeFacts, Collective, DeviceKind, Diagnostic, Dim3, ElementType, Error,
    Fault, Features, FunctionConstant, Label, Limits, Link, LinkKind, LogLevel, LogLine, LogSite, MathMode,
    MetalLibrary, Place, Primitive, PrimitiveKind, Primitives, Priority, Quantity, Reading, Readings,
    Reduction, Result, Scalar, Severity, Signature, Source, SourceFile, SourceLanguage, StopsAt, Storage,
    Thermal, Tier, Timing, UnsupportedKernel,
};
#[cfg(feature = "isolated")]
pub use elinvar_driver_isolated::{Options as IsolatedOptions, serve_if_asked};
pub use elinvar_kernel::KernelType;
#[doc(hidden)]
pub use elinvar_kernel_macro::__collect;
pub use elinvar_kernel_macro::{KernelType, device, kernel};
pub use half::{bf16, f16};

/// The README and the pages of `docs/`, whose examples are run as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/analysis.md")]
    mod analysis {}
    #[doc = include_str!("../../../docs/alerts.md")]
    mod alerts {}
    #[doc = include_str!("../../../docs/capture.md")]
    mod capture {}
    #[doc = include_str!("../../../docs/bundles.md")]
    mod bundles {}
    #[doc = include_str!("../../../docs/memory.md")]
    mod memory {}
    #[doc = include_str!("../../../docs/errors-and-recovery.md")]
    mod errors_and_recovery {}
    #[doc = include_str!("../../../docs/rust-kernels.md")]
    mod rust_kernels {}
    #[cfg(feature = "translate")]
    #[doc = include_str!("../../../docs/translation.md")]
    mod translation {}
    #[doc = include_str!("../../../docs/launches.md")]
    mod launches {}
    #[doc = include_str!("../../../docs/cooperative-launches.md")]
    mod cooperative_launches {}
    #[doc = include_str!("../../../docs/indirect-commands.md")]
    mod indirect_commands {}
    #[doc = include_str!("../../../docs/nested-launches.md")]
    mod nested_launches {}
    #[doc = include_str!("../../../docs/resident-kernels.md")]
    mod resident_kernels {}
    #[doc = include_str!("../../../docs/streams-and-events.md")]
    mod streams_and_events {}
    #[doc = include_str!("../../../docs/isolation.md")]
    mod isolation {}
    #[doc = include_str!("../../../docs/tensor.md")]
    mod tensor {}
    #[doc = include_str!("../../../docs/graphs.md")]
    mod graphs {}
    #[doc = include_str!("../../../docs/many-devices.md")]
    mod many_devices {}
    #[doc = include_str!("../../../docs/function-constants.md")]
    mod function_constants {}
    #[doc = include_str!("../../../docs/hardware.md")]
    mod hardware {}
    #[doc = include_str!("../../../docs/metrics.md")]
    mod metrics {}
    #[doc = include_str!("../../../docs/logging.md")]
    mod logging {}
    #[doc = include_str!("../../../docs/cpu.md")]
    mod cpu {}
}
