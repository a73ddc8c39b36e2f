//! Latency of launches and copies, compared with loops of CUDA driver calls.
#![allow(unsafe_code)] // launches and C functions

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::{CudaContext, result, sys};
use elinvar::{Args, Completion, Device, Graph, Grid, HostAccess, Kernel, Stream};

use super::super::carried::compile;
use super::nvrtc::{Module, failed};
use super::{Context, Measured, gpu};
use crate::failure::Result;
use crate::report::median;

const LAUNCHES: usize = 1000;
const ROUNDS: usize = 50;
const KERNELS: &str = include_str!("../kernels/launches.metal");
/// Size of a copy in bytes.
const COPY: usize = 4 << 30;

/// Median times per launch: of submission, and until completion.
struct Launches {
    handed: u64,
    ended: u64,
}

fn launches(mut run: impl FnMut() -> Result<(u64, u64)>) -> Result<Launches> {
    run()?;
    let times = (0..ROUNDS).map(|_| run()).collect::<Result<Vec<_>>>()?;
    let per_launch = |times: Vec<u64>| median(times) / LAUNCHES as u64;
    let (handed, ended): (Vec<u64>, Vec<u64>) = times.into_iter().unzip();
    Ok(Launches { handed: per_launch(handed), ended: per_launch(ended) })
}

/// Calls of the CUDA driver.
fn bare() -> Result<Option<Launches>> {
    let Some(module) = Module::new("empty", &[])? else { return Ok(None) };
    let times = launches(|| {
        module.enter()?;
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            // SAFETY: the kernel has no parameters and an empty body.
            unsafe { module.launch([1; 3], [32, 1, 1], &mut []) }.map_err(failed)?;
        }
        let handed = start.elapsed();
        module.synchronize()?;
        Ok((handed.as_nanos() as u64, start.elapsed().as_nanos() as u64))
    })?;
    Ok(Some(times))
}

/// Elinvar, in one submission and in separate ones.
fn ours(context: &Context) -> Result<[Launches; 2]> {
    let device = gpu(context)?;
    let kernel = compile(device, "launches.metal", KERNELS)?.kernel("empty")?;
    let stream = device.stream()?;
    let grid = Grid::threads(32).group(32);
    let commands = launches(|| {
        let start = Instant::now();
        let mut commands = stream.command_buffer();
        for _ in 0..LAUNCHES {
            // SAFETY: the kernel has no parameters and an empty body.
            unsafe { commands.launch(&kernel, grid.clone(), ()) }?;
        }
        let done = commands.submit()?;
        let handed = start.elapsed();
        done.wait()?;
        Ok((handed.as_nanos() as u64, start.elapsed().as_nanos() as u64))
    })?;
    let singly = launches(|| {
        let start = Instant::now();
        let last = one_by_one(&kernel, &stream, &grid, || ())?;
        let handed = start.elapsed();
        last.map(|done| done.wait()).transpose()?;
        Ok((handed.as_nanos() as u64, start.elapsed().as_nanos() as u64))
    })?;
    Ok([commands, singly])
}

/// Launches one by one; returns the last completion.
fn one_by_one<A: Args>(
    kernel: &Kernel,
    stream: &Stream,
    grid: &Grid,
    mut args: impl FnMut() -> A,
) -> Result<Option<Completion>> {
    let mut last = None;
    for _ in 0..LAUNCHES {
        // SAFETY: the kernels of this file stay within their arguments.
        last = Some(unsafe { kernel.launch(stream, grid.clone(), args()) }?);
    }
    Ok(last)
}

fn measured(context: &Context, size: &str, pick: fn(&Launches) -> u64) -> Result<Measured> {
    let [commands, singly] = ours(context)?;
    let bare = bare()?;
    Ok(Measured {
        size: format!("{size} of {LAUNCHES} empty launches in one submission; stage: one by one"),
        median_ns: pick(&commands),
        baselines: bare.map(|bare| ("bare", pick(&bare))).into_iter().collect(),
        stages: vec![("one by one".into(), pick(&singly))],
        ..Measured::default()
    })
}

/// Host time to submit one of many launches.
pub(in super::super) fn launch(context: &Context) -> Result<Measured> {
    measured(context, "handing over one", |launches| launches.handed)
}

/// Time per launch until the last of many has completed.
pub(in super::super) fn launches_ended(context: &Context) -> Result<Measured> {
    measured(context, "one", |launches| launches.ended)
}

