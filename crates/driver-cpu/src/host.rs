//! Properties of the host: device capabilities, page size, clock.
//!
//! Everything is queried from the system or the processor. A property that cannot be queried is absent or the architecture's name, never
//! guessed.

use std::time::Instant;

use elinvar_code::MAX_THREADS_PER_THREADGROUP;
use elinvar_driver::{
    Caps, DeviceKind, Dim3, Features, Limits, PerProcess, PrimitiveKind, Primitives, StopsAt,
};
use elinvar_native::processor;

use crate::limits;

/// Threadgroup memory is ordinary memory here. This size fits in the L2 cache of any processor with vector instructions, and is twice
/// that of Apple GPUs.
const MAX_THREADGROUP_MEMORY: u64 = 64 << 10;

/// Capabilities and limits of a device with `workers` worker threads.
pub(crate) fn caps(workers: usize) -> Caps {
    let total_memory = limits::total();
    let max_buffer_bytes = total_memory / page_size() * page_size();
    let limit = MAX_THREADS_PER_THREADGROUP;
    Caps {
        name: processor::name().unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH)),
        kind: DeviceKind::Cpu,
        limits: Limits {
            simdgroup_width: 32,
            max_threads_per_threadgroup: limit,
            max_threadgroup_size: Dim3::new(limit, limit, limit),
            max_threadgroup_memory: MAX_THREADGROUP_MEMORY,
            max_buffer_bytes,
            total_memory,
            working_set: limits::working_set(),
            memory_granule: page_size(),
            wrap_granule: Some(page_size()),
            compute_units: u32::try_from(workers).unwrap_or(u32::MAX),
            parallel_queues: u32::try_from(workers).unwrap_or(u32::MAX),
            vector_bits: processor::vector_bits(),
        },
        features: Features {
            unified_memory: true,
            managed_memory: true,
            stops_at: StopsAt::Loops,
            restarts: false,
            sees_counts: true,
            priorities: true,
            names_accesses: true,
            tensor_products: false,
            primitives: primitives(),
        },
    }
}

/// Products and convolutions of floating-point numbers.
fn primitives() -> Primitives {
    let kinds = [PrimitiveKind::MatMul, PrimitiveKind::MatVec, PrimitiveKind::Convolution];
    kinds.into_iter().fold(Primitives::NONE, Primitives::with_floats)
}

/// Monotonic clock: nanoseconds since the first call in this process.
pub(crate) fn now_ns() -> u64 {
    static EPOCH: PerProcess<Instant> = PerProcess::new(Instant::now);
    u64::try_from(EPOCH.get().elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Page size in bytes.
pub(crate) fn page_size() -> u64 {
    static PAGE: PerProcess<u64> = PerProcess::new(|| sysconf(libc::_SC_PAGESIZE).unwrap_or(4096));
    *PAGE.get()
}

#[allow(unsafe_code)] // a C function
pub(crate) fn sysconf(name: libc::c_int) -> Option<u64> {
    // SAFETY: takes and returns a number, and accesses no memory.
    let value = unsafe { libc::sysconf(name) };
    u64::try_from(value).ok()
}

/// The system's number of the calling thread, as in `/proc/self/task`.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // a C function
pub(crate) fn thread_number() -> Option<u32> {
    // SAFETY: returns a number, and accesses no memory.
    let number = unsafe { libc::gettid() };
    u32::try_from(number).ok()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn thread_number() -> Option<u32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_and_fit_together() {
        let caps = caps(3);
        assert_eq!(caps.limits.compute_units, 3);
        assert!(!caps.name.is_empty());
        assert!(caps.limits.total_memory >= 1 << 20, "{} bytes", caps.limits.total_memory);
        assert!(caps.limits.max_buffer_bytes <= caps.limits.total_memory);
        assert!(caps.limits.working_set <= caps.limits.total_memory);
        assert!(caps.limits.max_buffer_bytes + page_size() > caps.limits.total_memory);
        assert!(page_size().is_power_of_two());
    }

    #[test]
    fn the_clock_never_goes_back() {
        let first = now_ns();
        assert!(now_ns() >= first);
    }
}
