//! Reductions, scans, histograms, softmax.

use elinvar::kernel::*;

/// Sums of each threadgroup, by halving.
#[elinvar::kernel]
pub fn reduce(
    x: &[f32],
    sums: &mut [f32],
    #[threadgroup] tile: &mut [f32; 256],
    #[thread_position_in_grid] i: usize,
    #[thread_index_in_threadgroup] t: usize,
    #[threadgroup_position_in_grid] group: usize,
) {
    tile[t] = if i < x.len() { x[i] } else { 0.0 };
    threadgroup_barrier(mem_flags::mem_threadgroup);
    let mut half = 128;
    while half > 0 {
        if t < half {
            tile[t] += tile[t + half];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        half /= 2;
    }
    if t == 0 {
        sums[group] = tile[0];
    }
}

/// Sums of each simdgroup.
#[elinvar::kernel]
pub fn simd_reduce(
    x: &[u32],
    sums: &mut [u32],
    #[thread_position_in_grid] i: usize,
    #[thread_index_in_simdgroup] lane: u32,
) {
    let sum = simd_sum(x[i]);
    let most = simd_max(x[i]);
    let below = simd_prefix_exclusive_sum(x[i]);
    let left = simd_shuffle_up(x[i], 1);
    sums[4 * i] = sum;
    sums[4 * i + 1] = most;
    sums[4 * i + 2] = below;
    sums[4 * i + 3] = if lane == 0 { 0 } else { left };
}

/// Inclusive scan of each threadgroup (Hillis and Steele).
#[elinvar::kernel]
pub fn scan(
    x: &mut [u32],
    #[threadgroup] tile: &mut [[u32; 128]; 2],
    #[thread_position_in_grid] i: usize,
    #[thread_index_in_threadgroup] t: usize,
) {
    let mut from = 0;
    tile[0][t] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    let mut step = 1;
    while step < 128 {
        let to = 1 - from;
        tile[to][t] =
            if t >= step { tile[from][t].wrapping_add(tile[from][t - step]) } else { tile[from][t] };
        threadgroup_barrier(mem_flags::mem_threadgroup);
        from = to;
        step <<= 1;
    }
    x[i] = tile[from][t];
}

/// Counts of bytes, first in threadgroup memory.
#[elinvar::kernel]
pub fn histogram(
    bytes: &[u8],
    counts: &[AtomicU32],
    #[threadgroup] local: &[AtomicU32; 256],
    #[thread_position_in_grid] i: usize,
    #[thread_index_in_threadgroup] t: usize,
    #[threads_per_grid] threads: usize,
) {
    local[t].store(0, Ordering::Relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    let mut at = i;
    while at < bytes.len() {
        local[bytes[at] as usize].fetch_add(1, Ordering::Relaxed);
        at += threads;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    counts[t].fetch_add(local[t].load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Softmax of rows, one row a thread.
#[elinvar::kernel]
pub fn softmax(x: &[f32], y: &mut [f32], columns: u32, #[thread_position_in_grid] row: usize) {
    let columns = columns as usize;
    let start = row * columns;
    let mut most = f32::NEG_INFINITY;
    for k in 0..columns {
        most = most.max(x[start + k]);
    }
    let mut sum = 0.0;
    for k in 0..columns {
        sum += (x[start + k] - most).exp();
    }
    for k in 0..columns {
        y[start + k] = (x[start + k] - most).exp() / sum;
    }
}

/// The sum, the least and the largest value of a part, as a tuple.
#[elinvar::device]
fn summary(x: &[i32], from: usize, to: usize) -> (i32, i32, i32) {
    let (mut sum, mut low, mut high) = (0i32, i32::MAX, i32::MIN);
    for k in from..to {
        let value = x[k];
        sum = sum.wrapping_add(value);
        low = low.min(value);
        high = high.max(value);
    }
    (sum, low, high)
}

/// Statistics of chunks of eight.
#[elinvar::kernel]
pub fn chunks(x: &[i32], out: &mut [i32], #[thread_position_in_grid] i: usize) {
    let (sum, low, high) = summary(x, i * 8, ((i + 1) * 8).min(x.len()));
    out[3 * i] = sum;
    out[3 * i + 1] = low;
    out[3 * i + 2] = high;
}

/// Compacts values above a limit; returns where each went.
#[elinvar::kernel]
pub fn compact(
    x: &[f32],
    limit: f32,
    out: &mut [f32],
    count: &[AtomicU32],
    #[thread_position_in_grid] i: usize,
) {
    if x[i] > limit {
        let at = count[0].fetch_add(1, Ordering::Relaxed);
        out[at as usize] = x[i];
    }
}
