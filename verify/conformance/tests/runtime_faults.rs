//! The faults of docs/errors-and-recovery.md on every real device that is present, and on an isolated one. Faults are provoked by a
//! checked kernel with an out-of-bounds index, where the simulated device injects them.
//!
//! CPU devices are created by each test. A GPU is shared by the process, so tests run sequentially.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use elinvar::{
    Action, BreakerLimits, BreakerState, Buffer, CheckedKernel, Completion, Device, DeviceKind, Error, Grid,
    IsolatedOptions, RecoveryPolicy, Source, StopsAt, Stream, TraceStep, WhenFull,
};
use elinvar_driver::Driver as _;
use elinvar_driver_cpu::CpuDriver;
use libtest_mimic::{Arguments, Completion as Ended, Failed, Trial};

const N: usize = 1000;
/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(3600);
const KERNELS: &str = include_str!("runtime_faults.metal");

type Case = fn(&Bench) -> elinvar::Result<()>;

const CASES: &[(&str, Case)] = &[
    ("a_fault_is_tried_again_as_often_as_the_policy_says", tried_again),
    ("what_works_in_place_is_not_tried_again", in_place),
    ("what_waits_for_another_attempt_ends_at_its_deadline", late_attempt),
    ("repeated_faults_open_the_breaker_and_work_is_run_elsewhere", breaker),
    ("a_probe_closes_the_breaker", probe),
    ("a_failure_reaches_who_waits_and_what_is_behind", failure),
    ("a_full_stream_rejects_waits_and_blocks", full_stream),
    ("what_has_not_begun_is_cancelled", cancelled),
    ("a_waker_that_panics_harms_nobody", panicking_waker),
    ("everything_may_be_dropped_with_work_in_flight", dropped),
];

