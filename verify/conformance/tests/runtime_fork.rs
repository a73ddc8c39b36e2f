//! `fork`: in the child, devices of the parent are errors and may be dropped, and new ones work; the parent is unaffected.
//!
//! The tests fork while other threads launch, allocate and compile, so that locks are held. A child ends by `_exit`. A separate
//! program, because it forks; isolated devices use it as their worker.

#[cfg(target_os = "linux")]
fn main() {
    elinvar::serve_if_asked();
    let mut arguments = libtest_mimic::Arguments::from_args();
    // Threads of other tests would hold locks across the fork as well.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, linux::trials()).exit();
}

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
mod linux {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use elinvar::{
        Buffer, Completion, Device, Error, Event, Grid, IsolatedOptions, Kernel, Library, RecoveryPolicy,
        Source, Stream, Watch, WatchOptions,
    };
    use libtest_mimic::Trial;

    const N: usize = 4096;
    /// A child that takes longer hangs.
    const LONG: Duration = Duration::from_secs(240);
    const ADD: &str = "kernel void add(device uint* x, constant uint& k, uint i [[thread_position_in_grid]]) { x[i] += k + i; }";

    pub fn trials() -> Vec<Trial> {
        let trial = |name, run: fn()| {
            Trial::test(name, move || {
                run();
                Ok(())
            })
        };
        vec![
            trial("the_processor", || forks(|| Device::cpu().unwrap(), 3)),
            trial("an_isolated_device", || forks(isolated, 2)),
            trial("a_child_of_a_child", a_child_of_a_child),
        ]
    }

    fn isolated() -> Device {
        Device::isolated_with(&IsolatedOptions { threads: Some(2), ..IsolatedOptions::default() }).unwrap()
    }

