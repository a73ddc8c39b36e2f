//! Atomics and futexes in shared memory.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::thread::futex;

/// Sleeps if the word is `expected`, until woken. May wake spuriously.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32) {
    let _woken = futex::wait(word, futex::Flags::empty(), expected, None);
}

/// Wakes all threads that sleep on the word.
pub(crate) fn futex_wake(word: &AtomicU32) {
    let _woken = futex::wake(word, futex::Flags::empty(), u32::MAX);
}
