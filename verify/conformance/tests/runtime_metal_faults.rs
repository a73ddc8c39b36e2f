//! Recovery from injected faults of the Metal stand-in: command buffers fail at arbitrary points of a chain of launches on a recovering
//! stream. The environment specifies the faults, so each case runs in a process of its own.
#![cfg(elinvar_apple)]

use std::process::Command;
use std::time::Duration;

use elinvar::{
    Action, Buffer, Completion, Component, Device, DeviceKind, Error, Grid, Kernel, RecoveryPolicy, Source,
    Status, Stream, TraceStep,
};

const N: usize = 1000;
const LAUNCHES: usize = 60;
const FAILURES: usize = 5;
/// `MTLCommandBufferErrorInternal` and `…PageFault`.
const CODES: [u32; 2] = [1, 3];
const CASE: &str = "ELINVAR_TEST_METAL_FAULTS";

/// Runs the test of this name in a process with these faults; `true` in that process.
fn is_child(test: &str, faults: &str) -> bool {
    is_child_with(test, ("ELINVAR_APPLE_FAULTS", faults))
}

fn is_child_with(test: &str, (variable, value): (&str, &str)) -> bool {
    if std::env::var_os(CASE).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CASE, "1")
        .env(variable, value)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{value}:\n{text}\n{errors}");
    false
}

struct Bench {
    device: Device,
    add: Kernel,
    shift: Kernel,
}

impl Bench {
    fn new() -> Self {
        let devices = Device::all().unwrap();
        let device =
            devices.into_iter().find(|device| device.kind() == DeviceKind::Metal).expect("a Metal device");
        let library = device
            .compile(Source::named("runtime_faults.metal", include_str!("runtime_faults.metal")))
            .unwrap();
        device.trace().start(100_000);
        Self { add: library.kernel("add").unwrap(), shift: library.kernel("shift").unwrap(), device }
    }

    fn stream(&self, attempts: u32) -> Stream {
        let policy = RecoveryPolicy {
            faults: true,
            backoff: Duration::ZERO,
            attempts,
            ..RecoveryPolicy::of(&self.device)
        };
        self.device.stream_recovering(policy).unwrap()
    }

    fn actions(&self) -> Vec<Action> {
        let decision = |event: elinvar::TraceEvent| match event.step {
            TraceStep::Recovery(decision) => Some(decision.action),
            _ => None,
        };
        self.device.trace().events().into_iter().filter_map(decision).collect()
    }

    /// Each launch adds its number to the output of the previous one; all are submitted before the first wait.
    fn chain(&self, stream: &Stream) {
        let mut buffers: Vec<Buffer<u32>> = (0..=LAUNCHES).map(|_| self.device.buffer(N).unwrap()).collect();
        buffers[0].write(&(0..N as u32).collect::<Vec<_>>()).unwrap();
        let launched: Vec<Completion> = (1..=LAUNCHES)
            .map(|k| {
                let (before, behind) = buffers.split_at_mut(k);
                let arguments = (&mut behind[0], &before[k - 1], k as u32);
                #[allow(unsafe_code)] // a launch without checks
                // SAFETY: each thread accesses its element.
                unsafe { self.add.launch(stream, Grid::threads(N), arguments) }.unwrap()
            })
            .collect();
        for (k, done) in launched.iter().enumerate() {
            assert!(done.wait().is_ok(), "launch {}: {:?}", k + 1, done.wait());
        }
        let mut sum = 0;
        for (k, buffer) in buffers.iter().enumerate() {
            sum += k as u32;
            let wrong = buffer.to_vec().unwrap().iter().enumerate().position(|(i, x)| *x != i as u32 + sum);
            assert_eq!(wrong, None, "behind launch {k}");
        }
    }
}

/// Pseudorandom faults of command buffers. They are farther apart than the driver commits ahead, so each is a separate failure.
fn faults(seed: u64) -> String {
    let mut state = seed;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut at = 0;
    let planned = (0..FAILURES).map(|_| {
        at += 9 + random(3);
        let code = CODES[random(2) as usize];
        // Before the first encoder, or within it.
        let encoder = if random(2) == 0 { "-1" } else { "0" };
        format!("execution:{at}:{code}:{encoder}")
    });
    planned.collect::<Vec<_>>().join(",")
}

