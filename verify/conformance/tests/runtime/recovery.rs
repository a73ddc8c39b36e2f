//! Recovery: retried calls, lost devices and resets, the circuit breaker.

use crate::support;

use std::time::Duration;

use elinvar::{
    Action, Attempts, BreakerLimits, BreakerState, Device, Error, HostAccess, RecoveryPolicy, Source,
    TraceStep, decide,
};
use elinvar_conformance::sim::{Op, Sim};
use support::{Bench, signature};

/// Three attempts without delays.
fn policy(device: &Device) -> RecoveryPolicy {
    RecoveryPolicy { backoff: Duration::ZERO, attempts: 3, ..RecoveryPolicy::of(device) }
}

/// The decisions in the trace.
fn decisions(device: &Device) -> Vec<Action> {
    let events = device.trace().events();
    let decision = |event: &elinvar::TraceEvent| match &event.step {
        TraceStep::Recovery(decision) => Some(decision.action),
        _ => None,
    };
    events.iter().filter_map(decision).collect()
}

fn outside() -> Error {
    Error::Environment("the compiler crashed".into())
}

fn full() -> Error {
    Error::OutOfMemory { requested: 1, available: 0 }
}

#[test]
fn an_allocation_that_fails_at_the_nth_call_is_tried_again() {
    let bench = Bench::new();
    let policy = policy(&bench.device);
    bench.device.trace().start(100);
    bench.sim.fail_after(Op::Allocate, 2, outside());
    let buffers: Vec<_> = (0..4u32)
        .map(|n| bench.device.recover(&policy, || bench.device.buffer_with_data(&[n; 100])).unwrap())
        .collect();
    for (n, buffer) in (0..).zip(&buffers) {
        assert_eq!(buffer.to_vec().unwrap(), [n; 100]);
    }
    assert_eq!(decisions(&bench.device), [Action::Retry]);
}

#[test]
fn out_of_memory_trims_the_pool_before_the_next_attempt() {
    let bench = Bench::new();
    let policy = policy(&bench.device);
    drop(bench.device.buffer::<u32>(1000).unwrap());
    bench.device.trace().start(100);
    // Opening a queue uses memory as well, of which the pool has no record.
    bench.sim.fail_next(Op::Queue, full());
    bench.device.recover(&policy, || bench.device.stream()).unwrap();
    assert_eq!((bench.device.pool().stats().idle_blocks, decisions(&bench.device)), (0, vec![Action::Trim]));
    (0..3).for_each(|_| bench.sim.fail_next(Op::Queue, full()));
    let error = bench.device.recover(&policy, || bench.device.stream()).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }));
    assert_eq!(decisions(&bench.device)[1..], [Action::Trim, Action::Trim, Action::GiveUp]);
}

#[test]
fn compilers_that_fail_are_called_again_and_sources_that_are_wrong_are_not() {
    let bench = Bench::new();
    let policy = policy(&bench.device);
    bench.sim.add_kernel(signature("k", vec![]));
    bench.device.trace().start(100);
    bench.sim.fail_next(Op::Compile, outside());
    bench.sim.fail_next(Op::Compile, Error::Timeout("the compiler".into()));
    let library = bench.device.recover(&policy, || bench.device.compile(Source::msl(""))).unwrap();
    bench.sim.fail_next(Op::Compile, Error::Compile(Vec::new()));
    let refused = bench.device.recover(&policy, || bench.device.compile(Source::msl("")));
    assert!(matches!(refused, Err(Error::Compile(_))));
    bench.sim.fail_next(Op::Pipeline, outside());
    bench.device.recover(&policy, || library.kernel("k")).unwrap();
    assert!(matches!(bench.device.recover(&policy, || library.kernel("x")), Err(Error::InvalidArgument(_))));
    (0..3).for_each(|_| bench.sim.fail_next(Op::Compile, outside()));
    let missing = bench.device.recover(&policy, || bench.device.compile(Source::msl("")));
    assert!(matches!(missing, Err(Error::Environment(_))));
    use Action::{GiveUp, Retry};
    let expected = [Retry, Retry, GiveUp, Retry, GiveUp, Retry, Retry, GiveUp];
    assert_eq!(decisions(&bench.device), expected);
    let events = bench.device.trace().events();
    assert!(events.iter().all(|event| event.stream.is_none()));
    let text = events[0].to_string();
    assert!(
        text.ends_with("submission 0: recovery retry: attempt 1 of 3 failed: the compiler crashed"),
        "{text}"
    );
}

