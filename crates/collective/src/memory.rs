//! Access to the memory of a call from the host: in place, or through a copy for memory that the host does not see.

use std::ops::{Deref, DerefMut};

use elinvar_driver::{Error, MemorySlice, Result, expect_within};

/// The bytes of a source or a target.
pub(crate) enum Bytes<'c> {
    /// Host memory that devices do not use during the call.
    InPlace(&'c mut [u8]),
    Copied {
        bytes: Vec<u8>,
        slice: &'c MemorySlice,
    },
    None,
}

impl<'c> Bytes<'c> {
    /// The bytes to read.
    ///
    /// # Safety
    /// Nothing else writes the memory while the value lives, and nothing uses it if it is written.
    #[allow(unsafe_code)] // see above
    pub(crate) unsafe fn source(slice: Option<&'c MemorySlice>) -> Result<Self> {
        // SAFETY: guaranteed by the caller.
        unsafe { Self::new(slice, true) }
    }

    /// The bytes to write, which are read before where `keeps`.
    ///
    /// # Safety
    /// Nothing else uses the memory while the value lives.
    #[allow(unsafe_code)] // see above
    pub(crate) unsafe fn target(slice: Option<&'c MemorySlice>, keeps: bool) -> Result<Self> {
        // SAFETY: guaranteed by the caller.
        unsafe { Self::new(slice, keeps) }
    }

    #[allow(unsafe_code)] // see above
    unsafe fn new(slice: Option<&'c MemorySlice>, reads: bool) -> Result<Self> {
        let Some(slice) = slice else { return Ok(Self::None) };
        expect_within(slice.memory.len(), slice.offset, slice.len)?;
        let len =
            usize::try_from(slice.len).map_err(|_| Error::invalid("a slice beyond the address space"))?;
        if let Some(address) = slice.memory.host_ptr()
            && slice.memory.storage() == elinvar_driver::Storage::Shared
        {
            // SAFETY: within the memory, which lives as long as the slice; the caller guarantees that nothing else uses it.
            return Ok(Self::InPlace(unsafe {
                std::slice::from_raw_parts_mut(address.as_ptr().wrapping_add(slice.offset as usize), len)
            }));
        }
        let mut bytes = vec![0; len];
        if reads {
            // SAFETY: within the memory; the caller guarantees that nothing writes it.
            unsafe { slice.memory.read(slice.offset, &mut bytes) }?;
        }
        Ok(Self::Copied { bytes, slice })
    }

    /// Writes a copy back.
    ///
    /// # Safety
    /// Nothing else uses the memory.
    #[allow(unsafe_code)] // see above
    pub(crate) unsafe fn store(self) -> Result<()> {
        match self {
            // SAFETY: within the memory; guaranteed by the caller.
            Self::Copied { bytes, slice } => unsafe { slice.memory.write(slice.offset, &bytes) },
            _ => Ok(()),
        }
    }
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::InPlace(bytes) => bytes,
            Self::Copied { bytes, .. } => bytes,
            Self::None => &[],
        }
    }
}

impl DerefMut for Bytes<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::InPlace(bytes) => bytes,
            Self::Copied { bytes, .. } => bytes,
            Self::None => &mut [],
        }
    }
}
