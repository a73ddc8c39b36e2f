//! [`Placeholder`]: stands for the memory of a transient until a plan places it.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use elinvar_driver::{Error, Memory, Result, Storage};

/// Memory without bytes. It is never passed to a driver: a plan replaces it by a range of its arena.
pub(super) struct Placeholder {
    /// Number of the graph that it belongs to.
    pub(super) graph: u64,
    pub(super) bytes: u64,
}

impl Placeholder {
    /// The graph of `memory`, if that is a placeholder.
    pub(super) fn graph_of(memory: &Arc<dyn Memory>) -> Option<u64> {
        let memory: &dyn Any = &**memory;
        memory.downcast_ref::<Self>().map(|placeholder| placeholder.graph)
    }
}

fn refused() -> Error {
    Error::invalid("a transient of a graph has memory only in runs of the graph")
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
