//! [`Memory`]: allocations, storage modes and initial contents.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

use crate::{Error, Result};

/// Storage mode of an allocation (`MTLStorageMode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Storage {
    /// Accessible by host and device. On a device with its own memory these are pinned host pages that the device accesses over the
    /// bus; transfers are staged through them.
    #[default]
    Shared,
    /// Accessible by the device only; the host copies.
    Private,
    /// A host and a device copy, synchronized explicitly by [`Memory::pull`] and [`Memory::push`]. With unified memory there is one
    /// copy.
    Managed,
}

/// Initial content of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Init {
    /// Zeros.
    #[default]
    Zeroed,
    /// Unspecified.
    Uninitialized,
}

/// Host memory for a device to use in place.
pub struct HostBlock {
    /// Address of the first byte.
    pub address: NonNull<u8>,
    /// Length in bytes.
    pub bytes: u64,
    /// Owner of the memory; dropped when the device no longer uses it.
    pub owner: Box<dyn Any + Send + Sync>,
}

#[allow(unsafe_code)] // a raw address is not sent by default
// SAFETY: the owner may be sent, and the address is of memory that it keeps; nothing is done with it here.
unsafe impl Send for HostBlock {}

impl fmt::Debug for HostBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBlock({:?}, {} bytes)", self.address, self.bytes)
    }
}

/// An allocation. Dropping the last reference frees it.
///
/// # Safety
/// Safe code reads and writes through [`Memory::host_ptr`]: it must return the same address at every call, valid for reads and writes of
/// [`Memory::len`] bytes for the lifetime of the value, and disjoint from all other memory.
#[allow(unsafe_code)] // declares unsafe methods: only the caller knows who else uses the memory
pub unsafe trait Memory: Send + Sync + Any {
    /// Size in bytes, as requested.
    fn len(&self) -> u64;

    /// Whether the size is zero.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Storage mode.
    fn storage(&self) -> Storage;

    /// Host address, if the host can access the memory. Valid for the lifetime of `self`.
    fn host_ptr(&self) -> Option<NonNull<u8>>;

    /// Device address, for pointers in argument buffers. Valid for the lifetime of `self`. `None` if the driver has no device
    /// addresses, which is the default.
    fn gpu_address(&self) -> Option<u64> {
        None
    }

    /// Copies bytes from `offset` to the host, as the device left them. Blocks until they are copied.
    ///
    /// # Safety
    /// The range must be within the memory, and must not be written by host or device during the call.
    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<()>;

    /// Copies bytes from the host to `offset`, visible to the device. Blocks until they are copied.
    ///
    /// # Safety
    /// The range must be within the memory, and must not be accessed by host or device during the call.
    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<()>;

    /// Zeroes the first `len` bytes, visible to the device.
    ///
    /// # Safety
    /// As [`Memory::write`].
    unsafe fn clear(&self, len: u64) -> Result<()>;

    /// Updates the host copy at [`Memory::host_ptr`] from the device copy. No effect if they are the same memory.
    ///
    /// # Safety
    /// As [`Memory::write`].
    unsafe fn pull(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    /// Updates the device copy from the host copy at [`Memory::host_ptr`]. No effect if they are the same memory.
    ///
    /// # Safety
    /// As [`Memory::write`].
    unsafe fn push(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
}

/// Checks that `len` bytes at `offset` are within a memory of `whole` bytes.
///
/// # Errors
/// [`Error::InvalidArgument`] with the range and the size.
pub fn expect_within(whole: u64, offset: u64, len: u64) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= whole => Ok(()),
        _ => Err(Error::invalid(format!(
            "bytes {offset} to {} are outside a memory of {whole} bytes",
            offset.saturating_add(len)
        ))),
    }
}
