//! The `compile` suite: time from MSL text to the end of the first dispatch, with different states of the cache.
//!
//! Each measurement has its own cache folder. The compiler has been located before, and the worker threads run. The compiler
//! reports the durations of its stages (`elinvar_msl::stage`).

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use elinvar::{Device, Dim3, Source};
use elinvar_cache::Cache;
use elinvar_driver::Driver;
use elinvar_driver_cpu::CpuDriver;

use super::{Context, Measured, cpu};
use crate::failure::{Failure, Result};
use crate::report::median;
use crate::stages::Stages;

const RUNS: u32 = 5;
const LIMIT: u64 = 1 << 30;

/// The first compilation on a machine: the cache is empty.
pub(super) fn first(_: &Context) -> Result<Measured> {
    measure("empty cache", |run, _| {
        let folder = folder()?;
        compile(folder.path(), &run.to_string())
    })
}

/// A source that is compiled for the first time: the cache has only the precompiled header.
pub(super) fn cold(_: &Context) -> Result<Measured> {
    measure("new source", |run, shared| {
        if run == 0 {
            compile(shared, "before")?;
        }
        compile(shared, &run.to_string())
    })
}

/// A source that was compiled before.
pub(super) fn cached(_: &Context) -> Result<Measured> {
    measure("known source", |run, shared| {
        if run == 0 {
            compile(shared, "same")?;
        }
        compile(shared, "same")
    })
}

type Times = (u64, Vec<(String, u64)>);

fn measure(what: &str, mut run: impl FnMut(u32, &Path) -> Result<Times>) -> Result<Measured> {
    let shared = folder()?;
    let runs: Vec<Times> = (0..RUNS).map(|i| run(i, shared.path())).collect::<Result<_>>()?;
    let mut stages: Vec<(String, Vec<u64>)> = Vec::new();
    for (name, ns) in runs.iter().flat_map(|(_, stages)| stages) {
        match stages.iter_mut().find(|(known, _)| known == name) {
            Some((_, times)) => times.push(*ns),
            None => stages.push((name.clone(), vec![*ns])),
        }
    }
    Ok(Measured {
        size: format!("{what}, {RUNS} times"),
        median_ns: median(runs.iter().map(|(total, _)| *total).collect()),
        stages: stages.into_iter().map(|(name, times)| (name, median(times))).collect(),
        ..Measured::default()
    })
}

pub(super) fn folder() -> Result<tempfile::TempDir> {
    let cannot = |error| Failure::from(elinvar::Error::Environment(format!("cannot make a folder: {error}")));
    tempfile::tempdir().map_err(cannot)
}

/// A kernel of the `cpu` suite from its text to loaded machine code, where only the precompiled header is in the cache.
pub(super) fn kernel(problem: cpu::Build) -> Result<Measured> {
    let problem = problem();
    measure("new source", |run, shared| {
        if run == 0 {
            compile(shared, "before")?;
        }
        let device = device(shared)?;
        let text = format!("{}\nconstant int run_{run} = 0;\n", problem.metal);
        let source = Source::named(format!("{}.metal", problem.file), text);
        timed(|| {
            let [x, y, z] = problem.group.map(|size| size as u32);
            let library = device.compile(&source)?;
            library.pipeline(problem.kernel, &Default::default())?.prepare(Dim3::new(x, y, z))
        })
    })
}

/// A chain of products in a field of 254 bits: long scalar code.
pub(super) fn montgomery(_: &Context) -> Result<Measured> {
    long("montgomery")
}

/// Poseidon2 in that field.
pub(super) fn poseidon2(_: &Context) -> Result<Measured> {
    long("poseidon2")
}

/// A kernel from its text to the code of its first launch; and as a stage, until its optimized code is there.
fn long(kernel: &str) -> Result<Measured> {
    let text = include_str!("kernels/field.metal");
    measure("first launch of new source; stage: optimized", |_, _| {
        let folder = folder()?;
        compile(folder.path(), "before")?;
        let (device, source) = (device(folder.path())?, Source::named("field.metal", text));
        let (start, group) = (Instant::now(), Dim3::from(64));
        let pipeline = device.compile(&source)?.pipeline(kernel, &Default::default())?;
        pipeline.prepare(group)?;
        let first = start.elapsed().as_nanos() as u64;
        pipeline.optimize(group)?;
        Ok((first, vec![("optimized".into(), start.elapsed().as_nanos() as u64)]))
    })
}

/// Threadgroup sizes, in one to three dimensions.
const SIZES: [[u32; 3]; 8] =
    [[256, 1, 1], [64, 1, 1], [128, 1, 1], [512, 1, 1], [1024, 1, 1], [32, 8, 1], [64, 4, 1], [32, 4, 2]];

/// The softmax of the `cpu` suite for [`SIZES`].
pub(super) fn softmax_sizes(_: &Context) -> Result<Measured> {
    sizes(include_str!("kernels/softmax.metal"), "softmax")
}

/// The tiled matrix product of the `cpu` suite for [`SIZES`].
pub(super) fn matmul_tiled_sizes(_: &Context) -> Result<Measured> {
    sizes(include_str!("kernels/matmul.metal"), "matmul_tiled")
}

/// A kernel from its text to loaded machine code for all [`SIZES`], where only the precompiled header is in the cache.
fn sizes(text: &str, kernel: &str) -> Result<Measured> {
    // A cache for each run: machine code of equal IR is cached, too.
    measure("new source", |_, _| {
        let folder = folder()?;
        compile(folder.path(), "before")?;
        let (device, source) = (device(folder.path())?, Source::named("sizes.metal", text));
        timed(|| {
            let pipeline = device.compile(&source)?.pipeline(kernel, &Default::default())?;
            SIZES.iter().try_for_each(|[x, y, z]| pipeline.prepare(Dim3::new(*x, *y, *z)))
        })
    })
}

/// Total time, and time by stage.
fn timed(run: impl FnOnce() -> elinvar::Result<()>) -> Result<Times> {
    let stages = Stages::default();
    let total = stages.collect(|| {
        let start = Instant::now();
        run().map(|()| start.elapsed().as_nanos() as u64)
    })?;
    Ok((total, stages.take()))
}

/// The CPU with a cache folder.
pub(super) fn device(folder: &Path) -> Result<Arc<dyn elinvar_driver::Device>> {
    let cache = Cache::at(folder, LIMIT, CpuDriver::CACHE_VERSION);
    let device = CpuDriver::with_cache(1, &cache).devices()?.into_iter().next();
    Ok(device.ok_or_else(|| elinvar::Error::DeviceLost("no CPU device".into()))?)
}

/// Compiles and runs `vector_add` with a cache folder and a unique declaration in the source.
#[allow(unsafe_code)] // launches
fn compile(folder: &Path, unique: &str) -> Result<Times> {
    let device = Device::new(device(folder)?);
    let (a, mut out) = (device.buffer_with_data(&[1.0f32; 64])?, device.buffer::<f32>(64)?);
    let stream = device.stream()?;
    let text = format!("{}\nconstant int run_{unique} = 0;\n", super::checks::VECTOR_ADD);
    let source = Source::named("vector_add.metal", text);
    let times = timed(|| {
        let kernel = device.compile(source)?.kernel("vector_add")?;
        let grid = elinvar::Grid::threads(64).group(64);
        // SAFETY: the kernel stays below n, and each buffer has n elements.
        unsafe { kernel.launch(&stream, grid, (&a, &a, &mut out, 64u32)) }?.wait().map(drop)
    })?;
    super::compare("vector_add", &out.to_vec()?, &[2.0; 64])?;
    Ok(times)
}
