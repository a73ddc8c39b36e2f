//! [`Busy`]: what threads of this library have still to do for a program, so that a test can wait until they keep nothing alive.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// A count of things to do.
pub struct Busy {
    count: Mutex<usize>,
    changed: Condvar,
}

/// Of all threads: command buffers that are committed and not let go of, and work of dispatch queues.
pub static BUSY: Busy = Busy { count: Mutex::new(0), changed: Condvar::new() };

impl Busy {
    /// One more.
    pub fn begin(&self) {
        *self.count.lock() += 1;
    }

    /// One is done, and what it used is let go of.
    pub fn end(&self) {
        *self.count.lock() -= 1;
        self.changed.notify_all();
    }
}

/// Wait until no thread of a command queue or dispatch queue has anything to do, handlers have returned, and nothing is kept
/// alive by one, so that objects can be counted. `false` when that takes longer.
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
