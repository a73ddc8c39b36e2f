//! Memory of an isolated device: a piece of its arena, which the worker maps when it first uses it.

use std::ptr::NonNull;
use std::sync::Arc;

use elinvar_driver::{Memory, Result, Storage, expect_within};

use crate::arena::Piece;
use crate::device::Core;
use crate::wire::ToWorker;
use crate::worker::BASE;

/// An allocation.
pub(crate) struct IsolatedMemory {
    pub(crate) core: Arc<Core>,
    pub(crate) id: u64,
    pub(crate) piece: Piece,
    len: u64,
    storage: Storage,
    address: NonNull<u8>,
}

#[allow(unsafe_code)] // the address is shared with whoever may touch the bytes by the contract
// SAFETY: the piece belongs to this value alone and may be used and given back from any thread.
unsafe impl Send for IsolatedMemory {}
#[allow(unsafe_code)] // as above
// SAFETY: the fields are never changed after construction; reads and writes of the bytes themselves are ordered by the callers, as
// the contract says.
unsafe impl Sync for IsolatedMemory {}

impl IsolatedMemory {
    pub(crate) fn new(core: &Arc<Core>, len: u64, storage: Storage) -> Result<Self> {
        let piece = core.arena.take(len)?;
        let address = core.arena.address(piece);
        Ok(Self { core: core.clone(), id: core.number(), piece, len, storage, address })
    }

    /// The address of the byte at `offset`, if `len` bytes from there on are within the memory.
    fn at(&self, offset: u64, len: u64) -> Result<*mut u8> {
        expect_within(self.len, offset, len)?;
        Ok(self.address.as_ptr().wrapping_add(offset as usize))
    }
}

impl Drop for IsolatedMemory {
    fn drop(&mut self) {
        // The memory is the parent's, and shared with it.
        if !self.core.process.is_this() {
            return;
        }
        // The worker forgets it before it gets any other memory in this place.
        self.core.forget(&ToWorker::Unmap { memory: self.id });
        self.core.arena.give_back(self.piece);
    }
}

#[allow(unsafe_code)] // copies through raw addresses; the trait's methods are unsafe for this
// SAFETY: the address is that of a piece of the mapped arena, which is of this value alone until it is dropped and stays mapped.
unsafe impl Memory for IsolatedMemory {
    fn len(&self) -> u64 {
        self.len
    }

    fn storage(&self) -> Storage {
        self.storage
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        (self.storage != Storage::Private).then_some(self.address)
    }

    /// The worker's address, which is the same in every worker.
    fn gpu_address(&self) -> Option<u64> {
        Some(BASE + self.piece.offset)
    }

    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        let source = self.at(offset, target.len() as u64)?;
        // SAFETY: `at` checked the range; the caller promises that nobody writes to it meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len()) };
        Ok(())
    }

    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        let target = self.at(offset, source.len() as u64)?;
        // SAFETY: `at` checked the range; the caller promises that nobody else touches it meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len()) };
        Ok(())
    }

    unsafe fn clear(&self, len: u64) -> Result<()> {
        let target = self.at(0, len)?;
        // SAFETY: as above.
        unsafe { target.write_bytes(0, len as usize) };
        Ok(())
    }
}
