//! Work on several processors.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::progress::Progress;

/// Number of processors.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The results for all items, in their order, computed by as many threads as there are processors. Shows progress.
pub fn in_parallel<I: Copy + Sync, T: Send>(items: &[I], work: impl Fn(I) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let progress = Progress::new(items.len());
    let threads = processors().min(items.len());
    let run = || {
        let mut done = Vec::new();
        while let Some((index, item)) = items.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((index, work(*item)));
            progress.end();
        }
        done
    };
    let mut all: Vec<(usize, T)> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let joined = started.into_iter().map(|thread| thread.join());
        joined.flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..100).collect();
        let squares: Vec<usize> = items.iter().map(|item| item * item).collect();
        assert_eq!(in_parallel(&items, |item| item * item), squares);
        assert_eq!(in_parallel(&[] as &[usize], |item| item), [0; 0]);
    }
}
