//! What this machine is: processor name, vector width, page size, clock.
//!
//! Everything is read from the system or the processor; a fact that cannot be read is reported as
//! absent or by the architecture's name, never guessed.

use std::fs::File;
use std::io::Read as _;
use std::time::Instant;

use elinvar_driver::{Caps, DeviceKind, Dim3, PerProcess, Primitives, StopsAt};

use crate::limits;

/// Largest buffer: indices of elements of any size are below 2^31, on which the compiler relies.
const MAX_BUFFER_BYTES: u64 = elinvar_spmd::MOST_BYTES;
/// Metal's limit, which the compiler's work-group functions share.
pub(crate) const MAX_THREADS_PER_THREADGROUP: u32 = 1024;
/// Threadgroup memory is ordinary memory here; this much stays in the second-level cache of any
/// processor with vectors, and it is twice what Apple GPUs offer.
const MAX_THREADGROUP_MEMORY: u64 = 64 << 10;

/// Facts and limits of a device with `workers` worker threads.
pub(crate) fn caps(workers: usize) -> Caps {
    let total_memory = limits::total();
    let max_buffer_bytes = total_memory.min(MAX_BUFFER_BYTES) / page_size() * page_size();
    let limit = MAX_THREADS_PER_THREADGROUP;
    Caps {
        name: processor_name().unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH)),
        kind: DeviceKind::Cpu,
        simdgroup_width: 32,
        max_threads_per_threadgroup: limit,
        max_threadgroup_size: Dim3::new(limit, limit, limit),
        max_threadgroup_memory: MAX_THREADGROUP_MEMORY,
        max_buffer_bytes,
        total_memory,
        working_set: limits::working_set(),
        memory_granule: page_size(),
        unified_memory: true,
        managed_memory: true,
        wrap_granule: Some(page_size()),
        compute_units: u32::try_from(workers).unwrap_or(u32::MAX),
        stops_at: StopsAt::Loops,
        restarts: false,
        sees_counts: true,
        parallel_queues: u32::try_from(workers).unwrap_or(u32::MAX),
        priorities: true,
        vector_bits: vector_bits(),
        names_accesses: true,
        primitives: Primitives::NONE,
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

/// What decides which machine code `-march=native` gives: kind and features of the processor, as far as the
/// system says.
pub(crate) fn processor_identity() -> &'static str {
    static IDENTITY: PerProcess<String> = PerProcess::new(|| {
        // The first processor is enough, and each one more would cost time.
        let mut start = Vec::new();
        let read = File::open("/proc/cpuinfo").and_then(|file| file.take(16 << 10).read_to_end(&mut start));
        match read {
            Ok(_) => identity_lines(&String::from_utf8_lossy(&start)),
            Err(_) => processor_name().unwrap_or_default(),
        }
    });
    IDENTITY.get()
}

/// The lines about the first processor that do not change while it runs.
fn identity_lines(cpuinfo: &str) -> String {
    const NAMES: [&str; 10] = [
        "vendor_id",
        "cpu family",
        "model",
        "model name",
        "stepping",
        "flags",
        "Features",
        "CPU implementer",
        "CPU part",
        "CPU variant",
    ];
    let first = cpuinfo.lines().take_while(|line| !line.is_empty());
    let kept = first.filter(|line| NAMES.contains(&line.split(':').next().unwrap_or_default().trim()));
    kept.collect::<Vec<_>>().join("\n")
}

#[allow(unsafe_code)] // a C function
pub(crate) fn sysconf(name: libc::c_int) -> Option<u64> {
    // SAFETY: takes a number, returns a number, touches no memory of ours.
    let value = unsafe { libc::sysconf(name) };
    u64::try_from(value).ok()
}

#[cfg(target_os = "linux")]
fn processor_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(target_vendor = "apple")]
#[allow(unsafe_code)] // a C function
fn processor_name() -> Option<String> {
    let mut text = [0_u8; 256];
    let mut len = text.len();
    // SAFETY: the name is a C string, `text` has room for `len` bytes, and nothing new is set.
    let status = unsafe {
        libc::sysctlbyname(
            c"machdep.cpu.brand_string".as_ptr(),
            text.as_mut_ptr().cast(),
            &raw mut len,
            std::ptr::null_mut(),
            0,
        )
    };
    if status != 0 {
        return None;
    }
    let name = std::ffi::CStr::from_bytes_until_nul(&text).ok()?;
    Some(name.to_string_lossy().into_owned())
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn processor_name() -> Option<String> {
    None
}

#[cfg(target_arch = "x86_64")]
pub(crate) fn vector_bits() -> Option<u32> {
    let bits = if std::arch::is_x86_feature_detected!("avx512f") {
        512
    } else if std::arch::is_x86_feature_detected!("avx") {
        256
    } else {
        128
    };
    Some(bits)
}

#[cfg(target_arch = "aarch64")]
pub(crate) fn vector_bits() -> Option<u32> {
    Some(128)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn vector_bits() -> Option<u32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processors_identity_is_what_does_not_change() {
        let text = "processor : 0\nmodel name\t: A\ncpu MHz\t: 1.5\nflags\t: x y\n\nmodel name\t: B\n";
        assert_eq!(identity_lines(text), "model name\t: A\nflags\t: x y");
        assert_ne!(identity_lines(&text.replace("x y", "x y z")), identity_lines(text));
        assert!(!processor_identity().is_empty());
    }

    #[test]
    fn facts_are_read_and_fit_together() {
        let caps = caps(3);
        assert_eq!(caps.compute_units, 3);
        assert!(!caps.name.is_empty());
        assert!(caps.total_memory >= 1 << 20, "{} bytes", caps.total_memory);
        assert!(caps.max_buffer_bytes <= caps.total_memory);
        assert!(caps.working_set <= caps.total_memory);
        assert!(caps.max_buffer_bytes / 4 <= 1 << 31);
        assert!(page_size().is_power_of_two());
    }

    #[test]
    fn the_clock_never_goes_back() {
        let first = now_ns();
        assert!(now_ns() >= first);
    }
}
