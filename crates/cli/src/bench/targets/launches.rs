//! Targets of launches: latency, command buffers, argument binding, independent work on several streams.

use std::time::Instant;

use elinvar::{Arg, Buffer, CommandBuffer, Completion, Device, Grid, Kernel, Stream};

use super::super::carried::compile;
use super::super::checks::VECTOR_ADD;
use super::super::runtime::{self, timed};
use super::super::{Context, compare};
use crate::allocations;
use crate::failure::Result;
use crate::report::median;

const KERNELS: &str = include_str!("../kernels/targets.metal");
const GROUP: usize = 256;
const TIMES: usize = 200;
/// Number of command buffers of which allocations and reuse are counted.
const COMMAND_BUFFERS: u64 = 1000;
/// Number of command buffers in flight while reuse is counted.
const IN_FLIGHT: usize = 32;
/// Number of arguments of the kernel that is bound.
const ARGUMENTS: usize = 16;

/// An addition of 1 Mi floats, in milliseconds.
pub(super) fn vector_add(context: &Context) -> Result<f64> {
    Ok(addition(context, 1 << 20)? as f64 / 1e6)
}

/// An addition by one threadgroup, in microseconds.
pub(super) fn launch(context: &Context) -> Result<f64> {
    Ok(addition(context, GROUP)? as f64 / 1e3)
}

/// Time of an addition of vectors, whose result is compared.
#[allow(unsafe_code)] // launches
fn addition(context: &Context, n: usize) -> Result<u64> {
    let device = &context.device;
    let kernel = compile(device, "vector_add.metal", VECTOR_ADD)?.kernel("vector_add")?;
    let stream = device.stream()?;
    let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let b: Vec<f32> = (0..n).map(|i| (i % 1000) as f32).collect();
    let (left, right, mut out) =
        (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?, device.buffer::<f32>(n)?);
    let ns = timed(TIMES, || {
        // SAFETY: each buffer has `n` elements, the size passed to the kernel.
        unsafe {
            kernel.launch(&stream, Grid::threads(n).group(GROUP), (&left, &right, &mut out, n as u32))
        }?
        .wait()?;
        Ok(())
    })?;
    let sums: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    compare("vector_add", &out.to_vec()?, &sums)?;
    Ok(ns)
}

/// A kernel that writes its only element.
struct One {
    kernel: Kernel,
    stream: Stream,
    out: Buffer<u32>,
}

impl One {
    fn new(device: &Device) -> Result<Self> {
        let (kernel, stream) = runtime::kernel(device, "spin")?;
        Ok(Self { kernel, stream, out: device.buffer(1)? })
    }

    #[allow(unsafe_code)] // launches
    fn encoded(&mut self) -> Result<CommandBuffer> {
        let mut commands = self.stream.command_buffer();
        // SAFETY: one thread writes the only element.
        unsafe { commands.launch(&self.kernel, Grid::threads(1).group(1), (&mut self.out, 1u32)) }?;
        Ok(commands)
    }

    fn submitted(&mut self) -> Result<Completion> {
        Ok(self.encoded()?.submit()?)
    }
}

/// Creation of a command buffer with a launch, in microseconds.
pub(super) fn command_buffer(context: &Context) -> Result<f64> {
    const EACH: u64 = 100;
    let mut one = One::new(&context.device)?;
    let ns = timed(TIMES, || (0..EACH).try_for_each(|_| one.encoded().map(drop)))?;
    Ok(ns as f64 / EACH as f64 / 1e3)
}

