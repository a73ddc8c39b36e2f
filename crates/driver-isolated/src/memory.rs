//! Memory of an isolated device: pages shared by host and worker, or memory of the worker's device with an optional host copy in such pages. Both
//! belong to the host, and the worker maps them on first use.

use std::ptr::NonNull;
use std::sync::Arc;

use elinvar_driver::sync::OnceLock;
use elinvar_driver::{Init, Memory, Result, Storage, expect_within};

use crate::arena::Piece;
use crate::device::Core;
use crate::inner::DevicePiece;
use crate::link::{Span, Transfer};
use crate::wire::ToWorker;
use crate::worker::BASE;

/// An allocation.
pub(crate) struct IsolatedMemory {
    pub(crate) core: Arc<Core>,
    len: u64,
    storage: Storage,
    place: Place,
}

enum Place {
    Shared(Pages),
    /// With the host copy of managed memory after its first access; `None` if that could not be allocated.
    Device {
        piece: DevicePiece,
        mirror: OnceLock<Option<Pages>>,
    },
}

/// Shared pages, which workers identify by a number.
pub(crate) struct Pages {
    pub(crate) id: u64,
    pub(crate) piece: Piece,
}

/// Memory that a worker maps.
#[derive(Clone, Copy)]
pub(crate) enum Part<'a> {
    Pages(&'a Pages),
    Device(&'a DevicePiece),
}

impl Pages {
    pub(crate) fn new(core: &Core, len: u64) -> Result<Self> {
        Ok(Self { piece: core.arena.take(len)?, id: core.number() })
    }

    pub(crate) fn address(&self, core: &Core) -> NonNull<u8> {
        core.arena.address(self.piece)
    }

    fn give_back(&self, core: &Core) {
        // The worker unmaps it before other memory is allocated at the same place.
        core.forget(&ToWorker::Unmap { memory: self.id });
        core.arena.give_back(self.piece);
    }
}

impl IsolatedMemory {
    pub(crate) fn new(core: &Arc<Core>, len: u64, storage: Storage, init: Init) -> Result<Self> {
        let place = if core.inner.has_device_memory() && storage != Storage::Shared {
            let piece = core.inner.allocate(len, core.caps.limits.total_memory, || core.number())?;
            Place::Device { piece, mirror: OnceLock::new() }
        } else {
            Place::Shared(Pages::new(core, len)?)
        };
        let memory = Self { core: core.clone(), len, storage, place };
        // New pages are zeroed.
        if let (Some(part), Init::Zeroed, 1..) = (memory.device(), init, len) {
            core.transfer(&Transfer::Clear(Span { part, offset: 0, len }))?;
        }
        Ok(memory)
    }

    /// The memory that kernels access.
    pub(crate) fn part(&self) -> Part<'_> {
        match &self.place {
            Place::Shared(pages) => Part::Pages(pages),
            Place::Device { piece, .. } => Part::Device(piece),
        }
    }

    /// Device memory, if it is not in shared pages.
    fn device(&self) -> Option<Part<'_>> {
        match &self.place {
            Place::Shared(_) => None,
            Place::Device { .. } => Some(self.part()),
        }
    }

    /// The host copy of managed memory, if it exists.
    fn mirror(&self) -> Option<Part<'_>> {
        match &self.place {
            Place::Device { mirror, .. } => mirror.get()?.as_ref().map(Part::Pages),
            Place::Shared(_) => None,
        }
    }

    /// The address of the byte at `offset` of shared pages, if `len` bytes from there are within the memory; `None` for device memory.
    fn at(&self, offset: u64, len: u64) -> Result<Option<*mut u8>> {
        expect_within(self.len, offset, len)?;
        let Place::Shared(pages) = &self.place else { return Ok(None) };
        Ok(Some(pages.address(&self.core).as_ptr().wrapping_add(offset as usize)))
    }

    /// Copies bytes between the device and the host copy.
    fn mirrored(&self, offset: u64, len: u64, is_pull: bool) -> Result<()> {
        expect_within(self.len, offset, len)?;
        let (Some(device), Some(mirror), 1..) = (self.device(), self.mirror(), len) else { return Ok(()) };
        let [device, mirror] = [device, mirror].map(|part| Span { part, offset, len });
        let (source, target) = if is_pull { (device, mirror) } else { (mirror, device) };
        self.core.transfer(&Transfer::Copy { source, target })
    }
}

