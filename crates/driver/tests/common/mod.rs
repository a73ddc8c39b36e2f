//! Memory for tests that look at what is said of it.
#![allow(unsafe_code)] // implements an unsafe trait

use std::ptr::NonNull;

use elinvar_driver::{Error, Memory, Result, Storage};

/// Memory of a size, without bytes: a check looks at sizes and identities only.
pub struct Counted(pub u64);

// SAFETY: it gives no address.
unsafe impl Memory for Counted {
    fn len(&self) -> u64 {
        self.0
    }

    fn storage(&self) -> Storage {
        Storage::Private
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        None
    }

    unsafe fn read(&self, _offset: u64, _target: &mut [u8]) -> Result<()> {
        Err(Error::unsupported("there are no bytes"))
    }

    unsafe fn write(&self, _offset: u64, _source: &[u8]) -> Result<()> {
        Err(Error::unsupported("there are no bytes"))
    }

    unsafe fn clear(&self, _len: u64) -> Result<()> {
        Err(Error::unsupported("there are no bytes"))
    }
}