/// Allocations that reuse saves, in percent: of command buffers one after the other, against as many that exist at the same time.
pub(super) fn allocations_saved(context: &Context) -> Result<f64> {
    let mut one = One::new(&context.device)?;
    for _ in 0..IN_FLIGHT {
        one.submitted()?.wait()?;
    }
    let (reusing, ended) = allocations::count(|| -> Result<()> {
        (0..COMMAND_BUFFERS).try_for_each(|_| Ok(one.submitted()?.wait().map(drop)?))
    });
    ended?;
    let (fresh, ended) = allocations::count(|| -> Result<()> {
        let all = (0..COMMAND_BUFFERS).map(|_| one.encoded()).collect::<Result<Vec<_>>>()?;
        all.into_iter().try_for_each(|commands| Ok(commands.submit()?.wait().map(drop)?))
    });
    ended?;
    Ok(100.0 * (1.0 - reusing as f64 / fresh.max(1) as f64))
}

/// Share of command buffers that reused a command list, in percent.
pub(super) fn reuse(context: &Context) -> Result<f64> {
    let mut one = One::new(&context.device)?;
    let before = context.device.command_list_stats();
    let mut pending = std::collections::VecDeque::new();
    for _ in 0..COMMAND_BUFFERS {
        if pending.len() == IN_FLIGHT {
            pending.pop_front().map(|oldest: Completion| oldest.wait()).transpose()?;
        }
        pending.push_back(one.submitted()?);
    }
    pending.iter().try_for_each(|last| last.wait().map(drop))?;
    let after = context.device.command_list_stats();
    let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
    Ok(100.0 * hits as f64 / (hits + misses).max(1) as f64)
}

/// Time to encode a launch with many arguments, less one with a single argument, for each of the others; in nanoseconds.
#[allow(unsafe_code)] // launches
pub(super) fn binding(context: &Context) -> Result<f64> {
    const EACH: usize = 100;
    let device = &context.device;
    let library = compile(device, "targets.metal", KERNELS)?;
    let stream = device.stream()?;
    let mut buffers: Vec<Buffer<u32>> =
        (0..ARGUMENTS).map(|_| device.buffer(64)).collect::<elinvar::Result<_>>()?;
    let args: Vec<Arg> = buffers.iter_mut().map(Arg::from).collect();
    let time = |name: &str, args: &[Arg]| {
        let kernel = library.kernel(name)?;
        timed(TIMES, || {
            let mut commands = stream.command_buffer();
            for _ in 0..EACH {
                // SAFETY: the command buffer is dropped, so that nothing runs.
                unsafe { commands.launch(&kernel, Grid::threads(64).group(64), args) }?;
            }
            Ok(())
        })
    };
    let (many, single) = (time("sixteen_buffers", &args)?, time("one_buffer", &args[..1])?);
    Ok((many as f64 - single as f64) / (EACH * (ARGUMENTS - 1)) as f64)
}

/// Numbers of jobs of the mixed load, of their kinds, and of streams.
const JOBS: usize = 120;
const KINDS: usize = 3;
const STREAMS: usize = 6;
/// Elements of an upload, and of a copy.
const PART: usize = 64 << 10;
const COPY: usize = 256 << 10;
/// Steps of a threadgroup that computes.
const STEPS: u32 = 20_000;

/// A job of the mixed load, with its own memory.
enum Job {
    /// A kernel on data from the host, whose result the host reads.
    Data {
        input: Vec<f32>,
        on_device: Buffer<f32>,
        out: Buffer<f32>,
        received: Vec<f32>,
    },
    Compute(Buffer<u32>),
    Copy {
        from: Buffer<u32>,
        to: Buffer<u32>,
    },
}

impl Job {
    fn new(device: &Device, number: usize) -> Result<Self> {
        Ok(match number % KINDS {
            0 => Self::Data {
                input: (0..PART).map(|i| (i + number) as f32).collect(),
                on_device: device.buffer(PART)?,
                out: device.buffer(PART)?,
                received: vec![0.0; PART],
            },
            1 => Self::Compute(device.buffer(64)?),
            _ => Self::Copy {
                from: device.buffer_with_data(&vec![number as u32; COPY])?,
                to: device.buffer(COPY)?,
            },
        })
    }
}

