//! The baselines: the suites' work in plain safe Rust, by hand, on scoped threads.
//!
//! Each inner function is compiled for several vector widths, and the widest that the processor has is
//! taken. Loops are in the order that suits the caches; there is no blocking and no packing.

use std::time::Instant;

use multiversion::multiversion;

use crate::report::median;

/// The time of one call: the median over `rounds` of the mean over `calls`, after one round to warm up.
pub(super) fn time(rounds: usize, calls: usize, mut run: impl FnMut()) -> u64 {
    let mut times = Vec::new();
    for round in 0..=rounds {
        let start = Instant::now();
        (0..calls).for_each(|_| run());
        if round > 0 {
            times.push(start.elapsed().as_nanos() as u64 / calls as u64);
        }
    }
    median(times)
}

pub(super) fn vector_add(a: &[f32], b: &[f32], out: &mut [f32], threads: usize) {
    let part = out.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for ((a, b), out) in a.chunks(part).zip(b.chunks(part)).zip(out.chunks_mut(part)) {
            scope.spawn(move || add(a, b, out));
        }
    });
}

#[multiversion(targets = "simd")]
fn add(a: &[f32], b: &[f32], out: &mut [f32]) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = a + b;
    }
}

/// `c = a * b`, all `n` by `n`, row-major.
pub(super) fn matmul(a: &[f32], b: &[f32], c: &mut [f32], n: usize, threads: usize) {
    let part = n.div_ceil(threads).max(1) * n;
    std::thread::scope(|scope| {
        for (a, c) in a.chunks(part).zip(c.chunks_mut(part)) {
            scope.spawn(move || multiply(a, b, c, n));
        }
    });
}

#[multiversion(targets = "simd")]
fn multiply(a: &[f32], b: &[f32], c: &mut [f32], n: usize) {
    c.fill(0.0);
    for (a, c) in a.chunks_exact(n).zip(c.chunks_exact_mut(n)) {
        for (factor, b) in a.iter().zip(b.chunks_exact(n)) {
            for (c, b) in c.iter_mut().zip(b) {
                *c += factor * b;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baselines_are_right_on_any_number_of_threads() {
        for threads in [1, 2, 3, 100] {
            let mut sum = vec![0.0; 5];
            vector_add(&[1.0, 2.0, 3.0, 4.0, 5.0], &[1.0; 5], &mut sum, threads);
            assert_eq!(sum, [2.0, 3.0, 4.0, 5.0, 6.0]);
            let mut product = vec![9.0; 4];
            matmul(&[1.0, 2.0, 3.0, 4.0], &[0.0, 1.0, 1.0, 0.0], &mut product, 2, threads);
            assert_eq!(product, [2.0, 1.0, 4.0, 3.0]);
        }
    }
}
