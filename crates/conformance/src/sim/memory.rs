//! Host memory that stands for a device's.
//!
//! Private storage is the same memory with no address for the host, so that a test can tell whether the
//! runtime keeps to copies. Uninitialised memory is filled with a pattern, so that reading it shows.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

use elinvar_driver::{Error, Init, Memory, Result, Storage};

/// Every allocation begins at a multiple of this.
const ALIGN: usize = 256;

/// What uninitialised memory holds.
const JUNK: u8 = 0xA5;

pub(super) struct SimMemory {
    base: NonNull<u8>,
    layout: Layout,
    len: u64,
    storage: Storage,
    addressed: bool,
}

#[allow(unsafe_code)] // owns raw memory that host and device threads share
impl SimMemory {
    pub(super) fn new(len: u64, storage: Storage, init: Init, addressed: bool) -> Result<Self> {
        let none = || Error::OutOfMemory { requested: len, available: 0 };
        let size = usize::try_from(len).map_err(|_| none())?.max(1);
        let layout = Layout::from_size_align(size, ALIGN).map_err(|_| none())?;
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { alloc(layout) }).ok_or_else(none)?;
        let content = if init == Init::Zeroed { 0 } else { JUNK };
        // SAFETY: `base` is the start of `size` bytes that nobody else knows of yet.
        unsafe { base.write_bytes(content, size) };
        Ok(Self { base, layout, len, storage, addressed })
    }

    /// The address of `offset`, for the device.
    pub(super) fn address(&self, offset: u64, len: u64) -> *mut u8 {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "a range beyond the memory");
        // SAFETY: the range is within the allocation, as just checked.
        unsafe { self.base.as_ptr().add(offset as usize) }
    }
}

#[allow(unsafe_code)] // a raw address is not sent by default
// SAFETY: the memory belongs to this value alone; who may touch it when is the contract of `Memory`.
unsafe impl Send for SimMemory {}
#[allow(unsafe_code)] // a raw address is not shared by default
// SAFETY: the methods that touch the bytes are unsafe and exclude races by contract.
unsafe impl Sync for SimMemory {}

impl Drop for SimMemory {
    #[allow(unsafe_code)] // frees what `new` allocated
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout, freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

#[allow(unsafe_code)] // implements unsafe methods
impl Memory for SimMemory {
    fn len(&self) -> u64 {
        self.len
    }

    fn storage(&self) -> Storage {
        self.storage
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        (self.storage == Storage::Shared).then_some(self.base)
    }

    fn gpu_address(&self) -> Option<u64> {
        self.addressed.then(|| self.base.as_ptr().expose_provenance() as u64)
    }

    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        let source = self.address(offset, target.len() as u64);
        // SAFETY: `source` has that many bytes, and the caller keeps writers away.
        unsafe { source.copy_to_nonoverlapping(target.as_mut_ptr(), target.len()) };
        Ok(())
    }

    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        let target = self.address(offset, source.len() as u64);
        // SAFETY: `target` has that many bytes, and the caller keeps everybody else away. The source may be a map
        // of other memory, never of this.
        unsafe { target.copy_from_nonoverlapping(source.as_ptr(), source.len()) };
        Ok(())
    }
}
