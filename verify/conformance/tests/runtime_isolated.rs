//! Isolated devices through the public API: causes of a worker's end, what survives it, and recovery. Each test runs on the CPU
//! and, where present, on an NVIDIA GPU.
//!
//! The tests are their own worker program. `ELINVAR_ISOLATED_FAULTS=1000` makes the last one longer.

#[cfg(target_os = "linux")]
fn main() {
    elinvar::serve_if_asked();
    let mut arguments = libtest_mimic::Arguments::from_args();
    // One test at a time: the last one measures descriptors and memory of the process.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, linux::trials()).exit();
}

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
#[path = "support/compilations.rs"]
#[allow(dead_code)] // a part of it
mod compilations;

#[cfg(target_os = "linux")]
#[path = "isolated/tensor.rs"]
mod tensor;

#[cfg(target_os = "linux")]
mod linux {
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use elinvar::{
        Action, BreakerLimits, BreakerState, Buffer, Completion, Device, DeviceKind, Error, Grid, HostAccess,
        IsolatedOptions, Kernel, PersistentKernel, RecoveryPolicy, Residency, Source, Storage, Stream,
        TraceStep,
    };
    use elinvar_conformance::suite::drop_last_device;
    use libtest_mimic::Trial;

    use crate::compilations::Compilations;
    use crate::tensor::tensor_operations_that_are_lost_are_computed_again;

    const LENGTH: usize = 4096;
    const KERNELS: &str = "
    #include <metal_stdlib>
    using namespace metal;
    kernel void add(device uint* out, device const uint* in, constant uint& k, uint i [[thread_position_in_grid]]) {
        out[i] = in[i] + k;
    }
    kernel void wild(device uint* out, constant ulong& at, uint i [[thread_position_in_grid]]) {
        *reinterpret_cast<device uint*>(at) = i;
        out[i] = 1;
    }
    kernel void forever(device atomic_uint* flag, device uint* out, uint i [[thread_position_in_grid]]) {
        while (atomic_load_explicit(flag, memory_order_relaxed) == 0) {}
        out[i] = 1;
    }";

    type Case = fn(DeviceKind);

