//! A soak of mixed work for a given time, with faults of isolated devices: memory, threads, descriptors and files must not grow.
//!
//! `ELINVAR_SOAK=3600` is an hour; without the variable the test is ignored, and `--ignored` runs a few seconds. The work runs in a
//! child process with its own cache and temporary folder, which prints its resource use at intervals, one line each.

#[cfg(target_os = "linux")]
fn main() {
    elinvar::serve_if_asked();
    if std::env::args().any(|argument| argument == "--soak") {
        return linux::soak();
    }
    let arguments = libtest_mimic::Arguments::from_args();
    let trial = libtest_mimic::Trial::test("nothing_grows", linux::child)
        .with_ignored_flag(std::env::var_os("ELINVAR_SOAK").is_none());
    libtest_mimic::run(&arguments, vec![trial]).exit();
}

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
mod linux {
    use std::fmt;
    use std::path::Path;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use elinvar::{
        BreakerLimits, Buffer, Completion, Device, Error, Graph, Grid, IsolatedOptions, Library,
        RecoveryPolicy, Source, Stream,
    };
    use elinvar_driver::Driver as _;
    use elinvar_driver_cpu::CpuDriver;

    /// Duration in seconds if `ELINVAR_SOAK` is not set.
    const SHORT: u64 = 5;
    /// Number of samples, the first third of which is warm-up.
    const SAMPLES: u32 = 90;
    const N: usize = 3000;
    const KERNELS: &str = "
    #include <metal_stdlib>
    using namespace metal;
    kernel void add(device uint* out, device const uint* in, constant uint& k, uint i [[thread_position_in_grid]]) {
        out[i] = in[i] + k;
    }
    kernel void reverse(device uint* out, device const uint* in, uint i [[thread_position_in_threadgroup]],
                        uint group [[threadgroup_position_in_grid]], uint size [[threads_per_threadgroup]]) {
        threadgroup uint kept[64];
        kept[i] = in[group * size + i];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        out[group * size + i] = kept[size - 1 - i];
    }
    kernel void wild(device uint* out, constant ulong& at, uint i [[thread_position_in_grid]]) {
        *reinterpret_cast<device uint*>(at) = i;
        out[i] = 1;
    }
    kernel void forever(device atomic_uint* flag, device uint* out, uint i [[thread_position_in_grid]]) {
        while (atomic_load_explicit(flag, memory_order_relaxed) == 0) {}
        out[i] = 1;
    }";

    /// The test: runs the work in a child process, with a folder of its own.
    pub fn child() -> Result<(), libtest_mimic::Failed> {
        let folder = tempfile::tempdir()?;
        let [cache, temporary] = ["cache", "tmp"].map(|name| folder.path().join(name));
        std::fs::create_dir_all(&temporary)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--soak").env("ELINVAR_CACHE", cache).env("TMPDIR", temporary);
        let status = command.status()?;
        if status.success() { Ok(()) } else { Err(format!("the soak has ended with {status}").into()) }
    }

    /// Resource use of the process.
    #[derive(Clone, Copy, Debug, Default)]
    struct Sample {
        /// Resident memory in bytes.
        resident: u64,
        /// Resident memory in bytes of the worker process that has no faults.
        worker: u64,
        threads: u64,
        descriptors: u64,
        children: u64,
        /// Number and total bytes of the files in the temporary folder and in the cache.
        files: u64,
        bytes: u64,
    }

