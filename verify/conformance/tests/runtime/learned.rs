//! Tuning profiles: measured threadgroup sizes, saved and restored by another process.

use crate::support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use elinvar::driver::{Access, Packed, Scalar};
use elinvar::{
    BreakerLimits, BreakerState, Device, Error, Grid, HostAccess, Kernel, RecoveryPolicy, Source, Storage,
    Tuning, TuningCache,
};
use elinvar_conformance::sim::{Op, Sim};
use support::{Bench, invalid, pointer, signature};

/// A kernel that is fastest with 128 threads per threadgroup.
fn likes_128(bench: &Bench) -> Kernel {
    let data = pointer("data", Scalar::U32, Access::ReadWrite);
    bench.declare(signature("likes_128", vec![data]), |launch| {
        launch.take_ns(1000 + u64::from(launch.group().volume().abs_diff(128) as u32));
        Ok(())
    })
}

#[allow(unsafe_code)] // launches
fn tune(bench: &Bench, kernel: &Kernel, grid: Grid) -> Result<elinvar::Suggestion, Error> {
    let mut data = bench.device.buffer::<u32>(4).unwrap();
    // SAFETY: the kernel accesses no memory.
    unsafe { kernel.tune(&bench.stream, grid, (&mut data,)) }
}

fn group(kernel: &Kernel, threads: u32) -> [u32; 3] {
    kernel.threadgroup_size(Grid::threads(threads)).unwrap().unwrap().to_array()
}

#[test]
fn a_size_is_measured_and_used() {
    let bench = Bench::new();
    let kernel = likes_128(&bench);
    assert_eq!(group(&kernel, 5000), [256, 1, 1]);
    let tuned = tune(&bench, &kernel, Grid::threads(5000)).unwrap();
    assert_eq!(tuned.group.to_array(), [128, 1, 1]);
    assert!(tuned.reason.starts_with("measured for grids up to 8192 x 1 x 1: 100"), "{tuned}");
    assert_eq!((group(&kernel, 4097), group(&kernel, 8192)), ([128, 1, 1], [128, 1, 1]));
    assert_eq!((group(&kernel, 4096), group(&kernel, 8193)), ([256, 1, 1], [256, 1, 1]), "of other sizes");
    assert_eq!(kernel.suggest(6000).unwrap(), tuned);
    let given = kernel.threadgroup_size(Grid::threads(5000).group(64)).unwrap().unwrap();
    assert_eq!(given.to_array(), [64, 1, 1], "what is given is taken");
    let other = bench.device.compile(Source::msl("// another")).unwrap().kernel("likes_128").unwrap();
    assert_eq!(group(&other, 5000), [256, 1, 1], "a kernel of that name in another source");
    assert_eq!(
        invalid(tune(&bench, &kernel, Grid::threads(5000).group(8))),
        "kernel `likes_128`: tune: the grid must not have a threadgroup size"
    );
    let flat = kernel.threadgroup_size(Grid::threads((100, 100))).unwrap().unwrap();
    tune(&bench, &kernel, Grid::threads((100, 100))).unwrap();
    let tuned = kernel.threadgroup_size(Grid::threads((100, 100))).unwrap().unwrap();
    assert_eq!((flat.volume(), tuned.volume()), (256, 128));
}

/// Of a short launch all shapes are looked at, of a long one those that the model expects to be fast.
#[test]
fn unexpected_shapes_are_found_where_launches_are_short() {
    for (unit, is_found) in [(1, true), (1_000_000, false)] {
        let bench = Bench::new();
        let sizes = Arc::<Mutex<BTreeSet<[u32; 3]>>>::default();
        let seen = sizes.clone();
        let data = pointer("data", Scalar::U32, Access::ReadWrite);
        let kernel = bench.declare(signature("likes_64_by_4", vec![data]), move |launch| {
            let size = launch.group().to_array();
            launch.take_ns(unit * if size == [64, 4, 1] { 1000 } else { 2000 });
            seen.lock().unwrap().insert(size);
            Ok(())
        });
        let tuned = tune(&bench, &kernel, Grid::threads((1024, 1024))).unwrap();
        assert_eq!(tuned.group.to_array() == [64, 4, 1], is_found, "{tuned}");
        let count = sizes.lock().unwrap().len();
        assert_eq!(count > 10, is_found, "{count} sizes were measured");
    }
}

/// A kernel that adds 1 to the first element and counts its runs, fastest with 64 threads per threadgroup.
fn counting(bench: &Bench, text: &str, runs: &Arc<AtomicUsize>) -> Kernel {
    let data = pointer("data", Scalar::U32, Access::ReadWrite);
    let runs = runs.clone();
    bench.declare(signature("counting", vec![data]), move |launch| {
        runs.fetch_add(1, Ordering::Relaxed);
        launch.take_ns(1000 + u64::from(launch.group().volume().abs_diff(64) as u32));
        let bytes = launch.bytes(0)?;
        let first: u32 = bytemuck::pod_read_unaligned(&bytes[..4]);
        launch.write(0, &(first + 1).to_ne_bytes())
    });
    bench.device.compile(Source::msl(text)).unwrap().kernel("counting").unwrap()
}

