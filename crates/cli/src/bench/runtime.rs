//! The `runtime` suite: overhead of the runtime, with empty or nearly empty kernels.

use std::time::Instant;

use elinvar::{Buffer, Device, Graph, Grid, HostAccess, Kernel, PoolLimits, Stream, TraceDetail};

use super::carried::compile;
use super::{Context, Measured};
use crate::failure::Result;
use crate::report::median;

const KERNELS: &str = include_str!("kernels/runtime.metal");
const TIMES: usize = 2000;
const BATCHES: usize = 50;
const BATCH: usize = 1000;
const MIB: usize = 1 << 20;
/// Number of allocations per measurement.
const ALLOCATIONS: usize = 100;

pub(super) fn kernel(device: &Device, name: &str) -> Result<(Kernel, Stream)> {
    let library = compile(device, "runtime.metal", KERNELS)?;
    Ok((library.kernel(name)?, device.stream()?))
}

pub(super) fn timed(count: usize, mut run: impl FnMut() -> Result<()>) -> Result<u64> {
    run()?; // builds what the first run needs
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(median(times))
}

fn measured(size: String, median_ns: u64, baselines: Vec<(&'static str, u64)>) -> Measured {
    Measured { size, median_ns, baselines, ..Measured::default() }
}

/// Time of one allocation and deallocation, with `allocate`.
fn allocation(mut allocate: impl FnMut() -> elinvar::Result<Buffer<u8>>) -> Result<u64> {
    let each = timed(TIMES / 10, || {
        for _ in 0..ALLOCATIONS {
            drop(allocate()?);
        }
        Ok(())
    })?;
    Ok(each / ALLOCATIONS as u64)
}

/// Allocation of an uninitialized buffer of 1 MiB from the pool and from the driver; stages: zeroed, and with a write to each page, as any
/// use starts.
#[allow(unsafe_code)] // uninitialized memory
pub(super) fn alloc_pooled(context: &Context) -> Result<Measured> {
    let device = &context.device;
    // SAFETY: the memory is only accessed by `touch`, which only writes.
    let uninit = || unsafe { device.buffer_uninit::<u8>(MIB, HostAccess::ReadWrite) };
    let zeroed = || device.buffer::<u8>(MIB);
    let touch = |buffer: elinvar::Result<Buffer<u8>>| {
        let mut buffer = buffer?;
        buffer.map_mut()?.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        Ok(buffer)
    };
    let pooled = allocation(uninit)?;
    let mut stages = vec![
        ("pooled, written".to_owned(), allocation(|| touch(uninit()))?),
        ("pooled, zeroed, written".to_owned(), allocation(|| touch(zeroed()))?),
    ];
    let limits = device.pool().limits();
    device.pool().set_limits(PoolLimits { idle_bytes: 0, ..limits });
    let fresh = allocation(uninit);
    let written = [allocation(|| touch(uninit())), allocation(|| touch(zeroed()))];
    device.pool().set_limits(limits);
    let [plain, zeroes] = written;
    stages.extend([("fresh, written".to_owned(), plain?), ("fresh, zeroed, written".to_owned(), zeroes?)]);
    Ok(Measured { stages, ..measured("1 MiB".into(), pooled, vec![("fresh", fresh?)]) })
}

/// Recording of a launch, without submission; stages: the phases of a complete launch, from the trace.
#[allow(unsafe_code)] // launches
pub(super) fn launch_record(context: &Context) -> Result<Measured> {
    let (kernel, stream) = kernel(&context.device, "spin")?;
    let mut out = context.device.buffer::<u32>(64)?;
    let each = timed(BATCHES, || {
        let mut commands = stream.command_buffer();
        for _ in 0..BATCH {
            // SAFETY: 64 threads write one of 64 elements each; moreover, the command buffer is dropped.
            unsafe { commands.launch(&kernel, Grid::threads(64).group(64), (&mut out, 1u32)) }?;
        }
        Ok(())
    })?;
    let trace = context.device.trace();
    trace.start(TIMES * 10);
    for _ in 0..TIMES {
        // SAFETY: 64 threads write one of 64 elements each.
        unsafe { kernel.launch(&stream, Grid::threads(64).group(64), (&mut out, 1u32)) }?.wait()?;
    }
    trace.stop();
    let mean = |(name, stats): (&str, elinvar::StepStats)| {
        (name.to_owned(), stats.time.as_nanos() as u64 / stats.count.max(1))
    };
    let stages = trace.stats().into_iter().map(mean).collect();
    let size = format!("a buffer and a number, {BATCH} launches");
    Ok(Measured { stages, ..measured(size, each / BATCH as u64, Vec::new()) })
}

/// Launch of an empty kernel including the wait, on the host's clock.
pub(super) fn dispatch_roundtrip(context: &Context) -> Result<Measured> {
    let (kernel, stream) = kernel(&context.device, "empty")?;
    let median = timed(TIMES, || launch(&kernel, &stream))?;
    Ok(measured(format!("1 thread, {TIMES} times"), median, Vec::new()))
}

#[allow(unsafe_code)] // launches
fn launch(kernel: &Kernel, stream: &Stream) -> Result<()> {
    // SAFETY: the kernel accesses no memory.
    unsafe { kernel.launch(stream, Grid::threads(1).group(1), ()) }?.wait()?;
    Ok(())
}

/// A command buffer of 1000 empty launches, recorded, submitted and waited for, compared with 1000 single launches.
#[allow(unsafe_code)] // launches
pub(super) fn batch_1000(context: &Context) -> Result<Measured> {
    let (kernel, stream) = kernel(&context.device, "empty")?;
    let together = timed(BATCHES, || {
        let mut commands = stream.command_buffer();
        for _ in 0..BATCH {
            // SAFETY: the kernel accesses no memory.
            unsafe { commands.launch(&kernel, Grid::threads(1).group(1), ()) }?;
        }
        commands.submit()?.wait()?;
        Ok(())
    })?;
    let singly = timed(BATCHES / 5, || (0..BATCH).try_for_each(|_| launch(&kernel, &stream)))?;
    Ok(measured(format!("{BATCH} launches"), together, vec![("singly", singly)]))
}

/// Run of a graph of dependent launches including the wait, compared with launching them; stages: the same in a newly recorded
/// command buffer, and planning of the graph.
#[allow(unsafe_code)] // launches
pub(super) fn graph_replay(context: &Context) -> Result<Measured> {
    const LAUNCHES: usize = 100;
    let (kernel, stream) = kernel(&context.device, "spin")?;
    let mut out = context.device.buffer::<u32>(64)?;
    let grid = || Grid::threads(64).group(64);
    let mut graph = Graph::new();
    for _ in 0..LAUNCHES {
        // SAFETY: 64 threads write one of 64 elements each.
        unsafe { graph.launch(&kernel, grid(), (&mut out, 1u32)) }?;
    }
    let mut plan = graph.plan()?;
    let planned = plan.stats();
    let replay = timed(TIMES / 4, || {
        // SAFETY: as for each launch.
        unsafe { plan.run(&stream) }?.wait()?;
        Ok(())
    })?;
    let relaunch = timed(TIMES / 4, || {
        for _ in 1..LAUNCHES {
            // SAFETY: as above.
            unsafe { kernel.launch(&stream, grid(), (&mut out, 1u32)) }?;
        }
        // SAFETY: as above.
        unsafe { kernel.launch(&stream, grid(), (&mut out, 1u32)) }?.wait()?;
        Ok(())
    })?;
    let commands = timed(TIMES / 4, || {
        let mut commands = stream.command_buffer();
        for _ in 0..LAUNCHES {
            // SAFETY: as above.
            unsafe { commands.launch(&kernel, grid(), (&mut out, 1u32)) }?;
        }
        commands.submit()?.wait()?;
        Ok(())
    })?;
    let submit = plan.stats().submit_time.as_nanos() as u64 / plan.stats().runs.max(1);
    let stages = vec![
        ("a command buffer".to_owned(), commands),
        ("plan".to_owned(), planned.plan_time.as_nanos() as u64),
        ("submit".to_owned(), submit),
    ];
    let size = format!("{LAUNCHES} launches, {} submissions", planned.submissions);
    Ok(Measured { stages, ..measured(size, replay, vec![("relaunch", relaunch)]) })
}

/// Medians of `run` without a trace, with one of launches, and with one of submissions, interleaved.
fn traced(
    device: &Device,
    rounds: usize,
    times: usize,
    mut run: impl FnMut() -> Result<()>,
) -> Result<[u64; 3]> {
    let trace = device.trace();
    let mut all = [const { Vec::new() }; 3];
    for round in 0..rounds {
        // Each comes first in turn.
        for which in (0..3).map(|which| (which + round) % 3) {
            match which {
                0 => trace.stop(),
                1 => trace.start_with(100_000, TraceDetail::Launches),
                _ => trace.start_with(100_000, TraceDetail::Submissions),
            }
            all[which].push(timed(times, &mut run)?);
        }
    }
    trace.stop();
    Ok(all.map(median))
}

fn measured_traced(size: String, [off, launches, submissions]: [u64; 3]) -> Measured {
    let stages = vec![("submissions only".to_owned(), submissions)];
    Measured { stages, ..measured(size, launches, vec![("tracing_off", off)]) }
}

/// The same launches with and without tracing; each thread of the kernel takes some microseconds.
#[allow(unsafe_code)] // launches
pub(super) fn tracing_on(context: &Context) -> Result<Measured> {
    const STEPS: u32 = 10_000;
    const LAUNCHES: usize = 20;
    let (kernel, stream) = kernel(&context.device, "spin")?;
    let mut out = context.device.buffer::<u32>(1)?;
    let run = || {
        for _ in 0..LAUNCHES {
            // SAFETY: one thread writes the only element.
            unsafe { kernel.launch(&stream, Grid::threads(1).group(1), (&mut out, STEPS)) }?.wait()?;
        }
        Ok(())
    };
    let all = traced(&context.device, 20, TIMES / 100, run)?;
    Ok(measured_traced(format!("1 thread, {STEPS} steps"), all.map(|ns| ns / LAUNCHES as u64)))
}

/// Launch of an empty kernel including the wait, with and without tracing.
pub(super) fn trace_roundtrip(context: &Context) -> Result<Measured> {
    let (kernel, stream) = kernel(&context.device, "empty")?;
    let all = traced(&context.device, 20, TIMES, || launch(&kernel, &stream))?;
    Ok(measured_traced("1 thread".into(), all))
}

/// A command buffer of 1000 launches, recorded, submitted and waited for, with and without tracing.
#[allow(unsafe_code)] // launches
pub(super) fn trace_batch_1000(context: &Context) -> Result<Measured> {
    let (kernel, stream) = kernel(&context.device, "empty")?;
    let run = || {
        let mut commands = stream.command_buffer();
        for _ in 0..BATCH {
            // SAFETY: the kernel accesses no memory.
            unsafe { commands.launch(&kernel, Grid::threads(1).group(1), ()) }?;
        }
        commands.submit()?.wait()?;
        Ok(())
    };
    let all = traced(&context.device, 20, BATCHES / 2, run)?;
    Ok(measured_traced(format!("{BATCH} empty launches"), all))
}

/// As many single-thread kernels as streams, on a stream each, compared with one stream.
#[allow(unsafe_code)] // launches
pub(super) fn streams<const N: usize>(context: &Context) -> Result<Measured> {
    const STEPS: u32 = 200_000;
    let (kernel, first) = kernel(&context.device, "spin")?;
    let others = (1..N).map(|_| context.device.stream()).collect::<elinvar::Result<Vec<_>>>()?;
    let several: Vec<&Stream> = std::iter::once(&first).chain(&others).collect();
    let mut outs = (0..N).map(|_| context.device.buffer::<u32>(1)).collect::<elinvar::Result<Vec<_>>>()?;
    let mut time = |streams: &[&Stream]| {
        timed(TIMES / 20, || {
            let mut done = Vec::new();
            for (stream, out) in streams.iter().zip(&mut outs) {
                // SAFETY: one thread writes the only element.
                done.push(unsafe { kernel.launch(stream, Grid::threads(1).group(1), (out, STEPS)) }?);
            }
            done.iter().try_for_each(|done| done.wait().map(drop))?;
            Ok(())
        })
    };
    let (one, all) = (time(&[&first; N])?, time(&several)?);
    let size = format!("{N} launches of 1 thread, {STEPS} steps; {} workers", context.threads);
    Ok(measured(size, all, vec![("streams_1", one)]))
}
