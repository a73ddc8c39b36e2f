//! Compilation in the background, its cancellation, and what is prepared before the first launch.

use std::time::SystemTime;

use elinvar::driver::{Error, Storage};
use elinvar::{Compilation, Component, Device, Grid, Kernel, KernelOptions, Library, Source, Status};

use crate::support::block_on;
use crate::support::compilations::Compilations;

const N: u32 = 1000;

/// `out[i] = i * factor`; the name makes the source differ from those of other tests, whose code may be in the cache.
fn source(name: &str, factor: u32) -> Source {
    let text = format!(
        "kernel void {name}(device uint* out, uint i [[thread_position_in_grid]]) {{ out[i] = i * {factor}u; }}"
    );
    Source::named(format!("{name}.metal"), text)
}

/// Templates of which there are too many to compile.
fn endless() -> Source {
    Source::named(
        "endless.metal",
        "template <int N, int M> struct Tree { static constant constexpr int value = Tree<N - 1, 2 * M>::value + Tree<N - 1, 2 * M + 1>::value; };
         template <int M> struct Tree<0, M> { static constant constexpr int value = M; };
         kernel void k(device int* out) { out[0] = Tree<40, 0>::value; }",
    )
}

fn launch(kernel: &Kernel, group: u32, factor: u32) {
    let mut out = kernel.device().buffer::<u32>(N as usize).unwrap();
    let stream = kernel.device().stream().unwrap();
    // SAFETY: the kernel writes one element a thread.
    #[allow(unsafe_code)]
    unsafe { kernel.launch(&stream, Grid::threads(N).group(group), (&mut out,)) }.unwrap().wait().unwrap();
    for (i, value) in out.to_vec().unwrap().into_iter().enumerate() {
        assert_eq!(value, (i as u32).wrapping_mul(factor), "element {i}");
    }
}

#[test]
fn sources_and_kernels_are_compiled_in_the_background() {
    let device = Device::cpu().unwrap();
    let names: Vec<String> = (0..6).map(|n| format!("background_{n}")).collect();
    let of = |n: usize| device.compile_async(source(&names[n], n as u32 + 3));
    let compilations: Vec<Compilation<Library>> = (0..names.len()).map(of).collect();
    for (n, compilation) in compilations.into_iter().enumerate() {
        let kernel = block_on(async {
            let kernel = compilation.await?.kernel_async(&names[n], KernelOptions::new()).await?;
            kernel.prepare_async(64).await?;
            Ok::<_, Error>(kernel)
        });
        launch(&kernel.unwrap(), 64, n as u32 + 3);
    }
}

#[test]
fn errors_of_the_background_are_those_of_the_foreground() {
    let device = Device::cpu().unwrap();
    let wrong = Source::named("wrong.metal", "kernel void k(device float* out) { out[0] = nothing; }");
    let compilation = device.compile_async(&wrong);
    let (background, foreground) = (compilation.wait().unwrap_err(), device.compile(&wrong).unwrap_err());
    assert_eq!(background.to_string(), foreground.to_string());
    assert!(compilation.is_done() && !compilation.cancel());
    // The result stays.
    assert!(matches!(compilation.wait(), Err(Error::Compile(_))));
    let library = device.compile(source("errors", 1)).unwrap();
    let missing = library.kernel_async("other", KernelOptions::new()).wait().unwrap_err();
    assert!(missing.to_string().contains("other"), "{missing}");
    let size = library.kernel("errors").unwrap().prepare_async(5000).wait().unwrap_err();
    assert!(matches!(size, Error::InvalidArgument(_)), "{size}");
}

#[test]
fn a_cancelled_compilation_ends_and_others_go_on() {
    let device = Device::cpu().unwrap();
    // More than there are threads, so that some wait.
    let compilations: Vec<_> = (0..40).map(|_| device.compile_async(endless())).collect();
    for compilation in &compilations {
        assert!(compilation.cancel() && !compilation.cancel() && compilation.is_done());
        assert!(matches!(compilation.wait(), Err(Error::Cancelled)));
    }
    let dropped: Vec<_> = (0..40).map(|_| device.compile_async(endless())).collect();
    drop(dropped);
    // Its result would never come behind the others.
    let library = device.compile_async(source("after_cancellation", 9)).wait().unwrap();
    launch(&library.kernel("after_cancellation").unwrap(), 32, 9);
    // A cancellation is no failure of the compiler.
    assert_eq!(device.health().of(Component::Compiler), Status::Healthy);
}

#[test]
fn a_prepared_kernel_compiles_nothing_at_its_first_launch() {
    let device = Device::cpu().unwrap();
    // Of no earlier run of this test, so that no code is in the cache.
    let factor = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos();
    let kernel = |name: &str| device.compile(source(name, factor)).unwrap().kernel(name).unwrap();
    let (prepared, other) = (kernel("prepared"), kernel("not_prepared"));
    let group = 96;
    assert!(Compilations::during(|| prepared.prepare(group).unwrap()) > 0);
    assert_eq!(prepared.is_optimized(group).unwrap(), Some(true));
    assert_eq!(Compilations::during(|| launch(&prepared, group, factor)), 0);
    assert!(Compilations::during(|| launch(&other, group, factor)) > 0);
    let error = prepared.prepare(2048).unwrap_err().to_string();
    assert!(error.contains("prepared") && error.contains("2048"), "{error}");
}

#[test]
fn reserved_memory_is_allocated_without_the_driver() {
    let device = Device::cpu().unwrap();
    let pool = device.pool();
    let (len, count) = (300_000, 5);
    assert_eq!(pool.reserve(len * 4, Storage::Shared, count).unwrap(), count);
    assert_eq!(pool.reserve(len * 4, Storage::Shared, count).unwrap(), 0);
    let before = pool.stats();
    let buffers: Vec<_> = (0..count).map(|_| device.buffer::<f32>(len as usize).unwrap()).collect();
    let after = pool.stats();
    assert_eq!((after.misses - before.misses, after.hits - before.hits), (0, count));
    assert!(buffers.iter().all(|buffer| buffer.to_vec().unwrap().iter().all(|value| *value == 0.0)));
    let limit = pool.limits().idle_bytes;
    assert!(pool.reserve(limit, Storage::Shared, 3).unwrap() <= 1);
    assert!(matches!(pool.reserve(u64::MAX, Storage::Shared, 1), Err(Error::InvalidArgument(_))));
}
