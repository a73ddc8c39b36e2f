//! Heap allocations of a launch on the host: the driver makes none once everything has been used before.
//!
//! Ignored with debug assertions, because the bindings then verify the types of every message, and allocate for it. `make apple` runs the
//! test with bindings that do not.
#![cfg(any(target_vendor = "apple", elinvar_apple))]
#![allow(unsafe_code)] // counts allocations

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use elinvar_driver::{Binding, Command, Done, Queue, Storage};
use support::{devices, dispatch, memory, pipeline, whole, words};

struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(u64::from(COUNTS.load(Ordering::Relaxed)), Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Submits the commands `times` times, each time after the previous submission has ended.
fn run(queue: &dyn Queue, commands: &Arc<[Command]>, times: u64) {
    let ended = Arc::new((Mutex::new(0_u64), Condvar::new()));
    for time in 1..=times {
        let tell = ended.clone();
        let done = move |result: elinvar_driver::Result<_>| {
            assert!(result.is_ok());
            *tell.0.lock().unwrap() += 1;
            tell.1.notify_all();
        };
        queue.submit(commands.clone(), Done::new(done)).unwrap();
        drop(ended.1.wait_while(ended.0.lock().unwrap(), |count| *count < time).unwrap());
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "needs objc2 without debug assertions")]
fn a_launch_allocates_nothing_of_the_drivers_own() {
    const TIMES: u64 = 200;
    let body = "kernel void add_k(device uint* x [[buffer(0)]], constant uint& k [[buffer(1)]],
        uint i [[thread_position_in_grid]]) { x[i] += k; }";
    let device = devices().swap_remove(0);
    let (add, x) = (pipeline(&*device, body, "add_k"), memory(&*device, 400, Storage::Shared));
    let launch = || {
        let bindings = vec![Binding::Memory(whole(&x)), Binding::bytes(&1_u32.to_ne_bytes())];
        dispatch(&add, bindings, 100, 50)
    };
    let commands: Arc<[Command]> =
        [launch(), launch(), Command::Fill { target: support::slice(&x, 0, 4), pattern: vec![0] }].into();
    let queue = device.queue().unwrap();
    run(&*queue, &commands, 20);
    COUNTS.store(true, Ordering::Relaxed);
    run(&*queue, &commands, TIMES);
    COUNTS.store(false, Ordering::Relaxed);
    // The test allocates one box per callback and the counter; the rest is what each thread allocates once.
    let more = ALLOCATIONS.load(Ordering::Relaxed) - TIMES;
    assert!((1..10).contains(&more), "{more} allocations beyond one for each of {TIMES} callbacks");
    assert!(words(&x)[1..].iter().all(|word| *word == 2 * (TIMES + 20) as u32));
}
