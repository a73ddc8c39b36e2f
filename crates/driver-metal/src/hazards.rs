//! Hazard tracking: the accesses of commands since the last barrier, and whether another command may run concurrently.
//!
//! Memory is identified by the address of its object; aliasing of two objects (memory of the program that was wrapped twice) is not
//! detected.

use std::ops::Range;

use elinvar_driver::Access;

/// Maximum number of tracked accesses; more force a barrier, so that comparison stays fast.
const MOST: usize = 256;

/// An access to a range of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    /// Address of the memory's object.
    memory: usize,
    bytes: Range<u64>,
    writes: bool,
}

impl Touch {
    #[cfg(any(target_vendor = "apple", elinvar_apple))]
    pub(crate) fn new(slice: &elinvar_driver::MemorySlice, access: Access) -> Self {
        Self::of(std::sync::Arc::as_ptr(&slice.memory).addr(), slice.offset..slice.offset + slice.len, access)
    }

    fn of(memory: usize, bytes: Range<u64>, access: Access) -> Self {
        Self { memory, bytes, writes: access == Access::ReadWrite }
    }

    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let overlap = self.bytes.start < other.bytes.end && other.bytes.start < self.bytes.end;
        self.memory == other.memory && (self.writes || other.writes) && overlap
    }
}

/// The accesses since the last barrier.
#[derive(Debug, Default)]
pub(crate) struct Hazards {
    since: Vec<Touch>,
}

impl Hazards {
    /// Whether a command with these accesses needs a barrier, which then resets the tracker. Records the accesses.
    pub(crate) fn enter(&mut self, uses: impl Iterator<Item = Touch>) -> bool {
        let before = self.since.len();
        self.since.extend(uses);
        let (old, new) = self.since.split_at(before);
        let waits =
            before > MOST || new.iter().any(|touch| old.iter().any(|earlier| touch.conflicts(earlier)));
        if waits {
            self.since.drain(..before);
        }
        waits
    }

    /// Resets the tracker: nothing else is running.
    pub(crate) fn clear(&mut self) {
        self.since.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(memory: usize, bytes: Range<u64>, access: Access) -> Touch {
        Touch::of(memory, bytes, access)
    }

    #[test]
    fn only_a_writer_of_the_same_bytes_makes_a_barrier() {
        use Access::{Read, ReadWrite};
        let mut hazards = Hazards::default();
        assert!(!hazards.enter([touch(1, 0..10, Read), touch(2, 0..10, ReadWrite)].into_iter()));
        assert!(!hazards.enter([touch(1, 0..10, Read), touch(3, 0..10, ReadWrite)].into_iter()));
        assert!(!hazards.enter([touch(2, 10..20, ReadWrite)].into_iter()), "beside it");
        assert!(hazards.enter([touch(2, 9..10, Read)].into_iter()), "reads what was written");
        assert!(!hazards.enter([touch(3, 0..10, Read)].into_iter()), "written before the barrier");
        assert!(hazards.enter([touch(3, 0..1, ReadWrite)].into_iter()), "writes what is read");
        hazards.clear();
        assert!(!hazards.enter([touch(3, 0..1, ReadWrite)].into_iter()));
    }

    #[test]
    fn a_command_does_not_conflict_with_itself() {
        let mut hazards = Hazards::default();
        assert!(
            !hazards.enter([touch(1, 0..8, Access::ReadWrite), touch(1, 0..8, Access::Read)].into_iter())
        );
    }

    #[test]
    fn the_list_stays_short() {
        let mut hazards = Hazards::default();
        let barriers =
            (0..2000).filter(|i| hazards.enter(std::iter::once(touch(*i, 0..1, Access::Read)))).count();
        assert_eq!(barriers, 2000 / (MOST + 2));
        assert!(hazards.since.len() <= MOST + 2);
    }
}
