//! Compiled pipelines outlive the process: number of pipelines that the stand-ins for Apple's libraries compile, over several drivers with
//! one cache.
#![cfg(elinvar_apple)]
#![allow(unsafe_code)] // calls the stand-in's C functions

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use elinvar_cache::Cache;
use elinvar_driver::{
    Binding, Constant, Device, Driver as _, Library, MathMode, PipelineOptions, Scalar, Source, Storage,
};
use elinvar_driver_metal::MetalDriver;
use support::{dispatch, memory, run, whole, words};

unsafe extern "C" {
    fn elinvar_apple_compiled_pipelines() -> usize;
}

const SOURCE: &str = "#include <metal_stdlib>
constant uint N [[function_constant(0)]];
kernel void add_n(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] += N; }
kernel void twice(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] *= 2; }";

fn source() -> Source {
    Source::named("a.metal", SOURCE)
}

fn n(n: u32) -> PipelineOptions {
    let constant = Constant { key: 0.into(), scalar: Scalar::U32, bytes: n.to_ne_bytes().to_vec() };
    PipelineOptions { constants: vec![constant], checked: false, ..PipelineOptions::default() }
}

/// The first device of a new driver, as a new process would have it.
fn device(folder: &Path) -> Arc<dyn Device> {
    let cache = Cache::at(folder, 64 << 20, MetalDriver::CACHE_VERSION);
    MetalDriver::with_cache(&cache).devices().unwrap().swap_remove(0)
}

/// The number of pipelines compiled during a call. Tests that count must not run concurrently.
fn compiled<T>(what: impl FnOnce() -> T) -> (usize, T) {
    // SAFETY: the function has no preconditions.
    let count = || unsafe { elinvar_apple_compiled_pipelines() };
    let before = count();
    let made = what();
    (count() - before, made)
}

/// Checks that the kernel adds this constant.
fn expect_adds(device: &dyn Device, library: &dyn Library, added: u32) {
    let x = memory(device, 400, Storage::Shared);
    let pipeline = library.pipeline("add_n", &n(added)).unwrap();
    let queue = device.queue().unwrap();
    run(&*queue, vec![dispatch(&pipeline, vec![Binding::Memory(whole(&x))], 100, 20)]).unwrap();
    assert!(words(&x).iter().all(|word| *word == added), "{:?}", &words(&x)[..2]);
}

/// Creates the device, including the driver's own kernels, and runs a kernel; returns the number of compiled pipelines.
fn use_all(folder: &Path, source: &Source, added: u32) -> usize {
    compiled(|| {
        let device = device(folder);
        let library = device.compile(source).unwrap();
        expect_adds(&*device, &*library, added);
    })
    .0
}

/// Cache entries that hold archives, sorted by path.
fn archives(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("1")).unwrap().map(|entry| entry.unwrap().path());
    let text = b"elinvar-archive";
    let mut found: Vec<_> = entries
        .filter(|path| path.is_file())
        .filter(|path| std::fs::read(path).unwrap().windows(text.len()).any(|window| window == text))
        .collect();
    found.sort();
    found
}

/// A single test, because the counter is that of the process.
#[test]
fn pipelines_are_compiled_once_and_what_is_damaged_again() {
    // Each device has the driver's own kernels.
    let all = 3 * support::devices().len() + 1;
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path();
    assert_eq!(use_all(cache, &source(), 7), all);
    if archives(cache).is_empty() {
        // The system or the process has no archives, so every run compiles everything.
        assert_eq!(use_all(cache, &source(), 7), all);
        return;
    }
    assert_eq!(archives(cache).len(), all);
    assert_eq!(use_all(cache, &source(), 7), 0, "the second process compiles nothing");
    // Everything that changes the pipeline selects another entry.
    assert_eq!(use_all(cache, &source(), 8), 1, "another constant");
    assert_eq!(use_all(cache, &source(), 7), 0);
    assert_eq!(use_all(cache, &source().math(MathMode::Safe), 7), 1, "another math mode");
    assert_eq!(use_all(cache, &source().define("OTHER", None), 7), 1, "another macro");
    assert_eq!(use_all(cache, &source(), 8), 0);
    let (count, ()) = compiled(|| {
        let device = device(cache);
        let library = device.compile(&source()).unwrap();
        library.pipeline("twice", &n(7)).unwrap();
        library.pipeline("twice", &n(7)).unwrap();
    });
    assert_eq!(count, 1, "another kernel");
    expect_survives_damage(cache, all);
}

fn expect_survives_damage(cache: &Path, all: usize) {
    let entries = archives(cache);
    let intact: Vec<_> = entries.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let damaged = |change: &dyn Fn(&mut Vec<u8>)| {
        for (path, bytes) in entries.iter().zip(&intact) {
            let mut bytes = bytes.clone();
            change(&mut bytes);
            std::fs::write(path, bytes).unwrap();
        }
    };
    for region in 0..16 {
        damaged(&|bytes| {
            let at = bytes.len() * region / 16;
            bytes[at] ^= 0x55;
        });
        assert_eq!(use_all(cache, &source(), 7), all, "region {region}");
        assert_eq!(use_all(cache, &source(), 7), 0, "rebuilt after region {region}");
    }
    damaged(&|bytes| bytes.truncate(bytes.len() / 2));
    assert_eq!(use_all(cache, &source(), 7), all);
    damaged(&Vec::clear);
    assert_eq!(use_all(cache, &source(), 7), all);
    // An entry with the content of another entry is rejected.
    for (path, bytes) in entries.iter().zip(intact.iter().cycle().skip(1)) {
        std::fs::write(path, bytes).unwrap();
    }
    assert_eq!(use_all(cache, &source(), 7), all);
    assert_eq!(use_all(cache, &source(), 7), 0);
}
