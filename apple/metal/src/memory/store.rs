//! [`Store`]: the bytes of a buffer, and [`Account`]: the memory use of a device.
//!
//! Bytes are memory of the CPU driver, in whole pages, so a small overrun of a buffer is harmless, as on hardware. A managed buffer of a device
//! without unified memory has a second copy for the host.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use elinvar_driver::{HostBlock, Init, Memory, MemorySlice};
use elinvar_driver_cpu::SizeBound;
use elinvar_objc::Block;

use crate::values::Storage;

/// Page size of Apple's processors in bytes; allocations are whole pages.
pub const PAGE: usize = 16 << 10;

/// All memory above the bound for which the CPU driver makes code by default.
static ALL_LARGE: Mutex<Vec<Weak<dyn Memory>>> = Mutex::new(Vec::new());

/// All memory, for the addresses that kernels write to indirect command buffers.
static ALL: Mutex<Vec<Weak<dyn Memory>>> = Mutex::new(Vec::new());

/// Enters memory into the lists of all memory, and of large memory, if it is.
fn enter(memory: Arc<dyn Memory>) -> Arc<dyn Memory> {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() == all.capacity() {
        all.retain(|other| other.strong_count() > 0);
    }
    all.push(Arc::downgrade(&memory));
    drop(all);
    if memory.len() > SizeBound::DEFAULT.bytes() {
        let mut all = ALL_LARGE.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&memory));
    }
    memory
}

/// All memory of buffers and heaps, whether the program has made it resident or not.
pub fn all() -> Vec<MemorySlice> {
    slices(&ALL)
}

/// All large memory. Any kernel may have a pointer to it in its memory: the stand-in does not know which resources are used.
pub fn all_large() -> Vec<MemorySlice> {
    slices(&ALL_LARGE)
}

fn slices(list: &Mutex<Vec<Weak<dyn Memory>>>) -> Vec<MemorySlice> {
    let all = list.lock().unwrap_or_else(PoisonError::into_inner);
    let whole = |memory: Arc<dyn Memory>| MemorySlice { offset: 0, len: memory.len(), memory };
    all.iter().filter_map(Weak::upgrade).map(whole).collect()
}

/// Memory use of a device.
#[derive(Default)]
pub struct Account(AtomicUsize);

impl Account {
    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Reserves bytes, unless the total would exceed `limit`.
    pub fn charge(self: &Arc<Self>, bytes: usize, limit: u64) -> Option<Charge> {
        let add = |used: usize| used.checked_add(bytes).filter(|sum| *sum as u64 <= limit);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Charge { account: self.clone(), bytes })
    }
}

/// Reserved bytes, returned on drop.
pub struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Deallocator of memory that the program owns.
type Deallocator = Block<(*mut c_void, usize)>;

struct Borrowed {
    address: NonNull<u8>,
    length: usize,
    deallocator: Option<Deallocator>,
}

// SAFETY: the address is only passed to the block, which may be called on any thread.
unsafe impl Send for Borrowed {}
// SAFETY: as above.
unsafe impl Sync for Borrowed {}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(deallocator) = &self.deallocator {
            deallocator.call(self.address.as_ptr().cast(), self.length);
        }
    }
}

/// Bytes of a buffer.
pub struct Store {
    memory: Arc<dyn Memory>,
    /// The host's copy, if there are two.
    host: Option<Arc<dyn Memory>>,
    offset: u64,
    length: usize,
    storage: Storage,
    _charge: Option<Charge>,
}

impl Store {
    /// Allocates zeroed memory. `None` if out of memory.
    pub fn allocate(
        cpu: &dyn elinvar_driver::Device,
        length: usize,
        storage: Storage,
        two_copies: bool,
        charge: Charge,
    ) -> Option<Self> {
        let pages = length.next_multiple_of(PAGE) as u64;
        let allocate = || cpu.allocate(pages, elinvar_driver::Storage::Shared, Init::Zeroed).ok();
        let memory = enter(allocate()?);
        let host = if two_copies && storage == Storage::Managed { Some(allocate()?) } else { None };
        Some(Self { memory, host, offset: 0, length, storage, _charge: Some(charge) })
    }

