//! Cooperative launches: dispatches of kernels with grid barriers.
//!
//! Compiled code returns at a grid barrier, and each threadgroup has a block of memory for everything that it keeps across the barrier
//! ([`elinvar_spmd::SUSPENDED`]). A launch is a sequence of rounds, and a round is like an ordinary dispatch: it runs every threadgroup
//! up to its next grid barrier, on as many workers as there are. No worker waits at a barrier, so one worker can execute a launch alone.
//!
//! The end of a round orders all memory accesses of its threadgroups before those of the next.

use std::sync::atomic::{AtomicU64, Ordering};

use elinvar_driver::{PerProcess, Result};

use crate::limits;
use crate::scratch::Scratch;

/// The place of a threadgroup that has ended; others are numbers of regions, from 1.
const ENDED: u32 = u32::MAX;
/// Memory for suspended threadgroups is at most this fraction of the machine's.
const MEMORY_PART: u64 = 8;
/// Maximum number of threadgroups, all of which each round visits.
const MOST_GROUPS: u64 = 1 << 20;
/// A worker keeps at most this many bytes of it between launches.
const KEPT_BYTES: usize = 16 << 20;

/// Distance in bytes between the blocks of consecutive threadgroups with this many bytes each: an odd number of cache lines, so that equal
/// parts of blocks are in different sets of the cache.
fn stride(bytes: u64) -> u64 {
    (bytes.div_ceil(64) | 1).saturating_mul(64)
}

/// Memory in bytes for suspended threadgroups of a launch. The first call reads files, which a process may be forbidden later.
pub(crate) fn memory() -> u64 {
    static MEMORY: PerProcess<u64> = PerProcess::new(|| limits::total() / MEMORY_PART);
    *MEMORY.get()
}

/// The largest number of threadgroups of a launch, each of which keeps this many bytes.
pub(crate) fn resident_groups(bytes: u64) -> u64 {
    (memory() / stride(bytes)).min(MOST_GROUPS)
}

/// The blocks of a launch's threadgroups.
pub(crate) struct Suspended {
    base: *mut u8,
    stride: u64,
    /// Where the threadgroups of the current round have arrived: the place, and the code of the fault of a barrier, in the lower half. 0
    /// before the first.
    arrived: AtomicU64,
}

impl Suspended {
    /// Blocks in `memory`, for threadgroups that have not begun.
    #[allow(unsafe_code)] // writes to the blocks
    pub(crate) fn new(memory: &mut Scratch, groups: u64, bytes: u64) -> Result<Self> {
        let stride = stride(bytes);
        let base = memory.reserve(stride.saturating_mul(groups))?;
        let blocks = Self { base, stride, arrived: AtomicU64::new(0) };
        for group in 0..groups {
            // SAFETY: the block is within the reserved memory, aligned to 64 bytes, and not used yet.
            unsafe { blocks.block(group).cast::<[u32; 2]>().write([0; 2]) };
        }
        Ok(blocks)
    }

    /// The block of a threadgroup, which is below the number of threadgroups.
    pub(crate) fn block(&self, group: u64) -> *mut u8 {
        self.base.wrapping_add((group * self.stride) as usize)
    }

    /// Whether a threadgroup has ended.
    pub(crate) fn has_ended(&self, group: u64) -> bool {
        self.place(group)[0] == ENDED
    }

    #[allow(unsafe_code)] // reads from a block
    fn place(&self, group: u64) -> [u32; 2] {
        // SAFETY: initialized in `new`; only the thread that runs the threadgroup uses its block.
        unsafe { self.block(group).cast::<[u32; 2]>().read() }
    }

    /// The second word of a threadgroup's block.
    pub(crate) fn second(&self, group: u64) -> u32 {
        self.place(group)[1]
    }

    /// Records that a threadgroup has ended.
    ///
    /// # Errors
    /// As [`Self::arrive`].
    #[allow(unsafe_code)] // writes to a block
    pub(crate) fn end(&self, group: u64) -> std::result::Result<(), i32> {
        // SAFETY: as in `place`.
        unsafe { self.block(group).cast::<[u32; 2]>().write([ENDED, 0]) };
        self.arrive(group)
    }

    /// Records that a threadgroup has arrived at a barrier, or ended.
    ///
    /// # Errors
    /// The code of the fault if another one has arrived elsewhere.
    pub(crate) fn arrive(&self, group: u64) -> std::result::Result<(), i32> {
        let [place, fault] = self.place(group);
        let here = u64::from(place) << 32 | u64::from(fault);
        // All but the first of a round: a load costs less than an exchange.
        if self.arrived.load(Ordering::Relaxed) == here {
            return Ok(());
        }
        match self.arrived.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(there) if there == here => Ok(()),
            Err(there) => Err(fault.max(there as u32) as i32),
        }
    }

    /// Begins the next round; returns false if the threadgroups have ended.
    pub(crate) fn next_round(&self) -> bool {
        let arrived = self.arrived.swap(0, Ordering::Relaxed);
        arrived != 0 && (arrived >> 32) as u32 != ENDED
    }
}

/// Returns a launch's memory to its worker, unless it is large.
pub(crate) fn keep(mut memory: Scratch) -> Scratch {
    memory.release_above(KEPT_BYTES);
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_an_odd_number_of_lines_apart() {
        assert_eq!([0, 1, 64, 65, 128, 4096].map(stride), [64, 64, 64, 192, 192, 4160]);
        assert!(stride(u64::MAX) >= u64::MAX / 64 * 64);
        assert_eq!(resident_groups(u64::MAX), 0);
        assert!(resident_groups(1 << 20) > resident_groups(1 << 21));
        assert_eq!(resident_groups(64), MOST_GROUPS);
    }

    #[test]
    #[allow(unsafe_code)] // writes to blocks, as compiled code does
    fn all_threadgroups_arrive_at_one_place() {
        let mut memory = Scratch::new();
        let blocks = Suspended::new(&mut memory, 3, 100).unwrap();
        // SAFETY: the block of a threadgroup of three.
        let suspend = |group, place: [u32; 2]| unsafe {
            assert!(group < 3);
            blocks.block(group).cast::<[u32; 2]>().write(place);
            blocks.arrive(group)
        };
        assert!((0..3).all(|group| !blocks.has_ended(group)));
        assert_eq!([0, 1, 2].map(|group| suspend(group, [4, 2])), [Ok(()); 3]);
        assert!(blocks.next_round());
        assert_eq!(suspend(0, [1, 1]), Ok(()));
        assert_eq!(suspend(1, [4, 2]), Err(2), "another barrier");
        assert_eq!(blocks.end(2), Err(1), "an end while others wait");
        assert!(blocks.next_round());
        assert_eq!([0, 1, 2].map(|group| blocks.end(group)), [Ok(()); 3]);
        assert!((0..3).all(|group| blocks.has_ended(group)));
        assert!(!blocks.next_round());
        assert!(!blocks.next_round(), "no threadgroup has run");
    }
}
