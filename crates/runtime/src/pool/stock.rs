//! [`Stock`]: a shelf behind its lock, and what a request does about it, step by step.
//!
//! The driver is called, and blocks are dropped, without the lock. It is generic over the block, so that a model can run
//! every interleaving of its steps.

use std::time::Instant;

use elinvar_driver::{Error, Result};

use super::shelf::{Shelf, Taken};
use super::stats::{PoolLimits, PoolStats, Pressure};
use crate::sync::Mutex;

/// What [`Stock::take`] gives.
pub(crate) struct Given<B> {
    pub(crate) block: B,
    /// Bytes of the block, to be named when it is put back.
    pub(crate) size: u64,
    /// Whether it held something before.
    pub(crate) used: bool,
}

/// Idle blocks of kind `K` and the counts of all blocks.
pub(crate) struct Stock<K, B> {
    shelf: Mutex<Shelf<K, B>>,
}

impl<K: Copy + Ord, B> Stock<K, B> {
    pub(crate) fn new(limits: PoolLimits) -> Self {
        Self { shelf: Mutex::new(Shelf::new(limits)) }
    }

    /// A block for a request of `bytes`: an idle one, or one of `size` bytes that `make` makes. When that is out of
    /// memory, what is idle goes and it is called once more.
    ///
    /// # Errors
    /// `OutOfMemory` when the budget does not allow it; what `make` answers.
    pub(crate) fn take(
        &self,
        kind: K,
        bytes: u64,
        size: u64,
        make: impl Fn() -> Result<B>,
    ) -> Result<Given<B>> {
        let mut gone = Vec::new();
        let taken = self.shelf.lock().take(kind, bytes, size, &mut gone);
        drop(gone);
        match taken {
            Taken::Block(block, size) => Ok(Given { block, size, used: true }),
            Taken::Full(available) => Err(Error::OutOfMemory { requested: bytes, available }),
            Taken::Room => {
                let made = make().or_else(|error| match error {
                    Error::OutOfMemory { .. } if self.trim(0) > 0 => make(),
                    error => Err(error),
                });
                let mut shelf = self.shelf.lock();
                match made {
                    Ok(block) => {
                        shelf.made(kind, bytes, size);
                        Ok(Given { block, size, used: false })
                    }
                    Err(error) => {
                        shelf.refuse(size);
                        Err(match error {
                            Error::OutOfMemory { available, .. } => {
                                Error::OutOfMemory { requested: bytes, available }
                            }
                            error => error,
                        })
                    }
                }
            }
        }
    }

    /// Put a block back that [`Stock::take`] gave for a request of `bytes`.
    pub(crate) fn put(&self, kind: K, bytes: u64, size: u64, block: B) {
        let mut gone = Vec::new();
        self.shelf.lock().put(kind, bytes, size, block, Instant::now(), &mut gone);
    }

    /// Count a block as gone that [`Stock::take`] gave for a request of `bytes`.
    pub(crate) fn discard(&self, kind: K, bytes: u64, size: u64) {
        self.shelf.lock().discard(kind, bytes, size);
    }

    /// Drop idle blocks, the longest idle first, until at most `keep` bytes are left; returns the bytes dropped.
    pub(crate) fn trim(&self, keep: u64) -> u64 {
        let mut gone = Vec::new();
        self.shelf.lock().shrink(keep, &mut gone)
    }

    /// Drop the blocks that were idle already at `then`.
    pub(crate) fn drop_idle_since(&self, then: Instant) {
        let mut gone = Vec::new();
        self.shelf.lock().drop_idle_since(then, &mut gone);
    }

    pub(crate) fn stats(&self) -> PoolStats {
        self.shelf.lock().stats()
    }

    /// The most blocks of each kind and size that ever were given out at a time.
    pub(crate) fn most_given(&self) -> Vec<(K, u64, u64)> {
        self.shelf.lock().most_given()
    }

    pub(crate) fn limits(&self) -> PoolLimits {
        self.shelf.lock().limits
    }

    pub(crate) fn set_limits(&self, limits: PoolLimits) {
        let mut gone = Vec::new();
        let mut shelf = self.shelf.lock();
        shelf.limits = limits;
        shelf.shrink(limits.idle_bytes, &mut gone);
    }

    /// As told by the platform, until the next time.
    pub(crate) fn notice(&self, pressure: Pressure) {
        let mut gone = Vec::new();
        self.shelf.lock().notice(pressure, &mut gone);
    }

    /// How short the system is of memory.
    pub(crate) fn set_outside(&self, pressure: Pressure) {
        self.shelf.lock().outside = pressure;
    }

    pub(crate) fn wrap(&self, bytes: u64) {
        self.shelf.lock().wrap(bytes);
    }

    pub(crate) fn unwrap(&self, bytes: u64) {
        self.shelf.lock().unwrap(bytes);
    }
}
