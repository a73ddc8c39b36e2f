//! Targets of memory: hits of the pool, storage modes, transfers.

use std::time::Instant;

use elinvar::{Buffer, Device, DeviceKind, Error, Grid, HostAccess, PoolLimits, Storage};

use super::super::carried::compile;
use super::super::checks::VECTOR_ADD;
use super::super::runtime::timed;
use super::super::{Context, cuda};
use super::overhead;
use crate::failure::Result;
use crate::report::median;

/// Number of allocations, and of buffers that are live at a time.
const ALLOCATIONS: usize = 4000;
const LIVE: usize = 16;
/// Least and greatest size, as exponents of two.
const SIZES: std::ops::Range<u32> = 12..22;
/// Bytes of a transfer.
const TRANSFER: usize = 64 << 20;
const ROUNDS: usize = 15;

/// Allocation and release of 1 MiB from the pool, in milliseconds.
#[allow(unsafe_code)] // uninitialized memory
pub(super) fn allocation(context: &Context) -> Result<f64> {
    const EACH: usize = 100;
    let ns = timed(200, || {
        for _ in 0..EACH {
            // SAFETY: the memory is not read.
            drop(unsafe { context.device.buffer_uninit::<u8>(1 << 20, HostAccess::ReadWrite) }?);
        }
        Ok(())
    })?;
    Ok(ns as f64 / EACH as f64 / 1e6)
}

/// Share of allocations of random sizes that the pool serves, in percent.
#[allow(unsafe_code)] // uninitialized memory
pub(super) fn hits(context: &Context) -> Result<f64> {
    let pool = context.device.pool();
    let limits = pool.limits();
    pool.set_limits(PoolLimits { idle_bytes: 0, ..limits });
    pool.set_limits(limits);
    let before = pool.stats();
    let mut live: Vec<Option<Buffer<u8>>> = (0..LIVE).map(|_| None).collect();
    let mut state = 1_u32;
    let mut random = move |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % below
    };
    for _ in 0..ALLOCATIONS {
        // Uniform in the logarithm, with all sizes between two powers.
        let power = 1_u32 << (SIZES.start + random(SIZES.end - SIZES.start));
        let bytes = (power + random(power.min(1 << 16)) * (power >> 16).max(1)) as usize;
        let place = &mut live[random(LIVE as u32) as usize];
        *place = None;
        // SAFETY: the memory is not read.
        *place = Some(unsafe { context.device.buffer_uninit(bytes, HostAccess::ReadWrite) }?);
    }
    let after = pool.stats();
    let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
    Ok(100.0 * hits as f64 / (hits + misses).max(1) as f64)
}

/// Speedup by device memory against shared memory, in percent.
#[allow(unsafe_code)] // launches
pub(super) fn storage_mode(context: &Context) -> Result<f64> {
    const N: usize = 16 << 20;
    let device = &context.device;
    if device.caps().features.unified_memory {
        let why = "all storage modes of a device with unified memory are the same memory";
        return Err(Error::unsupported(why).into());
    }
    let (kernel, stream) =
        (compile(device, "vector_add.metal", VECTOR_ADD)?.kernel("vector_add")?, device.stream()?);
    let time = |allocate: &dyn Fn() -> elinvar::Result<Buffer<f32>>| -> Result<u64> {
        let (mut a, mut b, mut out) = (allocate()?, allocate()?, allocate()?);
        a.fill(1.0)?;
        b.fill(2.0)?;
        let mut times = Vec::new();
        for round in 0..=ROUNDS {
            // SAFETY: each buffer has `N` elements, the size passed to the kernel.
            let done =
                unsafe { kernel.launch(&stream, Grid::threads(N).group(256), (&a, &b, &mut out, N as u32)) }?;
            let timing = done.wait()?;
            times.extend((round > 0).then_some(timing.end_ns - timing.start_ns));
        }
        super::super::compare("vector_add", &out.to_vec()?, &vec![3.0; N])?;
        Ok(median(times))
    };
    let shared = time(&|| device.buffer_in(N, Storage::Shared))?;
    let private = time(&|| device.buffer_for(N, HostAccess::Never))?;
    Ok(overhead(shared, private))
}

/// A copy of the baseline.
type Copy<'b> = Box<dyn FnMut() -> Result<()> + 'b>;

/// A copy within the host's memory.
fn memcpy<'b>(source: &'b [u8], target: &'b mut [u8]) -> Copy<'b> {
    Box::new(|| {
        std::hint::black_box(&mut *target).copy_from_slice(std::hint::black_box(source));
        Ok(())
    })
}

/// Medians of both in turns, as the overhead of the first in percent.
fn in_turns(mut ours: impl FnMut() -> Result<()>, mut bare: Copy<'_>) -> Result<f64> {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        for (who, times) in times.iter_mut().enumerate() {
            let start = Instant::now();
            if who == 0 {
                ours()?
            } else {
                bare()?
            }
            // The first round touches the memory.
            times.extend((round > 0).then(|| start.elapsed().as_nanos() as u64));
        }
    }
    let [ours, bare] = times.map(median);
    Ok(overhead(ours, bare))
}

fn private(device: &Device) -> elinvar::Result<Buffer<u8>> {
    device.buffer_for(TRANSFER, HostAccess::Never)
}

/// Bytes that depend on their place.
fn bytes() -> Vec<u8> {
    (0..TRANSFER).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

/// Overhead of an upload, in percent.
pub(super) fn upload(context: &Context) -> Result<f64> {
    let (source, mut target) = (bytes(), private(&context.device)?);
    let mut other = vec![0_u8; TRANSFER];
    let bare = match context.device.kind() {
        DeviceKind::Cuda => cuda::uploads(&source)?,
        _ => memcpy(&source, &mut other),
    };
    let overhead = in_turns(|| Ok(target.write(&source)?), bare)?;
    same(&target.to_vec()?, &source)?;
    Ok(overhead)
}

/// Overhead of a download, in percent.
pub(super) fn download(context: &Context) -> Result<f64> {
    let (source, mut device) = (bytes(), private(&context.device)?);
    device.write(&source)?;
    let (mut target, mut other) = (vec![0_u8; TRANSFER], vec![0_u8; TRANSFER]);
    let bare = match context.device.kind() {
        DeviceKind::Cuda => cuda::downloads(&mut other)?,
        _ => memcpy(&source, &mut other),
    };
    let overhead = in_turns(|| Ok(device.read(&mut target)?), bare)?;
    same(&target, &source)?;
    Ok(overhead)
}

fn same(received: &[u8], sent: &[u8]) -> Result<()> {
    match received == sent {
        true => Ok(()),
        false => Err(Error::DeviceLost("a transfer has changed its bytes".into()).into()),
    }
}
