//! Memory of the CPU driver: whole pages, mapped from the system or provided by the program.
//!
//! All storage modes are host memory. `Shared` and `Managed` expose the host address; `Private` does not, so that a program that omits its copies
//! fails here as it would on a GPU. Pages are zeroed on first touch, for either [`Init`]; allocation touches none.
//!
//! A device counts its allocations and refuses to exceed the machine's memory. The system itself would overcommit and kill the process
//! later.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use elinvar_driver::{Error, HostBlock, Memory, Result, Storage, expect_within};

#[cfg(target_os = "linux")]
use crate::cores;
use crate::host;

/// Size in bytes of a huge page.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Minimum size in bytes for requesting huge pages.
const MIN_HUGE_BYTES: usize = 2 * HUGE_PAGE_BYTES;
/// Inaccessible bytes before and after an allocation, so that accesses there are crashes and do not reach other memory.
const GUARD_BYTES: usize = 64 << 10;

/// Memory budget of a device: allocated bytes and limit; and the NUMA node from which its pages should come.
pub(crate) struct Account {
    limit: u64,
    used: AtomicU64,
    /// Without an effect on other systems than Linux.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    node: Option<u32>,
}

impl Account {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0), node: None }
    }

    /// The same, with a preferred NUMA node.
    pub(crate) fn on(self, node: Option<u32>) -> Self {
        Self { node, ..self }
    }

    /// Reserves `bytes`; returns whether they are available.
    fn take(&self, bytes: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn available(&self) -> u64 {
        self.limit - self.used.load(Ordering::Relaxed)
    }
}

/// An allocation: `len` bytes at the start of whole pages. Memory of the program has an owner and no mapping of its own.
pub(crate) struct HostMemory {
    address: NonNull<u8>,
    mapping: Option<Mapping>,
    _owner: Option<Box<dyn Any + Send + Sync>>,
    len: u64,
    storage: Storage,
    account: Arc<Account>,
}

#[allow(unsafe_code)] // the address is shared with whoever may touch the bytes by the contract
// SAFETY: the mapping belongs to this value alone and may be used and unmapped from any thread.
unsafe impl Send for HostMemory {}
#[allow(unsafe_code)] // as above
// SAFETY: the fields are constant after construction. Accesses to the bytes are ordered by the callers, as the contracts of `Memory` and
// of queues require.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Allocates `len` zeroed bytes. Maps at least one page, so that an empty allocation has an address.
    pub(crate) fn new(len: u64, storage: Storage, account: Arc<Account>) -> Result<Self> {
        let too_much = || Error::OutOfMemory { requested: len, available: account.available() };
        let mapped = len.max(1).checked_next_multiple_of(host::page_size()).ok_or_else(too_much)?;
        let bytes = usize::try_from(mapped).map_err(|_| too_much())?;
        if !account.take(mapped) {
            return Err(too_much());
        }
        let Some(mapping) = Mapping::new(bytes) else {
            account.give_back(mapped);
            return Err(too_much());
        };
        #[cfg(target_os = "linux")]
        if let Some(node) = account.node {
            cores::prefer_node(mapping.first, mapping.bytes, node);
        }
        Ok(Self { address: mapping.first, mapping: Some(mapping), _owner: None, len, storage, account })
    }

    /// Wraps whole pages of the program.
    ///
    /// # Safety
    /// As [`elinvar_driver::Device::wrap`].
    #[allow(unsafe_code)] // takes an address on trust
    pub(crate) unsafe fn wrap(block: HostBlock, account: Arc<Account>) -> Result<Self> {
        let HostBlock { address, bytes: len, owner } = block;
        let page = host::page_size();
        let start = address.as_ptr() as u64;
        if !start.is_multiple_of(page) || !len.is_multiple_of(page) {
            return Err(Error::invalid(format!(
                "host memory of {len} bytes at {start:#x}: address and length must be multiples of {page}"
            )));
        }
        let storage = Storage::Shared;
        Ok(Self { address, mapping: None, _owner: Some(owner), len, storage, account })
    }

    /// The address of the byte at `offset`, if `len` bytes from there are within the memory.
    pub(crate) fn at(&self, offset: u64, len: u64) -> Result<*mut u8> {
        expect_within(self.len, offset, len)?;
        // Does not overflow: the offset is within the mapping, whose size fits in usize.
        Ok(self.address.as_ptr().wrapping_add(offset as usize))
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if let Some(mapping) = &self.mapping {
            self.account.give_back(mapping.bytes as u64);
        }
    }
}

#[allow(unsafe_code)] // copies through raw addresses; the trait's methods are unsafe for this
// SAFETY: the address is of pages, or of host memory, that the value owns until it is dropped.
unsafe impl Memory for HostMemory {
    fn len(&self) -> u64 {
        self.len
    }

