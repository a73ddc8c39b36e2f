//! Optimized code replaces unoptimized code while a kernel is launched. `ELINVAR_CPU_TIER=replace` regards every kernel as costly to
//! optimize; the test program is its own child process, with a cache of its own.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use elinvar::{Device, Grid, Kernel, KernelOptions, Source, Stream, Tier};

const TASK: &str = "ELINVAR_TEST_TIER_TASK";
const N: u32 = 1000;
const GROUP: u32 = 64;

/// Rounds of a linear congruential generator, unrolled.
fn source() -> Source {
    let rounds: String = (0..200).map(|k| format!("x = x * 1664525u + {k}u; ")).collect();
    let text = format!(
        "kernel void mix(device uint* out, uint i [[thread_position_in_grid]]) {{ uint x = i; {rounds} out[i] = x; }}"
    );
    Source::named("mix.metal", text)
}

fn expected(i: u32) -> u32 {
    (0..200).fold(i, |x, k| x.wrapping_mul(1_664_525).wrapping_add(k))
}

fn launch(kernel: &Kernel, stream: &Stream) {
    let mut out = kernel.device().buffer::<u32>(N as usize).unwrap();
    // SAFETY: the kernel writes one element a thread.
    #[allow(unsafe_code)]
    unsafe { kernel.launch(stream, Grid::threads(N).group(GROUP), (&mut out,)) }.unwrap().wait().unwrap();
    for (i, value) in out.to_vec().unwrap().into_iter().enumerate() {
        assert_eq!(value, expected(i as u32), "element {i}");
    }
}

fn kernel(device: &Device, tier: Tier) -> Kernel {
    let library = device.compile(source()).unwrap();
    library.kernel_with("mix", KernelOptions::new().tier(tier)).unwrap()
}

fn main() {
    elinvar::serve_if_asked();
    if let Ok(task) = std::env::var(TASK) {
        return child(&task);
    }
    let mut tests: Vec<(&str, fn())> = vec![
        (
            "results_stay_right_while_code_is_replaced_and_optimized_code_is_cached",
            results_stay_right_while_code_is_replaced_and_optimized_code_is_cached,
        ),
        (
            "cheap_kernels_are_optimized_at_once_and_costly_ones_are_not",
            cheap_kernels_are_optimized_at_once_and_costly_ones_are_not,
        ),
    ];
    if cfg!(target_os = "linux") {
        tests.push(("code_of_an_isolated_device_is_replaced", code_of_an_isolated_device_is_replaced));
    }
    let trial = |(name, test): (&str, fn())| {
        libtest_mimic::Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let trials = tests.into_iter().map(trial).collect();
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials).exit();
}

fn child(task: &str) {
    let device = || Device::cpu().unwrap();
    match task {
        "first" => {
            let kernel = kernel(&device(), Tier::Adaptive);
            assert_eq!(kernel.is_optimized(GROUP).unwrap(), None);
            launch(&kernel, &kernel.device().stream().unwrap());
            println!("first {:?}", kernel.is_optimized(GROUP).unwrap());
        }
        "quick" => {
            let kernel = kernel(&device(), Tier::Quick);
            launch(&kernel, &kernel.device().stream().unwrap());
            kernel.optimize(GROUP).unwrap();
            println!("quick {:?}", kernel.is_optimized(GROUP).unwrap());
        }
        "load" => load(&device()),
        #[cfg(target_os = "linux")]
        "isolated" => load(&Device::isolated().unwrap()),
        other => panic!("task {other}"),
    }
}

/// Threads launch the kernel until it has been optimized, and for a while after it. Every result is compared.
fn load(device: &Device) {
    let kernel = kernel(device, Tier::Adaptive);
    let (launches, [is_over, was_quick]) = (AtomicU64::new(0), [const { AtomicBool::new(false) }; 2]);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let stream = device.stream().unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    launch(&kernel, &stream);
                    launches.fetch_add(1, Ordering::Relaxed);
                    match kernel.is_optimized(GROUP).unwrap() {
                        Some(false) => was_quick.store(true, Ordering::Relaxed),
                        optimized => assert_eq!(optimized, Some(true)),
                    }
                }
            });
        }
        while kernel.is_optimized(GROUP).unwrap() != Some(true) {
            assert!(start.elapsed() < Duration::from_secs(300), "not optimized");
            std::thread::sleep(Duration::from_millis(1));
        }
        let seen = launches.load(Ordering::Relaxed);
        while launches.load(Ordering::Relaxed) < seen + 30 && start.elapsed() < Duration::from_secs(300) {
            std::thread::sleep(Duration::from_millis(1));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(was_quick.load(Ordering::Relaxed), "no launch ran unoptimized code");
}

fn run(task: &str, cache: &Path, tier: &str) -> Output {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.env(TASK, task).env("ELINVAR_CPU_TIER", tier);
    child.env("ELINVAR_CACHE", cache).env_remove("ELINVAR_CACHE_LIMIT");
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{task}: {said}{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn says(output: &Output, what: &str) -> bool {
    String::from_utf8_lossy(&output.stdout).contains(what)
}

fn results_stay_right_while_code_is_replaced_and_optimized_code_is_cached() {
    let cache = tempfile::tempdir().unwrap();
    run("load", cache.path(), "replace");
    assert!(says(&run("first", cache.path(), "replace"), "first Some(true)"));
}

fn cheap_kernels_are_optimized_at_once_and_costly_ones_are_not() {
    let caches = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    assert!(says(&run("first", caches[0].path(), "adaptive"), "first Some(true)"));
    // The cache of the others has unoptimized code at first.
    assert!(says(&run("quick", caches[1].path(), "adaptive"), "quick Some(false)"));
    assert!(says(&run("first", caches[1].path(), "replace"), "first Some(false)"));
    assert!(says(&run("first", caches[1].path(), "optimized"), "first Some(true)"));
}

fn code_of_an_isolated_device_is_replaced() {
    run("isolated", tempfile::tempdir().unwrap().path(), "replace");
}
