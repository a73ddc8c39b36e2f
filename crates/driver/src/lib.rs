//! The contract between Elinvar's runtime and its drivers.
//!
//! A driver executes [`Command`]s, which are plain data, on one kind of hardware. The traits are object-safe: a [`Driver`] lists
//! [`Device`]s; a device allocates [`Memory`], compiles a [`Source`] to a [`Library`] of [`Pipeline`]s, and creates [`Queue`]s, which
//! execute lists of commands. The runtime validates calls against the kernel's [`Signature`] and the device's [`Caps`]; a driver
//! receives validated commands only.
//!
//! This crate runs no kernels, is independent of hardware, and has no large dependencies.
//!
//! # Vocabulary
//!
//! | Elinvar | Metal | CUDA | CPU driver |
//! |---|---|---|---|
//! | [`Device`] | `MTLDevice` | device + primary context | the worker pool |
//! | [`Memory`] | `MTLBuffer` | device allocation | page-aligned host memory |
//! | [`Library`] | `MTLLibrary` | module | compiled MSL source |
//! | [`Pipeline`] | `MTLComputePipelineState` | function | shared object for one or many threadgroup sizes |
//! | [`Queue`] | `MTLCommandQueue` | stream | ordered list of submissions |
//! | [`Event`] | [`Timeline`], signaled by the queue's `MTLSharedEvent` | [`Timeline`] and the CUDA events of streams that will signal it | [`Timeline`] |
//! | [`TimestampSlot`] | `MTLCounterSampleBuffer` | event with timing | clock reading |
//! | [`Device::capture`] | `MTLCaptureManager`, a GPU trace | – | – |
//! | one [`Queue::submit`] | `MTLCommandBuffer` | sequence of stream calls | one entry of that list |
//! | [`Memory::gpu_address`] | `gpuAddress` | device pointer | host address |
//! | [`Device::wrap`] | `makeBuffer(bytesNoCopy:)` | registered host memory | the memory itself |
//! | [`Memory::pull`], [`Memory::push`] | `synchronize(resource:)`, `didModifyRange(_:)` | copies from and to pinned memory | – |
//! | [`Limits::working_set`] | `recommendedMaxWorkingSetSize` | total memory | the control group's limit |
//! | [`Dispatch::uses`] | `useResource(_:usage:)` | – | – |
//! | [`Grid::Indirect`] | `dispatchThreadgroups(indirectBuffer:…)` | counts copied to the host, then a launch | counts read when the command begins |
//! | [`Primitive`] | `MPSKernel` | – | – |
//! | [`Device::reset`] | – | – (a new process) | – |
//! | [`Device::reaches`] | `peerGroupID`, remote buffer views | peer access | devices of one driver |
//! | threadgroup | threadgroup | thread block | one call on one worker |
//! | simdgroup (32 threads) | SIMD-group | warp | lanes of vector registers |
//!
//! # Execution contract
//!
//! Every driver guarantees the following; the conformance suite tests it.
//!
//! 1. **Memory.** A submission keeps the memory and pipelines that it names alive until the device has finished with them. New memory
//!    is zeroed, except with [`Init::Uninitialized`]. Two arguments may alias. An address in memory ([`Memory::gpu_address`]) keeps
//!    nothing alive: a dispatch lists the memory that it accesses through addresses in [`Dispatch::uses`].
//! 2. **Order.** Commands of one queue take effect in submission order, as if each began after the previous one had ended.
//!    Different queues are ordered only by [`Command::Wait`] and [`Command::Signal`]. A blocked queue does not block others. Within a
//!    dispatch, threadgroups are unordered; their writes to device memory become visible to one another through atomics and
//!    fences only. Barriers with `mem_device` and atomic fences are hardware fences.
//! 3. **Progress.** Threads that wait at a threadgroup barrier make progress; exited threads count as arrived. Threadgroups start in
//!    ascending order of their linear index (x varies fastest), as far as atomic operations can observe, and a started threadgroup
//!    runs to its end. A threadgroup may therefore wait for the result of an earlier one. Simdgroups of one threadgroup must not
//!    spin on one another.
//! 4. **Completion.** The `done` callback of a submission is called exactly once, on a thread of the driver, after the submission's
//!    effects are visible to the host. It must not block or unwind. [`Queue::cancel`] removes a submission that has not begun.
//! 5. **Failure.** A failure is sticky: until [`Queue::acknowledge`], the submissions that follow a failed one do not run and end in
//!    [`Error::Poisoned`] with the first cause. A device may have executed them if that shows only in the memory that they write,
//!    whose content is then unspecified, and they can be executed again. A cancellation is not a failure. If a submission ends in any error, the events that
//!    it would have signaled fail ([`fail_signals`]) before its `done` is called. A submission that waits for a failed event fails.
//! 6. **Numerics.** Integer results are identical on every driver. Integer division by zero, `INT_MIN / -1` and shifts by at least
//!    the width return Metal's result or zero, and never trap.
#![warn(missing_docs)]

mod callback;
mod cancellation;
mod caps;
mod capture;
mod command;
mod device;
mod diagnostic;
mod dim3;
mod doorbell;
mod ending;
mod error;
mod event;
mod grid;
pub mod indirect;
mod linked;
pub mod log;
mod memory;
pub mod nested;
mod options;
pub mod primitive;
mod process;
mod promised_timeline;
mod readings;
mod several;
mod signature;
mod source;
pub mod submission;
pub mod sync;
mod thermal;
mod timeline;
mod timestamp_slot;
mod unknown_name;

pub use callback::Callback;
pub use cancellation::{Cancellation, OnCancel};
pub use caps::{Caps, DeviceKind, Features, Limits, StopsAt};
pub use capture::Capture;
pub use command::{Binding, Command, Dispatch, InlineBytes, Label, MemorySlice, Use};
pub use device::{
    Device, Done, Driver, Library, OnCompleted, Pipeline, Priority, Queue, Reach, Submission, Timing,
};
pub use diagnostic::{Diagnostic, Severity};
pub use dim3::Dim3;
pub use doorbell::{Doorbell, ResidentThreads};
pub use ending::{begin_log, end_submission, panic_text};
pub use error::{Error, Fault, Result};
pub use event::{Event, Expected, Reached, fail_signals};
pub use grid::Grid;
pub use indirect::{CommandHeader, CommandRange, CommandRecord, ExecuteCommands, InheritedBuffer};
pub use log::{Log, LogCallback, LogKernel, LogLevel, LogLine, LogSite, LogValue, MAX_LOG_WORDS};
pub use memory::{HostBlock, Init, Memory, Storage, expect_within};
pub use nested::{NestedLaunch, QueueHeader};
pub use options::{Constant, ConstantKey, FunctionConstant, PipelineOptions, Tier, UnsupportedKernel};
pub use primitive::{Primitive, PrimitiveKind, Primitives};
pub use process::{PerProcess, Process};
pub use promised_timeline::{Promise, PromisedTimeline};
pub use readings::{CacheLookups, Energy, Quantity, Reading, Readings};
pub use several::{
    Aborter, Check, Collective, CollectiveCall, CollectiveLibrary, LibraryMember, Link, LinkKind, Member,
    Place, Point, Reduction,
};
pub use signature::{
    Access, Arg, ArgKind, Builtin, CodeFacts, ElementType, Scalar, Signature, function_handle,
};
pub use source::{MathMode, MetalLibrary, Packed, Source, SourceFile, SourceLanguage};
pub use thermal::Thermal;
pub use timeline::Timeline;
pub use timestamp_slot::TimestampSlot;
pub use unknown_name::similar_names;