/// Reruns this test in a child process, with a compiler that crashes once, or that does not exist.
#[test]
fn the_real_compiler_is_called_again() {
    const CHILD: &str = "ELINVAR_TEST_CALLS_THE_COMPILER";
    const TEST: &str = "recovery::the_real_compiler_is_called_again";
    if std::env::var_os(CHILD).is_some() {
        let device = Device::cpu().unwrap();
        device.trace().start(100);
        let text = "kernel void k(device uint* x, uint i [[thread_position_in_grid]]) { x[i] = i; }";
        let compiled = device.recover(&policy(&device), || device.compile(Source::msl(text)));
        println!("\n{:?} {:?}", compiled.map(|library| library.kernels().len()).ok(), decisions(&device));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let clang = folder.path().join("clang");
    let crash = format!("mkdir {}/once 2>/dev/null && kill -SEGV $$", folder.path().display());
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *\" -disable-llvm-passes \"*) {crash};; esac\nexec $(command -v clang-19 clang | head -n 1) \"$@\"\n"
    );
    // A child writes the file: a descriptor open for writing here could be inherited by another test's child, and
    // executing the script would fail (`ETXTBSY`).
    let mut write = std::process::Command::new("sh");
    write.args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""]).arg(&clang).arg(script);
    assert!(write.status().unwrap().success());
    for (compiler, expected) in
        [(clang, "Some(1) [Retry]"), (folder.path().join("none"), "None [Retry, Retry, GiveUp]")]
    {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", TEST, "--nocapture"]).env(CHILD, "1");
        child.env("ELINVAR_CACHE", "off").env("ELINVAR_CLANG", compiler);
        let output = child.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            said.lines().any(|line| line == expected),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn a_lost_device_is_reset_and_what_it_alone_had_is_lost() {
    let bench = Bench::on(Sim::discrete());
    let (device, stream) = (&bench.device, &bench.stream);
    let policy = policy(device);
    let mut shared = device.buffer_for::<u32>(2, HostAccess::Staging).unwrap();
    let mut private = device.buffer_for::<u32>(2, HostAccess::Never).unwrap();
    shared.write(&[1, 2]).unwrap();
    private.write(&[3, 4]).unwrap();
    bench.sim.hold();
    let pending = stream.fill(&mut private, 5).unwrap();
    let event = device.event().unwrap();
    stream.signal(&event, 1).unwrap();
    bench.sim.lose("unplugged");
    assert!(matches!(device.stream(), Err(Error::DeviceLost(_))));
    device.recover(&policy, || device.stream()).unwrap();
    assert_eq!(bench.sim.resets(), 1);
    let lost = pending.wait().unwrap_err();
    assert!(matches!(&lost, Error::DeviceLost(_)), "{lost}");
    assert!(matches!(event.wait(1), Err(Error::Poisoned(_))));
    assert_eq!(shared.to_vec().unwrap(), [1, 2]);
    assert!(
        matches!(private.to_vec(), Err(Error::Poisoned(cause)) if matches!(*cause, Error::DeviceLost(_)))
    );
    // The stream is usable after its failure is acknowledged, and the buffer after it is written.
    bench.sim.release();
    assert!(matches!(stream.fill(&mut private, 6).unwrap().wait(), Err(Error::Poisoned(_))));
    assert!(matches!(stream.acknowledge(), Some(Error::DeviceLost(_))));
    stream.fill(&mut private, 7).unwrap();
    assert_eq!(private.to_vec().unwrap(), [7, 7]);
}

#[test]
fn a_device_that_cannot_be_reset_is_terminal() {
    let bench = Bench::on(Sim::discrete());
    let device = &bench.device;
    device.trace().start(100);
    bench.sim.fail_next(Op::Reset, Error::unsupported("device `sim` cannot be reset"));
    bench.sim.lose("unplugged");
    assert!(matches!(device.recover(&policy(device), || device.stream()), Err(Error::DeviceLost(_))));
    assert_eq!(decisions(device), [Action::Reset, Action::GiveUp]);
    assert!(matches!(device.breaker().state(), BreakerState::Terminal(Error::DeviceLost(_))));
    device.reset().unwrap();
    assert!(matches!(device.breaker().state(), BreakerState::Closed));
    device.recover(&policy(device), || device.stream()).unwrap();
}

#[test]
fn policies_suit_the_memory_of_the_device() {
    let of = |sim| RecoveryPolicy::of(&Device::new(sim));
    let (unified, discrete) = (of(Sim::new()), of(Sim::discrete()));
    assert!(unified.backoff > discrete.backoff && unified.longest > discrete.longest);
    assert_eq!((unified.resets, discrete.resets), (0, 1));
    // After repeated out-of-memory errors, a device with unified memory gives up; a discrete device has the work rerun on another device.
    let other = Device::new(Sim::named("other"));
    let tried = Attempts { made: 4, ..Attempts::first(0) };
    let action = |policy: RecoveryPolicy| {
        decide(&full(), &RecoveryPolicy { rerun: Some(other.clone()), ..policy }, &tried).action
    };
    assert_eq!((action(unified), action(discrete)), (Action::GiveUp, Action::Rerun));
}

#[test]
fn the_processor_cannot_be_reset() {
    let device = Device::cpu().unwrap();
    let refused = device.reset().unwrap_err();
    assert!(matches!(&refused, Error::Unsupported(text) if text.starts_with("reset of the CPU device:")));
    assert!(matches!(device.breaker().state(), BreakerState::Closed));
    device.stream().unwrap().synchronize().unwrap();
}

#[test]
fn repeated_faults_open_the_breaker_and_one_probe_closes_it() {
    let bench = Bench::new();
    let device = &bench.device;
    let once = RecoveryPolicy { attempts: 1, ..policy(device) };
    let compile = || device.recover(&once, || device.compile(Source::msl("")));
    let limits = |cooldown| BreakerLimits { failures: 3, cooldown, longest: Duration::MAX };
    device.breaker().set_limits(limits(Duration::from_secs(3600)));
    device.trace().start(100);
    for _ in 0..3 {
        bench.sim.fail_next(Op::Compile, outside());
        assert!(matches!(compile(), Err(Error::Environment(_))));
    }
    assert!(matches!(compile(), Err(Error::Refused(_))), "the device is not asked");
    assert_eq!(decisions(device).last(), Some(&Action::Refuse));
    device.compile(Source::msl("")).unwrap();
    device.reset().unwrap();
    device.breaker().set_limits(limits(Duration::ZERO));
    (0..3).for_each(|_| bench.sim.fail_next(Op::Compile, outside()));
    (0..3).for_each(|_| assert!(matches!(compile(), Err(Error::Environment(_)))));
    assert!(matches!(device.breaker().state(), BreakerState::Open { .. }));
    // While the probe is in flight, all other calls are refused.
    device
        .recover(&once, || {
            assert!(matches!(device.breaker().state(), BreakerState::HalfOpen));
            assert!(matches!(compile(), Err(Error::Refused(_))));
            Ok(())
        })
        .unwrap();
    compile().unwrap();
    assert!(matches!(device.breaker().state(), BreakerState::Closed));
}
