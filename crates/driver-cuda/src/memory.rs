//! Memory: device memory, and host pages that the device accesses over the bus.
//!
//! | storage | location |
//! |---|---|
//! | `Private` | device memory |
//! | `Shared` | pinned host pages, which the device accesses in place |
//! | `Managed` | device memory; after the first host access also pinned pages, synchronized by `pull` and `push` |
//!
//! CUDA's managed memory, which migrates on page faults, is not used: kernels would stall on faults, and a process that
//! oversubscribes the device can block it for all processes.

use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::CUdeviceptr;
use elinvar_driver::{Error, HostBlock, Init, Memory, Result, Storage, expect_within};

use crate::context::{Context, at, void};
use crate::failure::{Failure, code};

/// Required alignment of address and length of wrapped host memory: one page on most machines. The driver pins whole pages of any size.
pub(crate) const WRAP_GRANULE: u64 = 4096;
/// Granularity of device memory.
pub(crate) const GRANULE: u64 = 512;

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`, and the same of `cuMemHostRegister`: usable by all devices, and mapped for
/// kernels.
const EVERYWHERE: u32 = 3;

/// An allocation of one device.
pub(crate) struct CudaMemory {
    context: Arc<Context>,
    len: u64,
    storage: Storage,
    /// Address for kernels.
    address: CUdeviceptr,
    place: Place,
}

enum Place {
    /// Device memory, with the host's copy of managed memory after its first access; `None` if that could not be allocated.
    Device { mirror: OnceLock<Option<Pinned>> },
    /// Device memory of another process.
    #[cfg(target_os = "linux")]
    Mapped(Option<crate::apart::Mapped>),
    /// Pages allocated by the driver.
    Pinned(Pinned),
    /// Pages of the program.
    Registered { first: NonNull<u8>, _owner: Box<dyn Any + Send + Sync> },
}

/// Pinned host pages.
struct Pinned {
    context: Arc<Context>,
    first: NonNull<u8>,
}

#[allow(unsafe_code)] // addresses of memory that anybody may use by the contract
// SAFETY: the pages belong to this value alone, and may be used and freed on any thread.
unsafe impl Send for Pinned {}
#[allow(unsafe_code)] // as above
// SAFETY: constant after construction; accesses to the bytes are ordered by the callers.
unsafe impl Sync for Pinned {}
#[allow(unsafe_code)] // as above
// SAFETY: as for `Pinned`; the owner of registered pages may be sent.
unsafe impl Send for CudaMemory {}
#[allow(unsafe_code)] // as above
// SAFETY: as above, and the owner may be shared.
unsafe impl Sync for CudaMemory {}

impl Pinned {
    /// The context must be current.
    #[allow(unsafe_code)] // a C function
    fn new(context: &Arc<Context>, len: u64) -> Result<Self, Failure> {
        let mut first: *mut c_void = std::ptr::null_mut();
        // SAFETY: it writes an address.
        unsafe { context.api.allocate_host(&mut first, size(len), EVERYWHERE) }?;
        let first = NonNull::new(first.cast())
            .ok_or(Failure { call: "cuMemHostAlloc", code: code::OUT_OF_MEMORY })?;
        Ok(Self { context: context.clone(), first })
    }
}

impl Drop for Pinned {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // SAFETY: allocated by `new`, and nothing uses it. On failure, it is released at the end of the process.
            let _left = unsafe { self.context.api.free_host(void(self.first.as_ptr())) };
        }
    }
}

/// Allocation size in bytes: at least one, so that an empty allocation has an address.
fn size(len: u64) -> usize {
    usize::try_from(len.max(GRANULE)).unwrap_or(usize::MAX)
}

impl CudaMemory {
    /// Allocates `len` bytes.
    #[allow(unsafe_code)] // C functions
    pub(crate) fn new(context: &Arc<Context>, len: u64, storage: Storage, init: Init) -> Result<Self> {
        let refused = |failure: Failure| match failure.code {
            code::OUT_OF_MEMORY => {
                let available = context.memory().map_or(0, |(free, _)| free);
                Error::OutOfMemory { requested: len, available }
            }
            _ => context.error(failure, &format!("allocating {len} bytes")),
        };
        let current = context.enter()?;
        let mut address = 0;
        let place = if storage == Storage::Shared {
            let pinned = Pinned::new(context, len).map_err(refused)?;
            // SAFETY: the pages are the driver's and visible to the device.
            unsafe { context.api.host_device_pointer(&mut address, void(pinned.first.as_ptr()), 0) }
                .map_err(refused)?;
            Place::Pinned(pinned)
        } else {
            // SAFETY: it writes an address.
            unsafe { context.api.allocate(&mut address, size(len)) }.map_err(refused)?;
            Place::Device { mirror: OnceLock::new() }
        };
        drop(current);
        let memory = Self { context: context.clone(), len, storage, address, place };
        if init == Init::Zeroed {
            // SAFETY: no other code knows this memory.
            unsafe { memory.clear(len) }?;
        }
        Ok(memory)
    }

    /// Wraps memory of the program.
    ///
    /// # Safety
    /// As [`elinvar_driver::Device::wrap`].
    #[allow(unsafe_code)] // takes an address on trust
    pub(crate) unsafe fn wrap(context: &Arc<Context>, block: HostBlock) -> Result<Self> {
        let HostBlock { address: first, bytes: len, owner } = block;
        let start = first.as_ptr() as u64;
        if !start.is_multiple_of(WRAP_GRANULE) || !len.is_multiple_of(WRAP_GRANULE) || len == 0 {
            return Err(Error::invalid(format!(
                "host memory of {len} bytes at {start:#x}: address and length must be multiples of {WRAP_GRANULE}"
            )));
        }
        let what = format!("using {len} bytes of host memory in place");
        let _current = context.enter()?;
        let mut address = 0;
        // SAFETY: the caller guarantees that the pages stay valid; they are unregistered when this memory is dropped.
        unsafe { context.api.register_host(void(first.as_ptr()), size(len), EVERYWHERE) }
            .map_err(|failure| context.error(failure, &what))?;
        let place = Place::Registered { first, _owner: owner };
        let mut memory = Self { context: context.clone(), len, storage: Storage::Shared, address, place };
        // SAFETY: the pages have just been registered.
        unsafe { context.api.host_device_pointer(&mut address, void(first.as_ptr()), 0) }
            .map_err(|failure| context.error(failure, &what))?;
        memory.address = address;
        Ok(memory)
    }

    /// Imports `len` bytes of another process.
    #[cfg(target_os = "linux")]
    pub(crate) fn import(context: &Arc<Context>, mapped: crate::apart::Mapped, len: u64) -> Self {
        let (context, storage, address) = (context.clone(), Storage::Private, mapped.address);
        Self { context, len, storage, address, place: Place::Mapped(Some(mapped)) }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The device address of the byte at `offset`, if `len` bytes from there are within the memory.
    pub(crate) fn at(&self, offset: u64, len: u64) -> Result<CUdeviceptr> {
        expect_within(self.len, offset, len)?;
        Ok(at(self.address, offset))
    }

    /// The host address of memory that the device accesses in place.
    fn pages(&self) -> Option<NonNull<u8>> {
        match &self.place {
            Place::Pinned(pinned) => Some(pinned.first),
            Place::Registered { first, .. } => Some(*first),
            Place::Device { .. } => None,
            #[cfg(target_os = "linux")]
            Place::Mapped(_) => None,
        }
    }

    /// The address of the host's copy of managed memory.
    fn mirror(&self) -> Option<NonNull<u8>> {
        let Place::Device { mirror } = &self.place else { return None };
        if self.storage != Storage::Managed {
            return None;
        }
        let made = mirror.get_or_init(|| {
            let _current = self.context.enter().ok()?;
            Pinned::new(&self.context, self.len)
                .inspect_err(|f| tracing::debug!("{}", f.text(self.context.api)))
                .ok()
        });
        made.as_ref().map(|pinned| pinned.first)
    }

    /// The host's copy, from `offset` on.
    fn mirrored(&self, offset: u64) -> Option<*mut u8> {
        let Place::Device { mirror } = &self.place else { return None };
        let pinned = mirror.get()?.as_ref()?;
        Some(pinned.first.as_ptr().wrapping_add(offset as usize))
    }

    #[allow(unsafe_code)] // a C function
    fn copy_to_host(&self, from: CUdeviceptr, to: *mut u8, bytes: u64) -> Result<()> {
        let bytes = bytes as usize;
        // SAFETY: both ranges are memory of this size, as the callers ensure.
        self.context
            .done("reading memory", |api, stream| unsafe { api.copy_to_host(void(to), from, bytes, stream) })
    }

    #[allow(unsafe_code)] // a C function
    fn copy_to_device(&self, from: *const u8, to: CUdeviceptr, bytes: u64) -> Result<()> {
        let bytes = bytes as usize;
        // SAFETY: as above.
        self.context.done("writing memory", |api, stream| unsafe {
            api.copy_to_device(to, from.cast(), bytes, stream)
        })
    }
}

impl Drop for CudaMemory {
    #[allow(unsafe_code)] // C functions
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // On failure, it is released at the end of the process.
        let _left = match &mut self.place {
            // SAFETY: allocated by `new`; nothing uses it, as the contract requires.
            Place::Device { .. } => unsafe { self.context.api.free(self.address) },
            // SAFETY: registered by `wrap`.
            Place::Registered { first, .. } => unsafe {
                self.context.api.unregister_host(void(first.as_ptr()))
            },
            Place::Pinned(_) => Ok(()),
            // Dropped while the context is current.
            #[cfg(target_os = "linux")]
            Place::Mapped(mapped) => {
                *mapped = None;
                Ok(())
            }
        };
    }
}

#[allow(unsafe_code)] // copies through raw addresses; the trait's methods are unsafe for this
// SAFETY: the address is of pinned host memory that the value owns.
unsafe impl Memory for CudaMemory {
    fn len(&self) -> u64 {
        self.len
    }

    fn storage(&self) -> Storage {
        self.storage
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        self.pages().or_else(|| self.mirror())
    }

    fn gpu_address(&self) -> Option<u64> {
        Some(self.address)
    }

    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        let source = self.at(offset, target.len() as u64)?;
        let Some(pages) = self.pages() else {
            if target.is_empty() {
                return Ok(());
            }
            return self.copy_to_host(source, target.as_mut_ptr(), target.len() as u64);
        };
        let from = pages.as_ptr().wrapping_add(offset as usize);
        // SAFETY: `at` checked the range; the caller guarantees that it is not written concurrently.
        unsafe { std::ptr::copy_nonoverlapping(from, target.as_mut_ptr(), target.len()) };
        Ok(())
    }

    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        let target = self.at(offset, source.len() as u64)?;
        let Some(pages) = self.pages() else {
            if source.is_empty() {
                return Ok(());
            }
            return self.copy_to_device(source.as_ptr(), target, source.len() as u64);
        };
        let to = pages.as_ptr().wrapping_add(offset as usize);
        // SAFETY: `at` checked the range; the caller guarantees that it is not accessed concurrently.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), to, source.len()) };
        Ok(())
    }

    unsafe fn clear(&self, len: u64) -> Result<()> {
        let target = self.at(0, len)?;
        match self.pages() {
            _ if len == 0 => Ok(()),
            Some(pages) => {
                // SAFETY: `at` checked the range; the caller guarantees that it is not accessed concurrently.
                unsafe { pages.as_ptr().write_bytes(0, len as usize) };
                Ok(())
            }
            // SAFETY: as above, on the device.
            None => self
                .context
                .done("zeroing memory", |api, stream| unsafe { api.set_u8(target, 0, len as usize, stream) }),
        }
    }

    unsafe fn pull(&self, offset: u64, len: u64) -> Result<()> {
        let source = self.at(offset, len)?;
        match self.mirrored(offset) {
            Some(target) if len > 0 => self.copy_to_host(source, target, len),
            _ => Ok(()),
        }
    }

    unsafe fn push(&self, offset: u64, len: u64) -> Result<()> {
        let target = self.at(offset, len)?;
        match self.mirrored(offset) {
            Some(source) if len > 0 => self.copy_to_device(source, target, len),
            _ => Ok(()),
        }
    }
}
