//! What Metal says of a device, as [`Caps`].
//!
//! Metal does not tell how many cores a GPU has; `compute_units` is then 1. The width of a simdgroup and the largest
//! threadgroup are those of a kernel of ours, which uses little.

use elinvar_driver::{Caps, DeviceKind, Dim3, Limits, StopsAt};
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLComputePipelineState, MTLDevice, MTLGPUFamily};

use super::{host, mps, validation};

/// Command queues of a device run side by side as far as it can. This many keep it busy while one of them has its command
/// buffer encoded; more are allowed.
const PARALLEL_QUEUES: u32 = 4;

/// What a device can do beside its limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Features {
    /// `dispatchThreads`: threadgroups at the edges of a grid may be smaller.
    pub(super) edges: bool,
    /// Host and device share their memory.
    pub(super) unified: bool,
    /// The process has Metal's shader validation, which tells of encoders by their labels: each has one then.
    pub(super) validates: bool,
}

impl Features {
    /// Non-uniform threadgroup sizes are there from the families Apple4 and Mac2 on (Metal feature set tables).
    pub(super) fn of(device: &ProtocolObject<dyn MTLDevice>) -> Self {
        let has = |family| device.supportsFamily(family);
        Self {
            edges: [MTLGPUFamily::Apple4, MTLGPUFamily::Mac2, MTLGPUFamily::Metal3].into_iter().any(has),
            unified: device.hasUnifiedMemory(),
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
            // The GPU reads them.
            sees_counts: false,
            // `MTLCommandQueue` has none.
            priorities: false,
            names_accesses: false,
            primitives: mps::primitives(device),
        },
    }
}
