//! Device memory: storage modes, reuse, statistics, limits, host memory in place.

use crate::support;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use elinvar::driver::Command;
use elinvar::{Buffer, Device, Error, HostAccess, PoolLimits, Pressure, Storage};
use elinvar_conformance::sim::Sim;
use support::{Bench, assert_poisoned, invalid};

const ALL: [HostAccess; 6] = [
    HostAccess::ReadWrite,
    HostAccess::Read,
    HostAccess::Write,
    HostAccess::Never,
    HostAccess::Transient,
    HostAccess::Staging,
];

#[allow(unsafe_code)] // asks for uninitialized memory
fn uninit(device: &Device, len: usize) -> Buffer<u32> {
    // SAFETY: the simulated device initializes such memory, so that reading it is defined.
    unsafe { device.buffer_uninit(len, HostAccess::ReadWrite) }.unwrap()
}

#[test]
fn the_storage_mode_follows_from_device_and_use() {
    use Storage::{Managed, Private, Shared};
    let modes = |sim: Arc<Sim>| {
        let device = Device::new(sim);
        ALL.map(|host| device.buffer_for::<u32>(4, host).unwrap().storage())
    };
    assert_eq!(modes(Sim::new()), [Shared, Shared, Shared, Private, Private, Shared]);
    assert_eq!(modes(Sim::discrete()), [Managed, Managed, Managed, Private, Private, Shared]);
    let without = Sim::with_caps(|caps| caps.features.unified_memory = false);
    assert_eq!(modes(without), [Shared, Shared, Shared, Private, Private, Shared]);
    let device = Device::new(Sim::discrete());
    assert_eq!(device.buffer_in::<u32>(4, Shared).unwrap().storage(), Shared, "overridden");
    assert_eq!(device.buffer::<u32>(4).unwrap().storage(), Managed);
    assert_eq!(device.buffer_with_data(&[1u32]).unwrap().storage(), Managed);
}

#[test]
fn managed_memory_is_in_step_when_it_is_looked_at() {
    let bench = Bench::on(Sim::discrete());
    let increment = bench.increment();
    let mut data = bench.device.buffer_with_data(&[1u32, 2]).unwrap();
    assert_eq!(*data.map().unwrap(), [1, 2], "what was written");
    bench.launch(&increment, (&mut data,)).unwrap();
    assert_eq!(*data.map().unwrap(), [2, 2], "what the device left");
    data.map_mut().unwrap()[0] = 10;
    bench.launch(&increment, (&mut data,)).unwrap();
    assert_eq!(data.to_vec().unwrap(), [11, 2], "the device saw what the map left");
    let mut other = data.clone();
    let (a, b) = (data.map().unwrap(), other.map().unwrap());
    assert_eq!((&*a, &*b), (&[11, 2][..], &[11, 2][..]));
    drop((a, b));
    other.write(&[3, 4]).unwrap();
    assert_eq!(*other.map_mut().unwrap(), [3, 4]);
}

#[test]
fn recycled_memory_shows_nothing_of_what_it_held() {
    for (sim, host) in
        [Sim::new(), Sim::discrete()].into_iter().flat_map(|sim| ALL.map(|host| (sim.clone(), host)))
    {
        let device = Device::new(sim);
        let mut first = device.buffer_for::<u32>(1000, host).unwrap();
        assert!(first.to_vec().unwrap().iter().all(|word| *word == 0), "{host:?}");
        first.fill(7).unwrap();
        drop(first);
        let before = device.pool().stats().hits;
        let second = device.buffer_for::<u32>(990, host).unwrap();
        assert_eq!(device.pool().stats().hits, before + 1, "{host:?}: not the same memory");
        assert!(second.to_vec().unwrap().iter().all(|word| *word == 0), "{host:?}");
        if second.storage() != Storage::Private {
            assert!(second.map().unwrap().iter().all(|word| *word == 0), "{host:?}");
        }
    }
}

#[test]
fn uninitialized_memory_is_what_was_there() {
    let device = Device::new(Sim::new());
    let mut first = uninit(&device, 100);
    assert!(
        first.to_vec().unwrap().iter().all(|word| *word == 0xa5a5_a5a5),
        "new memory is not zeroed for it"
    );
    first.fill(7).unwrap();
    drop(first);
    assert!(uninit(&device, 100).to_vec().unwrap().iter().all(|word| *word == 7), "nor is recycled memory");
}