#[allow(unsafe_code)] // launches
fn tune_with(
    bench: &Bench,
    kernel: &Kernel,
    data: &mut elinvar::Buffer<u32>,
    tuning: Tuning,
) -> elinvar::Suggestion {
    // SAFETY: the kernel accesses the first element.
    unsafe { kernel.tune_with(&bench.stream, Grid::threads(5000), (data,), tuning) }.unwrap()
}

/// A size is remembered for other processes, here other devices of the same identity; a prediction runs nothing; what a measurement writes is
/// undone.
#[test]
fn sizes_are_remembered_and_arguments_restored() {
    // A source that no other run of the test has measured.
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let text = format!("// {} {}", std::process::id(), now.as_nanos());
    let runs = Arc::new(AtomicUsize::new(0));
    let bench = Bench::new();
    let kernel = counting(&bench, &text, &runs);
    let mut data = bench.device.buffer_with_data(&[7_u32, 8, 9]).unwrap();
    let predicted = tune_with(&bench, &kernel, &mut data, Tuning::Predicted);
    assert_eq!(predicted, tune_with(&bench, &kernel, &mut data, Tuning::Predicted));
    assert!(predicted.reason.contains("not measured"), "{predicted}");
    assert_eq!(
        (group(&kernel, 5000), runs.load(Ordering::Relaxed)),
        ([256, 1, 1], 0),
        "launches do not use it"
    );

    let measured = tune_with(&bench, &kernel, &mut data, Tuning::Remembered);
    assert_eq!(measured.group.to_array(), [64, 1, 1], "{measured}");
    assert!(runs.swap(0, Ordering::Relaxed) > 10);
    assert_eq!(data.to_vec().unwrap(), [7, 8, 9], "as before");

    let next = Bench::new();
    let kernel = counting(&next, &text, &runs);
    let mut data = next.device.buffer_with_data(&[7_u32, 8, 9]).unwrap();
    assert_eq!(group(&kernel, 5000), [256, 1, 1]);
    assert_eq!(tune_with(&next, &kernel, &mut data, Tuning::Remembered), measured);
    assert_eq!(
        (group(&kernel, 5000), runs.load(Ordering::Relaxed)),
        ([64, 1, 1], 0),
        "it was measured before"
    );
    tune_with(&next, &kernel, &mut data, Tuning::Measured);
    assert!(runs.swap(0, Ordering::Relaxed) > 10, "measured anew");
    let other = counting(&next, &format!("{text} another"), &runs);
    assert_eq!(group(&other, 5000), [256, 1, 1]);
}

/// Two bundles with kernels of the same name: sizes are stored per source, and belong to the text that was packed.
#[test]
fn a_source_from_a_bundle_has_the_sizes_of_its_text() {
    let bench = Bench::new();
    likes_128(&bench);
    let kernel = |source: &Source| bench.device.compile(source.clone()).unwrap().kernel("likes_128").unwrap();
    let [a, b] = ["// a", "// b"].map(Source::msl);
    let packed = |source: &Source| {
        let packed = Packed { bundle: [].into(), key: source.identity() };
        Source { packed: Some(packed), ..Source::msl("") }
    };
    let (first, second) = (kernel(&packed(&a)), kernel(&packed(&b)));
    tune(&bench, &first, Grid::threads(5000)).unwrap();
    assert_eq!(group(&first, 5000), [128, 1, 1]);
    assert_eq!(group(&second, 5000), [256, 1, 1], "of the other bundle");
    assert_eq!(group(&kernel(&a), 5000), [128, 1, 1], "of the text that was packed");
    assert_eq!(group(&kernel(&b), 5000), [256, 1, 1]);
}

/// A device with a measured threadgroup size, and its profile saved to `path`.
fn learned(path: &Path) -> Bench {
    let bench = Bench::new();
    tune(&bench, &likes_128(&bench), Grid::threads(5000)).unwrap();
    let held: Vec<_> = (0..3).map(|_| bench.device.buffer::<u8>(10_000).unwrap()).collect();
    drop(bench.device.buffer_for::<u8>(70_000, HostAccess::Never).unwrap());
    bench.device.save_tuning(path).unwrap();
    drop(held);
    bench
}

