//! Fails to compile: compare exchange.

use std::sync::atomic::{AtomicU32, Ordering};

#[elinvar::kernel]
fn k(x: &[AtomicU32], #[thread_position_in_grid] i: usize) {
    let _ = x[i].compare_exchange(1, 2, Ordering::Relaxed, Ordering::Relaxed);
}

fn main() {}
