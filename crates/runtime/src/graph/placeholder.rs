//! [`Placeholder`]: what stands for the memory of a transient until a plan gives it a place.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use elinvar_driver::{Error, Memory, Result, Storage};

/// Memory without bytes. No driver ever sees it: a plan puts a range of its arena in its place.
pub(super) struct Placeholder {
    /// The graph that it belongs to.
    pub(super) graph: u64,
    pub(super) bytes: u64,
}

impl Placeholder {
    /// The graph of this memory, if it is a placeholder.
    pub(super) fn graph_of(memory: &Arc<dyn Memory>) -> Option<u64> {
        let memory: &dyn Any = &**memory;
        memory.downcast_ref::<Self>().map(|placeholder| placeholder.graph)
    }
}

fn refused() -> Error {
    Error::invalid("a transient of a graph has no bytes outside of its runs")
}

#[allow(unsafe_code)] // implements unsafe methods
// SAFETY: there is no address.
unsafe impl Memory for Placeholder {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn storage(&self) -> Storage {
        Storage::Private
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        None
    }

    unsafe fn read(&self, _offset: u64, _target: &mut [u8]) -> Result<()> {
        Err(refused())
    }

    unsafe fn write(&self, _offset: u64, _source: &[u8]) -> Result<()> {
        Err(refused())
    }

    unsafe fn clear(&self, _len: u64) -> Result<()> {
        Err(refused())
    }
}
