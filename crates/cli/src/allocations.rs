//! The program's allocator: the system's, which counts allocations while a benchmark asks for it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn note() {
    if COUNTS.load(Ordering::Relaxed) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

#[allow(unsafe_code)] // an allocator
// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: guaranteed by the caller.
        unsafe { System.realloc(address, layout, size) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of allocations of all threads during `run`, which is not called within itself.
pub fn count<T>(run: impl FnOnce() -> T) -> (u64, T) {
    ALLOCATIONS.store(0, Ordering::Relaxed);
    COUNTS.store(true, Ordering::Relaxed);
    let result = run();
    COUNTS.store(false, Ordering::Relaxed);
    (ALLOCATIONS.load(Ordering::Relaxed), result)
}

#[cfg(test)]
mod tests {
    #[test]
    fn allocations_are_counted() {
        let (count, boxes) = super::count(|| (0..100).map(Box::new).collect::<Vec<Box<u32>>>());
        assert!(count >= 101, "{count} allocations of {} boxes and their list", boxes.len());
    }
}