/// Kernels of the mixed load.
struct Mixed {
    add: Kernel,
    spin: Kernel,
}

impl Mixed {
    /// Submits a job; with `waits`, waits for each command. Returns what is left to wait for.
    #[allow(unsafe_code)] // launches
    fn submit(&self, stream: &Stream, job: &mut Job, waits: bool) -> Result<Pending> {
        let after = |done: Completion| -> Result<Completion> {
            if waits {
                done.wait()?;
            }
            Ok(done)
        };
        Ok(match job {
            Job::Data { input, on_device, out, received } => {
                after(stream.upload(input, &mut *on_device)?)?;
                let args = (&*on_device, &*on_device, &mut *out, PART as u32);
                // SAFETY: each buffer has `PART` elements.
                after(unsafe { self.add.launch(stream, Grid::threads(PART).group(GROUP), args) }?)?;
                let download = stream.download(&*out)?;
                if waits {
                    download.read(received)?;
                    return Ok(Pending::Nothing);
                }
                Pending::Download(download)
            }
            Job::Compute(out) => {
                // SAFETY: 64 threads write one of 64 elements each.
                let done = unsafe { self.spin.launch(stream, Grid::threads(64).group(64), (out, STEPS)) }?;
                Pending::Completion(after(done)?)
            }
            Job::Copy { from, to } => Pending::Completion(after(stream.copy(&*from, &mut *to)?)?),
        })
    }
}

/// What a job leaves.
enum Pending {
    Completion(Completion),
    Download(elinvar::Download<f32>),
    Nothing,
}

impl Pending {
    /// Waits for the job, and reads what it sends to the host.
    fn end(self, job: &mut Job) -> Result<()> {
        match (self, job) {
            (Self::Download(download), Job::Data { received, .. }) => download.read(received)?,
            (Self::Completion(done), _) => drop(done.wait()?),
            _ => {}
        }
        Ok(())
    }
}

/// Throughput of independent jobs on several streams, against one stream with a wait behind each command.
pub(super) fn mixed_load(context: &Context) -> Result<f64> {
    const ROUNDS: usize = 7;
    let device = &context.device;
    let (spin, _) = runtime::kernel(device, "spin")?;
    let add = compile(device, "vector_add.metal", VECTOR_ADD)?.kernel("vector_add")?;
    let mixed = Mixed { add, spin };
    let streams: Vec<Stream> = (0..STREAMS).map(|_| device.stream()).collect::<elinvar::Result<_>>()?;
    let mut jobs: Vec<Job> = (0..JOBS).map(|number| Job::new(device, number)).collect::<Result<_>>()?;
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        for (waits, times) in [false, true].into_iter().zip(&mut times) {
            let start = Instant::now();
            let mut pending = Vec::with_capacity(JOBS);
            for (number, job) in jobs.iter_mut().enumerate() {
                let stream = &streams[if waits { 0 } else { number / KINDS % STREAMS }];
                pending.push(mixed.submit(stream, job, waits)?);
            }
            pending.into_iter().zip(&mut jobs).try_for_each(|(pending, job)| pending.end(job))?;
            // The first round builds what is needed.
            times.extend((round > 0).then(|| start.elapsed().as_nanos() as u64));
            for job in &mut jobs {
                if let Job::Data { input, received, .. } = job {
                    let sums: Vec<f32> = input.iter().map(|x| x + x).collect();
                    compare("vector_add of the mixed load", received, &sums)?;
                    received.fill(0.0);
                }
            }
        }
    }
    for (number, job) in jobs.iter().enumerate() {
        if let Job::Copy { to, .. } = job
            && to.to_vec()? != vec![number as u32; COPY]
        {
            return Err(elinvar::Error::DeviceLost(format!("the copy of job {number} is wrong")).into());
        }
    }
    let [ours, waiting] = times.map(median);
    Ok(waiting as f64 / ours.max(1) as f64)
}
