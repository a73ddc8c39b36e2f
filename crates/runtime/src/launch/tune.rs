//! [`Kernel::tune`]: measures the fastest threadgroup size of a launch.
//!
//! A device keeps the results by kernel and by the grid's size, rounded up to powers of two. A launch without a threadgroup size
//! uses the measured one, if its kernel allows it. [`crate::Device::save_tuning`] passes the results to other processes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use elinvar_cache::{Cache, decode, encode};
use elinvar_driver::sync::{Mutex, RwLock};
use elinvar_driver::{DeviceKind, Dim3, Error, Result};

use crate::launch::args::Value;
use crate::launch::candidates::{candidates, predicted};
use crate::launch::suggest::{usual_size, whole_size};
use crate::memory::span::Span;
use crate::{Arg, Args, Buffer, Grid, HostAccess, Kernel, Stream, Suggestion};

/// Smallest and largest number of measurements of each size, after one warm-up launch, and the time after which no more than the smallest begin.
const FEWEST_ROUNDS: usize = 5;
const MOST_ROUNDS: usize = 64;
/// As [`FEWEST_ROUNDS`], of the two that are compared at the end.
const FEWEST_OF_TWO: usize = 32;
const TIME: Duration = Duration::from_millis(60);
/// Largest number of sizes that are compared.
const CANDIDATES: usize = 10;
/// Threads that compile, at most.
const MOST_THREADS: u32 = 8;
/// Time in which a CPU's code for more sizes is compiled.
const COMPILATION: Duration = Duration::from_secs(3);
/// Time in which all sizes run once, so that those that are compared are selected by measurement.
const GLANCE_NS: u64 = 200_000_000;
/// Measurements of each for that.
const GLANCES: usize = 3;
/// A measurement is one submission of as many launches as last about this long, at most so many: alone, a launch of less than a microsecond is mostly
/// the submission. The first launches of a submission find other clocks and caches than those behind them, and on a CPU sleeping workers.
const MEASUREMENT_NS: u64 = 500_000;
const MOST_LAUNCHES: u64 = 256;
/// A measurement of a slow launch lasts up to so many times as long, for as many launches as of the others.
const LONGEST: u64 = 4;
/// A size is not faster if it saves less than this part of the time.
const NOISE: u64 = 50;
/// Nor if it is faster in less than this many sixths of the rounds; of 32 rounds between equals, 27 are won in 6 of 100,000 cases.
const SIXTHS: usize = 5;

/// A measured size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) group: Dim3,
    /// The shortest duration of a launch.
    pub(crate) ns: u64,
}

/// Kernel, and grid rounded up to powers of two.
type Key = (Arc<str>, [u32; 3]);

/// Measured sizes of a device.
#[derive(Default)]
pub(crate) struct Tuned {
    /// Whether there are any, so that launches can skip the lookup.
    any: AtomicBool,
    sizes: RwLock<BTreeMap<Key, Measured>>,
}

impl Tuned {
    pub(crate) fn measured(&self, kernel: &Arc<str>, threads: Dim3) -> Option<Measured> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.sizes.read().get(&(kernel.clone(), class(threads))).copied()
    }

    pub(crate) fn insert(&self, kernel: Arc<str>, class: [u32; 3], measured: Measured) {
        self.sizes.write().insert((kernel, class), measured);
        self.any.store(true, Ordering::Release);
    }

    pub(crate) fn list(&self) -> Vec<(Arc<str>, [u32; 3], Measured)> {
        let sizes = self.sizes.read();
        sizes.iter().map(|((kernel, class), measured)| (kernel.clone(), *class, *measured)).collect()
    }
}

impl Measured {
    /// The suggestion for a grid of its class.
    pub(crate) fn suggestion(self, threads: Dim3) -> Suggestion {
        let Self { group, ns } = self;
        let [x, y, z] = class(threads);
        let reason =
            format!("measured for grids up to {x} x {y} x {z}: {ns} ns, the fastest of the sizes tried");
        Suggestion { group, reason }
    }
}

/// Class of grids that share a result.
pub(crate) fn class(threads: Dim3) -> [u32; 3] {
    threads.to_array().map(|side| side.checked_next_power_of_two().unwrap_or(u32::MAX))
}

