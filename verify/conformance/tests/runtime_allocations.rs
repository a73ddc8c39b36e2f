//! In the steady state a launch on an ordinary stream allocates nothing, neither on the calling thread nor on the driver's threads.
//!
//! One test for each device, one at a time, because allocations of all threads of the process are counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use elinvar::{Device, DeviceKind, Grid, Source};
use libtest_mimic::{Arguments, Trial};

struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static REPORTS: Cell<bool> = const { Cell::new(true) };
}

#[allow(unsafe_code)] // an allocator
// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            report();
        }
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

/// Prints a backtrace of the allocation if `ELINVAR_TEST_TRACE_ALLOCATIONS` is set.
fn report() {
    static IS_ASKED: AtomicBool = AtomicBool::new(false);
    if REPORTS.replace(false) {
        COUNTS.store(false, Ordering::Relaxed);
        if IS_ASKED.load(Ordering::Relaxed) || std::env::var_os("ELINVAR_TEST_TRACE_ALLOCATIONS").is_some() {
            IS_ASKED.store(true, Ordering::Relaxed);
            eprintln!("{}", std::backtrace::Backtrace::force_capture());
        }
        COUNTS.store(true, Ordering::Relaxed);
        REPORTS.set(true);
    }
}

/// Minimum number of allocations of `count` launches over ten rounds. The test waits for every `batch`th launch.
fn allocations(device: &Device, count: u32, batch: u32) -> u64 {
    let source = Source::named("runtime_cuda.metal", include_str!("runtime_cuda.metal"));
    let kernel = device.compile(source).unwrap().kernel("triple").unwrap();
    // A sampled submission keeps what was measured.
    device.sample_launches(None);
    let stream = device.stream().unwrap();
    let x = device.buffer_with_data(&[7_u32; 256]).unwrap();
    let mut y = device.buffer::<u32>(256).unwrap();
    let mut run = |count: u32| {
        for launch in 1..=count {
            #[allow(unsafe_code)] // launches a kernel without checks
            // SAFETY: each thread writes its element, which is within the buffer.
            let done = unsafe { kernel.launch(&stream, Grid::threads(256), (&x, &mut y, 256_u32)) }.unwrap();
            if launch.is_multiple_of(batch) {
                done.wait().unwrap();
            }
        }
    };
    run(1000);
    // On a busy machine a thread may still hold what the previous launch used, so that this one allocates; the next round can reuse it.
    let mut allocations = u64::MAX;
    for _ in 0..10 {
        ALLOCATIONS.store(0, Ordering::Relaxed);
        COUNTS.store(true, Ordering::Relaxed);
        run(count);
        COUNTS.store(false, Ordering::Relaxed);
        allocations = allocations.min(ALLOCATIONS.load(Ordering::Relaxed));
    }
    assert_eq!(y.to_vec().unwrap(), [21; 256]);
    allocations
}

fn main() {
    elinvar::serve_if_asked();
    let mut arguments = Arguments::from_args();
    // Allocations of all threads are counted.
    arguments.test_threads = Some(1);
    let trials = Device::all().unwrap().into_iter().enumerate().map(|(number, device)| {
        // Metal allocates each command buffer.
        let is_measured = matches!(device.kind(), DeviceKind::Cpu | DeviceKind::Cuda);
        let name = format!("{}_{number}::launches_do_not_allocate", device.kind().name());
        let run = move || {
            for batch in [1, 8] {
                let count = allocations(&device, 1000, batch);
                assert_eq!(count, 0, "allocations in 1000 launches, every {batch}. waited for");
            }
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(!is_measured)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
