//! The `launch` suite: latency of a small launch, end to end, on the host's clock.
//!
//! The work is `vector_add` on a few threadgroups. It is compared with the same addition in Rust: `direct`, on the waiting
//! thread, and `rayon`, on a pool with as many threads as the device. Rounds are interleaved.

use std::hint::black_box;
use std::time::{Duration, Instant};

use elinvar::{Arg, Buffer, Device, DeviceKind, Grid, IsolatedOptions, Kernel, Stream};
use rayon::prelude::*;

use super::carried::compile;
use super::checks::VECTOR_ADD;
use super::{Context, Measured, compare};
use crate::failure::{Failure, Result};
use crate::report::median;

/// Threadgroup size.
const GROUP: usize = 256;
const ROUNDS: usize = 40;
/// Number of round trips per round.
const TRIPS: usize = 50;
/// Number of dependent launches.
const LAUNCHES: usize = 1000;
/// Long enough that threads waiting for work have gone to sleep.
const PAUSE: Duration = Duration::from_millis(1);

pub(super) fn one_group(context: &Context) -> Result<Measured> {
    round_trips(context, 1)
}

pub(super) fn eight_groups(context: &Context) -> Result<Measured> {
    round_trips(context, 8)
}

pub(super) fn groups_64(context: &Context) -> Result<Measured> {
    round_trips(context, 64)
}

/// From the launch to the end of the wait, one after the other.
fn round_trips(context: &Context, groups: usize) -> Result<Measured> {
    let mut add = Addition::new(context, groups)?;
    let times = add.take_turns(ROUNDS, |add, who| {
        let start = Instant::now();
        for _ in 0..TRIPS {
            add.once(who)?;
        }
        Ok(start.elapsed().as_nanos() as u64 / TRIPS as u64)
    })?;
    Ok(measured(format!("{groups} x {GROUP} floats"), times))
}

/// Round trips to a worker process, compared with the same device in this process; `best` and `best_in_process` are the fastest rounds, for
/// a machine with other load.
pub(super) fn isolated(context: &Context) -> Result<Measured> {
    let (kind, threads) = (context.device.kind(), Some(context.threads));
    let options = IsolatedOptions { kind, threads, ..IsolatedOptions::default() };
    let isolated = Context { device: Device::isolated_with(&options)?, threads: context.threads };
    let mut ours = Addition::new(&isolated, 1)?;
    let direct = match kind {
        DeviceKind::Cpu => super::on_cpu(context.threads)?,
        _ => Context { device: context.device.clone(), threads: context.threads },
    };
    let mut theirs = Addition::new(&direct, 1)?;
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        for (add, times) in [&mut ours, &mut theirs].into_iter().zip(&mut times) {
            let start = Instant::now();
            for _ in 0..TRIPS {
                add.once(Who::Ours)?;
            }
            // In the first round, memory is mapped and threads wake up.
            if round > 0 {
                times.push(start.elapsed().as_nanos() as u64 / TRIPS as u64);
            }
        }
    }
    compare("vector_add", &ours.device.2.to_vec()?, &theirs.device.2.to_vec()?)?;
    let [best, best_in_process] = [0, 1].map(|who: usize| times[who].iter().copied().min().unwrap_or(0));
    let [median_ns, in_process] = times.map(median);
    let size = format!("1 x {GROUP} floats, in a worker process");
    let baselines = vec![("in_process", in_process), ("best", best), ("best_in_process", best_in_process)];
    Ok(Measured { size, median_ns, baselines, ..Measured::default() })
}

/// As above, after a period without work.
pub(super) fn after_pause(context: &Context) -> Result<Measured> {
    let mut add = Addition::new(context, 1)?;
    let times = add.take_turns(2 * ROUNDS, |add, who| {
        std::thread::sleep(PAUSE);
        let start = Instant::now();
        add.once(who)?;
        Ok(start.elapsed().as_nanos() as u64)
    })?;
    Ok(measured(format!("1 x {GROUP} floats, {} ms between", PAUSE.as_millis()), times))
}

