//! What a threadgroup takes of a CPU's core, which runs one at a time.

use super::{Limiter, Occupancy};

/// Sizes in bytes of a core's caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreCaches {
    /// The first level's data cache.
    pub l1: u64,
    /// The second level's.
    pub l2: u64,
}

/// The occupancy of a threadgroup of `threads` threads along x in vectors of `lanes` threads: `share` is that of lanes with a thread. `scratch` are the bytes of
/// threadgroup memory and of values that live across barriers, for all threads; a threadgroup whose bytes exceed a cache is limited by it.
pub fn cpu_occupancy(threads: u32, lanes: u32, scratch: u64, caches: Option<CoreCaches>) -> Occupancy {
    let lanes = lanes.max(1);
    let slots = threads.max(1).next_multiple_of(lanes);
    let limiter = match caches {
        Some(caches) if scratch > caches.l2 => Limiter::L2,
        Some(caches) if scratch > caches.l1 => Limiter::L1,
        _ if slots > threads => Limiter::Lanes,
        _ => Limiter::Core,
    };
    Occupancy {
        threads,
        groups: 1,
        simdgroups: threads.div_ceil(32).max(1),
        share: f64::from(threads) / f64::from(slots),
        limiter,
        scratch_bytes: Some(scratch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_and_caches_limit() {
        let caches = Some(CoreCaches { l1: 32 << 10, l2: 1 << 20 });
        let of = |threads, scratch, caches| {
            let found = cpu_occupancy(threads, 16, scratch, caches);
            (found.share, found.limiter)
        };
        assert_eq!(of(64, 32 << 10, caches), (1.0, Limiter::Core));
        assert_eq!(of(8, 0, caches), (0.5, Limiter::Lanes));
        assert_eq!(of(20, 0, None), (0.625, Limiter::Lanes));
        assert_eq!(of(64, (32 << 10) + 1, caches), (1.0, Limiter::L1));
        assert_eq!(of(8, (1 << 20) + 1, caches), (0.5, Limiter::L2));
        assert_eq!(of(64, 1 << 30, None), (1.0, Limiter::Core), "caches that are not known");
    }
}