/// How [`Kernel::tune_with`] finds a size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tuning {
    /// Takes the size that a process of this user has measured; measures and remembers if there is none.
    #[default]
    Remembered,
    /// Measures, and remembers.
    Measured,
    /// Measures nothing: the size that the model expects to be fastest. The same in every process.
    Predicted,
}

/// Arguments that a kernel may write, with copies of their contents.
pub(crate) struct Kept {
    copies: Vec<(Span, Buffer<u8>)>,
}

impl Kept {
    pub(crate) fn new(stream: &Stream, args: &[Arg]) -> Result<Self> {
        let mut copies = Vec::new();
        for arg in args {
            let span = match &arg.value {
                Value::Memory { span, writable: true, .. } | Value::Use(Some((span, true))) => span,
                _ => continue,
            };
            if span.len > 0 {
                let bytes = usize::try_from(span.len)
                    .map_err(|_| Error::invalid("tune: an argument is too large"))?;
                copies.push((span.clone(), stream.device().buffer_for::<u8>(bytes, HostAccess::Never)?));
            }
        }
        let kept = Self { copies };
        kept.copy(stream, |span, copy| [span.clone(), copy.span.clone()])?;
        Ok(kept)
    }

    pub(crate) fn restore(&self, stream: &Stream) -> Result<()> {
        self.copy(stream, |span, copy| [copy.span.clone(), span.clone()])
    }

    fn copy(&self, stream: &Stream, of: impl Fn(&Span, &Buffer<u8>) -> [Span; 2]) -> Result<()> {
        if self.copies.is_empty() {
            return Ok(());
        }
        let mut command_buffer = stream.command_buffer();
        for (span, copy) in &self.copies {
            let [source, target] = of(span, copy);
            command_buffer.copy_span(&source, &target)?;
        }
        command_buffer.submit()?.wait().map(drop)
    }
}

impl Kernel {
    /// Measures which threadgroup size is fastest for a launch over this grid, on the device's clock, and remembers it, as
    /// [`Kernel::tune_with`] with [`Tuning::Measured`].
    ///
    /// # Safety
    /// As [`Kernel::tune_with`].
    ///
    /// # Errors
    /// As [`Kernel::tune_with`].
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn tune(&self, stream: &Stream, grid: Grid, args: impl Args) -> Result<Suggestion> {
        // SAFETY: the caller vouches for it.
        unsafe { self.tune_with(stream, grid, args, Tuning::Measured) }
    }

