//! Host memory in place of device memory.
//!
//! Private memory has no host address, so that a test detects accesses that bypass copies. Managed memory has a separate host copy,
//! so that a test detects missing synchronization. Uninitialized memory is filled with a pattern, so that a test detects reads of
//! it.

use std::alloc::{Layout, alloc, dealloc};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Error, HostBlock, Init, Memory, Result, Storage};

use super::{Fate, Op, Shared};

/// Alignment of allocations in bytes.
const ALIGN: usize = 256;

/// Fill pattern of uninitialized memory.
const JUNK: u8 = 0xA5;

/// Allocations of a device, and its limit.
pub(super) struct Meter {
    state: Mutex<Metered>,
}

struct Metered {
    limit: u64,
    blocks: u64,
    bytes: u64,
    /// Memory whose content a reset destroys: addresses and lengths.
    own: Vec<(Address, usize)>,
}

#[derive(Clone, Copy, PartialEq)]
struct Address(NonNull<u8>);

#[allow(unsafe_code)] // a raw address is not sent by default
// SAFETY: the memory may be used from any thread, and its address is removed from the list before it is freed.
unsafe impl Send for Address {}

impl Meter {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(Metered { limit, blocks: 0, bytes: 0, own: Vec::new() }) })
    }

    pub(super) fn used(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.blocks, state.bytes)
    }

    pub(super) fn available(&self) -> u64 {
        let state = self.state.lock();
        state.limit.saturating_sub(state.bytes)
    }

    pub(super) fn set_limit(&self, limit: u64) {
        self.state.lock().limit = limit;
    }

    /// Overwrites all device-owned memory with the fill pattern. Must not be called while it is in use.
    #[allow(unsafe_code)] // stands in for the device
    pub(super) fn forget(&self) {
        for (address, len) in &self.state.lock().own {
            // SAFETY: the list contains live allocations of that length, which the lock keeps alive.
            unsafe { address.0.write_bytes(JUNK, *len) };
        }
    }

    fn take(&self, bytes: u64) -> Result<()> {
        let mut state = self.state.lock();
        let available = state.limit.saturating_sub(state.bytes);
        if bytes > available {
            return Err(Error::OutOfMemory { requested: bytes, available });
        }
        (state.blocks, state.bytes) = (state.blocks + 1, state.bytes + bytes);
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        let mut state = self.state.lock();
        (state.blocks, state.bytes) = (state.blocks - 1, state.bytes - bytes);
    }
}

/// Bytes allocated by the host's allocator.
struct Bytes {
    base: NonNull<u8>,
    layout: Layout,
}

#[allow(unsafe_code)] // owns raw memory
impl Bytes {
    fn new(len: u64, content: u8) -> Result<Self> {
        let none = || Error::OutOfMemory { requested: len, available: 0 };
        let size = usize::try_from(len).map_err(|_| none())?.max(1);
        let layout = Layout::from_size_align(size, ALIGN).map_err(|_| none())?;
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { alloc(layout) }).ok_or_else(none)?;
        // SAFETY: `base` is the start of `size` bytes that no other code accesses yet.
        unsafe { base.write_bytes(content, size) };
        Ok(Self { base, layout })
    }
}

impl Drop for Bytes {
    #[allow(unsafe_code)] // frees what `new` allocated
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout, freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

pub(super) struct SimMemory {
    base: NonNull<u8>,
    /// Host copy of managed memory.
    host: Option<Bytes>,
    len: u64,
    storage: Storage,
    addressed: bool,
    meter: Option<Arc<Meter>>,
    fate: Option<Arc<Fate>>,
    /// What `base` points into.
    _owner: Box<dyn Any + Send + Sync>,
}

#[allow(unsafe_code)] // a raw address is not sent by default
// SAFETY: this value owns the bytes, which may be freed from any thread.
unsafe impl Send for Bytes {}
#[allow(unsafe_code)] // a raw address is not shared by default
// SAFETY: no method accesses the bytes through a shared reference.
unsafe impl Sync for Bytes {}
#[allow(unsafe_code)] // a raw address is not sent by default
// SAFETY: this value owns the memory; the contract of `Memory` governs access to it.
unsafe impl Send for SimMemory {}
#[allow(unsafe_code)] // a raw address is not shared by default
// SAFETY: the methods that access the bytes are unsafe, and their contract excludes races.
unsafe impl Sync for SimMemory {}

impl SimMemory {
    pub(super) fn new(
        len: u64,
        storage: Storage,
        init: Init,
        addressed: bool,
        shared: &Shared,
    ) -> Result<Self> {
        let device = Bytes::new(len, if init == Init::Zeroed { 0 } else { JUNK })?;
        let host = (storage == Storage::Managed).then(|| Bytes::new(len, JUNK)).transpose()?;
        shared.meter.take(len)?;
        let base = device.base;
        if storage != Storage::Shared {
            shared.meter.state.lock().own.push((Address(base), device.layout.size()));
        }
        let (meter, fate) = (Some(shared.meter.clone()), Some(shared.fate.clone()));
        Ok(Self { base, host, len, storage, addressed, meter, fate, _owner: Box::new(device) })
    }

