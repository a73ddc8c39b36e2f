//! Occupancy: how many threadgroups a GPU core holds at a time, by threads, registers and threadgroup memory; on a CPU, how much of its core a
//! threadgroup uses.
//!
//! For NVIDIA GPUs the limits are those of the CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability", and the
//! units of allocation those of NVIDIA's occupancy calculator, `cuda_occupancy.h` of CUDA 13.5: registers by 256 for each warp, within a quarter
//! of the register file for each of four schedulers; shared memory by 128 bytes, before compute capability 8.0 by 256, with 1 KiB of a block
//! reserved by the system from 8.0 on. `tests/occupancy.txt` has results of that calculator.

mod apple;
mod cpu;

pub use apple::apple_occupancy;
pub use cpu::{CoreCaches, cpu_occupancy};
use serde::Serialize;

/// Threads of a warp.
const WARP: u32 = 32;
/// 32-bit registers of a multiprocessor, of all compute capabilities from 7.0 on.
const REGISTERS: u32 = 65536;
/// Schedulers of a multiprocessor; each has its part of the registers.
const SCHEDULERS: u32 = 4;
/// Unit of allocation of registers, for each warp.
const REGISTER_UNIT: u32 = 256;
/// Largest number of registers of a thread.
const MAX_REGISTERS: u32 = 255;

/// Limits of a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessor {
    /// Resident warps.
    pub warps: u32,
    /// Resident blocks.
    pub blocks: u32,
    /// Bytes of shared memory.
    pub shared_bytes: u64,
    /// Bytes that the system reserves of each block's shared memory.
    pub reserved_bytes: u64,
    /// Unit of allocation of shared memory in bytes.
    pub shared_unit: u64,
}

impl Multiprocessor {
    /// The limits of a compute capability, major and minor; `None` for one that is not in the table.
    pub const fn of(major: u32, minor: u32) -> Option<Self> {
        let (warps, blocks, kib) = match (major, minor) {
            (7, 0) => (64, 32, 96),
            (7, 5) => (32, 16, 64),
            (8, 0) => (64, 32, 164),
            (8, 6) => (48, 16, 100),
            (8, 7) => (48, 16, 164),
            (8, 9) => (48, 24, 100),
            (9, 0) | (10, 0 | 3) => (64, 32, 228),
            (11, 0) => (48, 24, 228),
            (12, 0 | 1) => (48, 24, 100),
            _ => return None,
        };
        let (reserved_bytes, shared_unit) = if major >= 8 { (1024, 128) } else { (0, 256) };
        Some(Self { warps, blocks, shared_bytes: kib * 1024, reserved_bytes, shared_unit })
    }

    /// The largest shared memory of a block in bytes.
    pub const fn block_bytes(&self) -> u64 {
        self.shared_bytes - self.reserved_bytes
    }
}

/// What limits occupancy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limiter {
    /// The number of resident warps.
    Warps,
    /// The number of resident blocks.
    Blocks,
    /// Registers.
    Registers,
    /// Shared memory, or threadgroup memory.
    Memory,
    /// The number of resident simdgroups.
    Simdgroups,
    /// A CPU's core runs one threadgroup at a time.
    Core,
    /// Lanes of a vector without a thread.
    Lanes,
    /// A first level data cache that is smaller than the threadgroup's memory and live values.
    L1,
    /// A second level cache that is smaller than these.
    L2,
}

/// The occupancy of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Occupancy {
    /// Threads of a threadgroup.
    pub threads: u32,
    /// Threadgroups of a core; 0 if not even one fits.
    pub groups: u32,
    /// Simdgroups of a core.
    pub simdgroups: u32,
    /// Simdgroups over the most that a core holds, 0 to 1. On a CPU, lanes with a thread over those of the threadgroup's vectors.
    pub share: f64,
    /// What allows no more.
    pub limiter: Limiter,
    /// On a CPU, bytes of threadgroup memory and of values that live across barriers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch_bytes: Option<u64>,
}

impl Occupancy {
    /// That of a size of which each of these limits allows a number of threadgroups, on a core that holds `most` simdgroups.
    fn limited(
        threads: u32,
        simdgroups: u32,
        most: u32,
        limits: impl IntoIterator<Item = (u32, Limiter)>,
    ) -> Self {
        let least = limits.into_iter().min_by_key(|(groups, _)| *groups);
        let (groups, limiter) = least.unwrap_or((0, Limiter::Simdgroups));
        let simdgroups = groups * simdgroups;
        let share = f64::from(simdgroups) / f64::from(most);
        Self { threads, groups, simdgroups, share, limiter, scratch_bytes: None }
    }
}