    /// Finds a threadgroup size for launches over grids of about this size. Later launches over such grids use it if they specify none.
    ///
    /// It measures each of up to ten sizes several times, in turns, and blocks until all launches have ended; a measurement of a short launch is one submission of up to 256, as many for all sizes but much slower ones. These are the sizes that
    /// the model expects to be fast; if all run in 0.2 s, those that are so in three measurements of each. A CPU compiles code for ten sizes, and for as many more as it does in three seconds. Arguments that the kernel may write have their contents back afterwards. A size is taken in place of
    /// 256 threads (512 with barriers; 32 x 8 in more than one dimension, even of a narrower grid) only if it is faster by more than 2 %, and in five sixths of the rounds of a second comparison. The result is kept in the user's cache, by kernel, the grid's size rounded up to powers of two, and device.
    ///
    /// # Safety
    /// As for each of these launches; see [`Kernel::launch`]. The kernel's result must not depend on the threadgroup size.
    ///
    /// # Errors
    /// As [`Kernel::launch`] and [`Stream::profile`]; `InvalidArgument` for a grid with a threadgroup size; `OutOfMemory` for the copies of arguments.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn tune_with(
        &self,
        stream: &Stream,
        grid: Grid,
        args: impl Args,
        tuning: Tuning,
    ) -> Result<Suggestion> {
        if grid.has_group() {
            let kernel = &self.signature().name;
            return Err(Error::invalid(format!(
                "kernel `{kernel}`: tune: the grid must not have a threadgroup size"
            )));
        }
        let threads = grid.resolve(self)?.and_then(|size| size.grid.threads());
        let Some(threads) = threads else { return Ok(self.choose(Dim3::new(0, 1, 1))) };
        let (most, caps, signature) = (self.most_threads(), self.device.caps(), self.signature());
        let resident = |size: Dim3| self.resident(size);
        if tuning == Tuning::Predicted {
            let group = predicted(threads, most, caps, signature, resident);
            return Ok(Suggestion {
                group,
                reason: "expected to be fastest by the model, not measured".into(),
            });
        }
        let mut sizes = candidates(threads, most, caps, signature, resident);
        let usual = usual_size(threads, most, caps, signature);
        let whole = whole_size(threads, most, caps, signature);
        sizes.retain(|size| ![usual, whole].contains(size));
        // The first is kept unless another one is faster.
        if usual != whole {
            sizes.insert(0, usual);
        }
        sizes.insert(0, whole);
        let cache = Cache::user(env!("CARGO_PKG_VERSION"));
        let key = cache.key("threadgroup size, 9").text(&self.device.identity()).text(&self.identity);
        let key = key.text(&format!("{:?}", class(threads))).finish();
        let known: Option<([u32; 3], u64)> = match tuning {
            Tuning::Remembered => cache.load(&key).and_then(|bytes| decode(&bytes)),
            _ => None,
        };
        let best = match known {
            Some((group, ns)) => Measured { group: Dim3::from(group), ns },
            None => {
                // Kernels with grid barriers can be tuned too.
                let grid = |size: &Dim3| Grid::threads(threads).group(*size).cooperative();
                sizes.truncate(self.optimized(&sizes)?);
                let runs = sizes.iter().enumerate();
                let runs = runs.map(|(index, size)| Run::new(index, self.clone(), grid(size)));
                let runs = runs.collect::<Result<_>>()?;
                let args = args.into_args();
                let kept = Kept::new(stream, &args)?;
                // SAFETY: the caller vouches for launches with any size.
                let measured =
                    unsafe { selected(stream, runs, &args).and_then(|runs| fastest(stream, runs, &args)) };
                kept.restore(stream)?;
                let measured = measured?;
                let measured = Measured { group: sizes[measured.index], ns: measured.ns };
                cache.store(&key, &encode(&(measured.group.to_array(), measured.ns)));
                measured
            }
        };
        self.device.tuned().insert(self.identity.clone(), class(threads), best);
        Ok(self.choose(threads))
    }

    /// The number of the first of these sizes that have optimized code. A CPU compiles it for each size, several at a time: for as many as are compared, and
    /// for those that are begun in [`COMPILATION`].
    fn optimized(&self, sizes: &[Dim3]) -> Result<usize> {
        if self.device.kind() != DeviceKind::Cpu {
            return Ok(sizes.len());
        }
        let (start, next, failure) = (Instant::now(), AtomicUsize::new(0), Mutex::new(None));
        let compile = || {
            loop {
                let is_late = start.elapsed() > COMPILATION;
                let taken =
                    |at: usize| (at < sizes.len() && !(is_late && at >= CANDIDATES)).then_some(at + 1);
                let Ok(at) = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken) else { return };
                if let Err(error) = self.pipeline.optimize(sizes[at]) {
                    failure.lock().get_or_insert(error);
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.device.caps().limits.compute_units.min(MOST_THREADS) {
                scope.spawn(compile);
            }
            compile();
        });
        let failure = failure.lock().take();
        failure.map_or(Ok(next.into_inner()), Err)
    }

    /// The number of threadgroups of a size that a GPU holds at a time, by the driver; `None` if it is not known.
    fn resident(&self, size: Dim3) -> Option<u64> {
        let has_memory = self.signature().code.is_none_or(|code| code.threadgroup_memory > 0);
        let is_known = self.device.kind() != DeviceKind::Cpu && !has_memory;
        is_known.then(|| self.pipeline.resident_groups(size, 0).ok()).flatten()
    }
}

/// A launch that is measured.
pub(crate) struct Run {
    /// Its place in the caller's list.
    pub(crate) index: usize,
    pub(crate) kernel: Kernel,
    grid: Grid,
    /// Launches of a measurement.
    launches: u64,
    /// The shortest duration of a launch so far.
    pub(crate) ns: u64,
}

impl Run {
    /// A launch with optimized code.
    pub(crate) fn new(index: usize, kernel: Kernel, grid: Grid) -> Result<Self> {
        if let Some(size) = grid.resolve(&kernel)? {
            kernel.pipeline.optimize(size.group)?;
        }
        Ok(Self { index, kernel, grid, launches: 1, ns: u64::MAX })
    }

