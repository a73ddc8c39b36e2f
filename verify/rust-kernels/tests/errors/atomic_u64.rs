//! Fails to compile: atomic u64.

use std::sync::atomic::{AtomicU64, Ordering};

#[elinvar::kernel]
fn k(x: &[AtomicU64], #[thread_position_in_grid] i: usize) {
    x[i].fetch_add(1, Ordering::Relaxed);
}

fn main() {}