#[test]
fn memory_is_given_back_when_the_device_is_done_with_it() {
    let bench = Bench::new();
    let increment = bench.increment();
    bench.sim.hold();
    let mut data = bench.device.buffer_with_data(&[1u32; 100]).unwrap();
    let done = bench.launch(&increment, (&mut data,)).unwrap();
    let clone = data.clone();
    drop((data, clone));
    assert_eq!(bench.device.pool().stats().idle_blocks, 0, "the launch still has it");
    let other = bench.device.buffer::<u32>(100).unwrap();
    assert_eq!(bench.device.pool().stats().hits, 0);
    bench.sim.release();
    done.wait().unwrap();
    let stats = bench.device.pool().stats();
    assert_eq!((stats.idle_blocks, stats.live_buffers), (1, 1), "before the wait returns");
    let recycled = bench.device.buffer::<u32>(100).unwrap();
    assert_eq!(bench.device.pool().stats().hits, 1);
    assert_eq!((recycled.to_vec().unwrap(), other.to_vec().unwrap()), (vec![0; 100], vec![0; 100]));
}

#[test]
fn work_that_fails_or_is_cancelled_gives_memory_back_too() {
    let bench = Bench::new();
    let (fail, look) = (bench.fail(), bench.look());
    bench.sim.hold();
    let buffers: Vec<_> = (0..3).map(|_| bench.device.buffer_with_data(&[1u32]).unwrap()).collect();
    let [mut a, b, c]: [Buffer<u32>; 3] = buffers.try_into().unwrap();
    let failed = bench.launch(&fail, (&mut a,)).unwrap();
    let behind = bench.launch(&look, (&b,)).unwrap();
    let cancelled = bench.launch(&look, (&c,)).unwrap();
    drop((a, b, c));
    assert!(cancelled.cancel());
    bench.sim.release();
    assert!(failed.wait().is_err());
    assert_poisoned(behind.wait());
    assert!(matches!(cancelled.wait(), Err(Error::Cancelled)));
    let stats = bench.device.pool().stats();
    assert_eq!((stats.live_buffers, stats.live_bytes, stats.idle_blocks), (0, 0, 3));
}

#[test]
fn what_is_counted_is_exact() {
    let sim = Sim::new();
    let device = Device::new(sim.clone());
    let a = device.buffer::<u8>(1000).unwrap();
    let b = device.buffer::<u8>(300).unwrap();
    drop(a);
    let c = device.buffer::<u8>(1010).unwrap();
    let stats = device.pool().stats();
    assert_eq!((stats.live_bytes, stats.live_buffers, stats.live_block_bytes), (1310, 2, 1024 + 512));
    assert_eq!((stats.peak_bytes, stats.total_bytes, stats.peak_block_bytes), (1310, 2310, 1536));
    assert_eq!((stats.hits, stats.misses, stats.idle_bytes), (1, 2, 0));
    assert_eq!(sim.memory(), (2, 1536));
    drop((b, c));
    let stats = device.pool().stats();
    assert_eq!((stats.live_bytes, stats.idle_bytes, stats.idle_blocks), (0, 1536, 2));
    assert_eq!(device.pool().trim(1024), 512, "the longest idle first");
    assert_eq!(device.pool().trim(0), 1024);
    assert_eq!(sim.memory(), (0, 0));
    assert_eq!(device.pool().stats().trimmed_bytes, 1536);
}

