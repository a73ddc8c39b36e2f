//! Memory: `MTLBuffer`s in the storage mode of the same name, and wrapped memory of the program.
//!
//! On a device with unified memory, `Managed` is `Shared`: there is one copy. The host accesses private memory with blits through a staging
//! buffer, which have completed when the call returns.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use block2::RcBlock;
use elinvar_driver::{Error, HostBlock, Memory, MemorySlice, Result, Storage, expect_within};
use objc2::rc::autoreleasepool;
use objc2::runtime::NSObjectProtocol as _;
use objc2::sel;
use objc2_foundation::NSRange;
use objc2_metal::{MTLBuffer as _, MTLDevice as _, MTLResourceOptions};
use parking_lot::Mutex;

use super::buffer::Buffer;
use super::core::{self, Core};
use super::host;

/// A buffer.
pub(super) struct MetalMemory {
    buffer: Buffer,
    len: u64,
    storage: Storage,
    /// Host address of the bytes; `None` for private memory.
    host: Option<NonNull<u8>>,
    /// Whether host and device have separate copies.
    copies: bool,
    core: Arc<Core>,
}

#[allow(unsafe_code)] // a raw address is not sent by default
// SAFETY: the address is of the buffer's memory, which may be used on any thread.
unsafe impl Send for MetalMemory {}
#[allow(unsafe_code)] // as above
// SAFETY: constant after construction; accesses to the bytes are ordered according to the contract of `Memory`.
unsafe impl Sync for MetalMemory {}

impl MetalMemory {
    pub(super) fn new(core: &Arc<Core>, len: u64, storage: Storage) -> Result<Self> {
        let copies = storage == Storage::Managed && !core.features.unified;
        let options = match storage {
            Storage::Shared => MTLResourceOptions::StorageModeShared,
            Storage::Managed if copies => MTLResourceOptions::StorageModeManaged,
            Storage::Managed => MTLResourceOptions::StorageModeShared,
            Storage::Private => MTLResourceOptions::StorageModePrivate,
            other => return Err(Error::unsupported(format!("{other:?} storage on a Metal device"))),
        };
        autoreleasepool(|_| {
            let buffer = core.buffer(len, options)?;
            let host = (storage != Storage::Private).then(|| core::contents(&buffer));
            Ok(Self { buffer, len, storage, host, copies, core: core.clone() })
        })
    }

    /// Wraps whole pages of the program. Their owner is dropped when Metal releases the buffer.
    ///
    /// # Safety
    /// As [`elinvar_driver::Device::wrap`].
    #[allow(unsafe_code)] // takes an address on trust
    pub(super) unsafe fn wrap(core: &Arc<Core>, block: HostBlock) -> Result<Self> {
        let HostBlock { address, bytes: len, owner } = block;
        let (page, start) = (host::page_size(), address.as_ptr() as u64);
        if !start.is_multiple_of(page) || !len.is_multiple_of(page) {
            return Err(Error::invalid(format!(
                "host memory of {len} bytes at {start:#x}: address and length must be multiples of {page}"
            )));
        }
        if len == 0 {
            return Err(Error::unsupported(
                "host memory of no bytes in place: Metal has no buffer of length 0",
            ));
        }
        let none = || core.out_of_memory(len);
        let length = usize::try_from(len).map_err(|_| none())?;
        let owner = Mutex::new(Some(owner));
        let let_go = RcBlock::new(move |_: NonNull<std::ffi::c_void>, _: usize| drop(owner.lock().take()));
        let options = MTLResourceOptions::StorageModeShared;
        // SAFETY: the caller guarantees that the pages stay valid until the owner is dropped, which the deallocator block does after the
        // buffer is gone.
        let buffer = autoreleasepool(|_| unsafe {
            core.device.newBufferWithBytesNoCopy_length_options_deallocator(
                address.cast(),
                length,
                options,
                Some(&let_go),
            )
        });
        let buffer = Buffer(buffer.ok_or_else(none)?);
        let (storage, host) = (Storage::Shared, Some(address));
        Ok(Self { buffer, len, storage, host, copies: false, core: core.clone() })
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(super) fn into_buffer(self) -> Buffer {
        self.buffer
    }

    /// The host address of the byte at `offset`, if `len` bytes from there are within the memory.
    fn at(&self, offset: u64, len: u64) -> Result<Option<*mut u8>> {
        expect_within(self.len, offset, len)?;
        // Does not overflow: within the buffer.
        Ok(self.host.map(|host| host.as_ptr().wrapping_add(offset as usize)))
    }
}

/// The buffer of a slice of this device's memory, and the offset in it.
pub(super) fn located<'a>(core: &Core, slice: &'a MemorySlice) -> Result<(&'a Buffer, usize)> {
    let memory: &dyn Any = &*slice.memory;
    let memory = memory.downcast_ref::<MetalMemory>();
    let memory = memory.ok_or_else(|| Error::invalid("the memory belongs to another driver"))?;
    if !std::ptr::eq(&raw const *memory.core, core) {
        let name = &core.caps.name;
        return Err(Error::invalid(format!("the memory does not belong to Metal device `{name}`")));
    }
    expect_within(memory.len, slice.offset, slice.len)?;
    // Does not overflow: within the buffer.
    Ok((&memory.buffer, slice.offset as usize))
}