#[test]
fn a_chain_computes_though_command_buffers_fail() {
    for seed in 1..=8 {
        let faults = faults(seed);
        if is_child("a_chain_computes_though_command_buffers_fail", &faults) {
            let bench = Bench::new();
            let stream = bench.stream(20);
            bench.chain(&stream);
            let actions = bench.actions();
            assert_eq!(actions, [Action::Retry; FAILURES]);
            assert!(stream.acknowledge().is_none());
            return;
        }
    }
}

#[test]
fn a_failure_that_repeats_ends_the_chain_and_the_stream_goes_on() {
    if is_child(
        "a_failure_that_repeats_ends_the_chain_and_the_stream_goes_on",
        "execution:1,execution:2,execution:3",
    ) {
        let bench = Bench::new();
        let stream = bench.stream(3);
        let input = bench.device.buffer_with_data(&[1_u32; N]).unwrap();
        let (mut first, mut second) =
            (bench.device.buffer::<u32>(N).unwrap(), bench.device.buffer::<u32>(N).unwrap());
        let launch = |input: &Buffer<u32>, output: &mut Buffer<u32>| {
            #[allow(unsafe_code)] // a launch without checks
            // SAFETY: each thread accesses its element.
            unsafe { bench.add.launch(&stream, Grid::threads(N), (output, input, 1_u32)) }
                .unwrap()
                .wait()
                .clone()
        };
        let failed = launch(&input, &mut first);
        assert!(matches!(failed, Err(Error::Fault(_))), "{failed:?}");
        let behind = launch(&first, &mut second);
        assert!(matches!(behind, Err(Error::Poisoned(_))), "{behind:?}");
        assert_eq!(bench.actions(), [Action::Retry, Action::Retry, Action::GiveUp]);
        assert!(matches!(second.to_vec(), Err(Error::Poisoned(_))));
        assert!(stream.acknowledge().is_some());
        bench.chain(&stream);
    }
}

#[test]
fn work_in_place_is_not_done_again() {
    if is_child("work_in_place_is_not_done_again", "execution:1:1:0") {
        let bench = Bench::new();
        let stream = bench.stream(3);
        let mut data = bench.device.buffer_with_data(&[1_u32; N]).unwrap();
        #[allow(unsafe_code)] // a launch without checks
        // SAFETY: each thread accesses its element.
        let failed = unsafe { bench.shift.launch(&stream, Grid::threads(N), (&mut data, 0_u32)) }.unwrap();
        assert!(matches!(failed.wait(), Err(Error::Fault(_))), "{:?}", failed.wait());
        assert_eq!(bench.actions(), [Action::GiveUp]);
        assert!(matches!(data.to_vec(), Err(Error::Poisoned(_))));
    }
}

#[test]
fn work_of_a_removed_device_is_done_elsewhere() {
    if is_child("work_of_a_removed_device_is_done_elsewhere", "execution:7:11") {
        let bench = Bench::new();
        let policy = RecoveryPolicy {
            backoff: Duration::ZERO,
            rerun: Some(Device::cpu().unwrap()),
            ..RecoveryPolicy::of(&bench.device)
        };
        let stream = bench.device.stream_recovering(policy).unwrap();
        bench.chain(&stream);
    }
}

/// Health has the system's thermal state.
#[test]
fn the_temperature_is_that_of_the_system() {
    let test = "the_temperature_is_that_of_the_system";
    let variable = "ELINVAR_APPLE_THERMAL";
    let states = [
        ("nominal", Status::Healthy),
        ("fair", Status::Healthy),
        ("serious", Status::Degraded),
        ("critical", Status::Failing),
    ];
    for (state, _) in states {
        if is_child_with(test, (variable, state)) {
            let given = std::env::var(variable).unwrap();
            let health = Bench::new().device.health();
            let expected = states.iter().find(|(state, _)| *state == given).unwrap().1;
            assert_eq!(health.of(Component::Temperature), expected, "{given}: {health}");
            return;
        }
    }
}