#[test]
fn counts_add_up_under_threads() {
    const THREADS: usize = 32;
    const ROUNDS: usize = 300;
    let sim = Sim::new();
    let device = Device::new(sim.clone());
    let asked: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|t| {
                let device = &device;
                scope.spawn(move || {
                    let mut kept = Vec::new();
                    let mut asked = 0;
                    for i in 0..ROUNDS {
                        let len = (t * 31 + i * 17) % 5000 + 1;
                        let mut buffer = device.buffer::<u8>(len).unwrap();
                        asked += len as u64;
                        assert!(buffer.map().unwrap().iter().all(|byte| *byte == 0));
                        buffer.fill(t as u8 + 1).unwrap();
                        kept.push(buffer);
                        if kept.len() > i % 7 {
                            let buffer = kept.swap_remove(i % kept.len());
                            assert!(buffer.map().unwrap().iter().all(|byte| *byte == t as u8 + 1));
                        }
                        if i % 100 == 99 {
                            device.pool().trim(0);
                        }
                    }
                    asked
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let stats = device.pool().stats();
    assert_eq!((stats.live_bytes, stats.live_buffers, stats.live_block_bytes), (0, 0, 0));
    assert_eq!((stats.total_bytes, stats.hits + stats.misses), (asked, (THREADS * ROUNDS) as u64));
    assert_eq!(sim.memory(), (stats.idle_blocks, stats.idle_bytes));
    assert_eq!(stats.misses, stats.idle_blocks + stats.trimmed_blocks);
    drop(device);
    assert_eq!(sim.memory(), (0, 0), "the pool goes with the last handle");
}

#[test]
fn out_of_memory_trims_and_tries_again() {
    let sim = Sim::new();
    let device = Device::new(sim.clone());
    drop(device.buffer::<u8>(4096).unwrap());
    sim.limit_memory(5200);
    let large = device.buffer::<u8>(4800).unwrap();
    assert_eq!(sim.memory(), (1, 5120), "the idle block made room");
    let refused = device.buffer::<u8>(4096).map(drop);
    assert!(matches!(refused, Err(Error::OutOfMemory { requested: 4096, .. })), "{refused:?}");
    let stats = device.pool().stats();
    assert_eq!((stats.refused, stats.live_bytes, stats.trimmed_blocks), (1, 4800, 1));
    drop(large);
    device.buffer::<u8>(4096).unwrap();
}

#[test]
fn a_budget_is_kept() {
    let device = Device::new(Sim::new());
    let limits = PoolLimits { budget: 10_240, idle_bytes: 8192, idle_time: Duration::from_secs(60) };
    device.pool().set_limits(limits);
    assert_eq!(device.pool().limits(), limits);
    drop(device.buffer::<u8>(4096).unwrap());
    let large = device.buffer::<u8>(8192).unwrap();
    let refused = device.buffer::<u8>(4096).map(drop);
    assert!(matches!(refused, Err(Error::OutOfMemory { requested: 4096, available: 2048 })), "{refused:?}");
    assert_eq!(device.pool().stats().pressure, Pressure::Elevated);
    let last = device.buffer::<u8>(2048).unwrap();
    assert_eq!(device.pool().stats().pressure, Pressure::Critical);
    drop((large, last));
    device.pool().set_limits(PoolLimits { idle_bytes: 0, ..limits });
    assert_eq!(device.pool().stats().idle_bytes, 0, "a new limit holds at once");
}

#[test]
fn nothing_is_kept_when_the_system_is_short_of_memory() {
    let sim = Sim::new();
    sim.limit_memory((1 << 32) / 20 - 1);
    let device = Device::new(sim.clone());
    let buffer = device.buffer::<u8>(4096).unwrap();
    assert_eq!(device.pool().stats().pressure, Pressure::Critical, "less than a twentieth is left");
    drop(buffer);
    assert_eq!(sim.memory(), (0, 0));
}

#[test]
fn fragments_are_measured_and_go_when_trimmed() {
    let sim = Sim::new();
    let device = Device::new(sim.clone());
    drop((0..8).map(|_| device.buffer::<u8>(1024).unwrap()).collect::<Vec<_>>());
    assert_eq!(
        device.pool().stats().fragmentation(),
        0.875,
        "eight pieces of which the largest is an eighth"
    );
    sim.limit_memory(8192);
    let whole = device.buffer::<u8>(8192).unwrap();
    assert_eq!(sim.memory(), (1, 8192), "the pieces became one");
    drop(whole);
    assert_eq!(device.pool().stats().fragmentation(), 0.0);
    drop([device.buffer::<u8>(300).unwrap(), device.buffer::<u8>(600).unwrap()]);
    device.pool().trim_idle(Duration::ZERO);
    assert_eq!(sim.memory(), (0, 0));
}

/// Forward, backward and update steps of a small network, with batches of varying size.
#[test]
fn a_training_loop_lives_from_the_pool() {
    let device = Device::new(Sim::new());
    let weights: Vec<_> = [784 * 128, 128 * 64, 64 * 10].map(|n| device.buffer::<f32>(n).unwrap()).into();
    for step in 0..200 {
        let batch = if step % 10 == 9 { 48 } else { 64 };
        let activations: Vec<_> = [784, 128, 64, 10].map(|n| device.buffer::<f32>(n * batch).unwrap()).into();
        for (weight, activation) in weights.iter().zip(&activations).rev() {
            drop((
                device.buffer::<f32>(weight.len()).unwrap(),
                device.buffer::<f32>(activation.len()).unwrap(),
            ));
        }
    }
    let stats = device.pool().stats();
    assert!(stats.hit_rate() >= 0.95, "{stats:?}");
    assert!(stats.slack() <= 0.125, "{stats:?}");
}

#[test]
fn live_buffers_are_listed_by_where_they_were_allocated() {
    let device = Device::new(Sim::new());
    let line = line!() + 1;
    let leaked: Vec<_> = (0..3).map(|_| device.buffer::<u32>(10).unwrap()).collect();
    let other = device.buffer_with_data(&[1u8; 50]).unwrap();
    let sites = device.pool().sites();
    if cfg!(debug_assertions) {
        let text = sites[0].to_string();
        assert!(text.starts_with(&format!("{}:{line}:", file!())), "{text}");
        assert!(text.ends_with(": 3 buffers, 120 bytes"), "{text}");
        assert_eq!(
            sites.iter().map(|site| (site.buffers, site.bytes)).collect::<Vec<_>>(),
            [(3, 120), (1, 50)]
        );
    } else {
        assert!(sites.is_empty());
    }
    drop((leaked, other));
    assert!(device.pool().sites().is_empty());
}

#[test]
fn handles_on_one_device_share_its_pool() {
    let sim = Sim::new();
    let (a, b) = (Device::new(sim.clone()), Device::new(sim.clone()));
    drop(a.buffer::<u32>(10).unwrap());
    drop(b.buffer::<u32>(10).unwrap());
    assert_eq!((a.pool().stats().hits, sim.memory().0), (1, 1));
    assert_eq!(Device::new(Sim::new()).pool().stats().misses, 0, "another device, another pool");
}

/// Pages of the host that record when they are dropped.
struct Pages {
    words: *mut u32,
    dropped: Arc<AtomicBool>,
}

const PAGES: Layout = match Layout::from_size_align(8192, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("a layout of two pages"),
};

#[allow(unsafe_code)] // owns raw memory
impl Pages {
    fn new() -> (Self, Arc<AtomicBool>) {
        let dropped = Arc::new(AtomicBool::new(false));
        // SAFETY: the layout's size is not zero.
        let words = unsafe { alloc_zeroed(PAGES) }.cast();
        assert!(!std::ptr::eq(words, std::ptr::null()));
        (Self { words, dropped: dropped.clone() }, dropped)
    }
}

#[allow(unsafe_code)] // owns raw memory
// SAFETY: this value owns the pages.
unsafe impl Send for Pages {}
#[allow(unsafe_code)] // owns raw memory
// SAFETY: no method accesses the pages through a shared reference.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    #[allow(unsafe_code)] // frees what `new` allocated
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::SeqCst);
        // SAFETY: allocated by `new` with this layout, freed once.
        unsafe { dealloc(self.words.cast(), PAGES) };
    }
}