/// 1000 launches in one stream, and the wait for the last.
#[allow(unsafe_code)] // launches
pub(super) fn in_stream(context: &Context) -> Result<Measured> {
    let mut add = Addition::new(context, 1)?;
    let times = add.take_turns(ROUNDS, |add, who| {
        let start = Instant::now();
        match who {
            Who::Ours => {
                let args = add.args();
                for _ in 1..LAUNCHES {
                    // SAFETY: as in `Addition::once`.
                    unsafe { add.kernel.launch(&add.stream, add.grid.clone(), &args) }?;
                }
                add.once(who)?;
            }
            Who::Direct | Who::Rayon => (0..LAUNCHES).try_for_each(|_| add.once(who))?,
        }
        Ok(start.elapsed().as_nanos() as u64)
    })?;
    Ok(measured(format!("{LAUNCHES} launches of 1 x {GROUP} floats"), times))
}

#[derive(Clone, Copy)]
enum Who {
    Ours,
    Direct,
    Rayon,
}

/// The addition, for each implementation.
struct Addition {
    kernel: Kernel,
    stream: Stream,
    grid: Grid,
    device: (Buffer<f32>, Buffer<f32>, Buffer<f32>),
    host: (Vec<f32>, Vec<f32>, Vec<f32>),
    pool: rayon::ThreadPool,
    threads: usize,
}

impl Addition {
    fn new(context: &Context, groups: usize) -> Result<Self> {
        let n = groups * GROUP;
        let (device, threads) = (&context.device, context.threads);
        let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let b: Vec<f32> = (0..n).map(|i| 3.0 * i as f32).collect();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        Ok(Self {
            kernel: compile(device, "vector_add.metal", VECTOR_ADD)?.kernel("vector_add")?,
            stream: device.stream()?,
            grid: Grid::threads(n).group(GROUP as u32),
            device: (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?, device.buffer(n)?),
            host: (a, b, vec![0.0; n]),
            pool: pool
                .map_err(|error| Failure::Machine(format!("cannot start {threads} threads: {error}")))?,
            threads,
        })
    }

    fn args(&mut self) -> Vec<Arg> {
        let n = self.host.0.len() as u32;
        let (a, b, out) = &mut self.device;
        vec![Arg::from(&*a), Arg::from(&*b), Arg::from(out), Arg::from(n)]
    }

    /// Runs it once and waits.
    #[allow(unsafe_code)] // launches
    fn once(&mut self, who: Who) -> Result<()> {
        let args = matches!(who, Who::Ours).then(|| self.args());
        let (a, b, out) = (&self.host.0, &self.host.1, &mut self.host.2);
        match args {
            Some(args) => {
                // SAFETY: each buffer has `n` elements, the size passed to the kernel.
                unsafe { self.kernel.launch(&self.stream, self.grid.clone(), &args) }?.wait()?;
            }
            None if matches!(who, Who::Direct) => sum(black_box(a), black_box(b), black_box(out)),
            None => {
                let part = a.len().div_ceil(self.threads).next_multiple_of(GROUP);
                let parts = out.par_chunks_mut(part).zip(a.par_chunks(part)).zip(b.par_chunks(part));
                self.pool.install(|| parts.for_each(|((out, a), b)| sum(a, b, out)));
            }
        }
        Ok(())
    }

    /// Median time of each implementation, Elinvar first. The results are compared first.
    fn take_turns(
        &mut self,
        rounds: usize,
        mut time: impl FnMut(&mut Self, Who) -> Result<u64>,
    ) -> Result<[u64; 3]> {
        const ALL: [Who; 3] = [Who::Ours, Who::Direct, Who::Rayon];
        self.once(Who::Ours)?;
        for who in [Who::Direct, Who::Rayon] {
            self.host.2.fill(0.0);
            self.once(who)?;
            compare("vector_add", &self.device.2.to_vec()?, &self.host.2)?;
        }
        let mut times = ALL.map(|_| Vec::with_capacity(rounds));
        for _ in 0..rounds {
            for (who, times) in ALL.into_iter().zip(&mut times) {
                times.push(time(self, who)?);
            }
        }
        Ok(times.map(median))
    }
}

fn sum(a: &[f32], b: &[f32], out: &mut [f32]) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = a + b;
    }
}

fn measured(size: String, [median_ns, direct, rayon]: [u64; 3]) -> Measured {
    Measured { size, median_ns, baselines: vec![("direct", direct), ("rayon", rayon)], ..Measured::default() }
}