fn main() {
    elinvar::serve_if_asked();
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let present = Device::all().unwrap_or_default();
    let has = |kind: &str| present.iter().any(|device| device.kind().name() == kind);
    let mut trials = Vec::new();
    for (kind, open) in DEVICES {
        let is_there = match *kind {
            "isolated" => cfg!(target_os = "linux"),
            "isolated_cuda" => cfg!(target_os = "linux") && has("cuda"),
            kind => has(kind),
        };
        trials.extend(CASES.iter().map(|(name, case)| {
            let run = move || run(open()?, *case);
            Trial::ignorable_test(format!("{kind}::{name}"), run).with_ignored_flag(!is_there)
        }));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

type Open = fn() -> elinvar::Result<Device>;

const DEVICES: &[(&str, Open)] = &[
    ("cpu", || Ok(Device::new(CpuDriver::with_threads(2).devices()?.remove(0)))),
    ("isolated", || Device::isolated_with(&IsolatedOptions { threads: Some(2), ..Default::default() })),
    ("cuda", || shared(DeviceKind::Cuda)),
    ("isolated_cuda", || {
        Device::isolated_with(&IsolatedOptions { kind: DeviceKind::Cuda, ..Default::default() })
    }),
    ("metal", || shared(DeviceKind::Metal)),
];

fn shared(kind: DeviceKind) -> elinvar::Result<Device> {
    let found = Device::all()?.into_iter().find(|device| device.kind() == kind);
    found.ok_or_else(|| Error::unsupported(format!("no {} device", kind.name())))
}

/// A case that the device does not support is not a pass: it is reported as ignored, with the reason.
fn run(device: Device, case: Case) -> Result<Ended, Failed> {
    match Bench::new(device).and_then(|bench| case(&bench)) {
        Ok(()) => Ok(Ended::Completed),
        Err(Error::Unsupported(reason)) => Ok(Ended::ignored_with(reason)),
        Err(error) => Err(error.into()),
    }
}

struct Bench {
    device: Device,
    add: CheckedKernel,
    put: CheckedKernel,
    shift: CheckedKernel,
}

impl Bench {
    fn new(device: Device) -> elinvar::Result<Self> {
        let library = device.compile(Source::named("runtime_faults.metal", KERNELS))?;
        let [add, put, shift] = ["add", "put", "shift"].map(|name| library.checked_kernel(name));
        device.trace().start(10_000);
        Ok(Self { device, add: add?, put: put?, shift: shift? })
    }

    /// Three attempts per fault, without delays; otherwise the policy of the device.
    fn policy(&self) -> RecoveryPolicy {
        RecoveryPolicy {
            faults: true,
            backoff: Duration::ZERO,
            attempts: 3,
            ..RecoveryPolicy::of(&self.device)
        }
    }

    /// Copies `in` to `out` from element `at` on.
    fn put(
        &self,
        stream: &Stream,
        out: &mut Buffer<u32>,
        input: &Buffer<u32>,
        at: u32,
    ) -> elinvar::Result<Completion> {
        self.put.launch(stream, Grid::threads(N), (out, input, at))
    }

    fn numbers(&self) -> elinvar::Result<(Buffer<u32>, Buffer<u32>)> {
        let numbers: Vec<u32> = (0..N as u32).collect();
        Ok((self.device.buffer_with_data(&numbers)?, self.device.buffer(N)?))
    }

    /// The recovery decisions since the last call.
    fn decisions(&self) -> Vec<(Action, String)> {
        let events = self.device.trace().events();
        self.device.trace().start(10_000);
        let decision = |event: &elinvar::TraceEvent| match &event.step {
            TraceStep::Recovery(decision) => Some((decision.action, decision.reason.clone())),
            _ => None,
        };
        events.iter().filter_map(decision).collect()
    }

    /// Checks that correct work on this stream is computed.
    fn expect_computes(&self, stream: &Stream) -> elinvar::Result<()> {
        let (input, mut out) = self.numbers()?;
        self.add.launch(stream, Grid::threads(N), (&mut out, &input, 5_u32))?.wait()?;
        assert!(out.to_vec()?.iter().enumerate().all(|(i, x)| *x == i as u32 + 5));
        Ok(())
    }
}

fn is_fault(result: &elinvar::Result<elinvar::Timing>) -> bool {
    matches!(result, Err(Error::Fault(_)))
}

fn tried_again(bench: &Bench) -> elinvar::Result<()> {
    let stream = bench.device.stream_recovering(bench.policy())?;
    let (input, mut out) = bench.numbers()?;
    let failed = bench.put(&stream, &mut out, &input, 1)?.wait();
    assert!(is_fault(&failed), "{failed:?}");
    let actions: Vec<Action> = bench.decisions().into_iter().map(|(action, _)| action).collect();
    assert_eq!(actions, [Action::Retry, Action::Retry, Action::GiveUp]);
    assert!(matches!(out.to_vec(), Err(Error::Poisoned(_))));
    let none = RecoveryPolicy { faults: false, ..bench.policy() };
    let other = bench.device.stream_recovering(none)?;
    assert!(is_fault(&bench.put(&other, &mut out, &input, 1)?.wait()));
    assert_eq!(bench.decisions(), [(Action::GiveUp, "the kernel faulted".into())]);
    stream.acknowledge();
    bench.put(&stream, &mut out, &input, 0)?.wait()?;
    assert_eq!(out.to_vec()?, input.to_vec()?);
    Ok(())
}

fn in_place(bench: &Bench) -> elinvar::Result<()> {
    let stream = bench.device.stream_recovering(bench.policy())?;
    let mut data = bench.device.buffer_with_data(&[7_u32; N])?;
    let failed = bench.shift.launch(&stream, Grid::threads(N), (&mut data, 1_u32))?.wait();
    assert!(is_fault(&failed), "{failed:?}");
    let reason = "kernel `shift`, argument 0 `data` (device uint*): modified in place, so its original contents may be lost";
    assert_eq!(bench.decisions(), [(Action::GiveUp, reason.into())]);
    stream.acknowledge();
    bench.expect_computes(&stream)
}

fn late_attempt(bench: &Bench) -> elinvar::Result<()> {
    if bench.device.caps().features.stops_at == StopsAt::Never {
        return Err(Error::unsupported(
            "this device cannot stop running work, and would be lost if the first attempt is late",
        ));
    }
    let policy = RecoveryPolicy { backoff: LONG, longest: LONG, ..bench.policy() };
    let stream = bench.device.stream_recovering(policy)?;
    let (input, mut out) = bench.numbers()?;
    let begin = Instant::now();
    let mut commands = stream.command_buffer();
    commands.deadline(Duration::from_millis(200))?;
    commands.launch_checked(&bench.put, Grid::threads(N), (&mut out, &input, 1_u32))?;
    let ended = commands.submit()?.wait();
    assert!(matches!(&ended, Err(Error::Timeout(_) | Error::Fault(_))), "{ended:?}");
    assert!(begin.elapsed() < LONG / 4);
    stream.acknowledge();
    bench.expect_computes(&stream)
}

/// Causes faults in a row, with one attempt each.
fn fail(bench: &Bench, stream: &Stream, times: u32) -> elinvar::Result<()> {
    let (input, mut out) = bench.numbers()?;
    for _ in 0..times {
        assert!(is_fault(&bench.put(stream, &mut out, &input, 1)?.wait()));
        stream.acknowledge();
    }
    Ok(())
}

fn breaker(bench: &Bench) -> elinvar::Result<()> {
    // Only for a device that belongs to this test, because its breaker stays open.
    let is_own = bench.device.kind() == DeviceKind::Cpu || bench.device.caps().features.restarts;
    if !is_own {
        return Err(Error::unsupported("the device is the process's, and its breaker would stay open"));
    }
    let limits = BreakerLimits { failures: 4, cooldown: LONG, longest: LONG };
    bench.device.breaker().set_limits(limits);
    let once = RecoveryPolicy { attempts: 1, ..bench.policy() };
    let stream = bench.device.stream_recovering(once.clone())?;
    fail(bench, &stream, 4)?;
    let (input, mut out) = bench.numbers()?;
    let refused = bench.put(&stream, &mut out, &input, 0)?.wait();
    assert!(matches!(&refused, Err(Error::Refused(_))), "{refused:?}");
    let elsewhere = RecoveryPolicy { rerun: Some(Device::cpu()?), ..once };
    let stream = bench.device.stream_recovering(elsewhere)?;
    bench.decisions();
    bench.put(&stream, &mut out, &input, 0)?.wait()?;
    assert_eq!(out.to_vec()?, input.to_vec()?);
    let actions: Vec<Action> = bench.decisions().into_iter().map(|(action, _)| action).collect();
    assert_eq!(actions, [Action::Rerun]);
    // Streams without recovery are not affected by the breaker.
    bench.expect_computes(&bench.device.stream()?)
}

fn probe(bench: &Bench) -> elinvar::Result<()> {
    let before = bench.device.breaker().limits();
    let zero = Duration::ZERO;
    bench.device.breaker().set_limits(BreakerLimits { failures: 4, cooldown: zero, longest: zero });
    let stream = bench.device.stream_recovering(RecoveryPolicy { attempts: 1, ..bench.policy() })?;
    fail(bench, &stream, 4)?;
    assert!(matches!(bench.device.breaker().state(), BreakerState::Open { .. }));
    bench.expect_computes(&stream)?;
    assert!(matches!(bench.device.breaker().state(), BreakerState::Closed));
    bench.device.breaker().set_limits(before);
    Ok(())
}

fn failure(bench: &Bench) -> elinvar::Result<()> {
    let (stream, other) = (bench.device.stream()?, bench.device.stream()?);
    let event = bench.device.event()?;
    let (input, mut out) = bench.numbers()?;
    let mut beside = bench.device.buffer::<u32>(N)?;
    let failed = bench.put(&stream, &mut out, &input, 1)?;
    let signal = stream.signal(&event, 1)?;
    other.wait_for(&event, 1)?;
    let waits = bench.put(&other, &mut beside, &input, 0)?;
    assert!(is_fault(&failed.wait()));
    for poisoned in [signal.wait(), waits.wait()] {
        assert!(
            matches!(&poisoned, Err(Error::Poisoned(cause)) if matches!(**cause, Error::Fault(_))),
            "{poisoned:?}"
        );
    }
    assert!(matches!(event.wait(1), Err(Error::Poisoned(_))));
    for stream in [&stream, &other] {
        assert!(stream.acknowledge().is_some());
        bench.expect_computes(stream)?;
    }
    Ok(())
}

/// A stream that waits for an event of the host, and the event.
fn held(bench: &Bench) -> elinvar::Result<(Stream, elinvar::Event)> {
    let (stream, event) = (bench.device.stream()?, bench.device.event()?);
    stream.wait_for(&event, 1)?;
    Ok((stream, event))
}

fn full_stream(bench: &Bench) -> elinvar::Result<()> {
    let (input, mut out) = bench.numbers()?;
    for when_full in [WhenFull::Reject, WhenFull::Deadline(Duration::from_millis(1))] {
        let (stream, event) = held(bench)?;
        let stream = stream.limited(2, when_full);
        bench.put(&stream, &mut out, &input, 0)?;
        let last = bench.put(&stream, &mut out, &input, 0)?;
        let refused = bench.put(&stream, &mut out, &input, 0);
        assert!(matches!(&refused, Err(Error::QueueFull { limit: 2 })), "{refused:?}");
        event.signal(1);
        last.wait()?;
        bench.expect_computes(&stream)?;
    }
    let (stream, event) = held(bench)?;
    let stream = stream.limited(1, WhenFull::Block);
    bench.put(&stream, &mut out, &input, 0)?;
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| bench.expect_computes(&stream));
        std::thread::sleep(Duration::from_millis(5));
        assert!(!blocked.is_finished(), "one is in flight");
        event.signal(1);
        blocked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn cancelled(bench: &Bench) -> elinvar::Result<()> {
    let (input, mut out) = bench.numbers()?;
    let (stream, event) = held(bench)?;
    let [first, second, third] =
        [3, 4, 5].map(|k| bench.add.launch(&stream, Grid::threads(N), (&mut out, &input, k as u32)));
    let (first, second, third) = (first?, second?, third?);
    assert!(second.cancel() && !second.cancel());
    assert!(third.cancel());
    event.signal(1);
    first.wait()?;
    assert!(!first.cancel());
    for cancelled in [second.wait(), third.wait()] {
        assert!(matches!(cancelled, Err(Error::Cancelled)), "{cancelled:?}");
    }
    assert!(stream.acknowledge().is_none());
    assert!(out.to_vec()?.iter().enumerate().all(|(i, x)| *x == i as u32 + 3));
    Ok(())
}

struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        panic!("a waker of a test");
    }
}

fn panicking_waker(bench: &Bench) -> elinvar::Result<()> {
    let (input, mut out) = bench.numbers()?;
    let (stream, event) = held(bench)?;
    let done = bench.put(&stream, &mut out, &input, 0)?;
    let mut polled = done.clone();
    let waker = Waker::from(Arc::new(Bomb));
    assert!(Pin::new(&mut polled).poll(&mut Context::from_waker(&waker)).is_pending());
    event.signal(1);
    done.wait()?;
    bench.expect_computes(&stream)
}

fn dropped(bench: &Bench) -> elinvar::Result<()> {
    let (input, mut out) = bench.numbers()?;
    let (stream, event) = held(bench)?;
    let kept = out.clone();
    let done = bench.put(&stream, &mut out, &input, 0)?;
    drop((input, out, stream));
    assert!(!done.is_done());
    event.signal(1);
    drop(event);
    done.wait()?;
    assert!(kept.to_vec()?.iter().enumerate().all(|(i, x)| *x == i as u32));
    Ok(())
}
