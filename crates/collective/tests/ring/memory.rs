//! Host memory for calls.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use elinvar_driver::{Collective, CollectiveCall, Memory, MemorySlice, Result, Scalar, Storage};

/// Words on the heap, which the host sees or does not see.
pub struct Words {
    words: Box<[std::cell::UnsafeCell<u64>]>,
    len: u64,
    storage: Storage,
}

#[allow(unsafe_code)] // the tests order their accesses
// SAFETY: the accesses are unsafe functions.
unsafe impl Send for Words {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Words {}

#[allow(unsafe_code)] // copies through addresses
// SAFETY: the words stay where they are.
unsafe impl Memory for Words {
    fn len(&self) -> u64 {
        self.len
    }

    fn storage(&self) -> Storage {
        self.storage
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        (self.storage == Storage::Shared).then(|| NonNull::from(&*self.words).cast())
    }

    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        let from = self.words.as_ptr().cast::<u8>().wrapping_add(offset as usize);
        // SAFETY: in range; guaranteed by the caller.
        unsafe { std::ptr::copy_nonoverlapping(from, target.as_mut_ptr(), target.len()) };
        Ok(())
    }

    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        let to = self.words.as_ptr().cast::<u8>().wrapping_add(offset as usize).cast_mut();
        // SAFETY: in range; guaranteed by the caller.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), to, source.len()) };
        Ok(())
    }

    unsafe fn clear(&self, len: u64) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.write(0, &vec![0; len as usize]) }
    }
}

/// A slice of memory with these bytes; it does not begin at an aligned address.
pub fn slice(bytes: &[u8], storage: Storage) -> MemorySlice {
    const OFFSET: usize = 1;
    let len = bytes.len() + OFFSET;
    let words = (0..len.div_ceil(8)).map(|_| std::cell::UnsafeCell::new(0)).collect();
    let memory = Arc::new(Words { words, len: len as u64, storage });
    #[allow(unsafe_code)] // nothing else has it
    // SAFETY: in range.
    unsafe { memory.write(OFFSET as u64, bytes) }.unwrap();
    MemorySlice { memory, offset: OFFSET as u64, len: bytes.len() as u64 }
}

/// The bytes of a slice.
#[allow(unsafe_code)] // reads memory that nothing writes
pub fn bytes(slice: &MemorySlice) -> Vec<u8> {
    let mut bytes = vec![0; slice.len as usize];
    // SAFETY: in range, and the calls have ended.
    unsafe { slice.memory.read(slice.offset, &mut bytes) }.unwrap();
    bytes
}

/// A call with a source and a target of these sizes.
pub fn call(
    collective: Collective,
    element: Scalar,
    count: usize,
    source: Option<MemorySlice>,
    target: Option<MemorySlice>,
) -> CollectiveCall {
    let (element_size, element) = (element.size(), Some(element));
    CollectiveCall {
        collective,
        element,
        element_size,
        count: count as u64,
        source,
        target,
        timeout: Duration::from_secs(60),
    }
}
