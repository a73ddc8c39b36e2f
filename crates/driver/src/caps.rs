//! What a device is and what its limits are, read from the hardware and never assumed.

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
    /// The processor, through Elinvar's own compiler.
    Cpu,
    /// A driver for tests that records commands and fails on demand.
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

/// Where work that runs ends when it is told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum StopsAt {
    /// Nowhere: what runs runs to its end.
    Never,
    /// Threadgroups that have begun run to their end, no other begins.
    Threadgroups,
    /// As threadgroups; and a thread of a pipeline that is [`stoppable`](crate::Pipeline::stoppable) ends where it would run a
    /// loop's body again.
    Loops,
}

/// Facts and limits of one device.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Caps {
    /// The hardware's own name, for people.
    pub name: String,
    /// The kind of hardware.
    pub kind: DeviceKind,
    /// Threads of a simdgroup, `threads_per_simdgroup` in MSL.
    pub simdgroup_width: u32,
    /// Largest product of a threadgroup's three sizes.
    pub max_threads_per_threadgroup: u32,
    /// Largest size of a threadgroup per dimension.
    pub max_threadgroup_size: Dim3,
    /// Bytes of threadgroup memory of one threadgroup, static and dynamic together.
    pub max_threadgroup_memory: u64,
    /// Bytes of the largest single buffer.
    pub max_buffer_bytes: u64,
    /// Bytes of memory of the device; for unified memory, of the machine.
    pub total_memory: u64,
    /// Bytes of memory that the device can work on at a time and keep its speed, at most [`Caps::total_memory`].
    pub working_set: u64,
    /// Allocations take whole multiples of this many bytes.
    pub memory_granule: u64,
    /// Whether host and device share memory, so that a buffer can be mapped without a copy.
    pub unified_memory: bool,
    /// Whether there is [`crate::Storage::Managed`].
    pub managed_memory: bool,
    /// Host memory whose address and length are multiples of this can be used in place, by
    /// [`crate::Device::wrap`]; `None` where none can.
    pub wrap_granule: Option<u64>,
    /// Things that run threadgroups side by side: cores of a GPU, worker threads of the CPU driver.
    pub compute_units: u32,
    /// Where work that runs ends when it is told to, by [`crate::Queue::stop`].
    pub stops_at: StopsAt,
    /// Whether the device restarts by itself when it was lost: what was in flight ends in [`DeviceLost`](crate::Error::DeviceLost), the
    /// next submission finds it there again, and all memory keeps its content.
    pub restarts: bool,
    /// Whether the driver sees the counts of a [`Grid::Indirect`](crate::Grid::Indirect), so that those beyond its limits are
    /// an error and not undefined.
    pub sees_counts: bool,
    /// Queues that it is worth using side by side.
    pub parallel_queues: u32,
    /// Whether queues have a [`Priority`](crate::Priority). Where not, one other than normal is refused.
    pub priorities: bool,
    /// Bits of one vector register of the CPU; `None` on a GPU.
    pub vector_bits: Option<u32>,
    /// Whether the fault of a checked kernel tells which access it was: the argument or variable, the element, the thread, and
    /// always the line. Without that it names the kernel, and the line where the device tells it.
    pub names_accesses: bool,
    /// What the vendor's library computes ([`crate::Command::Primitive`]).
    pub primitives: Primitives,
}