    fn storage(&self) -> Storage {
        self.storage
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        (self.storage != Storage::Private).then_some(self.address)
    }

    fn gpu_address(&self) -> Option<u64> {
        Some(self.address.as_ptr().expose_provenance() as u64)
    }

    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        let source = self.at(offset, target.len() as u64)?;
        // SAFETY: `at` checked the range; the caller guarantees that it is not written concurrently. `target` is a unique borrow, which cannot
        // overlap live memory of this driver, unless the caller made it from `host_ptr`, which the same guarantee forbids.
        unsafe { std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len()) };
        Ok(())
    }

    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        let target = self.at(offset, source.len() as u64)?;
        // SAFETY: `at` checked the range; the caller guarantees that it is not accessed concurrently, which includes readers of `source`.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len()) };
        Ok(())
    }

    unsafe fn clear(&self, len: u64) -> Result<()> {
        let target = self.at(0, len)?;
        // SAFETY: `at` checked the range; the caller guarantees that it is not accessed concurrently.
        unsafe { target.write_bytes(0, len as usize) };
        Ok(())
    }
}

/// Whole pages, between guards.
struct Mapping {
    /// The first accessible byte.
    first: NonNull<u8>,
    /// Number of accessible bytes.
    bytes: usize,
    /// The mapping with its guards, as the system knows it.
    whole: (NonNull<u8>, usize),
}

impl Mapping {
    /// Maps zeroed pages. Without guards if the system refuses them: each takes an entry in its table of mappings, of which Linux limits the
    /// number (`vm.max_map_count`), and mappings side by side share one.
    fn new(bytes: usize) -> Option<Self> {
        let mapping = Self::guarded(bytes).or_else(|| {
            let first = map(bytes, libc::PROT_READ | libc::PROT_WRITE)?;
            Some(Self { first, bytes, whole: (first, bytes) })
        })?;
        #[cfg(target_os = "linux")]
        mapping.prefer_huge_pages();
        Some(mapping)
    }

    #[allow(unsafe_code)] // C functions
    fn guarded(bytes: usize) -> Option<Self> {
        let align = if bytes >= MIN_HUGE_BYTES { HUGE_PAGE_BYTES } else { 1 };
        let reserved = bytes
            .checked_add(2 * GUARD_BYTES + align)?
            .checked_next_multiple_of(host::page_size() as usize)?;
        let whole = map(reserved, libc::PROT_NONE)?;
        let start = (whole.addr().get() + GUARD_BYTES).next_multiple_of(align);
        let first = whole.with_addr(start.try_into().ok()?);
        let mapping = Self { first, bytes, whole: (whole, reserved) };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the pages are within the mapping made above, which has no content.
        let accessible = unsafe { libc::mprotect(first.as_ptr().cast(), bytes, access) } == 0;
        accessible.then_some(mapping)
    }

    #[cfg(target_os = "linux")]
    #[allow(unsafe_code)] // a C function
    fn prefer_huge_pages(&self) {
        if self.bytes >= MIN_HUGE_BYTES {
            // SAFETY: the range is mapped. The advice does not change contents; if it fails, ordinary pages are used.
            unsafe { libc::madvise(self.first.as_ptr().cast(), self.bytes, libc::MADV_HUGEPAGE) };
        }
    }
}

impl Drop for Mapping {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        let (first, bytes) = self.whole;
        // SAFETY: exactly a mapping that `map` made, whose only owner is being dropped. Unmapping a whole mapping cannot fail.
        unsafe { libc::munmap(first.as_ptr().cast(), bytes) };
    }
}

#[allow(unsafe_code)] // a C function
fn map(bytes: usize, access: libc::c_int) -> Option<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANON;
    // SAFETY: a new private mapping at an address chosen by the system does not change other memory.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
    if address == libc::MAP_FAILED { None } else { NonNull::new(address.cast()) }
}

#[cfg(test)]
#[allow(unsafe_code)] // calls the unsafe methods under test
mod tests {
    use super::*;

    fn memory(len: u64, storage: Storage) -> HostMemory {
        HostMemory::new(len, storage, Arc::new(Account::new(1 << 20))).unwrap()
    }

