//! Per-worker scratch memory for kernels: threadgroup memory and values that live across barriers.
//!
//! It grows to the largest requested size and is never shrunk. Its contents are undefined.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

use elinvar_driver::{Error, Result};

/// Alignment that compiled code may rely on.
const ALIGN: usize = 64;

/// A growable block of memory, aligned to 64 bytes.
pub(crate) struct Scratch {
    address: NonNull<u8>,
    /// Size in bytes; zero if nothing is allocated.
    size: usize,
}

#[allow(unsafe_code)] // the address belongs to this value alone
// SAFETY: the block is owned and not tied to a thread.
unsafe impl Send for Scratch {}

impl Scratch {
    pub(crate) const fn new() -> Self {
        Self { address: NonNull::dangling(), size: 0 }
    }

    /// The address of at least `bytes` bytes, valid until the next call. Previous contents are lost.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<*mut u8> {
        if bytes > self.size as u64 {
            self.grow(bytes)?;
        }
        Ok(self.address.as_ptr())
    }

    /// Frees the block if it has more than this many bytes.
    pub(crate) fn release_above(&mut self, bytes: usize) {
        if self.size > bytes {
            self.release();
        }
    }

    #[allow(unsafe_code)] // allocation with an alignment
    fn grow(&mut self, bytes: u64) -> Result<()> {
        let none = || Error::OutOfMemory { requested: bytes, available: 0 };
        let size = usize::try_from(bytes).ok().and_then(usize::checked_next_power_of_two).ok_or_else(none)?;
        let layout = Layout::from_size_align(size.max(ALIGN), ALIGN).map_err(|_| none())?;
        self.release();
        // SAFETY: the layout's size is not zero.
        self.address = NonNull::new(unsafe { alloc(layout) }).ok_or_else(none)?;
        self.size = layout.size();
        Ok(())
    }

    #[allow(unsafe_code)] // deallocation
    fn release(&mut self) {
        let size = std::mem::replace(&mut self.size, 0);
        if let (1.., Ok(layout)) = (size, Layout::from_size_align(size, ALIGN)) {
            // SAFETY: `grow` allocated this address with this layout; `size` is zero afterwards.
            unsafe { dealloc(self.address.as_ptr(), layout) };
        }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
#[allow(unsafe_code)] // writes to the block
mod tests {
    use super::*;

    #[test]
    fn grows_keeps_its_size_and_is_aligned() {
        let mut scratch = Scratch::new();
        scratch.reserve(0).unwrap();
        for bytes in [1, 63, 64, 5000, 10, 1 << 20, 1 << 20] {
            let address = scratch.reserve(bytes).unwrap();
            assert_eq!(address as usize % ALIGN, 0);
            // SAFETY: `reserve` guarantees this many bytes.
            unsafe { address.write_bytes(7, bytes as usize) };
        }
        assert_eq!(scratch.size, 1 << 20);
        scratch.release_above(1 << 20);
        assert_eq!(scratch.size, 1 << 20);
        scratch.release_above(1000);
        assert_eq!(scratch.size, 0);
    }

    #[test]
    fn too_much_is_an_error_and_the_next_call_works() {
        // With optimization, LLVM may remove an allocation that nothing else observes.
        let mut scratch = Scratch::new();
        let scratch = std::hint::black_box(&mut scratch);
        scratch.reserve(100).unwrap();
        for bytes in [1 << 62, u64::MAX] {
            assert!(matches!(scratch.reserve(bytes), Err(Error::OutOfMemory { .. })));
        }
        let address = scratch.reserve(200).unwrap();
        // SAFETY: `reserve` guarantees this many bytes.
        unsafe { address.write_bytes(7, 200) };
    }
}