    /// Wraps whole pages of the program.
    ///
    /// # Safety
    /// The memory is readable and writable until the deallocator is called.
    pub unsafe fn borrow(
        cpu: &dyn elinvar_driver::Device,
        address: NonNull<u8>,
        length: usize,
        storage: Storage,
        deallocator: Option<Deallocator>,
    ) -> Option<Self> {
        let owner = Box::new(Borrowed { address, length, deallocator });
        let block = HostBlock { address, bytes: length as u64, owner };
        // SAFETY: the caller's promise.
        let memory = enter(unsafe { cpu.wrap(block) }.ok()?);
        Some(Self { memory, host: None, offset: 0, length, storage, _charge: None })
    }

    /// A part of this memory. Overlap of parts in use is the program's responsibility.
    pub fn part(&self, offset: usize, length: usize) -> Self {
        let memory = self.memory.clone();
        Self {
            memory,
            host: self.host.clone(),
            offset: self.offset + offset as u64,
            length,
            storage: self.storage,
            _charge: None,
        }
    }

    /// Requested size in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The storage mode.
    pub fn storage(&self) -> Storage {
        self.storage
    }

    /// The slice from `offset` to the end of the pages.
    pub fn from(&self, offset: usize) -> MemorySlice {
        let offset = self.offset + offset as u64;
        MemorySlice { memory: self.memory.clone(), offset, len: self.memory.len() - offset }
    }

    /// The slice from an offset to the end of the buffer, not of its pages.
    pub fn rest(&self, offset: usize) -> MemorySlice {
        self.range(offset, self.length - offset)
    }

    /// A slice, which must be within the memory.
    pub fn range(&self, offset: usize, length: usize) -> MemorySlice {
        MemorySlice { memory: self.memory.clone(), offset: self.offset + offset as u64, len: length as u64 }
    }

    fn address(&self, memory: &dyn Memory) -> *mut u8 {
        let base = memory.host_ptr().map_or(std::ptr::null_mut(), NonNull::as_ptr);
        // The offset is within the memory.
        base.wrapping_add(usize::try_from(self.offset).unwrap_or(0))
    }

    /// The device's address, as a host address.
    pub fn device_bytes(&self) -> *mut u8 {
        self.address(&*self.memory)
    }

    /// The host's address; null if the host cannot access it.
    pub fn contents(&self) -> *mut u8 {
        match self.storage {
            Storage::Private | Storage::Memoryless => std::ptr::null_mut(),
            _ => self.address(&**self.host.as_ref().unwrap_or(&self.memory)),
        }
    }

    /// The address for kernels.
    pub fn gpu_address(&self) -> u64 {
        self.memory.gpu_address().map_or(0, |address| address + self.offset)
    }

    /// Copies the host's writes to the device's copy.
    pub fn push(&self, offset: usize, length: usize) {
        self.copy(true, offset, length);
    }

    /// Copies the device's writes to the host's copy.
    pub fn pull(&self) {
        self.copy(false, 0, self.length);
    }

    fn copy(&self, to_device: bool, offset: usize, length: usize) {
        let Some(host) = &self.host else { return };
        let (host, device) = (self.address(&**host), self.device_bytes());
        let (from, to) = if to_device { (host, device) } else { (device, host) };
        // SAFETY: the caller has checked the range; the copies are disjoint. The program is responsible for ordering.
        unsafe { std::ptr::copy_nonoverlapping(from.add(offset), to.add(offset), length) };
    }

    /// Initializes both copies, before other code has the buffer.
    ///
    /// # Safety
    /// `from` points to that many bytes, at most the store's length.
    pub unsafe fn fill(&self, from: *const u8, length: usize) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, self.device_bytes(), length) };
        if self.host.is_some() {
            self.pull();
        }
    }
}