    /// The duration of a launch, by one measurement.
    #[allow(unsafe_code)] // launches
    pub(crate) unsafe fn once(&self, stream: &Stream, args: &[Arg]) -> Result<u64> {
        let profile = stream.profile(1, |command_buffer| {
            // SAFETY: the caller vouches for the launch.
            (0..self.launches)
                .try_for_each(|_| unsafe { command_buffer.launch(&self.kernel, self.grid.clone(), args) })
        })?;
        Ok(profile.min_ns() / self.launches)
    }
}

/// Sets the launches of a measurement, by the second of two launches: those of the fastest for all, as the start of a submission is a part of its duration,
/// which would favor sizes with more launches.
#[allow(unsafe_code)] // launches
unsafe fn calibrate(stream: &Stream, runs: &mut [Run], args: &[Arg]) -> Result<()> {
    for run in &mut *runs {
        run.launches = 1;
        // SAFETY: the caller vouches for the launches.
        let ns = unsafe { run.once(stream, args).and_then(|_| run.once(stream, args)) }?;
        run.launches = (MEASUREMENT_NS / ns.max(1)).clamp(1, MOST_LAUNCHES);
    }
    let most = runs.iter().map(|run| run.launches).max().unwrap_or(1);
    runs.iter_mut().for_each(|run| run.launches = most.min(LONGEST * run.launches));
    Ok(())
}

/// The launches that are to be compared, of those in the model's order: the first, and the others that a glance shows to be fastest. A long launch
/// is not looked at: then they are the first ones.
#[allow(unsafe_code)] // launches
unsafe fn selected(stream: &Stream, mut runs: Vec<Run>, args: &[Arg]) -> Result<Vec<Run>> {
    let Some(first) = runs.first().filter(|_| runs.len() > CANDIDATES) else { return Ok(runs) };
    // SAFETY: the caller vouches for the launches.
    let ns = unsafe { first.once(stream, args)?.min(first.once(stream, args)?) };
    if ns.saturating_mul(runs.len() as u64) <= GLANCE_NS {
        // SAFETY: the caller vouches for the launches.
        unsafe { calibrate(stream, &mut runs, args) }?;
        for _ in 0..GLANCES {
            for run in &mut runs {
                // SAFETY: the caller vouches for the launches.
                run.ns = run.ns.min(unsafe { run.once(stream, args) }?);
            }
        }
        runs[1..].sort_by_key(|run| run.ns);
        runs.iter_mut().for_each(|run| run.ns = u64::MAX);
    }
    runs.truncate(CANDIDATES);
    Ok(runs)
}

/// The fastest of these launches; the first, unless another is faster by more than the noise, and in most rounds.
#[allow(unsafe_code)] // launches
pub(crate) unsafe fn fastest(stream: &Stream, mut runs: Vec<Run>, args: &[Arg]) -> Result<Run> {
    // SAFETY: the caller vouches for the launches.
    unsafe { calibrate(stream, &mut runs, args) }?;
    // The number of rounds, and of those in which the second run was faster than the first.
    let measure = |runs: &mut [&mut Run], fewest: usize| {
        let start = Instant::now();
        let (mut rounds, mut wins) = (0, 0);
        for round in 0..=MOST_ROUNDS {
            let mut before = u64::MAX;
            for (place, run) in runs.iter_mut().enumerate() {
                // SAFETY: the caller vouches for the launches.
                let ns = unsafe { run.once(stream, args) }?;
                // The first round warms up.
                if round > 0 {
                    run.ns = run.ns.min(ns);
                    wins += usize::from(place == 1 && ns < before);
                }
                before = ns;
            }
            rounds = round;
            if round >= fewest && start.elapsed() > TIME {
                break;
            }
        }
        Ok::<_, Error>((rounds, wins))
    };
    measure(&mut runs.iter_mut().collect::<Vec<_>>(), FEWEST_ROUNDS)?;
    let best = (0..runs.len()).min_by_key(|i| runs[*i].ns);
    let best = best.ok_or_else(|| Error::invalid("tune: nothing to measure"))?;
    if best == 0 {
        return Ok(runs.swap_remove(0));
    }
    // Of many, one is the fastest by chance: it has to be so again.
    let (mut best, mut first) = (runs.swap_remove(best), runs.swap_remove(0));
    (first.ns, best.ns) = (u64::MAX, u64::MAX);
    let (rounds, wins) = measure(&mut [&mut first, &mut best], FEWEST_OF_TWO)?;
    let is_faster = best.ns < first.ns - first.ns / NOISE && 6 * wins >= SIXTHS * rounds;
    Ok(if is_faster { best } else { first })
}
