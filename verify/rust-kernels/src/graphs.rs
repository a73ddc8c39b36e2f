//! Graphs, and searches with labels.

use elinvar::kernel::*;

/// A level of a breadth-first search: vertices at `level` give their neighbors the next.
#[elinvar::kernel]
pub fn bfs(
    starts: &[u32],
    neighbors: &[u32],
    levels: &[AtomicU32],
    changed: &[AtomicU32],
    level: u32,
    #[thread_position_in_grid] vertex: usize,
) {
    if levels[vertex].load(Ordering::Relaxed) != level {
        return;
    }
    for edge in starts[vertex]..starts[vertex + 1] {
        let other = neighbors[edge as usize] as usize;
        if levels[other].fetch_min(level + 1, Ordering::Relaxed) > level + 1 {
            changed[0].store(1, Ordering::Relaxed);
        }
    }
}

/// The first pair `a < b` below `most` with `a·a + b·b = n`, or zeros.
#[elinvar::kernel]
pub fn two_squares(n: &[u32], pairs: &mut [u32], most: u32, #[thread_position_in_grid] i: usize) {
    let mut found = (0, 0);
    'outer: for a in 1..most {
        if a * a > n[i] {
            break;
        }
        for b in a..most {
            let sum = a * a + b * b;
            if sum > n[i] {
                continue 'outer;
            }
            if sum == n[i] {
                found = (a, b);
                break 'outer;
            }
        }
    }
    pairs[2 * i] = found.0;
    pairs[2 * i + 1] = found.1;
}

/// Steps of the Collatz sequence, with a value of a `loop`.
#[elinvar::kernel]
pub fn collatz(x: &[u64], steps: &mut [u32], #[thread_position_in_grid] i: usize) {
    let mut value = x[i];
    let mut count = 0u32;
    steps[i] = loop {
        if value <= 1 {
            break count;
        }
        value = if value % 2 == 0 { value / 2 } else { 3 * value + 1 };
        count += 1;
    };
}
