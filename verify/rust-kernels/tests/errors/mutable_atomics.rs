//! Fails to compile: mutable atomics.

use std::sync::atomic::AtomicU32;

#[elinvar::kernel]
fn k(x: &mut [AtomicU32], #[thread_position_in_grid] i: usize) {
    let _ = (x, i);
}

fn main() {}
