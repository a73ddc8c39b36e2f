//! Shared memory of an isolated device's buffers: one file, mapped completely in the host and per block in the worker.
//!
//! The file is sparse: its size is the limit of all buffers, and it uses memory only where something was written. Freed ranges are
//! deallocated at once, so new blocks are zeroed. Each block is followed by a guard page that is not mapped in the worker, so that a small
//! overrun ends the worker instead of corrupting the next block.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Error, Result};
use rustix::fs::FallocateFlags;

use crate::files::{self, Mapping};
use crate::free::Free;

/// Memory of all buffers.
pub(crate) struct Arena {
    file: OwnedFd,
    mapping: Mapping,
    limit: u64,
    state: Mutex<State>,
}

struct State {
    free: Free,
    used: u64,
}

/// A block, in whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Page size in bytes.
pub(crate) fn page() -> u64 {
    rustix::param::page_size() as u64
}

impl Arena {
    /// Creates memory for buffers of `limit` bytes in total.
    pub(crate) fn new(limit: u64) -> Result<Self> {
        // Extra space for the gaps between and at the ends of blocks.
        let bytes = (limit / 4).saturating_add(limit).saturating_add(64 << 20).next_multiple_of(page());
        let file = files::file("elinvar-buffers", bytes)?;
        let mapping = Mapping::new(file.as_fd(), bytes)?;
        let state = State { free: Free::new(0, bytes), used: 0 };
        Ok(Self { file, mapping, limit, state: Mutex::new(state) })
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Size of the file in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// Total size of blocks in bytes.
    pub(crate) fn available(&self) -> u64 {
        self.limit.saturating_sub(self.state.lock().used)
    }

    /// Allocates zeroed pages for `len` bytes, at least one page.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(crate) fn take(&self, len: u64) -> Result<Piece> {
        let mut state = self.state.lock();
        let available = self.limit.saturating_sub(state.used);
        let none = Error::OutOfMemory { requested: len, available };
        let whole = len.max(1).checked_next_multiple_of(page()).filter(|bytes| *bytes <= available);
        let Some(bytes) = whole else { return Err(none) };
        let offset = state.free.take(bytes + page()).ok_or(none)?;
        state.used += bytes;
        Ok(Piece { offset, bytes })
    }

    /// Frees a block, which nothing uses any more.
    pub(crate) fn give_back(&self, piece: Piece) {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = rustix::fs::fallocate(&self.file, how, piece.offset, piece.bytes);
        if let Err(error) = punched {
            // Not reused, because it is not zeroed.
            tracing::warn!("{} bytes of shared memory cannot be given back: {error}", piece.bytes);
            return;
        }
        let mut state = self.state.lock();
        state.used -= piece.bytes;
        state.free.give_back(piece.offset, piece.bytes + page());
    }

    /// Host address of a block.
    pub(crate) fn address(&self, piece: Piece) -> NonNull<u8> {
        self.mapping.at(piece.offset as usize)
    }
}

#[cfg(test)]
#[allow(unsafe_code)] // looks at memory
mod tests {
    use super::*;

    #[test]
    fn pieces_are_apart_zeroed_and_come_together_again() {
        let arena = Arena::new(1 << 20).unwrap();
        let whole = arena.state.lock().free.clone();
        let sizes = [0, 1, 5000, 4096, 100_000, 8192];
        for round in 0..3 {
            let mut pieces: Vec<Piece> = sizes.iter().map(|len| arena.take(*len).unwrap()).collect();
            for (piece, len) in pieces.iter().zip(sizes) {
                assert!(piece.bytes >= len.max(1) && piece.bytes.is_multiple_of(page()));
                let address = arena.address(*piece).as_ptr();
                // SAFETY: the piece is this test's, and so long.
                let bytes = unsafe { std::slice::from_raw_parts_mut(address, piece.bytes as usize) };
                assert!(bytes.iter().all(|byte| *byte == 0), "round {round}");
                bytes.fill(7);
            }
            pieces.sort_by_key(|piece| piece.offset);
            assert!(pieces.windows(2).all(|two| two[0].offset + two[0].bytes + page() <= two[1].offset));
            pieces.rotate_left(round);
            pieces.into_iter().for_each(|piece| arena.give_back(piece));
            assert_eq!(arena.state.lock().free, whole);
            assert_eq!(arena.available(), 1 << 20);
        }
    }

    #[test]
    fn more_than_the_limit_is_refused() {
        let arena = Arena::new(1 << 20).unwrap();
        let piece = arena.take(1 << 20).unwrap();
        for len in [1, 1 << 40, u64::MAX] {
            let refused = arena.take(len).unwrap_err();
            assert!(matches!(refused, Error::OutOfMemory { requested, available: 0 } if requested == len));
        }
        arena.give_back(piece);
        arena.take(1 << 19).unwrap();
    }
}
