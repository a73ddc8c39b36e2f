//! How many threadgroup sizes of a kernel are compiled on the CPU, in this process and for a worker process: the first one, and then general
//! code, which serves the others until they are launched often.

use std::time::{Duration, Instant};

use elinvar::{Device, Grid, Kernel, KernelOptions, Source, Stream, Tier};
use elinvar_cache::Cache;
use elinvar_driver::Driver as _;
use elinvar_driver_cpu::CpuDriver;

use crate::support::compilations::Compilations;

/// Each thread reads its neighbor's number, over a barrier.
const SWAP: &str = "kernel void swap(device uint* out, uint i [[thread_position_in_grid]],
                     uint t [[thread_index_in_threadgroup]], uint3 size [[threads_per_threadgroup]]) {
        threadgroup uint shared[1024];
        shared[t] = i;
        threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        out[i] = shared[(t + 1) % size.x];
    }";
/// One barrier for threads below 32, and another for the rest.
const APART: &str = "kernel void apart(device uint* out, uint i [[thread_position_in_grid]],
                      uint t [[thread_position_in_threadgroup]]) {
        threadgroup uint shared[1024];
        shared[t] = i;
        if (t < 32) {
            threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            out[i] = shared[t ^ 1];
        } else {
            threadgroup_barrier(metal::mem_flags::mem_device);
            out[i] = 7;
        }
    }";

fn kernel(cache: &Cache, text: &str, name: &str, tier: Tier) -> Kernel {
    let device = CpuDriver::with_cache(2, cache).devices().unwrap().remove(0);
    let library = Device::new(device).compile(Source::named(format!("{name}.metal"), text)).unwrap();
    library.kernel_with(name, KernelOptions::new().tier(tier)).unwrap()
}

/// Launches `swap` over two and a half threadgroups and compares every element.
fn launch(kernel: &Kernel, stream: &Stream, group: usize) {
    let n = 2 * group + group.div_ceil(2);
    let mut out = kernel.device().buffer::<u32>(n).unwrap();
    // SAFETY: each thread writes its own element.
    #[allow(unsafe_code)]
    let launched = unsafe { kernel.launch(stream, Grid::threads(n).group(group), (&mut out,)) };
    launched.unwrap().wait().unwrap();
    for (i, value) in out.to_vec().unwrap().into_iter().enumerate() {
        let (first, t) = (i / group * group, i % group);
        let size = group.min(n - first);
        assert_eq!(value as usize, first + (t + 1) % size, "element {i} with threadgroups of {group}");
    }
}

/// Sizes of which all are in rows, whatever the number of lanes.
const GROUPS: [usize; 8] = [64, 100, 128, 33, 256, 1000, 96, 1024];

fn compilations(cache: &Cache, tier: Tier) -> usize {
    let kernel = kernel(cache, SWAP, "swap", tier);
    let stream = kernel.device().stream().unwrap();
    Compilations::during(|| {
        for _ in 0..3 {
            GROUPS.iter().for_each(|group| launch(&kernel, &stream, *group));
        }
    })
}

#[test]
fn one_kernel_serves_all_sizes_but_the_first() {
    assert_eq!(compilations(&Cache::off(), Tier::Adaptive), 2);
    assert_eq!(compilations(&Cache::off(), Tier::Quick), 2);
    assert_eq!(compilations(&Cache::off(), Tier::Optimized), GROUPS.len());
}

#[test]
fn general_code_is_cached() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path(), 1 << 30, CpuDriver::CACHE_VERSION);
    assert_eq!([(); 2].map(|()| compilations(&cache, Tier::Adaptive)), [2, 0]);
}

#[test]
fn a_size_that_is_launched_often_is_specialized_in_the_background() {
    const TEST: &str = "sizes::a_size_that_is_launched_often_is_specialized_in_the_background";
    const CHILD: &str = "ELINVAR_TEST_CHILD_SIZES";
    if std::env::var_os(CHILD).is_none() {
        // In a process of its own, where nothing else compiles.
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", TEST, "--nocapture"]).env(CHILD, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    // The background thread has no subscriber of its own.
    let count = Compilations::default();
    tracing::subscriber::set_global_default(count.clone()).unwrap();
    let made = || count.passes();
    let kernel = kernel(&Cache::off(), SWAP, "swap", Tier::Adaptive);
    let stream = kernel.device().stream().unwrap();
    [64, 1024].iter().for_each(|group| launch(&kernel, &stream, *group));
    assert_eq!(made(), 2);
    let start = Instant::now();
    while made() == 2 && start.elapsed() < Duration::from_secs(300) {
        launch(&kernel, &stream, 1024);
    }
    assert_eq!(made(), 3);
    // Waits for the background thread.
    kernel.optimize(1024).unwrap();
    [64, 128, 1024].iter().for_each(|group| launch(&kernel, &stream, *group));
    assert_eq!(made(), 3);
    // On request it is at once.
    assert_eq!(Compilations::during(|| kernel.optimize(256).unwrap()), 1);
    [64, 128, 256, 1024].iter().for_each(|group| launch(&kernel, &stream, *group));
}

#[test]
fn barriers_that_only_some_threads_reach_are_rejected_for_each_size() {
    // Counted apart from those of other tests.
    Compilations::during(rejections);
}

fn rejections() {
    let kernel = kernel(&Cache::off(), APART, "apart", Tier::Adaptive);
    let stream = kernel.device().stream().unwrap();
    let mut out = kernel.device().buffer::<u32>(128).unwrap();
    for group in [32_u32, 16, 64, 128, 8, 64] {
        // SAFETY: each thread writes its own element.
        #[allow(unsafe_code)]
        let launched = unsafe { kernel.launch(&stream, Grid::threads(128).group(group), (&mut out,)) };
        let launched = launched.and_then(|launch| launch.wait());
        match group {
            64.. => assert!(matches!(launched, Err(elinvar::Error::Compile(_))), "threadgroups of {group}"),
            _ => {
                launched.unwrap();
                let expected: Vec<u32> = (0..128).map(|i| i ^ 1).collect();
                assert_eq!(out.to_vec().unwrap(), expected);
            }
        }
    }
}
