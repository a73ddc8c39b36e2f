//! [`Span`]: a byte range of an allocation, and the host's access to it.
//!
//! The typed buffers and slices are implemented by the operations here, in bytes. A span is within its allocation by
//! construction. Copying bytes is `unsafe` in the driver's contract because other code may use the memory; the usage records in
//! [`crate::memory::usage`] make it safe.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use elinvar_driver::{Error, MemorySlice, Result};

use crate::Device;
use crate::memory::operands::no_address;
use crate::memory::pool::Block;
use crate::memory::usage::{Access, Storage};

/// Maximum number of bytes that a fill writes at a time.
const FILL_CHUNK: usize = 64 * 1024;

/// A range of bytes of an allocation.
#[derive(Clone)]
pub(crate) struct Span {
    pub(crate) storage: Arc<Storage>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

#[allow(unsafe_code)] // copies bytes of memory that the device may use, under the usage record's lock
impl Span {
    pub(crate) fn whole(device: Device, block: Block) -> Self {
        let len = block.bytes;
        let storage = Arc::new(Storage::new(device, block));
        storage.device.recovery().register(&storage);
        Self { storage, offset: 0, len }
    }

    /// The elements of `range`, each of `size` bytes.
    pub(crate) fn slice(&self, range: &Range<usize>, size: usize) -> Result<Self> {
        let elements = self.len / size as u64;
        if range.start > range.end || range.end as u64 > elements {
            let (start, end) = (range.start, range.end);
            return Err(Error::invalid(format!("slice {start}..{end} of a buffer of {elements} elements")));
        }
        let offset = self.offset + (range.start * size) as u64;
        Ok(Self { storage: self.storage.clone(), offset, len: (range.len() * size) as u64 })
    }

    pub(crate) fn covers_storage(&self) -> bool {
        self.len == self.storage.block.bytes
    }

    pub(crate) fn memory_slice(&self) -> MemorySlice {
        MemorySlice { memory: self.storage.block.memory.clone(), offset: self.offset, len: self.len }
    }

    /// Device address of the first byte.
    pub(crate) fn gpu_address(&self) -> Result<u64> {
        if self.storage.block.is_placeholder() {
            return Err(Error::unsupported(
                "a transient of a graph has no device address: its location can differ between runs",
            ));
        }
        let base = self.storage.block.memory.gpu_address();
        base.map(|base| base + self.offset).ok_or_else(|| no_address(&self.storage.device))
    }

    /// Copies the bytes to `target`.
    pub(crate) fn read(&self, target: &mut [u8]) -> Result<()> {
        self.expect_len("read", target.len())?;
        let record = self.storage.host(Access::Read, "read")?;
        record.expect_written()?;
        // SAFETY: the span is within the memory and as long as `target`. No work that writes is in flight,
        // none can begin and no other host access runs while the record's lock is held.
        unsafe { self.storage.block.memory.read(self.offset, target) }?;
        self.storage.device.counters().read.fetch_add(target.len() as u64, Ordering::Relaxed);
        self.storage.expect_content()
    }

    /// Copies the bytes of `source`.
    pub(crate) fn write(&self, source: &[u8]) -> Result<()> {
        self.expect_len("write", source.len())?;
        self.write_pieces("write", std::iter::once(source))
    }

    /// Repeats `pattern`, whose length divides the span's.
    pub(crate) fn fill(&self, pattern: &[u8]) -> Result<()> {
        let chunk = pattern.repeat((FILL_CHUNK / pattern.len()).max(1));
        let full = self.len / chunk.len() as u64;
        let rest = (self.len % chunk.len() as u64) as usize;
        let pieces = (0..full).map(|_| &chunk[..]).chain(std::iter::once(&chunk[..rest]));
        self.write_pieces("fill", pieces)
    }

    fn write_pieces<'a>(&self, operation: &str, pieces: impl Iterator<Item = &'a [u8]>) -> Result<()> {
        let mut record = self.storage.host(Access::Write, operation)?;
        let mut offset = self.offset;
        for piece in pieces {
            // SAFETY: the pieces follow one another within the span, which is within the memory. No work that
            // uses it is in flight, none can begin and no other host access runs while the lock is held; no
            // map guard lives, or `host` would have refused.
            unsafe { self.storage.block.memory.write(offset, piece) }?;
            offset += piece.len() as u64;
        }
        let written = &self.storage.device.counters().written;
        written.fetch_add(offset - self.offset, Ordering::Relaxed);
        if self.covers_storage() {
            record.written_in_full();
        }
        Ok(())
    }

    fn expect_len(&self, operation: &str, host: usize) -> Result<()> {
        if self.len == host as u64 {
            return Ok(());
        }
        Err(Error::invalid(format!("{operation}: the buffer has {} bytes, the host side {host}", self.len)))
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({:?})", self.offset..self.offset + self.len)
    }
}
