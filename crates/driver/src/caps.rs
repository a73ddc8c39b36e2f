//! [`Caps`]: identity, limits and features of a device, queried from the hardware.

use crate::{Dim3, Primitives};

/// The kind of hardware behind a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum DeviceKind {
    /// An Apple GPU, through Metal.
    Metal,
    /// An NVIDIA GPU, through CUDA.
    Cuda,
    /// The CPU, through Elinvar's SPMD compiler.
    Cpu,
    /// A driver for tests that records commands and injects faults.
    Sim,
}

impl DeviceKind {
    /// The lower-case name that the command line and its JSON use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Metal => "metal",
            Self::Cuda => "cuda",
            Self::Cpu => "cpu",
            Self::Sim => "sim",
        }
    }
}

/// Granularity at which [`Queue::stop`](crate::Queue::stop) ends running work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum StopsAt {
    /// Running work cannot be stopped.
    Never,
    /// Running threadgroups finish; no others begin.
    Threadgroups,
    /// As `Threadgroups`; in addition, a thread of a [`stoppable`](crate::Pipeline::stoppable) pipeline exits before the next
    /// iteration of a loop.
    Loops,
}

/// Identity, limits and optional features of one device.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Caps {
    /// Name of the hardware, for display.
    pub name: String,
    /// The kind of hardware.
    pub kind: DeviceKind,
    /// Limits.
    pub limits: Limits,
    /// Optional features, and how the device behaves where drivers differ.
    pub features: Features,
}

/// Limits of one device: sizes and counts.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Limits {
    /// Threads per simdgroup, `threads_per_simdgroup` in MSL.
    pub simdgroup_width: u32,
    /// Maximum product of a threadgroup's three sizes, `maxTotalThreadsPerThreadgroup` in Metal.
    pub max_threads_per_threadgroup: u32,
    /// Maximum size of a threadgroup per dimension, in threads.
    pub max_threadgroup_size: Dim3,
    /// Maximum threadgroup memory of one threadgroup in bytes, static and dynamic together.
    pub max_threadgroup_memory: u64,
    /// Maximum size of a single buffer in bytes, `maxBufferLength` in Metal.
    pub max_buffer_bytes: u64,
    /// Memory of the device in bytes; for unified memory, of the machine.
    pub total_memory: u64,
    /// Maximum total size of buffers in use, in bytes, before performance degrades; at most [`Limits::total_memory`];
    /// `recommendedMaxWorkingSetSize` in Metal.
    pub working_set: u64,
    /// Allocation granularity in bytes.
    pub memory_granule: u64,
    /// Host memory can be imported without a copy ([`crate::Device::wrap`]) if its address and length are multiples of this many
    /// bytes; `None` if it cannot be imported.
    pub wrap_granule: Option<u64>,
    /// Cores of a GPU (streaming multiprocessors on CUDA), worker threads of the CPU driver; at least 1.
    pub compute_units: u32,
    /// Number of queues beyond which concurrency gains nothing.
    pub parallel_queues: u32,
    /// Width of a CPU's vector register in bits; `None` on a GPU.
    pub vector_bits: Option<u32>,
}

/// Optional features of one device, and how it behaves where drivers differ.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Features {
    /// Host and device share memory, so that a buffer can be mapped without a copy; `hasUnifiedMemory` in Metal.
    pub unified_memory: bool,
    /// Buffers can be [`crate::Storage::Managed`].
    pub managed_memory: bool,
    /// Granularity at which running work stops ([`crate::Queue::stop`]).
    pub stops_at: StopsAt,
    /// The device restarts by itself after it was lost: pending submissions end in [`DeviceLost`](crate::Error::DeviceLost), the
    /// next one runs, and all memory keeps its content.
    pub restarts: bool,
    /// The driver validates the counts of a [`Grid::Indirect`](crate::Grid::Indirect); where it does not, counts beyond the limits
    /// are undefined behavior.
    pub sees_counts: bool,
    /// Queues have a [`Priority`](crate::Priority); where they do not, any but normal is an error.
    pub priorities: bool,
    /// The fault of a checked kernel names the access: argument or variable, element, thread and line. Without it the fault names
    /// the kernel, and the line where the device reports it.
    pub names_accesses: bool,
    /// `matmul2d` of factors of 16 bits in device memory is faster than what a kernel can do with simdgroup matrices.
    pub tensor_products: bool,
    /// Primitives of the vendor's library ([`crate::Command::Primitive`]).
    pub primitives: Primitives,
}