impl Drop for IsolatedMemory {
    fn drop(&mut self) {
        // In a forked child: the memory belongs to the parent, and is shared with it.
        if !self.core.process.is_this() {
            return;
        }
        match &self.place {
            Place::Shared(pages) => pages.give_back(&self.core),
            Place::Device { piece, mirror } => {
                let forget = |memory| self.core.forget(&ToWorker::Unmap { memory });
                self.core.inner.give_back(piece, forget);
                mirror.get().iter().copied().flatten().for_each(|pages| pages.give_back(&self.core));
            }
        }
    }
}

#[allow(unsafe_code)] // copies through raw addresses; the trait's methods are unsafe for this
// SAFETY: the address is of a block of the mapped arena, which belongs to this value until it is dropped and stays mapped.
unsafe impl Memory for IsolatedMemory {
    fn len(&self) -> u64 {
        self.len
    }

    fn storage(&self) -> Storage {
        self.storage
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        match &self.place {
            _ if self.storage == Storage::Private => None,
            Place::Shared(pages) => Some(pages.address(&self.core)),
            Place::Device { mirror, .. } => {
                let pages = mirror.get_or_init(|| Pages::new(&self.core, self.len).ok()).as_ref();
                pages.map(|pages| pages.address(&self.core))
            }
        }
    }

    /// The worker's address, which is the same in every worker.
    fn gpu_address(&self) -> Option<u64> {
        Some(match self.part() {
            Part::Pages(pages) => BASE + pages.piece.offset,
            Part::Device(piece) => piece.slab.address + piece.offset,
        })
    }

    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        let Some(source) = self.at(offset, target.len() as u64)? else {
            return self.core.staged(self.part(), offset, target.len(), |part, stage, at, len| {
                self.core.transfer(&Transfer::Copy { source: part, target: stage.0 })?;
                // SAFETY: within the staging pages, of which no other thread has a part now.
                target[at..at + len].copy_from_slice(unsafe { std::slice::from_raw_parts(stage.1, len) });
                Ok(())
            });
        };
        // SAFETY: `at` checked the range; the caller guarantees that it is not written concurrently.
        unsafe { std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len()) };
        Ok(())
    }

    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        let Some(target) = self.at(offset, source.len() as u64)? else {
            return self.core.staged(self.part(), offset, source.len(), |part, stage, at, len| {
                // SAFETY: within the staging pages, which no other thread uses now.
                unsafe { std::ptr::copy_nonoverlapping(source[at..at + len].as_ptr(), stage.1, len) };
                self.core.transfer(&Transfer::Copy { source: stage.0, target: part })
            });
        };
        // SAFETY: `at` checked the range; the caller guarantees that it is not accessed concurrently.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len()) };
        Ok(())
    }

    unsafe fn clear(&self, len: u64) -> Result<()> {
        match self.at(0, len)? {
            // SAFETY: as above.
            Some(target) => unsafe { target.write_bytes(0, len as usize) },
            None if len == 0 => {}
            None => self.core.transfer(&Transfer::Clear(Span { part: self.part(), offset: 0, len }))?,
        }
        Ok(())
    }

    unsafe fn pull(&self, offset: u64, len: u64) -> Result<()> {
        self.mirrored(offset, len, true)
    }

    unsafe fn push(&self, offset: u64, len: u64) -> Result<()> {
        self.mirrored(offset, len, false)
    }
}
