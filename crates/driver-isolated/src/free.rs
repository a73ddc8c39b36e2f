//! An allocator for a range of numbers: offsets of a file, addresses of a device.

use std::collections::BTreeMap;

/// The free parts of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Free {
    /// Start and length; no two are adjacent.
    pieces: BTreeMap<u64, u64>,
}

impl Free {
    /// All of the range is free.
    pub(crate) fn new(start: u64, len: u64) -> Self {
        Self { pieces: BTreeMap::from([(start, len)]) }
    }

    /// Allocates the first free range of a length.
    pub(crate) fn take(&mut self, len: u64) -> Option<u64> {
        let (start, size) = self.pieces.iter().find(|(_, size)| **size >= len)?;
        let (start, size) = (*start, *size);
        self.pieces.remove(&start);
        if size > len {
            self.pieces.insert(start + len, size - len);
        }
        Some(start)
    }

    /// Frees an allocated range.
    pub(crate) fn give_back(&mut self, mut start: u64, mut len: u64) {
        if let Some(behind) = self.pieces.remove(&(start + len)) {
            len += behind;
        }
        let before = self.pieces.range(..start).next_back().map(|(start, len)| (*start, *len));
        if let Some((first, size)) = before.filter(|(first, size)| first + size == start) {
            (start, len) = (first, size + len);
        }
        self.pieces.insert(start, len);
    }
}
