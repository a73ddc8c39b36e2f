//! Atomics in memory that two processes share, and sleeping at them.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::thread::futex;

/// Sleeps if the word is `expected`, until it is woken. May return without a cause.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32) {
    let _woken = futex::wait(word, futex::Flags::empty(), expected, None);
}

/// Wakes all that sleep at the word.
pub(crate) fn futex_wake(word: &AtomicU32) {
    let _woken = futex::wake(word, futex::Flags::empty(), u32::MAX);
}
