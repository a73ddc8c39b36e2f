//! Memory that processes share: files that lie in the system's memory only, mapped.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use elinvar_driver::{Error, Result};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// A file of so many bytes of zeroes, whose size nobody can change: who maps it never loses a page.
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

/// A file's bytes in this process.
pub(crate) struct Mapping {
    address: NonNull<u8>,
    bytes: usize,
}

#[allow(unsafe_code)] // an address of memory that processes share
// SAFETY: the mapping belongs to this value and may be used and unmapped from any thread.
unsafe impl Send for Mapping {}
#[allow(unsafe_code)] // as above
// SAFETY: the fields never change; who reads and writes the bytes says how that is ordered.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The first `bytes` bytes of a file, which has as many.
    #[allow(unsafe_code)] // a system call
    pub(crate) fn new(file: BorrowedFd<'_>, bytes: u64) -> Result<Self> {
        let failed = |what: &dyn std::fmt::Display| {
            Error::Environment(format!("mapping {bytes} bytes that processes share: {what}"))
        };
        let size = usize::try_from(bytes).map_err(|error| failed(&error))?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice changes no other memory.
        let address = unsafe { rustix::mm::mmap(std::ptr::null_mut(), size, access, flags, file, 0) };
        let address = address.map_err(|error| failed(&error))?;
        let address = NonNull::new(address.cast()).ok_or_else(|| failed(&"no address"))?;
        Ok(Self { address, bytes: size })
    }

    /// As [`Mapping::new`], for a file that is as long as it says.
    pub(crate) fn whole(file: impl AsFd) -> Result<Self> {
        let size = rustix::fs::fstat(&file).map(|stat| stat.st_size as u64);
        let size = size.map_err(|error| Error::Environment(format!("the size of a shared file: {error}")))?;
        Self::new(file.as_fd(), size)
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// The address of the byte at `offset`, which is within the mapping.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.bytes, "{offset} is outside a mapping of {} bytes", self.bytes);
        // A sum that stays within one mapping is never zero.
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