    macro_rules! cases {
        ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name as Case)),*] };
    }

    /// Cases for every kind of device.
    const CASES: &[(&str, Case)] = cases![
        work_that_is_lost_is_done_again_behind_a_reset,
        a_deadline_ends_a_worker_that_stands_still,
        what_survives_a_crash_and_a_reset,
        work_that_is_lost_is_run_on_another_device,
        memory_that_runs_out_is_trimmed_and_tried_again,
        a_crash_under_the_usual_policy_leaves_the_device_usable,
        work_beside_a_crash_is_done_again,
        work_that_is_lost_in_place_is_not_done_again,
        tensor_operations_that_are_lost_are_computed_again,
        host_memory_is_refused_with_the_reason,
        resident_kernels_are_refused_with_the_reason,
        checked_kernels_fault_as_elsewhere,
        the_last_device_may_be_dropped_in_a_callback,
        random_faults_beside_another_device,
    ];
    const OF_THE_PROCESSOR: &[(&str, Case)] = cases![
        a_deadline_ends_endless_loops_and_the_worker_goes_on,
        private_memory_has_its_limit,
        general_code_serves_all_sizes_until_one_has_run_for_long,
    ];
    const OF_A_GPU: &[(&str, Case)] = cases![
        a_deadline_ends_an_endless_loop_with_the_worker,
        managed_memory_is_in_step_across_workers,
        small_buffers_share_granules,
        memory_is_read_beside_crashes,
        private_memory_of_the_process_cannot_be_limited,
        an_index_beyond_the_devices_is_refused,
    ];

    pub fn trials() -> Vec<Trial> {
        let has_gpu =
            Device::all().is_ok_and(|all| all.iter().any(|device| device.kind() == DeviceKind::Cuda));
        let of = |kind: DeviceKind, cases: &'static [(&'static str, Case)], is_there: bool| {
            cases.iter().map(move |(name, case)| {
                let run = move || {
                    case(kind);
                    Ok(())
                };
                Trial::test(format!("{}::{name}", kind.name()), run).with_ignored_flag(!is_there)
            })
        };
        let processor = of(DeviceKind::Cpu, CASES, true).chain(of(DeviceKind::Cpu, OF_THE_PROCESSOR, true));
        let gpu = of(DeviceKind::Cuda, CASES, has_gpu).chain(of(DeviceKind::Cuda, OF_A_GPU, has_gpu));
        processor.chain(gpu).collect()
    }

    pub struct Bench {
        pub device: Device,
        add: Kernel,
        wild: Kernel,
        forever: Kernel,
        /// Endless loops run until it is set.
        flag: Buffer<u32>,
    }

    impl Bench {
        pub fn new(kind: DeviceKind) -> Self {
            let (threads, grace) = (Some(2), Duration::from_millis(100));
            let options = IsolatedOptions { kind, threads, grace, ..Default::default() };
            Self::on(Device::isolated_with(&options).unwrap())
        }

        fn on(device: Device) -> Self {
            let library = device.compile(Source::msl(KERNELS)).unwrap();
            let [add, wild, forever] = ["add", "wild", "forever"].map(|name| library.kernel(name).unwrap());
            let flag = device.buffer_with_data(&[0_u32]).unwrap();
            let bench = Self { device, add, wild, forever, flag };
            bench.load();
            bench
        }

        /// Makes the worker load the kernels, which a stopped worker could not do.
        fn load(&self) {
            let (input, mut out) = (self.buffer(0), self.buffer(0));
            let mut commands = self.device.stream().unwrap().command_buffer();
            // SAFETY: the command buffer is never submitted.
            #[allow(unsafe_code)]
            unsafe {
                commands
                    .launch(&self.add, Grid::threads(LENGTH).group(64), (&mut out, &input, 0_u32))
                    .unwrap();
                commands.launch(&self.wild, Grid::threads(1), (&mut out, 64_u64)).unwrap();
            }
        }

        pub fn worker(&self) -> String {
            let details = self.device.details();
            details.into_iter().find(|(name, _)| *name == "worker process").unwrap().1
        }

        pub fn signal(&self, name: &str) {
            let worker = self.worker();
            let status = Command::new("kill").args([name, &worker]).status().unwrap();
            assert!(status.success(), "kill {name}");
            // One thread handles the signal when it is scheduled, and stops the others.
            while name == "-STOP" && !is_stopped(&worker) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }

        /// out = in + k.
        fn add(&self, stream: &Stream, out: &mut Buffer<u32>, input: &Buffer<u32>, k: u32) -> Completion {
            let grid = Grid::threads(out.len()).group(64);
            // SAFETY: thread i reads and writes element i, and the number of elements is that of the threads.
            #[allow(unsafe_code)]
            unsafe { self.add.launch(stream, grid, (out, input, k)) }.unwrap()
        }

        /// A store to an unmapped address.
        fn crash(&self, stream: &Stream, out: &mut Buffer<u32>) -> Completion {
            // SAFETY: the store ends the worker process and does not change memory.
            #[allow(unsafe_code)]
            unsafe { self.wild.launch(stream, Grid::threads(1), (out, 64_u64)) }.unwrap()
        }

        /// Work that ends only at its deadline.
        fn endless(&self, stream: &Stream, out: &mut Buffer<u32>, after: Duration) -> Completion {
            let mut flag = self.flag.clone();
            let mut commands = stream.command_buffer();
            commands.deadline(after).unwrap();
            // SAFETY: the kernel reads one element, and is stopped before it writes the other.
            #[allow(unsafe_code)]
            unsafe { commands.launch(&self.forever, Grid::threads(1), (&mut flag, out)) }.unwrap();
            commands.submit().unwrap()
        }

        fn buffer(&self, value: u32) -> Buffer<u32> {
            self.device.buffer_with_data(&[value; LENGTH]).unwrap()
        }

        fn expect_computes(&self) {
            let (input, mut out) = (self.buffer(3), self.buffer(0));
            self.add(&self.device.stream().unwrap(), &mut out, &input, 4).wait().unwrap();
            assert_eq!(out.to_vec().unwrap(), [7; LENGTH]);
        }
    }

    fn the_last_device_may_be_dropped_in_a_callback(kind: DeviceKind) {
        for _ in 0..2 {
            let options = IsolatedOptions { kind, ..Default::default() };
            drop_last_device(Device::isolated_with(&options).unwrap()).unwrap();
        }
    }

    /// Whether all threads of a process are stopped.
    fn is_stopped(process: &str) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        tasks.flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|state| state.starts_with('T'))
        })
    }

    /// Whether the error reports the crash. The driver of a GPU reports the fault; for the CPU only the way the worker ended is known.
    fn is_crash(kind: DeviceKind, error: &Error) -> bool {
        let text = error.to_string();
        let (is_it, deed) = match kind {
            DeviceKind::Cpu => (is_lost(error), "SIGSEGV"),
            _ => (matches!(error, Error::Fault(_)), "illegal memory address"),
        };
        is_it && text.contains(deed) && text.contains("kernel `wild`")
    }

    /// Whether the error is that of a crash, or a consequence of it.
    fn is_after_crash(kind: DeviceKind, error: &Error) -> bool {
        is_crash(kind, error) || matches!(error, Error::Poisoned(cause) if is_crash(kind, cause))
    }

    fn is_lost(error: &Error) -> bool {
        matches!(error, Error::DeviceLost(_)) || matches!(error, Error::Poisoned(cause) if is_lost(cause))
    }

    fn work_that_is_lost_is_done_again_behind_a_reset(kind: DeviceKind) {
        let bench = Bench::new(kind);
        let policy = RecoveryPolicy { resets: 1, ..RecoveryPolicy::of(&bench.device) };
        let stream = bench.device.stream_recovering(policy).unwrap();
        let (input, mut out, mut last) = (bench.buffer(1), bench.buffer(0), bench.buffer(0));
        bench.add(&stream, &mut out, &input, 0).wait().unwrap();
        let before = bench.worker();
        // A stopped worker cannot complete the work before it is killed.
        bench.signal("-STOP");
        let lost = bench.add(&stream, &mut out, &input, 10);
        let behind = bench.add(&stream, &mut last, &out, 100);
        bench.signal("-KILL");
        lost.wait().unwrap();
        behind.wait().unwrap();
        assert_eq!((out.to_vec().unwrap(), last.to_vec().unwrap()), (vec![11; LENGTH], vec![111; LENGTH]));
        assert_ne!(bench.worker(), before);
        // Without a reset the work is given up; the device remains usable.
        let policy = RecoveryPolicy { resets: 0, ..RecoveryPolicy::of(&bench.device) };
        let stream = bench.device.stream_recovering(policy).unwrap();
        bench.signal("-STOP");
        let lost = bench.add(&stream, &mut out, &input, 10);
        bench.signal("-KILL");
        assert!(is_lost(&lost.wait().unwrap_err()));
        stream.acknowledge();
        bench.add(&stream, &mut out, &input, 20).wait().unwrap();
        assert_eq!(out.to_vec().unwrap(), [21; LENGTH]);
    }

    fn work_that_is_lost_is_run_on_another_device(kind: DeviceKind) {
        let bench = Bench::new(kind);
        let rerun = Some(Device::cpu().unwrap());
        let policy = RecoveryPolicy { resets: 0, rerun, ..RecoveryPolicy::of(&bench.device) };
        let stream = bench.device.stream_recovering(policy).unwrap();
        let (input, mut out) = (bench.buffer(1), bench.buffer(0));
        bench.signal("-STOP");
        let lost = bench.add(&stream, &mut out, &input, 10);
        bench.signal("-KILL");
        lost.wait().unwrap();
        assert_eq!(out.to_vec().unwrap(), [11; LENGTH]);
    }

    fn memory_that_runs_out_is_trimmed_and_tried_again(kind: DeviceKind) {
        let options = IsolatedOptions { kind, threads: Some(1), memory: Some(4 << 20), ..Default::default() };
        let device = Device::isolated_with(&options).unwrap();
        let bytes = |device: &Device| device.buffer::<u8>(3 << 20);
        let first = bytes(&device).unwrap();
        assert!(matches!(bytes(&device), Err(Error::OutOfMemory { .. })));
        // Idle memory in the pool is freed for the allocation.
        drop(first);
        let other = device.buffer::<u8>(2 << 20).unwrap();
        drop(other);
        bytes(&device).unwrap();
    }

    /// The default policy of the device, unchanged.
    fn a_crash_under_the_usual_policy_leaves_the_device_usable(kind: DeviceKind) {
        let bench = Bench::new(kind);
        let policy = RecoveryPolicy::of(&bench.device);
        assert_eq!(policy.resets, 1, "a worker is quickly started");
        let (stream, plain) =
            (bench.device.stream_recovering(policy).unwrap(), bench.device.stream().unwrap());
        let (kept, mut out, mut behind) = (bench.buffer(1), bench.buffer(0), bench.buffer(0));
        let mut private = bench.device.buffer_in::<u32>(LENGTH, Storage::Private).unwrap();
        bench.add(&plain, &mut private, &kept, 1).wait().unwrap();
        let event = bench.device.event().unwrap();
        bench.device.trace().start(1000);
        let crash = bench.crash(&stream, &mut out);
        let poisoned = bench.add(&stream, &mut behind, &out, 1);
        let signal = stream.signal(&event, 1).unwrap();
        let error = crash.wait().unwrap_err();
        assert!(is_crash(kind, &error), "{error}");
        for error in [poisoned.wait().unwrap_err(), signal.wait().unwrap_err(), event.wait(1).unwrap_err()] {
            assert!(matches!(&error, Error::Poisoned(first) if is_crash(kind, first)), "{error}");
        }
        for error in [out.to_vec().unwrap_err(), behind.to_vec().unwrap_err()] {
            assert!(is_after_crash(kind, &error), "{error}");
        }
        // It had its second attempt in a worker of its own.
        let decided = decisions(&bench.device);
        assert_eq!(actions(&bench.device), [Action::Reset, Action::GiveUp], "{decided:?}");
        assert!(matches!(bench.device.breaker().state(), BreakerState::Closed));
        // All memory is unchanged, including memory that the host cannot access.
        assert_eq!((kept.to_vec().unwrap(), private.to_vec().unwrap()), (vec![1; LENGTH], vec![2; LENGTH]));
        // The next submissions work, on the failed stream after acknowledgment.
        bench.add(&plain, &mut behind, &private, 10).wait().unwrap();
        assert_eq!(behind.to_vec().unwrap(), [12; LENGTH]);
        assert!(is_after_crash(kind, &stream.acknowledge().unwrap()));
        bench.add(&stream, &mut out, &behind, 100).wait().unwrap();
        assert_eq!(out.to_vec().unwrap(), [112; LENGTH]);
    }

    /// Work in flight beside a kernel that crashes is retried, even if retries are hit by further crashes. Work without recovery continues
    /// on the new worker.
    fn work_beside_a_crash_is_done_again(kind: DeviceKind) {
        let bench = Bench::new(kind);
        let policy = RecoveryPolicy::of(&bench.device);
        // Otherwise the open breaker would refuse work for a while.
        bench.device.breaker().set_limits(BreakerLimits { failures: 1000, ..Default::default() });
        // The crashing work gets a second attempt, which may again hit the other stream's retry.
        let patient = RecoveryPolicy { attempts: 8, resets: 4, ..policy.clone() };
        let [crashes, beside] =
            [policy, patient].map(|policy| bench.device.stream_recovering(policy).unwrap());
        let plain = bench.device.stream().unwrap();
        let (input, mut junk, mut out, mut last) =
            (bench.buffer(1), bench.buffer(0), bench.buffer(0), bench.buffer(0));
        for k in 0..3 {
            bench.signal("-STOP");
            let crash = bench.crash(&crashes, &mut junk);
            let done = bench.add(&beside, &mut out, &input, k);
            bench.signal("-CONT");
            // If several kernels run, a GPU's driver cannot attribute the fault.
            let error = crash.wait().unwrap_err();
            assert!(is_lost(&error) || is_crash(kind, &error), "{error}");
            crashes.acknowledge();
            done.wait().unwrap();
            bench.add(&plain, &mut last, &out, 5).wait().unwrap();
            assert_eq!(last.to_vec().unwrap(), [k + 6; LENGTH]);
        }
    }

    fn work_that_is_lost_in_place_is_not_done_again(kind: DeviceKind) {
        let bench = Bench::new(kind);
        let stream = bench.device.stream_recovering(RecoveryPolicy::of(&bench.device)).unwrap();
        let mut data = bench.buffer(5);
        bench.device.trace().start(1000);
        bench.signal("-STOP");
        let input = data.clone();
        let lost = bench.add(&stream, &mut data, &input, 1);
        bench.signal("-KILL");
        assert!(is_lost(&lost.wait().unwrap_err()));
        assert_eq!(actions(&bench.device), [Action::GiveUp]);
        let decision = decisions(&bench.device).pop().unwrap_or_default();
        assert!(decision.contains("argument 1 `in`") && decision.contains("modified in place"), "{decision}");
        assert!(is_lost(&data.to_vec().unwrap_err()), "half of it may be done");
    }

    pub fn decisions(device: &Device) -> Vec<String> {
        let events = device.trace().events();
        let decisions = events.into_iter().filter_map(|event| match event.step {
            TraceStep::Recovery(decision) => Some(decision.to_string()),
            _ => None,
        });
        decisions.collect()
    }

    fn actions(device: &Device) -> Vec<Action> {
        let events = device.trace().events();
        let action = |event: &elinvar::TraceEvent| match &event.step {
            TraceStep::Recovery(decision) => Some(decision.action),
            _ => None,
        };
        events.iter().filter_map(action).collect()
    }

    fn a_deadline_ends_endless_loops_and_the_worker_goes_on(kind: DeviceKind) {
        let options = IsolatedOptions { kind, grace: Duration::MAX / 4, ..Default::default() };
        let bench = Bench::on(Device::isolated_with(&options).unwrap());
        let (before, stream, mut out) = (bench.worker(), bench.device.stream().unwrap(), bench.buffer(0));
        let ended = bench.endless(&stream, &mut out, Duration::from_millis(5)).wait();
        assert!(matches!(ended, Err(Error::Timeout(_))), "{ended:?}");
        assert_eq!(bench.worker(), before);
        bench.expect_computes();
    }

    fn a_deadline_ends_a_worker_that_stands_still(kind: DeviceKind) {
        let bench = Bench::new(kind);
        let (stream, other) = (bench.device.stream().unwrap(), bench.device.stream().unwrap());
        let (kept, mut out, mut beside) = (bench.buffer(5), bench.buffer(0), bench.buffer(0));
        bench.endless(&stream, &mut out, Duration::from_millis(1)).wait().unwrap_err();
        stream.acknowledge();
        // On a GPU, this has ended the worker.
        bench.expect_computes();
        let before = bench.worker();
        bench.signal("-STOP");
        let lost = bench.add(&other, &mut beside, &kept, 1);
        let late = bench.endless(&stream, &mut out, Duration::from_millis(5));
        assert!(matches!(late.wait(), Err(Error::Timeout(_))));
        assert!(is_lost(&lost.wait().unwrap_err()));
        // Reading what was not written is an error that names the cause; all other memory is unchanged.
        assert!(is_lost(&beside.to_vec().unwrap_err()));
        assert_eq!(kept.to_vec().unwrap(), [5; LENGTH]);
        other.acknowledge();
        bench.add(&other, &mut beside, &kept, 2).wait().unwrap();
        assert_eq!(beside.to_vec().unwrap(), [7; LENGTH]);
        assert_ne!(bench.worker(), before);
    }

    fn what_survives_a_crash_and_a_reset(kind: DeviceKind) {
        let bench = Bench::new(kind);
        let stream = bench.device.stream().unwrap();
        let (shared, mut private) =
            (bench.buffer(1), bench.device.buffer_in::<u32>(LENGTH, Storage::Private).unwrap());
        bench.add(&stream, &mut private, &shared, 1).wait().unwrap();
        let mut out = bench.buffer(0);
        let error = bench.crash(&stream, &mut out).wait().unwrap_err();
        assert!(is_crash(kind, &error), "{error}");
        stream.acknowledge();
        assert_eq!((shared.to_vec().unwrap(), private.to_vec().unwrap()), (vec![1; LENGTH], vec![2; LENGTH]));
        bench.device.reset().unwrap();
        assert_eq!(shared.to_vec().unwrap(), [1; LENGTH]);
        assert_eq!(private.to_vec().unwrap(), [2; LENGTH]);
        bench.add(&stream, &mut private, &shared, 2).wait().unwrap();
        assert_eq!(private.to_vec().unwrap(), [3; LENGTH]);
    }

    /// A running GPU kernel cannot be stopped, so the worker is ended, and other work gets a new one.
    fn a_deadline_ends_an_endless_loop_with_the_worker(kind: DeviceKind) {
        let bench = Bench::new(kind);
        let (before, stream, mut out) = (bench.worker(), bench.device.stream().unwrap(), bench.buffer(0));
        let kept = bench.buffer(5);
        let ended = bench.endless(&stream, &mut out, Duration::from_millis(5)).wait();
        assert!(matches!(ended, Err(Error::Timeout(_))), "{ended:?}");
        bench.expect_computes();
        assert_ne!(bench.worker(), before);
        assert_eq!(kept.to_vec().unwrap(), [5; LENGTH]);
    }

    /// The device's memory and its host pages belong to the host process: each worker continues with what the previous one left.
    fn managed_memory_is_in_step_across_workers(kind: DeviceKind) {
        let bench = Bench::new(kind);
        let stream = bench.device.stream().unwrap();
        let mut data = bench.device.buffer_for::<u32>(LENGTH, HostAccess::ReadWrite).unwrap();
        let mut private = bench.device.buffer_in::<u32>(LENGTH, Storage::Private).unwrap();
        let at = (data.gpu_address().unwrap(), private.gpu_address().unwrap());
        data.write(&[1; LENGTH]).unwrap();
        for round in 0..4 {
            let expected = 1 + 3 * round;
            assert_eq!(data.to_vec().unwrap(), [expected; LENGTH]);
            bench.add(&stream, &mut private, &data, 1).wait().unwrap();
            bench.signal("-KILL");
            // The read goes through staging memory, in another worker.
            assert_eq!(private.to_vec().unwrap(), [expected + 1; LENGTH]);
            bench.add(&stream, &mut data, &private, 2).wait().unwrap();
            assert_eq!((data.gpu_address().unwrap(), private.gpu_address().unwrap()), at);
        }
        // Larger than the staging memory, and not a multiple of its size.
        let numbers: Vec<u32> = (0..(9 << 20) / 4 + 7).collect();
        let mut large = bench.device.buffer_in::<u32>(numbers.len(), Storage::Private).unwrap();
        assert!(large.to_vec().unwrap().iter().all(|x| *x == 0), "new memory is zero");
        large.write(&numbers).unwrap();
        bench.device.reset().unwrap();
        assert_eq!(large.to_vec().unwrap(), numbers);
    }

    /// A read that is interrupted by a crash is completed by another worker.
    fn memory_is_read_beside_crashes(kind: DeviceKind) {
        let bench = Bench::new(kind);
        let stream = bench.device.stream().unwrap();
        let mut private = bench.device.buffer_in::<u32>(LENGTH, Storage::Private).unwrap();
        stream.fill(&mut private, 8).unwrap().wait().unwrap();
        let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(private.to_vec().unwrap(), [8; LENGTH]);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
            for _ in 0..10 {
                let (mut out, before) = (bench.buffer(0), reads.load(Ordering::Relaxed));
                let error = bench.crash(&stream, &mut out).wait().unwrap_err();
                assert!(is_crash(kind, &error), "{error}");
                stream.acknowledge();
                while reads.load(Ordering::Relaxed) < before + 3 && !reader.is_finished() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    /// 2,000 buffers of 4 KiB need 8 MiB of device memory, which fits the limit of 12 MiB; each has its own content.
    fn small_buffers_share_granules(kind: DeviceKind) {
        let options = IsolatedOptions { kind, memory: Some(12 << 20), ..Default::default() };
        let bench = Bench::on(Device::isolated_with(&options).unwrap());
        let stream = bench.device.stream().unwrap();
        for round in 0..3_u32 {
            let private = || bench.device.buffer_in::<u32>(1024, Storage::Private).unwrap();
            let mut buffers: Vec<Buffer<u32>> = (0..2000).map(|_| private()).collect();
            for (buffer, k) in buffers.iter_mut().zip(round..) {
                stream.fill(buffer, k).unwrap();
            }
            if round == 1 {
                stream.synchronize().unwrap();
                bench.signal("-KILL");
            }
            // Every second buffer is freed, and its memory is reused.
            let mut at = 0;
            buffers.retain(|_| {
                at += 1;
                at % 2 == 0
            });
            let others: Vec<Buffer<u32>> = (0..1000).map(|_| private()).collect();
            for (buffer, k) in buffers.iter().zip((round + 1..).step_by(2)) {
                assert_eq!(buffer.to_vec().unwrap(), [k; 1024]);
            }
            assert!(others.iter().all(|other| other.to_vec().unwrap() == [0; 1024]));
            let addresses = buffers.iter().chain(&others).map(|buffer| buffer.gpu_address().unwrap());
            let mut addresses: Vec<u64> = addresses.collect();
            addresses.sort_unstable();
            assert!(addresses.windows(2).all(|two| two[0] + 4096 <= two[1]));
            drop((buffers, others));
            bench.device.pool().trim(0);
        }
        // All memory is one free block again.
        let mut whole = bench.device.buffer_in::<u32>(10 << 18, Storage::Private).unwrap();
        stream.fill(&mut whole, 7).unwrap();
        assert!(whole.to_vec().unwrap().iter().all(|x| *x == 7));
    }

    fn private_memory_of_the_process_cannot_be_limited(kind: DeviceKind) {
        let options = IsolatedOptions { kind, private_memory: Some(1 << 30), ..Default::default() };
        let refused = Device::isolated_with(&options);
        assert!(matches!(refused, Err(Error::Unsupported(why)) if why.contains("private memory")));
    }

    fn an_index_beyond_the_devices_is_refused(kind: DeviceKind) {
        let options = IsolatedOptions { kind, index: 1000, ..Default::default() };
        let refused = Device::isolated_with(&options);
        assert!(matches!(refused, Err(Error::InvalidArgument(why)) if why.contains("1000")));
    }

    /// Values that a kernel keeps per thread use the worker's private memory.
    fn private_memory_has_its_limit(kind: DeviceKind) {
        const LIMIT: u64 = 160 << 20;
        let options =
            IsolatedOptions { kind, threads: Some(1), private_memory: Some(LIMIT), ..Default::default() };
        let bench = Bench::on(Device::isolated_with(&options).unwrap());
        let before = bench.worker();
        let source = Source::msl(LARGE);
        let library = bench.device.compile(&source).unwrap();
        let stream = bench.device.stream().unwrap();
        // 1024 threads keep 256 KiB each across a barrier.
        let mut out = bench.buffer(0);
        let keeps = library.kernel("keeps").unwrap();
        let grid = || Grid::threads(1024).group(1024);
        // SAFETY: the kernel writes 1024 elements, and the buffer has more.
        #[allow(unsafe_code)]
        let ended = unsafe { keeps.launch(&stream, grid(), (&mut out, 7_u32)) }.and_then(|done| done.wait());
        let error = ended.unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { requested, .. } if requested >= 256 << 20), "{error}");
        stream.acknowledge();
        // The worker has continued, within its limit.
        bench.expect_computes();
        assert_eq!(bench.worker(), before);
        let status = std::fs::read_to_string(format!("/proc/{before}/status")).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(peak << 10 < LIMIT, "{peak} KiB at most");
        // Too little for the worker's own threads.
        let options = IsolatedOptions { private_memory: Some(1 << 20), ..options };
        let error = Device::isolated_with(&options).err().unwrap().to_string();
        assert!(error.contains("memory") && error.contains("1048576"), "{error}");
    }

    const LARGE: &str = "
    #include <metal_stdlib>
    using namespace metal;
    kernel void keeps(device uint* out, constant uint& k, uint i [[thread_position_in_grid]]) {
        uint kept[65536];
        for (uint n = 0; n < 65536; ++n) kept[n] = n * k + i;
        threadgroup_barrier(mem_flags::mem_device);
        uint sum = 0;
        for (uint n = 0; n < 65536; ++n) sum += kept[(n * k + i) % 65536];
        out[i] = sum;
    }";

    fn host_memory_is_refused_with_the_reason(kind: DeviceKind) {
        let bench = Bench::new(kind);
        // SAFETY: the call is refused and has no effect.
        #[allow(unsafe_code)]
        let refused = unsafe { bench.device.buffer_no_copy(vec![0_u32; LENGTH]) };
        assert!(matches!(refused, Err(Error::Unsupported(why)) if why.contains("isolated")));
    }

    fn resident_kernels_are_refused_with_the_reason(kind: DeviceKind) {
        let bench = Bench::new(kind);
        let text = "#include <elinvar/resident>
            kernel void square(constant elinvar::inbox<uint, uint>& inbox) {
                uint item;
                while (inbox.receive(item)) inbox.complete(item * item);
            }";
        let square = bench.device.compile(Source::msl(text)).unwrap().kernel("square").unwrap();
        // SAFETY: it is refused and has no effect.
        #[allow(unsafe_code)]
        let refused = unsafe { PersistentKernel::<u32, u32>::start(&square, Residency::new(1, 32), ()) };
        assert!(matches!(refused, Err(Error::Unsupported(why)) if why.contains("cannot wake the threads")));
        // What is there goes on.
        bench.expect_computes();
    }

    fn checked_kernels_fault_as_elsewhere(kind: DeviceKind) {
        let bench = Bench::new(kind);
        let source = Source::msl(
            "kernel void far(device int* p, uint i [[thread_position_in_grid]]) { p[i + 7] = 1; }",
        );
        let far = bench.device.compile(&source).unwrap().checked_kernel("far").unwrap();
        let (mut p, stream) = (bench.device.buffer::<i32>(4).unwrap(), bench.device.stream().unwrap());
        let error = far.launch(&stream, Grid::threads(1), (&mut p,)).unwrap().wait().unwrap_err();
        assert!(matches!(&error, Error::Fault(fault) if fault.message.contains('7')), "{error}");
    }

    /// Number of open descriptors of this process.
    fn descriptors() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }

    /// Resident memory of this process in bytes.
    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    /// Runs work on the CPU in this process repeatedly, and checks every element.
    fn work_beside(stop: &AtomicBool, rounds: &AtomicU64) {
        let bench = Bench::on(Device::cpu().unwrap());
        let stream = bench.device.stream().unwrap();
        let (input, mut out) = (bench.buffer(1), bench.buffer(0));
        while !stop.load(Ordering::Relaxed) {
            let k = rounds.fetch_add(1, Ordering::Relaxed) as u32;
            bench.add(&stream, &mut out, &input, k).wait().unwrap();
            assert_eq!(out.to_vec().unwrap(), [k + 1; LENGTH]);
        }
    }

    /// Causes one fault, and checks the state after it.
    fn round(bench: &Bench, kept: &Buffer<u32>, fault: u64) {
        let (stream, other) = (bench.device.stream().unwrap(), bench.device.stream().unwrap());
        let (mut out, mut beside) = (bench.buffer(0), bench.buffer(0));
        let ended = match fault {
            0 => bench.crash(&stream, &mut out).wait(),
            1 => {
                bench.signal("-STOP");
                let done = bench.add(&stream, &mut out, kept, 1);
                bench.signal("-KILL");
                done.wait()
            }
            2 => {
                bench.signal("-STOP");
                bench.endless(&stream, &mut out, Duration::from_millis(1)).wait()
            }
            3 => {
                // The system decides which thread of the worker handles the signal, and when.
                let done = bench.endless(&stream, &mut out, Duration::from_secs(3600));
                bench.signal("-TRAP");
                done.wait()
            }
            4 => bench.endless(&stream, &mut out, Duration::from_millis(1)).wait(),
            _ => {
                bench.signal("-STOP");
                let done = bench.add(&stream, &mut out, kept, 1);
                bench.device.reset().unwrap();
                done.wait()
            }
        };
        let error = ended.expect_err("a fault");
        let is_fault = matches!(error, Error::Timeout(_) | Error::Fault(_));
        assert!(is_lost(&error) || is_fault, "fault {fault}: {error}");
        // Work of other streams has a new worker at once; work of this stream after acknowledgment.
        bench.add(&other, &mut beside, kept, 2).wait().unwrap();
        assert!(stream.acknowledge().is_some());
        bench.add(&stream, &mut out, &beside, 3).wait().unwrap();
        assert_eq!(out.to_vec().unwrap(), [14; LENGTH], "fault {fault}");
        assert_eq!(kept.to_vec().unwrap(), [9; LENGTH], "fault {fault}");
    }

    fn random_faults_beside_another_device(kind: DeviceKind) {
        let rounds =
            std::env::var("ELINVAR_ISOLATED_FAULTS").ok().and_then(|text| text.parse().ok()).unwrap_or(24);
        let bench = Bench::new(kind);
        let kept = bench.buffer(9);
        let (stop, worked) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let beside = scope.spawn(|| work_beside(&stop, &worked));
            // The other thread must end in any case.
            let faults = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                // Fault 4 is first: it makes the worker load the kernels that fault 2 launches on a stopped worker.
                [4, 0, 1, 2, 3, 5].into_iter().for_each(|fault| round(&bench, &kept, fault));
                let (open, memory) = (descriptors(), resident());
                let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
                for _ in 0..rounds {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    round(&bench, &kept, seed % 6);
                }
                let more = resident().saturating_sub(memory);
                assert!(descriptors() <= open + 2, "{} descriptors, {open} before", descriptors());
                assert!(more < 48 << 20, "{more} bytes more than before");
            }));
            stop.store(true, Ordering::Relaxed);
            beside.join().unwrap();
            faults.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        assert!(worked.load(Ordering::Relaxed) > 0);
    }

    fn general_code_serves_all_sizes_until_one_has_run_for_long(kind: DeviceKind) {
        /// Threads of the whole grid.
        const THREADS: usize = 3000;
        let device = Device::isolated_with(&IsolatedOptions { kind, ..Default::default() }).unwrap();
        let stream = device.stream().unwrap();
        // Code that no cache has.
        let unique = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let text = format!(
            "kernel void swap(device uint* out, constant uint& times, uint i [[thread_position_in_grid]],
                    uint t [[thread_index_in_threadgroup]], uint3 size [[threads_per_threadgroup]]) {{
                threadgroup uint shared[1024];
                shared[t] = i;
                threadgroup_barrier(metal::mem_flags::mem_threadgroup);
                uint x = shared[(t + 1) % size.x];
                for (uint k = 0; k < times; ++k) x = x * 1664525u + (k ^ x);
                out[i] = x + (size.x == 0 ? {} : 0);
            }}",
            unique % 1_000_000_007
        );
        let kernel = device.compile(Source::msl(text)).unwrap().kernel("swap").unwrap();
        let launch = |group: usize, times: u32| {
            let mut out = device.buffer::<u32>(THREADS).unwrap();
            // SAFETY: each thread writes its own element.
            #[allow(unsafe_code)]
            let launched =
                unsafe { kernel.launch(&stream, Grid::threads(THREADS).group(group), (&mut out, times)) };
            launched.unwrap().wait().unwrap();
            for (i, value) in out.to_vec().unwrap().into_iter().enumerate() {
                let first = i / group * group;
                let from = first + (i - first + 1) % group.min(THREADS - first);
                let step = |x: u32, k: u32| x.wrapping_mul(1_664_525).wrapping_add(k ^ x);
                let expected = (0..times).fold(from as u32, step);
                assert_eq!(value, expected, "element {i} with threadgroups of {group}");
            }
        };
        let count = Compilations::default();
        tracing::subscriber::set_global_default(count.clone()).unwrap();
        let groups = [64, 100, 128, 33, 256, 1000, 96, 1024];
        for _ in 0..2 {
            groups.iter().for_each(|group| launch(*group, 3));
        }
        assert_eq!(count.passes(), 2);
        // A restarted worker loads general code as it does other code.
        device.reset().unwrap();
        launch(100, 3);
        assert_eq!(count.passes(), 2);
        let start = Instant::now();
        while count.passes() == 2 && start.elapsed() < Duration::from_secs(300) {
            launch(100, 10_000);
        }
        assert_eq!(count.passes(), 3);
        // Waits for the background thread.
        kernel.optimize(100).unwrap();
        groups.iter().for_each(|group| launch(*group, 3));
        assert_eq!(count.passes(), 3);
    }
}