    #[test]
    fn new_memory_is_zero_and_keeps_what_is_written() {
        let memory = memory(5000, Storage::Private);
        let mut bytes = [1_u8; 5000];
        // SAFETY: in range, nobody else knows this memory.
        unsafe { memory.read(0, &mut bytes).unwrap() };
        assert!(bytes.iter().all(|b| *b == 0));
        // SAFETY: as above.
        unsafe {
            memory.write(4997, &[1, 2, 3]).unwrap();
            memory.read(4990, &mut bytes[..10]).unwrap();
        }
        assert_eq!(bytes[..10], [0, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
    }

    #[test]
    fn only_private_memory_hides_its_address() {
        assert!(memory(4, Storage::Private).host_ptr().is_none());
        for storage in [Storage::Shared, Storage::Managed] {
            let address = memory(4, storage).host_ptr().unwrap();
            assert_eq!(address.as_ptr() as u64 % host::page_size(), 0);
        }
    }

    #[test]
    fn kernels_see_every_memory_at_an_address() {
        let shared = memory(4, Storage::Shared);
        let host = shared.host_ptr().map(|address| address.as_ptr() as u64);
        assert!(host.is_some() && shared.gpu_address() == host);
        assert!(memory(4, Storage::Private).gpu_address().is_some_and(|address| address != 0));
    }

    #[test]
    fn no_bytes_are_an_allocation_too() {
        let memory = memory(0, Storage::Shared);
        assert!(memory.is_empty() && memory.host_ptr().is_some());
        // SAFETY: no bytes are touched.
        unsafe { memory.read(0, &mut []).unwrap() };
    }

    #[test]
    fn ranges_outside_are_refused() {
        let memory = memory(8, Storage::Shared);
        assert!(memory.at(8, 0).is_ok());
        let error = memory.at(5, 4).unwrap_err();
        assert_eq!(error.to_string(), "bytes 5 to 9 are outside a memory of 8 bytes");
        assert!(memory.at(u64::MAX, 2).is_err());
    }

    #[test]
    fn clearing_sets_the_first_bytes() {
        let memory = memory(6000, Storage::Private);
        let mut bytes = [0; 6000];
        // SAFETY: in range, nobody else knows this memory.
        unsafe {
            memory.write(0, &[7; 6000]).unwrap();
            memory.clear(5001).unwrap();
            memory.read(0, &mut bytes).unwrap();
            assert!(memory.clear(6001).is_err());
        }
        assert!(bytes.iter().enumerate().all(|(i, byte)| *byte == if i < 5001 { 0 } else { 7 }));
    }

    #[test]
    fn whole_pages_of_the_program_are_used_in_place_and_their_owner_dropped() {
        let page = host::page_size();
        let account = Arc::new(Account::new(0));
        let own = memory(2 * page, Storage::Shared);
        let address = own.host_ptr().unwrap();
        let alive = Arc::new(());
        let block = |address, bytes| HostBlock { address, bytes, owner: Box::new(alive.clone()) };
        // SAFETY: the bytes stay while `own` does, and are only used through the wrapped memory.
        let wrapped = unsafe { HostMemory::wrap(block(address, 2 * page), account.clone()) }.unwrap();
        assert_eq!((wrapped.host_ptr(), wrapped.len()), (Some(address), 2 * page));
        // SAFETY: in range, nobody else uses it.
        unsafe { wrapped.write(page, &[5]).unwrap() };
        drop(wrapped);
        assert_eq!(Arc::strong_count(&alive), 1);
        let mut byte = [0];
        // SAFETY: in range, nobody else uses it; the wrapping has not unmapped it.
        unsafe { own.read(page, &mut byte).unwrap() };
        assert_eq!(byte, [5]);
        // SAFETY: the addresses are within the memory of `own`; they are refused.
        let odd = unsafe { HostMemory::wrap(block(address, page + 1), account.clone()) }.err().unwrap();
        assert!(odd.to_string().ends_with(&format!("must be multiples of {page}")), "{odd}");
        let inside = NonNull::new(address.as_ptr().wrapping_add(1)).unwrap();
        // SAFETY: as above.
        assert!(unsafe { HostMemory::wrap(block(inside, page), account) }.is_err());
    }

    #[test]
    fn memory_over_the_limit_is_refused_until_some_is_dropped() {
        let page = host::page_size();
        let account = Arc::new(Account::new(2 * page));
        let one = HostMemory::new(1, Storage::Shared, account.clone()).unwrap();
        let error = HostMemory::new(page + 1, Storage::Shared, account.clone()).err().unwrap();
        let Error::OutOfMemory { requested, available } = error else { panic!("{error}") };
        assert_eq!((requested, available), (page + 1, page));
        drop(one);
        HostMemory::new(page + 1, Storage::Shared, account).unwrap();
    }

    #[test]
    fn what_the_system_refuses_is_an_error() {
        let account = Arc::new(Account::new(u64::MAX));
        for len in [1 << 62, u64::MAX] {
            let error = HostMemory::new(len, Storage::Shared, account.clone()).err().unwrap();
            assert!(matches!(error, Error::OutOfMemory { requested, .. } if requested == len), "{error}");
        }
        assert_eq!(account.available(), u64::MAX);
    }
}
