//! A model of the occupancy of Apple's GPU cores.
//!
//! Apple publishes no limits of a core. The model has the registers of Mesa's compiler for Apple7 and Apple8 (`agx_performance.c`, "relationship between
//! registers pressure and thread count") and 64 KiB of threadgroup memory, as measured by Philip Turner (metal-benchmarks, "On-Chip Memory"). From Apple9 on,
//! registers and threadgroup memory are parts of one cache that is allocated while a kernel runs (Apple, "Explore GPU advancements in M3 and A17 Pro"),
//! so that no table holds.

use super::{Limiter, Occupancy};

/// Most 16-bit registers of a thread, and threads of a core with them.
const THREADS: [(u32, u32); 10] = [
    (104, 1024),
    (112, 896),
    (128, 832),
    (136, 768),
    (144, 704),
    (160, 640),
    (184, 576),
    (208, 512),
    (232, 448),
    (256, 384),
];
/// Simdgroups of a core at most.
const SIMDGROUPS: u32 = 32;
/// Bytes of a core's threadgroup memory.
const THREADGROUP_BYTES: u64 = 64 << 10;

/// The occupancy of threadgroups of `threads` threads, 1 to 1024, with `registers` 32-bit registers for each thread and `bytes` bytes of threadgroup memory, of
/// which a threadgroup has at most `most_bytes`. Registers beyond 128 are spilled.
pub fn apple_occupancy(threads: u32, registers: u32, bytes: u64, most_bytes: u64) -> Occupancy {
    let simdgroups = threads.div_ceil(32).max(1);
    let halves = registers.saturating_mul(2).min(256);
    let resident = THREADS.iter().find(|(most, _)| halves <= *most).map_or(384, |(_, threads)| *threads);
    let by_memory = match bytes {
        0 => u32::MAX,
        bytes if bytes > most_bytes => 0,
        bytes => u32::try_from(THREADGROUP_BYTES / bytes).unwrap_or(u32::MAX),
    };
    let limits = [
        (SIMDGROUPS / simdgroups, Limiter::Simdgroups),
        (resident / 32 / simdgroups, Limiter::Registers),
        (by_memory, Limiter::Memory),
    ];
    Occupancy::limited(threads, simdgroups, SIMDGROUPS, limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_and_memory_limit() {
        use Limiter::{Memory, Registers, Simdgroups};
        let of = |threads, registers, bytes| {
            let found = apple_occupancy(threads, registers, bytes, 32 << 10);
            (found.groups, found.simdgroups, found.limiter)
        };
        assert_eq!(of(1024, 52, 0), (1, 32, Simdgroups));
        assert_eq!(of(1024, 53, 0), (0, 0, Registers), "896 threads with 56 registers");
        assert_eq!(of(128, 64, 0), (6, 24, Registers), "832 threads, of which 768 are whole threadgroups");
        assert_eq!(of(32, 1000, 0), (12, 12, Registers), "spilled");
        assert_eq!(of(64, 10, 32 << 10), (2, 4, Memory));
        assert_eq!(of(64, 10, (32 << 10) + 1), (0, 0, Memory));
        assert_eq!(of(1, 10, 1), (32, 32, Simdgroups));
    }
}
