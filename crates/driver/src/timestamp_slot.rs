//! [`TimestampSlot`]: destination of a timestamp command.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A time on a device's clock in nanoseconds, or none yet. [`crate::Command::Timestamp`] writes it.
#[derive(Default)]
pub struct TimestampSlot {
    /// The time plus 1; 0 if there is none.
    ns_plus_1: AtomicU64,
}

impl TimestampSlot {
    /// Creates an empty slot.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores a time and replaces the previous one. `u64::MAX` is stored as `u64::MAX - 1`.
    pub fn set(&self, ns: u64) {
        self.ns_plus_1.store(ns.saturating_add(1), Ordering::Release);
    }

    /// Empties the slot.
    pub fn clear(&self) {
        self.ns_plus_1.store(0, Ordering::Release);
    }

    /// The stored time in nanoseconds, if any.
    pub fn ns(&self) -> Option<u64> {
        self.ns_plus_1.load(Ordering::Acquire).checked_sub(1)
    }
}

impl fmt::Debug for TimestampSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimestampSlot({:?})", self.ns())
    }
}
