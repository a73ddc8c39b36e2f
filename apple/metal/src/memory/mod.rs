//! Memory: buffers, heaps, the bytes behind both, and residency sets.

pub mod buffer;
pub mod heap;
pub mod residency;
pub mod store;