    /// Runs `body` in a child process, which must succeed.
    #[allow(unsafe_code)] // forks
    #[track_caller]
    fn in_child(body: impl FnOnce()) {
        // SAFETY: the child continues with this thread only, which is under test.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
        if child == 0 {
            let ended = catch_unwind(AssertUnwindSafe(body));
            // SAFETY: `_exit` ends the process without running destructors of the parent's objects.
            unsafe { libc::_exit(if ended.is_ok() { 0 } else { 1 }) };
        }
        let (late, mut status) = (Instant::now() + LONG, 0);
        loop {
            // SAFETY: `waitpid` writes the status.
            match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
                0 if Instant::now() < late => std::thread::sleep(Duration::from_millis(2)),
                0 => {
                    // SAFETY: the process ID is that of the child, which has not been reaped.
                    unsafe { libc::kill(child, libc::SIGKILL) };
                    panic!("the child stands still");
                }
                _ => break,
            }
        }
        assert!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
            "the child has ended with status {status:#x}"
        );
    }

    /// Objects of a program that forks.
    struct Held {
        device: Device,
        library: Library,
        add: Kernel,
        stream: Stream,
        recovering: Stream,
        gate: Event,
        /// Waits for the gate.
        late: Completion,
        ended: Completion,
        target: Buffer<u32>,
        still: Buffer<u32>,
        _watch: Option<Watch>,
    }

    impl Held {
        fn new(device: Device) -> Self {
            let library = device.compile(Source::msl(ADD)).unwrap();
            let add = library.kernel("add").unwrap();
            let (stream, gate) = (device.stream().unwrap(), device.event().unwrap());
            let recovering = device.stream_recovering(RecoveryPolicy::of(&device)).unwrap();
            let (mut target, mut still) = (device.buffer(N).unwrap(), device.buffer(N).unwrap());
            let ended = stream.fill(&mut still, 3).unwrap();
            ended.wait().unwrap();
            stream.wait_for(&gate, 1).unwrap();
            let late = launch(&add, &stream, &mut target, 5).unwrap();
            let watch = device.watch_memory(&WatchOptions::default()).ok();
            Self { device, library, add, stream, recovering, gate, late, ended, target, still, _watch: watch }
        }

        /// Checks that everything that starts work fails immediately, and that the result of ended work is available.
        fn expect_refused(&mut self) {
            let device = &self.device;
            let refused = [
                ("fill", self.stream.fill(&mut self.still, 1).map(drop)),
                ("launch", launch(&self.add, &self.stream, &mut self.still, 1).map(drop)),
                ("fill on a stream that recovers", self.recovering.fill(&mut self.still, 1).map(drop)),
                ("synchronize", self.stream.synchronize().map(drop)),
                ("device.synchronize", device.synchronize()),
                ("wait", self.late.wait().map(drop)),
                ("wait_timeout", self.late.wait_timeout(LONG).map(drop)),
                ("event.wait", self.gate.wait(1)),
                ("to_vec", self.still.to_vec().map(drop)),
                ("map", self.still.map().map(drop)),
                ("write", self.still.write(&[1; N])),
                ("buffer", device.buffer::<u32>(N).map(drop)),
                ("buffer_with_data", device.buffer_with_data(&[1_u32; N]).map(drop)),
                ("stream", device.stream().map(drop)),
                ("event", device.event().map(drop)),
                ("compile", device.compile(Source::msl(ADD)).map(drop)),
                ("kernel", self.library.kernel("add").map(drop)),
                ("checked_kernel", self.library.checked_kernel("add").map(drop)),
                ("reset", device.reset()),
                ("a command buffer", self.stream.command_buffer().submit().map(drop)),
            ];
            for (what, result) in refused {
                let Err(Error::DeviceLost(text)) = &result else { panic!("{what}: {result:?}") };
                assert!(text.contains("forked") && text.contains("new device"), "{what}: {text}");
            }
            self.ended.wait().unwrap();
            assert!(!self.late.cancel() && !self.late.is_done());
            self.gate.signal(1);
            assert!(self.stream.acknowledge().is_none());
            self.stream.flush();
        }
    }

    fn launch(add: &Kernel, stream: &Stream, target: &mut Buffer<u32>, k: u32) -> Result<Completion, Error> {
        // SAFETY: thread i modifies element i, and the number of elements is that of the threads.
        #[allow(unsafe_code)]
        unsafe {
            add.launch(stream, Grid::threads(N), (target, k))
        }
    }

    /// Checks all kinds of work on a device of this process.
    fn expect_works(device: &Device) {
        // The source is new, so that the compiler runs.
        let text = format!("// {}\n{}", std::process::id(), ADD.replace("k + i", "k * 2 + i"));
        let library = device.compile(Source::msl(text)).unwrap();
        let add = library.kernel("add").unwrap();
        let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
        let ready = device.event().unwrap();
        let mut x = device.buffer::<u32>(N).unwrap();
        for round in 0..20 {
            second.wait_for(&ready, 2 * round + 1).unwrap();
            launch(&add, &second, &mut x, 1).unwrap();
            launch(&add, &first, &mut x, 2).unwrap();
            first.signal(&ready, 2 * round + 1).unwrap();
            second.signal(&ready, 2 * round + 2).unwrap();
            first.wait_for(&ready, 2 * round + 2).unwrap();
        }
        second.synchronize().unwrap();
        let content = x.to_vec().unwrap();
        assert!(
            content.iter().enumerate().all(|(i, x)| *x == 20 * (2 + 4 + 2 * i as u32)),
            "{:?}",
            &content[..4]
        );
        let checked = library.checked_kernel("add").unwrap();
        let done = checked.launch(&first, Grid::threads(N + 1), (&mut x, 1_u32)).unwrap();
        assert!(matches!(done.wait(), Err(Error::Fault(_))), "{done:?}");
        let recovering = device.stream_recovering(RecoveryPolicy::of(device)).unwrap();
        recovering.fill(&mut x, 4).unwrap().wait().unwrap();
        let mut commands = recovering.command_buffer();
        commands.deadline(LONG).unwrap();
        commands.fill(&mut x, 5).unwrap();
        commands.submit().unwrap().wait().unwrap();
        device.synchronize().unwrap();
        assert_eq!(x.to_vec().unwrap(), [5; N]);
    }

    /// Runs `run` while threads use a device and the compiler, so that locks are held.
    fn while_busy(device: &Device, run: impl FnOnce()) {
        let (ended, texts) = (AtomicBool::new(false), AtomicU32::new(0));
        let goes_on = || !ended.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let add = device.compile(Source::msl(ADD)).unwrap().kernel("add").unwrap();
                    let stream = device.stream().unwrap();
                    while goes_on() {
                        let mut x = device.buffer::<u32>(N).unwrap();
                        for k in 0..10 {
                            launch(&add, &stream, &mut x, k).unwrap();
                        }
                        assert_eq!(x.to_vec().unwrap()[1], 45 + 10);
                    }
                });
            }
            scope.spawn(|| {
                while goes_on() {
                    let number = texts.fetch_add(1, Ordering::Relaxed);
                    let text = format!("// {} {number}\n{ADD}", std::process::id());
                    device.compile(Source::msl(text)).unwrap().kernel("add").unwrap();
                }
            });
            let ran = catch_unwind(AssertUnwindSafe(run));
            ended.store(true, Ordering::Relaxed);
            ran.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    fn forks(make: fn() -> Device, rounds: usize) {
        let device = make();
        let held = Held::new(device.clone());
        let worker = worker_of(&device);
        let mut held = Some(held);
        while_busy(&device, || {
            for round in 0..rounds {
                in_child(|| {
                    if let Some(held) = &mut held {
                        held.expect_refused();
                    }
                    if round % 2 == 0 {
                        // In even rounds the child creates a device beside its copy of the parent's, in odd rounds only after dropping it.
                        expect_works(&make());
                    }
                    drop(held.take());
                    let own = make();
                    assert_ne!(own, device);
                    expect_works(&own);
                });
            }
        });
        // The parent's work has been waiting all the time, and its worker is the same.
        let held = held.take().unwrap();
        assert!(!held.late.is_done());
        held.gate.signal(1);
        held.late.wait().unwrap();
        let content = held.target.to_vec().unwrap();
        assert!(content.iter().enumerate().all(|(i, x)| *x == 5 + i as u32));
        assert_eq!(held.still.to_vec().unwrap(), [3; N]);
        assert_eq!(worker_of(&device), worker);
        expect_works(&device);
    }

    fn worker_of(device: &Device) -> Option<String> {
        device.details().into_iter().find(|(name, _)| *name == "worker process").map(|(_, number)| number)
    }

    fn a_child_of_a_child() {
        let device = Device::cpu().unwrap();
        expect_works(&device);
        in_child(|| {
            let own = Device::cpu().unwrap();
            expect_works(&own);
            in_child(|| {
                for other in [&device, &own] {
                    assert!(matches!(other.buffer::<u32>(1), Err(Error::DeviceLost(_))));
                }
                expect_works(&Device::cpu().unwrap());
            });
            expect_works(&own);
        });
        expect_works(&device);
    }
}