    impl fmt::Display for Sample {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Self { resident, worker, threads, descriptors, children, files, bytes } = self;
            write!(
                f,
                "{} KiB, worker {} KiB, {threads} threads, {descriptors} descriptors, {children} children, {files} files, {bytes} bytes",
                resident >> 10,
                worker >> 10
            )
        }
    }

    impl Sample {
        fn now(worker: &str) -> Self {
            let count = |folder: &str| std::fs::read_dir(folder).map_or(0, |all| all.count() as u64);
            let mut sample = Self {
                resident: resident("self"),
                worker: resident(worker),
                threads: count("/proc/self/task"),
                descriptors: count("/proc/self/fd"),
                ..Self::default()
            };
            for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
                let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
                sample.children += children.split_whitespace().count() as u64;
            }
            for variable in ["ELINVAR_CACHE", "TMPDIR"] {
                if let Some(folder) = std::env::var_os(variable) {
                    sample.below(folder.as_ref());
                }
            }
            sample
        }

        /// Adds the files below a folder.
        fn below(&mut self, folder: &Path) {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => self.below(&entry.path()),
                    Ok(metadata) => (self.files, self.bytes) = (self.files + 1, self.bytes + metadata.len()),
                    Err(_) => {}
                }
            }
        }

        fn values(&self) -> [(&'static str, u64, u64); 7] {
            let Self { resident, worker, threads, descriptors, children, files, bytes } = *self;
            // Name, value and permitted increase; the work in flight varies between samples.
            [
                ("bytes in memory", resident, (24 << 20) + resident / 16),
                ("bytes in the worker's memory", worker, 8 << 20),
                ("threads", threads, 8),
                ("descriptors", descriptors, 12),
                ("children", children, 2),
                ("files", files, 6),
                ("bytes of files", bytes, 1 << 20),
            ]
        }
    }

    fn resident(process: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
        status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
    }

    /// Checks that the median of every value in the last third is not above that in the second, within the permitted increase.
    fn expect_flat(samples: &[Sample]) {
        let third = samples.len() / 3;
        let medians = |samples: &[Sample]| {
            [0, 1, 2, 3, 4, 5, 6].map(|which: usize| {
                let mut values: Vec<u64> = samples.iter().map(|sample| sample.values()[which].1).collect();
                values.sort_unstable();
                values[values.len() / 2]
            })
        };
        let [before, after] = [&samples[third..2 * third], &samples[2 * third..]].map(medians);
        for (which, (what, _, most)) in samples[2 * third].values().into_iter().enumerate() {
            let (before, after) = (before[which], after[which]);
            println!("{what}: {before}, then {after}");
            assert!(after <= before + most, "{what}: {before} in the second third, {after} in the last");
        }
    }

    struct Bench {
        device: Device,
        library: Library,
    }

    type Work = elinvar::Result<()>;

    impl Bench {
        fn new(device: Device) -> elinvar::Result<Self> {
            let library = device.compile(Source::msl(KERNELS))?;
            // The work causes faults on purpose, so the breaker must not refuse work.
            device.breaker().set_limits(BreakerLimits { failures: u32::MAX, ..Default::default() });
            Ok(Self { device, library })
        }

        fn isolated() -> elinvar::Result<Self> {
            let options =
                IsolatedOptions { threads: Some(2), grace: Duration::from_millis(100), ..Default::default() };
            Self::new(Device::isolated_with(&options)?)
        }

        fn worker(&self) -> String {
            let details = self.device.details();
            details
                .into_iter()
                .find(|(name, _)| *name == "worker process")
                .map_or_else(String::new, |(_, id)| id)
        }

        /// out = in + k.
        fn add(
            &self,
            stream: &Stream,
            out: &mut Buffer<u32>,
            input: &Buffer<u32>,
            k: u32,
        ) -> elinvar::Result<Completion> {
            let add = self.library.kernel("add")?;
            // SAFETY: thread i reads and writes element i, and the number of elements is that of the threads.
            #[allow(unsafe_code)]
            unsafe {
                add.launch(stream, Grid::threads(out.len()).group(64), (out, input, k))
            }
        }

        fn numbers(&self, value: u32) -> elinvar::Result<(Buffer<u32>, Buffer<u32>)> {
            Ok((self.device.buffer_with_data(&[value; N])?, self.device.buffer(N)?))
        }

        /// Launches, copies and maps on a new stream.
        fn launches(&self, round: u32) -> Work {
            let stream = self.device.stream()?;
            let (input, mut out) = self.numbers(round)?;
            for k in 0..20 {
                self.add(&stream, &mut out, &input, k)?;
            }
            let mut copy = self.device.buffer::<u32>(N)?;
            stream.copy(&out, &mut copy)?;
            assert!(copy.map()?.iter().all(|x| *x == round.wrapping_add(19)));
            out.map_mut()?.fill(7);
            self.add(&stream, &mut copy, &out, 1)?.wait()?;
            assert_eq!(copy.to_vec()?, [8; N]);
            Ok(())
        }

        /// A newly planned graph, with a kernel that has a barrier.
        fn graphs(&self, round: u32) -> Work {
            let [add, reverse] = ["add", "reverse"].map(|name| self.library.kernel(name));
            let (add, reverse) = (add?, reverse?);
            let x = self.device.buffer_with_data(&(0..6400).collect::<Vec<u32>>())?;
            let mut z = self.device.buffer::<u32>(6400)?;
            let mut graph = Graph::new();
            let grid = || Grid::threads(6400).group(64);
            // SAFETY: everything that is read was written in full before; the kernels stay within their arguments.
            #[allow(unsafe_code)]
            let plan = unsafe {
                let mut a: Buffer<u32> = graph.transient_uninit(&self.device, 6400)?;
                graph.launch(&add, grid(), (&mut a, &x, round))?;
                graph.launch(&reverse, grid(), (&mut z, &a))?;
                graph.plan()?
            };
            let (mut plan, stream) = (plan, self.device.stream()?);
            for _ in 0..3 {
                // SAFETY: as above.
                #[allow(unsafe_code)]
                unsafe { plan.run(&stream) }?.wait()?;
            }
            let expected = |i: u32| (i / 64 * 64 + 63 - i % 64).wrapping_add(round);
            assert!(z.to_vec()?.iter().zip(0..).all(|(z, i)| *z == expected(i)));
            Ok(())
        }

        /// Events, waits, cancellation, a fault of a checked kernel and the work behind it.
        fn events(&self, round: u32) -> Work {
            let (stream, other, event) = (self.device.stream()?, self.device.stream()?, self.device.event()?);
            let (input, mut out) = self.numbers(round)?;
            stream.wait_for(&event, 1)?;
            let first = self.add(&stream, &mut out, &input, 1)?;
            let second = self.add(&stream, &mut out, &input, 2)?;
            assert!(second.cancel());
            stream.signal(&event, 2)?;
            other.wait_for(&event, 2)?;
            event.signal(1);
            first.wait()?;
            let mut beside = self.device.buffer::<u32>(N)?;
            self.add(&other, &mut beside, &out, 1)?.wait()?;
            assert_eq!(beside.to_vec()?, [round.wrapping_add(2); N]);
            let checked = self.library.checked_kernel("add")?;
            let policy =
                RecoveryPolicy { faults: true, backoff: Duration::ZERO, ..RecoveryPolicy::of(&self.device) };
            let recovering = self.device.stream_recovering(policy)?;
            let fault =
                checked.launch(&recovering, Grid::threads(N + 64), (&mut beside, &out, 1_u32))?.wait();
            assert!(matches!(fault, Err(Error::Fault(_))), "{fault:?}");
            recovering.acknowledge();
            stream.fill(&mut beside, round)?;
            assert_eq!(beside.to_vec()?, [round; N]);
            Ok(())
        }

        /// One of the faults that end a worker, and work after it.
        #[allow(unsafe_code)] // launches
        fn faults(&self, round: u32) -> Work {
            let stream = self.device.stream()?;
            let (input, mut out) = self.numbers(round)?;
            let ended = match round % 4 {
                0 => {
                    let wild = self.library.kernel("wild")?;
                    // SAFETY: the store ends the worker process and does not change memory.
                    unsafe { wild.launch(&stream, Grid::threads(1), (&mut out, 64_u64)) }?.wait()
                }
                1 => {
                    let (forever, mut commands) = (self.library.kernel("forever")?, stream.command_buffer());
                    let mut flag = self.device.buffer::<u32>(1)?;
                    commands.deadline(Duration::from_millis(2))?;
                    // SAFETY: the kernel reads one element, and is stopped before it writes the other.
                    unsafe { commands.launch(&forever, Grid::threads(1), (&mut flag, &mut out)) }?;
                    commands.submit()?.wait()
                }
                2 => {
                    let worker = self.worker();
                    let done = self.add(&stream, &mut out, &input, 1)?;
                    let _ended = Command::new("kill").args(["-KILL", &worker]).status();
                    done.wait()
                }
                _ => {
                    let done = self.add(&stream, &mut out, &input, 1)?;
                    self.device.reset()?;
                    done.wait()
                }
            };
            let lost = |error: &Error| matches!(error, Error::DeviceLost(_) | Error::Timeout(_));
            assert!(ended.as_ref().err().is_none_or(lost), "{ended:?}");
            stream.acknowledge();
            self.add(&stream, &mut out, &input, 3)?.wait().or_else(|error| {
                // The kill may have hit this work.
                if lost(&error) { Ok(elinvar::Timing::default()) } else { Err(error) }
            })?;
            stream.acknowledge();
            self.add(&stream, &mut out, &input, 4)?.wait()?;
            assert_eq!((out.to_vec()?, input.to_vec()?), (vec![round.wrapping_add(4); N], vec![round; N]));
            Ok(())
        }
    }

    /// Creates, uses and drops a device.
    fn devices(round: u32) -> Work {
        let bench = match round % 2 {
            0 => Bench::isolated()?,
            _ => Bench::new(Device::new(CpuDriver::with_threads(2).devices()?.remove(0)))?,
        };
        bench.launches(round)?;
        // The device is dropped with work in flight.
        let (input, mut out) = bench.numbers(1)?;
        let stream = bench.device.stream()?;
        for k in 0..10 {
            bench.add(&stream, &mut out, &input, k)?;
        }
        Ok(())
    }

    pub fn soak() {
        let seconds = std::env::var("ELINVAR_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(SHORT);
        let stop = AtomicBool::new(false);
        let processor = Bench::new(Device::cpu().unwrap()).unwrap();
        let [steady, faulty] = [0, 1].map(|_| Bench::isolated().unwrap());
        let worker = steady.worker();
        let rounds: [AtomicU64; 8] = Default::default();
        let work: [&(dyn Fn(u32) -> Work + Sync); 8] = [
            &|round| processor.launches(round),
            &|round| processor.graphs(round),
            &|round| processor.events(round),
            &|round| steady.launches(round),
            &|round| steady.graphs(round),
            &|round| steady.events(round),
            &|round| faulty.faults(round),
            &devices,
        ];
        let mut samples = Vec::new();
        std::thread::scope(|scope| {
            for (work, rounds) in work.into_iter().zip(&rounds) {
                let stop = &stop;
                scope.spawn(move || {
                    // If one thread fails, the others end.
                    let guard = Ends(stop);
                    while !stop.load(Ordering::Relaxed) {
                        let round = rounds.fetch_add(1, Ordering::Relaxed) as u32;
                        work(round).unwrap_or_else(|error| panic!("round {round}: {error}"));
                    }
                    drop(guard);
                });
            }
            let goes_on = || !stop.load(Ordering::Relaxed);
            // Once all work has run twice, everything is compiled and cached.
            while goes_on() && rounds.iter().any(|rounds| rounds.load(Ordering::Relaxed) < 3) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let begin = Instant::now();
            for at in 1..=SAMPLES {
                while goes_on() && begin.elapsed() < Duration::from_secs(seconds) * at / SAMPLES {
                    std::thread::sleep(Duration::from_millis(5));
                }
                let sample = Sample::now(&worker);
                println!("{:.1} s: {sample}", begin.elapsed().as_secs_f64());
                samples.push(sample);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(steady.worker(), worker, "the worker that nothing is done to has gone on");
        let rounds = rounds.map(AtomicU64::into_inner);
        println!("rounds: {rounds:?}");
        assert!(rounds.iter().all(|rounds| *rounds > 0));
        expect_flat(&samples);
    }

    struct Ends<'a>(&'a AtomicBool);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