impl AsMut<[u32]> for Pages {
    #[allow(unsafe_code)] // a view of raw memory
    fn as_mut(&mut self) -> &mut [u32] {
        // SAFETY: the allocation has this size and is zeroed, and `&mut self` makes this the only view.
        unsafe { std::slice::from_raw_parts_mut(self.words, 2048) }
    }
}

#[test]
#[allow(unsafe_code)] // lends memory of the host
fn memory_of_the_host_is_used_in_place() {
    let bench = Bench::new();
    let (mut pages, dropped) = Pages::new();
    pages.as_mut()[0] = 41;
    let address = pages.words;
    // SAFETY: the pages do not move, and no other code uses them.
    let mut data = unsafe { bench.device.buffer_no_copy::<u32>(pages) }.unwrap();
    assert_eq!((data.len(), data.storage()), (2048, Storage::Shared));
    assert_eq!(data.map().unwrap().as_ptr(), address.cast_const(), "in place");
    let stats = bench.device.pool().stats();
    assert_eq!((stats.wrapped_bytes, stats.live_bytes, stats.live_buffers), (8192, 0, 1));
    let increment = bench.increment();
    bench.sim.hold();
    bench.launch(&increment, (&mut data,)).unwrap();
    let other = data.clone();
    drop(data);
    bench.sim.release();
    assert_eq!(other.to_vec().unwrap()[0], 42);
    bench.sim.hold();
    let done = bench.launch(&bench.look(), (&other,)).unwrap();
    drop(other);
    assert!(!dropped.load(Ordering::SeqCst), "the device has it still");
    bench.sim.release();
    done.wait().unwrap();
    bench.sim.forget_commands();
    assert!(dropped.load(Ordering::SeqCst));
    assert_eq!(bench.device.pool().stats().wrapped_bytes, 0);
}

