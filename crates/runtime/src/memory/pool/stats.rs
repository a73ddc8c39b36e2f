//! What a pool says of itself, and the limits that it is given.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

/// Memory of one device, as its pool counts it: exact, all of one moment.
///
/// A *block* is an allocation of the driver. Its size is that of a class, a little more than what was asked for. It
/// belongs to a buffer (live) or waits to be used again (idle).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Bytes asked for by the buffers there are, wrapped ones left out.
    pub live_bytes: u64,
    /// Buffers there are.
    pub live_buffers: u64,
    /// Bytes of the blocks of those buffers.
    pub live_block_bytes: u64,
    /// The largest that `live_bytes` ever was.
    pub peak_bytes: u64,
    /// Bytes ever asked for and given.
    pub total_bytes: u64,
    /// Bytes of idle blocks.
    pub idle_bytes: u64,
    /// Idle blocks.
    pub idle_blocks: u64,
    /// Bytes of the largest idle block.
    pub largest_idle_bytes: u64,
    /// The largest that the blocks, live and idle, ever were together.
    pub peak_block_bytes: u64,
    /// Requests that an idle block served.
    pub hits: u64,
    /// Requests for which the driver allocated.
    pub misses: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Idle blocks that were given back to the driver, for whatever reason.
    pub trimmed_blocks: u64,
    /// Their bytes.
    pub trimmed_bytes: u64,
    /// Bytes of the host's memory that buffers use in place.
    pub wrapped_bytes: u64,
    /// How close it is to failing.
    pub pressure: Pressure,
}

impl PoolStats {
    /// Share of requests that an idle block served; 0 before the first.
    pub fn hit_rate(&self) -> f64 {
        share(self.hits, self.hits + self.misses)
    }

    /// Share of live blocks that nobody asked for.
    pub fn slack(&self) -> f64 {
        share(self.live_block_bytes - self.live_bytes, self.live_block_bytes)
    }

    /// Share of idle bytes that are not in the largest idle block: what a request as large as all that is idle could
    /// not have. [`crate::Pool::trim`] repairs it, since what the driver gets back it can give out in any size.
    pub fn fragmentation(&self) -> f64 {
        share(self.idle_bytes - self.largest_idle_bytes, self.idle_bytes)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// How close a device's memory is to its end, by the share of the budget that all blocks take or by what the system has
/// left, whichever is worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Below 70 % of the budget; the system has a fifth or more of its memory left. Idle blocks are kept up to the limit.
    #[default]
    Normal,
    /// From 70 %, or less than a fifth left: half as much is kept.
    Elevated,
    /// From 85 %, or less than a tenth left: nothing is kept.
    High,
    /// From 95 %, or less than a twentieth left: as high, and what comes next may fail.
    Critical,
}

impl Pressure {
    /// By `used` bytes of a budget.
    pub(crate) fn of_budget(used: u64, budget: u64) -> Self {
        let percent = |n: u128| u128::from(used) * 100 >= u128::from(budget) * n;
        match () {
            () if percent(95) => Self::Critical,
            () if percent(85) => Self::High,
            () if percent(70) => Self::Elevated,
            () => Self::Normal,
        }
    }

    /// By what is available of all memory.
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

/// What a pool may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Bytes of all blocks, live and idle. A request beyond it is refused once nothing idle is left. At first the
    /// device's working set, [`crate::Limits::working_set`].
    pub budget: u64,
    /// Bytes of idle blocks to keep. At first a quarter of the budget.
    pub idle_bytes: u64,
    /// Blocks that are idle for longer are given back to the driver. At first a minute; looked at every half minute.
    pub idle_time: Duration,
}

/// Buffers that were allocated at one place of the program and still live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Where, as file, line and column.
    pub location: &'static Location<'static>,
    /// How many.
    pub buffers: u64,
    /// Bytes that they asked for.
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