#[test]
fn another_process_takes_it_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("learned");
    learned(&path);
    let next = Bench::new();
    let kernel = likes_128(&next);
    assert_eq!(group(&kernel, 5000), [256, 1, 1]);
    let taken = next.device.restore_tuning(&path).unwrap();
    assert_eq!(group(&kernel, 5000), [128, 1, 1], "the first launch has it");
    // Three blocks of 10 kB, one of 70 kB and two of `tune`: its argument and the copy of it.
    let before = next.device.pool().stats();
    assert_eq!((taken.sizes, taken.blocks, before.idle_blocks), (1, 6, 6));
    let buffers: Vec<_> = (0..3).map(|_| next.device.buffer::<u8>(10_000).unwrap()).collect();
    let private = next.device.buffer_in::<u8>(70_000, Storage::Private).unwrap();
    let stats = next.device.pool().stats();
    assert_eq!((stats.misses, stats.hits), (before.misses, before.hits + 4), "the pool is warm");
    assert!(buffers.iter().chain([&private]).all(|b| b.to_vec().unwrap().iter().all(|byte| *byte == 0)));
    // A second restore has nothing to allocate.
    drop((buffers, private));
    assert_eq!(next.device.restore_tuning(&path).unwrap().blocks, 0);
    // The limits of the pool apply.
    let small = Bench::new();
    let limits = small.device.pool().limits();
    small.device.pool().set_limits(elinvar::PoolLimits { idle_bytes: 25_000, ..limits });
    small.device.restore_tuning(&path).unwrap();
    assert!(small.device.pool().stats().idle_bytes <= 25_000);
}

#[test]
fn a_damaged_file_is_refused_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("learned");
    let bench = learned(&path);
    let whole = std::fs::read(&path).unwrap();
    let (device, kernel) = (&bench.device, likes_128(&bench));
    let refused = |bytes: &[u8], what: &str| {
        std::fs::write(&path, bytes).unwrap();
        let result: Result<TuningCache, Error> = Bench::new().device.restore_tuning(&path);
        assert!(
            matches!(&result, Err(Error::Environment(text)) if text.contains("is damaged: ")),
            "{what}: {result:?}"
        );
        assert!(device.restore_tuning(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{what}: the file stays");
    };
    for len in 0..whole.len() {
        refused(&whole[..len], &format!("the first {len} bytes"));
    }
    for bit in (0..8 * whole.len()).step_by(3) {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        refused(&flipped, &format!("bit {bit}"));
    }
    refused(&[&whole[..], b"x"].concat(), "more");
    assert_eq!(group(&kernel, 5000), [128, 1, 1], "what the device knows, it knows");
    device.save_tuning(&path).unwrap();
    assert_eq!(Bench::new().device.restore_tuning(&path).unwrap().sizes, 1);
}

#[test]
fn files_of_others_and_no_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("learned");
    learned(&path);
    for other in [Sim::named("another"), Sim::with_caps(|caps| caps.limits.compute_units = 2)] {
        let device = Device::new(other);
        match device.restore_tuning(&path) {
            Err(Error::Unsupported(text)) => {
                assert!(text.contains("written for device `sim sim, 1 units"), "{text}")
            }
            result => panic!("{result:?}"),
        }
        assert_eq!(device.pool().stats().idle_blocks, 0);
    }
    let nowhere = folder.path().join("no folder").join("learned");
    let device = Bench::new().device;
    let missing = device.restore_tuning(&nowhere);
    assert!(
        matches!(&missing, Err(Error::Environment(text)) if text.starts_with("cannot read the tuning cache"))
    );
    let unwritten = device.save_tuning(&nowhere);
    assert!(
        matches!(&unwritten, Err(Error::Environment(text)) if text.starts_with("cannot write the tuning cache"))
    );
    // No partially written file is left.
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert_eq!(files, ["learned"]);
}

#[test]
fn a_device_that_failed_too_often_gets_no_work_from_the_next_process_either() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("learned");
    let bench = Bench::new();
    let limits =
        BreakerLimits { failures: 2, cooldown: Duration::from_secs(600), longest: Duration::from_secs(900) };
    let policy = |device: &Device| RecoveryPolicy { attempts: 1, ..RecoveryPolicy::of(device) };
    bench.device.breaker().set_limits(limits);
    for _ in 0..2 {
        bench.sim.fail_next(Op::Compile, Error::Environment("no compiler".into()));
        let compile = || bench.device.compile(Source::msl(""));
        assert!(bench.device.recover(&policy(&bench.device), compile).is_err());
    }
    assert!(matches!(bench.device.breaker().state(), BreakerState::Open { .. }));
    bench.device.save_tuning(&path).unwrap();

    let next = Bench::new();
    next.device.breaker().set_limits(limits);
    next.device.restore_tuning(&path).unwrap();
    let compile = || next.device.compile(Source::msl(""));
    let refused = next.device.recover(&policy(&next.device), compile);
    assert!(matches!(&refused, Err(Error::Refused(_))), "{:?}", refused.err());
    let memory = next.device.breaker().memory(Instant::now());
    assert_eq!((memory.failures, memory.trips), (2, 1));
    assert!((Duration::from_secs(300)..=Duration::from_secs(600)).contains(&memory.open_for), "{memory:?}");
}
