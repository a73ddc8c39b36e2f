//! Memory: buffers and what the host does with them, the pool of blocks, and the accounts of who uses an allocation.

pub(crate) mod buffer;
pub(crate) mod host_access;
pub(crate) mod map;
pub(crate) mod object_pool;
pub(crate) mod operands;
pub(crate) mod pool;
pub(crate) mod slice;
pub(crate) mod span;
pub(crate) mod touched;
pub(crate) mod usage;
