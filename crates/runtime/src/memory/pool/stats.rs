//! Statistics and limits of a pool.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

/// Statistics of a device's memory pool. The values are exact, and a consistent snapshot.
///
/// A *block* is an allocation of the driver, with the size of its class, which is at least the requested size. It belongs to a
/// buffer (live) or is kept for reuse (idle).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Requested bytes of live buffers, excluding imported host memory.
    pub live_bytes: u64,
    /// Number of live buffers.
    pub live_buffers: u64,
    /// Bytes of the blocks of live buffers.
    pub live_block_bytes: u64,
    /// Maximum of `live_bytes` so far.
    pub peak_bytes: u64,
    /// Requested bytes of all buffers so far.
    pub total_bytes: u64,
    /// Bytes of idle blocks.
    pub idle_bytes: u64,
    /// Number of idle blocks.
    pub idle_blocks: u64,
    /// Bytes of the largest idle block.
    pub largest_idle_bytes: u64,
    /// Maximum of the bytes of all blocks, live and idle, so far.
    pub peak_block_bytes: u64,
    /// Number of requests served by an idle block.
    pub hits: u64,
    /// Number of requests for which the driver allocated a block.
    pub misses: u64,
    /// Number of failed requests.
    pub refused: u64,
    /// Number of idle blocks freed, for any reason.
    pub trimmed_blocks: u64,
    /// Bytes of idle blocks freed.
    pub trimmed_bytes: u64,
    /// Bytes of imported host memory.
    pub wrapped_bytes: u64,
    /// Memory pressure.
    pub pressure: Pressure,
}

impl PoolStats {
    /// Fraction of successful requests that an idle block served, from 0 to 1; 0 before the first request.
    pub fn hit_rate(&self) -> f64 {
        share(self.hits, self.hits + self.misses)
    }

    /// Internal fragmentation: fraction of the bytes of live blocks that were not requested, from 0 to 1; 0 if there are none. At
    /// most 1/8 for sizes well above the allocation granularity ([`crate::Limits::memory_granule`]) that were served by new
    /// blocks.
    pub fn slack(&self) -> f64 {
        share(self.live_block_bytes - self.live_bytes, self.live_block_bytes)
    }

    /// Fraction of idle bytes outside the largest idle block, from 0 to 1; 0 if there are none. A request of
    /// [`PoolStats::idle_bytes`] cannot use that fraction; [`crate::Pool::trim`] returns it to the driver, which can allocate any
    /// size from it.
    pub fn fragmentation(&self) -> f64 {
        share(self.idle_bytes - self.largest_idle_bytes, self.idle_bytes)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Memory pressure of a device: by the fraction of the budget that all blocks use, or by the fraction of its memory that the
/// system has available, whichever is worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Below 70 % of the budget, and at least 20 % available. Idle blocks are kept up to [`PoolLimits::idle_bytes`].
    #[default]
    Normal,
    /// At least 70 % of the budget, or less than 20 % available. Idle blocks are kept up to half of the limit.
    Elevated,
    /// At least 85 % of the budget, or less than 10 % available. No idle blocks are kept.
    High,
    /// At least 95 % of the budget, or less than 5 % available. No idle blocks are kept; the next allocation may fail.
    Critical,
}

impl Pressure {
    /// Pressure of `used` bytes of a budget.
    pub(crate) fn of_budget(used: u64, budget: u64) -> Self {
        let percent = |n: u128| u128::from(used) * 100 >= u128::from(budget) * n;
        match () {
            () if percent(95) => Self::Critical,
            () if percent(85) => Self::High,
            () if percent(70) => Self::Elevated,
            () => Self::Normal,
        }
    }

    /// Pressure of a system with `available` of `total` bytes.
    pub(crate) fn of_available(available: u64, total: u64) -> Self {
        let below = |part: u64| available < total / part;
        match () {
            () if below(20) => Self::Critical,
            () if below(10) => Self::High,
            () if below(5) => Self::Elevated,
            () => Self::Normal,
        }
    }
}

/// Limits of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Maximum bytes of all blocks, live and idle. Idle blocks are freed to make room; a request beyond the budget is `OutOfMemory`. By default the
    /// device's [`crate::Limits::working_set`].
    pub budget: u64,
    /// Maximum bytes of idle blocks. By default a quarter of the budget.
    pub idle_bytes: u64,
    /// Blocks that are idle for longer are freed, at intervals of 30 seconds. By default 60 seconds.
    pub idle_time: Duration,
}

/// Live buffers of one allocation site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// File, line and column of the allocation.
    pub location: &'static Location<'static>,
    /// Number of buffers.
    pub buffers: u64,
    /// Requested bytes.
    pub bytes: u64,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} buffers, {} bytes", self.location, self.buffers, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_rises_with_use_and_with_what_the_system_has_left() {
        use Pressure::{Critical, Elevated, High, Normal};
        let levels = [
            (0, Normal),
            (69, Normal),
            (70, Elevated),
            (84, Elevated),
            (85, High),
            (94, High),
            (95, Critical),
        ];
        for (used, level) in levels {
            assert_eq!(Pressure::of_budget(used, 100), level, "{used} %");
        }
        assert_eq!(Pressure::of_budget(u64::MAX, u64::MAX), Critical);
        for (left, level) in
            [(4, Critical), (5, High), (9, High), (10, Elevated), (19, Elevated), (20, Normal)]
        {
            assert_eq!(Pressure::of_available(left, 100), level, "{left} % left");
        }
    }

    #[test]
    fn shares_of_nothing_are_zero() {
        let stats = PoolStats::default();
        assert_eq!((stats.hit_rate(), stats.slack(), stats.fragmentation()), (0.0, 0.0, 0.0));
        let stats = PoolStats { idle_bytes: 8, largest_idle_bytes: 2, hits: 3, misses: 1, ..stats };
        assert_eq!((stats.hit_rate(), stats.fragmentation()), (0.75, 0.75));
    }
}