#[test]
#[allow(unsafe_code)] // lends memory of the host
fn memory_of_the_host_that_does_not_fit_is_refused() {
    let (pages, dropped) = Pages::new();
    // SAFETY: the pages do not move, and no other code uses them.
    let refused = unsafe { Device::new(Sim::discrete()).buffer_no_copy::<u32>(pages) };
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
    assert!(dropped.load(Ordering::SeqCst), "the owner is not kept");
    // SAFETY: the numbers do not move, and no other code uses them.
    let text = invalid(unsafe { Device::new(Sim::new()).buffer_no_copy(vec![0u32; 3]) });
    assert!(text.contains("12 bytes") && text.contains("4096"), "{text}");
    let device = Device::new(Sim::new());
    let limit = device.caps().limits.max_buffer_bytes;
    // Zeroed pages that are not touched take no memory.
    let large = vec![0_u8; usize::try_from(limit).unwrap() + 4096];
    // SAFETY: the bytes do not move, and no other code uses them.
    let text = invalid(unsafe { device.buffer_no_copy(large) });
    assert!(text.contains(&format!("{} bytes", limit + 4096)) && text.contains(&limit.to_string()), "{text}");
}

#[test]
fn transfers_are_staged_and_wait_for_nothing() {
    let bench = Bench::on(Sim::discrete());
    let increment = bench.increment();
    let mut data = bench.device.buffer_for::<u32>(3, HostAccess::Never).unwrap();
    bench.sim.hold();
    let mut source = vec![1u32, 2, 3];
    bench.stream.upload(&source, &mut data).unwrap();
    source.fill(99);
    bench.launch(&increment, (&mut data,)).unwrap();
    let download = bench.stream.download(&data).unwrap();
    assert!(download.wait_timeout(Duration::ZERO).unwrap().is_none());
    bench.sim.release();
    assert_eq!(download.wait().unwrap(), [2, 2, 3]);
    let mut read = [0; 3];
    download.read(&mut read).unwrap();
    assert_eq!(read, [2, 2, 3]);
    assert_eq!(invalid(download.read(&mut read[1..])), "download: the source has 3 elements, the target 2");
    assert_eq!(support::block_on(bench.stream.download(data.slice(1..3).unwrap()).unwrap()).unwrap(), [2, 3]);
    let copies: Vec<_> = bench
        .sim
        .commands()
        .iter()
        .filter_map(|command| match command {
            Command::Copy { source, target } => Some((source.memory.storage(), target.memory.storage())),
            _ => None,
        })
        .collect();
    let (shared, private) = (Storage::Shared, Storage::Private);
    assert_eq!(copies, [(shared, private), (private, shared), (private, shared)]);
    assert_eq!(
        invalid(bench.stream.upload(&[1u32], &mut data)),
        "upload: the source has 1 elements, the target 3"
    );
    drop(download);
    let before = bench.device.pool().stats();
    bench.stream.upload(&[4, 5, 6], &mut data).unwrap().wait().unwrap();
    assert_eq!(bench.device.pool().stats().hits, before.hits + 1, "staging memory is used again");
    assert_eq!(data.to_vec().unwrap(), [4, 5, 6]);
}

#[test]
fn a_download_of_what_failed_is_no_data() {
    let bench = Bench::new();
    let mut data = bench.device.buffer_with_data(&[1u32]).unwrap();
    let fail = bench.fail();
    bench.launch(&fail, (&mut data,)).unwrap();
    assert_poisoned(bench.stream.download(&data).unwrap().wait());
}
