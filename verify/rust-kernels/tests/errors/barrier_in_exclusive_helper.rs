//! Fails to compile: a helper function with a `&mut` parameter waits for other threads.

use elinvar::kernel::*;

#[elinvar::device]
fn wait() {
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

#[elinvar::device]
fn store(tile: &mut [f32; 64], i: usize) {
    tile[i] = 1.0;
    wait();
}

#[elinvar::kernel]
fn k(x: &mut [f32], #[threadgroup] tile: &mut [f32; 64], #[thread_index_in_threadgroup] i: usize) {
    store(tile, i);
    x[i] = tile[63 - i];
}

fn main() {}