/// The occupancy of threadgroups of `threads` threads, 1 to 1024, with `registers` registers for each thread and `bytes` bytes of threadgroup memory.
pub fn occupancy(core: &Multiprocessor, threads: u32, registers: u32, bytes: u64) -> Occupancy {
    let warps = threads.div_ceil(WARP).max(1);
    let by_warps = core.warps / warps;
    let of_warp = (registers.max(1) * WARP).next_multiple_of(REGISTER_UNIT);
    let resident = REGISTERS / SCHEDULERS / of_warp * SCHEDULERS;
    // A block's warps are allocated in whole rounds of the schedulers.
    let of_block = of_warp * warps.next_multiple_of(SCHEDULERS);
    let by_registers = if registers > MAX_REGISTERS || of_block > REGISTERS { 0 } else { resident / warps };
    let of_block = (bytes + core.reserved_bytes).next_multiple_of(core.shared_unit);
    let by_memory = if bytes == 0 && core.reserved_bytes == 0 {
        u64::from(u32::MAX)
    } else {
        core.shared_bytes / of_block
    };
    let by_memory = if bytes > core.block_bytes() { 0 } else { u32::try_from(by_memory).unwrap_or(u32::MAX) };
    let limits = [
        (by_warps, Limiter::Warps),
        (core.blocks, Limiter::Blocks),
        (by_registers, Limiter::Registers),
        (by_memory, Limiter::Memory),
    ];
    Occupancy::limited(threads, warps, core.warps, limits)
}

/// Sizes of whole simdgroups up to 1024 threads, and their occupancies.
pub fn occupancies(core: &Multiprocessor, registers: u32, bytes: u64) -> Vec<Occupancy> {
    (1..=32).map(|warps| occupancy(core, warps * WARP, registers, bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(capability: (u32, u32), threads: u32, registers: u32, bytes: u64) -> (u32, u32, Limiter) {
        let core = Multiprocessor::of(capability.0, capability.1).unwrap();
        let found = occupancy(&core, threads, registers, bytes);
        (found.groups, (found.share * 100.0).round() as u32, found.limiter)
    }

    #[test]
    fn published_examples() {
        use Limiter::{Blocks, Memory, Registers, Warps};
        // CUDA C++ Best Practices Guide, "Calculating Occupancy": compute capability 7.0, 37 registers.
        assert_eq!(of((7, 0), 128, 37, 0), (12, 75, Registers));
        assert_eq!(of((7, 0), 320, 37, 0), (4, 63, Registers));
        // The same guide: 65536 registers and 2048 threads leave 32 registers a thread for full occupancy.
        assert_eq!(of((7, 0), 256, 32, 0), (8, 100, Warps));
        // CUDA C++ Programming Guide: 163 KiB of a block on 8.0, 227 on 9.0, 99 on 8.6 and 8.9.
        assert_eq!(of((8, 0), 1024, 32, 163 << 10), (1, 50, Memory));
        assert_eq!(of((9, 0), 1024, 32, 227 << 10), (1, 50, Memory));
        assert_eq!(of((8, 6), 1024, 32, 99 << 10).0, 1);
        assert_eq!(of((8, 6), 1024, 32, (99 << 10) + 1), (0, 0, Memory));
        // Resident blocks: 16 on 8.6, 24 on 8.9, 32 on 9.0.
        assert_eq!(of((8, 6), 32, 16, 0), (16, 33, Blocks));
        assert_eq!(of((8, 9), 32, 16, 0), (24, 50, Blocks));
        assert_eq!(of((9, 0), 32, 16, 0), (32, 50, Blocks));
        // 1024 threads with more than 64 registers do not fit: a launch fails.
        assert_eq!(of((9, 0), 1024, 64, 0), (1, 50, Registers));
        assert_eq!(of((9, 0), 1024, 65, 0), (0, 0, Registers));
        assert_eq!(of((9, 0), 32, 256, 0), (0, 0, Registers));
    }

    /// No block more fits, and what there is fits, by resources counted apart from the formulas.
    #[test]
    fn groups_fit_and_one_more_does_not() {
        for capability in [(8, 0), (8, 6), (8, 9), (9, 0), (12, 0)] {
            let core = Multiprocessor::of(capability.0, capability.1).unwrap();
            for registers in [16, 24, 37, 40, 63, 64, 96, 128, 168, 255] {
                for bytes in [0, 100, 1024, 12_345, 49_152, 98_000] {
                    for found in occupancies(&core, registers, bytes) {
                        let fits = |groups: u32| {
                            let warps = groups * (found.threads / 32);
                            // Warps go to the schedulers in turn, each with a quarter of the registers.
                            let rows = warps.div_ceil(4) * (registers * 32).div_ceil(256) * 256;
                            let memory = u64::from(groups) * (bytes + 1024).div_ceil(128) * 128;
                            groups <= core.blocks
                                && warps <= core.warps
                                && rows <= 16384
                                && memory <= core.shared_bytes
                        };
                        let place = format!("{capability:?} {registers} {bytes} {found:?}");
                        assert!(
                            fits(found.groups) && !fits(found.groups + 1) || found.groups == 0,
                            "{place}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn unknown_capabilities_have_no_limits() {
        assert_eq!(Multiprocessor::of(6, 1), None);
        assert_eq!(Multiprocessor::of(9, 9), None);
    }
}
