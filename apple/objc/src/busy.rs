//! [`Busy`]: counts pending work of the library's threads, so that a test can wait until they keep nothing alive.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// A counter of pending work.
pub struct Busy {
    count: Mutex<usize>,
    changed: Condvar,
}

/// For all threads: committed command buffers that have not been released, and tasks of dispatch queues.
pub static BUSY: Busy = Busy { count: Mutex::new(0), changed: Condvar::new() };

impl Busy {
    /// Adds one.
    pub fn begin(&self) {
        *self.count.lock() += 1;
    }

    /// Removes one, after its resources were released.
    pub fn end(&self) {
        *self.count.lock() -= 1;
        self.changed.notify_all();
    }
}

/// Waits until no command queue or dispatch queue has pending work, handlers have returned, and nothing is kept alive by them, so that
/// objects can be counted. Returns `false` on timeout.
#[unsafe(no_mangle)]
extern "C" fn elinvar_apple_settle(milliseconds: u64) -> bool {
    let end = Instant::now() + Duration::from_millis(milliseconds);
    let mut count = BUSY.count.lock();
    while *count > 0 {
        if BUSY.changed.wait_until(&mut count, end).timed_out() {
            return *count == 0;
        }
    }
    true
}
