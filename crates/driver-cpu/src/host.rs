//! Facts of this machine: the device's capabilities, page size, clock.
//!
//! Everything is read from the system or the processor; a fact that cannot be read is absent, or the architecture's name, never a guess.

use std::time::Instant;

use elinvar_code::MAX_THREADS_PER_THREADGROUP;
use elinvar_driver::{Caps, DeviceKind, Dim3, Features, Limits, PerProcess, Primitives, StopsAt};
use elinvar_native::processor;

use crate::limits;

/// Largest buffer: indices of elements of any size are below 2^31, on which the compiler relies.
const MAX_BUFFER_BYTES: u64 = elinvar_spmd::MOST_BYTES;
/// Threadgroup memory is ordinary memory here; this much stays in the second-level cache of any
/// processor with vectors, and it is twice what Apple GPUs offer.
const MAX_THREADGROUP_MEMORY: u64 = 64 << 10;

/// Facts and limits of a device with `workers` worker threads.
pub(crate) fn caps(workers: usize) -> Caps {
    let total_memory = limits::total();
    let max_buffer_bytes = total_memory.min(MAX_BUFFER_BYTES) / page_size() * page_size();
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
            primitives: Primitives::NONE,
        },
    }
}

/// Nanoseconds since the first call in this process, of a clock that never goes back.
pub(crate) fn now_ns() -> u64 {
    static EPOCH: PerProcess<Instant> = PerProcess::new(Instant::now);
    u64::try_from(EPOCH.get().elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Bytes of a page of memory.
pub(crate) fn page_size() -> u64 {
    static PAGE: PerProcess<u64> = PerProcess::new(|| sysconf(libc::_SC_PAGESIZE).unwrap_or(4096));
    *PAGE.get()
}

#[allow(unsafe_code)] // a C function
pub(crate) fn sysconf(name: libc::c_int) -> Option<u64> {
    // SAFETY: takes a number, returns a number, touches no memory of ours.
    let value = unsafe { libc::sysconf(name) };
    u64::try_from(value).ok()
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
        assert!(caps.limits.max_buffer_bytes / 4 <= 1 << 31);
        assert!(page_size().is_power_of_two());
    }

    #[test]
    fn the_clock_never_goes_back() {
        let first = now_ns();
        assert!(now_ns() >= first);
    }
}
