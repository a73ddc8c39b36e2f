//! Synchronization and sampling: events, fences, counter sample buffers.

pub mod counter;
pub mod event;
pub mod fence;