    /// # Safety
    /// As [`elinvar_driver::Device::wrap`].
    #[allow(unsafe_code)] // takes an address on trust
    pub(super) unsafe fn wrap(block: HostBlock) -> Self {
        let HostBlock { address: base, bytes: len, owner } = block;
        let (storage, addressed, host) = (Storage::Shared, true, None);
        Self { base, host, len, storage, addressed, meter: None, fate: None, _owner: owner }
    }

    /// An error if the access needs the device, and the device is lost.
    fn expect_reachable(&self) -> Result<()> {
        let asked = self.fate.as_ref().filter(|_| self.storage != Storage::Shared);
        asked.map_or(Ok(()), |fate| fate.expect_present())
    }

    /// Device address of `offset`.
    pub(super) fn address(&self, offset: u64, len: u64) -> *mut u8 {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "a range beyond the memory");
        self.base.as_ptr().wrapping_add(offset as usize)
    }

    /// Device and host copy of a range of managed memory.
    fn copies(&self, offset: u64, len: u64) -> Option<(*mut u8, *mut u8)> {
        let device = self.address(offset, len);
        let host = self.host.as_ref()?;
        Some((device, host.base.as_ptr().wrapping_add(offset as usize)))
    }
}

impl Drop for SimMemory {
    fn drop(&mut self) {
        if let Some(meter) = &self.meter {
            meter.state.lock().own.retain(|(address, _)| address.0 != self.base);
            meter.give_back(self.len);
        }
    }
}

#[allow(unsafe_code)] // implements unsafe methods
// SAFETY: the address is that of bytes owned by the value.
unsafe impl Memory for SimMemory {
    fn len(&self) -> u64 {
        self.len
    }

    fn storage(&self) -> Storage {
        self.storage
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        match self.storage {
            Storage::Shared => Some(self.base),
            _ => self.host.as_ref().map(|host| host.base),
        }
    }

    fn gpu_address(&self) -> Option<u64> {
        self.addressed.then(|| self.base.as_ptr().expose_provenance() as u64)
    }

    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        self.expect_reachable()?;
        self.fate.as_ref().map_or(Ok(()), |fate| fate.injected(Op::Read))?;
        let source = self.address(offset, target.len() as u64);
        // SAFETY: `source` has that many bytes, and the caller prevents concurrent writes.
        unsafe { source.copy_to_nonoverlapping(target.as_mut_ptr(), target.len()) };
        Ok(())
    }

    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        self.expect_reachable()?;
        let target = self.address(offset, source.len() as u64);
        // SAFETY: `target` has that many bytes, and the caller prevents concurrent accesses. The source may be a map of other memory, but
        // not of this.
        unsafe { target.copy_from_nonoverlapping(source.as_ptr(), source.len()) };
        Ok(())
    }

    unsafe fn clear(&self, len: u64) -> Result<()> {
        self.expect_reachable()?;
        let target = self.address(0, len);
        // SAFETY: `target` has that many bytes, and the caller prevents concurrent accesses.
        unsafe { target.write_bytes(0, len as usize) };
        Ok(())
    }

    unsafe fn pull(&self, offset: u64, len: u64) -> Result<()> {
        self.expect_reachable()?;
        if let Some((device, host)) = self.copies(offset, len) {
            // SAFETY: two allocations of at least that many bytes, and the caller prevents concurrent accesses.
            unsafe { host.copy_from_nonoverlapping(device, len as usize) };
        }
        Ok(())
    }

    unsafe fn push(&self, offset: u64, len: u64) -> Result<()> {
        self.expect_reachable()?;
        if let Some((device, host)) = self.copies(offset, len) {
            // SAFETY: as for `pull`.
            unsafe { device.copy_from_nonoverlapping(host, len as usize) };
        }
        Ok(())
    }
}