/// Times of copies of this size within device memory.
pub(super) fn copies(device: &Device, bytes: usize, rounds: usize) -> Result<Vec<u64>> {
    let stream = device.stream()?;
    let source = device.buffer_for::<u8>(bytes, HostAccess::Never)?;
    let mut target = device.buffer_for::<u8>(bytes, HostAccess::Never)?;
    let copy = || {
        let timing = stream.copy(&source, &mut target)?.wait()?;
        Ok(timing.end_ns - timing.start_ns)
    };
    std::iter::repeat_with(copy).take(rounds).collect()
}

/// A copy within the device's memory.
pub(in super::super) fn copy(context: &Context) -> Result<Measured> {
    let device = gpu(context)?;
    let ours = copies(device, COPY, ROUNDS)?;
    let mut theirs = Vec::new();
    if let Some(module) = Module::new("empty", &[])? {
        module.enter()?;
        let allocate = || {
            // SAFETY: freed below, after the copies have completed.
            unsafe { result::malloc_sync(COPY) }.map_err(failed)
        };
        let (from, to) = (allocate()?, allocate()?);
        for _ in 0..ROUNDS {
            let copy = || {
                // SAFETY: two allocations of this size.
                unsafe { result::memcpy_dtod_async(to, from, COPY, module.stream) }
            };
            theirs.push(module.timed(copy)?);
        }
        // SAFETY: as above.
        unsafe { result::free_sync(from).and(result::free_sync(to)) }.map_err(failed)?;
    }
    Ok(Measured {
        size: "4 GiB, read and written".into(),
        median_ns: median(ours),
        bytes: Some(2 * COPY as u64),
        baselines: (!theirs.is_empty()).then(|| ("bare", median(theirs))).into_iter().collect(),
        ..Measured::default()
    })
}

/// 1000 small launches of a graph until the last has completed, compared with separate launches.
pub(in super::super) fn graph(context: &Context) -> Result<Measured> {
    let device = gpu(context)?;
    let kernel = compile(device, "launches.metal", KERNELS)?.kernel("step_k")?;
    let stream = device.stream()?;
    let grid = Grid::threads(1024).group(256);
    let mut x = device.buffer::<u32>(1024)?;
    let mut graph = Graph::new();
    for k in 0..LAUNCHES {
        // SAFETY: thread i modifies element i, and there are 1024 of each.
        unsafe { graph.launch(&kernel, grid.clone(), (&mut x, k as u32)) }?;
    }
    let mut plan = graph.plan()?;
    let (mut replayed, mut singly) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        // SAFETY: as above.
        unsafe { plan.run(&stream) }?.wait()?;
        replayed.push(start.elapsed().as_nanos() as u64);
        let start = Instant::now();
        let mut last = None;
        for k in 0..LAUNCHES {
            // SAFETY: as above.
            last = Some(unsafe { kernel.launch(&stream, grid.clone(), (&mut x, k as u32)) }?);
        }
        last.map(|done| done.wait()).transpose()?;
        singly.push(start.elapsed().as_nanos() as u64);
    }
    Ok(Measured {
        size: format!("{LAUNCHES} launches of 1024 threads, each behind the one before"),
        median_ns: median(replayed),
        baselines: vec![("relaunch", median(singly))],
        ..Measured::default()
    })
}

/// A copy between pageable host memory and device memory by the CUDA driver.
type Transfer<'b> = Box<dyn FnMut() -> Result<()> + 'b>;

/// Device memory of the CUDA driver, freed when dropped.
struct Memory {
    context: Arc<CudaContext>,
    address: sys::CUdeviceptr,
}

impl Memory {
    fn new(bytes: usize) -> Result<Self> {
        let context = CudaContext::new(0).map_err(failed)?;
        // SAFETY: freed in `drop`, after synchronous copies.
        let address = unsafe { result::malloc_sync(bytes) }.map_err(failed)?;
        Ok(Self { context, address })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let bound = self.context.bind_to_thread();
        // SAFETY: this value owns the memory, and no copy is pending. After an error it is left until the process ends.
        let _left = bound.and_then(|()| unsafe { result::free_sync(self.address) });
    }
}

/// Copies to the device.
pub(in super::super) fn uploads(source: &[u8]) -> Result<Transfer<'_>> {
    let memory = Memory::new(source.len())?;
    Ok(Box::new(move || {
        memory.context.bind_to_thread().map_err(failed)?;
        // SAFETY: the allocation has the size of the source.
        unsafe { result::memcpy_htod_sync(memory.address, source) }.map_err(failed)
    }))
}

/// Copies from the device.
pub(in super::super) fn downloads(target: &mut [u8]) -> Result<Transfer<'_>> {
    let memory = Memory::new(target.len())?;
    Ok(Box::new(move || {
        memory.context.bind_to_thread().map_err(failed)?;
        // SAFETY: the allocation has the size of the target.
        unsafe { result::memcpy_dtoh_sync(target, memory.address) }.map_err(failed)
    }))
}
