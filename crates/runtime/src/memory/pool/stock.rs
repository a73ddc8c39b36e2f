//! [`Stock`]: a shelf behind its lock, and the steps of a request.
//!
//! The driver is called, and blocks are dropped, without the lock. Blocks on their way back to the driver are counted, so that a
//! request for which the driver has no memory waits for them instead of failing. The stock is generic over the block, so that a
//! model can run every interleaving of its steps.

use std::time::Instant;

use elinvar_driver::{Error, Result};

use super::shelf::{Shelf, Taken};
use super::stats::{PoolLimits, PoolStats, Pressure};
use crate::locks::{Condvar, Mutex};

/// Result of [`Stock::take`].
pub(crate) struct Given<B> {
    pub(crate) block: B,
    /// Size of the block in bytes, to be passed when it is returned.
    pub(crate) size: u64,
    /// Whether the block was used before.
    pub(crate) used: bool,
}

/// Idle blocks of kind `K` and the counters of all blocks.
pub(crate) struct Stock<K, B> {
    state: Mutex<State<K, B>>,
    /// Notified when blocks have been freed.
    back: Condvar,
}

struct State<K, B> {
    shelf: Shelf<K, B>,
    /// Blocks that are off the shelf and being freed.
    leaving: usize,
    /// Number of blocks freed so far.
    left: u64,
}

impl<K: Copy + Ord, B> Stock<K, B> {
    pub(crate) fn new(limits: PoolLimits) -> Self {
        let state = State { shelf: Shelf::new(limits), leaving: 0, left: 0 };
        Self { state: Mutex::new(state), back: Condvar::default() }
    }

    /// Changes the shelf; drops the blocks that leave it without the lock.
    fn change<R>(&self, change: impl FnOnce(&mut Shelf<K, B>, &mut Vec<B>) -> R) -> R {
        let mut gone = Vec::new();
        let mut state = self.state.lock();
        let result = change(&mut state.shelf, &mut gone);
        state.leaving += gone.len();
        drop(state);
        if !gone.is_empty() {
            let count = gone.len();
            drop(gone);
            let mut state = self.state.lock();
            state.leaving -= count;
            state.left += count as u64;
            drop(state);
            self.back.notify_all();
        }
        result
    }

    /// Takes a block for a request of `bytes`: an idle one, or one of `size` bytes allocated by `make`. If that is out of memory,
    /// frees idle blocks, waits for blocks that are being freed, and calls it again.
    ///
    /// # Errors
    /// `OutOfMemory` if the budget would be exceeded; errors of `make`.
    pub(crate) fn take(
        &self,
        kind: K,
        bytes: u64,
        size: u64,
        make: impl Fn() -> Result<B>,
    ) -> Result<Given<B>> {
        match self.change(|shelf, gone| shelf.take(kind, bytes, size, gone)) {
            Taken::Block(block, size) => Ok(Given { block, size, used: true }),
            Taken::Full(available) => Err(Error::OutOfMemory { requested: bytes, available }),
            Taken::Room => match self.made(make) {
                Ok(block) => {
                    self.state.lock().shelf.made(kind, bytes, size);
                    Ok(Given { block, size, used: false })
                }
                Err(error) => {
                    self.state.lock().shelf.refuse(size);
                    Err(match error {
                        Error::OutOfMemory { available, .. } => {
                            Error::OutOfMemory { requested: bytes, available }
                        }
                        error => error,
                    })
                }
            },
        }
    }

    /// Calls `make`, again as long as memory has been freed in the meantime.
    fn made(&self, make: impl Fn() -> Result<B>) -> Result<B> {
        loop {
            let left = self.state.lock().left;
            match make() {
                Err(Error::OutOfMemory { .. }) if self.trim(0) > 0 || self.has_come_back(left) => {}
                made => return made,
            }
        }
    }

    /// Whether more than `left` blocks have been freed so far; waits for those that are being freed.
    fn has_come_back(&self, left: u64) -> bool {
        let mut state = self.state.lock();
        while state.left == left && state.leaving > 0 {
            state = self.back.wait(state);
        }
        state.left != left
    }

    /// Returns a block that [`Stock::take`] returned for a request of `bytes`.
    pub(crate) fn put(&self, kind: K, bytes: u64, size: u64, block: B) {
        self.change(|shelf, gone| shelf.put(kind, bytes, size, block, Instant::now(), gone));
    }

    /// Counts a block that [`Stock::take`] returned for a request of `bytes` as freed.
    pub(crate) fn discard(&self, kind: K, bytes: u64, size: u64) {
        self.state.lock().shelf.discard(kind, bytes, size);
    }

    /// Frees idle blocks, least recently used first, until at most `keep` bytes are left. Returns the number of bytes freed.
    pub(crate) fn trim(&self, keep: u64) -> u64 {
        self.change(|shelf, gone| shelf.shrink(keep, gone))
    }

    /// Frees the blocks that became idle at or before `then`.
    pub(crate) fn drop_idle_since(&self, then: Instant) {
        self.change(|shelf, gone| shelf.drop_idle_since(then, gone));
    }

    pub(crate) fn stats(&self) -> PoolStats {
        self.state.lock().shelf.stats()
    }

    /// `live_bytes` and `idle_bytes` of the statistics.
    pub(crate) fn live_and_idle(&self) -> (u64, u64) {
        self.state.lock().shelf.live_and_idle()
    }

    /// Maximum number of blocks of each kind and size in use at a time.
    pub(crate) fn most_given(&self) -> Vec<(K, u64, u64)> {
        self.state.lock().shelf.most_given()
    }

    pub(crate) fn limits(&self) -> PoolLimits {
        self.state.lock().shelf.limits
    }

    pub(crate) fn set_limits(&self, limits: PoolLimits) {
        self.change(|shelf, gone| {
            shelf.limits = limits;
            shelf.shrink(limits.idle_bytes, gone);
        });
    }

    /// Sets the pressure reported by the platform.
    pub(crate) fn notice(&self, pressure: Pressure) {
        self.change(|shelf, gone| shelf.notice(pressure, gone));
    }

    /// Sets the pressure of the system.
    pub(crate) fn set_outside(&self, pressure: Pressure) {
        self.state.lock().shelf.outside = pressure;
    }

    pub(crate) fn wrap(&self, bytes: u64) {
        self.state.lock().shelf.wrap(bytes);
    }

    pub(crate) fn unwrap(&self, bytes: u64) {
        self.state.lock().shelf.unwrap(bytes);
    }
}
