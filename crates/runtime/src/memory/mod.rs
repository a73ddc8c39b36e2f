//! Memory: buffers, slices and maps, the pool of blocks, and the usage records of allocations.

pub(crate) mod buffer;
pub(crate) mod host_access;
pub(crate) mod map;
pub(crate) mod memory_effects;
pub(crate) mod object_pool;
pub(crate) mod operands;
pub(crate) mod pool;
pub(crate) mod slice;
pub(crate) mod span;
pub(crate) mod usage;
