//! Memory: the trait, where it lives, what it holds at first.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

use crate::{Error, Result};

/// Where memory lives and who may touch it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Storage {
    /// Host and device see the same bytes. On a device with memory of its own they lie in the host's, pinned, and
    /// the device reaches them over the bus: the memory through which transfers are staged.
    #[default]
    Shared,
    /// The device only; the host copies in and out.
    Private,
    /// Two copies that are brought in step explicitly, by [`Memory::pull`] and [`Memory::push`]. Where host and device
    /// share their memory it is one.
    Managed,
}

/// What new memory holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Init {
    /// Zeroes.
    #[default]
    Zeroed,
    /// Anything.
    Uninitialized,
}

/// Memory of the host that a device is to use in place.
pub struct HostBlock {
    /// Its first byte.
    pub address: NonNull<u8>,
    /// Its length.
    pub bytes: u64,
    /// What keeps it alive.
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
/// Safe code reads and writes through what [`Memory::host_ptr`] gives: it is the same at every call, valid for reads and writes of
/// [`Memory::len`] bytes as long as the value is there, and of nobody else's memory.
#[allow(unsafe_code)] // declares unsafe methods: only the caller knows who else uses the memory
pub unsafe trait Memory: Send + Sync + Any {
    /// Size in bytes, as asked for.
    fn len(&self) -> u64;

    /// Whether the size is zero.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The storage mode it was allocated with.
    fn storage(&self) -> Storage;

    /// The address at which the host sees the memory, when it does. Valid as long as `self`.
    fn host_ptr(&self) -> Option<NonNull<u8>>;

    /// The address at which kernels see the memory, for pointers in the memory of arguments. Valid as long as
    /// `self`. None unless the driver says otherwise.
    fn gpu_address(&self) -> Option<u64> {
        None
    }

    /// Copy bytes from `offset` to the host, as the device left them.
    ///
    /// # Safety
    /// The range is within the memory, and nothing writes to it meanwhile, on host or device.
    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<()>;

    /// Copy bytes from the host to `offset`, for the device to see.
    ///
    /// # Safety
    /// The range is within the memory, and nothing else reads or writes it meanwhile.
    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<()>;

    /// Set the first `len` bytes to zero, for the device to see.
    ///
    /// # Safety
    /// As [`Memory::write`].
    unsafe fn clear(&self, len: u64) -> Result<()>;

    /// Make what the host sees at [`Memory::host_ptr`] what the device left in this range. Nothing to do where they
    /// see the same bytes.
    ///
    /// # Safety
    /// As [`Memory::write`].
    unsafe fn pull(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    /// Make what the device sees in this range what the host left at [`Memory::host_ptr`]. Nothing to do where they
    /// see the same bytes.
    ///
    /// # Safety
    /// As [`Memory::write`].
    unsafe fn push(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
}

/// Check that `len` bytes from `offset` on lie within a memory of `whole` bytes.
///
/// # Errors
/// `InvalidArgument` with both ranges.
pub fn expect_within(whole: u64, offset: u64, len: u64) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= whole => Ok(()),
        _ => Err(Error::invalid(format!(
            "bytes {offset} to {} are outside a memory of {whole} bytes",
            offset.saturating_add(len)
        ))),
    }
}
