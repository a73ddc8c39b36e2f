//! Shared memory: anonymous memory files, and their mappings.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use elinvar_driver::{Error, Result};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Creates a zeroed file whose size is sealed, so that mapped pages cannot disappear.
pub(crate) fn file(name: &str, bytes: u64) -> Result<OwnedFd> {
    let make = || {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, bytes)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file)
    };
    make().map_err(|error: rustix::io::Errno| {
        Error::Environment(format!(
            "a file of {bytes} bytes in memory, to share with a worker process: {error}"
        ))
    })
}

/// A mapping of a file.
pub(crate) struct Mapping {
    address: NonNull<u8>,
    bytes: usize,
}

#[allow(unsafe_code)] // an address of memory that processes share
// SAFETY: the mapping belongs to this value, and may be used and unmapped on any thread.
unsafe impl Send for Mapping {}
#[allow(unsafe_code)] // as above
// SAFETY: the fields are constant; users of the bytes define how accesses are ordered.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes of a file, which must be at least that long.
    #[allow(unsafe_code)] // a system call
    pub(crate) fn new(file: BorrowedFd<'_>, bytes: u64) -> Result<Self> {
        let failed = |what: &dyn std::fmt::Display| {
            Error::Environment(format!("mapping {bytes} bytes that processes share: {what}"))
        };
        let size = usize::try_from(bytes).map_err(|error| failed(&error))?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address chosen by the system does not change other memory.
        let address = unsafe { rustix::mm::mmap(std::ptr::null_mut(), size, access, flags, file, 0) };
        let address = address.map_err(|error| failed(&error))?;
        let address = NonNull::new(address.cast()).ok_or_else(|| failed(&"no address"))?;
        Ok(Self { address, bytes: size })
    }

    /// As [`Mapping::new`], after checking the length of the file.
    pub(crate) fn whole(file: impl AsFd) -> Result<Self> {
        let size = rustix::fs::fstat(&file).map(|stat| stat.st_size as u64);
        let size = size.map_err(|error| Error::Environment(format!("the size of a shared file: {error}")))?;
        Self::new(file.as_fd(), size)
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// The address of the byte at `offset`, which must be within the mapping.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.bytes, "{offset} is outside a mapping of {} bytes", self.bytes);
        // An address within one mapping is never null.
        NonNull::new(self.address.as_ptr().wrapping_add(offset)).unwrap_or(self.address)
    }
}

impl Drop for Mapping {
    #[allow(unsafe_code)] // a system call
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made, whose only owner is being dropped.
        let _left = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}
