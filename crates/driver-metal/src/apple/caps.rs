//! Conversion of Metal's device properties to [`Caps`].
//!
//! Metal does not report the number of GPU cores, so `compute_units` is 1. The simdgroup width and the maximum threadgroup size are those of
//! a minimal kernel of the driver.

use elinvar_driver::{Caps, DeviceKind, Dim3, Limits, StopsAt};
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLComputePipelineState, MTLDevice, MTLGPUFamily};

use super::{host, mps, validation};

/// Number of queues that keep the device busy while the command buffer of one of them is encoded. More are allowed; Metal executes a device's
/// queues concurrently as far as it can.
const PARALLEL_QUEUES: u32 = 4;

/// Features of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Features {
    /// `dispatchThreads`: nonuniform threadgroups at the edges of a grid.
    pub(super) edges: bool,
    /// Unified memory.
    pub(super) unified: bool,
    /// Kernels encode indirect command buffers, with addresses of buffers: family Metal3, on a system that reports addresses (macOS 13).
    pub(super) commands: bool,
    /// The process has Metal's shader validation, which identifies encoders by label, so each gets one.
    pub(super) validates: bool,
}

impl Features {
    /// Nonuniform threadgroup sizes are supported from the families Apple4 and Mac2 on (Metal feature set tables).
    pub(super) fn of(device: &ProtocolObject<dyn MTLDevice>) -> Self {
        let has = |family| device.supportsFamily(family);
        Self {
            edges: [MTLGPUFamily::Apple4, MTLGPUFamily::Mac2, MTLGPUFamily::Metal3].into_iter().any(has),
            unified: device.hasUnifiedMemory(),
            commands: has(MTLGPUFamily::Metal3),
            validates: validation::is_on(),
        }
    }
}

pub(super) fn caps(
    device: &ProtocolObject<dyn MTLDevice>,
    features: Features,
    plain: &ProtocolObject<dyn MTLComputePipelineState>,
) -> Caps {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let group = device.maxThreadsPerThreadgroup();
    let recommended = device.recommendedMaxWorkingSetSize();
    let machine = features.unified.then(host::machine_memory).flatten();
    let total_memory = machine.unwrap_or(recommended).max(1);
    Caps {
        name: device.name().to_string(),
        kind: DeviceKind::Metal,
        limits: Limits {
            simdgroup_width: count(plain.threadExecutionWidth()),
            max_threads_per_threadgroup: count(plain.maxTotalThreadsPerThreadgroup()),
            max_threadgroup_size: Dim3::new(count(group.width), count(group.height), count(group.depth)),
            max_threadgroup_memory: device.maxThreadgroupMemoryLength() as u64,
            max_buffer_bytes: (device.maxBufferLength() as u64).min(total_memory),
            total_memory,
            working_set: recommended.clamp(1, total_memory),
            memory_granule: host::page_size(),
            wrap_granule: Some(host::page_size()),
            compute_units: 1,
            parallel_queues: PARALLEL_QUEUES,
            vector_bits: None,
        },
        features: elinvar_driver::Features {
            unified_memory: features.unified,
            managed_memory: true,
            stops_at: StopsAt::Never,
            restarts: false,
            // The GPU reads the counts.
            sees_counts: false,
            // `MTLCommandQueue` has no priorities.
            priorities: false,
            names_accesses: false,
            tensor_products: false,
            primitives: mps::primitives(device),
        },
    }
}
