//! [`Stamp`]: where a device notes a time while it works.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A time of a device's clock, in nanoseconds, or none yet.
#[derive(Default)]
pub struct Stamp {
    /// One more than the time; 0 for none.
    noted: AtomicU64,
}

impl Stamp {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Note a time, in place of any before.
    pub fn set(&self, ns: u64) {
        self.noted.store(ns.saturating_add(1), Ordering::Release);
    }

    /// Forget the time.
    pub fn clear(&self) {
        self.noted.store(0, Ordering::Release);
    }

    /// The time that was noted last.
    pub fn ns(&self) -> Option<u64> {
        self.noted.load(Ordering::Acquire).checked_sub(1)
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stamp({:?})", self.ns())
    }
}