#[allow(unsafe_code)] // copies through raw addresses; the trait's methods are unsafe for this
// SAFETY: the address is of the `MTLBuffer` that the value owns.
unsafe impl Memory for MetalMemory {
    fn len(&self) -> u64 {
        self.len
    }

    fn storage(&self) -> Storage {
        self.storage
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        self.host
    }

    /// `None` before macOS 13, where buffers do not report it.
    fn gpu_address(&self) -> Option<u64> {
        self.buffer.respondsToSelector(sel!(gpuAddress)).then(|| self.buffer.gpuAddress())
    }

    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        let len = target.len() as u64;
        let Some(source) = self.at(offset, len)? else {
            return self.core.transfer.lock().read(&self.core, &self.buffer, offset, target);
        };
        if self.copies {
            return self.core.transfer.lock().read(&self.core, &self.buffer, offset, target);
        }
        // SAFETY: `at` checked the range; the caller guarantees that it is not written concurrently, and does not overlap `target`.
        unsafe { std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len()) };
        Ok(())
    }

    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        let len = source.len() as u64;
        let Some(target) = self.at(offset, len)? else {
            return self.core.transfer.lock().write(&self.core, &self.buffer, offset, source);
        };
        // SAFETY: `at` checked the range; the caller guarantees that it is not accessed concurrently.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len()) };
        // SAFETY: guaranteed by the caller.
        unsafe { self.push(offset, len) }
    }

    unsafe fn clear(&self, len: u64) -> Result<()> {
        let Some(target) = self.at(0, len)? else {
            return self.core.transfer.lock().clear(&self.core, &self.buffer, len);
        };
        // SAFETY: `at` checked the range; the caller guarantees that it is not accessed concurrently.
        unsafe { target.write_bytes(0, len as usize) };
        // SAFETY: guaranteed by the caller.
        unsafe { self.push(0, len) }
    }

    unsafe fn pull(&self, offset: u64, len: u64) -> Result<()> {
        let host = self.at(offset, len)?.filter(|_| self.copies);
        let Some(host) = host else { return Ok(()) };
        // Not `synchronizeResource`, which would also overwrite the rest of the host's copy.
        // SAFETY: `at` checked the range; the caller guarantees that it is not accessed concurrently.
        let target = unsafe { std::slice::from_raw_parts_mut(host, len as usize) };
        self.core.transfer.lock().read(&self.core, &self.buffer, offset, target)
    }

    unsafe fn push(&self, offset: u64, len: u64) -> Result<()> {
        expect_within(self.len, offset, len)?;
        if self.copies && len > 0 {
            let range = NSRange { location: offset as usize, length: len as usize };
            autoreleasepool(|_| self.buffer.didModifyRange(range));
        }
        Ok(())
    }
}
