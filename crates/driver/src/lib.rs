//! The contract between Elinvar's runtime and its drivers.
//!
//! A driver turns [`Command`]s, which are plain data, into work on one kind of hardware. The traits
//! are object-safe and few: a [`Driver`] lists [`Device`]s; a device allocates [`Memory`], compiles a
//! [`Source`] to a [`Library`] of [`Pipeline`]s, and opens [`Queue`]s that take lists of commands.
//! Checking a user's call is the runtime's work: what reaches a driver has been checked against the
//! kernel's [`Signature`] and the device's [`Caps`].
//!
//! This crate holds no code that runs kernels, knows no hardware and depends on nothing of weight.
//!
//! # Vocabulary
//!
//! | Elinvar | Metal | CUDA | CPU driver |
//! |---|---|---|---|
//! | [`Device`] | `MTLDevice` | device + primary context | the worker pool |
//! | [`Memory`] | `MTLBuffer` | device allocation | page-aligned host memory |
//! | [`Library`] | `MTLLibrary` | module | compiled MSL source |
//! | [`Pipeline`] | `MTLComputePipelineState` | function | shared object per threadgroup size |
//! | [`Queue`] | `MTLCommandQueue` | stream | ordered list of submissions |
//! | [`Event`] | [`Timeline`], raised by the queue's `MTLSharedEvent` | [`Timeline`] and the events of streams that will raise it | [`Timeline`] |
//! | [`Stamp`] | `MTLCounterSampleBuffer` | event with timing | a time |
//! | [`Device::capture`] | `MTLCaptureManager`, a GPU trace | – | – |
//! | one [`Queue::submit`] | `MTLCommandBuffer` | sequence of stream calls | one entry of that list |
//! | [`Memory::gpu_address`] | `gpuAddress` | device pointer | host address |
//! | [`Device::wrap`] | `makeBuffer(bytesNoCopy:)` | registered host memory | the memory itself |
//! | [`Memory::pull`], [`Memory::push`] | `synchronize(resource:)`, `didModifyRange(_:)` | copies from and to pinned memory | – |
//! | [`Limits::working_set`] | `recommendedMaxWorkingSetSize` | total memory | the control group's limit |
//! | [`Dispatch::uses`] | `useResource(_:usage:)` | – | – |
//! | [`Grid::Indirect`] | `dispatchThreadgroups(indirectBuffer:…)` | counts copied to the host, then a launch | counts read when its turn comes |
//! | [`Primitive`] | `MPSKernel` | – | – |
//! | [`Device::reset`] | – | – (a new process) | – |
//! | [`Device::reaches`] | `peerGroupID`, remote buffer views | peer access | – |
//! | threadgroup | threadgroup | thread block | one call on one worker |
//! | simdgroup (32 threads) | SIMD-group | warp | lanes of vector registers |
//!
//! # Execution contract
//!
//! What every driver promises, and the conformance suite shows:
//!
//! 1. **Buffers.** A submission keeps the memory and pipelines it names alive until the device is
//!    done with them. New memory is zeroed unless [`Init::Uninitialized`] is asked for. Two
//!    arguments may alias. An address in memory ([`Memory::gpu_address`]) keeps nothing alive: a dispatch
//!    names what it reaches through addresses in [`Dispatch::uses`].
//! 2. **Order.** Commands of one queue take effect in the order of submission, as if each began after
//!    the one before it had ended; different queues are ordered by [`Command::Wait`] and [`Command::Signal`] only. A
//!    queue that waits keeps no other from running. Inside a dispatch, threadgroups
//!    are unordered; what one writes to device memory another sees through atomics and fences only.
//!    Barriers with `mem_device` and atomic fences are real fences.
//! 3. **Progress.** Threads that wait at a barrier of their threadgroup make progress; a thread that
//!    has returned counts as arrived. Threadgroups start in ascending order of their linear index
//!    (x fastest), as far as atomic operations can tell, and a started threadgroup runs to its end, so
//!    a group may wait for an earlier group's result. Simdgroups of one threadgroup must not spin on one another.
//! 4. **Completion.** The `done` callback of a submission is called exactly once, from a thread of
//!    the driver, after its effects are visible to the host. It must not block and must not unwind.
//!    [`Queue::cancel`] stops what has not begun.
//! 5. **Failure** is sticky on its queue: after a submission has failed, those behind it do not run
//!    and end in [`Error::Poisoned`] with the first cause, until [`Queue::acknowledge`]. Work that
//!    was cancelled is not a failure. Events that a submission would have raised fail when it ends in an error
//!    of any kind ([`fail_signals`]), before its `done` is called; a submission that waits for a failed event fails.
//! 6. **Numerics.** Integer results are identical on every driver. Integer division by zero,
//!    `INT_MIN / -1` and shifts beyond the width give what Metal gives or zero, and never trap.
#![warn(missing_docs)]

mod callback;
mod caps;
mod capture;
mod command;
mod device;
mod diagnostic;
mod dim3;
mod ending;
mod error;
mod event;
mod grid;
mod memory;
mod options;
pub mod primitive;
mod process;
mod signature;
mod source;
mod stamp;
pub mod submission;
pub mod sync;
mod thermal;
mod timeline;

pub use callback::Callback;
pub use caps::{Caps, DeviceKind, Features, Limits, StopsAt};
pub use capture::Capture;
pub use command::{Binding, Command, Dispatch, Label, MemorySlice, Use};
pub use device::{
    Device, Done, Driver, Library, OnCompleted, Pipeline, Priority, Queue, Reach, Submission, Timing,
};
pub use diagnostic::{Diagnostic, Severity};
pub use dim3::Dim3;
pub use ending::{end_submission, panic_text};
pub use error::{Error, Fault, Result};
pub use event::{Event, Reached, fail_signals};
pub use grid::Grid;
pub use memory::{HostBlock, Init, Memory, Storage, expect_within};
pub use options::{Constant, ConstantKey, FunctionConstant, PipelineOptions, UnsupportedKernel};
pub use primitive::{Primitive, PrimitiveKind, Primitives};
pub use process::{PerProcess, Process};
pub use signature::{Access, Arg, ArgKind, Builtin, CodeFacts, ElementType, Scalar, Signature};
pub use source::{MathMode, MetalLibrary, Packed, Source, SourceFile};
pub use stamp::Stamp;
pub use thermal::Thermal;
pub use timeline::Timeline;
