//! What the system says of itself: the clock of the GPU's times, pages, memory.
//!
//! `GPUStartTime` and `GPUEndTime` are "host time in seconds", on the clock that stands still while the machine sleeps.

#[cfg(target_vendor = "apple")]
const CLOCK: libc::clockid_t = libc::CLOCK_UPTIME_RAW;
#[cfg(not(target_vendor = "apple"))]
const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// Nanoseconds, now.
#[allow(unsafe_code)] // a C function
pub(super) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one `timespec`. It cannot fail for a clock that every system has had since long.
    unsafe { libc::clock_gettime(CLOCK, &raw mut time) };
    let (seconds, rest) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// A time of the GPU's in nanoseconds.
pub(super) fn from_seconds(seconds: f64) -> u64 {
    // What is not a number or negative becomes 0.
    (seconds * 1e9).round() as u64
}

/// Bytes of a page of memory.
#[allow(unsafe_code)] // a C function
pub(super) fn page_size() -> u64 {
    // SAFETY: takes a number, returns a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(16384)
}

/// Bytes of memory of the machine, if the system says.
#[allow(unsafe_code)] // a C function
pub(super) fn machine_memory() -> Option<u64> {
    // SAFETY: takes a number, returns a number.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).ok()?.checked_mul(page_size())
}
