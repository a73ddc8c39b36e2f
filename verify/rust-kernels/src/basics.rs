//! The first kernels that anybody writes.

use elinvar::kernel::*;

/// `y = a * x + y`.
#[elinvar::kernel]
pub fn saxpy(x: &[f32], y: &mut [f32], a: f32, #[thread_position_in_grid] i: usize) {
    if i < y.len() {
        y[i] = a.mul_add(x[i], y[i]);
    }
}

/// The line of `saxpy` that indexes.
pub fn saxpy_line() -> u32 {
    line!() - 6
}

/// Reverses each threadgroup's part.
#[elinvar::kernel]
pub fn reverse(
    x: &mut [u32],
    #[threadgroup] tile: &mut [u32; 64],
    #[thread_position_in_grid] i: usize,
    #[thread_index_in_threadgroup] t: usize,
    #[threads_per_threadgroup] count: usize,
) {
    tile[t] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x[i] = tile[count - 1 - t];
}

/// One more than `x`, clamped.
#[elinvar::device]
pub fn bump(x: i32, limit: i32) -> i32 {
    let next = x + STEP;
    if next > limit { limit } else { next }
}

#[elinvar::device]
const STEP: i32 = 1;

/// Counts.
#[elinvar::kernel]
pub fn bumps(x: &mut [i32], limit: i32, #[thread_position_in_grid] i: usize) {
    let mut k = 0;
    while k < 3 {
        x[i] = bump(x[i], limit);
        k += 1;
    }
}

/// Generic over the type and a count.
#[elinvar::kernel]
pub fn powers<T: Number, const N: usize>(x: &mut [T], factor: T, #[thread_position_in_grid] i: usize) {
    let mut value = x[i];
    for _ in 0..N {
        value = value * factor;
    }
    x[i] = value;
}
