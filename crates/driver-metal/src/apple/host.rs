//! Properties of the host: the clock of GPU times, page size, memory, thermal state.
//!
//! `GPUStartTime` and `GPUEndTime` are "host time in seconds", on the clock that does not advance while the machine sleeps.

use elinvar_driver::{Error, Result, Thermal};
use objc2_foundation::{NSProcessInfo, NSProcessInfoThermalState as State};

#[cfg(target_vendor = "apple")]
const CLOCK: libc::clockid_t = libc::CLOCK_UPTIME_RAW;
#[cfg(not(target_vendor = "apple"))]
const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// The current time in nanoseconds.
#[allow(unsafe_code)] // a C function
pub(super) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one `timespec`. It cannot fail for a clock that all supported systems have.
    unsafe { libc::clock_gettime(CLOCK, &raw mut time) };
    let (seconds, rest) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// Converts a GPU time to nanoseconds.
pub(super) fn from_seconds(seconds: f64) -> u64 {
    // NaN and negative values become 0.
    (seconds * 1e9).round() as u64
}

/// Page size in bytes.
#[allow(unsafe_code)] // a C function
pub(super) fn page_size() -> u64 {
    // SAFETY: takes a number, returns a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(16384)
}

/// Memory of the machine in bytes, if the system reports it.
#[allow(unsafe_code)] // a C function
pub(super) fn machine_memory() -> Option<u64> {
    // SAFETY: takes a number, returns a number.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).ok()?.checked_mul(page_size())
}

/// The system's thermal state, which is also that of a GPU on the same chip.
pub(super) fn thermal() -> Result<Thermal> {
    match NSProcessInfo::processInfo().thermalState() {
        State::Nominal => Ok(Thermal::Nominal),
        State::Fair => Ok(Thermal::Fair),
        State::Serious => Ok(Thermal::Serious),
        State::Critical => Ok(Thermal::Critical),
        State(other) => {
            Err(Error::unsupported(format!("the system's thermal state is {other}, which is unknown")))
        }
    }
}
