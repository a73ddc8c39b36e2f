//! Sorting.

use elinvar::kernel::*;

/// One exchange of a bitonic sort.
#[elinvar::kernel]
pub fn bitonic(x: &mut [i32], block: u32, distance: u32, #[thread_position_in_grid] i: u32) {
    let other = i ^ distance;
    if other > i && (other as usize) < x.len() {
        let (a, b) = (x[i as usize], x[other as usize]);
        if (a > b) == (i & block == 0) {
            x[i as usize] = b;
            x[other as usize] = a;
        }
    }
}

/// A stable pass of a radix sort by four bits, for one threadgroup of 64 threads: `shift` is the digit's place.
#[elinvar::kernel]
pub fn radix_pass(
    keys: &[u32],
    sorted: &mut [u32],
    shift: u32,
    #[threadgroup] counts: &mut [[u32; 64]; 16],
    #[threadgroup] starts: &mut [u32; 16],
    #[thread_index_in_threadgroup] t: usize,
) {
    let each = keys.len() / 64;
    let digit = |key: u32| ((key >> shift) & 15) as usize;
    for d in 0..16 {
        counts[d][t] = 0;
    }
    for k in t * each..(t + 1) * each {
        counts[digit(keys[k])][t] += 1;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // The first sixteen threads scan one digit each.
    if t < 16 {
        let mut sum = 0;
        for k in 0..64 {
            let count = counts[t][k];
            counts[t][k] = sum;
            sum += count;
        }
        starts[t] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if t == 0 {
        let mut sum = 0;
        for d in 0..16 {
            let count = starts[d];
            starts[d] = sum;
            sum += count;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for k in t * each..(t + 1) * each {
        let d = digit(keys[k]);
        sorted[(starts[d] + counts[d][t]) as usize] = keys[k];
        counts[d][t] += 1;
    }
}

/// The position of each needle in sorted `x`, by binary search: the first that is not less.
#[elinvar::kernel]
pub fn lower_bound(x: &[i64], needles: &[i64], found: &mut [u32], #[thread_position_in_grid] i: usize) {
    let (mut low, mut high) = (0, x.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if x[middle] < needles[i] {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    found[i] = low as u32;
}
