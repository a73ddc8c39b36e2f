//! Fails to compile: ordering.

use std::sync::atomic::{AtomicU32, Ordering};

#[elinvar::kernel]
fn k(x: &[AtomicU32], #[thread_position_in_grid] i: usize) {
    x[i].fetch_add(1, Ordering::SeqCst);
}

fn main() {}
